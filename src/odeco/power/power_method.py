"""The robust tensor power method: Algorithms 1, 2 and 3 of Wang and Anandkumar (2016), which differ
in their oracle.

Draw starts, iterate them, keep the best, deflate, and go on with the next component. `Schedule` has
the paper's k, L and R, `PowerSolver` is the state, and `run` queries an oracle until the solver is
done. A solver advances by one reply at a time, so that a stream can push replies to it as well.
`odeco.paper` is the same algorithm for reading.

A solver sees replies, never data: all that it does is post-processing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from odeco._util.arguments import (
    as_seed,
    check_choice,
    check_count,
    check_n_components,
    check_tolerance,
)
from odeco._util.files import load_state, save_arrays
from odeco._util.state import (
    State,
    array_field,
    part_field,
    parts_field,
    require,
    unit_vectors,
    usable_array,
)
from odeco._util.types import FloatArray, RngLike
from odeco.errors import RankError
from odeco.power.steps import choose_shifts, column_norms, power_step, uniform_starts
from odeco.tensors.asymmetric import sign_variants
from odeco.tensors.components import Components
from odeco.tensors.oracle import Oracle

#: More restarts than this only make the order in which components are found more certain.
MAX_RESTARTS = 64

#: The accuracy, relative to the weight, that a fixed number of iterations aims at: replies with
#: noise are no better.
FIXED_COUNT_ACCURACY = 1e-3

#: A weight below this multiple of the rounding error of the largest is rounding error itself.
NEGLIGIBLE = 100

#: Restarts whose cosine with the best is above this agree with it.
AGREEMENT = 0.99

WeightFrom = Literal["image", "value", "last_image"]

Stage = Literal["iterate", "weight", "polish", "done"]

Callback = Callable[["PowerSolver"], object]


@dataclass(frozen=True)
class Schedule(State):
    """How many components, restarts and iterations, and how a component gets its weight.

    Parameters
    ----------
    n_components, n_restarts, n_iterations : int
        The paper's k, L and R.
    tolerance : float
        Stop a component early when ‖T(I,u,…,u) − λu‖ ≤ tolerance · |λ| for every restart, and then
        polish the best to machine precision. 0 is the paper to the letter: exactly `n_iterations`,
        no polishing.
    weight_from : {"image", "value", "last_image"}
        Where the weight of a component is read. ``"image"``: off one more image of the final
        iterates (Algorithm 1; the image also gives the residual). ``"value"``: from one more query
        for their values (Algorithm 3). ``"last_image"``: off the last image, so that no further
        query is made (Algorithm 2).
    """

    n_components: int = array_field(kind="i", low=1)
    n_restarts: int = array_field(kind="i", low=1)
    n_iterations: int = array_field(kind="i", low=1)
    tolerance: float = array_field(low=0, high=1, default=0.0)
    weight_from: WeightFrom = array_field(kind="U", default="image")

    def __post_init__(self) -> None:
        check_count("n_components", self.n_components)
        check_count("n_restarts", self.n_restarts)
        check_count("n_iterations", self.n_iterations)
        check_tolerance(self.tolerance)
        check_choice("weight_from", self.weight_from, ("image", "value", "last_image"))

    @classmethod
    def default(
        cls,
        dimension: int,
        n_components: int,
        *,
        n_restarts: int | None = None,
        n_iterations: int | None = None,
        tolerance: float = 0.0,
        weight_from: WeightFrom = "image",
    ) -> Schedule:
        """Fill in what is not given from Theorem 2.2 of the paper.

        The theorem asks for L = Ω(k log k) restarts and R = Ω(log(d / ε)) iterations for an
        accuracy ε relative to the weight. We take L = 2k ln k, at least 10 and at most 64, and R =
        10 + log₂(d / ε) with ε the tolerance, or 10⁻³ where the number of iterations is fixed.
        """
        k = check_n_components(n_components, dimension)
        if n_restarts is None:
            n_restarts = min(MAX_RESTARTS, max(10, math.ceil(2 * k * math.log(k))))
        if n_iterations is None:
            n_iterations = 10 + math.ceil(
                math.log2(dimension / (tolerance or FIXED_COUNT_ACCURACY))
            )
        return cls(k, n_restarts, n_iterations, tolerance, weight_from)


@dataclass(frozen=True, eq=False)
class Eigenpair(State):
    """A component as the power method found it, with how it was found.

    Attributes
    ----------
    weight, vector
        The pair (λ, v).
    residual : float or None
        ‖T(I,v,…,v) − λv‖ of the deflated tensor; None if the oracle was queried for values only.
    n_iterations : int
        The number of images, polishing included.
    n_agreed : int
        The number of restarts that ended at the same vector.
    history : tuple of float
        Relative residual of the best restart after each image.
    """

    weight: float = array_field(rule=usable_array())
    vector: FloatArray = array_field("d", rule=unit_vectors("d"))
    residual: float | None = array_field(low=0, default=None)
    n_iterations: int = array_field(kind="i", low=0, default=0)
    n_agreed: int = array_field(kind="i", low=0, default=0)
    history: tuple[float, ...] = array_field(None, low=0, as_tuple=True, default=())


@dataclass(frozen=True, eq=False)
class PowerSolver(State):
    """The state of the power method, which can be saved after every reply. `advance` returns the
    next state.

    Attributes
    ----------
    schedule, order, parts, seed
        What does not change. The starts of component i depend on (seed, i) alone.
    found : tuple of Eigenpair
        Components found so far, in the order of discovery.
    stage : {"iterate", "weight", "polish", "done"}
        What the next reply is for.
    iteration : int
        Number of replies for the current component.
    probes : array, d x L
        The iterates, one for each restart.
    signs, shifts, values : arrays of L numbers
        For each iterate: whether it maximises (+1) or minimises (−1), the shift that keeps it from
        cycling, and its last value.
    history : tuple of float
        See `Eigenpair`.
    best : Eigenpair or None
        The best restart while it is polished.
    rounding : float
        The relative rounding error of replies.
    """

    schedule: Schedule = part_field(Schedule)
    order: int = array_field(kind="i", low=3, high=32)
    parts: tuple[int, ...] = array_field(None, kind="i", low=1, as_tuple=True)
    seed: int = array_field(kind="i", low=0)
    found: tuple[Eigenpair, ...] = parts_field(Eigenpair)
    stage: Stage = array_field(kind="U")
    iteration: int = array_field(kind="i", low=0)
    probes: FloatArray = array_field("d", "L", rule=unit_vectors("d", "L"))
    signs: FloatArray = array_field("L", low=-1, high=1)
    shifts: FloatArray = array_field("L", rule=usable_array("L"))
    values: FloatArray = array_field("L", rule=usable_array("L"))
    history: tuple[float, ...] = array_field(None, low=0, as_tuple=True, default=())
    best: Eigenpair | None = part_field(Eigenpair, default=None)
    rounding: float = array_field(low=0, high=1, default=float(np.finfo(np.float64).eps))

    @classmethod
    def start(
        cls,
        schedule: Schedule,
        *,
        order: int = 3,
        parts: tuple[int, ...],
        rng: RngLike = None,
        seed: int | None = None,
        rounding: float = float(np.finfo(np.float64).eps),
    ) -> PowerSolver:
        """Return the state before the first query; `seed`, if given, is used instead of one drawn
        from `rng`.
        """
        seed = as_seed(rng) if seed is None else seed
        none = np.empty(0)
        no_vectors = np.empty((sum(parts), 0))
        blank = cls(
            schedule,
            order,
            parts,
            seed,
            (),
            "iterate",
            0,
            no_vectors,
            none,
            none,
            none,
            rounding=rounding,
        )
        return blank._next_component(())

    @property
    def done(self) -> bool:
        """Whether all components are found."""
        return self.stage == "done"

    @property
    def query(self) -> Literal["image", "value"]:
        """Which product with `probes` is needed next."""
        if self.stage == "weight":
            return "value"
        return "image"

    @property
    def components(self) -> Components:
        """The components found so far, in the order of discovery."""
        return _as_components(self.found, sum(self.parts), self.order)

    @property
    def n_queries(self) -> int:
        """The largest number of queries, polishing not counted."""
        per_component = self.schedule.n_iterations + (self.schedule.weight_from != "last_image")
        return self.schedule.n_components * per_component

    @property
    def n_replies(self) -> int:
        """The number of replies so far, where components that stopped early count in full."""
        return len(self.found) * (self.n_queries // self.schedule.n_components) + self.iteration

    @property
    def status(self) -> str:
        """What the next reply is for."""
        if self.done:
            return "all components found"
        return (
            f"component {len(self.found) + 1} of {self.schedule.n_components}, iteration "
            f"{self.iteration + 1}"
        )

    @property
    def description(self) -> str:
        """What its queries consist of."""
        return f"{self.schedule.n_components} components x {self.schedule.n_iterations} iterations"

    @property
    def deflation(self) -> Components:
        """What is subtracted from every reply: the components found, with their sign variants."""
        return _deflation(self.found, self.parts, self.order)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        k = self.schedule.n_components
        n_found = len(self.found)
        schedule = self.schedule
        d, n_probes = self.probes.shape
        require(
            sum(self.parts) == d and len(self.parts) in (1, self.order),
            "`parts` must add up to the dimension",
        )
        require(
            self.stage in ("iterate", "weight", "polish", "done"),
            "`stage` must be a stage of the power method",
        )
        require(k <= d, "there must be 1 to d components")
        require(n_found <= k, "there must be no more components than scheduled")
        require((n_found == k) == (self.stage == "done"), "all components must be found at the end")
        require(
            (self.best is not None) == (self.stage == "polish"),
            "there must be a best restart to be polished",
        )
        n_iterates = {"done": 0, "polish": 1}.get(self.stage, schedule.n_restarts)
        require(n_probes == n_iterates, f"there must be {n_iterates} probes")
        require(
            self.iteration <= 2 * schedule.n_iterations + 2,
            "`iteration` must not exceed the schedule",
        )
        require(bool(np.all(np.abs(self.signs) == 1)), "`signs` must be 1 or -1")

    def advance(self, reply: FloatArray) -> PowerSolver:
        """Return the state after the reply to `query`."""
        if self.stage == "weight":
            return self._select(reply - self.deflation.value(self.probes), None, None)
        schedule = self.schedule
        probes = self.probes
        # At d = 100,000 a block is 24 MB: what follows makes one at a time.
        image = self.deflation.image(probes) if self.found else np.zeros_like(reply)
        np.subtract(reply, image, out=image)  # Algorithm 1, line 6, as arithmetic on replies
        values = np.einsum("il,il->l", probes, image)
        misfit = values * probes
        residuals = column_norms(np.subtract(image, misfit, out=misfit))
        del misfit
        best = int(np.argmax(self.signs * values))
        relative = float(residuals[best] / max(abs(values[best]), np.finfo(np.float64).tiny))
        signs, shifts = choose_shifts(
            self.signs,
            self.shifts,
            self.values,
            values,
            order=self.order,
            n_images=self.iteration + 1,
            may_shift=self.order % 2 == 0 or schedule.tolerance > 0,
            rounding=self.rounding,
        )
        now = replace(
            self,
            iteration=self.iteration + 1,
            history=(*self.history, min(relative, np.finfo(np.float64).max)),
            signs=signs,
            shifts=shifts,
            values=values,
        )
        if self.stage == "polish":
            return now._polish(image, float(values[0]), float(residuals[0]))
        converged = schedule.tolerance > 0 and bool(
            np.all(residuals <= schedule.tolerance * np.abs(values))
        )
        if schedule.weight_from == "image" and (
            converged or self.iteration == schedule.n_iterations
        ):
            return now._select(values, residuals, image)
        moved = now._step(image)
        if now.iteration == schedule.n_iterations and schedule.weight_from == "last_image":
            return moved._select(values, residuals, None)
        if now.iteration == schedule.n_iterations and schedule.weight_from == "value":
            return replace(moved, stage="weight")
        return moved

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to an ``.npz`` file, atomically and without pickle; `load` goes on from
        there.
        """
        save_arrays(path, "power solver", {}, self.to_arrays(""))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PowerSolver:
        """Read what `save` wrote."""
        return load_state(path, "power solver", cls)

    def _step(self, image: FloatArray) -> PowerSolver:
        return replace(
            self, probes=power_step(self.probes, image, self.signs, self.shifts, self.parts)
        )

    def _select(
        self, values: FloatArray, residuals: FloatArray | None, image: FloatArray | None
    ) -> PowerSolver:
        """Keep the restart with the best value (Algorithm 1, line 5)."""
        best = int(np.argmax(self.signs * values))
        overlaps = np.abs(self.probes.T @ self.probes[:, best])
        pair = Eigenpair(
            weight=float(values[best]),
            vector=self.probes[:, best].copy(),
            residual=None if residuals is None else float(residuals[best]),
            n_iterations=self.iteration,
            n_agreed=int(np.sum(overlaps > AGREEMENT)),
            history=self.history,
        )
        if image is None or self.schedule.tolerance == 0 or pair.weight == 0:
            return self._accept(pair)
        column = [best]
        alone = replace(
            self,
            stage="polish",
            best=pair,
            probes=self.probes[:, column],
            signs=self.signs[column],
            shifts=self.shifts[column],
            values=values[column],
        )
        return alone._step(image[:, column])

    def _polish(self, image: FloatArray, value: float, residual: float) -> PowerSolver:
        """Iterate the best restart alone while its residual shrinks."""
        if self.best is None:
            raise RuntimeError("The power method must have a best restart to polish.")
        before = replace(self.best, n_iterations=self.iteration, history=self.history)
        if before.residual is None or residual >= 0.99 * before.residual:
            return self._accept(before)
        better = replace(before, weight=value, vector=self.probes[:, 0].copy(), residual=residual)
        if (
            residual <= self.rounding * abs(value)
            or self.iteration > 2 * self.schedule.n_iterations
        ):
            return self._accept(better)
        return replace(self, best=better)._step(image)

    def _accept(self, pair: Eigenpair) -> PowerSolver:
        largest = max((abs(before.weight) for before in self.found), default=0.0)
        if abs(pair.weight) <= NEGLIGIBLE * self.rounding * largest:
            raise zero_image_error(self.schedule.n_components, self.components)
        return self._next_component((*self.found, pair))

    def _next_component(self, found: tuple[Eigenpair, ...]) -> PowerSolver:
        remaining = len(found) < self.schedule.n_components
        n_starts = self.schedule.n_restarts if remaining else 0
        return replace(
            self,
            found=found,
            stage="iterate" if remaining else "done",
            iteration=0,
            probes=uniform_starts(
                np.random.default_rng([self.seed, len(found)]), self.parts, n_starts
            ),
            signs=np.ones(n_starts),
            shifts=np.zeros(n_starts),
            values=np.zeros(n_starts),
            history=(),
            best=None,
        )


