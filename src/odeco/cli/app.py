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
from odeco.cli.models import MODELS
from odeco.cli.terminal import output_failure, safe_streams, silence_notes, speak

# Each sub-command is the object of its name in a module of odeco.cli: the module of its name,
# unless `MODULES` has another. It is imported only when it is used, so that `odeco --help` is fast.
SUMMARIES = {
    "learn": "Learn topics, clusters, states, sources, classes or communities.",
    "apply": "Apply a model to new records: the components of each.",
    "decompose": "Decompose a tensor, or the moment of rows of any number.",
    "synthesize": "Make a private synthetic table.",
    "plan": "Say what a private run would find, from public numbers.",
    "report": "Write an HTML page of a saved result or model.",
    "info": "Describe a file.",
    "ledger": "Show what private runs have spent, and what is left.",
}

#: The modules of commands that have no module of their own.
MODULES = {"report": "files", "info": "files", "ledger": "privacy"}

EXIT_CODES = (
    "Exit codes: 0 all is well, 1 a problem with data or run, 2 a mistake in the command line, "
    "130 interrupted."
)


class TableGroup(click.Group):
    """Sub-commands of a table of summaries, each made when it is used; a wrong name suggests a
    similar one.
    """

    @property
    def summaries(self) -> Mapping[str, str]:
        """What each sub-command does, in a line."""
        raise NotImplementedError

    @property
    def elsewhere(self) -> Mapping[str, str]:
        """Names that users may try here, and the commands that they mean."""
        return {}

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
        name = args[0]
        names = self.list_commands(ctx)
        if not name.startswith("-") and name not in names:
            known = {**{each: each for each in names}, **self.elsewhere}
            close = get_close_matches(name, known, 1)
            hint = (
                f"Did you mean {known[close[0]]!r}?"
                if close
                else f"{ctx.command_path} --help lists them."
            )
            raise click.UsageError(f"No such command {name!r}. {hint}", ctx)
        found = super().resolve_command(ctx, args)
        if found[1] is not None:  # its options are needed for the message of an error
            ctx.ensure_object(dict)["options"] = options_of(found[1])
        return found


class _Commands(TableGroup):
    """Sub-commands that are imported when they are used."""

    summaries = SUMMARIES

    @property
    def elsewhere(self) -> Mapping[str, str]:
        models = {name: f"learn {name}" for name in MODELS}
        return {**models, "stream": "decompose --rows", "private": "decompose --epsilon"}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUMMARIES:
            return None
        with _loading_notice(ctx.resilient_parsing):
            command: click.Command = getattr(
                import_module(f"odeco.cli.{MODULES.get(cmd_name, cmd_name)}"), cmd_name
            )
            return command


@contextmanager
def _loading_notice(silent: bool) -> Iterator[None]:
    """Say on a terminal that the command is loading: NumPy, SciPy and scikit-learn may take a
    second or two.

    The notice disappears. It is `silent` while a shell completes a command, and if the libraries
    are loaded already.
    """
    erasable = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    shown = erasable and not silent and "numpy" not in sys.modules
    if shown:
        sys.stderr.write("loading …")
        sys.stderr.flush()
    try:
        yield
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.find_root().ensure_object(dict)["debug"] = True


def _set_quiet(_: click.Context, __: click.Parameter, value: bool) -> None:
    if value:
        silence_notes()


def quiet_option() -> click.Option:
    """Return the option that leaves errors and warnings of all that goes to the standard error."""
    how: dict[str, Any] = {"is_flag": True, "expose_value": False, "is_eager": True}
    help_text = "Show results, warnings and errors, and neither notes nor progress."
    return click.Option(["-q", "--quiet"], callback=_set_quiet, help=help_text, **how)


def debug_option() -> click.Option:
    """Return the option that all commands have."""
    help_text = "On an error, show the traceback."
    how: dict[str, Any] = {"is_flag": True, "expose_value": False, "is_eager": True}
    return click.Option(["--debug"], callback=_set_debug, help=help_text, **how)


@click.group(
    cls=_Commands,
    params=[quiet_option(), debug_option()],
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
    epilog=EXIT_CODES,
)
@click.version_option(
    __version__, "-V", "--version", prog_name="odeco", message="%(prog)s %(version)s"
)
def group() -> None:
    """Find topics, clusters, states, sources, classes and communities in files, streams and private
    data.

    Also decompose symmetric tensors and moments of rows, the method behind all of these.
    """


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; an error is one or two lines on stderr."""
    notes: dict[str, Any] = {}
    if list(arguments[:1]) == ["help"]:
        arguments = [*arguments[1:], "--help"]
    with safe_streams(), warnings.catch_warnings():
        warnings.showwarning = _show_warning
        # commands have printed it before they ask
        warnings.filterwarnings("ignore", "Someone who knows every other")
        try:
            code = group.main(list(arguments), prog_name="odeco", standalone_mode=False, obj=notes)
        except click.ClickException as error:
            shown = io.StringIO()
            error.show(shown)
            _write(shown.getvalue())
            return error.exit_code
        except click.exceptions.Abort:
            return _end(f"Interrupted. {_spent(notes)}", Interrupted.exit_code, notes)
        except FAULTS as error:
            return _end(f"Error: {advice(error, notes.get('options'))}", 1, notes)
        except Exception as error:  # noqa: BLE001 - a bug, which must not look like a mistake of the user
            text = (
                f"Error: odeco failed: {type(error).__name__}: {error}. Run again with --debug, "
                "and report it."
            )
            return _end(text, 1, notes)
        failure = output_failure()
        if failure:
            return _end(f"Error: {failure}", 1, notes)
    return code if isinstance(code, int) else 0


def _spent(notes: dict[str, Any]) -> str:
    """Return what an interrupted run has spent of a privacy budget, if it had one."""
    spent = notes.get("spent")
    return "" if spent is None else str(spent())


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

    with speak():
        sys.stderr.write(printable(text.rstrip("\n"), keep=keep) + "\n")


#: Exceptions about data, files or settings: their text is all that a user needs.
FAULTS = (ValueError, TypeError, OSError, MemoryError, RuntimeError, ModuleNotFoundError)


class Ended(click.ClickException):
    """A run ended without a result as the user wanted, which is no error."""

    def show(self, file: Any = None) -> None:
        """Print the message to stderr."""
        click.echo(self.message, file=file, err=True)


class Interrupted(Ended):
    """A run was interrupted by the user or the system."""

    exit_code = 128 + signal.SIGINT


class Terminated(Interrupted):
    """A run was terminated by the system (SIGTERM)."""

    exit_code = 128 + signal.SIGTERM


class Interrupts:
    """Record the first Ctrl-C, SIGTERM or end of the terminal instead of raising, so that work
    stops where it can.

    A second signal ends the process as usual. Signals that the process ignores, as after ``nohup``,
    stay ignored.
    """

    _SIGNALS: tuple[int, ...] = (
        signal.SIGINT,
        signal.SIGTERM,
        getattr(signal, "SIGHUP", signal.SIGTERM),
    )

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        heard = [
            number
            for number in set(self._SIGNALS)
            if signal.getsignal(number) is not signal.SIG_IGN
        ]
        self._before = {number: signal.signal(number, self._record) for number in heard}
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

    The first exception may be lost inside a callback that lets none out, as in compilers and
    finalisers.
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
        remedy = (
            "Free some space, or pass another path."
            if error.errno == errno.ENOSPC
            else "Check the path."
        )
        return f"{os.fsdecode(error.filename)}: {os.strerror(error.errno)}. {remedy}"
    if isinstance(error, MemoryError):
        return (
            f"there is not enough memory: {str(error) or 'for this'}. Try a smaller problem, or a "
            "stream."
        )
    return in_options(str(error) or type(error).__name__, options)


#: How texts of the library name a parameter: in backticks, with a value, or as a word with an
#: underscore.
_PARAMETER = re.compile(r"`(\w+)`|(?<![\w.])(\w+)=(?=['\"\w])|(?<![\w.])([a-z]+_\w+)\b(?![=(])")


def in_options(text: str, options: Mapping[str, str] | None = None) -> str:
    """Return advice of the library with options in place of the parameters that it names.

    Parameters
    ----------
    text : str
        The text of an error or warning of the library.
    options : mapping, optional
        The options of the sub-command by the names of parameters; by default those of the one that
        is running.
    """
    if options is None:
        context = click.get_current_context(silent=True)
        options = {} if context is None else options_of(context.command)

    def as_option(found: re.Match[str]) -> str:
        option = options.get(found[found.lastindex or 0])
        if option is None:
            return found[0]
        return f"{option} " if found[0].endswith("=") else option

    return _PARAMETER.sub(as_option, text)


def options_of(command: click.Command) -> dict[str, str]:
    """Return the options of a sub-command by the names that the library has for them."""
    options = {
        parameter.name: parameter.opts[0]
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.name is not None
    }
    for python, own in (
        ("n_features", "dimension"),
        ("rng", "seed"),
        ("covariance_type", "covariance"),
    ):
        if own in options:
            options.setdefault(python, options[own])
    return options


def command_line(*more: str) -> str:
    """Return the command that runs this again, with further options."""
    name = "python -m odeco" if sys.argv[0].endswith("__main__.py") else "odeco"
    arguments = [*sys.argv[1:], *(option for option in more if option not in sys.argv)]
    return f"{name} {shlex.join(arguments)}"
