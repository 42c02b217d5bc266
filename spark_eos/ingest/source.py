"""The data source of an ingest's micro-batches: each task reads its files one after the other, in the planned order.

A task fails unless it reads what was planned: it checks a file's size and time before the first byte and after the last
one, and the digest of all bytes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructType

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError, stop
from spark_eos.ingest.folder import File, HashedFile, check_unchanged, store_of
from spark_eos.ingest.notes import Splits
from spark_eos.ingest.text import BadText, TextForm, records
from spark_eos.spark.by_value import by_value
from spark_eos.spark.tracebacks import hidden_traceback
from spark_eos.spark.worker_exit import quiet_here

FILES_FORMAT = "eos-files"
#: Options of the data source: `Form` and `Splits` as JSON.
FORM, SPLITS = "form", "splits"
#: Columns beside those of the file: its URI, and the number of the line where the row begins, in Parquet of the row,
#: from 1.
FILE, LINE = "_file", "_line"

TEXT_SCHEMA = f"value STRING, {FILE} STRING, {LINE} BIGINT"
#: Rows of a Parquet file that are read together: so many, and by the average of their row group about so many bytes.
_PARQUET_ROWS, _PARQUET_BYTES = 10_000, 16 << 20
#: A Parquet file of so many bytes or less is kept in memory while it is checked, and is not read again for its rows.
_HELD_BYTES = 32 << 20


@dataclass(frozen=True)
class Form:
    """The format of the files: ``parquet``, or else text. ``quote``, ``backslash``, ``delimiter`` and ``skip_space``
    are as in `TextForm`; ``multi_line``: quoted fields may have line breaks; ``header``: the first record of each file
    has these names, and is no row; ``blank``: lines that are empty, or have only spaces and tabs, are rows, too."""

    parquet: bool = False
    quote: str = ""
    backslash: bool = False
    delimiter: str = ","
    skip_space: bool = False
    multi_line: bool = False
    header: tuple[str, ...] = ()
    blank: bool = False

    @property
    def text(self) -> TextForm:
        """How text is cut into records."""
        quote = self.quote if self.multi_line else ""
        return TextForm(quote.encode(), self.backslash, self.delimiter.encode(), self.skip_space)

    def rows(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The records without blank lines. A line of delimiters is not blank: they are between empty fields."""
        if self.blank:
            return records
        empty = pc.equal(pc.utf8_trim(records.column(0), " \t".replace(self.delimiter, "")), "")
        return records.filter(pc.invert(empty)) if pc.any(empty).as_py() else records


def options_of(form: Form, splits: Splits) -> dict[str, str]:
    """Options of the data source, for `source_for`."""
    return {FORM: json.dumps(asdict(form)), SPLITS: json.dumps([[asdict(f) for f in files] for files in splits])}


def form_of(options: Mapping[str, str]) -> Form:
    """The form in the options."""
    form = json.loads(options[FORM])
    return Form(**form | {"header": tuple(form["header"])})


def splits_of(options: Mapping[str, str]) -> Splits:
    """The splits in the options."""
    return [[File(**fields) for fields in files] for files in json.loads(options[SPLITS])]


def source_for(settings: Mapping[str, str]) -> type[EosFilesDataSource]:
    """The data source for a session with these settings of file systems, like `with_settings` of `eos-kafka`."""
    return by_value(EosFilesDataSource, _settings=HadoopSettings(settings))


