"""Files with bytes changed: refused by name, or read as they were; the others always serve."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

from gcws_search.index import (
    Catalog,
    CollectionConfig,
    DamagedFile,
    FourierParams,
    GcwsParams,
    IncompatibleFile,
    ItemBatch,
    SearchParams,
    SparseVector,
    StoredCollection,
    Transform,
)

ITEMS: Final = 60
DIM: Final = 6
CONFIGS: Final = {
    "kept": CollectionConfig(dim=DIM, backend=GcwsParams(bands=4)),
    "plain": CollectionConfig(dim=DIM, backend=GcwsParams(bands=4)),
    "scaled": CollectionConfig(
        dim=None, backend=GcwsParams(bands=4), transform=Transform(normalize="l1")
    ),
}
HIT: Final = ("plain", "scaled")

Answers = dict[str, Any]


def _vectors(stored: StoredCollection, name: str) -> Any:  # noqa: ANN401
    rows: list[Any] = []
    for number in range(ITEMS):
        values = [float((number * 7 + slot * slot) % 11 - 5) or 0.5 for slot in range(DIM)]
        rows.append(values if name != "scaled" else SparseVector([*range(DIM)], values))
    return stored.space.from_items(rows)


def made(folder: Path) -> None:
    """Make a folder of collections, closed well."""
    catalog = Catalog.open(folder, threads=1)
    catalog.load()
    for name, config in CONFIGS.items():
        stored, _ = catalog.create(name, config)
        ids = [f"{name}-{number}" for number in range(ITEMS)]
        payloads = [f'{{"n":{number}}}'.encode() for number in range(ITEMS)]
        stored.put(ItemBatch(ids, _vectors(stored, name), [*payloads]))
        stored.delete(ids[::9])
        stored.attach(FourierParams(kind="rff", features=8), "extra")
    catalog.close()


def answers(stored: StoredCollection) -> Answers:
    """Return all that a collection shows: items, vectors, payloads, hits by each method."""
    items = stored.page(limit=1000, with_vector=True).items
    queries = _vectors(stored, stored.name)
    shown: Answers = {
        "items": [(item.id, repr(item.vector), item.payload) for item in items],
        "one": repr(stored.get(items[0].id)),
    }
    for backend in (None, "extra"):
        found = stored.search(queries, SearchParams(limit=5), backend=backend)
        shown[str(backend)] = [(one.ids, one.scores, one.payloads) for one in found]
    return shown


@dataclass(frozen=True)
class Folder:
    """A folder that was closed well, and what its collections answer."""

    path: Path
    answers: dict[str, Answers]

    @classmethod
    def made(cls, path: Path) -> "Folder":
        made(path)
        catalog = Catalog.open(path, threads=1)
        catalog.load()
        found = {name: answers(catalog.get(name)) for name in CONFIGS}
        catalog.close()
        return cls(path, found)


CHANGES: Final = st.lists(
    st.tuples(
        st.sampled_from(["flip", "write", "zero", "cut", "copy", "insert"]),
        st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True),
        st.binary(min_size=1, max_size=64),
    ),
    min_size=1, max_size=3,
)  # fmt: skip
TRIALS: Final = st.tuples(st.sampled_from(HIT), CHANGES)


def changed(data: bytes, changes: list[tuple[str, float, float, bytes]]) -> bytes:
    """Return the bytes of a file with some of them changed."""
    out = bytearray(data)
    for how, where, other, new in changes:
        at = int(where * len(out))
        match how:
            case "flip" if out:
                out[at] ^= 1 << (new[0] % 8)
            case "write":
                out[at : at + len(new)] = new[: len(out) - at]
            case "zero":
                out[at : at + 512] = bytes(len(out[at : at + 512]))
            case "cut":
                del out[at:]
            case "copy":
                source = out[int(other * len(out)) :][: len(new) * 64]
                out[at : at + len(source)] = source[: len(out) - at]
            case "insert":
                out[at:at] = new
    return bytes(out)


def try_file(folder: Folder, work: Path, trial: Any) -> None:  # noqa: ANN401
    """Open a folder one of whose files has been changed."""
    name, changes = trial
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(folder.path, work)
    file = work / f"{name}.sqlite"
    file.write_bytes(changed(file.read_bytes(), changes))
    catalog = Catalog.open(work, threads=1)
    try:
        catalog.load()
        for other in CONFIGS:
            try:
                shown = answers(catalog.get(other))
            except (DamagedFile, IncompatibleFile):
                assert other == name
                continue
            assert shown == folder.answers[other], other
    finally:
        catalog.close()
