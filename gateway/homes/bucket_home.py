"""A home in a bucket: records are durable in the write-ahead log of the gateway's session, and the local disk is a cache.

A start registers a session, seals all earlier ones, and so is the only writer; a gateway that ran before it can't acknowledge
anything any more. Then the data directory is rebuilt from the logs of the earlier sessions, unless the last of them ended on this
very disk by a clean stop.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import uuid
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from gateway.admin.system_errors import in_words
from gateway.cluster.cache.cache_state import CacheState
from gateway.cluster.metadata.change import CorruptChange
from gateway.cluster.metadata.copying import is_copied
from gateway.cluster.metadata.shared_log import SharedLog
from gateway.cluster.objects.counted import CountedObjects, Counts
from gateway.cluster.objects.objects import ObjectStore, Refused
from gateway.cluster.objects.probe import probe
from gateway.cluster.parts.part_object import CorruptPart
from gateway.cluster.rebuild.local_session import LocalSession, encode_local_session, read_local_session
from gateway.cluster.uploads.coverage import Coverage
from gateway.cluster.uploads.recording_wal import RecordingWal
from gateway.cluster.uploads.uploads import EarlierWal, UploadLimits, Uploads, with_objects
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.sealing import SealedWal, seal, seal_earlier, sealed_at
from gateway.cluster.wal.session_wal import SessionFenced, SessionWal
from gateway.cluster.wal.sessions import (
    CorruptRegistration,
    RegisteredSession,
    Session,
    SessionFacts,
    SharedLogContent,
    read_on,
    read_shared_log,
    register,
)
from gateway.cluster.wal.wal_object import CorruptWalObject
from gateway.config import Config
from gateway.homes.bucket_rebuild import rebuild_directory
from gateway.homes.home import Ended, Hold, StartFailed
from gateway.homes.local_cache import LocalCache
from gateway.homes.metadata_tail import MetadataTail
from gateway.homes.start_checks import StartChecks
from gateway.homes.uploaded_partitions import uploaded_partitions
from gateway.metadata.records import UnknownRecordError
from gateway.runtime.loop.machine import Machine
from gateway.runtime.partitions.cold_reads import Fetcher
from gateway.runtime.partitions.log_flusher import LogFlusher
from gateway.runtime.partitions.object_flusher import ObjectFlusher
from gateway.runtime.services import Services
from gateway.runtime.topics.follow_settings import put_limits
from gateway.runtime.topics.shared_journal import SharedJournal
from log import (
    CachedDurability,
    DirectoryLocked,
    Durability,
    IncompatibleFormat,
    LocalDurability,
    LogError,
    PartitionLog,
)
from log.rebuilding import BUCKET_SESSION, fresh_id, is_as_stopped
from log.stopped import LOCK

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S = 30.0
"""How long a stop waits for the store to take the last records and the seal."""


CALL_LIMIT_MARGIN_S = 30.0
"""How much longer than a request may take the session waits for a call: the store's client gives up first."""


