"""The private mechanisms, and the choice among them. To add one, write its class and add a line to
`MECHANISMS`.
"""

from collections.abc import Iterable

from odeco._util.threads import one_blas_thread
from odeco.privacy.holders.norms import AUTO
from odeco.privacy.plan import MechanismPlan
from odeco.private.mechanisms.entries import MOST_COLUMNS, Core, Input, Subspace
from odeco.private.mechanisms.iterations import Joint, Wang2016
from odeco.private.mechanisms.mechanism import Calibration, Mechanism, Setting, Task

#: Every mechanism by its name. Where two need the same signal, "auto" takes the first of them.
MECHANISMS: dict[str, Mechanism] = {
    each.name: each for each in (Wang2016(), Joint(), Input(), Core(), Subspace())
}

__all__ = [
    "MECHANISMS",
    "Calibration",
    "Mechanism",
    "Setting",
    "Task",
    "best",
    "choose",
    "listed",
    "mechanisms_that_use",
    "ranked",
]


def choose(mechanism: str, setting: Setting) -> MechanismPlan:
    """Return the plan of a mechanism, or that of the best for "auto"; raise if the mechanism cannot
    be used.
    """
    if mechanism == AUTO:
        return best(ranked(setting))
    if refusal := MECHANISMS[mechanism].refusal(setting):
        others = sorted(each.name for each in MECHANISMS.values() if not each.refusal(setting))
        raise ValueError(f"{refusal} Take {listed(others)}.")
    with (
        one_blas_thread()
    ):  # matrices this small are slowed down by threads that wait for each other
        return MECHANISMS[mechanism].plan(setting)


def ranked(setting: Setting) -> tuple[MechanismPlan, ...]:
    """Return the plans of all mechanisms that can be used, smallest signal first."""
    with one_blas_thread():
        plans = [
            mechanism.plan(setting)
            for mechanism in MECHANISMS.values()
            if not mechanism.refusal(setting)
        ]
    if not plans:
        raise ValueError(
            f"`n_components` must be at most {setting.dimension} here: more components than "
            f"columns are found in the moment of order 4 of rows, of at most {MOST_COLUMNS} "
            f"columns. Got {setting.search.n_components}."
        )
    return tuple(sorted(plans, key=lambda plan: plan.smallest_signal))


def best(plans: tuple[MechanismPlan, ...]) -> MechanismPlan:
    """Return the first that needs no remark: it assumes nothing further about the data."""
    return next(plan for plan in plans if not plan.remark)


def mechanisms_that_use(argument: str) -> list[str]:
    """Return the names of the mechanisms that take an argument."""
    return [each.name for each in MECHANISMS.values() if argument in each.uses]


def listed(names: Iterable[str]) -> str:
    """Return names as in 'a', 'b' or 'c'."""
    *others, last = map(repr, names)
    if others:
        return f"{', '.join(others)} or {last}"
    return last
