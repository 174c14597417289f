"""Files as bytes from their beginning, text as UTF-8, and the table of formats.

A new format has a row in `FORMATS`.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
import shutil
import sys
import tempfile
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, NoReturn, TypeVar, cast
from urllib.parse import unquote

from gcws_search.formats.stores import StoredPath, StoreFailed, place_of, version_of, versions

if TYPE_CHECKING:
    from charset_normalizer import CharsetMatch

Word = TypeVar("Word")


class Format(NamedTuple):
    """A format: the function below `formats` that fills a `Source`, and how its files are detected.

    ``magic``: the start of a binary file. ``pattern``: matches the start of a text whose name shows
    no format. ``is_table``: a folder of such files is one table, which ``reader`` also reads.
    ``choices``: options that only some formats have.
    """

    name: str
    reader: str
    suffixes: tuple[str, ...] = ()
    magic: bytes = b""
    pattern: re.Pattern[bytes] | None = None
    is_table: bool = False
    choices: tuple[str, ...] = ()


_SVMLIGHT: Final = re.compile(
    rb"(#[^\r\n]*[\r\n]+)*[-+.\deE]+(,[-+.\deE]+)*([ \t]+qid:\d+)?([ \t]+\d+:\S+)+"
    rb"[ \t]*(#[^\r\n]*)?([\r\n]|$)"
)
_SIGNATURES: Final = re.compile(rb'\s*\[\s*\{[^{}\[\]]*"class"\s*:\s*"sourmash_signature"')
_BIOM: Final = re.compile(rb'\s*\{[^\n]{0,4096}"format"\s*:\s*"Biological Observation Matrix')
_MGF: Final = re.compile(rb"([^\r\n]*[\r\n]){0,100}?BEGIN IONS\s")
_SQL: Final = re.compile(
    rb"(?:\s|--(?! (?:MySQL|MariaDB|PostgreSQL|phpMyAdmin)\b)[^\r\n]*+"
    rb"|/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*/;?)*"  # not possessive: see `end_of_rows`
    rb"(?:-- (?:MySQL|MariaDB|PostgreSQL|phpMyAdmin)\b|PRAGMA\s+\w+\s*=|SET\s+\w+\s*="
    rb"|(?:CREATE|DROP)\s+(?:TABLE|DATABASE)\s|INSERT\s+INTO\s)",
    re.IGNORECASE,
)
_FOREIGN: Final = (
    (
        re.compile(rb"%%MatrixMarket"),
        "a Matrix Market matrix; scipy.io.mmread reads it in Python, and add stores its rows, "
        "or the columns of mmread(…).T",
    ),
    (
        re.compile(rb"([^\r\n]*\r?\n){3}[ \d]{30,36}V[23]000\s"),
        "an SD file; obabel x.sdf -O x.smi, or SmilesWriter of RDKit, converts it to SMILES",
    ),
    (
        re.compile(rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(indexedmzML|mzML|mzXML)\s", re.DOTALL),
        "mzML or mzXML; msconvert --mgf x.mzML converts it to MGF",
    ),
    (
        re.compile(rb"\s*<(\?xml\s|!DOCTYPE\s|(html|table)[\s>])", re.IGNORECASE),
        "XML or HTML; pandas.read_xml or read_html reads tables of it",
    ),
    (
        re.compile(rb'\s*\{("columns":\[[^\]]*\],"index":\[|"schema":\{"fields":\[)'),
        "one JSON object for all rows; to_json(…, orient='records', lines=True) of pandas writes "
        "one for each",
    ),
    (
        re.compile(rb"(\s|%[^\r\n]*[\r\n])*@relation\s", re.IGNORECASE),
        "ARFF; scipy.io.arff.loadarff reads it in Python",
    ),
    (
        re.compile(rb"\s*>[^>\r\n]*[\r\n]+[A-Za-z*-]+(\s|\Z)|@[^\r\n]*\r?\n[A-Za-z]+\r?\n\+"),
        "FASTA or FASTQ; sourmash sketch makes signatures of it",
    ),
    (
        re.compile(rb"#1\.[23]\s*\n\d+\t\d+"),
        "GCT; tail -n +3 x.gct | cut -f 1,3- > x.tsv makes a table for --transpose of version 1.2, "
        "and cmapPy reads 1.3 in Python",
    ),
    (re.compile(rb"##fileformat=VCF"), "VCF; bcftools query writes fields of it as a table"),
    (
        _SQL,
        "an SQL dump; restore it and export a table as CSV: in psql \\copy t to 't.csv' csv header",
    ),
    (
        re.compile(rb"SQLite format 3\0"),
        "an SQLite database; sqlite3 -header -csv x.sqlite 'select * from t' writes a table as CSV",
    ),
    (
        re.compile(
            rb'\s*\{\s*("_index"\s*:[^\n]*"_source"\s*:|"took"\s*:\s*\d+,\s*"timed_out"\s*:)'
        ),
        "hits of Elasticsearch; jq -c '(.hits.hits[]? // .) | {id: ._id} + ._source' writes what "
        "they found as rows",
    ),
    (
        re.compile(rb'\s*\{\s*"(index|create)"\s*:\s*\{[^{}]*\}\s*\}\s*\{'),
        "bulk actions of Elasticsearch; jq -nc 'inputs as $a | {id: $a[]._id} + input | "
        "del(.id | nulls)' writes their documents as rows",
    ),
    (re.compile(rb"%PDF-"), "a PDF; pdftotext writes its text"),
    (
        re.compile(rb"ORC[^\0]{,4096}\0"),
        "ORC; pyarrow.orc.read_table reads it in Python, and add stores it",
    ),
    (re.compile(rb"CDF[\x01\x02\x05]"), "netCDF; xarray.open_dataset reads it in Python"),
    (
        re.compile(rb"<stata_dta>|[\x69-\x75][\x01\x02]\x01\0"),
        "a Stata file; pandas.read_stata reads it in Python, and add stores it",
    ),
    (re.compile(rb"\x80[\x02-\x05]"), "a pickle; load it in Python, and add what it has"),
    (re.compile(rb"MATLAB 5\.0 MAT-file"), "a MATLAB file; scipy.io.loadmat reads it in Python"),
)
"""How texts of other formats begin, and what they are and what to do."""
_ANNDATA: Final = (
    "AnnData; in Python, cells = anndata.read_h5ad(…) reads it, and "
    "add(cells.X, ids=cells.obs_names, payloads=cells.obs) stores it"
)
_DESCRIPTIONS: Final = re.compile(r"(readme|licen[cs]e)(\.(md|rst|txt))?|.*\.md", re.IGNORECASE)
"""Files of a folder that have no rows."""
_STATES: Final = re.compile(r"dataset_(info|infos|dict)\.json|state\.json")
"""Others that the datasets of Hugging Face have beside files of Arrow."""
_IN_ARCHIVES: Final = (b"signatures/", b"SOURMASH-MANIFEST")
"""With these begin the names of files in archives of signatures."""
_OF_COLUMNS: Final = ("id", "vector")
_OF_CSV: Final = (*_OF_COLUMNS, "header", "transpose")
FORMATS: Final = {
    each.name: each
    for each in (
        Format("csv", "delimited.read_csv", (".csv",), is_table=True, choices=_OF_CSV),
        Format("tsv", "delimited.read_csv", (".tsv", ".tab"), is_table=True, choices=_OF_CSV),
        Format("ndjson", "lines.read_lines", (".ndjson", ".jsonl"), choices=_OF_COLUMNS),
        Format(
            "parquet", "arrow_files.read_arrow", (".parquet",), b"PAR1", is_table=True,
            choices=_OF_COLUMNS,
        ),
        Format(
            "arrow", "arrow_files.read_arrow", (".arrow", ".feather", ".ipc"), b"ARROW1",
            is_table=True, choices=_OF_COLUMNS,
        ),
        Format(
            "arrow stream", "arrow_files.read_arrow", (), b"\xff\xff\xff\xff",
            choices=_OF_COLUMNS,
        ),
        Format("npy", "arrays.read_arrays", (".npy",), b"\x93NUMPY"),
        Format("npz", "arrays.read_arrays", (".npz",), b"PK\x03\x04"),
        Format(
            "svmlight", "svmlight.read_svmlight", (".svmlight", ".svm", ".libsvm"), b"", _SVMLIGHT,
            choices=("zero_based",),
        ),
        Format(
            "signatures", "signatures.read_signatures", (".sig", ".sig.zip"), b"", _SIGNATURES,
            choices=("id", "ksize", "moltype"),
        ),
        Format(
            "biom", "biom.read_biom", (".biom",), b"\x89HDF\r\n\x1a\n", _BIOM
        ),
        Format("mgf", "peaks.read_mgf", (".mgf",), b"", _MGF, choices=("id", "bin")),
        Format("msp", "peaks.read_msp", (".msp",), choices=("id", "bin")),
        Format("fps", "fingerprints.read_fps", (".fps",), b"", re.compile(rb"#FPS1\s")),
        Format("fpc", "fingerprints.read_fpc", (".fpc",), b"", re.compile(rb"#FPC1\s")),
        Format(
            "smiles", "smiles.read_smiles", (".smi", ".smiles", ".ism", ".rsmi"),
            choices=("id", "fingerprint"),
        ),
        Format(
            "workbook", "workbooks.read_workbook", (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
            choices=(*_OF_COLUMNS, "header", "sheet"),
        ),
    )
}  # fmt: skip
CHOICES: Final = {
    "id": "--id",
    "vector": "--vector",
    "header": "--header and --no-header",
    "transpose": "--transpose",
    "zero_based": "--zero-based and --one-based",
    "fingerprint": "--fingerprint",
    "ksize": "--ksize",
    "moltype": "--moltype",
    "bin": "--bin",
    "sheet": "--sheet",
}
"""Choices that only some formats have, and the options that make them."""
WORKBOOK: Final = "workbook"
WORDS: Final = (
    "CSV, JSON, NDJSON, Parquet, Arrow, .npy, .npz, .xlsx, svmlight, BIOM, SMILES, FPS, FPC, "
    "sourmash, MGF or MSP"
)

STDIN: Final = "-"
HEAD_BYTES: Final = 1 << 20
"""How much of a file is looked at before anything is decided, unless its first lines are longer."""
_MAX_HEAD_BYTES: Final = 1 << 23
_FIRST_LINES: Final = 2
_LINE_END: Final = re.compile(rb"[\r\n]")
_MAGIC_BYTES: Final = 10
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18")
"""A frame, or one to be skipped, with which pzstd begins."""
_XZ: Final = b"\xfd7zXZ\x00"
_BZIP2: Final = re.compile(rb"BZh\d(1AY&SY|\x17rE8P)")
"""How a file begins that has a block, or none."""
_FEATHER_1: Final = b"FEA1"
_TAR: Final = b"ustar"
_TAR_PLACE: Final = 257
_START: Final = 8
"""Bytes of a file that errors show."""
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""How files of Excel before 2007 begin."""
_IN_WORKBOOK: Final = (b"[Content_Types].xml", b"xl/", b"opendocument.spreadsheet")
"""What the archive of one has, one of these, near its beginning."""
_FIRST_NAME: Final = slice(30, 300)
"""Where a zip archive has the name of its first file."""
_MARK: Final = "\ufeff"
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_BEYOND_ASCII: Final = re.compile("[^\x00-\x7f\ufffd]")
_SAMPLE_BYTES: Final = 1 << 16
_WESTERN: Final = "cp1252"
_NOT_WESTERN: Final = frozenset(b"\x81\x8d\x8f\x90\x9d")
_LATIN: Final = (_WESTERN, "cp1250", "cp1254")
_FEW_TOGETHER: Final = 1.5
"""Bytes beyond ASCII that stand side by side in words of Latin letters, at most, on average."""
UTF8: Final = "utf-8"
_BAD_CHARACTER: Final = "\udcff"
"""Stands for bytes that could not be decoded; no reader of UTF-8 takes it."""
_ERRORS: Final = "gcws-search.mark"
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_BUFFER_BYTES: Final = 1 << 20


