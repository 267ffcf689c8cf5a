"""What a private topic model can be expected to find, said before any document is touched."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from odeco._util.arguments import check_count
from odeco.models.lda.pairs import TopicLaw
from odeco.models.lda.private_releases import ReleasePlan, plan_releases
from odeco.models.lda.trust import CLEAR, expected_likeness
from odeco.privacy.calibration import gdp_mu
from odeco.privacy.holders.documents import NeighbourRelation

#: Words of usual text: the w-th most frequent has a frequency of about 1/(w + 2.7) (Zipf and Mandelbrot).
_OFFSET = 2.7

#: In a topic a word is this many times as frequent as elsewhere or as rare, in the middle: e to a normal variable.
_CONTRAST = 1.5


@dataclass(frozen=True)
class TopicsPlan:
    """What a private `TensorLDA` would release, and how many topics can be expected; ``str`` gives a table.

    Attributes
    ----------
    epsilon, delta, mu : float
        The budget.
    n_units, n_words, n_components, document_length : int
        What it was made for.
    noise : float
        Standard deviation of the noise of a release that has the whole budget; a document adds an array of norm 1.
    releases : ReleasePlan
        What is released, with which share of μ².
    likeness : tuple of float
        For each topic of simulated text, the cosine of what would be found with the truth, largest first, without the
        frequencies of all words: the lowest of four runs, as in `TopicTrust`.
    """

    epsilon: float
    delta: float
    mu: float
    n_units: int
    n_words: int
    n_components: int
    document_length: int
    noise: float
    releases: ReleasePlan
    likeness: tuple[float, ...]

    @property
    def n_expected(self) -> int:
        """How many topics can be expected to be clear."""
        return sum(each >= CLEAR for each in self.likeness)

    def __str__(self) -> str:
        plan = self.releases
        rows = [
            ("lengths of documents", plan.lengths),
            (f"frequencies of {self.n_words:,} words", plan.words),
            (f"pairs of the {plan.n_pair_words:,} most frequent words", plan.pairs),
            *((f"words dealt to {self.n_components} topics, step {i}", share) for i, share in enumerate(plan.steps, 1)),
        ]
        lines = [
            f"epsilon {self.epsilon:g}, delta {self.delta:g} (mu {self.mu:.4g}); {self.n_units:,} units of "
            f"{self.document_length:,} words, each adds an array of norm 1 to every release",
            f"{'release':<44}{'share':>7}{'noise':>9}",
        ]
        lines += [f"{what:<44}{share:>7.0%}{self.noise / math.sqrt(share):>9.4g}" for what, share in rows if share > 0]
        lines.append(
            f"of {self.n_components} topics in simulated text of this kind {self.n_expected} would be clear "
            f"(mean cosine {np.mean(self.likeness):.2f})"
        )
        return "\n".join(lines)


def plan_topics(
    n_components: int,
    *,
    n_units: int,
    n_words: int,
    epsilon: float,
    delta: float,
    document_length: int = 50,
    neighbour_relation: NeighbourRelation = "replace",
    seed: int = 0,
) -> TopicsPlan:
    """Say what a private model would release, and simulate how many topics it would find; no document is needed.

    Parameters
    ----------
    n_components : int
        Number of topics.
    n_units, n_words : int
        Number of documents (or users), and of words in the vocabulary.
    epsilon, delta : float
        The guarantee.
    document_length : int
        How many words a document has, about.
    neighbour_relation : {"replace", "add_remove"}
        As for `TensorLDA`.
    seed : int
        Of the simulated text.

    Notes
    -----
    The text is simulated: frequencies of words as 1/(rank + 2.7), topics that multiply them by e^(1.5 z) with z normal,
    and documents with few topics each (α₀ = 1). Topics of real text may be harder to find, or easier.

    Examples
    --------
    >>> from odeco.models import plan_topics
    >>> plan = plan_topics(3, n_units=5_000, n_words=200, epsilon=1.0, delta=1e-8)
    >>> 0 <= plan.n_expected <= 3, round(plan.releases.total, 6)
    (True, 1.0)
    """
    k = check_count("n_components", n_components)
    n_units, n_words = check_count("n_units", n_units), check_count("n_words", n_words, 2)
    document_length = check_count("document_length", document_length, 2)
    mu = gdp_mu(epsilon, delta)
    noise = (math.sqrt(2) if neighbour_relation == "replace" else 1.0) / mu
    releases = plan_releases(n_words, k, n_units=n_units, unit_noise=noise)
    rng = np.random.default_rng(seed)
    topics = np.exp(_CONTRAST * rng.standard_normal((k, n_words))) / (np.arange(n_words) + _OFFSET)
    topics /= topics.sum(axis=1, keepdims=True)
    law = TopicLaw(topics, np.full(k, 1 / k), np.array([document_length]), np.ones(1))
    cosines = np.sort(expected_likeness(law, releases, n_units=n_units, unit_noise=noise, rng=rng))[::-1]
    return TopicsPlan(
        epsilon,
        delta,
        mu,
        n_units,
        n_words,
        k,
        document_length,
        noise,
        releases,
        tuple(float(each) for each in cosines),
    )
