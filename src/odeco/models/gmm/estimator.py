"""The estimator of mixtures of Gaussians: a start by tensor decomposition, then likelihood steps."""

from __future__ import annotations

import math
import os
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from odeco._util.arguments import check_count, check_norm_bound
from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.estimator import LatentModel
from odeco.models.gmm.display import summarise
from odeco.models.gmm.gaussians import CovarianceType, blocks_of
from odeco.models.gmm.holder import BoundedRows
from odeco.models.gmm.private import learn_privately
from odeco.models.gmm.spec import FittedMixture, MixtureSettings, check_settings, choose_n_components, learn
from odeco.models.gmm.stream import MixtureStream
from odeco.privacy.ledger_file import Guarantee
from odeco.privacy.sums import NeighbourRelation


class TensorMixture(DensityMixin, LatentModel):  # type: ignore[misc]
    """A mixture of Gaussians, started by decomposing the third moment of rows and refined by likelihood steps.

    The third moment, without the part of the noise, is a tensor whose components are the means (Hsu and Kakade 2013).
    One pass finds all of them, without luck. A few starts by k-means++ are tried beside it on a part of the rows, as
    components may be no spheres; the likeliest is taken, and likelihood steps (EM) over all rows end the work.

    Parameters
    ----------
    n_components : int or "auto"
        Number k of components. ``"auto"`` takes the smallest number, at most 50, that rows which were not learnt from
        do not clearly speak against.
    covariance_type : {"spherical", "diag", "full"}
        Whether a component has one variance, one for each feature, or a covariance matrix.
    n_steps : int
        The most likelihood steps.
    tol : float
        Steps end when one raises the mean log-likelihood of a row by less than this.
    reg_covar : float
        Every variance gets this share of the mean variance of the features, so that none is zero.
    n_starts : int
        Starts by k-means++ beside those of the third moment. If rows are few, twice as many.
    epsilon, delta : float, optional
        With both, the mixture is private: what `fit` learns is (ε, δ)-differentially private. δ must be below one over
        the number of rows. See *Private mixtures*.
    norm_bound : float, optional
        For private mixtures: the largest Euclidean norm of a row, known without looking at the rows. Longer rows are
        scaled down to it.
    neighbour_relation : {"replace", "add_remove"}
        For private mixtures: whether the guarantee hides that a row is replaced by any other, or that it is there or
        not (blanked; the number of rows is public).
    ledger : path, optional
        For private mixtures: the file of the budget of all models of these rows together, made once with
        `odeco.privacy.LedgerFile.create`.
    random_state : int, RandomState instance or None
        Draws the starts, and what `sample` draws.
    n_jobs : int or None
        1 runs everything on one thread, None and −1 on all cores. The result does not depend on it.

    Attributes
    ----------
    weights_, means_, covariances_ : array
        The mixture, as in scikit-learn's `GaussianMixture`; largest component first.
    n_components_ : int
        Number of components.
    lower_bound_ : float
        Mean log-likelihood of a row before the last step. Private mixtures have NaN.
    n_iter_ : int
        Number of likelihood steps over all rows.
    converged_ : bool
        Whether the last gained less than `tol`. Of private mixtures: whether all components stand clear of noise.
    start_ : str
        Which start was the best.
    tried_ : dict of int to float
        With ``"auto"``: the mean log-likelihood of rows that were not learnt from, for each number that was tried.
    n_rows_ : int
        Number of rows seen.
    privacy_ : PrivacyReport
        What a private mixture guarantees, and every release that was made. Other models do not have it.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.

    Notes
    -----
    The third moment tells apart at most d + 1 components in d dimensions. For more, only k-means++ starts.

    `partial_fit` starts from the first 20,000 rows; each 8,192 that follow take one step, and no row is kept longer
    than that. What is learnt depends on the rows and their order, and not on how they are cut into batches. After
    `fit`, `partial_fit` begins a new stream.

    **Private mixtures.** With `epsilon`, `delta` and `norm_bound`, noisy sums over rows are all that is learnt from
    them: the second moment, the third moment of rows whitened by it, and one likelihood step (`bounded_rows` has the
    bounds of what a row adds, with proof). Neighbours are two tables of the same size that differ in one row: replaced
    by any other, or with ``neighbour_relation="add_remove"`` blanked. The number of rows is public. A row with a
    number that is not finite counts as blank, without a message. Components are spheres, all of one variance, and at
    most d + 1; k must be given, and `partial_fit` is refused. `plan_mixture` says beforehand what can be expected.
    `predict` of a row shows that row: only the model is private.

    References
    ----------
    Hsu and Kakade, *Learning mixtures of spherical Gaussians: moment methods and spectral decompositions*, 2013,
    arXiv:1206.5766. Arthur and Vassilvitskii, *k-means++: the advantages of careful seeding*, 2007. Cappé and Moulines,
    *On-line expectation-maximization algorithm for latent data models*, 2009, arXiv:0712.4273.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.models import TensorMixture
    >>> rng = np.random.default_rng(0)
    >>> rows = np.repeat([[5.0, 5.0], [15.0, 5.0], [5.0, 15.0]], [300, 200, 100], axis=0)
    >>> rows += rng.standard_normal(rows.shape)
    >>> model = TensorMixture(3, random_state=0).fit(rows)
    >>> model.means_.round().tolist(), model.weights_.round(2).tolist()
    ([[5.0, 5.0], [15.0, 5.0], [5.0, 15.0]], [0.5, 0.33, 0.17])
    """

    _KIND = "mixture"
    _FITTED = FittedMixture
    _STREAM = MixtureStream

    def __init__(
        self,
        n_components: int | Literal["auto"] = 8,
        *,
        covariance_type: CovarianceType = "spherical",
        n_steps: int = 100,
        tol: float = 1e-4,
        reg_covar: float = 1e-6,
        n_starts: int = 5,
        epsilon: float | None = None,
        delta: float | None = None,
        norm_bound: float | None = None,
        neighbour_relation: NeighbourRelation = "replace",
        ledger: str | os.PathLike[str] | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.n_steps = n_steps
        self.tol = tol
        self.reg_covar = reg_covar
        self.n_starts = n_starts
        self.epsilon = epsilon
        self.delta = delta
        self.norm_bound = norm_bound
        self.neighbour_relation = neighbour_relation
        self.ledger = ledger
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Learn a mixture from rows.

        Parameters
        ----------
        X : array, rows x features
            Rows.
        y : object
            Ignored.
        """
        settings, seed = self._check_settings(), self._draw_seed()
        with self._names_kept_on_failure():
            if settings.guarantee is not None:
                return self._fit_privately(X, settings, settings.guarantee, seed)
            rows = self._validated(X, reset=True)
            chosen = None if settings.n_components else choose_n_components(rows, settings.plan, seed=seed)
            n_components = settings.n_components if chosen is None else chosen.n_components
            learnt = learn(rows, n_components, settings.plan, seed=seed)
            self._take(FittedMixture.of(learnt, len(rows), chosen), None, seed)
        return self

    def _fit_privately(self, X: Any, settings: MixtureSettings, guarantee: Guarantee, seed: int) -> Self:
        n_components, norm_bound = settings.n_components, check_norm_bound(self.norm_bound)
        rows = self._validated_privately(X)
        if n_components > rows.shape[1] + 1:
            raise ValueError(
                "A private mixture has at most one component more than there are features: the third moment tells no "
                f"more apart. Got n_components={n_components} and {rows.shape[1]} features. Pass fewer."
            )
        learnt, privacy = learn_privately(
            BoundedRows(rows, norm_bound),
            n_components,
            norm_bound=norm_bound,
            regularity=settings.plan.regularity,
            guarantee=guarantee,
            neighbour_relation=self.neighbour_relation,
            seed=seed,
        )
        self._take(FittedMixture.of(learnt, len(rows)), None, seed, privacy)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Learn from more rows in one pass; they are not kept, and memory does not grow.

        If anything ends the call early, an interrupt included, the model is as it was before. The settings of the first
        call hold for the whole stream.
        """
        settings = self._check_settings()
        if settings.guarantee is not None:
            raise ValueError(
                "A private mixture is learnt from all rows at once: each release sums over all of them. Got a call of "
                "partial_fit. Call fit."
            )
        stream = getattr(self, "_stream", None)
        with self._names_kept_on_failure():
            rows = self._validated(X, reset=stream is None)
            if stream is None:
                seed = self._draw_seed()
                stream = MixtureStream.begin(settings.n_components, rows.shape[1], settings.plan, seed)
            self._take(None, stream.updated(rows), stream.seed)
        return self

    def fit_predict(self, X: Any, y: Any = None) -> IndexArray:  # noqa: ARG002 - scikit-learn's signature
        """Learn a mixture from rows, and return the component of each."""
        return self.fit(X).predict(X)

    def predict(self, X: Any) -> IndexArray:
        """Return the likeliest component of each row."""
        return np.asarray(self._about(X)[0].argmax(axis=1))

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each component for each row."""
        return self._about(X)[0]

    def score_samples(self, X: Any) -> FloatArray:
        """Return the log-density of each row."""
        return self._about(X)[1]

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002 - scikit-learn's signature
        """Return the mean log-density of rows.

        A private mixture refuses, and so do `bic` and `aic`: a search over settings calls them, and would choose by the
        exact rows that each model was made to hide. For rows that need no protection there is `score_samples`.
        """
        self._refuse_if_private("score")
        return float(self.score_samples(X).mean())

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion of the mixture for rows; the lower the better."""
        self._refuse_if_private("bic")
        densities = self.score_samples(X)
        return -2 * float(densities.sum()) + self._n_parameters() * math.log(len(densities))

    def aic(self, X: Any) -> float:
        """Return Akaike's information criterion of the mixture for rows; the lower the better."""
        self._refuse_if_private("aic")
        return -2 * float(self.score_samples(X).sum()) + 2 * self._n_parameters()

    def sample(self, n_samples: int = 1) -> tuple[FloatArray, IndexArray]:
        """Draw rows from the mixture; return them, and the component of each. Rows of one component are together."""
        check_is_fitted(self)
        n_samples = check_count("n_samples", n_samples)
        rows, labels = self._learnt("sample").gaussians.draw(n_samples, check_random_state(self.random_state))
        return rows, labels

    def summary(self) -> str:
        """Return a short text about the mixture that begins with a verdict."""
        check_is_fitted(self)
        return summarise(self._learnt("summary"), self._names(), self._privacy)

    def plot(self, X: Any = None) -> Any:
        """Return a Matplotlib figure: components in the plane where they are furthest apart, and what tells them apart.

        Parameters
        ----------
        X : array, optional
            Rows to show with them.
        """
        from odeco.models.gmm.display import plot_mixture  # Matplotlib may be missing

        check_is_fitted(self)
        rows = None if X is None else self._validated(X, reset=False)
        return plot_mixture(self._learnt("plot").gaussians, self._names(), rows)

    @property
    def weights_(self) -> FloatArray:
        """The probability of each component."""
        return np.asarray(self._learnt("weights_").weights)

    @property
    def means_(self) -> FloatArray:
        """The mean of each component."""
        return np.asarray(self._learnt("means_").means)

    @property
    def covariances_(self) -> FloatArray:
        """The variance of each component, its variances, or its covariance matrix."""
        return np.asarray(self._learnt("covariances_").covariances)

    @property
    def n_components_(self) -> int:
        """The number of components."""
        return len(self._learnt("n_components_").weights)

    @property
    def lower_bound_(self) -> float:
        """The mean log-likelihood of a row before the last step."""
        return float(self._learnt("lower_bound_").log_likelihood)

    @property
    def n_iter_(self) -> int:
        """The number of likelihood steps over all rows."""
        return int(self._learnt("n_iter_").n_steps)

    @property
    def converged_(self) -> bool:
        """Whether the last step gained little."""
        return bool(self._learnt("converged_").converged)

    @property
    def start_(self) -> str:
        """Which start was the best."""
        return str(self._learnt("start_").start)

    @property
    def tried_(self) -> dict[int, float]:
        """What was tried to choose the number of components."""
        fitted = self._learnt("tried_")
        return dict(zip(fitted.tried.tolist(), fitted.tried_scores.tolist(), strict=True))

    @property
    def n_rows_(self) -> int:
        """The number of rows seen."""
        return int(self._stream.n_rows if self._stream is not None else self._learnt("n_rows_").n_rows)

    def _check_settings(self) -> MixtureSettings:
        return check_settings(self)

    def _fitted_from_stream(self) -> FittedMixture:
        return self._stream.fitted()  # type: ignore[no-any-return]

    def _about(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Return the probabilities of components for each row, and the log-density of each."""
        check_is_fitted(self)
        rows, model = self._validated(X, reset=False), self._learnt("predict").gaussians
        parts = list(map_blocks(model.about, blocks_of(rows), parallel=self.n_jobs != 1))
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _refuse_if_private(self, name: str) -> None:
        check_is_fitted(self)
        if self._privacy is not None:
            raise ValueError(
                f"The {name} of a private mixture must not choose between models: it is exact, and no budget pays for "
                f"it. Got a call of {name}. For rows that need no protection call score_samples."
            )

    def _n_parameters(self) -> int:
        k, d = self.means_.shape
        each = (1, d, d * (d + 1) // 2)[self.covariances_.ndim - 1]
        return int(k * (d + each) + k - 1)

    def _names(self) -> list[str]:
        named = getattr(self, "feature_names_in_", None)
        return [f"feature {i}" for i in range(self.n_features_in_)] if named is None else [str(each) for each in named]

    def _validated(self, X: Any, *, reset: bool) -> Any:
        return validate_data(self, X, reset=reset, dtype=np.float64)

    def _validated_privately(self, X: Any) -> Any:
        """Return rows as an array, without a word that depends on one of them.

        What NumPy makes of a list, and what it says about a cell that is no number, depends on the cells. So only
        arrays of numbers are taken, and whether a number is finite is not asked here.
        """
        types = {dtype.kind for dtype in X.dtypes} if hasattr(X, "dtypes") and hasattr(X, "iloc") else None
        if types is None and not isinstance(X, np.ndarray):
            raise TypeError(
                f"Private rows must be a NumPy array or a table of numbers. Got {type(X).__name__}. Convert them."
            )
        if not (types or {X.dtype.kind}) <= set("iufb"):
            raise TypeError("Private rows must be numbers. Got another type of array or column. Convert them.")
        with np.errstate(all="ignore"):  # a warning about a number beyond double precision would be an answer
            return validate_data(self, X, reset=True, dtype=np.float64, ensure_all_finite=False)
