"""What prepares a private run: a bound on the norm of rows, or a subspace of fewer dimensions.

Private principal components are the leading directions of the second moment of rows, from one noisy
release.

The distinct entries of (1/n) Σ x xᵀ are released once with Gaussian noise, and the rest is
post-processing (Dwork, Talwar, Thakurta and Zhang 2014, *Analyze Gauss*), with the exact
calibration of the noise.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from odeco._util.arguments import MINIMUM_ORDER, check_choice, check_count, check_norm_bound
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.privacy.calibration import (
    adversary_accuracy,
    check_delta,
    check_delta_for,
    check_epsilon,
    gdp_mu,
)
from odeco.privacy.holders.norms import RowNorms, is_auto, norms_share, release_bound
from odeco.privacy.holders.protocol import RELATIONS, NeighbourRelation
from odeco.privacy.holders.records import RecordLevel
from odeco.privacy.ledger import Ledger
from odeco.privacy.ledger_file import LedgerFile, as_ledger
from odeco.privacy.noise import NoiseSource, SecureNoise
from odeco.privacy.release import Releaser
from odeco.privacy.report import PrivacyReport, in_plain_words, warn_if_weak, warn_of_reuse
from odeco.privacy.sensitivity import RecordSensitivities

#: The cosine from which on a direction counts as found.
_FOUND = 0.9

#: The t of the bound on the norm of the noise: 2 exp(−t²/2) is 1 %.
_CERTAIN = math.sqrt(2 * math.log(200))


@dataclass(frozen=True, eq=False)
class PrivateSubspace:
    """The leading directions of the second moment of rows, as far as they may be known.

    Attributes
    ----------
    basis : array d x k
        Orthonormal columns, by falling eigenvalue.
    eigenvalues : array of k
        The eigenvalues of the noisy second moment.
    noise_floor : float
        A bound on the norm of the noise that holds with a probability of 99 %.
    angle_bounds : array of k
        What the angle between each direction and the span of the k true ones, of clipped rows, is
        at most if the noise is within its bound; a right angle if nothing can be said.
    norm_bound : float
        The norm at which rows were clipped.
    privacy : PrivacyReport
        The guarantee, with every release.
    """

    basis: FloatArray
    eigenvalues: FloatArray
    noise_floor: float
    angle_bounds: FloatArray
    norm_bound: float
    privacy: PrivacyReport

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Which directions are certainly more than noise: their angle is less than a right one."""
        return self.angle_bounds < math.pi / 2

    def transform(self, rows: Any) -> FloatArray:
        """Return the coordinates of rows in the basis. They reveal the rows: only the basis is
        private.
        """
        coordinates: FloatArray = rows @ self.basis
        return coordinates

    def __str__(self) -> str:
        n_clear = int(np.sum(self.clear))
        return (
            f"{n_clear} of {len(self.clear)} directions are clear of the noise. "
            f"{self.privacy.statement}"
        )


@dataclass(frozen=True)
class SubspacePlan:
    """What `private_subspace` would release; ``str`` says it in words.

    Attributes
    ----------
    epsilon, delta, mu : float
        The budget.
    unit, neighbours : str
        Whom it protects, and the neighbour relation.
    n_units, dimension, n_components : int
        The numbers that it was made for.
    noise : float
        The standard deviation of the noise on the diagonal of the second moment, in units of B².
    smallest_signal : float
        How far an eigenvalue must exceed the others to be found with cosine 0.9, in units of B²:
        the mean of ⟨x, v⟩² for a direction v, over that for the others. For a bound B that is
        given, in the units of the rows.
    bound_share : float
        The share of μ² that chooses the bound; 0 if the bound is given.
    """

    epsilon: float
    delta: float
    mu: float
    unit: str
    neighbours: str
    n_units: int
    dimension: int
    n_components: int
    noise: float
    smallest_signal: float
    bound_share: float

    def __str__(self) -> str:
        if self.bound_share:
            chosen = f" B is chosen from noisy counts with {self.bound_share:.0%} of μ²."
        else:
            chosen = ""
        unit = " B²" if self.bound_share else ""
        return (
            "This run finds directions whose eigenvalue exceeds the others by "
            f"{self.smallest_signal:.3g}{unit} or more, through the noise of privacy.{chosen}\n"
            f"It spends ε = {self.epsilon:g} (δ = {self.delta:g}) of the privacy of every "
            f"{self.unit} of {self.n_units:,}, once and for all; neighbours: {self.neighbours}.\n"
            f"{in_plain_words(adversary_accuracy(self.mu), self.unit)}"
        )


