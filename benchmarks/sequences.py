"""Hidden Markov models beside hmmlearn: planted rows, letters, images row by row, series, a stream.

    python benchmarks/sequences.py [--quick] [--only CASE] [--seeds N] [--first-seed N] [--no-peers]

CASE is a part of the name of a case, "auto", "stream" or "private".

For each case and method: how far the mean log-likelihood of fresh rows is below that of the planted
model (for real data: minus the log-likelihood itself), median and worst over seeds; for planted
symbols the total variation between the emissions of states and the true ones, averaged over rows,
median over seeds; seconds of processor time on one thread, median over seeds. All models are
evaluated by the same code. hmmlearn runs with ``implementation="scaling"``, which is its faster
one; "best of 3" keeps the start with the highest likelihood on the rows it was learnt from.

The stream is 10,000,000 symbols in one pass, in batches of 100,000: seconds, and the largest
resident memory before it and after it.

Private: sequences of 50 of 20 symbols from five states. The gap is that of the private model,
beside that of the frequencies of symbols alone, which is what is left if nothing is learnt about
states; median and worst over seeds.
"""

from __future__ import annotations

import argparse
import logging
import resource
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from odeco._util.types import BoolArray, FloatArray
from odeco.datasets import python_documentation
from odeco.models import TensorHMM
from odeco.models.hmm.baum_welch import HMM
from odeco.models.hmm.emissions import Categorical, Gaussian

#: No probability of a model is taken below this when it is evaluated: hmmlearn gives symbols that
#: it has not seen none.
LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Problem:
    """Sequences to learn from, sequences to judge by, and the model that made them, if it is
    known.
    """

    rows: Any
    lengths: list[int]
    fresh: Any
    fresh_lengths: list[int]
    n_states: int
    truth: HMM | None = None


def begins_of(lengths: list[int]) -> BoolArray:
    begins = np.zeros(sum(lengths), bool)
    begins[np.append(0, np.cumsum(lengths)[:-1])] = True
    return begins


def planted(truth: HMM, n_rows: int, seed: int) -> Problem:
    rng = np.random.default_rng([seed, 1])
    rows, fresh = truth.sample(n_rows, rng)[0], truth.sample(50_000, rng)[0]
    return Problem(rows, [n_rows], fresh, [50_000], truth.n_states, truth)


def symbols(
    seed: int, n_rows: int, moves: float, emissions: float, k: int = 10, v: int = 50
) -> Problem:
    """Symbols; the smaller the two numbers, the fewer moves and symbols a state has."""
    rng = np.random.default_rng(seed)
    hmm = HMM(
        np.full(k, 1 / k),
        rng.dirichlet(np.full(k, moves), k),
        Categorical(_above(rng, emissions, v, k)),
    )
    return planted(hmm, n_rows, seed)


def _above(rng: np.random.Generator, concentration: float, size: int, count: int) -> FloatArray:
    drawn = np.maximum(rng.dirichlet(np.full(size, concentration), count), LEAST)
    probabilities: FloatArray = drawn / drawn.sum(axis=1, keepdims=True)
    return probabilities


def vectors(seed: int, kind: str, n_rows: int, k: int = 5) -> Problem:
    """States far apart, states that overlap, or three states that differ in their spread and last
    long.
    """
    rng = np.random.default_rng(seed)
    k, d = (3, 1) if kind == "regimes" else (k, 2) if kind == "easy" else (k, 3)
    stay = 0.97 if kind == "regimes" else 0.5
    means, variances = (
        rng.normal(0, 4 if kind == "easy" else 1, (k, d)),
        rng.uniform(0.5, 1, (k, d)),
    )
    if kind == "regimes":
        means, variances = 0.05 * means, np.array([[0.1], [1.0], [9.0]])
    moves = stay * np.eye(k) + (1 - stay) * rng.dirichlet(np.ones(k), k)
    emissions = Gaussian(means, variances, np.zeros(d), np.ones(d))
    return planted(HMM(np.full(k, 1 / k), moves, emissions), n_rows, seed)


def letters(seed: int, n_rows: int) -> Problem:
    """Letters and blanks of the documentation of Python's standard library; each seed begins
    elsewhere.
    """
    text = " ".join(document.text.lower() for document in python_documentation())
    codes = np.frombuffer(text.encode("ascii", "ignore"), np.uint8).astype(np.int64) - ord("a") + 1
    codes[(codes < 1) | (codes > 26)] = 0
    codes = codes[~((codes == 0) & (np.append(1, codes[:-1]) == 0))]
    first = seed * n_rows // 2
    rows = codes[first : first + n_rows]
    fresh = codes[-100_000:]
    return Problem(rows, [len(rows)], fresh, [len(fresh)], 8)


