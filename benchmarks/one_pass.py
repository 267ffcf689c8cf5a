"""One pass over rows beside the limit that the rows set, Algorithm 2 and stochastic gradient
descent.

    python benchmarks/one_pass.py --accuracy [--seeds N] [--only PATTERN] [--results FILE]
    python benchmarks/one_pass.py --throughput
    python benchmarks/one_pass.py --memory
    python benchmarks/one_pass.py --kill [N]
    python benchmarks/one_pass.py --private [--seeds N]

Rows are x = S e + g, with centred exponential sources e and Gaussian noise g, so that the third
moment is the sum of 2 s ⊗ s ⊗ s over the columns s of S. *The limit* is the joint fixed point of
the exact moment of the same rows, started at the truth: each vector is replaced by the image of its
dual vector until nothing changes. Ratios are worst angles over that of the limit; 1 is all that
rows allow, and a missed component has a worst angle of about 1.5. Sparse rows have one source each
and some noise in 40 of the columns. Times are seconds of processor time on one thread.

The table of `--private` has the fewest rows with which a private stream finds five orthogonal
topics (a cosine of at least 0.9 for each, ε = 1, δ = 1e-6, one topic per row, no noise but that of
privacy). *Entries* releases all D distinct entries of the moment, *core* three rounds of images and
a core, from a quarter of the rows each. *Sketch 8* adds the entries up in D/8 buckets with random
signs (Charikar, Chen and Farach-Colton 2002) and releases the buckets; each entry is then read off
its bucket. Its noise is that of the sensitivity of the entries, the least that it can be; *proved*
is with the sensitivity that can be proved, which is larger by the root of the number of entries in
the fullest bucket.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import odeco
from odeco.online import RowSum
from odeco.online.methods.private import PrivateMoment, PrivateSpan
from odeco.online.solver import Reply, Where
from odeco.power.tracking import dual_vectors
from odeco.privacy.calibration import gdp_mu
from odeco.privacy.holders.protocol import multiplicities
from odeco.privacy.sensitivity import RecordSensitivities
from reproduction.baselines import online_sgd
from reproduction.baselines.sgd import DivergedError


@dataclass(frozen=True)
class Case:
    """Rows of one kind."""

    dimension: int
    n_components: int
    n_rows: int
    cosine: float = 0.0
    whitened: bool = False
    csr: bool = False

    @property
    def name(self) -> str:
        kind = "CSR " if self.csr else ""
        extra = f", cosine {self.cosine:g}" if self.cosine else ""
        return (
            f"{kind}{self.dimension}, {self.n_components}, "
            f"{self.n_rows}{extra}{', whitened' if self.whitened else ''}"
        )

    def draw(self, seed: int) -> tuple[Any, np.ndarray]:
        """Return rows and unit vectors of the components."""
        rng = np.random.default_rng([seed, self.dimension, self.n_components])
        d, k, n = self.dimension, self.n_components, self.n_rows
        gram = self.cosine + (1 - self.cosine) * np.eye(k)
        vectors = np.linalg.qr(rng.standard_normal((d, k)))[0] @ np.linalg.cholesky(gram).T
        if self.csr:
            return self._sparse(rng)
        rows = (rng.exponential(size=(n, k)) - 1) @ vectors.T + rng.standard_normal((n, d))
        if self.whitened:  # by the true covariance, so that all second moments are those of noise
            sizes, axes = np.linalg.eigh(vectors @ vectors.T + np.eye(d))
            root = (axes / np.sqrt(sizes)) @ axes.T
            rows, vectors = rows @ root, root @ vectors
            vectors /= np.linalg.norm(vectors, axis=0)
        return rows, vectors

    def _sparse(self, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
        """Each row has one source on 50 columns of its own, and noise in 40 columns."""
        d, k, n = self.dimension, self.n_components, self.n_rows
        width, n_noise = 50, 40
        places = rng.permutation(d)[: k * width].reshape(k, width)
        vectors = np.zeros((d, k))
        for number in range(k):
            vectors[places[number], number] = rng.standard_normal(width)
        vectors /= np.linalg.norm(vectors, axis=0)
        which, sizes = rng.integers(k, size=n), rng.exponential(size=n) - 1
        columns = np.hstack([places[which], rng.integers(d, size=(n, n_noise))])
        signal = sizes[:, None] * vectors[places[which], which[:, None]] * np.sqrt(k)
        values = np.hstack([signal, rng.standard_normal((n, n_noise))])
        indptr = np.arange(0, columns.size + 1, columns.shape[1])
        rows = sparse.csr_array((values.ravel(), columns.ravel(), indptr), shape=(n, d))
        rows.sum_duplicates()
        return rows, vectors


CASES = (
    *(Case(50, k, n, cosine) for k, n in ((5, 12_500), (20, 25_000)) for cosine in (0.0, 0.3)),
    *(Case(50, k, n, whitened=True) for k, n in ((5, 12_500), (20, 25_000))),
    *(Case(200, k, 40_000, cosine) for k in (5, 20) for cosine in (0.0, 0.3)),
    *(Case(200, k, 40_000, whitened=True) for k in (5, 20)),
    Case(200, 5, 40_000, 0.3, whitened=True),
    *(Case(500, k, n, cosine) for k, n in ((5, 50_000), (20, 100_000)) for cosine in (0.0, 0.3)),
    *(Case(500, 5, 100_000, cosine, whitened=True) for cosine in (0.0, 0.3)),
    Case(500, 20, 100_000, whitened=True),
    *(Case(1000, k, n, cosine) for k, n in ((5, 40_000), (20, 100_000)) for cosine in (0.0, 0.3)),
    Case(1000, 5, 100_000, whitened=True),
    Case(10_000, 5, 40_000, csr=True),
    Case(10_000, 20, 100_000, csr=True),
)


def worst_angle(vectors: np.ndarray, truth: np.ndarray) -> float:
    """Return the largest angle of a true vector with the nearest one found."""
    return float(np.arccos(np.clip(np.abs(truth.T @ vectors).max(axis=1).min(), 0, 1)))


def limit(rows: Any, truth: np.ndarray, n_steps: int = 12) -> np.ndarray:
    """Return the joint fixed point of the exact moment of the rows, started at the truth."""
    vectors = truth
    for _ in range(n_steps):
        total = RowSum("image", dual_vectors(vectors), 3)
        total.update(rows)
        images = total.mean()
        vectors = images / np.linalg.norm(images, axis=0)
    return vectors


def pushed(rows: Any, k: int, method: str, seed: int) -> Any:
    """Push rows in pieces of uneven size."""
    online = odeco.OnlineDecomposer(k, method=method, rng=seed)  # type: ignore[arg-type]
    edges = np.unique(
        np.r_[
            0, np.sort(np.random.default_rng(seed).integers(rows.shape[0], size=36)), rows.shape[0]
        ]
    )
    for start, stop in pairwise(edges):
        online.partial_fit(rows[start:stop])
    return online.result()


def algorithm_2(rows: Any, k: int, seed: int) -> np.ndarray:
    """Run Algorithm 2 with 15 iterations for each component, on all rows."""
    found = odeco.decompose_stream(
        iter([rows]),
        k,
        method="power",
        batch_size=rows.shape[0] // (15 * k),
        n_iterations=15,
        n_restarts=30,
        rng=seed,
    )
    return found.vectors


def descent(rows: Any, k: int, seed: int) -> np.ndarray:
    """Run online gradient descent (Huang et al. 2015) with the best of four rates by the rows' own
    objective.
    """
    best, found = -np.inf, np.empty(0)
    for rate in (0.003, 0.01, 0.03, 0.1):
        try:
            result = online_sgd(
                iter([rows]),
                k,
                variant="huang2015",
                batch_size=100,
                learning_rate=rate,
                n_rows=rows.shape[0],
                rng=seed,
            )
        except DivergedError:
            continue
        value = float(np.abs(((rows @ result.vectors) ** 3).mean(axis=0)).sum())
        if value > best:
            best, found = value, result.vectors
    return found


def measure(case: Case, seed: int, *, others: bool) -> dict[str, Any]:
    """Return the worst angle of each method on the rows of one seed, over that of the limit."""
    rows, truth = case.draw(seed)
    k = case.n_components
    bound = worst_angle(limit(rows, truth), truth)
    began = time.process_time()
    found = pushed(rows, k, "core", seed)
    microseconds = (time.process_time() - began) / case.n_rows * 1e6
    covered = []
    if found.angle_errors is not None:
        matched = odeco.match(found, odeco.Components(np.ones(k), truth))
        covered = (matched.angles <= 2 * found.angle_errors[matched.found_index]).tolist()
    in_passes = odeco.decompose_stream(rows, k, method="core", rng=seed)
    angles = {
        "core": worst_angle(found.vectors, truth),
        "passes": worst_angle(in_passes.vectors, truth),
    }
    if case.dimension <= 100:
        angles["auto"] = worst_angle(pushed(rows, k, "auto", seed).vectors, truth)
    if others:
        angles["Alg. 2"] = worst_angle(algorithm_2(rows, k, seed), truth)
        if not case.csr:
            angles["SGD"] = worst_angle(descent(rows, k, seed), truth)
    ratios = {name: angle / bound for name, angle in angles.items()}
    return {
        "limit": bound,
        "ratios": ratios,
        "missed": angles["core"] > 1,
        "covered": covered,
        "µs": microseconds,
    }


def accuracy(cases: Sequence[Case], seeds: range, results: Path | None, *, others: bool) -> None:
    """Print the table. With a file of results, seeds that are in it are not computed again."""
    known: dict[tuple[str, int], dict[str, Any]] = {}
    if results is not None and results.exists():
        for line in results.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            known[entry["case"], entry["seed"]] = entry
    for seed in (
        seeds
    ):  # one seed of every case after the other, so that a run that is stopped has some of each
        for case in cases:
            if (case.name, seed) not in known:
                entry = {"case": case.name, "seed": seed}
                entry |= measure(case, seed, others=others and seed < seeds.start + 3)
                known[case.name, seed] = entry
                if results is not None:
                    with results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(entry) + "\n")
    print(
        "worst angle over the limit: median (largest) over the seeds; Algorithm 2 and SGD over "
        "three of them"
    )
    print(
        "d, k, rows                         seeds  limit  core           auto           passes",
        end="",
    )
    print("        Alg. 2         SGD         missed  covered  µs/row")
    for case in cases:
        entries = [
            entry for (name, seed), entry in known.items() if name == case.name and seed in seeds
        ]
        cells = []
        for method in ("core", "auto", "passes", "Alg. 2", "SGD"):
            each = [entry["ratios"][method] for entry in entries if method in entry["ratios"]]
            cells.append(f"{np.median(each):5.2f} ({max(each):5.2f})" if each else " " * 13)
        covered = [inside for entry in entries for inside in entry["covered"]]
        print(
            f"{case.name:34s} {len(entries):5d} "
            f"{np.median([entry['limit'] for entry in entries]):6.3f}  {'  '.join(cells)}  "
            f"{sum(entry['missed'] for entry in entries):3d}  "
            f"{100 * np.mean(covered) if covered else float('nan'):4.0f} %  "
            f"{np.median([entry['µs'] for entry in entries]):6.0f}",
            flush=True,
        )


def throughput() -> None:
    """Print rows per second of each method beside the two bare matrix products that an image
    needs.
    """
    print(
        "d, k             bare products    core  entries    power   rows per second of one thread"
    )
    for d, k, n in (
        (50, 5, 400_000),
        (200, 5, 200_000),
        (200, 20, 200_000),
        (1000, 5, 60_000),
        (1000, 20, 60_000),
    ):
        rows, _ = Case(d, k, n).draw(0)
        block = np.linalg.qr(np.random.default_rng(0).standard_normal((d, k)))[0]
        began = time.process_time()
        for start in range(0, n, 4000):
            piece = rows[start : start + 4000]
            _ = piece.T @ (piece @ block) ** 2
        rates = [n / (time.process_time() - began)]
        for method in ("core", "entries", "power"):
            settings: dict[str, Any] = {"method": method}
            if method == "power":
                settings |= {"batch_size": n // (10 * k), "n_iterations": 10, "n_restarts": 30}
            if method == "entries" and d > 200:
                rates.append(float("nan"))
                continue
            began = time.process_time()
            odeco.decompose_stream(iter([rows]), k, rng=0, **settings)
            rates.append(n / (time.process_time() - began))
        print(f"{d:5d}, {k:3d}   " + "  ".join(f"{rate:12,.0f}" for rate in rates), flush=True)


MEMORY = """
import pathlib, sys, numpy as np, odeco
def peak():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
def rows(d, n, dtype):  # of noise, the same rows again and again where that saves time
    rng = np.random.default_rng(0)
    block = rng.standard_normal((50, d), dtype=dtype)
    for _ in range(n // 50):
        yield block if dtype == "float32" else rng.standard_normal((50, d))
def learn(d, n, method, dtype):
    power = dict(batch_size=n // 8, n_restarts=10, n_iterations=2) if method == "power" else {}
    odeco.decompose_stream(rows(d, n, dtype), 4, method=method, rng=0, **power)
d, n, method, dtype = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
learn(10, 4000, method, dtype)  # loads all libraries
before = peak()
learn(d, n, method, dtype)
print(peak() - before)
"""


def memory() -> None:
    """Print the memory beyond that of the interpreter and all libraries for few and for many
    rows.
    """
    print("d        rows     method    type       MB")
    cases = (
        ("power", 100_000, "float32", (2000, 8000)),
        ("core", 1000, "float32", (20_000, 80_000)),
    )
    for method, d, dtype, counts in (
        *cases,
        ("core", 1000, "float64", (36_000,)),
        ("core", 500, "float64", (72_000,)),
    ):
        for n in counts:
            command = [sys.executable, "-c", MEMORY, str(d), str(n), method, dtype]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            print(f"{d:7,d}  {n:6,d}  {method:8s} {dtype} {float(output):6.0f}", flush=True)


def kill(n_kills: int) -> None:
    """Save, forget and resume at random rows, and compare the last bits with those of a run that
    was left alone.
    """
    for case in (Case(50, 5, 12_500), Case(200, 5, 40_000), Case(10_000, 5, 20_000, csr=True)):
        rows, _ = case.draw(0)
        for method in ("core", "entries") if case.dimension <= 50 else ("core",):
            expected = odeco.decompose_stream(iter([rows]), case.n_components, method=method, rng=0)
            online = odeco.OnlineDecomposer(case.n_components, method=method, rng=0)
            cuts = np.sort(np.random.default_rng(1).integers(case.n_rows, size=n_kills))
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "run.ckpt"
                for start, stop in zip([0, *cuts], [*cuts, case.n_rows], strict=True):
                    online.partial_fit(rows[start:stop])
                    online.save(path)
                    online = odeco.OnlineDecomposer.load(path)
            found = online.result()
            same = all(
                np.array_equal(getattr(found, name), getattr(expected, name))
                for name in ("weights", "vectors", "weight_errors", "angle_errors")
            )
            print(
                (
                    f"{case.name:24s} {method:8s} {n_kills} restarts: identical "
                    f"{'yes' if same else 'NO'}"
                ),
                flush=True,
            )
            if not same:
                raise SystemExit(1)


FOUND = 0.9


def finds_all(method: str, d: int, k: int, n_rows: float, seed: int) -> bool:
    """Tell whether a private stream of `n_rows` rows finds all topics; ``"sketch 8"`` has D/8
    buckets.
    """
    rng = np.random.default_rng([seed, d])
    truth = odeco.Components(np.full(k, 1 / k), np.linalg.qr(rng.standard_normal((d, k)))[0])
    guarantee: dict[str, Any] = {"batch_size": 1, "epsilon": 1.0, "delta": 1e-6, "norm_bound": 1.0}
    plan: Any = PrivateSpan if method == "core" else PrivateMoment
    solver = plan(n_components=k, **guarantee).bound(Where(d, seed)).start()
    n_batches = solver.plan.n_batches
    sensitivities = RecordSensitivities(1.0, round(n_rows / n_batches), 3, replace=False)
    mu = gdp_mu(1.0, 1e-6)
    for number in range(n_batches):
        probes = solver.query.block
        if method == "core" and number + 1 < n_batches:
            reply = truth.image(probes)
            scale = sensitivities.image(probes) / mu
            reply = reply + scale * rng.standard_normal(reply.shape)
        elif method == "core":
            inside = probes.T @ truth.vectors
            reply = np.einsum("ai,bi,ci,i->abc", inside, inside, inside, truth.weights)
            scale = sensitivities.core(probes) / mu
            reply = reply + scale * rng.standard_normal(reply.shape)
        else:
            scale = sensitivities.entries() / mu
            reply = noisy_entries(method, truth, scale, rng)
        solver = solver.advance(Reply(reply, sensitivities.n_records, scale))
    found = solver.estimate(None).components
    return bool(np.abs(truth.vectors.T @ found.vectors).max(axis=1).min() >= FOUND)


def noisy_entries(
    method: str, truth: odeco.Components, scale: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the distinct entries with noise, or what a sketch of them says."""
    # The norm of the distinct entries is that of the tensor once each counts as often as it stands
    # there.
    reply, counts = packed_moment(truth), multiplicities(truth.dimension) ** 0.5
    if not method.startswith("sketch"):
        return reply + scale * rng.standard_normal(reply.shape) / counts
    m = reply.size // int(method.split()[1])
    bucket, sign = rng.integers(m, size=reply.size), rng.choice([-1.0, 1.0], size=reply.size)
    if method.endswith("proved"):
        scale *= np.bincount(bucket).max() ** 0.5
    sketch = np.bincount(bucket, sign * counts * reply, minlength=m) + scale * rng.standard_normal(
        m
    )
    return sign * sketch[bucket] / counts


def packed_moment(truth: odeco.Components) -> np.ndarray:
    """Return the distinct entries of a moment."""
    vectors, lower = truth.vectors, np.tri(truth.dimension, dtype=bool)
    slabs = [
        ((vectors[: i + 1] * (truth.weights * vectors[i])) @ vectors[: i + 1].T)[
            lower[: i + 1, : i + 1]
        ]
        for i in range(truth.dimension)
    ]
    return np.concatenate(slabs)


def private(n_seeds: int) -> None:
    """Print the fewest rows of private streams, within 10 %."""
    methods = ("entries", "core", "sketch 8", "sketch 64", "sketch 8 proved")
    print(
        "rows needed, median over the seeds: d   "
        + "  ".join(f"{method:>15s}" for method in methods)
    )
    for d in (50, 100, 200):
        cells = []
        for method in methods:
            needed = []
            for seed in range(n_seeds):
                n_rows = 200.0
                while n_rows < 1e7 and not finds_all(method, d, 5, n_rows, seed):
                    n_rows *= 1.5
                needed.append(n_rows)
                for factor in (1.1, 1.21, 1.33):
                    if finds_all(method, d, 5, n_rows / 1.5 * factor, seed):
                        needed[-1] = n_rows / 1.5 * factor
                        break
            cells.append(f"{np.median(needed):15,.0f}")
        print(f"{d:39d}   " + "  ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--throughput", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--private", action="store_true")
    parser.add_argument("--kill", type=int, nargs="?", const=20)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--only", default="", help="cases whose name has this regular expression")
    parser.add_argument(
        "--results",
        type=Path,
        help="file to which each seed is added, and from which a run continues",
    )
    parser.add_argument(
        "--without-others", action="store_true", help="without Algorithm 2 and gradient descent"
    )
    given = parser.parse_args()
    if given.accuracy:
        cases = [case for case in CASES if re.search(given.only, case.name)]
        seeds = range(given.first_seed, given.first_seed + given.seeds)
        accuracy(cases, seeds, given.results, others=not given.without_others)
    if given.throughput:
        throughput()
    if given.memory:
        memory()
    if given.private:
        private(given.seeds)
    if given.kill:
        kill(given.kill)


if __name__ == "__main__":
    main()
