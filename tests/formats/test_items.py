"""Ids and payloads beside vectors, and their parts."""

import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from gcws_search import InvalidFilter, InvalidId, InvalidParameter, InvalidPayload, Item
from gcws_search.formats.files import input_files
from gcws_search.formats.items import Items, arrow, items_of, load_body, npy, queries, with_expiries
from gcws_search.formats.payloads import filter_of, read_json
from gcws_search.formats.sources import Choices, source_of
from gcws_search.formats.tables import guess, items_of_batch
from gcws_search.formats.vectors import rows_of
from tests.support.service.client import Json

VECTORS = np.arange(1, 7, dtype=np.float32).reshape(3, 2)


def test_rows_are_numbered_where_no_ids_are_given() -> None:
    assert items_of(VECTORS).texts() is None  # by the collection
    assert items_of(VECTORS, id_start=0).texts() == ["0", "1", "2"]
    assert items_of(VECTORS, id_start=5).texts() == ["5", "6", "7"]


@pytest.mark.parametrize("ids", [[7, "b", 9], np.array(["7", "b", "9"]), ("7", "b", "9")])
def test_ids_are_strings_or_whole_numbers(ids: Json) -> None:
    assert items_of(VECTORS, ids).texts() == ["7", "b", "9"]


def test_whole_numbers_beside_missing_ones_keep_their_digits() -> None:
    long = 2**53 + 1
    for column in (pa.array([long, None]), pa.chunked_array([[long], [None]]),
                   polars.Series([long, None])):  # fmt: skip
        found = items_of([[1, 2]] * 2, payloads={"n": column, "m": [1, 2]}).payloads
        assert found == [f'{{"n":{long},"m":1}}'.encode(), b'{"m":2}']


def test_times_of_columns_keep_their_zone_and_what_is_missing_is_left_out() -> None:
    at = pandas.to_datetime(["2024-01-01", None]).tz_localize("Europe/Berlin")
    arrow = pa.array(at)
    columns = {
        "pandas": (pandas.Series(at), at, pandas.Series([1.5, None]), pandas.Series(["a", None])),
        "Arrow": (arrow, pa.chunked_array([arrow]), pa.array([1.5, None]), pa.array(["a", None])),
        "polars": (polars.Series(arrow), polars.Series([1.5, None]), polars.Series(["a", None])),
    }
    for *times, numbers, words in columns.values():
        for each in times:
            payloads = {"at": each, "n": numbers, "word": words}
            found = items_of([[1, 2]] * 2, payloads=payloads).payloads
            assert found == [b'{"at":"2024-01-01T00:00:00+01:00","n":1.5,"word":"a"}', None]


def test_floats_of_32_bits_are_stored_as_they_are_written_and_found_so() -> None:
    x = np.array([0.1, 2.5], np.float32)
    columns = [x, pandas.Series(x), pandas.Series(x, dtype="Float32"), polars.Series(x)]
    columns += [pa.array(x), [*x]]
    given = [
        *({"x": column} for column in columns),
        [{"x": each} for each in x],
        pandas.DataFrame({"x": x}),
        pa.table({"x": x}),
    ]
    for payloads in given:
        found = items_of(np.eye(2), None, payloads).payloads
        assert found == [b'{"x":0.1}', b'{"x":2.5}'], type(payloads)
    gaps = {"x": pandas.Series([0.1, None], dtype="Float32"), "half": x.astype(np.float16)}
    assert items_of(np.eye(2), None, gaps).payloads == [
        b'{"x":0.1,"half":0.099975586}', b'{"half":2.5}',
    ]  # fmt: skip
    inner = pa.list_(pa.struct([("a", pa.float32()), ("b", pa.float64())]))
    table = pa.table(
        {"vector": [[1.0], [2.0]], "x": pa.array([[{"a": 0.1, "b": 0.1}], None], inner)}
    )
    assert items_of(table).payloads == [b'{"x":[{"a":0.1,"b":0.1}]}', None]
    for bound in (x[0], float(x[0].astype(str))):
        assert filter_of({"x": bound}) == filter_of({"x": 0.1})
    assert filter_of({"x": x}) == filter_of({"x": [0.1, 2.5]})


