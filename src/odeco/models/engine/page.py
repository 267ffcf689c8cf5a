"""The page of a latent-variable model: its verdict, its figure, its summary, its privacy guarantee."""

from __future__ import annotations

import os
from typing import Any

from odeco._util.extras import needed_by
from odeco.decompose.page import again_section, privacy_section
from odeco.display.page import Figures, Section, write_page
from odeco.display.style import drawn_in

with needed_by("A page"):
    from markupsafe import Markup


def write_model_report(
    model: Any,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    rows: Any = None,
    remark: str = "",
    command: str | None = None,
) -> None:
    """Write a fitted model as one HTML page that needs no network and no script.

    Parameters
    ----------
    model : Estimator
        The model, such as a `TensorMixture`.
    path : path
        Where to write. An old file is replaced only by a complete one.
    title : str, optional
        The heading; by default it names the model.
    rows : array, optional
        Rows to show in the figure, if the figure of the model can show some.
    remark : str
        A line to add to the summary of the model.
    command : str, optional
        The command that makes the model again.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from odeco.models import TensorMixture
    >>> from odeco.models.engine.page import write_model_report
    >>> rows = np.random.default_rng(0).standard_normal((300, 2)) + np.repeat([[0], [9], [18]], 100, axis=0)
    >>> model = TensorMixture(3, random_state=0).fit(rows)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_model_report(model, f"{folder}/page.html", title="Three clusters")
    """
    described = model._describe(rows)
    verdict, rest = described.verdict, "\n".join(filter(None, (*str(described).splitlines()[1:], remark)))
    with drawn_in():
        figure = described.figure()
    privacy = getattr(model, "privacy_", None)
    sections = [
        Section("Figure", Figures().html(figure, f"A figure of the model: {verdict}")),
        *([Section("Summary", Markup('<pre class="summary">{}</pre>\n').format(rest))] if rest else []),
        *([privacy_section(privacy)] if privacy is not None else []),
        again_section(command, privacy=privacy),
    ]
    facts = {f"{model._SPEC.record}s": f"{model.n_samples_seen_:,}"}
    subtitle = f"Learnt by {type(model).__name__} of odeco.models."
    write_page(
        path, title=title or f"A {model._KIND}", subtitle=subtitle, verdict=verdict, sections=sections, facts=facts
    )
