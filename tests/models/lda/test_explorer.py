"""The explorer of topics: what it is given, and what a real browser does with it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import warnings

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from test_report import Reader

from odeco.datasets import planted_topics
from odeco.models import TensorLDA
from odeco.models.lda.display import relevance
from odeco.models.lda.explorer import explorer_data, json_text, lay_out, write_topics_report

N_TOPICS, N_WORDS, SHOWN = 5, 60, 18
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!--",
    "Zürich",
    "文字",
]
WORDS = np.array([*HOSTILE, *(f"word{number:02d}" for number in range(N_WORDS - len(HOSTILE)))])


def fitted(**settings):
    corpus = planted_topics(3000, N_WORDS, [0.3, 0.2, 0.2, 0.1, 0.1], document_length=40, rng=1)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # that private topics are deep in noise is not what is tested here
        model = TensorLDA(N_TOPICS, max_iter=0, random_state=0, **settings).fit(
            corpus.counts, words=WORDS
        )
    return model, None if settings else model.coherence(corpus.counts)


@pytest.fixture(scope="module")
def both():
    return fitted()


@pytest.fixture(scope="module")
def model(both):
    return both[0]


@pytest.fixture(scope="module")
def private():
    return fitted(epsilon=3.0, delta=1e-6)[0]


def examples_of(model):
    """Two documents for each topic, of its leading words and of text that tries to break out."""
    texts = [f"{' '.join(own)} </script><b>bold</b> & more" for own in model.top_words(4)]
    return [
        [(f"file <{topic}>.txt", text, 0.9), ("b.txt", text, 0.8)]
        for topic, text in enumerate(texts)
    ]


@pytest.fixture(scope="module")
def pages(tmp_path_factory, both, private):
    folder = tmp_path_factory.mktemp("explorer")
    for name, each, npmi in (("page", *both), ("private", private, None)):
        write_topics_report(
            each,
            folder / f"{name}.html",
            title="Five </title> topics",
            npmi=npmi,
            examples=examples_of(both[0]),
        )
    return folder


def data_in(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(
        re.search(r'<script type="application/json" id="explorer-data">(.*?)</script>', text)[1]
    )


# ---- what it is given ----------------------------------------------------------------------------


def test_no_text_can_end_the_element_it_stands_in():
    data = {
        "texts": ["</script>", "<!--<script>", "]]>", "&amp;", "\u2028", "\\u003c", '"', "\x00"]
    }
    text = json_text(data)
    assert not set("<>&") & set(text)
    assert json.loads(text) == data


@pytest.mark.slow
def test_the_policy_of_the_page_names_its_script_and_no_other(pages):
    text = (pages / "page.html").read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src "
        "data:; media-src data:; base-uri 'none'; form-action 'none'"
    )
    assert Reader(text).tags.count("script") == 2  # the data, and the script
    assert not {"b", "img"} & set(Reader(text).tags)
    assert re.findall(r"https?://(?!www.w3.org/)", text) == []
    # Nothing in the script makes markup of text, or asks for anything.
    forbidden = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|fetch\(|XMLHttp|import\(|Function\("
    assert re.findall(forbidden, script) == []
    assert len(script.encode()) < 40_000


def test_the_words_of_every_step_of_the_slider_are_there(model):
    data = explorer_data(model._learnt.fit.params, model.words_, None, None)
    for step in range(11):
        scores = relevance(model.topic_word_, model.shares_, step / 10)
        for topic, row in enumerate(scores):
            first = set(model.words_[np.argsort(-row)[:SHOWN]])
            assert first <= {data["words"][place] for place in data["topics"][topic]["words"]}


def test_shares_of_words_are_those_of_bayes(model):
    data = explorer_data(model._learnt.fit.params, model.words_, None, None)
    joint = model.shares_[:, None] * model.topic_word_
    posterior = joint / joint.sum(axis=0)
    for place, word in enumerate(data["words"]):
        column = posterior[:, model.words_.tolist().index(word)]
        shown = np.zeros(N_TOPICS)
        shown[data["holders"][place][::2]] = np.array(data["holders"][place][1::2]) / 1000
        # Rounded to a thousandth; shares below a fiftieth are left out.
        np.testing.assert_allclose(shown, np.where(column >= 0.02, column, 0.0), atol=0.00051)
    assert np.all(np.diff(data["likeness"][0]) <= 100)
    assert np.diag(data["likeness"]).tolist() == [100] * N_TOPICS


def test_circles_do_not_overlap_and_lie_on_the_map(model):
    layout = lay_out(model.topic_word_, model.shares_)
    apart = np.linalg.norm(layout.places[:, None] - layout.places[None], axis=2) + 10 * np.eye(
        N_TOPICS
    )
    assert np.all(apart > layout.radii[:, None] + layout.radii[None])
    assert np.all(layout.places - layout.radii[:, None] >= 0)
    assert np.all(layout.places + layout.radii[:, None] <= layout.size)
    np.testing.assert_allclose(
        layout.radii**2 / layout.radii[0] ** 2, model.shares_ / model.shares_[0]
    )
    single = lay_out(np.array([[0.5, 0.5]]), np.ones(1))
    assert np.all(np.isfinite(single.places))


@pytest.mark.slow
def test_a_private_page_shows_no_document_and_only_words_that_are_clear(pages, private):
    data = data_in(pages / "private.html")
    clear = private.trust_.clear_words(private.topic_word_)
    assert data["measure"] == "trust"
    for topic, own in enumerate(data["topics"]):
        assert own["documents"] == []
        assert own["clear"] == bool(private.trust_.clear[topic])
        assert {data["words"][place] for place in own["words"]} <= set(private.words_[clear[topic]])


# ---- in a browser --------------------------------------------------------------------------------

in_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)"
)
LINES = "[...document.querySelectorAll('.lines .word')].map(each => each.textContent)"
ROWS = "[...document.querySelectorAll('.topics .badge')].map(each => Number(each.textContent))"
CHOSEN_ROW = "[...document.querySelectorAll('.row')].findIndex(each => each.matches('.chosen'))"
QUOTES = "[...document.querySelectorAll('.documents blockquote')].map(each => each.innerText)"
RADII = (
    "[...document.querySelectorAll('.spot')].map(each => ['.part', '.whole'].map(name => "
    "each.querySelector(name).r.baseVal.value))"
)
LETTER = (
    "parseFloat(getComputedStyle(document.querySelector('.spot .number')).fontSize) * "
    "document.querySelector('.map svg').getBoundingClientRect().width / 1000"
)
CHOSEN = "Number(document.querySelector('.head .badge').textContent)"


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (apt-get install chromium)")
    with Browser() as started:
        yield started


@pytest.fixture
def explored(browser, pages):
    """The page in a browser; after each test, it must not have complained or asked for anything."""
    browser.open(pages / "page.html", width=1200)
    yield browser
    assert browser.complaints() == []
    asked = [each for each in browser.requests() if not each.startswith("data:")]
    assert asked == [(pages / "page.html").as_uri()]


def slide(browser, weight):
    browser.evaluate(
        "(() => { const slider = document.getElementById('explorer-weight'); slider.value = "
        f"{weight}; slider.dispatchEvent(new Event('input')); }})()"
    )


@in_browser
def test_a_click_on_the_map_shows_words_and_documents_of_that_topic(explored, model):
    for topic in (3, 0, 4):
        explored.click(f".spot:nth-of-type({topic + 1}) .whole")
        assert explored.evaluate(CHOSEN) == topic
        assert explored.evaluate("document.querySelectorAll('.spot.chosen').length") == 1
        assert (
            explored.evaluate(
                "[...document.querySelectorAll('.row')].findIndex(each => each.matches('.chosen'))"
            )
            == topic
        )
        quotes = explored.evaluate(QUOTES)
        assert [quote.splitlines()[0] for quote in quotes] == [
            text for _, text, _ in examples_of(model)[topic]
        ]
        marked = explored.evaluate(
            "[...document.querySelectorAll('.documents mark')].map(each => each.textContent)"
        )
        assert marked
        assert explored.evaluate("location.hash") == f"#topic-{topic}"
    explored.click(".topics li:nth-child(2) .row")
    assert explored.evaluate(CHOSEN) == 1
    explored.click(".steps button:last-child")
    assert explored.evaluate(CHOSEN) == 2


@in_browser
def test_the_slider_orders_words_as_the_model_does(explored, model):
    explored.click(".spot:nth-of-type(2) .whole")
    for step in range(11):
        slide(explored, step / 10)
        scores = relevance(model.topic_word_, model.shares_, step / 10)[1]
        shown = explored.evaluate(LINES)
        assert len(shown) == SHOWN
        places = [model.words_.tolist().index(word) for word in shown]
        # The page holds numbers of three digits: neighbours may change places if they differ by
        # less than that.
        assert np.all(np.diff(scores[places]) < 0.02)
        assert min(scores[places]) > np.sort(scores)[-SHOWN] - 0.02
    assert explored.evaluate("document.querySelector('.spot.chosen .label').textContent")


@in_browser
def test_a_word_that_is_searched_for_leads_to_its_topics(explored, model):
    joint = model.shares_[:, None] * model.topic_word_
    word = int(np.argmax((joint / joint.sum(axis=0)).max(axis=0)[5:])) + 5
    shares = joint[:, word] / joint[:, word].sum()
    explored.click("#explorer-search")
    explored.type(WORDS[word][:5])
    assert explored.evaluate("document.querySelectorAll('#explorer-found li').length") > 1
    explored.type(WORDS[word][5:])
    explored.press("Enter")
    assert explored.evaluate(CHOSEN) == int(np.argmax(shares))
    assert explored.evaluate("document.querySelector('.banner strong').textContent") == WORDS[word]
    first = explored.evaluate("document.querySelector('.chip').textContent")
    assert first.startswith(f"{np.argmax(shares)} · {100 * shares.max():.0f}")
    # The area of the inner circle is the share of the word.
    parts = np.array([part**2 / whole**2 for part, whole in explored.evaluate(RADII)])
    np.testing.assert_allclose(parts, np.where(shares >= 0.02, shares, 0), atol=0.01)
    explored.evaluate("document.getElementById('explorer-sort').value = 'word'")
    explored.evaluate("document.getElementById('explorer-sort').dispatchEvent(new Event('change'))")
    assert explored.evaluate(ROWS)[0] == int(np.argmax(shares))
    explored.click("#explorer-search")
    explored.press("Escape")
    assert explored.evaluate("document.querySelector('.banner').hidden")
    explored.type("no such word")
    assert explored.evaluate("document.querySelector('#explorer-found').innerText").startswith(
        "None of the leading"
    )
    explored.press("Enter")  # and nothing happens
    assert explored.evaluate("document.querySelector('.banner').hidden")


@in_browser
def test_topics_are_sorted_as_is_asked(explored, model, both):
    explored.click(".spot:nth-of-type(3) .whole")

    def by(choice):
        explored.evaluate(f"document.getElementById('explorer-sort').value = '{choice}'")
        explored.evaluate(
            "document.getElementById('explorer-sort').dispatchEvent(new Event('change'))"
        )
        return explored.evaluate(ROWS)

    assert by("share") == np.argsort(-model.shares_, kind="stable").tolist()
    assert by("measure") == np.argsort(-both[1], kind="stable").tolist()
    likeness = np.rint(100 * np.sqrt(model.topic_word_) @ np.sqrt(model.topic_word_[2]))
    likeness[2] = 1000
    assert by("likeness") == np.argsort(-likeness, kind="stable").tolist()
    names = explored.evaluate(
        "[...document.querySelectorAll('.topics .name')].map(each => each.textContent)"
    )
    assert len(by("name")) == len(names) == N_TOPICS


@in_browser
def test_the_keyboard_is_enough(explored):
    explored.evaluate("document.querySelector('.spot').focus()")
    explored.press("ArrowRight")
    explored.press("ArrowRight")
    assert explored.evaluate(CHOSEN) == 2
    assert explored.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    explored.evaluate("document.querySelector('.line').focus()")
    word = explored.evaluate("document.activeElement.querySelector('.word').textContent")
    explored.press("Enter")
    assert explored.evaluate("document.querySelector('.banner strong').textContent") == word


@in_browser
def test_texts_stay_texts(explored):
    explored.click("#explorer-search")
    explored.type("</scr")
    explored.press("Enter")
    assert explored.evaluate("document.querySelector('.banner strong').textContent") == HOSTILE[0]
    assert (
        explored.evaluate(
            "document.querySelectorAll('#explorer b, #explorer img, #explorer script').length"
        )
        == 0
    )
    assert explored.evaluate("document.title") == "Five </title> topics"


@in_browser
def test_no_other_script_runs_in_the_page(browser, pages, tmp_path):
    text = (pages / "page.html").read_text(encoding="utf-8")
    (tmp_path / "page.html").write_text(
        text.replace("</main>", "<script>window.broken = 1</script></main>"), "utf-8"
    )
    browser.open(tmp_path / "page.html")
    assert browser.evaluate("typeof window.broken") == "undefined"
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())
    assert browser.evaluate("document.documentElement.classList.contains('live')")


@in_browser
def test_without_scripts_the_page_shows_words_and_documents(browser, pages):
    browser.run_scripts(False)
    try:
        browser.open(pages / "page.html")
        assert not browser.evaluate("document.documentElement.classList.contains('live')")
        assert (
            browser.evaluate("getComputedStyle(document.querySelector('.explore')).display")
            == "none"
        )
        heights = (
            "[...document.querySelectorAll('.plain')].map(each => "
            "each.getBoundingClientRect().height > 100)"
        )
        assert browser.evaluate(heights) == [True] * 2
        assert browser.evaluate("document.querySelectorAll('article').length") == N_TOPICS
    finally:
        browser.run_scripts(True)
    browser.open(pages / "page.html")
    assert browser.evaluate("getComputedStyle(document.querySelector('.plain')).display") == "none"


#: Elements with text whose colour or ground is their own, each with the contrast that WCAG 2
#: defines.
CONTRASTS = """
(() => {
  const context = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const paint = (colours) => {
    context.clearRect(0, 0, 1, 1);
    for (const colour of colours) { context.fillStyle = colour; context.fillRect(0, 0, 1, 1); }
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map(part => part / 255)
      .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
      .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  };
  const wrong = [];
  const read = ".badge, .value, .word, .name, mark, cite, .key, h3, .chip, .spot.chosen .number";
  for (const each of document.getElementById("explorer").querySelectorAll(read)) {
    const drawn = each.matches(".number"), style = getComputedStyle(each);
    const grounds = [];
    for (let outer = each; outer; outer = outer.parentElement) grounds.unshift(getComputedStyle(outer).backgroundColor);
    if (drawn) grounds.push(getComputedStyle(each.parentElement.querySelector(".whole")).fill);
    const ground = paint(grounds), text = paint([...grounds, drawn ? style.fill : style.color]);
    const contrast = (Math.max(ground, text) + 0.05) / (Math.min(ground, text) + 0.05);
    if (contrast < 4.5) wrong.push(`${each.getAttribute("class")} ${each.textContent} ${contrast.toFixed(2)}`);
  }
  return wrong;
})()
"""
SMALL = """
[...document.querySelectorAll("#explorer button, #explorer input, #explorer select")]
  .map(each => [each.className, each.getBoundingClientRect()]).filter(([, box]) => box.height < 24 || box.width < 24)
  .map(([name, box]) => `${name} ${box.width} x ${box.height}`)
