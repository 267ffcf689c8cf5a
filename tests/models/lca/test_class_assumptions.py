"""What speaks against latent classes: a trait in which respondents differ by degrees."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from odeco.models import LatentClasses
from odeco.models.lca.assumptions import trait_log_likelihood
from odeco.privacy.holders.tables import Levels


def drawn(probabilities, rng):
    """Return one answer for each respondent and question, by their probabilities."""
    return np.sum(
        rng.random((*probabilities.shape[:2], 1)) > np.cumsum(probabilities, axis=2)[:, :, :-1],
        axis=2,
    )


def answers_of_a_trait(n, n_questions, n_answers, seed):
    rng = np.random.default_rng(seed)
    odds = np.exp(
        rng.standard_normal((n_questions, n_answers)) * rng.standard_normal((n, 1, 1))
        + rng.standard_normal((n_questions, n_answers))
    )
    return drawn(odds / odds.sum(axis=2, keepdims=True), rng)


def answers_of_classes(n, n_questions, n_answers, k, seed):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(n_answers, 0.4), size=(k, n_questions))
    return drawn(probabilities[rng.integers(k, size=n)], rng)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_answers", [2, 4])
def test_classes_of_a_trait_are_called_steps_of_a_scale(n_answers, seed):
    answers = answers_of_a_trait(800, 10, n_answers, seed)
    model = LatentClasses("auto", random_state=0).fit(answers)
    if model.n_components_ == 1:
        pytest.skip("this trait hardly shows in the answers")
    assert "Classes may be steps of a scale" in model.summary()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_answers", [2, 4])
def test_classes_that_answer_differently_are_no_scale(n_answers, seed):
    answers = answers_of_classes(800, 10, n_answers, 3, 100 + seed)
    assert "scale" not in LatentClasses(3, random_state=0).fit(answers).summary()


def test_the_likelihood_of_a_trait_is_the_integral_over_it_and_a_maximum():
    answers = answers_of_a_trait(400, 5, 2, 3)
    questions = Levels(np.full(5, 2))
    found = trait_log_likelihood(questions.indicators(answers).astype(float), questions)
    rng = np.random.default_rng(3)  # the log-odds that were planted
    slopes = rng.standard_normal((5, 2))
    rng.standard_normal((400, 1, 1))
    offsets = rng.standard_normal((5, 2))
    patterns, counts = np.unique(answers, axis=0, return_counts=True)

    def density(t, pattern):
        odds = slopes * t + offsets
        chosen = odds[np.arange(5), pattern] - np.logaddexp.reduce(odds, axis=1)
        return np.exp(chosen.sum()) * norm.pdf(t)

    planted = sum(
        count * np.log(quad(density, -8, 8, args=(pattern,))[0])
        for pattern, count in zip(patterns, counts, strict=True)
    )
    # Ten parameters are fitted: twice the gain over the truth is chi-squared with as many degrees
    # of freedom.
    assert 0 < 2 * (found - planted) < 30


def test_weighted_and_private_classes_are_not_compared():
    answers = answers_of_a_trait(600, 8, 2, 1)
    weighted = LatentClasses(3, random_state=0).fit(answers, sample_weight=np.ones(600) * 2)
    assert "scale" not in weighted.summary()
