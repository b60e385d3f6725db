"""Settings of log compaction: those of a topic, and what the cleaning of all of them may take."""

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
        doc="How long a record without a value (a tombstone) stays in a compacted topic after it was first cleaned; readers "
        "from the beginning must come to the end within it to learn of every deletion.",
    ),
    Setting(
        name="log.cleaner.min.compaction.lag.ms",
        topic_name="min.compaction.lag.ms",
        type=SettingType.LONG,
        default=0,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="The least age of records that are compacted.",
    ),
    Setting(
        name="log.cleaner.max.compaction.lag.ms",
        topic_name="max.compaction.lag.ms",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=1,
        dynamic=True,
        section=_SECTION,
        doc="The age of records at which their log is compacted however little of it is dirty; its segments roll by then.",
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
        doc="The part of a log's bytes that must not have been compacted before it is.",
    ),
)

COMPACTION_SETTINGS = (
    Setting(
        name="log.cleaner.enable",
        type=SettingType.BOOLEAN,
        default=True,
        section=_SECTION,
        doc="Whether topics with the cleanup policy compact are compacted at all.",
    ),
    Setting(
        name="log.cleaner.threads",
        type=SettingType.INT,
        default=1,
        minimum=0,
        maximum=64,
        dynamic=True,
        section=_SECTION,
        doc="Processes that compact at the same time, each another partition. 0 stops compaction.",
    ),
    Setting(
        name="log.cleaner.io.max.bytes.per.second",
        type=SettingType.DOUBLE,
        default=sys.float_info.max,
        minimum=1,
        dynamic=True,
        section=_SECTION,
        doc="Bytes that all of them together read and write in a second, on average.",
    ),
    Setting(
        name="log.cleaner.dedupe.buffer.size",
        type=SettingType.LONG,
        default=128 * _MIB,
        minimum=_MIB,
        maximum=1 << 40,
        dynamic=True,
        section=_SECTION,
        doc="Memory for the keys of what is compacted, in bytes, of all processes together; a key takes 24. A log with more keys "
        "is compacted in several passes.",
    ),
    Setting(
        name="log.cleaner.io.buffer.load.factor",
        type=SettingType.DOUBLE,
        default=0.9,
        minimum=0.01,
        maximum=1,
        dynamic=True,
        section=_SECTION,
        doc="The part of that memory that is used; the fuller, the longer a key is looked for.",
    ),
    Setting(
        name="log.cleaner.io.buffer.size",
        type=SettingType.INT,
        default=524288,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="Bytes that all processes together read at once; a batch that is larger is read whole.",
    ),
    Setting(
        name="log.cleaner.backoff.ms",
        type=SettingType.LONG,
        default=15000,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="How long compaction waits when there was nothing to do.",
    ),
)
