"""How many components stand clear of the noise.

A weight is judged against what pure noise would give: a Gaussian symmetric tensor with the norm of what remains after
the component is taken out. On the unit sphere such a tensor is a spherical p-spin glass. The expected number of its
local maxima above x times its standard deviation is exp(d Θₚ(x/√d)) up to a power of d, where Θₚ is the complexity of
Auffinger, Ben Arous and Černý; it is zero at the level E₀ where the largest maximum lies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy  # its submodules are imported when they are used: optimize takes longer than all of odeco

from odeco._types import FloatArray

#: A component counts if noise alone would show one as large with at most this chance.
SIGNIFICANCE = 1e-3
#: So many unclear components in a row end the search,
PATIENCE = 3
#: but up to this dimension all are looked at. There, signal that remains can hide the first of many equal components:
#: r of them raise the noise level to E₀√(p! r / dᵖ⁻¹) of their weight, at order 3 below 1 for r ≤ d from d = 17.
SMALL_DIMENSION = 24


@dataclass(frozen=True, eq=False)
class RankEvidence:
    """Why a rank was chosen: each weight beside the noise level that it was judged against.

    Attributes
    ----------
    rank : int
        The number of components kept.
    weights : array
        The weights in order of discovery, those that were dropped included.
    noise_levels : array
        For each weight the largest that noise is expected to show.
    chances : array
        For each weight the chance, at most, that noise alone shows one as large.
    """

    rank: int
    weights: FloatArray
    noise_levels: FloatArray
    chances: FloatArray

    @property
    def confidence(self) -> float:
        """One minus the chance that the last component kept is noise; 0 if none was kept."""
        return 1 - float(self.chances[self.rank - 1]) if self.rank else 0.0


def judge_rank(weights: FloatArray, remaining: FloatArray, dimension: int, order: int) -> RankEvidence:
    """Judge weights, in order of discovery, against the noise that could be in what remained after each.

    A Gaussian symmetric tensor of squared norm N² has variance N² / C(d+p−1, p) at every unit vector, so that is the
    variance of the noise if `remaining`, the squared norm without this component and those before it, is all noise.
    """
    floor = np.finfo(np.float64).eps * np.max(weights**2, initial=0.0)
    deviation = np.sqrt(np.maximum(remaining, floor) / math.comb(dimension + order - 1, order))
    heights = np.abs(weights) / (deviation * math.sqrt(dimension))
    chances = np.array([math.exp(min(0.0, dimension * complexity(height, order))) for height in heights])
    clear = np.flatnonzero(chances <= SIGNIFICANCE)
    rank = int(clear[-1]) + 1 if clear.size else 0
    return RankEvidence(rank, weights, ground_state(order) * deviation * math.sqrt(dimension), chances)


def enough_seen(n_found: int, evidence: RankEvidence, dimension: int) -> bool:
    """Say whether further components would hardly change the rank."""
    return n_found >= (dimension if dimension <= SMALL_DIMENSION else evidence.rank + PATIENCE)


def complexity(height: float, order: int) -> float:
    """Return Θₚ, the exponential rate of the number of local maxima above `height` √d standard deviations.

    Below E∞ = 2√((p−1)/p), where maxima begin, it is counted as that of E∞.
    """
    edge = 2 * math.sqrt((order - 1) / order)
    u = max(height, edge)
    root = math.sqrt(max(u * u - edge * edge, 0.0))
    action = u * root / edge**2 - math.log((u + root) / edge)
    return 0.5 * math.log(order - 1) - (order - 2) / (4 * (order - 1)) * u * u - action


def ground_state(order: int) -> float:
    """Return E₀: Gaussian noise on the sphere reaches about E₀ √d standard deviations (1.657 √d at order 3)."""
    edge = 2 * math.sqrt((order - 1) / order)
    return float(scipy.optimize.brentq(lambda height: complexity(height, order), edge, 10 * edge))
