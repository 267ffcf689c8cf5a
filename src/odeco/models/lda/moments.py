"""Moments of words in documents: sums over pairs and triples of words at distinct positions, never
formed.

A document is a row c of counts, with l = Σ c words. Words at distinct positions of a document are
exchangeable, so the mean over its ordered pairs and triples of distinct positions estimates E[x₁ ⊗
x₂] and E[x₁ ⊗ x₂ ⊗ x₃] without bias, however long the document is and however often it repeats a
word:

    pairs    (c cᵀ − diag c) / l(l−1)
    triples  (c⊗c⊗c − Σᵥ cᵥ (eᵥ⊗eᵥ⊗c + eᵥ⊗c⊗eᵥ + c⊗eᵥ⊗eᵥ) + 2 Σᵥ cᵥ eᵥ⊗eᵥ⊗eᵥ) / l(l−1)(l−2)

All that is computed from the moments is a product of the counts, or of their transpose, with V x m
matrices. The moments of latent Dirichlet allocation, whose components are the topics, are these
moments with a correction (`corrected_core`). `WordMoment` is the corrected third moment as an
oracle, to decompose it by other means.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from odeco._util.state import State, array_field, require
from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.errors import WordCountError
from odeco.io.rows import row_slice
from odeco.models.lda.counts import (
    N_GROUPS,
    CountChunk,
    as_counts,
    blocks,
    core_dtype,
    count_chunks,
    multiply,
    sample_for_triples,
    triple_core,
)
from odeco.tensors.oracle import Oracle

#: If a chunk stores fewer numbers than this, handing parts to threads takes longer than working on
#: them.
_PARALLEL_NUMBERS = 2**16

#: A core is contracted by this many rows at a time, in single precision by four times as many; in
#: threads from this size on.
_ROWS = 16
_PARALLEL_SIZE = 64

#: These attributes of `WordSums` are sums over documents.
_SUMMED = (
    "group_weights",
    "_squares",
    "_first",
    "_image",
    "_group_first",
    "_group_pairs",
    "_triples",
)

_COUNTED = ("n_documents", "n_empty", "n_short", "n_tokens")


@dataclass(frozen=True, eq=False)
class SavedSums(State):
    """All sums of a `WordSums` with their basis, as the file of a stream holds them; see
    `WordSums.to_vector`.
    """

    basis: FloatArray = array_field("n_features", "m")
    vector: FloatArray = array_field(None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        n_words, m = self.basis.shape
        n_counts = len(_COUNTED)
        n_positive = n_counts + N_GROUPS + 1 + n_words
        size = n_positive + n_words * m + N_GROUPS * (m + m * m) + m**3
        require(self.vector.size == size, f"it must have {size} sums")
        counts = self.vector[:n_counts]
        require(
            bool(np.all(self.vector[:n_positive] >= 0)),
            "its counts and weights must not be negative",
        )
        require(np.array_equal(counts, np.rint(counts)), "its counts must be whole numbers")
        require(counts[0] > counts[1] + counts[2], "a document of it must have three words")
        weights = self.vector[n_counts : n_counts + N_GROUPS]
        require(float(weights.sum()) > 0, "its documents must have weight")
        largest = max(float(np.abs(each).max(initial=0.0)) for each in (self.basis, self.vector))
        require(largest < 1e100, "its sums must have finite squares and cubes")

    @property
    def n_documents(self) -> int:
        """Number of documents seen."""
        return int(self.vector[0])


class WordSums:
    """Sums over documents that give the first three moments of words in a basis; an accumulator.

    Parameters
    ----------
    n_words : int
        Size V of the vocabulary.
    basis : array, V x m, optional
        The basis in which pairs and triples are summed. Without it only the first moment is summed.
    core : bool
        Whether to sum the moments of pairs and triples in the basis, m x m and m x m x m numbers,
        besides the image of the basis under the moment of pairs, V x m numbers.
    parallel : bool
        Whether to use all cores; results are bit-identical either way.

    Attributes
    ----------
    n_documents, n_empty, n_short, n_tokens : int
        Number of documents seen, of those without a word, of those with one or two words (which add
        nothing), and of words seen.
    group_weights : array
        Total weight in each of the groups to which documents go in turn.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.models.lda.moments import WordSums
    >>> sums = WordSums(2, np.eye(2))
    >>> sums.update(
    ...     [[2, 1]]
    ... )  # the document "a a b": of 6 ordered pairs, 2 are (a, a), 2 (a, b), 2 (b, a)
    >>> sums.pair_core().round(3)
    array([[0.333, 0.333],
           [0.333, 0.   ]])
    """

    def __init__(
        self,
        n_words: int,
        basis: FloatArray | None = None,
        *,
        core: bool = True,
        parallel: bool = True,
    ) -> None:
        self.n_words = n_words
        self.parallel = parallel
        if basis is None:
            self.basis: FloatArray = np.zeros((n_words, 0))
        else:
            self.basis = np.ascontiguousarray(basis)
        m = self.basis.shape[1]
        self.n_documents = self.n_empty = self.n_short = self.n_tokens = 0
        self.group_weights = np.zeros(N_GROUPS)
        self._squares = np.zeros(())
        self._first = np.zeros(n_words)
        self._image = np.zeros((n_words, m)) if m else None
        self._group_first = np.zeros((N_GROUPS, m)) if core and m else None
        self._group_pairs = np.zeros((N_GROUPS, m, m)) if core and m else None
        self._triples = np.zeros((m, m, m)) if core and m else None

    @property
    def weight(self) -> float:
        """Total weight of the documents that count."""
        return float(self.group_weights.sum())

    @property
    def n_usable(self) -> int:
        """Number of documents with at least three words."""
        return self.n_documents - self.n_empty - self.n_short

    @property
    def n_supported(self) -> int:
        """The largest number of topics: that of distinct words, or of documents of three words if
        that is less.
        """
        return min(self.words_that_occur().size, self.n_usable)

    def update(self, counts: Any) -> None:
        """Add documents that are given as counts, documents x words; see `count_chunks`."""
        checked = as_counts(counts, self.n_words)
        self.add(count_chunks(checked, self.n_documents))

    def add(self, chunks: Iterable[CountChunk]) -> None:
        """Add documents that are cut into chunks already."""
        dtype: Any = core_dtype(self.basis.shape[1])
        basis = self.basis.astype(dtype, copy=False)
        for chunk in chunks:
            parallel = self.parallel and chunk.rows.nnz >= _PARALLEL_NUMBERS
            if self._image is not None:
                inside = multiply(chunk.rows, basis, parallel=self.parallel)
                self._add_image(self._image, chunk, inside, basis, parallel)
                if self._triples is not None:
                    self._add_group_sums(chunk, inside, parallel)
                    sample, inside = sample_for_triples(chunk, inside)
                    self._triples += triple_core(sample, inside, basis, parallel=self.parallel)
            self._first[chunk.words] += chunk.columns @ chunk.single
            self._squares += chunk.pair @ (chunk.single * chunk.lengths)
            self.group_weights += chunk.group_weights
            for name in _COUNTED:
                setattr(self, name, getattr(self, name) + getattr(chunk, name))

    def words_that_occur(self) -> IndexArray:
        """Return the words that are in documents of at least three words."""
        return np.flatnonzero(self._first)

    def first_moment(self) -> FloatArray:
        """Return E[x], the frequencies of the words."""
        return self._first / self.weight

    def pair_image_of(self, coordinates: FloatArray) -> FloatArray:
        """Return the transpose of E[x₁ x₂ᵀ] B A for an m x k matrix A: k rows of V numbers, and no
        other such array.
        """
        rows: FloatArray = (coordinates.T / self.weight) @ _require(self._image).T
        return rows

    def image_gram(self) -> FloatArray:
        """Return Zᵀ Z for the image Z = E[x₁ x₂ᵀ] B of the basis B, an m x m array."""
        image = _require(self._image)
        gram: FloatArray = image.T @ image
        gram /= self.weight**2
        return gram

    def pop_image(self) -> FloatArray:
        """Return the image of the basis without a copy, and free it; nothing can be added to the
        sums afterwards.
        """
        image = _require(self._image)
        self._image = None
        image /= self.weight
        return image

    def move(self, mixing: FloatArray, lifting: FloatArray) -> None:
        """Change the basis B to B' = Z R, for the image Z of B and an m x m matrix R = `mixing`.

        Of a vector x that was summed, only Bᵀx is known. So B'ᵀx is computed from it, as Aᵀ Bᵀx
        with A = `lifting`. Basis and image may be large, and are changed in place.
        """
        image = _require(self._image)
        for rows in blocks(self.n_words, tall=True):
            self.basis[rows] = image[rows] @ (mixing / self.weight)
            image[rows] = image[rows] @ lifting
        self._group_first = _require(self._group_first) @ lifting
        self._group_pairs = lifting.T @ _require(self._group_pairs) @ lifting
        self._triples = contract(_require(self._triples), lifting)

    def drop_basis(self) -> None:
        """Free the basis when all documents are summed; the sums remain."""
        self.basis = np.zeros((0, self.basis.shape[1]))

    def first_core(self) -> FloatArray:
        """Return Bᵀ E[x]."""
        core: FloatArray = np.sum(_require(self._group_first), axis=0) / self.weight
        return core

    def pair_core(self) -> FloatArray:
        """Return Bᵀ E[x₁ x₂ᵀ] B."""
        core: FloatArray = np.sum(_require(self._group_pairs), axis=0) / self.weight
        return core

    def pair_cores(self) -> FloatArray:
        """Return Bᵀ E[x₁ x₂ᵀ] B of each group of documents alone, for standard errors."""
        return _require(self._group_pairs) / np.maximum(self.group_weights, 1e-300)[:, None, None]

    def triple_core(self) -> FloatArray:
        """Return the m x m x m array E[(Bᵀx₁) ⊗ (Bᵀx₂) ⊗ (Bᵀx₃)]."""
        return _require(self._triples) / self.weight

    def pair_variance(self) -> float:
        """Return Σ w²/l(l−1) over (Σ w)²: entry (u, v) of the moment of pairs has about f_u f_v
        times this variance.
        """
        return float(self._squares) / self.weight**2

    def decay(self, factor: float) -> None:
        """Multiply the weight of all documents seen so far by `factor`, so that they count less
        than those to come.
        """
        for array in self._summed().values():
            np.multiply(array, factor, out=array)
        self._squares *= factor  # this is a sum of squared weights

    def __add__(self, other: WordSums) -> WordSums:
        """Return the sums over the documents of both, for partitions that were read apart."""
        if self.basis.shape != other.basis.shape or not np.array_equal(self.basis, other.basis):
            raise ValueError(
                "Sums must share their basis to be added. Got two. Make both with the same basis."
            )
        both = WordSums(
            self.n_words, self.basis, core=self._triples is not None, parallel=self.parallel
        )
        both.set_vector(self.to_vector() + other.to_vector())
        return both

    def to_vector(self) -> FloatArray:
        """Return all sums as one array, which adds up as they do; counts of documents are exact up
        to 2⁵³.
        """
        numbers = np.array([getattr(self, name) for name in _COUNTED], dtype=np.float64)
        return np.concatenate([numbers, *(np.ravel(array) for array in self._summed().values())])

    def set_vector(self, vector: FloatArray) -> None:
        """Set all sums from the result of `to_vector`, for the same basis."""
        for name, number in zip(_COUNTED, vector, strict=False):
            setattr(self, name, int(number))
        place = len(_COUNTED)
        for name, array in self._summed().items():
            setattr(self, name, vector[place : place + array.size].reshape(array.shape))
            place += array.size

    def save(self) -> SavedSums:
        """Return all sums; the basis is not copied."""
        return SavedSums(self.basis, self.to_vector())

    @classmethod
    def restore(cls, saved: SavedSums, *, parallel: bool) -> WordSums:
        """Return the sums that `save` returned, with arrays of their own."""
        sums = cls(saved.basis.shape[0], saved.basis.copy(), parallel=parallel)
        sums.set_vector(saved.vector.copy())
        return sums

    def _summed(self) -> dict[str, FloatArray]:
        return {name: getattr(self, name) for name in _SUMMED if getattr(self, name) is not None}

    def _add_image(
        self,
        total: FloatArray,
        chunk: CountChunk,
        inside: FloatArray,
        basis: FloatArray,
        parallel: bool,
    ) -> None:
        weighted = chunk.pair.astype(inside.dtype)[:, None] * inside

        def work(part: slice) -> None:
            words = chunk.words[part]
            columns = row_slice(chunk.columns, part.start, part.stop)
            image = multiply(columns, weighted, parallel=False)
            image -= (columns @ chunk.pair).astype(basis.dtype)[:, None] * basis[words]
            total[words] += image  # each part has words of its own

        for _ in map_blocks(work, blocks(chunk.words.size), parallel=parallel):
            pass

    def _add_group_sums(self, chunk: CountChunk, inside: FloatArray, parallel: bool) -> None:
        first = _require(self._group_first)
        pairs = _require(self._group_pairs)
        own = np.zeros((chunk.groups.size, N_GROUPS), dtype=inside.dtype)
        own[np.arange(chunk.groups.size), chunk.groups] = chunk.pair

        def documents(group: int) -> tuple[FloatArray, FloatArray]:
            chosen = np.flatnonzero(chunk.groups == group)
            mine = inside[chosen]
            return chunk.single[chosen] @ mine, mine.T @ (
                chunk.pair[chosen, None].astype(mine.dtype) * mine
            )

        def diagonals(part: slice) -> FloatArray:
            local = self.basis[chunk.words[part]].astype(inside.dtype)
            repeated = multiply(
                row_slice(chunk.columns, part.start, part.stop), own, parallel=False
            )
            squares: FloatArray = (repeated.T[:, None, :] * local.T) @ local
            return squares

        for group, (row, square) in enumerate(
            map_blocks(documents, range(N_GROUPS), parallel=parallel)
        ):
            first[group] += row
            pairs[group] += square
        for squares in map_blocks(diagonals, blocks(chunk.words.size), parallel=parallel):
            pairs -= squares


def check_usable(sums: WordSums) -> None:
    """Raise if no document has the three words that a triple takes."""
    if sums.n_usable == 0:
        raise WordCountError(
            f"At least one document must hold three words. Got {sums.n_documents:,} documents, "
            f"{sums.n_empty:,} of them empty, and a vocabulary of n_features={sums.n_words}. Join "
            "short documents, or loosen the pruning of the vocabulary."
        )


def _require(array: FloatArray | None) -> FloatArray:
    if array is None:
        raise ValueError(
            "Moments in a basis must be requested when sums are made. These were not. Pass a "
            "basis and core=True."
        )
    return array


def contract(core: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return T(A, A, A) for an m x m x m array T and an m x k matrix A."""
    m, k = matrix.shape
    dtype: Any = core_dtype(m)
    unfolded = core.reshape(m, m * m).astype(dtype, copy=False)
    matrix = matrix.astype(dtype, copy=False)

    height = 4 * _ROWS if dtype is np.float32 else _ROWS

    def rows(start: int) -> FloatArray:
        first: FloatArray = (matrix[:, start : start + height].T @ unfolded).reshape(-1, m, m)
        contracted: FloatArray = matrix.T @ (first @ matrix)
        return contracted

    parts = map_blocks(rows, range(0, k, height), parallel=m >= _PARALLEL_SIZE)
    return np.concatenate([np.empty((0, k, k)), *parts])


