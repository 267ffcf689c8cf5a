"""Topics by the method of moments: whiten the pairs of words, decompose the triples, un-whiten what was found.

For documents of latent Dirichlet allocation with topics μⱼ, the corrected moments are M₂ = Σ mⱼ μⱼμⱼᵀ with
mⱼ = αⱼ/α₀(α₀+1), and M₃ = Σ tⱼ μⱼ⊗μⱼ⊗μⱼ with tⱼ = 2αⱼ/α₀(α₀+1)(α₀+2). If Wᵀ M₂ W = I then M₃(W, W, W) has the
orthonormal components bⱼ = √mⱼ Wᵀμⱼ with weights λⱼ = tⱼ mⱼ^(−3/2), and M₂ W bⱼ = √mⱼ μⱼ leads back.

The span of the topics is that of the pairs alone, whatever α₀ is. So the data are asked in a basis of that span once,
and α₀ can be chosen afterwards, with k x k x k numbers in hand.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from odeco._threads import one_blas_thread
from odeco._types import FloatArray, IndexArray
from odeco.components import Components
from odeco.decompose import decompose
from odeco.errors import ConvergenceWarning, RankError
from odeco.metrics import match
from odeco.tensors import symmetrize
from odeco.topics.counts import CountChunk
from odeco.topics.moments import corrected_core
from odeco.topics.products import contract, row_blocks
from odeco.topics.simplex import onto_simplex
from odeco.topics.sums import WordSums

#: Restarts and iterations with which components are looked for one by one, before they are polished all at once
_N_RESTARTS, _N_ITERATIONS = 20, 10
#: until no entry changes by more than this, or in so many rounds.
_TOLERANCE, _MOST_STEPS = 1e-6, 100
#: An eigenvalue is clear of noise if it is so many standard errors above the largest that noise alone shows.
_STANDARD_ERRORS = 3.0
#: Directions of the second moment that are weaker than this share of the strongest are no directions.
_RANK_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class ReducedMoments:
    """The moments of words in the k directions in which pairs of words vary most.

    Attributes
    ----------
    directions : array, m x k
        The directions, as coordinates in the basis of the sums.
    eigenvalues, eigenvalue_errors : arrays of m numbers
        How strong pairs are in each direction that was looked at, largest first, and the standard errors of that from
        the spread between groups of documents.
    noise_level : float
        The largest eigenvalue that documents without topics would show.
    first, pairs, triples : arrays
        Moments of words, pairs and triples in the k directions.
    """

    directions: FloatArray
    eigenvalues: FloatArray
    eigenvalue_errors: FloatArray
    noise_level: float
    first: FloatArray
    pairs: FloatArray
    triples: FloatArray

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Which eigenvalues are clear of noise."""
        return np.asarray(self.eigenvalues - _STANDARD_ERRORS * self.eigenvalue_errors > self.noise_level)


@dataclass(frozen=True, eq=False)
class SpectralTopics:
    """Topics read off the moments.

    Attributes
    ----------
    topic_word : array, k x V
        The topics; rows are distributions.
    alpha : array
        Dirichlet parameters; their sum is the concentration α₀.
    negative_mass : array
        For each topic the share of its absolute mass that was negative and was cut off.
    weights, residuals : arrays
        Weights λⱼ of the components of the whitened third moment and the norms ‖T(I,b,b) − λb‖; NaN for a topic that
        was not found there.
    explained : float
        Share of the squared norm of the whitened third moment that the components explain.
    coordinates : array
        The topics found, √mⱼ μⱼ, in the directions of the reduced moments; one column each.
    """

    topic_word: FloatArray
    alpha: FloatArray
    negative_mass: FloatArray
    weights: FloatArray
    residuals: FloatArray
    explained: float
    coordinates: FloatArray


class Moments(Protocol):
    """What un-whitening asks of the moments."""

    def first_moment(self) -> FloatArray:
        """Return the frequencies of the words."""
        ...

    def pair_image_of(self, coordinates: FloatArray, /) -> FloatArray:
        """Return the image of a combination of the basis under the moment of pairs, one a row."""
        ...


def find_basis(
    chunks: tuple[CountChunk, ...], n_words: int, size: int, *, n_passes: int, seed: int, parallel: bool
) -> FloatArray:
    """Return an orthonormal basis, V x m, of the strongest directions of pairs, by randomised subspace iteration."""
    # A word that does not occur has a row of zeros, so all work is done on those that do.
    present = np.unique(np.concatenate([chunk.words for chunk in chunks]))
    if present.size < size:
        present = np.arange(n_words)
    chunks = tuple(chunk.among(present) for chunk in chunks)
    basis = random_block(present.size, size, seed)
    for _ in range(n_passes):
        sums = WordSums(present.size, basis, core=False, parallel=parallel)
        sums.update(chunks)
        basis = sums.take_image()
        del sums  # and with it the basis before: at most two arrays of this size are held
        orthonormalise(basis, seed)
    if present.size < n_words:
        inside, basis = basis, np.zeros((n_words, size))
        basis[present] = inside
    return basis


