"""A seventh model: a mixture of products of Poisson distributions. All but its mathematics comes
from the engine.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp

from odeco._util.state import State, array_field
from odeco.models.engine.description import (
    ComponentRow,
    Description,
    HeatMap,
    component_names,
    most_characteristic,
)
from odeco.models.engine.estimator import EMEstimator
from odeco.models.engine.fit import Statistics, fitted
from odeco.models.engine.rows import mean_of, split, weigh
from odeco.models.engine.spec import EMSpec


@dataclass(frozen=True, eq=False)
class Rates(State):
    weights: Any = array_field("k", low=0, high=1)
    rates: Any = array_field("k", "n_features", low=0)


@dataclass(frozen=True, eq=False)
class Counts(Statistics):
    counts: Any = array_field("k", low=0)
    totals: Any = array_field("k", "n_features", low=0)


class PoissonSpec(EMSpec):
    Params: ClassVar = Rates
    Statistics: ClassVar = Counts
    first_block, next_block = 400, 100

    def starts(self, data, trial, context, k, rng, seed):
        chosen, mean = (
            [split(trial)[0][rng.integers(len(trial), size=k)] for _ in range(8)],
            mean_of(trial),
        )
        return [
            ("random rows", Rates(np.full(k, 1 / k), 0.7 * rows + 0.3 * mean + 1e-3))
            for rows in chosen
        ]

    def posterior(self, params, block, context):
        joint = block @ np.log(params.rates).T - params.rates.sum(axis=1) + np.log(params.weights)
        likelihoods = logsumexp(joint, axis=1)
        return np.exp(joint - likelihoods[:, None]), likelihoods - gammaln(block + 1).sum(axis=1)

    def e_step(self, params, block, weights, context):
        n, log_likelihood, shares = weigh(*self.posterior(params, block, context), weights)
        return Counts(n, log_likelihood, shares.sum(axis=0), shares.T @ block)

    def m_step(self, statistics, params, context):
        weights = np.maximum(statistics.counts, 1e-9)
        return Rates(
            weights / weights.sum(), np.maximum(statistics.totals / weights[:, None], 1e-9)
        )

    def describe(self, fit, names, privacy, rows=None):
        weights, rates = fit.params.weights, fit.params.rates
        heights = np.log(rates / (weights @ rates))
        components = [
            ComponentRow(float(weight), ", ".join(f"{names[j]} {rate[j]:.3g}" for j in columns))
            for weight, rate, columns in zip(
                weights, rates, most_characteristic(heights), strict=True
            )
        ]
        panel = HeatMap(heights, component_names(weights), names, "log of the ratio to the mean")
        return Description(f"{len(weights)} components of counts.", (), tuple(components), (panel,))


@dataclass(eq=False, repr=False)
class PoissonMixture(EMEstimator):
    """A mixture of independent Poisson counts."""

    _SPEC: ClassVar = PoissonSpec
    _KIND: ClassVar = "Poisson mixture"

    weights_ = fitted("params.weights", "The probability of each component.")
    rates_ = fitted("params.rates", "The rates of each component.")
