"""Rules for the contents of files, which are checked before anything is built from a file.

A rule checks one value, and raises `ValueError` with the place of the value. Functions make rules for numbers and texts
(`whole`, `number`, `text`, …) and combine them (`record`, `each`). Sizes have names: arrays of one file that name the
same size must agree in it, and `size` ties a number in the header to such a name.

Examples
--------
>>> import numpy as np
>>> from odeco._util.schema import array, record, size, whole
>>> header, arrays, sizes = record({"order": whole(3), "k": size("k")}), record({"weights": array("k")}), {}
>>> header({"order": 3, "k": 2}, "", sizes)
>>> arrays({"weights": np.ones(5)}, "", sizes)
Traceback (most recent call last):
    ...
ValueError: `weights` must have k = 2 numbers along axis 0, and has 5
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from odeco._util.arguments import MAX_ORDER, MINIMUM_ORDER

#: The sizes of one file by their names, as far as they are known.
Sizes: TypeAlias = "dict[str, int]"

#: A rule takes a value, its place and the sizes known so far, and raises `ValueError` if the value breaks it.
Rule: TypeAlias = "Callable[[Any, str, Sizes], None]"


#: The largest integer that a file may hold: it must fit into 64 bits.
_MAX_INTEGER = 2**63 - 1

#: Numbers up to this size have squares that can be added up in double precision.
_LARGEST = 2.0**500

#: The kinds of arrays: for each a test of the NumPy type, and its name in errors.
_ELEMENTS: dict[str, tuple[Callable[[np.dtype[Any]], bool], str]] = {
    "f": (lambda dtype: dtype == np.float64, "numbers in double precision"),
    "rows": (lambda dtype: dtype in (np.float32, np.float64), "numbers"),
    "i": (lambda dtype: dtype.kind == "i", "whole numbers"),
    "b": (lambda dtype: dtype.kind == "b", "yes or no"),
    "U": (lambda dtype: dtype.kind == "U", "texts"),
}


def whole(low: int = 0, high: int = _MAX_INTEGER) -> Rule:
    """Require a whole number in a range."""

    def check(value: Any, where: str, _: Sizes) -> None:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"`{where}` must be a whole number from {low} to {high}")

    return check


def tensor_order() -> Rule:
    """Require the order of a tensor."""
    return whole(MINIMUM_ORDER, MAX_ORDER)


def number(low: float = -math.inf, high: float = math.inf) -> Rule:
    """Require a finite number in a range, its ends included."""

    def check(value: Any, where: str, _: Sizes) -> None:
        if type(value) not in (int, float) or not low <= value <= high or not math.isfinite(value):
            raise ValueError(f"`{where}` must be a number from {low:g} to {high:g}")

    return check


def text() -> Rule:
    """Require a text."""
    return _of_type(str, "a text")


def flag() -> Rule:
    """Require true or false."""
    return _of_type(bool, "true or false")


def _of_type(kind: type, words: str) -> Rule:
    def check(value: Any, where: str, _: Sizes) -> None:
        if type(value) is not kind:
            raise ValueError(f"`{where}` must be {words}")

    return check


def one_of(*choices: Any) -> Rule:
    """Require one of some texts, or None where that is a choice."""

    def check(value: Any, where: str, _: Sizes) -> None:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise ValueError(f"`{where}` must be one of {', '.join(map(repr, choices))}")

    return check


def nothing_or(rule: Rule) -> Rule:
    """Require None, or what a rule requires."""

    def check(value: Any, where: str, sizes: Sizes) -> None:
        if value is not None:
            rule(value, where, sizes)

    return check


def each(rule: Rule) -> Rule:
    """Require a list whose members obey a rule."""

    def check(value: Any, where: str, sizes: Sizes) -> None:
        if not isinstance(value, list | tuple):
            raise ValueError(f"`{where}` must be a list")
        for position, member in enumerate(value):
            rule(member, f"{where}[{position}]", sizes)

    return check


def record(rules: Mapping[str, Rule], optional: Mapping[str, Rule] | None = None) -> Rule:
    """Require an object with exactly these names, those of `optional` or not, each obeying its rule."""
    known = {**rules, **(optional or {})}

    def check(value: Any, where: str, sizes: Sizes) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"`{where}` must be an object with names")
        missing, foreign = sorted(rules.keys() - value.keys()), sorted(map(str, value.keys() - known.keys()))
        if missing or foreign:
            text = f"has no {missing[0]!r}" if missing else f"has an unknown {foreign[0][:40]!r}"
            raise ValueError(f"`{where}` {text}" if where else f"it {text}")
        for name, rule in known.items():
            if name in value:
                rule(value[name], f"{where}.{name}" if where else name, sizes)

    return check


def plain_settings(value: Any, where: str, _: Sizes) -> None:
    """Require the parameters of an estimator: an object whose values are numbers, texts, booleans or None."""
    if not isinstance(value, dict):
        raise ValueError(f"`{where}` must be an object with names")
    if not all(each is None or isinstance(each, bool | int | float | str) for each in value.values()):
        raise ValueError(f"`{where}` must hold numbers and texts")


def size(name: str) -> Rule:
    """Require a whole number of at least 1, and tie it to the size of this name."""

    def check(value: Any, where: str, sizes: Sizes) -> None:
        whole(1)(value, where, sizes)
        if sizes.setdefault(name, value) != value:
            raise ValueError(f"`{where}` must be {name} = {sizes[name]}, and is {value}")

    return check


def array(
    *shape: str | None, kind: str = "f", low: float = -math.inf, high: float = math.inf, nan: bool = False
) -> Rule:
    """Require an array with these sizes along its axes, of finite numbers in a range.

    Parameters
    ----------
    *shape : str or None
        The name of the size along each axis; None stands for any size.
    kind : {"f", "rows", "i", "b", "U"}
        float64, float32 or float64, whole numbers, true or false, or texts.
    low, high : float
        The range of the numbers, its ends included.
    nan : bool
        Whether a number may be missing.
    """

    def check(value: Any, where: str, sizes: Sizes) -> None:
        fits, words = _ELEMENTS[kind]
        if not isinstance(value, np.ndarray) or not fits(value.dtype):
            raise ValueError(f"`{where}` must be an array of {words}")
        if value.ndim != len(shape):
            raise ValueError(f"`{where}` must have {len(shape)} axes, and has {value.ndim}")
        for axis, (name, length) in enumerate(zip(shape, value.shape, strict=True)):
            if name is not None and sizes.setdefault(name, length) != length:
                raise ValueError(
                    f"`{where}` must have {name} = {sizes[name]} numbers along axis {axis}, and has {length}"
                )
        if kind in ("f", "i", "rows"):
            usable = (value >= low) & (value <= high) & np.isfinite(value)
            if not np.all(usable | np.isnan(value) if nan else usable):
                raise ValueError(f"`{where}` must hold finite numbers from {low:g} to {high:g}")

    return check


def text_array(*choices: str) -> Rule:
    """Require one of some texts, as an array without axes."""

    def check(value: Any, where: str, sizes: Sizes) -> None:
        array(kind="U")(value, where, sizes)
        if value.item() not in choices:
            raise ValueError(f"`{where}` must be one of {', '.join(map(repr, choices))}")

    return check


def usable_array(*shape: str | None, low: float = -_LARGEST, nan: bool = False) -> Rule:
    """Require an array of numbers whose squares can be added up, or NaN if that is allowed."""
    return array(*shape, low=low, high=_LARGEST, nan=nan)


def unit_vectors(*shape: str | None) -> Rule:
    """Require a vector of length 1, or an array whose columns are such vectors."""
    coordinates = array(*shape, low=-2, high=2)

    def check(value: Any, where: str, sizes: Sizes) -> None:
        coordinates(value, where, sizes)
        if not np.all(np.abs(np.linalg.norm(value, axis=0) - 1) < 1e-6):
            raise ValueError(f"`{where}` must hold vectors of length 1")

    return check


def require(condition: bool, text: str) -> None:
    """Raise `ValueError` with this text unless the condition holds."""
    if not condition:
        raise ValueError(text)
