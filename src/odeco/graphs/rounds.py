"""Profiles of communities and memberships of nodes, made to agree: the graph is symmetric.

The nodes that are linked to are those that link. So the profile of a community follows from the memberships, and how
communities are linked: Pₐ(j) ∝ dⱼ Σ_b Nₐ_b/(mₐ m_b) πⱼ_b for a node with dⱼ links. The moments alone do not know this,
and estimate each entry of a profile by itself. A round makes profiles from memberships, and memberships from profiles.
The degree of a node is a factor of its entry in all profiles, so memberships do not depend on it: nodes of the same
community may have very different numbers of links.

How communities are linked is worked out once, from the moments, and not again in each round. Likelihood alone cannot
say it: nodes that are more mixed, in communities that are hardly linked with each other, fit as well, and a little
better for the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._types import FloatArray
from odeco.graphs.blocks import Spectrum, links_between
from odeco.topics.infer import document_topics

_N_ROUNDS = 2


@dataclass(frozen=True, eq=False)
class Agreed:
    """Profiles and memberships that agree.

    Attributes
    ----------
    profiles : array, k x n
        For each community the distribution of its links over nodes.
    shares : array, n x k
        The share of a node's links that go through each community.
    """

    profiles: FloatArray
    shares: FloatArray


def agree(
    links: Any, spectrum: Spectrum, profiles: FloatArray, prior: FloatArray, *, n_iterations: int, n_jobs: int
) -> Agreed:
    """Return what a few rounds make of the profiles that moments gave, for links with this spectrum."""
    degrees = np.asarray(links.sum(axis=1), dtype=np.float64)

    def shares_at(current: FloatArray) -> FloatArray:
        return document_topics(links, current, prior, n_iterations=n_iterations, n_jobs=n_jobs)

    shares = shares_at(profiles)
    between = links_between(links, spectrum, profiles, shares)
    for _ in range(_N_ROUNDS):
        profiles = _profiles(between, shares, degrees)
        shares = shares_at(profiles)
    return Agreed(profiles, shares)


def _profiles(between: FloatArray, shares: FloatArray, degrees: FloatArray) -> FloatArray:
    """Return the profiles that follow from memberships. A node counts one link more than it has: none is impossible."""
    through = np.maximum(between.sum(axis=1), np.finfo(np.float64).tiny)
    profiles = (between / through) @ (shares * (degrees + 1)[:, None]).T
    return np.asarray(profiles / np.maximum(profiles.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny))
