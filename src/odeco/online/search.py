"""Search a block of rows for the components of their moment.

The components lie in the span of two matrices: the second moment, whose leading eigenvectors lean
towards them where they have more variance than the noise (from some 10 d rows on), and the
unfolding of the moment, which needs about d^1.5 rows and no excess variance (Montanari and Richard
2014, arXiv 1411.1076). The unfolding times its transpose is

    Σ (xᵢᵀxⱼ)ᵖ⁻¹ xᵢ xⱼᵀ   over pairs of rows i ≠ j,

without the pairs i = j, whose terms hold no signal and are larger than all others. The small core
of the moment in the span of both is decomposed, and the result is taken as it is or after joint
power steps in all dimensions, whichever rows that did not find it prefer: on a small block these
steps make it worse. All rows are then searched in that way, in the same span if it showed all
components.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from odeco.online.block import row_chunks
from odeco.online.queries import Core, Images
from odeco.online.selection import N_GROUPS, HeldOut, select_on_held_out
from odeco.power.power_method import zero_image_error
from odeco.power.tracking import dual_vectors, kept_apart
from odeco.tensors.components import Components, no_components
from odeco.tensors.dense import DenseTensor, symmetrize

#: A component is clear if rows that did not find it give it a weight of this many standard errors.
CLEAR = 3.0

#: Directions of the second moment and of the unfolding beyond the number of components, for those
#: that noise hides.
_SPARE_DIRECTIONS = 3

#: Every fourth row is held out from the search, and scores what it finds.
_ONE_IN = 4

#: The least value of held-out rows at a confirmed singular vector, in standard errors: noise has
#: more in one of six cases.
_CONFIRMED = 1.0

#: Joint power steps in all dimensions.
_N_STEPS = 6

#: Joint power steps of what a part of many rows found over all of them: after two, passes end at
#: the limit.
_N_REFINING_STEPS = 2

#: A component that is found again has at least this cosine with the one that is known.
SAME = 0.7

#: Rows of the kernel that are computed at a time.
_KERNEL_ROWS = 2048

#: Rounds and spare columns of subspace iteration, where there are fewer rows than columns.
_N_ROUNDS = 30
_SPARE_COLUMNS = 8

#: Two directions that are equal up to this count once.
_SAME_DIRECTION = 1e-6

#: The largest number of entries of the core in which components are counted: at order 3 it has 50
#: vectors.
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
) -> Found:
    """Search rows, dense or CSR, for `n_components` components of their moment, or for as many of
    them as are clear.

    Three of four rows are searched, and the others say whether joint power steps make it better,
    and which components are clear. If not all are, fewer are tried, down to `fewest` (by default
    none): with one too many, two share what belongs to one, and neither is clear. If all are, or if
    the search is `final`, all rows are searched in the way that was better. No row is then left to
    confirm what that finds, so components that were clear and are not found again take its place.
    """
    n_rows, d = (int(size) for size in rows.shape)
    last = np.arange(n_rows) % _ONE_IN == _ONE_IN - 1
    fresh = rows[last] if n_rows >= _ONE_IN else rows
    searched = rows[~last]
    numbers = range(n_components, (n_components if fewest is None else fewest) - 1, -1)
    best: _Attempt | None = None
    for attempt in _attempts(searched, fresh, numbers, order, seed, screened=not final):
        if best is None or attempt.clear.sum() >= best.clear.sum() + (
            len(attempt.clear) < n_components
        ):
            best = attempt
        if attempt.clear.all():
            break
    if best is None:
        return Found(no_components(d, order), np.zeros(1, dtype=np.bool_))
    vectors = best.vectors
    clear = best.clear
    if final or clear.all():
        vectors, clear = best.repeated(rows, n_components, order, seed)
    found = Components(_weights(fresh, vectors, order)[0], vectors, order)
    absent = _only_rounding(fresh, dual_vectors(vectors), order)
    if final and fewest is None and absent.any():
        raise zero_image_error(n_components, found.take(~absent))
    return Found(found, clear)


@dataclass(frozen=True, eq=False)
class _Attempt:
    """Components that three of four rows found, and how: in which span, and whether power steps
    made them better.
    """

    vectors: FloatArray
    clear: NDArray[np.bool_]
    steps_help: bool
    basis: FloatArray

    def repeated(
        self, rows: Any, n_components: int, order: int, seed: int
    ) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the components of all rows, found in the same way, and which are clear.

        A span that shows all components is taken as it is: forming it takes longest.
        """
        vectors = self.vectors
        clear = self.clear
        basis = self.basis
        if not clear.all():
            basis = span_of_components(rows, n_components + _SPARE_DIRECTIONS, order, seed)
        again = _vectors_in_span((basis, Core(basis, order).mean_over(rows)), len(clear), seed)
        again = power_steps(rows, again, order, _N_STEPS) if self.steps_help else again
        cosines = np.abs(vectors[:, clear].T @ again)
        if np.any(cosines.max(axis=1) < SAME):
            return power_steps(rows, vectors, order, _N_STEPS), clear
        return again, cosines.max(axis=0, initial=0.0) >= SAME


