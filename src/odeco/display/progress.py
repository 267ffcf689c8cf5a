"""A bar that shows how far a long call is, for whoever passes ``progress=True``: with rich or, failing that, tqdm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

#: Shows what is being done, and which share of all is done; None if that is not known.
Show = Callable[[str, float | None], None]


@contextmanager
def following(
    callback: Callable[[Any], object] | None, progress: bool, n_components: int | str | None = None
) -> Iterator[Callable[[Any], object] | None]:
    """Yield the callback to call inside: that of the user, one that moves a bar, both in this order, or None.

    Parameters
    ----------
    callback : callable or None
        That of the user.
    progress : bool
        Whether a bar is wanted.
    n_components : int or str, optional
        How many components are looked for, where a callback is told those found so far and no share.
    """
    if not progress:
        yield callback
        return
    with _bar() as show:

        def tell(step: Any) -> None:
            if callback is not None:
                callback(step)
            show(*_described(step, n_components))

        yield tell


def _described(step: Any, n_components: int | str | None) -> tuple[str, float | None]:
    """Return what a step of a call says: in words, and the share of all that is done, where that is known."""
    if hasattr(step, "fraction"):
        return step.stage, step.fraction
    share = step.components.n_components / n_components if isinstance(n_components, int) and n_components else None
    return step.doing, share


@contextmanager
def _bar() -> Iterator[Show]:
    for library, make in (("rich.progress", _rich_bar), ("tqdm.auto", _tqdm_bar)):
        try:
            module: Any = import_module(library)
        except ModuleNotFoundError:
            continue
        with make(module) as show:
            yield show
        return
    raise ModuleNotFoundError(
        "progress=True needs rich or tqdm. Neither is installed. Run: pip install 'odeco[cli]', or pass a `callback`.",
        name="rich",
    )


@contextmanager
def _rich_bar(rich: Any) -> Iterator[Show]:
    shown = (rich.SpinnerColumn(), rich.TextColumn("{task.description}", markup=False), rich.BarColumn())
    console = import_module("rich.console").Console(stderr=True)
    with rich.Progress(*shown, rich.TaskProgressColumn(), rich.TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task("starting", total=None)

        def show(doing: str, share: float | None) -> None:
            bar.update(task, description=doing, completed=share or 0, total=None if share is None else 1)

        yield show
        bar.update(task, description="done", completed=1, total=1)


@contextmanager
def _tqdm_bar(tqdm: Any) -> Iterator[Show]:
    with tqdm.tqdm(total=1.0, bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed}") as bar:

        def show(doing: str, share: float | None) -> None:
            bar.set_description_str(doing, refresh=False)
            bar.n = bar.n if share is None else min(1.0, share)
            bar.refresh()

        yield show
        bar.n = bar.total
        bar.refresh()
