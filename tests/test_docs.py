"""The code on the pages of the documentation runs."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import odeco
from odeco.cli.app import SUMMARIES
from odeco.datasets import planted_topics

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
#: Blocks that begin so need machines or libraries of the reader's own.
NOT_RUN = ("from dask.distributed import Client", "dask.config.set(", "import pyLDAvis")


def code_of(page: Path) -> list[str]:
    """Return the blocks of Python on a page, but for those that need other machines."""
    found = re.findall(
        r"^( *)```python\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    blocks = [re.sub(f"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]
    return [block for block in blocks if not block.startswith(NOT_RUN)]


def pages() -> list[Path]:
    """Return the README and all pages of the documentation that were written by hand and have
    code.
    """
    made = {"_build", "gallery", "tutorials", "generated"}
    written = [path for path in sorted(DOCS.rglob("*.md")) if not made & set(path.parts)]
    return [page for page in (ROOT / "README.md", *written) if page.exists() and code_of(page)]


@pytest.fixture
def known(tmp_path, monkeypatch):
    """What a page speaks of without making it: rows, in memory, in files and in batches, a tensor,
    texts, counts.
    """
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    rows = np.linalg.qr(generator.standard_normal((100, 10)))[0].T[
        generator.choice(10, size=50_000)
    ]
    np.save("rows.npy", rows)
    np.savetxt(
        "rows.csv",
        rows[:2000],
        delimiter=",",
        header=",".join(f"c{i}" for i in range(100)),
        comments="",
    )
    words = np.array(
        [
            f"{first}{last}"
            for first in ("apple", "sea", "sky", "tree")
            for last in "abcdefghijklmno"
        ]
    )
    texts = [
        " ".join(generator.choice(words.reshape(4, 15)[number % 4], 12)) for number in range(3000)
    ]
    odeco.privacy.LedgerFile.create(
        "texts.ledger", data="people", unit="record", epsilon=2.0, delta=1e-6
    )
    table = "".join(
        f"user{number},{a:.4f},{b:.4f},{c:.4f}\n"
        for number, (a, b, c, *_) in enumerate(abs(rows[:500]))
    )
    Path("people.csv").write_text(f"id,age,income,rooms\n{table}")
    tensor = odeco.Components(np.arange(5.0, 0.0, -1.0), np.eye(8)[:, :5]).to_dense()
    result = odeco.decompose(tensor, 5, rng=0)
    odeco.save_result(result, "model.npz")
    return {
        "X": rows,
        "queue": np.array_split(rows, 10),
        "batches": [rows] * 2,
        "T": tensor,
        "result": result,
        "vocabulary": list("abcdefgh"),
        "texts": texts,
        "counts": planted_topics(3000, 60, [0.3, 0.2, 0.1], rng=0).counts,
        "symbols": (np.arange(10_000) // 25 % 2 * 10 + generator.integers(10, size=10_000)).astype(
            np.int64
        ),
        "lengths": [50] * 200,
        "table": np.where(np.arange(600)[:, None] % 2 == 0, 0, 1)
        ^ (generator.random((600, 9)) < 0.1),
        "adjacency": np.kron(np.eye(2), np.ones((30, 30))) + 0.0,
        "axes": Figure().subplots(1, 2),
        "odeco": odeco,
        "np": np,
    }


@pytest.mark.slow
@pytest.mark.skipif(not DOCS.is_dir(), reason="the documentation is not here")
@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, known):
    for block in code_of(page):
        exec(compile(block, str(page), "exec"), known)


def test_every_page_is_reachable_and_the_command_page_names_only_commands():
    text = (DOCS / "command.md").read_text(encoding="utf-8")
    for name in re.findall(r"`odeco (\w+)", text):
        assert name in SUMMARIES
    listed = " ".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    for path in DOCS.rglob("*.md"):
        if (
            not {"_build", "gallery", "tutorials", "generated"} & set(path.parts)
            and path.stem != "index"
        ):
            assert re.search(rf"^(\.\./|howto/)?{re.escape(path.stem)}$", listed, re.MULTILINE), (
                path
            )


def test_a_long_page_begins_with_a_table_of_contents():
    made = {"_build", "gallery", "tutorials", "generated"}
    for path in DOCS.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        if not made & set(path.parts) and len(text.split()) > 1500:
            assert "```{contents}" in text[:300], path
            assert text.count("\n## ") >= 2, path


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", sorted((ROOT / "examples" / "tutorials").glob("*.py")), ids=lambda path: path.stem
)
def test_a_tutorial_runs_without_a_warning(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    runpy.run_path(str(script))
    pyplot.close("all")


def test_the_link_checker_finds_a_link_that_leads_nowhere(tmp_path):
    (tmp_path / "index.html").write_text(
        '<h1 id="top">x</h1><a href="#top">y</a><a href="other.html#there">z</a>'
    )
    (tmp_path / "other.html").write_text('<p id="there"></p>')
    check = [sys.executable, str(ROOT / "tools" / "check_links.py"), str(tmp_path)]
    assert subprocess.run(check, check=False).returncode == 0
    (tmp_path / "other.html").write_text('<p id="here"></p><img src="gone.png">')
    done = subprocess.run(check, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "other.html#there" in done.stderr
    assert "gone.png" in done.stderr
