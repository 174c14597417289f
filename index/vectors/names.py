"""Names of coordinates: ids of fingerprint bits, words, names of columns.

A space of fixed ``dim`` gets its names as a list. In an open slot space, a new name takes the next
free coordinate, above all coordinates with a name or used by items. The coordinate is reserved when
the vector is read, because its slot is hashed, and stored with the first item that has it. A name
that no item has any more becomes a reservation again, because vectors in progress may have its
coordinate. Many reservations are forgotten once no write in progress can have read them. If others
assign coordinates too, a freed name is requested again, and may get another coordinate; it is
remembered until the writes in progress that may have its former one have ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import numpy as np

from gcws_search.index.contracts.batches import RawBatch, VectorBatch
from gcws_search.index.contracts.errors import InvalidParameter, InvalidVector, quantity
from gcws_search.index.contracts.parameters import MAX_DIM

MAX_NAME_LENGTH: Final = 255
"""Characters."""
_BYTES_PER_NAME: Final = 2 * 104 + 49 + 28
"""Its entries in two dictionaries, a short string and a number."""


class NamedCoordinate(NamedTuple):
    """A coordinate and its name."""

    coordinate: int
    name: str


class CoordinateNames:
    """The names of one collection's coordinates; any thread.

    ``allocate`` assigns coordinates to new names, equal ones to equal names, if not only this
    object assigns them; it gets the coordinates that names had before they were freed. None: the
    next free ones are used. A ``dim`` of None is an open slot space.
    """

    def __init__(self, dim: int | None) -> None:
        self.allocate: (
            Callable[[Sequence[str], Mapping[str, int]], Iterable[NamedCoordinate]] | None
        ) = None
        self.freed = 0  # the last change by others that freed names, see `follow`
        # Freed names that vectors in progress may have; freed before and since `_begin_later`.
        self._freed_earlier, self._freed = dict[int, str](), dict[int, str]()
        self._dim = dim
        self._lock = threading.Lock()
        self._coordinates: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._unstored: dict[int, str] = {}  # the reservations
        self._idle: set[int] = set()  # reservations that were not read since `forget_idle`
        self._earlier, self._later = [0], [0]  # writes in progress, begun before and since then
        self.used: set[int] | None = None  # coordinates of items, while these are recorded
        self._free = 0  # all coordinates from here on are free

    @property
    def is_open(self) -> bool:
        """Whether new names get coordinates."""
        return self._dim is None

    def __len__(self) -> int:
        """Return the number of stored names."""
        return len(self._names) - len(self._unstored)

    @property
    def nbytes(self) -> int:
        """Approximate bytes of memory used."""
        return _BYTES_PER_NAME * len(self._names)

    def load(self, stored: Iterable[NamedCoordinate]) -> None:
        """Load the names of a file, replacing all others; ValueError if one is not valid."""
        coordinates: dict[str, int] = {}
        names: dict[int, str] = {}
        bound = MAX_DIM + 1 if self._dim is None else self._dim
        for coordinate, name in stored:
            if problem(name) is not None or not 0 <= coordinate < bound:
                raise ValueError(f"coordinate {coordinate} cannot have the name {name!r:.80}")
            coordinates[name] = coordinate
            names[coordinate] = name
        if len(coordinates) < len(names):
            raise ValueError("a name occurs twice")
        with self._lock:
            self._coordinates, self._names, self._unstored = coordinates, names, {}
            self._free = max(self._free, max(names, default=-1) + 1)

    def follow(self, stored: Sequence[NamedCoordinate], freed: int) -> None:
        """Load all stored names, including those of others, after a change that freed names.

        If the change is new here, other names are forgotten. Older states are ignored.
        """
        with self._lock:
            if freed < self.freed:
                return
            if freed > self.freed:
                if not self._earlier[0]:
                    self._freed_earlier, self._freed = self._freed, {}
                    self._begin_later()
                kept = {coordinate for coordinate, _ in stored}
                self._freed |= {c: name for c, name in self._names.items() if c not in kept}
                self._names = {c: name for c, name in self._names.items() if c in kept}
                self._coordinates = {name: c for c, name in self._names.items()}
                self._unstored = {}
                self.freed = freed
            for coordinate, name in stored:
                self._unstored.pop(coordinate, None)
                self._take(coordinate, name)

    def _take(self, coordinate: int, name: str) -> None:
        self._names[coordinate] = name
        self._coordinates[name] = coordinate
        self._freed.pop(coordinate, None)
        self._freed_earlier.pop(coordinate, None)
        self._free = max(self._free, coordinate + 1)

    # Reading vectors

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the reservations of vectors that are read and committed within.

        A leader of writes, which reads and commits under one lock, does not need it.
        """
        with self._lock:
            writes = self._later
            writes[0] += 1
        try:
            yield
        finally:
            with self._lock:
                writes[0] -= 1

    def reserve(self, names: Sequence[str]) -> list[int]:
        """Return the coordinates of item names; new names get the next free ones.

        Raises InvalidVector at ``(place,)``: an invalid name, an unknown one in a space of fixed
        dim, or no coordinate left.
        """
        known = self._coordinates
        if not self._idle:
            with suppress(KeyError):
                return [known[name] for name in names]
        new = [(place, name) for place, name in enumerate(names) if name not in known]
        for place, name in new:
            wrong = problem(name)
            if wrong is not None:
                raise InvalidVector(expected=_EXPECTED, got=wrong, loc=(place,))
            if self._dim is not None:
                raise self._unknown(name, place)
        if self.allocate is not None:
            return self._reserve_among_others(names, {}, self.allocate)
        with self._lock:
            known = self._coordinates
            for place, name in enumerate(names):
                if name not in known:
                    if self._free > MAX_DIM:
                        raise InvalidVector(
                            expected="at most 2^31 coordinates", got="one more", loc=(place,)
                        )
                    self._unstored[self._free] = name
                    self._take(self._free, name)
            found = [known[name] for name in names]
            self._idle.difference_update(found)
            return found

    def _reserve_among_others(
        self,
        names: Sequence[str],
        former: Mapping[str, int],
        allocate: Callable[[Sequence[str], Mapping[str, int]], Iterable[NamedCoordinate]],
    ) -> list[int]:
        while True:
            with self._lock:
                known, freed = self._coordinates, self.freed
                new = [name for name in names if name not in known]
                if not new:
                    return [known[name] for name in names]
            try:
                allocated = allocate(new, former)
            except InvalidVector as error:
                raise error.at(names.index(new[int(error.loc[0])]), skip=1) from None
            with self._lock:
                if self.freed > freed:  # perhaps one of these
                    continue
                for coordinate, name in allocated:
                    if name not in self._coordinates:
                        self._unstored[coordinate] = name
                        self._take(coordinate, name)

    def renew(self, vectors: RawBatch) -> RawBatch:
        """Return vectors with the present coordinates of their names, if some were freed.

        A name keeps its coordinate unless others gave it a new one. Raises InvalidVector.
        """
        with self._lock:
            known = self._freed_earlier, self._freed
        if not any(known) or self.allocate is None:
            return vectors
        used = np.unique(vectors.indices)
        freed = {each: known[0].get(each) or known[1].get(each) for each in used.tolist()}
        former = {name: each for each, name in freed.items() if name is not None}
        if not former:
            return vectors
        now = self._reserve_among_others([*former], former, self.allocate)
        moved = [pair for pair in zip(former.values(), now, strict=True) if pair[0] != pair[1]]
        if not moved:
            return vectors
        to = used.copy()
        for before, after in moved:
            to[np.searchsorted(used, before)] = after
        indices = to[np.searchsorted(used, vectors.indices)]
        rows = np.repeat(np.arange(len(vectors)), np.diff(vectors.indptr))
        order = np.lexsort((indices, rows))
        indices = indices[order]
        if np.any((np.diff(indices) == 0) & (np.diff(rows) == 0)):
            raise InvalidVector(expected="distinct names", got="one twice", loc=(0,))
        return RawBatch(
            "sparse", indptr=vectors.indptr, indices=indices, values=vectors.values[order]
        )

    def _unknown(self, name: str, place: int) -> InvalidVector:
        if not self._names:
            return InvalidVector(
                expected="indices, for the collection has no names", got="names", loc=(place,)
            )
        return InvalidVector(
            expected=f"one of the collection's {len(self._names)} names",
            got=repr(name)[:80],
            loc=(place,),
        )

    def find(
        self, names: Sequence[str], *, beyond_dim: bool = False
    ) -> tuple[list[int], list[str]]:
        """Return the coordinates of a query's names, and the names that no coordinate has.

        Each unknown name gets its own coordinate, which no item uses: one of the last in an open
        slot space; in a fixed space one from ``dim`` on if ``beyond_dim``, else it is refused.
        Raises InvalidVector at ``(place,)``: an invalid name, a refused unknown one, a name in a
        fixed space without names, or no coordinate left.
        """
        known, unknown = self._coordinates, dict[str, int]()
        refuses = self._dim is not None and not (beyond_dim and self._names)
        found = []
        for place, name in enumerate(names):
            coordinate = known.get(name)
            if coordinate is None:
                wrong = problem(name)
                if wrong is not None:
                    raise InvalidVector(expected=_EXPECTED, got=wrong, loc=(place,))
                own = MAX_DIM - len(unknown) if self._dim is None else self._dim + len(unknown)
                coordinate = unknown.setdefault(name, own)
                if refuses or coordinate < self._free:
                    raise self._unknown(name, place)
            found.append(coordinate)
        return found, [*unknown]

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Return the names that no coordinate has."""
        return [name for name in names if name not in self._coordinates]

    # Writing: one thread at a time.

    def use(self, vectors: VectorBatch, planned: set[int]) -> list[NamedCoordinate]:
        """Record the coordinates used by new items of an open slot space; return those to store.

        ``planned`` are coordinates whose names are about to be stored; new ones are added.
        """
        slots = vectors.slots
        if not len(slots):
            return []
        # Slots ascend within a row.
        highest = int(slots[-1] if len(vectors) == 1 else slots.max()) >> 1
        if highest >= self._free:
            with self._lock:
                self._free = max(self._free, highest + 1)
        if not self._unstored and self.used is None:
            return []
        used = np.unique(slots >> np.uint32(1)).tolist()
        self.note_used(used)
        with self._lock:
            new = [each for each in used if each in self._unstored and each not in planned]
            named = [NamedCoordinate(each, self._names[each]) for each in new]
        planned.update(new)
        return named

    def mark_stored(self, names: Iterable[tuple[int, str]]) -> None:
        """Record that names are in the file."""
        with self._lock:
            for coordinate, _ in names:
                self._unstored.pop(coordinate, None)

    # Freeing: one thread at a time, with the writer's lock held while names are marked.

    def note_used(self, coordinates: Iterable[int]) -> None:
        """Record coordinates that items have, while this is requested."""
        if (used := self.used) is not None:
            with self._lock:
                used.update(coordinates)

    def unused(self, coordinates: Iterable[int]) -> list[int]:
        """Return the coordinates that no recorded item has."""
        used = self.used or set()
        return [each for each in coordinates if each not in used]

    def mark_unstored(self, coordinates: Iterable[int]) -> None:
        """Record that names are no longer in the file."""
        with self._lock:
            self._unstored |= {each: self._names[each] for each in coordinates}

    def forget_idle(self, kept: int) -> None:
        """Forget reservations if they outnumber the stored names, and ``kept``.

        Only those are forgotten that no write in progress can have read, and not all at once.
        """
        with self._lock:
            if self._earlier[0] or len(self._unstored) <= max(kept, len(self)):
                return
            gone = self._idle & self._unstored.keys()
            if gone:
                self._unstored = {c: n for c, n in self._unstored.items() if c not in gone}
                self._names = {c: n for c, n in self._names.items() if c not in gone}
                self._coordinates = {name: c for c, name in self._names.items()}
            self._idle = {*self._unstored}
            self._begin_later()

    def _begin_later(self) -> None:
        self._earlier, self._later = self._later, [0]

    # Showing

    def __iter__(self) -> Iterator[str]:
        """Return the names in order of arrival."""
        return iter([*self._coordinates])

    def listed(self) -> list[NamedCoordinate]:
        """Return all coordinates with names in the file."""
        return self.of([*self._names])

    def of(self, coordinates: Sequence[int]) -> list[NamedCoordinate]:
        """Return those of the coordinates that have names in the file."""
        names = self._names
        return [
            NamedCoordinate(each, names[each])
            for each in dict.fromkeys(coordinates)
            if each in names and each not in self._unstored
        ]


_EXPECTED: Final = f"names of 1 to {MAX_NAME_LENGTH} characters"


def problem(name: str) -> str | None:
    """Return why a name is invalid; None if it is valid."""
    if not 1 <= len(name) <= MAX_NAME_LENGTH:
        return f"one of {len(name)}"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "no Unicode text"
    return None


def check_names(names: Sequence[str], dim: int | None) -> list[NamedCoordinate]:
    """Return the names of the first coordinates of a space.

    Raises InvalidParameter if the space is open, there are more names than coordinates, or a name
    is invalid or repeated.
    """
    if dim is None:
        raise InvalidParameter(
            expected="a collection of fixed dim, for an open slot space takes names from its items",
            got="names",
            loc=("names",),
        )
    if len(names) > dim:
        raise InvalidParameter(
            expected=f"at most {quantity(dim, 'name')}", got=str(len(names)), loc=("names",)
        )
    seen: dict[str, int] = {}
    for place, name in enumerate(names):
        wrong = problem(name)
        if wrong is not None:
            raise InvalidParameter(expected=_EXPECTED, got=wrong, loc=("names", place))
        if seen.setdefault(name, place) != place:
            raise InvalidParameter(
                expected="different names", got=f"{name!r:.80} twice", loc=("names", place)
            )
    return [NamedCoordinate(*each) for each in enumerate(names)]
