"""Selection of the number of components by the likelihood of held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from odeco._util.types import FloatArray

#: One number is better than another if the mean gain of a row is this many standard errors above zero. The best of some
#: sixteen numbers exceeds 3.2 by chance in one case of a hundred: 16 (1 − Φ(3.2)) = 0.011.
_CLEARLY = 3.2


@dataclass(frozen=True)
class ChosenNumber:
    """The number of components that was selected.

    Attributes
    ----------
    n_components : int
        The smallest number that is not clearly worse than the best.
    tried : dict of int to float
        The mean log-likelihood of a held-out row, for each number that was tried.
    clear : bool
        Whether one component less is clearly worse.
    as_good : tuple of int
        The numbers tried that are not clearly worse than the best: the data do not decide between them.
    """

    n_components: int
    tried: dict[int, float]
    clear: bool
    as_good: tuple[int, ...] = ()


def means_of_stretches(values: FloatArray, n_stretches: int) -> FloatArray:
    """Return the means of `n_stretches` stretches of consecutive rows, which are nearly independent if each is long.

    The gains of neighbouring rows of a sequence depend on each other. With correlations r_1, r_2, … the variance of
    their mean is 1 + 2 Σ r times what independent rows would have; the variance of means of long stretches includes it.
    """
    n_each = max(len(values) // n_stretches, 1)
    whole = values[: len(values) // n_each * n_each]
    means: FloatArray = whole.reshape(-1, n_each).mean(axis=1)
    return means


def choose_number(score: Callable[[int], FloatArray], *, most: int, least: int = 1) -> ChosenNumber:
    """Select the smallest number of components that is not clearly worse than the best.

    Parameters
    ----------
    score : callable
        Takes a number of components, fits the model, and returns the log-likelihood of each held-out row. The rows must
        always be the same: gains are compared row by row, so that the difficulty of a row cancels. Rows that depend
        on each other must be averaged (`means_of_stretches`), because the standard error assumes independence.
    most, least : int
        The range of numbers.

    Notes
    -----
    The likelihood rises with every component that is there, and falls slowly with those that are not. Numbers are
    doubled until one is not clearly better than its half; three between the last two are tried as well, and three
    between the two before, because the best may lie in either gap. Then bisection finds where the likelihood stops
    rising. Each number is fitted once.
    """
    scores: dict[int, FloatArray] = {}

    def mean(number: int) -> float:
        if number not in scores:
            scores[number] = score(number)
        return float(scores[number].mean())

    def clearly_better(number: int, other: int) -> bool:
        if mean(number) <= mean(other):
            return False
        gain = scores[number] - scores[other]
        return float(gain.mean()) > _CLEARLY * float(gain.std()) / math.sqrt(gain.size)

    low, high = least, min(2 * least, most)
    # Two components may be no better than one although four are: if the four form two pairs, two explain nothing.
    while high > low and (clearly_better(high, low) or (low == least and clearly_better(min(2 * high, most), low))):
        low, high = high, min(2 * high, most)
    before = max(least, low // 2)
    for quarter in (1, 2, 3):
        mean(before + quarter * (low - before) // 4)
        mean(low + quarter * (high - low) // 4)
    while True:
        top = max(sorted(scores), key=mean)
        below = max((each for each in scores if clearly_better(top, each) and each < top), default=least - 1)
        chosen = min(each for each in scores if each > below)
        if chosen - below <= 1:
            tried = {each: mean(each) for each in sorted(scores)}
            as_good = tuple(each for each in tried if not clearly_better(top, each))
            return ChosenNumber(chosen, tried, clear=below >= least, as_good=as_good)
        mean((below + chosen) // 2)
