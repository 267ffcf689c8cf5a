"""Calls with parameters, data and command lines drawn at random end in a result or in words."""

from __future__ import annotations

import fuzz_calls
import pytest

#: Calls of each kind with a fixed seed; `make fuzz` makes others.
N_CALLS = 60


@pytest.mark.slow
@pytest.mark.parametrize("kind", fuzz_calls.KINDS)
def test_odd_calls_end_in_a_result_or_in_words(kind, tmp_path):
    fates = [fuzz_calls.run(kind, seed, tmp_path) for seed in range(N_CALLS)]
    assert len(set(fates)) > 1  # some calls must do something


def test_an_error_that_is_not_in_words_is_noticed():
    for wrong in (
        KeyError("a"),
        ValueError("could not convert"),
        IndexError("four words are here"),
    ):
        with pytest.raises(AssertionError):
            fuzz_calls.check_in_words(wrong)
