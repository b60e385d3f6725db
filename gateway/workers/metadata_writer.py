"""The one writer of the metadata log of a data directory that workers share: their supervisor.

A worker asks for a change, and every worker is told each change that is durable, in the order of the log. So
the log needs no lock, and no worker can leave a torn batch in it. Everything here waits for the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from seqgate.gateway.metadata.image import METADATA_TOPIC, MetadataImage, TopicImage
from seqgate.gateway.metadata.leadership import NO_MOVE
from seqgate.gateway.metadata.records import (
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    decode_record,
    encode_record,
)
from seqgate.gateway.runtime.topics.metadata_log import (
    METADATA_LOG_CONFIG,
    METADATA_TOPIC_ID,
    flush_at_once,
    read_records,
    replay_log,
)
from seqgate.log import CorruptRecord, LogEnvironment, PartitionLog, Storage, parse_partition_directory
from seqgate.log.format.records import NewRecord, build_batch
from seqgate.log.sharing import ensure_topic_id, note_durable
from seqgate.log.stopped import StoredLog, durable_ends, write_stored_logs

METADATA_DIRECTORY: Final = f"{METADATA_TOPIC}-0"

Changed = Callable[[int, list[bytes]], None]
"""Called with the end offset and the encoded records of each change, once it is durable and in the image."""


class MetadataWriter:
    """The metadata log of a data directory that no other process writes, and its image."""

    def __init__(self, storage: Storage, root: str, files: str, now_ms: Callable[[], int]) -> None:
        """Open the log and replay it; `files` has its recovery point and known damage. Raises LogError,
        IncompatibleFormat, OSError, UnknownRecordError.
        """
        self._now_ms = now_ms
        self._storage, self._root = storage, root
        self._files: str | None = None
        """The directory of this log's own recovery point; None while it shares one with other logs."""
        self._environment = LogEnvironment(storage)
        self._environment.damage.load(storage, self._environment.durability, root, files)
        directory = f"{root}/{METADATA_DIRECTORY}"
        ensure_topic_id(storage, self._environment.durability, directory, METADATA_TOPIC_ID)
        end_offset = durable_ends(storage, files).get(METADATA_DIRECTORY, 0)
        self.log = PartitionLog(
            self._environment,
            directory,
            topic=METADATA_TOPIC,
            partition=0,
            topic_id=METADATA_TOPIC_ID,
            config=METADATA_LOG_CONFIG,
            now_ms=now_ms(),
            recovery_point=end_offset,
        )
        if not self.log.log_end_offset:
            self._check_empty(storage, root, end_offset)
        self.image = MetadataImage()
        replay_log(self.log, self.image)
        self.end_offset = self.log.log_end_offset
        self._checkpointed = -1
        self.has_orders = True
        """Whether a change may have ordered a move of a partition since somebody looked."""
        self.when_changed: list[Changed] = []
        self.when_removed: list[Callable[[TopicImage], None]] = []
        """Called with each topic that a durable change removes, before `when_changed`."""

    def keep_facts_in(self, files: str) -> None:
        """Keep the recovery point and damage in `files` from now on. Raises OSError, IncompatibleFormat."""
        self._files = files
        self._environment.damage.load(self._storage, self._environment.durability, self._root, files)
        self.checkpoint()

    def checkpoint(self) -> None:
        """Write the recovery point if it has moved. Raises OSError. Without it, a start would take a damaged
        batch for one that a crash has torn, and cut off all batches behind it.
        """
        if self._files is not None and self.log.recovery_point != self._checkpointed:
            point = self.log.recovery_point
            note_durable(self._environment.durability, self._files, METADATA_TOPIC, 0, point)
            self._checkpointed = point

    @staticmethod
    def _check_empty(storage: Storage, root: str, end_offset: int) -> None:
        """Check that an empty log is that of a new data directory. Raises CorruptRecord."""
        others = [name for name in storage.list_directory(root) if name != METADATA_DIRECTORY]
        partitions = [name for name in others if parse_partition_directory(name) is not None]
        if end_offset or partitions:
            why = f"it was durable up to offset {end_offset}" if end_offset else f"there is {partitions[0]}"
            raise CorruptRecord(f"{METADATA_DIRECTORY} is empty, but {why}; put it back from a backup")

    def change(self, records: Iterable[MetadataRecord]) -> None:
        """Make records durable and fold them in; does nothing without any. Raises LogError, OSError."""
        encoded = [encode_record(record) for record in records]
        if encoded:
            self.append(encoded)

    def append(self, records: Sequence[bytes]) -> None:
        """Make encoded records durable in one batch, and fold them in. Raises LogError, OSError; then nothing
        is folded in. Whoever decides on the image calls `catch_up` first.
        """
        self.catch_up()
        now_ms = self._now_ms()
        batch = build_batch([NewRecord(record, timestamp=now_ms) for record in records])
        self.log.append(batch, now_ms=now_ms, is_client=False)
        flush_at_once(self.log)
        self._fold_in(list(records))

    def catch_up(self) -> None:
        """Recover the log after a failed flush, and fold in what is found. Raises LogError, OSError. Nobody
        knows then whether the records are in the log. A decision without them may contradict them.
        """
        if self.log.offline:
            self.log.reopen(self._now_ms())
        if self.log.log_end_offset != self.end_offset:
            found = list(read_records(self.log, self.end_offset))
            flush_at_once(self.log)
            self._fold_in([encode_record(record) for record in found])

    def _fold_in(self, records: list[bytes]) -> None:
        for record in map(decode_record, records):
            topics = self.image.topics_by_id
            topic = topics.get(record.topic_id) if isinstance(record, RemoveTopicRecord) else None
            self.image.replay(record)
            self.has_orders |= isinstance(record, PartitionRecord) and record.next_leader != NO_MOVE
            if topic is not None:
                for note in self.when_removed:
                    note(topic)
        self.end_offset = self.log.log_end_offset
        self.log.advance_high_watermark(self.end_offset)
        for tell in self.when_changed:
            tell(self.end_offset, records)

    def close(self) -> None:
        """Close the log cleanly, and write down where it ended for the next start. Raises OSError."""
        stop = self.log.close(clean=True)
        self.checkpoint()
        if self._files is not None and stop is not None:
            logs = {METADATA_DIRECTORY: StoredLog(METADATA_TOPIC_ID, stop, stop.log_end_offset)}
            write_stored_logs(self._environment.durability, self._files, logs, all_clean=True)
