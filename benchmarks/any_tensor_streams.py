"""Rows from planted mixtures whose means are not orthogonal, their number unknown; used by
`any_tensor.py --streams`.

A row is s μ_h + ε: h is one of k groups, s an exponential variable less its mean, ε Gaussian noise.
Its mean is zero, its third moment is Σ 2 P(h) μ_h ⊗ μ_h ⊗ μ_h, which has rank k, and the μ_h have a
common cosine. With k = 0 a row is noise alone, and the right answer is to refuse.

Each mixture is decomposed three times: told k, and not, in passes over the rows (*auto*) and read
once (*once*). In passes an answer is given for each mixture; read once, the number is judged from a
part of the rows only.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from any_tensor_methods import FOUND

import odeco
from odeco._util.types import FloatArray
from odeco.errors import RankError

#: Those below were looked at while the judgement was built.
FIRST_SEED = 100
BINS = (0.0, 0.5, 0.8, 0.95, 0.99, 1.0)


@dataclass(frozen=True)
class Mixture:
    """A kind of stream: dimension, groups, the cosine of their means, the noise in every
    coordinate, rows.
    """

    dimension: int
    n_components: int
    cosine: float
    noise: float
    n_rows: int

    def planted(self, seed: int) -> tuple[odeco.Components, FloatArray]:
        """Return the components of the third moment, and the rows."""
        d, k, generator = self.dimension, self.n_components, np.random.default_rng(seed)
        if k == 0:
            return odeco.Components(np.empty(0), np.empty((d, 0))), generator.standard_normal(
                (self.n_rows, d)
            )
        gram = (1 - self.cosine) * np.eye(k) + self.cosine
        means = np.linalg.qr(generator.standard_normal((d, k)))[0] @ np.linalg.cholesky(gram).T
        chances = generator.dirichlet(np.full(k, 20.0))
        groups = generator.choice(k, size=self.n_rows, p=chances)
        sizes = generator.exponential(size=self.n_rows) - 1
        rows = sizes[:, None] * means.T[groups] + self.noise * generator.standard_normal(
            (self.n_rows, d)
        )
        return odeco.Components(2 * chances, means), rows


MIXTURES = [
    *(
        Mixture(dimension, k, cosine, noise, n_rows)
        for dimension, k in ((20, 3), (20, 6), (60, 5))
        for cosine in (0.0, 0.3, 0.6)
        for noise, n_rows in ((0.0, 20_000), (0.05, 80_000), (0.3, 80_000), (0.3, 10_000))
    ),
    *(Mixture(dimension, 0, 0.0, 1.0, 10_000) for dimension in (20, 60)),
]


@dataclass(frozen=True)
class Answer:
    """Whether all components were found, how many were returned, and how sure their number is said
    to be.
    """

    found: bool
    rank: int
    confidence: float
    candidates: tuple[int, ...]


def compare_streams(n_seeds: int) -> None:
    """Print for each mixture how often all components and their number are found; then what
    confidence is worth.
    """
    print(
        "   d    k  cos noise    rows  found, k given  found, auto  rank right: auto  once  sure: "
        "auto  once  ranks found  seconds"
    )
    judged: list[tuple[int, Answer]] = []
    for mixture in MIXTURES:
        given, auto, once, start = [], [], [], time.process_time()
        for seed in range(FIRST_SEED, FIRST_SEED + n_seeds):
            truth, rows = mixture.planted(seed)
            given.append(
                _answer(rows, mixture.n_components, truth, seed) if mixture.n_components else None
            )
            auto.append(_answer(rows, "auto", truth, seed))
            batch = (
                mixture.n_rows // 256
            )  # enough for two attempts to judge, the second with twice the rows
            once.append(_answer(iter([rows]), "auto", truth, seed, batch_size=batch))
        k = mixture.n_components
        judged += [(k, answer) for answer in (*auto, *once)]
        told = (
            float(np.mean([answer.found for answer in given if answer is not None]))
            if k
            else math.nan
        )
        right, sure = (
            [np.mean([test(a) for a in each]) for each in (auto, once)]
            for test in (_right(k), _sure)
        )
        ranks = sorted({answer.rank for answer in (*auto, *once)})
        print(
            f"{mixture.dimension:4d} {k:4d} {mixture.cosine:4.1f} {mixture.noise:5.2f} "
            f"{mixture.n_rows:7,} {told:15.2f} {np.mean([answer.found for answer in auto]):12.2f} "
            f"{right[0]:17.2f} {right[1]:5.2f} {sure[0]:11.2f} {sure[1]:5.2f}  {ranks!s:>11} "
            f"{time.process_time() - start:8.1f}",
            flush=True,
        )
    _print_calibration(judged)


def _right(k: int) -> Any:
    return lambda answer: answer.rank == k


def _sure(answer: Answer) -> bool:
    return answer.confidence >= 0.95


def _print_calibration(judged: list[tuple[int, Answer]]) -> None:
    listed = sum(k in (answer.rank, *answer.candidates) for k, answer in judged)
    right = sum(answer.rank == k for k, answer in judged)
    wrong = sum(_sure(answer) and answer.rank != k for k, answer in judged)
    sure = sum(_sure(answer) for _, answer in judged)
    print(f"\n{len(judged)} judgements: right {right}, right or among the candidates {listed}")
    print(f"said with 0.95 or more: {sure}, of these wrong: {wrong}")
    print("calibration: confidence, judgements, rank right")
    for low, high in itertools.pairwise(BINS):
        inside = [
            (k, a)
            for k, a in judged
            if low <= a.confidence < high or (high == 1.0 and a.confidence == 1.0)
        ]
        if inside:
            print(
                f"  {low:.2f} to {high:.2f}  {len(inside):6d}  "
                f"{np.mean([a.rank == k for k, a in inside]):6.1%}"
            )
    silent = [(k, a) for k, a in judged if math.isnan(a.confidence)]
    if silent:
        print(f"  no signal     {len(silent):6d}  {np.mean([k == 0 for k, _ in silent]):6.1%}")


def _answer(
    rows: Any,
    n_components: int | Literal["auto"],
    truth: odeco.Components,
    seed: int,
    **settings: Any,
) -> Answer:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = odeco.decompose_stream(rows, n_components, rng=seed, **settings)
    except RankError:
        return Answer(truth.n_components == 0, 0, math.nan, ())
    evidence = result.rank_evidence
    confidence, candidates = (
        (math.nan, ()) if evidence is None else (evidence.confidence, evidence.candidates)
    )
    found = truth.n_components > 0 and bool(np.all(odeco.match(result, truth).cosines > FOUND))
    return Answer(found, result.weights.size, confidence, candidates)
