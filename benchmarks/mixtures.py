"""Mixtures of Gaussians beside scikit-learn and diffprivlib: `python benchmarks/mixtures.py
[--quick]` prints tables.

    --planted    spheres: how far the likelihood of new rows is below that of the truth
    --elongated  components that are no spheres, with every kind of covariances
    --real       tables that scikit-learn ships
    --one-pass   rows that are fed once; --rows 10000000 for the figure of memory
    --private    what privacy costs, down to where it ends, beside the methods of `private_kmeans.py`; --peer PYTHON is
                 an interpreter that has diffprivlib

Every method gets the same rows, and is judged on the same rows. Seconds are CPU time of one thread.
Cells are the median over runs and, in brackets, the worst. Data and methods draw from seeds that
have nothing in common: centres that a method draws from the seed of the data would lie at the true
means.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from private_kmeans import DELTA, nearest, peers_of, random_centres, tuples_of
from sklearn import datasets
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from odeco.errors import ReusedRecordsWarning
from odeco.models import TensorMixture
from odeco.models.emissions.gaussians import Gaussians

DATA, METHODS = 20_260, 31_337
KINDS = ("spherical", "diag", "full")


def planted(k: int, d: int, separation: float, run: int) -> Gaussians:
    """Return spheres of variance one and equal weight, so many deviations apart on average."""
    means = separation / np.sqrt(2 * d) * np.random.default_rng([DATA, run]).standard_normal((k, d))
    return Gaussians(np.full(k, 1 / k), means, np.ones(k))


def elongated(truth: Gaussians, run: int) -> Gaussians:
    """Return the same components, each with axes of its own, from e⁻¹ to e long."""
    rng, (k, d) = np.random.default_rng([DATA, run, 1]), truth.means.shape
    roots = np.linalg.qr(rng.standard_normal((k, d, d)))[0] * np.exp(rng.uniform(-1, 1, (k, 1, d)))
    return Gaussians(truth.weights, truth.means, roots @ roots.transpose(0, 2, 1))


def drawn(truth: Gaussians, n: int, *seeds: int) -> tuple[Any, Any]:
    """Return rows in random order, with their components."""
    rng = np.random.default_rng([DATA, *seeds, 2])
    rows, labels = truth.draw(n, rng)
    order = rng.permutation(n)
    return rows[order], labels[order]


def seed_of(run: int) -> int:
    return METHODS + 101 * run


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = work()
    return made, time.process_time() - start


def fitted(make: Callable[[int], Any], run: int, rows: Any) -> Any:
    return make(run).fit(rows)


def fed(make: Callable[[int], Any], run: int, rows: Any) -> Any:
    """Return a model that was fed rows in batches, and has been asked, so that all of its work is
    done.
    """
    model = make(run)
    for batch in np.split(rows, len(rows) // 10_000):
        model.partial_fit(batch)
    model.predict(rows[:1])
    return model


def cell(values: list[float], *, high_is_good: bool, digits: int = 3) -> str:
    worst = min(values) if high_is_good else max(values)
    return f"{np.median(values):.{digits}f} ({worst:.{digits}f})"


def ours(k: int, run: int, kind: str = "spherical", **settings: Any) -> TensorMixture:
    return TensorMixture(k, covariance_type=kind, random_state=seed_of(run), n_jobs=1, **settings)  # type: ignore[arg-type]


def peer(k: int, run: int, kind: str, n_init: int) -> GaussianMixture:
    return GaussianMixture(k, covariance_type=kind, n_init=n_init, random_state=seed_of(run))


def nearest_centres(k: int, run: int) -> KMeans:
    return KMeans(k, n_init=10, random_state=seed_of(run))


def show_planted(quick: bool) -> None:
    cases = [(50, 20, 100_000, 4.0), (60, 30, 30_000, 8.0), (20, 10, 100_000, 4.0)]
    for d, k, n, separation in [(20, 10, 5_000, 6.0)] if quick else cases:
        print(f"\nspheres: d = {d}, k = {k}, n = {n:,}, separation {separation:g}")
        print(f"{'method':<32}{'gap of likelihood':>20}{'ARI':>18}{'seconds':>18}")
        methods: dict[str, Callable[[int], Any]] = {
            "TensorMixture": partial(ours, k),
            "GaussianMixture(n_init=1)": partial(peer, k, kind="spherical", n_init=1),
            "GaussianMixture(n_init=10)": partial(peer, k, kind="spherical", n_init=10),
            "KMeans(n_init=10)": partial(nearest_centres, k),
        }
        for name, make in methods.items():
            gaps, rands, seconds = [], [], []
            for run in range(2 if quick else 3):
                truth = planted(k, d, separation, run)
                rows, _ = drawn(truth, n, run, 0)
                judged, labels = drawn(truth, 20_000, run, 1)
                model, spent = timed(partial(fitted, make, run, rows))
                if hasattr(model, "score_samples"):
                    gaps.append(float(truth.posterior(judged)[1].mean() - model.score(judged)))
                rands.append(adjusted_rand_score(labels, model.predict(judged)))
                seconds.append(spent)
            gap = cell(gaps, high_is_good=False, digits=4) if gaps else ""
            rand, spent_cell = (
                cell(rands, high_is_good=True),
                cell(seconds, high_is_good=False, digits=2),
            )
            print(f"{name:<32}{gap:>20}{rand:>18}{spent_cell:>18}", flush=True)


def show_tables(tables: dict[str, tuple[Any, Any, int]], n_runs: int) -> None:
    """Print mean log-likelihood of the rows learnt from, ARI with the labels, and seconds, for
    every kind.
    """
    print(
        f"{'table':<16}{'covariances':<12}{'method':<28}{'log-likelihood':>22}{'ARI':>18}{'seconds':>16}"
    )
    for name, (rows, labels, k) in tables.items():
        for kind in KINDS:
            if (
                kind == "full" and len(rows) / k < rows.shape[1] * 4
            ):  # a few rows for each number of a covariance
                print(
                    f"{name:<16}{kind:<12}left out: {len(rows) // k} rows a component, "
                    f"{rows.shape[1]} features"
                )
                continue
            made: dict[str, Callable[[int], Any]] = {
                "TensorMixture": partial(ours, k, kind=kind),
                "GaussianMixture(n_init=10)": partial(peer, k, kind=kind, n_init=10),
            }
            for method, make in made.items():
                scores, rands, seconds = [], [], []
                for run in range(n_runs):
                    model, spent = timed(partial(fitted, make, run, rows))
                    scores.append(float(model.score(rows)))
                    rands.append(adjusted_rand_score(labels, model.predict(rows)))
                    seconds.append(spent)
                print(
                    f"{name:<16}{kind:<12}{method:<28}{cell(scores, high_is_good=True):>22}{cell(rands, high_is_good=True):>18}{cell(seconds, high_is_good=False, digits=2):>16}",
                    flush=True,
                )


def show_elongated(quick: bool) -> None:
    tables = {}
    for run in range(1 if quick else 3):
        rows, labels = drawn(
            elongated(planted(10, 20, 6.0, run), run), 2_000 if quick else 10_000, run, 0
        )
        tables[f"planted {run}"] = (rows, labels, 10)
    print("\nelongated components: d = 20, k = 10, separation 6, axes from 1/e to e")
    show_tables(tables, 1)


def show_real(quick: bool) -> None:
    names = (
        {"iris": 3, "wine": 3}
        if quick
        else {"iris": 3, "wine": 3, "breast_cancer": 2, "digits": 10}
    )
    tables = {}
    for name, k in names.items():
        bunch = getattr(datasets, f"load_{name}")()
        rows = StandardScaler().fit_transform(bunch.data)
        tables[name] = (rows, bunch.target, k)
    print("\nreal tables, standardised")
    show_tables(tables, 2 if quick else 3)


def show_one_pass(quick: bool) -> None:
    d, k, n, separation = (10, 5, 30_000, 8.0) if quick else (60, 30, 200_000, 8.0)
    print(
        f"\none pass: d = {d}, k = {k}, {n:,} rows in batches of 10,000, separation {separation:g}"
    )
    print(f"{'method':<40}{'ARI':>18}{'seconds':>18}")
    methods: dict[str, Callable[[int], Any]] = {
        "TensorMixture.partial_fit": lambda run: ours(k, run),
        "MiniBatchKMeans.partial_fit": lambda run: MiniBatchKMeans(k, random_state=seed_of(run)),
    }
    for name, make in methods.items():
        rands, seconds = [], []
        for run in range(2 if quick else 4):
            truth = planted(k, d, separation, run)
            rows, _ = drawn(truth, n, run, 0)
            judged, labels = drawn(truth, 20_000, run, 1)
            model, spent = timed(partial(fed, make, run, rows))
            seconds.append(spent)
            rands.append(adjusted_rand_score(labels, model.predict(judged)))
        print(
            f"{name:<40}{cell(rands, high_is_good=True):>18}{cell(seconds, high_is_good=False, digits=2):>18}",
            flush=True,
        )


def show_memory(n: int) -> None:
    """Feed rows that are drawn as they are needed, and print what the process has grown to."""
    d, k = 20, 10
    truth = planted(k, d, 6.0, 0)
    model = ours(k, 0)
    grown, spent = [], 0.0
    for batch in range(n // 100_000):
        rows, _ = drawn(truth, 100_000, 0, 2 + batch)
        spent += timed(partial(model.partial_fit, rows))[1]
        grown.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    judged, labels = drawn(truth, 20_000, 0, 1)
    gap = float(truth.posterior(judged)[1].mean() - model.score(judged))
    print(
        "\n"
        f"{n:,} rows in one pass, d = {d}, k = {k}: {spent:.1f} s of CPU; largest memory "
        f"{grown[0]:.0f} MB after the first 100,000 rows and {grown[-1]:.0f} MB after the last; "
        f"gap of likelihood {gap:.5f}, ARI "
        f"{adjusted_rand_score(labels, model.predict(judged)):.3f} (truth "
        f"{adjusted_rand_score(labels, truth.posterior(judged)[0].argmax(axis=1)):.3f})"
    )


# ---- privacy -------------------------------------------------------------------------------------


def show_private(quick: bool, python: str | None, only: str) -> None:
    print(
        "\n"
        f"privacy: one row replaced by any other, delta = {DELTA:g}; the bound of a row is 1.3 "
        "times its root mean square length"
    )
    for d, k, separation in (
        [(10, 5, 6.0)] if quick else [(30, 15, 7.0), (10, 5, 6.0), (10, 5, 30.0)]
    ):
        for n in (5_000,) if quick else (100_000, 5_000):
            title = f"d = {d}, k = {k}, n = {n:,}, separation {separation:g}"
            if re.search(only, title) is None:
                continue
            length = np.sqrt(separation**2 / 2 + d)
            made = []
            for run in range(2 if quick else 3):
                truth = planted(k, d, separation, run)
                rows, labels = drawn(truth, n, run, 0)
                made.append((truth, rows, labels, tuples_of(rows, k, 1.3 * length, seed_of(run))))
            best = [
                adjusted_rand_score(labels, truth.posterior(rows)[0].argmax(axis=1))
                for truth, rows, labels, _ in made
            ]
            plain = [
                adjusted_rand_score(
                    labels, KMeans(k, n_init=10, random_state=seed_of(run)).fit_predict(rows)
                )
                for run, (_, rows, labels, _) in enumerate(made)
            ]
            chance = [
                adjusted_rand_score(labels, nearest(rows, random_centres(k, d, 1.3 * length, rng)))
                for run, (_, rows, labels, _) in enumerate(made)
                for rng in map(np.random.default_rng, range(10 * run, 10 * run + 10))
            ]
            print(
                "\n"
                f"{title}: the truth {cell(best, high_is_good=True)}, KMeans(n_init=10) without "
                f"privacy {cell(plain, high_is_good=True)}, random centres "
                f"{cell(chance, high_is_good=True)}"
            )
            names = ("TensorMixture", "private Lloyd", "diffprivlib KMeans", "Cohen et al.", "DPM")
            print(f"{'epsilon':<9}" + "".join(f"{name:>19}" for name in names))
            for epsilon in (0.1, 0.5, 1.0, 4.0):
                found: dict[str, list[list[float]]] = {name: [] for name in names}
                for run, (_, rows, labels, tuples) in enumerate(made):
                    model = ours(k, run, epsilon=epsilon, delta=DELTA, norm_bound=1.3 * length).fit(
                        rows
                    )
                    found["TensorMixture"].append(
                        [adjusted_rand_score(labels, model.predict(rows))]
                    )
                    peers = peers_of(rows, k, length, 1.0, epsilon, seed_of(run), tuples, python)
                    for name, tried in peers.items():
                        found[name].append(
                            [adjusted_rand_score(labels, nearest(rows, each)) for each in tried]
                        )
                print(
                    f"{epsilon:<9g}" + "".join(f"{best_cell(each):>19}" for each in found.values()),
                    flush=True,
                )


def best_cell(found: list[list[float]]) -> str:
    """Return the cell of the setting with the highest median; `found` has a list of settings for
    each run.
    """
    settings = [list(each) for each in zip(*found, strict=True)]
    if not settings:
        return "not asked" if not found else "too few rows"
    return cell(max(settings, key=lambda each: float(np.median(each))), high_is_good=True)


SHOWN = {
    "planted": show_planted,
    "elongated": show_elongated,
    "real": show_real,
    "one_pass": show_one_pass,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("planted", "elongated", "real", "one-pass", "private", "quick"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--rows", type=int, default=0, help="feed so many rows in one pass")
    parser.add_argument(
        "--peer",
        default=os.environ.get("DIFFPRIVLIB_PYTHON"),
        help="an interpreter with diffprivlib",
    )
    parser.add_argument(
        "--only",
        default="",
        help="for --private: an expression that the title of a table must match",
    )
    asked = parser.parse_args()
    warnings.simplefilter(
        "ignore", ReusedRecordsWarning
    )  # several budgets are compared on the same rows
    with threadpool_limits(1):
        run_asked(asked)


def run_asked(asked: argparse.Namespace) -> None:
    chosen = [name for name in (*SHOWN, "private") if getattr(asked, name)]
    if asked.rows:
        show_memory(asked.rows)
        if not chosen:
            return
    for name in chosen or (*SHOWN, "private"):
        if name == "private":
            show_private(asked.quick, asked.peer, asked.only)
        else:
            SHOWN[name](asked.quick)


if __name__ == "__main__":
    main()
