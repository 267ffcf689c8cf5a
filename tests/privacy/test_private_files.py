"""Private runs on files: shape, type and number of records are public, and a record moves one row
and nothing else.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import sys
from unittest import mock

import numpy as np
import pytest
from scipy import sparse
from sealing import NOT_NUMBERS, separated, write_lines, write_lines_below_names

from odeco.cli.app import run as run_command
from odeco.errors import DocumentError, SourceError
from odeco.io.documents import read_documents
from odeco.io.rows import as_rows
from odeco.privacy import RecordLevel, open_private
from odeco.privacy.holders.lanes import ROWS_AT_ONCE, within
from odeco.private import decompose_privately

N, D = 30, 5
NORMAL = np.random.default_rng(0).standard_normal((N, D))
COMMAND = ["-k", "2", "--epsilon", "0.01", "--delta", "1e-6", "--norm-bound", "1"]
FORMATS = {
    "CSV": ("rows.csv", write_lines, separated(NORMAL), {"n_features": D, "header": False}),
    "CSV with names": ("rows.csv", write_lines_below_names, separated(NORMAL), {"header": True}),
}


def command(*arguments):
    with mock.patch.object(sys, "argv", ["odeco", *arguments]):
        return run_command([*map(str, arguments)])


def rows_of(opened):
    """Return the rows as a private run takes them in."""
    admitted = [
        within(as_rows(chunk), 10.0, nonnegative=False) for chunk in opened.chunks(ROWS_AT_ONCE)
    ]
    return np.concatenate(
        [rows if isinstance(rows, np.ndarray) else rows.toarray() for rows in admitted]
    )


# ---- what a record must not move -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "missing"),
    [
        ("rows.csv", ["--dimension", "5"], "rows.csv needs --header or --no-header"),
        ("rows.csv", ["--no-header"], "rows.csv needs --dimension D"),
    ],
)
def test_what_only_records_could_tell_must_be_given(name, options, missing, tmp_path, capsys):
    write_lines(separated(NORMAL), tmp_path / name)
    assert command("decompose", "--rows", tmp_path / name, *COMMAND, *options) == 2
    assert f"{missing}: a private run does not read it off the records." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "settings", "text"),
    [
        (
            "rows.csv",
            {"n_features": D},
            "`header` must be given for CSV files, whether the first record holds names",
        ),
        ("rows.csv", {"header": False}, "`n_features` must be given for CSV files without"),
        (
            "rows.npy",
            {"header": True},
            "`header` must go with CSV files. Got True and none of them. Leave it out.",
        ),
        (
            "rows.npy",
            {"n_features": D + 1},
            "All rows of rows.npy must have 6 columns. Row 0 has 5.",
        ),
    ],
)
def test_the_same_holds_in_python_and_what_would_do_nothing_is_refused(
    name, settings, text, tmp_path
):
    path = tmp_path / name
    np.save(path, NORMAL) if name.endswith(".npy") else write_lines(separated(NORMAL), path)
    with pytest.raises(ValueError, match=r".") as error:
        open_private([path], **settings)
    assert str(error.value).startswith(text)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_record_changes_no_row_but_its_own(kind, tmp_path):
    name, write, lines, settings = FORMATS[kind]
    write(lines, tmp_path / name)
    before = rows_of(open_private([tmp_path / name], **settings))
    np.testing.assert_allclose(before, NORMAL, rtol=1e-15)
    places = (0, 7, N - 1)  # the first line is where a reader might look for facts
    for line, place in itertools.product(NOT_NUMBERS, places):
        write([*lines[:place], line, *lines[place + 1 :]], tmp_path / name)
        opened = open_private([tmp_path / name], **settings)
        assert (opened.n_rows, opened.n_features) == (N, D), line
        after = rows_of(opened)
        np.testing.assert_array_equal(
            np.delete(after, place, axis=0), np.delete(before, place, axis=0)
        )


@pytest.mark.parametrize("kind", FORMATS)
def test_what_a_record_means_does_not_depend_on_the_records_around_it(kind, tmp_path):
    name, write, lines, settings = FORMATS[kind]
    candidates = [*NOT_NUMBERS, *lines, b"1e0 ,2,3,4,5"]
    for around in (lines[0], NOT_NUMBERS[0], NOT_NUMBERS[5]):
        found = []
        for pattern in (lambda line: [line], lambda line: [around, line, around]):  # noqa: B023
            parts = []
            for line in candidates:
                written = pattern(line)
                write(written, tmp_path / name)
                parts.append(
                    rows_of(open_private([tmp_path / name], **settings))[len(written) // 2]
                )
            found.append(np.stack(parts))
        np.testing.assert_array_equal(*found)


def test_the_last_line_is_one_record_with_or_without_an_end_of_line(tmp_path):
    for kind, (name, write, lines, settings) in FORMATS.items():
        write(lines, tmp_path / name)
        text = (tmp_path / name).read_bytes()
        rows = []
        for content in (text, text.removesuffix(b"\n")):
            (tmp_path / name).write_bytes(content)
            rows.append(rows_of(open_private([tmp_path / name], **settings)))
        np.testing.assert_array_equal(*rows, err_msg=kind)
        assert len(rows[0]) == N


@pytest.mark.parametrize(
    "first", [b"4711.5,0.2", b"name,4711", b"name,4711-02-03", b"name,NA", b"Alice4711,Alice4711"]
)
def test_a_first_record_that_looks_like_data_is_not_taken_for_names_nor_quoted(
    first, tmp_path, capsys
):
    path, ledger = tmp_path / "rows.csv", tmp_path / "data.ledger"
    write_lines([first, *[b"0.25,0.5"] * N], path)
    with pytest.raises(DocumentError, match="must hold names of columns") as error:
        open_private([path], header=True)
    assert "4711" not in str(error.value)
    options = ["--header", "--ledger", ledger, "--budget", "3", "--yes"]
    mixture = ("learn", "mixture", path, *COMMAND, *options)
    for arguments in (("decompose", "--rows", path, *COMMAND, *options), mixture):
        assert command(*arguments) == 1
        said = capsys.readouterr()
        assert "nothing was released" in said.err
        assert "4711" not in said.out + said.err
        assert not ledger.exists()
    np.testing.assert_array_equal(
        rows_of(open_private([path], header=False, n_features=2))[1:], [[0.25, 0.5]] * N
    )


def test_names_with_digits_are_names_and_an_index_without_a_name_is_no_column(tmp_path):
    write_lines([b",x1,2nd,16S count", b"0,1,2,3"], tmp_path / "rows.csv")
    rows = open_private([tmp_path / "rows.csv"], header=True)
    assert rows.columns == ("x1", "2nd", "16S count")


@pytest.mark.parametrize("model", ["mixture", "ica"])
def test_the_first_record_of_a_private_model_is_a_record(model, tmp_path, capsys):
    path, out = tmp_path / "rows.csv", tmp_path / "model.npz"
    write_lines(separated(np.vstack([[471147114711.0, 471247124712.0], NORMAL[:, :2]])), path)
    page = tmp_path / "page.html"
    arguments = (
        "learn",
        model,
        str(path),
        *COMMAND,
        "--yes",
        "--out",
        str(out),
        "--report",
        str(page),
    )
    assert command(*arguments) == 2
    assert "rows.csv needs --header or --no-header" in capsys.readouterr().err
    assert command(*arguments, "--no-header") == 2
    assert "rows.csv needs --dimension D" in capsys.readouterr().err
    assert command(*arguments, "--no-header", "--dimension", "2") == 0
    said = capsys.readouterr()
    assert f"{N + 1} rows" in said.out + said.err
    with np.load(out) as saved:
        everything = (
            said.out
            + said.err
            + page.read_text()
            + "".join(str(saved[name]) for name in saved.files)
        )
    assert "47114711" not in everything
    assert "47124712" not in everything


def test_no_error_of_a_private_table_quotes_a_cell(tmp_path, capsys):
    path, answers = tmp_path / "table.csv", tmp_path / "answers.json"
    path.write_text("alice,diagnosed-HIV\n" + "bob,healthy\n" * 40)
    answers.write_text('{"diagnosis": ["healthy", "diagnosed-HIV"]}')
    private = (path, *COMMAND[:6], "--header")
    states = (
        "hmm",
        *private,
        "--symbol",
        "event",
        "--sequence",
        "user",
        "--symbols",
        "healthy,ill",
    )
    for arguments in (
        states,
        ("classes", *private, "--answers", answers),
        ("classes", *private, "--answers", "healthy,diagnosed-HIV"),
        ("classes", *private, "--answers", "yes,no", "--drop", "user"),
        ("classes", *private, "--answers", "yes,no", "--columns", "user"),
    ):
        assert command("learn", *arguments) == 1
        said = capsys.readouterr()
        assert "alice" not in said.out + said.err
        assert "diagnosed" not in said.out + said.err
    assert command("learn", *states) == 1
    assert (
        "A column must be one of the names in its first record. Got 'user'."
        in capsys.readouterr().err
    )


def test_no_private_column_is_named_for_what_it_holds(tmp_path, capsys):
    # A column that rises with every row is named by a run that is not private: it may be an id.
    path, page = tmp_path / "rows.csv", tmp_path / "page.html"
    rows = np.column_stack([np.arange(400.0), np.random.default_rng(0).standard_normal((400, 2))])
    write_lines([b"when,a,b", *separated(rows)], path)
    assert command("learn", "mixture", str(path), "-k", "2", "--report", str(page)) == 0
    assert "'when' rises or falls" in capsys.readouterr().out
    for model in ("mixture", "ica"):
        assert (
            command("learn", model, str(path), *COMMAND, "--header", "--yes", "--report", str(page))
            == 0
        )
        said = capsys.readouterr()
        assert "rises or falls" not in said.out + said.err + page.read_text()


def test_a_cell_as_long_as_a_book_is_a_cell(tmp_path):
    before = csv.field_size_limit(
        2**17
    )  # the default of the csv module; another test may have raised it
    try:
        book = b'"' + b"4711, " * 2**17 + b'"'
        write_lines([b"a,b", b"1,2", book + b",3", b"4,5"], tmp_path / "rows.csv")
        rows = rows_of(open_private([tmp_path / "rows.csv"], header=True))
        np.testing.assert_array_equal(rows, [[1, 2], [0, 0], [4, 5]])
        csv.field_size_limit(2**17)
        texts = [
            each.text for each in read_documents([tmp_path / "rows.csv"], column="a", private=True)
        ]
        assert texts == ["1", book.decode()[1:-1], "4"]
    finally:
        csv.field_size_limit(before)


def test_a_line_of_nested_json_is_an_empty_document(tmp_path):
    nested = ['{"body": ' * 100_000, "[" * 100_000, '{"body": ' + "[" * 5_000 + "]" * 5_000 + "}"]
    lines = ['{"body": "one"}', *nested, '{"body": "two"}']
    (tmp_path / "notes.jsonl").write_text("\n".join(lines))
    texts = [
        each.text
        for each in read_documents([tmp_path / "notes.jsonl"], column="body", private=True)
    ]
    assert texts == ["one", "", "", "", "two"]


def test_the_names_and_the_separator_of_a_table_come_from_its_first_line(tmp_path):
    lines = [b'"a;b";c;"d\nof two lines"', b"1;2;3", b"", b"1,2;3;4"]
    write_lines(lines, tmp_path / "rows.csv")
    opened = open_private([tmp_path / "rows.csv"], header=True)
    assert opened.columns == ("a;b", "c", "d\nof two lines")
    np.testing.assert_allclose(rows_of(opened), [[1, 2, 3], [0, 0, 0]])


def test_every_content_of_a_cell_makes_one_record_that_changes_no_row_but_its_own(tmp_path):
    generator = np.random.default_rng(3)
    alphabet = ['"', "\n", "\r", "\r\n", ",", ";", "\t", " ", "7", "a", "#", "\x00", "\u2028", "é"]
    path = tmp_path / "rows.csv"
    for delimiter in ",;\t":
        for _ in range(60):
            cells = [[*map(str, row)] for row in NORMAL[:8].tolist()]
            place = int(generator.integers(8))
            cells[place] = [
                "".join(generator.choice(alphabet, size=generator.integers(9))) for _ in range(D)
            ]
            with path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, delimiter=delimiter).writerows([[*"abcde"], *cells])
            rows = rows_of(open_private([path], header=True))
            assert rows.shape == (8, D), cells[place]
            np.testing.assert_array_equal(
                np.delete(rows, place, axis=0), np.delete(NORMAL[:8], place, axis=0)
            )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("header", [True, False])
def test_every_content_of_the_only_cell_makes_one_record(header, tmp_path):
    # A line of spaces was no record: whoever had entered nothing else changed the number of
    # records.
    path, public = (
        tmp_path / "rows.csv",
        {"header": True} if header else {"header": False, "n_features": 1},
    )
    contents = ["", " ", "   ", "\t", "\u3000", "\ufeff", "\r", " \n ", '"', "a", "7"]
    for place, content in itertools.product(range(3), contents):
        cells = ["1.5", "2.5", "3.5"]
        cells[place] = content
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([[cell] for cell in [*["name"] * header, *cells]])
        rows = rows_of(open_private([path], **public))
        assert rows.shape == (3, 1), content
        expected = np.array([[1.5], [2.5], [3.5]])
        expected[place] = 7.0 if content == "7" else 0.0
        np.testing.assert_array_equal(rows, expected)
        if header:
            texts = [
                document.text for document in read_documents([path], column="name", private=True)
            ]
            assert texts == cells


def test_lines_of_spaces_between_records_of_several_cells_are_no_records(tmp_path):
    lines = [b"  ", b"a,b", b" ", b"1,2", b"   ", b"3,4", b""]
    write_lines(lines, tmp_path / "rows.csv")
    np.testing.assert_array_equal(
        rows_of(open_private([tmp_path / "rows.csv"], header=True)), [[1, 2], [3, 4]]
    )
    texts = [
        each.text for each in read_documents([tmp_path / "rows.csv"], column="b", private=True)
    ]
    assert texts == ["2", "4"]


@pytest.mark.parametrize(
    "line", [b'1,2,3,4,"4711', b'"4711"1,2,3,4,5', b"4711,2,3", b"4711,2,3,4,5,6", b"4711"]
)
@pytest.mark.parametrize("header", [True, False])
def test_a_table_that_is_not_well_formed_is_refused_before_anything_is_released(
    line, header, tmp_path, capsys
):
    path, ledger = tmp_path / "rows.csv", tmp_path / "data.ledger"
    write_lines(
        [*([b"a,b,c,d,e"] if header else []), *separated(NORMAL[:5]), line, *separated(NORMAL)],
        path,
    )
    with pytest.raises(ValueError, match="must be well-formed CSV") as error:
        open_private([path], header=header, n_features=D)
    assert "4711" not in str(error.value)
    assert error.value.__cause__ is None
    public = ["--header"] if header else ["--no-header", "--dimension", "5"]
    assert (
        command(
            "decompose",
            "--rows",
            path,
            *COMMAND,
            *public,
            "--ledger",
            ledger,
            "--budget",
            "3",
            "--yes",
        )
        == 1
    )
    said = capsys.readouterr()
    assert "must be well-formed CSV" in said.err
    assert "4711" not in said.err + said.out
    assert not ledger.exists()


def test_the_error_for_damaged_documents_has_no_cause_that_could_quote_one(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "notes.parquet"
    parquet.write_table(pyarrow.table({"body": ["a secret"] * 50}), path)
    path.write_bytes(path.read_bytes()[:40] + path.read_bytes()[60:])
    with pytest.raises(DocumentError, match="undamaged") as error:
        list(read_documents([path], column="body", private=True))
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


# ---- one rule for records that are not valid -----------------------------------------------------


def test_a_record_that_is_not_valid_counts_as_zeros_in_every_format(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import ipc, parquet

    rows = NORMAL.copy()
    rows[3, 1], rows[7, 2] = np.nan, np.inf
    np.save(tmp_path / "rows.npy", rows)
    sparse.save_npz(tmp_path / "rows.npz", sparse.csr_array(rows))
    columns = [pyarrow.array(column, mask=np.isnan(column)) for column in rows.T]
    table = pyarrow.table(columns, names=list("abcde"))
    parquet.write_table(table, tmp_path / "rows.parquet")
    with ipc.new_stream(tmp_path / "rows.arrow", table.schema) as stream:
        stream.write_table(table)
    write_lines(separated(rows), tmp_path / "rows.csv")
    np.save(tmp_path / "first.npy", rows[:10])
    np.save(tmp_path / "second.npy", rows[10:])
    expected = rows.copy()
    expected[[3, 7]] = 0.0
    for names, settings in (
        (["rows.npy"], {}),
        (["rows.npz"], {}),
        (["rows.parquet"], {}),
        (["rows.arrow"], {}),
        (["first.npy", "second.npy"], {}),
        (["rows.csv"], {"n_features": D, "header": False}),
    ):
        opened = open_private([tmp_path / name for name in names], **settings)
        assert (opened.n_rows, opened.n_features) == (N, D)
        np.testing.assert_allclose(rows_of(opened), expected, rtol=1e-15, err_msg=str(names))


def test_nulls_of_integers_and_bools_are_records_that_are_not_valid(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table(
        {"a": pyarrow.array([2**53 + 1, None, 3]), "b": pyarrow.array([True, True, None])}
    )
    parquet.write_table(table, tmp_path / "rows.parquet")
    (rows,) = open_private([tmp_path / "rows.parquet"]).chunks(ROWS_AT_ONCE)
    np.testing.assert_array_equal(
        within(as_rows(rows), 1e20, nonnegative=False), [[2.0**53, 1], [0, 0], [0, 0]]
    )


def test_a_damaged_file_is_refused_without_a_word_about_its_rows(tmp_path):
    secret = sparse.csr_array(np.full((5, 3), 4711.0))
    secret.indptr = np.array([0, 3, 2, 9, 12, 15], dtype=np.int32)  # falls at row 1
    np.savez(
        tmp_path / "rows.npz",
        data=secret.data,
        indices=secret.indices,
        indptr=secret.indptr,
        shape=secret.shape,
    )
    with pytest.raises(SourceError) as error:
        decompose_privately(
            open_private([tmp_path / "rows.npz"]),
            2,
            epsilon=1.0,
            delta=1e-6,
            unit="record",
            norm_bound=1.0,
        )
    assert str(error.value) == (
        "rows.npz must be complete, and stay as it is during a run. It is damaged, or was "
        "changed. Write or copy it again. The place of the damage is not named, because the run "
        "is private."
    )
    assert error.value.__cause__ is None
    assert error.value.row is None


def test_lists_of_any_length_are_refused_whatever_the_records_hold(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    said = set()
    for lists in ([[1.0, 2.0]] * 9, [[1.0]] * 9, [[1.0], None, [1.0, 2.0]] * 3, [None] * 9):
        table = arrow.table({"e": arrow.array(lists, arrow.list_(arrow.float64())), "x": [0.0] * 9})
        parquet.write_table(table, tmp_path / "lists.parquet")
        with pytest.raises(
            ValueError, match=r"must have a length that their type states\. Column 'e'"
        ) as caught:
            open_private([tmp_path / "lists.parquet"])
        said.add(str(caught.value))
    assert len(said) == 1


def test_a_compressed_table_is_read_as_the_table_and_a_damaged_one_says_nothing_about_records(
    tmp_path,
):
    text = "a,b\n" + "".join(
        f"{number},{'x' if number % 7 == 3 else number / 3!r}\n" for number in range(4000)
    )
    (tmp_path / "rows.csv").write_text(text)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(text.encode()))
    plain, packed = (
        np.concatenate([*open_private([tmp_path / name], header=True).chunks(100)])
        for name in ("rows.csv", "rows.csv.gz")
    )
    np.testing.assert_array_equal(packed, plain)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(text.encode())[:-200])
    with pytest.raises(
        SourceError, match=r"^rows\.csv\.gz must be complete, and stay as it is"
    ) as caught:
        open_private([tmp_path / "rows.csv.gz"], header=True)
    assert caught.value.__cause__ is None
    with pytest.raises(ValueError, match="`header` must be given for CSV files"):
        open_private([tmp_path / "rows.csv.gz"])


def test_a_file_that_changes_between_two_questions_is_refused(tmp_path):
    np.save(tmp_path / "rows.npy", NORMAL)
    held = RecordLevel(open_private([tmp_path / "rows.npy"]), norm_bound=1.0)
    held.image(np.eye(D)[:, :1])
    np.save(tmp_path / "rows.npy", NORMAL[:3])
    with pytest.raises(
        SourceError, match=r"^rows\.npy must be complete, and stay as it is during a run\."
    ):
        held.image(np.eye(D)[:, :1])


# ---- larger than memory --------------------------------------------------------------------------


@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize("kind", ["dense", "CSR", "float32"])
def test_rows_in_a_file_are_answered_as_rows_in_memory_to_the_bit(kind, users, tmp_path):
    rows = np.random.default_rng(1).standard_normal((9 * ROWS_AT_ONCE + 17, D))
    rows[rows < -1] = 0.0
    rows[100, 2] = np.nan
    if kind == "CSR":
        rows = sparse.csr_array(rows)
        sparse.save_npz(tmp_path / "rows.npz", rows)
        paths = [tmp_path / "rows.npz"]
    else:
        rows = rows.astype(np.float32) if kind == "float32" else rows
        np.save(tmp_path / "a.npy", rows[:1000])
        np.save(tmp_path / "b.npy", rows[1000:])
        paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    settings = {"norm_bound": 2.0, "groups": np.arange(rows.shape[0]) // 3 if users else None}
    held, read = RecordLevel(rows, **settings), RecordLevel(open_private(paths), **settings)
    basis = np.linalg.qr(np.random.default_rng(2).standard_normal((D, 3)))[0]
    for question in ("image", "value", "core", "slab"):
        np.testing.assert_array_equal(
            getattr(held, question)(basis), getattr(read, question)(basis)
        )
        name = "sensitivity" if question == "image" else f"{question}_sensitivity"
        assert getattr(held, name)(basis) == getattr(read, name)(basis)
    np.testing.assert_array_equal(held.packed(), read.packed())
    np.testing.assert_array_equal(held.second_moment(), read.second_moment())
    assert held.neighbours == read.neighbours


def test_rows_in_a_file_are_never_held_as_a_whole():
    class Counted:
        """Many rows, of which it is noted how many are alive."""

        silent, n_rows, n_features = True, 64 * ROWS_AT_ONCE, 4

        def __init__(self):
            self.heights = []

        def chunks(self, height):
            for _ in range(self.n_rows // height):
                self.heights.append(height)
                yield np.ones((height, self.n_features))

    rows = Counted()
    held = RecordLevel(rows, norm_bound=2.0)
    assert rows.heights == []  # nothing is read before it is asked for
    np.testing.assert_allclose(held.image(np.eye(4)[:, :1]), np.ones((4, 1)))
    assert rows.heights == [ROWS_AT_ONCE] * 64


def test_rows_that_do_not_promise_silence_are_refused():
    class Loud:
        silent, n_rows, n_features = False, 3, 2

        def chunks(self, height):
            yield np.ones((3, 2))

    with pytest.raises(
        TypeError, match=r"^Private rows must be a NumPy array or a CSR array\. Got Loud"
    ):
        RecordLevel(Loud(), norm_bound=1.0)
