"""Private runs beside what they could at best be, and beside others; every neighbour replaces one
row.

    python benchmarks/private_models.py bounds|subspace|models|plans [--quick] [--sizes 50x20000
    ...] [--only REGEX]
        [--draws N] [--peer PYTHON] [--epsilon E]

*bounds*: the utility with ``norm_bound="auto"`` beside that of eight fixed bounds, the quantiles of
the norms of the rows, which nobody could know. Tables are those of scikit-learn, standardised, from
which rows are drawn with replacement and a little noise. Utility is the share of the second moment
that a subspace of three dimensions has, relative to the best one; the share of the variance that
private clusters explain, relative to k-means; and the share of the norm of the third moment that
private components explain, relative to open ones. Means of five draws.

*subspace*: the squared sine between the direction found and the leading one of rows that have twice
the variance along one direction, for d from 50 to 1,000: `odeco.private_subspace` with a bound that
it chooses; DP-PCA (Liu, Kong, Jain and Oh, NeurIPS 2022, arXiv:2205.13709) as in
`benchmarks/successors.py`, with scale and range of its gradients given at no cost and its settings
chosen after the fact; and diffprivlib's PCA, if --peer is an interpreter that has it and if it
takes no more than a minute. Medians of five draws.

*models*: for every case of `private_cases.py`, what is found without privacy, and at ε = 0.5 to 8.
Below it the trivial private answer of the same ε: one component, class or topic; private principal
axes for sources; the most frequent state, which is not private; one community. Below that the best
method of others (`private_peers.py`, `private_kmeans.py`, `private_spectral.py`; diffprivlib with
--peer), with the settings whose median is best after the fact. Medians of five draws, of the data
and of the noise. The settings of odeco were chosen on other data.

*plans*: whether plans come true. For every model and ε, plans of different seeds state how many
components would be found. Each statement is compared with the simulated runs of the next plan,
which it has not seen: in how many of these 100 runs, or a few more, are at least as many found? Of
tensors, a plan says from which weight on all components are found (`MechanismPlan.sure_signal`):
100 runs each have that weight.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from peers import private_cases
from peers.private_cases import CASES, PLANS, TENSORS, Others, all_found
from peers.private_kmeans import DELTA
from sklearn import datasets
from sklearn.cluster import KMeans
from successors import PCA_CHOICES, dp_pca

import odeco
from odeco._util.types import FloatArray
from odeco.models import TensorMixture
from odeco.privacy import noise_multiplier

N_DRAWS = 5

#: Number of runs that plans are compared with, at least.
N_RUNS = 100

#: Tables of scikit-learn, and the number of clusters that is looked for in each.
TABLES = {"iris": 3, "wine": 3, "breast_cancer": 2, "digits": 10, "diabetes": 2}

#: Dimensions and numbers of rows of *subspace*.
SIZES = [(50, 5_000), (50, 20_000), (200, 20_000), (200, 50_000), (500, 50_000), (1000, 50_000)]

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


def rows_of(table: str, n_rows: int) -> FloatArray:
    """Return rows drawn from a standardised table, with a little noise."""
    rows = np.asarray(getattr(datasets, f"load_{table}")().data, dtype=np.float64)
    rows = rows[:, rows.std(axis=0) > 0]
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    rng = np.random.default_rng(0)
    drawn: FloatArray = rows[rng.integers(len(rows), size=n_rows)]
    return drawn + 0.1 * rng.standard_normal(drawn.shape)


def of_subspace(rows: FloatArray, _k: int, epsilon: float) -> Callable[[Any, int], float]:
    """Return the utility of a subspace of three dimensions, by the bound on norms."""
    moment = rows.T @ rows / len(rows)
    best = float(np.linalg.eigvalsh(moment)[-3:].sum())

    def utility(bound: Any, _seed: int) -> float:
        basis = odeco.private_subspace(
            rows, 3, epsilon=epsilon, delta=DELTA, norm_bound=bound
        ).basis
        return float(np.trace(basis.T @ moment @ basis)) / best

    return utility


def of_clusters(rows: FloatArray, k: int, epsilon: float) -> Callable[[Any, int], float]:
    """Return the utility of a mixture, by the bound on norms."""
    variance = float(np.square(rows - rows.mean(axis=0)).sum(axis=1).mean())
    best = variance - KMeans(k, n_init=5, random_state=0).fit(rows).inertia_ / len(rows)

    def utility(bound: Any, seed: int) -> float:
        model = TensorMixture(
            k, epsilon=epsilon, delta=DELTA, norm_bound=bound, random_state=seed
        ).fit(rows)
        distances: FloatArray = (
            np.square(rows[:, None, :] - model.means_[None]).sum(axis=2).min(axis=1)
        )
        return float((variance - distances.mean()) / best)

    return utility


def of_components(rows: FloatArray, _k: int, epsilon: float) -> Callable[[Any, int], float]:
    """Return the utility of the first three components of the third moment, by the bound on
    norms.
    """

    def explained(vectors: FloatArray) -> float:
        inside = rows @ np.linalg.qr(vectors)[0]
        core = np.einsum("na,nb,nc->abc", inside, inside, inside, optimize=True) / len(rows)
        return float(np.linalg.norm(core))

    open_ones = odeco.decompose_stream(rows, 3, rng=0)
    best = explained(open_ones.vectors)

    def utility(bound: Any, seed: int) -> float:
        found = odeco.decompose_privately(
            rows, 3, epsilon=epsilon, delta=DELTA, unit="record", norm_bound=bound, rng=seed
        )
        return explained(found.vectors) / best

    return utility


def compare_bounds(*, quick: bool, **_others: Any) -> None:
    """Print the utility with a chosen bound beside that of the best fixed one."""
    tasks = {
        "subspace": (of_subspace, 1.0),
        "clusters": (of_clusters, 2.0),
        "components": (of_components, 4.0),
    }
    for n_rows in (5_000,) if quick else (5_000, 20_000):
        print(
            "\n"
            f"{n_rows:,} rows, replaced; utility: chosen bound, best fixed one (its quantile), "
            "largest norm"
        )
        print(
            "| table | "
            + " | ".join(f"{task}, ε = {epsilon:g}" for task, (_, epsilon) in tasks.items())
            + " |"
        )
        print("|---" * (len(tasks) + 1) + "|")
        for table, k in TABLES.items():
            rows, cells = rows_of(table, n_rows), []
            norms = np.linalg.norm(rows, axis=1)
            for make, epsilon in tasks.values():
                utility = make(rows, k, epsilon)
                fixed = [
                    np.mean(
                        [utility(float(np.quantile(norms, each)), seed) for seed in range(N_DRAWS)]
                    )
                    for each in QUANTILES
                ]
                chosen, best = (
                    np.mean([utility("auto", seed) for seed in range(N_DRAWS)]),
                    int(np.argmax(fixed)),
                )
                cells.append(
                    f"{chosen:.3f}, {fixed[best]:.3f} ({QUANTILES[best]:g}), {fixed[-1]:.3f}"
                )
            print(f"| {table} ({rows.shape[1]}) | " + " | ".join(cells) + " |", flush=True)


def compare_subspaces(
    *, quick: bool, peer: str | None, sizes: list[tuple[int, int]], epsilon: float, **_others: Any
) -> None:
    """Print the squared sine of the leading direction, by dimension and number of rows."""
    variance = 4.0
    print(
        "\n"
        f"Leading direction, ε = {epsilon:g}, δ = {DELTA:g}, one row replaced; squared sine, "
        f"median of {N_DRAWS}"
    )
    print(f"Rows are Gaussian with variance 1, and {variance:g} along one direction")
    print(
        "| d | rows | odeco, bound chosen | DP-PCA, scale given (batches) | diffprivlib PCA | "
        "without privacy |"
    )
    print("|---|---|---|---|---|---|")
    multiplier = noise_multiplier(epsilon, DELTA)
    for d, n_rows in sizes or (SIZES[:2] if quick else SIZES):
        sines = np.full((3 + len(PCA_CHOICES), N_DRAWS), np.nan)
        for seed in range(N_DRAWS):
            rng = np.random.default_rng([seed, d])
            direction = rng.standard_normal(d)
            direction /= np.linalg.norm(direction)
            rows = rng.standard_normal((n_rows, d))
            rows += (math.sqrt(variance) - 1) * np.outer(rows @ direction, direction)
            ours = odeco.private_subspace(
                rows, 1, epsilon=epsilon, delta=DELTA, norm_bound="auto"
            ).basis[:, 0]
            exact = np.linalg.eigh(rows.T @ rows)[1][:, -1]
            theirs = [dp_pca(rows, variance - 1, choice, multiplier, rng) for choice in PCA_CHOICES]
            found = [ours, diffprivlib_pca(rows, epsilon, seed, peer), exact, *theirs]
            sines[:, seed] = [1 - float(vector @ direction) ** 2 for vector in found]
        medians = np.median(sines, axis=1)
        best = int(np.argmin(medians[3:]))
        theirs_best = f"{medians[3 + best]:.3f} ({PCA_CHOICES[best][0]})"
        print(
            (
                f"| {d} | {n_rows:,} | {medians[0]:.3f} | {theirs_best} | {medians[1]:.3f} | "
                f"{medians[2]:.3f} |"
            ),
            flush=True,
        )


#: diffprivlib's PCA on rows in a file; centred data, and the norm that most rows do not exceed as a
#: public bound.
_PEER = """
import sys, warnings
import numpy as np
from diffprivlib.models import PCA
warnings.simplefilter("ignore")
rows = np.load(sys.argv[1] + "/rows.npy")
model = PCA(1, epsilon=float(sys.argv[2]), data_norm=float(sys.argv[3]), centered=True, random_state=int(sys.argv[4]))
np.save(sys.argv[1] + "/found.npy", model.fit(rows).components_[0])
"""


def diffprivlib_pca(rows: FloatArray, epsilon: float, seed: int, peer: str | None) -> FloatArray:
    """Return the direction of diffprivlib's PCA, or NaN if it takes more than a minute, or without
    `peer`.
    """
    if peer is None:
        return np.full(rows.shape[1], np.nan)
    bound = math.sqrt(rows.shape[1]) + 3
    clipped = rows * np.minimum(1, bound / np.linalg.norm(rows, axis=1, keepdims=True))
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/rows.npy", clipped)
        command = [peer, "-c", _PEER, folder, str(epsilon), str(bound * (1 + 1e-9)), str(seed)]
        try:
            subprocess.run(command, check=True, env={"PATH": os.environ["PATH"]}, timeout=60)
        except (
            subprocess.TimeoutExpired
        ):  # it draws directions by rejection, which may take very long
            return np.full(rows.shape[1], np.nan)
        found: FloatArray = np.load(Path(folder) / "found.npy")
    return found


EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)


def compare_models(*, only: str, draws: int, peer: str | None, **_others: Any) -> None:
    """Print for each case the open result, the private ones, the trivial ones, and the best of
    others.
    """
    private_cases.DIFFPRIVLIB = peer
    print(f"\nδ = {DELTA:g}, or 0 for communities; medians of {draws} draws")
    print(
        "| case | one neighbour | open | "
        + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS)
        + " |"
    )
    print("|---" * (len(EPSILONS) + 3) + "|")
    for name, case in CASES.items():
        if re.search(only, name) is None:
            continue
        results, trivial, others = [], [], []
        for seed in range(draws):
            found, without, of_others = case.make(seed)
            results.append([found(None), *(found(epsilon) for epsilon in EPSILONS)])
            trivial.append([without(epsilon) for epsilon in EPSILONS])
            others.append([of_others(epsilon) for epsilon in EPSILONS])
        relation = "added or removed" if case.neighbours == "edge" else "replaced"
        cells = " | ".join(f"{each:.3f}" for each in np.median(results, axis=0))
        print(f"| {name} | {case.neighbours} {relation} | {cells} |")
        print(
            "| the trivial answer | | | "
            + " | ".join(f"{each:.3f}" for each in np.median(trivial, axis=0))
            + " |"
        )
        cells = " | ".join(
            best_of([row[place] for row in others], case.best) for place in range(len(EPSILONS))
        )
        print(f"| the best of others | | | {cells} |", flush=True)


def best_of(draws: list[Others], best: Callable[..., Any]) -> str:
    """Return the best median over draws of methods and their settings, and the name of the
    method.
    """
    medians = [
        (float(median), name)
        for name in draws[0]
        for median in np.median([draw[name] for draw in draws], axis=0)
    ]
    value, name = best(medians)
    return f"{value:.3f} ({name})"


def compare_plans(*, only: str, quick: bool, **_others: Any) -> None:
    """Print for each model and ε how many components plans state, and how often they are found."""
    print(
        "\n"
        "Components that plans state (mean, of all), and how often at least as many are found in "
        "other runs"
    )
    print("| model | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " |")
    print("|---" * (len(EPSILONS) + 1) + "|")
    for name, make in PLANS.items():
        if re.search(only, name) is None:
            continue
        cells = []
        for epsilon in EPSILONS:
            plans = [make(epsilon, 0)]
            n_plans = 4 if quick else math.ceil(N_RUNS / len(plans[0].simulated))
            plans += [make(epsilon, seed) for seed in range(1, n_plans)]
            come_true, stated = [], [plan.n_expected for plan in plans]
            for plan, other in zip(plans, plans[1:] + plans[:1], strict=True):
                runs = np.array(other.simulated) >= plan.threshold
                come_true += (runs.sum(axis=1) >= plan.n_expected).tolist()
            cells.append(
                f"{np.mean(stated):.1f} of {len(plans[0].agreements)}: {np.mean(come_true):.0%} "
                f"of {len(come_true)}"
            )
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    for mechanism, (dimension, k) in TENSORS.items():
        if re.search(only, f"tensors, {mechanism}") is None:
            continue
        n_runs = 10 if quick else N_RUNS
        shares = [
            np.mean([all_found(mechanism, dimension, k, epsilon, seed) for seed in range(n_runs)])
            for epsilon in EPSILONS
        ]
        cells = [f"{k} of {k}: {share:.0%} of {n_runs}" for share in shares]
        print(f"| tensors, {mechanism}, d = {dimension} | " + " | ".join(cells) + " |", flush=True)


PARTS: dict[str, Callable[..., None]] = {
    "bounds": compare_bounds,
    "subspace": compare_subspaces,
    "models": compare_models,
    "plans": compare_plans,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument(
        "--sizes", nargs="+", default=[], type=lambda text: tuple(map(int, text.split("x")))
    )
    parser.add_argument(
        "--peer",
        default=os.environ.get("DIFFPRIVLIB_PYTHON"),
        help="an interpreter with diffprivlib",
    )
    parser.add_argument("--epsilon", type=float, default=1.0, help="for subspace")
    parser.add_argument(
        "--only", default="", help="for models and plans: an expression that names must match"
    )
    parser.add_argument("--draws", type=int, default=N_DRAWS, help="for models: number of draws")
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = vars(arguments)
        PARTS[settings.pop("part")](**settings)


if __name__ == "__main__":
    main()
