"""The settings of a run: checked once, refused if the method does not use them, and saved in its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from odeco._util.arguments import check_choice, check_count, check_forgetting, check_number, check_order
from odeco.online.batches import Batches, FreshRows, OnePass, Passes
from odeco.online.entries import (
    DEFAULT_ROUNDS,
    CoreSolver,
    EntriesSolver,
    MomentSolver,
    check_columns,
    moment_bytes,
)
from odeco.online.fourth_solver import FourthMomentSolver, whole_bytes
from odeco.online.one_pass import DriftSolver, OnePassSolver
from odeco.online.private import Guarantee, NoisyMean
from odeco.online.run import BatchMean, Run
from odeco.power.power_method import PowerSolver, Schedule
from odeco.power.solver import Solver
from odeco.privacy.ledger_file import Account

Method = Literal["auto", "core", "power", "entries"]

DEFAULT_METHOD: Method = "auto"

METHODS: tuple[Method, ...] = get_args(Method)

Moment = Literal["raw", "cumulant"]

DEFAULT_MOMENT: Moment = "raw"

MOMENTS: tuple[Moment, ...] = get_args(Moment)

#: The memory that a run may use by default, in megabytes.
DEFAULT_MEMORY = 256.0

#: Up to this number of columns adding up the whole moment is cheap.
FEW_COLUMNS = 100


@dataclass(frozen=True)
class Settings:
    """The settings of a run: plain numbers and words, which its file holds.

    Attributes
    ----------
    n_components : int or "auto"
        The number k of components; ``"auto"`` selects it automatically.
    order : int
        The order p of the moment.
    moment : {"raw", "cumulant"}
        Whether the moment is decomposed, or at orders 3 and 4 the cumulant.
    method : {"auto", "core", "power", "entries"}
        The solver that finds the components; see `chosen_method`.
    batch_size : int or None
        Rows per batch: for Algorithm 2, for private runs, and the unit of `forgetting`.
    n_restarts, n_iterations : int or None
        The paper's L and R, for ``"power"`` only.
    n_passes : int or None
        How often data that can be read again are read; None if rows are read once.
    memory : float
        The memory that rows and matrices of an open run may take, in megabytes.
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
    order: int = 3
    n_passes: int | None = None
    memory: float = DEFAULT_MEMORY
    forgetting: float = 1.0
    epsilon: float | None = None
    delta: float | None = None
    norm_bound: float | None = None
    neighbour_relation: str | None = None
    moment: Moment = DEFAULT_MOMENT

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        check_choice("moment", self.moment, MOMENTS)
        self._check_number()
        private = self.guarantee is not None  # which is checked
        if check_order(self.order) not in ((3,) if private else (3, 4)) and self.method == "entries":
            orders = "order 3 in a private run" if private else "order 3 or 4"
            raise ValueError(f"method='entries' takes moments of {orders}. Got order {self.order}. Take method='core'.")
        summed = self.order == 3 or self.method in ("auto", "entries")  # at order 4 it takes the whole moment
        if self.moment == "cumulant" and (self.order not in (3, 4) or private or not summed):
            raise ValueError(
                "moment='cumulant' takes order=3, or order=4 and method='entries', without privacy. Got "
                f"order={self.order!r} and method={self.method!r}{' in a private run' if private else ''}. "
                "Pass one of these and leave out the rest, or take moment='raw'."
            )
        check_forgetting(self.forgetting)
        check_number("memory", self.memory, 0, 2**40)
        for name in ("n_restarts", "n_iterations"):
            value = getattr(self, name)
            if value is not None and self.method != "power":
                raise ValueError(
                    f"`{name}` is not used by method={self.method!r}. Got {value!r}. Leave it out, or pass "
                    "method='power'."
                )
            if value is not None:
                check_count(name, value)
        if self.n_passes is not None:
            check_count("n_passes", self.n_passes)
        self._check_batch_size(private=private)

    def _check_batch_size(self, *, private: bool) -> None:
        """Check the number of rows per batch, which only some runs have."""
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        if self.has_batches and self.batch_size is None:
            what = "a private run: each release is the mean over one batch" if private else 'method="power"'
            what = what if private or self.method == "power" else "`forgetting` below 1, whose unit it is"
            raise ValueError(f"`batch_size` must be given for {what}. Got None.")
        if not self.has_batches and self.batch_size is not None:
            raise ValueError(
                f"`batch_size` is not used by method={self.method!r}: everything depends on the count of rows. Got "
                f"{self.batch_size!r}. Leave it out."
            )
        if self.forgetting < 1 and (self.method == "entries" or self.moment == "cumulant") and not private:
            raise ValueError(
                "method='entries' averages over all rows. So does moment='cumulant'. Got forgetting below 1. Take "
                "method='core' and moment='raw'."
            )

    @property
    def centred(self) -> bool:
        """Whether the mean of the rows is subtracted: the third cumulant is the moment of what is left."""
        return self.moment == "cumulant" and self.order == 3

    @property
    def has_batches(self) -> bool:
        """Whether rows come in batches of `batch_size`; otherwise the count of rows decides."""
        return self.method == "power" or self.forgetting < 1 or self.private

    def _check_number(self) -> None:
        """Check the number of components, or whether it can be selected automatically."""
        if not self.automatic:
            check_count("n_components", self.n_components)
            return
        if self.method not in ("auto", "core") and not (self.method == "entries" and self.order == 4):
            raise ValueError(
                f"n_components='auto' takes method='core', which can hold out rows. Got method={self.method!r}. "
                "Pass n_components as an int, or leave out the method."
            )
        if self.private:
            raise ValueError(
                "A private run needs `n_components` as an int: selecting it would be one more release. Got 'auto'. "
                "Pass the largest number that you expect; `result.clear` shows which are above the noise, at no cost."
            )

    @property
    def automatic(self) -> bool:
        """Whether the number of components is selected automatically."""
        return isinstance(self.n_components, str) and self.n_components == "auto"

    @property
    def private(self) -> bool:
        """Whether the run is private."""
        return self.epsilon is not None

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

    def chosen_method(self, dimension: int) -> tuple[Method, str]:
        """Return the method, and why it was chosen."""
        if self.method != "auto":
            return self.method, "as given"
        fourth = self._fourth_moment_reason(dimension)
        if fourth is not None:
            return "entries", fourth
        if self.order != 3:
            return "core", "the whole moment is added up at order 3, and at order 4 where it must be"
        if self.automatic:
            return "core", "rows are held out to select the number of components"
        if self.forgetting < 1 and not self.private:
            return "core", "the last rows are kept, to find components that appear"
        if dimension > FEW_COLUMNS:
            return "core", f"with more than {FEW_COLUMNS} columns the whole moment would take longer"
        if moment_bytes(dimension) > self.bytes_allowed:
            return "core", "the whole moment does not fit into the memory allowed"
        return "entries", f"with at most {FEW_COLUMNS} columns the whole moment is cheap"

    def _fourth_moment_reason(self, dimension: int) -> str | None:
        """Return why the fourth moment is added up: it must be, or, for an unknown number, it can be. None if not."""
        if self.order != 4 or self.private or self.forgetting < 1:
            return None
        if self.moment == "cumulant":
            return "a cumulant takes the whole fourth moment"
        if isinstance(self.n_components, int) and self.n_components > dimension:
            return "more components than columns take the whole fourth moment"
        if self.automatic and whole_bytes(dimension) <= self.bytes_allowed:
            return "the whole fourth moment fits into the memory allowed, and shows the number of components"
        return None

    def takes_one_pass(self, dimension: int) -> bool:
        """Return whether one pass is enough: the fourth moment is added up."""
        return self.order == 4 and self.chosen_method(dimension)[0] == "entries"

    def check_can_be_weighted(self, dimension: int) -> None:
        """Raise if rows of this run cannot have weights (`odeco.online.weights` says why)."""
        given = None
        if self.moment == "cumulant":
            given = "moment='cumulant', which needs lower moments too, whose rows have other roots"
        elif self.takes_one_pass(dimension) and self.automatic:
            given = "n_components='auto' for the whole fourth moment, in coordinates that need the second moment"
        elif self.forgetting < 1:
            given = f"forgetting={self.forgetting}: results are divided by the mean weight, which would have to fade "
            given += "with the rows that a search keeps, and these are kept without weights"
        if given is not None:
            raise ValueError(
                f"`sample_weight` is for raw moments over all rows. Got {given}. Leave that out, or repeat rows."
            )

    @property
    def bytes_allowed(self) -> int:
        """The memory that a run may use, in bytes."""
        return max(1, int(self.memory * 1e6))

    @property
    def n_batches(self) -> int | None:
        """The number of batches until there are components; None if it is not known before the first rows."""
        if self.private and self.method in ("core", "entries"):
            return DEFAULT_ROUNDS + 1 if self.method == "core" else 1
        k = self.n_components
        return k * self.n_iterations if self.method == "power" and self.n_iterations and isinstance(k, int) else None

    def search(self, dimension: int, seed: int) -> Solver:
        """Return the solver in its initial state."""
        k = None if isinstance(self.n_components, str) else self.n_components
        method, memory, order = self.chosen_method(dimension)[0], self.bytes_allowed, self.order
        # Private components are taken to be orthogonal: a joint fit learns more noise.
        private, in_passes = self.private, self.n_passes is not None and self.n_passes > 1
        if method == "power" and k is not None:
            L, R = self.n_restarts, self.n_iterations
            schedule = Schedule.default(dimension, k, n_restarts=L, n_iterations=R, weight_from="last_image")
            return PowerSolver.start(schedule, order=order, parts=(dimension,), seed=seed)
        if method == "entries" and order == 4:
            cumulant = self.moment == "cumulant"
            return FourthMomentSolver.start(dimension, k, seed=seed, memory=memory, cumulant=cumulant)
        if method == "entries" and k is not None:
            check_columns(dimension)
            if private or in_passes:
                return EntriesSolver.start(dimension, k, seed=seed, orthogonal=private)
            return MomentSolver.start(dimension, k, seed=seed)
        if private and k is not None:
            return CoreSolver.start(dimension, k, order=order, seed=seed, orthogonal=True)
        begun = OnePassSolver.start(dimension, k, order=order, seed=seed, memory=memory, in_passes=in_passes)
        if self.forgetting == 1 or self.batch_size is None:
            return begun
        return DriftSolver(
            dimension, order, seed, memory, in_passes, k, forgetting=self.forgetting, batch_rows=self.batch_size
        )

    def batches(self) -> Batches:
        """Return the policy: a batch is `batch_size` fresh rows, a pass or a segment of one, or a count of rows."""
        if self.batch_size is not None and (self.method == "power" or self.private):
            return FreshRows(self.batch_size, self.forgetting, private=self.private)
        if self.n_passes is not None and self.n_passes > 1:
            return Passes(self.n_passes)
        return OnePass()

    def mean(self, dimension: int, account: Account | None) -> BatchMean | None:
        """Return the noisy mean of a private run; None for others."""
        guarantee = self.guarantee
        if guarantee is None:
            return None
        if account is None:
            raise RuntimeError("A private run must have an account that pays for its releases.")
        return NoisyMean(guarantee, account, dimension, self.order)

    def start(self, dimension: int, seed: int, account: Account | None = None, *, n_closed: int = 0) -> Run:
        """Return the run before its first row; `n_closed` earlier rows have been paid for."""
        return Run(self.search(dimension, seed), self.batches(), self.mean(dimension, account), n_closed=n_closed)
