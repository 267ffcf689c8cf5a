"""A planted stream, and the streaming methods run on it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odeco._types import FloatArray
from odeco.baselines import online_sgd, tune_learning_rate
from odeco.components import Components
from odeco.metrics import match
from odeco.streams import decompose_stream

WEIGHT = 2.0  # the third cumulant of a Gamma(1) variable
GAMMA_FOURTH_MOMENT = 9.0
BLOCK_ROWS = 4096
N_RESTARTS, N_ITERATIONS = 20, 15  # L and R of Algorithm 2
SGD_BATCH, SGD_RESTARTS, SGD_RATES = 100, 8, (0.5, 1.0, 2.0, 3.0, 5.0)


@dataclass(frozen=True)
class SkewedStream:
    """A stream of float32 rows x = V s + σ g.

    V is an orthonormal d x k matrix, the sources s are independent centred Gamma(1) variables, and g is Gaussian noise.
    The third moment of the rows is Σ 2 vᵢ ⊗ vᵢ ⊗ vᵢ.
    """

    dimension: int
    n_components: int
    sigma: float
    seed: int

    @property
    def truth(self) -> Components:
        """The components of the third moment."""
        raw = np.random.default_rng([self.seed, 1]).standard_normal((self.dimension, self.n_components))
        return Components(np.full(self.n_components, WEIGHT), np.linalg.qr(raw)[0])

    def blocks(self, n_rows: int, *, stretch: int = 2) -> Iterator[NDArray[np.float32]]:
        """Yield blocks of rows, the same ones at every call. Another `stretch` gives other rows."""
        generator = np.random.default_rng([self.seed, stretch])
        mixing = self.truth.vectors.T.astype(np.float32)
        for start in range(0, n_rows, BLOCK_ROWS):
            height = min(BLOCK_ROWS, n_rows - start)
            sources = generator.standard_exponential((height, self.n_components), dtype=np.float32) - 1
            noise = generator.standard_normal((height, self.dimension), dtype=np.float32)
            yield sources @ mixing + np.float32(self.sigma) * noise

    def predicted_error(self, n_rows: int) -> float:
        """Return the root mean square angle of the image of a true vector, averaged over `n_rows` rows.

        In a direction across v, the variance of (xᵀv)² x is E[(xᵀv)⁴] times the variance of x in that direction. The
        latter is 1 + σ² in the k − 1 directions of other sources, and σ² in all others. The root of the sum of these
        variances, divided by √n and by the weight, is the angle.
        """
        along = GAMMA_FOURTH_MOMENT + 6 * self.sigma**2 + 3 * self.sigma**4
        across = (self.n_components - 1) * (1 + self.sigma**2) + (self.dimension - self.n_components) * self.sigma**2
        return math.sqrt(along * across / n_rows) / WEIGHT


def algorithm_2(stream: SkewedStream, n_rows: int, n_restarts: int = N_RESTARTS) -> FloatArray:
    """Return the angles of Algorithm 2 with `n_rows` fresh rows for each of its k R answers."""
    found = decompose_stream(
        stream.blocks(n_rows * stream.n_components * N_ITERATIONS),
        stream.n_components,
        method="power",
        batch_size=n_rows,
        n_restarts=n_restarts,
        n_iterations=N_ITERATIONS,
        rng=stream.seed,
    )
    return match(found, stream.truth).angles


def core(stream: SkewedStream, n_rows: int) -> FloatArray:
    """Return the angles of the core method in passes over `n_rows` rows."""
    found = decompose_stream(np.concatenate(list(stream.blocks(n_rows))), stream.n_components, rng=stream.seed)
    return match(found, stream.truth).angles


def gradient_descent(stream: SkewedStream, n_rows: int) -> FloatArray:
    """Return the angles of stochastic gradient descent over `n_rows` rows, its rate tuned on as many others."""
    rate = tune_learning_rate(
        lambda: stream.blocks(n_rows, stretch=3),
        stream.n_components,
        batch_size=SGD_BATCH,
        learning_rates=SGD_RATES,
        n_rows=n_rows,
        n_restarts=SGD_RESTARTS,
        rng=stream.seed,
    )
    found = online_sgd(
        stream.blocks(n_rows),
        stream.n_components,
        batch_size=SGD_BATCH,
        learning_rate=rate,
        n_rows=n_rows,
        n_restarts=SGD_RESTARTS,
        rng=stream.seed,
    )
    return match(found, stream.truth).angles
