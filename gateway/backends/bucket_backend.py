"""A backend in a bucket: records are durable in the session's write-ahead log; the local disk is a cache.

A start registers a session and seals the earlier sessions of its own node, which then can't acknowledge
anything any more (`BucketStart`). Then the data directory is rebuilt from the bucket, unless the last session
of the cluster ended on this very disk by a clean stop. Once the gateway serves, it joins the other gateways
of the bucket (`ClusterMembership`) and adopts the partitions that they give it (`Adoptions`).

Before a gateway stops and others take over, it uploads what only the write-ahead log of its session has.
Requests are served meanwhile. Who takes over reads the rest of that log, and until then nobody serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn

from seqgate.gateway.admin.request import in_words
from seqgate.gateway.backends.adoptions import Adoptions
from seqgate.gateway.backends.backend import Backend, Ended, StartFailed
from seqgate.gateway.backends.bucket_start import BucketStart, StartChecks, Started
from seqgate.gateway.backends.cluster_membership import ClusterMembership, heartbeat_s
from seqgate.gateway.backends.local_cache import LocalCache
from seqgate.gateway.backends.metadata_snapshots import MetadataSnapshots
from seqgate.gateway.cluster.bucket_reads import BucketReads
from seqgate.gateway.cluster.cache.local_caches import CacheState
from seqgate.gateway.cluster.metadata.change import CorruptChange
from seqgate.gateway.cluster.objects.objects import CountedObjects, Counts, ObjectStore, Refused, StoreFailed
from seqgate.gateway.cluster.objects.probe import probe
from seqgate.gateway.cluster.parts.manifest import Overtaken, PartitionKey
from seqgate.gateway.cluster.parts.part_object import CorruptPart
from seqgate.gateway.cluster.rebuild.local_session import (
    LocalSession,
    read_local_session,
    write_local_session,
)
from seqgate.gateway.cluster.silence import Lease
from seqgate.gateway.cluster.uploads.collection import Coverage, RecordingWal
from seqgate.gateway.cluster.uploads.partition_uploads import UploadedPartitions, UploadLimits
from seqgate.gateway.cluster.uploads.uploads import Uploads
from seqgate.gateway.cluster.wal.backups import SessionHolds
from seqgate.gateway.cluster.wal.ended import StoredSessions
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.session_wal import SessionFenced, SessionWal
from seqgate.gateway.cluster.wal.sessions import CorruptRegistration, LogShortened, RegisteredSession
from seqgate.gateway.cluster.wal.wal_object import CorruptWalObject
from seqgate.gateway.config import Config
from seqgate.gateway.config.cluster import LEADER_SELECTOR
from seqgate.gateway.metadata.records import UnknownRecordError
from seqgate.gateway.runtime.composition import Surroundings
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.partitions.flusher import LogFlusher
from seqgate.gateway.runtime.partitions.object_flusher import ObjectFlusher
from seqgate.gateway.runtime.partitions.unwritten import PutLimits
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.gateway.runtime.topics.read_replicas import LeaderStarts, ReadReplicas
from seqgate.gateway.runtime.topics.shared_journal import SharedJournal
from seqgate.gateway.runtime.topics.stored_image import session_state
from seqgate.gateway.server.server import RECEIVE_BUFFER_BYTES
from seqgate.gateway.tasks import end_tasks, settle
from seqgate.log import (
    CachedDurability,
    DirectoryLocked,
    Durability,
    IncompatibleFormat,
    KeptWrites,
    LocalDurability,
    LogError,
    NeedsRecovery,
    PartitionLog,
    StorageFailed,
)
from seqgate.log.stopped import LOCK

logger = logging.getLogger(__name__)

STOPPED: Final = "the gateway stopped"
STOP_TIMEOUT_S = 30.0
"""How long a stop waits for the store to take the last records and the seal."""
UPLOADED_WITHIN_S: Final = 10.0
"""How long a gateway that is told to stop serves and uploads. Who takes over reads what is unfinished."""
CALL_LIMIT_MARGIN_S = 30.0
"""How much longer than a request may take the session waits for a call: the store's client gives up first."""


