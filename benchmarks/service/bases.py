"""A new replica from the database and from a base: ``python -m benchmarks.service.bases``.

One shard of one collection. A replica that is filled from the database writes the base. Others are
then started in separate processes, in turns, and end once they have every item and an index: from
the database; from the base; and from a copy of the base's file, as after a restart.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.harness.cluster import DATABASE, databases
from benchmarks.harness.datasets import made
from benchmarks.harness.report import Table, arguments
from gcws_search import index as ix
from gcws_search.service.cluster.bases import Bases
from gcws_search.service.cluster.committer import Committer, PreparedPut
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.follower import HostOptions
from gcws_search.service.cluster.host import ShardHost

ROWS: Final = (200_000, 1_000_000)
DIM: Final = 128
CHUNK: Final = 50_000
COLUMNS: Final = ("rows", "a replica begins with", "seconds", "processor seconds", "of a restart")
LOOK_SECONDS: Final = 0.02


class Taken(NamedTuple):
    """Time until a replica has all items."""

    seconds: float
    processor_seconds: float

    def __add__(self, other: object) -> "Taken":
        assert isinstance(other, Taken)
        return Taken(*(a + b for a, b in zip(self, other, strict=True)))


def run_replica(url: str, folder: Path, base: str, *, writes: bool) -> Taken:
    """Run a replica until it has all items and an index, and has written the base if it does so."""
    began = time.perf_counter(), time.process_time()
    options = HostOptions(poll_seconds=0.05, base=base, base_seconds=0.5 if writes else 1e9)
    with closing(Database.open(url)) as database:
        host = ShardHost(database, folder, 0, 1, options=options)
        try:
            host.start()

            def is_whole() -> bool:
                return host.is_ready and all(
                    each.collection is not None
                    and each.reached >= each.head > 0
                    and not each.collection.optimizer.is_due()
                    for each in host.followers
                )

            while not is_whole():
                time.sleep(LOOK_SECONDS)
            taken = Taken(time.perf_counter() - began[0], time.process_time() - began[1])
            bases = Bases(base, database, 0, 1)
            while writes and not bases.current():
                time.sleep(LOOK_SECONDS)
            return taken
        finally:
            host.close()


def start_replica(url: str, folder: Path, base: str = "", *, writes: bool = False) -> Taken:
    """Run a replica in a separate process."""
    words = ["--replica", url, str(folder), base, str(int(writes))]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.service.bases", *words],
        check=True,
        stdout=subprocess.PIPE,
        env=os.environ,
    )
    return Taken(*json.loads(done.stdout.splitlines()[-1]))


def fill_database(url: str, rows: int, dim: int = DIM) -> None:
    """Write synthetic vectors to a collection."""
    config = ix.CollectionConfig(dim=dim)
    space = ix.StoredCollection.in_memory("made", config, threads=1).space
    with closing(Database.open(url)) as database:
        row, _ = database.create("made", config.to_dict())
        committer = Committer(database, row.number, "made")
        vectors = made(rows=rows, dim=dim)
        for first in range(0, rows, CHUNK):
            blobs = space.to_blobs(space.from_dense(vectors[first : first + CHUNK]))
            ids = [f"i{first + place}" for place in range(len(blobs))]
            committer.commit(PreparedPut(ids=ids, vectors=blobs, payloads=[None] * len(ids)))


def copy_file(file: Path, folder: Path) -> Taken:
    """Copy a base to the path of a replica's file, and sync it to the disk."""
    began = time.perf_counter(), time.process_time()
    folder.mkdir()
    target = folder / "c1.sqlite"
    shutil.copyfile(file, target)
    with target.open("rb+") as copied:
        os.fsync(copied.fileno())
    return Taken(time.perf_counter() - began[0], time.process_time() - began[1])


def measure(rows: int, turns: int, table: Table) -> None:
    """Add a row for each way."""
    with databases() as pair, tempfile.TemporaryDirectory() as name:
        url, place = pair.url(DATABASE), Path(name)
        base = str(place / "bases")
        fill_database(url, rows)
        start_replica(url, place / "writer", base, writes=True)
        [file] = (place / "bases").rglob("*.sqlite")

        def restart(folder: Path) -> Taken:
            return copy_file(file, folder) + start_replica(url, folder)

        ways: dict[str, Callable[[Path], Taken]] = {
            "the rows of the database": lambda folder: start_replica(url, folder),
            "the base": lambda folder: start_replica(url, folder, base),
            "a copy of the base's file": restart,
        }
        taken: dict[str, list[Taken]] = {way: [] for way in ways}
        for turn in range(turns):
            for way, run in ways.items():
                folder = place / f"{turn}"
                taken[way].append(run(folder))
                shutil.rmtree(folder)
        last = [each.seconds for each in taken["a copy of the base's file"]]
        for way, every in taken.items():
            ratios = (each.seconds / one for each, one in zip(every, last, strict=True))
            seconds, used = (statistics.median(part) for part in zip(*every, strict=True))
            ratio = statistics.median(ratios)
            table.add(f"{rows:,}", way, f"{seconds:.1f}", f"{used:.1f}", f"{ratio:.2f}")
        table.notes.append(f"The file of {rows:,} rows has {file.stat().st_size / 1e6:,.0f} MB.")


def main() -> None:
    """Measure and print."""
    parser = arguments("A new replica from the database and from a base.", data=False)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--replica", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replica:
        url, folder, base, writes = options.replica
        print(json.dumps(run_replica(url, Path(folder), base, writes=writes == "1")))
        return
    table = Table("bases", COLUMNS)
    table.notes.append(
        f"{DIM} numbers a row, one shard, the base in a folder; medians of {options.turns} turns. "
        "Each process starts with compiled kernels, and is timed until it has all items indexed."
    )
    for rows in options.rows:
        measure(rows, options.turns, table)
    table.publish(options, threads="2 threads")


if __name__ == "__main__":
    main()
