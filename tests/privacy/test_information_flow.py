"""Nothing but what is released depends on the data: every private entry point, on data that differ
wildly.

What is released is replaced by constants. Whatever can still be seen of a run, what it returns,
raises, warns of, prints, logs and writes, must then be the same to the last byte for all data of
one shape. To add an entry point is to add a line to `ENTRY_POINTS`.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from cluster_parts import cluster_of_threads
from scipy import sparse
from sealing import (
    MALFORMED,
    NOT_NUMBERS,
    PASSED,
    differences,
    outcome,
    separated,
    wild_rows,
    wild_tensors,
    write_lines,
    write_lines_below_names,
)

import odeco
import odeco.online.dask
from odeco.cli.app import run as run_command
from odeco.models import (
    Communities,
    LatentClasses,
    TensorHMM,
    TensorICA,
    TensorLDA,
    TensorMixture,
    choose_vocabulary_privately,
)
from odeco.models.lda.vocabulary import CountedWords
from odeco.online import SampleMoment
from odeco.privacy import EntryLevel, Ledger, PrivateOracle, RecordLevel, open_private
from odeco.private import decompose_privately
from odeco.private.mechanisms import MECHANISMS

DOCS = Path(__file__).parent.parent.parent / "docs"
N, D = 40, 5
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
ROWS = {**BUDGET, "unit": "record", "norm_bound": 1.0, "rng": 0}
USERS = {**ROWS, "unit": "user", "groups": np.arange(N) // 4}
STREAM = {**BUDGET, "norm_bound": 1.0, "batch_size": 6, "rng": 0}

WILD_ROWS = wild_rows(N, D)
DENSE = {
    name: rows
    for name, rows in WILD_ROWS.items()
    if isinstance(rows, np.ndarray) and rows.dtype == float
}
CSR = {name: rows for name, rows in WILD_ROWS.items() if not isinstance(rows, np.ndarray)}
#: A run of the command plans for every mechanism first, which takes time: it gets the dense rows
#: that differ most.
FEW = {name: DENSE[name] for name in ("normal", "zeros", "NaN", "infinities", "1e308", "denormals")}
CUBES, FOURTH = wild_tensors(4, 3), wild_tensors(3, 4)

# ---- in Python -----------------------------------------------------------------------------------


def decomposed(**settings):
    return lambda data: decompose_privately(data, 2, **settings)


def shown(data):
    """What people see of a result, all of which is made from what was released."""
    result = decompose_privately(data, 2, **ROWS)
    result = result.with_names(
        [f"column {number}" for number in range(result.components.dimension)]
    )
    return repr(result), result._repr_html_(), result.summary()


def asked(holder, release):
    def run(data):
        oracle = PrivateOracle(holder(data), Ledger(10.0), noise_multiplier=5.0, release=release)
        block = np.eye(oracle.dimension)[:, :2]
        return oracle.image(block), oracle.value(block), oracle.last_scales

    return run


def read_from_a_file(data):
    Path("data").mkdir()
    np.save("data/rows.npy", data)
    return decompose_privately(open_private([Path("data/rows.npy")]), 2, **ROWS, mechanism="input")


def pushed(**settings):
    """Return rows pushed in pieces: what every callback was told, and the results on the way."""

    def run(rows):
        told = []
        online = odeco.OnlineDecomposer(2, **STREAM, **settings, callback=told.append)
        results = []
        for start in range(0, N, 13):
            online.partial_fit(rows[start : start + 13])
            told.append((online.n_rows, online.progress))
            if online.progress.n_rows_needed == 0:
                results.append(online.result())
        return told, results

    return run


def pushed_on_a_cluster(rows):
    """Return rows of a Dask collection, which workers in this process clip and add up: their log is
    seen too.
    """
    dask = pytest.importorskip("dask")
    online = odeco.OnlineDecomposer(2, **STREAM)
    cuts = [(0, 7), (7, 29), (29, N)]
    blocks = [dask.delayed(rows[start:stop], pure=False) for start, stop in cuts]
    online.partial_fit(
        odeco.online.dask.from_delayed(
            blocks, n_features=D, n_rows=[stop - start for start, stop in cuts]
        )
    )
    return online.n_rows, online.progress, online.result()


def decomposed_on_a_cluster(rows, **settings):
    """Return a run whose rows workers read from a file, or get as blocks of a collection."""
    dask = pytest.importorskip("dask")
    if settings.pop("in_files"):
        Path("data").mkdir()
        write_npz(rows, Path("data/rows.npz")) if sparse.issparse(rows) else write_two_npy(
            rows, Path("data/rows.npy")
        )
        given = open_private(sorted(Path("data").iterdir()))
        client = pytest.importorskip("distributed").get_client()
        return decompose_privately(given, 2, **ROWS, **settings, client=client)
    blocks = [dask.delayed(rows[start : start + 11], pure=False) for start in range(0, N, 11)]
    given = odeco.online.dask.from_delayed(
        blocks, n_features=D, n_rows=[min(11, N - k) for k in range(0, N, 11)]
    )
    return decompose_privately(given, 2, **ROWS, **settings)


def topics_on_a_cluster(counts, groups=None):
    """Return all that a private model learns from documents that workers read from a file."""
    Path("data").mkdir()
    write_npz(counts, Path("data/counts.npz")) if sparse.issparse(counts) else write_npy(
        counts, Path("data/c.npy")
    )
    given = open_private(sorted(Path("data").iterdir()))
    client = pytest.importorskip("distributed").get_client()
    model = TensorLDA(2, **BUDGET, random_state=0, unit="document" if groups is None else "user")
    model.fit(given, client=client, groups=groups)
    return {
        name: getattr(model, name) for name in ("topic_word_", "trust_", "privacy_", "diagnostics_")
    }


@pytest.fixture(scope="module")
def cluster():
    with cluster_of_threads():
        yield


def saved_without_the_sum(rows):
    """Return a run that is saved in the middle of a batch, loaded, and goes on; its files are part
    of the outcome.
    """
    online = odeco.OnlineDecomposer(2, **STREAM)
    online.partial_fit(rows[:33]).save("run.ckpt", keep_sum=False)
    online = odeco.OnlineDecomposer.load("run.ckpt")
    n_rows = online.n_rows
    online.partial_fit(rows[n_rows:]).save("run.ckpt", keep_sum=False)
    return n_rows, online.result()


def saved_result(rows):
    odeco.save_result(decompose_privately(rows, 2, **ROWS, mechanism="joint"), "result.npz")


def topics(**settings):
    """Return all that a private model of word counts learns, and its file."""
    groups = np.arange(N) // 4 if settings.get("unit") == "user" else None

    def run(counts):
        model = TensorLDA(2, **BUDGET, random_state=0, **settings)
        model.fit(counts) if groups is None else model.fit(counts, groups=groups)
        model.save("model.npz")
        learnt = {
            name: getattr(model, name)
            for name in ("topic_word_", "trust_", "privacy_", "diagnostics_")
        }
        return learnt | {name: value for name, value in vars(model).items() if name.endswith("_")}

    return run


def mixture(**settings):
    """Return all that a private mixture learns and says, and its file."""

    def run(rows):
        model = TensorMixture(
            **{"n_components": 2, **BUDGET, "norm_bound": 1.0, "random_state": 0, **settings}
        )
        model.fit(rows).save("model.npz")
        learnt = {
            name: getattr(model, name)
            for name in ("weights_", "means_", "covariances_", "privacy_", "init_")
        }
        return learnt | {
            "n_rows": model.n_samples_seen_,
            "said": model.summary(),
            "drawn": model.sample(3, random_state=0),
        }

    return run


def sources(**settings):
    """Return all that a private model of sources learns and says, and its file."""

    def run(rows):
        model = TensorICA(
            **{"n_components": 2, **BUDGET, "norm_bound": 1.0, "random_state": 0, **settings}
        )
        model.fit(rows).save("model.npz")
        names = (
            "components_",
            "mixing_",
            "mean_",
            "whitening_",
            "information_",
            "converged_",
            "privacy_",
        )
        learnt = {name: getattr(model, name) for name in names}
        return learnt | {
            "n_rows": model.n_samples_seen_,
            "said": model.summary(),
            "drawn": model.sample(3, random_state=0),
        }

    return run


def communities(graph):
    """Return all that private communities are and say, and their file."""
    model = Communities(2, epsilon=1.0, random_state=0).fit(graph)
    model.save("model.npz")
    names = (
        "memberships_",
        "labels_",
        "block_matrix_",
        "profiles_",
        "prior_",
        "privacy_",
        "n_samples_seen_",
    )
    return {name: getattr(model, name) for name in names} | {
        "said": model.summary(),
        "drawn": model.sample(random_state=0).toarray(),
    }


def graphs():
    """Return graphs on the same nodes: dense and sparse, of any weights, directed, with loops,
    empty and complete.
    """
    rng = np.random.default_rng(5)
    links = np.triu(rng.random((N, N)) < 0.3, 1)
    wild = {
        f"{weight}": np.where(links, weight, 0.0)
        for weight in (1.0, np.nan, np.inf, -1.0, 1e308, 5e-324)
    }
    whole = {
        "empty": np.zeros((N, N)),
        "complete": np.ones((N, N)),
        "loops": np.eye(N),
        "directed": links + 0.0,
    }
    kinds = {
        "bool": links,
        "integers": links.astype(int),
        "long": links.astype(np.longdouble) * 1e300,
    }
    stored = {
        "CSR": sparse.csr_array(links + links.T),
        "COO": sparse.coo_array(links),
        "no entry": sparse.csr_array((N, N)),
    }
    return wild | whole | kinds | stored


def hidden_states(**settings):
    """Return all that a private model of sequences learns, and its file."""

    def run(data):
        rows, lengths = data
        model = TensorHMM(
            2, emissions="categorical", n_symbols=4, **BUDGET, random_state=0, **settings
        )
        model.fit(rows, lengths=lengths).save("model.npz")
        learnt = (
            "startprob_",
            "transmat_",
            "emissionprob_",
            "privacy_",
            "n_samples_seen_",
            "n_iter_",
            "converged_",
        )
        return {name: getattr(model, name) for name in learnt} | {"summary": model.summary()}

    return run


def latent_classes(**settings):
    """Return all that a private model of answers learns, and its file."""

    def run(answers):
        model = LatentClasses(2, **BUDGET, random_state=0, **settings).fit(answers, categories=3)
        model.save("model.npz")
        learnt = {
            name: getattr(model, name)
            for name in ("class_weights_", "answer_probabilities_", "categories_")
        }
        return learnt | {
            "privacy": model.privacy_,
            "said": model.summary(),
            "n_rows": model.n_samples_seen_,
        }

    return run


#: Columns that may be missing or not, categories and numbers.
COLUMNS = {
    "v": [0, 1, 2],
    "w": ["0", "1", None],
    "x": {"low": -1, "high": 1, "bins": 3},
    "y": {"edges": [0, 1, 2, 3], "missing": True, "whole": True},
    "z": [False, True],
}


def synthetic(epsilon=1.0, **settings):
    """Return a synthetic table, all that it says, and its file."""

    def run(table):
        columns = table if hasattr(table, "iloc") else dict(zip("vwxyz", table.T, strict=True))
        budget = {"epsilon": epsilon, "delta": 1e-6, "schema": COLUMNS, "rng": 0}
        result = odeco.synthesize(columns, **budget, **settings)
        result.save("synthetic.npz")
        made = {name: np.asarray(result.table[name]) for name in COLUMNS}
        return {"table": made, "privacy": result.privacy, "said": result.summary()}

    return run


def synthesize_command(*options):
    """Return ``odeco synthesize`` on a table whose lines are what they are."""

    def run(lines):
        Path("data").mkdir()
        Path("data/survey.csv").write_bytes(b"v,w,x\n" + b"\n".join(lines) + b"\n")
        schema = '{"v": [0, 1], "w": {"low": 0, "high": 2, "bins": 2}, "x": ["0", "1", null]}'
        Path("data/schema.json").write_text(schema)
        arguments = ["synthesize", "data/survey.csv", "--schema", "data/schema.json", "--header"]
        arguments += ["--epsilon", "1", "--delta", "1e-6", "--out", "out.csv"]
        arguments += ["--model", "model.npz", *options]
        with mock.patch.object(sys, "argv", ["odeco", *arguments]):
            return run_command(arguments)

    return run


def topics_of_texts(texts):
    """Return what a private model learns from texts whose words it chooses; some of them are
    none.
    """
    given = [
        text.decode("latin-1") if isinstance(text, bytes) and text[:1] != b"\xff" else text
        for text in texts
    ]
    model = TensorLDA(2, **BUDGET, random_state=0).fit_text(given)
    model.save("model.npz")
    return {
        name: getattr(model, name)
        for name in ("words_", "topic_word_", "trust_", "privacy_", "diagnostics_")
    }


def write_texts(lines, path):
    import pyarrow as arrow
    from pyarrow import parquet

    # As bytes that the file calls texts, whatever they are.
    held = arrow.array(lines, arrow.binary())
    parquet.write_table(
        arrow.table({"t": arrow.Array.from_buffers(arrow.string(), len(held), held.buffers())}),
        path,
    )


def write_cells(texts, path):
    cells = [b'"%s"' % text.replace(b'"', b'""') for text in texts]
    write_lines([b"id,t", *(b"%d,%s" % (number, cell) for number, cell in enumerate(cells))], path)


def wild_answers():
    """Return answers of one shape: numbers of any size and kind, texts, and what is neither."""
    codes = np.random.default_rng(4).integers(0, 3, size=(N, D))
    some = codes.astype(object)
    some[::3], some[1, 1], some[2, 2], some[4, 0] = None, {"no": "answer"}, [1, 2], float("nan")
    dense = {name: rows for name, rows in WILD_ROWS.items() if isinstance(rows, np.ndarray)}
    more = {
        "one row unknown": np.where(np.arange(N)[:, None] == 3, 99, codes),
        "missing": np.full((N, D), -1),
    }
    return {
        "codes": codes,
        **more,
        "texts": codes.astype(str),
        "objects": some,
        "yes or no": codes > 0,
        **dense,
    }


def tables_of_answers():
    """Return the same in tables whose columns have one name each."""
    import pandas

    tables = {
        name: pandas.DataFrame(answers, columns=list("vwxyz"))
        for name, answers in wild_answers().items()
    }
    return tables | {
        "categoricals": tables["codes"].astype("category"),
        "nullable": tables["codes"].astype("Int64"),
    }


#: Sequences of wild numbers, of good symbols, and of other lengths: of these their number alone is
#: public.
SEQUENCES = {
    **{name: (np.asarray(rows).reshape(-1), [D] * N) for name, rows in DENSE.items()},
    "symbols": (np.arange(N * D) % 4 * 1.0, [D] * N),
    "short": (np.zeros(N), [1] * N),
    "long": (np.arange(N * 30) // 3 % 4 * 1.0, [N * 30 - 39 * 2] + [2] * 39),
    "empty but for one": (np.zeros(N), [0] * (N - 1) + [N]),
    "all empty": (np.zeros(0), [0] * N),
    "longdouble": (np.full(N * D, np.longdouble(1e300) ** 2), [D] * N),
}


#: Numbers beyond double precision, which a conversion would warn of.
LONG = {
    name: rows.astype(np.longdouble) * np.longdouble(10.0) ** exponent
    for name, exponent in {"normal": 0, "zeros": 0, "1e308": 500, "denormals": -500}.items()
    for rows in [DENSE[name]]
}


def columns_of_words():
    """Return counts of words that pass and of others, in columns of several orders and widths; all
    of one shape.
    """
    names = [*PASSED, "elder"]
    made = {}
    for label, counts in WILD_ROWS.items():
        dense = counts.toarray() if sparse.issparse(counts) else np.array(counts, dtype=float)
        dense[0] = 1  # somebody holds every word
        made[label] = CountedWords(sparse.csr_array(dense), np.array(names), D)
    ones = sparse.csr_array(np.ones((N, D)))
    return made | {
        "columns in another order": CountedWords(ones, np.array(names[::-1]), D),
        "a long word": CountedWords(ones, np.array([*PASSED, "elder" * 50]), D),
        "more words": CountedWords(
            sparse.csr_array(np.ones((N, 9))), np.array([*"abcde", *PASSED]), 9
        ),
    }


# ---- the command ---------------------------------------------------------------------------------

COMMAND = ["-k", "2", "--epsilon", "1", "--delta", "1e-6", "--norm-bound", "1"]


def command(write, name, *options):
    """Return ``odeco decompose --rows`` on a file that `write` makes of the data."""

    def run(data):
        Path("data").mkdir()
        paths = write(data, Path("data") / name)
        arguments = [
            "decompose",
            "--rows",
            *map(str, paths or [Path("data") / name]),
            *COMMAND,
            *options,
        ]
        with mock.patch.object(sys, "argv", ["odeco", *arguments]):
            return run_command(arguments)

    return run


def topics_command(write, name, *options, on_a_cluster=False):
    """Return ``odeco learn topics`` on a file of texts."""

    def run(data):
        Path("data").mkdir()
        write(data, Path("data") / name)
        Path("data/words.txt").write_text("apple\nbanana\ncherry\ndate\n")
        arguments = [
            "learn",
            "topics",
            f"data/{name}",
            "-k",
            "2",
            "--epsilon",
            "1",
            "--delta",
            "1e-6",
            *options,
        ]
        if "--stop-words" not in options:
            arguments += ["--vocabulary", "data/words.txt"]
        arguments += ["--out", "model.npz", "--report", "page.html"]
        client = None
        if on_a_cluster:
            arguments += ["--scheduler", "tcp://here:8786"]
            client = pytest.importorskip(
                "distributed"
            ).get_client()  # a new one would have a name of its own in the log
        with (
            mock.patch.object(sys, "argv", ["odeco", *arguments]),
            mock.patch("odeco.cli.learn.connected", return_value=contextlib.nullcontext(client)),
        ):
            return run_command(arguments)

    return run


def learn_command(write, name, *options, model="mixture"):
    """Return ``odeco learn mixture``, or another model, on a file of rows, once as a table and once
    as JSON.
    """

    def run(data):
        Path("data").mkdir()
        write(data, Path("data") / name)
        arguments = ["learn", model, f"data/{name}", "-k", "2", "--epsilon", "1", "--delta", "1e-6"]
        arguments += ["--norm-bound", "1", "--out", "model.npz", "--report", "page.html", *options]
        with mock.patch.object(sys, "argv", ["odeco", *arguments]):
            return run_command(arguments)

    return run


def write_users_too(rows, path):
    path.with_name("users.txt").write_text("\n".join(f"user {row // 3}" for row in range(N)))
    return write_npy(rows, path)


def classes_command(*options):
    """Return ``odeco learn classes`` on a table of answers whose lines are what they are."""

    def run(lines):
        Path("data").mkdir()
        Path("data/survey.csv").write_bytes(b"v,w,x\n" + b"\n".join(lines) + b"\n")
        arguments = [
            "learn",
            "classes",
            "data/survey.csv",
            "-k",
            "2",
            "--epsilon",
            "1",
            "--delta",
            "1e-6",
        ]
        arguments += [
            "--answers",
            "0,1,2",
            "--header",
            "--out",
            "model.npz",
            "--report",
            "page.html",
            *options,
        ]
        with mock.patch.object(sys, "argv", ["odeco", *arguments]):
            return run_command(arguments)

    return run


def states_command(*options):
    """Return ``odeco learn hmm`` on a table of events, the lines of each of 40 sequences being what
    they are.
    """

    def run(lines):
        Path("data").mkdir()
        Path("data/log.csv").write_bytes(b"user,event\n" + b"\n".join(lines) + b"\n")
        arguments = [
            "learn",
            "hmm",
            "data/log.csv",
            "--symbol",
            "event",
            "--sequence",
            "user",
            "-k",
            "2",
        ]
        arguments += [
            "--epsilon",
            "1",
            "--delta",
            "1e-6",
            "--symbols",
            "a,b,c",
            "--length",
            "5",
            "--header",
        ]
        arguments += ["--out", "model.npz", "--report", "page.html", *options]
        with mock.patch.object(sys, "argv", ["odeco", *arguments]):
            return run_command(arguments)

    return run


def lines_of_events():
    """Return the rows of 40 sequences: symbols, others than are known, and sequences of other
    lengths and orders.
    """
    events = np.random.default_rng(4).choice([b"a", b"b", b"c"], size=(N, 6))
    good = [b"u%02d,%s" % (user, event) for user in range(N) for event in events[user]]
    bad = [b"", b"d", b'"a,b"', b'"a\n\nb"', b"\xff", b"\x00", b'""""', b"NA", b"1e400"]
    return {
        "symbols": good,
        "one is no symbol": [*good[:-1], b'u%02d,"x\r\n\r\ny"' % (N - 1)],
        "none is a symbol": [b"u%02d,%s" % (user, bad[user % len(bad)]) for user in range(N)],
        "one long": [*good, *[b"u07,a"] * 500],
        "short": [b"u%02d,c" % user for user in range(N)],
        "reversed": good[::-1],
    }


