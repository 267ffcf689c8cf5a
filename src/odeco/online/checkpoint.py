"""The file of a run, pulled or pushed: its settings and its state, from which it can resume.

A file may come from anyone, so every name, type, shape and range is checked, and the relations between them.
"""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odeco._util.files import faults_of, load_arrays, save_arrays
from odeco._util.schema import (
    Sizes,
    array,
    each,
    flag,
    nothing_or,
    number,
    one_of,
    record,
    require,
    size,
    tensor_order,
    text,
    unit_vectors,
    usable_array,
    whole,
)
from odeco._util.state import check_names
from odeco.online.block import LARGEST_CODE
from odeco.online.drift import DriftSolver
from odeco.online.entries import N_SEGMENTS, StreamSolver
from odeco.online.one_pass import OnePassSolver
from odeco.online.run import KINDS, Run
from odeco.online.settings import METHODS, MOMENTS, Settings
from odeco.online.sums import MOST_LEVELS, RowSum
from odeco.online.thinning import ALL_ROWS, below
from odeco.power.solver import Solver
from odeco.power.tracking import Tracker
from odeco.privacy.ledger_file import Account


def _number_or_auto(value: Any, where: str, sizes: Sizes) -> None:
    if value != "auto":
        whole(1)(value, where, sizes)


#: The settings. Whether they go together is checked where they are made.
_SETTINGS = record(
    {
        "n_components": _number_or_auto,
        "method": one_of(*METHODS),
        "batch_size": nothing_or(whole(1)),
        "n_restarts": nothing_or(whole(1)),
        "n_iterations": nothing_or(whole(1)),
        "n_passes": nothing_or(whole(1)),
        "order": tensor_order(),
        "memory": number(0, 2**40),
        "forgetting": number(0, 1),
        "epsilon": nothing_or(number(0)),
        "delta": nothing_or(number(0, 1)),
        "norm_bound": nothing_or(number(0)),
        "neighbour_relation": one_of(None, "replace", "add_remove"),
    },
    {"moment": one_of(*MOMENTS)},  # files of earlier versions have raw moments
)

_PLACE = record({"row": whole(), "n_refined": whole(), "length": nothing_or(whole(1)), "ended": flag()})

_RUN = {"state": one_of(*KINDS), "dimension": size("d"), "n_rows": whole(), "place": _PLACE}

_ACCOUNT = record({"run": text(), "ledger": text(), "is_private": flag()})


#: A sum up to this size leaves room for the rows of many more chunks.
_MOST = 2.0**1000

#: The sum over the rows of the current batch, level by level of its tree, and the buffer of rows, of any kind.
_SUM = {
    "n_rows": array(kind="i", low=0),
    "threshold": array(kind="i", low=1, high=ALL_ROWS),
    "places": array(None, kind="i", low=0),
}

_LEVELS = tuple(f"level{level}" for level in range(MOST_LEVELS))

_DENSE_ROWS = {"rows": array("waiting", "d", kind="rows")}

_QUANTIZED_ROWS = {
    "codes": array("waiting", "d", kind="i", low=-LARGEST_CODE, high=LARGEST_CODE),
    "scales": array("waiting", kind="rows", low=0, high=1e300),
}

_CSR_ROWS = {
    "data": array("stored", kind="rows"),
    "indices": array("stored", kind="i", low=0),
    "indptr": array(None, kind="i", low=0),
    "shape": array(None, kind="i", low=0),
}

#: What is carried from batch to batch: the unit of an open run; the last release and the components of a private run.
_OPEN_NOTES = {"exponent": array(kind="i", low=-2000, high=2000)}

_LAST = {
    "last_block": usable_array("d", None),
    "last_n_rows": array(kind="i", low=1),
    "last_scale": usable_array(low=0),
    "last_question": array(kind="U"),
}

_FOUND = {
    "weights": usable_array("n_found"),
    "vectors": unit_vectors("d", "n_found"),
    **dict.fromkeys(("weight_errors", "angle_errors", "noise_floors"), usable_array("n_found", low=0)),
}


