"""``odeco decompose``: the components of a tensor in a file, or of the moment of rows in files,
open or private.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

import odeco
from odeco.cli import options as _options
from odeco.cli.app import Interrupted, Interrupts, Terminated, command_line
from odeco.cli.flow import connected, limited, stages
from odeco.cli.inputs import (
    Given,
    check_private_files,
    check_selection,
    load_groups,
    load_names,
    load_tensor,
)
from odeco.cli.options import Command, OutputFile, Section, check_usage, given_options, option
from odeco.cli.output import (
    Output,
    columns_called,
    deliver,
    note,
    print_json,
    print_text,
    result_document,
    write_result_table,
)
from odeco.cli.privacy import Request, agree_to_spend, spent_sentence
from odeco.decompose.files import AnyResult, save_result
from odeco.io.coerce import as_source
from odeco.io.source import Selection
from odeco.io.text_rows import CsvStream
from odeco.privacy.holders.protocol import Unit
from odeco.privacy.sources import open_private
from odeco.private.mechanisms import MECHANISMS
from odeco.private.recipe import default_neighbours, neighbours_of

#: What an open run passes to the library if it is given: for a tensor, and for rows.
_OF_TENSOR = ("method", "n_restarts", "n_iterations")
_OF_ROWS = (
    *(
        "method",
        "memory",
        "batch_size",
        "n_restarts",
        "n_iterations",
        "n_passes",
        "order",
        "moment",
    ),
    *("columns", "drop", "checkpoint", "checkpoint_seconds"),
)

#: What a plan depends on, and what else a private run gets.
_PLANNED = ("norm_bound", "entry_change", "n_restarts", "n_iterations", "nonnegative")
_OF_PRIVATE = (*_PLANNED, "order", "mechanism", "entry_limit")

#: A file that grows is looked at again after this number of seconds.
_POLL_SECONDS = 0.2

_METHOD = option(
    "--method",
    type=click.Choice(["cp", "power", "core", "entries"]),
    help="Of a tensor: cp fits all components together, orthogonal or not; power is Algorithm 1, "
    "for orthogonal ones. "
    "Of rows: core searches a sample and refines with all rows; entries adds up the whole "
    "moment; power is Algorithm "
    "2. By default the one that suits.",
)

SECTIONS = (
    Section(
        "Components",
        (
            option(
                *("-k", "--n-components"),
                metavar="K",
                callback=_options.read_number,
                required=True,
                help="Number of components; 'auto' keeps those that stand clear of the noise.",
            ),
            _METHOD,
            option(
                "--n-restarts",
                type=int,
                metavar="L",
                help="Candidates per component (the paper's L).",
            ),
            option(
                "--n-iterations",
                type=int,
                metavar="R",
                help="Iterations per candidate (the paper's R).",
            ),
        ),
    ),
    Section(
        "A tensor",
        (
            option(
                "--symmetrize",
                is_flag=True,
                help="Average over all permutations of the axes first.",
            ),
            option(
                "--asymmetric",
                is_flag=True,
                help="Decompose a d1 x d2 x … tensor into terms a ⊗ b ⊗ ….",
            ),
            option("--key", metavar="NAME", help="Which array of a .npz archive."),
        ),
    ),
    Section(
        "Rows",
        (
            option(
                "--rows",
                is_flag=True,
                help="FILEs hold rows: decompose their moment, read block by block.",
            ),
            option("--order", type=int, metavar="P", help="Order of the moment; 3 by default."),
            option(
                "--moment",
                type=click.Choice(["raw", "cumulant"]),
                help="cumulant: independent sources in Gaussian noise, whatever their mean; with "
                "--order 4 also more "
                "than columns.",
            ),
            _options.COLUMNS,
            _options.DROP,
            option(
                "--follow",
                is_flag=True,
                help="Read a .csv FILE that grows, until Ctrl-C; then print the result.",
            ),
            option(
                "--n-passes",
                type=int,
                metavar="N",
                help="How often FILEs are read; 1 reads them as a stream.",
            ),
            option(
                "--memory",
                type=float,
                metavar="MB",
                help="Megabytes for rows that are kept and their matrices.",
            ),
            option(
                "--batch-size", type=int, metavar="N", help="Rows per image, for --method power."
            ),
            option(
                "--checkpoint",
                type=_options.UPDATED,
                metavar="FILE",
                help="Save the state of the run in this file.",
            ),
            option(
                "--checkpoint-seconds",
                type=float,
                metavar="S",
                help="Seconds between checkpoints; 30 by default.",
            ),
            option("--resume", is_flag=True, help="Continue from the checkpoint, if there is one."),
            _options.SCHEDULER,
        ),
        needs="--rows",
    ),
    Section(
        "Privacy",
        (
            _options.EPSILON,
            _options.DELTA,
            _options.NORM_BOUND,
            _options.GROUPS,
            option(
                "--mechanism",
                type=click.Choice(list(MECHANISMS)),
                help="By default the one that the plan predicts to be best. "
                + " ".join(f"{each.name}: {each.summary}" for each in MECHANISMS.values()),
            ),
            option(
                "--entry-change",
                type=float,
                help="Of a tensor: largest change of one entry; 1 by default.",
            ),
            option(
                "--entry-limit",
                type=float,
                help="Of a tensor: larger entries are cut off at this value.",
            ),
            option(
                "--nonnegative",
                is_flag=True,
                help="Set negative numbers of rows to 0: less noise is needed.",
            ),
            _options.HEADER,
            _options.DIMENSION,
            *_options.SPENDING,
        ),
        needs="--epsilon",
    ),
    Section(
        "Output",
        (
            option(
                "--out",
                type=OutputFile(suffixes=(".npz", ".csv")),
                metavar="FILE",
                help="Write the result: all of it as .npz, or a table as .csv.",
            ),
            _options.REPORT,
            _options.NAMES,
            _options.JSON,
        ),
    ),
    _options.general(_options.SEED, _options.THREADS),
)


def run(files: tuple[Path, ...], **given: Any) -> None:
    """Decompose, and deliver the result."""
    _check_usage(files, given)
    with limited(given["threads"]):
        if given["epsilon"] is not None:
            _run_private(files, given)
        elif given["rows"]:
            _run_stream(files, given)
        else:
            _run_tensor(files[0], given)


def _check_usage(files: tuple[Path, ...], given: Given) -> None:
    """Raise if options contradict each other, or if one is missing."""
    named = [f"--{name.replace('_', '-')}" for name in given_options()]
    tensor = [name for name in named if name in ("--symmetrize", "--asymmetric", "--key")]
    open_only = (
        "--method",
        "--symmetrize",
        "--asymmetric",
        "--moment",
        "--memory",
        "--batch-size",
        "--n-passes",
    )
    refused = [
        name
        for name in named
        if name in (*open_only, "--checkpoint", "--resume", "--columns", "--drop")
    ]
    of_tensor = [name for name in named if name in ("--entry-change", "--entry-limit")]
    of_rows = [
        name for name in named if name in ("--norm-bound", "--groups", "--nonnegative", "--header")
    ]
    private = given["epsilon"] is not None
    rows = given["rows"]
    check_usage(
        {
            f"{_first(tensor)} is about a tensor, and --rows about rows. Pass one of them.": rows
            and tensor,
            "A tensor is one FILE. For rows in several FILEs pass --rows.": not rows
            and len(files) > 1,
            "--asymmetric does not go with --symmetrize.": given["asymmetric"]
            and given["symmetrize"],
            (
                "--names is for the one axis of a symmetric tensor, and does not go with "
                "--asymmetric."
            ): given["asymmetric"] and given["names"],
            "--follow reads one FILE of --rows, once, and without --checkpoint or --scheduler.": (
                given["follow"]
                and (
                    not rows
                    or len(files) > 1
                    or given["n_passes"] not in (None, 1)
                    or given["checkpoint"] is not None
                    or given["scheduler"] is not None
                )
            ),
            "--resume needs --checkpoint FILE, the file to go on from.": given["resume"]
            and not given["checkpoint"],
            f"{_first(refused)} is not for private runs. Leave it out.": private and refused,
            f"{_first(of_tensor)} is about a private tensor. Leave it out.": private
            and rows
            and of_tensor,
            f"{_first(of_rows)} is about private rows. Pass --rows too.": private
            and not rows
            and of_rows,
            "A private run needs both --epsilon and --delta. Choose δ far below 1 / number of "
            "records, such as 1e-6.": private and given["delta"] is None,
            "A private run needs a number: choosing one would look at the data. Pass -k.": private
            and given["n_components"] == "auto",
            (
                "Private rows need --norm-bound B, the largest norm of a row, known without the "
                "data, or auto."
            ): private and rows and given["norm_bound"] is None,
        }
    )


def _first(names: list[str]) -> str:
    return names[0] if names else ""


def _of(given: Given, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the options that were given, as arguments of the library."""
    return {
        name: given[name] for name in names if given[name] is not None and given[name] is not False
    }


