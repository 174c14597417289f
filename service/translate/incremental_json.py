"""Reading long JSON a piece at a time, so that other threads get in between.

A compiled parser keeps Python's lock until it is done, with 32 MiB for about a second, and nobody
else is answered meanwhile. So a long text is cut at commas outside of strings, in whatever arrays
and objects they are, and each piece is parsed by itself. A piece is wrapped in placeholders for
what was cut off, so a text that is not valid JSON is refused in pieces, too.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json

PIECE_BYTES: Final = 1 << 17
"""Parsed in one or two milliseconds."""

_MAX_DEEP: Final = 200
"""About as deep as the parser itself goes."""
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SHORT: Final = rb'[^"\[\]{}]{1,1024}+'  # a stretch of numbers, words, commas, colons


def _within(inner: bytes, limit: int) -> bytes:
    """Return what matches an array or object of at most ``limit`` strings, stretches and matches.

    The group is atomic. A possessive one needs less memory, and is left at a wrong place
    by Python 3.11.0 to 3.11.4 when one of its ways fails half-way (gh-106052).
    """
    return rb"[\[{](?>(?:%s|%s%s){0,%d})[\]}]" % (_SHORT, _STRING, inner, limit)


# Most of what is in a long text is short, and passed over at once: an item with its vector. Whether
# its brackets fit each other is the parser's to say.
_SMALL: Final = _within(b"|" + _within(b"|" + _within(b"", 8), 16), 16)
_ONE: Final = re.compile(rb'[^"\[\]{}]{1,65536}+|%s|%s|[\[\]{}]' % (_STRING, _SMALL), re.DOTALL)
_SOME: Final = re.compile(rb"(?>(?:%s|%s|%s){1,8})|[\[\]{}]" % (_SHORT, _STRING, _SMALL), re.DOTALL)
_CLOSING: Final = {b"[": b"]", b"{": b"}"}


def parse(text: bytes, *, piece_bytes: int = PIECE_BYTES) -> Any:  # noqa: ANN401
    """Return the value of a JSON text.

    Parameters
    ----------
    text : bytes
    piece_bytes : int
        About so much is parsed at a time; a string is not cut.

    Raises
    ------
    ValueError
        It is not JSON.
    """
    return _Cutter(text, piece_bytes).value()


@dataclass(slots=True)
class _Open:
    """An array or object that is not closed yet; the text itself is the outermost.

    Attributes
    ----------
    closing : bytes
        What closes it; nothing closes the text.
    began : int
        Where it begins.
    start : int
        Where that of it begins which is not parsed yet.
    cut : bool
        Whether part of it has been parsed: then ``start`` is just behind an entry.
    entries : list
    members : dict
        What has been parsed of it; one of them is used.
    """

    closing: bytes
    began: int
    start: int
    cut: bool = False
    entries: list[Any] = field(default_factory=list)
    members: dict[str, Any] = field(default_factory=dict)


class _Cutter:
    def __init__(self, text: bytes, piece_bytes: int) -> None:
        self._text = text
        self._piece_bytes = piece_bytes
        self._word = secrets.token_hex(16)  # no text has it
        self._named = b'"%s"' % self._word.encode()
        self._open = [_Open(b"", 0, 0)]

    def value(self) -> Any:  # noqa: ANN401
        text, stack = self._text, self._open
        place = 0
        while place < len(text):
            due = place - stack[-1].start > self._piece_bytes
            token = (_ONE if due else _SOME).match(text, place)
            if token is None:
                raise ValueError(f"a string that does not end, at byte {place}")
            began, place = place, token.end()
            first = text[began : began + 1]
            if place == began + 1 and first in _CLOSING:
                if len(stack) > _MAX_DEEP:
                    raise ValueError(f"more than {_MAX_DEEP} levels, at byte {began}")
                stack.append(_Open(_CLOSING[first], began, place))
            elif first in b"]}":
                self._close(first, began)
            elif due and first not in b'"[{':
                self._cut(text.rfind(b",", began, place))
        outermost = stack.pop()
        if stack:
            raise ValueError(f"expected {outermost.closing.decode()!r}, got the end")
        if not outermost.cut:
            return self._parsed(b"", 0, place, b"")
        self._require_blank(outermost.start, place)
        return outermost.entries[0]

    def _cut(self, comma: int) -> None:
        """Parse what there is up to a comma of the innermost array or object."""
        inner = self._open[-1]
        if comma < 0 or not inner.closing:
            return
        if inner.closing == b"]":
            inner.entries += self._array(inner, comma + 1, b"null")[:-1]
        else:
            inner.members.update(self._object(inner, comma + 1, self._named + b":0"))
        inner.start, inner.cut = comma, True

    def _close(self, closing: bytes, place: int) -> None:
        """Take note that the innermost array or object ends; parse the rest of one that was cut."""
        inner = self._open.pop()
        if inner.closing != closing:
            raise ValueError(f"expected {inner.closing.decode()!r}, got another, at byte {place}")
        if not inner.cut:  # it is parsed as part of what it is in
            return
        if closing == b"]":
            inner.entries += self._array(inner, place, b"")
            self._put(self._open[-1], inner.entries, inner.began)
        else:
            inner.members.update(self._object(inner, place, b""))
            self._put(self._open[-1], inner.members, inner.began)
        self._open[-1].start, self._open[-1].cut = place + 1, True

    def _put(self, outer: _Open, value: Any, place: int) -> None:  # noqa: ANN401
        """Parse what stands before a value that begins at a place, and add both."""
        if outer.closing == b"]":
            outer.entries += [*self._array(outer, place, b"null")[:-1], value]
        elif outer.closing:
            members = self._object(outer, place, self._named)
            [name] = (name for name, held in members.items() if held == self._word)
            outer.members.update(members | {name: value})
        else:
            self._require_blank(outer.start, place)
            if outer.cut:
                raise ValueError(f"expected the end, got more, at byte {place}")
            outer.entries.append(value)

    def _array(self, inner: _Open, end: int, behind: bytes) -> list[Any]:
        """Return the entries of an array from its start to a place, and what is put behind them."""
        if not inner.cut:
            return list(self._parsed(b"[", inner.start, end, behind + b"]"))
        return list(self._parsed(b"[null", inner.start, end, behind + b"]")[1:])

    def _object(self, inner: _Open, end: int, behind: bytes) -> dict[str, Any]:
        before = b"{" + self._named + b":0" if inner.cut else b"{"
        members: dict[str, Any] = self._parsed(before, inner.start, end, behind + b"}")
        members.pop(self._word, None)
        return members

    def _parsed(self, before: bytes, start: int, end: int, behind: bytes) -> Any:  # noqa: ANN401
        try:
            return from_json(before + self._text[start:end] + behind)
        except ValueError as error:
            what = str(error).partition(" at line ")[0]
            raise ValueError(f"{what} between bytes {start} and {end}") from None

    def _require_blank(self, start: int, end: int) -> None:
        if self._text[start:end].strip(b" \t\r\n"):
            raise ValueError(f"expected one value, got more, between bytes {start} and {end}")
