"""What takes thousands of rows in earnest, done from a few rows on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from gcws_search.index import compile_kernels
from gcws_search.index.backends import gcws
from gcws_search.index.collection import memory_collection
from gcws_search.index.persistence import checkpoints, reclaim
from gcws_search.service.execution import startup
from tests.support.index.known_rows import make_scans_dear

FEW_ROWS = 64


def set_graph_policy(patch: pytest.MonkeyPatch, **changes: Any) -> None:  # noqa: ANN401
    """Let backends that are made from here on build graphs by another policy."""
    patch.setattr(gcws, "GRAPH_POLICY", replace(gcws.GRAPH_POLICY, **changes))


@contextmanager
def few_rows() -> Iterator[None]:
    """Let dead rows be forgotten, lists made, links written and tables asked by small collections.

    Files give nearly every free page back. Kernels are compiled here, once, and not by each
    application that starts.
    """
    seconds = compile_kernels()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(startup, "compile_kernels", lambda *_: seconds)
        patched.setattr(memory_collection, "COMPACTION_ROWS", FEW_ROWS)
        patched.setattr(checkpoints, "MIN_ROWS", FEW_ROWS)
        set_graph_policy(patched, min_rows=FEW_ROWS)
        patched.setattr(reclaim, "FREE_PAGES", 1)
        patched.setattr(reclaim, "FREE_SHARE", 1 << 20)
        make_scans_dear(patched)
        yield
