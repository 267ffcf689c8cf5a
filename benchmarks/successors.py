"""Later algorithms for the paper's problems, each in our reading of its paper, beside odeco on the
same data.

    python benchmarks/successors.py [--only streaming|pca|tensors] [--quick] [--seeds 10]

*streaming*: simultaneous power iteration (Wang and Lu, ICML 2017), the successor of Algorithm 2.
All k vectors are iterated together and kept orthonormal by a QR decomposition, so that a batch
serves all of them; the start is the span of one matrix T(I, I, w) with w = T(I, g, g) averaged over
Gaussian vectors g, which has the eigenvectors of T in the order of their weights. It needs weights
that differ. Every product is a mean over a fresh batch of rows. The numbers of steps are the best
of ten choices, after the fact.

*pca*: the first component under differential privacy. DP-PCA (Liu, Kong, Jain and Oh, NeurIPS 2022)
is Oja's iteration over batches, each with a private mean of the gradients x (xᵀw). Their mean
estimator has to find scale and range of the gradients privately, with constants from the proof.
Here it is given both, and the gap of the eigenvalues for its step sizes, at no cost; gradients are
cut at four standard deviations of each coordinate; and the best number of batches and step size is
chosen after the fact. DP-PCA itself can do less. Beside it the covariance plus noise (Dwork,
Talwar, Thakurta and Zhang 2014), and odeco, which looks for the direction of the third moment, not
of the variance: on these rows they are the same. The norm at which rows are cut is the same for
both.

*tensors*: AGN (Imtiaz and Sarwate 2018), which releases the second and the third moment of rows
with half of the budget each, whitens the one with the other and runs the power method. capeAGN is
its distributed form, which has the same noise if sites do not collude. Sensitivities are √2/n for
rows of norm 1, noise is √(2 ln(1.25/δ)) Δ/ε, as they have it. Also the noise of Algorithm 3 in the
transcription that their repository has (github.com/hafizimtiaz/capeOTD).
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import odeco
from odeco._util.types import FloatArray
from odeco.privacy import noise_multiplier, paper_noise_multiplier
from reproduction.streaming import N_ITERATIONS, N_RESTARTS

#: Steps of Wang and Lu with the matrix of the start, and with the tensor.
STEPS = ((1, 2), (1, 4), (2, 2), (2, 3), (3, 2), (3, 3), (4, 4), (6, 4), (8, 4), (8, 8))

#: Batches of DP-PCA and factors of its step sizes, and the number of standard deviations at which
#: gradients are cut.
PCA_CHOICES = tuple(
    (n_batches, factor) for n_batches in (5, 10, 20) for factor in (1.0, 3.0, 10.0, 30.0)
)
CUT = 4.0


class Stream:
    """Skewed sources of different sizes in Gaussian noise: the third moment is Σ λᵢ vᵢ ⊗ vᵢ ⊗ vᵢ, λ
    from 4 to 1.
    """

    def __init__(self, dimension: int, n_components: int, sigma: float, seed: int) -> None:
        generator = np.random.default_rng([seed, 1])
        vectors = np.linalg.qr(generator.standard_normal((dimension, n_components)))[0]
        self.truth = odeco.Components(np.linspace(4, 1, n_components), vectors)
        self.sigma, self.seed = sigma, seed

    def blocks(self, n_rows: int, height: int) -> Iterator[FloatArray]:
        """Yield batches of `height` rows, the last of which may be shorter."""
        generator = np.random.default_rng([self.seed, 2])
        mixing = np.cbrt(self.truth.weights / 2)[:, None] * self.truth.vectors.T
        for start in range(0, n_rows, height):
            count = min(height, n_rows - start)
            sources = generator.standard_exponential((count, mixing.shape[0])) - 1
            yield sources @ mixing + self.sigma * generator.standard_normal(
                (count, mixing.shape[1])
            )


def simultaneous_power_iteration(
    batches: Iterator[FloatArray], k: int, steps: tuple[int, int], generator: np.random.Generator
) -> FloatArray:
    """Return the vectors of Wang and Lu's method; it takes one batch more than steps."""
    rows = next(batches)
    gaussian = generator.standard_normal((rows.shape[1], 10 * rows.shape[1]))
    direction = np.mean(rows * np.mean((rows @ gaussian) ** 2, axis=1)[:, None], axis=0)
    direction /= np.linalg.norm(direction)
    vectors = np.linalg.qr(generator.standard_normal((rows.shape[1], k)))[0]
    for _ in range(steps[0]):
        rows = next(batches)
        vectors = np.linalg.qr(rows.T @ ((rows @ vectors) * (rows @ direction)[:, None]))[0]
    for _ in range(steps[1]):
        rows = next(batches)
        vectors = np.linalg.qr(rows.T @ (rows @ vectors) ** 2)[0]
    return vectors


