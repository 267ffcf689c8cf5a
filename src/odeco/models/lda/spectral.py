"""Topics by the method of moments: whiten the pairs of words, decompose the triples, un-whiten the
components.

For documents of latent Dirichlet allocation with topics μⱼ, the corrected moments are M₂ = Σ mⱼ
μⱼμⱼᵀ with mⱼ = αⱼ/α₀(α₀+1), and M₃ = Σ tⱼ μⱼ⊗μⱼ⊗μⱼ with tⱼ = 2αⱼ/α₀(α₀+1)(α₀+2). If Wᵀ M₂ W = I
then M₃(W, W, W) has the orthonormal components bⱼ = √mⱼ Wᵀμⱼ with weights λⱼ = tⱼ mⱼ^(−3/2), and M₂
W bⱼ = √mⱼ μⱼ leads back.

The span of the topics is that of the pairs alone, whatever α₀ is. The moments are therefore summed
once in a basis of that span, and α₀ is selected afterwards from k x k x k numbers.

**The basis** comes from randomised subspace iteration on the first documents. When more documents
arrive, a further iteration moves it to the image Z of the old basis B under the moment of pairs,
and the earlier sums are carried over. Those documents are gone by then, but a vector x in the span
of Z, as topics are, is determined by its coordinates Bᵀx: pairs and triples of topics are known in
the new basis without loss, and only what lies outside of the span is dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.cp.small import decompose_whitened
from odeco.models.lda.corpus import Corpus
from odeco.models.lda.counts import blocks, core_dtype
from odeco.models.lda.moments import (
    WordSums,
    check_usable,
    contract,
    corrected_core,
)
from odeco.models.lda.params import N_OVERSAMPLES, Callback, LdaSettings
from odeco.tensors.components import Components, match
from odeco.tensors.dense import symmetrize

#: A direction counts as absent if its eigenvalue is below this share of the largest.
RANK_TOLERANCE = 1e-10

#: A basis may have this many directions: the third moment in it then takes 1 GiB.
_MAX_DIRECTIONS = 512

#: The number of steps of subspace iteration, each a pass over the documents.
_N_PASSES = 4


def sum_moments(
    corpus: Corpus, settings: LdaSettings, *, seed: int, callback: Callback
) -> list[WordSums]:
    """Find a basis for the moments of documents, and return their sums in it; raise if there are
    too many topics.

    To select the number of topics with "auto", these are the sums of several parts of the documents
    (`divide_documents`); otherwise there is one part.
    """
    parts = corpus.parts() if settings.n_components == "auto" else [corpus]
    words = reduce(add, (part.sums() for part in parts))
    check_usable(words)
    if not isinstance(settings.n_components, str):
        _check_n_topics(settings.n_components, words)
    basis = _find_basis(corpus, settings, seed, callback)
    return [part.sums(basis) for part in parts]


def _check_n_topics(k: int, words: WordSums) -> None:
    """Raise if the documents do not support that many topics, or if their third moment would not
    fit into memory.
    """
    most = words.n_supported
    reason = (
        "there must be at least as many distinct words, and documents of three words, as topics"
    )
    affordable = _MAX_DIRECTIONS - N_OVERSAMPLES
    if words.n_words > _MAX_DIRECTIONS and affordable < most:
        most = affordable
        reason = f"the third moment has (k + {N_OVERSAMPLES})**3 numbers, at most 1 GiB"
    if k > most:
        raise ValueError(
            f"`n_components` must be at most {most:,} for these documents: {reason}. Got "
            f"n_components={k}, n_samples={words.n_documents} and n_features={words.n_words}. "
            "Lower it, or pass more documents."
        )


def _find_basis(corpus: Corpus, settings: LdaSettings, seed: int, callback: Callback) -> FloatArray:
    """Return an orthonormal basis, V x m, of the strongest directions of pairs, by randomised
    subspace iteration.
    """
    callback("pairs", 0, 1)
    basis = _random_columns(corpus.n_words, settings.basis_size(corpus.n_words), seed)
    for _ in range(_N_PASSES):
        sums = corpus.sums(basis, core=False)
        basis = sums.pop_image()
        del sums  # it holds the basis before; at most two arrays of this size are kept
        orthonormalise(basis, seed)
    callback("triples", 0, 1)
    return basis


def move_basis(sums: WordSums, n_carried: int) -> FloatArray:
    """Move the basis B of sums to an orthonormal basis B' of the span of its image Z.

    Returns the matrix A whose transpose takes coordinates in the old basis to those in the new one.
    What was summed is carried along in the `n_carried` strongest directions.
    """
    gram = sums.image_gram()
    values, vectors = np.linalg.eigh(gram)
    scales = 1 / np.sqrt(np.maximum(values, np.finfo(np.float64).eps * values[-1]))
    mixing = vectors * scales
    # With R = `mixing`, x = Z c has Bᵀx = H c for H = BᵀZ, and B'ᵀx = Rᵀ Zᵀ Z c: so Rᵀ ZᵀZ H⁺ takes
    # one to the other. H⁺ would blow up the directions that are hardly there, so only the strongest
    # are carried.
    strength, directions = np.linalg.eigh(sums.pair_core())
    strongest = np.argsort(-np.abs(strength))[:n_carried]
    inverse = (directions[:, strongest] / strength[strongest]) @ directions[:, strongest].T
    lifting: FloatArray = inverse @ gram @ mixing
    sums.move(mixing, lifting)
    return lifting


def orthonormalise(block: FloatArray, seed: int) -> None:
    """Replace the columns of a tall array by an orthonormal basis of their span, in place.

    The eigenvectors of the Gram matrix give the basis. This is done twice, and takes no second
    array of this size, as a QR decomposition would. Columns that the span lacks are drawn at
    random.
    """
    lacking = _orthonormalise_once(block)
    if lacking.any():
        block[:, lacking] = _random_columns(block.shape[0], int(lacking.sum()), seed + 1)
        _orthonormalise_once(block)
    _orthonormalise_once(block)


def _orthonormalise_once(block: FloatArray) -> NDArray[np.bool_]:
    """Orthonormalise to within rounding times the squared condition number; return which columns
    came out as zero.
    """
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


#: A whitened core is made symmetric again if the largest eigenvalue is this many times the
#: smallest: 1e-10 is lost.
_ROUNDING_GROWS = 1e4

#: An eigenvalue is clear of noise if it is this many standard errors above the largest that noise
#: alone shows.
_STANDARD_ERRORS = 3.0

#: No standard error of an eigenvalue is taken for smaller than this share of the largest.
_LEAST_ERROR = 0.3

#: Newton's method projects onto the simplex in finitely many steps; this many are never needed in
#: practice.
_MOST_NEWTON_STEPS = 100

#: A row is scaled to sum 1, but its positive mass is not made larger than this: beyond it the sum
#: is mostly noise.
_MOST_POSITIVE_MASS = 2.0


@dataclass(frozen=True, eq=False)
class ReducedMoments:
    """The moments of words in the k directions in which pairs of words vary most.

    Attributes
    ----------
    directions : array, m x k
        The directions, as coordinates in the basis of the sums.
    eigenvalues, eigenvalue_errors : arrays of m numbers
        Strength of the pairs in each direction that was computed, largest first, and its standard
        error, from the spread between groups of documents.
    noise_level : float
        The largest eigenvalue that documents without topics would show.
    clear : array of bool
        Which eigenvalues are clear of noise.
    first, pairs, triples : arrays
        Moments of words, of pairs and of triples in the k directions.
    """

    directions: FloatArray
    eigenvalues: FloatArray
    eigenvalue_errors: FloatArray
    noise_level: float
    clear: NDArray[np.bool_]
    first: FloatArray
    pairs: FloatArray
    triples: FloatArray

    def leading(self, n_directions: int) -> ReducedMoments:
        """Return the moments in the first of the directions, at most `n_directions`."""
        own = slice(n_directions)
        return replace(
            self,
            directions=self.directions[:, own],
            first=self.first[own],
            pairs=self.pairs[own, own],
            triples=self.triples[own, own, own],
        )


@dataclass(frozen=True, eq=False)
class SpectralTopics:
    """Topics estimated from the moments.

    Attributes
    ----------
    topic_word : array, k x V
        The topics; rows are distributions.
    alpha : array
        Dirichlet parameters; their sum is the concentration α₀.
    negative_mass : array
        For each topic the share of its absolute mass that was negative and was cut off.
    weights, residuals : arrays
        Weights λⱼ of the components of the whitened third moment, and the norms ‖T(I,b,b) − λb‖;
        NaN for a topic that was not found there.
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


