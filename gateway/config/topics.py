"""Settings that exist on the broker and on a topic: the broker's value is the topic's default."""

from __future__ import annotations

from functools import partial

from seqgate.gateway.config.setting import (
    INT_MAX,
    LONG_MAX,
    Fallback,
    Setting,
    SettingType,
    SettingValue,
    whole_number,
)

_SECTION = "Topics and their logs"
_MS_PER_HOUR = 3600000
_MS_PER_MINUTE = 60000

TOPIC_SETTINGS = (
    Setting(
        name="log.segment.bytes",
        topic_name="segment.bytes",
        type=SettingType.INT,
        default=1073741824,
        minimum=1048576,
        dynamic=True,
        section=_SECTION,
        doc="Size at which a log begins a new segment.",
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
        doc="Segment size below the minimum of segment.bytes, for tests only. A value takes precedence over "
        "segment.bytes.",
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
        doc="Age at which a log begins a new segment; unset means log.roll.hours.",
    ),
    Setting(
        name="log.roll.jitter.ms",
        topic_name="segment.jitter.ms",
        type=SettingType.LONG,
        default=None,
        minimum=0,
        dynamic=True,
        fallbacks=(Fallback("log.roll.jitter.hours", _MS_PER_HOUR),),
        section=_SECTION,
        doc="Largest time by which a segment rolls earlier than segment.ms; the time differs from segment to "
        "segment, so that many do not "
        "roll at once. Unset means log.roll.jitter.hours.",
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
        doc="Size of an index at which the log begins a new segment.",
    ),
    Setting(
        name="message.max.bytes",
        topic_name="max.message.bytes",
        type=SettingType.INT,
        default=1048588,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="Size of the largest record batch as it was sent, compressed or not. A larger batch is refused.",
    ),
    Setting(
        name="log.message.timestamp.type",
        topic_name="message.timestamp.type",
        type=SettingType.STRING,
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        dynamic=True,
        section=_SECTION,
        doc="Timestamp that records carry: the producer's (`CreateTime`), or the time of the append "
        "(`LogAppendTime`).",
    ),
    Setting(
        name="log.message.timestamp.before.max.ms",
        topic_name="message.timestamp.before.max.ms",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="Largest distance of a producer's timestamp into the past; ignored with LogAppendTime.",
    ),
    Setting(
        name="log.message.timestamp.after.max.ms",
        topic_name="message.timestamp.after.max.ms",
        type=SettingType.LONG,
        default=3600000,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="Largest distance of a producer's timestamp into the future; ignored with LogAppendTime.",
    ),
    Setting(
        name="log.flush.interval.messages",
        topic_name="flush.messages",
        type=SettingType.LONG,
        default=1,
        minimum=1,
        dynamic=True,
        section=_SECTION,
        doc="Records after which a log is flushed to the disk. With 1 every answer to acks=all and to acks=1 "
        "waits for a flush, "
        f"which requests share. With {LONG_MAX}, Kafka's default, answers wait only until the records are in "
        "the page cache. "
        "In a cluster (`seqgate.cluster`) the setting changes nothing: every answer waits until the records "
        "are in the bucket.",
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
        doc="Longest time for which records stay unflushed; unset means no limit. In a cluster "
        "(`seqgate.cluster`) it changes nothing.",
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
        doc="Age at which segments are deleted; -1 for never. Unset means log.retention.minutes or "
        "log.retention.hours.",
    ),
    Setting(
        name="log.retention.bytes",
        topic_name="retention.bytes",
        type=SettingType.LONG,
        default=-1,
        dynamic=True,
        section=_SECTION,
        doc="Size of a partition beyond which its oldest segments are deleted; -1 for no limit.",
    ),
    Setting(
        name="log.segment.delete.delay.ms",
        topic_name="file.delete.delay.ms",
        type=SettingType.LONG,
        default=60000,
        minimum=0,
        dynamic=True,
        section=_SECTION,
        doc="Time between the removal of a segment from its log and the deletion of the segment's files.",
    ),
    Setting(
        name="log.cleanup.policy",
        topic_name="cleanup.policy",
        type=SettingType.LIST,
        default=("delete",),
        dynamic=True,
        choices=("compact", "delete"),
        section=_SECTION,
        doc="Treatment of old segments. `delete` removes segments by age and size, `compact` keeps the "
        "newest record of each key, "
        "`compact,delete` does both, and an empty list keeps everything.",
    ),
    Setting(
        name="min.insync.replicas",
        topic_name="min.insync.replicas",
        type=SettingType.INT,
        default=1,
        minimum=1,
        maximum=INT_MAX,
        dynamic=True,
        without_effect=True,
        section=_SECTION,
        doc="Kept without effect, for clients that set it. A partition has one replica, and acks=all "
        "succeeds with one.",
    ),
)


# Settings of delayed records, which share groups get only when the records are due.

_DELIVERY_SECTION = "Delayed records"
_MAX_NAME_BYTES = 1_000
_number = partial(whole_number, _DELIVERY_SECTION)


