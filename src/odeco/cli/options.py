"""Options, declared once each as data; sections of them; and commands made of sections.

A `Command` prints its options section by section, refuses options whose section does not apply, and
checks the files that it will write before it runs.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from odeco._util.arguments import float_or_auto
from odeco._util.files import try_to_write
from odeco.cli.app import debug_option, quiet_option
from odeco.cli.tables import was_written_by_odeco
from odeco.io.urls import UrlPath, as_path

# Types of options ---------------------------------------------------------------------------------


class InputFile(click.Path):
    """A file or folder that is read: a path, or an URL such as ``s3://bucket/rows.parquet``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a `Path` or a `UrlPath`."""
        return as_path(os.fsdecode(super().convert(value, param, ctx)))


class LocalFile(InputFile):
    """A file that odeco has written, which is read where it was written: on this machine."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a `Path`."""
        path = super().convert(value, param, ctx)
        if isinstance(path, UrlPath):
            self.fail(f"{value!r} must be a file of this machine. Copy it first.", param, ctx)
        return path


class OutputFile(click.Path):
    """A file that will be written. Its folder must exist before the work starts.

    Parameters
    ----------
    replaces : bool
        Whether the file is written anew. A checkpoint or a ledger is read first.
    suffixes : tuple of str
        The suffixes that it may have, if they decide the format.
    """

    def __init__(self, *, replaces: bool = True, suffixes: tuple[str, ...] = ()) -> None:
        super().__init__(path_type=Path, dir_okay=False)
        self.replaces = replaces
        self.suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a path in a folder that exists."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if "://" in os.fsdecode(value):
            self.fail(
                f"{os.fsdecode(value)!r} must be a file of this machine. Copy it to its URL later.",
                param,
                ctx,
            )
        if not path.parent.is_dir():
            self.fail(f"{str(path.parent)!r} is not a folder. Make it first.", param, ctx)
        return path


FILE = InputFile()
LOCAL_FILE = LocalFile()
OUTPUT = OutputFile()
UPDATED = OutputFile(replaces=False)

#: Types of options: a number of at least 1, and a share.
COUNT = click.IntRange(1)
SHARE = click.FloatRange(0, 1, min_open=True)


#: How a column without a name is named on the command line: as it is shown, or by a pair of quotes.
UNNAMED = ("(without a name)", "''", "")


