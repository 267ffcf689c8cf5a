"""The block matrix of communities, profiles and memberships that agree with each other, and how
mixed nodes are.

**The number of links between communities**, without the noise of memberships.

Let A = S Π B Πᵀ S be the expected links, where a node i has the propensity sᵢ and the memberships
πᵢ. A link of a pure node of community a goes to node j with a chance in proportion to sⱼ (B πⱼ)ₐ:
that is the profile Pₐ, so P = Z⁻¹ B Πᵀ S for some diagonal Z. The pseudo-inverse of A has rank k,
and P A⁺ Pᵀ = Z⁻¹ B ΠᵀS (SΠ B ΠᵀS)⁺ SΠ B Z⁻¹ = Z⁻¹ B Z⁻¹ = W. Of the links that end in a, all begin
somewhere: with mₐ of them, Σ_b mₐ Wₐ_b m_b = mₐ. So W m = 1, and the number of links between two
communities is mₐ Wₐ_b m_b.

A least-squares fit to the memberships would be biased, because they are estimated from few links
each. Of profiles and links only the part in the k leading eigenvectors V of A is used, where noise
is small. A = V Λ Vᵀ also gives Y = V Λ (P V)⁻¹ = S Π Z: the number of links of a node through each
community. That is linear in the links, so the noise of nodes cancels in sums over them.

**Profiles and memberships** must agree, because the graph is symmetric: the nodes that are linked
to are those that link. So the profile of a community follows from the memberships and from the
links between communities: Pₐ(j) ∝ dⱼ Σ_b Nₐ_b/(mₐ m_b) πⱼ_b for a node with dⱼ links. The moments
alone do not use this, and estimate each entry of a profile by itself. A round computes profiles
from memberships, then memberships from profiles. The degree of a node is a factor of its entry in
all profiles, so memberships do not depend on it: nodes of one community may have very different
degrees.

The number of links between communities is computed once, from the moments, and not again in each
round. Likelihood alone does not determine it: nodes that are more mixed, in communities with hardly
any links between them, fit equally well, and slightly better because of noise.

**How mixed nodes are** is selected by held-out links. The profiles that moments give depend on the
concentration α₀ with which they are corrected. A tenth of the links is held out, communities are
learnt from the others for several α₀, and the α₀ is taken under which the held-out links are most
likely. A link is held out at both of its ends; otherwise the memberships of one end would reveal
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.models.lda.corpus import LocalCorpus
from odeco.models.lda.counts import FEWEST_WORDS
from odeco.models.lda.inference import document_topics, log_likelihood
from odeco.models.lda.params import LdaSettings
from odeco.models.lda.spectral import reduce_moments, sum_moments, topics_for

#: All eigenvectors of a graph with at most this number of nodes are computed.
_SMALL = 500

#: Eigenvalues below this share of the largest are not inverted.
_LEAST_INVERTED = 1e-6

_TOLERANCE = 1e-4

#: The least number of links between two communities, as a share of the number expected by chance:
#: no link is impossible.
_LEAST_LINKED = 1e-3

#: Iterations for the sizes of communities; each is a product of n x k numbers.
_N_SIZE_STEPS = 30


def leading_eigenpairs(
    matrix: Any, number: int, *, which: Literal["LM", "LA"], tolerance: float, small: int
) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues of a symmetric CSR array, largest in size ("LM") or largest ("LA"), and
    their eigenvectors.

    If it has at most `small` rows, all of them are returned. They are in no particular order.
    """
    n = matrix.shape[0]
    with one_blas_thread():
        if n <= small or number >= n - 1:
            values, vectors = np.linalg.eigh(matrix.toarray())
        else:
            start = np.random.default_rng(0).standard_normal(n)
            values, vectors = sparse_linalg.eigsh(
                matrix, number, which=which, v0=start, tol=tolerance
            )
    return values, vectors


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The k leading eigenvalues of links, by size, and their eigenvectors as columns; fewer if
    others are zero.

    Attributes
    ----------
    values, vectors : arrays
        The eigenvalues and eigenvectors.
    noise : array
        Σᵢvᵢ²dᵢ for each eigenvector: the mean of vᵀE²v for the noise E, whose square has the
        degrees on its diagonal on average, and zeros elsewhere.
    """

    values: FloatArray
    vectors: FloatArray
    noise: FloatArray

    @classmethod
    def of(cls, links: Any, k: int) -> Spectrum:
        """Return the leading spectrum of a symmetric CSR array."""
        values, vectors = leading_eigenpairs(
            links, k, which="LM", tolerance=_TOLERANCE, small=_SMALL
        )
        order = np.argsort(-np.abs(values), kind="stable")[:k]
        order = order[np.abs(values[order]) > _LEAST_INVERTED * np.abs(values[order[0]])]
        vectors = vectors[:, order]
        return cls(
            values[order], vectors, np.asarray(links.sum(axis=1), dtype=np.float64) @ vectors**2
        )

    def without_noise(self) -> Spectrum:
        """Return the spectrum with the bias of noise subtracted: λ̂ = λ + vᵀE²v/λ to second order,
        solved for λ.
        """
        # If noise alone may be as large as the eigenvalue, half of the eigenvalue remains.
        size = (np.abs(self.values) + np.sqrt(np.maximum(self.values**2 - 4 * self.noise, 0.0))) / 2
        return Spectrum(np.sign(self.values) * size, self.vectors, np.zeros_like(self.noise))


def links_between(
    links: Any, spectrum: Spectrum, profiles: FloatArray, shares: FloatArray
) -> FloatArray:
    """Return the numbers of links between communities, k x k; their sum is that of the links.

    Parameters
    ----------
    links : CSR array, n x n
        Links, symmetric.
    spectrum : Spectrum
        Their leading eigenvalues and eigenvectors.
    profiles : array, k x n
        For each community the distribution of its links over nodes.
    shares : array, n x k
        The share of a node's links that go through each community. Their products are taken as they
        are if the profiles do not span k directions.
    """
    between = _by_spectrum(spectrum, profiles)
    if between is None:
        return np.asarray(shares.T @ (links @ shares))
    return np.asarray(between * (float(links.sum()) / between.sum()))


def block_matrix(
    links: Any, spectrum: Spectrum, profiles: FloatArray, shares: FloatArray
) -> FloatArray:
    """Return the expected number of links between a node of one community only, and one of another,
    k x k.

    The arguments are those of `links_between`. A community has as many nodes as make the mean
    propensity of its members one. With nₐ of them, a link through a stands for nₐ/mₐ of a node; a
    node of dᵢ links, yᵢₐ of them through a, is of a to the part yᵢₐ/dᵢ nₐ/mₐ, divided by the same
    for its shares in all communities, and these parts must sum to nₐ. No node is linked to itself,
    so that pairs of a node with itself are not counted. No rate may exceed the largest weight of a
    link, and the rates of all pairs of nodes must add up to the links.
    """
    spectrum = spectrum.without_noise()
    between = links_between(links, spectrum, profiles, shares)
    degrees = np.asarray(links.sum(axis=1), dtype=np.float64)
    linked = degrees > 0
    mixed = parts = shares[linked]
    through = between.sum(axis=1)
    if _by_spectrum(spectrum, profiles) is not None:
        with one_blas_thread():
            through_nodes = spectrum.vectors[linked] @ (
                spectrum.values[:, None] * np.linalg.inv(profiles @ spectrum.vectors)
            )
        parts = through_nodes * (through / through_nodes.sum(axis=0)) / degrees[linked, None]
    sizes = np.maximum(mixed.sum(axis=0), 1.0)
    for _ in range(_N_SIZE_STEPS):
        worth = sizes / np.maximum(through, np.finfo(np.float64).tiny)
        sizes = np.maximum((parts / (mixed @ worth)[:, None]).sum(axis=0) * worth, 1.0)
    alone = mixed * worth / (mixed @ worth)[:, None]
    rates = between / np.maximum(np.outer(sizes, sizes) - alone.T @ alone, 1.0)
    n_pairs = np.outer(shares.sum(axis=0), shares.sum(axis=0)) - shares.T @ shares
    return _within_limits(rates, n_pairs, float(links.data.max()), float(links.sum()))


def _within_limits(
    rates: FloatArray, n_pairs: FloatArray, largest: float, n_links: float
) -> FloatArray:
    """Return rates times a factor, and at most `largest`, so that over all pairs they add up to the
    number of links.

    The sum rises with the factor. Each step multiplies the rates that are below the limit by what
    the sum lacks.
    """
    limited = np.minimum(rates, largest)
    for _ in range(_N_SIZE_STEPS):
        at_limit = limited >= largest
        free = float(np.sum((n_pairs * limited)[~at_limit]))
        lacking = n_links - float(np.sum((n_pairs * limited)[at_limit]))
        if free <= 0 or lacking <= 0:
            break
        limited = np.minimum(np.where(at_limit, largest, limited * (lacking / free)), largest)
    return np.asarray(limited)


def _by_spectrum(spectrum: Spectrum, profiles: FloatArray) -> FloatArray | None:
    """Return the numbers of links between communities, or None if the profiles do not span as many
    directions.
    """
    with one_blas_thread():
        inner = profiles @ spectrum.vectors
        rates = (inner / spectrum.values) @ inner.T
        if spectrum.values.size < len(profiles) or np.linalg.cond(rates) > 1 / _LEAST_INVERTED:
            return None
        through = np.linalg.solve(rates, np.ones(len(rates)))
        if through.min() <= 0:
            return None
        between = through[:, None] * (rates + rates.T) / 2 * through
        return np.asarray(
            np.maximum(between, _LEAST_LINKED * np.outer(through, through) / through.sum())
        )


#: Rounds until profiles and memberships agree.
_N_ROUNDS = 2


def agree(
    links: Any,
    spectrum: Spectrum,
    profiles: FloatArray,
    prior: FloatArray,
    *,
    n_iterations: int,
) -> tuple[FloatArray, FloatArray]:
    """Return profiles and memberships that agree, after a few rounds from the profiles of the
    moments.

    Profiles are k x n, and memberships, the shares of a node's links that go through each
    community, n x k.
    """
    degrees = np.asarray(links.sum(axis=1), dtype=np.float64)

    def shares_at(current: FloatArray) -> FloatArray:
        return document_topics(links, current, prior, n_iterations=n_iterations)

    shares = shares_at(profiles)
    between = links_between(links, spectrum, profiles, shares)
    for _ in range(_N_ROUNDS):
        profiles = profiles_of(between, shares, degrees)
        shares = shares_at(profiles)
    return profiles, shares


def profiles_of(between: FloatArray, shares: FloatArray, degrees: FloatArray) -> FloatArray:
    """Return the profiles that follow from memberships. Every node counts one more link, so that
    none is impossible.
    """
    through = np.maximum(between.sum(axis=1), np.finfo(np.float64).tiny)
    profiles = (between / through) @ (shares * (degrees + 1)[:, None]).T
    return np.asarray(
        profiles / np.maximum(profiles.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    )


#: From nodes that have one community each to nodes that belong to many.
CANDIDATES = (0.01, 0.03, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)

#: Taken if there are too few links to hold any out.
_DEFAULT = 0.1

#: The share of the links that a split holds out.
_HELD_OUT = 0.1

#: A graph with at least this number of links is split once; a smaller one several times, at most
#: `_MAX_SPLITS`.
_ENOUGH_LINKS = 10_000
_MAX_SPLITS = 20

#: Iterations for the memberships of a node, for each candidate.
_N_ITERATIONS = 10

#: The share of a held-out link that is attributed to chance, in proportion to degrees: no link is
#: impossible.
_CHANCE = 0.01


def choose_concentration(links: Any, settings: LdaSettings, *, seed: int) -> float:
    """Return the candidate for α₀ with which communities make held-out links most likely.

    A small graph has few links to hold out, and a single split of it would leave the choice to
    chance. So its links are split several times. Of the candidates whose likelihood is within one
    standard error of the best, the smallest is taken: nodes are not called mixed unless held-out
    links show it.
    """
    rng = np.random.default_rng(seed)
    n_splits = int(np.clip(np.ceil(_ENOUGH_LINKS / (links.sum() / 2)), 1, _MAX_SPLITS))
    splits = [split_links(links, rng) for _ in range(n_splits)]
    scores = [
        _scores(known, held_out, links, settings, seed=seed)
        for known, held_out in splits
        if held_out.nnz and float(known.sum(axis=1).max()) >= FEWEST_WORDS
    ]
    if not scores:
        return _DEFAULT
    behind = np.array(scores).T
    behind = behind[np.argmax(behind.sum(axis=1))] - behind  # candidates x splits
    error = behind.std(axis=1, ddof=1) * np.sqrt(len(scores)) if len(scores) > 1 else 0.0
    return CANDIDATES[int(np.flatnonzero(behind.sum(axis=1) <= error)[0])]


def _scores(
    known: Any, held_out: Any, links: Any, settings: LdaSettings, *, seed: int
) -> list[float]:
    """Return the log-likelihood of held-out links under communities learnt from the others, for
    each candidate.
    """
    corpus = LocalCorpus(known)
    k = min(
        int(settings.n_components), corpus.sums().n_supported
    )  # fewer links may support fewer communities
    (sums,) = sum_moments(
        corpus, replace(settings, n_components=k), seed=seed, callback=lambda *_: None
    )
    sums.drop_basis()
    reduced = reduce_moments(sums, k)
    spectrum = Spectrum.of(known, k)
    degrees = np.asarray(links.sum(axis=0), dtype=np.float64)
    chance = degrees / degrees.sum()
    scores = []
    near = None
    for candidate in CANDIDATES:
        topics = topics_for(candidate, reduced, sums, seed=seed, near=near)
        near = topics.coordinates
        profiles, shares = agree(
            known,
            spectrum,
            topics.topic_word,
            topics.alpha,
            n_iterations=_N_ITERATIONS,
        )
        # A small share of each link is attributed to chance.
        mixed = (1 - _CHANCE) * profiles + _CHANCE * chance
        scores.append(float(np.sum(log_likelihood(held_out, mixed, shares))))
    return scores


def split_links(links: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return two symmetric CSR arrays that sum to the links: training links, and held-out links."""
    upper = sparse.csr_array(sparse.triu(links, 1))
    taken = rng.binomial(upper.data.astype(np.int64), _HELD_OUT).astype(np.float64)
    parts = []
    for data in (upper.data - taken, taken):
        part = sparse.csr_array(
            (data, upper.indices.copy(), upper.indptr.copy()), shape=upper.shape
        )
        part = sparse.csr_array(part + part.T)
        part.eliminate_zeros()
        part.sort_indices()
        parts.append(part)
    return parts[0], parts[1]
