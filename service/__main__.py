"""``python -m gcws_search.service``: the same as ``gcws-search serve``."""

import sys

from gcws_search.commands.app import app

if __name__ == "__main__":
    given = sys.argv[1:]
    command = [] if given[:1] in (["serve"], ["version"], ["--version"]) else ["serve"]
    app([*command, *given], prog_name="python -m gcws_search.service")
