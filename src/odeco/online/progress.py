"""The progress of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes
    ----------
    stage : str
        The current step: ``"component 2 of 3"``, ``"finding the span"``, ``"core"``,
        ``"refining"``.
    fraction : float
        The share of the rows that the solver needs; 1 once it refines.
    n_rows : int
        Rows used so far.
    n_rows_needed : int or None
        Rows that are still needed for a first result; None if the length of a pass is unknown.
    """

    stage: str
    fraction: float
    n_rows: int
    n_rows_needed: int | None

    def ahead(self, n_rows: int) -> Progress:
        """Return the progress with `n_rows` rows that workers have added up and the run has not
        taken yet.
        """
        if not n_rows:
            return self
        needed = None if self.n_rows_needed is None else max(0, self.n_rows_needed - n_rows)
        share = self.fraction
        if needed is not None and self.n_rows_needed:
            share += (1 - share) * min(1.0, n_rows / self.n_rows_needed)
        return replace(self, n_rows=self.n_rows + n_rows, n_rows_needed=needed, fraction=share)
