"""A TensorLDA in a file: settings, topics, diagnostics and where its stream stands; no pickle."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from odeco._files import load_arrays, save_arrays
from odeco.privacy import PrivacyReport
from odeco.topics.diagnostics import TopicDiagnostics
from odeco.topics.learnt import LearntTopics
from odeco.topics.online import OnlineLda
from odeco.topics.settings import check_settings

if TYPE_CHECKING:
    from odeco.topics.lda import TensorLDA

_KIND = "topic model"


def save(model: TensorLDA, path: str | os.PathLike[str]) -> None:
    """Write a fitted model."""
    parameters = model.get_params()
    state = parameters["random_state"]
    if state is not None and not isinstance(state, int | np.integer):
        raise ValueError(
            f"`random_state` must be None or an int for a model to be saved. Got {state!r}. Set it with set_params; "
            "what is learnt already does not depend on it."
        )
    parameters["random_state"] = None if state is None else int(state)
    learnt = model._answer("topic_word_")
    diagnostics = {
        field.name: getattr(learnt.diagnostics, field.name) for field in dataclasses.fields(TopicDiagnostics)
    }
    numbers = {name: value for name, value in diagnostics.items() if not isinstance(value, np.ndarray)}
    header: dict[str, Any] = {
        "parameters": parameters,
        "seed": model._seed,
        "n_documents": model.n_documents_,
        "eta": learnt.eta,
        "diagnostics": numbers,
    }
    if hasattr(model, "privacy_"):
        header["privacy"] = model.privacy_.to_json()
    arrays: dict[str, Any] = {"topic_word": learnt.topic_word, "alpha": learnt.alpha, "totals": learnt.totals}
    arrays |= {f"diagnostics.{name}": diagnostics[name] for name in diagnostics if name not in numbers}
    if hasattr(model, "feature_names_in_"):
        arrays["feature_names"] = np.array([str(name) for name in model.feature_names_in_])
    if model._online is not None:
        online, further = model._online.to_arrays()
        header["online"] = online
        arrays |= {f"online.{name}": array for name, array in further.items()}
    save_arrays(path, _KIND, header, arrays)


def load(cls: type[TensorLDA], path: str | os.PathLike[str]) -> TensorLDA:
    """Read what `save` wrote."""
    header, arrays = load_arrays(path, _KIND)
    model = cls(**header["parameters"])
    shown: dict[str, Any] = {name[12:]: array for name, array in arrays.items() if name.startswith("diagnostics.")}
    diagnostics = TopicDiagnostics(**header["diagnostics"], **shown)
    model._learnt = LearntTopics(arrays["topic_word"], arrays["totals"], arrays["alpha"], header["eta"], diagnostics)
    model._seed, model.n_documents_ = header["seed"], header["n_documents"]
    model.n_components_, model.n_features_in_ = (int(size) for size in arrays["topic_word"].shape)
    if "feature_names" in arrays:
        model.feature_names_in_ = arrays["feature_names"].astype(object)
    if "privacy" in header:
        model.privacy_ = PrivacyReport.from_json(header["privacy"])
    model._online = None
    if "online" in header:
        further = {name[7:]: array for name, array in arrays.items() if name.startswith("online.")}
        model._online = OnlineLda.from_arrays(
            check_settings(model, online=True), header["online"], further, diagnostics
        )
    return model
