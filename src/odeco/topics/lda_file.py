"""A TensorLDA is written to a file and read again, without pickle.

The file holds the settings, the topics, their diagnostics, and where the stream stands.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from odeco._files import load_arrays, save_arrays
from odeco.errors import FileFormatError
from odeco.privacy import PrivacyReport
from odeco.topics.diagnostics import TopicDiagnostics
from odeco.topics.fitted import FittedTopics
from odeco.topics.lda_settings import check_settings
from odeco.topics.learn_in_batches import TopicStream

if TYPE_CHECKING:
    from odeco.topics.lda import TensorLDA

_KIND = "topic model"


def save_model(model: TensorLDA, path: str | os.PathLike[str]) -> None:
    """Write a fitted model."""
    parameters = model.get_params()
    state = parameters["random_state"]
    if state is not None and not isinstance(state, int | np.integer):
        raise ValueError(
            f"`random_state` must be None or an int for a model to be saved. Got {state!r}. Set it with set_params; "
            "what is learnt already does not depend on it."
        )
    parameters["random_state"] = None if state is None else int(state)
    parameters["ledger"] = None if parameters["ledger"] is None else os.fspath(parameters["ledger"])
    fitted = model._fitted_topics("topic_word_")
    diagnostics = {
        field.name: getattr(fitted.diagnostics, field.name) for field in dataclasses.fields(TopicDiagnostics)
    }
    numbers = {name: value for name, value in diagnostics.items() if not isinstance(value, np.ndarray)}
    header: dict[str, Any] = {
        "parameters": parameters,
        "seed": model._seed,
        "n_documents": model.n_documents_,
        "eta": fitted.eta,
        "diagnostics": numbers,
    }
    if fitted.privacy is not None:
        header["privacy"] = fitted.privacy.to_json()
    arrays: dict[str, Any] = {"topic_word": fitted.topic_word, "alpha": fitted.alpha, "totals": fitted.totals}
    arrays |= {f"diagnostics.{name}": diagnostics[name] for name in diagnostics if name not in numbers}
    if hasattr(model, "feature_names_in_"):
        arrays["feature_names"] = np.array([str(name) for name in model.feature_names_in_])
    if model._stream is not None:
        header["online"], further = model._stream.to_arrays()
        arrays |= {f"online.{name}": array for name, array in further.items()}
    save_arrays(path, _KIND, header, arrays)


def load_model(cls: type[TensorLDA], path: str | os.PathLike[str]) -> TensorLDA:
    """Read what `save_model` wrote."""
    header, arrays = load_arrays(path, _KIND)
    model = cls(**header["parameters"])
    diagnostics = TopicDiagnostics(**header["diagnostics"], **_named(arrays, "diagnostics."))
    if "privacy" in header and "online" in header:
        raise FileFormatError(f"{path} must hold a private model or a stream. It claims to hold both. Make it again.")
    privacy = PrivacyReport.from_json(header["privacy"]) if "privacy" in header else None
    learnt = (arrays["topic_word"], arrays["totals"], arrays["alpha"], header["eta"], diagnostics, privacy)
    model._fitted = FittedTopics(*learnt)
    model._seed, model.n_documents_ = header["seed"], header["n_documents"]
    model.n_components_, model.n_features_in_ = (int(size) for size in arrays["topic_word"].shape)
    if "feature_names" in arrays:
        model.feature_names_in_ = arrays["feature_names"].astype(object)
    model._stream = None
    if "online" in header:
        settings = check_settings(model, in_batches=True)
        model._stream = TopicStream.from_arrays(settings, header["online"], _named(arrays, "online."), diagnostics)
    return model


def _named(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the arrays whose names begin with a prefix, under the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
