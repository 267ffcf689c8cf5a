"""Real corpora that every Python installation carries: the documentation and the code of its standard library."""

from __future__ import annotations

import ast
import io
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

#: Folders with these names are passed over: they hold tests, or what was installed beside the library.
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__phello__"}


@dataclass(frozen=True)
class Document:
    """One documentation string, or the code of one function.

    Attributes
    ----------
    name : str
        The name of what it documents or defines, such as ``json.decoder.JSONDecoder.decode``.
    module : str
        The module that it is in.
    text : str
        The text; a documentation string comes without the indentation of the source.
    """

    name: str
    module: str
    text: str


def python_documentation(library: Path | None = None) -> Iterator[Document]:
    """Yield the documentation strings of the standard library, module by module.

    Parameters
    ----------
    library : path, optional
        A folder of Python files; by default that of the running Python's standard library.

    Yields
    ------
    Document
        Documents come in the order of the files' names, which is the same on every machine with the same Python.

    Notes
    -----
    Files are parsed, and never imported or executed. A file that cannot be parsed is passed over: the library has some
    that are meant for other versions of Python.

    Examples
    --------
    >>> from odeco.datasets.corpora import python_documentation
    >>> first = next(python_documentation())
    >>> first.name
    '__future__'
    """
    for path, module in _files(library):
        tree, _ = _parsed(path)
        for name, node in _walk(tree, module):
            text = ast.get_docstring(node)
            if text:
                yield Document(name, module, text)


def python_code(library: Path | None = None) -> Iterator[Document]:
    """Yield the code of the functions of the standard library, module by module, without documentation strings.

    Parameters
    ----------
    library : path, optional
        A folder of Python files; by default that of the running Python's standard library.

    Yields
    ------
    Document
        Documents come in the order of the files' names. A function inside another is part of that one's text, and no
        document of its own.

    Examples
    --------
    >>> from odeco.datasets.corpora import python_code
    >>> next(python_code()).name
    '__future__._Feature.__init__'
    """
    for path, module in _files(library):
        tree, lines = _parsed(path)
        last = 0
        for name, node in _walk(tree, module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno > last:
                last = node.end_lineno or node.lineno
                hidden = _lines_of_docstrings(node)
                kept = [lines[number - 1] for number in range(node.lineno, last + 1) if number not in hidden]
                yield Document(name, module, "\n".join(kept))


def _files(library: Path | None) -> Iterator[tuple[Path, str]]:
    """Yield the files of a library with the names of their modules, in the order of these."""
    folder = Path(sysconfig.get_paths()["stdlib"]) if library is None else library
    for path in sorted(folder.rglob("*.py"), key=lambda each: each.relative_to(folder).parts):
        parts = path.relative_to(folder).parts
        if _LEFT_OUT.isdisjoint(parts):
            yield path, _module_name(parts)


def _module_name(parts: tuple[str, ...]) -> str:
    names = [*parts[:-1], parts[-1].removesuffix(".py")]
    return ".".join(names[:-1] if names[-1] == "__init__" and len(names) > 1 else names)


def _parsed(path: Path) -> tuple[ast.Module, list[str]]:
    """Return the tree and the lines of a file; both are empty if it cannot be parsed."""
    try:
        source = path.read_bytes()
        with warnings.catch_warnings(action="ignore"):  # the library warns about how its literals are written
            tree = ast.parse(source)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return tree, source.decode(encoding).splitlines()
    except (SyntaxError, ValueError, OSError):
        return ast.Module([], []), []


def _lines_of_docstrings(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    """Return the numbers of the lines that documentation strings take, those of inner functions included."""
    lines: set[int] = set()
    for _, node in _walk(function, ""):
        if ast.get_docstring(node) is not None:
            first = node.body[0]
            lines |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def _walk(node: _Documented, name: str) -> Iterator[tuple[str, _Documented]]:
    """Yield a module, class or function with its full name, then those inside it, in the order of the source."""
    yield name, node
    waiting: list[ast.AST] = list(reversed(node.body))
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk(inner, f"{name}.{inner.name}")
        elif isinstance(
            inner, ast.stmt | ast.ExceptHandler | ast.match_case
        ):  # it may hold definitions, as an `if` does
            waiting += reversed(list(ast.iter_child_nodes(inner)))
