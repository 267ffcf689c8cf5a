"""Pages of every kind, with long names and close components: labels do not overlap, no text is cut,
none is missing.
"""

from __future__ import annotations

import networkx
import numpy as np
import pandas
import pytest
from browser import CHROMIUM, Browser
from test_report import VISIBLE

import odeco
from odeco.cli.app import run
from odeco.models import Communities, LatentClasses, TensorHMM, TensorICA, TensorMixture

#: Names as tables have them: long, with units, with a sign that begins a formula, in another
#: script.
NAMES = [
    "yearly spend per household (EUR, net of tax)",
    "returns %",
    "$ cost",
    "größe",
    "価格",
    "x_1^2",
]

#: The labels of a figure that lie on one another. A label is the quadrilateral around its letters,
#: which may be turned, less a quarter of its height: a line is higher than its letters. Two convex
#: shapes are apart if the direction of a side separates them.
OVERLAPPING = """
(() => {
  const corners = each => {
    const {x, y, width, height} = each.getBBox(), to = each.getScreenCTM(), cut = height / 8;
    return [[x, y + cut], [x + width, y + cut], [x + width, y + height - cut], [x, y + height - cut]].map(
      ([a, b]) => [to.a * a + to.c * b + to.e, to.b * a + to.d * b + to.f]);
  };
  const apart = (first, second) => [first, second].some(shape => [[0, 1], [1, 2]].some(([i, j]) => {
    const across = [shape[j][1] - shape[i][1], shape[i][0] - shape[j][0]];
    const along = points => points.map(([a, b]) => a * across[0] + b * across[1]);
    const [one, other] = [along(first), along(second)];
    return Math.max(...one) <= Math.min(...other) || Math.max(...other) <= Math.min(...one);
  }));
  const wrong = [];
  for (const picture of document.querySelectorAll("svg")) {
    const labels = [...picture.querySelectorAll("text")].filter(
      each => each.textContent.trim() && each.getBoundingClientRect().width > 0 && getComputedStyle(each).opacity > 0);
    const shapes = labels.map(corners);
    for (let i = 0; i < labels.length; i++)
      for (let j = 0; j < i; j++)
        if (!apart(shapes[i], shapes[j])) wrong.push([j, i].map(at => labels[at].textContent.trim()).join(" | "));
  }
  return wrong;
})()
"""

#: Texts that are cut off by the box around them, without a scroll bar and without dots that say so.
CUT = """
[...document.querySelectorAll("body *")].filter(each => {
  const style = getComputedStyle(each);
  return [...each.childNodes].some(child => child.nodeType === 3 && child.textContent.trim())
    && style.overflowX === "hidden" && style.textOverflow !== "ellipsis" && each.scrollWidth > each.clientWidth + 1;
}).map(each => each.textContent.slice(0, 60))
"""


