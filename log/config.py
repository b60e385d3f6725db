"""The place of a partition log, and the topic settings that it needs, by the names of Kafka's settings."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final, NamedTuple


class LogPlace(NamedTuple):
    directory: str
    topic: str
    partition: int
    topic_id: uuid.UUID

    def __str__(self) -> str:
        """Return Kafka's name of the partition, "TOPIC-PARTITION"."""
        return f"{self.topic}-{self.partition}"


DEFAULT_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024
"""The most bytes to which a batch may decompress unless the topic says otherwise; more is refused."""
ANY_RECORD_BYTES: Final = 2**31 - 9
"""Kafka's largest value of `max.decompressed.message.bytes`, and the default: records of any size."""
_FOREVER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one partition log. The defaults are Apache Kafka 4.4's."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 60 * 60 * 1000
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * 1024 * 1024
    max_message_bytes: int = 1048588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = _FOREVER
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    examines_timestamps: bool = False
    """Whether to decode every record's timestamp. If False, only those in the batch header are checked."""
    deep_validation: bool = True
    """Whether to check every record of a produced batch, or only the header and the CRC."""
    max_decompressed_bytes: int = DEFAULT_DECOMPRESSED_BYTES
    """The most bytes to which a batch may decompress that must be decoded; larger ones are refused."""
    max_record_bytes: int = ANY_RECORD_BYTES
    """The most bytes of a record in a compressed batch, without its length; a larger one is refused where
    Kafka decompresses batches: when the batch arrives, in compaction, and in look-ups by time.
    """
    max_decoded_records: int = 200_000
    """The most records of a batch that must be decoded while requests wait; a batch with more is refused."""
    retained_batches: int = 5
    """The number of batches of each producer that the log retains, to recognize duplicates."""
    retention_ms: int = 7 * 24 * 60 * 60 * 1000
    """The age at which retention removes records; -1 keeps them forever."""
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60 * 1000
    has_dead_letters: bool = False
    """Whether share groups may have their dead letters in the topic: clients may not write as those who
    write them, from FIRST_DERIVED_ID on.
    """
    producer_id_expiration_ms: int = 24 * 60 * 60 * 1000
    compact: bool = False
    """Whether compaction keeps only each key's newest value. Such a topic refuses records without a key."""
    delete_retention_ms: int = 24 * 60 * 60 * 1000
    """The time that a tombstone stays readable after its first cleaning."""
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _FOREVER
    min_cleanable_dirty_ratio: float = 0.5
    delivery_delay_header: str = ""
    """The name of the record header that says when a record is due; empty delays no records."""
    delivery_delay_max_ms: int = 30 * 24 * 60 * 60 * 1000
    delivery_delay_hold_ms: int = 60 * 60 * 1000
    deduplicates: bool = False
    """Whether the log stores a record with a producer name and a sequence id only once."""
    deduplication_name_header: str = "dedup.name"
    deduplication_sequence_header: str = "dedup.sequence"
    deduplication_epoch_header: str = "dedup.epoch"
    deduplication_from_log_start: bool = False
    """Whether deduplication also tracks records that the log held before deduplication was switched on."""
    deduplication_names_max: int = 10_000
    """The most producer names that a topic tracks; records with a further name are refused."""
    deduplication_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    """The time after which an idle producer name expires; −1 means never."""
    deduplication_name_max_bytes: int = 256
    deduplication_snapshot_records: int = 100_000
    """The number of named records after which the log writes a snapshot of its producer names."""
