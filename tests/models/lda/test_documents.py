"""Texts from files of every kind: the same documents whatever holds them, and errors that name file
and line.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys

import pytest

from odeco.errors import DocumentError
from odeco.io.documents import Text, read_documents

TEXTS = ["the first", "", 'commas, "quotes" and\ttabs', "Größe, naïve, 文字"]


@pytest.fixture
def folder(tmp_path):
    """The same documents in every kind of file."""
    lines = "".join(text + "\n" for text in TEXTS)
    (tmp_path / "plain.txt").write_text(lines, encoding="utf-8")
    (tmp_path / "windows.text").write_bytes(b"\xef\xbb\xbf" + lines.replace("\n", "\r\n").encode())
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(lines.encode()))
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        with (tmp_path / f"table{suffix}").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([["id", "text"], *enumerate(TEXTS)])
    rows = "".join(
        json.dumps({"id": number, "text": text}) + "\n" for number, text in enumerate(TEXTS)
    )
    (tmp_path / "rows.jsonl").write_text(rows + "\n", encoding="utf-8")
    (tmp_path / "rows.ndjson.gz").write_bytes(gzip.compress(rows.encode()))
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    column = arrow.array([TEXTS[0], None, *TEXTS[2:]])  # what is missing is empty
    parquet.write_table(
        arrow.table({"id": arrow.array(range(4)), "text": column}), tmp_path / "table.parquet"
    )
    packed = arrow.table({"text": column.dictionary_encode()})
    parquet.write_table(packed, tmp_path / "categories.parquet", row_group_size=2)
    inner = tmp_path / "files" / "inner"
    inner.mkdir(parents=True)
    for number, text in enumerate(TEXTS[:2]):
        (tmp_path / "files" / f"{number}.txt").write_text(text, encoding="utf-8")
    for number, text in enumerate(TEXTS[2:]):
        (inner / f"{number}.text").write_text(text, encoding="utf-8")
    (tmp_path / "files" / "picture.png").write_bytes(b"\x89PNG")
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        *(
            "plain.txt",
            "windows.text",
            "packed.txt.gz",
            "table.csv",
            "table.tsv",
            "rows.jsonl",
            "rows.ndjson.gz",
        ),
        *("table.parquet", "categories.parquet", "files"),
    ],
)
def test_the_same_documents_come_out_of_every_kind_of_file(folder, name):
    assert [each.text for each in read_documents([folder / name], column="text")] == TEXTS


def test_the_standard_input_is_read_as_utf_8_lines(monkeypatch):
    lines = "".join(text + "\n" for text in TEXTS).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines), encoding="ascii"))
    assert [each.text for each in read_documents(["-"])] == TEXTS


def test_every_document_says_where_it_comes_from(folder):
    documents = list(read_documents([folder / "plain.txt", folder / "files"]))
    assert documents[2] == Text("plain.txt, line 3", TEXTS[2])
    assert [each.name for each in documents[4:]] == [
        "0.txt",
        "1.txt",
        "inner/0.text",
        "inner/1.text",
    ]


def test_a_cell_may_be_longer_than_the_csv_module_allows_by_itself(tmp_path):
    (tmp_path / "book.csv").write_text("text\n" + "word " * 100_000 + "\n", encoding="utf-8")
    (document,) = read_documents([tmp_path / "book.csv"], column="text")
    assert len(document.text) == 500_000


BAD = {
    "picture.png": (
        b"",
        "text",
        "The name of a file of documents must end in one of .txt, .text, .csv, .tsv, .jsonl, "
        ".ndjson, or in .gz after these, or in .parquet. Got picture.png. Rename or convert it.",
    ),
    "latin.txt": (
        "Größe".encode("latin-1"),
        None,
        (
            "latin.txt must be UTF-8 text. It holds the byte 0xf6 out of place. Convert it, as "
            "with iconv -t UTF-8."
        ),
    ),
    "table.csv": (
        b"id,body\n1,a\n",
        "text",
        (
            "table.csv must have one column 'text'. Its columns are 'id', 'body'. Pass its name "
            "as `column`."
        ),
    ),
    "unnamed.csv": (
        b"id,body\n1,a\n",
        None,
        "The column of unnamed.csv that holds the text must be named. None was. Its columns are "
        "'id', 'body'. Pass its name as `column`.",
    ),
    "empty.csv": (
        b"",
        "text",
        "empty.csv must have one column 'text'. Its columns are none. Pass its name as `column`.",
    ),
    "short.tsv": (
        b"id\ttext\n1\ta\n2\n",
        "text",
        "short.tsv must be well-formed CSV: quotes closed, and every row with as many cells as "
        "there are columns. It is not: row 2, which begins in line 3, has 1 of 2 cells. Fix the "
        "file.",
    ),
    "quotes.csv": (
        b'text\n"a"b\n',
        "text",
        "quotes.csv must be well-formed CSV: quotes closed, and every row with as many cells as "
        "there are columns. It is not: the record that begins in line 2 is not well-formed (',' "
        "expected after '\"'). Fix the file.",
    ),
    "null.jsonl": (
        b'{"text": "a"}\n{"text": null}\n',
        "text",
        "Line 2 of null.jsonl must be a JSON object with a text in 'text'. Got null. Fix or drop "
        "the line, or pass another `column`.",
    ),
    "other.jsonl": (
        b'{"body": "a"}\n',
        "text",
        "Line 1 of other.jsonl must be a JSON object with a text in 'text'. Got the fields "
        "'body'. Fix or drop the line, or pass another `column`.",
    ),
    "list.jsonl": (
        b"[1]\n",
        "text",
        "Line 1 of list.jsonl must be a JSON object with a text in 'text'. Got a JSON list. Fix "
        "or drop the line, or pass another `column`.",
    ),
    "cut.txt.gz": (
        gzip.compress(b"one\ntwo\n" * 100)[:-12],
        None,
        "cut.txt.gz must be complete and undamaged. It is not: Compressed file ended before the "
        "end-of-stream marker was reached. Make it again.",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_an_error_names_the_file_and_what_to_do(tmp_path, name):
    contents, column, text = BAD[name]
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(DocumentError) as caught:
        list(read_documents([tmp_path / name], column=column))
    assert str(caught.value) == text


def test_a_folder_without_texts_is_refused(tmp_path):
    with pytest.raises(DocumentError) as caught:
        list(read_documents([tmp_path]))
    assert str(caught.value) == (
        f"The folder {tmp_path} must hold files whose names end in .txt or .text. It holds none. "
        "Check the path."
    )


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".jsonl"])
def test_of_a_private_file_only_the_number_of_records_shows_whatever_they_hold(suffix, tmp_path):
    good, bad = {
        ".txt": (b"words of a document", [b"", b"\xff\xfe\x00", b'"']),
        ".csv": (
            b'7,"words of a document"',
            [b",", b"\xff,\xff", b'7,a"b', b"7,\x00", b'7,"one\n\n""two"", three"'],
        ),
        ".jsonl": (
            b'{"text": "words of a document"}',
            [b"{", b"[1]", b'{"other": 1}', b'{"text": 5}', b"\xff"],
        ),
    }[suffix]
    head = [b"id,text"] if suffix == ".csv" else []
    path = tmp_path / f"documents{suffix}"
    for each in bad:
        path.write_bytes(b"\n".join([*head, good, each, good]) + b"\n")
        documents = list(read_documents([path], column="text", private=True))
        assert len(documents) == 3, each
        assert (documents[0].text, documents[2].text) == ("words of a document",) * 2, each


@pytest.mark.parametrize("private", [False, True])
def test_a_carriage_return_makes_no_second_document(private, tmp_path):
    (tmp_path / "lines.txt").write_bytes(b"one\rand more\r\ntwo\n")
    assert len(list(read_documents([tmp_path / "lines.txt"], private=private))) == 2


@pytest.mark.parametrize("name", ["reviews.csv", "reviews.tsv", "reviews.csv.gz"])
def test_a_review_of_several_lines_is_one_document_in_open_and_in_private_runs(name, tmp_path):
    reviews = [f'review {number}\nsays:\r\n"good, and; long"\tenough' for number in range(400)]
    table = io.StringIO(newline="")
    csv.writer(table, delimiter="\t" if "tsv" in name else ",").writerows(
        [["id", "text"], *enumerate(reviews)]
    )
    contents = table.getvalue().encode()
    (tmp_path / name).write_bytes(gzip.compress(contents) if name.endswith(".gz") else contents)
    for private in (False, True):
        assert [
            each.text for each in read_documents([tmp_path / name], column="text", private=private)
        ] == reviews


@pytest.mark.parametrize("row", [b'7,"never closed', b"7", b"7,secret,8", b'7,"secret"s'])
def test_a_private_table_that_is_not_well_formed_is_refused_and_not_quoted(row, tmp_path):
    (tmp_path / "table.csv").write_bytes(b"id,text\n1,one\n" + row + b"\n3,secret\n")
    with pytest.raises(DocumentError, match="must be well-formed CSV") as caught:
        list(read_documents([tmp_path / "table.csv"], column="text", private=True))
    assert "secret" not in str(caught.value)
    assert "line" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_private_folder_says_nothing_about_a_damaged_document(tmp_path):
    (tmp_path / "one.txt.gz").write_bytes(b"a secret that is no archive")
    (tmp_path / "two.txt").write_text("words")
    assert [document.text for document in read_documents([tmp_path], private=True)] == ["", "words"]
    with pytest.raises(DocumentError, match="must be complete and undamaged"):
        list(read_documents([tmp_path]))


def test_a_private_table_without_names_quotes_no_row(tmp_path):
    (tmp_path / "table.csv").write_text("7,a secret\n")
    with pytest.raises(DocumentError, match="Its columns are not named in a private run") as caught:
        list(read_documents([tmp_path / "table.csv"], column="text", private=True))
    assert "secret" not in str(caught.value)


def test_parquet_says_what_is_wrong_with_it(folder):
    def said(name, column):
        with pytest.raises(DocumentError) as caught:
            list(read_documents([folder / name], column=column))
        return str(caught.value)

    named = "must have one column 'body'. Its columns are 'id', 'text'. Pass its name as `column`."
    assert said("table.parquet", "body") == f"table.parquet {named}"
    held = (
        "The column 'id' of table.parquet must hold texts. It holds int64. Pass another name as "
        "`column`."
    )
    assert said("table.parquet", "id") == held
    assert "must be named" in said("table.parquet", None)
    (folder / "damaged.parquet").write_bytes((folder / "table.parquet").read_bytes()[:-20])
    assert said("damaged.parquet", "text").startswith(
        "damaged.parquet must be complete and undamaged. It is not: "
    )
    (document, *_) = read_documents([folder / "table.parquet"], column="text")
    assert document.name == "table.parquet, row 1"
