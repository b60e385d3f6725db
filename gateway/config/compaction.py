"""Settings of log compaction: settings of a topic, and limits on the work for all topics."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from seqgate.gateway.config.setting import INT_MAX, LONG_MAX, Setting, SettingType, SettingValue, whole_number

_SECTION = "Compaction"
_MIB = 1048576

COMPACTED_TOPIC_SETTINGS = (
    Setting(
        name="log.cleaner.delete.retention.ms",
        topic_name="delete.retention.ms",
        type=SettingType.LONG,
        default=86400000,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="Time for which a record without a value (a tombstone) stays in a compacted topic after its "
        "first compaction. A "
        "consumer that reads from the start sees every deletion only if it reaches the end within this time.",
    ),
    Setting(
        name="log.cleaner.min.compaction.lag.ms",
        topic_name="min.compaction.lag.ms",
        type=SettingType.LONG,
        default=0,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="Age below which a record is not compacted.",
    ),
    Setting(
        name="log.cleaner.max.compaction.lag.ms",
        topic_name="max.compaction.lag.ms",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=1,
        dynamic=True,
        section=_SECTION,
        doc="Age of a record at which its log is compacted, whatever the dirty ratio. The active segment "
        "rolls by then.",
    ),
    Setting(
        name="log.cleaner.min.cleanable.ratio",
        topic_name="min.cleanable.dirty.ratio",
        type=SettingType.DOUBLE,
        default=0.5,
        minimum=0,
        maximum=1,
        dynamic=True,
        section=_SECTION,
        doc="Share of a log's bytes that must be dirty (not compacted yet) before the log is compacted.",
    ),
)

COMPACTION_SETTINGS = (
    Setting(
        name="log.cleaner.enable",
        type=SettingType.BOOLEAN,
        default=True,
        section=_SECTION,
        doc="Whether topics with the cleanup policy compact are compacted.",
    ),
    Setting(
        name="log.cleaner.threads",
        type=SettingType.INT,
        default=1,
        minimum=0,
        maximum=64,
        dynamic=True,
        section=_SECTION,
        doc="Processes that compact at the same time, each a different partition. 0 stops compaction.",
    ),
    Setting(
        name="log.cleaner.io.max.bytes.per.second",
        type=SettingType.DOUBLE,
        default=sys.float_info.max,
        minimum=1,
        dynamic=True,
        section=_SECTION,
        doc="Bytes that all compacting processes together read and write per second, on average.",
    ),
    Setting(
        name="log.cleaner.dedupe.buffer.size",
        type=SettingType.LONG,
        default=128 * _MIB,
        minimum=_MIB,
        maximum=1 << 40,
        dynamic=True,
        section=_SECTION,
        doc="Bytes of memory for keys, over all compacting processes; a key takes 24 bytes. A log with more "
        "keys is compacted in "
        "several passes.",
    ),
    Setting(
        name="log.cleaner.io.buffer.load.factor",
        type=SettingType.DOUBLE,
        default=0.9,
        minimum=0.01,
        maximum=1,
        dynamic=True,
        section=_SECTION,
        doc="Share of log.cleaner.dedupe.buffer.size that is filled. A fuller buffer makes the lookup of a "
        "key slower.",
    ),
    Setting(
        name="log.cleaner.io.buffer.size",
        type=SettingType.INT,
        default=524288,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="Bytes that all compacting processes together read at once. A larger batch is read as a whole.",
    ),
    Setting(
        name="log.cleaner.backoff.ms",
        type=SettingType.LONG,
        default=15000,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="Time that compaction waits after it found nothing to do.",
    ),
)


# Settings of deduplication by name: an application sends a producer name and a sequence id in the headers of
# each record.

_DEDUPLICATION_SECTION = "Deduplication by name"
_MAX_HEADER_BYTES = 1_000
_number = partial(whole_number, _DEDUPLICATION_SECTION)


def _header_complaint(value: SettingValue) -> str | None:
    if 0 < len(str(value).encode()) <= _MAX_HEADER_BYTES:
        return None
    return f"the name of a record header must have 1 to {_MAX_HEADER_BYTES} bytes, not {len(str(value).encode())}"


def _expiration_complaint(value: SettingValue) -> str | None:
    return "0 would forget every name at once; -1 forgets no name" if value == 0 else None


def _of_topic(
    name: str,
    kind: SettingType,
    default: SettingValue,
    doc: str,
    *,
    minimum: int | None = None,
    maximum: int | None = None,
    choices: tuple[str, ...] = (),
    check: Callable[[SettingValue], str | None] | None = None,
) -> Setting:
    return Setting(
        name=f"log.message.deduplication.{name}",
        topic_name=f"message.deduplication.{name}",
        type=kind,
        default=default,
        minimum=minimum,
        maximum=maximum,
        choices=choices,
        check=_header_complaint if name.endswith(".header") else check,
        dynamic=True,
        section=_DEDUPLICATION_SECTION,
        doc=doc,
    )


DEDUPLICATION_SETTINGS = (
    _of_topic(
        "enable",
        SettingType.BOOLEAN,
        False,
        "Whether records with a producer name and a sequence id are stored once. A record whose sequence id "
        "is not above the "
        "highest sequence id of its name in the partition is acknowledged and not stored. See "
        "deduplication.md.",
    ),
    _of_topic(
        "name.header",
        SettingType.STRING,
        "dedup.name",
        "Record header that holds the producer name.",
    ),
    _of_topic(
        "sequence.header",
        SettingType.STRING,
        "dedup.sequence",
        "Record header that holds the sequence id, as decimal text.",
    ),
    _of_topic(
        "epoch.header",
        SettingType.STRING,
        "dedup.epoch",
        "Record header that may hold the name epoch, as decimal text. Once a name has come with an epoch, "
        "records of the name "
        "with a lower epoch, or without an epoch, are refused with PRODUCER_FENCED.",
    ),
    _of_topic(
        "start",
        SettingType.STRING,
        "latest",
        "Records whose names a partition remembers when deduplication is enabled for the first time: only "
        "later records (latest), "
        "or also the records that the partition already holds (earliest), which are read then.",
        choices=("latest", "earliest"),
    ),
    _of_topic(
        "names.max",
        SettingType.INT,
        10_000,
        "Producer names that are remembered of one topic. Beyond the limit the longest idle name is evicted "
        "if it has been idle for "
        "seqgate.deduplication.min.idle.ms. Otherwise a batch with a new name is refused with "
        "NOT_ENOUGH_REPLICAS, which "
        "producers retry.",
        minimum=1,
        maximum=INT_MAX,
    ),
    _of_topic(
        "expiration.ms",
        SettingType.LONG,
        604_800_000,
        "Idle time after which a producer name is forgotten; -1 for never.",
        minimum=-1,
        maximum=LONG_MAX,
        check=_expiration_complaint,
    ),
    _number(
        "seqgate.deduplication.names.max",
        250_000,
        "Producer names that are remembered over all partitions; a name counts once per partition, and takes "
        "0.6 to 1 KiB of "
        "memory, by its length. Beyond the limit idle names of the new name's topic are evicted; without an "
        "idle name the batch "
        "is refused.",
    ),
    _number(
        "seqgate.deduplication.min.idle.ms",
        3_600_000,
        "Idle time before which a producer name is never evicted for a new name.",
    ),
    _number(
        "seqgate.deduplication.name.max.bytes",
        256,
        "Bytes of the longest producer name. A batch with a longer name is refused with INVALID_RECORD.",
        maximum=32_767,
    ),
    _number(
        "seqgate.deduplication.snapshot.records",
        100_000,
        "Records with a producer name after which the names of a partition are written to a snapshot. A "
        "start after a crash "
        "replays the log from the newest snapshot.",
    ),
    _number(
        "seqgate.deduplication.snapshot.interval.ms",
        60_000,
        "Time after which the names of a partition are written to a snapshot, if a record with a name came "
        "since the last one.",
    ),
)
