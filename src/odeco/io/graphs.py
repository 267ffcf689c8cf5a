"""Graphs in files: adjacency matrices and lists of edges."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import io as scipy_io
from scipy import sparse

from odeco.io.coerce import as_source
from odeco.io.rows import join_rows, to_csr
from odeco.io.tables import (
    find_delimiter,
    is_number,
    malformed,
    open_text,
    read_records,
    split_record,
)


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph.

    Attributes
    ----------
    adjacency : CSR array
        The weight of every edge.
    names : list of str or None
        The names of the nodes, if they have names.
    heading : list of str
        The record that was taken for the names of the columns; empty if there was none.
    """

    adjacency: Any
    names: list[str] | None
    heading: Sequence[str] = ()


def read_graph(path: Path) -> Graph:
    """Return the graph in a file: a sparse matrix (``.npz``, ``.mtx``) or a list of edges
    (``.csv``, ``.txt``).

    A record of a list of edges has two nodes, and a weight if it has a third cell; cells are
    separated by a comma, a semicolon, a tab, or blanks. The first record is taken for the names of
    the columns if the nodes of all others are numbers and its cells are not, if its third cell is
    no number, or if neither of its nodes occurs again and they have usual names (``source`` and
    ``target``, ``from`` and ``to``, ``node1`` and ``node2``, ``a`` and ``b``) or stand in a table
    of ten records or more. Lines that begin with # or % are comments.
    """
    if path.suffix == ".npz":
        return Graph(_square(join_rows(list(as_source(str(path)))), path), None)
    if path.suffix == ".mtx":
        with path.open("rb") as file:
            return Graph(_square(to_csr(sparse.coo_array(scipy_io.mmread(file))), path), None)
    if path.suffix not in (".csv", ".tsv", ".txt", ".edges"):
        raise ValueError(
            "A graph must be a matrix (.npz, .mtx) or a list of edges (.csv, .tsv, .txt). Got "
            f"{path}. Convert it."
        )
    return _read_graph_of_edges(path)


def _square(matrix: Any, path: Path) -> Any:
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"The matrix of a graph must be square. {path} has {matrix.shape[0]:,} rows and "
            f"{matrix.shape[1]:,} columns. Pass an adjacency matrix."
        )
    return matrix


#: Usual names of the first two columns of a list of edges.
_HEADINGS = frozenset(
    (
        "source",
        "target",
        "from",
        "to",
        "node",
        "node1",
        "node2",
        "src",
        "dst",
        "a",
        "b",
        "i",
        "j",
        "u",
        "v",
        "x",
        "y",
    )
)


#: A table with this number of edges has names of columns if no edge has the first two nodes again.
_ENOUGH_EDGES = 10


def _has_heading(edges: list[list[str]], *, in_table: bool) -> bool:
    """Return whether the first record has the names of columns, and not two nodes that occur
    again.
    """
    first = edges[0]
    others = edges[1:]
    if (
        not others
        or any(len(edge) != len(first) for edge in others)
        or any(is_number(cell) for cell in first[:2])
    ):
        return False
    if len(first) == 3 and not is_number(first[2]):
        return True
    if all(is_number(cell) for edge in others for cell in edge[:2]):
        return True
    usual = {cell.lower() for cell in first[:2]} <= _HEADINGS
    likely = usual or (in_table and len(others) >= _ENOUGH_EDGES)
    return likely and not {cell for edge in others for cell in edge[:2]} & set(first[:2])


def _read_graph_of_edges(path: Path) -> Graph:
    edges = _read_edges(path)
    heading: list[str] = []
    if edges and _has_heading(edges, in_table=path.suffix in (".csv", ".tsv")):
        heading = edges[0]
        edges = edges[1:]
    bad = next((number for number, edge in enumerate(edges, 1) if len(edge) not in (2, 3)), None)
    if not edges or bad is not None:
        where = (
            f"edge {bad:,} has {len(edges[bad - 1])} cells"
            if bad is not None
            else "it has no edges"
        )
        raise ValueError(
            f"Every edge in {path} must be two nodes, or two nodes and a weight; {where}. Fix the "
            "file."
        )
    try:
        weights = np.array([float(edge[2]) if len(edge) == 3 else 1.0 for edge in edges])
    except ValueError as error:
        raise ValueError(
            f"The weights of edges in {path} must be numbers: {error}. Fix the file."
        ) from error
    nodes = sorted({cell for edge in edges for cell in edge[:2]})
    graph = graph_of_edges([(edge[0], edge[1]) for edge in edges], weights, nodes, directed=True)
    return replace(graph, heading=heading)


def graph_of_edges(
    ends: Sequence[tuple[Any, Any]],
    weights: Any,
    nodes: Sequence[Any] | None = None,
    *,
    directed: bool = False,
) -> Graph:
    """Return the graph of edges between nodes of any type that can be a key.

    Parameters
    ----------
    ends : sequence of pairs
        The two nodes of each edge.
    weights : array
        The weight of each edge; those of equal edges are added up.
    nodes : sequence, optional
        All nodes, in their order; by default those of the edges, in the order of their names.
    directed : bool
        Whether an edge counts from its first node to its second one only.
    """
    if nodes is None:
        nodes = sorted({node for pair in ends for node in pair}, key=str)
    place = {node: index for index, node in enumerate(nodes)}
    codes = np.array([[place[node] for node in pair] for pair in ends], dtype=np.int64)
    rows, columns = codes.reshape(-1, 2).T
    shape = (len(nodes), len(nodes))
    links = sparse.coo_array((np.asarray(weights, np.float64), (rows, columns)), shape=shape)
    matrix = links.tocsr()
    return Graph(matrix if directed else matrix + matrix.T, [str(node) for node in nodes])


def _read_edges(path: Path) -> list[list[str]]:
    """Return the cells of every record that is not a comment; without a delimiter they are
    separated by blanks.
    """
    with open_text(path) as file:
        lines = [line for line in file if line.strip() and not line.lstrip().startswith(("#", "%"))]
    delimiter = find_delimiter(lines[0] if lines else "", path.suffix.lower())
    if not lines or delimiter not in lines[0]:
        return [line.split() for line in lines]
    try:
        records = [
            split_record(record.text, delimiter) for record in read_records(lines, delimiter)
        ]
    except csv.Error as error:
        raise malformed(str(path), error) from error
    return [[cell.strip() for cell in record] for record in records]