def random_block(n_words: int, size: int, seed: int) -> FloatArray:
    """Return a V x m array of normal numbers, of about unit columns."""
    block = np.random.default_rng(seed).standard_normal((n_words, size))
    block /= math.sqrt(n_words)
    return block


def orthonormalise(block: FloatArray, seed: int) -> None:
    """Replace the columns of a tall array by an orthonormal basis of their span, in place.

    By the eigenvectors of the Gram matrix, twice, which takes no second array of this size as a QR decomposition would.
    Columns that the span lacks are drawn at random.
    """
    lacking = _orthonormalise_once(block)
    if lacking.any():
        block[:, lacking] = random_block(block.shape[0], int(lacking.sum()), seed + 1)
        _orthonormalise_once(block)
    _orthonormalise_once(block)


def _orthonormalise_once(block: FloatArray) -> NDArray[np.bool_]:
    """Orthonormalise to within rounding times the squared condition number; say which columns came out as zero."""
    values, vectors = np.linalg.eigh(_gram(block))
    lacking = values <= _RANK_TOLERANCE * max(values[-1], np.finfo(np.float64).tiny)
    scales = np.where(lacking, 0.0, 1 / np.sqrt(np.where(lacking, 1.0, values)))
    apply_in_place(block, vectors * scales)
    return np.asarray(lacking)


def _gram(block: FloatArray) -> FloatArray:
    gram: FloatArray = block.T @ block
    return gram


def apply_in_place(block: FloatArray, matrix: FloatArray) -> None:
    """Replace a tall array X by X A, some rows at a time."""
    for rows in row_blocks(block.shape[0]):
        block[rows] = block[rows] @ matrix


def reduce_moments(sums: WordSums, n_components: int | Literal["auto"]) -> ReducedMoments:
    """Return the moments in the k strongest directions; ``"auto"`` takes as many as are clear of noise, or one."""
    values, vectors = np.linalg.eigh(sums.pair_core())
    values, vectors = values[::-1], np.ascontiguousarray(vectors[:, ::-1])
    by_group = np.einsum("im,gij,jm->gm", vectors, sums.pair_cores(), vectors, optimize=True)
    by_group = by_group[sums.group_weights > 0]
    errors = np.full(values.size, np.inf)
    if len(by_group) > 1:
        errors = by_group.std(axis=0, ddof=1) / math.sqrt(len(by_group))
    level = noise_level(sums)
    if n_components == "auto":
        clear = values - _STANDARD_ERRORS * errors > level
        n_components = max(1, int(clear.sum()))
    directions = vectors[:, :n_components]
    return ReducedMoments(
        directions=directions,
        eigenvalues=values,
        eigenvalue_errors=errors,
        noise_level=level,
        first=directions.T @ sums.first_core(),
        pairs=directions.T @ sums.pair_core() @ directions,
        triples=contract(sums.triple_core(), directions),
    )


def noise_level(sums: WordSums) -> float:
    """Return a bound on the largest eigenvalue that sampling noise alone gives the moment of pairs.

    In a document of l words drawn independently with frequencies f, the entry (u, v) of the mean over ordered pairs has
    variance about f_u f_v / l(l−1). A symmetric matrix of independent entries with variances σ² f_u f_v has norm at
    most about twice the root of its largest row sum of variances, 2σ √(max f) (Bandeira and van Handel, 2016,
    theorem 1.1, leading term).
    """
    return 2 * math.sqrt(sums.pair_variance() * float(sums.first_moment().max()))


