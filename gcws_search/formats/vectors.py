"""Vectors in all Python forms: arrays, sparse matrices, dicts, lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from decimal import Decimal
from itertools import chain
from numbers import Real
from os import PathLike
from statistics import mode
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from gcws_search.index import (
    InputVectors,
    InvalidInput,
    InvalidParameter,
    InvalidVector,
    Text,
    check_names,
    quantity,
    raise_first,
)

_SHOWN: Final = 8
_TABLES: Final = ("__arrow_c_stream__", "__arrow_c_array__", "to_table")
"""Methods of tables and columns of Arrow, and of its datasets."""
_COUNTS: Final = "GetNonzeroElements"
"""The method of RDKit's counts."""
_BITS: Final = "GetOnBits"
"""The method of RDKit's bits."""
_NOTHING: Final = ("NAType", "NaTType")
"""Types by which pandas says that there is nothing."""
_ALIKE: Final = "vectors of numbers, all of one length"
_ROWS_AND_COLUMNS: Final = 2
_MAX_INDEX: Final = 2**31 - 1
_HINT: Final = "; a text is a dict of words and weights"
_NUMBERS: Final = Real | np.bool_ | Decimal
_READ_AS_NUMBERS: Final = (str, bytes, np.datetime64, np.timedelta64)
"""No numbers, but NumPy turns them into some: "1_0" into 10, a date into days since 1970."""
_FORM: Final = ("indices or names", "values")
"""Keys of a vector as JSON has it, at most."""
R = TypeVar("R")


def rows_of(data: Any, dim: int | None = None) -> InputVectors:
    """Return an (n, dim) array, a scipy sparse matrix, a frame or a sequence of vectors as rows.

    A vector of a sequence is a sequence of numbers, a dict from names or coordinates to values, a
    set of these, or ``{"indices": […], "values": […]}``. For a frame, see `tables.guess`. If lists
    differ in length, each must have ``dim`` numbers, or as many as most have.
    """
    if is_frame(data):
        from gcws_search.formats.tables import rows_of_frame  # noqa: PLC0415  # loads pyarrow

        return rows_of_frame(data, dim)
    if hasattr(data, "tocsr"):
        return _from_scipy(data)
    if is_column(data):
        data = [*data]
    if isinstance(data, memoryview):
        data = np.asarray(data)
    if isinstance(data, Mapping) or not hasattr(data, "__array__"):
        require_many(data)
        data = list(data)
        if is_most(data, lambda each: isinstance(each, Mapping | Set), "a dict, as others are"):
            return _from_dicts(
                each if isinstance(each, Mapping) else dict.fromkeys(sorted(each, key=str), 1.0)
                for each in data
            )
        if data and all(hasattr(each, "tocsr") for each in data):
            parts = [_from_scipy(each) for each in data]
            indptr = np.cumsum([0, *(n for part in parts for n in np.diff(part.indptr).tolist())])
            indices = np.concatenate([part.indices for part in parts])
            values = np.concatenate([part.values for part in parts])
            return InputVectors.sparse(indptr.astype(np.int64), indices, values)
    return InputVectors(_numbers(data, dim))


def is_most(data: Sequence[Any], is_one: Callable[[Any], bool], expected: str) -> bool:
    """Return whether more than half of a list are dicts or sets; raise InvalidVector at others."""
    if not any(issubclass(kind, Mapping | Set) for kind in {*map(type, data)}):
        return False
    others = [row for row, each in enumerate(data) if not is_one(each)]
    if 2 * len(others) >= len(data):
        return False
    raise_first(
        InvalidVector(expected=expected, got=f"{data[row]!r:.60}", loc=(row,)) for row in others
    )
    return True