def reduce_moments(sums: WordSums, n_components: int | Literal["clear"]) -> ReducedMoments:
    """Return the moments in the k strongest directions; ``"clear"`` takes all that are clear of
    noise, at least 1.
    """
    values, vectors = np.linalg.eigh(sums.pair_core())
    values = values[::-1]
    vectors = np.ascontiguousarray(vectors[:, ::-1])
    by_group = np.einsum("im,gij,jm->gm", vectors, sums.pair_cores(), vectors, optimize=True)
    by_group = by_group[sums.group_weights > 0]
    errors = np.full(values.size, np.nan)
    if len(by_group) > 1:
        errors = by_group.std(axis=0, ddof=1) / math.sqrt(len(by_group))
    level = _noise_level(sums)
    clear = values - _STANDARD_ERRORS * errors > level
    if n_components == "clear":
        n_components = max(1, int(clear.sum()))
    directions = vectors[:, :n_components]
    return ReducedMoments(
        directions=directions,
        eigenvalues=values,
        eigenvalue_errors=errors,
        noise_level=level,
        clear=clear,
        first=directions.T @ sums.first_core(),
        pairs=directions.T @ sums.pair_core() @ directions,
        triples=contract(sums.triple_core(), directions),
    )


def _noise_level(sums: WordSums) -> float:
    """Return a bound on the largest eigenvalue that sampling noise alone gives the moment of pairs.

    In a document of l words drawn independently with frequencies f, the entry (u, v) of the mean
    over ordered pairs has variance about f_u f_v / l(l−1). A symmetric matrix of independent
    entries with variances σ² f_u f_v has norm at most about twice the root of its largest row sum
    of variances, 2σ √(max f) (Bandeira and van Handel, 2016, theorem 1.1, leading term).
    """
    return 2 * math.sqrt(sums.pair_variance() * float(sums.first_moment().max()))


