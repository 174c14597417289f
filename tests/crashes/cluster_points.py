"""Named points at which a replica or a router of a trial ends itself by SIGKILL.

Nothing of this is in the program. Its functions are wrapped as its modules are imported, in every
process that has `VARIABLE`: a folder. A file there says at which point a process is to end, and at
which time that it is there. The first process that gets so far takes the file, and ends.

Every process of Ray imports this module, so it imports nothing that takes long.
"""

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, TypeAlias

from tests.crashes.wrapping import Reached, Watched, after, before

VARIABLE: Final = "TRIAL_POINTS"
COPIED_ROWS: Final = 12
"""Writes of as many rows are copied; of fewer, inserted."""
CHUNK_ROWS: Final = 8
"""Rows that a replica commits at once."""

_ARMED: Final = "armed"
_FOLLOWER: Final = "gcws_search.service.cluster.follower"
_COMMITTER: Final = "gcws_search.service.cluster.committer"
_COLLECTION: Final = "gcws_search.index.collection.stored_collection"
_HOST: Final = "gcws_search.service.cluster.host"
_REPLICAS: Final = "gcws_search.service.cluster.shards"

Part: TypeAlias = Literal["replica", "router"]
Needs: TypeAlias = Literal["clients", "pause", "fill", "database"]
Wrap: TypeAlias = Callable[[Any, str, Watched | None], Callable[[Reached], None]]


@dataclass(frozen=True, slots=True)
class Point:
    """Where a process may end.

    ``part``: whose process it is. ``function``: the module and the name of what is wrapped.
    ``wrap``: before or after it. ``watched``: which calls are meant. ``needs``: what gets a process
    there: clients alone, a replica that several writes wait for, one that is filled, a database
    that is lost. ``max_times``: how often a process is there at least.
    """

    part: Part
    function: tuple[str, str]
    wrap: Wrap
    watched: Watched | None = None
    needs: Needs = "clients"
    max_times: int = 3


POINTS: Final[dict[str, Point]] = {
    "changes read, none applied": Point("replica", (_FOLLOWER, "Follower._apply"), before),
    "rows stored, not committed": Point(
        "router",
        (_COMMITTER, "Committer._store_rows"),
        after,
        lambda _committer, _connection, plan: len(plan.rows) >= COPIED_ROWS,
    ),
    "deleted ids applied, rows not": Point(
        "replica",
        (_COLLECTION, "StoredCollection.delete"),
        after,
        lambda _collection, _ids, load=None: load is None,
        needs="pause",
        max_times=1,
    ),
    "committed, not known": Point("router", (_COMMITTER, "Committer._store_and_commit"), after),
    "rows sketched, not committed": Point(
        "replica", (_COLLECTION, "StoredCollection.commit"), before
    ),
    "locked, nothing stored": Point("router", (_COMMITTER, "Committer._plan"), after),
    "rows and position in the file, not in memory": Point(
        "replica", ("gcws_search.index.storage.store", "Store.write"), after
    ),
    "committed, the shards not told": Point("router", (_REPLICAS, "ShardSet.follow"), before),
    "some of the changes applied": Point(
        "replica",
        (_FOLLOWER, "Follower._put"),
        after,
        lambda _follower, _collection, _rows, at: at.position.key > at.whole >= 0,
    ),
    "the commit about to be sent": Point("router", (_COMMITTER, "Committer._store_others"), after),
    "in the middle of a fill": Point(
        "replica",
        (_FOLLOWER, "Follower._put"),
        after,
        lambda _follower, _collection, _rows, at: at.whole < 0,
        needs="fill",
    ),
    "the shards told, not answered": Point("router", (_REPLICAS, "ShardSet.follow"), after),
    "a file made, nothing in it": Point(
        "replica",
        ("gcws_search.index.collection.catalog", "Catalog.create"),
        after,
        needs="fill",
        max_times=1,
    ),
    "in doubt, not asked": Point(
        "router", (_COMMITTER, "Committer._require_stored"), before, needs="database", max_times=1
    ),
    "all applied, nobody told": Point("replica", (_FOLLOWER, "Follower._reach"), before),
    "a write answered": Point(
        "router",
        ("gcws_search.service.http", "JsonResponse.__call__"),
        after,
        lambda _response, scope, _receive, _send: scope["method"] == "PUT",
    ),
    "found, not answered": Point("replica", (_HOST, "ShardHost.answer_message"), after),
    "merged, not answered": Point(
        "router", ("gcws_search.service.cluster.collection", "ClusterCollection._limit"), after
    ),
    "filled, about to be listed": Point(
        "replica",
        (_HOST, "ShardHost._announce"),
        before,
        lambda host: not host.is_listed and host.positions and host.is_ready,
        needs="fill",
        max_times=1,
    ),
}
"""In the order in which they are taken, replicas and routers by turns."""


