"""What clients asked and were answered, and what may not have happened by that.

The database notes each item that is put, under its key: keys rise in the order of commits. So the
versions of an id have one order, and what a read saw is a place in it.
"""

import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

NONE: Final = 0
"""The version of an id that is not there."""
_NEVER: Final = float("inf")
_TOLD: Final = 20
"""Changes of an id that are told of a stale answer."""
_AROUND: Final = 5.0
"""Seconds around it of which requests are told."""


class Broken(AssertionError):  # a test fails by it
    """Something happened that must not."""

    def __str__(self) -> str:
        return " ".join(map(str, self.args))


@dataclass(slots=True)
class Write:
    """A request that puts some items, all of one version, or deletes them.

    ``router``: its process. ``version``: of this write alone; `NONE`: a delete. ``begun``,
    ``ended``: never ended: nobody knows whether it was made. ``is_refused``: it was answered that
    nothing was stored.
    """

    router: int
    ids: Sequence[str]
    version: int
    begun: float = field(default_factory=time.monotonic)
    ended: float = _NEVER
    is_refused: bool = False

    @property
    def is_acknowledged(self) -> bool:
        return self.ended < _NEVER and not self.is_refused


class Read(NamedTuple):
    """An answer with all items of some ids.

    ``versions``: of the ids that were found. ``is_strict``: whether it had to find what any router
    acknowledged, not this one alone.
    """

    router: int
    versions: Mapping[str, int]
    begun: float
    ended: float
    is_strict: bool


class Noted(NamedTuple):
    """What the database noted: an item put, or deleted where the version is `NONE`."""

    id: str
    key: int
    version: int


class History:
    """Requests of all clients; any thread adds to it.

    ``since``: the key of the last change before the first of them. ``answers``: how often each
    router answered in which way. ``refusals``: what was said by answers that refused a request.
    """

    def __init__(self) -> None:
        self.since = _NEVER
        self.writes: list[Write] = []
        self.reads: list[Read] = []
        self.answers: Counter[tuple[int, str]] = Counter()
        self.refusals: list[str] = []
        self._longest: dict[tuple[int, str], float] = {}
        self._changing = threading.Lock()

    def count(self, router: int, what: str, seconds: float) -> None:
        """Count an answer, which took some time."""
        with self._changing:
            self.answers[router, what] += 1
            longest = self._longest.get((router, what), 0.0)
            self._longest[router, what] = max(longest, seconds)

    @property
    def failures(self) -> set[tuple[int, str]]:
        """Which answers of each router were no success."""
        with self._changing:
            return {each for each in self.answers if not each[1].endswith("200")}

    def succeeded(self, router: int, what: str) -> int:
        """Return how often a router has answered a kind of request by success."""
        with self._changing:
            return self.answers[router, f"{what} 200"]

    def longest(self, router: int, what: str) -> float:
        """Return how many seconds the longest successful request of a kind has taken."""
        with self._changing:
            return self._longest.get((router, f"{what} 200"), 0.0)

    def check(self, noted: Iterable[Noted]) -> None:
        """Compare all requests with what the database noted."""
        orders: dict[str, list[Noted]] = defaultdict(list)
        for each in sorted(noted, key=lambda each: each.key):
            orders[each.id].append(each)
        self._check_stored(orders)
        for item_id, order in orders.items():
            writes = [each for each in self.writes if item_id in each.ids]
            _Order(item_id, order, writes).check(self.reads)
            deletes = [each for each in writes if each.version == NONE and not each.is_refused]
            if sum(each.version == NONE and each.key > self.since for each in order) > len(deletes):
                raise Broken("a refused delete is made", item_id, order, deletes)

    def _check_stored(self, orders: Mapping[str, Sequence[Noted]]) -> None:
        """A write is whole or not there: it is there if acknowledged, and not if refused."""
        there: dict[int, set[str]] = defaultdict(set)
        for item_id, order in orders.items():
            for each in order:
                there[each.version].add(item_id)
        for write in (each for each in self.writes if each.version != NONE):
            found = there.get(write.version, set())
            if write.is_acknowledged and found != {*write.ids}:
                raise Broken("an acknowledged write is lost", write, found)
            if write.is_refused and found:
                raise Broken("a refused write is stored", write, found)
            if found not in ({*write.ids}, set()):
                raise Broken("half of a write is stored", write, found)


