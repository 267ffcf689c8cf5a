"""Latent classes: the posterior of a respondent, the E and M step of EM, and its starts.

**Starts** are the moments of three views, and random respondents. The questions are divided into three views, which are
independent given the class. A view is the indicators of the answers to its questions, each divided by the share of
respondents who answered: then its mean within a class is the probability of the answer there, whoever did not answer,
as long as that does not depend on what the answer would have been. Questions of few answers span few directions: q
questions with m answers each have q (m − 1) + 1. Where that is not enough for k classes, a view has the products of the
indicators of two of its questions as well, whose mean within a class is the product of two probabilities.
`classes_of_three_views` finds the classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.state import State, array_field
from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.fit import Statistics
from odeco.models.engine.gaussians import normalize, weights_rule
from odeco.models.engine.moments import classes_of_three_views
from odeco.models.engine.rows import count_rows, split, times, weigh
from odeco.privacy.holders.answers import Bits, Questions, blocks_of

#: Probabilities below this count as this, so that their logarithms are finite.
_MIN_PROBABILITY = 1e-12

#: The smallest square root of a probability after an extrapolation.
_MIN_ROOT = 1e-6

#: Directions with less than this share of the largest information are not estimated.
_RANK = 1e-10


@dataclass(frozen=True, eq=False)
class Classes(State):
    """Classes of respondents: within one, the answers to different questions are independent.

    Attributes
    ----------
    weights : array, k
        The probability of each class.
    answers : array, answers x k
        The probability of each answer in each class; those of one question sum to one.
    """

    weights: FloatArray = array_field("k", rule=weights_rule("k"))
    answers: FloatArray = array_field("answers", "k", low=0, high=1 + 1e-9)

    def posterior(self, given: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the responsibility of each class for each respondent, and the log-likelihood of each.

        `given` are the indicators of the answers, in double precision.
        """
        joint = given @ np.log(np.maximum(self.answers, _MIN_PROBABILITY))
        joint += np.log(np.maximum(self.weights, _MIN_PROBABILITY))
        return normalize(joint)

    def responsibilities(self, given: FloatArray) -> FloatArray:
        """Return the responsibility of each class for each respondent."""
        return self.posterior(given)[0]

    def e_step(self, given: FloatArray, weights: FloatArray | None = None) -> ClassStatistics:
        """Return the sufficient statistics of respondents."""
        n, log_likelihood, shares = weigh(*self.posterior(given), weights)
        return ClassStatistics(n, log_likelihood, shares.sum(axis=0), given.T @ shares)

    def to_vector(self) -> FloatArray:
        """Return the classes as a vector for extrapolation: square roots of probabilities, which lie on spheres."""
        return np.asarray(np.sqrt(np.concatenate([self.weights, self.answers.ravel()])))

    def from_vector(self, vector: FloatArray, questions: Questions) -> Classes:
        """Return the classes that `to_vector` would return as this vector."""
        squares, k = np.maximum(vector, _MIN_ROOT) ** 2, self.weights.size
        answers = squares[k:].reshape(self.answers.shape)
        return Classes(squares[:k] / squares[:k].sum(), answers / questions.sum_by_question(answers)[questions.owners])

    def standard_errors(self, given: FloatArray, weights: FloatArray | None, questions: Questions) -> Classes:
        """Return the standard error of each probability, in the place of the probability.

        The information about the log-odds θ of classes and answers is the sum of s sᵀ over respondents, where s is the
        gradient of the log-likelihood of a respondent: r_h − π_h for a class, and r_h (x − p) for an answer to a
        question that was answered. The covariance of p is J I⁻¹ Jᵀ with J = ∂p/∂θ (delta method). Log-odds of one
        question may all be raised by the same number, so the inverse is a pseudo-inverse, and a probability of zero or
        one has the standard error zero: it is at the border.
        """
        shares, _ = self.posterior(given)
        n, k = shares.shape
        answered = questions.sum_by_question(given.T)[questions.owners].T
        scores = np.hstack([shares - self.weights, np.empty((n, self.answers.size))])
        for h in range(k):
            scores[:, k + h :: k] = shares[:, h : h + 1] * (given - answered * self.answers[:, h])
        covariance = np.linalg.pinv(times(scores, weights).T @ scores, rcond=_RANK, hermitian=True)
        probabilities = np.concatenate([self.weights, self.answers.ravel()])
        blocks = np.concatenate([np.zeros(k, int), (1 + questions.owners[:, None] * k + np.arange(k)).ravel()])
        jacobian = np.diag(probabilities) - np.where(
            blocks[:, None] == blocks, np.outer(probabilities, probabilities), 0.0
        )
        errors = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", jacobian, covariance, jacobian, optimize=True), 0.0))
        return Classes(errors[:k], errors[k:].reshape(self.answers.shape))

    def draw(self, questions: Questions, n_rows: int, rng: Any) -> tuple[IndexArray, IndexArray]:
        """Draw respondents; return the codes of their answers, and the class of each."""
        labels = rng.choice(self.weights.size, size=n_rows, p=self.weights / self.weights.sum())
        columns = []
        for part in np.split(self.answers, questions.offsets[1:]):
            edges = np.cumsum(part, axis=0)[:-1].T
            columns.append(np.sum(rng.random(n_rows)[:, None] > edges[labels], axis=1))
        return np.column_stack(columns), labels


