"""The search for the best components of a table: starts of several kinds, then swaps.

Twelve starts compete: the third moment once, the others in turn k-means++ on plain, whitened and
randomly weighted columns, and a soft partition by random directions. The lower half is dropped
after three rounds of EM. Then components of the best are swapped (one is given up, another is cut
in two), in batches, until two batches in a row gain nothing; until one does if half of the starts
that were not dropped found the same.

All starts of a batch are one product: their components stand side by side, and responsibilities for
a row sum to one for each start. Parts need no coordinates for SQUAREM, as responsibilities are
extrapolated and the M step makes parameters of whatever comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.stages import LOG
from odeco._util.types import FloatArray, IndexArray
from odeco.models.emissions.parts import normalize
from odeco.models.emissions.product import Product, ProductMixture
from odeco.models.engine.rows import split, with_weights
from odeco.models.gmm.start import can_be_spectral, seeded_labels, spectral_start

#: The number of starts, and of swaps in a batch, as far as responsibilities together have at most
#: the second number of entries.
_BATCH, _NUMBERS_TOGETHER = 12, 2**20

#: Rounds of EM before the lower half is dropped, and at most after that. A round is three E steps.
_FIRST_ROUNDS, _MOST_ROUNDS = 3, 60

#: Swaps end after this number of batches without a gain, or after this number in all.
_PATIENCE, _MOST_BATCHES = 2, 8

#: Starts compete to within this many nats of all rows.
_NATS = 0.3

#: A start is a partition of rows in which each counts by this share for other components.
_OTHERS = 0.1

#: A swapped component keeps this share of the rows that are nearer to the other half.
_NEARER = 0.9

#: The longest step of SQUAREM, in multiples of a round.
_LONGEST = 1e6

#: A direction of the whitened embedding has at least this share of the largest.
_LEAST_SHARE = 1e-6


@dataclass(frozen=True, eq=False)
class TableEM:
    """EM from many starts of k components at once.

    Attributes
    ----------
    block : array
        The rows, as parts take them.
    weights : array
        The weight of each row.
    one : Product
        One component, that of all rows.
    prior : array
        The mean features of all rows: those of the further rows of each component.
    smoothing : float
        The number of these rows, if components are not apart.
    floor : array
        What is added to the variances of each number.
    """

    block: FloatArray
    weights: FloatArray
    one: Product
    prior: FloatArray
    smoothing: float
    floor: FloatArray

    @classmethod
    def of(
        cls, data: Any, one: Product, mean_sums: FloatArray, smoothing: float, floor: FloatArray
    ) -> TableEM:
        """Return EM on data, whose rows have these mean features."""
        block, weights = split(data)
        weights = np.ones(len(block)) if weights is None else weights
        return cls(block, weights, one, mean_sums, smoothing, floor)

    def spread(self, n_components: int) -> Product:
        """Return components that are all as all rows are."""
        return self.one.take(np.zeros(n_components, dtype=np.int64))

    def m_step(self, shares: FloatArray, before: Product) -> tuple[Product, FloatArray]:
        """Return the components of all starts side by side, and the log-weights of each start.

        Parameters
        ----------
        shares : array, rows x starts x k
            The responsibilities.
        before : Product
            Components by which missing numbers are filled in.
        """
        flat = (shares * self.weights[:, None, None]).reshape(len(shares), -1)
        counts = flat.sum(axis=0).reshape(shares.shape[1:])
        n_prior = self._n_prior(before, counts / counts.sum(axis=1, keepdims=True))[:, None]
        further = np.broadcast_to(n_prior, counts.shape).ravel()
        sums = before.sums(self.block, flat) + np.outer(self.prior, further)
        counts = counts + np.maximum(n_prior, _tiny())
        log_weights = np.log(counts / counts.sum(axis=1, keepdims=True))
        return before.m_step(sums, self.floor), log_weights

    def e_step(self, product: Product, log_weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return responsibilities, rows x starts x k, and the height of each start: the
        log-likelihood of the rows and of those of the prior.
        """
        joint = product.log_densities(self.block).reshape(len(self.block), *log_weights.shape)
        own = np.tensordot(self.weights / self.weights.sum(), joint, 1) + log_weights
        joint += log_weights
        shares, likelihoods = normalize(joint)
        n_prior = self._n_prior(product, np.exp(log_weights))
        return shares, self.weights @ likelihoods + n_prior * own.sum(axis=1)

    def _n_prior(self, product: Product, weights: FloatArray) -> FloatArray:
        """Return the number of rows of the prior of each component, for each start.

        A row that is as all rows are is far from components that are narrow and far apart. So it
        counts less, by the share of the deviation of rows that is left within components.
        """
        return np.asarray(self.smoothing * product.share_within(weights))

    def mixture(self, shares: FloatArray) -> ProductMixture:
        """Return the components of responsibilities, rows x k."""
        made: Product = self.spread(shares.shape[1])
        for _ in range(
            2
        ):  # the second knows the first: its missing numbers, and how far apart it is
            made, log_weights = self.m_step(shares[:, None], made)
        return ProductMixture(made.parts, np.exp(log_weights[0]))

    def run(
        self, shares: FloatArray, max_rounds: int, nats: float
    ) -> tuple[FloatArray, FloatArray, int, bool]:
        """Run EM with SQUAREM in the square roots of responsibilities, from each start until it
        would gain less than `nats`.

        Returns
        -------
        shares, heights : array
            The responsibilities, and the height of each start.
        n_iter : int
            Number of EM iterations.
        converged : bool
            Whether all starts have converged.
        """
        k = shares.shape[2]
        found = shares.copy()
        heights = np.full(shares.shape[1], -np.inf)
        running = np.arange(shares.shape[1])
        before = self.spread(running.size * k)
        for n_round in range(1, max_rounds + 1):
            LOG.debug("EM iteration %d", 3 * n_round)
            first, first_height = self.e_step(*self.m_step(shares, before))
            there = self.m_step(first, before)
            second, height = self.e_step(*there)
            before = there[0]
            far, length = _extrapolated(shares, first, second)
            # If steps shrink by a factor c = 1 − 1/length, so do gains by c²: their sum is about
            # length/2 of the last.
            ended = (height - first_height) * np.maximum(length / 2, 1.0) < nats
            third, better = self.e_step(*self.m_step(far, before))
            shares = np.where((better > height)[:, None], third, second)
            found[:, running] = shares
            heights[running] = np.maximum(better, height)
            ended &= n_round > 1
            if ended.all():
                return found, heights, 3 * n_round, True
            if ended.any():
                shares = shares[:, ~ended]
                running = running[~ended]
                before = before.take(np.flatnonzero(np.repeat(~ended, k)))
        return found, heights, 3 * max_rounds, False


