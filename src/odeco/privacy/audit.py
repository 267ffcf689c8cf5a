"""Attack a private oracle as its strongest adversary would, and certify how much it gives away.

The auditor knows everything but the noise: both neighbours, every query, every scale. The mechanism
runs many times on each of two neighbours that differ as much as neighbours can, and the auditor
tells them apart by the likelihood ratio of the whole transcript. A μ-GDP mechanism bounds the error
rates from below, so they give a lower bound on μ with a confidence. If it is above the claimed μ,
the mechanism leaks more than it claims; if it is far below, noise is wasted or the pair was not the
worst.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from scipy.special import betaincinv, ndtri

from odeco._util.arguments import check_choice, check_count, check_number
from odeco._util.types import FloatArray
from odeco.privacy.holders.entries import EntryLevel, EntryNeighbours
from odeco.privacy.holders.protocol import DataHolder, NeighbourRelation
from odeco.privacy.holders.records import RecordLevel
from odeco.privacy.ledger import Ledger
from odeco.privacy.noise import NoiseSource, SecureNoise
from odeco.privacy.oracle import PrivateOracle, Release
from odeco.privacy.release import Releaser
from odeco.tensors.oracle import SensitiveOracle, as_block

AuditedRelease = Literal["joint", "separate", "core", "input"]

#: The queries of each kind of transcript: the last is made once, those before it `n_images` times.
_QUESTIONS: dict[str, tuple[str, ...]] = {
    "joint": ("image", "value"),
    "separate": ("image", "value"),
    "core": ("slab", "core"),
    "input": ("packed",),
}


@dataclass(frozen=True)
class AuditResult:
    """What an audit certifies.

    Attributes
    ----------
    claimed_mu : float
        What the ledger says that one transcript costs.
    certified_mu : float
        With probability `confidence` the transcript costs at least this.
    confidence : float
        Of the bound.
    n_runs : int
        Transcripts of each neighbour.
    """

    claimed_mu: float
    certified_mu: float
    confidence: float
    n_runs: int

    @property
    def share(self) -> float:
        """Certified over claimed: near 1 for code that is right and a pair that is the worst."""
        return self.certified_mu / self.claimed_mu

    @property
    def violated(self) -> bool:
        """Whether the mechanism certainly (up to the confidence) gives away more than it claims."""
        return self.certified_mu > self.claimed_mu


def audit(
    first: SensitiveOracle,
    second: SensitiveOracle,
    query: Any,
    *,
    mu: float,
    release: AuditedRelease = "joint",
    n_images: int = 3,
    n_runs: int = 200_000,
    confidence: float = 0.95,
    noise_share: float = 1.0,
    noise: NoiseSource | None = None,
) -> AuditResult:
    """Certify a lower bound on the μ of a transcript: what a mechanism releases about one block of
    queries.

    Parameters
    ----------
    first, second : SensitiveOracle
        Two neighbours. `worst_entries` and `worst_records` make pairs that differ as much as
        neighbours can.
    query : array, d x L
        The query that is repeated: the adversary's starts, or the basis of a core.
    mu : float
        The budget that the transcript uses up, such as `gdp_mu` of a guarantee. The bound is about
        4/√n_runs below the truth, so a small μ needs many runs; the code is the same for a large
        one.
    release : {"joint", "separate", "core", "input"}
        Which mechanism's transcript. ``"joint"``: `n_images` images of the block, then its values,
        all columns together. ``"separate"``: the same with each column a release of its own, as
        Algorithm 3 has it. ``"core"``: `n_images` slabs T(I, W, W), then the core. ``"input"``: all
        entries, once. The last two need a `DataHolder`.
    n_images : int
        Images, or slabs, before the last release.
    n_runs : int
        Transcripts of each neighbour.
    confidence : float
        Of the bound: a mechanism that is right is flagged with a chance of at most one minus this.
    noise_share : float
        For tests of the auditor: 0.95 makes the noise 5 % too small, behind the ledger's back.
    noise : NoiseSource, optional
        The source of the noise; by default the operating system.

    Notes
    -----
    The transcripts go through the code that real runs go through: joint ones, and images, through
    `PrivateOracle` itself, the others through `Releaser`, as the mechanisms call it. Many runs are
    made at once, one below the other in a long answer that declares the sensitivity of one run, so
    that each gets the noise of a run of its own; the ledger pays for one.

    The statistic is the log-likelihood ratio Σ ⟨y − (f₀ + f₁)/2, f₁ − f₀⟩/s² over the releases y
    with scale s and exact answers f₀, f₁. The test that says "second" above 0 has error rates α and
    β, which a μ-GDP mechanism keeps at μ ≥ Φ⁻¹(1 − α) − Φ⁻¹(β) at most. Each is bounded from above
    by Clopper and Pearson at half of 1 − confidence. The threshold is fixed in advance, so that
    nothing has to be corrected for choosing it.

    Examples
    --------
    >>> from odeco.privacy import audit, worst_entries
    >>> result = audit(*worst_entries(2, "literal"), mu=2.0, n_runs=20_000)
    >>> result.violated, result.share > 0.9
    (False, True)
    """
    mu = check_number("mu", mu, 0, math.inf)
    confidence = check_number("confidence", confidence, 0, 1)
    check_choice("release", release, tuple(_QUESTIONS))
    block = as_block(query, first.dimension)
    n_runs = check_count("n_runs", n_runs, 100)
    *repeated, last = _QUESTIONS[release]
    asked = repeated * check_count("n_images", n_images) + [last]
    if release in ("core", "input") and not (
        isinstance(first, DataHolder) and isinstance(second, DataHolder)
    ):
        raise TypeError(
            f"release={release!r} needs data holders, such as EntryLevel or RecordLevel. Got "
            f"{type(first).__name__} and {type(second).__name__}."
        )
    z = math.sqrt(len(asked) * (block.shape[1] if release == "separate" else 1)) / mu
    source = SecureNoise() if noise is None else noise
    if noise_share != 1:
        source = _Short(noise_share, noise)
    errors = []
    claimed = 0.0
    for truth, other, sign in ((first, second, 1.0), (second, first, -1.0)):
        releaser = Releaser(Ledger(mu * (1 + 1e-6)), source)
        ratios = np.zeros(n_runs)
        for kind in asked:
            answers, scales = _released(truth, kind, block, release, releaser, z, n_runs)
            own, its = (_answer(each, kind, block) for each in (truth, other))
            gap = sign * (its - own)  # second minus first
            weighted = gap / scales**2  # scales are one number, or one a column
            ratios += (answers - (its + own) / 2).reshape(n_runs, -1) @ weighted.reshape(-1)
        claimed = releaser.ledger.mu
        says_second = ratios > 0
        errors.append(int(np.sum(says_second if sign > 0 else ~says_second)))
    bounds = [_upper_bound(count, n_runs, (1 - confidence) / 2) for count in errors]
    certified = float(-ndtri(bounds[0]) - ndtri(bounds[1]))
    return AuditResult(claimed, max(certified, 0.0), confidence, n_runs)


def _answer(oracle: Any, kind: str, block: FloatArray) -> FloatArray:
    answer: FloatArray = oracle.packed() if kind == "packed" else getattr(oracle, kind)(block)
    return answer


def _declared(oracle: Any, kind: str, block: FloatArray) -> float:
    if kind == "packed":
        return float(oracle.packed_sensitivity())
    name = "sensitivity" if kind == "image" else f"{kind}_sensitivity"
    return float(getattr(oracle, name)(block))


def _released(
    oracle: SensitiveOracle,
    kind: str,
    block: FloatArray,
    release: AuditedRelease,
    releaser: Releaser,
    z: float,
    n_runs: int,
) -> tuple[FloatArray, FloatArray]:
    """Return the noisy answers of all runs, and their scales."""
    if kind == "image" or (kind == "value" and release == "joint"):
        runs = _Runs(oracle, n_runs, block.shape[1], images=kind == "image")
        way: Release = "separate" if release == "separate" else "joint"
        private = PrivateOracle(
            runs, releaser.ledger, noise_multiplier=z, release=way, noise=releaser.noise
        )
        answers = (private.image if kind == "image" else private.value)(runs.query(block))
        return answers.reshape(n_runs, *_answer(oracle, kind, block).shape), private.last_scales[
            : block.shape[1]
        ]
    exact = _answer(oracle, kind, block)

    def all_runs() -> FloatArray:
        return np.broadcast_to(exact, (n_runs, *exact.shape))

    if release == "separate":
        columns = np.split(block, block.shape[1], axis=1)
        return releaser.release_columns(
            kind,
            all_runs,
            shape=(n_runs, *exact.shape),
            sensitivities=np.array([_declared(oracle, kind, column) for column in columns]),
            noise_multiplier=z,
        )
    answers, scale = releaser.release(
        kind,
        all_runs,
        size=n_runs * exact.size,
        sensitivity=_declared(oracle, kind, block),
        noise_multiplier=z,
    )
    return answers, np.array(scale)


def worst_entries(
    dimension: int, neighbour_relation: EntryNeighbours = "literal"
) -> tuple[EntryLevel, EntryLevel, FloatArray]:
    """Return two tensors that differ at their largest diagonal entry, and the query that shows it
    best.

    Under the literal relation the diagonal entry moves by 6 and the query is e₁: nothing moves any
    answer further. Under the distinct relation three different indices do, and the query is (1, 1,
    1)/√3.

    Parameters
    ----------
    dimension : int
        The size of each axis.
    neighbour_relation : "literal" or "distinct"
        How neighbours differ; see `EntryLevel`.
    """
    entries, other = np.zeros((2, dimension, dimension, dimension))
    if neighbour_relation == "literal":
        other[0, 0, 0] = 6.0
        query = np.eye(dimension)[:, :1]
    else:
        for i, j, k in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
            other[i, j, k] = 1.0
        query = np.eye(dimension)[:, :3].sum(axis=1, keepdims=True) / math.sqrt(3)
    first, second = (
        EntryLevel(each, neighbour_relation=neighbour_relation) for each in (entries, other)
    )
    return first, second, query


def worst_records(
    dimension: int,
    n_records: int,
    norm_bound: float = 1.0,
    neighbour_relation: NeighbourRelation = "replace",
) -> tuple[RecordLevel, RecordLevel, FloatArray]:
    """Return two data sets of which one row is B e₁ and then −B e₁ (or zero), and the query e₁.

    Parameters
    ----------
    dimension : int
        Number of columns.
    n_records : int
        Number of rows.
    norm_bound : float
        The largest norm B of a row.
    neighbour_relation : "replace" or "add_remove"
        How neighbours differ.
    """
    rows = np.zeros((n_records, dimension))
    rows[0, 0] = norm_bound
    other = -rows if neighbour_relation == "replace" else np.zeros_like(rows)
    first, second = (
        RecordLevel(each, norm_bound=norm_bound, neighbour_relation=neighbour_relation)
        for each in (rows, other)
    )
    return first, second, np.eye(dimension)[:, :1]


@final
class _Runs(SensitiveOracle):
    """Many runs at once of the same query: their images lie one below the other, or their values
    side by side.

    It declares the sensitivity of one run, whose query is the first of the copies in `query`.
    """

    silent = True

    def __init__(
        self, oracle: SensitiveOracle, n_runs: int, n_columns: int, *, images: bool
    ) -> None:
        self._oracle = oracle
        self._n_runs = n_runs
        self._n_columns = n_columns
        self.dimension = oracle.dimension * (n_runs if images else 1)
        self.order = oracle.order
        self.neighbours = oracle.neighbours

    def query(self, block: FloatArray) -> FloatArray:
        """Return the query of all runs."""
        if self.dimension == block.shape[0]:
            return np.tile(block, (1, self._n_runs))
        tall = np.zeros((self.dimension, block.shape[1]))
        tall[: block.shape[0]] = block
        return tall

    def _image(self, block: FloatArray) -> FloatArray:
        return np.tile(self._oracle.image(block[: self._oracle.dimension]), (self._n_runs, 1))

    def _value(self, block: FloatArray) -> FloatArray:
        return np.tile(self._oracle.value(block[:, : self._n_columns]), self._n_runs)

    def _sensitivity(self, block: FloatArray) -> float:
        return self._oracle.sensitivity(block[: self._oracle.dimension])

    def _value_sensitivity(self, block: FloatArray) -> float:
        return self._oracle.value_sensitivity(block[:, : self._n_columns])


@final
class _Short:
    """Noise that is smaller than it should be: what the auditor must notice."""

    def __init__(self, share: float, noise: NoiseSource | None) -> None:
        self._share = share
        self._noise = SecureNoise() if noise is None else noise

    def gaussian(self, shape: tuple[int, ...], scale: float) -> FloatArray:
        return self._share * self._noise.gaussian(shape, scale)


def _upper_bound(count: int, n_runs: int, risk: float) -> float:
    """Return Clopper and Pearson's upper bound on a rate of which `count` in `n_runs` were seen."""
    if count >= n_runs:
        return 1.0
    return float(betaincinv(count + 1, n_runs - count, 1 - risk))
