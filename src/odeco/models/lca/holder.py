"""Answers that nobody may look at: sums over respondents, to which no respondent adds more than is known beforehand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.models.lca.categories import Bits, Questions, blocks_of
from odeco.models.lca.em import Classes, sums_of


@dataclass(frozen=True, eq=False)
class HeldAnswers:
    """The indicators of private answers, and the sums that may be asked for.

    Attributes
    ----------
    marked : array, respondents x answers
        The indicators. A question has at most one; whoever blanks all answers of a respondent makes them zero.
    questions : Questions
        How many answers each question has.

    Notes
    -----
    What one respondent adds, x being the indicators, of which at most J are 1, one for each of J questions:

    - to the pairs, x_a x_b for all answers a and b to two different questions: at most J (J − 1)/2 ones, so a norm of
      at most √(J (J − 1)/2). None is negative.
    - to the core, z₁ ⊗ z₂ ⊗ z₃, where each z is a linear map of x, shortened to a given length if it is longer: the
      norm is at most the product of the three lengths.
    - to a step, x rᵀ, where r are the probabilities of the classes given x: |x| |r| ≤ √J, as no r is negative and they
      sum to one. None is negative.

    The maps, lengths and classes are released or follow from what is. A respondent without answers adds nothing to the
    pairs, to the core (z = 0) and to a step (x = 0).
    """

    marked: Bits
    questions: Questions

    @property
    def n_rows(self) -> int:
        """Number of respondents, which is public."""
        return len(self.marked)

    def pairs(self) -> FloatArray:
        """Return how often two answers to different questions were given together, for a before b."""
        rows, columns = places_of_pairs(self.questions)
        total = np.zeros((self.questions.n_answers,) * 2)
        for part in map_blocks(_products, blocks_of(self.marked), parallel=True):
            total += part
        return total[rows, columns]

    def core(self, maps: tuple[FloatArray, ...], lengths: tuple[float, ...]) -> FloatArray:
        """Return the sum of z₁ ⊗ z₂ ⊗ z₃; each map takes all indicators to the k coordinates of a view."""
        k = maps[0].shape[1]

        def work(block: Bits) -> FloatArray:
            numbers = block.astype(np.float64)
            a, b, c = (shortened(numbers @ each, most) for each, most in zip(maps, lengths, strict=True))
            return a.T @ (b[:, :, None] * c[:, None, :]).reshape(len(a), k * k)

        total = np.zeros((k, k * k))
        for part in map_blocks(work, blocks_of(self.marked), parallel=True):
            total += part
        return total.reshape(k, k, k)

    def step(self, classes: Classes) -> FloatArray:
        """Return how often each answer was given by each class, answers x k."""
        return sums_of(classes, self.marked).answers


def _products(block: Bits) -> FloatArray:
    numbers = block.astype(np.float64)
    return numbers.T @ numbers


def shortened(vectors: FloatArray, most: float) -> FloatArray:
    """Return the rows, those that are longer than `most` shortened to it."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    # Nothing here may overflow or divide by zero: in a thread of its own, NumPy would warn, and that is an answer.
    clipped: FloatArray = vectors * (most / np.maximum(norms, most))
    return clipped


def places_of_pairs(questions: Questions) -> tuple[IndexArray, IndexArray]:
    """Return the places of two answers to different questions in a table of all answers, each pair once."""
    owners = questions.owners
    rows, columns = np.nonzero(owners[:, None] < owners[None, :])
    return rows, columns


def bound_of_pairs(questions: Questions) -> float:
    """Return the largest norm of what a respondent adds to the pairs."""
    return math.sqrt(math.comb(questions.sizes.size, 2))


def bound_of_step(questions: Questions) -> float:
    """Return the largest norm of what a respondent adds to a step."""
    return math.sqrt(questions.sizes.size)


def check_private_table(X: Any) -> None:
    """Raise unless the answers are an array or a table.

    Their type alone decides: what NumPy makes of a list, and what it says of a cell that it cannot read, depends on
    the cells.
    """
    table = hasattr(X, "iloc") and hasattr(X, "dtypes")
    if not table and not (isinstance(X, np.ndarray) and X.dtype.kind in "iufbOUT"):
        raise TypeError(
            "Private answers must be a NumPy array of numbers or texts, or a pandas table. "
            f"Got {type(X).__name__}. Convert them."
        )
    if len(X.shape) != 2 or X.shape[0] < 1:
        raise ValueError(
            f"Private answers must have two axes, respondents and questions. Got an array of shape {X.shape}."
        )
