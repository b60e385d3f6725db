"""Settings of log compaction: settings of a topic, and limits on the work for all topics."""

from __future__ import annotations

import sys
from collections.abc import Callable

from seqgate.gateway.config.setting import LONG_MAX, Section, Setting, SettingValue

_COMPACTION = Section("Compaction")
_MIB = 1048576

COMPACTED_TOPIC_SETTINGS = (
    _COMPACTION.long(
        "log.cleaner.delete.retention.ms", 86400000, topic_name="delete.retention.ms", minimum=0, dynamic=True
    )(
        "Time for which a record without a value (a tombstone) stays in a compacted topic after its first "
        "compaction. A consumer that reads from the start sees every deletion only if it reaches the end "
        "within this time."
    ),
    _COMPACTION.long(
        "log.cleaner.min.compaction.lag.ms", 0, topic_name="min.compaction.lag.ms", minimum=0, dynamic=True
    )("Age below which a record is not compacted."),
    _COMPACTION.long(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        topic_name="max.compaction.lag.ms",
        minimum=1,
        dynamic=True,
    )(
        "Age of a record at which its log is compacted, whatever the dirty ratio. The active segment rolls "
        "by then."
    ),
    _COMPACTION.decimal(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        topic_name="min.cleanable.dirty.ratio",
        minimum=0,
        maximum=1,
        dynamic=True,
    )("Share of a log's bytes that must be dirty (not compacted yet) before the log is compacted."),
)

COMPACTION_SETTINGS = (
    _COMPACTION.switch("log.cleaner.enable", True)(
        "Whether topics with the cleanup policy compact are compacted."
    ),
    _COMPACTION.whole("log.cleaner.threads", 1, minimum=0, maximum=64, dynamic=True)(
        "Processes that compact at the same time, each a different partition. 0 stops compaction."
    ),
    _COMPACTION.decimal("log.cleaner.io.max.bytes.per.second", sys.float_info.max, minimum=1, dynamic=True)(
        "Bytes that all compacting processes together read and write per second, on average."
    ),
    _COMPACTION.long(
        "log.cleaner.dedupe.buffer.size", 128 * _MIB, minimum=_MIB, maximum=1 << 40, dynamic=True
    )(
        "Bytes of memory for keys, over all compacting processes; a key takes 24 bytes. A log with more "
        "keys is compacted in several passes."
    ),
    _COMPACTION.decimal("log.cleaner.io.buffer.load.factor", 0.9, minimum=0.01, maximum=1, dynamic=True)(
        "Share of log.cleaner.dedupe.buffer.size that is filled. A fuller buffer makes the lookup of a key "
        "slower."
    ),
    _COMPACTION.whole("log.cleaner.io.buffer.size", 524288, minimum=0, dynamic=True)(
        "Bytes that all compacting processes together read at once. A larger batch is read as a whole."
    ),
    _COMPACTION.long("log.cleaner.backoff.ms", 15000, minimum=0, dynamic=True)(
        "Time that compaction waits after it found nothing to do."
    ),
)


# Settings of deduplication by name: an application sends a producer name and a sequence id in the headers of
# each record.

_DEDUPLICATION = Section("Deduplication by name")
_MAX_HEADER_BYTES = 1_000


def _header_complaint(value: SettingValue) -> str | None:
    if 0 < len(str(value).encode()) <= _MAX_HEADER_BYTES:
        return None
    return f"the name of a record header must have 1 to {_MAX_HEADER_BYTES} bytes, not {len(str(value).encode())}"


def _expiration_complaint(value: SettingValue) -> str | None:
    return "0 would forget every name at once; -1 forgets no name" if value == 0 else None


def _header(what: str, default: str) -> Callable[[str], Setting]:
    """Begin the setting of the record header that holds a part of the name."""
    return _DEDUPLICATION.text(
        f"log.message.deduplication.{what}.header",
        default,
        topic_name=f"message.deduplication.{what}.header",
        check=_header_complaint,
        dynamic=True,
    )


DEDUPLICATION_SETTINGS = (
    _DEDUPLICATION.switch(
        "log.message.deduplication.enable", False, topic_name="message.deduplication.enable", dynamic=True
    )(
        "Whether records with a producer name and a sequence id are stored once. A record whose sequence id is "
        "not above the highest sequence id of its name in the partition is acknowledged and not stored. See "
        "deduplication.md."
    ),
    _header("name", "dedup.name")("Record header that holds the producer name."),
    _header("sequence", "dedup.sequence")("Record header that holds the sequence id, as decimal text."),
    _header("epoch", "dedup.epoch")(
        "Record header that may hold the name epoch, as decimal text. Once a name has come with an epoch, "
        "records of the name with a lower epoch, or without an epoch, are refused with PRODUCER_FENCED."
    ),
    _DEDUPLICATION.text(
        "log.message.deduplication.start",
        "latest",
        topic_name="message.deduplication.start",
        choices=("latest", "earliest"),
        dynamic=True,
    )(
        "Records whose names a partition remembers when deduplication is enabled for the first time: only "
        "later records (latest), or also the records that the partition already holds (earliest), which are "
        "read then."
    ),
    _DEDUPLICATION.number(
        "log.message.deduplication.names.max",
        10_000,
        topic_name="message.deduplication.names.max",
        dynamic=True,
    )(
        "Producer names that are remembered of one topic. Beyond the limit the longest idle name is evicted if "
        "it has been idle for seqgate.deduplication.min.idle.ms. Otherwise a batch with a new name is refused "
        "with NOT_ENOUGH_REPLICAS, which producers retry."
    ),
    _DEDUPLICATION.long(
        "log.message.deduplication.expiration.ms",
        604_800_000,
        topic_name="message.deduplication.expiration.ms",
        minimum=-1,
        maximum=LONG_MAX,
        check=_expiration_complaint,
        dynamic=True,
    )("Idle time after which a producer name is forgotten; -1 for never."),
    _DEDUPLICATION.number("seqgate.deduplication.names.max", 250_000)(
        "Producer names that are remembered over all partitions; a name counts once per partition, and "
        "takes 0.6 to 1 KiB of memory, by its length. Beyond the limit idle names of the new name's topic "
        "are evicted; without an idle name the batch is refused."
    ),
    _DEDUPLICATION.number("seqgate.deduplication.min.idle.ms", 3_600_000)(
        "Idle time before which a producer name is never evicted for a new name."
    ),
    _DEDUPLICATION.number("seqgate.deduplication.name.max.bytes", 256, maximum=32_767)(
        "Bytes of the longest producer name. A batch with a longer name is refused with INVALID_RECORD."
    ),
    _DEDUPLICATION.number("seqgate.deduplication.snapshot.records", 100_000)(
        "Records with a producer name after which the names of a partition are written to a snapshot. A "
        "start after a crash replays the log from the newest snapshot."
    ),
    _DEDUPLICATION.number("seqgate.deduplication.snapshot.interval.ms", 60_000)(
        "Time after which the names of a partition are written to a snapshot, if a record with a name came "
        "since the last one."
    ),
)
