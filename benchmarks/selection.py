"""n_components="auto" on planted tables: how often the number is right, and whether the stated confidence holds.

    python benchmarks/selection.py mixtures                  200 tables: mixtures, classes or states
    python benchmarks/selection.py mixtures --first-seed 0 --fit
                                                             also the calibration that fits these tables best
    python benchmarks/selection.py mixtures --results FILE   each table is added to the file; a run continues from it
    python benchmarks/selection.py shapes --sets 5           shapes and drifts that no component and no state fits: how
                                                             often the summary calls them parts of one group
    python benchmarks/selection.py doubts --sets 200         how often components and states that are there are doubted
    python benchmarks/selection.py sources --sets 60         how often planted sources, and rows that are no
                                                             mixture of sources, are called dependent

Tables differ in rows (60 to 3,000), columns, numbers of components (1 to 6) and how far these are apart, all drawn from
the seed. Constants of `odeco.models.engine.em.Calibration` were fitted to 300 tables from seed 20,000 on;
seeds from 30,000 on, the default, are others. BIC is computed from the same fits.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from odeco.models import LatentClasses, TensorHMM, TensorICA, TensorMixture
from odeco.models.engine import spec as engine_spec
from odeco.models.engine.em import ChosenNumber, choose_number
from odeco.models.engine.order import is_ordered
from odeco.models.gmm.groups import groups_of
from odeco.models.hmm.assumptions import DOUBTS


def mixture(rng: np.random.Generator, n_rows: int | None = None) -> tuple[Any, Any, int]:
    n, d, k = int(rng.choice([60, 100, 200, 400, 1000])), int(rng.choice([2, 4, 8])), int(rng.integers(1, 7))
    kind: Any = str(rng.choice(["spherical", "diag", "full"]))
    means = rng.standard_normal((k, d))
    if k > 1:
        distances = np.linalg.norm(means[:, None] - means, axis=2)[np.triu_indices(k, 1)]
        means *= rng.uniform(3, 6) / distances.min()
    shapes = np.stack([np.eye(d)] * k)
    if kind == "diag":
        shapes *= np.exp(rng.uniform(-0.5, 0.5, (k, 1, d)))
    elif kind == "full":
        shapes = shapes + 0.3 * rng.standard_normal((k, d, d))
    labels = rng.choice(k, n_rows or n, p=rng.dirichlet(np.full(k, 5.0)))
    rows = means[labels] + np.einsum("nij,nj->ni", shapes[labels], rng.standard_normal((len(labels), d)))
    return TensorMixture("auto", covariance_type=kind, standardize=False, n_jobs=1), rows, k


def classes(rng: np.random.Generator) -> tuple[Any, Any, int]:
    n, q, k = int(rng.choice([100, 300, 1000, 3000])), int(rng.choice([5, 8, 12])), int(rng.integers(1, 6))
    answers = rng.dirichlet(np.ones(int(rng.choice([2, 3]))), (k, q))
    labels = rng.choice(k, n, p=rng.dirichlet(np.full(k, 5.0)))
    rows = (rng.random((n, q, 1)) > np.cumsum(answers, axis=2)[labels][:, :, :-1]).sum(axis=2)
    return LatentClasses("auto"), rows, k


def states(rng: np.random.Generator) -> tuple[Any, Any, int]:
    n, k = int(rng.choice([200, 500, 1000, 3000])), int(rng.integers(1, 5))
    stay = rng.uniform(0.7, 0.95)
    transitions = stay * np.eye(k) + (1 - stay) * rng.dirichlet(np.ones(k), k)
    path = np.zeros(n, int)
    for t in range(1, n):
        path[t] = rng.choice(k, p=transitions[path[t - 1]] / transitions[path[t - 1]].sum())
    if rng.random() < 0.5:
        table = np.cumsum(rng.dirichlet(np.ones(int(rng.choice([4, 6, 10]))), k), axis=1)
        return TensorHMM("auto", emissions="categorical"), (rng.random((n, 1)) > table[path][:, :-1]).sum(axis=1), k
    d = int(rng.choice([1, 2]))
    means, scales = 2 * rng.standard_normal((k, d)), np.exp(rng.uniform(-0.5, 0.5, (k, d)))
    return TensorHMM("auto"), means[path] + scales[path] * rng.standard_normal((n, d)), k


PLANTED = {"mixtures": mixture, "classes": classes, "states": states}


def autoregression(slope: float, noise: Any) -> Any:
    rows = np.zeros(len(noise))
    for t in range(1, len(rows)):
        rows[t] = slope * rows[t - 1] + noise[t]
    return rows[:, None]


def ring(rng: np.random.Generator, n: int) -> Any:
    angles = rng.uniform(0, 2 * np.pi, n)
    return 5 * np.column_stack([np.cos(angles), np.sin(angles)]) + 0.3 * rng.standard_normal((n, 2))


#: Rows of one group, which mixtures cut into components, and rows without states, which hidden Markov models cut.
SHAPES: dict[str, Any] = {
    "t with 3 degrees of freedom": lambda rng, n: rng.standard_t(3, (n, 3)),
    "exponential": lambda rng, n: rng.exponential(size=(n, 2)),
    "lognormal": lambda rng, n: np.exp(rng.standard_normal((n, 2))),
    "uniform cube": lambda rng, n: rng.random((n, 3)),
    "ring": ring,
}
DRIFTS: dict[str, Any] = {
    "random walk": lambda rng, n: autoregression(1.0, rng.standard_normal(n)),
    "random walk, t with 3 degrees": lambda rng, n: autoregression(1.0, rng.standard_t(3, n)),
    "AR(1), 0.9": lambda rng, n: autoregression(0.9, rng.standard_normal(n)),
    "AR(1), 0.5": lambda rng, n: autoregression(0.5, rng.standard_normal(n)),
    "independent, t with 3 degrees": lambda rng, n: rng.standard_t(3, (n, 1)),
    "independent, exponential": lambda rng, n: rng.exponential(size=(n, 1)),
    "independent, uniform": lambda rng, n: rng.random((n, 1)),
}


#: So many rows of a planted mixture show whether there are gaps between its components.
MANY_ROWS = 20_000


def groups(model: Any, rows: Any) -> tuple[int, int]:
    """Return the least and the largest number of groups of a model that is fitted to rows."""
    return groups_of(model.fit(rows)._learnt.fit.params, rows, model.predict_proba(rows))[1:]


def false_alarms(seeds: range) -> None:
    """Print how often planted components and states are doubted, in models that are told their number.

    Mixtures are counted again if there is a gap between all of their components in `MANY_ROWS` rows: where there is
    none, the doubt is right that they may be one group.
    """
    print(
        "| rows | planted models | in order | perhaps of fewer groups | of fewer groups | of those with gaps | "
        "dependent | drift | independent |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for low, high in ((0, 100), (101, 400), (401, 3000)):
        found: dict[str, list[Any]] = {"mixtures": [], "states": []}
        for name, made in found.items():
            for seed in seeds:
                model, rows, planted = PLANTED[name](np.random.default_rng(seed))
                if low <= len(rows) <= high and planted > 1:
                    model.n_components, model.random_state = planted, seed
                    doubt = model.fit(rows)._learnt.fit.info.doubt
                    perhaps = joined = apart = in_order = False
                    if name == "mixtures":
                        in_order = is_ordered(rows, model.predict(rows))
                        least, most = groups(model, rows)
                        joined, perhaps = most < planted, least < planted <= most
                        apart = groups(model, mixture(np.random.default_rng(seed), MANY_ROWS)[1])[0] == planted
                    made.append(
                        (in_order, perhaps, joined, apart, joined and apart, *(doubt == each for each in DOUBTS))
                    )
        for name, made in found.items():
            if made:
                ordered, perhaps, joined, apart, wrong, *doubts = np.sum(made, axis=0)
                cells = " | ".join(map(str, (ordered, perhaps, joined, f"{wrong} of {apart}", *doubts)))
                print(f"| {low} to {high} | {len(made)} {name} | {cells} |", flush=True)


#: Distributions of sources, and rows that are no mixture of independent sources.
SOURCES: dict[str, Any] = {
    "laplace": lambda rng, n: rng.laplace(size=n),
    "uniform": lambda rng, n: rng.uniform(size=n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "t, 5 degrees": lambda rng, n: rng.standard_t(5, n),
    "two Gaussians": lambda rng, n: rng.standard_normal(n) / 2 + 2 * (rng.random(n) < 0.4),
    "gamma": lambda rng, n: rng.gamma(4.0, size=n),
    "beta": lambda rng, n: rng.beta(2.0, 5.0, n),
    "t, 3 degrees": lambda rng, n: rng.standard_t(3, n),
    "t, 2 degrees": lambda rng, n: rng.standard_t(2, n),
    "lognormal": lambda rng, n: np.exp(rng.standard_normal(n)),
    "sparse": lambda rng, n: rng.standard_normal(n) * (rng.random(n) < 0.2),
    "0 or 1": lambda rng, n: 1.0 * (rng.random(n) < 0.5),
    "rarely 1": lambda rng, n: 1.0 * (rng.random(n) < 0.1),
    "counts": lambda rng, n: 1.0 * rng.poisson(1.5, n),
    "nearly Gaussian": lambda rng, n: rng.standard_normal(n) + 0.5 * rng.laplace(size=n),
}
KINDS_OF_SOURCES = {
    "smooth": [*SOURCES][:7],
    "heavy tails": [*SOURCES][7:11],
    "discrete": [*SOURCES][11:14],
    "nearly Gaussian": [*SOURCES][14:],
    "all of these": [*SOURCES],
}
NO_MIXTURES: dict[str, Any] = {
    "multivariate t, 5 degrees": lambda rng, n, d: rng.standard_normal((d, n)) / np.sqrt(rng.chisquare(5, n) / 5),
    "uniform in a ball": lambda rng, n, d: (
        (rows := rng.standard_normal((d, n))) / np.linalg.norm(rows, axis=0) * rng.random(n) ** (1 / d)
    ),
    "three Gaussian clusters": lambda rng, n, d: (
        4 * rng.standard_normal((d, 3))[:, rng.integers(3, size=n)] + rng.standard_normal((d, n))
    ),
    "parabola": lambda rng, n, d: np.vstack(
        [(rows := rng.uniform(-1, 1, (d - 1, n))), rows[:1] ** 2 + 0.2 * rng.standard_normal((1, n))]
    ),
}


def doubted_sources(seeds: range) -> None:
    """Print how often planted sources, and rows that are no mixture of sources, are called dependent."""
    sizes = ((60, 2), (100, 3), (300, 3), (300, 8), (1000, 5), (1000, 15), (5000, 10))
    print("| rows, columns | " + " | ".join(map(str, sizes)) + " |\n|---" + "|---" * len(sizes) + "|")

    def doubted(draw: Any, n: int, d: int) -> int:
        found = 0
        for seed in seeds:
            rng = np.random.default_rng([seed, n, d])
            sources = draw(rng, n, d)
            rows = (rng.standard_normal((len(sources), len(sources))) @ sources).T
            found += TensorICA(random_state=0).fit(rows)._learnt.fit.info.doubt != ""
        return found

    def mixture_of(kinds: list[str]) -> Any:
        return lambda rng, n, d: np.array([SOURCES[kind](rng, n) for kind in rng.choice(kinds, d)])

    drawn = {name: mixture_of(kinds) for name, kinds in KINDS_OF_SOURCES.items()} | NO_MIXTURES
    for name, draw in drawn.items():
        print(f"| {name} | {' | '.join(str(doubted(draw, n, d)) for n, d in sizes)} |", flush=True)


def attack(seeds: range, sizes: list[int]) -> None:
    """Print what is said of rows that are one group, and of sequences without states."""
    print("| rows | number | selected | one, or called parts of one group or of a drift | of fewer groups | claimed |")
    print("|---|---|---|---|---|---|")
    for names, model in ((SHAPES, TensorMixture), (DRIFTS, TensorHMM)):
        for name, draw in names.items():
            for n in sizes:
                found = []
                for seed in seeds:
                    made: Any = model("auto", random_state=seed).fit(draw(np.random.default_rng(seed), n))
                    found.append(made._learnt.fit.info)
                one = [
                    each.selected == 1 or each.n_groups == 1 or each.doubt in ("drift", "independent") for each in found
                ]
                fewer = [
                    not sure and (0 < each.n_groups < each.selected or each.doubt != "")
                    for sure, each in zip(one, found, strict=True)
                ]
                picked = sorted(each.selected for each in found)
                cells = f"{sum(one)} of {len(one)} | {sum(fewer)} | {len(one) - sum(one) - sum(fewer)}"
                print(f"| {name} | {n:,} | {picked[0]} to {picked[-1]} | {cells} |", flush=True)


@dataclass(frozen=True)
class Selected:
    """What was selected on one planted table."""

    model: str
    seed: int
    planted: int
    n_components: int
    at_least: float
    exactly: float
    evidence: tuple[float, ...]
    bic: int
    n_rows: int
    seconds: float
    n_groups: int = 0
    doubt: str = ""


def select(name: str, seed: int) -> Selected:
    """Return the selection, the planted number, the number that BIC selects, the number of rows, and CPU seconds."""
    model, rows, planted = PLANTED[name](np.random.default_rng(seed))
    model.random_state = seed
    seen: list[ChosenNumber] = []
    sizes: dict[int, int] = {}

    def watched(learn: Any, folds: Any, n_rows: float | None = None, **how: Any) -> ChosenNumber:
        def noting(k: int, kept: Any) -> Any:
            scores, sizes[k], is_last = learn(k, kept)
            return scores, sizes[k], is_last

        seen.append(choose_number(noting, folds, n_rows, **how))
        return seen[0]

    engine_spec.choose_number = watched  # type: ignore[attr-defined]
    begun = time.process_time()
    model.fit(rows)
    seconds, chosen, n = time.process_time() - begun, seen[0], len(rows)
    bic = min(chosen.inside, key=lambda k: sizes[k] * math.log(n) - 2 * chosen.inside[k])
    stated = chosen.at_least, chosen.exactly, chosen.evidence
    info = model._learnt.fit.info
    return Selected(name, seed, planted, chosen.n_components, *stated, bic, n, seconds, info.n_groups, info.doubt)


def select_all(name: str, seeds: range, results: Path | None) -> list[Selected]:
    """Return the selections of all seeds. With a file of results, those that are in it are not computed again."""
    known: dict[int, Selected] = {}
    if results is not None and results.exists():
        entries = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
        known = {entry["seed"]: Selected(**entry) for entry in entries if entry["model"] == name}
    for seed in seeds:
        if seed not in known:
            known[seed] = select(name, seed)
            if results is not None:
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(known[seed])) + "\n")
    return [known[seed] for seed in seeds]


def fitted_calibration(found: list[Selected]) -> str:
    """Return the constants that fit planted tables best: frequencies, and a logistic regression with a weak prior."""
    several = [each for each in found if each.n_components > 1]
    sure = [each.planted >= each.n_components for each in several if each.at_least > 0.9]
    not_sure = [each.planted >= each.n_components for each in several if each.at_least <= 0.9]
    kept = [
        (each.evidence, each.planted == each.n_components)
        for each in found
        if each.evidence and each.planted >= each.n_components
    ]
    features = np.array([(1.0, *evidence) for evidence, _ in kept])
    right = np.array([each for _, each in kept])
    prior = np.array([0.0, -3.6, 0.6, -0.3, 0.0])

    def loss(weights: Any) -> float:
        odds = features @ weights
        shift = (weights - prior)[1:]
        return float(np.logaddexp(0, np.where(right, -odds, odds)).sum() + 0.5 * shift @ shift)

    best = minimize(loss, prior).x
    shares = [f"{(sum(part) + 1) / (len(part) + 2):.3f} ({len(part)})" for part in (sure, not_sure)]
    return f"when_sure, when_not {', '.join(shares)}; constant and slopes {', '.join(f'{each:.2f}' for each in best)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=[*PLANTED, "shapes", "doubts", "sources"])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=30_000)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--results", type=Path, help="file to which each table is added; a run continues from it")
    parser.add_argument("--rows", nargs="+", type=int, default=[300, 1000], help="of shapes")
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.sets)
    parts = {"shapes": lambda: attack(seeds, given.rows), "doubts": lambda: false_alarms(seeds)}
    parts["sources"] = lambda: doubted_sources(seeds)
    if given.model in parts:
        parts[given.model]()
        return
    results = select_all(given.model, seeds, given.results)
    print(f"{given.model}: {given.sets} planted tables, seeds from {given.first_seed}\n")
    print(
        "| rows | tables | right | too few | too many | BIC: right | too few | too many | CPU seconds, median | most |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for low, high in ((0, 100), (101, 400), (401, 3000), (0, 3000)):
        own = [each for each in results if low <= each.n_rows <= high]
        if not own:
            continue
        picked = np.array([(each.n_components - each.planted, each.bic - each.planted) for each in own]).T
        shares = [f"{np.mean(test):.1%}" for row in picked for test in (row == 0, row < 0, row > 0)]
        seconds = [each.seconds for each in own]
        print(
            f"| {low} to {high} | {len(own)} | {' | '.join(shares)} | {np.median(seconds):.2f} | {max(seconds):.2f} |"
        )
    print("\n| stated | tables | mean stated, and standard error | observed |\n|---|---|---|---|")
    tests: dict[str, Any] = {"at_least": np.greater_equal, "exactly": np.equal}
    for name, holds in tests.items():
        for lowest, highest in ((0, 0.5), (0.5, 0.7), (0.7, 0.85), (0.85, 0.95), (0.95, 1.01)):
            own = [
                each
                for each in results
                if lowest <= getattr(each, name) < highest and (name == "exactly" or each.n_components > 1)
            ]
            if own:
                stated = float(np.mean([getattr(each, name) for each in own]))
                observed = np.mean([holds(each.planted, each.n_components) for each in own])
                error = math.sqrt(stated * (1 - stated) / len(own))
                print(
                    f"| {name}, {lowest:.0%} to {min(highest, 1):.0%} | {len(own)} | "
                    f"{stated:.1%} ± {error:.1%} | {observed:.1%} |"
                )
    several = [each for each in results if each.n_components > 1]
    fewer = sum(0 < each.n_groups < each.n_components for each in several)
    doubted = ", ".join(f"{sum(each.doubt == name for each in several)} {name}" for name in DOUBTS)
    print(f"\nof {len(several)} with several: {fewer} called parts of fewer groups; doubts: {doubted}")
    if given.fit:
        print("\n" + fitted_calibration(results))


if __name__ == "__main__":
    main()
