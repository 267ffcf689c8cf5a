"""The display of every result: a short repr, HTML for notebooks, a summary, a frame, a figure."""

from __future__ import annotations

from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from odeco.display.figures import draw_result
from odeco.display.tables import (
    MAX_LEADING,
    MAX_SHOWN,
    cells_of,
    html_table,
    numbers_of,
    remarks_on,
    text_table,
    vectors_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from odeco._util.types import FloatArray


#: The width of a bar and the height of the small figure in a notebook, in pixels.
_BAR, _HEIGHT = 22, 64


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
        return [f"… and {left_out} more"] if left_out > 0 else []

    def summary(self, n_top: int = 5) -> str:
        """Return a text: the verdict, a table of all components, and remarks on the result as a whole.

        Parameters
        ----------
        n_top : int
            Number of largest coordinates to show of each component, by name if they have names.
        """
        table = text_table(*cells_of(self, n_top=n_top))
        return "\n".join([self.verdict, *table, *remarks_on(self)])

    def to_frame(self, *, vectors: bool = False) -> Any:
        """Return a pandas DataFrame with one row per component, or, with `vectors`, one row per coordinate.

        Parameters
        ----------
        vectors : bool
            Return the vectors instead: one row per coordinate, by name if it has one, and one column per component.
            For terms of an asymmetric tensor, rows are indexed by axis and coordinate.
        """
        try:
            pandas: Any = import_module("pandas")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "to_frame() needs pandas. It is not installed. Run: pip install pandas.", name="pandas"
            ) from error
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

    def plot(self, what: str = "all", *, n_top: int = 8, figure: Figure | None = None) -> Figure:
        """Draw the result with Matplotlib, and return the figure.

        Parameters
        ----------
        what : {"all", "weights", "components", "vectors", "cosines", "convergence"}
            Weights with their errors and noise floors; the largest coordinates of each component, by name; all
            coordinates in their order; the cosines between components; the residuals by iteration, if they are known.
            ``"all"`` draws everything except ``"vectors"``.
        n_top : int
            Number of largest coordinates to draw of each component.
        figure : matplotlib.figure.Figure, optional
            Where to draw, such as ``pyplot.figure()``, which ``pyplot.show()`` shows. By default a new figure, which a
            notebook shows.

        Notes
        -----
        `odeco.display` has a class for each kind of figure, to draw it on axes of your own.
        """
        drawn: Figure = draw_result(self, what, n_top=n_top, figure=figure)
        return drawn


def weights_svg(result: Any) -> str:
    """Return the first weights as a small bar chart, with errors and noise floors if they are known."""
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
        left, share = 4 + place * _BAR, float(weight) / highest
        top, height = (zero - share * unit, share * unit) if share > 0 else (zero, -share * unit)
        parts.append(f'<rect x="{left}" y="{top:.1f}" width="{_BAR - 6}" height="{height:.1f}" fill="#4c78a8"/>')
        if errors is not None:
            reach = min(float(errors[place]) / highest, 2.0) * unit
            middle, end = left + (_BAR - 6) / 2, zero - share * unit
            line = f'x1="{middle}" x2="{middle}" y1="{end - reach:.1f}" y2="{end + reach:.1f}"'
            parts.append(f'<line {line} stroke="currentColor"/>')
        if floors is not None:
            height = zero - float(floors[place]) / highest * unit
            line = f'x1="{left - 2}" x2="{left + _BAR - 4}" y1="{height:.1f}" y2="{height:.1f}"'
            parts.append(f'<line {line} stroke="#e45756" stroke-dasharray="3 2"/>')
    width = 8 + _BAR * len(weights)
    parts.append(f'<line x1="0" x2="{width}" y1="{zero:.1f}" y2="{zero:.1f}" stroke="currentColor" opacity=".4"/>')
    size = f'width="{width}" height="{_HEIGHT}"'
    return f'<svg {size} role="img" aria-label="Weights of the components">{"".join(parts)}</svg>'