def usable(
    read: Callable[..., R], *given: Any, skips: bool
) -> tuple[R, list[int] | None, dict[int, InvalidInput]]:
    """Return the result of reading the valid rows, their numbers, and the errors of others.

    ``read`` takes columns of any form with one entry per row; the first are vectors or texts.
    Unless ``skips``, the error of a row is raised. The numbers are None if all rows are valid.
    """
    columns = [_held(each) for each in given] if skips else [*given]
    bad: dict[int, InvalidInput] = {}
    rows: list[int] | None = None
    while True:
        some = columns if rows is None else [part_of(each, rows) for each in columns]
        try:
            return read(*some), rows, bad
        except InvalidInput as error:
            faults = {
                row: each for each in (error, *error.others) if (row := row_of_error(each)) >= 0
            }
            if not (skips and faults):
                raise
            if rows is None:
                first = next(each for each in columns if each is not None)
                rows = [*range(first.shape[0] if hasattr(first, "shape") else len(first))]
            bad |= {rows[place]: each for place, each in faults.items()}
            rows = [row for row in rows if row not in bad]


def _held(column: Any) -> Any:
    """Return a column in a form that can be read several times."""
    if hasattr(column, "iloc"):  # of pandas; the columns of its frames are also attributes
        return column
    if hasattr(column, "to_table"):
        return column.to_table()
    if hasattr(column, "read_all"):  # a stream of Arrow
        return column.read_all()
    return [*column] if isinstance(column, Iterator) else column


def row_of_error(error: InvalidInput) -> int:
    """Return the row of an error; -1 without one."""
    return next((part for part in error.loc if isinstance(part, int)), -1)


def part_of(column: Any, rows: list[int]) -> Any:
    """Return some rows of a column, a frame, a matrix or a list; a common value is unchanged."""
    if isinstance(column, Mapping):  # columns by name
        return {name: part_of(each, rows) for name, each in column.items()}
    if hasattr(column, "iloc"):
        column = column.iloc
    elif hasattr(column, "to_pylist"):  # of Arrow
        return column.take(rows)
    elif hasattr(column, "tocsr"):
        column = column.tocsr()
    elif hasattr(column, "__array__") and not is_frame(column):
        column = np.asanyarray(column)
    elif not is_frame(column):  # of polars
        if isinstance(column, str) or not isinstance(column, Iterable):
            return column
        values = [*column]
        return [values[row] for row in rows]
    return column[rows]


def is_frame(data: Any) -> bool:
    """Return whether data have named columns, or are one that is not of pandas."""
    is_table = any(hasattr(data, name) for name in _TABLES)
    return is_table and not is_column(data)


def is_column(data: Any) -> bool:
    """Return whether data are a column of pandas."""
    return hasattr(data, "iloc") and not hasattr(data, "columns")


def is_series(data: Any) -> bool:
    """Return whether data are one column of any library: they have a type, and no columns."""
    return not hasattr(data, "columns") and (hasattr(data, "dtype") or hasattr(data, "type"))


def is_names(payloads: Any) -> bool:
    """Return whether payloads of a frame are names of its columns."""
    return isinstance(payloads, Sequence) and all(isinstance(each, str) for each in payloads)


def require_many(data: Any) -> None:
    """Raise InvalidVector with advice for data that are no list of vectors."""
    if isinstance(data, str | PathLike):
        hint = "`gcws-search load` loads files, and id= asks for an item"
    elif hasattr(data, "to_pandas") and (
        isinstance(data, Mapping) or not isinstance(data, Iterable)
    ):
        hint = ".to_pandas() makes a frame of it"
    elif isinstance(data, Mapping):
        columns = any(isinstance(each, Sequence) for each in data.values())
        hint = "pandas.DataFrame(…) makes a frame of columns" if columns else "put it in a list"
        if not columns and any(hasattr(each, "__len__") for each in data.values()):
            hint = "add(….values(), ids=….keys()) adds vectors"
            if any(is_frame(each) or hasattr(each, "to_pandas") for each in data.values()):
                hint = "add each of its values"
    elif hasattr(data, "obs_names"):  # of AnnData
        hint = "add(data.X, ids=data.obs_names, payloads=data.obs) adds its rows"
    elif hasattr(data, "collect"):
        hint = ".collect() makes a frame of it"
    elif hasattr(data, "__dlpack__"):
        hint = "numpy.from_dlpack(…) makes an array of it"
    elif not isinstance(data, Iterable):
        hint = "put vectors in a list"
    else:
        return
    raise InvalidVector(expected="a list of vectors", got=f"{_article(data)}; {hint}")


