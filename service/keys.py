"""Keys: who may read and who may write. Several may be valid, so that one can replace another."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import ssl
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import SecretStr

from gcws_search.service.errors import Refused, ServiceError
from gcws_search.service.settings import Settings

Permission = Literal["read", "write"]
"""What a request may do; who may write may read."""

# Minimum length of a cluster's key: 128 bits as hexadecimal digits.
_CLUSTER_KEY_CHARACTERS: Final = 32

_log = logging.getLogger(__name__)


class _Ring:
    """Keys with one permission: separated by commas, or lines of a file that may change."""

    def __init__(self, given: SecretStr | None, file: Path | None) -> None:
        text = "" if given is None else given.get_secret_value()
        self.is_set = given is not None or file is not None
        self._given = _digests(text.split(","))
        self._file = file
        self._state = None if file is None else _state(file)
        self._read = () if file is None else _digests(file.read_text().splitlines())

    def has(self, digest: bytes) -> bool:
        """Whether this is the digest of a key, in constant time."""
        self._refresh()
        found = False
        for known in (*self._given, *self._read):
            found |= hmac.compare_digest(digest, known)
        return found

    def _refresh(self) -> None:
        """Read the file again if it has changed; keep the former keys if it is unreadable."""
        if self._file is None:
            return
        try:
            state = _state(self._file)
            if state != self._state:
                self._read = _digests(self._file.read_text().splitlines())
                _log.info("keys read again from %s: %d", self._file, len(self._read))
        except (OSError, UnicodeDecodeError) as error:
            state = None
            if self._state is not None:
                _log.error("keys stay as they are: %s", error)
        self._state = state


class ApiKeys:
    """All keys of a service; OSError if a file of keys cannot be read."""

    def __init__(self, settings: Settings) -> None:
        self._admin = _Ring(settings.api_key, settings.api_key_file)
        self._reader = _Ring(settings.read_only_api_key, settings.read_only_api_key_file)
        self.are_set = self._admin.is_set or self._reader.is_set

    def permission(self, key: str | None) -> Permission:
        """Return the permission of a key; "write" for all requests if no keys are set.

        A key is text as decoded from headers: one character per byte.
        """
        if not self.are_set:
            return "write"
        if key is None:
            detail = "expected a key in 'Authorization: Bearer …' or 'X-API-Key', got none"
            raise Refused("key_missing", detail)
        digest = hashlib.sha256(key.encode("latin-1")).digest()
        is_admin, is_reader = self._admin.has(digest), self._reader.has(digest)
        if is_admin or is_reader:
            return "write" if is_admin else "read"
        raise Refused("key_refused", "expected a key of this service, got another")

    def check(self, key: str | None, *, writes: bool) -> None:
        """Raise unless a request with this key may be served; a read-only key may not write."""
        if self.permission(key) == "read" and writes:
            detail = "expected a key that permits writing, got a read-only one"
            raise Refused("key_refused", detail)


def cluster_key(settings: Settings) -> str | None:
    """Return the key between routers and shards of a cluster; None if not set."""
    return _secret(settings.cluster_key, settings.cluster_key_file)


def database_url(settings: Settings) -> str | None:
    """Return the URL of a cluster's database; None if not set."""
    return _secret(settings.database_url, settings.database_url_file)


def cluster_access(settings: Settings) -> tuple[str, str]:
    """Return the URL of a cluster's database, and the key of the cluster; else ValueError."""
    key, url = cluster_key(settings), database_url(settings)
    if key is None:
        raise ValueError("expected the key of the cluster, got none; set GCWS_CLUSTER_KEY")
    if len(key) < _CLUSTER_KEY_CHARACTERS:
        raise ValueError(
            f"GCWS_CLUSTER_KEY: expected at least {_CLUSTER_KEY_CHARACTERS} characters, got"
            f" {len(key)}; 'openssl rand -hex 32' makes a key, and 'gcws-search cluster rekey'"
            " replaces one"
        )
    if url is None:
        raise ValueError("expected the database of the cluster, got none; set GCWS_DATABASE_URL")
    return url, key


def shard_authority(settings: Settings) -> ssl.SSLContext | None:
    """Return the SSL context that verifies shards for routers; None without TLS.

    ValueError if a shard would have a certificate without an authority, or the file contains none.
    """
    file = settings.tls_ca_file
    if file is None:
        if settings.tls_certificate_file or settings.tls_key_file:
            raise ValueError(
                "expected GCWS_TLS_CA_FILE beside GCWS_TLS_CERTIFICATE_FILE and GCWS_TLS_KEY_FILE,"
                " got none"
            )
        return None
    try:
        return ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        raise ValueError(f"GCWS_TLS_CA_FILE: expected certificates in {file}: {error}") from None


def shard_certificate(settings: Settings) -> dict[str, Any]:
    """Return uvicorn's options for the certificate of a shard; empty without TLS.

    ValueError for an authority without a certificate, or if certificate and key do not match.
    """
    if shard_authority(settings) is None:
        return {}
    certificate, key = settings.tls_certificate_file, settings.tls_key_file
    if certificate is None or key is None:
        raise ValueError(
            "expected GCWS_TLS_CERTIFICATE_FILE and GCWS_TLS_KEY_FILE of a shard beside"
            " GCWS_TLS_CA_FILE, got none"
        )
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise ValueError(
            f"GCWS_TLS_CERTIFICATE_FILE: expected a certificate in {certificate} and its private"
            f" key in {key}: {error}"
        ) from None
    return {"ssl_certfile": certificate, "ssl_keyfile": key}


def _secret(given: SecretStr | None, file: Path | None) -> str | None:
    """Return the given secret, or else the text of a file; None without both."""
    text = ""
    if given is not None:
        text = given.get_secret_value()
    elif file is not None:
        text = file.read_text()
    return text.strip() or None


def require_guard(settings: Settings) -> None:
    """Raise ServiceError if other machines could connect without a key."""
    reached_at = settings.published_host or settings.host
    guarded = ApiKeys(settings).are_set
    if not (guarded or settings.allow_no_key or is_loopback(reached_at)):
        raise ServiceError(
            "expected a key (GCWS_API_KEY or GCWS_API_KEY_FILE) before listening on "
            f"{reached_at!r}, which others than this machine may reach; got none "
            "(GCWS_ALLOW_NO_KEY=true permits it)"
        )


@lru_cache(maxsize=64)
def is_local(host: str) -> bool:
    """Return whether a Host header is a name that only this machine or its network uses.

    Anybody may point a public name at this machine. To a browser, pages of that name then have the
    same origin as the service.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    if "." not in name or name.rstrip(".").endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether an address or a name certainly belongs to this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _digests(words: list[str]) -> tuple[bytes, ...]:
    stripped = (word.strip() for word in words)
    return tuple(
        hashlib.sha256(word.encode()).digest()
        for word in stripped
        if word and not word.startswith("#")
    )


def _state(file: Path) -> tuple[int, int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino
