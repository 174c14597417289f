"""Vectors in any form that Python knows."""

from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from gcws_search import InvalidVector
from gcws_search.formats.items import items_of
from gcws_search.formats.vectors import row_of, rows_of
from tests.support.service.client import Json

VALUES = np.array([[0, 1, 0, 2], [3, 0, 0, 1]])


class Fingerprint:
    """What RDKit has of counts."""

    def GetNonzeroElements(self) -> dict[int, int]:  # noqa: N802  # RDKit's name
        return {1: 2}


class SparseBits:
    """What RDKit has of bits that are not folded."""

    def __len__(self) -> int:
        return 2**40

    def __getitem__(self, place: int) -> int:
        return 0

    def GetOnBits(self) -> list[int]:  # noqa: N802  # RDKit's name
        return [1]


class Cells:
    """What AnnData has beside its matrix."""

    obs_names = ("AAAC-1",)


class Source(dict[str, list[float]]):
    """What a data set of xarray has: a dict that a frame can be made of."""

    def __array__(self, dtype: Json = None, copy: bool | None = None) -> Json:
        raise TypeError

    def to_pandas(self) -> pandas.DataFrame:
        return pandas.DataFrame(self)


class Grid:
    """What an array of xarray has: two dimensions, and a form of Arrow, of which it is a column."""

    dtype = VALUES.dtype
    shape = VALUES.shape

    def __arrow_c_stream__(self, schema: Json = None) -> Json:
        return pa.chunked_array([[{"values": 1}]]).__arrow_c_stream__(schema)

    def to_numpy(self) -> Json:
        return VALUES


class Device:
    """What an array of a device has that NumPy knows, and no more."""

    def __dlpack__(self) -> Json:
        return VALUES.__dlpack__()


class Array:
    """What makes an array for NumPy, and is no list."""

    def __array__(self, dtype: Json = None, copy: bool | None = None) -> Json:
        return VALUES.astype(dtype)


def dense_of(rows: Json) -> Json:
    """Return rows as an (n, 4) array."""
    if rows.dense is not None:
        return rows.matrix()
    return sparse.csr_matrix((rows.values, rows.indices, rows.indptr), (len(rows), 4)).toarray()


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i8", "u8", "f2", "f4", "f8", ">f4", "O"])
@pytest.mark.parametrize("order", ["C", "F", "strided", "read-only"])
def test_arrays_of_every_type_and_order(dtype: str, order: str) -> None:
    array = VALUES.astype(dtype, order="F" if order == "F" else "C")
    if order == "strided":
        array = np.repeat(array, 2, axis=1)[:, ::2]
    array.setflags(write=order != "read-only")
    matrix = rows_of(array)
    assert matrix.dense is not None
    assert_array_equal(matrix.matrix(), VALUES.astype(dtype).astype(np.float32))
    assert matrix.matrix().flags.c_contiguous


FORMATS = ("csr_matrix", "csc_matrix", "coo_matrix", "lil_matrix", "dok_matrix", "bsr_array")


@pytest.mark.parametrize("made", [getattr(sparse, name) for name in (*FORMATS, "csr_array")])
def test_sparse_matrices_of_every_format(made: Json) -> None:
    rows = rows_of(made(VALUES.astype(float)))
    assert rows.dense is None
    assert_array_equal(dense_of(rows), VALUES)
    assert_array_equal(dense_of(rows.part(slice(1, 2))), VALUES[1:])
    assert_array_equal(dense_of(rows.part(np.array([1, 0]))), VALUES[::-1])


def test_sums_of_entries_need_not_fit_into_the_type_of_the_numbers() -> None:
    counts = np.array([100, 100], np.int8)
    for matrix in (
        sparse.coo_array((counts, ([0, 0], [1, 1])), (1, 4)),
        sparse.csr_array((counts, [1, 1], [0, 2]), (1, 4)),
    ):
        assert dense_of(rows_of(matrix)).tolist() == [[0, 200, 0, 0]]


def test_entries_given_twice_are_added_up_and_the_matrix_stays() -> None:
    matrix = sparse.csr_matrix(([1.0, 2.0, 3.0], [1, 1, 0], [0, 2, 3]), (2, 4))
    assert dense_of(rows_of(matrix)).tolist() == [[0, 3, 0, 0], [3, 0, 0, 0]]
    assert matrix.nnz == 3


