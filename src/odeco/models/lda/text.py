"""A TensorLDA learns from texts and is applied to texts: new texts are split into words as the first were."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Self

from sklearn.utils.validation import check_is_fitted

from odeco._util.types import FloatArray
from odeco.models.lda.attributes import TopicWords
from odeco.models.lda.private_vocabulary import choose_vocabulary_privately
from odeco.models.lda.settings import Callback, check_private
from odeco.models.lda.vocabulary import (
    MAX_SHARE,
    MAX_WORDS,
    MIN_DOCUMENTS,
    STOP_WORDS,
    Tokenizer,
    as_words,
    count_words,
    n_unreachable,
    prune_words,
    select_words,
)
from odeco.privacy.holders.protocol import NeighbourRelation


class TextTopics(TopicWords):
    """The side of a TensorLDA that reads texts."""

    fit: Any
    _proportions: Any
    epsilon: Any
    delta: Any
    neighbour_relation: NeighbourRelation
    ledger: str | os.PathLike[str] | None

    def fit_text(
        self,
        texts: Iterable[str],
        y: Any = None,  # noqa: ARG002 - scikit-learn's signature
        *,
        words: Sequence[str] | None = None,
        tokenizer: Tokenizer = "words",
        min_documents: int = MIN_DOCUMENTS,
        max_share: float = MAX_SHARE,
        max_words: int = MAX_WORDS,
        stop_words: Iterable[str] | Literal["english"] = "english",
        groups: Any = None,
        callback: Callback | None = None,
        progress: bool = False,
    ) -> Self:
        """Learn topics from texts, as ``odeco topics`` does; the model keeps the words and how texts were cut.

        Parameters
        ----------
        texts : iterable of str
            The documents. They are read once and not kept.
        y : object
            Ignored.
        words : sequence of str, optional
            Count these words, and no others.
        tokenizer : {"words", "blanks"}
            What a word is. ``"words"``: it begins with a letter and has two characters at least; capitals count as
            small letters, and what follows an apostrophe is left out. ``"blanks"``: whatever stands between blanks, as
            it is; for text that something else has cut and cleaned.
        min_documents, max_share, max_words
            Words in fewer documents, or in a larger share of them, are left out; then the most frequent are kept. A
            private model chooses its words by noisy votes instead, with `max_words` alone.
        stop_words : iterable of str or "english"
            Left out in any case; ``()`` leaves out none.
        groups, callback, progress
            As for `fit`.

        Examples
        --------
        >>> from odeco.models import TensorLDA
        >>> texts = 200 * [5 * "A cat and a mouse. ", 5 * "Shares, bonds; ", 5 * "Two bonds, three shares: "]
        >>> model = TensorLDA(2, max_iter=0, random_state=0).fit_text(texts, max_share=1.0)
        >>> [sorted(words) for words in model.top_words(2)]
        [['bonds', 'shares'], ['cat', 'mouse']]
        >>> model.transform_text(["The cat saw a mouse, and a mouse the cat."]).round(1)
        array([[0., 1.]])
        """
        private, left_out = check_private(self, groups), STOP_WORDS if stop_words == "english" else stop_words
        given = None if words is None else as_words(words, tokenizer)
        vocabulary, counted = (
            None,
            count_words(checked_texts(texts, private), given, tokenizer=tokenizer, allow_empty=private),
        )
        if words is None and private:
            vocabulary = choose_vocabulary_privately(
                counted,
                epsilon=self.epsilon,
                delta=self.delta,
                groups=groups,
                max_words=max_words,
                stop_words=left_out,
                neighbour_relation=self.neighbour_relation,
                ledger=self.ledger,
            )
            counted = select_words(counted, vocabulary.words.tolist())
        elif words is None:
            counted = prune_words(
                counted, min_documents=min_documents, max_share=max_share, max_words=max_words, stop_words=left_out
            )
        kept = {"words": counted.words, "tokenizer": tokenizer, "vocabulary": vocabulary}
        self.fit(counted.counts, groups=groups, callback=callback, progress=progress, **kept)
        return self

    def transform_text(self, texts: Iterable[str]) -> FloatArray:
        """Return the expected proportions of topics in each text, texts x topics; rows sum to one.

        Texts are cut as those that the model was learnt from. Words that it does not know are passed over; a text
        without a known word has the mean of all documents.
        """
        check_is_fitted(self)
        words, tokenizer = [str(word) for word in self.words_], self._tokenizer
        if tokenizer is None:
            _warn_of_words_in_no_text(words)
        counted = count_words(checked_texts(texts, private=False), words, tokenizer=tokenizer or "words")
        proportions: FloatArray = self._proportions(counted.counts)
        return proportions


def checked_texts(texts: Iterable[str], private: bool) -> Iterator[str]:
    """Yield texts, or raise if something is none; a private one that is none counts as empty, without a word."""
    if isinstance(texts, str):
        raise TypeError("`texts` must be a sequence of texts. Got one text. Put it into a list.")
    for number, text in enumerate(texts):
        if isinstance(text, str):
            yield text
        elif private:
            yield ""
        else:
            raise TypeError(f"Every text must be a str. Got {type(text).__name__} at place {number}. Convert it.")


def _warn_of_words_in_no_text(words: Sequence[str]) -> None:
    """Warn if a model that was learnt from counts has words that cutting a text into words cannot find."""
    n_lost = n_unreachable(words)
    if n_lost:
        warnings.warn(
            "A model must know how texts were split into words to find all of its words in new ones. This one was "
            f"learnt from counts, and {n_lost:,} of its {len(words):,} words are never found. Pass `tokenizer` to fit, "
            "or count the new texts as the first, and call transform.",
            UserWarning,
            stacklevel=3,
        )
