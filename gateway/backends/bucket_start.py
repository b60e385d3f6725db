"""A gateway's start over a bucket: it gets node id and session, ends earlier ones, makes its data directory.

A gateway seals the earlier sessions of its own node id, and those that the metadata shows as ended. Sessions
of other live gateways stay. The directory gets the metadata, and the partitions that this gateway leads;
where others are live, it adopts later what they gave it.
"""

from __future__ import annotations

import logging
import platform
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from seqgate import __version__
from seqgate.gateway.admin.request import CONSOLE_HISTORY, SOCKET_NAME
from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.backends.local_cache import LocalCache
from seqgate.gateway.cluster.metadata.shared_log import (
    SharedLog,
    copy_log,
    end_offset_of,
    is_copied,
    metadata_batches,
    read_metadata,
)
from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.gateway.cluster.parts.manifest import PartitionKey
from seqgate.gateway.cluster.rebuild.history import (
    MetadataPlace,
    Rebuilt,
    StoredTopic,
    rebuild,
    write_metadata,
)
from seqgate.gateway.cluster.rebuild.local_session import (
    LocalSession,
    encode_local_session,
    read_local_session,
    write_local_session,
)
from seqgate.gateway.cluster.rebuild.unfinished_import import read_import
from seqgate.gateway.cluster.silence import end_earlier
from seqgate.gateway.cluster.wal.ended import EndedSession, SealedWal, SessionState, seal_all, sealed_at
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.sessions import (
    CLUSTER_VERSION,
    RegisteredSession,
    Session,
    SessionFacts,
    SharedLogContent,
    fresh_nonce,
    read_on,
    register_next,
    written_version,
)
from seqgate.gateway.config import Config
from seqgate.gateway.metadata.image import METADATA_TOPIC, MetadataImage
from seqgate.gateway.metadata.leadership import Leadership, leadership_of
from seqgate.gateway.metadata.membership import ANY_EPOCH, choose_node_id, epoch_of
from seqgate.gateway.metadata.records import decode_record
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.topics.brokers import advertised_endpoint
from seqgate.gateway.runtime.topics.metadata_log import METADATA_TOPIC_ID
from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE
from seqgate.gateway.runtime.topics.stored_image import image_of, session_state
from seqgate.log import Durability, IncompatibleFormat, Storage
from seqgate.log.format.records import iterate_records
from seqgate.log.rebuilding import RebuiltDirectory, check_empty, fresh_id, is_as_stopped
from seqgate.log.stopped import LOCK, stored_batches

logger = logging.getLogger(__name__)

STARTING_MS: Final = 60_000
"""Until this age a session that is no broker yet is starting, and no other gateway gets its node id."""


class Started(NamedTuple):
    session: Session
    local: LocalSession
    """The content of BUCKET_SESSION while the session runs."""
    shared: SharedLog
    replaces: int
    """The epoch of the registration whose node id the gateway has chosen; ANY_EPOCH if it was set."""
    restored: Mapping[PartitionKey, Leadership] | None
    """The directory's partitions, each to the end of a leadership; None for all of the metadata."""

    def has(self, partition: PartitionKey, leadership: Leadership) -> bool:
        """Return whether the directory has all records from before the end of this leadership. A gateway that
        started meanwhile may have led the partition, in the same epoch, and have ended.
        """
        return self.restored is None or self.restored.get(partition) == leadership


