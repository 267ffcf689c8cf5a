"""One document: what it says, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """One document.

    Attributes
    ----------
    name : str
        Where the document comes from, such as ``reviews.txt, line 12``.
    text : str
        What the document says; it may be empty.
    """

    name: str
    text: str
