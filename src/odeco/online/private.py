"""Private streams: the mean over every batch is released with noise, and charged to a ledger.

Every query uses the next batch of rows, and no other. So each row is in one release, batches are disjoint data, and
they compose by maximum: each row has the whole guarantee, for a stream of any length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from odeco._util.arguments import check_choice, check_norm_bound
from odeco._util.state import State, array_field, part_field, usable_array
from odeco._util.types import FloatArray
from odeco.decompose.result import PrivateStreamDecomposition, StreamDecomposition
from odeco.online.run import BatchMean, Run
from odeco.online.sums import RowSum
from odeco.power.solver import Solver
from odeco.privacy.calibration import check_delta_for, gdp_mu
from odeco.privacy.found import Found, found_in_core, found_in_entries, found_in_images
from odeco.privacy.holders.lanes import clipped_rows
from odeco.privacy.holders.protocol import ROUNDOFF, multiplicities
from odeco.privacy.holders.records import RecordLevel
from odeco.privacy.ledger_file import Account
from odeco.privacy.oracle import MERGE_COSINE, merge_duplicates
from odeco.privacy.release import Releaser
from odeco.privacy.report import PrivacyReport
from odeco.privacy.sensitivity import RecordSensitivities
from odeco.tensors.components import Components

#: The largest number of digits of powers of rows before or after the point: their sums neither over- nor underflow.
_MOST_DIGITS = 200

_NOISE_FIELDS = ("weight_errors", "angle_errors", "noise_floors")


@dataclass(frozen=True)
class Guarantee:
    """The guarantee for every row of a stream.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee for one row.
    norm_bound : float
        The bound B on the norm of a row.
    neighbour_relation : {"replace", "add_remove"}
        What may happen to one row: it is replaced by any other, or blanked at its place.
    """

    epsilon: float
    delta: float
    norm_bound: float
    neighbour_relation: str

    def __post_init__(self) -> None:
        _ = self.mu  # refuses what is no guarantee
        check_norm_bound(self.norm_bound)
        check_choice("neighbour_relation", self.neighbour_relation, ("replace", "add_remove"))

    @property
    def mu(self) -> float:
        """The μ of the guarantee."""
        return gdp_mu(self.epsilon, self.delta)

    @property
    def neighbours(self) -> str:
        """The neighbour relation in words."""
        act = "replaced by any other" if self.replace else "blanked, or the reverse"
        return f"one row of the stream, of norm at most {self.norm_bound:g}, {act} at its place; their number is public"

    @property
    def replace(self) -> bool:
        """Whether a row may be replaced by any other."""
        return self.neighbour_relation == "replace"


@dataclass(frozen=True, eq=False)
class Release(State):
    """The last query, the number of its rows, and the scale of the noise in the reply; all public."""

    block: FloatArray = array_field("d", None, rule=usable_array("d", None))
    n_rows: int = array_field(kind="i", low=1)
    scale: float = array_field(rule=usable_array(low=0))
    question: str = array_field(kind="U")


@dataclass(frozen=True, eq=False)
class Notes(State):
    """What a private run remembers from one batch to the next; all public.

    Attributes
    ----------
    dense : bool or None
        Whether rows are dense or CSR; None before the first.
    last : Release or None
        The last release.
    found : Found or None
        The components found, in the order of their discovery, with what the noise says about them.
    """

    dense: bool | None = array_field(kind="b", default=None)
    last: Release | None = part_field(Release, default=None)
    found: Found | None = part_field(Found, default=None)


class NoisyMean(BatchMean):
    """Replies with the mean over the rows of a batch and noise, which a ledger pays for.

    Parameters
    ----------
    guarantee : Guarantee
        What every row is promised.
    account : Account
        Pays, one charge a batch, named after its rows; and draws the noise, afresh for every release.
    dimension, order : int
        The number of columns, and the order of the moment.

    Notes
    -----
    **Neighbours.** Two streams of the same length that differ in one row, at one place, both rows of norm at most B
    (longer rows are scaled down to it, rows that are not finite count as zeros; what becomes of a row depends on that
    row alone).

    **Sensitivity** of the mean over a batch of n rows: that of `RecordSensitivities` for the image of the block of
    candidates as one release, for a core, or for all distinct entries, each multiplied by the root of how often it
    stands in the tensor, so that their norm is that of the tensor; that of another batch is 0. The rounding errors of
    the computed mean are part of what is declared. In whatever order n terms of absolute value at most Bᵖ times the
    gain of the query are added up, and where each is made of inner products of length d, their mean errs by at most
    n + c d + 16 units of roundoff times that, c being the number of inner products; the order may differ between
    neighbours (CSR rows are cut by the numbers they store), so twice this is added.

    **Guarantee.** Query and sensitivity follow from public numbers and earlier releases. The noise is 1/μ times the
    sensitivity, so each release is μ-GDP for a row of its batch, and says nothing about others given what came before.
    Which row is in which batch is its place in the stream, the same for both neighbours. So the whole transcript is
    μ-GDP (`Ledger`, *disjoint data compose by maximum*).
    """

    def __init__(self, guarantee: Guarantee, account: Account, dimension: int, order: int) -> None:
        _check_size(guarantee.norm_bound, dimension, order)
        self.guarantee, self.account, self.norm_bound = guarantee, account, guarantee.norm_bound

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("A private run must stay one of a kind: a copy would release the same rows twice. Save it.")

    def sum_for(self, state: Solver) -> RowSum:
        """Return the empty sum for the query of a solver; probes that have converged to one vector are merged."""
        plain = super().sum_for(state)
        if not _merges(state):
            return plain
        return RowSum(plain.question, merge_duplicates(plain.block, MERGE_COSINE)[0], plain.order)

    def prepare(self, rows: Any) -> Any:
        """Return rows clipped to the bound."""
        return clipped_rows(rows, self.guarantee.norm_bound)

    def notes_after_rows(self, notes: Notes | None, *, dense: bool) -> Notes:
        """Return the notes after rows. Dense and CSR rows in one run are refused, whatever they hold."""
        notes = notes or Notes()
        if notes.dense not in (None, dense):  # always, not only if the sum notices: when it does depends on the data
            raise TypeError("Rows of a private run must be all dense or all CSR. Got both. Convert them.")
        return replace(notes, dense=dense)

    def reply(self, run: Run, *, keep: bool = False) -> tuple[FloatArray, Release]:
        """Charge the ledger, and return the mean with noise. The sum is dropped: it is never released again."""
        if keep:
            raise RuntimeError("A private run releases complete batches only.")
        total, first, state = run.total, run.n_closed + 1, run.state
        n_rows = total.n_rows
        check_delta_for(self.guarantee.delta, first + n_rows - 1, "record")  # the rows of all batches count
        # The norm of the distinct entries is that of the tensor once each counts as often as it stands there.
        counts = multiplicities(total.block.shape[0]) ** 0.5 if total.question == "entries" else 1.0
        releaser = Releaser(self.account.ledger, self.account.noise, f"rows {first:,} to {first + n_rows - 1:,}")
        answer, scale = releaser.release(
            _in_words(total),
            lambda: total.finish() * counts,
            size=math.prod(total.shape),
            sensitivity=self._sensitivity(total),
            noise_multiplier=1 / self.guarantee.mu,
        )
        answer /= counts
        if _merges(state):
            _, members, signs = merge_duplicates(state.probes, MERGE_COSINE)
            # T(I, −u, …) has the sign (−1)^(p−1).
            answer = answer[:, members] * (signs if total.order % 2 == 0 else 1.0)
        return answer, Release(total.block, n_rows, scale, total.question)

    def notes_after(self, run: Run, release: Release, after: Solver) -> Notes:
        """Keep the release, and the errors that its noise causes in components that it completed."""
        notes: Notes = run.notes
        known, components = notes.found, after.components
        errors = np.zeros(0) if known is None else known.weight_errors
        if release.question == "entries":
            known = found_in_entries(components, release.scale, RecordLevel.entry_units)
        elif release.question == "core" and notes.last is not None:
            outside = _outside_of_span(components, notes.last)
            known = found_in_core(components, release.scale, release.block.shape[1], outside)
        elif components.n_components > errors.size:
            scales = np.append(errors, release.scale)
            known = found_in_images(components, scales, scales, run.state.probes.shape[1])
        return replace(notes, last=release, found=known)

    def exponent(self, notes: Any) -> int:  # noqa: ARG002 - the bound is the unit
        """Return 0: rows of a bounded norm have powers of a bounded size."""
        return 0

    def result(self, found: StreamDecomposition, run: Run) -> PrivateStreamDecomposition:
        """Return what was found, with what is guaranteed, every release so far, and what their noise means."""
        noise = self._noise_in_found(run)
        first = noise.components.largest_first()
        of_noise = {name: getattr(noise, name)[first] for name in _NOISE_FIELDS}
        if found.weight_errors is not None:
            of_noise["weight_errors"] = found.weight_errors
        if found.angle_errors is not None:
            of_noise["angle_errors"] = np.minimum(found.angle_errors, math.pi / 2)
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
            **of_noise,
            privacy=report,
            n_rows=found.n_rows,
            norm_bound=self.guarantee.norm_bound,
        )

    def _noise_in_found(self, run: Run) -> Found:
        """Return the components found, with what the known noise says about them.

        Of components that go on learning it is the noise in their mean image.
        """
        notes: Notes = run.notes
        last, components = notes.last, run.state.components
        averaging = None if last is None else run.state.noise_ratio(last.n_rows)
        if last is not None and averaging is not None:
            k = components.n_components
            scales = np.full(k, last.scale * averaging)
            return found_in_images(components, scales, scales, k)
        if notes.found is None:
            raise RuntimeError("A private run knows of noise in components only once its search has found some.")
        return notes.found

    def _sensitivity(self, total: RowSum) -> float:
        bound, n_rows, p, block = self.guarantee.norm_bound, total.n_rows, total.order, total.block
        sensitivities = RecordSensitivities(bound, n_rows, p, replace=self.guarantee.replace)
        if total.question == "entries":
            exact, n_products, gain = sensitivities.entries(), 0, 1.0
        elif total.question == "core":
            exact, n_products, gain = sensitivities.core(block), p, float(np.linalg.norm(block)) ** p
        else:
            gains = np.linalg.norm(block, axis=0) ** (p - 1)
            exact, n_products, gain = sensitivities.image(block), p - 1, float(np.linalg.norm(gains))
        depth = n_rows + n_products * block.shape[0] + 16
        return float(exact + 2 * depth * ROUNDOFF * bound**p * gain)


def _in_words(total: RowSum) -> str:
    """Say what is released, for the reader of the ledger."""
    width = total.block.shape[1]
    if total.question == "entries":
        return f"all {math.prod(total.shape)} distinct entries"
    if total.question == "core":
        return f"core of {width}^{total.order} numbers"
    return f"image of {width} candidates together"


def _merges(state: Solver) -> bool:
    """Tell whether probes that have converged to one vector are merged."""
    return state.probes_converge and not state.done


def _check_size(norm_bound: float, dimension: int, order: int) -> None:
    """Raise if sums of powers of rows up to the bound might over- or underflow: that must not depend on the rows."""
    smallest = order * math.log10(norm_bound)
    largest = smallest + order / 2 * math.log10(dimension)
    if not (smallest > -_MOST_DIGITS and largest < _MOST_DIGITS):
        raise ValueError(
            f"`norm_bound` to the power {order} must lie between 1e-{_MOST_DIGITS} and 1e{_MOST_DIGITS}, with room for "
            f"{dimension:,} columns. Got norm_bound={norm_bound:g}. Measure the rows in another unit."
        )


def _outside_of_span(found: Components, release: Release) -> FloatArray:
    """Return the angle by which the span of noisy images misses each component, to first order.

    The images are Σ λᵢ vᵢ sᵢᵀ with sᵢ the (p − 1)-st powers of ⟨vᵢ, u⟩ over the candidates u; noise moves vᵢ by what
    the pseudo-inverse of the λᵢ sᵢ makes of it.
    """
    signals = found.weights * (release.block.T @ found.vectors) ** (found.order - 1)
    spread = np.diagonal(np.linalg.pinv(signals.T @ signals))
    angles: FloatArray = release.scale * np.sqrt(found.dimension * np.maximum(spread, 0.0))
    return angles
