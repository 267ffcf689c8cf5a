"""What private mechanisms would do with a budget: the plan that is printed before any data is touched."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class MechanismPlan:
    """What one mechanism would do.

    Attributes
    ----------
    mechanism : str
        Its name, as `odeco.private.decompose_privately` takes it.
    n_releases : int
        How many noisy answers it gives.
    noise : float
        Standard deviation of the noise on a coordinate of its first answer.
    smallest_signal : float
        The weight that every component must have to be found with cosine 0.9 through no noise but that of privacy.
    shares : tuple of float
        Shares of μ² that its releases get, for mechanisms that do not treat all alike.
    gain : float
        How much smaller the smallest signal is than with equal shares: 1 where shares are equal.
    remark : str
        What to know before choosing it.
    """

    mechanism: str
    n_releases: int
    noise: float
    smallest_signal: float
    shares: tuple[float, ...] = ()
    gain: float = 1.0
    remark: str = ""


@dataclass(frozen=True)
class PrivacyPlan:
    """What every mechanism would do with a budget, best first; ``str`` gives a table.

    Attributes
    ----------
    epsilon, delta, mu : float
        The budget.
    unit, neighbours : str
        Whom it protects, and the neighbour relation.
    dimension, n_components : int
        The d and k that it was made for.
    mechanisms : tuple of MechanismPlan
        Those that are possible, by smallest signal.
    best : str
        What ``mechanism="auto"`` takes: the first that assumes nothing further about the data.
    """

    epsilon: float
    delta: float
    mu: float
    unit: str
    neighbours: str
    dimension: int
    n_components: int
    mechanisms: tuple[MechanismPlan, ...]
    best: str

    def __getitem__(self, mechanism: str) -> MechanismPlan:
        return next(plan for plan in self.mechanisms if plan.mechanism == mechanism)

    def __str__(self) -> str:
        lines = [
            f"epsilon {self.epsilon:g}, delta {self.delta:g} (mu {self.mu:.4g}), per {self.unit} ({self.neighbours})",
            f"d = {self.dimension}, k = {self.n_components}; auto takes {self.best!r}",
            f"{'mechanism':<16}{'releases':>9}{'noise':>12}{'smallest signal':>17}  budget",
        ]
        for plan in self.mechanisms:
            shares = " ".join(f"{share:.0%}" for share in plan.shares) or "equal"
            gain = f" ({plan.gain:.2f} times better than equal)" if plan.shares else ""
            remark = f"; {plan.remark}" if plan.remark else ""
            lines.append(
                f"{plan.mechanism:<16}{plan.n_releases:>9}{plan.noise:>12.4g}{plan.smallest_signal:>17.4g}  "
                f"{shares}{gain}{remark}"
            )
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps({"kind": "privacy plan", "format_version": 1, **asdict(self)}, indent=2)
