"""The specification of independent component analysis: whitening, a start from cumulants, Newton's
method; in one pass.

**Number of sources.** Sources are found in half of the rows. Those that are not Gaussian in the
other half are separated, and ``"auto"`` keeps these.

**One pass.** Sources are found in the first block, and refined by each further one. The Newton step
of a block is taken in proportion to the share of the block in all rows so far. Near the solution
steps are linear in the rows, so the result is close to the step of all rows together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from odeco._util.state import State, array_field, part_field, require
from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.description import Description
from odeco.models.engine.fit import Fit, Info
from odeco.models.engine.moments import SecondMoment
from odeco.models.engine.private import check_private_units
from odeco.models.engine.rows import (
    blocks_of,
    count_rows,
    fit_in_units,
    mapped,
    split,
    warn_of_dominant_column,
    with_weights,
)
from odeco.models.engine.spec import Spec
from odeco.models.engine.stream import BlockStream
from odeco.models.ica.assumptions import caution_of, count_non_gaussian
from odeco.models.ica.display import describe
from odeco.models.ica.likelihood import HistogramLikelihood, histogram
from odeco.models.ica.newton import (
    N_SUMS,
    NewtonResult,
    ScoreStatistics,
    fit_scores,
    newton,
    newton_step,
    power_sums,
    score_means,
)
from odeco.models.ica.overcomplete import Mixing, advanced, fit_of, fourth_solver, refuse_weights
from odeco.models.ica.private import MAX_SOURCES, find_private_sources
from odeco.models.ica.unmixing import (
    BLOCK,
    Sources,
    Unmixing,
    cumulant_start,
    scaled,
    second_moment,
    unit_exponents,
    whiten,
    with_positive_mixing,
)
from odeco.online.fourth_solver import FourthMomentSolver
from odeco.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from odeco.models.engine.private import Releaser
    from odeco.models.ica.estimator import TensorICA


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
        The sources after the complete blocks. Their order, number and units are those of the first
        block.
    cautions : array of str
        What was found in the first block that the model rules out.
    fourth : FourthMomentSolver
        With more sources than columns: the fourth cumulant of the rows in blocks, instead of all
        these.
    """

    n_iter: int = array_field(kind="i", low=0, default=0)
    scatter: FloatArray = array_field(None, None, default=np.zeros((0, 0)))
    powers: FloatArray = array_field(None, None, default=np.zeros((0, 0)))
    params: Unmixing | None = part_field(Unmixing, default=None)
    cautions: Any = array_field(None, kind="U", default=np.zeros(0, np.str_))
    fourth: FourthMomentSolver | None = part_field(FourthMomentSolver, default=None)

    def update(self, spec: Any, rows: Any) -> Self:
        """Return the stream after more rows; raise at once if weights come together with more
        sources than columns.
        """
        k = spec.settings.n_components
        after = super().update(spec, rows)
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
                powers=power_sums(
                    found.unmixing, (scaled(rows, found.exponents) - found.mean).T, weights
                ),
                params=found,
                cautions=first.info.cautions,
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
        if isinstance(spec.settings.n_components, int):
            n_directions = len(self.params.whitening)
        else:
            n_directions = None
        with one_blas_thread():
            whitening = whiten(
                params.covariance, n_directions, standardized=self.context.standardized
            ).forward.T
            # The directions that the first block chose have become more certain; with all of them
            # this changes nothing.
            unmixing = params.unmixing @ params.covariance @ whitening.T @ whitening
        information = score_means(fit_scores(last.powers), last.powers)[1]
        params = replace(params, unmixing=unmixing, whitening=whitening, information=information)
        params.check_finite()
        return Fit(
            params,
            self.context,
            Info(self.n_seen, n_iter=last.n_iter, init="cumulants", cautions=self.cautions),
        )

    def verify(self, spec: Any, n_features: int) -> None:
        """Raise `ValueError` unless the stream can go on."""
        super().verify(spec, n_features)
        n_kinds = (self.params is not None) + (self.fourth is not None)
        require(
            n_kinds == (self.n_blocks > 0), "it must have sources after a block, and none before"
        )
        if self.fourth is not None:
            fits = (self.fourth.dimension, self.fourth.n_rows) == (
                n_features,
                self.count_blocks(spec),
            )
            require(fits and self.fourth.cumulant, "its fourth cumulant must be that of its rows")
            require(self.fourth.n_components is not None, "the number of its sources must be known")
        if self.params is not None:
            shape = (N_SUMS, len(self.params.unmixing))
            covariance = self.params.covariance * self.count_blocks(spec)
            fits = self.scatter.shape == covariance.shape and np.allclose(self.scatter, covariance)
            require(bool(fits), "its scatter matrix must be that of its sources")
            require(
                self.powers.shape == shape and bool(np.all(self.powers[0] > 0)),
                "its power sums must be complete",
            )


#: The smallest number of rows.
_MIN_ROWS = 2

#: Iterations on half of the rows, by which it is seen how many sources are separated.
_BRIEF_ITER = 20

