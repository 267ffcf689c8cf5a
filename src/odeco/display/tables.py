"""The display of every result: a short repr, HTML for notebooks, a summary, a frame, a figure
(`Shown`).

A result is a table with one row per component, and sentences about the result as a whole stand
below it. Components are numbered from 0, as in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from odeco._util.lazy import import_optional
from odeco._util.types import FloatArray
from odeco.tensors.components import shown_angle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: A table in a repr shows at most this many components, and this many of their largest coordinates.
MAX_SHOWN = 10
MAX_LEADING = 3

#: A name is cut to this many characters where there is little room.
_MAX_NAME = 24


@dataclass(frozen=True)
class Column:
    """A property of all components.

    Attributes
    ----------
    key : str
        The name of the column in a frame or a CSV file.
    heading : str
        The heading of the column in a table.
    values : sequence
        One value per component.
    show : callable
        Formats a value.
    is_brief : bool
        Whether short tables have this column.
    """

    key: str
    heading: str
    values: Sequence[Any]
    show: Callable[[Any], str]
    is_brief: bool = False


def columns_of(result: Any) -> list[Column]:
    """Return the properties of the components of a result, apart from their vectors."""
    known: list[tuple[str, str, Any, Callable[[Any], str], bool]] = [
        ("weight", "weight", result.weights, lambda value: f"{value:.6g}", True),
        (
            "weight_error",
            "± (1 s.e.)",
            _of(result, "weight_errors"),
            lambda value: f"{value:.2g}",
            True,
        ),
        ("angle_error", "angle error, rad", _of(result, "angle_errors"), shown_angle, True),
        (
            "noise_floor",
            "noise floor",
            _of(result, "noise_floors"),
            lambda value: f"{value:.3g}",
            True,
        ),
        ("clear", "clear of noise", _of(result, "clear"), _yes_or_no, True),
        ("residual", "residual", _of(result, "residuals"), lambda value: f"{value:.1e}", False),
        (
            "converged",
            "converged",
            _of(result, "converged"),
            _yes_or_no,
            not np.all(_of(result, "converged")),
        ),
        ("n_iterations", "images", _of(result, "n_iterations"), str, False),
    ]
    columns = [Column(*each) for each in known if each[2] is not None]
    n_restarts = _of(result, "n_restarts")
    if n_restarts is not None:
        agreed = (
            "n_agreed",
            "restarts agreed",
            result.n_agreed,
            lambda value: f"{value} of {n_restarts}",
        )
        columns.append(Column(*agreed))
    return columns


def _of(result: Any, name: str) -> Any:
    return getattr(result, name, None)


def _yes_or_no(value: Any) -> str:
    if value:
        return "yes"
    return "no"


def cells_of(
    result: Any, *, n_top: int, brief: bool = False, most: int | None = None
) -> tuple[list[str], list[Any]]:
    """Return the headings and the rows of a table of a result, as texts; the first column is the
    component's number.

    With `n_top` the last column has the largest coordinates; terms of an asymmetric tensor have one
    such column per axis.
    """
    columns = [column for column in columns_of(result) if column.is_brief or not brief]
    number = len(result.weights) if most is None else min(most, len(result.weights))
    rows = [[str(i), *(column.show(column.values[i]) for column in columns)] for i in range(number)]
    headings = ["#", *(column.heading for column in columns)]
    if n_top:
        for heading, vectors, names in vectors_of(result):
            headings.append(heading)
            for i, row in enumerate(rows):
                row.append(leading_text(vectors[:, i], names, n_top, brief=brief))
    return headings, rows


def vectors_of(result: Any) -> list[tuple[str, FloatArray, Sequence[str] | None]]:
    """Return the vectors of a result with a heading and the names of coordinates; for terms, one
    entry per axis.
    """
    factors = _of(result, "factors")
    if factors is None:
        return [("largest coordinates", result.vectors, result.names)]
    return [(f"largest along axis {axis}", factor, None) for axis, factor in enumerate(factors)]


def leading(vector: FloatArray, names: Sequence[str] | None, n_top: int) -> list[tuple[str, float]]:
    """Return the coordinates that are largest in absolute value, with their names or their numbers
    (from 0).
    """
    first = np.argsort(-np.abs(vector), kind="stable")[:n_top]
    return [(f"[{i}]" if names is None else names[i], float(vector[i])) for i in first]


def leading_text(
    vector: FloatArray, names: Sequence[str] | None, n_top: int, *, brief: bool = False
) -> str:
    """Return the largest coordinates as one line."""
    most = _MAX_NAME if brief else None
    return ", ".join(
        f"{shortened(name, most)} {value:+.2f}" for name, value in leading(vector, names, n_top)
    )


def coordinate_labels(result: Any) -> list[str]:
    """Return a label for every coordinate of every vector: its name, or its number in brackets;
    axis by axis.
    """
    labels: list[str] = []
    parts = vectors_of(result)
    for axis, (_, vectors, names) in enumerate(parts):
        prefix = "" if len(parts) == 1 else f"axis {axis} "
        own = names if names is not None else [f"[{i}]" for i in range(vectors.shape[0])]
        labels += [f"{prefix}{label}" for label in own]
    return labels


def numbers_of(result: Any) -> dict[str, Any]:
    """Return the properties of all components by key; the first is the number of each component."""
    return {
        "component": np.arange(len(result.weights)),
        **{column.key: column.values for column in columns_of(result)},
    }


def shortened(name: str, most: int | None = _MAX_NAME) -> str:
    """Return a name without control characters, cut off if it is long."""
    shown = printable(name)
    if most is None or len(shown) <= most:
        return shown
    return f"{shown[: most - 1]}…"


def printable(text: str, keep: str = "") -> str:
    """Return a text with every character that is not printable written as an escape, except those
    in `keep`.

    Names and words may come from untrusted files, and a terminal obeys control characters.
    """
    return "".join(
        each
        if each.isprintable() or each in keep
        else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def text_table(headings: list[str], rows: list[Any]) -> list[str]:
    """Return a table as lines: numbers flush right, the largest coordinates flush left."""
    n_left = sum(heading.startswith("largest ") for heading in headings)
    cells = [headings, *rows]
    widths = [max(len(row[place]) for row in cells) for place in range(len(headings))]
    lines = []
    for row in cells:
        placed = [
            cell.ljust(width) if place >= len(headings) - n_left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(placed).rstrip())
    return lines


def html_table(headings: list[str], rows: list[Any]) -> str:
    """Return a table as HTML for a notebook, which brings its own style."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def remarks_on(result: Any) -> list[str]:
    """Return what is known of a result as a whole, one sentence per line."""
    remarks = []
    if (explained := getattr(result, "explained", None)) is not None:
        remarks.append(f"explained: {explained:.4%} of the squared norm")
    if (evidence := getattr(result, "rank_evidence", None)) is not None:
        remarks.append(
            f"rank {evidence.rank} selected; confidence that it is right: {evidence.confidence:.4f}"
        )
        if evidence.resolution > 0:
            remarks.append(
                f"two components closer than {evidence.resolution:.1g} rad may count as one"
            )
    if (structure := getattr(result, "structure", None)) is not None:
        remarks.append(f"{structure.kind}: {structure.reason}")
    if getattr(result, "n_rows", None) is not None:
        remarks.append(f"rows read: {rows_read(result)}")
    if (clipping := clipping_sentence(result)) is not None:
        remarks.append(clipping)
    if (privacy := getattr(result, "privacy", None)) is not None:
        remarks.append(privacy_sentence(privacy))
    return remarks


