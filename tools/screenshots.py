"""The pictures of pages in the documentation, taken by a real browser: ``make screenshots``.

The page of the demo, the explorer of the topics of Python's documentation strings, the page of a
tensor that was decomposed and of rows that were decomposed in private, and the page of every model:
each light, dark and on a phone. It needs Chromium (``apt-get install chromium``).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas
from sklearn.datasets import load_wine

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser import CHROMIUM, Browser  # noqa: E402 - it stands with the tests

import odeco  # noqa: E402
from odeco.cli.app import run  # noqa: E402
from odeco.models import Communities, LatentClasses, TensorHMM, TensorICA, TensorMixture  # noqa: E402


@dataclass(frozen=True)
class Picture:
    """A page, how it is shown, and what is typed into its search."""

    name: str
    page: str
    scheme: str = "light"
    width: int = 1200
    height: int = 1100
    word: str = ""


#: Every kind of page, with the height of its picture.
PAGES = {
    "demo": ("odeco-report.html", 1900),
    "topics": ("topics.html", 1240),
    "decomposition": ("tensor.html", 1000),
    "private": ("private.html", 1000),
    "mixture": ("mixture.html", 1150),
    "hmm": ("hmm.html", 1150),
    "classes": ("classes.html", 1000),
    "sources": ("sources.html", 1150),
    "communities": ("communities.html", 1150),
}

#: Each page is shown light, dark and on a phone.
PICTURES = [
    picture
    for name, (page, height) in PAGES.items()
    for picture in (
        Picture(name, page, height=height),
        Picture(
            f"{name}-dark", page, "dark", height=height, word="string" if name == "topics" else ""
        ),
        Picture(f"{name}-phone", page, width=390, height=844),
    )
]


def write_pages() -> None:
    """Write all pages into the current folder."""
    subprocess.run([sys.executable, str(ROOT / "examples" / "demo.py")], check=True)  # noqa: S603 - it is ours
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 6))
    truth = odeco.Components(np.arange(6.0, 0.0, -1.0), vectors / np.linalg.norm(vectors, axis=0))
    np.save("tensor.npy", truth.to_dense() + odeco.symmetrize(0.01 * rng.normal(size=(40, 40, 40))))
    mixing = np.linalg.qr(rng.normal(size=(100, 5)))[0]
    rows = rng.exponential(size=(50_000, 5)) @ mixing.T + 0.5 * rng.normal(size=(50_000, 100))
    np.save("rows.npy", rows - rows.mean(axis=0))
    private = ["decompose", "--rows", "rows.npy", "-k", "5", "--yes"]
    private += ["--epsilon", "1", "--delta", "1e-6", "--norm-bound", "7"]
    topics = ["learn", "topics", "--python-documentation", "-k", "16", "--seed", "1"]
    for arguments in (
        [*topics, "--report", "topics.html"],
        ["decompose", "tensor.npy", "-k", "auto", "--report", "tensor.html"],
        [*private, "--report", "private.html"],
    ):
        if run(arguments):
            raise SystemExit(f"odeco {' '.join(arguments)} failed")
    write_model_pages(rng)


def write_model_pages(rng: np.random.Generator) -> None:
    """Write a page for each kind of model."""
    wine = load_wine(as_frame=True).data
    write = odeco.write_report
    mixture = TensorMixture("auto", standardize=True, random_state=0).fit(wine)
    write(mixture, "mixture.html", title="Clusters of 178 wines", rows=wine)
    model = TensorHMM(3, random_state=0)
    events, lengths = visits(rng)
    write(
        model.fit(events, lengths=lengths),
        "hmm.html",
        title="Visitors of a shop",
        rows=events,
        lengths=lengths,
    )
    buyers = rng.integers(3, size=900)
    bought = (buyers[:, None] > np.arange(9) % 3) ^ (rng.random((900, 9)) < 0.1)
    names = ["bread", "milk", "fruit", "meat", "fish", "wine", "beer", "tea", "coffee"]
    table = pandas.DataFrame(np.where(bought, "yes", "no"), columns=names)
    write(
        LatentClasses("auto", random_state=0).fit(table),
        "classes.html",
        title="Who buys what",
        rows=table,
    )
    signals = rng.laplace(size=(5000, 4)) @ rng.normal(size=(4, 6))
    sensors = pandas.DataFrame(signals, columns=[f"sensor {letter}" for letter in "ABCDEF"])
    write(TensorICA(4, random_state=0).fit(sensors), "sources.html", title="Sources of six sensors")
    novel = networkx.les_miserables_graph()
    write(
        Communities("auto", random_state=0).fit(novel),
        "communities.html",
        title="Who meets whom in Les Misérables",
    )


def visits(rng: np.random.Generator) -> tuple[Any, list[int]]:
    """Return the events of 60 visits to a shop, and the length of each."""
    moves = np.array([[0.9, 0.08, 0.02], [0.08, 0.84, 0.08], [0.02, 0.1, 0.88]])
    emits = np.array(
        [[0.7, 0.25, 0.05, 0, 0], [0.05, 0.25, 0.6, 0.1, 0], [0, 0.05, 0.1, 0.5, 0.35]]
    )
    names = np.array(["search", "open", "read", "basket", "buy"])
    events, state = [], 0
    for _ in range(3000):
        events.append(names[rng.choice(5, p=emits[state])])
        state = rng.choice(3, p=moves[state])
    return np.array(events), [50] * 60


def main() -> int:
    """Take all pictures, and say where they are."""
    if CHROMIUM is None:
        sys.stderr.write(
            "There must be a Chromium on this machine. Got none. Run: apt-get install chromium.\n"
        )
        return 1
    figures = ROOT / "docs" / "figures"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), Browser() as browser:
        write_pages()
        for each in PICTURES:
            browser.open(Path(each.page).resolve(), scheme=each.scheme, width=each.width)
            if each.word:
                browser.click("#explorer-search")
                browser.type(each.word)
                browser.press("Enter")
            browser.evaluate("document.getAnimations().forEach(each => each.finish())")
            explorer = browser.evaluate("document.querySelector('.explore') !== null")
            top = browser.top_of(".explore") if each.width < 600 and explorer else 0
            browser.screenshot(figures / f"{each.name}.png", top=top, height=each.height)
            sys.stderr.write(f"wrote {figures / each.name}.png\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
