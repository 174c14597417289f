"""Which package may import which: the arrows of the design, held here and checked with ``ast``."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.paths import PRODUCT, REPOSITORY, sources

EVERYWHERE = {"contracts", "threads", "kernels"}
"""Packages that all layers above them may import."""

ARROWS: dict[str, set[str]] = {
    "contracts": set(),
    "memory": set(),
    "threads": {"memory"},
    "kernels": {"contracts"},
    "payload": {"contracts"},
    "storage": {"contracts"},
    "vectors": EVERYWHERE,
    "polya": {"contracts"},
    "similarities": {"polya", "vectors"} | EVERYWHERE,
    "hashing": EVERYWHERE,
    "cost_model": {"hashing"} | EVERYWHERE,
    "exact": {"cost_model", "similarities"} | EVERYWHERE,
    "lsh": {"cost_model", "exact", "hashing", "similarities"} | EVERYWHERE,
    "graph": {"cost_model", "exact", "hashing", "lsh", "vectors"} | EVERYWHERE,
    "joins": {"cost_model", "exact", "hashing", "lsh", "similarities"} | EVERYWHERE,
    "corpus": {"exact", "hashing", "lsh"} | EVERYWHERE,
    "backend": {"exact", "joins", "lsh", "similarities"} | EVERYWHERE,
    "comparison": {"backend", "exact", "hashing", "lsh", "polya", "similarities", "vectors"}
    | EVERYWHERE,
    "backends": {"backend", "comparison", "cost_model", "exact", "graph", "hashing", "joins", "lsh"}
    | {"similarities"}
    | EVERYWHERE,
    "collection": {"backend", "backends", "cost_model", "exact", "hashing", "joins", "memory"}
    | {"payload", "similarities", "storage", "vectors"}
    | EVERYWHERE,
    "warmup": {"backends", "collection", "exact", "hashing", "joins", "lsh", "similarities"}
    | {"vectors"}
    | EVERYWHERE,
}  # fmt: skip
"""Package of index, and what of index it may import.

``index/__init__`` is the public face and may import all of them.
"""

KERNEL_ARROWS: dict[str, set[str]] = {
    "lanes": set(),
    "ordering": set(),
    "hashing": {"lanes"},
    "gmm": {"lanes", "ordering"},
    "quantized": {"cache", "gmm", "lanes", "ordering"},
    "lsh": {"gmm", "lanes", "ordering"},
    "sparse": {"gmm", "lanes", "ordering"},
    "graph": {"gmm", "hashing", "lanes", "ordering", "quantized"},
}
"""Folder of kernels, and which other folders of kernels it may import; all import `compiling`.

Code for rows in bytes is written by the features of the processor, which `cache` tells."""
COMPILED = "kernel", "inner", "inlined"
"""Decorators of kernels."""

CLIENT_ARROWS: dict[str, set[str]] = {
    "formats": {"index"},
    "client": {"formats", "index"},
    "commands": {"client", "formats", "imports", "index", "service", "version"},
}
"""Folder of gcws_search, and what else of the project it may import; numba comes with none."""

SERVICE_FLOORS = (
    "errors", "problems", "messages", "settings", "metrics", "server", "keys",
    "limits", "models", "contract", "responses", "ingest", "pools", "startup",
    "searches", "http", "api",
    "cluster", "app", "fronts", "cli",
)  # fmt: skip
"""Packages and modules of service from the bottom up; each imports only those before it."""


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names a module imports, members of ``from`` imports included.

    Names of the project are told without ``gcws_search``.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise AssertionError(f"relative import of {node.module}")
            for alias in node.names:
                yield f"{node.module}.{alias.name}".removeprefix("gcws_search.")


def part(path: Path) -> str:
    """Return the package of index a file belongs to: ``backends`` for backends/gcws.py."""
    first = path.relative_to(REPOSITORY / "index").parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def top(name: str) -> str:
    return name.partition(".")[0]


def tops(tree: ast.Module) -> set[str]:
    return {top(name) for name in imported(tree)}


def reached(tree: ast.Module, above: str) -> set[str]:
    """Return the next word of each name below ``above`` that a module imports."""
    names = imported(tree)
    return {name.removeprefix(above).split(".")[0] for name in names if name.startswith(above)}


def decorated(tree: ast.Module) -> bool:
    """Whether some function is compiled by numba."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    text = (
        ast.unparse(decorator) for function in functions for decorator in function.decorator_list
    )
    return any(
        name.startswith(("njit", "jit", "numba.", "vectorize", "intrinsic", *COMPILED))
        for name in text
    )


