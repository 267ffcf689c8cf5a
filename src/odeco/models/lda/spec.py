"""The topic model as a specification: what a file holds, the fit to all documents, the fit in
batches, its description.

**Batches** (`TensorLDA.partial_fit`): the moments of all documents are summed in a basis that moves
when the number of documents has doubled. With Gibbs sweeps, the words of each batch are also
assigned to the topics, and counted there. Where batches end matters: each is swept over as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from odeco._util.state import State, array_field, part_field, require
from odeco._util.threads import on_threads
from odeco._util.types import FloatArray
from odeco.errors import VocabularyError
from odeco.io.source import is_on_cluster
from odeco.models.engine.description import Description
from odeco.models.engine.fit import Fit, Info
from odeco.models.engine.private import Releaser, guarantee_of
from odeco.models.engine.spec import Spec
from odeco.models.lda.corpus import Corpus, LocalCorpus
from odeco.models.lda.counts import count_chunks
from odeco.models.lda.display import describe
from odeco.models.lda.fitting import SeedWords, SpectralFit, fit_spectral, fit_topics
from odeco.models.lda.inference import completion_scores
from odeco.models.lda.moments import SavedSums, WordSums
from odeco.models.lda.params import LdaSettings, TopicDiagnostics, TopicParams, diagnose
from odeco.models.lda.private import fit_privately
from odeco.models.lda.private_topics import N_STEPS
from odeco.models.lda.spectral import (
    SpectralTopics,
    move_basis,
    reduce_moments,
    sum_moments,
    topics_for,
)
from odeco.models.lda.vocabulary import Tokenizer, check_word_lengths
from odeco.privacy.report import PrivacyReport

#: The basis moves after at least this many further documents.
_MIN_BEFORE_MOVE = 64


@dataclass(frozen=True, eq=False)
class TopicStream(State):
    """The state of `TensorLDA.partial_fit`; no document is kept.

    Topics are estimated anew when the basis of the moments moves, and are put in the order of those
    before. In between they are followed from there; without sweeps only when they are needed.

    Attributes
    ----------
    seed : int
        Seed of all draws.
    context : State
        The words of the columns.
    n_batches : int
        Number of batches seen.
    next_move : int
        The basis moves when this many documents have been seen.
    sums : SavedSums
        The moments of all documents so far, in the current basis.
    coordinates : array, m x k
        Coordinates of the topics, in the basis of the moments, when the basis last moved.
    concentration : float
        The α₀ that they were estimated with.
    diagnostics : TopicDiagnostics
        How far to trust them.
    topic_counts : array of float32, k x V, or None
        With sweeps, the number of words of each kind in each topic.
    alpha : array
        With sweeps, the Dirichlet parameters of the proportions of topics in a document.
    eta : float
        With sweeps, the prior count of every word in every topic.
    documents_behind_alpha : float
        The number of documents that `alpha` is a mean over; forgotten documents count less.
    """

    seed: int = array_field(kind="i", low=0)
    context: Any = part_field()
    n_batches: int = array_field(kind="i", low=1)
    next_move: int = array_field(kind="i", low=0)
    sums: SavedSums = part_field(SavedSums)
    coordinates: FloatArray = array_field("m", "found")
    concentration: float = array_field(low=0)
    diagnostics: TopicDiagnostics = part_field(TopicDiagnostics)
    topic_counts: NDArray[np.float32] | None = array_field(
        "k", "n_features", kind="rows", low=0, default=None
    )
    alpha: FloatArray = array_field(None, low=0, default=np.zeros(0))
    eta: float = array_field(low=0, default=0.0)
    documents_behind_alpha: float = array_field(low=0, default=0.0)

    @classmethod
    def begin(cls, base: State, seed: int, rows: Any) -> NewTopicStream:  # noqa: ARG003 - as every stream
        """Return the stream before its first batch."""
        return NewTopicStream(base, seed)

    @property
    def n_seen(self) -> int:
        """Number of documents seen."""
        return self.sums.n_documents

    def update(self, spec: TopicSpec, rows: Any) -> TopicStream:
        """Return the stream after the checked counts of one more batch.

        This stream stays as it was, so that an error or an interrupt loses nothing.
        """
        with on_threads(spec.settings.n_jobs):
            return self._updated(spec, rows)

    def _updated(self, spec: TopicSpec, rows: Any) -> TopicStream:
        settings = spec.algorithm
        forget = spec.settings.forget
        sums = WordSums.restore(self.sums)
        topic_counts = None if self.topic_counts is None else self.topic_counts.copy()
        topics = None
        after = replace(self, n_batches=self.n_batches + 1)
        kept = 1.0 if forget is None else 0.5 ** (rows.shape[0] / forget)
        if kept < 1:
            sums.decay(kept)
        sums.add(count_chunks(rows, sums.n_documents))
        corpus = LocalCorpus(rows)
        if sums.n_documents >= self.next_move:
            lifting = move_basis(sums, int(settings.n_components))
            step = sums.n_documents if forget is None else min(sums.n_documents, round(forget))
            before: FloatArray = lifting.T @ self.coordinates
            if topic_counts is not None:
                before = sums.basis.T @ topic_counts.T
            found = fit_spectral(sums, corpus, settings, seed=self.seed, before=before)
            next_move = sums.n_documents + max(step, _MIN_BEFORE_MOVE)
            topics = found.topics
            after = replace(after, next_move=next_move, **_found(found))
        if topic_counts is not None and settings.max_iter:
            n_sweeps = settings.max_iter
            after = after._refine(n_sweeps, sums, topic_counts, corpus, topics, kept)
        return replace(after, sums=sums.save(), topic_counts=topic_counts)

    def _refine(
        self,
        n_sweeps: int,
        sums: WordSums,
        topic_counts: Any,
        corpus: LocalCorpus,
        topics: SpectralTopics | None,
        kept: float,
    ) -> TopicStream:
        """Assign the words of a batch to the topics, given the counts so far, and add them to these
        in place.

        `kept` is the share of the earlier documents that is not forgotten.
        """
        alpha = self.alpha
        behind = self.documents_behind_alpha
        if topics is not None and self._is_worse(sums, topic_counts, corpus, topics):
            # All words so far would have about half of their number as weight by now: see below.
            sizes = 0.5 * sums.n_tokens * topics.alpha / topics.alpha.sum()
            topics.topic_word[:] *= sizes[:, None]
            np.copyto(
                topic_counts, topics.topic_word, casting="same_kind"
            )  # a second such array may not fit
            alpha = topics.alpha.copy()
            behind = 0.0
        seed = _batch_seed(self.seed, self.n_batches - 1)
        batch = corpus.refine_beside(topic_counts, alpha, self.eta, n_sweeps=n_sweeps, seed=seed)
        # Early batches were assigned by poorer topics: a batch counts in proportion to the
        # documents before it.
        n_batch = corpus.n_documents
        memory = (1 - n_batch / sums.n_documents) * kept
        topic_counts *= np.float32(memory)
        topic_counts[:, batch.words] += batch.counts
        behind = memory * behind + n_batch
        share = n_batch / behind
        return replace(
            self, alpha=(1 - share) * alpha + share * batch.alpha, documents_behind_alpha=behind
        )

    def _is_worse(
        self, sums: WordSums, topic_counts: Any, corpus: LocalCorpus, topics: SpectralTopics
    ) -> bool:
        """Return whether the spectral topics predict a batch better than the refined ones; neither
        has seen it.
        """
        halves = corpus.completion_halves(self.seed)
        frequencies = sums.first_moment()
        totals = topic_counts.sum(axis=1, dtype=np.float64)
        current = completion_scores(halves, topic_counts, self.alpha, frequencies, sizes=totals)
        spectral = completion_scores(halves, topics.topic_word, topics.alpha, frequencies)
        return bool(spectral.sum() > current.sum())

    def result(self, spec: TopicSpec) -> Fit:
        """Return the model of all documents so far; the stream stays as it is."""
        settings = spec.algorithm
        sums = WordSums.restore(self.sums)
        if self.topic_counts is not None:
            known = replace(self.diagnostics, n_documents=sums.n_documents, n_tokens=sums.n_tokens)
            params = TopicParams.from_counts(self.topic_counts, self.alpha, self.eta, known)
        else:
            reduced = reduce_moments(sums, self.diagnostics.n_components)
            near = reduced.directions.T @ self.coordinates
            with on_threads(spec.settings.n_jobs):
                topics = topics_for(
                    self.concentration, reduced, sums, seed=self.seed, near=near, before=near
                )
            diagnostics = diagnose(reduced, topics, sums)
            prior = settings.topic_word_prior
            params = TopicParams.from_shares(
                topics.topic_word, topics.alpha, sums.n_tokens, prior, diagnostics
            )
        return Fit(params, self.context, Info(sums.n_documents, n_iter=settings.max_iter))

    def verify(self, spec: TopicSpec, n_features: int) -> None:
        """Raise `ValueError` unless the stream, which may come from a file of anyone, can go on."""
        k = self.diagnostics.n_components
        require(
            self.coordinates.shape[1] <= k, "its stream must have found no more topics than it has"
        )
        require(
            k == spec.settings.n_components, "its stream must have the topics of its parameters"
        )
        require(self.diagnostics.weights.size == k, "its diagnostics must be those of its topics")
        if self.topic_counts is not None:
            require(
                self.alpha.size == self.topic_counts.shape[0],
                "its stream must have a prior for every topic",
            )
            require(self.alpha.size == k, "its counts must be those of its topics")


@dataclass(frozen=True, eq=False)
class NewTopicStream:
    """A stream before its first batch, with the context of the columns and the seed of all
    draws.
    """

    context: Any
    seed: int

    def update(self, spec: TopicSpec, rows: Any) -> TopicStream:
        """Return the stream after the checked counts of the first batch; raise if there are too
        few.
        """
        with on_threads(spec.settings.n_jobs):
            return self._updated(spec, rows)

    def _updated(self, spec: TopicSpec, rows: Any) -> TopicStream:
        settings = spec.algorithm
        seed = self.seed
        if isinstance(settings.n_components, str):
            raise ValueError(
                f"`n_components` must be an int for partial_fit. Got {settings.n_components!r}. "
                "Fit a first part of the documents with it and take its n_components_."
            )
        if spec.settings.seed_words is not None:
            raise _no_sweeps("a call of partial_fit")
        corpus = LocalCorpus(rows)
        (sums,) = sum_moments(corpus, settings, seed=seed, callback=lambda *_: None)
        found = fit_spectral(sums, corpus, settings, seed=seed)
        next_move = max(_MIN_BEFORE_MOVE, 2 * sums.n_documents)
        refined = dict[str, Any]()
        if settings.max_iter:
            topics = corpus.refine(
                found.topics.topic_word,
                n_sweeps=settings.max_iter,
                seed=_batch_seed(seed, 0),
                eta=settings.topic_word_prior,
            )
            refined = {
                "topic_counts": topics.topic_counts,
                "alpha": topics.alpha,
                "eta": float(topics.eta),
            }
            refined["documents_behind_alpha"] = float(rows.shape[0])
        return TopicStream(
            seed, self.context, 1, next_move, sums.save(), **_found(found), **refined
        )


def _no_sweeps(reason: str) -> ValueError:
    return ValueError(
        f"`seed_words` are a prior of the Gibbs sweeps of `fit`. Got them with {reason}. Leave "
        "them out."
    )


def _batch_seed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def _found(found: SpectralFit) -> dict[str, Any]:
    """Return the fields of a stream that estimated topics set."""
    return {
        "coordinates": found.coordinates,
        "concentration": found.concentration,
        "diagnostics": found.diagnostics,
    }


@dataclass(frozen=True, eq=False)
class TopicContext(State):
    """The words and the tokenizer of the columns of word counts.

    Attributes
    ----------
    tokenizer : str
        How texts were split into words; empty if that is not known.
    words : array of str or None
        The words that the columns count; None if they are not known.
    labels : array of str or None
        The names of the first topics, which are those of seed words.
    """

    tokenizer: str = array_field(kind="U", default="")
    words: NDArray[np.str_] | None = array_field("n_features", kind="U", default=None)
    labels: NDArray[np.str_] | None = array_field(None, kind="U", default=None)

    @classmethod
    def of(cls, n_words: int, words: Any = None, tokenizer: Tokenizer | None = None) -> Self:
        """Return the context of `n_words` columns, with checked words."""
        names = None
        if words is not None:
            given = [str(word) for word in words]
            if len(given) != n_words or len(set(given)) != n_words:
                raise VocabularyError(
                    f"`words` must be one word for each of the {n_words:,} columns, and no word "
                    f"twice. Got {len(given):,}, {len(set(given)):,} of them distinct. Pass those "
                    "that were counted, in their order."
                )
            check_word_lengths(given)
            names = np.array(given, dtype=np.str_)
        return cls(tokenizer or "", names)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        require(
            self.tokenizer in ("", "words", "blanks"), "its tokenizer must be 'words' or 'blanks'"
        )
        require(
            self.words is None or len(set(self.words.tolist())) == self.words.size,
            "its words must be distinct",
        )


class TopicSpec(Spec):
    """Latent Dirichlet allocation."""

    Params: ClassVar = TopicParams
    Context: ClassVar = TopicContext
    Stream: ClassVar = TopicStream  # type: ignore[assignment]
    record: ClassVar = "document"
    component: ClassVar = "topic"
    mechanism = "word frequencies, pairs of frequent words, and EM steps over all words"

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        concentration = settings.doc_topic_concentration
        self.algorithm = LdaSettings(
            settings.n_components,
            None if concentration == "auto" else concentration,
            settings.max_iter,
            settings.topic_word_prior,
        )

    def prepare(self, rows: Any, context: Any) -> Corpus:
        """Return checked counts, here or on a cluster, as documents to learn from."""
        if is_on_cluster(rows):
            from odeco.models.lda.cluster import ClusterCorpus  # which imports Dask

            return ClusterCorpus(rows)
        return LocalCorpus(rows)

    def fit(self, data: Corpus, base: TopicContext, seed: int) -> Fit:
        """Return the topics of all documents, largest first."""
        seeds = None
        if self.settings.seed_words is not None:
            seeds = SeedWords.of(self.settings.seed_words, base.words)
            base = replace(base, labels=np.array(seeds.labels, dtype=np.str_))
        callback = self.callback or (lambda *_: None)
        with on_threads(self.settings.n_jobs):
            params = fit_topics(data, self.algorithm, seed=seed, callback=callback, seeds=seeds)
        return Fit(params, base, Info(data.n_documents, n_iter=self.algorithm.max_iter))

    def learn_privately(
        self, holder: Any, context: TopicContext, releaser: Releaser, *, seed: int
    ) -> Fit:
        """Learn topics from noisy sums over documents, and from nothing else."""
        params = fit_privately(holder, releaser, self.settings, seed=seed)
        return Fit(params, context, Info(holder.n_documents, n_iter=N_STEPS))

    def is_private(self, groups: Any = None, vocabulary: Any = None) -> bool:
        """Return whether the model is private; raise if the arguments of a fit do not go
        together.
        """
        private = guarantee_of(self) is not None
        settings = self.settings
        if (settings.unit == "user") != (groups is not None):
            raise ValueError(
                "`groups` must be given for unit='user' and for no other. Got "
                f"unit={settings.unit!r} and groups{'' if groups is not None else '=None'}. Pass "
                "one label per document, or unit='document'."
            )
        if not private and vocabulary is not None:
            raise ValueError(
                "`vocabulary` is for private models. Got one without `epsilon` and `delta`. Pass "
                "these, or leave it out."
            )
        if settings.seed_words is not None:
            self._check_seeds(private)
        return private

    def _check_seeds(self, private: bool) -> None:
        """Raise if there are seed words and no Gibbs sweeps, or too few topics."""
        settings = self.settings
        if private:
            raise _no_sweeps("a private model, which has none")
        if settings.max_iter == 0:
            raise _no_sweeps("max_iter=0")
        if (
            not isinstance(settings.n_components, str)
            and len(settings.seed_words) > settings.n_components
        ):
            raise ValueError(
                "`n_components` must be at least the number of topics with seed words, "
                f"{len(settings.seed_words)}. Got {settings.n_components}. Raise it, or leave "
                "some out."
            )

    def describe(
        self, fit: Fit, names: list[str], privacy: PrivacyReport | None, rows: Any = None
    ) -> Description:
        """Return the topics in words and as a figure."""
        context = fit.context
        words = names if context.words is None else context.words.tolist()
        return describe(
            fit.params, words, [] if context.labels is None else context.labels.tolist()
        )

    def verify(self, state: Any) -> None:
        """Raise `ValueError` if the parts of a fit or a stream, read from a file of anyone,
        contradict each other.
        """
        params = getattr(state, "params", None)
        if params is not None:
            k = len(params.topic_word)
            require(
                k >= 1 and bool(np.all(params.alpha > 0)), "it must have topics, each with a prior"
            )
            require(
                bool(np.allclose(params.topic_word.sum(axis=1), 1, atol=1e-6)),
                "its topics must sum to 1",
            )
            require(
                params.diagnostics.n_components == k, "its diagnostics must be those of its topics"
            )
            private = self.settings.epsilon is not None
            require(
                (params.trust is not None) == private,
                "it must say how far to trust its topics if it is private",
            )
