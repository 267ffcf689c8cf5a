"""Latent classes: the posterior of a respondent, standard errors, and the M step of EM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.state import State, array_field
from odeco._util.types import FloatArray, IndexArray
from odeco.models.emissions.parts import normalize, weights_rule
from odeco.models.engine.rows import times
from odeco.privacy.holders.tables import Levels

#: Probabilities below this count as this, so that their logarithms are finite.
_MIN_PROBABILITY = 1e-12

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
        """Return the responsibility of each class for each respondent, and the log-likelihood of
        each.

        `given` are the indicators of the answers, in double precision.
        """
        joint = given @ np.log(np.maximum(self.answers, _MIN_PROBABILITY))
        joint += np.log(np.maximum(self.weights, _MIN_PROBABILITY))
        return normalize(joint)

    def responsibilities(self, given: FloatArray) -> FloatArray:
        """Return the responsibility of each class for each respondent."""
        return self.posterior(given)[0]

    def standard_errors(
        self, given: FloatArray, weights: FloatArray | None, questions: Levels
    ) -> Classes:
        """Return the standard error of each probability, in the place of the probability.

        The information about the log-odds θ of classes and answers is the sum of s sᵀ over
        respondents, where s is the gradient of the log-likelihood of a respondent: r_h − π_h for a
        class, and r_h (x − p) for an answer to a question that was answered. The covariance of p is
        J I⁻¹ Jᵀ with J = ∂p/∂θ (delta method). Log-odds of one question may all be raised by the
        same number, so the inverse is a pseudo-inverse, and a probability of zero or one has the
        standard error zero: it is at the border.
        """
        shares, _ = self.posterior(given)
        n, k = shares.shape
        answered = questions.sum_by_column(given.T)[questions.owners].T
        scores = np.hstack([shares - self.weights, np.empty((n, self.answers.size))])
        for h in range(k):
            scores[:, k + h :: k] = shares[:, h : h + 1] * (given - answered * self.answers[:, h])
        covariance = np.linalg.pinv(times(scores, weights).T @ scores, rcond=_RANK, hermitian=True)
        probabilities = np.concatenate([self.weights, self.answers.ravel()])
        blocks = np.concatenate(
            [np.zeros(k, int), (1 + questions.owners[:, None] * k + np.arange(k)).ravel()]
        )
        jacobian = np.diag(probabilities) - np.where(
            blocks[:, None] == blocks, np.outer(probabilities, probabilities), 0.0
        )
        errors = np.sqrt(
            np.maximum(np.einsum("ij,jk,ik->i", jacobian, covariance, jacobian, optimize=True), 0.0)
        )
        return Classes(errors[:k], errors[k:].reshape(self.answers.shape))

    def draw(self, questions: Levels, n_rows: int, rng: Any) -> tuple[IndexArray, IndexArray]:
        """Draw respondents; return the codes of their answers, and the class of each."""
        labels = rng.choice(self.weights.size, size=n_rows, p=self.weights / self.weights.sum())
        columns = []
        for part in np.split(self.answers, questions.offsets[1:]):
            edges = np.cumsum(part, axis=0)[:-1].T
            columns.append(np.sum(rng.random(n_rows)[:, None] > edges[labels], axis=1))
        return np.column_stack(columns), labels


def m_step(
    weights: FloatArray,
    answers: FloatArray,
    questions: Levels,
    frequencies: FloatArray,
    smoothing: float,
) -> Classes:
    """Return the classes of the largest posterior probability, for statistics `weights` and
    `answers`.

    The prior of each class counts as `smoothing` respondents, who answer as all respondents
    together do: by the `frequencies`.
    """
    prior = smoothing * frequencies[:, None]
    totals = questions.sum_by_column(answers)[questions.owners]
    counts = weights + smoothing / weights.size
    known = (
        totals + smoothing > 0
    )  # without a prior, a class may be empty, or none of it has answered a question
    shares = np.where(
        known, (answers + prior) / np.where(known, totals + smoothing, 1.0), frequencies[:, None]
    )
    return Classes(counts / counts.sum(), shares)


def as_probabilities(
    numbers: FloatArray, questions: Levels, frequencies: FloatArray, background: float
) -> FloatArray:
    """Return numbers as probabilities of the answers to each question, mixed with the frequencies
    of all.
    """
    positive = np.maximum(numbers, 0.0)
    totals = questions.sum_by_column(positive)[questions.owners]
    shares = np.where(
        totals > 0, positive / np.where(totals > 0, totals, 1.0), frequencies[:, None]
    )
    return np.asarray((1 - background) * shares + background * frequencies[:, None])
