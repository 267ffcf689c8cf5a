"""What kind of components a tensor has, and how a person can say it in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from odeco._util.types import FloatArray

Kind = Literal["orthogonal", "independent", "unexplained"]

#: A cosine counts as zero if it is at most so many standard errors, or at most the root of the rounding error.
_MOST_ERRORS, _ROUNDING = 5.0, 1e-7

_WORDS: dict[Kind, str] = {
    "orthogonal": "orthogonal",
    "independent": "independent but not orthogonal",
    "unexplained": "but they do not explain it",
}


@dataclass(frozen=True)
class Structure:
    """How components stand to each other, and what they leave.

    Attributes
    ----------
    kind : {"orthogonal", "independent", "unexplained"}
        Whether components are orthogonal within their errors; independent only; or leave something behind that is
        neither noise nor explained by as many components as were looked for.
    largest_cosine : float
        The largest cosine of two components, without its sign.
    left : {"nothing", "noise", "more"}
        What is left of the tensor: rounding error, what looks like noise, or something that noise would not show.
    reason : str
        What the judgement rests on, in words.
    """

    kind: Kind
    largest_cosine: float
    left: Literal["nothing", "noise", "more"]
    reason: str

    @property
    def in_words(self) -> str:
        """The kind as part of a sentence."""
        return _WORDS[self.kind]


def largest_cosine(vectors: FloatArray) -> tuple[float, tuple[int, int]]:
    """Return the largest cosine of two different columns, without its sign, and which they are."""
    cosines = np.abs(vectors.T @ vectors)
    np.fill_diagonal(cosines, 0.0)
    place = np.unravel_index(int(np.argmax(cosines)), cosines.shape)
    return float(cosines[place]), (int(place[0]), int(place[1]))


def structure_of(
    vectors: FloatArray, angle_errors: FloatArray, *, left: Literal["nothing", "noise", "more"], complete: bool
) -> Structure:
    """CPFits whether components are orthogonal within their errors.

    An error of angle e spreads over the d − 1 directions around a vector, so that the cosine of two vectors deviates by
    √((e² + e'²)/(d − 1)). `complete` says whether more components could not have been fitted.
    """
    if left == "more" and complete:
        reason = (
            "what they leave is larger than noise of its norm would be on the sphere, and no further component could "
            "be fitted: there may be more components than dimensions, or none"
        )
        return Structure("unexplained", largest_cosine(vectors)[0] if vectors.shape[1] > 1 else 0.0, left, reason)
    if vectors.shape[1] < 2:
        return Structure("orthogonal", 0.0, left, "there is only one")
    cosines = np.abs(vectors.T @ vectors)
    errors = np.sqrt(np.add.outer(angle_errors**2, angle_errors**2) / max(1, vectors.shape[0] - 1))
    beyond = cosines > np.maximum(_MOST_ERRORS * errors, _ROUNDING)
    np.fill_diagonal(beyond, val=False)
    cosine, (first, second) = largest_cosine(vectors)
    if not beyond.any():
        return Structure("orthogonal", cosine, left, f"the largest cosine of two is {cosine:.2g}, within its error")
    where = np.where(beyond, cosines, 0.0)
    first, second = (int(i) for i in np.unravel_index(int(np.argmax(where)), where.shape))
    reason = (
        f"components {min(first, second) + 1} and {max(first, second) + 1} have a cosine of "
        f"{cosines[first, second]:.2g}, with a standard error of {errors[first, second]:.1g}"
    )
    return Structure("independent", cosine, left, reason)


def structure_of_terms(
    factors: Sequence[FloatArray],
    angle_errors: Sequence[FloatArray],
    *,
    left: Literal["nothing", "noise", "more"],
    complete: bool,
) -> Structure:
    """CPFits whether the terms of an asymmetric tensor are orthogonal along every axis, as `structure_of` does."""
    axes = [
        structure_of(vectors, errors, left=left, complete=complete)
        for vectors, errors in zip(factors, angle_errors, strict=True)
    ]
    worst = max(range(len(axes)), key=lambda axis: (axes[axis].kind != "orthogonal", axes[axis].largest_cosine))
    chosen = axes[worst]
    if factors[0].shape[1] < 2 or chosen.kind == "unexplained":
        return chosen
    return replace(chosen, reason=f"along axis {worst}, {chosen.reason}")
