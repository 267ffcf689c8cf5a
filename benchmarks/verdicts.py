"""Whether verdicts hold: is a component that halves of the data show again also found in fresh data
of the same law?

    python benchmarks/verdicts.py replication               all models, 40 tables each
    python benchmarks/verdicts.py replication --tables 200 --only mixtures classes
    python benchmarks/verdicts.py numbers  how often "auto" selects the planted number
    python benchmarks/verdicts.py tensors  k from d - 2 to 2 d components, with and without noise
    python benchmarks/verdicts.py coverage  how often intervals of weights of streams hold the truth

A law draws data as often as wanted, and may have any shape: groups, heavy tails, a single group, a
drift. For each draw a model is fitted and checked on halves (`split_half`), and another model is
fitted to a fresh draw of the same size. A component is found there by the criterion of the check
itself: it shares more than half of the records of both together (Jaccard index), or its vector has
a cosine of at least 0.85.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import odeco
from odeco.cp.rank import SURE
from odeco.models import Communities, LatentClasses, TensorHMM, TensorICA, TensorLDA, TensorMixture
from odeco.models.engine.agreement import is_found_again

Data = tuple[Any, dict[str, Any]]


@dataclass(frozen=True)
class Law:
    """A law of data: `draw` returns a table and the further arguments of `fit`, `model` an
    estimator for it.
    """

    name: str
    draw: Callable[[np.random.Generator], Data]
    model: Callable[[int], Any]
    n_planted: int


def mixture_laws(rng: np.random.Generator) -> list[Law]:
    """Return laws of rows: groups of several shapes, and rows without groups."""
    k = int(rng.integers(2, 6))
    d = int(rng.integers(2, 8))
    n = int(rng.choice([150, 500, 1500]))
    centres = rng.uniform(1.5, 4.0) * rng.standard_normal((k, d))
    maps = rng.standard_normal((k, d, d)) / np.sqrt(d) + 0.5 * np.eye(d)
    weights = rng.dirichlet(np.full(k, 3.0))

    def groups(
        noise: Callable[[np.random.Generator, tuple[int, int]], Any],
    ) -> Callable[[np.random.Generator], Data]:
        def draw(own: np.random.Generator) -> Data:
            labels = own.choice(k, size=n, p=weights)
            return centres[labels] + np.einsum("nij,nj->ni", maps[labels], noise(own, (n, d))), {}

        return draw

    def gaussian(own: np.random.Generator, shape: tuple[int, int]) -> Any:
        return own.standard_normal(shape)

    def one(own: np.random.Generator) -> Data:
        return own.standard_normal((n, d)), {}

    def model(seed: int) -> Any:
        return TensorMixture(k, random_state=seed)

    return [
        Law("gaussians", groups(gaussian), model, k),
        Law("heavy tails", groups(lambda own, shape: own.standard_t(4, shape)), model, k),
        Law("skewed", groups(lambda own, shape: own.exponential(size=shape)), model, k),
        Law("one group", one, model, 1),
    ]


def class_laws(rng: np.random.Generator) -> list[Law]:
    """Return laws of answers: classes, a trait by degrees, and independent answers."""
    k = int(rng.integers(2, 5))
    n_questions = int(rng.integers(6, 15))
    n = int(rng.choice([200, 800, 2000]))
    table = rng.dirichlet(np.full(3, 0.6), size=(k, n_questions))
    slopes = rng.uniform(0.5, 2.0, n_questions)

    def pick(probabilities: Any, own: np.random.Generator) -> Any:
        edges = probabilities.cumsum(axis=2)
        return (own.random((n, n_questions, 1)) > edges).sum(axis=2)

    def classes(own: np.random.Generator) -> Data:
        return pick(table[own.integers(k, size=n)], own), {}

    def trait(own: np.random.Generator) -> Data:
        height = own.standard_normal((n, 1)) * slopes
        return (own.random((n, n_questions)) < 1 / (1 + np.exp(-height))).astype(int), {}

    def independent(own: np.random.Generator) -> Data:
        return pick(np.broadcast_to(table[0], (n, n_questions, 3)), own), {}

    def model(seed: int) -> Any:
        return LatentClasses(k, handle_unknown="missing", random_state=seed)

    laws = [("classes", classes, k), ("trait", trait, 1), ("independent", independent, 1)]
    return [Law(name, draw, model, planted) for name, draw, planted in laws]


def state_laws(rng: np.random.Generator) -> list[Law]:
    """Return laws of sequences: states that emit symbols or numbers, a drift, and independent
    rows.
    """
    k = int(rng.integers(2, 5))
    n = int(rng.choice([1000, 3000]))
    stay = rng.uniform(0.7, 0.97)
    moves = stay * np.eye(k) + (1 - stay) * rng.dirichlet(np.ones(k), size=k)
    emissions = rng.dirichlet(np.full(8, 0.4), size=k)
    centres = rng.uniform(1.0, 3.0) * rng.standard_normal((k, 3))

    def path(own: np.random.Generator) -> Any:
        states = np.zeros(n, int)
        draws = own.random(n)
        edges = moves.cumsum(axis=1)
        for t in range(1, n):
            states[t] = min(int(np.searchsorted(edges[states[t - 1]], draws[t])), k - 1)
        return states

    def symbols(own: np.random.Generator) -> Data:
        edges = emissions[path(own)].cumsum(axis=1)
        return np.minimum((own.random((n, 1)) > edges).sum(axis=1), 7), {
            "symbol_names": list("abcdefgh")
        }

    def numbers(own: np.random.Generator) -> Data:
        return centres[path(own)] + own.standard_normal((n, 3)), {}

    def drift(own: np.random.Generator) -> Data:
        rows = np.zeros((n, 1))
        for t in range(1, n):
            rows[t] = 0.95 * rows[t - 1] + own.standard_normal()
        return rows, {}

    def model(seed: int) -> Any:
        return TensorHMM(k, random_state=seed)

    laws = [("symbols", symbols, k), ("numbers", numbers, k), ("drift", drift, 1)]
    return [Law(name, draw, model, planted) for name, draw, planted in laws]


def source_laws(rng: np.random.Generator) -> list[Law]:
    """Return laws of signals: independent sources, and a multivariate t that has none."""
    d = int(rng.integers(3, 7))
    n = int(rng.choice([500, 2000, 8000]))
    mixing = rng.standard_normal((d, d))
    kinds = rng.integers(4, size=d)

    def sources(own: np.random.Generator) -> Data:
        drawn = (own.laplace(size=(n, d)), own.uniform(-1, 1, (n, d)), own.exponential(size=(n, d)))
        all_kinds = np.stack([*drawn, own.standard_normal((n, d))])
        return all_kinds[kinds, :, np.arange(d)].T @ mixing, {}

    def radial(own: np.random.Generator) -> Data:
        return own.standard_normal((n, d)) @ mixing / np.sqrt(own.chisquare(4, (n, 1))), {}

    def model(seed: int) -> Any:
        return TensorICA(random_state=seed)

    return [Law("sources", sources, model, d), Law("multivariate t", radial, model, 0)]


def topic_laws(rng: np.random.Generator) -> list[Law]:
    """Return laws of documents on planted topics, and on a single one."""
    k = int(rng.integers(3, 9))
    n = int(rng.choice([500, 2000]))
    topics = rng.dirichlet(np.full(300, 0.05), size=k)

    def documents(own: np.random.Generator) -> Data:
        shares = own.dirichlet(np.full(k, 0.2), size=n)
        return np.stack([own.multinomial(40, share @ topics) for share in shares]), {}

    def single(own: np.random.Generator) -> Data:
        return own.multinomial(40, topics.mean(axis=0), size=n), {}

    def model(seed: int) -> Any:
        return TensorLDA(k, max_iter=20, random_state=seed)

    return [Law("topics", documents, model, k), Law("one topic", single, model, 1)]


def graph_laws(rng: np.random.Generator) -> list[Law]:
    """Return laws of graphs with planted communities, and without."""
    k = int(rng.integers(2, 6))
    n = int(rng.choice([120, 300]))
    within = rng.uniform(0.15, 0.4)
    between = within * rng.uniform(0.05, 0.4)

    def graph(chance: Any) -> Callable[[np.random.Generator], Data]:
        def draw(own: np.random.Generator) -> Data:
            upper = np.triu(own.random((n, n)) < chance, 1)
            return (upper | upper.T).astype(float), {}

        return draw

    group = np.arange(n) % k
    planted = np.where(group[:, None] == group, within, between)

    def model(seed: int) -> Any:
        return Communities(k, random_state=seed)

    return [
        Law("communities", graph(planted), model, k),
        Law("no communities", graph(np.full((n, n), planted.mean())), model, 1),
    ]


LAWS = {
    "mixtures": mixture_laws,
    "classes": class_laws,
    "states": state_laws,
    "sources": source_laws,
    "topics": topic_laws,
    "graphs": graph_laws,
}


def replication_of(law: Law, rng: np.random.Generator) -> list[tuple[int, bool]]:
    """Return for each component in how many half-samples it was found again, and whether fresh data
    show it.
    """
    first, side = law.draw(rng)
    fresh, fresh_side = law.draw(rng)
    model = law.model(0).fit(first, **side)
    if model.n_components_ < 2:
        return []
    found = model.split_half(first, **side)
    other = law.model(1).fit(fresh, **fresh_side)
    both = [each._signature(first) for each in (model, other)]
    again = is_found_again(both[0], both[1], model.n_components_)
    return list(zip(found.found_again.tolist(), again.tolist(), strict=True))


def replication(names: list[str], n_tables: int, first_seed: int) -> None:
    """Print how often components are found in fresh data, by the number of half-samples that show
    them.
    """
    print(
        "| model | law | components | 6 of 6: found in fresh data | 5 | 4 | 3 | 0 to 2 | CPU s |\n|"
        + "---|" * 9
    )
    for name in names:
        counted: dict[str, list[tuple[int, bool]]] = {}
        seconds: dict[str, float] = {}
        for number in range(n_tables):
            laws = LAWS[name](np.random.default_rng([first_seed, number]))
            law = laws[number % len(laws)]
            started = time.process_time()
            pairs = replication_of(law, np.random.default_rng([first_seed, number, 1]))
            seconds[law.name] = seconds.get(law.name, 0.0) + time.process_time() - started
            counted.setdefault(law.name, []).extend(pairs)
        for law_name, pairs in [
            *counted.items(),
            ("all", [pair for each in counted.values() for pair in each]),
        ]:
            cells = []
            for low, high in ((6, 6), (5, 5), (4, 4), (3, 3), (0, 2)):
                own = [found for count, found in pairs if low <= count <= high]
                cells.append(f"{sum(own)} of {len(own)}")
            spent = seconds.get(law_name, sum(seconds.values()))
            print(
                f"| {name} | {law_name} | {len(pairs)} | {' | '.join(cells)} | {spent:.0f} |",
                flush=True,
            )


def numbers(names: list[str], n_tables: int, first_seed: int) -> None:
    """Print how often "auto" selects the planted number."""
    print('| model | law | tables | "auto" is right | one off | CPU s |\n|' + "---|" * 6)
    for name in names:
        found: dict[str, list[int]] = {}
        started = time.process_time()
        for number in range(n_tables):
            laws = LAWS[name](np.random.default_rng([first_seed, number]))
            law = laws[number % len(laws)]
            rows, side = law.draw(np.random.default_rng([first_seed, number, 1]))
            model = law.model(0).set_params(n_components="auto").fit(rows, **side)
            found.setdefault(law.name, []).append(abs(int(model.n_components_) - law.n_planted))
        for law_name, errors in found.items():
            right, near = (sum(error == each for error in errors) for each in (0, 1))
            seconds = time.process_time() - started
            print(
                f"| {name} | {law_name} | {len(errors)} | {right} | {near} | {seconds:.0f} |",
                flush=True,
            )


def tensors(first_seed: int) -> None:
    """Print how often "auto" finds the components of generic tensors of order 3, and with which
    confidence it is wrong.
    """
    columns = ["d", "noise", "tensors", "right", "refused", "in doubt", "confident and wrong"]
    print("| " + " | ".join([*columns, "CPU s, at most"]) + " |\n|" + "---|" * 8)
    for dimension in (3, 4, 5, 6, 8, 10, 12, 15, 20):
        for noise in (0.0, 0.01):
            counts = dict.fromkeys(columns[2:], 0)
            longest = 0.0
            most = math.ceil((dimension + 1) * (dimension + 2) / 6) - 1
            for k in range(max(1, dimension - 2), min(2 * dimension, most) + 1):
                for seed in range(first_seed, first_seed + 2):
                    started = time.process_time()
                    counts[_outcome(dimension, k, noise, seed)] += 1
                    longest = max(longest, time.process_time() - started)
                    counts["tensors"] += 1
            cells = " | ".join(map(str, counts.values()))
            print(f"| {dimension} | {noise:.0%} | {cells} | {longest:.1f} |", flush=True)


def _outcome(dimension: int, k: int, noise: float, seed: int) -> str:
    """Return what "auto" makes of one tensor."""
    rng = np.random.default_rng([seed, dimension, k])
    vectors = rng.standard_normal((dimension, k))
    truth = odeco.Components(rng.uniform(1, 2, k), vectors / np.linalg.norm(vectors, axis=0))
    entries = truth.to_dense()
    error = odeco.symmetrize(rng.standard_normal(entries.shape))
    entries = entries + noise * np.linalg.norm(entries) / np.linalg.norm(error) * error
    try:
        found = odeco.decompose(entries, "auto", rng=seed)
    except odeco.RankError:
        return "refused"
    same = found.weights.size == k and odeco.match(found.components, truth).cosines.min() > 0.95
    evidence = found.rank_evidence
    sure = evidence is not None and evidence.confidence >= SURE
    return "right" if same else "confident and wrong" if sure else "in doubt"


def _log_normal_skewness(sigma: float) -> float:
    """Return the third central moment of a log-normal variable."""
    growth = math.exp(sigma**2)
    spread = math.sqrt(growth - 1)
    return float((growth + 2) * spread * ((growth - 1) * growth) ** 1.5)


#: Sources with mean zero, and the third moment of each.
SOURCES: dict[str, tuple[Callable[[np.random.Generator, tuple[int, int]], Any], float]] = {
    "exponential": (lambda rng, shape: rng.exponential(size=shape) - 1, 2.0),
    "gamma, shape 4": (lambda rng, shape: rng.gamma(4, size=shape) - 4, 8.0),
    "log-normal, σ = 0.5": (
        lambda rng, shape: rng.lognormal(0, 0.5, shape) - math.exp(0.125),
        _log_normal_skewness(0.5),
    ),
    "log-normal, σ = 1": (
        lambda rng, shape: rng.lognormal(0, 1, shape) - math.exp(0.5),
        _log_normal_skewness(1.0),
    ),
}


def coverage(n_runs: int, first_seed: int) -> None:
    """Print how often weight ± 1.96 standard errors holds the weight of components that are called
    clear.
    """
    print("| sources | rows | clear components | of them within 1.96 errors |\n|" + "---|" * 4)
    dimension = 5
    for name, (draw, weight) in SOURCES.items():
        for n_rows in (5_000, 20_000):
            inside = np.zeros(0, dtype=bool)
            for run in range(n_runs):
                rng = np.random.default_rng([first_seed, run])
                directions = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]
                rows = draw(rng, (n_rows, dimension)) @ directions.T
                found = odeco.decompose_stream(rows, dimension, rng=run)
                if found.weight_errors is not None:
                    near = np.abs(found.weights - weight) < 1.96 * found.weight_errors
                    inside = np.append(inside, near[found.clear])
            share = f"{inside.mean():.0%}" if inside.size else ""
            print(f"| {name} | {n_rows:,} | {inside.size} | {share} |", flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["replication", "numbers", "tensors", "coverage"])
    parser.add_argument("--only", nargs="+", choices=list(LAWS), default=list(LAWS))
    parser.add_argument("--tables", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.what == "tensors":
        tensors(arguments.first_seed)
        return
    if arguments.what == "coverage":
        coverage(arguments.tables, arguments.first_seed)
        return
    run = replication if arguments.what == "replication" else numbers
    run(arguments.only, arguments.tables, arguments.first_seed)


if __name__ == "__main__":
    main()