def topics_for(
    concentration: float,
    reduced: ReducedMoments,
    moments: Any,
    *,
    seed: int,
    near: FloatArray | None = None,
    before: FloatArray | None = None,
) -> SpectralTopics:
    """Return the topics for a given concentration α₀, the largest first.

    Parameters
    ----------
    concentration : float
        The concentration α₀.
    reduced : ReducedMoments
        The moments in the k strongest directions.
    moments : WordSums, or another object with its `first_moment` and `pair_image_of`
        The same moments over all words.
    seed : int
        Seed of the search, and of topics that are drawn at random.
    near : array, optional
        Coordinates of topics for another α₀. The search for components starts there.
    before : array, optional
        Coordinates of topics that were found earlier. Topics come in the order of those.

    Notes
    -----
    If there are too few documents for k topics, the whitened moment lacks some directions. Each of
    them is given a topic at random around the frequencies of the words, for a refinement to begin
    with; its weight and residual are NaN.
    """
    second, whiten, core = _whitened(concentration, reduced)
    found = decompose_whitened(core, seed=seed, start=_start(whiten, core, near))
    order = _order(second @ whiten @ found.vectors, found.weights, before)
    components = found.vectors[:, order]
    weights = found.weights[order]
    residuals = found.residuals[order]
    inside = whiten @ components  # k numbers for each component b: W b in the strongest directions
    share = concentration / (concentration + 1)
    frequencies = moments.first_moment()
    topics = moments.pair_image_of(
        reduced.directions @ inside
    )  # M₂ W b = √mⱼ μⱼ, once the next lines are done
    for index, amount in enumerate(share * (reduced.first @ inside)):
        topics[index] -= amount * frequencies
    topics, negative_mass = onto_simplex(topics, frequencies)
    sizes = 1 / np.maximum(weights, np.finfo(np.float64).tiny) ** 2  # αⱼ is proportional to it
    n_missing = reduced.directions.shape[1] - weights.size
    if n_missing:
        topics = np.concatenate([topics, _random_topics(n_missing, frequencies, seed)])
        nothing = np.full(n_missing, np.nan)
        sizes = np.append(sizes, np.full(n_missing, sizes.min() if sizes.size else 1.0))
        weights = np.append(weights, nothing)
        residuals = np.append(residuals, nothing)
        negative_mass = np.append(negative_mass, nothing)
    alpha = concentration * sizes / sizes.sum()
    return SpectralTopics(
        topics, alpha, negative_mass, weights, residuals, found.explained, second @ inside
    )


def misfit_for(
    concentration: float, reduced: ReducedMoments, *, seed: int, near: FloatArray
) -> float:
    """Return how much of the third moment is left unexplained for a given α₀; see `topics_for` and
    `misfit`.
    """
    second, whiten, core = _whitened(concentration, reduced)
    found = decompose_whitened(core, seed=seed, start=_start(whiten, core, near))
    return misfit(concentration, reduced, second @ whiten @ found.vectors, found.weights)


