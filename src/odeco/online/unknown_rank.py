"""The search for a number of components that is not known: the range finder with its core, and rows held out.

Rows come in stretches. Every other stretch is for finding: the span of the components, then the core in it, to which
they are fitted. Those between are held out, in a few groups, and say how many components there are (`_held_out`). So
neither the span nor the fit has seen the rows that judge it, and rows that are sorted are in both parts alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from odeco._util.arguments import MAX_ORDER, MINIMUM_ORDER
from odeco._util.schema import Sizes, require, unit_vectors, usable_array
from odeco._util.state import State, array_field, part_field
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.cp.fit import refine
from odeco.cp.rank import SURE, RankEvidence
from odeco.cp.symmetric import SymmetricProblem
from odeco.errors import RankError
from odeco.online.held_out import HeldOut, judge_held_out
from odeco.online.range_finder import DEFAULT_ROUNDS, mixtures
from odeco.power.power_method import zero_image_error
from odeco.power.solver import FiniteSolver
from odeco.tensors.components import Components
from odeco.tensors.dense import DenseTensor, symmetrize

#: Groups of rows that are held out. Their spread gives the standard errors, with one degree of freedom less.
N_GROUPS = 16

#: The largest number of entries of a core: at order 3 it has 50 vectors, and all groups take 17 MB.
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


def _rounds(dimension: int, order: int) -> int:
    """Return how many images are asked for: none if the core is the whole moment."""
    return 0 if counting_width(dimension, order) == dimension else DEFAULT_ROUNDS


@dataclass(frozen=True, eq=False)
class CountingSolver(State, FiniteSolver):
    """The state of a solver for an unknown number of components. `advance` returns the next state.

    Where rows can be read again (`per_pass`), a query is made of all of them, stretch by stretch, and the next comes
    at the end of a pass (`end_pass`). Else a question is asked of a number of batches; and as long as the number of
    components is in doubt, all of it is done anew with fresh rows, twice as many.

    Attributes
    ----------
    order, seed
        What does not change.
    per_pass : bool
        Whether the next question waits for the end of a pass.
    attempt : int
        How often the number was in doubt.
    round : int
        Questions answered in this attempt: images, then the core.
    n_answers : int
        Stretches that the current question was asked of.
    probes : array, d x m
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
        The evidence for the rank.
    """

    order: int = array_field(kind="i", low=MINIMUM_ORDER, high=MAX_ORDER)
    seed: int = array_field(kind="i", low=0)
    per_pass: bool = array_field(kind="b")
    attempt: int = array_field(kind="i", low=0, high=62)
    round: int = array_field(kind="i", low=0)
    n_answers: int = array_field(kind="i", low=0)
    probes: FloatArray = array_field("d", "m", rule=unit_vectors("d", "m"))
    n_fitted: int = array_field(kind="i", low=0)
    held: tuple[FloatArray, ...] = array_field(rule=_of_any_shape, as_tuple=True)
    n_held: IndexArray = array_field(None, kind="i", low=0)
    fitted: FloatArray | None = array_field(rule=_of_any_shape, default=None)
    found: Components | None = part_field(Components, default=None)
    rank_evidence: RankEvidence | None = part_field(RankEvidence, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        d, m = self.probes.shape
        width, core = counting_width(d, self.order), (m,) * self.order
        require(m == width, f"it must have {width} probes")
        require(self.round <= self.n_rounds, "`round` must be that of the span, or of the core")
        shape = core if self.query == "core" else (d, m)
        require(self.fitted is None or self.fitted.shape == shape, "its mean must be that of its query")
        require(np.shape(self.held) in ((0,), (N_GROUPS, *core)), "it must hold a core for each group")
        require(self.n_held.shape == (N_GROUPS,), "it must hold a number of rows for each group")
        require(bool(self.held) == bool(np.any(self.n_held)), "groups with rows must have cores, and no others")
        require((self.fitted is not None) == bool(self.n_fitted), "rows must have a mean, and no rows none")
        found, evidence = self.found, self.rank_evidence
        require((found is None) == (evidence is None), "it must hold components and evidence, or neither")
        fits = found is None or (found.dimension, found.order) == (d, self.order)
        require(fits, "its components must be those of its moment")
        same = found is None or evidence is None or evidence.rank == found.n_components
        require(same, "its rank must be the number of its components")

    @classmethod
    def start(cls, dimension: int, *, order: int = 3, seed: int, per_pass: bool) -> CountingSolver:
        """Return the state before the first query."""
        return cls._beginning(dimension, order, seed, per_pass=per_pass, attempt=0)

    @classmethod
    def _beginning(cls, dimension: int, order: int, seed: int, *, per_pass: bool, attempt: int) -> CountingSolver:
        width = counting_width(dimension, order)
        block: FloatArray = np.eye(dimension)
        if width < dimension:
            generator = np.random.default_rng([seed, 0, attempt])
            with one_blas_thread():
                block = np.linalg.qr(generator.standard_normal((dimension, width)))[0]
        nobody = np.zeros(N_GROUPS, dtype=np.int64)
        return cls(order, seed, per_pass, attempt, 0, 0, block, 0, (), nobody)

    @classmethod
    def passes(cls, dimension: int, order: int) -> int:
        """Return how many passes over data that can be read again it takes."""
        return _rounds(dimension, order) + 1

    @property
    def n_rounds(self) -> int:
        """Images asked for before the core."""
        return _rounds(self.probes.shape[0], self.order)

    @property
    def done(self) -> bool:
        """Whether the number of components is found: in passes, once it is selected; else, once it is beyond doubt."""
        evidence = self.rank_evidence
        return evidence is not None and (self.per_pass or evidence.confidence >= SURE)

    @property
    def query(self) -> Literal["image", "core"]:
        """Which product with `probes` is needed next."""
        return "image" if self.round < self.n_rounds else "core"

    @property
    def components(self) -> Components:
        """The components, once their number is selected; none before."""
        empty = Components(np.empty(0), np.empty((self.probes.shape[0], 0)), self.order)
        return empty if self.found is None else self.found

    @property
    def n_queries(self) -> int | None:
        """How many answers it takes until there are components; None once there are some, since more are welcome."""
        if self.per_pass:
            return self.n_rounds + 1
        return None if self.rank_evidence is not None else N_GROUPS * (self.n_rounds + 2)

    @property
    def n_replies(self) -> int:
        """The number of replies so far."""
        return self.round if self.per_pass else N_GROUPS * self.round + self.n_answers

    @property
    def status(self) -> str:
        """What the next reply is for."""
        if self.rank_evidence is not None:
            return "judging their number again, from more rows"
        return "finding the span" if self.query == "image" else "core, and how many components it has"

    @property
    def description(self) -> str:
        """What its queries consist of."""
        span = f"{self.n_rounds} rounds of {N_GROUPS} batches, and " if self.n_rounds else ""
        return f"{span}a core in {2 * N_GROUPS} parts that judge each other, each"

    def advance(self, reply: FloatArray, n_rows: int | None = None) -> CountingSolver:
        """Take in the answer of a stretch of `n_rows` rows."""
        if n_rows is None:
            raise TypeError("A search that counts must know how many rows an answer stands for. Pass n_rows.")
        taken = replace(self._with(reply, n_rows), n_answers=self.n_answers + 1)
        if self.per_pass or taken.n_answers < self._n_wanted:
            return taken
        return taken._settled_question()

    def end_pass(self) -> CountingSolver:
        """Return the search after the end of a pass, with its next question or with what it found."""
        return self._settled_question() if self.per_pass and not self.done else self

    def _settled_question(self) -> CountingSolver:
        """Go on with the next question, or judge."""
        if self.query == "core":
            return self._selected()
        if self.fitted is None:
            raise self._too_few_rows()
        with one_blas_thread():  # results must not depend on the number of threads
            basis = np.linalg.svd(self.fitted, full_matrices=False)[0]
        last = self.round + 1 == self.n_rounds
        most = most_counted(self.probes.shape[0], self.order)
        block = basis if last else mixtures(basis, most, [self.seed, self.attempt, self.round + 1])
        return replace(self, round=self.round + 1, n_answers=0, probes=block, fitted=None, n_fitted=0)

    @property
    def _n_wanted(self) -> int:
        """How many batches a question is asked of, where rows cannot be read again."""
        return (2 * N_GROUPS if self.query == "core" else N_GROUPS) << self.attempt

    def _with(self, reply: FloatArray, n_rows: int) -> CountingSolver:
        """Return the search with an answer added to the mean that it belongs to."""
        alternate = self.query == "core" or self.per_pass
        if not alternate or self.n_answers % 2 == 0:
            before = np.zeros_like(reply) if self.fitted is None else self.fitted
            n_fitted = self.n_fitted + n_rows
            return replace(self, fitted=before + (n_rows / n_fitted) * (reply - before), n_fitted=n_fitted)
        if self.query == "image":  # the span is not theirs to find
            return self
        group = self.n_answers // 2 % N_GROUPS
        held = list(self.held or (np.zeros_like(reply),) * N_GROUPS)
        n_held = self.n_held.copy()
        n_held[group] += n_rows
        held[group] = held[group] + (n_rows / n_held[group]) * (reply - held[group])
        return replace(self, held=tuple(held), n_held=n_held)

    def _selected(self) -> CountingSolver:
        """Select the number of components; then all rows of the core fit them."""
        if self.fitted is None or not np.all(self.n_held):
            raise self._too_few_rows()
        if not np.any(self.fitted):
            raise zero_image_error(1, self.components)
        dimension = self.probes.shape[0]
        rows = HeldOut(self.fitted, self.held, most_counted(dimension, self.order), self.seed)
        evidence, start = judge_held_out(rows)
        shares = np.append(self.n_held, self.n_fitted) / (self.n_fitted + int(self.n_held.sum()))
        core: FloatArray = sum(share * mean for share, mean in zip(shares, (*self.held, self.fitted), strict=True))
        whole_core = DenseTensor(symmetrize(core))
        inside = refine(SymmetricProblem(whole_core, whole_core.squared_norm()), start).components.sorted_by_weight()
        found = Components(inside.weights, self.probes @ inside.vectors, self.order)
        if self.per_pass or evidence.confidence >= SURE:
            selected = replace(self, fitted=None, n_fitted=0, held=(), n_held=np.zeros_like(self.n_held))
        else:
            again = self.attempt + 1
            selected = self._beginning(dimension, self.order, self.seed, per_pass=False, attempt=again)
        return replace(selected, found=found, rank_evidence=evidence)

    def _too_few_rows(self) -> RankError:
        n_rows = self.n_fitted + int(self.n_held.sum())
        return RankError(
            f"To judge how many components there are, some rows must find them and {N_GROUPS} groups of others bear "
            f"them out. There are {n_rows:,} rows, too few for that. Pass n_components as an int.",
            self.components,
        )
