"""How many random starts it takes until one is good (Lemma C.1 of the paper)."""

from __future__ import annotations

import math

from scipy.integrate import quad
from scipy.special import erf


def starts_needed(n_components: int) -> float:
    """Return the mean number of starts until |⟨v₁, u⟩| ≥ 2 max |⟨vⱼ, u⟩| over the k − 1 other components.

    Coordinates of a random direction are independent normal variables up to a common factor, so the chance of a start
    is ∫ 2φ(z) P(|z'| ≤ z/2)ᵏ⁻¹ dz, with P(|z'| ≤ z/2) = erf(z / (2√2)). The lemma's second condition, |⟨v₁, u⟩| ≥ 1/√d,
    would make it smaller still.

    Examples
    --------
    >>> from odeco.experiments._starts import starts_needed
    >>> round(starts_needed(2), 2)  # two coordinates: an angle within arctan(1/2) of an axis, π/2 / arctan(1/2)
    3.39
    """

    def density(z: float) -> float:
        return math.sqrt(2 / math.pi) * math.exp(-z * z / 2) * float(erf(z / math.sqrt(8))) ** (n_components - 1)

    return 1 / float(quad(density, 0, 12, points=(1.0, 3.0, 5.0), epsabs=0, epsrel=1e-9, limit=200)[0])
