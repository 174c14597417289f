"""How much memory bodies take to be read, each in a process of its own: a line of JSON each."""

import ctypes
import gc
import gzip
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from gcws_search.index import AnyArray, InvalidInput
from gcws_search.service import models
from gcws_search.service.api import (
    analysis,
    backends,
    collections,
    items as writes,
    query as search,
)
from gcws_search.service.errors import ServiceError
from gcws_search.service.ingest import arrow, npy
from gcws_search.service.ingest.ndjson import read_ndjson
from gcws_search.service.ingest.source import ByteReader, Source, inflate
from gcws_search.service.models import Body
from gcws_search.service.settings import Settings
from tests.support.service import bodies

_libc: Final = ctypes.CDLL(None)
MIB: Final = 1 << 20
TIMES: Final = 8
TIMES_OF_NAMES: Final = 11
"""A string takes 64 bytes or more."""
SPARE_BYTES: Final = 12 * MIB
"""A piece of JSON, or of a payload or a filter of many short values."""
COUNT: Final = 5000
CHUNK_ROWS: Final = 1000
STREAM_BYTES: Final = MIB
"""The longest line, chunk, array in columns and record batch of a load."""
LIMITS: Final = Settings(
    max_items_per_request=COUNT,
    max_queries_per_request=COUNT,
    load_chunk_rows=CHUNK_ROWS,
    load_chunk_bytes=STREAM_BYTES,
    max_line_bytes=STREAM_BYTES,
    max_arrow_batch_bytes=STREAM_BYTES,
)
ENTRY_BYTES: Final = 1024
"""Of each query or item, whose number is limited."""
ENTRIES: Final = {
    "empty objects": "{}",
    "empty lists": "[]",
    "small objects": '{"a":1}',
    "small lists": "[1]",
    "digits": "7",
    "numbers": "0.5",
    "long numbers": "0.12345678901234567890123",
    "words": '"ab"',
    "escapes": r'"\n\u00e9\""',
    "nulls": "null",
    "depth": "[" * 100 + "]" * 100,
}
WITHIN: Final = ("empty lists", "small objects", "words", "depth")
"""Of them, those that stand inside an object as well."""
FIELDS: Final[list[tuple[type[Body], str]]] = [
    (search.QueryBody, "vector"),
    (writes.PutItemsBody, "items"),
    (search.QueryBody, "filter"),
    (search.QueryBody, "unknown"),
    (writes.DeleteItemsBody, "ids"),
    (search.BatchBody, "queries"),
    (backends.CompareBody, "backends"),
    (collections.NamesBody, "names"),
    (analysis.SimilarityBody, "a"),
    (analysis.SimilarityBody, "params"),
    (analysis.ExplainBody, "a"),
    (analysis.SketchBody, "vectors"),
    (collections.PatchBody, "metadata"),
    (collections.CreateBody, "transform"),
    (collections.CreateBody, "backend"),
    (analysis.MapBody, "also"),
    (backends.AttachBody, "params"),
]
OFTEN_ASKED: Final = 2
"""Fields at the beginning of the list that are tried with all shapes."""


class Case(NamedTuple):
    """A body, what reads it, and the most memory that it may take."""

    name: str
    size: int
    read: Callable[[], object]
    most: int


def json_case(name: str, model: type[Body], text: str, *, times: int = TIMES) -> Case:
    body = text.encode()
    most = times * len(body) + COUNT * ENTRY_BYTES + SPARE_BYTES
    return Case(name, len(body), partial(models.parse, model, body, LIMITS), most)


