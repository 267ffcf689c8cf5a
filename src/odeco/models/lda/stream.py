"""Topics of a stream of documents, batch by batch: `TensorLDA.partial_fit`.

The moments of all documents are summed in a basis that moves when the number of documents has doubled. With Gibbs
sweeps, the words of each batch are also assigned to the topics, and counted there.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odeco._util.types import FloatArray
from odeco.models.lda.corpus import LocalCorpus
from odeco.models.lda.counts import blocks, count_chunks
from odeco.models.lda.diagnostics import TopicDiagnostics, diagnose
from odeco.models.lda.evaluate import completion_scores, split_sample
from odeco.models.lda.moments import WordSums
from odeco.models.lda.refine import refine_batch, refine_topics
from odeco.models.lda.result import FittedTopics, fitted_by_counts, fitted_by_shares
from odeco.models.lda.settings import LdaSettings
from odeco.models.lda.spectral import SpectralTopics, move_basis, reduce_moments, sum_moments, topics_for
from odeco.models.lda.start import fit_spectral

#: The basis moves after at least this many further documents.
_FEWEST_BEFORE_MOVE = 64

#: A stream of more bytes is not copied before every batch.
_MOST_COPIED = 2**28

#: The header of a saved model has these attributes of a stream.
_IN_HEADER = ("seed", "n_batches", "concentration", "eta", "documents_behind_alpha")


class TopicStream:
    """What `TensorLDA.partial_fit` has learnt so far; no document is kept.

    Topics are looked for anew when the basis of the moments moves, and are put in the order of those before. In between
    they are followed from there; without refinement only when they are asked for.

    Parameters
    ----------
    settings : LdaSettings
        Checked settings, with a number of topics.
    seed : int
        Seed of all draws.
    sums : WordSums
        The moments of all documents so far, in the current basis.

    Attributes
    ----------
    next_move : int
        The basis moves when this many documents have been seen.
    n_batches : int
        Number of batches seen.
    places : array, m x k
        Coordinates of the topics, in the basis of the moments, when the basis last moved.
    concentration : float
        The α₀ that they were found with.
    diagnostics : TopicDiagnostics
        How far they can be trusted.
    topic_counts : array of float32, k x V, or None
        With refinement, the number of words of each kind in each topic.
    alpha : array
        With refinement, the Dirichlet parameters of the proportions of topics in a document.
    eta : float
        With refinement, the prior count of every word in every topic.
    documents_behind_alpha : float
        How many documents `alpha` is a mean over; forgotten documents count less.
    """

    def __init__(self, settings: LdaSettings, seed: int, sums: WordSums) -> None:
        self.settings, self.seed, self.sums = settings, seed, sums
        self.n_components = int(settings.n_components)
        self.next_move = max(_FEWEST_BEFORE_MOVE, 2 * sums.n_documents)
        self.n_batches = 0
        self.places: FloatArray = np.zeros((0, 0))
        self.concentration = 0.0
        self.diagnostics: TopicDiagnostics
        self.topic_counts: NDArray[np.float32] | None = None
        self.alpha: FloatArray = np.zeros(0)
        self.eta, self.documents_behind_alpha = 0.0, 0.0
        self._half_updated = False

    @classmethod
    def begin(cls, settings: LdaSettings, counts: Any, seed: int) -> TopicStream:
        """Return the stream that begins with the checked counts of a first batch; raise if it holds too little."""
        sums, settings = sum_moments(LocalCorpus(counts, settings), settings, seed=seed, callback=lambda *_: None)
        stream = cls(settings, seed, sums)
        topics = stream._look_for_topics(counts, None)
        if settings.max_iter:
            stream._begin_refinement(counts.astype(np.int64), topics)
        stream.n_batches = 1
        return stream

    @property
    def n_documents(self) -> int:
        """How many documents were seen."""
        return self.sums.n_documents

    def updated(self, counts: Any) -> TopicStream:
        """Return the stream after the checked counts of one more batch.

        It is a copy, so that whatever goes wrong leaves this stream as it was. Only a stream too large for a second one
        is changed in place; should that be interrupted, it refuses to go on.
        """
        self._check_whole()
        if sum(array.nbytes for array in self.to_arrays()[1].values()) > _MOST_COPIED:
            self._half_updated = True
            self._update(counts)
            self._half_updated = False
            return self
        after = copy.deepcopy(self)
        after._update(counts)
        return after

    def _update(self, counts: Any) -> None:
        sums, forget = self.sums, self.settings.forget
        if forget is not None:
            sums.decay(0.5 ** (counts.shape[0] / forget))
        sums.add(count_chunks(counts, document_weight=self.settings.document_weight, first=sums.n_documents))
        topics = None
        if sums.n_documents >= self.next_move:
            lifting = move_basis(sums, self.n_components)
            step = sums.n_documents if forget is None else min(sums.n_documents, round(forget))
            self.next_move = sums.n_documents + max(step, _FEWEST_BEFORE_MOVE)
            places = lifting.T @ self.places if self.topic_counts is None else self._places_of(self.topic_counts)
            topics = self._look_for_topics(counts, places)
        if self.topic_counts is not None and self.settings.max_iter:
            self._refine(counts.astype(np.int64), self.topic_counts, topics)
        self.n_batches += 1

    def fitted(self) -> FittedTopics:
        """Return the topics as they are now; asking for them does not change how the stream goes on."""
        self._check_whole()
        if self.topic_counts is not None:
            known = replace(self.diagnostics, n_documents=self.sums.n_documents, n_tokens=self.sums.n_tokens)
            return replace(
                fitted_by_counts(self.topic_counts, self.alpha, self.eta, known), n_iter=self.settings.max_iter
            )
        sums, reduced = self.sums, reduce_moments(self.sums, self.n_components)
        near = reduced.directions.T @ self.places
        topics = topics_for(self.concentration, reduced, sums, seed=self.seed, near=near, before=near)
        diagnostics = diagnose(reduced, topics, sums.n_documents, sums)
        prior = self.settings.topic_word_prior
        return fitted_by_shares(topics.topic_word, topics.alpha, sums.n_tokens, prior, diagnostics)

    def _check_whole(self) -> None:
        if self._half_updated:
            raise RuntimeError(
                "A stream of documents must be whole. This one was interrupted in the middle of a batch, and is too "
                "large for a copy to be kept. Load the model from where it was last saved."
            )

    def _look_for_topics(self, counts: Any, places: FloatArray | None) -> SpectralTopics:
        """Look for the topics in a new basis, and put them in the order of those before, which had these places."""
        found = fit_spectral(
            self.sums, LocalCorpus(counts, self.settings), self.settings, seed=self.seed, places=places
        )
        self.concentration, self.places, self.diagnostics = found.concentration, found.places, found.diagnostics
        return found.topics

    def _places_of(self, topic_counts: NDArray[np.float32]) -> FloatArray:
        """Return the coordinates of topics given by their words, some words at a time: the arrays may be large."""
        basis = self.sums.basis
        places = np.zeros((basis.shape[1], topic_counts.shape[0]))
        for words in blocks(basis.shape[0], tall=True):
            places += basis[words].T @ topic_counts[:, words].T.astype(np.float64)
        return places

    def _begin_refinement(self, counts: Any, topics: SpectralTopics) -> None:
        """Deal the words of the first batch to the topics."""
        refined = refine_topics(
            counts,
            topics.topic_word,
            n_sweeps=self.settings.max_iter,
            seed=self._batch_seed(),
            n_jobs=self.settings.n_jobs,
            eta=self.settings.topic_word_prior,
        )
        self.topic_counts, self.alpha, self.eta = refined.topic_counts, refined.alpha, float(refined.eta)
        self.documents_behind_alpha = float(counts.shape[0])

    def _refine(self, counts: Any, topic_counts: NDArray[np.float32], topics: SpectralTopics | None) -> None:
        """Deal the words of a batch to the topics, given the counts so far, and add them to these."""
        if topics is not None:
            self._begin_again_if_better(counts, topic_counts, topics)
        batch = refine_batch(
            counts,
            topic_counts,
            self.alpha,
            self.eta,
            n_sweeps=self.settings.max_iter,
            seed=self._batch_seed(),
            n_jobs=self.settings.n_jobs,
        )
        # Early batches were judged by poorer topics: a batch counts in proportion to the documents that came before.
        n_batch = counts.shape[0]
        memory = 1 - n_batch / self.sums.n_documents
        if self.settings.forget is not None:
            memory *= 0.5 ** (n_batch / self.settings.forget)
        topic_counts *= np.float32(memory)
        topic_counts[:, batch.words] += batch.topic_counts
        self.documents_behind_alpha = memory * self.documents_behind_alpha + n_batch
        share = n_batch / self.documents_behind_alpha
        self.alpha = (1 - share) * self.alpha + share * batch.alpha

    def _begin_again_if_better(self, counts: Any, topic_counts: NDArray[np.float32], topics: SpectralTopics) -> None:
        """Go back to the spectral topics if they predict the batch better, on which neither has been refined yet."""
        halves, frequencies = split_sample(counts, seed=self.seed), self.sums.first_moment()
        n_jobs, totals = self.settings.n_jobs, topic_counts.sum(axis=1, dtype=np.float64)
        current = completion_scores(halves, topic_counts, self.alpha, frequencies, n_jobs=n_jobs, sizes=totals)
        spectral = completion_scores(halves, topics.topic_word, topics.alpha, frequencies, n_jobs=n_jobs)
        if spectral.sum() > current.sum():
            # All words so far would have about half of their number as weight by now: see `_refine`.
            sizes = 0.5 * self.sums.n_tokens * topics.alpha / topics.alpha.sum()
            topics.topic_word[:] *= sizes[:, None]
            np.copyto(topic_counts, topics.topic_word, casting="same_kind")  # in place: a second such array may not fit
            self.alpha = topics.alpha.copy()
            self.documents_behind_alpha = 0.0

    def _batch_seed(self) -> int:
        return int(np.random.SeedSequence([self.seed, self.n_batches]).generate_state(1)[0])

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return where the stream stands, as a JSON header and named arrays."""
        header = {name: getattr(self, name) for name in _IN_HEADER}
        arrays = {"stream.next_move": np.array(self.next_move), "places": self.places, "alpha": self.alpha}
        arrays |= {f"stream.{name}": array for name, array in self.sums.to_arrays().items()}
        if self.topic_counts is not None:
            arrays["topic_counts"] = self.topic_counts
        return header, arrays

    @classmethod
    def from_arrays(
        cls, settings: LdaSettings, header: dict[str, Any], arrays: dict[str, Any], diagnostics: TopicDiagnostics
    ) -> TopicStream:
        """Return the stream that `to_arrays` described."""
        inner = {name.removeprefix("stream."): array for name, array in arrays.items() if name.startswith("stream.")}
        sums = WordSums.from_arrays(inner, document_weight=settings.document_weight, parallel=settings.parallel)
        stream = cls(settings, header["seed"], sums)
        for name in _IN_HEADER:
            setattr(stream, name, header[name])
        stream.next_move = int(inner["next_move"])
        stream.places, stream.alpha, stream.diagnostics = arrays["places"], arrays["alpha"], diagnostics
        stream.topic_counts = arrays.get("topic_counts")
        return stream
