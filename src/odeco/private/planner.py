"""Before any data is touched: which arguments go together, and the plan of every mechanism from public numbers.

An argument that would have no effect is refused by its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from odeco._util.arguments import check_choice
from odeco._util.threads import one_blas_thread
from odeco.privacy.holders.entries import EntryLevel
from odeco.privacy.holders.protocol import UNITS, Unit
from odeco.privacy.holders.records import RecordLevel
from odeco.privacy.plan import MechanismPlan, PrivacyPlan, Prospect
from odeco.private.mechanisms import MECHANISMS
from odeco.private.mechanisms.mechanism import Setting
from odeco.tensors.dense import DenseTensor

#: The value of `mechanism` that leaves the choice to the plan.
AUTO = "auto"

#: Budgets to compare with, as multiples of the one that is planned.
_MULTIPLES = (0.5, 1.0, 2.0, 4.0)

#: Arguments that only some units use, with these units.
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
    """Return a holder as it is, and make one of a tensor or rows with these settings; None counts as not given."""
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
            f"groups{'' if 'groups' in given else '=None'}. Pass one label per row, or unit='record'."
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


def plan_all(
    setting: Setting,
    unit: Unit,
    neighbour_relation: str,
    *,
    n_units: int | None = None,
    norm_bound: float | None = None,
) -> PrivacyPlan:
    """Return the plan of every mechanism that can be used, smallest signal first, and what other budgets would find."""
    ranked = _ranked(setting)
    public = (setting.epsilon, setting.delta, setting.mu, unit, neighbour_relation, setting.dimension)
    known = (setting.search.n_components, ranked, _best(ranked).mechanism)
    prospects = tuple(_prospect(setting, multiple * setting.epsilon) for multiple in _MULTIPLES)
    return PrivacyPlan(*public, *known, prospects, setting.order, n_units, norm_bound)


def _prospect(setting: Setting, epsilon: float) -> Prospect:
    """Return what another budget would find."""
    plans = _ranked(replace(setting, epsilon=epsilon))
    return Prospect(epsilon, {plan.mechanism: plan.smallest_signal for plan in plans})


def choose(mechanism: str, setting: Setting) -> MechanismPlan:
    """Return the plan of a mechanism, or that of the best for "auto"; raise if the mechanism cannot be used."""
    if mechanism == AUTO:
        return _best(_ranked(setting))
    if refusal := MECHANISMS[mechanism].refusal(setting):
        others = sorted(each.name for each in MECHANISMS.values() if not each.refusal(setting))
        raise ValueError(f"{refusal} Take {listed(others)}.")
    with one_blas_thread():  # matrices this small are slowed down by threads that wait for each other
        return MECHANISMS[mechanism].plan(setting)


def _ranked(setting: Setting) -> tuple[MechanismPlan, ...]:
    with one_blas_thread():
        plans = [mechanism.plan(setting) for mechanism in MECHANISMS.values() if not mechanism.refusal(setting)]
    return tuple(sorted(plans, key=lambda plan: plan.smallest_signal))


def _best(ranked: tuple[MechanismPlan, ...]) -> MechanismPlan:
    """Return the first that needs no remark: it assumes nothing further about the data."""
    return next(plan for plan in ranked if not plan.remark)