class BucketStart:
    def __init__(
        self,
        config: Config,
        machine: Machine,
        objects: ObjectStore,
        cache: LocalCache,
        checks: StartChecks,
        durability: Durability,
    ) -> None:
        self._config = config
        self._machine = machine
        self._objects = objects
        self._cache = cache
        self._checks = checks
        self._durability = durability
        self._address = config.str("seqgate.cluster")
        self._path = Path(config.str("log.dirs"))
        self._reason = f"a later session started on {platform.node()}"
        self._known: SharedLogContent
        self._image: MetadataImage
        self._local: LocalSession | None = None
        self._died_here: frozenset[int] = frozenset()
        """The sessions of this data directory: its lock proves that their processes are dead."""

    async def run(self) -> Started:
        """Start. Waits until the store answers. Raises StartFailed, and errors of the bucket and the disk."""
        reads = PersistentReads(self._objects, "the gateway waits to read the metadata")
        self._local = local = read_local_session(self._machine.storage, str(self._path))
        self._known = known = await read_metadata(self._objects)
        self._checks.check_bucket(known)
        if local is not None:
            self._died_here = frozenset(
                each.session
                for each in known.sessions
                if each.session == local.session or each.nonce.hex() in local.earlier
            )
        # Registered before it seals: of two simultaneous starts of a node, the later one seals the earlier.
        session, replaces = await self._register()
        sealed = await self._seal(session, reads)
        copied = await self._copied(session)
        if copied is not None:
            shared = self._shared_log(session, *copied)
            restored: Mapping[PartitionKey, Leadership] | None = self._leaderships()
        else:
            shared, restored = await self._rebuild(session, sealed)
        return Started(session, self._local_of(session), shared, replaces, restored)

    def _shared_log(self, session: Session, next_seq: int, next_offset: int) -> SharedLog:
        return SharedLog(
            self._objects,
            session,
            next_seq=next_seq,
            next_offset=next_offset,
            sessions=[each for each in self._known.sessions if each.session < next_seq],
            seconds=self._machine.boot_seconds,
            kept_s=self._config.int("seqgate.cluster.metadata.snapshot.age.ms") / 1000,
        )

    async def _register(self) -> tuple[Session, int]:
        """Register the session under a node id that is free; return it, and the epoch as `_node_id` does."""
        facts = SessionFacts(fresh_id(), self._machine.clock.now_ms(), platform.node(), __version__)
        session: Session | None = None
        while session is None:
            self._image = image_of(self._known)
            node_id, replaces = self._node_id()
            version, nonce = self._written_version(), fresh_nonce()
            self._note(nonce)
            session = await register_next(
                self._objects, node_id, facts, self._known, nonce=nonce, cluster_version=version
            )
            if session is not None and session.session in self._image.brokers.ended:
                session = None  # a worker of the directory that was imported had this number as its epoch
        if not self._config.is_set("node.id"):
            self._config.choose("node.id", session.node_id)
            logger.info("node.id is not set; this gateway is node %d", session.node_id)
        return session, replaces

    def _written_version(self) -> int:
        """Return the version of the bucket's content that this session writes: gateways of an earlier release
        may still read it. Raises StartFailed where the cluster uses a later one than this release knows.
        """
        used = self._image.brokers.cluster_version
        if used > CLUSTER_VERSION:
            raise StartFailed(
                f"the cluster in {self._address} uses version {used} of its formats, and this release knows "
                f"{CLUSTER_VERSION}; start the release that the other gateways run, or a later one"
            )
        return written_version(self._known, used)

    def _node_id(self) -> tuple[int, int]:
        """Return the node id, and the epoch of its last registration, or ANY_EPOCH if the id was set."""
        if self._config.is_set("node.id"):
            return self._config.int("node.id"), ANY_EPOCH
        last = None if self._local is None else self._known.of(self._local.session)
        return choose_node_id(
            self._image,
            kept=None if last is None else last.node_id,
            died_here=self._died_here,
            starting=self._starting(),
            addresses={
                advertised_endpoint(self._config, listener, listener.port)
                for listener in self._config.listeners
            },
        )

    def _starting(self) -> Collection[int]:
        """Return the node ids of gateways that have just registered a session, and may soon be brokers."""
        return {each.node_id for each in self._young() if each.session not in self._died_here}

    def _young(self) -> Iterator[RegisteredSession]:
        """Yield the sessions that were registered lately and are no brokers yet."""
        since_ms = self._machine.clock.now_ms() - STARTING_MS
        for session in self._known.sessions:
            state = session_state(self._image.brokers, session)
            if session.registered_ms > since_ms and state is SessionState.NO_BROKER:
                yield session

    def _earlier(self) -> tuple[str, ...]:
        """Return the nonces of the dead sessions of this directory that the next start would take for those
        of other gateways, if this one ended before it has joined.
        """
        ours = [each for each in self._known.sessions if each.session in self._died_here]
        young = {each.session for each in self._young()}
        return tuple(
            each.nonce.hex()
            for each in ours
            if each.session in young or each.session == epoch_of(self._image, each.node_id)
        )

    def _local_of(self, session: Session) -> LocalSession:
        """Return what the data directory says while the session runs."""
        return LocalSession(self._address, session.cluster_id, session.session, earlier=self._earlier())

    def _note(self, nonce: bytes) -> None:
        """Persist that a session with this nonce begins on the directory, before it is registered. The files
        are as before. Raises OSError, DirectoryLocked.
        """
        if self._local is None:
            return  # a new directory has no node id to keep
        storage, lock = self._machine.storage, str(self._path / LOCK)
        local = msgspec.structs.replace(self._local, earlier=(*self._earlier(), nonce.hex()))
        storage.lock(lock)
        try:
            write_local_session(storage, str(self._path), local)
        finally:
            storage.unlock(lock)

    def _others(self, session: Session) -> Collection[int]:
        return set(self._image.brokers.live(session.node_id)) - {session.node_id}

    async def _seal(
        self, session: Session, reads: PersistentReads
    ) -> Sequence[tuple[RegisteredSession, SealedWal]]:
        """End this node's earlier sessions, find the ends of ended ones, and read the metadata of then."""
        sealed = await self._seal_own(session)
        asked: set[int] = set()
        # A session may end meanwhile and leave partitions to this node, whose earlier session still lives.
        while True:
            more = self._ended(session) - asked
            others = [known for known in self._known.sessions if known.session in more]
            sealed += await seal_all(self._objects, session, others, self._reason)
            asked |= more
            # After the seals: no record of an earlier session belongs to a topic that was created later.
            await read_on(reads, self._known)
            self._image = image_of(self._known)
            if self._ended(session) <= asked:
                return sorted(sealed, key=lambda entry: entry[0].session)

    async def _seal_own(self, session: Session) -> list[tuple[RegisteredSession, SealedWal]]:
        brokers = self._image.brokers

        def may_serve(number: int) -> bool:
            return number not in self._died_here and brokers.is_current(session.node_id, number)

        return await end_earlier(
            self._objects,
            session,
            self._known.before(session.session),
            self._reason,
            lease_s=self._config.int("seqgate.cluster.lease.ms") / 1000,
            may_serve=may_serve,
        )

    def _ended(self, session: Session) -> set[int]:
        """Return the numbers of the sessions of other nodes that the metadata shows as ended."""
        brokers = self._image.brokers
        return {
            known.session
            for known in self._known.sessions
            if known.node_id != session.node_id and session_state(brokers, known) is SessionState.ENDED
        }

    def _leaderships(self, leader: int | None = None) -> Mapping[PartitionKey, Leadership]:
        """Return the leaderships of all partitions, or of those that the metadata gives to one node."""
        return {
            PartitionKey(topic.topic_id, index): leadership_of(self._image, partition)
            for topic in self._image.topics_by_id.values()
            for index, partition in topic.partitions.items()
            if leader is None or partition.leader == leader
        }

    async def _copied(self, session: Session) -> tuple[int, int] | None:
        """Return the first object of `meta/`, and its offset, that the directory lacks, if the directory has
        all else that the bucket has. Then the last session of the cluster stopped cleanly on it, and no other
        gateway is live, or has led a partition since. None if the directory must be rebuilt.
        """
        local = self._local
        if local is None or local.wal_end is None or self._others(session):
            return None
        if (
            self._image.brokers.by_id
            and len(self._leaderships(session.node_id)) < self._image.partition_count
        ):
            return None
        if local.metadata_seq is None or local.metadata_offset is None or not is_copied(self._known):
            return None
        earlier = self._known.before(session.session)
        if not earlier or earlier[-1].session != local.session:
            return None
        last = earlier[-1]
        if not is_as_stopped(self._machine.storage, str(self._path)):
            return None
        if last.node_id != session.node_id or last.cluster_id != local.cluster_id:
            return None
        if not await sealed_at(self._objects, last.node_id, last.session, local.wal_end):
            return None
        return (local.metadata_seq, local.metadata_offset) if self._cache.restore() else None

    async def _rebuild(
        self, session: Session, sealed: Sequence[tuple[RegisteredSession, SealedWal]]
    ) -> tuple[SharedLog, Mapping[PartitionKey, Leadership] | None]:
        """Make the directory from the bucket; return the shared log behind it, and `Started.restored`."""
        wanted = self._leaderships(session.node_id) if self._others(session) else None
        # An older release kept the metadata elsewhere, and no other gateway was there.
        restored = wanted if wanted is not None or not is_copied(self._known) else self._leaderships()
        rebuilt, shared = await rebuild_directory(
            self._objects,
            self._machine.storage,
            self._path,
            encode_local_session(self._local_of(session)),
            session,
            self._known,
            sealed,
            self._durability,
            partial(self._shared_log, session),
            wanted,
        )
        self._cache.restored.update(rebuilt.manifests)
        return shared, restored


