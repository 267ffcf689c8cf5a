"""A mixture of products of probabilities, fitted to noisy tables by weighted least squares.

Everything here is post-processing of what was released.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from odeco._util.state import State, array_field
from odeco._util.types import FloatArray, IndexArray
from odeco.models.synthetic.tables import PairTables
from odeco.privacy.holders.tables import Levels

#: The number of fits whose mean is taken. Pairs do not determine triples: one fit to pairs has
#: worse triples than the mean of several from random starts.
_N_FITS = 8

#: The number of classes of a fit and of L-BFGS iterations: first, and if that leaves more than
#: noise.
_EFFORTS = ((32, 300), (64, 1000))

#: A fit leaves more than noise if noise alone would leave as much less often than this.
_CHANCE = 0.01

#: The number of steps that L-BFGS remembers.
_MEMORY = 20

#: No probability is smaller than about exp of this: logarithms and quotients stay finite, wherever
#: L-BFGS looks.
_LEAST_LOG = -30.0


@dataclass(frozen=True, eq=False)
class Products(State):
    """A mixture of products: within a class, columns are independent.

    Attributes
    ----------
    weights : array, k
        The probability of each class.
    shares : array, levels x k
        The probability of each level in each class; those of one column sum to one.
    """

    weights: FloatArray = array_field("k", low=0, high=1 + 1e-9)
    shares: FloatArray = array_field("levels", "k", low=0, high=1 + 1e-9)

    @property
    def pairs(self) -> FloatArray:
        """The probability of two levels together, for levels of different columns."""
        return (self.shares * self.weights) @ self.shares.T

    def tables(self, levels: Levels) -> FloatArray:
        """Return the probability of two levels together; within a column, that of each level, on
        the diagonal.
        """
        owners = levels.owners
        margins = np.diag(self.shares @ self.weights)
        return np.where(owners[:, None] == owners[None, :], margins, self.pairs)

    def draw(self, levels: Levels, n_rows: int, rng: np.random.Generator) -> IndexArray:
        """Draw rows: the code of each cell."""
        own = rng.choice(self.weights.size, size=n_rows, p=self.weights / self.weights.sum())
        codes = np.empty((n_rows, levels.n_columns), dtype=np.int64)
        for column, part in enumerate(np.split(self.shares, levels.offsets[1:])):
            reached = np.cumsum(part, axis=0)
            # The last sum may be below 1 by rounding.
            inner = reached[:-1, own]
            codes[:, column] = np.sum(rng.random(n_rows) >= inner, axis=0)
        return codes


def independent(frequencies: FloatArray) -> Products:
    """Return independent columns with these frequencies of levels: one class."""
    return Products(np.ones(1), frequencies[:, None])


def mean_of(mixtures: list[Products]) -> Products:
    """Return the mean of some mixtures, which has all their classes."""
    weights = np.concatenate([each.weights for each in mixtures]) / len(mixtures)
    shares = np.hstack([each.shares for each in mixtures])
    return Products(weights, shares)


def fit_products(tables: PairTables, rng: np.random.Generator) -> Products:
    """Return the mean of several mixtures of products, each fitted from another random start.

    Strongly dependent columns need more classes and iterations. What a first fit leaves, compared
    with noise and counting, says whether they do.
    """
    for n_classes, n_iterations in _EFFORTS:
        misfit = _Misfit.of(tables, n_classes, n_iterations)
        fitted = mean_of([misfit.minimised(rng) for _ in range(_N_FITS)])
        if misfit.chance_of(fitted) > _CHANCE:
            break
    return fitted


@dataclass(frozen=True, eq=False)
class _Misfit:
    """How far a mixture is from noisy tables, and its gradient.

    The squared differences of all shares are divided by the variances of noise and of counting. A
    prior draws classes to the frequencies: the square of a departure is divided by the variance of
    uniformly drawn probabilities, and −log w draws no class to 0.

    The variables are the logarithms of the probabilities of classes (the first row) and of levels,
    each up to a constant (softmax).
    """

    levels: Levels
    shares: FloatArray
    precision: FloatArray
    centre: FloatArray
    of_prior: FloatArray
    n_classes: int
    n_iterations: int

    @classmethod
    def of(cls, tables: PairTables, n_classes: int, n_iterations: int) -> _Misfit:
        levels = tables.levels
        owners = levels.owners
        n_rows = tables.n_rows
        centre = tables.background
        noise = tables.variances[np.ix_(owners, owners)] / n_rows**2
        counting = np.outer(centre, centre) / n_rows
        different = owners[:, None] != owners[None, :]
        precision = np.where(different, 1 / (noise + counting), 0.0)
        spread = centre * (1 - centre) / (levels.sizes[owners] + 1)
        # A column with one level leaves nothing to vary.
        of_prior = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
        shares = tables.counts / n_rows
        return cls(levels, shares, precision, centre, of_prior, n_classes, n_iterations)

    def minimised(self, rng: np.random.Generator) -> Products:
        """Return the mixture that L-BFGS finds from a random start."""
        from scipy.optimize import minimize  # `import odeco` does not wait for it

        drawn = self.centre[:, None] * rng.gamma(1.0, size=(self.centre.size, self.n_classes))
        shares = drawn + np.exp(_LEAST_LOG)
        start = np.log(shares / self._by_column(shares))
        equal = np.zeros((1, self.n_classes))
        found = minimize(
            self.value_and_gradient,
            np.vstack([equal, start]).ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.n_iterations, "maxcor": _MEMORY},
        )
        return self._products(found.x)

    def chance_of(self, products: Products) -> float:
        """Return how often noise and counting alone would leave as much as a mixture does.

        Consistent tables have s_i − 1 free numbers for each column, and (s_i − 1)(s_j − 1) for each
        pair.
        """
        squares = (products.pairs - self.shares) ** 2
        free = self.levels.sizes - 1
        n_free = np.sum(free) + (np.sum(free) ** 2 - np.sum(free**2)) / 2
        return float(chdtrc(n_free, np.sum(squares * self.precision) / 2))

    def value_and_gradient(self, variables: FloatArray) -> tuple[float, FloatArray]:
        """Return the misfit, and its gradient."""
        products = self._products(variables)
        weights = products.weights
        shares = products.shares
        differences = products.pairs - self.shares
        weighted = differences * self.precision
        pulls = weighted @ shares
        departures = shares - self.centre[:, None]
        drawn = departures * self.of_prior[:, None]
        # Each pair stands twice in a symmetric table.
        of_pairs = float(np.sum(differences * weighted)) / 4
        of_prior = float(np.sum(departures * drawn)) / 2 - float(np.sum(np.log(weights)))
        by_weights = np.sum(shares * pulls, axis=0) / 2 - 1 / weights
        by_shares = pulls * weights + drawn
        along_weights = weights * (by_weights - weights @ by_weights)
        along_shares = shares * (by_shares - self._by_column(shares * by_shares))
        gradient = np.concatenate([along_weights, along_shares.ravel()])
        return of_pairs + of_prior, gradient

    def _products(self, variables: FloatArray) -> Products:
        """Return the mixture that the variables stand for."""
        logarithms = variables.reshape(-1, self.n_classes)
        of_weights = logarithms[0] - logarithms[0].max()
        weights = np.exp(np.maximum(of_weights, _LEAST_LOG))
        of_levels = logarithms[1:]
        largest = np.maximum.reduceat(of_levels, self.levels.offsets, axis=0)
        raised = np.maximum(of_levels - largest[self.levels.owners], _LEAST_LOG)
        shares = np.exp(raised)
        return Products(weights / weights.sum(), shares / self._by_column(shares))

    def _by_column(self, numbers: FloatArray) -> FloatArray:
        """Return the sum over the levels of each column, for each of its levels."""
        return self.levels.sum_by_column(numbers)[self.levels.owners]
