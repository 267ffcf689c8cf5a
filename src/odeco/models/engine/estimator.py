"""The scikit-learn face of every model: fit, partial_fit, private fit, fitted attributes, scores,
summary, plot, files.

`Estimator` serves any model (level A), `EMEstimator` models of rows with a posterior over
components (level B). A model derives from these, and from `PrivateEstimator` if it can be private,
declares its parameters with `param` and its fitted attributes with `fitted`, and names its
specification.

A file of a model has its parameters, its fit and its stream. It may come from anyone: nothing in it
is executed, and every array is compared with its rule before it is used.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal, Self
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from odeco._util.arguments import as_random_state, check_saved_state
from odeco._util.files import faults_of, load_arrays, save_arrays
from odeco._util.state import (
    Sizes,
    array,
    check_names,
    plain_settings,
    record,
    require,
    size,
    text,
    whole,
)
from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.io.coerce import in_memory
from odeco.io.kinds import Table
from odeco.io.rows import as_weights, check_no_weights, first_fault, is_sparse
from odeco.io.source import check_cells, check_numbers
from odeco.models.engine.agreement import Records, check_halves
from odeco.models.engine.description import Description
from odeco.models.engine.fit import Fit, fitted
from odeco.models.engine.parameters import (
    checked_parameters,
    count,
    n_components,
    number,
    param,
    plain,
)
from odeco.models.engine.private import guarantee_of
from odeco.models.engine.rows import count_rows, split, times, warn_of_few_rows, with_weights
from odeco.models.engine.spec import Learnt, Spec
from odeco.online.halves import SplitHalf
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.report import PrivacyReport, warn_if_weak, warn_of_reuse

_HEADER = record(
    {
        "parameters": plain_settings,
        "settings": plain_settings,
        "seed": whole(),
        "n_features": size("n_features"),
    },
    {"privacy": text()},
)

_FEATURE_NAMES = array("n_features", kind="U")

#: One lock for each estimator, outside of the estimators, which are cloned and pickled.
_LOCKS: WeakKeyDictionary[Estimator, Any] = WeakKeyDictionary()

_LOCKS_LOCK = threading.Lock()


_FEATURES = ("n_features_in_", "feature_names_in_")


class _Fitted(BaseEstimator):  # type: ignore[misc]
    """What an estimator has after a fit. These are no parameters, so they are not declared in a
    dataclass.
    """

    n_features_in_: int
    feature_names_in_: Any
    _learnt: Learnt


@dataclass(eq=False, repr=False)
class Estimator(_Fitted):
    """An estimator of any model (level A). A model with another input than rows of numbers replaces
    `_encode`.
    """

    n_components: int | Literal["auto"] = n_components(2)
    random_state: Any = param(None)

    _SPEC: ClassVar[type[Spec]]
    _KIND: ClassVar[str]

    n_iter_ = fitted("info.n_iter", "Number of iterations; of a stream, number of blocks.")
    converged_ = fitted("info.converged", "Whether the last iteration gained less than `tol`.")
    selection_scores_ = fitted(
        lambda fit: {
            k: score
            for k, score in zip(
                fit.info.tried.tolist(), fit.info.tried_scores.tolist(), strict=True
            )
            if not math.isnan(score)
        },
        (
            "With ``n_components='auto'``: the score on held-out rows of every number that was "
            "cross-validated."
        ),
    )

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Learn the model.

        Parameters
        ----------
        X : array, rows x features
            Rows.
        y : object
            Ignored.
        sample_weight : array of float, optional
            How often each row counts; by default once. A row of weight 0 is left out, whatever it
            holds.
        """
        return self._fit(X, sample_weight)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's
        """Update the model with another batch, in one pass. At most one block of rows is stored.

        If anything ends the call early, an interrupt included, the model is as it was before. The
        settings of the first call hold for the whole stream. Several threads may call this: no row
        is lost.

        Parameters
        ----------
        X : array, rows x features
            The rows of the batch.
        y : object
            Ignored.
        sample_weight : array of float, optional
            How often each row counts; by default once. A row of weight 0 is left out, whatever it
            holds.
        """
        return self._partial_fit(X, sample_weight)

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows seen."""
        self._require_fitted("n_samples_seen_")
        learnt = self._learnt
        return int(learnt.fit.info.n_samples if learnt.stream is None else learnt.stream.n_seen)

    @property
    def privacy_(self) -> PrivacyReport:
        """The guarantee of a private model, with every release. Other models do not have it."""
        self._require_fitted("privacy_")
        if self._learnt.privacy is None:
            raise AttributeError(
                f"Only a private model has `privacy_`. This {type(self).__name__} was fitted "
                "without privacy."
            )
        return self._learnt.privacy

    def assignments(self, X: Any, **side: Any) -> Any:
        """Return what the model says of each row as a pandas table with the index of `X`, to be
        joined to it.

        Parameters
        ----------
        X : table, array or path
            What `predict` takes, or `transform` of models that have no `predict`. Rows without an
            index have numbers.
        **side
            Further arguments of that method, such as `lengths`.

        Returns
        -------
        DataFrame
            Probabilities, shares or values of components, in columns such as ``class 0`` and
            ``class 1``. Before them, if the model has `predict`, the column ``class`` has what it
            returns.
        """
        check_is_fitted(self)
        try:
            pandas: Any = import_module("pandas")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "assignments() needs pandas. It is not installed. Run: pip install pandas.",
                name="pandas",
            ) from error
        each = getattr(self, "predict_proba", None) or self.transform
        shares, component = np.asarray(each(X, **side)), self._learnt.spec.component
        table = pandas.DataFrame(
            shares, columns=[f"{component} {number}" for number in range(shares.shape[1])]
        )
        if hasattr(self, "predict"):
            table.insert(0, component, self.predict(X, **side))
        index = self._index_of(X)
        return table if index is None else table.set_axis(index)

    def _index_of(self, X: Any) -> Any:
        """Return the names of the records of a table, or None."""
        return X.index if hasattr(X, "iloc") else None

    def summary(self) -> str:
        """Return a short text about the model that begins with a verdict."""
        return str(self._describe())

    def split_half(self, X: Any, *, n_pairs: int = 3, **side: Any) -> SplitHalf:
        """Check on random halves of the data whether the components are found again, and keep the
        result.

        Parameters
        ----------
        X : array, table or path
            The data that the model was fitted to; at most 5,000 records of them are used, drawn at
            random.
        n_pairs : int
            Number of random divisions into two halves. A model is fitted to each half, from starts
            of its own.
        **side
            Further arguments of `fit`, such as `lengths` or `sample_weight`.

        Returns
        -------
        SplitHalf
            In how many half-samples each component is found again, and how well halves agree.
            `summary`, pages and files have it from then on.

        Notes
        -----
        `odeco.models.engine.agreement` says how components are matched, and what the counts mean.
        """
        check_is_fitted(self)
        learnt = self._learnt
        if learnt.privacy is not None:
            raise ValueError(
                "A check on halves fits models to exact records, and no budget pays for it. Got a "
                "private model. Its summary states what noise leaves of it."
            )
        k = int(self.n_components_)
        records = self._records(X, **side)
        places = np.arange(records.n)
        if records.n > records.most:
            places = np.sort(
                np.random.default_rng(learnt.seed).choice(records.n, records.most, replace=False)
            )
        checked, checked_side = records.take(places)

        def fit_half(half: IndexArray, seed: int) -> Any:
            part, part_side = records.take(places[half])
            model = type(self)(**self._parameters_of_halves(), random_state=seed)
            try:
                model.fit(part, **part_side)
            except (
                ValueError
            ) as error:  # half of the records may be too few for this number of components
                faults.append(error)
                return None
            return model._signature(checked, **checked_side)

        faults: list[ValueError] = []
        own = self._signature(checked, **checked_side)
        halves = check_halves(own, fit_half, k, len(places), n_pairs=n_pairs, seed=learnt.seed)
        if len(faults) == halves.n_halves:
            raise ValueError(
                "Halves of the data must be enough for a model of their own. They are not: "
                f"{faults[0]}"
            )
        self._learnt = Learnt(
            learnt.spec, learnt.seed, learnt.computed, learnt.stream, None, halves
        )
        return halves

    def _records(self, X: Any, sample_weight: Any = None) -> Records:
        """Return the records of data, which can be divided into halves."""
        X = self._read(X)

        def take(places: IndexArray) -> tuple[Any, dict[str, Any]]:
            side = (
                {}
                if sample_weight is None
                else {"sample_weight": np.asarray(sample_weight)[places]}
            )
            return _take(X, places), side

        return Records(_num_samples(X), take)

    def _parameters_of_halves(self) -> dict[str, Any]:
        """Return the parameters of a model that is fitted to half of the records."""
        settings = self._learnt.spec.settings
        parameters: dict[str, Any] = settings.get_params(deep=False) | {
            "n_components": int(self.n_components_)
        }
        del parameters["random_state"]
        return parameters

    def _signature(self, X: Any, **side: Any) -> Any:
        """Return the component of each record, or the components as columns of an array."""
        raise NotImplementedError

    def plot(self) -> Any:
        """Return a Matplotlib figure of the model."""
        return self._describe().figure()

    def write_report(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the model as one HTML page that needs no network.

        Parameters
        ----------
        path : path
            Where to write. An old file is replaced only by a complete one.
        **options
            ``title``, ``rows`` and more, as `odeco.models.engine.page.write_model_report` takes
            them.
        """
        from odeco.models.engine.page import (
            write_model_report,
        )  # Matplotlib takes half a second, and may be missing

        write_model_report(self, path, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model, with its stream, to an ``.npz`` file: atomically and without pickle."""
        check_is_fitted(self)
        learnt = self._learnt
        parameters = _for_others(self)
        # The settings of the fit may differ from the parameters: those of a stream are those of its
        # first batch.
        header: dict[str, Any] = {
            "parameters": parameters | {"random_state": check_saved_state(self.random_state)},
            "settings": _for_others(learnt.spec.settings) | {"random_state": None},
            "seed": learnt.seed,
            "n_features": int(self.n_features_in_),
        }
        if learnt.privacy is not None:
            header["privacy"] = learnt.privacy.to_json()
        arrays = {} if learnt.computed is None else learnt.computed.to_arrays("fit")
        if learnt.stream is not None:
            arrays |= learnt.stream.to_arrays("stream")
        if learnt.halves is not None:
            arrays |= learnt.halves.to_arrays("halves")
        if "feature_names_in_" in vars(self):
            arrays["feature_names"] = np.array(self._names())
        save_arrays(path, self._KIND, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote. A stream goes on as if it had not been interrupted: results are
        bit-identical.
        """
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
            fit = (
                Fit.from_arrays(arrays, "fit", dict(sizes), parts)
                if Fit.is_in(arrays, "fit")
                else None
            )
            has_stream = kind is not None and kind.is_in(arrays, "stream")
            stream = (
                kind.from_arrays(arrays, "stream", dict(sizes), parts)
                if kind is not None and has_stream
                else None
            )
            halves = (
                SplitHalf.from_arrays(arrays, "halves")
                if SplitHalf.is_in(arrays, "halves")
                else None
            )
            check_names(arrays, {"fit": fit, "stream": stream, "halves": halves})
            require(fit is not None or stream is not None, "it must hold a model or a stream")
            if stream is not None:
                require(
                    isinstance(stream.context, spec.Context),
                    "its stream must have the context of the model",
                )
                stream.verify(spec, header["n_features"])
            for each in (fit, stream):
                if each is not None:
                    spec.verify(each)
            privacy = PrivacyReport.from_json(header["privacy"]) if "privacy" in header else None
            is_private = guarantee_of(spec) is not None
            require(
                (privacy is not None) == is_private,
                "it must have a guarantee if its model is private, else none",
            )
            model.n_features_in_ = header["n_features"]
            if names is not None:
                model.feature_names_in_ = spec.names = names.astype(object)
            model._learnt = Learnt(spec, header["seed"], fit, stream, privacy, halves)
            if halves is not None:
                require(
                    halves.found_again.size == model.n_components_,
                    "its check on halves must have a count for each component",
                )
        return model

    def _encode(self, X: Any, context: Any = None) -> tuple[Any, Any]:
        """Return rows as a stream buffers them, and the context; without one, that before any
        row.
        """
        return self._checked(
            X, reset=context is None, dtype=np.float64
        ), context or self._SPEC.Context()

    def _checked(self, X: Any, *, reset: bool, **how: Any) -> Any:
        """Return rows in memory as numbers; `how` goes to scikit-learn. Only models whose tags say
        so allow NaN.

        Files and tables have NaN for what is missing in them.
        """
        missing = self.__sklearn_tags__().input_tags.allow_nan
        if type(X) is not np.ndarray and not is_sparse(X):  # files and tables
            X = in_memory(X, nulls_are_nan=missing)
            check_cells(X)
        try:
            return validate_data(
                self, X, reset=reset, ensure_all_finite="allow-nan" if missing else True, **how
            )
        except (ValueError, TypeError):
            check_numbers(X)
            fault = first_fault(check_array(X, ensure_all_finite=False, **how), missing=missing)
            if fault is None:
                raise
        row, column, what = fault
        name = dict(enumerate(vars(self).get("feature_names_in_", ()))).get(column, f"x{column}")
        raise ValueError(
            f"Values must be finite. Input X contains {what}: row {row:,}, column {name}. Fill or "
            "drop what is missing, or leave the column out."
        )

    def _learn_privately(
        self, X: Any, spec: Spec, guarantee: Guarantee, seed: int, groups: Any, side: dict[str, Any]
    ) -> Learnt:
        """Return what is learnt of private records; `PrivateEstimator` has it."""
        raise NotImplementedError

    def _read(self, X: Any) -> Any:
        """Return data in memory."""
        return in_memory(X, nulls_are_nan=self.__sklearn_tags__().input_tags.allow_nan)

    def _cells(self, X: Any) -> Any:
        """Return the cells of rows, as a page shows them."""
        return np.asarray(X)

    def _weigh(
        self, X: Any, sample_weight: Any, side: dict[str, Any]
    ) -> tuple[Any, FloatArray | None, dict[str, Any]]:
        """Return the rows that count, the weight of each, and their further arguments of
        `_encode`.
        """
        if sample_weight is None:
            return X, None, side
        X = self._read(X)
        weights = as_weights(sample_weight, _num_samples(X), self._SPEC.record)
        warn_of_few_rows(weights)
        kept = np.flatnonzero(weights)
        return X if kept.size == weights.size else _take(X, kept), weights[kept], side

    def _fit(self, X: Any, sample_weight: Any = None, callback: Any = None, **side: Any) -> Self:
        """Fit with further arguments of `_encode` or `_hold`; `callback` receives every stage."""
        spec = self._specify()
        guarantee, seed, groups = guarantee_of(spec), self._draw_seed(), side.pop("groups", None)
        with self._features_kept_on_failure():
            if guarantee is None:
                if groups is not None:
                    raise ValueError(
                        "`groups` is for private models. Got them without `epsilon`. Leave them "
                        "out."
                    )
                X, weights, side = self._weigh(X, sample_weight, side)
                rows, base = self._encode(X, **side)
                spec.names = vars(self).get("feature_names_in_", ())
                spec.callback = callback
                fit = spec.fit_rows(with_weights(rows, weights), base, seed)
                spec.callback = None  # a specification is pickled
                self._learnt = Learnt(spec, seed, fit, None)
            else:
                check_no_weights(sample_weight, spec.record)
                warn_of_reuse(X, spec.settings.ledger, stacklevel=4)
                warn_if_weak(guarantee.mu, stacklevel=4)
                self._learnt = self._learn_privately(X, spec, guarantee, seed, groups, side)
        return self

    def _partial_fit(self, X: Any, sample_weight: Any = None, **side: Any) -> Self:
        """Update the stream, with further arguments of `_encode`."""
        with self._lock(), self._features_kept_on_failure():
            spec = self._specify()
            if guarantee_of(spec) is not None:
                raise ValueError(
                    f"A private model is fitted to all {spec.protected or spec.record}s at once: "
                    "each release sums over all of them. Got a call of partial_fit. Call fit."
                )
            before = vars(self).get("_learnt")
            X, weights, side = self._weigh(X, sample_weight, side)
            if before is None or before.stream is None:
                seed = self._draw_seed()
                rows, base = self._encode(X, **side)
                spec.names = vars(self).get("feature_names_in_", ())
                if spec.Stream is None:
                    raise NotImplementedError(
                        f"{type(self).__name__} cannot learn in one pass. Call fit."
                    )
                stream = spec.Stream.begin(base, seed, rows)
            else:
                spec, seed, stream = before.spec, before.seed, before.stream
                rows, _ = self._encode(X, stream.context, **side)
            self._learnt = Learnt(
                spec, seed, None, stream.update(spec, with_weights(rows, weights))
            )
        return self

    def _specify(self) -> Spec:
        """Return the specification with checked parameters."""
        # Not scikit-learn's clone, which copies what parameters refer to.
        return self._SPEC(type(self)(**checked_parameters(self)))

    def _log_likelihood(
        self, name: str, X: Any, sample_weight: Any, **side: Any
    ) -> tuple[float, float]:
        """Return the log-likelihood of rows, and their number, each counted by its weight; raise if
        it is private.
        """
        self._refuse_scores(name)
        X, weights, side = self._weigh(X, sample_weight, side)
        scores = with_weights(self.score_samples(X, **side), weights)
        return float(times(*split(scores)).sum()), count_rows(scores)

    def _refuse_scores(self, name: str) -> None:
        """Raise if the model is private."""
        check_is_fitted(self)
        if self._learnt.privacy is not None:
            raise ValueError(
                f"The {name} of a private model must not choose between models: it is exact, and "
                f"no budget pays for it. Got a call of {name}. For {self._SPEC.record}s that need "
                "no protection call score_samples."
            )

    def _draw_seed(self) -> int:
        return int(as_random_state(self.random_state).randint(2**31 - 1))

    def _require_fitted(self, name: str) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"`{name}` must be learnt first. This {type(self).__name__} is not fitted. Call "
                "fit."
            )

    def _fit_for(self, name: str) -> Fit:
        """Return the fitted model; `name` is what the caller wants of it."""
        self._require_fitted(name)
        return self._learnt.fit

    def _names(self) -> list[str]:
        """Return the names of the columns."""
        named = vars(self).get(
            "feature_names_in_", [f"x{place}" for place in range(self.n_features_in_)]
        )
        return [str(name) for name in named]

    def _describe(self, rows: Any = None) -> Description:
        check_is_fitted(self)
        learnt = self._learnt
        described = learnt.spec.describe(learnt.fit, self._names(), learnt.privacy, rows)
        return described.conclude(
            learnt.fit.info, learnt.spec.component, privacy=learnt.privacy, halves=learnt.halves
        )

    def _repr_html_inner(self) -> str:  # what scikit-learn's property `_repr_html_` returns
        """Return what was learnt, for a notebook; before a fit, scikit-learn's diagram."""
        return (
            self._describe()._repr_html_()
            if self.__sklearn_is_fitted__()
            else str(super()._repr_html_inner())
        )

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        made: dict[str, str] = super()._repr_mimebundle_(**options)
        return made | {"text/html": self._repr_html_inner()} if "text/html" in made else made

    def _rows_to_show(self, rows: Any, lengths: Any) -> Any:  # noqa: ARG002 - of sequences
        """Return rows as `Spec.describe` takes them."""
        return None if rows is None else self._encode(rows, self._learnt.fit.context)[0]

    @property
    def _n_features_out(self) -> int:  # for models that transform
        return int(self.n_components_)

    def __getstate__(self) -> Any:
        with (
            self._lock()
        ):  # what a call of partial_fit in another thread has begun belongs together
            return super().__getstate__()

    def _lock(self) -> Any:
        with _LOCKS_LOCK:
            return _LOCKS.setdefault(self, threading.RLock())

    @contextmanager
    def _features_kept_on_failure(self) -> Iterator[None]:
        """Restore number and names of features if learning fails: they belong to the model that is
        there.
        """
        before = {name: vars(self)[name] for name in _FEATURES if name in vars(self)}
        try:
            yield
        except BaseException:
            for name in _FEATURES:
                self.__dict__.pop(name, None)
            self.__dict__.update(before)
            raise

    def __sklearn_is_fitted__(self) -> bool:
        return "_learnt" in vars(self)


