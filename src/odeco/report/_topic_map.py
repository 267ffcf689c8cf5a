"""Where topics lie on a map: near to those that use the same words, and never over each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odeco._types import FloatArray, IndexArray

#: The width of the map over its height, or the second one with more than 40 topics.
_WIDE, _TALL, MANY = 10.0 / 6.2, 10.0 / 9.0, 40
#: All circles together take this share of the area of the map.
_FILLED = 0.14
#: Circles keep this share of the map's height between them.
_GAP = 0.065
#: Circles are moved apart in at most this many steps.
_STEPS = 400


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
        A hue from 0 to 359 for each: the angle under which it is seen from the middle, so that neighbours look alike.
    likeness : array, k x k
        The Bhattacharyya coefficient Σ √(p q) of two topics: 1 if they are the same, 0 if they share no word.
    """

    places: FloatArray
    radii: FloatArray
    size: tuple[float, float]
    hues: IndexArray
    likeness: FloatArray


def lay_out(topic_word: FloatArray, shares: FloatArray) -> TopicMap:
    """Place topics in the plane that keeps most of their Hellinger distances, and move circles apart that overlap."""
    width = _TALL if len(shares) > MANY else _WIDE
    radii = np.sqrt(shares * _FILLED * width / np.pi)
    roots = np.sqrt(topic_word)
    plane = _plane(roots)
    places = _spread(plane, radii, width)
    low, high = (places - radii[:, None]).min(axis=0), (places + radii[:, None]).max(axis=0)
    low, high = low - np.array([0.08, 0.06]), high + np.array([0.08, 0.02])  # room for labels
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
        # The sign of an eigenvector is a matter of chance: its largest entry is made positive.
        vector = vectors[:, place] * np.sign(vectors[np.argmax(np.abs(vectors[:, place])), place])
        coordinates[:, axis] = vector * np.sqrt(max(values[place], 0.0))
    return coordinates


def _spread(coordinates: FloatArray, radii: FloatArray, width: float) -> FloatArray:
    """Scale coordinates to a map of height 1, and move circles apart that lie over each other, all at once."""
    extent = np.maximum(np.ptp(coordinates, axis=0), 1e-12)
    scale = np.minimum(width / extent[0], 1 / extent[1]) * 0.85
    places: FloatArray = coordinates * scale
    k = len(places)
    wanted = radii[:, None] + radii[None, :] + _GAP
    places += 1e-6 * np.stack([np.cos(np.arange(k)), np.sin(np.arange(k))], axis=1)  # no two at the same place
    for _ in range(_STEPS):
        apart = places[:, None, :] - places[None, :, :]
        distance = np.linalg.norm(apart, axis=2) + np.eye(k)
        overlap = np.maximum(wanted - distance, 0.0) * (1 - np.eye(k))
        if overlap.max() < 1e-3:
            break
        places += 0.25 * np.sum(apart / distance[:, :, None] * overlap[:, :, None], axis=1)
    return places
