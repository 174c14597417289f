"""What one name may be after operations that met on it, worked out from how each ended.

An operation is one or more steps, each done at one moment. All orders of all steps are tried that
keep each thread's own, and the states to which an order leads that explains every answer are
possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
        ids = {item_id for item_id, _ in put}
        return replace(self, items=put | {each for each in self.items if each[0] not in ids})

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
            yield from (_put(put) for put in done.operation.puts[: done.puts])
        else:
            yield from _steps(done, others)


def _steps(done: Done, others: Sequence[Operation]) -> Iterator[Step]:
    """Return the steps of an operation that ended like this, while others were under way."""
    operation, outcome = done.operation, done.outcome
    kinds = {other.kind for other in others}
    if outcome == "CollectionBusy":
        yield _only(_may_be_busy(operation, others))
    elif outcome == "CollectionLoading":
        yield from (_put(put) for put in operation.puts[: done.puts])
        yield _only("restore" in kinds and operation.kind not in ("drop", "snapshot", "restore"))
    else:
        yield from _STEPS[operation.kind](done, others)


def _may_be_busy(operation: Operation, others: Sequence[Operation]) -> bool:
    names = operation.kind in EXCLUDING and any(
        other.kind in EXCLUDING and (operation.kind, other.kind) != ("snapshot", "snapshot")
        for other in others
    )
    snapshots = operation.kind in WRITING and any(
        other.kind in WRITING and other.name == operation.name for other in others
    )
    return names or snapshots


def _only(permitted: bool) -> Step:
    """Return a step that changes nothing, and can only be where it is permitted."""
    return _where(lambda _: permitted)


def _where(holds: Callable[[State], bool]) -> Step:
    """Return a step that changes nothing, at a moment at which something holds."""
    return lambda state, _: [(state, None)] if holds(state) else []


def _changing(change: Callable[[Contents], Contents | None]) -> Step:
    """Return a step that changes the collection, which is there; None where it cannot be."""

    def step(state: State, _carried: Any) -> list[tuple[State, Any]]:  # noqa: ANN401
        if state.collection is None:
            return []
        after = change(state.collection)
        return [] if after is None else [(replace(state, collection=after), None)]

    return step


def _put(put: Items) -> Step:
    return _changing(lambda contents: contents.put(put))


def _is_missing(state: State) -> bool:
    return state.collection is None


def _create(done: Done, _others: Sequence[Operation]) -> Iterator[Step]:
    if done.outcome == "there":
        yield _where(lambda state: state.collection is not None)
    elif done.outcome == "done":
        yield (
            lambda state, _: (
                [(replace(state, collection=Contents()), None)] if _is_missing(state) else []
            )
        )
    else:
        yield _only(False)


def _drop(done: Done, _others: Sequence[Operation]) -> Iterator[Step]:
    if done.outcome == "done":
        yield (
            lambda state, _: [] if _is_missing(state) else [(replace(state, collection=None), None)]
        )
    else:
        yield _where(lambda state: done.outcome == "CollectionNotFound" and _is_missing(state))


def _restore(done: Done, _others: Sequence[Operation]) -> Iterator[Step]:
    """The snapshot is opened at one moment, and the collection is replaced at another."""
    operation = done.operation

    def opened(state: State, _carried: Any) -> list[tuple[State, Any]]:  # noqa: ANN401
        found = state.snapshot(operation.name)
        return [] if found is None else [(state, found)]

    def replaced(state: State, carried: Any) -> list[tuple[State, Any]]:  # noqa: ANN401
        may = operation.replace or _is_missing(state)
        return [(replace(state, collection=carried), None)] if may else []

    match done.outcome:
        case "done":
            yield from (opened, replaced)
        case "SnapshotNotFound":
            yield _where(lambda state: state.snapshot(operation.name) is None)
        case "CollectionExists":
            yield _where(lambda state: not (_is_missing(state) or operation.replace))
        case _:
            yield _only(False)


def _snapshot(done: Done, _others: Sequence[Operation]) -> Iterator[Step]:
    """The collection is copied at one moment, and the copy gets its name at another."""
    match done.outcome:
        case "done":
            yield lambda state, _: [] if state.collection is None else [(state, state.collection)]
            yield lambda state, carried: _with_snapshot(state, done.operation.name, carried)
        case "SnapshotExists":
            yield _where(lambda state: state.snapshot(done.operation.name) is not None)
        case "CollectionNotFound":
            yield _where(_is_missing)
        case _:
            yield _only(False)


def _with_snapshot(state: State, name: str, contents: Contents) -> list[tuple[State, Any]]:
    if state.snapshot(name) is not None:
        return []
    return [(replace(state, snapshots=state.snapshots | {(name, contents)}), None)]


def _upload(done: Done, _others: Sequence[Operation]) -> Iterator[Step]:
    operation, contents = done.operation, done.operation.contents
    if done.outcome == "done" and contents is not None:
        yield lambda state, _: _with_snapshot(state, operation.name, contents)
    else:
        yield _where(
            lambda state: (
                done.outcome == "SnapshotExists" and state.snapshot(operation.name) is not None
            )
        )


def _remove(done: Done, _others: Sequence[Operation]) -> Iterator[Step]:
    name = done.operation.name

    def removed(state: State, _carried: Any) -> list[tuple[State, Any]]:  # noqa: ANN401
        found = state.snapshot(name)
        if found is None:
            return []
        return [(replace(state, snapshots=state.snapshots - {(name, found)}), None)]

    if done.outcome == "done":
        yield removed
    else:
        yield _where(
            lambda state: done.outcome == "SnapshotNotFound" and state.snapshot(name) is None
        )


def _write(done: Done, _others: Sequence[Operation]) -> Iterator[Step]:
    yield from (_put(put) for put in done.operation.puts[: done.puts])
    if done.outcome != "done":
        yield _where(lambda state: done.outcome == "CollectionNotFound" and _is_missing(state))


def _delete(done: Done, _others: Sequence[Operation]) -> Iterator[Step]:
    if done.outcome == "done":
        ids = [item_id for put in done.operation.puts for item_id, _ in put]
        yield _changing(lambda contents: contents.without(ids))
    else:
        yield _where(lambda state: done.outcome == "CollectionNotFound" and _is_missing(state))


def _attach(done: Done, others: Sequence[Operation]) -> Iterator[Step]:
    name = done.operation.name
    meeting = {other.kind for other in others if other.name == name}

    def attached(contents: Contents) -> Contents | None:
        if name in contents.attached:
            return None
        return replace(contents, attached=contents.attached | {name})

    def dropped(state: State, carried: Any) -> list[tuple[State, Any]]:  # noqa: ANN401
        """It never came, or it came and was dropped before it could be told."""
        return [(state, None), *_changing(attached)(state, carried)] if "detach" in meeting else []

    match done.outcome:
        case "done":
            yield _changing(attached)
        case "BackendExists":
            yield _where(
                lambda state: (
                    "attach" in meeting
                    or (state.collection is not None and name in state.collection.attached)
                )
            )
        case "BackendNotFound":
            yield dropped
        case "CollectionNotFound":
            yield _where(_is_missing)
        case _:
            yield _only(False)


def _detach(done: Done, others: Sequence[Operation]) -> Iterator[Step]:
    name = done.operation.name
    is_coming = any(other.kind == "attach" and other.name == name for other in others)

    def detached(contents: Contents) -> Contents | None:
        if name in contents.attached:
            return replace(contents, attached=contents.attached - {name})
        return contents if is_coming else None

    match done.outcome:
        case "done":
            yield _changing(detached)
        case "BackendNotFound":
            yield _where(
                lambda state: state.collection is not None and name not in state.collection.attached
            )
        case "CollectionNotFound":
            yield _where(_is_missing)
        case _:
            yield _only(False)


def _query(done: Done, _others: Sequence[Operation]) -> Iterator[Step]:
    if done.outcome == "done":
        yield _where(
            lambda state: state.collection is not None and state.collection.items == done.seen
        )
    else:
        yield _where(lambda state: done.outcome == "CollectionNotFound" and _is_missing(state))


def _settle(done: Done, _others: Sequence[Operation]) -> Iterator[Step]:
    if done.outcome != "done":
        yield _where(lambda state: done.outcome == "CollectionNotFound" and _is_missing(state))


def _close(done: Done, _others: Sequence[Operation]) -> Iterator[Step]:
    yield _only(done.outcome == "done")


_STEPS: Final[dict[str, Callable[[Done, Sequence[Operation]], Iterator[Step]]]] = {
    "create": _create, "drop": _drop, "restore": _restore, "snapshot": _snapshot,
    "upload": _upload, "remove": _remove, "put": _write, "load": _write, "delete": _delete,
    "attach": _attach, "detach": _detach, "query": _query, "settle": _settle, "close": _close,
}  # fmt: skip
