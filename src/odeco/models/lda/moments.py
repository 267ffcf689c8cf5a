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
moments with a correction (`corrected_core`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.state import State, array_field, require
from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.errors import WordCountError
from odeco.io.rows import row_slice
from odeco.models.lda.counts import (
    N_GROUPS,
    CountChunk,
    blocks,
    core_dtype,
    multiply,
    multiply_alone,
    sample_for_triples,
    triple_core,
)

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

    Attributes
    ----------
    n_documents, n_empty, n_short, n_tokens : int
        Number of documents seen, of those without a word, of those with one or two words (which add
        nothing), and of words seen.
    group_weights : array
        Total weight in each of the groups to which documents go in turn.
    """

    def __init__(self, n_words: int, basis: FloatArray | None = None, *, core: bool = True) -> None:
        self.n_words = n_words
        given = np.zeros((n_words, 0)) if basis is None else basis
        self.basis: FloatArray = np.ascontiguousarray(given)
        m = self.basis.shape[1]
        n_core = m if core else 0
        self.n_documents = self.n_empty = self.n_short = self.n_tokens = 0
        self.group_weights = np.zeros(N_GROUPS)
        self._squares = np.zeros(())
        self._first = np.zeros(n_words)
        self._image = np.zeros((n_words, m))
        self._group_first = np.zeros((N_GROUPS, n_core))
        self._group_pairs = np.zeros((N_GROUPS, n_core, n_core))
        self._triples = np.zeros((n_core, n_core, n_core))

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

    def add(self, chunks: Iterable[CountChunk]) -> None:
        """Add documents that are cut into chunks already."""
        dtype: Any = core_dtype(self.basis.shape[1])
        basis = self.basis.astype(dtype, copy=False)
        for chunk in chunks:
            parallel = chunk.rows.nnz >= _PARALLEL_NUMBERS
            if self._image.size:
                inside = multiply(chunk.rows, basis)
                self._add_image(chunk, inside, basis, parallel)
            if self._triples.size:
                self._add_group_sums(chunk, inside, parallel)
                sample, inside = sample_for_triples(chunk, inside)
                self._triples += triple_core(sample, inside, basis)
            self._first[chunk.words] += chunk.columns.sum(axis=1)
            self._squares += chunk.pair @ chunk.lengths
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
        rows: FloatArray = (coordinates.T / self.weight) @ self._image.T
        return rows

    def image_gram(self) -> FloatArray:
        """Return Zᵀ Z for the image Z = E[x₁ x₂ᵀ] B of the basis B, an m x m array."""
        gram: FloatArray = self._image.T @ self._image
        gram /= self.weight**2
        return gram

    def pop_image(self) -> FloatArray:
        """Return the image of the basis without a copy, and free it; nothing can be added to the
        sums afterwards.
        """
        image = self._image
        self._image = np.zeros((0, 0))
        image /= self.weight
        return image

    def move(self, mixing: FloatArray, lifting: FloatArray) -> None:
        """Change the basis B to B' = Z R, for the image Z of B and an m x m matrix R = `mixing`.

        Of a vector x that was summed, only Bᵀx is known. So B'ᵀx is computed from it, as Aᵀ Bᵀx
        with A = `lifting`. Basis and image may be large, and are changed in place.
        """
        image = self._image
        for rows in blocks(self.n_words, tall=True):
            self.basis[rows] = image[rows] @ (mixing / self.weight)
            image[rows] = image[rows] @ lifting
        self._group_first = self._group_first @ lifting
        self._group_pairs = lifting.T @ self._group_pairs @ lifting
        self._triples = contract(self._triples, lifting)

    def drop_basis(self) -> None:
        """Free the basis when all documents are summed; the sums remain."""
        self.basis = np.zeros((0, self.basis.shape[1]))

    def first_core(self) -> FloatArray:
        """Return Bᵀ E[x]."""
        core: FloatArray = np.sum(self._group_first, axis=0) / self.weight
        return core

    def pair_core(self) -> FloatArray:
        """Return Bᵀ E[x₁ x₂ᵀ] B."""
        core: FloatArray = np.sum(self._group_pairs, axis=0) / self.weight
        return core

    def pair_cores(self) -> FloatArray:
        """Return Bᵀ E[x₁ x₂ᵀ] B of each group of documents alone, for standard errors."""
        return self._group_pairs / np.maximum(self.group_weights, 1e-300)[:, None, None]

    def triple_core(self) -> FloatArray:
        """Return the m x m x m array E[(Bᵀx₁) ⊗ (Bᵀx₂) ⊗ (Bᵀx₃)]."""
        return self._triples / self.weight

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
        """Return the sums over the documents of both, which must have the same basis."""
        both = WordSums(self.n_words, self.basis)
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
    def restore(cls, saved: SavedSums) -> WordSums:
        """Return the sums that `save` returned, with arrays of their own."""
        sums = cls(saved.basis.shape[0], saved.basis.copy())
        sums.set_vector(saved.vector.copy())
        return sums

    def _summed(self) -> dict[str, FloatArray]:
        return {name: getattr(self, name) for name in _SUMMED}

    def _add_image(
        self, chunk: CountChunk, inside: FloatArray, basis: FloatArray, parallel: bool
    ) -> None:
        weighted = chunk.pair.astype(inside.dtype)[:, None] * inside

        def work(part: slice) -> None:
            words = chunk.words[part]
            columns = row_slice(chunk.columns, part.start, part.stop)
            image = multiply_alone(columns, weighted)
            image -= (columns @ chunk.pair).astype(basis.dtype)[:, None] * basis[words]
            self._image[words] += image  # each part has words of its own

        for _ in map_blocks(work, blocks(chunk.words.size), parallel=parallel):
            pass

    def _add_group_sums(self, chunk: CountChunk, inside: FloatArray, parallel: bool) -> None:
        own = np.zeros((chunk.groups.size, N_GROUPS), dtype=inside.dtype)
        own[np.arange(chunk.groups.size), chunk.groups] = chunk.pair

        def documents(group: int) -> tuple[FloatArray, FloatArray]:
            chosen = np.flatnonzero(chunk.groups == group)
            mine = inside[chosen]
            weighted = chunk.pair[chosen, None].astype(mine.dtype) * mine
            return np.ones(chosen.size) @ mine, mine.T @ weighted

        def diagonals(part: slice) -> FloatArray:
            local = self.basis[chunk.words[part]].astype(inside.dtype)
            repeated = multiply_alone(row_slice(chunk.columns, part.start, part.stop), own)
            squares: FloatArray = (repeated.T[:, None, :] * local.T) @ local
            return squares

        for group, (row, square) in enumerate(
            map_blocks(documents, range(N_GROUPS), parallel=parallel)
        ):
            self._group_first[group] += row
            self._group_pairs[group] += square
        for squares in map_blocks(diagonals, blocks(chunk.words.size), parallel=parallel):
            self._group_pairs -= squares


def check_usable(sums: WordSums) -> None:
    """Raise if no document has the three words that a triple takes."""
    if sums.n_usable == 0:
        raise WordCountError(
            f"At least one document must hold three words. Got {sums.n_documents:,} documents, "
            f"{sums.n_empty:,} of them empty, and a vocabulary of n_features={sums.n_words}. Join "
            "short documents, or loosen the pruning of the vocabulary."
        )


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
