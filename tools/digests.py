"""Digest the results of a fixed set of runs through the public interface, to see whether a change
moved a bit.

``python tools/digests.py --save before.json`` on the old code, ``--compare before.json`` on the new
one; ``--only`` takes a regular expression of names of cases. A digest is made of the *values* of
all public arrays and floats that a result has, at any depth, and of integers called ``n_...``, each
counted once: neither names, text nor the order of attributes matter, so that a renamed attribute
does not show and a changed number does. `--compare` says by the names of the attributes what is
gone and what is new.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse  # noqa: E402 - after the number of threads
import functools  # noqa: E402
import hashlib  # noqa: E402
import importlib  # noqa: E402
import inspect  # noqa: E402
import json  # noqa: E402
import pkgutil  # noqa: E402
import re  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable, Iterable, Iterator, Mapping  # noqa: E402
from dataclasses import replace  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from scipy import sparse  # noqa: E402

# What a change of names has to edit ---------------------------------------------------------------

#: Where public names are looked for, in this order; a name that is in none of them is looked for in
#: every module.
PLACES = (
    "odeco",
    "odeco.models",
    "odeco.online.moments",
    "odeco.privacy",
    "odeco.tensors",
    "odeco.cp.whitening",
    "reproduction.baselines",
)
#: Names of arguments as the cases below write them, and what else they may be called; the first
#: that exists is used.
ARGUMENTS = {
    "max_iter": ("n_steps", "refine"),
    "n_sweeps": ("refine",),
    "tokenizer": ("cut",),
    "neighbour_relation": ("neighbours", "neighbor_relation"),
}
#: Values of arguments, likewise; a value is replaced if `_is_accepted` says that it is refused.
VALUES = {"add_remove": "add or remove"}
#: Public attributes that are no results, wherever they occur: times, settings that are echoed,
#: caches. An entry here also takes effect on files that were saved before.
IGNORED = {
    "seconds",
    "time",
    "duration",
    "elapsed",
    "T",
    "figures",
    "rounding",
    "exponent",
    "parts",
    "adversary_accuracy",
}


def decomposed(tensor: Any, n_components: Any, how: Any = "auto", **settings: Any) -> Any:
    """Call `decompose`; `how` is "auto", "power", or a way to whiten."""
    function = find("decompose")
    known = inspect.signature(function).parameters
    named = isinstance(how, str) and how in ("auto", "power")
    if "method" in known:
        return function(tensor, n_components, **{"method" if named else "whiten": how}, **settings)
    return function(
        tensor, n_components, whiten=None if named and how == "power" else how, **settings
    )


def terms(tensor: Any, n_components: Any, how: str = "auto", **settings: Any) -> Any:
    """Call `decompose_asymmetric`; `how` is "auto" or "power"."""
    function = find("decompose_asymmetric")
    if "method" in inspect.signature(function).parameters:
        return function(tensor, n_components, method=how, **settings)
    return function(tensor, n_components, whiten=None if how == "power" else how, **settings)


def experiment(name: str) -> Any:
    """Return an experiment of the paper by its name."""
    for package in ("reproduction", "odeco.reproduction"):
        try:
            return importlib.import_module(package).load(name)
        except (ImportError, AttributeError):
            continue
    raise LookupError(name)


# Calls that survive a change of names -------------------------------------------------------------


@functools.cache
def find(name: str) -> Any:
    """Return a public object of the library by its name, wherever it is."""
    import odeco

    for place in PLACES:
        try:
            return getattr(importlib.import_module(place), name)
        except (ImportError, AttributeError):
            continue
    for module in pkgutil.walk_packages(odeco.__path__, "odeco."):
        if module.name.endswith("__main__"):
            continue
        try:
            found = getattr(importlib.import_module(module.name), name)
        except (ImportError, AttributeError):
            continue
        return found
    raise LookupError(f"The library has no {name!r}. Add its new name to tools/digests.py.")


@functools.cache
def _is_accepted(value: str) -> bool:
    """Whether a value is one of today's: a plan is asked for, which needs no data."""
    settings = {"dimension": 5, "n_components": 2, "epsilon": 1.0, "delta": 1e-6, "unit": "record"}
    try:
        find("plan_privacy")(**settings, n_units=1000, norm_bound=1.0, neighbour_relation=value)
    except ValueError:
        return False
    return True


def call(function: str | Callable[..., Any], *positional: Any, **named: Any) -> Any:
    """Call a public function or class, with the names and values of arguments that it has today."""
    what = find(function) if isinstance(function, str) else function
    known = inspect.signature(what).parameters
    given = {}
    for name, value in named.items():
        own = next((each for each in (name, *ARGUMENTS.get(name, ())) if each in known), name)
        old = VALUES.get(value) if isinstance(value, str) else None
        given[own] = value if old is None or _is_accepted(value) else old
    return what(*positional, **given)


