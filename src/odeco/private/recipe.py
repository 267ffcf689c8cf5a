"""Decompose a tensor, or the moment of rows, under differential privacy; or plan that from public
numbers.

Before any data is touched, the arguments are checked, and every mechanism is planned from public
numbers. An argument that would have no effect is refused by its name.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from odeco._util.arguments import (
    MINIMUM_ORDER,
    as_generator,
    check_choice,
    check_count,
    check_norm_bound,
    check_number,
)
from odeco._util.types import RngLike
from odeco.cp.subspace_power import largest_rank
from odeco.decompose.result import PrivateDecomposition
from odeco.display.progress import following
from odeco.io.source import is_on_cluster
from odeco.online.dask.requests import cluster_rows
from odeco.power.power_method import Schedule
from odeco.privacy.calibration import check_delta, check_delta_for, check_epsilon, gdp_mu
from odeco.privacy.holders.entries import EntryLevel, with_change
from odeco.privacy.holders.lanes import is_elsewhere
from odeco.privacy.holders.norms import AUTO, RowNorms, is_auto, norms_share, release_bound
from odeco.privacy.holders.protocol import RELATIONS, UNITS, Unit
from odeco.privacy.holders.records import RecordLevel
from odeco.privacy.ledger import Ledger
from odeco.privacy.ledger_file import LedgerFile, as_ledger
from odeco.privacy.noise import NoiseSource, SecureNoise
from odeco.privacy.plan import MechanismPlan, PrivacyPlan, Prospect
from odeco.privacy.release import Releaser, Releases
from odeco.privacy.report import PrivacyReport, warn_if_weak, warn_of_reuse
from odeco.privacy.sensitivity import EntrySensitivities, RecordSensitivities
from odeco.private.mechanisms import MECHANISMS, best, choose, listed, mechanisms_that_use, ranked
from odeco.private.mechanisms.mechanism import Calibration, Setting, Task
from odeco.tensors.components import Components
from odeco.tensors.dense import DenseTensor

#: Budgets to compare with, as multiples of the one that is planned.
_MULTIPLES = (0.5, 1.0, 2.0, 4.0)

#: Arguments that only some units use, with these units.
_UNITS_THAT_USE = {
    **dict.fromkeys(("norm_bound", "order", "n_units", "nonnegative"), ("record", "user")),
    **dict.fromkeys(("entry_change", "entry_limit"), ("entry",)),
}


#: Default number of iterations of a private power method. Each costs budget, and under noise more
#: than ten gain nothing.
DEFAULT_ITERATIONS = 10


def decompose_privately(
    data: Any,
    n_components: int,
    *,
    epsilon: float,
    delta: float,
    unit: Unit | None = None,
    mechanism: str = AUTO,
    calibration: Calibration = "exact",
    norm_bound: float | Literal["auto"] | None = None,
    groups: Any = None,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    order: int | None = None,
    neighbour_relation: str | None = None,
    entry_change: float | None = None,
    entry_limit: float | None = None,
    nonnegative: bool | None = None,
    ledger: Ledger | LedgerFile | str | os.PathLike[str] | None = None,
    rng: RngLike = None,
    callback: Callable[[Releases], object] | None = None,
    progress: bool = False,
    noise: NoiseSource | None = None,
    client: Any = None,
) -> PrivateDecomposition:
    """Decompose under (ε, δ)-differential privacy.

    An argument that the unit, the mechanism or the holder of the data does not use is refused.

    Parameters
    ----------
    data : array d x d x d, rows n x d, EntryLevel or RecordLevel
        A symmetric tensor (``unit="entry"``), or rows of data, dense or CSR, of which the moment
        (1/n) Σ x⊗ᵖ is decomposed; rows in files are opened by `odeco.privacy.open_private`, and
        those of a Dask array or dataframe stay on their cluster. NaN and infinities count as zero,
        a whole row at a time, without a message. A holder of either fixes `unit`, `norm_bound`,
        `groups`, `order`, `neighbour_relation`, `entry_change`, `entry_limit` and `nonnegative`.
    n_components : int
        The number k of components. Fixed in advance: the data must not choose it.
        `PrivateDecomposition.clear` says afterwards which of them are more than noise.
    epsilon, delta : float
        The guarantee: ε > 0, and δ between 0 and 1, below 1/n for n records or users.
    unit : {"entry", "record", "user"}
        Whom the guarantee protects: one entry of the tensor (the default), one row, or all rows of
        one user (see `groups`).
    mechanism : str
        The name of one of the `MECHANISMS`, whose ``summary`` says what it releases; or ``"auto"``,
        which takes the one that `plan_privacy` predicts to need least signal, of those that assume
        nothing further.
    calibration : {"exact", "paper"}
        How ``"wang2016"`` scales its noise: by exact accounting, or by line 2 of the paper's
        Algorithm 3, which makes it some six times as large.
    norm_bound : float or "auto"
        For rows: the largest Euclidean norm; longer ones are scaled down. Required, and to be known
        without looking at the data. ``"auto"`` spends a part of μ², 5 % but for few records, on
        noisy counts of rows by their norm, and takes the bound that balances clipping and noise by
        them (`odeco.privacy.holders.norms`).
    groups : array of n labels
        For ``unit="user"``: whose row each is; public. Every user counts once, with the mean over
        own rows.
    n_restarts, n_iterations : int, optional
        The paper's L and R for ``"wang2016"`` and ``"joint"``; by default L = 2k ln k, from 10 to
        64, and R = 10.
    order : int
        For rows: the order p of the moment, 3 by default. (That of a tensor is its number of axes.)
        Orders above 3 are for ``"wang2016"`` and ``"joint"`` only.
    neighbour_relation : str, optional
        For entries ``"distinct"`` (one entry changes by `entry_change`) or ``"literal"`` (the
        paper's, by which a diagonal entry changes six times as far); by default the paper's for
        ``"wang2016"``. For rows ``"replace"`` (default) or ``"add_remove"``.
    entry_change, entry_limit : float
        For tensors: how far a neighbour may move an entry, 1 by default, and where entries are cut;
        see `EntryLevel`.
    nonnegative : bool, optional
        For rows: cut negative numbers to 0. Replacing a row then costs √2 instead of 2 at odd
        orders.
    ledger : Ledger, LedgerFile or path, optional
        The budget of all runs on these data together. It pays for this run too, or refuses it.
    rng : None, int or numpy.random.Generator
        Draws the starts, which are public. It never touches the noise.
    callback : callable, optional
        Receives a `Releases` after every release. What has been paid for is gone if it raises.
    progress : bool
        Whether to show a progress bar, with rich or tqdm.
    noise : NoiseSource, optional
        For tests: with any source but the default the result says that it is not private.
    client : dask.distributed.Client, optional
        The cluster that reads rows of `open_private`, whose paths must be the same there; for Dask
        collections the client of the process by default. Workers add up rows; releases, noise and
        ledger stay in this process. The answers, and so the releases, are those of one machine to
        the bit, and so is what they cost.

    Returns
    -------
    PrivateDecomposition
        Nothing in it is computed from the data but through noise. If no component stands clear of
        the noise, all weights are 0, and the verdict says so: components of noise would be further
        from the tensor than 0 is. If some stand clear, `PrivateDecomposition.estimate` is the
        answer that noise makes no worse than 0.

    Notes
    -----
    Deviations from Algorithm 3 with ``mechanism="wang2016"``: deflation is arithmetic on answers,
    which is the same; value and noise are rounded to a common grid, 2⁻³⁰ of the noise; the rounding
    errors of the exact answers are part of the sensitivity, some 10⁻³ of it at most; a ledger
    checks that (ε, δ) holds, so that with the paper's calibration an ε for which it does not (above
    some hundreds) is refused.

    What is not protected: the shape of the data, the number of rows, whose each is (`groups`), k,
    L, R, the bounds; how long a run takes; the memory of this process. Every call has a budget of
    its own: several calls on the same data add up, as the squares of their μ. Give them one
    `ledger`, and the limit of that holds for all of them.

    References
    ----------
    Wang and Anandkumar, *Online and Differentially-Private Tensor Decomposition*, 2016,
    arXiv:1606.06237.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.private import decompose_privately
    >>> rows = np.repeat(np.eye(5)[:2], 5000, axis=0)
    >>> result = decompose_privately(
    ...     rows, 2, epsilon=1.0, delta=1e-6, unit="record", norm_bound=1.0, rng=0
    ... )
    >>> result.weights.round(1), result.clear, result.privacy.mechanism
    (array([0.5, 0.5]), array([ True,  True]), 'input')
    """
    epsilon = check_epsilon(epsilon)
    delta = check_delta(delta)
    if client is not None or is_on_cluster(data):
        data = cluster_rows(data, None, private=True, client=client)
    _check_mechanism(
        mechanism, calibration, {"n_restarts": n_restarts, "n_iterations": n_iterations}
    )
    generator = as_generator(rng)
    settings = {
        "unit": unit,
        "norm_bound": norm_bound,
        "groups": groups,
        "order": order,
        "neighbour_relation": neighbour_relation,
        "entry_change": entry_change,
        "entry_limit": entry_limit,
        "nonnegative": nonnegative,
    }
    warn_of_reuse(data, ledger)
    warn_if_weak(gdp_mu(epsilon, delta))
    choose_bound = is_auto(norm_bound) and not isinstance(data, EntryLevel | RecordLevel)
    share = 1.0
    own = Ledger(
        gdp_mu(epsilon, delta), within=as_ledger(ledger, **neighbours_of(data, mechanism, settings))
    )
    n_planned = 1

    def plan_for(dimension: int, order: int, sensitivities: Any) -> tuple[Setting, MechanismPlan]:
        search = _search(dimension, order, n_components, n_restarts, n_iterations)
        setting = Setting(
            dimension, order, search, epsilon, delta, sensitivities, calibration, share
        )
        return setting, choose(mechanism, setting)

    with following(callback, progress) as report_to:

        def report(what: str) -> None:
            if report_to is not None:
                report_to(Releases(what, sum(charge.count for charge in own.charges), n_planned))

        releaser = Releaser(own, SecureNoise() if noise is None else noise, callback=report)
        if choose_bound:
            norms, known = _norms(data, settings)
            check_delta_for(delta, norms.n_units, settings["unit"])
            of_norms = norms_share(norms.n_units, gdp_mu(epsilon, delta))
            share = 1 - of_norms
            planned = plan_for(norms.n_features, known.order, known)[1]
            n_planned = 1 + planned.n_releases
            relation: Any = "replace" if known.replace else "add_remove"
            of_bound = gdp_mu(epsilon, delta) * math.sqrt(of_norms)
            # What clipping takes away is balanced with the weight that the noise hides.
            hidden = planned.smallest_signal
            settings["norm_bound"] = release_bound(
                norms, relation, releaser, of_bound, known.order, hidden
            )
        with np.errstate(all="ignore"):  # a warning about the data would be an answer without noise
            holder = _as_holder(data, mechanism, settings)
        if holder.unit != "entry":
            check_delta_for(delta, holder.n_units, holder.unit)
        setting, planned = plan_for(holder.dimension, holder.order, holder.sensitivities)
        n_planned = planned.n_releases + choose_bound
        found = MECHANISMS[planned.mechanism].run(
            Task(holder, setting, planned, releaser, generator)
        )
    guarantee = PrivacyReport.of(
        releaser,
        epsilon=epsilon,
        delta=delta,
        unit=holder.unit,
        neighbours=holder.neighbours,
        mechanism=planned.mechanism
        if calibration == "exact"
        else f"{planned.mechanism}, paper's calibration",
    )
    first = found.components.largest_first()
    weights = found.components.weights[first]
    angles = found.angle_errors[first]
    floors = found.noise_floors[first]
    if not np.any(np.abs(weights) > floors):  # both are released, or follow from what is
        weights = np.zeros_like(weights)
        angles = np.full_like(angles, math.pi / 2)
    components = Components(weights, found.components.vectors[:, first], holder.order)
    noise_in_each = (found.weight_errors[first], angles, floors)
    bound = holder.norm_bound if isinstance(holder, RecordLevel) else None
    result = PrivateDecomposition(components, *noise_in_each, guarantee, norm_bound=bound)
    names = (
        getattr(data, "columns", None) if is_elsewhere(data) else None
    )  # the header of a file is public
    return result.with_names(names)


def plan_privacy(
    *,
    dimension: int,
    n_components: int,
    epsilon: float,
    delta: float,
    unit: Unit = "entry",
    n_units: int | None = None,
    norm_bound: float | Literal["auto"] | None = None,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    order: int | None = None,
    neighbour_relation: str | None = None,
    entry_change: float | None = None,
    nonnegative: bool | None = None,
) -> PrivacyPlan:
    """Say, without any data, what each mechanism would release, with how much noise, and what it
    would still find.

    Parameters
    ----------
    dimension : int
        The d of the tensor, or the number of columns of the rows.
    n_units : int
        The number of records or users. For entries it follows from d, and is not given.
    order : int
        The order p of the tensor, 3 by default.
    n_components, epsilon, delta, unit, n_restarts, n_iterations, neighbour_relation, entry_change
        As for `decompose_privately`.
    norm_bound : float or "auto"
        As for `decompose_privately`. With ``"auto"`` weights are in units of Bᵖ, the power of the
        bound that the run would choose.
    nonnegative : bool, optional
        As for `decompose_privately`.

    Returns
    -------
    PrivacyPlan
        ``str`` says it in plain words and tables, `to_json` the same for programs, `best` what
        ``mechanism="auto"`` would take.

    Examples
    --------
    >>> from odeco.private import plan_privacy
    >>> plan_privacy(dimension=100, n_components=3, epsilon=1.0, delta=1e-6).best
    'input'
    """
    check_choice("unit", unit, UNITS)
    bounds = {"norm_bound": norm_bound, "entry_change": entry_change, "nonnegative": nonnegative}
    _check_used_by_unit(unit, {"n_units": n_units, **bounds})
    epsilon = check_epsilon(epsilon)
    delta = check_delta(delta)
    d = check_count("dimension", dimension)
    relation = default_neighbours(unit, AUTO) if neighbour_relation is None else neighbour_relation
    p = check_count("order", MINIMUM_ORDER if order is None else order, MINIMUM_ORDER)
    search = _search(d, p, n_components, n_restarts, n_iterations)
    check_choice(
        "neighbour_relation",
        relation,
        ("distinct", "literal") if unit == "entry" else tuple(RELATIONS),
    )
    choose_bound = is_auto(norm_bound)
    sensitivities: EntrySensitivities | RecordSensitivities
    if unit == "entry":
        if entry_change is None:
            change = 1.0
        else:
            change = check_number("entry_change", entry_change, 0, math.inf)
        sensitivities = EntrySensitivities(relation == "literal", p, change)
    else:
        n_units = check_count("n_units", n_units)
        check_delta_for(delta, n_units, unit)
        norm_bound = 1.0 if choose_bound else check_norm_bound(norm_bound)
        known = (norm_bound, n_units, p)
        sensitivities = RecordSensitivities(
            *known, replace=relation == "replace", nonnegative=bool(nonnegative)
        )
    if choose_bound and n_units is not None:
        of_norms = norms_share(n_units, gdp_mu(epsilon, delta))
    else:
        of_norms = 0.0
    setting = Setting(d, p, search, epsilon, delta, sensitivities, share=1 - of_norms)
    return _plan_all(setting, unit, relation, n_units=n_units, norm_bound=norm_bound)


def _search(
    dimension: int, order: int, n_components: int, n_restarts: int | None, n_iterations: int | None
) -> Schedule:
    """Return the paper's k, L and R, with the defaults of a private run; at order 4, k may be
    larger than d.
    """
    iterations = DEFAULT_ITERATIONS if n_iterations is None else n_iterations
    k = n_components
    if order == 4:
        k = check_count("n_components", n_components, 1, max(dimension, largest_rank(dimension, 4)))
    first = min(k, dimension) if order == 4 else k
    search = Schedule.default(dimension, first, n_restarts=n_restarts, n_iterations=iterations)
    return replace(search, n_components=k)


def _check_used_by_unit(unit: Unit, given: dict[str, Any]) -> None:
    """Raise if an argument is given that this unit does not use; None counts as not given."""
    for name, users in _UNITS_THAT_USE.items():
        _check_goes_with(name, given.get(name), "unit", unit, users)


def _check_mechanism(mechanism: str, calibration: str, given: dict[str, Any]) -> None:
    """Raise unless the mechanism is known and uses what is given; "auto" may choose one that
    iterates.
    """
    check_choice("mechanism", mechanism, (AUTO, *MECHANISMS))
    check_choice("calibration", calibration, ("exact", "paper"))
    for name, value in given.items():
        _check_goes_with(name, value, "mechanism", mechanism, [AUTO, *mechanisms_that_use(name)])
    users = mechanisms_that_use("calibration")
    if calibration == "paper" and mechanism not in users:
        raise ValueError(
            f"calibration='paper' must go with mechanism={listed(users)}. Got {mechanism!r}. "
            "Leave it out."
        )


def default_neighbours(unit: Unit, mechanism: str) -> str:
    """Return the neighbour relation that is taken unless another is given."""
    if unit != "entry":
        return "replace"
    if mechanism in MECHANISMS:
        return MECHANISMS[mechanism].entry_neighbours
    return "distinct"


def neighbours_of(data: Any, mechanism: str, settings: dict[str, Any]) -> dict[str, str]:
    """Return the unit and the neighbour relation of a run as ledgers state them, before its data
    are held.
    """
    if isinstance(data, EntryLevel | RecordLevel):
        settings = {
            name: getattr(data, name, None)
            for name in ("unit", "neighbour_relation", "entry_change")
        }
    unit: Unit = settings["unit"] or "entry"
    relation = settings["neighbour_relation"] or default_neighbours(unit, mechanism)
    return {"unit": unit, "neighbours": with_change(relation, settings["entry_change"])}


def _as_holder(data: Any, mechanism: str, settings: dict[str, Any]) -> EntryLevel | RecordLevel:
    """Return a holder as it is, and make one of a tensor or rows with these settings; None counts
    as not given.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if isinstance(data, EntryLevel | RecordLevel):
        for name in given:
            raise ValueError(
                f"`{name}` must not be given beside a holder of the data, which fixes it. Got "
                f"`{name}` and {'an' if isinstance(data, EntryLevel) else 'a'} "
                f"{type(data).__name__}. Leave it out."
            )
        return data
    unit = given.pop("unit", "entry")
    _check_settings(unit, given)
    given.setdefault("neighbour_relation", default_neighbours(unit, mechanism))
    if unit == "entry":
        return EntryLevel(data.entries if isinstance(data, DenseTensor) else data, **given)
    return RecordLevel(
        data, **{"norm_bound": None, **given}
    )  # None is refused there, with what to do


