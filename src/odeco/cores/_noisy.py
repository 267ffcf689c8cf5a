"""Algorithm 1 deep in noise: starts that the tensor itself suggests, beside random ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from odeco._threads import one_blas_thread
from odeco._types import FloatArray
from odeco.components import Components
from odeco.cores._core import core_width
from odeco.search import Plan, Search, run, step
from odeco.tensors import DenseTensor, symmetrize

#: Random starts that are tried beside the informed ones.
_RANDOM_STARTS = 12


def decompose_noisy(tensor: DenseTensor, n_components: int, generator: np.random.Generator) -> Components:
    """Decompose a tensor deep in noise: Algorithm 1, with informed starts beside random ones.

    From a random start the power method needs a weight of order d times the noise of an entry. The leading left
    singular vectors of the d x d² unfolding lean towards the components from d^(3/4) on (Montanari and Richard 2014,
    arXiv 1411.1076), so Algorithm 1 inside their span gives starts for Algorithm 1 on the whole tensor.
    """
    d = tensor.dimension
    unfolding: FloatArray = tensor.entries.reshape(d, -1).astype(np.float64)
    basis = leading_directions(unfolding, core_width(d, n_components))
    core: FloatArray = unfolding.reshape(d, d, d)
    for _ in range(3):  # the last axis is contracted and becomes the first
        core = np.moveaxis(core @ basis, -1, 0)
    starts = basis @ decompose_core(core, n_components, generator).vectors
    plan = Plan(n_components, n_components + _RANDOM_STARTS, 40, tolerance=1e-6)
    search = Search.start(plan, parts=tensor.parts, rng=generator)
    while not search.done:
        if search.iteration == 0:
            search = replace(search, candidates=np.hstack([starts, search.candidates[:, n_components:]]))
        search = step(tensor, search)
    return search.components


def decompose_core(core: FloatArray, n_components: int, generator: np.random.Generator) -> Components:
    """Run Algorithm 1 on a noisy core."""
    plan = Plan.default(core.shape[0], n_components, tolerance=1e-8)
    return run(DenseTensor(symmetrize(core)), plan, rng=generator).components


def leading_directions(matrix: FloatArray, width: int) -> FloatArray:
    """Return the leading left singular vectors, from the smaller Gram matrix: noise keeps that well conditioned."""
    tall = matrix.shape[1] < matrix.shape[0]
    gram: FloatArray = matrix.T @ matrix if tall else matrix @ matrix.T
    with one_blas_thread():  # matrices this small are slowed down by threads that wait for each other
        leading = np.linalg.eigh(gram)[1][:, -width:]
        return np.linalg.qr(matrix @ leading)[0] if tall else leading
