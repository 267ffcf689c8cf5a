"""The result of a run for its user, and what is to be said of its rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from odeco._util.arguments import put_back
from odeco.decompose.result import PrivateStreamDecomposition, StreamDecomposition
from odeco.errors import DominantColumnWarning, MisfitWarning, StreamEndedError
from odeco.online.columns import ColumnSquares, dominant_column
from odeco.online.private import NoisyMean
from odeco.online.run import Run
from odeco.online.solver import Estimate
from odeco.online.units import check_signal, components_of_rows, evidence_of_rows

AnyStreamDecomposition = StreamDecomposition | PrivateStreamDecomposition


def result_of(
    run: Run,
    estimated: tuple[Estimate, int],
    names: Sequence[str] | None,
    noisy: NoisyMean | None = None,
) -> AnyStreamDecomposition:
    """Return the components found so far, largest weight first, with standard errors if they are
    known.

    `estimated` is the estimate of a run with its unit. `names` are the names of the columns.
    """
    estimate, unit = estimated
    found = estimate.components.positive()
    check_signal(estimate.evidence, unit, found)
    if not found.n_components:
        raise StreamEndedError(
            f"There must be components. None is found after {run.n_rows:,} rows. Pass more rows."
        )
    first = found.largest_first()
    fields: dict[str, Any] = {"components": components_of_rows(found.sorted_by_weight(), unit)}
    if estimate.errors is not None:
        weight_errors, angle_errors = estimate.errors
        fields["weight_errors"] = put_back(weight_errors[first], unit, "errors of the weights")
        fields["angle_errors"] = angle_errors[first]
    result: AnyStreamDecomposition
    if noisy is not None:
        result = _private_result(run, estimate, noisy, fields)
    else:
        if estimate.misfits is not None:
            fields["misfit_errors"] = estimate.misfits[first]
        if estimate.evidence is not None:
            fields["rank_evidence"] = evidence_of_rows(estimate.evidence, unit)
        result = StreamDecomposition(
            **{"weight_errors": None, "angle_errors": None} | fields,
            n_rows=run.length or run.n_rows,  # in passes every row counts once
            n_passes=run.n_rows // run.length if run.length else 1,
        )
    if names is None:
        return result
    return result.with_names(names)


def _private_result(
    run: Run, estimate: Estimate, noisy: NoisyMean, fields: dict[str, Any]
) -> PrivateStreamDecomposition:
    """Return what was found, with what is guaranteed, every release so far, and what their noise
    means.
    """
    noise = estimate.noise
    if noise is None:
        raise RuntimeError(
            "A private run knows of noise in components only once its search has found some."
        )
    first = noise.components.positive().largest_first()
    of_noise = {
        name: getattr(noise, name)[first]
        for name in ("weight_errors", "angle_errors", "noise_floors")
    }
    of_noise |= fields
    of_noise["angle_errors"] = np.minimum(of_noise["angle_errors"], math.pi / 2)
    return PrivateStreamDecomposition(
        **of_noise, privacy=noisy.report(), n_rows=run.n_rows, norm_bound=noisy.guarantee.norm_bound
    )


def warn_of_rows(
    run: Run, result: AnyStreamDecomposition, squares: ColumnSquares, *, stacklevel: int
) -> None:
    """Warn if a column dominates the components of a result, or if these do not add up to the
    moment.
    """
    if not run.solver.plan.depends_on_units:
        return
    column = dominant_column(result.components.vectors, squares)
    if column is not None:
        name = None if result.names is None else result.names[column]
        warning = DominantColumnWarning(column, name, squares.share(column), len(result.weights))
        warnings.warn(warning, stacklevel=stacklevel + 1)
    elif isinstance(result, StreamDecomposition) and result.misfits:
        warnings.warn(MisfitWarning(squares.mean_share), stacklevel=stacklevel + 1)
