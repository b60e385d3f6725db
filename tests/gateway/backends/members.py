"""Gateways without sockets over one bucket. A test decides who leads what, as the shared metadata of a
cluster would.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from seqgate.gateway.backends.adoptions import Adoptions
from seqgate.gateway.backends.bucket_backend import uploaded_partitions
from seqgate.gateway.cluster.cache.bucket import BucketThread, WaitingSource
from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.gateway.cluster.parts.manifest import Manifest, PartitionKey
from seqgate.gateway.cluster.uploads.collection import Coverage, RecordingWal
from seqgate.gateway.cluster.uploads.partition_uploads import UploadedPartitions, UploadLimits
from seqgate.gateway.cluster.uploads.uploads import Uploads
from seqgate.gateway.cluster.wal.ended import EndedSession, seal
from seqgate.gateway.cluster.wal.session_wal import SessionWal
from seqgate.gateway.cluster.wal.sessions import SessionFacts, register
from seqgate.gateway.metadata.records import (
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.topics.metadata_log import METADATA_TOPIC_ID
from seqgate.log import Storage
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.gateway.handlers.two_brokers import commit
from tests.support.batches import Batch, records
from tests.support.wire import Plain

PATIENCE_S = 120.0
SETTINGS = (
    "seqgate.cluster.puts.per.second=1000",
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
)


class TestSessions:
    """The ended sessions, as the tests end them. While `gate` is closed, nobody learns of them."""

    __test__ = False

    def __init__(self, known: list[EndedSession]) -> None:
        self.known = known
        self.gate = asyncio.Event()
        self.gate.set()
        self.running = 0

    async def ended(self) -> Sequence[EndedSession]:
        await self.gate.wait()
        return sorted(self.known, key=lambda each: each.session)

    async def first_running(self) -> int:
        return self.running

    def collects(self) -> bool:
        return True


class Member:
    """One gateway of the cluster."""

    def __init__(
        self, node: Node, wal: SessionWal, uploads: Uploads, adoptions: Adoptions, sessions: TestSessions
    ) -> None:
        self.node = node
        self.node_id = wal.session.node_id
        self.wal = wal
        self.uploads = uploads
        self.adoptions = adoptions
        self.sessions = sessions
        self.asking = Asking(node)

    def partition(self, topic: str, index: int = 0) -> Partition:
        found = self.node.services.partitions.registry.get(topic, index)
        assert found is not None
        return found

    async def produce(
        self, topic: str, sequence: int, producer_id: int = 7, index: int = 0, **fields: int
    ) -> Plain:
        """Produce one record; return the row of the answer."""
        batch = Batch(
            records(1),
            base_timestamp=NOW_MS,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            **fields,  # type: ignore[arg-type]
        ).encode()
        answer = await self.asking.ask(
            "produce",
            10,
            transactional_id=None,
            acks=-1,
            timeout=1000,
            topic_data=[{"name": topic, "partition_data": [{"index": index, "records": batch}]}],
        )
        row: Plain = answer["responses"][0]["partition_responses"][0]
        return row

    async def until_ready(self, topic: str, index: int = 0) -> None:
        lifecycle = self.node.services.topics.lifecycle
        await until(lambda: lifecycle.leads(topic, index))


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


class Members:
    """The gateways of a test over one bucket."""

    def __init__(self, tmp_path: Path, objects: Callable[[], ObjectStore]) -> None:
        self._tmp_path = tmp_path
        self._objects = objects
        self._stack = AsyncExitStack()
        self.all: list[Member] = []
        self.ended: list[EndedSession] = []
        self.history: list[MetadataRecord] = []
        """All metadata, for gateways that join later."""

    async def join(self, node_id: int) -> Member:
        """Start a gateway; it gets all metadata at once, as a start would have read it."""
        member = await self._stack.enter_async_context(self._running(node_id))
        self.all.append(member)
        return member

    @asynccontextmanager
    async def _running(self, node_id: int) -> AsyncIterator[Member]:
        objects = self._objects()
        session = await register(objects, node_id, SessionFacts("cluster", NOW_MS, "host", "test"))
        wal = SessionWal(objects, session, puts_in_flight=4)
        coverage = Coverage()
        storage = Storage().with_holes()
        restored: dict[PartitionKey, Manifest] = {}
        assert storage.sparse is not None
        calls = BucketThread(self._objects)
        storage.sparse.source = WaitingSource(calls, restored)
        adoptions = Adoptions(restored)
        sessions = TestSessions(self.ended)
        path = self._tmp_path / f"cache-{session.session}"
        async with open_node(
            path,
            f"node.id={node_id}",
            *SETTINGS,
            storage=storage,
            wal=RecordingWal(wal, coverage),
            readiness=adoptions,
        ) as node:
            ports = uploaded_partitions(node.services)
            uploads = Uploads(
                objects,
                storage,
                wal,
                coverage,
                sessions,
                UploadedPartitions(
                    lambda: (key for key in ports.all() if key.topic_id != METADATA_TOPIC_ID),
                    ports.open_log,
                    ports.flushed,
                    lambda key: key.topic_id != METADATA_TOPIC_ID and ports.exists(key),
                    ports.catch_up,
                    ports.is_withheld,
                ),
                UploadLimits(600.0, 1 << 28, 1e9),
                asyncio.get_running_loop().time,
                lambda: NOW_MS,
                restored,
            )
            adoptions.start(node.services, objects, storage, sessions, uploads)
            node.services.upkeep.find_uploads = lambda: uploads
            if self.history:
                await commit(node, *self.history)
            yield Member(node, wal, uploads, adoptions, sessions)
            await adoptions.stop()
            if wal.is_fenced:
                node.services.partitions.flusher.give_up("the session is over")
        await wal.close()
        calls.close()
        await objects.close()

    async def change(self, *records: MetadataRecord) -> None:
        """Change the metadata of all gateways."""
        self.history += records
        for member in self.all:
            if not member.wal.is_fenced:
                await commit(member.node, *records)

    async def brokers(self) -> None:
        """Register all gateways as brokers."""
        for member in self.all:
            await self.change(
                RegisterBrokerRecord(
                    member.node_id, uuid.UUID(int=member.node_id), member.wal.session.session, ()
                )
            )

    async def topic(self, name: str, topic_id: uuid.UUID, leader: Member, partitions: int = 1) -> None:
        await self.change(
            TopicRecord(name, topic_id),
            *(led(topic_id, index, leader.node_id, 0) for index in range(partitions)),
        )

    async def seal(self, member: Member) -> None:
        """End the session of a gateway; it does not know yet."""
        number, node_id, nonce, *_ = member.wal.session
        log = await seal(self._objects(), node_id, number, 99, "taken over", nonce=nonce)
        self.ended.append(EndedSession(node_id, number, nonce, log.end_seq))

    async def end(self, member: Member) -> None:
        """End the session of a gateway, and let the gateway notice."""
        await self.seal(member)
        member.wal.put((), (), lambda: None)
        await until(lambda: member.wal.is_fenced)

    async def close(self) -> None:
        await self._stack.aclose()


def led(topic_id: uuid.UUID, index: int, leader: int, leader_epoch: int) -> PartitionRecord:
    return PartitionRecord(index, topic_id, (leader,), (leader,), leader, leader_epoch)


@asynccontextmanager
async def members(tmp_path: Path, objects: Callable[[], ObjectStore] | None = None) -> AsyncIterator[Members]:
    """Open a cluster without gateways; its bucket is a directory, unless `objects` opens another one."""
    (tmp_path / "bucket").mkdir(parents=True, exist_ok=True)
    made = Members(tmp_path, objects or (lambda: DirectoryObjects(tmp_path / "bucket")))
    try:
        yield made
    finally:
        await made.close()
