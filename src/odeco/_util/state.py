"""States that can be saved: every field declares its shape, its limits and its default once.

A solver, a stream, a model or a result is a frozen dataclass derived from `State`. Its fields are
declared with `array_field` (an array, a number or a text) or `part_field` (another state), and
`to_arrays` and `from_arrays` follow from the declaration. So do the checks: a file may come from
anyone, and each array is compared with its rule before anything is built from it.

A rule checks one value, and raises `ValueError` with the place of the value. Functions make rules
for numbers and texts (`whole`, `number`, `text`, …) and combine them (`record`, `each`). Sizes have
names: arrays of one file that name the same size must agree in it, and `size` ties a number in the
header to such a name.

Examples
--------
>>> import numpy as np
>>> from dataclasses import dataclass
>>> @dataclass(frozen=True, eq=False)
... class Mixture(State):
...     weights: np.ndarray = array_field("k", low=0, high=1)
...     means: np.ndarray = array_field("k", "n_features")
...     n_iter: int = array_field(kind="i", low=0, default=0)
>>> arrays = Mixture(np.full(2, 0.5), np.eye(2), 7).to_arrays("mixture")
>>> sorted(arrays)
['mixture.means', 'mixture.n_iter', 'mixture.weights']
>>> Mixture.from_arrays(arrays, "mixture").n_iter
7
>>> Mixture.from_arrays({**arrays, "mixture.weights": np.ones(3)}, "mixture")
Traceback (most recent call last):
    ...
ValueError: `mixture.means` must have k = 3 numbers along axis 0, and has 2
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: How Python numbers and tuples of them are written, by the `kind` of a field; arrays are written
#: as they are.
_DTYPES = {"f": np.float64, "i": np.int64}


def array_field(
    *shape: str | None,
    rule: Rule | None = None,
    default: Any = MISSING,
    as_tuple: bool = False,
    **limits: Any,
) -> Any:
    """Declare a field by the name of the size along each axis; a field without axes is a number or
    a text.

    Parameters
    ----------
    *shape : str or None
        The name of the size along each axis; None stands for any size. Fields of one file that name
        the same size must agree in it. `State.permuted` permutes axes by this name.
    rule : Rule, optional
        The rule of the field, instead of `odeco._util.state.array` with `shape` and `limits`.
    default : object, optional
        The value of a field that a file does not hold. None is never written.
    as_tuple : bool
        Whether the field is a tuple: of numbers, or of arrays of the same shape.
    **limits : object
        `kind`, `low`, `high` and `nan`, as for `odeco._util.state.array`.
    """
    dtype = _DTYPES.get(limits.get("kind", "f")) if rule is None else None
    rule = array(*shape, **limits) if rule is None else rule
    metadata = {"shape": shape, "rule": rule, "dtype": dtype, "as_tuple": as_tuple}
    if isinstance(default, np.ndarray):  # dataclasses refuse arrays as defaults
        return field(default_factory=lambda: default, metadata=metadata)
    return field(default=default, metadata=metadata)


def arrays_field(
    *shape: str | None, rule: Rule | None = None, as_tuple: bool = False, **limits: Any
) -> Any:
    """Declare a field that is a tuple of arrays, which may differ in size, or with `as_tuple` of
    tuples of numbers.
    """
    metadata = {"rule": array(*shape, **limits) if rule is None else rule, "as_tuple": as_tuple}
    return field(metadata={"members": metadata})


def given_field() -> Any:
    """Declare a field that is not among the arrays: the reader of a file gives it
    (`State.from_arrays(parts=…)`).
    """
    return field(metadata={"given": True})


def part_field(*types: type[State], default: Any = MISSING) -> Any:
    """Declare a field that is another state.

    Of several types, the file names the one that it holds. Without a type, the reader of the file
    says it (`State.from_arrays(parts=…)`).
    """
    return field(default=default, metadata={"types": types})


def parts_field(*types: type[State]) -> Any:
    """Declare a field that is a tuple of states, which may be empty.

    Of several types, the file names that of each state.
    """
    return field(metadata={"types": types, "repeated": True})


@dataclass(frozen=True, eq=False)
class State:
    """Base of frozen dataclasses of arrays, numbers, texts and other states. No array is changed in
    place.
    """

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return the fields as arrays, named by prefix, dot and field. A number is an array without
        axes.
        """
        arrays: dict[str, NDArray[Any]] = {}
        for each in fields(self):
            name = _joined(prefix, each.name)
            value = getattr(self, each.name)
            if "given" in each.metadata:
                continue
            if "members" in each.metadata:
                arrays |= {
                    f"{name}.{number}": np.asarray(member, np.float64)
                    for number, member in enumerate(value)
                }
            elif "repeated" in each.metadata:
                for number, part in enumerate(value):
                    arrays |= _part_arrays(part, f"{name}.{number}", each.metadata["types"])
            elif isinstance(value, State):
                arrays |= _part_arrays(value, name, each.metadata["types"])
            elif value is not None:
                arrays[name] = (
                    value
                    if isinstance(value, np.ndarray)
                    else np.asarray(value, each.metadata.get("dtype"))
                )
        return arrays

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, NDArray[Any]],
        prefix: str,
        sizes: Sizes | None = None,
        parts: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return the state that `to_arrays` wrote; raise `ValueError` unless every field obeys its
        rule.

        Parameters
        ----------
        arrays : mapping
            The arrays of a file. Those whose names do not begin with the prefix are not looked at.
        prefix : str
            The beginning of the names of the fields, before a dot; it may be empty.
        sizes : dict, optional
            The sizes that are known already; sizes that are found are added to it.
        parts : mapping, optional
            The types of parts that are declared without one, and the values of fields that are not
            among the arrays, by the names of their fields, at any depth.
        """
        sizes = {} if sizes is None else sizes
        parts = parts or {}
        names = {each.name: _joined(prefix, each.name) for each in fields(cls)}
        made = cls(
            **{
                each.name: _read(each, arrays, names[each.name], sizes, parts)
                for each in fields(cls)
            }
        )
        made.check()
        return made

    @classmethod
    def is_in(cls, arrays: Mapping[str, NDArray[Any]], prefix: str) -> bool:
        """Return whether arrays hold anything of a state with this prefix."""
        return any(name.startswith(f"{prefix}.") for name in arrays)

    def permuted(self, permutation: Any, axis: str = "k") -> Self:
        """Return the state with every axis of this name permuted, those of its parts included."""
        changed: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, State):
                changed[each.name] = value.permuted(permutation, axis)
            if "repeated" in each.metadata:
                changed[each.name] = tuple(part.permuted(permutation, axis) for part in value)
            for number, name in enumerate(each.metadata.get("shape", ())):
                if name == axis and value is not None:
                    changed[each.name] = changed.get(each.name, value)[
                        (slice(None),) * number + (permutation,)
                    ]
        return replace(self, **changed)


def _part_arrays(part: State, name: str, types: tuple[type[State], ...]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a part, with the name of its type if there are several."""
    arrays = part.to_arrays(name)
    if len(types) > 1:
        arrays[f"{name}.type"] = np.array(type(part).__name__)
    return arrays


