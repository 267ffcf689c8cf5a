"""Imports on first use: lazy packages, and optional dependencies with what installs them.

A public name is imported when it is first used, so that ``import odeco`` takes no time. A package
declares its names in the stub ``__init__.pyi`` beside it, once for type checkers and for this
module.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


class _LazyPackage(ModuleType):
    """A package whose public names are imported from the modules that define them, on first use."""

    _origins: dict[str, str]

    def __getattr__(self, name: str) -> object:
        if name.startswith("_") or name not in self._origins:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with needed_by(f"{self.__name__}.{name}"):
            module = import_module(self._origins[name])
        value = getattr(module, name, module)  # a name may be that of a submodule
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # The import system binds each submodule to its name in the package. A public name, such as
        # the function odeco.decompose, goes before a submodule of the same name.
        if name not in self._origins or value is not sys.modules.get(f"{self.__name__}.{name}"):
            super().__setattr__(name, value)

    def __dir__(self) -> Iterable[str]:
        return sorted(self._origins)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return import_module, (
            self.__name__,
        )  # functions that use the package travel to workers with it


def make_lazy(package: str) -> None:
    """Make the names in the stub of a package its public names, each imported on first use."""
    module = sys.modules[package]
    with open(f"{module.__file__}i", encoding="utf-8") as stub:  # noqa: PTH123 - pathlib takes longer than all of this
        tree = ast.parse(stub.read())
    origins = {
        alias.name: f"{package}.{alias.name}"
        if node.module == package
        else str(node.module)  # a submodule, or a name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    module.__dict__.update(_origins=origins, __all__=sorted(origins))
    module.__class__ = _LazyPackage


#: What installs a module that is missing.
_INSTALLED_BY = {
    "click": "'odeco[cli]'",
    "distributed": "'odeco[dask]'",
    "jinja2": "'odeco[plot]'",
    "markupsafe": "'odeco[plot]'",
    "matplotlib": "'odeco[plot]'",
    "numba": "'odeco[topics]'",
    "pandas": "pandas",
    "pyarrow": "'odeco[arrow]'",
    "rich": "'odeco[cli]'",
    "sklearn": "'odeco[topics]'",
}


def missing_library(error: ModuleNotFoundError, what: str) -> str | None:
    """Return a text on what needs the missing module and how to install it; None if that is not
    known.
    """
    module = str(error.name).partition(".")[0]
    package = _INSTALLED_BY.get(module)
    return package and f"{what} needs {module}. It is not installed. Run: pip install {package}."


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Import optional modules inside a ``with`` block: an error then says what needs them and how
    to install them.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        text = missing_library(error, what)
        if text is None:
            raise
        raise ModuleNotFoundError(text, name=error.name) from error


def import_optional(module: str, what: str) -> Any:
    """Import a module that `what` needs; see `needed_by`."""
    with needed_by(what):
        return import_module(module)


def import_arrow(name: str, module: str = "") -> Any:
    """Import pyarrow or a part of it; the error names the data that need it."""
    return import_optional(f"pyarrow{module}", f"Reading {name}")
