"""A release: charge the ledger, compute, add noise, in this order. This happens nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odeco._util.types import FloatArray
from odeco.privacy.ledger import ALL_DATA, Ledger
from odeco.privacy.noise import (
    NoiseSource,
    SecureNoise,
    grid_of,
    noise_scale,
    noisy,
    rounding_slack,
)


def above(keys: Any, numbers: FloatArray, threshold: float) -> tuple[NDArray[np.str_], FloatArray]:
    """Return the texts whose noisy numbers reach a threshold, sorted, and these numbers.

    This is all that is released. The array is made anew from the texts that pass: the type of
    `keys` would reveal the length of the longest of all, and their order the places of the others.
    """
    passed = np.flatnonzero(numbers >= threshold)
    names = np.array([str(key) for key in keys[passed]], dtype=np.str_)
    order = np.argsort(names, kind="stable")
    return names[order], numbers[passed][order]


def _ignore(what: str) -> None:
    """Do nothing: the default callback."""


@dataclass(frozen=True)
class Releases:
    """The progress of a private run. All of it is public; none of it depends on the data.

    Attributes
    ----------
    stage : str
        What was released last, in the words of the ledger.
    n_releases, n_planned : int
        Releases that were made, and that the plan has.
    """

    stage: str
    n_releases: int
    n_planned: int

    @property
    def fraction(self) -> float:
        """Share of the releases that were made."""
        return min(1.0, self.n_releases / self.n_planned)


@dataclass(frozen=True, eq=False)
class Releaser:
    """A ledger that is charged and a source that draws the noise: all that a mechanism needs for a
    release.

    Attributes
    ----------
    ledger : Ledger
        Is charged for every release, or refuses it.
    noise : NoiseSource
        Draws the noise. Releases are private only if it is a `SecureNoise`.
    data : str or tuple of str
        The pieces of data that the answers depend on; see `Ledger`.
    callback : callable, optional
        Receives what was released, in the words of the ledger, after every release.
    """

    ledger: Ledger
    noise: NoiseSource = field(default_factory=SecureNoise)
    data: str | tuple[str, ...] = ALL_DATA
    callback: Callable[[str], None] = _ignore

    @property
    def is_private(self) -> bool:
        """Whether the noise is that of the operating system, and not of a stand-in or subclass."""
        return type(self.noise) is SecureNoise

    def release(
        self,
        what: str,
        answer: Callable[[], FloatArray],
        *,
        size: int,
        sensitivity: float,
        noise_multiplier: float,
    ) -> tuple[FloatArray, float]:
        """Return ``answer() + scale · N(0, I)`` and the scale, having charged the ledger before
        anything is computed.

        Parameters
        ----------
        what : str
            What is released, for the reader of the ledger.
        answer : callable
            Computes the `size` numbers; called only if the ledger agrees.
        size : int
            How many numbers are released: the slack of their rounding is charged too.
        sensitivity : float
            Largest Euclidean change of the answer between neighbours.
        noise_multiplier : float
            z: the noise has z times the sensitivity, so this release is 1/z-GDP.
        """
        scale = noise_scale(sensitivity, noise_multiplier, size)
        slack = rounding_slack(
            size, grid_of(scale)
        )  # raises for a sensitivity of 0 or NaN, before anything is charged
        self.ledger.charge(what, sensitivity + slack, scale, data=self.data)
        released = noisy(self._quietly(answer), scale, self.noise)
        self.callback(what)
        return released, scale

    def release_above(
        self,
        what: str,
        answer: Callable[[], tuple[Any, FloatArray]],
        *,
        sensitivity: float,
        scale: float,
        threshold: float,
        delta: float,
    ) -> tuple[NDArray[np.str_], FloatArray]:
        """Return those of some keys whose numbers reach a threshold after noise, and these noisy
        numbers.

        Which keys there are depends on the data, so neither a charge nor a message may depend on
        their number. The numbers are multiples of ``grid_of(scale)``: rounding moves none of them,
        and no slack for it is charged.

        Parameters
        ----------
        what : str
            What is released, for the reader of the ledger.
        answer : callable
            Computes an array of texts, each once, and a number for each; called only if the ledger
            agrees.
        sensitivity : float
            Largest Euclidean change of the numbers between neighbours, over the keys that both
            have.
        scale : float
            Standard deviation of the noise.
        threshold : float
            What a number must reach.
        delta : float
            A bound on the probability that a key passes which only one of the neighbours has.
        """
        self.ledger.charge(what, sensitivity, scale, data=self.data, delta=delta)
        with np.errstate(all="ignore"):
            keys, numbers = answer()
        return above(keys, noisy(numbers, scale, self.noise), threshold)

    def release_columns(
        self,
        what: str,
        answer: Callable[[], FloatArray],
        *,
        shape: tuple[int, ...],
        sensitivities: FloatArray,
        noise_multiplier: float,
    ) -> tuple[FloatArray, FloatArray]:
        """Return an answer whose last axis holds separate releases, each with noise for its own
        sensitivity.

        All are charged in one step, so that a refusal leaves nothing half charged: as n releases of
        the column whose ratio of sensitivity to noise is largest. The ratios are all 1/z, up to
        rounding.
        """
        *rest, n_columns = shape
        size = int(np.prod(rest, dtype=np.int64))
        scales = [noise_scale(float(each), noise_multiplier, size) for each in sensitivities]
        slacks = [rounding_slack(size, grid_of(scale)) for scale in scales]
        charged = [float(each) + slack for each, slack in zip(sensitivities, slacks, strict=True)]
        worst = max(range(n_columns), key=lambda column: charged[column] / scales[column])
        self.ledger.charge(what, charged[worst], scales[worst], count=n_columns, data=self.data)
        exact = self._quietly(answer)
        columns = [
            noisy(exact[..., column], scale, self.noise) for column, scale in enumerate(scales)
        ]
        self.callback(what)
        return np.stack(columns, axis=-1), np.array(scales)

    @staticmethod
    def _quietly(answer: Callable[[], FloatArray]) -> FloatArray:
        # A warning about overflow would be an answer without noise.
        with np.errstate(all="ignore"):
            return answer()
