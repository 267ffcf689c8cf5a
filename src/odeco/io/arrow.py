"""Rows in Parquet, Arrow and Feather files, and in tables of other libraries that have an Arrow
stream.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odeco._util.lazy import import_arrow
from odeco.errors import SourceError
from odeco.io.arrays import IterableSource, is_one_shot
from odeco.io.errors import source_error
from odeco.io.source import ALL, FileSource, Selection, Source, rows_per_block
from odeco.io.urls import UrlPath

#: The first bytes of Arrow's file format; its stream format begins with others.
_MAGIC = b"ARROW1"

#: Bytes that Parquet reads at a time.
_BUFFER = 1 << 16

#: Readers decode this many blocks at a time: every request of theirs costs time, and a block is a
#: slice of the answer.
_AT_ONCE = 4

#: Bytes of the row groups that are requested from a store at a time, at most; a larger row group is
#: one request.
_REQUEST_BYTES = 1 << 25


class ArrowFile(FileSource):
    """The rows of a Parquet, Arrow or Feather file whose columns are all numbers, or lists of them.

    Notes
    -----
    Parquet is read with `pyarrow.parquet.ParquetFile` and Arrow with `pyarrow.ipc`, not with the
    scanner of `pyarrow.dataset`, which reads ahead whatever its settings are and took ten times the
    memory, growing with the file. Here about one row group, or one record batch, is in memory at a
    time.
    """

    #: The names of the columns that are read; None for all.
    _chosen: list[str] | None = None

    def __init__(self, path: Path, batch_rows: int | None, selection: Selection = ALL) -> None:
        super().__init__(path)
        self._faults = (import_arrow(path.name).ArrowException, OSError, UnicodeDecodeError)
        self._is_parquet = path.suffix.lower() == ".parquet"
        with path.open("rb") as file:
            self._is_stream = not self._is_parquet and file.read(len(_MAGIC)) != _MAGIC
        with self._opening(), ExitStack() as opened:
            schema, self.n_rows = self._look(opened)
            names = tuple(schema.names)
        places = selection.places(names, self.name, path)
        fields = list(schema)
        if places is not None:
            fields = [fields[place] for place in places]
            self._chosen = [field.name for field in fields]
        self._layout = Layout.of(fields, self.name, path)
        if self._layout.is_open:
            self._layout = self._find_lengths(self._layout)
        self.columns = self._layout.names
        self.n_features = len(self._layout.names)
        self.dtype = self._layout.dtype
        self._check_not_empty()
        self._rows = rows_per_block(self.n_features, self._layout.dtype.itemsize, batch_rows)
        self._facts = ("arrow", self._layout.dtype, *(self._chosen or []))

    def _find_lengths(self, layout: Layout) -> Layout:
        """Return the layout with the lengths of lists that the first row has."""
        with self._opening(), ExitStack() as opened:
            return layout.closed(self._batches(opened, 0, 1)[0], self.name, self.path)[0]

    def _look(self, opened: ExitStack) -> tuple[Any, int | None]:
        """Return the schema and the number of rows, which Arrow's stream format does not state."""
        reader = self._open(opened)
        if self._is_parquet:
            return reader.schema_arrow, reader.metadata.num_rows
        if self._is_stream:
            return reader.schema, None
        filesystem, path = (
            self.path.opened() if isinstance(self.path, UrlPath) else (None, str(self.path))
        )
        dataset = import_arrow(self.name, ".dataset").dataset(
            path, format="ipc", filesystem=filesystem
        )
        return reader.schema, dataset.count_rows()

    def _open(self, opened: ExitStack) -> Any:
        options: dict[str, Any] = {}
        if isinstance(self.path, UrlPath):
            file = opened.enter_context(self.path.open_native())
        elif self._is_parquet:
            file = self.path
            options = {"buffer_size": _BUFFER, "pre_buffer": False}
        # not memory-mapped: the pages would stay in the resident size until the end of the pass
        else:
            file = opened.enter_context(import_arrow(self.name).OSFile(str(self.path)))
        if self._is_parquet:
            return opened.enter_context(
                import_arrow(self.name, ".parquet").ParquetFile(file, **options)
            )
        ipc = import_arrow(self.name, ".ipc")
        return opened.enter_context(
            ipc.open_stream(file) if self._is_stream else ipc.open_file(file)
        )

    def _batches(self, opened: ExitStack, row: int, rows: int) -> tuple[Iterator[Any], int]:
        """Return record batches that begin at or before `row`, of at most `rows` rows if it is
        Parquet, and where.
        """
        reader = self._open(opened)
        skipped = 0
        if self._is_parquet:
            first, skipped = _row_group_of(reader.metadata, row)
            batches = self._row_groups(reader, first, rows)
        elif self._is_stream:
            batches = reader
        else:
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        return batches if self._chosen is None else (
            batch.select(self._chosen) for batch in batches
        ), skipped

    def _row_groups(self, reader: Any, first: int, rows: int) -> Iterator[Any]:
        groups = list(range(first, reader.metadata.num_row_groups))
        at_once = _AT_ONCE * rows
        if self._layout.lists and groups:  # lists of several row groups would be joined by a copy
            at_once = max(rows, min(at_once, reader.metadata.row_group(first).num_rows))
        options = {"batch_size": at_once, "columns": self._chosen}
        if not isinstance(self.path, UrlPath):
            yield from reader.iter_batches(row_groups=groups, **options)
            return
        with self.path.open_native() as file:
            parquet = import_arrow(self.name, ".parquet")

            def request(
                some: list[int],
            ) -> Iterator[Any]:  # by a reader of its own, which keeps all that it requests
                own = parquet.ParquetFile(file, metadata=reader.metadata, pre_buffer=True)
                batches = own.iter_batches(row_groups=some, **options)
                return chain(
                    [batch for batch in [next(batches, None)] if batch is not None], batches
                )

            for batches in _ahead(map(request, _requests(reader.metadata, groups))):
                yield from batches

    def _blocks(self, row: int) -> Iterator[NDArray[Any]]:
        with ExitStack() as opened:
            batches, skipped = self._batches(opened, row, self._rows)
            batches = opened.enter_context(closing(_ahead(batches)))
            nulls = self.nulls_are_nan
            yield from self._layout.read(
                batches, self.name, self.path, self._rows, row, skipped, nulls_are_nan=nulls
            )


