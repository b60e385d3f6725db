"""The metrics listener: /metrics, /healthz, /readyz, and /view/OPERATION."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Union
from urllib.parse import unquote

import msgspec

from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.admin.operations import OPERATIONS, answer_live, changes_something
from seqgate.gateway.admin.request import ControlError, Request
from seqgate.gateway.config import Config, Listener
from seqgate.gateway.config.listeners import is_loopback
from seqgate.gateway.config.metrics import METRICS_LISTENER, OTLP_ENDPOINT, metrics_listener
from seqgate.gateway.http_server import JSON, PLAIN, HttpAnswer, HttpRequest, HttpServer
from seqgate.gateway.metrics.health import complaints
from seqgate.gateway.metrics.metric import LoopDelay, Sources, TopicTraffic
from seqgate.gateway.metrics.table import text_of
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.upkeep.compaction import Compaction
from seqgate.gateway.runtime.upkeep.retention import Retention
from seqgate.gateway.server.dispatcher import RequestTimes
from seqgate.gateway.server.server import Server, bound_sockets

if TYPE_CHECKING:
    from seqgate.gateway.metrics.otlp import OtlpExporter


_VIEW: Final = "/view/"
VIEW_TIMEOUT_S: Final = 30.0
"""Time for a view, as for an operation of the control socket."""
_NO_VIEWS: Final = (
    "views are shown on 127.0.0.1 only, because they name topics, groups and producers without a login; "
    "set seqgate.metrics.views.everywhere=true where only trusted programs reach the listener"
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
        self.address: Listener = metrics_listener(config.str(METRICS_LISTENER))
        self._sources = sources
        self._shows_views_everywhere = config.bool("seqgate.metrics.views.everywhere")
        self._server = HttpServer(self._answer)

    async def start(self, inherited: Sequence[socket.socket] = ()) -> int:
        """Listen, on `inherited` sockets if there are any; return the port. Raises OSError."""
        self._sources.live()  # it notes the first producer ids of this run
        self._sources.loop_delay.start()
        return await self._server.start(inherited or bound_sockets(self.address))

    def duplicates(self) -> list[int]:
        """Return duplicates of the listening sockets, as `HttpServer` does."""
        return self._server.duplicates()

    async def stop(self) -> None:
        self._sources.loop_delay.stop()
        await self._server.stop()

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        match unquote(request.path):
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
        text = await text_of(self._sources, request.headers.get("accept", ""))
        return HttpAnswer(200, text.content_type, text.body)

    async def _readiness(self) -> HttpAnswer:
        found = await complaints(self._sources.gateway)
        if not found:
            return HttpAnswer(200, PLAIN, b"ready\n")
        return HttpAnswer(503, PLAIN, "".join(f"{complaint}\n" for complaint in found).encode())

    def _shows_views(self, request: HttpRequest) -> bool:
        """Return whether only programs of this machine can have sent the request, or views are for everybody.
        A page in a browser on this machine can reach the listener under a host name of its own that resolves
        to 127.0.0.1. The browser then sends that name, and lets the page read the answer.
        """
        if self._shows_views_everywhere:
            return True
        return is_loopback(self.address.host) and is_loopback(request.host)

    async def _view(self, name: str, request: HttpRequest) -> HttpAnswer:
        if not self._shows_views(request):
            return _error(403, _NO_VIEWS)
        try:
            async with asyncio.timeout(VIEW_TIMEOUT_S):
                return HttpAnswer(200, JSON, await view(self._sources.gateway, name, request.fields))
        except ViewRefused as error:
            return _error(error.status, str(error))
        except ControlError as error:
            return _error(409, str(error))
        except TimeoutError:
            return _error(503, f"no answer within {VIEW_TIMEOUT_S:g} s")


def _error(status: int, sentence: str) -> HttpAnswer:
    return HttpAnswer(status, JSON, msgspec.json.encode({"error": sentence}))


# Puts together what shows the metrics of a gateway.


@dataclass(frozen=True, slots=True)
class Metrics:
    """The listener that programs ask, the exporter that tells a collector, both, or neither: commands and the
    console ask over the Kafka protocol.
    """

    sources: Sources
    listener: MetricsListener | None
    exporter: OtlpExporter | None

    async def text(self) -> str:
        """Return all metrics in Prometheus's text format."""
        return (await text_of(self.sources, "")).body.decode()

    async def stop(self) -> None:
        if self.exporter is not None:
            await self.exporter.stop()
        if self.listener is not None:
            await self.listener.stop()


