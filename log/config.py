"""What a partition log must know of its topic's configuration; field names follow Kafka's topic settings."""

from __future__ import annotations

from dataclasses import dataclass

from log.format.compression import DEFAULT_LIMIT_BYTES

_FOREVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one partition log. The defaults are Apache Kafka 4.3's."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 60 * 60 * 1000
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * 1024 * 1024
    max_message_bytes: int = 1048588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = _FOREVER
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    deep_validation: bool = False
    """Decode every record on the way in. Off: only the header and the CRC are checked."""
    max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
    """The most one batch may decompress to where records must be decoded."""
    max_decoded_records: int = 200_000
    """The most records of one batch that are looked at while others wait."""
    retained_batches: int = 5
    """How many of a producer's last batches are remembered to answer duplicates."""
    retention_ms: int = 7 * 24 * 60 * 60 * 1000
    """-1 keeps forever."""
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60 * 1000
    producer_id_expiration_ms: int = 24 * 60 * 60 * 1000
    compact: bool = False
    """Keep of each key only the newest value; records without a key are refused."""
    delete_retention_ms: int = 24 * 60 * 60 * 1000
    """How long a tombstone stays once it has been cleaned."""
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _FOREVER
    min_cleanable_dirty_ratio: float = 0.5
    delivery_delay_header: str = ""
    """The record header that says when a record is due; without one nothing is delayed."""
    delivery_delay_max_ms: int = 30 * 24 * 60 * 60 * 1000
    delivery_delay_hold_ms: int = 60 * 60 * 1000
    deduplicates: bool = False
    """Store a record that carries a producer name and a sequence id only once."""
    deduplication_name_header: str = "dedup.name"
    deduplication_sequence_header: str = "dedup.sequence"
    deduplication_epoch_header: str = "dedup.epoch"
    deduplication_from_log_start: bool = False
    """Whether what the log has when it is deduplicated for the first time is remembered too."""
    deduplication_names_max: int = 10_000
    """How many names of a topic are remembered."""
    deduplication_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    """How long an idle name is remembered; -1 for ever."""
    deduplication_name_max_bytes: int = 256
    deduplication_snapshot_records: int = 100_000
    """After how many named records what is remembered is written down."""
