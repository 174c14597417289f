"""Vectors and items of a program, and files as items: each by the module that reads it.

A module is imported when it is needed: those of tables load pyarrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from gcws_search.formats.items import Items, ids_of
from gcws_search.formats.payloads import payloads_of
from gcws_search.formats.vectors import is_frame, parse_rows, require_many
from gcws_search.index import InputVectors, InvalidParameter

if TYPE_CHECKING:
    from gcws_search.formats.files import Folder, InputFile
    from gcws_search.formats.sources import Choices, Source


def rows_of(data: Any) -> InputVectors:
    """Return vectors of any kind as rows: see `formats.vectors.parse_rows`, and of a frame `guess`.

    Raises
    ------
    InvalidVector
    """
    if is_frame(data):
        from gcws_search.formats.frames import rows_of_frame  # noqa: PLC0415  # loads pyarrow

        return rows_of_frame(data)
    return parse_rows(data)


def items_of(
    data: Any, ids: Any = None, payloads: Any = None, id_start: int | None = None
) -> Items:
    """Return what a caller has as items.

    Parameters
    ----------
    data : array, sparse matrix, frame, sequence of vectors, or iterable of items
        See `formats.vectors.parse_rows` and `formats.frames.items_of_frame`. An item has the
        attributes ``id``, ``vector`` and ``payload``, as those have that a collection yields, or
        is a dict of these, as the API has it.
    ids : sequence, str or None
        None takes those of the data, or numbers the rows from ``id_start``. Of a frame: the name of
        a column, or "index".
    payloads : dict of columns, sequence, or None
        See `formats.payloads.payloads_of`. Of a frame also: names of columns.
    id_start : int or None
        None: the collection numbers rows without ids.

    Raises
    ------
    InvalidVector, InvalidId, InvalidPayload, InvalidParameter
    """
    if is_frame(data):
        from gcws_search.formats.frames import items_of_frame  # noqa: PLC0415  # loads pyarrow

        return items_of_frame(data, ids, payloads, id_start)
    if isinstance(ids, str):
        raise InvalidParameter(
            expected="the ids, or the name of a column where the data are a frame",
            got=repr(ids),
            loc=("ids",),
        )
    if not hasattr(data, "__array__") and not hasattr(data, "tocsr"):
        require_many(data)
        data = list(data)
        if data and all(map(_is_document, data)):
            data = [SimpleNamespace(**{"id": None, "payload": None} | each) for each in data]
        if data and all(hasattr(each, "vector") and hasattr(each, "id") for each in data):
            if ids is None and any(each.id is not None for each in data):
                ids = [each.id for each in data]
            payloads = [each.payload for each in data] if payloads is None else payloads
            data = [each.vector for each in data]
    rows = parse_rows(data)
    count = len(rows)
    if hasattr(payloads, "__arrow_c_stream__"):
        from gcws_search.formats.frames import payload_columns  # noqa: PLC0415

        payloads = payload_columns(payloads)
    texts = None if payloads is None else payloads_of(payloads, count)
    return Items(ids_of(ids, count, id_start), rows, texts)


def _is_document(each: Any) -> bool:
    """Return whether this is an item as JSON has it, and no vector with a name ``vector``."""
    return (
        isinstance(each, Mapping)
        and set(each) <= {"id", "vector", "payload"}
        and isinstance(each.get("vector"), Mapping | Sequence | np.ndarray)
    )


def source_of(file: InputFile | Folder, choices: Choices) -> Source:
    """Return a file as items; its first rows have been read.

    Raises
    ------
    BadFile, GcwsError
    """
    from gcws_search.formats.files import BadFile, InputFile  # noqa: PLC0415
    from gcws_search.formats.sources import naming  # noqa: PLC0415

    with naming(file):
        if not isinstance(file, InputFile):
            from gcws_search.formats.folders import read_folder  # noqa: PLC0415

            return read_folder(file, choices)
        if file.format == "feather 1":
            raise BadFile(f"{file.name}: expected Feather version 2 (Arrow), got version 1")
        if file.format == "ndjson":
            from gcws_search.formats.lines import read_lines  # noqa: PLC0415

            return read_lines(file, choices)
        if file.format in ("npy", "npz"):
            from gcws_search.formats.arrays import read_arrays  # noqa: PLC0415

            return read_arrays(file, choices)
        if file.format == "svmlight":
            from gcws_search.formats.arrays import read_svmlight  # noqa: PLC0415

            return read_svmlight(file, choices)
        if file.format in ("csv", "tsv"):
            from gcws_search.formats.delimited import read_csv  # noqa: PLC0415

            return read_csv(file, choices)
        from gcws_search.formats.arrow_files import read_arrow  # noqa: PLC0415

        return read_arrow(file, choices)
