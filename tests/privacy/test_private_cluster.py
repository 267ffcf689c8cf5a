"""A private run on a cluster: workers clip and add, the client adds noise once, and what is
released is the same.
"""

from __future__ import annotations

import gzip
import itertools
import json
import logging

import numpy as np
import pytest
from cluster_parts import cluster_of_threads
from scipy import sparse
from sealing import record

import odeco
from odeco.cli.app import run as run_command
from odeco.models import TensorLDA
from odeco.models.lda.private_vocabulary import keep_words
from odeco.models.lda.vocabulary import CountedWords
from odeco.privacy import RecordLevel, open_private
from odeco.privacy.holders import lanes
from odeco.privacy.holders.documents import BoundedCounts, WordVotes
from odeco.privacy.holders.lanes import ROWS_AT_ONCE, clipped_rows
from odeco.privacy.holders.norms import RowNorms
from odeco.privacy.ledger_file import LedgerFile
from odeco.privacy.noise import SeededNoiseForTests

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

import odeco.online.dask  # noqa: E402
from odeco.models.lda.cluster import count_words_on_cluster  # noqa: E402

N, D = 500, 5


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with cluster_of_threads(threads_per_worker=2):
        yield


def wild():
    """Rows of which some are beyond the bound, and some no numbers."""
    rows = np.random.default_rng(0).standard_normal((N, D)) * np.geomspace(1e-3, 1e3, N)[:, None]
    rows[7], rows[450, 2] = np.nan, np.inf
    return rows


def run(rows):
    settings = {"epsilon": 1.0, "delta": 1e-6, "norm_bound": 1.0, "batch_size": 60, "rng": 0}
    online = odeco.OnlineDecomposer(2, **settings, noise=SeededNoiseForTests(0))
    return record(lambda: online.partial_fit(rows).result(), SeededNoiseForTests(1))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_every_exact_answer_and_every_scale_is_that_of_one_machine(kind):
    rows = kind(wild())
    blocks = [dask.delayed(rows[start : start + 130], pure=False) for start in range(0, N, 130)]
    counts = [min(130, N - start) for start in range(0, N, 130)]
    found, there = run(odeco.online.dask.from_delayed(blocks, n_features=D, n_rows=counts))
    expected, here = run(rows)
    assert len(there.exact) == len(here.exact) == N // 60  # noise is drawn once for every batch
    assert there.scales == here.scales
    for one, other in zip(there.exact, here.exact, strict=True):
        assert np.array_equal(one, other)
        assert np.linalg.norm(one, axis=0).max() <= 1.0  # of clipped rows, asked about unit vectors
    assert np.array_equal(found.vectors, expected.vectors)


def test_an_error_of_a_worker_says_nothing_about_a_row():
    broken = sparse.csr_array(wild())
    broken.indices = np.where(broken.indices == 2, 10**6, broken.indices)
    rows = odeco.online.dask.from_delayed(
        [dask.delayed(broken, pure=False)], n_features=D, n_rows=[N]
    )
    with pytest.raises(RuntimeError) as caught:
        run(rows)
    assert (
        str(caught.value)
        == "Rows of a private run could not be added up on a worker. Nothing was released."
    )
    assert caught.value.__cause__ is None


# ---- decompositions and topics -------------------------------------------------------------------

BIG = 9 * ROWS_AT_ONCE + 17
#: Number of rows for which sums of any size have several lanes here.
SHORT_LANES = 2 * ROWS_AT_ONCE


def many(kind):
    rows = np.random.default_rng(1).standard_normal((BIG, D))
    rows[rows < -1] = 0.0
    rows[100, 2], rows[5000] = np.nan, 1e30
    return {"float32": lambda: rows.astype(np.float32), "CSR": lambda: sparse.csr_array(rows)}.get(
        kind, lambda: rows
    )()