def test_a_missing_time_is_none() -> None:
    times = pandas.to_datetime(["2127-01-01", None]).tz_localize("UTC")
    for expires in (times, pandas.Series(times), ["2127-01-01T00:00:00+00:00", None]):
        found = with_expiries(items_of([[1, 2]] * 2), expires).expires
        assert found == ["2127-01-01T00:00:00+00:00", None]
    assert with_expiries(items_of([[1, 2]] * 2), np.array([60, np.nan])).expires == [60, None]


def test_times_beside_long_integers_are_text() -> None:
    at = np.datetime64("2024-01-01T00:00:00.123456789")
    many = np.array([at, np.datetime64("NaT", "ns")])
    found = items_of([[1, 2]], payloads=[{"n": 2**70, "at": at, "many": many}]).payloads
    text = '"2024-01-01T00:00:00.123456789"'
    assert found == [f'{{"n":{2**70},"at":{text},"many":[{text},null]}}'.encode()]


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a"], "3 ids, got 1"),
        ([1.5, 2, 3], "got 1.5"),
        ([True, 2, 3], "True"),
        ([None] * 3, "N"),
        (np.arange(3).astype("M8[ns]"), "datetime64"),
        ({"a", "b", "c"}, "order of the items, got a set"),
    ],
)
def test_other_ids_are_refused(ids: Json, words: str) -> None:
    with pytest.raises(InvalidId, match=words):
        items_of(VECTORS, ids)


def test_a_name_of_a_column_needs_columns() -> None:
    with pytest.raises(InvalidParameter, match="'key'"):
        items_of(VECTORS, "key")


@pytest.mark.parametrize(
    "payloads",
    [
        {"label": np.array([3, 1, 2])},
        [{"label": 3}, {"label": 1}, {"label": 2}],
        ['{"label": 3}', {"label": np.int64(1)}, b'{"label":2}'],
        pa.table({"label": [3, 1, 2]}),
    ],
)
def test_payloads_are_columns_or_objects(payloads: Json) -> None:
    found = items_of(VECTORS, payloads=payloads).payloads
    assert found == [b'{"label":3}', b'{"label":1}', b'{"label":2}']


def test_a_payload_that_is_no_object_is_refused_with_the_next_step() -> None:
    for payloads in ([3, 4, 5], ["a", "b", "c"], np.array([3, 1, 2]), 3, "abc"):
        with pytest.raises(InvalidPayload, match="'label': values} gives each item one"):
            items_of(VECTORS, payloads=payloads)


def test_items_may_be_dicts_as_the_api_has_them() -> None:
    found = items_of(
        [{"id": 7, "vector": [1, 2], "payload": {"a": 1}}, {"id": "b", "vector": [3, 4]}]
    )
    assert found.texts() == ["7", "b"]
    assert found.payloads == [b'{"a":1}', None]
    assert [*found.rows.json()] == [[1, 2], [3, 4]]
    assert items_of([{"vector": {"acid": 2}}, {"vector": {"acid": 1}}]).ids is None
    assert [*items_of([{"vector": 2, "id": 1}]).rows.json()] == [
        {"names": ["vector", "id"], "values": [2, 1]}
    ]
    with pytest.raises(InvalidId, match=r"ids\[1\]: expected a string or an integer, got None"):
        items_of([{"id": "a", "vector": [1, 2]}, {"vector": [3, 4]}])


@pytest.mark.parametrize(
    "payloads",
    [{"label": [1]}, [{}], [3, 4, 5], {"label": "abc"}, ["[1]", None, None], ["{", None, None]],
)
def test_other_payloads_are_refused(payloads: Json) -> None:
    with pytest.raises(InvalidPayload):
        items_of(VECTORS, payloads=payloads)


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.5, True],
        [2**70, -1, 1e300],
        ["a,b", '"', "%s"],
        [1, None, "x"],
        [[1, 2], {"a": 1}, float("nan")],
        [None, None, None],
    ],
)
def test_payloads_of_columns_are_those_of_objects(values: Json) -> None:
    columns = {"a": values, '%d "q"': values, "n": [1, 2, 3]}
    objects = [
        {name: column[row] for name, column in columns.items() if column[row] is not None}
        for row in range(3)
    ]
    found = items_of(VECTORS, payloads=columns).payloads
    assert found is not None
    assert found == items_of(VECTORS, payloads=objects).payloads
    alone = items_of(VECTORS, payloads={"a": values}).payloads
    assert [*map(bool, alone or [])] == [value is not None for value in values]


