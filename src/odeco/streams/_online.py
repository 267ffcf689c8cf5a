"""Rows that arrive when they arrive: `OnlineDecomposer` learns from whatever is pushed to it, and goes on learning."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

from odeco._arguments import MINIMUM_ORDER, as_seed, check_choice, check_count, check_forgetting
from odeco._files import load_arrays, save_arrays
from odeco._types import RngLike
from odeco.components import Components
from odeco.errors import BadRowError, FileFormatError
from odeco.privacy import Account, Ledger, NoiseSource
from odeco.result import PrivateStreamDecomposition, StreamDecomposition
from odeco.rows import as_rows, bad_row_error, check_private_rows, row_slice
from odeco.search import DEFAULT_ROUNDS, CoreSearch, Plan, Search, Tracking
from odeco.streams._driver import Driver, State, nothing_found_error, state_from_arrays
from odeco.streams._private import PrivateDriver, as_guarantee

Method = Literal["power", "core"]


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes
    ----------
    stage : str
        What is being done, in words: ``"component 2 of 3"``, ``"finding the span"``, ``"core"``, ``"refining"``.
    fraction : float
        Share of the rows that the search needs, 1 once it refines.
    n_rows : int
        Rows taken in so far.
    n_rows_needed : int or None
        Rows that are still needed for a first result; None where a batch is a pass of unknown length.
    """

    stage: str
    fraction: float
    n_rows: int
    n_rows_needed: int | None


