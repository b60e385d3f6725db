"""The data directory of one gateway: its identity, its lock, and all partition logs in it.

    .lock                               held while the gateway runs
    meta.properties                     cluster.id, node.id, directory.id (Kafka's format, version 1)
    .kafka_cleanshutdown                what each log ended at, left by a clean stop, gone while the gateway runs
    recovery-point-offset-checkpoint    how far each log is known to be durable (Kafka's format, version 0)
    TOPIC-PARTITION/                    one partition; `*-delete` while it waits to be deleted

Source: Kafka's `LogManager`, `CleanShutdownFileHandler`, `MetaProperties`.
"""

from __future__ import annotations

import base64
import logging
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from log.checkpoints import (
    CorruptCheckpoint,
    decode_offsets,
    decode_partition_metadata,
    encode_offsets,
    encode_partition_metadata,
)
from log.config import LogConfig
from log.environment import LogEnvironment
from log.errors import IncompatibleFormat
from log.names import LOG_SUFFIX, PARTITION_METADATA
from log.partition_deletion import DELETE_SUFFIX, PartitionDeletion
from log.recovery import CleanStop
from log.storage import Storage
from log.unified_log import UnifiedLog
from seq_validator import ProducerLimit

logger = logging.getLogger(__name__)

LOCK: Final = ".lock"
META: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
CLEAN_SHUTDOWN_VERSION: Final = 1
FILES_PER_STEP: Final = 200
"""Files deleted in one call of `delete_pending`, so that a large topic holds nobody up."""
_PARTITION_DIRECTORY = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)\Z")


class _CleanShutdown(msgspec.Struct):
    """Content of the clean-shutdown marker; `logs` by directory name."""

    version: int
    logs: dict[str, tuple[int, int, int, int]]


