"""Partitions whose rounds become objects, in virtual time: over a log that confirms when the test says so, or
over a real session.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from seqgate.gateway.cluster.wal.wal_object import DataRow, FileRow, RowData, WalRow, in_one_piece
from seqgate.gateway.runtime.partitions.object_flusher import ObjectFlusher, WriteAheadLog
from seqgate.gateway.runtime.partitions.partition import FLUSH_NEVER, Partition
from seqgate.gateway.runtime.partitions.unwritten import PutLimits
from seqgate.log import CachedDurability, KeptWrites, LogConfig, PartitionLog, Storage
from seqgate.log.environment import LogEnvironment
from tests.log.support import NOW_MS, SMALL, batch
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import SimulatedClock, SimulatedMachine


class HeldWal:
    """A write-ahead log that confirms its objects, in order, when it is told to, or after `latency_s`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, latency_s: float | None = None) -> None:
        self.on_fenced: list[Callable[[str], None]] = []
        self.objects: list[tuple[list[WalRow], list[RowData]]] = []
        self.put_at_s: list[float] = []
        self._waiting: deque[Callable[[], None]] = deque()
        self._loop = loop
        self.latency_s = latency_s

    def put(self, rows: Sequence[WalRow], data: Sequence[RowData], confirmed: Callable[[], None]) -> None:
        assert [row.length for row in rows] == [len(in_one_piece(content)) for content in data]
        assert rows
        self.objects.append((list(rows), list(data)))
        self.put_at_s.append(self._loop.time())
        self._waiting.append(confirmed)
        if self.latency_s is not None:
            self._loop.call_later(self.latency_s, self.confirm)

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def confirm(self, count: int = 1) -> None:
        for _ in range(count):
            self._waiting.popleft()()

    def fence(self) -> None:
        for fenced in self.on_fenced:
            fenced("a test ended the session")


class Stored:
    """What objects hold: the bytes of segment files and the side files, by partition."""

    def __init__(self) -> None:
        self.segments: dict[tuple[uuid.UUID, int], dict[int, bytes]] = {}
        self.files: dict[tuple[uuid.UUID, int], dict[str, bytes]] = {}
        self.end_offsets: dict[tuple[uuid.UUID, int], int] = {}

    def add(self, rows: Sequence[WalRow], data: Sequence[Any]) -> None:
        """Add one object. Every row must follow on the rows before it."""
        for row, content in zip(rows, data, strict=True):
            key = row.topic_id, row.partition
            if isinstance(row, FileRow):
                self.files.setdefault(key, {})[row.name] = bytes(content)
                continue
            assert isinstance(row, DataRow)
            segments = self.segments.setdefault(key, {})
            assert row.first_offset == self.end_offsets.get(key, 0)
            assert row.position == len(segments.get(row.segment_base, b""))
            segments[row.segment_base] = segments.get(row.segment_base, b"") + bytes(in_one_piece(content))
            self.end_offsets[key] = row.end_offset

    def check(self, log: PartitionLog) -> None:
        """Check that objects have every byte of the log."""
        key = log.topic_id, log.partition
        assert self.end_offsets.get(key, 0) == log.log_end_offset
        local = {
            segment.base_offset: Path(segment.file.path).read_bytes() for segment in log.segments.segments
        }
        stored = self.segments.get(key, {})
        assert {base: content for base, content in local.items() if content} == {
            base: content for base, content in stored.items() if base in local
        }


class Scene:
    """Some partitions and their flusher."""

    def __init__(
        self,
        directory: Path,
        *,
        partitions: int = 1,
        latency_s: float | None = None,
        limits: PutLimits | None = None,
        wal: Callable[[SimulatedLoop], WriteAheadLog] | None = None,
        config: LogConfig = SMALL,
        seed: int = 1,
        kept_writes: KeptWrites | None = None,
        topics: Sequence[str] = (),
    ) -> None:
        self.topics = topics
        self.loop = SimulatedLoop(Random(seed))
        self.storage = Storage()
        self.durability = CachedDurability(self.storage, kept_writes)
        self.held = HeldWal(self.loop, latency_s)
        clock = SimulatedClock(self.loop)
        self.flusher = ObjectFlusher(
            self.loop,
            wal=self.held if wal is None else wal(self.loop),
            durability=self.durability,
            limits=limits,
            machine=SimulatedMachine(self.loop, clock, self.storage, Random(seed)),
        )
        self.flusher.start()
        self.environment = LogEnvironment(self.storage, made_durable_by=self.durability)
        self.partitions = [
            self._open(directory / f"log-{index}", index, config) for index in range(partitions)
        ]
        self.answers: list[tuple[int, int, bool]] = []
        """The partition and offset of each request that was answered, and whether its records are persisted.
        """

    def _open(self, directory: Path, index: int, config: LogConfig) -> Partition:
        directory.mkdir(parents=True)
        log = PartitionLog(
            self.environment,
            str(directory),
            topic=self.topics[index] if index < len(self.topics) else "flights",
            partition=index,
            topic_id=uuid.UUID(int=7),
            config=config,
            now_ms=NOW_MS,
            is_new=True,
        )
        return Partition(log, self.flusher, leader_epoch=0, flush_messages=1, flush_ms=FLUSH_NEVER)

    @property
    def partition(self) -> Partition:
        return self.partitions[0]

    @property
    def log(self) -> PartitionLog:
        return self.partitions[0].log

    def append(self, index: int = 0, *, count: int = 1, size: int = 20) -> int:
        """Append a batch and wait for it as a Produce does; return its last offset."""
        partition = self.partitions[index]
        offset = partition.append(batch(count, size=size), NOW_MS).last_offset
        partition.when_decided(
            offset, lambda is_persisted: self.answers.append((index, offset, is_persisted))
        )
        return offset

    def run(self, seconds: float = 0.5) -> None:
        """Let virtual time pass, unless told otherwise enough for threads and a put."""
        done = self.loop.create_future()
        self.loop.call_later(seconds, done.set_result, None)
        self.loop.run_until_complete(done)
        assert not self.loop.unhandled

    def finish(self) -> None:
        """Wait until everything is durable, and check that objects have it."""
        self.loop.run_until_complete(self.flusher.idle())
        self.check()

    def check(self) -> None:
        stored = Stored()
        for rows, data in self.held.objects:
            stored.add(rows, data)
        for partition in self.partitions:
            stored.check(partition.log)
