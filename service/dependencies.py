"""What routes are handed: the service's parts, and the check of keys."""

import hmac
from dataclasses import dataclass

from fastapi import Request
from pydantic import SecretStr

from index import Catalog, StoredCollection
from service.errors import KeyMissing, KeyRefused
from service.metrics import Metrics
from service.settings import Settings
from service.startup import Startup
from service.workers import Workers


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of one application while it runs."""

    settings: Settings
    startup: Startup
    workers: Workers
    metrics: Metrics

    @property
    def catalog(self) -> Catalog:
        """The catalog; NotReady until its kernels are compiled."""
        return self.startup.require_kernels()

    def collection(self, name: str) -> StoredCollection:
        """Return a collection.

        Raises
        ------
        NotReady, CollectionNotFound, CollectionLoading, DamagedFile
        """
        return self.catalog.get(name)


def service_of(request: Request) -> Service:
    """Return the parts of the application that serves this request."""
    service: Service = request.app.state.service
    return service


def _sent_key(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return request.headers.get("x-api-key") or None


def _same(sent: str, key: SecretStr | None) -> bool:
    return key is not None and hmac.compare_digest(
        sent.encode("latin-1"), key.get_secret_value().encode()
    )


def _check_key(request: Request, *, writes: bool) -> None:
    settings = service_of(request).settings
    if settings.api_key is None and settings.read_only_api_key is None:
        return
    sent = _sent_key(request)
    if sent is None:
        raise KeyMissing
    is_admin = _same(sent, settings.api_key)
    is_reader = _same(sent, settings.read_only_api_key)
    if is_admin or (is_reader and not writes):
        return
    # With a read-only key alone, nobody may write.
    raise KeyRefused(
        "expected a key that permits writing, got the read-only one"
        if is_reader
        else "expected a key of this service, got another"
    )


async def may_read(request: Request) -> None:
    """Raise KeyMissing or KeyRefused unless the request may read."""
    _check_key(request, writes=False)


async def may_write(request: Request) -> None:
    """Raise KeyMissing or KeyRefused unless the request may write."""
    _check_key(request, writes=True)
