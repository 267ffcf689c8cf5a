"""What a fit tells while it works: a callback, lines as scikit-learn prints them, or a bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from odeco.models.lda.settings import Tell


@contextmanager
def telling(callback: Tell | None, *, progress: bool, verbose: int, silent: bool) -> Iterator[Tell]:
    """Yield a function that tells a stage of the work, how much of it is done, and of how much, to whom it is for.

    Parameters
    ----------
    callback : callable or None
        Is told everything.
    progress : bool
        Whether to show a bar on stderr: by rich, or else by tqdm, or else as lines.
    verbose : int
        With 1, a line on stdout when a stage begins and one at the end; with more, one for every step.
    silent : bool
        Whether nobody is told anything, as how long a step takes may tell something of private documents.
    """
    with ExitStack() as stack:
        listeners: list[Tell] = [] if callback is None or silent else [callback]
        if progress and not silent:
            listeners.append(stack.enter_context(_bar()))
        if verbose and not silent:
            listeners.append(stack.enter_context(_lines(verbose, sys.stdout)))

        def tell(stage: str, done: int, total: int) -> None:
            for listener in listeners:
                listener(stage, done, total)

        yield tell


@contextmanager
def _lines(verbose: int, stream: Any) -> Iterator[Tell]:
    """Write lines: each stage when it begins, with `verbose` above 1 each step too, and how long all took."""
    begun = time.perf_counter()

    def tell(stage: str, done: int, total: int) -> None:
        if done == 0:
            stream.write(f"[TensorLDA] {stage}\n")
        elif verbose > 1:
            stream.write(f"[TensorLDA] {stage}: {done} of {total}\n")
        stream.flush()

    yield tell
    stream.write(f"[TensorLDA] done after {time.perf_counter() - begun:.1f} s\n")


@contextmanager
def _bar() -> Iterator[Tell]:
    """Show a bar that begins anew with every stage."""
    try:
        rich = import_module("rich.progress")
    except ImportError:
        try:
            tqdm = import_module("tqdm").tqdm
        except ImportError:
            with _lines(1, sys.stderr) as tell:
                yield tell
        else:
            with tqdm() as bar:
                yield lambda stage, done, total: _show_in_tqdm(bar, stage, done, total)
        return
    with rich.Progress(console=import_module("rich.console").Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        # A stage of one step shows that it is at work, not a bar that stands still.
        yield lambda stage, done, total: bar.update(
            task, description=stage, completed=done, total=total if total > 1 else None
        )


def _show_in_tqdm(bar: Any, stage: str, done: int, total: int) -> None:
    bar.set_description(stage)
    bar.total, bar.n = total, done
    bar.refresh()
