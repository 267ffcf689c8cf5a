"""The page of every model, in a real browser: light and dark, wide and on a phone."""

from __future__ import annotations

import re

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from test_report import LETTERS, VISIBLE

import odeco
from odeco.models import Communities, LatentClasses, TensorHMM, TensorICA, TensorMixture

TALLEST = "Math.max(...[...document.querySelectorAll('td')].map(each => each.clientHeight))"
SHOWN = (
    "[...document.querySelectorAll('table.long tbody tr:not([hidden])')].map(each => "
    "each.cells[{}].textContent)"
)


def models():
    """Return one small model of each kind, with the rows to show."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=600)
    answers = (truth[:, None] > np.arange(9) % 3) ^ (rng.random((600, 9)) < 0.1)
    symbols = np.arange(3000) // 20 % 2 * 3 + rng.integers(3, size=3000)
    rows = 9 * np.eye(3)[truth] + rng.standard_normal((600, 3))
    yield TensorMixture("auto", random_state=0).fit(rows), rows
    yield TensorHMM(2, emissions="categorical", random_state=0).fit(symbols), symbols
    mixed = rng.laplace(size=(2000, 3)) @ rng.standard_normal((3, 3))
    yield TensorICA(3, random_state=0).fit(mixed), None
    yield LatentClasses(3, random_state=0).fit(answers.astype(int)), answers.astype(int)
    same = truth[:120, None] == truth[None, :120]
    upper = np.triu(rng.random((120, 120)) < np.where(same, 0.4, 0.02), 1)
    yield Communities(3, random_state=0).fit((upper | upper.T).astype(float)), None


@pytest.mark.slow
@pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)"
)
def test_the_page_of_every_model_is_shown_without_a_complaint(tmp_path):
    with Browser() as browser:
        for model, rows in models():
            name = type(model).__name__
            path = tmp_path / f"{name}.html"
            odeco.write_report(model, path, title="<script>alert(2)</script>", rows=rows)
            for scheme, width in (("light", 1200), ("dark", 1200), ("light", 390), ("dark", 390)):
                browser.open(path, scheme=scheme, width=width)
                assert browser.complaints() == [], name
                asked = [
                    each for each in browser.requests() if not each.startswith("data:")
                ]  # pictures in the page
                assert asked == [path.as_uri()], name
                assert browser.evaluate("document.documentElement.scrollWidth") <= width, name
                assert browser.evaluate(VISIBLE) == [], (name, scheme, width)
                low, high = browser.evaluate(LETTERS)
                assert 6 <= low <= high <= 20, (name, width)
                assert browser.evaluate(TALLEST) < 100, (
                    name,
                    width,
                )  # a cell is a few lines: no word is broken letter by letter
                assert browser.evaluate("document.title") == "<script>alert(2)</script>"
                browser.screenshot(tmp_path / f"{name}-{scheme}-{width}.png")


@pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)"
)
def test_a_long_table_can_be_searched_and_sorted(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 20)) + 6 * np.eye(20)[rng.integers(2, size=300)]
    path = tmp_path / "page.html"
    TensorMixture(2, random_state=0).fit(rows).write_report(path)
    with Browser() as browser:
        browser.open(path)
        assert len(browser.evaluate(SHOWN.format(0))) == 20
        browser.click("table.long th:nth-child(2) button")  # numbers begin with the largest
        means = [float(text) for text in browser.evaluate(SHOWN.format(1))]
        assert means == sorted(means, reverse=True)
        browser.click("table.long th:nth-child(1) button")
        assert browser.evaluate(SHOWN.format(0)) == [f"x{number}" for number in range(20)]
        browser.click(".search input")
        browser.type("x1")
        assert browser.evaluate(SHOWN.format(0)) == [
            "x1",
            *(f"x{number}" for number in range(10, 20)),
        ]
        assert browser.evaluate("document.querySelector('.search span').textContent") == "11 of 20"


@pytest.mark.filterwarnings("ignore::odeco.errors.DominantColumnWarning")  # the cut is by chance
def test_unclear_components_are_named_at_the_top_and_marked(tmp_path):
    rng = np.random.default_rng(0)
    # One Gaussian is cut in two wherever chance wants it, by every half of the rows in another way.
    rows = rng.standard_normal((3000, 2)) + np.array([[0, 0], [30, 0]])[rng.integers(2, size=3000)]
    model = TensorMixture(3, covariance_type="spherical", random_state=0).fit(rows)
    model.split_half(rows)
    described = model._describe()
    unclear = [number for number, each in enumerate(described.components) if each.doubt]
    is_left = model.means_[:, 0] < 15
    cut = np.flatnonzero(is_left == (is_left.sum() == 2))
    assert unclear
    assert set(unclear) <= set(cut.tolist())
    model.write_report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    header = page[page.index("<header>") : page.index("</header>")]
    verb = "is" if len(unclear) == 1 else "are"
    assert f"{len(unclear)} of 3 {verb} unclear" in header
    assert page.count('class="doubt"') == len(unclear)
    assert described.components[unclear[0]].doubt in model._repr_html_()


def test_typical_rows_are_rows_of_their_component_and_a_private_page_has_none(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=4000)
    rows = np.where(truth, 7.0, -7.0)[:, None] + rng.standard_normal((4000, 2))
    model = TensorMixture(2, random_state=0).fit(rows)
    odeco.write_report(model, tmp_path / "open.html", rows=rows)
    page = (tmp_path / "open.html").read_text()
    section = page[page.index("Typical rows") :]
    found = re.findall(r"<tr><td>(\d)</td><td class=\"number\">([\d,]+)</td>", section)
    assert len(found) == 6
    labels = model.predict(rows)
    assert all(labels[int(place.replace(",", ""))] == int(component) for component, place in found)
    private = TensorMixture(2, epsilon=8, delta=1e-6, norm_bound=20, random_state=0)
    private.fit(rows).write_report(tmp_path / "private.html", rows=rows)
    assert "Typical rows" not in (tmp_path / "private.html").read_text()


def test_what_is_no_result_has_no_page(tmp_path):
    with pytest.raises(TypeError, match="result or a fitted model"):
        odeco.write_report({}, tmp_path / "page.html")
