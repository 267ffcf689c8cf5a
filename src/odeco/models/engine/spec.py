"""Specifications: what a model says about itself. The engine does everything else.

Level A, `Spec`: any model. It fits data, describes a fit, and may have a stream. Level B, `EMSpec`:
a model with sufficient statistics. It gives starts, a posterior, an E step and an M step; fit,
stream and the choice of k follow. Everything with a default may be replaced by a method of the
model. There are no flags.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from odeco._util.state import State, array
from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import BoolArray, FloatArray, IndexArray
from odeco.models.engine.em import EMResult, Step, em, successive_halving
from odeco.models.engine.fit import Fit, Info, NoContext, Statistics, largest_first
from odeco.models.engine.rows import blocks_of, count_rows, mapped, own_order, split, times
from odeco.models.engine.selection import KSelection, Learn, fold_numbers, select_number
from odeco.models.engine.stream import LINEAR, BlockStream, Forgetting, OnlineEM
from odeco.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from odeco.models.engine.description import Description
    from odeco.models.engine.private import Releaser
    from odeco.online.halves import SplitHalf
    from odeco.privacy.report import PrivacyReport

#: For the selection of k, EM ends when an iteration raises the log-likelihood of all rows by less.
_SELECTION_NATS = 0.02


def some_rows(rows: Any, size: int, rng: np.random.Generator) -> Any:
    """Return `size` rows, drawn at random; all of them if there are no more.

    Which rows are drawn does not depend on the order in which they are listed.
    """
    if len(rows) <= size:
        return rows
    return rows[own_order(rows)[np.sort(rng.choice(len(rows), size, replace=False, shuffle=False))]]


class Spec:
    """Level A: what the estimator needs of any model.

    Attributes
    ----------
    Params, Context : types of State
        What is learnt, and what the data bring along (categories, vocabulary, variance floor).
    Stream : type of BlockStream or None
        The stream of the model, if it can learn in one pass.
    first_block, next_block : int
        Number of rows of the first block of a stream, and of each further one.
    record : str
        What a row is called: "row", "respondent", "sequence".
    component : str
        What a component is called: "component", "class", "state".
    settings : Estimator
        A copy of the estimator with checked parameters, fixed for the life of a stream.
    names : sequence of str
        The names of the columns, for warnings; none if rows have none.
    callback : callable or None
        Receives the stage of a fit, the number of finished steps and that of all steps.
    """

    Params: ClassVar[type[State]]
    Context: ClassVar[type[State]] = NoContext
    Stream: ClassVar[type[BlockStream] | None] = None
    first_block: ClassVar[int] = 20_000
    next_block: ClassVar[int] = 8192
    record: ClassVar[str] = "row"
    component: ClassVar[str] = "component"

    #: A private model gives `learn_privately`, and the name of its mechanism for `PrivacyReport`;
    #: these parameters are needed beside those of its kind of guarantee. It protects a record,
    #: unless it says whom, and which change it hides.
    mechanism: ClassVar[str]
    Guarantee: ClassVar[type[Guarantee]] = Guarantee
    private_needs: ClassVar[tuple[str, ...]] = ()
    protected: ClassVar[str] = ""
    neighbours: ClassVar[str] = ""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.names: Any = ()
        self.callback: Any = None

    @classmethod
    def parts(cls) -> dict[str, type[State]]:
        """Return the types of those parts of a file that differ between models, by the names of
        their fields.
        """
        return {"params": cls.Params, "context": cls.Context}

    def check_rows(self, rows: Any, where: str, n_features: int) -> None:
        """Raise `ValueError` unless the buffered rows of a stream in a file have the form that
        `_encode` returns.
        """
        array(None, "n_features")(rows, where, {"n_features": n_features})

    def prepare(self, rows: Any, context: Any) -> Any:
        """Return rows, which are what a stream buffers, as the fit needs them (indicators, sparse
        rows).
        """
        return rows

    @abstractmethod
    def fit(self, data: Any, base: Any, seed: int) -> Fit:
        """Return the model of prepared data; `base` is the context before any row."""

    @abstractmethod
    def describe(
        self, fit: Fit, names: list[str], privacy: PrivacyReport | None, rows: Any = None
    ) -> Description:
        """Return what there is to say and to draw about a fit; `rows` are optional rows to draw
        with it.
        """

    def fit_rows(self, rows: Any, base: Any, seed: int) -> Fit:
        """Return the model of rows, and warn if it depends on the units of columns."""
        data = mapped(rows, lambda plain: self.prepare(plain, base))
        fit = self.fit(data, base, seed)
        self.check_units(data, fit, seed)
        return fit

    def check_units(self, data: Any, fit: Fit, seed: int) -> None:
        """Warn if a fit to these data depends on the units of columns."""

    def verify(self, state: Any) -> None:
        """Raise `ValueError` if the parts of a fit or a stream from an untrusted file contradict
        each other.
        """

    def check_private(self) -> None:
        """Raise `ValueError` if a private model cannot have these settings."""

    def check_private_features(self, n_features: int) -> None:
        """Raise `ValueError` if a private model cannot be learnt from this number of features,
        which is public.
        """

    def learn_privately(self, holder: Any, context: Any, releaser: Releaser, *, seed: int) -> Fit:
        """Learn from what `releaser` releases of the queries of a data holder, and from nothing
        else.
        """
        raise NotImplementedError


class Learnt:
    """All that an estimator has learnt. It is replaced as a whole, so an interrupt finds all of it
    or nothing.

    The fit of a stream is computed when it is needed, and stored here. Rows that come meanwhile go
    to another object, so the fit stored in this one is always that of the stream in this one.
    """

    def __init__(
        self,
        spec: Spec,
        seed: int,
        fit: Fit | None,
        stream: BlockStream | None,
        privacy: PrivacyReport | None = None,
        halves: SplitHalf | None = None,
    ) -> None:
        self.spec = spec
        self.seed = seed
        self.computed = fit
        self.stream = stream
        self.privacy = privacy
        self.halves = halves

    @property
    def fit(self) -> Fit:
        """The fitted model."""
        if self.computed is None and self.stream is not None:
            self.computed = self.stream.result(self.spec)
        return self.computed  # type: ignore[return-value]


class EMSpec(Spec):
    """Level B: a model with sufficient statistics.

    Attributes
    ----------
    Statistics : type of Statistics
        The sufficient statistics.
    block_size : int
        Rows that are worked on at a time.
    trial_size : int
        Starts compete on this many rows, or on 200 for each component if that is more.
    first_iter : int
        Iterations from every start before the less likely half is dropped.
    max_auto, rows_per_component, selection_size : int
        With ``n_components="auto"``: the largest k that is tried, the smallest number of rows for
        each component, and the largest number of rows by which k is selected.
    forgetting : Forgetting
        How a stream forgets.
    """

    Statistics: ClassVar[type[Statistics]]
    Stream: ClassVar[type[BlockStream] | None] = OnlineEM
    block_size: ClassVar[int] = 8192
    trial_size: ClassVar[int] = 5_000
    first_iter: ClassVar[int] = 5
    max_auto: ClassVar[int] = 50
    rows_per_component: ClassVar[int] = 5
    selection_size: ClassVar[int] = 15_000
    forgetting: ClassVar[Forgetting] = LINEAR

    @classmethod
    def parts(cls) -> dict[str, type[State]]:
        """Return the types of those parts of a file that differ between models."""
        return super().parts() | {"statistics": cls.Statistics, "average": cls.Statistics}

    @abstractmethod
    def starts(
        self, data: Any, trial: Any, context: Any, k: int, rng: np.random.Generator, seed: int
    ) -> list[tuple[str, Any]]:
        """Return starts, each with its name; `trial` are the rows on which they will compete."""

    @abstractmethod
    def posterior(self, params: Any, block: Any, context: Any) -> tuple[FloatArray, FloatArray]:
        """Return the responsibility of each component for each row, and the log-likelihood of each
        row.
        """

    @abstractmethod
    def e_step(self, params: Any, block: Any, weights: FloatArray | None, context: Any) -> Any:
        """Return the sufficient statistics of a block of rows with these weights (`weigh`), or
        without any.
        """

    @abstractmethod
    def m_step(self, statistics: Any, params: Any, context: Any) -> Any:
        """Return the likeliest parameters for statistics; `params` are those of the E step."""

    def n_parameters(self, params: Any) -> int:
        """Return the number of free parameters, for `aic` and `bic`."""
        return sum(int(getattr(params, each.name).size) for each in fields(params)) - 1

    def update_context(self, context: Any, data: Any) -> Any:
        """Return the context after more data."""
        return context

    def ordered(self, params: Any) -> Any:
        """Return the components in the order in which they are reported."""
        return largest_first(params)

    @property
    def parallel(self) -> bool:
        """Whether blocks are worked on by all cores. The result does not depend on it."""
        return getattr(self.settings, "n_jobs", None) != 1

    def blocks(self, data: Any) -> Iterator[Any]:
        """Yield data in blocks."""
        return blocks_of(data, self.block_size)

    def statistics(
        self, params: Any, data: Any, context: Any, carry: Any = None
    ) -> tuple[Any, Any]:
        """Return the statistics of all data, block by block in their order, and what the next data
        need to know.
        """
        parts = map_blocks(
            lambda block: self.e_step(params, *split(block), context),
            self.blocks(data),
            parallel=self.parallel,
        )
        return reduce(add, parts), carry

    def step_on(self, data: Any, context: Any) -> Step[Any]:
        """Return the EM step on data."""

        def step(params: Any) -> tuple[Any, float]:
            total, _ = self.statistics(params, data, context)
            return self.m_step(total, params, context), total.log_likelihood / total.n

        return step

    def trial(self, data: Any, k: int, rng: np.random.Generator) -> Any:
        """Return the rows on which starts compete."""
        return some_rows(data, max(self.trial_size, 200 * k), rng)

    def run_starts(
        self, starts: list[Any], trial: Any, context: Any, max_iter: int
    ) -> list[EMResult[Any]]:
        """Run EM on some rows from each of several starts."""
        step = self.step_on(trial, context)
        return [em(step, start, max_iter=max_iter, tol=self.settings.tol) for start in starts]

    def run(self, step: Step[Any], start: Any, context: Any) -> EMResult[Any]:
        """Run EM over all rows from the best start."""
        return em(step, start, max_iter=self.settings.max_iter, tol=self.settings.tol)

    def learn(self, data: Any, context: Any, k: int, seed: int) -> tuple[str, EMResult[Any]]:
        """Return k components, and the name of their start: starts compete on some rows, then EM
        runs over all.
        """
        rng = np.random.default_rng(seed)
        trial = self.trial(data, k, rng)
        with (
            one_blas_thread()
        ):  # blocks are small: more threads for a product take longer than the product
            named = self.starts(data, trial, context, k, rng, seed)
            best, number = successive_halving(
                [start for _, start in named],
                lambda starts, max_iter: self.run_starts(starts, trial, context, max_iter),
                first_iter=self.first_iter,
            )
        found = self.run(self.step_on(data, context), best, context)
        return named[number][0], replace(found, params=self.ordered(found.params))

    def selection_rows(self, data: Any, rng: np.random.Generator) -> tuple[Any, IndexArray]:
        """Return the rows by which k is selected, and their permutation, whose fifths are the
        folds.
        """
        some = some_rows(data, self.selection_size, rng)
        return some, rng.permutation(len(some))

    def brief(self, n: float) -> Self:
        """Return the specification for the fits by which k is selected, each to at most n rows."""
        # Likelihoods are compared to within a fraction of a nat, whatever the number of rows.
        return type(self)(replace(self.settings, tol=min(self.settings.tol, _SELECTION_NATS / n)))

    def selection_fits(self, data: Any, base: Any, seed: int) -> tuple[Learn, IndexArray]:
        """Return the function that fits k components to some rows, and the fold of each row."""
        rows, places = self.selection_rows(data, np.random.default_rng(seed))
        (plain, weights), n = split(rows), count_rows(rows)
        context, brief = self.update_context(base, rows), self.brief(n)

        def learn(k: int, kept: BoolArray) -> tuple[FloatArray, int]:
            params = brief.learn(rows if kept.all() else rows[kept], context, k, seed)[1].params
            scores = [brief.posterior(params, block, context)[1] for block in self.blocks(plain)]
            return times(np.concatenate(scores), weights), brief.n_parameters(params)

        return learn, fold_numbers(places)

    def select_k(self, data: Any, base: Any, seed: int) -> KSelection:
        """Select k by the likelihood of training rows and of held-out rows."""
        learn, folds = self.selection_fits(data, base, seed)
        most = max(1, min(self.max_auto, len(folds) // self.rows_per_component))
        return select_number(learn, folds, most=most)

    def fit(self, data: Any, base: Any, seed: int) -> Fit:
        """Return the model of prepared data."""
        k = self.settings.n_components
        return self.fit_number(
            data, base, seed, self.select_k(data, base, seed) if k == "auto" else k
        )

    def fit_number(self, data: Any, base: Any, seed: int, number: KSelection | int) -> Fit:
        """Return the model of prepared data with a number of components that was given or
        selected.
        """
        selection = None if isinstance(number, int) else number
        k = number if isinstance(number, int) else number.n_components
        self.check_size(data, k)
        context = self.update_context(base, data)
        init, found = self.learn(data, context, k, seed)
        info = Info(
            len(data),
            found.log_likelihood,
            found.n_iter,
            found.converged,
            init,
            gain_over_one=self.gain_over_one(data, context, found, seed),
        )
        if selection is not None:
            n_rows = count_rows(data)
            scores = [selection.held_out.get(each, np.nan) / n_rows for each in selection.tried]
            info = replace(
                info,
                tried=np.array(selection.tried, dtype=np.int64),
                tried_scores=np.array(scores),
                tried_as_good=np.isin(selection.tried, selection.near_ties),
                selected=k,
            )
        return Fit(found.params, context, info)

    def check_size(self, data: Any, k: Any) -> None:
        """Require as many rows as components, unless their number is selected."""
        if k != "auto" and len(data) < k:
            raise ValueError(
                f"There must be at least as many {self.record}s as components. Got "
                f"n_samples={len(data)} and n_components={k}. Pass more {self.record}s, or fewer "
                "components."
            )

    def gain_over_one(self, data: Any, context: Any, found: EMResult[Any], seed: int) -> float:
        """Return by how much k components are likelier than one, less what their parameters cost by
        BIC.
        """
        n = count_rows(data)
        one = self.learn(data, context, 1, seed)[1]
        n_further = self.n_parameters(found.params) - self.n_parameters(one.params)
        return float(n * (found.log_likelihood - one.log_likelihood) - n_further * math.log(n) / 2)
