"""Sources in words and pictures: which of them are separated, their shapes, and the columns that
they show in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.types import BoolArray, FloatArray
from odeco.models.engine.description import (
    ComponentRow,
    Description,
    HeatMap,
    PageTable,
    Panel,
    most_characteristic,
)
from odeco.models.engine.fit import Fit
from odeco.models.ica.likelihood import EDGES
from odeco.models.ica.overcomplete import Mixing
from odeco.models.ica.unmixing import Unmixing
from odeco.privacy.report import PrivacyReport
from odeco.tensors.components import shown_angle

#: A source with less information than this beyond a Gaussian's 1 is called nearly Gaussian.
_NEARLY_GAUSSIAN = 0.02

#: Beyond this, the number says how narrow the bins of a histogram are, and nothing of the source.
_MOST_INFORMATION = 100

#: A figure shows the densities of at most this number of sources, the least Gaussian ones.
_MAX_DENSITIES = 12

#: A figure shows at most this number of sources over time, each as the range of its values in this
#: number of stretches of rows.
_MAX_SERIES = 8
_MAX_STRETCHES = 600

#: A direction is clear if it errs by less than this angle.
_CLEAR_ANGLE = math.pi / 8

#: A source whose variance is that of fewer rows may be nothing but outliers.
_FEW_ROWS = 5

#: Shapes: skewness and excess kurtosis beyond these are mentioned.
_SKEWED = 0.3
_TAILS = 0.5


def describe(
    fit: Fit, names: list[str], privacy: PrivacyReport | None, rows: FloatArray | None = None
) -> Description:
    """Return sources in words and pictures.

    `names` are those of the columns. With rows, the sources are also shown over time.
    """
    params: Unmixing | Mixing = fit.params
    k = len(params.information)
    correlations = params.correlations
    if k == 0:
        verdict = "No source: in held-out rows, no direction differs from a Gaussian."
        return Description(verdict, (_fact(fit, names, privacy),), (), ())
    gaussian = _looks_gaussian(fit)
    partners = fit.context.partners if fit.context.partners.size == k else np.full(k, -1)
    facts = [_fact(fit, names, privacy)]
    verdict = _separation(fit, names, privacy, int(np.sum(gaussian)))
    # If row i has the share sᵢ of the variance of n rows, the kurtosis is n Σ sᵢ²: n over it is the
    # number of rows that would have all of the variance in equal shares. Private sources have the
    # shape of noisy moments, and no rows.
    n_rows = np.full(k, np.inf)
    if privacy is None:
        n_rows = fit.info.n_samples / np.array([_moments(counts)[1] for counts in params.counts])
    few = int(np.sum(n_rows < _FEW_ROWS))
    if few:
        facts.append(
            f"{few} of the sources may be outliers: fewer than {_FEW_ROWS} rows have most of "
            "their variance."
        )
    errors = [""] * k
    if isinstance(params, Mixing):
        errors = [f", angle ± {shown_angle(error)}" for error in params.angle_errors]
    components = [
        ComponentRow(
            None,
            (
                f"{_shape(params.counts[source])}, "
                f"{_information(params.information[source])}{errors[source]}; "
            )
            + ", ".join(
                f"{names[column]} {correlations[column, source]:+.2f}" for column in columns
            ),
            _doubt(
                float(n_rows[source]),
                int(partners[source]),
                bool(gaussian[source] and gaussian.sum() > 1),
            ),
        )
        for source, columns in enumerate(most_characteristic(correlations.T))
    ]
    numbers = [str(source) for source in range(k)]
    table = HeatMap(correlations, names, numbers, "correlation of columns with sources")
    if isinstance(params, Mixing):
        facts.append(
            "Sources of rows are posterior means: with more sources than columns, no map gives "
            "them back."
        )
    if fit.context.standardized:
        facts.append("Directions are those of standardised columns.")
    panels: tuple[Panel, ...] = (table, _Densities(params.counts[:_MAX_DENSITIES]))
    if rows is not None and isinstance(params, Unmixing):
        panels = (*panels, _OverTime(params.sources(rows)[:, :_MAX_SERIES]))
    order = np.argsort(-np.abs(correlations).max(axis=1), kind="stable")
    listed = PageTable(
        "Columns and sources",
        (
            "The correlation of each column with each source; the columns with the strongest ones "
            "come first."
        ),
        ["column", *numbers],
        [[names[column], *(f"{value:+.2f}" for value in correlations[column])] for column in order],
        correlations[order],
    )
    return Description(verdict, tuple(facts), tuple(components), panels, (listed,))


def _looks_gaussian(fit: Fit) -> BoolArray:
    """Return which sources look Gaussian: the last ones by held-out rows if that is known, else by
    their shape.
    """
    information = fit.params.information
    n_separated = fit.context.n_separated
    if n_separated < 0:
        return np.asarray(information - 1 < _NEARLY_GAUSSIAN)
    return np.asarray(np.arange(len(information)) >= n_separated)


def _separation(fit: Fit, names: list[str], privacy: PrivacyReport | None, n_gaussian: int) -> str:
    """Return what keeps sources from being separated; nothing if all are.

    Two Gaussian sources cannot be told apart; a single one can be what is left.
    """
    k = len(fit.params.information)
    params = fit.params
    if isinstance(params, Mixing):
        clear = int(np.sum(params.angle_errors < _CLEAR_ANGLE))
        return (
            f"{k} sources of {len(names)} columns; the directions of "
            f"{'all' if clear == k else clear} are clear."
        )
    if privacy is None and fit.info.n_samples < 2 * (k + 1):
        return (
            f"{k} directions, none of which is known to be a source: in {fit.info.n_samples} "
            "rows, directions through single rows look like sources."
        )
    if n_gaussian > 1:
        where = " in held-out rows" if fit.context.n_separated >= 0 else ""
        why = "do not stand clear of noise" if privacy is not None else f"look Gaussian{where}"
        if n_gaussian == k and privacy is None:
            return f"None of {k} sources is separated: all {why}."
        return f"{k - n_gaussian} of {k} sources are separated; the other {n_gaussian} {why}."
    return ""


def _doubt(n_rows: float, partner: int, is_gaussian: bool) -> str:
    """Return why a source is unclear; nothing if it is clear."""
    if n_rows < _FEW_ROWS:
        rows = "one row has" if round(n_rows) <= 1 else f"{n_rows:.0f} rows have"
        return f"{rows} nearly all of its variance, as outliers do"
    if partner >= 0:
        return f"it depends on source {partner}"
    if is_gaussian:
        return "it looks Gaussian, and so do others, which cannot be told apart"
    return ""


def _fact(fit: Fit, names: list[str], privacy: PrivacyReport | None) -> str:
    """Return what the fit was made from."""
    rows = f"Fitted to {fit.info.n_samples:,} rows of {len(names)} columns"
    if privacy is not None:
        return f"{rows}, by their noisy moments."
    if isinstance(fit.params, Mixing):
        return f"{rows}, by their fourth cumulant."
    return f"{rows}, {fit.info.n_iter} Newton iterations."


def _information(information: float) -> str:
    """Return the Fisher information of a source; that of a source with few values has no bound."""
    if information > _MOST_INFORMATION:
        return f"information above {_MOST_INFORMATION}"
    return f"information {information:.2f}"


def _shape(counts: FloatArray) -> str:
    """Return the shape of a source in words, from its histogram."""
    skewness, kurtosis = _moments(counts)
    excess = kurtosis - 3
    if excess > _TAILS:
        tails = "heavy tails"
    else:
        tails = "light tails" if excess < -_TAILS else "tails like a Gaussian"
    if abs(skewness) > _SKEWED:
        return f"skewness {skewness:+.1f}, {tails}"
    return tails


def _moments(counts: FloatArray) -> tuple[float, float]:
    """Return skewness and kurtosis of a histogram."""
    centres = (EDGES[1:] + EDGES[:-1]) / 2
    weights = counts / counts.sum()
    centred = centres - weights @ centres
    variance = weights @ centred**2
    return float(weights @ centred**3 / variance**1.5), float(weights @ centred**4 / variance**2)


@dataclass(frozen=True, eq=False)
class _Densities:
    """The densities of sources below each other, each with that of a Gaussian."""

    counts: FloatArray

    def draw(self, axes: Any) -> None:
        centres = (EDGES[1:] + EDGES[:-1]) / 2
        bell = np.exp(-(centres**2) / 2) / np.sqrt(2 * np.pi)
        densities = self.counts / (self.counts.sum(axis=1, keepdims=True) * (EDGES[1] - EDGES[0]))
        height = 1.1 * max(float(densities.max()), float(bell.max()))
        for source, density in enumerate(densities):
            base = -height * source
            axes.fill_between(centres, base, base + density, step="mid", alpha=0.6)
            axes.plot(centres, base + bell, color="0.4", linewidth=0.8)
        axes.set(xlim=(-4, 4), title="Densities, each with a Gaussian", ylabel="source")
        axes.set_yticks(
            [-height * source for source in range(len(densities))], range(len(densities))
        )


@dataclass(frozen=True, eq=False)
class _OverTime:
    """Sources row by row, below each other: the range of the values in each stretch of rows."""

    sources: FloatArray

    @property
    def size(self) -> tuple[float, float]:
        return 9.0, 0.8 + 0.7 * self.sources.shape[1]

    def draw(self, axes: Any) -> None:
        n_rows, k = self.sources.shape
        begins = np.unique(np.linspace(0, n_rows, _MAX_STRETCHES, endpoint=False).astype(np.int64))
        lowest = np.minimum.reduceat(self.sources, begins)
        highest = np.maximum.reduceat(self.sources, begins)
        heights = highest.max(axis=0) - lowest.min(axis=0)
        scale = np.maximum(heights, np.finfo(np.float64).tiny)
        middle = (highest.max(axis=0) + lowest.min(axis=0)) / 2
        for source in range(k):
            low = (lowest[:, source] - middle[source]) / scale[source] - source
            high = (highest[:, source] - middle[source]) / scale[source] - source
            axes.fill_between(begins, low, high, step="post", linewidth=0.8, alpha=0.8)
        axes.set(xlim=(0, n_rows - 1), xlabel="row", ylabel="source", title="Sources over time")
        axes.set_yticks(-np.arange(k), range(k))
