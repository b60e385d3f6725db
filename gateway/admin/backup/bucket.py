"""Backs a bucket up while its gateways run, and restores a backup into another bucket.

A backup has the objects of one moment (`cluster/rebuild/moment.py`), for which the gateways stand still. A
restore ends all sessions in the copy, as if each gateway had sealed its log at that moment and stopped: so
new gateways start at once, and none of them asks a gateway of the original.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import platform
import sys
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from seqgate import __version__
from seqgate.gateway.admin.backup.command import (
    CreatedBackup,
    Restored,
    backup_row,
    check_room,
    first_id_after_restore,
)
from seqgate.gateway.admin.client import answers_of
from seqgate.gateway.admin.cluster.bucket import Bucket, begin_or_resume_import, first_key, in_bucket
from seqgate.gateway.admin.cluster.gateways import ASK_TIMEOUT_S, ask_one
from seqgate.gateway.admin.cluster.status import check_is_cluster
from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.admin.request import A, ControlError, NotRunning, Request, in_words
from seqgate.gateway.backup.pace import Pace
from seqgate.gateway.backup.repository import (
    BUCKET_VERSION,
    DATA,
    BackupError,
    BackupManifest,
    CopiedFile,
    Created,
    NewBackup,
    Repository,
    manifest_of_complete,
)
from seqgate.gateway.cluster.metadata.shared_log import SharedLog, end_offset_of, is_copied, read_metadata
from seqgate.gateway.cluster.objects.objects import AlreadyThere, ObjectStore, Refused, StoreFailed
from seqgate.gateway.cluster.objects.probe import probe
from seqgate.gateway.cluster.parts.manifest import PartitionKey, manifest_key
from seqgate.gateway.cluster.rebuild.moment import Base, Cut, MomentReads, Moved, parts_of
from seqgate.gateway.cluster.rebuild.unfinished_import import UnfinishedImport, end_import
from seqgate.gateway.cluster.wal.backups import (
    LONGEST_HOLD_S,
    HoldRefused,
    PinnedBucket,
    PinTaken,
    SessionHolds,
)
from seqgate.gateway.cluster.wal.ended import seal
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.sessions import Session, SharedLogContent
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.membership import end_session
from seqgate.gateway.metadata.producer_ids import move_next
from seqgate.gateway.metadata.records import MetadataRecord
from seqgate.gateway.peer.peers import Peers
from seqgate.gateway.runtime.topics.metadata_log import change_batch
from seqgate.gateway.runtime.topics.stored_image import image_of, session_state
from seqgate.gateway.tasks import all_of
from seqgate.log import IncompatibleFormat, LogError, Storage

logger = logging.getLogger(__name__)

TRIES: Final = 20
"""How often a backup begins again because the bucket or its gateways changed too much meanwhile."""
MOST_HOLDS: Final = 3
"""How often gateways stand still without a moment of all of them; then the backup fails. They may stand still
for two seconds each time.
"""
AGAIN_AFTER_S: Final = 1.0
PARTS_AT_ONCE: Final = 8
"""Parts that are copied at the same time: each may have 8 MiB."""
_MANY: Final = 1 << 30
"""More files than are worth a flush each."""

# The requests for a moment of all gateways.


class HeldLog(msgspec.Struct, frozen=True):
    """The session of a gateway, its nonce in hexadecimal, which no other session has, and the seq of the
    first object of its log that it has not confirmed.
    """

    node_id: int
    session: int
    nonce: str
    end_seq: int


class HoldRequest(Request[HeldLog], tag="backup.hold"):
    """Confirm nothing until `backup.release`, for two seconds at most. `backup` is any name of the backup."""

    network_right = "ALTER"
    backup: str


class ReleasedLog(msgspec.Struct, frozen=True):
    """Whether the gateway confirmed nothing since `backup.hold`."""

    is_intact: bool


class ReleaseRequest(Request[ReleasedLog], tag="backup.release"):
    """Confirm again what was held for the backup. Changes nothing where nothing is held for it."""

    network_right = "ALTER"
    backup: str


class BucketCut(msgspec.Struct, frozen=True):
    """The ends of all write-ahead logs and of the metadata at `taken_ms`, or why there is none this time.
    `has_held`: gateways were asked to stand still.
    """

    taken_ms: int
    metadata_end: int
    logs: list[HeldLog]
    refusal: str | None = None
    has_held: bool = True


class CutRequest(Request[BucketCut], tag="backup.cut"):
    """Hold all gateways of the cluster for a moment, and say where their write-ahead logs and the metadata
    ended.
    """

    network_right = "ALTER"


# Backs a bucket up.

AskForCut = Callable[[CutRequest], BucketCut]
#: Asks a gateway. Raises ControlError.


def create(
    source: Bucket, ask: AskForCut, target: Path, pace: Pace, *, is_full: bool, keep: int | None
) -> CreatedBackup:
    """Back a bucket up into `target`. Raises ControlError."""
    storage = Storage()
    repository = Repository(storage, str(target))

    async def work(objects: ObjectStore, address: str) -> Created:
        return await BucketBackup(objects, address, ask, repository, pace, is_full=is_full).run(keep)

    try:
        repository.create_and_lock()
        try:
            created = in_bucket(source, work)
        finally:
            repository.unlock()
    except (BackupError, PinTaken, Moved, OSError) as error:
        raise ControlError(f"the backup failed: {in_words(error)}") from error
    return CreatedBackup(backup_row(created.path, created.manifest), created.removed)


class BucketBackup:
    """One backup of a bucket."""

    def __init__(
        self,
        objects: ObjectStore,
        address: str,
        ask: AskForCut,
        repository: Repository,
        pace: Pace,
        *,
        is_full: bool,
    ) -> None:
        self._objects = objects
        self._address = address
        self._ask = ask
        self._repository = repository
        self._pace = pace
        self._is_full = is_full
        self._told: set[str] = set()
        self._vain_holds = 0
        self._disk = asyncio.Lock()
        """Held while a thread writes."""
        self._pin = PinnedBucket(
            PersistentReads(objects, "the backup waits for the store"),
            uuid.uuid4().hex,
            platform.node(),
            lambda: time.time_ns() // 1_000_000,
        )

    async def run(self, keep: int | None) -> Created:
        """Make the backup. Raises ControlError, BackupError, PinTaken, Moved, OSError, and as MomentReads."""
        check_is_cluster(await read_metadata(self._objects), self._address)
        async with self._pin.pinned():
            for _ in range(TRIES - 1):
                try:
                    return await self._try(keep)
                except Moved as error:
                    self._tell(error)
                await asyncio.sleep(AGAIN_AFTER_S)
                await self._pin.keep_logs()
            return await self._try(keep)

    def _tell(self, error: Moved) -> None:
        """Say on stderr why the backup begins again, each reason once."""
        if str(error) not in self._told:
            self._told.add(str(error))
            sys.stderr.write(f"seqgate: {error}; trying again\n")

    async def _try(self, keep: int | None) -> Created:
        """Make the backup unless the bucket moves. Raises Moved also."""
        reads = MomentReads(self._objects)
        base = await reads.base(_partitions)
        if not is_copied(reads.known):
            raise ControlError(
                f"an older release has written {self._address}: start a gateway of this release on it once"
            )
        told = await self._cut(reads, image_of(reads.known))
        known = {each.nonce.hex() for each in reads.known.sessions}
        if told.logs and not known.intersection(each.nonce for each in told.logs):
            raise ControlError(f"the gateway that was asked has another bucket than {self._address}")
        await reads.follow(told.metadata_end)
        image = image_of(reads.known)
        live = {
            (broker.broker_epoch, broker.incarnation_id.hex)
            for broker in image.brokers.by_id.values()
            if not broker.fenced
        }
        if live != {(each.session, each.nonce) for each in told.logs}:
            raise Moved("a gateway came or went at the moment of the backup")
        cut = Cut(told.metadata_end, {each.session: each.end_seq for each in told.logs})
        copy = await asyncio.to_thread(self._begin, reads.known, told.taken_ms, is_live=bool(live))
        try:
            return await self._copy(reads, base, cut, image, copy, keep)
        except BaseException:
            copy.discard()
            raise

    async def _cut(self, reads: MomentReads, image: MetadataImage) -> BucketCut:
        """Return the cut of the gateways, or that of a bucket whose gateways have all stopped. Raises
        ControlError, BackupError, Moved.
        """
        live = [broker for broker in image.brokers.by_id.values() if not broker.fenced]
        if not live:
            await reads.check_end()
            return BucketCut(time.time_ns() // 1_000_000, reads.known.end_seq, [])
        try:
            told = await asyncio.to_thread(self._ask, CutRequest())
        except NotRunning as error:
            places = [f" {place.host}:{place.port}" for place in live[0].end_points[:1]]
            raise ControlError(
                f"{error}; name a gateway of the cluster with --bootstrap{''.join(places)}"
            ) from error
        if told.refusal is not None:
            self._vain_holds += told.has_held
            if self._vain_holds >= MOST_HOLDS:
                raise BackupError(f"all gateways stood still {MOST_HOLDS} times in vain: {told.refusal}")
            raise Moved(told.refusal)
        return told

    def _begin(self, known: SharedLogContent, taken_ms: int, *, is_live: bool) -> BackedUpObjects:
        header = BackupManifest(
            version=BUCKET_VERSION,
            release=__version__,
            cluster_id=known.cluster_id or "",
            directory_id=f"{self._address} {known.cluster_id}",
            node_id="",
            directory_version="",
            taken_ms=taken_ms,
            is_live=is_live,
            partitions=0,
            copied_bytes=0,
            files=[],
            bucket=self._address,
        )
        return BackedUpObjects(self._repository, header, self._pace, is_full=self._is_full)

    async def _copy(
        self,
        reads: MomentReads,
        base: Base,
        cut: Cut,
        image: MetadataImage,
        copy: BackedUpObjects,
        keep: int | None,
    ) -> Created:
        """Copy all objects, the short-lived ones first. Raises Moved, BackupError, PinTaken, OSError."""
        keys: set[str] = set()

        async def write(key: str, content: bytes) -> None:
            self._pin.check()
            keys.add(key)
            async with self._disk:
                await asyncio.to_thread(copy.write, key, content)

        async for found in reads.metadata(base):
            await write(*found)
        async for found in reads.logs(base, cut, lambda session: session_state(image.brokers, session)):
            await write(*found)
        await self._pin.release_logs()
        parts: dict[str, int] = {}
        for partition, stored in base.manifests.items():
            if image.partition(*partition) is not None:
                await write(manifest_key(partition), stored.content)
                parts |= parts_of(stored.manifest)
        needed = sum(size for key, size in parts.items() if not copy.knows(key))
        storage, path = self._repository.storage, self._repository.path
        check_room(storage, path, needed, f"{needed:,} more", is_new=True)
        await self._copy_parts(reads, copy, parts)
        await self._pin.renew()
        async with self._disk:
            return await asyncio.to_thread(copy.finish_with, keys | parts.keys(), image.partition_count, keep)

    async def _copy_parts(self, reads: MomentReads, copy: BackedUpObjects, parts: Collection[str]) -> None:
        left = iter(sorted(parts))

        async def some() -> None:
            for key in left:
                self._pin.check()
                async with self._disk:
                    if await asyncio.to_thread(copy.has, key):
                        continue
                content = await reads.get(key)
                async with self._disk:
                    await asyncio.to_thread(copy.write, key, content)

        await all_of([asyncio.create_task(some()) for _ in range(PARTS_AT_ONCE)])


def _partitions(known: SharedLogContent) -> Collection[PartitionKey]:
    return [
        PartitionKey(topic_id, index)
        for topic_id, topic in image_of(known).topics_by_id.items()
        for index in topic.partitions
    ]


class BackedUpObjects(NewBackup):
    """The objects of a new backup."""

    def __init__(
        self, repository: Repository, header: BackupManifest, pace: Pace, *, is_full: bool = False
    ) -> None:
        """Take the header of the manifest. With `is_full` nothing is shared."""
        before = None if is_full else repository.newest_of(header)
        super().__init__(repository, header, pace, before, _MANY)
        self._known = {} if before is None else {file.path: file for file in before[1].files}

    def has(self, key: str) -> bool:
        """Return whether the backup has an object that never changes, or shares it with the one before."""
        return key in self._files or (key in self._known and self._shares(self._known[key]))

    def knows(self, key: str) -> bool:
        """Return whether the backup before has the object."""
        return key in self._known

    def write(self, key: str, content: bytes) -> None:
        """Write an object, in place of one that was written before under the key."""
        path = self._path(key)
        if key in self._files:
            self._storage.delete(path)
        self._storage.write_file(path, content)
        self._add(CopiedFile(key, len(content), hashlib.sha256(content).hexdigest(), 0, 0))
        self._pace.spend(len(content))

    def finish_with(self, keys: Collection[str], partitions: int, keep: int | None) -> Created:
        """Complete the backup with these objects, and without others."""
        for key in self._files.keys() - keys:
            self._storage.delete(f"{self._data}/{key}")
            self._copied.pop(key, None)
        self._files = {key: self._files[key] for key in sorted(keys)}
        return self.finish(keep, partitions=partitions)


# In the gateway: it takes the moment of a backup, the ends of all write-ahead logs, while gateways run.
#
# One gateway asks all others to hold their sessions, holds its own last, reads the end of the metadata, and
# releases all. The cut is valid if every hold was in force until its release (`cluster/wal/backups.py`).
#
# The gateway asks over connections of their own. On the shared ones a request such as WriteTxnMarkers waits
# for what a held gateway does not confirm, and the answer to the hold would wait behind it.


def hold(gateway: LiveGateway, request: HoldRequest) -> HeldLog:
    """Hold the session of this gateway. Raises ControlError."""
    try:
        return HeldLog(*_holds(gateway).begin(request.backup))
    except HoldRefused as error:
        raise ControlError(str(error)) from error


def release(gateway: LiveGateway, request: ReleaseRequest) -> ReleasedLog:
    """Let the session of this gateway confirm again. Raises ControlError."""
    return ReleasedLog(_holds(gateway).end(request.backup))


async def cut(gateway: LiveGateway, _: CutRequest) -> BucketCut:
    """Hold all gateways of the cluster for a moment, and return where they stood. Raises ControlError. What
    may succeed at another try is no error: the answer says why there is no cut.
    """
    holds = _holds(gateway)
    request = HoldRequest(uuid.uuid4().hex)
    peers = gateway.services.node.peers.apart()
    try:
        others = gateway.services.node.brokers.others()
        # A release of nothing opens the connections. If a gateway does not answer it, none is held.
        missing = (await _asked(peers, others, ReleaseRequest(request.backup), ASK_TIMEOUT_S))[1]
        if missing:
            return BucketCut(0, 0, [], "; ".join(missing), has_held=False)
        return await _cut(gateway, holds, peers, others, request)
    finally:
        await peers.close()


async def _cut(
    gateway: LiveGateway, holds: SessionHolds, peers: Peers, others: Sequence[int], request: HoldRequest
) -> BucketCut:
    refusal: str | None = None
    try:
        ends, metadata_end = await _held(holds, peers, others, request)
        taken_ms = gateway.services.node.clock.now_ms()
    except (ControlError, HoldRefused, Refused, StoreFailed, TimeoutError) as error:
        refusal = str(error) or "the store does not answer in time"
    finally:
        is_intact = holds.end(request.backup)
        told, missing = await _asked(peers, others, ReleaseRequest(request.backup), LONGEST_HOLD_S)
    if refusal is None:
        late = [node_id for node_id, each in told.items() if not each.is_intact]
        if missing or late or not is_intact:
            refusal = "; ".join(missing) or "the gateways could not be held long enough at the same time"
    if refusal is not None:
        return BucketCut(0, 0, [], refusal)
    logger.info("backup: %d gateways stood still for a moment", len(ends))
    return BucketCut(taken_ms, metadata_end, ends)


async def _held(
    holds: SessionHolds, peers: Peers, others: Sequence[int], request: HoldRequest
) -> tuple[list[HeldLog], int]:
    """Hold all gateways; return the ends of their logs, and that of the metadata at the same moment. Raises
    ControlError, HoldRefused, Refused, StoreFailed, TimeoutError.
    """
    told, missing = await _asked(peers, others, request, LONGEST_HOLD_S)
    if missing:
        raise ControlError("; ".join(missing))
    own = HeldLog(*holds.begin(request.backup))
    async with asyncio.timeout(LONGEST_HOLD_S):
        return [own, *told.values()], await holds.metadata_end()


async def _asked(
    peers: Peers, nodes: Sequence[int], request: Request[A], timeout_s: float
) -> tuple[Mapping[int, A], list[str]]:
    """Return the answers of gateways by node id, and a sentence about each that gave none."""
    line = msgspec.json.encode(request).decode()
    return answers_of(
        await asyncio.gather(*(ask_one(peers, each, line, timeout_s) for each in nodes)), request
    )


def _holds(gateway: LiveGateway) -> SessionHolds:
    holds = gateway.services.upkeep.holds
    if holds is None:
        raise ControlError("this gateway has no bucket: it was started without --cluster")
    return holds


# Restores a backup into a bucket.


def restore(target: Bucket, backup: Path, pace: Callable[[int], Pace]) -> Restored:
    """Copy a backup into the bucket of the settings, which must be empty. Raises ControlError."""
    storage = Storage()
    try:
        manifest = manifest_of_complete(storage, str(backup))

        async def work(objects: ObjectStore, address: str) -> int:
            restoring = BucketRestore(objects, address, storage, backup, manifest)
            return await restoring.run(pace(manifest.size_bytes))

        next_id = in_bucket(target, work)
    except (BackupError, IncompatibleFormat, LogError, OSError) as error:
        raise ControlError(f"the restore failed: {in_words(error)}") from error
    return Restored(backup_row(str(backup), manifest), None, next_id, target.config.str("seqgate.cluster"))


class BucketRestore:
    """One restore, or the rest of one that ended early."""

    def __init__(
        self, objects: ObjectStore, address: str, storage: Storage, backup: Path, manifest: BackupManifest
    ) -> None:
        self._objects = objects
        self._reads = PersistentReads(objects, "the restore waits for the store")
        self._address = address
        self._storage = storage
        self._backup = backup
        self._manifest = manifest

    async def run(self, pace: Pace) -> int:
        """Copy everything, and end all sessions; return the next producer id. Raises ControlError,
        BackupError, OSError, and the errors of a bucket.
        """
        if self._manifest.bucket is None:
            raise BackupError(f"{self._backup} is the backup of a data directory: name one to make")
        await self._reads.answered(lambda: probe(self._objects, uuid.uuid4().hex))
        await self._begin()
        left = iter(self._manifest.files)
        disk = asyncio.Lock()

        async def some() -> None:
            for file in left:
                async with disk:
                    content = await asyncio.to_thread(self._read, file, pace)
                await self._create(file.path, content)

        await all_of([asyncio.create_task(some()) for _ in range(PARTS_AT_ONCE)])
        next_id = await self._end_sessions()
        await end_import(self._reads)
        return next_id

    async def _begin(self) -> None:
        """Take an empty bucket, or that of an unfinished restore of this backup. Raises ControlError."""
        taken = self._manifest
        ours = UnfinishedImport(
            taken.cluster_id,
            f"{taken.directory_id} {taken.taken_ms}",
            str(self._backup.absolute()),
            platform.node(),
        )
        await begin_or_resume_import(self._reads, self._address, ours, check_empty=self._check_empty)

    async def _check_empty(self) -> None:
        key = await first_key(self._reads)
        if key is not None:
            raise ControlError(f"{self._address} holds the object {key}; name an address that holds nothing")

    def _read(self, file: CopiedFile, pace: Pace) -> bytes:
        path = f"{self._backup}/{DATA}/{file.path}"
        with suppress(FileNotFoundError):
            content = self._storage.read_file(path)
            if hashlib.sha256(content).hexdigest() == file.sha256:
                pace.spend(len(content))
                return content
        raise BackupError(
            f"{path} is missing, or has other bytes than were copied: the backup is damaged, and no gateway "
            "starts from what is restored. Restore another backup, at another address; `seqgate backup "
            "verify` lists all that is damaged"
        )

    async def _create(self, key: str, content: bytes) -> None:
        conflicts = self._reads.conflicts()
        while True:
            with suppress(AlreadyThere):
                await self._reads.answered(lambda: self._objects.create(key, content))
                return
            found = await self._reads.find(key)
            if found == content:
                return  # by an earlier try
            if found is not None:
                raise ControlError(f"{self._address} holds another object {key}; name another address")
            await asyncio.sleep(conflicts.next_s())

    async def _end_sessions(self) -> int:
        """Seal the logs of the gateways, and fence all of them in the metadata; return the next producer id.
        An id that the original has handed out since the backup must never come again.
        """
        known = await read_metadata(self._objects)
        last = known.sessions[-1]
        image, reason = image_of(known), f"restored from {self._backup.name}"
        records: list[MetadataRecord] = []
        for broker in list(image.brokers.by_id.values()):
            registered = known.of(broker.broker_epoch)
            if not broker.fenced and registered is not None:
                node_id, number = broker.broker_id, broker.broker_epoch
                await seal(self._objects, node_id, number, node_id, reason, nonce=registered.nonce)
                records += self._decided(image, end_session(image, node_id, number).records)
        now_ms = time.time_ns() // 1_000_000
        wanted = first_id_after_restore(image.next_producer_id, now_ms)
        moved = move_next(image, next_producer_id=wanted, broker_id=last.node_id)
        records += self._decided(image, moved.records)
        writer = Session(last.session, last.node_id, last.nonce, last.cluster_id)
        shared = SharedLog(self._objects, writer, next_seq=known.end_seq, next_offset=end_offset_of(known))
        if await shared.create(change_batch(records, now_ms)) is None:
            raise ControlError(f"another command or a gateway writes into {self._address}")
        return image.next_producer_id

    @staticmethod
    def _decided(image: MetadataImage, records: Collection[MetadataRecord]) -> Collection[MetadataRecord]:
        for record in records:
            image.replay(record)
        return records
