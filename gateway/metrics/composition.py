"""Puts together what shows the metrics of a gateway."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gateway.admin.operation import LiveGateway
from gateway.config import Config
from gateway.config.metrics import METRICS_LISTENER
from gateway.config.otlp import OTLP_ENDPOINT
from gateway.metrics.listener import MetricsListener
from gateway.metrics.loop_delay import LoopDelay
from gateway.metrics.sources import Sources
from gateway.metrics.topic_traffic import TopicTraffic
from gateway.runtime.services import Services
from gateway.runtime.upkeep.compaction import Compaction
from gateway.runtime.upkeep.retention import Retention
from gateway.server.dispatcher import Dispatcher
from gateway.server.request_times import RequestTimes
from gateway.server.server import Server

if TYPE_CHECKING:
    from gateway.metrics.otlp.exporter import OtlpExporter


@dataclass(frozen=True, slots=True)
class Metrics:
    """What shows the metrics: the listener that programs ask, the exporter that tells a collector, or both."""

    listener: MetricsListener | None
    exporter: OtlpExporter | None

    async def stop(self) -> None:
        """Export the last values, and stop answering."""
        if self.exporter is not None:
            await self.exporter.stop()
        if self.listener is not None:
            await self.listener.stop()


def compose_metrics(
    config: Config,
    services: Services,
    server: Server,
    dispatcher: Dispatcher,
    retention: Retention,
    compaction: Compaction,
    live: Callable[[], LiveGateway],
) -> Metrics:
    """Return what shows the metrics, started later. From now on requests are counted and timed by API."""
    requests = dispatcher.time_requests()
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
    return Metrics(
        None if config.optional_str(METRICS_LISTENER) is None else MetricsListener(config, sources),
        None if config.optional_str(OTLP_ENDPOINT) is None else _exporter(config, sources),
    )


def _arm(requests: RequestTimes, services: Services) -> None:
    """Time the next repeated requests and the next append."""
    requests.arm()
    if services.partitions.append_times is not None:
        services.partitions.append_times.arm()


def _exporter(config: Config, sources: Sources) -> OtlpExporter:
    from gateway.metrics.otlp.exporter import OtlpExporter  # noqa: PLC0415 - an extra

    return OtlpExporter(config, sources)
