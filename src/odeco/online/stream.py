"""`decompose_stream`: decompose the moment of rows that are pulled from memory, files, streams or a Dask cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from odeco._util.arguments import as_seed, check_choice, check_count, check_number, check_order
from odeco._util.types import FloatArray, RngLike
from odeco.decompose.result import StreamDecomposition
from odeco.display.progress import following
from odeco.errors import ClusterError, FileFormatError, SourceError
from odeco.io.coerce import as_source
from odeco.io.errors import as_subject
from odeco.io.reading import Passes
from odeco.io.rows import as_weights
from odeco.io.source import BatchSource, Source, is_on_cluster
from odeco.online.batches import FreshRows, Progress
from odeco.online.checkpoint import RunFile, SavedRun
from odeco.online.dask.partitions import WeightedRows, weights_in_column
from odeco.online.dask.requests import cluster_rows, sum_on_cluster
from odeco.online.run import Run
from odeco.online.settings import DEFAULT_MEMORY, DEFAULT_METHOD, DEFAULT_MOMENT, METHODS, Method, Moment, Settings
from odeco.online.sums import RowSum
from odeco.online.tree import rows_per_chunk, rows_per_unit
from odeco.online.weights import PushedWeights, WeightedSource, WeightSum, without_column


def decompose_stream(
    data: Any,
    n_components: int | Literal["auto"],
    *,
    method: Method = DEFAULT_METHOD,
    n_passes: int | None = None,
    memory: float = DEFAULT_MEMORY,
    batch_size: int | None = None,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    order: int = 3,
    moment: Moment = DEFAULT_MOMENT,
    columns: Sequence[str] | str | None = None,
    drop: Sequence[str] | str | None = None,
    sample_weight: Any = None,
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
        The number k of components. ``"auto"``, with ``"core"``: selected automatically, by held-out rows; the result's
        `rank_evidence` states the confidence, and which other numbers are not ruled out. The largest number is 22, or
        d if there are at most 50 columns (at order 3). With ``"entries"`` at order 4: the eigenvectors of the fourth
        moment of half of the rows that the other half confirms.
    method : {"auto", "core", "entries", "power"}
        ``"core"`` keeps a block of rows within `memory`, searches it, and refines what it finds with all rows.
        ``"entries"`` adds up all d³/6 distinct entries of the moment and decomposes it, for order 3 and up to 400
        columns; at order 4 all d⁴/24 of them, or a range of its d²/2 x d²/2 flattening where `memory` does not hold
        them, for up to d (d − 1)/2 components. ``"auto"`` takes ``"entries"`` for up to 100 columns where they fit into
        `memory`, at order 4 for cumulants and more components than columns, else ``"core"``.
        ``"power"`` is Algorithm 2 of the paper: fresh rows for every iteration, exactly k R batches, and memory for
        d (k + L) numbers only.
    n_passes : int, optional
        How often data are read that can be read again. By default three times: rows evenly spaced over all of them are
        searched, and two passes refine what was found and give standard errors (``"entries"``: one). With 1, they are
        read once, as a stream is, and the result is bit-identical with that of a stream of the same rows: its block is
        the *first* rows, so that they should not be sorted.
    memory : float
        The memory for rows that are kept and for matrices made of them, in megabytes.
    batch_size : int, optional
        Rows per batch, the paper's n; for ``"power"`` only.
    n_restarts, n_iterations : int, optional
        The paper's L and R, for ``"power"`` only.
    order : int
        The order p of the moment.
    moment : {"raw", "cumulant"}
        ``"cumulant"`` decomposes the third or fourth cumulant, Σ κᵢ aᵢ⊗ᵖ for rows m + Σ aᵢ sᵢ + noise, where the
        sources sᵢ are independent with cumulants κᵢ, and the noise is Gaussian with any covariance. ``"raw"``
        decomposes E[x⊗ᵖ], for rows that are each one of several vectors, or whose mean is zero. At order 3 the cumulant
        takes dense data that can be read again, and one pass more, for their mean m.
    columns, drop : sequence of str, optional
        The names of the columns to read, in this order, or of those to leave out, such as an index; for CSV, Parquet
        and Arrow files and for tables.
    sample_weight : array of float, or str, optional
        How often each row counts, by default once: the moment is Σ w x⊗ᵖ / Σ w. An array with one number for each row,
        or the name of the column of a table that has them, which is then not a column of the rows; of data on a
        cluster, this column is read by the client. Not for cumulants, nor for a selected number of components of the
        whole fourth moment. Errors of weights are then upper bounds, see Notes.
    rng : None, int or numpy.random.Generator
        Draws the starts. With None, the seed of the checkpoint is used, if there is one.
    checkpoint : path, optional
        Where to save the state every `checkpoint_seconds`. If the file exists, the run resumes from it: a run that was
        killed ends with the bit-identical result. A file of other data, settings or another seed is refused. It is
        removed at the end.
    checkpoint_seconds : float
        The least number of seconds between two saves.
    keep_checkpoint : bool
        Whether to keep the checkpoint at the end, so that the same call returns the result again at once; for callers
        that remove it once they have saved the result.
    callback : callable, optional
        Gets a `Progress` after every block of rows. If it raises, the checkpoint is saved, and the run ends with that
        exception.
    progress : bool
        Whether to show a progress bar, with rich or tqdm.
    client : dask.distributed.Client, optional
        The cluster that reads files, whose paths must be the same there; for Dask collections the client of the process
        is the default. The result is bit-identical with that of one machine.

    Returns
    -------
    StreamDecomposition
        Components, largest weight first, with standard errors if there are enough batches for them, and with the names
        of the columns if they have names.

    Raises
    ------
    StreamEndedError
        If there are too few rows; complete components are in ``error.found``.
    RankError
        With ``"auto"``, if no component stands clear of the noise.

    Warns
    -----
    DominantColumnWarning
        If one column dominates all others, such as an index that was left in.
    MisfitWarning
        If components are not determined because the moment is not a sum of them, as that of rows with a mean.

    Notes
    -----
    With `sample_weight` w, rows are multiplied by w^(1/p), which gives Σ w x⊗ᵖ / n, and the result is divided by the
    mean weight. Rows are checked whatever their weight. The mean weight has an error of its own, which may depend on
    that of the moment: `weight_errors` are the sum of both, which is an upper bound. With ``"entries"`` the components
    are those of repeated rows, to rounding; with ``"core"``, the rows that are searched are others, and results agree
    within their errors. Errors are those of independent rows; copies of rows would seem to be independent.

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
    on_cluster = client is not None or is_on_cluster(data)
    selection = {"columns": columns, "drop": drop, "sample_weight": sample_weight}
    settings = Settings(
        n_components=n_components,
        method=method,
        batch_size=batch_size,
        memory=memory,
        n_restarts=n_restarts,
        n_iterations=n_iterations,
        order=order,
        moment=moment,
    )
    read = partial(ClusterReader, client=client) if on_cluster else LocalReader
    reader: LocalReader | ClusterReader = read(data, order=order, centred=settings.centred, **selection)
    settings = replace(settings, n_passes=_passes(reader, settings, n_passes))
    fingerprint = "" if checkpoint is None else reader.fingerprint()
    seconds = check_number("checkpoint_seconds", checkpoint_seconds, 0, float("inf"), closed=True)
    file = Checkpoint(checkpoint, seconds, settings, as_seed(rng), fingerprint)
    run = file.load(any_seed=rng is None)
    if run is None:
        run = settings.start(reader.n_features, file.seed)
    if isinstance(run.batches, FreshRows):  # Algorithm 2 reads exactly k R batches
        run.batches = replace(run.batches, stops_when_found=True)
    if reader.weighted is not None:
        settings.check_can_be_weighted(reader.n_features)
        run.weigh(reader.weighted)
    if checkpoint is not None:
        reader.compare_with(file.digest)
    with (
        following(callback, progress) if progress else nullcontext(callback) as report,
        file.saved_if_cluster_fails(run),
    ):
        while not run.is_complete:
            for n_ahead in reader.feed(run):
                file.digest = reader.digest
                file.save_if_due(run)
                if report is not None:
                    with file.saved_if_interrupted(run):
                        report(run.progress.ahead(n_ahead))
                if run.is_complete:
                    break
            else:
                run.batches.end_pass(run)
    if keep_checkpoint:
        file.save(run)
    else:
        file.remove()
    result = cast("StreamDecomposition", run.result(reader.columns))  # not private
    run.warn_of_rows(result, stacklevel=2)
    return result


def _passes(reader: LocalReader | ClusterReader, settings: Settings, n_passes: int | None) -> int | None:
    """Return how often data are read; None if they are a stream."""
    method, _ = settings.chosen_method(reader.n_features)
    if settings.takes_one_pass(reader.n_features):
        if n_passes not in (None, 1):
            raise ValueError(
                f"`n_passes` must be 1 where the fourth moment is added up. Got {n_passes!r}. Leave it out."
            )
        return 1 if reader.repeatable else None
    if method == "power" or not reader.repeatable:
        if n_passes not in (None, 1):
            raise ValueError(
                "`n_passes` must be 1 for method='power' and for data that can be read once only. "
                f"Got {n_passes!r} and method={method!r}. Leave it out."
            )
        return None
    if n_passes is not None:
        return check_count("n_passes", n_passes)
    return 2 if method == "entries" else 3


class LocalReader:
    """Rows that this process reads, block by block.

    Attributes
    ----------
    n_features : int
        Their width.
    columns : sequence of str or None
        The names of the columns, if they have names.
    repeatable : bool
        Whether they can be read again.
    digest : str or None
        The checksum of the rows read in the current pass; None if the fingerprint identifies the data.
    weighted : WeightedSource, PushedWeights or None
        The weights of rows, if they have any.
    """

    digest: str | None = None

    def __init__(
        self, data: Any, *, sample_weight: Any = None, order: int = 3, centred: bool = False, **selection: Any
    ) -> None:
        self.weighted: WeightedSource | None = None
        if sample_weight is not None:
            self.weighted = WeightedSource.of(data, sample_weight, check_order(order), **selection)
        source: BatchSource = as_source(data, **selection) if self.weighted is None else self.weighted
        if source.repeatable and not getattr(source, "sparse", False):
            # Dense blocks of the size of a chunk need no joining. Sparse blocks of this height would be slow.
            height = rows_per_chunk(source.n_features)
            # What has no fingerprint may be a query, which is not run twice to read it once.
            if isinstance(source, Source) and source.identified and self.weighted is None:
                source = as_source(data, batch_rows=height, **selection)
            else:
                source = as_source(source, batch_rows=height)
        source = CentredSource(source) if centred else source
        self._source = source
        self.n_features, self.repeatable = source.n_features, source.repeatable
        self.columns: Sequence[str] | None = getattr(source, "columns", None)
        self._passes: Passes | None = None

    def fingerprint(self) -> str:
        """Return the fingerprint of the source."""
        return self._source.fingerprint()

    def compare_with(self, digest: str | None) -> None:
        """Compare every pass with the first, if the fingerprint does not identify the source."""
        self._passes = Passes(self._source, digest)

    def feed(self, run: Run) -> Iterator[int]:
        """Feed a run from its next row to the last one, or until it is complete.

        Yields after every block the number of rows that workers have added up and the run has not taken yet: 0.
        """
        row, passes = run.batches.next_row(run), self._passes
        for rows in self._source.iterate_from(row) if passes is None else passes.read_from(row):
            run.push(rows)
            self.digest = None if passes is None else passes.digest
            yield 0


class CentredSource(Source):
    """The rows of a source minus their mean, which is added up in a pass of its own before the first row is used."""

    def __init__(self, source: Any) -> None:
        if not source.repeatable or getattr(source, "sparse", False):
            what = "sparse rows" if source.repeatable else "rows that can be read once only"
            raise ValueError(
                f"The third cumulant takes dense rows that can be read again, for their mean. Got {what}. Pass an "
                "array or a file, or subtract the mean yourself and take moment='raw'."
            )
        self._source, self.name, self.path = source, source.name, None
        self.n_features, self.n_rows = source.n_features, getattr(source, "n_rows", None)
        self.columns = getattr(source, "columns", None)
        self.identified = getattr(source, "identified", False)

    def fingerprint(self) -> str:
        """Return that of the source, and that its rows are centred."""
        return f"{self._source.fingerprint()}:centred"

    @cached_property
    def mean(self) -> FloatArray:
        """The mean of all rows, which does not depend on how they are cut."""
        last = np.eye(self.n_features + 1)[:, -1:]
        total = RowSum("image", last, 2)  # of rows (x, 1), the image of (0, 1) at order 2 is Σ (x, 1)
        for block in self._source.iterate_from(0):
            total.update(np.column_stack([block, np.ones(len(block), block.dtype)]))
        return np.asarray(total.mean()[:-1, 0])

    def _blocks(self, row: int) -> Iterator[Any]:
        mean = self.mean
        for block in self._source.iterate_from(row):
            yield (block - mean).astype(block.dtype)


class ClusterReader:
    """Rows on a cluster: its workers add them up, and the sums come back. The attributes are those of `LocalReader`."""

    repeatable = True
    digest: str | None = None
    _checksum: int | None = None  # of the rows of the last whole pass

    def __init__(
        self,
        data: Any,
        *,
        client: Any,
        order: int,
        centred: bool,
        columns: Any = None,
        drop: Any = None,
        sample_weight: Any = None,
    ) -> None:
        if centred:
            raise ValueError(
                "The third cumulant is that of rows that this process reads. Got rows on a cluster. Subtract their "
                "mean there, such as rows - rows.mean(axis=0) of a Dask array, and take moment='raw'."
            )
        self.weighted: PushedWeights | None = None
        if isinstance(sample_weight, str):
            name, sample_weight = sample_weight, weights_in_column(data, sample_weight, client)
            columns, drop = without_column(name, columns, drop)
        self._rows = cluster_rows(data, None, client=client, columns=columns, drop=drop)
        if sample_weight is not None:
            weights = as_weights(sample_weight, self._rows.n_rows)
            self._rows = WeightedRows(self._rows, weights, check_order(order))
            self.weighted = PushedWeights(WeightSum(), weights)
        self.n_features = self._rows.n_features
        self.columns: Sequence[str] | None = self._rows.columns

    def fingerprint(self) -> str:
        """Return the fingerprint of the rows."""
        return str(self._rows.fingerprint())

    def compare_with(self, digest: str | None) -> None:
        """Do nothing: the fingerprint identifies the rows."""

    def feed(self, run: Run) -> Iterator[int]:
        """Send the queries of a run one after the other, each for all rows for which it is known."""
        total, checksum, n_read = run.total, 0, 0
        if total.held.waiting or total.n_rows % rows_per_unit(self.n_features, sparse=self._rows.sparse):
            run.begin_batch_again()  # the run stopped in the middle of a leaf, in a process that reads rows
        while not run.is_complete and run.batches.next_row(run) < self._rows.n_rows:
            segments = run.batches.segments(run, self._rows.n_rows)
            with closing(sum_on_cluster(self._rows, run, segments)) as answers:
                for part, n_ahead in answers:
                    if part is not None:
                        checksum, n_read = checksum + part.checksum, n_read + part.n_rows
                    yield n_ahead
        if n_read == self._rows.n_rows:
            if self._checksum not in (None, checksum % 2**64):
                raise SourceError(
                    f"{as_subject(self._rows.name)} must give the same rows each time they are computed. They differ "
                    "between two passes. Use functions that always return the same rows, such as those of a file or of "
                    "a fixed seed, or keep the rows with `persist()`."
                )
            self._checksum = checksum % 2**64


class Checkpoint:
    """The file from which a run resumes: saved at intervals, and read if it exists.

    Parameters
    ----------
    path : path or None
        The file; None for none.
    seconds : float
        The least number of seconds between two saves.
    settings, seed, source
        Identify the run: the file of another run is refused.

    Attributes
    ----------
    digest : str or None
        The checksum of the rows read in the current pass, which goes into the file.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, seconds: float, settings: Settings, seed: int, source: str
    ) -> None:
        self.path = None if path is None else Path(path)
        self.seconds, self.settings, self.seed, self.source = seconds, settings, seed, source
        self.digest: str | None = None
        self._last = time.monotonic()

    def load(self, *, any_seed: bool) -> Run | None:
        """Return the run as it was saved last, or None if there is no file.

        The seed in the file must be that of this run; with `any_seed` it becomes that of this run.
        """
        if self.path is None or not self.path.exists():
            return None
        file = RunFile.load(self.path)
        if any_seed:
            self.seed = file.seed
        asked = {**asdict(self.settings), "source": self.source, "seed": self.seed}
        held = {**asdict(file.settings), "source": file.source, "seed": file.seed}
        for name, wanted in asked.items():
            if held[name] != wanted:
                raise FileFormatError(
                    f"{self.path} must be the checkpoint of this run. It has {name}={held[name]!r}, the run "
                    f"{name}={wanted!r}. Pass another path, or remove the file to begin again."
                )
        self.digest = file.digest
        return file.resume()

    def save_if_due(self, run: Run) -> None:
        """Save if the last save was `seconds` ago."""
        if time.monotonic() - self._last >= self.seconds:
            self.save(run)

    def save(self, run: Run) -> None:
        """Save now, if there is a file to save to."""
        if self.path is not None:
            RunFile(self.settings, self.seed, self.source, run=SavedRun.of(run), digest=self.digest).save(self.path)
            self._last = time.monotonic()

    @contextmanager
    def saved_if_interrupted(self, run: Run) -> Iterator[None]:
        """Save if the body raises: a callback can end a run by an exception without loss."""
        try:
            yield
        except BaseException:
            self.save(run)
            raise

    @contextmanager
    def saved_if_cluster_fails(self, run: Run) -> Iterator[None]:
        """Save if the cluster of the body is lost, and say so."""
        try:
            yield
        except ClusterError as error:
            self.save(run)
            kept = "Pass `checkpoint` to be able to resume."
            if self.path is not None:
                kept = f"The state after {run.n_rows:,} rows is in {self.path}: call again to resume from it."
            raise ClusterError(f"{error} {kept}") from error

    def remove(self) -> None:
        """Remove the file."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