_system_bits = os.urandom


def seed_noise(seed: int) -> None:
    """Let the bits of the system, of which the noise of private runs is made, come from a seed.

    Only the library gets these: other modules ask for some when they are imported, and who is first
    must not matter.
    """
    rng = np.random.default_rng(seed)

    def bits(size: int) -> bytes:
        asker = sys._getframe(1).f_globals.get("__name__", "")
        return rng.bytes(size) if asker.partition(".")[0] == "odeco" else _system_bits(size)

    os.urandom = bits


def check_noise_is_seeded() -> None:
    """Make sure that the noise of private runs does come from there."""
    draws = []
    for _ in range(2):
        seed_noise(1)
        draws.append(find("SecureNoise")().gaussian((4,), 1.0))
    if not np.array_equal(*draws):
        raise SystemExit(
            "The noise of private runs is not made of os.urandom any more. Seed it in another way."
        )


# Digests ------------------------------------------------------------------------------------------

Leaves = dict[str, list[str]]


def leaves_of(value: Any) -> Leaves:
    """Return the digests of all public arrays and floats within a value, with the paths where each
    was found.
    """
    found: Leaves = {}
    _collect(value, "", found, set())
    return found


def _add(found: Leaves, path: str, kind: str, content: bytes) -> None:
    paths = found.setdefault(hashlib.sha256(kind.encode() + b"\0" + content).hexdigest()[:24], [])
    if path not in paths:
        paths.append(path)


def _collect(value: Any, path: str, found: Leaves, above: set[int]) -> None:
    """Take in a number or an array, or go on with what is within."""
    if value is None or isinstance(value, str | bytes | bool | np.bool_ | type | Path):
        return
    if isinstance(value, int | np.integer):
        if path.rpartition(".")[2].startswith("n_"):
            _add(found, path, "int", str(int(value)).encode())
    elif isinstance(value, float | np.floating):
        _add(found, path, "float", float(value).hex().encode())
    elif isinstance(value, np.ndarray):
        if value.dtype.kind in "biufc":
            _add(
                found,
                path,
                f"{value.dtype.str}{value.shape}",
                np.ascontiguousarray(value).tobytes(),
            )
    elif sparse.issparse(value):
        table = value.tocsr()
        _collect(
            {"data": table.data, "indices": table.indices, "indptr": table.indptr},
            path,
            found,
            above,
        )
    elif id(value) not in above and not callable(value):
        _collect_within(value, path, found, above | {id(value)})


def _collect_within(value: Any, path: str, found: Leaves, above: set[int]) -> None:
    """Go through a mapping, a sequence, or the public attributes of an object of the library."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            _collect(value[key], f"{path}.{key}", found, above)
    elif isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        _collect_sequence(
            sorted(value) if isinstance(value, set | frozenset) else value, path, found, above
        )
    elif type(value).__module__.partition(".")[0] == "odeco" or hasattr(value, "_fields"):
        for name in public_names(value):
            try:
                own = getattr(value, name)
            except (
                AttributeError,
                ValueError,
                NotImplementedError,
            ):  # what this result has not got
                continue
            _collect(own, f"{path}.{name}", found, above)


def _collect_sequence(values: Iterable[Any], path: str, found: Leaves, above: set[int]) -> None:
    """Take a sequence of numbers as one array, and one of anything else item by item."""
    items = list(values)
    if items and all(isinstance(item, int | float | np.number) for item in items):
        _collect(np.array(items), path, found, above)
        return
    for number, item in enumerate(items):
        _collect(item, f"{path}[{number}]", found, above)


def public_names(value: Any) -> list[str]:
    """Return the public attributes of an object that are no methods, without the settings of an
    estimator.
    """
    settings = set(value.get_params(deep=False)) if hasattr(value, "get_params") else set()
    own = set(getattr(value, "__dict__", ())) | set(getattr(value, "_fields", ()))
    for kind in type(value).__mro__:
        own |= {
            name
            for name, each in vars(kind).items()
            if isinstance(each, property | functools.cached_property)
            or inspect.isdatadescriptor(each)
        }
    return sorted(
        name for name in own - settings if not name.startswith("_") and name not in IGNORED
    )


def kept(leaves: Leaves) -> Leaves:
    """Leave out what is found at ignored paths only."""
    return {
        digest: paths
        for digest, paths in leaves.items()
        if not all(IGNORED & set(re.split(r"[.\[\]]", path)) for path in paths)
    }


def digest_of(leaves: Leaves) -> str:
    """Return one digest of a set of digests."""
    return hashlib.sha256("\n".join(sorted(kept(leaves))).encode()).hexdigest()[:16]


# Data, made by numpy alone ------------------------------------------------------------------------


def planted(
    seed: int, dimension: int, k: int, order: int, *, orthogonal: bool = False, noise: float = 0.0
) -> Any:
    """Return weights, vectors and entries of a symmetric tensor."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(dimension, k))
    vectors = np.linalg.qr(vectors)[0] if orthogonal else vectors / np.linalg.norm(vectors, axis=0)
    weights = np.linspace(3.0, 1.0, k)
    letters = "abcde"[:order]
    entries = np.einsum(
        ",".join(["z", *(f"{each}z" for each in letters)]) + f"->{letters}",
        weights,
        *[vectors] * order,
    )
    entries = find("symmetrize")(entries + noise * rng.normal(size=entries.shape))
    return weights, vectors, entries


