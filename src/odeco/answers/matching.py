"""The classes under which all that was released is likeliest: pairs and sums of steps, each with its own noise.

A likelihood step asks for Σ_i x_i r(x_i)ᵀ, where x are the indicators of a respondent and r the probabilities of some
classes that are known by then. Of respondents of other classes θ this sum has a mean n E_θ[x r(x)ᵀ]. So its release is
a measurement of θ, whichever classes it was asked with, and stays one when better classes are known: nothing that was
paid for is thrown away. The fit is by least squares, weighted by noise and counting, with a prior around the
frequencies; the means are taken over simulated respondents. All of it is post-processing of what was released.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from odeco._threads import one_blas_thread
from odeco._types import FloatArray
from odeco.answers.draw import draw_codes
from odeco.answers.pair_tables import PairTables
from odeco.answers.steps import Classes, posterior
from odeco.answers.table import Bits

#: As many respondents as there are, within these bounds, are simulated with the classes found so far.
_LEAST_SIMULATED, _MOST_SIMULATED = 300, 3_000
#: So many steps of the search are taken with them.
_N_SEARCH = 25
#: So many such rounds begin from the best of several starts; one from each of the others.
_N_ROUNDS = 3
#: The most steps of the search with pairs alone, where nothing is simulated.
_N_PAIRS_SEARCH = 200
#: No probability is taken for smaller where a search begins.
_LEAST = 1e-3
#: No probability is taken for smaller than exp of this, beside the largest, on the way.
_LEAST_LOGARITHM = -30.0
#: A simulated respondent counts at most as exp of this, when classes move away from those it was drawn with.
_MOST_LOG_WEIGHT = 5.0
#: A count below this share of the mean of its class varies as if it had this share.
_LEAST_SHARE = 0.02

#: A value, and its gradients by weights and by answers.
_Term = tuple[float, FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class ReleasedStep:
    """A sum of a likelihood step with noise, answers x k; the classes that it was asked with; the noise's deviation."""

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
        For each step, the probabilities of the classes that it was asked with.
    lacking : array, answers x k
        What the mean of x rᵀ of the classes that drew them lacks to what it would be for infinitely many.
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
        The likelihood steps so far.
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
            best = min((self._searched(start, rng) for start in starts), key=lambda found: found[1])[0]
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
        # Where a search goes far, no probability becomes zero: its logarithm is asked for.
        weights = np.exp(np.maximum(first[0] - first[0].max(), _LEAST_LOGARITHM))
        answers = np.exp(np.maximum(rest - largest, _LEAST_LOGARITHM))
        return Classes(weights / weights.sum(), answers / questions.sum_by_question(answers)[questions.owners])

    def _misfit(self, logarithms: FloatArray, simulated: _Simulated | None) -> tuple[float, FloatArray]:
        """Return the misfit and its gradient by the logarithms of weights and answers, up to constants."""
        classes = self._classes(logarithms)
        terms = [self._misfit_of_prior(classes), self._misfit_of_pairs(classes)]
        if simulated is not None:
            terms.append(self._misfit_of_steps(classes, simulated))
        weights, answers, questions = classes.weights, classes.answers, self.tables.questions
        by_weights, by_answers = sum(term[1] for term in terms), sum(term[2] for term in terms)
        # Probabilities sum to one, and a logarithm moves all of those that it is normalised with.
        of_weights = weights * (by_weights - weights @ by_weights)
        of_answers = answers * (by_answers - questions.sum_by_question(answers * by_answers)[questions.owners])
        return float(sum(term[0] for term in terms)), np.concatenate([of_weights, of_answers.ravel()])

    def _misfit_of_prior(self, classes: Classes) -> _Term:
        """Return how far classes are from the frequencies, measured by the spread of uniformly drawn probabilities."""
        frequencies, questions = self.tables.frequencies, self.tables.questions
        variance = (frequencies * (1 - frequencies) / (questions.sizes[questions.owners] + 1))[:, None]
        # A question with one answer leaves nothing to vary.
        precision = np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0)
        departures = classes.answers - frequencies[:, None]
        value = float(np.sum(departures**2 * precision)) / 2 - float(np.sum(np.log(classes.weights)))
        return value, -1 / classes.weights, departures * precision

    def _misfit_of_pairs(self, classes: Classes) -> _Term:
        tables, (weights, answers) = self.tables, (classes.weights, classes.answers)
        owners, frequencies = tables.questions.owners, tables.frequencies
        both = tables.answered[owners]
        size = self.n_rows * np.outer(both, both) * (owners[:, None] != owners[None, :])
        precision = 1 / (tables.deviation**2 + np.maximum(size * np.outer(frequencies, frequencies), 1.0))
        departures = size * ((answers * weights) @ answers.T - tables.shares)
        pulls = (departures * precision * size) @ answers
        # Each pair stands twice in a symmetric table.
        value = float(np.sum(departures**2 * precision)) / 4
        return value, np.sum(answers * pulls, axis=0) / 2, pulls * weights

    def _misfit_of_steps(self, classes: Classes, simulated: _Simulated) -> _Term:
        own, likelihoods = posterior(classes, simulated.marked)
        # Respondents who were drawn with other classes count by how much likelier they are under these.
        importance = np.exp(np.minimum(likelihoods - simulated.likelihoods, _MOST_LOG_WEIGHT))
        importance /= importance.sum()
        least = _LEAST_SHARE * self.n_rows / self.n_components
        value, pulls = 0.0, np.zeros(len(own))
        for step, shares in zip(self.steps, simulated.shares, strict=True):
            mean = simulated.marked.T @ (shares * importance[:, None]) + simulated.lacking
            departures = self.n_rows * mean - step.released
            precision = 1 / (step.deviation**2 + np.maximum(step.released, least))
            value += float(np.sum(departures**2 * precision)) / 2
            pulls += self.n_rows * np.sum((simulated.marked @ (departures * precision)) * shares, axis=1)
        pulled = own * (importance * (pulls - importance @ pulls))[:, None]
        by_answers = (simulated.marked.T @ pulled) / np.maximum(classes.answers, np.finfo(np.float64).tiny)
        return value, pulled.sum(axis=0) / classes.weights, by_answers

    def _simulated(self, classes: Classes, rng: np.random.Generator) -> _Simulated:
        questions, answered = self.tables.questions, self.tables.answered
        size = min(max(self.n_rows, _LEAST_SIMULATED), _MOST_SIMULATED)
        codes, _ = draw_codes(classes, questions, size, rng)
        codes[rng.random(codes.shape) > answered] = -1
        bits: Bits = questions.indicators(codes)
        marked = bits.astype(np.float64)
        own, likelihoods = posterior(classes, marked)
        # Of classes that drew the respondents themselves the mean is known: x is given with r where r says so.
        known = answered[questions.owners][:, None] * classes.weights * classes.answers
        shares = [posterior(step.classes, marked)[0] for step in self.steps]
        return _Simulated(marked, likelihoods, shares, known - marked.T @ own / len(marked))
