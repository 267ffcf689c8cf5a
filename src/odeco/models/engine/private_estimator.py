"""Estimators that can be private: their parameters, and the fit to records that only a data holder
reads.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils.validation import validate_data

from odeco._util.arguments import check_unmasked
from odeco.io.rows import is_sparse
from odeco.models.engine.estimator import Estimator
from odeco.models.engine.parameters import (
    DELTA,
    EPSILON,
    NORM_BOUND,
    PATH,
    RELATION,
    optional,
    param,
)
from odeco.models.engine.spec import Learnt, Spec
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.protocol import RELATIONS, NeighbourRelation
from odeco.privacy.holders.rows import BoundedRows, UnboundedRows
from odeco.privacy.sums import PrivateSums


@dataclass(eq=False, repr=False)
class PrivateEstimator(Estimator):
    """An estimator that can be private: it has `_hold`, and its specification `learn_privately`."""

    epsilon: float | None = param(
        None,
        EPSILON,
        "Fit under differential privacy; smaller is more private.",
        option="--epsilon",
    )
    delta: float | None = param(
        None, DELTA, "For --epsilon: far below one over the number of records.", option="--delta"
    )
    neighbour_relation: NeighbourRelation = param("replace", RELATION)
    ledger: str | os.PathLike[str] | None = param(None, optional(PATH))

    def _hold(self, X: Any, spec: Any, *, groups: Any) -> tuple[Any, Any]:
        """Return a data holder of private records, and the public context; no message may depend on
        a record.
        """
        raise NotImplementedError

    def _learn_privately(
        self, X: Any, spec: Spec, guarantee: Guarantee, seed: int, groups: Any, side: dict[str, Any]
    ) -> Learnt:
        """Return what is learnt of private records: all data leave through the releases of
        `PrivateSums`.
        """
        holder, base = self._hold(X, spec, groups=groups, **side)
        k, relation = (
            spec.settings.n_components or holder.n_features,
            spec.settings.neighbour_relation,
        )
        record = (spec.protected or spec.record) if groups is None else "user"
        if holder.n_records < k:  # both are public
            raise ValueError(
                f"There must be at least as many {record}s as {spec.component}s. Got "
                f"{holder.n_records} and n_components={k}. Pass fewer."
            )
        public = (
            "their number is public"
            if groups is None
            else f"which {spec.record} is whose is public"
        )
        sums = PrivateSums(
            guarantee,
            holder.n_records,
            record=record,
            n_terms=holder.n_terms,
            neighbour_relation=relation,
            neighbours=getattr(holder, "neighbours", spec.neighbours)
            or f"one {record}, {RELATIONS[relation]}; {public}",
        )
        fit = spec.learn_privately(holder, base, sums, seed=seed)
        return Learnt(spec, seed, fit, None, sums.report(spec.mechanism))


def check_private_numbers(X: Any, what: str, *, sparse: bool = False) -> None:
    """Raise unless private records are an array or a table of numbers; no message depends on a
    record.

    What NumPy makes of a list, and what it says about a cell that is not a number, depends on the
    cells. So only arrays of numbers are accepted.
    """
    if hasattr(X, "dtypes") and hasattr(X, "iloc"):
        types = {dtype.kind for dtype in X.dtypes}
    elif isinstance(X, np.ndarray) or (sparse and is_sparse(X)):
        types = {X.dtype.kind}
    else:
        kinds = "a NumPy array, a CSR array" if sparse else "a NumPy array"
        raise TypeError(
            f"Private {what} must be {kinds} or a table of numbers. Got {type(X).__name__}. "
            "Convert them."
        )
    if not types <= set("iufb"):
        raise TypeError(
            f"Private {what} must be numbers. Got another type of array or column. Convert them."
        )
    check_unmasked(X, "array X")


@dataclass(eq=False, repr=False)
class PrivateRowsEstimator(PrivateEstimator):
    """A model of rows of numbers that can be private: it needs a bound on the norm of rows, given
    or chosen.
    """

    norm_bound: float | Literal["auto"] | None = param(
        None,
        NORM_BOUND,
        "For --epsilon: longer rows are scaled down to this norm; 'auto' chooses it under privacy.",
        option="--norm-bound",
    )

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None) -> Self:  # noqa: ARG002
        """Fit the model to rows.

        Parameters
        ----------
        X : array, rows x features
            Rows.
        y : object
            Ignored.
        sample_weight : array of float, optional
            How often each row counts; by default once. A row of weight 0 is left out, whatever it
            holds. A private model refuses weights.
        groups : array of labels, optional
            For private models: which user each row belongs to; public. The guarantee is then for
            all rows of one user, and every user counts once, with the mean over own rows.
        """
        return self._fit(X, sample_weight, groups=groups)

    def _hold(
        self, X: Any, spec: Any, *, groups: Any = None
    ) -> tuple[BoundedRows | UnboundedRows, Any]:
        """Return a holder of private rows, without a message that depends on one of them: whether
        a number is finite is not checked here.
        """
        check_private_numbers(X, "rows")
        with np.errstate(
            all="ignore"
        ):  # a warning about a number beyond double precision would depend on the rows
            rows = validate_data(self, X, reset=True, dtype=np.float64, ensure_all_finite=False)
        spec.check_private_features(rows.shape[1])
        norm_bound = spec.settings.norm_bound
        if norm_bound == "auto":
            return UnboundedRows(rows, groups), spec.Context()
        return BoundedRows(rows, float(norm_bound or 0.0), groups), spec.Context()
