"""What TensorLDA may be asked for."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from odeco._arguments import check_choice, check_count
from odeco.topics.counts import DocumentWeight
from odeco.topics.sums import WordSums

#: The most topics that are looked for when their number is left to the data.
MOST_AUTOMATIC = 100


@dataclass(frozen=True)
class LdaSettings:
    """The checked settings of a TensorLDA; None for a concentration that is to be chosen."""

    n_components: int | Literal["auto"]
    concentration: float | None
    refine: int
    topic_word_prior: float | None
    weigh: DocumentWeight
    n_oversamples: int
    n_passes: int
    forget: float | None
    n_inference_iterations: int
    n_jobs: int

    @property
    def parallel(self) -> bool:
        """Whether to use more than one core."""
        return self.n_jobs != 1


def check_settings(model: Any, *, online: bool = False) -> LdaSettings:
    """Return the settings of a TensorLDA, or raise."""
    k = model.n_components
    automatic = isinstance(k, str) and k == "auto"
    if automatic and online:
        raise ValueError(
            "`n_components` must be an int for partial_fit. Got 'auto'. Fit a first part of the documents with 'auto' "
            "and take its n_components_."
        )
    check_choice("document_weight", model.document_weight, ("length", "equal"))
    concentration = model.doc_topic_concentration
    chosen = isinstance(concentration, str) and concentration == "auto"
    n_jobs = -1 if model.n_jobs is None else model.n_jobs
    if n_jobs != -1:
        check_count("n_jobs", n_jobs)
    return LdaSettings(
        n_components="auto" if automatic else check_count("n_components", k),
        concentration=None if chosen else _positive("doc_topic_concentration", concentration, " or 'auto'"),
        refine=check_count("refine", model.refine, 0),
        topic_word_prior=_optional("topic_word_prior", model.topic_word_prior),
        weigh=model.document_weight,
        n_oversamples=check_count("n_oversamples", model.n_oversamples, 0),
        n_passes=check_count("n_passes", model.n_passes),
        forget=_optional("forget", model.forget),
        n_inference_iterations=check_count("n_inference_iterations", model.n_inference_iterations),
        n_jobs=n_jobs,
    )


def check_private(model: Any, groups: Any) -> bool:
    """Return whether a TensorLDA is to be private, or raise if what it needs for that is not there."""
    given = {"epsilon": model.epsilon, "delta": model.delta}
    missing = [name for name, value in given.items() if value is None]
    check_choice("unit", model.unit, ("document", "user"))
    if len(missing) == 1:
        raise ValueError(
            f"A private model needs `epsilon` and `delta`. Got no `{missing[0]}`. Pass both, or neither for a model "
            "without privacy."
        )
    if (model.unit == "user") != (groups is not None):
        raise ValueError(
            f"`groups` must be given for unit='user' and for no other. Got unit={model.unit!r} and "
            f"groups{'' if groups is not None else '=None'}. Pass one label a document, or unit='document'."
        )
    return not missing


def check_supported(n_components: int | Literal["auto"], words: WordSums) -> None:
    """Raise if there are more topics than words, or than documents with three words."""
    n_distinct = int(np.count_nonzero(words.first_moment()))
    most = min(n_distinct, words.n_usable)
    if n_components != "auto" and n_components > most:
        raise ValueError(
            f"`n_components` must be at most the number of distinct words and of documents with three words. "
            f"Got n_components={n_components}, {n_distinct:,} distinct words and {words.n_usable:,} such documents "
            f"(n_samples={words.n_documents}). Lower n_components or pass more documents."
        )


def size_of_basis(settings: LdaSettings, n_words: int) -> int:
    """Return how many directions subspace iteration keeps."""
    k = MOST_AUTOMATIC if settings.n_components == "auto" else settings.n_components
    return min(k + settings.n_oversamples, n_words)


def _positive(name: str, value: Any, other: str = "") -> float:
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < float(value) < np.inf:
        return float(value)
    raise ValueError(f"`{name}` must be a positive number{other}. Got {value!r}.")


def _optional(name: str, value: Any) -> float | None:
    return None if value is None else _positive(name, value, " or None")
