"""The specification of Gaussian mixtures: starts by tensor decomposition and by k-means++, then
EM.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.metrics import adjusted_rand_score

from odeco._util.state import Sizes, State, array, array_field, part_field, require
from odeco._util.threads import one_blas_thread
from odeco._util.types import BoolArray, FloatArray, IndexArray
from odeco.errors import FewValuesWarning
from odeco.io.kinds import Columns
from odeco.io.rows import check_columns
from odeco.models.emissions.covariances import COVARIANCE_TYPES, KINDS, CovarianceType, kind_of
from odeco.models.emissions.gaussians import Gaussians, GaussianStatistics
from odeco.models.engine.description import Description
from odeco.models.engine.em import EMResult, em, successive_halving
from odeco.models.engine.fit import Fit, Info, largest_first
from odeco.models.engine.private import Releaser, check_private_units
from odeco.models.engine.rows import (
    MAX_SCALE,
    MIN_SCALE,
    column_moments,
    column_ranges,
    column_scale,
    count_rows,
    filled,
    fit_in_units,
    has_missing,
    in_own_order,
    mapped,
    split,
    times,
    warn_of_dominant_column,
    with_weights,
)
from odeco.models.engine.selection import N_FOLDS, KSelection, SelectionFits, fold_numbers
from odeco.models.engine.spec import EMSpec, some_rows
from odeco.models.gmm.display import describe
from odeco.models.gmm.groups import group_numbers, groups_sentence
from odeco.models.gmm.private import find_private_mixture
from odeco.models.gmm.start import (
    Start,
    can_be_spectral,
    em_together,
    gaussians_of,
    second_moment,
    seeded_labels,
    shell_labels,
    spectral_start,
    swapped_labels,
    whitened,
    whitened_start,
)
from odeco.models.gmm.tables import TableContext, TableSpec
from odeco.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from odeco.models.gmm.estimator import TensorMixture

#: Seeds of k-means++ are drawn among this many rows, or among 50 for each component if that is
#: more.
_SEED_ROWS, _SEED_ROWS_EACH = 2_000, 50

#: With at most this many rows, three kinds of seeded starts are tried, and each has this many
#: iterations before the less likely half is dropped: they cost little, and there are more local
#: maxima.
_FEW_ROWS, _FIRST_ITER_OF_FEW = 2_000, 20

#: Starts of few rows are repeated k times, as more components have more local maxima, but at least
#: 4 and at most 16 times, as long as the numbers in all of these rows are at most this many.
_FEW_NUMBERS, _FEWEST_REPEATS, _MOST_REPEATS = 40_000, 4, 16

#: EM runs from as many starts at once as have at most this many responsibilities together.
_NUMBERS_TOGETHER = 2**18

#: A seeded cluster has this many further rows, for each feature, with the covariance of all
#: clusters.
_PRIOR_ROWS = 0.1

#: Swaps of a batch; batches at most, and without a gain; iterations of the best of one, and what it
#: must gain on all rows that are looked at, in nats.
_SWAPS, _SWAP_BATCHES, _SWAP_PATIENCE, _SWAP_ITER, _SWAP_NATS = 12, 8, 2, 100, 1.0

#: A variance of less than this multiple of its floor is that of no component.
_FLAT = 10.0

#: A value is a spike of its column if it is this many times as frequent as any other, in at most
#: this number of rows.
_SPIKE, _SPIKE_ROWS = 10, 2000

#: A column with at most this many different values is one of categories or ranks.
_FEW_VALUES = 10

#: For the selection of k, at most this many starts of each kind.
_BRIEF_STARTS = 3

#: Covariance matrices are used for at most this many features, and by default only if a component
#: has twice as many rows as features on average: fewer do not determine one. While k is selected,
#: this many components count.
_MOST_CORRELATED, _ROWS_PER_FEATURE, _COMPONENTS_TO_SELECT = 100, 2, 5

#: Third powers of numbers with a variance in this range are finite and not zero.
_MIN_VARIANCE, _MAX_VARIANCE = 1e-140, 1e140


def _check_floor(value: Any, where: str, sizes: Sizes) -> None:
    array(*("n_features",)[: value.ndim], low=0)(value, where, sizes)


@dataclass(frozen=True, eq=False)
class MixtureContext(State):
    """What belongs to the rows.

    Attributes
    ----------
    floor : float or array
        What is added to every variance: one number for spheres, else one for each feature; zero
        before any row.
    scale : array
        What features are divided by; empty if rows are taken as they are.
    spiked : array
        Which features have one value that is far more frequent than all others; empty before any
        row.
    columns : Columns
        What the columns of a table are; nothing for arrays.
    """

    floor: Any = array_field(rule=_check_floor, default=0.0)
    scale: FloatArray = array_field(None, low=MIN_SCALE, high=MAX_SCALE, default=np.zeros(0))
    spiked: BoolArray = array_field(None, kind="b", default=np.zeros(0, bool))
    columns: Columns = part_field(Columns, default=Columns())

    def in_own_units(self, params: Gaussians) -> Gaussians:
        """Return the mixture of rows in their own units."""
        return params.rescaled(self.scale) if self.scale.size else params

    def log_volumes(self, rows: FloatArray) -> Any:
        """Return the logarithm of the volume of observed columns, divided by that of scaled ones:
        for all rows alike.

        Of rows with missing values, it is that of each row.
        """
        if not self.scale.size:
            return 0.0
        return (
            (~np.isnan(rows)) @ np.log(self.scale)
            if has_missing(rows)
            else float(np.log(self.scale).sum())
        )


def _divided(data: Any, scale: FloatArray | None) -> Any:
    """Return rows with their columns divided by `scale`; as they are if it is None."""
    return data if scale is None else mapped(data, lambda rows: rows / scale)


def _has_spike(rows: FloatArray) -> BoolArray:
    """Return which columns have one value that is far more frequent than any other, such as the
    zeros of a sum spent.

    At most `_SPIKE_ROWS` rows are looked at, evenly spaced.
    """
    some = rows[:: -(-len(rows) // _SPIKE_ROWS)]
    frequent = [
        np.sort(np.unique(column[~np.isnan(column)], return_counts=True)[1])[::-1]
        for column in some.T
    ]
    return np.array(
        [len(each) > 1 and each[0] >= _SPIKE * each[1] for each in frequent], dtype=bool
    )


def _column_of_values(params: Gaussians, rows: FloatArray) -> tuple[int, int] | None:
    """Return the first column of few values of which a component is one or two, and their number;
    None if none is.

    Two equally frequent values have a variance of a quarter of their squared distance. A component
    that has most of the variance of the column is not one of its values.
    """
    if len(params.weights) == 1:
        return None
    narrowest = params.variances.min(axis=0)
    for place, column in enumerate(rows.T):
        values = np.unique(column[~np.isnan(column)])
        few = 1 < values.size <= _FEW_VALUES
        if few and narrowest[place] < min(
            0.3 * np.diff(values).min() ** 2, float(np.nanvar(column)) / 2
        ):
            return place, values.size
    return None


def _select_kind_and_number(
    specs: list[MixtureSpec], data: Any, base: MixtureContext, seed: int
) -> tuple[MixtureSpec, KSelection]:
    """Return the kind of covariances that predicts held-out rows best, with the number selected for
    it.

    The kind with the most parameters comes first. Another is skipped if it predicts held-out rows
    worse with as many components, and with more up to as many parameters: still more would cut
    shapes of the first kind into pieces.
    """
    d = split(data)[0].shape[1]
    sizes = {
        spec: 1 + d + kind.n_parameters(d)
        for spec, kind in zip(specs, KINDS.values(), strict=False)
    }
    *simpler, best = specs
    selection = best.select_k(data, base, seed)
    score = selection.held_out[selection.n_components]
    for spec in reversed(simpler):
        fewest = selection.n_components
        most = max(fewest, min(fewest * sizes[best] // sizes[spec], spec.max_auto))
        fits = SelectionFits(*spec.selection_fits(data, base, seed))
        doubled = [fewest * 2**power for power in range((most // fewest).bit_length())]
        if all(fits.held_out(k) < score for k in {*doubled, most}):
            continue
        own = spec.select_k(data, base, seed)
        own_score = own.held_out[own.n_components]
        if own_score > score:
            best, selection, score = spec, own, own_score
    return best, selection


class MixtureSpec(EMSpec):
    """Gaussian mixtures."""

    Params: ClassVar = Gaussians
    Statistics: ClassVar = GaussianStatistics
    Context: ClassVar = MixtureContext
    mechanism = "second moment, whitened third moment, and an EM iteration"
    private_needs = ("norm_bound",)
    most_repeats = _MOST_REPEATS

    settings: TensorMixture

    def for_context(self, context: Any) -> EMSpec:
        """Return the specification of tables, if the rows have several kinds of columns."""
        return TableSpec(self.settings) if isinstance(context, TableContext) else self

    def for_file(self, arrays: Mapping[str, Any]) -> EMSpec:
        """Return the specification of tables, if a file has such a model."""
        is_table = any(name.endswith(".context.prior") for name in arrays)
        return TableSpec(self.settings) if is_table else self

    def check_rows(self, rows: Any, where: str, n_features: int) -> None:
        """Require rows, in which NaN is missing."""
        array(None, "n_features", nan=True)(rows, where, {"n_features": n_features})

    def update_context(self, context: MixtureContext, data: Any) -> MixtureContext:
        """Return the variance floor of the first rows."""
        if np.any(context.floor):
            return context
        rows = split(data)[0]
        ranges = column_ranges(rows)
        spread = float(np.fmax.reduce(ranges))
        largest = float(np.nanmax(np.abs(rows), initial=0.0))
        if spread < _MAX_VARIANCE < largest:
            raise ValueError(
                f"Numbers must be at most {_MAX_VARIANCE:g}, so that their powers are finite. The "
                f"largest is {largest:.3g}. Divide all rows by a constant."
            )
        moment = None
        if spread < _MAX_VARIANCE:  # squares of larger differences would overflow
            moment = second_moment(data, parallel=self.parallel)
        variance = np.inf if moment is None else moment.variance
        if not (spread == 0 or _MIN_VARIANCE < variance < _MAX_VARIANCE):
            raise ValueError(
                f"The variance of rows must be between {_MIN_VARIANCE:g} and {_MAX_VARIANCE:g}, "
                f"so that its powers are finite and not zero. It is {variance:.3g}, and rows "
                f"differ by {spread:.3g} at most. Multiply all rows by a constant."
            )
        # Rows that are all the same have no variance: any positive one describes them.
        share = self.settings.reg_covar
        floor: Any = share * variance if variance > 0 else 1.0
        if moment is not None and self.settings.covariance_type != "spherical":
            own = np.diagonal(moment.covariance)
            floor = np.where((ranges > 0) & (own > 0), share * own, floor)
        tiny = float(np.finfo(np.float64).tiny)
        floor = np.maximum(floor, tiny) if np.ndim(floor) else max(floor, tiny)
        return replace(context, floor=floor, spiked=_has_spike(split(data)[0]))

    def prepare(self, rows: FloatArray, context: MixtureContext) -> FloatArray:
        """Return rows, standardised if those of the fit were."""
        return rows / context.scale if context.scale.size else rows

    def fit(self, data: Any, base: MixtureContext, seed: int) -> Fit:
        """Return the mixture of rows, which are standardised first if the settings or the rows ask
        for it.
        """
        data = in_own_order(data)
        check_columns(split(data)[0], self.names)
        scale = column_scale(data, self.settings.standardize)
        spec, selection = self._with_kind(_divided(data, scale), base, seed)
        depends_on_units = scale is not None and spec.settings.covariance_type == "spherical"

        def fit(scale: FloatArray | None) -> Fit:
            rows = _divided(data, scale)
            context = base if scale is None else replace(base, scale=scale)
            if selection is None or depends_on_units:
                return EMSpec.fit(spec, rows, context, seed)
            return spec.fit_number(rows, context, seed, selection)

        def criterion(found: Fit) -> float:
            """Return minus half of the Bayesian information criterion."""
            n = count_rows(data)
            return n * found.info.log_likelihood - self.n_parameters(found.params) * math.log(n) / 2

        found = fit_in_units(fit, data, self.settings.standardize, criterion)
        if self.settings.n_components != "auto":
            return found
        cautions = [*found.info.cautions.tolist(), *self._cautions(found, data, seed)]
        return replace(found, info=replace(found.info, cautions=np.array(cautions, dtype=np.str_)))

    def _cautions(self, found: Fit, data: Any, seed: int) -> list[str]:
        """Return what speaks against taking each selected component for a group."""
        some, weights = split(some_rows(data, self.selection_size, np.random.default_rng(seed)))
        some = self.prepare(some, found.context)
        cautions = []
        posterior = self.posterior(found.params, some, found.context)[0]
        fewest, most = group_numbers(found.params, some, posterior, weights)
        if fewest < len(found.params.weights):
            cautions.append(groups_sentence(fewest, most))
        few = _column_of_values(found.params, some)
        if few is not None:
            column, n_values = few
            name = dict(enumerate(self.names)).get(column)
            warnings.warn(FewValuesWarning(column, name, n_values), stacklevel=6)
            cautions.append(
                f"Some components are single values of {name or f'column {column}'}, not groups."
            )
        return cautions

    def _with_kind(
        self, data: Any, base: MixtureContext, seed: int
    ) -> tuple[MixtureSpec, KSelection | None]:
        """Return the specification with a kind of covariances, and the selection of k if it was
        made with it.
        """
        n, d = split(data)[0].shape
        settings = self.settings
        k = _COMPONENTS_TO_SELECT if settings.n_components == "auto" else settings.n_components
        correlated = d <= _MOST_CORRELATED and n >= _ROWS_PER_FEATURE * k * d
        if settings.covariance_type is None:
            return self._of_kind("full" if correlated else "diag"), None
        if settings.covariance_type != "auto":
            return self, None
        kinds = COVARIANCE_TYPES if correlated else COVARIANCE_TYPES[:-1]
        specs = [self._of_kind(kind) for kind in kinds]
        if n < 2 * max(N_FOLDS, k) or d == 1:
            return specs[0], None
        if settings.n_components == "auto":
            return _select_kind_and_number(specs, data, base, seed)
        some = self.trial(data, k, np.random.default_rng(seed))
        scores = [
            SelectionFits(*spec.selection_fits(some, base, seed)).held_out(k) for spec in specs
        ]
        return specs[int(np.argmax(scores))], None

    def _of_kind(self, kind: CovarianceType) -> MixtureSpec:
        spec = MixtureSpec(replace(self.settings, covariance_type=kind))
        spec.names = self.names
        return spec

    def starts(
        self,
        data: Any,
        trial: Any,
        context: MixtureContext,
        k: int,
        rng: np.random.Generator,
        seed: int,
    ) -> list[tuple[str, Gaussians]]:
        """Return starts from the third moment, if there are enough features, and by k-means++."""
        settings, moment, d = (
            self.settings,
            second_moment(data, parallel=self.parallel),
            split(data)[0].shape[1],
        )
        observed = trial
        data, trial = (
            mapped(each, lambda rows: filled(rows, moment.mean)) for each in (data, trial)
        )
        kind: Any = settings.covariance_type  # "auto" was replaced by one of three before
        found: list[Start] = []
        if can_be_spectral(k, d):
            found.append(spectral_start(data, moment, k, seed=seed, parallel=self.parallel))
            first = found[0].gaussians(kind, context.floor)
            guess = em(
                self.step_on(observed, context), first, max_iter=self.first_iter, tol=settings.tol
            ).params
            found.append(whitened_start(trial, moment, guess, seed=seed))
        n_rows = max(_SEED_ROWS, _SEED_ROWS_EACH * k)
        begun = [(each.name, each.gaussians(kind, context.floor)) for each in found]
        centred = mapped(some_rows(trial, n_rows, rng), lambda rows: rows - moment.mean)
        like = Start(
            np.full(k, 1 / k), np.tile(moment.mean, (k, 1)), moment.covariance, ""
        ).gaussians(kind, 0.0)

        def clusters(name: str, labels: IndexArray, prior_rows: float) -> tuple[str, Gaussians]:
            return name, gaussians_of(centred, labels, like, context.floor, prior_rows)

        if k == 1 or len(data) > _FEW_ROWS:
            n_seeded = settings.n_starts
            if k == 1:
                n_seeded = 1
            elif not found:
                n_seeded = max(2 * settings.n_starts, 1)
            seeds = [seeded_labels(centred, k, rng) for _ in range(n_seeded)]
            return begun + [clusters("nearest centres", labels, np.inf) for labels in seeds]
        prior_rows, white = _PRIOR_ROWS * d, whitened(centred, moment)
        n_repeats = min(
            max(_FEW_NUMBERS // (len(data) * d), 1), max(_FEWEST_REPEATS, k), self.most_repeats
        )
        n_each = max(settings.n_starts, 1) * n_repeats
        for name, at, prior in (
            ("nearest centres", centred, np.inf),
            ("nearest centres", centred, prior_rows),
            ("nearest centres, whitened", white, prior_rows),
        ):
            begun += [clusters(name, seeded_labels(at, k, rng), prior) for _ in range(n_each)]
        return [*begun, clusters("shells", shell_labels(centred, k), prior_rows)]

    def learn(
        self, data: Any, context: MixtureContext, k: int, seed: int
    ) -> tuple[str, EMResult[Gaussians]]:
        """Return k components, and the name of their start.

        Components of the best start are swapped before EM runs over all rows: one is given up, and
        another cut in two.
        """
        rng = np.random.default_rng(seed)
        trial = self.trial(data, k, rng)
        with one_blas_thread():
            named = self.starts(data, trial, context, k, rng, seed)
            best, number = successive_halving(
                [start for _, start in named],
                lambda starts, max_iter: self.run_starts(starts, trial, context, max_iter),
                first_iter=self.first_iterations(len(trial)),
                degenerate=lambda params: self.degenerate(params, context),
            )
            name = named[number][0]
            if k > 2 and self.most_repeats > 1:
                swapped, n_gains = self._swapped(best, trial, context, rng)
                # What the trial rows reward, such as a narrow component, all rows may not.
                if n_gains and self._is_likelier(swapped, best, data, context):
                    best = swapped
                    name += f"; {n_gains} batches of swaps gained"
        found = self.run(self.step_on(data, context), best, context)
        return name, replace(found, params=self.ordered(found.params))

    def _is_likelier(
        self, one: Gaussians, other: Gaussians, data: Any, context: MixtureContext
    ) -> bool:
        """Return whether rows are likelier in one mixture than in another, after a few EM
        iterations of both.
        """
        step = self.step_on(data, context)
        begun = [em(step, each, max_iter=self.first_iter, tol=0.0) for each in (one, other)]
        return begun[0].log_likelihood > begun[1].log_likelihood

    def _swapped(
        self, best: Gaussians, trial: Any, context: MixtureContext, rng: np.random.Generator
    ) -> tuple[Gaussians, int]:
        """Return components after swaps, and how many batches of them gained."""
        k = len(best.weights)
        moment = second_moment(trial)
        centred = mapped(trial, lambda rows: filled(rows, moment.mean) - moment.mean)
        at = split(centred)[0] / np.sqrt(np.maximum(np.diagonal(moment.covariance), _MIN_VARIANCE))
        like = Start(best.weights, np.tile(moment.mean, (k, 1)), moment.covariance, "").gaussians(
            best.covariance_type, 0.0
        )
        (result,) = self.run_starts([best], trial, context, _SWAP_ITER)
        n_gains = 0
        failed = 0
        for _ in range(_SWAP_BATCHES):
            shares = self.posterior(result.params, split(trial)[0], context)[0]
            starts = [
                gaussians_of(
                    centred, swapped_labels(shares, at, rng), like, context.floor, _PRIOR_ROWS * k
                )
                for _ in range(_SWAPS)
            ]
            kept, _ = successive_halving(
                starts,
                lambda starts, max_iter: self.run_starts(starts, trial, context, max_iter),
                first_iter=self.first_iter,
                degenerate=lambda params: self.degenerate(params, context),
            )
            (swapped,) = self.run_starts([kept], trial, context, _SWAP_ITER)
            gain = (swapped.log_likelihood - result.log_likelihood) * count_rows(trial)
            if gain > _SWAP_NATS and not self.degenerate(swapped.params, context):
                result = swapped
                n_gains += 1
                failed = 0
                continue
            failed += 1
            if failed == _SWAP_PATIENCE:
                break
        return (result.params if n_gains else best), n_gains

    def degenerate(self, params: Gaussians, context: MixtureContext) -> bool:
        """Return whether a component is as flat as the variance floor allows: it sits on rows that
        are nearly equal.

        Columns with a spike do not count: in them, equal rows are a group.
        """
        columns = (
            ~context.spiked if context.spiked.size else np.ones(params.means.shape[1], dtype=bool)
        )
        if self.settings.reg_covar < np.finfo(np.float64).tiny:  # no floor, and nothing near it
            return False
        return (
            params.kind.lowest_share(params.covariances, np.asarray(context.floor), columns) < _FLAT
        )

    def run_starts(
        self, starts: list[Gaussians], trial: Any, context: MixtureContext, max_iter: int
    ) -> list[EMResult[Gaussians]]:
        """Run EM from many starts at once, as many as the caches hold; one by one if values are
        missing.
        """
        n_together = _NUMBERS_TOGETHER // max(len(trial) * len(starts[0].weights), 1)
        if n_together < 2 or has_missing(split(trial)[0]):
            return super().run_starts(starts, trial, context, max_iter)
        how: dict[str, Any] = {"max_iter": max_iter, "tol": self.settings.tol}
        parts = [starts[start : start + n_together] for start in range(0, len(starts), n_together)]
        return [each for part in parts for each in em_together(trial, part, context.floor, **how)]

    def first_iterations(self, n: int) -> int:
        """Return the number of iterations from every start before the less likely half is
        dropped.
        """
        return _FIRST_ITER_OF_FEW if n <= _FEW_ROWS else self.first_iter

    def selection_rows(self, data: Any, rng: np.random.Generator) -> tuple[Any, IndexArray]:
        """Return the rows by which k is selected, and their places in the folds; equal rows are in
        one fold.

        Where rows are repeated, a component for each of them would predict the held-out copies.
        """
        some, places = super().selection_rows(data, rng)
        _, first, number = np.unique(split(some)[0], axis=0, return_index=True, return_inverse=True)
        together = places[first[number.ravel()]]
        return some, together if np.unique(fold_numbers(together)).size == N_FOLDS else places

    def brief(self, n: float) -> Self:
        """Return the specification with fewer starts."""
        settings = super().brief(n).settings
        spec = type(self)(replace(settings, n_starts=min(settings.n_starts, _BRIEF_STARTS)))
        spec.most_repeats = 1
        return spec

    def posterior(
        self, params: Gaussians, block: FloatArray, context: MixtureContext
    ) -> tuple[FloatArray, FloatArray]:
        """Return the responsibilities of components for each row, and the log-density of each in
        its own units.
        """
        posterior, log_densities = params.posterior(block)
        return posterior, log_densities - context.log_volumes(block)

    def e_step(
        self,
        params: Gaussians,
        block: FloatArray,
        weights: FloatArray | None,
        context: MixtureContext,
    ) -> GaussianStatistics:
        """Return the sufficient statistics of a block of rows."""
        statistics, volumes = params.e_step(block, weights), context.log_volumes(block)
        total = float(times(volumes, weights).sum()) if np.ndim(volumes) else statistics.n * volumes
        return replace(statistics, log_likelihood=statistics.log_likelihood - total)

    def m_step(
        self, statistics: GaussianStatistics, params: Gaussians, context: MixtureContext
    ) -> Gaussians:
        """Return the Gaussians of the largest likelihood."""
        return params.m_step(statistics, context.floor)

    def n_parameters(self, params: Gaussians) -> int:
        """Return the number of free parameters."""
        return params.n_parameters

    def check_units(self, data: Any, fit: Fit, seed: int) -> None:
        """Warn if one column has nearly all of the variance, and components that do not depend on
        units are others.

        Those are found in standardised columns, each with its own variance within components. They
        must be likelier: if not, EM ended in a worse maximum, which says nothing about units.
        """
        k = len(fit.params.weights)
        if k == 1 or fit.context.scale.size or fit.params.covariance_type == "full":
            return  # the likelihood of covariance matrices is the same in all units
        some, weights = split(self.trial(data, k, np.random.default_rng(seed)))
        means, variances = column_moments(some, weights)

        def agreement() -> float:
            context = MixtureContext(scale=np.sqrt(np.where(variances > 0, variances, 1.0)))
            rows, kind = (some - means) / context.scale, fit.params.covariance_type
            scaled = with_weights(rows, weights)
            other = MixtureSpec(
                replace(self.settings, covariance_type="diag" if kind == "spherical" else kind)
            )
            params = other.learn(scaled, other.update_context(context, scaled), k, seed)[1].params
            own, own_scores = self.posterior(fit.params, some, fit.context)
            independent, scores = other.posterior(params, rows, context)
            if np.average(scores, weights=weights) < np.average(own_scores, weights=weights):
                return 1.0
            return float(adjusted_rand_score(own.argmax(axis=1), independent.argmax(axis=1)))

        warn_of_dominant_column(variances, self.names, k, agreement)

    def verify(self, state: Any) -> None:
        """Require covariances of one kind, with their floor, and one scale for each feature."""
        scale, params = state.context.scale, state.params
        require(
            scale.size == 0 or (params is not None and scale.size == params.means.shape[1]),
            "it must have a scale for each feature after a fit, or none",
        )
        if params is not None:
            kind = params.covariance_type
            is_asked = self.settings.covariance_type in (None, "auto", kind)
            require(is_asked, "its covariances must be of the kind that its settings name")
            several = np.ndim(state.context.floor) == 1
            require(
                several == (kind != "spherical"),
                "its variance floor must be of the kind of its covariances",
            )
            statistics = getattr(state, "statistics", None)
            require(
                statistics is None or kind_of(statistics.seconds) is state.params.kind,
                "its sums must be of the kind of its covariances",
            )

    def check_private(self) -> None:
        """Require what a private mixture can be."""
        check_private_units(self.settings.standardize, self.settings.norm_bound)
        if self.settings.columns:
            raise ValueError(
                "A private mixture is one of numbers. Got `columns`, which names other kinds. "
                "Leave it out."
            )

    def check_private_features(self, n_features: int) -> None:
        """Require that the third moment identifies the components."""
        k = int(self.settings.n_components)
        if k > n_features + 1:
            raise ValueError(
                "A private mixture has at most one component more than there are features: the "
                f"third moment identifies no more. Got n_components={k} and {n_features} "
                "features. Pass fewer."
            )

    def learn_privately(
        self, holder: Any, context: MixtureContext, releaser: Releaser, *, seed: int
    ) -> Fit:
        """Learn from three noisy sums over rows; of private rows "auto" means spheres, and not
        standardised.
        """
        k, settings = int(self.settings.n_components), self.settings
        asked = settings.covariance_type
        kind: CovarianceType = "spherical" if asked is None or asked == "auto" else asked
        model, scale, n_clear = find_private_mixture(
            holder,
            releaser,
            k,
            covariance_type=kind,
            standardize=settings.standardize is True,
            reg_covar=settings.reg_covar,
            seed=seed,
        )
        init = (
            f"noisy third moment; {n_clear} of {k} components stand clear of noise"
            if k > 1
            else "noisy mean"
        )
        info = Info(holder.n_records, n_iter=int(k > 1), converged=n_clear == k, init=init)
        floor = 0.0 if kind == "spherical" else np.zeros(holder.n_features)
        context = replace(
            context, floor=floor, scale=scale if settings.standardize is True else np.zeros(0)
        )
        return Fit(largest_first(model), context, info)

    def describe(
        self,
        fit: Fit,
        names: list[str],
        privacy: PrivacyReport | None,
        rows: FloatArray | None = None,
    ) -> Description:
        """Return the mixture in words and pictures."""
        return describe(
            fit, names, privacy, None if rows is None else self.prepare(rows, fit.context)
        )
