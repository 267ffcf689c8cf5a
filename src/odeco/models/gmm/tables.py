"""The specification of mixtures of tables: numbers, categories, counts and gaps together.

Rows are encoded by `odeco.io.kinds`. A component is a product of parts (`odeco.models.emissions`):
a Gaussian of its numbers, which are standardised, a Poisson distribution of each count, and
probabilities of the categories of each column.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from odeco._util.state import State, array, array_field, part_field, require
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.io.kinds import Columns
from odeco.io.rows import check_columns
from odeco.models.emissions.categorical import CategoricalPart
from odeco.models.emissions.covariances import COVARIANCE_TYPES, KINDS, CovarianceType
from odeco.models.emissions.gaussians import Gaussians, draw_labels
from odeco.models.emissions.located import LocatedPart
from odeco.models.emissions.normal import GaussianPart
from odeco.models.emissions.parts import Part
from odeco.models.emissions.poisson import PoissonPart
from odeco.models.emissions.product import Product, ProductMixture, ProductStatistics
from odeco.models.emissions.search import Search, TableEM
from odeco.models.engine.description import Description
from odeco.models.engine.em import EMResult, em
from odeco.models.engine.fit import Fit
from odeco.models.engine.rows import (
    MAX_SCALE,
    MIN_SCALE,
    column_moments,
    column_scale,
    count_rows,
    in_own_order,
    mapped,
    split,
    times,
    weigh,
)
from odeco.models.engine.spec import EMSpec, some_rows
from odeco.models.gmm.table_display import describe_table
from odeco.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from odeco.models.gmm.estimator import TensorMixture

#: Covariance matrices are used for at most this many numbers, and by default only if a component
#: has twice as many rows as numbers on average. While k is selected, this many components count.
_MOST_CORRELATED, _ROWS_PER_FEATURE, _COMPONENTS_TO_SELECT = 100, 2, 5

#: Means of numbers may depend on a category with at most this many values.
_FEW_VALUES = 4

#: Kinds of components are compared with at most this many, as long as no number is worse by this.
_MOST_COMPARED, _WORSE = 8, 10.0

#: For the selection of k, this many starts, and no swaps.
_BRIEF_STARTS = 4

#: All responsibilities are kept while there are at most this many; else EM goes block by block.
_MOST_NUMBERS = 2**21

#: What is expected of missing numbers in one component is iterated this often.
_ROUNDS_OF_GAPS = 20


@dataclass(frozen=True, eq=False)
class TableContext(State):
    """What belongs to the rows.

    Attributes
    ----------
    columns : Columns
        What the columns of the table are.
    centre, scale : array
        What is subtracted from numbers, and what they are divided by then; empty before any row.
    kind : str
        The kind of the covariances of the numbers; empty before any row.
    located : str
        The column of categories on which the means of numbers depend; empty for none.
    prior : array
        The mean features of all rows; empty before any row.
    """

    columns: Columns = part_field(Columns)
    centre: FloatArray = array_field(None, default=np.zeros(0))
    scale: FloatArray = array_field(None, low=MIN_SCALE, high=MAX_SCALE, default=np.zeros(0))
    kind: str = array_field(kind="U", default="")
    located: str = array_field(kind="U", default="")
    prior: FloatArray = array_field(None, default=np.zeros(0))

    @cached_property
    def order(self) -> list[str]:
        """The names of the columns of categories in the order of a block: the located one first."""
        return sorted(self.columns.categories, key=lambda name: name != self.located)

    @cached_property
    def _layout(self) -> list[tuple[IndexArray, int]]:
        """The places of columns in rows, in the order of a block, and the width of each: one for a
        number or a count, else the number of categories.
        """
        columns = self.columns
        names = columns.names.tolist()
        marked = [
            (np.array([names.index(name)]), columns.categories[name].size) for name in self.order
        ]
        first = 1 if self.located else 0
        numbers = (columns.places("number"), 1)
        counts = (columns.places("count"), 1)
        return [numbers, *marked[:first], counts, *marked[first:]]

    def block(self, rows: FloatArray) -> FloatArray:
        """Return encoded rows as the parts take them: numbers, counts, indicators."""
        made: list[FloatArray] = []
        for places, width in self._layout:
            cells = rows[:, places]
            made.append(cells if width == 1 else (cells == np.arange(width)).astype(np.float64))
        made[0] = (made[0] - self.centre) / self.scale
        return np.hstack(made)

    def rows(self, block: FloatArray) -> FloatArray:
        """Return a block as encoded rows."""
        rows = np.empty((len(block), self.columns.names.size))
        start = 0
        for places, width in self._layout:
            own = block[:, start : start + places.size * width]
            rows[:, places] = own if width == 1 else own.argmax(axis=1)[:, None]
            start += places.size * width
        numbers = self.columns.places("number")
        rows[:, numbers] = self.centre + self.scale * rows[:, numbers]
        return rows

    def template(self) -> Product:
        """Return one component, whose parameters mean nothing."""
        kind: Any = self.kind
        d = self.centre.size
        n_counts = self.columns.places("count").size
        sizes = [self.columns.categories[name].size for name in self.order]
        parts: list[Part] = []
        if self.located:
            parts.append(LocatedPart.standard(d, kind, sizes.pop(0)))
        elif d:
            parts.append(GaussianPart.standard(d, kind))
        if n_counts:
            parts.append(PoissonPart(np.ones((1, n_counts))))
        if sizes:
            parts.append(CategoricalPart.uniform(np.array(sizes)))
        return Product(tuple(parts))

    def probabilities(self, params: ProductMixture) -> dict[str, FloatArray]:
        """Return the probabilities of the categories of each column, k x categories."""
        shares: list[FloatArray] = []
        located = params.part(LocatedPart)
        if located is not None:
            shares.append(located.chances)
        categories = params.part(CategoricalPart)
        if categories is not None:
            shares += np.split(categories.probabilities, categories.offsets[1:], axis=1)
        found = dict(zip(self.order, shares, strict=True))
        return {name: found[name] for name in self.columns.categories}

    def log_volumes(self, block: FloatArray) -> FloatArray:
        """Return the logarithm of the product of the scales of the observed numbers of each row."""
        return np.asarray(~np.isnan(block[:, : self.scale.size]) @ np.log(self.scale))

    def in_own_units(self, params: ProductMixture) -> Gaussians:
        """Return the Gaussians of the numbers, in the units of the rows."""
        located = params.part(LocatedPart)
        numbers = params.part(GaussianPart) if located is None else located.marginal
        k = params.weights.size
        if numbers is None:
            return Gaussians(params.weights, np.zeros((k, 0)), np.ones((k, 0)))
        gaussians = Gaussians(params.weights, numbers.means, numbers.covariances)
        scaled = gaussians.rescaled(self.scale)
        return replace(scaled, means=scaled.means + self.centre)


class TableSpec(EMSpec):
    """Mixtures of tables with several kinds of columns."""

    Params: ClassVar = ProductMixture
    Statistics: ClassVar = ProductStatistics
    Context: ClassVar = TableContext
    trial_size: ClassVar[int] = 2_000
    is_brief: bool = False

    settings: TensorMixture

    def check_rows(self, rows: Any, where: str, n_features: int) -> None:
        """Require encoded rows, in which NaN is missing."""
        array(None, "n_features", nan=True)(rows, where, {"n_features": n_features})

    def prepare(self, rows: FloatArray, context: TableContext) -> FloatArray:
        """Return encoded rows as the parts take them."""
        return context.block(rows)

    def fit_rows(self, rows: Any, base: TableContext, seed: int) -> Fit:
        """Return the mixture of encoded rows."""
        rows = in_own_order(rows)
        check_columns(split(rows)[0], self.names)
        contexts = self._contexts(rows, base)
        context = contexts[0]
        if len(contexts) > 1:
            some = some_rows(rows, self.selection_size, np.random.default_rng(seed))
            bics = [self._bic(some, each, seed) for each in contexts]
            context = contexts[int(np.argmin(bics))]
        data = mapped(rows, context.block)
        return self.fit(data, self.update_context(context, data), seed)

    def _bic(self, rows: Any, context: TableContext, seed: int) -> float:
        """Return the Bayesian information criterion of the number of components that is asked for;
        of the best number, if none is. Lower is better.
        """
        data = mapped(rows, context.block)
        known = self.update_context(context, data)
        n = count_rows(data)
        brief = self.brief(n)
        asked = self.settings.n_components
        best = np.inf
        for k in range(1, _MOST_COMPARED + 1) if asked == "auto" else [asked]:
            found = brief.learn(data, known, k, seed)[1]
            penalty = self.n_parameters(found.params) * math.log(n)
            bic = penalty - 2 * n * found.log_likelihood
            if bic > best + _WORSE:
                break
            best = min(bic, best)
        return best

    def _contexts(self, rows: Any, base: TableContext) -> list[TableContext]:
        """Return what is compared: kinds of covariances, and categories on which means depend."""
        plain, weights = split(rows)
        places = base.columns.places("number")
        numbers = mapped(rows, lambda each: each[:, places])
        scale = centre = np.zeros(0)
        if places.size:
            scale = np.asarray(column_scale(numbers, True))
            centre = column_moments(plain[:, places], weights)[0]
        scaled = replace(base, centre=centre, scale=scale)
        contexts = [replace(scaled, kind=kind) for kind in self._kinds(len(plain), places.size)]
        if self.settings.covariance_type != "auto" or not places.size:
            return contexts
        few = [name for name, own in base.columns.categories.items() if own.size <= _FEW_VALUES]
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

    def update_context(self, context: TableContext, data: Any) -> TableContext:
        """Return the context with the mean features of the first rows."""
        if context.prior.size:
            return context
        block, weights = split(data)
        shares = np.ones((len(block), 1)) if weights is None else weights[:, None]
        one = context.template()
        has_gaps = context.kind == "full" and bool(np.isnan(block[:, : context.scale.size]).any())
        for _ in range(_ROUNDS_OF_GAPS if has_gaps else 1):
            sums = one.sums(block, shares)
            one = one.m_step(sums, self.settings.reg_covar)
        return replace(context, prior=sums[:, 0] / count_rows(data))

    def _one(self, context: TableContext) -> Product:
        """Return one component, that of all rows."""
        return context.template().m_step(context.prior[:, None], self.settings.reg_covar)

    def _em(self, data: Any, context: TableContext) -> TableEM:
        settings = self.settings
        one = self._one(context)
        return TableEM.of(data, one, context.prior, settings.smoothing, settings.reg_covar)

    def starts(
        self,
        data: Any,  # noqa: ARG002 - of all models
        trial: Any,
        context: TableContext,
        k: int,
        rng: np.random.Generator,
        seed: int,  # noqa: ARG002 - of all models
    ) -> list[tuple[str, ProductMixture]]:
        """Return the best components of some rows, which several starts and swaps find."""
        em_of_trial = self._em(trial, context)
        n_starts = _BRIEF_STARTS if self.is_brief else 2 * self.settings.n_starts + 2
        search = Search.of(em_of_trial, k, rng)
        shares, name = search.best(n_starts, with_swaps=not self.is_brief)
        return [(name, em_of_trial.mixture(shares))]

    def learn(
        self, data: Any, context: TableContext, k: int, seed: int
    ) -> tuple[str, EMResult[ProductMixture]]:
        """Return k components, and the name of their start."""
        rng = np.random.default_rng(seed)
        if k == 1:
            one = ProductMixture(self._one(context).parts, np.ones(1))
            return "all rows", EMResult(one, self._mean_likelihood(one, data, context), 0, True)
        with one_blas_thread():
            trial = self.trial(data, k, rng)
            (name, start), *_ = self.starts(data, trial, context, k, rng, seed)
            found = self.run_from(start, data, context)
        return name, replace(found, params=self.ordered(found.params))

    def run_from(
        self, start: ProductMixture, data: Any, context: TableContext
    ) -> EMResult[ProductMixture]:
        """Run EM over all rows: with SQUAREM if they are few, else block by block."""
        settings = self.settings
        if len(data) * start.weights.size > _MOST_NUMBERS:
            step = self.step_on(data, context)
            return em(step, start, max_iter=settings.max_iter, tol=settings.tol)
        em_of_rows = self._em(data, context)
        shares = start.posterior(em_of_rows.block)[0]
        rounds = max(settings.max_iter // 3, 1)
        nats = settings.tol * count_rows(data)
        found, _, n_iter, converged = em_of_rows.run(shares[:, None], rounds, nats)
        params = em_of_rows.mixture(found[:, 0])
        likelihood = self._mean_likelihood(params, data, context)
        return EMResult(params, likelihood, n_iter, converged)

    def _mean_likelihood(self, params: ProductMixture, data: Any, context: TableContext) -> float:
        block, weights = split(data)
        scores = [self.posterior(params, some, context)[1] for some in self.blocks(block)]
        return float(times(np.concatenate(scores), weights).sum()) / count_rows(data)

    def posterior(
        self, params: ProductMixture, block: FloatArray, context: TableContext
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
        context: TableContext,
    ) -> ProductStatistics:
        """Return the sufficient statistics of a block of rows."""
        n, total, shares = weigh(*self.posterior(params, block, context), weights)
        return ProductStatistics(n, total, shares.sum(axis=0), params.sums(block, shares))

    def m_step(
        self, statistics: ProductStatistics, params: ProductMixture, context: TableContext
    ) -> ProductMixture:
        """Return the components of the largest posterior probability."""
        smoothing = self.settings.smoothing
        sums = statistics.sums + smoothing * context.prior[:, None]
        counts = statistics.counts + max(smoothing, float(np.finfo(np.float64).tiny))
        made = params.m_step(sums, self.settings.reg_covar)
        return replace(made, weights=counts / counts.sum())

    def n_parameters(self, params: ProductMixture) -> int:
        """Return the number of free parameters."""
        return params.weights.size * (1 + params.n_parameters) - 1

    def brief(self, n: float) -> Self:
        """Return the specification with fewer starts, and without swaps."""
        spec = super().brief(n)
        spec.is_brief = True
        return spec

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
        n_numbers = columns.places("number").size
        is_scaled = n_numbers == context.centre.size == context.scale.size
        require(is_scaled, "it must have a centre and a scale for each column of numbers")
        require(context.kind in KINDS, "its covariances must be of a known kind")
        like = context.template()
        given = [(type(part), part.width, part.n_sums) for part in state.params.parts]
        wanted = [(type(part), part.width, part.n_sums) for part in like.parts]
        require(given == wanted, "its components must have a part for each kind of its columns")
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

    def describe(
        self,
        fit: Fit,
        names: list[str],
        privacy: PrivacyReport | None,  # noqa: ARG002 - of all models; a table is never private
        rows: FloatArray | None = None,  # noqa: ARG002 - of all models
    ) -> Description:
        """Return the mixture in words and pictures."""
        return describe_table(fit, names)


def draw_rows_of_table(fit: Fit, n_rows: int, random: Any) -> tuple[FloatArray, IndexArray]:
    """Draw encoded rows, and return them with the component of each."""
    labels = draw_labels(fit.params.weights, n_rows, random)
    return fit.context.rows(fit.params.draw(labels, random)), labels