def check_names(arrays: Mapping[str, NDArray[Any]], states: Mapping[str, State | None]) -> None:
    """Raise `ValueError` if arrays hold a name that none of the states, given by their prefixes,
    would write.
    """
    known = {
        name
        for prefix, state in states.items()
        if state is not None
        for name in state.to_arrays(prefix)
    }
    foreign = sorted(arrays.keys() - known)
    require(not foreign, f"it has an unknown {foreign[0][:40]!r}" if foreign else "")


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _read(
    each: Field[Any],
    arrays: Mapping[str, NDArray[Any]],
    name: str,
    sizes: Sizes,
    parts: Mapping[str, Any],
) -> Any:
    """Return one field from arrays, or its default if nothing of it is there."""
    if "given" in each.metadata:
        return parts[each.name]
    if "members" in each.metadata:
        return _read_members(each.metadata["members"], arrays, name, sizes)
    if "types" in each.metadata:
        types = each.metadata["types"] or (parts[each.name],)
        if "repeated" in each.metadata or State.is_in(arrays, name) or not fields(types[0]):
            return _read_part(
                types, arrays, name, sizes, parts, repeated="repeated" in each.metadata
            )
    elif name in arrays:
        value = arrays[name]
        each.metadata["rule"](value, name, sizes)
        if each.metadata["as_tuple"]:
            return tuple(value.tolist() if value.ndim == 1 else value)
        return value if value.ndim else value.item()
    if each.default_factory is not MISSING:
        return each.default_factory()
    require(each.default is not MISSING, f"it has no {name!r}")
    return each.default