def _title(files: tuple[Path, ...], private: bool = False) -> str:
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"{'Private components' if private else 'Components'} of {files[0].name}{more}"


# A tensor -----------------------------------------------------------------------------------------


def _run_tensor(file: Path, given: Given) -> None:
    tensor = load_tensor(file, given["key"])
    labels = load_names(given["names"], tensor.shape[0] if tensor.ndim else 0)
    wanted = given["n_components"]
    if given["symmetrize"]:
        tensor = odeco.symmetrize(tensor)
    recipe: Any = odeco.decompose_asymmetric if given["asymmetric"] else odeco.decompose
    with stages() as (show, _):
        show("checking the tensor")

        def follow(search: Any) -> None:
            found = search.components.n_components
            show(search.status, found, None if wanted == "auto" else wanted, f"{found} found")

        result = recipe(
            tensor, wanted, callback=follow, rng=given["seed"], **_of(given, _OF_TENSOR)
        )
    if labels is not None:
        result = result.with_names(labels)
    deliver_result(result, given, title=_title((file,)))


# Rows ---------------------------------------------------------------------------------------------


def _run_stream(files: tuple[Path, ...], given: Given) -> None:
    checkpoint: Path | None = given["checkpoint"]
    begun = checkpoint is not None and checkpoint.exists()
    if begun and not given["resume"]:
        raise click.UsageError(
            f"{checkpoint} must not exist yet. It does: a run that was interrupted. Pass --resume "
            "to go on from it, or remove it to begin again."
        )
    if given["resume"] and not begun:
        note(f"no checkpoint {checkpoint}: beginning at the first row")
    check_selection(given)
    with (
        connected(given["scheduler"]) as client,
        stages(at_once=False) as (show, interrupts),
    ):
        data, source = _open_stream(files, given, interrupts)
        if data is source:  # its columns are chosen
            given = given | {"columns": None, "drop": None}
        labels = load_names(given["names"], source.n_features, getattr(source, "columns", None))
        progress = _Rows(0, source.n_rows)

        def follow(step: Any) -> None:
            nonlocal progress
            progress = replace(progress, n_read=step.n_rows)
            if given["follow"]:  # an interrupt ends the rows, and not the run
                return
            total = None if step.n_rows_needed is None else step.n_rows + step.n_rows_needed
            show(step.stage, step.n_rows, total, progress.of_this_pass)

        settings = _of(given, _OF_ROWS) | {
            "client": client,
            "keep_checkpoint": checkpoint is not None,
        }
        try:
            show("reading")
            with columns_called(labels):
                result = odeco.decompose_stream(
                    data, given["n_components"], rng=given["seed"], callback=follow, **settings
                )
        except KeyboardInterrupt:
            raise _interrupted(interrupts, progress, checkpoint) from None
    deliver_result(result.with_names(labels), given, title=_title(files))
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)


