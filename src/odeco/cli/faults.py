"""Errors in the words of the command line, and interrupts."""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from types import FrameType
from typing import Any, Self

import click

from odeco._util.lazy import missing_library

#: Exceptions about data, files or settings: their text is all that a user needs.
FAULTS = (ValueError, TypeError, OSError, MemoryError, RuntimeError, ModuleNotFoundError)

#: Advice of the library, which is in terms of Python, and the same advice in terms of options.
_TRANSLATIONS = {
    "Call odeco.symmetrize(T), or odeco.decompose_asymmetric for an asymmetric one.": (
        "Pass --symmetrize, or --asymmetric for an asymmetric one."
    ),
    "For an asymmetric one call odeco.decompose_asymmetric.": "For an asymmetric one pass --asymmetric.",
    "Pass n_components as an int to see it anyway.": "Pass -k as a number to see it anyway.",
    "Pass more rows, or a smaller batch_size.": "Pass more rows, or a smaller --batch-size.",
    "in `error.found`": "in the file of --out, if one was given",
    '`batch_size` must be given for method="power"': "--batch-size must be given for --method power",
    "Pass `checkpoint` to be able to resume.": "Pass --checkpoint FILE to be able to resume.",
    "Pass another path, or remove the file to begin again.": "Pass another --checkpoint, or remove it to begin again.",
    "Raise n_iterations, raise tol if": "Raise --n-iterations, raise --tol if",
    "or lower n_components if": "or lower -k if",
    "or lower n_components:": "or lower -k:",
    "Lower n_components or pass more documents.": "Lower -k or pass more documents.",
    "Lower min_documents, raise max_share, or": "Lower --min-documents, raise --max-share, or",
    "If it is a tensor, call odeco.decompose instead; rows are reshaped with X.reshape(-1, d).": (
        "If it is a tensor, run odeco decompose instead; rows are reshaped with X.reshape(-1, d)."
    ),
    "with `drop`": "with --drop",
    "Pass its name as `column`.": "Pass --column NAME.",
    "or pass another `column`.": "or pass another --column.",
}


class SuggestingGroup(click.Group):
    """Sub-commands. If there is none of a name, the error suggests a similar one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the sub-command that the first argument names."""
        name, names = args[0], self.list_commands(ctx)
        if not name.startswith("-") and name not in names:
            close = get_close_matches(name, names, 1)
            hint = f"Did you mean {close[0]!r}?" if close else f"{ctx.command_path} --help lists them."
            raise click.UsageError(f"No such command {name!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)


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