def _ahead(items: Iterator[Any]) -> Generator[Any, None, None]:
    """Yield items, none of which is None; each is made in a thread while the one before it is
    used.
    """
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, items, None)
        while (item := waiting.result()) is not None:
            waiting = pool.submit(next, items, None)
            yield item


def _requests(metadata: Any, groups: list[int]) -> Iterator[list[int]]:
    """Yield row groups in lists whose bytes are requested together: at least one group, or
    `_REQUEST_BYTES`.
    """
    some = list[int]()
    n_bytes = 0
    for group in groups:
        row_group = metadata.row_group(group)
        size = sum(
            row_group.column(place).total_compressed_size for place in range(metadata.num_columns)
        )
        if some and n_bytes + size > _REQUEST_BYTES:
            yield some
            some = []
            n_bytes = 0
        some.append(group)
        n_bytes += size
    if some:
        yield some


def arrow_stream(
    data: Any, batch_rows: int | None, selection: Selection = ALL, *, nulls_are_nan: bool = False
) -> Source:
    """Return the rows of an object with an Arrow stream; it is opened once for every pass."""
    name = f"the {type(data).__name__}"
    arrow = import_arrow(name)
    layout: Layout | None = None

    def start() -> Iterator[NDArray[Any]]:
        nonlocal layout
        try:
            schema, batches = _open_stream(arrow, data, batch_rows, selection, name)
        except (SourceError, ImportError):
            raise
        except Exception as error:  # of any library
            raise source_error("not again" if layout else "query", name, reason=error) from error
        if layout is None:
            layout = Layout.of(schema, name, None)
            if layout.is_open:
                layout, batches = layout.closed(batches, name, None)
        return layout.read(batches, name, None, batch_rows, nulls_are_nan=nulls_are_nan)

    n_rows = getattr(data, "num_rows", None)
    source = IterableSource(
        start,
        name,
        batch_rows,
        repeatable=not is_one_shot(data),
        n_rows=n_rows if isinstance(n_rows, int) else None,
    )
    source.columns = layout.names if layout is not None else None
    return source


