"""What the experiments rest on, compared with closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

import odeco
from odeco.datasets import APPENDIX_A_WEIGHTS, AdversarialNoise
from reproduction import figure1, privacy, streaming
from reproduction.figure1 import Within, starts_needed
from reproduction.streaming import SkewedStream, core


def test_noise_kept_within_a_subspace_is_a_tensor_that_the_signal_does_not_see():
    noise = Within(AdversarialNoise(np.eye(6)[3]), first=3)
    odeco.check_oracle(noise)
    assert odeco.operator_norm(noise, rng=0) == pytest.approx(
        3.0
    )  # that of the adversarial noise, at its own vector
    block = np.random.default_rng(0).standard_normal((6, 5))
    assert np.all(noise.image(block)[:3] == 0)
    changed = block.copy()
    changed[:3] = 7.0
    assert np.array_equal(noise.image(changed), noise.image(block))


def test_starts_needed_is_the_inverse_of_a_chance_that_can_be_drawn():
    draws = np.abs(np.random.default_rng(0).standard_normal((200_000, 4)))
    chance = np.mean(draws[:, 0] >= 2 * draws[:, 1:].max(axis=1))
    error = np.sqrt(chance * (1 - chance) / len(draws))
    assert abs(chance - 1 / starts_needed(4)) < 4 * error


def test_the_first_term_of_the_cited_composition_is_epsilon_at_two_over_e_to_the_fourth():
    # √(2 ln(2/δ) / (4 + ln(2/δ))) = 1 where ln(2/δ) = 4; with K large the second term is ε²/(4 +
    # ln(2/δ)) = 1/8.
    assert privacy.cited_composition(1.0, 2 * np.exp(-4), 10**8) == pytest.approx(
        1 + 1 / 8, rel=1e-4
    )
    # √(2 · 12.206 / 16.206) = 1.2273, and 1/16.206 = 0.0617 more.
    assert privacy.cited_composition(1.0, 1e-5, 10**8) == pytest.approx(1.2890, abs=2e-4)


def test_a_start_in_weakly_correlated_noise_goes_where_weight_times_coordinate_is_largest(
    monkeypatch,
):
    # T(I,u,u) is λᵢuᵢ² in each coordinate, so λᵢ|uᵢ| is squared at every step and the largest wins.
    d, sigma = 30, 0.4
    monkeypatch.setitem(figure1.GRIDS, "weakly correlated", (sigma,))
    settings = {"noise": "weakly correlated", "dimension": d, "restarts": [10]}
    records = [figure1.trial({**settings, "trial": trial}, 0)[0] for trial in range(40)]
    weights = np.array([*APPENDIX_A_WEIGHTS, *[sigma] * (d - 3)])
    starts = np.abs(np.random.default_rng(1).standard_normal((100_000, d)))
    lost = float(np.mean(np.argmax(weights * starts, axis=1) >= 3))
    # 400 starts; between an iterate and its limit some are undecided after R steps, which is rarer
    # than one in 400.
    assert abs(np.mean([record["starts_lost"] for record in records]) - lost) < 4 * np.sqrt(
        lost * (1 - lost) / 400
    )


def test_the_predicted_error_of_a_stream_is_that_of_the_core_method():
    # To first order. At d = 20 the error has 57 degrees of freedom, so its spread is 1/√(2 · 57) =
    # 9 %.
    stream = SkewedStream(20, 3, 1.0, 5)
    error = float(np.sqrt(np.mean(core(stream, 64_000) ** 2)))
    assert error == pytest.approx(stream.predicted_error(64_000), rel=0.4)


@pytest.mark.parametrize("dimension", [20, 80])
def test_far_from_a_component_the_noise_along_it_is_the_same_at_every_dimension(dimension):
    """So the rows that a start needs grow like d², which Theorem 3.1 with its minimum does not say.

    A random start has an overlap of order 1/√d with the component v, so its image has a signal of
    order λ/d along v. The noise along v is the mean of (xᵀu)² xᵀv over the rows. For u across v the
    two factors are independent: σ²g² and s + σg', with the variance 3σ⁴(1 + σ²) of their product
    whatever d is. It falls to (λ/d)² at a number of rows that is proportional to d².
    """
    sigma = 1.5
    stream = SkewedStream(dimension, 1, sigma, seed=3)
    v = stream.truth.vectors[:, 0]
    u = np.linalg.qr(np.column_stack([v, np.ones(dimension)]))[0][:, 1]
    squares = np.concatenate(
        [((rows @ u) ** 2 * (rows @ v)) ** 2 for rows in stream.blocks(200_000)]
    )
    standard_error = squares.std() / math.sqrt(squares.size)
    assert abs(squares.mean() - 3 * sigma**4 * (1 + sigma**2)) < 4 * standard_error


def test_the_rows_needed_are_those_at_which_the_error_falls_to_the_aim():
    # The error 3/√n is 1/10 at n = 900; a power is interpolated exactly.
    assert streaming._rows_needed(lambda n: 3 / math.sqrt(n), 0.1, start=20) == pytest.approx(900)
    # An error that is small enough at the start is not searched below it.
    assert streaming._rows_needed(lambda n: 0.0, 0.1, start=20) == 20
