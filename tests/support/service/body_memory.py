"""How much memory bodies take to be read, each in a process of its own: a line of JSON each."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gcws_search.index import InvalidInput
from gcws_search.service.api import analysis_bodies, backend_bodies, bodies as requests
from gcws_search.service.guards.limits import Limits
from gcws_search.service.http import bodies
from gcws_search.service.http.errors import ServiceError
from gcws_search.service.http.models import Body
from gcws_search.service.settings import Settings

LIMITS: Final = Limits.of(
    Settings(
        max_items_per_request=5000,
        max_queries_per_request=5000,
        max_nonzeros=20_000,
        max_payload_bytes=1 << 16,
        max_filter_values=2000,
    )
)
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
FIELDS: Final[list[tuple[type[Body], str]]] = [
    (requests.QueryBody, "vector"),
    (requests.QueryBody, "filter"),
    (requests.QueryBody, "unknown"),
    (requests.PutItemsBody, "items"),
    (requests.DeleteItemsBody, "ids"),
    (requests.BatchBody, "queries"),
    (requests.CompareBody, "backends"),
    (requests.NamesBody, "names"),
    (requests.SimilarityBody, "a"),
    (requests.SimilarityBody, "params"),
    (requests.ExplainBody, "a"),
    (requests.SketchBody, "vectors"),
    (requests.PatchBody, "metadata"),
    (requests.CreateBody, "transform"),
    (requests.CreateBody, "backend"),
    (analysis_bodies.MapBody, "also"),
    (backend_bodies.AttachBody, "params"),
]


class Case(NamedTuple):
    """A body of a model, as JSON."""

    name: str
    model: type[Body]
    text: bytes


def long_list(entry: str, size: int) -> str:
    return "[" + ",".join([entry] * (size // (len(entry) + 1))) + "]"


def cases(size: int) -> Iterator[Case]:
    """Yield bodies of about ``size`` bytes: each field of each model, in each shape."""
    for model, field in FIELDS:
        for shape, entry in ENTRIES.items():
            value, name = long_list(entry, size), f"{model.__name__} {field}: {shape}"
            yield Case(name, model, f'{{"{field}":{value}}}'.encode())
            yield Case(f"{name}, in an object", model, f'{{"{field}":{{"x":{value}}}}}'.encode())
        pairs = ",".join(['"a":1'] * (size // 6))
        name = f"{model.__name__} {field}: one key again and again"
        yield Case(name, model, f'{{"{field}":{{{pairs}}}}}'.encode())
    numbers, words = long_list("1", 4000), long_list('"abcd"', 4000)
    for shape, item in {
        "items": '{"id":1,"vector":[1,2]}',
        "items of numbers": f'{{"id":1,"vector":{numbers}}}',
        "sparse items": f'{{"id":1,"vector":{{"indices":{numbers},"values":{numbers}}}}}',
        "items of names": f'{{"id":1,"vector":{{"names":{words}}}}}',
        "payloads of lists": f'{{"id":1,"vector":[1],"payload":{{"a":{long_list("[]", 60_000)}}}}}',
        "payloads of words": f'{{"id":1,"vector":[1],"payload":{{"a":{words}}}}}',
    }.items():
        text = f'{{"items":{long_list(item, size)}}}'
        yield Case(shape, requests.PutItemsBody, text.encode())
    condition = f'{{"key":"k","match":{{"any":{long_list(chr(34) + "ab" + chr(34), 3000)}}}}}'
    for shape, query in {
        "queries by id": '{"id":1}',
        "queries by vector": '{"vector":[1,2]}',
        "filters": f'{{"id":1,"filter":{{"must":[{condition}]}}}}',
        "small filters": '{"id":1,"filter":{"must":{"key":"k","match":{"value":1}}}}',
    }.items():
        text = f'{{"queries":{long_list(query, size)}}}'
        yield Case(shape, requests.BatchBody, text.encode())


def most_bytes() -> int:
    """Return the most memory that this process has had since it was last forgotten."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def bytes_to_read(case: Case) -> int:
    """Return how much memory a process of its own takes to read a body."""
    read, write = os.pipe()
    if os.fork() == 0:
        Path("/proc/self/clear_refs").write_text("5")  # forget the most so far
        before = most_bytes()
        try:
            found = bodies.parse(case.model, case.text, LIMITS)
            assert found is not None
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
    for case in cases(size):
        taken = bytes_to_read(case)
        sys.stdout.write(json.dumps([case.name, len(case.text), taken]) + "\n")


if __name__ == "__main__":
    main()
