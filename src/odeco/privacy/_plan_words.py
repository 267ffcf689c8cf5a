"""A plan in plain words: what a run would find, at which price, what more budget would buy, and what the terms mean."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odeco.privacy._plan import PrivacyPlan, Prospect

#: What may happen to whom, in words, by neighbour relation.
_RELATIONS = {
    "replace": "hidden is whether one {unit} is as it is or any other",
    "add or remove": "hidden is whether one {unit} is there or blanked out",
    "distinct": "hidden is one distinct entry, which may change by the entry change",
    "literal": "hidden is one entry as the paper counts them: by it a diagonal entry changes six times as far",
}


def sentences(plan: PrivacyPlan, mechanism: str) -> list[str]:
    """Return two sentences: what will be found from which weight on; what it costs, and what more would buy."""
    signal = plan[mechanism].smallest_signal
    twice = next(each for each in plan.prospects if each.epsilon == 2 * plan.epsilon)
    return [
        _finding(plan, signal),
        f"It spends ε = {plan.epsilon:g} (δ = {plan.delta:g}) of the privacy of every {plan.unit}, once and for all; "
        f"ε = {twice.epsilon:g} would find weights from {twice.smallest_signals[mechanism]:.3g} on.",
    ]


def _finding(plan: PrivacyPlan, signal: float) -> str:
    if plan.largest_weight is None or plan.n_units is None:
        return f"This run finds components with a weight of {signal:.3g} or more, through the noise of privacy."
    if signal > plan.largest_weight:
        return (
            f"This run finds nothing: a weight of {signal:.3g} would be needed, and {plan.unit}s of norm at most "
            f"{plan.norm_bound:g} have none above {plan.largest_weight:.3g}; {_needed(plan, signal):,} {plan.unit}s "
            "would be the fewest to find anything."
        )
    return (
        f"This run finds components with a weight of {signal:.3g} or more, through the noise of privacy: as much as "
        f"{alike(plan, signal):,} of the {plan.n_units:,} {plan.unit}s have if they are alike and of the full norm "
        f"{plan.norm_bound:g}."
    )


def _needed(plan: PrivacyPlan, signal: float) -> int:
    """Return how many units it takes until those that are all alike are found: noise falls as 1/n."""
    return math.ceil((plan.n_units or 0) * signal / (plan.largest_weight or 1))


def alike(plan: PrivacyPlan, signal: float) -> int | None:
    """Return how many units, alike and of the full norm, have this weight; None if there are not so many."""
    number = _needed(plan, signal)
    return number if number <= (plan.n_units or 0) else None


def price_table(plan: PrivacyPlan, mechanism: str) -> list[str]:
    """Return what other budgets would find, line by line."""
    counted = plan.largest_weight is not None
    heading = f"{'epsilon':>9}  {'finds weights from':>18}"
    heading += f"  {f'or so many alike {plan.unit}s':>26}" if counted else ""
    return [heading, *(_price_line(plan, prospect, mechanism, counted=counted) for prospect in plan.prospects)]


def _price_line(plan: PrivacyPlan, prospect: Prospect, mechanism: str, *, counted: bool) -> str:
    signal = prospect.smallest_signals[mechanism]
    line = f"{prospect.epsilon:>9g}  {signal:>18.3g}"
    if counted:
        number = alike(plan, signal)
        line += f"  {'more than there are' if number is None else f'{number:,}':>26}"
    return line + ("  this run" if prospect.epsilon == plan.epsilon else "")


def terms(plan: PrivacyPlan) -> list[str]:
    """Return what the words of the plan mean."""
    weight = "how large a component is"
    if plan.unit != "entry":
        weight = (
            f"of a component v, the mean of ⟨x, v⟩{_POWERS.get(plan.order, f'^{plan.order}')} over all {plan.unit}s x"
        )
    meanings = {
        "weight": f"{weight}; found means a cosine of at least 0.9",
        "epsilon, delta": "what anybody can learn about one of them: the smaller, the less",
        "mu": f"both as one number, {plan.mu:.4g} here; runs on the same data add up as the squares of their mu",
        "releases": "noisy answers that a mechanism gives, which share the budget",
        "noise": "standard deviation of the noise on a number of the first of them",
        plan.neighbours: _RELATIONS[plan.neighbours].format(unit=plan.unit),
    }
    width = max(map(len, meanings))
    return [f"{name:<{width}}  {meaning}" for name, meaning in meanings.items()]


_POWERS = {3: "³", 4: "⁴", 5: "⁵"}