def in_files(rows, folder, kind):
    """Write rows into files, and return what workers read."""
    if kind == "CSR":
        sparse.save_npz(folder / "rows.npz", rows)
    elif kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(
            pyarrow.table({f"c{i}": rows[:, i] for i in range(D)}), folder / "rows.parquet"
        )
    else:
        np.save(folder / "a.npy", rows[:1000])
        np.save(folder / "b.npy", rows[1000:])
    return odeco.online.dask.as_cluster_rows(open_private(sorted(folder.iterdir())))


def in_blocks(rows):
    edges = [*range(0, BIG, 3001), BIG]
    blocks = [
        dask.delayed(rows[start:stop], pure=False) for start, stop in itertools.pairwise(edges)
    ]
    return odeco.online.dask.from_delayed(blocks, n_features=D, n_rows=np.diff(edges).tolist())


@pytest.mark.parametrize("short_lanes", [False, True])
@pytest.mark.parametrize("kind", ["float64", "float32", "CSR", "parquet", "blocks", "users"])
def test_every_query_of_rows_is_answered_as_on_one_machine_to_the_bit(
    kind, short_lanes, tmp_path, monkeypatch
):
    if short_lanes:
        monkeypatch.setattr(lanes, "LANE_RECORDS", SHORT_LANES)
    rows = many(kind)
    there = in_blocks(rows) if kind == "blocks" else in_files(many(kind), tmp_path, kind)
    settings = {
        "norm_bound": 2.0,
        "groups": np.sqrt(np.arange(BIG)).astype(int) if kind == "users" else None,
    }
    held, away = RecordLevel(rows, **settings), RecordLevel(there, **settings)
    basis = np.linalg.qr(np.random.default_rng(2).standard_normal((D, 3)))[0]
    for question in ("image", "value", "core", "slab"):
        assert np.array_equal(getattr(held, question)(basis), getattr(away, question)(basis)), (
            question
        )
        name = "sensitivity" if question == "image" else f"{question}_sensitivity"
        assert getattr(held, name)(basis) == getattr(away, name)(basis)
    assert np.array_equal(held.packed(), away.packed())
    assert held.packed_sensitivity() == away.packed_sensitivity()
    assert np.array_equal(held.second_moment(), away.second_moment())
    assert held.neighbours == away.neighbours
    if kind == "users":  # computed in another way
        of_user = np.bincount(settings["groups"])
        clipped = clipped_rows(rows, 2.0) / np.sqrt(of_user[settings["groups"]])[:, None]
        np.testing.assert_allclose(
            away.second_moment(), clipped.T @ clipped / of_user.size, rtol=1e-9, atol=1e-12
        )
    here, norms = (RowNorms(each, settings["groups"]).query() for each in (rows, there))
    assert np.array_equal(here.answer(), norms.answer())