_IN_FILE: Final = re.compile(r"input source '([^']*)'")
"""The file, in what Arrow says of one."""
_DAMAGED: Final[tuple[type[Exception], ...]] = (
    OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError, MemoryError,
    zipfile.BadZipFile, zlib.error, tokenize.TokenError,
)  # fmt: skip
"""What libraries raise for a file that is damaged, or none of the format."""


class BadFile(Exception):
    """A file cannot be read as expected; the message is one sentence with its name."""


class NoRows(BadFile):
    """A file without rows, possibly with ``names`` of columns.

    Such files in a folder are skipped if another file has these names: programs that write in parts
    write such files.
    """

    def __init__(self, message: str, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = [*names]


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path for a file; on success it gets the final name."""
    part = target.with_name(f"{target.name}.part")
    try:
        yield part
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


class _Stream(io.RawIOBase):
    """Pieces of bytes as a stream; closes their source."""

    def __init__(self, pieces: Generator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size

    def close(self) -> None:
        self._pieces.close()
        super().close()


class InputFile:
    """A file that may be read several times; standard input can be read once.

    ``size_bytes``: size on disk, compressed or not; ``read_bytes`` counts these since the last
    opening. ``version`` changes with the bytes. ``encoding``: empty unless it is a text that does
    not begin as UTF-8. A ``stream`` is read like standard input; ``path`` is its name in errors. A
    given ``format_`` is not guessed, and must be a text format.
    """

    def __init__(
        self,
        path: str | Path | StoredPath,
        encoding: str | None = None,
        *,
        stream: io.RawIOBase | None = None,
        format_: str | None = None,
    ) -> None:
        self._once: Any = stream or (sys.stdin.buffer if path == STDIN else None)
        self.path = None
        self.name = "standard input" if path == STDIN else str(path)
        if self._once is None:
            self.path = place_of(path) if isinstance(path, str) else path
        self.read_bytes = 0
        self.size_bytes: int | None = None
        self.modified_ns = 0
        self.version: int | str = 0
        if self.path is not None:
            if not self.path.exists():
                raise BadFile(f"{self.name}: expected a file, got no file of that name")
            if self.path.is_dir():
                raise BadFile(f"{self.name}: expected a file, got a folder")
            found = self.path.stat()
            self.size_bytes, self.modified_ns = found.st_size, found.st_mtime_ns
            self.version = version_of(self.path)
        self._copy: BinaryIO | None = None
        self._text: bytes | None = None
        self._is_compressed = False
        self.encoding = self._encoding_words = ""
        pieces, start, end, is_whole = self._decompress(), b"", HEAD_BYTES, False
        while not is_whole and (len(start) < HEAD_BYTES or not (end := _head_end(start))):
            piece = next(pieces, b"")
            start, is_whole = start + piece, not piece
        is_line = not end and not _LINE_END.search(start)  # a single line is no table, however long
        self.head = start[: HEAD_BYTES if is_line else end or None]
        self.is_whole_head = is_whole and len(self.head) == len(start)
        self._first = _prepend(start, pieces) if self.path is None else None
        if self.path is not None:
            pieces.close()
        if not self.head:
            raise NoRows(f"{self.name}: expected rows, got an empty file")
        binary = self._binary_format() if format_ is None else None
        self.format = binary or self._text_format(encoding, format_)

    def close(self) -> None:
        """Close the open streams."""
        for each in (self._first, self._copy):
            if each is not None:
                each.close()

    def _binary_format(self) -> str | None:
        named = None if self.path is None else _format_of_name(self.path)
        if self.head.startswith(FORMATS["biom"].magic) and self.name.lower().endswith(".h5ad"):
            raise BadFile(f"{self.name}: expected {WORDS}, got {_ANNDATA}")
        for each in FORMATS.values():
            if each.magic and self.head.startswith(each.magic):
                if each.name == "npz":
                    if self.head[_FIRST_NAME].startswith(_IN_ARCHIVES):
                        return "signatures"
                    return self._archive_format(named)
                return each.name
        if self.head.startswith(_FEATHER_1):
            raise BadFile(f"{self.name}: expected Feather version 2 (Arrow), got version 1")
        if self.head.startswith(_OLE):
            return WORKBOOK
        if self.head.startswith(_TAR, _TAR_PLACE):
            raise BadFile(
                f"{self.name}: expected {WORDS}, got a tar archive; load what is in it instead"
            )
        if named is not None and FORMATS[named].magic and FORMATS[named].pattern is None:
            raise BadFile(
                f"{self.name}: expected {named}, as its name says, "
                f"got {self.head[:8]!r} at its start"
            )
        return None

    def _archive_format(self, named: str | None) -> str:
        """Return whether a zip archive has numpy arrays or is a workbook; refuse others."""
        if named == WORKBOOK or any(each in self.head for each in _IN_WORKBOOK):
            return WORKBOOK
        if named != "npz" and b".npy" not in self.head[_FIRST_NAME]:
            raise BadFile(
                f"{self.name}: expected {WORDS}, got a zip archive; load what is in it instead"
            )
        return "npz"

    def _text_format(self, encoding: str | None, told: str | None) -> str:
        """Return the given or detected format of a text; convert its head to UTF-8."""
        found = (
            (encoding, "as told")
            if encoding
            else guess_encoding(self.head, is_whole=self.is_whole_head)
        )
        if found is not None and (found[0] != UTF8 or encoding):
            is_binary = b"\x00" in self.head[:4096] and found[1].startswith("a guess")
            if not is_binary:
                self.encoding, self._encoding_words = found
                decoder = codecs.getincrementaldecoder(self.encoding)(_ERRORS)
                try:
                    text = decoder.decode(self.head, final=self.is_whole_head)
                except UnicodeError as error:
                    raise BadFile(
                        f"{self.name}: expected text in {self.encoding}, got other bytes ({error})"
                    ) from None
                self.head = text.removeprefix(_MARK).encode(UTF8, "surrogatepass")
        if told is not None:
            self._require_text(told)
            return told
        if foreign := next((words for start, words in _FOREIGN if start.match(self.head)), None):
            raise BadFile(f"{self.name}: expected {WORDS}, got {foreign}")
        first = self.head.lstrip()[:1]
        known = (
            each.name
            for each in FORMATS.values()
            if each.pattern is not None and each.pattern.match(self.head)
        )
        if first in (b"[", b"{") and (by_pattern := next(known, None)):
            return by_pattern
        named = None if self.path is None else _format_of_name(self.path)
        if first == b"{" or (first == b"[" and named in (None, "ndjson")):
            return "ndjson"
        self._require_text(WORDS)
        if named is not None and named != WORKBOOK:  # some programs name text files .xls
            return named
        if by_pattern := next(known, None):
            return by_pattern
        lines = self.head.splitlines()
        line = next((each for each in lines if b"\t" in each or not each.startswith(b"#")), b"")
        return "tsv" if line.count(b"\t") > line.count(b",") else "csv"

    def _require_text(self, expected: str) -> None:
        zero = self.head.find(b"\x00", 0, 4096)
        if zero >= 0:
            where = "at its start" if zero < _START else f"before its byte {zero}, which is 0"
            got = f"{self.head[max(0, zero - _START) : max(zero, _START)]!r} {where}"
            raise BadFile(f"{self.name}: expected {expected}, got {got}")

    def _read(self) -> Generator[bytes]:
        """Yield the bytes of the file from its beginning; standard input stays open."""
        self.read_bytes = 0
        with nullcontext(self._once) if self.path is None else self.path.open("rb") as raw:
            while piece := raw.read(_BUFFER_BYTES):
                self.read_bytes += len(piece)
                yield piece

    def _decompress(self) -> Generator[bytes]:
        """Yield the file from its beginning, decompressed."""
        with io.BufferedReader(_Stream(self._read()), _BUFFER_BYTES) as raw:
            stream: Any = raw
            magic = raw.peek(_MAGIC_BYTES)
            if magic.startswith(_GZIP):
                stream = gzip.GzipFile(fileobj=raw)
            elif magic.startswith(_XZ):
                stream = io.BufferedReader(_Stream(_members(raw, lzma.LZMADecompressor)))
            elif _BZIP2.match(magic):
                stream = io.BufferedReader(_Stream(_members(raw, bz2.BZ2Decompressor)))
            elif magic.startswith(_ZSTD):
                import pyarrow as pa  # noqa: PLC0415

                stream = pa.CompressedInputStream(pa.PythonFile(raw), "zstd")
            self._is_compressed = stream is not raw
            try:
                while piece := stream.read(_BUFFER_BYTES):
                    yield piece
            except StoreFailed:
                raise
            except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
                if stream is raw:
                    raise
                raise BadFile(
                    f"{self.name}: expected a whole compressed file, got one that ends early "
                    f"or is damaged ({error})"
                ) from None

    def words(self, format_: str) -> str:
        """Return the name of a text format, with its encoding unless that is plain UTF-8."""
        return (
            f"{format_} in {self.encoding} ({self._encoding_words})" if self.encoding else format_
        )

    def open(self) -> BinaryIO:
        """Return the file from its beginning, decompressed, and text as UTF-8.

        Raises BadFile for standard input that has been read before.
        """
        if self._text is not None:
            return io.BytesIO(self._text)
        if self.path is not None:
            pieces = self._decompress()
        elif self._first is not None:
            pieces, self._first = self._first, None
        else:
            raise BadFile(f"{self.name}: it can be read only once, and cannot be sent again")
        if self.encoding:
            pieces = _to_utf8(pieces, self.encoding)
        return io.BufferedReader(_Stream(pieces), _BUFFER_BYTES)

    @property
    def first_lines(self) -> list[bytes]:
        """The complete lines of the head."""
        lines = self.head.splitlines(keepends=True)
        is_cut = not self.is_whole_head and not self.head.endswith((b"\n", b"\r"))
        return lines[:-1] if is_cut and len(lines) > 1 else lines

    def lines(self) -> Iterator[bytes]:
        """Yield the lines from the beginning; carriage returns alone also end lines."""
        with io.TextIOWrapper(self.open(), "latin-1", newline="") as stream:
            yield from (line.encode("latin-1") for line in stream)

    def become(self, text: bytes) -> None:
        """Replace the contents by a UTF-8 text that was made from the file."""
        self._text, self.head = text, text[:HEAD_BYTES]
        self.is_whole_head = len(text) <= HEAD_BYTES

    @property
    def is_made(self) -> bool:
        """Whether `open` returns a text that was made from the file."""
        return self._text is not None

    def random_access(self) -> Path | BinaryIO:
        """Return the file with random access: its path, or a temporary copy.

        Ranges of an object in a store are requested separately.
        """
        if self.path is not None and not self._is_compressed:
            return self.path if isinstance(self.path, Path) else self.path.random_access()
        if self._copy is None:
            self._copy = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115  # see close
            with self.open() as stream:
                shutil.copyfileobj(stream, self._copy, _BUFFER_BYTES)
        self._copy.seek(0)
        return self._copy


def _members(raw: BinaryIO, new: Callable[[], Any]) -> Generator[bytes]:
    """Yield the contents of concatenated streams of bzip2 or xz, with optional zero padding.

    The classes of the standard library ignore damaged data after the first stream.
    """
    rest = raw.read(_BUFFER_BYTES)
    while rest:
        member = new()
        while not member.eof:
            if member.needs_input and not rest:
                raise EOFError("its last stream is cut")
            yield member.decompress(rest, _BUFFER_BYTES)
            rest = raw.read(_BUFFER_BYTES) if member.needs_input and not member.eof else b""
        rest = member.unused_data.lstrip(b"\0")
        while not rest and (piece := raw.read(_BUFFER_BYTES)):
            rest = piece.lstrip(b"\0")


def rejected_path(file: InputFile | Folder) -> Path:
    """Return the path for rejected rows of a file: beside it, or in the working directory."""
    place = file.path or "stdin"
    return Path(f"{place if isinstance(place, Path | str) else place.name}.rejected.ndjson")


class Folder:
    """A folder whose files are one table; folder names in it may hold values.

    It has the attributes of `InputFile`: the bytes of all files, the last change of any.
    """

    def __init__(self, path: Path | StoredPath, encoding: str | None = None) -> None:
        self.path = path
        self.encoding = encoding
        self.name = str(path)
        self.files = _visible_files(path)
        found = [each.stat() for each in self.files]
        self.size_bytes = sum(each.st_size for each in found)
        self.modified_ns = max(each.st_mtime_ns for each in found)
        self.version = versions(self.files)
        self.read_bytes = 0
        self.format = _format_of_name(self.files[0]) or ""

    def keys(self, file: Path | StoredPath) -> dict[str, str | None]:
        """Return the values in the names of a file's folders: ``key=value``."""
        parts = [part.partition("=") for part in _within(file, self.path)[:-1]]
        return {
            unquote(key): None if value == _NO_VALUE else unquote(value)
            for key, equals, value in parts
            if equals
        }

    def whole_keys(self) -> dict[str, bool]:
        """Return for each such key whether all its values are canonical whole numbers."""
        found: dict[str, bool] = {}
        for key, value in (pair for file in self.files for pair in self.keys(file).items()):
            is_whole = value is None or _WHOLE.fullmatch(value) is not None
            found[key] = found.get(key, True) and is_whole
        return found

    def close(self) -> None:
        """Do nothing: no file is open."""


def input_files(
    path: str, encoding: str | None, warn: Callable[[str], None] = lambda _: None
) -> Iterator[InputFile | Folder]:
    """Yield a file, a folder that is one table, or the files of another folder, by name.

    Empty files of a folder are skipped: programs that write in parts write them. ``warn`` is called
    with a message for each.

    Raises StoreFailed if the store of an address does not answer, NoRows if the file or all files
    are empty.
    """
    place = None if path == STDIN else place_of(path)
    if place is None or not place.is_dir():
        yield InputFile(path if place is None else place, encoding)
        return
    files = _visible_files(place, warn)
    names = {_format_of_name(each) for each in files}
    only = FORMATS.get(names.pop() or "") if len(names) == 1 else None
    if only is not None and only.is_table and not (only.name == "arrow" and _is_stream(files[0])):
        yield Folder(place, encoding)
        return
    values = {part for each in files for part in _within(each, place)[:-1] if "=" in part}
    if values:
        told = list_some(sorted(values))
        warn(f"{path}: {told} left out: names of folders count in those of CSV, Parquet or Arrow")
    yield from files_with_rows(files, encoding, warn)


def files_with_rows(
    places: Sequence[Path | StoredPath],
    encoding: str | None,
    warn: Callable[[str], None] = lambda _: None,
) -> Iterator[InputFile]:
    """Yield the non-empty files of a folder; see `input_files`."""
    empty: list[NoRows] = []
    for place in places:
        try:
            file = InputFile(place, encoding)
        except NoRows as error:
            empty.append(error)
            warn(f"{place}: empty, and left out")
        else:
            yield file
    if len(empty) == len(places):
        raise empty[-1]


def require_distinct(files: Iterable[InputFile | Folder]) -> None:
    """Raise BadFile if a file occurs twice, such as by its folder and by its own name."""
    seen = set[str]()
    for each in files:
        for place in each.files if isinstance(each, Folder) else [each.path]:
            found = str(place.resolve() if isinstance(place, Path) else place)
            if found in seen:
                raise BadFile(f"{place}: expected each file once, got it twice")
            seen.add(found)


def require_same(files: Iterable[InputFile | Folder]) -> None:
    """Raise BadFile if a file has changed since it was opened."""
    known: list[tuple[Path | StoredPath, int | str]] = []
    for each in files:
        if isinstance(each, Folder):
            known += zip(each.files, each.version, strict=True)
        elif each.path is not None:
            known.append((each.path, each.version))
    now = versions(replace(each) if isinstance(each, StoredPath) else each for each, _ in known)
    for (place, before), found in zip(known, now, strict=True):
        if found != before:
            raise BadFile(f"{place}: expected the same file until the end, got another one")


def _is_stream(file: Path | StoredPath) -> bool:
    """Return whether a file of Arrow is a stream, as in datasets of Hugging Face."""
    try:
        with closing(InputFile(file)) as opened:
            return opened.format == "arrow stream"
    except BadFile:  # raised again when it is read
        return False


def _visible_files(
    folder: Path | StoredPath, warn: Callable[[str], None] = lambda _: None
) -> list[Path] | list[StoredPath]:
    """Return the files of a folder and its subfolders by name.

    Hidden files are left out, and those that describe others; ``warn`` is called with these.
    """

    def is_visible(file: Path | StoredPath) -> bool:
        return not any(part.startswith((".", "_")) for part in _within(file, folder))

    if (folder / "_delta_log").is_dir():
        advice = "deltalake reads it, and DeltaTable(…).to_pyarrow_table() is one to add"
        raise BadFile(
            f"{folder}: expected files whose rows all count, got a table of Delta Lake; {advice}"
        )
    every = folder.files() if isinstance(folder, StoredPath) else sorted(_files_within(folder))
    found: list[Any] = [*filter(is_visible, every)]
    if not found:
        raise BadFile(f"{folder}: expected files in this folder, got none")
    rows = [each for each in found if not _DESCRIPTIONS.fullmatch(each.name)]
    if any(_format_of_name(each) == "arrow" for each in rows):
        rows = [each for each in rows if not _STATES.fullmatch(each.name)]
    if rows and len(rows) < len(found):
        told = list_some([each.name for each in found if each not in rows])
        warn(f"{folder}: {told} left out: without rows")
    return rows or found


def _files_within(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders; OSError if one of these cannot be read.

    `Path.rglob` would skip such a folder.
    """

    def fail(error: OSError) -> NoReturn:
        raise error

    for place, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [each for each in folders if not each.startswith((".", "_"))]
        yield from (path for name in names if (path := Path(place, name)).is_file())


def _within(file: Any, folder: Any) -> tuple[str, ...]:
    """Return the parts of a file's path relative to a folder."""
    parts: tuple[str, ...] = file.relative_to(folder).parts
    return parts


def _format_of_name(path: Path | StoredPath) -> str | None:
    """Return the format that a file's name shows, compressed or not."""
    suffixes = [each.lower() for each in path.suffixes]
    plain = [each for each in suffixes if each not in (".gz", ".zst", ".zstd", ".xz", ".bz2")]
    ends = plain[-1:] if plain[-1:] != [".zip"] else ["".join(plain[-2:])]
    found = (each.name for each in FORMATS.values() if plain and ends[0] in each.suffixes)
    return next(found, None)


def find_repeated(words: Iterable[Word]) -> Word | None:
    """Return the first repeated word; None if all differ."""
    return next((word for word, count in Counter(words).items() if count > 1), None)


def list_some(words: Sequence[str], count: int = 4) -> str:
    """Return the first words for people, and … if there are more."""
    return ", ".join(words[:count]) + ", …" * (len(words) > count)


@contextmanager
def naming_damage(name: str, format_: str, *others: type[Exception]) -> Iterator[None]:
    """Add the file's name, or the one that Arrow reports, to library errors about damage."""
    try:
        yield
    except StoreFailed:
        raise
    except _DAMAGED + others as error:
        found, text = _IN_FILE.search(str(error)), str(error).split("\n", 1)[0][:200]
        name = found[1] if found else name
        raise BadFile(f"{name}: expected {format_}, got an unreadable file: {text}") from None


# Encodings of text


def _mark_bad(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return _BAD_CHARACTER, error.end


codecs.register_error(_ERRORS, _mark_bad)


def is_encoding(name: str) -> bool:
    """Whether Python can decode text of this encoding."""
    try:
        return codecs.lookup(name)._is_text_encoding
    except LookupError:
        return False


def guess_encoding(head: bytes, *, is_whole: bool) -> tuple[str, str] | None:
    """Return the encoding of a text by its head, and how it was detected.

    A byte order mark determines it. Without one it is UTF-8 if most of the characters beyond ASCII
    are valid, and otherwise the best guess of charset-normalizer. None without a guess.
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name, "by its byte order mark"
    try:
        codecs.getincrementaldecoder(UTF8)().decode(head, final=is_whole)
    except UnicodeDecodeError:
        pass
    else:
        return UTF8, ""
    text = head.decode(UTF8, "replace")
    if len(_BEYOND_ASCII.findall(text)) > text.count("\ufffd"):
        return UTF8, "but for some characters"
    found = _best_guess(head)
    return None if found is None else (found, "a guess; --encoding names another")


def _best_guess(head: bytes) -> str | None:
    """Return the best guess; ties go to western, and last to encodings of old Macintoshes.

    If most bytes beyond ASCII are isolated, as in *25 °C* or *niño*, the alphabet is Latin: a few
    of them also look like a Chinese word.
    """
    from charset_normalizer import from_bytes  # noqa: PLC0415  # UTF-8 is read without it

    def doubt(match: CharsetMatch) -> tuple[float, bool, bool, float, float]:
        beyond = _BEYOND_ASCII.findall(str(match))
        letters = sum(map(str.isalpha, beyond)) / max(1, len(beyond))
        is_western = _WESTERN in match.could_be_from_charset
        is_old = match.encoding.startswith("mac_")
        # Last, since few words resemble those of some language by chance.
        return match.chaos, not is_western, is_old, -letters, -match.coherence

    foreign = (line for line in head.splitlines(keepends=True) if not line.isascii())
    sample = b"".join(foreign)[:_SAMPLE_BYTES]
    runs = re.findall(rb"[\x80-\xff]+", sample)
    is_latin = sum(map(len, runs)) <= _FEW_TOGETHER * len(runs) and _NOT_WESTERN.isdisjoint(sample)
    found = from_bytes(sample, cp_isolation=[*_LATIN] if is_latin else None)
    best = min(found, key=doubt, default=None)
    if best is None:
        return _WESTERN if is_latin else None
    return _WESTERN if _WESTERN in best.could_be_from_charset else str(best.encoding)


def _to_utf8(pieces: Generator[bytes], encoding: str) -> Generator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(_ERRORS)
    is_start = True
    with closing(pieces):
        for piece in chain(pieces, [b""]):
            text = decoder.decode(piece, final=not piece)
            yield (text.removeprefix(_MARK) if is_start else text).encode(UTF8, "surrogatepass")
            is_start = is_start and not text


def _head_end(start: bytes) -> int:
    """Return the end of a file's head; 0 if more must be read to find it."""
    if len(start) >= _MAX_HEAD_BYTES or b"\x00" in start[:4096]:
        return HEAD_BYTES
    line_end, end = b"\n" if b"\n" in start else b"\r", 0
    for _ in range(_FIRST_LINES):
        end = start.find(line_end, end) + 1
        if not end:
            return 0
    return max(end, HEAD_BYTES)


def _prepend(head: bytes, rest: Generator[bytes]) -> Generator[bytes]:
    with closing(rest):
        yield head
        yield from rest
