"""Arrays made in compiled code outlive their addresses: numba frees them after their last use."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit

from gcws_search import index
from gcws_search.index.kernels.lanes.vector import uncounted

KERNELS = sorted((Path(index.__file__).parent / "kernels").rglob("*.py"))
_LOOPS = (ast.For, ast.While)
TAKERS = ("pointer", "uncounted")
"""Functions of `lanes.vector` that return addresses, or arrays that own nothing."""


def used_too_long(source: str) -> list[str]:
    """Return the arrays of each function that are used by address after they are freed."""
    functions = [f for f in ast.walk(ast.parse(source)) if isinstance(f, ast.FunctionDef)]
    return [f"{f.name}: {name}" for f in functions for name in _used_too_long(f)]


def _used_too_long(function: ast.FunctionDef) -> Iterator[str]:
    statements = list(_statements(function.body, ()))
    made = {
        target.id: loops
        for statement, loops in statements
        if isinstance(statement, ast.Assign) and _calls_numpy(statement.value)
        for target in _targets(statement)
    }
    for node in ast.walk(function):
        if any(_is_call(node, taker) for taker in TAKERS) and _calls_numpy(node.args[0]):  # type: ignore[attr-defined]
            yield "an array without a name"
    for name, around in made.items():
        holders = {name}  # names of its address, and of what holds its address
        by_name = by_address = 0.0
        for statement, loops in statements:
            inner = [loop for loop in loops if loop not in around]
            end = float((inner[0] if inner else statement).end_lineno or 0)
            used = {node.id for node in _own(statement) if isinstance(node, ast.Name)}
            takes = any(_takes(node, name) for node in _own(statement))
            held = takes or bool(used & (holders - {name}))
            if held and isinstance(statement, ast.Assign) and _holds(statement.value):
                holders |= {target.id for target in _targets(statement)}
            elif held:
                by_address = max(by_address, end)
            if name in used:
                by_name = max(by_name, end if inner or not takes else statement.lineno - 0.5)
        if by_address > by_name:
            yield name


def _statements(
    body: list[ast.stmt], loops: tuple[ast.stmt, ...]
) -> Iterator[tuple[ast.stmt, tuple[ast.stmt, ...]]]:
    """Yield statements, and the loops that each is in."""
    for statement in body:
        around = (*loops, statement) if isinstance(statement, _LOOPS) else loops
        yield statement, around
        for part in ("body", "orelse"):
            yield from _statements(getattr(statement, part, []), around)


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, without those of statements in it."""
    for part in ast.iter_child_nodes(statement):
        if not isinstance(part, ast.stmt):
            yield from ast.walk(part)


def _targets(statement: ast.Assign) -> list[ast.Name]:
    return [
        node
        for target in statement.targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]


def _takes(node: ast.AST, name: str) -> bool:
    """Return whether a call gives the address of an array."""
    if _is_call(node, "pointer"):
        return ast.unparse(node.args[0]) == name  # type: ignore[attr-defined]
    if not _is_call(node, "uncounted"):
        return False
    inner = ast.walk(node.args[0])  # type: ignore[attr-defined]
    return any(isinstance(each, ast.Name) and each.id == name for each in inner)


def _is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _calls_numpy(value: ast.AST) -> bool:
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return any(isinstance(p, ast.Call) and ast.unparse(p.func).startswith("np.") for p in parts)


def _holds(value: ast.AST) -> bool:
    """Return whether a value may be, or hold, an address that is in it."""
    if isinstance(value, ast.Tuple):
        return any(_holds(part) for part in value.elts)
    if isinstance(value, ast.Call):
        called = ast.unparse(value.func).lstrip("_")
        return called in (*TAKERS, "offset") or called[:1].isupper()
    return isinstance(value, ast.Name)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda path: path.stem)
def test_arrays_outlive_their_addresses(kernel: Path) -> None:
    assert used_too_long(kernel.read_text()) == []


@pytest.mark.parametrize(
    "last", ["a[0] = 1", "keep(a)", "for i in range(2):\n        f(p)\n        g(a)"]
)
@pytest.mark.parametrize("taken", ["pointer(a)", "uncounted(Rows(a, b))"])
def test_an_array_that_is_used_last_by_name_is_none(taken: str, last: str) -> None:
    source = f"def k():\n    a = np.empty(1)\n    p = {taken}\n    f(p)\n    {last}"
    assert used_too_long(source) == []


@pytest.mark.parametrize(
    ("told", "body"),
    [
        ("a", "f(pointer(a))"),
        ("a", "p = offset(pointer(a), 1)\n    f(p)"),
        ("a", "p = Rows(pointer(a))\n    a[0] = 1\n    f(p)"),
        ("a", "p, q = pointer(a), b\n    f(p)"),
        ("a", "p = pointer(a)\n    q = p\n    for i in range(2):\n        a[0] = 1\n    f(q)"),
        ("a", "return pointer(a)"),
        ("a", "p = uncounted(Rows(a, b))\n    f(p)"),
        ("an array without a name", "p = pointer(np.empty(1))\n    f(p)"),
    ],
)
def test_an_array_that_is_used_last_by_address_is_told(told: str, body: str) -> None:
    assert used_too_long(f"def k():\n    a = np.empty(1)\n    {body}") == [f"k: {told}"]


class Pair(NamedTuple):
    """An array and a number."""

    array: Any
    factor: Any


@njit
def _scaled_sum(pair: Any) -> float:  # noqa: ANN401  # of plain tuples
    own = Pair(*uncounted(pair))
    total = 0.0
    for number in uncounted(own.array):
        total += own.factor * number
    own.array[0] = total
    return total


def test_an_array_without_a_count_is_the_array() -> None:
    array = np.arange(5.0)
    count = sys.getrefcount(array)
    assert _scaled_sum((array, 2)) == 20.0
    assert array[0] == 20.0
    assert sys.getrefcount(array) == count