@functools.cache
def skewed_rows() -> Any:
    """Return rows with five skewed sources."""
    rng = np.random.default_rng(7)
    sources = np.linalg.qr(rng.normal(size=(20, 5)))[0]
    rows = rng.exponential(size=(12_000, 5)) @ (sources * np.linspace(1.4, 1.0, 5)).T
    rows += 0.3 * rng.normal(size=rows.shape)
    return rows - rows.mean(axis=0)


@functools.cache
def one_hot_rows() -> Any:
    """Return sparse rows, each close to one of a few coordinates, of norm 1."""
    rng = np.random.default_rng(8)
    return np.eye(8)[rng.choice(4, size=20_000, p=[0.4, 0.3, 0.2, 0.1])]


@functools.cache
def clusters() -> Any:
    """Return rows around four centres."""
    rng = np.random.default_rng(9)
    centres = 4 * rng.normal(size=(4, 6))
    return centres[rng.integers(4, size=1_500)] + rng.normal(size=(1_500, 6)) * np.linspace(
        0.5, 1.5, 6
    )


@functools.cache
def chain(n: int = 6_000) -> tuple[Any, Any]:
    """Return the symbols and the vectors that a chain of three states emits."""
    rng = np.random.default_rng(10)
    moves = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]])
    law = rng.dirichlet(np.full(8, 0.4), size=3)
    states = np.zeros(n, dtype=int)
    for t in range(1, n):
        states[t] = rng.choice(3, p=moves[states[t - 1]])
    symbols = np.array([rng.choice(8, p=law[state]) for state in states])
    return symbols, 3 * rng.normal(size=(3, 4))[states] + rng.normal(size=(n, 4))


@functools.cache
def signals() -> Any:
    """Return mixed signals of four kinds."""
    rng = np.random.default_rng(11)
    sources = np.stack(
        [
            rng.laplace(size=5_000),
            rng.uniform(-1, 1, 5_000),
            rng.exponential(size=5_000),
            rng.standard_t(5, 5_000),
        ]
    )
    return (rng.normal(size=(4, 4)) @ sources).T


@functools.cache
def answers(n: int = 1_500) -> Any:
    """Return answers of three classes of people to nine questions of three."""
    rng = np.random.default_rng(12)
    law = rng.dirichlet(np.full(3, 0.4), size=(3, 9))
    return np.array([[rng.choice(3, p=p) for p in law[each]] for each in rng.integers(3, size=n)])


@functools.cache
def graph() -> Any:
    """Return a graph of three communities."""
    rng = np.random.default_rng(13)
    block = rng.integers(3, size=150)
    links = np.triu(rng.random((150, 150)) < np.where(block[:, None] == block, 0.35, 0.04), 1)
    return sparse.csr_array((links | links.T).astype(float))


@functools.cache
def documents() -> Any:
    """Return word counts of documents on four topics."""
    rng = np.random.default_rng(14)
    topics = rng.dirichlet(np.full(60, 0.1), size=4)
    shares = rng.dirichlet(np.full(4, 0.2), size=1_200)
    return sparse.csr_array(np.stack([rng.multinomial(40, share @ topics) for share in shares]))


@functools.cache
def texts() -> list[str]:
    """Return the same as text."""
    rows = documents()[:600].toarray()
    return [" ".join(f"word{w}" for w in np.repeat(np.arange(row.size), row)) for row in rows]


# Cases --------------------------------------------------------------------------------------------

