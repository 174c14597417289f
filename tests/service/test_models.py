"""Bodies of JSON: a long one, read in pieces, is read as a short one is, or refused either way."""

import codecs
import json
import sys
from itertools import product
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from gcws_search.index import InvalidInput
from gcws_search.service import models
from gcws_search.service.api.analysis import ExplainBody, MapBody, SimilarityBody, SketchBody
from gcws_search.service.api.backends import CompareBody
from gcws_search.service.api.collections import CreateBody, NamesBody, PatchBody
from gcws_search.service.api.items import DeleteItemsBody, PutItemsBody
from gcws_search.service.api.query import BatchBody, CountBody, QueryBody
from gcws_search.service.errors import InvalidRequest, MalformedBody
from gcws_search.service.models import Body, ItemBody
from gcws_search.service.problems import invalid_request
from gcws_search.service.settings import Settings
from tests.support.processes import run_python
from tests.support.service.client import Json

LIMITS: Final = Settings()
TEXTS = st.text(max_size=6) | st.text('",:[]{}\\ \n', max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=6),
    max_leaves=40,
)
OBJECTS = st.dictionaries(TEXTS, VALUES | st.lists(VALUES, max_size=9), max_size=6)
SPACES = st.sampled_from([(",", ":"), (", ", ": "), (" \n,\t", " : "), ("\r\n , ", ":")])
EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from([*'",:[]{}\\ 1-n', "", "null", ",,", "é", "[]"]),
              st.integers(0, 2)), max_size=3,
)  # fmt: skip


def read_at_once(text: bytes) -> Any:  # noqa: ANN401
    found = from_json(text)
    if not isinstance(found, dict):
        raise ValueError("no object")  # as is said of the other way
    return found


def read_in_pieces(text: bytes, piece_bytes: int) -> Any:  # noqa: ANN401
    """Return an object, each member read as whole values between cuts."""
    found: dict[str, Any] = {}
    for member in models.outline_object(text, piece_bytes=piece_bytes):
        value = from_json(text[member.start : member.stop])
        if text[member.start : member.start + 1] == b"[":
            entries: list[Any] = []
            for first, count, start, stop in member.pieces(text):
                assert first == len(entries)
                entries += from_json(b"[%s]" % text[start:stop])
                assert count == len(entries) - first
                assert count == 1 or stop - start <= piece_bytes
            assert entries == value or repr(entries) == repr(value)
            assert member.count(text) == len(entries)
        found[member.name] = value
    return found


def outcome(read: Any, *arguments: Any) -> Any:  # noqa: ANN401
    try:
        return repr(read(*arguments))
    except ValueError:
        return ValueError


@given(OBJECTS, SPACES, st.booleans(), EDITS, st.integers(0, 30))
def test_an_object_read_in_pieces_is_the_same_as_read_at_once(
    value: Any,  # noqa: ANN401
    spaces: tuple[str, str],
    ascii_only: bool,
    edits: list[tuple[float, str, int]],
    piece_bytes: int,
) -> None:
    text = json.dumps(value, separators=spaces, ensure_ascii=ascii_only).encode()
    for share, new, removed in edits:
        at = int(share * len(text))
        text = text[:at] + new.encode() + text[at + removed :]
    assert outcome(read_in_pieces, text, piece_bytes) == outcome(read_at_once, text)


HARD: Final = (
    b"", b" ", b"1", b"[", b"{", b"}", b"{}", b" { } ", b"{,}", b"{}{}", b"{},{}", b"{}}", b"{} 1",
    b"1 {}", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{,"a":1}', b'{"a":1]', b'["a":1}',
    b'{"a":[1,2,3],"a":[4,5,6],"b":1}', b'{"b":1,"a":2,"b":[1,2,3]}', b'{"a":[1,2]:3}',
    b"{[1,2]:3}", b'{"a" [1,2]}', b'{"a":1,,"b":[1,2]}', b'{"a":[1,2] "b":1}', b'{"a":[1,2],[3,4]}',
    b'{"a":[1,2] [3,4]}', b'{"a":[1,2] 3}', b'{"a":[1,2,]}', b'{"a":[,1,2]}', b'{"a":[1,,2]}',
    b'{"a":[ , ]}', b'{"a":[1,2}', b'{"a":[1,2}}', b'{"a":[{"b":1],{"c":2]}', b'{"":[1,2],"":1}',
    b'{"\\"":[1,2],"\\\\":["\\\\",",\\",]"]}', b'{"a":["\\ud800", [1,2]]}',
    b'{"a":["\xff", [1,2]]}', b'{"\xff":[1,2]}', b'{"a":["\n", [1,2]]}', b'{"a":["b',
    b'{"a":["b\\"]}', b'{"a":nul}', b'{"a":[1-[1,2]]}', b'{"a":[NaN, [1, Infinity]]}',
    b'\xef\xbb\xbf{"a":[1,2,3]}', b'{"a":[1e999,[1,2]]}', b'{"a":[' + b"9" * 5000 + b",[1,2]]}",
)  # fmt: skip


