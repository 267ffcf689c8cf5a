"""What a private mixture can be expected to find, said before any row is touched."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from odeco._arguments import check_count, check_number
from odeco._types import IndexArray
from odeco.latent.private_sums import NeighbourRelation, PrivateSums
from odeco.mixtures.bounded_rows import BoundedRows
from odeco.mixtures.gaussians import Gaussians
from odeco.mixtures.learn_privately import ReleasePlan, learn_privately, plan_releases
from odeco.privacy import Guarantee, SeededNoiseForTests, epsilon_of, gdp_mu

#: At most so many rows are simulated; with fewer rows than there will be, less noise gives the same picture.
_MOST_SIMULATED = 50_000
#: So many times noise is drawn, and rows; the median is told.
_DRAWS = 3
#: A mixture is called found if so many of its rows are assigned as the truth would assign them.
FOUND = 0.95


@dataclass(frozen=True)
class MixturePlan:
    """What a private `TensorMixture` would release, and what can be expected of it; ``str`` gives a table.

    Attributes
    ----------
    epsilon, delta, mu : float
        The budget.
    n_rows, n_features, n_components : int
        What it was made for.
    separation : float
        The distance between means of simulated components, in standard deviations.
    releases : ReleasePlan
        What is released, with which share of μ².
    noise : tuple of float
        Standard deviation of the noise of the second moment and of the likelihood step; rows are divided by their
        bound. That of the third moment follows from what the second says.
    agreement : float
        The share of simulated rows that the private mixture assigns to the component that the true mixture does.
    """

    unit: ClassVar[str] = "row"

    epsilon: float
    delta: float
    mu: float
    n_rows: int
    n_features: int
    n_components: int
    separation: float
    releases: ReleasePlan
    noise: tuple[float, float]
    agreement: float

    @property
    def found(self) -> bool:
        """Whether a mixture of this kind can be expected to be found."""
        return self.agreement >= FOUND

    def __str__(self) -> str:
        plan = self.releases
        rows = [
            ("second moment", plan.seconds, f"{self.noise[0]:.4g}"),
            ("third moment, whitened", plan.thirds, "follows"),
            ("rows dealt to components", plan.step, f"{self.noise[1]:.4g}"),
        ]
        lines = [
            f"epsilon {self.epsilon:g}, delta {self.delta:g} (mu {self.mu:.4g}); {self.n_rows:,} rows of "
            f"{self.n_features:,} features, divided by the bound of their norm",
            f"{'release':<28}{'share':>7}{'noise':>10}",
        ]
        lines += [f"{what:<28}{share:>7.0%}{noise:>10}" for what, share, noise in rows if share > 0]
        verdict = "would be found" if self.found else "would not be found"
        lines.append(
            f"{self.n_components} simulated spheres, {self.separation:g} deviations apart, {verdict}: "
            f"{self.agreement:.0%} of rows assigned as the truth assigns them"
        )
        return "\n".join(lines)


def plan_mixture(
    n_components: int,
    *,
    n_rows: int,
    n_features: int,
    epsilon: float,
    delta: float,
    separation: float = 6.0,
    neighbour_relation: NeighbourRelation = "replace",
    seed: int = 0,
) -> MixturePlan:
    """Say what a private mixture would release, and simulate how well it would be found; no row is needed.

    Parameters
    ----------
    n_components : int
        Number of components, at most one more than features.
    n_rows, n_features : int
        Number of rows and of features.
    epsilon, delta : float
        The guarantee.
    separation : float
        The distance between means, in standard deviations, on average.
    neighbour_relation : {"replace", "add or remove"}
        As for `TensorMixture`.
    seed : int
        Of the simulation.

    Notes
    -----
    Simulated are spheres of equal weight with means in random directions, and a bound that one row in a hundred
    exceeds. A bound that is looser by some factor costs as if there were fewer rows by its square. Components of real
    rows may be harder to find, or easier.

    Examples
    --------
    >>> from odeco.models import plan_mixture
    >>> plan_mixture(3, n_rows=20_000, n_features=5, epsilon=1.0, delta=1e-6, separation=8.0).found
    True
    """
    d = check_count("n_features", n_features)
    k, n = check_count("n_components", n_components, 1, d + 1), check_count("n_rows", n_rows, 2)
    separation = check_number("separation", separation, 0, math.inf)
    mu, releases = gdp_mu(epsilon, delta), plan_releases(k)
    sums = PrivateSums(Guarantee(epsilon, delta), n, record="row", neighbour_relation=neighbour_relation)
    size = min(n, _MOST_SIMULATED)
    # Noise is divided by the number of rows, so with fewer rows the same share of noise needs a larger budget.
    simulated = Guarantee(epsilon_of(mu * n / size, delta), delta)
    rng = np.random.default_rng(seed)
    agreements = [_agreement(k, d, size, separation, simulated, neighbour_relation, rng) for _ in range(_DRAWS)]
    held, nowhere = BoundedRows(np.zeros((1, d)), 1.0), Gaussians(np.full(k, 1 / k), np.zeros((k, d)), np.ones(k))
    asked = ((held.seconds(), releases.seconds), (held.shares(nowhere, np.zeros(d), 1.0), releases.step))
    noise = [
        sums.sensitivity(each.bound, each.size, signed=each.signed) / (mu * math.sqrt(share)) if share else 0.0
        for each, share in asked
    ]
    return MixturePlan(
        epsilon,
        delta,
        mu,
        n,
        d,
        k,
        separation,
        releases,
        (noise[0], noise[1]),
        float(np.median(agreements)),
    )


def _agreement(
    k: int,
    d: int,
    n: int,
    separation: float,
    guarantee: Guarantee,
    relation: NeighbourRelation,
    rng: np.random.Generator,
) -> float:
    """Return how many rows of a simulated mixture are assigned as the truth does, by what is learnt of it privately."""
    means = separation / math.sqrt(2 * d) * rng.standard_normal((k, d))
    truth = Gaussians(np.full(k, 1 / k), means, np.ones(k))
    rows, _ = truth.draw(n, rng)
    bound = float(np.quantile(np.linalg.norm(rows, axis=1), 0.99))
    learnt, _ = learn_privately(
        BoundedRows(rows, bound),
        k,
        norm_bound=bound,
        regularity=1e-6,
        guarantee=guarantee,
        neighbour_relation=relation,
        seed=int(rng.integers(2**31)),
        noise=SeededNoiseForTests(int(rng.integers(2**31))),
    )
    own, found = truth.about(rows)[0].argmax(axis=1), learnt.model.about(rows)[0].argmax(axis=1)
    return _matched(own, found, k)


def _matched(first: IndexArray, second: IndexArray, k: int) -> float:
    """Return the share of rows on which two assignments agree, with components matched such that it is largest."""
    table = np.zeros((k, k))
    np.add.at(table, (first, second), 1)
    return float(table[linear_sum_assignment(-table)].sum() / len(first))
