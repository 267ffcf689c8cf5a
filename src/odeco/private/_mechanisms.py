"""The private mechanisms: what each asks, with which share of the budget, and what it makes of the answers.

Each asks a `DataHolder` through a `Releaser`, which pays and adds noise; everything else here is arithmetic on noisy
answers and public numbers, hence post-processing. None looks at the data to decide how often to ask, whether to stop,
or what to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from odeco._arguments import as_generator
from odeco._threads import one_blas_thread
from odeco._types import FloatArray, RngLike
from odeco.components import Components
from odeco.privacy import (
    MERGE_COSINE,
    DataHolder,
    Found,
    PrivateOracle,
    RecordLevel,
    Releaser,
    angles_of,
    found_in_core,
    highest_of,
    noise_ceiling,
    unpack,
)
from odeco.search import Plan, Search, run, step
from odeco.tensors import DenseTensor, symmetrize

#: Random starts beside the informed ones when a noisy tensor is decomposed.
RANDOM_STARTS = 12


# ---- noise at every iteration --------------------------------------------------------------------------------------


def by_separate_releases(
    holder: DataHolder, plan: Plan, releaser: Releaser, noise_multiplier: float, *, rng: RngLike = None
) -> Found:
    """Algorithm 3: noise on every image of every candidate, and on the values of the last ones.

    k L R images and k L values are releases of their own: K = k L (R + 1).

    Privacy: each costs 1/z², so together they are √K/z-GDP (`PrivateOracle`); deflation, normalisation and the choice
    of the best are post-processing.
    """
    oracle = _private_oracle(holder, releaser, noise_multiplier, release="separate")
    components = run(oracle, replace(plan, weigh="value"), rng=rng).components
    columns = np.split(components.vectors, components.n_components, axis=1)
    errors = noise_multiplier * np.array([holder.value_sensitivity(column) for column in columns])
    image_errors = noise_multiplier * np.array([holder.sensitivity(column) for column in columns])
    floors = errors * highest_of(plan.n_restarts)
    return Found(components, errors, angles_of(image_errors, components), floors)


def by_joint_releases(
    holder: DataHolder, plan: Plan, releaser: Releaser, noise_multiplier: float, *, rng: RngLike = None
) -> Found:
    """Algorithm 3 with each block of images as one release, near-duplicates asked once, weights read off the image.

    k R releases.

    Privacy: each costs 1/z² for the joint sensitivity of what is asked, so together they are √(k R)/z-GDP.
    """
    oracle = _private_oracle(holder, releaser, noise_multiplier, release="joint", merge=MERGE_COSINE)
    scales: list[float] = []

    def note_scale(search: Search) -> None:
        if len(search.found) > len(scales):
            scales.append(float(oracle.last_scales[0]))

    components = run(oracle, replace(plan, weigh="reuse"), rng=rng, callback=note_scale).components
    errors = np.array(scales)  # ⟨u, noise⟩ has the standard deviation of one coordinate
    return Found(components, errors, angles_of(errors, components), errors * highest_of(plan.n_restarts))


def _private_oracle(holder: DataHolder, releaser: Releaser, noise_multiplier: float, **settings: Any) -> PrivateOracle:
    return PrivateOracle(
        holder,
        releaser.ledger,
        noise_multiplier=noise_multiplier,
        noise=releaser.noise,
        data=releaser.data,
        **settings,
    )


# ---- released once, decomposed for free ---------------------------------------------------------------------------


def by_input_perturbation(
    holder: DataHolder, n_components: int, releaser: Releaser, mu: float, *, rng: RngLike = None
) -> Found:
    """Release every distinct entry once, with noise; then decompose at leisure.

    Privacy: one Gaussian mechanism of μ. Each entry is released in its own public unit (`DataHolder.entry_units`).
    """
    units = holder.packed_units()
    packed, scale = releaser.release(
        f"all {units.size} distinct entries",
        holder.packed,
        size=units.size,
        sensitivity=holder.packed_sensitivity(),
        noise_multiplier=1 / mu,
    )
    components = decompose_noisy(DenseTensor(unpack(packed * units, holder.dimension)), n_components, rng=rng)
    errors = scale * _value_errors(holder.entry_units, components.vectors)
    # A coordinate of E(I, v, v) is Σ 2 E_ijk v_j v_k over j < k, up to terms with equal indices.
    coordinate = scale * math.sqrt(2) * holder.entry_units[0]
    floors = errors * noise_ceiling(3, holder.dimension)
    return Found(components, errors, angles_of(coordinate, components), floors)


def _value_errors(units: tuple[float, float, float], vectors: FloatArray) -> FloatArray:
    """Return the standard deviation of E(v, v, v) for independent noise E of these units on the distinct entries.

    An entry counts as often as it stands in the array, m = 6, 3 or 1 times, so the variance is Σ m² unit² Π v² over
    distinct entries. The three sums are symmetric functions of v², which power sums give (Newton's identities).
    """
    one, two, three = (np.sum(vectors**power, axis=0) for power in (2, 4, 6))
    sums = ((one**3 - 3 * one * two + 2 * three) / 6, one * two - three, three)
    terms = [(m * unit) ** 2 * total for m, unit, total in zip((6, 3, 1), units, sums, strict=True)]
    deviations: FloatArray = np.sqrt(np.sum(terms, axis=0))
    return deviations


def decompose_noisy(tensor: DenseTensor, n_components: int, *, rng: RngLike = None) -> Components:
    """Decompose a tensor deep in noise: Algorithm 1, with informed starts beside random ones.

    From a random start the power method needs a weight of order d times the noise of an entry. The leading left
    singular vectors of the d x d² unfolding lean towards the components from d^(3/4) on (Montanari and Richard 2014,
    arXiv 1411.1076), so Algorithm 1 inside their span gives starts for Algorithm 1 on the whole tensor.
    """
    generator = as_generator(rng)
    d = tensor.dimension
    width = min(d, 2 * n_components + 5)
    unfolding: FloatArray = tensor.entries.reshape(d, -1).astype(np.float64)
    basis = _leading_directions(unfolding, width)
    core: FloatArray = unfolding.reshape(d, d, d)
    for _ in range(3):  # the last axis is contracted and becomes the first
        core = np.moveaxis(core @ basis, -1, 0)
    inner_plan = Plan.default(width, n_components, tolerance=1e-8)
    inside = run(DenseTensor(symmetrize(core)), inner_plan, rng=generator).components
    starts = basis @ inside.vectors
    plan = Plan(n_components, n_components + RANDOM_STARTS, 40, tolerance=1e-6)
    search = Search.start(plan, parts=tensor.parts, rng=generator)
    while not search.done:
        if search.iteration == 0:
            search = replace(search, candidates=np.hstack([starts, search.candidates[:, n_components:]]))
        search = step(tensor, search)
    return search.components


def by_core(
    holder: DataHolder,
    n_components: int,
    releaser: Releaser,
    mu: float,
    shares: Sequence[float],
    widths: Sequence[int],
    *,
    rng: RngLike = None,
) -> Found:
    """Find the span of the components by a few slabs T(I, W, W), then release the core in it; decompose that for free.

    The slab of any W lies in the span of the components, and contains each, v, with the weight λ|Wᵀv|². So W is random
    at first, and then the leading left singular vectors of the slab before; `widths` says how many columns W
    has in each round, and in the core.

    Privacy: one release for each slab, and one for the core; each gets a share of μ².

    Notes
    -----
    `odeco.search.CoreSearch` asks for the images T(I, w, w) of single columns, which is all that a stream can afford.
    Here all pairs of columns cost no more than these: the sensitivity of a slab is that of one image for records, and
    there are no signs to lose, whereas two columns (v₁ ± v₂)/√2 have the same image.
    """
    generator = as_generator(rng)
    with one_blas_thread():
        basis = np.linalg.qr(generator.standard_normal((holder.dimension, widths[0])))[0]
    asked, scale = basis, 0.0
    for share, width in zip(shares[:-1], widths[1:], strict=True):
        asked = basis
        n_pairs = asked.shape[1] * (asked.shape[1] + 1) // 2
        slab, scale = releaser.release(
            f"slab of {asked.shape[1]} directions, {holder.dimension} x {n_pairs} numbers",
            partial(holder.slab, asked),
            size=holder.dimension * n_pairs,
            sensitivity=holder.slab_sensitivity(asked),
            noise_multiplier=1 / (mu * math.sqrt(share)),
        )
        basis = _leading_directions(slab, width)
    found, core_scale = _decompose_core(holder, basis, n_components, releaser, mu * math.sqrt(shares[-1]), generator)
    # To first order the span misses component i by the noise of the last slab times what the pseudo-inverse of its
    # signal, λᵢ (Wᵀvᵢ) ⊗ (Wᵀvᵢ), makes of it.
    inside: FloatArray = asked.T @ found.vectors
    gram = np.outer(found.weights, found.weights) * (inside.T @ inside) ** 2
    outside = scale * np.sqrt(holder.dimension * np.diagonal(np.linalg.pinv(gram)))
    return found_in_core(found, core_scale, basis.shape[1], outside)


def _leading_directions(matrix: FloatArray, width: int) -> FloatArray:
    """Return the leading left singular vectors, from the smaller Gram matrix: noise keeps that well conditioned."""
    tall = matrix.shape[1] < matrix.shape[0]
    gram: FloatArray = matrix.T @ matrix if tall else matrix @ matrix.T
    with one_blas_thread():  # matrices this small are slowed down by threads that wait for each other
        leading = np.linalg.eigh(gram)[1][:, -width:]
        return np.linalg.qr(matrix @ leading)[0] if tall else leading


def by_second_moment(
    holder: RecordLevel,
    n_components: int,
    releaser: Releaser,
    mu: float,
    shares: Sequence[float],
    *,
    rng: RngLike = None,
) -> Found:
    """Release the second moment, then the core in the span of its leading eigenvectors; decompose the core for free.

    Right only if the components span the leading directions of (1/n) Σ x xᵀ, as in single-topic and mixture models
    whose noise is small or round.

    Privacy: two releases, each with a share of μ². The d (d + 1) / 2 distinct entries are released with √2 in front of
    those off the diagonal, which makes their norm that of the whole matrix.
    """
    d, k = holder.dimension, n_components
    lower = np.tril_indices(d)
    units = np.where(lower[0] == lower[1], 1.0, math.sqrt(0.5))
    packed, scale = releaser.release(
        f"second moment, {units.size} distinct entries",
        lambda: holder.second_moment()[lower] / units,
        size=units.size,
        sensitivity=holder.second_moment_sensitivity(),
        noise_multiplier=1 / (mu * math.sqrt(shares[0])),
    )
    moment = np.zeros((d, d))
    moment[lower] = moment.T[lower] = packed * units
    eigenvalues, eigenvectors = np.linalg.eigh(moment)
    basis = eigenvectors[:, -k:]
    found, core_scale = _decompose_core(holder, basis, k, releaser, mu * math.sqrt(shares[1]), as_generator(rng))
    inside = basis.T @ found.vectors / np.maximum(eigenvalues[-k:], scale)[:, None]
    outside = scale * math.sqrt(d / 2) * np.linalg.norm(inside, axis=0)
    return found_in_core(found, core_scale, k, outside)


def _decompose_core(
    holder: DataHolder,
    basis: FloatArray,
    n_components: int,
    releaser: Releaser,
    mu: float,
    generator: np.random.Generator,
) -> tuple[Components, float]:
    """Release T(Q, …, Q), decompose it, and bring what is found back to d dimensions."""
    width, order = basis.shape[1], holder.order
    core, scale = releaser.release(
        f"core of {width}^{order} numbers",
        partial(holder.core, basis),
        size=width**order,
        sensitivity=holder.core_sensitivity(basis),
        noise_multiplier=1 / mu,
    )
    plan = Plan.default(width, n_components, tolerance=1e-8)
    inside = run(DenseTensor(symmetrize(core)), plan, rng=generator).components
    return Components(inside.weights, basis @ inside.vectors, order), scale
