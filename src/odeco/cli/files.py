"""``odeco report`` and ``odeco info``: the page of a saved result or model, and the contents of a file."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from odeco._util.files import Contents, announced_arrays, read_array, read_contents
from odeco.cli import options as _options
from odeco.cli.learn import MODELS
from odeco.cli.options import load_names
from odeco.cli.output import Output, as_cell, console, deliver, emit_json
from odeco.decompose.files import load_result
from odeco.decompose.result import AsymmetricDecomposition
from odeco.errors import FileFormatError
from odeco.io.coerce import as_source
from odeco.io.npy import load_npy
from odeco.io.urls import UrlPath
from odeco.privacy.calibration import epsilon_of
from odeco.privacy.ledger_file import LedgerFile, read_charges
from odeco.tensors.entries import check_finite, check_symmetric


@click.command("report")
@click.argument("file", type=_options.LOCAL_FILE)
@click.option("--out", type=_options.OUTPUT, default="odeco-report.html", help="Where to write the page.")
@click.option("--title", help="Title of the page; by default it names the file.")
@_options.names
@click.option(
    "--documents",
    type=_options.FILE,
    metavar="FILE",
    help="For topics: documents to show with them, and to measure coherence with.",
)
@click.option("--column", metavar="NAME", help="The column of --documents that holds the text.")
def report(
    file: Path, out: Path, title: str | None, names: Path | None, documents: Path | None, column: str | None
) -> None:
    r"""Write a self-contained HTML page of the result, the topics or the model in FILE, which --out has saved.

    The page of topics shows typical documents if --documents are given; that of private topics never does.

    \b
    Examples:
      odeco report result.npz --out page.html --names words.txt
      odeco report model.npz --out page.html --documents reviews.csv --column text
    """
    contents = read_contents(file)
    write: Callable[[Path], object]
    if contents.kind == "topic model":
        if names is not None:
            raise click.UsageError("A model of topics knows its words. Leave out --names.")
        from odeco.cli.topics_files import page_writer  # scikit-learn and numba may be missing

        write = page_writer(file, title=title, documents=documents, column=column)
    elif documents is not None or column is not None:
        raise click.UsageError(f"--documents and --column are for topics. {file} holds something else. Leave them out.")
    elif contents.kind in (kinds := {model.kind: model for model in MODELS}):
        loaded = kinds[contents.kind].load_estimator().load(file)
        write = partial(loaded.write_report, title=title or f"Model in {file.name}")
    else:
        from odeco.decompose.page import write_report  # Matplotlib may be missing

        result, header = load_result(file), contents.header
        if names is not None and isinstance(result, AsymmetricDecomposition):
            raise click.UsageError(
                "--names is for the one axis of a symmetric tensor. FILE holds terms of an asymmetric one."
            )
        write = partial(
            write_report,
            result,
            title=title or f"Result in {file.name}",
            names=None if names is None else load_names(names, result.vectors.shape[0]),  # type: ignore[union-attr]
            command=header.get("command"),
            versions=header.get("written_by"),
        )
    deliver(lambda: None, Output(out, write))


#: The content of odeco's own files by kind, and how to read it.
_MEANINGS = {
    "components": "weights and unit vectors; read with odeco.Components.load",
    "power solver": "the state of the power method; read with odeco.power.PowerSolver.load",
    "stream run": "the state of a run over rows; continue it with odeco stream --checkpoint and --resume if that "
    "command made it, or else with odeco.OnlineDecomposer.load",
    "topic model": "topics over words; read with odeco.models.TensorLDA.load, apply with odeco topics apply, show with "
    "odeco report",
    **{model.kind: f"{model.components}; read with odeco.models.{model.estimator}.load" for model in MODELS},
    "topic proportions": "the share of each topic in each document; read with numpy.load",
}


@click.command("info")
@click.argument("file", type=_options.FILE)
@click.option("--check", is_flag=True, help="Also read the whole tensor: is it finite, is it symmetric?")
@_options.json_output
def info(file: Path, check: bool, as_json: bool) -> None:
    r"""Describe FILE: a tensor, rows, a result, a model, a checkpoint or a ledger. Nothing in it is executed.

    \b
    Examples:
      odeco info tensor.npy --check
      odeco info run.ckpt --json
    """
    if not file.exists():
        raise FileNotFoundError(2, "No such file or directory", str(file))
    document = _describe(file, check)
    if as_json:
        emit_json({"file": str(file), **{name.replace(" ", "_"): value for name, value in document.items()}})
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in document.items():
        if isinstance(value, dict):
            table.add_row(name, "")
            for inner, each in value.items():
                table.add_row(as_cell(f"  {inner}"), as_cell(_text(each)))
        else:
            table.add_row(name, as_cell(_text(value)))
    console().print(table)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) <= 300 else text[:297] + "..."


def _describe(file: Path, check: bool) -> dict[str, Any]:
    if isinstance(file, UrlPath):
        return _rows(file)
    if file.is_file() and zipfile.is_zipfile(file):
        try:
            return _own(file, read_contents(file))
        except FileFormatError:
            if "header" in announced_arrays(file):
                raise
        return _archive(file, check)
    if file.suffix == ".npy":
        array = load_npy(file)
        return _tensor(array.shape, array.dtype, array if check else None) if array.ndim >= 3 else _rows(file)
    return _ledger(file) or _rows(file)


def _ledger(file: Path) -> dict[str, Any]:
    """Describe a privacy ledger: what was spent, by whom, and what is left; empty if the file is not a ledger."""
    with file.open("rb") as opened:
        first = opened.readline(4096)
    if first.startswith(b'{"kind": "shared privacy ledger"'):
        ledger = LedgerFile(file)
        delta, limit, spent = ledger.delta, ledger.mu_limit, ledger.mu
        left = math.sqrt(max(0.0, limit**2 - spent**2))

        def epsilon(mu: float) -> float:
            return float(f"{epsilon_of(mu, delta):.4g}") if mu > 0 else 0.0

        return {
            "holds": "shared privacy ledger",
            "meaning": "the budget of all runs on the same data; pass it as --ledger or ledger=",
            "budget": f"ε = {ledger.epsilon:g} at δ = {delta:g}",
            "epsilon spent": epsilon(spent),
            "epsilon left": epsilon(left),
            "releases": sum(charge.count for charge in ledger.charges),
            "epsilon spent by": {name: epsilon(mu) for name, mu in ledger.spent_by.items()},
        }
    if first.startswith(b'{"kind": "privacy ledger file"'):
        content = file.read_bytes()
        run, own = read_charges(file, content[: content.rfind(b"\n") + 1])
        return {
            "holds": "privacy ledger of a run",
            "meaning": "what a private stream has spent; it stays beside the checkpoint of the run",
            "run": run,
            "mu spent": float(f"{own.mu:.6g}"),
            "mu limit": float(f"{own.mu_limit:.6g}"),
            "releases": sum(charge.count for charge in own.charges),
        }
    return {}


def _own(file: Path, contents: Contents) -> dict[str, Any]:
    header = contents.header
    shown: dict[str, Any] = {"holds": contents.kind, "format version": contents.format_version}
    if contents.kind in _MEANINGS:
        shown["meaning"] = _MEANINGS[contents.kind]
    if isinstance(header.get("written_by"), dict):
        shown["written by"] = ", ".join(f"{name} {version}" for name, version in header["written_by"].items())
    for name in ("command", "order", "settings", "source", "n_documents", "parameters"):
        if header.get(name) is not None:
            shown[name.replace("_", " ")] = header[name]
    names = read_array(file, "names").tolist() if "names" in contents.arrays else header.get("names")
    if isinstance(names, list):  # the file may come from anyone
        shown["names"] = ", ".join(map(str, names))
    counts = ("run.n_closed", "run.sum.n_rows")
    if all(contents.arrays.get(name) == ((), np.dtype(np.int64)) for name in counts):
        shown["rows taken in"] = sum(int(read_array(file, name)) for name in counts)
    return shown | {"arrays": {name: f"{_shape(shape)} {dtype}" for name, (shape, dtype) in contents.arrays.items()}}


def _archive(file: Path, check: bool) -> dict[str, Any]:
    arrays = announced_arrays(file)
    if arrays.keys() >= {"data", "indices", "indptr", "shape"}:
        return _rows(file)
    if len(arrays) == 1:
        name, (shape, dtype) = next(iter(arrays.items()))
        if len(shape) >= 3:
            return _tensor(shape, dtype, read_array(file, name) if check else None)
    return {"holds": "arrays of NumPy", "names": ", ".join(sorted(arrays))}


def _tensor(shape: tuple[int, ...], dtype: np.dtype[Any], array: np.ndarray[Any, Any] | None) -> dict[str, Any]:
    """Describe a tensor; if its entries are given, check whether they are finite and symmetric."""
    shown: dict[str, Any] = {
        "holds": "a tensor",
        "order": len(shape),
        "shape": _shape(shape),
        "type": str(dtype),
        "size": f"{math.prod(shape) * dtype.itemsize / 1e6:,.1f} MB",
        "equal sizes": len(set(shape)) == 1,
    }
    if array is not None and dtype.kind not in "fiub":
        shown["finite"] = "unknown, because these are not real numbers"
    elif array is not None:
        check_finite(array, "tensor")
        shown["finite"] = True
        if shown["equal sizes"]:
            try:
                check_symmetric(array)
                shown["symmetric"] = True
            except ValueError as error:
                shown["symmetric"] = False
                shown["reason"] = str(error)
    return shown


def _rows(file: Path) -> dict[str, Any]:
    source = as_source(str(file))
    columns = getattr(source, "columns", None)
    return {
        "holds": "rows",
        "rows": "unknown until read" if source.n_rows is None else source.n_rows,
        "columns": source.n_features,
        "names": ", ".join(columns) if columns else "none",
        "can be read again": source.repeatable,
    }


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{size:,}" for size in shape) if shape else "one"
