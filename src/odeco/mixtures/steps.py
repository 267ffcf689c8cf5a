"""Likelihood steps: what rows say about the Gaussians so far, added up, gives the next ones (Dempster et al. 1977)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odeco._threads import map_blocks
from odeco._types import FloatArray
from odeco.mixtures.gaussians import Gaussians, blocks_of, normalised, squared_norms

#: A component keeps its place if it has less than this share of a row: there is nothing to learn about it.
_LEAST_ROWS = 1e-6


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over rows x, with the probability r_h of each component h for each row, seen from an origin.

    Attributes
    ----------
    counts : array, k
        Σ r_h.
    firsts : array, k x d
        Σ r_h x.
    seconds : array
        Σ r_h |x|² (k), Σ r_h x² for each feature (k x d) or Σ r_h x xᵀ (k x d x d), as the covariances are.
    log_likelihood : float
        The sum of the log-densities of the rows.
    """

    counts: FloatArray
    firsts: FloatArray
    seconds: FloatArray
    log_likelihood: float

    def plus(self, other: Sums) -> Sums:
        """Return these sums and the other ones, added up."""
        return Sums(
            self.counts + other.counts,
            self.firsts + other.firsts,
            self.seconds + other.seconds,
            self.log_likelihood + other.log_likelihood,
        )

    def times(self, factor: float) -> Sums:
        """Return these sums, multiplied by a factor."""
        return Sums(factor * self.counts, factor * self.firsts, factor * self.seconds, factor * self.log_likelihood)

    def seen_from(self, shift: FloatArray) -> Sums:
        """Return the same sums with the origin moved by `shift`."""
        counts, firsts = self.counts, self.firsts - self.counts[:, None] * shift
        if self.seconds.ndim == 1:
            seconds = self.seconds - 2 * self.firsts @ shift + counts * (shift @ shift)
        elif self.seconds.ndim == 2:
            seconds = self.seconds - 2 * self.firsts * shift + counts[:, None] * shift**2
        else:
            cross = self.firsts[:, :, None] * shift
            seconds = self.seconds - cross - cross.transpose(0, 2, 1) + counts[:, None, None] * np.outer(shift, shift)
        return Sums(counts, firsts, seconds, self.log_likelihood)


def sums_of_block(model: Gaussians, block: FloatArray) -> Sums:
    """Return what a block of rows says about the Gaussians, seen from their origin."""
    centred = block - model.origin
    squares = squared_norms(centred)
    shares, log_densities = normalised(model.log_joint(centred, squares))
    if model.covariances.ndim == 1:
        seconds: FloatArray = squares @ shares
    elif model.covariances.ndim == 2:
        seconds = shares.T @ (centred * centred)
    else:
        seconds = np.stack([(centred * share[:, None]).T @ centred for share in shares.T])
    return Sums(shares.sum(axis=0), shares.T @ centred, seconds, float(log_densities.sum()))


def sums_of(model: Gaussians, rows: FloatArray, *, parallel: bool = False) -> Sums:
    """Return what rows say about the Gaussians; blocks are added up in their order, whoever worked on them."""
    total: Sums | None = None
    for part in map_blocks(lambda block: sums_of_block(model, block), blocks_of(rows), parallel=parallel):
        total = part if total is None else total.plus(part)
    if total is None:
        raise ValueError("There must be rows to learn from. Got none.")
    return total


def next_gaussians(model: Gaussians, sums: Sums, floor: float) -> Gaussians:
    """Return the Gaussians that are likeliest given sums seen from the origin of the ones before.

    `floor` is added to every variance, so that no component shrinks to a point.
    """
    counts, d = sums.counts, model.means.shape[1]
    learnt = counts > _LEAST_ROWS
    totals = np.where(learnt, counts, 1.0)
    offsets = sums.firsts / totals[:, None]
    if model.covariances.ndim == 1:
        covariances = np.maximum(sums.seconds / totals - np.sum(offsets**2, axis=1), 0.0) / d + floor
    elif model.covariances.ndim == 2:
        covariances = np.maximum(sums.seconds / totals[:, None] - offsets**2, 0.0) + floor
    else:
        covariances = sums.seconds / totals[:, None, None] - offsets[:, :, None] * offsets[:, None, :]
        covariances = (covariances + covariances.transpose(0, 2, 1)) / 2 + floor * np.eye(d)
    kept = learnt.reshape(-1, *(1,) * (covariances.ndim - 1))
    return Gaussians(
        counts / counts.sum(),
        np.where(learnt[:, None], model.origin + offsets, model.means),
        np.where(kept, covariances, model.covariances),
    )


def step(model: Gaussians, rows: FloatArray, floor: float, *, parallel: bool = False) -> tuple[Gaussians, float]:
    """Take one likelihood step over rows; return the next Gaussians, and the mean log-likelihood of those before."""
    sums = sums_of(model, rows, parallel=parallel)
    return next_gaussians(model, sums, floor), sums.log_likelihood / len(rows)
