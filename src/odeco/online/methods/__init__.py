"""The methods of streams, in the order in which they are tried if the user leaves the choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from odeco._util.arguments import (
    check_choice,
    check_count,
    check_forgetting,
    check_number,
    check_order,
)
from odeco.online.methods.core import Core
from odeco.online.methods.drift import Drift
from odeco.online.methods.entries import WholeMoment
from odeco.online.methods.fourth import FourthMoment
from odeco.online.methods.open import MOMENTS
from odeco.online.methods.power import Power
from odeco.online.methods.private import PrivateMoment, PrivatePlan, PrivatePower, PrivateSpan
from odeco.online.solver import Plan, Where

Method = Literal["auto", "core", "power", "entries"]

DEFAULT_METHOD: Method = "auto"

NAMES: tuple[Method, ...] = get_args(Method)

METHODS: tuple[type[Plan], ...] = (
    FourthMoment,
    WholeMoment,
    Core,
    Drift,
    Power,
    PrivateMoment,
    PrivateSpan,
    PrivatePower,
)


#: How the value of each argument is checked, whatever the method.
CHECKS: dict[str, Callable[[Any], Any]] = {
    "n_components": lambda value: value == "auto" or check_count("n_components", value),
    "order": check_order,
    "moment": lambda value: check_choice("moment", value, MOMENTS),
    "memory": lambda value: check_number("memory", value, 0, 2**40),
    "forgetting": check_forgetting,
    "n_passes": lambda value: check_count("n_passes", value),
    "batch_size": lambda value: check_count("batch_size", value),
    "n_restarts": lambda value: check_count("n_restarts", value),
    "n_iterations": lambda value: check_count("n_iterations", value),
}


def plans(name: str, given: Mapping[str, Any]) -> list[Plan]:
    """Return the plans that such arguments allow, of the method with this name, or of all for
    ``"auto"``.
    """
    check_choice("method", name, NAMES)
    private = bool(given.keys() & PrivatePlan.guarantees)
    named = [
        method
        for method in METHODS
        if method.private == private
        and (method.name == name or (name == "auto" and method.automatic))
    ]
    usable = [method for method in named if not method.unused(given)]
    if not usable:
        raise _unused_error(name, named, given)
    for argument, check in CHECKS.items():
        if argument in given:
            check(given[argument])
    complete = [method for method in usable if not method.missing(given)]
    if not complete:
        raise usable[0].missing_error(given, name)
    made = []
    faults = []
    for method in complete:
        try:
            made.append(method(**given))
        except ValueError as error:
            faults.append(error)
    if not made:
        raise faults[-1]
    return made


def _unused_error(name: str, named: list[type[Plan]], given: Mapping[str, Any]) -> ValueError:
    """Return the error for an argument that none of the methods of this name takes with the
    others.
    """
    nearest = min(named, key=lambda method: len(method.unused(given)))
    argument = nearest.unused(given)[-1]
    users = [
        method.name for method in METHODS if argument in method.arguments() and method.name != name
    ]
    remedy = f", or pass method={users[0]!r}" if users else ""
    where = " in a private run" if nearest.private else ""
    return ValueError(
        f"`{argument}` is not used by method={name!r}{where}. Got {given[argument]!r}. Leave it "
        f"out{remedy}."
    )


def plan_for(made: list[Plan], where: Where, *, asked: bool) -> tuple[Plan, str]:
    """Return the first plan without an objection to such rows, and why it was taken; the first if
    it was asked for.
    """
    if asked:
        return made[0].bound(where), "as given"
    reason = None
    for plan in made:
        objection = plan.objection(where)
        if objection is None:
            return plan.bound(where), reason or plan.reason
        reason = objection
    return made[-1].bound(where), reason or made[-1].reason
