"""Settings that exist on the broker and on a topic: the broker's value is the topic's default."""

from __future__ import annotations

from seqgate.gateway.config.setting import (
    INT_MAX,
    LONG_MAX,
    Fallback,
    Section,
    Setting,
    SettingValue,
)

_TOPICS = Section("Topics and their logs")
_MS_PER_HOUR = 3600000
_MS_PER_MINUTE = 60000

TOPIC_SETTINGS = (
    _TOPICS.whole("log.segment.bytes", 1073741824, topic_name="segment.bytes", minimum=1048576, dynamic=True)(
        "Size at which a log begins a new segment."
    ),
    _TOPICS.whole(
        "log.internal.segment.bytes",
        None,
        topic_name="internal.segment.bytes",
        minimum=128,
        dynamic=True,
        internal=True,
    )(
        "Segment size below the minimum of segment.bytes, for tests only. A value takes precedence over "
        "segment.bytes."
    ),
    _TOPICS.long(
        "log.roll.ms",
        None,
        topic_name="segment.ms",
        minimum=1,
        fallbacks=(Fallback("log.roll.hours", _MS_PER_HOUR),),
        dynamic=True,
    )("Age at which a log begins a new segment; unset means log.roll.hours."),
    _TOPICS.long(
        "log.roll.jitter.ms",
        None,
        topic_name="segment.jitter.ms",
        minimum=0,
        fallbacks=(Fallback("log.roll.jitter.hours", _MS_PER_HOUR),),
        dynamic=True,
    )(
        "Largest time by which a segment rolls earlier than segment.ms; the time differs from segment to "
        "segment, so that many do not roll at once. Unset means log.roll.jitter.hours."
    ),
    _TOPICS.whole(
        "log.index.interval.bytes", 4096, topic_name="index.interval.bytes", minimum=0, dynamic=True
    )("Bytes of records between two entries of the offset index."),
    _TOPICS.whole(
        "log.index.size.max.bytes", 10485760, topic_name="segment.index.bytes", minimum=4, dynamic=True
    )("Size of an index at which the log begins a new segment."),
    _TOPICS.whole("message.max.bytes", 1048588, topic_name="max.message.bytes", minimum=0, dynamic=True)(
        "Size of the largest record batch as it was sent, compressed or not. A larger batch is refused."
    ),
    _TOPICS.text(
        "log.message.timestamp.type",
        "CreateTime",
        topic_name="message.timestamp.type",
        choices=("CreateTime", "LogAppendTime"),
        dynamic=True,
    )(
        "Timestamp that records carry: the producer's (`CreateTime`), or the time of the append "
        "(`LogAppendTime`)."
    ),
    _TOPICS.long(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        topic_name="message.timestamp.before.max.ms",
        minimum=0,
        dynamic=True,
    )("Largest distance of a producer's timestamp into the past; ignored with LogAppendTime."),
    _TOPICS.long(
        "log.message.timestamp.after.max.ms",
        3600000,
        topic_name="message.timestamp.after.max.ms",
        minimum=0,
        dynamic=True,
    )("Largest distance of a producer's timestamp into the future; ignored with LogAppendTime."),
    _TOPICS.long("log.flush.interval.messages", 1, topic_name="flush.messages", minimum=1, dynamic=True)(
        "Records after which a log is flushed to the disk. With 1 every answer to acks=all and to acks=1 "
        f"waits for a flush, which requests share. With {LONG_MAX}, Kafka's default, answers wait only "
        "until the records are in the page cache. In a cluster (`seqgate.cluster`) the setting changes "
        "nothing: every answer waits until the records are in the bucket."
    ),
    _TOPICS.long(
        "log.flush.interval.ms", None, topic_name="flush.ms", minimum=0, unset_value=LONG_MAX, dynamic=True
    )(
        "Longest time for which records stay unflushed; unset means no limit. In a cluster "
        "(`seqgate.cluster`) it changes nothing."
    ),
    _TOPICS.long(
        "log.retention.ms",
        None,
        topic_name="retention.ms",
        minimum=-1,
        fallbacks=(
            Fallback("log.retention.minutes", _MS_PER_MINUTE),
            Fallback("log.retention.hours", _MS_PER_HOUR),
        ),
        dynamic=True,
    )(
        "Age at which segments are deleted; -1 for never. Unset means log.retention.minutes or "
        "log.retention.hours."
    ),
    _TOPICS.long("log.retention.bytes", -1, topic_name="retention.bytes", dynamic=True)(
        "Size of a partition beyond which its oldest segments are deleted; -1 for no limit."
    ),
    _TOPICS.long(
        "log.segment.delete.delay.ms", 60000, topic_name="file.delete.delay.ms", minimum=0, dynamic=True
    )("Time between the removal of a segment from its log and the deletion of the segment's files."),
    _TOPICS.items(
        "log.cleanup.policy",
        ("delete",),
        topic_name="cleanup.policy",
        choices=("compact", "delete"),
        dynamic=True,
    )(
        "Treatment of old segments. `delete` removes segments by age and size, `compact` keeps the newest "
        "record of each key, `compact,delete` does both, and an empty list keeps everything."
    ),
    _TOPICS.whole(
        "min.insync.replicas",
        1,
        topic_name="min.insync.replicas",
        minimum=1,
        maximum=INT_MAX,
        dynamic=True,
        without_effect=True,
    )(
        "Kept without effect, for clients that set it. A partition has one replica, and acks=all succeeds "
        "with one."
    ),
)


