"""Respondents drawn from classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._types import IndexArray
from odeco.answers.steps import Classes
from odeco.answers.table import Questions


def draw_codes(classes: Classes, questions: Questions, n_rows: int, rng: Any) -> tuple[IndexArray, IndexArray]:
    """Return the answers of respondents of these classes as whole numbers, and the class of each."""
    labels = rng.choice(classes.weights.size, size=n_rows, p=classes.weights / classes.weights.sum())
    columns = []
    for part in np.split(classes.answers, questions.offsets[1:]):
        edges = np.cumsum(part, axis=0)[:-1].T
        columns.append(np.sum(rng.random(n_rows)[:, None] > edges[labels], axis=1))
    return np.column_stack(columns), labels
