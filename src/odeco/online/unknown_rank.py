"""The search for a number of components that is not known: the range finder with its core, and rows held out.

Rows come in stretches. Every other stretch is for finding: the span of the components, then the core in it, to which
they are fitted. Those between are held out, in a few groups, and say how many components there are (`_held_out`). So
neither the span nor the fit has seen the rows that judge it, and rows that are sorted are in both parts alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from odeco._util.schema import Schema, Sizes, array, flag, require, tensor_order, unit_vectors, usable_array, whole
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.cp.fit import refine
from odeco.cp.rank import SURE, RankEvidence
from odeco.cp.symmetric import SymmetricProblem
from odeco.errors import RankError
from odeco.online.held_out import HeldOut, judge_held_out
from odeco.online.range_finder import DEFAULT_ROUNDS, mixtures
from odeco.power.evidence_file import EVIDENCE_ARRAYS, evidence_from_arrays, evidence_is_whole, evidence_to_arrays
from odeco.power.protocol import Finder
from odeco.power.solver import zero_image_error
from odeco.power.tracking import Tracking
from odeco.tensors.components import Components
from odeco.tensors.dense import DenseTensor, symmetrize

#: Groups of rows that are held out. Their spread gives the standard errors, with one degree of freedom less.
N_GROUPS = 16

#: A core has at most so many entries: at order 3 it is of 50 vectors, and all groups take 17 MB.
_MOST_ENTRIES = 2**17


def counting_width(dimension: int, order: int) -> int:
    """Return how many vectors the search asks about: all dimensions, if a core of them has few enough entries."""
    return min(dimension, int(_MOST_ENTRIES ** (1 / order)))


def most_counted(dimension: int, order: int) -> int:
    """Return how many components are looked for: a range finder for k of them asks about 2k + 5 vectors."""
    width = counting_width(dimension, order)
    return dimension if width == dimension else max(1, (width - 5) // 2)


def _of_any_shape(value: Any, where: str, sizes: Sizes) -> None:
    """Require an array of numbers whose squares can be added up; its shape is that of the question."""
    usable_array(*(None,) * np.ndim(value))(value, where, sizes)


def _check_state(header: dict[str, Any], arrays: dict[str, Any], sizes: Sizes) -> None:
    width = counting_width(sizes["d"], header["order"])
    require(sizes["m"] == width, f"it must ask about {width} vectors")
    require(header["round"] <= _rounds(sizes["d"], header["order"]), "`round` must be that of the span, or of the core")
    core = (width,) * header["order"]
    image = (sizes["d"], width)
    shape = core if header["round"] == _rounds(sizes["d"], header["order"]) else image
    require("fitted" not in arrays or arrays["fitted"].shape == shape, "its mean must be that of its question")
    require("held" not in arrays or arrays["held"].shape == (N_GROUPS, *core), "it must hold a core for each group")
    require(arrays["n_held"].shape == (N_GROUPS,), "it must hold a number of rows for each group")
    require(("held" in arrays) == bool(np.any(arrays["n_held"])), "groups with rows must have cores, and no others")
    require(("fitted" in arrays) == bool(header["n_fitted"]), "rows must have a mean, and no rows none")
    require(evidence_is_whole(arrays), "it must hold all of the evidence, or none")
    judged = {"weights", "vectors", "judged_ranks"} & arrays.keys()
    require(len(judged) in (0, 3), "it must hold components and evidence, or neither")
    require(not judged or int(arrays["judged_ranks"][0]) == arrays["weights"].size, "its rank must be that it found")


def _rounds(dimension: int, order: int) -> int:
    """Return how many images are asked for: none if the core is the whole moment."""
    return 0 if counting_width(dimension, order) == dimension else DEFAULT_ROUNDS


@dataclass(frozen=True, eq=False)
class CountingSearch(Finder):
    """Where a search for an unknown number of components stands: a value that `advance` replaces by the next.

    Where rows can be read again (`holding`), a question is asked of all of them, stretch by stretch, and the next comes
    at the end of a pass (`settled`). Else a question is asked of a number of batches; and as long as the number of
    components is in doubt, all of it is done anew with fresh rows, twice as many.

    Attributes
    ----------
    order, seed
        What does not change.
    holding : bool
        Whether the next question waits for the end of a pass.
    attempt : int
        How often the number was in doubt.
    round : int
        Questions answered in this attempt: images, then the core.
    n_answers : int
        Stretches that the current question was asked of.
    candidates : array, d x m
        The block to ask about.
    fitted : array or None
        The mean of the answers of the stretches for finding.
    n_fitted : int
        Their rows.
    held : tuple of arrays
        The mean core of each group of stretches that are held out; none before the first is asked.
    n_held : array
        Their rows.
    found : Components or None
        The components of the last attempt.
    rank_evidence : RankEvidence or None
        Why so many.
    """

    candidates_meet: ClassVar[bool] = False
    SCHEMA: ClassVar[Schema] = Schema(
        {
            "order": tensor_order(),
            "seed": whole(),
            "holding": flag(),
            "attempt": whole(0, 62),
            "round": whole(),
            "n_answers": whole(),
            "n_fitted": whole(),
        },
        {"candidates": unit_vectors("d", "m"), "n_held": array(None, kind="i", low=0)},
        optional_arrays={
            "fitted": _of_any_shape,
            "held": _of_any_shape,
            "weights": usable_array("k"),
            "vectors": unit_vectors("d", "k"),
            **EVIDENCE_ARRAYS,
        },
        relations=_check_state,
    )

    order: int
    seed: int
    holding: bool
    attempt: int
    round: int
    n_answers: int
    candidates: FloatArray
    fitted: FloatArray | None
    n_fitted: int
    held: tuple[FloatArray, ...]
    n_held: IndexArray
    found: Components | None = None
    rank_evidence: RankEvidence | None = None

    @classmethod
    def start(cls, dimension: int, *, order: int = 3, seed: int, holding: bool) -> CountingSearch:
        """Return the search that has asked nothing yet."""
        return cls._beginning(dimension, order, seed, holding=holding, attempt=0)

    @classmethod
    def _beginning(cls, dimension: int, order: int, seed: int, *, holding: bool, attempt: int) -> CountingSearch:
        width = counting_width(dimension, order)
        block: FloatArray = np.eye(dimension)
        if width < dimension:
            generator = np.random.default_rng([seed, 0, attempt])
            with one_blas_thread():
                block = np.linalg.qr(generator.standard_normal((dimension, width)))[0]
        nobody = np.zeros(N_GROUPS, dtype=np.int64)
        return cls(order, seed, holding, attempt, 0, 0, block, None, 0, (), nobody)

    @classmethod
    def passes(cls, dimension: int, order: int) -> int:
        """Return how many passes over data that can be read again it takes."""
        return _rounds(dimension, order) + 1

    @property
    def n_rounds(self) -> int:
        """Images asked for before the core."""
        return _rounds(self.candidates.shape[0], self.order)

    @property
    def done(self) -> bool:
        """Whether the number of components is found: in passes, once it is judged; else, once it is beyond doubt."""
        evidence = self.rank_evidence
        return evidence is not None and (self.holding or evidence.confidence >= SURE)

    @property
    def question(self) -> Literal["image", "core"]:
        """What to ask about `candidates` next."""
        return "image" if self.round < self.n_rounds else "core"

    @property
    def components(self) -> Components:
        """The components, once they are judged; none before."""
        empty = Components(np.empty(0), np.empty((self.candidates.shape[0], 0)), self.order)
        return empty if self.found is None else self.found

    @property
    def n_questions(self) -> int | None:
        """How many answers it takes until there are components; None once there are some, since more are welcome."""
        if self.holding:
            return self.n_rounds + 1
        return None if self.rank_evidence is not None else N_GROUPS * (self.n_rounds + 2)

    @property
    def n_answered(self) -> int:
        """How many of them are there."""
        return self.round if self.holding else N_GROUPS * self.round + self.n_answers

    @property
    def doing(self) -> str:
        """What the next answer is for, in words."""
        if self.rank_evidence is not None:
            return "judging their number again, from more rows"
        return "finding the span" if self.question == "image" else "core, and how many components it has"

    @property
    def plan_in_words(self) -> str:
        """What its questions consist of."""
        span = f"{self.n_rounds} rounds of {N_GROUPS} batches, and " if self.n_rounds else ""
        return f"{span}a core in {2 * N_GROUPS} parts that judge each other, each"

    def advance(self, answer: FloatArray, n_rows: int | None = None) -> CountingSearch:
        """Take in the answer of a stretch of `n_rows` rows."""
        if n_rows is None:
            raise TypeError("A search that counts must know how many rows an answer stands for. Pass n_rows.")
        taken = replace(self._with(answer, n_rows), n_answers=self.n_answers + 1)
        if self.holding or taken.n_answers < self._n_wanted:
            return taken
        return taken._settled_question()

    def settled(self) -> CountingSearch:
        """Return the search after the end of a pass, with its next question or with what it found."""
        return self._settled_question() if self.holding and not self.done else self

    def _settled_question(self) -> CountingSearch:
        """Go on with the next question, or judge."""
        if self.question == "core":
            return self._judged()
        if self.fitted is None:
            raise self._too_few_rows()
        with one_blas_thread():  # the bits of a decomposition depend on the number of threads
            basis = np.linalg.svd(self.fitted, full_matrices=False)[0]
        last = self.round + 1 == self.n_rounds
        most = most_counted(self.candidates.shape[0], self.order)
        block = basis if last else mixtures(basis, most, [self.seed, self.attempt, self.round + 1])
        return replace(self, round=self.round + 1, n_answers=0, candidates=block, fitted=None, n_fitted=0)

    def tracked(
        self,
        *,
        n_rows: int = 0,  # noqa: ARG002 - the vectors may err outside of the span: the first image replaces them
        forgetting: float = 1.0,
        holding: bool = False,
        orthogonal: bool = False,
    ) -> Tracking:
        """Return what was found, as something that goes on learning, and remembers why there are so many."""
        tracking = Tracking.start(self.components, forgetting=forgetting, holding=holding, orthogonal=orthogonal)
        return replace(tracking, rank_evidence=self.rank_evidence)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the search as a JSON header and named arrays."""
        arrays: dict[str, Any] = {"candidates": self.candidates, "n_held": self.n_held}
        arrays |= {} if self.fitted is None else {"fitted": self.fitted}
        arrays |= {"held": np.stack(self.held)} if self.held else {}
        if self.found is not None:
            arrays |= {"weights": self.found.weights, "vectors": self.found.vectors}
        return {name: getattr(self, name) for name in _HEADER}, arrays | evidence_to_arrays(self.rank_evidence)

    @classmethod
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, Any]) -> CountingSearch:
        """Return the search that `to_arrays` described."""
        found = Components(arrays["weights"], arrays["vectors"], header["order"]) if "weights" in arrays else None
        return cls(
            **header,
            candidates=arrays["candidates"],
            fitted=arrays.get("fitted"),
            held=tuple(arrays.get("held", ())),
            n_held=arrays["n_held"],
            found=found,
            rank_evidence=evidence_from_arrays(arrays),
        )

    @property
    def _n_wanted(self) -> int:
        """How many batches a question is asked of, where rows cannot be read again."""
        return (2 * N_GROUPS if self.question == "core" else N_GROUPS) << self.attempt

    def _with(self, answer: FloatArray, n_rows: int) -> CountingSearch:
        """Return the search with an answer added to the mean that it belongs to."""
        alternate = self.question == "core" or self.holding
        if not alternate or self.n_answers % 2 == 0:
            before = np.zeros_like(answer) if self.fitted is None else self.fitted
            n_fitted = self.n_fitted + n_rows
            return replace(self, fitted=before + (n_rows / n_fitted) * (answer - before), n_fitted=n_fitted)
        if self.question == "image":  # the span is not theirs to find
            return self
        group = self.n_answers // 2 % N_GROUPS
        held = list(self.held or (np.zeros_like(answer),) * N_GROUPS)
        n_held = self.n_held.copy()
        n_held[group] += n_rows
        held[group] = held[group] + (n_rows / n_held[group]) * (answer - held[group])
        return replace(self, held=tuple(held), n_held=n_held)

    def _judged(self) -> CountingSearch:
        """CPFits how many components there are; then all rows of the core fit them."""
        if self.fitted is None or not np.all(self.n_held):
            raise self._too_few_rows()
        if not np.any(self.fitted):
            raise zero_image_error(1, self.components)
        dimension = self.candidates.shape[0]
        rows = HeldOut(self.fitted, self.held, most_counted(dimension, self.order), self.seed)
        evidence, start = judge_held_out(rows)
        shares = np.append(self.n_held, self.n_fitted) / (self.n_fitted + int(self.n_held.sum()))
        core: FloatArray = sum(share * mean for share, mean in zip(shares, (*self.held, self.fitted), strict=True))
        whole_core = DenseTensor(symmetrize(core))
        inside = refine(SymmetricProblem(whole_core, whole_core.squared_norm()), start).components.sorted_by_weight()
        found = Components(inside.weights, self.candidates @ inside.vectors, self.order)
        if self.holding or evidence.confidence >= SURE:
            judged = replace(self, fitted=None, n_fitted=0, held=(), n_held=np.zeros_like(self.n_held))
        else:
            again = self.attempt + 1
            judged = self._beginning(dimension, self.order, self.seed, holding=False, attempt=again)
        return replace(judged, found=found, rank_evidence=evidence)

    def _too_few_rows(self) -> RankError:
        n_rows = self.n_fitted + int(self.n_held.sum())
        return RankError(
            f"To judge how many components there are, some rows must find them and {N_GROUPS} groups of others bear "
            f"them out. There are {n_rows:,} rows, too few for that. Pass n_components as an int.",
            self.components,
        )


_HEADER = ("order", "seed", "holding", "attempt", "round", "n_answers", "n_fitted")
