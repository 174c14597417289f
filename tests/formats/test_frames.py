"""Frames of pandas, polars and Arrow: which column means what."""

import json
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet
import pytest

from gcws_search import InvalidId, InvalidParameter, InvalidPayload, InvalidVector
from gcws_search.formats.items import items_of, items_of_texts
from gcws_search.formats.tables import Layout, guess, rows_of_frame
from gcws_search.formats.vectors import part_of, row_of_error, rows_of, usable
from tests.support.counts import compared_texts
from tests.support.files import items
from tests.support.service.client import Json

COLUMNS: dict[str, Json] = {"id": ["a", "b"], "x": [1, 2], "y": [0.5, -1], "roast": ["light", None]}
LISTS: dict[str, Json] = {"id": [7, 8], "vector": [[1, 2], [3, 4]], "roast": ["light", "dark"]}


MADE: list[Callable[[dict[str, Json]], Json]] = [pandas.DataFrame, polars.DataFrame, pa.table]


@pytest.mark.parametrize("made", MADE)
def test_columns_of_numbers_are_the_vector_and_others_the_payload(made: Json) -> None:
    items = items_of(made(COLUMNS))
    assert items.ids == ["a", "b"]
    assert items.rows.matrix().tolist() == [[1, 0.5], [2, -1]]
    assert items.payloads == [b'{"roast":"light"}', None]


@pytest.mark.parametrize("made", MADE)
def test_a_column_of_lists_is_the_vector(made: Json) -> None:
    items = items_of(made(LISTS))
    assert items.ids == ["7", "8"]
    assert items.rows.matrix().tolist() == [[1, 2], [3, 4]]
    assert items.payloads == [b'{"roast":"light"}', b'{"roast":"dark"}']


def test_the_index_of_a_column_means_what_that_of_a_frame_does() -> None:
    columns = {
        "vectors": [np.array([1, 2]), np.array([3, 4])],
        "dicts": [{"u": 1.0}, {"v": 2.0}],
        "texts": ["one word", "two words"],
    }
    times = pandas.date_range("2026-01-01", periods=2)
    for kind, values in columns.items():
        read = items_of_texts if kind == "texts" else items_of
        for index, ids in (
            (["a", "b"], ["a", "b"]),
            (pandas.Index([7, 5], name="key"), ["7", "5"]),
            ([7, 5], None),
            (times, None),
        ):
            found = read(pandas.Series(values, index=index))
            assert found.ids == ids, (kind, index)
            assert len(found) == 2
            assert (found.payloads is None) == (index is not times)
        found = read(pandas.Series(values, index=["a", "b"]), ["c", "d"], {"n": [1, 2]})
        assert found.ids == ["c", "d"]
        assert found.payloads == [b'{"n":1}', b'{"n":2}']
        with pytest.raises(InvalidId, match="'a' twice"):
            read(pandas.Series(values, index=["a", "a"]))
    for empty in (items_of(pandas.Series([])), items_of_texts(pandas.Series([], dtype=object))):
        assert len(empty) == 0


def test_rows_of_the_same_labels_in_another_order_are_refused() -> None:
    frame = pandas.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]}, index=["a", 1])
    texts = pandas.Series(["one", "two"], index=["a", 1])
    other = pandas.DataFrame({"n": [1, 2]}, index=[1, "a"])
    for read, data in ((items_of, frame), (items_of, frame["x"]), (items_of_texts, texts)):
        with pytest.raises(InvalidParameter, match="payloads: expected rows in the order"):
            read(data, payloads=other)
        with pytest.raises(InvalidParameter, match="ids: expected rows in the order"):
            read(data, ids=other["n"])
    for payloads in (other.loc[frame.index], other.reset_index(drop=True)):  # the rows are its own
        found = items_of(frame, payloads=payloads).payloads
        assert found == [b'{"n":%d}' % n for n in payloads["n"]]


def test_a_text_of_a_frame_that_is_none_is_refused_by_row() -> None:
    frame = pandas.DataFrame({"text": ["a", 3, "b"], "n": [1, 2, 3]})
    with pytest.raises(InvalidVector, match=r"rows\[1\]\.text: expected a string, got 3"):
        items_of(frame, text="text")


