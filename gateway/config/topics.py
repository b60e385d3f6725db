"""Settings that are the same on the broker and on a topic: the broker's value is the topic's default."""

from __future__ import annotations

from gateway.config.setting import INT_MAX, LONG_MAX, Fallback, Setting, SettingType, SettingValue

_SECTION = "Topics and their logs"
_MS_PER_HOUR = 3600000
_MS_PER_MINUTE = 60000


def _only_producer(value: SettingValue) -> str | None:
    if value == "producer":
        return None
    return "only the compression type producer is supported, batches are stored as they were sent"


TOPIC_SETTINGS = (
    Setting(
        name="log.segment.bytes",
        topic_name="segment.bytes",
        type=SettingType.INT,
        default=1073741824,
        minimum=1048576,
        dynamic=True,
        section=_SECTION,
        doc="Size at which a log goes on in a new segment.",
    ),
    Setting(
        name="log.internal.segment.bytes",
        topic_name="internal.segment.bytes",
        type=SettingType.INT,
        default=None,
        minimum=128,
        dynamic=True,
        internal=True,
        section=_SECTION,
        doc="Segment size below the minimum of segment.bytes, for tests only; it takes precedence when set.",
    ),
    Setting(
        name="log.roll.ms",
        topic_name="segment.ms",
        type=SettingType.LONG,
        default=None,
        minimum=1,
        dynamic=True,
        fallbacks=(Fallback("log.roll.hours", _MS_PER_HOUR),),
        section=_SECTION,
        doc="Age at which a log goes on in a new segment; unset means log.roll.hours.",
    ),
    Setting(
        name="log.index.interval.bytes",
        topic_name="index.interval.bytes",
        type=SettingType.INT,
        default=4096,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="Bytes of records between two entries of the offset index.",
    ),
    Setting(
        name="log.index.size.max.bytes",
        topic_name="segment.index.bytes",
        type=SettingType.INT,
        default=10485760,
        minimum=4,
        dynamic=True,
        section=_SECTION,
        doc="Size of an index at which its log goes on in a new segment.",
    ),
    Setting(
        name="message.max.bytes",
        topic_name="max.message.bytes",
        type=SettingType.INT,
        default=1048588,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="Largest record batch, as it was sent, compressed or not.",
    ),
    Setting(
        name="log.message.timestamp.type",
        topic_name="message.timestamp.type",
        type=SettingType.STRING,
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        dynamic=True,
        section=_SECTION,
        doc="Whose time a record carries: that of the producer, or that of the append.",
    ),
    Setting(
        name="log.message.timestamp.before.max.ms",
        topic_name="message.timestamp.before.max.ms",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="How far a producer's timestamp may lie in the past; ignored with LogAppendTime.",
    ),
    Setting(
        name="log.message.timestamp.after.max.ms",
        topic_name="message.timestamp.after.max.ms",
        type=SettingType.LONG,
        default=3600000,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="How far a producer's timestamp may lie in the future; ignored with LogAppendTime.",
    ),
    Setting(
        name="log.flush.interval.messages",
        topic_name="flush.messages",
        type=SettingType.LONG,
        default=1,
        minimum=1,
        dynamic=True,
        section=_SECTION,
        doc="Messages after which a log is flushed to disk. 1: every answer to acks=all waits for a flush, which requests "
        f"share. {LONG_MAX}, Kafka's default: answers wait for the page cache only.",
    ),
    Setting(
        name="log.flush.interval.ms",
        topic_name="flush.ms",
        type=SettingType.LONG,
        default=None,
        minimum=0,
        unset_value=LONG_MAX,
        dynamic=True,
        section=_SECTION,
        doc="Longest time that messages stay unflushed; unset means no limit.",
    ),
    Setting(
        name="log.retention.ms",
        topic_name="retention.ms",
        type=SettingType.LONG,
        default=None,
        minimum=-1,
        dynamic=True,
        fallbacks=(
            Fallback("log.retention.minutes", _MS_PER_MINUTE),
            Fallback("log.retention.hours", _MS_PER_HOUR),
        ),
        section=_SECTION,
        doc="Age at which segments are deleted, -1 for never; unset means log.retention.minutes or log.retention.hours.",
    ),
    Setting(
        name="log.retention.bytes",
        topic_name="retention.bytes",
        type=SettingType.LONG,
        default=-1,
        dynamic=True,
        section=_SECTION,
        doc="Size of a partition beyond which its oldest segments are deleted, -1 for no limit.",
    ),
    Setting(
        name="log.segment.delete.delay.ms",
        topic_name="file.delete.delay.ms",
        type=SettingType.LONG,
        default=60000,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="Time between the removal of a segment from its log and that of its files.",
    ),
    Setting(
        name="log.cleanup.policy",
        topic_name="cleanup.policy",
        type=SettingType.LIST,
        default=("delete",),
        dynamic=True,
        choices=("compact", "delete"),
        section=_SECTION,
        doc="What happens to old segments: `delete` removes them by age and size, `compact` keeps the newest value of each key, "
        "both do both, and empty does nothing.",
    ),
    Setting(
        name="compression.type",
        topic_name="compression.type",
        type=SettingType.STRING,
        default="producer",
        dynamic=True,
        check=_only_producer,
        section=_SECTION,
        doc="Codec that batches are stored with: always the one the producer chose.",
    ),
    Setting(
        name="min.insync.replicas",
        topic_name="min.insync.replicas",
        type=SettingType.INT,
        default=1,
        minimum=1,
        maximum=INT_MAX,
        dynamic=True,
        section=_SECTION,
        doc="Accepted for clients that set it. A partition has one replica, and acks=all succeeds with it.",
    ),
)
