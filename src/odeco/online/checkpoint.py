"""The file of a run, pulled or pushed: its settings and its state, from which it can resume.

A file may come from anyone. Each array is checked by the rule of its field (`odeco._util.state`), the settings as those
of a new run are, and here the relations between settings, solver and sum.
"""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from odeco._util.files import faults_of, load_arrays, save_arrays
from odeco._util.state import (
    State,
    array_field,
    check_names,
    each,
    flag,
    nothing_or,
    part_field,
    plain_settings,
    record,
    require,
    text,
    whole,
)
from odeco.online.batches import N_SEGMENTS, Place, StreamSolver
from odeco.online.block import below
from odeco.online.entries import CoreSolver, EntriesSolver, MomentSolver
from odeco.online.fourth_solver import FourthMomentSolver
from odeco.online.one_pass import DriftSolver, OnePassSolver
from odeco.online.private import Notes
from odeco.online.run import Run, Unit
from odeco.online.settings import Settings
from odeco.online.sums import RowSum, SavedSum
from odeco.online.tree import ALL_ROWS
from odeco.online.weights import check_weight_sum
from odeco.power.power_method import PowerSolver
from odeco.power.solver import Solver
from odeco.power.tracking import Tracker
from odeco.privacy.ledger_file import Account

KIND = "stream run"

_REMEDY = "Resume from another checkpoint, or begin again."

_HEADER = record(
    {
        "settings": plain_settings,
        "seed": whole(),
        "source": nothing_or(text()),
        "account": nothing_or(record({"run": text(), "ledger": text(), "is_private": flag()})),
        "digest": nothing_or(text()),
        "names": nothing_or(each(text())),
    }
)


#: The solvers of streams, one of which a file holds.
SOLVERS: tuple[type[State], ...] = (
    PowerSolver,
    CoreSolver,
    OnePassSolver,
    DriftSolver,
    MomentSolver,
    FourthMomentSolver,
    EntriesSolver,
    Tracker,
)


@dataclass(frozen=True, eq=False)
class SavedRun(State):
    """A run as it is saved; see `Run`. The reader of a file says of which type the notes are."""

    solver: Solver = part_field(*SOLVERS)
    sum: SavedSum = part_field(SavedSum)
    n_closed: int = array_field(kind="i", low=0)
    place: Place = part_field(Place)
    notes: Any = part_field(default=None)

    @classmethod
    def of(cls, run: Run, *, keep_sum: bool = True) -> SavedRun:
        """Return a run, to be saved. Without the sum, rows of the unfinished batch count as not used."""
        total = run.total if keep_sum else run.mean.sum_for(run.state)
        return cls(run.state, total.saved, run.n_closed, run.place, run.notes)

    @property
    def dimension(self) -> int:
        """The number of columns."""
        return int(self.solver.probes.shape[0])


