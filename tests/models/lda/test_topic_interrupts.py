"""An interrupt at any line leaves a topic model as it was before the call, or as it is after it."""

from __future__ import annotations

import numpy as np
import pytest
from interrupts import moments_of, run_traced

from odeco.datasets import planted_topics
from odeco.models import TensorLDA
from odeco.models.lda import spec as learn_in_batches

COUNTS = planted_topics(260, 12, [0.5, 0.5], document_length=20, rng=0).counts
#: Where the state of a model changes; what its steps compute becomes state only there.
PLACES = ("models/lda/estimator.py", "models/lda/spec.py", "models/engine/estimator.py", "models/lda/moments.py")


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


def test_a_stream_too_large_for_a_copy_refuses_to_go_on_after_an_interrupt(monkeypatch):
    monkeypatch.setattr(learn_in_batches, "_MAX_COPIED", 0)
    model = begun()
    assert model.partial_fit(COUNTS[90:120]).n_samples_seen_ == 120  # without an interrupt it goes on

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(learn_in_batches, "move_basis", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(COUNTS[120:])
    with pytest.raises(RuntimeError, match="was interrupted in the middle of a batch"):
        model.partial_fit(COUNTS[:50])
    with pytest.raises(RuntimeError, match="was interrupted in the middle of a batch"):
        _ = model.topic_word_