def compare_streams(n_seeds: int, *, quick: bool) -> None:
    """Print the largest angle of a component, the median over seeds, for the same number of
    rows.
    """
    d, k, sigma = 50, 5, 0.5
    print(
        "\n"
        f"Streams: d = {d}, k = {k}, weights 4 to 1, noise {sigma}; worst angle, median of "
        f"{n_seeds} seeds"
    )
    print(
        "| rows | Algorithm 2 | Wang and Lu 2017 (steps) | odeco, one pass | odeco, in passes |\n"
        "|---|---|---|---|---|"
    )
    for n_rows in (30_000, 100_000) if quick else (30_000, 100_000, 300_000, 1_000_000):
        angles = np.zeros((3 + len(STEPS), n_seeds))
        for seed in range(n_seeds):
            stream = Stream(d, k, sigma, seed)
            power: dict[str, Any] = {
                "batch_size": n_rows // (k * N_ITERATIONS),
                "n_restarts": N_RESTARTS,
                "n_iterations": N_ITERATIONS,
            }
            found = [
                odeco.decompose_stream(
                    stream.blocks(n_rows, 20_000), k, method="power", rng=seed, **power
                ),
                odeco.decompose_stream(
                    stream.blocks(n_rows, 20_000), k, batch_size=n_rows // 8, rng=seed
                ),
                odeco.decompose_stream(
                    np.concatenate(list(stream.blocks(n_rows, 20_000))), k, rng=seed
                ),
            ]
            vectors = [result.vectors for result in found]
            for steps in STEPS:
                batches = stream.blocks(n_rows, n_rows // (sum(steps) + 1))
                vectors.append(
                    simultaneous_power_iteration(batches, k, steps, np.random.default_rng(seed))
                )
            angles[:, seed] = [_worst(each, stream.truth) for each in vectors]
        medians = np.median(angles, axis=1)
        best = int(np.argmin(medians[3:]))
        theirs = f"{medians[3 + best]:.3f} ({STEPS[best][0]} + {STEPS[best][1]})"
        print(
            f"| {n_rows:,} | {medians[0]:.3f} | {theirs} | {medians[1]:.3f} | {medians[2]:.3f} |",
            flush=True,
        )


def _worst(vectors: FloatArray, truth: odeco.Components) -> float:
    return float(
        odeco.match(odeco.Components(np.ones(vectors.shape[1]), vectors), truth).angles.max()
    )


def dp_pca(
    rows: FloatArray,
    gap: float,
    choice: tuple[int, float],
    multiplier: float,
    generator: np.random.Generator,
) -> FloatArray:
    """Return the direction of DP-PCA with scale and range of the gradients given; each batch is
    used once.
    """
    n_batches, factor = choice
    vector: FloatArray = generator.standard_normal((rows.shape[1],))
    vector /= np.linalg.norm(vector)
    for step, batch in enumerate(np.array_split(rows, n_batches), start=1):
        gradients = batch * (batch @ vector)[:, None]
        centre, reach = gradients.mean(axis=0), np.asarray(CUT * gradients.std(axis=0))
        mean: FloatArray = np.clip(gradients, centre - reach, centre + reach).mean(axis=0)
        # Coordinates in units of their reach change by at most 2, all together by 2 √d.
        spread: FloatArray = 2 * math.sqrt(rows.shape[1]) / len(batch) * multiplier * reach
        mean += spread * generator.standard_normal((rows.shape[1],))
        vector += factor / (gap * step) * mean
        vector /= np.linalg.norm(vector)
    return vector


def noisy_covariance(
    rows: FloatArray, bound: float, multiplier: float, generator: np.random.Generator
) -> FloatArray:
    """Return the first eigenvector of the second moment plus symmetric Gaussian noise."""
    noise = generator.standard_normal((rows.shape[1],) * 2)
    # Replacing a row changes the moment by at most √2 C²/n; off the diagonal a number counts twice.
    scale = math.sqrt(2) * bound**2 / len(rows) * multiplier
    noise = scale * (np.triu(noise, 1) / math.sqrt(2) + np.diag(np.diagonal(noise)) / 2)
    vectors: FloatArray = np.linalg.eigh(rows.T @ rows / len(rows) + noise + noise.T)[1]
    return vectors[:, -1]


def compare_first_components(n_seeds: int, *, quick: bool) -> None:
    """Print the angle of the first component under privacy, the median over seeds."""
    epsilon, delta, sigma = 1.0, 1e-7, 0.5
    multiplier = noise_multiplier(epsilon, delta)
    print(f"\nFirst component, one row protected: ε = {epsilon:g}, δ = {delta:g}, noise {sigma}")
    print(f"Median angle of {n_seeds} seeds")
    print(
        "| d | rows | DP-PCA, scale given (batches) | covariance plus noise | odeco, third moment "
        "(mechanism) |"
    )
    print("|---|---|---|---|---|")
    sizes = ((20, 10_000), (100, 100_000)) if quick else tuple(
        (d, n_rows) for d in (10, 30, 100, 300) for n_rows in (10_000, 100_000, 1_000_000) if d * n_rows <= 10**7
    )  # fmt: skip
    for d, n_rows in sizes:
        angles = np.zeros((2 + len(PCA_CHOICES), n_seeds))
        for seed in range(n_seeds):
            generator = np.random.default_rng(seed)
            direction = generator.standard_normal(d)
            direction /= np.linalg.norm(direction)
            sources = generator.standard_exponential((n_rows, 1)) - 1
            rows = sources * direction + sigma * generator.standard_normal((n_rows, d))
            bound = math.sqrt(1 + sigma**2 * d)  # public: the root mean square norm
            cut = rows * np.minimum(1, bound / np.linalg.norm(rows, axis=1, keepdims=True))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = odeco.decompose_privately(
                    rows, 1, epsilon=epsilon, delta=delta, unit="record", norm_bound=bound, rng=seed
                )
            vectors = [noisy_covariance(cut, bound, multiplier, generator), result.vectors[:, 0]]
            vectors += [dp_pca(rows, 1.0, choice, multiplier, generator) for choice in PCA_CHOICES]
            angles[:, seed] = [
                math.acos(min(1.0, abs(float(vector @ direction)))) for vector in vectors
            ]
        medians = np.median(angles, axis=1)
        best = int(np.argmin(medians[2:]))
        theirs = f"{medians[2 + best]:.3f} ({PCA_CHOICES[best][0]})"
        ours = f"{medians[1]:.3f} ({result.privacy.mechanism})"
        print(f"| {d} | {n_rows:,} | {theirs} | {medians[0]:.3f} | {ours} |", flush=True)


def agn(
    rows: FloatArray, k: int, epsilon: float, delta: float, generator: np.random.Generator
) -> odeco.Components:
    """Return the components of AGN: both moments with noise, whitening, and the power method with
    deflation.
    """
    n_rows, d = rows.shape
    scale = math.sqrt(2) / n_rows * math.sqrt(2 * math.log(1.25 / (delta / 2))) / (epsilon / 2)
    noise = np.triu(scale * generator.standard_normal((d, d)))
    values, vectors = np.linalg.eigh(rows.T @ rows / n_rows + noise + np.triu(noise, 1).T)
    values, vectors = np.maximum(np.abs(values[-k:]), 1e-12), vectors[:, -k:]
    third = np.zeros((d * d, d))
    for part in np.array_split(rows, max(1, n_rows // 2000)):
        third += (part[:, :, None] * part[:, None, :]).reshape(len(part), -1).T @ part
    third = third.reshape(d, d, d) / n_rows
    entries = scale * generator.standard_normal((d, d, d))
    index = np.sort(np.indices((d, d, d)).reshape(3, -1), axis=0)
    noisy = third + entries[tuple(index)].reshape(d, d, d)
    whiten = vectors / np.sqrt(values)
    core = np.einsum("ijk,ia,jb,kc->abc", noisy, whiten, whiten, whiten, optimize=True)
    found = []
    for _ in range(k):
        u = generator.random(k)
        u /= np.linalg.norm(u)
        for _ in range(1000):
            image = core @ u @ u
            length = float(np.linalg.norm(image))
            before, u = u, image / length
            if np.linalg.norm(u - before) <= 1e-6:
                break
        core = core - length * np.einsum("a,b,c->abc", u, u, u)
        found.append((vectors * np.sqrt(values)) @ u)
    return odeco.Components(np.ones(k), np.stack(found, axis=1))


def compare_tensors(n_seeds: int, *, quick: bool) -> None:
    """Print the largest angle of a component, the median over seeds, for rows that are orthonormal
    means plus noise.
    """
    n_rows, delta = 100_000, 1e-6
    print(
        "\n"
        f"All components, one row protected: {n_rows:,} rows, δ = {delta:g}; worst angle, median "
        f"of {n_seeds} seeds"
    )
    print("| d | k | ε | AGN | odeco (mechanism) | without privacy |\n|---|---|---|---|---|---|")
    for d, k in ((10, 5),) if quick else ((10, 5), (50, 10)):
        for epsilon in (0.1, 1.0) if quick else (0.05, 0.1, 0.5, 1.0):
            angles = np.zeros((3, n_seeds))
            for seed in range(n_seeds):
                generator = np.random.default_rng(seed)
                means = np.linalg.qr(generator.standard_normal((d, k)))[0]
                weights = np.linspace(2, 1, k) / np.sum(np.linspace(2, 1, k))
                rows = means.T[
                    generator.choice(k, n_rows, p=weights)
                ] + 0.05 * generator.standard_normal((n_rows, d))
                rows = rows * np.minimum(1, 1 / np.linalg.norm(rows, axis=1, keepdims=True))
                truth = odeco.Components(weights, means)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    private = odeco.decompose_privately(
                        rows,
                        k,
                        epsilon=epsilon,
                        delta=delta,
                        unit="record",
                        norm_bound=1.0,
                        rng=seed,
                    )
                found = (
                    agn(rows, k, epsilon, delta, generator),
                    private,
                    odeco.decompose_stream(rows, k, rng=seed),
                )
                angles[:, seed] = [odeco.match(result, truth).angles.max() for result in found]
            theirs, ours, exact = np.median(angles, axis=1)
            shown = f"{theirs:.3f} | {ours:.3f} ({private.privacy.mechanism}) | {exact:.3f}"
            print(f"| {d} | {k} | {epsilon:g} | {shown} |", flush=True)
    print("\nNoise of Algorithm 3 at ‖u‖∞ = 1, k = 5, L = 10, R = 10, δ = 1e-6")
    print(
        "| ε | the paper, line 2 | capeOTD's transcription | exact accounting with the paper's "
        "sensitivity |"
    )
    print("|---|---|---|---|")
    n_releases = 5 * 10 * (10 + 1)
    for epsilon in (0.1, 1.0):
        paper = paper_noise_multiplier(epsilon, 1e-6, n_releases)
        exact = noise_multiplier(epsilon, 1e-6, n_releases)
        print(f"| {epsilon:g} | {6 * paper:,.0f} | {2 * paper:,.0f} | {6 * exact:,.0f} |")


PARTS: dict[str, Callable[..., None]] = {
    "streaming": compare_streams,
    "pca": compare_first_components,
    "tensors": compare_tensors,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="two sizes of each, in a minute")
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    for name, compare in PARTS.items():
        if arguments.only in (None, name):
            compare(arguments.seeds, quick=arguments.quick)


if __name__ == "__main__":
    main()