# Settings of delayed records, which share groups get only when the records are due.

_DELIVERY = Section("Delayed records")
_MAX_NAME_BYTES = 1_000


def _name_complaint(value: SettingValue) -> str | None:
    if len(str(value).encode()) <= _MAX_NAME_BYTES:
        return None
    return f"the name of a record header must have at most {_MAX_NAME_BYTES} bytes, not {len(str(value).encode())}"


DELIVERY_TOPIC_SETTINGS = (
    _DELIVERY.text(
        "delivery.delay.header", "", topic_name="delivery.delay.header", check=_name_complaint, dynamic=True
    )(
        "Record header that says when a record is due, as decimal text in ms since 1970 (UTC). Share groups "
        "get the record no earlier. With an empty name no record is delayed. Not allowed together with the "
        "cleanup policy compact. See delayed-records.md."
    ),
)
DELIVERY_SETTINGS = (
    _DELIVERY.long(
        "log.delivery.delay.max.ms",
        2_592_000_000,
        topic_name="delivery.delay.max.ms",
        minimum=0,
        maximum=LONG_MAX,
        dynamic=True,
    )(
        "Longest delay of a record, from now. A batch with a record that is due later is refused with "
        "INVALID_RECORD."
    ),
    _DELIVERY.long(
        "log.delivery.delay.hold.ms",
        3_600_000,
        topic_name="delivery.delay.hold.ms",
        minimum=0,
        maximum=LONG_MAX,
        dynamic=True,
    )(
        "Time for which retention and TTL keep a delayed record after it is due, so that groups can read "
        "the record."
    ),
    _DELIVERY.number("seqgate.delayed.records.max.per.partition", 100_000)(
        "Records of one partition that are not due yet. Beyond the limit a batch with delayed records is "
        "refused with NOT_ENOUGH_REPLICAS, which producers retry."
    ),
    _DELIVERY.number("seqgate.delayed.records.max", 1_000_000)(
        "Records of all partitions together that are not due yet. The limit acts like the one of a partition."
    ),
    _DELIVERY.number("seqgate.delayed.records.snapshot.interval.ms", 60_000)(
        "Interval at which the delayed records of a log are written to a snapshot. A start after a crash "
        "replays the log from there."
    ),
    _DELIVERY.number("seqgate.share.partition.max.stretches", 20_000)(
        "Ranges of consecutive offsets with the same state that a share group keeps of a partition. "
        "Delivery past delayed records splits ranges. At the limit the group gets no further records of the "
        "partition until delayed records in between are due."
    ),
)


# Settings of the codec in which batches are stored, and of the threads that recompress batches of other
# codecs.

_COMPRESSION = Section("Compression")
PRODUCER = "producer"
"""The compression type that keeps each batch as the producer sent it."""
UNCOMPRESSED = "uncompressed"


def _gzip_level(value: SettingValue) -> str | None:
    if value == -1 or (isinstance(value, int) and 1 <= value <= 9):
        return None
    return "Value must be between 1 and 9 or equal to -1"


def _level(codec: str, default: int, minimum: int, maximum: int) -> Setting:
    return _COMPRESSION.whole(
        f"compression.{codec}.level",
        default,
        topic_name=f"compression.{codec}.level",
        minimum=minimum,
        maximum=maximum,
        dynamic=True,
    )(
        f"Level at which the gateway compresses with {codec}. It counts for batches that arrive in another "
        "codec; a batch of the right codec keeps its producer's level."
    )


COMPRESSION_SETTINGS = (
    _COMPRESSION.text(
        "compression.type",
        PRODUCER,
        topic_name="compression.type",
        choices=(UNCOMPRESSED, "zstd", "lz4", "snappy", "gzip", PRODUCER),
        dynamic=True,
    )(
        "Codec of stored batches. `producer` stores each batch as it was sent. With any other value a batch "
        "of another codec is recompressed in a thread before it is stored; a batch of the right codec is "
        "stored as it was sent. A change counts for batches that arrive afterwards."
    ),
    _COMPRESSION.whole(
        "compression.gzip.level", -1, topic_name="compression.gzip.level", check=_gzip_level, dynamic=True
    )(
        "Level at which the gateway compresses with gzip: 1 to 9, or -1 for the library's default. It "
        "counts for batches that arrive in another codec."
    ),
    _level("lz4", 9, 1, 17),
    _level("zstd", 3, -131072, 22),
    _COMPRESSION.number("seqgate.recompression.threads", 2, maximum=64)(
        "Threads that recompress batches. Each thread holds three copies of one batch: in its old codec, "
        "decompressed (at most seqgate.batch.decompressed.max.bytes), and in its new codec. Batches that "
        "wait for a thread count in queued.max.request.bytes."
    ),
)
