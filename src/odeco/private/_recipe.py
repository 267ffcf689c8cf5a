"""Decompose a tensor, or the moment of rows, under differential privacy: one recipe, five mechanisms."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from odeco._arguments import MINIMUM_ORDER, as_generator, check_choice, check_count, check_n_components
from odeco._types import RngLike
from odeco.components import Components
from odeco.privacy import (
    DataHolder,
    EntryLevel,
    Found,
    Ledger,
    NoiseSource,
    PrivacyPlan,
    PrivacyReport,
    RecordLevel,
    Releaser,
    SecureNoise,
    check_delta,
    check_delta_for,
    check_epsilon,
    gdp_mu,
    noise_multiplier,
    paper_noise_multiplier,
)
from odeco.private._mechanisms import (
    by_core,
    by_input_perturbation,
    by_joint_releases,
    by_second_moment,
    by_separate_releases,
)
from odeco.private._planner import Unit, core_widths, plan_mechanisms
from odeco.result import PrivateDecomposition
from odeco.search import Plan
from odeco.tensors import DenseTensor

Mechanism = Literal["auto", "wang2016", "joint", "input", "core", "subspace"]
MECHANISMS = ("auto", "wang2016", "joint", "input", "core", "subspace")
#: Iterations of a private power method unless told: each costs budget, and under noise ten get as far as any.
DEFAULT_ITERATIONS = 10


def decompose_privately(
    data: Any,
    n_components: int,
    *,
    epsilon: float,
    delta: float,
    unit: Unit = "entry",
    mechanism: Mechanism = "auto",
    calibration: Literal["exact", "paper"] = "exact",
    norm_bound: float | None = None,
    groups: Any = None,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    order: int = 3,
    neighbour_relation: str | None = None,
    entry_change: float = 1.0,
    entry_limit: float | None = None,
    ledger: Ledger | None = None,
    rng: RngLike = None,
    noise: NoiseSource | None = None,
) -> PrivateDecomposition:
    """Decompose under (ε, δ)-differential privacy.

    Parameters
    ----------
    data : array d x d x d, or rows n x d
        A symmetric tensor (``unit="entry"``), or rows of data, dense or CSR, of which the moment (1/n) Σ x⊗ᵖ is
        decomposed. NaN and infinities count as zero, a whole row at a time, without a message.
    n_components : int
        The number k of components. Fixed in advance: the data must not choose it. `PrivateDecomposition.clear` says
        afterwards which of them are more than noise.
    epsilon, delta : float
        The guarantee: ε > 0, and δ between 0 and 1, below 1/n for n records or users.
    unit : {"entry", "record", "user"}
        Whom the guarantee protects: one entry of the tensor, one row, or all rows of one user (see `groups`).
    mechanism : {"auto", "wang2016", "joint", "input", "core", "subspace"}
        ``"wang2016"``: Algorithm 3 to the letter. ``"joint"``: the same with all candidates in one release, and the
        weight read off the last image. ``"input"``: all entries once. ``"core"``: slabs T(I, W, W) of a few
        directions, thrice, then a small core. ``"subspace"``: the second moment of the rows, then a small core; right
        only if its leading directions are those of the components. ``"auto"``: the one of the first four that
        `plan_privacy` predicts to need least signal.
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
        The order p of the moment of rows; above 3 for ``"wang2016"`` and ``"joint"`` only.
    neighbour_relation : str, optional
        For entries ``"distinct"`` (one entry changes by `entry_change`) or ``"literal"`` (the paper's, by which a
        diagonal entry changes six times as far); by default the paper's for ``"wang2016"``. For rows ``"replace"``
        (default) or ``"add or remove"``.
    entry_change, entry_limit : float
        For tensors, see `EntryLevel`.
    ledger : Ledger, optional
        The budget of all runs on these data together. It pays for this run too, or refuses it.
    rng : None, int or numpy.random.Generator
        Draws the starts, which are public. It never touches the noise.
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
    check_choice("unit", unit, ("entry", "record", "user"))
    check_choice("mechanism", mechanism, MECHANISMS)
    check_choice("calibration", calibration, ("exact", "paper"))
    if calibration == "paper" and mechanism != "wang2016":
        raise ValueError(f"calibration='paper' must go with mechanism='wang2016'. Got {mechanism!r}. Leave it out.")
    generator = as_generator(rng)
    with np.errstate(all="ignore"):  # a warning about the data would be an answer without noise
        holder = _as_holder(
            data, unit, mechanism, norm_bound, groups, order, neighbour_relation, entry_change, entry_limit
        )
    if unit != "entry":
        check_delta_for(delta, holder.n_units, unit)
    k = check_n_components(n_components, holder.dimension)
    plan = Plan.default(holder.dimension, k, n_restarts=n_restarts, n_iterations=_iterations(n_iterations))
    _check_possible(mechanism, holder)
    privacy_plan = None
    if mechanism in ("auto", "core", "subspace"):  # the others have nothing to choose
        privacy_plan = _plan_for(holder, plan, epsilon, delta, unit)
    chosen = privacy_plan.best if privacy_plan is not None and mechanism == "auto" else mechanism
    releaser = Releaser(Ledger(gdp_mu(epsilon, delta), within=ledger), SecureNoise() if noise is None else noise)
    shares = privacy_plan[chosen].shares if privacy_plan is not None else ()
    if chosen == "wang2016":
        # Algorithm 3, line 2.
        calibrate = paper_noise_multiplier if calibration == "paper" else noise_multiplier
        multiplier = calibrate(epsilon, delta, k * plan.n_restarts * (plan.n_iterations + 1))
    else:
        multiplier = noise_multiplier(epsilon, delta, k * plan.n_iterations)
    found = _run(chosen, holder, plan, releaser, multiplier, shares, generator)
    report = PrivacyReport.of(
        releaser,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        neighbours=holder.neighbours,
        mechanism=chosen if calibration == "exact" else f"{chosen}, paper's calibration",
    )
    first = found.components.largest_first()
    return PrivateDecomposition(
        Components(found.components.weights[first], found.components.vectors[:, first], holder.order),
        found.weight_errors[first],
        found.angle_errors[first],
        found.noise_floors[first],
        report,
    )


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
    order: int = 3,
    neighbour_relation: str | None = None,
    entry_change: float = 1.0,
) -> PrivacyPlan:
    """Say, without any data, what each mechanism would release, with how much noise, and what it would still find.

    Parameters
    ----------
    dimension : int
        The d of the tensor, or the number of columns of the rows.
    n_units : int
        The number of records or users; for entries it follows from d.
    n_components, epsilon, delta, unit, norm_bound, n_restarts, n_iterations, order, neighbour_relation, entry_change
        As for `decompose_privately`.

    Returns
    -------
    PrivacyPlan
        ``str`` of it is a table, `to_json` the same for programs, `best` what ``mechanism="auto"`` would take.

    Examples
    --------
    >>> from odeco.private import plan_privacy
    >>> plan_privacy(dimension=100, n_components=3, epsilon=1.0, delta=1e-6).best
    'input'
    """
    check_choice("unit", unit, ("entry", "record", "user"))
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    d = check_count("dimension", dimension)
    k = check_n_components(n_components, d)
    if unit != "entry":
        check_delta_for(delta, check_count("n_units", n_units), unit)
    plan = Plan.default(d, k, n_restarts=n_restarts, n_iterations=_iterations(n_iterations))
    return plan_mechanisms(
        dimension=d,
        n_components=k,
        n_restarts=plan.n_restarts,
        n_iterations=plan.n_iterations,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        n_units=n_units,
        norm_bound=norm_bound,
        order=check_count("order", order, MINIMUM_ORDER),
        neighbour_relation=neighbour_relation or ("distinct" if unit == "entry" else "replace"),
        entry_change=entry_change,
    )