@pytest.mark.parametrize("made", MADE)
def test_names_of_columns_say_what_they_are(made: Json) -> None:
    items = items_of(made(COLUMNS | {"roast": ["p", "q"]}), ids="roast", payloads=["id", "x"])
    assert items.ids == ["p", "q"]
    assert items.rows.matrix().tolist() == [[0.5], [-1]]
    assert items.payloads == [b'{"id":"a","x":1}', b'{"id":"b","x":2}']


def test_the_index_of_a_pandas_frame_has_the_ids_where_it_has_a_name_or_holds_text() -> None:
    frame = pandas.DataFrame({"x": [1, 2]}, index=["a", "b"])
    assert items_of(frame).ids == ["a", "b"]
    named = frame.rename_axis("bean")
    found = items_of(named)
    assert (found.ids, found.payloads) == (["a", "b"], None)
    assert items_of(named.assign(id=["c", "d"])).ids == ["c", "d"]
    for numbers in ([7, 3], range(2), range(5, 1, -2)):
        numbered = frame.set_axis(numbers)
        found = items_of(numbered.rename_axis("bean"))
        assert (found.ids, found.payloads) == ([*map(str, numbers)], None)
        assert items_of(numbered.rename_axis("bean").assign(id=["c", "d"])).ids == ["c", "d"]


INDEXES: dict[str, Json] = {"range": range(2), "part of a range": range(4, 8, 2), "numbers": [7, 3]}


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
def test_an_index_that_only_counts_rows_is_neither_ids_nor_a_coordinate(index: Json) -> None:
    frame = pandas.DataFrame({"x": [1, 2], "y": [3.0, 4]}, index=index)
    table = pa.Table.from_pandas(frame)  # as Parquet has it, too
    for columns in (frame, table):
        found = items_of(columns)
        assert (found.ids, [*found.rows.json()]) == (None, [[1, 3], [2, 4]])
        assert found.payloads is None
        assert items_of(columns, id_start=3).texts() == ["3", "4"]
        asked = items_of(columns, ids="index")
        assert asked.ids == [*map(str, index)]
        assert ([*asked.rows.json()], asked.payloads) == ([[1, 3], [2, 4]], None)


def test_other_indexes_become_payload() -> None:
    frame = pandas.DataFrame({"x": [1, 2]})
    days = frame.set_axis(pandas.to_datetime(["2026-01-01", "2026-01-02"])).rename_axis("day")
    found = items_of(days)
    assert (found.ids, [*found.rows.json()]) == (None, [[1], [2]])
    assert found.payloads is not None
    assert b"2026-01-02" in (found.payloads[1] or b"")
    levels = frame.assign(a=[5, 6], b=["u", "v"]).set_index(["a", "b"])
    found = items_of(levels)
    assert (found.ids, [*found.rows.json()]) == (None, [[1], [2]])
    assert found.payloads == [b'{"a":5,"b":"u"}', b'{"a":6,"b":"v"}']
    for one in (levels, pa.table({"x": [1, 2]})):
        with pytest.raises(InvalidParameter, match="with one index"):
            items_of(one, ids="index")
    named = frame.assign(index=["u", "v"])  # a column of this name
    assert items_of(named, ids="index").ids == ["u", "v"]


def test_an_index_without_a_name_becomes_payload_under_the_name_of_reset_index(
    tmp_path: Path,
) -> None:
    frame = pandas.DataFrame({"x": [1, 2]})
    days = frame.set_axis(pandas.to_datetime(["2026-01-01", "2026-01-02"]))
    levels = frame.set_index([[5, 6], ["u", "v"]])
    path = tmp_path / "a.parquet"
    for table, keys in (
        (days, ["index"]),
        (days.assign(index=["p", "q"]), ["index", "level_0"]),
        (levels, ["level_0", "level_1"]),
    ):
        table.to_parquet(path)
        read = polars.read_parquet(path)
        for payloads in (
            [json.loads(text or b"") for text in items_of(table).payloads or []],
            [json.loads(text or b"") for text in items_of(read).payloads or []],
            [payload for _, _, payload in items(path)],
        ):
            assert [sorted(each) for each in payloads] == [keys, keys]
    for index in ([0.5, 1.5], [True, False]):
        found = items_of(frame.set_axis(index))
        assert (found.ids, found.payloads) == (
            None,
            [json.dumps({"index": each}, separators=(",", ":")).encode() for each in index],
        )
        with pytest.raises(InvalidId, match="expected"):
            items_of(frame.set_axis(index), ids="index")
    [payload, _] = items_of(levels.rename_axis([None, "b"])).payloads or []
    assert payload == b'{"index":5,"b":"u"}'
    assert items_of(days).payloads == [
        b'{"index":"2026-01-01T00:00:00"}', b'{"index":"2026-01-02T00:00:00"}',
    ]  # fmt: skip


