"""A tensor in the unit that it is decomposed in, and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from odeco._scale import norm_exponent, put_back
from odeco.components import Components
from odeco.errors import RankError
from odeco.norms import squared_norm
from odeco.oracle import Oracle
from odeco.result import Decomposition
from odeco.tensors import InUnit


@dataclass(frozen=True)
class Unit:
    """A tensor over a power of two, and the way back.

    The loop normalises whatever it is told, so that it does without a shift; see `norm_exponent`.
    """

    given: InUnit
    shift: int = 0

    @classmethod
    def of(cls, given: InUnit, generator: np.random.Generator) -> Unit:
        """Return the unit in which the norm is between 1/2 and 1, or about that where it can only be estimated."""
        size = squared_norm(given, rng=generator) if given.exact else 0.0
        return cls(given, norm_exponent(size))

    @property
    def oracle(self) -> Oracle:
        """The tensor in the unit."""
        return self.given * 2.0**-self.shift

    @property
    def exponent(self) -> int:
        """The exponent of the unit."""
        return (self.given.exponent or 0) + self.shift

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Put what an error has found back into the unit that the tensor was given in."""
        try:
            yield
        except RankError as error:
            weights = put_back(error.found.weights, self.exponent, "weights")
            error.found = Components(weights, error.found.vectors, error.found.order)
            raise

    def put_back(self, result: Decomposition) -> Decomposition:
        """Put a result back into the unit that the tensor was given in."""
        exponent, evidence, errors = self.exponent, result.rank_evidence, result.weight_errors
        if exponent == 0:
            return result
        if evidence is not None:
            weights, levels = (
                put_back(each, exponent, "weights") for each in (evidence.weights, evidence.noise_levels)
            )
            evidence = replace(evidence, weights=weights, noise_levels=levels)
        weights = put_back(result.weights, exponent, "weights")
        return replace(
            result,
            components=Components(weights, result.vectors, result.order),
            residuals=put_back(result.residuals, exponent, "residuals"),
            rank_evidence=evidence,
            weight_errors=None if errors is None else put_back(errors, exponent, "errors of weights"),
        )