def _for_others(settings: Any) -> dict[str, Any]:
    """Return parameters for a file that may be published: the path of a ledger is nobody else's
    business.
    """
    parameters: dict[str, Any] = plain(settings.get_params(deep=False))
    return {name: value for name, value in parameters.items() if name != "ledger"}


def _take(X: Any, places: IndexArray) -> Any:
    """Return some rows of data."""
    return X.take(places) if isinstance(X, Table) else _safe_indexing(X, places)


if hasattr(
    os, "register_at_fork"
):  # a child must not wait for locks that threads of its parent hold
    os.register_at_fork(after_in_child=_LOCKS.clear)


@dataclass(eq=False, repr=False)
class EMEstimator(Estimator):
    """An estimator of rows with a posterior over components (level B)."""

    max_iter: int = param(100, count(), "The largest number of EM iterations.")
    tol: float = param(
        1e-4, number(), "EM ends when an iteration raises the mean log-likelihood by less."
    )

    n_components_ = fitted(lambda fit: len(fit.params.weights), "Number of components.")
    init_ = fitted("info.init", "Which start was the best.")

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> IndexArray:  # noqa: ARG002
        """Fit the model to rows, and return the component of each."""
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def predict(self, X: Any) -> IndexArray:
        """Return the most probable component of each row."""
        return np.asarray(self._posterior(X)[0].argmax(axis=1))

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each component for each row."""
        return self._posterior(X)[0]

    def score_samples(self, X: Any) -> FloatArray:
        """Return the log-likelihood of each row."""
        return self._posterior(X)[1]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: ARG002 - scikit-learn's
        """Return the mean log-likelihood of rows, each counted by its weight.

        A private model refuses, and so do `bic` and `aic`: a search over settings calls them, and
        would choose by the exact rows that each model was made to hide. For rows that need no
        protection there is `score_samples`.
        """
        total, n = self._log_likelihood("score", X, sample_weight)
        return total / n

    def bic(self, X: Any, sample_weight: Any = None, **side: Any) -> float:
        """Return the Bayesian information criterion for rows; lower is better. `side` goes to
        `score_samples`.

        The number of rows is the sum of their weights.
        """
        total, n = self._log_likelihood("bic", X, sample_weight, **side)
        return -2 * total + self._n_parameters() * math.log(n)

    def aic(self, X: Any, sample_weight: Any = None, **side: Any) -> float:
        """Return Akaike's information criterion for rows; lower is better. `side` goes to
        `score_samples`.
        """
        return (
            -2 * self._log_likelihood("aic", X, sample_weight, **side)[0] + 2 * self._n_parameters()
        )

    def _posterior(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Return the responsibilities of components for each row, and the log-likelihood of
        each.
        """
        check_is_fitted(self)
        fit, spec = self._learnt.fit, self._em_spec()
        rows = spec.prepare(self._encode(X, fit.context)[0], fit.context)
        parts = list(
            map_blocks(
                lambda block: spec.posterior(fit.params, block, fit.context),
                spec.blocks(rows),
                parallel=spec.parallel,
            )
        )
        return np.concatenate([part[0] for part in parts]), np.concatenate(
            [part[1] for part in parts]
        )

    def _signature(self, X: Any, **side: Any) -> IndexArray:  # noqa: ARG002 - weights of rows change no posterior
        return np.asarray(self._posterior(X)[0].argmax(axis=1))

    def _n_parameters(self) -> int:
        return int(self._em_spec().n_parameters(self._learnt.fit.params))

    def _em_spec(self) -> Any:
        return self._learnt.spec