class _Order:
    """The versions of one id in the order of commits, and who wrote them."""

    def __init__(self, item_id: str, order: Sequence[Noted], writes: Sequence[Write]) -> None:
        self._id = item_id
        self._order, self._all_writes = order, writes
        self._versions = [NONE, *(each.version for each in order)]
        self._deletes = [each for each in writes if each.version == NONE and each.is_acknowledged]
        places = {version: place for place, version in enumerate(self._versions) if version}
        self._writes = {places[each.version]: each for each in writes if each.version in places}
        self._acknowledged = sorted(
            (each.ended, place, each.router)
            for place, each in self._writes.items()
            if each.is_acknowledged
        )

    def check(self, reads: Iterable[Read]) -> None:
        """Look for writes out of order, and for reads of what was no more or not yet."""
        self._check_writes()
        before, reads = _Seen(), sorted(reads, key=lambda each: each.ended)
        for read in reads:
            least = self._acknowledged_before(read)
            if read.is_strict:
                least = max(least, before.until(read.begun))
            place = self._place(read.versions.get(self._id, NONE), least)
            if place is None:
                raise Broken("a stale answer", self._id, read, *self._tell(reads, read))
            writer = self._writes.get(place)
            if writer is not None and writer.begun > read.ended:
                raise Broken("an answer from the future", self._id, read, writer)
            if read.is_strict:
                before.add(read.ended, place)

    def _tell(self, reads: Sequence[Read], about: Read) -> Iterator[str]:
        """Yield the last changes of the id, then who wrote or read it around a read."""
        yield f"\nby key: {[(each.key, each.version) for each in self._order[-_TOLD:]]}"
        told: list[tuple[Read | Write, str, int | None]] = [
            (each, "refused" if each.is_refused else "wrote", each.version)
            for each in self._all_writes
        ]
        told += [
            (read, "strict" if read.is_strict else "session", read.versions.get(self._id))
            for read in reads
        ]
        for each, what, version in sorted(told, key=lambda line: line[0].ended):
            if each.begun < about.ended + _AROUND and each.ended > about.begun - _AROUND:
                times = f"{each.begun:.3f} to {each.ended:.3f}"
                yield f"\n{times}, router {each.router}: {what} {version}"

    def _check_writes(self) -> None:
        """A write that began after another one's acknowledgement comes after it."""
        acknowledged = _Seen()
        for ended, place, _ in self._acknowledged:
            acknowledged.add(ended, place)
        for place, write in self._writes.items():
            if acknowledged.until(write.begun) > place:
                raise Broken("an earlier write has won", self._id, write)
        gone = max(place for place, version in enumerate(self._versions) if version == NONE)
        for delete in self._deletes:
            if acknowledged.until(delete.begun) > gone:
                raise Broken("an acknowledged delete is lost", self._id, delete)

    def _acknowledged_before(self, read: Read) -> int:
        """Return the last place that a read had to find."""
        count = bisect_left(self._acknowledged, (read.begun, 0, 0))
        found = self._acknowledged[:count]
        return max(
            (place for _, place, router in found if read.is_strict or router == read.router),
            default=0,
        )

    def _place(self, version: int, least: int) -> int | None:
        """Return the first place of a version from another one on."""
        for place in range(least, len(self._versions)):
            if self._versions[place] == version:
                return place
        return None


class _Seen:
    """The last place that was seen until a time."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._places: list[int] = []

    def add(self, when: float, place: int) -> None:
        """Take note of a place, no earlier than those before."""
        self._times.append(when)
        self._places.append(max(place, self._places[-1]) if self._places else place)

    def until(self, when: float) -> int:
        count = bisect_left(self._times, when)
        return self._places[count - 1] if count else 0