@dataclass(frozen=True)
class RunFile:
    """The contents of the file of a run.

    Attributes
    ----------
    settings : Settings
        The settings of the run.
    seed : int
        Draws its starts.
    source : str or None
        The fingerprint of the data that it pulls; None if rows are pushed.
    account : dict or None
        Where the ledger of a private run is.
    run : SavedRun or None
        The state of the run; None before the first rows.
    weights : SavedSum or None
        The sums of the weights of rows that are pushed, if they have weights.
    digest : str or None
        The checksum of the rows read in the current pass, if `source` does not identify the data.
    names : tuple of str or None
        The names of the columns of rows that are pushed, if they have names.
    path : path or None
        The file that was read.
    """

    settings: Settings
    seed: int
    source: str | None = None
    account: dict[str, Any] | None = None
    run: SavedRun | None = None
    weights: SavedSum | None = None
    digest: str | None = None
    names: tuple[str, ...] | None = None
    path: Path | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, atomically and without pickle; only its owner may read it."""
        header = {name: getattr(self, name) for name in ("seed", "source", "account", "digest", "names")}
        arrays = {} if self.run is None else self.run.to_arrays("run")
        arrays |= {} if self.weights is None else self.weights.to_arrays("weights")
        save_arrays(path, KIND, {**header, "settings": asdict(self.settings)}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RunFile:
        """Read what `save` wrote."""
        header, arrays = load_arrays(path, KIND)
        with faults_of(path, _REMEDY):
            _HEADER(header, "", {})
            settings, names = Settings(**header.pop("settings")), header.pop("names")
            run = weights = None
            if arrays:
                notes = Notes if settings.private else Unit
                run = SavedRun.from_arrays(arrays, "run", parts={"notes": notes})
                if SavedSum.is_in(arrays, "weights"):
                    weights = SavedSum.from_arrays(arrays, "weights")
                check_names(arrays, {"run": run, "weights": weights})
            columns = None if names is None else tuple(names)
            file = cls(settings, **header, run=run, weights=weights, names=columns, path=Path(path))
            file._check()
        return file

    def resume(self, account: Account | None = None) -> Run | None:
        """Return the run as it was saved; None if it had not begun."""
        saved, settings = self.run, self.settings
        if saved is None:
            return None
        with faults_of(self.path or "", _REMEDY):
            mean = settings.mean(saved.dimension, account)
            position: Any = {"n_closed": saved.n_closed, "place": saved.place, "notes": saved.notes}
            run = Run(saved.solver, settings.batches(), mean, **position)
            run.total.restore(saved.sum)
        return run

    def _check(self) -> None:
        """Raise `ValueError` unless settings, solver and sum are those of one run."""
        settings, run = self.settings, self.run
        private = settings.private
        require(private == (self.account is not None), "a private run must have an account, and no other may")
        require(settings.n_passes is None or self.source is not None, "rows that are pushed are read once")
        if run is not None:
            require(self.names is None or len(self.names) == run.dimension, "every column must have one name, or none")
            _check_solver(settings, run)
            _check_sum(settings, run)
            if self.weights is not None:
                settings.check_can_be_weighted(run.dimension)
                require(not private, "rows of a private run have no weights")
                n_rows = run.n_closed + run.sum.n_rows
                require(self.weights.n_rows == n_rows, "its weights must be those of its rows")
                check_weight_sum(self.weights)


def _check_solver(settings: Settings, run: SavedRun) -> None:
    """Require the solver that a run with these settings has."""
    solver: Any = run.solver
    begun = settings.search(run.dimension, 0)
    tracks = settings.n_passes not in (None, 1) or not isinstance(begun, StreamSolver)
    expected = type(solver) is type(begun) or (tracks and isinstance(solver, Tracker))
    require(expected, "its solver must be that of its method")
    require(solver.order == settings.order, "its solver must be of the order of the run")
    if not settings.automatic:
        holder = {PowerSolver: "schedule", Tracker: "components"}.get(type(solver))
        given = solver if holder is None else getattr(solver, holder)
        require(given.n_components == settings.n_components, "its solver must be for the components of the run")
    if isinstance(begun, OnePassSolver) and isinstance(solver, OnePassSolver):
        require(solver.in_passes == begun.in_passes, "it must wait for passes where there are some")
        require(solver.memory == begun.memory, "its memory must be that of its settings")
    if isinstance(begun, DriftSolver) and isinstance(solver, DriftSolver):
        settled = (solver.forgetting, solver.batch_rows) == (begun.forgetting, begun.batch_rows)
        require(settled, "it must forget as its settings say")


def _check_sum(settings: Settings, run: SavedRun) -> None:
    """Require a sum for the query of the solver, with fewer rows than a batch."""
    held, solver, length = run.sum, run.solver, run.place.length
    query: Any = solver.query
    width = run.dimension if held.buffer is None else held.buffer.dimension
    require(width == run.dimension, "rows that wait must be as wide as all")
    thinned = settings.n_passes not in (None, 1) and solver.query == "rows"
    require(len(held.places) == (held.n_waiting if thinned else 0), "rows that are kept must have a number each")
    require(bool(below(held.places, held.threshold).all()), "their numbers must be those selected")
    quantized = held.buffer is not None and held.buffer.quantized
    require(thinned or not quantized, "only the sample of a pass is quantized while it is collected")
    if solver.query == "rows":
        require(not held.levels, "rows that are kept have no sum")
    else:
        require(held.threshold == ALL_ROWS, "only rows that are kept are thinned")
        shape = RowSum(query, solver.probes, solver.order).shape
        for level in held.levels:
            # A private run merges probes that have converged to the same vector.
            merged = settings.private and level.ndim == 2 and 1 <= level.shape[1] <= shape[-1]
            fits = level.shape == shape or (merged and level.shape[0] == shape[0])
            require(fits, "its sum must be that of its query")
    # A batch is closed as soon as it is complete: without room left, pushing rows would never end.
    room = settings.batch_size
    if room is None and isinstance(solver, Tracker) and length is not None:
        room = math.ceil(length / N_SEGMENTS)
    if isinstance(solver, StreamSolver) and settings.n_passes in (None, 1):
        room = solver.n_rows_wanted
    require(room is None or held.n_rows < room, "its sum must hold fewer rows than a batch")
