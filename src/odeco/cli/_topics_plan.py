"""``odeco topics --dry-run``: what a private run would release and find; of documents only their number is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from odeco.cli._inputs import load_groups
from odeco.cli._output import console, emit_json
from odeco.cli._topics_input import count_documents, read_words
from odeco.models import plan_topics
from odeco.privacy import check_delta_for
from odeco.topics.private_vocabulary import DELTA_SHARE, SHARE, left_for_learning


def print_plan(files: tuple[Path, ...], n_components: int, given: dict[str, Any], *, as_json: bool) -> None:
    """Print the plan of a private run, made of public numbers: how many documents or users, and how many words."""
    labels = load_groups(given["groups"])
    n_units = count_documents(files, given["column"]) if labels is None else np.unique(labels).size
    n_words, epsilon, delta = given["n_words"], given["epsilon"], given["delta"]
    check_delta_for(delta, n_units, given["unit"])
    chosen = given["vocabulary"] is None
    if chosen and n_words is None:
        raise click.UsageError(
            "--dry-run must know how many words there will be. Pass --vocabulary FILE, or --n-words V for a guess at "
            "how many noisy votes will choose."
        )
    if chosen:
        epsilon, delta = left_for_learning(epsilon, delta)
    else:
        n_words = len(read_words(given["vocabulary"]))
    plan = plan_topics(
        n_components,
        n_units=n_units,
        n_words=n_words,
        epsilon=epsilon,
        delta=delta,
        document_length=given["document_length"],
        seed=given["seed"],
    )
    if as_json:
        emit_json({"plan": plan, "n_expected": plan.n_expected})
        return
    if chosen:
        console().print(
            f"a vocabulary of noisy votes takes {SHARE:.0%} of μ² and {DELTA_SHARE:.0%} of δ first; the topics get the "
            "rest",
            markup=False,
            soft_wrap=True,
        )
    console().print(str(plan), markup=False, soft_wrap=True)