METADATA: Final = MetadataPlace(METADATA_TOPIC_ID, METADATA_TOPIC)


async def rebuild_directory(
    objects: ObjectStore,
    storage: Storage,
    path: Path,
    local_session: bytes,
    session: Session,
    known: SharedLogContent,
    sealed: Sequence[tuple[RegisteredSession, SealedWal]],
    durability: Durability,
    shared_log: Callable[[int, int], SharedLog],
    wanted: Collection[PartitionKey] | None = None,
) -> tuple[Rebuilt, SharedLog]:
    """Make the directory anew; return what was read, and the shared metadata log behind that.

    `known` is all of `meta/`, or a snapshot and what is behind it, read after the logs in `sealed` had ended.
    `shared_log` returns the shared log from an object and an offset on.
    Where an older release kept the metadata in write-ahead logs and parts, the metadata is copied into the
    shared log, before anything else is written. Raises CorruptChange and as `rebuild`.
    """
    begun_s = time.monotonic()
    ended = [EndedSession(each.node_id, each.session, each.nonce, log.end_seq) for each, log in sealed]
    batches = list(metadata_batches(known))
    kept = {SEEN_FILE, CONSOLE_HISTORY, SOCKET_NAME}
    directory = RebuiltDirectory.begin(storage, path, local_session, kept=kept)
    try:
        is_whole = is_copied(known)
        end_offset = write_metadata(directory, METADATA, batches) if is_whole else end_offset_of(known)
        rebuilt = await rebuild(objects, ended, directory, METADATA, partial(_read_topics, storage), wanted)
        directory.finish(durability, session.cluster_id, session.node_id)
    except BaseException:
        directory.abandon()
        raise
    shared = shared_log(known.end_seq, end_offset)
    if not is_whole:
        logger.info("the metadata of the cluster, which an older release has written, is copied to meta/")
        place = path / f"{METADATA_TOPIC}-0"
        await copy_log(shared, stored_batches(storage, place) if storage.exists(str(place)) else ())
    logger.info(
        "%s: rebuilt from the bucket: sessions %d, objects %d, bytes %d, partitions %d, in %.2f s",
        path,
        len(ended),
        *rebuilt[:3],
        time.monotonic() - begun_s,
    )
    return rebuilt, shared


