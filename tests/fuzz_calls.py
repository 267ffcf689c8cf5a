"""Odd calls: parameters, data and command lines drawn at random, of which every one must give a
result that can be shown, saved and loaded, or an error in words.

    python tests/fuzz_calls.py --seconds 60

prints how many calls of each kind were made and what became of them. The tests run some with a
fixed seed.

An error is in words if its class is one that odeco documents, it was raised by odeco or by a check
of scikit-learn, and its text is a sentence. Anything else is a defect: an error of the arithmetic
(`LinAlgError`, `FloatingPointError`), of Python (`IndexError`, `AttributeError`), of another
library, or a call that takes longer than `MOST_SECONDS`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
from command import run_here
from scipy import sparse
from sklearn.exceptions import NotFittedError

import odeco
from odeco.models import Communities, LatentClasses, TensorHMM, TensorICA, TensorLDA, TensorMixture

#: A call that takes more processor time than this counts as one that hangs.
MOST_SECONDS = 30

_RANDOM = np.random.default_rng(0)
_ROWS = np.vstack([_RANDOM.normal(0, 1, (40, 3)), _RANDOM.normal(6, 1, (40, 3))])
_ANSWERS = np.vstack([_RANDOM.integers(0, 2, (40, 4)), _RANDOM.integers(1, 3, (40, 4))])
_COUNTS = np.vstack(
    [
        _RANDOM.poisson([4, 4, 4, 0, 0, 0], (40, 6)),
        _RANDOM.poisson([0, 0, 0, 4, 4, 4], (40, 6)),
    ]
)
_GRAPH = np.kron(np.eye(2, dtype=np.int64), np.ones((10, 10), dtype=np.int64))

#: Models with good data and quick parameters.
_MODELS: dict[Any, tuple[Any, dict[str, Any]]] = {
    TensorMixture: (_ROWS, {"n_components": 2}),
    TensorHMM: (_ROWS, {"n_components": 2, "max_iter": 10}),
    TensorICA: (_ROWS, {"n_components": 2}),
    LatentClasses: (_ANSWERS, {"n_components": 2}),
    TensorLDA: (_COUNTS, {"n_components": 2, "max_iter": 5}),
    Communities: (_GRAPH, {"n_components": 2}),
}

#: Values that may or may not be accepted as a parameter.
_VALUES = [
    *(0, 1, 2, 3, -1, 7, 40, 0.0, 0.5, 1.0, -0.5, 1e-300, 1e300, 1e-6, 1e6),
    *(float("inf"), float("nan"), None, True, False, "", "auto", "full", "diag", "poisson"),
    *([], [1, 2], (), {}, {"a": ["b"]}, b"x", np.float32(0.5), np.int64(2), np.array(2)),
    *(np.ones(3), np.ones((2, 2)), object(), "replace", "add_remove", "categorical"),
]

#: What may be raised: anything else is a defect of odeco.
_IN_WORDS = (ValueError, TypeError, NotFittedError)


def check_in_words(error: BaseException) -> None:
    """Raise unless an error is one in words."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    file = "" if place is None else place.tb_frame.f_code.co_filename
    package = str(Path(odeco.__file__).parent)
    is_ours = file.startswith(package) or f"{os.sep}sklearn{os.sep}" in file
    text = str(error)
    if not isinstance(error, _IN_WORDS) or not is_ours or len(text.split()) < 4:
        raise AssertionError(f"{type(error).__name__} in {file}: {text}") from error


# Parameters ---------------------------------------------------------------------------------------


def use_parameters(generator: np.random.Generator, folder: Path) -> str:
    """Fit a model with one or two odd parameters, show it, save it, and load it."""
    kind = list(_MODELS)[generator.integers(len(_MODELS))]
    data, settings = _MODELS[kind]
    names = [each.name for each in fields(kind) if each.name not in ("ledger", "epsilon")]
    settings = dict(settings, random_state=0)
    for name in generator.choice(names, generator.integers(1, 3), replace=False):
        settings[str(name)] = _VALUES[generator.integers(len(_VALUES))]
    try:
        model = kind(**settings).fit(data)
    except Exception as error:  # noqa: BLE001 - the check says which are allowed
        check_in_words(error)
        return "refused"
    use_model(model, folder, saved=settings["random_state"] == 0)
    return "fitted"


def use_model(model: Any, folder: Path, *, saved: bool = True) -> None:
    """Show a fitted model in every way, save it, and load it."""
    summary = model.summary()
    model.write_report(folder / "page.html")
    if saved:
        model.save(folder / "model.npz")
        again = type(model).load(folder / "model.npz")
        if again.summary() != summary:
            raise AssertionError(f"A loaded model says {again.summary()!r}, and not {summary!r}.")


