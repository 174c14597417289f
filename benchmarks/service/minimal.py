"""The service beside the least that answers: ``python -m benchmarks.service.minimal --data DIR``.

The same collection behind the service and behind `benchmarks.harness.minimal`: queries as JSON by
1, 4 and 16 bare clients, by turns; of the service as base64 and as ``.npy``, too.
"""

import base64
import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from benchmarks.harness import client
from benchmarks.harness.client import request_bytes
from benchmarks.harness.datasets import Vectors, load
from benchmarks.harness.report import Table, arguments
from benchmarks.harness.server import Server, serving
from benchmarks.service.http import (
    DENSE,
    QUERIES,
    SETS,
    collection,
    graph_seconds,
    hold_out,
    load_seconds,
    npy,
    queries,
)

MINIMAL: Final = ("-m", "benchmarks.harness.minimal")
CLIENTS: Final = (1, 4, 16)
FORMS: Final = ("JSON", "base64", ".npy")
TURNS: Final = 5
SECONDS: Final = 3.0
GOALS: Final = {1: "at least 0.8", 4: "at least 0.8; at most 0.30 ms", 16: "at least 0.8"}
COLUMNS: Final = ("clients, form", "the service", "the least", "ratio of the rates", "goal")


class Turn(NamedTuple):
    """What one run of queries gave: queries and the server's processor milliseconds a query."""

    rate: float
    milliseconds: float


def used_seconds(pid: int) -> float:
    """Return the processor time that a process has taken."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def turn(server: Server, asked: list[bytes], clients: int) -> Turn:
    """Query a server for some seconds."""
    before = used_seconds(server.pid)
    rate = client.run(server.port, asked, connections=clients, seconds=SECONDS).rate
    used = used_seconds(server.pid) - before
    return Turn(rate, used / (rate * SECONDS) * 1e3)


def requests(vectors: Vectors) -> dict[str, list[bytes]]:
    """Return a query for each of the first vectors, in each form."""
    path = f"{collection(DENSE)}/query"
    packed = [
        orjson.dumps({"vector": {"base64": base64.b64encode(row.tobytes()).decode()}})
        for row in vectors[:QUERIES]
    ]
    return {
        "JSON": queries(vectors, path),
        "base64": [request_bytes("POST", path, body) for body in packed],
        ".npy": [
            request_bytes("POST", path, npy(row[None]), "application/x-npy")
            for row in vectors[:QUERIES]
        ],
    }


def told(turns: list[Turn]) -> str:
    """Return the medians of some turns."""
    rate, used = (statistics.median(column) for column in zip(*turns, strict=True))
    return f"{rate:,.0f}/s, {used:.3f} ms"


def main() -> None:
    """Measure and print."""
    options = arguments("The service beside the least that answers.").parse_args()
    table = Table("minimal", COLUMNS)
    vectors = load(SETS[DENSE], options.data).vectors
    asked = requests(vectors)
    with tempfile.TemporaryDirectory() as name:
        ours, least = Path(name, "ours"), Path(name, "least")
        with serving(ours) as server:
            load_seconds(server, DENSE, vectors.shape[1], npy(vectors), "application/x-npy")
            graph_seconds(server, DENSE)
            hold_out(server.port, DENSE, QUERIES)
        shutil.copytree(ours, least)
        with serving(ours) as server, serving(least, program=MINIMAL) as other:
            for clients in CLIENTS:
                found: dict[str, list[Turn]] = {name: [] for name in (*FORMS, "the least")}
                for _ in range(TURNS):
                    for form in FORMS:
                        found[form].append(turn(server, asked[form], clients))
                        if form == "JSON":
                            found["the least"].append(turn(other, asked[form], clients))
                for form in FORMS:
                    pairs = zip(found[form], found["the least"], strict=True)
                    ratio = statistics.median(a.rate / b.rate for a, b in pairs)
                    word = "client" if clients == 1 else "clients"
                    table.add(
                        f"{clients} {word}, {form}",
                        told(found[form]),
                        told(found["the least"]) if form == "JSON" else "",
                        f"{ratio:.2f}",
                        GOALS[clients] if form == "JSON" else "",
                    )
    table.notes.append(
        f"Medians of {TURNS} turns of {SECONDS:g} s: queries a second, the server's processor time "
        "a query, and the ratios of each turn. The least application always gets JSON. Client and "
        "servers share the machine. Queries ask for 10 hits at recall 0.9, by vectors that are not "
        "stored."
    )
    table.publish(options, threads="1 client process, 1 server process at a time")


if __name__ == "__main__":
    main()