def packages() -> list[Path]:
    found = {path.parent for folder in PRODUCT for path in (REPOSITORY / folder).rglob("*.py")}
    return sorted(found - {REPOSITORY / "gcws_search"})


def test_packages_import_only_along_the_arrows() -> None:
    found: dict[str, set[str]] = {name: set() for name in ARROWS}
    for path, tree in sources("index"):
        if ours := part(path):
            found[ours] |= reached(tree, "index.") - {ours}
    beyond = {name: more for name, to in found.items() if (more := to - ARROWS[name])}
    assert not beyond
    unused = {name: less for name, to in found.items() if (less := ARROWS[name] - EVERYWHERE - to)}
    assert not unused, "each row is the smallest set"


def test_kernels_import_only_along_the_arrows() -> None:
    kernels = REPOSITORY / "index" / "kernels"
    found: dict[str, set[str]] = {name: set() for name in KERNEL_ARROWS}
    for name in KERNEL_ARROWS:
        for _, tree in sources(f"index/kernels/{name}"):
            found[name] |= reached(tree, "index.kernels.") - {name, "compiling"}
    assert found == KERNEL_ARROWS
    assert set(KERNEL_ARROWS) == {path.parent.name for path in kernels.glob("*/__init__.py")}


def test_the_arrows_name_packages_that_exist() -> None:
    parts = {part(path) for path, _ in sources("index")} - {""}
    assert set(ARROWS) == parts
    assert set().union(*ARROWS.values()) <= parts


@pytest.mark.parametrize("arrows", [ARROWS, KERNEL_ARROWS])
def test_the_arrows_have_no_cycle(arrows: dict[str, set[str]]) -> None:
    TopologicalSorter(arrows).prepare()  # raises CycleError, which names a circle


@pytest.mark.parametrize("folder", CLIENT_ARROWS)
def test_the_client_side_imports_along_its_arrows(folder: str) -> None:
    for path, tree in sources(f"gcws_search/{folder}"):
        names = {name.removeprefix("gcws_search.") for name in imported(tree)}
        known = {"imports", "service", "index", "version", *CLIENT_ARROWS}
        assert {*map(top, names)} & known <= CLIENT_ARROWS[folder] | {folder}, path
        inner = {name for name in names if name.count(".") > 1 and top(name) == "index"}
        assert not {name for name in inner if not name.startswith("index.contracts.")}, path


def test_the_service_imports_downwards() -> None:
    names = {path.relative_to(REPOSITORY / "service").parts[0] for path, _ in sources("service")}
    assert {name.removesuffix(".py") for name in names} - {"__init__", "__main__"} == {
        *SERVICE_FLOORS
    }
    for path, tree in sources("service"):
        here = path.relative_to(REPOSITORY / "service").parts[0].removesuffix(".py")
        if here not in SERVICE_FLOORS:
            continue
        below = {*SERVICE_FLOORS[: SERVICE_FLOORS.index(here) + 1]}
        found = {name.split(".")[1] for name in imported(tree) if name.startswith("service.")}
        assert found <= below, (path, found - below)


def test_items_in_memory_know_no_file() -> None:
    assert not ARROWS["storage"] & {"collection", "vectors", "backends"}
    for name in ("memory_collection", "row_store", "items", "backend_index"):
        tree = ast.parse((REPOSITORY / f"index/collection/{name}.py").read_text())
        names = {name for name in imported(tree) if name.startswith("index.")}
        assert not {each for each in names if each.split(".")[1] == "storage"}, name