def _iterations(n_iterations: int | None) -> int:
    return DEFAULT_ITERATIONS if n_iterations is None else n_iterations


def _as_holder(
    data: Any,
    unit: Unit,
    mechanism: str,
    norm_bound: float | None,
    groups: Any,
    order: int,
    neighbour_relation: str | None,
    entry_change: float,
    entry_limit: float | None,
) -> DataHolder:
    if (unit == "user") != (groups is not None):
        raise ValueError(
            f"`groups` must be given for unit='user' and for no other. Got unit={unit!r} and "
            f"groups{'' if groups is not None else '=None'}. Pass one label a row, or unit='record'."
        )
    if unit == "entry":
        if norm_bound is not None or order != 3:
            raise ValueError(
                "A private tensor has order 3 and no norm_bound: its neighbours change an entry by `entry_change`. "
                f"Got norm_bound={norm_bound!r}, order={order!r}. For rows pass unit='record'."
            )
        return EntryLevel(
            data.entries if isinstance(data, DenseTensor) else data,
            neighbour_relation=neighbour_relation or ("literal" if mechanism == "wang2016" else "distinct"),  # type: ignore[arg-type]
            entry_change=entry_change,
            entry_limit=entry_limit,
        )
    return RecordLevel(
        data,
        norm_bound=norm_bound,  # type: ignore[arg-type]  # None is refused there, with what to do
        neighbour_relation=neighbour_relation or "replace",  # type: ignore[arg-type]  # checked there
        order=order,
        groups=groups,
    )