def private_subspace(
    rows: Any,
    n_components: int,
    *,
    epsilon: float,
    delta: float,
    norm_bound: float | Literal["auto"],
    groups: Any = None,
    neighbour_relation: NeighbourRelation = "replace",
    ledger: Ledger | LedgerFile | str | os.PathLike[str] | None = None,
    noise: NoiseSource | None = None,
) -> PrivateSubspace:
    """Return the leading directions of the second moment of rows under (ε, δ)-differential privacy:
    private PCA.

    Parameters
    ----------
    rows : array or CSR array, n x d, or rows of `open_private` or `as_cluster_rows`
        The data. A row that is not finite counts as blank. Rows are not centred: subtract a public
        mean first if the mean is not what you look for.
    n_components : int
        The number k of directions.
    epsilon, delta : float
        The guarantee: ε > 0, and δ below one over the number of records or users.
    norm_bound : float or "auto"
        The largest Euclidean norm of a row, known without looking at the data; longer rows are
        scaled down to it. ``"auto"`` spends a part of μ², 5 % but for few records, on noisy counts
        of rows by their norm, which give the bound.
    groups : array of n labels, optional
        Which user each row belongs to; public. The unit is then the user, who counts once, with the
        mean over own rows.
    neighbour_relation : {"replace", "add_remove"}
        Whether a unit is replaced by any other, or blanked. The number of units is public.
    ledger : Ledger, LedgerFile or path, optional
        The budget of all runs on these data together. It pays for this run too, or refuses it.
    noise : NoiseSource, optional
        For tests: with any source but the default the result says that it is not private.

    Notes
    -----
    **Sensitivity.** A row x of norm at most B adds x xᵀ/n, of norm at most B²/n, to the second
    moment; blanking it moves that by no more. Replacing it by y moves it by |x xᵀ − y yᵀ|/n, whose
    square, (|x|⁴ + |y|⁴ − 2⟨x, y⟩²)/n², is at most 2B⁴/n² (`RecordSensitivities.entries`). Entries
    off the diagonal are released once, times √2, so that the norm is that of the whole matrix.
    Rounding is part of what is declared (`RecordLevel.second_moment_sensitivity`).

    **Angles.** The noise E has a norm of at most s(√(2d) + t) but for a probability of 2
    exp(−t²/2): the mean of its largest eigenvalue is at most s√(2d), and as a function of standard
    normal numbers it has the Lipschitz constant s. For an eigenvector u of M + E with eigenvalue μ,
    let P project to the true directions that are left out, whose eigenvalues are at most λ. Then (μ
    − λ)|Pu| ≤ |P(μ − M)u| = |PEu| ≤ |E|, and λ exceeds the next noisy eigenvalue by at most |E|.
    This bounds |Pu|, the sine of the angle.

    References
    ----------
    Dwork, Talwar, Thakurta and Zhang, *Analyze Gauss: optimal bounds for privacy-preserving
    principal component analysis*, 2014.

    Examples
    --------
    >>> import numpy as np
    >>> import odeco
    >>> rows = np.repeat(np.eye(5)[:2], [6000, 4000], axis=0)
    >>> found = odeco.private_subspace(rows, 2, epsilon=1.0, delta=1e-6, norm_bound=1.0)
    >>> found.eigenvalues.round(1), found.clear
    (array([0.6, 0.4]), array([ True,  True]))
    """
    mu = gdp_mu(check_epsilon(epsilon), check_delta(delta))
    check_choice("neighbour_relation", neighbour_relation, tuple(RELATIONS))
    warn_of_reuse(rows, ledger)
    warn_if_weak(mu)
    unit = "record" if groups is None else "user"
    budget = as_ledger(ledger, unit=unit, neighbours=neighbour_relation)
    releaser = Releaser(Ledger(mu, within=budget), SecureNoise() if noise is None else noise)
    share = 0.0
    if is_auto(norm_bound):
        norms = RowNorms(rows, groups)
        share = norms_share(norms.n_units, mu)
        check_count("n_components", n_components, 1, norms.n_features)
        check_delta_for(delta, norms.n_units, unit)
        unit_noise = _noise(1.0, norms.n_units, neighbour_relation, mu, share) * math.sqrt(
            2 * norms.n_features
        )
        norm_bound = release_bound(
            norms, neighbour_relation, releaser, mu * math.sqrt(share), 2, unit_noise
        )
    with np.errstate(all="ignore"):  # a warning about the data would be an answer without noise
        holder = RecordLevel(
            rows,
            norm_bound=check_norm_bound(norm_bound),
            neighbour_relation=neighbour_relation,
            groups=groups,
        )
    d = holder.dimension
    k = check_count("n_components", n_components, 1, d)
    check_delta_for(delta, holder.n_units, holder.unit)
    moment, scale = release_second_moment(holder, releaser, mu * math.sqrt(1 - share))
    with one_blas_thread():
        rising, vectors = np.linalg.eigh(moment)
    eigenvalues = rising[::-1]
    floor = scale * (math.sqrt(2 * d) + _CERTAIN)
    gaps = eigenvalues[:k] - (eigenvalues[k] + floor if k < d else -math.inf)
    angles = np.arcsin(np.clip(floor / np.maximum(gaps, floor), 0.0, 1.0))
    report = PrivacyReport.of(
        releaser,
        epsilon=epsilon,
        delta=delta,
        unit=holder.unit,
        neighbours=holder.neighbours,
        mechanism="second moment",
    )
    leading = np.ascontiguousarray(vectors[:, ::-1][:, :k])
    return PrivateSubspace(
        leading, eigenvalues[:k].copy(), floor, angles, holder.norm_bound, report
    )