# Data ---------------------------------------------------------------------------------------------


def _odd_values(array: Any, generator: np.random.Generator) -> Any:
    changed = np.array(array, dtype=np.float64)
    odd = [np.nan, np.inf, -1.0, 1e300, 1e-300, 1e160, 0.5, 2.0**53, -0.0]
    places = generator.integers(changed.size, size=generator.integers(1, 4))
    changed.flat[places] = odd[generator.integers(len(odd))]
    return changed


_CHANGES: list[Callable[[Any, np.random.Generator], Any]] = [
    _odd_values,
    lambda x, g: x * [1e-300, 1e-30, 1e30, 1e150, 0.0][g.integers(5)],
    lambda x, g: x.astype(["f2", "f4", ">f8", "i1", "u8", "?", "c16", "O", "U8"][g.integers(9)]),
    lambda x, g: x[: g.integers(0, 4)],
    lambda x, g: x[:, : g.integers(0, 2)],
    lambda x, g: x.ravel() if g.integers(2) else x[None],
    lambda x, g: np.repeat(x[:1], 50, axis=0),
    lambda x, g: np.ma.masked_array(x, x > 1),
    lambda x, g: x.tolist(),
    lambda x, g: [*x[: g.integers(5)].tolist(), [1.0]],
    lambda x, g: sparse.csr_array(x) if g.integers(2) else sparse.coo_array(x),
    lambda x, g: pandas.DataFrame(x),
    lambda x, g: pandas.DataFrame(x, columns=["a"] * x.shape[1]),
    lambda x, g: pandas.DataFrame(x).assign(c=["x", "y"] * (len(x) // 2)),
    lambda x, g: pandas.DataFrame(x).assign(c=pandas.date_range("2026", periods=len(x))),
    lambda x, g: polars.DataFrame(np.asarray(x, dtype=float)),
    lambda x, g: pyarrow.table({str(j): pyarrow.array(x[:, j]) for j in range(x.shape[1])}),
    lambda x, g: pandas.Series(list("abcab" * 8)),
    lambda x, g: [None, 2.5, 3, {}, {"a": [1, 2]}, object(), iter([]), b"bytes"][g.integers(8)],
]


def use_data(generator: np.random.Generator, folder: Path) -> str:
    """Fit a model to odd data, or ask a fitted one about them."""
    kind = list(_MODELS)[generator.integers(len(_MODELS))]
    good, settings = _MODELS[kind]
    model = kind(random_state=0, **settings)
    change = _CHANGES[generator.integers(len(_CHANGES))]
    data = change(np.array(good), generator)
    acts = ["fit", "fit", "partial_fit", "predict", "predict_proba", "transform", "score"]
    act = acts[generator.integers(len(acts))]
    if not hasattr(model, act):
        act = "fit"
    if not act.endswith("fit"):
        model.fit(good)
    try:
        getattr(model, act)(data)
        if act == "partial_fit":
            model.summary()
    except Exception as error:  # noqa: BLE001 - the check says which are allowed
        check_in_words(error)
        return "refused"
    if act == "fit":
        use_model(model, folder)
    return "fitted" if act.endswith("fit") else "answered"


def use_tensor(generator: np.random.Generator, folder: Path) -> str:
    """Decompose an odd tensor, or odd rows."""
    tensor = odeco.Components([3.0, 2.0], np.eye(4)[:, :2]).to_dense()
    change = _CHANGES[generator.integers(10)]
    rows = change(np.array(_ROWS), generator)
    k = _VALUES[generator.integers(len(_VALUES))] if generator.integers(3) == 0 else 2
    rng = _VALUES[generator.integers(len(_VALUES))] if generator.integers(4) == 0 else 0
    try:
        if generator.integers(2):
            result: Any = odeco.decompose(_odd_values(tensor, generator), k, rng=rng)
        else:
            result = odeco.decompose_stream(rows, k, rng=rng)
    except Exception as error:  # noqa: BLE001 - the check says which are allowed
        check_in_words(error)
        return "refused"
    result.summary()
    odeco.save_result(result, folder / "result.npz")
    return "answered"


# Command lines ------------------------------------------------------------------------------------

_COMMANDS = ["learn", "apply", "decompose", "plan", "report", "info", "ledger", "mixture", "-", ""]
_WORDS = [
    *("topics", "mixture", "hmm", "ica", "classes", "communities", "rows.csv", "answers.csv"),
    *("rows.npy", "texts.txt", "edges.csv", "tensor.npy", "model.npz", "missing.csv", ".", "\x00"),
    *("-k", "2", "-k", "auto", "-k", "0", "--rows", "--json", "--help", "--epsilon", "1"),
    *("--delta", "1e-6", "--norm-bound", "10", "--no-header", "--header", "--dimension", "3"),
    *("--columns", "a,b", "--drop", "", "--id", "c", "--labels", "labels.csv", "--out", "out.npz"),
    *("--report", "page.html", "--seed", "-1", "--symbol", "c", "--answers", "yes,no", "--column"),
    *("--n-records", "100", "--yes", "--ledger", "x.ledger", "--budget", "3", "--force", "--order"),
    *("4", "--moment", "cumulant", "--checkpoint", "run.ckpt", "--resume", "--no-check", "é\udce9"),
]


def make_files(folder: Path) -> None:
    """Write the files that commands are called with."""
    lines = [f"{x:.3f},{y:.3f},{z:.3f}" for x, y, z in _ROWS]
    (folder / "rows.csv").write_text("\n".join(["a,b,c", *lines]))
    np.save(folder / "rows.npy", _ROWS)
    np.save(folder / "tensor.npy", odeco.Components([3.0, 2.0], np.eye(4)[:, :2]).to_dense())
    answers = [",".join("yes" if cell else "no" for cell in row) for row in _ANSWERS]
    (folder / "answers.csv").write_text("\n".join(["p,q,r,s", *answers]))
    texts = ["ball team goal win", "vote party law state"]
    (folder / "texts.txt").write_text("\n".join(texts * 20))
    edges = [f"{i},{j}" for i, j in zip(*np.nonzero(np.triu(_GRAPH, 1)), strict=True)]
    (folder / "edges.csv").write_text("\n".join(edges))
    TensorMixture(2, random_state=0).fit(_ROWS).save(folder / "model.npz")


def use_command(generator: np.random.Generator, folder: Path) -> str:
    """Run an odd command line in an odd terminal."""
    if not (folder / "rows.csv").exists():
        make_files(folder)
    first = _COMMANDS[generator.integers(len(_COMMANDS))]
    words = [_WORDS[place] for place in generator.integers(len(_WORDS), size=8)]
    if first == "learn" and generator.integers(3):
        words[:2] = [_WORDS[generator.integers(6)], _WORDS[6 + generator.integers(5)]]
    if first in ("decompose", "learn") and generator.integers(3):
        words[2:4] = ["-k", "2"]
    words = [first, *words[: generator.integers(9)], "--debug"]
    width = ["80", "", "0", "abc", "-1", "10"][generator.integers(6)]
    done = run_here(*words, cwd=folder, COLUMNS=width)
    if "odeco failed" in done.stderr or done.returncode not in (0, 1, 2):
        line = shlex.join(words)
        raise AssertionError(f"odeco {line}: {done.returncode}\n{done.stderr[-3000:]}")
    if done.returncode and not done.stderr.strip():
        raise AssertionError(f"odeco {shlex.join(words)} fails without a word")
    return ["done", "refused", "wrong usage"][done.returncode]


#: What is called, by its name.
KINDS: dict[str, Callable[[np.random.Generator, Path], str]] = {
    "parameters": use_parameters,
    "data": use_data,
    "tensors and rows": use_tensor,
    "commands": use_command,
}


def run(kind: str, seed: int, folder: Path) -> str:
    """Make one call, and return what became of it; raise if that is not as it must be."""
    generator = np.random.default_rng([seed, sum(map(ord, kind))])
    signal.signal(signal.SIGPROF, _hang)  # which would end the process otherwise
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return KINDS[kind](generator, folder)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _hang(*_: object) -> None:
    raise AssertionError(f"This took more than {MOST_SECONDS} seconds of processor time.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=list(KINDS))
    given = parser.parse_args()
    kinds = [given.only] if given.only else list(KINDS)
    counts: Counter[tuple[str, str]] = Counter()
    end = time.monotonic() + given.seconds
    seed = given.seed
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            for kind in kinds:
                try:
                    counts[kind, run(kind, seed, Path(folder))] += 1
                except Exception:  # noqa: BLE001 - whatever escaped
                    counts[kind, "escaped"] += 1
                    print(f"seed {seed}, {kind}:\n{traceback.format_exc(limit=-6)}", flush=True)
            seed += 1
    for (kind, fate), count in sorted(counts.items()):
        print(f"{kind:>16} {fate:>12}: {count:,}")
    n_escaped = sum(count for (_, fate), count in counts.items() if fate == "escaped")
    if n_escaped:
        raise SystemExit(f"{n_escaped:,} of {sum(counts.values()):,} calls escaped.")


if __name__ == "__main__":
    main()
