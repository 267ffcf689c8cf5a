"""Decompose a tensor, or the moment of rows, under differential privacy; or plan that from public numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

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
from odeco.decompose.result import PrivateDecomposition
from odeco.display.progress import following
from odeco.power.power_method import Schedule
from odeco.privacy.calibration import check_delta, check_delta_for, check_epsilon
from odeco.privacy.holders.protocol import RELATIONS, UNITS, Unit
from odeco.privacy.holders.records import RecordLevel
from odeco.privacy.ledger import Ledger
from odeco.privacy.ledger_file import LedgerFile, as_ledger
from odeco.privacy.noise import NoiseSource, SecureNoise
from odeco.privacy.plan import PrivacyPlan
from odeco.privacy.release import Releaser, Releases
from odeco.privacy.report import PrivacyReport
from odeco.privacy.sensitivity import EntrySensitivities, RecordSensitivities
from odeco.privacy.sources import PrivateRows
from odeco.private.mechanisms import MECHANISMS
from odeco.private.mechanisms.mechanism import Calibration, Setting, Task
from odeco.private.planner import (
    AUTO,
    as_holder,
    check_mechanism,
    check_used_by_unit,
    choose,
    default_neighbours,
    plan_all,
)
from odeco.tensors.components import Components

#: Default number of iterations of a private power method. Each costs budget, and under noise more than ten gain
#: nothing.
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
    norm_bound: float | None = None,
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
) -> PrivateDecomposition:
    """Decompose under (ε, δ)-differential privacy.

    An argument that the unit, the mechanism or the holder of the data does not use is refused.

    Parameters
    ----------
    data : array d x d x d, rows n x d, EntryLevel or RecordLevel
        A symmetric tensor (``unit="entry"``), or rows of data, dense or CSR, of which the moment (1/n) Σ x⊗ᵖ is
        decomposed; rows in files are opened by `odeco.privacy.open_private`. NaN and infinities count as zero, a whole
        row at a time, without a message. A holder of either fixes `unit`, `norm_bound`, `groups`, `order`,
        `neighbour_relation`, `entry_change`, `entry_limit` and `nonnegative`.
    n_components : int
        The number k of components. Fixed in advance: the data must not choose it. `PrivateDecomposition.clear` says
        afterwards which of them are more than noise.
    epsilon, delta : float
        The guarantee: ε > 0, and δ between 0 and 1, below 1/n for n records or users.
    unit : {"entry", "record", "user"}
        Whom the guarantee protects: one entry of the tensor (the default), one row, or all rows of one user (see
        `groups`).
    mechanism : str
        The name of one of the `MECHANISMS`, whose ``summary`` says what it releases; or ``"auto"``, which
        takes the one that `plan_privacy` predicts to need least signal, of those that assume nothing further.
    calibration : {"exact", "paper"}
        How ``"wang2016"`` scales its noise: by exact accounting, or by line 2 of the paper's Algorithm 3, which makes
        it some six times as large.
    norm_bound : float
        For rows: the largest Euclidean norm; longer ones are scaled down. Required, and to be known without looking at
        the data.
    groups : array of n labels
        For ``unit="user"``: whose row each is; public. Every user counts once, with the mean over own rows.
    n_restarts, n_iterations : int, optional
        The paper's L and R for ``"wang2016"`` and ``"joint"``; by default L = 2k ln k, from 10 to 64, and R = 10.
    order : int
        For rows: the order p of the moment, 3 by default. (That of a tensor is its number of axes.) Orders above 3 are
        for ``"wang2016"`` and ``"joint"`` only.
    neighbour_relation : str, optional
        For entries ``"distinct"`` (one entry changes by `entry_change`) or ``"literal"`` (the paper's, by which a
        diagonal entry changes six times as far); by default the paper's for ``"wang2016"``. For rows ``"replace"``
        (default) or ``"add_remove"``.
    entry_change, entry_limit : float
        For tensors: how far a neighbour may move an entry, 1 by default, and where entries are cut; see `EntryLevel`.
    nonnegative : bool, optional
        For rows: cut negative numbers to 0, which makes to replace a row cost √2 instead of 2 at odd orders.
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

    Returns
    -------
    PrivateDecomposition
        Nothing in it is computed from the data but through noise.

    Notes
    -----
    Deviations from Algorithm 3 with ``mechanism="wang2016"``: deflation is arithmetic on answers, which is the same;
    value and noise are rounded to a common grid, 2⁻³⁰ of the noise; the rounding errors of the exact answers are part
    of the sensitivity, some 10⁻³ of it at most; a ledger checks that (ε, δ) holds, so that with the paper's calibration
    an ε for which it does not (above some hundreds) is refused.

    What is not protected: the shape of the data, the number of rows, who owns which (`groups`), k, L, R, the bounds;
    how long a run takes; the memory of this process. Every call has a budget of its own: several calls on the same data
    add up, as the squares of their μ. Give them one `ledger`, and the limit of that holds for all of them.

    References
    ----------
    Wang and Anandkumar, *Online and Differentially-Private Tensor Decomposition*, 2016, arXiv:1606.06237.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.private import decompose_privately
    >>> rows = np.repeat(np.eye(5)[:2], 5000, axis=0)
    >>> result = decompose_privately(rows, 2, epsilon=1.0, delta=1e-6, unit="record", norm_bound=1.0, rng=0)
    >>> result.weights.round(1), result.clear, result.privacy.mechanism
    (array([0.5, 0.5]), array([ True,  True]), 'input')
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    check_mechanism(mechanism, calibration, {"n_restarts": n_restarts, "n_iterations": n_iterations})
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
    with np.errstate(all="ignore"):  # a warning about the data would be an answer without noise
        holder = as_holder(data, mechanism, settings)
    if holder.unit != "entry":
        check_delta_for(delta, holder.n_units, holder.unit)
    search = _search(holder.dimension, n_components, n_restarts, n_iterations)
    setting = Setting(holder.dimension, holder.order, search, epsilon, delta, holder.sensitivities, calibration)
    planned = choose(mechanism, setting)
    own = Ledger(setting.mu, within=None if ledger is None else as_ledger(ledger))
    with following(callback, progress) as report_to:

        def report(what: str) -> None:
            if report_to is not None:
                report_to(Releases(what, sum(charge.count for charge in own.charges), planned.n_releases))

        releaser = Releaser(own, SecureNoise() if noise is None else noise, callback=report)
        found = MECHANISMS[planned.mechanism].run(Task(holder, setting, planned, releaser, generator))
    guarantee = PrivacyReport.of(
        releaser,
        epsilon=epsilon,
        delta=delta,
        unit=holder.unit,
        neighbours=holder.neighbours,
        mechanism=planned.mechanism if calibration == "exact" else f"{planned.mechanism}, paper's calibration",
    )
    first = found.components.largest_first()
    components = Components(found.components.weights[first], found.components.vectors[:, first], holder.order)
    noise_in_each = (found.weight_errors[first], found.angle_errors[first], found.noise_floors[first])
    bound = holder.norm_bound if isinstance(holder, RecordLevel) else None
    result = PrivateDecomposition(components, *noise_in_each, guarantee, norm_bound=bound)
    return result.with_names(data.columns if isinstance(data, PrivateRows) else None)  # a file's header is public