def _attempts(
    searched: Any, fresh: Any, numbers: range, order: int, seed: int, *, screened: bool
) -> Iterator[_Attempt]:
    """Yield what rows show of each number of components, if `screened` only in a span that held-out
    rows confirm.
    """
    basis = span_of_components(searched, numbers.start + _SPARE_DIRECTIONS, order, seed)
    span = basis, Core(basis, order).mean_over(searched)
    screened = screened and len(numbers) == 1 and order == 3
    if screened and not _is_confirmed(span, fresh, numbers.start):
        return
    for n in numbers:
        in_span = _vectors_in_span(span, n, seed)
        stepped = power_steps(searched, in_span, order, _N_STEPS)
        steps_help = _score(fresh, stepped, order) > _score(fresh, in_span, order)
        vectors = stepped if steps_help else in_span
        clear = clear_components(fresh, vectors, order)
        yield _Attempt(vectors, clear, steps_help, basis)


def _is_confirmed(span: tuple[FloatArray, FloatArray], fresh: Any, n_components: int) -> bool:
    """Tell whether rows that did not find a core of order 3 agree with its leading singular
    vectors, one per component.

    Where they do not, a fit would follow the noise, which takes it longest: more rows are the
    better way to go on.
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


def _vectors_in_span(
    span: tuple[FloatArray, FloatArray], n_components: int, seed: int
) -> FloatArray:
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
            f"To select the number of components, some rows must find them and {N_GROUPS} groups "
            f"of others confirm them. There are {n_rows:,} rows, too few for that. Pass "
            "n_components as an int.",
            nothing,
        )
    places = np.arange(n_rows)
    width = min(d, int(_MOST_ENTRIES ** (1 / order)))
    most = d if width == d else max(1, (width - 5) // 2)
    early = rows[places % 2 == 0]
    basis: FloatArray = np.eye(d)
    if width < d:
        basis = span_of_components(early, width // 2, order, seed)
    groups = [
        rows[(places % 2 == 1) & (places // 2 % N_GROUPS == group)] for group in range(N_GROUPS)
    ]
    query = Core(basis, order)
    cores = [query.mean_over(group) for group in groups]
    fitted = query.mean_over(early)
    if not fitted.any():
        raise zero_image_error(1, nothing)
    evidence, inside = select_on_held_out(HeldOut(fitted, cores, most, seed))
    if inside.n_components:
        vectors = power_steps(rows, basis @ inside.vectors, order, _N_STEPS)
    else:
        vectors = basis[:, :0]
    weights, _ = _weights(rows, vectors, order)
    found = Components(weights, vectors, order)
    return Found(found, np.ones(len(weights), dtype=np.bool_), evidence)


def power_steps(rows: Any, vectors: FloatArray, order: int, n_steps: int) -> FloatArray:
    """Return vectors after power steps of all of them together, each at the vector dual to the
    others.
    """
    for _ in range(n_steps):
        images = Images(dual_vectors(vectors), order).mean_over(rows)
        sizes = np.linalg.norm(images, axis=0)
        moved = np.where(sizes > 0, images / np.where(sizes > 0, sizes, 1.0), vectors)
        vectors = kept_apart(vectors, moved, sizes)
    return vectors


def clear_components(rows: Any, vectors: FloatArray, order: int) -> NDArray[np.bool_]:
    """Tell which components stand clear of the noise in rows that did not find them."""
    weights, errors = _weights(rows, vectors, order)
    clear: NDArray[np.bool_] = (np.abs(weights) > CLEAR * errors) & ~_only_rounding(
        rows, dual_vectors(vectors), order
    )
    return clear


def _only_rounding(rows: Any, vectors: FloatArray, order: int) -> NDArray[np.bool_]:
    """Tell at which vectors w the moment xᵖ of every row has a value (xᵀw)ᵖ that rounding its
    entries can give.
    """
    error = (rows.shape[1] * np.finfo(rows.dtype).eps) ** (1 / order) * np.linalg.norm(
        vectors, axis=0
    )
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
    """Return the weight that rows give to each component, and its standard error if the rows were
    Gaussian.

    The p-th power of a Gaussian variable of variance v has the second moment (2p − 1)!! vᵖ.
    """
    products = _products(rows, dual_vectors(vectors))
    weights = np.mean(products**order, axis=0)
    factor = math.prod(range(1, 2 * order, 2))
    return weights, np.sqrt(factor * np.mean(products**2, axis=0) ** order / rows.shape[0])


def _products(rows: Any, vectors: FloatArray) -> FloatArray:
    products: FloatArray = rows @ vectors
    return products


# The span of the components -----------------------------------------------------------------------


def span_of_components(rows: Any, width: int, order: int, seed: int) -> FloatArray:
    """Return an orthonormal basis of the leading directions of the second moment and of the
    unfolding, `width` each.
    """
    n_rows, d = (int(size) for size in rows.shape)
    width = min(width, n_rows, d)
    with one_blas_thread():  # results must not depend on the number of threads
        if d <= n_rows:
            leading = [
                _leading(_second_moment(rows), width),
                _leading(_unfolding(rows, order), width),
            ]
        else:
            leading = _leading_of_few_rows(rows, width, order, seed)
        basis, sizes, _ = np.linalg.svd(np.hstack(leading), full_matrices=False)
    directions: FloatArray = basis[:, sizes > _SAME_DIRECTION]
    return directions


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
    """Return the sum over pairs of different rows, in single precision: it only has to find a
    span.
    """
    chunks = [chunk.astype(np.float32) for chunk in row_chunks(rows)]
    pairs = [(first, second) for second in range(len(chunks)) for first in range(second + 1)]

    def contract(pair: tuple[int, int]) -> FloatArray:
        first, second = (chunks[place] for place in pair)
        kernel = _kernel(first, second, order)
        if pair[0] == pair[1]:
            np.fill_diagonal(kernel, 0.0)
        part: FloatArray = first.T @ (
            kernel @ second if not is_sparse(second) else (second.T @ kernel.T).T
        )
        if pair[0] == pair[1]:
            return part
        return part + part.T

    total = np.zeros((rows.shape[1],) * 2)
    for part in map_blocks(contract, pairs, parallel=True):
        total += part
    return total


def _kernel(first: Any, second: Any, order: int) -> Any:
    products = first @ second.T
    dense = products.toarray() if is_sparse(products) else products
    if order != 3:
        return dense ** (order - 1)
    return np.square(dense, out=dense)


def _leading_of_few_rows(rows: Any, width: int, order: int, seed: int) -> list[FloatArray]:
    """Return the leading directions of both matrices by subspace iteration, through the kernel of
    the rows.
    """
    n_rows = int(rows.shape[0])
    single = rows.astype(np.float32)
    kernel = np.empty((n_rows, n_rows), np.float32)
    edges = [(start, min(start + _KERNEL_ROWS, n_rows)) for start in range(0, n_rows, _KERNEL_ROWS)]

    def fill(edge: tuple[int, int]) -> None:
        kernel[edge[0] : edge[1]] = _kernel(row_slice(single, *edge), single, order)

    for _ in map_blocks(fill, edges, parallel=True):
        pass
    np.fill_diagonal(kernel, 0.0)
    start = np.random.default_rng(seed).standard_normal(
        (rows.shape[1], min(width + _SPARE_COLUMNS, n_rows))
    )
    leading = []
    for between in (None, kernel):
        block: FloatArray = start
        for _ in range(_N_ROUNDS):
            inside = single @ np.linalg.qr(block)[0].astype(np.float32)
            block = (single.T @ (inside if between is None else between @ inside)).astype(
                np.float64
            )
        leading.append(np.linalg.svd(block, full_matrices=False)[0][:, :width])
    return leading
