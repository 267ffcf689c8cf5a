"""Latent classes beside StepMix: planted and real answers, a stream, and private respondents.

    python benchmarks/answers.py                  everything: more than half an hour
    python benchmarks/answers.py --quick          small, a minute
    python benchmarks/answers.py planted          one part: planted, real, stream or private

Times are CPU seconds on one thread. Planted classes have probabilities drawn uniformly from the
simplex and weights from a Dirichlet distribution with parameters 5. `gap` is how much less likely a
new respondent is than under the truth, in nats; on real answers the mean log-likelihood of the
fifth of the respondents who were held out is given instead. StepMix runs with the tolerance of
odeco, 1e-6 of the mean log-likelihood; its own default, 1e-10, takes more steps. Private peers are
the same noisy likelihood steps from random classes, with the whole budget for four or ten steps.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import functools
import math
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from odeco.models import LatentClasses
from odeco.models.lca.classes import Classes, as_probabilities, m_step
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.answers import HeldAnswers
from odeco.privacy.holders.tables import Levels
from odeco.privacy.sums import PrivateSums

#: Levels, answers, classes and the share of missing answers.
PLANTED = {
    "30 questions of 4": (30, 4, 20, 0.0),
    "20 of 3, 30 % missing": (20, 3, 10, 0.3),
    "20 yes/no, 30 % missing": (20, 2, 10, 0.3),
    "15 yes/no, 30 % missing": (15, 2, 10, 0.3),
}


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a call, and its result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def truth_of(n_questions: int, n_answers: int, k: int, seed: int) -> tuple[Classes, Levels]:
    rng = np.random.default_rng(seed)
    answers = np.concatenate([rng.dirichlet(np.ones(n_answers), k).T for _ in range(n_questions)])
    return Classes(rng.dirichlet(np.full(k, 5.0)), answers), Levels(np.full(n_questions, n_answers))


def respondents(truth: Classes, questions: Levels, n_rows: int, missing: float, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    codes, _ = truth.draw(questions, n_rows, rng)
    codes[rng.random(codes.shape) < missing] = -1
    return codes


def score_of(truth: Classes, questions: Levels, codes: Any) -> float:
    return float(truth.posterior(questions.indicators(codes).astype(float))[1].mean())


def stepmix(codes: Any, k: int, n_starts: int, seed: int) -> Any:
    from stepmix.stepmix import StepMix

    missing = bool(np.any(codes < 0))
    model = StepMix(
        n_components=k,
        measurement="categorical_nan" if missing else "categorical",
        n_init=n_starts,
        abs_tol=1e-6,
        random_state=seed,
        verbose=0,
        progress_bar=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(as_peer(codes))


def as_peer(codes: Any) -> Any:
    return np.where(codes < 0, np.nan, codes)


def report(name: str, what: str, gaps: list[float], seconds: list[float]) -> None:
    print(
        f"{name:<28} {what:<26} seeds {len(gaps)}  median {np.median(gaps):9.4f}  worst "
        f"{np.max(gaps):9.4f}  seconds {np.median(seconds):7.2f}",
        flush=True,
    )


def planted(seeds: int, peer_seeds: int, n_rows: int, n_starts: int, chosen: str) -> None:
    for name, (n_questions, n_answers, k, missing) in PLANTED.items():
        if chosen not in name:
            continue
        found: dict[str, list[tuple[float, float]]] = {}
        for seed in range(seeds):
            truth, questions = truth_of(n_questions, n_answers, k, seed)
            codes = respondents(truth, questions, n_rows, missing, seed + 100)
            new = respondents(truth, questions, 20_000, missing, seed + 200)
            base = score_of(truth, questions, new)
            seconds, model = timed(
                functools.partial(LatentClasses(k, smoothing=1, random_state=seed).fit, codes)
            )
            found.setdefault("odeco", []).append((base - model.score(new), seconds))
            for starts in (1, n_starts) if seed < peer_seeds else ():
                seconds, peer = timed(functools.partial(stepmix, codes, k, starts, seed))
                found.setdefault(f"StepMix, {starts} starts", []).append(
                    (base - peer.score(as_peer(new)), seconds)
                )
        for what, pairs in found.items():
            report(name, what, [pair[0] for pair in pairs], [pair[1] for pair in pairs])


def real_answers() -> dict[str, tuple[Any, int]]:
    """Return survey answers that packages ship, and how many classes are learnt."""
    import statsmodels.api as statsmodels
    from sklearn.datasets import load_digits
    from sklearn.preprocessing import OrdinalEncoder

    election = statsmodels.datasets.anes96.load_pandas().data
    election = election[["TVnews", "selfLR", "ClinLR", "DoleLR", "PID", "educ", "income", "vote"]]
    marriage = statsmodels.datasets.fair.load_pandas().data
    marriage = marriage.assign(affairs=marriage["affairs"] > 0)
    tables = {"election study 1996": (election, 4), "marriage survey 1974": (marriage, 6)}
    coded = {
        name: (OrdinalEncoder().fit_transform(table).astype(int), k)
        for name, (table, k) in tables.items()
    }
    return {**coded, "digits, 64 yes/no": ((load_digits().data > 7).astype(int), 10)}


def real(seeds: int, n_starts: int) -> None:
    print(
        "Mean log-likelihood of a respondent, negative (the lower, the better): learnt from, and "
        "held out."
    )
    for name, (codes, k) in real_answers().items():
        found: dict[str, list[tuple[float, float, float]]] = {}
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(codes))
            new, own = codes[order[: len(codes) // 5]], codes[order[len(codes) // 5 :]]
            sizes = (codes.max(axis=0) + 1).tolist()
            for what, smoothing in (("odeco", 1.0), ("odeco, no prior", 0.0)):
                model = LatentClasses(k, smoothing=smoothing, random_state=seed)
                seconds, _ = timed(functools.partial(model.fit, own, categories=sizes))
                found.setdefault(what, []).append((-model.score(own), -model.score(new), seconds))
            for starts in (1, n_starts):
                seconds, peer = timed(functools.partial(stepmix, own, k, starts, seed))
                held_out = (
                    -peer.score(new) if np.all(new.max(axis=0) <= own.max(axis=0)) else math.nan
                )
                found.setdefault(f"StepMix, {starts} starts", []).append(
                    (-peer.score(own), held_out, seconds)
                )
        for what, rows in found.items():
            own_scores, new_scores, times = np.array(rows).T
            print(
                f"{name:<24} {what:<20} learnt from {np.median(own_scores):8.4f} (worst "
                f"{np.max(own_scores):8.4f})  held out {np.nanmedian(new_scores):8.4f} (worst "
                f"{np.nanmax(new_scores):8.4f})  seconds {np.median(times):6.2f}",
                flush=True,
            )


def stream(n_rows: int) -> None:
    """Learn in one pass, saved and loaded on the way; the memory is that of the process at its
    most.
    """
    truth, questions = truth_of(20, 3, 10, seed=0)
    # Drawn in pieces, so that drawing does not take more memory than learning does, which would
    # hide it.
    pool = np.concatenate(
        [respondents(truth, questions, 10_000, 0.3, seed).astype(np.int8) for seed in range(50)]
    )
    new = respondents(truth, questions, 10_000, 0.3, seed=99)
    rng, model, spent = (
        np.random.default_rng(3),
        LatentClasses(10, smoothing=1, random_state=0),
        0.0,
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    batch, n_batches = 100_000, n_rows // 100_000
    for number in range(n_batches):
        rows = (
            pool[rng.integers(len(pool), size=batch)]
            if n_rows > len(pool)
            else pool[number * batch :][:batch]
        )
        spent += timed(functools.partial(model.partial_fit, rows, categories=3))[0]
        if number == n_batches // 2:
            with tempfile.TemporaryDirectory() as folder:
                model.save(Path(folder) / "stream.npz")
                model = LatentClasses.load(Path(folder) / "stream.npz")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gap = score_of(truth, questions, new) - model.score(new)
    print(
        f"{model.n_samples_seen_:,} respondents in one pass: gap {gap:.5f}, {spent:.0f} CPU s, "
        f"{(peak - before) / 1024:.0f} MB more than before the first batch"
    )


def noisy_steps(
    codes: Any, questions: Levels, k: int, n_steps: int, guarantee: Guarantee, seed: int
) -> Classes:
    """Return the peer: noisy likelihood steps from random classes, with the whole budget."""
    rng = np.random.default_rng(seed)
    held = HeldAnswers(questions.indicators(codes), questions)
    sums = PrivateSums(guarantee, len(codes), record="respondent")
    equal = 1 / questions.sizes[questions.owners]
    drawn = rng.gamma(1.0, size=(questions.n_levels, k))
    classes = Classes(np.full(k, 1 / k), as_probabilities(drawn, questions, equal, 0.2))
    for _ in range(n_steps):
        query = held.step(classes.responsibilities, k)
        released, deviation = sums.release(query, share=1 / n_steps)
        weights = np.maximum(released.sum(axis=0) / questions.sizes.size, len(codes) / (20 * k))
        classes = m_step(weights, np.maximum(released, 0.0), questions, equal, deviation)
    return classes


def private(seeds: int, quick: bool, chosen: str) -> None:
    cases = [
        (n_rows, 5, epsilon)
        for n_rows in (100_000, 20_000, 5_000)
        for epsilon in (4.0, 1.0, 0.5, 0.1)
    ]
    cases += [(100_000, 10, 1.0), (100_000, 10, 0.5), (20_000, 10, 1.0)]
    for n_rows, k, epsilon in cases[:2] if quick else cases:
        name = f"n {n_rows:,}, k {k}, epsilon {epsilon:g}"
        if chosen not in name:
            continue
        found: dict[str, list[tuple[float, float]]] = {}
        for seed in range(
            50, 50 + seeds
        ):  # others than those with which the shares of the budget were chosen
            truth, questions = truth_of(20, 3, k, seed)
            codes = respondents(truth, questions, n_rows, 0.0, seed + 100)
            new = respondents(truth, questions, 10_000, 0.0, seed + 200)
            base = score_of(truth, questions, new)
            one = LatentClasses(1).fit(codes)
            found.setdefault("one class (nothing found)", []).append((base - one.score(new), 0.0))
            model = LatentClasses(k, epsilon=epsilon, delta=1e-6, random_state=seed)
            seconds, _ = timed(functools.partial(model.fit, codes, categories=3))
            found.setdefault("odeco", []).append(
                (base - float(model.score_samples(new).mean()), seconds)
            )
            for n_steps in (4, 10):
                guarantee = Guarantee(epsilon, 1e-6)
                seconds, peer = timed(
                    functools.partial(noisy_steps, codes, questions, k, n_steps, guarantee, seed)
                )
                gap = base - score_of(peer, questions, new)
                found.setdefault(f"random, {n_steps} noisy steps", []).append((gap, seconds))
        for what, pairs in found.items():
            report(name, what, [pair[0] for pair in pairs], [pair[1] for pair in pairs])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=("planted", "real", "stream", "private"))
    parser.add_argument(
        "--case", default="", help="planted and private problems whose name has this"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--peer-seeds", type=int, default=3, help="on planted answers, seeds that StepMix gets too"
    )
    parser.add_argument("--starts", type=int, default=10, help="the starts of StepMix")
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="the respondents of the stream"
    )
    options = parser.parse_args()
    seeds, starts = (1, 2) if options.quick else (options.seeds, options.starts)
    if options.part in (None, "planted"):
        planted(seeds, options.peer_seeds, 5_000 if options.quick else 30_000, starts, options.case)
    if options.part in (None, "real"):
        real(seeds, starts)
    if options.part in (None, "stream"):
        stream(500_000 if options.quick else options.rows)
    if options.part in (None, "private"):
        private(seeds, options.quick, options.case)


if __name__ == "__main__":
    main()
