"""Classes are learnt: from the moments of several splits into views and from random starts, whichever is likeliest.

How many classes there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.em import EMResult, Step, em, successive_halving
from odeco.models.engine.selection import choose_number
from odeco.models.lca.categories import Bits, Questions, blocks_of
from odeco.models.lca.em import Classes, maximised, responsibilities, sums_of
from odeco.models.lca.start import as_probabilities, can_start, classes_from_moments

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
) -> EMResult[Classes]:
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
        begun = successive_halving(list(starts), trial, first_iter=_FIRST_STEPS, tol=settings.tolerance)[0]
    found = em(step, begun, max_iter=settings.n_steps, tol=settings.tolerance)
    return replace(found, params=in_order(found.params))


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


#: One respondent of so many is not learnt from, but judged by.
_JUDGE = 4

#: Numbers are compared with so many starts and steps at most.
_STARTS, _STEPS = 4, 100

#: At most so many classes are tried, and at most one for so many respondents who are learnt from.
_MOST, _ROWS_OF_CLASS = 64, 5


def learn_number(
    marked: Bits, questions: Questions, settings: LearningSettings, *, seed: int
) -> tuple[EMResult[Classes], dict[int, float]]:
    """Return as many classes as other respondents speak for, and the mean log-likelihood of these for all tried."""
    order = np.random.default_rng(seed).permutation(len(marked))
    n_judges = max(1, len(marked) // _JUDGE)
    judges, learnt = np.sort(order[:n_judges]), np.sort(order[n_judges:])
    briefly = replace(settings, n_starts=min(settings.n_starts, _STARTS), n_steps=min(settings.n_steps, _STEPS))

    def score(k: int) -> FloatArray:
        found = learn_classes(marked[learnt], questions, k, briefly, seed=seed).params
        return np.concatenate([responsibilities(found, block)[1] for block in blocks_of(marked[judges])])

    chosen = choose_number(score, most=max(1, min(_MOST, learnt.size // _ROWS_OF_CLASS)))
    return learn_classes(marked, questions, chosen.n_components, settings, seed=seed), chosen.tried
