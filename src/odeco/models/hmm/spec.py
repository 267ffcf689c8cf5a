"""The specification of hidden Markov models: spectral starts, split and merge, Baum-Welch; online
EM for streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from odeco._util.state import State, array_field, require, usable_array
from odeco._util.types import BoolArray, FloatArray, IndexArray
from odeco.io.rows import check_columns
from odeco.models.engine.description import Description
from odeco.models.engine.em import EMResult, best_of
from odeco.models.engine.fit import Fit, Info
from odeco.models.engine.private import Releaser
from odeco.models.engine.rows import filled, split
from odeco.models.engine.selection import N_FOLDS
from odeco.models.engine.spec import EMSpec
from odeco.models.engine.stream import POWER
from odeco.models.hmm.assumptions import caution_of
from odeco.models.hmm.baum_welch import HMM, HMMStatistics, squarem_hmm
from odeco.models.hmm.display import describe
from odeco.models.hmm.emissions import Gaussian, Poisson, distributions
from odeco.models.hmm.private import MAX_PRIVATE_SYMBOLS, find_private_hmm
from odeco.models.hmm.sequences import Sequences, check_range
from odeco.models.hmm.start import EmissionsOf, in_place, spectral_starts, split_merge_starts
from odeco.privacy.holders.sequences import PrivateSequences
from odeco.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from odeco.models.hmm.estimator import TensorHMM

#: Of at most this many rows, starts are made with several seeds: they cost little, and there are
#: more local maxima.
_FEW_ROWS = 2_000

#: A triple of consecutive rows is needed.
MIN_ROWS = 3


@dataclass(frozen=True, eq=False)
class HMMContext(State):
    """What rows are.

    Attributes
    ----------
    n_symbols : int
        Number of symbols; 0 for vectors and counts.
    names : array of str
        The names of the first symbols; empty if none has one.
    counts : bool
        Whether rows are counts.
    mask : array of bool, k x k
        Which transitions are allowed; empty if all are.
    """

    n_symbols: int = array_field(kind="i", low=0)
    names: Any = array_field(None, kind="U", default=np.array([], np.str_))
    counts: bool = array_field(kind="b", default=False)
    mask: BoolArray = array_field(None, None, kind="b", default=np.zeros((0, 0), bool))

    def check(self) -> None:
        """Require a name for every symbol, or none, and a transition that is allowed from every
        state.
        """
        require(self.names.size <= self.n_symbols, "it must not have more names than symbols")
        require(bool(self.mask.any(axis=1).all()), "it must allow a transition from every state")

    @property
    def symbol_names(self) -> list[str]:
        """The names of the symbols; those that have none, such as symbols that did not occur, have
        numbers.
        """
        return [*map(str, self.names), *map(str, range(self.names.size, self.n_symbols))]


class HMMSpec(EMSpec):
    """Hidden Markov models. Rows hold in their first column whether they begin a sequence."""

    Params: ClassVar = HMM
    Statistics: ClassVar = HMMStatistics
    Context: ClassVar = HMMContext
    first_block, next_block = 2**16, 2**13
    first_iter, max_auto, rows_per_component, selection_size = 6, 30, 30, 2**15
    forgetting: ClassVar = POWER
    record, component = "sequence", "state"
    n_seeds = 5
    mechanism = "triples of symbols"

    settings: TensorHMM

    def check_rows(self, rows: Any, where: str, n_features: int) -> None:
        """Require rows with a flag, whether they begin a sequence, and its features, in which NaN
        is missing.
        """
        usable_array(None, "columns", nan=True)(rows, where, {"columns": 1 + n_features})
        require(not np.isnan(rows[:, 0]).any(), f"`{where}` must say which rows begin a sequence")

    def prepare(self, rows: FloatArray, context: HMMContext) -> Sequences:
        """Return sequences."""
        features = rows[:, 1:]
        if not context.n_symbols:
            return Sequences(np.ascontiguousarray(features), rows[:, 0] > 0)
        return Sequences(filled(features[:, 0], context.n_symbols).astype(np.int64), rows[:, 0] > 0)

    def fit(self, data: Any, base: HMMContext, seed: int) -> Fit:
        """Return the model of sequences."""
        k = self.settings.n_components
        needed = MIN_ROWS if k == "auto" else max(MIN_ROWS, k)
        if len(data) < needed:
            raise ValueError(
                f"There must be at least {needed} rows for n_components={k!r}: one per state, and "
                f"{MIN_ROWS} in all. Got n_samples={len(data)}. Pass more rows, or fewer states."
            )
        rows = split(data)[0].rows
        check_columns(
            np.where(rows == base.n_symbols, np.nan, 0.0)[:, None] if base.n_symbols else rows,
            self.names,
        )
        if not base.n_symbols:
            check_range(rows)
        found = super().fit(data, base, seed)
        sequences, weights = split(data)
        caution = caution_of(found.params, sequences) if weights is None else ""
        if not caution:
            return found
        return replace(
            found, info=replace(found.info, cautions=np.append(found.info.cautions, caution))
        )

    def learn(self, data: Any, context: HMMContext, k: int, seed: int) -> tuple[str, EMResult[HMM]]:
        """Return the likeliest model of spectral starts, of several seeds if rows are few.

        With a mask, its states find their places, and Baum-Welch goes on without the transitions
        that are not allowed.
        """
        settings = self.settings
        mask = context.mask if k == len(context.mask) else context.mask[:0, :0]
        n_seeds = self.n_seeds if len(data) <= _FEW_ROWS and k > 1 and settings.max_iter else 1
        free = replace(context, mask=mask[:0, :0])
        found = [self._learn_once(data, free, k, seed + number) for number in range(n_seeds)]
        best = max(found, key=lambda each: each.log_likelihood)
        if mask.size:
            start, step = in_place(best.params, mask), self.step_on(data, context)
            masked = squarem_hmm(step, start, max_iter=settings.max_iter, tol=settings.tol)
            best = replace(masked, n_iter=best.n_iter + masked.n_iter)
        return "triples of rows", replace(best, params=self.ordered(best.params))

    def _learn_once(self, data: Any, context: HMMContext, k: int, seed: int) -> EMResult[HMM]:
        """Run a few iterations from spectral starts, and the rest from the best of split-and-merge
        models.
        """
        step = self.step_on(data, context)
        how: Any = {"tol": self.settings.tol, "run": squarem_hmm}
        n_first = min(self.first_iter, self.settings.max_iter)
        n_rest = self.settings.max_iter - n_first
        begun = [
            start
            for _, start in self.starts(data, data, context, k, np.random.default_rng(seed), seed)
        ]
        found = best_of(begun, step, first_iter=n_first, max_iter=n_first, **how)
        # Rows that do not determine the states do not say which of them to split and merge either.
        can_be_split = k > 1 and found.params.n_parameters <= len(data)
        if n_rest and not can_be_split:
            rest = squarem_hmm(step, found.params, max_iter=n_rest, tol=self.settings.tol)
            found = replace(rest, n_iter=found.n_iter + rest.n_iter)
        elif n_rest:
            sequences, weights = split(data)
            around = split_merge_starts(
                found.params, sequences.rows, sequences.begins, weights, seed=seed
            )
            rest = best_of(around, step, first_iter=min(n_first, n_rest), max_iter=n_rest, **how)
            found = replace(rest, n_iter=found.n_iter + rest.n_iter)
        return found

    def brief(self, n: float) -> Self:
        """Return the specification with one seed."""
        spec = super().brief(n)
        spec.n_seeds = 1
        return spec

    def starts(
        self,
        data: Any,
        trial: Any,
        context: HMMContext,
        k: int,
        rng: np.random.Generator,
        seed: int,
    ) -> list[tuple[str, HMM]]:
        """Return two starts from the triples of rows."""
        emissions, (sequences, weights) = self.emissions(context), split(data)
        starts = spectral_starts(
            sequences.rows,
            sequences.begins,
            context.n_symbols,
            k,
            weights,
            emissions=emissions,
            seed=seed,
        )
        return [("triples of rows", start) for start in starts]

    def emissions(self, context: HMMContext) -> EmissionsOf:
        """Return what makes the emissions of vectors or counts."""
        return (
            Poisson.of_rows
            if context.counts
            else partial(Gaussian.of_rows, full=self.settings.covariance_type == "full")
        )

    def selection_rows(self, data: Any, rng: np.random.Generator) -> tuple[Any, IndexArray]:
        """Return the first rows, and the permutation whose fifths are folds: whole sequences, or
        stretches of few.
        """
        some = data[: self.selection_size]
        begins = split(some)[0].begins
        number, n_sequences = np.cumsum(begins) - 1, int(begins.sum())
        if n_sequences >= 2 * N_FOLDS:
            number = rng.permutation(n_sequences)[number]
        return some, np.argsort(np.argsort(number, kind="stable"), kind="stable")

    def statistics(
        self, params: HMM, data: Any, context: HMMContext, carry: FloatArray | None = None
    ) -> tuple[HMMStatistics, FloatArray | None]:
        """Return the statistics of sequences; in a stream also the filtered state of the last
        row.
        """
        sequences, weights = split(data)
        if carry is None:
            return self.e_step(params, sequences, weights, context), None
        return params.e_step_block(
            sequences.rows, sequences.begins, carry if carry.size else params.initial, weights
        )

    def e_step(
        self, params: HMM, block: Sequences, weights: FloatArray | None, context: HMMContext
    ) -> HMMStatistics:
        """Return the statistics of whole sequences."""
        return params.e_step(block.rows, block.begins, weights)

    def m_step(self, statistics: HMMStatistics, params: HMM, context: HMMContext) -> HMM:
        """Return the likeliest model for statistics."""
        found = params.m_step(statistics)
        return found.with_mask(context.mask) if context.mask.size else found

    def posterior(
        self, params: HMM, block: Sequences, context: HMMContext
    ) -> tuple[FloatArray, FloatArray]:
        """Return the distribution of the state of each row, and the log-likelihood of each row."""
        return params.posterior(block.rows, block.begins), params.log_likelihoods(
            block.rows, block.begins
        )

    def blocks(self, data: Sequences) -> Iterator[Sequences]:
        """Yield all sequences at once: `HMM.e_step` cuts them where they end."""
        yield data

    def ordered(self, params: HMM) -> HMM:
        """Return the most frequent states first."""
        return params.most_frequent_first()

    def n_parameters(self, params: HMM) -> int:
        """Return the number of free parameters."""
        return params.n_parameters

    def verify(self, state: Any) -> None:
        """Require a model of the kind of emissions that the context names, and rows of that kind in
        a buffer.
        """
        n_symbols, hmm = state.context.n_symbols, state.params
        statistics, rows = (
            getattr(state, "statistics", None),
            np.asarray(getattr(state, "buffer", np.zeros((0, 2)))),
        )
        if hmm is not None:
            kind = getattr(hmm.emissions, "probabilities", np.zeros((0, 0))).shape[1]
            require(
                isinstance(hmm.emissions, Poisson) == state.context.counts,
                "its model must be of counts if its rows are",
            )
            require(kind == n_symbols, "its model must have the symbols that it names, or vectors")
            mask = state.context.mask
            require(
                not mask.size
                or (mask.shape == hmm.transitions.shape and np.array_equal(hmm.forbidden, ~mask)),
                "its transitions must be those that its mask allows",
            )
        if statistics is not None:
            distributions("k", low=0)(state.carry, "stream.carry", {"k": hmm.n_states})
            sums = statistics.emissions
            require(
                sums.shape[1] == hmm.emissions.n_statistics, "its statistics must fit its model"
            )
            require(
                bool(np.all(sums[:, : n_symbols or 1] >= 0)),
                "its statistics must not have negative counts",
            )
        if n_symbols:
            symbols = rows[:, 1]
            usable = (symbols >= 0) & (symbols < n_symbols) & (
                symbols == np.floor(symbols)
            ) | np.isnan(symbols)
            require(
                rows.shape[1] == 2 and bool(usable.all()),
                "its buffer must hold symbols that it names",
            )
        begun = getattr(state, "n_blocks", 1) > 0 or not len(rows) or bool(rows[0, 0] > 0)
        require(begun, "its first row must begin a sequence")

    def check_private(self) -> None:
        """Require symbols, whose number is public, and no more states than symbols."""
        settings = self.settings
        if settings.transition_mask is not None:
            raise ValueError(
                "`transition_mask` is for models without privacy: a noisy table of triples does "
                "not keep it. Got one. Leave it out."
            )
        if (
            settings.emissions != "categorical"
            or not 0 < (settings.n_symbols or 0) <= MAX_PRIVATE_SYMBOLS
        ):
            raise ValueError(
                f"A private model is one of symbols, at most {MAX_PRIVATE_SYMBOLS}, whose number "
                f"is public. Got emissions={settings.emissions!r} and "
                f"n_symbols={settings.n_symbols}. Pass emissions='categorical' and n_symbols."
            )
        if int(settings.n_components) > int(settings.n_symbols or 0):
            raise ValueError(
                "`n_components` of a private model must be at most "
                f"n_symbols={settings.n_symbols}. Got {settings.n_components!r}. Pass fewer."
            )

    def learn_privately(
        self, holder: PrivateSequences, context: HMMContext, releaser: Releaser, *, seed: int
    ) -> Fit:
        """Learn from one noisy table of triples."""
        settings, k = self.settings, int(self.settings.n_components)
        found, n_clear = find_private_hmm(
            holder, releaser, k, max_iter=settings.max_iter, tol=settings.tol, seed=seed
        )
        init = f"noisy triples; {n_clear} of {k} directions stand clear of noise"
        info = Info(holder.n_records, n_iter=found.n_iter, converged=n_clear == k, init=init)
        return Fit(self.ordered(found.params), context, info)

    def describe(
        self, fit: Fit, names: list[str], privacy: PrivacyReport | None, rows: Any = None
    ) -> Description:
        """Return the model in words and pictures."""
        return describe(fit, names, privacy, rows)
