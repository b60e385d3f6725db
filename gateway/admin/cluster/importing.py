"""`seqgate cluster import`: copies the data directory of a stopped gateway into an empty bucket, and checks
the copy byte by byte.

The import is a session of its own, which uploads each partition as a running gateway does and is then sealed.
The metadata comes last. An import that ended early is resumed by the next one: parts that a manifest names
stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Final

import msgspec

from seqgate.gateway.admin.cluster.bucket import (
    Bucket,
    ProgressLine,
    begin_or_resume_import,
    first_key,
    in_bucket,
)
from seqgate.gateway.admin.commands import Output
from seqgate.gateway.admin.request import ControlError, in_words
from seqgate.gateway.admin.stored import check_is_no_cache, existing_metadata_directory, read_image
from seqgate.gateway.admin.tables import count, counted
from seqgate.gateway.cluster.metadata.change import CorruptChange, decode_change
from seqgate.gateway.cluster.metadata.shared_log import SharedLog, copy_log
from seqgate.gateway.cluster.objects.objects import CountedObjects, ObjectStore
from seqgate.gateway.cluster.objects.probe import probe
from seqgate.gateway.cluster.parts.manifest import Manifest, Manifests, PartitionKey, part_key
from seqgate.gateway.cluster.parts.part_object import CorruptPart, decode_part
from seqgate.gateway.cluster.rebuild.unfinished_import import UnfinishedImport, end_import
from seqgate.gateway.cluster.uploads.partition_uploads import PartitionUploads, UploadPorts
from seqgate.gateway.cluster.wal.ended import seal_all
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.session_wal import SessionFenced, SessionWal
from seqgate.gateway.cluster.wal.sessions import (
    Session,
    SessionFacts,
    SharedLogContent,
    read_on,
    register,
    sessions,
)
from seqgate.gateway.config import Config
from seqgate.gateway.metadata.image import METADATA_TOPIC
from seqgate.gateway.runtime.topics.topic_lifecycle import topic_policy
from seqgate.gateway.tasks import end_tasks
from seqgate.log import (
    CorruptRecord,
    DirectoryLocked,
    IncompatibleFormat,
    LogDirectory,
    LogError,
    PartitionLog,
    Storage,
)
from seqgate.log.format.records import iterate_records
from seqgate.log.uploading import view
from seqgate.seq_validator.checksum import crc32c

PARTITIONS_AT_ONCE: Final = 2
SHOWN_EVERY_S: Final = 1.0
PUTS_IN_FLIGHT: Final = 1
"""The session of an import has hardly any objects."""

Progress = Callable[[int, int], None]
#: Takes the numbers of objects and bytes that were sent.


class Imported(msgspec.Struct, frozen=True):
    """A data directory that is in a bucket now. `us_dollars` is the requests' price by Amazon's list."""

    address: str
    data_dir: str
    cluster_id: str
    partitions: int
    parts: int
    size_bytes: int
    us_dollars: float


def imported(bucket: Bucket, data_dir: Path) -> Output:
    """Import a data directory into the bucket of the command. Raises ControlError."""
    now_ms, show = time.time_ns() // 1_000_000, ProgressLine("sent").show
    done = in_bucket(
        bucket,
        lambda objects, address: import_directory(objects, address, data_dir, bucket.config, now_ms, show),
    )
    return Output(done, _text(done))


def _text(done: Imported) -> list[str]:
    """Return what was copied, and how to start a gateway from it."""
    copied = (
        f"{counted(done.partitions, 'partition')}, {counted(done.parts, 'part')}, {count(done.size_bytes)} "
        f"bytes of records are in {done.address}, and were read back. The requests cost "
        f"${done.us_dollars:,.4f} by Amazon's list for S3."
    )
    following = f"Start the gateway: seqgate serve --cluster {done.address} --data-dir NEW_DIRECTORY"
    return [copied, following]


async def import_directory(
    objects: ObjectStore, address: str, data_dir: Path, config: Config, now_ms: int, progress: Progress
) -> Imported:
    """Copy the data directory into the bucket, and check the copy. Waits until the store answers.

    Raises ControlError where the directory or the bucket is not what it must be, CorruptPart for a copy that
    differs, CorruptRegistration, CorruptChange, CorruptWalObject, Overtaken, LogError, IncompatibleFormat,
    Refused.
    """
    counted = CountedObjects(objects)
    with _opened(data_dir, config, now_ms) as directory:
        copy = _Import(counted, address, data_dir, directory)
        async with _shown(counted, progress):
            copy.check_leaders()
            await copy.begin()
            session = await copy.register(config.int("node.id"), now_ms)
            return await copy.run(session)


class _Import:
    """One import. `directory` is open, and everything in it is durable."""

    def __init__(
        self, objects: CountedObjects, address: str, data_dir: Path, directory: LogDirectory
    ) -> None:
        self._objects = objects
        self._address = address
        self._data_dir = data_dir
        self._directory = directory
        self._storage = directory.environment.storage
        self._reads = PersistentReads(objects, "the import waits for the store")
        self._manifests = Manifests(objects)
        self._known = SharedLogContent()
        """The objects that the bucket has in `meta/`."""
        self._image = read_image(data_dir / f"{METADATA_TOPIC}-0")

    def check_leaders(self) -> None:
        """Check that no worker leads a partition: no gateway of the bucket would. Raises ControlError."""
        if self._image.brokers.by_id:
            raise ControlError(
                f"the last start of {self._data_dir} with --workers did not end; "
                "start a gateway on it without --workers, stop it, and import it then"
            )

    async def begin(self) -> None:
        """Take an empty bucket, or that of an unfinished import of this directory. Raises ControlError."""
        await self._reads.answered(lambda: probe(self._objects, uuid.uuid4().hex))
        ours = UnfinishedImport(
            self._directory.cluster_id,
            self._directory.directory_id,
            str(self._data_dir.absolute()),
            platform.node(),
        )
        await begin_or_resume_import(self._reads, self._address, ours, check_empty=self._check_empty)

    async def _check_empty(self) -> None:
        known = await sessions(self._objects)
        if known:
            raise ControlError(
                f"{self._address} holds the cluster {known[0].cluster_id} already; name an address that "
                "holds nothing"
            )
        key = await first_key(self._reads)
        if key is not None:
            raise ControlError(
                f"{self._address} holds the object {key}, and no cluster; name an address that holds nothing"
            )

    async def register(self, node_id: int, now_ms: int) -> Session:
        """Return the session of this import; those of imports that ended early can't go on."""
        facts = SessionFacts(self._directory.cluster_id, now_ms, platform.node(), "import")
        session = await register(self._objects, node_id, facts, known=self._known)
        earlier = self._known.before(session.session)
        await seal_all(self._objects, session, earlier, "the import began again")
        return session

    async def run(self, session: Session) -> Imported:
        """Upload and check all partitions, and end the import."""
        wal = SessionWal(self._objects, session, puts_in_flight=PUTS_IN_FLIGHT)
        try:
            copied = await self._copy_all(session)
            await self._copy_metadata(session)
            await wal.barrier()
            await wal.seal(f"{self._data_dir} was imported")
        except SessionFenced as error:
            raise ControlError(
                f"another import or gateway has taken {self._address} over: {error}"
            ) from error
        finally:
            await wal.close()
        await end_import(self._reads)
        return Imported(
            self._address,
            str(self._data_dir),
            session.cluster_id,
            len(copied),
            sum(len(segment.parts) for manifest in copied for segment in manifest.segments),
            sum(segment.size_bytes for manifest in copied for segment in manifest.segments),
            self._objects.counts.us_dollars,
        )

    async def _copy_all(self, session: Session) -> list[Manifest]:
        ports = UploadPorts(
            self._objects, self._storage, self._manifests, session.session, lambda: 0, _is_flushed
        )
        uploads = PartitionUploads(ports)
        turns = asyncio.Semaphore(PARTITIONS_AT_ONCE)

        async def copied(topic: str, partition: int, topic_id: uuid.UUID) -> Manifest | None:
            async with turns:
                log = self._directory.get(topic, partition)
                if log is None or log.topic_id != topic_id:
                    return None  # without records, or of a topic that was deleted
                return await self._copy(uploads, log)

        topics = self._image.topics_by_id.values()
        copying = [
            asyncio.create_task(copied(topic.name, partition, topic.topic_id))
            for topic in topics
            for partition in topic.partitions
        ]
        try:
            manifests = [await each for each in copying]
        finally:
            await end_tasks(*copying)
        return [each for each in manifests if each is not None]

    async def _copy_metadata(self, session: Session) -> None:
        """Copy the metadata log into the shared one, and read it back. Raises ControlError, CorruptChange."""
        metadata = self._directory.get(METADATA_TOPIC, 0)
        if metadata is None:
            raise ControlError(f"{self._data_dir} has no metadata; nothing can be imported")
        changes = [decode_change(content, seq) for seq, content in self._known.changes]
        end_offset = changes[-1].end_offset if changes else 0
        shared = SharedLog(self._objects, session, next_seq=self._known.end_seq, next_offset=end_offset)
        begin = metadata.log_start_offset  # above 0 where a start has shortened the log
        try:
            await copy_log(shared, metadata.replay_batches(begin), begin)
        except CorruptRecord as error:
            if not (begin and end_offset):
                raise
            raise ControlError(
                f"{self._data_dir} was used since an import that ended early; empty {self._address}, and "
                "import again"
            ) from error
        await read_on(self._reads, self._known)
        copied = (decode_change(content, seq).batch for seq, content in self._known.changes)
        for ours, theirs in zip_longest(
            metadata.replay_records(begin), chain.from_iterable(map(iterate_records, copied))
        ):
            is_copied = ours is not None and theirs is not None and ours.offset - begin == theirs.offset
            if not is_copied or ours.value != theirs.value:
                raise CorruptChange("the copy of the metadata differs from the data directory")

    async def _copy(self, uploads: PartitionUploads, log: PartitionLog) -> Manifest:
        """Upload a partition and read it back. Uploads of an earlier import that differ are made again."""
        before = await self._manifests.load(PartitionKey(log.topic_id, log.partition))
        manifest = (await uploads.upload(log)).manifest
        try:
            await self._check(manifest, log)
        except CorruptPart:
            if before is None:
                raise
            await self._manifests.delete(manifest.key)
            uploads.forget(manifest.key)
            manifest = (await uploads.upload(log)).manifest
            await self._check(manifest, log)
        return manifest

    async def _check(self, manifest: Manifest, log: PartitionLog) -> None:
        """Check the log's segments and side files in the bucket. Raises CorruptPart, OSError, Refused."""
        name, segments = f"{log.topic}-{log.partition}", view(log).segments
        copied = [(segment.base, segment.size_bytes) for segment in manifest.segments]
        if manifest.end_offset != log.log_end_offset or copied != [
            (segment.base_offset, segment.size_bytes) for segment in segments
        ]:
            raise CorruptPart(f"the copy of {name} has not all of its segments")
        for copy, segment in zip(manifest.segments, segments, strict=True):
            for part in copy.parts:
                key = part_key(manifest.key, part.name)
                _, data = decode_part(await self._reads.get(key), key)
                self._storage.descriptors.pin(segment.file)
                try:
                    local = await asyncio.to_thread(
                        self._storage.read_pinned, segment.file, part.length, part.position
                    )
                finally:
                    self._storage.descriptors.unpin(segment.file)
                if data != local:
                    raise CorruptPart(f"{key} differs from {segment.file.path} at position {part.position}")
        for file in manifest.files:
            if file.stored is not None:
                key = part_key(manifest.key, file.stored)
                content = await self._reads.get(key)
                if (len(content), crc32c(content)) != (file.length, file.crc):
                    raise CorruptPart(f"{key} differs from the file {file.name} of {name}")


