"""Latent classes in words and pictures: how each class answers the questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.description import (
    LETTER,
    ComponentRow,
    Description,
    PageTable,
    most_characteristic,
)
from odeco.models.engine.fit import Fit
from odeco.models.lca.classes import Classes
from odeco.privacy.holders.answers import Questions
from odeco.privacy.report import PrivacyReport

#: An answer is named if its probability in the class is above its frequency by more than this.
_MIN_DIFFERENCE = 0.1

#: A figure shows names up to this length, and of at most this many answers.
_MAX_LENGTH, _MAX_LABELS = 24, 120

#: A question is nearly an id if it has more different answers than these, and than this share of
#: the respondents.
_FEWEST_ANSWERS, _ID_SHARE = 10, 0.5


def describe(
    fit: Fit, names: Sequence[str], privacy: PrivacyReport | None, n_parameters: int
) -> Description:
    """Return latent classes in words and pictures."""
    classes, context = fit.params, fit.context
    frequencies = context.frequencies
    labels = [
        f"{name} = {cell}"
        for name, own in zip(names, context.categories, strict=True)
        for cell in own.tolist()
    ]
    lifted = np.maximum(classes.answers.T - frequencies, 0.0)
    components = []
    rows = zip(classes.weights, classes.answers.T, lifted, most_characteristic(lifted), strict=True)
    for weight, own, more, places in rows:
        named = [
            f"{labels[place]} ({own[place]:.0%}, all {frequencies[place]:.0%})"
            for place in places
            if more[place] > _MIN_DIFFERENCE
        ]
        components.append(ComponentRow(float(weight), ", ".join(named) or "answers as all do"))
    fact = f"{fit.info.n_samples:,} respondents to {len(names)} questions"
    fact += "." if privacy is not None else f"; mean log-likelihood {fit.info.log_likelihood:.4f}."
    panel = _Answers(classes.weights, classes.answers, context.sizes, names, context.categories)
    spread = np.maximum.reduceat(lifted.max(axis=0), Questions(context.sizes).offsets)
    questions = np.argsort(-spread, kind="stable")
    table = _answers_table(classes, labels, frequencies, Questions(context.sizes), questions)
    verdict = _verdict(fit, privacy, n_parameters)
    sizes = (("respondents", f"{fit.info.n_samples:,}"), ("questions", f"{len(names):,}"))
    facts = [fact, f"Start: {fit.info.init}."] if fit.info.init and privacy is None else [fact]
    most = int(np.argmax(context.sizes))
    if privacy is None and context.sizes[most] > max(
        _FEWEST_ANSWERS, _ID_SHARE * fit.info.n_samples
    ):
        facts.append(
            f"{names[most]!r} has {context.sizes[most]:,} different answers, nearly as an id has. "
            "Each is a parameter of every class, and hides classes that other questions show: "
            "leave it out."
        )
    return Description(
        verdict,
        tuple(facts),
        tuple(components),
        (panel,),
        (table,),
        sizes,
        tuple(questions.tolist()),
    )


def _answers_table(
    classes: Classes,
    labels: list[str],
    frequencies: FloatArray,
    questions: Questions,
    order: IndexArray,
) -> PageTable:
    """Return the probability of every answer in every class; the questions that tell classes apart
    best come first.
    """
    places = np.concatenate(
        [
            np.arange(size) + start
            for start, size in zip(questions.offsets[order], questions.sizes[order], strict=True)
        ]
    )
    cells = [
        [
            labels[place],
            f"{frequencies[place]:.0%}",
            *(f"{value:.0%}" for value in classes.answers[place]),
        ]
        for place in places
    ]
    shades = 2 * (classes.answers - frequencies[:, None])[places]
    lead = (
        "The probability of each answer in each class; the questions that tell classes apart best "
        "come first. Blue is more often than among all respondents, orange less often."
    )
    headings = ["answer", "all", *map(str, range(classes.weights.size))]
    return PageTable(
        "Answers, class by class",
        lead,
        headings,
        cells,
        np.column_stack([np.zeros(len(cells)), shades]),
    )


def _verdict(fit: Fit, privacy: PrivacyReport | None, n_parameters: int) -> str:
    """Return whether the classes can be relied on: they need fewer parameters than the table of
    answers has cells.
    """
    k, bits = fit.params.weights.size, float(np.sum(np.log2(fit.context.sizes)))
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


@dataclass(frozen=True, eq=False)
class _Answers:
    """The probability of each answer in each class: one row per class, one column per answer."""

    weights: FloatArray
    answers: FloatArray
    sizes: IndexArray
    names: Sequence[str]
    categories: Sequence[Any]

    @property
    def size(self) -> tuple[float, float]:
        n_answers, k = self.answers.shape
        cells = (
            [_short(cell) for own in self.categories for cell in own.tolist()]
            if n_answers <= _MAX_LABELS
            else []
        )
        texts = LETTER * (
            max(map(len, cells), default=0) + max(len(_short(name)) for name in self.names)
        )
        return min(max(4.0, 1.5 + 0.28 * n_answers), 30.0), 1.2 + 0.35 * k + texts

    def draw(self, axes: Any) -> None:
        n_answers, k = self.answers.shape
        shown = axes.imshow(
            self.answers.T, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest"
        )
        edges = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        for edge in edges[1:]:
            axes.axvline(edge - 0.5, color="grey", linewidth=0.8)
        axes.set_yticks(
            range(k),
            [f"class {number} ({weight:.0%})" for number, weight in enumerate(self.weights)],
        )
        if n_answers <= _MAX_LABELS:
            cells = [_short(cell) for own in self.categories for cell in own.tolist()]
            axes.set_xticks(range(n_answers), cells, rotation=90, parse_math=False)
        else:
            axes.set_xticks([])
        above = axes.secondary_xaxis("top")
        every = max(1, int(np.ceil(self.sizes.size / _MAX_LABELS)))
        centres = (edges + (self.sizes - 1) / 2)[::every]
        above.set_xticks(
            centres,
            [_short(name) for name in self.names[::every]],
            rotation=60,
            ha="left",
            parse_math=False,
        )
        axes.figure.colorbar(shown, ax=axes, label="probability of the answer")


def _short(cell: Any) -> str:
    text = str(cell)
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"