def digits(seed: int) -> Problem:
    """Images of digits that scikit-learn ships, line by line: eight rows of eight numbers, made
    continuous.
    """
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(seed)
    images = rng.permutation(load_digits().images)
    images = images + rng.random(images.shape)
    split = 1400
    return Problem(
        images[:split].reshape(-1, 8),
        [8] * split,
        images[split:].reshape(-1, 8),
        [8] * (len(images) - split),
        20,
    )


def series(name: str) -> Problem:
    """A series that statsmodels ships, three states; its last three tenths are judged by; only
    starts have seeds.
    """
    from statsmodels import datasets

    if name == "economy":  # growth of output, consumption, investment and prices, a quarter each
        table = datasets.macrodata.load_pandas().data
        rows = 100 * np.diff(
            np.log(table[["realgdp", "realcons", "realinv", "cpi"]].to_numpy()), axis=0
        )
    elif (
        name == "sea"
    ):  # temperature of the sea, a month each, less the mean of that month in the part learnt from
        months = datasets.elnino.load_pandas().data.drop(columns="YEAR").to_numpy()
        rows = (months - months[: 7 * len(months) // 10].mean(axis=0)).reshape(-1, 1)
    # sunspots of a year, by their root, which has about the same spread everywhere; and how it
    # changed
    else:
        spots = np.sqrt(datasets.sunspots.load_pandas().data["SUNACTIVITY"].to_numpy())
        rows = np.column_stack([spots[1:], np.diff(spots)])
    split = 7 * len(rows) // 10
    fresh = rows[split:]
    return Problem(
        np.ascontiguousarray(rows[:split]), [split], np.ascontiguousarray(fresh), [len(fresh)], 3
    )


# ---- methods -------------------------------------------------------------------------------------


def odeco_model(problem: Problem, seed: int, max_iter: int) -> HMM:
    model = TensorHMM(
        problem.n_states, max_iter=max_iter, random_state=seed, **_symbols_of(problem)
    )
    model.fit(problem.rows, lengths=problem.lengths)
    return _hmm_of(model)


def _hmm_of(model: TensorHMM) -> HMM:
    hmm: HMM = model._learnt.fit.params
    return hmm


def _symbols_of(problem: Problem) -> dict[str, Any]:
    return {"n_symbols": _n_symbols(problem)} if problem.rows.ndim == 1 else {}


def _n_symbols(problem: Problem) -> int:
    if problem.truth is not None:
        return problem.truth.emissions.n_statistics  # some symbols may not occur
    return int(max(problem.rows.max(), problem.fresh.max())) + 1


def peer_models(
    problem: Problem, seed: int, n_iterations: int, n_starts: int
) -> Iterator[tuple[HMM, float]]:
    """Yield the models of hmmlearn from one start after the other, each with its likelihood."""
    from hmmlearn import hmm

    settings = {"n_iter": n_iterations, "implementation": "scaling"}
    for start in range(n_starts):
        state = 100 * seed + start
        if problem.rows.ndim == 1:
            n_symbols = _n_symbols(problem)
            model = hmm.CategoricalHMM(
                problem.n_states, n_features=n_symbols, random_state=state, **settings
            )
            model.fit(problem.rows[:, None], problem.lengths)
            emissions: Categorical | Gaussian = Categorical(_positive(model.emissionprob_))
        else:
            model = hmm.GaussianHMM(problem.n_states, "diag", random_state=state, **settings)
            model.fit(problem.rows, problem.lengths)
            variances = np.diagonal(model.covars_, axis1=1, axis2=2)
            d = problem.rows.shape[1]
            emissions = Gaussian(model.means_, variances, np.zeros(d), np.ones(d))
        hmm = HMM(_positive(model.startprob_[None])[0], _positive(model.transmat_), emissions)
        yield hmm, float(model.monitor_.history[-1])


def _positive(probabilities: FloatArray) -> FloatArray:
    raised = np.maximum(probabilities, LEAST)
    shares: FloatArray = raised / raised.sum(axis=1, keepdims=True)
    return shares


def judged(problem: Problem, hmm: HMM) -> tuple[float, float]:
    """Return how far fresh rows are below the truth, and how far emissions are off."""
    begins = begins_of(problem.fresh_lengths)
    own = float(hmm.log_likelihoods(problem.fresh, begins).mean())
    if problem.truth is None:
        return -own, float("nan")
    gap = float(problem.truth.log_likelihoods(problem.fresh, begins).mean()) - own
    true = problem.truth.emissions
    if not isinstance(true, Categorical) or not isinstance(hmm.emissions, Categorical):
        return gap, float("nan")
    distances = (
        np.abs(hmm.emissions.probabilities[:, None] - true.probabilities[None]).sum(axis=2) / 2
    )
    found, states = linear_sum_assignment(distances * problem.truth.stationary)
    return gap, float(distances[found, states] @ problem.truth.stationary[states])


# ---- tables --------------------------------------------------------------------------------------


def run(
    name: str,
    make: Callable[[int], Problem],
    seeds: range,
    iterations: tuple[int, ...],
    n_starts: int,
) -> None:
    print(f"\n{name}")
    found: dict[str, list[tuple[float, float, float]]] = {}
    for seed in seeds:
        problem = make(seed)
        for label, max_iter in (
            ("odeco, 9 iterations", 9),
            ("odeco, 100 iterations (default)", 100),
        ):
            began = time.process_time()
            hmm = odeco_model(problem, seed, max_iter)
            seconds = time.process_time() - began
            found.setdefault(label, []).append((*judged(problem, hmm), seconds))
        for n_iterations in iterations:
            tried: list[tuple[HMM, float]] = []
            times: list[float] = []
            peers = peer_models(
                problem, seed, n_iterations, n_starts if n_iterations == max(iterations) else 1
            )
            while True:
                began = time.process_time()
                model = next(peers, None)
                if model is None:
                    break
                times.append(time.process_time() - began)
                tried.append(model)
            label = f"hmmlearn, {n_iterations} iterations"
            found.setdefault(label, []).append((*judged(problem, tried[0][0]), times[0]))
            if len(tried) > 1:
                best = max(tried, key=lambda each: each[1])[0]
                found.setdefault(f"{label}, best of {len(tried)}", []).append(
                    (*judged(problem, best), sum(times))
                )
    for label, results in found.items():
        gaps, errors, seconds_each = zip(*results, strict=True)
        off = "" if np.isnan(errors[0]) else f"   emission {statistics.median(errors):.2f}"
        print(
            f"  {label:38s} median {statistics.median(gaps):8.4f}   worst {max(gaps):8.4f}{off}   "
            f"{statistics.median(seconds_each):7.2f} s",
            flush=True,
        )


def stream(n_rows: int) -> None:
    """One pass over many symbols, which are drawn as they are fed."""
    problem = symbols(0, 100_000, 0.1, 0.1)
    truth = problem.truth
    if truth is None:
        raise RuntimeError("Planted symbols have a true model.")
    rng = np.random.default_rng(5)
    model = TensorHMM(10, n_symbols=50, random_state=0).partial_fit(problem.rows)
    before, seconds, batch = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        0.0,
        problem.rows.size,
    )
    for begin in range(batch, n_rows, batch):
        rows = truth.sample(batch, rng)[0]
        began = time.process_time()
        model.partial_fit(rows, goes_on=begin > batch)
        seconds += time.process_time() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gap, error = judged(problem, _hmm_of(model))
    print(
        f"\nA stream of {n_rows:,} symbols: {seconds:.1f} s, gap {gap:.4f}, emission {error:.2f};",
        end=" ",
    )
    print(f"memory {before / 1024:.0f} MB after the first batch, {after / 1024:.0f} MB at the end")


def private(n_seeds: int, sizes: tuple[int, ...], budgets: tuple[float, ...]) -> None:
    """Private models, each sequence protected."""
    print("\nprivate, delta = 1e-6: gap to the truth")
    for n_sequences in sizes:
        for epsilon in budgets:
            gaps, alone = [], []
            for seed in range(n_seeds):
                rng = np.random.default_rng(seed)
                moves = 0.5 * np.eye(5) + 0.5 * rng.dirichlet(np.ones(5), 5)
                truth = HMM(np.full(5, 0.2), moves, Categorical(_above(rng, 0.3, 20, 5)))
                problem = planted(truth, 50 * n_sequences, seed)
                settings: dict[str, Any] = {
                    "emissions": "categorical",
                    "n_symbols": 20,
                    "random_state": seed,
                }
                model = TensorHMM(5, epsilon=epsilon, delta=1e-6, **settings)
                model.fit(problem.rows, lengths=[50] * n_sequences)
                gaps.append(judged(problem, _hmm_of(model))[0])
                frequencies = np.bincount(problem.rows, minlength=20) / problem.rows.size
                best = truth.log_likelihoods(problem.fresh, begins_of([50_000])).mean()
                alone.append(float(best - np.log(frequencies)[problem.fresh].mean()))
            print(
                f"  {n_sequences:7,} sequences, epsilon {epsilon:g}: median "
                f"{statistics.median(gaps):.4f}   worst {max(gaps):.4f}   frequencies alone "
                f"{statistics.median(alone):.4f}",
                flush=True,
            )


def automatic(n_seeds: int, n_rows: int, first_seed: int) -> None:
    """The number of states left to the data: how often it is the planted one, and what it costs
    where it is not.
    """
    kinds: dict[str, Callable[[int, int], Problem]] = {
        "symbols, clear": lambda seed, k: symbols(seed, n_rows, 0.3, 0.1, k, 25),
        "symbols, blurred": lambda seed, k: symbols(seed, n_rows, 0.3, 0.3, k, 25),
        "vectors, easy": lambda seed, k: vectors(seed, "easy", n_rows // 2, k),
        "vectors, overlapping": lambda seed, k: vectors(seed, "overlapping", n_rows // 2, k),
        "vectors, regimes": lambda seed, _: vectors(seed, "regimes", n_rows // 2),
    }
    print(
        "\n"
        "n_components='auto': planted > chosen (how much worse fresh rows are than with the "
        "planted number)"
    )
    right, total, times = 0, 0, []
    for name, make in kinds.items():
        told = []
        for seed in range(first_seed, first_seed + n_seeds):
            problem = make(seed, 2 + seed % 5)
            began = time.process_time()
            model = TensorHMM("auto", random_state=seed, **_symbols_of(problem)).fit(problem.rows)
            times.append(time.process_time() - began)
            asked = judged(problem, odeco_model(problem, seed, 100))[0]
            worse = judged(problem, _hmm_of(model))[0] - asked
            told.append(f"{problem.n_states} > {model.n_components_} ({worse:+.4f})")
            right, total = right + (model.n_components_ == problem.n_states), total + 1
        print(f"  {name:22s} {', '.join(told)}", flush=True)
    print(f"  right: {right} of {total}; {statistics.median(times):.1f} s, median")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    quick = given.quick
    n_seeds, n_starts = (1, 2) if quick else (given.seeds, 3)
    iterations: tuple[int, ...] = (10,) if quick else (10, 100)
    iterations = () if given.no_peers else iterations
    warnings.simplefilter("ignore")
    logging.getLogger("hmmlearn").setLevel(logging.CRITICAL)
    n_symbols, n_vectors = (10_000, 5000) if quick else (100_000, 20_000)
    cases: dict[str, Callable[[int], Problem]] = {
        "symbols, clear": lambda seed: symbols(seed, n_symbols, 0.1, 0.1),
        "symbols, blurred": lambda seed: symbols(seed, n_symbols, 0.3, 0.2),
        "vectors, easy": lambda seed: vectors(seed, "easy", n_vectors),
        "vectors, overlapping": lambda seed: vectors(seed, "overlapping", n_vectors),
        "vectors, regimes": lambda seed: vectors(seed, "regimes", n_vectors),
        "letters": lambda seed: letters(seed, n_symbols),
        "digits": digits,
        "series, economy": lambda _: series("economy"),
        "series, sea": lambda _: series("sea"),
        "series, sunspots": lambda _: series("sunspots"),
    }
    with threadpool_limits(1):
        odeco_model(vectors(0, "easy", 1000), 0, 3)  # the loops are compiled before any clock runs
        odeco_model(symbols(0, 1000, 1.0, 1.0), 0, 3)
        for name, make in cases.items():
            if given.only in name:
                run(
                    name,
                    make,
                    range(given.first_seed, given.first_seed + n_seeds),
                    iterations,
                    n_starts,
                )
        if given.only in "auto":
            automatic(1 if quick else 4, 4000 if quick else 20_000, given.first_seed)
        if given.only in "stream":
            stream(1_000_000 if quick else 10_000_000)
        if given.only in "private":
            private(
                n_seeds, (5000,) if quick else (2000, 5000, 20_000), (1.0,) if quick else (0.3, 1.0)
            )


if __name__ == "__main__":
    main()