def plan_privacy(
    *,
    dimension: int,
    n_components: int,
    epsilon: float,
    delta: float,
    unit: Unit = "entry",
    n_units: int | None = None,
    norm_bound: float | None = None,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    order: int | None = None,
    neighbour_relation: str | None = None,
    entry_change: float | None = None,
    nonnegative: bool | None = None,
) -> PrivacyPlan:
    """Say, without any data, what each mechanism would release, with how much noise, and what it would still find.

    Parameters
    ----------
    dimension : int
        The d of the tensor, or the number of columns of the rows.
    n_units : int
        The number of records or users. For entries it follows from d, and is not given.
    order : int
        The order p of the tensor, 3 by default.
    n_components, epsilon, delta, unit, norm_bound, n_restarts, n_iterations, neighbour_relation, entry_change
        As for `decompose_privately`.
    nonnegative : bool, optional
        As for `decompose_privately`.

    Returns
    -------
    PrivacyPlan
        ``str`` says it in plain words and tables, `to_json` the same for programs, `best` what ``mechanism="auto"``
        would take.

    Examples
    --------
    >>> from odeco.private import plan_privacy
    >>> plan_privacy(dimension=100, n_components=3, epsilon=1.0, delta=1e-6).best
    'input'
    """
    check_choice("unit", unit, UNITS)
    bounds = {"norm_bound": norm_bound, "entry_change": entry_change, "nonnegative": nonnegative}
    check_used_by_unit(unit, {"n_units": n_units, **bounds})
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    d = check_count("dimension", dimension)
    search = _search(d, n_components, n_restarts, n_iterations)
    relation = default_neighbours(unit, AUTO) if neighbour_relation is None else neighbour_relation
    p = check_count("order", MINIMUM_ORDER if order is None else order, MINIMUM_ORDER)
    check_choice("neighbour_relation", relation, ("distinct", "literal") if unit == "entry" else tuple(RELATIONS))
    sensitivities: EntrySensitivities | RecordSensitivities
    if unit == "entry":
        change = 1.0 if entry_change is None else check_number("entry_change", entry_change, 0, math.inf)
        sensitivities = EntrySensitivities(relation == "literal", p, change)
    else:
        n_units = check_count("n_units", n_units)
        check_delta_for(delta, n_units, unit)
        known = (check_norm_bound(norm_bound), n_units, p)
        sensitivities = RecordSensitivities(*known, replace=relation == "replace", nonnegative=bool(nonnegative))
    setting = Setting(d, p, search, epsilon, delta, sensitivities)
    return plan_all(setting, unit, relation, n_units=n_units, norm_bound=norm_bound)


def _search(dimension: int, n_components: int, n_restarts: int | None, n_iterations: int | None) -> Schedule:
    """Return the paper's k, L and R, with the defaults of a private run."""
    iterations = DEFAULT_ITERATIONS if n_iterations is None else n_iterations
    return Schedule.default(dimension, n_components, n_restarts=n_restarts, n_iterations=iterations)
