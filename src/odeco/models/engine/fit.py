"""What every model has learnt: parameters, context, facts about the fit, sufficient statistics,
fitted attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, Self

import numpy as np

from odeco._util.state import State, array_field, part_field, require
from odeco._util.types import BoolArray, FloatArray, IndexArray


@dataclass(frozen=True, eq=False)
class Statistics(State):
    """Sufficient statistics of rows: a sum over rows, so that threads and streams need only `+` and
    `scaled`.

    Attributes
    ----------
    n : float
        Number of rows.
    log_likelihood : float
        The sum of the log-likelihoods of the rows.
    """

    n: float = array_field(low=0)
    log_likelihood: float = array_field()

    def __add__(self, other: Self) -> Self:
        return replace(
            self,
            **{
                each.name: getattr(self, each.name) + getattr(other, each.name)
                for each in fields(self)
            },
        )

    def scaled(self, factor: float) -> Self:
        """Return the statistics, multiplied by a factor."""
        return replace(
            self, **{each.name: factor * getattr(self, each.name) for each in fields(self)}
        )


@dataclass(frozen=True, eq=False)
class NoContext(State):
    """The context of models whose M step needs nothing but statistics."""


@dataclass(frozen=True, eq=False)
class Info(State):
    """Facts about a fit that every model states.

    Attributes
    ----------
    n_samples : int
        Number of rows, or of whatever a record is.
    log_likelihood : float
        Mean log-likelihood of a row; NaN if the model has none, or if it would not be private.
    n_iter : int
        Number of iterations; of a stream, number of blocks.
    converged : bool
        Whether the iterations ended because the last gained little.
    init : str
        Which start was the best.
    tried, tried_scores, tried_as_good : array
        The numbers of components that were tried, in rising order, the score of each on held-out
        data (NaN if it was ruled out before), and whether it is about as good as the one selected.
    selected : int
        The number of components that was selected among these; 0 if it was given.
    gain_over_one : float
        By how much the log-likelihood exceeds that of one component, less what the further
        parameters cost by the Bayesian information criterion; NaN if it is not known.
    cautions : array of str
        What was found that the model rules out (`assumptions` of models), a sentence each.
    """

    n_samples: int = array_field(kind="i", low=0)
    log_likelihood: float = array_field(nan=True, default=math.nan)
    n_iter: int = array_field(kind="i", low=0, default=0)
    converged: bool = array_field(kind="b", default=True)
    init: str = array_field(kind="U", default="")
    tried: IndexArray = array_field("tried", kind="i", low=1, default=np.zeros(0, np.int64))
    tried_scores: FloatArray = array_field("tried", nan=True, default=np.zeros(0))
    tried_as_good: BoolArray = array_field("tried", kind="b", default=np.zeros(0, bool))
    selected: int = array_field(kind="i", low=0, default=0)
    gain_over_one: float = array_field(nan=True, default=math.nan)
    cautions: Any = array_field(None, kind="U", default=np.zeros(0, np.str_))

    def check(self) -> None:
        """Require one score for every number that was tried, and a best one."""
        sizes = {self.tried.size, self.tried_scores.size, self.tried_as_good.size}
        require(
            len(sizes) == 1, "it must have a score for every number of components that was tried"
        )
        require(
            not self.tried.size or bool(self.tried_as_good.any()),
            "one number of components must be the best",
        )


@dataclass(frozen=True, eq=False)
class Fit(State):
    """A fitted model.

    Attributes
    ----------
    params : State
        The parameters of the model, of the type `Spec.Params`.
    context : State
        What belongs to the data and not to the parameters (categories, vocabulary, variance floor),
        of the type `Spec.Context`.
    info : Info
        Facts about the fit.
    """

    params: Any = part_field()
    context: Any = part_field()
    info: Info = part_field(Info)


def largest_first(params: Any) -> Any:
    """Return the same components in the order of their weights."""
    return params.permuted(np.argsort(-params.weights, kind="stable"))


class fitted(property):  # noqa: N801 - used as a declaration, like property
    """A fitted attribute: a path into the fit such as ``"params.weights"``, or a function of the
    fit.
    """

    def __init__(self, path: str | Callable[[Fit], Any], doc: str) -> None:
        get = path if callable(path) else lambda fit: reduce(getattr, path.split("."), fit)
        super().__init__(lambda model: get(model._fit_for(self._name)), doc=doc)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
