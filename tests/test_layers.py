"""Which module may import which: the arrows of the design, held here and checked with ``ast``."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

FOUNDATIONS = {"arrays", "backend_params", "batches", "errors", "hits", "params"}
"""Types of arrays, vectors, hits, errors and parameters: importable from all but kernels."""

KERNEL_FOUNDATIONS = {"arrays"}
"""Names of array types: all that kernels take from outside."""

ARROWS: dict[str, set[str]] = {
    "catalog": {
        "checking", "config", "connections", "description", "directory", "hashing",
        "reservations", "schema", "snapshots", "store", "stored", "tidying",
    },
    "checking": {
        "backends", "changes", "checksums", "config", "directory", "ids", "links", "payloads",
        "records", "salvage", "saved", "schema", "store", "vectors",
    },
    "salvage": {"checksums", "connections", "schema"},
    "snapshots": {"directory", "reservations", "schema"},
    "reservations": set(),
    "config": {"directory", "hashing", "saved", "schema"},
    "stored": {
        "as_sent", "attachments", "backends", "changes", "checkpoints", "collection", "comparison",
        "description", "filters", "hashing", "improver", "items", "loading", "pages", "store",
        "tidying", "vectors", "writes",
    },
    "loading": {
        "backends", "changes", "hashing", "ids", "items", "payloads", "records", "store", "vectors",
    },
    "tidying": {"connections", "directory", "store", "writes"},
    "attachments": {
        "backends", "collection", "config", "directory", "indexed", "items", "parallel", "saved",
        "schema", "store", "writes",
    },
    "as_sent": {"collection", "items", "pages", "store", "vectors"},
    "improver": {"collection", "improvement", "parallel", "writes"},
    "comparison": {"collection", "indexed", "items", "similarity"},
    "description": {"attachments", "hashing", "indexed", "schema"},
    "improvement": {"collection", "indexed", "items"},
    "checkpoints": {"collection", "items", "links", "saved", "store", "writes"},
    "links": {"saved"},
    "writes": {"changes", "collection", "items", "records", "store"},
    "changes": {"collection", "filters", "ids", "items", "payloads", "records"},
    "store": {"checksums", "connections", "directory", "records", "schema", "statements"},
    "records": {"checksums"},
    "statements": set(),
    "connections": set(),
    "checksums": set(),
    "pages": set(),
    "schema": {"checksums", "saved"},
    "directory": set(),
    "contents": {"columns", "indexed", "items", "rows"},
    "later": {"items"},
    "collection": {
        "backends", "contents", "filters", "later", "indexed", "items", "parallel", "parts", "rows",
        "rows_by_id", "saved", "vectors",
    },
    "parts": {"indexed", "items", "vectors"},
    "items": {"columns", "indexed", "vectors"},
    "indexed": {"backends", "saved"},
    "filters": {"columns"},
    "columns": {"payloads"},
    "ids": set(),
    "payloads": set(),
    "warmup": {
        "backends", "coarse", "hashing", "inverted", "kernels", "pairs", "parallel", "prefixes",
        "rounded", "rows", "scan", "search", "similarity", "vectors",
    },
    "backends": {
        "bands", "binning", "exact_join", "features", "gathering", "growth", "hashing", "hop",
        "inverted", "kernels", "keying", "newest", "nystroem", "pairs", "parallel", "partners",
        "rerank", "sampled", "saved", "scan", "search", "similarity", "tables",
    },
    "newest": {"inverted", "parallel", "scan"},
    "sampled": {"bands", "gathering", "hashing", "kernels", "parallel", "rerank", "tables"},
    "gathering": {"bands", "kernels", "tables"},
    "growth": {
        "beginning", "calibration", "checks", "coarse", "costs", "hop", "inverted", "kernels",
        "keying", "measuring", "neighbours", "parallel", "rounded", "saved", "scan", "sweeps",
        "tables",
    },
    "beginning": {
        "bands", "coarse", "inverted", "kernels", "neighbours", "parallel", "scan",
    },
    "sweeps": {"calibration", "hop", "kernels", "neighbours"},
    "hop": {
        "calibration", "coarse", "costs", "kernels", "neighbours", "parallel", "spaces", "tables",
        "walks",
    },
    "walks": {"calibration", "spaces"},
    "measuring": {"calibration", "kernels"},
    "calibration": {"saved"},
    "checks": {"saved"},
    "neighbours": {"checks", "coarse", "kernels", "parallel", "spaces", "tables"},
    "spaces": {"kernels"},
    "coarse": {"kernels", "saved"},
    "saved": set(),
    "costs": {"bands", "kernels"},
    "search": {"bands", "costs", "inverted", "kernels", "parallel", "scan", "tables"},
    "pairs": {"bands", "kernels", "parallel", "scan", "tables"},
    "partners": {
        "bands", "costs", "exact_join", "inverted", "kernels", "pairs", "parallel", "scan",
        "tables",
    },
    "exact_join": {
        "costs", "inverted", "kernels", "pairs", "parallel", "prefixes", "scan",
    },
    "prefixes": {"costs", "kernels", "pairs", "parallel", "scan"},
    "scan": {"inverted", "kernels", "parallel", "rounded"},
    "rounded": {"coarse", "kernels", "parallel"},
    "inverted": {"kernels", "parallel"},
    "keying": {"bands", "hashing", "parallel", "tables"},
    "tables": {"kernels", "parallel"},
    "bands": {"hashing", "kernels"},
    "hashing": {"kernels"},
    "features": {"hashing", "kernels", "parallel"},
    "similarity": {"exact_kernels", "kernels", "scan", "vectors"},
    "exact_kernels": {"curves", "distances", "polya"},
    "curves": {"kernels", "polya"},
    "distances": set(),
    "polya": set(),
    "binning": {"hashing", "kernels", "polya"},
    "correlation": set(),
    "transformers": {"binning", "features", "hashing", "nystroem", "parallel", "vectors"},
    "nystroem": {"hashing", "kernels", "parallel", "saved", "scan", "sent"},
    "rerank": {"scan", "similarity"},
    "rows": set(),
    "rows_by_id": set(),
    "vectors": {"kernels", "sent"},
    "sent": set(),
    "parallel": set(),
    "kernels": set(),
    "batches": {"kernels"},
    "hits": set(),
    "params": set(),
    "backend_params": set(),
    "errors": set(),
    "arrays": set(),
}  # fmt: skip
"""Module or folder of index, and what of index it may import besides the foundations.

