"""Classes that fit all that was released about them: the gradient is right, and more is learnt than
by a step.
"""

from __future__ import annotations

import numpy as np
import pytest

from odeco.models.lca.classes import Classes, m_step
from odeco.models.lca.pairs import Matching, PairTables, ReleasedStep
from odeco.privacy.holders.answers import HeldAnswers
from odeco.privacy.holders.tables import Levels

QUESTIONS = Levels(np.array([2, 3, 1, 4, 3, 3, 3, 4, 3, 3, 4, 3]))
N_ROWS = 40_000


def classes_of(rng, weights):
    drawn = [rng.dirichlet(np.ones(size), len(weights)).T for size in QUESTIONS.sizes]
    return Classes(np.array(weights), np.concatenate(drawn))


def measured(missing=0.0):
    """Return a truth, other classes, and what respondents of the truth give without noise."""
    rng = np.random.default_rng(0)
    truth, asked = classes_of(rng, [0.6, 0.4]), classes_of(rng, [0.5, 0.5])
    codes, _ = truth.draw(QUESTIONS, N_ROWS, rng)
    codes[rng.random(codes.shape) < missing] = -1
    held = HeldAnswers(QUESTIONS.indicators(codes), QUESTIONS)
    tables = PairTables.of(held.pairs().answer(), 1.0, QUESTIONS, N_ROWS)
    step = ReleasedStep(asked, held.step(asked.responsibilities, 2).answer(), 1.0)
    return truth, asked, Matching(tables, N_ROWS, 2).with_step(step)


@pytest.mark.parametrize("with_steps", [False, True])
def test_the_gradient_is_that_of_the_misfit(with_steps):
    truth, asked, matching = measured()
    rng = np.random.default_rng(1)
    simulated = matching._simulated(asked, rng) if with_steps else None
    place = np.log(np.vstack([truth.weights, truth.answers])).ravel() + 0.1 * rng.standard_normal(
        2 * (1 + QUESTIONS.n_levels)
    )
    _, gradient = matching._misfit(place, simulated)
    for direction in rng.standard_normal((5, place.size)):
        ahead, behind = (
            matching._misfit(place + sign * 1e-5 * direction, simulated)[0] for sign in (1, -1)
        )
        # Differences on both sides err by 1e-10 of the third derivative, and by rounding of the
        # values by 1e5.
        assert (ahead - behind) / 2e-5 == pytest.approx(gradient @ direction, rel=1e-4)


def distance(found, truth):
    """Return the root mean square difference of two pairs of classes, in the better of the two
    orders.
    """
    return min(
        np.sqrt(np.mean((found.answers[:, order] - truth.answers) ** 2))
        for order in ([0, 1], [1, 0])
    )


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_what_a_sum_says_of_the_classes_is_more_than_the_step_that_it_was_asked_for(missing):
    truth, asked, matching = measured(missing)
    step = matching.steps[0]
    stepped = m_step(
        step.released.sum(axis=0) / 12, step.released, QUESTIONS, asked.answers[:, 0], 1.0
    )
    found = matching.best_of([asked, stepped], np.random.default_rng(2))
    assert distance(stepped, truth) < distance(asked, truth)
    assert distance(found, truth) < distance(stepped, truth)