def _article(what: Any) -> str:
    word = type(what).__name__
    return f"an {word}" if word[0].lower() in "aeiou" else f"a {word}"


def _counts_words(vector: Any) -> str:
    """Return what counts of RDKit are, and what makes a vector of them."""
    return f"{_article(vector)}; {_COUNTS}() makes a dict of it"


def is_id(what: Any) -> bool:
    """Return whether an id-or-vector argument is an id."""
    return isinstance(what, str | int | np.integer) and not isinstance(what, bool)


def is_text(what: Any) -> bool:
    """Return whether this is a text instead of a vector: ``{"text": "…"}``."""
    return isinstance(what, Mapping) and set(what) == {"text"} and isinstance(what["text"], str)


def rows_of_texts(texts: Any, *column: str) -> InputVectors:
    """Return texts, in any sequence except a string, as rows of a collection of texts.

    Raises InvalidVector, at ``(row, *column)`` for an entry that is no valid Unicode string.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise InvalidVector(expected="a list of strings", got=f"{texts!r:.60}")
    found = list(texts)
    raise_first(_odd_texts(found, *column))
    return InputVectors(mixed=[Text(text) for text in found])


def _odd_texts(texts: Sequence[Any], *column: str) -> Iterator[InvalidVector]:
    for row, text in enumerate(texts):
        loc: tuple[str | int, ...] = (row, *column)
        if not isinstance(text, str):
            yield InvalidVector(expected="a string", got=f"{text!r:.60}", loc=loc)
        elif not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                got = f"half of a surrogate pair in {text!r:.60}"
                yield InvalidVector(expected="a string of Unicode", got=got, loc=loc)


def points_of(data: Any) -> InputVectors:
    """Return vectors as in `rows_of`, or a list of texts, each as ``{"text": "…"}``."""
    if isinstance(data, list | tuple) and data and all(map(is_text, data)):
        return rows_of_texts([each["text"] for each in data])
    return rows_of(data)


def row_of(vector: Any) -> InputVectors:
    """Return one vector of any kind as the only row; see `rows_of`."""
    try:
        if type(vector) is np.ndarray and vector.ndim == 1:  # frequent, and fast to check
            return InputVectors(_numbers(vector[np.newaxis]))
        if isinstance(vector, Mapping | Set):
            return rows_of([vector])
        labels = _labels(vector)
        if labels is not None:
            return _row_of_frame(vector, labels)
        if isinstance(vector, str):
            raise InvalidVector(
                expected="a vector", got=f"the string {vector!r:.40}; id= asks for an item"
            )
        if hasattr(vector, _COUNTS):
            raise InvalidVector(expected="a vector", got=_counts_words(vector))
        raise_first(_long_bits([vector]))
        if hasattr(vector, "tocsr"):
            rows = _from_scipy(vector)
        elif is_frame(vector) and np.ndim(vector) == _ROWS_AND_COLUMNS:
            rows = rows_of(vector)
        else:
            array = _numbers([vector] if np.ndim(vector) == 1 else vector)
            rows = InputVectors(array)
        if len(rows) != 1:
            raise InvalidVector(
                expected="one vector", got=f"{len(rows)}; `query_many` takes several"
            )
        return rows
    except InvalidVector as error:
        raise error.at(skip=int(error.loc[:1] == (0,))) from None  # there is one row
    except ValueError:  # of numpy, for lists of different lengths
        raise InvalidVector(expected="a vector of numbers", got=f"{vector!r:.60}") from None


def _labels(vector: Any) -> list[str] | None:
    """Return the column names of a row of a pandas frame, if these are text."""
    if not hasattr(vector, "dtype") or callable(getattr(vector, "index", callable)):
        return None
    labels = [*vector.index]
    return labels if labels and all(isinstance(label, str) for label in labels) else None


def _row_of_frame(row: Any, labels: list[str]) -> InputVectors:
    """Return the numbers and missing values of a row of a frame, without its id."""
    names, numbers = list[str](), list[float]()
    for label, value in zip(labels, row, strict=True):
        if label.lower() != "id" and (isinstance(value, _NUMBERS) or not is_present(value)):
            names.append(label)
            numbers.append(float(value) if is_present(value) else np.nan)
    return InputVectors(np.array([numbers], np.float64), columns=column_names(names))


def is_present(value: Any) -> bool:
    """Whether a value is not a missing value of Python or pandas."""
    return value is not None and type(value).__name__ not in _NOTHING


def column_names(names: Sequence[str]) -> list[str] | None:
    """Return the names of columns; None if they are only numbers, or cannot name coordinates."""
    if all(name.isdecimal() for name in names):
        return None
    try:
        check_names(names, len(names))
    except InvalidParameter:
        return None
    return [*names]


def in_order(rows: InputVectors, names: Mapping[int, str], dim: int | None) -> InputVectors:
    """Return a matrix of named columns in the order of a collection's coordinates.

    Columns are not reordered unless all coordinates have names. In an open space, the rows become
    sparse ones by column name.

    Raises
    ------
    InvalidVector
        A column's name is no coordinate, a coordinate has no column, or their numbers differ.
    """
    columns, matrix = rows.columns, rows.dense
    if columns is None or matrix is None:
        return rows
    if dim is None:
        filled = matrix != 0
        indptr = np.concatenate([[0], np.cumsum(filled.sum(axis=1))])
        return InputVectors.sparse(indptr, np.nonzero(filled)[1], matrix[filled], columns)
    if len(names) < dim:
        if len(columns) != dim:
            raise InvalidVector(
                expected=f"{quantity(dim, 'column')} of numbers",
                got=f"{len(columns)}, {_list_names(columns)}; all others are payload",
            )
        return rows
    places = {name: place for place, name in enumerate(columns)}
    order = [places.get(names[coordinate]) for coordinate in range(dim)]
    known = {*names.values()}
    unknown = [
        name
        for place, name in enumerate(columns)
        if name not in known and not np.isnan(matrix[:, place]).all()
    ]
    missing = [names[at] for at, place in enumerate(order) if place is None]
    if unknown or missing:
        told = [
            f"{words} {_list_names(some)}"
            for words, some in (("none for", missing), ("unknown", unknown))
            if some
        ]
        wanted = _list_names([names[at] for at in range(dim)])
        raise InvalidVector(
            expected=f"a column for each coordinate by its name, {wanted}", got=" and ".join(told)
        )
    if order == [*range(dim)] and len(columns) == dim:
        return rows
    found = matrix[:, np.array(order, np.int64)]
    return InputVectors(found, columns=[names[at] for at in range(dim)])


def name_column(error: InvalidInput, rows: InputVectors) -> InvalidInput:
    """Return an error about a number of a row with the name of its column."""
    match [part for part in error.loc if part not in ("vector", "values")]:
        case [*outer, int(row), int(place)] if rows.columns is not None:
            name = rows.columns[place]
        case [*outer, int(row), int(place)] if rows.names is not None:
            name = rows.names[int(rows.indices[rows.indptr[row] + place])]
        case _:
            return error
    found = type(error)(expected=error.expected, got=error.got, loc=(*outer, row, name))
    for note in getattr(error, "__notes__", ()):
        found.add_note(note)
    return found


def split_column(words: str, columns: Sequence[str] | None) -> tuple[str, str | None]:
    """Return a server's text about a number of a row, and the name of its column, if any."""
    text, _, place = words.partition(" (in vector[")
    number = place.removesuffix("])")
    return (text, columns[int(number)]) if columns and number.isdecimal() else (words, None)


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f"{name!r:.40}" for name in names[:_SHOWN]) + more


