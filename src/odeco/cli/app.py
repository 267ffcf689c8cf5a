"""The command ``odeco``: its sub-commands, its error messages, its exit codes."""

from __future__ import annotations

import errno
import io
import os
import re
import shlex
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from types import FrameType
from typing import Any, Self

import click

from odeco._util import __version__
from odeco._util.lazy import missing_library

# Each sub-command is the object of its name in a module of odeco.cli: the module of its name, unless `MODULES` has
# another. It is imported only when it is used, so that `odeco --help` is fast.
SUMMARIES = {
    "decompose": "Decompose a tensor in a file.",
    "stream": "Decompose the moment of rows in files of any size.",
    "private": "Decompose under differential privacy, after a plan.",
    "topics": "Learn topics from text.",
    "learn": "Learn clusters, states, sources, classes or communities.",
    "report": "Write an HTML page of a saved result or model.",
    "info": "Describe a file.",
    "audit": "Attack the privacy of a configuration, as its strongest adversary would.",
    "reproduce": "Run the paper's figure and claims again, and check which hold.",
    "bench": "Measure the speed of this machine.",
}

MODULES = {
    "stream": "decompose",
    "report": "files",
    "info": "files",
    "audit": "checks",
    "reproduce": "checks",
    "bench": "checks",
}

EXIT_CODES = (
    "Exit codes: 0 all is well, 1 a problem with data or run, 2 a mistake in the command line, 130 interrupted."
)


class TableGroup(click.Group):
    """Sub-commands of a table of summaries, each made when it is used; a wrong name suggests a similar one."""

    @property
    def summaries(self) -> Mapping[str, str]:
        """What each sub-command does, in a line."""
        raise NotImplementedError

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all sub-commands."""
        return list(self.summaries)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the names and their summaries, without making the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the sub-command that the first argument names."""
        name, names = args[0], self.list_commands(ctx)
        if not name.startswith("-") and name not in names:
            close = get_close_matches(name, names, 1)
            hint = f"Did you mean {close[0]!r}?" if close else f"{ctx.command_path} --help lists them."
            raise click.UsageError(f"No such command {name!r}. {hint}", ctx)
        found = super().resolve_command(ctx, args)
        if found[1] is not None:  # its options are needed for the message of an error
            ctx.ensure_object(dict)["options"] = options_of(found[1])
        return found


class _Commands(TableGroup):
    """Sub-commands that are imported when they are used."""

    summaries = SUMMARIES

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUMMARIES:
            return None
        with _loading_notice(ctx.resilient_parsing):
            return complete(getattr(import_module(f"odeco.cli.{MODULES.get(cmd_name, cmd_name)}"), cmd_name))


@contextmanager
def _loading_notice(silent: bool) -> Iterator[None]:
    """Say that the command is loading: NumPy, SciPy and scikit-learn may take a second or two.

    On a terminal the notice disappears; elsewhere it is the line of the first stage. It is `silent` while a shell
    completes a command, and if the libraries are loaded already.
    """
    silent = silent or "numpy" in sys.modules
    erasable = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if not silent:
        sys.stderr.write("loading …" if erasable else "loading\n")
        sys.stderr.flush()
    try:
        yield
    finally:
        if erasable and not silent:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def complete(command: click.Command) -> click.Command:
    """Give a command and its sub-commands what all have: checked destinations, --debug, and unwrapped examples."""
    from odeco.cli.options import guard  # NumPy and SciPy, which `odeco --version` does not need

    guard(command)
    if not any(parameter.name == "debug" for parameter in command.params):
        command.params.append(_debug_option())
    # click's mark for such a paragraph is a control character, which a raw docstring has as two letters.
    command.help = (command.help or "").replace("\\b\n", "\b\n")
    for each in getattr(command, "commands", {}).values():
        complete(each)
    return command


def _debug_option() -> click.Option:
    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_set_debug,
        help="On an error, show the traceback.",
    )


def _set_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value:
        context.find_root().ensure_object(dict)["debug"] = True


