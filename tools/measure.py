"""Measure how much there is to read, and hold it below the ceilings of ``tools/ceilings.toml``.

    python tools/measure.py            # sizes, density, options and walks
    python tools/measure.py --check    # sizes and density beside their ceilings; fails above one
    python tools/measure.py --lower    # write the present figures as ceilings, where they are lower

A size is a number of nodes of the syntax tree, docstrings left out, so that neither line length nor
layout changes it. A walk follows a call of the library: the files and functions that it enters, and
how deep it goes.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse  # noqa: E402 - after the number of threads
import ast  # noqa: E402
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
SOURCE = ROOT / "src" / "odeco"
CEILINGS = ROOT / "tools" / "ceilings.toml"

#: Classes that must not be asked for by `isinstance` outside of the module that defines them: what
#: they do differently belongs into a method. The measurement fails if one of them does not exist.
GUARDED_BASES = ("Plan", "Solver", "Query", "PowerSolver", "Tracker")


# Sizes and density --------------------------------------------------------------------------------


def without_docstrings(tree: ast.Module) -> ast.Module:
    """Remove all docstrings of a module from its tree."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
        ):
            first = node.body[0]
            constant = first.value if isinstance(first, ast.Expr) else None
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                node.body = node.body[1:]
    return tree


def is_number(node: ast.AST | None) -> bool:
    """Return whether an expression is made of literal numbers."""
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    is_literal = isinstance(node, ast.Constant) and isinstance(node.value, int | float)
    return is_literal and not isinstance(node.value, bool)  # type: ignore[union-attr]


def count_constants(tree: ast.Module) -> int:
    """Count the names of numbers at module level."""
    count = 0
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target: ast.AST | None = node.targets[0]
        else:
            target = getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign):
            count += is_number(value)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            count += sum(is_number(each) for each in value.elts)
    return count