class EosFilesDataSource(DataSource):
    """``format("eos-files")``, only for ingests: it reads the files that were planned."""

    _settings = HadoopSettings()

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        quiet_here()

    @classmethod
    def name(cls) -> str:
        return FILES_FORMAT

    @hidden_traceback()
    def schema(self) -> str:
        """The schema of lines of text, if no other is given."""
        return TEXT_SCHEMA

    @hidden_traceback()
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the splits that an ingest has planned. Raises UnsupportedError without them."""
        if SPLITS not in self.options:
            raise stop("EOS_USE_UNSUPPORTED.files_alone")
        return _Reader(form_of(self.options), splits_of(self.options), schema, self._settings)


class _Split(InputPartition):
    def __init__(self, files: Sequence[File]) -> None:
        super().__init__(None)
        self.files = files


class _Reader(DataSourceReader):
    def __init__(self, form: Form, splits: Splits, schema: StructType, settings: HadoopSettings) -> None:
        self._form, self._splits, self._schema, self._settings = form, splits, schema, settings

    def partitions(self) -> Sequence[InputPartition]:
        return [_Split(files) for files in self._splits]

    @hidden_traceback()
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Split)
        schema = to_arrow_schema(self._schema)
        for file in partition.files:
            for batch in read_file(file, self._form, self._settings):
                yield cast(batch, schema, file)


def read_file(file: File, form: Form, settings: HadoopSettings) -> Iterator[pa.RecordBatch]:
    """A file's rows, with the columns `FILE` and `LINE`. Raises FileError if it is not what was planned; its last batch
    of rows is held back until that is known."""
    check_unchanged(file, settings)
    hashed = HashedFile(file, settings)
    held: pa.RecordBatch | None = None
    for batch in _parquet(file, hashed, settings) if form.parquet else _text(file, hashed, form):
        if held is not None:
            yield held
        held = batch
    hashed.check()
    check_unchanged(file, settings)
    if held is not None:
        yield held


def _text(file: File, hashed: HashedFile, form: Form) -> Iterator[pa.RecordBatch]:
    try:
        header_due = bool(form.header)
        for batch in records(hashed.blocks(), form.text):
            batch = form.rows(batch)
            if header_due and batch.num_rows:
                _check_header(file, batch.column(0)[0].as_py(), form)
                batch, header_due = batch.slice(1), False
            yield _with_position(batch.select(["value"]), file, batch.column(1))
    except BadText as bad:
        raise _bad_text(file, bad, form.text) from None


def _check_header(file: File, header: str, form: Form) -> None:
    escape = {"escapechar": "\\", "doublequote": False} if form.backslash else {}
    lines = io.StringIO(header, newline="")
    try:
        names = next(csv.reader(lines, delimiter=form.delimiter, quotechar=form.quote, **escape), [])  # type: ignore[arg-type]
    except csv.Error as error:
        raise malformed(file, f"its header is not CSV: {error}") from None
    if tuple(names) != form.header:
        raise malformed(file, f"its header is {', '.join(names)}, not {', '.join(form.header)}")


def _parquet(file: File, hashed: HashedFile, settings: HadoopSettings) -> Iterator[pa.RecordBatch]:
    held = [block for block in hashed.blocks() if file.size <= _HELD_BYTES]  # all of it: rows are found by the footer
    hashed.check()
    store = store_of(file.uri, settings)
    line = 1
    try:
        with pa.BufferReader(b"".join(held)) if held else store.files.open_input_file(store.root) as data:
            held.clear()
            parquet = pq.ParquetFile(data, page_checksum_verification=True)
            for batch in parquet.iter_batches(_rows_at_once(parquet.metadata)):
                yield _with_numbers(batch, file, line)
                line += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise malformed(file, f"{type(error).__name__}: {error}") from None
    if line - 1 != parquet.metadata.num_rows:
        raise malformed(file, f"it has {line - 1:,} rows, not {parquet.metadata.num_rows:,} as its footer says")


def _rows_at_once(metadata: pq.FileMetaData) -> int:
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    widest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(_PARQUET_ROWS, _PARQUET_BYTES // max(widest, 1)))


def _with_numbers(batch: pa.RecordBatch, file: File, first: int) -> pa.RecordBatch:
    return _with_position(batch, file, pa.array(np.arange(first, first + batch.num_rows), pa.int64()))


def first_rows(file: File, form: Form, settings: HadoopSettings, count: int) -> Iterator[pa.RecordBatch]:
    """At most so many rows of the beginning of a file, as `read_file` has them, without looking whether it is what was
    planned. Raises FileError, and what Arrow raises."""
    left = count
    for batch in (
        _begin_of_parquet(file, settings, count) if form.parquet else _text(file, HashedFile(file, settings), form)
    ):
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def _begin_of_parquet(file: File, settings: HadoopSettings, count: int) -> Iterator[pa.RecordBatch]:
    store = store_of(file.uri, settings)
    with store.files.open_input_file(store.root) as data:
        parquet = pq.ParquetFile(data)
        for batch in parquet.iter_batches(min(count, _rows_at_once(parquet.metadata))):
            yield _with_numbers(batch, file, 1)
            return


def parquet_schema(file: File, settings: HadoopSettings) -> pa.Schema:
    """The schema of a Parquet file. Raises FileError, also for a column with the name of `FILE` or `LINE`."""
    store = store_of(file.uri, settings)
    try:
        with store.files.open_input_file(store.root) as data:
            schema: pa.Schema = pq.read_schema(data).remove_metadata()
    except (pa.ArrowException, OSError) as error:
        raise malformed(file, f"{type(error).__name__}: {error}") from None
    if {FILE, LINE} & set(schema.names):
        raise stop("EOS_FILE_MALFORMED.reserved", uri=file.uri, file_column=FILE, line_column=LINE)
    return schema


#: Types that Spark does not have, and the types that it reads them as: the next ones that hold all values.
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}


def spark_schema(file: File, schema: pa.Schema) -> StructType:
    """The columns of a Parquet file as Spark reads them. Raises FileError for a column of a type that Spark lacks."""
    struct = StructType()
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        try:
            found = from_arrow_type(_WIDER.get(kind, kind))
            StructType.fromDDL(f"x {found.simpleString()}")
        except PySparkException:
            problem = stop("EOS_FILE_MALFORMED.column_type", uri=file.uri, field_name=field.name, type=field.type)
            raise problem from None
        struct.add(field.name, found)
    return struct


def _with_position(batch: pa.RecordBatch, file: File, lines: pa.Array) -> pa.RecordBatch:
    return batch.append_column(FILE, pa.repeat(file.uri, batch.num_rows)).append_column(LINE, lines)


def cast(batch: pa.RecordBatch, schema: pa.Schema, file: File) -> pa.RecordBatch:
    """Rows of a file with the columns and types of the schema. Raises FileError where they have others."""
    absent = [name for name in schema.names if name not in batch.schema.names]
    if absent:
        raise malformed(file, f"it has no column {', '.join(absent)}")
    try:
        return batch.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise malformed(file, f"its columns do not fit the schema: {error}") from None


def malformed(file: File, why: str) -> EosError:
    """The error for a file that is not what the config says."""
    return stop("EOS_FILE_MALFORMED.content", uri=file.uri, why=" ".join(why.split()))


def _bad_text(file: File, bad: BadText, form: TextForm) -> EosError:
    if not form.quote:
        return malformed(file, f"line {bad.line}: {bad}")
    return stop("EOS_FILE_MALFORMED.text", uri=file.uri, line=bad.line, bad=bad)
