"""The CP fit of a symmetric tensor: one vector per component.

With xᵢ = |λᵢ|^(1/p) vᵢ and the signs sᵢ of the weights, the misfit is ½‖T − Σ sᵢ xᵢ⊗ᵖ‖². Its
gradient takes one image of the k vectors. Its Gauss-Newton matrix takes none (`odeco.power.steps`),
so a step costs one image and O(d k² + n k³) besides.

If the noise has the same variance at every unit vector, a least-squares fit has the covariance σ²
H⁻¹ for small noise. Its part across the span of the components has a closed form. Its part in the
span has k² unknowns: up to a number of components the system is solved exactly; beyond it, the
effect of one component's error on the others is neglected, or, if there are more components than
dimensions and so much of it, estimated by random probes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
import scipy  # it imports its submodules when they are used

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.fit import real_eigenvectors
from odeco.cp.problem import CPProblem
from odeco.cp.rank import SIGNIFICANCE, NoiseLaw, symmetric_noise
from odeco.cp.spectrum import Spectra, spectrum_of, tracy_widom_chance
from odeco.cp.whitening import Whitened, Whitener
from odeco.power.power_method import Schedule, run
from odeco.power.steps import conjugate_gradients, gauss_newton_step
from odeco.tensors.components import Components
from odeco.tensors.dense import DenseTensor, symmetrize
from odeco.tensors.oracle import Oracle

#: A core with more entries than this is not formed.
_MAX_ENTRIES = 2**25

#: A residual with more entries than this is not formed.
_MAX_RESIDUAL_ENTRIES = 2**22

#: Up to this number of components the system in their span is solved exactly for the errors: it has
#: k² unknowns, or d k if there are more components than dimensions.
_MAX_EXACT = 24

#: From this number of unknowns on, a matrix whose Cholesky factor has a diagonal down to this share
#: of its largest number is inverted by it.
_MANY_UNKNOWNS = 100
_WELL_CONDITIONED = 1e-4

#: The number of probes that estimate the diagonal of the inverse of a larger system.
_N_PROBES = 16


#: With as many components as dimensions or more: the number of those with the largest angles to
#: hide a pair in, where it is computed what the others make up for, and the least share that they
#: leave.
_N_WORST = 8
_LEAST_SHARE = 1e-3


class SymmetricProblem(CPProblem):
    """A symmetric tensor and the least-squares fit of its components."""

    def __init__(self, oracle: Oracle, whole: float = 0.0) -> None:
        self.oracle = oracle
        self.whole = whole
        self.order = oracle.order

    @property
    def noise(self) -> NoiseLaw:
        """The law of the largest value of noise on the sphere."""
        return symmetric_noise(self.oracle.dimension, self.order)

    def as_points(self, components: Components) -> tuple[FloatArray, FloatArray]:
        """Return signs, and vectors scaled by the p-th root of their weight; at odd orders the
        vector has the sign.
        """
        weights = components.weights
        vectors = components.vectors
        signs = np.where(weights < 0, -1.0, 1.0)
        if self.order % 2:
            vectors = vectors * signs
            signs = np.ones_like(signs)
        return signs, vectors * np.abs(weights) ** (1 / self.order)

    def from_points(self, signs: FloatArray, points: FloatArray) -> Components:
        """Return the components that these points stand for."""
        lengths = np.linalg.norm(points, axis=0)
        return Components(signs * lengths**self.order, points / lengths, self.order)

    def image(self, points: FloatArray) -> FloatArray:
        """Return T(I, x, …, x)."""
        return self.oracle.image(points)

    def gain(self, signs: FloatArray, points: FloatArray, images: FloatArray) -> float:
        """Return 2⟨T, C⟩ − ‖C‖²."""
        with one_blas_thread():
            gram: FloatArray = points.T @ points
        return float(
            2 * signs @ np.einsum("il,il->l", points, images) - signs @ gram**self.order @ signs
        )

    def descent(self, signs: FloatArray, points: FloatArray, images: FloatArray) -> FloatArray:
        """Return s T(I, x, …, x) − s C(I, x, …, x)."""
        with one_blas_thread():
            gram: FloatArray = points.T @ points
            descent: FloatArray = signs * images - points @ (
                (signs[:, None] * signs) * gram ** (self.order - 1)
            )
        return descent

    def step(
        self, signs: FloatArray, points: FloatArray, descent: FloatArray, damping: float
    ) -> FloatArray:
        """Return the damped Gauss-Newton step."""
        return gauss_newton_step(points, signs, descent, self.order, damping=damping)

    def residuals(
        self, components: Components, points: FloatArray, images: FloatArray
    ) -> FloatArray:
        """Return ‖T(I, v, …, v) − C(I, v, …, v)‖."""
        lengths = np.linalg.norm(points, axis=0)
        misfit = images / lengths ** (self.order - 1) - components.image(components.vectors)
        lengths_of_misfit: FloatArray = np.linalg.norm(misfit, axis=0)
        return lengths_of_misfit

    def gram(self, vectors: FloatArray) -> FloatArray:
        """Return ⟨v, w⟩ᵖ."""
        with one_blas_thread():
            gram: FloatArray = vectors.T @ vectors
        return gram**self.order

    def values(self, vectors: FloatArray) -> FloatArray:
        """Return T(v, …, v)."""
        return self.oracle.value(vectors)

    @property
    def n_identifiable(self) -> int:
        """The largest number of components that a random tensor determines, by the count of entries
        and unknowns.

        It is below C(d+p−1, p) / d (Chiantini, Ottaviani and Vannieuwenhoven 2017; one exception at
        order 3: d = 6, k = 9).
        """
        dimension = self.oracle.dimension
        order = self.order
        most = -(-math.comb(dimension + order - 1, order) // dimension) - 1
        if (dimension, order, most) == (6, 3, 9):
            return most - 1
        return most

    @cached_property
    def _unfolding_gram(self) -> FloatArray | None:
        return self.oracle.unfolding_gram()

    @property
    def has_entries(self) -> bool:
        """Whether the entries can be had: they are few enough, and known in double precision."""
        oracle = self.oracle
        few = oracle.dimension**self.order <= _MAX_RESIDUAL_ENTRIES
        return (
            few
            and oracle.rounding <= float(np.finfo(np.float64).eps)
            and self._unfolding_gram is not None
        )

    @cached_property
    def _entries(self) -> FloatArray:
        return self.oracle.inside(np.eye(self.oracle.dimension))

    def misfit(self, components: Components) -> float:
        """Return ‖T − C‖² from the entries."""
        return float(np.sum((self._entries - components.to_dense()) ** 2))

    def residual(self, components: Components) -> SymmetricProblem:
        """Return the tensor minus components from its entries."""
        return SymmetricProblem(DenseTensor(symmetrize(self._entries - components.to_dense())))

    def without(self, components: Components) -> SymmetricProblem:
        """Return the tensor minus components."""
        return SymmetricProblem(self.oracle - components)

    def test_pairs(self, components: Components, deviation: float) -> tuple[float, float]:
        """Return the probability that noise makes a component look like two, and the resolution.

        A fit of one component to two components λ/2 at v ± t s leaves about λ t² C(p, 2) times the
        symmetric part of v⊗ᵖ⁻² ⊗ s ⊗ s, so that s is an eigenvector of the residual R(I, I, v, …,
        v) across v. For noise of standard deviation σ at a unit vector this is a matrix of the
        Gaussian orthogonal ensemble, with variance σ² / 2C(p, 2) off its diagonal. Its largest
        eigenvalue follows the law of Tracy and Widom, which is close to a gamma law (Chiani 2014).
        The smallest probability is multiplied by the number of tests: components times signs.

        Two components are linearly independent of the others only if s is not in the span of all
        components. Across this span, what they leave is orthogonal to every change of the
        components: no other component makes up for it. So R(s, s, v, …, v) is λ t² plus noise of
        variance σ² / C(p, 2), and is at most the largest eigenvalue there. Weights a and b instead
        of λ/2 and λ/2, at an angle θ, leave ab / (a + b) θ² instead of λ t².

        As many components as dimensions, or more, leave no direction across their span, and s may
        be any direction across v. The others then make up for a part of what two components leave:
        see `_share_left`.
        """
        d = self.oracle.dimension
        k = components.n_components
        n_kinds = math.comb(self.order, 2)
        if not self.has_entries or d < 3 or k == 0:
            return 1.0, math.nan
        residual = self.oracle - components
        with one_blas_thread():
            curvatures = [residual.slice(vector) for vector in components.vectors.T]
            acrosses = [np.eye(d) - np.outer(vector, vector) for vector in components.vectors.T]
            pairs = zip(acrosses, curvatures, strict=True)
            across_each = [across @ curved @ across for across, curved in pairs]
            heights = np.array([np.linalg.norm(curved, 2) for curved in across_each])
            largest = float(np.max(heights))
            share = 1.0
            if k < d:
                span = np.linalg.qr(components.vectors)[0]
                outside = np.eye(d) - span @ span.T
                heights = np.array(
                    [np.linalg.norm(outside @ curved @ outside, 2) for curved in curvatures]
                )
            most = heights - scipy.special.ndtri(SIGNIFICANCE) * deviation / math.sqrt(n_kinds)
            if k >= d:
                worst = np.argsort(-most / np.abs(components.weights))[:_N_WORST]
                share = min(
                    _share_left(components, int(index), across_each[index]) for index in worst
                )
        height = (largest / (deviation / math.sqrt(2 * n_kinds)) - 2 * math.sqrt(d - 1)) * (
            d - 1
        ) ** (1 / 6)
        resolution = min(
            2 * math.sqrt(float(np.max(most / np.abs(components.weights))) / share), math.pi / 2
        )
        return min(1.0, 2 * k * tracy_widom_chance(height)), resolution

    def run(self, plan: Schedule, generator: np.random.Generator) -> Components:
        """Return what the power method finds."""
        return run(self.oracle, plan, rng=generator).components

    def spectra(self, width: int, generator: np.random.Generator) -> Spectra:
        """Return the spectrum of the unfolding, or of the images of at least `width` random
        vectors.
        """
        unfolding = self._unfolding if self.has_entries else None
        return Spectra(
            (spectrum_of(self.oracle, width, generator, self._unfolding_gram, unfolding),)
        )

    def _unfolding(self) -> FloatArray:
        return self._entries.reshape(self.oracle.dimension, -1)

    def inside(self, bases: Sequence[FloatArray]) -> SymmetricProblem:
        """Return the tensor in the coordinates of an orthonormal basis, as entries if they are few
        enough.
        """
        (basis,) = bases
        if basis.shape[1] ** self.order > _MAX_ENTRIES:
            core: Oracle = Whitened(self.oracle, Whitener(basis, basis))
        else:
            core = DenseTensor(symmetrize(self.oracle.inside(basis)))
        known = core.squared_norm()
        return SymmetricProblem(core, self.whole if known is None else known)

    def outside(self, bases: Sequence[FloatArray], components: Components) -> Components:
        """Return components of the core as components of the tensor."""
        return Components(components.weights, bases[0] @ components.vectors, self.order)

    def divided(self, scales: Sequence[FloatArray]) -> SymmetricProblem:
        """Return the tensor in coordinates that are divided by the scales."""
        (scale,) = scales
        if not isinstance(self.oracle, DenseTensor):
            return SymmetricProblem(
                Whitened(self.oracle, Whitener(np.diag(1 / scale), np.diag(scale)))
            )
        entries = self.oracle.entries
        for axis in range(self.order):
            entries = entries / scale.reshape((-1,) + (1,) * (self.order - 1 - axis))
        return SymmetricProblem(DenseTensor(symmetrize(entries)))

    def slice_vectors(self, rank: int, generator: np.random.Generator) -> FloatArray:
        """Return the eigenvectors of a random slice."""
        with one_blas_thread():
            vectors: FloatArray = np.linalg.eigh(
                self.oracle.slice(generator.standard_normal(rank))
            )[1]
        return vectors

    def pencil_vectors(self, rank: int, attempt: int, generator: np.random.Generator) -> FloatArray:  # noqa: ARG002
        """Return the vectors that solve the eigenvalue problem of a random pencil of slices."""
        first, second = (self.oracle.slice(generator.standard_normal(rank)) for _ in range(2))
        with one_blas_thread():
            return real_eigenvectors(scipy.linalg.lstsq(second, first)[0].T)

    def normalised(self, directions: FloatArray, generator: np.random.Generator) -> FloatArray:  # noqa: ARG002
        """Return unit vectors; those along the axes in place of zeros."""
        lengths = np.linalg.norm(directions, axis=0)
        return np.where(
            lengths > 0, directions / np.where(lengths > 0, lengths, 1.0), np.eye(*directions.shape)
        )


def _share_left(components: Components, index: int, curved: FloatArray) -> float:
    """Return the share of what a pair leaves that no change of the components makes up for.

    For a component v and the direction s of its largest curvature, a pair leaves Q, the symmetric
    part of v⊗ᵖ⁻² ⊗ s ⊗ s. Its projection onto all changes Σ p vⱼ⊗ᵖ⁻¹ ⊗ Δⱼ has the squared norm ⟨B,
    H⁻¹B⟩ with the Gauss-Newton matrix H of `standard_errors` and B = p Q(I, vⱼ, …, vⱼ).
    """
    order = components.order
    vectors = components.vectors
    values, directions = np.linalg.eigh(curved)
    v = vectors[:, index]
    s = directions[:, int(np.argmax(np.abs(values)))]
    along = v @ vectors
    beside = s @ vectors
    n_kinds = math.comb(order, 2)
    gram: FloatArray = vectors.T @ vectors
    inner = order * gram ** (order - 1)
    outer = order * (order - 1) * gram ** (order - 2)
    # p times the part of Q in which the open index is one of the two s, or one of the p − 2 v
    target = np.outer(s, 2 * along ** (order - 2) * beside)
    target += np.outer(v, (order - 2) * along ** (order - 3) * beside**2)
    solved = _solve(vectors, inner, outer, _inverse(inner), target)
    share = 1 - float(np.vdot(target, solved)) * n_kinds  # ‖Q‖² = 1 / C(p, 2)
    return min(max(share, _LEAST_SHARE), 1.0)


def standard_errors(components: Components, deviation: float) -> tuple[FloatArray, FloatArray]:
    """Return the standard errors of weights and of vectors, the latter as angles in radians, at
    most π/2.

    `deviation` is the standard deviation of the noise at a unit vector.
    """
    if components.n_components == 0:
        return np.zeros(0), np.zeros(0)
    along, turned = _variances(components)
    angles = np.minimum(deviation * np.sqrt(turned) / np.abs(components.weights), math.pi / 2)
    weights: FloatArray = deviation * np.sqrt(np.maximum(along, 0.0)) * components.order
    return weights, angles


@lru_cache(
    maxsize=1
)  # for many components they take long, and those of a fit are asked for several times
def _variances(components: Components) -> tuple[FloatArray, FloatArray]:
    """Return the variances of λᵢ times the error of vᵢ, along vᵢ and across it, for noise of
    variance 1.
    """
    order = components.order
    k = components.n_components
    dimension = components.dimension
    # With unit vectors for points, the unknowns are λᵢ times the error of vᵢ, and no weight occurs
    # in H: components of very different weights do not make it ill-conditioned.
    vectors = components.vectors
    with one_blas_thread():
        gram: FloatArray = vectors.T @ vectors
        inner = order * gram ** (order - 1)
        outer = order * (order - 1) * gram ** (order - 2)
        across = np.diagonal(_inverse(inner))
        n_inside = min(k, dimension)
        if min(k, dimension) * k <= _MAX_EXACT**2:
            basis, root = np.linalg.qr(vectors)
            n_inside = basis.shape[1]
            matrix = np.einsum("ab,ij->aibj", np.eye(n_inside), inner) + np.einsum(
                "aj,ji,bi->aibj", root, outer, root
            )
            size = n_inside * k
            covariance = _inverse(matrix.reshape(size, size)).reshape(n_inside, k, n_inside, k)
            blocks = np.einsum("aibi->iab", covariance)
            along = np.einsum("ai,iab,bi->i", root, blocks, root)
            beside = np.einsum("iaa->i", blocks) - along
        elif k > dimension:
            along, beside = _estimated_variances(vectors, inner, outer)
        else:  # H has the own second term of each component, which counts (p − 1) times along it
            along = across / order
            beside = (n_inside - 1) * across
    turned: FloatArray = np.maximum(beside + (dimension - n_inside) * across, 0.0)
    return along, turned


def _estimated_variances(
    vectors: FloatArray, inner: FloatArray, outer: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return estimates of the diagonal blocks of H⁻¹ for more components than dimensions: along vᵢ,
    and beside it.

    For random signs z the mean of z ∘ H⁻¹z is the diagonal of H⁻¹ (Hutchinson). Probes sᵢ vᵢ with
    random signs sᵢ give the part along vᵢ, probes with random entries the trace.
    """
    generator = np.random.default_rng(0)
    preconditioner = _inverse(inner)

    def products_with_inverse(probe: FloatArray) -> FloatArray:
        solved = _solve(vectors, inner, outer, preconditioner, probe)
        products: FloatArray = np.einsum("il,il->l", probe, solved)
        return products

    along = np.zeros(vectors.shape[1])
    trace = np.zeros(vectors.shape[1])
    for _ in range(_N_PROBES):
        along += (
            products_with_inverse(vectors * generator.choice([-1.0, 1.0], vectors.shape[1]))
            / _N_PROBES
        )
        trace += products_with_inverse(generator.choice([-1.0, 1.0], vectors.shape)) / _N_PROBES
    # The diagonal of an inverse is at least the inverse of the diagonal: no estimate may be below
    # that.
    least = 1 / (np.diagonal(inner) + np.diagonal(outer))
    along = np.maximum(along, least)
    beside = np.maximum(trace - along, (vectors.shape[0] - 1) / np.diagonal(inner))
    return along, beside


