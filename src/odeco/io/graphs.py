"""Graphs that ``odeco learn`` reads: matrices, and lists of edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import io as scipy_io
from scipy import sparse

from odeco.io.coerce import as_source
from odeco.io.rows import join_rows, to_csr


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph.

    Attributes
    ----------
    adjacency : CSR array
        The weight of every edge.
    names : list of str or None
        What the nodes are called, if they have names.
    """

    adjacency: Any
    names: list[str] | None


def read_graph(path: Path) -> Graph:
    """Return the graph in a file: a sparse matrix (``.npz``, ``.mtx``) or a list of edges (``.csv``, ``.txt``).

    A line of a list of edges has two nodes, and a weight if it has a third cell. It may begin with a line of names of
    columns: ``source`` and ``target``, ``from`` and ``to``, ``node1`` and ``node2``.
    """
    if path.suffix == ".npz":
        return Graph(_square(join_rows(list(as_source(str(path)))), path), None)
    if path.suffix == ".mtx":
        return Graph(_square(to_csr(sparse.coo_array(scipy_io.mmread(path))), path), None)
    if path.suffix not in (".csv", ".tsv", ".txt", ".edges"):
        raise ValueError(
            f"A graph must be a matrix (.npz, .mtx) or a list of edges (.csv, .tsv, .txt). Got {path}. Write it so."
        )
    return _graph_of_edges(path)


def _square(matrix: Any, path: Path) -> Any:
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"The matrix of a graph must have as many rows as columns. {path} has {matrix.shape[0]:,} and "
            f"{matrix.shape[1]:,}. Pass an adjacency matrix."
        )
    return matrix


_HEADINGS = frozenset(("source", "target", "from", "to", "node", "node1", "node2", "src", "dst"))


def _graph_of_edges(path: Path) -> Graph:
    lines = [line for line in _edge_lines(path) if line and not line[0].startswith(("#", "%"))]
    if lines and {cell.strip().lower() for cell in lines[0][:2]} <= _HEADINGS:
        lines = lines[1:]
    bad = next((number for number, line in enumerate(lines, 1) if len(line) not in (2, 3)), None)
    if not lines or bad is not None:
        where = f"edge {bad:,} has {len(lines[bad - 1])} cells" if bad is not None else "it has no edges"
        raise ValueError(f"Every edge in {path} must be two nodes, or two nodes and a weight; {where}. Mend the file.")
    names, codes = np.unique([cell.strip() for line in lines for cell in line[:2]], return_inverse=True)
    try:
        weights = np.array([float(line[2]) if len(line) == 3 else 1.0 for line in lines])
    except ValueError as error:
        raise ValueError(f"The weights of edges in {path} must be numbers: {error}. Mend the file.") from error
    ends = codes.reshape(-1, 2)
    shape = (names.size, names.size)
    return Graph(sparse.coo_array((weights, (ends[:, 0], ends[:, 1])), shape=shape).tocsr(), names.tolist())


def _edge_lines(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8-sig") as file:
        for line in file:
            delimiter = next((each for each in ",;\t" if each in line), None)
            yield [cell.strip() for cell in line.strip().split(delimiter)] if line.strip() else []
