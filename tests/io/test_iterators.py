"""Iterators that can be read only once, and callables that return a fresh one for every pass."""

from __future__ import annotations

import numpy as np
import pytest
from kinds import OwnSource, cut, dense_rows, read

from odeco.errors import SourceError
from odeco.io import as_source


def test_an_iterator_is_read_once_and_loses_nothing():
    source = as_source(block for block in cut(dense_rows()))
    assert not source.repeatable
    assert source.n_rows is None
    np.testing.assert_array_equal(read(source), dense_rows())
    with pytest.raises(SourceError) as raised:
        iter(source)
    assert str(raised.value) == (
        "The stream can be read only once, and a pass over it was started before. Pass a callable "
        "that returns a fresh iterator, a list of arrays, or a file."
    )


def test_an_iterator_left_early_is_not_read_on_by_a_second_pass():
    source = as_source(iter(cut(dense_rows())))
    next(iter(source))
    with pytest.raises(SourceError, match="can be read only once"):
        next(iter(source))


def test_a_callable_that_returns_one_iterator_twice_is_found_out():
    iterator = iter(cut(dense_rows()))
    source = as_source(lambda: iterator)
    list(source)
    with pytest.raises(SourceError, match="can be read only once"):
        iter(source)
    assert not source.repeatable


def test_an_own_source_that_is_its_own_iterator_is_read_once():
    class Once(OwnSource):
        def __iter__(self):
            return self

        def __next__(self):
            return next(self._blocks)

    source = as_source(Once(iter(cut(dense_rows()))))
    assert not source.repeatable
    np.testing.assert_array_equal(read(source), dense_rows())
    with pytest.raises(SourceError, match=r"^The Once can be read only once"):
        iter(source)


def test_a_pass_of_another_length_is_an_error():
    blocks = cut(dense_rows())
    source = as_source(blocks)
    list(source)
    blocks.pop()
    with pytest.raises(SourceError) as raised:
        list(source)
    assert str(raised.value) == (
        "The stream must give the same rows in every pass. It gave 20 rows instead of 23. Do not "
        "change it during a run; as a callable, return a fresh iterator at every call."
    )


def test_a_callable_is_called_once_for_each_pass():
    calls = []
    source = as_source(lambda: calls.append(1) or iter(cut(dense_rows())))
    list(source)
    assert len(calls) == 1
    list(source)
    assert len(calls) == 2


def test_blocks_without_rows_are_passed_over():
    rows = dense_rows()
    blocks = list(as_source([rows[:0], rows[:5], rows[:0], rows[5:]]))
    assert [len(block) for block in blocks] == [5, 18]
