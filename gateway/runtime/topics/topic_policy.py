"""The effective configuration of a topic, from its own configurations and the gateway's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from gateway.config import Config
from gateway.config.compression import PRODUCER, UNCOMPRESSED
from gateway.config.table import BY_TOPIC_NAME
from log import LogConfig
from log.format.compression import CODEC_IDS, NONE, Compression

_TIMESTAMP_LIMITS: Final = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """The effective configuration of a topic: that of its logs, when they are flushed, and the codec of their batches."""

    log_config: LogConfig
    flush_messages: int
    flush_ms: int
    compression: Compression | None
    """The codec in which batches are stored; None stores each batch as it was sent."""


def _is_set(config: Config, overrides: Mapping[str, str], topic_name: str) -> bool:
    """Return whether somebody has set a configuration, on the topic or on the broker."""
    value = config.topic_value(topic_name, overrides)
    return topic_name in overrides or value != BY_TOPIC_NAME[topic_name].default


def topic_policy(config: Config, overrides: Mapping[str, str]) -> TopicPolicy:
    """Return the policy of a topic with the given configurations of its own."""

    def number(name: str) -> int:
        return cast("int", config.topic_value(name, overrides))

    def text(name: str) -> str:
        return cast("str", config.topic_value(name, overrides))

    internal_segment_bytes = config.topic_value("internal.segment.bytes", overrides)
    policies = cast("tuple[str, ...]", config.topic_value("cleanup.policy", overrides))
    delay_header = text("delivery.delay.header")
    # The creation of a topic refuses compaction together with delayed records. A default that is set later
    # for all topics must not delete records that are not due.
    deletes, compacts = "delete" in policies, "compact" in policies and not delay_header
    max_compaction_lag_ms = number("max.compaction.lag.ms")
    log_config = LogConfig(
        segment_bytes=(
            number("segment.bytes") if internal_segment_bytes is None else cast("int", internal_segment_bytes)
        ),
        # Only closed segments are compacted, so each segment must close in time.
        segment_ms=min(number("segment.ms"), max_compaction_lag_ms) if compacts else number("segment.ms"),
        segment_jitter_ms=number("segment.jitter.ms"),
        index_interval_bytes=number("index.interval.bytes"),
        segment_index_bytes=number("segment.index.bytes"),
        max_message_bytes=number("max.message.bytes"),
        message_timestamp_type=text("message.timestamp.type"),
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        examines_timestamps=any(_is_set(config, overrides, name) for name in _TIMESTAMP_LIMITS),
        # compaction decodes the batches later, and a batch that can't be decoded would stop compaction for good
        deep_validation=compacts or config.bool("seqgate.log.deep.validation"),
        max_decompressed_bytes=config.int("seqgate.batch.decompressed.max.bytes"),
        max_decoded_records=config.int("seqgate.batch.decoded.max.records"),
        retained_batches=config.int("seqgate.producer.retained.batches"),
        retention_ms=number("retention.ms") if deletes else -1,
        retention_bytes=number("retention.bytes") if deletes else -1,
        file_delete_delay_ms=number("file.delete.delay.ms"),
        producer_id_expiration_ms=config.int("producer.id.expiration.ms"),
        compact=compacts,
        delete_retention_ms=number("delete.retention.ms"),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=max_compaction_lag_ms,
        min_cleanable_dirty_ratio=cast("float", config.topic_value("min.cleanable.dirty.ratio", overrides)),
        delivery_delay_header=delay_header,
        delivery_delay_max_ms=number("delivery.delay.max.ms"),
        delivery_delay_hold_ms=number("delivery.delay.hold.ms"),
        deduplicates=cast("bool", config.topic_value("message.deduplication.enable", overrides)),
        deduplication_name_header=text("message.deduplication.name.header"),
        deduplication_sequence_header=text("message.deduplication.sequence.header"),
        deduplication_epoch_header=text("message.deduplication.epoch.header"),
        deduplication_from_log_start=text("message.deduplication.start") == "earliest",
        deduplication_names_max=number("message.deduplication.names.max"),
        deduplication_expiration_ms=number("message.deduplication.expiration.ms"),
        deduplication_name_max_bytes=config.int("seqgate.deduplication.name.max.bytes"),
        deduplication_snapshot_records=config.int("seqgate.deduplication.snapshot.records"),
    )
    return TopicPolicy(
        log_config,
        number("flush.messages"),
        number("flush.ms"),
        _compression(
            text("compression.type"),
            {
                "gzip": number("compression.gzip.level"),
                "lz4": number("compression.lz4.level"),
                "zstd": number("compression.zstd.level"),
            },
        ),
    )


def _compression(codec: str, levels: Mapping[str, int]) -> Compression | None:
    """Return the codec and level that a `compression.type` asks for; None to store each batch as it was sent."""
    if codec == PRODUCER:
        return None
    if codec == UNCOMPRESSED:
        return Compression(NONE)
    return Compression(CODEC_IDS[codec], levels.get(codec))
