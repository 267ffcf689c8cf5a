"""The estimator of latent classes."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from odeco._util.arguments import check_count
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.latent_model import LatentModel
from odeco.models.lca.categories import (
    Categories,
    Questions,
    blocks_of,
    check_known,
    columns_of,
    encode,
    given_categories,
    learn_categories,
    to_texts,
)
from odeco.models.lca.display import summary_of
from odeco.models.lca.em import draw_codes, responsibilities
from odeco.models.lca.holder import HeldAnswers, check_private_table
from odeco.models.lca.learn import learn_classes, learn_number
from odeco.models.lca.private import MECHANISM, find_private_classes, plan_shares
from odeco.models.lca.spec import ClassSettings, FittedClasses, check_settings
from odeco.models.lca.stream import ClassStream
from odeco.privacy.ledger_file import Guarantee
from odeco.privacy.sums import PrivateSums


class LatentClasses(ClassNamePrefixFeaturesOutMixin, TransformerMixin, LatentModel):  # type: ignore[misc]
    """Latent class analysis: respondents of k hidden classes, in each of which answers to questions are independent.

    The questions are dealt to three views, whose moments are decomposed; likelihood steps (expectation and
    maximisation) follow from the best of several such starts and of random ones.

    Parameters
    ----------
    n_components : int or "auto"
        Number k of classes. ``"auto"`` takes the smallest that is not clearly worse than the best for respondents who
        were not learnt from; `tried_` says what was tried. `partial_fit` needs a number.
    n_starts : int
        How many starts race: half of them from moments, each with another split of the questions into views, and half
        at random. After some steps the likelier half goes on, until one is left.
    max_iter : int
        The most likelihood steps from there.
    tol : float
        Steps end when the mean log-likelihood of a respondent rises by less.
    smoothing : float
        The prior of a class counts as so many respondents, who answer as all respondents together do. With 0 the fit is
        that of maximum likelihood.
    missing_values : number, text or None
        What stands for no answer, beside NaN, None and what pandas has for it. If −1 is an answer, pass None.
    handle_unknown : {"error", "missing"}
        What becomes of an answer that was not there when the model was learnt.
    epsilon, delta : float, optional
        With both, the model is private: what `fit` learns is (ε, δ)-differentially private for each respondent. δ must
        be below one over their number, and `fit` must be given the `categories`. See *Private models*.
    neighbour_relation : {"replace", "add_remove"}
        For private models: whether the guarantee hides that a respondent is replaced by any other, or that all answers
        of one are blanked. The first needs √2 times the noise.
    ledger : path, optional
        For private models: the file of the budget of all models of these respondents together, made once with
        `odeco.privacy.LedgerFile.create`.
    random_state : int, RandomState instance or None
        Draws the splits into views and the random starts.

    Attributes
    ----------
    class_weights_ : array
        The probability of each class, the largest first after `fit`.
    answer_probabilities_ : list of arrays, k x answers
        For each question, the probability of each of its answers in each class.
    categories_ : list of arrays
        The answers to each question, in the order of `answer_probabilities_`.
    n_components_ : int
        Number of classes.
    n_rows_ : int
        Number of respondents seen.
    log_likelihood_ : float
        The mean log-likelihood of the respondents learnt from. Private models do not have it.
    n_iter_ : int
        How many steps were taken from the best start.
    converged_ : bool
        Whether the last of them gained less than `tol`.
    tried_ : dict of int to float
        With ``"auto"``, the mean log-likelihood of respondents who were not learnt from, for each number of classes
        that was tried.
    privacy_ : PrivacyReport
        What a private model guarantees to whom, and every release that was made. Other models do not have it.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.

    Notes
    -----
    A column is a question, and each of its different values an answer: whole numbers, texts, yes and no, or a pandas
    categorical, whose order is kept. A question that was not answered says nothing about its respondent; that whether
    it was answered depends on the class only through the other answers is assumed (missing at random).

    `partial_fit` learns in one pass and keeps no respondent. The result depends on the respondents and their order and
    not on where batches end. After `fit`, `partial_fit` begins a new stream; the classes keep the order that its first
    16,384 respondents gave them.

    **Private models.** With `epsilon` and `delta`, noisy sums over respondents are all that is learnt from them (see
    `plan_classes`): pairs of answers, the third moment of three views in k directions, and likelihood steps. The number
    of respondents, the questions and their answers are public. An answer that is none of these counts as missing,
    without a message. `score`, `bic` and `aic` are refused, because they are exact; `predict` of a respondent shows
    that respondent: only the model is private.

    References
    ----------
    Lazarsfeld and Henry, *Latent structure analysis*, 1968. Anandkumar, Ge, Hsu, Kakade, Telgarsky, *Tensor
    decompositions for learning latent variable models*, 2014, arXiv:1210.7559.

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

    _KIND: ClassVar[str] = "latent classes"
    _FITTED: ClassVar[type[FittedClasses]] = FittedClasses
    _STREAM: ClassVar[type[ClassStream]] = ClassStream

    def __init__(
        self,
        n_components: int | Literal["auto"] = 2,
        *,
        n_starts: int = 16,
        max_iter: int = 500,
        tol: float = 1e-6,
        smoothing: float = 1.0,
        missing_values: float | str | None = -1,
        handle_unknown: Literal["error", "missing"] = "error",
        epsilon: float | None = None,
        delta: float | None = None,
        neighbour_relation: Literal["replace", "add_remove"] = "replace",
        ledger: str | os.PathLike[str] | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_starts = n_starts
        self.max_iter = max_iter
        self.tol = tol
        self.smoothing = smoothing
        self.missing_values = missing_values
        self.handle_unknown = handle_unknown
        self.epsilon = epsilon
        self.delta = delta
        self.neighbour_relation = neighbour_relation
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, categories: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Learn classes from the answers of respondents.

        Parameters
        ----------
        X : array or table, respondents x questions
            The answers.
        y : object
            Ignored.
        categories : int or list, optional
            The answers to each question: for every question a list of them, or how many there are, which are then
            coded from 0 on; one number for all. By default what occurs in `X`. A private model needs them.
        """
        settings = self._check_settings()
        seed = self._draw_seed()
        if settings.guarantee is not None:
            return self._fit_privately(X, categories, settings, seed)
        with self._names_kept_on_failure():
            codes, known = self._learnt_codes(X, categories, settings)
            questions = Questions(np.array([own.size for own in known]))
            marked = questions.indicators(codes)
            if settings.n_components == "auto":
                found, tried = learn_number(marked, questions, settings.learning, seed=seed)
            else:
                found, tried = learn_classes(marked, questions, settings.n_components, settings.learning, seed=seed), {}
            self._take(FittedClasses.of(found, tried, known, marked), None, seed)
        return self

    def partial_fit(self, X: Any, y: Any = None, *, categories: Any = None) -> Self:  # noqa: ARG002
        """Go on learning from more respondents, whom nothing is kept of.

        Parameters
        ----------
        X : array or table, respondents x questions
            The answers.
        y : object
            Ignored.
        categories : int or list, optional
            The answers to each question, as for `fit`; looked at in the first call only. By default what occurs in the
            first batch.
        """
        settings = self._check_settings()
        if settings.guarantee is not None:
            raise ValueError(
                "A private model of latent classes is learnt at once. Got a call of partial_fit. Call fit with all "
                "respondents."
            )
        if settings.n_components == "auto":
            raise ValueError("`partial_fit` needs a number of classes. Got n_components='auto'. Pass a number.")
        stream = getattr(self, "_stream", None)
        with self._names_kept_on_failure():
            if stream is None:
                seed = self._draw_seed()
                codes, known = self._learnt_codes(X, categories, settings, least=1)
                texts, kinds = to_texts(known)
                sizes = np.array([own.size for own in known])
                stream = ClassStream.begin(texts, kinds, sizes, settings.n_components, settings.learning, seed)
            else:
                seed, known = self._seed, stream.categories
                codes = self._codes(self._columns(X, reset=False), known)
            self._take(None, stream.updated(codes), seed)
        return self

    def predict(self, X: Any) -> IndexArray:
        """Return the likeliest class of each respondent."""
        return cast("IndexArray", np.argmax(self.predict_proba(X), axis=1))

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability that each respondent belongs to each class, respondents x k."""
        return self._looked_at(X)[0]

    def transform(self, X: Any) -> FloatArray:
        """Return the same as `predict_proba`."""
        return self.predict_proba(X)

    def score_samples(self, X: Any) -> FloatArray:
        """Return the log-likelihood of the answers of each respondent; missing ones say nothing."""
        return self._looked_at(X)[1]

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002 - scikit-learn's signature
        """Return the mean log-likelihood of a respondent.

        A private model refuses: a search over settings calls this, and would choose by the exact respondents whom each
        model was made to hide. For respondents who need no protection there is `score_samples`.
        """
        self._refuse_if_private("score")
        return float(self.score_samples(X).mean())

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion for these respondents: the lower, the better."""
        self._refuse_if_private("bic")
        likelihoods = self.score_samples(X)
        n_parameters = self._fitted_classes("bic").n_parameters
        return float(-2 * likelihoods.sum() + n_parameters * np.log(likelihoods.size))

    def aic(self, X: Any) -> float:
        """Return the Akaike information criterion for these respondents: the lower, the better."""
        self._refuse_if_private("aic")
        return float(-2 * self.score_samples(X).sum() + 2 * self._fitted_classes("aic").n_parameters)

    def sample(self, n_samples: int = 1) -> tuple[Any, IndexArray]:
        """Return answers of respondents drawn from the model, and the class of each; no answer is missing."""
        fitted = self._fitted_classes("sample")
        n_samples = check_count("n_samples", n_samples)
        rng = check_random_state(self.random_state)
        codes, labels = draw_codes(fitted.classes, fitted.questions, n_samples, rng)
        columns = [own[places] for own, places in zip(fitted.categories, codes.T, strict=True)]
        mixed = any(column.dtype.kind == "O" for column in columns)
        return np.column_stack([column.astype(object) if mixed else column for column in columns]), labels

    def summary(self) -> str:
        """Return what was found, in words: a verdict, the classes, and how they answer."""
        fitted = self._fitted_classes("summary")
        return summary_of(fitted, self._names(), private=self._privacy is not None)

    def plot(self) -> Any:
        """Return a Matplotlib figure: how each class answers each question."""
        from odeco.models.lca.display import picture_of  # Matplotlib takes a second, and may be missing

        return picture_of(self._fitted_classes("plot"), self._names())

    @property
    def class_weights_(self) -> FloatArray:
        """The probability of each class."""
        return self._fitted_classes("class_weights_").weights

    @property
    def answer_probabilities_(self) -> list[FloatArray]:
        """For each question, the probability of each of its answers in each class, k x answers."""
        fitted = self._fitted_classes("answer_probabilities_")
        return [part.T for part in np.split(fitted.answers, fitted.questions.offsets[1:])]

    @property
    def categories_(self) -> Categories:
        """The answers to each question."""
        return self._fitted_classes("categories_").categories

    @property
    def n_components_(self) -> int:
        """Number of classes."""
        return int(self._fitted_classes("n_components_").weights.size)

    @property
    def n_rows_(self) -> int:
        """Number of respondents seen."""
        self._learnt("n_rows_")
        return int(self._fitted.n_rows)

    @property
    def log_likelihood_(self) -> float:
        """The mean log-likelihood of the respondents learnt from."""
        fitted = self._fitted_classes("log_likelihood_")
        if self._privacy is not None:
            raise AttributeError("`log_likelihood_` is exact, and a private model does not have it.")
        return float(fitted.log_likelihood)

    @property
    def n_iter_(self) -> int:
        """How many likelihood steps were taken from the best start."""
        return int(self._fitted_classes("n_iter_").n_steps)

    @property
    def converged_(self) -> bool:
        """Whether the last step gained less than `tol`."""
        return bool(self._fitted_classes("converged_").converged)

    @property
    def tried_(self) -> dict[int, float]:
        """The numbers of classes that were tried."""
        fitted = self._fitted_classes("tried_")
        return dict(zip(fitted.tried.tolist(), fitted.gains.tolist(), strict=True))

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _check_settings(self) -> ClassSettings:
        return check_settings(self)

    def _fitted_from_stream(self) -> FittedClasses:
        return cast("ClassStream", self._stream).fitted()

    def _fitted_classes(self, name: str) -> FittedClasses:
        return cast("FittedClasses", self._learnt(name))

    def _refuse_if_private(self, name: str) -> None:
        check_is_fitted(self)
        if self._privacy is not None:
            raise ValueError(
                f"The {name} of a private model must not choose between models: it is exact, and no budget pays for "
                f"it. Got a call of {name}. For respondents who need no protection call score_samples."
            )

    def _looked_at(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Return the probabilities of the classes of each respondent, and the log-likelihood of each."""
        check_is_fitted(self)
        fitted = self._fitted_classes("predict")
        codes = self._codes(self._columns(X, reset=False), fitted.categories)
        parts = [responsibilities(fitted.classes, block) for block in blocks_of(fitted.questions.indicators(codes))]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _learnt_codes(
        self, X: Any, categories: Any, settings: ClassSettings, *, least: int = 2
    ) -> tuple[IndexArray, Categories]:
        """Return the answers as numbers, and the answers to each question, given or as they occur."""
        columns = self._columns(X, reset=True, least=least)
        if categories is not None:
            known = given_categories(categories, self._names(), settings.missing_value)
        else:
            known = learn_categories(columns, self._names(), settings.missing_value)
        return self._codes(columns, known), known

    def _fit_privately(self, X: Any, categories: Any, settings: ClassSettings, seed: int) -> Self:
        """Learn classes such that no respondent can be told from the result, nor from a message on the way."""
        guarantee, k = cast("Guarantee", settings.guarantee), cast("int", settings.n_components)
        if categories is None:
            raise ValueError(
                "A private model needs the answers to each question: those that occur would show respondents. Got no "
                "`categories`. Pass a list of answers for each question, or how many there are."
            )
        check_private_table(X)
        with self._names_kept_on_failure():
            validate_data(self, X, reset=True, skip_check_array=True)
            known = given_categories(categories, self._names(), settings.missing_value)
            questions = Questions(np.array([own.size for own in known]))
            if questions.sizes.size < 2:
                raise ValueError("A private model needs at least 2 questions: pairs are released. Got 1.")
            codes = encode(columns_of(X), known, settings.missing_value)
            held = HeldAnswers(questions.indicators(codes), questions)
            sums = PrivateSums(guarantee, held.n_rows, record="respondent", neighbour_relation=self.neighbour_relation)
            plan = plan_shares(questions, k, n_rows=held.n_rows, mu=guarantee.mu)
            found = find_private_classes(held, sums, k, plan, seed=seed)
            fitted = FittedClasses.of_private(found, known, held.n_rows, n_steps=len(plan.steps))
            self._take(fitted, None, seed, sums.report(MECHANISM))
        return self

    def _codes(self, columns: list[Any], known: Categories) -> IndexArray:
        codes = encode(columns, known, self.missing_values)
        if self.handle_unknown == "error":
            check_known(codes, columns, self._names())
        return codes

    def _columns(self, X: Any, *, reset: bool, least: int = 1) -> list[Any]:
        """Return the checked columns of answers; a table is taken a column at a time, as each has its own type."""
        if hasattr(X, "iloc") and hasattr(X, "dtypes"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            table = X
        else:
            table = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
        if len(table) < least or table.shape[1] < 1:
            raise ValueError(
                f"At least {least} respondents and 1 question are needed. Got n_samples = {len(table)} and "
                f"n_features = {table.shape[1]}."
            )
        return columns_of(table)

    def _names(self) -> list[str]:
        """Return what the questions are called: by their names, or by their numbers from 0 on."""
        if hasattr(self, "feature_names_in_"):
            return [str(name) for name in self.feature_names_in_]
        return [f"question {place}" for place in range(self.n_features_in_)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags
