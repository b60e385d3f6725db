"""A data directory under several workers: their supervisor shares it out, and makes it one again.

Both happen while no worker runs, under the lock of the directory. The workers inherit the lock, so that
nobody else opens the directory while any of them lives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from seqgate.gateway.metadata.image import METADATA_TOPIC, MetadataImage
from seqgate.gateway.metadata.records import RegisterBrokerRecord
from seqgate.gateway.runtime.partitions.producer_clients import KeptRows, join_rows
from seqgate.gateway.runtime.topics.metadata_log import open_metadata_log
from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE
from seqgate.gateway.workers.leaving_topics import LeftDirectory
from seqgate.gateway.workers.metadata_writer import METADATA_DIRECTORY, MetadataWriter
from seqgate.gateway.workers.worker_brokers import leader_of, only_brokers, spread, unregistered
from seqgate.log import (
    PRODUCER_CLIENTS,
    CorruptRecord,
    DirectoryShare,
    IncompatibleFormat,
    LocalDurability,
    LogDirectory,
    Storage,
    parse_partition_directory,
)
from seqgate.log.sharing import WORKERS, hand_on, hold, is_shared, merge, release, split, take_away
from seqgate.log.staging import LogCut, begin_shares, cut_of, data_path, detach, stage_share
from seqgate.pid_allocator.seen_file import newest_content

logger = logging.getLogger(__name__)

METADATA: Final = "metadata"
"""The name under which the supervisor has the facts about the metadata log."""
NOBODY: Final = -1
"""The node id of a directory that no worker has."""


def own_files(root: Path, node_id: int) -> Path:
    return root / WORKERS / str(node_id)


def share_of(
    root: Path,
    node_id: int,
    image: MetadataImage,
    strays: Collection[tuple[str, int]] | None = None,
    *,
    is_again: bool = False,
    tells_of_metadata: bool = False,
) -> DirectoryShare:
    """Return the partitions of a worker: those that it leads in the image, and the `strays`, if it is the
    worker that tidies up. A worker that is started again deletes what its earlier process has left to be
    deleted. It can't tell that from what others delete.
    """

    def owns(topic: str, partition: int) -> bool:
        if topic == METADATA_TOPIC:
            return False
        return leader_of(image, topic, partition) == node_id or (topic, partition) in (strays or ())

    return DirectoryShare(
        own_files(root, node_id),
        owns,
        takes_leftovers=strays is not None or is_again,
        others_delete=is_again,
        tells_of=str(root / WORKERS / METADATA) if tells_of_metadata else None,
    )


def make_whole(
    storage: Storage, root: Path, now_ms: Callable[[], int], *, without_metadata: bool = False
) -> None:
    """Make the directory that of one process again, if several workers had it last. The caller holds its
    lock. `without_metadata`: nobody knows the leaders, so every log is checked from its recovery point.
    Raises LogError, IncompatibleFormat, OSError, UnknownRecordError.
    """
    if not is_shared(storage, str(root)):
        return
    image = MetadataImage()
    if not without_metadata:
        writer = MetadataWriter(storage, str(root), str(root / WORKERS / METADATA), now_ms)
        writer.keep_facts_in(str(root / WORKERS / METADATA))
        writer.change(list(unregistered(writer.image)))
        writer.close()
        image = writer.image
    seen = [root, *((root / WORKERS / name) for name in storage.list_directory(str(root / WORKERS)))]
    _write_seen(storage, _newest_seen(storage, seen), [root])
    _hand_clients_on(storage, seen, {root: NOBODY})
    merge(storage, LocalDurability(storage), str(root), lambda *key: _owner(image, None, *key))


def make_staged_whole(storage: Storage, root: Path, now_ms: Callable[[], int]) -> None:
    """Make what workers have staged of a data directory a copy of one process's directory. Its links lead to
    files that the workers use, so the metadata is copied before it is written to. The caller holds the lock
    of what is staged. Raises LogError, IncompatibleFormat, OSError, UnknownRecordError.
    """
    data = data_path(str(root))
    if is_shared(storage, data):
        detach(storage, str(root), METADATA_DIRECTORY)
        make_whole(storage, Path(data), now_ms)


def recover_whole(
    storage: Storage, root: Path, node_id: int, now_ms: Callable[[], int], *, for_repair: bool = False
) -> None:
    """Take the lock of a directory that several workers had last, and make it whole. Does nothing to any
    other directory. A repair does so, too, where the metadata is damaged. Raises DirectoryLocked, LogError,
    IncompatibleFormat, OSError, UnknownRecordError.
    """
    if not is_shared(storage, str(root)):
        return
    hold(storage, LocalDurability(storage), str(root), node_id)
    try:
        make_whole(storage, root, now_ms)
    except CorruptRecord:
        if not for_repair:
            raise
        make_whole(storage, root, now_ms, without_metadata=True)
    finally:
        release(storage, str(root))


class SharedDirectory:
    """A data directory shared out among workers. Holds its lock until `close`, and has its metadata."""

    def __init__(self, storage: Storage, root: Path, node_id: int, now_ms: Callable[[], int]) -> None:
        """Take the lock, make the directory whole, and read the metadata. Raises DirectoryLocked, LogError,
        IncompatibleFormat, OSError, UnknownRecordError.
        """
        self._storage, self._root, self._now_ms = storage, root, now_ms
        self._first_id = node_id
        self.strays: frozenset[tuple[str, int]] = frozenset()
        """The partitions with a directory and without a topic when the directory was shared out. A worker
        that looks for itself would take one that another worker has just created for one of them.
        """
        if not storage.exists(str(root / METADATA_DIRECTORY)):
            self._create()
        hold(storage, LocalDurability(storage), str(root), node_id)
        try:
            make_whole(storage, root, now_ms)
            self.metadata = MetadataWriter(storage, str(root), str(root), now_ms)
        except BaseException:
            release(storage, str(root))
            raise

    def _create(self) -> None:
        """Create the metadata log of a new directory; refuse one that has lost its metadata log."""
        directory = LogDirectory.open(self._root, self._storage, node_id=self._first_id, now_ms=self._now_ms)
        try:
            open_metadata_log(directory)
        finally:
            directory.close(clean=True)

    def share_out(self, brokers: Sequence[RegisterBrokerRecord]) -> None:
        """Make these the only brokers, spread leaders, give each its files. Raises LogError, OSError."""
        metadata = self.metadata
        metadata.change(list(only_brokers(metadata.image, brokers)))
        node_ids = [broker.broker_id for broker in brokers]
        metadata.change(list(spread(metadata.image, node_ids)))
        split(
            self._storage,
            LocalDurability(self._storage),
            str(self._root),
            [METADATA, *map(str, node_ids)],
            lambda *key: _owner(metadata.image, self._first_id, *key),
        )
        metadata.keep_facts_in(str(self._root / WORKERS / METADATA))
        keys = map(parse_partition_directory, self._storage.list_directory(str(self._root)))
        self.strays = frozenset(
            key
            for key in keys
            if key is not None and key[0] != METADATA_TOPIC and leader_of(metadata.image, *key) is None
        )
        seen = _newest_seen(self._storage, [self._root])
        workers = {own_files(self._root, node_id): node_id for node_id in node_ids}
        _write_seen(self._storage, seen, workers)
        _hand_clients_on(self._storage, [self._root], workers)

    def take_away(self, left: LeftDirectory) -> None:
        """Take away a removed partition's directory whose worker is dead. The next start does what fails."""
        try:
            kept = take_away(self._storage, str(self._root), *left)
        except (OSError, IncompatibleFormat) as error:
            logger.error(  # noqa: TRY400
                "the log of %s-%d can't be deleted: %s", left.topic, left.partition, error
            )
            return
        if kept is not None:
            logger.error(
                "%s-%d was deleted, but its directory has records of another topic; they are kept as %s",
                left.topic,
                left.partition,
                kept,
            )

    def hand_on(self, leader: int, to: int, keys: Collection[tuple[str, int]]) -> None:
        """Hand facts about partitions to a new leader. Raises OSError, IncompatibleFormat, StorageFailed."""
        source, target = (str(own_files(self._root, node_id)) for node_id in (leader, to))
        hand_on(self._storage, LocalDurability(self._storage), str(self._root), keys, source, target)

    # --- the metadata in a backup

    def begin_staging(self) -> None:
        """Make the directories that the workers link their shares into. Raises OSError, StorageFailed."""
        begin_shares(self._storage, str(self._root))

    def capture_metadata(self) -> tuple[int, LogCut]:
        """Return the time (ms), and where the metadata ends."""
        return self._now_ms(), cut_of(self.metadata.log)

    def stage_metadata(self, cut: LogCut) -> None:
        """Link the metadata as it was. Raises OSError, LogError, IncompatibleFormat."""
        stage_share(self._storage, str(self._root), METADATA, [cut], ())

    def close(self) -> None:
        """Once no worker runs, make all whole, and unlock. Raises LogError, IncompatibleFormat, OSError."""
        try:
            self.metadata.close()
            make_whole(self._storage, self._root, self._now_ms)
        finally:
            release(self._storage, str(self._root))


