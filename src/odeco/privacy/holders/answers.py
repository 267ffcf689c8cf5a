"""The holder of private answers to questions: sums over respondents, with a proved bound on what
one adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from odeco._util.types import FloatArray, IndexArray
from odeco.privacy.holders.lanes import as_probabilities
from odeco.privacy.holders.protocol import unit_weights
from odeco.privacy.holders.tables import Levels
from odeco.privacy.sums import Query, sum_over_blocks

#: Indicators take a byte each. Products are made of blocks of them in double precision.
Bits: TypeAlias = npt.NDArray[np.uint8]

#: Respondents that are worked on at a time. Sums over blocks are added in their order.
BLOCK = 2048


def blocks_of(marked: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield the rows of an array in blocks."""
    for start in range(0, len(marked), BLOCK):
        yield marked[start : start + BLOCK]


@dataclass(frozen=True, eq=False)
class HeldAnswers:
    """The indicators of private answers, and the sums over respondents that may be released.

    Attributes
    ----------
    marked : array, respondents x answers
        The indicators. A question has at most one. Blanking a respondent makes all of them zero.
    questions : Levels
        The layout of the indicators.
    groups : array of labels, optional
        Which user each row of answers belongs to; public. A user adds the mean of what the own rows
        add (`unit_weights`).

    Notes
    -----
    Let x be the indicators of a respondent. At most J are 1, one for each of J questions. The
    respondent adds

    - to the pairs, x_a x_b for all answers a and b to two different questions: at most J (J − 1)/2
      ones, so a norm of at most √(J (J − 1)/2). None is negative.
    - to the core, z₁ ⊗ z₂ ⊗ z₃, where each z is a linear map of x, shortened to a given length if
      it is longer: the norm is at most the product of the three lengths. Two respondents may be
      opposite.
    - to an EM iteration, x rᵀ for responsibilities r of classes given x: |x| |r| ≤ √J. Whatever
      function gives r, `as_probabilities` makes its entries at least 0 and their sum at most 1. No
      entry of x rᵀ is negative. The function must treat each respondent by itself.

    The maps, lengths and functions are released or follow from what is. A respondent without
    answers adds nothing to the pairs, to the core (z = 0) and to an EM iteration (x = 0).
    """

    marked: Bits
    questions: Levels
    groups: Any = None

    @cached_property
    def _weights(self) -> tuple[FloatArray, int]:
        return unit_weights(self.groups, len(self.marked))

    @property
    def n_records(self) -> int:
        """Number of respondents, or of users, which is public."""
        return self._weights[1]

    @property
    def n_terms(self) -> int:
        """Number of rows of answers."""
        return len(self.marked)

    def _sum(self, work: Callable[[FloatArray, FloatArray], FloatArray]) -> FloatArray:
        """Return the sum over blocks of what `work` makes of indicators and of what each row
        counts.
        """
        weights = self._weights[0][:, None]
        blocks = zip(blocks_of(self.marked), blocks_of(weights), strict=True)
        return sum_over_blocks(lambda block: work(block[0].astype(np.float64), block[1]), blocks)

    def pairs(self) -> Query:
        """Return the query of how often two answers to different questions were given together, for
        a before b.
        """
        questions = self.questions
        rows, columns = places_of_pairs(self.questions)

        def work(given: FloatArray, weights: FloatArray) -> FloatArray:
            return given.T @ (given * weights)

        def answer() -> FloatArray:
            return self._sum(work)[rows, columns]

        what = f"pairs of answers to two of {questions.sizes.size} questions, {len(rows)} numbers"
        return Query(what, answer, len(rows), bound=bound_of_pairs(questions), signed=False)

    def core(self, maps: tuple[FloatArray, ...], lengths: tuple[float, ...]) -> Query:
        """Return the query of Σ z₁ ⊗ z₂ ⊗ z₃; each map takes all indicators to the k coordinates of
        a view.
        """
        k = maps[0].shape[1]

        def work(given: FloatArray, weights: FloatArray) -> FloatArray:
            a, b, c = (
                shortened(given @ each, most) for each, most in zip(maps, lengths, strict=True)
            )
            return (a * weights).T @ (b[:, :, None] * c[:, None, :]).reshape(len(a), k * k)

        def answer() -> FloatArray:
            return self._sum(work).reshape(k, k, k)

        what = f"third moment of three views, {k} x {k} x {k} numbers"
        return Query(what, answer, k**3, bound=math.prod(lengths), signed=True)

    def step(
        self, responsibilities: Callable[[FloatArray], FloatArray], n_classes: int, number: int = 1
    ) -> Query:
        """Return the query of Σ x rᵀ, how often each answer was given by each class; `number` is
        that of the step.
        """

        def work(given: FloatArray, weights: FloatArray) -> FloatArray:
            product: FloatArray = given.T @ (as_probabilities(responsibilities(given)) * weights)
            return product

        size = self.questions.n_levels * n_classes
        what = f"answers by class, step {number}, {self.questions.n_levels} x {n_classes} numbers"
        bound = math.sqrt(self.questions.sizes.size)
        return Query(what, lambda: self._sum(work), size, bound=bound, signed=False)


def shortened(vectors: FloatArray, most: float) -> FloatArray:
    """Return the rows, those that are longer than `most` shortened to it; one whose norm overflows
    becomes zero.
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(np.isfinite(norms), vectors * (most / np.maximum(norms, most)), 0.0)


def places_of_pairs(questions: Levels) -> tuple[IndexArray, IndexArray]:
    """Return the places of two answers to different questions in a table of all answers, each pair
    once.
    """
    owners = questions.owners
    rows, columns = np.nonzero(owners[:, None] < owners[None, :])
    return rows, columns


def bound_of_pairs(questions: Levels) -> float:
    """Return the largest norm of what a respondent adds to the pairs."""
    return math.sqrt(math.comb(questions.sizes.size, 2))


def check_private_table(X: Any) -> None:
    """Raise unless the answers are an array or a table.

    Their type alone decides: what NumPy makes of a list, and what it says of a cell that it cannot
    read, depends on the cells.
    """
    table = hasattr(X, "iloc") and hasattr(X, "dtypes")
    if not table and not (isinstance(X, np.ndarray) and X.dtype.kind in "iufbOUT"):
        raise TypeError(
            "Private answers must be a NumPy array of numbers or texts, or a pandas table. Got "
            f"{type(X).__name__}. Convert them."
        )
    if len(X.shape) != 2 or X.shape[0] < 1:
        raise ValueError(
            "Private answers must have two axes, respondents and questions. Got an array of "
            f"shape {X.shape}."
        )
