"""Sections for any kind of result: what privacy is guaranteed, and how to make the result again.

Write the page of a result: what the page says about each kind of result.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from odeco._util.types import FloatArray
from odeco.decompose.files import AnyResult
from odeco.decompose.files import versions as current_versions
from odeco.decompose.result import (
    AsymmetricDecomposition,
    Decomposition,
    PrivateDecomposition,
    PrivateStreamDecomposition,
    StreamDecomposition,
)
from odeco.display.figures import ConvergenceDisplay, CosinesDisplay, LeadingDisplay, WeightsDisplay
from odeco.display.page import Section, beside, table, write_page
from odeco.display.svg import MOST_DRAWN, Figures
from odeco.display.tables import cells_of, rows_read
from odeco.privacy.report import PrivacyReport

_PROMISE = (
    "This result is ({:g}, {:g})-differentially private. Whoever sees it, and knows everything else about the data, "
    "can hardly tell whether one {} was as it is or otherwise. Hidden is this change: {}."
)

_NO_PROMISE = (
    "This result is NOT private. Its noise did not come from the operating system, so whoever knows the noise can "
    "subtract it."
)

#: How much longer than the bound rows might be.
CLIPPED = (1.1, 1.5, 2.0)

#: At most so many kinds of release are listed. The others are counted.
MOST_RELEASES = 40


def privacy_section(privacy: PrivacyReport, clipping: str = "") -> Section:
    """Return the section with the guarantee in words and numbers, and every release that it rests on.

    `clipping` is HTML about what a bound on the data did to the result.
    """
    text = _PROMISE if privacy.private else _NO_PROMISE
    text = text.format(privacy.epsilon, privacy.delta, privacy.unit, privacy.neighbours)
    kind = "" if privacy.private else " bad"
    numbers = table(
        ["", ""],
        [
            ["mechanism", privacy.mechanism],
            ["ε asked for", f"{privacy.epsilon:g}"],
            ["ε spent, for the same δ", f"{privacy.epsilon_spent:.6g}"],
            ["δ", f"{privacy.delta:g}"],
            ["μ of all releases together", f"{privacy.mu:.6g}"],
        ],
        text_columns=[0, 1],
        narrow=True,
    )
    body = f'<p class="statement{kind}">{escape(text)}</p>\n{clipping}{numbers}{_releases(privacy)}'
    lead = "Several results from the same data add up; this statement is about this one alone."
    return Section("Privacy", body, lead)


def _releases(privacy: PrivacyReport) -> str:
    alike: Counter[tuple[str, float, float]] = Counter()
    for charge in privacy.charges:
        alike[charge.mechanism, charge.sensitivity, charge.scale] += charge.count
    rows = [
        [mechanism, str(count), f"{sensitivity:.6g}", f"{scale:.6g}", f"{count**0.5 * sensitivity / scale:.4g}"]
        for (mechanism, sensitivity, scale), count in list(alike.items())[:MOST_RELEASES]
    ]
    more = len(alike) - len(rows)
    note = f"<p>… and {more} more kinds of release.</p>" if more > 0 else ""
    headings = ["what was released", "times", "sensitivity", "standard deviation of the noise", "μ"]
    listed = table(headings, rows, text_columns=[0])
    return f"<details><summary>Every release that was made</summary>\n{listed}{note}</details>\n"


def clipping_statement(result: AnyResult) -> str:
    """Return what the bound on the norm of rows means for weights; nothing if there is none."""
    bound = getattr(result, "norm_bound", None)
    if bound is None or isinstance(result, AsymmetricDecomposition):
        return ""
    text = (
        f"Clipping biases. Every row longer than {bound:g} was scaled down to that length, and weights are those of "
        "the rows after that: smaller than those of the rows as they were. The errors above are the noise alone and do "
        "not include it. How many rows were so long was not released, since that too would have had a price; the table "
        "is arithmetic for a component whose rows all have one norm."
    )
    rows = [[f"{bound * factor:.4g}", f"{factor**-result.order:.0%}"] for factor in CLIPPED]
    listed = table(["norm of the rows", "share of their weight that is left"], rows, narrow=True)
    return f'<p class="statement warm">{escape(text)}</p>\n{listed}'


def again_section(
    command: str | None, versions: Mapping[str, str] | None = None, *, privacy: PrivacyReport | None = None
) -> Section:
    """Return the section with the command that makes the result again, and the versions; by default those running.

    With the `privacy` of the result it warns that doing so spends once more.
    """
    shown = (
        f"<pre>{escape(command)}</pre>\n" if command else "<p>No command was recorded: it was made from Python.</p>\n"
    )
    if privacy is not None and privacy.private:
        text = (
            f"Running this again spends another ε = {privacy.epsilon:g} of the privacy of every {privacy.unit}, and "
            "gives another result, with other noise. To see this result again, keep its file or this page."
        )
        shown = f'<p class="statement warm">{escape(text)}</p>\n{shown}'
    rows = [[str(name), str(version)] for name, version in (versions or current_versions()).items()]
    return Section("To do it again", shown + table(["made with", "version"], rows, text_columns=[0, 1], narrow=True))


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
    >>> from odeco.decompose.page import write_report
    >>> result = odeco.decompose(odeco.Components([3.0, 2.0], np.eye(5)[:, :2]).to_dense(), 2, rng=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(result, f"{folder}/page.html", title="Two components")
    """
    figures = Figures()
    if names is not None and not isinstance(result, AsymmetricDecomposition):
        result = result.with_names(names)
    privacy = result.privacy if isinstance(result, PrivateDecomposition) else None
    sections = [
        _components(result, n_top),
        *_weights(result, figures),
        *_largest(result, figures, n_top),
        *_vectors(result, figures),
        *_convergence(result, figures),
        *([] if privacy is None else [privacy_section(privacy, clipping_statement(result))]),
        again_section(command, versions, privacy=privacy),
    ]
    write_page(
        path,
        title=title,
        verdict=result.verdict,
        subtitle=_subtitle(result),
        sections=sections,
        facts={**_facts(result), **(facts or {})},
    )


