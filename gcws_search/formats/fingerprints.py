"""Fingerprints of chemfp: FPS has sets of bits in hexadecimal, FPC counts of features."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile
from typing import Final

import numpy as np

from gcws_search.formats.files import BadFile, InputFile
from gcws_search.formats.records import Entry, head_lines, numbered_lines, read_records, show_line
from gcws_search.formats.sources import Source

_BYTE: Final = 8
_FEATURES: Final = 2**64
_FEATURE: Final = re.compile(r"([0-9]{1,20})(?::([0-9]{1,15}))?")
_EMPTY: Final = "*"


def read_fps(source: Source) -> None:
    """Read FPS: bit n of a fingerprint is coordinate n.

    The number of bits is in the header, or else that of the first fingerprint.
    """
    file, header, first = _begin(source, "FPS")
    text = header.get("num_bits") or str(_BYTE * (len(first) // 2))
    if not re.fullmatch("0*[1-9][0-9]{0,9}", text):
        raise BadFile(f"{file.name}: expected a number of bits as num_bits, got {text!r:.40}")
    size = int(text)
    digits = 2 * (-(-size // _BYTE))

    def parse(line: bytes) -> Entry:
        fields = _fields(line)
        if len(fields[0]) != digits:
            raise BadFile(f"expected {digits} hexadecimal digits, got {len(fields[0])}")
        try:
            content = bytes.fromhex(fields[0])
        except ValueError:
            raise BadFile(f"expected hexadecimal digits, got {fields[0]!r:.60}") from None
        unpacked = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
        bits = np.flatnonzero(unpacked).tolist()
        if bits and bits[-1] >= size:
            raise BadFile(f"expected {size} bits, got bit {bits[-1]}")
        return Entry(bits, [1.0] * len(bits), fields[1])

    source.dim = size
    _finish(source, parse, header, f"sparse, {size} bits", by_name=False)


def read_fpc(source: Source) -> None:
    """Read FPC: features are integers of up to 64 bits, and become names of coordinates."""
    _, header, _ = _begin(source, "FPC")
    _finish(source, _counts, header, "sparse, by name: counts of features", by_name=True)


def _counts(line: bytes) -> Entry:
    """Return the counts of ``1,8:3``: feature 1 once, and feature 8 three times."""
    text, id_ = _fields(line)
    names: list[str] = []
    counts: list[float] = []
    for word in [] if text == _EMPTY else text.split(","):
        found = _FEATURE.fullmatch(word)
        count = 1 if found is None or found[2] is None else int(found[2])
        if found is None or int(found[1]) >= _FEATURES or not count:
            raise BadFile(f"expected a feature of 64 bits and a count above 0, got {word!r:.60}")
        names.append(str(int(found[1])))
        counts.append(count)
    return Entry(names, counts, id_)


def _begin(source: Source, format_: str) -> tuple[InputFile, dict[str, str], str]:
    """Return the file, the fields of its header, and the first fingerprint."""
    file = source.only_file
    header: dict[str, str] = {}
    for line in takewhile(lambda line: line.startswith(b"#"), file.head.splitlines()):
        key, equals, value = line[1:].decode(errors="replace").partition("=")
        if equals:
            header[key] = value.strip()
    problem = f"expected fingerprints of {format_}, got none"
    for number, line in enumerate(head_lines(file)):
        try:
            return file, header, _fields(line)[0]
        except (BadFile, UnicodeDecodeError) as error:
            problem = problem if number else str(error)
    raise BadFile(f"{file.name}: {problem}")


def _finish(
    source: Source,
    parse: Callable[[bytes], Entry],
    header: dict[str, str],
    vector: str,
    *,
    by_name: bool,
) -> None:
    file = source.only_file
    read_records(
        source,
        lambda: numbered_lines(file),
        parse,
        format_=file.format.upper() + (f", {header['type']}" if "type" in header else ""),
        ids=None if source.choices.id == "" else "the second column",
        vector=vector,
        by_name=by_name,
        show=show_line,
    )


def _fields(line: bytes) -> tuple[str, str]:
    """Return a fingerprint and its id, without fields after the id."""
    fingerprint, _, rest = line.decode().strip("\r\n").replace("\t", " ", 1).partition(" ")
    id_ = rest.partition("\t")[0].strip()
    if not fingerprint or not id_:
        raise BadFile(f"expected a fingerprint, a tab and an id, got {show_line(line)!r:.60}")
    return fingerprint, id_
