"""Settings of topics in general, and settings of logs without a counterpart on a topic."""

from __future__ import annotations

from seqgate.gateway.config.setting import LONG_MAX, Section

_TOPICS = Section("Topics in general")
_LOG = Section("Log maintenance")

STORAGE_SETTINGS = (
    _TOPICS.whole("num.partitions", 1, minimum=1)(
        "Partitions of a topic that is created without a number of partitions."
    ),
    _TOPICS.whole("default.replication.factor", 1, minimum=1, maximum=1)(
        "Replicas of a partition. Always 1, because the gateway is a single broker."
    ),
    _TOPICS.switch("auto.create.topics.enable", True)(
        "Whether the gateway creates an unknown topic that a client asks for in Metadata, if the client "
        "allows it."
    ),
    _TOPICS.switch("delete.topic.enable", True)("Whether DeleteTopics is allowed."),
    _TOPICS.whole("seqgate.max.partitions", 100000, minimum=1, dynamic=True)(
        "Partitions of all topics together. Beyond the limit no partition can be created."
    ),
    _LOG.whole("log.roll.hours", 168, minimum=1)(
        "The value of log.roll.ms, in hours, where log.roll.ms is unset."
    ),
    _LOG.whole("log.roll.jitter.hours", 0, minimum=0)(
        "The value of log.roll.jitter.ms, in hours, where log.roll.jitter.ms is unset."
    ),
    _LOG.whole("log.retention.minutes", None, minimum=-1)(
        "The value of log.retention.ms, in minutes, where log.retention.ms is unset."
    ),
    _LOG.whole("log.retention.hours", 168, minimum=-1)(
        "The value of log.retention.ms, in hours, where log.retention.ms and log.retention.minutes are unset."
    ),
    _LOG.long("log.retention.check.interval.ms", 300000, minimum=1)(
        "Interval of the retention passes, which remove old segments."
    ),
    _LOG.whole("log.flush.offset.checkpoint.interval.ms", 60000, minimum=1)(
        "Interval at which recovery points and log start offsets are written to their checkpoint files."
    ),
    _LOG.decimal("seqgate.flush.inline.max.ms", 1.0, minimum=0, dynamic=True)(
        "Expected duration below which a flush for a single waiting request runs in the event loop. A "
        "thread would cost more than such a flush. With 0 every flush runs in a thread."
    ),
    _LOG.whole("seqgate.log.max.open.files", 512, minimum=8, dynamic=True)(
        "Segment files that are open at once. Beyond the limit the least recently used file is closed; "
        "after the limit is lowered, files are closed when the next file is opened."
    ),
    _LOG.switch("seqgate.log.deep.validation", False, dynamic=True)(
        "Whether the gateway decodes and checks every record of a batch before the append. Costs work per "
        "record."
    ),
)


# Settings of the disk: the free space that is reserved, and the speed of deleting files.


DISK_SETTINGS = (
    _LOG.number("seqgate.deletion.max.files.per.second", 2000)(
        "Files of deleted segments and topics that the gateway deletes per second. The limit leaves the "
        "disk time for requests."
    ),
    _LOG.long("seqgate.deletion.max.bytes.per.second", 4 << 30, minimum=1 << 20, maximum=LONG_MAX)(
        "Bytes of deleted segments and topics that the gateway frees per second. Files are deleted one by "
        "one, each as a whole; after a file larger than this, the next file waits until the average fits."
    ),
    _LOG.long("seqgate.log.min.free.bytes", 64 << 20, minimum=0, maximum=LONG_MAX, dynamic=True)(
        "Free space on the disk of `log.dirs` that producers may not use. With less free space the gateway "
        "refuses batches of producers with KAFKA_STORAGE_ERROR, and producers retry. The reserve is for "
        "offset commits, ends of transactions, retention and deletions; reads continue, too. 0 keeps no "
        "reserve."
    ),
)


# Settings of costly reads: old data that is not in the page cache, and batches that must be decoded.

_CATCHING_UP = Section("Catching up")
_DECODING = Section("Decoding batches")

READ_SETTINGS = (
    _CATCHING_UP.number("seqgate.catch.up.threads", 1, minimum=0, maximum=64)(
        "Threads that read old data from the disk into the page cache, in blocks of 1 MiB. More threads "
        "keep a disk with a long latency busy, and make flushes wait longer. With 0 the event loop reads, "
        "and every client waits for the disk."
    ),
    _CATCHING_UP.number("seqgate.catch.up.cache.bytes", 64 << 20, minimum=4 << 20)(
        "Bytes of old data that stay in the page cache after a read, for other readers that follow closely. "
        "Beyond the limit the least recently used data is dropped, so that catching up does not evict newly "
        "written data."
    ),
    _CATCHING_UP.number("seqgate.catch.up.read.ahead.bytes", 2 << 20, minimum=0)(
        "Bytes that are read ahead of a reader that goes through old data; at most half of "
        "seqgate.catch.up.cache.bytes. 0 reads nothing ahead."
    ),
    _DECODING.number("seqgate.batch.decompressed.max.bytes", 128 << 20, minimum=1 << 20)(
        "Decompressed size of one batch, where the gateway decodes records. Topics that decode every batch "
        "refuse a larger batch: compacted topics, topics with delayed delivery or deduplication, and all "
        "topics under seqgate.log.deep.validation. So does a topic with a compression.type for a batch that "
        "must be recompressed."
    ),
    _DECODING.number("seqgate.batch.decoded.max.records", 200_000, minimum=1000)(
        "Records that the gateway decodes of one batch. Topics that decode every batch (as above) refuse a "
        "batch with more records. For such a batch, ListOffsets by time answers with the base offset of the "
        "batch instead of the record's offset."
    ),
)
