"""Loads of broken, foreign and oversize bodies."""

import gzip
import itertools

import pytest

from tests.support.service.bodies import URL, bodies, load
from tests.support.service.client import Client, Serve, assert_problem, chunked, count, fill

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


def test_truncated_gzip_of_lines_is_malformed(empty: Client) -> None:
    body = gzip.compress(bodies(10)["ndjson"])
    for length in (3, 11, len(body) // 2, len(body) - 1):
        assert_problem(load(empty, "ndjson", body[:length]), 400, "malformed_body", "gzip")


@pytest.mark.parametrize("kind", ["npy", "arrow"])
def test_bytes_after_the_end_are_malformed(empty: Client, kind: str) -> None:
    assert_problem(load(empty, kind, bodies(10)[kind] + b"x"), 400, "malformed_body", "more")


def test_an_arrow_stream_with_changed_bytes_is_refused(empty: Client) -> None:
    body = bodies(10)["arrow"]
    for at in range(0, 600, 3):
        changed = bytearray(body)
        changed[at] ^= 0xFF
        assert load(empty, "arrow", bytes(changed)).status_code in (200, 400, 413, 422), at


def test_gzip_that_is_none_is_malformed(empty: Client) -> None:
    answer = load(empty, "ndjson", b"{}", Content_Encoding="gzip")
    assert_problem(answer, 400, "malformed_body", "gzip")
    answer = load(empty, "ndjson", gzip.compress(b"\n") + b"rubbish")
    assert_problem(answer, 400, "malformed_body", "gzip")


def test_a_body_of_another_format_is_malformed(empty: Client) -> None:
    for kind, body in itertools.product(
        ("npy", "arrow"), (b"", b"\x93NUMPY", b"\x93NUMPY\x04\x00", b"{}", b"\x00" * 64)
    ):
        assert_problem(load(empty, kind, body), 400, "malformed_body")


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


HEADERS = (
    "{}", "{'descr': '<f4'}", "[", "{'descr': '<f4', 'fortran_order': 0, 'shape': (1, 4)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': 4}", "(" * 999, "__import__('os')",
)  # fmt: skip


def test_a_bad_npy_header_is_malformed(empty: Client) -> None:
    for header in HEADERS:
        body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
        assert_problem(load(empty, "npy", body), 400, "malformed_body")


def test_an_npy_header_that_promises_too_much_reserves_nothing(empty: Client) -> None:
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d)}"
    for shape, status in (((10**15, 4), 400), ((2, 10**15), 422)):
        text = (header % shape).encode()
        body = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
        assert load(empty, "npy", body).status_code == status


def test_an_unknown_content_type_is_unsupported(empty: Client) -> None:
    for kind in ("text/csv", "application/json", "application/gzip"):
        answer = empty.post(URL, content=b"", headers={"Content-Type": kind})
        assert_problem(answer, 415, "unsupported_media_type", kind)


def test_an_unknown_encoding_is_unsupported(empty: Client) -> None:
    answer = load(empty, "npy", b"", Content_Encoding="br")
    assert_problem(answer, 415, "unsupported_media_type", "br")


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


def test_the_rejected_list_is_bounded_and_all_are_counted(serve: Serve) -> None:
    client = serve(max_rejected_listed=3)
    fill(client)
    answer = load(client, "ndjson", b"rubbish\n" * 50, "?on_error=skip").json()
    assert [one["row"] for one in answer["rejected"]] == [0, 1, 2]
    assert answer["rejected_count"] == 50
