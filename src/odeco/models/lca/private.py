"""Classes are learnt under differential privacy: from noisy sums over respondents, and from nothing else.

1. The pairs of answers to two questions.
2. The third moment of three views, in k directions that the pairs give.
3. Likelihood steps: how often each answer was given by each class so far.

After each of them, the classes are those under which all that was released so far is likeliest (`Matching`): the start
is no loss to the steps, for it stays part of what is learnt from. What each respondent adds is bounded in
`HeldAnswers`; all between the releases is post-processing.

What a private model of latent classes can be expected to find, said before any respondent is touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, Protocol

import numpy as np
from scipy.optimize import linear_sum_assignment

from odeco._util.arguments import check_choice, check_count
from odeco._util.types import FloatArray
from odeco.models.lca.categories import Questions
from odeco.models.lca.em import Classes, Sums, draw_codes, maximised
from odeco.models.lca.holder import HeldAnswers, bound_of_pairs, bound_of_step
from odeco.models.lca.learn import in_order
from odeco.models.lca.pairs import (
    Matching,
    PairTables,
    ReleasedStep,
    classes_at_random,
    classes_of_views,
    shrunk,
    views_of,
)
from odeco.privacy.calibration import adversary_accuracy, gdp_mu
from odeco.privacy.report import in_plain_words

#: Shares of μ² of the pairs, of the core, and of the steps.
_WITH_CORE = (0.3, 0.15, (0.25, 0.3))

#: The same without a core: of little signal, its noise would leave nothing.
_WITHOUT_CORE = (0.65, 0.0, (0.15, 0.2))

#: Signal is little below this: the respondents of a class, divided by the noise of a pair with the whole budget.
_LITTLE = 20.0

#: So many random starts are compared with that of the views, by how well they fit the pairs. That costs no budget.
_N_RANDOM = 8

#: The prior of a class counts as so many deviations of the noise in its size.
_PRIOR = 1.0


#: What `PrivacyReport` calls this.
MECHANISM = "pairs of answers, the third moment of three views, and likelihood steps"


class Release(Protocol):
    """Whoever releases sums with noise: `PrivateSums`, or a simulation of it."""

    def release(
        self,
        what: str,
        answer: Callable[[], FloatArray],
        *,
        size: int,
        bound: float,
        share: float,
        signed: bool = True,
    ) -> tuple[FloatArray, float]:
        """Return a sum with noise, and the deviation of the noise."""
        ...


@dataclass(frozen=True)
class SharePlan:
    """Shares of μ² of the releases; they sum to one.

    Attributes
    ----------
    pairs, core : float
        Of the pairs, and of the third moment; the latter is 0 if no three views can tell so many classes apart.
    steps : tuple of float
        Of each likelihood step.
    """

    pairs: float
    core: float
    steps: tuple[float, ...]


def plan_shares(questions: Questions, n_components: int, *, n_rows: int, mu: float) -> SharePlan:
    """Return the shares, from public numbers only.

    They were chosen on planted classes of 20 questions with three answers: k = 5 and 10, 5,000 to 100,000 respondents,
    ε from 0.1 to 4. Other classes were drawn for the figures that the benchmark reports.
    """
    if n_components == 1:
        return SharePlan(1.0, 0.0, ())
    # The best deal of the questions has views of about equal size; without directions for k classes, no core is asked.
    enough = questions.sizes.size >= 3 and 1 + questions.n_free // 3 >= n_components
    signal = n_rows / n_components * mu / (math.sqrt(2) * bound_of_pairs(questions))
    return SharePlan(*(_WITH_CORE if enough and signal >= _LITTLE else _WITHOUT_CORE))


@dataclass(frozen=True, eq=False)
class FoundPrivately:
    """Classes, and the frequencies of all answers."""

    classes: Classes
    frequencies: FloatArray


def find_private_classes(
    held: HeldAnswers, sums: Release, n_components: int, plan: SharePlan, *, seed: int
) -> FoundPrivately:
    """Ask for what the plan says, and return the classes that follow.

    Parameters
    ----------
    held : HeldAnswers
        The respondents.
    sums : Release
        Releases sums over them, with noise that is paid for.
    n_components : int
        Number k of classes.
    plan : SharePlan
        The shares of the releases.
    seed : int
        Seed of all that is drawn after the releases; the noise does not depend on it.
    """
    questions, k, rng = held.questions, n_components, np.random.default_rng(seed)
    size = sum(int(a * b) for i, a in enumerate(questions.sizes) for b in questions.sizes[i + 1 :])
    released, deviation = sums.release(
        f"pairs of answers to two of {questions.sizes.size} questions, {size} numbers",
        held.pairs,
        size=size,
        bound=bound_of_pairs(questions),
        share=plan.pairs,
        signed=False,
    )
    tables = PairTables.of(released, deviation, questions, held.n_rows)
    if k == 1:
        return FoundPrivately(Classes(np.ones(1), tables.frequencies[:, None]), tables.frequencies)
    matching = Matching(tables, held.n_rows, k)
    classes = _start(held, sums, matching, plan, rng)
    for number, share in enumerate(plan.steps, 1):
        released, deviation = sums.release(
            f"answers by class, step {number}, {questions.n_answers} x {k} numbers",
            partial(held.step, classes),
            size=questions.n_answers * k,
            bound=bound_of_step(questions),
            share=share,
            signed=False,
        )
        matching = matching.with_step(ReleasedStep(classes, released, deviation))
        starts = (classes, _maximised(released, deviation, tables, held.n_rows))
        classes = matching.best_of(starts, rng)
    return FoundPrivately(in_order(classes), tables.frequencies)


def _start(held: HeldAnswers, sums: Release, matching: Matching, plan: SharePlan, rng: np.random.Generator) -> Classes:
    tables, k = matching.tables, matching.n_components
    views = views_of(tables, k, rng) if plan.core else None

    def ask(maps: tuple[FloatArray, ...], lengths: tuple[float, ...]) -> FloatArray:
        released, _ = sums.release(
            f"third moment of three views, {k} x {k} x {k} numbers",
            partial(held.core, maps, lengths),
            size=k**3,
            bound=math.prod(lengths),
            share=plan.core,
        )
        return released / held.n_rows

    starts = [classes_at_random(tables, k, rng) for _ in range(_N_RANDOM)]
    if views is not None:
        starts.append(classes_of_views(tables, views, k, ask, seed=int(rng.integers(2**31))))
    return matching.best_of(starts, rng)


def _maximised(released: FloatArray, deviation: float, tables: PairTables, n_rows: int) -> Classes:
    """Return the classes that noisy sums give, nearer to what all respondents answer the more of them is noise."""
    # A class has been counted once for each question that its respondents answered.
    weights = np.maximum(released.sum(axis=0) / tables.answered.sum(), n_rows / (20 * released.shape[1]))
    expected = (tables.answered[tables.questions.owners] * tables.frequencies)[:, None] * weights
    sums = Sums(np.maximum(shrunk(released, expected, deviation), 0.0), weights, 0.0)
    return maximised(sums, tables.questions, tables.frequencies, _PRIOR * deviation)


#: At most so many respondents are simulated; with fewer than there are, the noise is less in the same measure.
_MOST_SIMULATED = 20_000

#: The model is learnt so often, of other simulated respondents each time.
_N_AGAIN = 3

#: A class is clear if what is found resembles it by this cosine, without the frequencies of all answers.
_CLEAR = 0.8


@dataclass(frozen=True)
class ClassesPlan:
    """What a private `LatentClasses` would release, and how many classes can be expected; ``str`` gives a table.

    Attributes
    ----------
    epsilon, delta, mu : float
        The budget.
    n_respondents, n_questions, n_components : int
        What it was made for.
    shares : SharePlan
        The share of μ² of each release.
    noise_of_pairs, noise_of_steps : float or tuple of float
        Standard deviation of the noise in a count of a pair of answers, and in each step in a count of an answer.
    likeness : tuple of float
        For each class of simulated respondents, the cosine of what would be found with the truth, largest first,
        without the frequencies of all answers; the mean over several simulations.
    """

    unit: ClassVar[str] = "respondent"

    epsilon: float
    delta: float
    mu: float
    n_respondents: int
    n_questions: int
    n_components: int
    shares: SharePlan
    noise_of_pairs: float
    noise_of_steps: tuple[float, ...]
    likeness: tuple[float, ...]

    @property
    def n_expected(self) -> int:
        """How many classes can be expected to be clear."""
        return sum(each >= _CLEAR for each in self.likeness)

    def __str__(self) -> str:
        lines = [
            f"epsilon {self.epsilon:g}, delta {self.delta:g} (mu {self.mu:.4g}); {self.n_respondents:,} respondents to "
            f"{self.n_questions} questions",
            f"{'release':<44}{'share':>7}{'noise of a count':>18}",
            f"{'pairs of answers to two questions':<44}{self.shares.pairs:>7.0%}{self.noise_of_pairs:>18.4g}",
        ]
        if self.shares.core:
            lines.append(f"{'third moment of three views':<44}{self.shares.core:>7.0%}{'':>18}")
        for number, (share, noise) in enumerate(zip(self.shares.steps, self.noise_of_steps, strict=True), 1):
            lines.append(f"{f'answers by class, step {number}':<44}{share:>7.0%}{noise:>18.4g}")
        lines.append(
            f"of {self.n_components} classes of simulated respondents {self.n_expected} would be clear "
            f"(mean cosine {np.mean(self.likeness):.2f})"
        )
        lines.append(in_plain_words(adversary_accuracy(self.mu), self.unit))
        return "\n".join(lines)


def plan_classes(
    n_components: int,
    *,
    n_respondents: int,
    categories: int | Sequence[int],
    epsilon: float,
    delta: float,
    n_questions: int | None = None,
    neighbour_relation: Literal["replace", "add_remove"] = "replace",
    seed: int = 0,
) -> ClassesPlan:
    """Say what a private model would release, and simulate how many classes it would find; no respondent is needed.

    Parameters
    ----------
    n_components : int
        Number of classes.
    n_respondents : int
        Number of respondents.
    categories : int or list of int
        How many answers each question has; one number for all, with `n_questions`.
    epsilon, delta : float
        The guarantee.
    n_questions : int, optional
        How many questions there are, if `categories` is one number.
    neighbour_relation : {"replace", "add_remove"}
        As for `LatentClasses`.
    seed : int
        Of the simulation.

    Notes
    -----
    The respondents are simulated: classes of equal size whose probabilities are drawn uniformly, and no answer missing.
    Real classes may be harder to tell apart, or easier.

    Examples
    --------
    >>> from odeco.models import plan_classes
    >>> plan = plan_classes(3, n_respondents=50_000, categories=3, n_questions=12, epsilon=1.0, delta=1e-6)
    >>> plan.n_expected
    3
    """
    k, n_rows = check_count("n_components", n_components), check_count("n_respondents", n_respondents)
    check_choice("neighbour_relation", neighbour_relation, ("replace", "add_remove"))
    if isinstance(categories, int):
        listed = [categories] * check_count("n_questions", n_questions, 2)
    else:
        listed = list(categories)
    sizes = np.array([check_count("categories", each) for each in listed])
    if sizes.size < 2:
        raise ValueError("A private model needs at least 2 questions: pairs are released. Got 1.")
    questions, mu = Questions(sizes), gdp_mu(epsilon, delta)
    replaced = neighbour_relation == "replace"
    shares = plan_shares(questions, k, n_rows=n_rows, mu=mu)
    rng = np.random.default_rng(seed)
    answers = np.concatenate([rng.dirichlet(np.ones(size), k).T for size in sizes])
    truth = Classes(np.full(k, 1 / k), answers)
    n_drawn = min(n_rows, _MOST_SIMULATED)
    again = []
    for _ in range(_N_AGAIN):
        held = HeldAnswers(questions.indicators(draw_codes(truth, questions, n_drawn, rng)[0]), questions)
        sums = _SimulatedSums(n_drawn / n_rows / mu, replaced, rng)
        found = find_private_classes(held, sums, k, shares, seed=int(rng.integers(2**31)))
        again.append(likeness(truth, found.classes))
    one = (math.sqrt(2) if replaced else 1.0) / mu
    return ClassesPlan(
        epsilon,
        delta,
        mu,
        n_rows,
        sizes.size,
        k,
        shares,
        one * bound_of_pairs(questions) / math.sqrt(shares.pairs),
        tuple(one * bound_of_step(questions) / math.sqrt(share) for share in shares.steps),
        tuple(float(each) for each in np.sort(np.mean(again, axis=0))[::-1]),
    )


def likeness(truth: Classes, found: Classes) -> FloatArray:
    """Return for each true class its cosine with the class that is matched to it, without what all classes share."""
    overall = (truth.answers @ truth.weights)[:, None]
    one, other = truth.answers - overall, found.answers - overall
    norms = np.outer(np.linalg.norm(one, axis=0), np.linalg.norm(other, axis=0))
    cosines = np.where(norms > 0, one.T @ other / np.where(norms > 0, norms, 1.0), 1.0)
    rows, columns = linear_sum_assignment(-cosines)
    matched: FloatArray = cosines[rows, columns]
    return matched


class _SimulatedSums:
    """Sums of simulated respondents, with noise of the same size beside them: nobody real is asked."""

    def __init__(self, unit_noise: float, replaced: bool, rng: np.random.Generator) -> None:
        self._unit_noise, self._replaced, self._rng = unit_noise, replaced, rng

    def release(
        self,
        what: str,  # noqa: ARG002 - nobody reads it
        answer: Callable[[], FloatArray],
        *,
        size: int,  # noqa: ARG002 - nothing is rounded
        bound: float,
        share: float,
        signed: bool = True,
    ) -> tuple[FloatArray, float]:
        factor = (2.0 if signed else math.sqrt(2)) if self._replaced else 1.0
        deviation = factor * bound * self._unit_noise / math.sqrt(share)
        exact = answer()
        return exact + deviation * self._rng.standard_normal(exact.shape), deviation
