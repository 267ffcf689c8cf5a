"""``odeco report`` and ``odeco info``: the page of a saved result or model, and the contents of a
file.
"""

from __future__ import annotations

import html
import math
import re
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click
import numpy as np

from odeco._util.files import Contents, announced_arrays, read_array, read_contents
from odeco.cli import options as _options
from odeco.cli.inputs import Given, load_names
from odeco.cli.models import MODELS, RegisteredModel, model_of_kind
from odeco.cli.options import UNNAMED, Command, Section, option
from odeco.cli.output import Output, deliver, print_json, print_text
from odeco.cli.privacy import as_lines, describe_ledger
from odeco.cli.tables import is_page
from odeco.decompose.files import load_result
from odeco.decompose.result import AsymmetricDecomposition
from odeco.errors import FileFormatError
from odeco.io.coerce import as_source
from odeco.io.npy import load_npy
from odeco.io.tables import is_missing, is_number, kind_of, open_text, read_cells
from odeco.io.urls import UrlPath
from odeco.tensors.entries import check_finite, check_symmetric

#: What is shown of a page, and how to find it there.
_OF_PAGE = {
    "title": r"<title>(.*?)</title>",
    "finding": r'<p class="verdict">(.*?)</p>',
    "made by": r"<pre[^>]*>(?:<code>)?(odeco .*?)(?:</code>)?</pre>",
}

#: The kind of a column follows from this number of records.
_N_LOOKED_AT = 1000


def run_report(file: Path, **given: Any) -> None:
    """Write the page of a saved result or model."""
    contents = read_contents(file)
    names = given["names"]
    about_text = given["documents"] is not None or given["column"] is not None
    model = model_of_kind(contents.kind)
    if model is not None:
        write = _page_of_model(file, model, given)
    elif about_text:
        raise click.UsageError(
            f"--documents and --column are for topics. {file} holds something else. Leave them out."
        )
    else:
        from odeco.decompose.page import write_report  # Matplotlib may be missing

        result = load_result(file)
        header = contents.header
        if names is not None and isinstance(result, AsymmetricDecomposition):
            raise click.UsageError(
                "--names is for the one axis of a symmetric tensor. FILE holds terms of an "
                "asymmetric one."
            )
        write = partial(
            write_report,
            result,
            title=f"Result in {file.name}",
            names=None if names is None else load_names(names, result.vectors.shape[0]),  # type: ignore[union-attr]
            command=header.get("command"),
            versions=header.get("written_by"),
        )
    deliver(lambda: None, Output(given["out"], write))


def _page_of_model(file: Path, model: RegisteredModel, given: Given) -> Callable[[Path], object]:
    """Return the function that writes the page of a saved model."""
    if given["names"] is not None:
        raise click.UsageError(
            "A model knows the names of its columns or words. Leave out --names."
        )
    loaded = model.load_estimator().load(file)
    if model.data == "documents":
        from odeco.cli.documents import page_writer  # scikit-learn and numba may be missing

        how = {name: given[name] for name in ("documents", "column")}
        return page_writer(loaded, file, **how)
    if given["documents"] is not None or given["column"] is not None:
        raise click.UsageError(
            f"--documents and --column are for topics. {file} holds something else. Leave them out."
        )
    return partial(loaded.write_report, title=f"Model in {file.name}")


report = Command(
    "report",
    run_report,
    (
        Section(
            "Page",
            (
                option(
                    "--out",
                    type=_options.OUTPUT,
                    default="odeco-report.html",
                    help="Where to write the page.",
                ),
                _options.NAMES,
                option(
                    "--documents",
                    type=_options.FILE,
                    metavar="FILE",
                    help="For topics: documents to show with them, and to measure coherence with.",
                ),
                option(
                    "--column",
                    metavar="NAME",
                    help="The column of --documents that holds the text.",
                ),
            ),
        ),
        _options.general(),
    ),
    arguments=(click.Argument(["file"], type=_options.LOCAL_FILE),),
    text="Write a self-contained HTML page of the result, the topics or the model in FILE, which "
    "--out has saved.\n\n"
    "The page of topics shows typical documents if --documents are given; that of private "
    "topics never does.",
    examples=(
        "report result.npz --out page.html --names words.txt",
        "report model.npz --out page.html --documents reviews.csv --column text",
    ),
)


#: The content of odeco's own files by kind, and how to read it.
_MEANINGS = {
    "components": "weights and unit vectors; read with odeco.Components.load",
    "power solver": "the state of the power method; read with odeco.power.PowerSolver.load",
    "synthetic data": "a synthetic table; read with odeco.models.SyntheticData.load",
    "stream run": "the state of a run over rows; continue it with odeco decompose --rows "
    "--checkpoint and --resume if "
    "that command made it, or else with odeco.OnlineDecomposer.load",
    **{
        model.kind: f"{model.components}; read with odeco.models.{model.estimator}.load"
        for model in MODELS.values()
    },
}


