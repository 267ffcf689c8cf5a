"""Results as files: everything comes back, nothing else is in them, and a file from a stranger does
no harm.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import pickle
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest

import odeco
from odeco._util.files import load_arrays, read_contents, save_arrays
from odeco.datasets import gaussian_noise, planted_orthogonal
from odeco.privacy.noise import SeededNoiseForTests

RNG = np.random.default_rng(0)
TENSOR = planted_orthogonal(12, 3, rng=0).to_dense()
ROWS = np.eye(6)[RNG.choice(3, size=4000, p=[0.5, 0.3, 0.2])]
RESULTS = {
    "tensor": lambda: odeco.decompose(TENSOR, 3, rng=0),
    "loop": lambda: odeco.decompose(TENSOR, 3, method="power", rng=0),
    "auto": lambda: odeco.decompose(
        TENSOR + 0.01 * gaussian_noise(12, rng=0).entries, "auto", rng=0
    ),
    "asymmetric": lambda: odeco.decompose_asymmetric(
        np.einsum("i,j,k->ijk", *map(np.arange, (3, 4, 5))) * 1.0, 1
    ),
    "stream": lambda: odeco.decompose_stream(ROWS, 3, rng=0),
    "one batch": lambda: odeco.decompose_stream(ROWS, 3, n_passes=1, rng=0),
    "private": lambda: odeco.decompose_privately(
        ROWS, 3, epsilon=1.0, delta=1e-6, unit="record", norm_bound=1.0, rng=0
    ),
    "private stream": lambda: (
        odeco.OnlineDecomposer(
            2, method="core", batch_size=800, epsilon=4.0, delta=1e-6, norm_bound=1.0, rng=0
        )
        .partial_fit(ROWS)
        .result()
    ),
    "not private": lambda: odeco.decompose_privately(
        ROWS,
        2,
        epsilon=1.0,
        delta=1e-6,
        unit="record",
        norm_bound=1.0,
        mechanism="wang2016",
        n_restarts=2,
        n_iterations=2,
        noise=SeededNoiseForTests(0),
        rng=0,
    ),
}


def assert_same(first, second):
    """Compare everything, to the last bit."""
    assert type(first) is type(second)
    if dataclasses.is_dataclass(first):
        for field in dataclasses.fields(first):
            assert_same(getattr(first, field.name), getattr(second, field.name))
    elif isinstance(first, np.ndarray):
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)
    elif isinstance(first, tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    else:
        assert first == second


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_comes_back_to_the_last_bit(name, tmp_path):
    result = RESULTS[name]()
    odeco.save_result(result, tmp_path / "result.npz", command="how to")
    assert_same(odeco.load_result(tmp_path / "result.npz"), result)
    assert read_contents(tmp_path / "result.npz").header["command"] == "how to"
    odeco.save_result(result, tmp_path / "again.npz", command="how to")
    assert (tmp_path / "result.npz").read_bytes() == (tmp_path / "again.npz").read_bytes()


def test_plain_numpy_and_json_can_read_a_result(tmp_path):
    result = RESULTS["private"]()
    odeco.save_result(result, tmp_path / "result.npz")
    with np.load(tmp_path / "result.npz", allow_pickle=False) as archive:
        header = json.loads(
            str(archive["header"]), parse_constant=pytest.fail
        )  # no NaN, no Infinity
        np.testing.assert_array_equal(archive["components.weights"], result.weights)
        np.testing.assert_array_equal(archive["components.vectors"], result.vectors)
        names = set(archive.files)
    # The file of a private result holds its public attributes and nothing else.
    parts = {f"components.{name}" for name in ("weights", "vectors", "order")}
    assert names == {
        "header",
        *parts,
        "weight_errors",
        "angle_errors",
        "noise_floors",
        "norm_bound",
    }
    assert set(header) == {"kind", "format_version", "written_by", "command", "privacy"}
    assert json.loads(header["privacy"])["epsilon"] == result.privacy.epsilon


def test_a_result_may_be_read_by_others_and_a_checkpoint_may_not(tmp_path):
    odeco.save_result(RESULTS["tensor"](), tmp_path / "result.npz")
    (tmp_path / "plain").write_text("")  # what the system gives any file
    online = odeco.OnlineDecomposer(2, method="core", rng=0)
    online.save(tmp_path / "run.ckpt")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes["result.npz"] == modes["plain"]
    assert modes["run.ckpt"] == 0o600


def test_only_results_are_saved_and_only_results_are_loaded(tmp_path):
    with pytest.raises(
        TypeError, match="A result that is saved must be of Decomposition, StreamDecomposition"
    ):
        odeco.save_result(odeco.Components([1.0], np.eye(2)[:, :1]), tmp_path / "result.npz")
    odeco.Components([1.0], np.eye(2)[:, :1]).save(tmp_path / "components.npz")
    with pytest.raises(odeco.FileFormatError, match=r"must hold a result\. It holds components\."):
        odeco.load_result(tmp_path / "components.npz")
    with pytest.raises(FileNotFoundError):
        odeco.load_result(tmp_path / "nothing.npz")


class StopError(Exception):
    """Ends a run from its callback."""


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "core"},
        {"method": "power", "batch_size": 300, "n_iterations": 5, "n_restarts": 4},
    ],
)
@pytest.mark.parametrize("again", [True, False])
def test_a_callback_that_raises_ends_a_run_that_can_go_on(settings, again, tmp_path):
    rows = np.tile(ROWS, (3, 1))
    settings = {**settings, "rng": 0}

    def data():
        return (lambda: iter(np.array_split(rows, 40))) if again else iter(np.array_split(rows, 40))

    unbroken = odeco.decompose_stream(data(), 3, **settings)
    calls = []

    def stop(progress):
        calls.append(progress)
        if len(calls) == 7:
            raise StopError

    path = tmp_path / "run.ckpt"
    with pytest.raises(StopError):
        odeco.decompose_stream(data(), 3, **settings, checkpoint=path, callback=stop)
    assert path.exists()
    first = []
    resumed = odeco.decompose_stream(data(), 3, **settings, checkpoint=path, callback=first.append)
    assert first[0].n_rows > calls[-1].n_rows  # it went on from there
    assert_same(resumed, unbroken)


# ---- files from strangers ------------------------------------------------------------------------


class Trap:
    """Unpickling this makes a file, which the tests look for."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return Path.write_text, (Path(self.path), "executed")


