"""What noisy tables of all pairs of columns say: consistent tables, and whether columns depend on
each other. Everything here is post-processing of what was released.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaincc

from odeco._util.types import FloatArray, IndexArray
from odeco.privacy.holders.tables import Levels

#: Dependence is stated if independent columns would show as much less often than this.
_CHANCE = 0.01

#: Pairs are measured again if fewer of them than this share are expected to be independent.
_LIKELY = 0.5

#: A level that no released row has counts as this many rows, so that no share is zero.
_PRIOR_ROWS = 0.5

#: No level is taken for less than this share of what it would have if all were equal.
_LEAST_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Released:
    """Tables of some pairs of columns, as they were released.

    Attributes
    ----------
    pairs : array, tables x 2
        The two columns of each table; a column with itself stands for the counts of its levels.
    counts : array
        The noisy counts, one table after the other.
    deviation : float
        The standard deviation of the noise in each of them.
    """

    pairs: IndexArray
    counts: FloatArray
    deviation: float


@dataclass(frozen=True, eq=False)
class PairTables:
    """Noisy tables of all pairs of columns, projected on those with consistent margins.

    Attributes
    ----------
    levels : Levels
        How many levels each column has.
    n_rows : int
        The number of rows.
    counts : array, levels x levels
        The number of rows with both levels, after the projection; zero within a column.
    margins : array
        The number of rows with each level. Neither these nor the counts need be positive.
    variances : array, columns x columns
        The variance of the noise in a count of each table, before the projection.
    errors : array
        The variance of the noise in a margin of each column.
    """

    levels: Levels
    n_rows: int
    counts: FloatArray
    margins: FloatArray
    variances: FloatArray
    errors: FloatArray

    @classmethod
    def of(cls, releases: list[Released], levels: Levels, n_rows: int) -> PairTables:
        """Return the consistent tables of n rows that are nearest to what was released, in units of
        its noise. Every column must have been released.

        Notes
        -----
        Several releases of a table are averaged with their precisions, the inverse variances. Let M
        be the mean for columns i and j with s_i and s_j levels, and w_ij its precision. The nearest
        table with the margins m_i and m_j, both of sum n, is M + r 1ᵀ/s_j + 1 cᵀ/s_i − t/(s_i s_j),
        with r and c what the sums of its rows and columns lack, and t what its total lacks. Its
        squared distance to M is |r|²/s_j + |c|²/s_i − t²/(s_i s_j). The last term does not depend
        on the margins. So the sum over all tables is least for the margins that are the means of
        the sums of rows with the weights w_ij/s_j, and of the counts of the column alone with their
        precision, plus what makes their sum n.
        """
        owners = levels.owners
        total = np.zeros((owners.size, owners.size))
        precision = np.zeros((levels.n_columns, levels.n_columns))
        for each in releases:
            rows, columns = levels.places(each.pairs)
            weight = 1 / each.deviation**2
            total[rows, columns] += weight * each.counts
            precision[each.pairs[:, 0], each.pairs[:, 1]] += weight
        alone = np.diag(precision).copy()
        of_counts = np.diag(total).copy()
        np.fill_diagonal(total, 0.0)
        np.fill_diagonal(precision, 0.0)
        total += total.T
        precision += precision.T
        sizes = levels.sizes
        width = sizes[owners]
        sums = levels.sum_by_column(total.T).T
        of_margins = np.sum(precision / sizes, axis=1) + alone
        raw = (sums @ (1 / sizes) + of_counts) / of_margins[owners]
        lacking = (n_rows - levels.sum_by_column(raw)) / sizes
        margins = raw + lacking[owners]
        by_level = precision[np.ix_(owners, owners)]
        of_rows = by_level * margins[:, None] - sums[:, owners]
        by_tables = precision * n_rows - levels.sum_by_column(sums)
        of_totals = by_tables[np.ix_(owners, owners)]
        change = of_rows / width + of_rows.T / width[:, None] - of_totals / np.outer(width, width)
        known = by_level > 0
        counts = np.divide(total + change, by_level, out=np.zeros_like(total), where=known)
        variances = np.divide(1.0, precision, out=np.zeros_like(precision), where=precision > 0)
        return cls(levels, n_rows, counts, margins, variances, 1 / of_margins)

    @property
    def frequencies(self) -> FloatArray:
        """The share of each level in its column: the nearest probabilities to the margins."""
        parts = np.split(self.margins / self.n_rows, self.levels.offsets[1:])
        return np.concatenate([nearest_probabilities(part) for part in parts])

    @property
    def background(self) -> FloatArray:
        """The frequencies, with those that noise may have made too small raised to that noise.

        A level that is taken for rarer than it is would be fitted too closely.
        """
        levels = self.levels
        noise = np.sqrt(self.errors) / self.n_rows
        least = np.minimum(noise, _LEAST_SHARE / levels.sizes)[levels.owners]
        raised = np.maximum(self.margins, 0.0) / self.n_rows + _PRIOR_ROWS / self.n_rows
        raised = np.maximum(raised, least)
        return raised / levels.sum_by_column(raised)[levels.owners]

    def dependence(self) -> Dependence:
        """Test whether columns depend on each other.

        Notes
        -----
        Let P = I − 11ᵀ/s centre the levels of a column, p be its frequencies, q = P p, V = diag(p)
        − p pᵀ, and N the noise, of variance σ² in each cell. Under independence the departure R = P
        C P − n q_i q_jᵀ, with estimated frequencies, is P N P − δ_i q_jᵀ − q_i δ_jᵀ − δ_i δ_jᵀ/n +
        counting. Here δ_i is n times the error of the frequencies. They are the probabilities
        nearest to the margins, so |δ_i| is at most the error of these, which are centred and of
        variance v_i. These terms are uncorrelated: P N P and the sums N 1 are, and so are δ_i and
        δ_j, which have N 1 and Nᵀ 1 in them, centred. So the covariance of R is at most

            Σ = (σ² + v_i v_j/n²) P ⊗ P + v_i P ⊗ q_j q_jᵀ + v_j q_i q_iᵀ ⊗ P + n V_i ⊗ V_j,

        and |R|² has the mean tr Σ, and the variance 2 tr Σ² where R is normal. It is compared with
        the gamma distribution of the same mean and variance (Satterthwaite 1946). The sum over all
        pairs is tested too: many weak departures may be clear together.
        """
        levels = self.levels
        width = levels.sizes[levels.owners]
        of_rows = self.margins[:, None] / width
        centred = self.counts - of_rows - of_rows.T + self.n_rows / np.outer(width, width)
        frequencies = self.frequencies
        directions = frequencies - 1 / width
        departures = centred - self.n_rows * np.outer(directions, directions)
        squares = levels.sum_by_column(levels.sum_by_column(departures**2).T)
        parts = np.split(frequencies, levels.offsets[1:])
        of_columns = [_traces_of(part) for part in parts]
        traces = np.array([own for own, _ in of_columns])
        overlaps = np.array([own for _, own in of_columns])
        # The terms of Σ: scales, and which of P, q qᵀ and V they multiply, of i and of j.
        errors = self.errors[:, None]
        of_products = self.variances + errors * self.errors / self.n_rows**2
        counting = np.full_like(of_products, self.n_rows)
        scales = np.stack(np.broadcast_arrays(of_products, errors, errors.T, counting))
        first = np.array([0, 0, 1, 2])
        second = np.array([0, 1, 0, 2])
        means = np.einsum("tij,it,jt->ij", scales, traces[:, first], traces[:, second])
        variances = 2 * np.einsum(
            "tij,uij,itu,jtu->ij",
            *(scales, scales),
            *(overlaps[:, first[:, None], first], overlaps[:, second[:, None], second]),
        )
        pairs = levels.all_pairs()
        i, j = pairs.T
        return Dependence.of(pairs, squares[i, j], means[i, j], variances[i, j])


def _traces_of(frequencies: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the traces of P, q qᵀ and V of a column, and those of their products."""
    centring = np.eye(frequencies.size) - 1 / frequencies.size
    direction = centring @ frequencies
    counting = np.diag(frequencies) - np.outer(frequencies, frequencies)
    matrices = np.stack([centring, np.outer(direction, direction), counting])
    traces = np.trace(matrices, axis1=1, axis2=2)
    return traces, np.einsum("kab,lab->kl", matrices, matrices)


