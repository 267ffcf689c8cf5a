"""Warn of records that are given to several private runs of a process without a common ledger.

Only objects are compared, and no record is looked at: a message must not depend on a record. So copies and parts of an
array are not recognised, nor is a file that is read again. Objects are not kept alive.
"""

from __future__ import annotations

import os
import warnings
import weakref
from functools import partial
from pathlib import Path
from typing import Any

from odeco.errors import ReusedRecordsWarning

#: The objects that private runs were given, by their identity, and the ledger of the last run; None for none.
_USED: dict[int, tuple[weakref.ref[Any], str | None]] = {}


def warn_of_reuse(records: Any, ledger: Any = None, *, stacklevel: int = 3) -> None:
    """Warn if an earlier private run was given this object, unless both charge the same ledger.

    Parameters
    ----------
    records : object
        What the run was given. Objects that cannot be referred to weakly, such as lists, are not remembered.
    ledger : LedgerFile, Ledger or path, optional
        The ledger of all runs on these records.
    stacklevel : int
        As for `warnings.warn`.
    """
    name, key = None if ledger is None else _name_of(ledger), id(records)
    before = _USED.get(key)
    try:
        _USED[key] = weakref.ref(records, partial(_USED.pop, key)), name
    except TypeError:
        return
    if before is None or before[0]() is not records or (name is not None and name == before[1]):
        return
    warnings.warn(
        "Private runs on the same records must share one budget: what they spend adds up, for every record. Got "
        "records that an earlier private run of this process was given, without one ledger for both. Pass the same "
        "`ledger` to both; a stream must be given every record once.",
        ReusedRecordsWarning,
        stacklevel=stacklevel,
    )


def forget_all() -> None:
    """Forget what private runs were given."""
    _USED.clear()


def _name_of(ledger: Any) -> str:
    """Return what tells a ledger from others: the path of a file, or else its identity."""
    path = getattr(ledger, "path", ledger)
    return str(Path(path).resolve()) if isinstance(path, str | os.PathLike) else f"ledger {id(ledger)}"