def _subtitle(result: AnyResult) -> str:
    shape = " x ".join(f"{size:,}" for size in _shape(result))
    structure = getattr(result, "structure", None)
    reason = "" if structure is None or not structure.reason else f" {_sentence(structure.reason)}."
    if isinstance(result, Decomposition | AsymmetricDecomposition):
        return f"T is a tensor of {shape} entries.{reason}"
    if isinstance(result, PrivateDecomposition):
        return f"Components of a tensor of {shape} entries, found under differential privacy."
    return f"The moment of rows is a tensor of {shape} entries, which was never formed."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


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
    if isinstance(result, Decomposition | AsymmetricDecomposition) and result.structure is not None:
        facts["structure"] = result.structure.kind
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


def _components(result: AnyResult, n_top: int) -> Section:
    headings, rows = cells_of(result, n_top=n_top)
    texts = [place for place, heading in enumerate(headings) if heading.startswith("largest ")]
    # A name and its number stay on one line, and a minus is as wide as a plus.
    shown = [[*row[: len(row) - len(texts)], *(_set(cell) for cell in row[len(row) - len(texts) :])] for row in rows]
    body = table(headings, shown, text_columns=texts, stacked=True)
    return Section("Components", body, _components_lead(result))


def _set(text: str) -> str:
    return re.sub(r" ([+-])(?=\d\.\d\d(?:,|$))", lambda sign: "\u00a0" + sign[1].replace("-", "−"), text)


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


def _weights(result: AnyResult, figures: Figures) -> list[Section]:
    evidence = getattr(result, "rank_evidence", None)
    drawn = [figures.weights(WeightsDisplay.from_result(result))]
    title = "Weights"
    if len(result.weights) > 1:
        title = "Weights and cosines"
        drawn.append(figures.cosines(CosinesDisplay.from_result(result)))
    lead = ""
    if evidence is not None:
        lead = (
            f"Weights that were looked at and dropped come last. The first {evidence.rank} stand clear of what noise "
            "alone would show and were kept. "
        )
    if len(result.weights) > 1:
        lead += "Cosines say how close two components are: 0 for orthogonal ones, ±1 for the same."
    return [Section(title, beside(*drawn), lead)]


def _largest(result: AnyResult, figures: Figures, n_top: int) -> list[Section]:
    """Return the largest coordinates of each component as bars, sorted and by name."""
    if not n_top:
        return []
    number = min(len(result.weights), MOST_DRAWN)
    bars = [
        figures.leading(LeadingDisplay.of(vectors[:, i], names, n_top, f"{_called(result, i)}{axis}"))
        for i in range(number)
        for axis, vectors, names in _axes_of(result)
    ]
    more = len(result.weights) - number
    lead = f"The first {number} components; the table has all." if more > 0 else ""
    return [Section("Largest coordinates", beside(*bars, narrow=True), lead)]


def _called(result: AnyResult, component: int) -> str:
    return f"{component + 1}: weight {result.weights[component]:.4g}"


def _axes_of(result: AnyResult) -> list[tuple[str, FloatArray, Sequence[str] | None]]:
    if isinstance(result, AsymmetricDecomposition):
        return [(f", axis {axis}", factor, None) for axis, factor in enumerate(result.factors)]
    return [("", result.vectors, result.names)]


def _vectors(result: AnyResult, figures: Figures) -> list[Section]:
    if isinstance(result, AsymmetricDecomposition):
        return [
            Section(f"Vectors along axis {axis}", figures.vectors(factor)) for axis, factor in enumerate(result.factors)
        ]
    return [Section("Vectors", figures.vectors(result.vectors), "All coordinates in their order.")]


def _convergence(result: AnyResult, figures: Figures) -> list[Section]:
    display = ConvergenceDisplay.from_result(result)
    if getattr(result, "n_restarts", None) is None or display.is_empty:  # all were fitted together, in a few steps
        return []
    lead = (
        "How far the leading candidate is from being an eigenvector, ‖T(I, u, …, u) − λu‖ / |λ|, after each image. A "
        "line that rises had another candidate take the lead."
    )
    return [Section("Convergence", figures.convergence(display), lead)]