Case = tuple[str, Callable[[], Any]]
GUARANTEE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def tensor_cases() -> Iterator[Case]:
    """Tensors in memory."""
    for order, dimension in ((3, 15), (4, 8), (5, 6)):
        for orthogonal in (True, False):
            kind = "orthogonal" if orthogonal else "independent"
            for noise in (0.0, 0.01):
                entries = planted(order, dimension, 3, order, orthogonal=orthogonal, noise=noise)[2]
                name = f"decompose/order {order}, {kind}, noise {noise}"
                yield f"{name}, given", lambda entries=entries: decomposed(entries, 3, rng=0)
                yield f"{name}, auto", lambda entries=entries: decomposed(entries, "auto", rng=0)
    _, vectors, entries = planted(20, 15, 3, 3, noise=0.003)
    orthogonal = planted(21, 15, 3, 3, orthogonal=True, noise=0.003)[2]
    moment = vectors @ vectors.T
    whitener = find("Whitener").from_moment(moment, 3)
    for name, how in (
        ("power", "power"),
        ("tensor", "tensor"),
        ("slice", "slice"),
        ("moment", moment),
        ("whitener", whitener),
    ):
        tensor = orthogonal if name == "power" else entries
        yield (
            f"decompose/how {name}",
            lambda tensor=tensor, how=how: decomposed(tensor, 3, how, rng=0),
        )
        yield (
            f"decompose/how {name}, auto",
            lambda tensor=tensor, how=how: decomposed(tensor, "auto", how, rng=0),
        )
    yield (
        "decompose/power, order 4",
        lambda: decomposed(planted(22, 8, 3, 4, orthogonal=True)[2], 3, "power", rng=0),
    )
    yield (
        "decompose/power, to the letter",
        lambda: decomposed(orthogonal, 3, "power", n_restarts=8, n_iterations=20, tol=0, rng=0),
    )
    yield (
        "decompose/L and R given",
        lambda: decomposed(orthogonal, 3, n_restarts=8, n_iterations=30, rng=0),
    )
    yield "decompose/float32", lambda: decomposed(entries.astype(np.float32), 3, rng=0)
    yield "decompose/large", lambda: decomposed(planted(23, 60, 8, 3, noise=0.01)[2], "auto", rng=0)
    yield (
        "decompose/too many",
        lambda: _found(lambda: decomposed(planted(24, 10, 2, 3)[2], 5, "power", rng=0)),
    )
    packed = find("PackedTensor").from_dense(entries)
    yield "decompose/packed", lambda: decomposed(packed, 3, rng=0)
    yield "decompose/packed, power", lambda: decomposed(packed, 3, "power", rng=0)
    places = np.stack(np.nonzero(np.abs(entries) > 0), axis=1)
    listed = find("SparseTensor")(places, entries[tuple(places.T)], 15)
    yield "decompose/sparse", lambda: decomposed(listed, 3, rng=0)
    yield "decompose/sparse, power", lambda: decomposed(listed, 3, "power", rng=0)
    parallel = find("Components")([3.0, 2.0, 1.0], vectors)
    yield "decompose/CP", lambda: decomposed(parallel, 3, rng=0)
    yield "decompose/CP, auto", lambda: decomposed(parallel, "auto", rng=0)
    yield (
        "decompose/sample moment",
        lambda: decomposed(find("SampleMoment")(skewed_rows()), 5, rng=0),
    )
    batches = np.array_split(skewed_rows(), 6)
    yield (
        "decompose/stream moment",
        lambda: decomposed(
            find("StreamMoment")(batches, 20, batch_size=200),
            2,
            n_restarts=5,
            n_iterations=10,
            rng=0,
        ),
    )
    rng = np.random.default_rng(25)
    factors = [np.linalg.qr(rng.normal(size=(n, 3)))[0] for n in (7, 6, 5)]
    asymmetric = np.einsum("z,az,bz,cz->abc", [3.0, 2.0, 1.0], *factors) + 0.002 * rng.normal(
        size=(7, 6, 5)
    )
    yield "asymmetric/given", lambda: terms(asymmetric, 3, rng=0)
    yield "asymmetric/auto", lambda: terms(asymmetric, "auto", rng=0)
    yield "asymmetric/power", lambda: terms(asymmetric, 3, "power", rng=0)
    yield "metrics/operator norm", lambda: call("operator_norm", entries, rng=0)
    yield "metrics/incoherence", lambda: call("incoherence", parallel)
    yield "metrics/match", lambda: call("match", decomposed(entries, 3, rng=0), parallel)


def _found(run: Callable[[], Any]) -> Any:
    """Return what an error says was found."""
    try:
        return run()
    except Exception as error:
        if not hasattr(error, "found"):
            raise
        return error.found


