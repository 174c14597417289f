"""``python -m gcws_search``: the same as ``gcws-search serve``."""

import sys

from gcws_search.service.cli import cli

if __name__ == "__main__":
    given = sys.argv[1:]
    command = [] if given[:1] in (["serve"], ["version"], ["--version"]) else ["serve"]
    cli([*command, *given], prog_name="python -m gcws_search")
