"""The estimator of latent classes."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from odeco._util.arguments import as_random_state, check_count, check_tolerance, check_unmasked
from odeco._util.types import FloatArray, IndexArray
from odeco.io.categories import (
    check_known,
    columns_of,
    encode,
    given_categories,
    learn_categories,
)
from odeco.io.coerce import in_memory
from odeco.io.source import check_cells
from odeco.models.emissions.parts import draw_labels
from odeco.models.engine.agreement import Records
from odeco.models.engine.estimator import EMEstimator
from odeco.models.engine.fit import Fit, fitted
from odeco.models.engine.parameters import Constraint, choice, count, n_components, number, param
from odeco.models.engine.private_estimator import PrivateEstimator
from odeco.models.gmm.context import MixtureContext
from odeco.models.lca.spec import ClassSpec, classes_of, context_of, questions_of
from odeco.privacy.holders.answers import HeldAnswers, check_private_table


def _check_missing(name: str, value: Any) -> Any:
    if isinstance(value, bool) or not (value is None or isinstance(value, str | numbers.Real)):
        raise ValueError(f"`{name}` must be a number, a text or None. Got {value!r}.")
    return value


def _answer_probabilities(fit: Fit) -> list[FloatArray]:
    return list(fit.context.probabilities(fit.params).values())


#: Standard errors of this number of probabilities take seconds.
_MAX_ERRORS = 3_000

#: A fit to this number of questions takes minutes.
_MAX_QUESTIONS = 10_000


@dataclass(eq=False, repr=False)
class LatentClasses(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    PrivateEstimator,
    EMEstimator,
):
    """Latent class analysis: respondents of k hidden classes, in each of which answers to questions
    are independent.

    Several starts compete on some respondents by successive halving, and classes of the best are
    swapped; EM goes on from there. It is the mixture of a table whose columns are all categories
    (`TensorMixture`), with the words of surveys.

    Parameters
    ----------
    n_components : int or "auto"
        Number k of classes. ``"auto"`` takes the smallest, at most 64, that none of the next three
        beats: for each further parameter, the log-likelihood must rise by 1.5 on the respondents
        and by 0.25 in five-fold cross-validation. Of more than 15,000 respondents, that many are
        drawn for the selection.
    n_starts : int
        Number of starts, in turn of several kinds: the third moment once, k-means++ on plain,
        whitened and randomly weighted indicators, and random directions. After some
        iterations the likelier half goes on. Then classes of the best are swapped: one is given up,
        and another cut in two.
    max_iter : int
        The largest number of EM iterations from there.
    tol : float
        EM ends when all further iterations together would raise the mean log-likelihood of a
        respondent by less, as far as the last ones show (SQUAREM).
    smoothing : float
        The prior of a class counts as this many respondents, who answer as all respondents together
        do. With 0 the fit is that of maximum likelihood, and the default is within a thousandth of
        a nat of it; no answer is impossible then. With few respondents, 1 predicts the answers of
        new ones better.
    missing_values : number, text or None
        What stands for no answer, beside NaN, None and what pandas has for it. If −1 is an answer,
        pass None.
    handle_unknown : {"error", "missing"}
        Whether an answer that did not occur when the model was fitted is an error, or counts as
        missing.
    epsilon, delta : float, optional
        With both, the model is private: the result of `fit` is (ε, δ)-differentially private for
        each respondent. δ must be below one over their number, and `fit` needs the `categories`.
        See *Private models*.
    neighbour_relation : {"replace", "add_remove"}
        For private models: whether the guarantee hides that a respondent is replaced by any other,
        or that all answers of one are blanked. The first needs √2 times the noise.
    ledger : path, optional
        For private models: the file of the budget of all models of these respondents together, made
        once with `odeco.privacy.LedgerFile.create`.
    random_state : int, RandomState instance or None
        Draws the starts.

    Attributes
    ----------
    class_weights_ : array
        The probability of each class, the largest first.
    answer_probabilities_ : list of arrays, k x answers
        For each question, the probability of each of its answers in each class.
    categories_ : list of arrays
        The answers to each question, in the order of `answer_probabilities_`.
    n_components_ : int
        Number of classes.
    n_samples_seen_ : int
        Number of respondents seen.
    log_likelihood_ : float
        The mean log-likelihood of the respondents. Private models do not have it.
    n_iter_ : int
        Number of EM iterations from the best start; of a stream, number of blocks.
    converged_ : bool
        Whether the last of them gained less than `tol`. Of private models: whether noise does not
        hide the classes. If it does, all of them answer as all respondents do.
    init_ : str
        Which start was the best.
    selection_scores_ : dict of int to float
        With ``"auto"``, the mean log-likelihood of held-out respondents, for each number that was
        cross-validated.
    privacy_ : PrivacyReport
        The guarantee of a private model, with every release that was made. Other models do not have
        it.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.

    Notes
    -----
    A column is a question, and each of its different values an answer: whole numbers, texts, yes
    and no, or a pandas categorical, whose order is kept. A question that was not answered says
    nothing about its respondent; that whether it was answered depends on the class only through the
    other answers is assumed (missing at random).

    `partial_fit` learns in one pass: it starts from the first 16,384 respondents, and each 4,096
    that follow take one step of online EM (Cappé and Moulines 2009). No respondent is stored longer
    than that. Fewer respondents give exactly what `fit` gives. The result depends on the
    respondents and their order, and not on where batches end. After `fit`, `partial_fit` begins a
    new stream.

    **Private models.** With `epsilon` and `delta`, noisy sums over respondents are all that is
    learnt from them (see `plan_classes`): pairs of answers, the third moment of three views in k
    directions, and the statistics of EM iterations. `odeco.privacy.holders.answers` has the bounds
    of what a respondent adds, with proofs. The number of respondents, the questions and their
    answers are public. Any other answer counts as missing, without a message. `score`, `bic` and
    `aic` are refused, because they are exact. The prediction for a respondent reveals that
    respondent: only the model is private.

    References
    ----------
    Lazarsfeld and Henry, *Latent structure analysis*, 1968. Anandkumar, Ge, Hsu, Kakade, Telgarsky,
    *Tensor decompositions for learning latent variable models*, 2014, arXiv:1210.7559.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.models import LatentClasses
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(2, size=1000)
    >>> X = (rng.random((1000, 6)) < np.where(truth, 0.9, 0.2)[:, None]).astype(int)
    >>> model = LatentClasses(2, random_state=0).fit(X)
    >>> model.answer_probabilities_[0].shape, model.predict(X).shape
    ((2, 2), (1000,))
    """

    n_components: int | Literal["auto"] = n_components(2)
    n_starts: int = param(16, count(), "The number of starts.")
    max_iter: int = param(500, count(), "The largest number of EM iterations.")
    tol: float = param(1e-7, Constraint(lambda _, value: check_tolerance(value), float))
    smoothing: float = param(
        1e-4, number(), "The prior of a class, as a number of respondents.", option="--smoothing"
    )
    missing_values: float | str | None = param(-1, Constraint(_check_missing))
    handle_unknown: Literal["error", "missing"] = param("error", choice("error", "missing"))

    _SPEC: ClassVar = ClassSpec
    _KIND: ClassVar = "latent classes"

    class_weights_ = fitted("params.weights", "The probability of each class.")
    answer_probabilities_ = fitted(
        _answer_probabilities,
        "For each question, the probability of each of its answers in each class, k x answers.",
    )
    categories_ = fitted(
        lambda fit: list(fit.context.columns.categories.values()), "The answers to each question."
    )

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002 - scikit-learn's signature
        sample_weight: Any = None,
        *,
        categories: Any = None,
        groups: Any = None,
    ) -> Self:
        """Learn classes from the answers of respondents.

        Parameters
        ----------
        X : array or table, respondents x questions
            The answers.
        y : object
            Ignored.
        sample_weight : array of float, optional
            How often each respondent counts; by default once. Those of weight 0 are left out, and
            answers that nobody else gave are not learnt. A private model refuses weights.
        categories : int or list, optional
            The answers to each question: for every question a list of them, or their number, if
            they are coded from 0 on; one number for all. By default those that occur in `X`. A
            private model needs them.
        groups : array of labels, optional
            For private models: which user each row of answers belongs to; public. The guarantee is
            then for all rows of one user, and every user counts once, with the mean over own rows.
        """
        return self._fit(X, sample_weight, categories=categories, groups=groups)

    def partial_fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        sample_weight: Any = None,
        *,
        categories: Any = None,
    ) -> Self:
        """Update the model with another batch. At most one block of respondents is stored.

        Parameters
        ----------
        X : array or table, respondents x questions
            The answers.
        y : object
            Ignored.
        sample_weight : array of float, optional
            How often each respondent counts, as for `fit`.
        categories : int or list, optional
            The answers to each question, as for `fit`; used in the first call only. By default
            those that occur in the first batch.
        """
        return self._partial_fit(X, sample_weight, categories=categories)

    def _records(self, X: Any, sample_weight: Any = None, **_: Any) -> Records:
        """Return respondents; halves of them know all answers."""
        records = super()._records(X, sample_weight)
        categories = list(self.categories_)

        def take(places: IndexArray) -> tuple[Any, dict[str, Any]]:
            part, side = records.take(places)
            return part, side | {"categories": categories}

        return replace(records, take=take)

    def transform(self, X: Any) -> FloatArray:
        """Return the same as `predict_proba`."""
        return self.predict_proba(X)

    def standard_errors(
        self, X: Any, sample_weight: Any = None
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return the standard errors of `class_weights_` and of `answer_probabilities_`.

        They are those of maximum likelihood, by the scores of the respondents and the delta method.
        A probability at the border, zero or one, has the standard error zero.

        Parameters
        ----------
        X : array or table, respondents x questions
            The answers that the model was fitted to.
        sample_weight : array of float, optional
            The weights that it was fitted with: a respondent of weight 2 counts as two.
        """
        fit = self._fit_for("standard_errors")
        if self._learnt.privacy is not None:
            raise ValueError(
                "Standard errors are exact sums over respondents, and no budget pays for them. "
                "Got a private model. Fit one without epsilon."
            )
        classes = classes_of(fit.params)
        size = classes.weights.size + classes.answers.size
        if size > _MAX_ERRORS:
            raise ValueError(
                f"Standard errors are computed for at most {_MAX_ERRORS:,} probabilities. This "
                f"model has {size:,}. Use a bootstrap."
            )
        X, weights, _ = self._weigh(X, sample_weight, {})
        rows = self._learnt.spec.prepare(self._encode(X, fit.context)[0], fit.context)
        questions = questions_of(fit.context)
        errors = classes.standard_errors(rows, weights, questions)
        return errors.weights, np.split(errors.answers.T, questions.offsets[1:], axis=1)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Any, IndexArray]:
        """Draw respondents; return their answers, and the class of each. No answer is missing.

        Each call draws others, unless `random_state` repeats a draw.
        """
        model = self._fit_for("sample")
        n_samples = check_count("n_samples", n_samples)
        random = as_random_state(random_state)
        labels = draw_labels(model.params.weights, n_samples, random)
        rows = model.context.rows(model.params.draw(labels, random))
        columns = list(model.context.columns.decode(rows).values())
        mixed = any(column.dtype.kind == "O" for column in columns)
        return np.column_stack(
            [column.astype(object) if mixed else column for column in columns]
        ), labels

    @property
    def log_likelihood_(self) -> float:
        """The mean log-likelihood of the respondents."""
        fit = self._fit_for("log_likelihood_")
        if self._learnt.privacy is not None:
            raise AttributeError(
                "`log_likelihood_` is exact, and a private model does not have it."
            )
        return float(fit.info.log_likelihood)

    def _encode(
        self, X: Any, context: MixtureContext | None = None, categories: Any = None
    ) -> tuple[FloatArray, MixtureContext]:
        """Return the codes of answers, in which NaN is missing; a table is read one column at a
        time, as each has its own type.
        """
        reset, missing = context is None, self.missing_values
        X = in_memory(X)
        check_cells(X)
        if hasattr(X, "iloc") and getattr(X, "ndim", 0) == 2:
            validate_data(self, X, reset=reset, skip_check_array=True)
            table = X
        else:
            table = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
        if len(table) < 1 or table.shape[1] < 1:
            raise ValueError(
                f"At least 1 respondent and 1 question are needed. Got n_samples = {len(table)} "
                f"and n_features = {table.shape[1]}."
            )
        if table.shape[1] > _MAX_QUESTIONS:
            raise ValueError(
                f"There must be at most {_MAX_QUESTIONS:,} questions: more would take hours. Got "
                f"{table.shape[1]:,} columns. Choose the questions that matter."
            )
        columns, names = columns_of(table), self._names()
        if context is None:
            known = learn_categories(columns, names, missing) if categories is None else None
            known = known or given_categories(categories, names, missing)
            context = context_of(known, names)
        codes = encode(columns, list(context.columns.categories.values()), missing)
        if self.handle_unknown == "error":
            check_known(codes, columns, names)
        return np.where(codes < 0, np.nan, codes), context

    def _hold(
        self, X: Any, spec: ClassSpec, *, categories: Any = None, groups: Any = None
    ) -> tuple[HeldAnswers, MixtureContext]:
        """Return a holder of private answers, without a message that depends on one of them."""
        if categories is None:
            raise ValueError(
                "A private model needs the answers to each question: those that occur would "
                "reveal respondents. Got no `categories`. Pass a list of answers for each "
                "question, or their number."
            )
        check_unmasked(X, "array X")
        check_private_table(X)
        validate_data(self, X, reset=True, skip_check_array=True)
        missing = spec.settings.missing_values
        given = given_categories(categories, self._names(), missing)
        context = context_of(given, self._names())
        questions = questions_of(context)
        if questions.sizes.size < 2:
            raise ValueError(
                "A private model needs at least 2 questions: pairs are released. Got 1."
            )
        codes = encode(columns_of(X), given, missing)
        return HeldAnswers(questions.indicators(codes), questions, groups), context

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags
