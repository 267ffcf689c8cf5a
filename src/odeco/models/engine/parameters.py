"""Parameters of estimators, declared once: default, constraint, help text and command-line option.

An estimator is a dataclass whose fields are made by `param`. Its signature, the check of its
parameters before a fit and its options of ``odeco learn`` follow from the declaration.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from odeco._util.arguments import (
    check_choice,
    check_count,
    check_norm_bound,
    check_number,
    float_or_auto,
)
from odeco._util.state import is_texts
from odeco.privacy.calibration import check_delta, check_epsilon


@dataclass(frozen=True)
class Constraint:
    """What a parameter may be.

    Attributes
    ----------
    check : callable
        Takes the name and the value of a parameter; returns the value as the library needs it, or
        raises.
    kind : callable
        Makes a value of its text on the command line.
    choices : tuple of str
        The possible texts, if there are few.
    """

    check: Callable[[str, Any], Any]
    kind: Callable[[Any], Any] = str
    choices: tuple[str, ...] = ()


def param(
    default: Any,
    constraint: Constraint | None = None,
    text: str = "",
    *,
    option: str = "",
    positional: bool = False,
) -> Any:
    """Declare a parameter of an estimator.

    Parameters
    ----------
    default : object
        Its default.
    constraint : Constraint, optional
        What it may be; by default anything.
    text : str
        What it is, for the command line.
    option : str
        Its option on the command line, such as ``"--covariance"``; by default it has none.
    positional : bool
        Whether it may be passed without its name.
    """
    metadata = {"constraint": constraint or ANYTHING, "help": text, "option": option}
    return field(default=default, kw_only=not positional, metadata=metadata)


def checked_parameters(estimator: Any) -> dict[str, Any]:
    """Return all parameters of an estimator as the library needs them, or raise."""
    return {
        each.name: each.metadata["constraint"].check(each.name, getattr(estimator, each.name))
        for each in fields(estimator)
    }


ANYTHING = Constraint(lambda _, value: value)


def count(low: int = 1, high: int | None = None) -> Constraint:
    """Require a whole number."""
    return Constraint(lambda name, value: check_count(name, value, low, high), int)


def count_or_flag() -> Constraint:
    """Require a whole number, True for one, or False for none."""

    def check(name: str, value: Any) -> int:
        return int(value) if isinstance(value, bool) else check_count(name, value, 0)

    return Constraint(check, int)


def number(low: float = 0.0, high: float = sys.float_info.max) -> Constraint:
    """Require a finite number in a range, its ends included."""
    return Constraint(lambda name, value: check_number(name, value, low, high, closed=True), float)


def _check_kinds(name: str, value: Any) -> dict[str, str] | None:
    """Return the kinds that a user gives to columns; they are compared with a table later."""
    if value is None:
        return None
    is_mapping = isinstance(value, Mapping)
    if not is_mapping or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise ValueError(
            f"`{name}` must be a dict of the names of columns and their kinds. Got {value!r}. "
            "Pass for instance {'visits': 'count', 'zip': 'category'}."
        )
    return dict(value)


#: Kinds of columns, by their names.
COLUMN_KINDS = Constraint(_check_kinds)


def choice(*choices: str) -> Constraint:
    """Require one of some texts."""

    def check(name: str, value: Any) -> str:
        check_choice(name, value, choices)
        return str(value)

    return Constraint(check, str, choices)


def optional(constraint: Constraint) -> Constraint:
    """Require None, or what another constraint requires."""
    check = constraint.check
    return Constraint(
        lambda name, value: None if value is None else check(name, value),
        constraint.kind,
        constraint.choices,
    )


def or_auto(check: Callable[[str, Any], Any], kind: Callable[[Any], Any] = str) -> Constraint:
    """Require "auto", or what a check requires."""
    return Constraint(
        lambda name, value: (
            value if isinstance(value, str) and value == "auto" else check(name, value)
        ),
        kind,
    )


def n_components(default: Any) -> Any:
    """Declare the number of components."""
    return param(default, or_auto(check_count), option="-k", positional=True)


def _check_jobs(name: str, value: Any) -> int | None:
    return None if value is None or value == -1 else check_count(name, value)


_STANDARDIZE: dict[str, Any] = {"auto": "auto", "yes": True, "no": False}


def _check_standardize(name: str, value: Any) -> Any:
    if not isinstance(value, bool | np.bool_) and not (isinstance(value, str) and value == "auto"):
        raise ValueError(
            f"`{name}` must be True, False or 'auto'. Got {value!r}. Pass one of these."
        )
    return value if isinstance(value, str) else bool(value)


#: Whether columns are standardised (`odeco.models.engine.rows`).
STANDARDIZE = Constraint(_check_standardize, _STANDARDIZE.__getitem__, tuple(_STANDARDIZE))

#: The number of threads: None and −1 for all cores, 1 for one.
N_JOBS = Constraint(_check_jobs, int)

EPSILON = optional(Constraint(lambda _, value: check_epsilon(value), float))
DELTA = optional(Constraint(lambda _, value: check_delta(value), float))
NORM_BOUND = optional(or_auto(lambda _, value: check_norm_bound(value), float_or_auto))
RELATION = choice("replace", "add_remove")


def _check_path(name: str, value: Any) -> Any:
    if isinstance(value, str | os.PathLike):
        return value
    raise TypeError(f"`{name}` must be a path. Got {value!r}. Pass a str or a pathlib.Path.")


PATH = Constraint(_check_path)


def plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters as a file can hold them: paths as texts. A context may hold arrays, lists
    and dicts.
    """
    return {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in parameters.items()
        if not hasattr(value, "shape") and (is_texts(value) or not isinstance(value, list | dict))
    }
