"""Files of arrays: `.npy` and `.npz`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from gcws_search.formats.files import BadFile, list_some, naming_damage
from gcws_search.formats.items import Items, ids_of
from gcws_search.formats.payloads import column_values, from_columns
from gcws_search.formats.records import is_kept
from gcws_search.formats.sources import Source
from gcws_search.formats.vectors import rows_of
from gcws_search.index import InputVectors, quantity

_TWO_DIMENSIONS: Final = 2
_COMPRESSED: Final = {"data", "indices", "indptr", "shape", "format", "_is_array", "y"}
"""Arrays of a sparse matrix as scipy saves it, and labels."""


def read_arrays(source: Source) -> None:
    """Read an `.npy` or `.npz` file."""
    file = source.only_file
    place, labels, width, others = file.random_access(), None, None, set[str]()
    mode: Any = "r" if isinstance(place, Path) else None
    with naming_damage(file.name, f"a whole .{file.format} file"):
        try:
            loaded = np.load(place, mmap_mode=mode, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                rows = _matrix(loaded, file.name)
            else:
                with loaded:
                    rows, labels, width = _archive(loaded, file.name)
                    others = {*loaded.files} - ({"X", "y"} if "X" in loaded.files else _COMPRESSED)
        except ValueError as error:
            if "Object arrays" in str(error) or "Python objects" in str(error):
                advice = "astype(float) makes numbers of them, and astype(str) text of labels"
                words = f"expected arrays of numbers, or of text, got one of objects; {advice}"
                raise BadFile(f"{file.name}: {words}") from None
            raise
    count = len(rows)
    if not count:
        raise BadFile(f"{file.name}: expected rows, got none")
    payloads = None
    if labels is not None and labels.size and is_kept(source, "label"):
        if labels.shape != (count,):
            raise BadFile(f"{file.name}: expected {count} labels in 'y', got {labels.shape}")
        payloads = from_columns({"label": column_values(labels)}, count)
    source.array = Items(ids_of(None, count, source.choices.id_start), rows, payloads)
    source.rows, source.divides = count, True
    if rows.dense is None:
        source.dim, words = width, f"sparse, {quantity(width or 0, 'coordinate')}"
    else:
        source.dim, words = rows.dense.shape[1], quantity(rows.dense.shape[1], "value")
    payload = "none" if payloads is None else "label"
    source.describe(f".{file.format}, {quantity(count, 'row')}", None, words, payload)
    if others:
        source.guess.append(("left out", f"{list_some(sorted(map(repr, others)))}: other arrays"))


def _matrix(array: Any, name: str) -> InputVectors:
    if array.ndim != _TWO_DIMENSIONS or array.dtype.kind not in "fiub":
        raise BadFile(
            f"{name}: expected an array (n, dim) of numbers, got {array.shape} of {array.dtype}"
        )
    return InputVectors(array)


def _archive(archive: Any, name: str) -> tuple[InputVectors, Any, int | None]:
    """Return vectors, labels and the number of coordinates of an archive of arrays."""
    found = set(archive.files)
    labels = archive["y"] if "y" in found else None
    if "X" in found:
        return _matrix(archive["X"], name), labels, None
    form = archive["format"].item() if "format" in found else "csr"
    form = form.decode() if isinstance(form, bytes) else form
    if form != "csr":
        advice = "scipy's tocsr() makes such a matrix"
        raise BadFile(f"{name}: expected compressed rows (csr), got {form}; {advice}")
    if not found >= {"data", "indices", "indptr", "shape"}:
        wanted = "'X' (and 'y'), or 'data', 'indices', 'indptr', 'shape'"
        raise BadFile(f"{name}: expected arrays {wanted}, got {', '.join(sorted(found))}")
    indptr = archive["indptr"].astype(np.int64).ravel()
    indices, values = archive["indices"].ravel(), archive["data"].ravel()
    if indices.dtype.kind not in "iu" or values.dtype.kind not in "fiub":
        got = f"{indices.dtype} and {values.dtype}"
        raise BadFile(f"{name}: expected whole 'indices' and numbers as 'data', got {got}")
    ends = [*indptr[:1], *indptr[-1:]]
    if ends != [0, len(indices)] or len(values) != len(indices) or (np.diff(indptr) < 0).any():
        got = f"{len(indices)} 'indices', {len(values)} 'data', 'indptr' {indptr}"
        raise BadFile(f"{name}: expected 'indptr' that rises from 0 to their number, got {got}")
    shape = len(indptr) - 1, int(archive["shape"][1])
    return _compressed(values, indices, indptr, shape), labels, shape[1]


def _compressed(values: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> InputVectors:
    """Return compressed rows; duplicate entries are summed, as in scipy."""
    from scipy.sparse import csr_array  # noqa: PLC0415  # other files need none

    try:
        return rows_of(csr_array((values, indices, indptr), shape=shape))
    except ValueError:  # a coordinate beyond the shape, which is later refused with its row
        return InputVectors.sparse(indptr, indices, values)