def misfit(
    concentration: float, reduced: ReducedMoments, places: FloatArray, weights: FloatArray
) -> float:
    """Return the squared norm of M₃ − Σ λⱼ vⱼ⊗vⱼ⊗vⱼ, each entry in units of its noise.

    Whitening depends on α₀: the larger that is, the more it enlarges noise, so the share that is
    left of the whitened moment favours a low one. In the directions of the pairs the noise is that
    of the words, whatever α₀ is. A sum over documents whose coordinates are nearly independent,
    with variances sᵢ, has entries (i, j, l) with variances in proportion to sᵢ sⱼ sₗ. The standard
    error of eigenvalue i of the pairs is in proportion to sᵢ.
    """
    errors = reduced.eigenvalue_errors[: places.shape[0]]
    usable = np.isfinite(errors).all() and errors.max() > 0
    if usable:
        scales = 1 / np.sqrt(np.maximum(errors, _LEAST_ERROR * errors.max()))
    else:
        scales = np.ones(errors.size)
    third = corrected_core(reduced.triples, reduced.pairs, reduced.first, concentration)[1]
    observed = third * np.einsum("i,j,l->ijl", scales, scales, scales)
    scaled = scales[:, None] * places
    squares = (scaled[:, None] * scaled).reshape(len(scaled) ** 2, weights.size)
    explained = (scaled * weights) @ squares.T
    return float(np.sum((observed.reshape(explained.shape) - explained) ** 2))


def _whitened(
    concentration: float, reduced: ReducedMoments
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return M₂ for a given α₀, what whitens it, and M₃ whitened so."""
    second, third = corrected_core(reduced.triples, reduced.pairs, reduced.first, concentration)
    with one_blas_thread():  # for matrices this small, more threads only get in each other's way
        values, vectors = np.linalg.eigh(second)
    kept = values > RANK_TOLERANCE * max(values[-1], 0.0)
    whiten: FloatArray = vectors[:, kept] / np.sqrt(values[kept])
    core: FloatArray = contract(third, whiten)
    # Whitening multiplies rounding errors, and so how far the core is from symmetric, by
    # (largest/smallest)^1.5.
    if kept.any() and values[-1] > _ROUNDING_GROWS * values[kept][0]:
        core = symmetrize(core).astype(np.float64, copy=False)
    return second, whiten, core.astype(core_dtype(core.shape[0]), copy=False)


def _start(whiten: FloatArray, core: FloatArray, near: FloatArray | None) -> FloatArray | None:
    if near is not None and near.shape[1] == core.shape[0]:
        return whiten.T @ near
    return None


def _order(coordinates: FloatArray, weights: FloatArray, before: FloatArray | None) -> IndexArray:
    """Return the order of the topics before, or else that of their size, which falls with the
    weight.
    """
    if (
        before is None
        or before.shape != coordinates.shape
        or not weights.size
        or not before.any(axis=0).all()
    ):
        return np.argsort(weights, kind="stable")
    ones = np.ones(weights.size)
    return match(Components(ones, coordinates), Components(ones, before)).found_index


def _random_topics(n_topics: int, frequencies: FloatArray, seed: int) -> FloatArray:
    noise = np.random.default_rng([seed, n_topics]).standard_exponential(
        (n_topics, frequencies.size)
    )
    topics: FloatArray = noise * frequencies
    topics /= topics.sum(axis=1, keepdims=True)
    return topics


def onto_simplex(rows: FloatArray, variances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Project rows onto the simplex in place, and return with them the share of their mass that was
    negative.

    A row that is mostly negative is taken with the other sign. Then it is scaled to sum 1 and
    projected in the norm Σ x²ᵥ/variancesᵥ, in which errors of words count by how uncertain they
    are: x becomes max(x − τ variances, 0), with τ such that the sum is 1.
    """
    negative_share = np.empty(rows.shape[0])
    for index, row in enumerate(rows):
        positive = float(np.sum(row, where=row > 0))
        negative = positive - float(np.sum(row))
        if negative > positive:
            np.negative(row, out=row)
            positive, negative = negative, positive
        negative_share[index] = negative / max(positive + negative, np.finfo(np.float64).tiny)
        divisor = max(positive - negative, positive / _MOST_POSITIVE_MASS)
        if divisor > 0:
            np.divide(row, divisor, out=row)
            _project(row, variances)
        else:  # nothing at all was found of this topic
            row[:] = variances
        np.divide(row, row.sum(), out=row)
    return rows, negative_share


def _project(row: FloatArray, variances: FloatArray) -> None:
    """Replace x by max(x − τ v, 0) with sum 1; Newton's method finds τ, and from below it never
    overshoots.
    """
    kept = np.flatnonzero(row > 0)
    values = row[kept]
    weights = variances[kept]
    level = 0.0
    for _ in range(_MOST_NEWTON_STEPS):
        above = values > level * weights
        slope = float(np.sum(weights, where=above))
        excess = float(np.sum(values, where=above)) - level * slope - 1
        if excess <= 1e-12 or slope <= 0:
            break
        level += excess / slope
    row.fill(0)
    row[kept] = np.maximum(values - level * weights, 0)