def _numbers(data: Any, dim: int | None = None) -> NDArray[Any]:
    """Return a two-dimensional array of numbers."""
    try:
        if isinstance(data, list):
            raise_first(_long_bits(data))
        if isinstance(data, list) or np.ma.is_masked(data):
            expected, got = "numbers everywhere", "masked ones; .filled(0) makes them zeros"
            raise_first(
                InvalidVector(expected=expected, got=got, loc=(row,))
                for row, each in enumerate(data)
                if np.ma.is_masked(each)
            )
        array = np.asarray(data)
        if array.dtype.kind == "O":  # such as pandas' array of mixed columns
            if any(isinstance(each, str | bytes) for each in array.flat):
                raise TypeError
            array = array.astype(np.float64)
    except OverflowError:
        raise _too_large() from None
    except (TypeError, ValueError):
        array = None
    if array is None or (
        array.dtype.kind in "US" and array.ndim == _ROWS_AND_COLUMNS and array is not data
    ):
        raise_first(_odd_vectors(data, dim))
        raise InvalidVector(expected=_ALIKE, got="values that are not numbers")
    _require_real(array.dtype)
    if array.ndim == 1 and not array.size:
        return array.reshape(0, 0)
    if array.ndim != _ROWS_AND_COLUMNS:
        raise InvalidVector(
            expected="an array of two dimensions, a row a vector",
            got=quantity(array.ndim, "dimension")
            + ("; put a vector in a list" if array.ndim == 1 else ""),
        )
    return array


