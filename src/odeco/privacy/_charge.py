"""One entry of a ledger."""

from __future__ import annotations

import math
import numbers
from dataclasses import asdict, dataclass
from typing import Any

from odeco._arguments import check_count

#: The name that stands for every piece of data, named or not. A charge that names nothing is charged to it.
ALL_DATA = "all data"


@dataclass(frozen=True, slots=True)
class Charge:
    """One entry of a ledger: `count` releases f(D) + scale · N(0, I), each of the same sensitivity.

    Attributes
    ----------
    mechanism : str
        What was released, in words for a reader of the ledger.
    sensitivity : float
        Largest Euclidean change of one release between neighbours, the rounding to a grid included.
    scale : float
        Standard deviation of the noise on every coordinate.
    count : int
        Number of releases.
    data : tuple of str
        Names of the pieces of data that the releases depend on; a single name may be given as a string.
    delta : float
        With this probability at most, what is released shows more than the noise hides: a word that only one record
        holds, say, has passed a threshold. It is added to the δ of the Gaussian releases, see `Ledger`.
    """

    mechanism: str
    sensitivity: float
    scale: float
    count: int = 1
    data: tuple[str, ...] = (ALL_DATA,)
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, str) or not self.mechanism:
            raise ValueError(f"`mechanism` must be a text. Got {self.mechanism!r}. Say what is released.")
        set_field = object.__setattr__  # the dataclass is frozen; this is its constructor
        set_field(self, "sensitivity", check_size("sensitivity", self.sensitivity, zero=True))
        set_field(self, "scale", check_size("scale", self.scale, zero=False))
        set_field(self, "count", check_count("count", self.count))
        set_field(self, "data", _check_names(self.data))
        set_field(self, "delta", check_size("delta", self.delta, zero=True))

    @property
    def mu(self) -> float:
        """μ of these releases alone: √count · sensitivity / scale."""
        return math.sqrt(self.count) * self.sensitivity / self.scale

    def to_fields(self) -> dict[str, Any]:
        """Return what files hold of it; a delta of 0 is left out, as in files from before there was one."""
        fields = asdict(self)
        if self.delta == 0:
            del fields["delta"]
        return fields


def check_size(name: str, value: Any, *, zero: bool) -> float:
    """Return a finite number above 0, or at least 0 if `zero`, as a float."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        if 0 < number < math.inf or (zero and number == 0):
            return number
    raise ValueError(f"`{name}` must be a finite number {'of at least' if zero else 'above'} 0. Got {value!r}.")


def _check_names(data: Any) -> tuple[str, ...]:
    names = (data,) if isinstance(data, str) else tuple(dict.fromkeys(data))
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"`data` must name at least one piece of data. Got {data!r}. Leave it out to mean all data.")
    return names
