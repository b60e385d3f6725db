"""Settings of log compaction: settings of a topic, and limits on the work for all topics."""

from __future__ import annotations

import sys

from gateway.config.setting import LONG_MAX, Setting, SettingType

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
        doc="Time for which a record without a value (a tombstone) stays in a compacted topic after its first compaction. A "
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
        doc="Age of a record at which its log is compacted, whatever the dirty ratio. The active segment rolls by then.",
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
        doc="Bytes of memory for keys, over all compacting processes; a key takes 24 bytes. A log with more keys is compacted in "
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
        doc="Share of log.cleaner.dedupe.buffer.size that is filled. A fuller buffer makes the lookup of a key slower.",
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
