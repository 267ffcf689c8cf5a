"""What private mechanisms would do with a budget: the plan that is printed before any data is touched."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from odeco.privacy._plan_words import price_table, sentences, terms


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
class Prospect:
    """What another budget would find.

    Attributes
    ----------
    epsilon : float
        The budget, with the same δ.
    smallest_signals : dict
        The smallest signal of every mechanism, by its name.
    """

    epsilon: float
    smallest_signals: dict[str, float]


@dataclass(frozen=True)
class PrivacyPlan:
    """What every mechanism would do with a budget, best first; ``str`` says it in plain words, with tables.

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
    prospects : tuple of Prospect
        What half of the ε would find, this one, twice and four times as much.
    order : int
        The order p of the tensor.
    n_units : int or None
        The number of records or users; None for entries.
    norm_bound : float or None
        The bound on the norm of rows; None for entries.
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
    prospects: tuple[Prospect, ...]
    order: int = 3
    n_units: int | None = None
    norm_bound: float | None = None

    @property
    def largest_weight(self) -> float | None:
        """What a weight can be at most, for rows that are all alike and as long as the bound; None for entries."""
        return None if self.norm_bound is None else self.norm_bound**self.order

    def __getitem__(self, mechanism: str) -> MechanismPlan:
        return next(plan for plan in self.mechanisms if plan.mechanism == mechanism)

    def __str__(self) -> str:
        return self.in_words()

    def in_words(self, mechanism: str | None = None) -> str:
        """Return the plan in two sentences and a small table, then all mechanisms, then what the terms mean.

        Parameters
        ----------
        mechanism : str, optional
            The mechanism that the sentences are about; by default the `best`.
        """
        chosen = self.best if mechanism is None else mechanism
        sections = [
            sentences(self, chosen),
            price_table(self, chosen),
            [f"Mechanisms for d = {self.dimension}, k = {self.n_components}; this run takes {chosen!r}:"],
            terms(self),
        ]
        sections[2] += self._mechanism_table()
        return "\n\n".join("\n".join(lines) for lines in sections)

    def _mechanism_table(self) -> list[str]:
        lines = [f"{'mechanism':<16}{'releases':>9}{'noise':>12}{'finds weights from':>20}  budget"]
        for plan in self.mechanisms:
            shares = " ".join(f"{share:.0%}" for share in plan.shares) or "equal"
            gain = f" ({plan.gain:.2f} times better than equal)" if plan.shares else ""
            remark = f"; {plan.remark}" if plan.remark else ""
            lines.append(
                f"{plan.mechanism:<16}{plan.n_releases:>9}{plan.noise:>12.4g}{plan.smallest_signal:>20.4g}  "
                f"{shares}{gain}{remark}"
            )
        return lines

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps({"kind": "privacy plan", "format_version": 1, **asdict(self)}, indent=2)
