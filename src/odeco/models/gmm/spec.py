"""The specification of Gaussian mixtures: starts by tensor decomposition and by k-means++, then EM."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.metrics import adjusted_rand_score

from odeco._util.schema import require
from odeco._util.state import State, array_field
from odeco._util.types import FloatArray
from odeco.errors import DominantColumnWarning
from odeco.models.engine.description import Description
from odeco.models.engine.em import em
from odeco.models.engine.fit import Fit, Info, largest_first
from odeco.models.engine.gaussians import Gaussians, GaussianStatistics
from odeco.models.engine.private import Releaser
from odeco.models.engine.spec import EMSpec
from odeco.models.gmm.display import describe
from odeco.models.gmm.private import find_private_mixture
from odeco.models.gmm.start import Start, can_be_spectral, second_moment, seeded_start, spectral_start, whitened_start
from odeco.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from odeco.models.gmm.estimator import TensorMixture

#: Seeds of k-means++ are drawn among this many rows, or among 50 for each component if that is more.
_SEED_ROWS, _SEED_ROWS_EACH = 2_000, 50

#: With at most this many rows, twice as many seeded starts are tried: they cost little, and chance counts for more.
_FEW_ROWS = 2_000

#: Third powers of numbers with such a variance stay in the range of double precision.
_MIN_VARIANCE, _MAX_VARIANCE = 1e-140, 1e140

#: A column with this share of the variance may decide alone what is found: its deviation is three times that of all
#: others together. It does if components that do not depend on units agree less than this with those found.
_DOMINANT, _AGREEING = 0.9, 0.8


@dataclass(frozen=True, eq=False)
class MixtureContext(State):
    """What is added to every variance; zero before any row."""

    floor: float = array_field(low=0, default=0.0)


class MixtureSpec(EMSpec):
    """Gaussian mixtures."""

    Params: ClassVar = Gaussians
    Statistics: ClassVar = GaussianStatistics
    Context: ClassVar = MixtureContext
    mechanism = "second moment, whitened third moment, and an EM iteration"
    private_needs = ("norm_bound",)

    settings: TensorMixture

    def update_context(self, context: MixtureContext, data: FloatArray) -> MixtureContext:
        """Return the variance floor of the first rows."""
        if context.floor:
            return context
        with np.errstate(over="ignore"):
            spread = float(np.ptp(data, axis=0).max())
        # Squares of such differences would overflow.
        variance = second_moment(data, parallel=self.parallel).variance if spread < _MAX_VARIANCE else np.inf
        if not (spread == 0 or _MIN_VARIANCE < variance < _MAX_VARIANCE):
            raise ValueError(
                f"The variance of rows must be between {_MIN_VARIANCE:g} and {_MAX_VARIANCE:g}, so that its powers are "
                f"finite and not zero. It is {variance:.3g}, and rows differ by {spread:.3g} at most. Multiply all "
                "rows by a constant."
            )
        # Rows that are all the same have no variance: any positive one describes them.
        floor = self.settings.reg_covar * variance if variance > 0 else 1.0
        return MixtureContext(max(floor, float(np.finfo(np.float64).tiny)))

    def starts(
        self, data: FloatArray, trial: FloatArray, context: MixtureContext, k: int, rng: np.random.Generator, seed: int
    ) -> list[tuple[str, Gaussians]]:
        """Return starts from the third moment, if there are enough features, and by k-means++."""
        settings, moment = self.settings, second_moment(data, parallel=self.parallel)
        found: list[Start] = []
        if can_be_spectral(k, data.shape[1]):
            found.append(spectral_start(data, moment, k, seed=seed, parallel=self.parallel))
            first = found[0].gaussians(settings.covariance_type, context.floor)
            guess = em(self.step_on(trial, context), first, max_iter=self.first_iter, tol=settings.tol).params
            found.append(whitened_start(trial, moment, guess, seed=seed))
        # Without a start from the third moment more seeds are needed; and with few rows they cost nothing.
        n_seeded = settings.n_starts * (1 if found and len(data) > _FEW_ROWS else 2)
        n_seeded = 1 if k == 1 else max(n_seeded, 0 if found else 1)
        n_rows = max(_SEED_ROWS, _SEED_ROWS_EACH * k)
        found += [seeded_start(_some(trial, n_rows, rng), moment, k, rng) for _ in range(n_seeded)]
        return [(each.name, each.gaussians(settings.covariance_type, context.floor)) for each in found]

    def posterior(self, params: Gaussians, block: FloatArray, context: Any) -> tuple[FloatArray, FloatArray]:
        """Return the responsibilities of components for each row, and the log-density of each."""
        return params.posterior(block)

    def e_step(self, params: Gaussians, block: FloatArray, context: Any) -> GaussianStatistics:
        """Return the sufficient statistics of a block of rows."""
        return params.e_step(block)

    def m_step(self, statistics: GaussianStatistics, params: Gaussians, context: MixtureContext) -> Gaussians:
        """Return the Gaussians of the largest likelihood."""
        return params.m_step(statistics, context.floor)

    def n_parameters(self, params: Gaussians) -> int:
        """Return the number of free parameters."""
        return params.n_parameters

    def check_units(self, data: FloatArray, fit: Fit, names: Sequence[str], seed: int) -> None:
        """Warn if one column has nearly all of the variance, and components that do not depend on units are others.

        Those are found in columns of equal variance, each with its own variance within components.
        """
        k, rng = len(fit.params.weights), np.random.default_rng(seed)
        some = self.trial(data, k, rng)
        variances = some.var(axis=0)
        column, total = int(np.argmax(variances)), float(variances.sum())
        if k == 1 or len(variances) == 1 or not total > 0 or variances[column] < _DOMINANT * total:
            return
        rows = (some - some.mean(axis=0)) / np.sqrt(np.where(variances > 0, variances, 1.0))
        kind = self.settings.covariance_type
        own_variances = MixtureSpec(replace(self.settings, covariance_type="diag" if kind == "spherical" else kind))
        other = own_variances.learn(rows, own_variances.update_context(MixtureContext(), rows), k, seed)[1].params
        pairs = ((fit.params, some), (other, rows))
        agreement = adjusted_rand_score(*(model.posterior(seen)[0].argmax(axis=1) for model, seen in pairs))
        if agreement < _AGREEING:
            name = str(names[column]) if len(names) else None
            share = float(variances[column]) / total
            warnings.warn(DominantColumnWarning(column, name, share, k, float(agreement)), stacklevel=4)

    def verify(self, state: Any) -> None:
        """Require covariances of one kind."""
        if state.params is not None:
            require(
                state.params.covariance_type == self.settings.covariance_type,
                "its covariances must be of the kind that its settings name",
            )
            statistics = getattr(state, "statistics", None)
            require(
                statistics is None or statistics.seconds.ndim == state.params.covariances.ndim,
                "its sums must be of the kind of its covariances",
            )

    def check_private(self) -> None:
        """Require what a private mixture can be."""
        if self.settings.covariance_type != "spherical":
            raise ValueError(
                "A private mixture has spheres, all of one variance: nothing more can be released without much more "
                f"noise. Got covariance_type={self.settings.covariance_type!r}. Pass 'spherical'."
            )

    def learn_privately(self, holder: Any, context: MixtureContext, releaser: Releaser, *, seed: int) -> Fit:
        """Learn from three noisy sums over rows."""
        k = int(self.settings.n_components)
        model, n_clear = find_private_mixture(holder, releaser, k, reg_covar=self.settings.reg_covar, seed=seed)
        init = f"noisy third moment; {n_clear} of {k} components stand clear of noise" if k > 1 else "noisy mean"
        info = Info(holder.n_records, n_iter=int(k > 1), converged=n_clear == k, init=init)
        return Fit(largest_first(model), context, info)

    def describe(
        self, fit: Fit, names: list[str], privacy: PrivacyReport | None, rows: FloatArray | None = None
    ) -> Description:
        """Return the mixture in words and pictures."""
        return describe(fit, names, privacy, rows)


def _some(rows: FloatArray, size: int, rng: np.random.Generator) -> FloatArray:
    """Return `size` rows, drawn at random, or all of them if there are no more."""
    return rows if len(rows) <= size else rows[np.sort(rng.choice(len(rows), size, replace=False, shuffle=False))]