@pytest.mark.parametrize(
    "vectors",
    [
        VALUES.tolist(),
        tuple(VALUES),
        [sparse.csr_matrix(VALUES)[0], sparse.csr_matrix(VALUES)[1]],
        (row for row in VALUES),
        [{1: 1, 3: 2}, {0: 3, 3: 1}],
        [{np.int64(3): 2.0, np.int64(1): 1}, {0: 3, 3: 1}],
        [{"indices": [3, 1], "values": [2, 1]}, {"indices": [0, 3], "values": [3, 1]}],
        pandas.DataFrame(VALUES).assign(word="x"),
        pandas.Series(VALUES.tolist()),
        pandas.Series([{1: 1, 3: 2}, {0: 3, 3: 1}], index=["a", "b"]),
        polars.Series(VALUES.tolist()),
        pa.chunked_array([VALUES.tolist()]),
        pa.array(VALUES.tolist()),
        Array(),
    ],
    ids=[
        "lists", "arrays", "matrices", "generator", "dicts", "numpy-keys", "json",
        "frame", "pandas-column", "pandas-dicts", "polars-column", "arrow-column",
        "arrow-array", "array-like",
    ],
)  # fmt: skip
def test_sequences_of_vectors(vectors: Json) -> None:
    assert_array_equal(dense_of(rows_of(vectors)), VALUES)


def test_a_set_counts_one_for_each() -> None:
    for rows in (rows_of([{"ester", "acid"}, frozenset({"acid"})]), row_of({"ester", "acid"})):
        assert next(rows.json()) == {"names": ["acid", "ester"], "values": [1, 1]}


def test_names_stay_names() -> None:
    rows = rows_of([{"acid": 2, "values": 1}, {"names": ["ester"]}, {"names": 3}])
    assert rows.dense is None
    assert rows.names == ["acid", "values", "ester", "names"]
    assert [*rows.json()] == [
        {"names": ["acid", "values"], "values": [2, 1]},
        {"names": ["ester"], "values": [1]},
        {"names": ["names"], "values": [3]},
    ]


@pytest.mark.parametrize(
    "vector",
    [
        VALUES[0],
        VALUES[0].tolist(),
        VALUES[:1],
        {1: 1, 3: 2},
        sparse.csr_matrix(VALUES)[0],
        sparse.csr_array(VALUES)[0],
    ],
    ids=["array", "list", "matrix", "dict", "csr", "csr-1d"],
)
def test_one_vector(vector: Json) -> None:
    assert_array_equal(dense_of(row_of(vector)), VALUES[:1])


def test_text_among_objects_is_no_number() -> None:
    with pytest.raises(InvalidVector, match="got '2'"):
        rows_of(np.array([[1, "2"]], object))


def test_a_view_of_memory_is_an_array() -> None:
    assert_array_equal(dense_of(rows_of(VALUES.data)), VALUES)
    assert_array_equal(dense_of(items_of(VALUES.data).rows), VALUES)


