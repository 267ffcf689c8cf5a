"""An interrupt at any line leaves a topic model as it was before the call, or as it is after it."""

from __future__ import annotations

import numpy as np
import pytest
from interrupts import moments_of, run_traced

from odeco.datasets import planted_topics
from odeco.models import TensorLDA

COUNTS = planted_topics(260, 12, [0.5, 0.5], document_length=20, rng=0).counts
#: Where the state of a model changes; what its steps compute becomes state only there.
PLACES = (
    "models/lda/estimator.py",
    "models/lda/spec.py",
    "models/engine/estimator.py",
    "models/lda/moments.py",
)


def begun():
    return TensorLDA(2, max_iter=0, random_state=0).partial_fit(COUNTS[:90])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_batch_of_documents_is_learnt_or_it_is_not():
    # The second batch moves the basis, which changes most of what a stream holds.
    expected = begun().partial_fit(COUNTS[90:200]).partial_fit(COUNTS[200:]).topic_word_

    def push(model):
        return lambda: model.partial_fit(COUNTS[90:200])

    moments = moments_of(push(begun()), PLACES)
    assert len(moments) > 80
    for moment in moments:
        model = begun()
        run_traced(push(model), moment, PLACES)
        assert model.n_samples_seen_ in (90, 200), moment
        assert model.n_samples_seen_ == model._learnt.stream.sums.n_documents
        if model.n_samples_seen_ == 90:
            model.partial_fit(COUNTS[90:200])
        assert np.array_equal(model.partial_fit(COUNTS[200:]).topic_word_, expected), moment
