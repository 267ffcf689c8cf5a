"""The noise has the law it claims, nobody can repeat it, and its low bits say nothing about the
value.
"""

import copy
import math
import os
import pickle
import warnings

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtri

from odeco.privacy import Ledger
from odeco.privacy import noise as _noise
from odeco.privacy.noise import (
    GRID_BITS,
    SecureNoise,
    SeededNoiseForTests,
    grid_of,
    noise_scale,
    noisy,
    rounding_slack,
)
from odeco.privacy.release import Releaser

SCALES = st.floats(2.0**-200, 2.0**200)


@given(SCALES)
def test_the_grid_is_a_power_of_two_that_depends_on_the_scale_alone(scale):
    grid = grid_of(scale)
    assert math.frexp(grid)[0] == 0.5
    assert grid * 2**GRID_BITS <= scale < grid * 2 ** (GRID_BITS + 1)


@pytest.mark.parametrize("scale", [0, -1.0, math.nan, math.inf, 1e-300, None])
def test_a_scale_without_a_grid_is_refused(scale):
    with pytest.raises(
        ValueError, match=r"^`scale` must be a number in \[2\^-900, 2\^900\]\. Got "
    ):
        noisy(np.zeros(3), scale, SecureNoise())


# ---- the law of the noise ------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 3.7, 1e-9])
@pytest.mark.parametrize(
    "source", [SecureNoise(), SeededNoiseForTests(0)], ids=["secure", "seeded"]
)
def test_noise_is_gaussian_on_its_grid(source, scale):
    noise = source.gaussian((200, 500), scale)
    assert noise.shape == (200, 500)
    np.testing.assert_array_equal(noise % grid_of(scale), 0)
    # False alarms: one run in a million for each.
    assert stats.kstest(noise.ravel() / scale, "norm").pvalue > 1e-6
    assert abs(noise.std() / scale - 1) < 5 / math.sqrt(2 * noise.size)
    halves = noise.ravel() / grid_of(scale) % 2
    assert abs(halves.mean() - 0.5) < 5 * 0.5 / math.sqrt(noise.size)
    assert abs(np.corrcoef(noise[:100].ravel(), noise[100:].ravel())[0, 1]) < 5 / math.sqrt(
        noise.size / 2
    )


def test_the_inverse_of_the_normal_distribution_is_as_accurate_as_the_rounding_assumes():
    exactly = mpmath.MPContext()
    exactly.prec = 300
    rng = np.random.default_rng(0)
    tails = np.concatenate(
        [
            rng.random(1000) / 2,
            2.0 ** -rng.uniform(1, 65, 1500),
            0.5 - 2.0 ** -rng.uniform(2, 54, 500),
        ]
    )
    for tail, distance in zip(tails, -ndtri(tails), strict=True):
        reached = exactly.erfc(exactly.mpf(distance) / exactly.sqrt(2)) / 2
        density = exactly.exp(-(exactly.mpf(distance) ** 2) / 2) / exactly.sqrt(2 * exactly.pi)
        assert abs((reached - exactly.mpf(tail)) / density) < 2.0**-49 * max(1.0, distance)


@pytest.mark.parametrize("scale", [1.0, 1.999])
def test_draws_that_were_settled_in_double_precision_were_settled_rightly(scale):
    # Every word is looked at with 320 bits; whatever the further bits are, the answer must be that
    # of the fast way.
    rng = np.random.default_rng(1)
    words = np.concatenate(
        [
            rng.integers(0, 2**64, 400, dtype=np.uint64),
            np.uint64(1) << np.arange(20, 64, dtype=np.uint64),
        ]
    )
    asked = []

    def bits(size):
        asked.append(size)
        return words if len(asked) == 1 else np.zeros(size, dtype=np.uint64)

    noise = _noise._rounded_gaussian(bits, words.shape, scale) / grid_of(scale)
    checked = 0
    for word, steps in zip(words, noise, strict=True):
        head = int(word) >> 1
        ends = [
            _noise._settled((head << 192) + rest, scale / grid_of(scale), int(abs(steps)))
            for rest in (0, 2**192 - 1)
        ]
        if ends[0] == ends[1]:
            checked += 1
            assert abs(steps) == ends[0]
            assert steps == 0 or (steps < 0) == bool(int(word) & 1)
    assert checked > 420


