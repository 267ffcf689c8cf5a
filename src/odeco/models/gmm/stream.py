"""A mixture is learnt in one pass: it starts from the first rows, and each block after them takes one step.

Sums over blocks fade: the sum for rows a fraction f of the way back to the first counts 1 − f times. So steps that were
taken with worse Gaussians are forgotten, and three quarters of the rows still count (Cappé and Moulines 2009 for the
idea, with a faster rate that the good start allows).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from odeco._util.schema import Rule, array, require
from odeco._util.types import FloatArray
from odeco.models.engine.selection import ChosenNumber
from odeco.models.engine.state import RowStream
from odeco.models.gmm.gaussians import (
    BLOCK,
    COVARIANCE_TYPES,
    CovarianceType,
    Gaussians,
    Sums,
    next_gaussians,
    sums_of,
    sums_of_block,
)
from odeco.models.gmm.spec import (
    FittedMixture,
    LearningPlan,
    Learnt,
    choose_n_components,
    covariances_rule,
    largest_first,
    learn,
    means_rule,
    weights_rule,
)

#: The first block, from which the mixture starts, has so many rows.
FIRST_ROWS = 20_000


def _any_seconds(value: object, where: str, sizes: dict[str, int]) -> None:
    n_axes = value.ndim if isinstance(value, np.ndarray) else 1
    array(*("stream k", "n_features", "n_features")[: max(1, min(n_axes, 3))])(value, where, sizes)


@dataclass(eq=False)
class MixtureStream(RowStream):
    """Where a mixture that learns in one pass stands.

    Attributes
    ----------
    n_wanted : int
        Number of components; 0 if the first block is to say it.
    n_steps, tolerance, regularity, n_starts
        How the first block is learnt from.
    seed : int
        Seed of its starts.
    weights, means, covariances : array
        The mixture so far; without components until the first block is complete.
    counts, firsts, seconds : array
        Faded sums over rows, of which the counts still sum to the number of rows, seen from `origin`.
    origin : array
        A place among the rows.
    floor : float
        What is added to variances.
    n_absorbed : int
        Number of rows in complete blocks.
    log_likelihood : float
        The faded sum of log-likelihoods of rows, each before it was learnt from.
    start : str
        Which start was the best.
    tried, tried_scores : array
        As of `FittedMixture`.
    """

    RULES: ClassVar[Mapping[str, Rule]] = {
        "held": array(None, "n_features"),
        "n_rows": array(kind="i", low=0),
        "n_wanted": array(kind="i", low=0),
        "n_steps": array(kind="i", low=1),
        "tolerance": array(low=0),
        "regularity": array(low=0),
        "n_starts": array(kind="i", low=0, high=1000),
        "seed": array(kind="i", low=0),
        "weights": weights_rule("stream k", none=True),
        "means": means_rule("stream k", "n_features"),
        "covariances": covariances_rule("stream k", "n_features"),
        "counts": array("stream k", low=0),
        "firsts": means_rule("stream k", "n_features"),
        "seconds": _any_seconds,
        "origin": means_rule("n_features"),
        "floor": array(low=0),
        "n_absorbed": array(kind="i", low=0),
        "log_likelihood": array(),
        "start": array(kind="U"),
        "tried": array("stream tried", kind="i", low=1),
        "tried_scores": array("stream tried"),
    }

    n_wanted: int
    n_steps: int
    tolerance: float
    regularity: float
    n_starts: int
    seed: int
    weights: FloatArray
    means: FloatArray
    covariances: FloatArray
    counts: FloatArray
    firsts: FloatArray
    seconds: FloatArray
    origin: FloatArray
    floor: float
    n_absorbed: int
    log_likelihood: float
    start: str
    tried: FloatArray
    tried_scores: FloatArray

    @classmethod
    def begin(cls, n_wanted: int, n_features: int, plan: LearningPlan, seed: int) -> MixtureStream:
        """Return a stream that has seen no row."""
        d = n_features
        shape = (0, d, d)[: COVARIANCE_TYPES.index(plan.kind) + 1]
        return cls(
            held=np.zeros((0, d)),
            n_rows=0,
            n_wanted=n_wanted,
            n_steps=plan.n_steps,
            tolerance=plan.tolerance,
            regularity=plan.regularity,
            n_starts=plan.n_starts,
            seed=seed,
            weights=np.zeros(0),
            means=np.zeros((0, d)),
            covariances=np.zeros(shape),
            counts=np.zeros(0),
            firsts=np.zeros((0, d)),
            seconds=np.zeros(shape),
            origin=np.zeros(d),
            floor=0.0,
            n_absorbed=0,
            log_likelihood=0.0,
            start="",
            tried=np.zeros(0, dtype=np.int64),
            tried_scores=np.zeros(0),
        )

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, Any]) -> Self:
        """Return what `to_arrays` wrote, from arrays that obey the rules; raise if they contradict each other."""
        stream = super().from_arrays(prefix, arrays)
        begun = stream.n_absorbed > 0
        require(begun == (stream.weights.size > 0), "its stream must have components if it has begun, and none before")
        require(stream.covariances.ndim == stream.seconds.ndim, "its sums must be of the kind of its covariances")
        require(not begun or (stream.floor > 0 and stream.counts.sum() > 0), "its sums must stand for rows")
        require(len(stream.held) < stream.next_size, "fewer rows than a block may wait")
        require(stream.n_rows == stream.n_absorbed + len(stream.held), "its rows must be in blocks, or wait")
        return stream

    @property
    def next_size(self) -> int:
        """The number of rows of the next block."""
        return BLOCK if self.n_absorbed else FIRST_ROWS

    def absorb(self, block: FloatArray) -> None:
        """Start from the first block, and take a likelihood step with each that follows."""
        if self.n_absorbed:
            model = Gaussians(self.weights, self.means, self.covariances)
            before = Sums(self.counts, self.firsts, self.seconds, self.log_likelihood)
            total = _faded(before.seen_from(model.origin - self.origin), sums_of_block(model, block), len(block))
        else:
            learnt, chosen = learn_first(self, block)
            model = learnt.model
            total = sums_of(model, block)
            self.origin, self.floor, self.start = model.origin, learnt.floor, learnt.start
            self.tried = np.array(list(chosen.tried if chosen else ()), dtype=np.int64)
            self.tried_scores = np.array(list(chosen.tried.values() if chosen else ()), dtype=np.float64)
        after, kept = next_gaussians(model, total, self.floor), total.seen_from(self.origin - model.origin)
        self.weights, self.means, self.covariances = after.weights, after.means, after.covariances
        self.counts, self.firsts, self.seconds = kept.counts, kept.firsts, kept.seconds
        self.log_likelihood = kept.log_likelihood
        self.n_absorbed += len(block)

    def fitted(self) -> FittedMixture:
        """Return what all rows say, those that wait for their block to be complete included."""
        after = replace(self)
        if len(self.held) or not self.n_absorbed:
            after.absorb(self.held)
        learnt = Learnt(
            largest_first(Gaussians(after.weights, after.means, after.covariances)),
            after.log_likelihood / after.counts.sum(),
            max(1, -(-(self.n_rows - FIRST_ROWS) // BLOCK)),
            True,
            after.start,
            after.floor,
        )
        chosen = dict(zip(after.tried.tolist(), after.tried_scores.tolist(), strict=True))
        return FittedMixture.of(learnt, self.n_rows, ChosenNumber(len(after.weights), chosen, clear=True))


def learn_first(stream: MixtureStream, block: FloatArray) -> tuple[Learnt, ChosenNumber | None]:
    """Learn a mixture from the first rows of a stream."""
    kinds: tuple[CovarianceType, ...] = ("spherical", "diag", "full")
    plan = LearningPlan(
        kind=kinds[stream.covariances.ndim - 1],
        n_steps=stream.n_steps,
        tolerance=stream.tolerance,
        regularity=stream.regularity,
        n_starts=stream.n_starts,
    )
    chosen = None if stream.n_wanted else choose_n_components(block, plan, seed=stream.seed)
    n_components = stream.n_wanted if chosen is None else chosen.n_components
    return learn(block, n_components, plan, seed=stream.seed), chosen


def _faded(before: Sums, new: Sums, n_new: int) -> Sums:
    """Return sums that stand for n rows and the sums of a block of b, which count b/(n + 2b) times too much."""
    n_before = float(before.counts.sum())
    rate = 2 * n_new / (n_before + 2 * n_new)
    return before.times((1 - rate) * (n_before + n_new) / n_before).plus(new.times(rate * (n_before + n_new) / n_new))
