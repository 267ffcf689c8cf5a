"""Private synthetic tables: noisy tables of pairs of columns, and rows drawn from a mixture of
products that is fitted to them.

1. The tables of all pairs of columns are released, with a part of the budget.
2. If these show that columns depend on each other, the rest goes to the tables of those pairs that
   do, and to the counts of columns without such a pair. If not, it goes to the counts of all
   columns, and the result is independent columns, nearly as good as with the whole budget.
3. Everything else is post-processing: projection on consistent tables, the mixture, the rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from odeco._util.arguments import as_generator, as_seed, check_choice, check_count
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, IndexArray, RngLike
from odeco.io.schema import as_schema, encode
from odeco.models.synthetic.products import Products, fit_products, independent
from odeco.models.synthetic.result import SyntheticData, levels_of
from odeco.models.synthetic.tables import PairTables, Released
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.protocol import RELATIONS, NeighbourRelation
from odeco.privacy.holders.tables import HeldTable, Levels
from odeco.privacy.ledger_file import LedgerFile
from odeco.privacy.report import warn_if_weak, warn_of_reuse
from odeco.privacy.sums import PrivateSums

#: The share of μ² of the first release, of all pairs. The second has the rest.
FIRST_SHARE = 0.4

#: Releases the tables of some pairs with a share of μ².
_Release = Callable[[IndexArray, float], Released]


def synthesize(
    table: Any,
    *,
    epsilon: float,
    delta: float,
    schema: Any,
    n_rows: int | None = None,
    neighbour_relation: NeighbourRelation = "replace",
    ledger: LedgerFile | str | os.PathLike[str] | None = None,
    rng: RngLike = None,
) -> SyntheticData:
    """Return a synthetic table that has nearly the two-way tables of a private one, and does not
    reveal any single row of it.

    Parameters
    ----------
    table : pandas table or dict of columns
        The private table, one row per person.
    epsilon, delta : float
        The guarantee: the result is (ε, δ)-differentially private for one row. δ must be far below
        one over the number of rows.
    schema : mapping or path
        The columns, and what each may hold; public. A list of categories, in which None says that
        cells may be missing: ``["no", "yes", None]``. For numbers the bins of which one is learnt:
        ``{"low": 0, "high": 100, "bins": 10}`` or ``{"edges": [0, 18, 65, 100]}``, with ``"whole":
        True`` for whole numbers and ``"missing": True`` if cells may be missing. A path is that of
        a JSON file. Columns that are not in the schema are left out.
    n_rows : int, optional
        The number of synthetic rows; by default that of the table.
    neighbour_relation : {"replace", "add_remove"}
        Whether the guarantee hides that a row is replaced by any other, or that it is blanked. The
        first needs √2 times the noise.
    ledger : LedgerFile or path, optional
        The budget of all runs on this table together, made once with
        `odeco.privacy.LedgerFile.create`.
    rng : None, int, or Generator, RandomState or SeedSequence of numpy.random
        Seeds everything but the noise, which is that of the operating system.

    Returns
    -------
    SyntheticData
        The synthetic table, the guarantee, and the errors to expect.

    Notes
    -----
    **Public** are the schema and the number of rows. What the schema does not list counts as
    missing, and numbers beyond the limits of the bins belong to the nearest bin, all without a
    message. A row in which nothing is known is blank: it adds nothing to any table.

    **Private** is everything else. A row adds at most one 1 to each two-way table, so a release of
    m tables changes by at most √m if a row is blanked, and by √(2m) if it is replaced
    (`odeco.privacy.holders.tables.HeldTable` has the proof). All pairs of J columns are m = J (J −
    1)/2. Both releases together cost μ² = μ₁² + μ₂², which is exact. Which tables the second one
    has follows from the first.

    **The mixture** is the mean of eight, fitted to the noisy tables by weighted least squares from
    random starts: pairs do not determine triples, and the mean has better ones. Numbers are drawn
    uniformly from their bins.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> rng = np.random.default_rng(0)
    >>> smokes = rng.random(5000) < 0.3
    >>> table = {
    ...     "smokes": np.where(smokes, "yes", "no"),
    ...     "age": rng.integers(18, 90, 5000),
    ...     "coughs": np.where(rng.random(5000) < np.where(smokes, 0.8, 0.1), "yes", "no"),
    ... }
    >>> schema = {
    ...     "smokes": ["no", "yes"],
    ...     "age": {"low": 18, "high": 90, "bins": 6, "whole": True},
    ...     "coughs": ["no", "yes"],
    ... }
    >>> synthetic = odeco.synthesize(table, epsilon=1.0, delta=1e-6, schema=schema, rng=0)
    >>> synthetic.n_clear
    1
    >>> sorted(synthetic.table)
    ['age', 'coughs', 'smokes']
    """
    guarantee = Guarantee(epsilon, delta, ledger)
    guarantee.mu  # noqa: B018 - raises for an ε or δ that is none
    check_choice("neighbour_relation", neighbour_relation, tuple(RELATIONS))
    columns = as_schema(schema)
    rng = as_generator(rng)
    if n_rows is not None:
        n_rows = check_count("n_rows", n_rows)
    warn_of_reuse(table, ledger)
    warn_if_weak(guarantee.mu)
    codes = encode(columns, table)
    levels = levels_of(columns)
    held = HeldTable(codes, levels)
    neighbours = (
        f"one row, {RELATIONS[neighbour_relation]}; the number of rows and the schema are public"
    )
    sums = PrivateSums(
        guarantee,
        held.n_records,
        record="row",
        neighbour_relation=neighbour_relation,
        neighbours=neighbours,
    )
    learnt = learn(partial(_released, sums, held), levels, held.n_records, rng)
    return SyntheticData(
        products=learnt.products,
        errors=learnt.errors,
        n_clear=learnt.n_clear,
        n_records=held.n_records,
        n_rows=n_rows or held.n_records,
        seed=as_seed(rng),
        is_frame=int(hasattr(table, "iloc")),
        schema=columns,
        privacy=sums.report("noisy tables of pairs of columns"),
    )


def _released(sums: PrivateSums, held: HeldTable, pairs: IndexArray, share: float) -> Released:
    """Release the tables of some pairs of columns."""
    counts, deviation = sums.release(held.tables(pairs), share=share)
    return Released(pairs, counts, deviation)


@dataclass(frozen=True, eq=False)
class Learnt:
    """What is learnt of noisy tables.

    Attributes
    ----------
    products : Products
        The mixture from which rows are drawn; one class if columns are taken for independent.
    errors : array, columns x columns
        The total variation by which noise alone moves the table of two columns, or the shares of
        one, on the diagonal.
    n_clear : int
        The number of pairs of columns that depend on each other clear of noise.
    """

    products: Products
    errors: FloatArray
    n_clear: int


def learn(release: _Release, levels: Levels, n_rows: int, rng: np.random.Generator) -> Learnt:
    """Return what is learnt of the tables that `release` gives."""
    alone = np.column_stack([np.arange(levels.n_columns)] * 2)
    if levels.n_columns == 1:
        return _learnt_of([release(alone, 1.0)], levels, n_rows, rng, dependent=False)
    pairs = levels.all_pairs()
    first = release(pairs, FIRST_SHARE)
    found = PairTables.of([first], levels, n_rows).dependence()
    dependent = found.likely
    if not found.is_clear:
        dependent = pairs[:0]
    elif not len(dependent):  # many weak departures are clear together, and none alone
        dependent = pairs
    others = np.setdiff1d(alone[:, 0], dependent)
    second = release(np.concatenate([dependent, alone[others]]), 1 - FIRST_SHARE)
    return _learnt_of([first, second], levels, n_rows, rng, dependent=found.is_clear)


def _learnt_of(
    releases: list[Released],
    levels: Levels,
    n_rows: int,
    rng: np.random.Generator,
    *,
    dependent: bool,
) -> Learnt:
    """Return what is learnt of all releases.

    The errors are those of a second estimate, from the tables of the first one with new noise
    (parametric bootstrap).
    """
    tables = PairTables.of(releases, levels, n_rows)
    products = _estimate(tables, rng, dependent=dependent)
    expected = products.tables(levels)
    simulated = [_with_new_noise(each, n_rows * expected, levels, rng) for each in releases]
    again = _estimate(PairTables.of(simulated, levels, n_rows), rng, dependent=dependent)
    differences = np.abs(again.tables(levels) - expected) / 2
    errors = levels.sum_by_column(levels.sum_by_column(differences).T)
    n_clear = tables.dependence().n_clear if dependent else 0
    return Learnt(products, errors, n_clear)


def _estimate(tables: PairTables, rng: np.random.Generator, *, dependent: bool) -> Products:
    if not dependent:
        return independent(tables.frequencies)
    with one_blas_thread():
        return fit_products(tables, rng)


def _with_new_noise(
    released: Released, expected: FloatArray, levels: Levels, rng: np.random.Generator
) -> Released:
    """Return the release that expected counts and new noise would give."""
    exact = expected[levels.places(released.pairs)]
    noise = rng.normal(0.0, released.deviation, exact.size)
    return Released(released.pairs, exact + noise, released.deviation)
