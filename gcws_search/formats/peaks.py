"""Spectra of MGF and MSP: peaks in bins, titles or names as ids, other fields as payload."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from gcws_search.formats.files import BadFile, InputFile
from gcws_search.formats.records import Entry, read_number, read_records
from gcws_search.formats.sources import Source
from gcws_search.index import InvalidVector
from gcws_search.spectra import bins

_BIN: Final = 0.01
_COMMENTS: Final = (b"#", b";", b"!", b"/")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_CHARGE: Final = re.compile(r"([+-]?)(\d{1,9})([+-]?)")
_QUOTED: Final = re.compile(r'"[^"]*"')
"""An annotation of a peak."""
_PRECURSOR: Final = "precursor_mz"
_NAMES: Final = {"pepmass": _PRECURSOR, "precursormz": _PRECURSOR}
"""Of fields that MGF and MSP call differently."""
_COUNT: Final = "num_peaks"


class _Record(NamedTuple):
    """Non-blank lines of a spectrum, and the error at its end, if any."""

    lines: list[bytes]
    common: list[bytes]
    problem: str | None = None


_Spectrum = tuple[dict[str, Any], list[str]]
"""Fields, and peaks as they stand in the file."""


def read_mgf(source: Source) -> None:
    """Read MGF: the lines between BEGIN IONS and END IONS are a spectrum."""
    _read(source, "MGF", _mgf_records, _mgf_spectrum, "title")


def read_msp(source: Source) -> None:
    """Read MSP: a spectrum begins with its name."""
    _read(source, "MSP", _msp_records, _msp_spectrum, "name")


def _read(
    source: Source,
    format_: str,
    records: Callable[[Iterable[bytes], str], Iterator[tuple[str, _Record]]],
    spectrum: Callable[[_Record], _Spectrum],
    usual_id: str,
) -> None:
    file, choices = source.only_file, source.choices
    width = _BIN if choices.bin is None else choices.bin
    if not 0 < width < math.inf:
        raise BadFile(f"{file.name}: expected a width above 0 for --bin, got {width}")
    shown, problem = _first_fields(file, records, spectrum)
    if not shown and problem:
        raise BadFile(f"{file.name}: {problem}")
    if not shown:
        raise BadFile(f"{file.name}: expected spectra of {format_}, got none")
    key = usual_id if choices.id is None else choices.id.lower()
    named = [fields.get(key) for fields in shown]
    if choices.id and not named[0]:
        known = ", ".join(shown[0])
        raise BadFile(f"{file.name}: expected a field {key!r} for --id, got {known}")
    repeats = choices.id is None and len({*named}) < len(named)
    has_ids = bool(key and named[0]) and not repeats
    parse = partial(_entry, spectrum=spectrum, id_=key if has_ids else None, width=width)

    advice = "" if choices.bin is not None else "; --bin says otherwise"
    fields = dict.fromkeys(
        name for fields in shown for name in fields if name != key or not has_ids
    )
    read_records(
        source,
        lambda: records(file.lines(), file.name),
        parse,
        format_=file.words(format_),
        ids=key if has_ids else None,
        vector=f"sparse, peaks in two grids of bins of {width:g}{advice}",
        fields=fields,
        by_name=False,
        show=lambda record: b"\n".join(record.lines).decode(errors="replace"),
    )
    if repeats and named[0]:
        what = f"{key!r} is no id, for several spectra have the same; --id names another field"
        source.guess.append(("left out", what))


def _first_fields(
    file: InputFile,
    records: Callable[[Iterable[bytes], str], Iterator[tuple[str, _Record]]],
    spectrum: Callable[[_Record], _Spectrum],
) -> tuple[list[dict[str, Any]], str]:
    """Return the fields of the first spectra of a file, and the error of the first bad one.

    Bad ones are skipped. A spectrum that is only cut by the end of the head has no error.
    """
    found: list[dict[str, Any]] = []
    problem = ""
    for place, record in records(file.head.splitlines(keepends=True), file.name):
        try:
            found.append(spectrum(record)[0])
        except (BadFile, UnicodeDecodeError) as error:
            problem = problem or f"{place}: {error}"
    if file.is_whole_head:
        return found, problem
    return (found if len(found) == 1 else found[:-1]), ""


def _entry(
    record: _Record, spectrum: Callable[[_Record], _Spectrum], id_: str | None, width: float
) -> Entry:
    fields, peaks = spectrum(record)
    pairs = [_peak(text) for text in peaks]
    try:
        vector = bins([mz for mz, _ in pairs], [height for _, height in pairs], width)
    except InvalidVector as error:
        raise BadFile(f"expected {error.expected}, got {error.got}") from None
    name = None if id_ is None else fields.pop(id_, None)
    payload = {field: _value(field, text) for field, text in fields.items()}
    return Entry([*vector], [*vector.values()], name, payload)


def _peak(text: str) -> tuple[float, float]:
    first, *others = text.split(maxsplit=2)
    words = [first.removesuffix(","), *others] if others else first.split(",")  # 1,5 is not 1.5
    try:
        return read_number(words[0]), read_number(words[1].removesuffix(","))
    except (ValueError, IndexError):
        raise BadFile(f"expected a peak as 'm/z intensity', got {text!r:.60}") from None


def _value(field: str, text: str) -> Any:
    """Return a field's text as a number or a charge if it is one."""
    if field == "charge" and (found := _CHARGE.fullmatch(text)):
        return -int(found[2]) if "-" in (found[1], found[3]) else int(found[2])
    if field == _PRECURSOR:
        text = text.split(maxsplit=1)[0]  # its intensity may follow
    if not _NUMBER.fullmatch(text) or math.isinf(number := float(text)):
        return text
    return number if {*text} & {*".eE"} else int(text)


