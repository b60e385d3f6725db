"""A home in a bucket: records are durable in the write-ahead log of the gateway's session, and the local disk is a cache.

A start registers a session, seals all earlier ones, and so is the only writer; a gateway that ran before it can't acknowledge
anything any more. Then the data directory is rebuilt from the logs of the earlier sessions, unless the last of them ended on this
very disk by a clean stop.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import time
import uuid
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NoReturn

import msgspec

from gateway.admin.system_errors import in_words
from gateway.cluster.cache.cache_state import CacheState
from gateway.cluster.objects.counted import CountedObjects, Counts
from gateway.cluster.objects.objects import ObjectStore, Refused
from gateway.cluster.objects.probe import probe
from gateway.cluster.parts.part_object import CorruptPart
from gateway.cluster.rebuild.local_session import LocalSession, encode_local_session, read_local_session
from gateway.cluster.rebuild.rebuild import MetadataPlace, StoredTopic, rebuild
from gateway.cluster.rebuild.unfinished_import import read_import
from gateway.cluster.uploads.coverage import Coverage
from gateway.cluster.uploads.ports import UploadLimits
from gateway.cluster.uploads.recording_wal import RecordingWal
from gateway.cluster.uploads.uploads import Uploads
from gateway.cluster.wal.ended import WalRange, earlier_sessions
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.sealing import seal, seal_earlier, sealed_at
from gateway.cluster.wal.session_wal import SessionFenced, SessionWal
from gateway.cluster.wal.sessions import (
    CorruptRegistration,
    RegisteredSession,
    Session,
    SessionFacts,
    register,
    sessions,
)
from gateway.cluster.wal.wal_object import CorruptWalObject
from gateway.config import Config
from gateway.homes.adoptions import Adoptions
from gateway.homes.home import Ended, Hold, StartFailed
from gateway.homes.local_cache import LocalCache
from gateway.homes.uploaded_partitions import uploaded_partitions
from gateway.metadata.image import MetadataImage
from gateway.metadata.records import UnknownRecordError, decode_record
from gateway.metadata.topic_names import METADATA_TOPIC
from gateway.runtime.loop.machine import Machine
from gateway.runtime.partitions.cold_reads import Fetcher
from gateway.runtime.partitions.log_flusher import LogFlusher
from gateway.runtime.partitions.object_flusher import ObjectFlusher
from gateway.runtime.services import Services
from gateway.runtime.topics.follow_settings import put_limits
from gateway.runtime.topics.metadata_log import METADATA_TOPIC_ID
from log import CachedDurability, DirectoryLocked, Durability, IncompatibleFormat, LocalDurability, LogError
from log.format.records import iterate_records
from log.rebuilding import BUCKET_SESSION, RebuiltDirectory, check_empty, fresh_id, is_as_stopped
from log.stopped import LOCK, stored_batches

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S = 30.0
"""How long a stop waits for the store to take the last records and the seal."""


CALL_LIMIT_MARGIN_S = 30.0
"""How much longer than a request may take the session waits for a call: the store's client gives up first."""


def _release() -> str:
    try:
        return metadata.version("seqgate")
    except metadata.PackageNotFoundError:
        return "not installed"


