"""The settings of a run: checked once, refused if the method does not use them, and saved in its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from odeco._util.arguments import check_choice, check_count, check_forgetting, check_order
from odeco.online.entries import EntriesSolver
from odeco.online.private import Guarantee, NoisyMean
from odeco.online.range_finder import DEFAULT_ROUNDS, CoreSolver
from odeco.online.run import Batches, BatchMean, FreshRows, Passes, Run
from odeco.online.unknown_rank import CountingSolver
from odeco.power.power_method import PowerSolver, Schedule
from odeco.power.solver import Solver
from odeco.privacy.ledger_file import Account

Method = Literal["core", "power", "entries"]

#: The default of pulled and of pushed runs: the range finder with its core needs far fewer rows.
DEFAULT_METHOD: Method = "core"

METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True)
class Settings:
    """The settings of a run: plain numbers and words, which its file holds.

    Attributes
    ----------
    n_components : int or "auto"
        The number k of components; ``"auto"`` selects it automatically.
    order : int
        The order p of the moment.
    method : {"core", "power", "entries"}
        The solver that finds the components.
    batch_size : int or None
        Rows per batch of fresh rows; None if a batch is a pass over data that can be read again.
    n_restarts, n_iterations : int or None
        The paper's L and R, for ``"power"`` only.
    n_polish : int or None
        Passes that refine, if a batch is a pass.
    forgetting : float
        What the weight of the past is multiplied by before each batch that refines.
    epsilon, delta, norm_bound, neighbour_relation
        The guarantee of a private run; None for others.
    """

    n_components: int | Literal["auto"]
    method: Method = DEFAULT_METHOD
    batch_size: int | None = None
    n_restarts: int | None = None
    n_iterations: int | None = None
    n_polish: int | None = None
    order: int = 3
    forgetting: float = 1.0
    epsilon: float | None = None
    delta: float | None = None
    norm_bound: float | None = None
    neighbour_relation: str | None = None

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        self._check_number()
        if check_order(self.order) != 3 and self.method == "entries":
            raise ValueError(f"method='entries' takes moments of order 3. Got order {self.order}. Take method='core'.")
        check_forgetting(self.forgetting)
        for name in ("n_restarts", "n_iterations"):
            value = getattr(self, name)
            if value is not None and self.method != "power":
                raise ValueError(
                    f"`{name}` is not used by method={self.method!r}. Got {value!r}. Leave it out, or pass "
                    "method='power'."
                )
            if value is not None:
                check_count(name, value)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        if self.n_polish is not None:
            check_count("n_polish", self.n_polish, 0)
        _ = self.guarantee

    def _check_number(self) -> None:
        """Check the number of components, or whether it can be selected automatically."""
        if not self.automatic:
            check_count("n_components", self.n_components)
            return
        if self.method != "core":
            raise ValueError(
                f"n_components='auto' takes method='core', which can hold out rows. Got method={self.method!r}. "
                "Pass n_components as an int, or leave out the method."
            )
        if self.guarantee is not None:
            raise ValueError(
                "A private run needs `n_components` as an int: selecting it would be one more release. Got 'auto'. "
                "Pass the largest number that you expect; `result.clear` shows which are above the noise, at no cost."
            )

    @property
    def automatic(self) -> bool:
        """Whether the number of components is selected automatically."""
        return isinstance(self.n_components, str) and self.n_components == "auto"

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee for every row; None in an open run."""
        given = {"epsilon": self.epsilon, "delta": self.delta, "norm_bound": self.norm_bound}
        if all(value is None for value in given.values()):
            if self.neighbour_relation is not None:
                raise ValueError(
                    f"`neighbour_relation` is for private runs. Got {self.neighbour_relation!r} without `epsilon`, "
                    "`delta` and `norm_bound`. Pass these three, or leave it out."
                )
            return None
        missing = [f"`{name}`" for name, value in given.items() if value is None]
        if self.epsilon is None or self.delta is None or self.norm_bound is None:
            raise ValueError(
                "A private run needs `epsilon`, `delta` and `norm_bound`, all three known without looking at the data. "
                f"Got no {' and no '.join(missing)}. Pass them, or leave out all three for a run without privacy."
            )
        if self.batch_size is not None and not self.delta < 1 / self.batch_size:
            raise ValueError(
                f"`delta` must be below 1/batch_size = {1 / self.batch_size:.3g}: publishing one row in full, at "
                f"random, would satisfy it. Got {self.delta!r}. Take one far below 1/n for the n rows of the whole "
                "stream, such as 1e-9."
            )
        return Guarantee(self.epsilon, self.delta, self.norm_bound, self.neighbour_relation or "replace")

    @property
    def n_questions(self) -> int | None:
        """The number of batches or passes that the solver needs; None if it depends on the number of columns."""
        if self.automatic:
            return None
        if self.method != "power":
            return DEFAULT_ROUNDS + 1 if self.method == "core" else 1
        k = self.n_components
        return None if self.n_iterations is None or isinstance(k, str) else k * self.n_iterations

    @property
    def orthogonal(self) -> bool:
        """Whether components are assumed to be orthogonal, as in private runs: a joint fit learns more noise."""
        return self.guarantee is not None

    def search(self, dimension: int, seed: int) -> Solver:
        """Return the solver in its initial state."""
        k = self.n_components
        if isinstance(k, str):
            return CountingSolver.start(dimension, order=self.order, seed=seed, per_pass=self.batch_size is None)
        if self.method == "core":
            return CoreSolver.start(dimension, k, order=self.order, seed=seed, orthogonal=self.orthogonal)
        if self.method == "entries":
            return EntriesSolver.start(dimension, k, seed=seed, orthogonal=self.orthogonal)
        plan = Schedule.default(
            dimension,
            k,
            n_restarts=self.n_restarts,
            n_iterations=self.n_iterations,
            weight_from="last_image",
        )
        return PowerSolver.start(plan, order=self.order, parts=(dimension,), seed=seed)

    def batches(self, dimension: int, *, stops_when_found: bool = False) -> Batches:
        """Return the policy: a batch is `batch_size` fresh rows, a pass, or a segment of a pass."""
        if self.batch_size is None:
            n_polish = 0 if self.n_polish is None else self.n_polish
            if self.automatic:
                return Passes(CountingSolver.passes(dimension, self.order), n_polish, in_segments=True)
            return Passes(self.n_questions or 0, n_polish)
        return FreshRows(
            self.batch_size,
            self.forgetting,
            stops_when_found,
            found_counts=self.guarantee is None,
            orthogonal=self.orthogonal,
        )

    def mean(self, dimension: int, account: Account | None) -> BatchMean | None:
        """Return the noisy mean of a private run; None for others."""
        guarantee = self.guarantee
        if guarantee is None or account is None:
            return None
        return NoisyMean(guarantee, account, dimension, self.order)

    def start(
        self,
        dimension: int,
        seed: int,
        account: Account | None = None,
        *,
        stops_when_found: bool = False,
        n_closed: int = 0,
    ) -> Run:
        """Return the run before its first row; `n_closed` earlier rows have been paid for."""
        batches = self.batches(dimension, stops_when_found=stops_when_found)
        return Run(self.search(dimension, seed), batches, self.mean(dimension, account), n_closed=n_closed)

    def resume(
        self,
        header: dict[str, Any],
        arrays: dict[str, Any],
        account: Account | None = None,
        *,
        stops_when_found: bool = False,
    ) -> Run:
        """Return the run that `Run.to_arrays` wrote."""
        batches = self.batches(header["dimension"], stops_when_found=stops_when_found)
        return Run.from_arrays(header, arrays, batches, self.mean(header["dimension"], account))
