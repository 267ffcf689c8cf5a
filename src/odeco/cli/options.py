"""Options that sub-commands share, how the files that they name are read, and the checks of those that they write."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np
from threadpoolctl import threadpool_limits

from odeco._util.files import announced_arrays, read_array, try_to_write, was_written_by_odeco
from odeco.cli.output import Outputs, note
from odeco.io.coerce import as_source
from odeco.io.npy import load_npy
from odeco.io.rows import check_columns, is_sparse, join_rows
from odeco.io.tables import kind_of
from odeco.io.urls import UrlPath, as_path
from odeco.privacy.sources import open_private

#: Seconds to wait for the scheduler of a cluster.
_CONNECT_SECONDS = 10


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, and yield its client; None if there is no address."""
    if address is None:
        yield None
        return
    distributed: Any = import_module("distributed")  # it takes a second, and may be missing

    where = {"scheduler_file": address} if os.path.isfile(address) else {"address": address}  # noqa: PTH113 - or an URL
    try:
        made = distributed.Client(**where, set_as_default=False, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError, AssertionError) as error:  # AssertionError: an address without a port
        raise click.ClickException(
            f"The scheduler of a Dask cluster must be reachable. There is none at {address} "
            f"({str(error).rstrip('.') or 'no port'}). Pass its address as --scheduler, such as tcp://host:8786, or "
            "its scheduler file."
        ) from error
    with made as client:
        n_threads = sum(client.nthreads().values())
        link = f"; dashboard at {client.dashboard_link}" if client.dashboard_link else ""
        note(f"cluster at {client.scheduler.address}: {len(client.nthreads()):,} workers, {n_threads:,} threads{link}")
        yield client


class InputFile(click.Path):
    """A file or folder that is read: a path, or an URL such as ``s3://bucket/rows.parquet``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a `Path` or a `UrlPath`."""
        return as_path(os.fsdecode(super().convert(value, param, ctx)))


FILE = InputFile()


class LocalFile(InputFile):
    """A file that odeco has written, which is read where it was written: on this machine."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a `Path`."""
        path = super().convert(value, param, ctx)
        if isinstance(path, UrlPath):
            self.fail(f"{value!r} must be a file of this machine. Copy it first.", param, ctx)
        return path


LOCAL_FILE = LocalFile()


