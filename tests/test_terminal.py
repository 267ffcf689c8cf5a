"""The terminal never costs a result: whatever happens to it, files are written, and what was paid
for is not lost.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from command import run_here

import odeco
from odeco.cli import decompose
from odeco.privacy import LedgerFile

ROWS = np.eye(5)[np.random.default_rng(0).choice(2, size=3000, p=[0.7, 0.3])]
PRIVATE = [
    *(
        "decompose",
        "--rows",
        "rows.npy",
        "-k",
        "2",
        "--epsilon",
        "4",
        "--delta",
        "1e-6",
        "--norm-bound",
        "1",
    ),
    *("--ledger", "data.ledger", "--budget", "9"),
]
COMMANDS = {
    "decompose": ["decompose", "tensor.npy", "-k", "2"],
    "stream": ["decompose", "--rows", "rows.npy", "-k", "2"],
    "private": PRIVATE,
    "learn": ["learn", "mixture", "rows.npy", "-k", "2"],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a tensor and rows."""
    np.save(tmp_path / "tensor.npy", odeco.Components([3.0, 2.0], np.eye(5)[:, :2]).to_dense())
    np.save(tmp_path / "rows.npy", ROWS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_in_shell(
    redirection: str, arguments: list[str], folder: Path
) -> subprocess.CompletedProcess:
    """Run the command in a process of its own whose standard streams are redirected as a shell does
    it.
    """
    line = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "odeco", *arguments]
    environment = os.environ | {"TMPDIR": str(folder)}
    return subprocess.run(
        line, capture_output=True, text=True, check=False, cwd=folder, env=environment
    )


@pytest.mark.parametrize("columns", ["", "abc", "0", "-3", "²", "1e3"])
@pytest.mark.parametrize("name", ["decompose", "private"])
def test_a_width_of_the_terminal_that_is_no_number_changes_nothing(name, columns, folder):
    if name == "decompose":
        expected = run_here(*COMMANDS[name], "--json", cwd=folder)
        done = run_here(*COMMANDS[name], "--json", cwd=folder, COLUMNS=columns, LINES=columns)
        assert (done.returncode, done.stdout) == (0, expected.stdout)
    done = run_here(*COMMANDS[name], "--out", "r.npz", cwd=folder, COLUMNS=columns)
    assert done.returncode == 0
    assert "largest coordinates" in done.stdout
    assert odeco.load_result("r.npz").weights.size == 2


