"""Fitted topics for a reader: sizes, words, representative documents, figures.

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
from odeco.models.engine.description import (
    ComponentRow,
    Description,
    HeatMap,
    PageTable,
    component_names,
    number_text,
)
from odeco.models.lda.params import TopicDiagnostics, TopicParams, TopicTrust
from odeco.models.lda.vocabulary import RELEVANCE, Words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: A text has this many words of each topic.
_DESCRIBED_WORDS = 8

#: A heat map has this many words of each topic, this many in all, and ratios up to two to this
#: power.
_DRAWN_WORDS = 3
_MAX_COLUMNS = 40
_MAX_LIFT = 6.0

#: Eigenvalues below this share of the noise level are not drawn: they are 0 but for noise and
#: rounding.
_FAINT = 1e-3


#: This many candidates are considered for each document shown, as some may be nearly the same.
_LOOKED_AT = 10

#: Two documents say nearly the same if more than half of all their words together are common to
#: both.
_NEARLY_THE_SAME = 0.5


def representative_documents(
    model: Any, counts: Any, n_documents: int
) -> list[list[tuple[int, float]]]:
    """Return for each topic the row numbers of documents that show it best, and its share in each.

    A document that says nearly the same as one before it is left out: its words and those of the
    other, Σ min over Σ max of their counts, overlap by more than a half. That holds for copies, for
    reposts, and for answers that quote most of what they answer.
    """
    chosen = []
    for shares in model._proportions(counts).T:
        first = np.argsort(-shares, kind="stable")[: _LOOKED_AT * n_documents]
        shown: list[int] = []
        for place in first.tolist():
            if all(_overlap(counts, place, other) <= _NEARLY_THE_SAME for other in shown):
                shown.append(place)
            if len(shown) == n_documents:
                break
        chosen.append([(place, float(shares[place])) for place in shown])
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
    clear = params.clear_words
    return [row[own[row]][:n_words] for row, own in zip(order, clear, strict=True)]


def describe(params: TopicParams, names: list[str], labels: list[str]) -> Description:
    """Return topics in words, with their leading words as a heat map and the evidence for their
    number; the first topics may have labels.
    """
    found = params.diagnostics
    shares = params.shares
    leading = leading_words(params, _DESCRIBED_WORDS, RELEVANCE)
    components = []
    for topic, places in enumerate(leading):
        prefix = f"{labels[topic]}: " if topic < len(labels) else ""
        text = ", ".join(names[place] for place in places) or "no word stands clear of noise"
        doubt = "" if params.clear[topic] else "not clear of noise"
        components.append(ComponentRow(float(shares[topic]), prefix + text, doubt))
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
    verdict = ""
    if params.trust is None:
        facts.insert(0, _support(found))
    else:
        verdict = _private_verdict(params.trust)
    return Description(
        verdict,
        tuple(facts),
        tuple(components),
        (panel, Spectrum(found)),
        () if params.trust is not None else (_evidence(found, shares),),
        (("documents", f"{found.n_documents:,}"), ("words", f"{len(names):,}")),
    )


def _evidence(found: TopicDiagnostics, shares: FloatArray) -> PageTable:
    """Return what the third moment says of each topic, as a table."""
    rows = [
        [str(topic), f"{share:.1%}", *(number_text(value, 3) for value in values)]
        for topic, (share, *values) in enumerate(
            zip(shares, found.weights, found.residuals, found.negative_mass, strict=True)
        )
    ]
    lead = (
        "Weight, residual and negative mass are of the components of the whitened third moment "
        "that the topics started from; nan if it did not show one."
    )
    columns = ["topic", "share", "weight", "residual", "negative mass cut off"]
    return PageTable("How far to trust them", lead, columns, rows)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The strength of the directions of word pairs, with standard errors, beside the noise."""

    found: TopicDiagnostics

    def draw(self, axes: Any) -> None:
        """Draw it on Matplotlib axes."""
        found = self.found
        drawn = found.eigenvalues > found.noise_level * _FAINT
        values = found.eigenvalues[drawn]
        errors = np.minimum(np.nan_to_num(found.eigenvalue_errors[drawn]), (1 - 1e-6) * values)
        numbers = np.flatnonzero(drawn) + 1
        axes.errorbar(numbers, values, errors, fmt="o", markersize=4, label="± 1 standard error")
        axes.axhline(found.noise_level, color=LIGHT.warm, linestyle="dashed", label="noise level")
        topics = f"number of topics, {found.n_components}"
        axes.axvline(found.n_components + 0.5, color=LIGHT.ink, linewidth=1, label=topics)
        axes.set(yscale="log", xlabel="direction, strongest first", ylabel="strength of word pairs")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend()


def _private_verdict(trust: TopicTrust) -> str:
    """Return how many private topics the noise of privacy leaves."""
    k = trust.clear.size
    topics = "One topic" if k == 1 else f"{k} topics"
    n_clear = int(trust.clear.sum())
    doubt = "" if n_clear else ": do not trust them"
    return f"{topics}, {n_clear} of them clear of the noise that was added{doubt}."


def _support(found: TopicDiagnostics) -> str:
    """Return what pairs of words say of the number of topics."""
    n_reliable = int(found.reliable.sum())
    n_directions = found.reliable.size  # more than topics if some were merged
    if n_reliable == n_directions:
        return "All directions of word pairs that they rest on stand clear of noise."
    return (
        f"{n_reliable} of the {n_directions} directions of word pairs that they rest on stand "
        "clear of noise."
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
