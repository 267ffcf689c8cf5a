"""Word counts that are none are refused, with the document and the word at fault."""

from __future__ import annotations

import numpy as np
import pytest

from odeco.errors import WordCountError
from odeco.models.lda.counts import as_counts


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (
            [[1, -2]],
            (
                r"Word counts must not be negative. Negative values in data: counts[0, 1] = -2. "
                r"Check how it was made."
            ),
        ),
        (
            [[0.0, 0.0], [0.5, 1.0]],
            "Word counts must be whole numbers. Got counts[1, 0] = 0.5. Pass counts, such as "
            "those of CountVectorizer, not frequencies or tf-idf.",
        ),
        (
            [[1e200, 1.0]],
            "Word counts must be at most 2**40. Got counts[0, 0] = 1e+200. Check how it was made.",
        ),
        (
            [[1.0, np.nan]],
            "Word counts must be finite. Got counts[0, 1] = nan. Replace or drop it.",
        ),
        (
            np.zeros((3, 0)),
            (
                "The vocabulary must hold a word. Got shape (3, 0). Loosen the pruning of the "
                "vocabulary."
            ),
        ),
        (
            [1, 2, 3],
            "Word counts must have two axes, documents x words. Got shape (3,). Pass counts[None, "
            ":] for a single document.",
        ),
        (
            [["a", "b"]],
            "Word counts must be numbers. Got <U1. Count words with a vectoriser first.",
        ),
    ],
)
def test_what_is_no_count_is_refused(counts, message):
    with pytest.raises(WordCountError) as caught:
        as_counts(counts)
    assert str(caught.value) == message
