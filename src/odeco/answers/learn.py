"""Classes are learnt: from the moments of several splits into views and from random starts, whichever is likeliest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from odeco._types import FloatArray, IndexArray
from odeco.answers.moments import as_probabilities, can_start, classes_from_moments
from odeco.answers.steps import Classes, maximised, sums_of
from odeco.answers.table import Bits, Questions
from odeco.latent.likelihood import Climbed, Step, climb, race

#: Starts race on so many respondents at most, and each takes so many steps before the first are left behind.
_TRIAL_ROWS, _FIRST_STEPS = 20_000, 10
#: A random start is between the answers of one respondent and those of all, in these shares.
_OWN_SHARE = 0.5


@dataclass(frozen=True)
class LearningSettings:
    """How classes are learnt.

    Attributes
    ----------
    n_starts : int
        How many starts are tried; half of them, and one more if they are odd, come from moments.
    n_steps : int
        The most steps from the best of them.
    tolerance : float
        Steps end when the mean log-likelihood rises by less.
    smoothing : float
        The prior of each class counts as so many respondents.
    """

    n_starts: int
    n_steps: int
    tolerance: float
    smoothing: float


def frequencies_of(counts: FloatArray, questions: Questions) -> FloatArray:
    """Return the share of each answer among those who answered its question; of a question without answers, equal."""
    totals = questions.sum_by_question(counts)[questions.owners]
    equal = 1 / questions.sizes[questions.owners]
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), equal)


def learn_classes(
    marked: Bits, questions: Questions, n_components: int, settings: LearningSettings, *, seed: int
) -> Climbed[Classes]:
    """Return k classes of respondents, the largest first.

    Parameters
    ----------
    marked : array, respondents x answers
        The indicators of the answers that were given.
    questions : Questions
        How many answers each question has.
    n_components : int
        Number k of classes.
    settings : LearningSettings
        How they are learnt.
    seed : int
        Seed of the starts.
    """
    frequencies = frequencies_of(marked.sum(axis=0, dtype=np.float64), questions)
    rng = np.random.default_rng(seed)
    step = _step(marked, questions, frequencies, settings.smoothing)
    if n_components == 1:
        begun: Classes = Classes(np.ones(1), frequencies[:, None])
    else:
        some = marked
        if len(marked) > _TRIAL_ROWS:
            some = marked[np.sort(rng.permutation(len(marked))[:_TRIAL_ROWS])]
        starts = _starts(some, questions, frequencies, n_components, settings.n_starts, rng)
        trial = _step(some, questions, frequencies, settings.smoothing)
        begun = race(list(starts), trial, n_first_steps=_FIRST_STEPS, tolerance=settings.tolerance).model
    found = climb(step, begun, n_steps=settings.n_steps, tolerance=settings.tolerance)
    return replace(found, model=in_order(found.model))


def _starts(
    marked: Bits,
    questions: Questions,
    frequencies: FloatArray,
    n_components: int,
    n_starts: int,
    rng: np.random.Generator,
) -> Iterator[Classes]:
    """Yield starts: half of them from moments, if there are three views that can tell so many classes apart."""
    seeds: IndexArray = rng.integers(2**31 - 1, size=n_starts)
    n_moments = (n_starts + 1) // 2 if can_start(questions, n_components) else 0
    for number, seed in enumerate(seeds.tolist()):
        if number < n_moments:
            yield classes_from_moments(marked, questions, frequencies, n_components, seed=seed)
        else:
            yield random_classes(marked, questions, frequencies, n_components, seed=seed)


def random_classes(
    marked: Bits, questions: Questions, frequencies: FloatArray, n_components: int, *, seed: int
) -> Classes:
    """Return classes that answer partly as a random respondent does, and partly as all do."""
    rng = np.random.default_rng(seed)
    chosen = marked[rng.integers(len(marked), size=n_components)].T.astype(np.float64)
    noise = rng.random(chosen.shape)  # respondents who answer alike must not give classes that stay alike
    drawn = _OWN_SHARE * chosen + (1 - _OWN_SHARE) * frequencies[:, None] * (0.5 + noise)
    weights = np.full(n_components, 1 / n_components)
    return Classes(weights, as_probabilities(drawn, questions, frequencies, background=0.0))


def in_order(classes: Classes) -> Classes:
    """Return the same classes, the largest first."""
    order = np.argsort(-classes.weights, kind="stable")
    return Classes(classes.weights[order], classes.answers[:, order])


def _step(marked: Bits, questions: Questions, frequencies: FloatArray, smoothing: float) -> Step[Classes]:
    def step(classes: Classes) -> tuple[Classes, float]:
        sums = sums_of(classes, marked)
        return maximised(sums, questions, frequencies, smoothing), sums.log_likelihood / len(marked)

    return step
