"""Which options of ``odeco topics`` go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

#: Options about which words are kept; a list of words leaves nothing for them to do.
_PRUNING = ("min_documents", "max_share", "max_words", "stop_words")


def check_usage(
    files: tuple[Path, ...], documentation: bool, n_components: int | str, *, private: bool, **given: Any
) -> None:
    if documentation == bool(files):
        raise click.UsageError("Either FILEs or --python-documentation must be given, and not both.")
    for path in files:
        if str(path) != "-" and not path.exists():
            raise FileNotFoundError(2, "No such file or directory", str(path))
    context = click.get_current_context()
    explicit = {name for name in given if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    unused = [name for name in _PRUNING if name in explicit]
    if given["vocabulary"] is not None and unused:
        raise click.UsageError(f"With --vocabulary all its words are counted. Leave out {_option(unused[0])}.")
    if (given["unit"] == "user") != (given["groups"] is not None):
        raise click.UsageError("--unit user and --groups FILE need each other. Pass both or neither.")
    if private:
        _check_private(n_components, explicit, given)
    elif given["groups"] is not None:
        raise click.UsageError("--unit user is about private runs. Pass --epsilon and --delta, or leave it out.")


def _check_private(n_components: int | str, explicit: set[str], given: dict[str, Any]) -> None:
    if given["epsilon"] is None or given["delta"] is None:
        raise click.UsageError(
            "A private run needs both --epsilon and --delta. Choose δ far below 1 / number of documents, such as 1e-6."
        )
    if given["vocabulary"] is None:
        raise click.UsageError(
            "A private run needs --vocabulary FILE: words that were read off the documents would give some of them "
            "away. Pass a list that was made from something else."
        )
    if n_components == "auto":
        raise click.UsageError("A private run needs -k as a number. It says how many of them stand clear of the noise.")
    for name in ("refine", "held_out"):
        if name in explicit and given[name] > 0:
            raise click.UsageError(f"{_option(name)} would look at the documents again, without noise. Leave it out.")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
