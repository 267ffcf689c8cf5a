"""Mixtures whose components are products of parts: each part has the columns of one kind.

A part is an exponential family. Its log-density of a row x in component h is linear in features
T(x) of the row, and its M step needs nothing but the sums Σ r_h T(x) for responsibilities r. So EM
knows nothing else about parts:

- E step: the softmax of log w_h + Σ log p(x | h), where the sum is over parts;
- M step: every part makes its parameters of its own sums.

A missing cell has zeros as features, so it needs no case of its own. Covariance matrices are the
exception: what is expected of a missing number depends on the others of its row
(`odeco.models.engine.rows`).

**One prior for all parts.** Every component has further rows, which are as all rows are: the mean
features of all rows, times a number of rows, are added to its sums. For categories this is a
Dirichlet prior around their frequencies; it keeps variances and rates from zero.

A block is an array with the columns of all parts side by side, in the order of the parts. Numbers
and counts may be NaN; the indicators of a missing category are zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from odeco._util.state import Rule, Sizes, State, array, require
from odeco._util.types import FloatArray, IndexArray


@dataclass(frozen=True, eq=False)
class Part(State, ABC):
    """Columns of one kind. All arrays of parameters have one row for each component."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of columns of a block."""

    @property
    @abstractmethod
    def n_sums(self) -> int:
        """The number of features, whose sums the M step needs."""

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """The number of free parameters of one component."""

    @abstractmethod
    def log_densities(self, block: FloatArray) -> FloatArray:
        """Return the log-density of each row in each component, n x k."""

    @abstractmethod
    def sums(self, block: FloatArray, shares: FloatArray) -> FloatArray:
        """Return the sums of features for responsibilities (n x k), n_sums x k."""

    @abstractmethod
    def m_step(self, sums: FloatArray, floor: FloatArray) -> Self:
        """Return the likeliest parameters for sums; `floor` is added to the variances of
        numbers.
        """

    @abstractmethod
    def draw(self, labels: IndexArray, random: np.random.RandomState) -> FloatArray:
        """Draw a row of a block from the component of each label."""

    @abstractmethod
    def embed(self, block: FloatArray) -> FloatArray:
        """Return coordinates of rows in which every column counts alike, for starts."""


def weights_rule(k: str) -> Rule:
    """Require probabilities that sum to one."""
    numbers = array(k, low=0, high=1)

    def check(value: Any, where: str, sizes: Sizes) -> None:
        numbers(value, where, sizes)
        require(abs(float(value.sum()) - 1) < 1e-6, f"`{where}` must sum to one")

    return check


def draw_labels(weights: FloatArray, n_rows: int, random: Any) -> IndexArray:
    """Draw the component of each of some rows; those of one component are together."""
    # Weights may sum to one and a rounding error, which NumPy refuses.
    numbers = random.multinomial(n_rows, weights / weights.sum())
    return np.repeat(np.arange(weights.size), numbers)


def normalize(joint: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the exponentials of logarithms, divided by their sums along the last axis, and the
    logarithms of these; in place.
    """
    largest = joint.max(axis=-1)
    joint -= largest[..., None]
    np.exp(joint, out=joint)
    totals = joint.sum(axis=-1)
    joint /= totals[..., None]
    return joint, largest + np.log(totals)


def squared_norms(rows: FloatArray) -> FloatArray:
    """Return the squared norm of each row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))
