"""The page of topics with their explorer: the data that its script reads, as JSON, and the layout
of the map.

Without the script the page has words and documents as text. The script hides these, and shows the
topics as a map that is linked to words and documents. On the map, topics that use the same words
are near each other, and circles never overlap.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from odeco._util.lazy import needed_by
from odeco._util.types import FloatArray, IndexArray
from odeco.display.page import Section, asset, parts
from odeco.models.engine.page import write_model_report
from odeco.models.lda.display import leading_words, lift
from odeco.models.lda.params import TopicParams
from odeco.models.lda.vocabulary import RELEVANCE, Words

with needed_by("A page"):
    from markupsafe import Markup

if TYPE_CHECKING:
    from odeco.models.lda.estimator import TensorLDA

#: Documents are shortened to this many characters.
_EXCERPT = 400

#: The documents of this many topics are shown at once; those of the others are shown at a click.
_OPEN = 3

#: The style sheet, the templates and the script are files of this package.
_PACKAGE = "odeco.models.lda"

#: A typical document of a topic: where it comes from, how it begins, and the topic's share in it.
Example = tuple[str, str, float]

#: The slider has steps of a tenth. At each step, this many words of a topic are shown.
_STEPS = 10
_SHOWN = 18

#: This many of the most frequent words can be searched for, besides those that lead a topic.
_SEARCHED = 1000

#: A word counts as one of a topic that has at least this share of its uses.
_MIN_SHARE = 0.02


def write_topics_report(
    model: TensorLDA,
    path: str | os.PathLike[str],
    *,
    title: str = "Topics",
    npmi: FloatArray | None = None,
    examples: Sequence[Sequence[Example]] | None = None,
    remark: str = "",
    more: Sequence[Section] = (),
    command: str | None = None,
) -> None:
    """Write the page of a model (`odeco.models.engine.page`) with an explorer of its topics.

    A script inside the page lets readers explore: a map of topics linked to their words and
    documents, a slider from frequent words to distinctive ones, and a search for words. Without
    scripts the page shows words and documents as text.

    Parameters
    ----------
    model : TensorLDA
        The topics.
    path : path
        Where to write; an old file is replaced only by a complete one.
    title : str
        The heading.
    npmi : array, optional
        The coherence of each topic; see `TensorLDA.coherence`.
    examples : sequence of sequences, optional
        For each topic some documents that show it best: where each comes from, its text, and the
        topic's share in it. The page of private topics never shows them.
    remark : str
        A line to add to the facts about the topics.
    more : sequence of Section, optional
        Further sections, after the explorer.
    command : str, optional
        The command that makes the page again.
    """
    params: TopicParams = model._fit_for("a page").params
    shown = None
    if params.trust is None and examples:
        shown = [[(name, _shortened(text), share) for name, text, share in own] for own in examples]
    data = explorer_data(params, model._known_words(), npmi, shown)
    made = Markup(json_text(data))  # noqa: S704 - it escapes < and &
    lead = " ".join(filter(None, (*model._describe().facts, remark)))
    explorer = Section("Explore", _parts().explorer(made), lead, name="explore")
    write_model_report(
        model,
        path,
        title=title,
        command=command,
        first=[explorer, *more, *_documents(model, shown)],
        style=asset(_PACKAGE, "topics.css"),
        script=asset(_PACKAGE, "explorer.js"),
    )


def _parts() -> Any:
    return parts(_PACKAGE, "topics.html")


def _documents(model: TensorLDA, examples: Sequence[Sequence[Example]] | None) -> list[Section]:
    if not examples:
        return []
    topics = [
        (", ".join(words), [(name, text, f"{share:.0%}") for name, text, share in own])
        for words, own in zip(model.top_words(3), examples, strict=True)
    ]
    lead = "For each topic the documents in which its share is largest, shortened."
    return [Section("Most typical documents", _parts().documents(topics, _OPEN), lead, "plain")]


def _shortened(text: str) -> str:
    if len(text) <= _EXCERPT:
        return text
    return text[: _EXCERPT - 1].rstrip() + "…"


def json_text(data: Any) -> str:
    """Return JSON that cannot end the script element around it, whatever texts it holds."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def explorer_data(
    params: TopicParams,
    words: Words,
    npmi: FloatArray | None,
    examples: Sequence[Sequence[Example]] | None,
) -> dict[str, Any]:
    """Return the data of the explorer: the topics over these words, with their coherence and their
    most typical documents if they are known.
    """
    topic_word = params.topic_word
    shares = params.shares
    trust = params.trust
    layout = lay_out(topic_word, shares)
    frequencies = shares @ topic_word
    clear = params.clear_words
    # The words that lead a topic at any step of the slider.
    steps = [leading_words(params, _SHOWN, step / _STEPS) for step in range(_STEPS + 1)]
    leading = [np.unique(np.concatenate(own)) for own in zip(*steps, strict=True)]
    frequent = np.argsort(-frequencies, kind="stable")[:_SEARCHED]
    known = np.unique(np.concatenate([*leading, frequent]))
    places = [np.searchsorted(known, own).tolist() for own in leading]
    measure = ""
    values: list[float | None] = [None] * len(shares)
    if trust is not None:
        measure = "trust"
        values = trust.signal.tolist()
    elif npmi is not None:
        measure = "coherence"
        values = npmi.tolist()
    topics = []
    for topic, value in enumerate(values):
        is_clear = bool(params.clear[topic])
        standing = "" if value is None else f"{measure} {value:.2f}".replace("-", "−")
        documents = [] if examples is None else examples[topic]
        topics.append(
            {
                "share": _short(shares[topic]),
                "x": _short(layout.places[topic, 0], 4),
                "y": _short(layout.places[topic, 1], 4),
                "r": _short(layout.radii[topic]),
                "hue": int(layout.hues[topic]),
                "standing": standing + ("" if is_clear else ": noise"),
                "value": value,
                "clear": is_clear,
                "words": places[topic],
                "weights": [_short(topic_word[topic, word]) for word in leading[topic]],
                "documents": [[name, text, _short(share)] for name, text, share in documents],
            }
        )
    return {
        "topics": topics,
        "words": [str(word) for word in words[known]],
        "frequencies": [_short(value) for value in frequencies[known]],
        "holders": _holders(params, known, clear),
        "likeness": np.rint(100 * layout.likeness).astype(int).tolist(),
        "size": [_short(value, 4) for value in layout.size],
        "measure": measure,
        "weight": RELEVANCE,
        "shown": _SHOWN,
    }


def _holders(params: TopicParams, known: IndexArray, clear: NDArray[np.bool_]) -> list[list[int]]:
    """Return for each word the topics that hold it and their shares of it in thousandths, one after
    the other.
    """
    lifts = lift(params.topic_word, params.shares)
    shares = np.where(clear, lifts * params.shares[:, None], 0.0)[:, known]
    found = []
    for row in shares.T:
        order = np.argsort(-row, kind="stable")
        holders = order[row[order] >= _MIN_SHARE]
        pairs = np.stack([holders, np.rint(1000 * row[holders]).astype(np.int64)], axis=1)
        found.append(pairs.ravel().tolist())
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
    left, sizes, _ = np.linalg.svd(roots - roots.mean(axis=0), full_matrices=False)
    coordinates = np.zeros((len(roots), 2))
    for axis, size in enumerate(sizes[:2]):
        # The sign of a singular vector is arbitrary: make its largest entry positive.
        vector = left[:, axis]
        sign = np.sign(vector[np.argmax(np.abs(vector))])
        coordinates[:, axis] = sign * size * vector
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