def rows_read(result: Any) -> str:
    """Return the number of rows, and the number of passes if there were several."""
    passes = getattr(result, "n_passes", 1)
    return f"{result.n_rows:,}" + (f", in {passes:,} passes" if passes > 1 else "")


def privacy_sentence(privacy: Any) -> str:
    """Return the guarantee in one sentence."""
    if not privacy.private:
        return "NOT private: the noise did not come from the operating system."
    budget = (
        f"({privacy.epsilon:g}, {privacy.delta:g})-differentially private for one {privacy.unit}"
    )
    spent = f"spent ε = {privacy.epsilon_spent:.4g}, μ = {privacy.mu:.4g}"
    return f"{budget} ({privacy.neighbours}); mechanism {privacy.mechanism}; {spent}"


def clipping_sentence(result: Any) -> str | None:
    """Return the effect of the bound on the norm of rows on weights; None if there is no bound.

    How many rows were clipped was not released. The effect on a row of a given length is
    arithmetic.
    """
    bound = getattr(result, "norm_bound", None)
    if bound is None:
        return None
    order = result.order
    return (
        f"clipped: every row longer than {bound:g} was scaled down to it, which makes weights too "
        "small; ± is the noise alone and does not include that. A row twice as long as the bound "
        f"counts as 1/{2**order} of itself. The number of such rows was not released"
    )


#: The width of a bar and the height of the small figure in a notebook, in pixels.
_BAR = 22
_HEIGHT = 64