_UNUSABLE: Final = (
    Refused,
    CorruptRegistration,
    CorruptChange,
    CorruptWalObject,
    CorruptPart,
    UnknownRecordError,
)


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
        self._checks = StartChecks(machine.storage, self._path, self._address)
        self.durability: Durability = CachedDurability(machine.storage)
        self._calls = Counts()
        self._objects: ObjectStore
        self.wal: SessionWal
        self._coverage = Coverage(machine.seconds)
        self._uploads: Uploads | None = None
        self._earlier: Sequence[EarlierWal] | None = None
        """The logs of earlier sessions that still have objects; None while they are not known."""
        self._reason = f"a later session started on {platform.node()}"
        self._end: asyncio.Future[str]
        self._beat: asyncio.Task[None] | None = None
        self._known: SharedLogContent
        """What the bucket has in `meta/`, during the start."""
        self._shared: SharedLog
        self._flusher: ObjectFlusher
        self._journal: SharedJournal | None = None
        self._tail: MetadataTail | None = None

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
        except _UNUSABLE as error:
            raise StartFailed(f"the cluster {self._address} can't be used: {error}") from error
        except (LogError, IncompatibleFormat, DirectoryLocked, OSError) as error:
            raise StartFailed(
                f"the data directory {self._path} can't become the cache of {self._address}: {in_words(error)}"
            ) from error

    async def _enter(self) -> None:
        objects, node_id = self._objects, self._config.int("node.id")
        reads = PersistentReads(objects, "the gateway waits to check the store")
        await reads.answered(lambda: probe(objects, uuid.uuid4().hex))
        await self._checks.check_imported(reads)
        self._known = known = await read_shared_log(objects)
        self._checks.check_bucket(known)
        # Registered before it seals: of two gateways that start at the same time, the later one seals the earlier.
        facts = SessionFacts(fresh_id(), self._machine.clock.now_ms(), platform.node(), _release())
        session = await register(objects, node_id, facts, known=known)
        copied = await self._copied(known.before(session.session))
        if copied is not None:
            self._shared = SharedLog(objects, session, next_seq=copied[0], next_offset=copied[1])
        else:
            self._shared = await self._rebuild(session)
        del self._known
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

    async def _copied(self, earlier: Sequence[RegisteredSession]) -> tuple[int, int] | None:
        """Return the first object of `meta/`, and its offset, that the directory lacks, if the directory has all else that the bucket has.

        Then the last session stopped cleanly on it. Sessions that began later and wrote nothing are sealed. Returns None if the
        directory must be rebuilt. Raises CorruptChange, CorruptWalObject, IncompatibleFormat, Refused, OSError.
        """
        local = read_local_session(self._machine.storage, str(self._path))
        if (
            local is None
            or local.wal_end is None
            or local.metadata_seq is None
            or local.metadata_offset is None
        ):
            return None
        last = self._known.of(local.session)
        if last is None or last not in earlier or not is_copied(self._known):
            return None
        if not is_as_stopped(self._machine.storage, str(self._path)):
            return None
        if last.cluster_id != local.cluster_id or not await sealed_at(
            self._objects, last.node_id, last.session, local.wal_end
        ):
            return None
        for later in earlier[earlier.index(last) + 1 :]:
            log = await seal(
                self._objects, later.node_id, later.session, self._config.int("node.id"), self._reason
            )
            if log.end_seq:
                return None
        return (local.metadata_seq, local.metadata_offset) if self._cache.restore() else None

    async def _seal(self, session: Session) -> Sequence[tuple[RegisteredSession, SealedWal]]:
        """End the sessions whose records this start takes over; return their logs. They acknowledge nothing from now on."""
        known = self._known.before(session.session)
        sealed = await seal_earlier(self._objects, session, self._reason, known=known)
        self._earlier = with_objects(sealed)
        return sealed

    async def _rebuild(self, session: Session) -> SharedLog:
        """Make the data directory from the bucket; return the shared metadata log behind what the directory has of it."""
        sealed = await self._seal(session)
        # After the seals: no record of an earlier session belongs to a topic that was created later.
        await read_on(PersistentReads(self._objects, "the gateway waits to read the metadata"), self._known)
        local = LocalSession(self._address, session.cluster_id, session.session)
        rebuilt, shared = await rebuild_directory(
            self._objects,
            self._machine.storage,
            self._path,
            encode_local_session(local),
            session,
            self._known,
            sealed,
            self.durability,
        )
        self._cache.restored.update(rebuilt.manifests)
        return shared

    def flusher(self, loop: asyncio.AbstractEventLoop, durability: Durability) -> LogFlusher:
        """Return the flusher whose rounds are objects of the session, and begin to watch for the session's end."""
        assert isinstance(durability, CachedDurability)
        self._beat = loop.create_task(self._beat_while_idle(), name="heartbeat of the session")
        limits = put_limits(self._config)
        wal = RecordingWal(self.wal, self._coverage)
        self._flusher = ObjectFlusher(
            loop, wal=wal, durability=durability, limits=limits, machine=self._machine
        )
        return self._flusher

    def open_journal(self, log: PartitionLog) -> SharedJournal:
        """Return the journal of the shared metadata, whose changes in progress fail when the session ends or the flusher gives up."""
        assert isinstance(self.durability, CachedDurability)
        self._journal = journal = SharedJournal(log, self._shared, self.durability, self._machine.clock)
        journal.on_ended.append(self._fenced)
        self._flusher.when_given_up.append(journal.give_up)
        return journal

    def begin(self, services: Services) -> None:
        """Begin to upload the history of partitions."""
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
            self._find_earlier,
            uploaded_partitions(services),
            limits,
            self._machine.seconds,
            self._machine.clock.now_ms,
            self._cache.restored,
        )
        self._uploads.start()
        services.upkeep.uploads = self._uploads
        if self._journal is not None:
            has_more, catch_up = self._journal.has_more, services.topics.metadata_log.catch_up
            self._tail = MetadataTail(has_more, catch_up, self._poll_s)
            self._tail.start()
        self._cache.serve(services.partitions.log_directory)

    async def rest(self) -> None:
        if self._tail is not None:
            await self._tail.stop()
        await self._cache.stop()
        if self._uploads is not None:
            await self._uploads.stop()

    def _poll_s(self) -> float:
        return self._config.int("seqgate.cluster.metadata.poll.ms") / 1000

    async def _find_earlier(self) -> Sequence[EarlierWal]:
        """Return the logs of earlier sessions that still have objects. Raises CorruptWalObject, IncompatibleFormat, Refused."""
        if self._earlier is None:
            self._earlier = with_objects(await seal_earlier(self._objects, self.wal.session, self._reason))
        return self._earlier

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
            copied = None if self._journal is None else self._journal.copied
            seq, offset = copied or (None, None)
            self._write_local(
                msgspec.structs.replace(running, wal_end=end, metadata_seq=seq, metadata_offset=offset)
            )
        finally:
            storage.unlock(lock)

    def _write_local(self, local: LocalSession) -> None:
        """Make the BUCKET_SESSION durable: without it the directory would not pass for a cache. Raises OSError."""
        durability = LocalDurability(self._machine.storage)
        durability.replace(str(self._path / BUCKET_SESSION), encode_local_session(local))
