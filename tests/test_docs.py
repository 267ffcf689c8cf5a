"""The code on the pages of the documentation runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import odeco

DOCS = Path(__file__).parent.parent / "docs"
PAGES = (
    *("getting-started.md", "howto/own-oracle.md", "howto/large-file.md", "howto/live-stream.md", "howto/threads.md"),
    "howto/look-at-results.md",
)


@pytest.mark.skipif(not DOCS.is_dir(), reason="the documentation is not here")
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    # What a page speaks of without making it: rows, in memory, in a file and in a queue, and a tensor.
    rows = np.linalg.qr(generator.standard_normal((100, 10)))[0].T[generator.choice(10, size=50_000)]
    np.save("rows.npy", rows)
    known = {"X": rows, "queue": np.array_split(rows, 10), "odeco": odeco, "np": np}
    known["T"] = odeco.Components(np.arange(5.0, 0.0, -1.0), np.eye(8)[:, :5]).to_dense()
    table = "".join(f"user{number},{a:.4f},{b:.4f},{c:.4f}\n" for number, (a, b, c, *_) in enumerate(abs(rows[:500])))
    Path("people.csv").write_text(f"id,age,income,rooms\n{table}")
    known["axes"] = Figure().subplots(1, 2)
    blocks = re.findall(
        r"^( *)```python\n(.*?)^ *```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert blocks
    for indent, block in blocks:
        exec(compile(re.sub(f"^{indent}", "", block, flags=re.MULTILINE), page, "exec"), known)


def test_every_page_is_reachable_and_the_command_page_names_only_commands():
    text = (DOCS / "command.md").read_text(encoding="utf-8")
    for name in re.findall(r"`odeco (\w+)", text):
        assert name in ("decompose", "stream", "private", "topics", "report", "info", "audit", "reproduce", "bench")
    listed = " ".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    for path in DOCS.rglob("*.md"):
        if not {"_build", "gallery", "generated"} & set(path.parts) and path.stem != "index":
            assert re.search(rf"^(\.\./)?{re.escape(path.stem)}$", listed, re.MULTILINE), path
