"""A private hidden Markov model of symbols: learnt from one noisy table of triples, and from
nothing else.

`odeco.privacy.holders.sequences` has the table and its sensitivity. All that follows is
post-processing of the released table. The table of a model with k states has multilinear rank k,
and the noise is isotropic, so the table is projected to its k leading directions: of V³ noisy
numbers k³ are left. Negative entries are then raised to a small number, three views give a start,
and EM fits the model to the table. The same program on simulated sequences is the plan.
"""

from __future__ import annotations

import math

import numpy as np

from odeco._util.arguments import check_count
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.models.engine.em import EMResult, em
from odeco.models.engine.private import PrivatePlan, Releaser, Simulated, matched_share, plan_fit
from odeco.models.hmm.baum_welch import HMM, HMMStatistics
from odeco.models.hmm.emissions import Categorical
from odeco.models.hmm.start import Triples, hmm_of_triples
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.protocol import NeighbourRelation
from odeco.privacy.holders.sequences import PrivateSequences

#: The largest number of symbols: the table has its third power of numbers.
MAX_PRIVATE_SYMBOLS = 100

#: Entries of the projected table are at least this share of the standard deviation of the noise.
_MIN_ENTRY = 1e-3


def find_private_hmm(
    held: PrivateSequences,
    releaser: Releaser,
    n_states: int,
    *,
    max_iter: int,
    tol: float,
    seed: int,
) -> tuple[EMResult[HMM], int]:
    """Return a model that is learnt from noisy triples, and the number of directions that stand
    clear of noise.

    Parameters
    ----------
    held : PrivateSequences
        The holder of the sequences.
    releaser : Releaser
        Releases sums with noise.
    n_states : int
        Number k of states, at most the number of symbols.
    max_iter, tol
        The largest number of EM iterations, and the gain in the log-likelihood of a triple at which
        they end.
    seed : int
        Seed of the decomposition; the noise does not depend on it.
    """
    v = held.n_symbols
    released, deviation = releaser.release(held.query(), share=1.0)
    table, n_clear = project_table(released.reshape(v, v, v), n_states, deviation)
    start, _ = hmm_of_triples(Triples.of_table(table), n_states, seed=seed)
    return em(lambda hmm: table_em_step(hmm, table), start, max_iter=max_iter, tol=tol), n_clear


def project_table(table: FloatArray, n_states: int, deviation: float) -> tuple[FloatArray, int]:
    """Return a noisy table projected to its k leading directions, above zero, and how many stand
    clear of noise.

    The unfolding of a table of noise, V x V², has no singular value above σ (√V + V), up to a few
    per cent. A direction stands clear if its singular value is larger along each of the three axes.
    """
    v, n_clear, projected = len(table), n_states, table
    threshold = (deviation * (math.sqrt(v) + v)) ** 2
    with one_blas_thread():
        for axis in range(3):
            unfolded = np.moveaxis(table, axis, 0).reshape(v, -1)
            squares, vectors = np.linalg.eigh(unfolded @ unfolded.T)
            leading = vectors[:, -n_states:]
            n_clear = min(n_clear, int(np.sum(squares[-n_states:] > threshold)))
            projected = np.moveaxis(
                np.tensordot(leading @ leading.T, projected, axes=(1, axis)), 0, axis
            )
    return np.maximum(projected, _MIN_ENTRY * deviation), n_clear


def table_em_step(hmm: HMM, table: FloatArray) -> tuple[HMM, float]:
    """Return the model after an EM iteration on a table of triples, and the mean log-likelihood of
    a triple before it.

    With F the joint probability of the first state and its symbol, that of the first two symbols
    and the second state is M = (F A) ∘ B, and the third symbol given the second state is C Aᵀ. All
    sums are matrix products of these.
    """
    v, k = len(table), hmm.n_states
    transitions, emissions = (
        hmm.transitions,
        hmm.emissions.likelihoods(np.zeros(0, np.int64))[0][:v],
    )
    with one_blas_thread():
        first = emissions * hmm.initial
        middle = ((first @ transitions)[:, None, :] * emissions[None, :, :]).reshape(v * v, k)
        third = emissions @ transitions.T
        likelihoods = middle @ third.T
        weights = table.reshape(v * v, v)
        ratios = weights / likelihoods
        after = (ratios @ third).reshape(v, v, k)
        second = (emissions[None, :, :] * after).sum(axis=1)
        reached = ratios.T @ middle
        counts = transitions * (first.T @ second + reached.T @ emissions)
        first_states = first * (second @ transitions.T)
        middle_states = (middle.reshape(v, v, k) * after).sum(axis=0)
        third_states = emissions * (reached @ transitions)
    emitted = (first_states + middle_states + third_states).T
    likelihood = float(np.sum(weights * np.log(likelihoods)) / weights.sum())
    statistics = HMMStatistics(1.0, 0.0, first_states.sum(axis=0), counts, emitted)
    return hmm.m_step(statistics), likelihood