class OnlineDecomposer:
    """Decompose the moment E[x⊗ᵖ] of rows that are pushed, and go on learning from those that follow.

    Parameters
    ----------
    n_components : int
        The number k of components.
    method : {"power", "core"}
        ``"power"`` is Algorithm 2 of the paper: k R batches, one for each iteration of each component. ``"core"``
        needs four: three to find the span of the components and one for the core. Both then refine what they found
        with all rows that follow.
    batch_size : int
        Rows for each question: the paper's n.
    n_restarts, n_iterations : int, optional
        The paper's L and R, for ``"power"``; by default those of `Plan.default`.
    order : int
        The order p of the moment.
    forgetting : float
        Once all components are found, what the weight of the past is multiplied by before each further batch. 1
        averages over all rows; less follows a distribution that drifts.
    epsilon, delta, norm_bound : float, optional
        For a private run, all three: every row of the stream is promised (ε, δ)-differential privacy, with ε > 0 and δ
        below 1/batch_size, and rows longer than `norm_bound` are scaled down to it. It must be known without looking at
        the data.
    neighbour_relation : {"replace", "add or remove"}
        For a private run: what may happen to one row, see `odeco.private_driver.PrivateDriver`.
    rng : None, int or numpy.random.Generator
        Draws the starts. It never touches privacy noise.
    callback : callable, optional
        Receives a `Progress` after every batch.
    noise : NoiseSource, optional
        For tests: with any source but the default the result says that it is not private.

    Notes
    -----
    Corrections to Algorithm 2 as printed: the update adds (xᵀu)² x of the same row; deflation uses the unit vector uₜ;
    the weight is read off the last image, ⟨u_{R−1}, image⟩, and paired with u_R, so that no second accumulator is
    needed.

    **Private runs.** Every batch is the data of one release, so each row is in one release only and has the whole
    guarantee, however long the stream goes on. Rows that are not finite count as zeros, without a message; nothing is
    said that depends on a value. What may be published is the `result`; the decomposer itself holds the exact sum over
    the current batch, and so does its checkpoint (see `save`). A user with several rows has the guarantee for each of
    them, not for all together.

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
        n_components: int,
        *,
        method: Method = "power",
        batch_size: int,
        n_restarts: int | None = None,
        n_iterations: int | None = None,
        order: int = 3,
        forgetting: float = 1.0,
        epsilon: float | None = None,
        delta: float | None = None,
        norm_bound: float | None = None,
        neighbour_relation: Literal["replace", "add or remove"] = "replace",
        rng: RngLike = None,
        callback: Callable[[Progress], object] | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        check_choice("method", method, ("power", "core"))
        self._settings: dict[str, Any] = {
            "n_components": check_count("n_components", n_components),
            "method": method,
            "batch_size": check_count("batch_size", batch_size),
            "n_restarts": n_restarts,
            "n_iterations": n_iterations,
            "order": check_count("order", order, MINIMUM_ORDER),
            "forgetting": check_forgetting(forgetting),
            "epsilon": epsilon,
            "delta": delta,
            "norm_bound": norm_bound,
            "neighbour_relation": neighbour_relation,
        }
        self._guarantee = as_guarantee(epsilon, delta, norm_bound, neighbour_relation, batch_size)
        self._account = None if self._guarantee is None else Account(Ledger(self._guarantee.mu), noise)
        self._n_spent = 0
        self._seed = as_seed(rng)
        self._callback = callback
        self._driver: Driver | None = None

    def partial_fit(self, rows: Any, y: None = None) -> Self:  # noqa: ARG002 - as scikit-learn calls it
        """Learn from rows, dense or CSR, any number of them. If one is not finite, none is used, nothing is changed.

        In a private run rows that are not finite count as zeros. If such a run is interrupted, it stands where
        `n_rows` says: what was released cannot be taken back.
        """
        before = self._driver
        if self._guarantee is not None:
            check_private_rows(rows)
        checked = as_rows(rows, None if before is None else before.sum.block.shape[0])
        if before is None:
            self._driver = self._new_driver(self._first_state(checked.shape[1]))
        if self._guarantee is not None and self._driver is not None:
            self._track_if_done(self._driver)  # an interrupt may have come just before
            self._take(checked)
            return self
        if before is not None and checked.shape[0] > self.room:
            # Rows beyond this batch may be bad, and then all must be taken back.
            self._driver = copy.copy(before)
            self._driver.sum = before.sum.copy()
        try:
            self._take(checked)
        except BadRowError as error:
            self._driver = before
            raise bad_row_error(checked) from error  # counted within these rows, not within a batch
        except BaseException:
            self._driver = before
            raise
        return self

    @property
    def n_rows(self) -> int:
        """Rows taken in so far; in a private run that goes on from a checkpoint, with those paid for since then."""
        return self._n_spent if self._driver is None else self._driver.n_rows

    @property
    def progress(self) -> Progress:
        """How far the run is."""
        state = None if self._driver is None else self._driver.state
        if isinstance(state, Tracking):
            return Progress("refining", 1.0, self.n_rows, 0)
        size, settings = self._settings["batch_size"], self._settings
        n_batches, n_done, stage = 0, 0, "waiting for rows"
        if isinstance(state, Search):
            plan = state.plan
            n_batches = plan.n_components * plan.n_iterations
            n_done = len(state.found) * plan.n_iterations + state.iteration
            stage = f"component {len(state.found) + 1} of {plan.n_components}, iteration {state.iteration + 1}"
        elif settings["method"] == "core":
            n_batches, n_done = DEFAULT_ROUNDS + 1, 0 if state is None else state.round
            stage = "finding the span" if state is None or state.question == "image" else "core"
        elif settings["n_iterations"] is not None:
            n_batches = settings["n_components"] * settings["n_iterations"]
        if n_batches == 0:
            return Progress(stage, 0.0, 0, None)
        # Not the rows taken in: a private run may have lost the answer that some were paid for.
        used, wanted = (n_done + 1) * size - self.room, n_batches * size
        return Progress(stage, used / wanted, self.n_rows, wanted - used)

    def result(self) -> StreamDecomposition | PrivateStreamDecomposition:
        """Return what has been found so far: all components, or those that are finished, largest weight first.

        Of a private run it is a `PrivateStreamDecomposition`, and may be published.
        """
        found = None if self._driver is None else self._driver.found
        if self._driver is None or found is None:
            needed = self.progress.n_rows_needed
            raise nothing_found_error(self.n_rows, None if needed is None else self.n_rows + needed)
        described = describe_stream(found, self._driver.state, self.n_rows)
        return self._driver.described(described) if isinstance(self._driver, PrivateDriver) else described

    def save(self, path: str | os.PathLike[str], *, keep_sum: bool = True) -> None:
        """Write a checkpoint, atomically and without pickle; `load` goes on from there to the bit-identical result.

        Parameters
        ----------
        path : path
            Where. Only its owner may read the file.
        keep_sum : bool
            For private runs: whether the file holds the exact sum over the rows of the unfinished batch. With it the
            file is as confidential as the rows; without it nothing in the file is, and the run goes on from the first
            row of that batch (`n_rows` says which).

        Notes
        -----
        A private run keeps its ledger in ``<path>.ledger``, beside the checkpoint it was first saved to, and from then
        on writes every charge there before the release is made. So a run that goes on from an older checkpoint
        knows which rows have been paid for, and does not use them again: `n_rows` is then beyond them. A decomposer
        is for one thread at a time.
        """
        header: dict[str, Any] = {"settings": self._settings, "seed": self._seed}
        driver: dict[str, Any] | None
        if isinstance(self._driver, PrivateDriver):
            driver, arrays = self._driver.to_arrays(keep_sum=keep_sum)
        else:
            driver, arrays = (None, {}) if self._driver is None else self._driver.to_arrays()
        account = None if self._account is None else self._account.keep_beside(path)
        save_arrays(path, "online decomposer", {**header, "driver": driver, "account": account}, arrays)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        callback: Callable[[Progress], object] | None = None,
        noise: NoiseSource | None = None,
    ) -> OnlineDecomposer:
        """Read a checkpoint that `save` wrote, and go on with the row after the first `n_rows`."""
        header, arrays = load_arrays(path, "online decomposer")
        online = cls(**header["settings"], callback=callback, noise=noise)
        online._seed = header["seed"]
        if header["account"] is not None:
            online._account = Account.opened(header["account"], path, noise)
        if header["driver"] is not None:
            online._driver = online._new_driver(state_from_arrays(header["driver"], arrays))
            online._driver.restore(header["driver"], arrays)
        if online._account is not None:
            online._skip_what_is_spent(path)
        return online

    def _skip_what_is_spent(self, path: str | os.PathLike[str]) -> None:
        """Pass over rows that were paid for after the checkpoint was written: their answers are lost.

        The unfinished batch is let go of, and the search asks its question again of later rows.
        """
        account, driver = cast("Account", self._account), self._driver
        n_spent = len(account.ledger.charges) * int(self._settings["batch_size"])
        n_closed = 0 if driver is None else driver.n_closed
        if n_spent < n_closed:
            raise FileFormatError(
                f"The ledger of {os.fspath(path)} must know of all {n_closed:,} rows that were paid for. It knows of "
                f"{n_spent:,}. Put back the ledger that this run wrote last."
            )
        if n_spent > n_closed and driver is not None:
            driver.switch(driver.state, n_closed=n_spent)
        self._n_spent = n_spent

    @property
    def method(self) -> Method:
        """Which search finds the components."""
        method: Method = self._settings["method"]
        return method

    @property
    def driver(self) -> Driver | None:
        """The search and what its question has got so far; None before the first rows."""
        return self._driver

    @property
    def room(self) -> int:
        """Rows that the current batch still takes."""
        taken = 0 if self._driver is None else self._driver.sum.n_rows
        return int(self._settings["batch_size"]) - taken

    def resume(self, driver: Driver) -> None:
        """Go on from a driver that was saved; a private run goes on with `load` only."""
        if self._guarantee is not None or isinstance(driver, PrivateDriver):
            raise TypeError(
                "A private run must go on with OnlineDecomposer.load, which reads its ledger. Got a driver."
            )
        self._driver = driver

    def batches_so_far(self) -> tuple[int, int, str]:
        """Return the batches taken in, those that are needed for a first result, and the plan in words."""
        size, state = self._settings["batch_size"], None if self._driver is None else self._driver.state
        if isinstance(state, Search):
            plan = state.plan
            words = f"{plan.n_components} components x {plan.n_iterations} iterations of {size:,} rows"
            return self.n_rows // size, plan.n_components * plan.n_iterations, words
        words = f"{DEFAULT_ROUNDS} rounds and a core of {size:,} rows"
        return self.n_rows // size, DEFAULT_ROUNDS + 1, words

    def _new_driver(self, state: State) -> Driver:
        if self._guarantee is None or self._account is None:
            return Driver(state)
        driver = PrivateDriver(state, self._guarantee, self._account)
        driver.n_closed = self._n_spent
        return driver

    def _first_state(self, dimension: int) -> State:
        settings = self._settings
        if settings["method"] == "core":
            return CoreSearch.start(dimension, settings["n_components"], order=settings["order"], seed=self._seed)
        plan = Plan.default(
            dimension,
            settings["n_components"],
            n_restarts=settings["n_restarts"],
            n_iterations=settings["n_iterations"],
            weigh="reuse",
        )
        return Search.start(plan, order=settings["order"], parts=(dimension,), seed=self._seed)

    def _take(self, rows: Any) -> None:
        driver, start = self._driver, 0
        while driver is not None and start < rows.shape[0]:
            stop = min(rows.shape[0], start + self.room)
            driver.take(row_slice(rows, start, stop))
            start = stop
            if self.room == 0:
                driver.close()
                self._track_if_done(driver)
                if self._callback is not None:
                    self._callback(self.progress)

    def _track_if_done(self, driver: Driver) -> None:
        """Once all components are found, go on learning them."""
        if isinstance(driver.state, Tracking) or not driver.state.done:
            return
        first = driver.components.largest_first()
        found = Components(driver.components.weights[first], driver.components.vectors[:, first], driver.state.order)
        # Algorithm 2 read its vectors off the last batch, so they count as that. Those of a core may err outside of its
        # span: their first image replaces them.
        n_rows = self._settings["batch_size"] if self.method == "power" else 0
        driver.switch(Tracking.start(found, n_rows=n_rows, forgetting=self._settings["forgetting"]))


def describe_stream(found: Components, state: State, n_rows: int) -> StreamDecomposition:
    """Sort what was found, largest weight first, with standard errors where there are some."""
    first = found.largest_first()
    errors = state.standard_errors() if isinstance(state, Tracking) else None
    return StreamDecomposition(
        components=Components(found.weights[first], found.vectors[:, first], found.order),
        weight_errors=None if errors is None else errors[0][first],
        angle_errors=None if errors is None else errors[1][first],
        n_rows=n_rows,
    )
