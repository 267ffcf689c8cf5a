"""One random slice and its eigenvectors: the method of the paper's Appendix B."""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._arguments import as_generator, check_n_components
from odeco._types import FloatArray, RngLike
from odeco.components import Components
from odeco.tensors import as_oracle


def random_slice(tensor: Any, n_components: int, *, rng: RngLike = None) -> Components:
    """Return the top eigenvectors of T(I, I, θ, …, θ) for one random unit vector θ.

    For orthogonal components the slice is Σ λᵢ ⟨vᵢ, θ⟩ᵖ⁻² vᵢ vᵢᵀ, so its eigenvectors are the vᵢ. The overlaps ⟨vᵢ, θ⟩
    are about 1/√d, and two eigenvalues can lie close together. Both make the method fragile under noise.

    Parameters
    ----------
    tensor : array or Oracle
        A symmetric tensor with orthogonal components.
    n_components : int
        The number k of components.
    rng : None, int or numpy.random.Generator
        Draws θ.

    References
    ----------
    Wang and Anandkumar 2016, arXiv:1606.06237, Appendix B.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from odeco.baselines import random_slice
    >>> random_slice(odeco.Components([2.0, 1.0], np.eye(3)[:, :2]), 2, rng=0).weights.round(6)
    array([2., 1.])
    """
    oracle = as_oracle(tensor)
    k = check_n_components(n_components, oracle.dimension)
    theta = as_generator(rng).standard_normal(oracle.dimension)
    eigenvalues, eigenvectors = np.linalg.eigh(oracle.slice(theta / np.linalg.norm(theta)))
    top = np.argsort(-np.abs(eigenvalues))[:k]
    return positive_components(oracle.value(eigenvectors[:, top]), eigenvectors[:, top], oracle.order)


def positive_components(values: FloatArray, vectors: FloatArray, order: int) -> Components:
    """Return components sorted by weight; at odd orders a vector's sign is turned so that its weight is positive."""
    signs = np.where(values < 0, -1.0, 1.0) if order % 2 == 1 else np.ones_like(values)
    found = Components(values * signs, vectors * signs, order)
    first = found.largest_first()
    return Components(found.weights[first], found.vectors[:, first], order)
