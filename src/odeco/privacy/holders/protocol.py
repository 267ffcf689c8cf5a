"""The queries that a data holder answers, each with its declared sensitivity, and the neighbour
relations.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Literal, final

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.tensors.coordinates import PackedCoordinates
from odeco.tensors.oracle import SensitiveOracle, as_block

NeighbourRelation = Literal["replace", "add_remove"]

#: The neighbour relations of records, and what happens to one of them, in words. A *blank* record
#: adds nothing to any sum, as if it were not there: a row with a number that is not finite, a
#: document without words, a respondent without answers, a sequence without three symbols. (To
#: moments a row of zeros adds nothing either.) How many records there are is public either way.
RELATIONS: dict[NeighbourRelation, str] = {
    "replace": "replaced by any other",
    "add_remove": "blanked, or the reverse",
}

Unit = Literal["entry", "record", "user"]

UNITS: tuple[Unit, ...] = ("entry", "record", "user")

#: Rounding errors of a computation of depth m are below m times this, relative to the sum of the
#: absolute values of its terms: the unit roundoff 2⁻⁵³, and a little for the terms of higher order
#: (m below 10¹²).
ROUNDOFF = 1.001 * 2.0**-53


class DataHolder(SensitiveOracle):
    """A `SensitiveOracle` that also answers with its core and with its entries.

    Its sensitivities hold for the answers *as computed*: the rounding errors of two neighbours may
    differ, and their largest difference is part of what is declared. Its answers never raise, warn
    or log because of a value: what is not a number counts as 0, what is beyond its bound is cut.
    Once `seal` is called it cannot be changed: noise is scaled to the sensitivity that was
    declared, which must hold for the data that are held.

    Attributes
    ----------
    unit : {"entry", "record", "user"}
        Whom its neighbours protect: one entry of a tensor, one row, or all rows of one user.
    n_units : int
        How many entries, records or users there are; public.
    entry_units : three floats
        In which unit an entry is released: one whose indices all differ, of which two agree, and of
        which all agree. The more a neighbour can move it, the larger.
    """

    silent = True
    unit: Unit
    n_units: int
    entry_units: tuple[float, float, float]
    _sealed = False

    @final
    def seal(self) -> None:
        """Make every attribute read-only; the last line of a constructor."""
        self._sealed = True

    def __setattr__(self, name: str, value: Any) -> None:
        self._check_open(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self._check_open(name)
        super().__delattr__(name)

    def _check_open(self, name: str) -> None:
        if self._sealed:
            raise AttributeError(
                "A holder of private data must stay as it was made: noise is scaled to what it "
                f"declared then. Got another `{name}`. Make a new {type(self).__name__}."
            )

    @final
    def core(self, basis: Any) -> FloatArray:
        """Answer T(Q, …, Q) for a d x m matrix Q."""
        return self._core(as_block(basis, self.dimension))

    @final
    def core_sensitivity(self, basis: Any) -> float:
        """Return the largest Euclidean change of ``core(basis)``, every entry counted as often as
        it stands there.
        """
        return self._core_sensitivity(as_block(basis, self.dimension))

    @final
    def slab(self, basis: Any) -> FloatArray:
        """Answer T(I, W, W) for a d x m matrix W, each pair of columns once: a d x m(m+1)/2 matrix;
        order 3 only.

        Pairs of different columns are multiplied by √2, which makes the norm that of the whole d x
        m x m array.
        """
        return self._slab(as_block(basis, self.dimension))

    @final
    def slab_sensitivity(self, basis: Any) -> float:
        """Return the largest Euclidean change of ``slab(basis)``."""
        return self._slab_sensitivity(as_block(basis, self.dimension))

    @abstractmethod
    def packed(self) -> FloatArray:
        """Return the distinct entries, each divided by its `packed_units`; order 3, and for rows
        order 4.
        """

    @final
    def packed_units(self) -> FloatArray:
        """Return the unit in which each distinct entry is released; at order 4 norms are those of
        the full array.
        """
        if self.order == 4:
            return 1 / PackedCoordinates(self.dimension, 4).scales
        counts = multiplicities(self.dimension)
        return np.select([counts == n for n in (6, 3, 1)], list(self.entry_units))

    @abstractmethod
    def packed_sensitivity(self) -> float:
        """Return the largest Euclidean change of `packed`."""

    @abstractmethod
    def _core(self, basis: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _core_sensitivity(self, basis: FloatArray) -> float: ...

    @abstractmethod
    def _slab(self, basis: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _slab_sensitivity(self, basis: FloatArray) -> float: ...


def units_of(groups: Any, n_rows: int) -> tuple[IndexArray, int]:
    """Return the unit of each row, counted from 0, and the number of units: users if there are
    groups, else rows.

    All rows with equal labels must be one unit: if the rows of a user were two units, each would be
    hidden, and the user would not. NumPy finds equal labels by sorting. Objects without a total
    order, as NaN has none, may be apart after that, so they are refused; so are records of several
    fields, in which NaN never equals NaN. Labels are public, and so is an error about them.
    """
    if groups is None:
        return np.arange(n_rows), n_rows
    labels = np.asarray(groups)
    if labels.shape != (n_rows,):
        raise ValueError(
            f"`groups` must hold one label per row: shape ({n_rows},). Got shape {labels.shape}."
        )
    try:
        names, units = np.unique(labels, return_inverse=True)
        known = names.tolist()
        distinct = len(set(known)) == len(known) == sum(name == name for name in known)
        sortable = labels.dtype.kind != "V" and (distinct or not labels.dtype.hasobject)
    except TypeError:  # they cannot be compared, or have no hash
        sortable = False
    if not sortable:
        raise ValueError(
            "`groups` must hold labels that can be sorted, and none may be missing. Got objects "
            "that cannot, or NaN. Number the users, or name them by texts."
        )
    return units, int(names.size)


def unit_weights(groups: Any, n_rows: int) -> tuple[FloatArray, int]:
    """Return what each row counts, one over the number of rows of its unit, and the number of
    units.

    A user then adds the mean of what the own rows add. If no row adds an array of more than some
    norm, no user does; and if what any two rows add has an inner product of at least 0, so has what
    any two users add, which is a mean of such products. So the bounds for a row hold for a user,
    whatever the number of rows, which is public.
    """
    units, n_units = units_of(groups, n_rows)
    return 1 / np.bincount(units)[units], n_units


def check_order_three(order: int) -> None:
    """Raise unless the order is 3; some queries exist for that order only."""
    if order != 3:
        raise ValueError(
            f"This query needs a tensor of order 3. Got order {order}. Ask for images or values."
        )


def column_pairs(width: int) -> tuple[IndexArray, IndexArray, FloatArray]:
    """Return all pairs a ≥ b of columns, and what each is multiplied by: 1 if they agree, √2 if
    not.
    """
    first, second = np.tril_indices(width)
    return first, second, np.where(first == second, 1.0, math.sqrt(2))


# ---- every distinct entry of a tensor of order 3, once -------------------------------------------


def packed_slab(first: int) -> slice:
    """Return where the entries T[first, j, k], first ≥ j ≥ k, stand among all distinct ones."""
    return slice(math.comb(first + 2, 3), math.comb(first + 3, 3))


def pack(slab: Any, dimension: int) -> FloatArray:
    """Return T[i, j, k], i ≥ j ≥ k, in the order of i, then j, then k; ``slab(i)`` is T[i, :i+1,
    :i+1].
    """
    packed = np.empty(math.comb(dimension + 2, 3))
    lower = np.tri(dimension, dtype=bool)
    for first in range(dimension):
        packed[packed_slab(first)] = slab(first)[lower[: first + 1, : first + 1]]
    return packed


def unpack(packed: FloatArray, dimension: int) -> FloatArray:
    """Return the full symmetric array of which `pack` kept the distinct entries."""
    entries = np.empty((dimension,) * 3)
    lower = np.tri(dimension, dtype=bool)
    for first in range(dimension):
        size = first + 1
        own = np.empty((size, size))
        own[lower[:size, :size]] = own.T[lower[:size, :size]] = packed[packed_slab(first)]
        # One of the three indices is `first`, and no other is larger.
        entries[first, :size, :size] = entries[:size, first, :size] = entries[
            :size, :size, first
        ] = own
    return entries


def multiplicities(dimension: int) -> FloatArray:
    """Return how often each distinct entry stands in the full array: 6, 3 for two equal indices, 1
    for three.
    """
    between = np.full((dimension, dimension), 6.0)  # of j and k, both below i
    np.fill_diagonal(between, 3.0)

    def slab(first: int) -> FloatArray:
        counts = between[: first + 1, : first + 1].copy()
        counts[first, :first] = 3.0
        counts[first, first] = 1.0
        return counts

    return pack(slab, dimension)
