"""A model is written to a file and read again, whichever model it is, without pickle."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from odeco._arguments import check_saved_state
from odeco._files import faults_of, load_arrays, save_arrays
from odeco._schema import Schema, array, plain_settings, require, size, text, whole
from odeco.privacy import PrivacyReport

if TYPE_CHECKING:
    from odeco.latent.estimator import LatentModel

AnyModel = TypeVar("AnyModel", bound="LatentModel")


def save_model(model: LatentModel, path: str | os.PathLike[str]) -> None:
    """Write a fitted model: its settings, what it has learnt, and where its stream stands."""
    parameters = model.get_params()
    parameters["random_state"] = check_saved_state(parameters["random_state"])
    header: dict[str, Any] = {
        "parameters": {
            name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in parameters.items()
        },
        "seed": model._seed,
        "n_features": int(model.n_features_in_),
    }
    arrays: dict[str, Any] = {}
    fitted, stream = model._fitted, model._stream
    if fitted is not None:
        arrays |= fitted.to_arrays("fitted")
    if stream is not None:
        arrays |= stream.to_arrays("stream")
    if model._privacy is not None:
        header["privacy"] = model._privacy.to_json()
    if hasattr(model, "feature_names_in_"):
        arrays["feature_names"] = np.array([str(name) for name in model.feature_names_in_])
    save_arrays(path, model._KIND, header, arrays)


def load_model(cls: type[AnyModel], path: str | os.PathLike[str]) -> AnyModel:
    """Read what `save_model` wrote. The file may come from anyone: nothing in it is executed."""
    header, arrays = load_arrays(path, cls._KIND, _schema(cls))
    with faults_of(path):
        model = cls(**header["parameters"])
        model._check_settings()
        fitted = cls._FITTED.from_arrays("fitted", arrays) if _has(arrays, "fitted") else None
        stream = cls._STREAM.from_arrays("stream", arrays) if cls._STREAM and _has(arrays, "stream") else None
        privacy = PrivacyReport.from_json(header["privacy"]) if "privacy" in header else None
        model.n_features_in_ = header["n_features"]
        if "feature_names" in arrays:
            model.feature_names_in_ = arrays["feature_names"].astype(object)
        model._take(fitted, stream, header["seed"], privacy)
    return model


def _schema(cls: type[LatentModel]) -> Schema:
    return Schema(
        {"parameters": plain_settings, "seed": whole(), "n_features": size("n_features")},
        {},
        optional_header={"privacy": text()},
        optional_arrays={
            **cls._FITTED.rules("fitted"),
            **({} if cls._STREAM is None else cls._STREAM.rules("stream")),
            "feature_names": array(None, kind="U"),
        },
        relations=lambda header, arrays, _: _check_whole(cls, header, arrays),
    )


def _check_whole(cls: type[LatentModel], header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Require a whole model, or a whole stream, or both; and a name for each feature or for none."""
    for part, kind in (("fitted", cls._FITTED), ("stream", cls._STREAM)):
        present = {name for name in arrays if name.startswith(f"{part}.")}
        all_of_it = set() if kind is None else set(kind.rules(part))
        require(present in (set(), all_of_it), f"it must hold all of its {part} part, or nothing of it")
    require(_has(arrays, "fitted") or _has(arrays, "stream"), "it must hold a model or a stream")
    named = arrays.get("feature_names")
    require(named is None or named.size == header["n_features"], "it must have a name for every feature")


def _has(arrays: dict[str, Any], part: str) -> bool:
    return any(name.startswith(f"{part}.") for name in arrays)