def _open_stream(files: tuple[Path, ...], given: Given, interrupts: Interrupts) -> tuple[Any, Any]:
    """Return rows as the library takes them, and their source."""
    if given["follow"] or str(files[0]) == "-":
        lines = _growing(files[0], interrupts) if given["follow"] else sys.stdin
        name = files[0].name if given["follow"] else "the standard input"
        selection = Selection.of(given["columns"], given["drop"])
        arriving = CsvStream(iter(lines), name, selection)
        return arriving, arriving
    data: Any = str(files[0]) if len(files) == 1 else [str(path) for path in files]
    return data, as_source(data, columns=given["columns"], drop=given["drop"])


def _growing(path: Path, interrupts: Interrupts) -> Iterator[str]:
    """Yield the lines of a file that others write to, until an interrupt."""
    note(f"following {path.name}; Ctrl-C ends the stream and prints the result")
    begun = ""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        while interrupts.number is None:
            begun += file.readline()
            if begun.endswith("\n"):
                yield begun
                begun = ""
            else:
                time.sleep(_POLL_SECONDS)


@dataclass(frozen=True)
class _Rows:
    """How many rows were read, in all passes, and how many there are; None if that is unknown."""

    n_read: int
    n_rows: int | None

    @property
    def of_this_pass(self) -> str:
        if not self.n_rows:
            return f"{self.n_read:,} rows"
        n_now = (self.n_read - 1) % self.n_rows + 1 if self.n_read else 0
        return f"{n_now:,} of {self.n_rows:,} rows"

    @property
    def so_far(self) -> str:
        if not self.n_rows or self.n_read < self.n_rows:
            return f"{self.n_read:,} rows"
        n_passes, rest = divmod(self.n_read, self.n_rows)
        passes = "1 pass" if n_passes == 1 else f"{n_passes} passes"
        return f"{passes} and {rest:,} rows"


