"""The version of this program."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def program_version() -> str:
    """Return this program's version."""
    try:
        return version("gcws-search")
    except PackageNotFoundError:  # run from a source tree
        return "0+unknown"


__version__: Final = program_version()
