"""What one name may be after operations that met on it, worked out from how each ended.

An operation is one or more steps, each done at one moment. All orders of all steps are tried that
keep each thread's own, and the states to which an order leads that explains every answer are
possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

Items = frozenset[tuple[str, float]]
"""Ids and what tells their items apart."""

EXCLUDING: Final = ("create", "drop", "restore", "snapshot")
"""Operations that reserve the collection's name."""
WRITING: Final = ("snapshot", "upload")
"""Operations that reserve a snapshot's name."""


@dataclass(frozen=True)
class Contents:
    """A collection, or a snapshot of it."""

    items: Items = frozenset()
    attached: frozenset[str] = frozenset()

    def put(self, put: Items) -> Contents:
        return replace(self, items=put | self.without([item_id for item_id, _ in put]).items)

    def without(self, ids: Sequence[str]) -> Contents:
        gone = set(ids)
        return replace(self, items=frozenset(each for each in self.items if each[0] not in gone))


@dataclass(frozen=True)
class State:
    """All there is of one name: the collection, None where there is none, and its snapshots."""

    collection: Contents | None = None
    snapshots: frozenset[tuple[str, Contents]] = frozenset()

    def snapshot(self, name: str) -> Contents | None:
        return dict(self.snapshots).get(name)

    def has_attached(self, name: str) -> bool:
        return self.collection is not None and name in self.collection.attached


@dataclass(frozen=True)
class Operation:
    """Something that is done.

    ``name``: of a snapshot or a backend. ``puts``: each put by itself. ``contents``: of the file
    that is sent. ``replace``: of a restore.
    """

    kind: str
    name: str = ""
    puts: tuple[Items, ...] = ()
    contents: Contents | None = None
    replace: bool = False


@dataclass(frozen=True)
class Done:
    """An operation, and how it ended.

    ``outcome``: "done", "there" for what was made already, or the name of an error. ``puts``: how
    many have been acknowledged. ``seen``: what a reader has seen.
    """

    operation: Operation
    outcome: str
    puts: int = 0
    seen: Any = None


Step = Callable[[State, Any], list[tuple[State, Any]]]
"""Takes a state and what the step before has carried; returns what both may be afterwards."""


def possible(before: State, threads: Sequence[Sequence[Done]]) -> set[State]:
    """Return the states that threads may have left which began together."""
    plans = [list(_planned(threads, number)) for number in range(len(threads))]
    ends = tuple(len(plan) for plan in plans)
    start = (0,) * len(plans)
    todo = [(start, before, (None,) * len(plans))]
    seen = set(todo)
    found: set[State] = set()
    while todo:
        at, state, carried = todo.pop()
        if at == ends:
            found.add(state)
            continue
        for number, plan in enumerate(plans):
            if at[number] == ends[number]:
                continue
            for after, more in plan[at[number]](state, carried[number]):
                follows = (
                    (*at[:number], at[number] + 1, *at[number + 1 :]),
                    after,
                    (*carried[:number], more, *carried[number + 1 :]),
                )
                if follows not in seen:
                    seen.add(follows)
                    todo.append(follows)
    return found


def _planned(threads: Sequence[Sequence[Done]], number: int) -> Iterator[Step]:
    others = [
        done.operation for other, thread in enumerate(threads) if other != number for done in thread
    ]
    is_closed = any(done.operation.kind == "close" for thread in threads for done in thread)
    for done in threads[number]:
        if is_closed and done.outcome == "CollectionNotFound":
            yield from _puts(done)
        else:
            yield from _steps(done, others)


def _may_be_busy(operation: Operation, others: Sequence[Operation]) -> bool:
    names = operation.kind in EXCLUDING and any(
        other.kind in EXCLUDING and (operation.kind, other.kind) != ("snapshot", "snapshot")
        for other in others
    )
    snapshots = operation.kind in WRITING and any(
        other.kind in WRITING and other.name == operation.name for other in others
    )
    return names or snapshots


def _where(holds: Callable[[State], bool]) -> Step:
    """Return a step that changes nothing, at a moment at which something holds."""
    return lambda state, _: [(state, None)] if holds(state) else []


def _changing(change: Callable[[Contents], Contents | None]) -> Step:
    """Return a step that changes the collection, which is there; None where it cannot be."""

    def step(state: State, _carried: Any) -> list[tuple[State, Any]]:  # noqa: ANN401
        after = None if state.collection is None else change(state.collection)
        return [] if after is None else [(replace(state, collection=after), None)]

    return step


