"""A gateway's services as far as the control socket looks at them, without files and sockets."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from gateway.config import load_config
from gateway.control.blocks import BlockSource
from gateway.runtime.loop.tasks import TaskList
from log.environment import LogEnvironment
from pid_allocator import (
    NextIdBehind,
    ProducerIdAllocator,
    ProducerIdBlock,
    StoreUnavailable,
    block_at,
)
from seq_validator import ProducerLimit, ProducerTable

NOW_MS = 1_700_000_000_000


@dataclass
class FakeClock:
    time_ms: int = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms


@dataclass
class FakeStore:
    """A BlockStore in memory; `away` makes it fail."""

    claimed: list[ProducerIdBlock] = field(default_factory=list)
    next_id: int = 0
    away: bool = False

    async def claim(self, size: int, owner: str, now_ms: int) -> ProducerIdBlock:
        self._check()
        block = block_at(self.next_id, size, owner, now_ms)
        self.claimed.append(block)
        self.next_id = block.next_producer_id
        return block

    async def blocks(self) -> list[ProducerIdBlock]:
        self._check()
        return list(self.claimed)

    async def move_next(self, producer_id: int) -> int:
        self._check()
        if producer_id < self.next_id:
            raise NextIdBehind(f"the next id is {self.next_id}")
        previous, self.next_id = self.next_id, producer_id
        return previous

    async def next_producer_id(self) -> int:
        self._check()
        return self.next_id

    def _check(self) -> None:
        if self.away:
            raise StoreUnavailable("the store is away")


@dataclass
class FakeUsage:
    counts: dict[int, int] = field(default_factory=dict)

    async def report_used(self, first_producer_id: int, used: int) -> None:
        self.counts[first_producer_id] = used

    async def used(self) -> dict[int, int]:
        return dict(self.counts)


@dataclass(frozen=True)
class Batch:
    producer_id: int
    base_sequence: int
    last_sequence: int
    producer_epoch: int = 0
    max_timestamp: int = NOW_MS - 1
    is_transactional: bool = False

    @property
    def last_offset_delta(self) -> int:
        return self.last_sequence - self.base_sequence


class FakeLog:
    def __init__(self, limit: ProducerLimit) -> None:
        self.producers = ProducerTable(limit=limit)
        self.offline = False
        self.failure: str | None = None
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.reopen_error: Exception | None = None

    def append(self, batch: Batch, now_ms: int = NOW_MS) -> None:
        self.producers.update(batch, self.log_end_offset, now_ms)
        self.log_end_offset += batch.last_offset_delta + 1

    def reopen(self, now_ms: int) -> None:
        if self.reopen_error is not None:
            raise self.reopen_error
        self.offline = False


class FakePartition:
    def __init__(self, topic: str, index: int, limit: ProducerLimit) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = uuid.uuid4()
        self.log = FakeLog(limit)
        self.woken = 0

    def reopen(self, now_ms: int) -> None:
        self.log.reopen(now_ms)
        self.woken += 1


@dataclass
class FakeFlusher:
    rounds: int = 7
    failures: int = 1


@dataclass
class FakeLogDirectory:
    environment: LogEnvironment


class FakeServices:
    """Has the attributes of Services that operations read."""

    def __init__(self, allocator: ProducerIdAllocator, topics: dict[str, int]) -> None:
        from gateway.runtime.partitions.registry import Partitions

        self.limit = ProducerLimit()
        self.config = load_config(overrides=["log.dirs=data"])
        self.clock = FakeClock()
        self.node_id = 0
        self.cluster_id = "cluster"
        self.advertised: dict[str, Any] = {}
        self.partitions = Partitions()
        self.flusher = FakeFlusher()
        self.log_directory = FakeLogDirectory(LogEnvironment(producer_limit=self.limit))
        self.producer_ids = allocator
        self.duplicates = 3
        self.rejections = 2
        self.tasks = TaskList(self.clock)
        for topic, count in topics.items():
            self.partitions.register(topic, uuid.uuid4(), count, self)

    def open(self, topic: str, index: int) -> Any:
        return FakePartition(topic, index, self.limit)

    def is_empty(self, topic: str, index: int) -> bool:
        return True


def fake_source(store: FakeStore, **more: Any) -> BlockSource:
    return BlockSource(
        name="embedded", store=store, next_producer_id=store.next_producer_id, shared=False, **more
    )


def fake_allocator(store: FakeStore, block_size: int = 10, owner: str = "node-0") -> ProducerIdAllocator:
    return ProducerIdAllocator(store, block_size, owner=owner, clock=lambda: NOW_MS)
