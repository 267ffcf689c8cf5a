"""Rows that are fed to a model: cut into blocks whose size does not depend on how the rows arrive."""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from odeco.latent.state import State


@dataclass(eq=False)
class RowStream(State):
    """Where a model that learns in one pass stands; only the rows of an incomplete block are kept.

    Derived classes say how many rows the next block has, and take it in. The first block is usually the larger: the
    model starts from it. So the result depends on the rows and their order, and not on where batches end.

    Attributes
    ----------
    held : array
        Rows that wait for their block to be complete.
    n_rows : int
        Number of rows fed so far, those that wait included.
    """

    held: Any
    n_rows: int

    @property
    @abstractmethod
    def next_size(self) -> int:
        """The number of rows of the next block."""

    @abstractmethod
    def absorb(self, block: Any) -> None:
        """Learn from a block; fields are replaced, and no array is changed in place."""

    def updated(self, rows: Any) -> Self:
        """Return the stream after more rows. This one stays as it was, so an error or an interrupt loses nothing."""
        after = copy.copy(self)
        waiting = np.concatenate([self.held, rows]) if len(self.held) else rows
        first = 0
        while len(waiting) - first >= after.next_size:
            size = after.next_size
            # One layout for every block: the bits of a product depend on it.
            after.absorb(np.ascontiguousarray(waiting[first : first + size]))
            first += size
        after.held = waiting[first:].copy()
        after.n_rows = self.n_rows + len(rows)
        return after
