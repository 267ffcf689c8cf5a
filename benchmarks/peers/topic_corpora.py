"""Real text for benchmarks: words in at least 20 documents and at most a tenth of them, documents
of 12 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from odeco.models.lda.inference import split_documents

FEWEST_DOCUMENTS, LARGEST_SHARE, SHORTEST = 20, 0.1, 12
#: The fewest and the most words of a short text.
SHORT = (3, 8)
#: One document in so many is in the choice part, and as many test the rest.
CHOICE = 20
#: Of the choice part one document in so many judges.
JUDGES = 5


@dataclass(frozen=True)
class Corpus:
    """Training documents, and the two halves of the test documents."""

    name: str
    train: Any
    observed: Any
    held_out: Any


def read_corpus(folder: Path, name: str, seed: int, *, short: bool = False) -> Corpus:
    """Prune a corpus, and hold a tenth of it out; newsgroups comes with its test documents."""
    train, test = _read_pruned(folder, name)
    rng = np.random.default_rng(seed)
    if short:
        train, test = shorten(train, rng), None if test is None else shorten(test, rng)
    if test is None:
        order = rng.permutation(train.shape[0])
        tenth = train.shape[0] // 10
        test, train = train[np.sort(order[:tenth])], train[np.sort(order[tenth:])]
    return Corpus(name, train, *split_documents(test, rng))


def read_parts(folder: Path, name: str, seed: int = 1) -> tuple[Corpus, Corpus]:
    """Return the choice part, on which settings are chosen, and the part that is reported; they
    share no document.

    A twentieth of the documents is the choice part, another one tests, and nine tenths are learnt
    from: as many as `read_corpus` leaves for that. Newsgroups comes with its test documents, so 19
    of 20 are left there.
    """
    documents, test = _read_pruned(folder, name)
    rng = np.random.default_rng(seed)
    order = rng.permutation(documents.shape[0])
    size = documents.shape[0] // CHOICE
    chosen, rest = order[:size], order[size:]
    if test is None:
        test, rest = documents[np.sort(rest[:size])], rest[size:]
    judges, learnt = chosen[: size // JUDGES], chosen[size // JUDGES :]
    choice = Corpus(
        name, documents[np.sort(learnt)], *split_documents(documents[np.sort(judges)], rng)
    )
    return choice, Corpus(name, documents[np.sort(rest)], *split_documents(test, rng))


def shorten(counts: Any, rng: np.random.Generator) -> Any:
    """Return 3 to 8 words of each document, drawn without replacement: short texts, about as long
    as titles.
    """
    words = np.repeat(counts.indices, counts.data.astype(np.int64))
    lengths = np.asarray(counts.sum(axis=1), dtype=np.int64).ravel()
    documents = np.repeat(np.arange(counts.shape[0]), lengths)
    words = words[np.lexsort((rng.random(words.size), documents))]
    place = np.arange(words.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    kept = place < rng.integers(SHORT[0], SHORT[1] + 1, counts.shape[0])[documents]
    ones = np.ones(int(kept.sum()), dtype=counts.dtype)
    return sparse.csr_array(
        sparse.coo_array((ones, (documents[kept], words[kept])), shape=counts.shape)
    )


def _read_pruned(folder: Path, name: str) -> tuple[Any, Any]:
    """Return the documents, and those that the corpus brings along as a test, or None."""
    documents = _read(folder / ("newsgroups_train.npz" if name == "newsgroups" else f"{name}.npz"))
    frequency = np.bincount(documents.indices, minlength=documents.shape[1])
    kept = (frequency >= FEWEST_DOCUMENTS) & (frequency <= LARGEST_SHARE * documents.shape[0])
    test = (
        _long_enough(_read(folder / "newsgroups_test.npz")[:, kept])
        if name == "newsgroups"
        else None
    )
    return _long_enough(documents[:, kept]), test


def _read(path: Path) -> Any:
    with np.load(path, allow_pickle=False) as file:
        return sparse.csr_array(
            (file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"])
        )


def _long_enough(counts: Any) -> Any:
    return counts[np.asarray(counts.sum(axis=1)).ravel() >= SHORTEST]
