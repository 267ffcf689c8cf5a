"""Measure how much there is to read: lines of code by kind, layers, and the files and functions that a call passes.

Run it as ``python tools/measure.py`` with the library importable; ``--no-walks`` leaves out what needs to import it.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse  # noqa: E402 - after the number of threads
import ast  # noqa: E402
import inspect  # noqa: E402
import re  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
import tomllib  # noqa: E402
import warnings  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from types import FrameType  # noqa: E402
from typing import Any  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
#: Files, and functions in other files, whose lines count as persistence: state that is written, read and checked.
PERSISTENT_FILES = re.compile(r"(^|_)(file|files|saving|schema|checkpoint|persistence|serialization)\.py$")
PERSISTENT_FUNCTIONS = re.compile(
    r"^_*(save|load|dump|restore|write|read_state|to_arrays|from_arrays|to_state|from_state|to_file|from_file|"
    r"to_json|from_json|__getstate__|__setstate__|__reduce__|__reduce_ex__)($|_)|_(to|from)_(arrays|file|json|state)$"
)

_Function = ast.FunctionDef | ast.AsyncFunctionDef


# Lines ----------------------------------------------------------------------------------------------------------------


def _span(node: ast.AST) -> range:
    return range(node.lineno, node.end_lineno + 1)  # type: ignore[attr-defined]


def _docstring(node: ast.AST) -> range:
    """Return the lines of a docstring; an empty range if there is none."""
    body = getattr(node, "body", None)
    if isinstance(node, ast.Module | ast.ClassDef | _Function) and body:
        first = body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            return _span(first)
    return range(0)


def _signature(node: _Function) -> range:
    """Return the lines from ``def`` to the line before the first statement or docstring; one line at least."""
    return range(node.lineno, max(node.body[0].lineno, node.lineno + 1))


def kinds_of_lines(path: Path) -> Counter[str]:
    """Count the lines of code of a file, by kind; the kinds overlap only in "code" and "persistence"."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    prose = {number for node in nodes for number in _docstring(node)}
    code = {
        number
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.strip().startswith("#") and number not in prose
    }
    functions = [node for node in nodes if isinstance(node, _Function)]
    imports = {line for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for line in _span(node)} & code
    signatures = {line for node in functions for line in _signature(node)} & code - imports
    bodies = {line for node in functions for line in _span(node)} & code - imports - signatures
    if PERSISTENT_FILES.search(path.name):
        persistent = code
    else:
        persistent = {
            line for node in functions if PERSISTENT_FUNCTIONS.search(node.name) for line in _span(node)
        } & code
    return Counter(
        {
            "files": 1,
            "functions": len(functions),
            "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
            "code": len(code),
            "docstrings": len(prose),
            "imports": len(imports),
            "signatures": len(signatures),
            "bodies": len(bodies),
            "persistence": len(persistent),
            "persistent bodies": len(persistent & bodies),
        }
    )


def layers() -> list[int]:
    """Return the number of layers of every contract of that type."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project.get("tool", {}).get("importlinter", {}).get("contracts", [])
    return [len(contract["layers"]) for contract in contracts if contract.get("type") == "layers"]


def table_of_lines() -> Iterator[tuple[str, str]]:
    """Yield what is measured without running anything."""
    total: Counter[str] = Counter()
    largest = 0
    for path in sorted(SOURCE.rglob("*.py")):
        kinds = kinds_of_lines(path)
        total += kinds
        largest = max(largest, kinds["code"])
    yield "code lines", f"{total['code']:,}"
    yield "files", f"{total['files']:,}"
    yield "code lines a file, mean / most", f"{total['code'] / total['files']:.0f} / {largest}"
    yield "packages", str(sum(1 for _ in SOURCE.rglob("__init__.py")))
    yield "layers", ", ".join(map(str, layers()))
    yield "functions", f"{total['functions']:,}"
    yield "classes", f"{total['classes']:,}"
    yield "docstring lines", f"{total['docstrings']:,}"
    other = total["code"] - total["bodies"] - total["signatures"] - total["imports"]
    for name, count in [
        ("bodies of functions", total["bodies"]),
        ("  without those of persistence (logic)", total["bodies"] - total["persistent bodies"]),
        ("signatures", total["signatures"]),
        ("imports", total["imports"]),
        ("other (classes, constants, __all__)", other),
        ("of all these, persistence", total["persistence"]),
    ]:
        yield f"  {name}", f"{count:,} = {100 * count / total['code']:.1f} %"


# Walks ----------------------------------------------------------------------------------------------------------------


class Walk:
    """The files and functions of the library that a call enters, in all threads, and how deep it goes.

    The depth counts frames of the library only: what numpy or scikit-learn put in between does not count.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._mine = threading.local()
        self.functions: set[tuple[str, int, str]] = set()
        self.depth = 0

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(self._root):
            return
        depth = getattr(self._mine, "depth", 0) + (1 if event == "call" else -1)
        self._mine.depth = depth
        if event == "call" and not code.co_name.startswith("<"):  # a lambda or a generator belongs to its function
            self.functions.add((code.co_filename, code.co_firstlineno, code.co_name))
        self.depth = max(self.depth, depth)

    def __enter__(self) -> Walk:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def __str__(self) -> str:
        return f"{len({name for name, _, _ in self.functions}):>5} / {len(self.functions):>4} / {self.depth:>3}"


