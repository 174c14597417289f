"""One table per benchmark: a line with machine and commit, and rows of Markdown."""

import argparse
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
LIBRARIES = ("numpy", "numba", "faiss-cpu", "datasketch", "fastapi", "uvicorn")


@dataclass
class Table:
    """Columns, and rows as they are measured.

    Attributes
    ----------
    name : str
        The benchmark's; what the markers in a page call the table.
    columns : sequence of str
    """

    name: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        """Add one row; numbers are written with three digits."""
        row = [cell if isinstance(cell, str) else figure(cell) for cell in cells]
        if len(row) != len(self.columns):
            raise ValueError(row)
        self.rows.append(row)

    def publish(self, options: argparse.Namespace, *, threads: str) -> None:
        """Print the table as Markdown; with ``--write FILE`` also put it into that file."""
        text = "\n\n".join([f"*{header(threads)}*", markdown(self.columns, self.rows), *self.notes])
        print(text)
        if options.write is not None:
            replace_block(options.write, self.name, text)


def replace_block(file: Path, name: str, text: str) -> None:
    """Put ``text`` between the lines ``<!-- table: name -->`` and ``<!-- end: name -->``."""
    begin, end = f"<!-- table: {name} -->", f"<!-- end: {name} -->"
    before, _, rest = file.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"{file} has no block {begin} … {end}")
    file.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figure(value: object) -> str:
    """Return a number with three digits that mean something; other things as text."""
    if not isinstance(value, int | float):
        return str(value)
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def header(threads: str) -> str:
    """Return threads, machine, versions and commit on one line."""
    versions = ", ".join(f"{name} {version}" for name in LIBRARIES if (version := _version(name)))
    return f"{threads}; {_machine()}; {versions}; commit {_commit()}"


def arguments(description: str, *, data: bool = True) -> argparse.ArgumentParser:
    """Return a parser with the option every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    if data:
        help_ = "folder of the data sets' .npz files"
        parser.add_argument("--data", type=Path, required=True, metavar="DIR", help=help_)
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="put the table into its block of this file, too"
    )
    return parser


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def _machine() -> str:
    text = Path("/proc/cpuinfo").read_text()
    models = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    widest = next((name for name in ("avx512f", "avx2") if name in text), "no AVX2")
    return f"{len(models)} x {models[0] if models else 'unknown CPU'} ({widest})"


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    # The tables themselves are no change: each benchmark writes its own.
    pages = [f":(exclude){page}" for page in ("README.md", "docs/benchmarks.md")]
    changes = git("status", "--porcelain", "--untracked-files=no", "--", ".", *pages)
    changed = " with changes" if changes else ""
    return f"{git('rev-parse', '--short', 'HEAD') or 'unknown'}{changed}"