def stream_cases() -> Iterator[Case]:
    """Rows in memory, in files, and as they arrive."""
    rows = skewed_rows()
    table = sparse.csr_array(np.where(np.abs(rows) > 0.4, rows, 0.0))
    folder = Path(tempfile.mkdtemp())

    def of_file(**settings: Any) -> Any:
        np.save(folder / "rows.npy", rows)
        return call("decompose_stream", folder / "rows.npy", 5, rng=0, **settings)

    def pieces() -> Iterator[Any]:
        return iter(np.array_split(rows, 7))

    for name, data in (("dense", rows), ("float32", rows.astype(np.float32)), ("csr", table)):
        yield f"stream/{name}", lambda data=data: call("decompose_stream", data, 5, rng=0)
        yield (
            f"stream/{name}, auto",
            lambda data=data: call("decompose_stream", data, "auto", rng=0),
        )
        yield (
            f"stream/{name}, entries",
            lambda data=data: call("decompose_stream", data, 5, method="entries", rng=0),
        )
        yield (
            f"stream/{name}, power",
            lambda data=data: call(
                "decompose_stream",
                data,
                2,
                method="power",
                batch_size=400,
                n_restarts=8,
                n_iterations=10,
                rng=0,
            ),
        )
    yield "stream/npy", of_file
    yield "stream/npy, no polish", lambda: of_file(n_passes=1)
    yield "stream/npy, three polishes", lambda: of_file(n_passes=4)
    yield (
        "stream/npy, checkpoint",
        lambda: of_file(checkpoint=folder / "run.ckpt", checkpoint_seconds=0),
    )
    yield "stream/order 4", lambda: call("decompose_stream", rows, 5, order=4, rng=0)
    yield "stream/one pass", lambda: call("decompose_stream", pieces(), 5, rng=0)
    yield "stream/one pass, auto", lambda: call("decompose_stream", pieces(), "auto", rng=0)
    yield (
        "stream/one pass, entries",
        lambda: call("decompose_stream", pieces(), 5, method="entries", rng=0),
    )

    def online(size: int, data: Any = rows, k: Any = 5, **settings: Any) -> Any:
        model = call("OnlineDecomposer", k, rng=0, **settings)
        for first in range(0, data.shape[0], size):
            model.partial_fit(data[first : first + size])
        return model.result()

    for size in (700, 5_000):
        yield f"online/core, pushed by {size}", lambda size=size: online(size)
    yield "online/csr", lambda: online(900, table)
    yield "online/auto", lambda: online(1_500, k="auto")
    yield "online/forgetting", lambda: online(1_500, forgetting=0.9, batch_size=1_000)
    yield "online/entries", lambda: online(1_500, method="entries")
    yield (
        "online/power",
        lambda: online(900, k=2, method="power", batch_size=400, n_restarts=8, n_iterations=10),
    )

    def resumed() -> Any:
        model = call("OnlineDecomposer", 5, rng=0)
        model.partial_fit(rows[:5_500]).save(folder / "online.ckpt")
        return (
            find("OnlineDecomposer").load(folder / "online.ckpt").partial_fit(rows[5_500:]).result()
        )

    yield "online/resumed", resumed
    for relation in ("replace", "add_remove"):
        yield (
            f"private/stream, {relation}",
            lambda relation=relation: online(
                3_000,
                one_hot_rows(),
                3,
                batch_size=2_000,
                norm_bound=1.0,
                neighbour_relation=relation,
                **GUARANTEE,
            ),
        )


def private_cases() -> Iterator[Case]:
    """Private decompositions and plans."""
    rows = one_hot_rows()
    entries = 40_000 * planted(30, 8, 3, 3, orthogonal=True)[2]
    records: dict[str, Any] = {"unit": "record", "norm_bound": 1.0, "rng": 0, **GUARANTEE}
    for mechanism in ("auto", *find("MECHANISMS")):
        settings = {"mechanism": mechanism}
        if mechanism != "subspace":  # which needs rows
            yield (
                f"private/entry, {mechanism}",
                lambda settings=settings: call(
                    "decompose_privately", entries, 3, rng=0, **GUARANTEE, **settings
                ),
            )
        yield (
            f"private/record, {mechanism}",
            lambda settings=settings: call("decompose_privately", rows, 3, **records, **settings),
        )
    for relation in ("replace", "add_remove"):
        settings = {"neighbour_relation": relation}
        yield (
            f"private/record, {relation}",
            lambda settings=settings: call("decompose_privately", rows, 3, **records, **settings),
        )
        yield (
            f"plan/privacy of records, {relation}",
            lambda settings=settings: call(
                "plan_privacy", dimension=20, n_components=3, unit="record", n_units=10_000,
                norm_bound=1.0,
                **GUARANTEE, **settings
            ),
        )  # fmt: skip
    groups = np.arange(len(rows)) // 2
    yield (
        "private/user",
        lambda: call("decompose_privately", rows, 3, groups=groups, **{**records, "unit": "user"}),
    )
    yield (
        "private/record, csr",
        lambda: call("decompose_privately", sparse.csr_array(rows), 3, **records),
    )
    yield (
        "private/record, nonnegative",
        lambda: call("decompose_privately", rows, 3, nonnegative=True, **records),
    )
    yield (
        "private/entry, paper",
        lambda: call(
            "decompose_privately",
            entries,
            3,
            mechanism="wang2016",
            calibration="paper",
            rng=0,
            **GUARANTEE,
        ),
    )
    yield (
        "plan/privacy of entries",
        lambda: call("plan_privacy", dimension=20, n_components=3, **GUARANTEE),
    )
    yield (
        "plan/mixture",
        lambda: call(
            "plan_mixture",
            3,
            n_rows=20_000,
            n_features=5,
            neighbour_relation="add_remove",
            **GUARANTEE,
        ),
    )
    yield (
        "plan/classes",
        lambda: call(
            "plan_classes", 2, n_respondents=10_000, n_questions=6, categories=3, **GUARANTEE
        ),
    )
    yield "plan/topics", lambda: call("plan_topics", 3, n_units=20_000, n_words=200, **GUARANTEE)
    for name, arguments in (
        ("gdp_mu", (1.0, 1e-6)),
        ("epsilon_of", (0.5, 1e-6)),
        ("delta_of", (0.5, 1.0)),
        ("noise_multiplier", (1.0, 1e-6)),
    ):
        yield f"accounting/{name}", lambda name=name, arguments=arguments: call(name, *arguments)


