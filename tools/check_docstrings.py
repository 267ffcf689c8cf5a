"""Check the docstrings of all public names with numpydoc: every parameter is documented, and no
other is.

    python tools/check_docstrings.py

Public are the names in ``dir()`` of odeco and its packages. Docstrings of other functions are one
line.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import is_dataclass
from importlib import import_module

from numpydoc.validate import validate

_NAMES = [
    "datasets",
    "decompose",
    "io",
    "models",
    "online",
    "paper",
    "power",
    "privacy",
    "private",
    "tensors",
    "cp",
    "online.dask",
]

PACKAGES = ("odeco", *(f"odeco.{name}" for name in _NAMES))

#: Parameters that are missing, unknown or without a description, and faults of form. Fields of
#: results are attributes.
CHECKS = {"PR01", "PR02", "PR07", "YD01", "GL01", "GL03", "GL08", "SS03"}


def faults() -> list[str]:
    """Return every fault of a public docstring."""
    found = {}
    for package in PACKAGES:
        module = import_module(package)
        for name in getattr(
            module, "__all__", [each for each in vars(module) if not each.startswith("_")]
        ):
            value = getattr(module, name)
            if (
                inspect.isclass(value) or inspect.isfunction(value)
            ) and value.__module__.startswith("odeco"):
                if inspect.isclass(value) and issubclass(value, Exception):
                    continue
                is_record = (
                    is_dataclass(value)
                    or hasattr(value, "_fields")
                    or getattr(value, "_is_protocol", False)
                )
                checks = CHECKS - {"PR01"} if is_record else CHECKS
                for code, text in validate(f"{value.__module__}.{value.__qualname__}")["errors"]:
                    if code in checks:
                        found[f"{value.__module__}.{value.__qualname__}: {code} {text}"] = None
    return list(found)


if __name__ == "__main__":
    listed = faults()
    sys.stderr.write("".join(f"{each}\n" for each in listed))
    sys.exit(bool(listed))
