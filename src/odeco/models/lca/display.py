"""What a model of latent classes says, in words.

The picture of latent classes: how each of them answers each question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odeco.models.lca.spec import FittedClasses

#: Of each class so many answers are named: those that it gives more often than all do, by the most.
_MOST_NAMED = 4

#: An answer is named if its probability in the class differs by this much from its frequency.
_TELLING = 0.1


def summary_of(fitted: FittedClasses, names: Sequence[str], *, private: bool = False) -> str:
    """Return a verdict, and for each class its size and the answers that tell it from all respondents."""
    k, n_questions = fitted.weights.size, fitted.sizes.size
    classes = "1 class" if k == 1 else f"{k} classes"
    lines = [f"{classes} of {fitted.n_rows:,} respondents to {n_questions} questions: {_verdict(fitted, private)}."]
    labels = [f"{name} = {cell}" for name, own in zip(names, fitted.categories, strict=True) for cell in own.tolist()]
    for number, (weight, own) in enumerate(zip(fitted.weights, fitted.answers.T, strict=True)):
        lifted = own - fitted.frequencies
        telling = [place for place in np.argsort(-lifted, kind="stable")[:_MOST_NAMED] if lifted[place] > _TELLING]
        said = ", ".join(
            f"{labels[place]} ({own[place]:.0%}, all {fitted.frequencies[place]:.0%})" for place in telling
        )
        lines.append(f"  class {number}, {weight:.0%}: {said or 'answers as all do'}")
    return "\n".join(lines)


def _verdict(fitted: FittedClasses, private: bool) -> str:
    """Return whether the classes can be relied on: they have fewer numbers than the table of answers; steps ended."""
    cells = float(np.sum(np.log2(fitted.sizes)))
    if cells < 60 and fitted.n_parameters > 2**cells - 1:
        return "too many for so few questions, other classes explain the answers as well"
    if private:
        return "learnt with noise that hides each respondent"
    if not fitted.converged:
        return f"the steps had not ended after {fitted.n_steps}, pass a larger max_iter"
    return f"mean log-likelihood {fitted.log_likelihood:.4f}"


#: Names longer than this are cut.
_LONGEST = 24

#: More answers than this have no labels, which could not be read.
_MOST_LABELS = 120


def picture_of(fitted: FittedClasses, names: Sequence[str]) -> Any:
    """Return a figure: a row for each class and a column for each answer, the darker the likelier it is given."""
    from matplotlib.figure import Figure

    k, n_answers = fitted.answers.shape[1], fitted.answers.shape[0]
    size = (min(max(4.0, 1.5 + 0.28 * n_answers), 30.0), 2.2 + 0.35 * k)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    shown = axes.imshow(fitted.answers.T, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    edges = fitted.questions.offsets
    for edge in edges[1:]:
        axes.axvline(edge - 0.5, color="grey", linewidth=0.8)
    axes.set_yticks(range(k), [f"class {number} ({weight:.0%})" for number, weight in enumerate(fitted.weights)])
    if n_answers <= _MOST_LABELS:
        cells = [_short(cell) for own in fitted.categories for cell in own.tolist()]
        axes.set_xticks(range(n_answers), cells, rotation=90)
    else:
        axes.set_xticks([])
    above = axes.secondary_xaxis("top")
    centres = edges + (fitted.sizes - 1) / 2
    every = max(1, int(np.ceil(fitted.sizes.size / _MOST_LABELS)))
    above.set_xticks(centres[::every], [_short(name) for name in names[::every]], rotation=60, ha="left")
    figure.colorbar(shown, ax=axes, label="probability of the answer")
    return figure


def _short(cell: Any) -> str:
    text = str(cell)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