@click.group(
    cls=_Commands,
    params=[_debug_option()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
    epilog=EXIT_CODES,
)
@click.version_option(__version__, prog_name="odeco", message="%(prog)s %(version)s")
def group() -> None:
    """Find topics, clusters, states, sources, classes and communities in files, streams and private data.

    And decompose symmetric tensors and the moments of rows, which all of these rest on.
    """


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; an error is one or two lines on stderr."""
    notes: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = group.main(list(arguments), prog_name="odeco", standalone_mode=False, obj=notes)
        except click.ClickException as error:
            shown = io.StringIO()
            error.show(shown)
            _write(shown.getvalue())
            return error.exit_code
        except click.exceptions.Abort:
            return _end("Interrupted.", Interrupted.exit_code, notes)
        except FAULTS as error:
            return _end(f"Error: {advice(error, notes.get('options'))}", 1, notes)
        except Exception as error:  # noqa: BLE001 - a bug, which must not look like a mistake of the user
            text = f"Error: odeco failed: {type(error).__name__}: {error}. Run again with --debug, and report it."
            return _end(text, 1, notes)
    return code if isinstance(code, int) else 0


def _end(text: str, code: int, notes: dict[str, Any]) -> int:
    if notes.get("debug"):
        traceback.print_exc()
    _write(text)
    return code


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _write(f"Warning: {in_options(str(message))}", keep="")


def _write(text: str, keep: str = "\n") -> None:
    """Write a text to stderr, and a line break after it."""
    from odeco.display.tables import printable  # NumPy, which `odeco --version` does not need

    sys.stderr.write(printable(text.rstrip("\n"), keep=keep) + "\n")


#: Exceptions about data, files or settings: their text is all that a user needs.
FAULTS = (ValueError, TypeError, OSError, MemoryError, RuntimeError, ModuleNotFoundError)

#: Advice of the library, which is in terms of Python, and the same advice in terms of options.
_TRANSLATIONS = {
    "Call odeco.symmetrize(T), or odeco.decompose_asymmetric for an asymmetric one.": (
        "Pass --symmetrize, or --asymmetric for an asymmetric one."
    ),
    "For an asymmetric one call odeco.decompose_asymmetric.": "For an asymmetric one pass --asymmetric.",
    "n_components as an int": "-k as a number",
    "in `error.found`": "in the file of --out, if one was given",
    "Pass `checkpoint` to be able to resume.": "Pass --checkpoint FILE to be able to resume.",
    "Pass another path, or remove the file to begin again.": "Pass another --checkpoint, or remove it to begin again.",
    "Raise tol if": "Raise --tol if",
    "raise tol if": "raise --tol if",
    "If it is a tensor, call odeco.decompose instead; rows are reshaped with X.reshape(-1, d).": (
        "If it is a tensor, run odeco decompose instead; rows are reshaped with X.reshape(-1, d)."
    ),
    "Pass its name as `column`.": "Pass --column NAME.",
}


class Interrupted(click.ClickException):
    """A run was interrupted by the user or the system."""

    exit_code = 128 + signal.SIGINT

    def show(self, file: Any = None) -> None:
        """Print the message to stderr."""
        click.echo(self.message, file=file, err=True)


class Terminated(Interrupted):
    """A run was terminated by the system (SIGTERM)."""

    exit_code = 128 + signal.SIGTERM


class Interrupts:
    """Record the first Ctrl-C (or SIGTERM) instead of raising, so that a run stops at a point where it can be resumed.

    A second signal ends the process as usual.
    """

    _SIGNALS: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._record) for number in self._SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise if a signal was received."""
        if self.number is not None:
            raise KeyboardInterrupt

    def _record(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.number = number
        self.__exit__()


class LastingInterrupt(Interrupts):
    """Raise at once on Ctrl-C, and again in `check`.

    The first exception may be lost inside a callback that lets none out, as in compilers and finalisers.
    """

    _SIGNALS = (signal.SIGINT,)

    def _record(self, number: int, frame: FrameType | None) -> None:
        super()._record(number, frame)
        raise KeyboardInterrupt


def advice(error: BaseException, options: Mapping[str, str] | None = None) -> str:
    """Return the text of an error in the words of the command line; see `in_options`."""
    if isinstance(error, ModuleNotFoundError):
        text = missing_library(error, "this")
        if text is not None:
            return text
    if isinstance(error, OSError) and error.filename is not None and error.errno:
        remedy = "Free some space, or pass another path." if error.errno == errno.ENOSPC else "Check the path."
        return f"{os.fsdecode(error.filename)}: {os.strerror(error.errno)}. {remedy}"
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {str(error) or 'for this'}. Try a smaller problem, or a stream."
    return in_options(str(error) or type(error).__name__, options)


def in_options(text: str, options: Mapping[str, str] | None = None) -> str:
    """Return advice of the library in the words of the command line.

    Parameters
    ----------
    text : str
        The text of an error or warning of the library.
    options : mapping, optional
        The options of the sub-command by the names of arguments; by default those of the one that is running.
    """
    for python, option in _TRANSLATIONS.items():
        text = text.replace(python, option)
    if options is None:
        context = click.get_current_context(silent=True)
        options = {} if context is None else options_of(context.command)
    for name, option in options.items():
        text = text.replace(f"`{name}`", option)
        text = re.sub(rf"(?<![\w.]){name}=None\b", f"no {option}", text)
        text = re.sub(rf"(?<![\w.]){name}=(['\"])([^'\"]*)\1", rf"{option} \2", text)
        text = re.sub(rf"(?<![\w.]){name}=([\w.+-]*\w)", rf"{option} \1", text)
        if "_" in name:  # no word of English
            text = re.sub(rf"(?<![\w.-]){name}\b(?![=(])", option, text)
    return text


def options_of(command: click.Command) -> dict[str, str]:
    """Return the options of a sub-command by the names that the library has for them."""
    options = {
        parameter.name: parameter.opts[0]
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.name is not None
    }
    for python, own in (("n_features", "dimension"), ("rng", "seed")):
        if own in options:
            options.setdefault(python, options[own])
    return options


def command_line(*more: str) -> str:
    """Return the command that runs this again, with further options."""
    name = "python -m odeco" if sys.argv[0].endswith("__main__.py") else "odeco"
    arguments = [*sys.argv[1:], *(option for option in more if option not in sys.argv)]
    return f"{name} {shlex.join(arguments)}"
