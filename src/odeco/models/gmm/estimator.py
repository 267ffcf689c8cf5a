"""The estimator of mixtures of Gaussians."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from odeco._util.arguments import as_random_state, check_count
from odeco._util.types import FloatArray, IndexArray
from odeco.io.kinds import Columns, Table, as_table
from odeco.io.mixed import read_known, read_table
from odeco.io.rows import is_sparse
from odeco.io.source import check_cells
from odeco.models.emissions.covariances import COVARIANCE_TYPES, CovarianceType
from odeco.models.emissions.gaussians import Gaussians
from odeco.models.emissions.parts import draw_labels
from odeco.models.emissions.poisson import PoissonPart
from odeco.models.engine.estimator import EMEstimator
from odeco.models.engine.fit import Fit, fitted
from odeco.models.engine.parameters import (
    COLUMN_KINDS,
    N_JOBS,
    STANDARDIZE,
    choice,
    count,
    n_components,
    number,
    optional,
    param,
)
from odeco.models.engine.private_estimator import PrivateRowsEstimator
from odeco.models.engine.rows import Standardize, users_level
from odeco.models.gmm.context import MixtureContext
from odeco.models.gmm.spec import MixtureSpec


def _columns(fit: Fit) -> Columns:
    columns: Columns = fit.context.columns
    return columns


def _in_own_units(fit: Fit) -> Gaussians:
    model: Gaussians = fit.context.in_own_units(fit.params)
    return model


def _scale(fit: Fit) -> FloatArray | None:
    in_units = fit.context.kind == "spherical" and not fit.context.is_standardized
    return None if in_units else fit.context.scale


def _rates(fit: Fit) -> FloatArray:
    part = fit.params.part(PoissonPart)
    return np.zeros((len(fit.params.weights), 0)) if part is None else part.rates


@dataclass(eq=False, repr=False)
class TensorMixture(PrivateRowsEstimator, EMEstimator):
    """A mixture of Gaussians, or of the rows of a table, started by decomposing the third moment.

    The rows of a table may have numbers, categories and counts (see *Tables*).

    The third moment, without the part of the noise, is a tensor whose components are the means (Hsu
    and Kakade 2013). As components may not be spheres, random starts compete with it on a part of
    the rows, and components of the best are swapped (one given up, another cut in two); EM over all
    rows goes on from there. Every component has a prior, of about one row. Other seeds may give
    other components where rows do not determine them: `split_half` shows which of them random
    halves of the rows have too.

    Parameters
    ----------
    n_components : int or "auto"
        Number k of components. ``"auto"`` takes the smallest number, at most 50, that none of the
        next three beats: for each further parameter, the log-likelihood must rise by 1.5 on the
        rows and by 0.25 in five-fold cross-validation. Of more than 15,000 rows, that many are
        drawn for the selection.
    covariance_type : {"spherical", "diag", "full", "auto"}, optional
        Whether a component has one variance, one for each feature, or a covariance matrix. By
        default it has a matrix if there are at most 100 features and twice as many rows as features
        for each component (for each of five while k is selected), else variances; private mixtures
        are spheres by default. ``"auto"`` takes the kind that is best by the Bayesian information
        criterion, each with its best number of components if that is ``"auto"``. A stream has the
        kind of its first block.
    max_iter : int
        The largest number of EM iterations over all rows.
    tol : float
        EM ends when an iteration raises the mean log-likelihood of a row by less than this.
    reg_covar : float
        Every variance gets this share of the variance of its feature in all rows, so that none is
        zero, or Δ²/6 if that is more, where Δ is the least difference of two values of the feature:
        components are not narrower than numbers are rounded (Sheppard 1898).
    standardize : bool or "auto"
        Whether spheres are spheres of features that are divided by their standard deviations; other
        kinds do not depend on units. Parameters, scores and samples are in the units of the rows
        all the same. ``"auto"`` compares both by the Bayesian information criterion if the ranges
        of features differ by more than a factor of 100; private rows are then taken as they are.
        With True, a private mixture chooses centres and scales of columns under privacy: it needs
        ``norm_bound="auto"``.
    n_starts : int
        ``2 n_starts + 2`` starts compete: the third moment once, the others in turn k-means++ on
        plain, whitened and randomly weighted columns, and random directions.
    columns : dict of str to str, optional
        What columns of a table are, by their names: ``"number"``, ``"category"``, ``"count"`` or
        ``"ignore"``. By default it follows from their types and values, see *Tables*.
    smoothing : float
        The prior of a component, as a number of rows that are as all rows are. It counts less by
        the share of the standard deviation of rows that is left within components.
    epsilon, delta : float, optional
        With both, the mixture is private: the result of `fit` is (ε, δ)-differentially private. δ
        must be below one over the number of rows. See *Private mixtures*.
    norm_bound : float or "auto", optional
        For private mixtures: the largest Euclidean norm of a row, known without looking at the
        rows. Longer rows are scaled down to it. ``"auto"`` spends a part of μ², 5 % but for few
        records, on noisy counts of rows by their norm, which give the bound.
    neighbour_relation : {"replace", "add_remove"}
        For private mixtures: whether the guarantee hides that a row is replaced by any other, or
        that it is there or not (blanked; the number of rows is public).
    ledger : path, optional
        For private mixtures: the file of the budget of all models of these rows together, made once
        with `odeco.privacy.LedgerFile.create`.
    random_state : int, RandomState instance or None
        Draws the starts.
    n_jobs : int or None
        1 runs everything on one thread, None and −1 on all cores. The result does not depend on it.

    Attributes
    ----------
    weights_, means_, covariances_ : array
        The mixture, as in scikit-learn's `GaussianMixture`; largest component first. Spheres of
        standardised features have one variance for each feature.
    scale_ : array or None
        The standard deviations that numbers were divided by for the fit; None for spheres in the
        units of the rows.
    n_components_ : int
        Number of components.
    covariance_type_ : str
        The kind of the covariances, as ``covariance_type="auto"`` selected it.
    columns_, left_out_ : dict of str to str
        The kind of each column of a table that is used, and why others are not; empty for rows of
        numbers.
    categories_, probabilities_ : dict of str to array
        The categories of each column of categories, and their probabilities, k x categories.
    rates_ : array, k x counts
        The means of the columns of counts.
    lower_bound_ : float
        Mean log-likelihood of a row before the last iteration. Private mixtures have NaN.
    n_iter_ : int
        Number of EM iterations over all rows; of a stream, number of blocks.
    converged_ : bool
        Whether the last iteration gained less than `tol`. Of private mixtures: whether all
        components stand clear of noise.
    init_ : str
        Which start was the best.
    selection_scores_ : dict of int to float
        With ``"auto"``: the mean log-likelihood of held-out rows, for each number that was
        cross-validated.
    n_samples_seen_ : int
        Number of rows seen.
    privacy_ : PrivacyReport
        The guarantee of a private mixture, with every release that was made. Other models do not
        have it.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.

    Notes
    -----
    The third moment identifies at most d + 1 components in d dimensions. For more, the other starts
    compete alone.

    `partial_fit` starts from the first 20,000 rows; each 8,192 that follow take one step of online
    EM, and no row is stored longer than that. Fewer rows give exactly what `fit` gives. The result
    depends on the rows and their order, and not on how they are cut into batches. After `fit`,
    `partial_fit` begins a new stream.

    **Missing values** are NaN, None, nulls of tables and empty cells of files; they must be missing
    at random. The density of a row is that of its observed columns, and EM is exact for incomplete
    rows (Little and Rubin 2019). Starts use the means of columns in their place. Every column must
    have a value.

    If spheres are in the units of the rows, and one column has 90 % of the variance, `fit` also
    looks for components that do not depend on units, and warns (`odeco.DominantColumnWarning`) if
    they are others. `partial_fit` does so when its first block is complete. Up to 20,000 rows, the
    fit does not depend on the order in which rows are listed.

    **Tables** of pandas, polars or pyarrow, dicts of columns and files whose columns are not all
    numbers are taken as they are. Strings, yes and no, and categoricals are categories, and so are
    numbers with at most ten values that occur five times each on average. Constants, counters of
    rows, dates, and texts with more values than ten and a twentieth of the rows are left out. In
    a component, columns of different kinds are independent: `means_` and `covariances_` are those
    of the numbers. With ``covariance_type="auto"`` components are also compared in which the means
    of numbers depend on one category of at most four values (the location model of Krzanowski
    1975). A category that did not occur in the fit counts as missing in new rows.

    **Private mixtures.** With `epsilon`, `delta` and `norm_bound`, noisy sums over rows are all
    that is learnt from them: the second moment, the third moment of rows whitened by it, and the
    statistics of one EM iteration (`odeco.privacy.holders.rows` has the bounds of what a row adds,
    with proofs). Neighbours are two tables of the same size that differ in one row: replaced by any
    other, or with ``neighbour_relation="add_remove"`` blanked. The number of rows is public. A row
    with a number that is not finite counts as blank, without a message. There are at most d + 1
    components; k must be given, and `partial_fit` is refused. Spheres are all of one variance. With
    ``covariance_type="diag"`` or ``"full"``, the EM iteration also releases the squares or products
    of columns by component. All is shrunk by what the noise leaves of it: means towards that of all
    rows, covariances towards that within all components, this one towards a sphere. Where public
    numbers say that noise would hide components, the whole budget goes to one, which all components
    then are. ``standardize=True`` spends a part of μ², 5 % but for few rows, on noisy counts of
    numbers by column, in bins a fifth as wide as the number is large: so columns are centred and
    divided by their deviation, or by a fifth of their mean if that is larger
    (`odeco.privacy.holders.norms`). Clusters that are spheres in the units of the rows are none
    after that: name another kind of covariances. `plan_mixture` says beforehand what can be
    expected. The prediction for a row reveals that row: only the model is private.

    References
    ----------
    Hsu and Kakade, *Learning mixtures of spherical Gaussians: moment methods and spectral
    decompositions*, 2013, arXiv:1206.5766. Arthur and Vassilvitskii, *k-means++: the advantages of
    careful seeding*, 2007. Cappé and Moulines, *On-line expectation-maximization algorithm for
    latent data models*, 2009, arXiv:0712.4273. Little and Rubin, *Statistical analysis with missing
    data*, 2019, section 11.2. Krzanowski, *Discrimination and classification using both binary and
    continuous variables*, Journal of the American Statistical Association 1975.

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
    covariance_type: CovarianceType | Literal["auto"] | None = param(
        None,
        optional(choice(*COVARIANCE_TYPES, "auto")),
        "The shape of a cluster.",
        option="--covariance",
    )
    reg_covar: float = param(
        1e-6,
        number(0, 1e6),
        "The share of the variance of all rows that is added to every variance.",
    )
    standardize: Standardize = param(
        "auto",
        STANDARDIZE,
        (
            "Divide columns by their standard deviations; 'auto' tries it if ranges differ by "
            "more than a factor of 100."
        ),
        option="--standardize",
    )
    n_starts: int = param(5, count(0, 1000), "Half of the number of starts, less one.")
    columns: Mapping[str, str] | None = param(None, COLUMN_KINDS)
    smoothing: float = param(
        1.0,
        number(),
        "The prior of a component, as a number of rows.",
        option="--smoothing",
    )
    n_jobs: int | None = param(None, N_JOBS)

    _SPEC: ClassVar = MixtureSpec
    _KIND: ClassVar = "mixture"

    weights_ = fitted("params.weights", "The probability of each component.")
    means_ = fitted(lambda fit: _in_own_units(fit).means, "The mean of each component.")
    covariances_ = fitted(
        lambda fit: _in_own_units(fit).covariances,
        "The variance of each component, its variances, or its covariances.",
    )
    covariance_type_ = fitted(
        lambda fit: _in_own_units(fit).covariance_type, "The kind of the covariances."
    )
    scale_ = fitted(_scale, "What features were divided by, or None.")
    lower_bound_ = fitted(
        "info.log_likelihood", "The mean log-likelihood of a row before the last iteration."
    )

    columns_ = fitted(
        lambda fit: dict(
            zip(_columns(fit).names.tolist(), _columns(fit).kinds.tolist(), strict=True)
        ),
        "The kind of each column of a table: number, count or category.",
    )
    left_out_ = fitted(
        lambda fit: dict(
            zip(_columns(fit).left_out.tolist(), _columns(fit).reasons.tolist(), strict=True)
        ),
        "The columns of a table that are not used, and why.",
    )
    categories_ = fitted(lambda fit: _columns(fit).categories, "The categories of each column.")
    probabilities_ = fitted(
        lambda fit: fit.context.probabilities(fit.params),
        "The probabilities of the categories of each column, k x categories.",
    )
    rates_ = fitted(_rates, "The mean of each column of counts in each component.")

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Any, IndexArray]:
        """Draw rows from the mixture. Rows of one component are together, and no cell is missing.

        Parameters
        ----------
        n_samples : int
            Number of rows.
        random_state : int, RandomState instance or None
            Repeats a draw. By default each call draws other rows.

        Returns
        -------
        rows : array or table
            The rows: an array, or for a model of a table one of the same library, with the columns
            that the model uses.
        components : array
            The component of each row.
        """
        check_is_fitted(self)
        n_samples = check_count("n_samples", n_samples)
        fit = self._fit_for("sample")
        random = as_random_state(random_state)
        columns = _columns(fit)
        labels = draw_labels(fit.params.weights, n_samples, random)
        rows = fit.context.rows(fit.params.draw(labels, random))
        return (rows if columns.is_empty else columns.as_table(rows)), labels

    def _read(self, X: Any) -> Any:
        """Return data in memory; a dict of columns, and a file with texts, as a table."""
        if isinstance(X, Mapping) and not hasattr(X, "shape"):
            return as_table(X)
        if isinstance(X, str | os.PathLike):
            return read_table(X, self.columns or {})
        return super()._read(X)

    def _encode(self, X: Any, context: Any = None) -> tuple[FloatArray, Any]:
        """Return rows as numbers, and what the columns of a table are."""
        if context is None:
            return self._encode_first(X)
        if context.columns.is_empty:
            is_array = isinstance(X, np.ndarray) or is_sparse(X)
            return super()._encode(X if is_array else self._read(X), context)
        return self._encode_table(self._known_table(X, context.columns), context.columns), context

    def _encode_first(self, X: Any) -> tuple[FloatArray, Any]:
        """Return the rows of a fit, and what their columns are."""
        if not isinstance(X, np.ndarray) and not is_sparse(X):
            X = self._read(X)
            check_cells(X)
        asked = self.columns or {}
        table = as_table(X)
        if table is None:
            if asked:
                raise ValueError(
                    "`columns` names columns of a table. Got rows without names. Pass a table, or "
                    "leave it out."
                )
            return super()._encode(X)
        columns = Columns.of(table, asked)
        if columns.is_plain and not isinstance(X, Table):
            return super()._encode(X)  # a table of numbers is as an array
        self.feature_names_in_ = columns.names.astype(object)
        self.n_features_in_ = columns.names.size
        return self._encode_table(table, columns), MixtureContext(columns=columns)

    def _known_table(self, X: Any, columns: Columns) -> Table:
        """Return new rows as a table with the columns of the model."""
        if isinstance(X, str | os.PathLike):
            kinds = dict(zip(columns.names.tolist(), columns.kinds.tolist(), strict=True))
            return read_known(X, kinds, columns.categories)
        table = as_table(X)
        if table is None:
            raise ValueError(
                "The rows of a model of a table must be a table with its columns: "
                f"{', '.join(columns.names.tolist()[:20])}. Got {type(X).__name__}. Pass a "
                "pandas, polars or pyarrow table, or a dict of columns."
            )
        return table

    def _encode_table(self, table: Table, columns: Columns) -> FloatArray:
        """Return a table as numbers; a category that is not known counts as missing."""
        rows, unknown = columns.encode(table)
        if unknown:
            warnings.warn(
                f"Categories must be among those of the fit. {'; '.join(unknown[:3])}. They count "
                "as missing.",
                stacklevel=users_level(),
            )
        if len(rows) == 0:
            raise ValueError("There must be at least 1 row. Got none. Pass some.")
        return rows

    def _cells(self, X: Any) -> Any:
        """Return the cells of rows, as a page shows them."""
        columns = _columns(self._learnt.fit)
        if columns.is_empty:
            return super()._cells(X)
        decoded = columns.decode(self._encode(X, self._learnt.fit.context)[0])
        return np.column_stack([column.astype(object) for column in decoded.values()])

    def _parameters_of_halves(self) -> dict[str, Any]:
        """Return the parameters of a model of half of the rows, in which columns are what they are
        in all.
        """
        columns = _columns(self._learnt.fit)
        if not columns.is_empty:
            kinds = self.columns_ | dict.fromkeys(self.left_out_, "ignore")
        elif "feature_names_in_" in vars(self):
            kinds = dict.fromkeys(self._names(), "number")
        else:
            kinds = None
        return super()._parameters_of_halves() | {"columns": kinds}

    def plot(self, X: Any = None) -> Any:
        """Return a Matplotlib figure: components in the plane where their means vary most, and what
        separates them.

        Parameters
        ----------
        X : array, optional
            Rows to show with them.
        """
        check_is_fitted(self)
        return self._describe(
            None if X is None else self._encode(X, self._learnt.fit.context)[0]
        ).figure()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "density_estimator"  # DensityMixin would replace `score`
        tags.input_tags.allow_nan = True
        return tags
