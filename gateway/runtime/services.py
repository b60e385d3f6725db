"""What handlers may use, put together once by the composition root."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.config import Config
from gateway.runtime.backlog import Backlog
from gateway.runtime.clock import Clock
from gateway.runtime.cold_reads import ColdReads
from gateway.runtime.disk_room import DiskRoom
from gateway.runtime.fetch_sessions import FetchSessionCache
from gateway.runtime.flusher import Flusher
from gateway.runtime.group_configs import GroupConfigs
from gateway.runtime.group_coordinator import GroupCoordinator
from gateway.runtime.metadata_log import MetadataLog
from gateway.runtime.partitions import Partitions
from gateway.runtime.share_coordinator import ShareCoordinator
from gateway.runtime.tasks import TaskList
from gateway.runtime.transaction_coordinator import TransactionCoordinator
from log import LogDirectory
from pid_allocator import ProducerIdAllocator


class Endpoint(NamedTuple):
    """Where clients of one listener reach this node."""

    host: str
    port: int


@dataclass(slots=True)
class Services:
    """The gateway's parts as handlers see them."""

    config: Config
    clock: Clock
    loop: asyncio.AbstractEventLoop
    node_id: int
    cluster_id: str
    log_directory: LogDirectory
    flusher: Flusher
    partitions: Partitions
    metadata_log: MetadataLog
    producer_ids: ProducerIdAllocator
    fetch_sessions: FetchSessionCache
    cold_reads: ColdReads
    group_configs: GroupConfigs
    groups: GroupCoordinator
    shares: ShareCoordinator
    transactions: TransactionCoordinator
    backlog: Backlog
    advertised: dict[str, Endpoint]
    """By listener name."""
    disk_room: DiskRoom
    duplicates: int = 0
    """Batches answered with the offset of their original since the start."""
    rejections: int = 0
    """Batches refused for their sequence or epoch since the start."""
    tasks: TaskList = field(init=False)
    """Long work that goes on beside requests."""

    def __post_init__(self) -> None:
        self.tasks = TaskList(self.clock)