def _check_settings(unit: Unit, given: dict[str, Any]) -> None:
    """Raise if a setting is given that does not go with the unit, or if the users of rows are
    missing.
    """
    check_choice("unit", unit, UNITS)
    if (unit == "user") != ("groups" in given):
        raise ValueError(
            f"`groups` must be given for unit='user' and for no other. Got unit={unit!r} and "
            f"groups{'' if 'groups' in given else '=None'}. Pass one label per row, or "
            "unit='record'."
        )
    _check_used_by_unit(unit, given)


def _norms(data: Any, settings: dict[str, Any]) -> tuple[RowNorms, RecordSensitivities]:
    """Return the holder of rows whose norms will be counted, and their sensitivities for a bound of
    1.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    unit = given.pop("unit", "entry")
    order = given.get("order", MINIMUM_ORDER)
    _check_settings(unit, given)
    relation = given.get("neighbour_relation", default_neighbours(unit, AUTO))
    check_choice("neighbour_relation", relation, tuple(RELATIONS))
    norms = RowNorms(data, given.get("groups"))
    known = (1.0, norms.n_units, check_count("order", order, MINIMUM_ORDER))
    replaced = relation == "replace"
    return norms, RecordSensitivities(
        *known, replace=replaced, nonnegative=bool(given.get("nonnegative"))
    )


def _check_goes_with(name: str, value: Any, kind: str, chosen: str, users: Iterable[str]) -> None:
    if value is not None and chosen not in users:
        raise ValueError(
            f"`{name}` must go with {kind}={listed(users)}. Got {name}={value!r} with "
            f"{kind}={chosen!r}. Leave it out, or choose another {kind}."
        )


def _plan_all(
    setting: Setting,
    unit: Unit,
    neighbour_relation: str,
    *,
    n_units: int | None = None,
    norm_bound: Any = None,
) -> PrivacyPlan:
    """Return the plan of every mechanism that can be used, smallest signal first, and what other
    budgets would find.
    """
    plans = ranked(setting)
    public = (
        setting.epsilon,
        setting.delta,
        gdp_mu(setting.epsilon, setting.delta),
        unit,
        neighbour_relation,
        setting.dimension,
    )
    known = (setting.search.n_components, plans, best(plans).mechanism)
    prospects = tuple(_prospect(setting, multiple * setting.epsilon) for multiple in _MULTIPLES)
    return PrivacyPlan(
        *public, *known, prospects, setting.order, n_units, norm_bound, 1 - setting.share
    )


def _prospect(setting: Setting, epsilon: float) -> Prospect:
    """Return what another budget would find."""
    plans = ranked(replace(setting, epsilon=epsilon))
    return Prospect(epsilon, {plan.mechanism: plan.smallest_signal for plan in plans})
