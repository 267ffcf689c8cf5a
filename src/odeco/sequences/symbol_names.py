"""What symbols are called: rows of texts are numbered, and the names stay with the model."""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._types import IndexArray


def check_names(names: Any, n_symbols: int | None) -> list[str]:
    """Return the names of symbols, each once and as many as there are symbols; none if there are none."""
    if names is None:
        return []
    given = [str(name) for name in names]
    if not given or len(set(given)) < len(given) or n_symbols not in (None, len(given)):
        number = "" if n_symbols is None else f", n_symbols={n_symbols} of them"
        raise ValueError(
            f"`symbol_names` must be a list of names, each of them once{number}. Got {len(given)} names, "
            f"{len(set(given))} of them different. Pass one for each of the symbols 0, 1, 2, …"
        )
    return given


def numbered(X: Any, names: list[str]) -> tuple[Any, list[str]]:
    """Return one column of texts as numbers, and its names; anything else as it is.

    Without names, those that occur are taken in the order of the alphabet.
    """
    texts = _texts(X)
    if texts is None:
        return X, names
    known = np.array(names) if names else np.unique(texts)
    order = np.argsort(known, kind="stable")
    places = np.minimum(np.searchsorted(known[order], texts), known.size - 1)
    codes: IndexArray = order[places]
    unknown = known[codes] != texts
    if unknown.any():
        place = int(np.argmax(unknown))
        raise ValueError(
            f"Symbols must be among the names of the model. Got {str(texts[place])!r} in row {place}. Pass all names "
            "as symbol_names to fit or partial_fit."
        )
    if hasattr(X, "columns"):  # a table keeps the name of its column
        return type(X)({X.columns[0]: codes}), known.tolist()
    return codes[:, None], known.tolist()


def _texts(X: Any) -> Any:
    """Return one column of texts as an array, or None for everything else."""
    array = np.asarray(X) if isinstance(X, np.ndarray | list | tuple) or hasattr(X, "columns") else None
    if array is None or not array.size or array.shape not in ((array.size,), (array.size, 1)):
        return None
    column = array.ravel()
    if column.dtype.kind == "U":
        return column
    if column.dtype.kind == "O" and all(isinstance(each, str) for each in column):
        return column.astype(np.str_)
    return None
