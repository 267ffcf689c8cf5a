"""Classes are learnt under differential privacy: from noisy sums over respondents, and from nothing else.

1. The pairs of answers to two questions.
2. The third moment of three views, in k directions that the pairs give.
3. Likelihood steps: how often each answer was given by each class so far.

After each of them, the classes are those under which all that was released so far is likeliest (`Matching`): the start
is no loss to the steps, for it stays part of what is learnt from. What each respondent adds is bounded in
`HeldAnswers`; all between the releases is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from odeco._types import FloatArray
from odeco.answers.learn import in_order
from odeco.answers.matching import Matching, ReleasedStep
from odeco.answers.pair_tables import PairTables, classes_at_random, classes_of_views, shrunk, views_of
from odeco.answers.private_holder import HeldAnswers, bound_of_pairs, bound_of_step
from odeco.answers.steps import Classes, Sums, maximised
from odeco.answers.table import Questions

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
