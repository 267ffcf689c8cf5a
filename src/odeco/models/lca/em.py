"""Latent classes: how likely answers are, and the step that makes them likelier (expectation and maximisation).

Respondents drawn from classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.models.lca.categories import Bits, Questions, blocks_of

#: No probability is taken for smaller than this: its logarithm must be finite.
_LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Classes:
    """Classes of respondents: within one, the answers to different questions are independent.

    Attributes
    ----------
    weights : array
        The probability of each class.
    answers : array, answers x k
        The probability of each answer in each class; those of one question sum to one.
    """

    weights: FloatArray
    answers: FloatArray


@dataclass(frozen=True, eq=False)
class Sums:
    """What respondents say of the classes: all that a step needs of them.

    Attributes
    ----------
    answers : array, answers x k
        How often each answer was given by each class: respondents count by the probability that they belong to it.
    weights : array
        How many respondents each class has.
    log_likelihood : float
        The sum of the log-likelihoods of the respondents.
    """

    answers: FloatArray
    weights: FloatArray
    log_likelihood: float

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.answers + other.answers, self.weights + other.weights, self.log_likelihood + other.log_likelihood
        )


def responsibilities(classes: Classes, marked: Bits) -> tuple[FloatArray, FloatArray]:
    """Return the probability that each respondent belongs to each class, and the log-likelihood of each."""
    return posterior(classes, marked.astype(np.float64))


def posterior(classes: Classes, marked: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the same of indicators in double precision."""
    joint = marked @ np.log(np.maximum(classes.answers, _LEAST))
    joint += np.log(np.maximum(classes.weights, _LEAST))
    largest = joint.max(axis=1, keepdims=True)
    joint -= largest
    np.exp(joint, out=joint)
    total = joint.sum(axis=1, keepdims=True)
    joint /= total
    return joint, (np.log(total) + largest)[:, 0]


def sums_of(classes: Classes, marked: Bits) -> Sums:
    """Return what the respondents say of the classes, a block at a time."""

    def work(block: Bits) -> Sums:
        numbers = block.astype(np.float64)
        shares, likelihoods = posterior(classes, numbers)
        return Sums(numbers.T @ shares, shares.sum(axis=0), float(likelihoods.sum()))

    first, *rest = map_blocks(work, blocks_of(marked), parallel=True)
    for each in rest:
        first = first + each
    return first


def maximised(sums: Sums, questions: Questions, frequencies: FloatArray, smoothing: float) -> Classes:
    """Return the classes that make the sums likeliest, with a prior of so many respondents for each class.

    Those of the prior answer as all respondents together do: `frequencies`.
    """
    prior = smoothing * frequencies[:, None]
    totals = questions.sum_by_question(sums.answers)[questions.owners]
    weights = sums.weights + smoothing / sums.weights.size
    known = totals + smoothing > 0  # without a prior, a class may be empty, or none of it has answered a question
    answers = np.where(known, (sums.answers + prior) / np.where(known, totals + smoothing, 1.0), frequencies[:, None])
    return Classes(weights / weights.sum(), answers)


def draw_codes(classes: Classes, questions: Questions, n_rows: int, rng: Any) -> tuple[IndexArray, IndexArray]:
    """Return the answers of respondents of these classes as whole numbers, and the class of each."""
    labels = rng.choice(classes.weights.size, size=n_rows, p=classes.weights / classes.weights.sum())
    columns = []
    for part in np.split(classes.answers, questions.offsets[1:]):
        edges = np.cumsum(part, axis=0)[:-1].T
        columns.append(np.sum(rng.random(n_rows)[:, None] > edges[labels], axis=1))
    return np.column_stack(columns), labels
