"""Settings that exist on the broker and on a topic, where the broker's value is the topic's default; their
compression; and settings of Kafka's topics that are kept without effect.

Types and allowed values are Kafka's (LogConfig). The gateway keeps the values without effect and describes
them, so that tools can read, compare and set them. `topic_conflict` refuses `remote.storage.enable=true`, as
Kafka does without tiered storage.
"""

from __future__ import annotations

import re
from typing import Final

from seqgate.gateway.config.setting import INT_MAX, LONG_MAX, Fallback, Section, Setting, SettingValue

_TOPICS = Section("Topics and their logs", "log.", dynamic=True)
_MS_PER_HOUR = 3600000
_MS_PER_MINUTE = 60000
_COMPRESSION = Section("Compression", "", dynamic=True)
PRODUCER = "producer"
"""The compression type that keeps each batch as the producer sent it."""
UNCOMPRESSED = "uncompressed"


def _gzip_level(value: SettingValue) -> str | None:
    if value == -1 or (isinstance(value, int) and 1 <= value <= 9):
        return None
    return "Value must be between 1 and 9 or equal to -1"


def _level(codec: str, default: int, minimum: int, maximum: int) -> Setting:
    return _COMPRESSION.whole(f"compression.{codec}.level", default, minimum=minimum, maximum=maximum)(
        f"Level at which the gateway compresses with {codec}. It counts for batches that arrive in another "
        "codec; a batch of the right codec keeps its producer's level."
    )


_KEPT = Section("Settings of Kafka that are kept without effect", "log.", dynamic=True, without_effect=True)
_NO_TIERS = "Kept without effect: there is no tiered storage."
_NO_COPIES = "Kept without effect: brokers copy no partitions from each other."
_EVERY_REPLICA: Final = ("*",)
_REPLICA: Final = re.compile(r"(?:[0-9]+:[0-9]+)?")


def _local_retention(unit: str) -> Setting:
    return _KEPT.long(f"log.local.retention.{unit}", -2, minimum=-2)(
        f"{_NO_TIERS} All segments are local, as with -2, which means `retention.{unit}`."
    )


def _copy_lag(unit: str, default: int) -> Setting:
    return _KEPT.long(f"log.remote.copy.lag.{unit}", default, minimum=-1)(
        f"{_NO_TIERS} -1 means `local.retention.{unit}`, and 0 no lag."
    )


def _throttled(role: str) -> Setting:
    name = f"{role}.replication.throttled.replicas"

    def complaint(value: SettingValue) -> str | None:
        assert isinstance(value, tuple)
        if value == _EVERY_REPLICA or all(_REPLICA.fullmatch(item) for item in value):
            return None
        return (
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )

    return _KEPT.items(name, (), check=complaint, empty_items=True)(
        f"{_NO_COPIES} Replicas as `PARTITION:BROKER`, or `*` for all."
    )


