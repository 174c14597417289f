"""Files as bytes from their beginning, and the table of formats; a new format has a row there."""

from __future__ import annotations

import gzip
import io
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast
from urllib.parse import unquote

from gcws_search.formats.encodings import UTF8, Utf8Reader, guess_encoding, utf8


class Format(NamedTuple):
    """A format: the function below `formats` that fills a `Source`, and how its files are known.

    ``magic`` is how a binary file begins, ``pattern`` how a text does whose name says nothing.
    ``is_table``: a folder of such files is one table, which ``reader`` reads, too.
    """

    name: str
    reader: str
    suffixes: tuple[str, ...] = ()
    magic: bytes = b""
    pattern: re.Pattern[bytes] | None = None
    is_table: bool = False


_SVMLIGHT: Final = re.compile(
    rb"(#.*\n)*[-+.\deE]+(,[-+.\deE]+)*( qid:\d+)?( \d+:\S+)+ *(#.*)?\r?(\n|$)"
)
FORMATS: Final = {
    each.name: each
    for each in (
        Format("csv", "delimited.read_csv", (".csv",), is_table=True),
        Format("tsv", "delimited.read_csv", (".tsv", ".tab"), is_table=True),
        Format("ndjson", "lines.read_lines", (".ndjson", ".jsonl")),
        Format("parquet", "arrow_files.read_arrow", (".parquet",), b"PAR1", is_table=True),
        Format(
            "arrow", "arrow_files.read_arrow", (".arrow", ".feather", ".ipc"), b"ARROW1",
            is_table=True,
        ),
        Format("arrow stream", "arrow_files.read_arrow", (), b"\xff\xff\xff\xff"),
        Format("npy", "arrays.read_arrays", (".npy",), b"\x93NUMPY"),
        Format("npz", "arrays.read_arrays", (".npz",), b"PK\x03\x04"),
        Format(
            "svmlight", "arrays.read_svmlight", (".svmlight", ".svm", ".libsvm"), b"", _SVMLIGHT
        ),
    )
}  # fmt: skip
WORDS: Final = "CSV, NDJSON, Parquet, Arrow, .npy, .npz or svmlight"

