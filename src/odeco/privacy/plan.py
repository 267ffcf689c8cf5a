"""The plan of a private run, made from public numbers before any data is touched.

It says what every mechanism would do with a budget, and in plain words what the run would find, at
which price, what that price means, and what more budget would buy.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from odeco.privacy.calibration import adversary_accuracy, gdp_mu
from odeco.privacy.report import in_plain_words

#: From this many times the smallest signal on, all components are found in nine runs of ten, by
#: every mechanism (d = 8 to 40, 2 to 5 components of equal weight; other ones: ``python
#: benchmarks/private_models.py plans``).
SURE = 2.0


@dataclass(frozen=True)
class MechanismPlan:
    """What one mechanism would do.

    Attributes
    ----------
    mechanism : str
        Its name, as `odeco.decompose_privately` takes it.
    n_releases : int
        How many noisy answers it gives.
    noise : float
        Standard deviation of the noise on a coordinate of its first answer.
    smallest_signal : float
        The weight from which on about half of the components are found with cosine 0.9 through no
        noise but that of privacy.
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

    @property
    def sure_signal(self) -> float:
        """The weight that every component must have for all to be found in nine runs of ten."""
        return SURE * self.smallest_signal


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
    """What every mechanism would do with a budget, best first; ``str`` says it in plain words, with
    tables.

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
    bound_share : float
        The share of μ² that chooses the bound, which is then the unit of norms; 0 if the bound is
        given.
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
    bound_share: float = 0.0

    @property
    def largest_weight(self) -> float | None:
        """What a weight can be at most, for rows that are all alike and as long as the bound; None
        for entries.
        """
        if self.norm_bound is None:
            return None
        return self.norm_bound**self.order

    def __getitem__(self, mechanism: str) -> MechanismPlan:
        return next(plan for plan in self.mechanisms if plan.mechanism == mechanism)

    def __str__(self) -> str:
        return self.in_words()

    def in_words(self, mechanism: str | None = None) -> str:
        """Return the plan in three sentences and a small table, then all mechanisms, then what the
        terms mean.

        Parameters
        ----------
        mechanism : str, optional
            The mechanism that the sentences are about; by default the `best`.
        """
        chosen = self.best if mechanism is None else mechanism
        sections = [
            _sentences(self, chosen),
            _price_table(self, chosen),
            [
                (
                    f"Mechanisms for d = {self.dimension}, k = {self.n_components}; this run "
                    f"takes {chosen!r}:"
                )
            ],
            _terms(self),
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
                f"{plan.mechanism:<16}{plan.n_releases:>9}{plan.noise:>12.4g}"
                f"{plan.sure_signal:>20.4g}  {shares}{gain}{remark}"
            )
        return lines

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps({"kind": "privacy plan", "format_version": 1, **asdict(self)}, indent=2)


#: What each neighbour relation hides, in words.
_RELATIONS = {
    "replace": "hides whether one {unit} is as it is or any other",
    "add_remove": "hides whether one {unit} is there or blanked",
    "distinct": "hides one distinct entry, which may change by the entry change",
    "literal": (
        "hides one entry as the paper defines it, by which a diagonal entry changes {times} times "
        "as far"
    ),
}


def _sentences(plan: PrivacyPlan, mechanism: str) -> list[str]:
    """Return what will be found from which weight on; what it costs and what more would buy; and
    what that means.
    """
    signal = plan[mechanism].sure_signal
    twice = next(each for each in plan.prospects if each.epsilon == 2 * plan.epsilon)
    chosen = (
        f" The bound on norms is chosen by the run, from noisy counts with {plan.bound_share:.0%} "
        f"of μ²; here it is the unit of norms, and its power {plan.order} that of weights."
    )
    return [
        _finding(plan, signal) + (chosen if plan.bound_share else ""),
        f"It spends ε = {plan.epsilon:g} (δ = {plan.delta:g}) of the privacy of every "
        f"{plan.unit}, once and for all; ε = {twice.epsilon:g} would find weights from "
        f"{SURE * twice.smallest_signals[mechanism]:.3g} on.",
        in_plain_words(adversary_accuracy(plan.mu), plan.unit),
    ]


def _finding(plan: PrivacyPlan, signal: float) -> str:
    if plan.largest_weight is None or plan.n_units is None:
        return f"At this ε, a component must have a weight of {signal:.3g} or more to be found."
    if signal > plan.largest_weight:
        return (
            f"This run finds nothing: a weight of {signal:.3g} would be needed, and {plan.unit}s "
            f"of norm at most {plan.norm_bound:g} have none above {plan.largest_weight:.3g}; "
            f"{_needed(plan, signal):,} {plan.unit}s would be the fewest to find anything."
        )
    return (
        f"At this ε, a component must have a weight of {signal:.3g} or more to be found: about "
        f"{_needed(plan, signal):,} identical {plan.unit}s of norm {plan.norm_bound:g}, of "
        f"{plan.n_units:,}."
    )


def _needed(plan: PrivacyPlan, signal: float) -> int:
    """Return how many units, alike and of the full norm, have this weight; noise falls as 1/n."""
    return math.ceil((plan.n_units or 0) * signal / (plan.largest_weight or 1))


def _price_table(plan: PrivacyPlan, mechanism: str) -> list[str]:
    """Return what other budgets would find, line by line."""
    counted = plan.largest_weight is not None
    heading = f"{'epsilon':>9}  {'adversary right':>15}  {'finds weights from':>18}"
    heading += f"  {f'or this many alike {plan.unit}s':>28}" if counted else ""
    lines = [heading]
    for prospect in plan.prospects:
        signal = SURE * prospect.smallest_signals[mechanism]
        accuracy = adversary_accuracy(gdp_mu(prospect.epsilon, plan.delta))
        line = f"{prospect.epsilon:>9g}  {accuracy:>15.1%}  {signal:>18.3g}"
        if counted:
            number = _needed(plan, signal)
            line += (
                f"  {f'{number:,}' if number <= (plan.n_units or 0) else 'more than there are':>28}"
            )
        lines.append(line + ("  this run" if prospect.epsilon == plan.epsilon else ""))
    return lines


def _terms(plan: PrivacyPlan) -> list[str]:
    """Return what the words of the plan mean."""
    weight = "how large a component is"
    if plan.unit != "entry":
        weight = (
            f"of a component v, the mean of ⟨x, v⟩{_POWERS.get(plan.order, f'^{plan.order}')} "
            f"over all {plan.unit}s x"
        )
    meanings = {
        "weight": f"{weight}; found means a cosine of at least 0.9, of all in nine runs of ten; of "
        "half the weight, about half are found",
        "epsilon, delta": (
            f"the guarantee, for every {plan.unit}: the smaller, the less anybody can learn"
        ),
        "adversary right": (
            f"upper bound on guessing which of two versions of one {plan.unit} was used (chance: "
            "50 %)"
        ),
        "mu": (
            f"both as one number, {plan.mu:.4g} here; runs on the same data add up as the squares "
            "of their mu"
        ),
        "releases": "noisy answers that a mechanism gives, which share the budget",
        "noise": "standard deviation of the noise on a number of the first of them",
        plan.neighbours: _RELATIONS[plan.neighbours].format(
            unit=plan.unit, times=math.factorial(plan.order)
        ),
    }
    width = max(map(len, meanings))
    return [f"{name:<{width}}  {meaning}" for name, meaning in meanings.items()]


_POWERS = {3: "³", 4: "⁴", 5: "⁵"}
