"""Topics of a stream of documents, batch by batch: `TensorLDA.partial_fit`.

The moments of all documents are summed in a basis that moves when the number of documents has doubled. With Gibbs
sweeps, the words of each batch are also assigned to the topics, and counted there. Where batches end matters: each is
swept over as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from odeco._util.state import State, array_field, part_field, require
from odeco._util.types import FloatArray
from odeco.models.engine.fit import Fit, Info
from odeco.models.lda.corpus import LocalCorpus, refine_batch, refine_topics
from odeco.models.lda.counts import blocks, count_chunks
from odeco.models.lda.fitting import SpectralFit, fit_spectral
from odeco.models.lda.inference import completion_scores, split_sample
from odeco.models.lda.moments import SavedSums, WordSums
from odeco.models.lda.params import LdaSettings, TopicDiagnostics, TopicParams, diagnose
from odeco.models.lda.spectral import SpectralTopics, move_basis, reduce_moments, sum_moments, topics_for

if TYPE_CHECKING:
    from odeco.models.lda.spec import TopicSpec

#: The basis moves after at least this many further documents.
_MIN_BEFORE_MOVE = 64

#: A stream of more bytes is not copied before every batch, but changed in place.
_MAX_COPIED = 2**28


@dataclass(frozen=True, eq=False)
class TopicStream(State):
    """The state of `TensorLDA.partial_fit`; no document is kept.

    Topics are estimated anew when the basis of the moments moves, and are put in the order of those before. In between
    they are followed from there; without sweeps only when they are needed.

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
    topic_counts: NDArray[np.float32] | None = array_field("k", "n_features", kind="rows", low=0, default=None)
    alpha: FloatArray = array_field(None, low=0, default=np.zeros(0))
    eta: float = array_field(low=0, default=0.0)
    documents_behind_alpha: float = array_field(low=0, default=0.0)

    @classmethod
    def begin(cls, spec: TopicSpec, context: State, seed: int, rows: Any) -> TopicStream:
        """Return the stream after the checked counts of the first batch; raise if there are too few."""
        settings = spec.algorithm
        corpus = LocalCorpus(rows, settings)
        (sums,) = sum_moments(corpus, settings, seed=seed, callback=lambda *_: None)
        found = fit_spectral(sums, corpus, settings, seed=seed)
        next_move, refined = max(_MIN_BEFORE_MOVE, 2 * sums.n_documents), dict[str, Any]()
        if settings.max_iter:
            topics = refine_topics(
                rows.astype(np.int64),
                found.topics.topic_word,
                n_sweeps=settings.max_iter,
                seed=_batch_seed(seed, 0),
                n_jobs=settings.n_jobs,
                eta=settings.topic_word_prior,
            )
            refined = {"topic_counts": topics.topic_counts, "alpha": topics.alpha, "eta": float(topics.eta)}
            refined["documents_behind_alpha"] = float(rows.shape[0])
        return cls(seed, context, 1, next_move, sums.save(), **_found(found), **refined)

    @property
    def n_seen(self) -> int:
        """Number of documents seen."""
        return self.sums.n_documents

    def update(self, spec: TopicSpec, rows: Any) -> TopicStream:
        """Return the stream after the checked counts of one more batch.

        This stream stays as it was, so that an error or an interrupt loses nothing. Only a stream too large for a copy
        is changed in place; if that is interrupted, it refuses to go on.
        """
        self._check_whole()
        in_place = sum(array.nbytes for array in self.to_arrays("").values()) > _MAX_COPIED
        if in_place:
            object.__setattr__(self, "_changed_in_place", True)  # the arrays of this stream are those of the next
        sums = WordSums.restore(self.sums, parallel=spec.algorithm.parallel, copy=not in_place)
        counts = self.topic_counts if in_place or self.topic_counts is None else self.topic_counts.copy()
        return self._next(spec.algorithm, sums, counts, rows, spec.settings.forget)

    def _next(
        self, settings: LdaSettings, sums: WordSums, topic_counts: Any, rows: Any, forget: float | None
    ) -> TopicStream:
        """Return the stream after one more batch; `sums` and `topic_counts` change in place."""
        topics, after = None, replace(self, n_batches=self.n_batches + 1)
        kept = 1.0 if forget is None else 0.5 ** (rows.shape[0] / forget)
        if kept < 1:
            sums.decay(kept)
        sums.add(count_chunks(rows, document_weight=settings.document_weight, first=sums.n_documents))
        if sums.n_documents >= self.next_move:
            lifting = move_basis(sums, int(settings.n_components))
            step = sums.n_documents if forget is None else min(sums.n_documents, round(forget))
            if topic_counts is None:
                before: FloatArray = lifting.T @ self.coordinates
            else:
                before = _coordinates_of(topic_counts, sums.basis)
            found = fit_spectral(sums, LocalCorpus(rows, settings), settings, seed=self.seed, before=before)
            next_move = sums.n_documents + max(step, _MIN_BEFORE_MOVE)
            topics, after = found.topics, replace(after, next_move=next_move, **_found(found))
        if topic_counts is not None and settings.max_iter:
            seed = _batch_seed(self.seed, self.n_batches)
            after = after._refine(settings, sums, topic_counts, rows.astype(np.int64), topics, kept, seed)
        return replace(after, sums=sums.save(), topic_counts=topic_counts)

    def _refine(
        self,
        settings: LdaSettings,
        sums: WordSums,
        topic_counts: Any,
        rows: Any,
        topics: SpectralTopics | None,
        kept: float,
        seed: int,
    ) -> TopicStream:
        """Assign the words of a batch to the topics, given the counts so far, and add them to these in place.

        `kept` is the share of the earlier documents that is not forgotten.
        """
        alpha, behind = self.alpha, self.documents_behind_alpha
        if topics is not None and self._spectral_is_better(settings, sums, topic_counts, rows, topics):
            # All words so far would have about half of their number as weight by now: see below.
            sizes = 0.5 * sums.n_tokens * topics.alpha / topics.alpha.sum()
            topics.topic_word[:] *= sizes[:, None]
            np.copyto(topic_counts, topics.topic_word, casting="same_kind")  # a second such array may not fit
            alpha, behind = topics.alpha.copy(), 0.0
        batch = refine_batch(
            rows, topic_counts, alpha, self.eta, n_sweeps=settings.max_iter, seed=seed, n_jobs=settings.n_jobs
        )
        # Early batches were assigned by poorer topics: a batch counts in proportion to the documents before it.
        n_batch = rows.shape[0]
        memory = (1 - n_batch / sums.n_documents) * kept
        topic_counts *= np.float32(memory)
        topic_counts[:, batch.words] += batch.topic_counts
        behind = memory * behind + n_batch
        share = n_batch / behind
        return replace(self, alpha=(1 - share) * alpha + share * batch.alpha, documents_behind_alpha=behind)

    def _spectral_is_better(
        self, settings: LdaSettings, sums: WordSums, topic_counts: Any, rows: Any, topics: SpectralTopics
    ) -> bool:
        """Return whether the spectral topics predict a batch better than the refined ones; neither has seen it."""
        halves, frequencies = split_sample(rows, seed=self.seed), sums.first_moment()
        n_jobs, totals = settings.n_jobs, topic_counts.sum(axis=1, dtype=np.float64)
        current = completion_scores(halves, topic_counts, self.alpha, frequencies, n_jobs=n_jobs, sizes=totals)
        spectral = completion_scores(halves, topics.topic_word, topics.alpha, frequencies, n_jobs=n_jobs)
        return bool(spectral.sum() > current.sum())

    def result(self, spec: TopicSpec) -> Fit:
        """Return the model of all documents so far; the stream stays as it is."""
        self._check_whole()
        settings = spec.algorithm
        sums = WordSums.restore(self.sums, parallel=settings.parallel, copy=False)
        if self.topic_counts is not None:
            known = replace(self.diagnostics, n_documents=sums.n_documents, n_tokens=sums.n_tokens)
            params = TopicParams.from_counts(self.topic_counts, self.alpha, self.eta, known)
        else:
            reduced = reduce_moments(sums, self.diagnostics.n_components)
            near = reduced.directions.T @ self.coordinates
            topics = topics_for(self.concentration, reduced, sums, seed=self.seed, near=near, before=near)
            diagnostics = diagnose(reduced, topics, sums.n_documents, sums)
            prior = settings.topic_word_prior
            params = TopicParams.from_shares(topics.topic_word, topics.alpha, sums.n_tokens, prior, diagnostics)
        return Fit(params, self.context, Info(sums.n_documents, n_iter=settings.max_iter))

    def verify(self, spec: TopicSpec, n_features: int) -> None:  # noqa: ARG002 - the rules of the fields know it
        """Raise `ValueError` unless the stream, which may come from a file of anyone, can go on."""
        k = self.diagnostics.n_components
        require(self.coordinates.shape[1] <= k, "its stream must have found no more topics than it has")
        require(k == spec.settings.n_components, "its stream must have the topics of its parameters")
        require(self.diagnostics.weights.size == k, "its diagnostics must be those of its topics")
        if self.topic_counts is not None:
            require(self.alpha.size == self.topic_counts.shape[0], "its stream must have a prior for every topic")
            require(self.alpha.size == k, "its counts must be those of its topics")

    def _check_whole(self) -> None:
        if "_changed_in_place" in vars(self):
            raise RuntimeError(
                "A stream of documents must be whole. This one was interrupted in the middle of a batch, and is too "
                "large for a copy to be kept. Load the model from where it was last saved."
            )


def _batch_seed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def _found(found: SpectralFit) -> dict[str, Any]:
    """Return the fields of a stream that estimated topics set."""
    return {"coordinates": found.coordinates, "concentration": found.concentration, "diagnostics": found.diagnostics}


def _coordinates_of(topic_counts: NDArray[np.float32], basis: FloatArray) -> FloatArray:
    """Return the coordinates of topics given by their words, some words at a time: the arrays may be large."""
    coordinates = np.zeros((basis.shape[1], topic_counts.shape[0]))
    for words in blocks(basis.shape[0], tall=True):
        coordinates += basis[words].T @ topic_counts[:, words].T.astype(np.float64)
    return coordinates
