"""The envelope of every request: its id, its measurement, the answer of last resort."""

import asyncio
import logging
import random
import re
import time
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gcws_search.index import OutOfDescriptors
from gcws_search.service import problems
from gcws_search.service.errors import Overloaded, Stopping
from gcws_search.service.guards.admission import Admission
from gcws_search.service.http.timeouts import BREAK_OFF
from gcws_search.service.telemetry import logs
from gcws_search.service.telemetry.metrics import Metrics

_HEADER: Final = b"x-request-id"
_PERMITTED: Final = re.compile(rb"[\x21-\x7e]{1,128}")
_PATH_SHOWN: Final = 500
_draw: Final = random.Random()  # seeded by the system; names need not be secret
_log = logging.getLogger(__name__)
_access = logging.getLogger("gcws_search.service.access")


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == _HEADER and _PERMITTED.fullmatch(value):
            return bytes(value)
    # Asking the system for each would let other threads have the interpreter first.
    return b"%032x" % _draw.getrandbits(128)


class Envelope:
    """Pure ASGI: adds ``X-Request-Id``, counts and times, and lets no exception through."""

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, admission: Admission, access_log: bool
    ) -> None:
        self._app = app
        self._admission = admission
        self._access_log = access_log
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        logs.request_id.set(request_id.decode())
        status = 0
        start = time.perf_counter()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (_HEADER, request_id)]
            await send(message)

        try:
            self._admission.enter(scope)
            await self._app(scope, receive, send_with_id)
        except (Overloaded, OutOfDescriptors) as error:
            await problems.response(error)(scope, receive, send_with_id)
        except asyncio.CancelledError:
            if BREAK_OFF not in scope:
                raise
            # The server cancels what has not ended when its time to stop is over, and says so.
            if status:
                scope[BREAK_OFF]()
            else:
                await problems.response(Stopping())(scope, receive, send_with_id)
        except Exception as error:
            found = problems.listed(error)
            # Without descriptors even the traceback's files cannot be read.
            trace = None if isinstance(found, OutOfDescriptors) else error
            told = request_id.decode(), scope["method"], scope["path"], error
            _log.error("request %s: %s %s failed (%r)", *told, exc_info=trace)
            if not status:
                await problems.response(found)(scope, receive, send_with_id)
        finally:
            self._admission.leave(scope)
            seconds = time.perf_counter() - start
            self._metrics.observe(scope, status, seconds)
            if self._access_log:
                # Without the query string: a key that was put there by mistake is not kept.
                path = scope["path"][:_PATH_SHOWN]
                _access.info("%s %r %d in %.6f s", scope["method"], path, status, seconds)
