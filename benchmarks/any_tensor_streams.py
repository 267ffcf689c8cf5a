"""Rows from planted mixtures whose means are not orthogonal, their number unknown; used by `any_tensor.py --streams`.

A row is s μ_h + ε: h is one of k groups, s an exponential variable less its mean, ε Gaussian noise. Its mean is zero,
its third moment is Σ 2 P(h) μ_h ⊗ μ_h ⊗ μ_h, which has rank k, and the μ_h have a common cosine.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np
from any_tensor_methods import FOUND

import odeco
from odeco._types import FloatArray
from odeco.errors import RankError


@dataclass(frozen=True)
class Mixture:
    """A kind of stream: dimension, groups, the cosine of their means, the noise in every coordinate, rows."""

    dimension: int
    n_components: int
    cosine: float
    noise: float
    n_rows: int

    def planted(self, seed: int) -> tuple[odeco.Components, FloatArray]:
        """Return the components of the third moment, and the rows."""
        d, k, generator = self.dimension, self.n_components, np.random.default_rng(seed)
        gram = (1 - self.cosine) * np.eye(k) + self.cosine
        means = np.linalg.qr(generator.standard_normal((d, k)))[0] @ np.linalg.cholesky(gram).T
        chances = generator.dirichlet(np.full(k, 20.0))
        groups = generator.choice(k, size=self.n_rows, p=chances)
        sizes = generator.exponential(size=self.n_rows) - 1
        rows = sizes[:, None] * means.T[groups] + self.noise * generator.standard_normal((self.n_rows, d))
        return odeco.Components(2 * chances, means), rows


MIXTURES = [
    Mixture(dimension, k, cosine, noise, 200_000)
    for dimension, k in ((20, 3), (20, 6), (60, 5))
    for cosine in (0.0, 0.3, 0.6)
    for noise in (0.0, 0.05)
]


def compare_streams(n_seeds: int) -> None:
    """Print for each mixture how often all components are found, told their number and not, and the numbers found."""
    print("   d    k  cos noise  found, k given  found, auto  rank right  smallest confidence  ranks found  seconds")
    for mixture in MIXTURES:
        given, auto, ranks, sure = [], [], [], []
        start = time.process_time()
        for seed in range(n_seeds):
            truth, rows = mixture.planted(seed)
            given.append(_found(rows, mixture.n_components, truth, seed)[0])
            found, rank, confidence = _found(rows, "auto", truth, seed)
            auto.append(found)
            ranks.append(rank)
            sure.append(confidence)
        right = np.mean([rank == mixture.n_components for rank in ranks])
        print(
            f"{mixture.dimension:4d} {mixture.n_components:4d} {mixture.cosine:4.1f} {mixture.noise:5.2f} "
            f"{np.mean(given):15.2f} {np.mean(auto):12.2f} {right:11.2f} {min(sure):20.3f}  "
            f"{sorted(set(ranks))!s:>11} {time.process_time() - start:8.1f}",
            flush=True,
        )


def _found(rows: FloatArray, n_components: int | str, truth: odeco.Components, seed: int) -> tuple[bool, int, float]:
    """Return whether all components were found, how many were returned, and how sure their number is said to be."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = odeco.decompose_stream(rows, n_components, rng=seed)  # type: ignore[arg-type]
    except (RankError, ValueError):
        return False, 0, float("nan")
    evidence = getattr(result, "rank_evidence", None)
    confidence = float("nan") if evidence is None else float(evidence.confidence)
    return bool(np.all(odeco.match(result, truth).cosines > FOUND)), result.weights.size, confidence
