"""How mixed the nodes of a graph are, by links that were not learnt from.

The profiles that moments give depend on the concentration α₀ that they are corrected with. A tenth of the links is
hidden, communities are learnt from the others for several α₀, and that α₀ is taken with which they make the hidden
links likeliest. A link is hidden from both of its ends, or the memberships of one would know of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from odeco._util.types import FloatArray
from odeco.models.lda.corpus import CorpusHere
from odeco.models.lda.counts import FEWEST_WORDS
from odeco.models.lda.inference import log_likelihood
from odeco.models.lda.settings import LdaSettings
from odeco.models.lda.spectral import reduce_moments, sum_moments, topics_at
from odeco.models.mmsb.blocks import Spectrum, agree

#: From nodes that have one community each to nodes that belong to many.
CANDIDATES = (0.01, 0.03, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)

#: Taken where there are too few links to hide any.
_BY_DEFAULT = 0.1

#: This share of the links is hidden.
_HIDDEN = 0.1

#: Rounds in which the memberships of a node are found for a candidate.
_N_ITERATIONS = 10

#: This share of a hidden link is left to chance, in proportion to degrees, so that no link is impossible.
_BY_CHANCE = 0.01


def choose_concentration(links: Any, settings: LdaSettings, *, seed: int) -> float:
    """Return the candidate for α₀ with which communities make hidden links likeliest."""
    known, hidden = hide_links(links, np.random.default_rng(seed))
    if not hidden.nnz or float(known.sum(axis=1).max()) < FEWEST_WORDS:
        return _BY_DEFAULT
    sums, supported = sum_moments(CorpusHere(known, settings), settings, seed=seed, tell=lambda *_: None)
    sums.drop_basis()
    reduced = reduce_moments(sums, supported.n_components)
    spectrum = Spectrum.of(known, int(supported.n_components))
    degrees = np.asarray(links.sum(axis=0), dtype=np.float64)
    chance = degrees / degrees.sum()
    best, likelihood, near = _BY_DEFAULT, -np.inf, None
    for candidate in CANDIDATES:
        topics = topics_at(candidate, reduced, sums, seed=seed, near=near)
        near = topics.coordinates
        found = agree(
            known, spectrum, topics.topic_word, topics.alpha, n_iterations=_N_ITERATIONS, n_jobs=settings.n_jobs
        )
        reached = _likelihood(hidden, found.profiles, found.shares, chance, settings.n_jobs)
        if reached > likelihood:
            best, likelihood = candidate, reached
    return best


def hide_links(links: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return two symmetric CSR arrays that sum to the links: most of them, and those that are hidden."""
    upper = sparse.csr_array(sparse.triu(links, 1))
    taken = rng.binomial(upper.data.astype(np.int64), _HIDDEN).astype(np.float64)
    parts = []
    for data in (upper.data - taken, taken):
        part = sparse.csr_array((data, upper.indices.copy(), upper.indptr.copy()), shape=upper.shape)
        part = sparse.csr_array(part + part.T)
        part.eliminate_zeros()
        part.sort_indices()
        parts.append(part)
    return parts[0], parts[1]


def _likelihood(hidden: Any, profiles: FloatArray, shares: FloatArray, chance: FloatArray, n_jobs: int) -> float:
    """Return the log-likelihood of hidden links, a little of each left to chance."""
    mixed = (1 - _BY_CHANCE) * profiles + _BY_CHANCE * chance
    return float(np.sum(log_likelihood(hidden, mixed, shares, n_jobs=n_jobs)))