@pytest.mark.slow
@pytest.mark.parametrize("redirection", [">&-", ">/dev/full", ">&- 2>&- <&-"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_standard_output_that_takes_nothing_costs_no_file(name, redirection, folder):
    done = run_in_shell(redirection, [*COMMANDS[name], "--out", "r.npz"], folder)
    assert done.returncode == 1
    assert odeco._util.files.read_contents("r.npz")
    assert "Traceback" not in done.stderr
    if "2>" not in redirection:
        assert "The standard output could not be written: " in done.stderr
        assert "The result itself is in r.npz." in done.stderr


@pytest.mark.slow
def test_a_release_that_nothing_takes_is_kept_elsewhere(folder):
    done = run_in_shell(">&-", PRIVATE, folder)
    assert done.returncode == 1
    kept = Path(done.stderr.split("It is in ")[1].split(" instead")[0])
    assert odeco.load_result(kept).privacy.epsilon == 4
    assert "data.ledger stays charged with ε = 4" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_standard_error_that_takes_nothing_changes_nothing(name, redirection, folder):
    done = run_in_shell(redirection, [*COMMANDS[name], "--out", "r.npz"], folder)
    assert done.returncode == 0
    assert "component" in done.stdout
    assert odeco._util.files.read_contents("r.npz")


@pytest.mark.slow
def test_commands_without_files_say_that_their_output_was_lost(folder):
    done = run_in_shell(">/dev/full", ["info", "tensor.npy"], folder)
    assert done.returncode == 1
    assert done.stderr.endswith(
        "Error: The standard output could not be written: No space left on device.\n"
    )


#: Makes its standard input the terminal of its session, whose end the system then announces; and
#: becomes the command.
TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "odeco", *sys.argv[1:]])
"""


@pytest.mark.slow
def test_a_terminal_that_closes_as_the_result_appears_costs_no_file(folder):
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            TAKE_TERMINAL,
            *COMMANDS["decompose"],
            "--out",
            "r.npz",
            "--report",
            "p.html",
        ],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    while b"they explain" not in shown:
        shown += os.read(ours, 4096)
    os.close(ours)  # the system sends SIGHUP
    child.wait(60)
    assert odeco.load_result("r.npz").weights.size == 2
    assert "</html>" in Path("p.html").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_an_interrupt_of_the_delivery_waits_until_all_is_done(number, folder, monkeypatch):
    save = decompose.save_result

    def interrupt_and_save(*given, **further):
        signal.raise_signal(number)
        save(*given, **further)

    monkeypatch.setattr(decompose, "save_result", interrupt_and_save)
    done = run_here(*COMMANDS["decompose"], "--out", "r.npz", "--report", "p.html", cwd=folder)
    assert done.returncode == 130
    assert done.stderr.endswith("Interrupted. The result was delivered all the same.\n")
    assert "largest coordinates" in done.stdout
    assert odeco.load_result("r.npz").weights.size == 2
    assert Path("p.html").exists()


def test_a_signal_that_the_process_ignores_stays_ignored(folder, monkeypatch):
    save = decompose.save_result

    def hang_up_and_save(*given, **further):
        signal.raise_signal(signal.SIGHUP)
        save(*given, **further)

    monkeypatch.setattr(decompose, "save_result", hang_up_and_save)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as after nohup
    try:
        assert run_here(*COMMANDS["decompose"], "--out", "r.npz", cwd=folder).returncode == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("charges", [0, 1])
def test_an_interrupt_of_a_private_run_says_what_was_charged(charges, folder, monkeypatch):
    def charge_and_interrupt(*_, ledger, **__):
        for _ in range(charges):
            ledger.charge("rows", sensitivity=1.0, scale=1.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(decompose.odeco, "decompose_privately", charge_and_interrupt)
    done = run_here(*PRIVATE, cwd=folder)
    assert done.returncode == 130
    said = (
        "The run was charged to data.ledger: running the"
        if charges
        else "Nothing was charged to data.ledger."
    )
    assert f"Interrupted. {said}" in done.stderr
    assert (LedgerFile("data.ledger").mu > 0) == bool(charges)


def test_an_interrupt_of_a_private_run_without_a_ledger_says_what_may_be_spent(folder, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(decompose.odeco, "decompose_privately", interrupt)
    done = run_here(*PRIVATE[: PRIVATE.index("--ledger")], cwd=folder)
    assert done.returncode == 130
    assert "Interrupted. ε = 4 may be spent already" in done.stderr


def test_a_private_run_that_is_paid_for_outlives_its_terminal(folder, monkeypatch):
    release, before = odeco.decompose_privately, signal.getsignal(signal.SIGHUP)

    def release_without_terminal(*given, **further):
        signal.raise_signal(signal.SIGHUP)
        return release(*given, **further)

    monkeypatch.setattr(decompose.odeco, "decompose_privately", release_without_terminal)
    assert run_here(*PRIVATE, "--out", "r.npz", cwd=folder).returncode == 0
    assert odeco.load_result("r.npz").privacy.epsilon == 4
    assert signal.getsignal(signal.SIGHUP) is before


def test_an_error_of_any_kind_in_one_output_does_not_cost_the_others(folder, monkeypatch):
    monkeypatch.setattr(decompose, "print_text", lambda *_: 1 / 0)
    monkeypatch.setattr(
        import_module("odeco.decompose.page"), "write_report", lambda *_, **__: {}["page"]
    )
    done = run_here(*COMMANDS["decompose"], "--out", "r.npz", "--report", "p.html", cwd=folder)
    assert done.returncode == 1
    assert (
        "p.html could not be written: 'page'. The result could not be printed: division by zero."
        in done.stderr
    )
    assert "The result itself is in r.npz." in done.stderr
    assert odeco.load_result("r.npz").weights.size == 2
