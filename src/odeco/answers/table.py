"""Answers as whole numbers, and blocks of their indicators: one column for every answer to every question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from odeco._types import FloatArray, IndexArray

#: Indicators as they are kept: a byte each. Products are made of blocks of them in double precision.
Bits: TypeAlias = npt.NDArray[np.uint8]

#: Rows of a block. Sums over blocks are added in their order.
BLOCK = 2048


@dataclass(frozen=True, eq=False)
class Questions:
    """How many answers each question has.

    Attributes
    ----------
    sizes : array
        The number of answers to each question.
    """

    sizes: IndexArray

    @property
    def offsets(self) -> IndexArray:
        """Where the indicators of each question begin."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    @property
    def n_answers(self) -> int:
        """The number of answers to all questions together."""
        return int(self.sizes.sum())

    @property
    def n_free(self) -> int:
        """How many of the probabilities of a class can be chosen freely."""
        return int(np.sum(self.sizes - 1))

    @property
    def owners(self) -> IndexArray:
        """The question of each answer."""
        return np.repeat(np.arange(self.sizes.size), self.sizes)

    def sum_by_question(self, numbers: FloatArray) -> FloatArray:
        """Return the sum over the answers to each question; answers are along the first axis."""
        return np.add.reduceat(numbers, self.offsets, axis=0)

    def indicators(self, codes: IndexArray) -> Bits:
        """Return a 1 for each answer that was given; a question without an answer, coded below 0, has none."""
        marked = np.zeros((len(codes), self.n_answers), dtype=np.uint8)
        rows, columns = np.nonzero(codes >= 0)
        marked[rows, self.offsets[columns] + codes[rows, columns]] = 1
        return marked


def blocks_of(marked: Any) -> Iterator[Any]:
    """Yield the rows of an array in blocks."""
    for start in range(0, len(marked), BLOCK):
        yield marked[start : start + BLOCK]
