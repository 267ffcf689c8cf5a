"""The ledger of a privacy budget: what was released, on which data, and at which price.

It is a filter: a release that would pass the limit is refused before anything is computed.
"""

from __future__ import annotations

import json
import math
import numbers
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, NoReturn

from odeco._util.arguments import check_count
from odeco.errors import BudgetExhausted, FileFormatError
from odeco.privacy.calibration import ROOM, check_delta, epsilon_of

#: The name that stands for every piece of data, named or not. A charge that names nothing is
#: charged to it.
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
        Names of the pieces of data that the releases depend on; a single name may be given as a
        string.
    delta : float
        With this probability at most, what is released shows more than the noise hides: a word that
        only one record holds, say, has passed a threshold. It is added to the δ of the Gaussian
        releases, see `Ledger`.
    """

    mechanism: str
    sensitivity: float
    scale: float
    count: int = 1
    data: tuple[str, ...] = (ALL_DATA,)
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, str) or not self.mechanism:
            raise ValueError(
                f"`mechanism` must be a text. Got {self.mechanism!r}. Say what is released."
            )
        set_field = object.__setattr__  # the dataclass is frozen; this is its constructor
        set_field(self, "sensitivity", _check_size("sensitivity", self.sensitivity, zero=True))
        set_field(self, "scale", _check_size("scale", self.scale, zero=False))
        set_field(self, "count", check_count("count", self.count))
        set_field(self, "data", _check_names(self.data))
        set_field(self, "delta", _check_size("delta", self.delta, zero=True))

    @property
    def mu(self) -> float:
        """μ of these releases alone: √count · sensitivity / scale."""
        return math.sqrt(self.count) * self.sensitivity / self.scale

    def to_fields(self) -> dict[str, Any]:
        """Return what files hold of it; a delta of 0 is left out, as in files from before there was
        one.
        """
        fields = asdict(self)
        if self.delta == 0:
            del fields["delta"]
        return fields


def _check_size(name: str, value: Any, *, zero: bool) -> float:
    """Return a finite number above 0, or at least 0 if `zero`, as a float."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        if 0 < number < math.inf or (zero and number == 0):
            return number
    raise ValueError(
        f"`{name}` must be a finite number {'of at least' if zero else 'above'} 0. Got {value!r}."
    )


def _check_names(data: Any) -> tuple[str, ...]:
    names = (data,) if isinstance(data, str) else tuple(dict.fromkeys(data))
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(
            f"`data` must name at least one piece of data. Got {data!r}. Leave it out to mean all "
            "data."
        )
    return names


FORMAT_VERSION = 1

_TOLERANCE = (
    ROOM / 2
)  # what rounding may add to a plan that uses its limit exactly; `gdp_mu` leaves twice as much

_UNITS = 2**320  # squares of mu are whole multiples of 1/_UNITS: their sums are exact, in any order

_ROUND_UP = 1 + 2.0**-50

# the largest noise multiplier of an event, and one over the smallest: their squares are normal
# numbers
_MOST = 1e100


class Payer(ABC):
    """Records charges or refuses them: a ledger, in memory or in a file."""

    def charge(
        self,
        mechanism: str,
        sensitivity: float,
        scale: float,
        count: int = 1,
        data: str | Iterable[str] = ALL_DATA,
        delta: float = 0.0,
    ) -> Charge:
        """Record a release that is about to be made, or refuse it.

        Call this before the answer is computed: a refusal must not depend on data. The charge stays
        even if the release then fails.

        Parameters
        ----------
        mechanism, sensitivity, scale, count, data, delta
            See `Charge`.

        Returns
        -------
        Charge
            The entry that was recorded.

        Raises
        ------
        BudgetExhausted
            If the total would pass the limit. The ledger is unchanged.
        """
        entry = Charge(mechanism, sensitivity, scale, count, data, delta)  # type: ignore[arg-type]  # checked there
        self.record(entry)
        return entry

    def charge_dp_event(
        self,
        what: str,
        event: Any,
        *,
        sensitivity: float = 1.0,
        data: str | Iterable[str] = ALL_DATA,
    ) -> Charge:
        """Record a release of another library, stated as an event of the package ``dp-accounting``,
        or refuse it.

        All of the event is one charge, so that a refusal leaves nothing half charged.

        Parameters
        ----------
        what : str
            What is released, for the reader of the ledger.
        event : dp_accounting.DpEvent
            Gaussian events, and compositions of them. Others have no μ and are refused.
        sensitivity : float
            How far a neighbour of *this* ledger can move the answers, in the unit of the event's
            noise multipliers: 1 if both have the same neighbours. If the event is for adding or
            removing a record and the ledger for replacing one, it is 2, as a record is removed and
            another one added.
        data : str or iterable of str
            See `Charge`.

        Notes
        -----
        A Gaussian event with the noise multiplier z costs (sensitivity/z)²; a composition costs the
        sum.
        """
        square = _square_of_event(event)
        if square == 0:
            raise ValueError(
                "The event must be a release. Got one that releases nothing. Leave it out."
            )
        return self.charge(what, sensitivity * math.sqrt(square) * _ROUND_UP, 1.0, data=data)

    @abstractmethod
    def record(self, entry: Charge) -> None:
        """Record a charge, or refuse it; see `charge`."""

    @abstractmethod
    def check_run(self, *, unit: str, neighbours: str) -> None:
        """Raise if the budget is known to be for another unit or neighbour relation than those of a
        run.
        """