def check_run_file(header: dict[str, Any], arrays: dict[str, Any]) -> Settings:
    """Return the settings of a run file; raise `ValueError` unless all of it is as a run writes it."""
    rules = {"seed": whole(), "source": nothing_or(text()), "account": nothing_or(_ACCOUNT), "settings": _SETTINGS}
    record({**rules, "digest": nothing_or(text()), "run": _anything}, {"names": each(text())})(header, "", {})
    settings = Settings(**header["settings"])
    private = settings.guarantee is not None
    require(private == (header["account"] is not None), "a private run must have an account, and no other may")
    require(settings.n_passes is None or header["source"] is not None, "rows that are pushed are read once")
    if header["run"] is None:
        require(not arrays, "a run that has not begun must hold no array")
    else:
        _check_run(settings, header["run"], arrays)
        names = header.get("names")
        require(names is None or len(names) == header["run"]["dimension"], "every column must have one name, or none")
    return settings


def _anything(value: Any, where: str, sizes: Sizes) -> None:
    """Require nothing: the value is checked elsewhere."""


def _check_run(settings: Settings, run: Any, arrays: dict[str, Any]) -> None:
    sizes: Sizes = {}
    record(_RUN)(run, "run", sizes)
    state: Any = KINDS[run["state"]].from_arrays(arrays, "state", sizes)
    check_names({name: value for name, value in arrays.items() if name.startswith("state.")}, {"state": state})
    groups: dict[str, dict[str, Any]] = {"sum": {}, "notes": {}}
    for name, value in arrays.items():
        prefix, _, rest = name.partition("_")
        require(
            prefix in groups or name.startswith("state."), f"`{name}` must belong to the state, the sum or the notes"
        )
        groups.get(prefix, {})[rest] = value
    begun = settings.search(run["dimension"], 0)
    tracks = settings.n_passes not in (None, 1) or not isinstance(begun, StreamSolver)
    expected = type(state) is type(begun) or (tracks and isinstance(state, Tracker))
    require(expected, "its solver must be that of its method")
    require(state.order == settings.order, "its solver must be of the order of the run")
    if not settings.automatic:
        solvers = {"power": lambda: state.schedule, "tracking": lambda: state.components}
        given = solvers.get(run["state"], lambda: state)().n_components
        require(given == settings.n_components, "its solver must be for the components of the run")
    if isinstance(begun, OnePassSolver) and isinstance(state, OnePassSolver):
        require(state.in_passes == begun.in_passes, "it must wait for passes where there are some")
        require(state.memory == begun.memory, "its memory must be that of its settings")
    if isinstance(begun, DriftSolver) and isinstance(state, DriftSolver):
        settled = (state.forgetting, state.batch_rows) == (begun.forgetting, begun.batch_rows)
        require(settled, "it must forget as its settings say")
    _check_sum(settings, run, state, groups["sum"], sizes)
    _check_notes(settings, groups["notes"], sizes)


