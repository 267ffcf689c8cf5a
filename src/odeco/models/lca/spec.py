"""The specification of latent classes: a mixture of tables whose columns are all categories."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from odeco._util.state import State, array, array_field, require
from odeco._util.types import FloatArray, IndexArray
from odeco.io.categories import Categories, from_texts, to_texts
from odeco.models.emissions.categorical import CategoricalPart
from odeco.models.emissions.product import Product
from odeco.models.emissions.search import Search, TableEM
from odeco.models.engine.description import Description
from odeco.models.engine.em import EMResult, Step, squarem
from odeco.models.engine.fit import Fit, Info
from odeco.models.engine.private import Releaser
from odeco.models.engine.rows import in_own_order, mapped, split
from odeco.models.engine.spec import EMSpec
from odeco.models.engine.stream import Forgetting
from odeco.models.lca.assumptions import SCALE, is_scale
from odeco.models.lca.classes import (
    Classes,
    ClassStatistics,
    count_answers,
    frequencies_of,
    m_step,
)
from odeco.models.lca.display import describe
from odeco.models.lca.private import find_private_classes, release_shares
from odeco.privacy.holders.answers import BLOCK, Bits, HeldAnswers, Questions
from odeco.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from odeco.models.lca.estimator import LatentClasses

#: For the selection of k, at most this many starts, and at least this prior of a class, as a number
#: of respondents.
_BRIEF_STARTS, _BRIEF_SMOOTHING = 8, 1.0


@dataclass(frozen=True, eq=False)
class AnswersContext(State):
    """The possible answers to each question, and how often each was given: the prior of the M step.

    Attributes
    ----------
    texts, kinds : array
        The answers to all questions as texts, and the kind of those to each question, as `to_texts`
        returns them.
    sizes : array
        The number of answers to each question.
    counts : array
        How often each answer was given.
    """

    texts: Any = array_field("answers", kind="U")
    kinds: IndexArray = array_field("n_features", kind="i", low=0, high=3)
    sizes: IndexArray = array_field("n_features", kind="i", low=1, high=2**20)
    counts: FloatArray = array_field("answers", low=0)

    @classmethod
    def of(cls, categories: Categories) -> Self:
        """Return the context before any respondent."""
        sizes = np.array([own.size for own in categories])
        return cls(*to_texts(categories), sizes, np.zeros(int(sizes.sum())))

    def check(self) -> None:
        """Raise `ValueError` unless the answers of a file can be read."""
        require(
            int(self.sizes.sum()) == self.texts.size,
            "`sizes` must be the numbers of answers to the questions",
        )
        _ = self.categories

    @cached_property
    def categories(self) -> Categories:
        """The answers to each question."""
        return from_texts(self.texts, self.kinds, self.sizes)

    @cached_property
    def questions(self) -> Questions:
        """The layout of the indicators."""
        return Questions(self.sizes)

    @cached_property
    def frequencies(self) -> FloatArray:
        """The share of each answer among those who answered its question."""
        return frequencies_of(self.counts, self.questions)


class ClassSpec(EMSpec):
    """Latent classes. Rows are codes of answers, and data their indicators."""

    Params: ClassVar = Classes
    Statistics: ClassVar = ClassStatistics
    Context: ClassVar = AnswersContext
    block_size, first_block, next_block = BLOCK, 16_384, 4_096
    trial_size, first_iter, max_auto = 2_000, 10, 64
    is_brief: bool = False
    #: Block t has the share t^(−0.6) of the sum that forgets, so that the classes soon leave the
    #: first block behind (Cappé and Moulines 2009). The model is that of the sum that forgets
    #: nothing.
    forgetting = Forgetting(lambda n, _: (1 + n / 4_096) ** -0.6, averaged=True)
    record, component = "respondent", "class"
    mechanism = "pairs of answers, the third moment of three views, and EM iterations"

    settings: LatentClasses

    def check_rows(self, rows: Any, where: str, n_features: int) -> None:
        """Require codes; `verify` compares them with the answers."""
        array(None, "n_features", kind="i", low=-1, high=2**20)(
            rows, where, {"n_features": n_features}
        )

    def prepare(self, rows: IndexArray, context: AnswersContext) -> Bits:
        """Return the indicators of the answers."""
        return context.questions.indicators(rows)

    def fit(self, data: Any, base: AnswersContext, seed: int) -> Fit:
        """Return the classes, and whether they may be steps of a scale."""
        data = in_own_order(data)
        found = super().fit(data, base, seed)
        marked, weights = split(data)
        if weights is not None or not is_scale(
            found.params, marked, base.questions, self.n_parameters(found.params)
        ):
            return found
        cautions = np.append(found.info.cautions, SCALE)
        return replace(found, info=replace(found.info, cautions=cautions))

    def update_context(self, context: AnswersContext, data: Any) -> AnswersContext:
        """Return the context with the answers of more respondents counted."""
        return replace(context, counts=context.counts + count_answers(data))

    def starts(
        self,
        data: Any,
        trial: Any,
        context: AnswersContext,
        k: int,
        rng: np.random.Generator,
        seed: int,
    ) -> list[tuple[str, Classes]]:
        """Return the best classes of some respondents, which several starts and swaps find."""
        frequencies = context.frequencies
        if k == 1:
            return [("frequencies", Classes(np.ones(1), frequencies[:, None]))]
        given = mapped(trial, lambda marked: marked.astype(np.float64))
        one = Product((CategoricalPart(frequencies[None], context.sizes),))
        em = TableEM.of(given, one, frequencies, self.settings.smoothing, 0.0)
        search = Search.of(em, k, rng)
        shares, name = search.best(self.settings.n_starts, with_swaps=not self.is_brief)
        found = em.mixture(shares)
        return [(name, Classes(found.weights, found[CategoricalPart].probabilities.T))]

    def run(
        self, step: Step[Classes], start: Classes, context: AnswersContext
    ) -> EMResult[Classes]:
        """Run EM with SQUAREM extrapolation: classes that overlap take EM hundreds of
        iterations.
        """
        return squarem(
            step,
            start,
            max_iter=self.settings.max_iter,
            tol=self.settings.tol,
            to_vector=Classes.to_vector,
            from_vector=lambda vector, classes: classes.from_vector(vector, context.questions),
        )

    def posterior(
        self, params: Classes, block: Bits, context: Any
    ) -> tuple[FloatArray, FloatArray]:
        """Return the responsibilities of classes for each respondent, and the log-likelihood of
        each.
        """
        return params.posterior(block.astype(np.float64))

    def e_step(
        self, params: Classes, block: Bits, weights: FloatArray | None, context: AnswersContext
    ) -> ClassStatistics:
        """Return the sufficient statistics of a block of respondents."""
        return params.e_step(block.astype(np.float64), weights)

    def m_step(
        self, statistics: ClassStatistics, params: Classes, context: AnswersContext
    ) -> Classes:
        """Return the classes of the largest posterior probability."""
        smoothing = self.settings.smoothing
        return m_step(
            statistics.weights,
            statistics.answers,
            context.questions,
            context.frequencies,
            smoothing,
        )

    def n_parameters(self, params: Classes) -> int:
        """Return the number of free parameters: the probabilities of the answers to a question sum
        to one.
        """
        n_answers, k = params.answers.shape
        n_questions = round(float(params.answers[:, 0].sum()))
        return int(k - 1 + k * (n_answers - n_questions))

    def brief(self, n: float) -> Self:
        """Return the specification with fewer starts, and a prior: held-out respondents may give
        rare answers.
        """
        settings = super().brief(n).settings
        fewer, smoothing = (
            min(settings.n_starts, _BRIEF_STARTS),
            max(settings.smoothing, _BRIEF_SMOOTHING),
        )
        spec = type(self)(replace(settings, n_starts=fewer, smoothing=smoothing))
        spec.is_brief = True
        return spec

    def verify(self, state: Any) -> None:
        """Require probabilities of the answers to each question, and codes of answers that there
        are.
        """
        sizes = state.context.sizes
        if state.params is not None:
            require(
                len(state.params.answers) == sizes.sum(),
                "its classes must have probabilities of all answers",
            )
            totals = state.context.questions.sum_by_question(state.params.answers)
            require(
                bool(np.all(np.abs(totals - 1) < 1e-6)),
                "the probabilities of the answers must sum to one",
            )
        if hasattr(state, "buffer"):
            require(
                bool(np.all(state.buffer < sizes)),
                "the codes in its buffer must be those of answers",
            )

    def learn_privately(
        self, holder: HeldAnswers, context: AnswersContext, releaser: Releaser, *, seed: int
    ) -> Fit:
        """Learn from noisy sums over respondents."""
        k, n, mu = int(self.settings.n_components), holder.n_records, releaser.guarantee.mu
        shares = release_shares(holder.questions, k, n_rows=n, mu=mu)
        classes, frequencies, n_found = find_private_classes(holder, releaser, k, shares, seed=seed)
        counted = replace(context, counts=frequencies * n)
        hidden = "" if n_found == k else "; noise hides whether there are several classes"
        n_iter = len(shares.steps) if n_found > 1 else 0
        return Fit(
            classes,
            counted,
            Info(n, n_iter=n_iter, converged=n_found == k, init=f"noisy pairs{hidden}"),
        )

    def describe(
        self, fit: Fit, names: list[str], privacy: PrivacyReport | None, rows: Any = None
    ) -> Description:
        """Return the classes in words and pictures."""
        return describe(fit, names, privacy, self.n_parameters(fit.params))
