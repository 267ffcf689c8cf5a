"""A search and the rows it is fed: the piece that pulling and pushing share.

A search asks one question at a time. The driver adds up what the question needs over rows; `close` hands the mean to
the search, which answers with its next question. When a batch is closed is up to whoever drives.
"""

from __future__ import annotations

from typing import Any, Literal

from odeco._types import FloatArray
from odeco.components import Components
from odeco.errors import NothingFoundError, StreamEndedError
from odeco.rows import RowSum
from odeco.search import CoreSearch, Search, Tracking

State = Search | CoreSearch | Tracking
_STATES: dict[str, Any] = {"power": Search, "core": CoreSearch, "tracking": Tracking}


class Driver:
    """A search (or a `Tracking`) together with the sum over rows that its question needs.

    Attributes
    ----------
    state : Search, CoreSearch or Tracking
        Who asks.
    sum : RowSum
        What the current question has got so far.
    n_closed : int
        Rows of the questions that are answered.
    """

    def __init__(self, state: State) -> None:
        self.n_closed = 0
        self.switch(state)

    @property
    def n_rows(self) -> int:
        """Rows taken in altogether."""
        return self.n_closed + self.sum.n_rows

    def switch(self, state: State, *, n_closed: int | None = None) -> None:
        """Go on with another state, and an empty sum for its question; rows that were in the old one are let go of."""
        question: Literal["core", "image"] = "core" if state.question == "core" else "image"
        # In one step: an interrupt finds either the old state with its sum, or the new one with its own.
        self.state, self.sum, self.n_closed = (
            state,
            RowSum(question, self._asked(state), state.order),
            self.n_closed if n_closed is None else n_closed,
        )

    def _asked(self, state: State) -> FloatArray:
        """Return the block that rows are asked about."""
        return state.candidates

    def take(self, rows: Any) -> None:
        """Add rows to the current question. If one is not finite, none is used."""
        self.sum.update(rows)

    def close(self) -> None:
        """Answer the current question with the mean over its rows. If that fails, they count as not taken."""
        n_rows = self.sum.n_rows
        try:
            answer: FloatArray = self.sum.finish()
            state = self.state
            after = state.advance(answer, n_rows) if isinstance(state, Tracking) else state.advance(answer)
        except BaseException:
            self.switch(self.state)
            raise
        self.switch(after, n_closed=self.n_closed + n_rows)

    @property
    def found(self) -> Components | None:
        """The components found so far, or None."""
        if isinstance(self.state, Search):
            return self.state.components if self.state.found else None
        return self.state.components if isinstance(self.state, Tracking) else self.state.found

    @property
    def components(self) -> Components:
        """The components found so far."""
        if self.found is None:
            raise RuntimeError("A driver has components only once its search has found some.")
        return self.found

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return everything as a JSON header and named arrays."""
        name = next(name for name, kind in _STATES.items() if isinstance(self.state, kind))
        header, arrays = self.state.to_arrays()
        named = {f"state_{key}": value for key, value in arrays.items()}
        named |= {f"sum_{key}": value for key, value in self.sum.to_arrays().items()}
        return {"state": name, "state_header": header, "n_rows": self.n_rows}, named

    @classmethod
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, Any]) -> Driver:
        """Return the driver that `to_arrays` described."""
        driver = cls(state_from_arrays(header, arrays))
        driver.restore(header, arrays)
        return driver

    def restore(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Take up what `to_arrays` described, but for the state."""
        self.sum.restore(without_prefix("sum_", arrays))
        self.n_closed = header["n_rows"] - self.sum.n_rows


def state_from_arrays(header: dict[str, Any], arrays: dict[str, Any]) -> State:
    """Return the state that `Driver.to_arrays` described."""
    state: State = _STATES[header["state"]].from_arrays(header["state_header"], without_prefix("state_", arrays))
    return state


def without_prefix(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def nothing_found_error(n_rows: int, n_rows_needed: int | None) -> NothingFoundError:
    """Say that a result was asked for too early."""
    needed = "Push rows with partial_fit first." if n_rows_needed is None else f"All take {n_rows_needed:,} rows."
    return NothingFoundError(f"At least one component must be finished. None is after {n_rows:,} rows. {needed}")


def stream_ended_error(n_batches: int, n_needed: int, plan: str, found: Components | None) -> StreamEndedError:
    """Say that a stream was too short for its plan, and what was found all the same."""
    k = 0 if found is None else found.n_components
    verb = ("was", "it is") if k == 1 else ("were", "they are")
    so_far = (
        f"{_counted(k, 'component')} {verb[0]} found; {verb[1]} in `error.found`." if k else "No component was found."
    )
    return StreamEndedError(
        f"The stream ended after {n_batches:,} of the {n_needed:,} batches this plan needs ({plan}). {so_far} "
        "Pass more rows, or a smaller batch_size.",
        found,
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