def test_items_of_a_collection_are_items_again() -> None:
    items = items_of(iter([Item("a", [1, 2], {"n": 1}), Item("b", [3, 4], None)]))
    assert items.ids == ["a", "b"]
    assert items.payloads == [b'{"n":1}', None]


def test_batches_are_of_so_many_bytes() -> None:
    items = items_of(np.ones((100, 4), np.float32), payloads=[{"t": "x" * 76}] * 100)
    assert [len(batch) for batch in items.batches(1000)] == [10] * 10
    assert [len(batch) for batch in items.batches(1)] == [1] * 100
    assert sum(len(batch) for batch in items.batches()) == 100


def test_an_npy_body_is_what_numpy_reads() -> None:
    rows = rows_of(np.asfortranarray(VECTORS.astype(np.int64)))
    assert rows.dense is not None
    body = b"".join(npy(rows))
    assert len(body) == load_body(Items(None, rows), None).bytes_
    assert_array_equal(np.load(io.BytesIO(body)), VECTORS)


@pytest.mark.parametrize("vectors", [VECTORS, [{3: 1.5}, {1: -2}, {0: 1, 2: 1}], [{"acid": 1}] * 3])
def test_an_arrow_body_holds_the_same_items(vectors: Json) -> None:
    items = items_of(vectors, ["a", "b", "c"], [{"n": 1}, None, {"n": 3}])
    body = b"".join(arrow(items.batches(16)))
    table = pa.ipc.open_stream(body).read_all()
    again = items_of_batch(table, guess(table.schema))
    assert list(again.rows.json()) == list(items.rows.json())
    assert (again.texts(), again.payloads) == (items.texts(), items.payloads)


@pytest.mark.parametrize("row", [0, 2999])
def test_rows_of_a_file_expire_wherever_they_stand(tmp_path: Path, row: int) -> None:
    """It is read in batches, and in some of them no row expires."""
    rows, at = 3000, datetime(2127, 1, 1, tzinfo=UTC)
    columns = {
        "vector": [[1.0, 2.0]] * rows,
        "payload": ["{}"] * rows,
        "expires": [at if each == row else None for each in range(rows)],
    }
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    [file] = input_files(str(tmp_path / "rows.parquet"), None)
    body = b"".join(source_of(file, Choices()).whole(lambda _: None).pieces())
    found = pa.ipc.open_stream(body).read_all().column("expires").to_pylist()
    assert [each and datetime.fromisoformat(each) for each in found] == columns["expires"]


def test_a_body_of_queries_has_no_ids() -> None:
    found = pa.ipc.open_stream(queries(rows_of([{3: 1.5}, {1: -2, 0: 1}]))[1]).read_all()
    assert found.to_pydict() == {"indices": [[3], [1, 0]], "values": [[1.5], [-2, 1]]}
    assert_array_equal(np.load(io.BytesIO(queries(rows_of(VECTORS))[1])), VECTORS)


def test_short_filters_stand_for_equality() -> None:
    label = {"key": "label", "match": {"value": 3}}
    assert filter_of({"label": np.int64(3)}) == {"must": [label]}
    assert filter_of({"label": [3, 5]}) == {"must": [{"key": "label", "match": {"any": [3, 5]}}]}
    assert filter_of({"must_not": label}) == {"must_not": label}
    assert filter_of(None) is None
    bounds = {"key": "price", "range": {"gte": 5, "lt": 9}}
    assert filter_of({"price": {"gte": 5, "lt": 9}}) == {"must": [bounds]}
    for bound in (date(2024, 1, 31), np.datetime64("2024-01-31"), "2024-01-31"):
        dated = {"key": "on", "range": {"gte": "2024-01-31"}}
        assert filter_of({"on": {"gte": bound}}) == {"must": [dated]}
    wrong: list[Json] = ["label=3", 3, lambda payload: True]
    for where in wrong:
        with pytest.raises(InvalidFilter, match="values by key such as"):
            filter_of(where)


