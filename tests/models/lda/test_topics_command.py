"""``odeco learn topics`` as a user runs it: planted topics are found, applied to new text, and
mistakes explained.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from command import run_here
from scipy import sparse
from scipy.special import digamma
from test_report import Reader

from odeco.cli.app import LastingInterrupt
from odeco.cli.app import run as odeco_command
from odeco.cli.output import labels_csv
from odeco.datasets import planted_topics
from odeco.models import TensorLDA
from odeco.privacy import LedgerFile, gdp_mu

COMMAND = [sys.executable, "-m", "odeco", "learn", "topics"]
ENVIRONMENT = {**os.environ, "COLUMNS": "160"}
#: Three topics of 20 words each, all equally likely; no word belongs to two topics.
N_TOPICS, N_OWN, ALPHA, LENGTH, N_DOCUMENTS = 3, 20, 0.1, 30, 1500
LETTERS = "bcdfghjklmnpqrstvwxz"
WORDS = [f"{first}{vowel}{first}" for vowel in "aeo" for first in LETTERS]
BLOCKS = [set(WORDS[N_OWN * topic : N_OWN * (topic + 1)]) for topic in range(N_TOPICS)]


def run(*arguments, cwd, text=None):
    words = arguments if arguments[0] == "apply" else ("learn", "topics", *arguments)
    return run_here(*words, cwd=cwd, text=text, COLUMNS="160")


def succeed(*arguments, cwd, text=None):
    done = run(*arguments, cwd=cwd, text=text)
    assert done.returncode == 0, done.stderr
    return done


def notes(done):
    """Return the lines on stderr, but for the stages of the work."""
    stages = ("reading", "learning", "finding topics", "checking on halves", "describing")
    return [line for line in done.stderr.splitlines() if line not in stages]


def fails(code, *arguments, cwd):
    done = run(*arguments, cwd=cwd)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Planted documents as text, as a table and as counts; and files that are wrong in various
    ways.
    """
    path = tmp_path_factory.mktemp("topics")
    topics = np.kron(np.eye(N_TOPICS), np.full(N_OWN, 1 / N_OWN))
    counts = planted_topics(
        N_DOCUMENTS, len(WORDS), [ALPHA] * N_TOPICS, document_length=LENGTH, topics=topics, rng=0
    ).counts
    texts = [
        # A stop word in every document; a word that is in too few; what a page must not take for
        # its own.
        "The "
        + " ".join(np.repeat(WORDS, row))
        + (" rarissime" if number < 3 else "")
        + " <b>&</b>."
        for number, row in enumerate(counts.toarray())
    ]
    (path / "corpus.txt").write_text("".join(text + "\n" for text in texts))
    with (path / "corpus.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *enumerate(texts)])
    (path / "words.txt").write_text("".join(word + "\n" for word in WORDS))
    # Six words of one topic, words that nobody knows, and nothing.
    (path / "new.txt").write_text(" ".join(WORDS[:6]) + "\nunheard of\n\n")
    parts = {
        "data": counts.data,
        "indices": counts.indices,
        "indptr": counts.indptr,
        "shape": counts.shape,
    }
    np.savez(path / "counts.npz", vocabulary=np.array(WORDS), **parts)
    np.savez(path / "other.npz", vocabulary=np.array([*WORDS[1:], "other"]), **parts)
    sparse.save_npz(path / "negative.npz", -counts)
    (path / "empty.txt").write_text("")
    return path


@pytest.fixture(scope="module")
def fitted(folder):
    """The run that most tests look at: JSON, messages, model and page."""
    return succeed(
        *("corpus.txt", "-k", "3", "--max-iter", "10", "--max-share", "1", "--json"),
        *("--out", "model.npz", "--report", "page.html", "--threads", "2"),
        cwd=folder,
    )


def test_topics_of_seed_words_come_first_in_the_order_of_the_file(folder):
    (folder / "seeds.txt").write_text(
        f"third: {WORDS[41]}, {WORDS[42].upper()}\n\nsecond: {WORDS[21]}\n"
    )
    done = succeed(
        *("corpus.txt", "-k", "3", "--max-iter", "5", "--max-share", "1", "--json"),
        *("--seed-words", "seeds.txt", "--out", "seeded.npz"),
        cwd=folder,
    )
    found = [
        {each["word"] for each in topic["words"]} for topic in json.loads(done.stdout)["topics"]
    ]
    assert [
        next(place for place, block in enumerate(BLOCKS) if words <= block) for words in found
    ] == [2, 1, 0]
    assert TensorLDA.load(folder / "seeded.npz").topic_labels()[:2] == ["third", "second"]
    (folder / "wrong.txt").write_text("no colon here\n")
    message = fails(1, "corpus.txt", "-k", "3", "--seed-words", "wrong.txt", cwd=folder)
    assert "Line 1 of wrong.txt must be a label" in message
    assert "seeds.missing" in fails(
        1, "corpus.txt", "-k", "3", "--seed-words", "seeds.missing", cwd=folder
    )
    private = ("corpus.txt", "-k", "3", "--epsilon", "1", "--delta", "1e-6", "--yes")
    assert "--seed-words would read the documents" in fails(
        2, *private, "--seed-words", "seeds.txt", cwd=folder
    )


def test_help_explains_learning_and_applying(tmp_path):
    text = succeed("--help", cwd=tmp_path).stdout
    assert text.startswith("Usage: odeco learn topics [OPTIONS] [FILE...]")
    for section in ("Model:", "Data:", "Privacy:", "Output:", "General:"):
        assert f"\n{section}\n" in text
    shown = {line.split()[0] for line in text.splitlines() if line.startswith("  -")}
    assert {
        "-k,",
        "--column",
        "--vocabulary",
        "--epsilon",
        "--ledger",
        "--out",
        "--report",
        "--debug",
        "-h,",
    } <= shown
    # Examples keep their lines.
    help_of_apply = succeed("apply", "--help", cwd=tmp_path).stdout
    assert "\n    odeco apply model.npz new.csv --column text --by year\n" in help_of_apply
    assert "Usage: odeco apply [OPTIONS] MODEL FILE..." in help_of_apply


def test_planted_topics_are_found_with_their_sizes_and_perplexity(fitted):
    document = json.loads(fitted.stdout)
    # Each topic has about 13,500 words in 20 kinds, and those of other topics none: its 20 leaders
    # are its own.
    found = [{entry["word"] for entry in topic["words"]} for topic in document["topics"]]
    assert sorted(map(sorted, found)) == sorted(map(sorted, BLOCKS))
    # A share of Dirichlet(0.1, 0.1, 0.1) has variance (1/3)(2/3)/1.3; the mean of 1,350 deviates by
    # 0.011. Five times.
    deviation = math.sqrt(2 / 9 / (1 + N_TOPICS * ALPHA) / (0.9 * N_DOCUMENTS))
    shares = [topic["share"] for topic in document["topics"]]
    np.testing.assert_allclose(shares, 1 / 3, atol=5 * deviation)
    np.testing.assert_allclose(sum(shares), 1)
    # Words of one topic come together more often than by chance.
    assert all(topic["npmi"] > 0 for topic in document["topics"])
    # All 60 words are equally likely: perplexity 60 without topics. Shares of train and test are
    # off by 0.011 and 0.034 (absolute; thrice that relatively), which moves the cross entropy by
    # less than 3 (0.033)(0.1) = 0.01.
    assert abs(math.log(document["perplexity"]["unigram"] / 60)) < 0.02
    # With proportions θ known the entropy of a word is log 20 + E H(θ), E H(θ) = ψ(α₀+1) − ψ(α+1).
    # Not knowing θ costs the mixture over all θ at most about ((k−1)/2) log l = 3.4 in a document
    # of 30 words, 0.11 a word, and less in the half that is predicted from the other. H(θ) varies
    # by at most log 3 between documents: 0.55/√150 = 0.045 at most.
    entropy = math.log(N_OWN) + digamma(N_TOPICS * ALPHA + 1) - digamma(ALPHA + 1)
    assert -0.15 < math.log(document["perplexity"]["topics"]) - entropy < 0.11 + 0.15
    assert document["perplexity"]["n_documents"] == N_DOCUMENTS // 10
    assert document["n_documents"] == N_DOCUMENTS
    assert document["n_words"] == len(WORDS)  # neither "the" nor "rarissime"
    assert document["diagnostics"]["n_clear"] == N_TOPICS
    assert document["privacy"] is None
    opening = (
        "1,500 documents, 60 words kept of 62, 30.0 of them in a document on average; 1,350 "
        "training documents"
    )
    said = notes(fitted)
    assert said[0] == opening
    assert [line for line in said if line.startswith("wrote")] == [
        "wrote model.npz",
        "wrote page.html",
    ]


def test_the_saved_model_holds_all_that_new_text_needs(folder, fitted):
    model = TensorLDA.load(folder / "model.npz")
    assert list(model.words_) == sorted(WORDS)
    assert model.tokenizer_ == "words"
    topics = [
        {entry["word"] for entry in topic["words"]} for topic in json.loads(fitted.stdout)["topics"]
    ]
    own = topics.index(BLOCKS[0])
    rows = list(
        csv.reader(succeed("apply", "model.npz", "new.txt", cwd=folder).stdout.splitlines())
    )
    assert rows[0] == [
        "odeco row",
        "odeco topic",
        *(f"odeco topic {number}" for number in range(3)),
    ]
    assert [row[0] for row in rows[1:]] == ["new.txt, line 1", "new.txt, line 2", "new.txt, line 3"]
    shown = np.array([[float(cell) for cell in row[2:]] for row in rows[1:]])
    assert [int(row[1]) for row in rows[1:]] == shown.argmax(axis=1).tolist()
    # Six words that are in one topic only: (6 + α)/(6 + α₀) = 0.97 with the planted α; 0.9 would
    # take α₀ = 1.
    assert shown[0, own] > 0.9
    # Nothing known: the mean of the prior, printed with six digits.
    prior = model.doc_topic_prior_ / model.doc_topic_prior_.sum()
    np.testing.assert_allclose(shown[1:], [prior, prior], rtol=1e-5)

    written = succeed("apply", "model.npz", "new.txt", "--out", "new.csv", cwd=folder)
    assert notes(written) == ["wrote new.csv"]
    document = json.loads(succeed("apply", "model.npz", "new.txt", "--json", cwd=folder).stdout)
    exact = np.array(document["values"])
    np.testing.assert_allclose(exact, shown, rtol=1e-5)
    np.testing.assert_allclose(exact.sum(axis=1), 1)
    counts = np.array([[int(word in WORDS[:6]) for word in sorted(WORDS)]])
    np.testing.assert_array_equal(model.transform(counts), exact[:1])
    np.testing.assert_array_equal(
        model.transform_text((folder / "new.txt").read_text().splitlines()), exact
    )


def test_shares_by_a_column_are_those_of_python(folder, fitted):
    lines = [
        "when,text",
        *(
            f"{year},{' '.join(words)}"
            for year, words in (("b", WORDS), ("a", WORDS[:6]), ("b", []))
        ),
    ]
    (folder / "dated.csv").write_text("\n".join([*lines, f"b,{WORDS[0]}", ""]))
    arguments = ("apply", "model.npz", "dated.csv", "--column", "text", "--by", "when")
    rows = list(csv.reader(succeed(*arguments, cwd=folder).stdout.splitlines()))
    assert rows[0][:3] == ["group", "documents", "topic 0"]
    assert rows[0][-1] == "error of topic 2"
    assert [row[:2] for row in rows[1:]] == [["a", "1"], ["b", "2"]]
    texts = [" ".join(WORDS), " ".join(WORDS[:6]), "", WORDS[0]]
    table = TensorLDA.load(folder / "model.npz").topics_over(texts, ["b", "a", "b", "b"])
    shown = np.array([[float(cell) for cell in row[2:]] for row in rows[1:]])
    np.testing.assert_allclose(shown, np.hstack([table.shares, table.errors]), rtol=1e-5)
    assert "--by must name one column" in fails(1, *arguments[:-1], "year", cwd=folder)


def test_a_saved_model_says_what_it_is(folder, fitted):
    arguments = [sys.executable, "-m", "odeco", "info", "model.npz"]
    done = subprocess.run(
        arguments, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    text = done.stdout
    assert "topics; read with odeco.models.TensorLDA.load" in text
    assert "3 topics, each found again in every half-sample." in text


def test_more_topics_than_words_are_refused_with_the_largest_number(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    arguments = [
        "learn",
        "topics",
        "corpus.txt",
        "-k",
        "61",
        "--max-share",
        "1",
        "--max-iter",
        "0",
        "--json",
    ]
    assert odeco_command(arguments) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "-k must be at most 60 for these documents" in " ".join(said.err.split())


def test_a_saved_model_has_a_page_with_documents_if_they_are_given(
    folder, fitted, monkeypatch, capsys
):
    monkeypatch.chdir(folder)
    assert odeco_command(["report", "model.npz", "--out", "bare.html"]) == 0
    bare = Reader((folder / "bare.html").read_text(encoding="utf-8"))
    assert "The topics" in bare.headings
    assert "blockquote" not in bare.tags
    assert (
        odeco_command(
            [
                "report",
                "model.npz",
                "--out",
                "full.html",
                "--documents",
                "corpus.csv",
                "--column",
                "text",
            ]
        )
        == 0
    )
    text = (folder / "full.html").read_text(encoding="utf-8")
    assert Reader(text).tags.count("blockquote") == 15
    assert "Coherence (NPMI): " in text
    assert "<h1>Topics in model.npz</h1>" in text
    assert odeco_command(["report", "model.npz", "--names", "words.txt"]) == 2
    assert (
        "A model knows the names of its columns or words. Leave out --names."
        in capsys.readouterr().err
    )


def test_the_page_shows_topics_documents_and_diagnostics_and_escapes_text(folder, fitted):
    text = (folder / "page.html").read_text(encoding="utf-8")
    page = Reader(text)
    assert page.headings == [
        *("Explore", "Most typical documents", "The topics", "Figures"),
        *("How far to trust them", "How it was made"),
    ]
    assert page.tags.count("article") == 3
    assert page.tags.count("blockquote") == 15
    assert "b" not in page.tags
    assert "&lt;b&gt;&amp;&lt;/b&gt;" in text
    assert "odeco learn topics corpus.txt -k 3" in text
    perplexity = json.loads(fitted.stdout)["perplexity"]
    assert f"{perplexity['topics']:,.1f}" in text
    assert len(set(page.ids)) == len(page.ids)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
def test_a_browser_shows_the_page_without_a_complaint(folder, fitted):
    with Browser() as browser:
        for scheme, width in (("light", 1100), ("dark", 420)):
            browser.open(folder / "page.html", scheme=scheme, width=width)
            assert browser.complaints() == []
            asked = [each for each in browser.requests() if not each.startswith("data:")]
            assert len(asked) == 1
            assert browser.evaluate("document.querySelectorAll('figure svg').length") == 2
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            # Bars of words are drawn: those of the word with most uses over the whole width of
            # their line.
            bars = (
                "Math.max(...[...document.querySelectorAll('.all')].map(each => "
                "each.getBoundingClientRect().width))"
            )
            assert browser.evaluate(bars) > 80


def test_a_pipe_of_texts_and_a_file_of_counts_give_the_same_topics(folder):
    options = ("-k", "3", "--max-iter", "0", "--vocabulary", "words.txt", "--json")
    piped = succeed("-", *options, cwd=folder, text=(folder / "corpus.txt").read_text())
    assert piped.stdout == succeed("counts.npz", *options, cwd=folder).stdout
    found = [
        {entry["word"] for entry in topic["words"]} for topic in json.loads(piped.stdout)["topics"]
    ]
    assert all(any(words <= block for block in BLOCKS) for words in found)


@pytest.mark.slow
def test_a_private_run_says_what_it_guarantees_and_shows_no_document(folder):
    done = succeed(
        *(
            "corpus.txt",
            "-k",
            "3",
            "--epsilon",
            "4",
            "--delta",
            "1e-6",
            "--vocabulary",
            "words.txt",
        ),
        *("--report", "private.html"),
        cwd=folder,
    )
    guarantee, meaning, ledger, documents, *_, written = notes(done)
    assert guarantee == "The guarantee (ε = 4, δ = 1e-06) is for one document of 1,500 documents."
    assert meaning.startswith(
        "Someone who knows every other document can tell which of two equally likely versions"
    )
    assert ledger.endswith("--ledger FILE --budget E keeps account of them.")
    assert documents == "1,500 documents, 60 words"
    assert written == "wrote private.html"
    assert "perplexity" not in done.stdout
    assert "coherence" not in done.stdout
    assert "Private: epsilon 4, delta 1e-06" in done.stdout
    text = (folder / "private.html").read_text(encoding="utf-8")
    page = Reader(text)
    assert page.headings == [
        *("Explore", "The topics", "Figures", "Privacy", "How it was made"),
    ]
    assert "blockquote" not in page.tags
    assert "coherence 0" not in text


def test_a_private_run_without_a_vocabulary_chooses_it_within_the_same_guarantee(folder):
    done = succeed(
        *(
            "corpus.txt",
            "-k",
            "3",
            "--epsilon",
            "8",
            "--delta",
            "1e-6",
            "--out",
            "private.npz",
            "--json",
        ),
        cwd=folder,
    )
    first, second = notes(done)[3:5]
    n_words = int(first.split()[0])
    assert first.endswith("topics get the rest")
    assert second == f"1,500 documents, {n_words} words"
    found = json.loads(done.stdout)
    assert found["n_words"] == n_words
    words = {entry["word"] for topic in found["topics"] for entry in topic["words"]}
    assert words <= set(WORDS)  # neither the stop word, nor the rare one
    privacy = found["privacy"]
    assert (privacy["epsilon"], privacy["delta"]) == (8.0, 1e-6)
    assert 7.9 < privacy["epsilon_spent"] <= 8.0
    assert privacy["charges"][0]["mechanism"].startswith("words whose noisy votes reach")
    assert privacy["charges"][0]["delta"] == pytest.approx(1e-7)
    model = TensorLDA.load(folder / "private.npz")
    assert model.privacy_.epsilon_spent == privacy["epsilon_spent"]
    assert set(model.words_) <= set(WORDS)


@pytest.mark.slow
def test_runs_share_a_ledger_that_refuses_what_is_too_much(folder, tmp_path):
    private = ("corpus.txt", "-k", "3", "--epsilon", "4", "--delta", "1e-6", "--yes")
    ledger = ("--ledger", tmp_path / "data.ledger", "--budget", "5")
    first = succeed(*private, *ledger, "--json", cwd=folder)
    assert "earlier runs have spent ε = 0; with this one it will be ε = 4 of 5" in first.stderr
    spent = LedgerFile(tmp_path / "data.ledger")
    privacy = json.loads(first.stdout)["privacy"]
    assert spent.mu == pytest.approx(privacy["mu"])
    assert len(spent.charges) == len(privacy["charges"])  # words and topics
    # The same budget again is no contradiction, another one is.
    again = ("--vocabulary", "words.txt")
    assert "ε = 4 of 5" not in fails(2, *private, *again, *ledger[:2], "--budget", "6", cwd=folder)
    assert "Nothing was spent" in fails(1, *private, *again, *ledger, cwd=folder)
    assert "no δ left for choosing words" in fails(2, *private, *ledger, cwd=folder)
    assert len(LedgerFile(tmp_path / "data.ledger").charges) == len(spent.charges)
    small = (
        "corpus.txt",
        "-k",
        "3",
        "--epsilon",
        "0.5",
        "--delta",
        "1e-6",
        "--out",
        tmp_path / "small.npz",
    )
    succeed(*small, *again, *ledger, cwd=folder)
    first_words = TensorLDA.load(tmp_path / "small.npz").words_
    of_model = ("corpus.txt", "-k", "2", "--vocabulary", tmp_path / "small.npz")
    succeed(*of_model, "--out", tmp_path / "again.npz", cwd=folder)
    assert TensorLDA.load(tmp_path / "again.npz").words_.tolist() == first_words.tolist()
    known = json.loads(run_here("ledger", tmp_path / "data.ledger", "--json", cwd=folder).stdout)
    assert known["budget"] == "ε = 5 at δ = 1e-06"
    assert 4 < known["epsilon_spent"] < 4.5


def test_a_run_on_a_terminal_asks_before_it_spends(folder, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "odeco.cli.privacy.click.confirm", lambda text, **_: asked.append(text) or False
    )
    monkeypatch.setattr("odeco.cli.documents.keep_words", pytest.fail)
    monkeypatch.setattr("odeco.cli.privacy.is_interactive", lambda: True)
    private = ("corpus.txt", "-k", "3", "--epsilon", "4", "--delta", "1e-6")
    assert "Nothing was spent" in fails(
        1, *private, "--ledger", tmp_path / "l", "--budget", "5", cwd=folder
    )
    assert asked == ["Spend ε = 4 of the privacy of every document?"]
    assert not (tmp_path / "l").exists()


@pytest.mark.slow
def test_a_plan_needs_public_numbers_only(folder, capsys):
    public = ("--n-records", "1500", "--dimension", "60")
    assert (
        odeco_command(["plan", "topics", "-k", "3", "--epsilon", "4", "--delta", "1e-6", *public])
        == 0
    )
    said = capsys.readouterr()
    assert "1,500 units of 50 words" in said.out
    assert "frequencies of 60 words" in said.out
    assert "of 3 topics in simulated text of this kind" in said.out
    # A vocabulary of noisy votes takes a fifth of mu squared and a tenth of delta: the topics have
    # less.
    assert (
        odeco_command(
            ["plan", "topics", "-k", "3", "--epsilon", "4", "--delta", "1e-6", *public, "--json"]
        )
        == 0
    )
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert plan["n_records"] == 1500
    assert plan["delta"] == pytest.approx(0.9e-6)
    assert plan["mu"] == pytest.approx(math.sqrt(0.8) * gdp_mu(4.0, 0.9e-6), rel=1e-6)


USAGE = {
    "no file": (("-k", "3"), "Either FILEs or --python-documentation must be given, and not both."),
    "a word for k": (
        ("corpus.txt", "-k", "few"),
        "Invalid value for '-k' / '--n-components': 'few' is neither a whole number nor 'auto'.",
    ),
    "private without delta": (
        ("corpus.txt", "-k", "3", "--epsilon", "1", "--vocabulary", "words.txt"),
        (
            "A private run needs both --epsilon and --delta. Choose δ far below 1 / number of "
            "documents, such as 1e-6."
        ),
    ),
    "private and pruned": (
        ("corpus.txt", "-k", "3", "--epsilon", "1", "--delta", "1e-6", "--min-documents", "3"),
        "--min-documents counts documents without noise. Leave it out: a private run chooses "
        "words by noisy votes, or takes those of --vocabulary FILE.",
    ),
    "private and auto": (
        (
            "corpus.txt",
            "-k",
            "auto",
            "--epsilon",
            "1",
            "--delta",
            "1e-6",
            "--vocabulary",
            "words.txt",
        ),
        "A private model needs a number: choosing one would look at the records. Pass -k.",
    ),
    "private and refined": (
        (
            "corpus.txt",
            "-k",
            "3",
            "--epsilon",
            "1",
            "--delta",
            "1e-6",
            "--vocabulary",
            "words.txt",
            "--max-iter",
            "9",
        ),
        "--max-iter would read the documents again, without noise. Leave it out.",
    ),
    "ledger without epsilon": (
        ("corpus.txt", "-k", "3", "--ledger", "data.ledger"),
        "--ledger goes with --epsilon. Pass both, or leave it out.",
    ),
    "budget without ledger": (
        ("corpus.txt", "-k", "3", "--epsilon", "1", "--delta", "1e-6", "--budget", "2"),
        "--budget is that of a new --ledger FILE. Pass both, or neither.",
    ),
    "groups alone": (
        ("corpus.txt", "-k", "3", "--groups", "words.txt"),
        "--groups goes with --epsilon. Pass both, or leave it out.",
    ),
    "pruned list": (
        ("corpus.txt", "-k", "3", "--vocabulary", "words.txt", "--max-words", "9"),
        "With --vocabulary all its words are counted. Leave out --max-words.",
    ),
}


@pytest.mark.parametrize("case", USAGE)
def test_a_mistake_in_the_command_line_is_explained(folder, case, monkeypatch, capsys):
    arguments, text = USAGE[case]
    if case in ("no file", "private without delta"):
        said = fails(2, *arguments, cwd=folder)
    else:  # the same code without a new process, which takes longer than the check
        monkeypatch.chdir(folder)
        assert odeco_command(["learn", "topics", *arguments]) == 2
        said = " ".join(capsys.readouterr().err.split())
    assert said.endswith(f"Error: {text}")


DATA = {
    "no such file": (
        ("missing.txt", "-k", "3"),
        "missing.txt: No such file or directory. Check the path.",
    ),
    "missing column": (
        ("corpus.csv", "--column", "body", "-k", "3"),
        (
            "corpus.csv must have one column 'body'. Its columns are 'id', 'text'. Pass its name "
            "as --column."
        ),
    ),
    "empty file": (
        ("empty.txt", "-k", "3"),
        "There must be at least one document. Got none. Check what was read.",
    ),
    "negative counts": (
        ("negative.npz", "-k", "3"),
        "Word counts must not be negative. Negative values in data: counts[0, {column}] = "
        "{value}. Check how it was made.",
    ),
    "another vocabulary": (
        ("apply", "model.npz", "other.npz"),
        "New counts must have a column for each of the 60 words of the model. 1 have none, such "
        "as 'bab'. Count the new documents with the vocabulary of the first, or pass texts.",
    ),
}


@pytest.mark.parametrize("case", DATA)
def test_a_problem_with_the_documents_is_explained(folder, fitted, case):
    arguments, text = DATA[case]
    with np.load(folder / "negative.npz") as archive:
        first = {"column": archive["indices"][0], "value": archive["data"][0]}
    said = fails(1, *arguments, cwd=folder)
    assert said[said.index("Error:") :] == f"Error: {text.format(**first)}"


@pytest.mark.slow
def test_ctrl_c_ends_a_run_cleanly(folder):
    begun = subprocess.Popen(
        [
            *COMMAND,
            "corpus.txt",
            "-k",
            "3",
            "--max-share",
            "1",
            "--max-iter",
            "1000000",
            "--out",
            "never.npz",
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert any(
            line.startswith("1,500 documents") for line in begun.stderr
        )  # from here on it learns
        os.killpg(begun.pid, signal.SIGINT)
        output, errors = begun.communicate(timeout=60)
    finally:
        begun.kill()
    assert (begun.returncode, output, errors.strip()) == (130, "", "Interrupted.")
    assert not (folder / "never.npz").exists()


def test_a_name_that_looks_like_a_formula_is_no_formula_in_a_table():
    table = labels_csv(np.array([[0.5, 0.5]]), "topic", rows=("=cmd|'/c calc'!A0.txt, line 1",))
    (_, row) = csv.reader(table.splitlines())
    assert row[0].startswith("'=")


def test_a_ctrl_c_that_a_callback_swallows_is_raised_again():
    with LastingInterrupt() as interrupt:
        interrupt.check()
        with contextlib.suppress(KeyboardInterrupt):  # as a finaliser would
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()
