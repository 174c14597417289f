"""Long JSON objects, counted before anything is made of them and cut where they can be.

A compiled parser keeps Python's lock until it is done, and makes objects that take up to 400 times
the text. So brackets and commas outside of strings are counted first, in blocks of the text, by
NumPy without the lock. What is in each piece is for the parser to say: a piece has whole values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from pydantic_core import from_json

from gcws_search.index import AnyArray

PIECE_BYTES: Final = 1 << 17
"""Parsed in one or two milliseconds."""
_BLOCK_BYTES: Final = 1 << 18
_MAX_DEEP: Final = 200
"""About as deep as the parser itself goes."""
_MAX_MEMBERS: Final = 256
_QUOTE, _COMMA = ord('"'), ord(",")
_IN_LIST: Final = 2
"""Depth of a comma between the entries of a member."""
_CASE: Final = 32
"""Between square and curly brackets, in ASCII."""
_NAME: Final = re.compile(
    rb'[ \t\r\n]*+("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\r\n]*+:[ \t\r\n]*+', re.DOTALL
)
BLANK: Final = b" \t\r\n"


class Size(NamedTuple):
    """How much there is in a stretch of text.

    Attributes
    ----------
    containers : int
        Arrays and objects.
    values : int
        These, and commas.
    """

    containers: int = 0
    values: int = 0

    def plus(self, containers: np.int32, values: np.int32) -> Size:
        """Return what is in a stretch that has so much more."""
        return Size(self.containers + int(containers), self.values + int(values))

    def minus(self, other: Size) -> Size:
        """Return what is in one stretch and not in another within it."""
        return Size(self.containers - other.containers, self.values - other.values)


@dataclass(slots=True)
class Member:
    """A member of the outermost object.

    Attributes
    ----------
    name : str
    has_name : bool
        False where a name and a value are missing.
    start, stop : int
        Where its value lies in the text.
    is_list : bool
    commas : int
        Between the entries of a list.
    cuts : list of (int, int, Size)
        Some of these commas: the place, the number of the entry behind it, and what is before it.
    began, ended : Size
        What is before the value, and before its end.
    """

    name: str
    has_name: bool
    start: int
    began: Size
    ended: Size
    is_list: bool
    stop: int = 0
    commas: int = 0
    cuts: list[tuple[int, int, Size]] = field(default_factory=list)

    @property
    def size(self) -> Size:
        """How much there is in the value."""
        return self.ended.minus(self.began)

    def count(self, text: bytes) -> int:
        """Return the number of a list's entries."""
        is_empty = not self.commas and not text[self.start + 1 : self.stop - 1].strip(BLANK)
        return 0 if is_empty else self.commas + 1

    def pieces(self, text: bytes) -> Iterator[tuple[int, Size, bytes]]:
        """Yield the entries of a list as lists: the first one's number, how much, and the text.

        Raises
        ------
        ValueError
            There is nothing where an entry should be.
        """
        first, last = (self.start, 0, self.began), (self.stop - 1, 0, self.ended)
        for (start, number, before), (stop, _, until) in pairwise((first, *self.cuts, last)):
            piece = text[start + 1 : stop]
            if self.commas and not piece.strip(BLANK):
                raise ValueError(f"expected a value, got none between bytes {start} and {stop}")
            yield number, until.minus(before), b"[%s]" % piece


def count_entries(text: bytes) -> int:
    """Return the number of entries of a text that is an array.

    Raises
    ------
    ValueError
    """
    wrapped = b'{"":%s}' % text
    [member] = members(wrapped)
    return member.count(wrapped)


def members(text: bytes, *, piece_bytes: int = PIECE_BYTES) -> list[Member]:
    """Return the members of a text that is an object; what is in their values is not looked at.

    Parameters
    ----------
    text : bytes
    piece_bytes : int
        Lists are cut into pieces of about this length, and no entry.

    Raises
    ------
    ValueError
        It is not JSON.
    """
    outline = _Outline(text, piece_bytes)
    for block in _blocks(text):
        outline.add(*block)
    return outline.members()


