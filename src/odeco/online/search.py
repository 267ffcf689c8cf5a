"""Search a block of rows for the components of their moment.

The components lie in the span of two matrices: the second moment, whose leading eigenvectors lean towards them where
they have more variance than the noise (from some 10 d rows on), and the unfolding of the moment, which needs about
d^1.5 rows and no excess variance (Montanari and Richard 2014, arXiv 1411.1076). The unfolding times its transpose is

    Σ (xᵢᵀxⱼ)ᵖ⁻¹ xᵢ xⱼᵀ   over pairs of rows i ≠ j,

without the pairs i = j, whose terms hold no signal and are larger than all others. The small core of the moment in the
span of both is decomposed, and the result is taken as it is or after joint power steps in all dimensions, whichever
rows that did not find it prefer: on a small block these steps make it worse. All rows are then searched in that way, in
the same span if it showed all components.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.rank import RankEvidence
from odeco.cp.small import decompose_core, fit_independent
from odeco.errors import RankError
from odeco.io.rows import is_sparse, row_slice
from odeco.online.batches import CLEAR
from odeco.online.block import QuantizedRows, row_chunks
from odeco.online.selection import N_GROUPS, HeldOut, select_on_held_out
from odeco.online.sums import RowSum
from odeco.power.power_method import zero_image_error
from odeco.power.tracking import dual_vectors, kept_apart
from odeco.tensors.components import Components, no_components
from odeco.tensors.dense import DenseTensor, symmetrize

#: Directions of the second moment and of the unfolding beyond the number of components, for those that noise hides.
_SPARE_DIRECTIONS = 3

#: Every fourth row is held out from the search, and scores what it finds.
_ONE_IN = 4

#: The least value of held-out rows at a confirmed singular vector, in standard errors: noise has more in one of six
#: cases.
_CONFIRMED = 1.0

#: Joint power steps in all dimensions.
_N_STEPS = 6

#: Joint power steps of what a part of many rows found over all of them: after two, passes end at the limit.
_N_REFINING_STEPS = 2

#: How often what a slice of many rows found is taken out of them, and steps of what was found with what was hidden.
_N_DEFLATIONS, _N_JOINT_STEPS = 2, 2

#: A component that is found again has at least this cosine with the one that is known.
SAME = 0.7

#: Rows of the kernel that are computed at a time.
_KERNEL_ROWS = 2048

#: Rounds and spare columns of subspace iteration, where there are fewer rows than columns.
_N_ROUNDS, _SPARE_COLUMNS = 30, 8

#: Two directions that are equal up to this count once.
_SAME_DIRECTION = 1e-6

#: The largest number of entries of the core in which components are counted: at order 3 it has 50 vectors.
_MOST_ENTRIES = 2**17


@dataclass(frozen=True, eq=False)
class Found:
    """What a search found.

    Attributes
    ----------
    components : Components
        The components.
    clear : array of k booleans
        Which of them three of four rows found, and stand clear of the noise in the others.
    rank_evidence : RankEvidence or None
        The evidence for their number, if that was not given.
    """

    components: Components
    clear: NDArray[np.bool_]
    rank_evidence: RankEvidence | None = None

    @property
    def complete(self) -> bool:
        """Whether the search need not be repeated with more rows."""
        return bool(self.clear.all())

    def refined(self, rows: Any) -> Found:
        """Return what was found after power steps over more rows."""
        found = self.components
        vectors = power_steps(rows, found.vectors, found.order, _N_REFINING_STEPS)
        return replace(self, components=Components(found.weights, vectors, found.order))


def search_rows(
    rows: Any,
    n_components: int,
    order: int,
    seed: int,
    *,
    fewest: int | None = None,
    final: bool = False,
    weighted: bool = False,
) -> Found:
    """Search rows, dense or CSR, for `n_components` components of their moment, or for as many of them as are clear.

    Three of four rows are searched, and the others say whether joint power steps make it better, and which components
    are clear. If not all are, quantized rows are searched for hidden ones, and fewer are tried, down to `fewest` (by
    default none): with one too many, two share what belongs to one, and neither is clear. If all are, or if the search
    is `final`, all rows are searched in the way that was better. No row is then left to confirm what that finds, so
    components that were clear and are not found again take its place.
    """
    n_rows, d = (int(size) for size in rows.shape)
    last = np.arange(n_rows) % _ONE_IN == _ONE_IN - 1
    fresh, searched = rows[last] if n_rows >= _ONE_IN else rows, rows[~last]
    numbers = range(n_components, (n_components if fewest is None else fewest) - 1, -1)
    best: _Attempt | None = None
    for attempt in _attempts(searched, fresh, numbers, order, seed, weighted=weighted, screened=not final):
        if best is None or attempt.clear.sum() >= best.clear.sum() + (len(attempt.clear) < n_components):
            best = attempt
        if attempt.clear.all():
            break
    if best is None:
        return Found(no_components(d, order), np.zeros(1, dtype=np.bool_))
    vectors, clear = best.vectors, best.clear
    if final or clear.all():
        vectors, clear = best.repeated(rows, n_components, order, seed)
    found = Components(_weights(fresh, vectors, order)[0], vectors, order)
    absent = _only_rounding(fresh, dual_vectors(vectors), order)
    if final and fewest is None and absent.any():
        raise zero_image_error(n_components, found.take(~absent))
    return Found(found, clear)


@dataclass(frozen=True, eq=False)
class _Attempt:
    """Components that three of four rows found, and how: from which span, and whether power steps made them better."""

    vectors: FloatArray
    clear: NDArray[np.bool_]
    steps_help: bool
    stage: int
    basis: FloatArray

    def repeated(self, rows: Any, n_components: int, order: int, seed: int) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the components of all rows, found in the same way, and which are clear.

        A span that shows all components is taken as it is: forming it takes longest.
        """
        vectors, clear, basis = self.vectors, self.clear, self.basis
        if not clear.all():
            basis = next(islice(_spans(rows, n_components + _SPARE_DIRECTIONS, order, seed), self.stage, None))
        again = _vectors_in_span((basis, mean_over(rows, "core", basis, order)), len(clear), seed)
        again = power_steps(rows, again, order, _N_STEPS) if self.steps_help else again
        cosines = np.abs(vectors[:, clear].T @ again)
        if np.any(cosines.max(axis=1) < SAME):
            return power_steps(rows, vectors, order, _N_STEPS), clear
        return again, cosines.max(axis=0, initial=0.0) >= SAME


