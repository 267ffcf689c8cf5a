"""What the plans of all methods without privacy have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, get_args

from odeco.online.solver import Plan, Where

Moment = Literal["raw", "cumulant"]

DEFAULT_MOMENT: Moment = "raw"

MOMENTS: tuple[Moment, ...] = get_args(Moment)

#: The memory that a run may use by default, in megabytes.
DEFAULT_MEMORY = 1000.0


@dataclass(frozen=True, kw_only=True)
class OpenPlan(Plan):
    """A plan without privacy.

    Attributes
    ----------
    moment : {"raw", "cumulant"}
        Whether the moment is decomposed, or at orders 3 and 4 the cumulant.
    n_passes : int or None
        How often data that can be read again are read; 1 for others.
    """

    moment: Moment = DEFAULT_MOMENT
    n_passes: int | None = None

    #: How often data that can be read again are read by default, and whether they may be read more
    #: often.
    default_passes: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.moment == "cumulant" and not self.takes_cumulants:
            raise ValueError(
                "moment='cumulant' takes order=3, or order=4 and method='entries', without "
                f"privacy and without `forgetting`. Got order={self.order!r} and "
                f"method={self.name!r}. Pass one of these and leave out the rest, or take "
                "moment='raw'."
            )

    @property
    def takes_cumulants(self) -> bool:
        """Whether the method decomposes cumulants of this order."""
        return self.order == 3

    @property
    def centred(self) -> bool:
        """Whether the mean of the rows is subtracted: the third cumulant is the moment of what is
        left.
        """
        return self.moment == "cumulant" and self.order == 3

    @property
    def reads_again(self) -> bool:
        """Whether the run reads its rows in several passes."""
        return self.n_passes is not None and self.n_passes > 1

    def bound(self, where: Where) -> Self:
        """Return the plan for such rows, with the number of passes."""
        most = self.default_passes if where.repeatable else 1
        if most == 1 and self.n_passes not in (None, 1):
            raise ValueError(
                "`n_passes` must be 1 for method='power', for fourth moments and for data that "
                f"can be read once only. Got {self.n_passes!r} and method={self.name!r}. Leave it "
                "out."
            )
        return replace(super().bound(where), n_passes=self.n_passes or most)
