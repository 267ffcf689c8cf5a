"""One progress display for Python and for the command: a bar by rich or tqdm, or plain lines
without them.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

#: Where there is no terminal, a stage that goes on is a line again after this time.
_SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def following(
    callback: Callable[[Any], object] | None, progress: bool, n_components: int | str | None = None
) -> Iterator[Callable[[Any], object] | None]:
    """Yield the callback of a recipe: the user's, one that moves a bar, both in this order, or
    None.

    Parameters
    ----------
    callback : callable or None
        The user's callback.
    progress : bool
        Whether to show a bar.
    n_components : int or str, optional
        The number of components, for steps that report the components found so far and no fraction.
    """
    if not progress:
        yield callback
        return
    with progress_bar() as show:

        def call(step: Any) -> None:
            if callback is not None:
                callback(step)
            if hasattr(step, "fraction"):
                stage = step.stage
                fraction = step.fraction
            else:
                known = isinstance(n_components, int) and n_components
                stage = step.status
                fraction = step.components.n_components / n_components if known else None
            show(stage, fraction or 0, None if fraction is None else 1)

        yield call


@contextmanager
def reporting(
    callback: Callable[[str, int, int], object] | None,
    *,
    progress: bool,
    verbose: int,
    silent: bool,
) -> Iterator[Callable[[str, int, int], object]]:
    """Yield a function that reports the stage of a fit, the number of finished steps and that of
    all steps.

    Parameters
    ----------
    callback : callable or None
        Receives every report.
    progress : bool
        Whether to show a bar on stderr.
    verbose : int
        With 1, print a line when a stage begins and one at the end; with more, one line per step.
    silent : bool
        Whether to report nothing, because the duration of a step may depend on private records.
    """
    with ExitStack() as stack:
        listeners: list[Callable[[str, int, int], object]] = []
        if callback is not None and not silent:
            listeners.append(callback)
        if progress and not silent:
            show = stack.enter_context(progress_bar())
            # A stage of one step shows that work goes on, not a bar that stands still.
            listeners.append(
                lambda stage, done, total: show(stage, done, total if total > 1 else None)
            )
        if verbose and not silent:
            listeners.append(stack.enter_context(_lines(verbose)))

        def report(stage: str, done: int, total: int) -> None:
            for listener in listeners:
                listener(stage, done, total)

        yield report


@contextmanager
def _lines(verbose: int) -> Iterator[Callable[[str, int, int], object]]:
    """Write each stage when it begins, with `verbose` above 1 each step, and the duration at the
    end.
    """
    begun = time.perf_counter()

    def report(stage: str, done: int, total: int) -> None:
        if done == 0:
            sys.stdout.write(f"[TensorLDA] {stage}\n")
        elif verbose > 1:
            sys.stdout.write(f"[TensorLDA] {stage}: {done} of {total}\n")
        sys.stdout.flush()

    yield report
    sys.stdout.write(f"[TensorLDA] done after {time.perf_counter() - begun:.1f} s\n")


@contextmanager
def progress_bar(*, only_on_terminal: bool = False) -> Iterator[Callable[..., object]]:
    """Show a bar on stderr, and yield the function that moves it: ``show(stage, done=0, total=None,
    count="")``.

    Without rich and tqdm every new stage is a line.

    The `count` is a text such as ``"3 of 10 trials"``. A command shows its bar `only_on_terminal`;
    elsewhere, as in the log of a job, every new stage is a line.
    """
    is_piped = only_on_terminal and not sys.stderr.isatty()
    for library, make in (
        () if is_piped else (("rich.progress", _rich_bar), ("tqdm.auto", _tqdm_bar))
    ):
        try:
            module: Any = import_module(library)
        except ModuleNotFoundError:
            continue
        with make(module, only_on_terminal) as show:
            yield show
        return
    stage_before = ""
    written = time.monotonic()

    def show_line(stage: str, *_: object, **__: object) -> None:
        nonlocal stage_before, written
        # "component 3 of 5, iteration 8": neither number makes another stage
        name = stage.partition(",")[0]
        kind = re.sub(r"\d+", "", name.partition(":")[0])
        if kind != stage_before or time.monotonic() - written > _SECONDS_BETWEEN_LINES:
            sys.stderr.write(f"{name}\n")
            sys.stderr.flush()
            written = time.monotonic()
        stage_before = kind

    yield show_line


@contextmanager
def _rich_bar(rich: Any, only_on_terminal: bool) -> Iterator[Callable[..., object]]:
    console = import_module("rich.console").Console(stderr=True)
    columns = (
        *(
            rich.SpinnerColumn(),
            rich.TextColumn("{task.description}", markup=False),
            rich.BarColumn(),
        ),
        *(rich.TextColumn("{task.fields[count]}", markup=False), rich.TaskProgressColumn()),
        *(rich.TimeElapsedColumn(), rich.TimeRemainingColumn()),
    )
    with rich.Progress(*columns, console=console, transient=only_on_terminal) as bar:
        task = bar.add_task("starting", total=None, count="")

        def show(stage: str, done: float = 0, total: float | None = None, count: str = "") -> None:
            bar.update(task, description=stage, completed=done, total=total, count=count)

        yield show
        if not only_on_terminal:
            bar.update(task, description="done", completed=1, total=1, count="")


@contextmanager
def _tqdm_bar(tqdm: Any, only_on_terminal: bool) -> Iterator[Callable[..., object]]:
    form = "{desc} {percentage:3.0f}% |{bar}| {elapsed}"
    with tqdm.tqdm(total=1.0, bar_format=form, leave=not only_on_terminal) as bar:

        def show(stage: str, done: float = 0, total: float | None = None, count: str = "") -> None:
            bar.set_description_str(f"{stage} {count}".rstrip(), refresh=False)
            bar.n = bar.n if not total else min(1.0, done / total)
            bar.refresh()

        yield show
        bar.n = bar.total
        bar.refresh()