def _open_stream(
    arrow: Any, data: Any, batch_rows: int | None, selection: Selection, name: str
) -> tuple[Any, Iterator[Any]]:
    """Return the schema of the chosen columns, and record batches; other columns are not read where
    possible.
    """

    def chosen(names: Sequence[str]) -> list[str]:
        places = selection.places(names, name, None)
        return [names[place] for place in (range(len(names)) if places is None else places)]

    def height(n_columns: int) -> int:
        return _AT_ONCE * rows_per_block(n_columns, 8, batch_rows)

    if hasattr(data, "collect_batches"):  # a LazyFrame of polars
        names = chosen(data.collect_schema().names())
        frames = data.select(names).collect_batches(chunk_size=height(len(names)))
        empty = arrow.RecordBatchReader.from_stream(data.select(names).clear().collect())
        return empty.schema, (
            batch for frame in frames for batch in arrow.RecordBatchReader.from_stream(frame)
        )
    if hasattr(
        data, "to_arrow_reader"
    ):  # a relation of DuckDB, whose batches have a million rows by default
        names = chosen(data.columns)
        quoted = ['"' + each.replace('"', '""') + '"' for each in names]
        reader = data.project(", ".join(quoted)).to_arrow_reader(height(len(names)))
        return reader.schema, reader
    if hasattr(
        data, "get_fragments"
    ):  # a dataset of pyarrow, in order and with the smallest read-ahead
        names = chosen(data.schema.names)
        schema = [data.schema.field(each) for each in names]
        limits = {"batch_size": height(len(names)), "batch_readahead": 1, "fragment_readahead": 1}
        return schema, data.to_batches(columns=names, **limits)
    reader = arrow.RecordBatchReader.from_stream(data)
    names = chosen(reader.schema.names)
    if selection.is_all:
        return reader.schema, reader
    return [reader.schema.field(each) for each in names], (batch.select(names) for batch in reader)


