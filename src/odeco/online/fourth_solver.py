"""One pass over rows for their fourth moment or cumulant, and more components than columns.

The first rows are kept, to choose the frame of the coordinates. All rows are then added up in
groups (`odeco.online.fourth_moment`). A cumulant is decomposed in coordinates in which the
covariance is the identity: there the sampling errors of all pairs have about the same size. So is a
raw moment whose number of components is selected, from rows without noise. With a given number it
is decomposed as it is, because noise in the rows is part of a raw moment, and as large as the
components where all directions are made equal. For the standard errors, each group is left out in
turn, and all components take one Gauss-Newton step.

Where the d⁴/24 distinct moments are too many, only the product of the flattening with a matrix W is
added up, of d² m/2 numbers. The columns of W are a basis of the leading eigenvectors of the
flattening of the first rows, of the half that finds eigenvectors: a range finder whose last step
takes all rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from odeco._util.arguments import check_count, largest, ordinary_bits
from odeco._util.state import State, array_field, require, usable_array
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.small import core_width
from odeco.cp.subspace_power import largest_rank
from odeco.cp.symmetric import SymmetricProblem
from odeco.cp.whitening import Whitener
from odeco.errors import BadRowError, StreamEndedError
from odeco.io.rows import is_sparse, stored_numbers
from odeco.online.fourth_moment import (
    N_GROUPS,
    FourthComponents,
    GroupMeans,
    PairMoments,
    group_numbers,
    n_entries,
    n_pairs,
    sum_products,
    with_columns,
)
from odeco.online.queries import FourthEntries, FourthProducts, Query, Rows, no_vectors
from odeco.online.selection import fit_fourth, select_fourth_rank, with_resolution
from odeco.power.steps import gauss_newton_step
from odeco.tensors.components import Components, no_components
from odeco.tensors.coordinates import FactoredTensor, FlattenedTensor

#: Rows of a segment, and segments that workers of a cluster add up at a time.
_SEGMENT = 2**16
_N_SEGMENTS = 16

#: The fewest first rows, and how many there are for each column; with W there are this many times
#: as many.
_FEWEST_ROWS = 1000
_ROWS_PER_COLUMN = 10
_ROWS_FOR_BASIS = 16

#: Of coordinates scaled to variance 1, directions with less variance than this share of the largest
#: are not enlarged.
_MIN_VARIANCE = 1e-4

#: The jackknife and the choice of a number need groups of at least this many rows.
_ROWS_PER_GROUP = 10

#: The relative residual at which the Gauss-Newton step of the jackknife is solved.
_STEP_TOLERANCE = 1e-6

#: Rounds of the range finder in the first rows.
_N_ROUNDS = 3

#: With W and an unknown number, the largest number of components for each column.
_MOST_PER_COLUMN = 2

#: Arrays of the size of a sum that a run holds: its groups, two levels of the tree of sums and a
#: spare one, the sum over a chunk, the mean over a segment, and the groups after it.
_N_SUMS = 7 * N_GROUPS

#: The shares of all groups in a file add up to 1 but for this.
_ROUNDING = 1e-9

#: Square matrices of the size of the flattening that a decomposition needs.
_N_MATRICES = 4


def whole_bytes(dimension: int) -> int:
    """Return the memory that all distinct moments and their decomposition take."""
    return 8 * (_N_SUMS * n_entries(dimension) + _N_MATRICES * n_pairs(dimension) ** 2)


@dataclass(frozen=True, eq=False)
class FourthMomentSolver(State):
    """The sums of groups of rows; decomposed whenever a result is wanted.

    Attributes
    ----------
    dimension, seed : int
        What does not change.
    cumulant : bool
        Whether the fourth cumulant is decomposed, instead of the raw moment.
    width : int
        The number of columns of W; 0 if all distinct moments are added up.
    n_components : int or None
        The number of components; None if it is selected automatically.
    n_rows : int
        Rows taken in so far.
    frame : array or None
        The map and the shift of the coordinates, once the first rows are known.
    basis : array or None
        W, if there is one.
    groups : array
        The sum over each group, divided by the number of all rows.
    """

    dimension: int = array_field(kind="i", low=1)
    seed: int = array_field(kind="i", low=0)
    cumulant: bool = array_field(kind="b")
    width: int = array_field(kind="i", low=0)
    n_components: int | None = array_field(kind="i", low=1, default=None)
    n_rows: int = array_field(kind="i", low=0, default=0)
    frame: FloatArray | None = array_field("d", None, rule=usable_array("d", None), default=None)
    basis: FloatArray | None = array_field(None, None, rule=usable_array(None, None), default=None)
    groups: FloatArray = array_field(
        "groups", None, rule=usable_array("groups", None), default=np.zeros((0, 0))
    )

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        d = self.dimension
        frame = self.frame
        basis = self.basis
        begun = self.n_rows > 0
        require(
            (frame is not None) == begun,
            "it must have a frame after the first rows, and none before",
        )
        require(
            (basis is not None) == (begun and self.width > 0),
            "it must have a basis if it was started with one",
        )
        if frame is not None:
            require(frame.shape == (d, d + 1), "its frame must have d rows and d + 1 columns")
            require(
                np.linalg.cond(frame[:, :d]) < 1 / np.finfo(np.float64).eps,
                "its frame must be invertible",
            )
            require(self.groups.shape == (N_GROUPS, self._size), "its groups must have all moments")
            whole = (
                bool(np.all(self.groups[:, -1] >= 0))
                and abs(float(self.groups[:, -1].sum()) - 1) < _ROUNDING
            )
            require(whole, "its groups must have all rows")
        require(
            basis is None or basis.shape == (n_pairs(d) - d - 1, self.width),
            "its basis must have all pairs",
        )

    @classmethod
    def start(
        cls, dimension: int, n_components: int | None, *, seed: int, memory: int, cumulant: bool
    ) -> FourthMomentSolver:
        """Return the state before the first row."""
        d = dimension
        if n_components is not None:
            what = f" for the fourth moment of {d} columns: more cannot be told apart"
            check_count("n_components", n_components, 1, max(d, largest_rank(d, 4)), what)
        if whole_bytes(d) <= memory:
            return cls(d, seed, cumulant, 0, n_components)
        width = min(
            n_pairs(d) - d - 1, core_width(n_pairs(d), n_components or _MOST_PER_COLUMN * d)
        )
        needed = 8 * (_N_SUMS + _N_MATRICES) * n_pairs(d) * (width + d + 1)
        if needed > memory:
            raise ValueError(
                f"`memory` must be at least {int(np.ceil(needed / 1e6)):,} megabytes for the "
                f"fourth moment of {d} columns and {n_components or _MOST_PER_COLUMN * d} "
                f"components. Got {memory / 1e6:g}. Pass more memory, or fewer columns."
            )
        return cls(d, seed, cumulant, width, n_components)

    @property
    def _size(self) -> int:
        """The number of numbers in a sum."""
        d = self.dimension
        if not self.width:
            return n_entries(d)
        return n_pairs(d) * (self.width + d + 1)

    @cached_property
    def query(self) -> Query:
        """What is needed next: rows for the frame, or sums over groups of rows."""
        if self.frame is None:
            return Rows(no_vectors(self.dimension), 4, (self.n_rows_wanted,))
        sizes = [self.n_rows_wanted] * _N_SEGMENTS
        if self.basis is None:
            return FourthEntries(self.frame, 4, sizes)
        return FourthProducts(with_columns(self.frame, self.basis), 4, sizes)

    @property
    def n_rows_wanted(self) -> int:
        """Rows that are kept first, or those of the next segment."""
        if self.frame is None:
            few = max(_FEWEST_ROWS, _ROWS_PER_COLUMN * self.dimension)
            return few * (_ROWS_FOR_BASIS if self.width else 1)
        return _SEGMENT

    @property
    def status(self) -> str:
        """What the next reply is for."""
        if self.frame is None:
            return "collecting rows for coordinates"
        return "adding up the fourth moment"

    def advance(self, reply: Any, n_rows: int) -> FourthMomentSolver:
        """Return the state after the first rows, or after a mean over `n_rows` rows."""
        if self.frame is None:
            return self._begun(reply)
        n_all = self.n_rows + n_rows
        groups = self.groups + n_rows / n_all * (reply.reshape(N_GROUPS, -1) - self.groups)
        return replace(self, groups=groups, n_rows=n_all)

    def with_rows(self, rows: Any) -> FourthMomentSolver:
        """Return the state after all of these rows, which are a batch."""
        reply = rows if self.frame is None else self.query.mean_over(rows)
        return self.advance(reply, int(rows.shape[0]))

    def decomposed(self) -> FourthComponents:
        """Return the components of the moment of all rows, of which there must be some."""
        if self.frame is None:
            raise StreamEndedError(
                "There must be rows to decompose their fourth moment. Got none. Pass rows."
            )
        with one_blas_thread():  # results must not depend on the number of threads
            return self._decomposed(GroupMeans(self.groups, self.frame, self.basis, self.cumulant))

    def _decomposed(self, means: GroupMeans) -> FourthComponents:
        """Return the components of the moment of all groups together, and their errors."""
        k = self.n_components
        frame = means.frame
        n_groups = len(means.groups)
        evidence = None
        moments = means.of(np.ones(n_groups, bool))
        counts = self.n_rows * means.groups[:, -1]
        enough = float(counts.min()) >= _ROWS_PER_GROUP
        whitener = moments.whitener()
        if (
            k is not None and not self.cumulant
        ):  # as they are: whitening would enlarge the noise in the rows
            whitener = Whitener(np.eye(len(frame)), np.eye(len(frame)))
        if k is None:
            if not enough:
                raise ValueError(
                    f"The number of components of a fourth moment is selected from {n_groups} "
                    f"groups of at least {_ROWS_PER_GROUP} rows. Got {self.n_rows} rows in all. "
                    "Pass more rows, or n_components as an int."
                )
            evidence = select_fourth_rank(means, whitener, self.seed)
            k = evidence.rank
        if k == 0:
            return FourthComponents(
                no_components(len(frame), 4), None, evidence, moments, (), counts
            )
        inside = fit_fourth(moments.tensor(whitener, k), k, self.seed)
        if evidence is not None:
            evidence = with_resolution(evidence, means, whitener, inside)
        lift: FloatArray = np.linalg.solve(frame[:, :-1].T, whitener.backward).astype(
            np.float64, copy=False
        )
        found = FourthComponents(_lifted(inside, lift), None, evidence, moments, (), counts)
        if not enough:
            return found
        without = [means.of(np.arange(n_groups) != number) for number in range(n_groups)]
        steps = [_lifted(_one_step(each.tensor(whitener, k), inside), lift) for each in without]
        weights = found.jackknife(found.components.weights, [each.weights for each in steps])
        angles = np.linalg.norm(
            found.jackknife(found.components.vectors, [each.vectors for each in steps]), axis=0
        )
        errors = weights, np.minimum(angles, math.pi / 2)
        return replace(found, errors=errors, left_out=tuple(zip(without, steps, strict=True)))

    def _begun(self, rows: Any) -> FourthMomentSolver:
        """Return the state after the first rows: their frame, and their own sums in groups."""
        n_rows = int(rows.shape[0])
        if n_rows < 2:
            raise StreamEndedError("A fourth moment needs at least 2 rows. Got 1. Pass more rows.")
        size = largest(stored_numbers(rows))
        bound = 2.0 ** (ordinary_bits(np.dtype(np.float64)) // 4)
        if size > 0 and not 1 / bound < size < bound:
            raise BadRowError(
                f"Rows must have a size between {1 / bound:.1g} and {bound:.1g} for their fourth "
                f"moment. The largest entry is {size:.3g}. Multiply all rows by a constant."
            )
        with one_blas_thread():  # results must not depend on the number of threads
            frame = _frame(
                rows, white=self.cumulant or self.n_components is None, centred=self.cumulant
            )
            after = replace(self, frame=frame)
            if self.width:
                half = rows[np.flatnonzero(group_numbers(rows) % 2 == 0)]
                after = replace(
                    after,
                    basis=_leading(half, frame, self.width, self.seed, cumulant=self.cumulant),
                )
        totals = after.query.over(rows)
        return replace(after, groups=totals.reshape(N_GROUPS, -1) / n_rows, n_rows=n_rows)


def _frame(rows: Any, *, white: bool, centred: bool) -> FloatArray:
    """Return a map and a shift to coordinates of mean about 0, if centred, and of second moment
    about I, if white.

    The map can be inverted: directions in which these rows do not vary are left as they are. If the
    coordinates need not be white, the rows are only divided by their root mean square.
    """
    dense = (rows.toarray() if is_sparse(rows) else rows).astype(np.float64)
    d = dense.shape[1]
    shift = dense.mean(axis=0) if centred else np.zeros(d)
    moment = (dense - shift).T @ (dense - shift) / len(dense)
    if not white:
        return np.hstack([np.eye(d) / np.sqrt(float(np.trace(moment)) / d or 1.0), shift[:, None]])
    deviations = np.sqrt(np.diagonal(moment))
    scale = np.where(deviations > 0, deviations, float(deviations.max()) or 1.0)
    values, vectors = np.linalg.eigh(moment / np.outer(scale, scale))
    roots = np.sqrt(
        np.maximum(values, _MIN_VARIANCE * max(float(values[-1]), np.finfo(np.float64).tiny))
    )
    return np.hstack([vectors / roots / scale[:, None], shift[:, None]])


def _leading(rows: Any, frame: FloatArray, width: int, seed: int, *, cumulant: bool) -> FloatArray:
    """Return a basis of the leading eigenvectors of the flattening of rows, from a few rounds of
    products.
    """
    pairs = n_pairs(frame.shape[0]) - frame.shape[0] - 1
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((pairs, width)))[0]
    for _ in range(_N_ROUNDS):
        total = sum_products(rows, with_columns(frame, basis)).sum(axis=0)
        products = PairMoments.of(
            total.ravel() / rows.shape[0], frame, basis, cumulant=cumulant
        ).flattening
        basis = np.linalg.qr(products)[0]
    return np.asarray(basis, np.float64)


def _one_step(tensor: FlattenedTensor | FactoredTensor, found: Components) -> Components:
    """Return components after one Gauss-Newton step towards the least-squares fit of another
    tensor.
    """
    problem = SymmetricProblem(tensor)
    signs, points = problem.as_points(found)
    descent = problem.descent(signs, points, problem.image(points))
    step = gauss_newton_step(points, signs, descent, 4, damping=0.0, tolerance=_STEP_TOLERANCE)
    return problem.from_points(signs, points + step)


def _lifted(inside: Components, lift: FloatArray) -> Components:
    """Return components of the whitened tensor as components of that of the rows."""
    vectors = lift @ inside.vectors
    lengths = np.linalg.norm(vectors, axis=0)
    return Components(inside.weights * lengths**4, vectors / lengths, 4)