def _read_topics(storage: Storage, directory: Path) -> Mapping[uuid.UUID, StoredTopic]:
    image = MetadataImage()
    for _, batch in stored_batches(storage, directory):
        for record in iterate_records(batch):
            image.replay(decode_record(record.value or b""))
    return {
        topic_id: StoredTopic(topic.name, len(topic.partitions))
        for topic_id, topic in image.topics_by_id.items()
    }


# Checks of a data directory and a bucket before a start changes either.


class StartChecks:
    """Checks the data directory `path` and the bucket at `address`; the directory is or becomes its cache."""

    def __init__(self, storage: Storage, path: Path, address: str) -> None:
        self._storage = storage
        self._path = path
        self._address = address

    def check_directory(self) -> None:
        """Check that `path` is empty or the bucket's. Raises StartFailed, OSError, IncompatibleFormat."""
        local = read_local_session(self._storage, str(self._path))
        if local is None:
            try:
                check_empty(self._storage, str(self._path))
            except IncompatibleFormat as error:
                raise StartFailed(
                    f"the data directory {self._path} holds files that are no cache of {self._address} "
                    f"({error}); name an empty directory"
                ) from error
        elif local.address != self._address:
            raise StartFailed(
                f"the data directory {self._path} is a cache of {local.address}, not of {self._address}; "
                "name another directory"
            )

    def check_unlocked(self) -> None:
        """Check that no gateway uses the data directory; otherwise this start would end that gateway's
        session, and then fail itself. Raises DirectoryLocked, OSError.
        """
        lock = str(self._path / LOCK)
        self._storage.make_directories(str(self._path))
        self._storage.lock(lock)
        self._storage.unlock(lock)

    async def check_imported(self, reads: PersistentReads) -> None:
        """Check that the bucket is whole. Raises StartFailed, and as `read_import`."""
        begun = await read_import(reads)
        if begun is not None:
            raise StartFailed(
                f"an import or restore of {begun.path} on {begun.host} into {self._address} is not finished; "
                "run `seqgate cluster import`, or `seqgate backup restore`, again"
            )

    def check_bucket(self, known: SharedLogContent) -> None:
        """Check that the bucket has the session that used the data directory last. Raises StartFailed,
        OSError, IncompatibleFormat. A bucket that was emptied or replaced has not what the directory has: the
        directory may be all that is left.
        """
        local = read_local_session(self._storage, str(self._path))
        if local is None:
            return
        last = known.of(local.session)
        is_dropped = last is None and known.base is not None and local.session < known.base.seq
        if (last is not None or is_dropped) and known.cluster_id == local.cluster_id:
            return
        raise StartFailed(
            f"the data directory {self._path} is a cache of the cluster {local.cluster_id}, and "
            f"{self._address} has no session {local.session} of this cluster, so somebody emptied or "
            "replaced the bucket; put its objects back, or name an empty directory"
        )
