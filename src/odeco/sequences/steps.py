"""Baum-Welch steps on whole sequences."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from odeco._types import BoolArray
from odeco.latent.acceleration import climb_ahead
from odeco.latent.likelihood import Climbed, Step, best_of
from odeco.sequences.chain import Chain

#: Looks ahead along the steps so far.
_climb = partial(climb_ahead, coordinates=Chain.coordinates, model_at=lambda coordinates, model: model.at(coordinates))


def climbed(chain: Chain, rows: Any, begins: BoolArray, *, n_steps: int, tolerance: float) -> Climbed[Chain]:
    """Take Baum-Welch steps from a model; the tolerance is of the mean log-likelihood of a row."""
    return _climb(_step_on(rows, begins), chain, n_steps=n_steps, tolerance=tolerance)


def climbed_from_best(
    chains: Iterable[Chain], rows: Any, begins: BoolArray, *, n_trial_steps: int, n_steps: int, tolerance: float
) -> Climbed[Chain]:
    """Take a few steps from every model, and the rest from where the likelihood is highest then."""
    return best_of(
        chains,
        _step_on(rows, begins),
        n_trial_steps=min(n_trial_steps, n_steps),
        n_steps=n_steps,
        tolerance=tolerance,
        climber=_climb,
    )


def _step_on(rows: Any, begins: BoolArray) -> Step[Chain]:
    def step(model: Chain) -> tuple[Chain, float]:
        expected = model.expected(rows, begins)
        return model.maximised(expected), expected.log_likelihood / expected.n_rows

    return step
