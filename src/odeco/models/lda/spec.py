"""The topic model as a specification: what a file holds, the fit to all documents at once, and its description."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from odeco._util.state import State, array_field, require
from odeco._util.types import FloatArray, IndexArray
from odeco.errors import VocabularyError
from odeco.io.rows import check_structure
from odeco.models.engine.description import Description
from odeco.models.engine.fit import Fit, Info
from odeco.models.engine.private import guarantee_of
from odeco.models.engine.spec import Spec
from odeco.models.lda.corpus import Corpus, LocalCorpus
from odeco.models.lda.counts import as_counts
from odeco.models.lda.display import describe
from odeco.models.lda.fitting import fit_topics
from odeco.models.lda.params import Callback, LdaSettings, TopicParams
from odeco.models.lda.private import PrivateTopicStream
from odeco.models.lda.seeds import SeedWords
from odeco.models.lda.stream import TopicStream
from odeco.models.lda.vocabulary import Tokenizer, check_word_lengths
from odeco.privacy.report import PrivacyReport


@dataclass(frozen=True, eq=False)
class TopicContext(State):
    """The words and the tokenizer of the columns of word counts, and public documents over the same columns.

    Attributes
    ----------
    tokenizer : str
        How texts were split into words; empty if that is not known.
    words : array of str or None
        The words that the columns count; None if they are not known.
    labels : array of str or None
        The names of the first topics, which are those of seed words.
    public_counts, public_words, public_starts : arrays or None
        Word counts of public documents, as the data, indices and pointers of a CSR array.
    """

    tokenizer: str = array_field(kind="U", default="")
    words: NDArray[np.str_] | None = array_field("n_features", kind="U", default=None)
    labels: NDArray[np.str_] | None = array_field(None, kind="U", default=None)
    public_counts: FloatArray | None = array_field("stored", low=0, default=None)
    public_words: IndexArray | None = array_field("stored", kind="i", low=0, default=None)
    public_starts: IndexArray | None = array_field(None, kind="i", low=0, default=None)

    @classmethod
    def of(cls, n_words: int, words: Any = None, tokenizer: Tokenizer | None = None, public: Any = None) -> Self:
        """Return the context of `n_words` columns, with checked words and public documents."""
        names = counts = None
        if words is not None:
            given = [str(word) for word in words]
            if len(given) != n_words or len(set(given)) != n_words:
                raise VocabularyError(
                    f"`words` must be one word for each of the {n_words:,} columns, and no word twice. Got "
                    f"{len(given):,}, {len(set(given)):,} of them distinct. Pass those that were counted, in their "
                    "order."
                )
            check_word_lengths(given)
            names = np.array(given, dtype=np.str_)
        if public is not None:
            counts = as_counts(public, n_words)
        stored = (None, None, None) if counts is None else (counts.data, counts.indices, counts.indptr)
        return cls(tokenizer or "", names, None, *stored)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        require(self.tokenizer in ("", "words", "blanks"), "its tokenizer must be 'words' or 'blanks'")
        parts = (self.public_counts, self.public_words, self.public_starts)
        require(len({part is None for part in parts}) == 1, "it must hold all of its public documents, or none")
        require(self.words is None or len(set(self.words.tolist())) == self.words.size, "its words must be distinct")

    def public(self, n_words: int) -> Any:
        """Return the public documents as a CSR array, or None."""
        if self.public_starts is None:
            return None
        shape = (self.public_starts.size - 1, n_words)
        parts: Any = (self.public_counts, self.public_words, self.public_starts)
        counts: Any = sparse.csr_array(parts, shape=shape)
        check_structure(counts)
        return as_counts(counts)


class TopicSpec(Spec):
    """Latent Dirichlet allocation."""

    Params: ClassVar = TopicParams
    Context: ClassVar = TopicContext
    record: ClassVar = "document"
    component: ClassVar = "topic"

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.Stream: Any = TopicStream if settings.epsilon is None else PrivateTopicStream  # type: ignore[misc]
        concentration = settings.doc_topic_concentration
        self.algorithm = LdaSettings(
            settings.n_components,
            None if concentration == "auto" else concentration,
            settings.max_iter,
            settings.topic_word_prior,
            settings.document_weight,
            settings.n_oversamples,
            settings.n_passes,
            settings.n_jobs or -1,
        )

    def prepare(self, rows: Any, context: Any) -> LocalCorpus:
        """Return checked counts as documents to learn from."""
        return LocalCorpus(rows, self.algorithm)

    def fit(self, data: Corpus, base: TopicContext, seed: int, callback: Callback = lambda *_: None) -> Fit:
        """Return the topics of all documents, here or on a cluster, largest first."""
        seeds = None
        if self.settings.seed_words is not None:
            seeds = SeedWords.of(self.settings.seed_words, base.words)
            base = replace(base, labels=np.array(seeds.labels, dtype=np.str_))
        params = fit_topics(data, self.algorithm, seed=seed, callback=callback, seeds=seeds)
        tried = params.diagnostics.selection_scores
        info = Info(
            data.n_documents,
            n_iter=self.algorithm.max_iter,
            tried=tried[:, 0],
            tried_scores=tried[:, 1].astype(np.float64),
            tried_as_good=tried[:, 0] == len(params.alpha),
        )
        return Fit(params, base, info)

    def is_private(self, groups: Any = None, vocabulary: Any = None, *, in_batches: bool = False) -> bool:
        """Return whether the model is private; raise if the arguments of a fit do not go together."""
        private, settings = guarantee_of(self) is not None, self.settings
        if not in_batches and (settings.unit == "user") != (groups is not None):
            raise ValueError(
                f"`groups` must be given for unit='user' and for no other. Got unit={settings.unit!r} and "
                f"groups{'' if groups is not None else '=None'}. Pass one label per document, or unit='document'."
            )
        if not private and settings.public is not None:
            raise ValueError(
                "`public` is for private models, which start from it. Got it without `epsilon` and `delta`. Pass "
                "these, or put the public documents with the others."
            )
        if not private and vocabulary is not None:
            raise ValueError(
                "`vocabulary` is for private models. Got one without `epsilon` and `delta`. Pass these, or leave it "
                "out."
            )
        self._check_seeds(private, in_batches)
        return private

    def _check_seeds(self, private: bool, in_batches: bool) -> None:
        """Raise if there are seed words and no Gibbs sweeps over all documents, or too few topics."""
        settings = self.settings
        if settings.seed_words is None:
            return
        reasons = {"a private model, which has none": private, "a call of partial_fit": in_batches}
        for reason in (text for text, holds in {**reasons, "max_iter=0": settings.max_iter == 0}.items() if holds):
            raise ValueError(
                f"`seed_words` are a prior of the Gibbs sweeps of `fit`. Got them with {reason}. Leave them out."
            )
        if not isinstance(settings.n_components, str) and len(settings.seed_words) > settings.n_components:
            raise ValueError(
                f"`n_components` must be at least the number of topics with seed words, {len(settings.seed_words)}. "
                f"Got {settings.n_components}. Raise it, or leave some out."
            )

    def check_private_stream(self, before: Spec | None, vocabulary: Any) -> None:
        """Raise if a private stream, whose first batch had the specification `before`, cannot have these settings."""
        settings, then = self.settings, (self if before is None else before).settings
        for name in ("epsilon", "delta", "neighbour_relation", "n_components"):
            if getattr(settings, name) != getattr(then, name):
                raise ValueError(
                    "All batches of a private stream must have the same epsilon, delta, neighbours and number of "
                    f"topics. It began with {name}={getattr(then, name)!r}. Got {getattr(settings, name)!r}. Set it "
                    "back, or begin a new model."
                )
        if vocabulary is not None:
            raise ValueError(
                "The words of a private stream must not be chosen from its documents: what the vocabulary cost each "
                "batch is not known. Got `vocabulary`. Call fit with all documents, or take a vocabulary from "
                "elsewhere and leave this out."
            )
        if settings.unit != "document":
            raise ValueError(
                "A private stream protects documents: the documents of a user may be in several batches. "
                f"Got unit={settings.unit!r}. Call fit with all documents, or pass unit='document'."
            )
        if settings.ledger is not None:
            raise ValueError(
                "A private stream keeps its own ledger, by batches: a file that other runs share cannot know which "
                f"documents a batch held. Got ledger={os.fspath(settings.ledger)!r}. Leave it out, or call fit."
            )

    def describe(self, fit: Fit, names: list[str], privacy: PrivacyReport | None, rows: Any = None) -> Description:
        """Return the topics in words and as a figure."""
        return describe(fit.params, names, [] if fit.context.labels is None else fit.context.labels.tolist())

    def verify(self, state: Any) -> None:
        """Raise `ValueError` if the parts of a fit or a stream, read from a file of anyone, contradict each other."""
        params = getattr(state, "params", None)
        if params is not None:
            k, n_words = params.topic_word.shape
            require(k >= 1 and bool(np.all(params.alpha > 0)), "it must have topics, each with a prior")
            require(bool(np.allclose(params.topic_word.sum(axis=1), 1, atol=1e-6)), "its topics must sum to 1")
            require(params.diagnostics.n_components == k, "its diagnostics must be those of its topics")
            private = self.settings.epsilon is not None
            require((params.trust is not None) == private, "it must say how far to trust its topics if it is private")
            state.context.public(n_words)
