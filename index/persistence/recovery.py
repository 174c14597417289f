"""Rows of a file on their way into memory, encoded anew where their codes are of earlier hashes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gcws_search.index.backends.protocol import Backend
from gcws_search.index.collection.ids import check_ids
from gcws_search.index.collection.items import Encoded, Loaded
from gcws_search.index.contracts.errors import DamagedFile, InvalidInput
from gcws_search.index.hashing.gcws import ALGORITHM_VERSION
from gcws_search.index.payload.encoding import is_payload
from gcws_search.index.persistence.changes import codes_from_blobs, codes_to_blobs
from gcws_search.index.storage.records import Chunk, ReplaceCodes
from gcws_search.index.storage.store import Store
from gcws_search.index.vectors.space import VectorSpace

_log = logging.getLogger(__name__)


def loaded(
    store: Store,
    space: VectorSpace,
    backend: Backend[Any],
    progress: Callable[[int], None] | None = None,
) -> Iterator[Loaded]:
    """Yield all rows of a file; nothing else may be written to it meanwhile.

    Codes of an earlier hash, which compare with none of the present one, are replaced in the file
    as well: all at the end, or none.

    Parameters
    ----------
    store : Store
    space : VectorSpace
    backend : Backend
        Its codes are those of the file.
    progress : callable
        Is told how many rows have been taken since it was last called.

    Raises
    ------
    DamagedFile, DiskFull
    """
    with _replacing_outdated_codes(store) as replace_codes:
        for chunk in store.chunks():
            try:
                encoded = _decoded(chunk, space, backend, anew=replace_codes is not None)
            except (ValueError, InvalidInput) as error:
                raise DamagedFile(store.name, f"rows from {chunk.keys[0]}: {error}") from error
            if replace_codes is not None:
                replace_codes(chunk.keys, codes_to_blobs(encoded.codes))
            yield Loaded(chunk.ids, chunk.payloads, encoded, chunk.keys)
            if progress is not None:
                progress(len(chunk.ids))


@contextmanager
def _replacing_outdated_codes(store: Store) -> Iterator[ReplaceCodes | None]:
    """Take codes for the file where its own are outdated."""
    version = store.identity.algorithm_version
    if version == ALGORITHM_VERSION:
        yield None
        return
    _log.info("collection %r: hashes from %d to %d", store.name, version, ALGORITHM_VERSION)
    with store.replacing_codes(ALGORITHM_VERSION) as replace_codes:
        yield replace_codes


def _decoded(chunk: Chunk, space: VectorSpace, backend: Backend[Any], *, anew: bool) -> Encoded:
    check_ids(chunk.ids)
    if not all(payload is None or is_payload(payload) for payload in chunk.payloads):
        raise ValueError("a payload is no JSON object")
    vectors = space.from_file(chunk.vectors)
    if anew:
        return Encoded(vectors, backend.encode(vectors))
    return Encoded(vectors, codes_from_blobs(chunk.codes, backend.code_width))
