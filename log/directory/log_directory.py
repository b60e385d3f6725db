"""The data directory of one gateway: its identity, its lock, and all partition logs in it.

    .lock                              held while the gateway runs
    meta.properties                    version of all formats, cluster.id, node.id, directory.id (as Kafka's)
    .kafka_cleanshutdown, stored-logs  the facts of the last clean stop (`seqgate.log.directory.stored_logs`)
    recovery-point-offset-checkpoint   the recovery point of each log (Kafka's format, version 0)
    TOPIC-PARTITION/                   one partition; `*-delete` while the directory waits for deletion
    workers/                           several workers' files, in place of those above (`seqgate.log.sharing`)

Source: Kafka's `LogManager`, `CleanShutdownFileHandler`, `MetaProperties`.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from seqgate.log.config import LogConfig, LogPlace
from seqgate.log.directory.identity import check_ownership, take_identity
from seqgate.log.directory.recovery_points import RecoveryPoints
from seqgate.log.directory.stored_logs import (
    BUCKET_SESSION,
    DELETE_SUFFIX,
    LOCK,
    RECOVERY_POINTS,
    STRAY_SUFFIX,
    StoredLog,
    check_is_whole,
    is_unchanged,
    read_stored_logs,
    rename_away,
    write_stored_logs,
)
from seqgate.log.durability.durability import Durability
from seqgate.log.durability.unflushed import FlushTicket
from seqgate.log.environment import LogEnvironment
from seqgate.log.errors import IncompatibleFormat, NeedsRecovery, StorageFailed
from seqgate.log.files.checkpoints import (
    CorruptCheckpoint,
    decode_partition_metadata,
    encode_partition_metadata,
)
from seqgate.log.files.disk import FileSystemFlush
from seqgate.log.files.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    PARTITION_METADATA,
    offset_name,
    parse_partition_directory,
)
from seqgate.log.files.storage import Storage
from seqgate.log.log_lists import LogLists
from seqgate.log.partition_log import PartitionLog
from seqgate.log.recovery.load import CleanStop, Recovery
from seqgate.log.segments.damage import CutBytes, DamagedRange
from seqgate.seq_validator import ProducerLimit

logger = logging.getLogger(__name__)

_UNKNOWN: Final = StoredLog(None, None, 0)


class DirectoryShare(NamedTuple):
    """The share of a data directory that one process has, all of it or one worker's part: the partitions that
    it opens, and the directory of its own lock, checkpoints, clean stop and damage.

    No other process opens, creates or removes the directory of a partition with a name that this one uses:
    who serves partitions of a new topic under an old name sees to that. Only a process that `takes_leftovers`
    deletes what an earlier process left to be deleted. `others_delete`: processes run that have renamed some
    of that themselves, and delete it after a delay.
    """

    files: Path
    owns: Callable[[str, int], bool]
    takes_leftovers: bool
    others_delete: bool = False
    is_whole: bool = False
    tells_of: str | None = None
    """The directory of a process that answers no commands: this one lists what was cut off there."""


class LogDirectory:
    """All partition logs of one data directory. Use it in one thread only.

    `get` opens a log on first use. A start opens, and so checks, only those changed since the clean stop.
    """

    def __init__(
        self,
        path: Path,
        environment: LogEnvironment,
        now_ms: Callable[[], int],
        share: DirectoryShare | None = None,
    ) -> None:
        self.path = path
        self.share = share or DirectoryShare(path, lambda *_: True, takes_leftovers=True, is_whole=True)
        self.files = str(self.share.files)
        self.environment = environment
        self.lists: LogLists[PartitionLog] = LogLists()
        self.cluster_id = self.directory_id = ""
        self.was_clean = False
        """Whether the last stop was clean, so that no log had to be recovered."""
        self._now_ms = now_ms
        self._storage, self._durability = environment.storage, environment.durability
        self._config = LogConfig()
        """The settings of logs until they get those of their topics."""
        self._is_serving = False
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        self._stored: dict[tuple[str, int], StoredLog] = {}
        self._recovering: set[tuple[str, int]] = set()
        environment.tables.extend((self._logs, self._stored))
        self._recovery_points = RecoveryPoints(environment, str(path), self.files)

    @classmethod
    def open(
        cls,
        path: Path,
        storage: Storage,
        *,
        node_id: int,
        now_ms: Callable[[], int],
        config: LogConfig | None = None,
        producer_limit: ProducerLimit | None = None,
        durability: Durability | None = None,
        share: DirectoryShare | None = None,
    ) -> LogDirectory:
        """Lock the directory, find its logs, recover some. Without `durability` the local disk is the truth.

        Logs use `config` until they get the settings of their topics. With a `share` only its partitions are
        found, and only its files are locked. Raises DirectoryLocked, OSError, and, before changing any file,
        IncompatibleFormat: a later release wrote a file, or the directory belongs to another node or to no
        gateway, or several workers had it last.
        """
        check_ownership(storage, str(path))
        if share is None:
            check_is_whole(storage, str(path))
        environment = LogEnvironment(storage, producer_limit=producer_limit, made_durable_by=durability)
        directory = cls(path, environment, now_ms, share)
        environment.durability.sync(directories=storage.make_directories(directory.files))
        storage.lock(f"{directory.files}/{LOCK}")
        try:
            tells_of = directory.share.tells_of
            environment.damage.load(storage, environment.durability, str(path), directory.files, tells_of)
            identity = take_identity(storage, environment.durability, str(path), node_id)
            directory.cluster_id, directory.directory_id = identity
            directory._config = config or directory._config
            directory._find_logs()
        except BaseException:
            for log in directory.logs():
                log.close(clean=False)
            storage.unlock(f"{directory.files}/{LOCK}")
            raise
        return directory

    def _find_logs(self) -> None:
        stopped, self.was_clean = read_stored_logs(self._storage, self._durability, self.files)
        recovery_points = self._recovery_points.read()
        cut = 0
        for name in sorted(self._storage.list_directory(str(self.path))):
            key = parse_partition_directory(name)
            if name.endswith((DELETE_SUFFIX, DELETED_SUFFIX)):
                if self.share.takes_leftovers:
                    delay_ms = self._config.file_delete_delay_ms
                    due_ms = self._now_ms() + delay_ms if self.share.others_delete else 0
                    path, is_directory = str(self.path / name), name.endswith(DELETE_SUFFIX)
                    self.environment.deletions.add(path, due_ms, is_directory=is_directory)
            elif key is not None and self.share.owns(*key):
                stored = stopped.get(name, _UNKNOWN)
                recovery_point = recovery_points.get(key, stored.recovery_point)
                self._stored[key] = stored._replace(recovery_point=recovery_point)
                if not self._may_stay_closed(name, stored):
                    cut += self._recover(key)
        self.environment.damage.found_again()
        self._durability.sync(directories=[str(self.path)])
        is_cache = self._storage.exists(str(self.path / BUCKET_SESSION))
        logger.info(
            "%s: %s",
            self.path,
            start_summary(len(self), len(self._logs), cut, was_clean=self.was_clean, is_cache=is_cache),
        )

    def _may_stay_closed(self, name: str, stored: StoredLog) -> bool:
        """Return whether the log is as its clean stop left it. Only after a crash sizes are compared."""
        if stored.topic_id is None or self.environment.damage.is_lost:
            return False
        return self.was_clean or is_unchanged(self._storage, str(self.path / name), stored)

    def _recover(self, key: tuple[str, int]) -> int:
        """Open the log; return the bytes cut off. If the disk fails or the format is newer, `get` retries."""
        try:
            log = self.get(*key)
        except (IncompatibleFormat, OSError) as error:
            logger.error("%s-%d can't be loaded: %s", *key, error)  # noqa: TRY400 - needs no traceback
            return 0
        return 0 if log is None else log.bytes_cut

    def _open(self, key: tuple[str, int], *, is_mended: bool = True) -> PartitionLog | None:
        """Load a stored log. A directory without a topic id gives None, and is removed or set aside."""
        metadata = self._metadata_of(key, is_mended=is_mended)
        log = None if metadata is None else self._load(key, self._stored[key], metadata)
        del self._stored[key]
        if log is None:
            self._take_away(self._directory_of(key))
        else:
            self._logs[key] = log
        return log

    def _metadata_of(self, key: tuple[str, int], *, is_mended: bool = True) -> bytes | None:
        """Return the sound `partition.metadata`; None without one. With `is_mended` the topic id of the clean
        stop before this start replaces a damaged one. Raises OSError, IncompatibleFormat.
        """
        known = self._stored[key].topic_id if self.was_clean and is_mended else None
        path = f"{self._directory_of(key)}/{PARTITION_METADATA}"
        try:
            content = self._storage.read_file(path)
            decode_partition_metadata(content, path)
        except FileNotFoundError:
            return None
        except CorruptCheckpoint as error:
            if known is None:
                return None
            logger.warning("%s The topic id is the one of the last clean stop.", error)
            return encode_partition_metadata(known)
        return content

    def _load(self, key: tuple[str, int], stored: StoredLog, metadata: bytes) -> PartitionLog:
        """Load a stored log. Raises OSError, IncompatibleFormat, and NeedsRecovery while the gateway serves:
        a thread must recover a log first whose files are not as a clean stop recorded them.
        """
        place = self._place(key, metadata)
        trusted = stored.topic_id in {None, place.topic_id}
        stop = stored.stop if trusted else None
        path = f"{place.directory}/{PARTITION_METADATA}"
        is_as_stored = self._storage.read_file(path) == metadata
        if self._is_serving and (stop is None or not is_as_stored):
            raise NeedsRecovery(f"{place} must be recovered first")
        if not is_as_stored:
            self._durability.replace(path, metadata)
        elif stop is None:
            # The file may not be durable: the crash may precede the first flush, or that flush failed.
            self._durability.ensure(path, metadata)
        return PartitionLog(
            self.environment,
            place.directory,
            topic=place.topic,
            partition=place.partition,
            topic_id=place.topic_id,
            config=self._config,
            now_ms=self._now_ms(),
            lists=self.lists,
            recovery_point=stored.recovery_point if trusted else 0,
            clean_stop=stop,
            may_check=not self._is_serving,
            may_mend=not self._is_serving or stored.is_recovered,
        )

    def _place(self, key: tuple[str, int], metadata: bytes) -> LogPlace:
        topic_id = decode_partition_metadata(metadata, PARTITION_METADATA)
        return LogPlace(self._directory_of(key), *key, topic_id)

    def _directory_of(self, key: tuple[str, int]) -> str:
        return str(self.path / f"{key[0]}-{key[1]}")

    def _take_away(self, directory: str) -> None:
        """Remove a directory without a topic id, or set it aside if it holds records. The topic id is durable
        before any record is acknowledged: these never were, or somebody changed it. Raises OSError.
        """
        files = self._storage.list_files(directory)
        if any(size for name, size in files.items() if name.endswith(LOG_SUFFIX)):
            logger.error(
                "%s holds records, but %s does not give their topic id; the directory is kept as %s",
                directory,
                PARTITION_METADATA,
                self._set_aside(directory),
            )
        else:
            logger.warning("%s was never finished and is removed", directory)
            self._remove(directory, 0)

    def _remove(self, directory: str, due_ms: int) -> None:
        """Rename a partition's directory to `*-delete`, and queue its deletion. The new name is not durable
        yet: the deletion of the files persists the name first. Source: Kafka's `LogManager.asyncDelete`,
        `UnifiedLog.logDeleteDirName`. Raises OSError.
        """
        target = rename_away(self._storage, directory, DELETE_SUFFIX)
        self.environment.deletions.add(target, due_ms, is_directory=True)

    # --- recoveries while the gateway serves

    def begin_serving(self) -> None:
        """Let `get` raise NeedsRecovery from now on, where it would wait for the disk."""
        self._is_serving = True

    def begin_recovery(self, key: tuple[str, int]) -> Recovery | None:
        """Return the recovery of a stored log, for a thread and then `end_recovery`; None for other logs.
        Until `end_recovery` no other log may have the same name. Raises OSError, IncompatibleFormat.
        """
        if key not in self._stored or key in self._recovering:
            return None
        metadata = self._metadata_of(key)
        if metadata is None:
            return None
        stored, place = self._stored[key], self._place(key, metadata)
        recovery_point = stored.recovery_point if stored.topic_id in {None, place.topic_id} else 0
        self._recovering.add(key)
        return Recovery(
            self.environment, place, self._config, recovery_point, self._now_ms(), metadata=metadata
        )

    def end_recovery(self, key: tuple[str, int], recovery: Recovery) -> None:
        """Note what a recovery found, unless it failed or the log was deleted. Then `get` opens the log."""
        self._recovering.discard(key)
        stop = recovery.stop
        if stop is not None and key in self._stored:
            self._stored[key] = StoredLog(
                recovery.place.topic_id, stop, stop.log_end_offset, is_recovered=True
            )

    # --- partitions

    def get(self, topic: str, partition: int, *, is_mended: bool = True) -> PartitionLog | None:
        """Return the log of a partition, and open the log if necessary; None without one. Raises OSError,
        IncompatibleFormat, and after `begin_serving` NeedsRecovery: a recovery must run first. With
        `is_mended` the topic id of the last clean stop replaces a damaged one.
        """
        key = topic, partition
        log = self._logs.get(key)
        return self._open(key, is_mended=is_mended) if log is None and key in self._stored else log

    def logs(self) -> Iterator[PartitionLog]:
        """Return all open logs, unordered."""
        return iter(list(self._logs.values()))

    def stored(self) -> Mapping[tuple[str, int], StoredLog]:
        """Return the logs that are not open, by topic and partition. Do not change the mapping."""
        return self._stored

    def checkpointed(self, topic: str, partition: int) -> int:
        """Return the recovery point of a log, present or not, in the checkpoint on disk; 0 without one."""
        return self._recovery_points.written(topic, partition)

    def size_bytes(self, topic: str, partition: int) -> int:
        """Return the bytes of a partition's segments, without opening the log; 0 for an unknown partition."""
        log = self._logs.get((topic, partition)) or self._stored.get((topic, partition))
        return 0 if log is None else log.size_bytes

    def is_empty(self, topic: str, partition: int) -> bool:
        """Return whether a partition surely has no records, without opening the log."""
        stored = self._stored.get((topic, partition))
        return self.size_bytes(topic, partition) == 0 and (stored is None or stored.stop is not None)

    def may_roll(self, key: tuple[str, int], config: LogConfig, now_ms: int) -> bool:
        """Return whether a log that is not open may have an active segment to close by segment.ms. The last
        write of the segment tells: no other time is known without opening the log.
        """
        stop = self._stored[key].stop
        if stop is None or not stop.active_size_bytes:
            return False
        path = f"{self._directory_of(key)}/{offset_name(stop.active_base_offset, LOG_SUFFIX)}"
        try:
            return now_ms - self._storage.modified_ms(path) > config.segment_ms
        except OSError:
            return True  # opening the log tells what is wrong

    def __len__(self) -> int:
        return len(self._logs) + len(self._stored)

    def create(self, topic: str, topic_id: uuid.UUID, partition: int, config: LogConfig) -> PartitionLog:
        """Create an empty log, durable with its first flush. Raises OSError, ValueError if it exists,
        StorageFailed if `is_name_taken`.
        """
        key = topic, partition
        if key in self._logs or key in self._stored:
            raise ValueError(f"{topic}-{partition} exists already")
        if self.is_name_taken(topic, partition):
            raise StorageFailed(
                f"The name {topic}-{partition} is free for a new log once {RECOVERY_POINTS} is written "
                "without the old one; retry later"
            )
        directory = self._directory_of((topic, partition))
        # An earlier process may have died before it forgot a deleted log of this name.
        self.environment.damage.forget(directory)
        if self._storage.exists(directory):
            # Files that a failed creation or deletion left must not become records of the new topic.
            self._remove(directory, 0)
        self._storage.make_directory(directory)
        log = self._logs[key] = PartitionLog(
            self.environment,
            directory,
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            config=config,
            now_ms=self._now_ms(),
            lists=self.lists,
            is_new=True,
        )
        return log

    def delete(self, topic: str, partition: int) -> None:
        """Delete a partition: rename its directory now, and delete the files later. Raises OSError."""
        delay_ms = self._let_go((topic, partition))
        if delay_ms is not None:
            self._remove(self._directory_of((topic, partition)), self._now_ms() + delay_ms)

    def set_aside(self, topic: str, partition: int) -> str:
        """Remove a partition but keep its files under another name. Return that path. Raises OSError."""
        self._let_go((topic, partition))
        return self._set_aside(self._directory_of((topic, partition)))

    def take_in(self, topic: str, partition: int, staged: str, recovery_point: int) -> None:
        """Take a partition's directory in place of what is here; it must be recovered as after a crash. For a
        cache only: the name is not durable. Raises OSError, StorageFailed while the log is recovered.
        """
        key, directory = (topic, partition), self._directory_of((topic, partition))
        if self._is_recovering(key):
            raise StorageFailed(f"{topic}-{partition} is being recovered; retry later")
        self.delete(topic, partition)
        if self._storage.exists(directory):
            self._remove(directory, 0)
        self._storage.rename(staged, directory)
        self._stored[key] = _UNKNOWN._replace(recovery_point=recovery_point)

    def _set_aside(self, directory: str) -> str:
        """Rename a partition's directory, so that a person can inspect the files. Raises OSError.

        Returns the new path, not durable yet. Kafka calls such a directory stray.
        """
        target = rename_away(self._storage, directory, STRAY_SUFFIX)
        self._recovery_points.set_aside(directory)
        return target

    def is_name_taken(self, topic: str, partition: int) -> bool:
        """Return whether a new log must wait for this name: for a recovery, or for a checkpoint."""
        key = topic, partition
        is_unknown = key not in self._logs and key not in self._stored
        return self._is_recovering(key) or (is_unknown and self._recovery_points.has(key))

    def uses(self, topic: str, partition: int) -> bool:
        """Return whether this process has a log of this name, open or not, or a thread recovers it."""
        key = topic, partition
        return key in self._logs or key in self._stored or self._is_recovering(key)

    def _is_recovering(self, key: tuple[str, int]) -> bool:
        return key in self._recovering or any(log.place[1:3] == key for log in self.lists.recovering)

    @property
    def has_taken_names(self) -> bool:
        """Whether a checkpoint must come before a new log may have the name of a removed one."""
        return self._recovery_points.has_others({*self._logs, *self._stored})

    def _let_go(self, key: tuple[str, int]) -> int | None:
        """Close and forget a log. Return the time (ms) for which its files stay; None for an unknown log."""
        self.environment.damage.forget(self._directory_of(key))
        log = self._logs.pop(key, None)
        self._recovery_points.forget(key)
        if log is not None:
            log.close(clean=False)
            return log.config.file_delete_delay_ms
        return None if self._stored.pop(key, None) is None else self._config.file_delete_delay_ms

    def opened(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def delete_stray(self, topic: str, partition: int) -> None:
        """Delete the directory of a partition that the metadata lacks, known or not. Raises OSError."""
        key = topic, partition
        if key in self._logs or key in self._stored:
            self.delete(topic, partition)
        else:
            self._remove(self._directory_of((topic, partition)), self._now_ms())

    # --- known damage

    def known_damage(self) -> Iterator[tuple[str, int, DamagedRange]]:
        """Yield (topic, partition, damaged range) of all known damage, without ranges deleted since."""
        for path, ranges in sorted(self.environment.damage.all().items()):
            key = parse_partition_directory(path.rpartition("/")[2])
            log = None if key is None else self.opened(*key)
            if key is None or (log is None and key not in self.stored()):
                continue
            for found in ranges:
                if log is None or (
                    found.segment_base_offset in log.segments.bases
                    and found.end_offset > log.log_start_offset
                ):
                    yield (*key, found)

    def known_cut_bytes(self) -> Iterator[tuple[str, int, CutBytes]]:
        """Yield (topic, partition, cut bytes) of all files of cut bytes that nobody has deleted since."""
        storage = self.environment.storage
        for path, files in sorted(self.environment.damage.cut().items()):
            key = parse_partition_directory(path.rpartition("/")[2])
            for found in files:
                if key is not None and storage.exists(f"{path}/{found.file_name}"):
                    yield (*key, found)

    # --- checkpoints and the close

    def checkpoint(self) -> None:
        """Write all recovery points, so that a start after a crash reads little. Raises OSError."""
        for _ in self.gather_checkpoint():
            pass
        self.write_checkpoint()

    def gather_checkpoint(self) -> Iterator[None]:
        """Gather the recovery points, and yield now and then so that the caller can do other work between."""
        return self._recovery_points.gather(self._logs, self._stored)

    def write_checkpoint(self) -> None:
        """Write the gathered recovery points and the rebuilt indexes. Any thread may call. Raises OSError."""
        self._recovery_points.write()
        self.environment.rebuilt_indexes.write(self._durability)

    def close(self, *, clean: bool = True) -> None:
        """Close all logs and release the lock. If every log closed cleanly, write `.kafka_cleanshutdown`.
        Never raises OSError: without that file the next start checks the logs.
        """
        stored_logs = {f"{topic}-{index}": stored for (topic, index), stored in self._stored.items()}
        all_clean = clean and all(stored.stop is not None for stored in self._stored.values())
        points = {}
        if clean:
            self.environment.rebuilt_indexes.write(self._durability)
        closed = close_logs(self._durability, str(self.path), list(self._logs.values()), clean=clean)
        for (key, log), (stop, recovery_point) in zip(self._logs.items(), closed, strict=True):
            points[key] = recovery_point
            stored_logs[f"{key[0]}-{key[1]}"] = StoredLog(log.topic_id, stop, recovery_point)
            all_clean = all_clean and stop is not None
        try:
            if clean:
                self._recovery_points.write_last(self._stored, points)
                write_stored_logs(self._durability, self.files, stored_logs, all_clean=all_clean)
        except OSError as error:
            logger.warning(
                "%s: the clean stop can't be recorded, so the next start checks the logs: %s",
                self.path,
                error,
            )
        finally:
            self._logs.clear()
            self._stored.clear()
            self._storage.unlock(f"{self.files}/{LOCK}")


# Closes the logs of a data directory: one by one, in parallel, or with one flush for all, by their number.

FEW: Final = 16
"""The number of logs below which logs are closed one by one."""
MANY: Final = 1000
"""The number of logs from which one flush of the whole file system is faster than a flush per file."""
_AT_ONCE: Final = 64
_THREADS: Final = 8


def close_logs(
    durability: Durability, path: str, logs: Sequence[PartitionLog], *, clean: bool
) -> list[tuple[CleanStop | None, int]]:
    """Close the logs. Return each one's clean stop, or None, and recovery point. Never raises OSError."""
    flush = None
    if clean and len(logs) >= MANY:
        with contextlib.suppress(OSError):
            flush = durability.begin_common_flush(path)
    if flush is not None:
        return _close_with(flush, logs)
    if not clean or len(logs) < FEW:
        stops: Iterable[CleanStop | None] = [log.close(clean=clean) for log in logs]
    else:
        stops = _close_side_by_side(logs)
    return [(stop, log.recovery_point) for log, stop in zip(logs, stops, strict=True)]


def _close_with(flush: FileSystemFlush, logs: Sequence[PartitionLog]) -> list[tuple[CleanStop | None, int]]:
    """Close with one flush for all indexes and snapshots. A log with unflushed records gets its own flush."""
    closed = []
    for log in logs:
        durable_end_offset = log.recovery_point
        is_flushed = durable_end_offset == log.log_end_offset
        ticket = log.prepare_close(may_omit=True)
        # A flush of the file system does not run a ticket's captures.
        is_common = is_flushed and (ticket is None or not ticket.captures)
        stop = log.finish_close(ticket, None if is_common else _commit(log, ticket))
        closed.append((stop, log.recovery_point, durable_end_offset))
    try:
        flush.run()
    except OSError as error:
        logger.warning("the logs could not be flushed, the next start checks them: %s", error)
        return [(None, durable_end_offset) for _, _, durable_end_offset in closed]
    return [(stop, end_offset) for stop, end_offset, _ in closed]


def _close_side_by_side(logs: Sequence[PartitionLog]) -> Iterator[CleanStop | None]:
    with ThreadPoolExecutor(_THREADS, "close") as threads:
        for first in range(0, len(logs), _AT_ONCE):
            some = logs[first : first + _AT_ONCE]
            tickets = [log.prepare_close() for log in some]
            for log, ticket, error in zip(some, tickets, threads.map(_commit, some, tickets), strict=True):
                yield log.finish_close(ticket, error)


def _commit(log: PartitionLog, ticket: FlushTicket | None) -> OSError | None:
    return None if ticket is None else log.environment.durability.commit([ticket])[0]


def start_summary(count: int, checked: int, cut: int, *, was_clean: bool, is_cache: bool) -> str:
    """Return the log line about a start: the partitions, how many were checked, and the bytes cut off.

    The stop before is not called unclean: nobody stopped a cache of a bucket, or a restored backup.
    """
    if was_clean:
        return f"clean stop: partitions {count}, no record data read"
    if not count:
        return "new data directory"
    torn = f"{cut} torn bytes cut off" if cut else "nothing cut off"
    checks = f"partitions {count}, {checked} of them checked, {torn}"
    return f"cache of the bucket: {checks}" if is_cache else f"no clean stop recorded: {checks}"