def test_what_is_no_single_vector_is_refused() -> None:
    with pytest.raises(InvalidVector, match="one vector, got 2; `query_many` takes several"):
        row_of(VALUES)
    with pytest.raises(InvalidVector, match="the string 'kenya'; id= asks for an item"):
        row_of("kenya")
    with pytest.raises(InvalidVector, match=r"a vector of numbers, got \[1, \[2\]\]"):
        row_of([1, [2]])
    with pytest.raises(InvalidVector, match=r"^expected numbers as values, got 'much'"):
        row_of({"acid": "much"})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (np.zeros(3), "two dimensions, a row a vector, got 1 dimension"),
        (np.zeros((2, 2, 2)), "got 3 dimensions"),
        (np.array([["a"]]), "an array of <U1"),
        (np.zeros((1, 2), complex), "complex128"),
        (
            [[1, 2], [1]],
            "[1]: expected vectors of numbers, all of one length, got 1 value beside 2",
        ),
        ([[1, 2], "ab"], "[1]: expected vectors of numbers, all of one length, got 'ab'"),
        ([[1, 2], [1, "x"]], "[1]: expected vectors of numbers, all of one length, got 'x'"),
        ([[1, 2], [[1], [2]]], "[1]: expected vectors of numbers, all of one length, got [1]"),
        (
            [VALUES[0], sparse.csr_array(VALUES[:1])],
            "[1]: expected vectors of numbers, all of one length, got a csr_array beside others",
        ),
        ([1, 2], "two dimensions"),
        ({"acid": 1}, "a dict; put it in a list"),
        ({"acid": [1], "ester": [2]}, "makes a frame of columns"),
        (None, "got a NoneType; put vectors in a list"),
        ("train.csv", "`gcws-search load` loads files"),
        (Path("train.csv"), "`gcws-search load` loads files"),
        (["acid ester"], "a text is a dict of words and weights"),
        (np.ma.masked_array(VALUES, VALUES > 1), "masked ones; .filled(0)"),
        ([*np.ma.masked_array(VALUES, VALUES > 1)], "masked ones; .filled(0)"),
        (sparse.csr_matrix(VALUES.astype(complex)), "an array of complex128"),
        ([[10**400, 1]], "a whole number beyond them"),
        (
            [{}, {"acid": 10**400}],
            "[1]: expected finite float32 numbers, got a whole number beyond",
        ),
        ({"a": VALUES[0], "b": VALUES[1]}, "add(….values(), ids=….keys())"),
        ({"train": pandas.DataFrame(VALUES)}, "add each of its values"),
        (Source(), "a Source; .to_pandas() makes a frame of it"),
        (Grid(), "a Grid; .to_numpy() makes an array of it"),
        (Device(), "a Device; numpy.from_dlpack(…)"),
        ([{"id": "a", "acid": 1}, {"id": "b", "acid": 2}], "'a' under 'id'; pandas.DataFrame(…)"),
        (
            [pa.table({"a": [1]}), [1, 2]],
            "[0]: expected vectors of numbers, all of one length, got a Table",
        ),
        (pa.array([{"a": 1}]), "a column of lists, got a column of struct"),
        (polars.DataFrame(VALUES).lazy(), "a LazyFrame; .collect() makes a frame of it"),
        (Cells(), "a Cells; add(data.X, ids=data.obs_names"),
        (pandas.Series([1.0, 2.0]), "got 1 dimension; put a vector in a list"),
        (pa.chunked_array([[1.0, 2.0]]), "a column of lists, got a column of double"),
        ([Fingerprint()], "a Fingerprint; GetNonzeroElements() makes a dict of it"),
        (
            [{"acid": 1}, {3: 1}],
            "[1]: expected coordinates that are all names or all whole numbers",
        ),
        ([{"acid": 1, 3: 1}], "int and str"),
        ([{1.5: 1}], "float"),
        ([{1: 1}, {2**40: 1}], "names (str) for larger ones, got 1099511627776"),
        ([{"acid": 1}, {"acid": "much"}], "[1]: expected numbers as values, got 'much'"),
        ([{"acid": 1}, {"acid": [2]}], "[1]: expected numbers as values, got [2]"),
        ([{"acid": [1]}], "[0]: expected numbers as values, got [1]"),
        ([{"indices": [1, 2], "values": [1]}], "as many coordinates as values, got 2 and 1"),
    ],
)
def test_what_is_no_vector_is_refused_with_the_reason(data: Json, words: str) -> None:
    with pytest.raises(InvalidVector) as refused:
        rows_of(data)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "value", ["3", "1_0", b"3", np.str_("3"), np.datetime64("2020-01-01"), np.timedelta64(5, "s")]
)
def test_what_numpy_would_turn_into_a_number_is_none_in_a_dict(value: Json) -> None:
    for read, data in (
        (rows_of, [{"acid": 1, "ester": value}]),
        (rows_of, [{2: 1, 3: value}]),
        (rows_of, [{"indices": [0, 1], "values": [1, value]}]),
        (row_of, {"acid": 1, "ester": value}),
    ):
        with pytest.raises(InvalidVector, match="expected numbers as values, got"):
            read(data)


def test_counts_of_rdkit_as_a_query_are_refused_with_what_makes_a_vector_of_them() -> None:
    with pytest.raises(InvalidVector, match="GetNonzeroElements"):
        row_of(Fingerprint())


@pytest.mark.parametrize("read", [rows_of, items_of, lambda rows: row_of(rows[0])])
def test_bits_that_no_memory_holds_are_refused_with_what_makes_a_set_of_them(read: Json) -> None:
    with pytest.raises(InvalidVector, match=r"a SparseBits; .*GetOnBits"):
        read([SparseBits()])
