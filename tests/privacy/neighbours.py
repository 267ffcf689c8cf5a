"""Neighbouring tables of rows, of which no pair may move a sum by more than is declared."""

from __future__ import annotations

import numpy as np

from odeco.privacy.guarantee import Guarantee
from odeco.privacy.sums import PrivateSums

N = 6


def random_row(rng, d, bound, centre):
    """Return a row of any length; now and then one that is huge, tiny, along an axis, the centre,
    or no number.
    """
    kind, direction = rng.integers(9), rng.standard_normal(d)
    if kind == 0:
        return np.full(d, [np.nan, np.inf, -np.inf, 1.7e308, 5e-324][rng.integers(5)])
    if kind == 1:
        return bound * rng.choice([-10, 10]) * np.eye(d)[rng.integers(d)]
    if kind == 2:
        return 1e200 * direction
    if kind == 3:
        return bound * centre
    return bound * rng.uniform(0, 2) * direction / np.linalg.norm(direction)


def largest_move(ask, hold, relation, *, bound, centre):
    """Assert that no neighbour moves a sum by more than declared, and return the largest move as a
    share of that.
    """
    d = len(centre)
    asked = ask(hold(np.zeros((N, d))))
    declared = PrivateSums(
        Guarantee(1.0, 1e-6), N, record="row", neighbour_relation=relation
    ).sensitivity(asked)
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(300):
        rows = np.array([random_row(rng, d, bound, centre) for _ in range(N)])
        other = rows.copy()
        other[2] = np.nan if relation == "add_remove" else random_row(rng, d, bound, centre)
        answers = [ask(hold(each)).answer() for each in (rows, other)]
        assert answers[0].shape == (asked.size,)
        moved = float(np.linalg.norm(answers[0] - answers[1]))
        assert moved <= declared
        worst = max(worst, moved / declared)
    return worst


def check_blank_rows(ask, hold, d):
    """Assert that a blank row adds nothing, and that what a row adds depends on no other row."""
    rows = np.random.default_rng(1).uniform(-1, 1, (9, d))
    alone = sum(ask(hold(row[None])).answer() for row in rows)
    np.testing.assert_allclose(ask(hold(rows)).answer(), alone, atol=1e-12)
    blank = np.array([[np.nan] * d, [1.0, np.inf, *[0.0] * (d - 2)]])
    np.testing.assert_array_equal(ask(hold(blank)).answer(), 0.0)
