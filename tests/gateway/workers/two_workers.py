"""Two workers over one data directory in this process, whose supervisor's messages the test delivers when it
wants.
"""

from __future__ import annotations

import asyncio
import copy
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from seqgate.gateway.config import load_config
from seqgate.gateway.config.workers import worker_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.records import MetadataRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.workers.directory_storage import Commits
from seqgate.gateway.workers.link import Commit, FromSupervisor, FromWorker, Left
from seqgate.gateway.workers.shared_directory import SharedDirectory, share_of
from seqgate.gateway.workers.worker_brokers import WorkerStart, registration
from seqgate.gateway.workers.worker_process import WorkerProcess
from seqgate.log import Storage
from seqgate.log.files.checkpoints import decode_partition_metadata
from tests.support.batches import Batch, records

PATIENCE_S = 120.0
SETTINGS = ("seqgate.workers=2", "listeners=PLAINTEXT://127.0.0.1:0")


class LateWorker(WorkerProcess):
    """A worker that learns what it is told when the test says so."""

    is_held = False

    def __init__(self, number: int, connection: socket.socket) -> None:
        super().__init__(number, number, 0, connection, 0.0)
        self._late: list[FromSupervisor] = []

    def send(self, message: FromSupervisor) -> None:
        if self.is_held:
            self._late.append(message)
        else:
            super().send(message)

    def deliver(self) -> None:
        self.is_held = False
        late, self._late = self._late, []
        for message in late:
            self.send(message)


class TwoWorkers:
    """The workers 1 and 2, and their supervisor without its processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = load_config(None, {}, [f"log.dirs={root}", *SETTINGS])
        self.shared = SharedDirectory(Storage(), root, 1, lambda: int(time.time() * 1000))
        self.processes: dict[int, WorkerProcess] = {}
        self.gateways: dict[int, Gateway] = {}
        self.commits = Commits(self.shared.metadata, self.processes, self.shared.take_away)
        self._supervising: asyncio.Task[None] | None = None

    async def start(self) -> None:
        endpoints = {"PLAINTEXT": ("127.0.0.1", 9)}
        self.shared.share_out([registration(n, n, uuid.uuid4(), endpoints, None) for n in (1, 2)])
        self._supervising = asyncio.create_task(self._supervise())
        for number in (1, 2):
            await self.start_worker(number)

    async def start_worker(self, number: int) -> None:
        ours, theirs = socket.socketpair()
        image = copy.deepcopy(self.shared.metadata.image)  # a fork has one of its own
        share, end_offset = share_of(self.root, number, image), self.shared.metadata.end_offset
        worker_start = WorkerStart(1, share, image, end_offset, theirs)
        self.gateways[number] = Gateway(worker_config(self.config, number), worker_start=worker_start)
        self.processes[number] = LateWorker(number, ours)
        await self.gateways[number].start()
        theirs.close()

    def late(self, number: int) -> LateWorker:
        process = self.processes[number]
        assert isinstance(process, LateWorker)
        return process

    async def _supervise(self) -> None:
        while True:
            for process in list(self.processes.values()):
                for message in process.read(time.monotonic()):
                    self._take(process, message)
            self.commits.run_due(time.monotonic())
            await asyncio.sleep(0.001)

    def _take(self, process: WorkerProcess, message: FromWorker) -> None:
        if isinstance(message, Commit):
            self.commits.take(process, message, time.monotonic())
        elif isinstance(message, Left):
            self.commits.left(process, message.topic_id)

    async def commit(self, number: int, *changes: MetadataRecord) -> None:
        metadata_log = self.gateways[number].services.topics.metadata_log
        await metadata_log.commit(lambda _: Decision(changes, None))

    def creating(self, number: int, topic_id: int, *leaders: int) -> asyncio.Task[None]:
        """Create the topic `t` with a partition on each of these leaders."""
        unique = uuid.UUID(int=topic_id)
        partitions = [
            PartitionRecord(index, unique, (leader,), (leader,), leader, 0)
            for index, leader in enumerate(leaders)
        ]
        return asyncio.create_task(self.commit(number, TopicRecord("t", unique), *partitions))

    async def remove(self, number: int, topic_id: int) -> None:
        await self.commit(number, RemoveTopicRecord(uuid.UUID(int=topic_id)))

    def partition(self, number: int, index: int) -> Partition | None:
        return self.gateways[number].services.partitions.registry.get("t", index)

    async def write(self, number: int, index: int, count: int) -> None:
        """Append records, and wait until they are durable."""
        partition = self.partition(number, index)
        assert partition is not None
        partition.append(Batch(records(count)).encode(), int(time.time() * 1000))
        await until(lambda: partition.log.recovery_point == partition.log.log_end_offset)

    def stored_id(self, index: int) -> int | None:
        """Return the topic id in the directory of a partition; None without the directory."""
        path = self.root / f"t-{index}" / "partition.metadata"
        if not path.exists():
            return None
        return decode_partition_metadata(path.read_bytes(), str(path)).int

    async def stop(self) -> None:
        assert self._supervising is not None
        for number in self.processes:
            self.late(number).deliver()
        for gateway in self.gateways.values():
            await gateway.stop()
        self._supervising.cancel()
        for process in self.processes.values():
            process.close()
        self.shared.close()


@asynccontextmanager
async def two_workers(root: Path) -> AsyncIterator[TwoWorkers]:
    workers = TwoWorkers(root)
    await workers.start()
    try:
        yield workers
    finally:
        await workers.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)
