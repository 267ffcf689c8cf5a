"""What a word is, which words are kept, and documents without any."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from odeco.errors import DocumentError, VocabularyError
from odeco.io.documents import read_documents
from odeco.models.lda.vocabulary import (
    MAX_WORD_LENGTH,
    CountedWords,
    as_words,
    count_words,
    n_unreachable,
    prune_words,
    select_words,
)


def test_words_begin_with_a_letter_and_lose_what_follows_an_apostrophe():
    counted = count_words(["Don’t and don't; C3PO, x, 3D, __init__, snake_case, Größe 文字 we'll"])
    assert counted.words.tolist() == ["and", "c3po", "don", "größe", "snake_case", "we", "文字"]
    assert counted.counts.toarray().tolist() == [[1, 1, 2, 1, 1, 1, 1]]


def test_words_are_pruned_by_documents_share_number_and_list():
    texts = ["the cat sat sat sat", "the dog sat", "the cat ran", "rare the dog"]
    counted = count_words(texts)
    assert prune_words(counted, min_documents=2, max_share=0.5).words.tolist() == [
        "cat",
        "dog",
        "sat",
    ]
    assert prune_words(counted, min_documents=2, max_share=0.5, max_words=1).words.tolist() == [
        "sat"
    ]
    # Without stop words "the" is there, if every document may hold it.
    kept = prune_words(counted, min_documents=3, max_share=1.0, stop_words=())
    assert kept.words.tolist() == ["the"]
    assert kept.counts.toarray().ravel().tolist() == [1, 1, 1, 1]
    assert kept.n_found == 6
    with pytest.raises(VocabularyError) as caught:
        prune_words(counted, min_documents=3)
    assert str(caught.value) == (
        "At least one word must be in 3 of the 4 documents or more, in at most 30% of them, and "
        "no stop word. None of the 6 words is. Lower min_documents, raise max_share, or pass more "
        "documents."
    )


def test_given_words_are_counted_in_their_order_whatever_the_columns_were():
    counted = CountedWords(
        sparse.csr_array(np.array([[1, 2, 4], [0, 3, 0]])), np.array(["b", "a", "B"]), 3
    )
    chosen = select_words(counted, ["missing", "a", "b"])
    assert chosen.counts.toarray().tolist() == [[0, 2, 5], [0, 3, 0]]
    assert as_words([" Cat", "", "cat ", "Dog"]) == ["cat", "dog"]
    assert n_unreachable(["cat", "new york", "x", "Dog", "3d", "don't"]) == 5


def test_documents_without_a_word_and_no_documents_are_refused():
    with pytest.raises(VocabularyError) as caught:
        count_words(["1 2 3", "?"])
    assert str(caught.value) == (
        "The documents must hold words: two letters or more. Got none in 2 documents. Check what "
        "was read."
    )
    with pytest.raises(VocabularyError) as caught:
        count_words([], ["cat"])
    assert (
        str(caught.value) == "There must be at least one document. Got none. Check what was read."
    )
    with pytest.raises(VocabularyError) as caught:
        as_words(["", " "])
    assert (
        str(caught.value)
        == "A vocabulary must hold at least one word. Got none. Write one word per line."
    )


def test_an_error_in_a_document_is_not_taken_for_one_about_words(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "one two"}\n{}\n')
    with pytest.raises(DocumentError, match=r"Line 2 of rows\.jsonl .* Got no field"):
        count_words(each.text for each in read_documents([tmp_path / "rows.jsonl"], column="text"))


@pytest.mark.parametrize("tokenizer", ["words", "blanks"])
def test_a_word_that_is_too_long_is_left_out_and_takes_no_memory(tokenizer):
    # An array of texts takes the memory of its longest for each: one token of 100,000 characters
    # among 1,000 words took 400 MB.
    texts = [
        " ".join(f"word{place}x" for place in range(1_000)),
        "x" * 100_000 + " end",
        "y" * MAX_WORD_LENGTH,
    ]
    counted = count_words(texts, tokenizer=tokenizer)
    assert counted.words.dtype.itemsize == 4 * MAX_WORD_LENGTH
    assert counted.words.size == 1_002
    assert counted.counts.toarray()[1].sum() == 1
    with pytest.raises(VocabularyError, match=r"at most 200 characters\. Got one of 201"):
        as_words(["y" * (MAX_WORD_LENGTH + 1)])
