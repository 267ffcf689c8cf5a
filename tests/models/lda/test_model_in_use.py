"""A topic model in use: it holds its words, reads texts, and shows topics in the forms that people
and tools read.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import sys

import numpy as np
import pytest

from odeco._util.files import read_contents
from odeco.cli.learn import make_command
from odeco.cli.models import MODELS
from odeco.datasets import planted_topics
from odeco.errors import VocabularyError
from odeco.models import TensorLDA
from odeco.models.lda.display import lift, relevance

pytestmark = pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")

#: Two topics that share one word, of very different sizes.
SEA, LAND, BOTH = ("ship", "sail", "harbour"), ("field", "plough", "harvest"), "weather"
TOPICS = np.array([[0.25, 0.25, 0.25, 0, 0, 0, 0.25], [0, 0, 0, 0.25, 0.25, 0.25, 0.25]])
WORDS = [*SEA, *LAND, BOTH]


def texts_of(counts):
    return [" ".join(np.repeat(WORDS, row)) for row in counts.toarray()]


@pytest.fixture(scope="module")
def corpus():
    return planted_topics(800, 7, [0.05, 0.2], document_length=20, topics=TOPICS, rng=0)


@pytest.fixture(scope="module")
def model(corpus):
    return TensorLDA(2, max_iter=3, random_state=0).fit_text(
        texts_of(corpus.counts), max_share=1.0, stop_words=()
    )


def test_topics_are_ordered_by_their_share_with_all_that_is_said_of_them(corpus, model):
    assert model.shares_[0] > model.shares_[1]
    np.testing.assert_allclose(model.shares_.sum(), 1)
    assert set(model.top_words(3)[0]) <= {*LAND, BOTH}  # 0.2 of 0.25 of all words
    # The order of the moments is that of the Dirichlet parameters; turned round, everything about
    # topics turns too.
    unordered = model._learnt.fit.params
    turned = type(unordered)(
        unordered.topic_word[::-1],
        unordered.totals[::-1],
        unordered.alpha[::-1],
        unordered.eta,
        unordered.diagnostics,
    ).largest_first()
    np.testing.assert_array_equal(turned.topic_word, unordered.topic_word)
    np.testing.assert_array_equal(turned.alpha, unordered.alpha)
    np.testing.assert_array_equal(turned.diagnostics.weights, unordered.diagnostics.weights[::-1])


def test_a_saved_model_reads_texts_as_the_first_were_read(corpus, model, tmp_path):
    model.save(tmp_path / "model.npz")
    again = TensorLDA.load(tmp_path / "model.npz")
    assert again.words_.tolist() == sorted(WORDS)
    assert again.tokenizer_ == "words"
    # Capitals, signs, unknown words: the same counts, so the same bits.
    shares = again.transform_text(["Ship! ship, SAIL; unheard.", "", "plough"])
    order = np.argsort(WORDS)
    counts = np.array([[2, 1, 0, 0, 0, 0, 0], [0] * 7, [0, 0, 0, 0, 1, 0, 0]])[:, order]
    np.testing.assert_array_equal(shares, again.transform(counts))
    np.testing.assert_allclose(shares[1], model.doc_topic_prior_ / model.doc_topic_prior_.sum())
    # Three words that only the smaller topic has, with the planted α: (3 + 0.05)/(3 + 0.25) = 0.94.
    assert shares[0, 1] > 0.9
    assert shares[2, 0] > 0.9


def test_texts_cut_at_blanks_stay_as_they_are(tmp_path):
    texts = ["New_York C++ 2021 x", "Paris R 1999 x"] * 40
    model = TensorLDA(1, max_iter=0).fit_text(texts, tokenizer="blanks", max_share=0.6)
    assert model.words_.tolist() == [
        "1999",
        "2021",
        "C++",
        "New_York",
        "Paris",
        "R",
    ]  # "x" is in all of them
    model.save(tmp_path / "model.npz")
    again = TensorLDA.load(tmp_path / "model.npz")
    assert again.tokenizer_ == "blanks"
    assert again.transform_text(["C++ c++"]).shape == (1, 1)
    chosen = TensorLDA(1, max_iter=0).fit_text(
        ["R R C++"] * 5, words=["R", "C++"], tokenizer="blanks"
    )
    assert chosen.words_.tolist() == ["R", "C++"]
    assert TensorLDA(1, max_iter=0).fit_text(
        ["Paris paris PARIS"], words=["PARIS"] * 2
    ).words_.tolist() == ["paris"]


def test_a_model_of_counts_is_told_its_words_and_a_stream_keeps_those_of_its_first_batch(
    corpus, tmp_path
):
    model = TensorLDA(2, max_iter=0, random_state=0).fit(corpus.counts, words=WORDS)
    assert model.words_.tolist() == WORDS
    assert model.tokenizer_ is None
    assert model.transform_text(["ship"]).shape == (1, 2)
    stream = TensorLDA(2, max_iter=0, random_state=0).partial_fit(
        corpus.counts[:400], words=WORDS, tokenizer="words"
    )
    stream.save(tmp_path / "stream.npz")
    stream = TensorLDA.load(tmp_path / "stream.npz").partial_fit(corpus.counts[400:])
    assert (stream.words_.tolist(), stream.tokenizer_) == (WORDS, "words")
    with pytest.raises(
        VocabularyError,
        match=r"^`words` must be one word for each of the 7 columns, and no word twice",
    ):
        model.fit(corpus.counts, words=["ship"] * 7)
    assert model.words_.tolist() == WORDS  # an error leaves the model as it was
    nameless = model.fit(corpus.counts)
    assert nameless.top_words(1)[0][0] in {f"x{place}" for place in range(7)}
    with pytest.raises(
        AttributeError, match=r"given the words of its 7 columns\. It was not\. Call fit_text"
    ):
        _ = nameless.words_
    with pytest.warns(UserWarning, match=r"1 of its 7 words are never found"):
        model.fit(corpus.counts, words=[*WORDS[:6], "2021"]).transform_text(["ship"])


def test_the_names_of_columns_are_the_words_of_a_model_that_has_no_others(corpus, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(corpus.counts.toarray(), columns=WORDS)
    TensorLDA(2, max_iter=0, random_state=0).fit(frame).save(tmp_path / "old.npz")
    contents = read_contents(
        tmp_path / "old.npz"
    )  # names of columns, no words, nothing about texts
    assert "fit.context.words" not in contents.arrays
    old = TensorLDA.load(tmp_path / "old.npz")
    assert old.tokenizer_ is None
    assert old.words_.tolist() == WORDS
    assert old.transform_text(["ship and sail"])[0].max() > 0.9


def test_what_is_no_text_is_refused(model):
    with pytest.raises(
        TypeError,
        match=r"^`texts` must be a sequence of texts\. Got one text\. Put it into a list\.$",
    ):
        model.transform_text("ship")
    with pytest.raises(
        TypeError, match=r"^Every text must be a str\. Got int at place 1\. Convert it\.$"
    ):
        model.transform_text(["ship", 7])
    with pytest.raises(
        ValueError, match=r"^`tokenizer` must be one of 'words', 'blanks'\. Got '.\+'\.$"
    ):
        TensorLDA(1).fit_text(["ship"], tokenizer=".+")


def test_relevance_and_lift_are_their_formulas():
    topics, shares = np.array([[0.6, 0.4, 0.0], [0.2, 0.0, 0.8]]), np.array([0.75, 0.25])
    frequencies = [0.5, 0.3, 0.2]
    np.testing.assert_allclose(lift(topics, shares), topics / frequencies)
    with np.errstate(divide="ignore"):
        expected = 0.3 * np.log(topics) + 0.7 * np.log(topics / frequencies)
    np.testing.assert_allclose(relevance(topics, shares, 0.3), expected)
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(relevance(topics, shares, 1.0), np.log(topics))
    with pytest.raises(
        ValueError, match=r"must be a number from 0 \(lift\) to 1 \(probability\)\. Got 2\.$"
    ):
        relevance(topics, shares, 2)


def test_a_shared_word_leads_by_probability_but_not_by_lift(model):
    # The shared word has a quarter of both topics, as the own words of each: by lift it is last of
    # the four.
    assert all(BOTH in words for words in model.top_words(4))
    assert all(BOTH not in words for words in model.top_words(3, relevance=0.0))
    assert model.lift().shape == model.relevance().shape == (2, 7)


@pytest.mark.slow
def test_a_figure_shows_the_leading_words_of_every_topic(model):
    figure = model.plot_topics(3, n_columns=1)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [f"{number} · {share:.1%}" for number, share in enumerate(model.shares_)]
    shown = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    assert shown == model.top_words(3)
    figure.savefig(io.BytesIO(), format="png")
    strange = TensorLDA(1, max_iter=0).fit_text(
        ["$x$ $y^ z"] * 6, tokenizer="blanks", max_share=1.0
    )
    strange.plot_topics().savefig(io.BytesIO(), format="png")  # no formula


def test_verbose_writes_to_stdout_and_progress_to_stderr(corpus):
    for settings, options, on_stdout, on_stderr in (
        ({"verbose": 1}, {}, True, False),
        ({}, {"progress": True}, False, True),
        ({}, {}, False, False),
    ):
        stdout, stderr = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            TensorLDA(2, max_iter=2, random_state=0, **settings).fit(corpus.counts, **options)
        assert bool(stdout.getvalue()) == on_stdout
        assert bool(stderr.getvalue()) == on_stderr
    with contextlib.redirect_stdout(stdout):
        TensorLDA(2, max_iter=2, random_state=0, verbose=2).fit(corpus.counts)
    lines = stdout.getvalue().splitlines()
    assert lines[:5] == [
        f"[TensorLDA] {stage}"
        for stage in ("pairs", "triples", "sweeps", "sweeps: 1 of 2", "sweeps: 2 of 2")
    ]
    assert lines[5].startswith("[TensorLDA] done after ")


@pytest.mark.parametrize("missing", [("rich", "rich.progress"), ("rich", "rich.progress", "tqdm")])
def test_progress_needs_no_package(corpus, missing, monkeypatch, capsys):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    told = []
    TensorLDA(2, max_iter=2, random_state=0).fit(
        corpus.counts, progress=True, callback=lambda *stage: told.append(stage)
    )
    assert ("sweeps", 2, 2) in told
    assert "sweeps" in capsys.readouterr().err


def test_a_private_fit_is_silent(corpus, capsys):
    told = []
    model = TensorLDA(2, epsilon=2.0, delta=1e-6, random_state=0, verbose=2)
    model.fit(corpus.counts, words=WORDS, progress=True, callback=lambda *stage: told.append(stage))
    assert told == []
    assert capsys.readouterr() == ("", "")
    # Words that do not stand clear of their noise are left out.
    clear = model.trust_.clear_words(model.topic_word_)
    for topic, words in enumerate(model.top_words(7)):
        assert {*words} == {WORDS[place] for place in np.flatnonzero(clear[topic])}


def test_texts_are_learnt_privately_with_words_that_the_same_guarantee_covers():
    texts = ["red apple", "green apple", "green pear", "my secret"] * 1000
    texts[17] = "password"
    model = TensorLDA(1, epsilon=4.0, delta=1e-8, random_state=0).fit_text([*texts, None])
    assert "password" not in model.words_
    assert "apple" in model.words_
    assert model.privacy_.charges[0].mechanism.startswith("words whose noisy votes reach")
    assert (model.privacy_.epsilon, model.privacy_.delta) == (4.0, 1e-8)
    assert model.n_samples_seen_ == 4001


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_more_topics_than_words_or_documents_support_are_refused_with_the_largest_number(method):
    counts = np.array([[2, 1, 1, 0], [1, 2, 1, 0], [1, 1, 2, 0], [3, 0, 1, 0], [1, 0, 1, 0]])

    def refused(most, k, documents=counts, **settings):
        said = (
            rf"`n_components` must be at most {most} for these documents.* Got n_components={k}, "
        )
        with pytest.raises(ValueError, match=said):
            getattr(TensorLDA(k, max_iter=0, random_state=0, **settings), method)(documents)

    refused(3, 4)  # of four columns, three are words that occur
    refused(2, 3, counts[[0, 1, 4]])  # of three documents, two have three words
    if method == "fit":
        private = {"epsilon": 1.0, "delta": 1e-3}
        refused(4, 5, **private)  # the columns, whether or not their words occur
        refused(3, 4, counts[:3], **private)
    assert getattr(TensorLDA(3, max_iter=0, random_state=0), method)(counts).topic_word_.shape == (
        3,
        4,
    )


def test_no_topic_is_learnt_before_their_number_is_checked(monkeypatch):
    monkeypatch.setattr(
        "odeco.models.lda.spectral._find_basis", lambda *_: pytest.fail("the work has begun")
    )
    with pytest.raises(ValueError, match="must be at most 4"):
        TensorLDA(5, random_state=0).fit(np.eye(4, dtype=int) + 1)


def test_documents_that_say_nearly_the_same_are_shown_once(model):
    # The columns are field, harbour, harvest, plough, sail, ship, weather.
    base = np.array([0, 6, 0, 6, 6, 0, 0])
    sea = np.array(
        [
            [0, 6, 0, 0, 6, 6, 0],
            [0, 6, 0, 0, 6, 6, 1],
            [0, 2, 0, 0, 14, 1, 0],
            [0, 6, 0, 0, 6, 7, 0],
        ]
    )
    (_, shown) = model.representative_documents(np.vstack([sea, base]), 3)
    places = [place for place, _ in shown]
    # 18, 19 and 19 words that overlap in 18 at least: one of the three. The third document has 9 in
    # common with 26.
    assert len({0, 1, 3} & set(places)) == 1
    assert 2 in places


def test_the_command_and_python_have_the_same_defaults():
    options = {option.name: option.default for option in make_command(MODELS["topics"]).params}
    learning, counting = (
        inspect.signature(TensorLDA).parameters,
        inspect.signature(TensorLDA.fit_text).parameters,
    )
    assert options["max_iter"] == learning["max_iter"].default
    for name in ("min_documents", "max_share", "max_words", "stop_words", "tokenizer"):
        assert options[name] == counting[name].default


# ---- documents and topics ------------------------------------------------------------------------


def test_shares_in_groups_are_weighted_means_with_the_errors_that_samples_of_documents_have(
    corpus, model
):
    texts, years = texts_of(corpus.counts), np.repeat([2024, 2023], 400)
    years[:3] = 2020, 2021, 2021
    texts[0] = texts[1] = (
        "unheard"  # of one group all words are unknown, of another those of one document
    )
    texts[3] = " ".join(5 * [texts[3]])
    found = model.topics_over(texts, years)
    assert found.groups.tolist() == [2020, 2021, 2023, 2024]
    assert found.n_documents.tolist() == [0, 1, 400, 397]
    proportions, lengths = (
        model.transform_text(texts),
        np.array([20 * (text != "unheard") for text in texts]),
    )
    lengths[3] = 100
    for place, year in enumerate((2021, 2023, 2024), 1):
        own = years == year
        expected = np.average(proportions[own], axis=0, weights=lengths[own])
        np.testing.assert_allclose(found.shares[place], expected)
        left = lengths[own, None] * (proportions[own] - expected)
        n = found.n_documents[place]
        if n > 1:
            np.testing.assert_allclose(
                found.errors[place], np.sqrt(n / (n - 1) * (left**2).sum(0)) / lengths[own].sum()
            )
    assert np.isnan(found.shares[0]).all()
    assert np.isnan(found.errors[:2]).all()
    # Equal lengths: the error is that of a mean. Samples of 50 documents deviate by it; of 16
    # means, the standard deviation is estimated to within 1/√30 = 0.18, and 2.5 times that is
    # allowed.
    samples = model.topics_over(corpus.counts[:, np.argsort(WORDS)], np.arange(800) % 16)
    np.testing.assert_allclose(
        samples.shares.std(axis=0, ddof=1), samples.errors.mean(axis=0), rtol=0.46
    )


def test_groups_must_be_known_for_every_document(model):
    for by, message in (
        ([1], r"^`by` must have one label for each of 2 documents\. Got shape \(1,\)"),
        ([1.0, np.nan], r"^`by` must have no missing label\. Got 1 "),
        ([None, "a"], r"^`by` must have no missing label\. Got 1 "),
        (np.array(["2024-01", "NaT"], "datetime64[M]"), r"no missing label"),
    ):
        with pytest.raises(ValueError, match=message):
            model.topics_over(["ship", "plough"], by)
    months = np.array(["2024-02-03", "2024-01-31"], "datetime64[D]").astype("datetime64[M]")
    assert model.topics_over(["ship", "plough"], months).groups.astype(str).tolist() == [
        "2024-01",
        "2024-02",
    ]


def test_labels_and_documents_show_the_topics(corpus, model):
    land, sea = model.topic_labels()  # the common word is the least characteristic
    assert (set(land.split(", ")), set(sea.split(", "))) == (set(LAND), set(SEA))
    texts = ["ship sail harbour ship", "weather", "field plough"]
    assert [places[0][0] for places in model.representative_documents(texts, 1)] == [2, 0]
    ((_, share),) = model.representative_documents(texts, 1)[1]
    assert share == model.transform_text(texts)[0, 1]
    with pytest.raises(ValueError, match="n_documents"):
        model.representative_documents(texts, 0)


def test_merged_topics_are_the_sum_of_their_parts(tmp_path):
    planted = planted_topics(1500, 40, [0.1, 0.2, 0.3, 0.4], document_length=40, rng=5)
    model = TensorLDA(4, max_iter=5, random_state=0).fit(planted.counts)
    before = model.topic_word_.copy()
    merged = model.merge_topics([[3, 1]])
    assert (model.n_components_, model.n_components) == (4, 4)
    np.testing.assert_array_equal(model.topic_word_, before)
    assert (merged.n_components_, merged.n_components) == (3, 3)
    assert (np.diff(merged.shares_) <= 0).all()
    own = int(np.argmin(np.abs(merged.shares_ - model.shares_[[1, 3]].sum())))
    others = np.delete(np.arange(3), own)
    np.testing.assert_allclose(merged.components_[own], model.components_[[1, 3]].sum(axis=0))
    np.testing.assert_allclose(merged.doc_topic_prior_[own], model.doc_topic_prior_[[1, 3]].sum())
    np.testing.assert_allclose(merged.topic_word_[others], before[[0, 2]])
    # All text has the same frequencies of words, and what the moments said of single topics goes
    # with those that stay.
    np.testing.assert_allclose(merged.shares_ @ merged.topic_word_, model.shares_ @ before)
    assert np.isnan(merged.diagnostics_.weights).tolist() == [place == own for place in range(3)]
    np.testing.assert_array_equal(
        merged.diagnostics_.weights[others], model.diagnostics_.weights[[0, 2]]
    )
    assert merged.summary().startswith("3 topics.\n")
    merged.save(tmp_path / "merged.npz")
    again = TensorLDA.load(tmp_path / "merged.npz")
    np.testing.assert_array_equal(
        again.transform(planted.counts[:5]), merged.transform(planted.counts[:5])
    )
    assert merged.merge_topics([[0, 1, 2]]).n_components_ == 1
    np.testing.assert_array_equal(model.merge_topics([]).topic_word_, before)
    assert merged.partial_fit(planted.counts).n_components_ == 3  # a new stream


@pytest.mark.parametrize("groups", [[[0, 2]], [[0, 1], [1]], [[0, 0]]])
def test_topics_that_are_not_there_or_come_twice_are_not_merged(model, groups):
    with pytest.raises(
        ValueError,
        match=r"^`groups` must have topics from 0 to 1, each of them once at most\. Got \[\[",
    ):
        model.merge_topics(groups)
    with pytest.raises(ValueError, match=r"^`topic` must be an int of at least 0\. Got -1"):
        model.merge_topics([[-1, 0]])


def test_private_topics_are_not_merged(corpus):
    private = TensorLDA(2, epsilon=20.0, delta=1e-6, random_state=0).fit(corpus.counts)
    with pytest.raises(
        ValueError, match=r"^Merged topics must come from a model that is not private"
    ):
        private.merge_topics([[0, 1]])
