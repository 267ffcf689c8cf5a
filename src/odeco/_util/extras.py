"""Optional dependencies: which extra installs a module that is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

#: The extra that installs a missing module.
EXTRAS = {
    "click": "cli",
    "distributed": "dask",
    "jinja2": "plot",
    "markupsafe": "plot",
    "matplotlib": "plot",
    "numba": "topics",
    "pyarrow": "arrow",
    "rich": "cli",
    "sklearn": "topics",
}


def missing_library(error: ModuleNotFoundError, what: str) -> str | None:
    """Return a text on what needs the missing module and how to install it; None if no extra does."""
    module = str(error.name).partition(".")[0]
    extra = EXTRAS.get(module)
    return None if extra is None else f"{what} needs {module}, which is not installed: pip install 'odeco[{extra}]'"


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Import optional modules inside a ``with`` block: an error then says what needs them and how to install them."""
    try:
        yield
    except ModuleNotFoundError as error:
        text = missing_library(error, what)
        if text is None:
            raise
        raise ModuleNotFoundError(text, name=error.name) from error


def import_arrow(name: str, module: str = "") -> Any:
    """Import pyarrow or a part of it; the error names the data that need it."""
    try:
        return import_module(f"pyarrow{module}")
    except ImportError as error:
        raise ModuleNotFoundError(
            f"Reading {name} needs pyarrow. It is not installed. Run: pip install 'odeco[arrow]'.", name="pyarrow"
        ) from error
