"""svmlight files, read through scikit-learn a range of bytes at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from gcws_search.formats.files import BadFile, InputFile
from gcws_search.formats.items import Items, number_words, numbers_of
from gcws_search.formats.payloads import from_columns
from gcws_search.formats.sources import Choices, Described
from gcws_search.formats.vectors import SparseRows

_RANGE_BYTES: Final = 8 << 20
_MAX_WIDTH: Final = 2**31 - 1


def svmlight_items(
    file: InputFile, choices: Choices
) -> tuple[Described, Callable[[], Iterator[Items]]]:
    """Return what an svmlight file is taken for, and what reads its items.

    Coordinates count from 0 where the first range of bytes has a 0, and from 1 elsewhere.

    Raises
    ------
    BadFile
        scikit-learn is not installed, or the file is no svmlight.
    """
    try:
        from sklearn.datasets import load_svmlight_file  # noqa: PLC0415  # of the extra `learn`
    except ImportError:
        raise BadFile(
            f"{file.name}: expected scikit-learn, which reads svmlight; install gcws-search[learn]"
        ) from None
    place = file.random_access()
    size = place.stat().st_size if isinstance(place, Path) else _size(place)

    def part(offset: int) -> tuple[Any, Any]:
        source = str(place) if isinstance(place, Path) else place
        try:
            found = load_svmlight_file(
                source,
                offset=offset,
                length=_RANGE_BYTES,
                n_features=_MAX_WIDTH,  # it asks for a number where ranges are read
                zero_based=True,
                dtype=np.float64,
            )
        except (ValueError, OverflowError) as error:
            raise BadFile(
                f"{file.name}: expected lines of 'label index:value …', got another: {error}"
            ) from None
        return found[0], found[1]

    first, _ = part(0)
    if not first.shape[0]:
        raise BadFile(f"{file.name}: expected rows, got none")
    base = 0 if first.nnz and first.indices.min() == 0 else 1

    def items() -> Iterator[Items]:
        row = 0
        for offset in range(0, size, _RANGE_BYTES):
            matrix, labels = part(offset)
            if base and matrix.nnz and matrix.indices.min() == 0:
                raise BadFile(
                    f"{file.name}: expected coordinates from 1 on, as in its first rows, got 0"
                )
            rows = SparseRows(
                matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64) - base, matrix.data
            )
            values = [int(each) if each.is_integer() else each for each in labels.tolist()]
            texts = from_columns({"label": values}, len(values))
            ids = numbers_of(choices.id_start, row, len(values))
            yield Items(ids, rows, texts)
            row += len(values)

    guess = [
        ("format", "svmlight"),
        ("ids", number_words(choices.id_start)),
        ("vector", f"sparse, coordinates from {base}"),
        ("payload", "label"),
    ]
    return Described(file, guess, choices.dim), items


def _size(file: Any) -> int:
    file.seek(0, 2)
    size = int(file.tell())
    file.seek(0)
    return size
