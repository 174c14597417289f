"""Input files: compressed or not, on disk or from standard input."""

from __future__ import annotations

import gzip
import io
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from gcws_search.formats.encodings import UTF8, Utf8Reader, guess_encoding, utf8

STDIN: Final = "-"
HEAD_BYTES: Final = 1 << 20
"""How much of a file is looked at before anything is decided."""

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_MAGIC: Final = {
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "zip",
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"FEA1": "feather 1",
    b"\xff\xff\xff\xff": "arrow stream",
}
_TABLES: Final = "CSV, NDJSON, Parquet, Arrow, .npy, .npz or svmlight"
_SVMLIGHT: Final = re.compile(
    rb"(#.*\n)*[-+.\deE]+(,[-+.\deE]+)*( qid:\d+)?( \d+:\S+)+ *(#.*)?\r?(\n|$)"
)
_SUFFIXES: Final = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".npy": "npy",
    ".npz": "npz",
    ".svmlight": "svmlight",
    ".svm": "svmlight",
    ".libsvm": "svmlight",
}


_FOLDERS: Final = {"csv", "tsv", "parquet", "arrow"}
"""Formats of folders that are one table."""
_FIRST_NAME: Final = slice(30, 300)
"""Where a zip archive has the name of its first file."""
_WORKBOOK: Final = (".xlsx", ".xlsm", ".xls", ".ods")
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""How files of Excel before 2007 begin."""


class BadFile(Exception):
    """A file cannot be read as expected; the message is one sentence that names it."""


class _Stream(io.RawIOBase):
    """A stream whose beginning may have been read already.

    Parameters
    ----------
    below : BinaryIO
        Closed with it.
    count : callable or None
        Called with the number of bytes of each piece.
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


