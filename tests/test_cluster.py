"""A real cluster of two worker processes: the bits of one machine, whatever the rows come in and
whoever dies.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
from cluster_parts import (
    N_ROWS,
    D,
    K,
    cluster_of_threads,
    csr_block,
    deadly_block,
    dense_block,
    planted,
    run_client,
)
from scipy import sparse

import odeco
from odeco.datasets import planted_topics
from odeco.errors import VocabularyError
from odeco.models import TensorLDA
from odeco.models.lda.vocabulary import count_words, prune_words
from odeco.privacy.noise import SeededNoiseForTests

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
db = pytest.importorskip("dask.bag")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")
distributed = pytest.importorskip("distributed")

import odeco.online.dask  # noqa: E402
from odeco.models.lda.cluster import count_words_on_cluster  # noqa: E402
from odeco.online.dask import requests  # noqa: E402
from odeco.online.dask.client import blas_kernels  # noqa: E402
from odeco.online.dask.partitions import ChosenRows  # noqa: E402
from odeco.online.dask.pieces import read  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Sending large graph:UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ROWS = planted()
EDGES = (0, 9_000, 9_001, 30_000, N_ROWS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same rows in files of all kinds, cut at places that have nothing to do with leaves."""
    pandas = pytest.importorskip("pandas")
    path = tmp_path_factory.mktemp("rows")
    for number, (start, stop) in enumerate(itertools.pairwise(EDGES)):
        np.save(path / f"part-{number}.npy", ROWS[start:stop])
        sparse.save_npz(
            path / f"part-{number}.npz",
            sparse.csr_array(ROWS[start:stop]),
            compressed=number % 2 == 0,
        )
        frame = pandas.DataFrame(ROWS[start:stop], columns=[f"c{column}" for column in range(D)])
        frame.to_parquet(path / f"part-{number}.parquet", index=False)
    np.save(path / "all.npy", ROWS)
    return path


@pytest.fixture(scope="module")
def plain():
    """What one machine finds in dense and in CSR rows."""
    dense = odeco.decompose_stream(ROWS, K, method="core", rng=0)
    return {
        "dense": dense,
        "csr": odeco.decompose_stream(sparse.csr_array(ROWS), K, method="core", rng=0),
    }


def assert_same(one, other):
    for name in ("weights", "vectors", "weight_errors", "angle_errors", "n_rows"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def lazy_array(folder):
    """The rows as a Dask array whose blocks are read where they are wanted."""
    cuts = itertools.pairwise(EDGES)
    blocks = [
        (dask.delayed(dense_block)(str(folder / "all.npy"), *cut), cut[1] - cut[0]) for cut in cuts
    ]
    return da.concatenate([da.from_delayed(block, (n_rows, D), float) for block, n_rows in blocks])


def inputs(folder):
    """Rows in every form that a cluster takes, with the kind that they are read as."""
    array = lazy_array(folder)
    delayed = [
        dask.delayed(csr_block)(str(folder / "all.npy"), *cut) for cut in itertools.pairwise(EDGES)
    ]
    yield "glob of .npy", str(folder / "part-*.npy"), "dense"
    yield "list of .npz", [folder / f"part-{number}.npz" for number in range(4)], "csr"
    yield "glob of Parquet", str(folder / "part-*.parquet"), "dense"
    yield "array", array.rechunk((None, 7)), "dense"
    yield "array of CSR blocks", array.map_blocks(sparse.csr_array), "csr"
    yield "dataframe", array.to_dask_dataframe(), "dense"
    yield "delayed CSR blocks", odeco.online.dask.from_delayed(delayed), "csr"


@pytest.mark.slow
def test_every_input_gives_the_bits_of_one_machine(client, folder, plain):
    for name, data, kind in inputs(folder):
        found = odeco.decompose_stream(data, K, method="core", rng=0, client=client)
        try:
            assert_same(found, plain[kind])
        except AssertionError as error:
            pytest.fail(f"{name}: {error}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"method": "power", "batch_size": 6_000, "n_iterations": 2, "n_restarts": 4},
        {"method": "entries"},
        {"method": "entries", "n_passes": 1},
        {"method": "core", "n_passes": 1},
        {"method": "core", "memory": 1},  # of a sample
        {"order": 4},
    ],
    ids=str,
)
def test_every_method_gives_the_bits_of_one_machine(client, folder, settings):
    expected = odeco.decompose_stream(ROWS, K, rng=0, **settings)
    found = odeco.decompose_stream(folder / "all.npy", K, rng=0, client=client, **settings)
    assert np.array_equal(found.vectors, expected.vectors)
    assert np.array_equal(found.weights, expected.weights)


