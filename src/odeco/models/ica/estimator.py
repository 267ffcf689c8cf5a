"""The estimator of independent component analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from odeco._util.arguments import as_random_state, check_count
from odeco._util.types import FloatArray
from odeco.models.engine.fit import fitted
from odeco.models.engine.parameters import STANDARDIZE, count, number, optional, or_auto, param
from odeco.models.engine.private_estimator import PrivateRowsEstimator
from odeco.models.engine.rows import Standardize
from odeco.models.ica.overcomplete import Mixing
from odeco.models.ica.spec import ICASpec
from odeco.models.ica.unmixing import Unmixing, scaled

_N_COMPONENTS = optional(
    or_auto(lambda name, value: check_count(name, value, what=', or None, or "auto"'))
)


@dataclass(eq=False, repr=False)
class TensorICA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateRowsEstimator):  # type: ignore[misc]
    """Independent component analysis, started from cumulants and refined by Newton's method with
    fitted densities.

    Rows are x = A s + mean, with independent sources s of which at most one is Gaussian. The third
    and the fourth cumulant of whitened rows, which are never formed, have the sources as
    orthonormal components, and all of them are found at once. Newton's method for the likelihood
    then refines them, with a density fitted to each source: no contrast function has to be chosen,
    and sources of any kind may be mixed.

    Parameters
    ----------
    n_components : int, None or "auto"
        Number k of sources. An int below the number of columns first keeps the k leading directions
        of the covariance, as scikit-learn does; see `standardize`. An int above the number d of
        columns, up to d (d − 1)/2, finds more sources than columns (see Notes). None takes one
        source for each direction in which rows vary. ``"auto"`` searches in all of these, and keeps
        the sources that are significantly non-Gaussian in held-out rows: none, if rows look
        Gaussian. With 4 to 40 columns and 50 d (d + 1) rows it also looks for more sources than
        columns, and takes them if their number is certain (a confidence of 0.95).
    max_iter : int
        The largest number of iterations.
    tol : float
        Newton iterations end when a step changes the unmixing matrix, relative to itself, by no
        more than this. Where steps do not settle, because sources depend on each other, L-BFGS
        raises the likelihood until three steps raise the mean log-likelihood of a row by less than
        1e-6 each.
    standardize : bool or "auto"
        For an int `n_components` below the number of columns: whether the leading directions are
        those of columns divided by their standard deviations. ``"auto"`` tries it if the ranges of
        columns differ by more than a factor of 100, and takes the likelier sources. All other
        sources do not depend on the units of columns.
    epsilon, delta : float, optional
        With both, sources are found under (ε, δ)-differential privacy. δ must be below one over the
        number of rows. See *Private sources*.
    norm_bound : float or "auto", optional
        For private sources: the largest Euclidean norm of a row, known without looking at the rows.
        Longer rows are scaled down to it. ``"auto"`` spends a part of μ², 5 % but for few records,
        on noisy counts of rows by their norm, which give the bound.
    neighbour_relation : {"replace", "add_remove"}
        For private sources: whether the guarantee hides that a row is replaced by any other, or
        that it is there or not (blanked; the number of rows is public).
    ledger : path, optional
        For private sources: the file of the budget of all models of these rows together, made once
        with `odeco.privacy.LedgerFile.create`.
    random_state : int, RandomState instance or None
        Draws the starts, the rows in which sources are found if there are many, and what `sample`
        draws.

    Attributes
    ----------
    components_ : array, k x d
        The unmixing matrix: sources are ``(X - mean_) @ components_.T``, with variance 1, the least
        Gaussian first. Signs make the largest entry of each column of `mixing_` positive.
    mixing_ : array, d x k
        The mixing matrix, which `inverse_transform` uses: the regression of rows on sources, and
        the pseudo-inverse of `components_` unless ``"auto"`` dropped some.
    mixing_errors_ : array, d x k
        With more sources than columns: the standard errors of `mixing_`, NaN if there are too few
        rows to tell.
    mean_ : array
        The mean of the rows.
    whitening_ : array, m x d
        The map to the whitened directions in which sources were searched.
    information_ : array
        The Fisher information of each source: 1 for a Gaussian. The larger the product of those of
        two sources, the better they can be separated.
    n_components_, n_iter_, n_samples_seen_ : int
        Number of sources, of iterations, and of rows.
    converged_ : bool
        Whether the last step was small, or the likelihood no longer rose; always true for a stream,
        which has no last step. Of private sources: whether all but one stand clear of noise.
    privacy_ : PrivacyReport
        The guarantee of private sources, with every release that was made. Other models do not have
        it.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.

    Notes
    -----
    `partial_fit` finds sources in the first 20,480 rows; each 4,096 that follow take one Newton
    step, and no row is stored longer than that. Fewer rows give exactly what `fit` gives. The
    result depends on the rows and their order, and not on how they are cut into batches. The number
    of sources and their order are those of the first block. After `fit`, `partial_fit` begins a new
    stream.

    **More sources than columns.** `mixing_` comes from the fourth cumulant of the rows, so every
    source must have one: excess kurtosis 0 is as invisible as a Gaussian. Gaussian noise does not
    change its directions, but enters their lengths. No linear map gives the sources back.
    `transform` returns their posterior mean under densities with the kurtosis of each source, by
    Gibbs sampling with fixed random numbers, in about a quarter of a millisecond per row: an
    estimate, whose error does not vanish however many rows there are. `components_` is the best
    linear estimate. There is no likelihood (`score`). `partial_fit` gives what `fit` gives, bit for
    bit, and stores no more rows than a block.

    If directions are chosen in columns as they are, and one column has 90 % of the variance and
    decides which, there is a warning (`odeco.DominantColumnWarning`).

    `summary` calls a source separated if it is significantly non-Gaussian in held-out rows, and
    says which sources depend on each other beyond chance: then rows are no mixture of independent
    sources, or these were not found.

    ``n_components="auto"`` takes rows as independent. Neighbouring rows of a slow signal are not,
    and it then keeps too many sources.

    **Private sources.** With `epsilon`, `delta` and `norm_bound`, noisy moments are all that is
    learnt from rows: the second moment, that of rows whitened by it and clipped, and their moments
    up to the fourth (`odeco.privacy.holders.rows` has the bounds of what a row adds, with proofs).
    Neighbours are two tables of the same size that differ in one row: replaced by any other, or
    with ``neighbour_relation="add_remove"`` blanked. The number of rows is public. A row with a
    number that is not finite counts as blank, without a message. Sources that do not stand clear of
    noise are taken for Gaussian. Every other has a symmetric density with its fourth cumulant: no
    histogram is released. There are at most 50 sources and no more than columns; `partial_fit` and
    `score` are refused. ``standardize=True`` needs ``norm_bound="auto"``: centres and scales of
    columns are then chosen under privacy (`odeco.privacy.holders.norms`), which helps where units
    differ by much. `plan_sources` says beforehand what can be expected. The sources of a row reveal
    that row: only the model is private.

    References
    ----------
    Comon, *Independent component analysis, a new concept?*, 1994. Pham and Garat, *Blind separation
    of mixture of independent sources through a quasi-maximum likelihood approach*, 1997. Ablin,
    Cardoso and Gramfort, *Faster independent component analysis by preconditioning with Hessian
    approximations*, 2018. De Lathauwer, Castaing and Cardoso, *Fourth-order cumulant-based blind
    identification of underdetermined mixtures*, 2007. Anandkumar, Ge, Hsu, Kakade, Telgarsky,
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

    n_components: int | Literal["auto"] | None = param(  # type: ignore[assignment]
        None, _N_COMPONENTS, option="-k", positional=True
    )
    max_iter: int = param(500, count(), "The largest number of iterations.")
    tol: float = param(1e-4, number(), "Iterations end when a step is smaller.")
    standardize: Standardize = param(
        "auto",
        STANDARDIZE,
        "For -k below the number of columns: divide columns by their standard deviations; 'auto' "
        "tries it if ranges differ by more than a factor of 100.",
        option="--standardize",
    )

    _SPEC: ClassVar = ICASpec
    _KIND: ClassVar = "sources model"

    components_ = fitted("params.components", "The unmixing matrix, k x d.")
    mixing_ = fitted("params.mixing", "The mixing matrix, d x k.")
    mixing_errors_ = fitted(
        "params.mixing_errors",
        "With more sources than columns: the standard errors of the mixing matrix, d x k.",
    )
    mean_ = fitted(
        lambda fit: scaled(fit.params.mean, -fit.params.exponents), "The mean of the rows."
    )
    whitening_ = fitted(
        lambda fit: scaled(fit.params.whitening, fit.params.exponents),
        "The map to whitened directions, m x d.",
    )
    information_ = fitted("params.information", "The Fisher information of each source.")
    n_components_ = fitted(lambda fit: len(fit.params.information), "Number of sources.")

    def transform(self, X: Any) -> FloatArray:
        """Return the sources of rows, n x k."""
        return self._unmixing().sources(self._encode(X, self._learnt.fit.context)[0])

    def inverse_transform(self, X: Any) -> FloatArray:
        """Return the rows that sources (n x k) are mixed to."""
        unmixing = self._unmixing()
        sources = check_array(X, dtype=np.float64)
        if sources.shape[1] != len(unmixing.information):
            raise ValueError(
                f"Sources must have a column for each of the {len(unmixing.information)} "
                f"components. Got {sources.shape[1]} columns. Pass what transform returns."
            )
        return unmixing.mix(sources)

    def score_samples(self, X: Any) -> FloatArray:
        """Return the log-likelihood of each row: sources have their histograms, and the remainder
        is Gaussian.
        """
        return self._unmixing().log_likelihoods(self._encode(X, self._learnt.fit.context)[0])

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: ARG002 - scikit-learn's
        """Return the mean log-likelihood of a row, each counted by its weight; see `score_samples`.

        A private model refuses, as mixtures do.
        """
        total, n = self._log_likelihood("score", X, sample_weight)
        return total / n

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[FloatArray, FloatArray]:
        """Draw rows, n x d, and return the sources that they were mixed from; the remainder is
        Gaussian.

        Each call draws others, unless `random_state` repeats a draw.
        """
        n_samples = check_count("n_samples", n_samples)
        return self._unmixing().sample(n_samples, as_random_state(random_state))

    def _signature(self, X: Any, **_: Any) -> FloatArray:  # noqa: ARG002 - sources are compared by their directions
        return np.asarray(self._unmixing().correlations)

    def _unmixing(self) -> Unmixing | Mixing:
        check_is_fitted(self)
        unmixing: Unmixing | Mixing = self._learnt.fit.params
        return unmixing

    def _encode(self, X: Any, context: Any = None) -> tuple[FloatArray, Any]:
        """Return rows, and the context, of which there is nothing to know."""
        rows: FloatArray = self._checked(X, reset=context is None, dtype=np.float64, order="C")
        return rows, context or self._SPEC.Context()