class InputFile:
    """A file to be read, perhaps several times.

    Parameters
    ----------
    path : str
        "-" is standard input, which can be read once.
    encoding : str or None
        Of text; None guesses it.

    Attributes
    ----------
    name : str
        For people.
    size_bytes : int or None
        As it lies on the disk, compressed or not.
    read_bytes : int
        How many of these have been read since it was last opened.
    format : str
        By the first bytes, where these tell, else by the name.
    encoding, encoding_words : str
        Of text; empty where it is no text, or its beginning is UTF-8.
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
            self.head = start = _read(stream, HEAD_BYTES, self)
        finally:
            if self.path is not None:
                stream.close()
        self.is_whole_head = len(self.head) < HEAD_BYTES
        self.format = self._binary_format() or self._text_format(encoding)
        if self.path is None:
            self._first = cast(BinaryIO, io.BufferedReader(_Stream(stream, head=start), 1 << 20))

    def close(self) -> None:
        """Close the streams that are open."""
        for each in (self._first, self._copy):
            if each is not None:
                each.close()

    @property
    def is_repeatable(self) -> bool:
        """Whether the file can be read again."""
        return self.path is not None

    def _binary_format(self) -> str | None:
        if not self.head:
            raise BadFile(f"{self.name}: expected rows, got an empty file")
        named = None if self.path is None else format_of_name(self.path)
        for magic, name in _MAGIC.items():
            if self.head.startswith(magic):
                return self._zip_format(named) if name == "zip" else name
        if self.head.startswith(_OLE):
            raise self._workbook()
        if named in ("parquet", "npy", "npz", "arrow"):
            got = repr(self.head[:8])
            raise BadFile(
                f"{self.name}: expected {named}, as its name says, got {got} at its start"
            )
        return None

    def _zip_format(self, named: str | None) -> str:
        """Return what an archive is: arrays of numpy, and nothing else."""
        suffix = "" if self.path is None else self.path.suffix.lower()
        if suffix in _WORKBOOK or b"[Content_Types].xml" in self.head or b"xl/" in self.head:
            raise self._workbook()
        if named != "npz" and b".npy" not in self.head[_FIRST_NAME]:
            raise BadFile(
                f"{self.name}: expected {_TABLES}, got a zip archive; load what is in it instead"
            )
        return "npz"

    def _workbook(self) -> BadFile:
        return BadFile(
            f"{self.name}: expected {_TABLES}, got a workbook of a spreadsheet; "
            "save its sheet as CSV"
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
        named = None if self.path is None else format_of_name(self.path)
        text = self.head.lstrip()
        if text[:1] in (b"{", b"["):
            if text[:1] == b"[":
                raise BadFile(
                    f"{self.name}: expected a JSON object on each line, got a list; "
                    f"jq -c '.[]' {self.path or ''} | gcws-search load - loads its objects"
                )
            return "ndjson"
        if b"\x00" in self.head[:4096]:
            raise BadFile(f"{self.name}: expected {_TABLES}, got {self.head[:8]!r} at its start")
        if named:
            return named
        if _SVMLIGHT.match(self.head):
            return "svmlight"
        first = self.head.partition(b"\n")[0]
        return "tsv" if first.count(b"\t") > first.count(b",") else "csv"

    def _decompress(self) -> BinaryIO:
        raw: BinaryIO = sys.stdin.buffer if self.path is None else self.path.open("rb")
        self.read_bytes = 0
        counted = io.BufferedReader(_Stream(raw, count=self._count), 1 << 20)
        magic = counted.peek(4)[:4]
        if magic.startswith(_GZIP):
            return self._above(cast(BinaryIO, gzip.GzipFile(fileobj=counted)), counted)
        if magic == _ZSTD:
            import pyarrow as pa  # noqa: PLC0415

            plain = pa.CompressedInputStream(pa.PythonFile(counted), "zstd")
            return self._above(plain, counted)
        return cast(BinaryIO, counted)

    @staticmethod
    def _above(plain: BinaryIO, counted: Any) -> BinaryIO:
        raw = _Stream(plain, counted)
        return cast(BinaryIO, io.BufferedReader(raw, 1 << 20))

    def _count(self, size: int) -> None:
        self.read_bytes += size

    def open(self) -> BinaryIO:
        """Return the file from its beginning, decompressed, and text as UTF-8.

        Raises
        ------
        BadFile
            It is standard input, and has been read before.
        """
        stream = self._open_bytes()
        if not self.encoding:
            return stream
        return cast(BinaryIO, io.BufferedReader(Utf8Reader(stream, self.encoding), 1 << 20))

    def _open_bytes(self) -> BinaryIO:
        if self.path is not None:
            return self._decompress()
        if self._first is None:
            raise BadFile("standard input: expected to be read once; it cannot be sent again")
        stream, self._first = self._first, None
        return stream

    def random_access(self) -> Path | BinaryIO:
        """Return the file so that any part can be read: its path, or a temporary copy."""
        if self.path is not None and not self.head_is_compressed:
            return self.path
        if self._copy is None:
            self._copy = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115  # see close
            with self._open_bytes() as stream:
                try:
                    shutil.copyfileobj(stream, self._copy, 1 << 20)
                except (OSError, EOFError) as error:
                    raise cut_short(self.name, error) from None
        self._copy.seek(0)
        return self._copy

    @property
    def head_is_compressed(self) -> bool:
        """Whether the file on the disk is compressed."""
        assert self.path is not None
        with self.path.open("rb") as file:
            return file.read(4).startswith((_GZIP, _ZSTD))


class Folder:
    """A folder whose files are tables of one format; the names of folders in it may hold values.

    Parameters
    ----------
    encoding : str or None
        Of text; None guesses it.

    Attributes
    ----------
    name : str
        For people.
    size_bytes, modified_ns : int
        Of all files; of the one that changed last.
    read_bytes : int
        Of the files that have been read.
    """

    def __init__(self, path: str, encoding: str | None = None) -> None:
        self.path = Path(path)
        self.encoding = encoding
        self.name = path
        self.files = visible_files(self.path)
        if not self.files:
            raise BadFile(f"{path}: expected files in this folder, got none")
        found = [each.stat() for each in self.files]
        self.size_bytes = sum(each.st_size for each in found)
        self.modified_ns = max(each.st_mtime_ns for each in found)
        self.read_bytes = 0
        self.format = format_of_name(self.files[0]) or ""

    def close(self) -> None:
        """Nothing is open."""


def visible_files(folder: Path) -> list[Path]:
    """Return the files of a folder and those within, but for hidden ones, by name."""
    found = sorted(each for each in folder.rglob("*") if each.is_file())
    return [
        each
        for each in found
        if not any(part.startswith((".", "_")) for part in each.relative_to(folder).parts)
    ]


def is_table(folder: Path) -> bool:
    """Whether all files of a folder are tables of one format, by their names."""
    formats = {format_of_name(each) for each in visible_files(folder)}
    return len(formats) == 1 and formats <= _FOLDERS


def format_of_name(path: Path) -> str | None:
    """Return the format that a file's name says it has."""
    suffixes = [each.lower() for each in path.suffixes]
    plain = [each for each in suffixes if each not in (".gz", ".zst", ".zstd")]
    return _SUFFIXES.get(plain[-1]) if plain else None


def _read(stream: BinaryIO, size: int, file: InputFile) -> bytes:
    pieces: list[bytes] = []
    wanted = size
    try:
        while wanted and (piece := stream.read(wanted)):
            pieces.append(piece)
            wanted -= len(piece)
    except (OSError, EOFError) as error:
        raise cut_short(file.name, error) from None
    return b"".join(pieces)


def cut_short(name: str, error: Exception) -> BadFile:
    """Return the error for a compressed file that ends early."""
    return BadFile(f"{name}: expected a whole compressed file, got one that ends early ({error})")


def not_readable(name: str, format_: str, error: Exception) -> BadFile:
    """Return the error for a file that a library cannot read."""
    text = str(error).split("\n", 1)[0][:200]
    return BadFile(f"{name}: expected {format_}, got what cannot be read: {text}")