def _newest_seen(storage: Storage, directories: Iterable[Path]) -> bytes | None:
    """Return the newest view of a shared store of producer ids that a process has noted; None without any."""
    paths = [str(directory / SEEN_FILE) for directory in directories]
    return newest_content([storage.read_file(path) for path in paths if storage.exists(path)])


def _write_seen(storage: Storage, content: bytes | None, directories: Iterable[Path]) -> None:
    for directory in directories if content is not None else ():
        LocalDurability(storage).replace(str(directory / SEEN_FILE), content or b"")


def _hand_clients_on(storage: Storage, sources: Collection[Path], targets: Mapping[Path, int]) -> None:
    """Give each target, a directory with its node id, what the sources knew of the clients of producers, and
    take it from other sources. Each worker gets all clients: a producer's partitions may have other leaders
    now. It gets its own verdicts, and the first target those of all others. A file that can't be read or
    written costs clients and verdicts alone.
    """
    try:
        paths = [str(directory / PRODUCER_CLIENTS) for directory in sources]
        rows = join_rows(KeptRows.read(storage, path) for path in paths if storage.exists(path))
        others = {row.node_id for row in rows.verdicts}.difference(targets.values())
        for directory, node_id in targets.items() if any(rows) else ():
            rows.of({node_id, *others}).write(storage, str(directory / PRODUCER_CLIENTS))
            others = set()
        for directory in sources:
            if directory not in targets:
                storage.delete(str(directory / PRODUCER_CLIENTS))
    except OSError as error:
        logger.warning("the clients of producers are unknown: %s", error)


def _owner(image: MetadataImage, otherwise: int | None, topic: str, partition: int) -> str | None:
    """Return the name of the process that has a partition; `otherwise` has partitions without a topic."""
    if topic == METADATA_TOPIC:
        return METADATA
    leader = leader_of(image, topic, partition)
    node_id = otherwise if leader is None else leader
    return None if node_id is None else str(node_id)
