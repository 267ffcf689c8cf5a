"""Sequences that are fed to a model: it starts from a first block, and takes a likelihood step on every further one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from odeco._util.schema import Rule, Sizes, array, require, usable_array
from odeco._util.types import BoolArray, FloatArray
from odeco.models.engine.latent_model import RowStream
from odeco.models.hmm.baum_welch import HMMStatistics
from odeco.models.hmm.emissions import distributions
from odeco.models.hmm.learn import learn
from odeco.models.hmm.settings import Settings
from odeco.models.hmm.spec import ChainState, FittedChain, arrays_of, chain_rules

#: Rows of the first block, and of the others.
_FIRST, _FURTHER = 2**16, 2**13

#: The sums of a block count as the share of its rows in all rows so far, to this power: below one, so that sums that
#: were taken with a worse model are forgotten; above a half, so that the noise of single blocks is as well.
_POWER = 0.7


def _held(value: Any, where: str, sizes: Sizes) -> None:
    """Require rows with a flag and a column for every feature."""
    usable_array(None, None)(value, where, sizes)
    require(value.shape[1] == 1 + sizes["n_features"], f"`{where}` must have a column for every feature")


@dataclass(eq=False)
class SequenceStream(ChainState, RowStream):
    """Where a model of sequences stands. Rows hold in their first column whether they begin a sequence.

    Attributes
    ----------
    seed, n_components, n_symbols, full, n_steps, tolerance
        What `learn` is told about the first block; `n_symbols` is 0 for vectors.
    started, moved, emitted : arrays
        What a row adds to the sums of a step, averaged over rows.
    entering : array
        The distribution of the state of the last row, given the rows of its sequence so far.
    log_likelihood : float
        Mean log-likelihood of a row, averaged as the sums are.
    n_blocks : int
        Number of blocks so far.
    names : array of texts
        What symbols are called; empty if they have no names.
    """

    RULES: ClassVar[Mapping[str, Rule]] = {
        "held": _held,
        "n_rows": array(kind="i", low=0),
        **chain_rules("stream k"),
        "seed": array(kind="i", low=0),
        "n_components": array(kind="i", low=1),
        "n_symbols": array(kind="i", low=0),
        "full": array(kind="b"),
        "n_steps": array(kind="i", low=0),
        "tolerance": array(low=0),
        "started": array("stream k", low=0),
        "moved": array("stream k", "stream k", low=0),
        "emitted": usable_array("stream k", None),
        "entering": distributions("stream k", low=0),
        "log_likelihood": array(),
        "n_blocks": array(kind="i", low=0),
        "names": array(None, kind="U"),
    }

    seed: int
    n_components: int
    n_symbols: int
    full: bool
    n_steps: int
    tolerance: float
    started: FloatArray
    moved: FloatArray
    emitted: FloatArray
    entering: FloatArray
    log_likelihood: float
    n_blocks: int
    names: Any

    @classmethod
    def begin(
        cls, settings: Settings, n_components: int, n_symbols: int, n_features: int, seed: int, names: list[str]
    ) -> Self:
        """Return a stream that has seen nothing."""
        return cls(
            held=np.zeros((0, 1 + n_features)),
            n_rows=0,
            **arrays_of(None),
            seed=seed,
            n_components=n_components,
            n_symbols=n_symbols,
            full=settings.full,
            n_steps=settings.n_steps,
            tolerance=settings.tolerance,
            started=np.zeros(0),
            moved=np.zeros((0, 0)),
            emitted=np.zeros((0, 0)),
            entering=np.zeros(0),
            log_likelihood=0.0,
            n_blocks=0,
            names=np.array(names, np.str_),
        )

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, Any]) -> Self:
        """Return what `to_arrays` wrote, if it is a stream that can go on."""
        stream = super().from_arrays(prefix, arrays)
        n_states, emissions = stream.n_components if stream.n_blocks else 0, stream.symbols.shape[1]
        require(stream.start.size == n_states, "its stream must have a model of its number of states after a block")
        require(not stream.n_blocks or emissions == stream.n_symbols, "its stream must have a model of its symbols")
        require(not stream.n_blocks or (emissions > 0) != (stream.means.size > 0), "it must have symbols or vectors")
        sums = stream.hmm.emissions.n_statistics if stream.n_blocks else 0
        require(stream.emitted.shape[1] == sums, "its stream must have the sums that its model needs")
        require(len(stream.held) < stream.next_size, "its stream must hold fewer rows than a block")
        require(stream.n_rows == stream.n_in_blocks + len(stream.held) > 0, "its stream must count its rows")
        require(stream.names.size in (0, stream.n_symbols), "its stream must have a name for every symbol")
        if stream.n_symbols:
            symbols = stream.held[:, 1]
            usable = (symbols >= 0) & (symbols < stream.n_symbols) & (symbols == np.floor(symbols))
            require(stream.held.shape[1] == 2 and bool(usable.all()), "its stream must hold symbols that it knows")
        require(stream.n_in_blocks > 0 or stream.held[0, 0] > 0, "its stream must begin with a sequence")
        return stream

    @property
    def n_in_blocks(self) -> int:
        """Number of rows that were learnt from."""
        return _FIRST + (self.n_blocks - 1) * _FURTHER if self.n_blocks else 0

    @property
    def next_size(self) -> int:
        """The number of rows of the next block."""
        return _FURTHER if self.n_blocks else _FIRST

    def absorb(self, block: FloatArray) -> None:
        """Start from the first block, or take a step: the sums of all blocks so far say what the model is."""
        rows, begins = self._parted(block)
        if self.n_blocks == 0:
            first = self._learnt_from(rows, begins)
            hmm = first.hmm
            statistics, self.entering = hmm.e_step_block(rows, begins, hmm.initial)
            share, n_before = 1.0, 0
            self.started, self.moved, self.emitted = (
                np.zeros_like(each) for each in (statistics.initial, statistics.transitions, statistics.emissions)
            )
        else:
            hmm, n_before = self.hmm, self.n_in_blocks
            statistics, self.entering = hmm.e_step_block(rows, begins, self.entering)
            share = (len(block) / (n_before + len(block))) ** _POWER
        self._average(statistics, share)
        n_rows = n_before + len(block)
        total = HMMStatistics(self.started * n_rows, self.moved * n_rows, self.emitted * n_rows, 0.0, n_rows)
        self.__dict__.update(arrays_of(hmm.m_step(total)))
        self.n_blocks += 1

    def fitted(self) -> FittedChain:
        """Return the model; that of the rows which wait, if the first block is not yet complete."""
        if self.n_blocks == 0:
            return replace(self._learnt_from(*self._parted(self.held)), names=self.names)
        return FittedChain.of(
            self.hmm,
            n_rows=self.n_rows,
            log_likelihood=self.log_likelihood,
            n_steps=self.n_blocks,
            converged=True,
            names=self.names,
        )

    def _average(self, statistics: HMMStatistics, share: float) -> None:
        of_step = {"started": "initial", "moved": "transitions", "emitted": "emissions"}
        for name in ("started", "moved", "emitted", "log_likelihood"):
            mean = getattr(statistics, of_step.get(name, name)) / statistics.n
            setattr(self, name, (1 - share) * getattr(self, name) + share * mean)

    def _learnt_from(self, rows: Any, begins: BoolArray) -> FittedChain:
        settings = Settings(self.n_components, "auto", self.full, None, self.n_steps, self.tolerance)
        return learn(rows, begins, self.n_symbols, settings, seed=self.seed)

    def _parted(self, block: FloatArray) -> tuple[Any, BoolArray]:
        """Return rows, and which of them begin a sequence."""
        rows = block[:, 1:]
        return rows[:, 0].astype(np.int64) if self.n_symbols else np.ascontiguousarray(rows), block[:, 0] > 0