def test_texts_that_are_hard_to_cut() -> None:
    for text in HARD:
        for piece_bytes in (0, 3):
            assert outcome(read_in_pieces, text, piece_bytes) == outcome(read_at_once, text), text


def test_borders_of_blocks_are_no_borders_of_strings() -> None:
    for word in (b'\\"],', b'\\\\",', b'\\\\\\"{', b'","', b"[]"):
        for filled in range(64):
            text = b'{"a":["' + b"x" * filled + word + word + b'"],"b":[1,{}]}'
            for block_bytes in (3, 64):
                found = outcome(read_in_pieces, text, block_bytes)
                assert found == outcome(read_at_once, text), text


@pytest.mark.parametrize("depth", [150, 100_000])
@pytest.mark.parametrize("bracket", ["[]", '{"a":}'])
def test_depth_is_bounded_as_it_is_at_once(depth: int, bracket: str) -> None:
    text = ('{"b":' + bracket[:-1] * depth + "1" + bracket[-1] * depth + "}").encode()
    assert outcome(read_in_pieces, text, 50) == outcome(read_at_once, text)


def test_no_piece_is_much_longer_than_asked() -> None:
    for entries in ([0.25] * 100_000, [{"a": [1, 2]}] * 20_000, ["x" * 50] * 9000):
        text = json.dumps({"b": 1, "entries": entries}).encode()
        _, member = models.outline_object(text, piece_bytes=10_000)
        sizes = [piece.stop - piece.start for piece in member.pieces(text)]
        assert max(sizes) <= 10_000
        assert sum(sizes) + len(sizes) >= len(text) - 100


LONG: Final[list[Json]] = [{"id": number} for number in range(1000)]
NUMBERS: Final = [1.5] * 1000


def plain(value: Any) -> Any:  # noqa: ANN401
    """Return a body as what can be compared."""
    if isinstance(value, BaseModel):
        return {name: plain(each) for name, each in value.__dict__.items()}
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist()
    return [*map(plain, value)] if isinstance(value, list) else value


BLANKS: Final = b" " * 150_000


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (QueryBody, b'{"vector":{"indices":[1],%s"values":[2]}}'),
        (QueryBody, b'{"vector":{"names":["a"],%s"values":[2]},"filter":{"must":[%s]}}'),
        (QueryBody, b'{"vector":{"indices":[1],"x":[%s{}]}}'),
        (QueryBody, b'{"vector":{"indices":[1],"x":[%s{}}}'),
        (QueryBody, b'{"vector":{"indices":{"x":[%s1]}}}'),
        (ExplainBody, b'{"a":{"id":1%s},"b":{"vector":{"indices":[1%s]}}}'),
        (ExplainBody, b'{"a":{"id":1%s},"b":{"vector":{"indices":[1%s],"x":1},"y":2}}'),
        (CreateBody, b'{"dim":4,"backend":{"kind":"rff","params":{%s"features":64}}}'),
        (CreateBody, b'{"dim":4,"backend":{"kind":"rff","params":{%s"bands":64}}}'),
        (PatchBody, b'{"metadata":{%s"a":{"b":[1]},"view":{"title":"t"}}}'),
        (SimilarityBody, b'{"a":[1],"b":[2],"params":{"x":%s{"y":[]}}}'),
        (PutItemsBody, b'{"items":[{"id":1,"vector":[1],%s"payload":{"x":[{}]}}]}'),
    ],
    ids=lambda value: str(value)[-50:],
)
def test_a_value_with_blanks_in_it_is_what_it_is_without(model: type[Body], text: bytes) -> None:
    def result(blanks: bytes) -> Json:
        try:
            return plain(models.parse(model, text.replace(b"%s", blanks), LIMITS))
        except InvalidRequest as error:
            return error.code, error.errors, str(error)
        except MalformedBody:
            return MalformedBody

    assert result(BLANKS + BLANKS) == result(b"")


