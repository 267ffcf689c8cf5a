"""What a model has learnt, or where its stream stands: a dataclass of arrays and numbers that says what it may hold.

Rows that are fed to a model: cut into blocks whose size does not depend on how the rows arrive.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from odeco._util.schema import Rule


@dataclass(eq=False)
class State:
    """Base of dataclasses whose fields are arrays, or numbers, and go to a file as they are.

    Derived classes list their fields, and in `RULES` what must hold for each of them in a file that may come from
    anyone. Numbers are arrays without axes there. Arrays are never changed in place.
    """

    RULES: ClassVar[Mapping[str, Rule]] = {}

    def to_arrays(self, prefix: str) -> dict[str, Any]:
        """Return the fields as arrays, under their names after a prefix."""
        return {f"{prefix}.{each.name}": np.asarray(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, Any]) -> Self:
        """Return what `to_arrays` wrote, from arrays that obey the rules."""
        own = {each.name: arrays[f"{prefix}.{each.name}"] for each in fields(cls)}
        return cls(**{name: array if array.ndim else array.item() for name, array in own.items()})

    @classmethod
    def rules(cls, prefix: str) -> dict[str, Rule]:
        """Return the rules of a file that holds the fields under their names after a prefix."""
        return {f"{prefix}.{name}": rule for name, rule in cls.RULES.items()}


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
