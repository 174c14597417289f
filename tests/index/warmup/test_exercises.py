"""The warm-up leaves no kernel to be compiled by a request."""

import ast
import importlib
import pkgutil
import shutil
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numba.core.dispatcher import Dispatcher

from gcws_search.index import MapParams, kernels, map_items, profile
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.batches import RawBatch, SparseVector
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    GcwsParams,
    SearchParams,
)
from gcws_search.index.payload import parse_filter
from gcws_search.index.similarities import similarity
from gcws_search.index.warmup.compile import chains, compile_kernels
from tests.support.paths import REPOSITORY
from tests.support.processes import run_python

KERNELS = "gcws_search.index.kernels."
ON_DEMAND = {"hashing.binning", "hashing.fourier", "lsh.connect", "lsh.gather"}
"""Kernels of backends that are attached on demand, and of `dedupe`: compiled when one first is."""
KINDS: list[BackendParams] = [
    GcwsParams(bands=4), GcwsParams(bands=2, band_width=3), ExactParams()
]  # fmt: skip
_CACHES = shutil.ignore_patterns("__pycache__")
ROWS = 2800  # so many of 90 coordinates that scans read copies of them
"""Enough for neighbour lists."""


def _kernels() -> dict[str, Dispatcher]:
    found = {}
    for module in pkgutil.walk_packages(kernels.__path__, KERNELS):
        loaded = importlib.import_module(module.name)
        for name, member in vars(loaded).items():
            value = getattr(member, "compiled", member)
            if isinstance(value, Dispatcher) and value.py_func.__module__ == loaded.__name__:
                found[f"{module.name.removeprefix(KERNELS)}.{name}"] = value
    return found


