"""Private fits and their plans.

A private fit is a program over a releaser: `learn_privately(holder, context, releaser)` takes
queries from a data holder, where their sensitivities are proved, and learns from what is released.
Later queries depend on earlier releases, so a list of queries would not do. The same program with a
releaser that simulates is the plan: its log is the table of releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from scipy.optimize import linear_sum_assignment

from odeco._util.arguments import check_norm_bound
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.moments import SecondMoment
from odeco.privacy.calibration import adversary_accuracy
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.norms import (
    N_COLUMN_BINS,
    columns_share,
    norms_share,
    suggested_bound,
    suggested_units,
)
from odeco.privacy.holders.protocol import NeighbourRelation
from odeco.privacy.holders.rows import CONSTANT, BoundedRows, UnboundedRows, unpacked_matrix
from odeco.privacy.report import in_plain_words
from odeco.privacy.sums import PrivateSums, Query

if TYPE_CHECKING:
    from odeco.models.engine.spec import Spec


class Releaser(Protocol):
    """Releases sums over records with noise: `odeco.privacy.sums.PrivateSums`, or `SimulatedSums`
    for a plan.
    """

    @property
    def guarantee(self) -> Guarantee:
        """The budget of all releases."""
        ...

    def release(self, query: Query, *, share: float) -> tuple[FloatArray, float]:
        """Return a sum with noise, and the deviation of the noise; the ledger is charged before it
        is computed.
        """
        ...


def guarantee_of(spec: Spec) -> Guarantee | None:
    """Return the guarantee of a private model, or None; raise if something is missing that privacy
    needs.

    This is the only place where it is decided whether a fit is private.
    """
    settings, needed = spec.settings, (*spec.Guarantee.parameters, *spec.private_needs)
    missing = [name for name in needed if getattr(settings, name, None) is None]
    listed = " and ".join(
        filter(None, [", ".join(f"`{name}`" for name in needed[:-1]), f"`{needed[-1]}`"])
    )
    if len(missing) == len(needed):
        for name in ("ledger", "delta"):
            if getattr(settings, name, None) is not None:
                raise ValueError(
                    f"`{name}` is for private models. Got one without `epsilon`. Pass {listed}, "
                    "or leave it out."
                )
        return None
    if missing:
        raise ValueError(
            f"A private model needs {listed}. Got no `{missing[0]}`. Pass all of them, or none "
            "for a model without privacy."
        )
    if isinstance(settings.n_components, str):
        raise ValueError(
            f"`n_components` must be an int for a private model. Got {settings.n_components!r}. "
            "Choose it on public data, or take more components than you expect: those that are "
            "not there get little weight."
        )
    spec.check_private()
    return spec.Guarantee(settings.epsilon, settings.delta or 0.0, settings.ledger)


def check_private_units(standardize: Any, norm_bound: Any) -> None:
    """Require that a private model which standardises rows chooses its bound itself."""
    if standardize is True and norm_bound != "auto":
        raise ValueError(
            "A private model that standardises rows must choose its bound itself: that of "
            f"standardised rows is not known before. Got norm_bound={norm_bound!r}. Pass 'auto'; "
            "or divide the columns by public numbers, and leave `standardize` out."
        )


def hold_simulated(
    rows: FloatArray, norm_bound: float | Literal["auto"] | None
) -> BoundedRows | UnboundedRows:
    """Return the holder of simulated rows, with a bound that one in a hundred exceeds, or with one
    to be chosen.
    """
    if norm_bound == "auto":
        return UnboundedRows(rows)
    if norm_bound is not None:
        check_norm_bound(norm_bound)
    return BoundedRows(rows, float(np.quantile(np.linalg.norm(rows, axis=1), 0.99)))


def in_units(
    held: BoundedRows | UnboundedRows,
    releaser: Releaser,
    shares: tuple[float, ...],
    standardize: bool,
) -> tuple[BoundedRows, FloatArray, FloatArray, tuple[float, ...]]:
    """Return rows with a bound on their norm, what was subtracted from columns and what they were
    divided by.

    The last is the shares of μ² that the choice of all this leaves. Rows with a known bound are
    taken as they are, and so are others unless they are to be standardised.
    """
    if standardize and isinstance(held, UnboundedRows):
        return _standardized(held, releaser, shares)
    bounded, left = _within_bound(held, releaser, shares)
    return bounded, np.zeros(held.n_features), np.ones(held.n_features), left


def _within_bound(
    held: BoundedRows | UnboundedRows, releaser: Releaser, shares: tuple[float, ...]
) -> tuple[BoundedRows, tuple[float, ...]]:
    """Return rows with a bound on their norm, and the shares of μ² that the choice of it leaves.

    Of a bound that is not known, noisy counts of rows by their norm are released. It is chosen for
    the second moment, which has the first of the shares.
    """
    if isinstance(held, BoundedRows):
        return held, shares
    n, of_norms = held.n_records, norms_share(held.n_records, releaser.guarantee.mu)
    left = tuple((1 - of_norms) * share for share in shares)
    counts, deviation = releaser.release(held.query(), share=of_norms)
    # The largest eigenvalue of the noise in the second moment, for a bound of 1; both releases are
    # sums of numbers that are not negative, so that the noise of one follows from that of the
    # other.
    noise = deviation * math.sqrt(2 * held.n_features * of_norms / left[0]) * (1 + CONSTANT**2) / n
    return held.within(suggested_bound(counts, deviation, n, 2, noise)), left


def _standardized(
    held: UnboundedRows, releaser: Releaser, shares: tuple[float, ...]
) -> tuple[BoundedRows, FloatArray, FloatArray, tuple[float, ...]]:
    """Return standardised rows, the centre and scale of each column, and the shares of μ² that
    their choice leaves.

    Noisy counts of numbers by column are released, and give centres and standard deviations.
    Standardised Gaussian rows have a squared norm of d on average, with a standard deviation of
    √(2d): rows three of these above are clipped.
    """
    n, d = held.n_records, held.n_features
    of_columns = columns_share(n, d, releaser.guarantee.mu)
    counts, deviation = releaser.release(held.column_counts(), share=of_columns)
    centre, scale = suggested_units(counts.reshape(d, N_COLUMN_BINS), deviation)
    bounded = held.standardized(centre, scale, math.sqrt(d + 3 * math.sqrt(2 * d)))
    return bounded, centre, scale, tuple((1 - of_columns) * share for share in shares)


def moment_of_seconds(packed: FloatArray, n_rows: int, n_features: int) -> SecondMoment:
    """Return the mean and covariance that the released `BoundedRows.seconds` of `n_rows` rows
    give.
    """
    matrix = unpacked_matrix(packed, n_features + 1) / n_rows
    mean = matrix[:-1, -1] / CONSTANT
    return SecondMoment(mean, matrix[:-1, :-1] - np.outer(mean, mean))


@dataclass(frozen=True)
class PlannedRelease:
    """A release of a plan: what, which share of μ², and the standard deviation of its noise."""

    what: str
    share: float
    noise: float


class SimulatedSums:
    """Releases sums over simulated records, with the noise that the sums over the real records
    would get.

    Parameters
    ----------
    guarantee : Guarantee
        The budget.
    n_records, n_simulated : int
        Number of real records, and of simulated ones. Models divide sums by the number of records,
        so the noise is scaled down by the ratio of both.
    record, neighbour_relation
        As for `PrivateSums`.
    rng : numpy Generator
        Draws the noise.
    """

    def __init__(
        self,
        guarantee: Guarantee,
        n_records: int,
        n_simulated: int,
        *,
        record: str,
        neighbour_relation: NeighbourRelation,
        rng: np.random.Generator,
    ) -> None:
        self._sums = PrivateSums(
            guarantee, n_records, record=record, neighbour_relation=neighbour_relation
        )
        self._shrink, self._rng = n_simulated / n_records, rng
        self.guarantee, self.log = guarantee, list[PlannedRelease]()

    def release(self, query: Query, *, share: float) -> tuple[FloatArray, float]:
        """Return a sum with noise, and the deviation of the noise."""
        self.log.append(PlannedRelease(query.what, share, self._sums.noise(query, share)))
        moved = self._sums.factor(query) * query.bound
        deviation = moved * (self._shrink / self.guarantee.mu) / math.sqrt(share)
        exact = query.answer()
        return exact + deviation * self._rng.standard_normal(exact.shape), deviation


@dataclass(frozen=True)
class PrivatePlan:
    """What a private fit would release, and what can be expected of it; ``str`` gives a table.

    Attributes
    ----------
    unit : str
        What a record is called.
    epsilon, delta, mu : float
        The budget.
    n_records, n_components : int
        The number of records, and of components.
    releases : tuple of PlannedRelease
        What is released, with which share of μ² and which noise. Where the noise of a release
        depends on the ones before it, it is that of the last simulation.
    simulated : tuple of tuples of float
        How well components are found in each simulation: a number for each component, the best
        first, or one for all. 1 is perfect.
    threshold : float
        Components count as found from this agreement on.
    records, verdict : str
        What the records are, and what can be expected, in words.
    """

    unit: str
    epsilon: float
    delta: float
    mu: float
    n_records: int
    n_components: int
    releases: tuple[PlannedRelease, ...]
    simulated: tuple[tuple[float, ...], ...]
    threshold: float
    records: str
    verdict: str

    @property
    def agreements(self) -> tuple[float, ...]:
        """How well components are found in every simulation, at least; the best first."""
        return tuple(map(min, zip(*self.simulated, strict=True)))

    @property
    def agreement(self) -> float:
        """The mean of the agreements."""
        return float(np.mean(self.agreements))

    @property
    def n_expected(self) -> int:
        """How many of the agreements reach the threshold."""
        return sum(each >= self.threshold for each in self.agreements)

    @property
    def found(self) -> bool:
        """Whether all simulated components are found."""
        return self.n_expected == len(self.agreements)

    def __str__(self) -> str:
        width = max(26, *(len(each.what) for each in self.releases)) + 2
        lines = [
            (
                f"epsilon {self.epsilon:g}, delta {self.delta:g} (mu {self.mu:.4g}); "
                f"{self.n_records:,} {self.records}"
            ),
            f"{'release':<{width}}{'share':>7}{'noise':>10}",
            *(
                f"{each.what:<{width}}{each.share:>7.0%}{each.noise:>10.4g}"
                for each in self.releases
            ),
            self.verdict,
            in_plain_words(adversary_accuracy(self.mu), self.unit),
        ]
        return "\n".join(lines)


#: Takes the generator of a simulation, and returns a releaser and the seed of a fit.
Simulated = Callable[[np.random.Generator], tuple[SimulatedSums, int]]


def plan_fit(
    program: Callable[[Simulated, np.random.Generator], FloatArray],
    guarantee: Guarantee,
    n_records: int,
    n_simulated: int,
    *,
    unit: str,
    neighbour_relation: NeighbourRelation,
    rng: np.random.Generator,
    n_components: int,
    threshold: float,
    records: str,
    verdict: str,
    n_simulations: int = 8,
) -> PrivatePlan:
    """Run a private program on simulated records several times, and return the plan that this
    gives.

    Parameters
    ----------
    program : callable
        Takes a function that makes a releaser and a seed, and a generator. It draws records, learns
        from them, and returns the agreements with the truth: a number for each component, or one
        for all.
    guarantee : Guarantee
        The budget.
    n_records, n_simulated, neighbour_relation
        As for `SimulatedSums`.
    unit, n_components, threshold, records
        As for `PrivatePlan`.
    rng : numpy Generator
        Draws the records.
    verdict : str
        What can be expected, in words, with places for ``expected`` (whether all that is simulated
        would be found), ``number`` (of components that every simulation finds) and ``mean`` (of the
        agreements that all reach).
    n_simulations : int
        Number of simulations. What is found in all of them can be expected: if it were found in
        fewer than nine runs of ten, eight simulations would show a run without it in more than half
        of the cases.
    """
    made: list[SimulatedSums] = []

    def simulated(rng: np.random.Generator) -> tuple[SimulatedSums, int]:
        seed, seed_of_noise = rng.integers(2**31, size=2).tolist()
        noise = np.random.default_rng(seed_of_noise)
        settings: Any = {"record": unit, "neighbour_relation": neighbour_relation, "rng": noise}
        made.append(SimulatedSums(guarantee, n_records, n_simulated, **settings))
        return made[-1], seed

    runs = np.sort([program(simulated, rng) for _ in range(n_simulations)], axis=1)[:, ::-1]
    return PrivatePlan(
        unit=unit,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        mu=guarantee.mu,
        n_records=n_records,
        n_components=n_components,
        releases=tuple(made[-1].log),
        simulated=tuple(map(tuple, runs.tolist())),
        threshold=threshold,
        records=records,
        verdict=verdict.format(
            expected="would be found" if runs[:, 0].min() >= threshold else "would not be found",
            number=int(np.sum(runs.min(axis=0) >= threshold)),
            mean=runs.min(axis=0).mean(),
        ),
    )


def matched_share(first: IndexArray, second: IndexArray, k: int) -> float:
    """Return the share of rows on which two assignments agree, with components matched such that it
    is largest.
    """
    table = np.zeros((k, k))
    np.add.at(table, (first, second), 1)
    return float(table[linear_sum_assignment(-table)].sum() / len(first))
