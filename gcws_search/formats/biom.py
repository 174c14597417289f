"""BIOM: samples become items, their metadata payloads, and observations names of coordinates.

Version 2 is HDF5 and read in batches of samples. Version 1 is JSON and read as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any, Final

import numpy as np

from gcws_search.formats.files import BadFile, InputFile, list_some, naming_damage
from gcws_search.formats.items import texts_of
from gcws_search.formats.payloads import read_json
from gcws_search.formats.records import Entry, read_records
from gcws_search.formats.sources import Source
from gcws_search.index import InvalidId

_SAMPLES: Final = 1024
"""Samples that are read at a time."""
_WORDS: Final = "a table of BIOM"


_Samples = Callable[[], Iterator[tuple[str, Entry]]]
_Table = tuple[list[str], int, Iterable[str], _Samples]
"""Names of observations, the number of samples, their fields, and what yields them."""


def read_biom(source: Source) -> None:
    """Read BIOM. Raises BadFile for version 2 if h5py is not installed."""
    file = source.only_file
    version = 1 if file.head.lstrip()[:1] == b"{" else 2
    observations, size, fields, samples = (_read_json if version == 1 else _read_hdf5)(file)
    if len({*observations}) < len(observations):
        raise BadFile(f"{file.name}: expected observations of different names, got one twice")
    if not size:
        raise BadFile(f"{file.name}: expected samples, got none")
    source.rows = size
    read_records(
        source,
        samples,
        lambda entry: entry,
        format_=f"BIOM {version}, {size} samples",
        ids=None if source.choices.id == "" else "sample",
        vector=f"sparse, by name: {len(observations)} observations",
        fields=fields,
        show=attrgetter("id"),
    )


def _read_json(file: InputFile) -> _Table:
    with naming_damage(file.name, _WORDS, InvalidId):
        with file.open() as stream:
            found = read_json(stream.read())
        observations = texts_of([row["id"] for row in found["rows"]])
        ids = texts_of([column["id"] for column in found["columns"]])
        metadata = [dict(column.get("metadata") or {}) for column in found["columns"]]
        columns = [*zip(ids, metadata, strict=True)]
        if found["matrix_type"] == "dense":
            matrix = _matrix(found["data"], len(columns)).reshape(len(observations), len(columns))
            rows, samples = matrix.nonzero()
            values = matrix[rows, samples]
        else:
            data = _matrix(found["data"], 3)
            rows, samples, values = data.T
        told, shape = found.get("shape"), [len(observations), len(columns)]
        if told is not None and told != shape:
            raise ValueError(f"expected rows and columns as in 'shape' {told}, got {shape}")
        _require_places(rows, len(observations))
        _require_places(samples, len(columns))
        order = np.argsort(samples, kind="stable")
        indptr = np.searchsorted(samples[order], np.arange(len(columns) + 1))

    def read_samples() -> Iterator[tuple[str, Entry]]:
        for number, (id_, metadata) in enumerate(columns):
            part = order[indptr[number] : indptr[number + 1]]
            kept = {name: value for name, value in metadata.items() if value is not None}
            names = [observations[int(place)] for place in rows[part]]
            yield f"sample {id_!r}", Entry(names, values[part].tolist(), id_, kept)

    fields = dict.fromkeys(name for _, metadata in columns for name in metadata)
    return observations, len(columns), fields, read_samples


def _matrix(rows: Any, width: int) -> Any:
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != width:
            got = f"{len(row)} of them" if isinstance(row, list) else repr(row)
            raise ValueError(f"expected a list of {width} numbers in row {number}, got {got}")
    return np.array(rows, np.float64).reshape(-1, width)


def _require_places(places: Any, count: int) -> None:
    bad = places[(places < 0) | (places >= count) | (places % 1 != 0)]
    if len(bad):
        raise ValueError(f"expected places from 0 to {count - 1}, got {bad[0]:g}")


def _read_hdf5(file: InputFile) -> _Table:
    try:
        import h5py  # noqa: PLC0415  # of the extra `biom`
    except ImportError:
        raise BadFile(
            f"{file.name}: expected h5py, which reads BIOM 2, the only HDF5 that is loaded; "
            "install gcws-search[biom]"
        ) from None
    place = file.random_access()
    with naming_damage(file.name, _WORDS), h5py.File(place, "r") as opened:
        if "observation/ids" not in opened:
            raise BadFile(
                f"{file.name}: expected BIOM 2, with observation/ids, got HDF5 with "
                f"{list_some([*opened])}; numpy.save saves an array as .npy, "
                "scipy.sparse.save_npz a sparse matrix as .npz"
            )
        observations = _texts(opened["observation/ids"][:])
        count = len(opened["sample/ids"])
        fields = [*opened.get("sample/metadata", ())]
    return observations, count, fields, partial(_samples, file, observations)


def _samples(file: InputFile, observations: list[str]) -> Iterator[tuple[str, Entry]]:
    import h5py  # noqa: PLC0415

    with naming_damage(file.name, _WORDS), h5py.File(file.random_access(), "r") as opened:
        matrix, fields = opened["sample/matrix"], opened.get("sample/metadata", {})
        count = len(opened["sample/ids"])
        for first in range(0, count, _SAMPLES):
            rows = slice(first, min(first + _SAMPLES, count))
            indptr = matrix["indptr"][first : rows.stop + 1].astype(np.int64)
            places = matrix["indices"][indptr[0] : indptr[-1]]
            _require_places(places, len(observations))
            values = matrix["data"][indptr[0] : indptr[-1]]
            metadata = {name: _values(fields[name][rows]) for name in fields}
            for row, id_ in enumerate(_texts(opened["sample/ids"][rows])):
                part = slice(*(indptr[row : row + 2] - indptr[0]))
                kept = {
                    name: column[row]
                    for name, column in metadata.items()
                    if column[row] not in (None, "")
                }
                names = [observations[at] for at in places[part]]
                yield f"sample {id_!r}", Entry(names, values[part].tolist(), id_, kept)


def _texts(column: Any) -> list[str]:
    return [each.decode() if isinstance(each, bytes) else str(each) for each in column]


def _values(column: Any) -> list[Any]:
    """Return a column of metadata as JSON values, without blanks at the ends of lists."""
    found: list[Any] = []
    for value in column.tolist():
        if isinstance(value, list):
            found.append([text for text in _texts(value) if text])
        elif isinstance(value, bytes):
            found.append(value.decode())
        else:
            found.append(None if value != value else value)  # noqa: PLR0124  # NaN
    return found