def corrected_core(
    triples: FloatArray, pairs: FloatArray, first: FloatArray, concentration: float
) -> tuple[FloatArray, FloatArray]:
    """Return the second and the third moment of the model in a basis, from those of words in the
    same basis.
    """
    mixed, pure = correction_factors(concentration)
    third = np.empty_like(triples)
    shared = pure * np.outer(first, first) - mixed * pairs
    for index, row in enumerate(
        pairs
    ):  # a slice stays in the cache, and all slices together do not
        across = np.outer(mixed * row, first)
        third[index] = triples[index] + first[index] * shared - across - across.T
    return pairs - concentration / (concentration + 1) * np.outer(first, first), third


def correction_factors(concentration: float) -> tuple[float, float]:
    """Return the factors of the mixed terms, α₀/(α₀+2), and of the cube of the mean,
    2α₀²/(α₀+1)(α₀+2).
    """
    concentration = min(
        concentration, 1e100
    )  # the factors are 1 and 2 from there on, and the square stays finite
    return concentration / (concentration + 2), 2 * concentration**2 / (
        (concentration + 1) * (concentration + 2)
    )


@final
class WordMoment(Oracle):
    """The third moment of latent Dirichlet allocation, corrected so that its components are the
    topics.

    With concentration α₀ and mean m = E[x], it is

        E[x₁⊗x₂⊗x₃] − α₀/(α₀+2) (E[x₁⊗x₂⊗m] + E[x₁⊗m⊗x₂] + E[m⊗x₁⊗x₂]) + 2α₀²/((α₀+1)(α₀+2)) m⊗m⊗m,

    which for documents of the model is Σ 2αⱼ/(α₀(α₀+1)(α₀+2)) μⱼ⊗μⱼ⊗μⱼ over topics μⱼ. An image
    takes four products with the counts; nothing larger than V x L is formed.

    Parameters
    ----------
    counts : array or CSR array, documents x words
        Word counts; documents with fewer than three words add nothing.
    concentration : float
        α₀, the sum of the Dirichlet parameters; it is 0 if every document has one topic.

    References
    ----------
    Anandkumar, Ge, Hsu, Kakade, Telgarsky, *Tensor decompositions for learning latent variable
    models*, 2014, arXiv:1210.7559, theorem 3.5.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.models.lda.moments import WordMoment
    >>> moment = WordMoment(
    ...     [[3, 0], [0, 4]], concentration=0.0
    ... )  # two documents, each of a topic with one word
    >>> moment.image(np.eye(2))
    array([[0.5, 0. ],
           [0. , 0.5]])
    """

    order = 3

    def __init__(self, counts: Any, concentration: float = 1.0) -> None:
        checked = as_counts(counts)
        self.dimension = int(checked.shape[1])
        self.concentration = concentration
        self._chunks = tuple(count_chunks(checked))
        sums = WordSums(self.dimension)
        sums.add(self._chunks)
        check_usable(sums)
        self._mean = sums.first_moment()
        self._weight = sums.weight

    def _image(self, block: FloatArray) -> FloatArray:
        pairs = np.zeros(block.shape)
        triples = np.zeros(block.shape)
        for chunk in self._chunks:
            local = block[chunk.words]
            inside = multiply(chunk.rows, block, parallel=True)
            squares = inside**2 - multiply(chunk.rows, block**2, parallel=True)
            image = multiply(chunk.columns, chunk.pair[:, None] * inside, parallel=True)
            pairs[chunk.words] += image - (chunk.columns @ chunk.pair)[:, None] * local
            image = multiply(chunk.columns, chunk.triple[:, None] * squares, parallel=True)
            image -= (
                2 * local * multiply(chunk.columns, chunk.triple[:, None] * inside, parallel=True)
            )
            image += 2 * (chunk.columns @ chunk.triple)[:, None] * local**2
            triples[chunk.words] += image
        pairs /= self._weight
        triples /= self._weight
        mixed, pure = correction_factors(self.concentration)
        overlaps = self._mean @ block
        values = np.einsum("vl,vl->l", block, pairs)
        triples -= mixed * (2 * overlaps * pairs + self._mean[:, None] * values)
        triples += pure * self._mean[:, None] * overlaps**2
        return triples