def test_a_named_range_of_parquet_gives_the_ids(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    frame = pandas.DataFrame({"x": range(1, 5001)}, index=pandas.RangeIndex(7, 10007, 2, name="n"))
    frame.to_parquet(path)
    found = items(path)
    assert [id_ for id_, _, _ in found] == items_of(frame).ids == [*map(str, range(7, 10007, 2))]
    assert [vector for _, vector, _ in found] == [[x] for x in range(1, 5001)]
    assert items(path, id="n") == found
    assert items(path, id="", id_start=3)[0][0] == "3"
    frame.rename_axis(None).to_parquet(path)
    assert items(path)[0][0] is None
    frame.assign(id=frame.x).to_parquet(path)
    assert items(path)[0][0] == "1"


def test_dicts_of_a_frame_keep_the_keys_that_each_has() -> None:
    values: list[Json] = [{"a": 1}, None, {"b": [1, {"c": 2}]}, [{"a": 1}, {"b": 2}]]
    for some in (values[:3], values[3:] + values[3:]):
        frame = pandas.DataFrame({"x": range(len(some)), "t": some})
        found = [text and json.loads(text)["t"] for text in items_of(frame).payloads or []]
        assert found == some


def test_an_index_of_texts_and_numbers_gives_ids() -> None:
    frame = pandas.DataFrame({"x": [1, 2]}, index=["u", 5])
    assert items_of(frame).ids == ["u", "5"]
    assert items_of(frame.rename_axis("key")).ids == ["u", "5"]


def test_an_index_that_repeats_itself_is_taken_for_ids_only_where_that_is_said() -> None:
    frame = pandas.DataFrame({"x": [1, 2, 3]}, index=["a", "b", "a"])
    with pytest.raises(InvalidId, match="'a' twice") as caught:
        items_of(frame)
    assert caught.value.loc == ("ids", 2)
    assert items_of(frame, ids="index").ids == ["a", "b", "a"]
    assert [*rows_of(frame).json()] == [[1], [2], [3]]


def test_an_index_without_a_name_is_no_field_of_a_frame_of_payloads() -> None:
    for index in ([5, 9], ["u", "v"], None):
        frame = pandas.DataFrame({"a": [1, 2]}, index=index)
        assert items_of(np.eye(2), payloads=frame).payloads == [b'{"a":1}', b'{"a":2}']
    named = pandas.DataFrame({"a": [1, 2]}, index=pandas.Index([5, 9], name="n"))
    assert items_of(np.eye(2), payloads=named).payloads == [b'{"a":1,"n":5}', b'{"a":2,"n":9}']


@pytest.mark.parametrize(
    "name", ["type", "dtype", "to_table", "to_pylist", "to_list", "read_all", "tocsr", "collect"]
)
def test_a_pandas_column_called_like_an_attribute_of_other_libraries_is_a_column(name: str) -> None:
    labels = pandas.DataFrame({name: ["u", "v"]})
    expected = [json.dumps({name: each}, separators=(",", ":")).encode() for each in ("u", "v")]
    assert items_of(np.eye(2), payloads=labels).payloads == expected
    made = items_of(labels.assign(a=[1.0, 2.0]))
    assert ([*made.rows.json()], made.payloads) == ([[1], [2]], expected)
    numbers = pandas.DataFrame({"a": [1.0, 2.0], name: [3.0, 4.0]})
    rows, kept, bad = usable(rows_of, numbers, skips=True)
    assert ([*rows.json()], kept, bad) == ([[1, 3], [2, 4]], None, {})
    assert [*rows_of(part_of(numbers, [1])).json()] == [[2, 4]]


@pytest.mark.parametrize("names", [["x", "x"], [1, "1"]])
def test_two_columns_of_one_name_are_refused_by_their_name(names: list[Any]) -> None:
    frame = pandas.DataFrame([[1, 2], [3, 4]], columns=names)
    uses: list[Callable[[], object]] = [
        lambda: items_of(frame),
        lambda: rows_of_frame(frame),
        lambda: items_of(np.eye(2), payloads=frame),
    ]
    for use in uses:
        with pytest.raises(InvalidParameter, match=f"got '{names[0]}' twice"):
            use()


def test_sparse_columns_of_pandas_are_taken_like_others() -> None:
    words = pandas.get_dummies(pandas.Series(["u", "v", "u"]), sparse=True)
    assert [*items_of(words).rows.json()] == [[1, 0], [0, 1], [1, 0]]
    counts = words.astype(pandas.SparseDtype(float)).assign(z=[1, 2, 3])
    assert [*rows_of_frame(counts).json()] == [[1, 0, 1], [0, 1, 2], [1, 0, 3]]
    assert items_of(np.eye(3), payloads=counts).payloads == [
        b'{"u":1.0,"v":0.0,"z":1}', b'{"u":0.0,"v":1.0,"z":2}', b'{"u":1.0,"v":0.0,"z":3}',
    ]  # fmt: skip


def test_one_column_is_a_payload_where_it_has_a_name() -> None:
    for labels in (pandas.Series(["a", "b"]), polars.Series(["a", "b"]), pa.chunked_array([["a"]])):
        with pytest.raises(InvalidPayload, match="got a column without a name"):
            items_of(np.eye(2), payloads=labels)
    for labels in (pandas.Series(["a", "b"], name="x"), polars.Series("x", ["a", "b"])):
        assert items_of(np.eye(2), payloads=labels).payloads == [b'{"x":"a"}', b'{"x":"b"}']


def test_categories_of_polars_are_text() -> None:
    labels = polars.Series(["u", None], dtype=polars.Categorical)
    found = items_of(polars.DataFrame({"x": [1, 2], "label": labels}))
    assert found.payloads == [b'{"label":"u"}', None]


def test_categories_views_and_nested_types_are_taken() -> None:
    table = pa.table(
        {
            "id": pa.array(["a", "b"]).dictionary_encode(),
            "vector": pa.array([[1, 2], [3, 4]], pa.list_view(pa.float32())),
            "tags": pa.array([["x"], []]),
            "seen": pa.array([0, 86400], pa.timestamp("s")),
        }
    )
    items = items_of(table)
    assert items.ids == ["a", "b"]
    assert items.payloads is not None
    assert items.payloads[0] == b'{"tags":["x"],"seen":"1970-01-01T00:00:00"}'


def test_sparse_columns_and_payload_text() -> None:
    table = pa.table(
        {
            "id": ["a", "b"],
            "indices": [[3, 1], []],
            "values": [[2.0, 1.0], []],
            "payload": ['{"n": 123456789012345678901}', None],
        }
    )
    items = items_of(table)
    assert next(items.rows.json()) == {"indices": [3, 1], "values": [2, 1]}
    assert items.payloads == [b'{"n":123456789012345678901}', None]
    named = items_of(pa.table({"names": [["acid"]], "values": [[2.0]]}))
    assert [*named.rows.json()] == [{"names": ["acid"], "values": [2]}]
    assert named.ids is None


@pytest.mark.parametrize(("bad", "got"), [(1.5, "1.5"), (None, "a missing value")])
def test_coordinates_of_a_frame_are_whole_numbers(bad: float | None, got: str) -> None:
    whole = pa.table({"indices": [[3.0, 1.0], [2.0]], "values": [[2.0, 1.0], [3.0]]})
    assert rows_of(whole).indices.tolist() == [3, 1, 2]
    odd = pa.table({"indices": [[3], [2, bad]], "values": [[2.0], [3.0, 4.0]]})
    with pytest.raises(InvalidVector, match=f"expected a whole number, got {got}") as refused:
        items_of(odd)
    assert refused.value.loc == (1, "indices")


def test_a_slice_of_a_table_is_taken_as_it_is() -> None:
    table = pa.table({"vector": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2))})
    assert items_of(table.slice(1)).rows.matrix().tolist() == [[3, 4], [5, 6]]


