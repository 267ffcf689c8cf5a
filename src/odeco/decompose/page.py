"""The page of a result, and two sections that the pages of models share: privacy, and how to run it
again.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from odeco._util.lazy import needed_by
from odeco.decompose.files import AnyResult
from odeco.decompose.files import versions as current_versions
from odeco.decompose.result import (
    AsymmetricDecomposition,
    Decomposition,
    PrivateDecomposition,
    PrivateStreamDecomposition,
    StreamDecomposition,
)
from odeco.display.figures import (
    MAX_DRAWN,
    ConvergenceDisplay,
    CosinesDisplay,
    WeightsDisplay,
    draw_vectors,
    leading_displays,
)
from odeco.display.page import HALF, Figures, Section, beside, parts, table, write_page
from odeco.display.style import drawn_in
from odeco.display.tables import cells_of, rows_read, vectors_of
from odeco.privacy.report import PrivacyReport

with needed_by("A page"):
    from markupsafe import Markup
    from matplotlib.figure import Figure

#: The box in which the guarantee stands, by its level.
_BOXES = {"good": "", "warning": "warm", "bad": "bad"}

#: The rows of the table of clipping are this many times longer than the bound.
CLIPPED = (1.1, 1.5, 2.0)

#: At most this many kinds of release are listed. The others are counted.
MAX_RELEASES = 40


def privacy_section(privacy: PrivacyReport, clipping: str = "") -> Section:
    """Return the section with the guarantee in words and numbers, and every release that it rests
    on.

    `clipping` is HTML about the effect of a bound on the data.
    """
    numbers = [
        ["mechanism", privacy.mechanism],
        ["ε requested", f"{privacy.epsilon:g}"],
        ["ε spent, for the same δ", f"{privacy.epsilon_spent:.6g}"],
        ["δ", f"{privacy.delta:g}"],
        ["μ of all releases together", f"{privacy.mu:.6g}"],
    ]
    if privacy.private:
        numbers.append(
            ["an adversary guesses right at most", f"{100 * privacy.adversary_accuracy:.1f} %"]
        )
    body = [
        parts().statement(privacy.statement, _BOXES[privacy.level]),
        clipping,
        table(["", ""], numbers, text_columns=[0, 1], narrow=True),
        parts().details("Every release that was made", _releases(privacy)),
    ]
    lead = "Several results from the same data add up; this statement is about this one alone."
    return Section("Privacy", Markup().join(body), lead)


def _releases(privacy: PrivacyReport) -> Markup:
    alike: Counter[tuple[str, float, float]] = Counter()
    for charge in privacy.charges:
        alike[charge.mechanism, charge.sensitivity, charge.scale] += charge.count
    rows = [
        [
            mechanism,
            str(count),
            f"{sensitivity:.6g}",
            f"{scale:.6g}",
            f"{count**0.5 * sensitivity / scale:.4g}",
        ]
        for (mechanism, sensitivity, scale), count in list(alike.items())[:MAX_RELEASES]
    ]
    more = len(alike) - len(rows)
    headings = ["what was released", "times", "sensitivity", "standard deviation of the noise", "μ"]
    listed = table(headings, rows, text_columns=[0])
    if more > 0:
        return listed + Markup("<p>… and {} more kinds of release.</p>").format(more)
    return listed


def clipping_statement(result: AnyResult) -> Markup:
    """Return the effect of the bound on the norm of rows on weights; nothing if there is no
    bound.
    """
    bound = getattr(result, "norm_bound", None)
    if bound is None or isinstance(result, AsymmetricDecomposition):
        return Markup()
    text = (
        f"Clipping biases. Every row longer than {bound:g} was scaled down to that length. The "
        "weights are those of the clipped rows, which are smaller than those of the original "
        "rows. The errors above are the noise alone and do not include this bias. The number of "
        "clipped rows was not released, since that too would have had a price; the table is "
        "arithmetic for a component whose rows all have one norm."
    )
    rows = [[f"{bound * factor:.4g}", f"{factor**-result.order:.0%}"] for factor in CLIPPED]
    listed = table(["norm of the rows", "share of their weight that is left"], rows, narrow=True)
    return Markup().join([parts().statement(text, "warm"), listed])


def again_section(
    command: str | None,
    versions: Mapping[str, str] | None = None,
    *,
    privacy: PrivacyReport | None = None,
) -> Section:
    """Return the section with the command that makes the result again, and the versions; by default
    those running.

    With the `privacy` of the result it warns that running the command again spends again.
    """
    if command:
        body = Markup("<pre>{}</pre>\n").format(command)
    else:
        body = Markup("<p>No command was recorded: the result was made from Python.</p>\n")
    if privacy is not None and privacy.private:
        text = (
            f"Running this again spends another ε = {privacy.epsilon:g} of the privacy of every "
            f"{privacy.unit}, and gives another result, with other noise. To see this result "
            "again, keep its file or this page."
        )
        body = Markup().join([parts().statement(text, "warm"), body])
    rows = [[str(name), str(version)] for name, version in (versions or current_versions()).items()]
    made_with = table(["made with", "version"], rows, text_columns=[0, 1], narrow=True)
    return Section("How it was made", Markup().join([body, made_with]))


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
        The result. The page shows its weights and vectors and, if the result has them, errors,
        residuals, convergence and restarts. For a private result it also shows the noise floor and
        the guarantee.
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
    explained, evidence, structure = (
        getattr(result, name, None) for name in ("explained", "rank_evidence", "structure")
    )
    if hasattr(result, "converged"):
        facts["converged"] = f"{int(np.sum(result.converged))} of {len(result.weights)}"
    if explained is not None:
        facts["of the squared norm explained"] = f"{explained:.3%}"
    if evidence is not None:
        facts["confidence in the rank"] = f"{evidence.confidence:.4f}"
        if evidence.resolution > 0:
            facts["angle up to which two components may count as one"] = (
                f"{evidence.resolution:.1g} rad"
            )
    if structure is not None:
        facts["structure"] = structure.kind
    if isinstance(result, PrivateDecomposition):
        facts["clear of the noise"] = f"{int(np.sum(result.clear))} of {len(result.weights)}"
        facts["guarantee"] = f"ε = {result.privacy.epsilon:g}, δ = {result.privacy.delta:g}"
    if hasattr(result, "n_rows"):
        facts["rows read"] = rows_read(result)
    return facts | (_largest_cosine(result) if len(result.weights) > 1 else {})


def _largest_cosine(result: AnyResult) -> dict[str, str]:
    if isinstance(result, AsymmetricDecomposition):
        known = result.structure
        if known is None:
            return {}
        return {"largest cosine of two along an axis": f"{known.largest_cosine:.2g}"}
    overlaps = np.abs(result.vectors.T @ result.vectors) - np.eye(len(result.weights))
    return {"largest cosine of two components": f"{max(0.0, float(overlaps.max())):.2g}"}


# ---- the parts of the page -----------------------------------------------------------------------


def _components(result: AnyResult, n_top: int) -> Section:
    headings, rows = cells_of(result, n_top=n_top)
    texts = [place for place, heading in enumerate(headings) if heading.startswith("largest ")]
    # A name and its number stay on one line, and a minus is as wide as a plus.
    shown = [
        [*row[: len(row) - len(texts)], *(_set(cell) for cell in row[len(row) - len(texts) :])]
        for row in rows
    ]
    body = table(headings, shown, text_columns=texts, stacked=True)
    return Section("Components", body, _components_lead(result))


def _set(text: str) -> str:
    return re.sub(
        r" ([+-])(?=\d\.\d\d(?:,|$))", lambda sign: "\u00a0" + sign[1].replace("-", "−"), text
    )


def _components_lead(result: AnyResult) -> str:
    if isinstance(result, PrivateDecomposition):
        several = isinstance(result, PrivateStreamDecomposition)
        if several:
            whose = "of the privacy noise, and of the sample once batches tell"
        else:
            whose = "of the privacy noise"
        return (
            f"Errors are those {whose}. The noise floor is the weight that noise alone would show "
            "with a chance of 1 in 1,000 at most: a component below it may be nothing else."
        )
    if isinstance(result, StreamDecomposition):
        return (
            "Standard errors come from the spread between batches; they say nothing about a wrong "
            "number of components."
        )
    if isinstance(result, Decomposition) and result.n_restarts is None:
        return (
            "All components were fitted together by least squares. Errors are standard errors, if "
            "what is left is noise with the same variance in all directions. The residual is "
            "‖T(I, v, …, v) − C(I, v, …, v)‖ for the tensor C of all components: how far a "
            "component still is from its best place."
        )
    return (
        "The residual is ‖T(I, v, …, v) − λv‖ at the time the component was found. Restarts that "
        "agreed ended at the same vector: few of many mean that a larger component may have been "
        "missed."
    )


def _weights(result: AnyResult, figures: Figures) -> list[Section]:
    evidence = getattr(result, "rank_evidence", None)
    k = len(result.weights)
    display = WeightsDisplay.from_result(result)
    n_bars = len(display.weights)
    description = (
        f"Weights of {n_bars} components, from {display.weights[0]:.3g} to "
        f"{display.weights[-1]:.3g}."
    )
    drawn = [figures.draw(display, description, size=(max(HALF, 0.2 * n_bars), 3.0))]
    if k > 1:
        cosines = CosinesDisplay.from_result(result)
        largest = float(np.abs(cosines.cosines - np.eye(k)).max())
        drawn.append(
            figures.draw(
                cosines, f"Cosines between components, {largest:.2g} at most.", size=(HALF, 3.6)
            )
        )
    lead = ""
    if evidence is not None:
        lead = (
            "Weights of components that were found and dropped come last. The first "
            f"{evidence.rank} stand clear of what noise alone would show and were kept. "
        )
    if k > 1:
        lead += (
            "Cosines say how close two components are: 0 for orthogonal ones, ±1 for equal ones."
        )
    return [Section("Weights and cosines" if k > 1 else "Weights", beside(*drawn), lead)]


def _largest(result: AnyResult, figures: Figures, n_top: int) -> list[Section]:
    """Return the largest coordinates of each component as bars, sorted and by name."""
    if not n_top:
        return []
    bars = []
    for display in leading_displays(result, n_top):
        listed = ", ".join(
            f"{name} {value:+.2f}"
            for name, value in zip(display.names, display.values, strict=True)
        )
        size = (3.6, 0.55 + 0.22 * len(display.values))
        bars.append(figures.draw(display, f"{display.title}. {listed}", size=size))
    if len(result.weights) > MAX_DRAWN:
        lead = f"The first {MAX_DRAWN} components; the table has all."
    else:
        lead = ""
    return [Section("Largest coordinates", beside(*bars, narrow=True), lead)]


def _vectors(result: AnyResult, figures: Figures) -> list[Section]:
    """Return all coordinates of every vector in their order, one below the other on the same
    scale.
    """
    sections = []
    for axis, (_, vectors, _) in enumerate(vectors_of(result)):
        dimension = vectors.shape[0]
        k = min(vectors.shape[1], MAX_DRAWN)
        limit = float(np.abs(vectors[:, :k]).max()) * 1.08
        figure = Figure(figsize=(HALF, 0.55 + 0.45 * k), layout="constrained")
        with drawn_in():
            grid = figure.subplots(k, 1, sharex=True, squeeze=False)[:, 0]
            draw_vectors(grid, [(str(number), vectors[:, number]) for number in range(k)], limit)
            grid[-1].set_xlabel("coordinate")
        left_out = f" The first {k} of {vectors.shape[1]}." if k < vectors.shape[1] else ""
        caption = f"All on one scale: each axis ends at ±{limit:.2g}.{left_out}"
        body = figures.html(
            figure, f"Coordinates of {k} unit vectors of dimension {dimension}.", caption
        )
        if isinstance(result, AsymmetricDecomposition):
            sections.append(Section(f"Vectors along axis {axis}", body))
        else:
            sections.append(Section("Vectors", body, "All coordinates in their order."))
    return sections


def _convergence(result: AnyResult, figures: Figures) -> list[Section]:
    display = ConvergenceDisplay.from_result(result)
    if (
        getattr(result, "n_restarts", None) is None or display.is_empty
    ):  # all were fitted together, in a few steps
        return []
    lead = (
        "How far the leading candidate is from being an eigenvector, ‖T(I, u, …, u) − λu‖ / |λ|, "
        "after each image. A line rises where another candidate takes the lead."
    )
    k = min(len(display.histories), MAX_DRAWN)
    description = f"Relative residual against the number of images, for {k} components."
    return [Section("Convergence", figures.draw(display, description, size=(HALF, 3.0)), lead)]
