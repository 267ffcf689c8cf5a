"""Latent classes in words and pictures: how each class answers the questions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from odeco.models.engine.description import Description, HeatMap, component_names
from odeco.models.engine.fit import Fit
from odeco.models.gmm.display import describe as describe_mixture
from odeco.privacy.report import PrivacyReport

#: A question is nearly an id if it has more different answers than these, and than this share of
#: the respondents.
_FEWEST_ANSWERS, _ID_SHARE = 10, 0.5


def describe(
    fit: Fit, names: list[str], privacy: PrivacyReport | None, n_parameters: int
) -> Description:
    """Return latent classes in words and pictures."""
    context = fit.context
    labels = [
        f"{name} = {cell}"
        for name, own in zip(names, context.columns.categories.values(), strict=True)
        for cell in own.tolist()
    ]
    answers = np.hstack(list(context.probabilities(fit.params).values()))
    panel = HeatMap(
        answers,
        component_names(fit.params.weights),
        labels,
        "probability of the answer",
        diverging=False,
    )
    fact = f"{fit.info.n_samples:,} respondents to {len(names)} questions"
    facts = [f"{fact}."]
    if privacy is None:
        facts = [
            f"{fact}; mean log-likelihood {fit.info.log_likelihood:.4f}.",
            f"Start: {fit.info.init}.",
        ]
    counts = context.columns.sizes
    most = int(np.argmax(counts))
    if privacy is None and counts[most] > max(_FEWEST_ANSWERS, _ID_SHARE * fit.info.n_samples):
        facts.append(
            f"{names[most]!r} has {counts[most]:,} different answers, nearly as an id has. "
            "Each is a parameter of every class, and hides classes that other questions show: "
            "leave it out."
        )
    return replace(
        describe_mixture(fit, names, privacy, None),
        verdict=_verdict(fit, privacy, n_parameters),
        facts=tuple(facts),
        panels=(panel,),
        sizes=(("respondents", f"{fit.info.n_samples:,}"), ("questions", f"{len(names):,}")),
    )


def _verdict(fit: Fit, privacy: PrivacyReport | None, n_parameters: int) -> str:
    """Return whether the classes can be relied on: they need fewer parameters than the table of
    answers has cells.
    """
    k = fit.params.weights.size
    bits = float(np.sum(np.log2(fit.context.columns.sizes)))
    if bits < 60 and n_parameters > 2**bits - 1:
        return (
            f"{k} classes, more than the questions can identify: other classes explain the "
            "answers as well."
        )
    if k == 1:
        return "One class: the model takes answers to different questions to be independent."
    if privacy is not None and not fit.info.converged:
        return (
            f"{k} classes that noise hides: all answer as all respondents do. A larger epsilon "
            "would help."
        )
    if privacy is not None:
        return f"{k} classes, learnt with noise that hides each respondent."
    return ""
