"""Respondents whose classes are known."""

from __future__ import annotations

import numpy as np

from odeco.models.lca.classes import Classes
from odeco.privacy.holders.tables import Levels


def draw_classes(sizes, n_classes, seed, sharpness=0.5):
    """Return classes drawn at random: the smaller the sharpness, the more they differ."""
    rng = np.random.default_rng(seed)
    answers = np.concatenate(
        [rng.dirichlet(np.full(size, sharpness), n_classes).T for size in sizes]
    )
    return Classes(rng.dirichlet(np.full(n_classes, 10.0)), answers), Levels(np.asarray(sizes))


def draw_codes(classes, questions, n_rows, seed, missing=0.0):
    """Return answers of so many respondents as whole numbers, -1 where one is missing, and their
    classes.
    """
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes.weights.size, n_rows, p=classes.weights)
    columns = []
    for part in np.split(classes.answers, questions.offsets[1:]):
        edges = np.cumsum(part, axis=0)[:-1].T
        columns.append((rng.random(n_rows)[:, None] > edges[labels]).sum(axis=1))
    codes = np.column_stack(columns)
    codes[rng.random(codes.shape) < missing] = -1
    return codes, labels
