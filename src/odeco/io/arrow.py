"""Rows in Parquet, Arrow and Feather files, and in objects with an Arrow stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from odeco.io.arrays import IterableSource, is_one_shot
from odeco.io.errors import source_error
from odeco.io.source import ALL, FileSource, Selection, Source, names_of, rows_per_block

#: The first bytes of Arrow's file format; its stream format begins with others.
_MAGIC = b"ARROW1"

#: Bytes that Parquet reads at a time.
_BUFFER = 1 << 16


class ArrowFile(FileSource):
    """The rows of a Parquet, Arrow or Feather file whose columns are all numbers.

    Notes
    -----
    Parquet is read with `pyarrow.parquet.ParquetFile` and Arrow with `pyarrow.ipc`, not with the scanner of
    `pyarrow.dataset`, which reads ahead whatever its settings are and took ten times the memory, growing with the file.
    Here about one row group, or one record batch, is in memory at a time.
    """

    #: Whether a null is read as NaN; otherwise it is an error.
    nulls_are_nan: ClassVar[bool] = False

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
            self.columns = tuple(schema.names)
        places, fields = selection.places(self.columns, path.name, path), list(schema)
        if places is not None:
            fields = [fields[place] for place in places]
            self.columns = tuple(field.name for field in fields)
            self._chosen = list(self.columns)
        self.n_features = len(fields)
        self._check_not_empty()
        dtype = common_type(fields, path.name, path)
        self._rows = rows_per_block(self.n_features, dtype.itemsize, batch_rows)
        self._facts = ("arrow", dtype, *(self._chosen or []))

    def _look(self, opened: ExitStack) -> tuple[Any, int | None]:
        """Return the schema and the number of rows, which Arrow's stream format does not state."""
        reader = self._open(opened)
        if self._is_parquet:
            return reader.schema_arrow, reader.metadata.num_rows
        if self._is_stream:
            return reader.schema, None
        return reader.schema, import_arrow(self.name, ".dataset").dataset(str(self.path), format="ipc").count_rows()

    def _open(self, opened: ExitStack) -> Any:
        if self._is_parquet:
            parquet = import_arrow(self.name, ".parquet")
            return opened.enter_context(parquet.ParquetFile(self.path, buffer_size=_BUFFER, pre_buffer=False))
        # Not memory-mapped: the pages would stay in the resident size until the end of the pass.
        file = opened.enter_context(import_arrow(self.name).OSFile(str(self.path)))
        ipc = import_arrow(self.name, ".ipc")
        return opened.enter_context(ipc.open_stream(file) if self._is_stream else ipc.open_file(file))

    def _blocks(self, row: int) -> Iterator[NDArray[Any]]:
        with ExitStack() as opened:
            reader, skipped = self._open(opened), 0
            if self._is_parquet:
                first, skipped = _row_group_of(reader.metadata, row)
                groups = list(range(first, reader.metadata.num_row_groups))
                batches = reader.iter_batches(self._rows, row_groups=groups, columns=self._chosen)
            elif self._is_stream:
                batches = reader
            else:
                batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
            if self._chosen is not None:
                batches = (batch.select(self._chosen) for batch in batches)
            nulls = self.nulls_are_nan
            yield from rows_of_batches(batches, self.name, self.path, self._rows, row, skipped, nulls_are_nan=nulls)


def arrow_stream(data: Any, batch_rows: int | None) -> Source:
    """Return the rows of an object with ``__arrow_c_stream__``, or of a pyarrow dataset."""
    name = f"the {type(data).__name__}"
    arrow = import_arrow(name)

    def start() -> Iterator[NDArray[Any]]:
        if hasattr(data, "__arrow_c_stream__"):
            batches = arrow.RecordBatchReader.from_stream(data)
        else:  # a dataset, in order and with the smallest read-ahead
            height = rows_per_block(len(data.schema), 8, batch_rows)
            batches = data.to_batches(batch_size=height, batch_readahead=1, fragment_readahead=1)
        return rows_of_batches(batches, name, None, batch_rows)

    n_rows = getattr(data, "num_rows", None)
    source = IterableSource(
        start, name, batch_rows, repeatable=not is_one_shot(data), n_rows=n_rows if isinstance(n_rows, int) else None
    )
    source.columns = names_of(data)
    return source