def write_pages(folder):
    """Write a page of every kind; return each with the names that must be on it."""
    rng = np.random.default_rng(0)
    groups = rng.integers(6, size=600)
    centres = 6 * np.eye(6)[[0, 0, 1, 2, 3, 3]] + 0.9 * rng.standard_normal(
        (6, 6)
    )  # pairs that are close
    scales = np.array([1e4, 1.0, 3.0, 1e-3, 1.0, 50.0])
    table = pandas.DataFrame(
        (centres[groups] + rng.standard_normal((600, 6))) * scales, columns=NAMES
    )
    mixture = TensorMixture(6, random_state=0).fit(table)
    odeco.write_report(mixture, folder / "mixture.html", rows=table)
    yield "mixture", NAMES
    selected = TensorMixture(
        "auto", covariance_type="spherical", standardize=True, random_state=0
    ).fit(table)
    odeco.write_report(selected, folder / "selected.html", rows=table)
    yield "selected", NAMES
    odeco.write_report(TensorICA(4, random_state=0).fit(table), folder / "sources.html")
    yield "sources", NAMES
    wide = pandas.DataFrame(rng.standard_normal((400, 50)) + 4 * (rng.random((400, 1)) < 0.5))
    wide.columns = [f"measured value {number}" for number in range(50)]
    odeco.write_report(
        TensorMixture(2, covariance_type="diag", random_state=0).fit(wide), folder / "wide.html"
    )
    yield "wide", list(wide.columns)
    events = np.array(NAMES)[np.arange(3000) // 20 % 2 * 3 + rng.integers(3, size=3000)]
    symbols = TensorHMM(2, random_state=0).fit(events, lengths=[100] * 30)
    odeco.write_report(symbols, folder / "symbols.html", rows=events, lengths=[100] * 30)
    yield "symbols", NAMES
    vectors = TensorHMM(2, random_state=0).fit(table)
    odeco.write_report(vectors, folder / "vectors.html", rows=table)
    yield "vectors", NAMES
    chosen = np.where(
        (groups[:, None] < 3) ^ (rng.random((600, 6)) < 0.15),
        "very often, nearly every day",
        "never",
    )
    answers = pandas.DataFrame(chosen, columns=NAMES)
    odeco.write_report(
        LatentClasses(2, random_state=0).fit(answers), folder / "classes.html", rows=answers
    )
    yield "classes", [*NAMES, "very often, nearly every day"]
    novel = networkx.les_miserables_graph()
    odeco.write_report(Communities("auto", random_state=0).fit(novel), folder / "communities.html")
    yield "communities", list(novel.nodes)
    close = np.linalg.qr(rng.standard_normal((6, 3)))[0]
    close[:, 2] = close[:, 1] + 0.3 * close[:, 2]
    T = odeco.Components([3.0, 2.0, 1.0], close / np.linalg.norm(close, axis=0)).to_dense()
    for name, settings in (("joint", {}), ("power", {"method": "power"})):
        result = odeco.decompose(T, 3 if name == "joint" else 1, rng=0, **settings).with_names(
            NAMES
        )
        odeco.write_report(result, folder / f"{name}.html")
        yield name, NAMES
    skewed = rng.exponential(size=(20_000, 6)) - 1
    odeco.write_report(
        odeco.decompose_stream(skewed, 3, rng=0).with_names(NAMES), folder / "stream.html"
    )
    yield "stream", NAMES
    guarantee = {"epsilon": 4.0, "delta": 1e-6, "unit": "record", "norm_bound": 4.0}
    private = odeco.decompose_privately(skewed, 2, **guarantee).with_names(NAMES)
    odeco.write_report(private, folder / "private.html")
    yield "private", NAMES
    words = [
        [f"{stem}{end}" for end in "abcdefghij"] for stem in ("harbour", "kitchen", "parliament")
    ]
    texts = [" ".join(rng.choice(words[number % 3], 20)) for number in range(300)]
    (folder / "texts.txt").write_text("\n".join(texts))
    report = str(folder / "topics.html")
    assert (
        run(
            [
                "learn",
                "topics",
                str(folder / "texts.txt"),
                "-k",
                "3",
                "--max-iter",
                "5",
                "--report",
                report,
            ]
        )
        == 0
    )
    yield "topics", [word for part in words for word in part]


@pytest.mark.slow
@pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)"
)
def test_no_label_covers_another_no_text_is_cut_and_no_name_is_missing(tmp_path):
    with Browser() as browser:
        for kind, names in write_pages(tmp_path):
            for width in (1200, 390):
                browser.open(tmp_path / f"{kind}.html", width=width)
                assert browser.evaluate(OVERLAPPING) == [], (kind, width)
                assert browser.evaluate(CUT) == [], (kind, width)
                # The page of topics hides what its explorer shows; nothing of any page is cut off
                # or beyond its edge.
                assert [
                    each for each in browser.evaluate(VISIBLE) if not each.startswith("not shown")
                ] == [], kind
                shown = browser.evaluate("document.body.textContent")
                assert [name for name in names if name not in shown] == [], kind


@pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)"
)
def test_labels_that_overlap_and_texts_that_are_cut_are_found(tmp_path):
    labels = "".join(
        f"<text x='{x}' y='20'>{text}</text>"
        for x, text in ((10, "one"), (20, "two"), (100, "three"))
    )
    (tmp_path / "page.html").write_text(
        f"<svg width='200' height='50'>{labels}</svg><p "
        "style='overflow:hidden;width:40px;white-space:nowrap'>longer than its box</p>"
    )
    with Browser() as browser:
        browser.open(tmp_path / "page.html")
        assert browser.evaluate(OVERLAPPING) == ["one | two"]
        assert browser.evaluate(CUT) == ["longer than its box"]
