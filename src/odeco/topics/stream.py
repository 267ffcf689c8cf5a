"""The moments of a stream of documents, in a basis that moves while it learns.

The first batch gives the basis. Later documents are summed in it, and when their number has doubled, the basis moves
one step of subspace iteration: to the image Z of the old one under the moment of pairs. What was summed before is
carried along. Documents are gone by then; but a vector x in the span of Z, as topics are, is known from its coordinates
Bᵀx, so pairs and triples of topics are read off in the new basis without loss, and only what lies outside is dropped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._types import FloatArray
from odeco.topics.counts import DocumentWeight, count_chunks
from odeco.topics.spectral import find_basis
from odeco.topics.sums import WordSums

#: The basis moves first when this many documents have been seen.
_FIRST_MOVE = 64


class TopicStream:
    """Sums over all documents so far, in the current basis.

    Parameters
    ----------
    n_words, size : int
        Size of the vocabulary, V, and of the basis, m.
    n_carried : int
        Number of strongest directions in which sums are carried along when the basis moves.
    n_passes : int
        Passes over the first batch that the first basis is found with.
    weigh : {"equal", "length"}
        Whether a document counts once, or as often as it has words.
    forget : float or None
        After how many further documents a document counts half; None forgets nothing.
    seed : int
        Draws the first basis.
    parallel : bool
        Whether to use all cores.

    Attributes
    ----------
    sums : WordSums or None
        None until there was a document with three words.
    """

    def __init__(
        self,
        n_words: int,
        size: int,
        *,
        n_carried: int,
        n_passes: int,
        weigh: DocumentWeight,
        forget: float | None,
        seed: int,
        parallel: bool,
    ) -> None:
        self.n_words, self.size, self.n_carried, self.n_passes = n_words, size, n_carried, n_passes
        self.weigh, self.forget, self.seed, self.parallel = weigh, forget, seed, parallel
        self.sums: WordSums | None = None
        self.next_move = 0

    def update(self, counts: Any) -> FloatArray | None:
        """Add checked counts of a batch of documents.

        Returns
        -------
        array or None
            None while the basis stays. If it moved, the matrix A whose transpose takes coordinates in the old basis to
            those in the new one; for the first basis, an array without columns.
        """
        n_before = self.sums.n_documents if self.sums is not None else 0
        chunks = tuple(count_chunks(counts, weigh=self.weigh, first=n_before))
        first = self.sums is None
        if self.sums is None:
            basis = find_basis(
                chunks, self.n_words, self.size, n_passes=self.n_passes, seed=self.seed, parallel=self.parallel
            )
            self.sums = WordSums(self.n_words, basis, weigh=self.weigh, parallel=self.parallel)
            self.next_move = max(_FIRST_MOVE, 2 * counts.shape[0])
        elif self.forget is not None:
            self.sums.decay(0.5 ** (counts.shape[0] / self.forget))
        self.sums.update(chunks)
        if first:
            return np.zeros((self.size, 0))
        return self._move(self.sums) if self.sums.n_documents >= self.next_move else None

    def _move(self, sums: WordSums) -> FloatArray:
        """Move the basis B to an orthonormal one of the span of its image Z; return what takes coordinates along."""
        gram = sums.image_gram()
        values, vectors = np.linalg.eigh(gram)
        scales = 1 / np.sqrt(np.maximum(values, np.finfo(np.float64).eps * values[-1]))
        mixing = vectors * scales
        # x = Z c has Bᵀx = H c with H = BᵀZ, and B'ᵀx = Rᵀ Zᵀ Z c: so Rᵀ ZᵀZ H⁺ takes one to the other. Directions
        # that are hardly there would be blown up by H⁺; only the strongest are carried.
        strength, directions = np.linalg.eigh(sums.pair_core())
        strongest = np.argsort(-np.abs(strength))[: self.n_carried]
        inverse = (directions[:, strongest] / strength[strongest]) @ directions[:, strongest].T
        lifting: FloatArray = inverse @ gram @ mixing
        sums.move(mixing, lifting)
        step = sums.n_documents if self.forget is None else min(sums.n_documents, round(self.forget))
        self.next_move = sums.n_documents + max(step, _FIRST_MOVE)
        return lifting

    def to_arrays(self) -> dict[str, Any]:
        """Return where the stream stands, as named arrays."""
        arrays = {} if self.sums is None else self.sums.to_arrays()
        return {"next_move": np.array(self.next_move), **arrays}

    def restore(self, arrays: dict[str, Any]) -> None:
        """Take up what `to_arrays` gave."""
        arrays = dict(arrays)
        self.next_move = int(arrays.pop("next_move"))
        if arrays:
            self.sums = WordSums.from_arrays(arrays, weigh=self.weigh, parallel=self.parallel)