def test_a_worker_that_is_killed_changes_no_bit(client, folder, plain, tmp_path):
    signs = [str(tmp_path / "dead-1"), str(tmp_path / "dead-2")]
    blocks = [
        dask.delayed(deadly_block, pure=False)(str(folder / "all.npy"), *cut, signs[cut[0] > 9_000])
        for cut in itertools.pairwise(EDGES)
    ]
    # The number of rows of each is known, so the first block alone is made to look at it: one
    # worker dies of that.
    rows = odeco.online.dask.from_delayed(blocks, n_features=D, n_rows=np.diff(EDGES))
    assert_same(odeco.decompose_stream(rows, K, method="core", rng=0), plain["dense"])
    assert len(list(tmp_path.glob("dead-*"))) == 2  # so many processes were ended, in turn


def test_a_client_that_is_killed_goes_on_to_the_same_bits(client, folder, plain, tmp_path):
    path, checkpoint = str(folder / "part-*.npy"), tmp_path / "run.ckpt"
    arguments = (client.scheduler.address, path, str(checkpoint))
    process = multiprocessing.get_context("spawn").Process(target=run_client, args=arguments)
    process.start()
    process.join(120)
    assert process.exitcode == -9
    assert checkpoint.exists()
    seen = []
    found = odeco.decompose_stream(
        path, K, method="core", rng=0, client=client, checkpoint=checkpoint, callback=seen.append
    )
    assert_same(found, plain["dense"])
    assert seen[0].n_rows >= N_ROWS  # questions that were answered before are not asked again
    assert not checkpoint.exists()


def test_a_run_that_was_begun_here_goes_on_there(client, folder, plain, tmp_path):
    class EnoughError(Exception):
        pass

    def stop(progress):
        if progress.n_rows > N_ROWS + 10_000:
            raise EnoughError

    path, checkpoint = folder / "all.npy", tmp_path / "run.ckpt"
    with pytest.raises(EnoughError):
        odeco.decompose_stream(path, K, method="core", rng=0, checkpoint=checkpoint, callback=stop)
    found = odeco.decompose_stream(
        path, K, method="core", rng=0, client=client, checkpoint=checkpoint
    )
    assert_same(found, plain["dense"])


def test_what_is_wrong_with_a_file_arrives_with_its_name_and_row(client, folder, tmp_path):
    bad = ROWS[:20_000].copy()
    bad[12_345, 3] = np.nan
    np.save(tmp_path / "part-9.npy", bad)
    (tmp_path / "part-0.npy").symlink_to(folder / "part-0.npy")
    with pytest.raises(
        odeco.SourceError, match=r"Row 12,345 of part-9\.npy holds NaN in column 3"
    ) as caught:
        odeco.decompose_stream(str(tmp_path / "part-*.npy"), K, method="core", rng=0, client=client)
    with pytest.raises(odeco.SourceError) as plainly:
        odeco.decompose_stream(str(tmp_path / "part-*.npy"), K, method="core", rng=0)
    assert str(caught.value) == str(plainly.value)
    with pytest.raises(
        odeco.SourceError, match=r"Row 12,345 of the Dask array holds NaN in column 3"
    ):
        odeco.decompose_stream(da.from_array(bad, chunks=(7_000, D)), K, rng=0)
    whole = (folder / "part-2.npz").read_bytes()
    (tmp_path / "damaged.npz").write_bytes(whole[:80_000] + bytes(2_000) + whole[82_000:])
    with pytest.raises(odeco.SourceError, match=r"damaged\.npz"):
        odeco.decompose_stream(tmp_path / "damaged.npz", K, method="core", rng=0, client=client)