class Ledger(Payer):
    """A list of charges whose total μ never passes a limit.

    Parameters
    ----------
    mu_limit : float
        What the total μ may reach; `gdp_mu` gives that of a guarantee (ε, δ).
    delta_limit : float
        What the deltas of all charges may add up to. For a guarantee (ε, δ) in all, `mu_limit` is
        then ``gdp_mu(ε, δ - delta_limit)``.
    within : Ledger or LedgerFile, optional
        A larger budget that pays too, and may refuse: that of all runs on the same data together.

    Notes
    -----
    **Reuse adds.** Charges on the same data add as squares: the total is √(μ₁² + μ₂² + …). This
    holds exactly even when every query, its sensitivity, its scale and whether it is made at all
    are chosen from earlier releases, as long as the sum of squares stays within the limit (Smith
    and Thakurta, arXiv 2210.17520). Proof: fix two neighbours. Let B be a Brownian motion with
    drift 0 for the first and 1 for the second, observed until time μ². To tell the two drifts apart
    from it is to tell N(0, μ²) from N(μ², μ²): μ-GDP. Every release can be made from the next
    stretch of B: if the answers of the neighbours differ by m ≤ Δ/σ in units of the noise, take the
    increment over time m², which is N(0, m²) or N(m², m²), divide it by m, and use it as the noise
    along the line through both answers, with fresh noise in the other directions. So the whole
    transcript is post-processing of B. Stopping early, or being refused, is free: the decision
    depends on the sizes of charges, never on data.

    **Deltas add.** A charge with a delta is a Gaussian release of which something else may slip
    through with that probability. All releases together are post-processing of B and of what slips
    through, which is drawn apart from B: nothing at all, but for a probability of Σ delta, whatever
    was released in between (a union bound). So they are (ε, δ(ε) + Σ delta)-differentially private
    for every ε, by the composition of (ε, δ(ε)) with (0, Σ delta). Both limits are fixed
    beforehand, as one cannot be traded for the other on the way. Deltas are added up over all
    pieces of data alike.

    **Disjoint data compose by maximum.** For two neighbours that differ within one piece, a charge
    that does not name the piece has the same answer under both, given what came before, and reveals
    nothing about it. So the total is the maximum over pieces of the root of the sum of squares of
    those charges that name it. A charge that names several pieces counts against each of them, and
    one that names `ALL_DATA` (the default) against all, whether they were named before, are named
    later, or never.

    **What the caller promises by naming pieces.** The ledger cannot see data. It takes different
    names for disjoint data, and the maximum is valid only if

    1. every pair of neighbours differs within one named piece (or in none);
    2. an answer depends on no data but the pieces that its charge names, earlier answers excepted;
    3. which record belongs to which piece is fixed without looking at other records.

    Pieces by row position (batches of a stream) satisfy 3 if neighbours *replace* a record, or
    blank it out to a zero row with the number of rows public: the record stays at its place, so one
    piece changes. They do not if neighbours truly delete a row: all later rows move up, and every
    batch changes at its border. Then let the piece follow from the record itself (a hash of its
    key). Shuffling first is fine if the permutation does not depend on the values; sorting by
    value, or balancing the batches by their content, is not. If a person may hold several records
    (`unit="user"`), all of them must lie in one piece, or 1 fails. Never give a part and the whole
    two names: name the parts, or `ALL_DATA`.

    **Rounding.** Sums of squares are exact integers in a tiny unit, so they do not depend on the
    order of charges. A charge is accepted if the total stays within `mu_limit` (1 + 2⁻³¹), so that
    a plan that uses its limit exactly is not refused because of its own rounding. `gdp_mu` stays a
    factor 1 − 2⁻³⁰ below the exact root, so the (ε, δ) it was given for holds all the same; `mu`
    and `epsilon` report what was spent, not what was planned.

    **Threads and processes.** `charge` checks and records in one step under a lock. A ledger cannot
    be copied or pickled, and cannot be charged in a forked child: two copies would spend the same
    budget twice. Hand it on with `to_json`, and use only one of the two from then on.

    Examples
    --------
    >>> from odeco.privacy import BudgetExhausted, Ledger
    >>> ledger = Ledger(0.5)
    >>> ledger.charge("image of 10 candidates", sensitivity=1.0, scale=2.5, data="batch 1").mu
    0.4
    >>> _ = ledger.charge("image of 10 candidates", sensitivity=1.0, scale=2.5, data="batch 2")
    >>> round(ledger.mu, 6)
    0.4
    >>> try:
    ...     ledger.charge("value", sensitivity=1.0, scale=3.0)
    ... except BudgetExhausted as error:
    ...     print(error)
    Budget exhausted: this query would bring mu to 0.52, above the limit 0.50. Nothing was released.
    """

    def __init__(
        self, mu_limit: float, *, delta_limit: float = 0.0, within: Payer | None = None
    ) -> None:
        self.mu_limit = _check_size("mu_limit", mu_limit, zero=False)
        self.delta_limit = _check_size("delta_limit", delta_limit, zero=True)
        self._within = within
        self._journal: Callable[[Charge], None] | None = None
        self._charges: list[Charge] = []
        self._squares: dict[str, tuple[int, int]] = {
            ALL_DATA: (0, 0)
        }  # by piece: charges counted, sum of squares
        self._n_counted = 0  # charges that are counted for all their pieces
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def charges(self) -> tuple[Charge, ...]:
        """All charges, in the order in which they were made."""
        with self._lock:
            return tuple(self._charges)

    @property
    def data(self) -> tuple[str, ...]:
        """The names of all pieces of data, `ALL_DATA` first."""
        with self._lock:
            self._count_charges()
            return tuple(self._squares)

    @property
    def mu(self) -> float:
        """What all charges together cost the piece of data that paid most."""
        with self._lock:
            self._count_charges()
            return _root(max(self._total(name) for name in self._squares))

    def mu_of(self, name: str) -> float:
        """Return what all charges together cost one piece of data."""
        with self._lock:
            self._count_charges()
            return _root(self._total(name))

    @property
    def delta(self) -> float:
        """What the deltas of all charges add up to, rounded up."""
        return float(_sum_of_deltas(self.charges)) * _ROUND_UP

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε such that all releases together are (ε, δ)-differentially private;
        it may be infinite.

        What the deltas of charges have used up of δ is not there for the noise.
        """
        left = check_delta(delta) - self.delta
        if left > 0:
            return epsilon_of(self.mu, left)
        return math.inf

    def record(self, entry: Charge) -> None:
        """Record a charge, or refuse it; see `charge`."""
        self.check_process()
        with self._lock:
            self._record(entry)

    def check_run(self, *, unit: str, neighbours: str) -> None:
        """Raise if a larger budget refuses runs for this unit and these neighbours: a ledger in
        memory takes any.
        """
        if self._within is not None:
            self._within.check_run(unit=unit, neighbours=neighbours)

    def check_process(self) -> None:
        """Raise in a forked child: it has a copy of the ledger, and both could spend the same
        budget.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "A ledger must be charged in the process that made it. This is a forked child. "
                "Charge it in the parent or hand it over for good with to_json() and "
                "Ledger.from_json()."
            )

    def keep_with(
        self, begin: Callable[[tuple[Charge, ...]], Callable[[Charge], None] | None]
    ) -> None:
        """Give all charges so far to `begin`, and every further one to what it returns, if
        anything, before it counts.

        If that fails, nothing is charged or released. In one step: no charge is made in between.
        """
        self.check_process()
        with self._lock:
            self._journal = begin(tuple(self._charges))

    def to_json(self) -> str:
        """Return the ledger as JSON: the limit, the total, and every charge with all its fields."""
        if self._within is not None:
            raise TypeError(
                "A ledger within a larger budget must stay where that is: a copy would not charge "
                "it. Keep its `charges`."
            )
        document = {
            "kind": "privacy ledger",
            "format_version": FORMAT_VERSION,
            "mu_limit": self.mu_limit,
            "mu": self.mu,  # for the reader; it is computed anew from the charges
            "charges": [charge.to_fields() for charge in self.charges],
        }
        if self.delta_limit > 0:
            document["delta_limit"] = self.delta_limit
        return json.dumps(document, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Return the ledger that `to_json` described; refuse one that is damaged or overdrawn."""
        try:
            document = json.loads(text)
            kind = document["kind"]
            version = document["format_version"]
            if kind != "privacy ledger" or version != FORMAT_VERSION:
                raise ValueError(f"kind {kind!r}, format version {version!r}")
            ledger = cls(document["mu_limit"], delta_limit=document.get("delta_limit", 0.0))
            for fields in document["charges"]:
                ledger.charge(**fields)
        except (ValueError, KeyError, TypeError, BudgetExhausted) as error:
            raise FileFormatError(
                f"The text must be a privacy ledger of format version {FORMAT_VERSION}. Reading "
                f"it failed: {error!s} Write it again with to_json()."
            ) from error
        return ledger

    def to_dp_events(self) -> dict[str, Any]:
        """Return one composed event of the package ``dp-accounting`` for every piece of data.

        Give each to an accountant on its own; the guarantee of the ledger is the worst of theirs.
        The noise multiplier of an event is scale/sensitivity for the neighbours that the
        sensitivity was declared for, whichever these are. So tell the accountant
        ``NeighboringRelation.ADD_OR_REMOVE_ONE``: under REPLACE_ONE some of them would double a
        sensitivity that is already that of replacing. It has no event for a `delta` of a charge:
        ask it for δ less `Ledger.delta`.
        """
        import dp_accounting  # type: ignore[import-untyped]  # optional, for cross-checks only

        events = {}
        for name in self.data:
            parts = [
                dp_accounting.SelfComposedDpEvent(
                    dp_accounting.GaussianDpEvent(charge.scale / charge.sensitivity), charge.count
                )
                for charge in self.charges
                if charge.sensitivity > 0 and (name in charge.data or ALL_DATA in charge.data)
            ]
            events[name] = dp_accounting.ComposedDpEvent(parts)
        return events

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "A ledger must stay one of a kind: a copy would spend the same budget twice. Hand it "
            "on with to_json(), or keep its `charges`."
        )

    def __repr__(self) -> str:
        return (
            f"Ledger(mu_limit={self.mu_limit:.6g}): {len(self.charges)} charges, mu={self.mu:.6g}"
        )

    def _total(self, name: str) -> int:
        own = 0 if name == ALL_DATA else self._squares.get(name, (0, 0))[1]
        return own + self._squares[ALL_DATA][1]

    def _record(self, entry: Charge) -> None:
        self._count_charges()
        square = _square(entry)
        touched = self._squares if ALL_DATA in entry.data else entry.data
        total = square + max(self._total(name) for name in touched)
        if total > _UNITS * (Fraction(self.mu_limit) * (1 + Fraction(_TOLERANCE))) ** 2:
            raise BudgetExhausted(_root(total), self.mu_limit)
        if entry.delta > 0:
            deltas = _sum_of_deltas([*self._charges, entry])
            if deltas > Fraction(self.delta_limit):
                raise BudgetExhausted(float(deltas), self.delta_limit, "delta")
        if self._within is not None:
            self._within.record(entry)
        if self._journal is not None:
            self._journal(entry)
        self._charges.append(
            entry
        )  # the one step that makes the charge; an interrupt before it leaves no trace
        self._count_charges()

    def _count_charges(self) -> None:
        """Bring the totals up to date with the list of charges: each counts once, wherever an
        interrupt comes.
        """
        for number, entry in enumerate(self._charges[self._n_counted :], self._n_counted + 1):
            for name in (ALL_DATA,) if ALL_DATA in entry.data else entry.data:
                n_counted, total = self._squares.get(name, (0, 0))
                if n_counted < number:
                    self._squares[name] = (number, total + _square(entry))
            self._n_counted = number


def _square_of_event(event: Any) -> float:
    """Return the square of the μ of an event of ``dp-accounting``."""
    kind = type(event).__name__
    if kind == "ComposedDpEvent":
        return math.fsum(map(_square_of_event, event.events)) * _ROUND_UP
    if kind == "SelfComposedDpEvent":
        return check_count("count", event.count, 0) * _square_of_event(event.event) * _ROUND_UP
    if kind == "NoOpDpEvent":
        return 0.0
    if kind != "GaussianDpEvent" or not 1 / _MOST < event.noise_multiplier < _MOST:
        raise ValueError(
            f"An event must be Gaussian with a noise multiplier from {1 / _MOST:g} to {_MOST:g}, "
            f"or a composition of such events: others have no μ. Got {event!r}. Keep account of "
            "it elsewhere."
        )
    return _ROUND_UP / float(event.noise_multiplier) ** 2


def _square(entry: Charge) -> int:
    """Return the square of the μ of a charge as a number of units, rounded up."""
    return math.ceil(
        _UNITS * entry.count * (Fraction(entry.sensitivity) / Fraction(entry.scale)) ** 2
    )


def _sum_of_deltas(charges: Iterable[Charge]) -> Fraction:
    return sum((Fraction(charge.delta) for charge in charges if charge.delta), Fraction())


def _root(square: int) -> float:
    """Return the root of a number of units, rounded up."""
    try:
        return math.sqrt(square / _UNITS) * _ROUND_UP
    except OverflowError:
        return math.inf
