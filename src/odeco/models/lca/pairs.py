"""Private latent classes from noisy releases: everything here is post-processing.

**Starts from tables of pairs.**

The table of two questions holds Σ_h w_h θ_h θ'_hᵀ, for those who answered both. Three views of the
questions and their third moment in k directions determine the classes (`classes_of_three_views`);
given the detectors d of one view, the pairs with another give its means, since P_ab d_bh = √w_h
A_h.

**The fit** finds the classes under which all releases are most likely: pairs, and the statistics of
EM iterations, each with its own noise. An EM iteration queries Σ_i x_i r(x_i)ᵀ, where x are the
indicators of a respondent and r the probabilities of some classes that are known by then. Of
respondents of other classes θ this sum has a mean n E_θ[x r(x)ᵀ]. So its release is a measurement
of θ, whatever the classes of the query, and remains one when better classes are known: no release
is wasted. The fit is by least squares, weighted by noise and counting, with a prior around the
frequencies; the means are taken over simulated respondents. All of it is post-processing of what
was released.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.moments import classes_of_three_views
from odeco.models.lca.classes import Classes, as_probabilities
from odeco.privacy.holders.answers import Bits, places_of_pairs
from odeco.privacy.holders.tables import Levels

#: Number of splits of the questions into views that are compared by the tables.
_N_SPLITS = 20

#: No share of respondents who answered a question is taken for smaller.
_LEAST_ANSWERED = 0.01

#: Every class answers, in this share, as all respondents together do.
_BACKGROUND = 0.02

#: However large the noise, the frequencies of answers are mixed with equal ones in no larger share
#: than this.
_MOST_BACKGROUND = 0.5

#: Vectors of a view are clipped to this multiple of their root mean square.
_LENGTHS = 1.25


@dataclass(frozen=True, eq=False)
class PairTables:
    """What the released pairs say.

    Attributes
    ----------
    questions : Levels
        How many answers each question has.
    shares : array, answers x answers
        The share of respondents with both answers, among those who answered both questions; zero
        within a question.
    answered : array
        The share of respondents who answered each question.
    frequencies : array
        The share of each answer among those who answered its question.
    deviation : float
        Standard deviation of the noise in the number of respondents with both answers.
    """

    questions: Levels
    shares: FloatArray
    answered: FloatArray
    frequencies: FloatArray
    deviation: float

    @classmethod
    def of(
        cls, released: FloatArray, deviation: float, questions: Levels, n_rows: int
    ) -> PairTables:
        """Return the tables of released pairs of `n_rows` respondents, with noise of this standard
        deviation.
        """
        counts = np.zeros((questions.n_levels,) * 2)
        counts[places_of_pairs(questions)] = released
        counts += counts.T
        n_both = questions.sum_by_column(questions.sum_by_column(counts).T)
        answered = _answered(n_both / n_rows)
        owners = questions.owners
        expected = n_rows * np.outer(answered, answered)
        shares = counts / expected[np.ix_(owners, owners)]
        # The frequency of an answer is the mean over the tables of its question; noise is that of
        # all their cells.
        others = max(questions.sizes.size - 1, 1)
        raw = shares.sum(axis=1, keepdims=True) / others
        noise = (
            deviation
            / n_rows
            / float(np.mean(answered)) ** 2
            * np.sqrt(questions.n_levels)
            / others
        )
        equal = 1 / questions.sizes[owners]
        raw = shrunk(raw, equal[:, None], noise)
        # An answer that noise makes rare costs more likelihood than one that is not quite as rare
        # as it should be.
        background = float(np.clip(2 * noise / np.mean(equal), _LEAST_ANSWERED, _MOST_BACKGROUND))
        frequencies = as_probabilities(raw, questions, equal, background=background)[:, 0]
        return cls(questions, shares, answered, frequencies, deviation)

    def n_clear(self, n_rows: int) -> int:
        """Return in how many directions answers to different questions depend on each other, clear
        of noise.

        Departures from independence are divided by their deviations, of noise and of counting. Of
        independent answers, this is a symmetric matrix of numbers of variance 1, but for zeros
        within questions, whose largest eigenvalue is at most about 2 √(number of answers). Classes
        add positive eigenvalues.
        """
        owners, expected = self.questions.owners, np.outer(self.frequencies, self.frequencies)
        sizes = n_rows * np.outer(self.answered, self.answered)[np.ix_(owners, owners)]
        scaled = sizes * (self.shares - expected) / np.sqrt(self.deviation**2 + sizes * expected)
        values = np.linalg.eigvalsh(np.where(owners[:, None] != owners, scaled, 0.0))
        return int(np.sum(values > 2 * math.sqrt(owners.size)))

    def second_moment(self, answers: IndexArray) -> FloatArray:
        """Return the mean of x xᵀ for the indicators of some answers, divided by the shares of
        those who answered.
        """
        moment: FloatArray = self.shares[np.ix_(answers, answers)]
        owners = self.questions.owners[answers]
        return moment + np.diag(self.frequencies[answers] / self.answered[owners])


def shrunk(numbers: FloatArray, expected: FloatArray, deviation: float) -> FloatArray:
    """Return noisy numbers, each column moved towards what is expected by the share of its
    departures that is noise.

    That share is estimated by the squares: departures of no more than noise have a mean square of
    its variance (James and Stein).
    """
    departures = numbers - expected
    power = np.mean(departures**2, axis=0)
    kept = np.maximum(0.0, 1 - deviation**2 / np.maximum(power, np.finfo(np.float64).tiny))
    return np.asarray(expected + kept * departures)


def _answered(both: FloatArray) -> FloatArray:
    """Return a share o for each question such that o_i o_j is near the share of those who answered
    both, for i ≠ j.
    """
    off = both - np.diag(np.diag(both))
    answered = np.ones(len(both))
    for _ in range(30):
        others = np.sum(answered**2) - answered**2
        answered = np.clip(
            off @ answered / np.maximum(others, _LEAST_ANSWERED**2), _LEAST_ANSWERED, 1.0
        )
    return answered


def views_of(
    tables: PairTables, n_components: int, rng: np.random.Generator
) -> list[IndexArray] | None:
    """Return the answers of three views, of the split whose tables tell k classes apart best; or
    None if none can.
    """
    questions = tables.questions
    best, found = 0.0, None
    for _ in range(_N_SPLITS):
        deal = rng.permutation(questions.sizes.size) % 3
        views = [np.flatnonzero(deal[questions.owners] == part) for part in range(3)]
        if min(1 + np.sum(questions.sizes[deal == part] - 1) for part in range(3)) < n_components:
            continue
        least = min(
            _strength(tables, views[a], views[b], n_components) for a, b in ((0, 1), (1, 2), (0, 2))
        )
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
    release_core: Callable[[tuple[FloatArray, ...], tuple[float, ...]], FloatArray],
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
    release_core : callable
        Takes three maps of all indicators to k coordinates and the lengths to which their images
        are shortened, and returns the mean of the products, k x k x k.
    seed : int
        Seed of the decomposition.
    """
    a, b, c = views
    shares, owners = tables.shares, tables.questions.owners
    pairs = (shares[np.ix_(a, b)], shares[np.ix_(b, c)], shares[np.ix_(a, c)])

    def triples(*maps: FloatArray) -> FloatArray:
        whole, lengths = [], []
        for answers, each in zip(views, maps, strict=True):
            scaled = np.zeros((tables.questions.n_levels, n_components))
            scaled[answers] = each / tables.answered[owners[answers]][:, None]
            whole.append(scaled)
            square = float(np.sum(each * (tables.second_moment(answers) @ each)))
            lengths.append(_LENGTHS * np.sqrt(max(square, n_components)))
        return release_core(tuple(whole), tuple(lengths))

    frequencies = (tables.frequencies[a], tables.frequencies[b], tables.frequencies[c])
    found = classes_of_three_views(pairs, frequencies, triples, n_components, seed=seed)
    answers = np.zeros((tables.questions.n_levels, n_components))
    for own, view in enumerate(views):
        for other in {0, 1, 2} - {own}:
            answers[view] += shares[np.ix_(view, views[other])] @ found.detectors[other]
    return Classes(
        found.weights, as_probabilities(answers, tables.questions, tables.frequencies, _BACKGROUND)
    )


