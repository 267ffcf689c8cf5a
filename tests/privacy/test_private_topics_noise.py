"""Private topics learn from what was released, and from nothing else: noise that is cut short later
would show.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import chi2
from sealing import plain, play_back, record

from odeco.models import TensorLDA

N, V = 300, 12


def corpora():
    """Return corpora of one shape whose documents have nothing in common: neither words nor lengths
    nor repetition.
    """
    generator = np.random.default_rng(0)
    many = generator.multinomial(60, np.ones(V) / V, size=N).astype(float)
    one = np.zeros((N, V))
    one[np.arange(N), generator.integers(0, 2, N)] = 5.0
    return many, one, np.zeros((N, V))


def fitted(counts):
    model = TensorLDA(2, epsilon=5.0, delta=1e-9, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # that topics are deep in noise depends on what was released
        model.fit(sparse.csr_array(counts))
    return {name: getattr(model, name) for name in ("topic_word_", "diagnostics_", "privacy_")}


@pytest.mark.parametrize("other", [1, 2])
def test_the_same_releases_give_the_same_model_whatever_the_documents_are(other):
    data = corpora()
    model, seen = record(lambda: fitted(data[0]))
    played, unseen = play_back(lambda: fitted(data[other]), seen.released)
    assert seen.scales == unseen.scales
    assert plain(model) == plain(played)
    assert any(not np.array_equal(a, b) for a, b in zip(seen.exact, unseen.exact, strict=True))


def test_every_release_has_the_noise_that_its_charge_says():
    model, seen = record(lambda: fitted(corpora()[0]))
    assert seen.scales == [charge.scale for charge in model["privacy_"].charges]
    for exact, scale, released in zip(seen.exact, seen.scales, seen.released, strict=True):
        low, high = chi2.ppf(
            [1e-9, 1 - 1e-9], exact.size
        )  # the noise is that of the operating system
        assert low < np.sum(((released - exact) / scale) ** 2) < high
