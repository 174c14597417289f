"""What routes call of a collection, or of a catalog, can be called so over a cluster, too."""

import ast
import inspect
from collections.abc import Iterator

import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.catalog import ClusterCatalog
from gcws_search.service.cluster.collection import ClusterCollection
from tests.support.paths import REPOSITORY, sources

CALLED_AS = {
    ClusterCollection: (ix.StoredCollection, {"collection", "other", "_collection"}),
    ClusterCatalog: (ix.Catalog, {"catalog", "collections"}),
}
"""What stands in for what, and by which names the service has either."""
OF_ONE_NODE = {"searches.py", "startup.py"}
"""Modules that collections of this process alone come to."""


def owner_name(node: ast.expr) -> str:
    """Return the last name of what an attribute is read of."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def methods_of(here: type, owners: set[str]) -> Iterator[tuple[str, ast.Call | None]]:
    """Yield the methods that the service, its cluster aside, reads of some owners; their calls."""
    for path, tree in sources("service"):
        if "cluster" in path.relative_to(REPOSITORY).parts or path.name in OF_ONE_NODE:
            continue
        nodes = [*ast.walk(tree)]
        calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            if not isinstance(node, ast.Attribute) or owner_name(node.value) not in owners:
                continue
            if inspect.isfunction(getattr(here, node.attr, None)):
                yield node.attr, calls.get(id(node))


@pytest.mark.parametrize("there", CALLED_AS)
def test_a_cluster_answers_to_the_calls_of_routes(there: type) -> None:
    here, owners = CALLED_AS[there]
    found = [*methods_of(here, owners)]
    assert len({name for name, _ in found}) > 5
    for name, call in found:
        method = getattr(there, name)
        if call is None:
            continue
        words = {each.arg: None for each in call.keywords if each.arg is not None}
        plain = [each for each in call.args if not isinstance(each, ast.Starred)]
        if len(plain) == len(call.args):
            signature = inspect.signature(method)
            is_whole = len(words) == len(call.keywords)
            bind = signature.bind if is_whole else signature.bind_partial
            bind(None, *plain, **words)  # TypeError: cannot be called so