def _interrupted(interrupts: Interrupts, progress: _Rows, checkpoint: Path | None) -> Interrupted:
    text = f"Interrupted after {progress.so_far}. "
    if checkpoint is None:
        text += "Nothing was saved; pass --checkpoint FILE to be able to go on."
    elif not checkpoint.exists():  # a second signal came before the first block of rows was done
        text += f"{checkpoint} was not written yet."
    else:
        text += (
            f"{checkpoint} holds where the run stands. To go on:\n"
            "\n"
            f"    {command_line('--resume')}\n"
        )
    return Terminated(text) if interrupts.number == signal.SIGTERM else Interrupted(text)


# Under differential privacy -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Private:
    """Private data, and what is public of them."""

    data: Any
    unit: Unit
    dimension: int
    order: int | None
    n_units: int | None
    groups: Any = None
    columns: Any = None

    @property
    def units(self) -> str:
        """How many units there are, in words."""
        if self.unit != "entry":
            return f"{self.n_units:,} {self.unit}s"
        return f"a tensor of {' x '.join([f'{self.dimension:,}'] * (self.order or 3))} entries"


def _open_tensor(file: Path, given: Given) -> _Private:
    tensor = load_tensor(file, given["key"])
    dimension = tensor.shape[-1] if tensor.shape else 0
    return _Private(tensor, "entry", dimension, max(tensor.ndim, 3), None)


def _open_rows(files: tuple[Path, ...], given: Given) -> _Private:
    check_private_files(files, header=given["header"], dimension=given["dimension"])
    rows = open_private(files, n_features=given["dimension"], header=given["header"])
    groups = load_groups(given["groups"])
    unit: Unit = "record" if groups is None else "user"
    n_units = rows.n_rows if groups is None else len(set(groups.tolist()))
    return _Private(rows, unit, rows.n_features, given["order"], n_units, groups, rows.columns)


def _run_private(files: tuple[Path, ...], given: Given) -> None:
    settings = _of(given, _OF_PRIVATE)
    budget = {name: given[name] for name in ("epsilon", "delta")}
    with connected(given["scheduler"]) as client:
        held = _open_rows(files, given) if given["rows"] else _open_tensor(files[0], given)
        relation = default_neighbours(held.unit, given["mechanism"] or "auto")
        plan = odeco.plan_privacy(
            dimension=held.dimension,
            n_components=given["n_components"],
            unit=held.unit,
            n_units=held.n_units,
            order=held.order,
            neighbour_relation=relation,
            **budget,
            **_of(given, _PLANNED),
        )
        names = load_names(given["names"], held.dimension, held.columns)
        planned = {each.mechanism for each in plan.mechanisms}
        taken = given["mechanism"] if given["mechanism"] in planned else plan.best
        if not given["as_json"]:
            print_text(plan.in_words(taken))
        neighbours = neighbours_of(
            None, given["mechanism"] or "auto", _whom(held, relation, given)
        )["neighbours"]
        request = replace(Request.of(plan, held.units), neighbours=neighbours)
        account = agree_to_spend(
            request, files, **{name: given[name] for name in ("ledger", "budget", "data", "yes")}
        )
        where = {"rng": given["seed"], "ledger": account, "client": client, "groups": held.groups}
        result = odeco.decompose_privately(
            held.data, given["n_components"], unit=held.unit, **budget, **where, **settings
        )
    spent = spent_sentence(given["epsilon"], given["ledger"])
    document = partial(_private_document, plan)
    deliver_result(
        result.with_names(names),
        given,
        title=_title(files, private=True),
        spent=spent,
        document=document,
    )


