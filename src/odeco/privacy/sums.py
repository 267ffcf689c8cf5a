"""Sums over private records, released with noise and charged to a ledger: all that a private model
learns from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from odeco._util.arguments import check_choice
from odeco._util.threads import Block, map_blocks
from odeco._util.types import FloatArray
from odeco.privacy.calibration import check_delta_for
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.protocol import RELATIONS, ROUNDOFF, NeighbourRelation
from odeco.privacy.ledger import Ledger
from odeco.privacy.ledger_file import as_ledger
from odeco.privacy.noise import NoiseSource, SecureNoise, noise_scale
from odeco.privacy.release import Releaser
from odeco.privacy.report import PrivacyReport
from odeco.privacy.sensitivity import neighbour_factor


@dataclass(frozen=True, eq=False)
class Query:
    """A sum over records that may be released, with what must be known to hide a record in it.

    Only data holders make queries: the bound is proved beside the code that computes the answer.

    Attributes
    ----------
    what : str
        What it is, for the reader of the ledger.
    answer : callable
        Computes the exact sum.
    size : int
        Number of numbers in it.
    bound : float
        The largest norm of what a record adds.
    signed : bool
        Whether what two records add may have a negative inner product.
    exact : bool
        Whether the sum is computed without any rounding error, so that none has to be declared.
    """

    what: str
    answer: Callable[[], FloatArray]
    size: int
    bound: float
    signed: bool
    exact: bool = False


def sum_over_blocks(work: Callable[[Block], FloatArray], blocks: Iterable[Block]) -> FloatArray:
    """Return the sum of ``work(block)`` over blocks of records, added in their order."""
    # A warning about the data would be an answer without noise. Threads do not inherit this setting
    # of NumPy.
    quiet_work = np.errstate(all="ignore")(work)
    total: FloatArray = sum(map_blocks(quiet_work, blocks, parallel=True))  # type: ignore[assignment]
    return total


class PrivateSums:
    """Release sums over n records, to each of which a record adds an array of bounded norm.

    Parameters
    ----------
    guarantee : Guarantee
        The budget that all releases share.
    n_records : int
        Number of records, or of users; it is public.
    record : str
        The name of a record in messages, such as "row" or "respondent"; "user" if a user may have
        several.
    n_terms : int, optional
        Number of arrays that are added up, if users have several records; by default one for each
        record.
    neighbour_relation : {"replace", "add_remove"}
        Whether a neighbour replaces one record or blanks it; see
        `odeco.privacy.holders.protocol.RELATIONS`.
    neighbours : str, optional
        The neighbour relation in words, for `report`; by default as `neighbour_relation` says.
    noise : NoiseSource, optional
        The source of the noise; by default the operating system.

    Notes
    -----
    **Sensitivity.** A record adds an array u with |u| ≤ b, made of that record and of arguments
    that are public or were released before. `neighbour_factor` says how many times b a neighbour
    moves the sum.

    **Rounding.** A norm of m numbers is computed with a relative error of at most m + 8 units of
    roundoff, and n arrays of norm b, added up in whatever order, give a sum that errs by at most n
    + 8 units of roundoff times n b. If n users have N arrays whose norms sum up to n b, it errs by
    N + 8 units times n b. Twice the sum of both is part of the sensitivity that is declared, as two
    neighbours may round in opposite directions. The arrays of norm b themselves must be computed
    from the record with a relative error of at most 8 units of roundoff for each of their numbers.
    """

    def __init__(
        self,
        guarantee: Guarantee,
        n_records: int,
        *,
        record: str,
        n_terms: int | None = None,
        neighbour_relation: NeighbourRelation = "replace",
        neighbours: str = "",
        noise: NoiseSource | None = None,
    ) -> None:
        check_choice("neighbour_relation", neighbour_relation, tuple(RELATIONS))
        check_delta_for(guarantee.delta, n_records, record)
        self.guarantee = guarantee
        self.n_records = n_records
        self.record = record
        self._n_terms = n_records if n_terms is None else n_terms
        self.neighbour_relation = neighbour_relation
        self.neighbours = (
            neighbours or f"one {record}, {RELATIONS[neighbour_relation]}; their number is public"
        )
        ledger = Ledger(
            guarantee.mu,
            within=as_ledger(guarantee.ledger, unit=record, neighbours=neighbour_relation),
        )
        self._releaser = Releaser(ledger, SecureNoise() if noise is None else noise)

    def factor(self, query: Query) -> float:
        """Return how far a neighbour can move a sum, as a multiple of the bound of its query."""
        replace = self.neighbour_relation == "replace"
        return neighbour_factor(replace=replace, signed=query.signed)

    def sensitivity(self, query: Query) -> float:
        """Return how far a neighbour can move the sum that a query asks for."""
        factor = self.factor(query)
        if query.exact:
            return query.bound * factor
        return query.bound * (
            factor + 2 * ROUNDOFF * (8 * query.size + 8 + self.n_records * (self._n_terms + 8))
        )

    def noise(self, query: Query, share: float) -> float:
        """Return the deviation of the noise of a query that takes a share of μ²."""
        return noise_scale(
            self.sensitivity(query), 1 / (self.guarantee.mu * math.sqrt(share)), query.size
        )

    def release(self, query: Query, *, share: float) -> tuple[FloatArray, float]:
        """Return a sum with noise, and the deviation of the noise; the ledger is charged before it
        is computed.

        Parameters
        ----------
        query : Query
            What is released.
        share : float
            The share of μ² that this release takes: the shares of all releases sum to one.
        """
        multiplier = 1 / (self.guarantee.mu * math.sqrt(share))
        return self._releaser.release(
            query.what,
            query.answer,
            size=query.size,
            sensitivity=self.sensitivity(query),
            noise_multiplier=multiplier,
        )

    def report(self, mechanism: str) -> PrivacyReport:
        """Return the guarantee of all releases so far."""
        return PrivacyReport.of(
            self._releaser,
            epsilon=self.guarantee.epsilon,
            delta=self.guarantee.delta,
            unit=self.record,
            neighbours=self.neighbours,
            mechanism=mechanism,
            epsilon_of=self.guarantee.epsilon_of,
        )