def _tiny() -> float:
    return float(np.finfo(np.float64).tiny)


def _extrapolated(
    origin: FloatArray, first: FloatArray, second: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return where two steps point to, and the length of the way (Varadhan and Roland 2008)."""
    root = np.sqrt(origin)
    one = np.sqrt(first)
    along = one - root
    bend = np.sqrt(second) - 2 * one + root
    bends = np.maximum(np.sum(bend**2, axis=(0, 2)), _tiny())
    length = np.clip(np.sqrt(np.sum(along**2, axis=(0, 2)) / bends), 1.0, _LONGEST)
    far = root + length[:, None] * (2 * along + length[:, None] * bend)
    squares = np.maximum(far, 0.0) ** 2
    return squares / np.maximum(squares.sum(axis=2, keepdims=True), _tiny()), length


@dataclass(frozen=True, eq=False)
class Search:
    """The search for k components in some rows.

    Attributes
    ----------
    em : TableEM
        EM on these rows.
    k : int
        Number of components.
    rng : numpy.random.Generator
        Draws starts and swaps.
    at, white : array
        The rows in coordinates in which columns count alike, and whitened.
    oddness : array
        How far the kurtosis of each coordinate is from 3, that of a Gaussian, as a share of it.
    """

    em: TableEM
    k: int
    rng: np.random.Generator
    at: FloatArray
    white: FloatArray
    oddness: FloatArray

    @classmethod
    def of(cls, em: TableEM, k: int, rng: np.random.Generator) -> Search:
        """Return the search in the rows of `em`."""
        at = em.one.embed(em.block)
        shares = em.weights / em.weights.sum()
        centred = at - shares @ at
        squares = shares @ centred**2
        oddness = np.abs(1 - 3 * squares**2 / np.maximum(shares @ centred**4, _tiny()))
        _, values, right = np.linalg.svd(np.sqrt(shares)[:, None] * centred, full_matrices=False)
        kept = values > _LEAST_SHARE * values.max(initial=0.0)
        white = centred @ (right[kept].T / values[kept]) if kept.any() else at  # all rows are equal
        return cls(em, k, rng, at, white, oddness)

    def best(self, n_starts: int, *, with_swaps: bool) -> tuple[FloatArray, str]:
        """Return the responsibilities of the best components, rows x k, and how they were found."""
        kinds = self._kinds(n_starts)
        batch = self._batch()
        kept = self._partition(self.at)
        best = -np.inf
        name = ""
        found: list[float] = []
        for first in range(0, len(kinds), batch):
            some = kinds[first : first + batch]
            shares, heights, numbers = self._compete([start() for _, start in some])
            found += heights.tolist()
            if heights[0] > best:
                kept, best, name = shares, heights[0], some[numbers[0]][0]
        if not with_swaps or self.k == 1:
            return kept, name
        n_equal = sum(height > best - 2 * _NATS for height in found)
        patience = 1 if 2 * n_equal >= len(found) else _PATIENCE
        n_gains = 0
        failed = 0
        for _ in range(_MOST_BATCHES):
            swapped = [self._swapped(kept) for _ in range(batch)]
            shares, heights, _ = self._compete(swapped)
            failed += 1
            if heights[0] > best + 2 * _NATS:
                kept, best, failed = shares, heights[0], 0
                patience = _PATIENCE
                n_gains += 1
            if failed == patience:
                break
        if n_gains:
            batches = "batch" if n_gains == 1 else "batches"
            return kept, f"{name}; {n_gains} {batches} of swaps gained"
        return kept, f"{name}; {n_equal} of the best {len(found)} starts found the same likelihood"

    def _batch(self) -> int:
        return max(1, min(_BATCH, _NUMBERS_TOGETHER // (len(self.at) * self.k)))

    def _kinds(self, n_starts: int) -> list[tuple[str, Callable[[], FloatArray]]]:
        """Return starts, each with its name; the third moment comes once, as it would find itself
        again.
        """
        kinds: list[tuple[str, Callable[[], FloatArray]]] = [
            ("k-means++", lambda: self._partition(self.at)),
            ("k-means++, whitened", lambda: self._partition(self.white)),
            ("k-means++, columns weighted at random", lambda: self._partition(self._scaled())),
            ("random directions", self._random),
        ]
        starts = [kinds[number % len(kinds)] for number in range(n_starts)]
        if can_be_spectral(self.k, self.at.shape[1]):
            starts[0] = ("third moment", self._spectral)
        return starts

    def _scaled(self) -> FloatArray:
        """Return rows whose columns have random weights. Columns that look normal count little, as
        clusters in a column move its fourth moment away from that of one Gaussian.
        """
        return np.asarray(self.at * self.rng.exponential(1.0, self.at.shape[1]) * self.oddness)

    def _partition(self, at: FloatArray) -> FloatArray:
        labels = seeded_labels(with_weights(at, self.em.weights), self.k, self.rng)
        return self._softened(labels)

    def _softened(self, labels: IndexArray) -> FloatArray:
        chosen = labels[:, None] == np.arange(self.k)
        return np.asarray((1 - _OTHERS) * chosen + _OTHERS / self.k)

    def _random(self) -> FloatArray:
        directions = self.rng.standard_normal((self.at.shape[1], self.k))
        return normalize(self.at @ directions)[0]

    def _spectral(self) -> FloatArray:
        data = with_weights(self.at, self.em.weights)
        seed = int(self.rng.integers(2**31))
        weights, means, noise = spectral_start(data, self.k, seed=seed)
        variance = max(noise, _LEAST_SHARE)
        squares = np.sum(means**2, axis=1) - 2 * self.at @ means.T
        joint = np.log(weights) - squares / (2 * variance)
        shares, _ = normalize(joint)
        return np.asarray((1 - _OTHERS) * shares + _OTHERS / self.k)

    def _swapped(self, shares: FloatArray) -> FloatArray:
        """Return responsibilities in which a component is given up, and another is cut in two by
        two of its rows.
        """
        old, cut = self.rng.choice(self.k, 2, replace=False)
        moved = shares + _LEAST_SHARE
        moved[:, old] = 0.0
        moved /= moved.sum(axis=1, keepdims=True)
        at = self._scaled()
        chances = moved[:, cut] * self.em.weights
        chances /= chances.sum()
        one, two = at[self.rng.choice(len(at), 2, p=chances)]
        nearer = np.sum((at - one) ** 2, axis=1) < np.sum((at - two) ** 2, axis=1)
        moved[:, old] = np.where(nearer, _NEARER, 1 - _NEARER) * moved[:, cut]
        moved[:, cut] -= moved[:, old]
        return np.asarray(moved)

    def _compete(self, starts: list[FloatArray]) -> tuple[FloatArray, FloatArray, IndexArray]:
        """Return the best of some starts, the heights of those that are not dropped, and their
        places; the best comes first.
        """
        shares, heights, _, _ = self.em.run(np.stack(starts, axis=1), _FIRST_ROUNDS, _NATS)
        kept = np.argsort(-heights, kind="stable")[: (len(starts) + 1) // 2]
        shares, heights, _, _ = self.em.run(shares[:, kept], _MOST_ROUNDS, _NATS)
        order = np.argsort(-heights, kind="stable")
        return shares[:, order[0]], heights[order], kept[order]
