"""Recovery at the start: reads a file's configuration, then its rows.

Codes of an earlier hash, or of other weights, are recomputed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import orjson

from gcws_search.index.backend import Backend
from gcws_search.index.collection.items import EncodedBatch, check_ids, check_life
from gcws_search.index.collection.writer import codes_from_blobs, codes_to_blobs
from gcws_search.index.contracts.errors import DamagedFile, IncompatibleFile, InvalidInput
from gcws_search.index.contracts.parameters import BackendParams, CollectionConfig, backend_params
from gcws_search.index.contracts.saved_index import fields_of
from gcws_search.index.hashing.gcws import ALGORITHM_VERSION
from gcws_search.index.payload import is_payload
from gcws_search.index.storage.data_directory import check_name
from gcws_search.index.storage.schema import (
    OUTDATED,
    BackendRecord,
    Identity,
    ReplaceCodes,
    RowBatch,
)
from gcws_search.index.storage.store import Store
from gcws_search.index.vectors.space import VectorSpace

_log = logging.getLogger(__name__)


def load_rows(
    store: Store,
    space: VectorSpace,
    backend: Backend[Any],
    chunk_bytes: int,
    progress: Callable[[int], None],
) -> Generator[EncodedBatch]:
    """Yield all rows of a file; nothing else may write to it meanwhile.

    Codes of an earlier hash or of other weights cannot be compared with the present ones. They are
    replaced in the file as well: all of them at the end, or none.

    backend: computes the codes.
    progress: called with the number of rows read since the last call, in the reading thread.
    Raises DamagedFile, DiskFull.
    """
    version = store.identity.algorithm_version
    replacing: AbstractContextManager[ReplaceCodes | None] = nullcontext()
    if version != ALGORITHM_VERSION:
        _log.info("collection %r: hashes from %d to %d", store.name, version, ALGORITHM_VERSION)
        replacing = store.replacing_codes(ALGORITHM_VERSION)
    with replacing as replace_codes:
        for chunk in store.chunks(chunk_bytes):
            try:
                encoded = _decode(chunk, space, backend, rehash=replace_codes is not None)
            except (ValueError, InvalidInput) as error:
                raise DamagedFile(store.name, f"rows from {chunk.sequences[0]}: {error}") from error
            if replace_codes is not None:
                replace_codes(chunk.sequences, codes_to_blobs(encoded.codes))
            yield encoded
            progress(len(chunk.ids))


def _decode(
    chunk: RowBatch, space: VectorSpace, backend: Backend[Any], *, rehash: bool
) -> EncodedBatch:
    check_ids(chunk.ids)
    check_life(chunk.versions, chunk.expires)
    if not all(map(is_payload, [each for each in chunk.payloads if each is not None])):
        raise ValueError("a payload is not a JSON object")
    vectors = space.from_file(chunk.vectors)
    codes = backend.encode(vectors) if rehash else codes_from_blobs(chunk.codes, backend.code_width)
    life = chunk.sequences, chunk.versions, chunk.expires
    return EncodedBatch(chunk.ids, chunk.payloads, vectors, codes, *life)


def config_of(identity: Identity, name: str) -> CollectionConfig:
    """Return the configuration of the collection with this name.

    Raises IncompatibleFile (the version of its hashes is unknown), DamagedFile.
    """
    if not OUTDATED <= identity.algorithm_version <= ALGORITHM_VERSION:
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

    primary: kind of the primary backend, whose name no other backend has.
    Raises ValueError, InvalidInput (the parameters are not valid).
    """
    check_name(record.name)
    if record.name == primary:
        raise ValueError("it has the name of the primary one")
    return backend_params(record.kind, fields_of(orjson.loads(record.params)))
