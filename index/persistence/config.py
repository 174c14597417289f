"""A collection's configuration as its file tells it."""

from __future__ import annotations

from dataclasses import replace

import orjson

from gcws_search.index.contracts.errors import DamagedFile, IncompatibleFile, InvalidInput
from gcws_search.index.contracts.parameters import BackendParams, CollectionConfig, backend_params
from gcws_search.index.contracts.saved_index import fields_of
from gcws_search.index.hashing.gcws import ALGORITHM_VERSION
from gcws_search.index.storage.data_directory import check_name
from gcws_search.index.storage.schema import BackendRecord, Identity


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
    except (KeyError, TypeError, AttributeError, ValueError, InvalidInput) as error:
        raise DamagedFile(name, f"its configuration is unreadable ({error!r})") from error


def params_of(record: BackendRecord, primary: str) -> BackendParams:
    """Return the parameters of a comparison backend.

    Parameters
    ----------
    record : BackendRecord
        As a file tells it.
    primary : str
        Kind of the backend that it is compared with, whose name no other has.

    Raises
    ------
    ValueError, InvalidInput
        There can be no such backend.
    """
    check_name(record.name)
    if record.name == primary:
        raise ValueError("it has the name of the primary one")
    return backend_params(record.kind, fields_of(orjson.loads(record.params)))
