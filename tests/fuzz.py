"""Damaged files: every kind that odeco reads, changed at random, must end in an odeco error that
names the file.

    python tests/fuzz.py --seconds 60

prints how many files of each kind were damaged and what became of them. The tests run some hundreds
with a fixed seed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import resource
import signal
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy import sparse

import odeco
from odeco.cli import app
from odeco.datasets import planted_topics
from odeco.errors import SourceError
from odeco.io import as_source
from odeco.models import (
    Communities,
    LatentClasses,
    SyntheticData,
    TensorHMM,
    TensorICA,
    TensorLDA,
    TensorMixture,
)
from odeco.online.methods import core, doubling
from odeco.power import PowerSolver, Schedule, step
from odeco.privacy.noise import SeededNoiseForTests

#: A file that takes more processor time than this to be refused, or to be used, counts as one that
#: hangs; so does one that takes ten times as long, as on a busy machine.
MOST_SECONDS = 20
#: Files of a few kilobytes must not make a process grow by more than this.
MOST_MEGABYTES = 600

_ROWS = np.random.default_rng(0).gamma(1.0, size=(120, 6)) - 1
_TENSOR = odeco.symmetrize(
    np.random.default_rng(0).normal(size=(6, 6, 6))
    + 4 * odeco.Components([3.0, 2.0], np.eye(6)[:, :2]).to_dense()
)
_WORDS = list("abcdefghij")
_COUNTS = planted_topics(300, 10, [0.3, 0.3], document_length=30, rng=0).counts
_CODES = np.random.default_rng(0).integers(0, 3, size=(60, 5))
_GRAPH = np.kron(np.eye(2, dtype=np.int64), np.ones((8, 8), dtype=np.int64))
_PRIVATE = {"epsilon": 4.0, "delta": 1e-6, "norm_bound": 2.0}
#: Values that do not belong where they are put. As a number of iterations 10³ is honest work, which
#: must end in time.
_STRANGE: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        1,
        2,
        10**3,
        2**63,
        10**30,
        -0.5,
        1e308,
        math.nan,
        math.inf,
        "",
        "x",
        "\x1b[31m[/bold]",
    ),
    *([], [1], {}, {"array": "weights"}, {"tuple": [1]}, {"object": "Charge", "fields": {}}),
)


# ---- whole files ---------------------------------------------------------------------------------


def _decomposer(
    method: str, n_rows: int, kind: Callable[[Any], Any] = np.asarray, **more: Any
) -> Any:
    loop: dict[str, Any] = {"n_restarts": 3, "n_iterations": 2} if method == "power" else {}
    loop |= (
        {"batch_size": 13} if method == "power" or {"epsilon", "forgetting"} & more.keys() else {}
    )
    # A run finds components within a few rows, so that files of every state are damaged.
    few = {"_FEWEST_ROWS": 24, "_ROWS_PER_COLUMN": 1, "_ROWS_PER_COMPONENT": 1}
    with (
        mock.patch.object(core, "_LOOK", 6),
        mock.patch.multiple(doubling, **few),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "A search must have memory", RuntimeWarning)
        online = odeco.OnlineDecomposer(2, method=method, rng=0, **loop, **more)  # type: ignore[arg-type]
        return online.partial_fit(kind(_ROWS[:n_rows]))


def _save_solver(path: Path) -> None:
    search = PowerSolver.start(Schedule(2, 4, 5, 1e-6), order=3, parts=(6,), rng=0)
    for _ in range(8):
        search = step(odeco.tensors.DenseTensor(_TENSOR), search)
    search.save(path)


def _save_csr(path: Path) -> None:
    sparse.save_npz(path, sparse.csr_array(np.where(np.abs(_ROWS) > 0.3, _ROWS, 0.0)))


def _save_parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({f"c{j}": _ROWS[:, j] for j in range(6)}), path)


def _private(path: Path) -> None:
    _decomposer("core", 60, noise=SeededNoiseForTests(0), **_PRIVATE).save(path)


def _result(make: Callable[[], Any]) -> Callable[[Path], None]:
    return lambda path: odeco.save_result(make(), path)


def _go_on(path: Path) -> None:
    """Load a run, and let it take in rows until it must have closed some batches."""
    quiet = contextlib.suppress(
        odeco.RankError, odeco.NothingFoundError, odeco.errors.BudgetExhausted
    )
    with quiet, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A search must have memory", RuntimeWarning)
        warnings.simplefilter(
            "ignore", odeco.MisfitWarning
        )  # of numbers that were changed in the file
        online = odeco.OnlineDecomposer.load(path)
        run = online._run
        rows = np.resize(_ROWS, (60, 6 if run is None else run.solver.query.dimension))
        waiting = () if run is None else [block.rows for block in run.sum.waiting]
        sparse_before = run is not None and bool(run.sparse)
        rows = rows.astype(waiting[0].dtype if waiting else np.float64)
        online.partial_fit(sparse.csr_array(rows) if sparse_before else rows).result()


@contextlib.contextmanager
def _said_by_odeco() -> Iterator[None]:
    """Accept that a stream holds rows from which nothing can be learnt, if odeco itself says so."""
    try:
        yield
    except ValueError as error:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        if place is None or not place.tb_frame.f_code.co_filename.startswith(
            str(Path(odeco.__file__).parent)
        ):
            raise


def _use_topics(path: Path) -> None:
    """Load a model, and let it look at documents."""
    model = TensorLDA.load(path)
    counts = np.resize(_COUNTS.toarray(), (20, model.n_features_in_))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.transform(counts)
        if hasattr(model, "words_"):
            model.transform_text(["a b c"])


def _use_classes(path: Path) -> None:
    """Load latent classes, let them look at respondents, and take more in if they are a stream."""
    model = LatentClasses.load(path)
    codes = np.full((3, model.n_features_in_), np.nan)
    model.predict(codes)
    if model._learnt.stream is not None:
        model.partial_fit(np.resize(codes, (5000, model.n_features_in_))).predict(codes)


def _use_mixture(path: Path) -> None:
    """Load a mixture, and let it look at rows and learn from them."""
    model = TensorMixture.load(path)
    rows = np.resize(_ROWS, (40, model.n_features_in_))
    with _said_by_odeco():
        model.predict(rows)
        if model._learnt.stream is not None:
            model.partial_fit(rows).summary()


def _save_private_topics(path: Path) -> None:
    """Save private topics."""
    model = TensorLDA(2, max_iter=0, epsilon=4.0, delta=1e-6, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 300 documents are too few
        model.fit(_COUNTS).save(path)


def _sequences(path: Path, n_rows: int) -> None:
    """Write a model of vectors, or one of symbols with a stream that is past its first block."""
    if n_rows:
        model = TensorHMM(2, n_symbols=3, max_iter=1, random_state=0).partial_fit(
            np.arange(n_rows) // 5 % 3
        )
    else:
        model = TensorHMM(2, covariance_type="full", max_iter=3, random_state=0).fit(_ROWS)
    model.save(path)


def _use_sequences(path: Path) -> None:
    """Load a model, let it look at rows, and feed it some."""
    model = TensorHMM.load(path)
    symbols = model._learnt.fit.context.n_symbols
    rows = (
        np.arange(20)[:, None] % symbols
        if symbols
        else np.resize(_ROWS, (20, model.n_features_in_))
    )
    model.predict(rows)
    if model._learnt.stream is not None:
        model.partial_fit(np.resize(rows, (9000, rows.shape[1]))).score(rows)


def _use_sources(path: Path) -> None:
    """Load a model, and let it unmix rows."""
    model = TensorICA.load(path)
    with warnings.catch_warnings(), _said_by_odeco():
        warnings.simplefilter("ignore")
        model.transform(np.resize(_ROWS, (20, model.n_features_in_)))


def _use_communities(path: Path) -> None:
    """Load a model, and let it place nodes."""
    model = Communities.load(path)
    with warnings.catch_warnings(), _said_by_odeco():
        warnings.simplefilter("ignore")
        model.transform(np.resize(_GRAPH, (5, model.n_features_in_)))


def _synthesize(path: Path) -> None:
    """Save a synthetic table."""
    rng = np.random.default_rng(0)
    table = {"a": rng.integers(0, 2, 60), "b": rng.uniform(0, 1, 60)}
    schema = {"a": [0, 1, None], "b": {"low": 0, "high": 1, "bins": 3, "missing": True}}
    made = odeco.synthesize(table, epsilon=1.0, delta=1e-6, schema=schema, rng=0)
    made.save(path)


def _use_synthetic(path: Path) -> None:
    """Load a synthetic table, and draw rows."""
    made = SyntheticData.load(path)
    with warnings.catch_warnings(), _said_by_odeco():
        made.sample(10, random_state=0)
        made.summary()


def _read_rows(path: Path) -> None:
    for _ in as_source(path):
        pass


def _info(path: Path) -> None:
    """Run ``odeco info``, which must know what it was given, or say that it does not; never that
    odeco failed.
    """
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as said,
    ):
        code = app.run(["info", "--check", str(path)])
    if "odeco failed" in said.getvalue() or code not in (0, 1):
        raise AssertionError(said.getvalue())
    if code:
        raise odeco.FileFormatError(f"{path}: {said.getvalue()}")


#: By its name: the suffix of the file, how a good one is made, and how it is read.
KINDS: dict[str, tuple[str, Callable[[Path], object], Callable[[Path], object]]] = {
    "components": (
        ".npz",
        lambda path: odeco.Components([2.0, 1.0], np.eye(6)[:, :2]).save(path),
        odeco.Components.load,
    ),
    "synthetic": (".npz", _synthesize, _use_synthetic),
    "power solver": (".npz", _save_solver, PowerSolver.load),
    "run, core": (".ckpt", lambda path: _decomposer("core", 20).save(path), _go_on),
    "run, entries": (".ckpt", lambda path: _decomposer("entries", 100).save(path), _go_on),
    "run, drift": (
        ".ckpt",
        lambda path: _decomposer("core", 100, forgetting=0.5).save(path),
        _go_on,
    ),
    "run, power": (".ckpt", lambda path: _decomposer("power", 40).save(path), _go_on),
    "run, tracking": (
        ".ckpt",
        lambda path: _decomposer("core", 70, memory=0.004).save(path),
        _go_on,
    ),
    "run, CSR": (
        ".ckpt",
        lambda path: _decomposer("core", 59, sparse.csr_array, memory=0.016).save(path),
        _go_on,
    ),
    "run, private": (".ckpt", _private, _go_on),
    "ledger": (".ckpt", _private, _go_on),
    "decomposition": (
        ".npz",
        _result(lambda: odeco.decompose(_TENSOR, 2, tol=1e-3, rng=0)),
        odeco.load_result,
    ),
    "automatic": (
        ".npz",
        _result(lambda: odeco.decompose(_TENSOR, "auto", tol=1e-3, rng=0)),
        odeco.load_result,
    ),
    "stream": (".npz", _result(lambda: odeco.decompose_stream(_ROWS, 2, rng=0)), odeco.load_result),
    "asymmetric": (
        ".npz",
        _result(lambda: odeco.decompose_asymmetric(_TENSOR, 2, tol=1e-3, rng=0)),
        odeco.load_result,
    ),
    "private stream": (
        ".npz",
        _result(lambda: _decomposer("core", 80, noise=SeededNoiseForTests(0), **_PRIVATE).result()),
        odeco.load_result,
    ),
    "topic model": (
        ".npz",
        lambda path: (
            TensorLDA(2, max_iter=0, random_state=0)
            .fit(_COUNTS, words=list("abcdefghij"), tokenizer="blanks")
            .save(path)
        ),
        _use_topics,
    ),
    "private topics": (".npz", _save_private_topics, _use_topics),
    "topic stream": (
        ".npz",
        lambda path: TensorLDA(2, max_iter=0, random_state=0).partial_fit(_COUNTS).save(path),
        _use_topics,
    ),
    "latent classes": (
        ".npz",
        lambda path: LatentClasses(2, random_state=0).fit(_CODES).save(path),
        _use_classes,
    ),
    "stream of latent classes": (
        ".npz",
        lambda path: (
            LatentClasses(2, max_iter=5, random_state=0)
            .partial_fit(np.resize(_CODES, (17000, 5)))
            .save(path)
        ),
        _use_classes,
    ),
    "mixture": (
        ".npz",
        lambda path: TensorMixture(2, standardize=True, random_state=0).fit(_ROWS).save(path),
        _use_mixture,
    ),
    "mixture stream": (
        ".npz",
        lambda path: (
            TensorMixture(2, covariance_type="full", random_state=0, n_starts=1)
            .partial_fit(_ROWS)
            .save(path)
        ),
        _use_mixture,
    ),
    "hidden Markov model": (".npz", lambda path: _sequences(path, 0), _use_sequences),
    "stream of sequences": (".npz", lambda path: _sequences(path, 70_000), _use_sequences),
    "sources": (
        ".npz",
        lambda path: TensorICA(3, standardize=True, random_state=0).fit(_ROWS).save(path),
        _use_sources,
    ),
    "source stream": (
        ".npz",
        lambda path: TensorICA(3, random_state=0).partial_fit(_ROWS).save(path),
        _use_sources,
    ),
    "communities": (
        ".npz",
        lambda path: Communities(2, random_state=0).fit(_GRAPH).save(path),
        _use_communities,
    ),
    "links": (
        ".npz",
        lambda path: Communities(2, random_state=0).partial_fit(_GRAPH).save(path),
        _use_communities,
    ),
    "rows.npy": (".npy", lambda path: np.save(path, _ROWS), _read_rows),
    "rows.npz": (".npz", _save_csr, _read_rows),
    "rows.csv": (
        ".csv",
        lambda path: np.savetxt(path, _ROWS[:40], delimiter=",", fmt="%.3f"),
        _read_rows,
    ),
    "rows.parquet": (".parquet", _save_parquet, _read_rows),
    "info, result": (".npz", _result(lambda: odeco.decompose_stream(_ROWS, 2, rng=0)), _info),
    "info, tensor": (".npz", lambda path: np.savez_compressed(path, tensor=_TENSOR), _info),
    "info, rows": (".npz", _save_csr, _info),
}


# ---- damage --------------------------------------------------------------------------------------


def _damaged_bytes(content: bytes, generator: np.random.Generator) -> bytes:
    """Return a file with bytes changed, cut off, put in or taken out."""
    data = bytearray(content)
    what = generator.integers(5)
    if what == 0:
        for place in generator.integers(len(data), size=generator.integers(1, 8)):
            data[place] = generator.integers(256)
    elif what == 1:
        del data[generator.integers(len(data)) :]
    elif what == 2:
        place = generator.integers(len(data))
        data[place:place] = generator.bytes(int(generator.integers(1, 64)))
    elif what == 3:
        first, last = sorted(generator.integers(len(data), size=2))
        del data[first:last]
    else:
        first, last = sorted(generator.integers(len(data), size=2))
        data[first:last] = bytes(last - first)
    return bytes(data)


def _damaged_json(document: Any, generator: np.random.Generator) -> Any:
    """Return a JSON document with one value, at some depth, replaced, removed or doubled."""
    places = list(_places(document))
    holder, key = places[generator.integers(len(places))]
    strange = _STRANGE[generator.integers(len(_STRANGE))]
    if generator.integers(4) == 0:
        if isinstance(holder, dict) and generator.integers(2):
            holder[f"{key}x"] = strange
        else:
            del holder[key]
    else:
        holder[key] = strange
    return document


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(items):
        yield document, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _damaged_array(array: Any, generator: np.random.Generator) -> Any:
    """Return an array of another shape or type, or with numbers that do not belong there."""
    what = generator.integers(8)
    if what == 0 and array.dtype.kind not in "SU":
        return array.astype(
            [np.float32, np.int8, bool, np.complex128, "U4", ">f8"][generator.integers(6)],
            copy=True,
        )
    if what == 1:
        return np.resize(
            array,
            tuple(int(size) for size in generator.integers(0, 9, size=generator.integers(0, 4))),
        )
    if what == 2:
        return array[..., None] if generator.integers(2) else np.array(array.ravel()[:1])
    if what == 3:
        return np.concatenate([array, array]) if array.ndim else np.array([array, array])
    if what == 4:
        return np.zeros_like(array)
    if array.dtype.kind not in "fiu" or array.size == 0:
        return np.array(generator.integers(9))
    changed = array.copy()
    place = generator.integers(array.size)
    values = (
        [np.nan, np.inf, -1.0, 1e308, 1e-320]
        if array.dtype.kind == "f"
        else [-1, 10**8, 2**31 - 1, 0]
    )
    with np.errstate(all="ignore"):
        changed.reshape(-1)[place] = np.array(values[generator.integers(len(values))]).astype(
            array.dtype
        )
    return changed


def _damaged_archive(path: Path, generator: np.random.Generator) -> bytes:
    """Return an archive whose header, or one of whose arrays, is not what it was, though every
    checksum is right.
    """
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    names = [name for name in arrays if name != "header"]
    what = generator.integers(6)
    if "header" in arrays and (what < 3 or not names):
        document = _damaged_json(json.loads(str(arrays["header"])), generator)
        arrays["header"] = np.array(json.dumps(document))
    elif what == 3:
        del arrays[names[generator.integers(len(names))]]
    elif what == 4 and len(names) > 1:
        one, two = generator.choice(names, size=2, replace=False)
        arrays[one], arrays[two] = arrays[two], arrays[one]
    else:
        name = names[generator.integers(len(names))]
        arrays[name] = _damaged_array(arrays[name], generator)
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    if generator.integers(8) == 0:  # entries that are compressed, and may announce anything
        inflated = io.BytesIO()
        with (
            zipfile.ZipFile(stream) as before,
            zipfile.ZipFile(inflated, "w", zipfile.ZIP_DEFLATED) as after,
        ):
            for entry in before.namelist():
                after.writestr(entry, before.read(entry))
        return inflated.getvalue()
    return stream.getvalue()


def _damaged_ledger(content: bytes, generator: np.random.Generator) -> bytes:
    lines = content.splitlines()
    if generator.integers(2):
        return _damaged_bytes(content, generator)
    place = generator.integers(len(lines))
    lines[place] = json.dumps(_damaged_json(json.loads(lines[place]), generator)).encode()
    return b"\n".join(lines) + b"\n"


# ---- one case ------------------------------------------------------------------------------------


class Fuzzer:
    """Damages files of one kind in a folder of its own, and reads them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        suffix, make, self._read = KINDS[kind]
        self._good, self._bad = folder / f"good{suffix}", folder / f"bad{suffix}"
        make(self._good)
        self._read(self._good)  # it is good indeed
        self._ledger = Path(f"{self._good}.ledger")
        self._whole_ledger = self._ledger.read_bytes() if self._ledger.exists() else b""

    def run(self, seed: int) -> str:
        """Damage a file and read it; return what became of it, or raise if that is not as it must
        be.
        """
        generator = np.random.default_rng([seed, sum(map(ord, self.kind))])
        content = self._good.read_bytes()
        if self.kind == "ledger":
            self._ledger.write_bytes(_damaged_ledger(self._whole_ledger, generator))
            named, self._bad = self._ledger, self._good
        else:
            if self._whole_ledger:
                self._ledger.write_bytes(self._whole_ledger)
            archive = zipfile.is_zipfile(self._good)
            content = (
                _damaged_archive(self._good, generator)
                if archive and generator.integers(3)
                else _damaged_bytes(content, generator)
            )
            self._bad.write_bytes(content)
            named = self._bad
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        signal.alarm(10 * MOST_SECONDS)
        try:
            self._read(self._bad)
        except (odeco.FileFormatError, SourceError) as error:
            if not (named.name in str(error) or "ledger" in str(error).lower()):
                raise AssertionError(
                    f"an error that does not name {named.name}: {error}"
                ) from error
            return "refused"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
        return "read"  # the damage made another good file, as a changed number in a table does


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _hang)
    with tempfile.TemporaryDirectory() as folder:
        fuzzers = []
        for number, kind in enumerate(KINDS):
            (Path(folder) / str(number)).mkdir()
            fuzzers.append(Fuzzer(kind, Path(folder) / str(number)))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        end, seed = time.monotonic() + given.seconds, given.seed
        while time.monotonic() < end:
            for fuzzer in fuzzers:
                try:
                    counts[fuzzer.kind, fuzzer.run(seed)] += 1
                except Exception:  # noqa: BLE001 - whatever escaped
                    counts[fuzzer.kind, "escaped"] += 1
                    print(f"seed {seed}, {fuzzer.kind}:\n{traceback.format_exc(limit=-8)}")
            seed += 1
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    for kind in KINDS:
        print(f"{kind:>16}: {counts[kind, 'refused']:7,} refused, {counts[kind, 'read']:7,} read")
    print(f"{'all':>16}: {sum(counts.values()):7,} damaged files, {grown:.0f} MB more memory")
    escaped = sum(count for (_, fate), count in counts.items() if fate == "escaped")
    if escaped or grown > MOST_MEGABYTES:
        raise SystemExit(
            f"{escaped:,} files escaped; damaged files must take no more than {MOST_MEGABYTES} MB."
        )


def _hang(*_: object) -> None:
    raise TimeoutError(
        f"This took more than {MOST_SECONDS} seconds of processor time, or ten times that."
    )


if __name__ == "__main__":
    main()