def lines_of_answers():
    """Return records of a survey: answers, others than are known, and no answers."""
    codes = np.random.default_rng(4).integers(0, 3, size=(N, 3))
    good = [b",".join(b"%d" % code for code in row) for row in codes]
    bad = [b",,", b'"0,1",,', b'"0\n1",2,3', b"\xff,\x00,9", b'"""","",', b"no,yes,NA", b"0,1,2\r"]
    one = [*good[:-1], b'"a\r\n\r\nb",,']
    return {
        "answers": good,
        "one is no answer": one,
        "none is an answer": (bad * N)[:N],
        "empty": [b",,"] * N,
    }


def write_npy(rows, path):
    np.save(path, rows)


def write_two_npy(rows, path):
    paths = [path.with_name(f"{part}.npy") for part in (0, 1)]
    np.save(paths[0], rows[:7])
    np.save(paths[1], rows[7:])
    return paths


def write_npz(rows, path):
    sparse.save_npz(path, rows)


def write_table(rows, path):
    import pyarrow
    from pyarrow import feather, parquet

    columns = {f"c{i}": pyarrow.array(rows[:, i], mask=np.isnan(rows[:, i])) for i in range(D)}
    table = pyarrow.table(columns)
    parquet.write_table(table, path) if path.suffix == ".parquet" else feather.write_feather(
        table, str(path)
    )


