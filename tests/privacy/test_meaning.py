"""What a guarantee means in numbers: how often an adversary who knows all but one record guesses
right.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

import odeco
from odeco.errors import NotPrivateWarning
from odeco.models import choose_vocabulary_privately, plan_topics
from odeco.models.gmm.private import plan_mixture
from odeco.models.ica.private import plan_sources
from odeco.models.lca.private import plan_classes
from odeco.privacy import PrivacyReport, RecordLevel, adversary_accuracy, delta_of, gdp_mu
from odeco.privacy.calibration import noise_multiplier
from odeco.privacy.ledger import Ledger
from odeco.privacy.noise import SecureNoise, SeededNoiseForTests
from odeco.privacy.release import Releaser
from odeco.privacy.report import HARDLY_ANY, WEAK, level_of
from odeco.private import decompose_privately

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.mark.parametrize("mu", [0.0, 1e-6, 0.2367, 1.0, 3.0, 12.0])
def test_the_accuracy_is_that_of_the_total_variation_distance(mu):
    # δ(0) of the curve is the total variation distance TV of the worst neighbours, and the best
    # guess is right with probability (1 + TV)/2.
    assert adversary_accuracy(mu) == pytest.approx((1 + delta_of(0.0, mu)) / 2, abs=1e-12)
    assert adversary_accuracy(mu, 0.02) == pytest.approx(
        min(1, (1 + delta_of(0.0, mu) + 0.02) / 2), abs=1e-12
    )
    assert adversary_accuracy(math.inf) == 1.0


def test_no_threshold_on_the_release_guesses_better():
    mu = gdp_mu(1.0, 1e-6)
    thresholds = np.linspace(-6, 6, 200_001)
    right = (ndtr(thresholds) + 1 - ndtr(thresholds - mu)) / 2
    assert right.max() == pytest.approx(adversary_accuracy(mu), abs=1e-9)
    assert adversary_accuracy(mu) == pytest.approx(
        0.547, abs=5e-4
    )  # what the documentation says of ε = 1


@pytest.mark.slow
def test_the_best_attack_on_a_real_release_is_right_as_often_as_stated():
    """The worst neighbours: a record of full norm, and its opposite, asked along its direction."""
    epsilon, n_runs = 8.0, 20_000
    rows = np.zeros((5, 3))
    rows[0, 0] = 1.0
    pair = [RecordLevel(sign * rows, norm_bound=1.0) for sign in (1, -1)]
    question = np.eye(3)[:, :1]
    sensitivity = pair[0].sensitivity(question)
    right = 0
    for truth, holder in enumerate(pair):
        exact = holder.image(question).ravel()
        releaser = Releaser(Ledger(gdp_mu(epsilon, 1e-6) * math.sqrt(n_runs)), SecureNoise())
        z = noise_multiplier(epsilon, 1e-6)
        released, _ = releaser.release_columns(
            "image",
            lambda exact=exact: np.tile(exact[:, None], n_runs),
            shape=(3, n_runs),
            sensitivities=np.full(n_runs, sensitivity),
            noise_multiplier=z,
        )
        right += int(np.sum((released[0] < 0) == bool(truth)))
    stated = adversary_accuracy(gdp_mu(epsilon, 1e-6))
    # 40,000 guesses: a standard error of 0.0021. The attack is the best one, so that it reaches
    # what is stated.
    assert abs(right / (2 * n_runs) - stated) < 5 * 0.0021


def test_levels_begin_above_75_and_95_percent():
    assert (WEAK, HARDLY_ANY) == (0.75, 0.95)
    levels = [level_of(each) for each in (0.5, 0.75, 0.7501, 0.95, 0.9501, 1.0)]
    assert levels == ["good", "good", "warning", "warning", "bad", "bad"]


@pytest.mark.parametrize(
    ("epsilon", "level", "words"), [(1, "good", "54.7 %"), (10, "warning", "weak protection")]
)
def test_a_report_says_what_it_means(epsilon, level, words):
    rows = np.repeat(np.eye(4)[:2], 100, axis=0)
    budget = {
        "epsilon": float(epsilon),
        "delta": 1e-6,
        "unit": "record",
        "norm_bound": 1.0,
        "rng": 0,
    }
    report = decompose_privately(rows, 2, **budget).privacy
    assert report.adversary_accuracy == pytest.approx(
        adversary_accuracy(gdp_mu(epsilon, 1e-6)), abs=1e-6
    )
    assert report.level == level
    assert words in report.statement == str(report)
    assert f"adversary_accuracy={report.adversary_accuracy:.4f}" in repr(report)
    again = PrivacyReport.from_json(report.to_json())
    assert again == report
    assert f'"adversary_accuracy": {report.adversary_accuracy!r}' in report.to_json()


def test_a_large_epsilon_is_hardly_any_protection():
    plan = odeco.plan_privacy(dimension=10, n_components=2, epsilon=1000.0, delta=1e-6)
    assert "at most 100.0 % accuracy" in str(plan)
    assert "hardly any protection" in str(plan)


def test_what_slips_past_a_threshold_counts_half():
    texts = ["red apple", "green apple"] * 1000
    report = choose_vocabulary_privately(texts, epsilon=4.0, delta=1e-4).privacy
    (charge,) = report.charges
    assert charge.delta > 0
    assert report.adversary_accuracy == float(ndtr(report.mu / 2)) + charge.delta / 2


def test_a_seeded_source_of_noise_warns_and_its_result_is_not_private():
    with pytest.warns(NotPrivateWarning, match="must come from the operating system"):
        noise = SeededNoiseForTests(0)
    rows = np.repeat(np.eye(4)[:2], 100, axis=0)
    budget = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "norm_bound": 1.0, "rng": 0}
    report = decompose_privately(rows, 2, **budget, noise=noise).privacy
    assert (report.adversary_accuracy, report.level) == (1.0, "bad")
    assert report.statement.startswith("This result is NOT private")


@pytest.mark.parametrize(
    "plan",
    [
        lambda: plan_mixture(2, n_rows=1000, n_features=3, epsilon=1.0, delta=1e-6),
        lambda: plan_sources(2, n_rows=1000, n_features=3, epsilon=1.0, delta=1e-6),
        lambda: plan_classes(
            2, n_respondents=1000, categories=3, n_questions=5, epsilon=1.0, delta=1e-6
        ),
        lambda: plan_topics(2, n_units=1000, n_words=20, epsilon=1.0, delta=1e-6),
    ],
)
def test_the_plans_of_models_say_it_too(plan):
    assert "at most 54.7 % accuracy (a coin toss: 50 %)." in str(plan())


@pytest.mark.skipif(not DOCS.is_dir(), reason="the documentation is not here")
def test_the_table_of_the_documentation_is_computed():
    text = (DOCS / "privacy-meaning.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ε = ")]
    assert len(rows) >= 5
    for _, epsilon, accuracy, *_ in rows:
        mu = gdp_mu(float(epsilon.split("=")[1]), 1e-6)
        assert accuracy.strip() == f"{adversary_accuracy(mu):.1%}".replace("%", " %")
