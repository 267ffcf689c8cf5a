"""Documents that show a topic best, without those that say nearly the same as another."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from odeco._types import FloatArray, IndexArray
from odeco.rows import row_slice
from odeco.topics.lda import TensorLDA

#: The proportions of this many documents are worked out at a time.
_BLOCK = 20_000
#: So many documents are looked at for each that is shown, as some may say the same.
_LOOKED_AT = 10
#: Two documents say nearly the same if more than half of all their words together are common to both.
_NEARLY_THE_SAME = 0.5


def proportions_of(model: TensorLDA, counts: Any) -> FloatArray:
    """Return the proportions of topics in documents whose columns are known to be the model's words."""
    with warnings.catch_warnings():
        # The columns of a sparse array have no names, and the model's have.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return model.transform(counts)


def leading_documents(model: TensorLDA, counts: Any, n_documents: int) -> tuple[IndexArray, FloatArray]:
    """Return the documents in which each topic has its largest share, largest first, and these shares.

    Both arrays have a row for each topic. Documents are given by their row numbers, and worked on some at a time.
    """
    k = model.n_components_
    places, shares = np.zeros((k, 0), dtype=np.int64), np.zeros((k, 0))
    for start in range(0, counts.shape[0], _BLOCK):
        block = proportions_of(model, row_slice(counts, start, min(start + _BLOCK, counts.shape[0]))).T
        rows = np.broadcast_to(np.arange(start, start + block.shape[1]), block.shape)
        shares, places = np.concatenate([shares, block], axis=1), np.concatenate([places, rows], axis=1)
        first = np.argsort(-shares, axis=1, kind="stable")[:, :n_documents]
        shares, places = np.take_along_axis(shares, first, axis=1), np.take_along_axis(places, first, axis=1)
    return places, shares


def telling_documents(model: TensorLDA, counts: Any, n_documents: int) -> list[list[tuple[int, float]]]:
    """Return for each topic the row numbers of documents that show it best, and its share in each.

    A document that says nearly the same as one before it is left out: its words and those of the other, Σ min over
    Σ max of their counts, overlap by more than a half. That holds for copies, for reposts, and for answers that quote
    most of what they answer.
    """
    places, shares = leading_documents(model, counts, _LOOKED_AT * n_documents)
    chosen = []
    for own_places, own_shares in zip(places.tolist(), shares.tolist(), strict=True):
        shown: list[tuple[int, float]] = []
        for place, share in zip(own_places, own_shares, strict=True):
            if len(shown) == n_documents:
                break
            if all(_overlap(counts, place, other) <= _NEARLY_THE_SAME for other, _ in shown):
                shown.append((place, share))
        chosen.append(shown)
    return chosen


def _overlap(counts: Any, first: int, second: int) -> float:
    """Return Σ min / Σ max of the counts of two documents; 1 if both are empty."""
    one, other = counts[[first]], counts[[second]]
    together = float(one.maximum(other).sum())
    return float(one.minimum(other).sum()) / together if together else 1.0