def classes_at_random(tables: PairTables, n_components: int, rng: np.random.Generator) -> Classes:
    """Return classes drawn around the frequencies of all."""
    drawn = tables.frequencies[:, None] * rng.gamma(
        1.0, size=(tables.questions.n_levels, n_components)
    )
    weights = np.full(n_components, 1 / n_components)
    return Classes(
        weights, as_probabilities(drawn, tables.questions, tables.frequencies, _BACKGROUND)
    )


#: As many respondents as there are, within these bounds, are simulated with the classes found so
#: far.
_LEAST_SIMULATED, _MOST_SIMULATED = 300, 3_000

#: Iterations of the optimiser with each simulated sample.
_N_SEARCH = 25

#: Number of rounds of the optimiser from the best of several starts; the others get one.
_N_ROUNDS = 3

#: The most steps of the search with pairs alone, where nothing is simulated.
_N_PAIRS_SEARCH = 200

#: No probability is taken for smaller where a search begins.
_LEAST = 1e-3

#: No probability is taken for smaller than exp of this, beside the largest, on the way.
_LEAST_LOGARITHM = -30.0

#: A simulated respondent counts at most as exp of this, when classes move away from those it was
#: drawn with.
_MOST_LOG_WEIGHT = 5.0

#: A count below this share of the mean of its class varies as if it had this share.
_LEAST_SHARE = 0.02