``index/__init__`` is the public face and may import all of them.
"""


def sources(package: str) -> Iterator[tuple[Path, ast.Module]]:
    """Yield every module below a top-level folder, parsed."""
    for path in sorted((REPOSITORY / package).rglob("*.py")):
        yield path, ast.parse(path.read_text())


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names a module imports, members of ``from`` imports included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise AssertionError(f"relative import of {node.module}")
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def part(path: Path) -> str:
    """Return the module or folder of index a file belongs to: ``backends`` for backends/gcws.py."""
    first = path.relative_to(REPOSITORY / "index").parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def top(name: str) -> str:
    """Return the first word of a dotted name."""
    return name.partition(".")[0]


def decorated(tree: ast.Module) -> bool:
    """Whether some function is compiled by numba."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    text = (
        ast.unparse(decorator) for function in functions for decorator in function.decorator_list
    )
    return any(
        name.startswith(("njit", "jit", "numba.", "vectorize", "intrinsic")) for name in text
    )


@pytest.mark.parametrize("path", [path for path, _ in sources("index")], ids=str)
def test_index_imports_only_along_the_arrows(path: Path) -> None:
    ours = part(path)
    foundations = KERNEL_FOUNDATIONS if ours == "kernels" else FOUNDATIONS
    if not ours:
        return
    permitted = ARROWS[ours] | foundations | {ours}
    names = imported(ast.parse(path.read_text()))
    reached = {name.split(".")[1] for name in names if top(name) == "index"}
    assert reached <= permitted


def test_the_arrows_name_modules_that_exist() -> None:
    parts = {part(path) for path, _ in sources("index")} - {""}
    assert set(ARROWS) == parts
    assert set().union(*ARROWS.values()) <= parts


def test_store_and_collection_never_see_each_other() -> None:
    assert "collection" not in ARROWS["store"]
    assert "store" not in ARROWS["collection"]


def test_the_arrows_have_no_cycle() -> None:
    remaining = {name: set(targets) for name, targets in ARROWS.items()}
    while free := {name for name, targets in remaining.items() if not targets & set(remaining)}:
        remaining = {name: targets for name, targets in remaining.items() if name not in free}
    assert not remaining


def test_index_knows_nothing_of_http() -> None:
    web = {"fastapi", "starlette", "uvicorn", "httpx", "service"}
    assert not {path: reached for path, tree in sources("index") if (reached := tops(tree) & web)}


def test_service_takes_the_index_by_its_public_names_alone() -> None:
    for path, tree in sources("service"):
        names = {name for name in imported(tree) if top(name) == "index"}
        assert all(name.count(".") <= 1 for name in names), (path, names)


def test_service_knows_nothing_of_numba_or_sql() -> None:
    hidden = {"numba", "llvmlite", "sqlite3", "sqlite_utils"}
    found = {path: tops(tree) & hidden for path, tree in sources("service")}
    assert not {path: reached for path, reached in found.items() if reached}


def test_sql_is_spoken_by_the_store_and_its_schema_alone() -> None:
    speakers = {
        part(path) for path, tree in sources("index") if tops(tree) & {"sqlite3", "sqlite_utils"}
    }
    # description names SQLite's version
    assert speakers <= {"connections", "description", "salvage", "schema", "store", "tidying"}


@pytest.mark.parametrize("package", ["index", "service"])
def test_nobody_imports_benchmarks_or_tests(package: str) -> None:
    for path, tree in sources(package):
        assert not tops(tree) & {"benchmarks", "tests"}, path


def test_compiled_functions_live_in_kernels() -> None:
    elsewhere = [
        path for path, tree in sources("index") if decorated(tree) and part(path) != "kernels"
    ]
    assert not elsewhere
    assert not [path for path, tree in sources("service") if decorated(tree)]


def test_nothing_persists_objects() -> None:
    for package in ("index", "service"):
        for path, tree in sources(package):
            assert not tops(tree) & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, path


def tops(tree: ast.Module) -> set[str]:
    """Return the top-level packages a module imports."""
    return {top(name) for name in imported(tree)}
