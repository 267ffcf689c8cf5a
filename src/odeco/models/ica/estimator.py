"""The estimator of independent sources."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from odeco._util.arguments import check_count, check_number
from odeco._util.types import FloatArray
from odeco.models.engine.latent_model import LatentModel
from odeco.models.ica.densities import draw_sources, log_densities
from odeco.models.ica.learn import FittedSources, Settings, fit_ica
from odeco.models.ica.moments import log_volume, scaled, whiten
from odeco.models.ica.stream import SourceStream

#: A source with less information than this beyond a Gaussian's 1 is called nearly Gaussian in a summary.
_NEARLY_GAUSSIAN = 0.02

#: A variance with less than this share of all is rounding error.
_ROUNDING = 1e-12


class TensorICA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, LatentModel):  # type: ignore[misc]
    """Independent component analysis by the cumulants of rows, refined by Newton's steps with fitted densities.

    Rows are x = A s + mean, with independent sources s of which at most one is Gaussian. The third and the fourth
    cumulant of whitened rows, which are never formed, have the sources as orthonormal components, and all of them are
    found at once. Newton's steps of the likelihood then refine them, with the density of each source fitted to it: no
    contrast function is to be chosen, and sources of any kind may be mixed.

    Parameters
    ----------
    n_components : int, None or "auto"
        Number k of sources. An int below the number of columns keeps the k strongest directions of the covariance
        first, as scikit-learn does. None takes as many as there are directions in which rows vary. ``"auto"`` looks in
        all of these, and keeps the sources that are clearly not Gaussian in rows that they were not learnt from.
    max_iter : int
        The most Newton steps.
    tol : float
        Steps end when none turns a source towards another by more than this, or by more than 1/√n, as n rows tell no
        more.
    random_state : int, RandomState instance or None
        Draws the starts, and the rows that sources are found in if there are many.

    Attributes
    ----------
    components_ : array, k x d
        The unmixing: sources are ``(X - mean_) @ components_.T``, with variance 1. The least Gaussian is the first. Its
        sign makes the largest entry of its column of `mixing_` positive.
    mixing_ : array, d x k
        The mixing, which `inverse_transform` uses: the regression of rows on sources, and the pseudo-inverse of
        `components_` unless ``"auto"`` dropped some.
    mean_ : array
        The mean of the rows.
    whitening_ : array, m x d
        The map to the whitened directions in which sources were looked for.
    information_ : array
        The Fisher information of each source: 1 for a Gaussian. Sources i and j are told apart in proportion to the
        product of theirs less 1.
    n_components_, n_iter_, n_samples_seen_ : int
        Number of sources, of Newton's steps, and of rows.
    converged_ : bool
        Whether the last step was small; a stream has no last step, and this is true.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.

    Notes
    -----
    `partial_fit` goes once over the rows: sources are found in the first 20,480, and refined by a step for every 4,096
    further ones; before that, rows are kept. The result does not depend on where batches end. The number of sources and
    their order are those of the first block. Rows count as independent where `"auto"` judges: neighbouring rows of a
    slow signal are not, and it will then keep too many. There is no private mode: one row can move the fourth cumulant
    without bound.

    References
    ----------
    Comon, *Independent component analysis, a new concept?*, 1994. Pham and Garat, *Blind separation of mixture of
    independent sources through a quasi-maximum likelihood approach*, 1997. Anandkumar, Ge, Hsu, Kakade, Telgarsky,
    *Tensor decompositions for learning latent variable models*, 2014, arXiv:1210.7559.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.models import TensorICA
    >>> rng = np.random.default_rng(0)
    >>> sources = np.column_stack([rng.uniform(-1, 1, 5000), rng.exponential(size=5000)])
    >>> rows = sources @ np.array([[2.0, 1.0], [1.0, 1.0]])
    >>> model = TensorICA(random_state=0).fit(rows)
    >>> seen = np.abs(np.corrcoef(model.transform(rows).T, sources.T)[:2, 2:])
    >>> bool(seen.max(axis=0).min() > 0.999)
    True
    """

    _KIND: ClassVar[str] = "sources model"
    _FITTED = FittedSources
    _STREAM = SourceStream

    def __init__(
        self,
        n_components: int | Literal["auto"] | None = None,
        *,
        max_iter: int = 50,
        tol: float = 1e-4,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Learn sources from rows, n x d."""
        settings = self._check_settings()
        with self._names_kept_on_failure():
            rows = self._validated(X, reset=True)
            seed = self._draw_seed()
            self._take(fit_ica(rows, settings, seed=seed), None, seed)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Learn from more rows; after `fit` it begins a new stream. See *Notes*."""
        settings = self._check_settings()
        stream = getattr(self, "_stream", None)
        with self._names_kept_on_failure():
            rows = self._validated(X, reset=stream is None, least=1)
            seed = self._draw_seed() if stream is None else self._seed
            before = SourceStream.begin(settings, rows.shape[1], seed) if stream is None else stream
            self._take(None, before.updated(rows), seed)
        return self

    def transform(self, X: Any) -> FloatArray:
        """Return the sources of rows, n x k."""
        check_is_fitted(self)
        rows = self._validated(X, reset=False, least=1)
        fitted = self._of_fitted("components_")
        sources: FloatArray = (scaled(rows, fitted.exponents) - fitted.mean) @ fitted.unmixing.T
        return sources

    def inverse_transform(self, X: Any) -> FloatArray:
        """Return the rows that sources (n x k) are mixed to."""
        check_is_fitted(self)
        fitted = self._learnt("mixing_")
        sources = check_array(X, dtype=np.float64)
        if sources.shape[1] != len(fitted.unmixing):
            raise ValueError(
                f"Sources must have a column for each of the {len(fitted.unmixing)} components. "
                f"Got {sources.shape[1]} columns. Pass what transform returns."
            )
        rows: FloatArray = scaled(sources @ fitted.mixing.T + fitted.mean, -fitted.exponents)
        return rows

    def score_samples(self, X: Any) -> FloatArray:
        """Return the log-likelihood of each row: sources have their histograms, and what they leave is Gaussian."""
        check_is_fitted(self)
        rows = self._validated(X, reset=False, least=1)
        fitted = self._of_fitted("score_samples")
        rows = scaled(rows, fitted.exponents)
        whitener = whiten(fitted.covariance, None).forward
        white = (rows - fitted.mean) @ whitener
        sources = (rows - fitted.mean) @ fitted.unmixing.T
        inner = np.linalg.cholesky(fitted.unmixing @ fitted.covariance @ fitted.unmixing.T)
        own = np.linalg.solve(inner, sources.T)
        # The density of all Gaussian, with that of the sources exchanged for their own.
        scale = log_volume(whitener, fitted.exponents) + np.sum(np.log(np.diagonal(inner)))
        constant = scale - (white.shape[1] - len(own)) * np.log(2 * np.pi) / 2
        gaussian = (np.sum(own**2, axis=0) - np.sum(white**2, axis=1)) / 2
        likelihoods: FloatArray = constant + gaussian + log_densities(fitted.counts, sources.T).sum(axis=0)
        return likelihoods

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002 - scikit-learn's signature
        """Return the mean log-likelihood of a row; see `score_samples`."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1) -> tuple[FloatArray, FloatArray]:
        """Return new rows, n x d, and the sources that they were mixed from; what sources leave is Gaussian."""
        check_is_fitted(self)
        n_rows, fitted = check_count("n_samples", n_samples), self._learnt("sample")
        rng = check_random_state(self.random_state)
        sources = draw_sources(fitted.counts, n_rows, rng).T
        mixing = fitted.mixing
        left = fitted.covariance - mixing @ fitted.unmixing @ fitted.covariance
        values, vectors = np.linalg.eigh((left + left.T) / 2)
        left_over = np.where(values > _ROUNDING * np.trace(fitted.covariance), values, 0.0)
        noise = rng.standard_normal((n_rows, len(values))) * np.sqrt(left_over)
        rows = sources @ mixing.T + noise @ vectors.T + fitted.mean
        return scaled(rows, -fitted.exponents), sources

    def summary(self) -> str:
        """Return what was found, in words: the verdict first, then a line for each source."""
        check_is_fitted(self)
        from odeco.models.ica.display import describe

        return describe(self, nearly_gaussian=_NEARLY_GAUSSIAN)

    def plot(self) -> Any:
        """Return a Matplotlib figure: the mixing weights of all columns, and the density of each source."""
        check_is_fitted(self)
        from odeco.models.ica.display import draw

        return draw(self)

    @property
    def components_(self) -> FloatArray:
        """The unmixing, k x d."""
        fitted = self._of_fitted("components_")
        return scaled(fitted.unmixing, fitted.exponents)

    @property
    def mixing_(self) -> FloatArray:
        """The mixing, d x k."""
        fitted = self._of_fitted("mixing_")
        return scaled(fitted.mixing.T, -fitted.exponents).T

    @property
    def mean_(self) -> FloatArray:
        """The mean of the rows."""
        fitted = self._of_fitted("mean_")
        return scaled(fitted.mean, -fitted.exponents)

    @property
    def whitening_(self) -> FloatArray:
        """The map to whitened directions, m x d."""
        fitted = self._of_fitted("whitening_")
        return scaled(fitted.whitening, fitted.exponents)

    @property
    def information_(self) -> FloatArray:
        """The Fisher information of each source."""
        return self._of_fitted("information_").information

    @property
    def n_components_(self) -> int:
        """Number of sources."""
        return len(self._of_fitted("n_components_").unmixing)

    @property
    def n_iter_(self) -> int:
        """Number of Newton's steps."""
        return self._of_fitted("n_iter_").n_iter

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows learnt from."""
        return self._of_fitted("n_samples_seen_").n_rows

    @property
    def converged_(self) -> bool:
        """Whether the last step was small."""
        return bool(self._of_fitted("converged_").converged)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _of_fitted(self, name: str) -> FittedSources:
        fitted: FittedSources = self._learnt(name)
        return fitted

    def _fitted_from_stream(self) -> FittedSources:
        fitted: FittedSources = self._stream.fitted()
        return fitted

    def _check_settings(self) -> Settings:
        wanted = self.n_components
        if wanted is not None and wanted != "auto":
            wanted = check_count("n_components", wanted, what=', or None, or "auto"')
        tolerance = check_number("tol", self.tol, 0.0, np.inf, closed=True)
        return Settings(wanted, check_count("max_iter", self.max_iter), tolerance)

    def _validated(self, X: Any, *, reset: bool, least: int = 2) -> FloatArray:
        rows: FloatArray = validate_data(self, X, reset=reset, dtype=np.float64, order="C", ensure_min_samples=least)
        return rows
