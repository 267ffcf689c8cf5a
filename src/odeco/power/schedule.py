"""How often the loop asks: the paper's k, L and R, and how a component gets its weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from odeco._util.arguments import check_choice, check_count, check_n_components, check_tolerance

#: Restarts beyond this number guard only the order in which components are found.
MOST_RESTARTS = 64

#: What a fixed number of iterations aims at, as a share of the weight: streams and private answers are no better.
FIXED_COUNT_ACCURACY = 1e-3


Weigh = Literal["image", "value", "reuse"]


@dataclass(frozen=True)
class Plan:
    """How many candidates, how many iterations, and how a component gets its weight.

    Parameters
    ----------
    n_components, n_restarts, n_iterations : int
        The paper's k, L and R.
    tolerance : float
        Stop a component early when ‖T(I,u,…,u) − λu‖ ≤ tolerance · |λ| for every candidate, and then polish the winner
        to machine precision. 0 is the paper to the letter: exactly `n_iterations`, no polishing.
    weigh : {"image", "value", "reuse"}
        Where the weight of a component is read. ``"image"``: off one more image of the final candidates (Algorithm 1;
        the image also gives the residual). ``"value"``: from one more question for their values (Algorithm 3).
        ``"reuse"``: off the last image, so that no further question is asked (Algorithm 2).
    """

    n_components: int
    n_restarts: int
    n_iterations: int
    tolerance: float = 0.0
    weigh: Weigh = "image"

    def __post_init__(self) -> None:
        check_count("n_components", self.n_components)
        check_count("n_restarts", self.n_restarts)
        check_count("n_iterations", self.n_iterations)
        check_tolerance(self.tolerance)
        check_choice("weigh", self.weigh, ("image", "value", "reuse"))

    @classmethod
    def default(
        cls,
        dimension: int,
        n_components: int,
        *,
        n_restarts: int | None = None,
        n_iterations: int | None = None,
        tolerance: float = 0.0,
        weigh: Weigh = "image",
    ) -> Plan:
        """Fill in what is not given from Theorem 2.2 of the paper.

        The theorem asks for L = Ω(k log k) restarts and R = Ω(log(d / ε)) iterations for an accuracy ε relative to
        the weight. We take L = 2k ln k, at least 10 and at most 64, and R = 10 + log₂(d / ε) with ε the tolerance,
        or 10⁻³ where the number of iterations is fixed.
        """
        k = check_n_components(n_components, dimension)
        if n_restarts is None:
            n_restarts = min(MOST_RESTARTS, max(10, math.ceil(2 * k * math.log(k))))
        if n_iterations is None:
            n_iterations = 10 + math.ceil(math.log2(dimension / (tolerance or FIXED_COUNT_ACCURACY)))
        return cls(k, n_restarts, n_iterations, tolerance, weigh)
