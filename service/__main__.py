"""``python -m service``: the same as ``gcws-search serve``."""

import sys

from service.cli import cli

if __name__ == "__main__":
    cli(["serve", *sys.argv[1:]], prog_name="python -m service")