def _require_real(kind: np.dtype[Any]) -> None:
    if kind.kind not in "fiub":
        hint = _HINT if kind.kind in "US" else ""
        raise InvalidVector(expected="an array of numbers", got=f"an array of {kind}{hint}")


def _too_large(*loc: int) -> InvalidVector:
    expected = "finite float32 numbers"
    return InvalidVector(expected=expected, got="a whole number beyond them", loc=loc)


def _long_bits(data: Sequence[Any]) -> Iterator[InvalidVector]:
    """Yield an error for each bit vector of RDKit whose bits no memory holds one by one."""
    for row, vector in enumerate(data):
        if hasattr(vector, _BITS) and len(vector) > _MAX_INDEX:
            got = f"{_article(vector)}; {{str(bit) for bit in ….{_BITS}()}} is a set of it"
            yield InvalidVector(expected=_ALIKE, got=got, loc=(row,))


def _odd_vectors(data: Any, dim: int | None) -> Iterator[InvalidVector]:
    """Yield an error for each vector of a sequence that cannot be part of an array."""
    lists = [len(each) for each in data if isinstance(each, list | tuple | np.ndarray)]
    usual = dim if dim in lists else mode(lists or [0])
    for row, vector in enumerate(data):
        if isinstance(vector, Mapping | Set):
            got = f"{_article(vector)} beside lists"
        elif hasattr(vector, "tocsr") or is_frame(vector):
            got = f"{_article(vector)} beside others"
        elif hasattr(vector, _COUNTS):
            got = _counts_words(vector)
        elif not hasattr(vector, "__len__") or isinstance(vector, str):
            got = f"{vector!r:.40}"
        elif len(vector) != usual:
            got = f"{quantity(len(vector), 'value')} beside {usual}"
        else:
            odd = [each for each in vector if not isinstance(each, _NUMBERS)]
            if not odd:
                continue
            got = f"{odd[0]!r:.40}{_HINT if isinstance(odd[0], str) else ''}"
        yield InvalidVector(expected=_ALIKE, got=got, loc=(row,))


def _from_scipy(matrix: Any) -> InputVectors:
    """Return the rows of a sparse matrix or array; duplicate entries are summed."""
    _require_real(matrix.dtype)
    if matrix.dtype.kind in "iu" and not getattr(matrix, "has_canonical_format", True):
        matrix = matrix.astype(np.float64)  # sums may exceed the type of the numbers
    compressed = matrix.tocsr()
    if compressed.ndim == 1:
        indptr = np.array([0, compressed.nnz], np.int64)
        return InputVectors.sparse(indptr, compressed.indices, compressed.data)
    if not compressed.has_canonical_format:
        compressed = compressed.copy()
        compressed.sum_duplicates()
    return InputVectors.sparse(
        compressed.indptr.astype(np.int64), compressed.indices, compressed.data
    )


