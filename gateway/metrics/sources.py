"""The parts of a gateway that metrics are read from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.admin.operation import LiveGateway
from gateway.metrics.loop_delay import LoopDelay
from gateway.metrics.topic_traffic import TopicTraffic
from gateway.runtime.services import Services
from gateway.runtime.upkeep.compaction import Compaction
from gateway.runtime.upkeep.retention import Retention
from gateway.server.request_times import RequestTimes
from gateway.server.server import Server


@dataclass(frozen=True, slots=True)
class Sources:
    """A running gateway, its listeners, and what is timed for metrics only."""

    services: Services
    live: Callable[[], LiveGateway]
    server: Server
    requests: RequestTimes
    retention: Retention
    compaction: Compaction
    topics: TopicTraffic
    loop_delay: LoopDelay

    @property
    def gateway(self) -> LiveGateway:
        """Return the gateway as operations see it, the same as the control socket uses."""
        return self.live()
