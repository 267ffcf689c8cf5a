"""Independent sources: `TensorICA` beside FastICA (each contrast function) and Picard, planted and
from images.

    python benchmarks/signals.py [--quick] [--only WORD] [--seeds N]

The Amari distance of the unmixing times the true mixing from a permutation, times 1000: 0 if all
sources are found, and some 300 if none is. Median and worst over seeds; CPU seconds on one thread,
median. Planted: 20 sources of mixed kinds and 100,000 rows. Images: the pixels of photographs, a
height map and a slice of a head that scikit-learn and Matplotlib ship, as they lie (so that sources
are not quite independent) and each in a random order (so that they are). `one pass` feeds rows in
batches of 10,000 to `partial_fit`. A further table is one pass over 10,000,000 rows.

*Patches*: the mean log-likelihood of a row of patches of photographs, with histograms of the
sources as densities, for the unmixing matrices of each method: sources are not independent here.
*More sources than columns*: the cosines of the mixing directions in one pass over rows in batches
of 50,000, and the error of `transform` and of the best linear estimate, over the standard deviation
of a source. Speech-like sources are Laplace with a level that changes from row to row by a gamma
law (kurtosis 15); sparse ones are zero in nine of ten rows. *Gaussian rows*: how often "auto" finds
sources.
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from odeco._util.types import FloatArray
from odeco.models import TensorICA

KINDS: dict[str, tuple[str, ...]] = {
    "mixed": ("uniform", "laplace", "exponential", "student 5", "two humps"),
    "ten kinds": (
        *("uniform", "laplace", "exponential", "student 3", "two humps"),
        *("gamma", "logistic", "beta", "uneven humps", "sine"),
    ),
    "light tails": ("uniform", "two humps", "beta", "sine"),
    "heavy tails": ("student 3", "lognormal", "sparse", "laplace"),
    "nearly Gaussian": ("logistic", "gamma", "student 5", "beta"),
}


def draw(kind: str, n: int, rng: np.random.Generator) -> FloatArray:
    """Return n values of a source of variance 1."""
    draws: dict[str, Callable[[], Any]] = {
        "uniform": lambda: rng.uniform(-1, 1, n),
        "laplace": lambda: rng.laplace(size=n),
        "exponential": lambda: rng.exponential(size=n),
        "student 3": lambda: rng.standard_t(3, n),
        "student 5": lambda: rng.standard_t(5, n),
        "two humps": lambda: rng.choice([-1.0, 1.0], n) + 0.4 * rng.standard_normal(n),
        "uneven humps": lambda: (
            np.where(rng.random(n) < 0.25, -1.5, 0.5) + 0.5 * rng.standard_normal(n)
        ),
        "gamma": lambda: rng.gamma(4, size=n),
        "logistic": lambda: rng.logistic(size=n),
        "beta": lambda: rng.beta(2, 2, n),
        "sine": lambda: np.sin(rng.uniform(0, 2 * np.pi, n)),
        "lognormal": lambda: np.exp(0.6 * rng.standard_normal(n)),
        "sparse": lambda: rng.standard_normal(n) * (rng.random(n) < 0.1),
    }
    values = draws[kind]()
    standardised: FloatArray = (values - values.mean()) / values.std()
    return standardised


def planted(kinds: tuple[str, ...], n_sources: int, n_rows: int, seed: int) -> FloatArray:
    """Return sources, n x d, of kinds in turn."""
    rng = np.random.default_rng([7, seed])
    return np.column_stack(
        [draw(kinds[index % len(kinds)], n_rows, rng) for index in range(n_sources)]
    )


def images(shuffled: bool, seed: int) -> FloatArray:
    """Return the pixels of six images, 65,536 x 6."""
    from matplotlib import cbook, image
    from sklearn.datasets import load_sample_image

    pictures = [
        load_sample_image("china.jpg").mean(axis=2),
        load_sample_image("flower.jpg").mean(axis=2),
    ]
    pictures.append(load_sample_image("china.jpg")[:, ::-1].mean(axis=2)[-256:])
    pictures.append(
        image.imread(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)).mean(axis=2)
    )
    pictures.append(
        np.load(cbook.get_sample_data("jacksboro_fault_dem.npz", asfileobj=False))["elevation"]
    )
    with gzip.open(cbook.get_sample_data("s1045.ima.gz", asfileobj=False)) as file:
        pictures.append(np.frombuffer(file.read(), np.uint16).reshape(256, 256))
    rng, columns = np.random.default_rng(seed), []
    for picture in pictures:
        top, left = (picture.shape[0] - 256) // 2, (picture.shape[1] - 256) // 2
        pixels = np.asarray(picture[top : top + 256, left : left + 256], dtype=np.float64).ravel()
        columns.append(rng.permutation(pixels) if shuffled else pixels)
    sources = np.column_stack(columns)
    standardised: FloatArray = (sources - sources.mean(axis=0)) / sources.std(axis=0)
    return standardised


def amari(product: FloatArray) -> float:
    """Return the Amari distance of a matrix from a permutation with scales."""
    size, k = np.abs(product), len(product)
    rows, columns = size / size.max(axis=1, keepdims=True), size / size.max(axis=0)
    return float((rows.sum() + columns.sum() - 2 * k) / (2 * k * (k - 1)))


def _one_pass(rows: FloatArray, seed: int) -> FloatArray:
    model = TensorICA(random_state=seed)
    for first in range(0, len(rows), 10_000):
        model.partial_fit(rows[first : first + 10_000])
    return np.asarray(model.components_)


def _fast(contrast: str) -> Callable[[FloatArray, int], FloatArray]:
    def run(rows: FloatArray, seed: int) -> FloatArray:
        from sklearn.decomposition import FastICA

        model = FastICA(whiten="unit-variance", fun=contrast, random_state=seed, max_iter=1000)
        unmixing: FloatArray = model.fit(rows).components_
        return unmixing

    return run


def _picard(*, ortho: bool, extended: bool = True) -> Callable[[FloatArray, int], FloatArray]:
    def run(rows: FloatArray, seed: int) -> FloatArray:
        from picard import picard

        whitening, rotation, _ = picard(
            rows.T, ortho=ortho, extended=extended, random_state=seed, max_iter=1000
        )
        unmixing: FloatArray = rotation @ whitening
        return unmixing

    return run


METHODS: dict[str, Callable[[FloatArray, int], FloatArray]] = {
    "TensorICA": lambda rows, seed: TensorICA(random_state=seed).fit(rows).components_,
    "TensorICA, one pass": _one_pass,
    "FastICA, logcosh": _fast("logcosh"),
    "FastICA, exp": _fast("exp"),
    "FastICA, cube": _fast("cube"),
    "Picard-O, extended": _picard(ortho=True),
    "Picard, extended": _picard(ortho=False),
}


def compare(title: str, make: Callable[[int], FloatArray], n_seeds: int) -> None:
    """Print a table: each method on the same mixtures."""
    print(f"\n{title}, {n_seeds} seeds\n{'':22}{'median':>8}{'worst':>8}{'seconds':>9}")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in METHODS}
    for seed in range(n_seeds):
        sources = make(seed)
        mixing = np.random.default_rng([8, seed]).standard_normal((sources.shape[1],) * 2)
        rows = sources @ mixing.T
        for name, method in METHODS.items():
            start = time.process_time()
            unmixing = method(rows, seed)
            found[name].append((1000 * amari(unmixing @ mixing), time.process_time() - start))
    for name, results in found.items():
        distances, seconds = np.array(results).T
        print(
            f"{name:22}{np.median(distances):8.2f}{distances.max():8.2f}{np.median(seconds):9.2f}",
            flush=True,
        )


def long_stream(n_rows: int) -> None:
    """Print how long one pass over many rows takes, and how much memory."""
    mixing = np.random.default_rng(0).standard_normal((20, 20))
    model, seconds, before = TensorICA(random_state=0), 0.0, 0
    for number in range(n_rows // 100_000):
        rows = planted(KINDS["mixed"], 20, 100_000, number) @ mixing.T
        start = time.process_time()
        model.partial_fit(rows)
        seconds += time.process_time() - start
        if number == 2:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    distance = 1000 * amari(model.components_ @ mixing)
    print(
        "\n"
        f"one pass over {n_rows:,} rows of 20 columns: distance {distance:.2f}, {seconds:.1f} s, "
        f"{grown:.0f} MB more than after 300,000"
    )


def patches(side: int, n_rows: int) -> None:
    """Print the likelihood of unmixing matrices of patches of two photographs."""
    from sklearn.datasets import load_sample_image
    from sklearn.feature_extraction.image import extract_patches_2d

    from odeco.models.ica.likelihood import histogram, log_densities

    methods = {
        name: METHODS[name] for name in ("TensorICA", "FastICA, logcosh", "Picard, extended")
    }
    methods["Picard, tanh"] = _picard(ortho=False, extended=False)
    for image in ("china.jpg", "flower.jpg"):
        pixels = load_sample_image(image).astype(float).mean(axis=2) / 25.5
        rows = extract_patches_2d(pixels, (side, side), max_patches=n_rows, random_state=0).reshape(
            n_rows, -1
        )
        rows = (rows - rows.mean(axis=1, keepdims=True))[:, :-1]
        print(f"\npatches of {side} x {side}, {image}, n = {n_rows:,}: log-likelihood, seconds")
        for name, method in methods.items():
            start = time.process_time()
            unmixing = method(rows, 0)
            seconds = time.process_time() - start
            sources = (rows - rows.mean(axis=0)) @ unmixing.T
            scale = sources.std(axis=0)
            values = (sources / scale).T
            densities = log_densities(histogram(values), values).sum(axis=0).mean()
            likelihood = np.linalg.slogdet(unmixing / scale[:, None])[1] + densities
            print(f"{name:22}{likelihood:9.3f}{seconds:9.2f}", flush=True)


def many_sources(kind: str, d: int, k: int, n_rows: int, n_seeds: int) -> None:
    """Print how well more sources than columns are found in one pass."""
    draws: dict[str, Callable[[np.random.Generator, tuple[int, int]], FloatArray]] = {
        "Laplace": lambda rng, shape: rng.laplace(size=shape) / np.sqrt(2),
        "speech-like": lambda rng, shape: (
            rng.laplace(size=shape) * np.sqrt(rng.gamma(0.5, 2, shape) / 2)
        ),
        "sparse": lambda rng, shape: (
            rng.standard_normal(shape) * (rng.random(shape) < 0.1) * np.sqrt(10)
        ),
    }
    worst, median, seconds, errors, right = [], [], [], [], 0
    for seed in range(n_seeds):
        mixing = np.random.default_rng([9, seed]).standard_normal((d, k))
        mixing /= np.linalg.norm(mixing, axis=0)
        model, spent = TensorICA(k, random_state=seed), 0.0
        generator = np.random.default_rng([10, seed])
        batch = min(n_rows, 50_000)
        for _ in range(n_rows // batch):
            sources = draws[kind](generator, (batch, k))
            start = time.process_time()
            model.partial_fit(sources @ mixing.T)
            spent += time.process_time() - start
        start = time.process_time()
        found = model.mixing_ / np.linalg.norm(model.mixing_, axis=0)
        seconds.append(spent + time.process_time() - start)
        cosines = mixing.T @ found
        places = np.abs(cosines).argmax(axis=1)
        chosen = cosines[np.arange(k), places]
        worst.append(np.abs(chosen).min())
        median.append(np.median(np.abs(chosen)))
        rows, truth = sources[:2000] @ mixing.T, sources[:2000]
        linear = (rows - model.mean_) @ model.components_.T
        own = (
            model.transform(rows)[:, places] * np.sign(chosen),
            linear[:, places] * np.sign(chosen),
        )
        errors.append([np.sqrt(np.mean((each - truth) ** 2)) for each in own])
        if seed == 0:
            right = (
                TensorICA("auto", random_state=0)
                .fit(_again(draws[kind], mixing, min(n_rows, 300_000)))
                .n_components_
            )
    by_means, by_lines = np.mean(errors, axis=0)
    print(
        f"{kind:12}{d:4}{k:4}{n_rows:11,}{min(worst):9.4f}{np.median(median):9.4f}{np.median(seconds):8.2f}{by_means:10.2f}{by_lines:8.2f}{right:6}",
        flush=True,
    )


def _again(draw_sources: Any, mixing: FloatArray, n_rows: int) -> FloatArray:
    """Return rows for the choice of a number."""
    return np.asarray(draw_sources(np.random.default_rng(11), (n_rows, mixing.shape[1])) @ mixing.T)


def gaussian_rows(n_seeds: int) -> None:
    """Print how often "auto" finds a source in Gaussian rows."""
    for d, n_rows in ((5, 1000), (10, 3000), (10, 30_000)):
        numbers = []
        for seed in range(n_seeds):
            generator = np.random.default_rng([12, seed])
            rows = generator.standard_normal((n_rows, d)) @ generator.standard_normal((d, d))
            numbers.append(TensorICA("auto", random_state=seed).fit(rows).n_components_)
        wrong = sum(number > 0 for number in numbers)
        print(
            f"Gaussian rows, d = {d}, n = {n_rows:,}: sources in {wrong} of {n_seeds} runs",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="independent sources, beside FastICA and Picard")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, and two seeds")
    parser.add_argument("--only", default="", help="only tables with this word in their title")
    parser.add_argument("--seeds", type=int, help="by default 5, or 2 with --quick")
    chosen = parser.parse_args()
    quick, n_rows, n_seeds = chosen.quick, *((10_000, 2) if chosen.quick else (100_000, 5))
    n_seeds = chosen.seeds or n_seeds
    warnings.simplefilter("ignore")
    tables: dict[str, tuple[Callable[[int], FloatArray], int]] = {}
    for name, kinds in KINDS.items():
        tables[f"{name}, d = 20, n = {n_rows:,}"] = (partial(planted, kinds, 20, n_rows), n_seeds)
    tables["ten kinds, d = 10, n = 2,000"] = (
        partial(planted, KINDS["ten kinds"], 10, 2000),
        2 * n_seeds,
    )
    tables["images, d = 6, n = 65,536"] = (partial(images, False), n_seeds)
    tables["images, shuffled"] = (partial(images, True), n_seeds)
    for title, (make, number) in tables.items():
        if chosen.only in title:
            compare(title, make, number)
    if chosen.only in "one pass":
        long_stream(1_000_000 if quick else 10_000_000)
    if chosen.only in "patches":
        patches(4, 20_000)
        patches(6, 20_000)
    for kind in ("Laplace", "speech-like", "sparse"):
        if chosen.only in f"more sources than columns, {kind}":
            print(
                "\n"
                f"more sources than columns, {kind}, one pass, {n_seeds} seeds\n"
                f"{'':12}{'d':>4}{'k':>4}{'n':>11}{'worst':>9}{'median':>9}{'seconds':>8}{'transform':>10}{'linear':>8}{'auto':>6}"
            )
            for d, k, n in (
                (10, 12, 100_000),
                (10, 15, 300_000),
                (10, 20, 1_000_000),
                (20, 30, 1_000_000),
            ):
                many_sources(kind, d, k, n // 10 if quick else n, n_seeds)
    if chosen.only in "Gaussian rows":
        gaussian_rows(20 if quick else 50)


if __name__ == "__main__":
    main()
