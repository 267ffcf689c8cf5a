"""How many components the moment of a sample has: as many as rows that did not find them bear out.

The noise of a sample is neither white nor Gaussian, so no law of tensors of noise is used. Components are fitted to the
core of one part of the rows, with 1, 2, 3, … of them. The other part, *held out*, is cut into groups. Let C be a fit
and C + D the next, with one component more. For the core T of a group,

    w(T) = ⟨T − C, D⟩ − ‖D‖²/4,

is what half a step from C towards C + D takes off ‖T − C‖². It is linear in T, and the groups are independent of each
other and of C and D. If half of D brings nobody closer to the moment, the expectation of w is not above zero. One that
fits noise leads away: D then has nothing in common with the moment, and w is −‖D‖²/4 on average. A whole step would ask
for more, that D be right within a half; where the weight of a true component is known to a share s, w is 3/(4 s)
standard errors above zero, where it would be 1/(2 s).

Two tests tell whether w is above zero. Its mean over its standard error follows Student's law. And the number of groups
in which it is above zero is binomial: means over many rows lie above and below their expectation alike. A component
with heavy tails, which few rows make for the most part, varies so much between groups that its mean says little, while
it is above zero in all of them. A chance is that of both tests together: twice the smaller one.

Components that are too weak to be seen are counted as in tensors: from how far those that are seen are clear of the
level at which one is (`expected_undetected`). That level is the larger of two. Below what the next component
gains in the rows that it was fitted to, one would not have been found there. And it must be above zero in nearly all
groups that are held out: by a standard deviation of one group. Where many are to be expected below the level, one that
chance would show now and then is more likely to be there than not, and is kept; the answer then says how unsure it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import bdtr, stdtr

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.fit import fitted_weights, removal_costs
from odeco.cp.rank import SIGNIFICANCE, SURE, RankEvidence
from odeco.cp.selection import CPFits, expected_undetected
from odeco.cp.symmetric import SymmetricProblem
from odeco.tensors.components import Components
from odeco.tensors.dense import DenseTensor, symmetrize

#: Groups of rows that are held out. Their spread gives the standard errors, with one degree of freedom less.
N_GROUPS = 16

#: Of a step from one fit to the next, the share that rows held out are asked about.
_STEP = 0.5

#: Number of further components that are tried before the search ends; twice this number while one is in doubt.
_PATIENCE = 2

#: What chance shows more often than this makes nobody look twice.
_USUAL_CHANCE = 0.1


class HeldOut:
    """Fits to one part of the rows, and what they are worth in each group of the other.

    Parameters
    ----------
    fitted : array, m x … x m
        The core of the rows that components are fitted to.
    held : sequence of arrays, m x … x m
        The cores of groups of rows that are held out.
    most : int
        The most components that are looked for.
    seed : int
        Draws the starts.
    """

    def __init__(self, fitted: FloatArray, held: Sequence[FloatArray], most: int, seed: int) -> None:
        self.tensor = DenseTensor(symmetrize(fitted))
        self._held = [DenseTensor(symmetrize(core)) for core in held]
        problem = SymmetricProblem(self.tensor, self.tensor.squared_norm())
        self._fits = CPFits(problem, np.random.default_rng(seed), max_rank=most)
        self.most = most

    def fit(self, rank: int) -> Components:
        """Return the best fit of `rank` components to the rows for that."""
        return self._fits.fit(rank).components

    def gain(self, rank: int) -> float:
        """Return the root of what the last of `rank` components takes off the squared misfit there."""
        return math.sqrt(max(0.0, self._fits.fit(rank).explained - self._fits.fit(rank - 1).explained))

    def exhausted(self, rank: int) -> bool:
        """Return whether a fit leaves nothing but rounding error."""
        return self._fits.exhausted(rank)

    def extend(self, rank: int) -> None:
        """Fit one component more than `rank`: started where the last fit leaves most, and all anew."""
        self._fits.add(rank, self._fits.next(rank)[0])

    def worth(self, old: Components, new: Components) -> FloatArray:
        """Return for each group what half a step from one fit to another is worth."""
        with one_blas_thread():
            values = np.array([_inner(new, core) - _inner(old, core) for core in self._held])
        crossed, squared = _inner(old, new), _inner(old, old)
        distance = _inner(new, new) - 2 * crossed + squared
        return values - (crossed - squared) - _STEP / 2 * distance

    def chance(self, worth: FloatArray) -> float:
        """Return the p-value of this mean, or of this number of groups above zero, if no further component exists."""
        by_mean = float(stdtr(worth.size - 1, -_in_errors(worth)))
        by_signs = float(bdtr(int(np.sum(worth <= 0)), worth.size, 0.5))
        return min(1.0, 2 * min(by_mean, by_signs))

    def worth_of_each(self, components: Components) -> list[FloatArray]:
        """Return for each component what half of it is worth beside the others, these with weights fitted anew."""
        worth = []
        for index in range(components.n_components):
            others = np.delete(components.vectors, index, axis=1)
            weights = fitted_weights(self._fits.problem, others) if others.shape[1] else np.empty(0)
            worth.append(self.worth(Components(weights, others, components.order), components))
        return worth


class Following(NamedTuple):
    """What comes after the components that are kept.

    Attributes
    ----------
    weight, gain : float
        Of the next component: its weight, and the root of what it takes off the squared misfit of the rows that it was
        fitted to.
    level : float
        The gain at which one would have been kept.
    hidden : float
        How many components below the level are to be expected.
    chances : list of float
        Of each number of components that was tried: how often chance shows as much.
    """

    weight: float
    gain: float
    level: float
    hidden: float
    chances: list[float]

    @property
    def odds(self) -> float:
        """The odds that the number of components with the least chance is right, against chance.

        Components below the level are to be expected: that is what speaks for one before the rows held out are asked.
        Where chance shows as much in a share p < 1/e of all cases, they can speak for it by a factor of 1/(−e p ln p)
        at the most (Sellke, Bayarri and Berger, The American Statistician 2001). Of several that were tried p counts
        for the one with the least.
        """
        share = min(self.chances) * len(self.chances)
        return self.hidden / (-math.e * share * math.log(share)) if 0 < share < 1 / math.e else 0.0


def select_on_held_out(rows: HeldOut) -> tuple[RankEvidence, Components]:
    """Select the number of components of the moment; return the evidence, and their fit.

    Kept is what chance hardly ever shows, and then what is more likely to be there than not: in doubt the best guess.
    """
    rank, following = _kept(rows, 0)
    doubt = 0.0
    while rank and following is not None and following.odds > 1:
        doubt = max(doubt, 1 / (1 + following.odds))
        rank, following = _kept(rows, rank + 1 + int(np.argmin(following.chances)))
    found = rows.fit(rank).sorted_by_weight()
    return _evidence(rows, found, following, doubt), found


def _kept(rows: HeldOut, rank: int) -> tuple[int, Following | None]:
    """Return how many components are beyond chance, from `rank` on, and what follows them, if anything."""
    tried, chances = rank + 1, list[float]()
    while tried <= rows.most and not rows.exhausted(tried - 1) and _go_on(chances):
        rows.extend(tried - 1)
        chances.append(rows.chance(rows.worth(rows.fit(rank), rows.fit(tried))))
        if chances[-1] <= SIGNIFICANCE:
            rank, chances = tried, []
        tried += 1
    return rank, _following(rows, rank, chances) if chances else None


def _go_on(chances: list[float]) -> bool:
    """Return whether to try one more component, given the chances of those since the last that was kept."""
    in_doubt = bool(chances) and chances[-1] < _USUAL_CHANCE
    return len(chances) < (2 * _PATIENCE if in_doubt else _PATIENCE)


def _following(rows: HeldOut, rank: int, chances: list[float]) -> Following:
    old, new = rows.fit(rank), rows.fit(rank + 1)
    gain = max(rows.gain(rank + 1), np.finfo(np.float64).tiny)
    deviation = float(np.std(rows.worth(old, new), ddof=1)) / gain
    level = max(gain, deviation / (1 - _STEP / 2))
    # Of a component that is kept it is known that it can be seen.
    hidden = expected_undetected(np.maximum(_heights(old) / level, 1.0), 1.0)
    return Following(_weakest(new), gain, level, hidden, chances)


def _evidence(rows: HeldOut, found: Components, following: Following | None, doubt: float) -> RankEvidence:
    """Return the evidence for what was found; `doubt` is the chance that one of them is not there."""
    rank = found.n_components
    chances = np.array([rows.chance(each) for each in rows.worth_of_each(found)])
    over = max(doubt, float(np.max(chances, initial=0.0)))
    doubtful: list[int] = []
    if following is None:
        complete = rows.exhausted(rank)  # else there may be more than were looked for
        levels = np.zeros(rank)
        confidence = (1.0 - over) * complete
        weights = found.weights
    else:
        complete = False
        least = min(following.chances)
        confidence = math.exp(-following.hidden) * (1 - over) * min(1.0, least / _USUAL_CHANCE)
        weights = np.append(found.weights, following.weight)
        levels = np.abs(weights) * (following.level / np.append(_heights(found), following.gain))
        chances = np.append(chances, least)
        doubtful = [rank + 1 + place for place, chance in enumerate(following.chances) if chance < _USUAL_CHANCE]
    confidence = confidence if rank else 0.0
    candidates = [rank]
    if confidence < SURE:
        candidates += [rank + 1] if rank < rows.most or not complete else []
        candidates += [rank - 1] if over > SIGNIFICANCE / 10 and rank > 1 else []
        candidates += [other for other in doubtful if other > rank + 1]
    return RankEvidence(rank, weights, levels, chances, confidence, tuple(candidates))


def _heights(components: Components) -> FloatArray:
    """Return for each component the root of what leaving it out would cost."""
    return np.sqrt(removal_costs(SymmetricProblem(components), components))


def _weakest(components: Components) -> float:
    """Return the weight of the component that is cheapest to leave out."""
    return float(components.weights[int(np.argmin(removal_costs(SymmetricProblem(components), components)))])


def _inner(components: Components, tensor: Components | DenseTensor) -> float:
    """Return the inner product of components with a tensor."""
    return float(components.weights @ tensor.value(components.vectors)) if components.n_components else 0.0


def _in_errors(values: FloatArray) -> float:
    """Return a mean over its standard error; 0 if all values are zero."""
    least = np.finfo(np.float64).eps * float(np.max(np.abs(values), initial=0.0))
    error = float(np.std(values, ddof=1)) / math.sqrt(values.size)
    return float(np.mean(values)) / max(error, least) if least > 0 else 0.0