@dataclass(frozen=True)
class Layout:
    """How the columns of Arrow data become columns of numbers.

    A column of numbers, plain or in a dictionary, is one column; decimals become float64. A column
    of lists of numbers, or of tensors of one shape, is as many columns as its lists have numbers,
    which must be the same in all rows.

    Attributes
    ----------
    dtype : dtype
        float32 if every column fits into it, else float64.
    fields : tuple of str
        The names of the columns in the Arrow data.
    widths : tuple of int or None
        The number of columns that each becomes; None if the type does not say how long its lists
        are.
    lists : frozenset of str
        The names of those that hold lists.
    """

    dtype: np.dtype[Any]
    fields: tuple[str, ...]
    widths: tuple[int | None, ...]
    lists: frozenset[str] = frozenset()

    @classmethod
    def of(cls, schema: Any, name: str, path: Path | None) -> Layout:
        """Return the layout of a schema; raise if a column does not hold numbers."""
        types = import_arrow(name).types
        fields = []
        widths = list[int | None]()
        lists = set()
        small = True
        for field in schema:
            held: Any = _stored(field.type)
            width: int | None = 1
            if types.is_fixed_size_list(held) or types.is_list(held) or types.is_large_list(held):
                width = getattr(held, "list_size", None)
                held = held.value_type
                lists.add(field.name)
            elif types.is_dictionary(held):
                held = held.value_type
            numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
            if not any(holds(held) for holds in numbers):
                raise source_error("column", name, path, column=field.name, what=field.type)
            small = small and types.is_floating(held) and held.bit_width <= 32
            fields.append(field.name)
            widths.append(width)
        return cls(
            np.dtype(np.float32 if small else np.float64),
            tuple(fields),
            tuple(widths),
            frozenset(lists),
        )

    @property
    def is_open(self) -> bool:
        """Whether the length of some lists is not known yet."""
        return None in self.widths

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of numbers."""
        names = list[str]()
        for field, width in zip(self.fields, self.widths, strict=True):
            names += (
                [f"{field}[{place}]" for place in range(width or 0)]
                if field in self.lists
                else [field]
            )
        return tuple(names)

    def closed(
        self, batches: Iterator[Any], name: str, path: Path | None
    ) -> tuple[Layout, Iterator[Any]]:
        """Return the layout with the lengths of lists that the first row has, and all batches, as
        an iterator.
        """
        seen = list[Any]()
        for batch in batches:
            seen.append(batch)
            if batch.num_rows:
                break
        else:
            raise source_error("empty", name, path, what="no rows")
        widths = list(self.widths)
        for place, column in enumerate(seen[-1].columns):
            if widths[place] is None:
                cell = column[0].as_py()
                if not cell:
                    what = f"no list of numbers in column {self.fields[place]!r}"
                    raise source_error("not finite", name, path, 0, what=what)
                widths[place] = len(cell)
        return replace(self, widths=tuple(widths)), chain(seen, batches)

    def read(
        self,
        batches: Iterable[Any],
        name: str,
        path: Path | None,
        batch_rows: int | None,
        row: int = 0,
        skipped: int = 0,
        *,
        nulls_are_nan: bool = False,
    ) -> Iterator[NDArray[Any]]:
        """Yield the rows of Arrow record batches from `row` on, when the first batch begins at row
        `skipped`.
        """
        n_features = sum(width or 0 for width in self.widths)
        at = skipped
        step = rows_per_block(n_features, self.dtype.itemsize, batch_rows)
        for batch in batches:
            for start in range(max(0, row - at), batch.num_rows, step):
                rows, nulls = self._as_array(batch.slice(start, step), name, path, at + start)
                if nulls and not nulls_are_nan:
                    bad, column = min(nulls)
                    what = f"no number in column {column!r} (a null)"
                    raise source_error("not finite", name, path, at + start + bad, what=what)
                yield rows
            at += batch.num_rows
        if at < row:
            raise source_error("short", name, path, at, wanted=row)

    def _as_array(
        self, batch: Any, name: str, path: Path | None, first_row: int
    ) -> tuple[NDArray[Any], list[tuple[int, str]]]:
        """Return a record batch as an array in which nulls are NaN, and the first null of each
        column that has one.
        """
        n_rows = batch.num_rows
        nulls = list[tuple[int, str]]()
        at = 0
        widths = [width or 0 for width in self.widths]
        plain = {str(kind) for kind in batch.schema.types} == {
            "float" if self.dtype == np.float32 else "double"
        }
        if plain and len(widths) > 1 and not any(column.null_count for column in batch.columns):
            return batch.to_tensor().to_numpy(), nulls
        rows = np.empty((n_rows, sum(widths)), self.dtype)
        for field, width, column in zip(
            self.fields, widths, map(_without_type, batch.columns), strict=True
        ):
            at += width
            if field in self.lists:
                self._check_lengths(column, field, width, name, path, first_row)
                cells = column.flatten()  # without the lists that are null
            else:
                cells = (
                    column.dictionary_decode() if hasattr(column, "dictionary_decode") else column
                )
            if not (column.null_count or cells.null_count):
                own = _numbers(cells).reshape(n_rows, width)
            else:
                present = np.ones((n_rows, width), bool)
                if field in self.lists:
                    present[_nulls(column)] = False
                present[present] = ~_nulls(cells)
                nulls.append((int(np.argmin(present.all(axis=1))), field))
                own = np.full((n_rows, width), np.nan, self.dtype)
                # Nulls are dropped first: pyarrow would convert a column of integers with nulls to
                # floats.
                own[present] = _numbers(cells.drop_null())
            if len(widths) == 1:
                return own.astype(self.dtype, copy=False), nulls
            rows[:, at - width : at] = own
        return rows, nulls

    def _check_lengths(
        self, column: Any, field: str, width: int, name: str, path: Path | None, first_row: int
    ) -> None:
        """Raise if a list has another number of entries than those before it."""
        if hasattr(column.type, "list_size"):
            return
        lengths = np.diff(column.offsets.to_numpy())
        wrong = np.flatnonzero((lengths != width) & ~_nulls(column))
        if wrong.size:
            facts = {"column": field, "width": width, "given": int(lengths[wrong[0]])}
            raise source_error("list", name, path, first_row + int(wrong[0]), **facts)


def _nulls(column: Any) -> NDArray[np.bool_]:
    """Tell for every cell whether it is null."""
    found: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _numbers(cells: Any) -> NDArray[Any]:
    """Return cells without nulls as an array."""
    if str(cells.type).startswith(
        "decimal"
    ):  # by their digits: a cast to floats errs in the last bit
        cells = cells.cast("string").cast("float64")
    numbers: NDArray[Any] = cells.to_numpy(zero_copy_only=False)
    return numbers


def _stored(held: Any) -> Any:
    """Return the type that numbers of a type are stored as; it is another for extension types, such
    as tensors.
    """
    return getattr(held, "storage_type", held)


def _without_type(column: Any) -> Any:
    """Return a column as it is stored."""
    return getattr(column, "storage", column)


def _row_group_of(metadata: Any, row: int) -> tuple[int, int]:
    """Return the row group of a Parquet file in which `row` lies, and how many rows come before
    that group.
    """
    skipped = 0
    for group in range(metadata.num_row_groups):
        n_rows = metadata.row_group(group).num_rows
        if row < skipped + n_rows:
            return group, skipped
        skipped += n_rows
    return metadata.num_row_groups, skipped
