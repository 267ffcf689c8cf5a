"""Learning in one pass: rows are cut into blocks of fixed sizes, and a model is updated by one
block at a time.

The result depends on the rows and their order, and not on where batches end. A stream is immutable:
an update returns a new one, so an error or an interrupt loses nothing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from odeco._util.state import State, array_field, part_field, require
from odeco._util.types import FloatArray
from odeco.models.engine.fit import Fit, Info, NoContext, Statistics
from odeco.models.engine.rows import count_rows, mapped, split, with_weights

if TYPE_CHECKING:
    from odeco.models.engine.spec import EMSpec, Spec


@dataclass(frozen=True)
class Forgetting:
    """How the statistics of a new block are mixed into those of all rows so far.

    Attributes
    ----------
    rate : callable
        Takes the number of rows so far and that of the block; returns the weight of the mean of the
        block.
    averaged : bool
        Whether the reported model is that of a second sum, which forgets nothing. It averages the
        noise of single blocks away, while the sum that forgets leaves the first blocks behind
        quickly.
    """

    rate: Callable[[float, float], float]
    averaged: bool = False

    def mix(self, total: Statistics, new: Statistics) -> Statistics:
        """Return the statistics of all rows; they still stand for the number of all rows."""
        n, b, rate = total.n, new.n, self.rate(total.n, new.n)
        return total.scaled((1 - rate) * (n + b) / n) + new.scaled(rate * (n + b) / b)


#: Rows a fraction f of the way back to the first count 1 − f times, so three quarters of the rows
#: count. This forgets faster than Cappé and Moulines (2009), which a good start allows.
LINEAR = Forgetting(lambda n, b: 2 * b / (n + 2 * b))

#: A block counts as its share of all rows to the power 0.7: below one, so that statistics of worse
#: models are forgotten; above a half, so that the noise of single blocks averages out (Cappé and
#: Moulines 2009).
POWER = Forgetting(lambda n, b: (b / (n + b)) ** 0.7)


#: Blocks of 8,192 rows in random order differ in the shares of 50 components by 3 % of the rows.
#: From this part on, rows are called sorted.
_MOVED_BY_ORDER = 0.1

_SORTED = (
    "Rows look sorted: blocks differ in the shares of components by far more than chance, and a "
    "stream of sorted rows is worse than a fit. Shuffle the rows, or fit them at once."
)


class Buffer:
    """Rows that wait for their block, in chunks whose sizes at least halve.

    Appending rows merges the last chunks, so a row is copied at most once for each doubling of the
    buffer, and a stream that gets one row at a time does not copy all waiting rows for each of
    them. Chunks are never changed in place: a stream before the update keeps its own buffer.
    """

    def __init__(self, chunks: tuple[Any, ...]) -> None:
        self.chunks = chunks

    @classmethod
    def of(cls, rows: Any) -> Buffer:
        """Return rows as a buffer."""
        return rows if isinstance(rows, Buffer) else cls((rows,))

    def __len__(self) -> int:
        return sum(map(len, self.chunks))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        joined = self.chunks[0] if len(self.chunks) == 1 else np.concatenate(self.chunks)
        return np.array(joined, dtype=dtype, copy=copy)

    def append(self, rows: Any) -> Buffer:
        """Return the buffer with more rows at its end, which are copied."""
        chunks, last = list(self.chunks), [rows]
        while chunks and len(chunks[-1]) < 2 * sum(map(len, last)):
            last.insert(0, chunks.pop())
        return Buffer((*chunks, np.concatenate(last)))


@dataclass(frozen=True, eq=False)
class BlockStream(State):
    """Rows that are cut into blocks. Derived classes take in a block (`absorb`) and return the
    model (`result`).

    Attributes
    ----------
    buffer : array or Buffer
        Rows of the block that is not complete yet.
    seed : int
        Seed of the fit of the first block.
    n_seen : int
        Number of rows so far, those in the buffer included.
    n_blocks : int
        Number of complete blocks.
    context : State
        The context of the model after the complete blocks.
    row_weights : array or Buffer
        The weight of each row in the buffer; empty if all are one.
    block_weight : float or None
        The sum of the weights of the rows in complete blocks; None if no row has had a weight.
    """

    buffer: Any = array_field(rule=lambda *_: None)  # `Spec.check_rows` checks it
    seed: int = array_field(kind="i", low=0)
    n_seen: int = array_field(kind="i", low=0, default=0)
    n_blocks: int = array_field(kind="i", low=0, default=0)
    context: Any = part_field(default=NoContext())
    row_weights: Any = array_field(None, low=0, default=np.zeros(0))
    block_weight: float | None = array_field(low=0, default=None)

    @classmethod
    def begin(cls, base: State, seed: int, rows: Any) -> Self:
        """Return a stream that has seen nothing; `rows` are the first ones, of which the type is
        kept.
        """
        return cls(split(rows)[0][:0], seed, context=base)

    @abstractmethod
    def absorb(self, spec: Any, block: Any) -> Self:
        """Return the stream after a block."""

    @abstractmethod
    def result(self, spec: Any) -> Fit:
        """Return the model of all rows, those in the buffer included."""

    def update(self, spec: Spec, rows: Any) -> Self:
        """Return the stream after more rows."""
        (rows, weights), buffer, before = split(rows), Buffer.of(self.buffer), self.row_weights
        after, n_seen = self, self.n_seen + len(rows)
        if weights is not None or len(before):  # a row without a weight has the weight 1
            weights = np.ones(len(rows)) if weights is None else weights
            before = Buffer.of(before if len(before) else np.ones(len(buffer)))
        if len(buffer) + len(rows) < self.next_size(spec):
            appended = before if weights is None else before.append(weights)
            return replace(self, buffer=buffer.append(rows), row_weights=appended, n_seen=n_seen)
        waiting, at = np.concatenate([np.asarray(buffer), rows]) if len(buffer) else rows, 0
        if weights is not None:
            weights = np.concatenate([np.asarray(before), weights])
            after = replace(self, block_weight=self.count_blocks(spec))
        while len(waiting) - at >= (size := after.next_size(spec)):
            own = slice(at, at + size)
            # Blocks have one memory layout: the rounding of a product depends on it.
            block = with_weights(
                np.ascontiguousarray(waiting[own]), None if weights is None else weights[own]
            )
            total = None if after.block_weight is None else after.block_weight + count_rows(block)
            after, at = replace(after.absorb(spec, block), block_weight=total), at + size
        rest = np.zeros(0) if weights is None or np.all(weights[at:] == 1) else weights[at:].copy()
        return replace(
            after, buffer=Buffer((waiting[at:].copy(),)), row_weights=rest, n_seen=n_seen
        )

    @property
    def waiting(self) -> Any:
        """The rows in the buffer, as one array, with their weights."""
        return with_weights(
            np.asarray(self.buffer), np.asarray(self.row_weights) if len(self.row_weights) else None
        )

    @property
    def is_weighted(self) -> bool:
        """Whether a row has had a weight."""
        return len(self.row_weights) > 0 or self.block_weight is not None

    def next_size(self, spec: Spec) -> int:
        """Return the number of rows of the next block."""
        return spec.next_block if self.n_blocks else spec.first_block

    def count_blocks(self, spec: Spec) -> float:
        """Return the number of rows in complete blocks, each counted by its weight."""
        if self.block_weight is not None:
            return self.block_weight
        return spec.first_block + (self.n_blocks - 1) * spec.next_block if self.n_blocks else 0

    def verify(self, spec: Spec, n_features: int) -> None:
        """Raise `ValueError` unless the stream, which may come from an untrusted file, can go
        on.
        """
        spec.check_rows(np.asarray(self.buffer), "stream.buffer", n_features)
        require(
            len(self.row_weights) in (0, len(self.buffer)),
            "its buffer must have a weight for every row, or none",
        )
        require(
            len(self.buffer) < self.next_size(spec), "its buffer must have fewer rows than a block"
        )
        in_blocks = replace(self, block_weight=None).count_blocks(spec)
        require(
            self.n_seen == in_blocks + len(self.buffer) > 0,
            "its rows must be in blocks or in the buffer",
        )


@dataclass(frozen=True, eq=False)
class OnlineEM(BlockStream):
    """Online EM: the first block starts the model, and each later one takes an E step (Cappé and
    Moulines 2009).

    Attributes
    ----------
    carry : array
        What a sequence hands to the next block.
    info : Info
        Facts about the fit of the first block.
    params : State
        The parameters with which the last block was read.
    statistics : Statistics
        Those of all blocks, where the law of the model forgets old ones.
    average : Statistics
        Those of all blocks without forgetting, if `Forgetting.averaged`; else None.
    shares : array
        The shares of components in all blocks, their mean; empty if components have no shares.
    moved : float
        The part of the rows of a block that would have to belong to another component for the block
        to have the shares of those before it (their distance in total variation), averaged over
        blocks.
    """

    carry: FloatArray = array_field(None, default=np.zeros(0))
    info: Any = part_field(Info, default=None)
    params: Any = part_field(default=None)
    statistics: Any = part_field(default=None)
    average: Any = part_field(default=None)
    shares: FloatArray = array_field(None, low=0, default=np.zeros(0))
    moved: float = array_field(low=0, high=1, default=0.0)

    def absorb(self, spec: EMSpec, block: Any) -> Self:
        """Return the stream after a block."""
        law, info, is_first = spec.forgetting, self.info, self.params is None
        if is_first:
            first = spec.fit_rows(block, self.context, self.seed)
            params, context, info = first.params, first.context, first.info
            data = mapped(block, lambda rows: spec.prepare(rows, context))
        else:
            data = mapped(block, lambda rows: spec.prepare(rows, self.context))
            context = spec.update_context(self.context, data)
            params = spec.m_step(self.statistics, self.params, context)
        new, carry = spec.statistics(params, data, context, self.carry)
        average = new if is_first else self.average
        if law.averaged and not is_first:
            average = self.average + new
        own = np.asarray(getattr(spec.m_step(new, params, context), "weights", self.shares))
        distance = 0.0 if is_first else float(np.abs(own - self.shares).sum()) / 2
        part = 1 / (self.n_blocks + 1)
        return replace(
            self,
            shares=self.shares + part * (own - self.shares) if self.shares.size else own,
            moved=min(self.moved + part * (distance - self.moved), 1.0),
            n_blocks=self.n_blocks + 1,
            context=context,
            carry=carry,
            info=info,
            params=params,
            statistics=new if is_first else law.mix(self.statistics, new),
            average=average if law.averaged else None,
        )

    def result(self, spec: EMSpec) -> Fit:
        """Return the model of all rows; before the first block is complete, exactly what `fit`
        gives.
        """
        if self.params is None:
            return spec.fit_rows(self.waiting, self.context, self.seed)
        last = self.absorb(spec, self.waiting) if len(self.buffer) else self
        total = last.average if spec.forgetting.averaged else last.statistics
        info = replace(
            last.info,
            n_samples=self.n_seen,
            log_likelihood=total.log_likelihood / total.n,
            n_iter=last.n_blocks,
        )
        # Of complete blocks without weights: the shares of a few rows may be anything.
        if self.moved > _MOVED_BY_ORDER and not self.is_weighted:
            # What was said of the first block need not hold for the others.
            cautions = np.append(info.cautions, _SORTED)
            info = replace(info, cautions=cautions, gain_over_one=math.nan)
        return Fit(spec.ordered(spec.m_step(total, last.params, last.context)), last.context, info)

    def verify(self, spec: Spec, n_features: int) -> None:
        """Raise `ValueError` unless the stream can go on."""
        super().verify(spec, n_features)
        parts = (self.info, self.params, self.statistics)
        require(
            all((part is not None) == (self.n_blocks > 0) for part in parts),
            "its stream must have components if it has begun, and none before",
        )
        if self.n_blocks:
            in_blocks = self.count_blocks(spec)
            sums = [self.statistics, *([] if self.average is None else [self.average])]
            require(
                all(abs(each.n - in_blocks) <= 1e-6 * in_blocks for each in sums),
                "its sums must stand for its rows",
            )
