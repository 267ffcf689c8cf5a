"""Expectation-maximisation, and what its likelihood decides: among several starts, and the number of components.

**EM**: plain, with SQUAREM, and with several starts, of which successive halving selects one. All functions take an EM
step: it maps parameters to the next ones, and returns with them the mean log-likelihood of the parameters that it was
given. They know nothing else about a model.

**The number of components**: each parameter must pay twice, on rows learnt from and on held-out rows. k components beat
j < k if, with p = (parameters of k) − (parameters of j),

- the log-likelihood of the rows learnt from rises by more than 1.5 p, and
- the log-likelihood of held-out rows, in five-fold cross-validation, rises by more than 0.25 p.

A parameter that means nothing gains 1/2 on average on rows learnt from (Wilks 1938), and loses 5/8 on held-out rows.
The first test is misled by components that sit on a few rows, the second by a fold that was learnt badly. They fail for
different reasons, so each guards the other. The smallest number is selected that none of the next three beats.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from odeco._util.types import BoolArray, FloatArray, IndexArray

Params = TypeVar("Params")

#: Takes parameters, and returns the next ones with the mean log-likelihood of those it was given.
Step = Callable[[Params], tuple[Params, float]]


@dataclass(frozen=True, eq=False)
class EMResult(Generic[Params]):
    """Parameters after EM iterations.

    Attributes
    ----------
    params : object
        The parameters after the last iteration.
    log_likelihood : float
        The mean log-likelihood before the last iteration, which can only have raised it.
    n_iter : int
        Number of iterations.
    converged : bool
        Whether the last iteration raised the mean log-likelihood by less than the tolerance.
    """

    params: Params
    log_likelihood: float = -math.inf
    n_iter: int = 0
    converged: bool = False


def em(step: Step[Params], start: Params, *, max_iter: int, tol: float) -> EMResult[Params]:
    """Iterate until the mean log-likelihood rises by less than `tol`, or for `max_iter` iterations."""
    params, before = start, -math.inf
    for n_iter in range(1, max_iter + 1):
        params, likelihood = step(params)
        if likelihood - before < tol:
            return EMResult(params, likelihood, n_iter, True)
        before = likelihood
    return EMResult(params, before, max_iter, False)


def squarem(
    step: Step[Params],
    start: Params,
    *,
    max_iter: int,
    tol: float,
    to_vector: Callable[[Params], FloatArray],
    from_vector: Callable[[FloatArray, Params], Params],
) -> EMResult[Params]:
    """EM with SQUAREM extrapolation: every third iteration starts where the two before it point to.

    Parameters
    ----------
    step, start, max_iter
        As for `em`.
    tol : float
        EM ends when all further iterations together would raise the mean log-likelihood by less, if their gains
        shrink as they do now.
    to_vector : callable
        Returns parameters as a vector, in coordinates in which a long step along a line still gives parameters.
    from_vector : callable
        Takes such a vector, and parameters for what the vector does not hold; returns parameters.

    Notes
    -----
    Two iterations move z₀ by r, and then by r + v. If they shrink by a constant factor, all further ones lead to
    z₀ + 2 a r + a² v with a about |r| / |v|. The third iteration starts there. Its result is used if the likelihood
    there is higher than after the first, so the likelihood never falls (Varadhan and Roland, *Simple and globally
    convergent methods for accelerating the convergence of any EM algorithm*, 2008, scheme S3).
    """
    params, likelihood, done = start, -math.inf, 0
    while done < max_iter:
        if max_iter - done < 3:
            params, likelihood = step(params)
            done += 1
            continue
        first, before = step(params)
        second, likelihood = step(first)
        done += 2
        origin, one, two = to_vector(params), to_vector(first), to_vector(second)
        along, bend = one - origin, two - 2 * one + origin
        length = max(1.0, float(np.linalg.norm(along)) / max(float(np.linalg.norm(bend)), np.finfo(float).tiny))
        # If steps shrink by a factor c = 1 − 1/length, gains shrink by c², and their sum is about length/2 of the last.
        if (likelihood - before) * max(length / 2, 1.0) < tol:
            return EMResult(second, likelihood, done, True)
        extrapolated, there = step(from_vector(origin + 2 * length * along + length**2 * bend, second))
        done += 1
        params = second
        if there > likelihood:
            params, likelihood = extrapolated, there
    return EMResult(params, likelihood, done, False)


def successive_halving(
    starts: Sequence[Params],
    run: Callable[[list[Params], int], list[EMResult[Params]]],
    *,
    first_iter: int,
    degenerate: Callable[[Params], bool] = lambda _: False,
) -> tuple[Params, int]:
    """Run EM from every start; the likelier half goes on for twice as long, until one is left.

    `run` takes starts and a number of iterations, and returns the result of each. Degenerate parameters, whose
    likelihood means nothing, come after all others.

    Returns
    -------
    params : object
        The parameters that are left.
    number : int
        The place of their start in `starts`.
    """
    n_iter = first_iter
    running = [(number, EMResult(start)) for number, start in enumerate(starts)]
    while True:
        going = [(number, at.params) for number, at in running if not at.converged]
        further = run([params for _, params in going], n_iter) if going else []
        running = [each for each in running if each[1].converged]
        running += zip([number for number, _ in going], further, strict=True)
        running.sort(key=lambda each: (degenerate(each[1].params), -each[1].log_likelihood, each[0]))
        running = running[: (len(running) + 1) // 2]
        if len(running) == 1:
            number, best = running[0]
            return best.params, number
        n_iter *= 2


def best_of(
    starts: Iterable[Params],
    step: Step[Params],
    *,
    first_iter: int,
    max_iter: int,
    tol: float,
    run: Callable[..., EMResult[Params]] = em,
) -> EMResult[Params]:
    """Run a few iterations from every start, and all others from where the likelihood is highest then.

    `run` is `em`, or another function with its arguments.
    """
    trials = [run(step, start, max_iter=first_iter, tol=tol) for start in starts]
    best = max(trials, key=lambda trial: trial.log_likelihood)
    if best.converged or max_iter <= best.n_iter:
        return best
    rest = run(step, best.params, max_iter=max_iter - best.n_iter, tol=tol)
    return EMResult(rest.params, rest.log_likelihood, best.n_iter + rest.n_iter, rest.converged)


#: What a parameter must gain on rows learnt from, and on held-out rows.
_INSIDE, _OUTSIDE = 1.5, 0.25

#: A fifth of the rows is held out at a time. A number is compared with the next three: two components may show nothing
#: where four show all, if these form two pairs.
N_FOLDS, _AHEAD = 5, 3

#: With more rows than this, fewer folds are learnt: their number times the rows stays below five times this.
_ROWS_OF_ALL_FOLDS = 4_000

#: A number is sure to be not too large if it gains at least this on every smaller one.
_SURE = 1.7

#: Takes a number of components and the rows to learn from; returns the log-likelihood of each row, the number of
#: parameters, and whether larger numbers would say nothing about components.
Learn = Callable[[int, BoolArray], tuple[FloatArray, int, bool]]


@dataclass(frozen=True)
class Calibration:
    """How certain a selected number is, learnt from planted tables (`python benchmarks/selection.py MODEL --fit`).

    Attributes
    ----------
    when_sure, when_not : float
        How often there are at least as many components as were selected, if all steps gained at least 1.7 for each
        parameter, and if one did not.
    constant, by_gain, by_loss, by_crowding, by_rows : float
        The log-odds that no component is hidden: a constant, and what is added for what the next numbers gain on rows
        learnt from, for what the next number loses on held-out rows, for the logarithm of parameters per row, and for
        the logarithm of the number of rows, of which more show what fewer hide.
    """

    when_sure: float = 0.98
    when_not: float = 0.6
    constant: float = 4.0
    by_gain: float = -3.6
    by_loss: float = 0.6
    by_crowding: float = -0.3
    by_rows: float = 0.0

    def none_hidden(self, *evidence: float) -> float:
        """Return the probability that there are no more components than were selected, by `ChosenNumber.evidence`."""
        slopes = (self.by_gain, self.by_loss, self.by_crowding, self.by_rows)
        odds = self.constant + sum(slope * each for slope, each in zip(slopes, evidence, strict=True))
        return 1 / (1 + math.exp(-odds))


@dataclass(frozen=True)
class ChosenNumber:
    """The number of components that was selected.

    Attributes
    ----------
    n_components : int
        The smallest number that none of the next three beats.
    inside : dict of int to float
        The log-likelihood of all rows, for each number that was learnt from them.
    outside : dict of int to float
        The log-likelihood of held-out rows, for each number that was cross-validated.
    at_least, exactly : float
        The probability that there are no fewer components, and that there are no more either, if components have the
        form of the model; `exactly` is NaN if no larger number can be tried, and both are if the likelihood of this one
        says nothing about components.
    as_good : tuple of int
        Numbers that the rows hardly tell from the one selected, that one included.
    n_rows : float
        Number of rows, each counted by its weight.
    evidence : tuple of float
        What `exactly` was computed from: gain, loss, crowding and the logarithm of the number of rows; empty if no
        larger number can be tried.
    """

    n_components: int
    inside: dict[int, float]
    outside: dict[int, float]
    at_least: float
    exactly: float
    as_good: tuple[int, ...]
    n_rows: float
    evidence: tuple[float, ...] = ()


def fold_numbers(places: IndexArray) -> IndexArray:
    """Return the fold of each row, for a permutation of rows: those in one fifth of it are held out together."""
    return np.asarray(places * N_FOLDS // len(places))


def choose_number(
    learn: Learn,
    folds: IndexArray,
    n_rows: float | None = None,
    *,
    most: int,
    calibration: Calibration | None = None,
) -> ChosenNumber:
    """Select the smallest number of components that none of the next three beats.

    Parameters
    ----------
    learn : Learn
        Takes a number of components, and which rows to learn from; returns the log-likelihood of every row (in a
        sequence: given those before it) times its weight, the number of parameters, and whether larger numbers would
        say nothing about components.
    folds : array
        The fold of each row, from 0 to 4.
    n_rows : float, optional
        Number of rows, each counted by its weight; by default rows have no weights.
    most : int
        The largest number; it is smaller if a larger one would say nothing.
    calibration : Calibration, optional
        How certain selected numbers are.

    Notes
    -----
    Each fold begins from its own starts: components that were learnt from all rows know the held-out ones. Folds are
    learnt only for numbers that pass the first test, and for those that the certainty depends on.
    """
    calibration, fits = calibration or Calibration(), Fits(learn, folds, n_rows, most)

    def beats(k: int, j: int) -> bool:
        return fits.gain(fits.seen, k, j) > _INSIDE and fits.gain(fits.held_out, k, j) > _OUTSIDE

    def ahead(j: int) -> range:
        return range(j + 1, min(j + _AHEAD, fits.most) + 1)

    chosen = 1
    fits.seen(chosen)
    while any(beats(k, chosen) for k in ahead(chosen)):
        chosen += 1
    fits.seen(chosen)
    fewer = tuple(j for j in range(1, chosen) if fits.gain(fits.seen, chosen, j) < _SURE)
    at_least = 1.0 if chosen == 1 else calibration.when_not if fewer else calibration.when_sure
    if fits.is_last[chosen]:
        at_least = math.nan
        fits.held_out(chosen)
    exactly, more, evidence = math.nan, list[int](), tuple[float, ...]()
    if chosen < fits.most:
        gains = {k: fits.gain(fits.seen, k, chosen) for k in ahead(chosen)}
        more = [k for k, gain in gains.items() if gain > 1 and fits.gain(fits.held_out, k, chosen) > -_OUTSIDE]
        gained = min(max(*gains.values(), 0.5), 1.5)
        lost = min(max(-fits.gain(fits.held_out, chosen + 1, chosen), -0.5), 1.5)
        crowding = math.log(max(fits.sizes[chosen + 1] - fits.sizes[chosen], 1) * (chosen + 1) / fits.n_rows)
        evidence = (gained, lost, crowding, math.log(fits.n_rows))
        exactly = at_least * calibration.none_hidden(*evidence)
    inside = {k: fits.inside[k] for k in sorted(fits.inside)}
    return ChosenNumber(chosen, inside, fits.outside, at_least, exactly, (*fewer, chosen, *more), fits.n_rows, evidence)


class Fits:
    """The fits of a selection, each learnt when it is needed: log-likelihoods, and numbers of parameters."""

    def __init__(self, learn: Learn, folds: IndexArray, n_rows: float | None = None, most: int = sys.maxsize) -> None:
        self.learn, self.folds, self.n_rows = learn, folds, len(folds) if n_rows is None else n_rows
        self.most, self.is_last, self.flat_alone = most, dict[int, bool](), False
        self.n_folds = min(max(N_FOLDS * _ROWS_OF_ALL_FOLDS // len(folds), 1), N_FOLDS)
        self.sizes: dict[int, int] = {}
        self.inside: dict[int, float] = {}
        self.outside: dict[int, float] = {}

    def seen(self, k: int) -> float:
        """Return the log-likelihood of the rows learnt from."""
        if k not in self.inside:
            rows, self.sizes[k], degenerate = self.learn(k, np.ones(len(self.folds), dtype=bool))
            self.inside[k] = float(rows.sum())
            # Rows that one component finds flat, such as those with a column that others determine, are so in all.
            self.flat_alone = degenerate if k == 1 else self.flat_alone
            self.is_last[k] = degenerate and not self.flat_alone
            self.most = min(self.most, k) if self.is_last[k] else self.most
        return self.inside[k]

    def held_out(self, k: int) -> float:
        """Return the log-likelihood of held-out rows, as if all folds were learnt."""
        if k not in self.outside:
            parts = [
                float(self.learn(k, self.folds != fold)[0][self.folds == fold].sum()) for fold in range(self.n_folds)
            ]
            self.outside[k] = sum(parts) * N_FOLDS / self.n_folds
        return self.outside[k]

    def gain(self, of: Callable[[int], float], k: int, j: int) -> float:
        """Return what each of the parameters that k has more than j gains."""
        rise = of(k) - of(j)
        return rise / max(self.sizes[k] - self.sizes[j], 1)
