"""Which arguments go with which unit, mechanism and holder. One that would do nothing is refused by its name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odeco._util.arguments import check_choice
from odeco.privacy.holders.entries import EntryLevel
from odeco.privacy.holders.protocol import UNITS, Unit
from odeco.privacy.holders.records import RecordLevel
from odeco.private.mechanisms import MECHANISMS
from odeco.tensors.dense import DenseTensor

#: The choice that leaves the mechanism to the plan.
AUTO = "auto"

_UNITS_THAT_USE = {
    **dict.fromkeys(("norm_bound", "order", "n_units", "nonnegative"), ("record", "user")),
    **dict.fromkeys(("entry_change", "entry_limit"), ("entry",)),
}


def check_used_by_unit(unit: Unit, given: dict[str, Any]) -> None:
    """Raise if an argument is given that this unit does not use; None counts as not given."""
    for name, users in _UNITS_THAT_USE.items():
        _check_goes_with(name, given.get(name), "unit", unit, users)


def check_mechanism(mechanism: str, calibration: str, given: dict[str, Any]) -> None:
    """Raise unless the mechanism is known and uses what is given; "auto" may choose one that iterates."""
    check_choice("mechanism", mechanism, (AUTO, *MECHANISMS))
    check_choice("calibration", calibration, ("exact", "paper"))
    for name, value in given.items():
        _check_goes_with(name, value, "mechanism", mechanism, [AUTO, *_mechanisms_that_use(name)])
    users = _mechanisms_that_use("calibration")
    if calibration == "paper" and mechanism not in users:
        raise ValueError(
            f"calibration='paper' must go with mechanism={listed(users)}. Got {mechanism!r}. Leave it out."
        )


def default_neighbours(unit: Unit, mechanism: str) -> str:
    """Return the neighbour relation that is taken unless another is given."""
    if unit != "entry":
        return "replace"
    return MECHANISMS[mechanism].entry_neighbours if mechanism in MECHANISMS else "distinct"


def as_holder(data: Any, mechanism: str, settings: dict[str, Any]) -> EntryLevel | RecordLevel:
    """Return a holder as it is, and a tensor or rows held as the settings say; None counts as not given."""
    given = {name: value for name, value in settings.items() if value is not None}
    if isinstance(data, EntryLevel | RecordLevel):
        for name in given:
            raise ValueError(
                f"`{name}` must not be given beside a holder of the data, which fixes it. Got `{name}` and "
                f"{'an' if isinstance(data, EntryLevel) else 'a'} {type(data).__name__}. Leave it out."
            )
        return data
    unit = given.pop("unit", "entry")
    check_choice("unit", unit, UNITS)
    if (unit == "user") != ("groups" in given):
        raise ValueError(
            f"`groups` must be given for unit='user' and for no other. Got unit={unit!r} and "
            f"groups{'' if 'groups' in given else '=None'}. Pass one label a row, or unit='record'."
        )
    check_used_by_unit(unit, given)
    given.setdefault("neighbour_relation", default_neighbours(unit, mechanism))
    if unit == "entry":
        return EntryLevel(data.entries if isinstance(data, DenseTensor) else data, **given)
    return RecordLevel(data, **{"norm_bound": None, **given})  # None is refused there, with what to do


def _mechanisms_that_use(argument: str) -> list[str]:
    return [each.name for each in MECHANISMS.values() if argument in each.uses]


def _check_goes_with(name: str, value: Any, kind: str, chosen: str, users: Iterable[str]) -> None:
    if value is not None and chosen not in users:
        raise ValueError(
            f"`{name}` must go with {kind}={listed(users)}. Got {name}={value!r} with {kind}={chosen!r}. "
            f"Leave it out, or choose another {kind}."
        )


def listed(names: Iterable[str]) -> str:
    """Return names as in 'a', 'b' or 'c'."""
    *others, last = map(repr, names)
    return f"{', '.join(others)} or {last}" if others else last
