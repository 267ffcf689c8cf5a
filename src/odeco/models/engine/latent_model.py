"""The previous base of estimators, for models that are not yet specifications of the engine."""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from odeco._util.arguments import check_saved_state
from odeco._util.files import faults_of, load_arrays, save_arrays
from odeco._util.schema import Rule, Schema, array, plain_settings, require, size, text, whole
from odeco.privacy.report import PrivacyReport


@dataclass(eq=False)
class State:
    """Base of dataclasses whose fields are arrays, or numbers, and go to a file as they are.

    Derived classes list their fields, and in `RULES` what must hold for each of them in a file that may come from
    anyone. Numbers are arrays without axes there. Arrays are never changed in place.
    """

    RULES: ClassVar[Mapping[str, Rule]] = {}

    def to_arrays(self, prefix: str) -> dict[str, Any]:
        """Return the fields as arrays, under their names after a prefix."""
        return {f"{prefix}.{each.name}": np.asarray(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, Any]) -> Self:
        """Return what `to_arrays` wrote, from arrays that obey the rules."""
        own = {each.name: arrays[f"{prefix}.{each.name}"] for each in fields(cls)}
        return cls(**{name: array if array.ndim else array.item() for name, array in own.items()})

    @classmethod
    def rules(cls, prefix: str) -> dict[str, Rule]:
        """Return the rules of a file that holds the fields under their names after a prefix."""
        return {f"{prefix}.{name}": rule for name, rule in cls.RULES.items()}


@dataclass(eq=False)
class RowStream(State):
    """Where a model that learns in one pass stands; only the rows of an incomplete block are kept.

    Derived classes say how many rows the next block has, and take it in. The first block is usually the larger: the
    model starts from it. So the result depends on the rows and their order, and not on where batches end.

    Attributes
    ----------
    held : array
        Rows that wait for their block to be complete.
    n_rows : int
        Number of rows fed so far, those that wait included.
    """

    held: Any
    n_rows: int

    @property
    @abstractmethod
    def next_size(self) -> int:
        """The number of rows of the next block."""

    @abstractmethod
    def absorb(self, block: Any) -> None:
        """Learn from a block; fields are replaced, and no array is changed in place."""

    def updated(self, rows: Any) -> Self:
        """Return the stream after more rows. This one stays as it was, so an error or an interrupt loses nothing."""
        after = copy.copy(self)
        waiting = np.concatenate([self.held, rows]) if len(self.held) else rows
        first = 0
        while len(waiting) - first >= after.next_size:
            size = after.next_size
            # One layout for every block: the bits of a product depend on it.
            after.absorb(np.ascontiguousarray(waiting[first : first + size]))
            first += size
        after.held = waiting[first:].copy()
        after.n_rows = self.n_rows + len(rows)
        return after


class LatentModel(BaseEstimator):  # type: ignore[misc]
    """An estimator whose learnt state is replaced in one step, so that an interrupt finds all of it or nothing.

    Derived classes say what a file of theirs is called (`_KIND`), which class holds what they learn (`_FITTED`) and
    which a stream (`_STREAM`, if there is one), check their settings, and work out what a stream has learnt. `fit` and
    `partial_fit` end with `_take`; between `_names_kept_on_failure` and that call the model is as it was before.
    Attributes that users read are properties of `_learnt`.
    """

    _KIND: ClassVar[str]
    _FITTED: ClassVar[type[State]]
    _STREAM: ClassVar[type[RowStream] | None] = None

    random_state: Any
    n_features_in_: int
    _fitted: Any
    _stream: Any
    _seed: int
    _privacy: PrivacyReport | None

    @abstractmethod
    def _check_settings(self) -> Any:
        """Return the checked settings, or raise."""

    def _fitted_from_stream(self) -> Any:
        """Return what the rows of the stream say, or raise if they are too few for a model."""
        raise NotImplementedError

    @property
    def privacy_(self) -> PrivacyReport:
        """What is guaranteed about the model, if it is private: it belongs to the model and goes with it."""
        self._learnt("privacy_")
        if self._privacy is None:
            raise AttributeError(
                f"`privacy_` is what a private model has. This {type(self).__name__} was learnt without privacy."
            )
        return self._privacy

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model, with where its stream stands, to an ``.npz`` file: atomically and without pickle."""
        check_is_fitted(self)
        save_model(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote. A stream goes on from there as if it had not been interrupted, to the last bit."""
        return load_model(cls, path)

    def _take(
        self, fitted: State | None, stream: RowStream | None, seed: int, privacy: PrivacyReport | None = None
    ) -> None:
        """Make what was learnt the model's own, in one step."""
        self.__dict__.update(_fitted=fitted, _stream=stream, _seed=seed, _privacy=privacy)

    def _learnt(self, name: str) -> Any:
        """Return what was learnt, worked out anew if rows have come since; `name` is what the caller wants."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"`{name}` must be learnt first. This {type(self).__name__} is not fitted. Call fit.")
        if self._fitted is None:
            self._fitted = self._fitted_from_stream()
        return self._fitted

    @contextmanager
    def _names_kept_on_failure(self) -> Iterator[None]:
        """Go back to the features of the model that is there, if learning another fails."""
        names = ("n_features_in_", "feature_names_in_")
        before = {name: vars(self)[name] for name in names if name in vars(self)}
        try:
            yield
        except BaseException:
            for name in names:
                self.__dict__.pop(name, None)
            self.__dict__.update(before)
            raise

    def _draw_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_seed")


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
