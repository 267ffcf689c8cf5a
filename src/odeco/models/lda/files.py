"""A TensorLDA is written to a file and read again, without pickle.

The file holds the settings, the topics, their words and how texts were cut into them, their diagnostics, and where the
stream stands.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from scipy import sparse

from odeco._util.arguments import check_saved_state
from odeco._util.files import faults_of, load_arrays, save_arrays
from odeco._util.schema import (
    Rule,
    Schema,
    Sizes,
    array,
    nothing_or,
    number,
    one_of,
    plain_settings,
    record,
    require,
    text,
    whole,
)
from odeco.io.rows import check_structure
from odeco.models.lda.counts import N_GROUPS, as_counts
from odeco.models.lda.diagnostics import TopicDiagnostics
from odeco.models.lda.private import PrivateTopicStream
from odeco.models.lda.result import FittedTopics
from odeco.models.lda.settings import check_settings, checked_words
from odeco.models.lda.stream import TopicStream
from odeco.models.lda.trust import TopicTrust
from odeco.models.lda.vocabulary import Tokenizer
from odeco.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from odeco.models.lda.estimator import TensorLDA


_KIND = "topic model"


def save_model(model: TensorLDA, path: str | os.PathLike[str]) -> None:
    """Write a fitted model."""
    parameters = model.get_params()
    parameters["random_state"] = check_saved_state(parameters["random_state"])
    parameters["ledger"] = None if parameters["ledger"] is None else os.fspath(parameters["ledger"])
    public = parameters.pop("public")
    fitted = model._fitted_topics("topic_word_")
    diagnostics = {
        field.name: getattr(fitted.diagnostics, field.name) for field in dataclasses.fields(TopicDiagnostics)
    }
    numbers = {name: value for name, value in diagnostics.items() if not isinstance(value, np.ndarray)}
    header: dict[str, Any] = {
        "parameters": parameters,
        "seed": model._seed,
        "n_documents": model.n_samples_seen_,
        "eta": fitted.eta,
        "n_iter": fitted.n_iter,
        "diagnostics": numbers,
    }
    if fitted.privacy is not None:
        header["privacy"] = fitted.privacy.to_json()
    arrays: dict[str, Any] = {"topic_word": fitted.topic_word, "alpha": fitted.alpha, "totals": fitted.totals}
    arrays |= {f"diagnostics.{name}": diagnostics[name] for name in diagnostics if name not in numbers}
    if hasattr(model, "feature_names_in_"):
        arrays["feature_names"] = np.array([str(name) for name in model.feature_names_in_])
    if model._words is not None:
        arrays["words"] = model._words
    if model._tokenizer is not None:
        header["tokenizer"] = model._tokenizer
    if fitted.trust is not None:
        arrays |= {"trust.similarity": fitted.trust.similarity, "trust.deviations": fitted.trust.deviations}
    if public is not None:
        counts = as_counts(public)
        arrays |= {f"public.{name}": getattr(counts, name) for name in ("data", "indices", "indptr")}
    if model._stream is not None:
        name = "private_online" if isinstance(model._stream, PrivateTopicStream) else "online"
        header[name], further = model._stream.to_arrays()
        arrays |= {f"{name}.{each}": array for each, array in further.items()}
    save_arrays(path, _KIND, header, arrays)


def load_model(cls: type[TensorLDA], path: str | os.PathLike[str]) -> TensorLDA:
    """Read what `save_model` wrote. The file may come from anyone: nothing in it is executed."""
    header, arrays = load_arrays(path, _KIND, _SCHEMA)
    with faults_of(path):
        model = cls(**header["parameters"], public=_public(arrays))
        settings = check_settings(model, in_batches="online" in header)
        diagnostics = TopicDiagnostics(**header["diagnostics"], **_named(arrays, "diagnostics."))
        privacy = PrivacyReport.from_json(header["privacy"]) if "privacy" in header else None
        trust = TopicTrust(**_named(arrays, "trust.")) if privacy is not None else None
        learnt = (arrays["topic_word"], arrays["totals"], arrays["alpha"], header["eta"], diagnostics, privacy, trust)
        fitted = FittedTopics(*learnt, n_iter=header["n_iter"])
        stream: TopicStream | PrivateTopicStream | None = None
        if "online" in header:
            settings = dataclasses.replace(settings, n_components=fitted.alpha.size)
            stream = TopicStream.from_arrays(settings, header["online"], _named(arrays, "online."), diagnostics)
        if "private_online" in header:
            further = _named(arrays, "private_online.")
            stream = PrivateTopicStream.from_arrays(header["private_online"], further, fitted)
        model.n_features_in_ = int(arrays["topic_word"].shape[1])
        if "feature_names" in arrays:
            model.feature_names_in_ = arrays["feature_names"].astype(object)
        words = checked_words(arrays.get("words"), model.n_features_in_)
        model._take(fitted, stream, header["seed"], header["n_documents"], words, header.get("tokenizer"))
    return model


def _public(arrays: dict[str, Any]) -> Any:
    """Return the public documents of a model, checked as those of a user are; None if it has none."""
    own = _named(arrays, "public.")
    if not own:
        return None
    shape = (own["indptr"].size - 1, arrays["topic_word"].shape[1])
    counts = sparse.csr_array((own["data"], own["indices"], own["indptr"]), shape=shape)
    check_structure(counts)
    return as_counts(counts)


def _check_fit(header: dict[str, Any], arrays: dict[str, Any], sizes: Sizes) -> None:
    """Require what one rule cannot see: a guarantee or a stream, and if a stream then a whole one, of its topics."""
    online = {name for name in arrays if name.startswith("online.")}
    require(not ("privacy" in header and "online" in header), "it must hold a private model or a stream, not both")
    trust = {name for name in arrays if name.startswith("trust.")}
    require(len(trust) == (2 if "privacy" in header else 0), "it must say how far to trust topics if they are private")
    private = {name.removeprefix("private_online.") for name in arrays if name.startswith("private_online.")}
    require(private - {"public"} == (set(_PRIVATE_STREAM) if "private_online" in header else set()), _WHOLE)
    require("privacy" in header or "private_online" not in header, "its private stream must have a guarantee")
    public = {name for name in arrays if name.startswith("public.")}
    require(len(public) in (0, 3), "it must hold all of its public documents, or nothing of them")
    require(("online" in header) == bool(online), _WHOLE)
    require(not online or {f"online.{name}" for name in _STREAM} <= online, "it must hold all of its stream")
    wanted = header["parameters"].get("n_components")
    require(not online or sizes["found"] <= sizes["k"], "its stream must have found no more topics than it has")
    enough = type(wanted) is int and wanted >= sizes["k"]
    require(not online or enough, "its stream must have no more topics than its parameters ask for")
    require(not online or sizes["g"] == N_GROUPS, f"documents of a stream must be dealt to {N_GROUPS} groups")


_COUNT, _MAYBE = whole(), nothing_or(whole())

_WHOLE = "it must hold all of its stream, or nothing of it"

_PRIVATE_STREAM: dict[str, Rule] = {
    "lengths": array("two", "lengths"),
    "words": array("two", "V"),
    "scales": array("V", low=0),
    "gram": array("k", "k"),
    "image": array("V", "k"),
    "shares": array("k", low=0, high=1),
}

_STREAM: dict[str, Rule] = {
    "places": array("m", "found"),
    "alpha": array(None, low=0),
    "stream.next_move": array(kind="i", low=1),
    "stream.numbers": array(None, kind="i", low=0),
    "stream.basis": array("V", "m"),
    "stream.group_weights": array("g", low=0),
    "stream._squares": array(low=0),
    "stream._first": array("V", low=0),
    "stream._image": array("V", "m"),
    "stream._group_first": array("g", "m"),
    "stream._group_pairs": array("g", "m", "m"),
    "stream._triples": array("m", "m", "m"),
}

_SCHEMA = Schema(
    {
        "parameters": plain_settings,
        "seed": _COUNT,
        "n_documents": _COUNT,
        "eta": number(0),
        "n_iter": _COUNT,
        "diagnostics": record(
            {
                "n_documents": _COUNT,
                **dict.fromkeys(("n_empty", "n_short", "n_tokens"), _MAYBE),
                **dict.fromkeys(("n_components", "n_clear"), _COUNT),
                **dict.fromkeys(("noise_level", "concentration", "explained"), number()),
            }
        ),
    },
    {
        "topic_word": array("k", "V", low=0, high=1),
        "alpha": array("k", low=0),
        "totals": array("k", low=0),
        "diagnostics.eigenvalues": array("e"),
        "diagnostics.eigenvalue_errors": array("e", low=0),
        "diagnostics.reliable": array(None, kind="b"),
        **dict.fromkeys(("diagnostics.weights", "diagnostics.residuals"), array("k", nan=True)),
        "diagnostics.negative_mass": array("k", nan=True),
    },
    optional_header={
        "privacy": text(),
        "tokenizer": one_of(*get_args(Tokenizer)),
        "private_online": record({"seed": _COUNT, "n_batches": whole(1)}),
        "online": record(
            {
                **dict.fromkeys(("seed", "n_batches"), _COUNT),
                **dict.fromkeys(("concentration", "eta", "documents_behind_alpha"), number(0)),
            }
        ),
    },
    optional_arrays={
        **dict.fromkeys(("feature_names", "words"), array("V", kind="U")),
        "diagnostics.selection_scores": array(None, None, kind="i", low=0),
        "online.topic_counts": array("k", "V", kind="rows", low=0),
        **{f"online.{name}": rule for name, rule in _STREAM.items()},
        **{f"private_online.{name}": rule for name, rule in _PRIVATE_STREAM.items()},
        "private_online.public": array("k", "V", low=0),
        "trust.similarity": array("k", low=-1, high=1, nan=True),
        "trust.deviations": array("k", "V", low=0),
        "public.data": array("stored", low=0),
        **dict.fromkeys(("public.indices", "public.indptr"), array(None, kind="i", low=0)),
    },
    relations=_check_fit,
)


def _named(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the arrays whose names begin with a prefix, under the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
