"""The settings of a TensorMixture are checked here, once, before anything is learnt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from odeco._arguments import check_choice, check_count, check_norm_bound, check_number
from odeco.mixtures.gaussians import COVARIANCE_TYPES
from odeco.mixtures.learn import LearningPlan
from odeco.privacy import Guarantee, check_delta, check_epsilon


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
    check_choice("neighbour_relation", model.neighbour_relation, ("replace", "add or remove"))
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
