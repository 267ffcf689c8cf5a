"""Object stores: what is not there, what may not be read, and what goes away in the middle of a
run.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from kinds import Store, dense_rows, save_csv, save_hive, save_npy, save_parquet

import odeco
from odeco.cli.app import run as run_command
from odeco.errors import SourceError
from odeco.io import as_source
from odeco.io.documents import read_documents
from odeco.io.tables import read_text_table
from odeco.io.urls import UrlPath, as_path

pytest.importorskip("pyarrow")
pytest.importorskip("moto.server")


@pytest.fixture
def store():
    return Store.shared()


def test_an_object_or_a_bucket_that_is_not_there_is_a_missing_file(store, tmp_path):
    url = store.put(save_npy(tmp_path, dense_rows()))
    for missing in (
        url.replace("rows.npy", "nowhere.npy"),
        f"s3://no-such-bucket/rows.npy{store.query}",
    ):
        with pytest.raises(FileNotFoundError, match=r"s3://[\w.-]+/\w+\.npy'$"):
            as_source(missing)


@pytest.mark.slow
def test_an_endpoint_that_does_not_answer_and_missing_credentials_say_what_to_check(
    store, tmp_path, monkeypatch
):
    with pytest.raises(
        SourceError, match=r"s3://b/x\.npy must be reachable, with credentials that may read it"
    ):
        as_source("s3://b/x.npy?endpoint_override=127.0.0.1%3A9&scheme=http&region=us-east-1")
    url = store.put(save_npy(tmp_path, dense_rows()))
    path = as_path(url)

    def refuse(*_):
        raise PermissionError(
            "AWS Error ACCESS_DENIED during HeadObject operation: No response body."
        )

    monkeypatch.setattr("odeco.io.urls._filesystem", refuse)
    with pytest.raises(
        SourceError, match=r"credentials that may read it\. It is not: AWS Error ACCESS_DENIED"
    ):
        path.stat()


@pytest.mark.parametrize("scheme", ["hf", "nosuch"])
def test_a_scheme_that_nothing_reads_says_what_to_install(scheme, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match=f"Got {scheme}://.*huggingface_hub for hf://"):
        as_source(f"{scheme}://datasets/rows.parquet")


def test_an_url_without_a_bucket_is_said_to_be_incomplete():
    with pytest.raises(SourceError, match=r"^s3:///a\.parquet must be a complete URL\. .*bucket"):
        as_source("s3:///a.parquet")


def test_an_url_never_shows_its_password_in_a_sentence():
    path = as_path("s3://key:secret@bucket/folder/rows.npy?scheme=http")
    for shown in (f"{path}", repr(path), path.name, str(path.unreachable(OSError(f"at {path}")))):
        assert "secret" not in shown
        assert "scheme" not in shown
    assert pickle.loads(pickle.dumps(path)) == path
    assert isinstance(path, UrlPath)


def test_an_object_that_is_replaced_is_noticed_at_the_end_of_the_pass(store, tmp_path):
    url = store.put(save_npy(tmp_path, dense_rows()))
    source = as_source(url, batch_rows=4)
    blocks = iter(source)
    next(blocks)
    with store.files.open_output_stream(url[5:].partition("?")[0]) as file:
        file.write(save_npy(tmp_path, np.vstack([dense_rows(), dense_rows()])).read_bytes())
    with pytest.raises(SourceError, match="must not change while it is read"):
        list(blocks)


def test_an_object_that_is_taken_away_ends_the_run_and_written_again_it_is_other_data(
    store, tmp_path
):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((6_000, 6)) + 3 * np.eye(6)[rng.integers(0, 3, 6_000)]
    (tmp_path / "parts").mkdir()
    for number in range(6):
        save_npy(tmp_path / "parts", rows[1_000 * number : 1_000 * (number + 1)], f"{number}.npy")
    url = store.put(tmp_path / "parts")
    fifth = f"{url[5:].partition('?')[0]}/4.npy"
    gone = []

    def take_away(progress):
        if progress.n_rows >= 1_000 and not gone:
            store.files.delete_file(fifth)
            gone.append(progress.n_rows)

    settings = {
        "rng": 0,
        "n_passes": 1,
        "checkpoint": tmp_path / "run.ckpt",
        "checkpoint_seconds": 0,
    }
    with pytest.raises((SourceError, FileNotFoundError), match=r"4\.npy"):
        odeco.decompose_stream(url, 3, callback=take_away, **settings)
    assert (tmp_path / "run.ckpt").exists()
    with store.files.open_output_stream(fifth) as file:
        file.write(save_npy(tmp_path, rows[:500]).read_bytes())
    with pytest.raises(ValueError, match="must be the checkpoint of this run"):
        odeco.decompose_stream(url, 3, **settings)


def test_a_connection_that_breaks_off_names_the_row_and_the_run_resumes_bit_for_bit(
    store, tmp_path, monkeypatch
):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40_000, 6)) + 3 * np.eye(6)[rng.integers(0, 3, 40_000)]
    url = store.put(save_parquet(tmp_path, rows, row_group_size=2_000))
    expected = odeco.decompose_stream(url, 3, rng=0, n_passes=1)
    reader = pytest.importorskip("pyarrow.parquet").ParquetFile
    asked, real = [], reader.iter_batches
    monkeypatch.setattr(
        odeco.io.arrow, "_REQUEST_BYTES", 1
    )  # every row group is a request of its own

    def fail_later(*arguments, **options):
        asked.append(arguments)
        if len(asked) > 12:
            raise OSError("AWS Error NETWORK_CONNECTION during GetObject operation")
        return real(*arguments, **options)

    settings = {
        "rng": 0,
        "n_passes": 1,
        "checkpoint": tmp_path / "run.ckpt",
        "checkpoint_seconds": 0,
    }
    monkeypatch.setattr(reader, "iter_batches", fail_later)
    with pytest.raises(
        SourceError, match=r"can no longer be reached from row [\d,]+ on: AWS Error NETWORK"
    ):
        odeco.decompose_stream(url, 3, **settings)
    monkeypatch.setattr(reader, "iter_batches", real)
    resumed = odeco.decompose_stream(url, 3, **settings)
    np.testing.assert_array_equal(resumed.weights, expected.weights)
    np.testing.assert_array_equal(resumed.vectors, expected.vectors)


def test_a_schema_that_changes_between_files_is_named_before_any_row_is_read(store, tmp_path):
    folder = save_hive(tmp_path, dense_rows())
    save_parquet(folder / "year=1/day=2", dense_rows()[:, :4], "other.parquet")
    for data in (folder, store.put(folder)):
        with pytest.raises(
            SourceError, match=r"agree in width\. year=1/day=0/rows\.parquet has 5 columns, but "
        ):
            as_source(data)


def test_texts_and_tables_are_read_from_a_store(store, tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "t.csv").write_text("id,text\n1,one word\n2,\n")
    url = store.put(tmp_path / "t.csv")
    assert [each.text for each in read_documents([url], column="text")] == ["one word", ""]
    assert read_text_table(as_path(url)).cells.tolist() == [["1", "one word"], ["2", None]]
    assert [each.name for each in read_documents([store.put(tmp_path / "texts")])] == ["a.txt"]


def test_commands_read_from_a_store(store, tmp_path, capsys):
    url = store.put(save_csv(tmp_path, np.random.default_rng(0).random((200, 3)), header="a,b,c"))
    labels = tmp_path / "labels.csv"
    assert run_command(["learn", "mixture", url, "-k", "2", "--labels", str(labels)]) == 0
    assert len(labels.read_text().splitlines()) == 201
    assert run_command(["decompose", "--rows", url, "-k", "1"]) == 0
    assert run_command(["info", url, "--json"]) == 0
    capsys.readouterr()
    assert (
        run_command(["decompose", "--rows", url.replace("rows.csv", "nowhere.csv"), "-k", "1"]) != 0
    )
    assert "nowhere.csv" in capsys.readouterr().err
    for arguments in (["report", url], ["learn", "mixture", url, "--out", "s3://bucket/model.npz"]):
        assert run_command(arguments) != 0
        assert "must be a file of this machine" in capsys.readouterr().err