TOPIC_SETTINGS = (
    _TOPICS.whole("log.segment.bytes", 1073741824, minimum=1048576)(
        "Size at which a log begins a new segment."
    ),
    _TOPICS.whole("log.internal.segment.bytes", None, minimum=128, internal=True)(
        "Segment size below the minimum of segment.bytes, for tests only. A value takes precedence over "
        "segment.bytes."
    ),
    _TOPICS.long(
        "log.roll.ms",
        None,
        topic_name="segment.ms",
        minimum=1,
        fallbacks=(Fallback("log.roll.hours", _MS_PER_HOUR),),
    )("Age at which a log begins a new segment; unset means log.roll.hours."),
    _TOPICS.long(
        "log.roll.jitter.ms",
        None,
        topic_name="segment.jitter.ms",
        minimum=0,
        fallbacks=(Fallback("log.roll.jitter.hours", _MS_PER_HOUR),),
    )(
        "Largest time by which a segment rolls earlier than segment.ms; the time differs from segment to "
        "segment, so that many do not roll at once. Unset means log.roll.jitter.hours."
    ),
    _TOPICS.whole("log.index.interval.bytes", 4096, minimum=0)(
        "Bytes of records between two entries of the offset index."
    ),
    _TOPICS.whole("log.index.size.max.bytes", 10485760, topic_name="segment.index.bytes", minimum=4)(
        "Size of an index at which the log begins a new segment."
    ),
    _TOPICS.whole("message.max.bytes", 1048588, topic_name="max.message.bytes", minimum=0)(
        "Size of the largest record batch as it was sent, compressed or not. A larger batch is refused."
    ),
    _TOPICS.whole("max.decompressed.message.bytes", INT_MAX - 8, minimum=1, maximum=INT_MAX - 8)(
        "Size of the largest record in a compressed batch, when it is decompressed. A batch with a larger "
        "record is refused. With a smaller value than the default, the gateway decompresses every batch that "
        "arrives, and each costs at most this size for each of its records. Compaction and look-ups by time "
        "fail where a stored record is larger, until the value is raised again."
    ),
    _TOPICS.text("log.message.timestamp.type", "CreateTime", choices=("CreateTime", "LogAppendTime"))(
        "Timestamp that records carry: the producer's (`CreateTime`), or the time of the append "
        "(`LogAppendTime`)."
    ),
    _TOPICS.long("log.message.timestamp.before.max.ms", LONG_MAX, minimum=0)(
        "Largest distance of a producer's timestamp into the past; ignored with LogAppendTime."
    ),
    _TOPICS.long("log.message.timestamp.after.max.ms", 3600000, minimum=0)(
        "Largest distance of a producer's timestamp into the future; ignored with LogAppendTime."
    ),
    _TOPICS.long("log.flush.interval.messages", 1, topic_name="flush.messages", minimum=1)(
        "Records after which a log is flushed to the disk. With 1 every answer to acks=all and to acks=1 "
        f"waits for a flush, which requests share. With {LONG_MAX}, Kafka's default, answers wait only "
        "until the records are in the page cache. In a cluster (`seqgate.cluster`) the setting changes "
        "nothing: every answer waits until the records are in the bucket."
    ),
    _TOPICS.long("log.flush.interval.ms", None, topic_name="flush.ms", minimum=0, unset_value=LONG_MAX)(
        "Longest time for which records stay unflushed; unset means no limit. In a cluster "
        "(`seqgate.cluster`) it changes nothing."
    ),
    _TOPICS.long(
        "log.retention.ms",
        None,
        minimum=-1,
        fallbacks=(
            Fallback("log.retention.minutes", _MS_PER_MINUTE),
            Fallback("log.retention.hours", _MS_PER_HOUR),
        ),
    )(
        "Age at which segments are deleted; -1 for never. Unset means log.retention.minutes or "
        "log.retention.hours."
    ),
    _TOPICS.long("log.retention.bytes", -1)(
        "Size of a partition beyond which its oldest segments are deleted; -1 for no limit."
    ),
    _TOPICS.long("log.segment.delete.delay.ms", 60000, topic_name="file.delete.delay.ms", minimum=0)(
        "Time between the removal of a segment from its log and the deletion of the segment's files."
    ),
    _TOPICS.items("log.cleanup.policy", ("delete",), choices=("compact", "delete"))(
        "Treatment of old segments. `delete` removes segments by age and size, `compact` keeps the newest "
        "record of each key, `compact,delete` does both, and an empty list keeps everything."
    ),
    _TOPICS.whole("min.insync.replicas", 1, minimum=1, maximum=INT_MAX, without_effect=True)(
        "Kept without effect, for clients that set it. A partition has one replica, and acks=all succeeds "
        "with one."
    ),
    # The codec in which batches are stored, and the threads that recompress batches of other codecs.
    _COMPRESSION.text(
        "compression.type", PRODUCER, choices=(UNCOMPRESSED, "zstd", "lz4", "snappy", "gzip", PRODUCER)
    )(
        "Codec of stored batches. `producer` stores each batch as it was sent. With any other value a batch "
        "of another codec is recompressed in a thread before it is stored; a batch of the right codec is "
        "stored as it was sent. A change counts for batches that arrive afterwards."
    ),
    _COMPRESSION.whole("compression.gzip.level", -1, check=_gzip_level)(
        "Level at which the gateway compresses with gzip: 1 to 9, or -1 for the library's default. It "
        "counts for batches that arrive in another codec."
    ),
    _level("lz4", 9, 1, 17),
    _level("zstd", 3, -131072, 22),
    Section(_COMPRESSION.title).number("seqgate.recompression.threads", 2, maximum=64)(
        "Threads that check large batches, and recompress batches of another codec than the topic's. Each "
        "thread holds up to three copies of one batch: in its old codec, decompressed (at most "
        "seqgate.batch.decompressed.max.bytes), and in its new codec. Batches that wait for a thread count "
        "in queued.max.request.bytes."
    ),
    _KEPT.switch("log.preallocate", False)("Kept without effect: segment files grow as they are written."),
    _KEPT.switch("unclean.leader.election.enable", False)(
        "Kept without effect: a partition has one replica and no other to elect, so that no election loses "
        "records."
    ),
    _local_retention("ms"),
    _local_retention("bytes"),
    _copy_lag("ms", 0),
    _copy_lag("bytes", -1),
)
TOPIC_ONLY_SETTINGS = (
    _TOPICS.switch("errors.deadletterqueue.group.enable", False)(
        "Whether share groups may write their dead letters to the topic (KIP-1191). A group whose "
        "dead-letter topic does not allow it archives its records without a letter, as in Kafka."
    ),
    _throttled("leader"),
    _throttled("follower"),
    _KEPT.switch("remote.storage.enable", False)(
        "Always false, because there is no tiered storage; true is refused."
    ),
    _KEPT.switch("remote.log.copy.disable", False)(_NO_TIERS),
    _KEPT.switch("remote.log.delete.on.disable", False)(_NO_TIERS),
)
"""The settings of topics without a counterpart on the broker."""