SCHEMA = pa.schema(
    [("ID", pa.int64()), *((f"px{i}", pa.float32()) for i in range(3)), ("label", pa.int8())]
)


def test_patterns_choose_columns() -> None:
    layout = guess(SCHEMA, vector=["px*"])
    assert layout == Layout("ID", ("px0", "px1", "px2"), ("label",))
    assert layout.dim(SCHEMA) == 3
    assert guess(SCHEMA, payload=["label"]).vector == ("px0", "px1", "px2")
    assert guess(SCHEMA).vector == ("px0", "px1", "px2", "label")
    assert guess(SCHEMA, id_="label", payload=[]).payload == ()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"id_": "key"}, "a column 'key', got ID, px0, px1, px2, label"),
        ({"vector": ["q*"]}, "a column 'q*'"),
        ({"payload": ["colour"]}, "a column 'colour'"),
    ],
)
def test_columns_that_are_not_there_are_named(options: dict[str, Json], words: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        guess(SCHEMA, **options)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ({"roast": ["light"]}, InvalidParameter, "columns of numbers for the vector"),
        ({"a": [[1]], "b": [[1]]}, InvalidParameter, "one column of lists"),
        ({"vector": [[1, 2], [3]]}, InvalidVector, "2 values, as in row 0, got 1 value"),
        ({"vector": [[1, 2], None]}, InvalidVector, "a list in column 'vector', got null"),
        ({"id": ["a", None], "x": [1, 2]}, InvalidId, "UUIDs as ids, got a missing value"),
        ({"x": [1], "payload": ["{"]}, InvalidPayload, "JSON text of an object"),
        ({"indices": [[1, 2]], "values": [[1]]}, InvalidVector, "as many indices as values"),
        ({"names": [[["a"]]], "values": [[1]]}, InvalidVector, "names: expected lists of text"),
        ({"names": [[b"a"]], "values": [[1]]}, InvalidVector, "names: expected lists of text"),
        ({"names": [["a"]], "values": [["b"]]}, InvalidVector, "values: expected lists of numbers"),
        ({"names": [["a"], ["b", None]], "values": [[1], [1, 2]]}, InvalidVector, "[1].names"),
    ],
)
def test_what_makes_no_items_is_refused(
    columns: dict[str, Json], error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as refused:
        items_of(pa.table(columns))
    assert words in str(refused.value)


def test_text_in_the_vector_is_refused_by_its_column() -> None:
    with pytest.raises(InvalidParameter, match="numbers in column 'roast'"):
        guess(pa.table(COLUMNS).schema, vector=["x", "roast"])


def test_missing_numbers_are_left_to_the_collection() -> None:
    rows = items_of(pa.table({"x": [1, None], "y": [2.0, 3.0]})).rows
    assert np.isnan(rows.matrix()[1, 0])


@pytest.mark.parametrize("bad", [object(), {"a"}, {3}, 1j, b"a", [b"a"], {"deep": {1}}])
def test_what_json_does_not_hold_is_refused_by_its_row_and_column(bad: Json) -> None:
    for first in (None, bad):
        frame = pandas.DataFrame({"x": [1.0, 2.0, 3.0], "label": [first, bad, None]})
        with pytest.raises(InvalidPayload, match="values that JSON holds") as refused:
            items_of(frame)
        assert refused.value.loc == (int(first is None), "label")
        assert items_of(frame, payloads=[]).payloads is None


@pytest.mark.parametrize("column", [pa.array([1, 2], pa.duration("s")), pa.array([b"a", b"b"])])
def test_a_column_that_json_does_not_hold_is_refused_in_each_of_its_rows(column: Json) -> None:
    with pytest.raises(InvalidPayload) as refused:
        items_of(pa.table({"x": [1.0, 2.0], "label": column}))
    assert [each.loc for each in (refused.value, *refused.value.others)] == [
        (0, "label"),
        (1, "label"),
    ]


def test_columns_of_several_types_are_taken_as_they_are() -> None:
    mixed = ["a", 3, None, pandas.NA, float("nan"), pandas.Timestamp("2026-01-02"), Decimal("1.5")]
    frame = pandas.DataFrame({"x": range(7), "label": mixed})
    texts = ['"a"', "3", None, None, None, '"2026-01-02T00:00:00"', "1.5"]
    expected = [None if text is None else f'{{"label":{text}}}'.encode() for text in texts]
    assert items_of(frame).payloads == expected
    assert items_of(frame[["x"]], payloads=frame[["label"]]).payloads == expected
    assert items_of(frame[:2], ids="label").ids == ["a", "3"]
    with pytest.raises(InvalidId):
        items_of(frame, ids="label")


def test_values_that_arrow_does_not_hold_are_taken_as_json_or_refused_by_their_column() -> None:
    frame = pandas.DataFrame({"x": [1.0, 2.0], "label": [10**30, 2]})
    assert items_of(frame).payloads == [f'{{"label":{10**30}}}'.encode(), b'{"label":2}']
    assert items_of(frame, ids="label").ids == [str(10**30), "2"]
    halves = pandas.Series(["a\ud800", "b"], dtype=object)
    with pytest.raises(InvalidPayload, match="half of a surrogate pair") as refused:
        items_of(frame.assign(label=halves))
    assert refused.value.loc == (0, "label")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[2**53 + 1, None]]),
        pa.array([[Decimal(2**53), None]]),
        pa.array([[2.0**53, None]], pa.large_list(pa.float64())),
    ],
)
def test_lists_of_long_and_missing_numbers_are_left_to_the_collection(column: Json) -> None:
    [row] = items_of(pa.table({"vector": column})).rows.matrix()
    np.testing.assert_array_equal(row, [2.0**53, np.nan])