def _read_part(
    types: tuple[type[State], ...],
    arrays: Mapping[str, NDArray[Any]],
    name: str,
    sizes: Sizes,
    parts: Mapping[str, Any],
    *,
    repeated: bool,
) -> Any:
    """Return a state of one of the types, or a tuple of them."""
    if repeated:
        members: list[State] = []
        while State.is_in(arrays, f"{name}.{len(members)}"):
            place = f"{name}.{len(members)}"
            members.append(_read_part(types, arrays, place, sizes, parts, repeated=False))
        return tuple(members)
    if len(types) == 1:
        return types[0].from_arrays(arrays, name, sizes, parts)
    written = str(arrays.get(f"{name}.type", ""))
    found = [kind for kind in types if kind.__name__ == written]
    require(
        bool(found), f"`{name}.type` must be one of {', '.join(kind.__name__ for kind in types)}"
    )
    return found[0].from_arrays(arrays, name, sizes, parts)


def _read_members(
    declared: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], name: str, sizes: Sizes
) -> Any:
    """Return a tuple of arrays, or of tuples of numbers."""
    members: list[Any] = []
    while (place := f"{name}.{len(members)}") in arrays:
        declared["rule"](arrays[place], place, sizes)
        members.append(tuple(arrays[place].tolist()) if declared["as_tuple"] else arrays[place])
    return tuple(members)


#: The sizes of one file by their names, as far as they are known.
Sizes: TypeAlias = "dict[str, int]"

#: A rule takes a value, its place and the sizes known so far, and raises `ValueError` if the value
#: breaks it.
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
    """Require an object with exactly these names, those of `optional` or not, each obeying its
    rule.
    """
    known = {**rules, **(optional or {})}

    def check(value: Any, where: str, sizes: Sizes) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"`{where}` must be an object with names")
        missing = sorted(rules.keys() - value.keys())
        foreign = sorted(map(str, value.keys() - known.keys()))
        if missing or foreign:
            text = f"has no {missing[0]!r}" if missing else f"has an unknown {foreign[0][:40]!r}"
            raise ValueError(f"`{where}` {text}" if where else f"it {text}")
        for name, rule in known.items():
            if name in value:
                rule(value[name], f"{where}.{name}" if where else name, sizes)

    return check


def is_texts(value: Any) -> bool:
    """Return whether a value is a dict of texts."""
    return isinstance(value, dict) and all(
        isinstance(each, str) for pair in value.items() for each in pair
    )


def plain_settings(value: Any, where: str, _: Sizes) -> None:
    """Require the parameters of an estimator: an object whose values are numbers, texts, dicts of
    texts, booleans or None.
    """
    if not isinstance(value, dict):
        raise ValueError(f"`{where}` must be an object with names")
    if not all(
        each is None or isinstance(each, bool | int | float | str) or is_texts(each)
        for each in value.values()
    ):
        raise ValueError(f"`{where}` must hold numbers and texts")


def size(name: str) -> Rule:
    """Require a whole number of at least 1, and tie it to the size of this name."""

    def check(value: Any, where: str, sizes: Sizes) -> None:
        whole(1)(value, where, sizes)
        if sizes.setdefault(name, value) != value:
            raise ValueError(f"`{where}` must be {name} = {sizes[name]}, and is {value}")

    return check


def array(
    *shape: str | None,
    kind: str = "f",
    low: float = -math.inf,
    high: float = math.inf,
    nan: bool = False,
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
                    f"`{where}` must have {name} = {sizes[name]} numbers along axis {axis}, and "
                    f"has {length}"
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
