"""The basis in which the moments of words are summed.

Randomised subspace iteration on the first documents finds the basis. If more documents arrive later, a further step of
subspace iteration moves it, to the image Z of the old one under the moment of pairs, and what was summed before is
carried along. The documents are gone by then. But a vector x in the span of Z, as topics are, is known from its
coordinates Bᵀx; so pairs and triples of topics are read off in the new basis without loss, and only what lies outside
of the span is dropped.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from odeco._types import FloatArray, IndexArray
from odeco.topics.corpus import Corpus
from odeco.topics.counts import blocks
from odeco.topics.lda_settings import LdaSettings, Tell
from odeco.topics.moments import WordSums, check_usable

#: A direction counts as absent if its eigenvalue is below this share of the largest.
RANK_TOLERANCE = 1e-10


def sum_moments(corpus: Corpus, settings: LdaSettings, *, seed: int, tell: Tell) -> tuple[WordSums, LdaSettings]:
    """Find a basis for the moments of documents, and return their sums in it; raise if no document can be used.

    Also return the settings with as many topics as the documents support: no more than distinct words, or documents of
    three words.
    """
    words = corpus.sums()
    check_usable(words)
    n_distinct = int(np.count_nonzero(words.first_moment()))
    supported = replace(settings, n_components=min(int(settings.n_components), n_distinct, words.n_usable))
    basis = _find_basis(corpus, words.words_that_occur(), supported, seed, tell)
    return corpus.sums(basis), supported


def sum_halves(corpus: Corpus, settings: LdaSettings, *, seed: int, tell: Tell) -> tuple[WordSums, WordSums]:
    """Do the same for two halves of the documents, in one basis: the two add up to the sums over all."""
    first, second = corpus.in_two()
    words = first.sums() + second.sums()
    check_usable(words)
    basis = _find_basis(corpus, words.words_that_occur(), settings, seed, tell)
    return first.sums(basis), second.sums(basis)


def _find_basis(corpus: Corpus, present: IndexArray, settings: LdaSettings, seed: int, tell: Tell) -> FloatArray:
    """Return an orthonormal basis, V x m, of the strongest directions of pairs, by randomised subspace iteration."""
    tell("pairs", 0, 1)
    size = settings.basis_size(corpus.n_words)
    # A word that does not occur has a row of zeros, so all work is done on the words that do.
    if present.size < size:
        present = np.arange(corpus.n_words)
    narrow = corpus.among(present)
    basis = _random_columns(present.size, size, seed)
    for _ in range(settings.n_passes):
        sums = narrow.sums(basis, core=False)
        basis = sums.take_image()
        del sums  # it holds the basis before; at most two arrays of this size are kept
        orthonormalise(basis, seed)
    if present.size < corpus.n_words:
        inside, basis = basis, np.zeros((corpus.n_words, size))
        basis[present] = inside
    tell("triples", 0, 1)
    return basis


def move_basis(sums: WordSums, n_carried: int) -> FloatArray:
    """Move the basis B of sums to an orthonormal basis B' of the span of its image Z.

    Returns the matrix A whose transpose takes coordinates in the old basis to those in the new one. What was summed is
    carried along in the `n_carried` strongest directions.
    """
    gram = sums.image_gram()
    values, vectors = np.linalg.eigh(gram)
    scales = 1 / np.sqrt(np.maximum(values, np.finfo(np.float64).eps * values[-1]))
    mixing = vectors * scales
    # With R = `mixing`, x = Z c has Bᵀx = H c for H = BᵀZ, and B'ᵀx = Rᵀ Zᵀ Z c: so Rᵀ ZᵀZ H⁺ takes one to the other.
    # H⁺ would blow up the directions that are hardly there, so only the strongest are carried.
    strength, directions = np.linalg.eigh(sums.pair_core())
    strongest = np.argsort(-np.abs(strength))[:n_carried]
    inverse = (directions[:, strongest] / strength[strongest]) @ directions[:, strongest].T
    lifting: FloatArray = inverse @ gram @ mixing
    sums.move(mixing, lifting)
    return lifting


def orthonormalise(block: FloatArray, seed: int) -> None:
    """Replace the columns of a tall array by an orthonormal basis of their span, in place.

    The eigenvectors of the Gram matrix give the basis. This is done twice, and takes no second array of this size, as a
    QR decomposition would. Columns that the span lacks are drawn at random.
    """
    lacking = _orthonormalise_once(block)
    if lacking.any():
        block[:, lacking] = _random_columns(block.shape[0], int(lacking.sum()), seed + 1)
        _orthonormalise_once(block)
    _orthonormalise_once(block)


def _orthonormalise_once(block: FloatArray) -> NDArray[np.bool_]:
    """Orthonormalise to within rounding times the squared condition number; return which columns came out as zero."""
    values, vectors = np.linalg.eigh(block.T @ block)
    lacking = values <= RANK_TOLERANCE * max(values[-1], np.finfo(np.float64).tiny)
    scales = np.where(lacking, 0.0, 1 / np.sqrt(np.where(lacking, 1.0, values)))
    mixing = vectors * scales
    for rows in blocks(block.shape[0], tall=True):
        block[rows] = block[rows] @ mixing
    return np.asarray(lacking)


def _random_columns(n_words: int, size: int, seed: int) -> FloatArray:
    """Return a V x m array of normal numbers, with columns of about unit norm."""
    block = np.random.default_rng(seed).standard_normal((n_words, size))
    block /= math.sqrt(n_words)
    return block