@pytest.mark.parametrize("n_chunks", [1, 2, 3, 7, 64, 65, 257, 4096, 20_000])
@pytest.mark.parametrize("size", [1, 10**7])
@pytest.mark.parametrize("fewest", [1, lanes.LANES])
def test_no_number_passes_through_more_additions_than_are_declared(n_chunks, size, fewest):
    n_rows = n_chunks * ROWS_AT_ONCE
    spans = lanes.lane_spans(n_rows, lanes.n_lanes(n_rows, size, fewest))
    assert [start for start, _ in spans[1:]] == [stop for _, stop in spans[:-1]]
    assert (spans[0][0], spans[-1][1]) == (0, n_rows)
    longest = max(-(-(stop - start) // ROWS_AT_ONCE) for start, stop in spans)
    assert (
        longest + len(spans) <= n_chunks + lanes.LANES
    )  # RecordLevel._rounding declares these, and 16 more
    assert len(spans) * size <= max(fewest * size, 2**27)


@pytest.mark.parametrize("mechanism", ["input", "core", "joint", "auto"])
def test_a_run_from_files_releases_what_one_machine_releases(mechanism, tmp_path):
    settings = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "unit": "record",
        "norm_bound": "auto",
        "rng": 0,
        "mechanism": mechanism,
    }

    def decomposed(rows, **where):
        found = odeco.decompose_privately(
            rows, 2, **settings, **where, noise=SeededNoiseForTests(0)
        )
        return found.vectors, found.weights, found.norm_bound, found.privacy.charges

    here = decomposed(many("float64"))
    there = decomposed(in_files(many("float64"), tmp_path, "float64"))
    opened = open_private(sorted(tmp_path.iterdir()))
    by_client = decomposed(opened, client=distributed.get_client())
    array = pytest.importorskip("dask.array").from_array(many("float64"), chunks=(2500, 3))
    for other in (there, by_client, decomposed(array)):
        assert all(np.array_equal(one, two) for one, two in zip(here[:3], other[:3], strict=True))
        assert here[3] == other[3]  # what was charged, for what, and with which sensitivity


def test_the_noise_is_drawn_by_the_client(tmp_path):
    rows = in_files(many("float64"), tmp_path, "float64")
    settings = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "unit": "record",
        "norm_bound": 1.0,
        "rng": 0,
        "mechanism": "core",
    }
    _, there = record(
        lambda: odeco.decompose_privately(rows, 2, **settings), SeededNoiseForTests(1)
    )
    _, here = record(
        lambda: odeco.decompose_privately(many("float64"), 2, **settings), SeededNoiseForTests(1)
    )
    assert there.scales == here.scales
    for one, other in zip(there.exact, here.exact, strict=True):
        assert np.array_equal(one, other)


def test_a_private_stream_and_a_subspace_read_files(tmp_path):
    rows = in_files(many("float64"), tmp_path, "float64")
    found, there = run(rows)
    expected, here = run(many("float64"))
    assert there.scales == here.scales
    assert np.array_equal(found.vectors, expected.vectors)
    settings = {"epsilon": 1.0, "delta": 1e-6, "norm_bound": 2.0}
    one, other = (
        odeco.private_subspace(each, 2, **settings, noise=SeededNoiseForTests(0))
        for each in (rows, many("float64"))
    )
    assert np.array_equal(one.eigenvalues, other.eigenvalues)
    one, other = (
        odeco.choose_norm_bound(
            each, epsilon=1.0, delta=1e-6, noise=SeededNoiseForTests(0)
        ).norm_bound
        for each in (rows, many("float64"))
    )
    assert one == other


