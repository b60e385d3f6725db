"""The running gateway as operations see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.admin.pids.blocks import BlockSource
from gateway.admin.sweep.sweeps import Sweeps
from gateway.admin.traffic import Traffic
from gateway.runtime.services import Services


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
