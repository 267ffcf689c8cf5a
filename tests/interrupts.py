"""Interrupts at chosen lines: what Ctrl-C does at some moment, made to happen at every moment in
turn.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import odeco

_PACKAGE = Path(odeco.__file__).parent
#: Where the state of a run is changed; what is computed elsewhere only becomes state here.
PLACES = ("online", "io/rows.py", "power/tracking.py")


@cache
def _begins_with_block(file: str, line: int) -> bool:
    """Tell lines to leave out: Python runs no signal handler between a `with` block and its end,
    but traces there.
    """
    return linecache.getline(file, line).lstrip().startswith("with ")


class _Tracer:
    """Counts the lines that are entered in some places of odeco, and raises KeyboardInterrupt at
    one of them.
    """

    def __init__(self, places: tuple[str, ...], stop_at: int | None) -> None:
        self.places = tuple(str(_PACKAGE / place) for place in places)
        self.stop_at = stop_at
        self.lines: list[tuple[str, int]] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(self.places):
            return None
        if event == "line" and not _begins_with_block(file, frame.f_lineno):
            self.lines.append((file, frame.f_lineno))
            if len(self.lines) - 1 == self.stop_at:
                raise KeyboardInterrupt
        return self


def run_traced(
    action: Callable[[], object], stop_at: int | None = None, places: tuple[str, ...] = PLACES
) -> list[tuple[str, int]]:
    """Run an action, interrupted at its `stop_at`-th line, and return the lines that it entered."""
    tracer = _Tracer(places, stop_at)
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        action()
    except KeyboardInterrupt:
        if stop_at is None:
            raise
    finally:
        sys.settrace(before)
    return tracer.lines


def moments_of(action: Callable[[], object], places: tuple[str, ...] = PLACES) -> list[int]:
    """Return the moments to interrupt an action at: the first and the last time that each of its
    lines is entered.
    """
    lines = run_traced(action, places=places)
    first = {line: moment for moment, line in reversed(list(enumerate(lines)))}
    last = {line: moment for moment, line in enumerate(lines)}
    return sorted({*first.values(), *last.values()})