_UNUSABLE: Final = (
    Refused,
    CorruptRegistration,
    CorruptChange,
    CorruptWalObject,
    CorruptPart,
    LogShortened,
    UnknownRecordError,
)


class BucketBackend(Backend):
    """The bucket of `seqgate.cluster`, which gateways share, and the data directory as its cache."""

    def __init__(self, config: Config, machine: Machine) -> None:
        super().__init__(config, machine)
        self._address = config.str("seqgate.cluster")
        self._path = Path(config.str("log.dirs"))
        self._cache = LocalCache(config, machine)
        self._checks = StartChecks(machine.storage, self._path, self._address)
        kept_writes = KeptWrites(
            least_bytes=RECEIVE_BUFFER_BYTES, max_bytes=config.int("seqgate.cluster.unwritten.max.bytes")
        )
        self._cached = self.durability = CachedDurability(machine.storage, kept_writes)
        self._calls = Counts()
        self._objects: ObjectStore
        self.wal: SessionWal
        self._coverage = Coverage(machine.seconds)
        self._adoptions: Adoptions
        self._uploads: Uploads | None = None
        self._membership: ClusterMembership | None = None
        self._reading: ReplicaReading | None = None
        self._end: asyncio.Future[str]
        self._beat: asyncio.Task[None] | None = None
        self._started: Started
        self._flusher: ObjectFlusher
        self._journal: SharedJournal | None = None
        self._tail: asyncio.Task[None] | None = None
        self._snapshots: MetadataSnapshots | None = None

    @property
    def calls(self) -> Counts:
        return self._calls + self._cache.calls

    @property
    def cache(self) -> CacheState | None:
        return self._cache.state()

    @property
    def uploads(self) -> Uploads | None:
        return self._uploads

    def surroundings(self) -> Surroundings:
        lease_s = self._config.int("seqgate.cluster.lease.ms") / 1000
        return Surroundings(
            self._cache.blocks,
            self._adoptions,
            Lease(self.wal, lease_s, self._machine.boot_seconds),
            self._cache.blocks.held,
            has_whole_directory=False,
            find_uploads=lambda: self._uploads,
            holds=SessionHolds(self._objects, self.wal, lease_s, lambda: self._started.shared.next_seq),
        )

    async def check(self) -> None:
        """Refuse a directory that is no cache of the bucket, and settings that can't open the bucket."""
        heartbeat_s(self._config)
        with self._refusing():
            self._checks.check_directory()
            await self._machine.objects(self._config).close()

    async def enter(self) -> None:
        """Begin a session, and make the data directory what the bucket has. Raises StartFailed."""
        self._end = asyncio.get_running_loop().create_future()
        heartbeat_s(self._config)
        with self._refusing():
            self._checks.check_directory()
            self._checks.check_unlocked()
            self._objects = CountedObjects(self._machine.objects(self._config), self._calls)
            self._cache.open(self._objects)
            try:
                await self._enter()
            except BaseException:
                await self._objects.close()
                self._cache.close()
                raise

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn the errors of a start into a sentence. Raises StartFailed."""
        try:
            yield
        except _UNUSABLE as error:
            raise StartFailed(f"the cluster {self._address} can't be used: {error}") from error
        except (LogError, IncompatibleFormat, DirectoryLocked, OSError) as error:
            raise StartFailed(
                f"the data directory {self._path} can't become the cache of {self._address}: "
                f"{in_words(error)}"
            ) from error

    async def _enter(self) -> None:
        objects = self._objects
        reads = PersistentReads(objects, "the gateway waits to check the store")
        await reads.answered(lambda: probe(objects, uuid.uuid4().hex))
        await self._checks.check_imported(reads)
        start = BucketStart(self._config, self._machine, objects, self._cache, self._checks, self.durability)
        self._started = started = await start.run()
        session = started.session
        write_local_session(self._machine.storage, str(self._path), started.local)
        self._adoptions = Adoptions(self._cache.restored, started.has, has_joined=False)
        self.wal = SessionWal(
            objects,
            session,
            puts_in_flight=self._config.int("seqgate.cluster.puts.in.flight"),
            seconds=self._machine.boot_seconds,
            call_limit_s=self._config.int("seqgate.cluster.request.timeout.ms") / 1000 + CALL_LIMIT_MARGIN_S,
        )
        self.wal.on_fenced.append(self._fenced)
        try:
            # What was read is the newest only if this session was in force after that.
            await self.wal.barrier()
        except SessionFenced as error:
            raise StartFailed(
                f"another gateway has taken the cluster {self._address} over: {error}"
            ) from error
        except asyncio.CancelledError:
            await self.wal.close()
            raise
        logger.info(
            "session %d of the cluster %s in %s begins", session.session, session.cluster_id, self._address
        )

    def flusher(self, loop: asyncio.AbstractEventLoop, durability: Durability) -> LogFlusher:
        """Return the flusher whose rounds are objects of the session, and begin to watch for its end."""
        assert isinstance(durability, CachedDurability)
        self._beat = loop.create_task(self._beat_while_idle(), name="heartbeat of the session")
        limits = PutLimits.of(self._config)
        wal = RecordingWal(self.wal, self._coverage)
        self._flusher = ObjectFlusher(
            loop, wal=wal, durability=durability, limits=limits, machine=self._machine
        )
        return self._flusher

    def journal(self, log: PartitionLog, flusher: LogFlusher) -> SharedJournal:  # noqa: ARG002 - not local
        """Return the journal of the shared metadata. Changes fail once the session or the flusher ends."""
        session, node_id, *_ = self.wal.session
        self._journal = journal = SharedJournal(
            log,
            self._started.shared,
            self._cached,
            self._machine.clock,
            lambda image: image.brokers.why_ended(node_id, session),
        )
        journal.on_ended.append(self._fenced)
        self._flusher.when_given_up.append(journal.give_up)
        return journal

    async def begin(self, services: Services) -> None:
        """Begin to upload the history of partitions, join the cluster, and adopt what this gateway leads."""
        clock, image, shared = self._machine.clock, services.topics.metadata_log.image, self._started.shared

        async def registered() -> Sequence[RegisteredSession]:
            return list(shared.sessions)

        def passed(boundary: int) -> None:
            image.brokers.forget_ended(boundary)
            shared.drop({each.session for each in shared.sessions if each.session < boundary})

        sessions = StoredSessions(
            self._objects,
            self.wal.session,
            registered,
            lambda session: session_state(image.brokers, session),
            lambda: services.node.brokers.controller_id == services.node.node_id,
            clock.now_ms,
            passed,
        )
        limits = UploadLimits(
            self._config.int("seqgate.cluster.upload.interval.ms") / 1000,
            self._config.int("seqgate.cluster.wal.max.bytes"),
            self._config.int("seqgate.cluster.orphan.age.ms") / 1000,
        )
        self._uploads = Uploads(
            self._objects,
            self._machine.storage,
            self.wal,
            self._coverage,
            sessions,
            uploaded_partitions(services),
            limits,
            self._machine.seconds,
            clock.now_ms,
            self._cache.restored,
        )
        self._uploads.ended.when_collected.append(lambda session: shared.drop({session}))
        self._uploads.start()
        self._adoptions.start(services, self._objects, self._machine.storage, sessions, self._uploads)
        self._cache.serve(services.partitions.log_directory)
        if self._journal is None:
            self._adoptions.joined()
            return
        following = self._follow_metadata(self._journal, services.topics.metadata_log)
        self._tail = services.node.loop.create_task(following, name="tail of the metadata")
        self._snapshots = MetadataSnapshots(
            self._objects,
            shared,
            image,
            sessions.collects,
            lambda: self._config.int("seqgate.cluster.metadata.snapshot.changes"),
            clock.now_ms,
        )
        self._snapshots.start()
        self._membership = ClusterMembership(
            self._config, self._machine, self._objects, self.wal, services, self._adoptions, self._fenced
        )
        await self._membership.join(replaces=self._started.replaces)
        self._adoptions.joined()
        if self._config.optional_str("replica.selector.class") not in {None, LEADER_SELECTOR}:
            self._reading = ReplicaReading(self._config, services, self._objects, self._uploads)

    async def prepare_stop(self) -> None:
        """Upload what only the write-ahead log has, as far as possible in UPLOADED_WITHIN_S: who takes over
        reads the rest of that log, and nobody serves meanwhile. A failure is logged: the stop goes on.
        """
        if self._uploads is None or self._membership is None or not self._membership.has_others:
            return
        logger.info(
            "uploads what only the write-ahead log has, for %.0f s at most, and serves meanwhile",
            UPLOADED_WITHIN_S,
        )
        try:
            async with asyncio.timeout(UPLOADED_WITHIN_S):
                await self._uploads.round()
        except TimeoutError:
            logger.info("the last upload did not end within %.0f s", UPLOADED_WITHIN_S)
        except (SessionFenced, Overtaken, Refused, StoreFailed, StorageFailed) as error:
            logger.warning("the last upload ended early: %s", error)
        except Exception:
            logger.exception("the last upload failed in an unexpected way")

    async def rest(self) -> None:
        if self._reading is not None:
            await self._reading.stop()
        if self._membership is not None:
            await self._membership.rest()
        await self._adoptions.stop()
        if self._snapshots is not None:
            await self._snapshots.stop()
        await end_tasks(self._tail)
        await self._cache.stop()
        if self._uploads is not None:
            await self._uploads.stop()

    async def resign(self, *, is_clean: bool) -> None:
        """Seal the session, and show its end in the metadata, so that other gateways serve at once."""
        if not is_clean or self._membership is None:
            return
        self._stop_beating()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.wal.seal(STOPPED)
        except (SessionFenced, TimeoutError) as error:
            logger.warning("the session can't be sealed: %s", str(error) or "the store does not answer")
        else:
            await self._membership.resign()

    async def _follow_metadata(self, journal: SharedJournal, metadata_log: MetadataLog) -> None:
        """Fold in what others changed, soon after; take the turn of a change only when there is something."""
        is_told = False
        while True:
            await asyncio.sleep(self._config.int("seqgate.cluster.metadata.poll.ms") / 1000)
            try:
                if await journal.has_more():
                    await metadata_log.catch_up()
                is_told = False
            except (StoreFailed, Refused, LogError) as error:
                if journal.has_ended:
                    logger.info("the metadata of the cluster is not followed any more: %s", error)
                    return
                level = logging.DEBUG if is_told else logging.WARNING
                logger.log(level, "the metadata of the cluster can't be read now: %s", error)
                is_told = True
            except Exception:
                logger.exception("a change of the metadata can't be folded in")

    async def _beat_while_idle(self) -> None:
        """Create an empty object after a while without another: so an idle gateway learns of a seal."""
        interval_s = heartbeat_s(self._config)
        while not self.wal.is_fenced:
            await asyncio.sleep(interval_s)
            if (
                not self.wal.in_flight
                and self._machine.boot_seconds() - self.wal.last_confirmed_sent_s >= interval_s
            ):
                self.wal.put((), (), lambda: None)

    def _stop_beating(self) -> None:
        if self._beat is not None:
            self._beat.cancel()

    def _fenced(self, sentence: str) -> None:
        settle(self._end, sentence)

    async def ended(self) -> NoReturn:
        raise Ended(
            "the gateway stops: its session has ended, and it may acknowledge nothing more. "
            f"{await self._end}"
        )

    async def leave(self, *, is_clean: bool) -> None:
        """Seal the session, and record on the local disk that the disk has all records of the bucket."""
        self._stop_beating()
        try:
            if is_clean:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    end = await self.wal.seal(STOPPED)
                if self._adoptions.has_all:
                    self._note_clean_stop(end)
        except (SessionFenced, TimeoutError, DirectoryLocked, IncompatibleFormat, OSError) as error:
            logger.warning(
                "the clean stop can't be recorded, so the next start rebuilds the data directory: %s",
                str(error) or "the store does not answer",
            )
        finally:
            await self.wal.close()
            await self._objects.close()
            self._cache.close()

    def _note_clean_stop(self, end: int) -> None:
        """Make the whole directory durable, then its BUCKET_SESSION, unless another gateway has the directory
        by now. Raises DirectoryLocked, IncompatibleFormat, OSError.
        """
        storage, running = self._machine.storage, self._started.local
        lock = str(self._path / LOCK)
        storage.lock(lock)
        try:
            flush = LocalDurability(storage).begin_common_flush(str(self._path))
            if flush is None or read_local_session(storage, str(self._path)) != running:
                return
            flush.run()
            manifests = self._cache.restored if self._uploads is None else self._uploads.local_manifests()
            self._cache.save(manifests.values())
            copied = None if self._journal is None else self._journal.copied
            seq, offset = copied or (None, None)
            stopped = LocalSession(running.address, running.cluster_id, running.session, end, seq, offset)
            write_local_session(storage, str(self._path), stopped)
        finally:
            storage.unlock(lock)


class ReplicaReading:
    """The reads here of what others lead, and the choice of who serves what this gateway leads (KIP-392)."""

    def __init__(self, config: Config, services: Services, objects: ObjectStore, uploads: Uploads) -> None:
        """Let fetches use both from now on."""
        node, image = services.node, services.topics.metadata_log.image
        self._partitions = services.partitions
        self._starts = LeaderStarts(image, node.brokers, node.peers)
        self._reads = BucketReads(
            objects, self._starts.ask, cache_bytes=config.int("seqgate.cluster.reading.cache.bytes")
        )
        replicas = ReadReplicas(
            config.str("replica.selector.class"),
            node.node_id,
            image,
            node.brokers,
            uploads.counting,
            node.loop.time,
        )
        self._partitions.let_replicas_serve(replicas, self._reads)

    async def stop(self) -> None:
        """Let only leaders serve; end what is being fetched."""
        self._partitions.let_replicas_serve(None, None)
        await self._reads.stop()
        await self._starts.stop()


def uploaded_partitions(services: Services) -> UploadedPartitions:
    """Return the partitions of a gateway as the uploads into its bucket see them."""
    found = _Uploaded(services)
    return UploadedPartitions(
        found.led,
        found.open_log,
        found.flushed,
        found.exists,
        services.topics.metadata_log.catch_up,
        found.is_withheld,
    )


class _Uploaded:
    def __init__(self, services: Services) -> None:
        self._partitions = services.partitions
        self._directory = services.partitions.log_directory
        self._lifecycle = services.topics.lifecycle
        self._image = services.topics.metadata_log.image
        self._withheld = services.node.brokers.withheld

    def is_withheld(self, partition: PartitionKey) -> bool:
        topic = self._image.topics_by_id.get(partition.topic_id)
        return topic is not None and (topic.name, partition.partition) in self._withheld

    def led(self) -> Iterable[PartitionKey]:
        for topic in self._image.topics_by_id.values():
            for index in topic.partitions:
                if self._lifecycle.leads(topic.name, index):
                    yield PartitionKey(topic.topic_id, index)

    def exists(self, partition: PartitionKey) -> bool:
        return self._image.partition(*partition) is not None

    async def open_log(self, partition: PartitionKey) -> PartitionLog | None:
        topic, index = self._image.topics_by_id.get(partition.topic_id), partition.partition
        if topic is None or not self._lifecycle.leads(topic.name, index):
            return None
        try:
            log = self._directory.get(topic.name, index)
        except NeedsRecovery:
            await self._partitions.recoveries.open(self._directory, (topic.name, index))
            log = self._directory.get(topic.name, index)
        if log is None or log.topic_id != partition.topic_id or not self._lifecycle.leads(topic.name, index):
            return None
        # The manifest names the leader epoch that the log has begun, and an open partition begins it.
        served = self._partitions.registry.get(topic.name, index)
        if served is not None and served.log is log:
            log.begin_leader_epoch(served.leader_epoch)
        return log

    async def flushed(self, log: PartitionLog) -> None:
        await self._partitions.flusher.flushed(log, self._partitions.registry.serving(log))
