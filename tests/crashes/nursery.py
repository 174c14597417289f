"""The test build of the server: the program itself, with small numbers and named points.

The process from which servers are forked imports this, and so compiles everything once; a server
is then up within moments, and a kill costs little.
"""

import os
from functools import partial
from unittest import mock

from gcws_search.index import compile_kernels
from gcws_search.service import app as application, cli as command_line, startup
from tests.crashes import points
from tests.support.index.policies import FEW_ROWS

_OPEN = partial(application.open_catalog, policies=FEW_ROWS)
mock.patch.object(startup, "compile_kernels", return_value=compile_kernels()).start()
mock.patch.object(application, "open_catalog", _OPEN).start()


def serve(log: str, settings: dict[str, str]) -> None:
    """Become a server; never return."""
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.environ.update(settings)
    points.install(settings)
    try:
        command_line.cli(["serve"], standalone_mode=True)
    except SystemExit as ended:
        os._exit(int(ended.code or 0))
    finally:
        os._exit(70)