def _attempts(
    searched: Any, fresh: Any, numbers: range, order: int, seed: int, *, weighted: bool, screened: bool
) -> Iterator[_Attempt]:
    """Yield what rows show of each number of components in every span, or in those that held-out rows confirm."""
    screened = screened and len(numbers) == 1 and order == 3
    for stage, basis in enumerate(_spans(searched, numbers.start + _SPARE_DIRECTIONS, order, seed)):
        span = basis, mean_over(searched, "core", basis, order)
        if screened and not _is_confirmed(span, fresh, numbers.start):
            continue
        for n in numbers:
            in_span = _vectors_in_span(span, n, seed)
            stepped = power_steps(searched, in_span, order, _N_STEPS)
            steps_help = _score(fresh, stepped, order) > _score(fresh, in_span, order)
            vectors = stepped if steps_help else in_span
            clear = clear_components(fresh, vectors, order, weighted=weighted)
            yield _Attempt(vectors, clear, steps_help, stage, basis)


def _is_confirmed(span: tuple[FloatArray, FloatArray], fresh: Any, n_components: int) -> bool:
    """Tell whether rows that did not find a core of order 3 agree with its leading singular vectors, one per component.

    Where they do not, a fit would follow the noise, which takes it longest: more rows are the better way to go on.
    """
    basis, core = span
    width = len(core)
    left, _, right = np.linalg.svd(core.reshape(width, -1), full_matrices=False)
    products = _products(fresh, basis)
    for u, matrix in zip(left.T[:n_components], right[:n_components], strict=True):
        values = (products @ u) * ((products @ matrix.reshape(width, width)) * products).sum(axis=1)
        if values.mean() <= _CONFIRMED * values.std() / math.sqrt(len(values)):
            return False
    return True


def _vectors_in_span(span: tuple[FloatArray, FloatArray], n_components: int, seed: int) -> FloatArray:
    """Return components in a span, given its basis and the core of the moment in it."""
    basis, core = span
    inside = fit_independent(DenseTensor(symmetrize(core)), n_components, seed, decompose_core)
    vectors: FloatArray = basis @ inside.vectors
    return vectors


