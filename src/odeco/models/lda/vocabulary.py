"""Split texts into words, count them, and select the words that distinguish topics.

How texts are split does not depend on the documents, and has a name (`Tokenizer`). A model with its
vocabulary and that name is therefore all that is needed to count the words of new documents in the
same way. The defaults here are those of the command as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from odeco._util.arguments import check_choice
from odeco._util.types import IndexArray
from odeco.errors import VocabularyError
from odeco.io.source import is_on_cluster
from odeco.online.dask.partitions import SelectedColumns

#: Number of Gibbs sweeps.
MAX_ITER = 50

#: A word is kept if at least this many documents contain it, and at most this share of them; and
#: the most words.
MIN_DOCUMENTS = 5
MAX_SHARE = 0.3
MAX_WORDS = 50_000

#: Number of words of a topic that are shown.
TOP_WORDS = 10

#: How far relevance goes by probability (1) or by lift (0); of 0.2 to 1, readers named topics best
#: at 0.6 (Sievert and Shirley, *LDAvis*, 2014).
RELEVANCE = 0.6


Words = NDArray[np.str_]

#: How texts are split: into lowercased words, by `WORD`; or at blanks, into what is between them,
#: unchanged. A model file holds this name and no pattern, as matching a pattern from an untrusted
#: file could take forever.
Tokenizer = Literal["words", "blanks"]


#: Longer words are left out: they are keys, addresses or binary data, and an array of texts takes
#: the memory of its longest for each.
MAX_WORD_LENGTH = 200

#: A word begins with a letter, goes on with letters, digits and underscores, and has from two to
#: 200 characters. What follows an apostrophe is left out ("don't" is "don"). Capitals count as
#: small letters.
WORD = rf"(?u)(?<!['’])\b[^\W\d_]\w{{1,{MAX_WORD_LENGTH - 1}}}(?!\w)"

#: `WORD` leaves these of contracted words; the list of stop words of scikit-learn does not have
#: them.
_CONTRACTED = (
    *(
        "ain",
        "aren",
        "couldn",
        "didn",
        "doesn",
        "don",
        "hadn",
        "hasn",
        "haven",
        "isn",
        "shouldn",
        "wasn",
        "weren",
    ),
    "wouldn",
)

_PATTERNS: dict[str, dict[str, Any]] = {
    "words": {"token_pattern": WORD, "lowercase": True},
    "blanks": {"token_pattern": rf"(?<!\S)\S{{1,{MAX_WORD_LENGTH}}}(?!\S)", "lowercase": False},
}

STOP_WORDS = frozenset(ENGLISH_STOP_WORDS).union(_CONTRACTED)


@dataclass(frozen=True, eq=False)
class CountedWords:
    """Word counts, and the words that they count.

    Attributes
    ----------
    counts : csr_array, documents x words, or ClusterRows
        How often each word occurs in each document.
    words : array of str
        The words, one for each column.
    n_found : int
        Number of different words in the documents, with those that were left out.
    """

    counts: Any
    words: Words
    n_found: int


def count_words(
    texts: Iterable[str],
    words: Sequence[str] | None = None,
    *,
    tokenizer: Tokenizer = "words",
    allow_empty: bool = False,
) -> CountedWords:
    """Count the words of texts: all of them in alphabetical order, or the given ones in their
    order.

    Parameters
    ----------
    texts : iterable of str
        The documents. They are read once and not kept.
    words : sequence of str, optional
        The words to count, each once, in lower case unless texts are split at blanks. Other words
        are ignored.
    tokenizer : {"words", "blanks"}
        How texts are split; see `Tokenizer`.
    allow_empty : bool
        Whether documents without any word are counted too, and none at all. Otherwise they are
        refused.

    Examples
    --------
    >>> counted = count_words(["Don't panic: panic is contagious.", "42"])
    >>> counted.words.tolist(), counted.counts.toarray().tolist()
    (['contagious', 'don', 'is', 'panic'], [[1, 1, 1, 2], [0, 0, 0, 0]])
    """
    check_choice("tokenizer", tokenizer, get_args(Tokenizer))
    n_read = 0

    def counted() -> Iterator[str]:
        nonlocal n_read
        for text in texts:
            n_read += 1
            yield text

    vectoriser = CountVectorizer(**_PATTERNS[tokenizer], dtype=np.int64, vocabulary=words)
    try:
        counts = vectoriser.fit_transform(counted())
    except ValueError as error:
        if not str(error).startswith("empty vocabulary"):
            raise
        if allow_empty:
            return CountedWords(
                sparse.csr_array((n_read, 0), dtype=np.int64), np.array([], dtype=np.str_), 0
            )
        if n_read:
            raise VocabularyError(
                f"The documents must hold words: two letters or more. Got none in {n_read:,} "
                "documents. Check what was read."
            ) from None
    if n_read == 0 and not allow_empty:
        raise VocabularyError("There must be at least one document. Got none. Check what was read.")
    names = np.asarray(vectoriser.get_feature_names_out(), dtype=np.str_)
    return CountedWords(sparse.csr_array(counts), names, names.size)


def prune_words(counted: CountedWords, **limits: Any) -> CountedWords:
    """Keep the words that may distinguish topics; `limits` are those of `select_vocabulary`.

    Examples
    --------
    >>> counted = count_words(["the cat sat", "the dog sat", "the cat ran"])
    >>> prune_words(counted, min_documents=2, max_share=0.7).words.tolist()
    ['cat', 'sat']
    """
    counts = counted.counts
    # A CSR array may store zeros; a document holds a word only if its count is above zero.
    frequency = np.bincount(counts.indices, counts.data > 0, minlength=counts.shape[1])
    totals = np.asarray(counts.sum(axis=0)).ravel()
    places = select_vocabulary(counted.words, frequency, totals, counts.shape[0], **limits)
    return CountedWords(sparse.csr_array(counts[:, places]), counted.words[places], counted.n_found)


def select_vocabulary(
    words: Words,
    frequency: NDArray[Any],
    totals: NDArray[Any],
    n_documents: int,
    *,
    min_documents: int = MIN_DOCUMENTS,
    max_share: float = MAX_SHARE,
    max_words: int = MAX_WORDS,
    stop_words: Iterable[str] = STOP_WORDS,
) -> IndexArray:
    """Return the places of words that are neither rare, nor everywhere, nor stop words.

    Parameters
    ----------
    words : array of str
        All words.
    frequency, totals : arrays
        How many documents hold each word, and how often it occurs in all.
    n_documents : int
        Number of documents.
    min_documents : int
        A word is kept only if at least this many documents hold it.
    max_share : float
        A word is kept only if at most this share of the documents holds it.
    max_words : int
        If more words than this are left, those that occur most often are kept.
    stop_words : iterable of str
        These words are left out in any case.
    """
    kept = (frequency >= min_documents) & (frequency <= max_share * n_documents)
    kept &= ~np.isin(np.char.lower(words), sorted(stop_words))
    places = np.flatnonzero(kept)
    if places.size > max_words:
        places = np.sort(places[np.argsort(-totals[places], kind="stable")[:max_words]])
    if places.size == 0:
        raise VocabularyError(
            f"At least one word must be in {min_documents:,} of the {n_documents:,} documents or "
            f"more, in at most {max_share:.0%} of them, and no stop word. None of the "
            f"{words.size:,} words is. Lower min_documents, raise max_share, or pass more "
            "documents."
        )
    return places


def select_words(counted: CountedWords, words: Sequence[str]) -> CountedWords:
    """Return the counts of the given words, in their order; a column whose word differs only in
    capitals counts too.

    Examples
    --------
    >>> counted = CountedWords(
    ...     sparse.csr_array(np.array([[1, 2, 4]])), np.array(["Cat", "dog", "cat"]), 3
    ... )
    >>> select_words(counted, ["horse", "cat"]).counts.toarray().tolist()
    [[0, 5]]
    """
    columns = {word: place for place, word in enumerate(words)}
    found = [columns.get(word, columns.get(word.lower(), -1)) for word in counted.words.tolist()]
    targets = np.array(found, dtype=np.int64)
    places = np.flatnonzero(targets >= 0)
    on_cluster = is_on_cluster(counted.counts)
    ones = np.ones(places.size, dtype=np.int64 if on_cluster else counted.counts.dtype)
    move = sparse.csr_array((ones, (places, targets[places])), shape=(targets.size, len(words)))
    if on_cluster:
        counts: Any = SelectedColumns(counted.counts, move)
    else:
        counts = sparse.csr_array(counted.counts @ move)
        # the Gibbs sweeps draw the topics of words in the order in which they are stored
        counts.sort_indices()
    return CountedWords(counts, np.array(words, dtype=np.str_), counted.n_found)


def as_words(lines: Iterable[str], tokenizer: Tokenizer = "words") -> list[str]:
    """Return the words of a list, one per line, each once; empty lines are skipped.

    They are lowercased, as words of texts are, unless texts are split at blanks.
    """
    clean = dict.fromkeys(
        line.strip().lower() if tokenizer == "words" else line.strip() for line in lines
    )
    clean.pop("", None)
    if not clean:
        raise VocabularyError(
            "A vocabulary must hold at least one word. Got none. Write one word per line."
        )
    check_word_lengths(clean)
    return list(clean)


def check_word_lengths(words: Iterable[str]) -> None:
    """Raise if a word is too long: an array of texts takes the memory of its longest text for
    each.
    """
    longest = max(words, key=len, default="")
    if len(longest) > MAX_WORD_LENGTH:
        raise VocabularyError(
            f"A word must have at most {MAX_WORD_LENGTH:,} characters. Got one of "
            f"{len(longest):,}, {longest[:20]!r}…. Leave it out, or shorten it."
        )


def numbered(n_words: int) -> Words:
    """Return names for columns without a word: ``x0``, ``x1`` and so on."""
    return np.array([f"x{place}" for place in range(n_words)], dtype=np.str_)


def n_unreachable(words: Iterable[str]) -> int:
    """Return the number of words that `count_words` finds in no text, because they do not match
    `WORD`.
    """
    return sum(1 for word in words if word != word.lower() or re.fullmatch(WORD, word) is None)
