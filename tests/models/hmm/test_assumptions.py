"""What speaks against the states of a hidden Markov model: drifts, and rows in any order."""

import numpy as np
import pytest

from odeco.models import TensorHMM
from odeco.models.hmm.assumptions import caution_of
from odeco.models.hmm.baum_welch import HMM
from odeco.models.hmm.emissions import Categorical
from odeco.models.hmm.sequences import Sequences


def autoregression(slope, noise):
    rows = np.zeros(len(noise))
    for t in range(1, len(rows)):
        rows[t] = slope * rows[t - 1] + noise[t]
    return rows


def one_sequence(n):
    return np.arange(n) == 0


DRIFTS = {
    "random walk": lambda rng, n: autoregression(1.0, rng.standard_normal(n)),
    "autoregression": lambda rng, n: autoregression(0.9, rng.standard_normal(n)),
    "heavy tails": lambda rng, n: autoregression(1.0, rng.standard_t(3, n)),
}


@pytest.mark.parametrize("name", DRIFTS)
@pytest.mark.parametrize("kind", ["diag", "full"])
def test_states_of_a_drift_are_called_its_steps(name, kind):
    rows = DRIFTS[name](np.random.default_rng(0), 800)[:, None]
    model = TensorHMM(3, covariance_type=kind, random_state=0).fit(rows)
    assert "States may be steps of a drift" in model.summary()


@pytest.mark.parametrize("draw", ["standard_t", "exponential", "random"])
def test_states_of_independent_rows_are_called_parts_of_one_distribution(draw):
    rng = np.random.default_rng(1)
    rows = (
        rng.standard_t(3, (800, 1)) if draw == "standard_t" else getattr(rng, draw)(size=(800, 1))
    )
    model = TensorHMM(3, random_state=0).fit(rows)
    assert (
        "States may be parts of one distribution" in model.summary()
        or "One state explains" in model.summary()
    )


def test_counts_that_follow_the_count_before_are_a_drift():
    rng, rows = np.random.default_rng(2), np.zeros(1500)
    for t in range(1, 1500):
        rows[t] = rng.poisson(1 + 0.9 * rows[t - 1])
    model = TensorHMM(3, emissions="poisson", random_state=0).fit(rows[:, None])
    assert "steps of a drift" in model.summary()


def test_a_chain_of_symbols_that_two_states_do_not_describe_is_no_model_with_two_states():
    # Each of six symbols is mostly followed by the next: two states cannot tell which it is.
    rng, rows = np.random.default_rng(3), np.zeros(2000, int)
    for t in range(1, 2000):
        rows[t] = (rows[t - 1] + 1) % 6 if rng.random() < 0.9 else rng.integers(6)
    model = TensorHMM(2, emissions="categorical", random_state=0).fit(rows)
    assert "steps of a drift" in model.summary()


def planted(k, seed):
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.ones(6), k)
    return HMM(np.full(k, 1 / k), 0.9 * np.eye(k) + 0.1 / k, Categorical(table)), rng


def test_dependence_is_found_by_chance_in_one_of_a_thousand_cases():
    # 600 sequences of planted models: more than four findings have a probability of 0.0004 at a
    # level of 1 in 1,000.
    found = []
    for seed in range(600):
        hmm, rng = planted(3, seed)
        rows, _ = hmm.sample(300, rng)
        found.append(caution_of(hmm, Sequences(rows, one_sequence(300))))
    assert sum("correlated" in each for each in found) <= 4
    assert found.count("") > 300  # most are tested, and not only found to be too few rows


def test_dependence_within_states_that_are_there_is_found():
    # Two states 20 apart, and an autoregression within each: no single one is as likely as both
    # states.
    rng = np.random.default_rng(5)
    path = np.cumsum(rng.random(1500) < 0.02) % 2
    rows = 20.0 * path[:, None] + autoregression(0.5, rng.standard_normal(1500))[:, None]
    model = TensorHMM(2, random_state=0).fit(rows)
    assert "Consecutive rows are correlated within states" in model.summary()


@pytest.mark.parametrize("seed", range(5))
def test_states_that_are_there_are_not_doubted(seed):
    rng = np.random.default_rng(seed)
    path = np.cumsum(rng.random(1000) < 0.1) % 3
    rows = (4.0 * path + rng.standard_normal(1000))[:, None]
    model = TensorHMM(3, random_state=0).fit(rows)
    assert model._learnt.fit.info.cautions.size == 0
    model.split_half(rows)
    assert model.summary().startswith("3 states, each found again in every half-sample.")


def test_the_doubt_is_part_of_a_file(tmp_path):
    rows = DRIFTS["random walk"](np.random.default_rng(0), 500)[:, None]
    model = TensorHMM(3, random_state=0).fit(rows)
    model.save(tmp_path / "model.npz")
    assert TensorHMM.load(tmp_path / "model.npz").summary() == model.summary()
    assert "drift" in model.summary()


def test_weights_and_missing_values_leave_the_question_open():
    rows = DRIFTS["random walk"](np.random.default_rng(0), 300)[:, None]
    weighted = TensorHMM(2, random_state=0).fit(rows, sample_weight=np.full(300, 2.0))
    rows[10] = np.nan
    for model in (weighted, TensorHMM(2, random_state=0).fit(rows)):
        assert model._learnt.fit.info.cautions.size == 0
