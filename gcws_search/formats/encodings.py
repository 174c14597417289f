"""Text in encodings other than UTF-8: detection, and conversion to UTF-8."""

from __future__ import annotations

import codecs
import io
import re
from typing import BinaryIO, Final

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_FOREIGN: Final = re.compile(rb"[^\n]*[\x80-\xff][^\n]*\n?")
_BEYOND_ASCII: Final = re.compile("[^\x00-\x7f\ufffd]")
_SAMPLE_BYTES: Final = 1 << 16
_PIECE_BYTES: Final = 1 << 20
_WESTERN: Final = "cp1252"
UTF8: Final = "utf-8"
BAD_BYTES: Final = b"\xed\xb3\xbf"
"""What stands in UTF-8 for bytes that could not be decoded; no reader of UTF-8 takes it."""
_BAD_CHARACTER: Final = "\udcff"


def _mark_bad(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return _BAD_CHARACTER, error.end


_ERRORS: Final = "gcws-search.mark"
codecs.register_error(_ERRORS, _mark_bad)


def is_encoding(name: str) -> bool:
    """Whether Python can decode text of this encoding."""
    try:
        return codecs.lookup(name)._is_text_encoding
    except LookupError:
        return False


def guess_encoding(head: bytes, *, is_whole: bool) -> tuple[str, str] | None:
    """Return the encoding of a text by its head, and how it was found.

    A byte order mark says it. Without one it is UTF-8 where most of the characters beyond ASCII
    are valid, and else the best guess of charset-normalizer. None where there is no guess.
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
    """Return the best guess; ties go to the encoding with the most letters."""
    from charset_normalizer import from_bytes  # noqa: PLC0415  # UTF-8 is read without it

    lines = b"".join(_FOREIGN.findall(head))[:_SAMPLE_BYTES]
    matches = [*from_bytes(lines)]
    if not matches:
        return None
    ranked = [(match.chaos, -match.coherence, match) for match in matches]
    chaos, coherence, best = min(ranked, key=lambda each: each[:2])
    ties = [match for *rank, match in ranked if rank == [chaos, coherence]]

    def doubt(match: object) -> tuple[float, bool]:
        beyond = _BEYOND_ASCII.findall(str(match))
        is_western = _WESTERN in match.could_be_from_charset  # type: ignore[attr-defined]
        return -sum(map(str.isalpha, beyond)) / max(1, len(beyond)), not is_western

    best = min(ties, key=doubt)
    return _WESTERN if _WESTERN in best.could_be_from_charset else str(best.encoding)


class Utf8Reader(io.RawIOBase):
    """A text of any encoding as UTF-8; what cannot be decoded becomes bytes that are none.

    ``raw`` is closed with it.
    """

    def __init__(self, raw: BinaryIO, encoding: str) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder(encoding)(_ERRORS)
        self._left = memoryview(b"")
        self._is_over = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer; return how many bytes there were."""
        while not self._left and not self._is_over:
            piece = self._raw.read(_PIECE_BYTES)
            self._is_over = not piece
            text = self._decoder.decode(piece, final=self._is_over)
            self._left = memoryview(text.encode(UTF8, "surrogatepass"))
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size

    def close(self) -> None:
        """Close the stream below, too."""
        if not self.closed:
            self._raw.close()
        super().close()


def utf8(head: bytes, encoding: str, *, is_whole: bool) -> bytes:
    """Return the beginning of a text as UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)(_ERRORS)
    return decoder.decode(head, final=is_whole).encode(UTF8, "surrogatepass")
