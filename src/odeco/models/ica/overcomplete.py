"""More sources than columns: mixing directions from the fourth cumulant, and sources as posterior
means.

For rows x = A s + mean with independent sources of variance 1, the fourth cumulant is Σ κᵢ aᵢ⊗⁴
also where there are more sources than columns, and its components are the directions of the aᵢ
(`odeco.online.fourth_solver`). Their lengths follow from the covariance Σ aᵢaᵢᵀ by least squares.
No linear map gives the sources back: A has no inverse.

**Densities.** Each source has the density of one parameter that has its fourth cumulant κ. For κ >
0 it is a Gaussian whose variance follows a gamma law: κ = 3 is the Laplace law, and more is
sparser. Five variances stand for that law, by Gauss-Laguerre quadrature. For κ < 0 it is an equal
mixture of two Gaussians. All are mixtures of Gaussians, as in independent factor analysis (Attias
1999).

**Posterior mean.** Given which Gaussian each source comes from, sources are Gaussian, and given the
sources, these choices are independent. Gibbs sampling alternates between both, and averages the
conditional means. All rows share the random numbers, so the result for a row does not depend on
other rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import lsq_linear
from scipy.special import roots_genlaguerre

from odeco._util.state import array_field, require
from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.cp.rank import SURE
from odeco.errors import RankError
from odeco.models.engine.fit import Fit, Info
from odeco.models.engine.rows import Weighted, blocks_of
from odeco.models.ica.likelihood import EDGES, N_BINS
from odeco.models.ica.unmixing import BLOCK, RANGE, Sources, whiten
from odeco.online.fourth_moment import PairMoments
from odeco.online.fourth_solver import FourthMomentSolver
from odeco.tensors.components import Components
from odeco.tensors.coordinates import PackedCoordinates

#: The memory for sums over rows, in bytes.
_MEMORY = 2**28

#: The density of a source has this many Gaussians, and a kurtosis between these bounds; nearer to 0
#: it is Gaussian.
_N_GAUSSIANS = 5
_MIN_KURTOSIS = -1.9
_MAX_KURTOSIS = 60.0
_GAUSSIAN = 1e-2

#: The smallest variance of a Gaussian of a density, and of the noise, as a share of that of the
#: rows.
_MIN_VARIANCE = 1e-3
_MIN_NOISE = 1e-6

#: Sweeps of Gibbs sampling, the first of which do not count; their seed.
_N_SWEEPS = 60
_N_FIRST = 10
_SEED = 0


@dataclass(frozen=True, eq=False)
class Mixing(Sources):
    """The mixing matrix of more sources than columns.

    Attributes
    ----------
    mean, covariance : array
        Mean and covariance of the rows.
    mixing : array, d x k
        The mixing matrix, for sources of variance 1.
    mixing_errors : array, d x k
        The standard error of each entry; NaN if there are too few rows to tell.
    kurtosis : array
        The fourth cumulant of each source.
    """

    mark: ClassVar[str] = "kurtosis"

    mean: FloatArray = array_field("n_features", **RANGE)
    covariance: FloatArray = array_field("n_features", "n_features", **RANGE)
    mixing: FloatArray = array_field("n_features", "k", **RANGE)
    mixing_errors: FloatArray = array_field("n_features", "k", low=0, nan=True)
    kurtosis: FloatArray = array_field("k", low=_MIN_KURTOSIS, high=_MAX_KURTOSIS)

    def check(self) -> None:
        """Require a covariance."""
        require(np.allclose(self.covariance, self.covariance.T), "its covariance must be symmetric")
        require(
            bool(np.all(np.diagonal(self.covariance) >= 0)), "its variances must not be negative"
        )

    @property
    def exponents(self) -> IndexArray:
        """Zeros: columns are not scaled."""
        return np.zeros(len(self.mean), np.int64)

    @property
    def components(self) -> FloatArray:
        """The best linear estimate of the sources, k x d: Aᵀ C⁻¹."""
        return np.asarray((self._whitener @ (self._whitener.T @ self.mixing)).T)

    @property
    def whitening(self) -> FloatArray:
        """The map to whitened directions."""
        return np.asarray(self._whitener.T)

    @cached_property
    def _whitener(self) -> FloatArray:
        return whiten(self.covariance, None).forward

    @property
    def scaled_mixing(self) -> FloatArray:
        """The mixing matrix of the rows as they are."""
        return self.mixing

    @property
    def angle_errors(self) -> FloatArray:
        """The standard error of the direction of each source, in radians; π/2 if it is not
        known.
        """
        angles = np.linalg.norm(self.mixing_errors, axis=0) / np.linalg.norm(self.mixing, axis=0)
        return np.asarray(np.minimum(np.where(np.isfinite(angles), angles, np.pi / 2), np.pi / 2))

    @cached_property
    def densities(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The weights, means and variances of the Gaussians of each source, k x 5."""
        return mixtures_of(self.kurtosis)

    @property
    def information(self) -> FloatArray:
        """The Fisher information of the density of each source: 1 for a Gaussian."""
        values = np.linspace(-12, 12, 4801)
        density, slope = density_of(self.kurtosis, values)
        return np.asarray(
            np.sum(slope**2 / np.maximum(density, 1e-300), axis=1) * (values[1] - values[0])
        )

    @property
    def counts(self) -> FloatArray:
        """The density of each source as a histogram of one row, k x 200."""
        return histograms_of(self.kurtosis)

    def sources(self, rows: FloatArray) -> FloatArray:
        """Return the posterior means of the sources of rows, n x k."""
        blocks = list(
            map_blocks(self._posterior_means, blocks_of(rows, BLOCK), parallel=len(rows) > BLOCK)
        )
        if blocks:
            return np.concatenate(blocks)
        return np.zeros((0, len(self.kurtosis)))

    def _posterior_means(self, rows: FloatArray) -> FloatArray:
        with one_blas_thread():
            white = (rows - self.mean) @ self._whitener
            mixing = self._whitener.T @ self.mixing
            values, vectors = np.linalg.eigh(
                np.eye(len(mixing)) - mixing @ mixing.T
            )  # what the sources leave is noise
            root = vectors * np.sqrt(np.maximum(values, 0.0) + _MIN_NOISE)
            return gibbs_means(white, mixing, root, *self.densities)

    def mix(self, sources: FloatArray) -> FloatArray:
        """Return the rows that sources (n x k) are mixed to."""
        return np.asarray(sources @ self.mixing.T + self.mean)

    def log_likelihoods(self, rows: FloatArray) -> FloatArray:  # noqa: ARG002 - the interface of an unmixing matrix
        """Raise: the likelihood of a row is an integral over all sources that it may come from."""
        raise ValueError(
            "A likelihood takes at most as many sources as columns: with more it is an integral "
            f"without a closed form. Got {len(self.kurtosis)} sources of {len(self.mean)} "
            "columns. Lower n_components."
        )

    def sample(self, n_rows: int, rng: np.random.RandomState) -> tuple[FloatArray, FloatArray]:
        """Draw rows, n x d, and return the sources that they were mixed from."""
        weights, means, variances = self.densities
        k = np.arange(len(weights))
        chosen = np.minimum(
            np.sum(rng.uniform(size=(n_rows, len(k), 1)) > np.cumsum(weights, axis=1), axis=2), 4
        )
        sources = means[k, chosen] + np.sqrt(variances[k, chosen]) * rng.standard_normal(
            chosen.shape
        )
        return self.mix(sources), sources