def _add(fields: dict[str, Any], name: str, value: str) -> None:
    """Add a field by its usual name; skip blank and repeated ones."""
    key = "_".join(name.lower().split())
    if value.strip():
        fields.setdefault(_NAMES.get(key, key), value.strip())


# MGF


def _mgf_records(stream: Iterable[bytes], name: str) -> Iterator[tuple[str, _Record]]:
    common: list[bytes] = []
    lines: list[bytes] | None = None
    place = ""
    for number, line in enumerate(stream, 1):
        text = line.strip()
        if not text or text.startswith(_COMMENTS):
            continue
        if text.upper() == b"BEGIN IONS":
            if lines is not None:
                yield place, _Record(lines, common, "expected END IONS, got BEGIN IONS again")
            lines, place = [], f"line {number}"
        elif lines is None:
            if b"=" not in text:
                raise BadFile(f"{name}: line {number}: expected BEGIN IONS, got {text[:40]!r}")
            common.append(text)
        elif text.upper() == b"END IONS":
            yield place, _Record(lines, common)
            lines = None
        else:
            lines.append(text)
    if lines is not None:
        yield place, _Record(lines, common, "expected END IONS, got the end of the file")


def _mgf_spectrum(record: _Record) -> _Spectrum:
    if record.problem:
        raise BadFile(record.problem)
    fields: dict[str, Any] = {}
    peaks: list[str] = []
    for line in [*record.lines, *record.common]:
        text = line.decode()
        name, equals, value = text.partition("=")
        if equals and name[:1].isalpha():
            _add(fields, name, value)
        else:
            peaks.append(text)
    return fields, peaks


# MSP


def _msp_records(stream: Iterable[bytes], name: str) -> Iterator[tuple[str, _Record]]:
    lines: list[bytes] = []
    place = ""
    for number, line in enumerate(stream, 1):
        text = line.strip()
        if text[:5].lower() == b"name:":
            if lines:
                yield place, _Record(lines, [])
            lines, place = [], f"line {number}"
        elif text and not place:
            raise BadFile(f"{name}: line {number}: expected 'Name: …', got {text[:40]!r}")
        if text:
            lines.append(text)
    if lines:
        yield place, _Record(lines, [])


def _msp_spectrum(record: _Record) -> _Spectrum:
    fields: dict[str, Any] = {}
    peaks: list[str] = []
    for line in record.lines:
        text = line.decode()
        if _COUNT in fields:
            peaks += [part.strip() for part in _QUOTED.sub("", text).split(";") if part.strip()]
            continue
        name, colon, value = text.partition(":")
        if not colon:
            raise BadFile(f"expected 'Num Peaks: …' before the peaks, got {text!r:.60}")
        _add(fields, name, value)
    count = fields.pop(_COUNT, None)
    if count is None:
        raise BadFile("expected 'Num Peaks: …' before the peaks, got none")
    if str(len(peaks)) != count:
        raise BadFile(f"expected {count} peaks, as 'Num Peaks' says, got {len(peaks)}")
    return fields, peaks