GARBLED_TABLES = {
    "cells that are not numbers among others": lambda lines: [
        (NOT_NUMBERS * 3)[i // 2] if i % 2 else line for i, line in enumerate(lines)
    ],
    "cells that are not numbers only": lambda lines: (NOT_NUMBERS * N)[:N],
    "the first record has no numbers": lambda lines: [NOT_NUMBERS[0], *lines[1:]],
    "the last record has several lines": lambda lines: [*lines[:-1], NOT_NUMBERS[5]],
    "empty cells": lambda lines: [b",,,,"] * N,
}


def texts(as_lines, garbled):
    lines = {name: as_lines(rows) for name, rows in FEW.items()}
    return lines | {name: garble(lines["normal"]) for name, garble in garbled.items()}


def documents(wrap):
    """Return texts, each of which is one line of a file once `wrap` has made a line of it."""
    lines = {
        "fruits": [b"apple banana apple cherry date apple"] * N,
        "one word": [b"apple"] * N,
        "long": [b"banana " * 500] * N,
        "other words": [b"these are none of them"] * N,
        "blank": [b""] * N,
        "bytes that are no text": [b"\xff\xfe apple"] * N,
        "a long word": [b"x" * 300] * N,
    }
    # The first holds the words that pass.
    made = {
        name: [wrap(b"date cherry banana apple"), *map(wrap, texts[1:])]
        for name, texts in lines.items()
    }
    not_blank = [line for line in MALFORMED if line.strip()]  # blank lines of JSON are not records
    return made | {"malformed lines": [*made["fruits"][:9], *(not_blank * 2)[: N - 9]]}


def not_texts():
    """Return documents some of which are no texts."""
    given = {
        "texts": "apple",
        "None": None,
        "NaN": float("nan"),
        "bytes": b"\xff\xfe apple",
        "a list": ["apple"],
    }
    others = {
        "a number": 10**400,
        "an array": np.zeros((2, 2)),
        "a lone surrogate": "\ud800 \ud800xy",
        "NUL": "\0\0",
    }
    return {
        name: ["date cherry banana apple", *[each] * (N - 1)]
        for name, each in (given | others).items()
    }


def write_counts(counts, path):
    """Write word counts with their vocabulary, as `odeco learn topics` reads them."""
    parts = {"data": counts.data, "indices": counts.indices, "indptr": counts.indptr}
    names = np.array([*PASSED, "elder"])
    np.savez(path, **parts, shape=counts.shape, format=np.array("csr"), vocabulary=names)


def with_indices_outside():
    """Return CSR arrays that point outside of their columns: SciPy writes and reads them as they
    are.
    """
    wrong = sparse.csr_array(np.ones((N, D)))
    wrong.indices = np.where(wrong.indices == 2, 10**6, wrong.indices)
    below = sparse.csr_array(np.ones((N, D)))
    below.indices = np.where(below.indices == 2, -3, below.indices)
    return {"an index too large": wrong, "an index below 0": below}


COMMA, NPZ = texts(separated, GARBLED_TABLES), {**CSR, **with_indices_outside()}
PUBLISHED = ("--out", "result.npz", "--report", "page.html", "--json")
UNNAMED = ("--no-header", "--dimension", str(D))

#: Every private entry point with the data that it is run on.
ENTRY_POINTS = {
    **{f"rows, {name}": (decomposed(**ROWS, mechanism=name), WILD_ROWS) for name in MECHANISMS},
    **{f"users, {name}": (decomposed(**USERS, mechanism=name), WILD_ROWS) for name in MECHANISMS},
    **{
        f"{relation} entries, {name}": (
            decomposed(**BUDGET, rng=0, mechanism=name, neighbour_relation=relation),
            CUBES,
        )
        for name in MECHANISMS
        if not MECHANISMS[name].needs_second_moment
        for relation in ("distinct", "literal")
    },
    "rows, auto": (decomposed(**ROWS), WILD_ROWS),
    "rows, bound auto": (decomposed(**{**ROWS, "norm_bound": "auto"}), WILD_ROWS),
    "users, bound auto": (
        decomposed(**{**USERS, "norm_bound": "auto"}, mechanism="core"),
        WILD_ROWS,
    ),
    "bound alone": (lambda rows: odeco.choose_norm_bound(rows, **BUDGET), WILD_ROWS),
    "subspace": (
        lambda rows: vars(odeco.private_subspace(rows, 2, **BUDGET, norm_bound=1.0)),
        WILD_ROWS,
    ),
    "subspace, bound auto": (
        lambda rows: vars(odeco.private_subspace(rows, 2, **BUDGET, norm_bound="auto")),
        WILD_ROWS,
    ),
    "rows, paper's calibration": (
        decomposed(**ROWS, mechanism="wang2016", calibration="paper"),
        WILD_ROWS,
    ),
    "rows, add_remove": (
        decomposed(**ROWS, neighbour_relation="add_remove", mechanism="joint"),
        WILD_ROWS,
    ),
    "rows, non-negative": (decomposed(**ROWS, nonnegative=True, mechanism="joint"), WILD_ROWS),
    "rows, told": (
        decomposed(
            **ROWS, mechanism="wang2016", callback=lambda step: sys.stderr.write(f"{step}\n")
        ),
        FEW,
    ),
    "rows, shown": (shown, FEW),
    "rows of order 4": (decomposed(**ROWS, order=4, mechanism="joint"), WILD_ROWS),
    "all entries of rows of order 4": (decomposed(**ROWS, order=4, mechanism="input"), WILD_ROWS),
    "entries of order 4": (decomposed(**BUDGET, rng=0, mechanism="joint"), FOURTH),
    "rows in a file": (
        read_from_a_file,
        {name: rows for name, rows in WILD_ROWS.items() if name not in CSR},
    ),
    "oracle, joint": (asked(lambda rows: RecordLevel(rows, norm_bound=1.0), "joint"), WILD_ROWS),
    "oracle, separate": (asked(EntryLevel, "separate"), CUBES),
    "stream, core": (pushed(method="core"), WILD_ROWS),
    "stream, power": (pushed(method="power", n_restarts=3, n_iterations=2), WILD_ROWS),
    "stream, entries": (pushed(method="entries"), WILD_ROWS),
    "stream, add_remove": (pushed(method="core", neighbour_relation="add_remove"), WILD_ROWS),
    "stream on a cluster": (pushed_on_a_cluster, {**FEW, **CSR}),
    **{
        f"rows on a cluster, {kind}, {name}": (
            partial(decomposed_on_a_cluster, in_files=kind == "files", mechanism=name),
            data,
        )
        for kind, data in (("files", {**FEW, **CSR}), ("blocks", {**FEW, **CSR}))
        for name in ("input", "core")
    },
    "topics on a cluster": (topics_on_a_cluster, {**FEW, **CSR}),
    "topics of users on a cluster": (
        partial(topics_on_a_cluster, groups=np.arange(N) % 11),
        {**FEW, **CSR},
    ),
    "topics command on a cluster, no vocabulary": (
        topics_command(write_lines, "texts.txt", "--stop-words", "none", on_a_cluster=True),
        documents(bytes),
    ),
    "topics command on a cluster, .npz, no vocabulary": (
        topics_command(write_counts, "counts.npz", "--stop-words", "none", on_a_cluster=True),
        {name: counted.counts for name, counted in columns_of_words().items() if name in WILD_ROWS},
    ),
    "topics command on a cluster, .parquet": (
        topics_command(write_texts, "texts.parquet", "--column", "t", on_a_cluster=True),
        {name: lines for name, lines in documents(bytes).items() if name != "malformed lines"},
    ),
    "topics command on a cluster, JSON": (
        topics_command(write_lines, "texts.jsonl", "--column", "t", on_a_cluster=True),
        documents(lambda text: b'{"t": "%s"}' % text),
    ),
    "topics command on a cluster, CSV": (
        topics_command(write_cells, "texts.csv", "--column", "t", on_a_cluster=True),
        {**documents(bytes), "several lines": [b'apple "banana"\n\ncherry,\r\ndate'] * N},
    ),
    "checkpoint of dense rows": (saved_without_the_sum, DENSE),
    "checkpoint of CSR rows": (saved_without_the_sum, CSR),
    "saved result": (saved_result, WILD_ROWS),
    "command, .npy": (command(write_npy, "rows.npy"), FEW),
    "command, bound auto": (
        command(write_npy, "rows.npy", "--norm-bound", "auto", *PUBLISHED),
        FEW,
    ),
    "command, CSV, bound auto": (
        command(
            write_lines, "rows.csv", "--no-header", "--dimension", str(D), "--norm-bound", "auto"
        ),
        COMMA,
    ),
    "command, ledger": (
        command(write_npy, "rows.npy", "--ledger", "data.ledger", "--budget", "9"),
        FEW,
    ),
    "command, published": (command(write_npy, "rows.npy", *PUBLISHED), FEW),
    "command, two files": (command(write_two_npy, "rows.npy"), FEW),
    "command, .npz": (command(write_npz, "rows.npz"), NPZ),
    "command, .parquet": (command(write_table, "rows.parquet"), FEW),
    "command, .feather": (command(write_table, "rows.feather"), FEW),
    "command, CSV with names": (command(write_lines_below_names, "rows.csv", "--header"), COMMA),
    "command, CSV without": (command(write_lines, "rows.csv", *UNNAMED), COMMA),
    "command, non-negative": (
        command(write_lines, "rows.csv", *UNNAMED, "--nonnegative"),
        COMMA,
    ),
    "topics": (topics(), WILD_ROWS),
    "topics of users": (topics(unit="user"), WILD_ROWS),
    "topics, add_remove": (topics(neighbour_relation="add_remove"), WILD_ROWS),
    "mixture": (mixture(), DENSE | {name: WILD_ROWS[name] for name in ("float32", "integers")}),
    "mixture command": (learn_command(write_npy, "rows.npy"), DENSE),
    "mixture command, JSON": (learn_command(write_npy, "rows.npy", "--json"), DENSE),
    "mixture command, users": (
        learn_command(write_users_too, "rows.npy", "--groups", "data/users.txt"),
        FEW,
    ),
    "mixture, one component": (mixture(n_components=1), DENSE),
    "mixture, add_remove": (mixture(neighbour_relation="add_remove"), DENSE),
    "mixture, bound auto": (mixture(norm_bound="auto"), DENSE),
    "mixture, diag": (mixture(covariance_type="diag", epsilon=50.0), DENSE),
    "mixture, full": (mixture(covariance_type="full", epsilon=50.0), DENSE),
    "sources, standardized": (sources(norm_bound="auto", standardize=True), FEW),
    "mixture, standardized": (mixture(norm_bound="auto", standardize=True), DENSE),
    "mixture command, standardized": (
        learn_command(
            write_npy,
            "rows.npy",
            "--norm-bound",
            "auto",
            "--standardize",
            "yes",
            "--covariance",
            "full",
        ),
        FEW,
    ),
    "mixture command, bound auto": (
        learn_command(write_npy, "rows.npy", "--norm-bound", "auto"),
        FEW,
    ),
    "sources": (sources(), DENSE | {name: WILD_ROWS[name] for name in ("float32", "integers")}),
    "sources, one": (sources(n_components=1), DENSE),
    "sources, all directions": (sources(n_components=None), DENSE),
    "sources, add_remove": (sources(neighbour_relation="add_remove"), DENSE),
    "sources, bound auto": (sources(norm_bound="auto"), DENSE),
    "sources, longdouble": (sources(), LONG),
    "sources command": (learn_command(write_npy, "rows.npy", model="ica"), DENSE),
    "sources command, JSON": (learn_command(write_npy, "rows.npy", "--json", model="ica"), FEW),
    "communities": (communities, graphs()),
    "latent classes": (latent_classes(), wild_answers()),
    "latent classes, add_remove": (latent_classes(neighbour_relation="add_remove"), wild_answers()),
    "latent classes of tables": (latent_classes(), tables_of_answers()),
    "classes command": (classes_command(), lines_of_answers()),
    "classes command, JSON": (classes_command("--json"), lines_of_answers()),
    "synthetic": (synthetic(), wild_answers()),
    "synthetic, add_remove": (synthetic(neighbour_relation="add_remove"), wild_answers()),
    "synthetic of tables": (synthetic(n_rows=7), tables_of_answers()),
    "synthesize command": (synthesize_command(), lines_of_answers()),
    "synthesize command, JSON": (synthesize_command("--json"), lines_of_answers()),
    "sequences": (hidden_states(), SEQUENCES),
    "states command": (states_command(), lines_of_events()),
    "states command, JSON": (states_command("--json"), lines_of_events()),
    "sequences, add_remove": (hidden_states(neighbour_relation="add_remove"), SEQUENCES),
    "mixture, longdouble": (mixture(), LONG),
    "topics, longdouble": (topics(), LONG),
    "vocabulary of texts": (
        lambda texts: vars(
            choose_vocabulary_privately([text.decode("latin-1") for text in texts], **BUDGET)
        ),
        documents(bytes),
    ),
    "vocabulary of documents that are no texts": (
        lambda given: vars(choose_vocabulary_privately(given, **BUDGET)),
        not_texts(),
    ),
    "vocabulary of users": (
        lambda counts: vars(
            choose_vocabulary_privately(counts, groups=np.arange(N) // 4, **BUDGET)
        ),
        columns_of_words(),
    ),
    "topics of documents that are no texts": (topics_of_texts, not_texts()),
    "topics command, .npz": (topics_command(write_counts, "counts.npz"), NPZ),
    "topics command, no vocabulary": (
        topics_command(write_lines, "texts.txt", "--stop-words", "none"),
        documents(bytes),
    ),
    "topics command, lines": (topics_command(write_lines, "texts.txt"), documents(bytes)),
    "topics of texts": (topics_of_texts, documents(bytes)),
    "topics command, .parquet": (
        topics_command(write_texts, "texts.parquet", "--column", "t"),
        {name: lines for name, lines in documents(bytes).items() if name != "malformed lines"},
    ),
    "topics command, JSON": (
        topics_command(write_lines, "texts.jsonl", "--column", "t"),
        documents(lambda text: b'{"t": "%s"}' % text),
    ),
    "topics command, CSV": (
        topics_command(write_cells, "texts.csv", "--column", "t"),
        {**documents(bytes), "several lines": [b'apple "banana"\n\ncherry,\r\ndate'] * N},
    ),
}
N_PAIRS = sum(len(data) for _, data in ENTRY_POINTS.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_nothing_but_what_is_released_depends_on_the_data(name, tmp_path, request):
    run, data_sets = ENTRY_POINTS[name]
    if "on a cluster" in name:
        request.getfixturevalue("cluster")
    first = None
    for number, (label, data) in enumerate(data_sets.items()):
        seen = outcome(lambda data=data: run(data), tmp_path / str(number))
        if first is None:
            first = seen
            assert seen["ended"][0] == "returned", seen["ended"]
            assert "command" not in name or seen["ended"][1] == "0", seen["stderr"]
        assert differences(first, seen) == [], label


def test_the_harness_notices_an_exact_answer_an_error_and_a_warning_that_depend_on_data(tmp_path):
    def leaks(data):
        if np.isnan(data).any():
            odeco.decompose_stream(data, 1)
        if np.abs(data).max() > 1e300:
            warnings.warn("large", stacklevel=1)
        return SampleMoment(data).image(np.eye(D)[:, :1])

    seen = [
        outcome(lambda name=name: leaks(DENSE[name]), tmp_path / str(number))
        for number, name in enumerate(("normal", "zeros", "NaN", "1e308"))
    ]
    assert differences(seen[0], seen[1])
    assert seen[2]["ended"][0] == "raised"
    assert [each["warned"] for each in seen] == [[], [], [], ["large"]]


@pytest.mark.skipif(not DOCS.is_dir(), reason="the documentation is not here")
def test_the_documentation_states_how_much_the_harness_covers():
    text = " ".join((DOCS / "privacy.md").read_text(encoding="utf-8").split())
    assert f"{len(ENTRY_POINTS)} entry points, {N_PAIRS} pairs of entry point and data set" in text