@pytest.mark.parametrize(
    ("model", "document"),
    [
        (BatchBody, {"queries": LONG}),
        (BatchBody, {"queries": [*LONG, {"id": 1.5}]}),
        (BatchBody, {"queries": [*LONG, {"vector": [1e999]}]}),
        (BatchBody, {"queries": [*LONG, {"id": 1, "limt": 3}]}),
        (BatchBody, {"queries": [*LONG, 7]}),
        (BatchBody, {"queries": LONG, "x": 1}),
        (BatchBody, {"queries": LONG, "x": [[[{}] * 9]] * 9}),
        (BatchBody, {"queris": LONG}),
        (BatchBody, {}),
        (BatchBody, [LONG]),
        (BatchBody, []),
        (BatchBody, "queries"),
        (BatchBody, {"queries": []}),
        (BatchBody, {"queries": {"a": [1, 2]}}),
        (BatchBody, {"queries": [*LONG, {"vector": {"indices": [0.5], "values": [1]}}]}),
        (QueryBody, {"vector": NUMBERS}),
        (QueryBody, {"vector": [*NUMBERS, "a"]}),
        (QueryBody, {"vector": {"indices": [*range(9)], "values": [1] * 9}}),
        (QueryBody, {"vector": {"indices": [2**70, 1]}}),
        (QueryBody, {"vector": {"base64": "zczMPQAAAMA="}, "filter": {"must": [{"a": [2**70]}]}}),
        (QueryBody, {"vector": {"indices": [*range(9)], "values": [1, "a"]}}),
        (QueryBody, {"vector": {"names": ["a", "b"], "values": [1, 0.5]}}),
        (QueryBody, {"vector": {"names": [1, "b"], "values": [1, 0.5]}}),
        (QueryBody, {"vector": {"names": ["a"], "indices": [1]}}),
        (QueryBody, {"vector": {"values": [1, 2]}}),
        (PutItemsBody, {"items": [{"vector": {"indices": [2**70, 1], "values": [1, 2]}}] * 9}),
        (PutItemsBody, {"items": [{"vector": NUMBERS}, {"id": 1, "vector": [*NUMBERS, "a"]}]}),
        (PutItemsBody, {"items": [{"vector": [1]}, {"id": 1, "vector": {"x": [NUMBERS]}}]}),
        (PutItemsBody, {"items": [{"vector": [1]}, [1, 2, 3]]}),
        (ExplainBody, {"a": {"vector": {"names": ["a"]}}, "b": {"vector": [*NUMBERS, None]}}),
        (SketchBody, {"vectors": [NUMBERS, [*NUMBERS, "a"]]}),
        (CreateBody, {"dim": 4, "transform": {"center": NUMBERS}}),
        (CreateBody, {"dim": 4, "transform": {"center": [1, {"a": [1]}]}}),
        (DeleteItemsBody, {"ids": [*range(1000)]}),
        (DeleteItemsBody, {"ids": [*range(1000), 0.5]}),
        (DeleteItemsBody, {"ids": ["a"] * 100_001}),
        (SimilarityBody, {"a": NUMBERS, "b": [*NUMBERS, None]}),
        (CompareBody, {"queries": [[1.5]] * 1000}),
        (CompareBody, {"backends": ["a"] * 1000}),
        (NamesBody, {"names": ["a"] * 1000}),
        (MapBody, {"also": ["a", 1, [1]] * 300}),
        (MapBody, {"also": ["a", True]}),
        (MapBody, {"sample": [1] * 9}),
        (CountBody, {"filter": [1] * 9}),
        (SketchBody, {"vectors": [{"names": ["a", "b"]}, [1, 2], {"indices": [1], "x": 1}]}),
        (PutItemsBody, {"items": [{"id": 1, "vector": [1], "payload": {"a": [float("nan")]}}]}),
        (PutItemsBody, {"items": [{"id": 1, "vector": [1], "payload": {"a": {"b": "],"}}}]}),
    ],
    ids=lambda value: str(value)[-50:],
)
@pytest.mark.parametrize("piece_bytes", [16, 1 << 17])
def test_a_long_body_is_read_as_a_short_one_is(
    model: type[Body], document: Json, piece_bytes: int
) -> None:
    text = json.dumps(document).encode()

    def result(parse: Json, **options: int) -> Json:
        try:
            return plain(parse(model, text, LIMITS, **options))
        except InvalidRequest as error:
            return error.code, error.errors, str(error)
        except InvalidInput as error:
            return str(error)

    found = result(models.parse_in_pieces, piece_bytes=piece_bytes)
    assert found == result(models.parse)


ODD_NUMBERS: Final = (
    "0", "-0", "-0.0", "1e5", "1E+05", "5e-324", "2.4703282292062327e-324", "1e-400", "1e400",
    "1.7976931348623158e308", "9007199254740993", "9223372036854775809", "18446744073709551615",
    "18446744073709551616", "-9223372036854775809", "1" * 400, "0." + "1" * 60, "01", "+1", ".5",
    "5.", "1 2", "1.5\t", "\n2", "NaN", "-Infinity", "true", "null", '"1"', "[1]", "[1", "]", "{}",
    "1,", "\x00", "é", "\ufeff1", "",
)  # fmt: skip
PLAIN_HEADS: Final = (
    "{", '{"id":"a",', '{"id": 7, ', '{"id":"\\u0061",', '{"id":"",', '{"id":1.5,', '{"id":"a"',
    '{"vector":[2],', '{"limit":3,', "{ ", "[{", "\ufeff{", '{"filter":{"must":[{',
)  # fmt: skip
PLAIN_TAILS: Final = (
    "}", "}}", "} ", "}\n", "} x", ",}", ", }", "", ']}', ' ,"limit":3}', ',"limit":3}',
    ', "limit": 3.5}', ',"limt":3}', ',"vector":[3]}', ',"vector":null}', ',"vecto\\u0072":[]}',
    ',"filter":{"must":[]}}', ',"filter":' + "[" * 300, ',"payload":{"vector":[1]}}', ',"id":2}',
    ',3}', ',"a"}', ',"text":"\ud800"}',
)  # fmt: skip