def _whom(held: _Private, relation: str, given: Given) -> dict[str, Any]:
    """Return whom a run protects, as settings of the library."""
    return {
        "unit": held.unit,
        "neighbour_relation": relation,
        "entry_change": given["entry_change"],
    }


def _private_document(plan: Any, result: AnyResult) -> dict[str, Any]:
    return {"plan": json.loads(plan.to_json()), "result": result_document(result)}


# Delivery -----------------------------------------------------------------------------------------


def deliver_result(
    result: AnyResult,
    given: Given,
    *,
    title: str,
    spent: str = "",
    document: Callable[[AnyResult], dict[str, Any]] = result_document,
) -> None:
    """Print a result as text or JSON, and write its files, as `deliver` does."""
    out: Path | None = given["out"]

    def save(path: Path) -> None:
        save_result(result, path, command=command_line())

    def write_page(path: Path) -> None:
        from odeco.decompose.page import (
            write_report,
        )  # Matplotlib takes half a second, and may be missing

        write_report(result, path, title=title, command=command_line())

    def show() -> None:
        if given["as_json"]:
            print_json(document(result))
        else:
            print_text(result.summary())

    is_table = out is not None and out.suffix.lower() == ".csv"
    write = partial(write_result_table, result) if is_table else save
    deliver(
        show,
        Output(out, write),
        Output(given["report"], write_page),
        save=("result.npz", save),
        spent=spent,
    )


decompose = Command(
    "decompose",
    run,
    SECTIONS,
    arguments=(_options.FILES,),
    text="Decompose a tensor, or the moment of rows, into weights and unit vectors.\n\nFILE "
    "holds a symmetric tensor "
    "(.npy or .npz, order 3 or more). With --rows, FILEs hold rows x (.npy, .npz with CSR, "
    ".parquet, .arrow, .feather, "
    ".csv, .tsv, .wav, a directory of such files, a quoted pattern, or - for lines of CSV from the "
    "standard input), and their moment E[x ⊗ x ⊗ "
    "x] is decomposed without "
    "ever holding all rows. Ctrl-C ends a run; with --checkpoint it can be continued later, "
    "and its result is "
    "bit-identical to that of an uninterrupted run.\n\nWith --epsilon and --delta the result "
    "does not reveal any "
    "single entry of the tensor, row, or with --groups user. The plan comes first: which "
    "components will be found, and "
    "at which price. It needs public numbers only. On a terminal, the run then asks before "
    "it spends. The noise comes "
    "from the operating system; --seed draws the starts, never the noise.",
    examples=(
        "decompose tensor.npy -k 5",
        "decompose tensor.npy -k auto --out result.npz --report page.html",
        "decompose unequal.npy --asymmetric -k auto",
        "decompose --rows rows.npy -k 5 --report page.html",
        "decompose --rows day1.parquet day2.parquet -k 10 --checkpoint run.ckpt",
        "decompose --rows people.csv -k 3 --drop id,name",
        "decompose --rows rows.npy -k auto --order 4 --moment cumulant",
        (
            "decompose --rows rows.npy -k 5 --epsilon 1 --delta 1e-6 --norm-bound 1 --ledger "
            "data.ledger --budget 3"
        ),
        "decompose tensor.npy -k 3 --epsilon 1 --delta 1e-6",
    ),
)