def fed(model: Any, data: Any, size: int, **settings: Any) -> Any:
    """Push rows in pieces of this size."""
    for first in range(0, data.shape[0], size):
        model.partial_fit(data[first : first + size], **settings)
    return model


def used(model: Any, data: Any, *methods: str) -> list[Any]:
    """Return a model and what its methods make of data."""
    return [model, *(getattr(model, name)(data) for name in methods)]


def model_cases() -> Iterator[Case]:
    """Estimators other than that of topics."""
    rows = clusters()
    usual = ("predict", "predict_proba", "score_samples", "score", "bic")
    for kind in ("spherical", "diag", "full"):
        mixture = functools.partial(call, "TensorMixture", covariance_type=kind, random_state=0)
        yield f"mixture/{kind}", lambda make=mixture: used(make(4).fit(rows), rows, *usual)
        yield (
            f"mixture/{kind}, auto",
            lambda make=mixture: used(make("auto").fit(rows), rows, *usual),
        )
        for size in (130, 600):
            yield (
                f"mixture/{kind}, pushed by {size}",
                lambda make=mixture, size=size: fed(make(4), rows, size),
            )
        yield f"mixture/{kind}, few steps", lambda make=mixture: make(4, max_iter=3).fit(rows)
    yield (
        "mixture/auto, pushed",
        lambda: fed(call("TensorMixture", "auto", random_state=0), rows, 400),
    )
    yield (
        "mixture/sample",
        lambda: list(call("TensorMixture", 4, random_state=0).fit(rows).sample(5)),
    )
    many = np.tile(rows, (10, 1))
    for relation in ("replace", "add_remove"):
        yield (
            f"mixture/private, {relation}",
            lambda relation=relation: call(
                "TensorMixture",
                4,
                norm_bound=20.0,
                random_state=0,
                neighbour_relation=relation,
                **GUARANTEE,
            ).fit(many),
        )
    symbols, vectors = chain()
    lengths = np.array([2_000, 1_000, 3_000])
    usual = ("predict", "predict_proba", "score_samples", "score", "decode")
    for kind, data, settings in (
        ("categorical", symbols, {"emissions": "categorical", "n_symbols": 8}),
        ("gaussian diag", vectors, {"emissions": "gaussian", "covariance_type": "diag"}),
        ("gaussian full", vectors, {"emissions": "gaussian", "covariance_type": "full"}),
    ):
        hmm = functools.partial(call, "TensorHMM", random_state=0, **settings)
        yield f"hmm/{kind}", lambda make=hmm, data=data: used(make(3).fit(data), data, *usual)
        yield f"hmm/{kind}, lengths", lambda make=hmm, data=data: make(3).fit(data, lengths=lengths)
        yield f"hmm/{kind}, auto", lambda make=hmm, data=data: make("auto").fit(data)
        yield f"hmm/{kind}, few steps", lambda make=hmm, data=data: make(3, max_iter=3).fit(data)
        yield f"hmm/{kind}, pushed by 1500", lambda make=hmm, data=data: fed(make(3), data, 1_500)
        yield (
            f"hmm/{kind}, pushed by 2000, goes on",
            lambda make=hmm, data=data: going_on(make(3), data, 2_000),
        )
    short = np.tile(symbols, 8)
    for relation in ("replace", "add_remove"):
        yield (
            f"hmm/private, {relation}",
            lambda relation=relation: call(
                "TensorHMM",
                3,
                emissions="categorical",
                n_symbols=8,
                random_state=0,
                neighbour_relation=relation,
                epsilon=4.0,
                delta=1e-6,
            ).fit(short, lengths=np.full(len(short) // 10, 10)),
        )
    ica = functools.partial(call, "TensorICA", random_state=0)
    mixed = signals()
    usual = ("transform", "score_samples", "score")
    yield "ica/all", lambda: used(ica().fit(mixed), mixed, *usual)
    yield "ica/two", lambda: used(ica(2).fit(mixed), mixed, "transform")
    yield "ica/auto", lambda: used(ica("auto").fit(mixed), mixed, *usual)
    yield "ica/few steps", lambda: ica(max_iter=2).fit(mixed)
    for size in (700, 2_000):
        yield f"ica/pushed by {size}", lambda size=size: fed(ica(), mixed, size)
    classes = functools.partial(call, "LatentClasses", random_state=0)
    codes = answers()
    holes = np.where(np.random.default_rng(1).random(codes.shape) < 0.1, -1, codes)
    usual = ("predict", "predict_proba", "score_samples", "score", "bic")
    yield "classes/given", lambda: used(classes(3).fit(codes), codes, *usual)
    yield "classes/missing", lambda: used(classes(3).fit(holes), holes, *usual)
    yield "classes/auto", lambda: classes("auto").fit(codes)
    yield "classes/few steps", lambda: classes(3, max_iter=5).fit(codes)
    for size in (110, 600):
        yield (
            f"classes/pushed by {size}",
            lambda size=size: fed(classes(3), codes, size, categories=3),
        )
    for relation in ("replace", "add_remove"):
        yield (
            f"classes/private, {relation}",
            lambda relation=relation: classes(3, neighbour_relation=relation, **GUARANTEE).fit(
                np.tile(codes, (10, 1)), categories=3
            ),
        )
    communities = functools.partial(call, "Communities", random_state=0)
    links = graph()
    yield (
        "communities/given",
        lambda: used(communities(3).fit(links), links, "transform", "predict", "score"),
    )
    yield "communities/auto", lambda: communities("auto").fit(links)
    yield "communities/refined", lambda: communities(3, n_sweeps=5).fit(links)
    yield "communities/concentration", lambda: communities(3, concentration=0.5).fit(links)
    edges = np.argwhere(sparse.triu(links).toarray() > 0)
    for size in (300, 1_100):
        yield (
            f"communities/pushed by {size}",
            lambda size=size: fed(communities(3), edges, size, n_nodes=150),
        )


def going_on(model: Any, data: Any, size: int) -> Any:
    """Push one sequence in pieces."""
    for first in range(0, len(data), size):
        model.partial_fit(data[first : first + size], goes_on=first > 0)
    return model


def topic_cases() -> Iterator[Case]:
    """Topics of text."""
    lda = functools.partial(call, "TensorLDA", random_state=0)
    counts = documents()
    train, test = counts[:1_000], counts[1_000:]
    usual = ("transform", "score", "perplexity")
    yield "topics/given", lambda: used(lda(4).fit(train), test, *usual)
    yield "topics/auto", lambda: used(lda("auto").fit(train), test, *usual)
    yield "topics/spectral", lambda: used(lda(4, max_iter=0).fit(train), test, *usual)
    yield "topics/concentration", lambda: lda(4, doc_topic_concentration=1.0, max_iter=5).fit(train)
    yield (
        "topics/relevance",
        lambda: [lda(4, max_iter=5).fit(train).relevance(0.6), lda(4).fit(train).lift()],
    )
    yield (
        "topics/summary",
        lambda: used(lda(4, max_iter=5).fit(train), test, "coherence", "completion_perplexity"),
    )
    for steps in (0, 5):
        for size in (150, 400):
            yield (
                f"topics/pushed by {size}, {steps} steps",
                lambda size=size, steps=steps: used(
                    fed(lda(4, max_iter=steps), train, size), test, "transform"
                ),
            )
    yield "topics/forget", lambda: fed(lda(4, forget=0.7, max_iter=3), train, 250)

    def of_text(**settings: Any) -> Any:
        model = lda(4, max_iter=5)
        call(
            model.fit_text, texts()[:500], min_documents=2, max_share=1.0, stop_words=(), **settings
        )
        return [model, model.transform_text(texts()[500:])]

    yield "topics/text", of_text
    yield "topics/text, blanks", lambda: of_text(tokenizer="blanks")
    many = sparse.vstack([train] * 10).tocsr()
    settings: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6}
    for relation in ("replace", "add_remove"):
        yield (
            f"topics/private, {relation}",
            lambda relation=relation: used(
                lda(4, neighbour_relation=relation, **settings).fit(many), test, "transform"
            ),
        )
    yield (
        "topics/private, users",
        lambda: lda(4, unit="user", **settings).fit(many, groups=np.arange(many.shape[0]) // 2),
    )
    yield (
        "topics/private vocabulary",
        lambda: call("choose_vocabulary_privately", texts() * 5, **GUARANTEE),
    )


def paper_cases() -> Iterator[Case]:
    """Baselines, and the experiments of the paper."""
    entries = planted(40, 10, 3, 3, orthogonal=True, noise=0.002)[2]
    for name in ("random_slice", "simultaneous_diagonalization", "tensor_pca"):
        yield f"baselines/{name}", lambda name=name: call(name, entries, 3, rng=0)
    yield (
        "baselines/sketched_power_method",
        lambda: call("sketched_power_method", entries, 3, length=200, rng=0),
    )
    yield "baselines/ss_hopm", lambda: call("ss_hopm", entries, shift=4.0, n_restarts=20, rng=0)
    rows = one_hot_rows()[:3_000]
    for variant in ("huang2015", "ge2015"):
        yield (
            f"baselines/online_sgd, {variant}",
            lambda variant=variant: call(
                "online_sgd", rows[:, :4], 4, variant=variant, batch_size=50, rng=0
            ),
        )
    yield (
        "baselines/tune_learning_rate",
        lambda: call(
            "tune_learning_rate", rows[:600], 3, batch_size=50, learning_rates=(0.1, 1.0), rng=0
        ),
    )

    def whitening() -> Any:
        tasks = [{"kind": "noise", "dimension": d, "rank": 3, "trial": 0} for d in (6, 12)]
        tasks += [{"kind": "rank", "dimension": 12, "rank": k, "trial": 0} for k in (2, 6)]
        small = replace(experiment("whitening"), tasks=lambda _: tasks, draw=lambda _: {})
        return small.run(quick=True, folder=Path(tempfile.mkdtemp())).records

    yield "experiments/whitening", whitening

    def smallest_trials(name: str, *columns: str) -> Any:
        """Run the smallest task of every kind: the last, since the longest come first."""
        loaded = experiment(name)
        tasks = {tuple(task.get(each) for each in columns): task for task in loaded.tasks(True)}
        tasks = {
            key: task
            for key, task in tasks.items()
            if task.get("kind") not in ("memory", "needed", "found")
        }
        records = [
            record for key in sorted(tasks, key=str) for record in loaded.trial(tasks[key], 0)
        ]
        numbers = [
            {k: v for k, v in each.items() if isinstance(v, int | float | np.number)}
            for each in records
        ]
        return [{k: float(v) for k, v in each.items()} for each in numbers]

    yield "experiments/figure1", lambda: smallest_trials("figure1", "noise", "n_restarts")
    yield "experiments/streaming", lambda: smallest_trials("streaming", "kind", "method")
    yield "experiments/privacy", lambda: smallest_trials("privacy", "mechanism")


def all_cases() -> Iterator[Case]:
    """Every case."""
    for group in (tensor_cases, stream_cases, private_cases, model_cases, topic_cases, paper_cases):
        yield from group()


# The command --------------------------------------------------------------------------------------


def run(only: str, *, timed: bool) -> dict[str, Leaves]:
    """Run the cases and print a line for each; an error is a result too, by the name of its
    class.
    """
    check_noise_is_seeded()
    results: dict[str, Leaves] = {}
    for name, case in all_cases():
        if not re.search(only, name):
            continue
        if name in results:
            raise SystemExit(f"Two cases are called {name!r}.")
        started = time.perf_counter()
        seed_noise(0)
        np.random.seed(0)  # noqa: NPY002 - for whoever should use the global generator
        try:
            results[name] = leaves_of(case())
            shown = digest_of(results[name]) if results[name] else "NOTHING TO DIGEST"
        except Exception as error:  # noqa: BLE001 - the other cases are wanted all the same
            results[name] = {f"error {type(error).__name__}": [str(error)[:200]]}
            shown = f"ERROR {type(error).__name__}: {str(error)[:120]}"
        took = f"  {time.perf_counter() - started:6.2f} s" if timed else ""
        print(f"{name:<50}{shown}{took}", flush=True)
    return results


def differences(before: dict[str, Leaves], after: dict[str, Leaves]) -> list[str]:
    """Return a line for every case that differs."""
    lines = []
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            lines.append(f"{name}: only {'after' if name in after else 'before'}")
            continue
        old, new = kept(before[name]), kept(after[name])
        gone = sorted({min(old[each], key=len) for each in old.keys() - new.keys()})
        come = sorted({min(new[each], key=len) for each in new.keys() - old.keys()})
        if gone or come:
            kind = "CHANGED" if gone and come else "only gone" if gone else "only new"
            lines.append(f"{name}: {kind}; gone: {_list(gone)}; new: {_list(come)}")
    return lines


def _list(paths: list[str]) -> str:
    return (
        ", ".join(paths[:8]) + (f" and {len(paths) - 8} more" if len(paths) > 8 else "")
        if paths
        else "-"
    )


def main() -> int:
    """Run, and save or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the digests as JSON")
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", help="compare with digests that were saved"
    )
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="run the cases whose name matches"
    )
    parser.add_argument("--times", action="store_true", help="print how long each case took")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    results = run(arguments.only, timed=arguments.times)
    if arguments.save is not None:
        arguments.save.write_text(json.dumps(results, indent=0, sort_keys=True), encoding="utf-8")
    if arguments.compare is None:
        return 0
    before = json.loads(arguments.compare.read_text(encoding="utf-8"))
    before = {name: leaves for name, leaves in before.items() if re.search(arguments.only, name)}
    lines = differences(before, results)
    print("\n".join(lines) if lines else f"All {len(results)} cases are the same.")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
