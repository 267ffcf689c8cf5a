"""A private model of sequences of symbols: from one noisy table of triples, and from nothing else.

**The release.** A sequence adds its counts of three consecutive symbols, a table of V³ numbers, divided by their
Euclidean norm. So it adds an array without negative entries, of norm 1, or of zeros if it has no three symbols; as it
does if one of its symbols is no whole number from 0 to V − 1. Its length is part of it: any two sequences, long or
short, are neighbours. `odeco.privacy.sums` has the sensitivity of such a sum, √2 if a sequence is replaced and 1
if it is blanked, and pays for the noise. All that follows works on the released table.

**What follows.** The table of a model with k states has rank k in each of its three directions. The noise is the same
in all of them, so the table is projected to its k leading directions: of V³ numbers of noise k³ are left. What is below
zero then is raised to a small number, three views give a start, and likelihood steps fit the model to the table.

A sequence counts as often as its norm says: somewhat less if it repeats itself. That is the price of a bound which
needs no number from the user.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.em import em
from odeco.models.hmm.baum_welch import HMM, HMMStatistics
from odeco.models.hmm.spec import FittedChain
from odeco.models.hmm.start import Triples, hmm_of_triples
from odeco.privacy.holders.protocol import NeighbourRelation
from odeco.privacy.ledger_file import Guarantee
from odeco.privacy.noise import NoiseSource
from odeco.privacy.report import PrivacyReport
from odeco.privacy.sums import PrivateSums

#: A private table must not have more symbols: it has as many numbers as their third power.
MOST_SYMBOLS = 100

#: What is below zero in the projected table is raised to this share of the deviation of the noise.
_RAISED_TO = 1e-3


@dataclass(frozen=True, eq=False)
class PrivateSequences:
    """Sequences of symbols that nothing may be learnt from but through noise.

    Attributes
    ----------
    rows : array
        The symbols of all sequences; numbers that are no symbols are allowed.
    lengths : array of int
        The length of each sequence, which may be 0. It is private; their number is public.
    n_symbols : int
        Number V of symbols; it is public.
    """

    rows: Any
    lengths: IndexArray
    n_symbols: int

    @property
    def n_sequences(self) -> int:
        """Number of sequences; it is public."""
        return int(self.lengths.size)

    def triples(self) -> FloatArray:
        """Return the sum of the triples of all sequences, each divided by their norm, V³ numbers."""
        v, sequence = self.n_symbols, np.repeat(np.arange(self.n_sequences), self.lengths)
        usable = (self.rows >= 0) & (self.rows < v) & (self.rows == np.floor(self.rows))
        bad = np.bincount(sequence[~usable], minlength=self.n_sequences) > 0
        symbols = np.where(usable, self.rows, 0).astype(np.int64)
        whole = (sequence[:-2] == sequence[2:]) & ~bad[sequence[2:]]
        keys = ((symbols[:-2] * v + symbols[1:-1]) * v + symbols[2:])[whole]
        cells, counts = np.unique(sequence[2:][whole] * v**3 + keys, return_counts=True)
        owners = cells // v**3
        squares = np.bincount(owners, counts.astype(np.float64) ** 2, minlength=self.n_sequences)
        return np.bincount(cells % v**3, counts / np.sqrt(squares[owners]), minlength=v**3).astype(np.float64)


def learn_privately(
    sequences: PrivateSequences,
    n_states: int,
    *,
    guarantee: Guarantee,
    neighbour_relation: NeighbourRelation,
    n_steps: int,
    tolerance: float,
    seed: int,
    noise: NoiseSource | None = None,
) -> tuple[FittedChain, PrivacyReport]:
    """Learn from one release of the triples of private sequences; return the model and what is guaranteed."""
    v = sequences.n_symbols
    sums = PrivateSums(
        guarantee, sequences.n_sequences, record="sequence", neighbour_relation=neighbour_relation, noise=noise
    )
    released, deviation = sums.release(
        f"triples of {v} symbols, {v**3} numbers", sequences.triples, size=v**3, bound=1.0, share=1.0, signed=False
    )
    table, n_clear = projected(released.reshape(v, v, v), n_states, deviation)
    hmm, _ = hmm_of_triples(Triples.of_table(table), n_states, seed=seed)
    found = em(lambda model: table_step(model, table), hmm, max_iter=n_steps, tol=tolerance)
    fitted = FittedChain.of(
        found.params.most_frequent_first(),
        n_rows=sequences.n_sequences,
        log_likelihood=found.log_likelihood / 3,
        n_steps=found.n_iter,
        converged=found.converged,
        n_clear=n_clear,
    )
    return fitted, sums.report("triples of symbols")


def projected(table: FloatArray, n_states: int, deviation: float) -> tuple[FloatArray, int]:
    """Return a noisy table in its k leading directions, above zero, and how many of these stand clear of noise.

    The unfolding of a table of noise, V x V², has no singular value above σ (√V + V), up to a few per cent. A direction
    is clear if it has more than that along each of the three axes.
    """
    v, n_clear = len(table), n_states
    found = table
    with one_blas_thread():
        for axis in range(3):
            unfolded = np.moveaxis(table, axis, 0).reshape(v, -1)
            squares, vectors = np.linalg.eigh(unfolded @ unfolded.T)
            leading = vectors[:, -n_states:]
            level = (deviation * (math.sqrt(v) + v)) ** 2
            n_clear = min(n_clear, int(np.sum(squares[-n_states:] > level)))
            found = np.moveaxis(np.tensordot(leading @ leading.T, found, axes=(1, axis)), 0, axis)
    return np.maximum(found, _RAISED_TO * deviation), n_clear


def table_step(hmm: HMM, table: FloatArray) -> tuple[HMM, float]:
    """Take a likelihood step on a table of triples, and return the mean log-likelihood of a triple before it.

    With F the first state and its symbol, the pair of the first two symbols and the second state is M = (F A) ∘ B, and
    the third symbol given the second state is C Aᵀ. All sums are matrix products of these.
    """
    v, k = len(table), hmm.n_states
    moves, emits = hmm.transitions, hmm.emissions.likelihoods(np.zeros(0, np.int64))[0]
    with one_blas_thread():
        first = emits * hmm.initial
        middle = ((first @ moves)[:, None, :] * emits[None, :, :]).reshape(v * v, k)
        onward = emits @ moves.T
        likelihoods = middle @ onward.T
        weights = table.reshape(v * v, v)
        ratios = weights / likelihoods
        later = (ratios @ onward).reshape(v, v, k)
        second = (emits[None, :, :] * later).sum(axis=1)
        reached = ratios.T @ middle
        moved = moves * (first.T @ second + reached.T @ emits)
        first_states = first * (second @ moves.T)
        middle_states = (middle.reshape(v, v, k) * later).sum(axis=0)
        third_states = emits * (reached @ moves)
    emitted = (first_states + middle_states + third_states).T
    likelihood = float(np.sum(weights * np.log(likelihoods)) / weights.sum())
    return hmm.m_step(HMMStatistics(first_states.sum(axis=0), moved, emitted, 0.0, 1)), likelihood
