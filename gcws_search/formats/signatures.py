"""Signatures of sourmash: JSON, or a zip archive of it; hashes are names of coordinates."""

from __future__ import annotations

import gzip
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import orjson

from gcws_search.formats.files import BadFile, InputFile, list_some, naming_damage
from gcws_search.formats.records import Entry, read_records
from gcws_search.formats.sources import Source

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|(?P<cut>\\?\Z))|[{}]', re.DOTALL)
"""What tells where an object of JSON ends: texts, perhaps cut off, and braces."""
_PIECE_BYTES: Final = 1 << 20
_HASHES: Final = 2**64
_ZIP: Final = b"PK"
_AMINO: Final = ("protein", "dayhoff", "hp")
_BASES: Final = 3
"""Of an amino acid: in files sourmash counts k in bases."""


class _Kind(NamedTuple):
    """Properties that comparable sketches share."""

    ksize: int
    moltype: str
    scaled: int
    num: int

    def __str__(self) -> str:
        size = f"scaled {self.scaled}" if self.scaled else f"num {self.num}"
        return f"k {self.ksize} {self.moltype} {size}"


_Sketch = tuple[_Kind, dict[str, Any], dict[str, Any]]
"""The kind of a sketch, fields of the signature that it is of, and its content."""


def read_signatures(source: Source) -> None:
    """Read signatures; twice, since all sketches must be of one kind.

    An id is the name of a signature if all have one, otherwise its md5.
    """
    file, choices = source.only_file, source.choices
    kinds: Counter[_Kind] = Counter()
    unnamed = 0
    for _, (kind, fields, _) in _sketches(source, file):
        kinds[kind] += 1
        unnamed += not fields["name"]
    if not kinds:
        size = f" of k {choices.ksize}" if choices.ksize else ""
        kind_ = f" of {choices.moltype}" if choices.moltype else ""
        raise BadFile(f"{file.name}: expected sketches{size}{kind_}, got none")
    if len(kinds) > 1:
        raise BadFile(f"{file.name}: {_differences([*kinds])}")
    [kind] = kinds
    id_ = choices.id if choices.id is not None else "md5" if unnamed else "name"
    if id_ not in ("", "name", "md5", "filename"):
        raise BadFile(f"{file.name}: expected name, md5 or filename for --id, got {id_!r}")

    def parse(sketch: _Sketch) -> Entry:
        _, told, content = sketch
        hashes = content["mins"]
        weights = content.get("abundances") or [1] * len(hashes)
        if len(weights) != len(hashes):
            raise BadFile(f"expected {len(hashes)} abundances, got {len(weights)}")
        bad = next((each for each in weights if type(each) is not int or each < 1), None)
        if bad is not None:
            raise BadFile(f"expected abundances that are whole numbers above 0, got {bad!r:.40}")
        fields = {name: value for name, value in told.items() if value}
        return Entry([*map(str, hashes)], weights, fields.pop(id_, None), fields)

    source.settled |= {"ksize": kind.ksize, "moltype": kind.moltype}
    source.rows = kinds.total()
    read_records(
        source,
        lambda: _sketches(source, file),
        parse,
        format_=f"sourmash, {kinds.total()} sketches, {kind}",
        ids=id_ or None,
        vector="sparse, by name: hashes and their abundances, 1 where there are none",
        fields=[name for name in _FIELDS if name != id_],
        show=lambda sketch: sketch[1],
    )


_FIELDS: Final = ("name", "filename", "md5", "ksize", "moltype", "scaled", "num")


def _differences(kinds: list[_Kind]) -> str:
    """Return the differences between sketches, and the options that choose some."""
    told = list_some([*map(str, kinds)])
    advice = "sourmash sig downsample makes them alike"
    if len({kind.moltype for kind in kinds}) > 1:
        advice = "--moltype chooses"
    if len({kind.ksize for kind in kinds}) > 1:
        advice = "--ksize chooses"
    return f"expected sketches of one kind, got {told}; {advice}"


def _sketches(source: Source, file: InputFile) -> Iterator[tuple[str, _Sketch]]:
    choices = source.choices
    for place, text in _objects(file):
        try:
            signature = orjson.loads(text)
            found = [_sketch(signature, each) for each in signature["signatures"]]
        except (ValueError, KeyError, TypeError) as error:
            raise BadFile(
                f"{file.name}: {place}: expected a signature of sourmash, got {text[:40]!r} "
                f"({type(error).__name__} {error})"
            ) from None
        for sketch in found:
            is_size = choices.ksize in (None, sketch[0].ksize)
            if is_size and choices.moltype in (None, sketch[0].moltype):
                yield place, sketch


def _sketch(signature: dict[str, Any], content: dict[str, Any]) -> _Sketch:
    moltype = str(content["molecule"]).lower()
    ksize = int(content["ksize"]) // (_BASES if moltype in _AMINO else 1)
    highest = int(content.get("max_hash", 0))
    kind = _Kind(ksize, moltype, round(_HASHES / highest) if highest else 0, int(content["num"]))
    if not {*map(type, content["mins"])} <= {int}:
        raise TypeError("mins that are not whole numbers of 64 bits")
    fields = {
        "name": signature.get("name"),
        "filename": signature.get("filename"),
        "md5": content["md5sum"],
        **kind._asdict(),
    }
    return kind, fields, content


def _objects(file: InputFile) -> Iterator[tuple[str, bytes]]:
    """Yield the JSON text of each signature, and its place."""
    place = file.random_access()
    if not file.head.startswith(_ZIP):
        with place.open("rb") if isinstance(place, Path) else nullcontext(place) as stream:
            for number, text in enumerate(split_objects(stream, file.name)):
                yield f"signature {number}", text
        return
    with naming_damage(file.name, "a whole archive"), zipfile.ZipFile(place) as archive:
        for name in archive.namelist():
            if name.endswith((".sig", ".sig.gz")):
                with archive.open(name) as raw:
                    inner: Any = gzip.GzipFile(fileobj=raw) if name.endswith(".gz") else raw
                    for text in split_objects(inner, f"{file.name}: {name}"):
                        yield name, text


def split_objects(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the text of each outermost object of a list, read in pieces."""
    text, start, at, depth = b"", 0, 0, 0
    while piece := stream.read(_PIECE_BYTES):
        text = text[start:] + piece  # begins with an incomplete object
        at, start = at - start, 0
        for token in _TOKEN.finditer(text, at):
            at = token.start()
            if token["cut"] is not None:
                break
            at = token.end()
            if token[0] == b"{":
                start = token.start() if depth == 0 else start
                depth += 1
            elif token[0] == b"}":
                depth -= 1
                if depth == 0:
                    yield text[start:at]
        else:
            at = len(text)
        if depth == 0:
            start = at
    if depth:
        raise BadFile(f"{name}: expected a whole list of signatures, got one that ends early")
