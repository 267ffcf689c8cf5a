"""Fitted topics for a reader: sizes, words, coherence, perplexity, representative documents, a
figure.

The lift of a word in a topic is its probability there divided by its probability in all text. Words
of high lift are specific to the topic, but may be rare. Relevance mixes both logarithms: λ log
p(word | topic) + (1 − λ) log lift.

References
----------
Sievert and Shirley, *LDAvis: a method for visualizing and interpreting topics*, 2014.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.display.style import LIGHT, drawn_in, new_figure
from odeco.io.rows import row_slice
from odeco.models.engine.description import ComponentRow, Description, HeatMap, component_names
from odeco.models.lda.inference import coherence, completion_perplexity, split_documents
from odeco.models.lda.params import TopicDiagnostics, TopicParams, TopicTrust
from odeco.models.lda.vocabulary import RELEVANCE, Words
from odeco.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from odeco.models.lda.estimator import TensorLDA


#: A text has this many words of each topic.
_DESCRIBED_WORDS = 8

#: A heat map has this many words of each topic, this many in all, and ratios up to two to this
#: power.
_DRAWN_WORDS = 3
_MAX_COLUMNS = 40
_MAX_LIFT = 6.0


@dataclass(frozen=True, eq=False)
class Perplexity:
    """How well half of a document's words predict the other half, for held-out documents.

    Attributes
    ----------
    topics, unigram : float
        Perplexity by the topics, and by the frequencies of words alone, as if there were no topics.
    n_documents : int
        Number of held-out documents.
    """

    topics: float
    unigram: float
    n_documents: int


@dataclass(frozen=True, eq=False)
class TopicSummary:
    """Fitted topics with everything that is shown to a reader.

    Attributes
    ----------
    words : array of str
        The vocabulary.
    topic_word : array, k x V
        The topics.
    shares : array
        Share of all words that belongs to each topic.
    npmi : array, optional
        Coherence of each topic. None for private topics: it would need the documents.
    perplexity : Perplexity, optional
        Known if documents were held out.
    diagnostics : TopicDiagnostics
        How far to trust the topics.
    privacy : PrivacyReport, optional
        The guarantee, if the topics are private.
    trust : TopicTrust, optional
        How far to trust private topics and their words.
    advice : tuple of str
        Warnings of the fit.
    """

    words: Words
    topic_word: FloatArray
    shares: FloatArray
    npmi: FloatArray | None
    perplexity: Perplexity | None
    diagnostics: TopicDiagnostics
    privacy: PrivacyReport | None
    trust: TopicTrust | None = None
    advice: tuple[str, ...] = ()

    def leading_words(self, topic: int, n_words: int) -> list[tuple[str, float]]:
        """Return the most probable words of a topic with their probabilities.

        Of a private topic, words whose probability is below twice the standard deviation of its
        noise are left out.
        """
        row = self.topic_word[topic]
        first = np.argsort(-row, kind="stable")
        if self.trust is not None:
            first = first[self.trust.clear_words(self.topic_word)[topic][first]]
        first = first[:n_words]
        return [(str(self.words[place]), float(row[place])) for place in first]


def summarise_topics(
    model: TensorLDA,
    words: Words | None = None,
    counts: Any = None,
    held_out: Any = None,
    *,
    seed: int = 0,
    advice: tuple[str, ...] = (),
) -> TopicSummary:
    """Return everything that is shown of a fitted model.

    Parameters
    ----------
    model : TensorLDA
        A model that was fitted to `counts`.
    words : array of str, optional
        The vocabulary; by default that of the model, or the numbers of its columns.
    counts : csr_array, documents x words, or None
        The documents. Those of a private model are not used. Without them coherence is not
        measured.
    held_out : csr_array, optional
        Documents that the model has not seen.
    seed : int
        Seed of the coin that divides the words of the held-out documents into two halves.
    advice : tuple of str
        Warnings of the fit.
    """
    privacy: PrivacyReport | None = getattr(model, "privacy_", None)
    return TopicSummary(
        words=model._known_words() if words is None else words,
        topic_word=model.topic_word_,
        shares=model.shares_,
        npmi=None
        if privacy is not None or counts is None
        else coherence(model.topic_word_, counts),
        perplexity=None
        if privacy is not None or held_out is None
        else _perplexity(model, counts, held_out, seed),
        diagnostics=model.diagnostics_,
        privacy=privacy,
        trust=None if privacy is None else model.trust_,
        advice=advice,
    )


def _perplexity(model: TensorLDA, counts: Any, held_out: Any, seed: int) -> Perplexity | None:
    observed, hidden = split_documents(held_out, np.random.default_rng(seed))
    if hidden.sum() == 0:
        return None
    # The prior count is that of a word in a topic, so that a word which is new in these documents
    # is not impossible.
    unigram = np.asarray(counts.sum(axis=0), dtype=np.float64).ravel() + max(
        model.topic_word_prior_, 1e-9
    )
    n_jobs = -1 if model.n_jobs is None else model.n_jobs
    return Perplexity(
        topics=completion_perplexity(
            observed, hidden, model.topic_word_, model.doc_topic_prior_, n_jobs=n_jobs
        ),
        unigram=completion_perplexity(
            observed, hidden, unigram[None, :], np.ones(1), n_jobs=n_jobs
        ),
        n_documents=held_out.shape[0],
    )


#: The proportions of this many documents are computed at a time.
BLOCK = 20_000

#: This many candidates are considered for each document shown, as some may be nearly the same.
_LOOKED_AT = 10

#: Two documents say nearly the same if more than half of all their words together are common to
#: both.
_NEARLY_THE_SAME = 0.5


def _top_documents(model: Any, counts: Any, n_documents: int) -> tuple[IndexArray, FloatArray]:
    """Return the documents in which each topic has its largest share, largest first, and these
    shares.

    Both arrays have a row for each topic. Documents are given by their row numbers, and worked on
    some at a time.
    """
    k = model.n_components_
    places = np.zeros((k, 0), dtype=np.int64)
    shares = np.zeros((k, 0))
    for start in range(0, counts.shape[0], BLOCK):
        block = model._proportions(row_slice(counts, start, min(start + BLOCK, counts.shape[0]))).T
        rows = np.broadcast_to(np.arange(start, start + block.shape[1]), block.shape)
        shares = np.concatenate([shares, block], axis=1)
        places = np.concatenate([places, rows], axis=1)
        first = np.argsort(-shares, axis=1, kind="stable")[:, :n_documents]
        shares = np.take_along_axis(shares, first, axis=1)
        places = np.take_along_axis(places, first, axis=1)
    return places, shares


def representative_documents(
    model: Any, counts: Any, n_documents: int
) -> list[list[tuple[int, float]]]:
    """Return for each topic the row numbers of documents that show it best, and its share in each.

    A document that says nearly the same as one before it is left out: its words and those of the
    other, Σ min over Σ max of their counts, overlap by more than a half. That holds for copies, for
    reposts, and for answers that quote most of what they answer.
    """
    places, shares = _top_documents(model, counts, _LOOKED_AT * n_documents)
    chosen = []
    for own_places, own_shares in zip(places.tolist(), shares.tolist(), strict=True):
        shown: list[tuple[int, float]] = []
        for place, share in zip(own_places, own_shares, strict=True):
            if len(shown) == n_documents:
                break
            if all(_overlap(counts, place, other) <= _NEARLY_THE_SAME for other, _ in shown):
                shown.append((place, share))
        chosen.append(shown)
    return chosen


def _overlap(counts: Any, first: int, second: int) -> float:
    """Return Σ min / Σ max of the counts of two documents; 1 if both are empty."""
    one = counts[[first]]
    other = counts[[second]]
    together = float(one.maximum(other).sum())
    if together:
        return float(one.minimum(other).sum()) / together
    return 1.0


def lift(topic_word: FloatArray, shares: FloatArray) -> FloatArray:
    """Return p(word | topic) / p(word), k x V; 0 for a word that no topic holds.

    Examples
    --------
    >>> lift(np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]), np.array([0.75, 0.25]))
    array([[1.        , 1.33333333, 0.        ],
           [1.        , 0.        , 4.        ]])
    """
    frequencies = shares @ topic_word
    return np.divide(topic_word, frequencies, out=np.zeros_like(topic_word), where=frequencies > 0)


def relevance(topic_word: FloatArray, shares: FloatArray, weight: float) -> FloatArray:
    """Return λ log p(word | topic) + (1 − λ) log lift, k x V, for λ = `weight`; −∞ for a word that
    a topic lacks.
    """
    if not isinstance(weight, numbers.Real) or isinstance(weight, bool) or not 0 <= weight <= 1:
        raise ValueError(
            "The weight of relevance must be a number from 0 (lift) to 1 (probability). Got "
            f"{weight!r}."
        )
    with np.errstate(divide="ignore"):
        # log lift is log p(word | topic) − log p(word), so the first of both has the weight 1 in
        # the sum.
        logarithms = np.log(topic_word)
        own = (1 - weight) * np.log(shares @ topic_word)
    return np.subtract(logarithms, own, out=logarithms, where=np.isfinite(logarithms))


def leading_words(params: TopicParams, n_words: int, weight: float = 1.0) -> list[IndexArray]:
    """Return the columns of the leading words of each topic by relevance; of private topics only
    clear words.
    """
    if weight == 1:
        scores = params.topic_word
    else:
        scores = relevance(params.topic_word, params.shares, weight)
    order = np.argsort(-scores, axis=1, kind="stable")
    if params.trust is None:
        return list(order[:, :n_words])
    clear = params.trust.clear_words(params.topic_word)
    return [row[own[row]][:n_words] for row, own in zip(order, clear, strict=True)]


def describe(params: TopicParams, names: list[str], labels: list[str]) -> Description:
    """Return topics in words, with their leading words as a heat map; the first topics may have
    labels.
    """
    found = params.diagnostics
    k = len(params.alpha)
    shares = params.shares
    leading = leading_words(params, _DESCRIBED_WORDS, RELEVANCE)
    prefixes = [f"{label}: " for label in labels] + [""] * (k - len(labels))
    components = [
        ComponentRow(
            float(share),
            prefix
            + (", ".join(names[place] for place in places) or "no word stands clear of noise"),
        )
        for share, places, prefix in zip(shares, leading, prefixes, strict=True)
    ]
    columns = list(
        dict.fromkeys(int(place) for places in leading for place in places[:_DRAWN_WORDS])
    )[:_MAX_COLUMNS]
    with np.errstate(divide="ignore"):
        heights = np.clip(
            np.log2(lift(params.topic_word, shares)[:, columns]), -_MAX_LIFT, _MAX_LIFT
        )
    panel = HeatMap(
        heights,
        component_names(shares),
        [names[column] for column in columns],
        "log2 of the ratio to all text",
    )
    facts = [f"Fitted to {found.n_documents:,} documents; concentration {found.concentration:.3g}."]
    if found.n_replicated is not None:
        facts.append(
            f"{found.n_replicated} of the topics are replicated in the other half of the documents."
        )
    return Description(_verdict(params, k), tuple(facts), tuple(components), (panel,))


def _verdict(params: TopicParams, k: int) -> str:
    topics = "One topic" if k == 1 else f"{k} topics"
    if params.trust is not None:
        n_clear = int(params.trust.clear.sum())
        doubt = "" if n_clear else ": do not trust them"
        return f"{topics}, {n_clear} of them clear of the noise that was added{doubt}."
    n_reliable = int(params.diagnostics.reliable.sum())
    n_directions = params.diagnostics.reliable.size  # more than k if topics were merged
    if n_reliable == n_directions:
        return f"{topics}: all directions of word pairs that they rest on stand clear of noise."
    return (
        f"{topics}: {n_reliable} of the {n_directions} directions of word pairs that they rest on "
        "stand clear of noise."
    )


def draw_topics(
    topic_word: FloatArray,
    shares: FloatArray,
    names: Words,
    leading: list[IndexArray],
    n_columns: int,
) -> Figure:
    """Draw the given words of each topic, with their probabilities as bars."""
    n_topics = len(leading)
    tallest = max(max((places.size for places in leading), default=1), 1)
    n_columns = min(n_columns, n_topics)
    n_rows = -(-n_topics // n_columns)
    with drawn_in():
        figure: Figure = new_figure(2.6 * n_columns, n_rows * (0.6 + 0.19 * tallest))
        grid = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
        for topic, (axes, places) in enumerate(zip(grid, leading, strict=False)):
            # Bars have the heights of text, in a fixed number of lines, so that all topics share
            # one scale of lines.
            axes.barh(
                range(places.size), topic_word[topic, places], color=LIGHT.accent, height=0.72
            )
            # A dollar sign would begin a formula.
            axes.set_yticks(
                range(places.size), [str(name) for name in names[places]], parse_math=False
            )
            axes.set_ylim(tallest - 0.4, -0.6)
            axes.set_title(f"{topic} · {shares[topic]:.1%}", fontweight="bold")
            axes.spines["bottom"].set_visible(False)
            axes.tick_params(length=0)
            axes.locator_params(axis="x", nbins=2)
            axes.grid(axis="x")
        for axes in grid[n_topics:]:
            axes.set_axis_off()
    return figure
