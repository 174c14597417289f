"""What tests take hold of: public names, and policies of their own; a test that digs is brittle."""

import ast
from collections.abc import Callable, Iterator

import pytest

from tests.support.paths import REPOSITORY, sources

POINTS = {REPOSITORY / "tests" / "crashes" / name for name in ("points.py", "cluster_points.py")}
"""Name the points of the program at which a process of a trial ends itself."""
OWN = {"self", "cls"}
OF_TUPLES = {"_replace", "_asdict", "_fields"}
"""Public in spite of their names, which cannot be those of a named tuple's fields."""


def is_private(name: str) -> bool:
    """Whether a name is of no concern to other modules."""
    return name.startswith("_") and not name.startswith("__") and name not in OF_TUPLES


def patched_names(tree: ast.Module) -> Iterator[str]:
    """Yield private names and constants that ``setattr(owner, name, …)`` and its kind replace.

    Numbers are handed down as policies; what is patched is a public step that is to fail.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in {"setattr", "delattr", "object", "patch", "paused_at"}:
            for argument in node.args[:2]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    name = argument.value.rpartition(".")[2]
                    if is_private(name) or name.isupper():
                        yield name


def private_attributes(tree: ast.Module) -> Iterator[str]:
    """Yield private attributes of other objects than a class's own, modules of Python left out."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = ast.unparse(node.value)
            if owner not in OWN and owner not in imported:
                yield ast.unparse(node)


def private_names(tree: ast.Module) -> Iterator[str]:
    """Yield private names that are imported from the product."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gcws_search"):
            yield from (alias.name for alias in node.names if is_private(alias.name))


@pytest.mark.parametrize("dug", [private_attributes, private_names, patched_names])
def test_tests_take_hold_of_public_names_alone(dug: Callable[[ast.Module], Iterator[str]]) -> None:
    trees = ((path, tree) for path, tree in sources("tests") if path not in POINTS)
    assert not {str(path): names for path, tree in trees if (names := [*dug(tree)])}
