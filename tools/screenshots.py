"""The pictures of pages in the documentation, taken by a real browser: ``make screenshots``.

It learns topics from the documentation strings of Python's library, and photographs their page: wide and light, wide
and dark with a word searched for, and on a phone. It needs Chromium (``apt-get install chromium``).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser import CHROMIUM, Browser  # noqa: E402 - it stands with the tests

from odeco.cli._main import run  # noqa: E402

#: Name, scheme, width, height, and what is typed into the search.
PICTURES = (
    ("topics", "light", 1200, 1240, ""),
    ("topics-dark", "dark", 1200, 880, "string"),
    ("topics-phone", "light", 390, 844, ""),
)


def main() -> int:
    """Take all pictures, and say where they are."""
    if CHROMIUM is None:
        sys.stderr.write("There must be a Chromium on this machine. Got none. Run: apt-get install chromium.\n")
        return 1
    figures = ROOT / "docs" / "figures"
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        page = Path(folder) / "page.html"
        code = run(["topics", "--python-documentation", "-k", "16", "--seed", "1", "--report", str(page)])
        if code:
            return code
        for name, scheme, width, height, word in PICTURES:
            browser.open(page, scheme=scheme, width=width)
            if word:
                browser.click("#explorer-search")
                browser.type(word)
                browser.press("Enter")
            browser.evaluate("document.getAnimations().forEach(each => each.finish())")
            top = 0 if width > 600 else browser.top_of(".explore")
            browser.screenshot(figures / f"{name}.png", top=top, height=height)
            sys.stderr.write(f"wrote {figures / name}.png\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
