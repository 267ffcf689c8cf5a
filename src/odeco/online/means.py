"""The reply to a query: the mean over the rows of a batch, in the unit of the run."""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._util.arguments import SMALLEST_USABLE, largest, times_power_of_two, unit_exponent
from odeco.errors import BadRowError
from odeco.io.rows import stored_numbers
from odeco.online.run import Run
from odeco.online.solver import Reply
from odeco.online.tree import in_unit


class PlainMean:
    """The plain mean.

    The unit of a run is a power of two that is chosen at the first mean, and 1 at ordinary sizes: a
    solver squares means, and those of very small or very large rows have squares that double
    precision cannot hold. It cannot be chosen at the first row, which may be far smaller than all
    others.
    """

    norm_bound: float | None = None

    def prepared(self, rows: Any, *, sparse: bool | None) -> Any:  # noqa: ARG002 - the sum notices a change of kind
        """Return the rows as they are."""
        return rows

    def reply(self, run: Run) -> tuple[Reply, int | None]:
        """Return the reply to the query of a run, and the unit of the run from then on."""
        query = run.solver.query
        value = run.sum.value(query)
        if query.keeps_rows:
            value, unit = _rows_in_unit(value, query.order, run.unit)
        else:
            value, unit = _mean_in_unit(value, run.unit)
        return Reply(value, run.sum.n_rows), unit

    def reply_so_far(self, run: Run) -> tuple[Reply | None, int | None]:
        """Return the reply from the rows of the incomplete batch, or None if there are none; and
        its unit.
        """
        if run.sum.n_rows:
            return self.reply(run)
        return (None, run.unit)


def _mean_in_unit(mean: Any, unit: int | None) -> tuple[Any, int | None]:
    """Return a mean in the unit of a run, and that unit."""
    size = largest(mean)
    if 0 < size < SMALLEST_USABLE:
        raise BadRowError(
            "Rows must be large enough for their powers not to vanish. The largest number in the "
            f"mean over the batch is {size:.3g}. Nothing of this batch was used; multiply all "
            "rows by a constant."
        )
    if unit is None and size > 0:
        unit = unit_exponent(size, 2, mean.dtype)
    return times_power_of_two(mean, -(unit or 0)), unit


def _rows_in_unit(rows: Any, order: int, unit: int | None) -> tuple[Any, int | None]:
    """Return rows that were kept in the unit whose p-th power is that of means, and the unit of
    means.
    """
    size = largest(stored_numbers(rows))
    if unit is None and size > 0:
        single = np.dtype(np.float32)  # in which the span of a block is searched
        unit = order * unit_exponent(size, 2 * order, single)
    shift = (unit or 0) // order
    return in_unit(rows, shift) if shift else rows, unit