class BucketHome:
    """The bucket of `seqgate.cluster`, and the data directory as its cache."""

    def __init__(self, config: Config, machine: Machine) -> None:
        self._config = config
        self._machine = machine
        self._address = config.str("seqgate.cluster")
        self._path = Path(config.str("log.dirs"))
        self._cache = LocalCache(config, machine)
        self.durability: Durability = CachedDurability(machine.storage)
        self._calls = Counts()
        self._objects: ObjectStore
        self.wal: SessionWal
        self._coverage = Coverage(machine.seconds)
        self.readiness = Adoptions(self._cache.restored)
        self._uploads: Uploads | None = None
        self._reason = f"a later session started on {platform.node()}"
        self._end: asyncio.Future[str]
        self._beat: asyncio.Task[None] | None = None

    @property
    def calls(self) -> Counts:
        return self._calls + self._cache.calls

    @property
    def cache(self) -> CacheState | None:
        return self._cache.state()

    @property
    def fetcher(self) -> Fetcher:
        return self._cache.blocks

    @property
    def hold(self) -> Hold:
        return self._cache.blocks.held

    async def enter(self) -> None:
        """Become the only writer of the bucket, and make the data directory what the bucket has. Raises StartFailed."""
        self._end = asyncio.get_running_loop().create_future()
        try:
            self._check_directory()
            self._check_unlocked()
            self._objects = CountedObjects(self._machine.objects(self._config), self._calls)
            self._cache.open(self._objects)
            try:
                await self._enter()
            except BaseException:
                await self._objects.close()
                self._cache.close()
                raise
        except (Refused, CorruptRegistration, CorruptWalObject, CorruptPart, UnknownRecordError) as error:
            raise StartFailed(f"the cluster {self._address} can't be used: {error}") from error
        except (LogError, IncompatibleFormat, DirectoryLocked, OSError) as error:
            raise StartFailed(
                f"the data directory {self._path} can't become the cache of {self._address}: {in_words(error)}"
            ) from error

    async def _enter(self) -> None:
        objects, node_id = self._objects, self._config.int("node.id")
        reads = PersistentReads(objects, "the gateway waits to check the store")
        await reads.answered(lambda: probe(objects, uuid.uuid4().hex))
        await self._check_imported(reads)
        self._check_bucket(await sessions(objects))
        # Registered before it seals: of two gateways that start at the same time, the later one seals the earlier.
        facts = SessionFacts(fresh_id(), self._machine.clock.now_ms(), platform.node(), _release())
        session = await register(objects, node_id, facts)
        earlier = (await sessions(objects))[: session.session]
        if not await self._is_newest(earlier):
            await self._rebuild(session)
        self._write_local(LocalSession(self._address, session.cluster_id, session.session))
        self.wal = SessionWal(
            objects,
            session,
            puts_in_flight=self._config.int("seqgate.cluster.puts.in.flight"),
            seconds=self._machine.seconds,
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

    def _check_directory(self) -> None:
        """Check that the data directory is empty or a cache of this bucket. Raises StartFailed, OSError, IncompatibleFormat."""
        local = read_local_session(self._machine.storage, str(self._path))
        if local is None:
            try:
                check_empty(self._machine.storage, str(self._path))
            except IncompatibleFormat as error:
                raise StartFailed(
                    f"the data directory {self._path} holds files that are no cache of {self._address} ({error}); name an empty directory"
                ) from error
        elif local.address != self._address:
            raise StartFailed(
                f"the data directory {self._path} is a cache of {local.address}, not of {self._address}; name another directory"
            )

    async def _check_imported(self, reads: PersistentReads) -> None:
        """Check that the bucket is whole. Raises StartFailed, CorruptRegistration, IncompatibleFormat, Refused."""
        begun = await read_import(reads)
        if begun is not None:
            raise StartFailed(
                f"an import of {begun.path} on {begun.host} into {self._address} is not finished; run `seqgate cluster import` again"
            )

    def _check_bucket(self, known: Sequence[RegisteredSession]) -> None:
        """Check that the bucket has the session that used the data directory last. Raises StartFailed, OSError, IncompatibleFormat.

        A bucket that was emptied or replaced has not what the directory has: the directory may be all that is left.
        """
        local = read_local_session(self._machine.storage, str(self._path))
        if local is None or local.cluster_id in {
            session.cluster_id for session in known[local.session : local.session + 1]
        }:
            return
        raise StartFailed(
            f"the data directory {self._path} is a cache of the cluster {local.cluster_id}, and {self._address} has no session "
            f"{local.session} of this cluster, so somebody emptied or replaced the bucket; put its objects back, or name an empty "
            "directory"
        )

    def _check_unlocked(self) -> None:
        """Check that no gateway uses the data directory; otherwise this start would end that gateway's session, and then fail itself.

        Raises DirectoryLocked, OSError.
        """
        storage, lock = self._machine.storage, str(self._path / LOCK)
        storage.make_directories(str(self._path))
        storage.lock(lock)
        storage.unlock(lock)

    async def _is_newest(self, earlier: Sequence[RegisteredSession]) -> bool:
        """Return whether the directory has all that the bucket has: the last session stopped cleanly on it.

        Sessions that began later and wrote nothing are sealed. Raises CorruptWalObject, IncompatibleFormat, Refused, OSError.
        """
        local = read_local_session(self._machine.storage, str(self._path))
        if local is None or local.wal_end is None or not earlier or local.session >= len(earlier):
            return False
        if not is_as_stopped(self._machine.storage, str(self._path)):
            return False
        last = earlier[local.session]
        if last.cluster_id != local.cluster_id or not await sealed_at(
            self._objects, last.node_id, last.session, local.wal_end
        ):
            return False
        for later in earlier[local.session + 1 :]:
            log = await seal(
                self._objects, later.node_id, later.session, self._config.int("node.id"), self._reason
            )
            if log.end_seq:
                return False
        return self._cache.restore()

    async def _rebuild(self, session: Session) -> None:
        begun_s = time.monotonic()
        sealed = await seal_earlier(self._objects, session, self._reason)
        ranges = [
            WalRange(known.node_id, known.session, known.nonce, log.first_seq, log.end_seq)
            for known, log in sealed
        ]
        local = LocalSession(self._address, session.cluster_id, session.session)
        directory = RebuiltDirectory.begin(self._machine.storage, self._path, encode_local_session(local))
        try:
            rebuilt = await rebuild(
                self._objects,
                ranges,
                directory,
                MetadataPlace(METADATA_TOPIC_ID, METADATA_TOPIC),
                self._read_topics,
            )
            directory.finish(self.durability, session.cluster_id, session.node_id)
            self._cache.restored.update(rebuilt.manifests)
        except BaseException:
            directory.abandon()
            raise
        logger.info(
            "%s: rebuilt from %s: sessions %d, objects %d, bytes %d, partitions %d, in %.2f s",
            self._path,
            self._address,
            len(ranges),
            *rebuilt[:3],
            time.monotonic() - begun_s,
        )

    def _read_topics(self, directory: Path) -> Mapping[uuid.UUID, StoredTopic]:
        image = MetadataImage()
        for _, batch in stored_batches(self._machine.storage, directory):
            for record in iterate_records(batch):
                image.replay(decode_record(record.value or b""))
        return {
            topic_id: StoredTopic(topic.name, len(topic.partitions))
            for topic_id, topic in image.topics_by_id.items()
        }

    def flusher(self, loop: asyncio.AbstractEventLoop, durability: Durability) -> LogFlusher:
        """Return the flusher whose rounds are objects of the session, and begin to watch for the session's end."""
        assert isinstance(durability, CachedDurability)
        self._beat = loop.create_task(self._beat_while_idle(), name="heartbeat of the session")
        limits = put_limits(self._config)
        wal = RecordingWal(self.wal, self._coverage)
        return ObjectFlusher(loop, wal=wal, durability=durability, limits=limits, machine=self._machine)

    def begin(self, services: Services) -> None:
        """Begin to upload the history of partitions, and to adopt those that this gateway begins to lead."""
        clock = self._machine.clock
        sessions_before = earlier_sessions(self._objects, self.wal.session, clock.now_ms)
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
            sessions_before,
            uploaded_partitions(services),
            limits,
            self._machine.seconds,
            clock.now_ms,
            self._cache.restored,
        )
        self._uploads.start()
        self.readiness.start(services, self._objects, self._machine.storage, sessions_before, self._uploads)
        services.upkeep.uploads = self._uploads
        self._cache.serve(services.partitions.log_directory)

    async def rest(self) -> None:
        await self.readiness.stop()
        await self._cache.stop()
        if self._uploads is not None:
            await self._uploads.stop()

    async def _beat_while_idle(self) -> None:
        """Create an empty object when nothing else was created for a while: an idle gateway learns so that its session was sealed."""
        interval_s = self._config.int("seqgate.cluster.heartbeat.ms") / 1000
        while not self.wal.is_fenced:
            await asyncio.sleep(interval_s)
            if (
                not self.wal.in_flight
                and self._machine.seconds() - self.wal.last_confirmed_sent_s >= interval_s
            ):
                self.wal.put((), (), lambda: None)

    def _fenced(self, sentence: str) -> None:
        if not self._end.done():
            self._end.set_result(sentence)

    async def ended(self) -> NoReturn:
        raise Ended(
            f"the gateway stops: its session has ended, and it may acknowledge nothing more. {await self._end}"
        )

    async def leave(self, *, is_clean: bool) -> None:
        """Seal the session, and record on the local disk that the disk has all records of the bucket."""
        if self._beat is not None:
            self._beat.cancel()
        try:
            if is_clean:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    end = await self.wal.seal("the gateway stopped")
                self._note_clean_stop(end)
        except (SessionFenced, TimeoutError, DirectoryLocked, IncompatibleFormat, OSError) as error:
            logger.warning(
                "the clean stop can't be recorded, so the next start rebuilds the data directory: %s",
                error or "the store does not answer",
            )
        finally:
            await self.wal.close()
            await self._objects.close()
            self._cache.close()

    def _note_clean_stop(self, end: int) -> None:
        """Make the whole directory durable, then its BUCKET_SESSION, unless another gateway has the directory by now.

        Raises DirectoryLocked, IncompatibleFormat, OSError.
        """
        storage, session = self._machine.storage, self.wal.session
        running = LocalSession(self._address, session.cluster_id, session.session)
        lock = str(self._path / LOCK)
        storage.lock(lock)
        try:
            flush = LocalDurability(storage).begin_common_flush(str(self._path))
            if flush is None or read_local_session(storage, str(self._path)) != running:
                return
            flush.run()
            self._cache.save()
            self._write_local(msgspec.structs.replace(running, wal_end=end))
        finally:
            storage.unlock(lock)

    def _write_local(self, local: LocalSession) -> None:
        """Make the BUCKET_SESSION durable: without it the directory would not pass for a cache. Raises OSError."""
        durability = LocalDurability(self._machine.storage)
        durability.replace(str(self._path / BUCKET_SESSION), encode_local_session(local))
