"""Write the page of a result: what the page says about each kind of result."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from odeco._types import FloatArray
from odeco.metrics import shown_angle
from odeco.report._figures import Figures
from odeco.report._page import Section, table, write_page
from odeco.report._statements import again_section, privacy_section
from odeco.result import (
    AsymmetricDecomposition,
    Decomposition,
    PrivateDecomposition,
    PrivateStreamDecomposition,
    StreamDecomposition,
)
from odeco.saving import AnyResult
from odeco.showing import rows_read


def write_report(
    result: AnyResult,
    path: str | os.PathLike[str],
    *,
    title: str = "Components of a tensor",
    names: Sequence[str] | None = None,
    command: str | None = None,
    versions: Mapping[str, str] | None = None,
    facts: Mapping[str, str] | None = None,
    n_top: int = 8,
) -> None:
    """Write a result as one HTML page that needs no network and no script.

    Parameters
    ----------
    result : Decomposition, StreamDecomposition, AsymmetricDecomposition or PrivateDecomposition
        The result. The page shows its weights and vectors and, if the result has them, errors, residuals, convergence
        and restarts. For a private result it also shows the noise floor and the guarantee.
    path : path
        Where to write. An old file is replaced only by a complete one.
    title : str
        The heading.
    names : sequence of str, optional
        What the coordinates stand for, such as words; by default the names that the result has.
    command : str, optional
        The command that makes the result again.
    versions : mapping, optional
        The versions that computed the result; by default those that are running now.
    facts : mapping, optional
        More names and values to show at the top, as text.
    n_top : int
        The number of largest coordinates to list for each component.

    Examples
    --------
    >>> import numpy as np, odeco, tempfile
    >>> from odeco.report import write_report
    >>> result = odeco.decompose(odeco.Components([3.0, 2.0], np.eye(5)[:, :2]).to_dense(), 2, rng=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(result, f"{folder}/page.html", title="Two components")
    """
    names = getattr(result, "names", None) if names is None else names
    figures = Figures()
    sections = [
        _components(result, names, n_top),
        *_weights(result, figures),
        *_vectors(result, figures),
        *_convergence(result, figures),
        *([privacy_section(result.privacy)] if isinstance(result, PrivateDecomposition) else []),
        again_section(command, versions),
    ]
    write_page(
        path, title=title, subtitle=_subtitle(result), sections=sections, facts={**_facts(result), **(facts or {})}
    )


def _subtitle(result: AnyResult) -> str:
    k = len(result.weights)
    if isinstance(result, Decomposition | AsymmetricDecomposition):
        return f"{result.verdict}. T is a tensor of {' x '.join(f'{size:,}' for size in _shape(result))} entries"
    shape = " x ".join(f"{size:,}" for size in _shape(result))
    noun = "component" if k == 1 else "components"
    if isinstance(result, PrivateDecomposition):
        return f"{k} {noun} of a tensor of {shape} entries, found under differential privacy"
    if isinstance(result, StreamDecomposition):
        return f"{k} {noun} of the moment of a stream of rows, a tensor of {shape} entries that was never formed"
    return f"{k} {noun} of a tensor of {shape} entries"


def _shape(result: AnyResult) -> tuple[int, ...]:
    if isinstance(result, AsymmetricDecomposition):
        return tuple(factor.shape[0] for factor in result.factors)
    return (result.vectors.shape[0],) * result.order


def _facts(result: AnyResult) -> dict[str, str]:
    facts = {"components": str(len(result.weights))}
    if isinstance(result, Decomposition | AsymmetricDecomposition):
        facts["converged"] = f"{int(np.sum(result.converged))} of {len(result.weights)}"
    if isinstance(result, Decomposition | AsymmetricDecomposition) and result.explained is not None:
        facts["of the squared norm explained"] = f"{result.explained:.3%}"
    evidence = getattr(result, "rank_evidence", None)
    if evidence is not None:
        facts["confidence in the rank"] = f"{evidence.confidence:.4f}"
    structure = getattr(result, "structure", None)
    if structure is not None:
        facts["structure"] = f"{structure.kind}: {structure.reason}"
    if isinstance(result, PrivateDecomposition):
        facts["clear of the noise"] = f"{int(np.sum(result.clear))} of {len(result.weights)}"
        facts["guarantee"] = f"ε = {result.privacy.epsilon:g}, δ = {result.privacy.delta:g}"
    if hasattr(result, "n_rows"):
        facts["rows read"] = rows_read(result)
    if isinstance(result, AsymmetricDecomposition) and result.structure is not None and len(result.weights) > 1:
        facts["largest cosine of two along an axis"] = f"{result.structure.largest_cosine:.2g}"
    if not isinstance(result, AsymmetricDecomposition) and len(result.weights) > 1:
        overlaps = np.abs(result.vectors.T @ result.vectors) - np.eye(len(result.weights))
        facts["largest cosine of two components"] = f"{max(0.0, float(overlaps.max())):.2g}"
    return facts


# ---- the parts of the page ----------------------------------------------------------------------------------------


def _components(result: AnyResult, names: Sequence[str] | None, n_top: int) -> Section:
    columns: list[tuple[str, Callable[[int], str]]] = [
        ("#", lambda i: str(i + 1)),
        ("weight", lambda i: f"{result.weights[i]:.6g}"),
    ]

    def add(name: str, values: Any, form: str) -> None:
        if values is not None:
            columns.append((name, lambda i: format(values[i], form)))

    add("± 1 s.e.", getattr(result, "weight_errors", None), ".2g")
    angles = getattr(result, "angle_errors", None)
    if angles is not None:
        columns.append(("angle error, rad", lambda i: shown_angle(angles[i])))
    if isinstance(result, PrivateDecomposition):
        add("noise floor", result.noise_floors, ".3g")
        columns.append(("clear of it", lambda i: "yes" if result.clear[i] else "no"))
    if isinstance(result, Decomposition | AsymmetricDecomposition):
        add("residual", result.residuals, ".1e")
        columns.append(("converged", lambda i: "yes" if result.converged[i] else "no"))
    if isinstance(result, Decomposition):
        add("images", result.n_iterations, "d")
        if result.n_restarts is not None:
            columns.append(("restarts agreed", lambda i: f"{result.n_agreed[i]} of {result.n_restarts}"))
    top = [] if isinstance(result, AsymmetricDecomposition) else [_top(v, names, n_top) for v in result.vectors.T]
    rows = [[*(show(i) for _, show in columns), *top[i : i + 1]] for i in range(len(result.weights))]
    headings = [*(name for name, _ in columns), *(["largest coordinates"] if top else [])]
    return Section(
        "Components", table(headings, rows, text_columns=[len(headings) - 1] if top else []), _components_lead(result)
    )


def _components_lead(result: AnyResult) -> str:
    if isinstance(result, PrivateDecomposition):
        several = isinstance(result, PrivateStreamDecomposition)
        whose = "of the privacy noise, and of the sample once batches tell" if several else "of the privacy noise"
        return (
            f"Errors are those {whose}. The noise floor is the weight that noise alone would show with a "
            "chance of 1 in 1,000 at most: a component below it may be nothing else."
        )
    if isinstance(result, StreamDecomposition):
        return (
            "Standard errors come from the spread between batches; they say nothing about a wrong number of components."
        )
    if isinstance(result, Decomposition) and result.n_restarts is None:
        return (
            "All components were fitted together by least squares. Errors are standard errors, if what is left is "
            "noise with the same variance in all directions. The residual is ‖T(I, v, …, v) − C(I, v, …, v)‖ for the "
            "tensor C of all components: how far a component still is from its best place."
        )
    return (
        "The residual is ‖T(I, v, …, v) − λv‖ at the time the component was found. Restarts that agreed ended at the "
        "same vector: few of many mean that a larger component may have been missed."
    )


def _top(vector: FloatArray, names: Sequence[str] | None, n_top: int) -> str:
    first = np.argsort(-np.abs(vector), kind="stable")[:n_top]
    labels = [f"[{i}]" if names is None else names[i] for i in first]
    # A name and its number stay on one line.
    return ", ".join(f"{label}\u00a0{vector[i]:+.2f}" for label, i in zip(labels, first, strict=True)).replace(
        "-0", "−0"
    )


def _weights(result: AnyResult, figures: Figures) -> list[Section]:
    evidence = getattr(result, "rank_evidence", None)
    if evidence is not None:
        body = figures.weights(
            evidence.weights, None, evidence.noise_levels, "largest that noise would show", evidence.rank
        )
        lead = (
            f"Those that were looked at and dropped come last. The first {evidence.rank} stand clear of what noise "
            "alone would show and were kept."
        )
        return [Section("Weights, and how many stand clear", body, lead)]
    floors = getattr(result, "noise_floors", None)
    return [Section("Weights", figures.weights(result.weights, getattr(result, "weight_errors", None), floors))]


def _vectors(result: AnyResult, figures: Figures) -> list[Section]:
    if isinstance(result, AsymmetricDecomposition):
        return [
            Section(f"Vectors along axis {axis}", figures.vectors(factor)) for axis, factor in enumerate(result.factors)
        ]
    return [Section("Vectors", figures.vectors(result.vectors))]


def _convergence(result: AnyResult, figures: Figures) -> list[Section]:
    histories = tuple(each for each in getattr(result, "histories", ()) if each)
    if getattr(result, "n_restarts", None) is None:  # all were fitted together, in a few steps
        return []
    if not any(len(history) > 1 for history in histories):
        return []
    lead = (
        "How far the leading candidate is from being an eigenvector, ‖T(I, u, …, u) − λu‖ / |λ|, after each image. A "
        "line that rises had another candidate take the lead."
    )
    return [Section("Convergence", figures.convergence(histories), lead)]
