"""Topics of a stream of documents: moments that go on being summed, and counts of topics that go on being refined."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odeco._types import FloatArray
from odeco.topics.concentration import choose_concentration, completion_scores
from odeco.topics.diagnostics import TopicDiagnostics, diagnose
from odeco.topics.gibbs import refine_batch, refine_topics
from odeco.topics.learnt import LearntTopics, counted, smoothed
from odeco.topics.products import row_blocks
from odeco.topics.settings import LdaSettings, check_supported, size_of_basis
from odeco.topics.spectral import SpectralTopics, reduce_moments, topics_at
from odeco.topics.stream import TopicStream
from odeco.topics.sums import WordSums, check_usable


class OnlineLda:
    """What `TensorLDA.partial_fit` has learnt so far; no document is kept.

    Topics are looked for anew when the basis of the moments moves, and put in the order of those before. In between
    they are followed from there; without refinement only when they are asked for.

    Parameters
    ----------
    settings : LdaSettings
        Checked settings.
    n_words, seed : int
        Size of the vocabulary, and the seed of all draws.

    Attributes
    ----------
    places : array, m x k
        Coordinates of the topics, in the basis of the moments, when the basis last moved.
    concentration : float
        The α₀ that they were found with.
    topic_counts : array of float32, k x V, or None
        With refinement, words of each kind in each topic.
    alpha, eta, documents_behind_alpha : array, float, float
        With refinement, the Dirichlet parameters, and how many documents the first are a mean over.
    n_batches : int
        Batches seen.
    """

    def __init__(self, settings: LdaSettings, n_words: int, seed: int) -> None:
        self.settings, self.n_words, self.seed = settings, n_words, seed
        self.stream = TopicStream(
            n_words,
            size_of_basis(settings, n_words),
            n_carried=self.n_components,
            n_passes=settings.n_passes,
            weigh=settings.weigh,
            forget=settings.forget,
            seed=seed,
            parallel=settings.parallel,
        )
        self.n_batches = 0
        self.places: FloatArray = np.zeros((0, 0))
        self.concentration = 0.0
        self.diagnostics: TopicDiagnostics
        self.topic_counts: NDArray[np.float32] | None = None
        self.alpha: FloatArray = np.zeros(0)
        self.eta, self.documents_behind_alpha = 0.0, 0.0

    @property
    def n_documents(self) -> int:
        """Documents seen."""
        return self._sums.n_documents

    def check_first(self, counts: Any) -> None:
        """Raise if a stream cannot begin with this batch."""
        words = WordSums(self.n_words)
        words.update(counts)
        check_usable(words)
        check_supported(self.n_components, words)

    def update(self, counts: Any) -> None:
        """Learn from checked counts of a batch of documents."""
        lifting = self.stream.update(counts)
        topics = None if lifting is None else self._look_again(counts, lifting)
        if self.settings.refine:
            self._refine(counts.astype(np.int64), topics)
        self.n_batches += 1

    def learnt(self) -> LearntTopics:
        """Return the topics as they are now; where the stream stands does not depend on asking."""
        if self.topic_counts is not None:
            return counted(self.topic_counts, self.alpha, self.eta, self.diagnostics)
        sums, reduced = self._sums, reduce_moments(self._sums, self.n_components)
        near = reduced.directions.T @ self.places
        topics = topics_at(self.concentration, reduced, sums, seed=self.seed, near=near, before=near)
        diagnostics = diagnose(sums, reduced, topics)
        return smoothed(topics.topic_word, topics.alpha, sums.n_tokens, self.settings.topic_word_prior, diagnostics)

    @property
    def n_components(self) -> int:
        """Number of topics."""
        return int(self.settings.n_components)  # "auto" was refused

    @property
    def _sums(self) -> WordSums:
        if self.stream.sums is None:
            raise ValueError("The stream must have begun. No batch was seen. Call partial_fit first.")
        return self.stream.sums

    def _look_again(self, counts: Any, lifting: FloatArray) -> SpectralTopics:
        """Look for the topics in the new basis, and put them in the order of those before."""
        sums, reduced = self._sums, reduce_moments(self._sums, self.n_components)
        before = None
        if lifting.shape[1]:
            places = lifting.T @ self.places if self.topic_counts is None else self._places_of(self.topic_counts)
            before = reduced.directions.T @ places
        concentration, near = self.settings.concentration, None
        if concentration is None:
            concentration, near = choose_concentration(
                reduced, sums, counts, seed=self.seed, n_jobs=self.settings.n_jobs
            )
        topics = topics_at(concentration, reduced, sums, seed=self.seed, near=near, before=before)
        self.concentration, self.places = concentration, reduced.directions @ topics.coordinates
        self.diagnostics = diagnose(sums, reduced, topics)
        return topics

    def _places_of(self, rows: NDArray[np.float32]) -> FloatArray:
        """Return the coordinates of topics given by their words, some words at a time: the arrays may be large."""
        basis = self._sums.basis
        places = np.zeros((basis.shape[1], rows.shape[0]))
        for words in row_blocks(self.n_words):
            places += basis[words].T @ rows[:, words].T.astype(np.float64)
        return places

    def _refine(self, counts: Any, topics: SpectralTopics | None) -> None:
        """Draw the topics of the batch's words given the counts so far, and add them to these."""
        seed = int(np.random.SeedSequence([self.seed, self.n_batches]).generate_state(1)[0])
        sweeps, n_jobs, n_batch = self.settings.refine, self.settings.n_jobs, counts.shape[0]
        if self.topic_counts is None:
            if topics is None:
                raise ValueError("Refinement must begin with topics. There are none. Begin a new stream.")
            refined = refine_topics(
                counts,
                topics.topic_word,
                topics.alpha,
                n_sweeps=sweeps,
                seed=seed,
                n_jobs=n_jobs,
                eta=self.settings.topic_word_prior,
            )
            self.topic_counts, self.alpha, self.eta = refined.topic_counts, refined.alpha, float(refined.eta)
            self.documents_behind_alpha = float(n_batch)
            return
        if topics is not None:
            self._begin_again_if_better(counts, topics)
        batch = refine_batch(counts, self.topic_counts, self.alpha, self.eta, n_sweeps=sweeps, seed=seed, n_jobs=n_jobs)
        # Early batches were judged by poorer topics: a batch counts in proportion to the documents that came before.
        memory = 1 - n_batch / self.n_documents
        if self.settings.forget is not None:
            memory *= 0.5 ** (n_batch / self.settings.forget)
        self.topic_counts *= np.float32(memory)
        self.topic_counts[:, batch.words] += batch.topic_counts
        self.documents_behind_alpha = memory * self.documents_behind_alpha + n_batch
        share = n_batch / self.documents_behind_alpha
        self.alpha = (1 - share) * self.alpha + share * batch.alpha

    def _begin_again_if_better(self, counts: Any, topics: SpectralTopics) -> None:
        """Go back to the spectral topics if they predict the batch better, on which neither has been refined yet."""
        current: Any = self.topic_counts
        totals = current.sum(axis=1, dtype=np.float64)
        scores = [
            completion_scores(
                rows, alpha, self._sums.first_moment(), counts, seed=self.seed, n_jobs=self.settings.n_jobs, sizes=sizes
            ).sum()
            for rows, sizes, alpha in (
                (current, totals, self.alpha),
                (topics.topic_word, np.ones(totals.size), topics.alpha),
            )
        ]
        if scores[1] > scores[0]:
            # With the weight that all words so far would have by now, half of their number: see `_refine`.
            sizes = 0.5 * self._sums.n_tokens * topics.alpha / topics.alpha.sum()
            topics.topic_word[:] *= sizes[:, None]
            np.copyto(current, topics.topic_word, casting="same_kind")  # in place: a second such array may not fit
            self.alpha = topics.alpha.copy()
            self.documents_behind_alpha = 0.0

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return where the stream stands as a JSON header and named arrays."""
        names = ("seed", "n_batches", "concentration", "eta", "documents_behind_alpha")
        header = {name: getattr(self, name) for name in names}
        arrays = {f"stream.{name}": array for name, array in self.stream.to_arrays().items()}
        arrays |= {"places": self.places, "alpha": self.alpha}
        if self.topic_counts is not None:
            arrays["topic_counts"] = self.topic_counts
        return header, arrays

    @classmethod
    def from_arrays(
        cls, settings: LdaSettings, header: dict[str, Any], arrays: dict[str, Any], diagnostics: TopicDiagnostics
    ) -> OnlineLda:
        """Return the stream that `to_arrays` described."""
        online = cls(settings, arrays["stream.basis"].shape[0], header["seed"])
        for name, value in header.items():
            setattr(online, name, value)
        online.stream.restore({name[7:]: array for name, array in arrays.items() if name.startswith("stream.")})
        online.places, online.alpha, online.diagnostics = arrays["places"], arrays["alpha"], diagnostics
        online.topic_counts = arrays.get("topic_counts")
        return online
