"""From public numbers to the plan of every mechanism, and to the one that a run takes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

from odeco._util.arguments import check_choice, check_norm_bound, check_number
from odeco._util.threads import one_blas_thread
from odeco.privacy import sensitivity
from odeco.privacy.holders.entries import EntryLevel
from odeco.privacy.holders.protocol import Unit
from odeco.privacy.holders.records import RecordLevel
from odeco.privacy.plan import MechanismPlan, PrivacyPlan, Prospect
from odeco.private.arguments import AUTO, listed
from odeco.private.mechanisms import MECHANISMS
from odeco.private.mechanisms.mechanism import Sensitivities, Setting

#: Budgets to compare with, as multiples of the one that is planned.
_MULTIPLES = (0.5, 1.0, 2.0, 4.0)


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


def holder_sensitivities(holder: EntryLevel | RecordLevel) -> Sensitivities:
    """Return what the public numbers of a holder say: its shape and bounds, never its values."""
    if isinstance(holder, EntryLevel):
        return entry_sensitivities(holder.neighbour_relation, holder.entry_change, holder.order)
    known = (holder.neighbour_relation, holder.norm_bound, holder.n_units, holder.order)
    return row_sensitivities(*known, nonnegative=holder.nonnegative)


def entry_sensitivities(neighbour_relation: str, entry_change: float, order: int) -> Sensitivities:
    """Return how far the answers of a tensor move when one entry changes."""
    check_choice("neighbour_relation", neighbour_relation, ("distinct", "literal"))
    change = check_number("entry_change", entry_change, 0, math.inf)
    literal = neighbour_relation == "literal"
    image = sensitivity.literal_image if literal else sensitivity.distinct_entry_image
    core = sensitivity.literal_core if literal else sensitivity.distinct_entry_core
    return Sensitivities(
        image=lambda block: change * image(block, order),
        core=lambda basis: change * core(basis),
        slab=lambda basis: change * core(basis, open_axis=True),
        entries=math.sqrt(2) * change,
        moment=None,
    )


def row_sensitivities(
    neighbour_relation: str, norm_bound: float | None, n_units: int, order: int, *, nonnegative: bool
) -> Sensitivities:
    """Return how far the answers of the moment of rows move when one row, or one user's, changes."""
    check_choice("neighbour_relation", neighbour_relation, ("replace", "add_remove"))
    bound = check_norm_bound(norm_bound)
    replace = neighbour_relation == "replace"
    known: Any = {"norm_bound": bound, "n_records": n_units, "replace": replace, "nonnegative": nonnegative}
    return Sensitivities(
        image=partial(sensitivity.record_image, order=order, **known),
        core=partial(sensitivity.record_core, order=order, **known),
        slab=partial(sensitivity.record_core, order=order, open_axis=True, **known),
        entries=sensitivity.record_entries(order=order, **known) / math.sqrt(3),
        # A component of weight λ in the moment of order p has at least λ/B^(p−2) in the second, as |⟨x, v⟩| ≤ B.
        moment=sensitivity.record_entries(order=2, **known) * bound ** (order - 2),
    )
