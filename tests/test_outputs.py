"""Outputs destroy nothing and lose nothing: what is refused before the work starts, and what is
kept when it fails.
"""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import run_here

import odeco
from odeco._util import files as _files
from odeco._util.files import read_contents, replacing, try_to_write
from odeco.cli import app
from odeco.cli.tables import csv_cell, plain_csv_text, was_written_by_odeco
from odeco.datasets import planted_orthogonal
from odeco.privacy import LedgerFile

ROWS = np.eye(6)[np.random.default_rng(0).choice(3, size=3000, p=[0.5, 0.3, 0.2])]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a tensor and rows, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    np.save("tensor.npy", planted_orthogonal(8, 2, weights=[3.0, 2.0], rng=0).to_dense())
    np.save("rows.npy", ROWS)
    return tmp_path


def open_lines(path):
    return Path(path).read_text().splitlines()


def test_an_input_is_never_an_output(folder, capsys):
    before = Path("tensor.npy").read_bytes()
    Path("link.npz").symlink_to("tensor.npy")
    for out in ("tensor.npy", "./tensor.npy", "link.npz"):
        assert app.run(["decompose", "tensor.npy", "-k", "2", "--out", out, "--force"]) == 2
        assert (
            "--out must be another file than those that are read or written besides."
            in capsys.readouterr().err
        )
    Path("data").mkdir()
    np.save("data/rows.npy", ROWS)
    assert (
        app.run(["decompose", "--rows", "data", "-k", "2", "--out", "data/rows.npy", "--force"])
        == 2
    )
    assert app.run(["decompose", "tensor.npy", "-k", "2", "--out", "same", "--report", "same"]) == 2
    assert Path("tensor.npy").read_bytes() == before
    assert not Path("same").exists()


def test_a_file_that_odeco_did_not_write_is_replaced_only_by_force(folder, capsys):
    arguments = ["decompose", "tensor.npy", "-k", "2", "--out", "notes.npz"]
    Path("notes.npz").write_text("a week of work")
    assert app.run(arguments) == 2
    assert (
        "--out must be a new file, or one that odeco wrote. notes.npz is neither."
        in capsys.readouterr().err
    )
    assert Path("notes.npz").read_text() == "a week of work"
    assert app.run([*arguments, "--force"]) == 0
    assert app.run(arguments) == 0  # now it is one of ours
    page = ["report", "notes.npz", "--out", "page.html"]
    assert app.run(page) == 0
    assert app.run(page) == 0
    Path("page.html").write_text("<html>")
    assert app.run(page) == 2


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_a_directory_is_not_replaced(make, folder):
    make("out.npz")
    assert app.run(["decompose", "tensor.npy", "-k", "2", "--out", "out.npz", "--force"]) in (1, 2)
    assert not Path("out.npz").is_file()
    with pytest.raises(OSError, match=r"out\.npz"):
        odeco.Components([1.0], np.eye(2)[:, :1]).save("out.npz")
    with pytest.raises(
        OSError,
        match=r"/dev/null must be a file\. It is a device or a pipe, which is not replaced\.",
    ):
        odeco.Components([1.0], np.eye(2)[:, :1]).save("/dev/null")


def test_a_symbolic_link_stays_and_what_it_points_to_is_written(folder):
    Path("there").mkdir()
    Path("here.npz").symlink_to("there/result.npz")
    odeco.Components([1.0], np.eye(2)[:, :1]).save("here.npz")
    assert Path("here.npz").is_symlink()
    assert odeco.Components.load("there/result.npz").weights == [1.0]