def is_arrow_data(data: Any) -> bool:
    """Tell whether an object has an Arrow stream, without importing pyarrow."""
    is_dataset = type(data).__module__.startswith("pyarrow") and hasattr(data, "get_fragments")
    return is_dataset or hasattr(data, "__arrow_c_stream__")


def import_arrow(name: str, module: str = "") -> Any:
    """Import pyarrow or a part of it; the error names the data that need it."""
    try:
        return import_module(f"pyarrow{module}")
    except ImportError as error:
        raise ModuleNotFoundError(
            f"Reading {name} needs pyarrow. It is not installed. Run: pip install 'odeco[arrow]'.", name="pyarrow"
        ) from error


def common_type(schema: Any, name: str, path: Path | None) -> np.dtype[Any]:
    """Return float32 if every column fits into it, else float64; raise if a column does not hold numbers."""
    types = import_arrow(name).types
    small = True
    for field in schema:
        if not (types.is_integer(field.type) or types.is_floating(field.type) or types.is_boolean(field.type)):
            raise source_error("column", name, path, column=field.name, what=field.type)
        small = small and types.is_floating(field.type) and field.type.bit_width <= 32
    return np.dtype(np.float32 if small else np.float64)


def rows_of_batches(
    batches: Iterable[Any],
    name: str,
    path: Path | None,
    batch_rows: int | None,
    row: int = 0,
    skipped: int = 0,
    *,
    nulls_are_nan: bool = False,
) -> Iterator[NDArray[Any]]:
    """Yield the rows of Arrow record batches from `row` on, when the first batch begins at row `skipped`."""
    at, dtype = skipped, None
    for batch in batches:
        if dtype is None:  # all batches share their columns
            dtype = common_type(batch.schema, name, path)
        step = rows_per_block(batch.num_columns, dtype.itemsize, batch_rows)
        for start in range(max(0, row - at), batch.num_rows, step):
            yield _as_array(batch.slice(start, step), dtype, name, path, at + start, nulls_are_nan=nulls_are_nan)
        at += batch.num_rows
    if at < row:
        raise source_error("short", name, path, at, wanted=row)


def _as_array(
    batch: Any, dtype: np.dtype[Any], name: str, path: Path | None, first_row: int, *, nulls_are_nan: bool
) -> NDArray[Any]:
    """Return a record batch as an array; a null becomes NaN, or is an error."""
    rows: NDArray[Any] = np.empty((batch.num_rows, batch.num_columns), dtype)
    nulls = []
    for number, column in enumerate(batch.columns):
        if not column.null_count:
            rows[:, number] = column.to_numpy(zero_copy_only=False)
            continue
        missing = column.is_null().to_numpy(zero_copy_only=False)
        nulls.append((int(np.argmax(missing)), batch.schema.names[number]))
        # Nulls are dropped first: pyarrow would convert a column of integers with nulls to floats.
        rows[~missing, number] = column.drop_null().to_numpy(zero_copy_only=False)
        rows[missing, number] = np.nan
    if nulls and not nulls_are_nan:
        bad, column_name = min(nulls)
        what = f"no number in column {column_name!r} (a null)"
        raise source_error("not finite", name, path, first_row + bad, what=what)
    return rows


def _row_group_of(metadata: Any, row: int) -> tuple[int, int]:
    """Return the row group of a Parquet file in which `row` lies, and how many rows come before that group."""
    skipped = 0
    for group in range(metadata.num_row_groups):
        n_rows = metadata.row_group(group).num_rows
        if row < skipped + n_rows:
            return group, skipped
        skipped += n_rows
    return metadata.num_row_groups, skipped
