"""Private streams: the mean over every batch is released with noise, and charged to a ledger.

Every query uses the next batch of rows, and no other. So each row is in one release, batches are
disjoint data, and they compose by maximum: each row has the whole guarantee, for a stream of any
length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from odeco._util.arguments import check_choice, check_norm_bound
from odeco._util.types import FloatArray
from odeco.io.rows import is_sparse
from odeco.online.queries import Core, Entries, Images, Query
from odeco.online.run import Run
from odeco.online.solver import Reply
from odeco.privacy.calibration import check_delta_for
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.lanes import clipped_rows
from odeco.privacy.holders.protocol import ROUNDOFF, multiplicities
from odeco.privacy.ledger_file import Account
from odeco.privacy.release import Releaser
from odeco.privacy.report import PrivacyReport
from odeco.privacy.sensitivity import RecordSensitivities

#: The largest number of digits of powers of rows before or after the point: their sums neither
#: over- nor underflow.
_MOST_DIGITS = 200


@dataclass(frozen=True)
class RowGuarantee(Guarantee):
    """The guarantee for every row of a stream.

    Attributes
    ----------
    norm_bound : float
        The bound B on the norm of a row.
    neighbour_relation : {"replace", "add_remove"}
        What may happen to one row: it is replaced by any other, or blanked at its place.
    """

    norm_bound: float = field(kw_only=True)
    neighbour_relation: str = field(kw_only=True)

    def __post_init__(self) -> None:
        _ = self.mu  # refuses what is no guarantee
        check_norm_bound(self.norm_bound)
        check_choice("neighbour_relation", self.neighbour_relation, ("replace", "add_remove"))

    @property
    def neighbours(self) -> str:
        """The neighbour relation in words."""
        act = "replaced by any other" if self.replace else "blanked, or the reverse"
        return (
            f"one row of the stream, of norm at most {self.norm_bound:g}, {act} at its place; "
            "their number is public"
        )

    @property
    def replace(self) -> bool:
        """Whether a row may be replaced by any other."""
        return self.neighbour_relation == "replace"

    def check_room(self, dimension: int, order: int) -> None:
        """Raise if sums of powers of rows might over- or underflow: that must not depend on the
        rows.
        """
        smallest = order * math.log10(self.norm_bound)
        largest = smallest + order / 2 * math.log10(dimension)
        if not (smallest > -_MOST_DIGITS and largest < _MOST_DIGITS):
            raise ValueError(
                f"`norm_bound` to the power {order} must lie between 1e-{_MOST_DIGITS} and "
                f"1e{_MOST_DIGITS}, with room for {dimension:,} columns. Got "
                f"norm_bound={self.norm_bound:g}. Measure the rows in another unit."
            )


class NoisyMean:
    """Replies with the mean over the rows of a batch and noise, which a ledger pays for.

    Parameters
    ----------
    guarantee : RowGuarantee
        What every row is promised.
    account : Account
        Pays, one charge a batch, named after its rows; and draws the noise, afresh for every
        release.

    Notes
    -----
    **Neighbours.** Two streams of the same length that differ in one row, at one place, both rows
    of norm at most B (longer rows are scaled down to it, rows that are not finite count as zeros;
    what becomes of a row depends on that row alone).

    **Sensitivity** of the mean over a batch of n rows: that of `RecordSensitivities` for the image
    of the block of candidates as one release, for a core, or for all distinct entries, each
    multiplied by the root of how often it stands in the tensor, so that their norm is that of the
    tensor; that of another batch is 0. The rounding errors of the computed mean are part of what is
    declared. In whatever order n terms of absolute value at most Bᵖ times the gain of the query are
    added up, and where each is made of inner products of length d, their mean errs by at most n + c
    d + 16 units of roundoff times that, c being the number of inner products; the order may differ
    between neighbours (CSR rows are cut by the numbers they store), so twice this is added.

    **Guarantee.** Query and sensitivity follow from public numbers and earlier releases. The noise
    is 1/μ times the sensitivity, so each release is μ-GDP for a row of its batch, and says nothing
    about others given what came before. Which row is in which batch is its place in the stream, the
    same for both neighbours. So the whole transcript is μ-GDP (`Ledger`, *disjoint data compose by
    maximum*).
    """

    def __init__(self, guarantee: RowGuarantee, account: Account) -> None:
        self.guarantee = guarantee
        self.account = account
        self.norm_bound: float | None = guarantee.norm_bound

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "A private run must stay one of a kind: a copy would release the same rows twice. "
            "Save it."
        )

    def prepared(self, rows: Any, *, sparse: bool | None) -> Any:
        """Return rows clipped to the bound. Dense and CSR rows in one run are refused, whatever
        they hold.
        """
        check_kind(sparse=sparse, sparse_now=is_sparse(rows))
        return clipped_rows(rows, self.guarantee.norm_bound)

    def reply(self, run: Run) -> tuple[Reply, int]:
        """Charge the ledger, and return the mean with noise; the unit is always 1."""
        query = run.solver.query
        n_rows = run.sum.n_rows
        first = run.n_closed + 1
        last = run.n_closed + n_rows
        check_delta_for(self.guarantee.delta, last, "record")  # the rows of all batches count
        counts = _counts(query)
        releaser = Releaser(self.account.ledger, self.account.noise, f"rows {first:,} to {last:,}")
        answer, scale = releaser.release(
            query.in_words,
            lambda: run.sum.value(query) * counts,
            size=math.prod(query.shape),
            sensitivity=self._sensitivity(query, n_rows),
            noise_multiplier=1 / self.guarantee.mu,
        )
        return Reply(answer / counts, n_rows, scale), 0

    def reply_so_far(self, run: Run) -> tuple[None, int]:  # noqa: ARG002 - an open run needs it
        """Return nothing: only complete batches are released."""
        return None, 0

    def report(self) -> PrivacyReport:
        """Return what is guaranteed, and every release so far."""
        return PrivacyReport.of(
            Releaser(self.account.ledger, self.account.noise),
            private=self.account.is_private,
            epsilon=self.guarantee.epsilon,
            delta=self.guarantee.delta,
            unit="record",
            neighbours=self.guarantee.neighbours,
            mechanism="disjoint batches of a stream, each row in one release",
        )

    def _sensitivity(self, query: Query, n_rows: int) -> float:
        """Return the sensitivity of the mean over a batch, rounding errors included."""
        bound = self.guarantee.norm_bound
        p = query.order
        block = query.block
        sensitivities = RecordSensitivities(bound, n_rows, p, replace=self.guarantee.replace)
        exact, n_products, gain = _BOUNDS[type(query)](sensitivities, block, p)
        depth = n_rows + n_products * block.shape[0] + 16
        return float(exact + 2 * depth * ROUNDOFF * bound**p * gain)


def check_kind(*, sparse: bool | None, sparse_now: bool) -> None:
    """Raise if dense and CSR rows come in one run: always, and not only if the sum notices, which
    depends on them.
    """
    if sparse not in (None, sparse_now):
        raise TypeError(
            "Rows of a private run must be all dense or all CSR. Got both. Convert them."
        )


def _counts(query: Query) -> Any:
    """Return the root of how often each number stands in the tensor: the norm of all of them is
    then its norm.
    """
    if type(query) is Entries:
        return multiplicities(query.dimension) ** 0.5
    return 1.0


# The sensitivity of the exact mean for each query, the number of inner products, and the gain of
# the query.


def _of_images(
    sensitivities: RecordSensitivities, block: FloatArray, p: int
) -> tuple[float, int, float]:
    gains = np.linalg.norm(block, axis=0) ** (p - 1)
    return sensitivities.image(block), p - 1, float(np.linalg.norm(gains))


def _of_core(
    sensitivities: RecordSensitivities, block: FloatArray, p: int
) -> tuple[float, int, float]:
    return sensitivities.core(block), p, float(np.linalg.norm(block)) ** p


def _of_entries(
    sensitivities: RecordSensitivities,
    block: FloatArray,  # noqa: ARG001
    p: int,  # noqa: ARG001
) -> tuple[float, int, float]:
    return sensitivities.entries(), 0, 1.0


_BOUNDS: dict[
    type[Query], Callable[[RecordSensitivities, FloatArray, int], tuple[float, int, float]]
] = {
    Images: _of_images,
    Core: _of_core,
    Entries: _of_entries,
}