# In the processes of a trial


def watch_imports() -> None:
    """Have functions wrapped as their modules are imported, where `VARIABLE` says so."""
    folder = os.environ.get(VARIABLE)
    if folder is not None:
        sys.meta_path.insert(0, _Finder(Path(folder)))


class _Finder(MetaPathFinder):
    """Finds the modules of points as others do, and changes them once they are imported."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules = {point.function[0] for point in POINTS.values()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how a module is imported; None for one that has no points."""
        if fullname not in self._modules:
            return None
        others = [each for each in sys.meta_path if each is not self]
        found = (each.find_spec(fullname, path, target) for each in others)
        spec = next((each for each in found if each is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_install(module: ModuleType) -> None:
            execute(module)
            self._install(module)

        spec.loader.exec_module = execute_and_install  # type: ignore[method-assign]
        return spec

    def _install(self, module: Any) -> None:  # noqa: ANN401
        # Before others import it: few items are to take several steps.
        if module.__name__ == _COMMITTER:
            module._COPY_ROWS = COPIED_ROWS
        if module.__name__ == _FOLLOWER:
            module.HostOptions = partial(module.HostOptions, chunk_rows=CHUNK_ROWS)
        for name, point in POINTS.items():
            owner, _, function = point.function[1].partition(".")
            if point.function[0] == module.__name__:
                install = point.wrap(getattr(module, owner), function, point.watched)
                install(_ending(self._folder, name))


def _ending(folder: Path, point: str) -> Reached:
    """Return what ends the process when it is called at a point as often as the file says."""
    changing, reached = threading.Lock(), Counter[str]()

    def end_in_time() -> None:
        armed = folder / _ARMED
        with suppress(FileNotFoundError):
            number, times, name = armed.read_text().split(" ", 2)
            if name != point:
                return
            with changing:
                reached[number] += 1
                is_time = reached[number] >= int(times)
            if is_time:
                armed.rename(folder / f"{number} {os.getpid()}")
                os.kill(os.getpid(), signal.SIGKILL)

    return end_in_time


# In the trial


class Trap:
    """Has processes end at points.

    ``folder``: of the files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)
        self._number = 0
        folder.mkdir()

    @property
    def variables(self) -> dict[str, str]:
        """What processes need that are to end at points."""
        tests = Path(__file__).parents[1]
        path = os.pathsep.join(map(str, (tests / "crashes" / "path", tests.parent)))
        return {VARIABLE: str(self._folder), "PYTHONPATH": path}

    def arm(self, point: str, times: int) -> None:
        """Have the first process end that is at a point for so many times."""
        self._number = next(self._numbers)
        order = self._folder / "order"
        order.write_text(f"{self._number} {times} {point}")
        order.rename(self._folder / _ARMED)

    def victim(self) -> int | None:
        """Return the process that has ended; None while none has."""
        for taken in self._folder.glob(f"{self._number} *"):
            return int(taken.name.partition(" ")[2])
        return None

    def disarm(self) -> None:
        """Have no process end from now on."""
        (self._folder / _ARMED).unlink(missing_ok=True)
