"""Seed words: topics that a user asks for by some of their words, as a prior of the Gibbs sweeps.

A topic's words have a Dirichlet prior with η for every word. In the topic that a seed word is of, the prior count of
this word is larger by a quarter of the number of times that it occurs in the documents, and the sweeps start with its
words there (Jagarlamudi, Daumé and Udupa 2012 mix seed topics with others for the same purpose). So a seed word mostly
goes to its topic, and takes along the words around it, but documents in which it means something else can still put it
elsewhere. The prior steers the sweeps only: the topics that are returned are those of the words of the documents. Prior
counts as large as the words' own would move topics away from planted ones by two to four times their error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from odeco._util.types import FloatArray, IndexArray
from odeco.errors import VocabularyError

#: In its topic a seed word has this share of its uses as prior counts.
_PRIOR_SHARE = 0.25

#: A seeded topic starts from its seed words with this weight, and from a spectral topic for the rest.
_SEED_SHARE = 0.5


def check_seed_words(name: str, value: Any) -> dict[str, tuple[str, ...]]:
    """Return seed words by label; a list of topics is labelled by their first words."""
    topics = value if isinstance(value, Mapping) else dict(enumerate(value)) if isinstance(value, Sequence) else {}
    good = not isinstance(value, str) and all(
        isinstance(words, Sequence) and not isinstance(words, str) and words and all(isinstance(w, str) for w in words)
        for words in topics.values()
    )
    if not good or not topics:
        raise ValueError(
            f"`{name}` must have a list of words for each of some topics, such as {{'sport': ['ball', 'team']}}. Got "
            f"{value!r}."
        )
    listed = [word for words in topics.values() for word in words]
    twice = next((word for word in listed if listed.count(word) > 1), None)
    if twice is not None:
        raise ValueError(f"`{name}` must have each word once. Got {twice!r} more often. Leave it in one topic.")
    labels = [str(label) if isinstance(value, Mapping) else topics[label][0] for label in topics]
    return {label: tuple(words) for label, words in zip(labels, topics.values(), strict=True)}


@dataclass(frozen=True, eq=False)
class SeedWords:
    """Seed words as columns of the counts.

    Attributes
    ----------
    labels : list of str
        The names of the topics.
    places : list of arrays
        For each of them the columns of its words.
    """

    labels: list[str]
    places: list[IndexArray]

    @classmethod
    def of(cls, topics: dict[str, tuple[str, ...]], words: NDArray[np.str_] | None) -> SeedWords:
        """Find seed words among the words of the columns."""
        if words is None:
            raise VocabularyError(
                "`seed_words` must be found among the words of the columns. Got counts without words. Pass `words` to "
                "fit, or call fit_text."
            )
        columns = {word: place for place, word in enumerate(words.tolist())}
        missing = [word for listed in topics.values() for word in listed if word not in columns]
        if missing:
            raise VocabularyError(
                f"Every seed word must be in the vocabulary. Got {', '.join(map(repr, missing[:5]))}"
                f"{' and others' if len(missing) > 5 else ''}, which is not: it may be misspelt, rare, or a stop word. "
                "Leave it out, or loosen the pruning of the vocabulary."
            )
        places = [np.array([columns[word] for word in listed], dtype=np.int64) for listed in topics.values()]
        return cls(list(topics), places)

    def assign(self, topic_word: FloatArray, alpha: FloatArray) -> IndexArray:
        """Return the topic of each seed: those to which its words belong most, no topic twice."""
        joint = alpha[:, None] * topic_word
        shares = joint / np.maximum(joint.sum(axis=0), np.finfo(np.float64).tiny)
        score = np.array([shares[:, places].mean(axis=1) for places in self.places])
        return np.asarray(linear_sum_assignment(-score)[1])

    def begin(self, topic_word: FloatArray, alpha: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return topics to start from, and the prior counts, k x V, of all words."""
        start, prior = topic_word.copy(), np.zeros(topic_word.shape)
        for topic, places in zip(self.assign(topic_word, alpha), self.places, strict=True):
            prior[topic, places] = _PRIOR_SHARE * totals[places]
            start[topic] *= 1 - _SEED_SHARE
            start[topic, places] += _SEED_SHARE * totals[places] / max(float(totals[places].sum()), 1.0)
        return start, prior
