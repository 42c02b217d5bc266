"""The data source of an ingest's micro-batches: each task reads its files one after the other, in the planned order.

A task fails unless it reads the planned files: it checks a file's size and time before the first byte and after the
last one, and the digest of all bytes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_eos.errors import EosError, stop
from spark_eos.pipelines.arrow_types import arrow_schema
from spark_eos.pipelines.files.folder import File, HashedFile, check_unchanged, malformed
from spark_eos.pipelines.files.notes import Splits
from spark_eos.pipelines.files.parquet import ADDED, batches, first_batch
from spark_eos.pipelines.files.text import BadText, TextForm, records
from spark_eos.spi import HadoopSettings, by_value, hidden_traceback, quiet_here

FILES_FORMAT = "eos-files"
#: Options of the data source: `Form` and `Splits` as JSON.
FORM, SPLITS = "form", "splits"
#: Columns beside the file's own: its URI, and the number of the line where the row begins, in Parquet of the row,
#: from 1.
FILE, LINE = ADDED

TEXT_SCHEMA = f"value STRING, {FILE} STRING, {LINE} BIGINT"


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
        """Syntax by which text is cut into records."""
        quote = self.quote if self.multi_line else ""
        return TextForm(quote.encode(), self.backslash, self.delimiter.encode(), self.skip_space)

    def rows(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records without blank lines. A line of delimiters is not blank: they are between empty fields."""
        if self.blank:
            return records
        empty = pc.equal(pc.utf8_trim(records.column(0), " \t".replace(self.delimiter, "")), "")
        return records.filter(pc.invert(empty)) if pc.any(empty).as_py() else records


def options_of(form: Form, splits: Splits) -> dict[str, str]:
    """Return options of the data source, for `source_for`."""
    return {FORM: json.dumps(asdict(form)), SPLITS: json.dumps([[asdict(f) for f in files] for files in splits])}


def form_of(options: Mapping[str, str]) -> Form:
    """Return the form in the options."""
    form = json.loads(options[FORM])
    return Form(**form | {"header": tuple(form["header"])})


def splits_of(options: Mapping[str, str]) -> Splits:
    """Return the splits in the options."""
    return [[File(**fields) for fields in files] for files in json.loads(options[SPLITS])]


def source_for(settings: Mapping[str, str]) -> type[EosFilesDataSource]:
    """Return the data source for a session with these settings of file systems, like `with_settings` of `eos-kafka`."""
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
        """Return the schema of lines of text, if no other is given."""
        return TEXT_SCHEMA

    @hidden_traceback()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the splits that an ingest has planned. Raises UnsupportedError without them."""
        if SPLITS not in self.options:
            raise stop("EOS_USE_UNSUPPORTED.files_alone")
        return _SplitReader(form_of(self.options), splits_of(self.options), schema, self._settings)


class _Split(InputPartition):
    def __init__(self, files: Sequence[File]) -> None:
        super().__init__(None)
        self.files = files


class _SplitReader(DataSourceReader):
    def __init__(self, form: Form, splits: Splits, schema: StructType, settings: HadoopSettings) -> None:
        self._form, self._splits, self._schema, self._settings = form, splits, schema, settings

    def partitions(self) -> Sequence[InputPartition]:
        return [_Split(files) for files in self._splits]

    @hidden_traceback()
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Split)
        schema = arrow_schema(self._schema)
        for file in partition.files:
            for batch in read_file(file, self._form, self._settings):
                yield cast(batch, schema, file)


def read_file(file: File, form: Form, settings: HadoopSettings) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows, with the columns `FILE` and `LINE`. Raises FileError if it is not as planned; its last batch
    of rows is held back until that is known."""
    check_unchanged(file, settings)
    hashed = HashedFile(file, settings)
    held: pa.RecordBatch | None = None
    for batch in _numbered(file, batches(file, hashed, settings)) if form.parquet else _text(file, hashed, form):
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


def _numbered(file: File, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    line = 1
    for batch in rows:
        yield _with_position(batch, file, pa.array(np.arange(line, line + batch.num_rows), pa.int64()))
        line += batch.num_rows


def first_rows(file: File, form: Form, settings: HadoopSettings, count: int) -> Iterator[pa.RecordBatch]:
    """Yield at most so many rows of the beginning of a file, like `read_file`, but without checking that it is as
    planned. Raises FileError, and Arrow's errors."""
    left = count
    rows = _numbered(file, first_batch(file, settings, count)) if form.parquet else None
    for batch in _text(file, HashedFile(file, settings), form) if rows is None else rows:
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def has_rows(file: File, form: Form, settings: HadoopSettings) -> bool:
    """Return whether a file has rows, besides a header and blank lines. Raises FileError, and Arrow's errors."""
    return bool(file.size) and any(batch.num_rows for batch in first_rows(file, form, settings, 1))


def longest_record(files: Iterable[File], form: Form, settings: HadoopSettings) -> dict[str, object] | None:
    """Return URI, line and bytes of the longest record of some files, in Parquet of texts and binaries; None without
    one. Raises FileError."""
    longest: dict[str, object] | None = None
    most = -1
    for file in files:
        for batch in read_file(file, form, settings):
            own = batch.drop_columns([FILE, LINE])
            lengths = [pc.fill_null(pc.binary_length(column), 0) for column in own.columns if _is_text(column.type)]
            sizes = sum((np.asarray(each, np.int64) for each in lengths), np.zeros(own.num_rows, np.int64))
            if own.num_rows and sizes.max() > most:
                most, row = int(sizes.max()), int(sizes.argmax())
                longest = {"file": file.uri, "line": batch.column(LINE)[row].as_py(), "bytes": most}
    return longest


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _with_position(batch: pa.RecordBatch, file: File, lines: pa.Array) -> pa.RecordBatch:
    return batch.append_column(FILE, pa.repeat(file.uri, batch.num_rows)).append_column(LINE, lines)


def cast(batch: pa.RecordBatch, schema: pa.Schema, file: File) -> pa.RecordBatch:
    """Return rows of a file with the columns and types of the schema. Raises FileError where they have others."""
    absent = [name for name in schema.names if name not in batch.schema.names]
    if absent:
        raise malformed(file, f"it has no column {', '.join(absent)}")
    try:
        rows = batch.select(schema.names).cast(schema)
        rows.validate(full=True)  # texts of Parquet may be no UTF-8, which Arrow does not look at by itself
        return rows
    except (pa.ArrowException, ValueError) as error:
        raise malformed(file, f"its columns do not fit the schema: {error}") from None


def _bad_text(file: File, bad: BadText, form: TextForm) -> EosError:
    if not form.quote:
        return malformed(file, f"line {bad.line}: {bad}")
    return stop("EOS_FILE_MALFORMED.text", uri=file.uri, line=bad.line, bad=bad)