@dataclass(frozen=True, eq=False)
class ClassStatistics(Statistics):
    """The sufficient statistics of respondents.

    Attributes
    ----------
    weights : array, k
        The expected number of respondents of each class.
    answers : array, answers x k
        How often each answer was given by each class, in expectation.
    """

    weights: FloatArray = array_field("k", low=0)
    answers: FloatArray = array_field("answers", "k", low=0)


def m_step(
    weights: FloatArray, answers: FloatArray, questions: Questions, frequencies: FloatArray, smoothing: float
) -> Classes:
    """Return the classes of the largest posterior probability, for statistics `weights` and `answers`.

    The prior of each class counts as `smoothing` respondents, who answer as all respondents together do: by the
    `frequencies`.
    """
    prior = smoothing * frequencies[:, None]
    totals = questions.sum_by_question(answers)[questions.owners]
    counts = weights + smoothing / weights.size
    known = totals + smoothing > 0  # without a prior, a class may be empty, or none of it has answered a question
    shares = np.where(known, (answers + prior) / np.where(known, totals + smoothing, 1.0), frequencies[:, None])
    return Classes(counts / counts.sum(), shares)


def frequencies_of(counts: FloatArray, questions: Questions) -> FloatArray:
    """Return the share of each answer among those who answered its question; equal shares if nobody did."""
    totals = questions.sum_by_question(counts)[questions.owners]
    equal = 1 / questions.sizes[questions.owners]
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), equal)


#: A view needs this many directions for each class, or it has products of indicators too.
_DIRECTIONS = 1.5

#: A view has at most this many products.
_MAX_PRODUCTS = 400

#: Every class answers, in this share, as all respondents together do: no answer is impossible because of noise.
_BACKGROUND = 0.05

#: A random start is between the answers of one respondent and those of all, in these shares.
_OWN_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class View:
    """The features of one view.

    Attributes
    ----------
    answers : array
        The answers to its questions.
    products : array, products x 2
        Two answers each, to different questions.
    """

    answers: IndexArray
    products: IndexArray

    def features(self, block: Bits) -> FloatArray:
        """Return the features of some respondents, not yet divided by the shares of those who answered."""
        single = block[:, self.answers]
        double = block[:, self.products[:, 0]] * block[:, self.products[:, 1]]
        return np.hstack([single, double]).astype(np.float64)

    def observed(self, answered: FloatArray, owners: IndexArray) -> FloatArray:
        """Return the share of respondents whose answers each feature is made of; `answered` is by question."""
        shares = answered[owners]
        return np.concatenate([shares[self.answers], shares[self.products].prod(axis=1)])


def split_questions(questions: Questions, n_components: int, rng: np.random.Generator) -> tuple[View, View, View]:
    """Divide the questions into three views at random, such that their numbers of answers are about equal."""
    order = rng.permutation(questions.sizes.size)
    order = order[np.argsort(-questions.sizes[order], kind="stable")]
    parts: tuple[list[int], ...] = ([], [], [])
    for question in order:
        min(parts, key=lambda each: sum(questions.sizes[own] - 1 for own in each)).append(int(question))
    return tuple(_view(questions, np.array(sorted(each), dtype=np.int64), n_components, rng) for each in parts)  # type: ignore[return-value]


def _view(questions: Questions, own: IndexArray, n_components: int, rng: np.random.Generator) -> View:
    answers = np.flatnonzero(np.isin(questions.owners, own))
    products = np.zeros((0, 2), dtype=np.int64)
    if 1 + np.sum(questions.sizes[own] - 1) < _DIRECTIONS * n_components:
        first, second = np.triu_indices(answers.size, 1)
        apart = questions.owners[answers[first]] != questions.owners[answers[second]]
        products = np.column_stack([answers[first[apart]], answers[second[apart]]])
        products = products[np.sort(rng.permutation(len(products))[:_MAX_PRODUCTS])]
    return View(answers, products)


def can_start(questions: Questions, n_components: int) -> bool:
    """Tell whether three views of the questions have enough features to identify k classes."""
    views = split_questions(questions, n_components, np.random.default_rng(0))
    return min(view.answers.size + len(view.products) for view in views) >= n_components


