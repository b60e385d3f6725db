"""Settings of topics in general, and settings of logs without a counterpart on a topic."""

from __future__ import annotations

from functools import partial

from seqgate.gateway.config.setting import LONG_MAX, Setting, SettingType, whole_number

_TOPICS = "Topics in general"
_LOG = "Log maintenance"

STORAGE_SETTINGS = (
    Setting(
        name="num.partitions",
        type=SettingType.INT,
        default=1,
        minimum=1,
        section=_TOPICS,
        doc="Partitions of a topic that is created without a number of partitions.",
    ),
    Setting(
        name="default.replication.factor",
        type=SettingType.INT,
        default=1,
        minimum=1,
        maximum=1,
        section=_TOPICS,
        doc="Replicas of a partition. Always 1, because the gateway is a single broker.",
    ),
    Setting(
        name="auto.create.topics.enable",
        type=SettingType.BOOLEAN,
        default=True,
        section=_TOPICS,
        doc="Whether the gateway creates an unknown topic that a client asks for in Metadata, if the client "
        "allows it.",
    ),
    Setting(
        name="delete.topic.enable",
        type=SettingType.BOOLEAN,
        default=True,
        section=_TOPICS,
        doc="Whether DeleteTopics is allowed.",
    ),
    Setting(
        name="seqgate.max.partitions",
        type=SettingType.INT,
        default=100000,
        minimum=1,
        dynamic=True,
        section=_TOPICS,
        doc="Partitions of all topics together. Beyond the limit no partition can be created.",
    ),
    Setting(
        name="log.roll.hours",
        type=SettingType.INT,
        default=168,
        minimum=1,
        section=_LOG,
        doc="The value of log.roll.ms, in hours, where log.roll.ms is unset.",
    ),
    Setting(
        name="log.roll.jitter.hours",
        type=SettingType.INT,
        default=0,
        minimum=0,
        section=_LOG,
        doc="The value of log.roll.jitter.ms, in hours, where log.roll.jitter.ms is unset.",
    ),
    Setting(
        name="log.retention.minutes",
        type=SettingType.INT,
        default=None,
        section=_LOG,
        minimum=-1,
        doc="The value of log.retention.ms, in minutes, where log.retention.ms is unset.",
    ),
    Setting(
        name="log.retention.hours",
        type=SettingType.INT,
        default=168,
        minimum=-1,
        section=_LOG,
        doc="The value of log.retention.ms, in hours, where log.retention.ms and log.retention.minutes are "
        "unset.",
    ),
    Setting(
        name="log.retention.check.interval.ms",
        type=SettingType.LONG,
        default=300000,
        minimum=1,
        section=_LOG,
        doc="Interval of the retention passes, which remove old segments.",
    ),
    Setting(
        name="log.flush.offset.checkpoint.interval.ms",
        type=SettingType.INT,
        default=60000,
        minimum=1,
        section=_LOG,
        doc="Interval at which recovery points and log start offsets are written to their checkpoint files.",
    ),
    Setting(
        name="seqgate.flush.inline.max.ms",
        type=SettingType.DOUBLE,
        default=1.0,
        minimum=0,
        dynamic=True,
        section=_LOG,
        doc="Expected duration below which a flush for a single waiting request runs in the event loop. A "
        "thread would cost "
        "more than such a flush. With 0 every flush runs in a thread.",
    ),
    Setting(
        name="seqgate.log.max.open.files",
        type=SettingType.INT,
        default=512,
        minimum=8,
        dynamic=True,
        section=_LOG,
        doc="Segment files that are open at once. Beyond the limit the least recently used file is closed; "
        "after the limit is "
        "lowered, files are closed when the next file is opened.",
    ),
    Setting(
        name="seqgate.log.deep.validation",
        type=SettingType.BOOLEAN,
        default=False,
        dynamic=True,
        section=_LOG,
        doc="Whether the gateway decodes and checks every record of a batch before the append. Costs work "
        "per record.",
    ),
)


# Settings of the disk: the free space that is reserved, and the speed of deleting files.

_number = partial(whole_number, _LOG)

DISK_SETTINGS = (
    _number(
        "seqgate.deletion.max.files.per.second",
        2000,
        "Files of deleted segments and topics that the gateway deletes per second. The limit leaves the disk "
        "time for requests.",
    ),
    Setting(
        name="seqgate.deletion.max.bytes.per.second",
        type=SettingType.LONG,
        default=4 << 30,
        minimum=1 << 20,
        maximum=LONG_MAX,
        section=_LOG,
        doc="Bytes of deleted segments and topics that the gateway frees per second. Files are deleted one "
        "by "
        "one, each as a whole; after a file larger than this, the next file waits until the average fits.",
    ),
    Setting(
        name="seqgate.log.min.free.bytes",
        type=SettingType.LONG,
        default=64 << 20,
        minimum=0,
        maximum=LONG_MAX,
        dynamic=True,
        section=_LOG,
        doc="Free space on the disk of `log.dirs` that producers may not use. With less free space the "
        "gateway refuses batches of "
        "producers with KAFKA_STORAGE_ERROR, and producers retry. The reserve is for offset commits, ends of "
        "transactions, "
        "retention and deletions; reads continue, too. 0 keeps no reserve.",
    ),
)


# Settings of costly reads: old data that is not in the page cache, and batches that must be decoded.

_catching_up = partial(whole_number, "Catching up")
_decoding = partial(whole_number, "Decoding batches")

READ_SETTINGS = (
    _catching_up(
        "seqgate.catch.up.threads",
        1,
        "Threads that read old data from the disk into the page cache, in blocks of 1 MiB. More threads keep "
        "a disk with a long "
        "latency busy, and make flushes wait longer. With 0 the event loop reads, and every client waits for "
        "the disk.",
        minimum=0,
        maximum=64,
    ),
    _catching_up(
        "seqgate.catch.up.cache.bytes",
        64 << 20,
        "Bytes of old data that stay in the page cache after a read, for other readers that follow closely. "
        "Beyond the limit the least "
        "recently used data is dropped, so that catching up does not evict newly written data.",
        minimum=4 << 20,
    ),
    _catching_up(
        "seqgate.catch.up.read.ahead.bytes",
        2 << 20,
        "Bytes that are read ahead of a reader that goes through old data; at most half of "
        "seqgate.catch.up.cache.bytes. "
        "0 reads nothing ahead.",
        minimum=0,
    ),
    _decoding(
        "seqgate.batch.decompressed.max.bytes",
        128 << 20,
        "Decompressed size of one batch, where the gateway decodes records. Topics that decode every batch "
        "refuse a larger batch: "
        "compacted topics, topics with delayed delivery or deduplication, and all topics under "
        "seqgate.log.deep.validation. So does a topic with a compression.type for a batch that must be "
        "recompressed.",
        minimum=1 << 20,
    ),
    _decoding(
        "seqgate.batch.decoded.max.records",
        200_000,
        "Records that the gateway decodes of one batch. Topics that decode every batch (as above) refuse a "
        "batch with more "
        "records. For such a batch, ListOffsets by time answers with the base offset of the batch instead of "
        "the record's offset.",
        minimum=1000,
    ),
)
