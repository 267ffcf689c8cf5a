"""One budget in a file for all runs on the same data: shared by processes and copies, and never
exceeded.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import odeco
from odeco.datasets import planted_topics
from odeco.errors import BudgetExhausted
from odeco.models import Communities, LatentClasses, TensorHMM, TensorICA, TensorLDA, TensorMixture
from odeco.models.lda.private_vocabulary import choose_vocabulary_privately
from odeco.paper import private_tensor_power_method
from odeco.privacy import EntryLevel, Ledger, LedgerFile, RecordLevel, gdp_mu
from odeco.privacy import ledger_file as _ledger_file
from odeco.privacy.noise import SeededNoiseForTests
from odeco.private import decompose_privately

ROWS = np.repeat(np.eye(4)[:2], 100, axis=0)


def create(path, *, data="rows", unit="record", **given):
    return LedgerFile.create(path, data=data, unit=unit, **given)


def test_what_one_run_spends_another_knows(tmp_path):
    path = tmp_path / "data.ledger"
    create(path, epsilon=1.5, delta=1e-6)
    settings = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "unit": "record",
        "norm_bound": 1.0,
        "rng": 0,
        "ledger": path,
    }
    first = decompose_privately(ROWS, 2, **settings, noise=SeededNoiseForTests(0))
    assert LedgerFile(path).charges == first.privacy.charges
    decompose_privately(
        ROWS, 2, **settings, noise=SeededNoiseForTests(1)
    )  # mu grows by sqrt(2): epsilon 1.45
    before = path.read_bytes()
    with pytest.raises(BudgetExhausted, match="Nothing was released"):
        decompose_privately(ROWS, 2, **settings, noise=SeededNoiseForTests(2))
    assert path.read_bytes() == before
    assert LedgerFile(path).mu == pytest.approx(math.sqrt(2) * first.privacy.charges[0].mu)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_copies_of_an_estimator_share_its_budget(tmp_path):
    counts = planted_topics(300, 15, [0.5, 0.5], document_length=30, rng=5).counts
    path = tmp_path / "texts.ledger"
    create(
        path, epsilon=1.05, delta=1e-6
    )  # enough for one: a fit spends at least 65 % of its mu squared
    model = TensorLDA(2, epsilon=1.0, delta=1e-6, ledger=path, random_state=0)
    clone(model).fit(counts)
    with pytest.raises(BudgetExhausted, match="Nothing was released"):
        clone(model).fit(counts)
    with pytest.raises(ValueError, match="`ledger` is for private models"):
        TensorLDA(2, ledger=path).fit(counts)


def test_a_budget_is_never_begun_by_accident_nor_replaced(tmp_path):
    path = tmp_path / "data.ledger"
    with pytest.raises(
        FileNotFoundError, match=r"must exist as a file\. It does not\. Make it once for these data"
    ):
        LedgerFile(path)
    assert not path.exists()
    create(path, epsilon=1.0, delta=1e-6).charge("first", 1.0, 100.0)
    with pytest.raises(FileExistsError):
        create(path, epsilon=8.0, delta=1e-6)
    assert len(LedgerFile(path).charges) == 1
    assert LedgerFile(path).mu_limit == gdp_mu(1.0, 1e-6)


@pytest.mark.parametrize(
    "content", [b"", b"nonsense\n", b"[1]\n", b'{"kind": "other"}\n', b"[" * 100_000 + b"\n"]
)
def test_a_damaged_file_is_refused_and_left_as_it_is(content, tmp_path):
    path = tmp_path / "data.ledger"
    path.write_bytes(content)
    with pytest.raises(odeco.FileFormatError, match="must be a shared privacy ledger"):
        LedgerFile(path)
    assert path.read_bytes() == content


def test_half_a_line_is_a_charge_that_was_not_made(tmp_path):
    path = tmp_path / "data.ledger"
    ledger = create(path, epsilon=1.0, delta=1e-6)
    ledger.charge("first", 1.0, 100.0)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"mechanism": "half a li')
    assert len(ledger.charges) == 1
    ledger.charge("second", 1.0, 100.0)
    assert [charge.mechanism for charge in ledger.charges] == ["first", "second"]
    path.write_bytes(
        whole[:-1]
    )  # the charge is all there, and counts: an editor may have taken the end of the line
    assert len(ledger.charges) == 1
    ledger.charge("second", 1.0, 100.0)
    assert [charge.mechanism for charge in ledger.charges] == ["first", "second"]


def charged(path):
    """Return a ledger that has paid for three releases."""
    ledger = create(path, epsilon=1.0, delta=1e-6, delta_limit=5e-7, by="Ada")
    for number, scale in enumerate((100.0, 30.0, 64.0)):
        ledger.charge(f"release {number}", 1.0, scale, count=number + 1, delta=1e-8 * number)
    return ledger


def refuses_or_has_lost_nothing(path, before):
    """Tell whether a file is refused; if it is not, it must not have forgotten anything."""
    try:
        ledger = LedgerFile(path)
    except odeco.FileFormatError:
        return True
    assert ledger.charges == before.charges
    assert (ledger.mu_limit, ledger.delta_limit) == (before.mu_limit, before.delta_limit)
    return False


def test_a_changed_bit_or_digit_is_noticed(tmp_path):
    charged(tmp_path / "good.ledger")
    good, whole = LedgerFile(tmp_path / "good.ledger"), (tmp_path / "good.ledger").read_bytes()
    before = Ledger(good.mu_limit, delta_limit=good.delta_limit)
    for charge in good.charges:
        before.record(charge)
    path = tmp_path / "bad.ledger"
    for place, byte in enumerate(whole):
        others = [byte ^ 1 << place % 8]
        if chr(byte).isdigit():
            others.append(ord("0") + (byte - ord("0") + 1 + place % 9) % 10)
        for other in others:
            path.write_bytes(whole[:place] + bytes([other]) + whole[place + 1 :])
            # The end of the last line may be lost without a charge.
            assert refuses_or_has_lost_nothing(path, before) or place == len(whole) - 1


def test_a_line_that_is_missing_moved_or_repeated_is_noticed_but_for_the_last(tmp_path):
    path = tmp_path / "data.ledger"
    charged(path)
    lines = path.read_bytes().splitlines(keepends=True)
    changed = [lines[:place] + lines[place + 1 :] for place in range(len(lines) - 1)]
    changed += [
        [lines[0], lines[2], lines[1], lines[3]],
        [*lines, lines[-1]],
        [*lines[:2], *lines[1:]],
    ]
    for other in changed:
        path.write_bytes(b"".join(other))
        with pytest.raises(
            odeco.FileFormatError, match=r"not as it was written|must be a shared privacy"
        ):
            LedgerFile(path)
    path.write_bytes(b"".join(lines[:-1]))
    assert len(LedgerFile(path).charges) == 2


def test_a_ledger_of_the_earlier_format_is_refused_with_all_that_it_has_spent(tmp_path):
    path = tmp_path / "data.ledger"
    head = {
        "kind": "shared privacy ledger",
        "format_version": 1,
        "epsilon": 1.0,
        "delta": 1e-6,
        "delta_limit": 1e-7,
    }
    head["mu_limit"] = gdp_mu(1.0, 9e-7)
    charge = {
        "mechanism": "words",
        "sensitivity": 1.0,
        "scale": 20.0,
        "count": 4,
        "data": ["all data"],
        "delta": 5e-8,
    }
    path.write_text(json.dumps(head) + "\n" + json.dumps({**charge, "by": "Ada"}) + "\n")
    with pytest.raises(
        odeco.FileFormatError, match="format version 1 does not say whose budget it is"
    ) as error:
        LedgerFile(path)
    said = str(error.value)
    arguments = said[said.index("ledger.charge(") + len("ledger.charge(") : said.rindex(")")]
    new = create(tmp_path / "new.ledger", epsilon=1.0, delta=1e-6, delta_limit=1e-7)
    spent = eval(f"dict(what={arguments})")
    new.charge(spent.pop("what"), **spent)
    assert new.mu == pytest.approx(0.1)
    assert new.mu >= 0.1
    assert sum(charge.delta for charge in new.charges) >= 5e-8


TENSOR = np.zeros((3, 3, 3))
USERS = {"unit": "user", "groups": np.arange(200) // 2}
RECORDS = {"unit": "record", "norm_bound": 1.0}


@pytest.mark.parametrize(
    ("whose", "run", "fits"),
    [
        ({"unit": "record"}, {"data": ROWS, **RECORDS}, True),
        ({"unit": "row"}, {"data": ROWS, **RECORDS, "norm_bound": "auto"}, True),
        ({"unit": "record"}, {"data": RecordLevel(ROWS, norm_bound=1.0)}, True),
        ({"unit": "record"}, {"data": ROWS, **RECORDS, "neighbour_relation": "add_remove"}, False),
        ({"unit": "record", "neighbours": "add_remove"}, {"data": ROWS, **RECORDS}, False),
        ({"unit": "record"}, {"data": ROWS, **USERS, "norm_bound": 1.0}, False),
        ({"unit": "record"}, {"data": ROWS, **USERS, "norm_bound": "auto"}, False),
        (
            {"unit": "record"},
            {"data": RecordLevel(ROWS, norm_bound=1.0, groups=USERS["groups"])},
            False,
        ),
        ({"unit": "user"}, {"data": ROWS, **USERS, "norm_bound": 1.0}, True),
        ({"unit": "record"}, {"data": TENSOR}, False),
        ({"unit": "entry"}, {"data": TENSOR}, True),
        ({"unit": "entry"}, {"data": TENSOR, "entry_change": 2.0}, False),
        (
            {"unit": "entry", "neighbours": "distinct by 2.0"},
            {"data": TENSOR, "entry_change": 2},
            True,
        ),
        ({"unit": "entry"}, {"data": EntryLevel(TENSOR, neighbour_relation="literal")}, False),
        ({"unit": "entry"}, {"data": TENSOR, "mechanism": "wang2016"}, False),
        (
            {"unit": "entry", "neighbours": "literal"},
            {"data": TENSOR, "mechanism": "wang2016"},
            True,
        ),
    ],
)
@pytest.mark.parametrize("inner", [False, True])
def test_a_ledger_pays_for_its_unit_and_neighbours_and_for_no_others(
    whose, run, fits, inner, tmp_path
):
    path = tmp_path / "data.ledger"
    ledger = create(path, **whose, epsilon=2.0, delta=1e-6)
    before = path.read_bytes()
    settings = {**run, "epsilon": 1.0, "delta": 1e-6, "noise": SeededNoiseForTests(0)}
    settings["ledger"] = Ledger(10.0, within=ledger) if inner else path
    data = settings.pop("data")
    if fits:
        decompose_privately(data, 2, **settings)
        assert len(ledger.charges) >= 1
        return
    with pytest.raises(
        ValueError, match=r"data\.ledger must be the budget of runs for unit .* Nothing was spent"
    ):
        decompose_privately(data, 2, **settings)
    assert path.read_bytes() == before


def others_of_a_ledger(path):
    """Return runs of every other kind, by their unit: each charges the ledger with these
    neighbours.
    """
    budget = {"epsilon": 1.0, "delta": 1e-6, "ledger": path}
    relation = {"neighbour_relation": "add_remove"}
    counts = planted_topics(100, 15, [0.5, 0.5], document_length=30, rng=5).counts
    texts, answers = ["red apple", "green apple"] * 200, np.tile([[0, 1, 0], [1, 0, 1]], (100, 1))
    symbols = {"emissions": "categorical", "n_symbols": 2}
    lengths = {"lengths": [20] * 20}
    return {
        "subspace": lambda: odeco.private_subspace(ROWS, 1, **budget, norm_bound=1.0, **relation),
        "norms": lambda: odeco.choose_norm_bound(ROWS, **budget, **relation),
        "vocabulary": lambda: choose_vocabulary_privately(texts, **budget, **relation),
        "topics": lambda: TensorLDA(2, **budget, **relation).fit(counts),
        "mixture": lambda: TensorMixture(2, **budget, norm_bound=1.0, **relation).fit(ROWS),
        "sources": lambda: TensorICA(2, **budget, norm_bound=1.0, **relation).fit(ROWS),
        "classes": lambda: LatentClasses(2, **budget, **relation).fit(answers, categories=2),
        "states": lambda: TensorHMM(2, **symbols, **budget, **relation).fit(
            np.arange(400) % 2, **lengths
        ),
        "communities": lambda: Communities(2, epsilon=1.0, ledger=path).fit(np.ones((20, 20))),
        "paper": lambda: private_tensor_power_method(
            TENSOR, 1, 2, 2, 1.0, 1e-6, ledger=LedgerFile(path), noise=SeededNoiseForTests(0)
        ),
    }


@pytest.mark.parametrize("name", others_of_a_ledger(""))
def test_every_kind_of_run_states_whom_it_protects(name, tmp_path):
    path = tmp_path / "data.ledger"
    ledger = create(path, unit="user", epsilon=2.0, delta=1e-6)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"Nothing was spent"):
        others_of_a_ledger(path)[name]()
    assert path.read_bytes() == before
    assert ledger.charges == ()


def test_a_ledger_of_other_data_is_refused_and_its_name_is_not_made_of_them(tmp_path):
    path = tmp_path / "data.ledger"
    create(path, data="patients", epsilon=1.0, delta=1e-6)
    assert LedgerFile(path, data="patients").data == "patients"
    with pytest.raises(
        ValueError, match=r"must be the budget of the data that are used, 'staff'.*'patients'"
    ):
        LedgerFile(path, data="staff")
    for wrong in ("", None, 3):
        with pytest.raises(ValueError, match="`data` must be a text"):
            create(tmp_path / "new.ledger", data=wrong, epsilon=1.0, delta=1e-6)
        assert not (tmp_path / "new.ledger").exists()


CHARGER = """
import sys
from odeco.errors import BudgetExhausted
from odeco.privacy import LedgerFile
ledger = LedgerFile(sys.argv[1])
for number in range(60):
    try:
        ledger.charge(f"run {sys.argv[2]}, release {number}", 1.0, 40.0)
    except BudgetExhausted:
        break
