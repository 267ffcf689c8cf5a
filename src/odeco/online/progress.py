"""How far a run is, and what it says when it cannot go on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from odeco.errors import NothingFoundError, StreamEndedError
from odeco.tensors.components import Components


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes
    ----------
    stage : str
        What is being done, in words: ``"component 2 of 3"``, ``"finding the span"``, ``"core"``, ``"refining"``.
    fraction : float
        Share of the rows that the search needs, 1 once it refines.
    n_rows : int
        Rows taken in so far.
    n_rows_needed : int or None
        Rows that are still needed for a first result; None where a batch is a pass of unknown length.
    """

    stage: str
    fraction: float
    n_rows: int
    n_rows_needed: int | None

    def ahead(self, n_rows: int) -> Progress:
        """Return the same with rows that others have done, and that have not been taken in yet."""
        if not n_rows:
            return self
        needed = None if self.n_rows_needed is None else max(0, self.n_rows_needed - n_rows)
        share = self.fraction
        if needed is not None and self.n_rows_needed:
            share += (1 - share) * min(1.0, n_rows / self.n_rows_needed)
        return replace(self, n_rows=self.n_rows + n_rows, n_rows_needed=needed, fraction=share)


def nothing_found_error(n_rows: int, n_rows_needed: int | None) -> NothingFoundError:
    """Say that a result was asked for too early."""
    needed = "Push rows with partial_fit first." if n_rows_needed is None else f"All take {n_rows_needed:,} rows."
    return NothingFoundError(f"At least one component must be finished. None is after {n_rows:,} rows. {needed}")


def stream_ended_error(n_batches: int, n_needed: int, plan: str, found: Components) -> StreamEndedError:
    """Say that a stream was too short for its plan, and what was found all the same."""
    k = found.n_components
    so_far = "No component was found."
    if k:
        so_far = f"{k} component{'' if k == 1 else 's'} {'was' if k == 1 else 'were'} found; "
        so_far += f"{'it is' if k == 1 else 'they are'} in `error.found`."
    return StreamEndedError(
        f"The stream ended after {n_batches:,} of the {n_needed:,} batches this plan needs ({plan}). {so_far} "
        "Pass more rows, or a smaller batch_size.",
        found if k else None,
    )