def _blocks(text: bytes) -> Iterator[tuple[AnyArray, AnyArray]]:
    """Yield where brackets and commas outside of strings are, and which, a block at a time.

    Raises
    ------
    ValueError
    """
    inside, is_escaped = 0, False
    for start in range(0, len(text), _BLOCK_BYTES):
        block = text[start : start + _BLOCK_BYTES]
        if is_escaped:
            block = b"." + block[1:]
        is_escaped = False
        if b"\\" in block:
            block = block.replace(rb"\\", b"..").replace(rb"\"", b"..")
            is_escaped = block.endswith(b"\\")
        codes = np.frombuffer(block, np.uint8)
        quotes = np.add.accumulate((codes == _QUOTE).view(np.uint8), dtype=np.uint8)
        quotes += np.uint8(inside)  # modulo 256
        folded = codes | _CASE
        found = ((folded == ord("{")) | (folded == ord("}")) | (codes == _COMMA)) & (
            quotes & 1 == 0
        )
        places = np.flatnonzero(found)
        inside = int(quotes[-1]) & 1
        yield places + start, codes[places]
    if inside:
        raise ValueError("a string that does not end")


class _Outline:
    """The members found so far."""

    def __init__(self, text: bytes, piece_bytes: int) -> None:
        self._text = text
        self._piece_bytes = piece_bytes
        self._found: list[Member] = []
        self._depth = 0
        self._size = Size()
        self._end = 0

    def add(self, places: AnyArray, codes: AnyArray) -> None:
        """Take note of the brackets and commas of a block."""
        if not len(places):
            return
        folded = codes | _CASE
        opens, closes = folded == ord("{"), folded == ord("}")
        commas = codes == _COMMA
        depths = np.cumsum(opens.view(np.int8) - closes.view(np.int8), dtype=np.int32)
        depths += self._depth
        containers = np.cumsum(opens, dtype=np.int32)
        values = np.cumsum(~closes, dtype=np.int32)
        if depths.max() > _MAX_DEEP:
            raise ValueError(f"more than {_MAX_DEEP} levels")
        of_lists = np.flatnonzero(commas & (depths == _IN_LIST))
        done = 0
        for at in np.flatnonzero(depths <= 1 - closes.view(np.int8)).tolist():
            upto = int(np.searchsorted(of_lists, at))
            self._pass(places, containers, values, of_lists[done:upto])
            done = upto
            self._step(int(places[at]), self._size.plus(containers[at], values[at]))
        self._pass(places, containers, values, of_lists[done:])
        self._depth = int(depths[-1])
        self._size = self._size.plus(containers[-1], values[-1])

    def _pass(
        self, places: AnyArray, containers: AnyArray, values: AnyArray, commas: AnyArray
    ) -> None:
        """Count commas between the entries of the last member, and cut at some of them."""
        if not self._found or not len(commas):
            return
        member = self._found[-1]
        where, first = places[commas], 0
        last = member.cuts[-1][0] if member.cuts else member.start
        while member.is_list:
            first = int(np.searchsorted(where, last + self._piece_bytes, "right"))
            if first == len(where):
                break
            at, last = int(commas[first]), int(where[first])
            size = self._size.plus(containers[at], values[at])
            member.cuts.append((last, member.commas + first + 1, size))
        member.commas += len(commas)

    def _step(self, place: int, size: Size) -> None:
        """Pass a bracket or comma of the outermost object."""
        code, is_first = self._text[place : place + 1], not self._found
        if self._end or code in b"[]" or is_first != (code == b"{"):
            raise ValueError(f"expected one object, got another bracket or comma, at byte {place}")
        if is_first and self._text[:place].strip(BLANK):
            raise ValueError(f"expected an object, got something before it, at byte {place}")
        if not is_first:
            self._finish(place, size, code)
        if code == b"}":
            self._end = place + 1
        else:
            self._begin(place + 1, size)

    def _begin(self, place: int, size: Size) -> None:
        if len(self._found) == _MAX_MEMBERS:
            raise ValueError(f"expected at most {_MAX_MEMBERS} members of an object, got more")
        found = _NAME.match(self._text, place)
        name, start = (from_json(found[1]), found.end()) if found else ("", place)
        is_list = self._text[start : start + 1] == b"["
        member = Member(name, found is not None, start, is_list=is_list, began=size, ended=size)
        self._found.append(member)

    def _finish(self, place: int, size: Size, code: bytes) -> None:
        member = self._found[-1]
        value = self._text[member.start : place].rstrip(BLANK)
        if not value and not member.has_name and code == b"}" and len(self._found) == 1:
            self._found.clear()  # an empty object
            return
        if not value or not member.has_name or (member.is_list and value[-1:] != b"]"):
            raise ValueError(f"expected a name and a value before byte {place}")
        member.stop, member.ended = member.start + len(value), size

    def members(self) -> list[Member]:
        """Return the members, when all of the text has been added."""
        if not self._end or self._text[self._end :].strip(BLANK):
            got = "more" if self._end else "the end"
            raise ValueError(f"expected one object, got {got}")
        return self._found
