"""Every generated table, on one commit and one machine: ``python -m benchmarks.all --data DIR``.

Each benchmark runs in a separate process, one after another, and writes its table into its block of
the file. Failed benchmarks are listed at the end and do not stop the others.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness.report import REPOSITORY


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark that writes tables.

    Attributes
    ----------
    module : str
    needs_data : bool
        Whether it takes ``--data``.
    """

    module: str
    needs_data: bool = False

    @property
    def name(self) -> str:
        """Its name on the command line: ``recall`` for benchmarks.library.recall."""
        return self.module.rpartition(".")[2]

    def command(self, data: Path, write: Path) -> list[str]:
        """Return the command that runs it."""
        options = ["--data", str(data)] if self.needs_data else []
        return [sys.executable, "-m", self.module, *options, "--write", str(write)]


BENCHMARKS: Final = (
    Benchmark("benchmarks.rivals", needs_data=True),
    Benchmark("benchmarks.library.recall", needs_data=True),
    Benchmark("benchmarks.library.stages", needs_data=True),
    Benchmark("benchmarks.library.scan", needs_data=True),
    Benchmark("benchmarks.library.pairs", needs_data=True),
    Benchmark("benchmarks.library.groups"),
    Benchmark("benchmarks.library.corpus"),
    Benchmark("benchmarks.library.growth"),
    Benchmark("benchmarks.library.mapped"),
    Benchmark("benchmarks.library.sketch"),
    Benchmark("benchmarks.library.binning"),
    Benchmark("benchmarks.library.features"),
    Benchmark("benchmarks.library.writes"),
    Benchmark("benchmarks.library.file_maintenance"),
    Benchmark("benchmarks.service.http", needs_data=True),
    Benchmark("benchmarks.service.minimal", needs_data=True),
    Benchmark("benchmarks.service.workers", needs_data=True),
    Benchmark("benchmarks.service.cluster_recall", needs_data=True),
    Benchmark("benchmarks.service.cluster"),
    Benchmark("benchmarks.service.bases"),
    Benchmark("benchmarks.service.segments"),
    Benchmark("benchmarks.service.changes", needs_data=True),
    Benchmark("benchmarks.service.durability"),
    Benchmark("benchmarks.service.client", needs_data=True),
    Benchmark("benchmarks.service.explanation", needs_data=True),
    Benchmark("benchmarks.service.analysis", needs_data=True),
    Benchmark("benchmarks.service.joins", needs_data=True),
    Benchmark("benchmarks.service.texts"),
    Benchmark("benchmarks.service.page"),
)


def parsed(given: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description="Every generated table of the documentation.")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="data sets (.npz)")
    parser.add_argument(
        "--write",
        type=Path,
        default=REPOSITORY / "docs" / "benchmarks.md",
        metavar="FILE",
        help="file with the tables' blocks",
    )
    names = [each.name for each in BENCHMARKS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Run the benchmarks; return how many failed."""
    options = parsed(given)
    failed = []
    for benchmark in (each for each in BENCHMARKS if each.name in options.only):
        start = time.perf_counter()
        print(f"== {benchmark.module}", flush=True)
        command = benchmark.command(options.data.resolve(), options.write.resolve())
        if subprocess.run(command, cwd=REPOSITORY, check=False).returncode:
            failed.append(benchmark.module)
        print(f"== {time.perf_counter() - start:,.0f} s", flush=True)
    for module in failed:
        print(f"failed: {module}")
    return len(failed)


if __name__ == "__main__":
    raise SystemExit(main())