def read_kinds(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> dict[str, str] | None:
    """Return the kinds of columns in a text such as ``visits=count,zip=category``."""
    if value is None:
        return None
    pairs = [pair.rpartition("=") for pair in read_list(context, parameter, value) or []]
    if not all(name and kind for name, _, kind in pairs):
        raise click.BadParameter(
            f"{value!r} must be names and kinds of columns, as visits=count.", context, parameter
        )
    return {name: kind for name, _, kind in pairs}


def read_list(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> list[str] | None:
    """Return the names in a text, which are separated by commas as in a line of CSV."""
    if value is None:
        return None
    if value in UNNAMED:
        return [""]
    names = [name.strip() for name in next(csv.reader([value], skipinitialspace=True))]
    if len(names) > 1 and not any(names):
        raise click.BadParameter(
            f"{value!r} must be names with commas between them.", context, parameter
        )
    return ["" if name in UNNAMED else name for name in names]


def read_number(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | str | None:
    """Return an int, or ``auto``."""
    if value is None or value == "auto":
        return value
    try:
        return int(value)
    except ValueError:
        text = f"{value!r} is neither a whole number nor 'auto'."
        raise click.BadParameter(text, context, parameter) from None


def option(*names: str, **how: Any) -> click.Option:
    """Declare an option; one object serves all commands that have it."""
    return click.Option(list(names), **how)


# Options that several commands have ---------------------------------------------------------------

FILES = click.Argument(["files"], type=FILE, nargs=-1, required=True, metavar="FILE...")
FILE_OR_NONE = click.Argument(["files"], type=FILE, nargs=-1, metavar="[FILE...]")
ONE_FILE = click.Argument(["file"], type=FILE)

SEED = option(
    "--seed", type=int, default=0, help="Seed of the random starts: equal seeds, equal results."
)
THREADS = option("--threads", type=COUNT, metavar="N", help="Largest number of threads.")
SCHEDULER = option(
    "--scheduler",
    metavar="ADDRESS",
    help=(
        "Work on a Dask cluster: tcp://host:8786, or its scheduler file. FILEs have the same "
        "paths on all workers."
    ),
)
JSON = option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
OUT = option(
    "--out",
    type=OutputFile(suffixes=(".npz",)),
    metavar="FILE",
    help="Write the model, as .npz without pickle.",
)
REPORT = option("--report", type=OUTPUT, metavar="FILE", help="Write an HTML page.")
NAMES = option(
    "--names", type=FILE, metavar="FILE", help="The names of the coordinates, one per line."
)
TEXT_COLUMN = option(
    "--column", metavar="NAME", help="The column, or field of JSON lines, that holds the text."
)

COLUMNS = option(
    "--columns",
    metavar="A,B",
    callback=read_list,
    help="Read these columns of a table, in this order.",
)
DROP = option(
    "--drop",
    metavar="A,B",
    callback=read_list,
    help="Leave out these columns of a table; '' is one without a name.",
)
WEIGHT = option(
    "--weight", metavar="COLUMN", help="The column that says how often each row counts."
)
ID = option(
    "--id", "id_column", metavar="COLUMN", help="The column that identifies a row; not learnt from."
)
APPEND = option(
    "--append", is_flag=True, help="Write all columns of FILE too, unchanged, before the new ones."
)

EPSILON = option(
    "--epsilon", type=float, metavar="E", help="Reveal no single record: the ε of the guarantee."
)
DELTA = option("--delta", type=float, metavar="D", help="Its δ, far below 1 / number of records.")
NORM_BOUND = option(
    "--norm-bound",
    type=float_or_auto,
    metavar="B",
    help="Largest norm of a row, known without the data; 'auto' chooses it under privacy.",
)
GROUPS = option(
    "--groups",
    type=FILE,
    metavar="FILE",
    help="Protect users, not records: the user of each record, one per line.",
)
HEADER = option(
    "--header/--no-header",
    default=None,
    help="Required for private CSV: whether the first line holds names.",
)
DIMENSION = option(
    "--dimension",
    type=int,
    metavar="D",
    help="Number of columns, if no FILE states it in its header.",
)
LEDGER = option(
    "--ledger",
    type=UPDATED,
    metavar="FILE",
    help="Adds up the budgets of all private runs on these data.",
)
BUDGET = option(
    "--budget", type=float, metavar="E", help="For a new --ledger: the ε of all runs together."
)
DATA = option(
    "--data",
    metavar="NAME",
    help="For --ledger: the public name of these data; by default that of FILE.",
)
YES = option(
    "--yes", is_flag=True, help="Spend without asking. Without a terminal nothing is asked."
)

SPENDING = (LEDGER, BUDGET, DATA, YES)


# Sections and commands ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """Some options of a command.

    Attributes
    ----------
    title : str
        Its heading in the help.
    options : tuple of Option
        The options.
    needs : str
        The option without which none of these may be given, such as ``--epsilon``.
    """

    title: str
    options: tuple[click.Option, ...]
    needs: str = ""


def general(*options: click.Option) -> Section:
    """Return the last section of a command: what every command has, after some options of its
    own.
    """
    return Section("General", (*options, QUIET, DEBUG))


QUIET = quiet_option()
DEBUG = debug_option()

FORCE = option("--force", is_flag=True, help="Replace files that odeco did not write.")


class Command(click.Command):
    """A command made of sections. A command that writes files has ``--force``, and checks its
    destinations first.
    """

    def __init__(
        self,
        name: str,
        run: Callable[..., Any],
        sections: tuple[Section, ...],
        *,
        arguments: tuple[click.Argument, ...] = (ONE_FILE,),
        text: str,
        examples: tuple[str, ...] = (),
    ) -> None:
        options = [each for section in sections for each in section.options]
        self.written = [each for each in options if isinstance(each.type, OutputFile)]
        self.sections = sections
        shown = ["\b", "Examples:", *(f"  odeco {each}" for each in examples)]
        help_text = "\n\n".join([text, "\n".join(shown)]) if examples else text
        params: list[click.Parameter] = [*arguments, *options]
        if self.written:
            params.append(FORCE)
        super().__init__(name, params=params, callback=run, help=help_text)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options section by section."""
        for section in self.sections:
            options = list(section.options)
            if section is self.sections[-1]:
                help_option = self.get_help_option(ctx)
                options += [] if help_option is None else [help_option]
                if self.written:
                    options.insert(0, FORCE)
            records = [each.get_help_record(ctx) for each in options]
            with formatter.section(section.title):
                formatter.write_dl([record for record in records if record is not None])

    def invoke(self, ctx: click.Context) -> Any:
        """Check the options and the destinations, then run."""
        check_sections(ctx, self.sections)
        if self.written:
            check_destinations(self, ctx.params, force=ctx.params.pop("force"))
        return super().invoke(ctx)


def given_options(context: click.Context | None = None) -> list[str]:
    """Return the names of the options that the user gave, in the order of their declaration."""
    context = context or click.get_current_context()
    defaults = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
    names = [each.name for each in context.command.params if isinstance(each, click.Option)]
    return [
        name
        for name in names
        if name and context.get_parameter_source(name) not in (None, *defaults)
    ]


def check_sections(context: click.Context, sections: tuple[Section, ...]) -> None:
    """Raise if an option of a section is given without the one that the section needs."""
    given = set(given_options(context))
    opened = {
        each.opts[0] for section in sections for each in section.options if each.name in given
    }
    for section in sections:
        for each in section.options:
            if section.needs and section.needs not in opened and each.name in given:
                raise click.UsageError(
                    f"{each.opts[0]} goes with {section.needs}. Pass both, or leave it out."
                )


def check_usage(mistakes: dict[str, object]) -> None:
    """Raise for the first of some mistakes in a command line, given as texts with their conditions,
    that is made.
    """
    for text, made in mistakes.items():
        if made:
            raise click.UsageError(text)


# Destinations -------------------------------------------------------------------------------------


def check_destinations(command: Command, arguments: dict[str, Any], *, force: bool) -> None:
    """Raise unless all files that a command will write can be written, and none is lost by it."""
    outputs = {
        each: arguments[each.name]
        for each in command.written
        if arguments[each.name or ""] is not None
    }
    inputs = [path for each in command.params for path in _files_of(each, arguments)]
    for parameter, path in outputs.items():
        others = [*inputs, *(each for other, each in outputs.items() if other is not parameter)]
        _check_destination(parameter, path, others, force=force)
    if "report" in {each.name for each in outputs}:
        import_module("matplotlib")  # a missing library must show now, not when all is done
        import_module("jinja2")


def _files_of(parameter: click.Parameter, arguments: dict[str, Any]) -> Iterator[Path]:
    """Yield the files that a parameter names, and those of a directory that it names."""
    if isinstance(parameter.type, OutputFile) or not isinstance(parameter.type, click.Path):
        return
    value = arguments.get(parameter.name or "")
    if value is None:
        return
    for path in value if isinstance(value, tuple) else (value,):
        if isinstance(path, UrlPath):  # nothing is written there
            continue
        yield path
        if path.is_dir():
            yield from path.iterdir()


def _check_destination(
    parameter: click.Parameter, path: Path, others: list[Path], *, force: bool
) -> None:
    name = parameter.opts[0]
    for other in others:
        if path == other or (path.exists() and other.exists() and path.samefile(other)):
            raise click.UsageError(
                f"{name} must be another file than those that are read or written besides. Got "
                f"{path}. Pass another path."
            )
    kind = parameter.type
    if (
        isinstance(kind, OutputFile)
        and kind.replaces
        and not force
        and not was_written_by_odeco(path)
    ):
        raise click.UsageError(
            f"{name} must be a new file, or one that odeco wrote. {path} is neither. Pass another "
            "path, or --force to replace it."
        )
    if isinstance(kind, OutputFile) and kind.suffixes and path.suffix.lower() not in kind.suffixes:
        raise click.UsageError(
            f"{name} must end in {' or '.join(kind.suffixes)}, which decides what is written. Got "
            f"{path}. Pass another path."
        )
    try_to_write(path)