@contextlib.contextmanager
def _opened(data_dir: Path, config: Config, now_ms: int) -> Iterator[LogDirectory]:
    """Open a data directory whose logs are whole and durable. Raises ControlError."""
    existing_metadata_directory(data_dir)
    storage = Storage()
    check_is_no_cache(storage, data_dir, "which has its records already; there is nothing to import")

    def opened() -> LogDirectory:
        return LogDirectory.open(
            data_dir,
            storage,
            node_id=config.int("node.id"),
            now_ms=lambda: now_ms,
            config=topic_policy(config, {}).log_config,
        )

    try:
        directory = opened()
        if not directory.was_clean:
            directory.close(clean=True)  # what a crash left is recovered now, and durable
            directory = opened()
    except DirectoryLocked as error:
        raise ControlError(f"a gateway runs on {data_dir}; stop it first") from error
    except (LogError, IncompatibleFormat, OSError) as error:
        raise ControlError(f"{data_dir} can't be opened: {in_words(error)}") from error
    try:
        yield directory
    except (LogError, OSError) as error:
        raise ControlError(
            f"{data_dir} can't be imported: {in_words(error)}; `seqgate repair` shows damaged batches"
        ) from error
    finally:
        directory.close(clean=True)


@contextlib.asynccontextmanager
async def _shown(objects: CountedObjects, progress: Progress) -> AsyncIterator[None]:
    """Show every second how much was sent."""

    async def show() -> None:
        while True:
            await asyncio.sleep(SHOWN_EVERY_S)
            progress(objects.counts.puts, objects.counts.bytes_up)

    showing = asyncio.create_task(show())
    try:
        yield
    finally:
        showing.cancel()


async def _is_flushed(log: PartitionLog) -> None:
    """Return at once: a directory that was closed cleanly is durable."""
    assert log.recovery_point == log.log_end_offset
