"""The specification of mixtures: rows of numbers, and tables with numbers, categories and counts.

Rows are encoded by `odeco.io.kinds`; rows of numbers are as they are. A component is a product of
parts (`odeco.models.emissions`): a Gaussian of its numbers, which are standardised, a Poisson
distribution of each count, and probabilities of the categories of each column.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.metrics import adjusted_rand_score

from odeco._util.state import array, require
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.io.rows import check_columns
from odeco.models.emissions.categorical import CategoricalPart
from odeco.models.emissions.covariances import COVARIANCE_TYPES, KINDS, CovarianceType
from odeco.models.emissions.product import Product, ProductMixture, ProductStatistics
from odeco.models.emissions.search import Search, TableEM
from odeco.models.engine.description import Description
from odeco.models.engine.em import EMResult, em
from odeco.models.engine.fit import Fit, Info
from odeco.models.engine.private import Releaser, check_private_units
from odeco.models.engine.rows import (
    column_moments,
    column_ranges,
    column_scale,
    count_rows,
    in_own_order,
    mapped,
    split,
    times,
    warn_of_dominant_column,
    weigh,
)
from odeco.models.engine.selection import N_FOLDS, fold_numbers
from odeco.models.engine.spec import EMSpec, some_rows
from odeco.models.gmm.context import MixtureContext
from odeco.models.gmm.display import describe
from odeco.models.gmm.groups import group_numbers, groups_sentence
from odeco.models.gmm.private import find_private_mixture
from odeco.privacy.report import PrivacyReport

#: Covariance matrices are used for at most this many numbers, and by default only if a component
#: has twice as many rows as numbers on average. While k is selected, this many components count.
_MOST_CORRELATED, _ROWS_PER_FEATURE, _COMPONENTS_TO_SELECT = 100, 2, 5

#: Means of numbers may depend on a category with at most this many values.
_FEW_CATEGORIES = 4

#: Weights that differ only behind this many digits are equal.
_DIGITS = 9

#: Kinds of components are compared with at most this many, as long as no number is worse by this.
_MOST_COMPARED, _WORSE = 8, 10.0

#: For the selection of k, this many starts, and no swaps.
_BRIEF_STARTS = 4

#: Of fewer iterations, none is extrapolated.
_LEAST_ITER = 4

#: What is expected of missing numbers in one component is iterated this often.
_ROUNDS_OF_GAPS = 20

#: The least difference of two values in a column is that in this number of rows, evenly spaced.
_SPACED_ROWS = 2_000


def _rounding_variances(numbers: FloatArray) -> FloatArray:
    """Return twice the variance of the rounding of each column, which is Δ²/12 if Δ is the least
    difference of two of its values (Sheppard 1898).

    A component is not narrower than that. Else the likelihood of a column of few values, such as 0
    and 1, would rise without end with a component for each value.
    """
    some = numbers[:: -(-len(numbers) // _SPACED_ROWS)]
    steps = [np.diff(np.unique(column[~np.isnan(column)])).min(initial=np.inf) for column in some.T]
    return np.where(np.isinf(steps), 0.0, steps) ** 2 / 6


class MixtureSpec(EMSpec):
    """Mixtures of rows of numbers, and of tables with several kinds of columns.

    Attributes
    ----------
    most_together : int
        All responsibilities are kept, and extrapolated, while there are at most this many.
    is_brief : bool
        Whether fewer starts are made, and no swaps.
    """

    Params: ClassVar = ProductMixture
    Statistics: ClassVar = ProductStatistics
    Context: ClassVar = MixtureContext
    trial_size: ClassVar[int] = 2_000
    mechanism = "second moment, whitened third moment, and an EM iteration"
    private_needs: ClassVar[tuple[str, ...]] = ("norm_bound",)
    most_together: ClassVar[int] = 2**19
    is_brief: bool = False

    settings: Any

    def check_rows(self, rows: Any, where: str, n_features: int) -> None:
        """Require encoded rows, in which NaN is missing."""
        array(None, "n_features", nan=True)(rows, where, {"n_features": n_features})

    def prepare(self, rows: FloatArray, context: MixtureContext) -> FloatArray:
        """Return encoded rows as the parts take them."""
        return context.block(rows)

    def fit_rows(self, rows: Any, base: MixtureContext, seed: int) -> Fit:
        """Return the mixture of encoded rows."""
        self.check_size(rows, self.settings.n_components)
        rows = in_own_order(rows)
        check_columns(split(rows)[0], self.names)
        contexts = self._contexts(rows, base)
        context = contexts[0]
        if len(contexts) > 1:
            some = some_rows(rows, self.selection_size, np.random.default_rng(seed))
            bics = [self._bic(some, each, seed) for each in contexts]
            context = contexts[int(np.argmin(bics))]
        data = mapped(rows, context.block)
        found = self.fit(data, self.update_context(context, data), seed)
        if not context.columns.are_numbers:
            return found
        self._warn_of_units(rows, base, found, seed)
        if self.settings.n_components != "auto":
            return found
        cautions = [*found.info.cautions.tolist(), *self._cautions(found, data, seed)]
        return replace(found, info=replace(found.info, cautions=np.array(cautions, dtype=np.str_)))

    def _contexts(self, rows: Any, base: MixtureContext) -> list[MixtureContext]:
        """Return what is compared: kinds of covariances, units of spheres, and categories on which
        means depend.
        """
        plain, weights = split(rows)
        if base.columns.is_empty:
            d = plain.shape[1]
            base = replace(base, centre=np.zeros(d))
        numbers = mapped(rows, lambda each: each[:, base.numbers])
        d = base.numbers.size
        if not d:
            return [replace(base, kind="diag")]
        deviations = np.asarray(column_scale(numbers, True))
        centre = column_moments(split(numbers)[0], weights)[0]
        rounding = _rounding_variances(split(numbers)[0])
        least = self.settings.reg_covar
        contexts = [
            replace(
                base,
                kind=kind,
                centre=centre,
                scale=scale,
                floor=np.maximum(rounding / scale**2, least),
            )
            for kind in self._kinds(len(plain), d)
            for scale in self._scales(kind, numbers, deviations, base.columns.are_numbers)
        ]
        if self.settings.covariance_type != "auto":
            return contexts
        few = [name for name, own in base.columns.categories.items() if own.size <= _FEW_CATEGORIES]
        located = [
            replace(each, located=name)
            for name in few
            for each in contexts
            if each.kind != "spherical"
        ]
        return contexts + located

    def _kinds(self, n: int, d: int) -> list[CovarianceType]:
        """Return the kinds of covariances that are compared."""
        settings = self.settings
        k = _COMPONENTS_TO_SELECT if settings.n_components == "auto" else settings.n_components
        correlated = 1 < d <= _MOST_CORRELATED and n >= _ROWS_PER_FEATURE * k * d
        if settings.covariance_type is None:
            return ["full" if correlated else "diag"]
        if settings.covariance_type != "auto":
            return [settings.covariance_type]
        if d < 2:
            return ["diag"]
        return list(COVARIANCE_TYPES) if correlated else list(COVARIANCE_TYPES[:-1])

    def _scales(
        self, kind: str, numbers: Any, deviations: FloatArray, are_all: bool
    ) -> list[FloatArray]:
        """Return what numbers may be divided by: their own standard deviations, or one for all
        columns, which leaves spheres what they are.
        """
        asked = self.settings.standardize
        if kind != "spherical" or asked is True or not are_all:
            return [deviations]
        varies = column_ranges(split(numbers)[0]) > 0
        common = math.sqrt(np.mean(np.where(varies, deviations, 0.0) ** 2)) or 1.0
        scales = [np.full(deviations.size, common)]
        if asked == "auto" and column_scale(numbers, "auto") is not None:
            scales.append(deviations)
        return scales

    def _bic(self, rows: Any, context: MixtureContext, seed: int) -> float:
        """Return the Bayesian information criterion of the number of components that is asked for;
        of the best number, if none is. Lower is better.
        """
        data = mapped(rows, context.block)
        known = self.update_context(context, data)
        n = count_rows(data)
        brief = self.brief(n)
        asked = self.settings.n_components
        most = min(_MOST_COMPARED, max(len(data) // self.rows_per_component, 1))
        best = np.inf
        for k in range(1, most + 1) if asked == "auto" else [asked]:
            found = brief.learn(data, known, k, seed)[1]
            penalty = self.n_parameters(found.params) * math.log(n)
            bic = penalty - 2 * n * found.log_likelihood
            if bic > best + _WORSE:
                break
            best = min(bic, best)
        return best

    def _cautions(self, found: Fit, data: Any, seed: int) -> list[str]:
        """Return what speaks against taking each selected component for a group."""
        some, weights = split(some_rows(data, self.selection_size, np.random.default_rng(seed)))
        model = found.context.gaussians(found.params)
        posterior = self.posterior(found.params, some, found.context)[0]
        fewest, most = group_numbers(model, some, posterior, weights)
        return [groups_sentence(fewest, most)] if fewest < len(model.weights) else []

    def _warn_of_units(self, rows: Any, base: MixtureContext, found: Fit, seed: int) -> None:
        """Warn if one column has nearly all of the variance, and components that do not depend on
        units are others.

        Those have their own variance of each column within components. They must be likelier: if
        not, EM ended in a worse maximum, which says nothing about units.
        """
        k = found.params.weights.size
        if k == 1 or found.context.kind != "spherical" or found.context.is_standardized:
            return
        some = self.trial(rows, k, np.random.default_rng(seed))
        plain, weights = split(some)

        def agreement() -> float:
            settings = replace(self.settings, covariance_type="diag", n_components=k)
            other = type(self)(settings).fit_rows(some, base, seed)
            (own, own_scores), (independent, scores) = (
                self.posterior(each.params, each.context.block(plain), each.context)
                for each in (found, other)
            )
            if np.average(scores, weights=weights) < np.average(own_scores, weights=weights):
                return 1.0
            return float(adjusted_rand_score(own.argmax(axis=1), independent.argmax(axis=1)))

        variances = column_moments(plain, weights)[1]
        warn_of_dominant_column(variances, self.names, k, agreement)

    @property
    def n_starts(self) -> int:
        """The number of starts that compete."""
        return _BRIEF_STARTS if self.is_brief else 2 * self.settings.n_starts + 2

    @property
    def covariance_type(self) -> str | None:
        """The kind of covariances that is asked for."""
        asked: str | None = self.settings.covariance_type
        return asked

    def update_context(self, context: MixtureContext, data: Any) -> MixtureContext:
        """Return the context with the mean features of the first rows."""
        if context.prior.size:
            return context
        block, weights = split(data)
        shares = np.ones((len(block), 1)) if weights is None else weights[:, None]
        one = context.template()
        has_gaps = context.kind == "full" and bool(np.isnan(block[:, : context.scale.size]).any())
        for _ in range(_ROUNDS_OF_GAPS if has_gaps else 1):
            sums = one.sums(block, shares)
            one = one.m_step(sums, context.floor)
        return replace(context, prior=sums[:, 0] / count_rows(data))

    def _one(self, context: MixtureContext) -> Product:
        """Return one component, that of all rows."""
        return context.template().m_step(context.prior[:, None], context.floor)

    def _em(self, data: Any, context: MixtureContext) -> TableEM:
        smoothing = self.settings.smoothing
        return TableEM.of(data, self._one(context), context.prior, smoothing, context.floor)

    def learn(
        self, data: Any, context: MixtureContext, k: int, seed: int
    ) -> tuple[str, EMResult[ProductMixture]]:
        """Return k components, and the name of their start."""
        rng = np.random.default_rng(seed)
        if k == 1:
            # The context may be that of more rows, among them those that are held out.
            own = self.update_context(replace(context, prior=np.zeros(0)), data)
            one = ProductMixture(self._one(own).parts, np.ones(1))
            return "all rows", EMResult(one, self._mean_likelihood(one, data, context), 0, True)
        with one_blas_thread():
            em_of_trial = self._em(self.trial(data, k, rng), context)
            search = Search.of(em_of_trial, k, rng)
            shares, name = search.best(self.n_starts, with_swaps=not self.is_brief)
            found = self.run_from(em_of_trial.mixture(shares), data, context)
        return name, replace(found, params=self.ordered(found.params))

    def run_from(
        self, start: ProductMixture, data: Any, context: MixtureContext
    ) -> EMResult[ProductMixture]:
        """Run EM over all rows, block by block; if they are few, with SQUAREM first."""
        settings = self.settings
        max_iter = settings.max_iter
        done = 0
        if len(data) * start.weights.size <= self.most_together and max_iter > _LEAST_ITER:
            em_of_rows = self._em(data, context)
            shares = start.posterior(em_of_rows.block)[0]
            nats = settings.tol * count_rows(data)
            rounds = (max_iter - _LEAST_ITER) // 3 + 1
            found, _, done, _ = em_of_rows.run(shares[:, None], rounds, nats)
            start = em_of_rows.mixture(found[:, 0])
        rest = em(self.step_on(data, context), start, max_iter=max_iter - done, tol=settings.tol)
        return replace(rest, n_iter=done + rest.n_iter)

    def _mean_likelihood(self, params: ProductMixture, data: Any, context: MixtureContext) -> float:
        block, weights = split(data)
        scores = [self.posterior(params, some, context)[1] for some in self.blocks(block)]
        return float(times(np.concatenate(scores), weights).sum()) / count_rows(data)

    def posterior(
        self, params: ProductMixture, block: FloatArray, context: MixtureContext
    ) -> tuple[FloatArray, FloatArray]:
        """Return the responsibilities of components for each row, and the log-density of each in
        its own units.
        """
        shares, likelihoods = params.posterior(block)
        return shares, likelihoods - context.log_volumes(block)

    def e_step(
        self,
        params: ProductMixture,
        block: FloatArray,
        weights: FloatArray | None,
        context: MixtureContext,
    ) -> ProductStatistics:
        """Return the sufficient statistics of a block of rows."""
        n, total, shares = weigh(*self.posterior(params, block, context), weights)
        return ProductStatistics(n, total, shares.sum(axis=0), params.sums(block, shares))

    def m_step(
        self, statistics: ProductStatistics, params: ProductMixture, context: MixtureContext
    ) -> ProductMixture:
        """Return the components of the largest posterior probability."""
        n_prior = self.settings.smoothing * float(params.share_within(params.weights[None])[0])
        sums = statistics.sums + n_prior * context.prior[:, None]
        counts = statistics.counts + max(n_prior, float(np.finfo(np.float64).tiny))
        made = params.m_step(sums, context.floor)
        return replace(made, weights=counts / counts.sum())

    def ordered(self, params: ProductMixture) -> ProductMixture:
        """Return the largest component first; of those that are equally large, the one with the
        lower sums, so that their order does not depend on rounding errors.
        """
        numbers = params.numbers
        keys = [np.round(-params.weights, _DIGITS)]
        if numbers is not None:
            keys.insert(0, numbers.means.sum(axis=1))
        return params.permuted(np.lexsort(keys))

    def n_parameters(self, params: ProductMixture) -> int:
        """Return the number of free parameters."""
        return params.weights.size * (1 + params.n_parameters) - 1

    def brief(self, n: float) -> Self:
        """Return the specification with fewer starts, and without swaps."""
        spec = super().brief(n)
        spec.is_brief = True
        return spec

    def selection_rows(self, data: Any, rng: np.random.Generator) -> tuple[Any, IndexArray]:
        """Return the rows by which k is selected, and their places in the folds; equal rows with
        numbers are in one fold.

        Where rows are repeated, a component for each of them would predict the held-out copies.
        """
        some, places = super().selection_rows(data, rng)
        plain = split(some)[0]
        if not np.any(plain % 1):  # counts and categories alone
            return some, places
        _, first, number = np.unique(plain, axis=0, return_index=True, return_inverse=True)
        together = places[first[number.ravel()]]
        return some, together if np.unique(fold_numbers(together)).size == N_FOLDS else places

    def verify(self, state: Any) -> None:
        """Require components, sums and codes that go with the columns."""
        context = state.context
        columns = context.columns
        sizes = np.array([own.size for own in columns.categories.values()])
        rows = np.asarray(getattr(state, "buffer", np.zeros((0, columns.names.size))))
        codes = rows[:, columns.places("category")]
        whole = np.isnan(codes) | ((codes >= 0) & (codes < sizes) & (codes % 1 == 0))
        require(bool(whole.all()), "the codes in its buffer must be those of categories")
        is_known = context.located in ("", *columns.categories)
        require(is_known, "the column on which means depend must be one of categories")
        if state.params is None:
            return
        is_scaled = context.numbers.size == context.centre.size
        require(is_scaled, "it must have a centre and a scale for each column of numbers")
        require(context.kind in KINDS, "its covariances must be of a known kind")
        is_asked = self.covariance_type in (None, "auto", context.kind)
        require(is_asked, "its covariances must be of the kind that its settings name")
        like = context.template()
        require(
            _shapes(state.params) == _shapes(like),
            "its components must have a part for each kind of its columns",
        )
        categories = state.params.part(CategoricalPart)
        own = [columns.categories[name].size for name in context.order[bool(context.located) :]]
        require(
            categories is None or categories.sizes.tolist() == own,
            "its components must have the categories of its columns",
        )
        require(context.prior.size == like.n_sums, "it must have mean features of its rows")
        statistics = getattr(state, "statistics", None)
        require(
            statistics is None or len(statistics.sums) == like.n_sums,
            "its sums must go with its columns",
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
        settings = self.settings
        k = int(settings.n_components)
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
        init = "noisy mean"
        if k > 1:
            init = f"noisy third moment; {n_clear} of {k} components stand clear of noise"
        info = Info(holder.n_records, n_iter=int(k > 1), converged=n_clear == k, init=init)
        zeros = np.zeros(holder.n_features)
        context = replace(context, centre=zeros, scale=scale, floor=zeros, kind=kind)
        context = replace(context, prior=np.zeros(context.template().n_sums))
        params = ProductMixture((model.part,), model.weights)
        return Fit(self.ordered(params), context, info)

    def describe(
        self,
        fit: Fit,
        names: list[str],
        privacy: PrivacyReport | None,
        rows: FloatArray | None = None,
    ) -> Description:
        """Return the mixture in words and pictures."""
        return describe(fit, names, privacy, None if rows is None else fit.context.block(rows))


def _shapes(product: Product) -> list[tuple[Any, list[tuple[int, ...]]]]:
    """Return the type of each part, and the shapes of its parameters of one component."""
    return [
        (type(part), [np.shape(getattr(part, each.name))[1:] for each in fields(part)])
        for part in product.parts
    ]
