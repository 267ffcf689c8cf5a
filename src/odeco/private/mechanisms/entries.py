"""Mechanisms that release entries: all of them once, or the small core in the span of the
components.

Input perturbation releases every entry once, and the rest costs no budget. The others find the span
of the components first, and then release the small core in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast, final

import numpy as np

# its submodules are imported when they are used: optimize takes longer than all of odeco
import scipy

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.overcomplete import fit_overcomplete
from odeco.cp.small import core_width, decompose_core, decompose_noisy, leading_directions
from odeco.cp.subspace_power import largest_rank
from odeco.online.methods.private import N_ROUNDS
from odeco.privacy.found import Found, found_by_least_squares, found_in_core, found_in_entries
from odeco.privacy.holders.protocol import unpack
from odeco.privacy.holders.records import RecordLevel
from odeco.privacy.plan import MechanismPlan
from odeco.private.mechanisms.mechanism import FOUND, Mechanism, Setting, Task
from odeco.private.subspace import release_second_moment
from odeco.tensors.components import Components
from odeco.tensors.coordinates import FlattenedTensor, flattening_of_packed
from odeco.tensors.dense import DenseTensor, symmetrize

#: A noisy tensor of this dimension takes half a gigabyte; above it "auto" does not consider input
#: perturbation.
MOST_DIMENSION = 400


#: Components are found to the cosine 0.9 from this many times s√d on; s is the noise of a
#: coordinate of the image. To first order tan = 1/x gives 2.06; terms of higher order make it 2.5
#: (measured for d = 50 to 300, see the tests).
_ACCURACY = 2.5


#: The same for the moment of order 4 of at most this many columns, from this many times s d on
#: (measured for d = 6 to 16 and up to 2 d components: more than nine in ten are found).
MOST_COLUMNS = 60
_START_FOURTH = 2.5

#: The unfolding begins to show the components from this many times s d^(3/4) on.
_START = 0.75


@final
class Input(Mechanism):
    """Release every distinct entry once, with noise; then decompose the noisy tensor.

    At order 4, for rows, all components are fitted together, and there may be more than columns.

    Privacy: one Gaussian mechanism of μ. Each entry is released in its own public unit
    (`DataHolder.packed_units`). At order 4 the sensitivity is that of x⊗⁴, B⁴/n for one row of norm
    B, and √2 times that if it is replaced (`RecordSensitivities.entries`).
    """

    name = "input"
    summary = (
        "Every distinct entry is released once, and the noisy tensor is then decomposed at no "
        "further cost."
    )

    def refusal(self, setting: Setting) -> str:
        """Say why it cannot be used: it takes order 3, and order 4 for rows of few columns."""
        k = setting.search.n_components
        d = setting.dimension
        if setting.order != 4 or setting.sensitivities.moment is None:
            return super().refusal(setting)
        if d > MOST_COLUMNS:
            return (
                f"mechanism={self.name!r} takes at most {MOST_COLUMNS} columns at order 4. Got {d}."
            )
        most = max(d, largest_rank(d, 4))
        if k <= most:
            return ""
        return f"mechanism={self.name!r} finds at most {most} components of {d} columns. Got {k}."

    def plan(self, setting: Setting) -> MechanismPlan:
        """Say what would be found: the noise is there once, so it must be small enough to start,
        and to end, well.
        """
        noise = setting.sensitivities.noise_in_image / setting.mu
        d = setting.dimension
        start = _START * d**0.75 if setting.order == 3 else _START_FOURTH * d
        signal = noise * max(_ACCURACY * math.sqrt(d), start)
        remark = "" if d <= MOST_DIMENSION else f"takes {8 * d**3 / 2**30:.1f} GiB"
        return MechanismPlan(self.name, 1, noise, signal, remark=remark)

    def run(self, task: Task) -> Found:
        """Release all entries and decompose them."""
        holder = task.holder
        d = task.holder.dimension
        units = task.holder.packed_units()
        packed, scale = task.releaser.release(
            f"all {units.size} distinct entries",
            holder.packed,
            size=units.size,
            sensitivity=holder.packed_sensitivity(),
            noise_multiplier=1 / task.setting.mu,
        )
        if holder.order == 4:
            tensor = FlattenedTensor(flattening_of_packed(packed, d), d, 4)
            return found_by_least_squares(
                fit_overcomplete(tensor, task.n_components, task.generator).fit.components, scale
            )
        components = decompose_noisy(
            DenseTensor(unpack(packed * units, d)), task.n_components, task.generator
        )
        return found_in_entries(components, scale, holder.entry_units)


#: No release gets less of μ², so that weights too are found to some accuracy.
LEAST_SHARE = 0.1


@final
class Core(Mechanism):
    """Find the span of the components by a few slabs T(I, W, W), then release the core in it;
    decompose that for free.

    The slab of any W lies in the span of the components, and contains each, v, with the weight
    λ|Wᵀv|². So W is random at first, and then the leading left singular vectors of the slab before.

    Privacy: one release for each slab, and one for the core; each gets a share of μ².

    Notes
    -----
    A private stream asks for the images T(I, w, w) of single columns, which is all that a stream
    can afford. Here all pairs of columns cost no more than these: the sensitivity of a slab is that
    of one image for records, and there are no signs to lose, whereas two columns (v₁ ± v₂)/√2 have
    the same image.
    """

    name = "core"
    summary = (
        "A few slabs T(I, W, W) are released to find the span of the components, and then the "
        "small core in it."
    )

    @staticmethod
    def widths(dimension: int, n_components: int) -> tuple[int, ...]:
        """Return how many directions each slab asks about, and the core.

        The first are random, and the more there are the better their signal, at a cost of d m²/2
        numbers: twice as many as in a private stream. The later ones only have to hold the
        components.
        """
        width = core_width(dimension, n_components)
        return (min(dimension, 2 * width), *(width,) * N_ROUNDS)

    def plan(self, setting: Setting) -> MechanismPlan:
        """Share the budget among the slabs and the core.

        A slab has the signal λ|Wᵀv|² for a component v: λm/d for m random directions, λc² inside a
        span that has the cosine c with v. A signal of θ times the noise in a d x N matrix gives the
        leading left singular vectors the squared cosine 1 − d(N + θ²)/(θ²(θ² + d)) with v
        (Benaych-Georges and Nadakuditi 2012). |Wᵀv|² varies by √(2/m) of itself, and all k
        components must pass: the start is taken one such deviation below the mean.
        """
        d = setting.dimension
        widths = self.widths(d, setting.search.n_components)
        bases = [setting.random_basis(width) for width in widths]
        noises = [
            setting.sensitivities.core(basis, open_axis=True) / setting.mu for basis in bases[:-1]
        ]
        core = setting.sensitivities.core(bases[-1]) / setting.mu

        def reached(weight: float, shares: FloatArray) -> float:
            square = widths[0] / d * (1 - math.sqrt(2 / max(widths[0], 8)))
            for i, noise in enumerate(noises):
                height = (weight * square / noise) ** 2 * shares[i]
                n_pairs = widths[i] * (widths[i] + 1) / 2
                missing = d * (n_pairs + height) / (height * (height + d))
                square = max(widths[i + 1] / d, 1 - missing)  # a random span has as much
            return math.sqrt(square) * cosine_in_core(
                weight, core / math.sqrt(shares[-1]), widths[-1]
            )

        return best_shares(self.name, reached, len(widths), noises[0])

    def run(self, task: Task) -> Found:
        """Release the slabs, each in the leading directions of the one before, and then the
        core.
        """
        holder = task.holder
        d = task.holder.dimension
        first, *later = self.widths(d, task.n_components)
        with one_blas_thread():
            basis = np.linalg.qr(task.generator.standard_normal((d, first)))[0]
        for number, width in enumerate(later):
            asked = basis
            n_pairs = asked.shape[1] * (asked.shape[1] + 1) // 2
            slab, scale = task.releaser.release(
                f"slab of {asked.shape[1]} directions, {d} x {n_pairs} numbers",
                partial(holder.slab, asked),
                size=d * n_pairs,
                sensitivity=holder.slab_sensitivity(asked),
                noise_multiplier=1 / task.mu(number),
            )
            basis = leading_directions(slab, width)
        found, core_scale = release_core(task, basis)
        # To first order the span misses component i by the noise of the last slab times what the
        # pseudo-inverse of its signal, λᵢ (Wᵀvᵢ) ⊗ (Wᵀvᵢ), makes of it.
        inside: FloatArray = asked.T @ found.vectors
        gram = np.outer(found.weights, found.weights) * (inside.T @ inside) ** 2
        outside = scale * np.sqrt(d * np.diagonal(np.linalg.pinv(gram)))
        return found_in_core(found, core_scale, basis.shape[1], outside)


@final
class Subspace(Mechanism):
    """Release the second moment, then the core in the span of its leading eigenvectors; decompose
    the core for free.

    Right only if the components span the leading directions of (1/n) Σ x xᵀ, as in single-topic and
    mixture models whose noise is small or round.

    Privacy: two releases, each with a share of μ². The first is that of `odeco.private_subspace`.
    """

    name = "subspace"
    summary = (
        "The second moment of the rows is released to find the span of the components, then the "
        "small core in it."
    )
    needs_second_moment = True

    def plan(self, setting: Setting) -> MechanismPlan:
        """Share the budget between the second moment and the core.

        The noise of a coordinate of M v is that of the second moment over √2, so the cosine of the
        span with v is √(1 − 1/θ²), θ = √2 λ/(s√d) (a spiked Wigner matrix), λ in the scale of the
        second moment.
        """
        d = setting.dimension
        k = setting.search.n_components
        moment = float(setting.sensitivities.moment or 0.0) / setting.mu
        core = setting.sensitivities.core(setting.random_basis(k)) / setting.mu

        def reached(weight: float, shares: FloatArray) -> float:
            height = math.sqrt(2) * weight / (moment / math.sqrt(shares[0]) * math.sqrt(d))
            cosine = math.sqrt(max(0.0, 1 - 1 / height**2))
            return cosine * cosine_in_core(weight, core / math.sqrt(shares[1]), k)

        remark = "right only if the components span the leading directions of the second moment"
        return best_shares(self.name, reached, 2, moment, remark)

    def run(self, task: Task) -> Found:
        """Release the second moment, and the core in its leading directions."""
        rows = cast("RecordLevel", task.holder)  # `refusal` lets nothing else pass
        d = rows.dimension
        k = task.n_components
        moment, scale = release_second_moment(rows, task.releaser, task.mu(0))
        eigenvalues, eigenvectors = np.linalg.eigh(moment)
        basis = eigenvectors[:, -k:]
        found, core_scale = release_core(task, basis)
        inside = basis.T @ found.vectors / np.maximum(eigenvalues[-k:], scale)[:, None]
        outside = scale * math.sqrt(d / 2) * np.linalg.norm(inside, axis=0)
        return found_in_core(found, core_scale, k, outside)


def best_shares(
    mechanism: str,
    reached: Callable[[float, FloatArray], float],
    n_releases: int,
    noise: float,
    remark: str = "",
) -> MechanismPlan:
    """Return the plan whose shares of μ² make the smallest signal smallest.

    `reached` returns the cosine that is reached for a weight, given the shares; `noise` is the
    standard deviation of the noise in the first release if that had all of the budget.
    """

    def smallest(shares: FloatArray) -> float:
        low = noise * 1e-6
        high = noise * 1e-6
        while reached(high, shares) < FOUND:
            low = high
            high = 4 * high
        return float(
            scipy.optimize.brentq(
                lambda weight: reached(weight, shares) - FOUND, low, high, xtol=1e-6 * low
            )
        )

    def shares_of(logits: FloatArray) -> FloatArray:
        exponents = np.exp(np.append(logits, 0.0))
        shares: FloatArray = (
            LEAST_SHARE + (1 - n_releases * LEAST_SHARE) * exponents / exponents.sum()
        )
        return shares

    def loss(logits: FloatArray) -> float:
        return math.log(smallest(shares_of(logits)))

    equal = smallest(np.full(n_releases, 1 / n_releases))
    corners = np.vstack([np.zeros(n_releases - 1), np.eye(n_releases - 1)])
    options: Any = {"xatol": 0.02, "fatol": 1e-4, "maxiter": 400, "initial_simplex": corners}
    best = scipy.optimize.minimize(loss, corners[0], method="Nelder-Mead", options=options)
    # Shares are rounded down to a grid, so that their sum never exceeds 1 and plans read well.
    shares = np.floor(shares_of(best.x) * 1000) / 1000
    signal = smallest(shares)
    first = noise / math.sqrt(float(shares[0]))
    return MechanismPlan(
        mechanism, n_releases, first, signal, tuple(map(float, shares)), equal / signal, remark
    )


def release_core(task: Task, basis: FloatArray) -> tuple[Components, float]:
    """Release T(Q, …, Q), the last of the plan; return its components in d dimensions, and the
    scale of the noise.
    """
    holder = task.holder
    width = basis.shape[1]
    order = task.holder.order
    core, scale = task.releaser.release(
        f"core of {width}^{order} numbers",
        partial(holder.core, basis),
        size=width**order,
        sensitivity=holder.core_sensitivity(basis),
        noise_multiplier=1 / task.mu(-1),
    )
    inside = decompose_core(DenseTensor(symmetrize(core)), task.n_components, task.generator)
    return Components(inside.weights, basis @ inside.vectors, order), scale


def cosine_in_core(weight: float, noise: float, width: int) -> float:
    """Return the cosine reached inside a core with noise of this size at every unit vector.

    Noise alone reaches 1.66 √m times its size somewhere, which the weight must exceed; it then
    turns a component by noise √(m/3) across it.
    """
    across = noise * math.sqrt(width / 3)
    highest = 2 * noise * math.sqrt(width)
    return min(1.0, weight / highest) * weight / math.hypot(weight, across)
