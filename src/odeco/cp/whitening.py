"""Whitening: it makes linearly independent components orthogonal, and leads back from what was
found.

Let T = Σ tᵢ aᵢ⊗ᵖ and M = Σ mᵢ aᵢ aᵢᵀ share their vectors, let every mᵢ be positive, and let Wᵀ M W
= I. Then the whitened tensor T(W, …, W) has the orthonormal components bᵢ = √mᵢ Wᵀ aᵢ with weights
tᵢ mᵢ^(−p/2). The transposed pseudo-inverse B of W leads back: B bᵢ = √mᵢ aᵢ.

M is a second moment that the user knows, or it is made from the tensor alone. Every slice T(I, I,
θ, …, θ) has the form Σ mᵢ aᵢ aᵢᵀ, but its mᵢ may have either sign. The paper's Appendix B takes one
random slice, and so finds only the *span* of the components. Because the aᵢ are independent, some
linear combination of slices is positive definite. Finding it is a concave problem: `positive_slice`
maximises the smallest eigenvalue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

# it imports its submodules when they are used; importing optimize takes longer than importing odeco
import scipy
from scipy.special import logsumexp, softmax

from odeco._util.arguments import as_generator, check_n_components, check_unmasked
from odeco._util.types import FloatArray, RngLike
from odeco.tensors.components import Components
from odeco.tensors.oracle import Oracle

#: Directions that are weaker than this share of the strongest direction count as rounding error.
_RANK_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Whitener:
    """A linear map W (d x k) to coordinates in which components are orthonormal, and the way back.

    Attributes
    ----------
    forward : array, d x k
        The map W.
    backward : array, d x k
        The map B that leads back: Wᵀ B = I.
    """

    forward: FloatArray
    backward: FloatArray

    @classmethod
    def from_moment(cls, moment: Any, n_components: int) -> Whitener:
        """Return the whitener of the k strongest directions of a symmetric d x d second moment."""
        check_unmasked(moment, "second moment")
        matrix = np.asarray(moment, dtype=np.float64)
        if (
            matrix.ndim != 2
            or matrix.shape[0] != matrix.shape[1]
            or not np.allclose(matrix, matrix.T)
        ):
            raise ValueError(
                f"A second moment must be a symmetric d x d matrix. Got shape {matrix.shape}."
            )
        k = check_n_components(n_components, matrix.shape[0])
        eigenvalues, eigenvectors = np.linalg.eigh(matrix)
        top = eigenvalues[::-1][:k]
        basis = eigenvectors[:, ::-1][:, :k]
        n_positive = int(np.sum(top > _RANK_TOLERANCE * max(top[0], 0.0)))
        if n_positive < k:
            raise ValueError(
                f"A second moment must have {k} positive eigenvalues to whiten {k} components. It "
                f"has {n_positive}. Lower n_components, or pass the moment of the same components "
                "as the tensor."
            )
        return cls(basis / np.sqrt(top), basis * np.sqrt(top))

    @classmethod
    def from_tensor(
        cls,
        oracle: Oracle,
        n_components: int,
        *,
        span: Literal["images", "slice"] = "images",
        rng: RngLike = None,
    ) -> Whitener:
        """Return a whitener made from the tensor alone.

        Parameters
        ----------
        oracle : Oracle
            The tensor. It is asked about some dozens of vectors for each component.
        n_components : int
            The rank k of the tensor.
        span : {"images", "slice"}
            How the span of the components is found. ``"images"``: from two rounds of images of
            random vectors. ``"slice"``: from the strongest directions of one random slice, as in
            Appendix B of the paper.
        rng : None, int or numpy.random.Generator
            Draws the random vectors.
        """
        generator = as_generator(rng)
        k = check_n_components(n_components, oracle.dimension)
        if span == "slice":
            basis = _slice_span(oracle, k, generator)
        else:
            basis = _image_span(oracle, k, generator)
        moment = positive_slice(Whitened(oracle, cls(basis, basis)), generator)
        inner = cls.from_moment(moment, k)
        return cls(basis @ inner.forward, basis @ inner.backward)

    def unwhiten(self, components: Components) -> Components:
        """Return components of the whitened tensor as components of the tensor itself."""
        # These vectors are not of unit length. Components moves their length into the weight: tᵢ =
        # ωᵢ ‖B bᵢ‖ᵖ.
        return Components(components.weights, self.backward @ components.vectors, components.order)


@final
class Whitened(Oracle):
    """T(W, W, …, W): the tensor in the coordinates of a whitener, of dimension k.

    Parameters
    ----------
    oracle : Oracle
        The tensor T.
    whitener : Whitener
        The change of coordinates W.
    """

    def __init__(self, oracle: Oracle, whitener: Whitener) -> None:
        self.oracle = oracle
        self.whitener = whitener
        self.dimension = whitener.forward.shape[1]
        self.order = oracle.order
        self.exact = oracle.exact
        self.rounding = oracle.rounding

    def _image(self, block: FloatArray) -> FloatArray:
        return self.whitener.forward.T @ self.oracle.image(self.whitener.forward @ block)

    def _slice(self, direction: FloatArray) -> FloatArray:
        forward = self.whitener.forward
        return forward.T @ self.oracle.slice(forward @ direction) @ forward

    def _inside(self, basis: FloatArray) -> FloatArray:
        return self.oracle.inside(self.whitener.forward @ basis)


def positive_slice(oracle: Oracle, rng: RngLike = None) -> FloatArray:
    """Return the combination of slices of a full-rank tensor whose smallest eigenvalue is largest.

    The smallest eigenvalue is a concave function of the coefficients. The smooth minimum −log Σ
    exp(−βλᵢ) / β of the eigenvalues is maximised in its place, for growing β.
    """
    generator = as_generator(rng)
    directions = generator.standard_normal((2 * oracle.dimension, oracle.dimension)) / np.sqrt(
        oracle.dimension
    )
    slices = np.stack([oracle.slice(direction) for direction in directions])
    slices /= np.abs(np.linalg.eigvalsh(slices)).max()

    def loss(coefficients: FloatArray, sharpness: float) -> tuple[float, FloatArray]:
        length = np.linalg.norm(coefficients)
        unit = coefficients / length
        eigenvalues, eigenvectors = np.linalg.eigh(np.tensordot(unit, slices, axes=1))
        smooth_minimum = -logsumexp(-sharpness * eigenvalues) / sharpness
        mixture = (eigenvectors * softmax(-sharpness * eigenvalues)) @ eigenvectors.T
        gradient = np.tensordot(slices, mixture, axes=2)
        return -smooth_minimum, -(gradient - (gradient @ unit) * unit) / length

    coefficients = generator.standard_normal(len(slices))
    for sharpness in (10.0, 100.0, 1000.0):
        coefficients = scipy.optimize.minimize(
            loss, coefficients, args=(sharpness,), jac=True, method="L-BFGS-B"
        ).x
    best: FloatArray = np.tensordot(coefficients / np.linalg.norm(coefficients), slices, axes=1)
    smallest = float(np.linalg.eigvalsh(best)[0])
    if smallest <= _RANK_TOLERANCE:
        raise ValueError(
            f"The tensor must have {oracle.dimension} linearly independent components to be "
            f"whitened from itself. Its best slice has a smallest eigenvalue of {smallest:.1e} "
            "times the largest. Lower n_components, or pass a second moment."
        )
    return best


def _image_span(oracle: Oracle, n_components: int, generator: np.random.Generator) -> FloatArray:
    """Return an orthonormal basis of the span of the components, in which every image lies.

    The second round asks about vectors inside the span that the first round found. Their images are
    larger by a factor of about d / k, and the noise is the same.
    """
    width = 4 * n_components + 10
    basis = _top_directions(
        oracle.image(generator.standard_normal((oracle.dimension, width))), n_components
    )
    inside = basis @ generator.standard_normal((n_components, width))
    return _top_directions(oracle.image(inside), n_components)


def _slice_span(oracle: Oracle, n_components: int, generator: np.random.Generator) -> FloatArray:
    direction = generator.standard_normal(oracle.dimension)
    return _top_directions(oracle.slice(direction / np.linalg.norm(direction)), n_components)


def _top_directions(matrix: FloatArray, count: int) -> FloatArray:
    left, strengths, _ = np.linalg.svd(matrix, full_matrices=False)
    n_strong = int(np.sum(strengths > _RANK_TOLERANCE * strengths[0]))
    if n_strong < count:
        raise ValueError(
            f"The components must span {count} dimensions to be whitened. Their images span "
            f"{n_strong}. Lower n_components to {n_strong}."
        )
    return left[:, :count]
