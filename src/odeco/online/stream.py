"""`decompose_stream`: decompose the moment of rows that are pulled from memory, files, streams or a
Dask cluster.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, cast

from odeco._util.arguments import as_seed, check_number
from odeco._util.files import try_to_write
from odeco._util.types import RngLike
from odeco.decompose.result import StreamDecomposition
from odeco.display.progress import following
from odeco.errors import ClusterError, FileFormatError
from odeco.io.source import is_on_cluster
from odeco.online.checkpoint import RunFile
from odeco.online.executors import Executor, Threads, Workers
from odeco.online.means import PlainMean
from odeco.online.methods import DEFAULT_METHOD, Method, plan_for, plans
from odeco.online.methods.open import DEFAULT_MEMORY, DEFAULT_MOMENT, Moment
from odeco.online.progress import Progress
from odeco.online.result import result_of, warn_of_rows
from odeco.online.run import Run
from odeco.online.solver import Plan, Where


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
    rng: RngLike = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    keep_checkpoint: bool = False,
    callback: Callable[[Progress], object] | None = None,
    progress: bool = False,
    client: Any = None,
) -> StreamDecomposition:
    """Decompose the moment E[x⊗ᵖ] of rows in memory, in files larger than memory, in a stream, or
    on a cluster.

    Parameters
    ----------
    data : array, CSR array, path, directory, iterable of arrays, …
        The rows; see `odeco.io.as_source`. Files are read block by block, never as a whole. A Dask
        array or dataframe, and what `odeco.online.dask.from_delayed` returns, stay on their
        cluster.
    n_components : int or "auto"
        The number k of components. ``"auto"``, with ``"core"``: selected automatically, by held-out
        rows; the result's `rank_evidence` states the confidence, and which other numbers are not
        ruled out. The largest number is 22, or d if there are at most 50 columns (at order 3). With
        ``"entries"`` at order 4: the eigenvectors of the fourth moment of half of the rows that the
        other half confirms.
    method : {"auto", "core", "entries", "power"}
        ``"core"`` keeps a block of rows within `memory`, searches it, and refines what it finds
        with all rows. ``"entries"`` adds up all d³/6 distinct entries of the moment and decomposes
        it, for order 3 and up to 400 columns; at order 4 all d⁴/24 of them, or a range of its d²/2
        x d²/2 flattening where `memory` does not hold them, for up to d (d − 1)/2 components.
        ``"auto"`` takes ``"entries"`` for up to 100 columns where they fit into `memory`, at order
        4 for cumulants and more components than columns, else ``"core"``. ``"power"`` is Algorithm
        2 of the paper: fresh rows for every iteration, exactly k R batches, and memory for d (k +
        L) numbers only.
    n_passes : int, optional
        How often data are read that can be read again. By default three times: rows evenly spaced
        over all of them are searched, and two passes refine what was found and give standard errors
        (``"entries"``: one). With 1, they are read once, as a stream is, and the result is
        bit-identical with that of a stream of the same rows: its block is the *first* rows, so that
        they should not be sorted.
    memory : float
        The memory for rows that are kept and for matrices made of them, in megabytes.
    batch_size : int, optional
        Rows per batch, the paper's n; for ``"power"`` only.
    n_restarts, n_iterations : int, optional
        The paper's L and R, for ``"power"`` only.
    order : int
        The order p of the moment.
    moment : {"raw", "cumulant"}
        ``"cumulant"`` decomposes the third or fourth cumulant, Σ κᵢ aᵢ⊗ᵖ for rows m + Σ aᵢ sᵢ +
        noise, where the sources sᵢ are independent with cumulants κᵢ, and the noise is Gaussian
        with any covariance. ``"raw"`` decomposes E[x⊗ᵖ], for rows that are each one of several
        vectors, or whose mean is zero. At order 3 the cumulant takes dense data that can be read
        again, and one pass more, for their mean m.
    columns, drop : sequence of str, optional
        The names of the columns to read, in this order, or of those to leave out, such as an index;
        for CSV, Parquet and Arrow files and for tables.
    rng : None, int or numpy.random.Generator
        Draws the starts. With None, the seed of the checkpoint is used, if there is one.
    checkpoint : path, optional
        Where to save the state every `checkpoint_seconds`. If the file exists, the run resumes from
        it: a run that was killed ends with the bit-identical result. A file of other data, settings
        or another seed is refused. It is removed at the end.
    checkpoint_seconds : float
        The least number of seconds between two saves.
    keep_checkpoint : bool
        Whether to keep the checkpoint at the end, so that the same call returns the result again at
        once; for callers that remove it once they have saved the result.
    callback : callable, optional
        Gets a `Progress` after every block of rows. If it raises, the checkpoint is saved, and the
        run ends with that exception.
    progress : bool
        Whether to show a progress bar, with rich or tqdm.
    client : dask.distributed.Client, optional
        The cluster that reads files, whose paths must be the same there; for Dask collections the
        client of the process is the default. The result is bit-identical with that of one machine.

    Returns
    -------
    StreamDecomposition
        Components, largest weight first, with standard errors if there are enough batches for them,
        and with the names of the columns if they have names.

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
        If components are not determined because the moment is not a sum of them, as that of rows
        with a mean.

    References
    ----------
    Wang and Anandkumar, *Online and Differentially-Private Tensor Decomposition*, 2016,
    arXiv:1606.06237, Algorithm 2.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> rows = np.eye(5)[np.random.default_rng(0).choice(2, size=1000, p=[0.7, 0.3])]
    >>> odeco.decompose_stream(rows, 2, rng=0).weights.round(1)
    array([0.7, 0.3])
    """
    given = {
        "n_components": n_components,
        "n_passes": n_passes,
        "memory": None if memory == DEFAULT_MEMORY else memory,
        "batch_size": batch_size,
        "n_restarts": n_restarts,
        "n_iterations": n_iterations,
        "order": order,
        "moment": None if moment == DEFAULT_MOMENT else moment,
    }
    arguments = {name: value for name, value in given.items() if value is not None}
    made = plans(method, arguments)
    selection: dict[str, Any] = {"columns": columns, "drop": drop, "centred": made[0].centred}
    rows: Executor
    if client is not None or is_on_cluster(data):
        rows = Workers(data, client=client, **selection)
    else:
        rows = Threads(data, **selection)
    seconds = check_number("checkpoint_seconds", checkpoint_seconds, 0, float("inf"), closed=True)
    where = Where(rows.n_features, as_seed(rng), pulled=True, repeatable=rows.repeatable)
    plan, _ = plan_for(made, where, asked=method != "auto")
    file = Checkpoint(checkpoint, seconds, method, arguments, plan, rows)
    run = file.load(any_seed=rng is None)
    mean = PlainMean()
    with (
        following(callback, progress) if progress else nullcontext(callback) as report,
        file.saved_if_cluster_fails(),
    ):
        while not run.done:
            for step in rows.feed(run, mean):
                run = step.run
                file.take(run)
                if report is not None:
                    with file.saved_if_interrupted():
                        report(run.progress.ahead(step.n_ahead))
                if run.done:
                    break
            else:
                run = run.after_data(mean)
    if keep_checkpoint:
        file.save(run)
    else:
        file.remove()
    result = cast(
        "StreamDecomposition", result_of(run, run.estimate(mean), rows.columns)
    )  # not private
    warn_of_rows(run, result, rows.squares, stacklevel=2)
    return result


class Checkpoint:
    """The file from which a run resumes: saved at intervals, and read if it exists.

    Parameters
    ----------
    path : path or None
        The file; None for none.
    seconds : float
        The least number of seconds between two saves.
    method, arguments
        What was asked for.
    plan : Plan
        The plan of the run: the file of another run is refused.
    rows : Executor
        The rows.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        seconds: float,
        method: str,
        arguments: Mapping[str, Any],
        plan: Plan,
        rows: Executor,
    ) -> None:
        self.path = None if path is None else Path(path)
        if self.path is not None:
            try_to_write(self.path)  # later, what cannot be written is a warning
        self._seconds = seconds
        self._method = method
        self._arguments = arguments
        self._plan = plan
        self._rows = rows
        self._source = "" if path is None else rows.fingerprint()
        self._last = time.monotonic()
        self._latest: Run | None = None

    def load(self, *, any_seed: bool) -> Run:
        """Return the run as it was saved last, or one that begins if there is no file.

        The seed in the file must be that of this run; with `any_seed` it becomes that of this run.
        """
        run = None
        digest = None
        if self.path is not None and self.path.exists():
            file = RunFile.load(self.path)
            if any_seed:
                self._plan = self._plan.bound(self._plan.where._replace(seed=file.where.seed))
            run = file.run
            digest = file.digest
            self._compare(file)
        if self.path is not None:
            self._rows.compare_with(digest)
        if run is None:
            return Run.begin(self._plan.start())
        return run

    def _compare(self, file: RunFile) -> None:
        """Raise if a file is that of another run."""
        plan = self._plan if file.run is None else file.run.solver.plan
        held = {
            "order": plan.order,
            "method": plan.name,
            **asdict(plan),
            "source": file.source,
            "seed": file.where.seed,
        }
        wanted = {
            "order": self._plan.order,
            "method": self._plan.name,
            **asdict(self._plan),
            "source": self._source,
        }
        wanted["seed"] = self._plan.where.seed
        wanted.pop("where")
        for name in wanted:
            if held.get(name) != wanted[name]:
                raise FileFormatError(
                    f"{self.path} must be the checkpoint of this run. It has "
                    f"{name}={held.get(name)!r}, the run {name}={wanted[name]!r}. Pass another "
                    "path, or remove the file to begin again."
                )

    def take(self, run: Run) -> None:
        """Take the latest state of the run, and save it if the last save was long enough ago."""
        self._latest = run
        if time.monotonic() - self._last >= self._seconds:
            self.save(run)

    def save(self, run: Run) -> bool:
        """Save now, if there is a file to save to; return whether it holds the run. Warn if it
        cannot be written.
        """
        if self.path is None:
            return False
        facts: dict[str, Any] = {"source": self._source, "digest": self._rows.digest}
        file = RunFile(self._method, self._arguments, self._plan.where, run, **facts)
        self._last = time.monotonic()
        try:
            file.save(self.path)
        except OSError as error:  # such as on a full disk, which may have room again later
            warnings.warn(
                f"A checkpoint could not be written to {self.path}: {error.strerror or error}. "
                "The run goes on; free some space, so that a later one can be.",
                RuntimeWarning,
                stacklevel=3,
            )
            return False
        return True

    @contextmanager
    def saved_if_interrupted(self) -> Iterator[None]:
        """Save if the body raises: a callback can end a run by an exception without loss."""
        try:
            yield
        except BaseException:
            if self._latest is not None:
                self.save(self._latest)
            raise

    @contextmanager
    def saved_if_cluster_fails(self) -> Iterator[None]:
        """Save if the cluster of the body is lost, and say so."""
        try:
            yield
        except ClusterError as error:
            run = self._latest
            kept = "Pass `checkpoint` to be able to resume."
            if run is not None and self.save(run):
                kept = (
                    f"The state after {run.n_rows:,} rows is in {self.path}: call again to resume "
                    "from it."
                )
            raise ClusterError(f"{error} {kept}") from error

    def remove(self) -> None:
        """Remove the file."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