@dataclass(frozen=True, eq=False)
class Dependence:
    """Whether columns depend on each other, beyond noise and counting.

    Attributes
    ----------
    pairs : array, pairs x 2
        All pairs of columns.
    chances : array
        How often a pair of independent columns would show as much as each pair does.
    in_all : float
        How often independent columns would show as much in all pairs together.
    """

    pairs: IndexArray
    chances: FloatArray
    in_all: float

    @classmethod
    def of(
        cls, pairs: IndexArray, squares: FloatArray, means: FloatArray, variances: FloatArray
    ) -> Dependence:
        """Return the finding for the squared departures of all pairs, their means and variances."""
        # A column with one level has no departures.
        varying = variances > 0
        chances = np.ones(len(pairs))
        if not varying.any():
            return cls(pairs, chances, 1.0)
        relative = squares[varying] / means[varying]
        spread = variances[varying] / means[varying] ** 2
        chances[varying] = _tail(relative, 1.0, spread)
        in_all = _tail(np.sum(relative), relative.size, np.sum(spread))
        return cls(pairs, chances, float(in_all))

    @property
    def is_clear(self) -> bool:
        """Whether columns depend on each other: in the clearest pair, or in all pairs together."""
        smallest = min(len(self.pairs) * float(np.min(self.chances, initial=1.0)), self.in_all)
        return 2 * smallest < _CHANCE

    @property
    def n_clear(self) -> int:
        """The number of pairs that are clear of noise, by the bound of Bonferroni."""
        return int(np.sum(len(self.pairs) * self.chances < _CHANCE))

    @property
    def likely(self) -> IndexArray:
        """The pairs of which at least half depend on each other (Benjamini and Hochberg 1995)."""
        order = np.argsort(self.chances)
        expected = len(order) * self.chances[order] / np.arange(1, len(order) + 1)
        below = np.flatnonzero(expected < _LIKELY)
        n_likely = int(below[-1]) + 1 if below.size else 0
        return self.pairs[np.sort(order[:n_likely])]


def _tail(value: Any, mean: float, variance: Any) -> FloatArray:
    """Return how often a gamma variable of this mean and variance is larger than a value."""
    return np.asarray(gammaincc(mean**2 / variance, value * mean / variance))


def nearest_probabilities(numbers: FloatArray) -> FloatArray:
    """Return the probabilities nearest to some numbers (Held, Wolfe and Crowder 1974)."""
    ordered = np.sort(numbers)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, ordered.size + 1)
    last = int(np.flatnonzero(ordered >= excess)[-1])
    nearest: FloatArray = np.maximum(numbers - excess[last], 0.0)
    return nearest
