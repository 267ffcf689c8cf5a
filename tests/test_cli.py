"""The command as a user runs it: help, main use, bad input, Ctrl-C, threads.

What depends on the process itself starts the executable; the rest is run within this one.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command import run_here
from scipy import sparse

import odeco
from odeco.datasets import planted_orthogonal

EXECUTABLE = Path(sys.executable).parent / "odeco"
COMMAND = [str(EXECUTABLE)] if EXECUTABLE.exists() else [sys.executable, "-m", "odeco"]


def run_executable(*arguments, cwd, **environment):
    """Run the executable in a folder, and return what it did."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def succeed(*arguments, cwd, run=run_here, **environment):
    """Run the command, which must succeed, and return what it wrote to stdout."""
    done = run(*arguments, cwd=cwd, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fails(code, *arguments, cwd):
    """Run the command, which must fail with this code, say why in a few lines, and show no
    traceback.
    """
    done = run_here(*arguments, cwd=cwd)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 6
    return " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a tensor of two components, rows of three, and files that are wrong in various
    ways.
    """
    path = tmp_path_factory.mktemp("cli")
    generator = np.random.default_rng(0)
    truth = planted_orthogonal(20, 2, weights=[3.0, 2.0], rng=0)
    np.save(path / "tensor.npy", truth.to_dense())
    np.savez(path / "two.npz", first=truth.to_dense(), second=np.arange(3))
    np.save(path / "integers.npy", np.einsum("i,j,k->ijk", *[np.array([1, 0, 2])] * 3))
    np.save(path / "asymmetric.npy", generator.standard_normal((4, 5, 6)))
    np.save(path / "skew.npy", generator.standard_normal((4, 4, 4)))
    np.save(path / "matrix.npy", np.eye(4))
    np.save(path / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    rows = np.linalg.qr(generator.standard_normal((8, 3)))[0].T[
        generator.choice(3, size=6000, p=[0.5, 0.3, 0.2])
    ]
    np.save(path / "rows.npy", rows)
    sparse.save_npz(path / "rows.npz", sparse.csr_array(rows))
    np.savetxt(
        path / "rows.csv", rows[:600], delimiter=",", header=",".join("abcdefgh"), comments=""
    )
    rows[7, 2] = np.nan
    np.save(path / "nan.npy", rows)
    (path / "names.txt").write_text("".join(f"word{number}\n" for number in range(20)))
    (path / "groups.txt").write_text("".join(f"user{number % 1000}\n" for number in range(6000)))
    (path / "broken.npy").write_bytes((path / "tensor.npy").read_bytes()[:500])
    return path


COMMANDS = ("learn", "apply", "decompose", "synthesize", "plan", "report", "info", "ledger")


@pytest.mark.slow
def test_help_and_version(folder):
    overview = succeed("--help", cwd=folder, run=run_executable)
    assert all(command in overview for command in COMMANDS)
    assert "Exit codes" in overview
    assert succeed("--version", cwd=folder, run=run_executable) == f"odeco {odeco.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, folder):
    text = succeed(command, "--help", cwd=folder)
    assert f"Usage: odeco {command}" in text
    assert "Example" in text
    assert f"odeco {command} " in text.split("Example")[1]
    assert "--debug" in text


def test_the_executable_ends_with_the_code_of_the_mistake(folder):
    done = run_executable("decompse", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean 'decompose'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_in_the_command_line_is_exit_code_2(folder):
    assert "No such command 'decompse'. Did you mean 'decompose'?" in fails(
        2, "decompse", cwd=folder
    )
    assert "No such command 'mixtures'. Did you mean 'mixture'?" in fails(
        2, "learn", "mixtures", cwd=folder
    )
    assert "Missing option '-k'" in fails(2, "decompose", "tensor.npy", cwd=folder)
    assert "neither a whole number nor 'auto'" in fails(
        2, "decompose", "tensor.npy", "-k", "few", cwd=folder
    )
    assert "is not a folder" in fails(
        2, "decompose", "tensor.npy", "-k", "2", "--out", "no/such/r.npz", cwd=folder
    )


def test_decompose_finds_the_components_and_writes_them(folder, tmp_path):
    out, page = tmp_path / "result.npz", tmp_path / "page.html"
    arguments = (
        "decompose",
        "tensor.npy",
        "-k",
        "2",
        "--names",
        "names.txt",
        "--out",
        out,
        "--report",
        page,
    )
    table = succeed(*arguments, cwd=folder)
    assert "3" in table
    assert "word" in table
    # Nothing disturbs this tensor, so weights are exact but for rounding: 20³ products of 2⁻⁵² each
    # at most.
    tolerance = 20**3 * 2.0**-52 * 3
    result = odeco.load_result(out)
    np.testing.assert_allclose(result.weights, [3.0, 2.0], rtol=0, atol=tolerance)
    assert "<svg" in page.read_text()
    assert "word" in page.read_text()
    document = json.loads(succeed("decompose", "tensor.npy", "-k", "auto", "--json", cwd=folder))
    assert document["kind"] == "decomposition"
    np.testing.assert_allclose(document["weights"], [3.0, 2.0], rtol=0, atol=tolerance)
    assert np.shape(document["vectors"]) == (2, 20)
    assert document["rank_evidence"]["rank"] == 2


def test_decompose_takes_archives_integers_and_asymmetric_tensors(folder):
    by_key = succeed("decompose", "two.npz", "--key", "first", "-k", "2", "--json", cwd=folder)
    assert json.loads(by_key)["order"] == 3
    integers = json.loads(succeed("decompose", "integers.npy", "-k", "1", "--json", cwd=folder))
    # (1, 0, 2)⊗³ has the weight |(1, 0, 2)|³ = 5√5.
    assert integers["weights"] == pytest.approx([5 * 5**0.5], rel=1e-12)
    factors = json.loads(
        succeed("decompose", "asymmetric.npy", "-k", "1", "--asymmetric", "--json", cwd=folder)
    )
    assert [len(each[0]) for each in factors["factors"]] == [4, 5, 6]
    assert json.loads(
        succeed("decompose", "skew.npy", "-k", "1", "--symmetrize", "--json", cwd=folder)
    )["converged"]


def test_decompose_refuses_what_is_no_symmetric_tensor(folder):
    assert fails(1, "decompose", "nothing.npy", "-k", "2", cwd=folder) == (
        "Error: nothing.npy: No such file or directory. Check the path."
    )
    assert "-k must be an int in [1, 76] for a tensor of dimension 20" in fails(
        1, "decompose", "tensor.npy", "-k", "100", cwd=folder
    )
    text = fails(1, "decompose", "skew.npy", "-k", "1", cwd=folder)
    assert "The tensor is not symmetric" in text
    assert "--symmetrize" in text
    assert "--asymmetric" in text
    assert "objects.npy cannot be opened" in fails(
        1, "decompose", "objects.npy", "-k", "1", cwd=folder
    )
    assert "Pass --key NAME" in fails(1, "decompose", "two.npz", "-k", "1", cwd=folder)
    assert "one name for each of the 20" in fails(
        1, "decompose", "tensor.npy", "-k", "1", "--names", "groups.txt", cwd=folder
    )


def test_a_warning_is_one_line_on_stderr_in_the_words_of_the_command(folder):
    # One iteration from random starts in dimension 20 is far from an eigenvector.
    done = run_here(
        "decompose", "tensor.npy", "-k", "1", "--n-iterations", "1", "--n-restarts", "1", cwd=folder
    )
    assert done.returncode == 0
    *stages, warned = done.stderr.splitlines()
    assert stages == ["checking the tensor", "component 1 of 1", "all components found"]
    assert warned.startswith("Warning: Component 0 did not converge")
    assert "Raise --n-iterations" in warned


def test_debug_shows_where_an_error_arose(folder):
    for arguments in (
        ["decompose", "matrix.npy", "-k", "1", "--debug"],
        ["--debug", "decompose", "matrix.npy", "-k", "1"],
    ):
        done = run_here(*arguments, cwd=folder)
        assert done.returncode == 1
        assert "Traceback" in done.stderr
        assert "must have order 3 or more" in done.stderr.splitlines()[-1]


def test_stream_reads_every_kind_of_file_alike(folder):
    answers = [
        json.loads(succeed("decompose", "--rows", name, "-k", "3", "--json", cwd=folder))
        for name in ("rows.npy", "rows.npz")
    ]
    # Every row is one of three orthonormal vectors: the moment is Σ pᵢ vᵢ⊗³ exactly, pᵢ the share
    # of each.
    for answer in answers:
        assert sum(answer["weights"]) == pytest.approx(1.0, abs=1e-12)
        in_python = odeco.decompose_stream(folder / "rows.npy", 3, rng=0)
        assert (answer["n_rows"], answer["n_passes"]) == (6000, in_python.n_passes)
    assert answers[0]["weights"] == pytest.approx(answers[1]["weights"], abs=1e-12)
    # The columns of a table have names, and with --top 8 all of them are shown.
    assert "] +" not in succeed("decompose", "--rows", "rows.csv", "-k", "2", cwd=folder)
    power = succeed(
        *(
            "decompose",
            "--rows",
            "rows.npy",
            "-k",
            "2",
            "--method",
            "power",
            "--batch-size",
            "500",
            "--n-iterations",
            "6",
            "--json",
        ),
        cwd=folder,
    )
    assert json.loads(power)["n_rows"] == 2 * 6 * 500


def test_stream_refuses_bad_rows_and_short_streams(folder):
    assert "Row 7 of nan.npy holds NaN in column 2." in fails(
        1, "decompose", "--rows", "nan.npy", "-k", "3", cwd=folder
    )
    text = fails(
        1,
        "decompose",
        "--rows",
        "rows.npy",
        "-k",
        "3",
        "--method",
        "power",
        "--batch-size",
        "5000",
        cwd=folder,
    )
    assert "The stream ended after 1 of the" in text
    assert "a smaller --batch-size" in text
    assert "--batch-size must be given" in fails(
        1, "decompose", "--rows", "rows.npy", "-k", "3", "--method", "power", cwd=folder
    )
    assert "--resume needs --checkpoint" in fails(
        2, "decompose", "--rows", "rows.npy", "-k", "3", "--resume", cwd=folder
    )


@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_and_the_command_to_go_on(tmp_path):
    # The run saves after every block, and has six passes of some fifty blocks to go once the first
    # file is there.
    generator = np.random.default_rng(0)
    rows = generator.exponential(size=(40_000, 20)).astype(np.float32)
    np.save(tmp_path / "rows.npy", np.concatenate([rows] * 10))
    arguments = [
        "decompose",
        "--rows",
        "rows.npy",
        "-k",
        "4",
        "--method",
        "core",
        "--n-passes",
        "6",
        "--threads",
        "1",
    ]
    begun = subprocess.Popen(
        [
            *COMMAND,
            *arguments,
            "--checkpoint",
            "run.ckpt",
            "--checkpoint-seconds",
            "0",
            "--out",
            "result.npz",
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group of its own, as a terminal would give it
    )
    while not (tmp_path / "run.ckpt").exists():
        assert begun.poll() is None, begun.stderr.read()
        time.sleep(0.01)
    os.killpg(begun.pid, signal.SIGINT)
    output, errors = begun.communicate(timeout=60)
    assert begun.returncode == 130, errors
    assert output == ""
    assert "Traceback" not in errors
    assert "Interrupted after" in errors
    assert (tmp_path / "run.ckpt").exists()
    assert not (tmp_path / "result.npz").exists()
    assert "stream run" in succeed("info", "run.ckpt", cwd=tmp_path)
    # Without --resume nothing is overwritten.
    assert "Pass --resume to go on" in fails(
        2, *arguments, "--checkpoint", "run.ckpt", cwd=tmp_path
    )
    line = next(line for line in errors.splitlines() if line.startswith("    "))
    assert line.endswith("--resume")
    again = shlex.split(line)
    assert again[0] == "odeco" or again[:3] == ["python", "-m", "odeco"]
    succeed(*again[again.index("decompose") :], cwd=tmp_path)
    assert not (tmp_path / "run.ckpt").exists()
    succeed(*arguments, "--out", "unbroken.npz", cwd=tmp_path)
    resumed, unbroken = (
        odeco.load_result(tmp_path / name) for name in ("result.npz", "unbroken.npz")
    )
    assert resumed.n_rows == unbroken.n_rows == 400_000
    assert resumed.n_passes == unbroken.n_passes == 6
    for name in ("weights", "vectors", "weight_errors", "angle_errors"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(unbroken, name))


@pytest.mark.slow
def test_ctrl_c_without_a_checkpoint_says_that_nothing_was_saved(tmp_path):
    np.save(
        tmp_path / "rows.npy",
        np.random.default_rng(0).exponential(size=(400_000, 20)).astype(np.float32),
    )
    # the first block raises the signal, so that nothing depends on how fast the machine is
    script = (
        "import os, signal, sys\n"
        "from odeco.cli import main\n"
        "from odeco.display.progress import progress_bar\n"
        "def bar(**settings):\n"
        "    os.kill(os.getpid(), signal.SIGTERM if 'term' in sys.argv[0] else signal.SIGINT)\n"
        "    return progress_bar(**settings)\n"
        "import odeco.cli.flow as flow\n"
        "flow.progress_bar = bar\n"
        "sys.exit(main())\n"
    )
    for name, code in (("interrupt.py", 130), ("term.py", 143)):
        (tmp_path / name).write_text(script)
        done = subprocess.run(
            [sys.executable, name, "decompose", "--rows", "rows.npy", "-k", "4"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "Nothing was saved; pass --checkpoint FILE to be able to go on." in done.stderr
        assert "Traceback" not in done.stderr


PRIVATE = ("-k", "3", "--epsilon", "1", "--delta", "1e-6")


def test_private_prints_the_plan_first_and_publishes_only_noisy_numbers(folder, tmp_path):
    out = tmp_path / "private.npz"
    arguments = ("decompose", "--rows", "rows.npy", *PRIVATE, "--norm-bound", "1", "--out", out)
    text = succeed(*arguments, cwd=folder)
    assert text.startswith("At this ε, a component must have a weight of ")
    assert text.index("this run takes 'input'") < text.index("noise floor")
    assert "(1, 1e-06)-differentially private for one record" in text
    result = odeco.load_result(out)
    assert result.privacy.private
    document = json.loads(succeed(*arguments[:-2], "--json", cwd=folder))
    assert document["plan"]["best"] == document["result"]["privacy"]["mechanism"]
    # Two runs with one seed differ: the noise comes from the operating system.
    assert document["result"]["weights"] != result.weights.tolist()
    users = succeed(
        *(
            "decompose",
            "--rows",
            "rows.npz",
            *PRIVATE,
            "--groups",
            "groups.txt",
            "--norm-bound",
            "1",
            "--json",
        ),
        cwd=folder,
    )
    assert json.loads(users)["result"]["privacy"]["unit"] == "user"


def test_private_dry_run_needs_public_numbers_only(folder):
    arguments = ("plan", "decompose", *PRIVATE, "--norm-bound", "1")
    text = succeed(*arguments, "--dimension", "100", "--n-records", "10000", cwd=folder)
    assert "a component must have a weight of" in text
    plan = json.loads(
        succeed(*arguments, "--dimension", "100", "--n-records", "10000", "--json", cwd=folder)
    )["plan"]
    expected = odeco.plan_privacy(
        dimension=100,
        n_components=3,
        epsilon=1.0,
        delta=1e-6,
        unit="record",
        n_units=10_000,
        norm_bound=1.0,
    )
    assert plan == json.loads(expected.to_json())
    assert "needs --dimension and --n-records" in fails(2, *arguments, cwd=folder)
    assert "needs --n-records" in fails(2, *arguments, "--dimension", "100", cwd=folder)


def test_private_refuses_before_anything_is_released(folder):
    rows = ("decompose", "--rows", "rows.npy", "-k", "3")
    assert "need --norm-bound B" in fails(2, *rows, "--epsilon", "1", "--delta", "1e-6", cwd=folder)
    bounded = (*rows, "--norm-bound", "1")
    assert "--delta must be below 1/n" in fails(
        1, *bounded, "--epsilon", "1", "--delta", "0.1", cwd=folder
    )
    assert "--epsilon must be" in fails(
        1, *bounded, "--epsilon", "-1", "--delta", "1e-6", cwd=folder
    )
    assert "--delta goes with --epsilon" in fails(2, *bounded, "--delta", "1e-6", cwd=folder)
    assert "--norm-bound is about private rows" in fails(
        2, "decompose", "tensor.npy", *PRIVATE, "--norm-bound", "1", cwd=folder
    )


def test_private_says_nothing_about_a_row_that_is_not_finite(folder):
    done = run_here("decompose", "--rows", "nan.npy", *PRIVATE, "--norm-bound", "1", cwd=folder)
    assert done.returncode == 0
    lines = done.stderr.splitlines()  # whom the guarantee is for, and how to keep a ledger
    assert lines[0] == "The guarantee (ε = 1, δ = 1e-06) is for one record of 6,000 records."
    assert len(lines) == 2


def test_info_names_what_a_file_holds(folder, tmp_path):
    assert "symmetric    yes" in succeed("info", "tensor.npy", "--check", cwd=folder)
    assert "symmetric    no" in succeed("info", "skew.npy", "--check", cwd=folder)
    rows = json.loads(succeed("info", "rows.npz", "--json", cwd=folder))
    assert (rows["holds"], rows["rows"], rows["columns"]) == ("rows", 6000, 8)
    shown = succeed("info", "rows.csv", cwd=folder)
    assert "a (numbers), b (numbers), c (numbers)" in shown
    online = odeco.OnlineDecomposer(2, method="core", rng=0)
    online.partial_fit(np.ones((30, 4))).save(tmp_path / "run.ckpt")
    checkpoint = json.loads(succeed("info", tmp_path / "run.ckpt", "--json", cwd=folder))
    assert (checkpoint["holds"], checkpoint["rows_taken_in"]) == ("stream run", 30)
    page = tmp_path / "page.html"
    succeed("decompose", "tensor.npy", "-k", "2", "--report", page, cwd=folder)
    assert "made by  odeco decompose tensor.npy" in succeed("info", page, cwd=folder)
    assert "No such file" in fails(1, "info", "nothing.npy", cwd=folder)
    assert "broken.npy cannot be opened" in fails(1, "info", "broken.npy", cwd=folder)


def test_report_makes_a_page_of_a_saved_result(folder, tmp_path):
    succeed("decompose", "tensor.npy", "-k", "2", "--out", tmp_path / "result.npz", cwd=folder)
    succeed(
        "report",
        tmp_path / "result.npz",
        "--out",
        tmp_path / "page.html",
        cwd=folder,
    )
    page = (tmp_path / "page.html").read_text()
    assert "Result in result.npz" in page
    assert (
        "odeco decompose tensor.npy -k 2" in page
    )  # how it was computed, not how the page was made
    assert "is not a complete odeco file" in fails(1, "report", "two.npz", cwd=folder)
    assert "is not a folder" in fails(
        2, "report", tmp_path / "result.npz", "--out", "no/such/page.html", cwd=folder
    )
    assert "No such file" in fails(1, "report", "nothing.npz", cwd=folder)


@pytest.mark.slow
def test_the_number_of_threads_changes_no_byte(tmp_path):
    # Large enough that blocks are shared between threads: 150⁴ operations an image, and 8,192 rows
    # a chunk.
    generator = np.random.default_rng(0)
    np.save(
        tmp_path / "tensor.npy", planted_orthogonal(150, 3, rng=0).to_dense().astype(np.float32)
    )
    np.save(tmp_path / "rows.npy", generator.exponential(size=(20_000, 30)))
    for name, arguments in (
        ("decompose", ("decompose", "tensor.npy", "-k", "3")),
        ("stream", ("decompose", "--rows", "rows.npy", "-k", "3")),
    ):
        written = set()
        for threads in ("1", "2"):
            settings = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
            succeed(*arguments, "--out", "r.npz", cwd=tmp_path, run=run_executable, **settings)
            written.add((tmp_path / "r.npz").read_bytes())
        assert len(written) == 1, name
        succeed(*arguments, "--out", "r.npz", "--threads", "1", cwd=tmp_path)
        one = odeco.load_result(tmp_path / "r.npz")
        (tmp_path / "other.npz").write_bytes(written.pop())
        np.testing.assert_array_equal(
            one.vectors, odeco.load_result(tmp_path / "other.npz").vectors
        )


MISSING = """
import sys
sys.modules[{module!r}] = None
sys.argv = ["odeco", *{arguments!r}]
from odeco.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("click", ["--help"], "cli"),
        ("matplotlib", ["decompose", "tensor.npy", "-k", "2", "--report", "page.html"], "plot"),
        ("pyarrow", ["decompose", "--rows", "rows.parquet", "-k", "2"], "arrow"),
    ],
)
def test_a_missing_extra_is_one_line_of_advice(module, arguments, extra, folder):
    (folder / "rows.parquet").write_bytes(b"PAR1")
    script = MISSING.format(module=module, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    (advice,) = done.stderr.splitlines()
    assert module in advice
    assert f"pip install 'odeco[{extra}]'" in advice


def test_the_module_runs_as_the_command_does(folder):
    done = subprocess.run(
        [sys.executable, "-m", "odeco", "--version"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"odeco {odeco.__version__}\n"
