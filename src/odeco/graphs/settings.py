"""The settings of communities are checked here, once, before anything is learnt."""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._arguments import check_number
from odeco.topics import lda_settings
from odeco.topics.lda_settings import LdaSettings


def check_settings(model: Any) -> LdaSettings:
    """Return the settings of communities, as those of topics, or raise."""
    if model.concentration != "auto":
        check_number("concentration", model.concentration, 0.0, np.inf)
    return lda_settings.check_settings(_AsTopics(model))


class _AsTopics:
    """The settings of communities under the names that topics have for them."""

    def __init__(self, model: Any) -> None:
        self.n_components = model.n_components
        self.doc_topic_concentration = model.concentration
        self.refine, self.n_jobs = model.refine, model.n_jobs
        self.n_inference_iterations = model.n_inference_iterations
        self.document_weight, self.topic_word_prior, self.forget = "length", None, None
        self.n_oversamples, self.n_passes = 10, 4