STDIN: Final = "-"
HEAD_BYTES: Final = 1 << 20
"""How much of a file is looked at before anything is decided."""
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_FEATHER_1: Final = b"FEA1"
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""How files of Excel before 2007 begin."""
_WORKBOOK: Final = (".xlsx", ".xlsm", ".xls", ".ods")
_FIRST_NAME: Final = slice(30, 300)
"""Where a zip archive has the name of its first file."""
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_BUFFER_BYTES: Final = 1 << 20


class BadFile(Exception):
    """A file cannot be read as expected; the message is one sentence that names it."""


class _Stream(io.RawIOBase):
    """A stream whose beginning may have been read already; closes the streams below it.

    ``count`` is called with the number of bytes of each piece.
    """

    def __init__(
        self,
        rest: BinaryIO,
        *below: BinaryIO,
        head: bytes = b"",
        count: Callable[[int], None] | None = None,
    ) -> None:
        self._head = memoryview(head)
        self._rest = rest
        self._below = below
        self._count = count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if len(self._head):
            size = min(len(buffer), len(self._head))
            buffer[:size], self._head = self._head[:size], self._head[size:]
            return size
        piece = self._rest.read(len(buffer))
        buffer[: len(piece)] = piece
        if self._count is not None:
            self._count(len(piece))
        return len(piece)

    def close(self) -> None:
        if not self.closed:
            for each in (self._rest, *self._below):
                if each is not sys.stdin.buffer:
                    each.close()
        super().close()


def _buffer(raw: io.RawIOBase) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(raw, _BUFFER_BYTES))


class InputFile:
    """A file to be read, perhaps several times; standard input can be read once.

    ``size_bytes`` is as it lies on the disk, compressed or not; ``read_bytes`` counts these since
    it was last opened. ``encoding`` is empty where it is no text, or its beginning is UTF-8.
    """

    def __init__(self, path: str, encoding: str | None = None) -> None:
        self.path = None if path == STDIN else Path(path)
        self.name = "standard input" if self.path is None else path
        self.read_bytes = 0
        self.size_bytes: int | None = None
        self.modified_ns = 0
        self._first: BinaryIO | None = None
        if self.path is not None:
            if not self.path.exists():
                raise BadFile(f"{path}: expected a file, got nothing of that name")
            if self.path.is_dir():
                raise BadFile(f"{path}: expected a file, got a folder")
            found = self.path.stat()
            self.size_bytes, self.modified_ns = found.st_size, found.st_mtime_ns
        self._copy: BinaryIO | None = None
        self.encoding = self.encoding_words = ""
        stream = self._decompress()
        try:
            self.head = start = self._read_head(stream)
        finally:
            if self.path is not None:
                stream.close()
        self.is_whole_head = len(self.head) < HEAD_BYTES
        self.format = self._binary_format() or self._text_format(encoding)
        if self.path is None:
            self._first = _buffer(_Stream(stream, head=start))

    def close(self) -> None:
        """Close the streams that are open."""
        for each in (self._first, self._copy):
            if each is not None:
                each.close()

    def _read_head(self, stream: BinaryIO) -> bytes:
        pieces: list[bytes] = []
        wanted = HEAD_BYTES
        try:
            while wanted and (piece := stream.read(wanted)):
                pieces.append(piece)
                wanted -= len(piece)
        except (OSError, EOFError) as error:
            raise cut_short(self.name, error) from None
        return b"".join(pieces)

    def _binary_format(self) -> str | None:
        if not self.head:
            raise BadFile(f"{self.name}: expected rows, got an empty file")
        named = None if self.path is None else _format_of_name(self.path)
        for each in FORMATS.values():
            if each.magic and self.head.startswith(each.magic):
                if each.name == "npz":
                    self._require_arrays(named)
                return each.name
        if self.head.startswith(_FEATHER_1):
            raise BadFile(f"{self.name}: expected Feather version 2 (Arrow), got version 1")
        if self.head.startswith(_OLE):
            raise self._workbook()
        if named is not None and FORMATS[named].magic:
            raise BadFile(
                f"{self.name}: expected {named}, as its name says, "
                f"got {self.head[:8]!r} at its start"
            )
        return None

    def _require_arrays(self, named: str | None) -> None:
        """Refuse a zip archive that has other things than arrays of numpy."""
        suffix = "" if self.path is None else self.path.suffix.lower()
        if suffix in _WORKBOOK or b"[Content_Types].xml" in self.head or b"xl/" in self.head:
            raise self._workbook()
        if named != "npz" and b".npy" not in self.head[_FIRST_NAME]:
            raise BadFile(
                f"{self.name}: expected {WORDS}, got a zip archive; load what is in it instead"
            )

    def _workbook(self) -> BadFile:
        return BadFile(
            f"{self.name}: expected {WORDS}, got a workbook of a spreadsheet; save its sheet as CSV"
        )

    def _text_format(self, encoding: str | None) -> str:
        """Return which format a text has; its beginning becomes UTF-8."""
        found = (
            (encoding, "as told")
            if encoding
            else guess_encoding(self.head, is_whole=self.is_whole_head)
        )
        if found is not None and (found[0] != UTF8 or encoding):
            is_binary = b"\x00" in self.head[:4096] and found[1].startswith("a guess")
            if not is_binary:
                self.encoding, self.encoding_words = found
                self.head = utf8(self.head, self.encoding, is_whole=self.is_whole_head)
        text = self.head.lstrip()
        if text[:1] == b"[":
            raise BadFile(
                f"{self.name}: expected a JSON object on each line, got a list; "
                f"jq -c '.[]' {self.path or ''} | gcws-search load - loads its objects"
            )
        if text[:1] == b"{":
            return "ndjson"
        if b"\x00" in self.head[:4096]:
            raise BadFile(f"{self.name}: expected {WORDS}, got {self.head[:8]!r} at its start")
        if self.path is not None and (named := _format_of_name(self.path)):
            return named
        for each in FORMATS.values():
            if each.pattern is not None and each.pattern.match(self.head):
                return each.name
        first = self.head.partition(b"\n")[0]
        return "tsv" if first.count(b"\t") > first.count(b",") else "csv"

    def _decompress(self) -> BinaryIO:
        raw: BinaryIO = sys.stdin.buffer if self.path is None else self.path.open("rb")
        self.read_bytes = 0
        counted = io.BufferedReader(_Stream(raw, count=self._count), _BUFFER_BYTES)
        magic = counted.peek(4)[:4]
        if magic.startswith(_GZIP):
            return _buffer(_Stream(cast(BinaryIO, gzip.GzipFile(fileobj=counted)), counted))
        if magic == _ZSTD:
            import pyarrow as pa  # noqa: PLC0415

            plain = pa.CompressedInputStream(pa.PythonFile(counted), "zstd")
            return _buffer(_Stream(plain, counted))
        return cast(BinaryIO, counted)

    def _count(self, size: int) -> None:
        self.read_bytes += size

    def open(self) -> BinaryIO:
        """Return the file from its beginning, decompressed, and text as UTF-8.

        Raises BadFile where it is standard input, and has been read before.
        """
        stream = self._open_bytes()
        return _buffer(Utf8Reader(stream, self.encoding)) if self.encoding else stream

    def _open_bytes(self) -> BinaryIO:
        if self.path is not None:
            return self._decompress()
        if self._first is None:
            raise BadFile("standard input: expected to be read once; it cannot be sent again")
        stream, self._first = self._first, None
        return stream

    def random_access(self) -> Path | BinaryIO:
        """Return the file so that any part can be read: its path, or a temporary copy."""
        if self.path is not None and not self._is_compressed(self.path):
            return self.path
        if self._copy is None:
            self._copy = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115  # see close
            with self._open_bytes() as stream:
                try:
                    shutil.copyfileobj(stream, self._copy, _BUFFER_BYTES)
                except (OSError, EOFError) as error:
                    raise cut_short(self.name, error) from None
        self._copy.seek(0)
        return self._copy

    @staticmethod
    def _is_compressed(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(4).startswith((_GZIP, _ZSTD))


class Folder:
    """A folder whose files are one table; names of folders in it may hold values.

    Its facts are those of `InputFile`: the bytes of all files, the last change of any.
    """

    def __init__(self, path: str, encoding: str | None = None) -> None:
        self.path = Path(path)
        self.encoding = encoding
        self.name = path
        self.files = _visible_files(self.path)
        found = [each.stat() for each in self.files]
        self.size_bytes = sum(each.st_size for each in found)
        self.modified_ns = max(each.st_mtime_ns for each in found)
        self.read_bytes = 0
        self.format = _format_of_name(self.files[0]) or ""

    def keys(self, path: Path) -> dict[str, str | None]:
        """Return what the names of the folders of a file say: ``key=value``."""
        parts = [part.partition("=") for part in path.relative_to(self.path).parts[:-1]]
        return {
            unquote(key): None if value == _NO_VALUE else unquote(value)
            for key, equals, value in parts
            if equals
        }

    def close(self) -> None:
        """Nothing is open."""


def input_files(path: str, encoding: str | None) -> Iterator[InputFile | Folder]:
    """Yield a file, a folder that is one table, or the files of another folder, by name."""
    if path == STDIN or not Path(path).is_dir():
        yield InputFile(path, encoding)
        return
    files = _visible_files(Path(path))
    names = {_format_of_name(each) for each in files}
    only = FORMATS.get(names.pop() or "") if len(names) == 1 else None
    if only is not None and only.is_table:
        yield Folder(path, encoding)
        return
    yield from (InputFile(str(each), encoding) for each in files)


def _visible_files(folder: Path) -> list[Path]:
    """Return the files of a folder and those within, but for hidden ones, by name."""
    found = [
        each
        for each in sorted(folder.rglob("*"))
        if each.is_file()
        and not any(part.startswith((".", "_")) for part in each.relative_to(folder).parts)
    ]
    if not found:
        raise BadFile(f"{folder}: expected files in this folder, got none")
    return found


def _format_of_name(path: Path) -> str | None:
    """Return the format that a file's name says it has, compressed or not."""
    suffixes = [each.lower() for each in path.suffixes]
    plain = [each for each in suffixes if each not in (".gz", ".zst", ".zstd")]
    found = (each.name for each in FORMATS.values() if plain and plain[-1] in each.suffixes)
    return next(found, None)


def cut_short(name: str, error: Exception) -> BadFile:
    """Return the error for a compressed file that ends early."""
    return BadFile(f"{name}: expected a whole compressed file, got one that ends early ({error})")


def not_readable(name: str, format_: str, error: Exception) -> BadFile:
    """Return the error for a file that a library cannot read."""
    text = str(error).split("\n", 1)[0][:200]
    return BadFile(f"{name}: expected {format_}, got what cannot be read: {text}")
