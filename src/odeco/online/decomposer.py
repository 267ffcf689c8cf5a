"""`OnlineDecomposer`: decompose the moment of rows that are pushed, batch by batch."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from copy import deepcopy
from html import escape
from typing import Any, Literal, Self

import numpy as np

from odeco._util.arguments import as_seed
from odeco._util.types import FloatArray, RngLike
from odeco.decompose.result import PrivateStreamDecomposition, StreamDecomposition
from odeco.display.progress import following
from odeco.errors import (
    BadRowError,
    FileFormatError,
    NothingFoundError,
    RankError,
    StreamEndedError,
)
from odeco.io.rows import as_rows, bad_row_error, check_private_rows
from odeco.io.source import is_on_cluster, names_of
from odeco.online.checkpoint import RunFile
from odeco.online.columns import ColumnSquares
from odeco.online.dask.requests import cluster_rows
from odeco.online.executors import push_on_cluster
from odeco.online.means import PlainMean
from odeco.online.methods import DEFAULT_METHOD, Method, plan_for, plans
from odeco.online.methods.open import DEFAULT_MEMORY, DEFAULT_MOMENT, Moment
from odeco.online.private import NoisyMean, RowGuarantee
from odeco.online.progress import Progress
from odeco.online.result import result_of, warn_of_rows
from odeco.online.run import Mean, Run
from odeco.online.solver import Estimate, Plan, Where
from odeco.privacy.ledger import Ledger
from odeco.privacy.ledger_file import Account
from odeco.privacy.noise import NoiseSource
from odeco.privacy.report import warn_if_weak, warn_of_reuse


class OnlineDecomposer:
    """Decompose the moment E[x⊗ᵖ] of rows that are pushed, and refine the components with the rows
    that follow.

    Parameters
    ----------
    n_components : int or "auto"
        The number k of components. ``"auto"``, with ``"core"``: selected automatically, by held-out
        rows of the block that is searched. The result's `rank_evidence` states the confidence.
    method : {"auto", "core", "entries", "power"}
        ``"core"`` keeps the first rows as a block within `memory`, searches it, and refines what it
        finds with all rows that follow, each read once. ``"entries"`` adds up all d³/6 distinct
        entries of the moment, for order 3 and up to 400 columns; at order 4 see `decompose_stream`.
        ``"auto"`` takes ``"entries"`` for up to 100 columns where they fit into `memory`, at order
        4 for cumulants and more components than columns, else ``"core"``. ``"power"`` is Algorithm
        2 of the paper: k R batches, one for each iteration of each component; rows that follow
        refine them.
    memory : float
        The memory for rows that are kept and for matrices made of them, in megabytes.
    batch_size : int, optional
        Rows per batch, the paper's n: for ``"power"``, for private runs, where each release is the
        mean over one batch, and as the unit of `forgetting`. Otherwise everything depends on the
        count of rows only, and none is taken.
    n_restarts, n_iterations : int, optional
        The paper's L and R, for ``"power"`` only; by default those of
        `odeco.power.Schedule.default`.
    order : int
        The order p of the moment.
    moment : {"raw", "cumulant"}
        At order 4, whether E[x⊗⁴] is decomposed or the fourth cumulant; see `decompose_stream`. The
        third cumulant needs the mean of all rows beforehand, which rows that are pushed do not
        have.
    forgetting : float
        Once all components are found, the factor by which the weight of the past is multiplied
        before each further batch. 1 averages over all rows; a smaller factor follows a distribution
        that drifts.
    epsilon, delta, norm_bound : float, optional
        For a private run, all three: the run is (ε, δ)-differentially private for every row of the
        stream, with ε > 0 and δ below 1/batch_size, and rows longer than `norm_bound` are scaled
        down to it. It must be known without looking at the data.
    neighbour_relation : {"replace", "add_remove"}, optional
        For a private run: what may happen to one row. It is replaced by any other (the default), or
        blanked at its place.
    rng : None, int or numpy.random.Generator
        Draws the starts. It never touches privacy noise.
    callback : callable, optional
        Gets a `Progress` after every batch.
    progress : bool
        Whether every push shows a progress bar, with rich or tqdm, towards a first result.
    noise : NoiseSource, optional
        For tests of private runs: with any source but the default the result states that it is not
        private.

    Notes
    -----
    Corrections to Algorithm 2 as printed: the update adds (xᵀu)² x of the same row; deflation uses
    the unit vector uₜ; the weight is read off the last image, ⟨u_{R−1}, image⟩, and paired with
    u_R, so that no second accumulator is needed.

    **Private runs.** Every batch is the data of one release, so each row is in one release only and
    has the whole guarantee, for a stream of any length. Rows that are not finite count as zeros,
    and no message depends on a value. The `result` may be published; the decomposer itself holds
    the exact sum over the current batch, and so does its checkpoint (see `save`). A user with
    several rows has the guarantee for each of them, not for all together.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> online = odeco.OnlineDecomposer(
    ...     2, method="power", batch_size=500, n_restarts=5, n_iterations=10, rng=0
    ... )
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
        given = {
            "n_components": n_components,
            "memory": None if memory == DEFAULT_MEMORY else memory,
            "batch_size": batch_size,
            "n_restarts": n_restarts,
            "n_iterations": n_iterations,
            "order": order,
            "moment": None if moment == DEFAULT_MOMENT else moment,
            "forgetting": None if forgetting == 1 else forgetting,
            "epsilon": epsilon,
            "delta": delta,
            "norm_bound": norm_bound,
            "neighbour_relation": neighbour_relation,
        }
        self._asked = method
        self._arguments: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None
        }
        self._plans = plans(method, self._arguments)
        if self._plans[0].centred:
            raise ValueError(
                "The third cumulant needs the mean of all rows beforehand. Got moment='cumulant' "
                "and order=3 for rows that are pushed. Subtract their mean if it is known, or "
                "pass data that can be read again to decompose_stream."
            )
        self._chosen: tuple[Plan, str] | None = None  # and why; the first rows decide
        self._seed = as_seed(rng)
        self._account: Account | None = None
        self._noisy: NoisyMean | None = None
        self._mean: Mean = PlainMean()
        guarantee = self._plans[0].guarantee
        if guarantee is not None:
            warn_if_weak(guarantee.mu)
            self._pay_from(Account(Ledger(guarantee.mu), noise), guarantee)
        elif noise is not None:
            raise ValueError(
                "`noise` is for private runs. Got one without `epsilon`, `delta` and `norm_bound`."
            )
        self._callback = callback
        self._has_bar = progress
        self._run: Run | None = None
        self._names: tuple[str, ...] | None = None
        self._squares = ColumnSquares()
        self._estimated: tuple[Run, tuple[Estimate, int]] | None = None
        self._one_at_a_time = threading.RLock()

    def _pay_from(self, account: Account, guarantee: RowGuarantee) -> None:
        """Let an account pay for the means of a private run."""
        self._account = account
        self._noisy = NoisyMean(guarantee, account)
        self._mean = self._noisy

    def partial_fit(self, rows: Any, y: None = None) -> Self:  # noqa: ARG002 - as scikit-learn
        """Learn from rows, dense or CSR, any number of them; those of a Dask array or dataframe
        stay on their cluster.

        If a row is not finite, or if an error or an interrupt ends the call early, nothing is
        changed. In a private run rows that are not finite count as zeros; a release cannot be
        undone, so such a run then stands at row `n_rows`: where it was before the call, or after
        the last batch that was paid for.

        Parameters
        ----------
        rows : array, CSR array or table
            The rows.
        y : None
            Ignored.
        """
        with self._one_at_a_time:
            begun = self._run
            checked = self._checked(
                rows, None if begun is None else begun.solver.plan.where.dimension
            )
            run = self._begun(int(checked.shape[1])) if begun is None else self._after_spent(begun)
            names = self._checked_names(rows)
            on_cluster = is_on_cluster(rows)
            if on_cluster:
                steps = push_on_cluster(checked, run, self._mean)
            else:
                steps = run.steps(checked, self._mean)
            try:
                with (
                    following(self._callback, True)
                    if self._has_bar
                    else nullcontext(self._callback) as report
                ):
                    run = self._pushed(run, steps, report)
            except BadRowError as error:
                if (
                    self._account is not None
                ):  # clipped rows are never bad; an error must not depend on one
                    raise RuntimeError(
                        "Rows of a private run could not be added up. Nothing was released."
                    ) from None
                if on_cluster:
                    raise
                raise bad_row_error(
                    checked
                ) from error  # counted within these rows, not within a batch
            finally:
                if self._run is not None:
                    self._run = self._after_spent(self._run)
            if not (on_cluster or self._account):  # nothing is kept of private rows
                self._squares.update(checked)
            self._names = names
            self._run = run  # last: an interrupt before it changes nothing
        return self

    def _pushed(
        self, run: Run, steps: Iterator[Run], report: Callable[[Progress], object] | None
    ) -> Run:
        """Return the run after all steps; that of a private run is kept after each, because each
        was paid for.
        """
        for step in steps:
            closed = step.n_closed > run.n_closed
            run = step
            if self._account is not None:
                self._run = run
            if closed and report is not None:
                report(run.progress)
        return run

    def _begun(self, dimension: int) -> Run:
        """Return the run before its first row."""
        where = Where(dimension, self._seed)
        self._chosen = plan_for(self._plans, where, asked=self._asked != "auto")
        return Run.begin(self._chosen[0].start(), self._n_spent)

    def _after_spent(self, run: Run) -> Run:
        """Return a run after all rows that were paid for.

        A batch that was paid for is spent, whether its mean arrived or not; the rows after it count
        as not used.
        """
        spent = self._account is not None and self._n_spent != run.n_closed
        if spent:
            return run.again(self._n_spent)
        return run

    def __repr__(self) -> str:
        with self._one_at_a_time:
            found = self._found(RankError)
            verdict = self.verdict
        table = [] if found is None else repr(found).splitlines()[1:]
        return "\n".join([f"{type(self).__name__}: {verdict}", *table])

    def _repr_html_(self) -> str:
        """Return the verdict and what was found so far, for a notebook."""
        with self._one_at_a_time:
            found = self._found(RankError)
            verdict = self.verdict
        title = f"<p><strong>{type(self).__name__}</strong>: {escape(verdict)}</p>"
        if found is None:
            return title
        return f"{title}{found._repr_html_()}"

    @property
    def verdict(self) -> str:
        """The progress of the run and the number of components found, in one sentence."""
        with self._one_at_a_time:
            found = self._found(RankError)
            progress = self.progress
            n_rows = self.n_rows
        size = self._arguments.get("batch_size")
        k = self._arguments["n_components"]
        settings = f"k = {k}, method={self.method!r}"
        settings += "" if size is None else f", batch_size={size:,}"
        number = 0 if found is None else len(found.weights)
        wanted = "" if k == "auto" else f" of {k}"
        text = f"{number}{wanted} components found after {n_rows:,} rows"
        if found is not None and self._account is None and not found.clear.all():
            text += f", {int(np.sum(~found.clear))} of them not yet determined"
        elif progress.n_rows_needed and found is None:
            text += f"; {progress.stage}, {progress.n_rows_needed:,} rows more until all are"
        return f"{text} ({settings}{'' if self._account is None else ', private'})"

    def _found(
        self, *quiet: type[Exception]
    ) -> StreamDecomposition | PrivateStreamDecomposition | None:
        """Return the components found so far; None if there are none, or if an error in `quiet`
        says why.
        """
        run = self._run
        with suppress(StreamEndedError, *quiet):
            if run is not None and run.n_rows:
                return result_of(run, self._estimate_of(run), self._names, self._noisy)
        return None

    def _estimate_of(self, run: Run) -> tuple[Estimate, int]:
        """Return the estimate of a run, which is computed once."""
        if self._estimated is None or self._estimated[0] is not run:
            self._estimated = (run, run.estimate(self._mean))
        return self._estimated[1]

    @property
    def method(self) -> str:
        """The solver that finds the components; ``"auto"`` before the first rows."""
        if self._run is None or self._chosen is None:
            return self._asked
        return self._chosen[0].name

    @property
    def method_reason(self) -> str:
        """Why that method was chosen."""
        if self._run is None or self._chosen is None:
            return "rows decide"
        return self._chosen[1]

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
        """Rows used so far; in a private run that resumes from a checkpoint, rows paid for since
        then included.
        """
        if self._run is None:
            return self._n_spent
        return self._after_spent(self._run).n_rows

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        if self._run is not None:
            return self._run.progress
        n_batches = None if self._asked == "auto" else self._plans[0].n_batches
        needed = None if n_batches is None else n_batches * self._arguments["batch_size"]
        return Progress("waiting for rows", 0.0, self.n_rows, needed)

    def result(self) -> StreamDecomposition | PrivateStreamDecomposition:
        """Return the components found so far, all or those that are finished, largest weight first.

        It is the best estimate from all rows so far, also while they are too few to find all
        components: `clear` of the result tells which components are determined. ``"power"`` and
        private runs report components of complete batches only.

        In a private run it is a `PrivateStreamDecomposition`, which may be published. In others, a
        `DominantColumnWarning` is issued if one column dominates all others, and a `MisfitWarning`
        if the moment is not the sum of the components.

        While another thread pushes rows, it waits for the end of that call.
        """
        with self._one_at_a_time:
            result = self._found()
            if result is None:
                needed = self.progress.n_rows_needed
                if needed is None:
                    remedy = "Push rows with partial_fit first."
                else:
                    remedy = f"All take {self.n_rows + needed:,} rows."
                raise NothingFoundError(
                    f"At least one component must be finished. None is after {self.n_rows:,} "
                    f"rows. {remedy}"
                )
            if self._run is not None:
                warn_of_rows(self._run, result, self._squares, stacklevel=2)
            return result

    def save(self, path: str | os.PathLike[str], *, keep_sum: bool = True) -> None:
        """Write a checkpoint, atomically and without pickle; `load` resumes from it with
        bit-identical results.

        Parameters
        ----------
        path : path
            The file. Only its owner may read it.
        keep_sum : bool
            For private runs: whether the file holds the exact sum over the rows of the unfinished
            batch. With it the file is as confidential as the rows; without it nothing in the file
            is, and the run resumes at the first row of that batch, `n_rows`.

        Notes
        -----
        A private run keeps its ledger in ``<path>.ledger``, beside the checkpoint it was first
        saved to, and from then on writes every charge there before the release is made. So a run
        that resumes from an older checkpoint knows which rows have been paid for, and does not use
        them again: `n_rows` is then beyond them.
        """
        with self._one_at_a_time:
            if self._run is not None and self._account is not None:
                run = self._after_spent(self._run)
                self._run = run.without_rows() if keep_sum else run
            saved = self._run
            if saved is not None and self._account is not None and not keep_sum:
                saved = saved.again(saved.n_closed)
            where = Where(seed=self._seed) if saved is None else saved.solver.plan.where
            with (
                nullcontext()
                if self._account is None
                else self._account.kept_beside(path) as account
            ):
                facts: dict[str, Any] = {"account": account, "names": self._names}
                RunFile(self._asked, self._arguments, where, saved, **facts).save(path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        callback: Callable[[Progress], object] | None = None,
        progress: bool = False,
        noise: NoiseSource | None = None,
    ) -> OnlineDecomposer:
        """Read a checkpoint that `save` wrote; the run resumes with the row after the first
        `n_rows`.
        """
        file = RunFile.load(path)
        if file.source is not None:
            raise FileFormatError(
                f"{path} must be the checkpoint of rows that are pushed. It is that of a run that "
                "reads its own data. Pass it to odeco.decompose_stream as `checkpoint`, with the "
                "same data."
            )
        online = cls(**file.arguments, method=file.method, callback=callback, progress=progress)  # type: ignore[arg-type]
        online._seed = file.where.seed
        online._run = file.run
        online._names = file.names
        if file.run is not None:
            online._chosen = plan_for(online._plans, file.where, asked=file.method != "auto")
        guarantee = online._plans[0].guarantee
        if guarantee is not None and file.account is not None:
            online._pay_from(Account.opened(file.account, path, noise), guarantee)
            online._skip_what_is_spent(path)
        return online

    def __getstate__(self) -> dict[str, Any]:
        if self._account is not None:
            raise TypeError(
                "A private run must stay one of a kind: a copy would release the same rows twice. "
                "Save it."
            )
        with self._one_at_a_time:  # a copy of what another thread may change while it is written
            state = vars(self) | {"_squares": deepcopy(self._squares)}
        return {
            name: value for name, value in state.items() if name != "_one_at_a_time"
        }  # locks have no copies

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _one_at_a_time=threading.RLock())

    @property
    def _n_spent(self) -> int:
        """Rows that a private run has paid for: every charge is for one batch."""
        if self._account is None:
            return 0
        batch_size: int = self._arguments["batch_size"]
        return len(self._account.ledger.charges) * batch_size

    def _checked_names(self, rows: Any) -> tuple[str, ...] | None:
        """Return the names of the columns: those of these rows, or, if they have none, those
        before; they must agree.

        They are as public as the number of columns.
        """
        names = names_of(rows)
        if names is None or self._names in (None, names):
            if names is None:
                return self._names
            return names
        place = next(
            i
            for i, pair in enumerate(zip(self._names or (), names, strict=True))
            if len(set(pair)) > 1
        )
        raise ValueError(
            f"Rows must have the columns of those before, in the same order. Column {place} was "
            f"{(self._names or ())[place]!r} and is {names[place]!r}. Nothing was taken in; sort "
            "the columns."
        )

    def _checked(self, rows: Any, n_features: int | None) -> Any:
        """Return rows as an array that is checked, or as rows of a cluster, whose workers check
        them.
        """
        private = self._account is not None
        if private:
            warn_of_reuse(rows, stacklevel=4)
        if is_on_cluster(rows):
            return cluster_rows(rows, n_features, private=private)
        if private:
            check_private_rows(rows)
        return as_rows(rows, n_features)

    def _skip_what_is_spent(self, path: str | os.PathLike[str]) -> None:
        """Skip rows that were paid for after the checkpoint was written: their means are lost.

        The unfinished batch is dropped, and the query of the solver is repeated with later rows.
        """
        n_spent = self._n_spent
        n_closed = 0 if self._run is None else self._run.n_closed
        if n_spent < n_closed:
            raise FileFormatError(
                f"The ledger of {os.fspath(path)} must know of all {n_closed:,} rows that were "
                f"paid for. It knows of {n_spent:,}. Put back the ledger that this run wrote last."
            )
        if self._run is not None:
            self._run = self._after_spent(self._run)
