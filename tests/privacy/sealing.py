"""A private run seen from outside: what it releases is replaced by constants, or recorded and
played back.

All that a private run may say about its data goes through one call, `odeco.privacy.noise.noisy`.
Whoever takes its place sees every exact answer, and decides what is released.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy import sparse

from odeco.privacy import noise as _noise
from odeco.privacy import release as _release
from odeco.privacy.report import forget_all


@contextlib.contextmanager
def releasing(release: Callable[[Any, float, Any], Any]) -> Iterator[None]:
    """Let `release` take the place of the noise: it gets the exact answer, the scale and the
    source.
    """
    with mock.patch.object(_release, "noisy", release):
        yield


class Constants:
    """Releases numbers that depend on the place of a release in its run, its shape and its scale,
    which are public.
    """

    def __init__(self) -> None:
        self.n_released = 0

    def __call__(self, value: Any, scale: float, source: Any) -> Any:
        self.n_released += 1
        return 3 * scale * np.random.default_rng(self.n_released).standard_normal(np.shape(value))


#: The words that pass every threshold; all data sets have them.
PASSED = ("apple", "banana", "cherry", "date")
_above = _release.above


def pass_the_same_keys(keys: Any, numbers: Any, threshold: float) -> Any:
    """Let the same keys pass with the same numbers: the real ones, with all that travels with
    them.
    """
    assert np.isin(PASSED, keys).all(), (
        "all data sets of an entry point must have the words that pass"
    )
    constant = [threshold + PASSED.index(key) if key in PASSED else -np.inf for key in keys]
    return _above(keys, np.array(constant), threshold)


# ---- outcomes ------------------------------------------------------------------------------------


def outcome(run: Callable[[], object], folder: Path) -> dict[str, Any]:
    """Return all that can be seen of a run in an empty folder whose releases are constants.

    That is what it returns or raises, its warnings, what it writes to stdout, stderr and the log,
    and the files.
    """
    forget_all()  # objects of earlier runs
    before, said = (
        Path.cwd(),
        {"stdout": io.StringIO(), "stderr": io.StringIO(), "log": io.StringIO()},
    )
    folder.mkdir()
    handler = logging.StreamHandler(said["log"])
    logging.getLogger().addHandler(handler)
    os.chdir(folder)
    try:
        with (
            contextlib.redirect_stdout(said["stdout"]),
            contextlib.redirect_stderr(said["stderr"]),
            warnings.catch_warnings(record=True) as warned,
            releasing(Constants()),
            mock.patch.object(_release, "above", pass_the_same_keys),
            mock.patch("secrets.token_hex", lambda n: "a" * n),  # the name of a run
        ):
            warnings.simplefilter("always")
            try:
                ended = ("returned", plain(run()))
            except Exception as error:  # noqa: BLE001 - what it is belongs to the outcome
                ended = ("raised", f"{type(error).__name__}: {error}")
    finally:
        os.chdir(before)
        logging.getLogger().removeHandler(handler)
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "data" not in path.parts[-2:]
    }
    texts = {name: stream.getvalue() for name, stream in said.items()}
    return {
        "ended": ended,
        "warned": [str(each.message) for each in warned],
        "files": files,
        **texts,
    }


def plain(value: Any) -> Any:
    """Return a value in terms that can be compared to the last bit."""
    if isinstance(value, np.ndarray | np.generic):
        return (str(value.dtype), value.shape, value.tobytes())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [
            type(value).__name__,
            *((f.name, plain(getattr(value, f.name))) for f in dataclasses.fields(value)),
        ]
    if hasattr(value, "weights") and hasattr(value, "vectors"):
        return [type(value).__name__, plain(value.weights), plain(value.vectors)]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return repr(value)


def differences(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Return what differs between two outcomes, in words for the reader of a failing test."""
    return [
        f"{name}: {first[name]!r:.300} became {second[name]!r:.300}"
        for name in first
        if first[name] != second[name]
    ]


# ---- data that differ as much as data can --------------------------------------------------------


