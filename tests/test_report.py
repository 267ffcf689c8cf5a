"""The page of a result: complete, escaped, the same twice, and shown without a complaint by a real
browser.
"""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from test_saving import RESULTS

import odeco
from odeco.decompose import StreamDecomposition
from odeco.decompose.page import privacy_section, write_report
from odeco.display.page import Section, write_page
from odeco.tensors import Components

NAMES = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a & b", "c", "d", "e"]
BODY = ["Components", "Weights and cosines", "Largest coordinates", "Vectors"]
SECTIONS = {
    "tensor": [*BODY, "How it was made"],
    "loop": [*BODY, "Convergence", "How it was made"],
    "auto": [*BODY, "How it was made"],
    "asymmetric": [
        *("Components", "Weights", "Largest coordinates"),
        *("Vectors along axis 0", "Vectors along axis 1", "Vectors along axis 2"),
        "How it was made",
    ],
    "stream": [*BODY, "How it was made"],
    "private": [*BODY, "Privacy", "How it was made"],
    "private stream": [*BODY, "Privacy", "How it was made"],
    "not private": [*BODY, "Privacy", "How it was made"],
}


class Reader(HTMLParser):
    """Collects tags, headings and text; what is not closed, or closed twice, is an error."""

    EMPTY = ("meta", "link", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.headings, self.words, self.ids = [], [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.ids += [value for name, value in attributes if name == "id"]
        assert not any(name.startswith("on") for name, _ in attributes)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.words.append(text)
        if self.open and self.open[-1] == "h2":
            self.headings.append(text)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page of every kind of result, with names and texts that try to break out of it."""
    folder = tmp_path_factory.mktemp("pages")
    paths = {}
    for kind in SECTIONS:
        result = RESULTS[kind]()
        fitting = kind not in ("asymmetric",) and result.vectors.shape[0] == len(NAMES)
        paths[kind] = folder / f"{kind}.html"
        write_report(
            result,
            paths[kind],
            title="<script>alert(2)</script>",
            names=NAMES if fitting else None,
            command="odeco decompose 'a <b> & c.npy' -k 3",
            facts={"<i>": "<u>"},
        )
    return paths


@pytest.mark.slow
@pytest.mark.parametrize("kind", SECTIONS)
def test_every_kind_of_result_has_its_sections(kind, pages):
    text = pages[kind].read_text(encoding="utf-8")
    reader = Reader(text)
    assert reader.headings == SECTIONS[kind]
    words = " ".join(reader.words)
    assert "odeco decompose 'a <b> & c.npy' -k 3" in words
    assert odeco.__version__ in words
    assert np.__version__ in words
    assert (
        reader.tags.count("svg")
        == reader.tags.count("figure")
        == text.count('role="img" aria-label="')
    )
    assert len(reader.ids) == len(set(reader.ids))  # figures do not share names


@pytest.mark.parametrize("kind", SECTIONS)
def test_a_page_fetches_nothing_runs_nothing_and_escapes_what_it_is_given(kind, pages):
    text = pages[kind].read_text(encoding="utf-8")
    reader = Reader(text)
    assert not {"script", "img", "iframe", "object", "b", "u"} & set(reader.tags)
    without_names_of_formats = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert re.findall(r"https?://", without_names_of_formats) == []
    assert "&lt;script&gt;alert(2)&lt;/script&gt;" in text
    assert "default-src 'none'" in text
    assert "#fe" not in text  # every colour of a figure has become one of the page's


def test_numbers_on_the_page_are_those_of_the_result(tmp_path):
    components = Components([2.0, 0.5], np.eye(6)[:, :2])
    result = StreamDecomposition(
        components, np.array([0.125, 0.0625]), np.array([0.01, 0.02]), 123_456
    )
    write_report(result, tmp_path / "page.html", names=NAMES)
    words = " ".join(Reader((tmp_path / "page.html").read_text()).words)
    for shown in (
        "2",
        "0.12",
        "0.062",
        "0.01",
        "0.02",
        "123,456",
        "± 1 standard error",
        "\u00a0+1.00",
    ):
        assert shown in words


def test_the_statement_of_privacy_says_what_holds(pages):
    private, other = (
        " ".join(Reader(pages[kind].read_text()).words) for kind in ("private", "not private")
    )
    assert "This result is (1, 1e-06)-differentially private for one record." in private
    # ε = 1 at δ = 1e-6 is μ = 0.2367, and Φ(0.2367 / 2) = 0.547.
    assert "at most 54.7 % accuracy" in private
    assert "noise floor" in private
    assert "This result is NOT private." in other
    assert "differentially private" not in other


def test_the_box_around_the_guarantee_says_how_weak_it_is(tmp_path):
    report = odeco.decompose_privately(
        np.ones((3, 3, 3)), 1, epsilon=1.0, delta=1e-6, rng=0
    ).privacy
    for mu, accuracy, box in (
        (0.2367, "54.7 %", ""),
        (1.34, "74.9 %", ""),
        (1.36, "75.2 %", " warm"),
        (3.3, "95.1 %", " bad"),
    ):
        body = privacy_section(
            replace(report, mu=mu, charges=())
        ).body  # Φ(μ/2), from a table of the normal law
        assert f'<p class="statement{box}">' in body
        assert f"at most {accuracy} accuracy" in body


@pytest.mark.parametrize("kind", ["tensor", "stream", "asymmetric"])
def test_a_page_begins_with_the_verdict(kind, pages):
    reader = Reader(pages[kind].read_text(encoding="utf-8"))
    body = (
        "".join(reader.words).split("<script>alert(2)</script>")[2].strip()
    )  # after the title and the heading
    assert body.startswith(RESULTS[kind]().verdict)


def test_a_private_page_says_what_clipping_does_and_that_doing_it_again_spends_again(pages):
    private, other, plain = (
        " ".join(" ".join(Reader(pages[kind].read_text()).words).split())
        for kind in ("private", "not private", "stream")
    )
    assert "Clipping biases. Every row longer than 1 was scaled down to that length" in private
    assert "The errors above are the noise alone and do not include this bias." in private
    assert "1.1 75% 1.5 30% 2 12%" in private  # 1.1⁻³, 1.5⁻³ and 2⁻³
    assert "Running this again spends another ε = 1 of the privacy of every record" in private
    assert "Running this again spends" not in other  # whose noise was that of a test
    assert "Clipping" not in plain
    assert "Running this again spends" not in plain


def test_bars_are_sorted_and_named_by_the_result_itself(tmp_path):
    vectors = np.array([[0.1, 0.2], [0.9, 0.1], [-0.4, 0.3], [0.0, 0.9]])
    result = StreamDecomposition(Components([2.0, 1.0], vectors), None, None, 10).with_names(
        ["a", "b", "<c>", "d"]
    )
    write_report(result, tmp_path / "page.html", n_top=3)
    text = (tmp_path / "page.html").read_text()
    largest = vectors[:, 0] / np.linalg.norm(vectors[:, 0])
    shown = (
        f"0: weight {result.weights[0]:.4g}. b {largest[1]:+.2f}, &lt;c&gt; {largest[2]:+.2f}, a "
        f"{largest[0]:+.2f}"
    )
    assert f'aria-label="{shown}"' in text
    assert "Cosines between components" in text
    write_report(result, tmp_path / "other.html", names=["w", "x", "y", "z"])
    assert ">x<" in (tmp_path / "other.html").read_text()


def test_the_same_result_gives_the_same_page(tmp_path):
    result = RESULTS["tensor"]()
    for name in ("a", "b"):
        write_report(result, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.slow
def test_a_page_of_many_wide_components_stays_small(tmp_path):
    vectors = np.linalg.qr(np.random.default_rng(0).standard_normal((20_000, 40)))[0]
    result = StreamDecomposition(Components(np.linspace(2, 1, 40), vectors), None, None, 1)
    write_report(result, tmp_path / "page.html")
    # 12 vectors are drawn with 400 stretches each, two numbers of at most 30 characters a stretch,
    # up and down: below 12 · 400 · 4 · 30 = 576 KB; the rest is tables and style.
    assert (tmp_path / "page.html").stat().st_size < 800_000


def test_an_old_page_stays_if_the_new_one_fails(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")

    def sections():
        yield Section("first", "")
        raise RuntimeError("no second section")

    with pytest.raises(RuntimeError, match="no second section"):
        write_page(path, title="new", subtitle="", sections=sections())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


VISIBLE = """
(() => {
  const width = document.documentElement.clientWidth, wrong = [];
  for (const each of document.querySelectorAll("h1, h2, figure, table, pre, .tiles div, figure svg text")) {
    const box = each.getBoundingClientRect(), style = getComputedStyle(each);
    if (box.width < 1 || box.height < 1 || style.visibility !== "visible")
      { if (!each.closest("details:not([open])")) wrong.push("not shown: " + each.tagName + " " + each.textContent); }
    const scrolled = each.parentElement.closest("figure, .wide");
    if (!(scrolled && getComputedStyle(scrolled).overflowX === "auto") && (box.left < -1 || box.right > width + 1))
      wrong.push("beyond the page: " + each.tagName + " " + each.textContent.slice(0, 40));
    const picture = each.tagName === "text" && each.ownerSVGElement.getBoundingClientRect();
    if (picture && (box.left < picture.left - 1 || box.right > picture.right + 1
                    || box.top < picture.top - 1 || box.bottom > picture.bottom + 1))
      wrong.push("cut off: " + each.textContent.slice(0, 40));
  }
  return wrong;
})()
"""
HIGHEST_ROW = """
Math.max(...[...document.querySelectorAll("table.stacked tbody tr")].map(each => each.getBoundingClientRect().height))
"""
LETTERS = """
(() => { const sizes = [...document.querySelectorAll("figure svg")].flatMap(svg => {
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  const plain = [...svg.querySelectorAll("text")].filter(each => !each.querySelector("tspan"));
  return plain.map(each => scale * parseFloat(getComputedStyle(each).fontSize));
}); return [Math.min(...sizes), Math.max(...sizes)]; })()
"""
COLOURS = """
(() => [...document.querySelectorAll("body, h1, td, figure svg text")].map(each => {
  const style = getComputedStyle(each);
  return each.tagName === "text" ? style.fill : each.tagName === "BODY" ? style.backgroundColor : style.color;
}))()
"""


def luminance(colour):
    """Return the relative luminance of a colour, as WCAG 2 defines it."""
    channels = np.array([int(part) for part in re.findall(r"\d+", colour)[:3]]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.slow
@pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)"
)
def test_a_real_browser_shows_every_page_light_and_dark_without_a_complaint(pages, tmp_path):
    with Browser() as browser:
        for kind, path in pages.items():
            for scheme, width in (("light", 1200), ("dark", 1200), ("light", 390), ("dark", 390)):
                browser.open(path, scheme=scheme, width=width)
                assert browser.complaints() == [], kind
                assert browser.requests() == [path.as_uri()], kind
                assert browser.evaluate(VISIBLE) == [], (kind, scheme, width)
                # A row of the table is some lines of text, and letters of figures are neither tiny
                # nor giant.
                assert browser.evaluate(HIGHEST_ROW) < 600, (kind, width)
                low, high = browser.evaluate(LETTERS)
                assert 6 <= low <= high <= 20, (kind, width)
                assert browser.evaluate("document.title") == "<script>alert(2)</script>"
                ground, *colours = browser.evaluate(COLOURS)
                assert (luminance(ground) > 0.5) == (scheme == "light")
                for colour in colours:
                    # WCAG 2 asks for a contrast of 4.5 between text and ground.
                    light, dark = sorted((luminance(ground), luminance(colour)), reverse=True)
                    assert (light + 0.05) / (dark + 0.05) >= 4.5, (kind, scheme, colour)
            browser.screenshot(tmp_path / f"{kind}.png")