def test_progress_counts_the_rows_of_all_workers(client, folder):
    seen = []
    odeco.decompose_stream(
        folder / "all.npy", K, method="core", rng=0, client=client, callback=seen.append
    )
    assert [progress.n_rows for progress in seen] == sorted(progress.n_rows for progress in seen)
    assert seen[-1].n_rows == 3 * N_ROWS
    assert seen[-1].n_rows_needed == 0
    assert all(0 <= progress.fraction <= 1 for progress in seen)


def test_another_version_on_a_worker_is_an_error_that_says_so(client, folder, monkeypatch):
    wanted = (
        *odeco.online.dask.client.versions()[:1],
        ("odeco", "9.9"),
        *odeco.online.dask.client.versions()[2:],
    )
    monkeypatch.setattr(odeco.online.dask.client, "versions", lambda: wanted)
    with pytest.raises(
        RuntimeError,
        match=r"odeco must have the same version .* The client has 9\.9, the worker on",
    ):
        odeco.decompose_stream(folder / "all.npy", K, method="core", rng=0, client=client)


def test_workers_with_other_kernels_of_linear_algebra_are_refused(folder):
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0"
    ) as cluster:
        client = distributed.Client(cluster)
        kernels = set(client.run(blas_kernels).values())
        assert kernels == {blas_kernels()}
        # One more worker, whose library is told to take the kernels of another processor.
        other = "Sandybridge" if "Haswell" in blas_kernels() else "Haswell"
        command = [
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            cluster.scheduler_address,
            "--nthreads",
            "1",
        ]
        with subprocess.Popen(
            [*command, "--no-dashboard"], env=os.environ | {"OPENBLAS_CORETYPE": other}
        ) as worker:
            try:
                client.wait_for_workers(2)
                with pytest.raises(
                    odeco.ClusterError, match=f"Workers must use the same kernels .* {other}"
                ):
                    odeco.decompose_stream(
                        folder / "all.npy", K, method="core", rng=0, client=client
                    )
            finally:
                worker.terminate()
        client.close()


def test_a_worker_that_joins_with_other_kernels_is_refused():
    expected = (
        *odeco.online.dask.client.versions(),
        ("kernels of linear algebra", "openblas Other (00000000)"),
    )
    with pytest.raises(RuntimeError, match="Others use openblas Other"):
        odeco.online.dask.client.check_versions(expected)


def test_a_task_does_not_write_to_its_block_or_rows(client, folder):
    rows = lazy_array(folder).persist()
    before = rows.compute()
    first = odeco.decompose_stream(rows, K, method="core", rng=0)
    assert np.array_equal(rows.compute(), before)
    assert_same(odeco.decompose_stream(rows, K, method="core", rng=0), first)


def test_online_rows_of_a_cluster_are_learnt_as_those_of_one_machine(client):
    here, there = (odeco.OnlineDecomposer(K, rng=0) for _ in range(2))
    here.partial_fit(ROWS)
    there.partial_fit(da.from_array(ROWS, chunks=(9_999, D)))
    assert_same(there.result(), here.result())
    assert there.n_rows == here.n_rows == N_ROWS
    there.partial_fit(ROWS[:100]).partial_fit(da.from_array(ROWS[100:], chunks=(9_999, D)))
    here.partial_fit(ROWS)
    np.testing.assert_allclose(there.result().weights, here.result().weights, rtol=1e-12)


GUARANTEE = {"epsilon": 1.0, "delta": 1e-6, "norm_bound": 1.0, "batch_size": 9_000, "rng": 0}