@pytest.mark.parametrize("short_lanes", [False, True])
@pytest.mark.filterwarnings("ignore:All topics must stand clear")
@pytest.mark.parametrize("kind", ["blocks", "files"])
def test_private_topics_release_what_one_machine_releases(kind, short_lanes, tmp_path, monkeypatch):
    if short_lanes:
        monkeypatch.setattr(lanes, "LANE_RECORDS", 100)
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(30, 0.2), size=2)
    counts = np.stack(
        [rng.multinomial(rng.integers(0, 30), topics[number % 2]) for number in range(700)]
    )
    counts[3, 4] = -1
    counts = sparse.csr_array(counts.astype(np.float64))
    if kind == "files":
        sparse.save_npz(tmp_path / "counts.npz", counts)
        there = odeco.online.dask.as_cluster_rows(open_private([tmp_path / "counts.npz"]))
    else:
        there = odeco.online.dask.from_delayed(
            [dask.delayed(counts[:333]), dask.delayed(counts[333:])]
        )

    def learn(given):
        model = TensorLDA(2, epsilon=1.0, delta=1e-6, random_state=0)
        return record(lambda: model.fit(given), SeededNoiseForTests(1))

    (found, away), (expected, here) = learn(there), learn(counts)
    assert away.scales == here.scales
    for one, other in zip(away.exact, here.exact, strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(found.topic_word_, expected.topic_word_)
    assert found.privacy_.charges == expected.privacy_.charges


def several_users(kind):
    """Word counts, and the user of each document: of some users all documents are together, or they
    are everywhere.
    """
    rng = np.random.default_rng(0)
    counts = rng.poisson(
        np.where(np.arange(700)[:, None] % 2 == np.arange(30) % 2, 1.5, 0.1)
    ).astype(np.float64)
    counts[3, 4], counts[11, 2], counts[20] = -1, np.nan, 0
    users = (
        np.sqrt(np.arange(700)).astype(int) if kind == "sorted" else rng.integers(0, 90, size=700)
    )
    return sparse.csr_array(counts), np.array([f"user {number}" for number in users])


def divided(counts, heights=(333, 1, 0, 366)):
    """Return counts in blocks, which different workers may read."""
    edges = [0, *itertools.accumulate(heights)]
    blocks = [
        dask.delayed(counts[start:stop], pure=False) for start, stop in itertools.pairwise(edges)
    ]
    return odeco.online.dask.from_delayed(blocks, n_features=counts.shape[1], n_rows=list(heights))


@pytest.mark.parametrize("short_lanes", [False, True])
@pytest.mark.parametrize("kind", ["sorted", "everywhere"])
def test_users_add_on_a_cluster_what_they_add_on_one_machine_to_the_bit(
    kind, short_lanes, tmp_path, monkeypatch
):
    if short_lanes:
        monkeypatch.setattr(lanes, "LANE_RECORDS", 10)
    counts, users = several_users(kind)
    sparse.save_npz(tmp_path / "a.npz", counts[:300])
    sparse.save_npz(tmp_path / "b.npz", counts[300:])
    in_two_files = odeco.online.dask.as_cluster_rows(
        open_private([tmp_path / "a.npz", tmp_path / "b.npz"])
    )
    topics = np.random.default_rng(1).dirichlet(np.ones(30), size=2)
    held = BoundedCounts(counts, groups=users)
    for away in (BoundedCounts(rows, groups=users) for rows in (divided(counts), in_two_files)):
        assert (away.n_records, away.neighbours, away.unit) == (
            held.n_records,
            held.neighbours,
            "user",
        )
        for one, other in (
            (held.lengths(), away.lengths()),
            (held.words(), away.words()),
            (held.pairs(np.arange(0, 30, 2)), away.pairs(np.arange(0, 30, 2))),
            (
                held.responsibilities(topics, np.ones(30), 1.0),
                away.responsibilities(topics, np.ones(30), 1.0),
            ),
        ):
            assert (one.bound, one.signed, one.what) == (other.bound, other.signed, other.what)
            assert np.array_equal(one.answer(), other.answer()), one.what
    # Computed in another way: the features of a user are added up, and divided by their norm.
    clean = np.nan_to_num(np.where(counts.toarray() < 0, np.nan, counts.toarray()))
    clean[[3, 11]] = 0
    lengths = np.maximum(clean.sum(axis=1), 1)
    total = np.zeros(30)
    for user in np.unique(users):
        own = np.sqrt(clean[users == user] / lengths[users == user][:, None]).sum(axis=0)
        total += own / (np.linalg.norm(own) or 1.0)
    np.testing.assert_allclose(away.words().answer(), total, rtol=1e-5)


@pytest.mark.parametrize("kind", ["sorted", "everywhere"])
def test_no_user_moves_a_sum_on_a_cluster_further_than_is_declared(kind):
    counts, users = several_users(kind)
    user = users[7]
    topics = np.random.default_rng(1).dirichlet(np.ones(30), size=2)

    def answers(changed):
        held = BoundedCounts(divided(sparse.csr_array(changed)), groups=users)
        queries = (
            held.lengths(),
            held.words(),
            held.pairs(np.arange(30)),
            held.responsibilities(topics, np.ones(30), 1.0),
        )
        return [query.answer() for query in queries]

    base, farthest = counts.toarray(), np.zeros(4)
    blank, one_word, many = np.zeros(30), np.eye(30)[0] * 50, np.arange(30) ** 3.0
    blanked = np.where((users == user)[:, None], blank, base)
    without = answers(blanked)
    for row in (one_word, many, np.full(30, 1e6)):
        moved = answers(np.where((users == user)[:, None], row, base))
        steps = [np.linalg.norm(one - other) for one, other in zip(moved, without, strict=True)]
        assert max(steps) <= 1 + 1e-9  # blanked: 1, whatever the number of documents of the user
        farthest = np.maximum(farthest, steps)
    assert farthest.min() > 0.99  # and it is tight


@pytest.mark.filterwarnings("ignore:All topics must stand clear")
@pytest.mark.parametrize("kind", ["documents", "sorted", "everywhere"])
def test_votes_on_a_cluster_are_those_of_one_machine(kind):
    counts, users = several_users(kind)
    words = np.array([f"word{number:02d}" for number in range(30)])
    groups = None if kind == "documents" else users
    settings = {"groups": groups, "words_per_unit": 5, "stop_words": ["word03"]}
    here, there = (WordVotes(given, words, **settings) for given in (counts, divided(counts)))
    assert (here.n_units, here.unit, here.sensitivity) == (
        there.n_units,
        there.unit,
        there.sensitivity,
    )
    for scale in (0.1, 7.0):
        for one, other in zip(here.votes(scale), there.votes(scale), strict=True):
            assert np.array_equal(one, other)
    found = TensorLDA(
        2, epsilon=90.0, delta=1e-6, unit="document" if groups is None else "user", random_state=0
    )
    guarantee = {
        "epsilon": 90.0,
        "delta": 1e-6,
        "max_words": 20,
        "stop_words": ["word03"],
        "groups": groups,
    }
    learnt = []
    for given in (counts, divided(counts)):

        def learn(given=given):
            kept, chosen = keep_words(
                CountedWords(given, words, 30), min_documents=1, max_share=1.0, **guarantee
            )
            return found.fit(kept.counts, groups=groups, vocabulary=chosen).topic_word_.copy()

        learnt.append(record(learn, SeededNoiseForTests(1)))
    (one, here), (other, there) = learnt
    assert here.scales == there.scales
    assert np.array_equal(one, other)


def counts_of_the_command(folder):
    """Write word counts, of which one is none, and their public words; return the arguments of a
    private run.
    """
    counts = np.random.default_rng(0).poisson(
        np.where(np.arange(700)[:, None] % 2 == np.arange(30) % 2, 1.5, 0.1)
    )
    counts[3, 4] = -1
    counts = sparse.csr_array(counts.astype(np.float64))
    words = [f"word{number:02d}" for number in range(30)]
    (folder / "words.txt").write_text("\n".join(words))
    for number, part in enumerate((counts[:300], counts[300:])):
        parts = {
            "data": part.data,
            "indices": part.indices,
            "indptr": part.indptr,
            "shape": part.shape,
        }
        np.savez(folder / f"counts-{number}.npz", vocabulary=np.array(words), **parts)
    files = [str(folder / f"counts-{number}.npz") for number in range(2)]
    guarantee = [
        "--epsilon",
        "2",
        "--delta",
        "1e-6",
        "--vocabulary",
        str(folder / "words.txt"),
        "--yes",
    ]
    return ["learn", "topics", *files, "-k", "2", *guarantee, "--out", str(folder / "model.npz")]


def learn_here_and_there(arguments, folder, capsys, budget):
    """Learn private topics by the command on one machine and on the cluster: same releases, topics,
    output, charge.

    Returns the model of the cluster, and what the command said of it.
    """

    def learn(*more):
        code, seen = record(lambda: run_command([*arguments, *more]), SeededNoiseForTests(1))
        assert code == 0, capsys.readouterr().err
        return seen, TensorLDA.load(folder / "model.npz"), capsys.readouterr()

    address = distributed.get_client().scheduler.address
    here, expected, said = learn("--ledger", str(folder / "here.ledger"), "--budget", budget)
    away, found, there = learn(
        "--scheduler", address, "--ledger", str(folder / "there.ledger"), "--budget", budget
    )
    assert away.scales == here.scales
    for one, other in zip(away.exact, here.exact, strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(found.topic_word_, expected.topic_word_)
    assert (list(found.words_), found.tokenizer_) == (list(expected.words_), expected.tokenizer_)
    assert found.privacy_.charges == expected.privacy_.charges
    assert there.out == said.out
    spent = [LedgerFile(folder / f"{where}.ledger").mu for where in ("here", "there")]
    assert spent[0] == spent[1] > 0
    return found, there


@pytest.mark.filterwarnings("ignore:All topics must stand clear")
def test_private_topics_of_the_command_are_those_of_one_machine(tmp_path, capsys):
    _, there = learn_here_and_there(counts_of_the_command(tmp_path), tmp_path, capsys, "3")
    assert "700 documents, 30 words, on a cluster" in there.err


def texts_of_the_command(folder, kind):
    """Write texts, of which some cannot be read, into two files, and return the arguments that name
    them.
    """
    rng = np.random.default_rng(0)
    groups = ["apple banana cherry date", "Wolf bear lion tiger"]
    texts = [" ".join(rng.choice(groups[number % 2].split(), size=8)) for number in range(400)]
    texts[5], texts[250] = "", "password 4711"
    parts = [texts[:150], texts[150:]]
    if kind == "parquet":
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parts[0][6] = None
        for number, part in enumerate(parts):
            table = pyarrow.table({"text": part, "other": [0] * len(part)})
            parquet.write_table(table, folder / f"texts-{number}.parquet", row_group_size=60)
    for number, part in enumerate(parts):
        if kind == "csv":
            cells = ('"{}"'.format(text.replace(" ", "\n", 1)) for text in part)
            (folder / f"texts-{number}.csv").write_text(
                "other,text\n" + "".join(f"0,{cell}\n" for cell in cells)
            )
        elif kind == "jsonl":
            lines = [json.dumps({"text": text}) for text in part]
            lines[3] = '{"text": 3}'
            (folder / f"texts-{number}.jsonl").write_text("\n".join(lines))
        elif kind == "txt.gz":
            (folder / f"texts-{number}.txt.gz").write_bytes(
                gzip.compress("\n".join(part).encode() + b" \xff")
            )
        elif kind == "folder":
            for place, text in enumerate(part):
                (folder / "texts").mkdir(exist_ok=True)
                (folder / "texts" / f"{number}-{place:03d}.txt").write_text(text)
    if kind == "folder":
        return [str(folder / "texts")]
    names = [str(folder / f"texts-{number}.{kind}") for number in range(2)]
    return names if kind == "txt.gz" else [*names, "--column", "text"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:All topics must stand clear")
@pytest.mark.parametrize("chosen", ["words of a list", "words by votes"])
@pytest.mark.parametrize("unit", ["document", "user"])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "txt.gz", "parquet", "folder"])
def test_private_topics_of_texts_on_a_cluster_are_those_of_one_machine(
    kind, unit, chosen, tmp_path, capsys
):
    arguments = [
        "learn",
        "topics",
        *texts_of_the_command(tmp_path, kind),
        "-k",
        "2",
        "--epsilon",
        "4",
        "--delta",
        "1e-6",
    ]
    arguments += [
        "--yes",
        "--out",
        str(tmp_path / "model.npz"),
        "--report",
        str(tmp_path / "page.html"),
    ]
    if chosen == "words of a list":
        (tmp_path / "words.txt").write_text("apple\nwolf\nbanana\nbear\ncherry\nsilver\n")
        arguments += ["--vocabulary", str(tmp_path / "words.txt")]
    if unit == "user":
        users = np.random.default_rng(1).integers(0, 120, size=400)
        (tmp_path / "users.txt").write_text("\n".join(map(str, users)))
        arguments += ["--groups", str(tmp_path / "users.txt")]

    found, there = learn_here_and_there(arguments, tmp_path, capsys, "9")
    assert "password" not in found.words_  # a word of one document is not released
    assert f"400 documents, {len(found.words_)} words, on a cluster" in there.err


@pytest.mark.parametrize("votes", [True, False])
def test_an_error_about_private_texts_on_a_worker_names_the_file_only(
    votes, tmp_path, capsys, caplog
):
    (tmp_path / "words.txt").write_text("apple\nbanana")
    (tmp_path / "texts.csv").write_text('text,other\n"secret 4711')  # the quote is not closed
    address = distributed.get_client().scheduler.address
    arguments = [
        "-k",
        "2",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--yes",
        "--scheduler",
        address,
        "--column",
        "text",
    ]
    arguments += [] if votes else ["--vocabulary", str(tmp_path / "words.txt")]
    assert run_command(["learn", "topics", str(tmp_path / "texts.csv"), *arguments]) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert "texts.csv must be well-formed CSV" in said
    assert "4711" not in said
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
    for name, text in (
        ("missing.csv", None),
        ("missing.parquet", None),
        ("damaged.parquet", "secret 4711"),
    ):
        if text is not None:
            (tmp_path / name).write_text(text)
        assert run_command(["learn", "topics", str(tmp_path / name), *arguments]) != 0
        said = capsys.readouterr().err
        assert name in said
        assert "4711" not in said


class Unreadable:
    """Texts whose reader has a fault of its own, which quotes one of them."""

    def __iter__(self):
        raise ValueError("the record 4711 is wrong")


@pytest.mark.parametrize("words", [None, ["apple", "banana"]])
def test_any_other_error_about_private_texts_is_one_fixed_sentence(words, caplog):
    with pytest.raises(RuntimeError) as caught:
        count_words_on_cluster([Unreadable()], words, private=True)
    assert (
        str(caught.value)
        == "Rows of a private run could not be added up on a worker. Nothing was released."
    )
    assert caught.value.__cause__ is None
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_private_texts_without_any_word_fail_by_their_votes_alone(tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("1\n2\n3\n")
    address = distributed.get_client().scheduler.address
    arguments = [
        "learn",
        "topics",
        str(tmp_path / "texts.txt"),
        "-k",
        "1",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--yes",
    ]
    texts = []
    for more in ([], ["--scheduler", address]):
        assert run_command([*arguments, *more]) != 0
        texts.append(capsys.readouterr().err.splitlines()[-1])
    assert texts[0] == texts[1]


def test_topics_of_the_command_refuse_what_a_cluster_cannot_do(tmp_path, capsys):
    arguments = [*counts_of_the_command(tmp_path), "--scheduler", "tcp://127.0.0.1:1"]
    number = arguments.index("-k") + 1
    for given, expected in (
        (["learn", "topics", "-", *arguments[number - 1 :]], "not the standard input"),
        ([*arguments[:number], "auto", *arguments[number + 1 :]], "A private model needs a number"),
        ([*arguments, "--max-share", "0.5"], "Leave out --max-share"),
    ):
        assert run_command(given) == 2
        assert expected in " ".join(capsys.readouterr().err.split())


def test_words_in_another_order_than_those_of_the_counts_are_refused(tmp_path, capsys):
    arguments = counts_of_the_command(tmp_path)
    words = (tmp_path / "words.txt").read_text().split()
    (tmp_path / "words.txt").write_text("\n".join(reversed(words)))
    assert run_command([*arguments, "--scheduler", distributed.get_client().scheduler.address]) != 0
    assert "must have the words of counts-0.npz in their order" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize("bound", ["2", "auto"])
def test_users_of_the_private_command_are_those_of_one_machine(bound, tmp_path, capsys):
    rows = many("float64")
    np.save(tmp_path / "a.npy", rows[:4000])
    np.save(tmp_path / "b.npy", rows[4000:])
    users = np.random.default_rng(3).integers(0, 700, size=BIG)  # with rows in both files
    (tmp_path / "users.txt").write_text("\n".join(map(str, users)))
    arguments = [
        "decompose",
        "--rows",
        str(tmp_path / "a.npy"),
        str(tmp_path / "b.npy"),
        "-k",
        "2",
        "--epsilon",
        "1",
    ]
    arguments += ["--delta", "1e-6", "--groups", str(tmp_path / "users.txt"), "--norm-bound", bound]
    seen = []
    for more in ([], ["--scheduler", distributed.get_client().scheduler.address]):
        code, found = record(
            lambda more=more: run_command([*arguments, "--yes", "--json", *more]),
            SeededNoiseForTests(1),
        )
        said = capsys.readouterr()
        assert code == 0, said.err
        seen.append((found, said.out))
    (here, said), (there, said_there) = seen
    assert here.scales == there.scales
    for one, other in zip(here.exact, there.exact, strict=True):
        assert np.array_equal(one, other)
    assert said == said_there


# ---- nothing is said about a row -----------------------------------------------------------------


def secret_block(fails):
    if fails:
        raise ValueError("the record 4711 is wrong")
    return np.ones((500, D))


def test_errors_and_logs_of_workers_do_not_quote_a_record(caplog):
    settings = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "norm_bound": 1.0}
    broken = sparse.csr_array(wild())
    broken.indices = np.where(broken.indices == 2, 4711, broken.indices)
    rows = odeco.online.dask.from_delayed(
        [dask.delayed(broken, pure=False)], n_features=D, n_rows=[N]
    )
    with pytest.raises(RuntimeError) as caught:
        odeco.decompose_privately(rows, 2, **settings)
    assert (
        str(caught.value)
        == "Rows of a private run could not be added up on a worker. Nothing was released."
    )
    assert caught.value.__cause__ is None
    # Dask logs what a task raises, so no task of odeco does.
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
    failing = dask.delayed(secret_block)(fails=True)
    rows = odeco.online.dask.from_delayed(
        [dask.delayed(secret_block)(fails=False), failing], n_features=D, n_rows=[500] * 2
    )
    for run_it in (lambda: odeco.decompose_privately(rows, 2, **settings), lambda: run(rows)):
        with pytest.raises(RuntimeError) as caught:
            run_it()
        assert "4711" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_a_damaged_file_is_named_and_a_block_of_another_length_is_counted(tmp_path):
    settings = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "norm_bound": 1.0}
    rows = in_files(many("float64"), tmp_path, "float64")
    np.save(tmp_path / "b.npy", many("float64")[:2000])
    with pytest.raises(
        RuntimeError, match=r"^b\.npy must be complete, and stay as it is during a run\."
    ):
        odeco.decompose_privately(rows, 2, **settings)
    wrong = odeco.online.dask.from_delayed(
        [dask.delayed(np.ones)((5, D))], n_features=D, n_rows=[6]
    )
    with pytest.raises(RuntimeError, match=r"^A block must have 6 rows from row 0 on\. It has 5\."):
        odeco.decompose_privately(wrong, 2, **settings)


def test_files_that_name_rows_in_errors_and_files_without_an_index_are_refused(tmp_path):
    settings = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "norm_bound": 1.0}
    np.save(tmp_path / "rows.npy", wild())
    loud = odeco.online.dask.as_cluster_rows(str(tmp_path / "rows.npy"))
    for use in (
        lambda: odeco.decompose_privately(loud, 2, **settings),
        lambda: odeco.private_subspace(loud, 2, epsilon=1.0, delta=1e-6, norm_bound=1.0),
        lambda: run(loud),
        lambda: TensorLDA(2, epsilon=1.0, delta=1e-6).fit(loud),
    ):
        with pytest.raises(
            (ValueError, TypeError),
            match=r"must be opened by odeco\.privacy\.open_private|Private rows",
        ):
            use()
    (tmp_path / "rows.csv").write_text("1,2\n3,4\n")
    opened = open_private([tmp_path / "rows.csv"], header=False, n_features=2)
    with pytest.raises(
        odeco.SourceError, match=r"^Rows for a cluster must be in files whose headers state"
    ):
        odeco.decompose_privately(opened, 2, **settings, client=distributed.get_client())
