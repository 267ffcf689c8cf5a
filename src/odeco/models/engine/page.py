"""The page of a latent-variable model: verdict, components, figure, tables, how many there are,
guarantee.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.io import wavfile

from odeco._util.lazy import needed_by
from odeco._util.types import FloatArray, IndexArray
from odeco.decompose.page import again_section, privacy_section
from odeco.display.page import HALF, Figures, Section, asset, beside, parts, table, write_page
from odeco.display.style import LIGHT, drawn_in
from odeco.models.engine.description import Description, PageTable, draw_panels, number_text, plural
from odeco.models.engine.fit import Info

with needed_by("A page"):
    from markupsafe import Markup
    from matplotlib.figure import Figure

#: A table with more rows than this can be searched and sorted.
_LONG = 12

#: The strongest shade of a cell, in per cent of the colour.
_SHADE = 45

#: This number of typical rows is shown for each component, with at most the second number of
#: columns.
_N_TYPICAL, _MAX_COLUMNS = 3, 8

#: A page plays this number of sources, and this number of seconds of each: some megabytes.
_MAX_PLAYERS, _MAX_SECONDS = 8, 15

#: A row is typical of a component if it belongs to it with at least this probability.
_CLEARLY = 0.5


def write_model_report(
    model: Any,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    rows: Any = None,
    lengths: Any = None,
    remark: str = "",
    command: str | None = None,
    check: bool = True,
    rate: int | None = None,
    first: Sequence[Section] = (),
    style: str = "",
    script: str = "",
) -> None:
    """Write a fitted model as one HTML page that needs no network.

    Parameters
    ----------
    model : Estimator
        The model, such as a `TensorMixture`.
    path : path
        Where to write. An old file is replaced only by a complete one.
    title : str, optional
        The heading; by default it names the model.
    rows : array, optional
        The rows that the model was fitted to: they are shown in the figure, and as typical rows of
        each component, and components are checked on halves of them. The page of a private model
        shows none.
    lengths : array of int, optional
        The lengths of sequences, if rows are sequences.
    remark : str
        A line to add to the facts about the model.
    command : str, optional
        The command that makes the model again.
    check : bool
        Whether the components are checked on random halves of `rows`, if they were not yet: some
        six fits.
    rate : int, optional
        The number of rows per second, if rows are a recording and the model finds its sources: the
        page then plays them.
    first : sequence of Section, optional
        Sections before all others.
    style, script : str
        CSS and JavaScript that these need.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from odeco.models import TensorMixture
    >>> from odeco.models.engine.page import write_model_report
    >>> rows = np.random.default_rng(0).standard_normal((300, 2)) + np.repeat(
    ...     [[0], [9], [18]], 100, axis=0
    ... )
    >>> model = TensorMixture(3, random_state=0).fit(rows)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_model_report(model, f"{folder}/page.html", title="Three clusters", rows=rows)
    """
    privacy = getattr(model, "privacy_", None)
    if privacy is not None:
        rows = None
    if rows is not None and check and model._learnt.halves is None and model.n_components_ > 1:
        with contextlib.suppress(
            ValueError
        ):  # halves of few rows may be too few: then the page says "not checked"
            model.split_half(rows, **({} if lengths is None else {"lengths": lengths}))
    described, info = model._describe(model._rows_to_show(rows, lengths)), model._learnt.fit.info
    figures, name = Figures(), model._SPEC.component
    typical = None if rows is None else _typical_rows(model, described, rows)
    lead = " ".join(filter(None, (*described.facts, remark)))
    cards = parts().components(described.components, name.capitalize())
    sections = [*first, Section(f"The {plural(name)}", cards, lead, "plain")]
    if described.panels:
        heading = "Figure" if len(described.panels) == 1 else "Figures"
        sections.append(Section(heading, _drawn(described, figures)))
    mixes_back = hasattr(model, "inverse_transform")  # so its components are signals
    if rows is not None and rate is not None and mixes_back:
        sections.append(_recordings(model.transform(rows), rate, name))
    sections += [_section(each) for each in described.tables]
    if typical is not None:
        sections.append(_section(typical))
    if info.tried.size > 1:
        sections.append(_how_many(info, name, figures))
    if privacy is not None:
        sections.append(privacy_section(privacy))
    sections.append(again_section(command, privacy=privacy))
    sizes = described.sizes or (
        ("rows", f"{model.n_samples_seen_:,}"),
        ("columns", f"{model.n_features_in_:,}"),
    )
    facts = {
        **dict(sizes),
        plural(name): f"{len(described.components):,}" + (" (selected)" if info.tried.size else ""),
        "largest": f"{max((each.weight or 0.0 for each in described.components), default=0.0):.0%}",
    }
    write_page(
        path,
        title=title or plural(name).capitalize(),
        subtitle=f"Learnt by {type(model).__name__} of odeco.models.",
        verdict=described.verdict,
        caution=described.caution(name),
        sections=sections,
        facts={key: value for key, value in facts.items() if value != "0%"},
        style=style,
        script=asset("odeco.display", "table.js") + script,
    )


def _drawn(described: Description, figures: Figures) -> Markup:
    """Return the panels beside each other as far as there is room, and wide ones below each
    other.
    """
    wide: list[Markup] = []
    narrow: list[Markup] = []
    with drawn_in():
        for panel in described.panels:
            figure = draw_panels([panel])
            made = figures.html(
                figure, f"{getattr(panel, 'label', 'A figure')}. {described.verdict}"
            )
            (wide if figure.get_figwidth() > HALF else narrow).append(made)
    return Markup().join([*wide, *([beside(*narrow)] if narrow else [])])


def _recordings(sources: FloatArray, rate: int, name: str) -> Section:
    """Return players of the sources of a recording, each as loud as 16 bits allow."""
    n_samples = min(len(sources), _MAX_SECONDS * rate)
    players = []
    for number, values in enumerate(sources[:n_samples, :_MAX_PLAYERS].T):
        loudest = max(float(np.abs(values).max()), np.finfo(np.float64).tiny)
        samples = np.rint(values / loudest * np.iinfo(np.int16).max).astype(np.int16)
        players.append(parts().player(f"{name} {number}", _wav_text(samples, rate)))
    cut = "" if n_samples == len(sources) else f" The first {_MAX_SECONDS} seconds are here."
    lead = f"What each {name} sounds like by itself.{cut}"
    return Section("Listen", Markup().join(players), lead)


def _wav_text(samples: np.ndarray[Any, Any], rate: int) -> str:
    """Return samples as a WAV file in base64."""
    file = io.BytesIO()
    wavfile.write(file, rate, samples)
    return base64.b64encode(file.getvalue()).decode()


def _section(given: PageTable) -> Section:
    """Return a table as a section, with its cells shaded."""
    rows: list[list[Any]] = [list(row) for row in given.rows]
    if given.shades is not None:
        for row, shades in zip(rows, given.shades, strict=True):
            for place, shade in enumerate(shades.tolist(), start=1):
                colour = "accent" if shade > 0 else "warm"
                row[place] = parts().shaded(row[place], _SHADE * min(abs(shade), 1.0), colour)
    made = table(given.columns, rows, text_columns=[0], long=len(rows) > _LONG)
    return Section(given.title, made, given.lead)


def _typical_rows(model: Any, described: Description, rows: Any) -> PageTable | None:
    """Return the rows with the largest likelihood among those of each component; None for models
    without a posterior.

    They lie where the component has most of its rows, so they show it better than the rows of the
    largest posterior, which lie far away from all other components.
    """
    if not described.columns:
        return None
    shares, likelihoods = model._posterior(rows)
    cells, names, columns = model._cells(rows), model._names(), described.columns[:_MAX_COLUMNS]
    listed = []
    for component in range(shares.shape[1]):
        own = np.flatnonzero(
            (shares.argmax(axis=1) == component) & (shares[:, component] >= _CLEARLY)
        )
        for place in own[np.argsort(-likelihoods[own], kind="stable")[:_N_TYPICAL]].tolist():
            values = [_cell(cells[place, column]) for column in columns]
            listed.append(
                [str(component), f"{place:,}", f"{shares[place, component]:.0%}", *values]
            )
    record = model._SPEC.record
    return PageTable(
        f"Typical {record}s",
        (
            f"Of each {model._SPEC.component}, the {record}s with the largest likelihood. They "
            "are numbered from 0."
        ),
        [model._SPEC.component, record, "probability", *(names[column] for column in columns)],
        listed,
    )


def _cell(value: Any) -> str:
    return number_text(float(value)) if isinstance(value, float | np.floating) else str(value)


@dataclass(frozen=True, eq=False)
class _Curve:
    """The score on held-out data of every number of components that was tried."""

    tried: IndexArray
    scores: FloatArray
    selected: int
    name: str

    def draw(self, axes: Any) -> None:
        chosen = self.selected
        place = int(np.flatnonzero(self.tried == chosen)[0])
        axes.plot(self.tried, self.scores, "o-", markersize=4)
        axes.plot(
            chosen, self.scores[place], "o", markersize=11, fillstyle="none", color=LIGHT.warm
        )
        axes.annotate(
            f"{chosen} selected",
            (chosen, self.scores[place]),
            (0, -16),
            textcoords="offset points",
            ha="left",
        )
        axes.set(xlabel=f"number of {plural(self.name)}", ylabel="score on held-out data")
        axes.margins(y=0.25)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y")


def _how_many(info: Info, name: str, figures: Figures) -> Section:
    figure = Figure(figsize=(6.5, 3.2), layout="constrained")
    with drawn_in():
        _Curve(info.tried, info.tried_scores, info.selected, name).draw(figure.subplots())
    lead = (
        f"How well models with different numbers of {plural(name)} predict data that they were "
        "not fitted to; higher is better. The smallest number that none of the next three "
        "clearly beats is selected."
    )
    return Section(f"How many {plural(name)} there are", figures.html(figure, lead), lead)