def private(**settings):
    return odeco.OnlineDecomposer(K, **GUARANTEE, noise=SeededNoiseForTests(0), **settings)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_a_private_run_releases_on_a_cluster_what_it_releases_here(client, folder, kind):
    array = lazy_array(folder)
    rows = array if kind == "dense" else array.map_blocks(sparse.csr_array)
    there, here = (
        private().partial_fit(rows),
        private().partial_fit(ROWS if kind == "dense" else sparse.csr_array(ROWS)),
    )
    found, expected = there.result(), here.result()
    assert np.array_equal(found.vectors, expected.vectors)
    assert np.array_equal(found.weights, expected.weights)
    assert [charge.data for charge in there._account.ledger.charges] == [
        charge.data for charge in here._account.ledger.charges
    ]
    assert len(there._account.ledger.charges) == N_ROWS // 9_000  # one release a batch


def test_a_private_run_takes_no_files_whose_errors_name_rows(client, folder):
    rows = odeco.online.dask.as_cluster_rows(str(folder / "part-*.npy"), client)
    with pytest.raises(ValueError, match=r"must be opened by odeco\.privacy\.open_private"):
        private().partial_fit(rows)


SETTINGS = {"n_components": 3, "max_iter": 2, "doc_topic_concentration": 0.6, "random_state": 0}


@pytest.fixture(scope="module")
def corpus():
    """Documents of more than one leaf, the words of some of which are too few to count."""
    counts = planted_topics(40_000, 60, [0.3, 0.2, 0.1], document_length=30, rng=0).counts
    counts = sparse.csr_array(counts.multiply(np.arange(40_000)[:, None] % 50 != 7))
    counts.eliminate_zeros()
    return counts


@pytest.fixture(scope="module")
def fitted(corpus):
    return TensorLDA(**SETTINGS).fit(corpus)


def corpus_blocks(corpus, make=None):
    cuts = itertools.pairwise((0, 100, 33_000, 40_000))
    blocks = [dask.delayed(corpus[start:stop], pure=False) for start, stop in cuts]
    return blocks if make is None else [dask.delayed(make, pure=False)(block) for block in blocks]


def assert_same_topics(one, other):
    for name in (
        "topic_word_",
        "doc_topic_prior_",
        "components_",
        "n_samples_seen_",
        "topic_word_prior_",
    ):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.slow
def test_topics_of_a_cluster_are_those_of_one_machine(client, corpus, fitted, tmp_path):
    rows = odeco.online.dask.from_delayed(corpus_blocks(corpus))
    told = []
    there = TensorLDA(**SETTINGS).fit(rows, callback=lambda *each: told.append(each))
    assert_same_topics(there, fitted)
    assert told == [
        ("pairs", 0, 1),
        ("triples", 0, 1),
        *(("sweeps", number, 2) for number in range(3)),
    ]
    assert there.diagnostics_.n_empty == fitted.diagnostics_.n_empty > 0
    proportions = there.transform(rows)
    assert isinstance(proportions, da.Array)
    assert np.array_equal(proportions.compute(), fitted.transform(corpus))
    assert there.score(rows) == fitted.score(corpus)
    assert there.perplexity(rows) == fitted.perplexity(corpus)
    for number, cut in enumerate(itertools.pairwise((0, 20_001, 40_000))):
        sparse.save_npz(tmp_path / f"part-{number}.npz", corpus[slice(*cut)])
    chosen = {
        "n_components": 3,
        "max_iter": 0,
        "random_state": 0,
    }  # with the concentration left to the documents
    again = TensorLDA(**chosen).fit(str(tmp_path / "part-*.npz"), client=client)
    assert_same_topics(again, TensorLDA(**chosen).fit(corpus))


@pytest.mark.slow
def test_seed_words_steer_topics_of_a_cluster_as_those_of_one_machine(client, corpus):
    words = [f"w{number}" for number in range(corpus.shape[1])]
    rows = odeco.online.dask.from_delayed(corpus_blocks(corpus))
    there, here = (
        TensorLDA(**SETTINGS, seed_words=[["w3", "w5"]]).fit(data, words=words)
        for data in (rows, corpus)
    )
    assert_same_topics(there, here)


