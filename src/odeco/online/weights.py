"""Weights of the rows of a stream: rows are multiplied by the p-th roots of their weights.

The p-th moment of rows y = w^(1/p) x is the mean of w x⊗ᵖ: that of weighted rows, Σ w x⊗ᵖ / Σ w, times the mean weight.
So every solver for raw moments does the right thing with the rows y, and all weights of components that leave the run,
in results and in errors, are divided by the mean weight. Cumulants, and the coordinates in which the number of
components of a fourth moment is selected, also need lower moments, whose rows have other roots. With forgetting, the
moment would be Σ φᵃ w x⊗ᵖ / Σ φᵃ w for rows that are a batches old. Its numerator is that of the rows y. But a search
begins the mean anew with the rows that it keeps, and the denominator would have to begin with their weights, which are
not kept. These are refused.

**Standard errors.** A component has the weight λ = A/B, with A the mean of w v over rows, v the value of a row along
it, and B the mean weight. The spread between segments gives σ_A. To first order the error of λ is that of A minus λ
times that of B, over B, which is at most (σ_A + |λ| σ_B) / B, however weights depend on rows. That is what is stated;
σ_B is known from Σ w and Σ w². The error of a direction does not depend on B.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.state import require
from odeco._util.types import FloatArray
from odeco.io.coerce import as_source
from odeco.io.rows import as_weights, csr_view, is_sparse
from odeco.io.source import Source
from odeco.online.sums import RowSum, SavedSum
from odeco.online.tree import ALL_ROWS

#: Weights of one that are added at a time.
_BLOCK = 2**20


def check_weight_sum(saved: SavedSum) -> None:
    """Raise `ValueError` unless a sum from an untrusted file is one of weights."""
    levels = [level for level in saved.levels if level.size]
    require(all(level.shape == (2, 1) and level.min() >= 0 for level in levels), "its weights must have two sums")
    require(saved.threshold == ALL_ROWS and not len(saved.places), "the weights of all rows are added up")
    if saved.buffer is not None:
        rows = saved.buffer.rows
        dense = isinstance(rows, np.ndarray) and rows.shape[1:] == (2,)
        require(dense and rows.min() >= 0 and bool(np.all(rows[:, 1] == 1)), "its weights must not be negative")


def roots_of(weights: FloatArray, order: int) -> FloatArray:
    """Return the p-th roots of weights."""
    return weights ** (1 / order) if order != 3 else np.cbrt(weights)


def times_roots(rows: Any, roots: FloatArray) -> Any:
    """Return rows, dense or CSR, times the roots of their weights, in their own precision."""
    roots = roots.astype(rows.dtype)
    if is_sparse(rows):
        return csr_view(rows.data * np.repeat(roots, np.diff(rows.indptr)), rows.indices, rows.indptr, rows.shape[1])
    return rows * roots[:, None]


class WeightSum:
    """Σ w and Σ w² over rows, in the tree of sums, so that they do not depend on how rows are cut."""

    def __init__(self) -> None:
        # Of rows (w, 1), the image of (1, 0) at order 2 is Σ w (w, 1).
        self.sum = RowSum("image", np.array([[1.0], [0.0]]), 2)

    @classmethod
    def of_ones(cls, n_rows: int) -> WeightSum:
        """Return the sums over rows without weights."""
        total = cls()
        for start in range(0, n_rows, _BLOCK):
            total = total.after(np.ones(min(_BLOCK, n_rows - start)))
        return total

    def after(self, weights: FloatArray) -> WeightSum:
        """Return the sums with more weights; this one stays as it is."""
        total = WeightSum()
        total.sum.held, total.sum.kept = self.sum.held, self.sum.held.levels
        total.sum.update(np.column_stack([weights, np.ones(len(weights))]))
        return total

    @property
    def mean(self) -> float:
        """The mean weight."""
        total = float(self.sum.total()[1, 0])
        if not total > 0:
            raise ValueError(
                "`sample_weight` must have at least one weight above zero. All are zero so far. Pass a positive weight "
                "for every row that counts."
            )
        return total / self.sum.n_rows

    @property
    def error(self) -> float:
        """The standard error of the mean weight, as a share of it."""
        n_rows, squares, mean = self.sum.n_rows, float(self.sum.total()[0, 0]), self.mean
        return math.sqrt(max(squares / n_rows - mean**2, 0.0) / n_rows) / mean


@dataclass(frozen=True, eq=False)
class PushedWeights:
    """The weights of rows that are pushed: their sums over earlier batches, and those of the current one."""

    before: WeightSum
    weights: FloatArray

    @classmethod
    def after(
        cls, known: PushedWeights | WeightedSource | None, weights: FloatArray | None, n_new: int, n_before: int
    ) -> PushedWeights:
        """Return the weights of `n_before` rows with those of `n_new` more; rows without a weight count once."""
        before = WeightSum.of_ones(n_before) if known is None else known.up_to(n_before)
        return cls(before, np.ones(n_new) if weights is None else weights)

    @classmethod
    def restored(cls, saved: SavedSum) -> PushedWeights:
        """Return weights whose sums were saved."""
        total = WeightSum()
        total.sum.restore(saved)
        return cls(total, np.empty(0))

    def up_to(self, n_rows: int) -> WeightSum:
        """Return the sums over the first rows."""
        n_new = n_rows - self.before.sum.n_rows
        return self.before.after(self.weights[:n_new]) if n_new else self.before


def without_column(name: str, columns: Any, drop: Any) -> tuple[Any, Any]:
    """Return the names of columns to read, and of those to leave out, without one column."""
    given = drop if columns is None else columns
    others = [each for each in ([given] if isinstance(given, str) else given or ()) if each != name]
    return (None, [*others, name]) if columns is None else (others, drop)


class WeightedSource(Source):
    """The rows of a source times the roots of their weights, which are an array, or a column of the source."""

    def __init__(self, source: Any, weights: FloatArray | str, order: int) -> None:
        self._source, self._order = source, order
        self.name, self.path, self.repeatable = source.name, None, source.repeatable
        self.identified, self.n_rows, self.sparse = source.identified, source.n_rows, getattr(source, "sparse", False)
        self.n_features, self.columns = source.n_features, source.columns
        self._place = -1
        if isinstance(weights, str):
            names = source.columns or ()
            self._place = names.index(weights)
            self.n_features, self.columns = source.n_features - 1, tuple(name for name in names if name != weights)
            self._check_not_empty()
        self._weights = weights

    @classmethod
    def of(cls, data: Any, weights: Any, order: int, columns: Any, drop: Any) -> WeightedSource:
        """Return the rows of data, with an array of weights or the name of their column."""
        if not isinstance(weights, str):
            source: Any = as_source(data, columns=columns, drop=drop)
            n_rows = len(weights) if source.n_rows is None else source.n_rows
            return cls(source, as_weights(weights, n_rows), order)
        if columns is not None:
            columns = [*without_column(weights, columns, None)[0], weights]
        source = as_source(data, columns=columns, drop=drop)
        if weights not in (source.columns or ()) or not source.repeatable:
            listed = ", ".join((source.columns or ())[:20]) or "no names"
            raise ValueError(
                "`sample_weight` must be an array, or the name of a column of data that can be read again. Got "
                f"{weights!r}, and the columns of these data are: {listed}. Pass an array, one number for each row."
            )
        return cls(source, weights, order)

    def fingerprint(self) -> str:
        """Return the fingerprint of the rows with that of the weights."""
        by = self._weights if isinstance(self._weights, str) else f"{zlib.crc32(self._weights.tobytes()):08x}"
        return f"{self._source.fingerprint()}:weights:{by}"

    def up_to(self, n_rows: int) -> WeightSum:
        """Return the sums of the weights of the first rows."""
        if not isinstance(self._weights, str):
            return WeightSum().after(self._weights[:n_rows])
        total, left = WeightSum(), n_rows
        for block in self._source:
            if left <= 0:
                break
            total = total.after(self._split(block[:left])[1])
            left -= len(block)
        return total

    def _blocks(self, row: int) -> Iterator[Any]:
        for block in self._source.iterate_from(row):
            n_rows = int(block.shape[0])
            if isinstance(self._weights, str):
                rows, weights = self._split(block)
                _check_numbers(weights, row)
            else:
                rows, weights = block, self._weights[row : row + n_rows]
                if len(weights) < n_rows:
                    _refuse_number(len(self._weights))
            yield times_roots(rows, roots_of(weights, self._order))
            row += n_rows
        if not isinstance(self._weights, str) and row < len(self._weights):
            _refuse_number(len(self._weights))

    def _split(self, block: Any) -> tuple[Any, FloatArray]:
        """Return rows without the column of weights, and that column."""
        dense = block.toarray() if is_sparse(block) else block
        return np.delete(dense, self._place, axis=1), dense[:, self._place].astype(np.float64)


def _check_numbers(weights: FloatArray, row: int) -> None:
    if np.any(weights < 0):
        place = int(np.argmin(weights >= 0))
        raise ValueError(
            f"`sample_weight` must not be negative: a row of weight 2 counts twice. Got {weights[place]:g} for row "
            f"{row + place:,}. Set it to 0 to leave that row out."
        )


def _refuse_number(n_weights: int) -> None:
    raise ValueError(
        f"`sample_weight` must be one number for each row. Got {n_weights:,} numbers, and another number of rows. Pass "
        "one for each."
    )