def _puts(done: Done) -> Iterator[Step]:
    """Yield the steps of those puts of an operation that were acknowledged."""
    for put in done.operation.puts[: done.puts]:
        yield _changing(partial(Contents.put, put=put))


def _is_missing(state: State) -> bool:
    return state.collection is None


def _replaced(may: Callable[[State], bool], collection: Contents | None) -> Step:
    """Return a step that puts another in the place of the collection where it may."""
    return lambda state, _: [(replace(state, collection=collection), None)] if may(state) else []


def _with_snapshot(state: State, name: str, contents: Contents) -> list[tuple[State, Any]]:
    if state.snapshot(name) is not None:
        return []
    return [(replace(state, snapshots=state.snapshots | {(name, contents)}), None)]


_MISSED: Final = {
    "drop", "snapshot", "put", "load", "delete", "attach", "detach", "query", "settle",
}  # fmt: skip
"""What may find that there is no collection."""


def _steps(done: Done, others: Sequence[Operation]) -> Iterator[Step]:  # noqa: PLR0912, PLR0915
    """Yield the steps of an operation that ended like this, while others were under way."""
    operation, name = done.operation, done.operation.name
    kinds = {other.kind for other in others}
    meeting = {other.kind for other in others if other.name == name}

    def attach(contents: Contents) -> Contents | None:
        is_new = name not in contents.attached
        return replace(contents, attached=contents.attached | {name}) if is_new else None

    def detach(contents: Contents) -> Contents | None:
        if name in contents.attached:
            return replace(contents, attached=contents.attached - {name})
        return contents if "attach" in meeting else None

    match operation.kind, done.outcome:
        case _, "CollectionBusy":
            yield _where(lambda _: _may_be_busy(operation, others))
        case kind, "CollectionLoading":
            yield from _puts(done)
            may_be = "restore" in kinds and kind not in ("drop", "snapshot", "restore")
            yield _where(lambda _: may_be)
        case "create", "done":
            yield _replaced(_is_missing, Contents())
        case "drop", "done":
            yield _replaced(lambda state: not _is_missing(state), None)
        case "restore", "done":  # opened at one moment; the collection is replaced at another
            yield lambda state, _: [(state, found)] if (found := state.snapshot(name)) else []
            yield lambda state, carried: _replaced(
                lambda now: operation.replace or _is_missing(now), carried
            )(state, None)
        case "snapshot", "done":  # copied at one moment; the copy gets its name at another
            yield lambda state, _: [] if state.collection is None else [(state, state.collection)]
            yield lambda state, carried: _with_snapshot(state, name, carried)
        case "upload", "done":
            sent = operation.contents or Contents()
            yield lambda state, _: _with_snapshot(state, name, sent)
        case "remove", "done":
            yield (
                lambda state, _: (
                    [(replace(state, snapshots=state.snapshots - {(name, found)}), None)]
                    if (found := state.snapshot(name))
                    else []
                )
            )
        case "put" | "load", "done":
            yield from _puts(done)
        case "delete", "done":
            ids = [item_id for put in operation.puts for item_id, _ in put]
            yield _changing(lambda contents: contents.without(ids))
        case "attach", "done":
            yield _changing(attach)
        case "detach", "done":
            yield _changing(detach)
        case "query", "done":
            yield _changing(lambda contents: contents if contents.items == done.seen else None)
        case "close" | "settle", "done":
            pass
        case "create", "there":
            yield _where(lambda state: not _is_missing(state))
        case "restore", "CollectionExists":
            yield _where(lambda state: not (_is_missing(state) or operation.replace))
        case "restore" | "remove", "SnapshotNotFound":
            yield _where(lambda state: state.snapshot(name) is None)
        case "snapshot" | "upload", "SnapshotExists":
            yield _where(lambda state: state.snapshot(name) is not None)
        case "attach", "BackendExists":
            yield _where(lambda state: "attach" in meeting or state.has_attached(name))
        case "attach", "BackendNotFound":  # it never came, or came and was dropped before
            yield (
                lambda state, carried: (
                    [(state, None), *_changing(attach)(state, carried)]
                    if "detach" in meeting
                    else []
                )
            )
        case "detach", "BackendNotFound":
            yield _where(lambda state: not (_is_missing(state) or state.has_attached(name)))
        case kind, "CollectionNotFound" if kind in _MISSED:
            yield from _puts(done)
            yield _where(_is_missing)
        case _:
            yield _where(lambda _: False)