#: At most this number of rows is simulated. The noise is scaled down to the number of simulated
#: sequences.
_MAX_SIMULATED = 200_000

#: A model counts as found if this share of rows is assigned to the same state as by the true model.
_FOUND = 0.9


def plan_hmm(
    n_components: int,
    *,
    n_sequences: int,
    length: int,
    n_symbols: int,
    epsilon: float,
    delta: float,
    neighbour_relation: NeighbourRelation = "replace",
    seed: int = 0,
) -> PrivatePlan:
    """Say what a private hidden Markov model would release, and simulate how well it would be
    found.

    Parameters
    ----------
    n_components : int
        Number of states, at most the number of symbols.
    n_sequences, length : int
        Number of sequences, and their usual length: a public guess.
    n_symbols : int
        Number of symbols, at most 100.
    epsilon, delta : float
        The guarantee.
    neighbour_relation : {"replace", "add_remove"}
        As for `TensorHMM`.
    seed : int
        Seed of the simulation.

    Notes
    -----
    The simulated model stays in its state half of the time. Half of the time a state emits one of
    its own symbols, of which all states have as many, else one of few likely ones (a Dirichlet
    distribution with concentration 0.3). States of real sequences may be harder to find, or easier.

    Examples
    --------
    >>> from odeco.models import plan_hmm
    >>> plan_hmm(2, n_sequences=20_000, length=30, n_symbols=6, epsilon=1.0, delta=1e-6).found
    True
    """
    v = check_count("n_symbols", n_symbols, 1, MAX_PRIVATE_SYMBOLS)
    k, n = (
        check_count("n_components", n_components, 1, v),
        check_count("n_sequences", n_sequences, 2),
    )
    length, guarantee = check_count("length", length, 3), Guarantee(epsilon, delta)
    size = max(1, min(n, _MAX_SIMULATED // length))

    def program(simulated: Simulated, rng: np.random.Generator) -> FloatArray:
        transitions = 0.5 * np.eye(k) + 0.5 * rng.dirichlet(np.ones(k), k)
        own = np.arange(v) % k == np.arange(k)[:, None]
        emissions = own / own.sum(axis=1, keepdims=True) + np.maximum(
            rng.dirichlet(np.full(v, 0.3), k), 1e-9
        )
        truth = HMM(
            np.full(k, 1 / k),
            transitions,
            Categorical(emissions / emissions.sum(axis=1, keepdims=True)),
        )
        rows, _ = truth.sample(size * length, rng)  # one long sequence, cut into pieces
        begins = np.arange(rows.size) % length == 0
        releaser, seed = simulated(rng)
        held = PrivateSequences(rows, np.full(size, length), v)
        found = find_private_hmm(held, releaser, k, max_iter=100, tol=1e-6, seed=seed)[0].params
        own, other = (hmm.posterior(rows, begins).argmax(axis=1) for hmm in (truth, found))
        return np.array([matched_share(own, other, k)])

    return plan_fit(
        program,
        guarantee,
        n,
        size,
        unit="sequence",
        neighbour_relation=neighbour_relation,
        rng=np.random.default_rng(seed),
        n_components=k,
        threshold=_FOUND,
        records=f"sequences of about {length:,} of {v:,} symbols",
        verdict=f"{k} simulated states, each of which lasts for two symbols, {{expected}}: "
        f"{{mean:.0%}} of symbols "
        "assigned to the same state as by the true model",
    )
