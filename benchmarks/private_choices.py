"""The settings of private topics, chosen on documents that no figure is reported of.

`python benchmarks/topic_choices.py private` prints these tables. A twentieth of the documents of a corpus is the choice
part (`read_parts`). A fifth of it judges, by perplexity; topics are learnt from the rest, with noise that is smaller by
as much as there are fewer documents than in the reported part, so that signal and noise are in the proportion that they
have there. For every rule of `private_plan` the table says what half or twice of it, or another way, would give.

A rule stands if no other way is better by more than one in a hundred, median over draws of noise. For the variational
baseline the best setting counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from private_variational import TRIED, learn_variationally
from topic_corpora import Corpus, read_parts

from odeco.models.engine.private import SimulatedSums
from odeco.models.lda.inference import completion_perplexity
from odeco.models.lda.private import DEFAULT_CONCENTRATION
from odeco.models.lda.private_estimate import estimate_private_topics
from odeco.models.lda.private_plan import ReleasePlan, plan_releases, signal_of
from odeco.privacy.holders.documents import BoundedCounts
from odeco.privacy.ledger_file import Guarantee

#: A rule is said to be worse than another from here on.
NOTICED = 0.01
Way = tuple[str, ReleasePlan, float]


def choose_private(folder: Path, name: str, k: int, epsilons: list[float], draws: int, *, variational: bool) -> None:
    """Print what the choice part of one corpus says."""
    choice, reported = read_parts(folder, name)
    n_documents, n_reported = choice.train.shape[0], reported.train.shape[0]
    print(f"\n{name}: {n_documents:,} documents stand for {n_reported:,}, k = {k}, median of {draws} draws")
    for epsilon in epsilons:
        share, delta = n_documents / n_reported, n_reported**-2.0
        if variational:
            _choose_variational(choice, k, epsilon, delta, share)
        else:
            _check_rules(choice, k, Guarantee(epsilon, delta), n_reported, draws)


def _check_rules(choice: Corpus, k: int, guarantee: Guarantee, n_reported: int, draws: int) -> None:
    held = BoundedCounts(choice.train)
    plan = plan_releases(held.n_words, k, signal_of(n_reported, guarantee.mu, "add_remove"))

    def learn(plan: ReleasePlan, concentration: float) -> Callable[[int], tuple[Any, Any]]:
        def learnt(draw: int) -> tuple[Any, Any]:
            rng = np.random.default_rng(draw)
            sums = SimulatedSums(
                guarantee, n_reported, held.n_units, record="document", neighbour_relation="add_remove", rng=rng
            )
            law = estimate_private_topics(held, sums, plan, k, concentration=concentration, rng=rng).generative
            return law.topics, law.alpha

        return learnt

    own = _perplexity(choice, learn(plan, DEFAULT_CONCENTRATION), draws)
    print(f"epsilon = {guarantee.epsilon:g}: {own:,.0f} by the rules", flush=True)
    better = []
    for name, other, concentration in _other_ways(plan):
        found = _perplexity(choice, learn(other, concentration), draws)
        print(f"  {name:<48} {found:10,.0f} {found / own - 1:+8.1%}", flush=True)
        if found < (1 - NOTICED) * own:
            better.append(name)
    print(f"  the rules stand: {'yes' if not better else 'no, better are ' + '; '.join(better)}", flush=True)


def _other_ways(plan: ReleasePlan) -> Iterator[Way]:
    """Yield each rule changed, with the steps taking what is left over."""
    for factor in (0.5, 2.0):
        yield f"{factor:g} times the share of word frequencies", _dealt(plan, words=factor * plan.words), 1.0
        yield f"{factor:g} times the share of pairs", _dealt(plan, pairs=factor * plan.pairs), 1.0
        number = round(factor * plan.n_pair_words)
        yield f"pairs of {number} words", replace(plan, n_pair_words=number), 1.0
        yield f"a concentration of {factor:g}", plan, factor
    for power in (-0.5, -0.25, 0.0, 0.25, 0.5):
        if abs(power - plan.power) > 0.05:
            yield f"features times frequency to the power {power:g}", replace(plan, power=power), 1.0
    for steps in ((1.0,), (0.5, 0.5), (1 / 3, 2 / 3), (0.2, 0.3, 0.5)):
        dealt = " : ".join(f"{step:.2g}" for step in steps)
        yield f"steps {dealt}", replace(plan, steps=tuple(step * sum(plan.steps) for step in steps)), 1.0


def _dealt(plan: ReleasePlan, **shares: float) -> ReleasePlan:
    changed = replace(plan, **shares)  # type: ignore[arg-type]
    left = 1 - changed.lengths - changed.words - changed.pairs  # the shares sum to one
    return replace(changed, steps=tuple(left * step / sum(plan.steps) for step in plan.steps))


def _choose_variational(choice: Corpus, k: int, epsilon: float, delta: float, share: float) -> None:
    found = {}
    for settings in TRIED:
        topics, alpha = learn_variationally(
            choice.train, k, epsilon=epsilon, delta=delta, seed=0, settings=settings, noise_share=share
        )
        found[settings] = completion_perplexity(choice.observed, choice.held_out, topics, alpha)
        print(f"  {settings!s:<64} {found[settings]:10,.0f}", flush=True)
    best = min(found, key=found.__getitem__)
    print(f"epsilon = {epsilon:g}: variational with {best}", flush=True)


def _perplexity(choice: Corpus, learn: Callable[[int], tuple[Any, Any]], draws: int) -> float:
    return statistics.median(
        completion_perplexity(choice.observed, choice.held_out, *learn(draw)) for draw in range(draws)
    )