def plan_subspace(
    *,
    dimension: int,
    n_components: int,
    n_units: int,
    epsilon: float,
    delta: float,
    norm_bound: float | Literal["auto"],
    unit: Literal["record", "user"] = "record",
    neighbour_relation: NeighbourRelation = "replace",
) -> SubspacePlan:
    """Say, without any data, how much noise `private_subspace` would add, and which directions it
    would still find.

    Parameters
    ----------
    dimension, n_components, n_units : int
        The number of columns, of directions, and of records or users.
    epsilon, delta, norm_bound, neighbour_relation
        As for `private_subspace`.
    unit : {"record", "user"}
        Whom the guarantee protects.

    Notes
    -----
    Noise of standard deviation s on the diagonal, and s/√2 off it, has eigenvalues up to s√(2d). An
    eigenvalue that exceeds the others by λ has a direction whose squared cosine with the true one
    is 1 − 1/θ², θ = √2 λ/(s√d), if the others are equal (a spiked Wigner matrix). The smallest
    signal is the λ for a cosine of 0.9.

    Examples
    --------
    >>> import odeco
    >>> plan = odeco.plan_subspace(
    ...     dimension=100, n_components=3, n_units=10_000, epsilon=1.0, delta=1e-6, norm_bound=1.0
    ... )
    >>> round(plan.smallest_signal, 4)
    0.0097
    """
    d = check_count("dimension", dimension)
    n = check_count("n_units", n_units)
    k = check_count("n_components", n_components, 1, d)
    mu = gdp_mu(check_epsilon(epsilon), check_delta(delta))
    check_choice("unit", unit, ("record", "user"))
    check_choice("neighbour_relation", neighbour_relation, tuple(RELATIONS))
    check_delta_for(delta, n, unit)
    if is_auto(norm_bound):
        share = norms_share(n, mu)
        bound = 1.0
    else:
        share = 0.0
        bound = check_norm_bound(norm_bound)
    noise = _noise(bound, n, neighbour_relation, mu, share)
    signal = noise * math.sqrt(d / 2) / math.sqrt(1 - _FOUND**2)
    return SubspacePlan(epsilon, delta, mu, unit, neighbour_relation, n, d, k, noise, signal, share)


