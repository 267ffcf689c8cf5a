"""What a private synthetic table would cost, from public numbers alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._util.arguments import check_count
from odeco.io.schema import as_schema
from odeco.models.engine.private import PlannedRelease, PrivatePlan
from odeco.models.synthetic.result import levels_of
from odeco.models.synthetic.synthesize import FIRST_SHARE
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.protocol import NeighbourRelation
from odeco.privacy.holders.tables import HeldTable
from odeco.privacy.sums import PrivateSums


def plan_synthesis(
    schema: Any,
    *,
    n_rows: int,
    epsilon: float,
    delta: float,
    neighbour_relation: NeighbourRelation = "replace",
) -> PrivatePlan:
    """Say what a private synthetic table would cost; no row is needed.

    Parameters
    ----------
    schema : mapping or path
        As for `odeco.synthesize`.
    n_rows : int
        The number of rows of the private table.
    epsilon, delta : float
        The guarantee.
    neighbour_relation : {"replace", "add_remove"}
        As for `odeco.synthesize`.

    Examples
    --------
    >>> from odeco.models import plan_synthesis
    >>> schema = {"smokes": ["no", "yes"], "coughs": ["no", "yes"]}
    >>> plan = plan_synthesis(schema, n_rows=5000, epsilon=1.0, delta=1e-6)
    >>> print(plan.verdict)
    before the fit, noise moves tables of two columns by 0.002 (total variation)
    """
    levels = levels_of(as_schema(schema))
    guarantee = Guarantee(epsilon, delta)
    n_rows = check_count("n_rows", n_rows)
    sums = PrivateSums(guarantee, n_rows, record="row", neighbour_relation=neighbour_relation)
    held = HeldTable(np.empty((0, levels.n_columns), dtype=np.int64), levels)
    pairs = levels.all_pairs()
    if len(pairs):
        query = held.tables(pairs)
        n_counts = levels.sizes[pairs[:, 0]] * levels.sizes[pairs[:, 1]]
        shares = {query.what: FIRST_SHARE, "those that show dependence": 1 - FIRST_SHARE}
    else:
        query = held.tables(np.zeros((1, 2), dtype=np.int64))
        n_counts = levels.sizes
        shares = {query.what: 1.0}
    # The mean size of a normal number is √(2/π) of its deviation.
    moved = n_counts * sums.noise(query, 1.0) * np.sqrt(2 / np.pi) / n_rows / 2
    error = float(np.mean(np.minimum(moved, 1.0)))
    releases = [
        PlannedRelease(what, share, sums.noise(query, share)) for what, share in shares.items()
    ]
    return PrivatePlan(
        unit="row",
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        mu=guarantee.mu,
        n_records=n_rows,
        n_components=1,
        releases=tuple(releases),
        simulated=(),
        threshold=1.0,
        records=f"rows of {levels.n_columns} columns with {levels.owners.size} levels",
        verdict=f"before the fit, noise moves tables of two columns by {error:.3f} (total "
        "variation)",
    )
