"""Check word counts, divide them into chunks, and multiply chunks with matrices.

A chunk holds what sums over its documents need. Products are bit-identical on any number of
threads, and their temporary arrays stay small.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.errors import WordCountError
from odeco.io.rows import csr_view, native, row_slice

#: A document needs at least this many words to have a triple of them.
FEWEST_WORDS = 3

#: A chunk ends after this many stored numbers, so that its dense products with a basis take tens of
#: megabytes.
_CHUNK_SIZE = 2**21

#: A chunk ends after a multiple of this many documents in any case: they are a leaf of the tree of
#: sums.
UNIT_DOCUMENTS = 2**15

#: Documents go in turn to this many groups; the spread between groups gives standard errors.
N_GROUPS = 8

#: To select the number of topics, documents are divided into this many parts, which make halves in
#: three ways.
N_PARTS = 4

#: A product has this many lanes, whatever the number of threads; each lane writes its own part of
#: the result.
_LANES = 8

#: This many documents, or words, are contracted at a time: the caches hold their coordinates in a
#: basis.
_BLOCK_HEIGHT = 2**11

#: Of the parts of words that repeat, those with less than this share of the sum are left out in
#: many directions: about a thousandth of the moment, where the error of sampling documents is some
#: hundredths.
_NEGLIGIBLE = 1e-5

#: In many directions, documents are sampled for the third moment: at most this many for each
#: direction of a chunk.
_SAMPLED_PER_DIRECTION = 48

#: Directions with less than this share of the strongest have no say in the sample: single precision
#: does not hold them.
_HARDLY_THERE = 1e-6

#: A thread computes the entries [a, b, c] of a third moment for this many b; in single precision
#: one product has four.
_MIDDLES = 8
_TOGETHER = 4

#: In more directions than this, products of triples are in single precision; see `core_dtype`.
_DOUBLE_DIRECTIONS = 64

#: This many rows of a V x m array are changed in place at a time.
_TALL_HEIGHT = 2**15

#: With fewer multiplications than this, handing lanes to threads takes longer than the work itself.
_PARALLEL_WORK = 2**20

#: No count may be larger: sums of powers of the length of a document would overflow or lose whole
#: numbers.
_MAX_COUNT = 2**40


@dataclass(frozen=True, eq=False)
class CountChunk:
    """Some documents, with what sums over their words, and over pairs and triples of distinct
    positions, need.

    Attributes
    ----------
    rows : CSR array, n x V
        Counts of the n documents with at least three words; other documents add nothing to the
        sums.
    columns : CSR array, u x n
        The transpose of `rows`, only of the u words that occur.
    words : array of u indices
        Which words those are.
    lengths : array of n numbers
        Number of words in each of these documents.
    pair, triple : arrays of n numbers
        Weight of each document, which is its number of words, divided by its number of ordered
        pairs of distinct positions, and of ordered triples of distinct positions. On real text
        longer documents are more informative.
    groups : array of n indices
        Group of each document: its index among all documents ever seen, modulo the number of
        groups.
    group_weights : array
        Sum of the weights of the documents in each group.
    n_documents, n_empty, n_short, n_tokens : int
        Number of all documents of the chunk, of those without a word, of those with one or two
        words, and of all words.
    """

    rows: Any
    columns: Any
    words: IndexArray
    lengths: FloatArray
    pair: FloatArray
    triple: FloatArray
    groups: IndexArray
    group_weights: FloatArray
    n_documents: int
    n_empty: int
    n_short: int
    n_tokens: int


def as_counts(counts: Any, n_words: int | None = None) -> Any:
    """Return word counts, documents x vocabulary, as a checked CSR array of float64 without stored
    zeros.
    """
    given: Any = counts if sparse.issparse(counts) else native(np.asarray(counts))
    if given.ndim != 2:
        raise WordCountError(
            f"Word counts must have two axes, documents x words. Got shape {given.shape}. Pass "
            "counts[None, :] for a single document."
        )
    if given.dtype.kind not in "iubf":
        raise WordCountError(
            f"Word counts must be numbers. Got {given.dtype}. Count words with a vectoriser first."
        )
    array: Any = sparse.csr_array(given)
    if array.shape[1] == 0:
        raise WordCountError(
            f"The vocabulary must hold a word. Got shape {array.shape}. Loosen the pruning of the "
            "vocabulary."
        )
    if n_words is not None and array.shape[1] != n_words:
        raise WordCountError(
            f"All batches must share one vocabulary. It has {n_words:,} words. Got "
            f"{array.shape[1]:,} columns. Count the batch with the vectoriser of the first."
        )
    _check_values(array)
    if array.dtype != np.float64:
        array = array.astype(np.float64)
    if not array.has_canonical_format or bool(np.any(array.data == 0)):
        array = array.copy()
        array.sum_duplicates()
        array.eliminate_zeros()
    return array


def are_texts(X: Any) -> bool:
    """Return whether texts were passed, one or several, and not word counts."""
    first = X
    if isinstance(X, list | tuple) or (
        getattr(X, "ndim", None) == 1 and getattr(X, "dtype", None) is not None
    ):
        first = next(iter(X), None)
    return isinstance(first, str)


def _check_values(array: Any) -> None:
    """Raise unless every stored number is finite, not negative, whole, and not too large."""
    stored = array.data
    checks = (
        (np.isfinite, "be finite. Got {}. Replace or drop it."),
        (
            lambda data: data >= 0,
            "not be negative. Negative values in data: {}. Check how it was made.",
        ),
        (lambda data: data <= _MAX_COUNT, "be at most 2**40. Got {}. Check how it was made."),
        (
            lambda data: data == np.floor(data),
            (
                "be whole numbers. Got {}. Pass counts, such as those of CountVectorizer, not "
                "frequencies or tf-idf."
            ),
        ),
    )
    for holds, what in checks:
        good = holds(stored)
        if not good.all():
            raise WordCountError(f"Word counts must {what.format(_named(array, ~good))}")


def _named(array: Any, bad: Any) -> str:
    """Return the first bad count with its document and word."""
    place = int(np.flatnonzero(bad)[0])
    document = int(np.searchsorted(array.indptr, place, side="right")) - 1
    return f"counts[{document}, {int(array.indices[place])}] = {float(array.data[place]):.6g}"


def count_chunks(counts: Any, first: int = 0) -> Iterator[CountChunk]:
    """Cut checked counts into chunks; `first` is the number of documents that were seen before
    them.

    A chunk never reaches beyond a multiple of `UNIT_DOCUMENTS`, counted from the start of `counts`.
    """
    start = 0
    while start < counts.shape[0]:
        ends = counts.indptr[start + 1 :]
        n_rows = int(np.searchsorted(ends, counts.indptr[start] + _CHUNK_SIZE)) + 1
        stop = min(start + min(n_rows, UNIT_DOCUMENTS - start % UNIT_DOCUMENTS), counts.shape[0])
        yield _chunk(row_slice(counts, start, stop), first + start)
        start = stop


def _chunk(rows: Any, first: int) -> CountChunk:
    lengths = np.asarray(rows.sum(axis=1), dtype=np.float64)
    groups = (first + np.arange(rows.shape[0])) % N_GROUPS
    usable = lengths >= FEWEST_WORDS
    n_empty = int(np.sum(lengths == 0))
    n_documents = int(rows.shape[0])
    n_tokens = int(lengths.sum())
    if not usable.all():
        kept = np.flatnonzero(usable)
        rows = rows[kept]
        groups = groups[kept]
        lengths = lengths[kept]
    present = np.zeros(rows.shape[1], dtype=np.bool_)
    present[rows.indices] = True
    words = np.flatnonzero(present)
    return CountChunk(
        rows=rows,
        columns=_transposed(rows, words),
        words=words,
        lengths=lengths,
        pair=lengths / (lengths * (lengths - 1)),
        triple=lengths / (lengths * (lengths - 1) * (lengths - 2)),
        groups=groups,
        group_weights=np.bincount(groups, lengths, N_GROUPS).astype(np.float64, copy=False),
        n_documents=n_documents,
        n_empty=n_empty,
        n_short=n_documents - n_empty - lengths.size,
        n_tokens=n_tokens,
    )


def _transposed(rows: Any, words: IndexArray) -> Any:
    """Return the transpose of CSR rows, only of the words that occur."""
    by_word = rows.tocsc()
    # A word without entries only repeats a pointer, so the pointers of the words that occur are all
    # that is needed.
    pointers = by_word.indptr[np.append(words, rows.shape[1])]
    return csr_view(by_word.data, by_word.indices, pointers, rows.shape[0])


def blocks(n_rows: int, *, tall: bool = False) -> list[slice]:
    """Return slices of rows that are worked on one at a time; `tall` is for V x m arrays that are
    changed in place.
    """
    height = _TALL_HEIGHT if tall else _BLOCK_HEIGHT
    return [slice(start, min(start + height, n_rows)) for start in range(0, n_rows, height)]


def divide_documents(
    counts: Any, frequency: IndexArray | None = None, n_documents: int | None = None
) -> IndexArray:
    """Return which of `N_PARTS` parts each document is in. That depends on its words, and not on
    its place.

    If there are more documents than these, `frequency` is the number of all that contain each word,
    and `n_documents` the number of all.

    Texts that repeat each other, such as replies and versions of one text, must be in one part,
    because what only they share says nothing about other documents. They share their rare words.
    Documents with the same rarest word are therefore in one part, if at most √n documents contain
    it; others are divided by a hash of all their words.
    """
    n_words = counts.shape[1]
    if frequency is None or n_documents is None:
        frequency = np.bincount(counts.indices, minlength=n_words)
        n_documents = counts.shape[0]
    rare_first = np.argsort(frequency, kind="stable")
    rank = np.empty(n_words, dtype=np.int64)
    rank[rare_first] = np.arange(n_words)
    filled = np.flatnonzero(np.diff(counts.indptr))
    starts = counts.indptr[filled]
    rarest = rare_first[np.minimum.reduceat(rank[counts.indices], starts)]
    hashes = np.random.default_rng(0).integers(2**64, size=n_words, dtype=np.uint64)
    of_all_words = np.add.reduceat(counts.data.astype(np.uint64) * hashes[counts.indices], starts)
    parts = np.zeros(counts.shape[0], dtype=np.int64)
    hashed = np.where(frequency[rarest] <= math.isqrt(n_documents), hashes[rarest], of_all_words)
    parts[filled] = (hashed >> np.uint64(32)) % np.uint64(N_PARTS)
    return parts


def multiply_alone(rows: Any, matrix: FloatArray) -> FloatArray:
    """Return the product of a CSR array and a dense matrix, in the precision of the matrix."""
    data = rows.data.astype(matrix.dtype, copy=False)
    product: FloatArray = csr_view(data, rows.indices, rows.indptr, rows.shape[1]) @ matrix
    return product


def multiply(rows: Any, matrix: FloatArray) -> FloatArray:
    """Return the same product, in lanes on all cores."""
    product = np.empty((rows.shape[0], matrix.shape[1]), dtype=matrix.dtype)
    # Lanes hold about the same number of stored entries.
    ideal = rows.indptr[-1] * np.arange(_LANES + 1) // _LANES
    edges = np.maximum.accumulate(np.searchsorted(rows.indptr, ideal))
    edges[0] = 0
    edges[-1] = rows.shape[0]

    def work(lane: tuple[int, int]) -> None:
        start, stop = lane
        if stop > start:
            product[start:stop] = multiply_alone(row_slice(rows, start, stop), matrix)

    parallel = rows.nnz * matrix.shape[1] >= _PARALLEL_WORK
    for _ in map_blocks(work, itertools.pairwise(edges.tolist()), parallel=parallel):
        pass
    return product


def triple_core(chunk: CountChunk, inside: FloatArray, basis: FloatArray) -> FloatArray:
    """Return the sum of the triples of a chunk's documents, contracted with a basis B three times.

    `inside` is C B for the counts C of the chunk. With y = Bᵀc for a document c, and wᵥ the row of
    B that belongs to word v, the sum over triples of distinct positions is Σ y⊗y⊗y minus the three
    placements of wᵥ⊗wᵥ⊗rᵥ, summed over words, with r = d − ⅔ a w, d = Σ c yᵀ and a = Σ c over
    documents, each with its weight. Only entries [a, b, c] with a ≤ b ≤ c are computed, a sixth of
    them, as matrix products for one b at a time, or in single precision for some.
    """
    m = inside.shape[1]
    dtype: Any = core_dtype(m)
    weighted = chunk.triple[:, None].astype(inside.dtype) * inside
    local = basis[chunk.words]
    repeated = multiply(chunk.columns, weighted)
    repeated -= (2 / 3) * (chunk.columns @ chunk.triple)[:, None] * local
    sizes = np.einsum("vm,vm->v", local, local) * np.linalg.norm(repeated, axis=1)
    kept = sizes > (_NEGLIGIBLE * sizes.sum() if dtype is np.float32 else 0.0)
    total = np.zeros((m, m, m))
    together = _TOGETHER if dtype is np.float32 else 1

    def in_blocks(*arrays: FloatArray) -> list[tuple[FloatArray, ...]]:
        """Return rows in blocks, each transposed: products of directions are then those of
        contiguous numbers.
        """
        parts = blocks(arrays[0].shape[0])
        return [
            tuple(np.ascontiguousarray(each[part].T, dtype=dtype) for each in arrays)
            for part in parts
        ]

    def flat(products: FloatArray) -> FloatArray:
        return products.reshape(-1, products.shape[-1])

    of_documents = in_blocks(weighted, inside)
    of_words = in_blocks(local[kept], repeated[kept])

    def work(start: int) -> None:
        end = min(start + _MIDDLES, m)
        for b in range(start, end, together):
            stop = min(b + together, end)
            for left, right in of_documents:
                if (
                    together > 1 and 2 * b < m
                ):  # of the axes a and c, the one with fewer directions makes pairs with b
                    product = flat(right[:stop, None] * right[b:stop]) @ left[b:].T
                else:
                    product = left[:stop] @ flat(right[b:stop, None] * right[b:]).T
                total[:stop, b:stop, b:] += product.reshape(stop, stop - b, m - b)
            for w, r in of_words:
                once = w[b:stop, None] * r[b:] + w[b:] * r[b:stop, None]
                twice = w[b:stop, None] * w[b:]
                product = w[:stop] @ flat(once).T + r[:stop] @ flat(twice).T
                total[:stop, b:stop, b:] -= product.reshape(stop, stop - b, m - b)

    parallel = (chunk.rows.shape[0] + chunk.words.size) * m**3 >= _PARALLEL_WORK
    for _ in map_blocks(work, range(0, m, _MIDDLES), parallel=parallel):
        pass
    _fill_from_sorted(total)
    return total


def sample_for_triples(chunk: CountChunk, inside: FloatArray) -> tuple[CountChunk, FloatArray]:
    """Return the documents of a chunk for `triple_core`, and their coordinates: in many directions
    only a sample.

    A document is kept with probability p = min(1, c ℓ), for its leverage score ℓ = q yᵀ (Σ q y
    yᵀ)⁻¹ y, where q is its weight for pairs, and counts with 1/p, so the expected sum over triples
    is that of all documents. Leverage scores add up to the number m of directions, so at most c m
    documents are kept. A uniform sample of as many fails: it leaves out the few documents that
    alone show a weak direction, and these are the ones with a leverage near 1 (Cohen and Peng 2015,
    Lp row sampling by Lewis weights, on samples that preserve cubes).
    """
    n, m = inside.shape
    if core_dtype(m) is np.float64 or n <= _SAMPLED_PER_DIRECTION * m:
        return chunk, inside
    weighted = np.sqrt(chunk.pair).astype(inside.dtype)[:, None] * inside
    values, vectors = np.linalg.eigh((weighted.T @ weighted).astype(np.float64))
    there = values > _HARDLY_THERE * values[-1]
    white = weighted @ (vectors[:, there] / np.sqrt(values[there])).astype(inside.dtype)
    chances = np.minimum(
        1.0, _SAMPLED_PER_DIRECTION * np.einsum("nm,nm->n", white, white, dtype=np.float64)
    )
    kept = np.flatnonzero(np.random.default_rng(0).random(n) < chances)
    rows = chunk.rows[kept]
    words = np.unique(rows.indices)
    sample = replace(
        chunk,
        rows=rows,
        columns=_transposed(rows, words),
        words=words,
        triple=chunk.triple[kept] / chances[kept],
    )
    return sample, inside[kept]


def core_dtype(n_directions: int) -> type[np.float32 | np.float64]:
    """Return the type of the numbers of a core with which products are made.

    In many directions it is float32, which takes half the time. Rounding then changes a product by
    a 10⁻⁷th, where the error of sampling n documents is about 1/√n of it. Sums over blocks of
    documents are in double precision.
    """
    if n_directions <= _DOUBLE_DIRECTIONS:
        return np.float64
    return np.float32


def _fill_from_sorted(total: FloatArray) -> None:
    """Fill a symmetric array in place from its entries [a, b, c] with a ≤ b ≤ c."""
    for b in range(total.shape[0]):
        sorted_ones = total[: b + 1, b, b:].copy()
        total[: b + 1, b:, b] = sorted_ones
        total[b, : b + 1, b:] = sorted_ones
        total[b:, b, : b + 1] = sorted_ones.T
        total[b:, : b + 1, b] = sorted_ones.T
        total[b, b:, : b + 1] = sorted_ones.T
