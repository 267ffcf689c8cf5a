"""A fitted topic model in use: topics over time or by class, labels, documents of each topic,
merged topics.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from odeco._util.arguments import check_count
from odeco._util.types import FloatArray, IndexArray
from odeco.io.rows import row_slice
from odeco.models.engine.fit import Fit, Info
from odeco.models.engine.spec import Learnt
from odeco.models.lda.counts import are_texts
from odeco.models.lda.display import BLOCK, representative_documents
from odeco.models.lda.params import TopicParams
from odeco.models.lda.text import TopicWords
from odeco.models.lda.vocabulary import RELEVANCE


@dataclass(frozen=True, eq=False)
class GroupShares:
    """Shares of topics in groups of documents.

    Attributes
    ----------
    groups : array of g labels
        The groups, sorted.
    shares : array, g x k
        Share of each topic in each group; rows sum to one. NaN for a group without a known word.
    errors : array, g x k
        Standard errors of the shares; NaN for a group with fewer than two documents of known words.
    n_documents : array of g numbers
        Number of documents of each group with at least one known word. Others say nothing, and are
        left out.
    """

    groups: NDArray[Any]
    shares: FloatArray
    errors: FloatArray
    n_documents: IndexArray


class TopicUse(TopicWords):
    """What a fitted estimator of topics says of documents and of its topics."""

    n_components: Any
    _encode: Any
    _learnt: Learnt

    def topics_over(self, X: Any, by: Any) -> GroupShares:
        """Return the share of each topic in groups of documents: over time, or by class.

        Parameters
        ----------
        X : array or CSR array, documents x words, or sequence of str
            Word counts, or texts, which are split as in `transform_text`.
        by : array of labels
            The group of each document: a class, a year, or a month
            (``dates.astype("datetime64[M]")``).

        Notes
        -----
        With the number w of known words of a document and its proportions θ (see `transform`), a
        share is s = Σ w θ / Σ w, and its standard error √(n/(n − 1) Σ w² (θ − s)²) / Σ w, for n
        independent documents of a group. It says how much the share would vary between samples of
        documents. It takes the topics as given, and documents of one author or one thread as
        independent. Proportions are means of the posterior: in short texts they are pulled towards
        the prior, so that differences between groups look smaller than they are. The result is not
        private.

        Examples
        --------
        >>> from odeco.models import TensorLDA
        >>> texts = 200 * ["cat mouse cat mouse", "shares bonds shares bonds"]
        >>> model = TensorLDA(2, max_iter=0, random_state=0).fit_text(texts, max_share=1.0)
        >>> table = model.topics_over(["bonds bonds", "shares", "mouse cat"], [2024, 2024, 2025])
        >>> (
        ...     table.groups.tolist(),
        ...     table.shares.argmax(axis=1)
        ...     == model.transform_text(["bonds", "cat"]).argmax(axis=1),
        ... )
        ([2024, 2025], array([ True,  True]))
        """
        return shares_in_groups(self, self._counts_of(X), by)

    def topic_labels(self, n_words: int = 3) -> list[str]:
        """Return a label for each topic: its most characteristic words, by relevance, such as
        ``"ship, sail, sea"``.

        If two topics have the same label, take more words. A private topic may have fewer words, or
        none. Topics of `seed_words` have the labels given there.
        """
        labels: Any = self._fit_for("topic_labels").context.labels
        given: list[str] = [] if labels is None else labels.tolist()
        return given + [
            ", ".join(words) for words in self.top_words(n_words, relevance=RELEVANCE)[len(given) :]
        ]

    def representative_documents(
        self, X: Any, n_documents: int = 3
    ) -> list[list[tuple[int, float]]]:
        """Return for each topic the documents in which its share is largest: their row numbers, and
        this share.

        Parameters
        ----------
        X : array or CSR array, documents x words, or sequence of str
            Word counts or texts, as for `topics_over`.
        n_documents : int
            Number of documents of each topic; fewer if documents are nearly the same (more than
            half of the words of two documents together are common to both), of which the first is
            kept. The result is not private.
        """
        return representative_documents(
            self, self._counts_of(X), check_count("n_documents", n_documents)
        )

    def merge_topics(self, groups: Iterable[Iterable[int]]) -> Self:
        """Return a copy of the model in which the topics of each group are one; this model stays as
        it is.

        Parameters
        ----------
        groups : iterable of iterables of int
            The topics to merge, such as ``[[1, 4], [2, 6, 7]]``. Other topics stay; all are sorted
            by share again.

        Notes
        -----
        The Dirichlet parameter of a merged topic is the sum of theirs, which is exact: sums of
        Dirichlet proportions are Dirichlet. Its words are their mean, by share. The model is
        therefore that of documents in which both topics keep their ratio; where one of them is
        alone, it fits worse than before. If you need only the shares of documents, add the columns
        of `transform` instead. The evidence of the third moment and the numbers of topics tried
        belong to the topics before: they are NaN and empty. `partial_fit` begins a new stream.

        Examples
        --------
        >>> from odeco.models import TensorLDA
        >>> texts = 200 * [
        ...     "cat mouse cat mouse",
        ...     "shares bonds shares bonds",
        ...     "rain wind rain wind",
        ... ]
        >>> model = TensorLDA(3, max_iter=0, random_state=0).fit_text(texts, max_share=1.0)
        >>> merged = model.merge_topics([[0, 2]])
        >>> merged.n_components_, merged.shares_.round(2)
        (2, array([0.67, 0.33]))
        """
        fit = self._fit_for("merge_topics")
        params: TopicParams = fit.params
        if params.trust is not None:
            raise ValueError(
                "Merged topics must come from a model that is not private: how far to trust "
                "merged private topics is not known. Got a private model. Add the columns of "
                "transform."
            )
        owners = _owners(groups, params.alpha.size)
        k = int(owners.max()) + 1
        members = np.equal.outer(np.arange(k), owners).astype(np.float64)
        totals = members @ params.totals
        alone = members.sum(axis=1) == 1
        first = members.argmax(axis=1)
        found: Any = {
            name: np.where(alone, getattr(params.diagnostics, name)[first], np.nan)
            for name in ("weights", "residuals", "negative_mass")
        }
        diagnostics = replace(
            params.diagnostics,
            n_components=k,
            selection_scores=np.zeros((0, 2), dtype=np.int64),
            **found,
        )
        topic_word = (members * params.totals / totals[:, None]) @ params.topic_word
        merged_params = TopicParams(
            topic_word, totals, members @ params.alpha, params.eta, diagnostics
        )
        merged = copy.copy(self)
        merged.n_components = k
        info = Info(fit.info.n_samples, n_iter=fit.info.n_iter)
        merged._learnt = Learnt(
            merged._specify_topics(),
            self._learnt.seed,
            Fit(merged_params.largest_first(), replace(fit.context, labels=None), info),
            None,
        )
        return merged

    def _counts_of(self, X: Any) -> Any:
        """Return the counts of the model's words in documents: in texts, or in checked word
        counts.
        """
        context = self._fit_for("topics of documents").context
        if are_texts(X):
            return self._count_texts(X)
        return self._encode(X, context)[0]


def shares_in_groups(model: Any, counts: Any, by: Any) -> GroupShares:
    """Return the shares of topics in groups of documents whose columns are known to be the model's
    words.
    """
    groups, places = _grouped(by, counts.shape[0])
    lengths = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
    members: Any = sparse.csc_array(
        (lengths, places, np.arange(places.size + 1)), shape=(groups.size, places.size)
    )
    # Of each group: Σ w θ, Σ w² θ and Σ w² θ², one block of documents after the other.
    sums = np.zeros((3, groups.size, model.n_components_))
    for start in range(0, counts.shape[0], BLOCK):
        stop = min(start + BLOCK, counts.shape[0])
        proportions: FloatArray = model._proportions(row_slice(counts, start, stop))
        own = members[:, start:stop]
        squares = own.power(2)
        sums += np.stack([own @ proportions, squares @ proportions, squares @ proportions**2])
    n_documents = np.bincount(places, lengths > 0, groups.size).astype(np.int64)
    mass, squared_mass = (members.power(power).sum(axis=1)[:, None] for power in (1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = sums[0] / mass
        spread = np.maximum(sums[2] - 2 * shares * sums[1] + shares**2 * squared_mass, 0)
        errors = np.sqrt(spread * (n_documents / (n_documents - 1))[:, None]) / mass
    errors[n_documents < 2] = np.nan
    return GroupShares(groups, shares, errors, n_documents)


def _owners(groups: Iterable[Iterable[int]], k: int) -> IndexArray:
    """Return for each of k topics its number after merging; merged topics have that of the first of
    their group.
    """
    listed = [[check_count("topic", topic, low=0) for topic in group] for group in groups]
    members = [topic for group in listed for topic in group]
    if len(set(members)) < len(members) or max(members, default=0) >= k:
        raise ValueError(
            f"`groups` must have topics from 0 to {k - 1}, each of them once at most. Got {listed}."
        )
    owners = np.arange(k)
    for group in listed:
        owners[group] = min(group, default=0)
    return np.unique(owners, return_inverse=True)[1].astype(np.int64)


def _grouped(by: Any, n_documents: int) -> tuple[NDArray[Any], IndexArray]:
    """Return the sorted groups, and the place of the group of each document."""
    labels = np.asarray(by)
    if labels.shape != (n_documents,):
        raise ValueError(
            f"`by` must have one label for each of {n_documents:,} documents. Got shape "
            f"{labels.shape}."
        )
    # Only a missing value (None, NaN, NaT) is None or differs from itself.
    n_missing = int(np.sum((labels != labels) | (labels == None)))  # noqa: E711 - cell by cell
    if n_missing:
        raise ValueError(
            f"`by` must have no missing label. Got {n_missing:,} of them. Drop these documents."
        )
    groups, places = np.unique(labels, return_inverse=True)
    return groups, places.astype(np.int64)