def test_times_of_filters_are_instants_and_other_values_are_those_of_json() -> None:
    for day in (date(2024, 1, 31), np.datetime64("2024-01-31")):
        bounds = {"gte": "2024-01-31", "lte": "2024-01-31"}
        assert filter_of({"on": day}) == {"must": [{"key": "on", "range": bounds}]}
    few = {"must": [{"key": "label", "match": {"any": [1, 2]}}]}
    assert filter_of({"label": np.array([1, 2])}) == filter_of({"label": [np.int8(1), 2]}) == few
    assert filter_of({"key": "a"}) == {"must": [{"key": "key", "match": {"value": "a"}}]}
    for condition in ({"match": {"value": 1}}, {"range": {"gte": 1}}, {"exists": True}):
        with pytest.raises(InvalidFilter, match="a condition in 'must'"):
            filter_of({"key": "a", **condition})


def test_times_of_numpy_are_text_whatever_their_unit() -> None:
    for unit, text in (("D", "2024-01-31"), ("s", "2024-01-31T00:00:00")):
        days = np.array(["2024-01-31"]).astype(f"M8[{unit}]")
        assert items_of(np.eye(1), payloads={"on": days}).payloads == [
            b'{"on":"%b"}' % text.encode()
        ]
    fine = np.array(["2024-01-31", "2024-01-31T00:00:00.123456789", "NaT"], "M8[ns]")
    found = items_of(VECTORS, payloads={"on": fine}).payloads
    times = b'{"on":"2024-01-31T00:00:00"}', b'{"on":"2024-01-31T00:00:00.123456789"}'
    assert found == [*times, None]


INFINITE = (float("inf"), [1.0, -np.inf], {"deep": [np.float32(np.inf)]}, np.array([np.inf]))


@pytest.mark.parametrize(
    "bad",
    [{1, 2}, b"a", object(), timedelta(1), [{"deep": {1}}], np.timedelta64(1, "ns"), *INFINITE],
)
def test_what_json_does_not_hold_is_refused_by_its_column(bad: Json) -> None:
    for payloads in ({"label": [1, bad]}, [{"label": 1}, {"label": bad}]):
        with pytest.raises(InvalidPayload, match="expected values that JSON holds") as refused:
            items_of(np.eye(2), payloads=payloads)
        assert refused.value.loc in ((1, "label"), ("payloads", 1, "label"))


def test_decimals_are_numbers_or_text_where_a_float_loses_digits() -> None:
    long = "12345678901234.5678"
    values = [Decimal("1.50"), Decimal("2E+3"), Decimal(2) ** 70, Decimal(long), Decimal("NaN")]
    found = items_of(np.eye(6), payloads={"a": [*values, np.longdouble(1.5)]}).payloads
    expected = ["1.5", "2000", str(2**70), f'"{long}"', "null", "1.5"]
    assert found == [f'{{"a":{text}}}'.encode() for text in expected]
    with pytest.raises(InvalidPayload, match="Decimal Infinity"):
        items_of(np.eye(1), payloads=[{"a": Decimal("inf")}])


def test_what_pandas_has_for_nothing_is_null() -> None:
    for nothing in (pandas.NA, pandas.NaT, float("nan"), None):
        found = items_of(
            np.eye(2), payloads=[{"a": nothing}, {"a": pandas.Timestamp("2026-01-02")}]
        )
        assert found.payloads == [b'{"a":null}', b'{"a":"2026-01-02T00:00:00"}']
    frame = pandas.DataFrame({"x": [1.0, 2.0], "label": ["a", pandas.NA], "at": [pandas.NaT] * 2})
    assert items_of(frame).payloads == [b'{"label":"a"}', None]


@pytest.mark.parametrize(
    "number", [2**64 - 1, 2**64, -(10**30), 0.1 + 1e-17, 1e-7 / 3, 123456789012345678.5, 1e22]
)
def test_json_text_is_read_with_all_digits_of_integers_beside_long_fractions(number: float) -> None:
    fractions = "0.00012345678901234567, 12.0000000000000000000000000000000000000000001"
    for text in (f"[{number!r}, {fractions}]", f"[{fractions}, {number!r}]"):
        assert read_json(text) == json.loads(text)
    assert read_json(f'{{"a": [{number!r}], "b": 3}}') == {"a": [number], "b": 3}
