"""The base of the estimators of models with hidden variables."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from odeco.latent.model_file import load_model, save_model
from odeco.latent.row_stream import RowStream
from odeco.latent.state import State
from odeco.privacy import PrivacyReport


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