def is_parallel(node: ast.AST) -> bool:
    """Return whether a node assigns several expressions to several names in one statement."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    )


def has_conditional(node: ast.AST) -> bool:
    """Return whether a conditional expression stands within an expression."""
    return any(isinstance(each, ast.IfExp) for each in ast.walk(node) if each is not node)


def packages_of(path: Path) -> list[str]:
    """Return the packages that a file counts for."""
    parts = path.relative_to(SOURCE).parts
    if len(parts) == 1:
        return ["(root)"]
    if parts[0] == "models" and len(parts) > 2:
        return ["models", f"models/{parts[1]}"]
    return [parts[0]]


def measure_tree(source: Path = SOURCE) -> tuple[Counter[str], Counter[str]]:
    """Return the number of nodes of each package and of all, and the counts of what makes code
    dense.
    """
    sizes: Counter[str] = Counter()
    density: Counter[str] = Counter()
    for path in sorted(source.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        density["constants"] += count_constants(tree)
        nodes = list(ast.walk(without_docstrings(tree)))
        sizes["all"] += len(nodes)
        for package in packages_of(path):
            sizes[package] += len(nodes)
        conditionals = [node for node in nodes if isinstance(node, ast.IfExp)]
        density["parallel assignments"] += sum(map(is_parallel, nodes))
        density["conditional expressions"] += len(conditionals)
        density["nested conditional expressions"] += sum(map(has_conditional, conditionals))
    return sizes, density


def count_words() -> int:
    """Count the words of the documentation and the README."""
    pages = [
        path
        for path in (ROOT / "docs").rglob("*.md")
        if not {"_build", "generated"} & set(path.parts)
    ]
    return sum(
        len(path.read_text(encoding="utf-8").split()) for path in [ROOT / "README.md", *pages]
    )


# Guards -------------------------------------------------------------------------------------------


def subclasses_of(bases: tuple[str, ...]) -> dict[str, Path]:
    """Return the classes of the source that derive from one of `bases`, and these, with the file of
    each.
    """
    parents: dict[str, set[str]] = {}
    files: dict[str, Path] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = {
                    each.id
                    for base in node.bases
                    for each in ast.walk(base)
                    if isinstance(each, ast.Name)
                }
                parents[node.name] = names
                files[node.name] = path
    missing = [name for name in bases if name not in parents]
    if missing:
        raise SystemExit(
            f"A guard must name classes that exist. There is no {', '.join(missing)}. Update the "
            "guard."
        )
    found = set(bases)
    while True:
        more = {name for name, names in parents.items() if names & found} - found
        if not more:
            return {name: files[name] for name in sorted(found)}
        found |= more


def tests_on_solvers() -> list[str]:
    """Return where `isinstance` asks which solver there is, outside of the file that defines it."""
    guarded = subclasses_of(GUARDED_BASES)
    places = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_call = (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "isinstance"
            )
            if not is_call or len(node.args) < 2:  # type: ignore[attr-defined]
                continue
            asked = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}  # type: ignore[attr-defined]
            if any(guarded[name] != path for name in asked & set(guarded)):
                places.append(f"{path.relative_to(ROOT)}:{node.lineno}")  # type: ignore[attr-defined]
    return places


# Options ------------------------------------------------------------------------------------------


def options_of_commands() -> tuple[int, set[str], int]:
    """Return the number of options of all commands, their distinct names, and the number of
    commands.
    """
    import click

    from odeco.cli.app import group

    def walk(command: click.Command, context: click.Context) -> Iterator[click.Command]:
        if not isinstance(command, click.Group):
            yield command
            return
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from walk(child, context)

    commands = list(walk(group, click.Context(group, resilient_parsing=True)))
    names = [
        parameter.opts[0]
        for command in commands
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.name not in ("debug", "help")
    ]
    return len(names), set(names), len(commands)


# Walks --------------------------------------------------------------------------------------------


class Walk:
    """The files and functions of the library that a call enters, in all threads, and how deep it
    goes.

    The depth counts frames of the library only: what numpy or scikit-learn put in between does not
    count.
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
        if event == "call" and not code.co_name.startswith(
            "<"
        ):  # a lambda or a generator belongs to its function
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
        n_files = len({name for name, _, _ in self.functions})
        return f"{n_files} / {len(self.functions)} / {self.depth}"


