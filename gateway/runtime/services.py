"""The parts that handlers may use, put together once by the composition root."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.config import Config
from gateway.runtime.backlogs.backlog import Backlog
from gateway.runtime.coordinators.group_configs import GroupConfigs
from gateway.runtime.coordinators.group_coordinator import GroupCoordinator
from gateway.runtime.coordinators.share_coordinator import ShareCoordinator
from gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from gateway.runtime.loop.clock import Clock
from gateway.runtime.loop.tasks import TaskList
from gateway.runtime.partitions.cold_reads import ColdReads
from gateway.runtime.partitions.fetch_sessions import FetchSessionCache
from gateway.runtime.partitions.flusher import Flusher
from gateway.runtime.partitions.registry import Partitions
from gateway.runtime.topics.metadata_log import MetadataLog
from gateway.runtime.upkeep.disk_room import DiskRoom
from log import LogDirectory
from pid_allocator import ProducerIdAllocator


class Endpoint(NamedTuple):
    """The address at which clients of one listener reach this node."""

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
    """The advertised address of each listener, by its name."""
    disk_room: DiskRoom
    duplicates: int = 0
    """Batches answered with the offset of their original since the start."""
    rejections: int = 0
    """Batches refused for their sequence or epoch since the start."""
    tasks: TaskList = field(init=False)
    """Long work that runs beside requests."""

    def __post_init__(self) -> None:
        self.tasks = TaskList(self.clock)
