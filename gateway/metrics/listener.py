"""The metrics listener: /metrics, /healthz, /readyz, and /view/OPERATION."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from gateway.admin.request import ControlError
from gateway.config import Config, Listener
from gateway.config.exposure import is_loopback
from gateway.config.listeners import parse_listener
from gateway.config.metrics import METRICS_LISTENER
from gateway.http import JSON, PLAIN, HttpAnswer, HttpRequest, HttpServer
from gateway.metrics.exposition import text_of
from gateway.metrics.health import complaints
from gateway.metrics.sources import Sources
from gateway.metrics.views import NoView, RefusedFields, view

_VIEW: Final = "/view/"
VIEW_TIMEOUT_S: Final = 30.0
"""Time for a view, as for an operation of the control socket."""
_NO_VIEWS: Final = (
    b"views are shown on 127.0.0.1 only, because they name topics, groups and producers without a login; "
    b"set seqgate.metrics.views.everywhere=true where only trusted programs reach the listener\n"
)
_INDEX: Final = (
    b"/metrics   what the gateway counts, for Prometheus\n"
    b"/healthz   200 while the process answers\n"
    b"/readyz    200 while the gateway can take writes, otherwise 503 with the reasons\n"
    b"/view/...  answers of the control socket as JSON, such as /view/status\n"
)


class MetricsListener:
    """Answers what programs ask about one gateway."""

    def __init__(self, config: Config, sources: Sources) -> None:
        self.address: Listener = parse_listener(config.str(METRICS_LISTENER))
        self._sources = sources
        self._shows_views_everywhere = config.bool("seqgate.metrics.views.everywhere")
        self._server = HttpServer(self._answer)
        self._scraping = asyncio.Lock()

    async def start(self) -> int:
        """Listen; return the port. Raises OSError."""
        self._sources.live()  # it notes the first producer ids of this run
        self._sources.loop_delay.start()
        return await self._server.start(self.address.host or None, self.address.port)

    async def stop(self) -> None:
        """Stop answering."""
        self._sources.loop_delay.stop()
        await self._server.stop()

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        match request.path:
            case "/":
                return HttpAnswer(200, PLAIN, _INDEX)
            case "/metrics":
                return await self._metrics(request)
            case "/healthz":
                return HttpAnswer(200, PLAIN, b"ok\n")
            case "/readyz":
                return await self._readiness()
            case path if path.startswith(_VIEW):
                return await self._view(path.removeprefix(_VIEW), request)
        return HttpAnswer(404, PLAIN, b"there is no such page here\n" + _INDEX)

    async def _metrics(self, request: HttpRequest) -> HttpAnswer:
        # One scrape at a time: each passes by all partitions.
        async with self._scraping:
            text = await text_of(self._sources, request.accept)
        return HttpAnswer(200, text.content_type, text.body)

    async def _readiness(self) -> HttpAnswer:
        found = await complaints(self._sources.gateway)
        if not found:
            return HttpAnswer(200, PLAIN, b"ready\n")
        return HttpAnswer(503, PLAIN, "".join(f"{complaint}\n" for complaint in found).encode())

    def _shows_views(self, request: HttpRequest) -> bool:
        """Return whether only programs of this machine can have sent the request, or views are for everybody.

        A page in a browser on this machine can reach the listener under a host name of its own that resolves to 127.0.0.1. The browser then
        sends that name, and lets the page read the answer.
        """
        if self._shows_views_everywhere:
            return True
        return is_loopback(self.address.host) and is_loopback(request.host)

    async def _view(self, name: str, request: HttpRequest) -> HttpAnswer:
        if not self._shows_views(request):
            return HttpAnswer(403, PLAIN, _NO_VIEWS)
        try:
            async with asyncio.timeout(VIEW_TIMEOUT_S):
                return HttpAnswer(200, JSON, await view(self._sources.gateway, name, request.fields))
        except NoView as error:
            return _error(404, error)
        except RefusedFields as error:
            return _error(400, error)
        except ControlError as error:
            return _error(409, error)
        except TimeoutError:
            return _error(503, ControlError(f"no answer within {VIEW_TIMEOUT_S:g} s"))


def _error(status: int, error: Exception) -> HttpAnswer:
    return HttpAnswer(status, JSON, msgspec.json.encode({"error": str(error)}))