def good_entries(path):
    """Return the entries of a good file, as bytes."""
    odeco.save_result(RESULTS["tensor"](), path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path, entries, *, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def npy(shape, dtype="<f8", content=b""):
    """Return a .npy entry that announces what we like."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return stream.getvalue() + content


def strange_files(folder, marker):
    """Return files made to do harm, by what they try."""
    good = good_entries(folder / "good.npz")
    trap = pickle.dumps(Trap(marker))
    objects = io.BytesIO()
    np.lib.format.write_array(objects, np.array([Trap(marker)], dtype=object), allow_pickle=True)
    header = np.lib.format.read_array(io.BytesIO(good["header.npy"])).item()
    files = {}

    def file(name, entries, **how):
        files[name] = folder / f"{name.replace(' ', '-')}.npz"
        write(files[name], entries, **how)

    file("objects as an array", {**good, "components.weights.npy": objects.getvalue()})
    file("objects as the header", {**good, "header.npy": objects.getvalue()})
    file("objects beside the arrays", {**good, "more.npy": objects.getvalue()})
    file("a pickle as an entry", {**good, "components.weights.npy": trap})
    file("a pickle beside the arrays", {**good, "payload.pkl": trap})
    file("a huge shape", {**good, "components.weights.npy": npy((2**50,))})
    file("a huge shape of nothing", {**good, "components.weights.npy": npy((2**62, 2**62, 0))})
    file("a huge text", {**good, "components.weights.npy": npy((), f"<U{2**30 - 1}")})
    file("a negative shape", {**good, "components.weights.npy": npy((-1, -3), content=bytes(24))})
    file(
        "a compressed bomb",
        {**good, "bomb.npy": npy((2**27,), "|u1", bytes(2**27))},
        compression=zipfile.ZIP_DEFLATED,
    )
    file("no header", {name: content for name, content in good.items() if name != "header.npy"})
    file(
        "an array that is missing",
        {name: content for name, content in good.items() if name != "residuals.npy"},
    )
    file("an array too many", {**good, "wights.npy": good["residuals.npy"]})
    file("an array in the wrong place", {**good, "residuals.npy": good["components.vectors.npy"]})
    file(
        "a history that is missing",
        {name: content for name, content in good.items() if name != "histories.2.npy"},
    )
    file("no numbers", {**good, "components.weights.npy": good["structure.kind.npy"]})
    file("another text", {**good, "structure.kind.npy": good["structure.reason.npy"]})
    for name, changed in {
        "another kind": header.replace('"decomposition"', '"stream decomposition"'),
        "a version that is no number": header.replace(
            '"format_version": 3', '"format_version": "3"'
        ),
        "a header that is no object": "[1, 2]",
        "a header that is deep": "[" * 100_000,
        "a header that is no JSON": "{",
    }.items():
        assert changed != header
        stream = io.BytesIO()
        np.lib.format.write_array(stream, np.array(changed), allow_pickle=False)
        file(name, {**good, "header.npy": stream.getvalue()})
    whole = (folder / "good.npz").read_bytes()
    for name, content in {
        "cut short": whole[: len(whole) // 2],
        "nothing": b"",
        "a pickle": trap,
    }.items():
        files[name] = folder / f"{name.replace(' ', '-')}.npz"
        files[name].write_bytes(content)
    return files


def test_a_file_from_a_stranger_executes_nothing_and_gives_a_clear_error(tmp_path):
    marker = tmp_path / "executed"
    files = strange_files(tmp_path, marker)
    assert len(files) == 25
    for name, path in files.items():
        with pytest.raises(odeco.FileFormatError, match="is not a complete odeco file") as caught:
            odeco.load_result(path)
        assert str(path) in str(caught.value), name
        assert "Write it again" in str(caught.value), name
        assert not marker.exists(), name
    # The trap works: it is only never sprung.
    pickle.loads(pickle.dumps(Trap(marker)))
    assert marker.exists()


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (4, r"format version 4\. This odeco reads up to 3\. Install a newer odeco\."),
        (
            1,
            (
                r"format version 1\. This odeco reads version 3\. Read it with the odeco that "
                r"wrote "
                r"it, or make it again\."
            ),
        ),
    ],
)
def test_a_file_of_another_version_says_what_to_do(version, text, tmp_path):
    save_arrays(tmp_path / "old.npz", "decomposition", {}, {})
    with zipfile.ZipFile(tmp_path / "old.npz") as archive:
        header = np.lib.format.read_array(io.BytesIO(archive.read("header.npy"))).item()
    stream = io.BytesIO()
    np.lib.format.write_array(
        stream, np.array(header.replace('"format_version": 3', f'"format_version": {version}'))
    )
    write(tmp_path / "new.npz", {"header.npy": stream.getvalue()})
    with pytest.raises(odeco.FileFormatError, match=text):
        odeco.load_result(tmp_path / "new.npz")


def test_info_reads_a_strange_file_without_loading_it(tmp_path):
    marker = tmp_path / "executed"
    for name, path in strange_files(tmp_path, marker).items():
        with contextlib.suppress(odeco.FileFormatError):
            read_contents(path)
        assert not marker.exists(), name


def test_a_private_result_from_before_charges_had_a_delta_is_read(tmp_path):
    rows = np.random.default_rng(0).standard_normal((200, 4))
    result = odeco.decompose_privately(
        rows, 1, epsilon=1.0, delta=1e-6, unit="record", norm_bound=1.0, rng=0
    )
    odeco.save_result(result, tmp_path / "result.npz")
    header, arrays = load_arrays(tmp_path / "result.npz", "private decomposition")
    report = json.loads(header["privacy"])
    assert all("delta" not in charge for charge in report["charges"])  # one of 0 is not written
    save_arrays(tmp_path / "before.npz", "private decomposition", header, arrays)
    assert odeco.load_result(tmp_path / "before.npz").privacy == result.privacy
