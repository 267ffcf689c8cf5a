"""The pictures of pages in the documentation, taken by a real browser: ``make screenshots``.

The page of the demo, the explorer of the topics of Python's documentation strings (light, dark with a word searched
for, and on a phone), the page of a tensor that was decomposed and of rows that were decomposed in private. It needs
Chromium (``apt-get install chromium``).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser import CHROMIUM, Browser  # noqa: E402 - it stands with the tests

import odeco  # noqa: E402
from odeco.cli.app import run  # noqa: E402


@dataclass(frozen=True)
class Picture:
    """A page, how it is shown, and what is typed into its search."""

    name: str
    page: str
    scheme: str = "light"
    width: int = 1200
    height: int = 1100
    word: str = ""


PICTURES = (
    Picture("demo", "odeco-report.html", height=1900),
    Picture("topics", "topics.html", height=1240),
    Picture("topics-dark", "topics.html", "dark", height=880, word="string"),
    Picture("topics-phone", "topics.html", width=390, height=844),
    Picture("decomposition", "tensor.html", height=1000),
    Picture("private", "private.html", height=1000),
)


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
    private = ["private", "rows.npy", "-k", "5", "--epsilon", "1", "--delta", "1e-6", "--unit", "record", "--yes"]
    for arguments in (
        ["topics", "--python-documentation", "-k", "16", "--seed", "1", "--report", "topics.html"],
        ["decompose", "tensor.npy", "-k", "auto", "--report", "tensor.html"],
        [*private, "--norm-bound", "7", "--report", "private.html"],
    ):
        if run(arguments):
            raise SystemExit(f"odeco {' '.join(arguments)} failed")


def main() -> int:
    """Take all pictures, and say where they are."""
    if CHROMIUM is None:
        sys.stderr.write("There must be a Chromium on this machine. Got none. Run: apt-get install chromium.\n")
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
            top = 0 if each.width > 600 else browser.top_of(".explore")
            browser.screenshot(figures / f"{each.name}.png", top=top, height=each.height)
            sys.stderr.write(f"wrote {figures / each.name}.png\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