def _name_complaint(value: SettingValue) -> str | None:
    if len(str(value).encode()) <= _MAX_NAME_BYTES:
        return None
    return f"the name of a record header must have at most {_MAX_NAME_BYTES} bytes, not {len(str(value).encode())}"


DELIVERY_TOPIC_SETTINGS = (
    Setting(
        name="delivery.delay.header",
        topic_name="delivery.delay.header",
        type=SettingType.STRING,
        default="",
        dynamic=True,
        check=_name_complaint,
        section=_DELIVERY_SECTION,
        doc="Record header that says when a record is due, as decimal text in ms since 1970 (UTC). Share "
        "groups get the record no "
        "earlier. With an empty name no record is delayed. Not allowed together with the cleanup policy "
        "compact. See "
        "delayed-records.md.",
    ),
)
DELIVERY_SETTINGS = (
    Setting(
        name="log.delivery.delay.max.ms",
        topic_name="delivery.delay.max.ms",
        type=SettingType.LONG,
        default=2_592_000_000,
        minimum=0,
        maximum=LONG_MAX,
        dynamic=True,
        section=_DELIVERY_SECTION,
        doc="Longest delay of a record, from now. A batch with a record that is due later is refused with "
        "INVALID_RECORD.",
    ),
    Setting(
        name="log.delivery.delay.hold.ms",
        topic_name="delivery.delay.hold.ms",
        type=SettingType.LONG,
        default=3_600_000,
        minimum=0,
        maximum=LONG_MAX,
        dynamic=True,
        section=_DELIVERY_SECTION,
        doc="Time for which retention and TTL keep a delayed record after it is due, so that groups can read "
        "the record.",
    ),
    _number(
        "seqgate.delayed.records.max.per.partition",
        100_000,
        "Records of one partition that are not due yet. Beyond the limit a batch with delayed records is "
        "refused with "
        "NOT_ENOUGH_REPLICAS, which producers retry.",
    ),
    _number(
        "seqgate.delayed.records.max",
        1_000_000,
        "Records of all partitions together that are not due yet. The limit acts like the one of a "
        "partition.",
    ),
    _number(
        "seqgate.delayed.records.snapshot.interval.ms",
        60_000,
        "Interval at which the delayed records of a log are written to a snapshot. A start after a crash "
        "replays the log from "
        "there.",
    ),
    _number(
        "seqgate.share.partition.max.stretches",
        20_000,
        "Ranges of consecutive offsets with the same state that a share group keeps of a partition. Delivery "
        "past delayed records "
        "splits ranges. At the limit the group gets no further records of the partition until delayed "
        "records in between are "
        "due.",
    ),
)


# Settings of the codec in which batches are stored, and of the threads that recompress batches of other
# codecs.

_COMPRESSION_SECTION = "Compression"
PRODUCER = "producer"
"""The compression type that keeps each batch as the producer sent it."""
UNCOMPRESSED = "uncompressed"


def _gzip_level(value: SettingValue) -> str | None:
    if value == -1 or (isinstance(value, int) and 1 <= value <= 9):
        return None
    return "Value must be between 1 and 9 or equal to -1"


def _level(codec: str, default: int, minimum: int, maximum: int) -> Setting:
    return Setting(
        name=f"compression.{codec}.level",
        topic_name=f"compression.{codec}.level",
        type=SettingType.INT,
        default=default,
        minimum=minimum,
        maximum=maximum,
        dynamic=True,
        section=_COMPRESSION_SECTION,
        doc=f"Level at which the gateway compresses with {codec}. It counts for batches that arrive in "
        "another codec; a batch of the "
        "right codec keeps its producer's level.",
    )


COMPRESSION_SETTINGS = (
    Setting(
        name="compression.type",
        topic_name="compression.type",
        type=SettingType.STRING,
        default=PRODUCER,
        choices=(UNCOMPRESSED, "zstd", "lz4", "snappy", "gzip", PRODUCER),
        dynamic=True,
        section=_COMPRESSION_SECTION,
        doc="Codec of stored batches. `producer` stores each batch as it was sent. With any other value a "
        "batch of another codec is "
        "recompressed in a thread before it is stored; a batch of the right codec is stored as it was sent. "
        "A change counts for "
        "batches that arrive afterwards.",
    ),
    Setting(
        name="compression.gzip.level",
        topic_name="compression.gzip.level",
        type=SettingType.INT,
        default=-1,
        dynamic=True,
        check=_gzip_level,
        section=_COMPRESSION_SECTION,
        doc="Level at which the gateway compresses with gzip: 1 to 9, or -1 for the library's default. It "
        "counts for batches that arrive in "
        "another codec.",
    ),
    _level("lz4", 9, 1, 17),
    _level("zstd", 3, -131072, 22),
    whole_number(
        _COMPRESSION_SECTION,
        "seqgate.recompression.threads",
        2,
        "Threads that recompress batches. Each thread holds three copies of one batch: in its old codec, "
        "decompressed (at most "
        "seqgate.batch.decompressed.max.bytes), and in its new codec. Batches that wait for a thread count "
        "in queued.max.request.bytes.",
        maximum=64,
    ),
)
