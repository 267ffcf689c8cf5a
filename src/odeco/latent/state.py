"""What a model has learnt, or where its stream stands: a dataclass of arrays and numbers that says what it may hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from odeco._schema import Rule


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
