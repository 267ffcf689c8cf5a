"""Check what a TensorLDA is given, before anything is learnt: parameters, word counts, and the words they count."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from odeco._util.arguments import check_choice, check_count, check_unmasked
from odeco.errors import VocabularyError
from odeco.io.rows import check_private_structure, check_structure, to_csr
from odeco.models.lda.counts import DocumentWeight
from odeco.models.lda.vocabulary import Words

if TYPE_CHECKING:
    from odeco.models.lda.estimator import TensorLDA


#: A callback of this type is told the stage of the work, how much of it is done, and of how much.
Callback = Callable[[str, int, int], object]

#: At most this many topics are looked for when their number is left to the data.
MOST_AUTOMATIC = 100


@dataclass(frozen=True)
class LdaSettings:
    """The checked settings of a TensorLDA; `concentration` is None if it is to be chosen."""

    n_components: int | Literal["auto"]
    concentration: float | None
    max_iter: int
    topic_word_prior: float | None
    document_weight: DocumentWeight
    n_oversamples: int
    n_passes: int
    forget: float | None
    max_doc_update_iter: int
    n_jobs: int

    @property
    def parallel(self) -> bool:
        """Whether to use more than one core."""
        return self.n_jobs != 1

    def basis_size(self, n_words: int) -> int:
        """Return how many directions subspace iteration keeps."""
        k = MOST_AUTOMATIC if self.n_components == "auto" else self.n_components
        return min(k + self.n_oversamples, n_words)


def check_settings(model: Any, *, in_batches: bool = False) -> LdaSettings:
    """Return the settings of a TensorLDA, or raise; `in_batches` if they are for `partial_fit`."""
    k = model.n_components
    automatic = isinstance(k, str) and k == "auto"
    if automatic and in_batches:
        raise ValueError(
            "`n_components` must be an int for partial_fit. Got 'auto'. Fit a first part of the documents with 'auto' "
            "and take its n_components_."
        )
    check_choice("document_weight", model.document_weight, ("length", "equal"))
    concentration = model.doc_topic_concentration
    chosen = isinstance(concentration, str) and concentration == "auto"
    n_jobs = -1 if model.n_jobs is None else model.n_jobs
    if n_jobs != -1:
        check_count("n_jobs", n_jobs)
    return LdaSettings(
        n_components="auto" if automatic else check_count("n_components", k),
        concentration=None if chosen else _positive("doc_topic_concentration", concentration, "'auto'"),
        max_iter=check_count("max_iter", model.max_iter, 0),
        topic_word_prior=_positive_or_none("topic_word_prior", model.topic_word_prior),
        document_weight=model.document_weight,
        n_oversamples=check_count("n_oversamples", model.n_oversamples, 0),
        n_passes=check_count("n_passes", model.n_passes),
        forget=_positive_or_none("forget", model.forget),
        max_doc_update_iter=check_count("max_doc_update_iter", model.max_doc_update_iter, 1, 10**9),
        n_jobs=n_jobs,
    )


def check_private(model: Any, groups: Any, vocabulary: Any = None, *, in_batches: bool = False) -> bool:
    """Return whether a TensorLDA is to be private; raise if something is missing that privacy needs."""
    given = {"epsilon": model.epsilon, "delta": model.delta}
    missing = [name for name, value in given.items() if value is None]
    check_choice("unit", model.unit, ("document", "user"))
    if len(missing) == 1:
        raise ValueError(
            f"A private model needs `epsilon` and `delta`. Got no `{missing[0]}`. Pass both, or neither for a model "
            "without privacy."
        )
    if not in_batches and (model.unit == "user") != (groups is not None):
        raise ValueError(
            f"`groups` must be given for unit='user' and for no other. Got unit={model.unit!r} and "
            f"groups{'' if groups is not None else '=None'}. Pass one label a document, or unit='document'."
        )
    if missing and model.ledger is not None:
        raise ValueError(
            f"`ledger` is for private models. Got {os.fspath(model.ledger)!r} without `epsilon` and `delta`. "
            "Pass these, or leave it out."
        )
    if missing and model.public is not None:
        raise ValueError(
            "`public` is for private models, which start from it. Got it without `epsilon` and `delta`. Pass these, or "
            "put the public documents with the others."
        )
    if missing and vocabulary is not None:
        raise ValueError(
            "`vocabulary` is for private models. Got one without `epsilon` and `delta`. Pass these, or leave it out."
        )
    return not missing


def check_private_batches(model: Any, vocabulary: Any = None) -> None:
    """Raise if a private TensorLDA has settings that a stream of batches cannot honour."""
    if vocabulary is not None:
        raise ValueError(
            "The words of a private stream must not be read off its documents: which batch a vocabulary has cost what "
            "is not known. Got `vocabulary`. Call fit with all documents, or take a vocabulary from elsewhere and "
            "leave this out."
        )
    if model.unit != "document":
        raise ValueError(
            "A private stream protects documents: the documents of a user may be in several batches. "
            f"Got unit={model.unit!r}. Call fit with all documents, or pass unit='document'."
        )
    if model.ledger is not None:
        raise ValueError(
            "A private stream keeps its own ledger, by batches: a file that other runs share cannot know which "
            f"documents a batch held. Got ledger={os.fspath(model.ledger)!r}. Leave it out, or call fit."
        )


def _positive_or_none(name: str, value: Any) -> float | None:
    return None if value is None else _positive(name, value, "None")


def _positive(name: str, value: Any, alternative: str) -> float:
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < float(value) < np.inf:
        return float(value)
    raise ValueError(f"`{name}` must be a positive number or {alternative}. Got {value!r}.")


#: What a model knows of its columns.
_OF_COLUMNS = ("n_features_in_", "feature_names_in_", "_words", "_tokenizer")


def validated(model: TensorLDA, X: Any, *, reset: bool) -> Any:
    """Return word counts as scikit-learn checks them; with `reset` the model takes the names of their columns."""
    check_unmasked(X, "array X")
    if sparse.issparse(X):
        X = to_csr(X)
        check_structure(X)
    return validate_data(model, X, reset=reset, accept_sparse="csr", dtype="numeric")


def validated_privately(model: TensorLDA, X: Any, *, reset: bool) -> Any:
    """Return word counts as an array, without a word that depends on one of them.

    What NumPy makes of a list, and what it says about a cell that is no number, depends on the cells. So only
    arrays of numbers are taken, and whether a count is finite is not asked here.
    """
    types = {dtype.kind for dtype in X.dtypes} if hasattr(X, "dtypes") and hasattr(X, "iloc") else None
    if types is None and not (isinstance(X, np.ndarray) or sparse.issparse(X)):
        raise TypeError(
            "Private word counts must be a NumPy array, a CSR array or a table of numbers. "
            f"Got {type(X).__name__}. Convert them."
        )
    if not (types or {X.dtype.kind}) <= set("iufb"):
        raise TypeError("Private word counts must be numbers. Got another type of array or column. Convert them.")
    check_unmasked(X, "array X")
    check_private_structure(X)
    return validate_data(model, X, reset=reset, accept_sparse="csr", dtype="numeric", ensure_all_finite=False)


def checked_words(words: Sequence[str] | Words | None, n_words: int) -> Words | None:
    """Return the words of the columns as an array, or raise; None if none are given."""
    if words is None:
        return None
    given = [str(word) for word in words]
    if len(given) != n_words or len(set(given)) != n_words:
        raise VocabularyError(
            f"`words` must be one word for each of the {n_words:,} columns, and no word twice. Got {len(given):,}, "
            f"{len(set(given)):,} of them different. Pass those that were counted, in their order."
        )
    return np.array(given, dtype=np.str_)


@contextmanager
def columns_kept_on_failure(model: TensorLDA) -> Iterator[None]:
    """Go back to the words of the topics that the model has, if learning others fails."""
    before = {name: vars(model)[name] for name in _OF_COLUMNS if name in vars(model)}
    try:
        yield
    except BaseException:
        for name in _OF_COLUMNS:
            model.__dict__.pop(name, None)
        model.__dict__.update(before)
        raise
