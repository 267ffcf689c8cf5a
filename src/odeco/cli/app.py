"""The command ``odeco``: its sub-commands, its error messages, its exit codes."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from odeco._util import __version__
from odeco.cli.faults import FAULTS, Interrupted, SuggestingGroup, advice, in_options, options_of

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


class _Commands(SuggestingGroup):
    """Sub-commands that are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUMMARIES:
            return None
        with _loading_notice(ctx.resilient_parsing):
            return complete(getattr(import_module(f"odeco.cli.{MODULES.get(cmd_name, cmd_name)}"), cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the sub-command of this name, and keep its options for the message of an error."""
        found = super().resolve_command(ctx, args)
        if found[1] is not None:
            ctx.ensure_object(dict)["options"] = options_of(found[1])
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        # The names and their summaries, without importing them all.
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


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
