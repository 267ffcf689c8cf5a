"""The specification of latent classes: a mixture of tables whose columns are all categories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from odeco._util.types import FloatArray
from odeco.io.categories import Categories, to_texts
from odeco.io.kinds import Columns
from odeco.models.emissions.categorical import CategoricalPart
from odeco.models.emissions.product import ProductMixture
from odeco.models.engine.description import Description
from odeco.models.engine.fit import Fit, Info
from odeco.models.engine.private import Releaser
from odeco.models.engine.rows import in_own_order, mapped, split
from odeco.models.engine.stream import Forgetting
from odeco.models.gmm.context import MixtureContext
from odeco.models.gmm.spec import MixtureSpec
from odeco.models.lca.assumptions import SCALE, is_scale
from odeco.models.lca.classes import Classes
from odeco.models.lca.display import describe
from odeco.models.lca.private import find_private_classes, release_shares
from odeco.privacy.holders.answers import HeldAnswers
from odeco.privacy.holders.tables import Levels
from odeco.privacy.report import PrivacyReport

#: For the selection of k, at most this many starts, and at least this prior of a class, as a number
#: of respondents.
_BRIEF_STARTS, _BRIEF_SMOOTHING = 8, 1.0


def context_of(categories: Categories, names: list[str]) -> MixtureContext:
    """Return the context before any respondent, of questions with these answers."""
    texts, cells = to_texts(categories)
    columns = Columns(
        np.array(names, dtype=np.str_),
        np.full(len(names), "category"),
        np.full(len(names), "O"),
        texts,
        cells,
        np.array([own.size for own in categories]),
    )
    return MixtureContext(columns, kind="diag")


def questions_of(context: MixtureContext) -> Levels:
    """Return the layout of the indicators."""
    return Levels(context.columns.sizes)


def classes_of(params: ProductMixture) -> Classes:
    """Return the classes with the probabilities of their answers, answers x k."""
    return Classes(params.weights, params[CategoricalPart].probabilities.T)


class ClassSpec(MixtureSpec):
    """Latent classes. Rows are codes of answers, and data their indicators."""

    first_block, next_block = 16_384, 4_096
    max_auto: ClassVar[int] = 64
    most_together: ClassVar[int] = 2**22  # classes that overlap take EM hundreds of iterations
    #: Block t has the share t^(−0.6) of the sum that forgets, so that the classes soon leave the
    #: first block behind (Cappé and Moulines 2009). The model is that of the sum that forgets
    #: nothing.
    forgetting = Forgetting(lambda n, _: (1 + n / 4_096) ** -0.6, averaged=True)
    record, component = "respondent", "class"
    mechanism = "pairs of answers, the third moment of three views, and EM iterations"
    private_needs = ()
    covariance_type = None

    @property
    def n_starts(self) -> int:
        """The number of starts that compete."""
        asked: int = self.settings.n_starts
        return min(asked, _BRIEF_STARTS) if self.is_brief else asked

    def fit_rows(self, rows: Any, base: MixtureContext, seed: int) -> Fit:
        """Return the classes, and whether they may be steps of a scale."""
        data = mapped(in_own_order(rows), base.block)
        found = self.fit(data, self.update_context(base, data), seed)
        marked, weights = split(data)
        if weights is not None or not is_scale(
            classes_of(found.params), marked, questions_of(base), self.n_parameters(found.params)
        ):
            return found
        cautions = np.append(found.info.cautions, SCALE)
        return replace(found, info=replace(found.info, cautions=cautions))

    def brief(self, n: float) -> Self:
        """Return the specification with fewer starts, and a prior: held-out respondents may give
        rare answers.
        """
        spec = super().brief(n)
        smoothing = max(self.settings.smoothing, _BRIEF_SMOOTHING)
        spec.settings = replace(spec.settings, smoothing=smoothing)
        return spec

    def check_private(self) -> None:
        """Require nothing: private classes may have all settings."""

    def check_private_features(self, n_features: int) -> None:
        """Require nothing: classes of any questions may be private."""

    def learn_privately(
        self, holder: HeldAnswers, context: MixtureContext, releaser: Releaser, *, seed: int
    ) -> Fit:
        """Learn from noisy sums over respondents."""
        k, n, mu = int(self.settings.n_components), holder.n_records, releaser.guarantee.mu
        shares = release_shares(holder.questions, k, n_rows=n, mu=mu)
        classes, frequencies, n_found = find_private_classes(holder, releaser, k, shares, seed=seed)
        hidden = "" if n_found == k else "; noise hides whether there are several classes"
        part = CategoricalPart(classes.answers.T, context.columns.sizes)
        n_iter = len(shares.steps) if n_found > 1 else 0
        return Fit(
            ProductMixture((part,), classes.weights),
            replace(context, prior=frequencies),
            Info(n, n_iter=n_iter, converged=n_found == k, init=f"noisy pairs{hidden}"),
        )

    def describe(
        self,
        fit: Fit,
        names: list[str],
        privacy: PrivacyReport | None,
        rows: FloatArray | None = None,
    ) -> Description:
        """Return the classes in words and pictures."""
        return describe(fit, names, privacy, self.n_parameters(fit.params))
