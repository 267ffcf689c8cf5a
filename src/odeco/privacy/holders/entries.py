"""A symmetric tensor of which every entry is to be protected."""

from __future__ import annotations

import math
from typing import Any, Literal, final

import numpy as np

from odeco._util.arguments import check_choice, check_number, check_unmasked
from odeco._util.types import FloatArray
from odeco.privacy.holders.protocol import (
    ROUNDOFF,
    DataHolder,
    check_order_three,
    column_pairs,
    pack,
    unpack,
)
from odeco.privacy.sensitivity import EntrySensitivities

EntryNeighbours = Literal["literal", "distinct"]

#: Default of `entry_limit`, as a multiple of `entry_change`: entries beyond it are cut.
DEFAULT_LIMIT = 2.0**16


@final
class EntryLevel(DataHolder):
    """A symmetric tensor, whose neighbours differ in one entry and its mirror images.

    Parameters
    ----------
    entries : array, d x d x d, or of more axes
        The tensor. Only i ≥ j ≥ k ≥ … is looked at, so that the answers are those of a symmetric
        tensor whatever the array is; NaN and infinities count as 0, so which entries are missing is
        not protected.
    neighbour_relation : {"distinct", "literal"}
        ``"distinct"``: the number stored for one set of indices changes by at most `entry_change`.
        ``"literal"``: the paper's Definition 4.2, times `entry_change`, by which a diagonal entry
        moves p! times as far.
    entry_change : float
        How far a neighbour may move one entry; must be known without looking at the data.
    entry_limit : float, optional
        Entries are cut to ± this. It bounds the rounding errors of the answers, which are part of
        the sensitivity; by default 2¹⁶ times `entry_change`, where they are some 10⁻³ of it for d =
        300.

    Notes
    -----
    *Rounding.* An axis is contracted at a time. Each contraction with a matrix U errs, in Frobenius
    norm, by at most d units of roundoff times ‖T‖‖U‖, so a query with s contractions by at most s d
    times that, and two neighbours differ by at most twice it on top of their true difference. ‖T‖
    is at most d^(p/2) times the limit, which is public. Cutting entries moves no two tensors apart.

    *Orders.* Images and values are answered at every order p, for the mechanisms that ask for
    nothing else. Cores, slabs and all entries at once are answered at order 3 only.

    *Units.* Under the literal relation at order 3 an entry moves by 1, by 2 if two of its indices
    agree, by 6 on the diagonal, and only one moves. Released in these units each has the same
    sensitivity, and none gets more noise than its own.

    *Delta.* Publishing one of the N = C(d + p − 1, p) distinct entries in full, at random, is (0,
    1/N)-private. So a δ of 1/N or more promises little to a single entry. It is not refused, as it
    is for records: N is beyond 10⁶ from d = 181 on, where δ = 10⁻⁶ is still what the literature
    takes; `n_units` says N.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.privacy import EntryLevel
    >>> tensor = EntryLevel(np.ones((4, 4, 4)), neighbour_relation="literal")
    >>> round(tensor.sensitivity(np.full((4, 1), 0.5)), 6)  # 6 times the largest square
    1.5
    """

    unit = "entry"

    def __init__(
        self,
        entries: Any,
        *,
        neighbour_relation: EntryNeighbours = "distinct",
        entry_change: float = 1.0,
        entry_limit: float | None = None,
    ) -> None:
        check_choice("neighbour_relation", neighbour_relation, ("distinct", "literal"))
        check_unmasked(entries, "tensor")
        if not hasattr(
            entries, "dtype"
        ):  # the type that NumPy gives to a list, and so an error, depends on its values
            raise TypeError(
                f"A private tensor must be an array. Got {type(entries).__name__}. Convert it."
            )
        array = np.asarray(entries)
        # Of numbers beyond double precision some would become infinite, and so 0, and their
        # neighbours would not.
        is_real = (
            array.dtype.kind in "fiub" and array.dtype.itemsize <= np.dtype(np.float64).itemsize
        )
        if array.ndim < 3 or len(set(array.shape)) != 1 or array.size == 0 or not is_real:
            raise ValueError(
                "A private tensor must be a d x d x d array of real numbers of at most 64 bits, "
                f"or one of more axes. Got shape {array.shape} of {array.dtype}. For rows of data "
                "pass unit='record'."
            )
        self.neighbour_relation = neighbour_relation
        self._literal = neighbour_relation == "literal"
        self.entry_change = check_number("entry_change", entry_change, 0, math.inf)
        limit = DEFAULT_LIMIT * self.entry_change if entry_limit is None else entry_limit
        self.entry_limit = check_number("entry_limit", limit, 0, math.inf)
        self.entry_units = (1.0, 2.0, 6.0) if self._literal else (1.0, 1.0, 1.0)
        self.dimension = int(array.shape[0])
        self.order = array.ndim
        self.n_units = math.comb(self.dimension + self.order - 1, self.order)
        self.sensitivities = EntrySensitivities(self._literal, self.order, self.entry_change)
        with np.errstate(all="ignore"):  # a warning about the data would be an answer without noise
            symmetric = _lower_entries(array)
        symmetric = np.where(np.isfinite(symmetric), symmetric, 0.0)
        self._entries: FloatArray = np.clip(symmetric, -self.entry_limit, self.entry_limit)
        self._entries.setflags(write=False)
        self.seal()

    @property
    def neighbours(self) -> str:  # type: ignore[override]
        """The neighbour relation in words."""
        if self._literal:
            vectors = " x ".join(f"e_{index}" for index in "ijk" + "…" * (self.order > 3))
            return (
                f"T' - T = ± {self.entry_change:g} symmetrize({vectors}), so that a diagonal "
                f"entry changes by {math.factorial(self.order) * self.entry_change:g}"
            )
        return f"one entry, with its mirror images, changes by at most {self.entry_change:g}"

    def packed(self) -> FloatArray:
        """Return the distinct entries, each divided by its `packed_units`."""
        check_order_three(self.order)
        return (
            pack(lambda i: self._entries[i, : i + 1, : i + 1], self.dimension) / self.packed_units()
        )

    def packed_sensitivity(self) -> float:
        """Return `entry_change`: one number changes by at most one of its units, which it is
        divided by.
        """
        return self.entry_change + 2 * ROUNDOFF * self.entry_limit

    def _image(self, block: FloatArray) -> FloatArray:
        image: FloatArray = self._entries @ block
        while image.ndim > 2:  # an axis at a time; the last holds the columns of the block
            image = np.einsum("...jl,jl->...l", image, block)
        return image

    def _value(self, block: FloatArray) -> FloatArray:
        values: FloatArray = np.einsum("il,il->l", block, self._image(block))
        return values

    def _core(self, basis: FloatArray) -> FloatArray:
        check_order_three(self.order)
        core = self._entries
        for _ in range(3):  # the last axis is contracted and becomes the first
            core = np.moveaxis(core @ basis, -1, 0)
        return core

    def _slab(self, basis: FloatArray) -> FloatArray:
        check_order_three(self.order)
        first, second, factors = column_pairs(basis.shape[1])
        once: FloatArray = np.moveaxis(self._entries @ basis, -1, 1)  # i, a, j
        return (once @ basis)[:, first, second] * factors

    def _sensitivity(self, block: FloatArray) -> float:
        return self.sensitivities.image(block) + self._block_rounding(block, self.order - 1)

    def _value_sensitivity(self, block: FloatArray) -> float:
        return self.sensitivities.value(block) + self._block_rounding(block, self.order)

    def _core_sensitivity(self, basis: FloatArray) -> float:
        return self.sensitivities.core(basis) + self._rounding(3, np.linalg.norm(basis) ** 3)

    def _slab_sensitivity(self, basis: FloatArray) -> float:
        return self.sensitivities.core(basis, open_axis=True) + self._rounding(
            3, np.linalg.norm(basis) ** 2
        )

    def _block_rounding(self, block: FloatArray, n_contractions: int) -> float:
        """Return how far rounding can move two neighbours' answers apart, the columns of a block
        taken together.
        """
        return self._rounding(
            n_contractions, np.linalg.norm(np.linalg.norm(block, axis=0) ** n_contractions)
        )

    def _rounding(self, n_contractions: int, gain: np.floating[Any]) -> float:
        largest = self.entry_limit * math.sqrt(self.dimension) ** self.order
        return 2 * n_contractions * self.dimension * ROUNDOFF * largest * float(gain)


def _lower_entries(array: Any) -> FloatArray:
    """Return the symmetric array whose entries are those of `array` at i ≥ j ≥ k ≥ …."""
    if array.ndim == 3:
        packed = pack(lambda first: array[first, : first + 1, : first + 1], array.shape[0])
        return unpack(packed, array.shape[0])
    falling = np.sort(np.indices(array.shape).reshape(array.ndim, -1), axis=0)[::-1]
    symmetric: FloatArray = array[tuple(falling)].reshape(array.shape).astype(np.float64)
    return symmetric


def with_change(relation: str, entry_change: float | None) -> str:
    """Return a neighbour relation as ledgers state it: that of entries says by how much one
    changes, unless by 1.
    """
    if entry_change is None or entry_change == 1:
        return relation
    return f"{relation} by {float(entry_change)!r}"
