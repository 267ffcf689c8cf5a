"""A bound on the norm of rows, chosen under differential privacy instead of guessed."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from odeco._util.arguments import MINIMUM_ORDER, check_choice, check_count
from odeco.privacy.calibration import check_delta, check_delta_for, check_epsilon, gdp_mu
from odeco.privacy.holders.norms import RowNorms, norms_sensitivity, suggested_bound
from odeco.privacy.holders.protocol import RELATIONS, NeighbourRelation
from odeco.privacy.ledger import Ledger
from odeco.privacy.ledger_file import LedgerFile, as_ledger
from odeco.privacy.noise import NoiseSource, SecureNoise
from odeco.privacy.release import Releaser
from odeco.privacy.report import PrivacyReport
from odeco.privacy.reuse import warn_of_reuse
from odeco.privacy.sensitivity import RecordSensitivities

#: The value of `norm_bound` that has the bound chosen by the run.
AUTO = "auto"


@dataclass(frozen=True)
class PrivateBound:
    """A bound on the norm of rows, and the guarantee under which it was chosen.

    Attributes
    ----------
    norm_bound : float
        The bound.
    privacy : PrivacyReport
        The guarantee, with the one release that was made.
    """

    norm_bound: float
    privacy: PrivacyReport


def choose_norm_bound(
    rows: Any,
    *,
    epsilon: float,
    delta: float,
    groups: Any = None,
    neighbour_relation: NeighbourRelation = "replace",
    order: int = MINIMUM_ORDER,
    n_units: int | None = None,
    ledger: Ledger | LedgerFile | str | os.PathLike[str] | None = None,
    noise: NoiseSource | None = None,
) -> PrivateBound:
    """Choose a bound on the norm of rows under (ε, δ)-differential privacy.

    For a private stream, pass rows that the stream does not get, its first ones say: they are disjoint from the others,
    so every row has (ε, δ) and nothing adds up. For all other runs ``norm_bound="auto"`` does the same with a part of
    their own budget.

    Parameters
    ----------
    rows : array or CSR array, n x d, or rows of `odeco.privacy.open_private` or `odeco.online.dask.as_cluster_rows`
        The rows. One that is not finite counts as blank.
    epsilon, delta : float
        The guarantee of this choice.
    groups : array of n labels, optional
        Which user each row belongs to; public. The unit is then the user.
    neighbour_relation : {"replace", "add_remove"}
        As for `decompose_privately`.
    order : int
        The order p of the moment that the bound is for: 2 for a subspace, 3 for components.
    n_units : int, optional
        The number of records or users in each release that the bound is for, such as the batch size of a stream; by
        default as many as are given here. The more there are, the less noise they need, and the larger a bound pays.
    ledger : Ledger, LedgerFile or path, optional
        The budget of all runs on these data together.
    noise : NoiseSource, optional
        For tests: with any source but the default the result says that it is not private.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.private import choose_norm_bound
    >>> rows = 7 * np.repeat(np.eye(5), 2000, axis=0)
    >>> choose_norm_bound(rows, epsilon=1.0, delta=1e-6).norm_bound
    8.0
    """
    epsilon, delta, order = check_epsilon(epsilon), check_delta(delta), check_count("order", order, 2)
    check_choice("neighbour_relation", neighbour_relation, tuple(RELATIONS))
    warn_of_reuse(rows, ledger)
    norms = RowNorms(rows, groups)
    unit = "record" if groups is None else "user"
    check_delta_for(delta, norms.n_units, unit)
    n_units = norms.n_units if n_units is None else check_count("n_units", n_units)
    mu = gdp_mu(epsilon, delta)
    releaser = Releaser(
        Ledger(mu, within=None if ledger is None else as_ledger(ledger)), SecureNoise() if noise is None else noise
    )
    sensitivity = RecordSensitivities(1.0, n_units, replace=neighbour_relation == "replace").entries(order)
    # A coordinate of the moment, contracted to a vector, has this noise or less; it has d coordinates.
    noise_of_moment = sensitivity / mu * math.sqrt(norms.n_features)
    bound = release_bound(norms, neighbour_relation, releaser, mu, order, noise_of_moment)
    whom, public = ("all rows of one user", "which row is whose") if groups is not None else ("one row", "their number")
    report = PrivacyReport.of(
        releaser,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        neighbours=f"{whom}, {RELATIONS[neighbour_relation]}; {public} public",
        mechanism="counts of rows by their norm",
    )
    return PrivateBound(bound, report)


def is_auto(norm_bound: Any) -> bool:
    """Return whether a bound is to be chosen by the run."""
    return isinstance(norm_bound, str) and norm_bound == AUTO


def release_bound(
    norms: RowNorms, neighbour_relation: NeighbourRelation, releaser: Releaser, mu: float, order: int, noise: float
) -> float:
    """Return the bound that noisy counts suggest; `mu` is that of the release, `noise` as for `suggested_bound`."""
    query = norms.query()
    counts, scale = releaser.release(
        query.what,
        query.answer,
        size=query.size,
        sensitivity=norms_sensitivity(neighbour_relation),
        noise_multiplier=1 / mu,
    )
    return suggested_bound(counts, scale, norms.n_units, order, noise)
