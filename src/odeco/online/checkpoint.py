"""The file of a run, pulled or pushed: what was asked for and the state, from which it can resume.

A file may come from anyone. Each array is checked by the rule of its field (`odeco._util.state`),
the arguments as for a new run, only the states of the method are read, and each state checks the
relations between its fields.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odeco._util.files import faults_of, load_arrays, save_arrays
from odeco._util.state import (
    State,
    check_names,
    each,
    flag,
    nothing_or,
    plain_settings,
    record,
    require,
    text,
    whole,
)
from odeco.online.methods import plan_for, plans
from odeco.online.run import Run
from odeco.online.solver import Plan, Solver, Where

KIND = "stream run"

_REMEDY = "Resume from another checkpoint, or begin again."

_HEADER = record(
    {
        "method": text(),
        "arguments": plain_settings,
        "where": record(
            {"dimension": whole(), "seed": whole(), "pulled": flag(), "repeatable": flag()}
        ),
        "state": nothing_or(text()),
        "source": nothing_or(text()),
        "account": nothing_or(record({"run": text(), "ledger": text(), "is_private": flag()})),
        "digest": nothing_or(text()),
        "names": nothing_or(each(text())),
    }
)

#: The facts that a file keeps for the caller.
_FACTS = ("source", "account", "digest", "names")


@dataclass(frozen=True)
class RunFile:
    """The contents of the file of a run.

    Attributes
    ----------
    method : str
        The method that was asked for.
    arguments : mapping
        The arguments that were given.
    where : Where
        What is known of the rows; without columns before the first of them.
    run : Run or None
        The state of the run; None before the first rows.
    source : str or None
        The fingerprint of the data that it pulls; None if rows are pushed.
    account : dict or None
        Where the ledger of a private run is.
    digest : str or None
        The checksum of the rows read in the current pass, if `source` does not identify the data.
    names : tuple of str or None
        The names of the columns of rows that are pushed, if they have names.
    """

    method: str
    arguments: Mapping[str, Any]
    where: Where
    run: Run | None = None
    source: str | None = None
    account: dict[str, Any] | None = None
    digest: str | None = None
    names: tuple[str, ...] | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, atomically and without pickle; only its owner may read it."""
        header = {name: getattr(self, name) for name in ("method", *_FACTS)}
        header |= {"arguments": dict(self.arguments), "where": self.where._asdict(), "state": None}
        arrays = {}
        if self.run is not None:
            header["state"] = type(self.run.solver).__name__
            arrays = self.run.to_arrays("run") | self.run.solver.to_arrays("solver")
        save_arrays(path, KIND, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RunFile:
        """Read what `save` wrote."""
        header, arrays = load_arrays(path, KIND)
        with faults_of(path, _REMEDY):
            require(
                "settings" not in header,
                "it was written by odeco 0.2 or earlier, whose runs were saved otherwise",
            )
            _HEADER(header, "", {})
            where = Where(**header["where"])
            made = plans(header["method"], header["arguments"])
            require(
                (header["account"] is not None) == made[0].private,
                "a private run must have an account, no other",
            )
            require(
                (header["source"] is not None) == where.pulled,
                "rows that are pushed have no source",
            )
            run = None
            if header["state"] is not None:
                plan, _ = plan_for(made, where, asked=header["method"] != "auto")
                run = _run_from(plan, header["state"], arrays)
            names = header["names"]
            fits = names is None or run is None or len(names) == where.dimension
            require(fits, "every column must have one name, or none")
            facts = {name: header[name] for name in _FACTS}
            facts["names"] = None if names is None else tuple(names)
            return cls(header["method"], header["arguments"], where, run, **facts)


def _run_from(plan: Plan, state: str, arrays: Mapping[str, Any]) -> Run:
    """Return a run of a plan from the arrays of a file."""
    kinds = {kind.__name__: kind for kind in plan.states}
    require(state in kinds, "its solver must be that of its method")
    solver: Solver = kinds[state].from_arrays(arrays, "solver", parts={"plan": plan})
    run = Run.from_arrays(arrays, "run", parts={"solver": solver})
    known: dict[str, State | None] = {"run": run, "solver": solver}
    check_names(arrays, known)
    return run
