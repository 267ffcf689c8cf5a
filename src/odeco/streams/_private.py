"""Rows that arrive and must stay private: the driver of a search whose every answer is paid for and noisy.

Every question is asked of the next batch of rows, and of no other. So each row goes into one release, batches are
disjoint data, and they compose by maximum: each row has the whole guarantee, however long the stream goes on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from odeco._arguments import check_choice, check_norm_bound
from odeco._types import FloatArray
from odeco.components import Components
from odeco.privacy import (
    MERGE_COSINE,
    ROUNDOFF,
    Account,
    Found,
    PrivacyReport,
    Releaser,
    angles_of,
    found_in_core,
    gdp_mu,
    highest_of,
    merge_duplicates,
    sensitivity,
)
from odeco.result import PrivateStreamDecomposition, StreamDecomposition
from odeco.rows import RowSum, clipped_rows
from odeco.search import CoreSearch, Search, Tracking
from odeco.streams._driver import Driver, State, without_prefix

#: Powers of rows may have so many digits before or after the point: sums of them neither over- nor underflow.
_MOST_DIGITS = 200
_NOISE_FIELDS = ("weight_errors", "angle_errors", "noise_floors")


@dataclass(frozen=True)
class Guarantee:
    """What is promised to every row of a stream.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee for one row.
    norm_bound : float
        The bound B on the norm of a row.
    neighbour_relation : {"replace", "add or remove"}
        What may happen to one row: it is replaced by any other, or blanked out to zeros at its place.
    """

    epsilon: float
    delta: float
    norm_bound: float
    neighbour_relation: str

    def __post_init__(self) -> None:
        _ = self.mu  # refuses what is no guarantee
        check_norm_bound(self.norm_bound)
        check_choice("neighbour_relation", self.neighbour_relation, ("replace", "add or remove"))

    @property
    def mu(self) -> float:
        """The μ of the guarantee."""
        return gdp_mu(self.epsilon, self.delta)

    @property
    def neighbours(self) -> str:
        """The neighbour relation in words."""
        act = "replaced by any other" if self.neighbour_relation == "replace" else "blanked out, or the reverse"
        return f"one row of the stream, of norm at most {self.norm_bound:g}, {act} at its place; their number is public"

    @property
    def replace(self) -> bool:
        """Whether a row may be replaced by any other."""
        return self.neighbour_relation == "replace"


@dataclass(frozen=True, eq=False)
class _Release:
    """What was asked last, of how many rows, and the scale of the noise in the answer; all public."""

    block: FloatArray
    n_rows: int
    scale: float


def as_guarantee(
    epsilon: float | None, delta: float | None, norm_bound: float | None, neighbour_relation: str, batch_size: int
) -> Guarantee | None:
    """Return the guarantee that these numbers make, or None if none of them is given."""
    given = {"epsilon": epsilon, "delta": delta, "norm_bound": norm_bound}
    if all(value is None for value in given.values()):
        return None
    missing = [f"`{name}`" for name, value in given.items() if value is None]
    if epsilon is None or delta is None or norm_bound is None:
        raise ValueError(
            "A private run needs `epsilon`, `delta` and `norm_bound`, all three known without looking at the data. "
            f"Got no {' and no '.join(missing)}. Pass them, or leave out all three for a run without privacy."
        )
    if not delta < 1 / batch_size:
        raise ValueError(
            f"`delta` must be below 1/batch_size = {1 / batch_size:.3g}: publishing one row in full, at random, would "
            f"satisfy it. Got {delta!r}. Take one far below 1/n for the n rows of the whole stream, such as 1e-9."
        )
    return Guarantee(epsilon, delta, norm_bound, neighbour_relation)


def _check_size(norm_bound: float, dimension: int, order: int) -> None:
    """Raise if sums of powers of such rows might over- or underflow: that must not depend on the rows."""
    smallest = order * math.log10(norm_bound)
    largest = smallest + order / 2 * math.log10(dimension)
    if not (smallest > -_MOST_DIGITS and largest < _MOST_DIGITS):
        raise ValueError(
            f"`norm_bound` to the power {order} must lie between 1e-{_MOST_DIGITS} and 1e{_MOST_DIGITS}, with room for "
            f"{dimension:,} columns. Got norm_bound={norm_bound:g}. Measure the rows in another unit."
        )


class PrivateDriver(Driver):
    """A search together with the sum over rows that its question needs, and the ledger that pays for the answer.

    Parameters
    ----------
    state : Search, CoreSearch or Tracking
        Who asks. It sees noisy answers only.
    guarantee : Guarantee
        What every row is promised.
    account : Account
        Pays, one charge a batch, named after its rows; and draws the noise, afresh for every release.

    Notes
    -----
    **Neighbours.** Two streams of the same length that differ in one row, at one place, both rows of norm at most B
    (longer rows are scaled down to it, rows that are not finite count as zeros; what becomes of a row depends on that
    row alone).

    **Sensitivity** of the mean over a batch of n rows: `record_image` for the block of candidates
    as one release, `record_core` for a core; that of another batch is 0. The rounding errors of the computed mean are
    part of what is declared. In whatever order n terms of absolute value at most Bᵖ times the gain of the question are
    added up, and where each is made of inner products of length d, their mean errs by at most n + c d + 16 units of
    roundoff times that, c being the number of inner products; the order may differ between neighbours (CSR rows are
    cut by the numbers they store), so twice this is added.

    **Guarantee.** Question and sensitivity follow from public numbers and earlier noisy answers. The noise is 1/μ
    times the sensitivity, so each answer is μ-GDP for a row of its batch, and says nothing about others given what came
    before. Which row is in which batch is its place in the stream, the same for both neighbours. So the whole
    transcript is μ-GDP (`Ledger`, *disjoint data compose by maximum*).
    """

    def __init__(self, state: State, guarantee: Guarantee, account: Account) -> None:
        _check_size(guarantee.norm_bound, state.candidates.shape[0], state.order)
        self.guarantee, self.account = guarantee, account
        self._known_noise: Found | None = None
        self._last: _Release | None = None
        self._is_dense: bool | None = None
        super().__init__(state)

    def switch(self, state: State, *, n_closed: int | None = None) -> None:
        """Go on with another state, and an empty sum for its question; rows that were in the old one are let go of."""
        before = getattr(self, "state", None)
        if isinstance(state, Tracking) and before is not None and not isinstance(before, Tracking):
            self._known_noise = _sorted(self._known_noise)
        super().switch(state, n_closed=n_closed)

    def take(self, rows: Any) -> None:
        """Add rows to the current question, clipped. If that is interrupted, the whole batch is let go of."""
        dense = isinstance(rows, np.ndarray)
        if self._is_dense not in (None, dense):  # always, not only if the sum notices: when it does depends on the data
            raise TypeError("Rows of a private run must be all dense or all CSR. Got both. Convert them.")
        self._is_dense = dense
        try:
            super().take(clipped_rows(rows, self.guarantee.norm_bound))
        except BaseException:
            self.switch(self.state)
            raise

    def close(self) -> None:
        """Pay, answer the current question with the mean over its rows and noise, and let go of them.

        If that fails, the batch is let go of too: its sum is never released again. Rows that were paid for count as
        taken, others do not.
        """
        total, closed, ledger = self.sum, self.n_closed, self.account.ledger
        n_rows, core = total.n_rows, total.question == "core"
        name = f"rows {closed + 1:,} to {closed + n_rows:,}"
        try:
            answer, scale = Releaser(ledger, self.account.noise, name).release(
                f"core of {total.block.shape[1]}^{total.order} numbers"
                if core
                else f"image of {total.block.shape[1]} candidates together",
                total.finish,
                size=math.prod(total.shape),
                sensitivity=self._sensitivity(total),
                noise_multiplier=1 / self.guarantee.mu,
            )
            if not core:
                # T(I, −u, …) has the sign (−1)^(p−1).
                answer = answer[:, self._members] * (self._signs if total.order % 2 == 0 else 1.0)
            state = self.state
            after = state.advance(answer, n_rows) if isinstance(state, Tracking) else state.advance(answer)
            self._note_noise(after, _Release(total.block, n_rows, scale))
            self.switch(after, n_closed=closed + n_rows)
        except BaseException:
            self.switch(self.state, n_closed=closed + (n_rows if ledger.mu_of(name) > 0 else 0))
            raise

    def _asked(self, state: State) -> FloatArray:
        """Return the block that rows are asked about; candidates of a search that have met are asked as one."""
        block = state.candidates
        self._members, self._signs = np.arange(block.shape[1]), np.ones(block.shape[1])
        if isinstance(state, Search) and not state.done:
            block, self._members, self._signs = merge_duplicates(block, MERGE_COSINE)
        return block

    def described(self, found: StreamDecomposition) -> PrivateStreamDecomposition:
        """Return what was found, with what is guaranteed, every release so far, and what their noise means."""
        noise = self._noise_in_found()
        first = noise.components.largest_first()
        of_noise = [getattr(noise, name)[first] for name in _NOISE_FIELDS]
        report = PrivacyReport.of(
            Releaser(self.account.ledger, self.account.noise),
            private=self.account.is_private,
            epsilon=self.guarantee.epsilon,
            delta=self.guarantee.delta,
            unit="record",
            neighbours=self.guarantee.neighbours,
            mechanism="disjoint batches of a stream, each row in one release",
        )
        return PrivateStreamDecomposition(
            components=found.components,
            weight_errors=of_noise[0] if found.weight_errors is None else found.weight_errors,
            angle_errors=of_noise[1] if found.angle_errors is None else np.minimum(found.angle_errors, math.pi / 2),
            noise_floors=of_noise[2],
            privacy=report,
            n_rows=found.n_rows,
        )

    def _noise_in_found(self) -> Found:
        """Return the components found, with what the known noise says about them.

        Of components that go on learning it is the noise in their mean image: for batches of weight aᵢ, each with the
        same noise, Σ aᵢ²/(Σ aᵢ)² of its variance.
        """
        state, last = self.state, self._last
        if isinstance(state, Tracking) and state.weight > 0 and last is not None:
            scale = last.scale * math.sqrt(last.n_rows * state.squared_weight) / state.weight
            k = state.components.n_components
            return _found_in_images(state.components, np.full(k, scale), k)
        if self._known_noise is None:
            raise RuntimeError("A driver knows of noise in components only once its search has found some.")
        return self._known_noise

    def to_arrays(self, *, keep_sum: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return everything as a JSON header and named arrays: no row, no noise, and the exact sum only if wanted.

        Without the sum the rows of the unfinished batch count as not taken: they have not been paid for.
        """
        try:
            self.sum.let_go_of_rows()
        except BaseException:
            self.switch(self.state)
            raise
        header, arrays = super().to_arrays()
        header["is_dense"] = self._is_dense
        if not keep_sum:
            header["n_rows"] -= self.sum.n_rows
            arrays = {name: array for name, array in arrays.items() if not name.startswith("sum_")}
            arrays["sum_n_rows"] = np.array(0)
        if self._last is not None:
            arrays |= {f"last_{name}": np.asarray(value) for name, value in vars(self._last).items()}
        if self._known_noise is not None:
            found = self._known_noise
            arrays |= {"noise_weights": found.components.weights, "noise_vectors": found.components.vectors}
            arrays |= {f"noise_{name}": getattr(found, name) for name in _NOISE_FIELDS}
        return header, arrays

    def restore(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Take up what `to_arrays` described, but for the state."""
        super().restore(header, arrays)
        self._is_dense = header["is_dense"]
        last, noise = without_prefix("last_", arrays), without_prefix("noise_", arrays)
        if last:
            self._last = _Release(last["block"], int(last["n_rows"]), float(last["scale"]))
        if noise:
            components = Components(noise["weights"], noise["vectors"], self.state.order)
            self._known_noise = Found(components, *(noise[name] for name in _NOISE_FIELDS))

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("A private run must stay one of a kind: a copy would release the same rows twice. Save it.")

    def _note_noise(self, after: State, release: _Release) -> None:
        """Keep what the noise of this release means for components that it completed."""
        if isinstance(after, Search):
            errors = np.zeros(0) if self._known_noise is None else self._known_noise.weight_errors
            if len(after.found) > errors.size:
                self._known_noise = _found_in_images(
                    after.components, np.append(errors, release.scale), after.plan.n_restarts
                )
        elif isinstance(after, CoreSearch) and after.found is not None and self._last is not None:
            outside = _outside_of_span(after.found, self._last)
            self._known_noise = found_in_core(after.found, release.scale, release.block.shape[1], outside)
        self._last = release

    def _sensitivity(self, total: RowSum) -> float:
        bound, n_rows, p = self.guarantee.norm_bound, total.n_rows, total.order
        block, replace = total.block, self.guarantee.replace
        if total.question == "core":
            exact = sensitivity.record_core(block, bound, n_rows, order=p, replace=replace)
            n_products, gain = p, float(np.linalg.norm(block)) ** p
        else:
            exact = sensitivity.record_image(block, bound, n_rows, order=p, replace=replace)
            n_products, gain = p - 1, float(np.linalg.norm(np.linalg.norm(block, axis=0) ** (p - 1)))
        depth = n_rows + n_products * block.shape[0] + 16
        return float(exact + 2 * depth * ROUNDOFF * bound**p * gain)


def _sorted(noise: Found | None) -> Found | None:
    """Bring components in the order in which they go on: largest weight first."""
    if noise is None:
        return None
    first, found = noise.components.largest_first(), noise.components
    sorted_components = Components(found.weights[first], found.vectors[:, first], found.order)
    return Found(sorted_components, *(getattr(noise, name)[first] for name in _NOISE_FIELDS))


def _found_in_images(components: Components, scales: FloatArray, n_looks: int) -> Found:
    """Say what noise of these scales in images means: ⟨v, noise⟩ has that of one coordinate, the best of `n_looks`."""
    floors = scales * highest_of(n_looks)
    return Found(components, scales, angles_of(scales, components), floors)


def _outside_of_span(found: Components, release: _Release) -> FloatArray:
    """Return the angle by which the span of noisy images misses each component, to first order.

    The images are Σ λᵢ vᵢ sᵢᵀ with sᵢ the (p − 1)-st powers of ⟨vᵢ, u⟩ over the candidates u; noise moves vᵢ by what
    the pseudo-inverse of the λᵢ sᵢ makes of it.
    """
    signals = found.weights * (release.block.T @ found.vectors) ** (found.order - 1)
    spread = np.diagonal(np.linalg.pinv(signals.T @ signals))
    angles: FloatArray = release.scale * np.sqrt(found.dimension * np.maximum(spread, 0.0))
    return angles
