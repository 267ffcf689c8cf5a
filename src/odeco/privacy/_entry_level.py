"""A symmetric tensor of which every entry is to be protected."""

from __future__ import annotations

import math
from typing import Any, Literal, final

import numpy as np

from odeco._arguments import check_choice, check_number
from odeco._types import FloatArray
from odeco.privacy import sensitivity
from odeco.privacy._holder import ROUNDOFF, DataHolder, column_pairs, pack, unpack

EntryNeighbours = Literal["literal", "distinct"]
#: Entries beyond so many times what a neighbour may change are cut, unless told otherwise.
DEFAULT_LIMIT = 2.0**16


@final
class EntryLevel(DataHolder):
    """A symmetric tensor of order 3, whose neighbours differ in one entry and its mirror images.

    Parameters
    ----------
    entries : array, d x d x d
        The tensor. Only i ≥ j ≥ k is looked at, so that the answers are those of a symmetric tensor whatever the array
        is; NaN and infinities count as 0, so which entries are missing is not protected.
    neighbour_relation : {"distinct", "literal"}
        ``"distinct"``: the number stored for one set of indices changes by at most `entry_change`. ``"literal"``: the
        paper's Definition 4.2, times `entry_change`, by which a diagonal entry moves six times as far.
    entry_change : float
        How far a neighbour may move one entry; must be known without looking at the data.
    entry_limit : float, optional
        Entries are cut to ± this. It bounds the rounding errors of the answers, which are part of the
        sensitivity; 2¹⁶ times `entry_change` unless told, where they are some 10⁻³ of it for d = 300.

    Notes
    -----
    *Rounding.* An axis is contracted at a time. Each contraction with a matrix U errs, in Frobenius norm, by at most d
    units of roundoff times ‖T‖‖U‖, so a question with s contractions by at most s d times that, and two neighbours
    differ by at most twice it on top of their true difference. ‖T‖ is at most d^(3/2) times the limit, which is
    public. Cutting entries moves no two tensors apart.

    *Units.* Under the literal relation an entry moves by 1, by 2 if two of its indices agree, by 6 on the diagonal,
    and only one moves. Released in these units each has the same sensitivity, and none gets more noise than its own.

    *Delta.* Publishing one of the N = d(d + 1)(d + 2)/6 distinct entries in full, at random, is (0, 1/N)-private. So a
    δ of 1/N or more promises little to a single entry. It is not refused, as it is for records: N is beyond 10⁶ from
    d = 181 on, where δ = 10⁻⁶ is still what the literature takes; `n_units` says N.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.privacy import EntryLevel
    >>> tensor = EntryLevel(np.ones((4, 4, 4)), neighbour_relation="literal")
    >>> round(tensor.sensitivity(np.full((4, 1), 0.5)), 6)  # 6 times the square of the largest entry
    1.5
    """

    unit = "entry"
    order = 3

    def __init__(
        self,
        entries: Any,
        *,
        neighbour_relation: EntryNeighbours = "distinct",
        entry_change: float = 1.0,
        entry_limit: float | None = None,
    ) -> None:
        check_choice("neighbour_relation", neighbour_relation, ("distinct", "literal"))
        array = np.asarray(entries)
        if array.ndim != 3 or len(set(array.shape)) != 1 or array.size == 0 or array.dtype.kind not in "fiub":
            raise ValueError(
                "A private tensor must be a d x d x d array of real numbers. "
                f"Got shape {array.shape} of {array.dtype}. For rows of data pass unit='record'."
            )
        self.neighbour_relation, self._literal = neighbour_relation, neighbour_relation == "literal"
        self.entry_change = check_number("entry_change", entry_change, 0, math.inf)
        limit = DEFAULT_LIMIT * self.entry_change if entry_limit is None else entry_limit
        self.entry_limit = check_number("entry_limit", limit, 0, math.inf)
        self.entry_units = (1.0, 2.0, 6.0) if self._literal else (1.0, 1.0, 1.0)
        self.dimension = int(array.shape[0])
        self.n_units = math.comb(self.dimension + 2, 3)
        with np.errstate(all="ignore"):  # a warning about the data would be an answer without noise
            kept = pack(lambda first: array[first, : first + 1, : first + 1], self.dimension)
        kept = np.where(np.isfinite(kept), kept, 0.0)
        self._entries = unpack(np.clip(kept, -self.entry_limit, self.entry_limit), self.dimension)
        self._entries.setflags(write=False)
        self.seal()

    @property
    def neighbours(self) -> str:  # type: ignore[override]
        """The neighbour relation in words."""
        if self._literal:
            return (
                f"T' - T = ± {self.entry_change:g} symmetrize(e_i x e_j x e_k), so that a diagonal entry changes by "
                f"{6 * self.entry_change:g}"
            )
        return f"one entry, with its mirror images, changes by at most {self.entry_change:g}"

    def packed(self) -> FloatArray:
        """Return the distinct entries, each divided by its `packed_units`."""
        return pack(lambda i: self._entries[i, : i + 1, : i + 1], self.dimension) / self.packed_units()

    def packed_sensitivity(self) -> float:
        """Return `entry_change`: one number changes by at most one of its units, which it is divided by."""
        return self.entry_change + 2 * ROUNDOFF * self.entry_limit

    def _image(self, block: FloatArray) -> FloatArray:
        image: FloatArray = np.einsum("ijl,jl->il", self._entries @ block, block)
        return image

    def _value(self, block: FloatArray) -> FloatArray:
        values: FloatArray = np.einsum("il,il->l", block, self._image(block))
        return values

    def _core(self, basis: FloatArray) -> FloatArray:
        core = self._entries
        for _ in range(3):  # the last axis is contracted and becomes the first
            core = np.moveaxis(core @ basis, -1, 0)
        return core

    def _slab(self, basis: FloatArray) -> FloatArray:
        first, second, factors = column_pairs(basis.shape[1])
        once: FloatArray = np.moveaxis(self._entries @ basis, -1, 1)  # i, a, j
        return (once @ basis)[:, first, second] * factors

    def _sensitivity(self, block: FloatArray) -> float:
        declare = sensitivity.literal_image if self._literal else sensitivity.distinct_entry_image
        return self.entry_change * declare(block) + self._rounding(2, np.linalg.norm(block, axis=0) ** 2)

    def _value_sensitivity(self, block: FloatArray) -> float:
        declare = sensitivity.literal_value if self._literal else sensitivity.distinct_entry_value
        return self.entry_change * declare(block) + self._rounding(3, np.linalg.norm(block, axis=0) ** 3)

    def _core_sensitivity(self, basis: FloatArray) -> float:
        declare = sensitivity.literal_core if self._literal else sensitivity.distinct_entry_core
        return self.entry_change * declare(basis) + self._rounding(3, np.array([np.linalg.norm(basis) ** 3]))

    def _slab_sensitivity(self, basis: FloatArray) -> float:
        declare = sensitivity.literal_core if self._literal else sensitivity.distinct_entry_core
        single = declare(basis, open_axis=True)
        return self.entry_change * single + self._rounding(3, np.array([np.linalg.norm(basis) ** 2]))

    def _rounding(self, n_contractions: int, gains: FloatArray) -> float:
        """Return how far rounding can move two neighbours' answers apart, the columns of a block taken together."""
        largest = self.entry_limit * math.sqrt(self.dimension) ** 3
        return 2 * n_contractions * self.dimension * ROUNDOFF * largest * float(np.linalg.norm(gains))
