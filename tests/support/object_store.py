"""An S3 server of this process, whose answers can be held back."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from unittest.mock import patch

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from pyarrow import fs
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.support.service.ports import free_port

REGION = "eu-west-1"
Request = dict[str, Any]
"""The variables of a request of WSGI."""


@dataclass
class ObjectStore:
    """A server with one bucket, which is empty at first."""

    url: str
    bucket: str = "corpus"
    _held: Callable[[Request], bool] | None = None
    _refused: Callable[[Request], bool] | None = None
    _reached: threading.Event = field(default_factory=threading.Event)
    _let_go: threading.Event = field(default_factory=threading.Event)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a program that uses it."""
        return {
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "a-secret",
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def system(self) -> fs.S3FileSystem:
        """The file system by which a test looks at it."""
        return fs.S3FileSystem(
            access_key="someone", secret_key="a-secret", region=REGION, endpoint_override=self.url,
            allow_bucket_creation=True, allow_bucket_deletion=True,
        )  # fmt: skip

    def address(self, key: str = "") -> str:
        return f"s3://{self.bucket}/{key}"

    def put(self, key: str, data: bytes) -> str:
        """Store an object, and return its address."""
        with self.system.open_output_stream(f"{self.bucket}/{key}", compression=None) as stream:
            stream.write(data)
        return self.address(key)

    def get(self, key: str) -> bytes:
        with self.system.open_input_stream(f"{self.bucket}/{key}", compression=None) as stream:
            return cast(bytes, stream.read())

    def names(self) -> list[str]:
        found = self.system.get_file_info(fs.FileSelector(self.bucket, recursive=True))
        return sorted(each.path[len(self.bucket) + 1 :] for each in found if each.is_file)

    @contextmanager
    def holding(self, is_held: Callable[[Request], bool]) -> Iterator[threading.Event]:
        """Let requests of a kind wait; yield what is set once there is one."""
        self._reached.clear()
        self._let_go.clear()
        self._held = is_held
        try:
            yield self._reached
        finally:
            self._held = None
            self._let_go.set()

    @contextmanager
    def refusing(self, is_refused: Callable[[Request], bool]) -> Iterator[None]:
        """Refuse requests of a kind, as a store does without a permission."""
        self._refused = is_refused
        try:
            yield
        finally:
            self._refused = None

    def is_refused(self, request: Request) -> bool:
        return self._refused is not None and self._refused(request)

    def wait_if_held(self, request: Request) -> None:
        if self._held is not None and self._held(request):
            self._reached.set()
            self._let_go.wait()


class _Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Yield a server, which this process has credentials for."""
    port = free_port()
    store = ObjectStore(f"http://127.0.0.1:{port}")
    inner = DomainDispatcherApplication(create_backend_app)

    def app(request: Request, start: Callable[..., object]) -> Iterable[bytes]:
        store.wait_if_held(request)
        if store.is_refused(request):
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]
        return cast(Iterable[bytes], inner(request, start))

    served = make_server("127.0.0.1", port, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    try:
        with patch.dict(os.environ, store.variables):
            yield store
    finally:
        served.shutdown()
        thread.join()
        served.server_close()
