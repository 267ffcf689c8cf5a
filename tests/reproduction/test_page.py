"""The page of the experiments: its verdict first, quick runs by name, figures that a phone shows
panel by panel.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from browser import CHROMIUM, Browser

from odeco.display.page import panel_windows
from reproduction import output as _output
from reproduction.output import document, write_experiments_page
from reproduction.report import Finding, Report


@_output.styled
def figures(_):
    """Three panels in one figure, and one that is much narrower."""
    wide, axes = _output.panels(1, 3, height=3.0)
    narrow, (row,) = _output.panels(1, 1, width=4.6)
    for number, panel in enumerate((*axes[0], *row)):
        panel.plot(
            [1, 2, 3], np.arange(3) + number, color=_output.METHOD_COLOURS[0], label="measured"
        )
        panel.set(title=f"panel {number}", xlabel="rows", ylabel="error")
    return {"wide": wide, "narrow": narrow}


def report(*, quick):
    findings = (
        Finding("Theorem 1", "it falls", "slope", "−0.5", "holds", "wide"),
        Finding(
            "Memory", "it is small", "ratio", "2", "does not hold as stated", "narrow", "because"
        ),
    )
    return Report(
        "streaming",
        "Streams",
        "python -m reproduction streaming",
        0,
        findings,
        [],
        figures(None),
        quick,
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "streaming.html"
    write_experiments_page([report(quick=True)], path)
    return path


def test_the_verdict_comes_first_and_a_quick_run_says_that_it_is_one(page, tmp_path):
    text = page.read_text()
    first, quick = (
        text.index("2 claims: 1 hold, 0 hold up to logs, 1 do not"),
        text.index("This is a quick run: fewer"),
    )
    assert text.index("<h1>") < first < quick < text.index("<table>")
    write_experiments_page([report(quick=False)], tmp_path / "whole.html")
    whole = (tmp_path / "whole.html").read_text()
    assert "quick" not in re.sub(r"<style>.*?</style>", "", whole, flags=re.DOTALL)
    assert document([report(quick=True)])["experiments"][0]["quick"]


def test_every_panel_is_a_window_on_the_figure():
    drawn = figures(None)
    windows = panel_windows(drawn["wide"])
    assert len(windows) == 3
    width, height = (72 * size for size in drawn["wide"].get_size_inches())
    for x, y, across, down in windows:
        assert -1 <= x < x + across <= width + 1
        assert -1 <= y < y + down <= height + 1
    assert windows[0][0] + windows[0][2] <= windows[1][0] + 1  # beside each other


SHOWN = """
(() => { const width = document.documentElement.clientWidth;
  const shown = [...document.querySelectorAll("figure svg")].filter(each => each.getBoundingClientRect().width > 2);
  return [document.documentElement.scrollWidth - width, ...shown.map(each => {
    const box = each.getBoundingClientRect();
    return box.right <= width + 1 ? 9.5 * box.width / each.viewBox.baseVal.width : -1; })]; })()
"""


@pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)"
)
def test_a_phone_and_a_desk_show_figures_whole_with_letters_of_a_legible_size(page):
    with Browser() as browser:
        for width, n_figures in ((1200, 2), (390, 4)):
            browser.open(page, width=width)
            beyond, *letters = browser.evaluate(SHOWN)
            assert beyond <= 0
            assert (
                len(letters) == n_figures
            )  # on the phone three panels, and the one that is narrow anyway
            assert all(8 <= size <= 18 for size in letters), (width, letters)