def test_what_double_precision_cannot_settle_is_settled_by_further_bits():
    # The smallest head: U is somewhere below 2⁻⁶⁴, and only the further bits say where.
    exactly = mpmath.MPContext()
    exactly.prec = 300
    for further, probability in ((0, 2.0**-257), (2**64 - 1, 2.0**-64)):
        words = iter([np.array([1], dtype=np.uint64), np.full(3, further, dtype=np.uint64)])
        noise = _noise._rounded_gaussian(lambda size, words=words: next(words), (1,), 1.0)
        tail = exactly.erfc(-exactly.mpf(noise[0]) / exactly.sqrt(2)) / 2
        assert float(tail) == pytest.approx(probability, rel=1e-6)


def test_every_boundary_between_two_grid_points_is_in_its_right_place():
    exactly = mpmath.MPContext()
    exactly.prec = 400
    ratio = 2.0**GRID_BITS
    for steps in (0, 1, 12345, 2**30, 2**32 + 7, 2**33):
        boundary = exactly.erfc((steps + exactly.mpf(1) / 2) / ratio / exactly.sqrt(2)) / 2 * 2**256
        below, above = (
            int(boundary) - 2**40,
            int(boundary) + 2**40,
        )  # smaller probability: further out
        for guess in (max(steps - 5, 0), steps, steps + 1, 2 * steps + 3):
            assert _noise._settled(above, ratio, guess) == steps
            assert _noise._settled(below, ratio, guess) == steps + 1


@pytest.mark.parametrize("steps", [0, 3, 2**29, 2**30 + 1, 3 * 2**30, 6 * 2**30])
def test_a_draw_too_near_a_boundary_for_double_precision_is_decided_by_its_further_bits(steps):
    exactly = mpmath.MPContext()
    exactly.prec = 400
    boundary = (
        exactly.erfc((steps + exactly.mpf(1) / 2) / 2**GRID_BITS / exactly.sqrt(2)) / 2 * 2**64
    )
    for further, expected in ((0, steps + 1), (2**64 - 1, steps)):  # less probability: further out
        words = iter(
            [np.array([2 * int(boundary)], dtype=np.uint64), np.full(3, further, dtype=np.uint64)]
        )
        noise = _noise._rounded_gaussian(lambda size, words=words: next(words), (1,), 1.0)
        assert noise[0] / grid_of(1.0) == expected


# ---- nobody can repeat it ------------------------------------------------------------------------


def test_secure_noise_takes_no_seed_is_private_and_never_repeats():
    with pytest.raises(TypeError):
        SecureNoise(0)
    assert Releaser(Ledger(1.0), SecureNoise()).is_private
    draws = [SecureNoise().gaussian((4,), 1.0) for _ in range(50)]
    assert len({draw.tobytes() for draw in draws}) == 50


def test_seeded_noise_repeats_and_says_that_it_is_not_private():
    first, second = (SeededNoiseForTests(3).gaussian((5, 2), 2.0) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not Releaser(Ledger(1.0), SeededNoiseForTests(3)).is_private


def test_secure_noise_ignores_numpy_s_global_seed():
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002 - what a user may do
        draws.append(SecureNoise().gaussian((4,), 1.0))
    assert not np.array_equal(*draws)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_secure_noise_cannot_be_stored(duplicate):
    with pytest.raises(TypeError, match=r"^Noise must be drawn where it is used"):
        duplicate(SecureNoise())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_children_draw_other_noise_than_their_parent_and_each_other():
    source = SecureNoise()
    source.gaussian((3,), 1.0)  # used before the fork, as a pool's parent may have done
    draws = []
    for _ in range(2):
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # newer Pythons warn of threads; the child starts none
            child = os.fork()
        if child == 0:
            os.write(writer, source.gaussian((8,), 1.0).tobytes())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            draws.append(pipe.read())
        os.waitpid(child, 0)
    draws.append(source.gaussian((8,), 1.0).tobytes())
    assert all(len(draw) == 64 for draw in draws)
    assert len(set(draws)) == 3


# ---- value and noise on one grid -----------------------------------------------------------------


def test_plain_floating_point_noise_leaks_through_its_low_bits_and_ours_does_not():
    rng = np.random.default_rng(2)
    size, scale = 200_000, 4.0

    def fine(
        released,
    ):  # numbers below 1 that are no multiple of 2⁻⁵³: a sum with 1 cannot reach them
        return np.mean((np.abs(released) < 1) & (released * 2.0**53 % 1 != 0))

    naive = [value + scale * rng.standard_normal(size) for value in (0.0, 1.0)]
    assert fine(naive[0]) > 0.05
    assert fine(naive[1]) == 0

    source = SecureNoise()
    for value in (0.0, 1.0, 1 / 3, math.pi, 2.0**-60):
        released = noisy(np.full(size, value), scale, source)
        assert fine(released) == 0
        np.testing.assert_array_equal(released % grid_of(scale), 0)
        # All of the last six bits are as likely as one another (false alarm: one in a million).
        counts = np.bincount((released / grid_of(scale) % 64).astype(int), minlength=64)
        assert stats.chisquare(counts).pvalue > 1e-6


@given(st.integers(-(2**50), 2**50), st.integers(0, 2**32))
def test_a_value_on_the_grid_shifts_the_outcome_by_exactly_itself(steps, seed):
    scale = 3.0
    shift = steps * grid_of(scale)
    zero = noisy(np.zeros(4), scale, SeededNoiseForTests(seed))
    assert np.array_equal(noisy(np.full(4, shift), scale, SeededNoiseForTests(seed)), zero + shift)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.data(), st.floats(1e-3, 1e3))