#: "auto" looks for more sources than columns if there are between these numbers of columns, and
#: this many rows for each pair of columns. With fewer columns no more sources can be told apart;
#: with more it takes long.
_MIN_COLUMNS = 4
_MAX_COLUMNS = 40
_ROWS_PER_PAIR = 100


@dataclass(frozen=True, eq=False)
class ICAContext(State):
    """What belongs to the rows.

    Attributes
    ----------
    standardized : bool
        Whether the leading directions are those of standardised columns.
    n_separated : int
        Number of sources that are not Gaussian in held-out rows; −1 if that is not known.
    partners : array
        For each source the one that it depends on most, −1 if on none; empty if that is not known.
    """

    standardized: bool = array_field(kind="b", default=False)
    n_separated: int = array_field(kind="i", low=-1, default=-1)
    partners: IndexArray = array_field(None, kind="i", low=-1, default=np.zeros(0, np.int64))


class ICASpec(Spec):
    """Independent component analysis. Sources are found in the first block of rows, and refined on
    all.
    """

    Params: ClassVar = Sources
    Context: ClassVar = ICAContext
    Stream: ClassVar = ICAStream
    first_block = 5 * BLOCK
    next_block = BLOCK
    component = "source"
    mechanism = "second moments, and whitened moments up to the fourth"
    private_needs = ("norm_bound",)

    settings: TensorICA

    def fit(self, data: Any, base: ICAContext, seed: int) -> Fit:
        """Return the sources of all rows."""
        k = self.settings.n_components
        n = len(data)
        rows, weights = split(data)
        d = rows.shape[1]
        if n < _MIN_ROWS:
            raise ValueError(
                f"There must be at least {_MIN_ROWS} rows. Got n_samples={n}. Pass more rows."
            )
        if weights is not None and isinstance(k, int) and k > d:
            refuse_weights()
        if weights is None and (k == "auto" or (isinstance(k, int) and k > d)):
            many = self._fit_many(data, base, seed)
            if many is not None:
                return many
        if k in (None, "auto", d):  # all directions: the units of columns do not matter
            return self._fit(data, base, seed, standardized=False)
        return fit_in_units(
            lambda scale: self._fit(data, base, seed, standardized=scale is not None),
            data,
            self.settings.standardize,
            lambda found: float(np.average(found.params.log_likelihoods(rows), weights=weights)),
        )

    def _fit_many(self, data: FloatArray, base: ICAContext, seed: int) -> Fit | None:
        """Return more sources than columns, from the blocks of a stream of these rows; None if they
        are not more.
        """
        k, n, d = self.settings.n_components, *data.shape
        if k == "auto" and not (
            _MIN_COLUMNS <= d <= _MAX_COLUMNS and n >= _ROWS_PER_PAIR * d * (d + 1) // 2
        ):
            return None
        solver = fourth_solver(d, k if isinstance(k, int) else None, seed)
        for start, stop in pairwise([0, *range(self.first_block, n, self.next_block), n]):
            solver = advanced(solver, np.ascontiguousarray(data[start:stop]))
        return fit_of(solver, base)

    def _fit(self, data: Any, base: ICAContext, seed: int, *, standardized: bool) -> Fit:
        """Return the sources in the leading directions of standardised columns, or of columns as
        they are.
        """
        k = self.settings.n_components
        n = len(data)
        plain, _ = split(data)
        exponents = unit_exponents(
            plain, by_column=standardized or k in (None, "auto", plain.shape[1])
        )
        rows = mapped(data, lambda each: scaled(each, exponents))
        moment = second_moment(rows)
        with one_blas_thread():
            white = whiten(moment.covariance, None if k == "auto" else k, standardized=standardized)
            whitener = white.forward
            chosen = rows
            if n > self.first_block:
                places = np.random.default_rng([seed, 1]).choice(n, self.first_block, replace=False)
                chosen = rows[np.sort(places)]
            chosen_rows, chosen_weights = split(chosen)
            columns = np.ascontiguousarray(whitener.T @ (chosen_rows - moment.mean).T)
            found = self._unmix_whitened(columns, chosen_weights, seed, self.settings.max_iter)
            n_separated = self._count_separated(columns, chosen_weights, seed)
            n_sources = len(found.unmixing)
            if k == "auto" and n_separated >= 0:
                n_sources = n_separated
            unmixing = found.unmixing @ whitener.T
            n_iter = found.n_iter
        if n > self.first_block:

            def statistics_at(matrix: FloatArray, coefficients: FloatArray) -> ScoreStatistics:
                def of_block(block: Any) -> ScoreStatistics:
                    own, weights = split(block)
                    return ScoreStatistics.of_rows(
                        matrix, (own - moment.mean).T, coefficients, weights
                    )

                return sum(
                    map_blocks(of_block, blocks_of(rows, BLOCK), parallel=True),
                    ScoreStatistics.zeros(len(matrix)),
                )

            found = newton(
                statistics_at,
                unmixing,
                found.scores,
                HistogramLikelihood(list(blocks_of(rows, BLOCK)), moment.mean, moment.covariance),
                max_iter=self.settings.max_iter,
                tol=self.settings.tol,
            )
            unmixing = found.unmixing
            n_iter = n_iter + found.n_iter
        with one_blas_thread():
            order = np.argsort(-found.step.information, kind="stable")[:n_sources]
            unmixing = with_positive_mixing(unmixing[order], moment.covariance, exponents)
            counts = histogram(unmixing @ (chosen_rows - moment.mean).T, chosen_weights)
        information = found.step.information[order]
        params = Unmixing(
            exponents,
            moment.mean,
            moment.covariance,
            unmixing,
            whitener.T.copy(),
            information,
            counts,
        )
        params.check_finite()
        caution = ""
        partners = base.partners
        if chosen_weights is None:
            caution, partners = caution_of(params.sources(plain[: self.first_block]).T)
        context = replace(
            base, standardized=standardized, n_separated=n_separated, partners=partners
        )
        cautions = np.array([caution] if caution else [], dtype=np.str_)
        info = Info(
            n, n_iter=n_iter, converged=found.converged, init="cumulants", cautions=cautions
        )
        return Fit(params, context, info)

    def check_units(self, data: Any, fit: Fit, seed: int) -> None:
        """Warn if one column has nearly all of the variance, and decides which directions are
        kept.
        """
        k = self.settings.n_components
        covariance = fit.params.covariance
        if isinstance(k, int) and k > len(covariance):
            return
        if fit.context.standardized or not isinstance(k, int) or k == len(covariance):
            return

        def agreement() -> float:
            """Return the mean squared canonical correlation of the directions with those of
            standardised columns.
            """
            other = whiten(covariance, k, standardized=True).forward
            return float(np.sum(np.square(fit.params.whitening @ covariance @ other))) / k

        warn_of_dominant_column(np.diagonal(covariance), self.names, k, agreement)

    def describe(
        self, fit: Fit, names: list[str], privacy: PrivacyReport | None, rows: Any = None
    ) -> Description:
        """Return the sources in words and pictures."""
        return describe(fit, names, privacy, rows)

    def check_private(self) -> None:
        """Require a bound that can be known."""
        check_private_units(self.settings.standardize, self.settings.norm_bound)

    def check_private_features(self, n_features: int) -> None:
        """Require no more sources than columns, and a fourth moment that can be released."""
        k = self.settings.n_components or n_features
        most = min(n_features, MAX_SOURCES)
        if int(k) > most:
            raise ValueError(
                "A private model has at most as many sources as columns, and at most "
                f"{MAX_SOURCES}: noise grows with the square of their number. Got "
                f"n_components={self.settings.n_components} and {n_features} columns. Pass at "
                f"most {most}."
            )

    def learn_privately(
        self, holder: Any, context: ICAContext, releaser: Releaser, *, seed: int
    ) -> Fit:
        """Learn from noisy moments of rows."""
        k = int(self.settings.n_components or holder.n_features)
        standardize = self.settings.standardize is True
        params, n_clear = find_private_sources(
            holder, releaser, k, standardize=standardize, seed=seed
        )
        context = replace(context, standardized=standardize)
        return Fit(
            params,
            context,
            Info(holder.n_records, converged=n_clear >= k - 1, init="noisy cumulants"),
        )

    def _unmix_whitened(
        self, columns: FloatArray, weights: FloatArray | None, seed: int, max_iter: int
    ) -> NewtonResult:
        """Return the unmixing matrix of whitened rows (k x n, one row per column) with these
        weights.
        """
        start = cumulant_start(columns, weights, seed=seed)
        return newton(
            lambda matrix, coefficients: ScoreStatistics.of_rows(
                matrix, columns, coefficients, weights
            ),
            start,
            fit_scores(power_sums(start, columns, weights)),
            HistogramLikelihood(
                list(blocks_of(with_weights(columns.T, weights), BLOCK)), np.zeros(len(columns))
            ),
            max_iter=max_iter,
            tol=self.settings.tol,
        )

    def _count_separated(self, columns: FloatArray, weights: FloatArray | None, seed: int) -> int:
        """Return the number of sources, found in half of the rows, that are not Gaussian in the
        other half; or −1.
        """
        permutation = np.random.default_rng([seed, 2]).permutation(columns.shape[1])
        half = len(permutation) // 2
        if half <= len(columns):
            return -1  # there are too few rows to hold some out
        training = np.ascontiguousarray(columns[:, permutation[:half]])
        held_out = columns[:, permutation[half:]]
        if weights is None:
            seen = None
            others = None
        else:
            seen = weights[permutation[:half]]
            others = weights[permutation[half:]]
        max_iter = self.settings.max_iter
        if self.settings.n_components != "auto":
            # For a verdict, directions need not be those of the highest likelihood.
            max_iter = min(max_iter, _BRIEF_ITER)
        return count_non_gaussian(
            self._unmix_whitened(training, seen, seed, max_iter).unmixing @ held_out, others
        )