def _plan_for(holder: DataHolder, plan: Plan, epsilon: float, delta: float, unit: Unit) -> PrivacyPlan:
    """Plan from the public numbers of the holder: its shape and bounds, never its values."""
    of_rows = isinstance(holder, RecordLevel)
    return plan_mechanisms(
        dimension=holder.dimension,
        n_components=plan.n_components,
        n_restarts=plan.n_restarts,
        n_iterations=plan.n_iterations,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        n_units=holder.n_units,
        norm_bound=holder.norm_bound if isinstance(holder, RecordLevel) else None,
        order=holder.order,
        neighbour_relation=holder.neighbour_relation if isinstance(holder, RecordLevel | EntryLevel) else "",
        entry_change=1.0 if of_rows or not isinstance(holder, EntryLevel) else holder.entry_change,
    )


def _check_possible(mechanism: str, holder: DataHolder) -> None:
    if mechanism in ("input", "core", "subspace") and holder.order != 3:
        raise ValueError(
            f"mechanism={mechanism!r} takes tensors of order 3. Got order {holder.order}. Take 'joint' or 'wang2016'."
        )
    if mechanism == "subspace" and not isinstance(holder, RecordLevel):
        raise ValueError("mechanism='subspace' needs the second moment of rows. Got a tensor. Take 'core' or 'input'.")


def _run(
    mechanism: str,
    holder: DataHolder,
    plan: Plan,
    releaser: Releaser,
    multiplier: float,
    shares: tuple[float, ...],
    generator: np.random.Generator,
) -> Found:
    k, mu = plan.n_components, releaser.ledger.mu_limit
    if mechanism == "wang2016":
        return by_separate_releases(holder, plan, releaser, multiplier, rng=generator)
    if mechanism == "joint":
        return by_joint_releases(holder, plan, releaser, multiplier, rng=generator)
    if mechanism == "input":
        return by_input_perturbation(holder, k, releaser, mu, rng=generator)
    if mechanism == "core":
        return by_core(holder, k, releaser, mu, shares, core_widths(holder.dimension, k), rng=generator)
    if not isinstance(holder, RecordLevel):
        raise RuntimeError("Only rows have a second moment.")
    return by_second_moment(holder, k, releaser, mu, shares, rng=generator)
