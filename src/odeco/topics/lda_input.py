"""What a TensorLDA is given is checked here: word counts, private word counts, and the words that they count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from odeco.errors import VocabularyError
from odeco.rows import check_private_structure, check_structure, to_csr
from odeco.topics.vocabulary import Words

if TYPE_CHECKING:
    from odeco.topics.lda import TensorLDA

#: What a model knows of its columns.
_OF_COLUMNS = ("n_features_in_", "feature_names_in_", "_words", "_cut")


def validated(model: TensorLDA, X: Any, *, reset: bool) -> Any:
    """Return word counts as scikit-learn checks them; with `reset` the model takes the names of their columns."""
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
