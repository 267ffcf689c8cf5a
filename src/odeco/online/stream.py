"""Decompose the moment of rows that lie in files or arrive in a stream: the loop that pulls."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from odeco._util.arguments import as_seed, check_choice, check_number
from odeco._util.types import RngLike
from odeco.decompose.result import StreamDecomposition
from odeco.display.progress import following
from odeco.online.checkpoint import Checkpoint
from odeco.online.dominance import warn_of_dominant_column
from odeco.online.progress import Progress
from odeco.online.readers import Reader, reader_of
from odeco.online.run import Run
from odeco.online.settings import DEFAULT_METHOD, METHODS, Method, Settings


def decompose_stream(
    data: Any,
    n_components: int | Literal["auto"],
    *,
    method: Method = DEFAULT_METHOD,
    batch_size: int | None = None,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    n_polish: int | None = None,
    order: int = 3,
    columns: Sequence[str] | str | None = None,
    drop: Sequence[str] | str | None = None,
    rng: RngLike = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    keep_checkpoint: bool = False,
    callback: Callable[[Progress], object] | None = None,
    progress: bool = False,
    client: Any = None,
) -> StreamDecomposition:
    """Decompose the moment E[x⊗ᵖ] of rows in memory, in files larger than memory, in a stream, or on a cluster.

    Parameters
    ----------
    data : array, CSR array, path, directory, iterable of arrays, …
        The rows; see `odeco.io.as_source`. Files are read block by block, never as a whole. A Dask array or
        dataframe, and what `odeco.online.dask.from_delayed` returns, stay on their cluster.
    n_components : int or "auto"
        The number k of components. ``"auto"``, with ``"core"``: as many as rows bear out that did not find them; the
        result's `rank_evidence` says how sure that is, and which other numbers are not ruled out. Up to 22 are looked
        for, or d if there are at most 50 columns (at order 3).
    method : {"core", "power", "entries"}
        ``"core"`` finds the span of the components and decomposes a small core: a few passes where the
        data can be read again, a few batches of a stream otherwise. ``"power"`` is Algorithm 2 of the paper: fresh
        rows for every iteration, exactly k R batches. ``"entries"`` adds up all d³/6 distinct entries of the moment at
        once and decomposes that: one pass or one batch, for order 3 and up to 400 columns.
    batch_size : int, optional
        Rows for each question, the paper's n. Needed by ``"power"``; for ``"core"`` on a stream that can be read once
        it is 10 d by default, at least 1,000 (with ``"auto"``, which asks of many batches, a quarter of that); refused
        where every question reads all rows.
    n_restarts, n_iterations : int, optional
        The paper's L and R, for ``"power"`` only.
    n_polish : int, optional
        For ``"core"`` on data that can be read again, and for nothing else: how many further passes refine the
        components, and give standard errors; 1 by default.
    order : int
        The order p of the moment.
    columns, drop : sequence of str, optional
        The names of the columns to read, in this order, or of those to leave out, such as an index; for CSV, Parquet
        and Arrow files and for tables.
    rng : None, int or numpy.random.Generator
        Draws the starts. None takes over the seed of a checkpoint, if there is one.
    checkpoint : path, optional
        Write the state there now and then. If the file exists, go on from it: a run that was killed ends with the
        bit-identical result. A file of other data, settings or another seed is refused. It is removed at the end.
    checkpoint_seconds : float
        How often.
    keep_checkpoint : bool
        Leave the checkpoint where it is at the end, so that the same call gives the result again, at once; for whoever
        removes it once the result is where it is wanted.
    callback : callable, optional
        Receives a `Progress` after every block of rows. If it raises, the run ends with that exception, and the
        checkpoint is written first.
    progress : bool
        Whether to show a progress bar, with rich or tqdm.
    client : dask.distributed.Client, optional
        The cluster that reads files, whose paths must be the same there; for Dask collections that of the process is
        taken by default. The result has the same bits as that of one machine.

    Returns
    -------
    StreamDecomposition
        Components, largest weight first, with standard errors where there are enough batches to tell, and with the
        names of the columns where the data have some.

    Raises
    ------
    StreamEndedError
        If there are too few rows; components that were finished are in ``error.found``.
    RankError
        With ``"auto"``, if no component stands clear of the noise.

    Warns
    -----
    DominantColumnWarning
        If one column outweighs all others, such as an index that was left in.

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
    check_choice("method", method, METHODS)
    reader = reader_of(data, client, columns=columns, drop=drop)
    settings = Settings(
        n_components=n_components,
        method=method,
        **_cutting(reader, method, batch_size, n_polish, automatic=isinstance(n_components, str)),
        n_restarts=n_restarts,
        n_iterations=n_iterations,
        order=order,
    )
    stops_when_found = method == "power"  # Algorithm 2 reads exactly k R batches
    fingerprint = "" if checkpoint is None else reader.fingerprint()
    seconds = check_number("checkpoint_seconds", checkpoint_seconds, 0, float("inf"), closed=True)
    file = Checkpoint(checkpoint, seconds, settings, as_seed(rng), fingerprint)
    run = file.load(any_seed=rng is None, stops_when_found=stops_when_found)
    if run is None:
        run = settings.start(reader.n_features, file.seed, stops_when_found=stops_when_found)
    with following(callback, progress) as told:
        _pull(reader, run, file, told)
    if keep_checkpoint:
        file.save(run)
    else:
        file.remove()
    result = _counted(cast("StreamDecomposition", run.result()), run)  # no guarantee was asked for
    result = result.with_names(reader.columns)
    warn_of_dominant_column(result, reader.squares, reader.columns, stacklevel=2)
    return result


def _cutting(
    reader: Reader, method: Method, batch_size: int | None, n_polish: int | None, *, automatic: bool
) -> dict[str, Any]:
    """Return how rows are cut into batches, refusing what the method does not use on this source."""
    passes = method != "power" and reader.repeatable
    if passes and batch_size is not None:
        raise ValueError(
            f"`batch_size` is not used by method={method!r} on data that can be read again: every question reads all "
            f"rows. Got {batch_size!r}. Leave it out, or pass an iterator to read the data once."
        )
    if not passes and n_polish is not None:
        raise ValueError(
            "`n_polish` is not used by method='power', nor on data that can be read once only. "
            f"Got {n_polish!r} and method={method!r}. Leave it out."
        )
    if method == "power" and batch_size is None:
        raise ValueError('`batch_size` must be given for method="power": the rows to average over in each iteration.')
    if passes:
        return {"n_polish": 1 if n_polish is None else n_polish}
    if batch_size is None:
        batch_size = max(1000, 10 * reader.n_features) // (4 if automatic else 1)
    return {"batch_size": batch_size}


def _counted(result: StreamDecomposition, run: Run) -> StreamDecomposition:
    """Return a result that counts every row once, and says how often all of them were read."""
    length = run.place.length
    return result if length is None else replace(result, n_rows=length, n_passes=run.n_rows // length)


def _pull(reader: Reader, run: Run, file: Checkpoint, callback: Callable[[Progress], object] | None) -> None:
    """Let a reader feed a run, as often as the run wants all rows, until it is complete."""
    if file.path is not None:
        reader.compare_with(file.digest)
    while not run.is_complete:
        for n_ahead in reader.feed(run):
            file.digest = reader.digest
            file.save_now_and_then(run)
            if callback is not None:
                with file.saved_if_interrupted(run):
                    callback(run.progress.ahead(n_ahead))
            if run.is_complete:
                return
        run.end_pass()