class OutputFile(click.Path):
    """A file that will be written. Its folder must exist before the work starts.

    Parameters
    ----------
    replaces : bool
        Whether the file is written anew. A checkpoint or a ledger is read first.
    """

    def __init__(self, *, replaces: bool = True) -> None:
        super().__init__(path_type=Path, dir_okay=False)
        self.replaces = replaces

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a path in a folder that exists."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if "://" in os.fsdecode(value):
            self.fail(f"{os.fsdecode(value)!r} must be a file of this machine. Copy it to its URL later.", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{str(path.parent)!r} is not a folder. Make it first.", param, ctx)
        return path


class ResultFile(OutputFile):
    """A file for a result; its suffix decides the format."""

    suffixes = (".npz", ".csv")


OUTPUT = OutputFile()

CHECKPOINT = OutputFile(replaces=False)


def listed(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """Return the names in a text, which are separated by commas as in a line of CSV."""
    if value is None:
        return None
    names = [name.strip() for name in next(csv.reader([value], skipinitialspace=True), [])]
    if not names or not all(names):
        raise click.BadParameter(f"{value!r} must be names with commas between them.", context, parameter)
    return names


def number_or_auto(
    context: click.Context, parameter: click.Parameter, value: str, texts: tuple[str, ...] = ("auto",)
) -> int | str:
    """Return an int, or one of some texts, usually ``auto`` only."""
    if value in texts:
        return value
    try:
        return int(value)
    except ValueError:
        text = f"{value!r} is neither a whole number nor {' nor '.join(map(repr, texts))}."
        raise click.BadParameter(text, context, parameter) from None


def check_usage(mistakes: Mapping[str, object]) -> None:
    """Raise for the first of some mistakes in a command line, given as texts with their conditions, that is made."""
    for text, made in mistakes.items():
        if made:
            raise click.UsageError(text)


def group(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that adds some options, in this order."""

    def add(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return add


n_components = click.option("-k", "--n-components", type=int, required=True, metavar="K", help="Number of components.")

n_components_or_auto = click.option(
    *("-k", "--n-components"),
    metavar="K",
    callback=number_or_auto,
    required=True,
    help="Number of components; 'auto' keeps those that stand clear of the noise.",
)

power_method = group(
    click.option("--n-restarts", type=int, metavar="L", help="Candidates per component (the paper's L)."),
    click.option("--n-iterations", type=int, metavar="R", help="Iterations per candidate (the paper's R)."),
)

neighbour_relation = click.option(
    "--neighbour-relation", metavar="NAME", help="distinct or literal (entries); replace or add_remove (rows)."
)


def groups(what: str, option: str = "--unit user") -> Callable[[Any], Any]:
    """Return the option of the users of records, which goes with another option."""
    text = f"For {option}: the user of each {what}, one label per line."
    return click.option("--groups", type=FILE, metavar="FILE", help=text)


seed = click.option("--seed", type=int, default=0, help="Seed of the random starts: equal seeds, equal results.")

threads = click.option("--threads", type=click.IntRange(1), metavar="N", help="Largest number of threads.")

json_output = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")

out = click.option(
    "--out", type=ResultFile(), metavar="FILE", help="Write the result: all of it as .npz, or a table as .csv."
)

report = click.option("--report", type=OUTPUT, metavar="FILE", help="Write an HTML page.")

names = click.option("--names", type=FILE, metavar="FILE", help="The names of the coordinates, one per line.")

columns = group(
    click.option("--columns", metavar="A,B,C", callback=listed, help="The columns of a table to read, in this order."),
    click.option("--drop", metavar="A,B", callback=listed, help="The columns of a table to leave out, such as an id."),
)

weight = click.option("--weight", metavar="COLUMN", help="The column that says how often each row counts.")

#: The options of a command that writes rows.
row_ids = group(
    click.option("--id", "id_column", metavar="COLUMN", help="The column that identifies a row; not learnt from."),
    click.option("--append", is_flag=True, help="Write all columns of FILE too, unchanged, before the new ones."),
)

text_column = click.option("--column", metavar="NAME", help="The column, or field of JSON lines, that holds the text.")

scheduler = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Work on a Dask cluster: tcp://host:8786, or its scheduler file. FILEs have the same paths on all workers.",
)

_outputs = group(
    *(json_output, out, report, names),
    click.option("--top", type=click.IntRange(0), default=5, help="Number of largest coordinates to show."),
    threads,
)


def outputs(function: Callable[..., Any]) -> Any:
    """Add the options about the output of a decomposition, which the function gets as one argument."""

    @wraps(function)
    def run(**given: Any) -> Any:
        own = Outputs(**{each.name: given.pop(each.name) for each in fields(Outputs)})
        return function(outputs=own, **given)

    return _outputs(run)


def limited(n_threads: int | None) -> AbstractContextManager[Any]:
    """Limit the number of threads inside a ``with`` block."""
    return nullcontext() if n_threads is None else threadpool_limits(limits=n_threads)


# ---- destinations are checked before the work starts ----------------------------------------------------------------


def guard(command: click.Command) -> None:
    """Make a command that writes files check its destinations first, and give it ``--force``."""
    written = [each for each in command.params if isinstance(each.type, OutputFile)]
    run = command.callback
    if not written or run is None or any(each.name == "force" for each in command.params):
        return
    command.params.append(click.Option(["--force"], is_flag=True, help="Replace files that odeco did not write."))

    @wraps(run)
    def check_and_run(*, force: bool, **arguments: Any) -> Any:
        outputs = {each: path for each in written if (path := arguments.get(each.name or "")) is not None}
        inputs = [path for each in command.params for path in _files_of(each, arguments)]
        for parameter, path in outputs.items():
            others = [*inputs, *(each for other, each in outputs.items() if other is not parameter)]
            _check_destination(parameter, path, others, force=force)
        if "report" in {each.name for each in outputs}:
            import_module("matplotlib")  # a missing library must show now, not when all is done
            import_module("jinja2")
        return run(**arguments)

    command.callback = check_and_run


def _files_of(parameter: click.Parameter, arguments: dict[str, Any]) -> Iterator[Path]:
    """Yield the files that a parameter names, and those of a directory that it names."""
    if isinstance(parameter.type, OutputFile) or not isinstance(parameter.type, click.Path):
        return
    value = arguments.get(parameter.name or "")
    for path in value if isinstance(value, tuple) else () if value is None else (value,):
        if isinstance(path, UrlPath):  # nothing is written there
            continue
        yield path
        if path.is_dir():
            yield from path.iterdir()


def _check_destination(parameter: click.Parameter, path: Path, others: list[Path], *, force: bool) -> None:
    name = parameter.opts[0]
    for other in others:
        if path == other or (path.exists() and other.exists() and path.samefile(other)):
            raise click.UsageError(
                f"{name} must be another file than those that are read or written besides. Got {path}. "
                "Pass another path."
            )
    kind = parameter.type
    if isinstance(kind, OutputFile) and kind.replaces and not force and not was_written_by_odeco(path):
        raise click.UsageError(
            f"{name} must be a new file, or one that odeco wrote. {path} is neither. Pass another path, or --force to "
            "replace it."
        )
    if isinstance(kind, ResultFile) and path.suffix.lower() not in kind.suffixes:
        raise click.UsageError(
            f"{name} must end in .npz, for the whole result, or in .csv, for a table of it. Got {path}. Pass another "
            "path."
        )
    try_to_write(path)


def load_tensor(path: Path, key: str | None) -> np.ndarray[Any, Any]:
    """Return the tensor in a ``.npy`` file, mapped into memory, or in a ``.npz`` archive."""
    if path.suffix == ".npy":
        return load_npy(path)
    if path.suffix != ".npz" or isinstance(path, UrlPath):
        raise ValueError(
            f"A tensor must be in a .npy or .npz file, and a .npz file on this machine. Got {path}. Write it with "
            "numpy.save."
        )
    held = list(announced_arrays(path))
    if key is None and len(held) == 1:
        key = held[0]
    if key in held:
        return read_array(path, key)
    got = "none was named" if key is None else f"Got {key!r}"
    raise ValueError(f"One array of {path} must be named, of: {', '.join(held) or 'nothing'}. {got}. Pass --key NAME.")


def load_names(path: Path | None, dimension: int, columns: Sequence[str] | None = None) -> list[str] | None:
    """Return the names of the coordinates: those of the file, or else those of the columns of the data, or None."""
    if path is None:
        return list(columns) if columns is not None and len(columns) == dimension else None
    names = path.read_text(encoding="utf-8").splitlines()
    if len(names) != dimension:
        raise ValueError(
            f"{path} must have one name for each of the {dimension:,} coordinates. It has {len(names):,} lines. "
            "Write one name per line."
        )
    return names


def load_groups(path: Path | None) -> Any:
    """Return the label of each row: the lines of a text file, or an array."""
    if path is None:
        return None
    if path.suffix == ".npy":
        return np.asarray(load_npy(path))
    return np.array(path.read_text(encoding="utf-8").splitlines())


#: The number of private rows in a block.
_BLOCK = 65536


def check_selection(columns: list[str] | None, drop: list[str] | None) -> None:
    """Raise if columns are both chosen and left out."""
    if columns is not None and drop is not None:
        raise click.UsageError("--columns and --drop must not be given together. Pass the one that is shorter.")


def read_rows(
    file: Path, columns: list[str] | None, drop: list[str] | None, *, nulls_are_nan: bool = False
) -> tuple[Any, list[str] | None]:
    """Return all rows of numbers in a file, and the names of their columns."""
    check_selection(columns, drop)
    source = as_source(str(file), columns=columns, drop=drop, nulls_are_nan=nulls_are_nan)
    rows, names = join_rows(list(source)), getattr(source, "columns", None)
    rows = rows.toarray() if is_sparse(rows) else rows
    check_columns(rows, names or ())
    return rows, None if names is None else list(names)


def read_private_rows(file: Path) -> tuple[Any, list[str] | None]:
    """Return all rows of a file for a private model; no error names a row that is not valid."""
    rows = open_private([file], header=True if kind_of(file) in (".csv", ".tsv") else None)
    chunks: Iterator[Any] = rows.chunks(_BLOCK)
    blocks = [chunk.toarray() if is_sparse(chunk) else chunk for chunk in chunks]
    return np.concatenate(blocks), None if rows.columns is None else list(rows.columns)