@pytest.mark.parametrize("folder", packages(), ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_a_package_says_in_a_list_what_each_of_its_modules_holds(folder: Path) -> None:
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^- ([^:]+):", said, re.MULTILINE)))
    found = [path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")]
    assert said
    assert sorted(named) == sorted(found)
    assert len(found) + len([*folder.glob("*/__init__.py")]) > 1, "a package of one file"


def test_no_two_public_classes_share_a_name() -> None:
    found = [
        node.name
        for _, tree in sources(*PRODUCT)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert len(found) > 300
    assert not {name for name, times in Counter(found).items() if times > 1}


LIBRARIES: list[tuple[tuple[str, ...], set[str], tuple[str, ...]]] = [
    (("index",), {"fastapi", "starlette", "uvicorn", "httpx", "service"}, ()),
    (("service",), {"numba", "llvmlite", "sqlite3", "sqlite_utils"}, ()),
    (
        ("service",), {"psycopg"},
        tuple(f"service/cluster/{name}.py" for name in
              ("bulk", "committer", "connections", "database", "schema")),
    ),
    # CSV is read by the rules of the command, and all else by a bulk load; Arrow has one list of
    # kinds of text and lists; bases and segments lie in the stores that these read.
    (
        ("service",), {"formats"},
        ("service/ingest/delimited.py", "service/ingest/arrow.py", "service/api/load.py",
         "service/cluster/bases.py", "service/cluster/bulk.py", "service/cluster/follower.py",
         "service/cluster/segments.py"),
    ),
    (("index", "service"), {"ray"}, ("service/cluster/placing.py",)),
    # SQLite's version is described; its log and free pages are given back.
    (
        ("index",), {"sqlite3", "sqlite_utils"},
        ("index/storage/", "index/collection/describe.py", "index/collection/reclaim.py"),
    ),
    (PRODUCT, {"benchmarks", "tests"}, ()),
    (PRODUCT, {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, ()),
]  # fmt: skip
"""Folders, libraries, and the only files in these folders that import one of them."""


@pytest.mark.parametrize(("folders", "libraries", "speakers"), LIBRARIES)
def test_libraries_are_known_to_those_alone_who_speak_to_them(
    folders: tuple[str, ...], libraries: set[str], speakers: tuple[str, ...]
) -> None:
    users = {
        str(path.relative_to(REPOSITORY))
        for path, tree in sources(*folders)
        if tops(tree) & libraries
    }
    assert not {user for user in users if not user.startswith(speakers)}


def test_service_takes_the_index_by_its_public_names_alone() -> None:
    for path, tree in sources("service"):
        names = {name for name in imported(tree) if top(name) == "index"}
        assert all(name.count(".") <= 1 for name in names), (path, names)


def test_the_service_of_one_machine_knows_nothing_of_clusters() -> None:
    knowing = {
        str(path.relative_to(REPOSITORY / "service"))
        for path, tree in sources("service")
        if any(name.startswith("service.cluster") for name in imported(tree))
    }
    assert {name for name in knowing if not name.startswith("cluster/")} <= {"app.py", "cli.py"}


def test_nothing_is_imported_by_the_names_of_its_folders() -> None:
    """``import index`` may be anybody's; the project is ``gcws_search``."""
    for path, tree in sources(*PRODUCT, "tests", "benchmarks"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert not {top(each.name) for each in node.names} & {"index", "service"}, path
            elif isinstance(node, ast.ImportFrom):
                assert top(node.module or "") not in {"index", "service"}, path


def test_compiled_functions_live_in_kernels() -> None:
    elsewhere = [
        path for path, tree in sources("index") if decorated(tree) and part(path) != "kernels"
    ]
    assert not elsewhere
    assert not [path for path, tree in sources("service") if decorated(tree)]
