"""What a private model of latent classes can be expected to find, said before any respondent is touched."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

from odeco._arguments import check_choice, check_count
from odeco._types import FloatArray
from odeco.answers.draw import draw_codes
from odeco.answers.learn_privately import SharePlan, find_private_classes, plan_shares
from odeco.answers.private_holder import HeldAnswers, bound_of_pairs, bound_of_step
from odeco.answers.steps import Classes
from odeco.answers.table import Questions
from odeco.privacy import gdp_mu

#: At most so many respondents are simulated; with fewer than there are, the noise is less in the same measure.
_MOST_SIMULATED = 20_000
#: The model is learnt so often, of other simulated respondents each time.
_N_AGAIN = 3
#: A class is clear if what is found resembles it by this cosine, without the frequencies of all answers.
_CLEAR = 0.8


@dataclass(frozen=True)
class ClassesPlan:
    """What a private `LatentClasses` would release, and how many classes can be expected; ``str`` gives a table.

    Attributes
    ----------
    epsilon, delta, mu : float
        The budget.
    n_respondents, n_questions, n_components : int
        What it was made for.
    shares : SharePlan
        The share of μ² of each release.
    noise_of_pairs, noise_of_steps : float or tuple of float
        Standard deviation of the noise in a count of a pair of answers, and in each step in a count of an answer.
    likeness : tuple of float
        For each class of simulated respondents, the cosine of what would be found with the truth, largest first,
        without the frequencies of all answers; the mean over several simulations.
    """

    unit: ClassVar[str] = "respondent"

    epsilon: float
    delta: float
    mu: float
    n_respondents: int
    n_questions: int
    n_components: int
    shares: SharePlan
    noise_of_pairs: float
    noise_of_steps: tuple[float, ...]
    likeness: tuple[float, ...]

    @property
    def n_expected(self) -> int:
        """How many classes can be expected to be clear."""
        return sum(each >= _CLEAR for each in self.likeness)

    def __str__(self) -> str:
        lines = [
            f"epsilon {self.epsilon:g}, delta {self.delta:g} (mu {self.mu:.4g}); {self.n_respondents:,} respondents to "
            f"{self.n_questions} questions",
            f"{'release':<44}{'share':>7}{'noise of a count':>18}",
            f"{'pairs of answers to two questions':<44}{self.shares.pairs:>7.0%}{self.noise_of_pairs:>18.4g}",
        ]
        if self.shares.core:
            lines.append(f"{'third moment of three views':<44}{self.shares.core:>7.0%}{'':>18}")
        for number, (share, noise) in enumerate(zip(self.shares.steps, self.noise_of_steps, strict=True), 1):
            lines.append(f"{f'answers by class, step {number}':<44}{share:>7.0%}{noise:>18.4g}")
        lines.append(
            f"of {self.n_components} classes of simulated respondents {self.n_expected} would be clear "
            f"(mean cosine {np.mean(self.likeness):.2f})"
        )
        return "\n".join(lines)


def plan_classes(
    n_components: int,
    *,
    n_respondents: int,
    categories: int | Sequence[int],
    epsilon: float,
    delta: float,
    n_questions: int | None = None,
    neighbour_relation: Literal["replace", "add or remove"] = "replace",
    seed: int = 0,
) -> ClassesPlan:
    """Say what a private model would release, and simulate how many classes it would find; no respondent is needed.

    Parameters
    ----------
    n_components : int
        Number of classes.
    n_respondents : int
        Number of respondents.
    categories : int or list of int
        How many answers each question has; one number for all, with `n_questions`.
    epsilon, delta : float
        The guarantee.
    n_questions : int, optional
        How many questions there are, if `categories` is one number.
    neighbour_relation : {"replace", "add or remove"}
        As for `LatentClasses`.
    seed : int
        Of the simulation.

    Notes
    -----
    The respondents are simulated: classes of equal size whose probabilities are drawn uniformly, and no answer missing.
    Real classes may be harder to tell apart, or easier.

    Examples
    --------
    >>> from odeco.models import plan_classes
    >>> plan = plan_classes(3, n_respondents=50_000, categories=3, n_questions=12, epsilon=1.0, delta=1e-6)
    >>> plan.n_expected
    3
    """
    k, n_rows = check_count("n_components", n_components), check_count("n_respondents", n_respondents)
    check_choice("neighbour_relation", neighbour_relation, ("replace", "add or remove"))
    if isinstance(categories, int):
        listed = [categories] * check_count("n_questions", n_questions, 2)
    else:
        listed = list(categories)
    sizes = np.array([check_count("categories", each) for each in listed])
    if sizes.size < 2:
        raise ValueError("A private model needs at least 2 questions: pairs are released. Got 1.")
    questions, mu = Questions(sizes), gdp_mu(epsilon, delta)
    replaced = neighbour_relation == "replace"
    shares = plan_shares(questions, k, n_rows=n_rows, mu=mu)
    rng = np.random.default_rng(seed)
    answers = np.concatenate([rng.dirichlet(np.ones(size), k).T for size in sizes])
    truth = Classes(np.full(k, 1 / k), answers)
    n_drawn = min(n_rows, _MOST_SIMULATED)
    again = []
    for _ in range(_N_AGAIN):
        held = HeldAnswers(questions.indicators(draw_codes(truth, questions, n_drawn, rng)[0]), questions)
        sums = _SimulatedSums(n_drawn / n_rows / mu, replaced, rng)
        found = find_private_classes(held, sums, k, shares, seed=int(rng.integers(2**31)))
        again.append(likeness(truth, found.classes))
    one = (math.sqrt(2) if replaced else 1.0) / mu
    return ClassesPlan(
        epsilon,
        delta,
        mu,
        n_rows,
        sizes.size,
        k,
        shares,
        one * bound_of_pairs(questions) / math.sqrt(shares.pairs),
        tuple(one * bound_of_step(questions) / math.sqrt(share) for share in shares.steps),
        tuple(float(each) for each in np.sort(np.mean(again, axis=0))[::-1]),
    )


def likeness(truth: Classes, found: Classes) -> FloatArray:
    """Return for each true class its cosine with the class that is matched to it, without what all classes share."""
    overall = (truth.answers @ truth.weights)[:, None]
    one, other = truth.answers - overall, found.answers - overall
    norms = np.outer(np.linalg.norm(one, axis=0), np.linalg.norm(other, axis=0))
    cosines = np.where(norms > 0, one.T @ other / np.where(norms > 0, norms, 1.0), 1.0)
    rows, columns = linear_sum_assignment(-cosines)
    matched: FloatArray = cosines[rows, columns]
    return matched


class _SimulatedSums:
    """Sums of simulated respondents, with noise of the same size beside them: nobody real is asked."""

    def __init__(self, unit_noise: float, replaced: bool, rng: np.random.Generator) -> None:
        self._unit_noise, self._replaced, self._rng = unit_noise, replaced, rng

    def release(
        self,
        what: str,  # noqa: ARG002 - nobody reads it
        answer: Callable[[], FloatArray],
        *,
        size: int,  # noqa: ARG002 - nothing is rounded
        bound: float,
        share: float,
        signed: bool = True,
    ) -> tuple[FloatArray, float]:
        factor = (2.0 if signed else math.sqrt(2)) if self._replaced else 1.0
        deviation = factor * bound * self._unit_noise / math.sqrt(share)
        exact = answer()
        return exact + deviation * self._rng.standard_normal(exact.shape), deviation