def _solve(
    vectors: FloatArray,
    inner: FloatArray,
    outer: FloatArray,
    preconditioner: FloatArray,
    target: FloatArray,
) -> FloatArray:
    """Return H⁻¹ times a target to two digits, which is enough for an error, by conjugate
    gradients.
    """

    def product(step: FloatArray) -> FloatArray:
        return step @ inner + vectors @ (outer * (step.T @ vectors))

    return conjugate_gradients(
        product, target, lambda residual: residual @ preconditioner, tolerance=1e-2
    )


def _inverse(matrix: FloatArray) -> FloatArray:
    """Return the inverse of a positive semidefinite matrix. What is not determined gets a huge
    variance, not none.
    """
    if len(matrix) >= _MANY_UNKNOWNS:  # a fifth of the time of eigenvectors
        root, failed = scipy.linalg.lapack.dpotrf(matrix, lower=1)
        if not failed and np.min(np.diagonal(root)) > _WELL_CONDITIONED * np.max(np.diagonal(root)):
            lower = np.tril(scipy.linalg.lapack.dpotri(root, lower=1)[0])
            symmetric: FloatArray = lower + np.tril(lower, -1).T
            return symmetric
    values, vectors = np.linalg.eigh(matrix)
    inverse: FloatArray = (
        vectors / np.maximum(values, np.finfo(np.float64).eps * values[-1])
    ) @ vectors.T
    return inverse