def wild_rows(n_rows: int, n_features: int) -> dict[str, Any]:
    """Return rows of one shape: dense float64 unless their name says otherwise."""
    generator = np.random.default_rng(1)
    normal = generator.standard_normal((n_rows, n_features))
    one_bad = normal.copy()
    one_bad[3, 1] = np.nan
    repeated = sparse.csr_array(normal)
    repeated = sparse.csr_array(
        (np.repeat(repeated.data, 2), np.repeat(repeated.indices, 2), 2 * repeated.indptr),
        shape=normal.shape,
    )
    return {
        "normal": normal,
        "zeros": np.zeros_like(normal),
        "negative": -np.abs(normal),
        "one row with NaN": one_bad,
        "NaN": np.full_like(normal, np.nan),
        "infinities": np.where(normal > 0, np.inf, -np.inf),
        "1e308": np.full_like(normal, 1e308),
        "denormals": np.full_like(normal, 5e-324),
        "from 1e-300 to 1e300": normal * 10.0 ** generator.integers(-300, 300, normal.shape),
        "one direction": np.outer(np.ones(n_rows), np.eye(n_features)[0]),
        "float32": (1e30 * normal).astype(np.float32),
        "integers": (1e6 * normal).astype(np.int64),
        "CSR": sparse.csr_array(np.where(normal > 0.5, normal, 0.0)),
        "CSR, empty": sparse.csr_array(normal.shape),
        "CSR, entries twice": repeated,
        "CSR, NaN": sparse.csr_array(np.where(normal > 0.5, np.nan, 0.0)),
    }


def wild_tensors(dimension: int, order: int) -> dict[str, Any]:
    """Return tensors of one shape."""
    normal = np.random.default_rng(2).standard_normal((dimension,) * order)
    return {
        "not symmetric": normal,
        "zeros": np.zeros_like(normal),
        "NaN": np.full_like(normal, np.nan),
        "infinities": np.where(normal > 0, np.inf, -np.inf),
        "1e308": np.full_like(normal, 1e308),
        "denormals": np.full_like(normal, 5e-324),
        "ones": np.ones_like(normal),
        "float32": normal.astype(np.float32),
        "integers": (1e6 * normal).astype(np.int64),
    }


# ---- text files ----------------------------------------------------------------------------------


def write_lines(lines, path):
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def write_lines_below_names(lines, path):
    write_lines([b"a,b,c,d,e", *lines], path)


def separated(rows):
    return [",".join(map(repr, row)).encode() for row in rows.tolist()]


#: Lines that are no rows of five numbers, in one format or in both.
MALFORMED = [
    b"name,surname,age,street,town",
    b"",
    b"   ",
    b"1 500:1.0",
    b"1 0:1",
    b"1 3:1 2:1",
    b"1 1:2:3",
    b"1 1:x",
    b"# a comment",
    b"1,2,3",
    b"1,2,3,4,5,6",
    b'1,2,3,4,"5',
    b'"1,2,3,4,5',
    b"1;2;3;4;5",
    b"1_0,2,3,4,5",
    b"0x1p3,2,3,4,5",
    b"\xff\xfe\x00",
    b"1 nan:1 inf:2",
    b"1 1:nan 2:1e999",
    b"qid:3 1:2",
]


#: Records of five cells, one of which at least is not a number.
NOT_NUMBERS = [
    b"name,surname,age,street,town",
    b",,,,",
    b"1_0,2,3,4,5",
    b"0x1p3,2,3,4,5",
    b'1,2,"3,4",5,6',
    b'1,2,3,4,"five\nlines\r\nin\n\none ""cell"""',
    b'"1","2","3","4","\n"',
    b"1,2,3,4,nan",
    b"1,2,3,4,1e999",
    b"\xff\xfe\x00,2,3,4,5",
    b"1;2,3;4,5;6,7;8,9",
]


# ---- transcripts ---------------------------------------------------------------------------------


@dataclass
class Transcript:
    """What a run released, with the exact answers and the scales of the noise: all that an attacker
    can wish for.
    """

    exact: list[Any] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    released: list[Any] = field(default_factory=list)


def record(run: Callable[[], object], noise: Any = None) -> tuple[object, Transcript]:
    """Run as usual, with noise from elsewhere if that is given, and note every release."""
    seen = Transcript()

    def noted(value: Any, scale: float, source: Any) -> Any:
        answer = _noise.noisy(value, scale, source if noise is None else noise)
        seen.exact.append(np.array(value))
        seen.scales.append(scale)
        seen.released.append(answer)
        return answer.copy()

    with releasing(noted):
        return run(), seen


def play_back(run: Callable[[], object], released: list[Any]) -> tuple[object, Transcript]:
    """Run on other data, as if the same answers had been released: its questions are then the
    same.
    """
    seen, left = Transcript(), iter(released)

    def played(value: Any, scale: float, source: Any) -> Any:
        answer = next(left)
        seen.exact.append(np.array(value))
        seen.scales.append(scale)
        seen.released.append(answer)
        return answer.copy()

    with releasing(played):
        return run(), seen


def log_likelihood_ratio(own: Transcript, other: Transcript) -> float:
    """Return the logarithm of how much likelier the transcript is for the other data than for its
    own.
    """
    total = 0.0
    for f, g, scale, y in zip(own.exact, other.exact, own.scales, own.released, strict=True):
        total += float(np.sum((y - (f + g) / 2) * (g - f))) / scale**2
    return total
