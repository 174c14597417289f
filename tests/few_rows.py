"""What takes thousands of rows in earnest, done from a few rows on."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from index import checkpoints, collection, compile_kernels, growth, tidying
from service import startup
from tests.known_rows import make_scans_dear

FEW_ROWS = 64


@contextmanager
def few_rows() -> Iterator[None]:
    """Let dead rows be forgotten, lists made, links written and tables asked by small collections.

    Files give nearly every free page back. Kernels are compiled here, once, and not by each
    application that starts.
    """
    seconds = compile_kernels()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(startup, "compile_kernels", lambda *_: seconds)
        patched.setattr(collection, "COMPACTION_ROWS", FEW_ROWS)
        patched.setattr(checkpoints, "LEAST_ROWS", FEW_ROWS)
        patched.setattr(growth, "LEAST_ROWS", FEW_ROWS)
        patched.setattr(tidying, "FREE_PAGES", 1)
        patched.setattr(tidying, "FREE_SHARE", 1 << 20)
        make_scans_dear(patched)
        yield
