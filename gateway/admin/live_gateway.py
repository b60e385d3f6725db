"""The running gateway as operations see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.admin.pids.blocks import BlockSource
from gateway.admin.sweep.sweeps import Sweeps
from gateway.cluster.cache.cache_state import CacheState
from gateway.cluster.objects.counted import Counts
from gateway.runtime.services import Services


class Traffic(NamedTuple):
    """The counts of the listeners: connections now, and refused connections, requests and failed logins since the start.

    `calls` are those to the bucket that holds the records, `cache` are the counts of its local cache; None without a bucket.
    """

    connections: int = 0
    refused_connections: int = 0
    requests: int = 0
    failed_logins: int = 0
    calls: Counts | None = None
    cache: CacheState | None = None


@dataclass(slots=True)
class LiveGateway:
    """A running gateway: its services, the store of its producer-id blocks, and its listeners' counters."""

    services: Services
    blocks: BlockSource
    traffic: Callable[[], Traffic]
    started_at_ms: int
    sweeps: Sweeps = field(init=False)

    def __post_init__(self) -> None:
        self.sweeps = Sweeps(self.services)