def test_rounding_moves_two_values_apart_by_at_most_the_slack(first, data, scale):
    near = st.floats(-1e-8, 1e-8)
    second = [x + data.draw(near) for x in first]

    class NoNoise:
        def gaussian(self, shape, scale):
            return np.zeros(shape)

    rounded = [noisy(np.array(x), scale, NoNoise()) for x in (first, second)]
    slack = rounding_slack(len(first), grid_of(scale))
    before = np.linalg.norm(np.array(first) - np.array(second))
    assert np.linalg.norm(rounded[0] - rounded[1]) <= (before + slack) * (1 + 1e-9)


def test_the_slack_is_attained_in_the_limit():
    grid = grid_of(1.0)
    first, second = np.full(100, 0.4999 * grid), np.full(100, 0.5001 * grid)
    moved = np.linalg.norm(
        np.rint(second / grid) * grid - np.rint(first / grid) * grid
    ) - np.linalg.norm(first - second)
    assert moved == pytest.approx(rounding_slack(100, grid), rel=1e-3)


@given(st.floats(1e-6, 1e6), st.floats(0.01, 1000), st.integers(1, 10**8))
def test_noise_scale_hides_the_sensitivity_with_its_slack(sensitivity, multiplier, size):
    scale = noise_scale(sensitivity, multiplier, size)
    charged = sensitivity + rounding_slack(size, grid_of(scale))
    assert scale >= multiplier * charged * (1 - 1e-15)
    assert scale <= multiplier * sensitivity * (
        1 + 2.1 * multiplier * math.sqrt(size) / 2**GRID_BITS + 1e-12
    )


def test_noise_scale_refuses_more_coordinates_than_the_grid_can_hide():
    with pytest.raises(
        ValueError,
        match=r"^The noise must hide 1000000000000 coordinates at once with a grid of 2\^-30",
    ):
        noise_scale(1.0, 1e4, 10**12)


def test_values_beyond_the_clamp_are_cut_and_what_is_not_a_number_becomes_zero_without_a_word():
    scale, limit = 1.5, 2.0**40
    value = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, limit, 5.0])
    released = noisy(value, scale, SeededNoiseForTests(4))
    noise = SeededNoiseForTests(4).gaussian(value.shape, scale)
    np.testing.assert_array_equal(
        released, np.array([0, limit, -limit, limit, -limit, limit, 5.0]) + noise
    )


def test_zero_has_no_sign():
    class NoNoise:
        def gaussian(self, shape, scale):
            return -np.zeros(shape)

    assert not np.signbit(noisy(np.array([-1e-20, -0.0]), 1.0, NoNoise())).any()


def test_shapes_are_kept_and_a_scalar_is_a_value_too():
    for shape in ((), (3,), (0, 4), (2, 3, 4)):
        assert noisy(np.zeros(shape), 1.0, SecureNoise()).shape == shape