class LogDirectory:
    """All partition logs of one data directory. Belongs to one thread."""

    def __init__(self, path: Path, environment: LogEnvironment, now_ms: Callable[[], int]) -> None:
        self.path = path
        self.environment = environment
        self.cluster_id = ""
        self.directory_id = ""
        self.was_clean = False
        """Whether the last stop was clean, so that nothing had to be recovered."""
        self._now_ms = now_ms
        self._storage = environment.storage
        self._logs: dict[tuple[str, int], UnifiedLog] = {}
        self._deletion = PartitionDeletion(environment.storage, path)
        self._checkpointed: set[tuple[str, int]] = set()

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
    ) -> LogDirectory:
        """Lock the directory and load every partition in it.

        Logs are loaded with `config` until `update_config` tells theirs. Raises DirectoryLocked, IncompatibleFormat
        (a later version wrote something, or it belongs to another node), OSError.
        """
        environment = LogEnvironment(storage=storage, producer_limit=producer_limit)
        directory = cls(path, environment, now_ms)
        storage.make_directory(str(path))
        storage.lock(str(path / LOCK))
        try:
            directory._read_identity(node_id)
            directory._load(config or LogConfig())
        except BaseException:
            for log in directory.logs():
                log.close(clean=False)
            storage.unlock(str(path / LOCK))
            raise
        return directory

    def _read_identity(self, node_id: int) -> None:
        path = str(self.path / META)
        if not self._storage.exists(path):
            self.cluster_id, self.directory_id = _fresh_id(), _fresh_id()
            lines = (
                "version=1",
                f"cluster.id={self.cluster_id}",
                f"node.id={node_id}",
                f"directory.id={self.directory_id}",
                "",
            )
            self._storage.replace_file(path, "\n".join(lines).encode())
            return
        text = self._storage.read_file(path).decode()
        fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[:1] != "#")
        if fields.get("version") != "1":
            raise IncompatibleFormat(
                f"{path} has version {fields.get('version')}; this program reads version 1."
            )
        if fields.get("node.id") != str(node_id):
            raise IncompatibleFormat(
                f"The data in {self.path} belongs to node.id {fields.get('node.id')}, this gateway is node.id {node_id}."
            )
        self.cluster_id = fields.get("cluster.id", "")
        self.directory_id = fields.get("directory.id", "")

    def _load(self, config: LogConfig) -> None:
        stops = self._read_clean_shutdown()
        recovery_points = self._read_recovery_points()
        self.was_clean = stops is not None
        for name in sorted(self._storage.list_directory(str(self.path))):
            match = _PARTITION_DIRECTORY.match(name)
            if name.endswith(DELETE_SUFFIX):
                self._deletion.found(name)
            elif match is not None:
                topic, partition = match["topic"], int(match["partition"])
                self._load_log(
                    topic,
                    partition,
                    config,
                    recovery_points.get((topic, partition), 0),
                    (stops or {}).get(name),
                )
        # gone before anything is written: from here on only a clean stop may say that all is well
        self._storage.delete(str(self.path / CLEAN_SHUTDOWN))
        self._storage.sync_directory(str(self.path))
        cut = sum(log.bytes_cut for log in self._logs.values())
        logger.info(
            "%s: %d partitions loaded after %s",
            self.path,
            len(self._logs),
            "a clean stop, no record data read"
            if self.was_clean
            else f"a crash or first start, {cut} torn bytes cut off",
        )

    def _load_log(
        self, topic: str, partition: int, config: LogConfig, recovery_point: int, stop: CleanStop | None
    ) -> None:
        directory = str(self.path / f"{topic}-{partition}")
        topic_id = self._read_topic_id(directory)
        if topic_id is None:
            return
        self._logs[topic, partition] = UnifiedLog(
            self.environment,
            directory,
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            config=config,
            now_ms=self._now_ms(),
            recovery_point=recovery_point,
            clean_stop=stop,
        )

    def _read_topic_id(self, directory: str) -> uuid.UUID | None:
        """The topic id of a partition directory; None for one that a crash left half made, which is removed."""
        path = f"{directory}/{PARTITION_METADATA}"
        try:
            return decode_partition_metadata(self._storage.read_file(path), path)
        except (CorruptCheckpoint, FileNotFoundError) as error:
            files = self._storage.list_files(directory)
            if any(size for name, size in files.items() if name.endswith(LOG_SUFFIX)):
                raise IncompatibleFormat(
                    f"{directory} holds records, but {PARTITION_METADATA} does not tell whose they are."
                ) from error
            logger.warning("%s was never finished and is removed", directory)
            self._deletion.remove(directory, 0)
            return None

    def _read_clean_shutdown(self) -> dict[str, CleanStop] | None:
        path = str(self.path / CLEAN_SHUTDOWN)
        if not self._storage.exists(path):
            return None
        try:
            marker = msgspec.json.decode(self._storage.read_file(path), type=_CleanShutdown)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            logger.warning("%s can't be read, everything is checked: %s", path, error)
            return None
        if marker.version > CLEAN_SHUTDOWN_VERSION:
            raise IncompatibleFormat(
                f"{path} has version {marker.version}; this program reads version {CLEAN_SHUTDOWN_VERSION}."
            )
        return {name: CleanStop(*stop) for name, stop in marker.logs.items()}

    def _read_recovery_points(self) -> dict[tuple[str, int], int]:
        path = str(self.path / RECOVERY_POINTS)
        if not self._storage.exists(path):
            return {}
        try:
            points = decode_offsets(self._storage.read_file(path), path)
        except CorruptCheckpoint as error:
            logger.warning("%s Every log is checked from its start.", error)
            return {}
        self._checkpointed = set(points)
        return points

    # Partitions.

    def get(self, topic: str, partition: int) -> UnifiedLog | None:
        """The log of a partition, None when there is none."""
        return self._logs.get((topic, partition))

    def logs(self) -> Iterator[UnifiedLog]:
        """All logs, in no order."""
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def create(self, topic: str, topic_id: uuid.UUID, partition: int, config: LogConfig) -> UnifiedLog:
        """A new, empty log, durable with its names. Raises OSError, ValueError when there is one already."""
        if (topic, partition) in self._logs:
            raise ValueError(f"{topic}-{partition} exists")
        directory = str(self.path / f"{topic}-{partition}")
        if self._storage.exists(directory):
            # What a failed creation or deletion left must not become the new topic's records.
            self._deletion.remove(directory, 0)
        if (topic, partition) in self._checkpointed:
            # The recovery point of the log that had this name must not vouch for the new one.
            self.checkpoint()
        # It gets its name when it is whole: what a crash leaves under this one is deleted at the next start.
        unfinished = self._deletion.make_directory(directory)
        metadata = f"{unfinished}/{PARTITION_METADATA}"
        self._storage.write_file(metadata, encode_partition_metadata(topic_id))
        self._storage.sync_path(metadata)
        self._storage.sync_directory(unfinished)
        self._storage.rename(unfinished, directory)
        self._deletion.finished(unfinished)
        self._storage.sync_directory(str(self.path))
        log = UnifiedLog(
            self.environment,
            directory,
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            config=config,
            now_ms=self._now_ms(),
        )
        self._logs[topic, partition] = log
        return log

    def delete(self, topic: str, partition: int) -> None:
        """Take a partition away; its files go by and by. Raises OSError."""
        log = self._logs.pop((topic, partition), None)
        if log is None:
            return
        delay_ms = log.config.file_delete_delay_ms
        log.close(clean=False)
        self._deletion.remove(log.directory, self._now_ms() + delay_ms)

    def delete_pending(self, now_ms: int) -> int:
        """Delete a bounded number of files whose delay is over; returns how many.

        What can't be deleted is tried again at the next call, and holds up nothing else.
        """
        deleted = 0
        for log in self.logs():
            try:
                deleted += log.delete_pending(now_ms)
            except OSError as error:
                logger.warning("deleted segments of %s stay for now: %s", log.directory, error)
        return deleted + self._deletion.delete_due(now_ms, FILES_PER_STEP - deleted)

    # The end, and what is noted on the way.

    def checkpoint(self) -> None:
        """Note how far every log is durable, so that a crash re-reads little. Raises OSError."""
        self._write_recovery_points({key: log.recovery_point for key, log in self._logs.items()})

    def _write_recovery_points(self, points: dict[tuple[str, int], int]) -> None:
        self._storage.replace_file(str(self.path / RECOVERY_POINTS), encode_offsets(points))
        self._checkpointed = set(points)

    def close(self, *, clean: bool = True) -> None:
        """Close all logs and give the lock back; a clean close leaves the marker when every log closed cleanly.

        Never raises for the disk: without the marker the next start checks what there is.
        """
        stops: dict[str, tuple[int, int, int, int]] = {}
        points: dict[tuple[str, int], int] = {}
        all_clean = clean
        for key, log in self._logs.items():
            stop = log.close(clean=clean)
            points[key] = log.recovery_point
            if stop is None:
                all_clean = False
            else:
                stops[f"{key[0]}-{key[1]}"] = (
                    stop.log_end_offset,
                    stop.active_base_offset,
                    stop.active_size_bytes,
                    stop.size_bytes,
                )
        try:
            if clean:
                self._write_recovery_points(points)
            if all_clean:
                marker = _CleanShutdown(CLEAN_SHUTDOWN_VERSION, stops)
                self._storage.replace_file(str(self.path / CLEAN_SHUTDOWN), msgspec.json.encode(marker))
        except OSError as error:
            logger.warning("%s: the clean stop can't be noted, the next start checks: %s", self.path, error)
        finally:
            self._logs.clear()
            self._storage.unlock(str(self.path / LOCK))


def _fresh_id() -> str:
    """A random id in Kafka's base64 form; one that begins with a dash would look like an option."""
    text = "-"
    while text.startswith("-"):
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text
