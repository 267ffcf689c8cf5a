"""The explorer of topics: the data that the script of the page reads, as JSON, and the layout of
the map.

Without the script the page has words and documents as text. The script hides these, and shows the
topics as a map that is linked to words and documents. On the map, topics that use the same words
are near each other, and circles never overlap.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.models.lda.display import relevance
from odeco.models.lda.vocabulary import RELEVANCE

if TYPE_CHECKING:
    from odeco.models.lda.display import TopicSummary


#: A typical document of a topic: where it comes from, how it begins, and the topic's share in it.
Example = tuple[str, str, float]

#: The slider has steps of a tenth. At each step, this many words of a topic are shown.
_STEPS = 10
_SHOWN = 18

#: This many of the most frequent words can be searched for, besides those that lead a topic.
_SEARCHED = 1000

#: A word counts as one of a topic that has at least this share of its uses.
_MIN_SHARE = 0.02


def json_text(data: Any) -> str:
    """Return JSON that cannot end the script element around it, whatever texts it holds."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def explorer_data(
    summary: TopicSummary,
    layout: TopicMap,
    standings: Sequence[tuple[str, float | None]],
    examples: Sequence[Sequence[Example]] | None,
) -> dict[str, Any]:
    """Return the data of the explorer.

    Parameters
    ----------
    summary : TopicSummary
        The topics.
    layout : TopicMap
        Where they lie on the map.
    standings : sequence of pairs
        The quality of each topic, in words and as a number to sort by.
    examples : sequence of sequences, optional
        The most typical documents of each topic.
    """
    topic_word = summary.topic_word
    shares = summary.shares
    frequencies = shares @ topic_word
    leading = _leading(summary)
    known = np.unique(
        np.concatenate([*leading, np.argsort(-frequencies, kind="stable")[:_SEARCHED]])
    )
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
    measure = ""
    if summary.trust is not None:
        measure = "trust"
    elif summary.npmi is not None:
        measure = "coherence"
    return {
        "topics": topics,
        "words": [str(word) for word in summary.words[known]],
        "frequencies": [_short(value) for value in frequencies[known]],
        "holders": _holders(summary, known, frequencies),
        "likeness": np.rint(100 * layout.likeness).astype(int).tolist(),
        "size": [_short(value, 4) for value in layout.size],
        "measure": measure,
        "weight": RELEVANCE,
        "shown": _SHOWN,
    }


def _leading(summary: TopicSummary) -> list[IndexArray]:
    """Return for each topic the words that lead it at any step of the slider; of private topics
    only clear words.
    """
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
    """Return for each word the topics that hold it and their shares of it in thousandths, one after
    the other.
    """
    inside = summary.topic_word[:, known] * summary.shares[:, None]
    shares = np.divide(
        inside, frequencies[known], out=np.zeros_like(inside), where=frequencies[known] > 0
    )
    if summary.trust is not None:
        shares[~summary.trust.clear_words(summary.topic_word)[:, known]] = 0.0
    found = []
    for row in shares.T:
        holders = np.flatnonzero(row >= _MIN_SHARE)
        holders = holders[np.argsort(-row[holders], kind="stable")]
        found.append(
            [
                number
                for topic in holders
                for number in (int(topic), round(1000 * float(row[topic])))
            ]
        )
    return found


def _short(value: float, digits: int = 3) -> float:
    """Return a number rounded to the digits that the page shows."""
    return float(f"{value:.{digits}g}")


#: The ratio of the map's width to its height; that of a map of more than `_MANY` topics; and that
#: number.
_WIDE = 10.0 / 6.2
_TALL = 10.0 / 9.0
_MANY = 40

#: All circles together take this share of the area of the map.
_FILLED = 0.14

#: Circles keep this share of the map's height between them.
_GAP = 0.065

#: Circles are moved apart in at most this many steps.
_MAP_STEPS = 400


@dataclass(frozen=True, eq=False)
class TopicMap:
    """Circles for topics.

    Attributes
    ----------
    places : array, k x 2
        Their centres, with the lower left corner of the map at 0 and y upwards.
    radii : array
        Their radii; areas are in proportion to the shares of topics.
    size : pair of floats
        Width and height of the map, with room for labels.
    hues : array of k ints
        A hue from 0 to 359 for each: the angle under which it is seen from the middle, so that
        neighbours look alike.
    likeness : array, k x k
        The Bhattacharyya coefficient Σ √(p q) of two topics: 1 if they are the same, 0 if they
        share no word.
    """

    places: FloatArray
    radii: FloatArray
    size: tuple[float, float]
    hues: IndexArray
    likeness: FloatArray


def lay_out(topic_word: FloatArray, shares: FloatArray) -> TopicMap:
    """Place topics in the plane that keeps most of their Hellinger distances, and move circles
    apart that overlap.
    """
    width = _TALL if len(shares) > _MANY else _WIDE
    radii = np.sqrt(shares * _FILLED * width / np.pi)
    roots = np.sqrt(topic_word)
    plane = _plane(roots)
    places = _spread(plane, radii, width)
    low = (places - radii[:, None]).min(axis=0)
    high = (places + radii[:, None]).max(axis=0)
    # room for labels
    low = low - np.array([0.08, 0.06])
    high = high + np.array([0.08, 0.02])
    extent = high - low
    angles = np.degrees(np.arctan2(*(places - places.mean(axis=0)).T[::-1]))
    return TopicMap(
        places=places - low,
        radii=radii,
        size=(float(extent[0]), float(extent[1])),
        hues=np.rint(angles).astype(np.int64) % 360,
        likeness=np.clip(roots @ roots.T, 0.0, 1.0),
    )


def _plane(roots: FloatArray) -> FloatArray:
    """Return coordinates in the plane by classical scaling, given the square roots of topics."""
    centred = roots - roots.mean(axis=0)
    values, vectors = np.linalg.eigh(centred @ centred.T)
    coordinates = np.zeros((len(roots), 2))
    for axis, place in enumerate(range(len(values) - 1, max(len(values) - 3, -1), -1)):
        # The sign of an eigenvector is arbitrary: make its largest entry positive.
        vector = vectors[:, place] * np.sign(vectors[np.argmax(np.abs(vectors[:, place])), place])
        coordinates[:, axis] = vector * np.sqrt(max(values[place], 0.0))
    return coordinates


def _spread(coordinates: FloatArray, radii: FloatArray, width: float) -> FloatArray:
    """Scale coordinates to a map of height 1, and move overlapping circles apart, all at once."""
    extent = np.maximum(np.ptp(coordinates, axis=0), 1e-12)
    scale = np.minimum(width / extent[0], 1 / extent[1]) * 0.85
    places: FloatArray = coordinates * scale
    k = len(places)
    wanted = radii[:, None] + radii[None, :] + _GAP
    places += 1e-6 * np.stack(
        [np.cos(np.arange(k)), np.sin(np.arange(k))], axis=1
    )  # no two at the same place
    for _ in range(_MAP_STEPS):
        apart = places[:, None, :] - places[None, :, :]
        distance = np.linalg.norm(apart, axis=2) + np.eye(k)
        overlap = np.maximum(wanted - distance, 0.0) * (1 - np.eye(k))
        if overlap.max() < 1e-3:
            break
        places += 0.25 * np.sum(apart / distance[:, :, None] * overlap[:, :, None], axis=1)
    return places
