"""The private mechanisms: what each asks, with which share of the budget, and what it makes of the answers.

Each asks a `DataHolder` through a `Releaser`, which pays and adds noise; everything else here is arithmetic on noisy
answers and public numbers, hence post-processing. None looks at the data to decide how often to ask, whether to stop,
or what to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from odeco._checks import as_generator
from odeco._types import FloatArray, RngLike
from odeco.components import Components
from odeco.core import CoreSearch
from odeco.oracle import Oracle
from odeco.power_method import Plan, Search, run, step
from odeco.privacy._holder import DataHolder, unpack
from odeco.privacy._private import PrivateOracle
from odeco.privacy._record_level import RecordLevel
from odeco.privacy._release import Releaser
from odeco.rank import SIGNIFICANCE, ground_state
from odeco.tensors import DenseTensor, symmetrize

#: Candidates of a joint release are asked as one from this cosine on; see benchmarks in the documentation.
MERGE_COSINE = 0.8


@dataclass(frozen=True, eq=False)
class Found:
    """Components, with what the known noise says about them; see `odeco.private.PrivateDecomposition`."""

    components: Components
    weight_errors: FloatArray
    angle_errors: FloatArray
    noise_floors: FloatArray

    def sorted(self) -> Found:
        """Return the same, largest weight first."""
        first = self.components.largest_first()
        components = Components(
            self.components.weights[first], self.components.vectors[:, first], self.components.order
        )
        return Found(components, self.weight_errors[first], self.angle_errors[first], self.noise_floors[first])


# ---- noise at every iteration --------------------------------------------------------------------------------------


def by_separate_releases(
    holder: DataHolder, plan: Plan, releaser: Releaser, noise_multiplier: float, *, rng: RngLike = None
) -> Found:
    """Algorithm 3: noise on every image of every candidate, and on the values of the last ones.

    k L R images and k L values are releases of their own: K = k L (R + 1).

    Privacy: each costs 1/z², so together they are √K/z-GDP (`PrivateOracle`); deflation, normalisation and the choice
    of the best are post-processing.
    """
    oracle = _private(holder, releaser, noise_multiplier, release="separate")
    components = run(oracle, replace(plan, weigh="value"), rng=rng).components
    columns = [components.vectors[:, [column]] for column in range(components.n_components)]
    errors = noise_multiplier * np.array([holder.value_sensitivity(column) for column in columns])
    image_errors = noise_multiplier * np.array([holder.sensitivity(column) for column in columns])
    angles = _angles(image_errors, components)
    return Found(components, errors, angles, errors * _best_of(plan.n_restarts))


def by_joint_releases(
    holder: DataHolder, plan: Plan, releaser: Releaser, noise_multiplier: float, *, rng: RngLike = None
) -> Found:
    """Algorithm 3 with each block of images as one release, near-duplicates asked once, weights read off the image.

    k R releases.

    Privacy: each costs 1/z² for the joint sensitivity of what is asked, so together they are √(k R)/z-GDP.
    """
    oracle = _private(holder, releaser, noise_multiplier, release="joint", merge=MERGE_COSINE)
    scales: list[float] = []

    def note_scale(search: Search) -> None:
        if len(search.found) > len(scales):
            scales.append(float(oracle.last_scales[0]))

    components = run(oracle, replace(plan, weigh="reuse"), rng=rng, callback=note_scale).components
    errors = np.array(scales)  # ⟨u, noise⟩ has the standard deviation of one coordinate
    return Found(components, errors, _angles(errors, components), errors * _best_of(plan.n_restarts))


def _private(
    holder: DataHolder, releaser: Releaser, noise_multiplier: float, **settings: object
) -> PrivateOracle:
    return PrivateOracle(
        holder,
        releaser.ledger,
        noise_multiplier=noise_multiplier,
        noise=releaser.noise,
        data=releaser.data if isinstance(releaser.data, tuple) else (releaser.data,),
        **settings,  # type: ignore[arg-type]
    )


# ---- released once, decomposed for free ---------------------------------------------------------------------------


def by_input_perturbation(holder: DataHolder, n_components: int, releaser: Releaser, mu: float, *, rng: RngLike = None) -> Found:
    """Release every distinct entry once, with noise; then decompose at leisure.

    Privacy: one Gaussian mechanism of μ. Each entry is released in its own public unit (`DataHolder.packed_units`).
    """
    d, units = holder.dimension, holder.packed_units()
    packed, scale = releaser.release(
        f"all {units.size} distinct entries",
        holder.packed,
        size=units.size,
        sensitivity=holder.packed_sensitivity(),
        noise_multiplier=1 / mu,
    )
    entries = unpack(packed * units, d)
    variances = unpack((scale * units) ** 2, d)
    components = decompose_noisy(DenseTensor(entries), n_components, rng=rng)
    errors, across = _errors_of_entries(variances, components.vectors)
    floors = errors * (ground_state(3) * math.sqrt(d) + _TAIL)
    return Found(components, errors, _angles(across, components), floors)


def _errors_of_entries(variances: FloatArray, vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the standard deviations of E(v, v, v), and of one coordinate of E(I, v, v), for noise E on entries.

    E(v, v, v) is the sum over distinct entries s of m_s Π v times the entry's noise, m_s its multiplicity; its variance
    Σ m_s² Π v² var_s is the sum over *all* entries of m times the same. Likewise for a coordinate of E(I, v, v), averaged
    over coordinates, with the number of orders of the last two indices in place of m.
    """
    d = variances.shape[0]
    index = np.arange(d)
    equal = (index[:, None] == index[None, :]).astype(float)
    pairs = 2 - equal  # how many orders two indices have
    squares = vectors**2
    coordinate = np.einsum("ijk,jk,jl,kl->il", variances, pairs, squares, squares, optimize=True)
    orders = {0: 6.0, 1: 3.0, 3: 1.0}
    counts = equal[:, :, None] + equal[:, None, :] + equal[None, :, :]
    multiplicity = np.select([counts == n for n in orders], list(orders.values()))
    value = np.einsum("ijk,il,jl,kl->l", variances * multiplicity, squares, squares, squares, optimize=True)
    return np.sqrt(value), np.sqrt(coordinate.mean(axis=0))


