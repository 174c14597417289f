"""One process against fronts and an owner: ``python -m benchmarks.service.workers --data DIR``.

Both servers have Fashion-MNIST. 1, 4, 16 and 32 clients query them by turns; the processor time of
the process that has the collections is read before and after.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from benchmarks.harness import client
from benchmarks.harness.datasets import load
from benchmarks.harness.report import Table, arguments
from benchmarks.harness.server import Server, serving
from benchmarks.service.http import (
    DENSE,
    SETS,
    collection,
    graph_seconds,
    hold_out,
    load_seconds,
    npy,
    queries,
)

CLIENTS: Final = (1, 4, 16, 32)
FRONTS: Final = 2
TURNS: Final = 5
SECONDS: Final = 3.0
GOALS: Final = {16: "1.5"}
COLUMNS: Final = ("what", "one process", f"{FRONTS} fronts and an owner", "ratio", "goal")


class Turn(NamedTuple):
    """What one run of queries gave.

    Attributes
    ----------
    load : client.Load
    owner_seconds : float
        Processor time a query of the process that has the collections.
    """

    load: client.Load
    owner_seconds: float


def owner_of(server: Server, folder: Path) -> psutil.Process:
    """Return the process that has the files of a folder open."""
    parent = psutil.Process(server.pid)
    for process in (parent, *parent.children()):
        if any(file.path.startswith(str(folder)) for file in process.open_files()):
            return process
    raise RuntimeError(f"no process of the server has a file of {folder} open")


def turn(server: Server, owner: psutil.Process, asked: list[bytes], clients: int) -> Turn:
    """Query a server for some seconds."""
    before = owner.cpu_times()
    found = client.run(server.port, asked, connections=clients, seconds=SECONDS)
    after = owner.cpu_times()
    used = after.user + after.system - before.user - before.system
    return Turn(found, used / (found.rate * SECONDS))


def add_rows(table: Table, clients: int, turns: list[list[Turn]]) -> None:
    """Add what some clients found: medians of both sides, and the median of the turns' ratios."""
    sides = [*zip(*turns, strict=True)]
    rates = [statistics.median(each.load.rate for each in side) for side in sides]
    ratio = statistics.median(b.load.rate / a.load.rate for a, b in turns)
    word = "client" if clients == 1 else "clients"
    told = [f"{rate:,.0f}" for rate in rates]
    table.add(f"queries/s, {clients} {word}", *told, f"{ratio:.2f}", GOALS.get(clients, ""))
    if clients != CLIENTS[-1]:
        return
    for name, place in (("p50", "p50_seconds"), ("p99", "p99_seconds")):
        times = [statistics.median(getattr(each.load, place) for each in side) for side in sides]
        told = [f"{each * 1e3:.2f} ms" for each in times]
        table.add(f"{name}, {clients} clients", *told, f"{times[1] / times[0]:.2f}", "")
    used = [statistics.median(each.owner_seconds for each in side) * 1e6 for side in sides]
    table.add(
        "processor time a query of the process that has the collections",
        *(f"{each:.0f} µs" for each in used),
        f"{used[1] / used[0]:.2f}",
        "60 µs",
    )


def main() -> None:
    """Measure and print."""
    options = arguments("One process against an owner with fronts.").parse_args()
    table = Table("workers", COLUMNS)
    vectors = load(SETS[DENSE], options.data).vectors
    asked = queries(vectors, f"{collection(DENSE)}/query")
    with tempfile.TemporaryDirectory() as name:
        one, several = Path(name, "one"), Path(name, "several")
        with serving(one) as alone, serving(several, workers=FRONTS) as fronted:
            for server in (alone, fronted):
                body = npy(vectors)
                load_seconds(server, DENSE, vectors.shape[1], body, "application/x-npy")
                graph_seconds(server, DENSE)
                hold_out(server.port, DENSE, len(asked))
                client.run(server.port, asked, connections=CLIENTS[-1], seconds=1)
            owners = [(alone, owner_of(alone, one)), (fronted, owner_of(fronted, several))]
            turns = {
                clients: [[turn(*each, asked, clients) for each in owners] for _ in range(TURNS)]
                for clients in CLIENTS
            }
    for clients, pairs in turns.items():
        add_rows(table, clients, pairs)
    table.notes.append(
        f"Medians of {TURNS} turns of {SECONDS:g} s, and of the ratios of each turn. "
        "Client and servers share the machine. Queries ask for 10 hits at recall 0.9, by vectors "
        "that are not stored."
    )
    table.publish(options, threads="1 client process, 1 server process or 3")


if __name__ == "__main__":
    main()