def _from_dicts(vectors: Iterable[Mapping[Any, Any]]) -> InputVectors:
    """Return the rows of dicts: ``{name: value}``, ``{index: value}``, or the JSON form."""
    pairs = [*map(_coordinates, vectors)]
    raise_first(
        InvalidVector(
            expected="as many coordinates as values",
            got=f"{len(keys)} and {len(values)}",
            loc=(row,),
        )
        for row, (keys, values) in enumerate(pairs)
        if len(keys) != len(values)
    )
    keys = [*chain.from_iterable(keys for keys, _ in pairs)]
    kinds = set(map(type, keys))
    try:
        numbers = [*chain.from_iterable(values for _, values in pairs)]
        if any(issubclass(kind, _READ_AS_NUMBERS) for kind in set(map(type, numbers))):
            raise TypeError
        values = np.array(numbers, np.float64)
    except (OverflowError, TypeError, ValueError):
        values = None
    if values is None or values.ndim != 1:
        raise_first(_odd_values(pairs))
        raise InvalidVector(expected="numbers as values", got="others")
    lengths = [len(keys) for keys, _ in pairs]
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return rows_of_entries(lengths, keys, values, by_name=True)
    if any(not issubclass(kind, int | np.integer) or issubclass(kind, bool) for kind in kinds):
        wanted: Any = str if isinstance(keys[0], str) else (int, np.integer)
        raise_first(
            InvalidVector(
                expected="coordinates that are all names or all whole numbers",
                got=" and ".join(sorted(kind.__name__ for kind in kinds)),
                loc=(row,),
            )
            for row, (some, _) in enumerate(pairs)
            if any(not isinstance(key, wanted) or isinstance(key, bool) for key in some)
        )
    raise_first(
        InvalidVector(
            expected=f"coordinates of at most {_MAX_INDEX}, or names (str) for larger ones",
            got=str(max(some)),
            loc=(row,),
        )
        for row, (some, _) in enumerate(pairs)
        if max(some, default=0) > _MAX_INDEX
    )
    return rows_of_entries(lengths, keys, values, by_name=False)


def rows_of_entries(
    lengths: Sequence[int], keys: list[Any], values: NDArray[np.float64], *, by_name: bool
) -> InputVectors:
    """Return rows of these lengths from all their coordinates, or names, and values."""
    indptr = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    if not by_name:
        return InputVectors.sparse(indptr, np.array(keys, np.int64), values)
    places: defaultdict[str, int] = defaultdict()
    places.default_factory = places.__len__  # a new name gets the next place
    codes = np.fromiter(map(places.__getitem__, keys), np.int64, len(keys))
    return InputVectors.sparse(indptr, codes, values, [*places])


def _coordinates(vector: Mapping[Any, Any]) -> tuple[list[Any], list[Any]]:
    for word in ("indices", "names") if len(vector) <= len(_FORM) else ():
        if set(vector) == {word} or set(vector) == {word, "values"}:
            keys = vector[word]
            if isinstance(keys, str | int | float):
                break  # a vector with a coordinate of that name
            values = vector.get("values", [1.0] * len(keys))
            return list(keys), list(values)
    return list(vector), list(vector.values())


def _odd_values(pairs: Sequence[tuple[list[Any], list[Any]]]) -> Iterator[InvalidVector]:
    """Yield an error for each vector whose values are no numbers."""
    hint = "; pandas.DataFrame(…) makes a frame of such rows" if len(pairs) > 1 else ""
    for row, (keys, values) in enumerate(pairs):
        for key, value in zip(keys, values, strict=True):
            try:
                if isinstance(value, _READ_AS_NUMBERS):
                    raise TypeError
                float(value if is_present(value) else 0)
            except OverflowError:
                yield _too_large(row)
            except (TypeError, ValueError):
                got = f"{value!r:.40} under {key!r:.40}{hint}"
                yield InvalidVector(expected="numbers as values", got=got, loc=(row,))
            else:
                continue
            break
