"""What a mixture has learnt, as a file holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from odeco._schema import Rule, Sizes, array, require
from odeco._types import FloatArray, IndexArray
from odeco.latent.number_of_components import ChosenNumber
from odeco.latent.state import State
from odeco.mixtures.gaussians import Gaussians
from odeco.mixtures.learn import Learnt

#: Numbers in a file are at most this large, so that their squares can be added up.
_LARGEST = 1e150


def weights_rule(k: str, *, none: bool = False) -> Rule:
    """Require probabilities, or `none` of them where there may be no mixture yet."""
    numbers = array(k, low=0, high=1)

    def check(value: Any, where: str, sizes: Sizes) -> None:
        numbers(value, where, sizes)
        require(abs(float(value.sum()) - 1) < 1e-6 or (none and not value.size), f"`{where}` must sum to one")

    return check


def means_rule(*shape: str) -> Rule:
    """Require means whose squares can be added up."""
    return array(*shape, low=-_LARGEST, high=_LARGEST)


def covariances_rule(k: str, d: str) -> Rule:
    """Require variances above zero, or covariance matrices that are positive definite."""

    def check(value: Any, where: str, sizes: Sizes) -> None:
        n_axes = value.ndim if isinstance(value, np.ndarray) else 0
        require(1 <= n_axes <= 3, f"`{where}` must have one to three axes")
        low = float(np.finfo(np.float64).tiny) if n_axes < 3 else -_LARGEST
        array(*(k, d, d)[:n_axes], low=low, high=_LARGEST)(value, where, sizes)
        if n_axes == 3:
            require(bool(np.allclose(value, value.transpose(0, 2, 1))), f"`{where}` must be symmetric")
            try:
                np.linalg.cholesky(value)
            except np.linalg.LinAlgError:
                raise ValueError(f"`{where}` must be positive definite") from None

    return check


@dataclass(eq=False)
class FittedMixture(State):
    """A mixture that was learnt.

    Attributes
    ----------
    weights, means, covariances : array
        As of `Gaussians`.
    log_likelihood : float
        Mean log-likelihood of the rows it was learnt from; NaN if that would not be private.
    n_steps : int
        Number of likelihood steps.
    converged : bool
        Whether they ended because the last gained little; if private, whether all components stand clear of noise.
    start : str
        Which start was the best.
    n_rows : int
        Number of rows.
    tried, tried_scores : array
        Numbers of components that were tried, and the mean log-likelihood of rows that were not learnt from.
    """

    RULES: ClassVar[Mapping[str, Rule]] = {
        "weights": weights_rule("fitted k"),
        "means": means_rule("fitted k", "n_features"),
        "covariances": covariances_rule("fitted k", "n_features"),
        "log_likelihood": array(nan=True),
        "n_steps": array(kind="i", low=0),
        "converged": array(kind="b"),
        "start": array(kind="U"),
        "n_rows": array(kind="i", low=0),
        "tried": array("tried", kind="i", low=1),
        "tried_scores": array("tried"),
    }

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray
    log_likelihood: float
    n_steps: int
    converged: bool
    start: str
    n_rows: int
    tried: IndexArray
    tried_scores: FloatArray

    @classmethod
    def of(cls, learnt: Learnt, n_rows: int, chosen: ChosenNumber | None = None) -> FittedMixture:
        """Return what was learnt from so many rows."""
        tried = {} if chosen is None else chosen.tried
        return cls(
            weights=learnt.model.weights,
            means=learnt.model.means,
            covariances=learnt.model.covariances,
            log_likelihood=learnt.log_likelihood,
            n_steps=learnt.n_steps,
            converged=learnt.converged,
            start=learnt.start,
            n_rows=n_rows,
            tried=np.array(list(tried), dtype=np.int64),
            tried_scores=np.array(list(tried.values()), dtype=np.float64),
        )

    @property
    def gaussians(self) -> Gaussians:
        """The mixture itself."""
        return Gaussians(self.weights, self.means, self.covariances)
