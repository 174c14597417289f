"""A collection's configuration as its file tells it."""

from __future__ import annotations

from dataclasses import replace

from gcws_search.index.contracts.errors import DamagedFile, IncompatibleFile, InvalidInput
from gcws_search.index.contracts.parameters import CollectionConfig
from gcws_search.index.hashing.gcws import ALGORITHM_VERSION
from gcws_search.index.storage.schema import Identity


def up_to_date(identity: Identity) -> Identity:
    """Return what a file says that is written anew, with codes of the present hash."""
    return replace(identity, algorithm_version=ALGORITHM_VERSION)


def config_of(identity: Identity, name: str) -> CollectionConfig:
    """Return the configuration of a collection of this name.

    Raises
    ------
    IncompatibleFile
        Its hashes are of a version that is not known.
    DamagedFile
    """
    if not 1 <= identity.algorithm_version <= ALGORITHM_VERSION:
        raise IncompatibleFile(
            name,
            f"hashes of version 1 to {ALGORITHM_VERSION}",
            f"hashes of version {identity.algorithm_version}",
        )
    try:
        return CollectionConfig.from_dict(identity.config)
    except (KeyError, TypeError, AttributeError, InvalidInput) as error:
        raise DamagedFile(name, f"its configuration is unreadable ({error!r})") from error
