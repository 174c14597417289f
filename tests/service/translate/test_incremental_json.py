"""JSON read in pieces is what it is when read at once, or is none either way."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic_core import from_json

from gcws_search.service.translate import incremental_json

TEXTS = st.text(max_size=6) | st.text('",:[]{}\\ \n', max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=6),
    max_leaves=40,
)
SPACES = st.sampled_from([(",", ":"), (", ", ": "), (" \n,\t", " : "), ("\r\n , ", ":")])
EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from([*'",:[]{}\\ 1-n', "", "null", ",,", "é", "[]"]),
              st.integers(0, 2)), max_size=3,
)  # fmt: skip


def outcome(parse: Any, text: bytes, **more: int) -> Any:  # noqa: ANN401
    try:
        return repr(parse(text, **more))
    except ValueError:
        return ValueError


@given(VALUES, SPACES, st.booleans(), EDITS, st.integers(0, 30))
def test_a_text_read_in_pieces_is_the_same_as_read_at_once(
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
    found = outcome(incremental_json.parse, text, piece_bytes=piece_bytes)
    assert found == outcome(from_json, text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"1",
        b" [1] ",
        b"[1] 2",
        b"[1][1]",
        b"[",
        b"]",
        b"[1",
        b"[1,]",
        b"[,1]",
        b"[,]",
        b"[[1,2],,[3,4]]",
        b"[[1,2] [3,4]]",
        b"[1 [2,3]]",
        b"[[2,3] 1]",
        b"[1,2}",
        b'{"a":1]',
        b'{"a":[1,2,3],"a":[4,5,6],"b":1}',
        b'{"b":1,"a":2,"b":[1,2,3]}',
        b'{"a":[1,2]:3}',
        b"{[1,2]:3}",
        b'{"a" [1,2]}',
        b'{"a":1,,"b":[1,2]}',
        b'{"a":[1,2] "b":1}',
        b'{"":[1,2],"":1}',
        b'["\\ud800", [1,2]]',
        b'["\xff", [1,2]]',
        b'["\n", [1,2]]',
        b'["a',
        b'["a\\"]',
        b"nul[1,2]",
        b"[nul[1,2]]",
        b"[1-[1,2]]",
        b"[NaN, [1, Infinity]]",
        b"\xef\xbb\xbf[1,2,3]",
        b"[1e999,[1,2]]",
        b"[" + b"9" * 5000 + b",[1,2]]",
    ],
)
@pytest.mark.parametrize("piece_bytes", [0, 3])
def test_texts_that_are_hard_to_cut(text: bytes, piece_bytes: int) -> None:
    found = outcome(incremental_json.parse, text, piece_bytes=piece_bytes)
    assert found == outcome(from_json, text)


@pytest.mark.parametrize("depth", [150, 100_000])
@pytest.mark.parametrize("bracket", ["[]", '{"a":}'])
def test_depth_is_bounded_as_it_is_at_once(depth: int, bracket: str) -> None:
    text = (bracket[:-1] * depth + "1" + bracket[-1] * depth).encode()
    assert outcome(incremental_json.parse, text, piece_bytes=50) == outcome(from_json, text)


def test_no_piece_is_much_longer_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []

    def noted(text: bytes) -> Any:  # noqa: ANN401
        pieces.append(len(text))
        return from_json(text)

    monkeypatch.setattr(incremental_json, "from_json", noted)
    items = [
        {"id": str(n), "vector": {"indices": [*range(n)], "values": [0.5] * n}} for n in range(300)
    ]
    for document in (
        {"items": items},
        {"vector": [0.25] * 100_000},
        [[[items]]],
        {"a": {"b": items}},
    ):
        pieces.clear()
        text = json.dumps(document).encode()
        assert incremental_json.parse(text, piece_bytes=10_000) == document
        assert max(pieces) < 100_000  # what is asked, and a stretch without brackets or quotes
        assert sum(pieces) >= len(text) - 100