def _check_sum(settings: Settings, run: dict[str, Any], state: Solver, held: dict[str, Any], sizes: Sizes) -> None:
    kinds = {"data": _CSR_ROWS, "rows": _DENSE_ROWS, "codes": _QUANTIZED_ROWS}
    rows = next((rules for name, rules in kinds.items() if name in held), {})
    record({**_SUM, **rows}, dict.fromkeys(_LEVELS, _anything))(held, "sum", sizes)
    n_held, place = int(held["n_rows"]), run["place"]
    require(n_held <= run["n_rows"], "its sum must hold no more rows than were taken in")
    if "data" in held:
        require(
            len(held["shape"]) == 2 and int(held["shape"][1]) == sizes["d"], "rows that wait must be as wide as all"
        )
        sizes["waiting"] = int(held["shape"][0])
        require(len(held["indptr"]) == sizes["waiting"] + 1, "rows that wait must have a pointer each")
    require(sizes.get("waiting", 0) <= n_held, "no more rows may wait than were taken in")
    places = held["places"]
    thinned = settings.n_passes not in (None, 1) and state.query == "rows"
    require(len(places) == (sizes.get("waiting", 0) if thinned else 0), "rows that are kept must have a number each")
    require(thinned or "codes" not in held, "only the sample of a pass is quantized while it is collected")
    increasing = bool(np.all(np.diff(places) > 0)) and (not len(places) or int(places[-1]) < n_held)
    chosen = bool(below(places, int(held["threshold"])).all())
    require(increasing and chosen, "their numbers must be those selected")
    for level in _LEVELS:
        if level in held:
            _check_total(settings, state, held[level], sizes)
    # A batch is closed as soon as it is complete: without room left, pushing rows would never end.
    room = settings.batch_size
    if room is None and run["state"] == "tracking" and place["length"] is not None:
        room = math.ceil(place["length"] / N_SEGMENTS)
    if isinstance(state, StreamSolver) and settings.n_passes in (None, 1):
        room = state.n_rows_wanted
    require(room is None or n_held < room, "its sum must hold fewer rows than a batch")
    if state.query != "rows":
        require(int(held["threshold"]) == ALL_ROWS, "only rows that are kept are thinned")
    require(place["length"] is None or place["row"] <= place["length"], "its place must lie within a pass")


def _check_total(settings: Settings, state: Solver, total: Any, sizes: Sizes) -> None:
    """Require a sum of the shape of its query."""
    require(state.query != "rows", "rows that are kept have no sum")
    if state.query in ("entries", "pairs"):
        expected = RowSum(state.query, state.probes, state.order).shape
        array(*[None] * len(expected), low=-_MOST, high=_MOST)(total, "sum.sum", sizes)
        require(total.shape == expected, "its sum must have all moments")
        return
    shape = ("m",) * settings.order if state.query == "core" else ("d", None)
    array(*shape, low=-_MOST, high=_MOST)(total, "sum.sum", sizes)
    n_probes, width = state.probes.shape[1], total.shape[1]
    exact = settings.guarantee is None  # a private run merges probes that have converged to the same vector
    require(width == n_probes if exact else 1 <= width <= n_probes, "its sum must be that of its query")


def _check_notes(settings: Settings, notes: dict[str, Any], sizes: Sizes) -> None:
    if settings.guarantee is None:
        record({}, _OPEN_NOTES)(notes, "notes", sizes)
        return
    rules = {**(_LAST if "last_block" in notes else {}), **(_FOUND if "weights" in notes else {})}
    record(rules, {"dense": array(kind="b")})(notes, "notes", sizes)


KIND = "stream run"

_REMEDY = "Resume from another checkpoint, or begin again."


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
    run : dict or None
        The state of the run, in JSON; None before the first rows.
    arrays : dict
        The arrays that belong to `run`.
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
    run: dict[str, Any] | None = None
    arrays: dict[str, Any] | None = None
    digest: str | None = None
    names: tuple[str, ...] | None = None
    path: Path | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, atomically and without pickle; only its owner may read it."""
        header = {name: getattr(self, name) for name in ("seed", "source", "digest", "account", "run")}
        if self.names is not None:
            header["names"] = list(self.names)
        save_arrays(path, KIND, {**header, "settings": asdict(self.settings)}, self.arrays or {})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RunFile:
        """Read what `save` wrote."""
        header, arrays = load_arrays(path, KIND)
        with faults_of(path, _REMEDY):
            settings = check_run_file(header, arrays)
        names = ("seed", "source", "account", "run", "digest")
        columns = header.get("names")
        return cls(
            settings,
            **{name: header[name] for name in names},
            arrays=arrays,
            names=None if columns is None else tuple(columns),
            path=Path(path),
        )

    def resume(self, account: Account | None = None, *, stops_when_found: bool = False) -> Run | None:
        """Return the run as it was saved; None if it had not begun."""
        if self.run is None or self.arrays is None:
            return None
        with faults_of(self.path or "", _REMEDY):
            return self.settings.resume(self.run, self.arrays, account, stops_when_found=stops_when_found)