def gaussians_of(kurtosis: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return weights, means and variances of Gaussians with variance 1 together, and this fourth
    cumulant.
    """
    weights = np.eye(_N_GAUSSIANS)[0]
    means = np.zeros(_N_GAUSSIANS)
    variances = np.ones(_N_GAUSSIANS)
    if kurtosis > _GAUSSIAN:
        nodes, shares = roots_genlaguerre(_N_GAUSSIANS, 3 / kurtosis - 1)
        weights = shares / shares.sum()
        variances = np.maximum(nodes * kurtosis / 3, _MIN_VARIANCE)
        variances = variances / (weights @ variances)
    elif kurtosis < -_GAUSSIAN:
        weights[:2] = 0.5
        means[:2] = (-kurtosis / 2) ** 0.25 * np.array([-1.0, 1.0])
        variances[:2] = 1 - means[:2] ** 2
    return weights, means, variances


def mixtures_of(kurtosis: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the weights, means and variances of `gaussians_of` for each fourth cumulant, k x 5."""
    parts = [gaussians_of(float(each)) for each in kurtosis]
    weights, means, variances = (np.array([part[place] for part in parts]) for place in range(3))
    return weights, means, variances


def density_of(kurtosis: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the density with each fourth cumulant at values, and its derivative, k x n."""
    weights, means, variances = (each[:, :, None] for each in mixtures_of(kurtosis))
    away = (values - means) / variances
    bells = weights * np.exp(-away * (values - means) / 2) / np.sqrt(2 * np.pi * variances)
    return np.sum(bells, axis=1), -np.sum(away * bells, axis=1)


def histograms_of(kurtosis: FloatArray) -> FloatArray:
    """Return the density with each fourth cumulant as a histogram of one row, k x 200."""
    limited = np.clip(kurtosis, _MIN_KURTOSIS, _MAX_KURTOSIS)
    counts = density_of(limited, (EDGES[1:] + EDGES[:-1]) / 2)[0] * (EDGES[1] - EDGES[0])
    return np.asarray(counts.reshape(-1, N_BINS))


def gibbs_means(
    rows: FloatArray,
    mixing: FloatArray,
    noise: FloatArray,
    weights: FloatArray,
    means: FloatArray,
    variances: FloatArray,
    n_sweeps: int = _N_SWEEPS,
) -> FloatArray:
    """Return the mean of the sources given each row, n x k, by Gibbs sampling.

    Parameters
    ----------
    rows : array, n x d
        Centred rows.
    mixing, noise : array, d x k and d x d
        Rows are mixing times sources plus `noise` times a standard Gaussian.
    weights, means, variances : array, k x J
        The densities of the sources.
    n_sweeps : int
        Number of sweeps.
    """
    rng = np.random.default_rng(_SEED)
    n = len(rows)
    d, k = mixing.shape
    place = np.arange(k)
    own_noise = noise @ noise.T
    with np.errstate(divide="ignore"):
        constants = np.log(weights) - np.log(variances) / 2
    centre = np.broadcast_to(np.sum(weights * means, axis=1), (n, k))
    spread = np.broadcast_to(np.sum(weights * (variances + means**2), axis=1), (n, k))
    total = np.zeros((n, k))
    for sweep in range(n_sweeps):
        around = (mixing * spread[:, None, :]) @ mixing.T + own_noise  # n covariances of rows
        drawn = centre + np.sqrt(spread) * rng.standard_normal(k)
        missing = np.stack(
            [rows - centre @ mixing.T, rows - drawn @ mixing.T - noise @ rng.standard_normal(d)],
            axis=2,
        )
        corrections = np.linalg.solve(around, missing).transpose(0, 2, 1) @ mixing
        if sweep >= _N_FIRST:
            total += centre + spread * corrections[:, 0]
        sources = drawn + spread * corrections[:, 1]
        logs = constants - (sources[:, :, None] - means) ** 2 / (2 * variances)
        shares = np.cumsum(np.exp(logs - logs.max(axis=2, keepdims=True)), axis=2)
        chosen = np.sum(rng.uniform(size=(k, 1)) * shares[:, :, -1:] > shares, axis=2)
        centre = means[place, chosen]
        spread = variances[place, chosen]
    return total / (n_sweeps - _N_FIRST)


def fourth_solver(dimension: int, n_components: int | None, seed: int) -> FourthMomentSolver:
    """Return the solver for the fourth cumulant of rows, before the first row."""
    return FourthMomentSolver.start(
        dimension, n_components, seed=seed, memory=_MEMORY, cumulant=True
    )


def refuse_weights() -> None:
    """Raise: the fourth cumulant is added up without weights."""
    raise ValueError(
        "With `sample_weight` there must be at most as many sources as columns: the fourth "
        "cumulant, which finds more, is added up without weights. Got weights, and more sources. "
        "Lower n_components, or repeat rows."
    )


def advanced(solver: FourthMomentSolver, block: Any) -> FourthMomentSolver:
    """Return the solver after a block of rows."""
    if isinstance(block, Weighted):
        refuse_weights()
    return solver.with_rows(block)


def fit_of(solver: FourthMomentSolver, context: Any) -> Fit | None:
    """Return the mixing matrix of all rows that a solver has seen.

    None if the number of sources was selected and it is not certain that there are more than
    columns. Where sources are not independent, the fourth cumulant has as many directions as the
    rows can show, and no number is certain.
    """
    try:
        found = solver.decomposed()
    except RankError:
        if solver.n_components is None:  # more than can be told apart
            return None
        raise
    evidence = found.rank_evidence
    if evidence is not None and (evidence.rank <= solver.dimension or evidence.confidence < SURE):
        return None
    with one_blas_thread():
        mixing, kurtosis = _scaled_mixing(found.moments, found.components)
        parts = [_scaled_mixing(*each)[0] for each in found.left_out]
        errors = found.jackknife(mixing, parts) if parts else np.full_like(mixing, np.nan)
    order = np.argsort(-np.abs(kurtosis), kind="stable")
    params = Mixing(
        found.moments.mean,
        found.moments.covariance,
        mixing[:, order],
        errors[:, order],
        kurtosis[order],
    )
    params = replace(params, mixing=params.mixing * params.signs)
    return Fit(params, context, Info(solver.n_rows, init="fourth cumulant"))


def _scaled_mixing(moments: PairMoments, components: Components) -> tuple[FloatArray, FloatArray]:
    """Return the mixing matrix for sources of variance 1, and their fourth cumulants.

    The variances cᵢ of rows along the vectors vᵢ solve C = Σ cᵢ vᵢvᵢᵀ by least squares in
    coordinates in which C is the identity, as far as they leave kurtoses λᵢ / cᵢ² within bounds.
    """
    forward = whiten(moments.covariance, None).forward
    pairs = PackedCoordinates(forward.shape[1], 2)
    target = np.where(pairs.tuples[0] == pairs.tuples[1], 1.0, 0.0)
    weights = components.weights
    lowest = np.sqrt(weights / np.where(weights > 0, _MAX_KURTOSIS, _MIN_KURTOSIS))
    powers = pairs.powers(forward.T @ components.vectors)
    scales = np.linalg.norm(powers, axis=0)  # so that all unknowns are of the size of 1
    solved = lsq_linear(powers / scales, target, bounds=(lowest * scales, np.inf)).x / scales
    kurtosis = np.clip(weights / solved**2, _MIN_KURTOSIS, _MAX_KURTOSIS)
    return np.asarray(components.vectors * np.sqrt(solved)), np.asarray(kurtosis)
