"""Files by their address: a path, or an object of a store through pyarrow's file systems."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, BinaryIO, Final
from urllib.parse import parse_qs, urlsplit

from gcws_search import index as ix

_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SCHEMES: Final = "s3://, gs://, abfs:// or file://"
_HINTS: Final = {
    "s3": "credentials are those of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or "
    "the machine's role; AWS_REGION or ?region= is the region, AWS_ENDPOINT_URL or "
    "?endpoint_override= another server",
    "gs": "credentials are those of GOOGLE_APPLICATION_CREDENTIALS or of the machine, "
    "gs://anonymous@ has none; ?endpoint_override= is another server",
}
_HINTS["gcs"] = _HINTS["gs"]
_GOOGLE_SECONDS: Final = "retry_limit_seconds=60"
"""Google's client tries again for a quarter of an hour otherwise."""
_READ_AHEAD_BYTES: Final = 8 << 20
"""Of a file that is read from its beginning; every such piece is a request."""
_RANDOM_BYTES: Final = 1 << 20
_FLUSH_BYTES: Final = 64 << 20
"""What may wait in memory to be sent."""
_ASKED_AT_ONCE: Final = 16


class StoreFailed(OSError):
    """An address is invalid, or its store does not answer as expected; the message names it."""


def place_of(address: str) -> Path | StoredPath:
    """Return a path of this machine, or an object or folder of a store.

    Raises StoreFailed for an invalid address of a store.
    """
    found = stored_path(address) if _ADDRESS.match(address) else None
    if found is None:
        return Path(os.path.expanduser(address))  # `Path.expanduser` fails for ~name
    return Path(found.path) if found.is_local else found


def stored_path(address: str) -> StoredPath:
    """Return the place of an address; a path is one of this machine's file system.

    Raises StoreFailed for an invalid address of a store.
    """
    from pyarrow import ArrowInvalid, fs  # noqa: PLC0415

    match = _ADDRESS.match(address)
    if match is None:
        path = str(Path(address).absolute())
        return StoredPath(path, fs.LocalFileSystem(), path)
    shown = _without_secrets(address)
    full = address
    if match[1].lower() in ("gs", "gcs") and "retry_limit_seconds=" not in address:
        full += ("&" if "?" in address else "?") + _GOOGLE_SECONDS
    with naming_store(shown, (full, address, *_secrets(address))):
        try:
            system, path = fs.FileSystem.from_uri(full)
        except ArrowInvalid as error:
            words = f"expected an address of {_SCHEMES}, got one with this: {error}"
            raise OSError(words) from None
    if system.type_name == "s3" and not path:
        raise StoreFailed(errno.EINVAL, "expected s3://BUCKET/KEY, got no bucket", shown)
    return StoredPath(path if system.type_name == "local" else shown, system, path)


def _without_secrets(address: str) -> str:
    """Return an address without credentials and options."""
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}".rstrip("/")


def _secrets(address: str) -> list[str]:
    """Return the parts of an address that no message shows."""
    parts = urlsplit(address)
    found = [parts.netloc.rpartition("@")[0], parts.password, *parse_qs(parts.query).get("key", ())]
    return [each for each in found if each]


@contextmanager
def naming_store(address: str, secrets: Iterable[str] = ()) -> Iterator[None]:
    """Add the address, and the source of its credentials, to errors of a store."""
    from pyarrow import ArrowException  # noqa: PLC0415  # takes time to load

    try:
        yield
    except StoreFailed:
        raise
    except (OSError, ArrowException) as error:
        text = str(error).split("\n", 1)[0]
        for each in secrets:
            text = text.replace(each, "…")
        text = text[:300]
        hint = _HINTS.get(address.partition("://")[0].lower())
        words = text if hint is None or text.startswith("expected") else f"{text}; {hint}"
        code = errno.ENOENT if isinstance(error, FileNotFoundError) else errno.EIO
        raise StoreFailed(code, words, address) from None