NUMBER_LISTS: Final = st.tuples(
    st.lists(
        st.floats(allow_nan=False).map(repr)
        | st.floats(width=32).map(json.dumps)
        | st.integers().map(repr)
        | st.sampled_from(ODD_NUMBERS),
        max_size=5,
    ),
    st.sampled_from([",", ", ", " ,\n"]),
).map(lambda drawn: drawn[1].join(drawn[0]).join("[]"))
INDEX_LISTS: Final = st.lists(st.integers(-1, 2**33), max_size=5).map(json.dumps) | NUMBER_LISTS
SPARSE: Final = (
    '{"indices":%s,"values":%s}', '{"indices": %s, "values": %s}', '{"indices":%s,"values":%s,}',
    '{"indices":%s,"values":%s,"x":[1]}', '{"indices":%s,"values":%s,"values":[1]}',
    '{"indices":%s,"indices":%s}', '{"indices":%s,"names":%s}', '{"values":%s,"indices":%s}',
    '{"indices":%s,"valu\\u0065s":%s}', '{"indices":[%s],"values":%s}',
    '{"indices":%s,"values":{"x":%s}}',
)  # fmt: skip


@given(
    st.sampled_from([QueryBody, ItemBody, CountBody]),
    st.sampled_from(PLAIN_HEADS[:3]) | st.sampled_from(PLAIN_HEADS),
    NUMBER_LISTS
    | st.tuples(st.sampled_from(SPARSE), INDEX_LISTS, NUMBER_LISTS).map(
        lambda drawn: drawn[0] % drawn[1:]
    ),
    st.sampled_from(PLAIN_TAILS[:1]) | st.sampled_from(PLAIN_TAILS),
)
def test_a_plain_vector_is_read_as_any_other_is(
    model: type[Body], head: str, vector: str, tail: str
) -> None:
    assert_is_read_as_any_other(model, f'{head}"vector":{vector}{tail}')


def test_what_stands_around_a_plain_vector_is_read_as_around_any_other() -> None:
    vectors = ["[1,2.5]", *(form % (("[0,3]", "[1,2]")[: form.count("%s")]) for form in SPARSE)]
    for head, vector, tail in product(PLAIN_HEADS, vectors, PLAIN_TAILS):
        assert_is_read_as_any_other(QueryBody, f'{head}"vector":{vector}{tail}')


def assert_is_read_as_any_other(model: type[Body], body: str) -> None:
    """Compare what the service reads of a body with what the validator alone does."""
    text = body.encode("utf-8", "surrogatepass")

    def result(read: Any) -> Json:  # noqa: ANN401
        try:
            return repr(plain(read()))
        except ValidationError as error:
            return describe(invalid_request(error, model))
        except (InvalidRequest, MalformedBody) as error:
            return describe(error)

    def describe(error: Exception) -> Json:
        return type(error), str(error), getattr(error, "errors", None)

    found = result(lambda: models.parse(model, text, LIMITS))
    unmarked = text.removeprefix(codecs.BOM_UTF8)
    assert found == result(lambda: model.model_validate_json(unmarked))


def test_what_is_read_as_an_array_or_a_text_is_checked_before() -> None:
    with pytest.raises(ValidationError):
        QueryBody.model_validate_json(b'{"vector": [[1]]}')
    with pytest.raises(ValidationError):
        CountBody.model_validate_json(b'{"filter": "must"}')
    found = CountBody.model_validate_json(
        b'{"filter": {"must": [36893488147419103232, "\\u00e9"]}}'
    )
    assert found.filter == '{"must":[36893488147419103232,"é"]}'.encode()
    assert CountBody.model_validate_json(found.model_dump_json()) == found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the most memory is told by Linux")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="libraries have 10 MB more of it there")
def test_no_body_takes_more_than_eight_times_its_bytes() -> None:
    told = run_python("-m", "tests.support.service.body_memory", "1000000").stdout
    taken = [json.loads(line) for line in told.splitlines()]
    assert len(taken) > 120
    assert not [each for each in taken if each[2] > each[3]]