"""


@in_browser
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_and_used_at_every_width(browser, pages, scheme, width, tmp_path):
    for name in ("page", "private"):
        browser.open(pages / f"{name}.html", scheme=scheme, width=width)
        browser.click(".spot:nth-of-type(3) .whole")
        assert browser.evaluate(CHOSEN) == 2
        if browser.evaluate("document.querySelectorAll('.line').length"):
            browser.click(".line")
        # Transitions of colours end before they are read.
        browser.evaluate("document.getAnimations().forEach(each => each.finish())")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate(CONTRASTS) == []
        assert browser.evaluate(SMALL) == []  # WCAG 2.2 asks for targets of 24 pixels
        assert 11 < browser.evaluate(LETTER) < 14  # on the screen, whatever the size of the map
        assert browser.complaints() == []
        assert browser.evaluate("document.querySelectorAll('.shelf').length") == (name == "page")
        browser.screenshot(tmp_path / f"{name}.png")


@pytest.mark.slow
@in_browser
def test_a_page_opens_at_the_topic_that_its_address_names(browser, pages):
    browser.open(pages / "page.html", fragment="topic-3")
    assert browser.evaluate(CHOSEN) == 3
    browser.open(pages / "page.html", fragment="topic-99")
    assert browser.evaluate(CHOSEN) == 0
