"""A collection's configuration as its file tells it."""

from __future__ import annotations

from index.errors import DamagedFile, IncompatibleFile, InvalidInput
from index.hashing import ALGORITHM_VERSION
from index.params import CollectionConfig
from index.schema import Identity


def config_of(identity: Identity, name: str) -> CollectionConfig:
    """Return the configuration of a collection of this name.

    Raises
    ------
    IncompatibleFile
        Its hashes are of another version.
    DamagedFile
    """
    if identity.algorithm_version != ALGORITHM_VERSION:
        raise IncompatibleFile(
            name, f"hashes of version {ALGORITHM_VERSION}",
            f"hashes of version {identity.algorithm_version}",
        )  # fmt: skip
    try:
        return CollectionConfig.from_dict(identity.config)
    except (KeyError, TypeError, AttributeError, InvalidInput) as error:
        raise DamagedFile(name, f"its configuration is unreadable ({error!r})") from error