def _called() -> set[str]:
    """Return the names of kernels, and of much else of their modules, that index itself uses."""
    found = set()
    for path in (REPOSITORY / "index").glob("**/*.py"):
        if "kernels" in path.relative_to(REPOSITORY).parts:
            continue
        tree = ast.parse(path.read_text())
        modules = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(KERNELS):
                module = str(node.module).removeprefix(KERNELS)
                names = {each.asname or each.name: f"{module}.{each.name}" for each in node.names}
                modules.update(names)
                found |= {f"{module}.{alias.name}" for alias in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found.add(f"{modules.get(node.value.id, '')}.{node.attr}")
    return found


def test_every_kernel_that_python_calls_is_compiled_by_the_warm_up() -> None:
    seen: list[tuple[int, int]] = []
    compile_kernels(lambda done, total, name: seen.append((done, total)))
    assert [done for done, _ in seen] == list(range(1, seen[0][1] + 1))
    called = _called()
    assert {
        "graph.batch_search.search_graph",
        "graph.build.join_links",
        "lsh.probe.probe",
    } <= called
    kernels = _kernels()
    left = [name for name in kernels if name in called and not kernels[name].signatures]
    assert {name.rpartition(".")[0] for name in left} <= ON_DEMAND


def test_the_cache_of_kernels_is_named_after_their_content(tmp_path: Path) -> None:
    program = "from gcws_search.index.kernels import CACHE_FOLDER; print(CACHE_FOLDER)"

    def folder(root: Path) -> str:
        cache = str(tmp_path / "cache")
        return run_python("-c", program, folder=root, NUMBA_CACHE_DIR=cache).stdout.strip()

    copy = tmp_path / "copy"
    ours = copy / "gcws_search" / "index"
    shutil.copytree(REPOSITORY / "index" / "kernels", ours / "kernels", ignore=_CACHES)
    for above in (ours.parent, ours):
        (above / "__init__.py").write_text("")
    first = folder(copy)
    assert first.startswith(str(tmp_path / "cache"))
    assert folder(copy) == first
    changed = ours / "kernels" / "hashing" / "randomness.py"
    changed.write_text(changed.read_text() + "\n# changed\n")
    assert folder(copy) != first


def _signatures() -> dict[str, list[object]]:
    return {name: list(kernel.signatures) for name, kernel in _kernels().items()}


def _more(before: dict[str, list[object]]) -> dict[str, list[object]]:
    """Return the signatures that kernels have more than before."""
    return {
        name: signatures[len(before[name]) :]
        for name, signatures in _signatures().items()
        if len(signatures) > len(before[name])
    }


def _use(directory: Path, rng: np.random.Generator) -> None:
    """Do everything a service does, with arrays such as files and sockets give: not writable."""
    dense = rng.standard_normal((ROWS, 40)).astype(np.float32)
    dense.setflags(write=False)
    indptr = np.arange(0, (ROWS + 1) * 5, 5)
    indices = np.concatenate([rng.permutation(90)[:5] for _ in range(ROWS)])
    values = rng.standard_normal(len(indices)).astype(np.float32)
    for array in (indptr, indices, values):
        array.setflags(write=False)
    for turn in range(2):
        catalog = Catalog.open(directory, threads=2)
        catalog.load()
        for name, dim in (("dense", 40), ("sparse", None), ("wide", 9000)):
            for number, kind in enumerate(KINDS):
                config = CollectionConfig(dim=dim, backend=kind)
                stored, _ = catalog.create(f"{name}-{number}", config)
                if dim == 40:
                    raw = stored.space.from_dense(dense)
                else:
                    raw = stored.space.from_sparse(indptr, indices, values)
                _exercise(stored, raw[:200] if turn else raw, turn)
        catalog.close()


def _exercise(stored: StoredCollection, raw: RawBatch, turn: int) -> None:
    ids = [str(i) for i in range(turn * 100, turn * 100 + len(raw))]
    stored.put(ItemBatch(ids, raw, [b'{"a":1}'] * len(raw)))
    stored.finish_background_work()
    stored.put(ItemBatch(["one"], raw[:1], [None]))
    stored.delete(ids[:5])
    where = parse_filter({"must": [{"key": "a", "match": {"value": 1}}]})
    for recall in (0.5, 1.0):
        for count in (1, 3):
            for min_score in (0.0, 0.3):
                params = SearchParams(limit=5, recall=recall, min_score=min_score)
                stored.search(raw[:count], params)
                stored.search(raw[:count], params, where=where)
        stored.search_around(["one"], SearchParams(limit=5, recall=recall))[0]
        stored.pairs(min_score=0.9, recall=recall, limit=5)
    profile(stored.memory)
    map_items(stored.memory, MapParams(), also=["one", SparseVector([0, 1], [1.0, 2.0])])
    if stored.config.backend.kind == "gcws":
        stored.sketch(raw[:2], "full")
        stored.sketch(raw[:2], "b_bit")
        lists = stored.describe().backends[0].stats["graph"]
        dense = stored.config.form == "dense"  # scans of so few sparse rows are quick enough
        assert (lists is not None) == (dense and stored.config.backend.band_width is None)
    stored.page(limit=3, cursor=None, with_vector=True)


def test_nothing_a_service_does_compiles_more(tmp_path: Path, rng: np.random.Generator) -> None:
    compile_kernels()
    before = _signatures()
    _use(tmp_path, rng)
    similarity([1.0, -2.0], SparseVector([0, 1], [1.0, 2.0]))
    assert _more(before) == {}


def _compiled_by_basic_use(directory: Path) -> dict[str, list[object]]:
    """Store, search exactly, show and delete in a process that ran the basic exercises alone."""
    for exercise in chain.from_iterable(chains()):
        if exercise.basic_for is not None:
            exercise.run()
    before = _signatures()
    catalog = Catalog.open(directory, threads=2)
    catalog.pause_optimizing()
    catalog.load()
    rng = np.random.default_rng(0)
    some = [SparseVector(rng.permutation(90)[:5], rng.standard_normal(5)) for _ in range(ROWS)]
    for dim in (90, None):
        stored, _ = catalog.create(f"dim-{dim}", CollectionConfig(dim=dim))
        raw = stored.space.from_items(some)
        payloads = [b'{"a":1}', None] * (ROWS // 2)
        stored.put(ItemBatch([str(row) for row in range(ROWS)], raw, payloads))
        stored.put(ItemBatch(["one"], raw[:1], [None]))
        stored.delete(["3"])
        where = parse_filter({"must": [{"key": "a", "match": {"value": 1}}]})
        for count in (1, 40):
            for min_score in (0.0, 0.3):
                params = SearchParams(limit=5, recall=1.0, min_score=min_score)
                stored.search(raw[:count], params)
                stored.search(raw[:count], params, where=where)
        stored.page(limit=3, cursor=None, with_vector=True)
        stored.finish_background_work()
        assert stored.describe().backends[0].stats["graph"] is None
    compiled = _more(before)
    dense = catalog.get("dim-90")
    assert dense.memory.view.vectors.copies is None  # to make them would compile
    catalog.resume_optimizing()
    assert dense.memory.view.vectors.copies is not None
    dense.finish_background_work()
    assert dense.describe().backends[0].stats["graph"] is not None
    catalog.close()
    return compiled


def test_exact_searches_compile_nothing_more_than_the_basic_exercises(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        assert processes.submit(_compiled_by_basic_use, tmp_path).result() == {}