def walks() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the calls that are followed; each is made twice, and the second is measured."""
    import numpy as np
    from scipy import sparse

    import odeco
    from odeco.models.gmm.estimator import TensorMixture
    from odeco.models.lda.estimator import TensorLDA

    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20, 3))
    tensor = odeco.Components([3.0, 2.0, 1.0], vectors / np.linalg.norm(vectors, axis=0)).to_dense()
    tensor = tensor + odeco.symmetrize(1e-2 * rng.normal(size=tensor.shape))
    power: dict[str, Any] = {"method": "power"}
    if "method" not in inspect.signature(odeco.decompose).parameters:  # as it was called before
        power = {"whiten": None}
    sources = np.linalg.qr(rng.normal(size=(30, 5)))[0]
    rows = rng.exponential(size=(20_000, 5)) @ sources.T + 0.1 * rng.normal(size=(20_000, 30))
    rows -= rows.mean(axis=0)
    topics = rng.dirichlet(np.full(100, 0.1), size=4)
    shares = rng.dirichlet(np.full(4, 0.2), size=1_000)
    counts = sparse.csr_array(np.stack([rng.multinomial(60, share @ topics) for share in shares]))
    centres = 6 * rng.normal(size=(4, 10))
    points = centres[rng.integers(4, size=2_000)] + rng.normal(size=(2_000, 10))
    private: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "norm_bound": 4.0}

    yield "decompose(T, 3)", lambda: odeco.decompose(tensor, 3, rng=0)
    yield "decompose(T, 3), power", lambda: odeco.decompose(tensor, 3, rng=0, **power)
    yield "decompose_stream(rows, 5)", lambda: odeco.decompose_stream(rows, 5, rng=0)
    yield (
        "OnlineDecomposer.partial_fit",
        lambda: odeco.OnlineDecomposer(5, rng=0).partial_fit(rows),
    )
    yield "decompose_privately(records)", lambda: odeco.decompose_privately(rows, 3, rng=0, **private)
    yield "TensorLDA.fit", lambda: TensorLDA(4, random_state=0).fit(counts)
    yield "TensorMixture.fit", lambda: TensorMixture(4, random_state=0).fit(points)


def table_of_walks() -> Iterator[tuple[str, str]]:
    """Yield files / functions / depth of every walk."""
    import numpy as np

    import odeco

    root = Path(odeco.__file__).parent
    if root != SOURCE / "odeco":
        raise SystemExit(f"The library that is imported is not the one beside this file. Set PYTHONPATH to {SOURCE}.")
    for name, call in walks():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.urandom = np.random.default_rng(0).bytes  # the noise of private runs, so that all runs walk alike
            call()
            walk = Walk(root)
            with walk:
                call()
        yield f"  {name}", str(walk)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-walks", action="store_true", help="measure lines and layers only")
    arguments = parser.parse_args()
    for name, value in table_of_lines():
        print(f"{name:<40}{value:>20}")
    if not arguments.no_walks:
        print("walks: files / functions / depth")
        for name, value in table_of_walks():
            print(f"{name:<40}{value:>20}", flush=True)


if __name__ == "__main__":
    main()
