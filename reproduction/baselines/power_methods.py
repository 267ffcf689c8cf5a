"""Two other power methods: with a fixed shift, and on sketches of the tensor.

The shifted symmetric higher-order power method is that of Kolda and Mayo (2011), tensor sketching
that of Wang, Tung, Smola and Anandkumar (2015). A count sketch adds the entries of a tensor, each
with a random factor, into b buckets. Index i has a bucket h(i) and a phase σ(i), a random root of
unity; the entry (i, j, k) goes to the bucket h(i) + h(j) + h(k) mod b with the phase σ(i)σ(j)σ(k).
So the sketch of u ⊗ u ⊗ u is the sketch of u convolved with itself, a product of Fourier
transforms, and inner products of sketches estimate inner products of tensors.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, final

import numpy as np
import scipy.fft
from numpy.typing import NDArray
from scipy import sparse

from odeco import Components, Oracle
from odeco.power import Schedule, run
from odeco.tensors import DenseTensor, PackedTensor, as_oracle
from reproduction.arguments import (
    FloatArray,
    IndexArray,
    RngLike,
    check_choice,
    check_count,
    draw_unit_vectors,
    normalise_columns,
)


def ss_hopm(
    tensor: Any,
    *,
    shift: float,
    n_restarts: int = 100,
    n_iterations: int = 1000,
    tol: float = 1e-12,
    rng: RngLike = None,
) -> Components:
    """Return the distinct eigenpairs that the iteration u ← ±(T(I,u,…,u) + αu), normalised, reaches
    from random starts.

    A positive shift α finds local maxima of T(u,…,u) on the sphere, and a negative one finds local
    minima. Every start converges if |α| exceeds (p−1) times the operator norm, but convergence is
    slow then.

    Parameters
    ----------
    tensor : array or Oracle
        A symmetric tensor.
    shift : float
        The shift α.
    n_restarts, n_iterations : int
        The number of starts, which are uniform on the sphere, and the largest number of steps.
    tol : float
        The iteration stops once the relative residual of every start is at most this.
    rng : None, int or numpy.random.Generator
        Draws the starts.

    References
    ----------
    Kolda and Mayo, *Shifted power method for computing tensor eigenpairs*, 2011, arXiv:1007.1267.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from reproduction.baselines import ss_hopm
    >>> tensor = odeco.Components([2.0, 1.0], np.eye(3)[:, :2])
    >>> ss_hopm(tensor, shift=4.0, rng=0).weights[:2].round(6)
    array([2., 1.])
    """
    oracle = as_oracle(tensor)
    check_count("n_restarts", n_restarts)
    block = draw_unit_vectors(np.random.default_rng(rng), oracle.dimension, n_restarts)
    sign = 1.0 if shift >= 0 else -1.0
    for _ in range(check_count("n_iterations", n_iterations)):
        image = oracle.image(block)
        values = np.sum(block * image, axis=0)
        if np.all(np.linalg.norm(image - values * block, axis=0) <= tol * np.abs(values)):
            break
        block = normalise_columns(sign * (image + shift * block))
    return _distinct(oracle.value(block), block, oracle.order)


def _distinct(values: FloatArray, block: FloatArray, order: int) -> Components:
    """Return one of each group of candidates that point the same way, the largest absolute value
    first.
    """
    kept: list[int] = []
    for candidate in np.argsort(-np.abs(values), kind="stable"):
        if np.all(np.abs(block[:, kept].T @ block[:, candidate]) < 1 - 1e-6):
            kept.append(int(candidate))
    return Components(values[kept], block[:, kept], order)


ComplexArray = NDArray[np.complex128]

Combine: TypeAlias = Literal["median", "mean"]

#: How many complex numbers the transforms of a chunk of rows may take.
_CHUNK_SIZE = 2**22


@final
@dataclass(eq=False)
class TensorSketch(Oracle):
    """A symmetric tensor known by B count sketches of length b: B·b numbers in place of its
    entries.

    Make one with `of_entries` or `of_rows`.

    Parameters
    ----------
    buckets, phases : arrays, B x d
        For every sketch the bucket h(i) and the phase σ(i) of every index.
    transforms : array, B x b
        The Fourier transforms of the sketches.
    order : int
        The order p of the tensor.
    combine : {"median", "mean"}
        How the replies of the B sketches are combined.

    Notes
    -----
    *One hash for all axes.* The tensor is symmetric, so its axes share h and σ, and only entries
    with i ≤ j ≤ k are added. The product of the phases of (i, j, k) and the conjugate phases of
    (i', j', k') has the mean 1 if one is a rearrangement of the other, and 0 if not. T(I, u, u)
    sums over all arrangements, so it is estimated without bias. Phases are (2p + 1)-st roots of
    unity: with these no power up to 2p has a mean other than 0, which the mean needs up to p and
    the variance up to 2p.

    *Variance.* Write e_D for the sum of T_A u_B over pairs of index sets, A of the tensor and B of
    u ⊗ … ⊗ u, that differ by D. No factor of b is p or less, so two different sets share a bucket
    with chance 1/b, and the value T(u, …, u) has the variance Σ (e_D² + e_D e_₋D) / 2b over D ≠ 0.

    *Laws.* Each sketch replies as a symmetric tensor does, and so does the mean. The median is
    taken of every coordinate by itself, so the symmetry that `odeco.check_oracle` looks for holds
    only nearly.

    Deviations from the paper: buckets and phases are independent random numbers, d of them, not
    hash functions of limited independence; any order p, not 3 alone.

    References
    ----------
    Wang, Tung, Smola and Anandkumar, *Fast and Guaranteed Tensor Decomposition via Sketching*,
    2015, arXiv:1506.04448.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from reproduction.baselines import TensorSketch
    >>> tensor = odeco.Components([2.0, 1.0], np.eye(30)[:, :2]).to_dense()
    >>> sketch = TensorSketch.of_entries(tensor, length=1000, n_sketches=9, rng=0)
    >>> sketch.value(np.eye(30)[:, :2]).round(1), sketch.transforms.size, tensor.size
    (array([2., 1.]), 9009, 27000)
    """

    buckets: IndexArray
    phases: ComplexArray
    transforms: ComplexArray
    order: int
    combine: Combine = "median"

    def __post_init__(self) -> None:
        check_choice("combine", self.combine, ("median", "mean"))
        self.dimension = self.buckets.shape[1]

    @classmethod
    def of_entries(
        cls,
        tensor: Any,
        *,
        length: int,
        n_sketches: int = 9,
        combine: Combine = "median",
        rng: RngLike = None,
    ) -> TensorSketch:
        """Sketch a tensor given by its entries, reading every distinct one once.

        Parameters
        ----------
        tensor : array, DenseTensor or PackedTensor
            A symmetric tensor.
        length : int
            The length b of a sketch, which is rounded up to a product of small primes above p.
        n_sketches : int
            The number B of independent sketches.
        combine : {"median", "mean"}
            How their replies are combined.
        rng : None, int or numpy.random.Generator
            Draws buckets and phases.
        """
        if not isinstance(tensor, PackedTensor):
            tensor = PackedTensor.from_dense(
                tensor.entries if isinstance(tensor, DenseTensor) else tensor
            )
        empty = _empty(tensor.dimension, tensor.order, length, n_sketches, combine, rng)
        sketches = [
            _sketch_of(tensor, empty.transforms.shape[1], buckets, phases)
            for buckets, phases in zip(empty.buckets, empty.phases, strict=True)
        ]
        return replace(empty, transforms=scipy.fft.fft(np.stack(sketches), axis=1))

    @classmethod
    def of_rows(
        cls,
        rows: Any,
        *,
        length: int,
        n_sketches: int = 9,
        order: int = 3,
        weights: Any = None,
        combine: Combine = "median",
        rng: RngLike = None,
    ) -> TensorSketch:
        """Sketch Σ wᵣ xᵣ⊗ᵖ over rows by FFTs, without its entries.

        Parameters
        ----------
        rows : array or CSR array, n x d
            The xᵣ.
        length, n_sketches, combine, rng
            As in `of_entries`.
        order : int
            The order p of the tensor.
        weights : array of n numbers, optional
            The wᵣ; by default 1/n, so that the tensor is the moment of the rows.
        """
        is_sparse = sparse.issparse(rows)
        checked: Any = sparse.csr_array(rows) if is_sparse else np.asarray(rows)
        n_rows, dimension = checked.shape
        factors = (
            np.full(n_rows, 1 / n_rows)
            if weights is None
            else np.asarray(weights, dtype=np.float64)
        )
        if factors.shape != (n_rows,):
            raise ValueError(
                f"`weights` must hold one number for each of {n_rows} rows. Got shape "
                f"{factors.shape}."
            )
        empty = _empty(dimension, check_count("order", order, 3), length, n_sketches, combine, rng)
        transforms = empty.transforms
        height = max(1, _CHUNK_SIZE // transforms.shape[1])
        for start in range(0, n_rows, height):
            part = checked[start : start + height]
            columns = (part.toarray() if is_sparse else part).T.astype(np.float64)
            transforms = transforms + empty._powers_added(columns, factors[start : start + height])
        return replace(empty, transforms=transforms)

    def without(self, found: Components) -> TensorSketch:
        """Return the sketch of the tensor less some components, with all that these have put into
        the buckets.
        """
        return replace(
            self, transforms=self.transforms - self._powers_added(found.vectors, found.weights)
        )

    def _image(self, block: FloatArray) -> FloatArray:
        replies = self._replies(block)
        return np.median(replies, axis=0) if self.combine == "median" else np.mean(replies, axis=0)

    def _replies(self, block: FloatArray) -> FloatArray:
        """Return the image that each sketch gives, one after another to save memory: B x d x L."""
        replies = np.empty((len(self.buckets), *block.shape))
        for reply, buckets, phases, transform in zip(
            replies, self.buckets, self.phases, self.transforms, strict=True
        ):
            powers = np.conj(self._transformed(block, buckets, phases)) ** (self.order - 1)
            powers *= transform[:, None]
            correlations = scipy.fft.ifft(powers, axis=0, overwrite_x=True)
            reply[:] = (np.conj(phases)[:, None] * correlations[buckets]).real
        return replies

    def _powers_added(self, columns: FloatArray, weights: FloatArray) -> ComplexArray:
        """Return the transforms of the sketches of Σ w x⊗ᵖ over columns x, entries with i ≤ j ≤ k
        only: B x b.

        Over sorted index sets products of the σ(i) xᵢ add up to the complete symmetric polynomial
        of degree p, which Newton's identity p hₚ = Σ sᵣ hₚ₋ᵣ makes of sums of powers; products of
        transforms are sums of buckets.
        """
        added = np.empty_like(self.transforms)
        for total, buckets, phases in zip(added, self.buckets, self.phases, strict=True):
            sums = [
                self._transformed(columns**power, power * buckets % total.size, phases**power)
                for power in range(1, self.order + 1)
            ]
            complete: list[ComplexArray] = [np.ones_like(sums[0])]
            for degree in range(1, self.order + 1):
                terms = (
                    sums[power - 1] * complete[degree - power] for power in range(1, degree + 1)
                )
                complete.append(sum(terms, np.zeros_like(sums[0])) / degree)
            total[:] = complete[-1] @ weights
        return added

    def _transformed(
        self, columns: FloatArray, buckets: IndexArray, phases: ComplexArray
    ) -> ComplexArray:
        """Return the Fourier transform of Σᵢ σ(i) xᵢ at bucket h(i), for every column x: b x n."""
        shape = (self.transforms.shape[1], self.dimension)
        scatter = sparse.csr_array((phases, (buckets, np.arange(self.dimension))), shape=shape)
        return scipy.fft.fft(scatter @ columns, axis=0, overwrite_x=True)


def _empty(
    dimension: int, order: int, length: int, n_sketches: int, combine: Combine, rng: RngLike
) -> TensorSketch:
    """Draw buckets and phases, and sketch the zero tensor with them."""
    rounded = _fast_length(check_count("length", length, 2), order)
    shape = (check_count("n_sketches", n_sketches), dimension)
    generator, n_roots = np.random.default_rng(rng), 2 * order + 1
    buckets = generator.integers(rounded, size=shape)
    phases = np.exp(2j * np.pi * generator.integers(n_roots, size=shape) / n_roots)
    return TensorSketch(
        buckets, phases, np.zeros((n_sketches, rounded), dtype=np.complex128), order, combine
    )


def _fast_length(length: int, order: int) -> int:
    """Return the next number that has only small prime factors, for fast transforms, and none up to
    the order.

    With a factor f ≤ p the tuples (i, …, i) and (j, …, j) of length f would share a bucket f times
    too often.
    """
    primes = [prime for prime in (5, 7, 11, 13) if prime > order] or [order + 1]
    while True:
        rest = length
        for prime in primes:
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return length
        length += 1


def _sketch_of(
    tensor: PackedTensor, length: int, buckets: IndexArray, phases: ComplexArray
) -> ComplexArray:
    """Return the sketch of the distinct entries: those with the same last index at a time, sorted
    tuples before it.
    """
    before = _colexicographic_tuples(tensor.dimension, tensor.order - 1)
    places, factors = buckets[before].sum(axis=0), phases[before].prod(axis=0)
    sketch = np.zeros(length, dtype=np.complex128)
    for last in range(tensor.dimension):  # the packed entries with this last index
        start, stop = (math.comb(last + tensor.order - 1 + more, tensor.order) for more in (0, 1))
        count = stop - start
        place = (places[:count] + buckets[last]) % length
        added = tensor.packed[start:stop] * (factors[:count] * phases[last])
        sketch += np.bincount(place, added.real, length) + 1j * np.bincount(
            place, added.imag, length
        )
    return sketch


def _colexicographic_tuples(dimension: int, length: int) -> IndexArray:
    """Return all i₀ ≤ i₁ ≤ … < `dimension` as columns, sorted by the last index first, as a packed
    tensor has them.
    """
    tuples = itertools.combinations_with_replacement(range(dimension), length)
    by_last_index = sorted(tuples, key=lambda indices: indices[::-1])
    return np.array(by_last_index).T


def sketched_power_method(
    tensor: Any,
    n_components: int,
    *,
    length: int | None = None,
    n_sketches: int = 9,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    rng: RngLike = None,
) -> Components:
    """Return the components that the tensor power method finds with a sketch in place of the
    tensor.

    Parameters
    ----------
    tensor : array, DenseTensor, PackedTensor or TensorSketch
        A symmetric tensor with orthogonal components.
    n_components : int
        The number k of components.
    length, n_sketches : int
        As in `TensorSketch.of_entries`; not used, and not needed, if the tensor is a sketch.
    n_restarts, n_iterations : int, optional
        As in `odeco.decompose`; the number of iterations is fixed.
    rng : None, int or numpy.random.Generator
        Draws the sketches, then the starts.

    Notes
    -----
    A component that is found is subtracted from the sketch, as in the paper. Subtracting it from
    the replies would leave the noise that its own entries make in the buckets.

    References
    ----------
    Wang, Tung, Smola and Anandkumar 2015, arXiv:1506.04448.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from reproduction.baselines import sketched_power_method
    >>> tensor = odeco.Components([2.0, 1.0], np.eye(30)[:, :2]).to_dense()
    >>> sketched_power_method(tensor, 2, length=1000, rng=0).weights.round(1)
    array([2., 1.])
    """
    generator = np.random.default_rng(rng)
    if isinstance(tensor, TensorSketch):
        sketch = tensor
    elif length is None:
        raise ValueError(
            "`length` must be given for a tensor that is no sketch yet. Pass the length of a "
            "sketch."
        )
    else:
        sketch = TensorSketch.of_entries(
            tensor, length=length, n_sketches=n_sketches, rng=generator
        )
    k = check_count("n_components", n_components, 1, sketch.dimension)
    plan = Schedule.default(sketch.dimension, k, n_restarts=n_restarts, n_iterations=n_iterations)
    found: list[Components] = []
    for _ in range(k):
        component = run(sketch, replace(plan, n_components=1), rng=generator).components
        found.append(component)
        sketch = sketch.without(component)
    weights = np.concatenate([each.weights for each in found])
    vectors = np.concatenate([each.vectors for each in found], axis=1)
    return Components(weights, vectors, sketch.order).sorted_by_weight()
