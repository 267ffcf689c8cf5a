"""Classes from noisy tables of pairs of answers: all of it is post-processing of what was released.

The table of two questions holds Σ_h w_h θ_h θ'_hᵀ, for those who answered both. Three views of the questions and their
third moment in k directions say which classes these are (`three_views`); given the detectors d of one view, the pairs
with another give its means, since P_ab d_bh = √w_h A_h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from odeco._types import FloatArray, IndexArray
from odeco.answers.moments import as_probabilities
from odeco.answers.private_holder import places_of_pairs
from odeco.answers.steps import Classes
from odeco.answers.table import Questions
from odeco.latent.three_views import classes_of_three_views

#: So many splits of the questions into views are compared by the tables.
_N_SPLITS = 20
#: No share of respondents who answered a question is taken for smaller.
_LEAST_ANSWERED = 0.01
#: Every class answers, in this share, as all respondents together do.
_BACKGROUND = 0.02
#: Vectors of a view are shortened to so many times their root mean square.
_LENGTHS = 1.25


@dataclass(frozen=True, eq=False)
class PairTables:
    """What the released pairs say.

    Attributes
    ----------
    questions : Questions
        How many answers each question has.
    shares : array, answers x answers
        The share of respondents with both answers, among those who answered both questions; zero within a question.
    answered : array
        The share of respondents who answered each question.
    frequencies : array
        The share of each answer among those who answered its question.
    deviation : float
        Standard deviation of the noise in the number of respondents with both answers.
    """

    questions: Questions
    shares: FloatArray
    answered: FloatArray
    frequencies: FloatArray
    deviation: float

    @classmethod
    def of(cls, released: FloatArray, deviation: float, questions: Questions, n_rows: int) -> PairTables:
        """Return the tables of released pairs of so many respondents, with noise of this standard deviation."""
        counts = np.zeros((questions.n_answers,) * 2)
        counts[places_of_pairs(questions)] = released
        counts += counts.T
        n_both = questions.sum_by_question(questions.sum_by_question(counts).T)
        answered = _answered(n_both / n_rows)
        owners = questions.owners
        expected = n_rows * np.outer(answered, answered)
        shares = counts / expected[np.ix_(owners, owners)]
        # The frequency of an answer is the mean over the tables of its question; noise is that of all their cells.
        others = max(questions.sizes.size - 1, 1)
        raw = shares.sum(axis=1, keepdims=True) / others
        noise = deviation / n_rows / float(np.mean(answered)) ** 2 * np.sqrt(questions.n_answers) / others
        equal = 1 / questions.sizes[owners]
        raw = shrunk(raw, equal[:, None], noise)
        frequencies = as_probabilities(raw, questions, equal, background=_LEAST_ANSWERED)[:, 0]
        return cls(questions, shares, answered, frequencies, deviation)

    def second_moment(self, answers: IndexArray) -> FloatArray:
        """Return the mean of x xᵀ for the indicators of some answers, divided by the shares of those who answered."""
        moment: FloatArray = self.shares[np.ix_(answers, answers)]
        owners = self.questions.owners[answers]
        return moment + np.diag(self.frequencies[answers] / self.answered[owners])


def shrunk(numbers: FloatArray, expected: FloatArray, deviation: float) -> FloatArray:
    """Return noisy numbers, each column moved towards what is expected by the share of its departures that is noise.

    That share is estimated by the squares: departures of no more than noise have a mean square of its variance (James
    and Stein).
    """
    departures = numbers - expected
    power = np.mean(departures**2, axis=0)
    kept = np.maximum(0.0, 1 - deviation**2 / np.maximum(power, np.finfo(np.float64).tiny))
    moved: FloatArray = expected + kept * departures
    return moved


def _answered(both: FloatArray) -> FloatArray:
    """Return a share o for each question such that o_i o_j is near the share of those who answered both, for i ≠ j."""
    off = both - np.diag(np.diag(both))
    answered = np.ones(len(both))
    for _ in range(30):
        others = np.sum(answered**2) - answered**2
        answered = np.clip(off @ answered / np.maximum(others, _LEAST_ANSWERED**2), _LEAST_ANSWERED, 1.0)
    return answered


def views_of(tables: PairTables, n_components: int, rng: np.random.Generator) -> list[IndexArray] | None:
    """Return the answers of three views, of the split whose tables tell k classes apart best; or None if none can."""
    questions = tables.questions
    best, found = 0.0, None
    for _ in range(_N_SPLITS):
        deal = rng.permutation(questions.sizes.size) % 3
        views = [np.flatnonzero(deal[questions.owners] == part) for part in range(3)]
        if min(1 + np.sum(questions.sizes[deal == part] - 1) for part in range(3)) < n_components:
            continue
        least = min(_strength(tables, views[a], views[b], n_components) for a, b in ((0, 1), (1, 2), (0, 2)))
        if least > best:
            best, found = least, views
    return found


def _strength(tables: PairTables, one: IndexArray, other: IndexArray, k: int) -> float:
    scales = 1 / np.sqrt(tables.frequencies)
    table = scales[one][:, None] * tables.shares[np.ix_(one, other)] * scales[other]
    return float(np.linalg.svd(table, compute_uv=False)[k - 1])


def classes_of_views(
    tables: PairTables,
    views: list[IndexArray],
    n_components: int,
    ask: Callable[[tuple[FloatArray, ...], tuple[float, ...]], FloatArray],
    *,
    seed: int,
) -> Classes:
    """Return the classes that the tables and the third moment of three views give.

    Parameters
    ----------
    tables : PairTables
        What the pairs say.
    views : list of three arrays
        The answers of each view.
    n_components : int
        Number k of classes.
    ask : callable
        Takes three maps of all indicators to k coordinates and the lengths to which their images are shortened, and
        returns the mean of the products, k x k x k.
    seed : int
        Seed of the decomposition.
    """
    a, b, c = views
    shares, owners = tables.shares, tables.questions.owners
    pairs = (shares[np.ix_(a, b)], shares[np.ix_(b, c)], shares[np.ix_(a, c)])

    def triples(*maps: FloatArray) -> FloatArray:
        whole, lengths = [], []
        for answers, each in zip(views, maps, strict=True):
            scaled = np.zeros((tables.questions.n_answers, n_components))
            scaled[answers] = each / tables.answered[owners[answers]][:, None]
            whole.append(scaled)
            square = float(np.sum(each * (tables.second_moment(answers) @ each)))
            lengths.append(_LENGTHS * np.sqrt(max(square, n_components)))
        return ask(tuple(whole), tuple(lengths))

    frequencies = (tables.frequencies[a], tables.frequencies[b], tables.frequencies[c])
    found = classes_of_three_views(pairs, frequencies, triples, n_components, seed=seed)
    answers = np.zeros((tables.questions.n_answers, n_components))
    for own, view in enumerate(views):
        for other in {0, 1, 2} - {own}:
            answers[view] += shares[np.ix_(view, views[other])] @ found.detectors[other]
    return Classes(found.weights, as_probabilities(answers, tables.questions, tables.frequencies, _BACKGROUND))


def classes_at_random(tables: PairTables, n_components: int, rng: np.random.Generator) -> Classes:
    """Return classes drawn around the frequencies of all."""
    drawn = tables.frequencies[:, None] * rng.gamma(1.0, size=(tables.questions.n_answers, n_components))
    weights = np.full(n_components, 1 / n_components)
    return Classes(weights, as_probabilities(drawn, tables.questions, tables.frequencies, _BACKGROUND))