def compose_metrics(
    config: Config,
    services: Services,
    server: Server,
    requests: RequestTimes | None,
    retention: Retention,
    compaction: Compaction,
    live: Callable[[], LiveGateway],
) -> Metrics:
    """Return what shows the metrics, started later. `requests` counts and times requests by API, and None
    where nothing is timed.
    """
    sources = Sources(
        services=services,
        live=live,
        server=server,
        requests=requests,
        retention=retention,
        compaction=compaction,
        topics=TopicTraffic(services.partitions.registry, config.int("seqgate.metrics.topics.max")),
        loop_delay=LoopDelay(services.node.loop, partial(_arm, requests, services)),
    )
    listener = None if config.optional_str(METRICS_LISTENER) is None else MetricsListener(config, sources)
    if config.optional_str(OTLP_ENDPOINT) is None:
        return Metrics(sources, listener, None)
    from seqgate.gateway.metrics.otlp import OtlpExporter  # noqa: PLC0415 - an extra

    return Metrics(sources, listener, OtlpExporter(config, sources))


def _arm(requests: RequestTimes | None, services: Services) -> None:
    """Time the next repeated requests and the next append."""
    if requests is not None:
        requests.arm()
    if services.partitions.append_times is not None:
        services.partitions.append_times.arm()


# The answers of the control socket that change nothing, for programs that reach only the metrics listener,
# such as the console.

VIEWS: Final = frozenset(
    {
        "status",
        "cluster.gateways",
        "producers",
        "verdicts",
        "names",
        "backlog",
        "pids.list",
        "pids.owner",
        "pids.overlaps",
        "groups.list",
        "groups.describe",
        "transactions.list",
        "transactions.describe",
        "transactions.hanging",
        "tasks",
        "log-lines",
    }
)
"""The operations that a view may ask for: those that only read, and tell no credentials."""
_REQUESTS: Final = {
    operation.request.operation_name(): operation.request
    for operation in OPERATIONS
    if operation.request.operation_name() in VIEWS
}
_TYPE: Final[Any] = Union[tuple(_REQUESTS.values())]  # noqa: UP007 - `|` takes no list


class ViewRefused(Exception):
    """There is no such view (404), or it refuses its fields (400); the message is a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


async def view(gateway: LiveGateway, name: str, fields: Mapping[str, Sequence[str]]) -> bytes:
    """Return the answer of this gateway to an operation as JSON, also where others of a cluster know more.
    `fields` are texts; a field that is a list has several. Raises ViewRefused, ControlError.
    """
    request = _request(name, fields)
    return msgspec.json.encode(await answer_live(gateway, request))


def _request(name: str, fields: Mapping[str, Sequence[str]]) -> Request[Any]:
    wanted = _REQUESTS.get(name)
    if wanted is None:
        raise ViewRefused(404, f"there is no view {name!r}; there are {', '.join(sorted(VIEWS))}")
    if "operation" in fields:
        raise ViewRefused(400, "the path names the view; leave the field operation out")
    lists = {
        field.name
        for field in msgspec.structs.fields(wanted)
        if any(kind in str(field.type) for kind in ("list", "tuple"))
    }
    values: dict[str, Any] = {
        field: list(texts) if field in lists else texts[-1] for field, texts in fields.items()
    }
    try:
        request: Request[Any] = msgspec.convert({"operation": name, **values}, _TYPE, strict=False)
    except msgspec.ValidationError as error:
        raise ViewRefused(400, f"the view {name} refuses its fields: {error}") from None
    if changes_something(request):
        raise ControlError(f"{name} changes something, and a view does not")
    return request