def classes_from_moments(
    data: Any, questions: Questions, frequencies: FloatArray, n_components: int, *, seed: int
) -> Classes:
    """Return k classes that the moments of three views give.

    Parameters
    ----------
    data : array, respondents x answers, or Weighted
        The indicators of the answers that were given.
    questions : Questions
        The layout of the indicators; there are at least three questions.
    frequencies : array
        The share of each answer among those who answered its question.
    n_components : int
        Number k of classes.
    seed : int
        Seed of the split into views and of the decomposition.
    """
    rng, n_rows = np.random.default_rng(seed), count_rows(data)
    views = split_questions(questions, n_components, rng)
    answered = np.maximum(questions.sum_by_question(count_answers(data)) / n_rows, 1 / n_rows)
    scales = [1 / view.observed(answered, questions.owners) for view in views]

    def pairs_of(block: Any) -> list[FloatArray]:
        given, weights = split(block)
        a, b, c = (view.features(given) for view in views)
        wa, wb, wc = (times(each, weights) for each in (a, b, c))
        return [wa.T @ b, wb.T @ c, wa.T @ c, wa.sum(axis=0), wb.sum(axis=0), wc.sum(axis=0)]

    ab, bc, ac, *counts = _added(data, pairs_of)
    means = [np.maximum(count / n_rows * scale, 0.1 / n_rows) for count, scale in zip(counts, scales, strict=True)]
    pairs = (
        scales[0][:, None] * ab * scales[1] / n_rows,
        scales[1][:, None] * bc * scales[2] / n_rows,
        scales[0][:, None] * ac * scales[2] / n_rows,
    )

    def triples(*maps: FloatArray) -> FloatArray:
        scaled = [scale[:, None] * each for scale, each in zip(scales, maps, strict=True)]
        k = maps[0].shape[1]

        def work(block: Any) -> list[FloatArray]:
            given, weights = split(block)
            a, b, c = (view.features(given) @ each for view, each in zip(views, scaled, strict=True))
            return [times(a, weights).T @ (b[:, :, None] * c[:, None, :]).reshape(len(a), k * k)]

        return (_added(data, work)[0] / n_rows).reshape(k, k, k)

    found = classes_of_three_views(pairs, (means[0], means[1], means[2]), triples, n_components, seed=seed)
    detectors = [scale[:, None] * each for scale, each in zip(scales, found.detectors, strict=True)]

    def means_of(block: Any) -> list[FloatArray]:
        given, weights = split(block)
        a, b, c = (view.features(given) @ each for view, each in zip(views, detectors, strict=True))
        others = (times(each, weights) for each in (b * c, a * c, a * b))
        return [given[:, view.answers].T.astype(np.float64) @ other for view, other in zip(views, others, strict=True)]

    answers = np.empty((questions.n_answers, n_components))
    for view, sums in zip(views, _added(data, means_of), strict=True):
        answers[view.answers] = sums
    return Classes(found.weights, as_probabilities(answers, questions, frequencies, _BACKGROUND))


def random_classes(
    data: Any, questions: Questions, frequencies: FloatArray, n_components: int, *, seed: int
) -> Classes:
    """Return classes that answer partly as a random respondent does, and partly as all do."""
    rng, (marked, _) = np.random.default_rng(seed), split(data)
    chosen = marked[rng.integers(len(marked), size=n_components)].T.astype(np.float64)
    noise = rng.random(chosen.shape)  # respondents who answer alike must not give classes that stay alike
    drawn = _OWN_SHARE * chosen + (1 - _OWN_SHARE) * frequencies[:, None] * (0.5 + noise)
    weights = np.full(n_components, 1 / n_components)
    return Classes(weights, as_probabilities(drawn, questions, frequencies, background=0.0))


def as_probabilities(
    numbers: FloatArray, questions: Questions, frequencies: FloatArray, background: float
) -> FloatArray:
    """Return numbers as probabilities of the answers to each question, mixed with the frequencies of all."""
    positive = np.maximum(numbers, 0.0)
    totals = questions.sum_by_question(positive)[questions.owners]
    shares = np.where(totals > 0, positive / np.where(totals > 0, totals, 1.0), frequencies[:, None])
    return np.asarray((1 - background) * shares + background * frequencies[:, None])


def count_answers(data: Any) -> FloatArray:
    """Return how often each answer was given."""
    marked, weights = split(data)
    if weights is None:
        return np.asarray(marked.sum(axis=0, dtype=np.float64))
    return _added(data, lambda block: [block.weights @ block.rows.astype(np.float64)])[0]


def _added(data: Any, work: Callable[[Any], list[FloatArray]]) -> list[FloatArray]:
    """Return the sums of several arrays over blocks, in the order of the blocks."""
    total: list[FloatArray] = []
    for parts in map_blocks(work, blocks_of(data), parallel=True):
        total = [mine + more for mine, more in zip(total, parts, strict=True)] if total else parts
    return total
