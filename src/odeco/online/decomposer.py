"""`OnlineDecomposer`: decompose the moment of rows that are pushed, batch by batch."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict
from html import escape
from typing import Any, Literal, Self

import numpy as np

from odeco._util.arguments import as_seed
from odeco._util.types import FloatArray, RngLike
from odeco.decompose.result import PrivateStreamDecomposition, StreamDecomposition
from odeco.display.progress import following
from odeco.errors import BadRowError, FileFormatError, NothingFoundError, RankError, StreamEndedError
from odeco.io.rows import as_batch_weights, as_rows, bad_row_error, check_no_weights, check_private_rows
from odeco.io.source import is_on_cluster, names_of
from odeco.online.batches import Progress
from odeco.online.checkpoint import RunFile, SavedRun
from odeco.online.dask.partitions import WeightedRows
from odeco.online.dask.requests import cluster_rows, sum_on_cluster
from odeco.online.run import Run, Snapshot
from odeco.online.settings import DEFAULT_MEMORY, DEFAULT_METHOD, DEFAULT_MOMENT, Method, Moment, Settings
from odeco.online.weights import PushedWeights, roots_of, times_roots
from odeco.privacy.ledger import Ledger
from odeco.privacy.ledger_file import Account
from odeco.privacy.noise import NoiseSource
from odeco.privacy.report import warn_of_reuse


class OnlineDecomposer:
    """Decompose the moment E[x⊗ᵖ] of rows that are pushed, and refine the components with the rows that follow.

    Parameters
    ----------
    n_components : int or "auto"
        The number k of components. ``"auto"``, with ``"core"``: selected automatically, by held-out rows of the block
        that is searched. The result's `rank_evidence` states the confidence.
    method : {"auto", "core", "entries", "power"}
        ``"core"`` keeps the first rows as a block within `memory`, searches it, and refines what it finds with all rows
        that follow, each read once. ``"entries"`` adds up all d³/6 distinct entries of the moment, for order 3 and up
        to 400 columns; at order 4 see `decompose_stream`. ``"auto"`` takes ``"entries"`` for up to 100 columns where
        they fit into `memory`, at order 4 for cumulants and more components than columns, else ``"core"``. ``"power"``
        is Algorithm 2 of the paper: k R batches, one for each iteration of each component; rows that follow refine
        them.
    memory : float
        The memory for rows that are kept and for matrices made of them, in megabytes.
    batch_size : int, optional
        Rows per batch, the paper's n: for ``"power"``, for private runs, where each release is the mean over one batch,
        and as the unit of `forgetting`. Otherwise everything depends on the count of rows only, and none is taken.
    n_restarts, n_iterations : int, optional
        The paper's L and R, for ``"power"`` only; by default those of `odeco.power.Schedule.default`.
    order : int
        The order p of the moment.
    moment : {"raw", "cumulant"}
        At order 4, whether E[x⊗⁴] is decomposed or the fourth cumulant; see `decompose_stream`. The third cumulant
        needs the mean of all rows beforehand, which rows that are pushed do not have.
    forgetting : float
        Once all components are found, the factor by which the weight of the past is multiplied before each further
        batch. 1 averages over all rows; a smaller factor follows a distribution that drifts.
    epsilon, delta, norm_bound : float, optional
        For a private run, all three: the run is (ε, δ)-differentially private for every row of the stream, with ε > 0
        and δ below 1/batch_size, and rows longer than `norm_bound` are scaled down to it. It must be known without
        looking at the data.
    neighbour_relation : {"replace", "add_remove"}, optional
        For a private run: what may happen to one row. It is replaced by any other (the default), or blanked at
        its place.
    rng : None, int or numpy.random.Generator
        Draws the starts. It never touches privacy noise.
    callback : callable, optional
        Gets a `Progress` after every batch.
    progress : bool
        Whether every push shows a progress bar, with rich or tqdm, towards a first result.
    noise : NoiseSource, optional
        For tests of private runs: with any source but the default the result states that it is not private.

    Notes
    -----
    Corrections to Algorithm 2 as printed: the update adds (xᵀu)² x of the same row; deflation uses the unit vector uₜ;
    the weight is read off the last image, ⟨u_{R−1}, image⟩, and paired with u_R, so that no second accumulator is
    needed.

    **Private runs.** Every batch is the data of one release, so each row is in one release only and has the whole
    guarantee, for a stream of any length. Rows that are not finite count as zeros, and no message depends on a value.
    The `result` may be published; the decomposer itself holds the exact sum over the current batch, and so does its
    checkpoint (see `save`). A user with several rows has the guarantee for each of them, not for all together.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> online = odeco.OnlineDecomposer(2, method="power", batch_size=500, n_restarts=5, n_iterations=10, rng=0)
    >>> generator = np.random.default_rng(0)
    >>> while online.progress.n_rows_needed:
    ...     _ = online.partial_fit(np.eye(4)[generator.integers(2, size=300)])
    >>> online.result().weights.round(1)
    array([0.5, 0.5])
    """

    def __init__(
        self,
        n_components: int | Literal["auto"],
        *,
        method: Method = DEFAULT_METHOD,
        memory: float = DEFAULT_MEMORY,
        batch_size: int | None = None,
        n_restarts: int | None = None,
        n_iterations: int | None = None,
        order: int = 3,
        moment: Moment = DEFAULT_MOMENT,
        forgetting: float = 1.0,
        epsilon: float | None = None,
        delta: float | None = None,
        norm_bound: float | None = None,
        neighbour_relation: Literal["replace", "add_remove"] | None = None,
        rng: RngLike = None,
        callback: Callable[[Progress], object] | None = None,
        progress: bool = False,
        noise: NoiseSource | None = None,
    ) -> None:
        settings = Settings(
            n_components=n_components,
            method=method,
            memory=memory,
            batch_size=batch_size,
            n_restarts=n_restarts,
            n_iterations=n_iterations,
            order=order,
            moment=moment,
            forgetting=forgetting,
            epsilon=epsilon,
            delta=delta,
            norm_bound=norm_bound,
            neighbour_relation=neighbour_relation,
        )
        if settings.centred:
            raise ValueError(
                "The third cumulant needs the mean of all rows beforehand. Got moment='cumulant' and order=3 for rows "
                "that are pushed. Subtract their mean if it is known, or pass data that can be read again to "
                "decompose_stream."
            )
        guarantee = settings.guarantee
        if guarantee is None and noise is not None:
            raise ValueError("`noise` is for private runs. Got one without `epsilon`, `delta` and `norm_bound`.")
        self._settings, self._seed = settings, as_seed(rng)
        self._account = None if guarantee is None else Account(Ledger(guarantee.mu), noise)
        self._callback, self._has_bar = callback, progress
        self._run: Run | None = None
        self._names: tuple[str, ...] | None = None
        self._one_at_a_time = threading.RLock()

    def partial_fit(self, rows: Any, y: None = None, sample_weight: Any = None) -> Self:  # noqa: ARG002 - as scikit-learn
        """Learn from rows, dense or CSR, any number of them; those of a Dask array or dataframe stay on their cluster.

        If a row is not finite, or if an error or an interrupt ends the call early, nothing is changed. In a private run
        rows that are not finite count as zeros; a release cannot be undone, so such a run then stands at row `n_rows`:
        where it was before the call, or after the last batch that was paid for.

        Parameters
        ----------
        rows : array, CSR array or table
            The rows.
        y : None
            Ignored.
        sample_weight : array of float, optional
            How often each row counts, by default once; see `decompose_stream`. Batches with and without weights may
            follow each other. Private runs, cumulants and runs with `forgetting` have none.
        """
        with self._one_at_a_time:
            run, on_cluster = self._run, is_on_cluster(rows)
            checked = self._checked(rows, None if run is None else run.total.block.shape[0])
            checked, weights = self._weighted(checked, sample_weight)
            if run is None:
                run = self._settings.start(int(checked.shape[1]), self._seed, self._account, n_closed=self._n_spent)
            names = self._checked_names(rows)
            snapshot, n_charges = run.snapshot(), self._n_charges
            try:
                self._run = run
                if weights is not None or run.weights is not None:
                    run.weigh(PushedWeights.after(run.weights, weights, checked.shape[0], run.n_rows))
                with following(self._callback, True) if self._has_bar else nullcontext(self._callback) as report:
                    if on_cluster:
                        _push_on_cluster(run, checked, report)
                    else:
                        run.push(checked, report)
                self._names = names
                if run.weights is not None:
                    run.weights = PushedWeights(run.weights.up_to(run.n_rows), np.empty(0))
            except BadRowError as error:
                self._go_back(run, snapshot, n_charges)
                if self._account is not None:  # clipped rows are never bad; an error must not depend on one
                    raise RuntimeError("Rows of a private run could not be added up. Nothing was released.") from None
                if on_cluster:
                    raise
                raise bad_row_error(checked) from error  # counted within these rows, not within a batch
            except BaseException:
                self._go_back(run, snapshot, n_charges)
                raise
            finally:
                run.release_snapshot(snapshot)
        return self

    def __repr__(self) -> str:
        found = self._found(RankError)
        table = [] if found is None else repr(found).splitlines()[1:]
        return "\n".join([f"{type(self).__name__}: {self.verdict}", *table])

    def _repr_html_(self) -> str:
        """Return the verdict and what was found so far, for a notebook."""
        found = self._found(RankError)
        title = f"<p><strong>{type(self).__name__}</strong>: {escape(self.verdict)}</p>"
        return title if found is None else f"{title}{found._repr_html_()}"

    @property
    def verdict(self) -> str:
        """The progress of the run and the number of components found, in one sentence."""
        found, progress = self._found(RankError), self.progress
        size = self._settings.batch_size
        settings = f"k = {self._settings.n_components}, method={self.method!r}"
        settings += "" if size is None else f", batch_size={size:,}"
        number = 0 if found is None else len(found.weights)
        wanted = "" if self._settings.n_components == "auto" else f" of {self._settings.n_components}"
        text = f"{number}{wanted} components found after {self.n_rows:,} rows"
        if found is not None and self._account is None and not found.clear.all():
            text += f", {int(np.sum(~found.clear))} of them not yet determined"
        elif progress.n_rows_needed and found is None:
            text += f"; {progress.stage}, {progress.n_rows_needed:,} rows more until all are"
        return f"{text} ({settings}{'' if self._account is None else ', private'})"

    def _found(self, *quiet: type[Exception]) -> StreamDecomposition | PrivateStreamDecomposition | None:
        """Return the components found so far; None if there are none, or if an error in `quiet` says why."""
        run = self._run
        with suppress(StreamEndedError, *quiet):
            return None if run is None or not run.n_rows else run.result(self._names)
        return None

    @property
    def method(self) -> Method:
        """The solver that finds the components; ``"auto"`` before the first rows."""
        return self._chosen[0]

    @property
    def method_reason(self) -> str:
        """Why that method was chosen."""
        return self._chosen[1]

    @property
    def _chosen(self) -> tuple[Method, str]:
        if self._run is None:
            return self._settings.method, "rows decide"
        return self._settings.chosen_method(self._run.total.block.shape[0])

    @property
    def weights_(self) -> FloatArray:
        """The weights of `result`, largest first."""
        return self.result().weights

    @property
    def components_(self) -> FloatArray:
        """The vectors of `result`, one per row."""
        return self.result().vectors.T

    @property
    def n_samples_seen_(self) -> int:
        """The number of rows so far: `n_rows`."""
        return self.n_rows

    @property
    def n_rows(self) -> int:
        """Rows used so far; in a private run that resumes from a checkpoint, rows paid for since then included."""
        return self._n_spent if self._run is None else self._run.n_rows

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        if self._run is not None:
            return self._run.progress
        n_batches, size = self._settings.n_batches, self._settings.batch_size or 0
        return Progress("waiting for rows", 0.0, self.n_rows, None if n_batches is None else n_batches * size)

    def result(self) -> StreamDecomposition | PrivateStreamDecomposition:
        """Return the components found so far, all or those that are finished, largest weight first.

        It is the best estimate from all rows so far, also while they are too few to find all components: `clear` of the
        result tells which components are determined. ``"power"`` and private runs report components of complete
        batches only.

        In a private run it is a `PrivateStreamDecomposition`, which may be published. In others, a
        `DominantColumnWarning` is issued if one column dominates all others, and a `MisfitWarning` if the moment is not
        the sum of the components.
        """
        result = self._found()
        if result is None:
            needed = self.progress.n_rows_needed
            remedy = (
                "Push rows with partial_fit first." if needed is None else f"All take {self.n_rows + needed:,} rows."
            )
            raise NothingFoundError(
                f"At least one component must be finished. None is after {self.n_rows:,} rows. {remedy}"
            )
        if self._run is not None:
            self._run.warn_of_rows(result, stacklevel=2)
        return result

    def save(self, path: str | os.PathLike[str], *, keep_sum: bool = True) -> None:
        """Write a checkpoint, atomically and without pickle; `load` resumes from it with bit-identical results.

        Parameters
        ----------
        path : path
            The file. Only its owner may read it.
        keep_sum : bool
            For private runs: whether the file holds the exact sum over the rows of the unfinished batch. With it the
            file is as confidential as the rows; without it nothing in the file is, and the run resumes at the first row
            of that batch, `n_rows`.

        Notes
        -----
        A private run keeps its ledger in ``<path>.ledger``, beside the checkpoint it was first saved to, and from then
        on writes every charge there before the release is made. So a run that resumes from an older checkpoint knows
        which rows have been paid for, and does not use them again: `n_rows` is then beyond them.
        """
        with self._one_at_a_time:
            run, private = self._run, self._account is not None
            if run is not None and private and keep_sum:
                run.total.let_go_of_rows()
            saved = None if run is None else SavedRun.of(run, keep_sum=keep_sum or not private)
            account = None if self._account is None else self._account.keep_beside(path)
            weights = None if run is None or run.weights is None else run.weights.up_to(run.n_rows).sum.saved
            file = RunFile(self._settings, self._seed, account=account, run=saved, weights=weights, names=self._names)
            file.save(path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        callback: Callable[[Progress], object] | None = None,
        progress: bool = False,
        noise: NoiseSource | None = None,
    ) -> OnlineDecomposer:
        """Read a checkpoint that `save` wrote; the run resumes with the row after the first `n_rows`."""
        file = RunFile.load(path)
        if file.source is not None:
            raise FileFormatError(
                f"{path} must be the checkpoint of rows that are pushed. It is that of a run that reads its own data. "
                "Pass it to odeco.decompose_stream as `checkpoint`, with the same data."
            )
        account = None if file.account is None else Account.opened(file.account, path, noise)
        given = {name: value for name, value in asdict(file.settings).items() if name != "n_passes"}
        online = cls(**given, callback=callback, progress=progress)
        online._seed, online._account = file.seed, account
        online._run, online._names = file.resume(account), file.names
        if file.weights is not None and online._run is not None:
            online._run.weights = PushedWeights.restored(file.weights)
        if account is not None:
            online._skip_what_is_spent(path)
        return online

    def __getstate__(self) -> dict[str, Any]:
        if self._account is not None:
            raise TypeError("A private run must stay one of a kind: a copy would release the same rows twice. Save it.")
        return {name: value for name, value in vars(self).items() if name != "_one_at_a_time"}  # locks have no copies

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _one_at_a_time=threading.RLock())

    @property
    def _n_charges(self) -> int:
        return 0 if self._account is None else len(self._account.ledger.charges)

    @property
    def _n_spent(self) -> int:
        """Rows that a private run has paid for: every charge is for one batch."""
        return self._n_charges * (self._settings.batch_size or 0)

    def _checked_names(self, rows: Any) -> tuple[str, ...] | None:
        """Return the names of the columns: those of these rows, or, if they have none, those before; they must agree.

        They are as public as the number of columns.
        """
        names = names_of(rows)
        if names is None or self._names in (None, names):
            return self._names if names is None else names
        place = next(i for i, pair in enumerate(zip(self._names or (), names, strict=True)) if len(set(pair)) > 1)
        raise ValueError(
            f"Rows must have the columns of those before, in the same order. Column {place} was "
            f"{(self._names or ())[place]!r} and is {names[place]!r}. Nothing was taken in; sort the columns."
        )

    def _checked(self, rows: Any, n_features: int | None) -> Any:
        """Return rows as an array that is checked, or as rows of a cluster, whose workers check them."""
        private = self._account is not None
        if private:
            warn_of_reuse(rows, stacklevel=4)
        if is_on_cluster(rows):
            return cluster_rows(rows, n_features, private=private)
        if private:
            check_private_rows(rows)
        return as_rows(rows, n_features)

    def _weighted(self, rows: Any, sample_weight: Any) -> tuple[Any, FloatArray | None]:
        """Return rows times the roots of their weights, and the weights, if they have any."""
        if sample_weight is None:
            return rows, None
        if self._account is not None:
            check_no_weights(sample_weight, "row")
        self._settings.check_can_be_weighted(int(rows.shape[1]))
        weights, order = as_batch_weights(sample_weight, int(rows.shape[0])), self._settings.order
        if is_on_cluster(rows):
            return WeightedRows(rows, weights, order), weights
        return times_roots(rows, roots_of(weights, order)), weights

    def _go_back(self, run: Run, snapshot: Snapshot, n_charges: int) -> None:
        """Go back to the snapshot or, if something was released since, to the end of what was paid for.

        A batch that was paid for is spent, whether its mean arrived or not; the rows after it count as not used.
        """
        if self._n_charges == n_charges:
            run.go_back(snapshot)
            self._run = run if run.n_rows else None
        else:
            run.go_on_with(run.state, n_closed=self._n_spent)

    def _skip_what_is_spent(self, path: str | os.PathLike[str]) -> None:
        """Skip rows that were paid for after the checkpoint was written: their means are lost.

        The unfinished batch is dropped, and the query of the solver is repeated with later rows.
        """
        n_spent, n_closed = self._n_spent, 0 if self._run is None else self._run.n_closed
        if n_spent < n_closed:
            raise FileFormatError(
                f"The ledger of {os.fspath(path)} must know of all {n_closed:,} rows that were paid for. It knows of "
                f"{n_spent:,}. Put back the ledger that this run wrote last."
            )
        if n_spent > n_closed and self._run is not None:
            self._run.go_on_with(self._run.state, n_closed=n_spent)


def _push_on_cluster(run: Run, rows: Any, report: Callable[[Progress], object] | None) -> None:
    """Let the workers of a cluster add up rows, and call back after every batch that they close."""
    start = 0
    while start < rows.shape[0]:
        if run.batches.room(run) == 0:  # a second interrupt came while the first was handled
            run.close()
        stop = min(int(rows.shape[0]), start + (run.batches.room(run) or 0))
        n_closed = run.n_closed
        for _ in sum_on_cluster(rows, run, [(start - run.total.n_rows, start, stop)]):
            pass
        start = stop
        if report is not None and run.n_closed > n_closed:
            report(run.progress)