KILLED = """
import os, sys
from odeco._util.files import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    target = tmp_path / "run [1].ckpt"
    assert subprocess.run([sys.executable, "-c", KILLED, str(target)], check=False).returncode == -9
    (tmp_path / ".other.ckpt.12345678.tmp").write_text("of another file")
    assert len(list(tmp_path.iterdir())) == 2
    with replacing(target) as file:
        assert len(list(tmp_path.iterdir())) == 2  # that of the killed one is gone, ours is there
        try_to_write(target)  # as another process would, at the same moment
        file.write(b"whole")
    assert target.read_bytes() == b"whole"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.fixture
def full_disk(monkeypatch):
    """Return a function that makes the disk of the working directory full for files whose names
    match.

    Other folders have room. What is written atomically fails when it is flushed to the disk, as on
    a real full disk.
    """

    sync = os.fsync

    def fill(*names):
        def fail_if_full(descriptor):
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if path.parent == Path.cwd() and any(
                path.name.startswith(f".{name}") for name in names
            ):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(descriptor)

        monkeypatch.setattr(_files.os, "fsync", fail_if_full)

    return fill


def kept_in(error):
    """The file in which a result was saved, as an error says."""
    return Path(error.split("It is in ")[1].split(" instead")[0])


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_result_that_cannot_be_written_is_printed_and_kept(
    checkpoint, options, folder, full_disk, monkeypatch, capsys
):
    arguments = [
        "decompose",
        "--rows",
        "rows.npy",
        "-k",
        "3",
        "--out",
        "result.npz",
        "--seed",
        "0",
        *options,
    ]
    expected = odeco.decompose_stream(ROWS, 3, rng=0)
    if checkpoint:
        arguments += ["--checkpoint", "run.ckpt"]
    full_disk("result.npz")
    assert app.run(arguments) == 1
    said = capsys.readouterr()
    assert "0.5" in said.out
    assert said.err.splitlines()[-1].startswith(
        "Error: result.npz could not be written: No space left on device."
    )
    kept = kept_in(said.err)
    np.testing.assert_array_equal(odeco.load_result(kept).vectors, expected.vectors)
    if checkpoint:
        full_disk()
        monkeypatch.setattr(odeco.online.run.Run, "steps", pytest.fail)  # nothing is computed again
        assert app.run([*arguments[:-2], "--checkpoint", "run.ckpt", "--resume"]) == 0
        assert not Path("run.ckpt").exists()
        np.testing.assert_array_equal(odeco.load_result("result.npz").vectors, expected.vectors)


PRIVATE = ("--epsilon", "4", "--delta", "1e-6", "--ledger", "data.ledger", "--budget", "9")
#: Every command that computes something: its arguments, its files in the order of their value, what
#: it prints.
WRITING = {
    "decompose": (
        ["decompose", "tensor.npy", "-k", "2"],
        {"--out": "m.npz", "--report": "p.html"},
        "largest",
    ),
    "private": (
        ["decompose", "--rows", "rows.npy", "-k", "2", "--norm-bound", "1", *PRIVATE],
        {"--out": "m.npz", "--report": "p.html"},
        "noise floor",
    ),
    "learn": (
        ["learn", "mixture", "rows.npy", "-k", "2"],
        {"--out": "m.npz", "--labels": "l.csv", "--report": "p.html"},
        "components",
    ),
    "private learn": (
        ["learn", "mixture", "rows.npy", "-k", "2", "--norm-bound", "1", *PRIVATE],
        {"--out": "m.npz", "--report": "p.html"},
        "components",
    ),
    "topics": (
        ["learn", "topics", "corpus.txt", "-k", "2", "--max-iter", "2", "--max-share", "1"],
        {"--out": "m.npz", "--report": "p.html"},
        "iron",
    ),
    "private topics": (
        ["learn", "topics", "corpus.txt", "-k", "2", "--vocabulary", "words.txt", *PRIVATE],
        {"--out": "m.npz", "--report": "p.html"},
        "iron",
    ),
    "topics apply": (["apply", "model.npz", "corpus.txt"], {"--out": "shares.csv"}, None),
}


@pytest.fixture
def work(folder):
    """The folder with a corpus of two topics and a model of them."""
    rng = np.random.default_rng(0)
    halves = np.array([["apple", "pear", "plum", "fig"], ["iron", "zinc", "lead", "tin"]])
    lines = [" ".join(rng.choice(halves[number % 2], size=12)) for number in range(600)]
    Path("corpus.txt").write_text("\n".join(lines) + "\n")
    Path("words.txt").write_text("\n".join(halves.ravel()) + "\n")
    assert (
        app.run(
            [
                "learn",
                "topics",
                "corpus.txt",
                "-k",
                "2",
                "--max-iter",
                "0",
                "--max-share",
                "1",
                "--out",
                "model.npz",
            ]
        )
        == 0
    )
    return folder


@pytest.mark.parametrize("name", WRITING)
def test_a_full_disk_loses_no_result_of_any_command(name, work, full_disk, capsys):
    arguments, files, printed = WRITING[name]
    full_disk(*files.values())
    capsys.readouterr()
    assert app.run([*arguments, *(word for pair in files.items() for word in pair)]) == 1
    said = capsys.readouterr()
    assert printed is None or printed in said.out
    for path in files.values():
        assert f"{path} could not be written: No space left on device." in said.err
        assert not Path(path).exists()
    assert not list(work.glob(".*.tmp"))
    assert kept_in(said.err).stat().st_size > 0
    if "data.ledger" in arguments:
        assert (
            "data.ledger stays charged with ε = 4: running the command again would spend it again."
            in said.err
        )
        assert LedgerFile("data.ledger").mu > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WRITING if len(WRITING[name][1]) > 1])
def test_what_is_worth_most_is_written_first_and_the_rest_all_the_same(
    name, work, full_disk, capsys
):
    arguments, files, _ = WRITING[name]
    first, *others = files.values()
    given = [*arguments, *(word for pair in files.items() for word in pair)]
    full_disk(*others)
    assert app.run(given) == 1
    said = capsys.readouterr()
    assert f"The result itself is in {first}." in said.err
    assert "It is in" not in said.err
    assert read_contents(first)
    if "data.ledger" not in arguments:
        full_disk(first)
        Path(first).unlink()
        assert app.run(given) == 1
        assert all(Path(path).exists() for path in others)
        assert read_contents(kept_in(capsys.readouterr().err))


def test_a_standard_output_that_is_full_costs_no_file(folder):
    with Path("/dev/full").open("w") as full:
        command = [
            sys.executable,
            "-m",
            "odeco",
            "decompose",
            "tensor.npy",
            "-k",
            "2",
            "--out",
            "result.npz",
        ]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "The standard output could not be written: No space left on device." in done.stderr
    assert "Traceback" not in done.stderr
    assert odeco.load_result("result.npz").weights == pytest.approx([3.0, 2.0])


def test_a_page_of_a_saved_result_that_cannot_be_written_is_named(folder, full_disk, capsys):
    assert app.run(["decompose", "tensor.npy", "-k", "2", "--out", "result.npz"]) == 0
    full_disk("page.html")
    assert app.run(["report", "result.npz", "--out", "page.html"]) == 1
    assert "page.html could not be written: No space left on device." in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("out", ["result.npz", "run.npz"])
def test_a_checkpoint_on_a_full_disk_is_a_warning_and_the_run_goes_on(
    out, folder, full_disk, capsys
):
    full_disk("run.")
    arguments = [
        "decompose",
        "--rows",
        "rows.npy",
        "-k",
        "3",
        "--checkpoint",
        "run.ckpt",
        "--checkpoint-seconds",
        "0",
    ]
    assert app.run([*arguments, "--out", out]) == (out == "run.npz")
    said = capsys.readouterr()
    assert (
        "Warning: A checkpoint could not be written to run.ckpt: No space left on device. The run "
        "goes on"
    ) in said.err
    kept = (
        out if out == "result.npz" else kept_in(said.err)
    )  # no checkpoint holds the run as it ended
    np.testing.assert_array_equal(
        odeco.load_result(kept).vectors, odeco.decompose_stream(ROWS, 3, rng=0).vectors
    )
    assert not Path("run.ckpt").exists()


@pytest.mark.parametrize("checkpoint", ["nowhere/run.ckpt", "."])
def test_a_checkpoint_that_can_never_be_written_is_refused_before_the_work(
    checkpoint, folder, monkeypatch
):
    monkeypatch.setattr(odeco.online.run.Run, "steps", pytest.fail)
    with pytest.raises(OSError, match=re.escape(checkpoint.partition("/")[0])):
        odeco.decompose_stream(ROWS, 3, checkpoint=checkpoint)


#: Every kind of table: the arguments of the command that writes it, and the option of its file.
TABLES = {
    "decompose": (["decompose", "tensor.npy", "-k", "2"], "--out"),
    "asymmetric": (["decompose", "tensor.npy", "-k", "2", "--asymmetric"], "--out"),
    "stream": (["decompose", "--rows", "rows.npy", "-k", "2"], "--out"),
    "stream, power": (
        [
            "decompose",
            "--rows",
            "rows.npy",
            "-k",
            "2",
            "--method",
            "power",
            "--batch-size",
            "20",
            "--n-iterations",
            "4",
        ],
        "--out",
    ),
    "private": (
        [
            "decompose",
            "--rows",
            "rows.npy",
            "-k",
            "2",
            "--norm-bound",
            "1",
            "--epsilon",
            "4",
            "--delta",
            "1e-6",
        ],
        "--out",
    ),
    "labels": (["learn", "mixture", "rows.npy", "-k", "2"], "--labels"),
    "labels of sources": (["learn", "ica", "table.csv", "-k", "2"], "--labels"),
    "labels with ids": (["learn", "mixture", "table.csv", "-k", "2", "--id", "id"], "--labels"),
    "labels of all columns": (["learn", "mixture", "table.csv", "-k", "2", "--append"], "--labels"),
    "proportions": (["apply", "model.npz", "corpus.txt"], "--out"),
    "proportions with ids": (
        ["apply", "model.npz", "c.csv", "--column", "text", "--append"],
        "--out",
    ),
    "groups": (["apply", "model.npz", "c.csv", "--column", "text", "--by", "kind"], "--out"),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TABLES)
def test_every_table_may_be_replaced_by_the_command_that_wrote_it_and_no_other_table_may(
    name, work, capsys
):
    rng = np.random.default_rng(0)
    names = [
        "id",
        *(f"a rather long name of column {number}, with a comma" for number in range(40)),
    ]
    cells = [
        [str(number), *(f"{value:.3f}" for value in rng.laplace(size=40))] for number in range(300)
    ]
    Path("table.csv").write_text(plain_csv_text(names, cells))
    Path("c.csv").write_text(
        "kind,text\n" + "".join(f"{n % 2},{t}\n" for n, t in enumerate(open_lines("corpus.txt")))
    )
    arguments, option = TABLES[name]
    given = [*arguments, option, "t.csv"]
    assert app.run(given) == 0, capsys.readouterr().err
    before = Path("t.csv").read_text()
    assert app.run(given) == 0
    foreign = f'review,rating\n"good,odeco cluster 1",5\nfine,odeco 3\n{before}'
    Path("t.csv").write_text(foreign)
    capsys.readouterr()
    assert app.run(given) == 2
    assert f"{option} must be a new file, or one that odeco wrote." in capsys.readouterr().err
    assert Path("t.csv").read_text() == foreign


@pytest.mark.parametrize(
    "text",
    [
        "component,weight,supplier\n17,3.2,A\n",
        "name,odeco is\na,b\n",
        "odeco cluster 1,name\n0,x\n",
        "id,text\n1,component\n",
        "a week of work\n",
        "\0\n",
    ],
)
def test_a_table_of_the_user_is_none_of_odeco(text, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    assert not was_written_by_odeco(tmp_path / "t.csv")


def test_destinations_are_tried_before_the_work_starts(folder, monkeypatch):
    monkeypatch.setattr(odeco, "decompose", pytest.fail)
    Path("closed").mkdir(0o500)
    if os.access("closed", os.W_OK):  # root may write anywhere
        monkeypatch.setattr(
            _files.os, "open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "no", "closed"))
        )
    assert app.run(["decompose", "tensor.npy", "-k", "2", "--out", "closed/result.npz"]) == 1


def test_signs_that_a_terminal_obeys_are_shown_as_escapes(folder, capsys):
    Path("names.txt").write_text("\n".join(2 * ["\x1b[31mred", "[/bold]", "[link=x]y", "a\u202eb"]))
    assert app.run(["decompose", "tensor.npy", "-k", "2", "--names", "names.txt"]) == 0
    shown = capsys.readouterr().out.replace("\n", "")
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    for text in (r"\x1b[31mred", "[/bold]", "[link=x]y", r"a\u202eb"):
        assert text.replace(" ", "") in shown.replace(" ", "")
    np.savez("\x1b[31m.npz", **{"\x1b]0;title\x07": np.ones(3), "[/red]": np.ones(2)})
    assert app.run(["info", "\x1b[31m.npz"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert app.run(["info", "\x1b[31m-missing.npz"]) == 1
    assert app.run(["decompose", "tensor.npy", "-k", "2", "--out", "\x1b[31m/x"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_marks_in_a_result_s_own_words_are_printed_as_they_are():
    result = odeco.decompose(planted_orthogonal(4, 1, rng=0).to_dense(), 1, rng=0)
    assert "[/x]" in result.with_names(["[/x]", "[bold]", "c", "d"]).summary()


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-a", "@x", "\t=1", "\r=1"])
def test_a_cell_of_csv_is_no_formula(text):
    assert csv_cell(text) == f"'{text}"
    for harmless in ("plain", "-3", "+4.5e-7"):
        assert csv_cell(harmless) == harmless


@pytest.mark.slow
def test_json_documents_follow_the_schema_and_tables_pipe_well(tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parent.parent / "docs" / "odeco.schema.json").read_text())
    rng = np.random.default_rng(0)
    np.save(
        tmp_path / "tensor.npy", odeco.Components(np.array([3.0, 2.0]), np.eye(5)[:, :2]).to_dense()
    )
    np.save(
        tmp_path / "asymmetric.npy",
        np.einsum("ir,jr,kr->ijk", *(rng.normal(size=(d, 2)) for d in (4, 5, 6))),
    )
    rows = rng.standard_normal((300, 2)) + np.repeat([[0], [9], [18]], 100, axis=0)
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="height,width", comments="")
    (tmp_path / "schema.json").write_text('{"height": {"low": -5, "high": 25, "bins": 3}}')
    commands = {
        "decompose tensor.npy -k 2": "decomposition",
        "decompose asymmetric.npy -k 2 --asymmetric": "asymmetric decomposition",
        "learn mixture rows.csv -k auto": "mixture",
        "learn ica rows.csv -k 2": "sources model",
        (
            "synthesize rows.csv --header --schema schema.json --epsilon 1 --delta 1e-6 --out "
            "out.csv --force"
        ): "synthetic data",
        "info tensor.npy": None,
    }
    for command, kind in commands.items():
        done = run_here(*command.split(), "--json", cwd=tmp_path)
        document = json.loads(done.stdout)
        jsonschema.validate(document, schema)
        assert document.get("kind") == kind
        plain = run_here(*command.split(), cwd=tmp_path).stdout
        assert not [line for line in plain.splitlines() if line != line.rstrip()], command
        assert not set(plain) & set("│┃─━┏┓└┘├┤"), command
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"kind": "decomposition", "weights": "none"}, schema)


def test_stages_are_lines_on_stderr_where_there_is_no_terminal_and_columns_are_suggested(tmp_path):
    rows = np.random.default_rng(0).standard_normal((50, 2))
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="height,width", comments="")
    assert "learning\n" in run_here("learn", "mixture", "rows.csv", "-k", "1", cwd=tmp_path).stderr
    done = run_here("learn", "mixture", "rows.csv", "--columns", "hight", cwd=tmp_path)
    assert "Did you mean 'height'?" in done.stderr


def test_an_error_names_the_file_that_was_asked_for_and_not_a_temporary_one():
    with pytest.raises(OSError, match=r"'/proc/model\.npz'"):
        _files.try_to_write("/proc/model.npz")
