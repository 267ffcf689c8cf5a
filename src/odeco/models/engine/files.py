"""The file of a model: parameters, what was learnt, and its stream; without pickle.

A file may come from anyone: nothing in it is executed, and every array is compared with its rule before it is used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from odeco._util.arguments import check_saved_state
from odeco._util.files import faults_of, load_arrays, save_arrays
from odeco._util.schema import Sizes, array, plain_settings, record, require, size, text, whole
from odeco._util.state import check_names
from odeco.models.engine.fit import Fit
from odeco.models.engine.parameters import plain
from odeco.models.engine.private import guarantee_of
from odeco.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from odeco.models.engine.estimator import Estimator

AnyEstimator = TypeVar("AnyEstimator", bound="Estimator")

_HEADER = record(
    {"parameters": plain_settings, "settings": plain_settings, "seed": whole(), "n_features": size("n_features")},
    {"privacy": text()},
)
_FEATURE_NAMES = array("n_features", kind="U")


def save_model(model: Estimator, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator.

    The header has the parameters of the estimator and the settings of its fit, which may differ: those of a stream are
    those of its first batch.
    """
    learnt, parameters = model._learnt, plain(model.get_params(deep=False))
    header: dict[str, Any] = {
        "parameters": parameters | {"random_state": check_saved_state(model.random_state)},
        "settings": plain(learnt.spec.settings.get_params(deep=False)) | {"random_state": None},
        "seed": learnt.seed,
        "n_features": int(model.n_features_in_),
    }
    if learnt.privacy is not None:
        header["privacy"] = learnt.privacy.to_json()
    arrays = {} if learnt.computed is None else learnt.computed.to_arrays("fit")
    if learnt.stream is not None:
        arrays |= learnt.stream.to_arrays("stream")
    if "feature_names_in_" in vars(model):
        arrays["feature_names"] = np.array(model._names())
    save_arrays(path, model._KIND, header, arrays)


def load_model(cls: type[AnyEstimator], path: str | os.PathLike[str]) -> AnyEstimator:
    """Read what `save_model` wrote."""
    from odeco.models.engine.estimator import Learnt  # which imports this module

    header, arrays = load_arrays(path, cls._KIND)
    with faults_of(path):
        sizes: Sizes = {}
        _HEADER(header, "", sizes)
        names = arrays.pop("feature_names", None)
        if names is not None:
            _FEATURE_NAMES(names, "feature_names", sizes)
        model, spec = cls(**header["parameters"]), cls(**header["settings"])._specify()
        guarantee_of(model._specify())
        parts, kind = spec.parts(), spec.Stream
        fit = Fit.from_arrays(arrays, "fit", dict(sizes), parts) if Fit.is_in(arrays, "fit") else None
        has_stream = kind is not None and kind.is_in(arrays, "stream")
        stream = kind.from_arrays(arrays, "stream", dict(sizes), parts) if kind is not None and has_stream else None
        check_names(arrays, {"fit": fit, "stream": stream})
        require(fit is not None or stream is not None, "it must hold a model or a stream")
        if stream is not None:
            stream.verify(spec, header["n_features"])
        for each in (fit, stream):
            if each is not None:
                spec.verify(each)
        privacy = PrivacyReport.from_json(header["privacy"]) if "privacy" in header else None
        claimed = privacy is not None
        require(
            claimed == (guarantee_of(spec) is not None),
            "it must have a guarantee if its model is private, and none otherwise",
        )
        model.n_features_in_ = header["n_features"]
        if names is not None:
            model.feature_names_in_ = names.astype(object)
        model._learnt = Learnt(spec, header["seed"], fit, stream, privacy)
    return model