def walks() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the calls that are followed; each is made twice, and the second is measured.

    Rows have 200 columns: up to 100 a stream adds up the whole moment, which is a special path.
    """
    import numpy as np
    from scipy import sparse

    import odeco
    from odeco.models import TensorLDA, TensorMixture

    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20, 3))
    tensor = odeco.Components([3.0, 2.0, 1.0], vectors / np.linalg.norm(vectors, axis=0)).to_dense()
    tensor = tensor + odeco.symmetrize(1e-2 * rng.normal(size=tensor.shape))
    sources = np.linalg.qr(rng.normal(size=(200, 5)))[0]
    rows = rng.exponential(size=(20_000, 5)) @ sources.T + 0.1 * rng.normal(size=(20_000, 200))
    rows -= rows.mean(axis=0)
    topics = rng.dirichlet(np.full(100, 0.1), size=4)
    shares = rng.dirichlet(np.full(4, 0.2), size=1_000)
    counts = sparse.csr_array(np.stack([rng.multinomial(60, share @ topics) for share in shares]))
    centres = 6 * rng.normal(size=(4, 10))
    points = centres[rng.integers(4, size=2_000)] + rng.normal(size=(2_000, 10))
    guarantee: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}

    yield "decompose", lambda: odeco.decompose(tensor, 3, rng=0)
    yield "decompose, power method", lambda: odeco.decompose(tensor, 3, rng=0, method="power")
    yield "stream, d = 200", lambda: odeco.decompose_stream(rows, 5, rng=0)
    yield "partial_fit, d = 200", lambda: odeco.OnlineDecomposer(5, rng=0).partial_fit(rows)
    yield (
        "decompose_privately",
        lambda: odeco.decompose_privately(
            rows, 3, rng=0, unit="record", norm_bound=4.0, **guarantee
        ),
    )
    yield "mixture", lambda: TensorMixture(4, random_state=0).fit(points)
    yield "LDA", lambda: TensorLDA(4, random_state=0).fit(counts)
    yield "private LDA", lambda: TensorLDA(4, random_state=0, **guarantee).fit(counts)


def table_of_walks() -> Iterator[tuple[str, str]]:
    """Yield files / functions / depth of every walk."""
    import numpy as np

    import odeco

    root = Path(odeco.__file__).parent
    if root != SOURCE:
        raise SystemExit(
            "The library that is imported is not the one beside this file. Set PYTHONPATH to "
            f"{SOURCE}."
        )
    for name, call in walks():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.urandom = np.random.default_rng(
                0
            ).bytes  # the noise of private runs, so that all runs walk alike
            call()
            walk = Walk(root)
            with walk:
                call()
        yield name, str(walk)


# The command --------------------------------------------------------------------------------------


def figures() -> dict[str, dict[str, int]]:
    """Return all figures that have ceilings."""
    sizes, density = measure_tree()
    density["tests on solvers"] = len(tests_on_solvers())
    density["words of documentation"] = count_words()
    return {"nodes": dict(sorted(sizes.items())), "density": dict(density)}


def write_ceilings(lowered: dict[str, dict[str, int]]) -> None:
    """Write the table of ceilings."""
    lines = [
        (
            "# How large packages may be, and how dense their code: python tools/measure.py "
            "--lower. Only ever lower."
        )
    ]
    for table, entries in lowered.items():
        lines += ["", f"[{table}]", *(f'"{name}" = {value}' for name, value in entries.items())]
    CEILINGS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def check(found: dict[str, dict[str, int]]) -> int:
    """Print every figure beside its ceiling; return 1 if one is above, or has no ceiling."""
    ceilings = tomllib.loads(CEILINGS.read_text(encoding="utf-8"))
    code = 0
    for table, entries in found.items():
        for name, value in entries.items():
            ceiling = ceilings.get(table, {}).get(name)
            if ceiling is None or value > ceiling:
                code = 1
                print(
                    f"{name}: {value:,} is above the ceiling {ceiling}. Make it smaller; ceilings "
                    "only go down."
                )
            elif value < ceiling:
                print(f"{name}: {value:,}, {ceiling - value:,} below its ceiling.")
        for name in set(ceilings.get(table, {})) - set(entries):
            code = 1
            print(f"{name}: has a ceiling and does not exist. Remove it from {CEILINGS.name}.")
    return code


def main() -> int:
    """Print figures, check them, or lower the ceilings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="compare sizes and density with their ceilings"
    )
    parser.add_argument(
        "--lower", action="store_true", help="lower the ceilings to the present figures"
    )
    parser.add_argument(
        "--no-walks", action="store_true", help="leave out what needs to run the library"
    )
    arguments = parser.parse_args()
    found = figures()
    if arguments.check:
        return check(found)
    if arguments.lower:
        old = tomllib.loads(CEILINGS.read_text(encoding="utf-8")) if CEILINGS.exists() else {}
        lowered = {
            table: {
                name: min(value, old.get(table, {}).get(name, value))
                for name, value in entries.items()
            }
            for table, entries in found.items()
        }
        write_ceilings(lowered)
        return 0
    for table, entries in found.items():
        print(table)
        for name, value in entries.items():
            print(f"  {name:<34}{value:>10,}")
    if not arguments.no_walks:
        n_options, names, n_commands = options_of_commands()
        print(
            "options of commands\n"
            f"  {n_options} options ({len(names)} distinct) of {n_commands} commands"
        )
        print("walks: files / functions / depth")
        for name, value in table_of_walks():
            print(f"  {name:<34}{value:>16}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
