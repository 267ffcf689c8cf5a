"""Topics as a figure: the leading words of each as bars, small multiples of one kind."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from odeco._types import FloatArray, IndexArray
from odeco.topics.vocabulary import Words

_STYLE: Any = {"font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left"}
_COLOUR, _GREY = "#3f74c4", "#6b7580"


def draw_topics(
    topic_word: FloatArray, shares: FloatArray, names: Words, leading: list[IndexArray], n_columns: int
) -> Figure:
    """Draw the given words of each topic, with their probabilities as bars."""
    n_topics, tallest = len(leading), max(max((places.size for places in leading), default=1), 1)
    n_columns = min(n_columns, n_topics)
    n_rows = -(-n_topics // n_columns)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(2.6 * n_columns, n_rows * (0.6 + 0.19 * tallest)), layout="constrained")
        grid = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
        for topic, (axes, places) in enumerate(zip(grid, leading, strict=False)):
            values = topic_word[topic, places]
            # Bars have the heights of text, in a fixed number of lines, so that all topics share one scale of lines.
            axes.barh(range(places.size), values, color=_COLOUR, height=0.72)
            # A dollar sign would begin a formula.
            axes.set_yticks(range(places.size), [str(name) for name in names[places]], parse_math=False)
            axes.set_ylim(tallest - 0.4, -0.6)
            axes.set_title(f"{topic + 1} · {shares[topic]:.1%}")
            axes.spines[["top", "right", "bottom"]].set_visible(False)
            axes.tick_params(axis="y", length=0)
            axes.tick_params(axis="x", length=0, labelcolor=_GREY, labelsize=8)
            axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(2))
            axes.grid(axis="x", color="#dfe3e8", linewidth=0.7)
            axes.set_axisbelow(True)
        for axes in grid[n_topics:]:
            axes.set_axis_off()
    return figure
