"""Decompose the moment of rows that lie in files or arrive in a stream: the recipe that pulls."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, cast

from odeco._arguments import MINIMUM_ORDER, check_choice, check_count
from odeco._types import RngLike
from odeco.result import StreamDecomposition
from odeco.rows import row_slice, rows_per_chunk
from odeco.search import DEFAULT_ROUNDS, CoreSearch, Tracking
from odeco.sources import BatchSource, as_source, skip_rows
from odeco.streams._checkpoint import Checkpoint
from odeco.streams._driver import Driver, stream_ended_error
from odeco.streams._online import Method, OnlineDecomposer, Progress, describe_stream

#: A pass that refines is cut into so many stretches, whose spread gives the standard errors.
N_STRETCHES = 16


def decompose_stream(
    data: Any,
    n_components: int,
    *,
    method: Method | None = None,
    batch_size: int | None = None,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    n_polish: int = 1,
    order: int = 3,
    rng: RngLike = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    callback: Callable[[Progress], object] | None = None,
) -> StreamDecomposition:
    """Decompose the moment E[x⊗ᵖ] of rows in memory, in files larger than memory, or in a stream.

    Parameters
    ----------
    data : array, CSR array, path, directory, iterable of arrays, …
        The rows; see `odeco.sources.as_source`. Files are read block by block, never as a whole.
    n_components : int
        The number k of components.
    method : {"core", "power"}, optional
        ``"core"``, the default, finds the span of the components and decomposes a small core: a few passes where the
        data can be read again, a few batches of a stream otherwise. ``"power"`` is Algorithm 2 of the paper: fresh
        rows for every iteration, exactly k R batches.
    batch_size : int, optional
        Rows for each question, the paper's n. Needed by ``"power"``; for ``"core"`` on a stream that can be read once
        it is 10 d by default, at least 1,000; where every question reads all rows it is not used.
    n_restarts, n_iterations : int, optional
        The paper's L and R, for ``"power"``.
    n_polish : int
        For ``"core"`` on data that can be read again: how many further passes refine the components, and give
        standard errors.
    order : int
        The order p of the moment.
    rng : None, int or numpy.random.Generator
        Draws the starts.
    checkpoint : path, optional
        Write the state there now and then. If the file exists, go on from it: a run that was killed ends with the
        bit-identical result. It is removed at the end.
    checkpoint_seconds : float
        How often.
    callback : callable, optional
        Receives a `Progress` after every block of rows. If it raises, the run ends with that exception, and the
        checkpoint is written first.

    Returns
    -------
    StreamDecomposition
        Components, largest weight first, with standard errors where there are enough batches to tell.

    Raises
    ------
    StreamEndedError
        If there are too few rows; components that were finished are in ``error.found``.

    References
    ----------
    Wang and Anandkumar, *Online and Differentially-Private Tensor Decomposition*, 2016, arXiv:1606.06237, Algorithm 2.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> rows = np.eye(5)[np.random.default_rng(0).choice(2, size=1000, p=[0.7, 0.3])]
    >>> odeco.decompose_stream(rows, 2, rng=0).weights.round(1)
    array([0.7, 0.3])
    """
    chosen = method or "core"
    check_choice("method", chosen, ("core", "power"))
    source = as_source(data)
    if source.repeatable:
        source = as_source(data, batch_rows=rows_per_chunk(source.n_features))
    if chosen == "power" and batch_size is None:
        raise ValueError('`batch_size` must be given for method="power": the rows to average over in each iteration.')
    settings: dict[str, Any] = {
        "n_components": n_components,
        "method": chosen,
        "batch_size": batch_size or max(1000, 10 * source.n_features),
        "n_restarts": n_restarts,
        "n_iterations": n_iterations,
        "order": check_count("order", order, MINIMUM_ORDER),
    }
    identity = {} if checkpoint is None else {**settings, "n_polish": n_polish, "source": source.fingerprint()}
    file = Checkpoint(checkpoint, checkpoint_seconds, identity)
    if chosen == "core" and source.repeatable:
        start = CoreSearch.start(source.n_features, n_components, order=order, rng=rng)
        return _Passes(source, start, check_count("n_polish", n_polish, 0), file, callback).result()
    return _pull(source, OnlineDecomposer(**settings, rng=rng), file, callback)


def _pull(
    source: BatchSource, online: OnlineDecomposer, file: Checkpoint, callback: Callable[[Progress], object] | None
) -> StreamDecomposition:
    """Push the rows of a source to an online decomposer: until it is done (Algorithm 2), or to the end (core)."""
    resumed = file.load()
    if resumed is not None:
        online.resume(resumed[0])
    until_found = online.method == "power"  # Algorithm 2 reads exactly k R batches
    for rows in skip_rows(source, online.n_rows):
        start = 0
        # Cut where batches end: a push that stays within one needs no copy to fall back on.
        while start < rows.shape[0] and not (until_found and online.progress.n_rows_needed == 0):
            stop = min(rows.shape[0], start + online.room)
            online.partial_fit(row_slice(rows, start, stop))
            start = stop
        file.save_now_and_then(online.driver, {})
        if callback is not None:
            with file.saved_if_interrupted(online.driver, {}):
                callback(online.progress)
        if until_found and online.progress.n_rows_needed == 0:
            break
    if online.progress.n_rows_needed:
        raise stream_ended_error(*online.batches_so_far(), None if online.driver is None else online.driver.found)
    file.remove()
    return cast("StreamDecomposition", online.result())  # no guarantee was asked for


class _Passes:
    """Rounds of the range finder, the core and the refinement, each a pass over a source that can be read again."""

    def __init__(
        self,
        source: BatchSource,
        start: CoreSearch,
        n_polish: int,
        file: Checkpoint,
        callback: Callable[[Progress], object] | None,
    ) -> None:
        self.source, self.n_polish, self.file, self.callback = source, n_polish, file, callback
        self.driver = Driver(start)
        self.row, self.n_polished, self.n_rows = 0, 0, source.n_rows
        resumed = file.load()
        if resumed is not None:
            self.driver, place = resumed
            self.row, self.n_polished, self.n_rows = place["row"], place["n_polished"], place["n_rows"]

    def result(self) -> StreamDecomposition:
        """Make all passes that are left."""
        while not self.driver.state.done and not isinstance(self.driver.state, Tracking):
            self._read()
            self.driver.close()
        while self.n_polished < self.n_polish:
            if not isinstance(self.driver.state, Tracking) or self.row == 0:
                self.driver.switch(Tracking.start(self.driver.components, holding=True))
            self._read()
            if self.driver.sum.n_rows:
                self.driver.close()
            self.n_polished += 1
            if isinstance(self.driver.state, Tracking):
                self.driver.switch(self.driver.state.settle())
        self.file.remove()
        return describe_stream(self.driver.components, self.driver.state, self.driver.n_rows)

    def _read(self) -> None:
        """Feed one pass, or what is left of it, to the driver."""
        for rows in skip_rows(self.source, self.row):
            self._take(rows)
            self.row += rows.shape[0]
            self.file.save_now_and_then(self.driver, self._place())
            if self.callback is not None:
                with self.file.saved_if_interrupted(self.driver, self._place()):
                    self.callback(self.progress)
        self.n_rows, self.row = self.row, 0

    def _take(self, rows: Any) -> None:
        if not isinstance(self.driver.state, Tracking) or self.n_rows is None:
            self.driver.take(rows)
            return
        stretch, start = math.ceil(self.n_rows / N_STRETCHES), 0
        while start < rows.shape[0]:
            stop = min(rows.shape[0], start + stretch - self.driver.sum.n_rows)
            self.driver.take(row_slice(rows, start, stop))
            start = stop
            if self.driver.sum.n_rows == stretch:
                self.driver.close()

    def _place(self) -> dict[str, Any]:
        return {"row": self.row, "n_polished": self.n_polished, "n_rows": self.n_rows}

    @property
    def progress(self) -> Progress:
        """How far the passes are."""
        n_passes = DEFAULT_ROUNDS + 1 + self.n_polish
        state = self.driver.state
        done = DEFAULT_ROUNDS + 1 + self.n_polished if isinstance(state, Tracking) else getattr(state, "round", 0)
        names = {"image": "finding the span", "core": "core"}
        stage = "refining" if isinstance(state, Tracking) else names[state.question]
        if self.n_rows is None:
            return Progress(f"{stage}, pass {done + 1} of {n_passes}", done / n_passes, self.driver.n_rows, None)
        needed = n_passes * self.n_rows - self.driver.n_rows
        share = self.driver.n_rows / (n_passes * self.n_rows)
        return Progress(f"{stage}, pass {done + 1} of {n_passes}", share, self.driver.n_rows, needed)
