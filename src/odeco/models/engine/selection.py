"""The number of components: each parameter must pay twice, on training rows and on held-out rows.

k components beat j < k if, with p = (parameters of k) − (parameters of j),

- the log-likelihood of the training rows rises by more than 1.5 p, and
- the log-likelihood of held-out rows, in five-fold cross-validation, rises by more than 0.25 p.

A parameter that means nothing gains 1/2 on average on training rows (Wilks 1938), and loses 5/8 on
held-out rows. The first test is misled by components that sit on a few rows, the second by a fold
that was learnt badly. They fail for different reasons, so each guards the other. The smallest
number is selected that none of the next three beats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from odeco._util.stages import LOG
from odeco._util.types import BoolArray, FloatArray, IndexArray

#: What a parameter must gain on training rows, and on held-out rows.
_TRAINING, _HELD_OUT = 1.5, 0.25

#: A fifth of the rows is held out at a time. A number is compared with the next three: two
#: components may show nothing where four show all, if these form two pairs.
N_FOLDS, _AHEAD = 5, 3

#: With more rows than this, fewer folds are learnt: their number times the rows stays below five
#: times this.
_ROWS_OF_ALL_FOLDS = 4_000

#: Takes a number of components and the rows to learn from; returns the log-likelihood of each row,
#: and the number of parameters.
Learn = Callable[[int, BoolArray], tuple[FloatArray, int]]


@dataclass(frozen=True)
class KSelection:
    """The number of components that was selected.

    Attributes
    ----------
    n_components : int
        The smallest number that none of the next three beats.
    tried : tuple of int
        The numbers that were fitted, in rising order.
    held_out : dict of int to float
        The log-likelihood of held-out rows, for each number that was cross-validated.
    near_ties : tuple of int
        Numbers that the rows hardly tell from the one selected, that one included.
    """

    n_components: int
    tried: tuple[int, ...]
    held_out: dict[int, float]
    near_ties: tuple[int, ...]


def fold_numbers(places: IndexArray) -> IndexArray:
    """Return the fold of each row, for a permutation of rows: those in one fifth of it are held out
    together.
    """
    return np.asarray(places * N_FOLDS // len(places))


def select_number(learn: Learn, folds: IndexArray, *, most: int) -> KSelection:
    """Select the smallest number of components that none of the next three beats.

    Parameters
    ----------
    learn : Learn
        Takes a number of components, and which rows to learn from; returns the log-likelihood of
        every row (in a sequence: given those before it) times its weight, and the number of
        parameters.
    folds : array
        The fold of each row, from 0 to 4.
    most : int
        The largest number.

    Notes
    -----
    Each fold begins from its own starts: components that were learnt from all rows know the
    held-out ones. Folds are learnt only for numbers that pass the first test, and for those next to
    the selected number.
    """
    fits = SelectionFits(learn, folds, most)

    def beats(k: int, j: int) -> bool:
        return fits.training_gain(k, j) > _TRAINING and fits.held_out_gain(k, j) > _HELD_OUT

    def is_near(k: int, j: int) -> bool:
        return fits.training_gain(k, j) > 1 and fits.held_out_gain(k, j) > -_HELD_OUT

    def ahead(j: int) -> range:
        return range(j + 1, min(j + _AHEAD, fits.most) + 1)

    selected = 1
    fits.training(selected)
    while any(beats(k, selected) for k in ahead(selected)):
        selected += 1
    fits.training(selected)
    fewer = [j for j in range(1, selected) if not beats(selected, j)]
    more = [k for k in ahead(selected) if is_near(k, selected)]
    fits.held_out(selected)
    near_ties = (*fewer, selected, *more)
    tried = tuple(sorted(fits.training_scores))
    return KSelection(selected, tried, fits.held_out_scores, near_ties)


class SelectionFits:
    """The fits of a selection, each learnt when it is needed: log-likelihoods, and numbers of
    parameters.
    """

    def __init__(self, learn: Learn, folds: IndexArray, most: int) -> None:
        self.learn = learn
        self.folds = folds
        self.most = most
        self.n_folds = min(max(N_FOLDS * _ROWS_OF_ALL_FOLDS // len(folds), 1), N_FOLDS)
        self.n_parameters: dict[int, int] = {}
        self.training_scores: dict[int, float] = {}
        self.held_out_scores: dict[int, float] = {}

    def training(self, k: int) -> float:
        """Return the log-likelihood of the training rows."""
        if k not in self.training_scores:
            LOG.info("fitting %d components", k)
            rows, self.n_parameters[k] = self.learn(k, np.ones(len(self.folds), dtype=bool))
            self.training_scores[k] = float(rows.sum())
        return self.training_scores[k]

    def held_out(self, k: int) -> float:
        """Return the log-likelihood of held-out rows, as if all folds were learnt."""
        if k not in self.held_out_scores:
            total = 0.0
            for fold in range(self.n_folds):
                LOG.info("cross-validating %d components, fold %d", k, fold + 1)
                held_out = self.folds == fold
                total += float(self.learn(k, ~held_out)[0][held_out].sum())
            self.held_out_scores[k] = total * N_FOLDS / self.n_folds
        return self.held_out_scores[k]

    def training_gain(self, k: int, j: int) -> float:
        """Return what each of the parameters that k has more than j gains on training rows."""
        return self._per_parameter(self.training(k) - self.training(j), k, j)

    def held_out_gain(self, k: int, j: int) -> float:
        """Return what each of the parameters that k has more than j gains on held-out rows."""
        return self._per_parameter(self.held_out(k) - self.held_out(j), k, j)

    def _per_parameter(self, rise: float, k: int, j: int) -> float:
        return rise / max(self.n_parameters[k] - self.n_parameters[j], 1)
