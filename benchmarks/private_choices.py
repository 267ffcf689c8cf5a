"""The settings of private topics, chosen on documents that no figure is reported of.

`python benchmarks/topic_choices.py private` prints these tables. A twentieth of the documents of a
corpus is the choice part (`read_parts`). A fifth of it judges, by perplexity; topics are learnt
from the rest, with noise that is smaller by as much as there are fewer documents than in the
reported part, so that signal and noise are in the proportion that they have there. For every
constant of `private_topics` the table says what other values would give.

A rule stands if no other way is better by more than one in a hundred, median over draws of noise.
For the variational baseline the best setting counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from private_variational import TRIED, learn_variationally
from topic_corpora import Corpus, read_parts

from odeco.models.engine.private import SimulatedSums
from odeco.models.lda import private_topics
from odeco.models.lda.inference import completion_perplexity
from odeco.models.lda.private import DEFAULT_CONCENTRATION
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.documents import BoundedCounts

#: A rule is said to be worse than another from here on.
NOTICED = 0.01
#: Other values of each constant.
WAYS: dict[str, tuple[Any, ...]] = {
    "_LEAST_WORDS": (0.05, 0.2),
    "_HALF_AT": (2.5, 10.0),
    "_PAIRS": (0.1, 0.4),
    "_N_PAIR_WORDS": (250, 1_000),
    "N_STEPS": (3, 7),
    "_POWER": (-0.5, 0.0, 0.25),
    "_SPREAD": (0.0025, 0.01, 0.05),
}


def choose_private(
    folder: Path, name: str, k: int, epsilons: list[float], draws: int, *, variational: bool
) -> None:
    """Print what the choice part of one corpus says."""
    choice, reported = read_parts(folder, name)
    n_documents, n_reported = choice.train.shape[0], reported.train.shape[0]
    print(
        "\n"
        f"{name}: {n_documents:,} documents stand for {n_reported:,}, k = {k}, median of {draws} "
        "draws"
    )
    for epsilon in epsilons:
        share, delta = n_documents / n_reported, n_reported**-2.0
        if variational:
            _choose_variational(choice, k, epsilon, delta, share)
        else:
            _check_rules(choice, k, Guarantee(epsilon, delta), n_reported, draws)


def _check_rules(choice: Corpus, k: int, guarantee: Guarantee, n_reported: int, draws: int) -> None:
    held = BoundedCounts(choice.train)

    def learnt(draw: int) -> tuple[Any, Any]:
        rng = np.random.default_rng(draw)
        sums = SimulatedSums(
            guarantee,
            n_reported,
            held.n_records,
            record="document",
            neighbour_relation="add_remove",
            rng=rng,
        )
        shares = private_topics.share_budget(
            n_reported, guarantee.mu, "add_remove", held.n_words, k
        )
        model = private_topics.learn_private_topics(
            held, sums, shares, k, concentration=DEFAULT_CONCENTRATION, rng=rng
        ).model
        return model.topics, DEFAULT_CONCENTRATION * model.shares

    own = _perplexity(choice, learnt, draws)
    print(f"epsilon = {guarantee.epsilon:g}: {own:,.0f} by the rules", flush=True)
    better = []
    for name, others in WAYS.items():
        for other in others:
            with patch.object(private_topics, name, other):
                found = _perplexity(choice, learnt, draws)
            print(f"  {name} = {other!s:<32} {found:10,.0f} {found / own - 1:+8.1%}", flush=True)
            if found < (1 - NOTICED) * own:
                better.append(f"{name} = {other}")
    print(
        f"  the rules stand: {'yes' if not better else 'no, better are ' + '; '.join(better)}",
        flush=True,
    )


def _choose_variational(choice: Corpus, k: int, epsilon: float, delta: float, share: float) -> None:
    found = {}
    for settings in TRIED:
        topics, alpha = learn_variationally(
            choice.train,
            k,
            epsilon=epsilon,
            delta=delta,
            seed=0,
            settings=settings,
            noise_share=share,
        )
        found[settings] = completion_perplexity(choice.observed, choice.held_out, topics, alpha)
        print(f"  {settings!s:<64} {found[settings]:10,.0f}", flush=True)
    best = min(found, key=found.__getitem__)
    print(f"epsilon = {epsilon:g}: variational with {best}", flush=True)


def _perplexity(choice: Corpus, learn: Callable[[int], tuple[Any, Any]], draws: int) -> float:
    return statistics.median(
        completion_perplexity(choice.observed, choice.held_out, *learn(draw))
        for draw in range(draws)
    )
