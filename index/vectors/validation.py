"""Validation of raw numbers: arrays of them, and errors that say what is wrong."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Float32s, Int32s
from gcws_search.index.contracts.errors import InvalidVector, Loc

MAX_NORM: Final = 8e37
"""Largest L1 norm of a vector: two norms and a distance of two must sum to a finite float32."""


def numbers(values: Any, kinds: str, loc: Loc) -> AnyArray:  # noqa: ANN401 (whatever was sent)
    """Return an array of the permitted kinds of number; strings and fractions are not converted.

    kinds: permitted kinds of dtype, of "i", "u", "f". Raises InvalidVector at ``loc``.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidVector(expected="numbers", got=str(error), loc=loc) from error
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in kinds:
        raise InvalidVector(
            expected="numbers" if "f" in kinds else "integers",
            got=f"{array.dtype.name} among them",
            loc=loc,
        )
    return array


def flat(values: Any, kinds: str, loc: Loc) -> AnyArray:  # noqa: ANN401 (whatever was sent)
    """Return what `numbers` does; lists within lists are no numbers."""
    array = numbers(values, kinds, loc)
    if array.ndim != 1:
        raise InvalidVector(expected="numbers", got="lists of them", loc=loc)
    return array


def bad_row(
    floats: Float32s, raw: AnyArray, columns: Int32s | None, norm: float, row: int
) -> InvalidVector:
    """Say which number of a row makes its norm zero, too large or not finite."""
    if norm == 0:
        return InvalidVector(
            expected="a vector with a non-zero value", got="all zeros in float32", loc=(row,)
        )
    bad = np.flatnonzero(~np.isfinite(floats))
    if len(bad):
        at = int(bad[0])
        name: tuple[str | int, ...] = (at,) if columns is None else ("values", at)
        return InvalidVector(
            expected="a finite float32", got=repr(raw[at].item()), loc=(row, *name)
        )
    return InvalidVector(
        expected=f"an L1 norm of at most {MAX_NORM:g}", got=f"{norm:g}", loc=(row,)
    )
