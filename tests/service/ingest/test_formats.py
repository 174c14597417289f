"""Bodies whose content type says nothing of them, and such as no route reads."""

import gzip
import io
import itertools

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from tests.support.service.bodies import TYPES, URL, bodies, load, npy, rows
from tests.support.service.client import Client, assert_problem, chunked, count
from tests.support.service.queries import URL as PLANTS

UNSAID = [None, "application/octet-stream", "application/x-www-form-urlencoded"]
COMMAND = "gcws-search load FILE"


def headers(kind: str | None) -> dict[str, str]:
    return {} if kind is None else {"Content-Type": kind}


@pytest.mark.parametrize("kind", TYPES)
def test_a_load_of_no_type_is_known_by_its_first_bytes(empty: Client, kind: str) -> None:
    for said, size, packed in itertools.product(UNSAID, (1, 10_000), (False, True)):
        body = gzip.compress(bodies(10)[kind]) if packed else bodies(10)[kind]
        answer = empty.post(URL, content=chunked(body, size), headers=headers(said))
        assert answer.status_code == 200, answer.text
        assert answer.json()["inserted"] + answer.json()["updated"] == 10


def test_parameters_of_a_format_are_for_a_body_known_to_have_it(empty: Client) -> None:
    assert empty.post(f"{URL}?id_start=7", content=npy(rows(2))).json()["inserted"] == 2
    assert empty.get(f"{PLANTS}/items/8").status_code == 200
    answer = empty.post(f"{URL}?id_start=7", content=bodies(2)["ndjson"])
    assert_problem(answer, 422, "invalid_parameter", "id_start", "NDJSON")
    answer = empty.post(f"{PLANTS}/query/batch?limit=3", content=b'{"queries": []}')
    assert_problem(answer, 422, "invalid_parameter", "limit")
    lines = b'rubbish\n{"id": "a", "vector": [1, 2, 3, 4]}\n'
    told = empty.post(f"{URL}?on_error=skip", content=lines).json()
    assert (told["inserted"], told["rejected_count"]) == (1, 1)


def written(kind: str) -> bytes:
    """Return a file of a format that no route reads, as its library writes it."""
    out, table = io.BytesIO(), pa.table({"id": ["a"], "x": [1.0]})
    match kind:
        case "Arrow file":
            with pa.ipc.new_file(out, table.schema) as writer:
                writer.write_table(table)
        case "Parquet":
            pyarrow.parquet.write_table(table, out)
        case ".npz":
            np.savez(out, X=rows(3))
        case "CSV":
            out.write(b"id,x,y\na,1,2\n")
        case "zstd":
            return bytes(pa.compress(b"{}" * 99, "zstd", asbytes=True))
        case "svmlight":
            out.write(b"-1 3:0.5 17:1\n+1 2:4\n")
        case "pickle":
            out.write(b"\x80\x04K\x01.")
        case "JSON array":
            out.write(b'[{"id": "a", "vector": [1, 2, 3, 4]}]')
    return out.getvalue()


LOADED = ["Arrow file", "Parquet", ".npz", "CSV", "zstd", "svmlight"]


def test_a_body_of_another_format_is_named(empty: Client) -> None:
    for said, kind in itertools.product(UNSAID, [*LOADED, "pickle", "JSON array"]):
        answer = empty.post(URL, content=written(kind), headers=headers(said))
        words = [kind, "NDJSON or .npy data or an Arrow stream"]
        problem = assert_problem(answer, 415, "unsupported_media_type", *words)
        assert (COMMAND in problem["detail"]) == (kind in LOADED)
        if kind in ("Parquet", "CSV"):
            batch = empty.post(
                f"{PLANTS}/query/batch", content=written(kind), headers=headers(said)
            )
            assert_problem(batch, 415, "unsupported_media_type", kind, COMMAND, "JSON")
    for said, kind in itertools.product(TYPES, ["Arrow file", "Parquet", ".npz"]):
        assert_problem(load(empty, said, written(kind)), 400, "malformed_body", kind, COMMAND)
    for said, body, told in (
        ("npy", "arrow", "expected .npy data, got an Arrow stream"),
        ("arrow", "npy", "expected an Arrow stream, got .npy data"),
    ):
        assert_problem(load(empty, said, bodies(2)[body]), 400, "malformed_body", told)
    for said in ("text/csv", "application/gzip", "application/vnd.apache.parquet", "image/png"):
        answer = empty.post(URL, content=b"1,2\n", headers=headers(said))
        assert_problem(answer, 415, "unsupported_media_type", said, COMMAND)
    assert count(empty) == 0


def test_a_batch_of_no_type_is_known_by_its_first_bytes(client: Client) -> None:
    vectors = np.array([[1, -2, 0, 3], [1, 0, 0, 1]])
    url = f"{PLANTS}/query/batch"
    queries = {"queries": [{"vector": row} for row in vectors.tolist()]}
    expected = client.post(url, json=queries).json()
    body = b'\n {"queries": [{"vector": [1, -2, 0, 3]}, {"vector": [1, 0, 0, 1]}]}'
    for said, content in itertools.product(UNSAID, (npy(vectors), body)):
        assert client.post(url, content=content, headers=headers(said)).json() == expected
