"""Loads of broken, foreign and oversize bodies."""

import gzip

import pytest

from tests.support.service.bodies import bodies, load
from tests.support.service.client import Client, Serve, assert_problem, chunked, count

pytestmark = pytest.mark.served(cluster="few")


@pytest.mark.parametrize("kind", ["npy", "arrow"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_body_keeps_whole_chunks_alone(empty: Client, kind: str, packed: bool) -> None:
    body = bodies(10)[kind]
    body = gzip.compress(body) if packed else body
    stored, query = set(), "?id_start=0" if kind == "npy" else ""
    for length in range(0, len(body) - 8, 9):
        answer = load(empty, kind, body[:length], query)
        problem = assert_problem(answer, 400, "malformed_body")
        assert problem["committed"] % 4 == 0
        stored.add(count(empty))
    assert stored <= {0, 4, 8}
    if not packed:
        assert_problem(load(empty, kind, body + b"x", query), 400, "malformed_body", "more")


def test_what_is_no_whole_gzip_is_malformed(empty: Client) -> None:
    body = gzip.compress(bodies(10)["ndjson"])
    for length in (3, 11, len(body) // 2, len(body) - 1):
        assert_problem(load(empty, "ndjson", body[:length]), 400, "malformed_body", "gzip")
    for content in (b"{}", gzip.compress(b"\n") + b"rubbish"):
        answer = load(empty, "ndjson", content, Content_Encoding="gzip")
        assert_problem(answer, 400, "malformed_body", "gzip")
    answer = load(empty, "npy", b"", Content_Encoding="br")
    assert_problem(answer, 415, "unsupported_media_type", "br")


def test_an_arrow_stream_with_changed_bytes_is_refused(empty: Client) -> None:
    body = bodies(10)["arrow"]
    for at in range(0, 600, 3):
        changed = bytearray(body)
        changed[at] ^= 0xFF
        assert load(empty, "arrow", bytes(changed)).status_code in (200, 400, 413, 422), at


NO_NPY = (
    (b"", "an empty body"),
    (b"PK\x03\x04\x14\x00\x00\x00", "a zip archive, such as an .npz"),
    (b"1,2,3,4\n", "CSV"),
    (b"words, no", "CSV"),
    (b"some words", "starts with 'some wo"),
    (b"\x93NUM", "ends inside"),
    (b"\x00\x01\x02\x03\x04\x05\x06\x07", "the bytes 00 01 02"),
    (b"ARROW1\0\0", "Arrow file"),
)


def test_a_body_that_is_no_npy_is_named(empty: Client) -> None:
    for body, words in NO_NPY:
        assert_problem(load(empty, "npy", body), 400, "malformed_body", "expected .npy data", words)
    for body in (b"", b"\x93NUMPY", b"\x93NUMPY\x04\x00", b"{}", b"\x00" * 64):
        for kind in ("npy", "arrow"):
            assert_problem(load(empty, kind, body), 400, "malformed_body")


HEADERS = [
    *((text, 400) for text in (
        "{}", "{'descr': '<f4'}", "[", "(" * 999, "__import__('os')",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (1, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 4}",
    )),
    (f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10**15}, 4)}}", 400),
    (f"{{'descr': '<f4', 'fortran_order': False, 'shape': (2, {10**15})}}", 422),
]  # fmt: skip


def test_a_bad_npy_header_is_refused_and_reserves_nothing(empty: Client) -> None:
    for header, status in HEADERS:
        body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
        assert load(empty, "npy", body).status_code == status, header


def test_loads_are_bounded(serve: Serve) -> None:
    client = serve(load_chunk_rows=4, max_load_bytes=1000, max_line_bytes=200)
    client.put("/v1/collections/plants", json={"dim": 4})
    body = bodies(40)["ndjson"]
    assert len(body) > 1000
    assert_problem(load(client, "ndjson", body), 413, "body_too_large", "1000 bytes")
    problem = assert_problem(load(client, "ndjson", chunked(body)), 413, "body_too_large")
    assert problem["committed"] == count(client) > 0
    bomb = gzip.compress(b"\n" * 10_000_000)
    assert_problem(load(client, "ndjson", chunked(bomb)), 413, "body_too_large")
    assert_problem(load(client, "ndjson", b" " * 300), 413, "body_too_large", "a line")
    client = serve(max_rejected_listed=3)
    answer = load(client, "ndjson", b"rubbish\n" * 50, "?on_error=skip").json()
    assert ([one["row"] for one in answer["rejected"]], answer["rejected_count"]) == ([0, 1, 2], 50)
