"""The columns of a table: the names that they have, and which of them are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odeco.io import errors as _errors


def names_of(data: Any) -> tuple[str, ...] | None:
    """Return the names of the columns of a table of pandas, polars, pyarrow or Dask; None where there are none.

    Numbers from 0 on are what pandas calls columns that have no name.
    """
    for found in (getattr(data, "columns", None), getattr(getattr(data, "schema", None), "names", None)):
        if found is None or callable(found):
            continue
        labels = list(found)
        if labels == list(range(len(labels))):
            return None
        if all(isinstance(label, str | int | float | tuple) for label in labels):
            return tuple(map(str, labels))
    return None


@dataclass(frozen=True)
class Selection:
    """Which columns of a table are read: those of `columns` in this order, or all but those of `drop`."""

    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] | None = None

    @classmethod
    def of(cls, columns: Sequence[str] | str | None, drop: Sequence[str] | str | None) -> Selection:
        """Return the selection that a user asks for; a single name may be given as it is."""
        if columns is not None and drop is not None:
            raise ValueError(
                f"`columns` and `drop` must not be given together. Got {columns!r} and {drop!r}. Pass the one that is "
                "shorter."
            )
        return cls(_as_names("columns", columns), _as_names("drop", drop))

    @property
    def is_all(self) -> bool:
        """Whether every column is read."""
        return self.columns is None and self.drop is None

    def places(self, names: Sequence[str] | None, name: str, path: Path | None) -> list[int] | None:
        """Return where the columns that are read stand among those of a table; None if all of them are."""
        if self.is_all:
            return None
        if names is None:
            raise _errors.no_names(name, path)
        for wanted in (*(self.columns or ()), *(self.drop or ())):
            if names.count(wanted) != 1:
                raise _errors.unknown_column(name, path, wanted, names)
        if self.columns is not None:
            return [names.index(wanted) for wanted in self.columns]
        kept = [place for place, each in enumerate(names) if each not in (self.drop or ())]
        if not kept:
            raise _errors.no_rows(name, path, "no other columns than those that are dropped")
        return kept

    def of_table(self, data: Any) -> Any:
        """Return a table in memory, or on a cluster, with the columns that are read."""
        names = names_of(data) if hasattr(data, "iloc") or hasattr(data, "select") else None
        places = self.places(names, f"the {type(data).__name__}", None)
        if names is None or places is None:
            return data
        return data.iloc[:, places] if hasattr(data, "iloc") else data.select([names[place] for place in places])


#: Every column is read.
ALL = Selection()


def chosen_columns(data: Any, columns: Sequence[str] | str | None, drop: Sequence[str] | str | None) -> Any:
    """Return a table with the columns that are asked for; anything else as it is, if nothing is."""
    selection = Selection.of(columns, drop)
    return data if selection.is_all else selection.of_table(data)


def _as_names(argument: str, given: Sequence[str] | str | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError(
            f"`{argument}` must be one or more names of columns, each once. Got {given!r}. Pass a list of texts."
        )
    return names