def release_second_moment(
    holder: RecordLevel, releaser: Releaser, mu: float
) -> tuple[FloatArray, float]:
    """Release (1/n) Σ x xᵀ with a part of the budget; return it, and the scale of the noise on its
    diagonal.
    """
    d = holder.dimension
    lower = np.tril_indices(d)
    units = np.where(lower[0] == lower[1], 1.0, math.sqrt(0.5))
    packed, scale = releaser.release(
        f"second moment, {units.size} distinct entries",
        lambda: holder.second_moment()[lower] / units,
        size=units.size,
        sensitivity=holder.second_moment_sensitivity(),
        noise_multiplier=1 / mu,
    )
    moment = np.zeros((d, d))
    moment[lower] = moment.T[lower] = packed * units
    return moment, scale


def _noise(
    bound: float, n_units: int, neighbour_relation: NeighbourRelation, mu: float, share: float
) -> float:
    """Return the noise on the diagonal of the second moment if a share of μ² goes to the bound."""
    replaced = neighbour_relation == "replace"
    return RecordSensitivities(bound, n_units, replace=replaced).entries(2) / (
        mu * math.sqrt(1 - share)
    )


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

    For a private stream, pass rows that the stream does not get, its first ones say: they are
    disjoint from the others, so every row has (ε, δ) and nothing adds up. For all other runs
    ``norm_bound="auto"`` does the same with a part of their own budget.

    Parameters
    ----------
    rows : array or CSR array, n x d, or rows of `open_private` or `as_cluster_rows`
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
        The number of records or users in each release that the bound is for, such as the batch size
        of a stream; by default as many as are given here. The more there are, the less noise they
        need, and the larger a bound pays.
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
    epsilon = check_epsilon(epsilon)
    delta = check_delta(delta)
    order = check_count("order", order, 2)
    check_choice("neighbour_relation", neighbour_relation, tuple(RELATIONS))
    warn_of_reuse(rows, ledger)
    mu = gdp_mu(epsilon, delta)
    warn_if_weak(mu)
    norms = RowNorms(rows, groups)
    unit = "record" if groups is None else "user"
    check_delta_for(delta, norms.n_units, unit)
    n_units = norms.n_units if n_units is None else check_count("n_units", n_units)
    budget = as_ledger(ledger, unit=unit, neighbours=neighbour_relation)
    releaser = Releaser(Ledger(mu, within=budget), SecureNoise() if noise is None else noise)
    sensitivity = RecordSensitivities(
        1.0, n_units, replace=neighbour_relation == "replace"
    ).entries(order)
    # A coordinate of the moment, contracted to a vector, has this noise or less; it has d
    # coordinates.
    noise_of_moment = sensitivity / mu * math.sqrt(norms.n_features)
    bound = release_bound(norms, neighbour_relation, releaser, mu, order, noise_of_moment)
    if groups is not None:
        whom = "all rows of one user"
        public = "which row is whose"
    else:
        whom = "one row"
        public = "their number"
    report = PrivacyReport.of(
        releaser,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        neighbours=f"{whom}, {RELATIONS[neighbour_relation]}; {public} public",
        mechanism="counts of rows by their norm",
    )
    return PrivateBound(bound, report)
