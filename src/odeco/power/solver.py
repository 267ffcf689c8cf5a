"""The loop: Algorithms 1, 2 and 3 of Wang and Anandkumar (2016), which differ only in who answers.

Draw candidates, ask for their images again and again, keep the best, subtract it, go on. `Plan` says how often,
`Search` is where the loop stands, and `run` asks an oracle until the search is done. A search takes in one
answer at a time, so whoever has answers can drive it: `run` pulls them, a stream pushes them.

The loop sees answers, never data: all it does is post-processing of what the oracle chose to say.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from odeco._util.arguments import as_seed
from odeco._util.files import load_arrays, save_arrays
from odeco._util.schema import (
    Schema,
    Sizes,
    each,
    flag,
    nothing_or,
    number,
    one_of,
    record,
    require,
    tensor_order,
    unit_vectors,
    usable_array,
    whole,
)
from odeco._util.types import FloatArray, RngLike
from odeco.errors import RankError
from odeco.power.iteration import AGREEMENT, column_norms, moved, steered, uniform_starts
from odeco.power.protocol import Finder
from odeco.power.schedule import Plan
from odeco.power.tracking import Tracking
from odeco.tensors.components import Components
from odeco.tensors.oracle import Oracle

#: A weight below this multiple of the rounding error of the largest is rounding error itself.
NEGLIGIBLE = 100


Stage = Literal["iterate", "weigh", "polish", "done"]

Callback = Callable[["Search"], object]


@dataclass(frozen=True, eq=False)
class Eigenpair:
    """A component as the loop found it, with how it was found.

    Attributes
    ----------
    weight, vector
        The pair (λ, v).
    residual : float or None
        ‖T(I,v,…,v) − λv‖ of the deflated tensor; None where the oracle was asked only for values.
    n_iterations : int
        Images asked for, polishing included.
    n_agreed : int
        How many of the restarts ended at the same vector.
    history : tuple of float
        Relative residual of the leading candidate after each image.
    """

    weight: float
    vector: FloatArray
    residual: float | None
    n_iterations: int
    n_agreed: int
    history: tuple[float, ...]


#: What must stand in a file for a plan, and for a pair without its vector, which is in an array.
PLAN = record(
    {
        "n_components": whole(1),
        "n_restarts": whole(1),
        "n_iterations": whole(1),
        "tolerance": number(0, 1),
        "weigh": one_of("image", "value", "reuse"),
    }
)

PAIR = record(
    {
        "weight": number(-(2.0**500), 2.0**500),
        "vector": one_of(None),
        "residual": nothing_or(number(0)),
        "n_iterations": whole(),
        "n_agreed": whole(),
        "history": each(number(0, infinite=True)),
    }
)


def _check_state(header: dict[str, Any], arrays: dict[str, Any], sizes: Sizes) -> None:
    n_found, parts = sizes["pairs"] - header["has_winner"], header["parts"]
    stage, n_components = header["stage"], header["plan"]["n_components"]
    require(sum(parts) == sizes["d"] and len(parts) in (1, header["order"]), "`parts` must add up to the dimension")
    require(n_components <= sizes["d"], "there must be 1 to d components")
    require((n_found == n_components) == (stage == "done") and n_found >= 0, "all components must be found at the end")
    require(n_found <= n_components, "there must be no more components than planned")
    require(header["has_winner"] == (stage == "polish"), "there must be a winner while it is polished, and only then")
    n_candidates = {"done": 0, "polish": 1}.get(stage, header["plan"]["n_restarts"])
    require(sizes["L"] == n_candidates, f"there must be {n_candidates} candidates")
    require(header["iteration"] <= 2 * header["plan"]["n_iterations"] + 2, "`iteration` must not pass the plan")
    require(bool(np.all(np.abs(arrays["signs"]) == 1)), "`signs` must be 1 or -1")


@dataclass(frozen=True, eq=False)
class Search(Finder):
    """Where the loop stands: a value that `advance` replaces by the next, and that can be saved at any time.

    Ask an oracle `question`, hand the answer to `advance`, until `done`.

    Attributes
    ----------
    plan, order, parts, seed
        What does not change. The starts of component i depend on (seed, i) alone.
    found : tuple of Eigenpair
        Components found so far, in the order of discovery.
    stage : {"iterate", "weigh", "polish", "done"}
        What the next answer will be used for.
    iteration : int
        Answers taken in for the current component.
    candidates : array, d x L
        The unit vectors to ask about next.
    signs, shifts, values : arrays of L numbers
        For each candidate: whether it climbs (+1) or descends (−1), the shift that keeps it from cycling, and its
        last value.
    history : tuple of float
        See `Eigenpair`.
    winner : Eigenpair or None
        The selected candidate while it is polished.
    """

    candidates_meet: ClassVar[bool] = True
    SCHEMA: ClassVar[Schema] = Schema(
        {
            "plan": PLAN,
            "pairs": each(PAIR, "pairs"),
            "has_winner": flag(),
            "order": tensor_order(),
            "parts": each(whole(1)),
            "seed": whole(),
            "stage": one_of("iterate", "weigh", "polish", "done"),
            "iteration": whole(),
            "history": each(number(0, infinite=True)),
            "rounding": number(0, 1),
        },
        {
            "vectors": unit_vectors("pairs", "d", axis=1),
            "candidates": unit_vectors("d", "L"),
            **dict.fromkeys(("signs", "shifts", "values"), usable_array("L")),
        },
        relations=_check_state,
    )

    plan: Plan
    order: int
    parts: tuple[int, ...]
    seed: int
    found: tuple[Eigenpair, ...]
    stage: Stage
    iteration: int
    candidates: FloatArray
    signs: FloatArray
    shifts: FloatArray
    values: FloatArray
    history: tuple[float, ...] = ()
    winner: Eigenpair | None = None
    rounding: float = float(np.finfo(np.float64).eps)

    @classmethod
    def start(
        cls,
        plan: Plan,
        *,
        order: int = 3,
        parts: tuple[int, ...],
        rng: RngLike = None,
        seed: int | None = None,
        rounding: float = float(np.finfo(np.float64).eps),
        found: tuple[Eigenpair, ...] = (),
    ) -> Search:
        """Return the search that has asked nothing yet; `seed`, if given, is used instead of one drawn from `rng`.

        Components that are `found` already are subtracted from every answer, and count among those of the plan.
        """
        seed = as_seed(rng) if seed is None else seed
        empty = np.empty(0)
        blank = cls(
            plan,
            order,
            parts,
            seed,
            (),
            "iterate",
            0,
            np.empty((sum(parts), 0)),
            empty,
            empty,
            empty,
            rounding=rounding,
        )
        return blank._next_component(found)

    @property
    def done(self) -> bool:
        """Whether all components are found."""
        return self.stage == "done"

    @property
    def question(self) -> Literal["image", "value"]:
        """What to ask the oracle about `candidates` next."""
        return "value" if self.stage == "weigh" else "image"

    @property
    def components(self) -> Components:
        """The components found so far, in the order of discovery."""
        return as_components(self.found, sum(self.parts), self.order)

    @property
    def n_questions(self) -> int:
        """How many questions it asks at most, polishing not counted."""
        per_component = self.plan.n_iterations + (self.plan.weigh != "reuse")
        return self.plan.n_components * per_component

    @property
    def n_answered(self) -> int:
        """How many questions are answered: all of those for components found, and those of the current one."""
        return len(self.found) * (self.n_questions // self.plan.n_components) + self.iteration

    @property
    def doing(self) -> str:
        """What the next answer is for, in words."""
        if self.done:
            return "all components found"
        return f"component {len(self.found) + 1} of {self.plan.n_components}, iteration {self.iteration + 1}"

    @property
    def plan_in_words(self) -> str:
        """What its questions consist of."""
        return f"{self.plan.n_components} components x {self.plan.n_iterations} iterations"

    @property
    def deflation(self) -> Components:
        """What is subtracted from every answer: the components found, with their sign twins."""
        return _with_sign_twins(self.found, self.parts, self.order)

    def advance(self, answer: FloatArray, n_rows: int | None = None) -> Search:  # noqa: ARG002 - no answer counts more
        """Take in the answer to `question` and return the next state."""
        if self.stage == "weigh":
            return self._select(answer - self.deflation.value(self.candidates), None, None)
        # At d = 100,000 a block is 24 MB: what follows makes one at a time.
        image = self.deflation.image(self.candidates) if self.found else np.zeros_like(answer)
        np.subtract(answer, image, out=image)  # Algorithm 1, line 6, as arithmetic on answers
        values = np.einsum("il,il->l", self.candidates, image)
        misfit = values * self.candidates
        residuals = column_norms(np.subtract(image, misfit, out=misfit))
        del misfit
        leader = int(np.argmax(self.signs * values))
        history = (
            *self.history,
            float(residuals[leader] / max(abs(values[leader]), np.finfo(np.float64).tiny)),
        )
        now = replace(self, iteration=self.iteration + 1, history=history)._steered(values)
        if self.stage == "polish":
            return now._polish(image, float(values[0]), float(residuals[0]))
        converged = self.plan.tolerance > 0 and bool(np.all(residuals <= self.plan.tolerance * np.abs(values)))
        if self.plan.weigh == "image" and (converged or self.iteration == self.plan.n_iterations):
            return now._select(values, residuals, image)
        if self.plan.weigh == "reuse" and now.iteration == self.plan.n_iterations:
            return now._moved(image)._select(values, residuals, None)
        if self.plan.weigh == "value" and now.iteration == self.plan.n_iterations:
            return replace(now._moved(image), stage="weigh")
        return now._moved(image)

    def tracked(
        self, *, n_rows: int = 0, forgetting: float = 1.0, holding: bool = False, orthogonal: bool = False
    ) -> Tracking:
        """Return what was found, largest weight first, as something that goes on learning.

        The vectors were read off the last answer, so they count as the `n_rows` rows of that.
        """
        return Tracking.start(
            self.components.sorted_by_weight(),
            n_rows=n_rows,
            forgetting=forgetting,
            holding=holding,
            orthogonal=orthogonal,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the search to an ``.npz`` file, atomically and without pickle; `load` goes on from there."""
        header, arrays = self.to_arrays()
        save_arrays(path, "search", header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Search:
        """Read what `save` wrote."""
        return cls.from_arrays(*load_arrays(path, "search", cls.SCHEMA))

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the search as a JSON header and named arrays."""
        pairs, vectors = pairs_as_json((*self.found, *(() if self.winner is None else (self.winner,))), sum(self.parts))
        header = {
            "plan": asdict(self.plan),
            "pairs": pairs,
            "has_winner": self.winner is not None,
            **{name: getattr(self, name) for name in _HEADER_FIELDS},
        }
        return header, {"vectors": vectors, **{name: getattr(self, name) for name in _ARRAY_FIELDS}}

    @classmethod
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, Any]) -> Search:
        """Return the search that `to_arrays` described."""
        pairs = pairs_from_json(header["pairs"], arrays["vectors"])
        found, winner = (pairs[:-1], pairs[-1]) if header["has_winner"] else (pairs, None)
        fields = {name: header[name] for name in _HEADER_FIELDS} | {name: arrays[name] for name in _ARRAY_FIELDS}
        fields |= {"parts": tuple(header["parts"]), "history": tuple(header["history"])}
        return cls(plan=Plan(**header["plan"]), found=found, winner=winner, **fields)

    def _steered(self, values: FloatArray) -> Search:
        """Choose the direction of each candidate at its first answer; raise the shift of one that lost ground."""
        signs, shifts = steered(
            self.signs,
            self.shifts,
            self.values,
            values,
            order=self.order,
            n_answers=self.iteration,
            may_shift=self.order % 2 == 0 or self.plan.tolerance > 0,
            rounding=self.rounding,
        )
        return replace(self, signs=signs, shifts=shifts, values=values)

    def _moved(self, image: FloatArray) -> Search:
        """Replace every candidate by its normalised image (Algorithm 1, line 4), shifted where it needs to be."""
        return replace(self, candidates=moved(self.candidates, image, self.signs, self.shifts, self.parts))

    def _select(self, values: FloatArray, residuals: FloatArray | None, image: FloatArray | None) -> Search:
        """Keep the candidate of the best value (Algorithm 1, line 5)."""
        leader = int(np.argmax(self.signs * values))
        overlaps = np.abs(self.candidates.T @ self.candidates[:, leader])
        pair = Eigenpair(
            weight=float(values[leader]),
            vector=self.candidates[:, leader].copy(),
            residual=None if residuals is None else float(residuals[leader]),
            n_iterations=self.iteration,
            n_agreed=int(np.sum(overlaps > AGREEMENT)),
            history=self.history,
        )
        if image is None or self.plan.tolerance == 0 or pair.weight == 0:
            return self._accept(pair)
        column = [leader]
        alone = replace(
            self,
            stage="polish",
            winner=pair,
            candidates=self.candidates[:, column],
            signs=self.signs[column],
            shifts=self.shifts[column],
            values=values[column],
        )
        return alone._moved(image[:, column])

    def _polish(self, image: FloatArray, value: float, residual: float) -> Search:
        """Go on with the winner alone while its residual shrinks."""
        before = self.winner
        if before is None:
            raise RuntimeError("A search that polishes must have a winner.")
        before = replace(before, n_iterations=self.iteration, history=self.history)
        if before.residual is None or residual >= 0.99 * before.residual:
            return self._accept(before)
        better = replace(before, weight=value, vector=self.candidates[:, 0].copy(), residual=residual)
        if residual <= self.rounding * abs(value) or self.iteration > 2 * self.plan.n_iterations:
            return self._accept(better)
        return replace(self, winner=better)._moved(image)

    def _accept(self, pair: Eigenpair) -> Search:
        largest = max((abs(before.weight) for before in self.found), default=0.0)
        if abs(pair.weight) <= NEGLIGIBLE * self.rounding * largest:
            raise zero_image_error(self.plan.n_components, self.components)
        return self._next_component((*self.found, pair))

    def _next_component(self, found: tuple[Eigenpair, ...]) -> Search:
        remaining = len(found) < self.plan.n_components
        n_starts = self.plan.n_restarts if remaining else 0
        return replace(
            self,
            found=found,
            stage="iterate" if remaining else "done",
            iteration=0,
            candidates=uniform_starts(np.random.default_rng([self.seed, len(found)]), self.parts, n_starts),
            signs=np.ones(n_starts),
            shifts=np.zeros(n_starts),
            values=np.zeros(n_starts),
            history=(),
            winner=None,
        )


@lru_cache(maxsize=4)  # every answer of a component subtracts the same
def _with_sign_twins(found: tuple[Eigenpair, ...], parts: tuple[int, ...], order: int) -> Components:
    """Return what eigenpairs stand for: themselves, or for vectors of several parts the sum of their sign twins.

    A vector of p parts, (a, b, …)/√p, stands for a term of an asymmetric tensor. Its symmetric embedding is a sum over
    2ᵖ⁻¹ sign twins (±a, ±b, …)/√p, one of each pair of opposites, each weighted by the product of its signs. The twins
    are not orthogonal: an eigenvalue λ at one of them means weights of ±λ pᵖ⁻¹ / (2ᵖ⁻¹ (p−1)!).
    """
    single = as_components(found, sum(parts), order)
    if len(parts) == 1:
        return single
    factor = order ** (order - 1) / (2 ** (order - 1) * math.factorial(order - 1))
    choices = [(1.0, *signs) for signs in itertools.product((1.0, -1.0), repeat=order - 1)]
    twins = [single.vectors * np.repeat(signs, parts)[:, None] for signs in choices]
    weights = [math.prod(signs) * factor * single.weights for signs in choices]
    return Components(np.concatenate(weights), np.concatenate(twins, axis=1), order)


def as_components(found: tuple[Eigenpair, ...], dimension: int, order: int) -> Components:
    """Return eigenpairs as components."""
    vectors = np.reshape([pair.vector for pair in found], (-1, dimension)).T
    return Components([pair.weight for pair in found], vectors, order)


def pairs_as_json(pairs: tuple[Eigenpair, ...], dimension: int) -> tuple[list[dict[str, Any]], FloatArray]:
    """Return pairs as JSON, and their vectors as the rows of an array."""
    vectors: FloatArray = np.reshape([pair.vector for pair in pairs], (-1, dimension))
    return [{**asdict(pair), "vector": None} for pair in pairs], vectors


def pairs_from_json(described: list[dict[str, Any]], vectors: FloatArray) -> tuple[Eigenpair, ...]:
    """Return the pairs that `pairs_as_json` described."""
    return tuple(
        Eigenpair(**{**pair, "vector": vector, "history": tuple(pair["history"])})
        for pair, vector in zip(described, vectors, strict=True)
    )


_HEADER_FIELDS = ("order", "parts", "seed", "stage", "iteration", "history", "rounding")

_ARRAY_FIELDS = ("candidates", "signs", "shifts", "values")


def run(oracle: Oracle, plan: Plan, *, rng: RngLike = None, callback: Callback | None = None) -> Search:
    """Ask `oracle` until all components of `plan` are found.

    Each question is asked once. `callback` receives the search after every answer.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco import Components
    >>> from odeco.power import Plan, run
    >>> tensor = Components([2.0, 1.0], np.eye(3)[:, :2])
    >>> run(tensor, Plan(2, n_restarts=5, n_iterations=20), rng=0).components.weights
    array([2., 1.])
    """
    search = Search.start(plan, order=oracle.order, parts=oracle.parts, rng=rng, rounding=oracle.rounding)
    while not search.done:
        search = step(oracle, search)
        if callback is not None:
            callback(search)
    return search


def step(oracle: Oracle, search: Search) -> Search:
    """Ask the one question that `search` has, and return the search with its answer."""
    ask = oracle.value if search.question == "value" else oracle.image
    return search.advance(ask(search.candidates))


def zero_image_error(n_components: int, found: Components) -> RankError:
    """Say that the search ran out of tensor."""
    rank = found.n_components
    if rank == 0:
        return RankError(
            "The tensor must hold a non-zero entry. All its answers are zero. Check how it was made.", found
        )
    return RankError(
        f"The image of every candidate is zero: the tensor has rank {rank}, but n_components={n_components}. "
        f"The {_counted(rank, 'component')} found {'is' if rank == 1 else 'are'} in `error.found`.",
        found,
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