#: A value, and its gradients by weights and by answers.
_Term = tuple[float, FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class ReleasedStep:
    """The noisy statistics of an EM iteration, answers x k; the classes of the query; the deviation
    of the noise.
    """

    classes: Classes
    released: FloatArray
    deviation: float


@dataclass(frozen=True, eq=False)
class _Simulated:
    """Respondents drawn with some classes.

    Attributes
    ----------
    marked : array, respondents x answers
        Their indicators.
    likelihoods : array
        Their log-likelihoods under the classes that drew them.
    shares : list of arrays
        For each step, the responsibilities of the classes of its query.
    lacking : array, answers x k
        What the mean of x rᵀ of the classes that drew them lacks to what it would be for infinitely
        many.
    """

    marked: FloatArray
    likelihoods: FloatArray
    shares: list[FloatArray]
    lacking: FloatArray


@dataclass(frozen=True, eq=False)
class Matching:
    """All that was released about k classes.

    Attributes
    ----------
    tables : PairTables
        What the pairs say.
    n_rows, n_components : int
        Numbers of respondents and of classes.
    steps : tuple of ReleasedStep
        The EM iterations released so far.
    """

    tables: PairTables
    n_rows: int
    n_components: int
    steps: tuple[ReleasedStep, ...] = ()

    def with_step(self, step: ReleasedStep) -> Matching:
        """Return the same with one more step."""
        return replace(self, steps=(*self.steps, step))

    def best_of(self, starts: Iterable[Classes], rng: np.random.Generator) -> Classes:
        """Return the classes that fit best, found from the best of several starts."""
        with one_blas_thread():
            best = min(
                (self._searched(start, rng) for start in starts), key=lambda found: found[1]
            )[0]
            for _ in range(_N_ROUNDS - 1 if self.steps else 0):
                best = self._searched(best, rng)[0]
        return best

    def _searched(self, start: Classes, rng: np.random.Generator) -> tuple[Classes, float]:
        """Return the classes that a search from a start ends with, and how badly they fit."""
        found = minimize(
            self._misfit,
            np.log(np.maximum(np.vstack([start.weights, start.answers]), _LEAST)).ravel(),
            args=(self._simulated(start, rng) if self.steps else None,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _N_SEARCH if self.steps else _N_PAIRS_SEARCH, "maxcor": 20},
        )
        return self._classes(found.x), float(found.fun)

    def _classes(self, logarithms: FloatArray) -> Classes:
        first, rest = np.split(logarithms.reshape(-1, self.n_components), [1])
        questions = self.tables.questions
        largest = np.maximum.reduceat(rest, questions.offsets, axis=0)[questions.owners]
        # However far a search goes, no probability becomes zero: its logarithm is needed.
        weights = np.exp(np.maximum(first[0] - first[0].max(), _LEAST_LOGARITHM))
        answers = np.exp(np.maximum(rest - largest, _LEAST_LOGARITHM))
        return Classes(
            weights / weights.sum(), answers / questions.sum_by_column(answers)[questions.owners]
        )

    def _misfit(
        self, logarithms: FloatArray, simulated: _Simulated | None
    ) -> tuple[float, FloatArray]:
        """Return the misfit and its gradient by the logarithms of weights and answers, up to
        constants.
        """
        classes = self._classes(logarithms)
        terms = [self._misfit_of_prior(classes), self._misfit_of_pairs(classes)]
        if simulated is not None:
            terms.append(self._misfit_of_steps(classes, simulated))
        weights, answers, questions = classes.weights, classes.answers, self.tables.questions
        by_weights, by_answers = sum(term[1] for term in terms), sum(term[2] for term in terms)
        # Probabilities sum to one, and a logarithm moves all of those that it is normalised with.
        of_weights = weights * (by_weights - weights @ by_weights)
        of_answers = answers * (
            by_answers - questions.sum_by_column(answers * by_answers)[questions.owners]
        )
        return float(sum(term[0] for term in terms)), np.concatenate(
            [of_weights, of_answers.ravel()]
        )

    def _misfit_of_prior(self, classes: Classes) -> _Term:
        """Return how far classes are from the frequencies, measured by the spread of uniformly
        drawn probabilities.
        """
        frequencies, questions = self.tables.frequencies, self.tables.questions
        variance = (frequencies * (1 - frequencies) / (questions.sizes[questions.owners] + 1))[
            :, None
        ]
        # A question with one answer leaves nothing to vary.
        precision = np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0)
        departures = classes.answers - frequencies[:, None]
        value = float(np.sum(departures**2 * precision)) / 2 - float(
            np.sum(np.log(classes.weights))
        )
        return value, -1 / classes.weights, departures * precision

    def _misfit_of_pairs(self, classes: Classes) -> _Term:
        tables, (weights, answers) = self.tables, (classes.weights, classes.answers)
        owners, frequencies = tables.questions.owners, tables.frequencies
        both = tables.answered[owners]
        size = self.n_rows * np.outer(both, both) * (owners[:, None] != owners[None, :])
        precision = 1 / (
            tables.deviation**2 + np.maximum(size * np.outer(frequencies, frequencies), 1.0)
        )
        departures = size * ((answers * weights) @ answers.T - tables.shares)
        pulls = (departures * precision * size) @ answers
        # Each pair stands twice in a symmetric table.
        value = float(np.sum(departures**2 * precision)) / 4
        return value, np.sum(answers * pulls, axis=0) / 2, pulls * weights

    def _misfit_of_steps(self, classes: Classes, simulated: _Simulated) -> _Term:
        own, likelihoods = classes.posterior(simulated.marked)
        # Respondents who were drawn with other classes count by how much likelier they are under
        # these.
        importance = np.exp(np.minimum(likelihoods - simulated.likelihoods, _MOST_LOG_WEIGHT))
        importance /= importance.sum()
        least = _LEAST_SHARE * self.n_rows / self.n_components
        value, pulls = 0.0, np.zeros(len(own))
        for step, shares in zip(self.steps, simulated.shares, strict=True):
            mean = simulated.marked.T @ (shares * importance[:, None]) + simulated.lacking
            departures = self.n_rows * mean - step.released
            precision = 1 / (step.deviation**2 + np.maximum(step.released, least))
            value += float(np.sum(departures**2 * precision)) / 2
            pulls += self.n_rows * np.sum(
                (simulated.marked @ (departures * precision)) * shares, axis=1
            )
        pulled = own * (importance * (pulls - importance @ pulls))[:, None]
        by_answers = (simulated.marked.T @ pulled) / np.maximum(
            classes.answers, np.finfo(np.float64).tiny
        )
        return value, pulled.sum(axis=0) / classes.weights, by_answers

    def _simulated(self, classes: Classes, rng: np.random.Generator) -> _Simulated:
        questions, answered = self.tables.questions, self.tables.answered
        size = min(max(self.n_rows, _LEAST_SIMULATED), _MOST_SIMULATED)
        codes, _ = classes.draw(questions, size, rng)
        codes[rng.random(codes.shape) > answered] = -1
        bits: Bits = questions.indicators(codes)
        marked = bits.astype(np.float64)
        own, likelihoods = classes.posterior(marked)
        # Of classes that drew the respondents themselves the mean is known: x is given with r where
        # r says so.
        known = answered[questions.owners][:, None] * classes.weights * classes.answers
        shares = [step.classes.responsibilities(marked) for step in self.steps]
        return _Simulated(marked, likelihoods, shares, known - marked.T @ own / len(marked))
