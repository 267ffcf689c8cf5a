"""The settings of the algorithms that fit topics, whether for `TensorLDA` or for a model that reduces to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from odeco.models.lda.counts import DocumentWeight

#: Receives the stage of the work, the number of finished steps and that of all steps.
Callback = Callable[[str, int, int], object]

#: The largest number of topics that is tried with ``n_components="auto"``.
MAX_AUTO = 100


@dataclass(frozen=True)
class LdaSettings:
    """Checked settings, as `TensorLDA` has them; `concentration` is None if it is to be selected."""

    n_components: int | Literal["auto"]
    concentration: float | None
    max_iter: int
    topic_word_prior: float | None
    document_weight: DocumentWeight
    n_oversamples: int
    n_passes: int
    forget: float | None
    max_inference_iter: int
    n_jobs: int

    @property
    def parallel(self) -> bool:
        """Whether to use more than one core."""
        return self.n_jobs != 1

    def basis_size(self, n_words: int) -> int:
        """Return the number of directions that subspace iteration keeps."""
        k = MAX_AUTO if self.n_components == "auto" else self.n_components
        return min(k + self.n_oversamples, n_words)
