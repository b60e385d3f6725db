"""A session with a few partitions whose round of uploads is interrupted at any step, and what the bucket must
have afterwards.

A step is a call to the store, or work in a thread. At one of them an event happens, once. Then the round goes
on.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from seqgate.gateway.cluster.objects.objects import Refused, StoreFailed
from seqgate.gateway.cluster.parts.manifest import (
    PREFIX,
    Manifest,
    Overtaken,
    PartitionKey,
    decode_manifest,
    part_key,
)
from seqgate.gateway.cluster.rebuild.history import MetadataPlace, StoredTopic, rebuild
from seqgate.gateway.cluster.uploads.collection import Coverage, RecordingWal
from seqgate.gateway.cluster.uploads.partition_uploads import UploadedPartitions, UploadLimits
from seqgate.gateway.cluster.uploads.uploads import Uploads
from seqgate.gateway.cluster.wal.ended import EndedSession
from seqgate.gateway.cluster.wal.session_wal import SessionFenced, SessionWal
from seqgate.gateway.cluster.wal.sessions import Session, SessionFacts, decode_boundary, register
from seqgate.gateway.cluster.wal.wal_object import Seal, boundary_key, encode_seal, object_key
from seqgate.gateway.runtime.partitions.object_flusher import ObjectFlusher
from seqgate.gateway.runtime.partitions.partition import FLUSH_NEVER, Partition, persist_start_and_remove
from seqgate.gateway.runtime.partitions.unwritten import PutLimits
from seqgate.log import CachedDurability, LogConfig, LogDirectory, PartitionLog, Storage, retention
from seqgate.log.cleaning import begin_swap, finish_swap, replace_sources
from seqgate.log.rebuilding import RebuiltDirectory
from tests.log.compaction.cleaning import begin, compact, keyed, stored
from tests.log.compaction.cleaning import run as cleaned_by
from tests.log.support import NOW_MS
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import SimulatedClock, SimulatedMachine
from tests.support.sealing import seal_earlier
from tests.support.simulated_objects import SimulatedBucket, SimulatedObjects

T = TypeVar("T")
METADATA = MetadataPlace(uuid.UUID(int=1), "__cluster_metadata")
PLAIN, COMPACTED, DELETED = uuid.UUID(int=5), uuid.UUID(int=6), uuid.UUID(int=7)
TOPICS = {PLAIN: "plain", COMPACTED: "compacted", DELETED: "deleted"}
CONFIG = LogConfig(
    segment_bytes=500, index_interval_bytes=100, file_delete_delay_ms=0, min_cleanable_dirty_ratio=0
)
KEYS = 5
TROUBLE_S = 20.0
"""How long an event lasts that ends by itself."""
SWAP_S = 0.03
"""The time between the two steps of a swap, in which some calls are made."""
LATER_MS = 86_400_000
"""By how much the clock of searches for orphans is ahead, so that all objects are old enough."""
ENDED = (SessionFenced, Overtaken)
PASSING = (StoreFailed, Refused)


class StepLoop(SimulatedLoop):
    """A loop that tells of each piece of work in a thread."""

    step: Callable[[], None] = staticmethod(lambda: None)

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        self.step()
        return super().run_in_executor(executor, func, *args)


class StepObjects(SimulatedObjects):
    """A store that tells of each call before it is made."""

    step: Callable[[], None] = staticmethod(lambda: None)

    async def _call(self, *arguments: Any) -> Any:
        self.step()
        return await super()._call(*arguments)


class KnownSessions:
    """The sessions that have ended, as a test says."""

    def __init__(self) -> None:
        self.known: list[EndedSession] = []
        self.running = 0
        """The number below which all sessions have ended."""
        self.is_collector = True

    async def ended(self) -> Sequence[EndedSession]:
        return self.known

    async def first_running(self) -> int:
        return self.running

    def collects(self) -> bool:
        return self.is_collector


class Walk:
    """The session, with a history that a first round has uploaded and a second round will."""

    def __init__(self, root: Path) -> None:
        self.loop = StepLoop(Random(1))
        self.bucket = SimulatedBucket()
        self.objects = StepObjects(self.bucket, name="session")
        self.storage = Storage().with_holes()
        self.topics = dict(TOPICS)
        self.root = root
        self.acked: dict[PartitionKey, dict[int, tuple[bytes, bytes]]] = {}
        """The acknowledged records of each partition: key and value by offset."""
        self.steps = 0
        self.at = 0
        self.event: Callable[[Walk], None] = lambda _: None
        self.sealed: SimulatedBucket | None = None
        """The bucket at the moment of the takeover."""
        self.errors: list[BaseException] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.sessions = KnownSessions()
        self.run(self._begin())

    def run(self, work: Awaitable[T]) -> T:
        async def main() -> T:
            return await work

        result = self.loop.run_until_complete(main())
        assert not self.loop.unhandled, self.loop.unhandled
        return result

    # --- the session

    async def _begin(self) -> None:
        session = await register(
            self.objects, 1, SessionFacts("cluster", 0, "host", "test"), chance=Random(1)
        )
        self.wal = SessionWal(
            self.objects, session, puts_in_flight=3, seconds=self.loop.time, chance=Random(1)
        )
        durability = CachedDurability(self.storage)
        self.coverage = Coverage()
        self.flusher = ObjectFlusher(
            self.loop,
            wal=RecordingWal(self.wal, self.coverage),
            durability=durability,
            limits=PutLimits(puts_per_second=1000, puts_in_flight=3, put_max_bytes=2000),
            machine=SimulatedMachine(self.loop, SimulatedClock(self.loop), self.storage, Random(1)),
        )
        self.flusher.start()
        self.directory = LogDirectory.open(
            self.root / "cache",
            self.storage,
            node_id=1,
            now_ms=lambda: NOW_MS,
            config=CONFIG,
            durability=durability,
        )
        self.served: dict[PartitionKey, Partition] = {}
        self.withheld: set[PartitionKey] = set()
        self.restored: dict[PartitionKey, Manifest] = {}
        self.create(METADATA.topic_id, METADATA.topic)
        for topic_id, topic in TOPICS.items():
            self.create(topic_id, topic)

        self.uploads = Uploads(
            self.objects,
            self.storage,
            self.wal,
            self.coverage,
            self.sessions,
            UploadedPartitions(
                lambda: (key for key in self._all() if key not in self.withheld),
                self._open_log,
                self._flushed,
                self._exists,
                self._catch_up,
                self.withheld.__contains__,
            ),
            UploadLimits(600.0, 1 << 28, 1e4),
            self.loop.time,
            lambda: NOW_MS + LATER_MS,
            self.restored,
        )

    def create(self, topic_id: uuid.UUID, topic: str) -> Partition:
        config = CONFIG if topic_id != COMPACTED else LogConfig(**{**_fields(CONFIG), "compact": True})
        log = self.directory.create(topic, topic_id, 0, config)
        partition = Partition(log, self.flusher, leader_epoch=0, flush_messages=1, flush_ms=FLUSH_NEVER)
        self.served[PartitionKey(topic_id, 0)] = partition
        return partition

    def _all(self) -> Iterable[PartitionKey]:
        yield PartitionKey(METADATA.topic_id, 0)
        yield from (PartitionKey(topic_id, 0) for topic_id in self.topics)

    async def _catch_up(self) -> None:
        """Nobody else changes the topics of the test."""

    def _exists(self, partition: PartitionKey) -> bool:
        return partition in set(self._all())

    async def _open_log(self, key: PartitionKey) -> PartitionLog | None:
        return next((log for log in self.directory.logs() if (log.topic_id, log.partition) == key), None)

    async def _flushed(self, log: PartitionLog) -> None:
        await self.flusher.flushed(log, self.served.get(PartitionKey(log.topic_id, log.partition)))

    def append(self, key: PartitionKey, count: int) -> None:
        """Append records one by one, and note each once it is acknowledged."""
        partition = self.served[key]
        acked = self.acked.setdefault(key, {})
        for _ in range(count):
            offset = partition.log.log_end_offset
            pair = (f"k{offset % KEYS}", f"v{offset}")
            partition.append(keyed(pair), NOW_MS)
            content = (pair[0].encode(), pair[1].encode())

            def decided(is_persisted: bool, at: int = offset, content: tuple[bytes, bytes] = content) -> None:
                if is_persisted:
                    acked[at] = content

            partition.when_decided(offset, decided)

    def prepare(self) -> None:
        """Upload a first history, then change every partition in another way."""
        keys = [PartitionKey(topic_id, 0) for topic_id in (METADATA.topic_id, *TOPICS)]
        for _ in range(4):  # a new log does not roll before its first flush
            for key in keys:
                self.append(key, 6)
            self.run(self.flusher.idle())
        self.run(self.uploads.round())
        for key in keys:
            self.append(key, 12)
        self.run(self.flusher.idle())
        self.delete_records(8)
        self.run(asyncio.gather(*self.tasks))
        self.compact()
        self.delete_topic(DELETED)
        self.run(self.flusher.idle())

    # --- what may happen

    @property
    def plain(self) -> Partition:
        return self.served[PartitionKey(PLAIN, 0)]

    @property
    def compacted(self) -> Partition:
        return self.served[PartitionKey(COMPACTED, 0)]

    def delete_records(self, offset: int) -> None:
        if PartitionKey(PLAIN, 0) not in self.served or self.plain.log.offline:
            return
        ticket = retention.prepare_delete_records(self.plain.log, offset, NOW_MS)
        if ticket is not None:
            self.tasks.append(self.loop.create_task(persist_start_and_remove(self.plain, ticket, NOW_MS)))

    def compact(self) -> None:
        log = self.compacted.log
        if not log.offline and log.recovery_point == log.log_end_offset:
            compact(log, self.storage, now_ms=NOW_MS)

    def compact_slowly(self) -> None:
        """Clean the compacted partition now, and swap its segments in one after the other while other work
        goes on.
        """
        log = self.compacted.log
        if log.offline or log.recovery_point < log.log_end_offset:
            return
        cleaning = begin(log, now_ms=NOW_MS)
        segments, _ = cleaned_by(self.storage, cleaning)

        async def swap() -> None:
            for segment in segments:
                ticket = begin_swap(log, cleaning, segment)
                if ticket is None:
                    return
                await asyncio.to_thread(ticket.read_and_run)
                if not replace_sources(log, ticket, NOW_MS):
                    return
                await asyncio.sleep(SWAP_S)
                await asyncio.to_thread(ticket.run)
                if not finish_swap(log, ticket):
                    return

        self.tasks.append(self.loop.create_task(swap()))

    def delete_topic(self, topic_id: uuid.UUID) -> str:
        """Delete a topic, whose removal is durable in the metadata."""
        topic = self.topics.pop(topic_id)
        self.served.pop(PartitionKey(topic_id, 0)).close()
        self.directory.delete(topic, 0)
        self.acked.pop(PartitionKey(topic_id, 0), None)
        return topic

    def recreate(self, topic_id: uuid.UUID) -> None:
        """Delete a topic, and create another one of the same name with records."""
        self.directory.checkpoint()
        topic = self.delete_topic(topic_id)
        self.directory.checkpoint()
        fresh = uuid.UUID(int=topic_id.int + 100)
        self.topics[fresh] = topic
        self.create(fresh, topic)
        self.append(PartitionKey(fresh, 0), 9)

    def reopen(self, partition: Partition) -> None:
        if partition.log.offline and not partition.closed:
            partition.log.reopen(NOW_MS)
            partition.start_flush()
            partition.flush_finished()

    def take_over(self) -> None:
        """Seal the session at this moment, as another gateway would, and remember what this gateway finds in
        the bucket.
        """
        key = boundary_key(1, self.wal.session.session)
        boundary = self.bucket.content(key)
        seq = 0 if boundary is None else decode_boundary(boundary, key)
        while self.bucket.content(place := object_key(1, self.wal.session.session, seq)) is not None:
            seq += 1
        seal = Seal(1, self.wal.session.session, seq, b"t" * 16, 2, "taken over")
        self.bucket.create(place, encode_seal(seal), self.loop.time())
        self.sealed = SimulatedBucket(objects=dict(self.bucket.objects))

    # --- the round

    def walk(
        self,
        at: int,
        event: Callable[[Walk], None],
        work: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> bool:
        """Run the second round, or other work, with the event at this step; return whether there were so many
        steps.
        """
        self.at, self.event = at, event
        self.loop.step = self.objects.step = self._step  # type: ignore[method-assign]
        self.round = self.loop.create_task((work or self.uploads.round)())
        self.run(asyncio.wait([self.round], timeout=3600))
        self.loop.step = self.objects.step = lambda: None  # type: ignore[method-assign]
        assert self.round.done(), "the round hangs"
        if not self.round.cancelled() and (error := self.round.exception()) is not None:
            assert isinstance(error, (*ENDED, *PASSING)), error
            self.errors.append(error)
        return self.steps >= at

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            self.event(self)

    def finish(self) -> None:
        """Let the rounds go on until the bucket has everything, and check that it has nothing else."""
        self.run(asyncio.sleep(TROUBLE_S))
        for partition in list(self.served.values()):
            self.reopen(partition)
        self.run(asyncio.wait_for(asyncio.gather(*self.tasks, return_exceptions=True), 600))
        self.run(asyncio.wait_for(self.flusher.idle(), 600))
        for _ in range(3):
            self.run(asyncio.wait_for(self.uploads.round(), 600))
        assert self.coverage.size_bytes == 0
        self.run(self.uploads.sweep())
        self._check_nothing_else()

    def _check_nothing_else(self) -> None:
        named = set()
        for key in self.bucket.keys(PREFIX):
            if key.endswith("/manifest"):
                manifest = decode_manifest(self.bucket.get(key), key)
                named |= {key, *(part_key(manifest.key, name) for name in manifest.objects)}
        assert set(self.bucket.keys(PREFIX)) == named
        assert self.wal.unconfirmed_bytes == 0

    def end(self) -> None:
        """Stop the session without a seal."""
        self.run(self.wal.close())
        self.directory.close(clean=False)

    # --- what a start has

    def check(self, bucket: SimulatedBucket, name: str) -> None:
        """Rebuild a data directory from the bucket alone, and check that it has every acknowledged record."""
        directory = self.run(self._rebuilt(bucket, self.root / name))
        for key, acked in self.acked.items():
            topic = METADATA.topic if key.topic_id == METADATA.topic_id else self.topics[key.topic_id]
            log = directory.get(topic, 0)
            assert log is not None or not acked, f"{topic} is missing"
            if log is None:
                continue
            found = {kept.offset: (kept.key, kept.value) for kept in stored(_readable(log))}
            newest = {pair[0]: offset for offset, pair in sorted(found.items())}
            for offset, pair in acked.items():
                if offset < log.log_start_offset or (
                    key.topic_id == COMPACTED and newest.get(pair[0], -1) > offset
                ):
                    continue
                assert found.get(offset) == pair, f"{topic}: the acknowledged record at {offset} is lost"
        directory.close(clean=False)

    async def _rebuilt(self, bucket: SimulatedBucket, path: Path) -> LogDirectory:
        objects = SimulatedObjects(SimulatedBucket(objects=dict(bucket.objects)), name="taker")
        own: Session = await register(
            objects, 2, SessionFacts("cluster", 0, "host", "test"), chance=Random(2)
        )
        sealed = await seal_earlier(objects, own, "taken over", chance=Random(2))
        ended = [
            EndedSession(known.node_id, known.session, known.nonce, log.end_seq) for known, log in sealed
        ]
        storage = Storage()
        directory = RebuiltDirectory.begin(storage, path, b"{}")
        await rebuild(objects, ended, directory, METADATA, self._read_topics)
        directory.finish(CachedDurability(storage), "cluster", 2)
        return LogDirectory.open(path, storage, node_id=2, now_ms=lambda: NOW_MS, config=CONFIG)

    def _read_topics(self, _: Path) -> Mapping[uuid.UUID, StoredTopic]:
        return {topic_id: StoredTopic(topic, 1) for topic_id, topic in self.topics.items()}


def manifests_in(bucket: SimulatedBucket) -> dict[PartitionKey, Manifest]:
    found = [
        decode_manifest(bucket.get(key), key) for key in bucket.keys(PREFIX) if key.endswith("/manifest")
    ]
    return {manifest.key: manifest for manifest in found}


def missing_of(manifests: Mapping[PartitionKey, Manifest], bucket: SimulatedBucket) -> set[str]:
    """Return the objects that the manifests name and the bucket lacks."""
    named = {part_key(key, name) for key, manifest in manifests.items() for name in manifest.objects}
    return named - set(bucket.objects)


def _readable(log: PartitionLog) -> PartitionLog:
    log.advance_high_watermark_to_end()
    return log


def _fields(config: LogConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in LogConfig.__dataclass_fields__}
