"""Sources are found under differential privacy: from noisy moments of clipped rows, and from
nothing else.

1. The second moment of rows, with their mean: the directions in which rows vary, and about how
   much.
2. The second moment of rows whitened by it and clipped: noise that hides a weak direction beside
   strong ones does not hide it here.
3. All moments up to the fourth of rows whitened by both and clipped. Their own second moment
   whitens them once more, and the cumulants of order three and four follow.

If no bound on the norm of rows is known, noisy counts of rows by their norm come first, and give
one; or noisy counts of numbers by column, which give centres and scales to standardise rows by.

Everything after the releases is post-processing. As without privacy, all sources are the
orthonormal vectors that raise Σ κ₃²/v₃ + κ₄²/v₄ (`odeco.models.ica.unmixing`), where v₃ and v₄ are
the variances of a third and a fourth cumulant of Gaussian rows: those of sampling, 6/n and 24/n,
and those of the noise. What clipping does to the kurtosis of Gaussian rows is subtracted. A source
stands clear if one of its cumulants exceeds what noise of these variances reaches anywhere on the
sphere. Others are taken for Gaussian. There are no rows to fit a density to, so every source has
the density with its fourth cumulant that more sources than columns have
(`odeco.models.ica.overcomplete`). The same program on simulated rows is the plan, which needs no
real row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import chi2

from odeco._util.arguments import check_count, check_number
from odeco._util.threads import one_blas_thread
from odeco._util.types import BoolArray, FloatArray
from odeco.models.engine.private import (
    PrivatePlan,
    Releaser,
    Simulated,
    hold_simulated,
    in_units,
    moment_of_seconds,
    plan_fit,
)
from odeco.models.ica.likelihood import draw_sources
from odeco.models.ica.overcomplete import histograms_of
from odeco.models.ica.unmixing import Unmixing, ascend, with_positive_mixing
from odeco.privacy.found import noise_ceiling
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.protocol import NeighbourRelation
from odeco.privacy.holders.rows import CONSTANT, BoundedRows, UnboundedRows
from odeco.tensors.coordinates import PackedCoordinates, places_of

#: The shares of μ² of the second moment of rows, of the second moment of whitened rows, and of the
#: fourth. These and the next two numbers were chosen among ten settings on planted sources: k = 3
#: to 10, ε = 1, 3,000 to 20,000 rows.
_SHARES = (0.2, 0.15, 0.65)

#: Whitened rows of k coordinates have a squared norm of k on average. Those with more than k + this
#: √k are clipped, or fewer if the noise in a fourth moment is then still below the second number.
_FAR = 2.0
_NOISE = 0.03

#: The squared constant coordinate of whitened rows, as a share of their squared radius.
_CONSTANT = 0.2

#: Starts of the search for sources.
_N_STARTS = 8


def find_private_sources(
    held: BoundedRows | UnboundedRows,
    releaser: Releaser,
    n_components: int,
    *,
    standardize: bool = False,
    seed: int,
) -> tuple[Unmixing, int]:
    """Return the unmixing matrix of k sources, learnt from noisy moments, and how many stand clear
    of the noise.

    Parameters
    ----------
    held : BoundedRows or UnboundedRows
        The holder of the rows.
    releaser : Releaser
        Releases sums with noise.
    n_components : int
        Number k of sources; if it is below the number of columns, those of the leading directions.
    standardize : bool
        Whether columns are centred and divided by their standard deviations, both chosen under
        privacy.
    seed : int
        Seed of the starts; the noise does not depend on it.
    """
    n = held.n_records
    d = held.n_features
    k = n_components
    held, centre, scale, (of_rows, of_white, of_fourths) = in_units(
        held, releaser, _SHARES, standardize
    )
    packed, deviation = releaser.release(held.seconds(), share=of_rows)
    moment = moment_of_seconds(packed, n, d)
    # The largest eigenvalue of the noise: a direction with less variance is whitened as if it had
    # that much.
    least = max(deviation * math.sqrt(2 * d) / n, float(np.finfo(np.float64).tiny))
    values, vectors = np.linalg.eigh(moment.covariance)
    roots = np.sqrt(np.maximum(values, least))
    frame = Frame(moment.mean, vectors[:, -k:] / roots[-k:], vectors[:, -k:] * roots[-k:])
    # The noise in a fourth moment for a radius of 1: both releases are sums of numbers that are not
    # negative, so that the noise of one follows from that of the other.
    noise = (
        deviation / n * math.sqrt(of_rows / of_fourths) * (1 + _CONSTANT) ** 2 / (1 + CONSTANT**2)
    )
    radius = math.sqrt(max(k + _FAR * math.sqrt(k), math.sqrt(_NOISE / noise)))
    left, excess = clipped_gaussian(k, radius)
    packed, deviation = releaser.release(
        held.seconds(frame.mean, frame.forward / radius), share=of_white
    )
    moment = moment_of_seconds(packed, n, k)
    least = radius**2 * deviation * math.sqrt(2 * k) / n
    frame = frame.refined(
        radius * moment.mean, *whitened(radius**2 / left * moment.covariance, least / left)
    )
    constant = radius * math.sqrt(_CONSTANT)
    packed, deviation = releaser.release(
        held.fourths(frame.mean, frame.forward, radius, constant), share=of_fourths
    )
    cumulants = Cumulants.of(packed / n, k, constant, deviation / n, n, excess)
    frame = frame.refined(
        cumulants.mean, cumulants.forward * math.sqrt(left), cumulants.backward / math.sqrt(left)
    )
    directions, third, fourth, clear = cumulants.sources(seed)
    third = np.where(clear, third, 0.0)
    fourth = np.where(clear, fourth, 0.0)
    # The Fisher information of a density that is nearly Gaussian.
    information = 1 + third**2 / 2 + fourth**2 / 6
    order = np.argsort(-information, kind="stable")
    # Rows are in units of the bound. The model has rows over powers of two, as large as these are.
    unit, exponents = np.frexp(held.norm_bound * scale)
    inside = frame.backward
    outside = vectors[:, :-k] * roots[:-k]
    covariance = np.outer(unit, unit) * (inside @ inside.T + outside @ outside.T)
    exponents = exponents.astype(np.int64)
    model = Unmixing(
        exponents,
        np.ldexp(centre, -exponents) + unit * frame.mean,
        covariance,
        with_positive_mixing(
            (frame.forward @ directions[:, order]).T / unit, covariance, exponents
        ),
        frame.forward.T / unit,
        information[order],
        histograms_of(fourth[order]),
    )
    return model, int(clear.sum())


@dataclass(frozen=True, eq=False)
class Frame:
    """Coordinates z of rows x = mean + backward z, in which the rows are nearly white: z = (x −
    mean) forward.
    """

    mean: FloatArray
    forward: FloatArray
    backward: FloatArray

    def refined(self, mean: FloatArray, forward: FloatArray, backward: FloatArray) -> Frame:
        """Return the frame of z, which is given in coordinates of this one."""
        return Frame(
            self.mean + self.backward @ mean, self.forward @ forward, self.backward @ backward
        )


def whitened(covariance: FloatArray, least: float) -> tuple[FloatArray, FloatArray]:
    """Return the maps to whitened coordinates and back; variances below the least one count as this
    one.
    """
    values, vectors = np.linalg.eigh(covariance)
    roots = np.sqrt(np.maximum(values, least))
    return vectors / roots, vectors * roots


def clipped_gaussian(k: int, radius: float) -> tuple[float, float]:
    """Return the variance and the excess kurtosis, in any direction, of clipped standard Gaussian
    rows.

    The squared norm of a row follows the χ² law of k degrees of freedom, and its direction is
    uniform: the mean of the fourth power of a coordinate is 3/(k (k + 2)) times that of the fourth
    power of the norm.
    """
    most = radius**2
    beyond = float(chi2.sf(most, k))
    square = k * float(chi2.cdf(most, k + 2)) + most * beyond
    fourth = k * (k + 2) * float(chi2.cdf(most, k + 4)) + most**2 * beyond
    return square / k, 3 * (k * fourth / ((k + 2) * square**2) - 1)


@dataclass(frozen=True, eq=False)
class Cumulants:
    """The cumulants of released moments, in coordinates in which the second moment is the identity.

    Attributes
    ----------
    mean : array
        The mean of rows.
    forward, backward : array, k x k
        The maps to these coordinates and back.
    lifted : array, (k + 1) x k
        For y = (z, c), its product with a column is that of the centred z with a column of
        `forward`.
    third, fourth : array
        The cumulants of order 3 and 4.
    constant, noise, n_rows : float
        The constant c, the noise in each packed coordinate of the released mean, and the number of
        rows.
    """

    mean: FloatArray
    forward: FloatArray
    backward: FloatArray
    lifted: FloatArray
    third: FloatArray
    fourth: FloatArray
    constant: float
    noise: float
    n_rows: int

    @classmethod
    def of(
        cls,
        packed: FloatArray,
        k: int,
        constant: float,
        noise: float,
        n_rows: int,
        excess: float = 0.0,
    ) -> Cumulants:
        """Return the cumulants of the mean of `BoundedRows.fourths`, without the excess of clipped
        Gaussian rows.
        """
        tensor = unpacked(packed, k + 1)
        mean = tensor[:k, k, k, k] / constant**3
        covariance = tensor[:k, :k, k, k] / constant**2 - np.outer(mean, mean)
        # The largest eigenvalue of the noise; directions with less variance are lost in it.
        forward, backward = whitened(covariance, noise * math.sqrt(k / 3) / constant**2)
        lifted = np.vstack([forward, -mean @ forward / constant])
        third = tensor[..., k] / constant
        fourth = tensor
        for _ in range(3):
            third = np.tensordot(third, lifted, axes=(0, 0))
        for _ in range(4):
            fourth = np.tensordot(fourth, lifted, axes=(0, 0))
        own = forward.T @ covariance @ forward
        of_gaussian = (1 + excess / 3) * np.multiply.outer(own, own)
        for axes in ((0, 1, 2, 3), (0, 2, 1, 3), (0, 2, 3, 1)):
            fourth = fourth - of_gaussian.transpose(axes)
        return cls(mean, forward, backward, lifted, third, fourth, constant, noise, n_rows)

    def variances(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the variances of the third and the fourth cumulant of Gaussian rows along unit
        vectors.

        Those of sampling are 6/n and 24/n. A symmetric tensor S with noise of deviation σ in its
        packed coordinates has noise of deviation σ |a|⁴ in S(a, a, a, a). For the unit vector e of
        the constant and a at right angles to it, S(a, a, a, e), S(a, a, e, e) and S(a, e, e, e)
        have σ |a|³/2, σ |a|²/√6 and σ |a|/2, independently. They are divided by powers of c. The
        third cumulant is E[s³] − 3 E[s²] E[s] + … and the fourth E[s⁴] − 3 E[s²]² + …, so noise in
        the mean counts 3 times, and noise in the variance 6 times.
        """
        squares = np.sum((self.lifted @ vectors) ** 2, axis=0)
        noise = self.noise**2
        c = self.constant**2
        third = 6 / self.n_rows + noise / (4 * c) * (squares**3 + 9 * squares / c**2)
        return third, 24 / self.n_rows + noise * (squares**4 + 6 * squares**2 / c**2)

    def sources(self, seed: int) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
        """Return orthonormal directions, one per column, their cumulants of order 3 and 4, and
        which are clear.
        """
        k = len(self.mean)
        rng = np.random.default_rng(seed)

        def cumulants(vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
            pairs = (vectors[:, None] * vectors).reshape(k * k, -1)
            triples = (vectors[:, None] * pairs).reshape(k**3, -1)
            return self.third.reshape(k, -1) @ pairs, self.fourth.reshape(k, -1) @ triples

        found = []
        with one_blas_thread():
            for _ in range(_N_STARTS):
                first, second = rng.standard_normal((2, k))
                matrix = self.third @ first + self.fourth @ second @ second
                start = np.linalg.eigh((matrix + matrix.T) / 2)[1]
                found.append(ascend(cumulants, self.variances, start))
            vectors = max(found, key=lambda each: each[1])[0]
            third, fourth = (np.sum(image * vectors, axis=0) for image in cumulants(vectors))
        third_variances, fourth_variances = self.variances(vectors)
        clear = (np.abs(third) > noise_ceiling(3, k) * np.sqrt(third_variances)) | (
            np.abs(fourth) > noise_ceiling(4, k) * np.sqrt(fourth_variances)
        )
        return vectors, third, fourth, clear


def unpacked(packed: FloatArray, size: int) -> FloatArray:
    """Return the symmetric array of order 4 that has these packed coordinates."""
    coordinates = PackedCoordinates(size, 4)
    places = places_of(np.indices((size,) * 4).reshape(4, -1))
    return np.asarray((packed / coordinates.scales)[places].reshape((size,) * 4))


#: The largest number of sources of a private model: the fourth moment has more than k⁴/24 numbers.
MAX_SOURCES = 50

#: At most this many rows are simulated. The noise is scaled down to their number.
_MAX_SIMULATED = 50_000

#: A source counts as found if its correlation with the true one is at least this.
_FOUND = 0.95


def plan_sources(
    n_components: int | None = None,
    *,
    n_rows: int,
    n_features: int,
    epsilon: float,
    delta: float,
    kurtosis: float = 3.0,
    standardize: bool = False,
    norm_bound: float | Literal["auto"] | None = None,
    neighbour_relation: NeighbourRelation = "replace",
    seed: int = 0,
) -> PrivatePlan:
    """Say what private sources would be learnt from, and simulate how many would be found; no row
    is needed.

    Parameters
    ----------
    n_components : int, optional
        Number of sources, at most that of features; by default as many.
    n_rows, n_features : int
        Number of rows and of features.
    epsilon, delta : float
        The guarantee.
    kurtosis : float
        The fourth cumulant of every simulated source: 3 for the Laplace law, −1.2 for uniform
        numbers.
    standardize : bool
        As for `TensorICA`.
    norm_bound : float or "auto", optional
        As for `TensorICA`. Rows are simulated in units of the bound, so that only ``"auto"`` makes
        a difference.
    neighbour_relation : {"replace", "add_remove"}
        As for `TensorICA`.
    seed : int
        Of the simulation.

    Notes
    -----
    Simulated are sources with one density, mixed by matrices of independent normal entries; if
    there are more features than sources, with Gaussian noise of a tenth of their size; and a bound
    that one row in a hundred exceeds. Sources of real rows may be harder to find, or easier.

    Examples
    --------
    >>> from odeco.models import plan_sources
    >>> plan_sources(3, n_rows=50_000, n_features=3, epsilon=1.0, delta=1e-6).found
    True
    """
    d = check_count("n_features", n_features)
    n = check_count("n_rows", n_rows, 2)
    k = check_count("n_components", n_components or d, 1, min(d, MAX_SOURCES))
    kurtosis = check_number("kurtosis", kurtosis, -1.9, 60.0)
    guarantee = Guarantee(epsilon, delta)
    size = min(n, _MAX_SIMULATED)

    def program(simulated: Simulated, rng: np.random.Generator) -> FloatArray:
        mixing = rng.standard_normal((d, k))
        legacy = np.random.RandomState(int(rng.integers(2**31)))
        sources = draw_sources(histograms_of(np.full(k, kurtosis)), size, legacy).T
        rows = sources @ mixing.T
        if k < d:
            rows += 0.1 * math.sqrt(k) * rng.standard_normal((size, d))
        held = hold_simulated(rows, "auto" if standardize else norm_bound)
        releaser, seed = simulated(rng)
        found, _ = find_private_sources(held, releaser, k, standardize=standardize, seed=seed)
        return matched_correlations(found.sources(rows), sources)

    return plan_fit(
        program,
        guarantee,
        n,
        size,
        unit="row",
        neighbour_relation=neighbour_relation,
        rng=np.random.default_rng(seed),
        n_components=k,
        threshold=_FOUND,
        records=f"rows of {d:,} features, divided by the bound of their norm",
        verdict=f"of {k} simulated sources of kurtosis {kurtosis:g} {{number}} would be found "
        "(mean correlation {mean:.2f})",
    )


def matched_correlations(found: FloatArray, truth: FloatArray) -> FloatArray:
    """Return the correlation of each true source with the one that is matched to it, without its
    sign.
    """
    k = truth.shape[1]
    correlations = np.abs(np.corrcoef(found.T, truth.T)[:k, k:])
    return np.asarray(correlations[linear_sum_assignment(-correlations)])
