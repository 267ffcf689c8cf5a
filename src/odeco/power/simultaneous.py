"""What the file of a search for all components at once holds.

All components at once: the slices of a tensor say where to start, and all candidates take the power step together.

Algorithm 1 finds one component after another, each from many random starts, so its cost grows as k times the restarts.
But the slice T(I, I, θ, …, θ) of a tensor with orthonormal components is Σ λᵢ ⟨vᵢ, θ⟩ᵖ⁻² vᵢvᵢᵀ: its eigenvectors are
the components, all of them, up to noise and to eigenvalues that lie close together. From there a few steps suffice.

`Together` goes through rounds. A round asks for a random slice, subtracts what is found already, takes the strongest
eigenvectors as starts (and random ones, if there are fewer than the loop would have) and lets them climb until they
settle. Those that have met are merged, and the k largest of all that was found are kept. Rounds end when a slice shows
nothing that could be as large as what is kept, or a round brings nothing new. Then all are polished together: component
i climbs in the tensor without components 1 to i − 1, so that all end where Algorithm 1 ends if it finds them in the
order of their weights. What is missing then, or did not converge, is looked for by the loop.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from odeco._util.arguments import as_seed, check_n_components
from odeco._util.files import load_arrays, save_arrays
from odeco._util.schema import (
    Schema,
    Sizes,
    array,
    each,
    nothing_or,
    number,
    one_of,
    require,
    tensor_order,
    unit_vectors,
    usable_array,
    whole,
)
from odeco._util.threads import one_blas_thread
from odeco._util.types import BoolArray, FloatArray, RngLike
from odeco.power.iteration import Climbers, uniform_starts
from odeco.power.protocol import Finder
from odeco.power.schedule import Plan
from odeco.power.solver import NEGLIGIBLE, PAIR, PLAN, Eigenpair, Search, as_components, pairs_as_json, pairs_from_json
from odeco.power.tracking import Tracking
from odeco.tensors.components import Components
from odeco.tensors.oracle import Oracle

#: The arrays of the loop stand beside the others under this prefix.
LOOP = "loop_"


def _check_state(header: dict[str, Any], arrays: dict[str, Any], sizes: Sizes) -> None:
    stage, loop, k = header["stage"], header["loop"], header["plan"]["n_components"]
    n_kept, n_climbers, history = sizes["pairs"], sizes["climbers"], arrays["history"]
    require(k <= sizes["d"], "there must be 1 to d components")
    require(n_kept <= k, "there must be no more components than planned")
    require(
        (n_climbers > 0) == (stage in ("climb", "polish")), "there must be climbers while they climb, and only then"
    )
    require(stage != "polish" or n_climbers == n_kept, "all components must be polished, and nothing else")
    require(bool(np.all(np.abs(arrays["signs"]) == 1)), "`signs` must be 1 or -1")
    answered = np.isfinite(history)
    require(bool(answered[:1].all()), "every climber must have had the first answer")
    require(stage != "polish" or bool(answered.all()), "all that are polished must have had every answer")
    require((stage == "loop") <= (loop is not None), "a search that goes on by the loop must hold the loop")
    require((loop is not None) <= (stage in ("loop", "done")), "a search that has not come to the loop must hold none")
    of_loop = {name.removeprefix(LOOP): value for name, value in arrays.items() if name.startswith(LOOP)}
    if loop is None:
        require(not of_loop, "there must be no arrays of a loop that has not begun")
        require((n_kept == k) >= (stage == "done"), "all components must be found at the end")
        return
    Search.SCHEMA.check(loop, of_loop, {"d": sizes["d"]})
    require(n_kept == 0, "once the loop has begun it must hold all components")
    require(loop["order"] == header["order"], "the loop must be of the order of the search")
    require(loop["plan"]["n_components"] == k, "the loop must be for the components of the search")
    require((loop["stage"] == "done") == (stage == "done"), "the search must end with its loop")


def _anything(value: Any, where: str, sizes: Sizes) -> None:
    """Require nothing: the schema of the loop looks at it."""


SCHEMA = Schema(
    {
        "plan": PLAN,
        "order": tensor_order(),
        "seed": whole(),
        "rounding": number(0, 1),
        "stage": one_of("slice", "climb", "polish", "loop", "done"),
        "round": whole(),
        "n_answered": whole(),
        "most_steps": whole(),
        "kept": each(PAIR, "pairs"),
        "loop": nothing_or(_anything),
    },
    {
        "kept_vectors": unit_vectors("pairs", "d", axis=1),
        "vectors": unit_vectors("d", "climbers"),
        **dict.fromkeys(("signs", "shifts", "values"), usable_array("climbers")),
        "history": array(None, "climbers", low=0, nan=True),
    },
    optional_arrays=dict.fromkeys((LOOP + name for name in Search.SCHEMA.arrays), _anything),
    relations=_check_state,
)


#: Slices take d² numbers and their eigenvectors some 10 d³ operations. In more dimensions the loop is taken.
MOST_DIMENSION = 1000

#: Images that the loop asks for, for each component and restart: 16 without noise, and more with it.
LOOP_IMAGES = 16

#: Starts beyond the components that are missing, for those that meet.
SPARE_STARTS = 10

#: A round of the slices, and at most so many; each finds at least half of what is missing up to the noise of the loop.
MOST_ROUNDS = 10

#: A candidate has settled at this residual over its value: the next step brings it to the square of that.
SETTLED = 1e-3

#: A slice is quiet if a component as large as the smallest would stand out from what is left with probability 0.99.
QUIET = 0.01

#: Once a step divides residuals by less than this, convergence is linear, and ends at the tolerance.
_QUADRATIC = 1e3


Stage = Literal["slice", "climb", "polish", "loop", "done"]


@dataclass(frozen=True, eq=False)
class Together(Finder):
    """Where the search for all components at once stands: a value that `advance` replaces by the next.

    Attributes
    ----------
    plan, order, seed, rounding
        What does not change. `plan.n_restarts` is the number of starts of the first round.
    stage : {"slice", "climb", "polish", "loop", "done"}
        What the next answer will be used for.
    round, n_answered : int
        Slices and answers taken in.
    most_steps : int
        How many steps the climbers of this round have.
    kept : tuple of Eigenpair
        The largest components found so far; before the polish they are no more accurate than they need to be.
    climbers : Climbers
        The candidates on their way.
    loop : Search or None
        The loop that looks for what is missing, once it has begun.
    """

    candidates_meet: ClassVar[bool] = True
    SCHEMA: ClassVar[Schema] = SCHEMA

    plan: Plan
    order: int
    seed: int
    rounding: float
    stage: Stage
    round: int
    n_answered: int
    most_steps: int
    kept: tuple[Eigenpair, ...]
    climbers: Climbers
    loop: Search | None = None

    @classmethod
    def start(
        cls,
        n_components: int,
        *,
        order: int = 3,
        parts: tuple[int, ...],
        tolerance: float,
        rng: RngLike = None,
        seed: int | None = None,
        rounding: float = float(np.finfo(np.float64).eps),
    ) -> Together:
        """Return the search that has asked nothing yet; `seed`, if given, is used instead of one drawn from `rng`.

        If the loop is expected to ask about fewer vectors, as it is for a few components in many dimensions, or if
        vectors consist of several parts, it begins with the loop.
        """
        dimension = sum(parts)
        k = check_n_components(n_components, dimension)
        if not tolerance > 0:
            raise ValueError(f"`tolerance` must be above 0. Got {tolerance!r}. Pass 1e-10, or take `run`.")
        seed = as_seed(rng) if seed is None else seed
        plan = Plan.default(dimension, k, tolerance=tolerance)
        by_loop = k * plan.n_restarts * LOOP_IMAGES
        n_starts = max(k + SPARE_STARTS, plan.n_restarts)
        at_once = 4 * (order // 2) * dimension + LOOP_IMAGES * n_starts
        blank = cls(plan, order, seed, rounding, "slice", 0, 0, 0, (), Climbers.start(np.empty((dimension, 0))))
        if len(parts) > 1 or dimension > MOST_DIMENSION or by_loop < at_once:
            loop = Search.start(plan, order=order, parts=parts, seed=seed, rounding=rounding)
            return replace(blank, stage="loop", loop=loop)
        return replace(blank, plan=replace(plan, n_restarts=n_starts))

    @property
    def dimension(self) -> int:
        """The dimension of the tensor."""
        return int(self.climbers.vectors.shape[0])

    @property
    def done(self) -> bool:
        """Whether all components are found."""
        return self.stage == "done"

    @property
    def found(self) -> tuple[Eigenpair, ...]:
        """The components found, each with its residual in the tensor without those before it."""
        return self.kept if self.loop is None else self.loop.found

    @property
    def components(self) -> Components:
        """The components found so far."""
        return as_components(self.found, self.dimension, self.order)

    @property
    def question(self) -> Literal["slice", "image", "value"]:
        """What to ask the oracle about `candidates` next."""
        if self.loop is not None:
            return self.loop.question
        return "slice" if self.stage == "slice" else "image"

    @property
    def candidates(self) -> FloatArray:
        """The vectors to ask about next; of a slice, its direction."""
        if self.loop is not None:
            return self.loop.candidates
        if self.stage == "slice":
            return uniform_starts(np.random.default_rng([self.seed, self.round]), (self.dimension,), 1)
        return self.climbers.vectors[:, self._asked]

    @property
    def n_questions(self) -> int:
        """How many questions it asks at most: as many as if all rounds were needed, and then the loop."""
        of_loop = self.plan.n_components * (self.plan.n_iterations + 1)
        return MOST_ROUNDS * (1 + _most_steps(self.dimension)) + 2 * self.plan.n_iterations + of_loop

    @property
    def doing(self) -> str:
        """What the next answer is for, in words."""
        if self.loop is not None:
            return self.loop.doing
        words = {"slice": "a slice", "climb": "components of a slice", "polish": "polishing", "done": "done"}
        return f"{words[self.stage]}, {len(self.kept)} of {self.plan.n_components} components"

    @property
    def plan_in_words(self) -> str:
        """What its questions consist of."""
        return f"{self.plan.n_components} components at once"

    def advance(self, answer: FloatArray, n_rows: int | None = None) -> Together:  # noqa: ARG002 - no answer counts more
        """Take in the answer to `question` and return the next state."""
        now = replace(self, n_answered=self.n_answered + 1)
        with one_blas_thread():  # the bits of a decomposition depend on the number of threads
            if self.loop is not None:
                return now._with_loop(self.loop.advance(answer))
            if self.stage == "slice":
                return now._begin(answer)
            if self.stage == "climb":
                return now._climb(answer)
            return now._polish(answer)

    def tracked(
        self, *, n_rows: int = 0, forgetting: float = 1.0, holding: bool = False, orthogonal: bool = False
    ) -> Tracking:
        """Return what was found, largest weight first, as something that goes on learning; see `Search.tracked`."""
        return Tracking.start(
            self.components.sorted_by_weight(),
            n_rows=n_rows,
            forgetting=forgetting,
            holding=holding,
            orthogonal=orthogonal,
        )

    def misfits(self) -> FloatArray:
        """Return for each component ‖Σ λⱼ⟨vⱼ, v⟩ᵖ⁻¹ vⱼ‖ over |λ|, where the sum is over all others.

        It is what the others add to the image of a component. Of orthogonal components it is 0, and with noise of the
        order of its square; where it is larger, the tensor is not the sum of what was found.
        """
        found = self.components
        others: FloatArray = found.image(found.vectors) - found.vectors * found.weights
        relative: FloatArray = np.linalg.norm(others, axis=0) / np.abs(found.weights)
        return relative

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the search to an ``.npz`` file, atomically and without pickle; `load` goes on from there."""
        header, arrays = self.to_arrays()
        save_arrays(path, "together", header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Together:
        """Read what `save` wrote."""
        return cls.from_arrays(*load_arrays(path, "together", cls.SCHEMA))

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the search as a JSON header and named arrays."""
        kept, kept_vectors = pairs_as_json(self.kept, self.dimension)
        header = {name: getattr(self, name) for name in _HEADER_FIELDS} | {"plan": asdict(self.plan), "kept": kept}
        arrays = {"kept_vectors": kept_vectors} | {name: getattr(self.climbers, name) for name in _CLIMBERS_FIELDS}
        if self.loop is None:
            return {**header, "loop": None}, arrays
        loop_header, loop_arrays = self.loop.to_arrays()
        return {**header, "loop": loop_header}, arrays | {LOOP + name: loop_arrays[name] for name in loop_arrays}

    @classmethod
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, Any]) -> Together:
        """Return the search that `to_arrays` described."""
        loop = None
        if header["loop"] is not None:
            of_loop = {name.removeprefix(LOOP): value for name, value in arrays.items() if name.startswith(LOOP)}
            loop = Search.from_arrays(header["loop"], of_loop)
        return cls(
            plan=Plan(**header["plan"]),
            kept=pairs_from_json(header["kept"], arrays["kept_vectors"]),
            climbers=Climbers(**{name: arrays[name] for name in _CLIMBERS_FIELDS}),
            loop=loop,
            **{name: header[name] for name in _HEADER_FIELDS},
        )

    @property
    def _asked(self) -> BoolArray:
        """Which of the climbers are asked about: all that are polished, and those that have not settled."""
        if self.stage == "polish":
            return np.ones(self.climbers.values.size, dtype=bool)
        unsettled: BoolArray = self.climbers.residuals > SETTLED
        return unsettled

    def _begin(self, matrix: FloatArray) -> Together:
        """Begin a round at the eigenvectors of a slice, unless nothing is left in it."""
        kept = self.components
        eigenvalues, eigenvectors = np.linalg.eigh(matrix - kept.slice(self.candidates[:, 0]))
        strength = np.abs(eigenvalues)
        # A component of weight λ shows an eigenvalue λ⟨v, θ⟩ᵖ⁻², and √d⟨v, θ⟩ is nearly standard normal. `visible` is
        # what √d|⟨v, θ⟩| must be for a component as small as the smallest to show above all that is left.
        missing = self.plan.n_components - kept.n_components
        visible = math.inf
        if kept.n_components:
            visible = (strength.max() / np.abs(kept.weights).min()) ** (1 / (self.order - 2)) * math.sqrt(
                self.dimension
            )
        now = replace(self, round=self.round + 1)
        if missing == 0 and visible <= QUIET:
            return now._begin_polish()
        n_starts, most_steps = missing + SPARE_STARTS, _most_steps(self.dimension)
        if visible > 1:  # noise may hide what is left: as many starts as the loop has
            n_starts = max(n_starts, Plan.default(self.dimension, self.plan.n_components).n_restarts)
        else:  # what is left begins near its end
            most_steps //= 2
        strongest = np.argsort(-strength, kind="stable")[:n_starts]
        generator = np.random.default_rng([self.seed, self.round, 1])
        others = uniform_starts(generator, (self.dimension,), n_starts - strongest.size)
        starts = Climbers.start(np.hstack([eigenvectors[:, strongest], others]))
        return replace(now, stage="climb", most_steps=most_steps, climbers=starts)

    def _climb(self, answer: FloatArray) -> Together:
        """Let all that have not settled take a step in the tensor without what is kept."""
        asked = self._asked
        image = answer - self.components.image(self.candidates)
        climbers = self.climbers.measured(image, asked, order=self.order, rounding=self.rounding).moved(image, asked)
        now = replace(self, climbers=climbers)
        if now._asked.any() and climbers.n_answers < self.most_steps:
            return now
        return now._end_round()

    def _end_round(self) -> Together:
        """Merge the climbers that have met, and keep the largest components of all rounds."""
        new = self._distinct()
        k = self.plan.n_components
        # Of two that are equal but for their error, which is of the order of a residual squared, the older is kept.
        largest = sorted(
            [(abs(pair.weight) * (1 + SETTLED**2), 0, pair) for pair in self.kept]
            + [(abs(pair.weight), 1, pair) for pair in new],
            key=lambda entry: -entry[0],
        )[:k]
        kept = tuple(sorted((pair for _, _, pair in largest), key=lambda pair: -abs(pair.weight)))
        now = replace(self, kept=kept, climbers=Climbers.start(np.empty((self.dimension, 0))))
        progress = any(is_new for _, is_new, _ in largest)
        if progress and self.round < MOST_ROUNDS:
            return replace(now, stage="slice")
        return now._begin_polish()

    def _distinct(self) -> list[Eigenpair]:
        """Return the climbers that are near an eigenvector, one for each that they are near to."""
        largest = max(np.abs(self.climbers.values).max(), *(abs(pair.weight) for pair in self.kept), 0.0)
        floor = NEGLIGIBLE * self.rounding * largest
        chosen, n_agreed = self.climbers.distinct(self.components.vectors, floor)
        climbers = self.climbers.chosen(chosen)
        # At odd orders the last step has turned every vector to where its value is positive.
        weights = np.abs(climbers.values) if self.order % 2 else climbers.values
        return [
            Eigenpair(
                weight=float(weights[i]),
                vector=climbers.vectors[:, i].copy(),
                residual=float(climbers.residuals[i] * abs(weights[i])),
                n_iterations=len(climbers.history_of(i)),
                n_agreed=int(n_agreed[i]),
                history=climbers.history_of(i),
            )
            for i in range(chosen.size)
        ]

    def _begin_polish(self) -> Together:
        if not self.kept:
            return self._begin_loop()
        found = self.components
        return replace(self, stage="polish", climbers=Climbers.start(found.vectors, found.weights))

    def _polish(self, answer: FloatArray) -> Together:
        """Let component i take a step in the tensor without components 1 to i − 1, until residuals stop shrinking."""
        before, vectors = self.climbers, self.climbers.vectors
        overlaps = np.triu(vectors.T @ vectors, 1)
        image = answer - vectors @ (before.values[:, None] * overlaps ** (self.order - 1))
        now = before.measured(image, self._asked, order=self.order, rounding=self.rounding)
        strength = np.abs(now.values)
        real = strength > NEGLIGIBLE * self.rounding * strength.max()
        if not real.all():  # it was what an inaccurate component had left behind
            rest = tuple(pair for pair, is_real in zip(self.kept, real, strict=True) if is_real)
            return replace(self, kept=rest)._begin_polish()
        worst, worst_before = float(now.residuals.max()), float(before.residuals.max())
        # Without noise convergence is quadratic, and the next step costs little for what it gains.
        stalled = worst <= self.plan.tolerance and worst > worst_before / _QUADRATIC
        if stalled or worst <= self.rounding or now.n_answers > 2 * self.plan.n_iterations:
            return replace(self, climbers=now)._end_polish()
        return replace(self, climbers=now.moved(image, self._asked))

    def _end_polish(self) -> Together:
        """Keep the components before the first that did not converge, and leave the rest to the loop."""
        climbers = self.climbers
        failed = climbers.residuals > max(self.plan.tolerance, SETTLED)
        n_good = int(np.argmax(failed)) if failed.any() else failed.size
        polished = tuple(
            replace(
                pair,
                weight=float(climbers.values[i]),
                vector=climbers.vectors[:, i].copy(),
                residual=float(climbers.residuals[i] * abs(climbers.values[i])),
                n_iterations=pair.n_iterations + climbers.n_answers,
                history=pair.history + climbers.history_of(i),
            )
            for i, pair in enumerate(self.kept[:n_good])
        )
        now = replace(self, kept=polished, climbers=Climbers.start(np.empty((self.dimension, 0))))
        return replace(now, stage="done") if n_good == self.plan.n_components else now._begin_loop()

    def _begin_loop(self) -> Together:
        plan = Plan.default(self.dimension, self.plan.n_components, tolerance=self.plan.tolerance)
        parts = (self.dimension,)
        loop = Search.start(
            plan, order=self.order, parts=parts, seed=self.seed, rounding=self.rounding, found=self.kept
        )
        return replace(self, stage="loop", kept=(), loop=loop)

    def _with_loop(self, loop: Search) -> Together:
        return replace(self, loop=loop, stage="done" if loop.done else "loop")


_HEADER_FIELDS = ("order", "seed", "rounding", "stage", "round", "n_answered", "most_steps")

_CLIMBERS_FIELDS = ("vectors", "signs", "shifts", "values", "history")


def run_together(
    oracle: Oracle,
    n_components: int,
    *,
    tolerance: float = 1e-10,
    rng: RngLike = None,
    callback: Callable[[Together], object] | None = None,
) -> Together:
    """Ask `oracle` until all its components are found, all at once where that is cheaper than one after another.

    Parameters
    ----------
    oracle : Oracle
        A tensor with nearly orthogonal components that can be asked again (`exact`).
    n_components : int
        The number k of components. They are those that Algorithm 1 finds.
    tolerance : float
        Relative residual at which a component has converged, above 0.
    rng : None, int or numpy.random.Generator
        Draws slices and starts. The same rng gives the same bits on any number of threads.
    callback : callable, optional
        Receives the search after every answer.

    Raises
    ------
    RankError
        If the tensor has fewer components than asked for; those found are in ``error.found``.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco import Components
    >>> from odeco.power import run_together
    >>> tensor = Components(np.arange(20.0, 0, -1), np.eye(20))
    >>> run_together(tensor, 20, rng=0).components.weights[:4]
    array([20., 19., 18., 17.])
    """
    if not oracle.exact:
        raise ValueError(
            "All components at once need an oracle that can be asked again. "
            f"{type(oracle).__name__} is not exact. Take `run`."
        )
    search = Together.start(
        n_components, order=oracle.order, parts=oracle.parts, tolerance=tolerance, rng=rng, rounding=oracle.rounding
    )
    while not search.done:
        search = search.advance(_answer(oracle, search))
        if callback is not None:
            callback(search)
    return search


def _most_steps(dimension: int) -> int:
    """Return how many steps a round has: the R of Theorem 2.2 for an accuracy of the order of the weight."""
    return 10 + math.ceil(math.log2(dimension))


def _answer(oracle: Oracle, search: Together) -> FloatArray:
    if search.question == "slice":
        return oracle.slice(search.candidates[:, 0])
    return oracle.value(search.candidates) if search.question == "value" else oracle.image(search.candidates)