@pytest.mark.slow
def test_weighted_documents_of_a_cluster_are_repeated_ones(client, corpus):
    weights = np.random.default_rng(5).integers(0, 3, size=corpus.shape[0])
    rows = odeco.online.dask.from_delayed(corpus_blocks(corpus))
    there = TensorLDA(**SETTINGS).fit(rows, sample_weight=weights)
    assert_same_topics(there, TensorLDA(**SETTINGS).fit(corpus, sample_weight=weights))
    assert_same_topics(
        there, TensorLDA(**SETTINGS).fit(corpus[np.repeat(np.arange(corpus.shape[0]), weights)])
    )
    with pytest.raises(ValueError, match="must be whole numbers"):
        TensorLDA(**SETTINGS).fit(rows, sample_weight=weights / 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["blocks", "files"])
def test_the_number_of_topics_is_selected_on_a_cluster_as_on_one_machine(
    kind, client, corpus, tmp_path
):
    settings = {"n_components": "auto", "max_iter": 0, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of topics that are not reliable, here as there
        here = TensorLDA(**settings).fit(corpus)
        if kind == "blocks":
            there = TensorLDA(**settings).fit(odeco.online.dask.from_delayed(corpus_blocks(corpus)))
        else:
            for number, cut in enumerate(itertools.pairwise((0, 20_001, 40_000))):
                sparse.save_npz(tmp_path / f"part-{number}.npz", corpus[slice(*cut)])
            there = TensorLDA(**settings).fit(str(tmp_path / "part-*.npz"), client=client)
    assert there.n_components_ == here.n_components_
    assert_same_topics(there, here)


@pytest.mark.parametrize("in_files", [False, True])
def test_chosen_rows_are_read_in_their_order(in_files, client, tmp_path):
    rows = np.random.default_rng(0).standard_normal((100, 3))
    cuts = [0, 10, 11, 60, 100]
    parts = [rows[start:stop] for start, stop in itertools.pairwise(cuts)]
    for number, part in enumerate(parts):
        np.save(tmp_path / f"{number}.npy", part)
    whole = (
        odeco.online.dask.as_cluster_rows(str(tmp_path / "*.npy"), client)
        if in_files
        else odeco.online.dask.from_delayed(map(dask.delayed, parts))
    )
    numbers = np.flatnonzero(np.random.default_rng(1).random(100) < 0.3)
    chosen = ChosenRows(whole, numbers)
    assert chosen.shape == (numbers.size, 3)
    for start, stop in ((0, numbers.size), (3, 9), (9, 10), (numbers.size - 2, numbers.size)):
        pieces = chosen.pieces(start, stop)
        blocks = [] if in_files else dask.compute([piece.source for piece in pieces])[0]
        places = pieces if in_files else [piece._replace(source=None) for piece in pieces]
        assert places[0].first == start
        assert sum(piece.n_rows for piece in places) == stop - start
        found = np.concatenate([*read(places, blocks, 3, "rows")])
        assert np.array_equal(found, rows[numbers[start:stop]])


def test_texts_of_a_cluster_are_counted_there(client):
    generator = np.random.default_rng(0)
    words = [f"word{letter}" for letter in "abcdefghijklmnopqrst"]
    texts = [" ".join(generator.choice(words[: 10 + 10 * (i % 2)], 12)) for i in range(300)] + [
        "",
        "The rare one",
    ]
    here = prune_words(count_words(texts), max_share=0.9)
    frame = dd.from_pandas(pd.DataFrame({"text": texts}), npartitions=3)
    for given in (db.from_sequence(texts, npartitions=4), frame["text"]):
        counts, found = count_words_on_cluster(given, max_share=0.9)
        assert found.tolist() == here.words.tolist()
        there = TensorLDA(2, max_iter=1, random_state=0).fit(counts)
        assert_same_topics(there, TensorLDA(2, max_iter=1, random_state=0).fit(here.counts))
    counts, found = count_words_on_cluster(
        db.from_sequence(texts, npartitions=2), ["wordc", "worda"]
    )
    assert found.tolist() == ["wordc", "worda"]
    assert counts.shape == (302, 2)
    with pytest.raises(
        VocabularyError, match="At least one word must be in 5 of the 302 documents"
    ):
        count_words_on_cluster(db.from_sequence(texts, npartitions=2), max_share=0.0)


def test_a_worker_that_is_killed_during_the_sweeps_changes_no_topic(client, corpus, fitted):
    def kill(stage, done, total):
        if (stage, done) == ("sweeps", 1):
            (process, *_) = client.run(os.getpid).values()
            os.kill(process, signal.SIGKILL)

    there = TensorLDA(**SETTINGS).fit(
        odeco.online.dask.from_delayed(corpus_blocks(corpus)), callback=kill
    )
    assert_same_topics(there, fitted)


def test_what_is_wrong_with_word_counts_arrives(client, corpus):
    model = TensorLDA(3, max_iter=0, random_state=0)
    rows = odeco.online.dask.from_delayed(corpus_blocks(corpus, np.negative))
    with pytest.raises(
        ValueError,
        match=r"must not be negative.*Counted from document [0-9,]+ of the delayed blocks",
    ):
        model.fit(rows)
    assert not hasattr(model, "n_features_in_")


def command(*arguments):
    said = [sys.executable, "-m", "odeco", *map(str, arguments)]
    return subprocess.run(said, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_the_command_works_on_a_cluster(client, folder, corpus, plain, tmp_path):
    address = client.scheduler.address
    arguments = (
        folder / "part-*.npy",
        "-k",
        K,
        "--method",
        "core",
        "--scheduler",
        address,
        "--out",
        tmp_path / "found.npz",
    )
    ended = command("decompose", "--rows", *arguments, "--checkpoint", tmp_path / "run.ckpt")
    assert ended.returncode == 0, ended.stderr
    assert f"cluster at {address}: 2 workers, 2 threads" in ended.stderr
    assert_same(odeco.load_result(tmp_path / "found.npz"), plain["dense"])
    words = np.array([f"word{number}" for number in range(60)])
    np.savez(
        tmp_path / "counts.npz",
        data=corpus.data,
        indices=corpus.indices,
        indptr=corpus.indptr,
        shape=corpus.shape,
        vocabulary=words,
    )
    arguments = (tmp_path / "counts.npz", "-k", 3, "--max-iter", 0, "--scheduler", address)
    ended = command("learn", "topics", *arguments, "--out", tmp_path / "model.npz", "--json")
    assert ended.returncode == 0, ended.stderr
    model = TensorLDA.load(tmp_path / "model.npz")
    assert np.array_equal(
        model.topic_word_, TensorLDA(3, max_iter=0, random_state=0).fit(corpus).topic_word_
    )
    assert list(model.words_) == list(words)
    texts = [
        " ".join(np.random.default_rng(i).choice(words[30 * (i % 2) :][:30], 12))
        for i in range(400)
    ]
    counted = prune_words(count_words(texts))
    expected = TensorLDA(2, max_iter=0, random_state=0).fit(counted.counts)
    writers = {
        "parquet": lambda frame, path: frame.to_parquet(path),
        "csv": lambda frame, path: frame.to_csv(path, index=False),
        "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    }
    for kind, write in writers.items():
        for number in range(2):
            frame = pd.DataFrame({"text": texts[200 * number : 200 * number + 200]})
            write(frame, tmp_path / f"{number}.{kind}")
        columns = (
            tmp_path / f"*.{kind}",
            "--column",
            "text",
            "-k",
            2,
            "--max-iter",
            0,
            "--scheduler",
            address,
        )
        ended = command("learn", "topics", *columns, "--out", tmp_path / f"{kind}.npz", "--json")
        assert ended.returncode == 0, ended.stderr
        model = TensorLDA.load(tmp_path / f"{kind}.npz")
        assert list(model.words_) == list(counted.words)
        assert np.array_equal(model.topic_word_, expected.topic_word_)
    ended = command("learn", "topics", *arguments, "--min-documents", 3)
    assert ended.returncode == 2
    assert "Leave out --min-documents" in ended.stderr


class TestRefusals:
    def test_odeco_is_imported_without_dask(self):
        code = (
            "import sys; sys.modules.update(dask=None, distributed=None); import odeco, "
            "odeco.cli, odeco.models"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
        code = "import sys; sys.modules.update(dask=None, distributed=None); import odeco; "
        code += "odeco.decompose_stream('x.npy', 2, client=object())"
        failed = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert "pip install 'odeco[dask]'" in failed.stderr

    def test_rows_that_a_cluster_cannot_read_are_refused(self, client, tmp_path):
        (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n")
        with pytest.raises(odeco.SourceError, match="files whose headers state their number"):
            odeco.decompose_stream(tmp_path / "rows.csv", 1, client=client)
        with pytest.raises(TypeError, match=r"`client` must be a dask\.distributed\.Client"):
            odeco.decompose_stream(ROWS, 1, client="tcp://127.0.0.1:1")
        frame = pytest.importorskip("pandas").DataFrame(
            {"a": [1.0, np.nan, 2.0], "b": [1.0, 2.0, 3.0]}
        )
        lazy = pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2)
        with pytest.raises(
            odeco.SourceError, match=r"^Row 1 of the Dask array holds NaN in column 'a'"
        ):
            odeco.decompose_stream(lazy, 1)
        with pytest.raises(
            odeco.SourceError, match=r"^All columns of the Dask dataframe .* Column 't' holds"
        ):
            odeco.decompose_stream(lazy.assign(t="x"), 1)
        with pytest.raises(odeco.SourceError, match="two axes"):
            odeco.decompose_stream(da.zeros(5), 1)
        wrong = odeco.online.dask.from_delayed(
            [dask.delayed(np.ones)((5, 2))], n_features=2, n_rows=[6]
        )
        with pytest.raises(odeco.SourceError, match=r"must have 6 rows from row 0 on\. It has 5"):
            odeco.decompose_stream(wrong, 1)


def test_a_block_that_is_too_large_for_a_worker_is_cut_into_columns(monkeypatch):
    rng = np.random.default_rng(0)
    rows = sparse.csr_array(np.where(rng.random((3000, 200)) < 0.05, rng.random((3000, 200)), 0.0))
    monkeypatch.setattr(requests, "_MOST_NUMBERS", 700)  # three columns
    ask, widths = requests.ask, set()

    def asked(given, order, segments):
        widths.add((type(order.held).__name__, order.held.block.shape[1]))
        return ask(given, order, segments)

    monkeypatch.setattr(requests, "ask", asked)
    blocks = [dask.delayed(rows[start : start + 1100], pure=False) for start in (0, 1100, 2200)]
    power = {"method": "power", "batch_size": 400, "n_iterations": 2, "n_restarts": 10}
    with cluster_of_threads():
        given = odeco.online.dask.from_delayed(blocks)
        there = odeco.decompose_stream(given, 3, rng=0, **power)
        found = odeco.decompose_stream(given, 3, rng=0)
    assert {width for kind, width in widths if kind == "Images"} <= {1, 2, 3}
    assert ("Images", 3) in widths  # of ten candidates
    here = odeco.decompose_stream(rows, 3, rng=0, **power)
    assert np.array_equal(there.vectors, here.vectors)
    assert np.array_equal(found.vectors, odeco.decompose_stream(rows, 3, rng=0).vectors)


def test_the_private_command_works_on_a_cluster(client, folder, tmp_path):
    guarantee = ("-k", 2, "--epsilon", 1, "--delta", "1e-9", "--norm-bound", 1, "--yes")
    address, out = client.scheduler.address, tmp_path / "found.npz"
    files = sorted(folder.glob("part-*.npy"))
    ended = command("decompose", "--rows", *files, *guarantee, "--scheduler", address, "--out", out)
    assert ended.returncode == 0, ended.stderr
    assert "cluster at" in ended.stderr
    found = odeco.load_result(out)
    assert found.privacy.private
    assert found.privacy.epsilon == 1.0
    ended = command("decompose", files[0], *guarantee, "--scheduler", address)
    assert "--scheduler goes with --rows" in ended.stderr
