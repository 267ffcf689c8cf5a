"""Records that several private runs were given: a warning, which depends on objects and on no
record.
"""

from __future__ import annotations

import gc
import warnings
from unittest import mock

import numpy as np
import pytest
from scipy import sparse

import odeco
from odeco.errors import ReusedRecordsWarning, WeakGuaranteeWarning
from odeco.models import Communities, LatentClasses, TensorICA, TensorLDA, TensorMixture
from odeco.privacy import LedgerFile
from odeco.privacy.ledger import Ledger
from odeco.privacy.report import _USED, forget_all

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
RUNS = {
    "decompose_privately": lambda rows, **more: odeco.decompose_privately(
        rows, 2, unit="record", norm_bound=1.0, **BUDGET, **more
    ),
    "private_subspace": lambda rows, **more: odeco.private_subspace(
        rows, 2, norm_bound=1.0, **BUDGET, **more
    ),
    "choose_norm_bound": lambda rows, **more: odeco.choose_norm_bound(rows, **BUDGET, **more),
    "mixture": lambda rows, **more: TensorMixture(2, norm_bound=1.0, **BUDGET, **more).fit(rows),
    "sources": lambda rows, **more: TensorICA(norm_bound=1.0, **BUDGET, **more).fit(rows),
}


def reused(run):
    """Return how many warnings of records that were used before a run shows."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return sum(issubclass(each.category, ReusedRecordsWarning) for each in caught)


def some_rows(seed=0):
    return np.random.default_rng(seed).standard_normal((300, 3))


@pytest.mark.parametrize("second", RUNS)
def test_a_second_private_run_on_the_same_rows_warns(second, tmp_path):
    rows = some_rows()
    assert reused(lambda: RUNS["mixture"](rows)) == 0
    assert reused(lambda: RUNS[second](rows)) == 1
    assert reused(lambda: RUNS[second](rows.copy())) == 0
    ledger = tmp_path / "rows.ledger"
    LedgerFile.create(ledger, data="people", unit="record", epsilon=9.0, delta=1e-6)
    other = some_rows()
    assert reused(lambda: RUNS["mixture"](other, ledger=ledger)) == 0
    assert reused(lambda: RUNS[second](other, ledger=ledger)) == 0
    assert reused(lambda: RUNS[second](other)) == 1


@pytest.mark.parametrize("run", RUNS)
def test_a_weak_guarantee_warns_before_anything_is_spent(run):
    """At δ = 1e-6 the adversary is right at most 66 % of the time for ε = 4, and 82 % for 10."""
    for epsilon, warns in ((4.0, False), (10.0, True)):
        with (
            mock.patch.dict(BUDGET, epsilon=epsilon),
            mock.patch.object(Ledger, "charge", side_effect=KeyboardInterrupt),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            with pytest.raises(KeyboardInterrupt):
                RUNS[run](some_rows())
        weak = [each for each in caught if issubclass(each.category, WeakGuaranteeWarning)]
        assert len(weak) == warns


def test_other_kinds_of_records_warn_too():
    answers, counts, graph = (
        (some_rows() > 0).astype(int),
        np.abs(some_rows()),
        sparse.csr_array(np.eye(5)),
    )
    for run in (
        lambda: LatentClasses(2, **BUDGET).fit(answers, categories=2),
        lambda: TensorLDA(2, **BUDGET).fit(counts),
        lambda: Communities(2, epsilon=1.0).fit(graph),
    ):
        reused(run)
        assert reused(run) == 1


def test_a_batch_that_is_fed_to_a_stream_twice_warns():
    rows, stream = (
        some_rows(),
        odeco.OnlineDecomposer(1, method="entries", batch_size=100, norm_bound=1.0, **BUDGET),
    )
    assert reused(lambda: stream.partial_fit(rows)) == 0
    assert reused(lambda: stream.partial_fit(some_rows(1))) == 0
    assert reused(lambda: stream.partial_fit(rows)) == 1
    assert reused(lambda: odeco.OnlineDecomposer(1).partial_fit(rows)) == 0  # not private


def test_open_runs_are_not_remembered_and_objects_are_not_kept():
    forget_all()
    rows = some_rows()
    TensorMixture(2, random_state=0).fit(rows)
    assert not _USED
    RUNS["mixture"](rows)
    assert len(_USED) == 1
    del rows
    gc.collect()
    assert not _USED


def test_whether_it_warns_depends_on_no_record():
    """The same object with other records warns, and another object with the same records does
    not.
    """
    rows = some_rows()
    reused(lambda: RUNS["mixture"](rows))
    rows[:] = np.nan
    assert reused(lambda: RUNS["mixture"](rows)) == 1
    assert reused(lambda: RUNS["mixture"](np.full((300, 3), np.nan))) == 0
