"""What a model of latent classes says, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from odeco.answers.fitted import FittedClasses

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