"""


@pytest.mark.slow
def test_processes_that_charge_at_once_never_pass_the_limit_and_lose_no_charge(tmp_path):
    path = tmp_path / "data.ledger"
    ledger = create(path, epsilon=1.0, delta=1e-6)
    possible = math.floor((ledger.mu_limit * 40) ** 2)  # charges of mu = 1/40
    commands = [[sys.executable, "-c", CHARGER, os.fspath(path), str(run)] for run in range(3)]
    processes = [subprocess.Popen(command) for command in commands]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert possible < 3 * 60
    assert len(ledger.charges) == possible
    assert ledger.mu <= ledger.mu_limit * (1 + 2**-31)


def is_locked(path):
    """Tell whether somebody holds the lock of a file; a lock belongs to whoever opened it, not to
    the process.
    """
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_the_lock_is_held_from_reading_the_charges_until_the_new_one_is_on_disk(
    tmp_path, monkeypatch
):
    path = tmp_path / "data.ledger"
    ledger = create(path, epsilon=1.0, delta=1e-6)
    locked = []
    read, write = LedgerFile._ledger_in, os.fsync
    monkeypatch.setattr(
        LedgerFile, "_ledger_in", lambda *given: (locked.append(is_locked(path)), read(*given))[1]
    )
    monkeypatch.setattr(
        os, "fsync", lambda number: (write(number), locked.append(is_locked(path)))[0]
    )
    ledger.charge("release", 1.0, 100.0)
    assert locked == [True, True]
    assert not is_locked(path)


def test_a_charge_that_comes_while_another_is_made_waits_and_neither_is_lost(tmp_path, monkeypatch):
    path = tmp_path / "data.ledger"
    ledger = create(path, epsilon=1.0, delta=1e-6)
    read, others = LedgerFile._ledger_in, []

    def interrupted(self, content):
        found = read(self, content)
        if not others:  # the first charge has read what there is, and has written nothing yet
            others.append(threading.Thread(target=ledger.charge, args=("second", 1.0, 100.0)))
            others[0].start()
            others[0].join(timeout=1)  # without a lock it is through long before this
        return found

    monkeypatch.setattr(LedgerFile, "_ledger_in", interrupted)
    ledger.charge("first", 1.0, 100.0)
    others[0].join()
    assert [charge.mechanism for charge in ledger.charges] == ["first", "second"]


@pytest.mark.parametrize("delta_limit", [-0.5, -1e-9, 1e-6, 2e-6, math.nan, math.inf])
def test_the_part_of_delta_for_thresholds_is_above_0_and_below_delta(delta_limit, tmp_path):
    with pytest.raises(ValueError, match="delta_limit"):
        create(tmp_path / "data.ledger", epsilon=1.0, delta=1e-6, delta_limit=delta_limit)
    assert not (tmp_path / "data.ledger").exists()
    assert create(
        tmp_path / "data.ledger", epsilon=1.0, delta=1e-6, delta_limit=0.0
    ).mu_limit == gdp_mu(1.0, 1e-6)


def test_a_ledger_in_memory_pays_as_before():
    ledger = Ledger(gdp_mu(1.5, 1e-6))
    settings = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "unit": "record",
        "norm_bound": 1.0,
        "ledger": ledger,
    }
    decompose_privately(ROWS, 2, **settings, noise=SeededNoiseForTests(0))
    assert len(ledger.charges) == 1


def test_a_relative_path_is_that_of_the_folder_it_was_given_in(tmp_path, monkeypatch):
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        create(tmp_path / folder / "data.ledger", epsilon=1.0, delta=1e-6)
    monkeypatch.chdir(tmp_path / "first")
    ledger = LedgerFile("data.ledger")
    monkeypatch.chdir(tmp_path / "second")
    ledger.charge("release", 1.0, 100.0)
    assert len(LedgerFile(tmp_path / "first" / "data.ledger").charges) == 1
    assert len(LedgerFile("data.ledger").charges) == 0


def test_a_file_that_is_replaced_while_its_lock_is_waited_for_is_opened_again(
    tmp_path, monkeypatch
):
    path = tmp_path / "data.ledger"
    ledger = create(path, epsilon=1.0, delta=1e-6)
    lock, replaced = _ledger_file.lock, []

    def replace_first(file):
        if not replaced:
            replaced.append(True)
            content = path.read_bytes()
            path.unlink()
            path.write_bytes(content)
        lock(file)

    monkeypatch.setattr(_ledger_file, "lock", replace_first)
    ledger.charge("release", 1.0, 100.0)
    assert len(LedgerFile(path).charges) == 1


def test_a_ledger_within_a_file_cannot_be_copied_without_it(tmp_path):
    inner = Ledger(0.1, within=create(tmp_path / "data.ledger", epsilon=1.0, delta=1e-6))
    with pytest.raises(TypeError, match="a copy would not charge it"):
        inner.to_json()


class FullDisk:
    """A file on a disk without room: writing to it fails, as the system says it."""

    def __init__(self, file):
        self._file = file

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def write(self, data):
        self._file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_no_empty_ledger_behind(tmp_path, monkeypatch):
    path = tmp_path / "data.ledger"
    open_descriptor = os.fdopen
    monkeypatch.setattr(os, "fdopen", lambda *given: FullDisk(open_descriptor(*given)))
    with pytest.raises(OSError, match="No space left on device") as caught:
        create(path, epsilon=1.0, delta=1e-6)
    assert caught.value.filename == os.fspath(path)
    assert not path.exists()
    monkeypatch.undo()
    assert create(path, epsilon=1.0, delta=1e-6).charges == ()


def test_a_charge_on_a_full_disk_is_not_made_and_the_error_names_the_file(tmp_path, monkeypatch):
    path = tmp_path / "data.ledger"
    ledger = create(path, epsilon=1.0, delta=1e-6)
    ledger.charge("first", 1.0, 100.0)
    open_file = Path.open
    monkeypatch.setattr(Path, "open", lambda self, mode: FullDisk(open_file(self, mode)))
    with pytest.raises(OSError, match="No space left on device; nothing was released") as caught:
        ledger.charge("second", 1.0, 100.0)
    assert caught.value.filename == os.fspath(path)
    monkeypatch.undo()
    assert [charge.mechanism for charge in ledger.charges] == ["first"]
    ledger.charge("third", 1.0, 100.0)
    assert [charge.mechanism for charge in ledger.charges] == ["first", "third"]


def test_a_ledger_knows_its_guarantee_and_who_has_spent_what(tmp_path):
    path = tmp_path / "data.ledger"
    create(path, epsilon=1.5, delta=1e-6, by="Ada").charge("one", 3.0, 100.0)
    LedgerFile(path, by="Bob").charge("two", 1.0, 100.0)
    LedgerFile(path, by="Ada").charge("three", 4.0, 100.0)
    ledger = LedgerFile(path)
    assert (ledger.epsilon, ledger.delta) == (1.5, 1e-6)
    assert ledger.spent_by == pytest.approx({"Ada": 0.05, "Bob": 0.01})
    assert math.hypot(*ledger.spent_by.values()) == pytest.approx(ledger.mu)
