"""Where a command writes: looked at before the work starts, so that nothing is destroyed and no result is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from odeco._util.files import try_to_write, was_written_by_odeco
from odeco.cli import options as _options


def guard(command: click.Command) -> None:
    """Let a command that writes files look at its destinations first, and give it ``--force``."""
    written = [each for each in command.params if isinstance(each.type, _options.OutputFile)]
    run = command.callback
    if not written or run is None or any(each.name == "force" for each in command.params):
        return
    help_text = "Replace files that odeco did not write."
    command.params.append(click.Option(["--force"], is_flag=True, help=help_text))
    command.callback = _checked(run, command.params)


def _checked(run: Callable[..., Any], parameters: list[click.Parameter]) -> Callable[..., Any]:
    @wraps(run)
    def check_and_run(*, force: bool, **arguments: Any) -> Any:
        outputs = {
            each: arguments[each.name]
            for each in parameters
            if isinstance(each.type, _options.OutputFile) and arguments.get(each.name or "") is not None
        }
        inputs = [path for each in parameters if each not in outputs for path in _files_of(each, arguments)]
        for parameter, path in outputs.items():
            others = [*inputs, *(each for other, each in outputs.items() if other is not parameter)]
            _check_destination(parameter, path, others, force=force)
        if "report" in {each.name for each in outputs}:
            import_module("matplotlib")  # whether it is missing must show now, not when all is done
        return run(**arguments)

    return check_and_run


def _files_of(parameter: click.Parameter, arguments: dict[str, Any]) -> Iterator[Path]:
    """Yield the files that a parameter names, and those of a directory that it names."""
    if isinstance(parameter.type, _options.OutputFile) or not isinstance(parameter.type, click.Path):
        return
    value = arguments.get(parameter.name or "")
    for path in value if isinstance(value, tuple) else () if value is None else (value,):
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
    if isinstance(kind, _options.OutputFile) and kind.replaces and not force and not was_written_by_odeco(path):
        raise click.UsageError(
            f"{name} must be a new file, or one that odeco wrote. {path} is neither. Pass another path, or --force to "
            "replace it."
        )
    if isinstance(kind, _options.ResultFile) and path.suffix.lower() not in kind.suffixes:
        raise click.UsageError(
            f"{name} must end in .npz, for the whole result, or in .csv, for a table of it. Got {path}. Pass another "
            "path."
        )
    try_to_write(path)
