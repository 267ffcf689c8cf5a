"""The explorer of topics: what the script of the page is given, as JSON, and where it builds.

The page is complete without it: the script hides what it shows better, and shows the same topics as a map that is
linked to words and documents.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from odeco._types import FloatArray, IndexArray
from odeco.report._topic_map import TopicMap
from odeco.topics.defaults import RELEVANCE
from odeco.topics.relevance import relevance

if TYPE_CHECKING:  # scikit-learn and numba are not needed to write a page
    from odeco.topics.summarise import TopicSummary

#: A document that shows a topic: where it comes from, how it begins, and the topic's share in it.
Example = tuple[str, str, float]
#: The slider has steps of a tenth. For each, so many words of a topic can be shown.
_STEPS, _SHOWN = 10, 18
#: So many of the most frequent words can be searched for, beside those that lead a topic.
_SEARCHED = 1000
#: A topic is told to hold a word if it has at least this share of it.
_LEAST_SHARE = 0.02


def script() -> str:
    """Return the script of the explorer."""
    return files("odeco.report").joinpath("explorer.js").read_text(encoding="utf-8")


def style() -> str:
    """Return its style."""
    return files("odeco.report").joinpath("explorer.css").read_text(encoding="utf-8")


def container(data: dict[str, Any]) -> str:
    """Return the HTML in which the explorer is built; it stays hidden where scripts do not run."""
    held = f'<script type="application/json" id="explorer-data">{as_json(data)}</script>'
    return f'<div id="explorer" hidden></div>\n{held}\n'


def as_json(data: Any) -> str:
    """Return JSON that cannot end the element it stands in, whatever texts it holds."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def explorer_data(
    summary: TopicSummary,
    layout: TopicMap,
    standings: Sequence[tuple[str, float | None]],
    examples: Sequence[Sequence[Example]] | None,
) -> dict[str, Any]:
    """Return all that the explorer shows.

    Parameters
    ----------
    summary : TopicSummary
        The topics.
    layout : TopicMap
        Where they lie on the map.
    standings : sequence of pairs
        For each topic how good it is, in words, and as a number to sort by.
    examples : sequence of sequences, optional
        For each topic documents that show it.
    """
    topic_word, shares = summary.topic_word, summary.shares
    frequencies = shares @ topic_word
    leading = _leading(summary)
    known = np.unique(np.concatenate([*leading, np.argsort(-frequencies, kind="stable")[:_SEARCHED]]))
    place_of = {int(word): place for place, word in enumerate(known)}
    topics = [
        {
            "share": _short(shares[topic]),
            "x": _short(layout.places[topic, 0], 4),
            "y": _short(layout.places[topic, 1], 4),
            "r": _short(layout.radii[topic]),
            "hue": int(layout.hues[topic]),
            "standing": standings[topic][0],
            "value": standings[topic][1],
            "clear": summary.trust is None or bool(summary.trust.clear[topic]),
            "words": [place_of[int(word)] for word in leading[topic]],
            "weights": [_short(topic_word[topic, word]) for word in leading[topic]],
            "documents": []
            if examples is None
            else [[name, text, _short(share)] for name, text, share in examples[topic]],
        }
        for topic in range(len(shares))
    ]
    return {
        "topics": topics,
        "words": [str(word) for word in summary.words[known]],
        "frequencies": [_short(value) for value in frequencies[known]],
        "holders": _holders(summary, known, frequencies),
        "likeness": np.rint(100 * layout.likeness).astype(int).tolist(),
        "size": [_short(value, 4) for value in layout.size],
        "measure": "trust" if summary.trust is not None else "coherence" if summary.npmi is not None else "",
        "weight": RELEVANCE,
        "shown": _SHOWN,
    }


def _leading(summary: TopicSummary) -> list[IndexArray]:
    """Return for each topic all words that lead it at a step of the slider; of private topics those that are clear."""
    found: list[list[IndexArray]] = [[] for _ in summary.shares]
    clear = None if summary.trust is None else summary.trust.clear_words(summary.topic_word)
    for step in range(_STEPS + 1):
        scores = relevance(summary.topic_word, summary.shares, step / _STEPS)
        if clear is not None:
            scores[~clear] = -np.inf
        for topic, row in enumerate(scores):
            first = np.argsort(-row, kind="stable")[:_SHOWN]
            found[topic].append(first[np.isfinite(row[first])])
    return [np.unique(np.concatenate(own)) for own in found]


def _holders(summary: TopicSummary, known: IndexArray, frequencies: FloatArray) -> list[list[int]]:
    """Return for each word the topics that hold it and their shares of it in thousandths, one after the other."""
    inside = summary.topic_word[:, known] * summary.shares[:, None]
    shares = np.divide(inside, frequencies[known], out=np.zeros_like(inside), where=frequencies[known] > 0)
    if summary.trust is not None:
        shares[~summary.trust.clear_words(summary.topic_word)[:, known]] = 0.0
    found = []
    for row in shares.T:
        holders = np.flatnonzero(row >= _LEAST_SHARE)
        holders = holders[np.argsort(-row[holders], kind="stable")]
        found.append([number for topic in holders for number in (int(topic), round(1000 * float(row[topic])))])
    return found


def _short(value: float, digits: int = 3) -> float:
    """Return a number with few digits, which is what a page shows."""
    return float(f"{value:.{digits}g}")