@lru_cache(maxsize=4)  # every reply for a component is deflated by the same
def _deflation(found: tuple[Eigenpair, ...], parts: tuple[int, ...], order: int) -> Components:
    """Return the components that eigenpairs stand for: themselves, or the sign variants of vectors
    of several parts.
    """
    components = _as_components(found, sum(parts), order)
    if len(parts) == 1:
        return components
    return sign_variants(components, parts)


def _as_components(found: tuple[Eigenpair, ...], dimension: int, order: int) -> Components:
    vectors = np.reshape([pair.vector for pair in found], (-1, dimension)).T
    return Components([pair.weight for pair in found], vectors, order)


def run(
    oracle: Oracle, schedule: Schedule, *, rng: RngLike = None, callback: Callback | None = None
) -> PowerSolver:
    """Query `oracle` until all components of `schedule` are found.

    Each query is made once. `callback` receives the solver after every reply.

    Parameters
    ----------
    oracle : Oracle
        The tensor.
    schedule : Schedule
        The numbers of components, restarts and iterations.
    rng : None, int or numpy.random.Generator
        Draws the starts.
    callback : callable, optional
        Receives the solver after every reply.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco import Components
    >>> from odeco.power import Schedule, run
    >>> tensor = Components([2.0, 1.0], np.eye(3)[:, :2])
    >>> run(tensor, Schedule(2, n_restarts=5, n_iterations=20), rng=0).components.weights
    array([2., 1.])
    """
    solver = PowerSolver.start(
        schedule, order=oracle.order, parts=oracle.parts, rng=rng, rounding=oracle.rounding
    )
    while not solver.done:
        solver = step(oracle, solver)
        if callback is not None:
            callback(solver)
    return solver


def step(oracle: Oracle, solver: PowerSolver) -> PowerSolver:
    """Make the one query of `solver`, and return the solver after the reply.

    Parameters
    ----------
    oracle : Oracle
        The tensor.
    solver : PowerSolver
        The solver before the query.
    """
    product = oracle.value if solver.query == "value" else oracle.image
    return solver.advance(product(solver.probes))


def zero_image_error(n_components: int, found: Components) -> RankError:
    """Return the error that nothing is left of the tensor."""
    rank = found.n_components
    if rank == 0:
        return RankError(
            (
                "The tensor must hold a non-zero entry. All its images are zero. Check how it was "
                "made."
            ),
            found,
        )
    return RankError(
        f"The image of every start is zero: the tensor has rank {rank}, but "
        f"n_components={n_components}. The {rank} component{'s' * (rank > 1)} found "
        f"{'is' if rank == 1 else 'are'} in `error.found`.",
        found,
    )