def topics_at(
    concentration: float,
    reduced: ReducedMoments,
    sums: Moments,
    *,
    seed: int,
    near: FloatArray | None = None,
    before: FloatArray | None = None,
) -> SpectralTopics:
    """Return the topics for a given concentration α₀, the largest first.

    With the coordinates `near` of topics for another α₀, components are followed from there instead of looked for. With
    the coordinates `before` of topics that were found earlier, topics come in the order of those. A direction that the
    whitened moment does not hold (there are too few documents for k topics) is given a topic at random around the
    frequencies of the words, for a refinement to begin with; its weight and residual are NaN.
    """
    second, third = corrected_core(reduced.triples, reduced.pairs, reduced.first, concentration)
    values, vectors = np.linalg.eigh(second)
    kept = values > _RANK_TOLERANCE * max(values[-1], 0.0) if values.size else np.zeros(0, dtype=np.bool_)
    whiten = vectors[:, kept] / np.sqrt(values[kept])
    core: FloatArray = np.zeros((0, 0, 0))
    if kept.any():
        core = symmetrize(contract(third, whiten)).astype(np.float64, copy=False)
    start = whiten.T @ near if near is not None and near.shape[1] == core.shape[0] else _search(core, seed)
    components, weights, residuals, explained = _decompose_at_once(core, start)
    order = _order(second @ whiten @ components, weights, before)
    components, weights, residuals = components[:, order], weights[order], residuals[order]
    inside = whiten @ components  # k numbers for each component b: W b in the strongest directions
    share = concentration / (concentration + 1)
    frequencies = sums.first_moment()
    topics = sums.pair_image_of(reduced.directions @ inside)  # M₂ W b = √mⱼ μⱼ
    for index, amount in enumerate(share * (reduced.first @ inside)):
        topics[index] -= amount * frequencies
    topics, negative_mass = onto_simplex(topics, frequencies)
    sizes = 1 / np.maximum(weights, np.finfo(np.float64).tiny) ** 2  # αⱼ is proportional to it
    n_missing = reduced.directions.shape[1] - weights.size
    if n_missing:
        topics = np.concatenate([topics, _random_topics(n_missing, frequencies, seed)])
        nothing = np.full(n_missing, np.nan)
        sizes = np.append(sizes, np.full(n_missing, sizes.min() if sizes.size else 1.0))
        weights, residuals = np.append(weights, nothing), np.append(residuals, nothing)
        negative_mass = np.append(negative_mass, nothing)
    alpha = concentration * sizes / sizes.sum()
    return SpectralTopics(topics, alpha, negative_mass, weights, residuals, explained, second @ inside)


def _order(coordinates: FloatArray, weights: FloatArray, before: FloatArray | None) -> IndexArray:
    """Return the order of topics before, or else of their size, which falls with the weight."""
    if before is None or before.shape != coordinates.shape or not weights.size:
        return np.argsort(weights, kind="stable")
    ones = np.ones(weights.size)
    return match(Components(ones, coordinates), Components(ones, before)).found_index


def _search(core: FloatArray, seed: int) -> FloatArray:
    """Return the components of the whitened third moment by Algorithm 1, one a column, as many as there are."""
    if not core.any():
        return np.zeros((core.shape[0], 0))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # they are polished, and their residuals reported
            return decompose(
                core, core.shape[0], n_restarts=_N_RESTARTS, n_iterations=_N_ITERATIONS, tol=0, rng=seed
            ).vectors
    except RankError as error:
        return error.found.vectors


def _decompose_at_once(core: FloatArray, start: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Polish components all at once; return them with weights, residuals and the share of the tensor they explain.

    Algorithm 1 finds components one by one, and in a noisy tensor they come out not quite orthogonal: what noise did to
    the first is passed on to the rest. Those of a whitened moment are orthogonal, so all are replaced by the orthogonal
    matrix nearest to their images, until nothing changes. On planted topics that takes away up to a quarter of the
    error.
    """
    if start.shape[1] == 0:
        return start, np.zeros(0), np.zeros(0), 0.0
    with one_blas_thread():  # for matrices this small, more threads only get in each other's way
        vectors = _nearest_orthogonal(start)
        images = _images(core, vectors)
        for _ in range(_MOST_STEPS):
            moved = _nearest_orthogonal(images * np.sign(np.sum(images * vectors, axis=0)))
            change = float(np.abs(moved - vectors).max())
            vectors, images = moved, _images(core, moved)
            if change < _TOLERANCE:
                break
    weights = np.sum(images * vectors, axis=0)
    residuals = np.linalg.norm(images - weights * vectors, axis=0)
    explained = float(weights @ weights) / float(np.sum(core**2))
    return vectors * np.where(weights < 0, -1.0, 1.0), np.abs(weights), residuals, explained


def _images(core: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return T(I, b, b) for every column b."""
    size, k = vectors.shape
    squares = (vectors[:, None, :] * vectors[None, :, :]).reshape(size**2, k)
    images: FloatArray = core.reshape(size, size**2) @ squares
    return images


def _nearest_orthogonal(matrix: FloatArray) -> FloatArray:
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    nearest: FloatArray = left @ right
    return nearest


def _random_topics(n_topics: int, frequencies: FloatArray, seed: int) -> FloatArray:
    noise = np.random.default_rng([seed, n_topics]).standard_exponential((n_topics, frequencies.size))
    topics: FloatArray = noise * frequencies
    topics /= topics.sum(axis=1, keepdims=True)
    return topics
