"""The settings of a TensorMixture are checked here, once, before anything is learnt.

A mixture is learnt from rows: several starts on a part of them, the best by likelihood, then steps over all.

What a mixture has learnt, as a file holds it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from odeco._util.arguments import check_choice, check_count, check_norm_bound, check_number
from odeco._util.schema import Rule, Sizes, array, require
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.em import climb, race
from odeco.models.engine.selection import ChosenNumber, choose_number
from odeco.models.engine.state import State
from odeco.models.gmm.gaussians import COVARIANCE_TYPES, CovarianceType, Gaussians, step
from odeco.models.gmm.start import can_be_spectral, second_moment, seeded_start, spectral_start, whitened_start
from odeco.privacy.calibration import check_delta, check_epsilon
from odeco.privacy.ledger_file import Guarantee


@dataclass(frozen=True)
class MixtureSettings:
    """The checked settings of a TensorMixture.

    Attributes
    ----------
    n_components : int
        How many components; 0 if they are to be counted.
    plan : LearningPlan
        How they are learnt.
    guarantee : Guarantee or None
        The budget of a private model.
    """

    n_components: int
    plan: LearningPlan
    guarantee: Guarantee | None


def check_settings(model: Any) -> MixtureSettings:
    """Return the settings of a TensorMixture, or raise."""
    k = model.n_components
    automatic = isinstance(k, str) and k == "auto"
    check_choice("covariance_type", model.covariance_type, COVARIANCE_TYPES)
    check_choice("neighbour_relation", model.neighbour_relation, ("replace", "add_remove"))
    n_jobs = -1 if model.n_jobs is None else model.n_jobs
    if n_jobs != -1:
        check_count("n_jobs", n_jobs)
    plan = LearningPlan(
        kind=model.covariance_type,
        n_steps=check_count("n_steps", model.n_steps),
        tolerance=check_number("tol", model.tol, 0, math.inf, closed=True),
        regularity=check_number("reg_covar", model.reg_covar, 0, math.inf, closed=True),
        n_starts=check_count("n_starts", model.n_starts, 0),
        parallel=n_jobs != 1,
    )
    number = 0 if automatic else check_count("n_components", k)
    return MixtureSettings(number, plan, _check_private(model, automatic))


def _check_private(model: Any, automatic: bool) -> Guarantee | None:
    """Return the guarantee of a private model, or None; raise if something is missing that privacy needs."""
    needed = {"epsilon": model.epsilon, "delta": model.delta, "norm_bound": model.norm_bound}
    missing = [name for name, value in needed.items() if value is None]
    if missing and len(missing) < len(needed):
        raise ValueError(
            f"A private mixture needs `epsilon`, `delta` and `norm_bound`. Got no `{missing[0]}`. Pass all three, or "
            "none for a mixture without privacy."
        )
    if missing and model.ledger is not None:
        raise ValueError(
            f"`ledger` is for private mixtures. Got {model.ledger!r} without `epsilon`. Pass `epsilon`, `delta` and "
            "`norm_bound`, or leave it out."
        )
    if missing:
        return None
    check_norm_bound(model.norm_bound)
    if automatic:
        raise ValueError(
            "`n_components` must be an int for a private mixture. Got 'auto'. Choose it on public rows, or take more "
            "components than you expect: those that are not there get little weight."
        )
    if model.covariance_type != "spherical":
        raise ValueError(
            "A private mixture has spheres, all of one variance: nothing more can be released without much more noise. "
            f"Got covariance_type={model.covariance_type!r}. Pass 'spherical'."
        )
    return Guarantee(check_epsilon(model.epsilon), check_delta(model.delta), model.ledger)


#: Starts are tried on so many rows, or on so many for each component if that is more.
_TRIAL_ROWS, _TRIAL_ROWS_EACH = 5_000, 200

#: Seeds are drawn, and nearest centres found, among so many of these; or among so many for each component.
_SEED_ROWS, _SEED_ROWS_EACH = 2_000, 50

#: So many steps are taken from every start before the better half of them goes on.
_FIRST_STEPS = 5

#: Up to so many rows twice as many starts are tried: there they cost little, and luck counts for more.
_FEW_ROWS = 2_000

#: How many components there are is chosen with so many rows to learn from, half as many to judge by, and at most so
#: many components.
_CHOICE_ROWS, MOST_AUTOMATIC = 10_000, 50


#: Third powers of numbers with such a variance stay in the range of double precision.
_SMALLEST, _LARGEST = 1e-140, 1e140


@dataclass(frozen=True)
class LearningPlan:
    """How a mixture is learnt.

    Attributes
    ----------
    kind : {"spherical", "diag", "full"}
        What covariances may be.
    n_steps : int
        The most likelihood steps over all rows.
    tolerance : float
        Steps end when one raises the mean log-likelihood by less than this.
    regularity : float
        Every variance gets this share of the mean variance of the features.
    n_starts : int
        Starts by k-means++ that are tried beside those of the third moment.
    parallel : bool
        Whether to use all cores; the result does not depend on it.
    """

    kind: CovarianceType = "spherical"
    n_steps: int = 100
    tolerance: float = 1e-4
    regularity: float = 1e-6
    n_starts: int = 5
    parallel: bool = False


@dataclass(frozen=True, eq=False)
class Learnt:
    """A mixture that was learnt.

    Attributes
    ----------
    model : Gaussians
        The mixture, largest component first.
    log_likelihood : float
        Mean log-likelihood of the rows before the last step.
    n_steps : int
        Number of likelihood steps over all rows.
    converged : bool
        Whether the last of them gained less than the tolerance.
    start : str
        Which start was the best, in words.
    floor : float
        What was added to every variance.
    """

    model: Gaussians
    log_likelihood: float
    n_steps: int
    converged: bool
    start: str
    floor: float


def learn(rows: FloatArray, n_components: int, plan: LearningPlan, *, seed: int) -> Learnt:
    """Learn k components from rows, of which there must be at least k."""
    if len(rows) < n_components:
        raise ValueError(
            f"There must be at least as many rows as components. Got n_samples={len(rows)} and "
            f"n_components={n_components}. Pass more rows, or fewer components."
        )
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # what cannot be told is said below
        moment = second_moment(rows, parallel=plan.parallel)
    if not (moment.variance == 0 or _SMALLEST < moment.variance < _LARGEST):
        raise ValueError(
            f"The variance of rows must be between {_SMALLEST:g} and {_LARGEST:g}, so that its powers can be told from "
            f"zero and are finite. It is {moment.variance:.3g}. Multiply all rows by a constant."
        )
    # Rows that are all the same have no variance: any positive one describes them.
    floor = plan.regularity * moment.variance if moment.variance > 0 else 1.0
    floor = max(floor, float(np.finfo(np.float64).tiny))
    rng = np.random.default_rng(seed)
    part = _part(rows, max(_TRIAL_ROWS, _TRIAL_ROWS_EACH * n_components), rng)

    def on_part(model: Gaussians) -> tuple[Gaussians, float]:
        return step(model, part, floor)

    starts = []
    with one_blas_thread():  # parts are small: handing them to threads takes longer than the work
        if can_be_spectral(n_components, rows.shape[1]):
            starts.append(spectral_start(rows, moment, n_components, seed=seed, parallel=plan.parallel))
            guess = climb(
                on_part, starts[0].gaussians(plan.kind, floor), n_steps=_FIRST_STEPS, tolerance=plan.tolerance
            )
            starts.append(whitened_start(part, moment, guess.model, seed=seed))
        # Where the third moment cannot help, more seeds must; and where rows are few, they cost nothing.
        n_seeded = plan.n_starts * (1 if starts and len(rows) > _FEW_ROWS else 2)
        n_seeded = 1 if n_components == 1 else max(n_seeded, 0 if starts else 1)
        fewer = max(_SEED_ROWS, _SEED_ROWS_EACH * n_components)
        starts += [seeded_start(_part(part, fewer, rng), moment, n_components, rng) for _ in range(n_seeded)]
        begun = [start.gaussians(plan.kind, floor) for start in starts]
        first = race(begun, on_part, n_first_steps=_FIRST_STEPS, tolerance=plan.tolerance)
    model, name = first.model, starts[first.number].name
    ended = climb(
        lambda model: step(model, rows, floor, parallel=plan.parallel),
        model,
        n_steps=plan.n_steps,
        tolerance=plan.tolerance,
    )
    return Learnt(largest_first(ended.model), ended.log_likelihood, ended.n_steps, ended.converged, name, floor)


def largest_first(model: Gaussians) -> Gaussians:
    """Return the same components in the order of their weights."""
    order = np.argsort(-model.weights, kind="stable")
    return Gaussians(model.weights[order], model.means[order], model.covariances[order])


def choose_n_components(rows: FloatArray, plan: LearningPlan, *, seed: int) -> ChosenNumber:
    """Choose how many components rows have, by the likelihood of rows that were not learnt from."""
    rng = np.random.default_rng(seed)
    part = _part(rows, 3 * _CHOICE_ROWS // 2, rng, shuffled=True)
    n_learnt = max(1, 2 * len(part) // 3)
    learnt_from, judged_by = part[:n_learnt], part[n_learnt:]
    if len(judged_by) < 2:
        return ChosenNumber(1, {}, clear=False)

    def score(number: int) -> FloatArray:
        return learn(learnt_from, number, replace(plan, parallel=False), seed=seed).model.about(judged_by)[1]

    return choose_number(score, most=max(1, min(MOST_AUTOMATIC, n_learnt // 5)))


def _part(rows: FloatArray, size: int, rng: np.random.Generator, *, shuffled: bool = False) -> FloatArray:
    """Return so many rows, drawn at random, or all of them if there are no more."""
    if len(rows) <= size:
        return rows[rng.permutation(len(rows))] if shuffled else rows
    drawn = rng.choice(len(rows), size, replace=False, shuffle=shuffled)
    return rows[drawn if shuffled else np.sort(drawn)]


#: Numbers in a file are at most this large, so that their squares can be added up.
_LARGEST_IN_FILE = 1e150


def weights_rule(k: str, *, none: bool = False) -> Rule:
    """Require probabilities, or `none` of them where there may be no mixture yet."""
    numbers = array(k, low=0, high=1)

    def check(value: Any, where: str, sizes: Sizes) -> None:
        numbers(value, where, sizes)
        require(abs(float(value.sum()) - 1) < 1e-6 or (none and not value.size), f"`{where}` must sum to one")

    return check


def means_rule(*shape: str) -> Rule:
    """Require means whose squares can be added up."""
    return array(*shape, low=-_LARGEST_IN_FILE, high=_LARGEST_IN_FILE)


def covariances_rule(k: str, d: str) -> Rule:
    """Require variances above zero, or covariance matrices that are positive definite."""

    def check(value: Any, where: str, sizes: Sizes) -> None:
        n_axes = value.ndim if isinstance(value, np.ndarray) else 0
        require(1 <= n_axes <= 3, f"`{where}` must have one to three axes")
        low = float(np.finfo(np.float64).tiny) if n_axes < 3 else -_LARGEST_IN_FILE
        array(*(k, d, d)[:n_axes], low=low, high=_LARGEST_IN_FILE)(value, where, sizes)
        if n_axes == 3:
            require(bool(np.allclose(value, value.transpose(0, 2, 1))), f"`{where}` must be symmetric")
            try:
                np.linalg.cholesky(value)
            except np.linalg.LinAlgError:
                raise ValueError(f"`{where}` must be positive definite") from None

    return check


@dataclass(eq=False)
class FittedMixture(State):
    """A mixture that was learnt.

    Attributes
    ----------
    weights, means, covariances : array
        As of `Gaussians`.
    log_likelihood : float
        Mean log-likelihood of the rows it was learnt from; NaN if that would not be private.
    n_steps : int
        Number of likelihood steps.
    converged : bool
        Whether they ended because the last gained little; if private, whether all components stand clear of noise.
    start : str
        Which start was the best.
    n_rows : int
        Number of rows.
    tried, tried_scores : array
        Numbers of components that were tried, and the mean log-likelihood of rows that were not learnt from.
    """

    RULES: ClassVar[Mapping[str, Rule]] = {
        "weights": weights_rule("fitted k"),
        "means": means_rule("fitted k", "n_features"),
        "covariances": covariances_rule("fitted k", "n_features"),
        "log_likelihood": array(nan=True),
        "n_steps": array(kind="i", low=0),
        "converged": array(kind="b"),
        "start": array(kind="U"),
        "n_rows": array(kind="i", low=0),
        "tried": array("tried", kind="i", low=1),
        "tried_scores": array("tried"),
    }

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray
    log_likelihood: float
    n_steps: int
    converged: bool
    start: str
    n_rows: int
    tried: IndexArray
    tried_scores: FloatArray

    @classmethod
    def of(cls, learnt: Learnt, n_rows: int, chosen: ChosenNumber | None = None) -> FittedMixture:
        """Return what was learnt from so many rows."""
        tried = {} if chosen is None else chosen.tried
        return cls(
            weights=learnt.model.weights,
            means=learnt.model.means,
            covariances=learnt.model.covariances,
            log_likelihood=learnt.log_likelihood,
            n_steps=learnt.n_steps,
            converged=learnt.converged,
            start=learnt.start,
            n_rows=n_rows,
            tried=np.array(list(tried), dtype=np.int64),
            tried_scores=np.array(list(tried.values()), dtype=np.float64),
        )

    @property
    def gaussians(self) -> Gaussians:
        """The mixture itself."""
        return Gaussians(self.weights, self.means, self.covariances)