def long_list(entry: str, size: int) -> str:
    return "[" + ",".join([entry] * (size // (len(entry) + 1))) + "]"


def json_cases(size: int) -> Iterator[Case]:
    """Yield bodies of about ``size`` bytes: all shapes of queries and items, else some by turns."""
    for turn, (model, field) in enumerate(FIELDS):
        shapes = [*ENTRIES.items()]
        for shape, entry in shapes if turn < OFTEN_ASKED else shapes[turn % 6 :: 6]:
            value, name = long_list(entry, size), f"{model.__name__} {field}: {shape}"
            yield json_case(name, model, f'{{"{field}":{value}}}')
            if shape in WITHIN:
                yield json_case(f"{name}, in an object", model, f'{{"{field}":{{"x":{value}}}}}')
        pairs = ",".join(['"a":1'] * (size // 6))
        name = f"{model.__name__} {field}: one key again and again"
        yield json_case(name, model, f'{{"{field}":{{{pairs}}}}}')
    for shape, item in items().items():
        yield json_case(shape, writes.PutItemsBody, f'{{"items":{long_list(item, size)}}}')
    condition = f'{{"key":"k","match":{{"any":{long_list(chr(34) + "ab" + chr(34), 3000)}}}}}'
    for shape, query in {
        "queries by id": '{"id":1}',
        "queries by vector": '{"vector":[1,2]}',
        "filters": f'{{"id":1,"filter":{{"must":[{condition}]}}}}',
        "small filters": '{"id":1,"filter":{"must":{"key":"k","match":{"value":1}}}}',
    }.items():
        yield json_case(shape, search.BatchBody, f'{{"queries":{long_list(query, size)}}}')


def longest_cases() -> Iterator[Case]:
    """Yield bodies with the longest vectors that are permitted."""
    count = LIMITS.max_nonzeros
    ones, words = "[" + ",".join(["1"] * count) + "]", different_words(count)
    sparse, named = f'{{"indices":{ones},"values":{ones}}}', f'{{"names":{words}}}'
    filled = f'{{"id":1,"vector":[1],"x":{ones}}}'
    yield json_case("an unknown field", writes.PutItemsBody, f'{{"items":[{filled}]}}')
    case = partial(json_case, times=TIMES_OF_NAMES)
    yield case("all the names there may be", collections.NamesBody, named)
    for shape, vector in {"numbers": ones, "sparse": sparse, "named": named}.items():
        query, item = f'{{"vector":{vector}}}', f'{{"id":1,"vector":{vector}}}'
        case = partial(json_case, times=TIMES_OF_NAMES if vector is named else TIMES)
        texts: dict[type[Body], str] = {
            search.QueryBody: query,
            search.BatchBody: f'{{"queries":[{query},{query}]}}',
            writes.PutItemsBody: f'{{"items":[{item},{item}]}}',
            analysis.SketchBody: f'{{"vectors":[{vector}]}}',
        }
        for model, text in texts.items():
            if vector is named or model in (search.QueryBody, writes.PutItemsBody):
                yield case(f"{model.__name__}: the longest {shape}", model, text)


def different_words(count: int) -> str:
    return "[" + ",".join(f'"{word:x}"' for word in range(1 << 16, (1 << 16) + count)) + "]"


def items() -> dict[str, str]:
    numbers, words = long_list("1", 4000), different_words(800)
    return {
        "items": '{"id":1,"vector":[1,2]}',
        "items without ids": '{"vector":[1]}',
        "no items": "{}",
        "items of numbers": f'{{"id":1,"vector":{numbers}}}',
        "sparse items": f'{{"id":1,"vector":{{"indices":{numbers},"values":{numbers}}}}}',
        "items of names": f'{{"id":1,"vector":{{"names":{words}}}}}',
        "payloads of lists": f'{{"id":1,"vector":[1],"payload":{{"a":{long_list("[]", 60_000)}}}}}',
        "payloads of words": f'{{"id":1,"vector":[1],"payload":{{"a":{words}}}}}',
        "deep payloads": f'{{"id":1,"vector":[1],"payload":{{"a":{"[" * 100 + "]" * 100}}}}}',
        "an item of many numbers": f'{{"id":1,"vector":{long_list("1", MIB - 100)}}}',
        "an item of unknown fields": f'{{"id":1,"vector":[1],"x":{long_list("[]", MIB - 100)}}}',
    }


def lists(values: AnyArray, width: int) -> Any:  # noqa: ANN401  # of pyarrow
    return pa.FixedSizeListArray.from_arrays(pa.array(values), width)


def arrow_columns(size: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the columns of vectors of about ``size`` bytes."""
    size &= ~127
    yield "bytes", {"vector": lists(np.ones(size, np.int8), 16)}
    yield "halves", {"vector": lists(np.ones(size // 2, np.float16), 16)}
    yield "doubles", {"vector": lists(np.ones(size // 8), 16)}
    yield "one number a row", {"vector": lists(np.ones(size, np.int8), 1)}
    offsets = np.arange(size // 4 + 1, dtype=np.int32)
    ones = pa.array(np.ones(len(offsets) - 1, np.int8))
    short = pa.ListArray.from_arrays(offsets, ones)
    yield "sets", {"indices": short}
    yield "sparse", {"indices": short, "values": short}
    yield "empty lists", {"vector": pa.ListArray.from_arrays(np.zeros(size // 4, np.int32), ones)}
    words = pa.array([f"{number:x}" for number in range(size // 12)])
    ends = np.arange(len(words) + 1, dtype=np.int32)
    yield "names", {"names": pa.ListArray.from_arrays(ends, words)}
    long = pa.array([[1.0] * 1000], pa.list_(pa.float32()))
    same = pa.array(np.zeros(size // 4, np.int32))
    yield "one row again and again", {"vector": pa.DictionaryArray.from_arrays(same, long)}


def arrays(size: int) -> Iterator[tuple[str, AnyArray]]:
    """Yield arrays of about ``size`` bytes."""
    for dtype in (np.bool_, np.float16, np.float32, np.uint64):
        ones = np.ones((size // np.dtype(dtype).itemsize) & ~15, dtype)
        yield f"{ones.dtype}", ones.reshape(-1, 16)
        yield f"{ones.dtype}, one a row", ones.reshape(-1, 1)
        yield f"{ones.dtype} by columns", np.asfortranarray(ones.reshape(-1, 16))


def reader(source: Source) -> ByteReader:
    return ByteReader(source, max_read_bytes=STREAM_BYTES)


READ: Final[dict[str, Callable[[Source], Any]]] = {
    "lines": lambda source: read_ndjson(source, LIMITS),
    "rows": lambda source: npy.read_npy(reader(source), LIMITS, 0),
    "batches": lambda source: arrow.read_arrow(reader(source), LIMITS, takes_others=True),
}
"""What reads loads."""


def query_cases(size: int) -> Iterator[Case]:
    """Yield queries of about ``size`` bytes that are no JSON."""

    def read_matrix(body: bytes) -> object:
        return npy.read_matrix(as_reader(body), LIMITS, max_bytes=32 * MIB)

    def read_stream(body: bytes) -> object:
        return arrow.read_queries(as_reader(body), LIMITS, len(body))

    def as_reader(body: bytes) -> ByteReader:
        chunks = [body]
        return ByteReader(lambda: chunks.pop() if chunks else b"", max_read_bytes=len(body))

    files = [(name, bodies.npy(array), read_matrix) for name, array in arrays(size)]
    for name, columns in arrow_columns(size):
        files.append((f"Arrow, {name}", bodies.arrow(columns), read_stream))
    for name, body, read in files:
        most = TIMES * len(body) + SPARE_BYTES
        yield Case(f"queries of {name}", len(body), partial(read, body), most)


def loads(size: int) -> Iterator[tuple[str, bytes, str]]:
    """Yield bodies of loads of about ``size`` bytes, and what reads them."""
    for name, item in {**items(), "blanks": "", "numbers": "7", "words": '"a"'}.items():
        line = f"{item}\n".encode()
        yield f"lines: {name}", line * min(size // len(line), 4 * CHUNK_ROWS), "lines"
    yield "one line", b" " * size, "lines"
    yield "empty lines", b"\n" * size, "lines"
    for name, array in arrays(size):
        yield f"rows of {name}", bodies.npy(array), "rows"
    for name, array in [*arrays(STREAM_BYTES // 2)][::5]:
        yield f"a few rows of {name}", bodies.npy(array), "rows"
    for name, columns in arrow_columns(STREAM_BYTES // 8):
        stream = bodies.arrow(columns, times=2 * size // STREAM_BYTES)
        yield f"Arrow, {name}", stream, "batches"
        rows = len(next(iter(columns.values())))
        ids = pa.array(np.arange(rows))
        words = pa.array(["a"] * rows)
        more = {"id": ids, **columns, **{f"f{number}": words for number in range(5)}}
        some = {name: column[: rows // 64] for name, column in more.items()}
        body = bodies.arrow(some, times=8)
        yield f"Arrow of many columns, {name}", body, "batches"


def load_cases(size: int) -> Iterator[Case]:
    """Yield loads, whose memory does not depend on their length; some of them compressed, too."""
    most = TIMES * 2 * STREAM_BYTES + CHUNK_ROWS * ENTRY_BYTES + SPARE_BYTES
    for number, (name, body, read) in enumerate(loads(size)):
        yield Case(f"a load of {name}", len(body), partial(drain, body, READ[read]), most)
        if number % 8 == 0:
            case = partial(drain, gzip.compress(body, 1), READ[read])
            yield Case(f"a load of {name}, compressed", len(body), case, most)


def drain(body: bytes, read: Callable[[Source], Any]) -> None:
    chunks = deque(body[start : start + (1 << 16)] for start in range(0, len(body), 1 << 16))
    source = inflate(lambda: chunks.popleft() if chunks else b"", "")
    deque(read(source), maxlen=0)


def most_bytes() -> int:
    """Return the most memory that this process has had since it was last forgotten."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def bytes_to_read(case: Case) -> int:
    """Return how much memory a process of its own takes to read a body."""
    gc.collect()
    _libc.malloc_trim(0)  # what earlier cases have freed would be taken for nothing
    read, write = os.pipe()
    if os.fork() == 0:
        Path("/proc/self/clear_refs").write_text("5")  # forget the most so far
        before = most_bytes()
        try:
            case.read()
        except (ServiceError, InvalidInput):
            pass
        finally:
            os.write(write, b"%d" % (most_bytes() - before))
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        taken = int(file.read())
    os.wait()
    return taken


def main() -> None:
    size = int(sys.argv[1])
    gc.collect()
    gc.freeze()  # each case collects what the one before has left
    for case in chain(
        longest_cases(), query_cases(size), load_cases(2 * STREAM_BYTES), json_cases(size)
    ):
        line = [case.name, case.size, bytes_to_read(case), case.most]
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