def decompose_noisy(tensor: DenseTensor, n_components: int, *, rng: RngLike = None) -> Components:
    """Decompose a tensor drowned in noise: Algorithm 1 with good starts beside random ones.

    From a random start the power method needs a weight of order d times the noise of an entry. The leading left
    singular vectors of the d x d² unfolding already lean towards the components from d^(3/4) on (Montanari and Richard
    2014, arXiv 1411.1076): Algorithm 1 inside their span gives starts for Algorithm 1 on the whole tensor.
    """
    generator = as_generator(rng)
    d = tensor.dimension
    width = min(d, 2 * n_components + 5)
    unfolding = tensor.entries.reshape(d, -1).astype(np.float64)
    basis = np.linalg.eigh(unfolding @ unfolding.T)[1][:, -width:]
    core: FloatArray = (unfolding @ np.einsum("ja,kb->jkab", basis, basis).reshape(d * d, -1)) if False else _core_of(tensor, basis)
    inside = run(
        DenseTensor(symmetrize(core)), Plan.default(width, n_components, tolerance=1e-8), rng=generator
    ).components
    starts = basis @ inside.vectors
    plan = Plan(n_components, n_components + N_RANDOM_STARTS, 40, tolerance=1e-6)
    search = Search.start(plan, parts=tensor.parts, rng=generator)
    while not search.done:
        if search.iteration == 0 and search.stage == "iterate":
            search = replace(search, candidates=np.hstack([starts, search.candidates[:, n_components:]]))
        search = step(tensor, search)
    return search.components


N_RANDOM_STARTS = 12


def _core_of(tensor: DenseTensor, basis: FloatArray) -> FloatArray:
    core: FloatArray = tensor.entries.astype(np.float64)
    for _ in range(3):
        core = np.moveaxis(core @ basis, -1, 0)
    return core


def by_core(
    holder: DataHolder, n_components: int, releaser: Releaser, mu: float, shares: Sequence[float], *, rng: RngLike = None
) -> Found:
    """Release the images of one block a few times, then the core in their span; decompose the core for free.

    Privacy: one release for each round, all columns together, and one for the core; each gets a share of μ².
    """
    search = CoreSearch.start(
        holder.dimension, n_components, order=holder.order, n_rounds=len(shares) - 1, rng=rng
    )
    asked, scale = search.candidates, 0.0
    for share in shares[:-1]:
        asked = search.candidates
        answer, scale = releaser.release(
            f"image of {asked.shape[1]} candidates together",
            lambda: holder.image(asked),
            size=asked.size,
            sensitivity=holder.sensitivity(asked),
            noise_multiplier=1 / (mu * math.sqrt(share)),
        )
        search = search.advance(answer)
    found, errors, inner = _by_private_core(holder, search.candidates, n_components, releaser, mu * math.sqrt(shares[-1]), search)
    # To first order the span misses component i by what the noise of the last round leaves in the row i of the
    # pseudo-inverse of its signal, λᵢ ⟨vᵢ, q⟩^(p−1) over the questions q.
    signal = found.weights[:, None] * (found.vectors.T @ asked) ** (holder.order - 1)
    outer = scale * math.sqrt(holder.dimension) * np.linalg.norm(np.linalg.pinv(signal), axis=0)
    return _of_core(found, errors, np.hypot(inner, outer), search.candidates.shape[1])