@dataclass(frozen=True)
class StoredPath:
    """An object of a store, or a folder of objects, with the `Path` methods that `InputFile` uses.

    address: for people, without credentials and options.
    """

    address: str
    system: Any
    path: str

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str) -> StoredPath:
        return StoredPath(f"{self.address}/{name}", self.system, f"{self.path.rstrip('/')}/{name}")

    @property
    def is_local(self) -> bool:
        """Whether it is a file of this machine."""
        return bool(self.system.type_name == "local")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def suffixes(self) -> list[str]:
        """Those of the name."""
        return PurePosixPath(self.path).suffixes

    def relative_to(self, folder: StoredPath) -> PurePosixPath:
        """Return the rest of the path within a folder."""
        return PurePosixPath(self.path).relative_to(folder.path)

    @cached_property
    def _info(self) -> Any:
        with naming_store(self.address):
            return self.system.get_file_info(self.path)

    def exists(self) -> bool:
        """Whether there is an object, or a folder with one."""
        return bool(self._info.type.name != "NotFound")

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        return bool(self._info.type.name == "Directory")

    def stat(self) -> Any:
        """Return size and time of the last change, named as in `os.stat_result`."""
        found = self._info
        return SimpleNamespace(st_size=found.size or 0, st_mtime_ns=found.mtime_ns or 0)

    @cached_property
    def version(self) -> str:
        """A value that changes with the bytes: the entity tag of the store, and the time."""
        with naming_store(self.address), self.system.open_input_file(self.path) as file:
            told = {name.lower(): value for name, value in (file.metadata() or {}).items()}
        return f"{self.stat().st_mtime_ns} {told.get('etag', b'').decode()}"

    def files(self) -> list[StoredPath]:
        """Return all files of a folder and its subfolders, by name; none for a missing folder."""
        from pyarrow import fs  # noqa: PLC0415

        with naming_store(self.address):
            selector = fs.FileSelector(self.path, allow_not_found=True, recursive=True)
            infos = self.system.get_file_info(selector)
        found = []
        for info in sorted(infos, key=lambda each: each.path):
            if info.is_file:
                each = self / info.path[len(self.path.rstrip("/")) + 1 :]
                each.__dict__["_info"] = info  # from the listing
                found.append(each)
        return found

    def open(self, mode: str = "rb") -> BinaryIO:
        """Return the bytes as a stream from the beginning; compressed ones unchanged."""
        assert mode == "rb"
        return self._open(_READ_AHEAD_BYTES)

    def random_access(self) -> BinaryIO:
        """Return the bytes with random access."""
        return self._open(_RANDOM_BYTES)

    def _open(self, buffer_bytes: int) -> BinaryIO:
        with naming_store(self.address):
            file = self.system.open_input_file(self.path)
        return io.BufferedReader(_Reading(file, self.address), buffer_bytes)

    def read_range(self, start: int, size: int) -> bytes:
        """Return a range of the bytes, truncated at the end."""
        with naming_store(self.address), self.system.open_input_file(self.path) as file:
            return bytes(file.read_at(size, start))

    @property
    def _target(self) -> str:
        """The path for writing until an object is complete."""
        return f"{self.path}.part" if self.is_local else self.path

    def write(self, pieces: Iterable[bytes]) -> int:
        """Write an object, which appears when it is complete; return its size in bytes.

        It then survives a power cut.
        """
        target, count, waiting = self._target, 0, 0
        folders = Path(self.path).parents
        with naming_store(self.address):
            if self.is_local:
                # Up to the first existing folder, which gets a new entry.
                folders = folders[: 1 + sum(not folder.exists() for folder in folders)]
                self.system.create_dir(str(folders[0]))
            stream = self.system.open_output_stream(target, compression=None)
        try:
            for piece in pieces:
                with naming_store(self.address):
                    stream.write(piece)
                    count, waiting = count + len(piece), waiting + len(piece)
                    if waiting >= _FLUSH_BYTES:  # parts are sent in the background, without bound
                        stream.flush()
                        waiting = 0
            with naming_store(self.address):
                stream.close()
                if self.is_local:
                    ix.sync_file(Path(target))
                    self.system.move(target, self.path)
                    for folder in folders:
                        with suppress(OSError):  # some file systems cannot
                            ix.sync_file(folder)
        except BaseException:
            with suppress(OSError):  # closing creates an object of the written bytes
                stream.close()
                self.system.delete_file(target)
            raise
        return count

    def remove(self) -> None:
        """Remove an object, if it exists, and the remains of an interrupted write."""
        for path in {self.path, self._target}:
            with naming_store(self.address), suppress(FileNotFoundError):
                self.system.delete_file(path)


class _Reading(io.RawIOBase):
    """An object of a store as a file of Python; its errors name the address."""

    def __init__(self, file: Any, address: str) -> None:
        self._file = file
        self._address = address

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with naming_store(self._address):
            return int(self._file.readinto(buffer))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def version_of(place: Path | StoredPath) -> int | str:
    """Return a value that changes with the bytes of a file."""
    return place.version if isinstance(place, StoredPath) else place.stat().st_mtime_ns


def versions(places: Iterable[Path | StoredPath]) -> list[int | str]:
    """Return the versions of files, several queried in parallel."""
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        return [*pool.map(version_of, places)]
