"""How many classes there are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from odeco._types import FloatArray
from odeco.answers.learn import LearningSettings, learn_classes
from odeco.answers.steps import Classes, responsibilities
from odeco.answers.table import Bits, Questions, blocks_of
from odeco.latent.likelihood import Climbed
from odeco.latent.number_of_components import choose_number

#: One respondent of so many is not learnt from, but judged by.
_JUDGE = 4
#: Numbers are compared with so many starts and steps at most.
_STARTS, _STEPS = 4, 100
#: At most so many classes are tried, and at most one for so many respondents who are learnt from.
_MOST, _ROWS_OF_CLASS = 64, 5


def learn_number(
    marked: Bits, questions: Questions, settings: LearningSettings, *, seed: int
) -> tuple[Climbed[Classes], dict[int, float]]:
    """Return as many classes as other respondents speak for, and the mean log-likelihood of these for all tried."""
    order = np.random.default_rng(seed).permutation(len(marked))
    n_judges = max(1, len(marked) // _JUDGE)
    judges, learnt = np.sort(order[:n_judges]), np.sort(order[n_judges:])
    briefly = replace(settings, n_starts=min(settings.n_starts, _STARTS), n_steps=min(settings.n_steps, _STEPS))

    def score(k: int) -> FloatArray:
        found = learn_classes(marked[learnt], questions, k, briefly, seed=seed).model
        return np.concatenate([responsibilities(found, block)[1] for block in blocks_of(marked[judges])])

    chosen = choose_number(score, most=max(1, min(_MOST, learnt.size // _ROWS_OF_CLASS)))
    return learn_classes(marked, questions, chosen.n_components, settings, seed=seed), chosen.tried