class Shown:
    """The base of results: `repr`, HTML for notebooks, `summary`, `to_frame` and `plot`."""

    weights: FloatArray

    @property
    def verdict(self) -> str:
        """The finding in one sentence."""
        raise NotImplementedError

    def __repr__(self) -> str:
        table = text_table(*cells_of(self, n_top=MAX_LEADING, brief=True, most=MAX_SHOWN))
        return "\n".join([f"{type(self).__name__}: {self.verdict}", *table, *self._more()])

    def _repr_html_(self) -> str:
        table = html_table(*cells_of(self, n_top=MAX_LEADING, brief=True, most=MAX_SHOWN))
        more = "".join(f"<p>{line}</p>" for line in self._more())
        title = f"<p><strong>{type(self).__name__}</strong>: {escape(self.verdict)}</p>"
        return f"<div>{title}{weights_svg(self)}{table}{more}</div>"

    def _more(self) -> list[str]:
        left_out = len(self.weights) - MAX_SHOWN
        if left_out > 0:
            return [f"… and {left_out} more"]
        return []

    def summary(self, n_top: int = 5) -> str:
        """Return a text: the verdict, a table of all components, and remarks on the result as a
        whole.

        Parameters
        ----------
        n_top : int
            Number of largest coordinates to show of each component, by name if they have names.
        """
        table = text_table(*cells_of(self, n_top=n_top))
        return "\n".join([self.verdict, *table, *remarks_on(self)])

    def to_frame(self, *, vectors: bool = False) -> Any:
        """Return a pandas DataFrame with one row per component, or, with `vectors`, one row per
        coordinate.

        Parameters
        ----------
        vectors : bool
            Return the vectors instead: one row per coordinate, by name if it has one, and one
            column per component. For terms of an asymmetric tensor, rows are indexed by axis and
            coordinate.
        """
        pandas = import_optional("pandas", "to_frame()")
        numbers = numbers_of(self)
        index = pandas.Index(numbers.pop("component"), name="component")
        if not vectors:
            return pandas.DataFrame(numbers, index=index)
        parts = [
            pandas.DataFrame(matrix, index=None if names is None else list(names), columns=index)
            for _, matrix, names in vectors_of(self)
        ]
        if len(parts) == 1:
            return parts[0].rename_axis(index="coordinate")
        return pandas.concat(parts, keys=range(len(parts)), names=["axis", "coordinate"])

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the components as a stream of Arrow data, which polars, DuckDB and others read."""
        table = import_optional("pyarrow", "A table of Arrow data").table(numbers_of(self))
        return table.__arrow_c_stream__(requested_schema)

    def plot(self, what: str = "all", *, n_top: int = 8, figure: Figure | None = None) -> Figure:
        """Draw the result with Matplotlib, and return the figure.

        Parameters
        ----------
        what : {"all", "weights", "components", "vectors", "cosines", "convergence"}
            Weights with their errors and noise floors; the largest coordinates of each component,
            by name; all coordinates in their order; the cosines between components; the residuals
            by iteration, if they are known. ``"all"`` draws everything except ``"vectors"``.
        n_top : int
            Number of largest coordinates to draw of each component.
        figure : matplotlib.figure.Figure, optional
            Where to draw, such as ``pyplot.figure()``, which ``pyplot.show()`` shows. By default a
            new figure, which a notebook shows.

        Notes
        -----
        `odeco.display` has a class for each kind of figure, to draw it on axes of your own.
        """
        from odeco.display.figures import draw_result  # which imports this module

        drawn: Figure = draw_result(self, what, n_top=n_top, figure=figure)
        return drawn


def weights_svg(result: Any) -> str:
    """Return the first weights as a small bar chart, with errors and noise floors if they are
    known.
    """
    weights = result.weights[: 3 * MAX_SHOWN]
    errors, floors = (getattr(result, name, None) for name in ("weight_errors", "noise_floors"))
    highest = max([abs(float(weight)) for weight in weights], default=0.0)
    if floors is not None:
        highest = max(highest, float(max(floors[: len(weights)])))
    if not highest:
        return ""
    low = min(0.0, float(min(weights))) / highest
    unit = (_HEIGHT - 8) / (1 - low)
    zero = 4 + unit
    parts = []
    for place, weight in enumerate(weights):
        left = 4 + place * _BAR
        share = float(weight) / highest
        top, height = (zero - share * unit, share * unit) if share > 0 else (zero, -share * unit)
        parts.append(
            f'<rect x="{left}" y="{top:.1f}" width="{_BAR - 6}" height="{height:.1f}" '
            'fill="#4c78a8"/>'
        )
        if errors is not None:
            reach = min(float(errors[place]) / highest, 2.0) * unit
            middle = left + (_BAR - 6) / 2
            end = zero - share * unit
            line = f'x1="{middle}" x2="{middle}" y1="{end - reach:.1f}" y2="{end + reach:.1f}"'
            parts.append(f'<line {line} stroke="currentColor"/>')
        if floors is not None:
            height = zero - float(floors[place]) / highest * unit
            line = f'x1="{left - 2}" x2="{left + _BAR - 4}" y1="{height:.1f}" y2="{height:.1f}"'
            parts.append(f'<line {line} stroke="#e45756" stroke-dasharray="3 2"/>')
    width = 8 + _BAR * len(weights)
    parts.append(
        f'<line x1="0" x2="{width}" y1="{zero:.1f}" y2="{zero:.1f}" stroke="currentColor" '
        'opacity=".4"/>'
    )
    size = f'width="{width}" height="{_HEIGHT}"'
    return f'<svg {size} role="img" aria-label="Weights of the components">{"".join(parts)}</svg>'
