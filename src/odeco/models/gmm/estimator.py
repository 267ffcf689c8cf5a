"""The estimator of mixtures of Gaussians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from odeco._util.arguments import check_count
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.estimator import EMEstimator
from odeco.models.engine.fit import fitted
from odeco.models.engine.gaussians import COVARIANCE_TYPES, CovarianceType
from odeco.models.engine.parameters import N_JOBS, STANDARDIZE, choice, count, n_components, number, param
from odeco.models.engine.private_estimator import PrivateRowsEstimator
from odeco.models.engine.rows import Standardize
from odeco.models.gmm.display import in_own_units
from odeco.models.gmm.spec import MixtureSpec


@dataclass(eq=False, repr=False)
class TensorMixture(PrivateRowsEstimator, EMEstimator):
    """A mixture of Gaussians, started by decomposing the third moment of rows and refined by EM.

    The third moment, without the part of the noise, is a tensor whose components are the means (Hsu and Kakade 2013).
    One pass finds all of them, and no random start is needed. As components may not be spheres, a few starts by
    k-means++ compete with it on a part of the rows (successive halving); EM over all rows goes on from the best.

    Parameters
    ----------
    n_components : int or "auto"
        Number k of components. ``"auto"`` takes the smallest number, at most 50, that none of the next three beats: for
        each further parameter, the log-likelihood must rise by 1.5 on the rows and by 0.25 in five-fold
        cross-validation. Of more than 15,000 rows, that many are drawn for the selection.
    covariance_type : {"spherical", "diag", "full", "auto"}
        Whether a component has one variance, one for each feature, or a covariance matrix. ``"auto"`` takes the kind
        with the highest likelihood of held-out rows, each with its own number of components if that is ``"auto"``; a
        stream that of its first block. Covariance matrices are tried for at most 100 features. Fewer than ten rows, or
        than two for each component, get spheres, and so do private rows; these may be given ``"diag"`` or ``"full"``.
    max_iter : int
        The largest number of EM iterations over all rows.
    tol : float
        EM ends when an iteration raises the mean log-likelihood of a row by less than this.
    reg_covar : float
        Every variance gets this share of the variance of its feature in all rows, so that none is zero. The variance of
        a sphere gets this share of the mean variance of the features.
    standardize : bool or "auto"
        Whether features are divided by their standard deviations first. Parameters, scores and samples are in the units
        of the rows all the same. ``"auto"`` tries it if the ranges of features differ by more than a factor of 100, and
        takes the better of both mixtures by the Bayesian information criterion; private rows are then taken as they
        are. With True, a private mixture chooses centres and scales of columns under privacy: it needs
        ``norm_bound="auto"``.
    n_starts : int
        Number of starts by k-means++ beside those of the third moment; twice this number if rows are few.
    epsilon, delta : float, optional
        With both, the mixture is private: the result of `fit` is (ε, δ)-differentially private. δ must be below one
        over the number of rows. See *Private mixtures*.
    norm_bound : float or "auto", optional
        For private mixtures: the largest Euclidean norm of a row, known without looking at the rows. Longer rows are
        scaled down to it. ``"auto"`` spends a part of μ², 5 % but for few records, on noisy counts of rows by their
        norm, which give the bound.
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
        The mixture, as in scikit-learn's `GaussianMixture`; largest component first. Spheres of standardised features
        have one variance for each feature.
    scale_ : array or None
        The standard deviations that features were divided by; None if they were not standardised.
    n_components_ : int
        Number of components.
    covariance_type_ : str
        The kind of the covariances, as ``covariance_type="auto"`` selected it.
    lower_bound_ : float
        Mean log-likelihood of a row before the last iteration. Private mixtures have NaN.
    n_iter_ : int
        Number of EM iterations over all rows; of a stream, number of blocks.
    converged_ : bool
        Whether the last iteration gained less than `tol`. Of private mixtures: whether all components stand clear of
        noise.
    init_ : str
        Which start was the best.
    selection_scores_ : dict of int to float
        With ``"auto"``: the mean log-likelihood of held-out rows, for each number that was cross-validated.
    n_samples_seen_ : int
        Number of rows seen.
    privacy_ : PrivacyReport
        The guarantee of a private mixture, with every release that was made. Other models do not have it.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.

    Notes
    -----
    The third moment identifies at most d + 1 components in d dimensions. For more, all starts are by k-means++.

    `partial_fit` starts from the first 20,000 rows; each 8,192 that follow take one step of online EM, and no row is
    stored longer than that. Fewer rows give exactly what `fit` gives. The result depends on the rows and their order,
    and not on how they are cut into batches. After `fit`, `partial_fit` begins a new stream.

    **Missing values** are NaN, None, nulls of tables and empty cells of files; they must be missing at random. The
    density of a row is that of its observed columns, and EM is exact for incomplete rows (Little and Rubin 2019).
    Starts use the means of columns in their place. Every column must have a value.

    `summary` calls components well apart if at least 95 % of rows drawn from the mixture can be assigned to their own
    component, and overlapping if at least 75 %; in both cases at least half of the errors of always guessing the
    largest component must be avoided. This is about the mixture, whose components depend on the units of columns unless
    it was standardised. If it was not, and one column has 90 % of the variance, `fit` also looks for components that
    do not depend on units, and warns (`odeco.DominantColumnWarning`) if they are others. `partial_fit` does so when
    its first block is complete.

    **Private mixtures.** With `epsilon`, `delta` and `norm_bound`, noisy sums over rows are all that is learnt from
    them: the second moment, the third moment of rows whitened by it, and the statistics of one EM iteration
    (`odeco.privacy.holders.rows` has the bounds of what a row adds, with proofs). Neighbours are two tables of the same
    size that differ in one row: replaced by any other, or with ``neighbour_relation="add_remove"`` blanked. The number
    of rows is public. A row with a number that is not finite counts as blank, without a message. There are at most
    d + 1 components; k must be given, and `partial_fit` is refused. Spheres are all of one variance. With
    ``covariance_type="diag"`` or ``"full"``, the EM iteration also releases the squares or products of columns by
    component. All is shrunk by what the noise leaves of it: means towards that of all rows, covariances towards that
    within all components, this one towards a sphere. Where public numbers say that noise would hide components, the
    whole budget goes to one, which all components then are. ``standardize=True`` spends a part of μ², 5 % but for few
    rows, on noisy counts of numbers by column, in bins a fifth as wide as the number is large: so columns are centred
    and divided by their deviation, or by a fifth of their mean if that is larger (`odeco.privacy.holders.norms`).
    Clusters that are spheres in the units of the rows are none after that: name another kind of covariances.
    `plan_mixture` says beforehand what can be expected.
    The prediction for a row reveals that row: only the model is private.

    References
    ----------
    Hsu and Kakade, *Learning mixtures of spherical Gaussians: moment methods and spectral decompositions*, 2013,
    arXiv:1206.5766. Arthur and Vassilvitskii, *k-means++: the advantages of careful seeding*, 2007. Cappé and Moulines,
    *On-line expectation-maximization algorithm for latent data models*, 2009, arXiv:0712.4273. Little and Rubin,
    *Statistical analysis with missing data*, 2019, section 11.2.

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

    n_components: int | Literal["auto"] = n_components(8)
    covariance_type: CovarianceType | Literal["auto"] = param(
        "auto", choice(*COVARIANCE_TYPES, "auto"), "The shape of a cluster.", option="--covariance"
    )
    reg_covar: float = param(1e-6, number(), "The share of the variance of all rows that is added to every variance.")
    standardize: Standardize = param(
        "auto",
        STANDARDIZE,
        "Divide columns by their standard deviations; 'auto' tries it if ranges differ by more than a factor of 100.",
        option="--standardize",
    )
    n_starts: int = param(5, count(0, 1000), "The number of starts by k-means++.")
    n_jobs: int | None = param(None, N_JOBS)

    _SPEC: ClassVar = MixtureSpec
    _KIND: ClassVar = "mixture"

    weights_ = fitted("params.weights", "The probability of each component.")
    means_ = fitted(lambda fit: in_own_units(fit).means, "The mean of each component.")
    covariances_ = fitted(
        lambda fit: in_own_units(fit).covariances, "The variance of each component, its variances, or its covariances."
    )
    covariance_type_ = fitted("params.covariance_type", "The kind of the covariances.")
    scale_ = fitted(
        lambda fit: fit.context.scale if fit.context.scale.size else None, "What features were divided by, or None."
    )
    lower_bound_ = fitted("info.log_likelihood", "The mean log-likelihood of a row before the last iteration.")

    def sample(self, n_samples: int = 1) -> tuple[FloatArray, IndexArray]:
        """Draw rows from the mixture; return them, and the component of each. Rows of one component are together."""
        check_is_fitted(self)
        n_samples = check_count("n_samples", n_samples)
        rows, labels = in_own_units(self._fit_for("sample")).draw(n_samples, check_random_state(self.random_state))
        return rows, labels

    def plot(self, X: Any = None) -> Any:
        """Return a Matplotlib figure: components in the plane where their means vary most, and what separates them.

        Parameters
        ----------
        X : array, optional
            Rows to show with them.
        """
        check_is_fitted(self)
        return self._describe(None if X is None else self._encode(X, self._learnt.fit.context)[0]).figure()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "density_estimator"  # DensityMixin would replace `score`
        tags.input_tags.allow_nan = True
        return tags