def run_info(file: Path, check: bool, as_json: bool) -> None:
    """Describe a file."""
    if not file.exists():
        raise FileNotFoundError(2, "No such file or directory", str(file))
    if not isinstance(file, UrlPath) and not (file.is_file() or file.is_dir()):
        raise ValueError(
            f"{file} must be a file or a folder. It is a device or a pipe. Write what it holds to "
            "a file."
        )
    document = _describe(file, check)
    if as_json:
        print_json(
            {
                "file": str(file),
                **{name.replace(" ", "_"): value for name, value in document.items()},
            }
        )
    else:
        print_text(as_lines(document))


info = Command(
    "info",
    run_info,
    (
        Section(
            "Output",
            (
                option(
                    "--check",
                    is_flag=True,
                    help="Also read the whole tensor: is it finite, is it symmetric?",
                ),
                _options.JSON,
            ),
        ),
        _options.general(),
    ),
    text=(
        "Describe FILE: a tensor, rows, a result, a model, a checkpoint or a ledger. Nothing in "
        "it is executed."
    ),
    examples=("info tensor.npy --check", "info model.npz", "info run.ckpt --json"),
)


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
        if array.ndim < 3:
            return _rows(file)
        return _tensor(array.shape, array.dtype, array if check else None)
    if file.is_file() and is_page(file):
        return _page(file)
    return (describe_ledger(file) if file.is_file() else {}) or _rows(file)


def _page(file: Path) -> dict[str, Any]:
    """Describe a page by its heading, what it found, and the command that made it."""
    text = file.read_text(encoding="utf-8", errors="replace")
    shown = {"holds": "a page of odeco; open it in a browser"}
    for name, pattern in _OF_PAGE.items():
        found = re.search(pattern, text, flags=re.DOTALL)
        if found is not None:
            shown[name] = html.unescape(found[1])
    return shown


def _own(file: Path, contents: Contents) -> dict[str, Any]:
    """Describe a file of odeco's: a model by its own summary, anything else by its header and its
    arrays.
    """
    header = contents.header
    shown: dict[str, Any] = {"holds": contents.kind, "format version": contents.format_version}
    if contents.kind in _MEANINGS:
        shown["meaning"] = _MEANINGS[contents.kind]
    model = model_of_kind(contents.kind)
    if model is not None:
        loaded = model.load_estimator().load(file)
        verdict, *lines = loaded.summary().splitlines()
        shown["finding"] = verdict
        shown["components"] = int(loaded.n_components_)
        shown["summary"] = "".join(f"\n  {each}" for each in lines)
        if hasattr(loaded, "privacy_"):
            shown["guarantee"] = f"ε = {loaded.privacy_.epsilon:g}, δ = {loaded.privacy_.delta:g}"
        return shown
    if isinstance(header.get("written_by"), dict):
        shown["written by"] = ", ".join(
            f"{name} {version}" for name, version in header["written_by"].items()
        )
    for name in ("command", "order", "settings", "source", "n_documents", "parameters"):
        if header.get(name) is not None:
            shown[name.replace("_", " ")] = header[name]
    names = (
        read_array(file, "names").tolist() if "names" in contents.arrays else header.get("names")
    )
    if isinstance(names, list):  # the file may come from anyone
        shown["names"] = ", ".join(map(str, names))
    counts = ("run.n_closed", "run.sum.n_rows")
    if all(contents.arrays.get(name) == ((), np.dtype(np.int64)) for name in counts):
        shown["rows taken in"] = sum(int(read_array(file, name)) for name in counts)
    return shown | {
        "arrays": {
            name: f"{_shape(shape)} {dtype}" for name, (shape, dtype) in contents.arrays.items()
        }
    }


def _archive(file: Path, check: bool) -> dict[str, Any]:
    arrays = announced_arrays(file)
    if arrays.keys() >= {"data", "indices", "indptr", "shape"}:
        return _rows(file)
    if len(arrays) == 1:
        name, (shape, dtype) = next(iter(arrays.items()))
        if len(shape) >= 3:
            return _tensor(shape, dtype, read_array(file, name) if check else None)
    return {"holds": "arrays of NumPy", "names": ", ".join(sorted(arrays))}


def _tensor(
    shape: tuple[int, ...], dtype: np.dtype[Any], array: np.ndarray[Any, Any] | None
) -> dict[str, Any]:
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
        "names": ", ".join(_kinds_of_columns(file, columns)) if columns else "none",
        "can be read again": source.repeatable,
    }


def _kinds_of_columns(file: Path, columns: Sequence[str]) -> list[str]:
    """Return the columns of a table, those of text files with what their first records hold."""
    kind = kind_of(file)
    if not file.is_file() or kind not in (".csv", ".tsv"):
        return list(columns)
    with open_text(file) as opened:
        names, records = read_cells(opened, file.name, kind)
        cells = [own for _, own in islice(records, _N_LOOKED_AT)]
    shown = []
    for place, name in enumerate(names):
        given = [own[place] for own in cells if not is_missing(own[place])]
        what = "numbers" if all(map(is_number, given)) else "texts"
        missing = len(cells) - len(given)
        gaps = f", {missing:,} of the first {len(cells):,} missing" if missing else ""
        shown.append(f"{name or UNNAMED[0]} ({what}{gaps})")
    return shown


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{size:,}" for size in shape) if shape else "one"