def count_components(rows: Any, order: int, seed: int) -> Found:
    """Search rows for all components that held-out rows confirm."""
    n_rows, d = (int(size) for size in rows.shape)
    nothing = no_components(d, order)
    if n_rows < 2 * N_GROUPS:
        raise RankError(
            f"To select the number of components, some rows must find them and {N_GROUPS} groups of others confirm "
            f"them. There are {n_rows:,} rows, too few for that. Pass n_components as an int.",
            nothing,
        )
    places = np.arange(n_rows)
    width = min(d, int(_MOST_ENTRIES ** (1 / order)))
    most = d if width == d else max(1, (width - 5) // 2)
    early = rows[places % 2 == 0]
    basis: FloatArray = np.eye(d)
    if width < d:
        basis = span_of_components(early, width // 2, order, seed)
    groups = [rows[(places % 2 == 1) & (places // 2 % N_GROUPS == group)] for group in range(N_GROUPS)]
    cores = [mean_over(group, "core", basis, order) for group in groups]
    fitted = mean_over(early, "core", basis, order)
    if not fitted.any():
        raise zero_image_error(1, nothing)
    evidence, inside = select_on_held_out(HeldOut(fitted, cores, most, seed))
    vectors = power_steps(rows, basis @ inside.vectors, order, _N_STEPS) if inside.n_components else basis[:, :0]
    weights, _ = _weights(rows, vectors, order)
    found = Components(weights, vectors, order)
    return Found(found, np.ones(len(weights), dtype=np.bool_), evidence)


def mean_over(rows: Any, question: Any, block: FloatArray, order: int) -> FloatArray:
    """Return the mean over rows that is the reply to a query."""
    total = RowSum(question, block, order)
    for piece in row_chunks(rows) if isinstance(rows, QuantizedRows) else [rows]:
        total.update(piece)
    return total.mean()


def power_steps(rows: Any, vectors: FloatArray, order: int, n_steps: int) -> FloatArray:
    """Return vectors after power steps of all of them together, each at the vector dual to the others."""
    for _ in range(n_steps):
        images = mean_over(rows, "image", dual_vectors(vectors), order)
        sizes = np.linalg.norm(images, axis=0)
        moved = np.where(sizes > 0, images / np.where(sizes > 0, sizes, 1.0), vectors)
        vectors = kept_apart(vectors, moved, sizes)
    return vectors


def clear_components(rows: Any, vectors: FloatArray, order: int, *, weighted: bool = False) -> NDArray[np.bool_]:
    """Tell which components stand clear of the noise in rows that did not find them.

    Rows times roots of weights are taken to be Gaussian given their lengths r: noise has E r²ᵖ in place of (E r²)ᵖ.
    """
    weights, errors = _weights(rows, vectors, order)
    if weighted:
        squares = np.concatenate([_squared_lengths(chunk) for chunk in row_chunks(rows)])
        errors = errors * np.sqrt(np.mean((squares / max(float(squares.mean()), np.finfo(float).tiny)) ** order))
    clear: NDArray[np.bool_] = (np.abs(weights) > CLEAR * errors) & ~_only_rounding(rows, dual_vectors(vectors), order)
    return clear


def _only_rounding(rows: Any, vectors: FloatArray, order: int) -> NDArray[np.bool_]:
    """Tell at which vectors w the moment xᵖ of every row has a value (xᵀw)ᵖ that rounding its entries can give."""
    error = (rows.shape[1] * np.finfo(rows.dtype).eps) ** (1 / order) * np.linalg.norm(vectors, axis=0)
    absent = np.ones(vectors.shape[1], dtype=np.bool_)
    for chunk in row_chunks(rows):
        lengths = np.sqrt(_squared_lengths(chunk))
        absent &= (np.abs(chunk @ vectors) <= lengths[:, None] * error).all(axis=0)
    return absent


def _squared_lengths(rows: Any) -> FloatArray:
    squares = rows.multiply(rows) if is_sparse(rows) else rows * rows
    return np.asarray(squares.sum(axis=1), np.float64).ravel()


def _score(rows: Any, vectors: FloatArray, order: int) -> float:
    """Return the sum of the values of the moment at the vectors, without their signs."""
    return float(np.abs(np.mean(_products(rows, vectors) ** order, axis=0)).sum())


def _weights(rows: Any, vectors: FloatArray, order: int) -> tuple[FloatArray, FloatArray]:
    """Return the weight that rows give to each component, and its standard error if the rows were Gaussian.

    The p-th power of a Gaussian variable of variance v has the second moment (2p − 1)!! vᵖ.
    """
    products = _products(rows, dual_vectors(vectors))
    weights = np.mean(products**order, axis=0)
    factor = math.prod(range(1, 2 * order, 2))
    return weights, np.sqrt(factor * np.mean(products**2, axis=0) ** order / rows.shape[0])


def _products(rows: Any, vectors: FloatArray) -> FloatArray:
    if isinstance(rows, QuantizedRows):
        return np.concatenate([chunk @ vectors for chunk in row_chunks(rows)])
    products: FloatArray = rows @ vectors
    return products


# The span of the components -------------------------------------------------------------------------------------------


def span_of_components(rows: Any, width: int, order: int, seed: int) -> FloatArray:
    """Return an orthonormal basis of the leading directions of the second moment and of the unfolding, `width` each."""
    *_, basis = _spans(rows, width, order, seed)
    return basis


def _spans(rows: Any, width: int, order: int, seed: int) -> Iterator[FloatArray]:
    """Yield that basis; of quantized rows a first one, and a second from a search for hidden components.

    The second takes three times as long, and is needed if rows that did not find them leave the first in doubt.
    """
    n_rows, d = (int(size) for size in rows.shape)
    width = min(width, n_rows, d)
    stages, many = ((1, _N_DEFLATIONS) if isinstance(rows, QuantizedRows) else (0,)), np.empty((d, 0))
    leading: list[FloatArray] = []
    for n_rounds in stages:
        with one_blas_thread():  # results must not depend on the number of threads
            if n_rounds:
                many = _leading_of_many_rows(rows, width, many, n_rounds)
                leading = [leading[0] if leading else _leading(_second_moment(rows), width), many]
            elif d <= n_rows:
                leading = [_leading(_second_moment(rows), width), _leading(_unfolding(rows, order), width)]
            else:
                leading = _leading_of_few_rows(rows, width, order, seed)
            basis, sizes, _ = np.linalg.svd(np.hstack(leading), full_matrices=False)
        yield basis[:, sizes > _SAME_DIRECTION]


def _leading(matrix: FloatArray, width: int) -> FloatArray:
    d = matrix.shape[0]
    vectors: FloatArray = eigh(matrix, subset_by_index=[d - width, d - 1], check_finite=False)[1]
    return vectors


def _second_moment(rows: Any) -> FloatArray:
    total = np.zeros((rows.shape[1],) * 2)
    for chunk in row_chunks(rows):
        product = chunk.T @ chunk
        total += product.toarray() if is_sparse(product) else product
    return total


def _unfolding(rows: Any, order: int) -> FloatArray:
    """Return the sum over pairs of different rows, in single precision: it only has to find a span."""
    chunks = [chunk.astype(np.float32) for chunk in row_chunks(rows)]
    pairs = [(first, second) for second in range(len(chunks)) for first in range(second + 1)]

    def contract(pair: tuple[int, int]) -> FloatArray:
        first, second = (chunks[place] for place in pair)
        kernel = _kernel(first, second, order)
        if pair[0] == pair[1]:
            np.fill_diagonal(kernel, 0.0)
        part: FloatArray = first.T @ (kernel @ second if not is_sparse(second) else (second.T @ kernel.T).T)
        return part if pair[0] == pair[1] else part + part.T

    total = np.zeros((rows.shape[1],) * 2)
    for part in map_blocks(contract, pairs, parallel=True):
        total += part
    return total


def _kernel(first: Any, second: Any, order: int) -> Any:
    products = first @ second.T
    dense = products.toarray() if is_sparse(products) else products
    return dense ** (order - 1) if order != 3 else np.square(dense, out=dense)


def _leading_of_few_rows(rows: Any, width: int, order: int, seed: int) -> list[FloatArray]:
    """Return the leading directions of both matrices by subspace iteration, through the kernel of the rows."""
    n_rows = int(rows.shape[0])
    single = rows.astype(np.float32)
    kernel = np.empty((n_rows, n_rows), np.float32)
    edges = [(start, min(start + _KERNEL_ROWS, n_rows)) for start in range(0, n_rows, _KERNEL_ROWS)]

    def fill(edge: tuple[int, int]) -> None:
        kernel[edge[0] : edge[1]] = _kernel(row_slice(single, *edge), single, order)

    for _ in map_blocks(fill, edges, parallel=True):
        pass
    np.fill_diagonal(kernel, 0.0)
    start = np.random.default_rng(seed).standard_normal((rows.shape[1], min(width + _SPARE_COLUMNS, n_rows)))
    leading = []
    for between in (None, kernel):
        block: FloatArray = start
        for _ in range(_N_ROUNDS):
            inside = single @ np.linalg.qr(block)[0].astype(np.float32)
            block = (single.T @ (inside if between is None else between @ inside)).astype(np.float64)
        leading.append(np.linalg.svd(block, full_matrices=False)[0][:, :width])
    return leading


# Blocks with too many pairs of rows --------------------------------------------------------------------------------


def _leading_of_many_rows(rows: Any, width: int, basis: FloatArray, n_rounds: int) -> FloatArray:
    """Return an orthonormal basis of `width` directions in which the moment is large, given those found before.

    The slice that finds most components has noise in proportion to the root of their number, and hides a few. So it is
    taken again, of rows without what they have in the directions found: there, only those few are left.
    """
    for _ in range(n_rounds):
        hidden = _orthogonal_iteration(rows, _leading_of_slice(rows, width, basis), width, _N_STEPS, basis)
        basis = _orthogonal_iteration(rows, np.hstack([basis, hidden]), width, _N_JOINT_STEPS)
    return basis


def _chunks_without(rows: Any, known: FloatArray | None) -> Iterator[NDArray[np.float32]]:
    """Yield chunks of rows without what they have in the span of known directions."""
    single = None if known is None else known.astype(np.float32)
    for chunk in row_chunks(rows):
        yield chunk if single is None or not single.size else chunk - (chunk @ single) @ single.T


def _leading_of_slice(rows: Any, width: int, known: FloatArray) -> FloatArray:
    """Return the directions of the largest eigenvalues of T(I, I, a), where a = Σ T(eᵢ, eᵢ, I), in any sign.

    For orthogonal components a is Σ λⱼ vⱼ, and the slice Σ λⱼ² vⱼ vⱼᵀ. For few components their noise is that of the
    unfolding, at d² operations per row (Hopkins, Schramm, Shi and Steurer 2016, arXiv 1512.02337). A row is contracted
    with the others only, and what the mean row adds to a, which is tr(E x xᵀ) times that row, is subtracted. Rows are
    taken without what they have in known directions.
    """
    n_rows, d = rows.shape
    total, weighted, size = np.zeros(d), np.zeros(d), 0.0
    for chunk in _chunks_without(rows, known):
        squares = np.sum(chunk * chunk, axis=1)
        total += chunk.sum(axis=0)
        weighted += squares @ chunk
        size += float(squares.sum())
    trace = (weighted - size / n_rows * total).astype(np.float32)
    matrix = np.zeros((d, d))
    for chunk in _chunks_without(rows, known):
        squares = np.sum(chunk * chunk, axis=1)
        others = chunk @ trace - (squares - size / n_rows) * squares
        matrix += chunk.T @ (others[:, None] * chunk)
    sizes, axes = eigh(matrix, check_finite=False)
    largest_first = np.argsort(-np.abs(sizes - np.median(sizes)), kind="stable")  # noise adds a multiple of I
    directions: FloatArray = axes[:, largest_first[:width]]
    return directions


def _orthogonal_iteration(
    rows: Any, basis: FloatArray, width: int, n_steps: int, known: FloatArray | None = None
) -> FloatArray:
    """Return a basis after higher-order orthogonal iteration (De Lathauwer, De Moor and Vandewalle 2000).

    The basis of each step is the span of the leading left singular vectors of T(I, Q, Q), for the basis Q before it.
    Rows are taken without what they have in known directions.
    """
    for _ in range(n_steps):
        first, second = np.triu_indices(basis.shape[1])
        scale = np.where(first == second, 1.0, math.sqrt(2.0)).astype(np.float32)  # pairs i < j stand for j < i too
        images = np.zeros((basis.shape[0], first.size))
        for chunk in _chunks_without(rows, known):
            inside = chunk @ basis.astype(np.float32)
            images += chunk.T @ (inside[:, first] * inside[:, second] * scale)
        basis = np.linalg.svd(images, full_matrices=False)[0][:, :width]
    return basis
