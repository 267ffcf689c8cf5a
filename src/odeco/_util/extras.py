"""Libraries that only some of odeco needs, and how to get those that are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

#: What to install for a module that is missing.
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
    """Return what needs the library that could not be imported, and how to get it; None if it is not one of ours."""
    module = str(error.name).partition(".")[0]
    extra = EXTRAS.get(module)
    return None if extra is None else f"{what} needs {module}, which is not installed: pip install 'odeco[{extra}]'"


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Import inside what may be missing: an error then says what needs it, and how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        text = missing_library(error, what)
        if text is None:
            raise
        raise ModuleNotFoundError(text, name=error.name) from error
