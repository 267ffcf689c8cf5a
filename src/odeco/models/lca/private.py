"""Classes are learnt under differential privacy: from noisy sums over respondents, and from nothing
else.

1. The pairs of answers to two questions.
2. The third moment of three views, in k directions that the pairs give.
3. The statistics of EM iterations: how often each answer was given by each class so far.

If the pairs do not show that answers depend on each other (`PairTables.n_clear`), all classes
answer as all respondents do, and the rest of the budget goes to the pairs again: noise never makes
classes that are worse than one.

After each of them, the classes are those under which all that was released so far is likeliest
(`Matching`): the budget of the start is not lost to the iterations, as it stays part of what is
learnt from. `HeldAnswers` bounds what each respondent adds; everything between the releases is
post-processing. The same program on simulated respondents is the plan, which needs no real one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from odeco._util.arguments import check_count
from odeco._util.types import FloatArray
from odeco.models.engine.fit import largest_first
from odeco.models.engine.private import PrivatePlan, Releaser, Simulated, plan_fit
from odeco.models.lca.classes import Classes, m_step
from odeco.models.lca.pairs import (
    Matching,
    PairTables,
    ReleasedStep,
    classes_at_random,
    classes_of_views,
    shrunk,
    views_of,
)
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.answers import HeldAnswers, bound_of_pairs
from odeco.privacy.holders.protocol import NeighbourRelation
from odeco.privacy.holders.tables import Levels

#: Shares of μ² of the pairs, of the core, and of the EM iterations.
_WITH_CORE = (0.3, 0.15, (0.25, 0.3))

#: The same without a core: with little signal, its noise would leave nothing.
_WITHOUT_CORE = (0.65, 0.0, (0.15, 0.2))

#: Signal is little below this: the respondents of a class, divided by the noise of a pair with the
#: whole budget.
_LITTLE = 20.0

#: Number of random starts that are compared with that of the views, by how well they fit the pairs,
#: at no cost.
_N_RANDOM = 8

#: The prior of a class counts as this many deviations of the noise in its size.
_PRIOR = 1.0


@dataclass(frozen=True)
class ReleaseShares:
    """Shares of μ² of the releases; they sum to one.

    Attributes
    ----------
    pairs, core : float
        Of the pairs, and of the third moment; the latter is 0 if no three views can identify k
        classes.
    steps : tuple of float
        Of each EM iteration.
    """

    pairs: float
    core: float
    steps: tuple[float, ...]


def release_shares(
    questions: Levels, n_components: int, *, n_rows: int, mu: float
) -> ReleaseShares:
    """Return the shares, from public numbers only.

    They were chosen on planted classes of 20 questions with three answers: k = 5 and 10, 5,000 to
    100,000 respondents, ε from 0.1 to 4. Other classes were drawn for the figures that the
    benchmark reports.
    """
    if n_components == 1:
        return ReleaseShares(1.0, 0.0, ())
    # The best split of the questions has views of about equal size; without directions for k
    # classes there is no core.
    enough = questions.sizes.size >= 3 and 1 + questions.n_free // 3 >= n_components
    signal = n_rows / n_components * mu / (math.sqrt(2) * bound_of_pairs(questions))
    return ReleaseShares(*(_WITH_CORE if enough and signal >= _LITTLE else _WITHOUT_CORE))


def find_private_classes(
    held: HeldAnswers, releaser: Releaser, n_components: int, shares: ReleaseShares, *, seed: int
) -> tuple[Classes, FloatArray, int]:
    """Return k classes, learnt from noisy sums over respondents, the frequencies of all answers,
    and a number.

    The number is that of different classes: 1 if noise hides whether there are several.

    Parameters
    ----------
    held : HeldAnswers
        The respondents.
    releaser : Releaser
        Releases sums over them with noise.
    n_components : int
        Number k of classes.
    shares : ReleaseShares
        The shares of the releases.
    seed : int
        Seed of all that is drawn after the releases; the noise does not depend on it.
    """
    questions, k, rng = held.questions, n_components, np.random.default_rng(seed)
    released, deviation = releaser.release(held.pairs(), share=shares.pairs)
    tables = PairTables.of(released, deviation, questions, held.n_records)
    if k == 1:
        return Classes(np.ones(1), tables.frequencies[:, None]), tables.frequencies, 1
    if not tables.n_clear(held.n_records):
        rest, own = releaser.release(held.pairs(), share=1 - shares.pairs)
        # Weighted by their precisions, both have together the noise of one release with the whole
        # budget.
        both = shares.pairs * released + (1 - shares.pairs) * rest
        noise = math.hypot(shares.pairs * deviation, (1 - shares.pairs) * own)
        frequencies = PairTables.of(both, noise, questions, held.n_records).frequencies
        return Classes(np.full(k, 1 / k), np.tile(frequencies[:, None], k)), frequencies, 1
    matching = Matching(tables, held.n_records, k)
    classes = _start(held, releaser, matching, shares, rng)
    for number, share in enumerate(shares.steps, 1):
        released, deviation = releaser.release(
            held.step(classes.responsibilities, k, number), share=share
        )
        matching = matching.with_step(ReleasedStep(classes, released, deviation))
        starts = (classes, _maximised(released, deviation, tables, held.n_records))
        classes = matching.best_of(starts, rng)
    return largest_first(classes), tables.frequencies, k


def _start(
    held: HeldAnswers,
    releaser: Releaser,
    matching: Matching,
    shares: ReleaseShares,
    rng: np.random.Generator,
) -> Classes:
    tables, k = matching.tables, matching.n_components
    views = views_of(tables, k, rng) if shares.core else None

    def release_core(maps: tuple[FloatArray, ...], lengths: tuple[float, ...]) -> FloatArray:
        released, _ = releaser.release(held.core(maps, lengths), share=shares.core)
        return released / held.n_records

    starts = [classes_at_random(tables, k, rng) for _ in range(_N_RANDOM)]
    if views is not None:
        starts.append(
            classes_of_views(tables, views, k, release_core, seed=int(rng.integers(2**31)))
        )
    return matching.best_of(starts, rng)


def _maximised(released: FloatArray, deviation: float, tables: PairTables, n_rows: int) -> Classes:
    """Return the classes of noisy statistics, the nearer to the answers of all respondents the
    larger the noise is.
    """
    # A class has been counted once for each question that its respondents answered.
    weights = np.maximum(
        released.sum(axis=0) / tables.answered.sum(), n_rows / (20 * released.shape[1])
    )
    expected = (tables.answered[tables.questions.owners] * tables.frequencies)[:, None] * weights
    answers = np.maximum(shrunk(released, expected, deviation), 0.0)
    return m_step(weights, answers, tables.questions, tables.frequencies, _PRIOR * deviation)


#: At most this many respondents are simulated. The noise is scaled down to their number.
_MAX_SIMULATED = 20_000

#: A class counts as found if its cosine with the true one is at least this, after the frequencies
#: are subtracted.
_FOUND = 0.8


def plan_classes(
    n_components: int,
    *,
    n_respondents: int,
    categories: int | Sequence[int],
    epsilon: float,
    delta: float,
    n_questions: int | None = None,
    neighbour_relation: NeighbourRelation = "replace",
    seed: int = 0,
) -> PrivatePlan:
    """Say what a private model would release, and simulate how many classes it would find; no
    respondent is needed.

    Parameters
    ----------
    n_components : int
        Number of classes.
    n_respondents : int
        Number of respondents.
    categories : int or list of int
        The number of answers to each question; one number for all, with `n_questions`.
    epsilon, delta : float
        The guarantee.
    n_questions : int, optional
        The number of questions, if `categories` is one number.
    neighbour_relation : {"replace", "add_remove"}
        As for `LatentClasses`.
    seed : int
        Of the simulation.

    Notes
    -----
    The respondents are simulated: classes of equal size whose probabilities are drawn uniformly,
    and no answer missing. Real classes may be harder to tell apart, or easier.

    Examples
    --------
    >>> from odeco.models import plan_classes
    >>> plan = plan_classes(
    ...     3, n_respondents=50_000, categories=3, n_questions=12, epsilon=1.0, delta=1e-6
    ... )
    >>> plan.n_expected
    3
    """
    k, n_rows = (
        check_count("n_components", n_components),
        check_count("n_respondents", n_respondents),
    )
    if isinstance(categories, int):
        listed = [categories] * check_count("n_questions", n_questions, 2)
    else:
        listed = list(categories)
    sizes = np.array([check_count("categories", each) for each in listed])
    if sizes.size < 2:
        raise ValueError("A private model needs at least 2 questions: pairs are released. Got 1.")
    questions, guarantee = Levels(sizes), Guarantee(epsilon, delta)
    shares = release_shares(questions, k, n_rows=n_rows, mu=guarantee.mu)
    rng = np.random.default_rng(seed)
    answers = np.concatenate([rng.dirichlet(np.ones(size), k).T for size in sizes])
    truth, n_drawn = Classes(np.full(k, 1 / k), answers), min(n_rows, _MAX_SIMULATED)

    def program(simulated: Simulated, rng: np.random.Generator) -> FloatArray:
        held = HeldAnswers(questions.indicators(truth.draw(questions, n_drawn, rng)[0]), questions)
        releaser, seed = simulated(rng)
        return likeness(truth, find_private_classes(held, releaser, k, shares, seed=seed)[0])

    return plan_fit(
        program,
        guarantee,
        n_rows,
        n_drawn,
        unit="respondent",
        neighbour_relation=neighbour_relation,
        rng=rng,
        n_components=k,
        threshold=_FOUND,
        records=f"respondents to {sizes.size} questions",
        verdict=(
            f"of {k} classes of simulated respondents {{number}} would be clear (mean cosine "
            "{mean:.2f})"
        ),
    )


def likeness(truth: Classes, found: Classes) -> FloatArray:
    """Return for each true class its cosine with the class that is matched to it, without what all
    classes share.
    """
    overall = (truth.answers @ truth.weights)[:, None]
    one, other = truth.answers - overall, found.answers - overall
    norms = np.outer(np.linalg.norm(one, axis=0), np.linalg.norm(other, axis=0))
    cosines = np.where(norms > 0, one.T @ other / np.where(norms > 0, norms, 1.0), 1.0)
    rows, columns = linear_sum_assignment(-cosines)
    return np.asarray(cosines[rows, columns])
