"""The settings of a TensorHMM are checked here, once, before anything is learnt; and so are sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from odeco._util.arguments import check_choice, check_count, check_number
from odeco._util.types import BoolArray, IndexArray
from odeco.models.hmm.private import MOST_SYMBOLS
from odeco.privacy.calibration import check_delta, check_epsilon
from odeco.privacy.ledger_file import Guarantee

#: At most this many states are looked for when their number is left to the data.
MOST_AUTOMATIC = 30

#: The number of three consecutive symbols must fit into 64 bits.
_MOST_SYMBOLS = 2_000_000


@dataclass(frozen=True)
class Settings:
    """The checked settings of a TensorHMM."""

    n_components: int | Literal["auto"]
    emissions: Literal["auto", "categorical", "gaussian"]
    full: bool
    n_symbols: int | None
    n_steps: int
    tolerance: float


def check_settings(model: Any, *, in_batches: bool = False) -> Settings:
    """Return the settings of a TensorHMM, or raise; `in_batches` if they are for `partial_fit`."""
    k = model.n_components
    automatic = isinstance(k, str) and k == "auto"
    if automatic and in_batches:
        raise ValueError(
            "`n_components` must be an int for partial_fit. Got 'auto'. Fit a first part of the rows with 'auto' and "
            "take its n_components_."
        )
    check_choice("emissions", model.emissions, ("auto", "categorical", "gaussian"))
    check_choice("covariance_type", model.covariance_type, ("diag", "full"))
    return Settings(
        n_components="auto" if automatic else check_count("n_components", k),
        emissions=model.emissions,
        full=model.covariance_type == "full",
        n_symbols=None if model.n_symbols is None else check_count("n_symbols", model.n_symbols, 1, _MOST_SYMBOLS),
        n_steps=check_count("n_steps", model.n_steps, 0),
        tolerance=check_number("tol", model.tol, 0, np.inf, closed=True),
    )


def check_private(model: Any, settings: Settings, *, in_batches: bool = False) -> Guarantee | None:
    """Return what a private TensorHMM promises, or None for one without privacy; raise if it cannot be private."""
    check_choice("neighbour_relation", model.neighbour_relation, ("replace", "add_remove"))
    given = {"epsilon": model.epsilon, "delta": model.delta}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 1:
        raise ValueError(
            f"A private model needs `epsilon` and `delta`. Got no `{missing[0]}`. Pass both, or neither for a model "
            "without privacy."
        )
    if missing and model.ledger is not None:
        raise ValueError("`ledger` is for private models. Got one without `epsilon` and `delta`. Leave it out.")
    if missing:
        return None
    if in_batches:
        raise ValueError("A private model is learnt from all sequences at once. Got a call of partial_fit. Call fit.")
    k, n_symbols = settings.n_components, settings.n_symbols
    if settings.emissions != "categorical" or n_symbols is None or n_symbols > MOST_SYMBOLS:
        raise ValueError(
            f"A private model is one of symbols, at most {MOST_SYMBOLS}, whose number is public. Got "
            f"emissions={settings.emissions!r} and n_symbols={n_symbols}. Pass emissions='categorical' and n_symbols."
        )
    if k == "auto" or k > n_symbols:
        raise ValueError(
            f"`n_components` of a private model must be an int of at most n_symbols={n_symbols}. Got {k!r}."
        )
    return Guarantee(check_epsilon(model.epsilon), check_delta(model.delta), model.ledger)


def check_lengths(lengths: Any, n_rows: int) -> BoolArray:
    """Return which rows begin a sequence; without lengths all rows are one sequence."""
    begins = np.zeros(n_rows, bool)
    begins[np.append(0, np.cumsum(as_lengths(lengths, n_rows, least=1))[:-1])] = True
    return begins


def as_lengths(lengths: Any, n_rows: int, *, least: int) -> IndexArray:
    """Return the length of every sequence, at least `least`; without lengths all rows are one sequence."""
    given = np.array([n_rows]) if lengths is None else np.asarray(lengths)
    if given.ndim != 1 or given.dtype.kind not in "iu" or np.any(given < least) or int(given.sum()) != n_rows:
        total = f" that sum to {given.sum():,}" if given.dtype.kind in "iu" else ""
        raise ValueError(
            f"`lengths` must be whole numbers of at least {least} that sum to the number of rows, {n_rows:,}. "
            f"Got {given.size:,} of type {given.dtype}{total}. Pass the length of every sequence."
        )
    return given.astype(np.int64)


def check_labels(y: Any, n_rows: int) -> None:
    """Raise if what stands in the place of labels, which are ignored, must be lengths."""
    if y is not None and np.shape(y)[:1] != (n_rows,):
        raise ValueError(
            f"The second argument stands for labels, one for each of {n_rows:,} rows, and is ignored. "
            f"Got one of shape {np.shape(y)}. Pass lengths by name: lengths=."
        )


def as_symbols(rows: Any, n_symbols: int | None) -> tuple[IndexArray, int]:
    """Return one column of symbols as whole numbers, and how many symbols there are."""
    column = rows[:, 0]
    if rows.shape[1] != 1:
        raise ValueError(f"Symbols must stand in one column. Got {rows.shape[1]} columns. Pass emissions='gaussian'.")
    most = _MOST_SYMBOLS if n_symbols is None else n_symbols
    usable = (column == np.floor(column)) & (column >= 0) & (column < most)
    if not usable.all():
        place = int(np.argmin(usable))
        known = "" if n_symbols is None else f" below the number of symbols, {n_symbols:,}"
        raise ValueError(
            f"Symbols must be whole numbers from 0{known}. Got {column[place]:g} in row {place}. Number them, for "
            "instance with sklearn.preprocessing.OrdinalEncoder; or pass n_symbols."
        )
    symbols = column.astype(np.int64)
    return symbols, int(symbols.max()) + 1 if n_symbols is None else n_symbols
