"""Check that every link and picture of the built documentation leads to something.

    python tools/check_links.py docs/_build/html

Only what is inside the folder is checked, anchors included; nothing is fetched from the network.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what can be linked to, and what is linked to."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value is not None and tag != "base":
                self.links.append(value)


def broken_links(folder: Path) -> list[str]:
    """Return every link within a folder that leads nowhere, with the page that has it."""
    # The theme keeps a template of its own among its scripts.
    written = [path for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts]
    pages = {path.resolve(): _Page(path) for path in written}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = (
                target in pages
                and parts.fragment
                and unquote(parts.fragment) not in pages[target].anchors
            )
            if not target.exists() or (known and parts.fragment != "top"):
                broken.append(f"{path.relative_to(folder.resolve())}: {link}")
    return broken


if __name__ == "__main__":
    found = broken_links(Path(sys.argv[1]))
    sys.stderr.write("".join(f"A link leads nowhere. {each}\n" for each in found))
    sys.exit(bool(found))
