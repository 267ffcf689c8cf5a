"""Independent component analysis in one pass: sources are found in the first block, and refined by each further one.

The Newton step of a block is taken in proportion to the share of the block in all rows so far. Near the solution steps
are linear in the rows, so the result is close to the step of all rows together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from odeco._util.state import array_field, part_field, require
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.models.engine.fit import Fit, Info
from odeco.models.engine.moments import SecondMoment
from odeco.models.engine.stream import BlockStream
from odeco.models.engine.weights import count_rows, split, with_weights
from odeco.models.ica.likelihood import histogram
from odeco.models.ica.newton import N_SUMS, ScoreStatistics, fit_scores, newton_step, power_sums, score_means
from odeco.models.ica.overcomplete import Mixing, advanced, fit_of, fourth_solver, refuse_weights
from odeco.models.ica.start import scaled, whiten
from odeco.models.ica.unmixing import Unmixing
from odeco.online.fourth_solver import FourthMomentSolver

if TYPE_CHECKING:
    from odeco.models.ica.spec import ICASpec


@dataclass(frozen=True, eq=False)
class ICAStream(BlockStream):
    """A stream of rows; before the first block is complete, it has no sources.

    Attributes
    ----------
    n_iter : int
        Number of Newton iterations.
    scatter : array, d x d
        The scatter matrix of the rows in blocks.
    powers : array
        Power sums of sources over the rows in blocks, which give their score functions.
    params : Unmixing
        The sources after the complete blocks. Their order, number and units are those of the first block.
    fourth : FourthMomentSolver
        With more sources than columns: the fourth cumulant of the rows in blocks, instead of all these.
    """

    n_iter: int = array_field(kind="i", low=0, default=0)
    scatter: FloatArray = array_field(None, None, default=np.zeros((0, 0)))
    powers: FloatArray = array_field(None, None, default=np.zeros((0, 0)))
    params: Unmixing | None = part_field(Unmixing, default=None)
    fourth: FourthMomentSolver | None = part_field(FourthMomentSolver, default=None)

    def update(self, spec: Any, rows: Any) -> Self:
        """Return the stream after more rows; raise at once if weights come together with more sources than columns."""
        k, after = spec.settings.n_components, super().update(spec, rows)
        too_many = isinstance(k, int) and k > np.asarray(after.buffer).shape[1]
        if after.is_weighted and (too_many or after.fourth is not None):
            refuse_weights()
        return after

    def absorb(self, spec: ICASpec, block: Any) -> Self:
        """Return the stream after a block: the sources of the first, or a step with any other."""
        rows, weights = split(block)
        if self.fourth is not None:
            return replace(self, n_blocks=self.n_blocks + 1, fourth=advanced(self.fourth, block))
        before = self.params
        if before is None:
            first = spec.fit_rows(block, self.context, self.seed)
            found = first.params
            if isinstance(found, Mixing):
                solver = fourth_solver(block.shape[1], found.mixing.shape[1], self.seed)
                return replace(self, n_blocks=1, fourth=advanced(solver, block))
            return replace(
                self,
                n_blocks=1,
                context=first.context,
                n_iter=first.info.n_iter,
                scatter=found.covariance * count_rows(block),
                powers=power_sums(found.unmixing, (scaled(rows, found.exponents) - found.mean).T, weights),
                params=found,
            )
        rows = scaled(rows, before.exponents)
        own = SecondMoment.of_block(with_weights(rows, weights))
        with one_blas_thread():
            moment = SecondMoment(before.mean, self.scatter, self.count_blocks(spec)) + own
            scores = fit_scores(self.powers)
            columns = (rows - moment.mean).T
            statistics = ScoreStatistics.of_rows(before.unmixing, columns, scores, weights)
            step = newton_step(statistics, scores, n_seen=moment.n_rows)
            after = replace(
                before,
                mean=moment.mean,
                covariance=moment.covariance,
                unmixing=step.apply(before.unmixing, moment.covariance, own.n_rows / moment.n_rows),
                counts=before.counts + histogram(before.unmixing @ columns, weights),
            )
        powers = self.powers + statistics.powers
        return replace(
            self,
            n_blocks=self.n_blocks + 1,
            n_iter=self.n_iter + 1,
            scatter=moment.scatter,
            powers=powers,
            params=after,
        )

    def result(self, spec: ICASpec) -> Fit:
        """Return the sources of all rows, those in the buffer included."""
        if self.fourth is not None:
            solver = advanced(self.fourth, self.waiting) if len(self.buffer) else self.fourth
            found = fit_of(solver, self.context)
            if found is None:
                raise RuntimeError("Their number is given.")
            return found
        if self.params is None:
            return spec.fit_rows(self.waiting, self.context, self.seed)
        last = self.absorb(spec, self.waiting) if len(self.buffer) else self
        params: Unmixing = last.params  # type: ignore[assignment]
        n_directions = len(self.params.whitening) if isinstance(spec.settings.n_components, int) else None
        with one_blas_thread():
            whitening = whiten(params.covariance, n_directions, standardized=self.context.standardized).forward.T
            # The directions that the first block chose have become more certain; with all of them this changes nothing.
            unmixing = params.unmixing @ params.covariance @ whitening.T @ whitening
        information = score_means(fit_scores(last.powers), last.powers)[1]
        params = replace(params, unmixing=unmixing, whitening=whitening, information=information)
        params.check_finite()
        return Fit(params, self.context, Info(self.n_seen, n_iter=last.n_iter, init="cumulants"))

    def verify(self, spec: Any, n_features: int) -> None:
        """Raise `ValueError` unless the stream can go on."""
        super().verify(spec, n_features)
        n_kinds = (self.params is not None) + (self.fourth is not None)
        require(n_kinds == (self.n_blocks > 0), "it must have sources after a block, and none before")
        if self.fourth is not None:
            fits = (self.fourth.dimension, self.fourth.n_rows) == (n_features, self.count_blocks(spec))
            require(fits and self.fourth.cumulant, "its fourth cumulant must be that of its rows")
            require(self.fourth.n_components is not None, "the number of its sources must be known")
        if self.params is not None:
            shape = (N_SUMS, len(self.params.unmixing))
            covariance = self.params.covariance * self.count_blocks(spec)
            fits = self.scatter.shape == covariance.shape and np.allclose(self.scatter, covariance)
            require(bool(fits), "its scatter matrix must be that of its sources")
            require(self.powers.shape == shape and bool(np.all(self.powers[0] > 0)), "its power sums must be complete")
