"""The page of topics: their words, a map, documents, the evidence for their number, and how
reliable they are.

Topics are numbered from 0, as in Python.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from odeco._util.lazy import needed_by
from odeco.decompose.page import again_section, privacy_section
from odeco.display.page import WIDTH, Figures, Section, asset, parts, table, write_page
from odeco.display.style import LIGHT, drawn_in
from odeco.models.lda.explorer import Example, TopicMap, explorer_data, json_text, lay_out

with needed_by("A page"):
    from markupsafe import Markup
    from matplotlib.figure import Figure

if TYPE_CHECKING:
    from odeco.models.lda.display import TopicSummary
    from odeco.models.lda.params import TopicDiagnostics


#: Documents are shortened to this many characters.
_EXCERPT = 400

#: The CSS class of the sections that are hidden while the explorer runs, because it shows the same.
_PLAIN = "plain"

#: The documents of this many topics are shown at once; those of the others are shown at a click.
_OPEN = 3

#: Eigenvalues below this share of the noise level are not drawn: they are 0 but for noise and
#: rounding.
_FAINT = 1e-3

#: The style sheet, the templates and the script are files of this package.
_PACKAGE = "odeco.models.lda"


def write_topics_report(
    summary: TopicSummary,
    path: str | os.PathLike[str],
    *,
    title: str = "Topics",
    examples: Sequence[Sequence[Example]] | None = None,
    command: str | None = None,
    versions: Mapping[str, str] | None = None,
    n_top: int = 12,
    more: Sequence[Section] = (),
) -> None:
    """Write topics as one HTML page that needs no network.

    A script inside the page lets readers explore: a map of topics linked to their words and
    documents, a slider from frequent words to distinctive ones, and a search for words. Without
    scripts the page shows words and documents as text.

    Parameters
    ----------
    summary : TopicSummary
        The topics, as `odeco.models.summarise_topics` returns them.
    path : path
        Where to write; an old file is replaced only by a complete one.
    title : str
        The heading.
    examples : sequence of sequences, optional
        For each topic some documents that show it best: where each comes from, its text, and the
        topic's share in it. The page of private topics never shows them.
    command : str, optional
        The command that makes the page again.
    versions : mapping, optional
        Versions of what computed the topics; by default those that are running now.
    n_top : int
        Number of words to show for each topic.
    more : sequence of Section, optional
        Further sections, after the explorer.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from odeco.datasets import planted_topics
    >>> from odeco.models import TensorLDA, summarise_topics
    >>> from odeco.models.lda.page import write_topics_report
    >>> counts = planted_topics(2000, 30, [0.3, 0.2, 0.1], rng=0).counts
    >>> model = TensorLDA(3, max_iter=0, random_state=0).fit(counts)
    >>> summary = summarise_topics(
    ...     model, np.array([f"word{number}" for number in range(30)]), counts
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_topics_report(summary, f"{folder}/page.html", title="Three topics")
    """
    figures = Figures()
    layout = lay_out(summary.topic_word, summary.shares)
    shown = None
    if summary.privacy is None and examples:
        shown = [[(name, _shortened(text), share) for name, text, share in own] for own in examples]
    sections = [
        _explorer(summary, layout, shown),
        *more,
        _topics(summary, n_top),
        *_documents(summary, shown),
        *_number(summary, figures),
        _trust(summary),
        *([] if summary.privacy is None else [privacy_section(summary.privacy)]),
        again_section(command, versions, privacy=summary.privacy),
    ]
    k = len(summary.shares)
    subtitle = (
        f"{k} {'topic' if k == 1 else 'topics'} of {summary.diagnostics.n_documents:,} documents"
    )
    if summary.privacy is not None:
        subtitle += ", found under differential privacy"
    write_page(
        path,
        title=title,
        subtitle=subtitle,
        sections=sections,
        facts=_facts(summary),
        style=asset(_PACKAGE, "topics.css"),
        script=asset(_PACKAGE, "explorer.js"),
    )


def _facts(summary: TopicSummary) -> dict[str, str]:
    found = summary.diagnostics
    facts = {
        "topics": str(found.n_components),
        "training documents": f"{found.n_documents:,}",
        "words in the vocabulary": f"{summary.words.size:,}",
    }
    if summary.perplexity is not None:
        held = summary.perplexity
        facts["perplexity (without topics)"] = f"{held.topics:,.0f} ({held.unigram:,.0f})"
    if summary.npmi is not None:
        facts["mean coherence (NPMI)"] = f"{float(summary.npmi.mean()):.3f}"
    if summary.privacy is not None:
        facts["clear of the noise"] = f"{found.n_clear} of {found.n_components}"
        # The minus of an exponent must not end a line.
        facts["guarantee"] = (
            f"ε = {summary.privacy.epsilon:g}, δ = {summary.privacy.delta:g}".replace("-", "\u2011")
        )
    return facts


def _topics(summary: TopicSummary, n_top: int) -> Section:
    cards = []
    for topic, share in enumerate(summary.shares):
        words = summary.leading_words(topic, n_top)
        highest = max((weight for _, weight in words), default=1.0) or 1.0
        cards.append(
            {
                "share": f"{share:.1%}",
                "standing": _standing(summary, topic)[0],
                "unsure": summary.trust is not None and not summary.trust.clear[topic],
                "words": [
                    (word, f"{weight:.3f}", f"{100 * weight / highest:.1f}")
                    for word, weight in words
                ],
            }
        )
    lead = (
        "The most probable words of each topic with their probabilities; each bar is relative to "
        "the topic's first word. The percentage is the topic's share of all words."
    )
    if summary.trust is not None:
        lead += (
            " Trust is computed from the noise that was added: the cosine that a topic can be "
            "expected to have with what it would be without noise, both without the frequencies "
            "of all words. A topic is called noise if more than a tenth of what sets it apart is "
            "noise (trust below 0.95), or if pairs of words do not show as many topics. Words "
            "that are less probable than twice their noise are left out."
        )
    return Section("Topics", _parts().cards(cards), lead, _PLAIN)


def _parts() -> Any:
    return parts(_PACKAGE, "topics.html")


def _standing(summary: TopicSummary, topic: int) -> tuple[str, float | None]:
    """Return the quality of a topic, in words and as a number."""
    if summary.npmi is not None:
        return f"coherence {summary.npmi[topic]:.2f}".replace("-", "−"), float(summary.npmi[topic])
    if summary.trust is None:
        return "", None
    signal = float(summary.trust.signal[topic])
    return f"trust {signal:.2f}" + ("" if summary.trust.clear[topic] else ": noise"), signal


def _explorer(
    summary: TopicSummary, layout: TopicMap, examples: Sequence[Sequence[Example]] | None
) -> Section:
    standings = [_standing(summary, topic) for topic in range(len(summary.shares))]
    data = Markup(json_text(explorer_data(summary, layout, standings, examples)))  # noqa: S704 - it escapes < and &
    return Section("Explore", _parts().explorer(data), name="explore")


def _documents(
    summary: TopicSummary, examples: Sequence[Sequence[Example]] | None
) -> list[Section]:
    if not examples:
        return []
    topics = [
        (
            ", ".join(word for word, _ in summary.leading_words(topic, 3)),
            [(*each[:2], f"{each[2]:.0%}") for each in own],
        )
        for topic, own in enumerate(examples)
    ]
    lead = "For each topic the documents in which its share is largest, shortened."
    return [Section("Most typical documents", _parts().documents(topics, _OPEN), lead, _PLAIN)]


def _shortened(text: str) -> str:
    if len(text) <= _EXCERPT:
        return text
    return text[: _EXCERPT - 1].rstrip() + "…"


def _number(summary: TopicSummary, figures: Figures) -> list[Section]:
    found = summary.diagnostics
    clear = clear_directions(found, private=summary.privacy is not None)
    n_clear = int(clear.sum())
    lead = (
        "How strongly pairs of words vary in each direction, with standard errors. Documents "
        f"without topics would show no direction above the dashed line. {n_clear} of the "
        f"{found.eigenvalues.size} directions that were examined "
        f"{'stands' if n_clear == 1 else 'stand'} clear of it; {found.n_components} "
        f"{'topic was' if found.n_components == 1 else 'topics were'} fitted."
    )
    if found.n_replicated is not None:
        lead += (
            f" {found.n_replicated} of them {'is' if found.n_replicated == 1 else 'are'} found "
            "again"
        )
        lead += " if each half of the documents is fitted alone."
    if summary.privacy is not None:
        lead += " These are noisy pairs of the most frequent words, where the topics began."
    return [Section("How many topics there are", draw_spectrum(figures, found, clear), lead)]


def _trust(summary: TopicSummary) -> Section:
    found = summary.diagnostics
    boxes = [parts().statement(text, "bad") for text in summary.advice]
    if not boxes:
        boxes = [parts().statement("All topics stand clear of noise.")]
    numbers = [["documents", f"{found.n_documents:,}"]]
    if found.mean_length is not None:
        numbers += [
            ["of them without a word of the vocabulary", f"{found.n_empty:,}"],
            [
                "of them with one or two words, which carry no information on topics",
                f"{found.n_short:,}",
            ],
            ["mean number of words in a document", f"{found.mean_length:.1f}"],
        ]
    if summary.perplexity is not None:
        held = summary.perplexity
        numbers += [
            ["held-out documents, to measure perplexity", f"{held.n_documents:,}"],
            ["perplexity of half of their words, given the other half", f"{held.topics:,.1f}"],
            ["the same by the frequencies of words alone, without topics", f"{held.unigram:,.1f}"],
        ]
    numbers += [
        [
            "topics clear of noise" if summary.trust else "directions clear of noise",
            f"{found.n_clear}",
        ],
        [
            "concentration α₀: the smaller, the fewer topics in a document",
            f"{found.concentration:.3g}",
        ],
    ]
    if summary.trust is None:
        numbers.append(
            ["of the third moment explained by its components", f"{found.explained:.1%}"]
        )
    boxes.append(table(["", ""], numbers, text_columns=[0], narrow=True))
    if summary.trust is not None:
        return Section("How far to trust them", Markup().join(boxes))
    columns = [
        "topic",
        "share",
        "coherence (NPMI)",
        "weight",
        "residual",
        "negative mass cut off",
        "words",
    ]
    rows = [
        [
            str(topic),
            f"{share:.1%}",
            "–" if summary.npmi is None else f"{summary.npmi[topic]:.3f}".replace("-", "−"),
            _number_or_dash(found.weights[topic], ".3g"),
            _number_or_dash(found.residuals[topic], ".1e"),
            _number_or_dash(found.negative_mass[topic], ".0%"),
            ", ".join(word for word, _ in summary.leading_words(topic, 4)),
        ]
        for topic, share in enumerate(summary.shares)
    ]
    boxes.append(parts().details("Topic by topic", table(columns, rows, text_columns=[6])))
    lead = (
        "Weight, residual and negative mass are of the components of the whitened third moment "
        "that the topics started from. A dash marks what is not known, or not released because "
        "documents are private."
    )
    return Section("How far to trust them", Markup().join(boxes), lead)


def _number_or_dash(value: float, form: str) -> str:
    if np.isfinite(value):
        return format(value, form)
    return "–"


def clear_directions(found: TopicDiagnostics, *, private: bool) -> NDArray[np.bool_]:
    """Return which directions are clear of noise.

    In a private run these are the directions above the noise level, which allows for errors.
    Otherwise the diagnostics say which of the first k are clear, and how many of the others: these
    are the ones farthest above the noise level, in standard errors.
    """
    if private:
        return np.asarray(found.eigenvalues > found.noise_level)
    k = found.reliable.size
    clear = np.zeros(found.eigenvalues.size, dtype=bool)
    clear[:k] = found.reliable[: clear.size]
    further = max(found.n_clear - int(clear.sum()), 0)
    margins = (found.eigenvalues - found.noise_level) / np.maximum(
        found.eigenvalue_errors, np.finfo(float).tiny
    )
    clear[k + np.argsort(-margins[k:], kind="stable")[:further]] = True
    return clear


def draw_spectrum(figures: Figures, found: TopicDiagnostics, clear: NDArray[np.bool_]) -> Markup:
    """Draw the eigenvalues with standard errors, the noise level, and the number of topics."""
    values = found.eigenvalues
    errors = np.where(np.isfinite(found.eigenvalue_errors), found.eigenvalue_errors, 0.0)
    lowest = found.noise_level * _FAINT
    positive = values > lowest
    numbers = np.arange(1, values.size + 1)
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    with drawn_in():
        axes: Any = figure.subplots()
        axes.grid(axis="y")
        for shown, colour, name in (
            (clear, LIGHT.accent, "clear of noise"),
            (~clear, LIGHT.muted, "not clear of noise"),
        ):
            drawn = positive & shown
            if drawn.any():
                axes.errorbar(
                    numbers[drawn],
                    values[drawn],
                    yerr=np.minimum(errors[drawn], values[drawn] * (1 - 1e-6)),
                    fmt="o",
                    markersize=4.5,
                    color=colour,
                    ecolor=colour,
                    elinewidth=1.2,
                    capsize=2.5,
                    label=f"{name}, ± 1 standard error",
                )
        axes.axhline(
            found.noise_level,
            color=LIGHT.warm,
            linestyle="dashed",
            linewidth=1.3,
            label="noise level",
        )
        axes.axvline(
            found.n_components + 0.5,
            color=LIGHT.ink,
            linewidth=1,
            label=f"number of topics, {found.n_components}",
        )
        axes.set_yscale("log")
        top = max(float(values[0] + errors[0]), found.noise_level)
        bottom = values[positive].min(initial=found.noise_level)
        axes.set_ylim(float(bottom) / 1.6, top * 1.5)
        axes.set_xlim(0.3, max(found.n_components, numbers[positive].max(initial=1)) + 0.7)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("number of directions, strongest first")
        axes.set_ylabel("eigenvalue of pairs of words")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4)
        left_out = int(np.sum(~positive))
        noun = "1 direction" if left_out == 1 else f"{left_out} directions"
        if left_out:
            caption = f"Not drawn: {noun} with an eigenvalue below {_FAINT:g} of the noise level."
        else:
            caption = ""
        described = f"{values.size} eigenvalues, {int(clear.sum())} of them above the noise level."
        return figures.html(figure, described, caption)
