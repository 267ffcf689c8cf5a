"""Rows that arrive when they arrive: `OnlineDecomposer` learns from whatever is pushed to it, and goes on learning."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

from odeco._checks import (
    MINIMUM_ORDER,
    BadRowError,
    as_rows,
    as_seed,
    bad_row_error,
    check_choice,
    check_count,
    check_forgetting,
    nothing_found_error,
)
from odeco._files import load_arrays, save_arrays
from odeco._types import RngLike
from odeco.components import Components
from odeco.core import DEFAULT_ROUNDS, CoreSearch
from odeco.driver import Driver, State
from odeco.moments import row_slice
from odeco.power_method import Plan, Search
from odeco.result import StreamDecomposition
from odeco.tracking import Tracking

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
    rng : None, int or numpy.random.Generator
        Draws the starts.
    callback : callable, optional
        Receives a `Progress` after every batch.

    Notes ----- Corrections to Algorithm 2 as printed: the update adds (xᵀu)² x of the same row; deflation uses the
    unit vector uₜ; the weight is read off the last image, ⟨u_{R−1}, image⟩, and paired with u_R, so that no second
    accumulator is needed.

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
        rng: RngLike = None,
        callback: Callable[[Progress], object] | None = None,
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
        }
        self._seed = as_seed(rng)
        self._callback = callback
        self._driver: Driver | None = None

    def partial_fit(self, rows: Any, y: None = None) -> Self:  # noqa: ARG002 - as scikit-learn calls it
        """Learn from rows, dense or CSR, any number of them. If one is not finite, none is used, nothing is changed."""
        before = self._driver
        checked = as_rows(rows, None if before is None else before.sum.block.shape[0])
        if before is None:
            self._driver = Driver(self._first_state(checked.shape[1]))
        elif checked.shape[0] > self.room:
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
        """Rows taken in so far."""
        return 0 if self._driver is None else self._driver.n_rows

    @property
    def progress(self) -> Progress:
        """How far the run is."""
        state = None if self._driver is None else self._driver.state
        if isinstance(state, Tracking):
            return Progress("refining", 1.0, self.n_rows, 0)
        size = self._settings["batch_size"]
        n_batches, stage = 0, "waiting for rows"
        if isinstance(state, Search):
            n_batches = state.plan.n_components * state.plan.n_iterations
            stage = f"component {len(state.found) + 1} of {state.plan.n_components}, iteration {state.iteration + 1}"
        elif self._settings["method"] == "core":
            n_batches = DEFAULT_ROUNDS + 1
            stage = "finding the span" if state is None or state.question == "image" else "core"
        elif self._settings["n_iterations"] is not None:
            n_batches = self._settings["n_components"] * self._settings["n_iterations"]
        if n_batches == 0:
            return Progress(stage, 0.0, 0, None)
        return Progress(stage, self.n_rows / (n_batches * size), self.n_rows, n_batches * size - self.n_rows)

    def result(self) -> StreamDecomposition:
        """Return what has been found so far: all components, or those that are finished, largest weight first."""
        found = None if self._driver is None else self._driver.found
        if self._driver is None or found is None:
            needed = self.progress.n_rows_needed
            raise nothing_found_error(self.n_rows, None if needed is None else self.n_rows + needed)
        return describe_stream(found, self._driver.state, self.n_rows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint, atomically and without pickle; `load` goes on from there to the bit-identical result."""
        header: dict[str, Any] = {"settings": self._settings, "seed": self._seed}
        driver, arrays = (None, {}) if self._driver is None else self._driver.to_arrays()
        save_arrays(path, "online decomposer", {**header, "driver": driver}, arrays)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, callback: Callable[[Progress], object] | None = None
    ) -> OnlineDecomposer:
        """Read a checkpoint that `save` wrote."""
        header, arrays = load_arrays(path, "online decomposer")
        online = cls(**header["settings"], callback=callback)
        online._seed = header["seed"]
        if header["driver"] is not None:
            online._driver = Driver.from_arrays(header["driver"], arrays)
        return online

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
        """Go on from a driver that was saved."""
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
                if driver.state.done and driver.found is not None:
                    first = driver.found.largest_first()
                    found = Components(driver.found.weights[first], driver.found.vectors[:, first], driver.state.order)
                    # Algorithm 2 read its vectors off the last batch, so they count as that. Those of a core may err
                    # outside of its span: their first image replaces them.
                    n_rows = self._settings["batch_size"] if self.method == "power" else 0
                    driver.switch(Tracking.start(found, n_rows=n_rows, forgetting=self._settings["forgetting"]))
                if self._callback is not None:
                    self._callback(self.progress)


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
