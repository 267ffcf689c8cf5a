"""The topic model as a specification: what a file holds, the fit to all documents at once, and its description."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from odeco._util.schema import require
from odeco._util.state import State, array_field
from odeco._util.types import FloatArray, IndexArray
from odeco.io.rows import check_structure
from odeco.models.engine.description import Description
from odeco.models.engine.fit import Fit, Info
from odeco.models.engine.spec import Spec
from odeco.models.lda.corpus import Corpus, LocalCorpus
from odeco.models.lda.counts import as_counts
from odeco.models.lda.display import describe
from odeco.models.lda.fitting import fit_topics
from odeco.models.lda.params import Callback, LdaSettings, TopicParams
from odeco.models.lda.private import PrivateTopicStream
from odeco.models.lda.stream import TopicStream
from odeco.privacy.report import PrivacyReport


@dataclass(frozen=True, eq=False)
class TopicContext(State):
    """What belongs to the columns of word counts, and public documents over the same columns.

    Attributes
    ----------
    tokenizer : str
        How texts were split into words; empty if that is not known.
    words : array of str or None
        The words that the columns count; None if they are not known.
    public_counts, public_words, public_starts : arrays or None
        Word counts of public documents, as the data, indices and pointers of a CSR array.
    """

    tokenizer: str = array_field(kind="U", default="")
    words: NDArray[np.str_] | None = array_field("n_features", kind="U", default=None)
    public_counts: FloatArray | None = array_field("stored", low=0, default=None)
    public_words: IndexArray | None = array_field("stored", kind="i", low=0, default=None)
    public_starts: IndexArray | None = array_field(None, kind="i", low=0, default=None)

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
        params = fit_topics(data, self.algorithm, seed=seed, callback=callback).largest_first()
        tried = params.diagnostics.selection_scores
        info = Info(
            data.n_documents,
            n_iter=self.algorithm.max_iter,
            tried=tried[:, 0],
            tried_scores=tried[:, 1].astype(np.float64),
            tried_as_good=tried[:, 0] == len(params.alpha),
        )
        return Fit(params, base, info)

    def describe(self, fit: Fit, names: list[str], privacy: PrivacyReport | None, rows: Any = None) -> Description:
        """Return the topics in words and as a figure."""
        return describe(fit.params, names)

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