def test_lists_of_text_are_taken_as_pandas_reads_them_from_parquet(tmp_path: Path) -> None:
    """It makes arrays of objects of them."""
    lists = {"names": [["acid", "ester"], ["acid"]], "values": [[1.0, 2.0], [3.0]]}
    table = pa.table({"id": ["a", "b"], **lists, "tags": [["x"], ["x", None]]})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    expected, found = items_of(table), items_of(pandas.read_parquet(tmp_path / "a.parquet"))
    assert [*found.rows.json()] == [*expected.rows.json()]
    assert found.payloads == expected.payloads == [b'{"tags":["x"]}', b'{"tags":["x",null]}']


def test_the_columns_of_a_table_are_planned_without_comparing_each_with_each() -> None:
    schema = pa.table({f"c{number}": [1.0] for number in range(1000)}).schema
    names = compared_texts(schema.names)
    compared = SimpleNamespace(names=names, field=schema.field, pandas_metadata=None)
    assert len(guess(compared).vector) == 1000
    assert names[0].comparisons[0] < 10 * 1000


@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [
        (rows_of, [1, 2], ["x", "y"]),
        (rows_of, {"a": 1}, {"a": "x"}),
        (items_of_texts, "a text", None),
        (partial(items_of, text="text"), {"text": "a text"}, {"text": 5}),
        (lambda ids: items_of([[1, 2]] * len(ids), ids), "a", None),
    ],
    ids=["lists", "dicts", "texts", "frame", "ids"],
)
def test_any_number_of_bad_rows_is_found_in_one_reading(
    read: Callable[[Json], Json], good: Json, bad: Json
) -> None:
    """Readings of all rows for each bad one, or some of them, would take quadratic time."""
    readings: list[int] = []
    count = 12_000

    def counted(column: Json) -> Json:
        readings.append(len(column))
        return read(column)

    column: Json = [good if row % 3 else bad for row in range(count)]
    if isinstance(good, dict) and "text" in good:
        column = pandas.DataFrame(column)
    found, rows, faults = usable(counted, column, skips=True)
    assert len(found) == count * 2 // 3
    assert rows == [row for row in range(count) if row % 3]
    assert {row: row_of_error(each) for row, each in faults.items()} == {
        row: row for row in range(0, count, 3)
    }
    assert readings == [count, count * 2 // 3]


def test_a_missing_id_of_an_index_without_a_name_is_named_as_pandas_does() -> None:
    frame = pandas.DataFrame({"x": [1, 2]}, index=["a", None])
    with pytest.raises(InvalidId, match=r"\[1\]\.index: expected .* got a missing value"):
        items_of(frame)


def test_a_list_of_another_length_is_named_by_its_row_and_column() -> None:
    frame = pandas.DataFrame({"x": [1, 2], "tags": [[1, 2], [3]]})
    with pytest.raises(InvalidVector, match=r"\[1\]\.tags: expected 2 values"):
        items_of(frame)
