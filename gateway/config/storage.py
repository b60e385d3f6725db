"""Settings of logs that no topic overrides: maintenance, costly reads, disk; and of compaction."""

from __future__ import annotations

import sys

from seqgate.gateway.config.setting import LONG_MAX, Section

_TOPICS = Section("Topics in general")
_LOG = Section("Log maintenance")
_CATCHING_UP = Section("Catching up")
_DECODING = Section("Decoding batches")

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
        "Interval at which recovery points and log start offsets are written to their checkpoint files, and "
        "the clients of producers to theirs."
    ),
    _LOG.decimal("seqgate.flush.inline.max.ms", 1.0, minimum=0, dynamic=True)(
        "Expected duration below which a flush for a single waiting request runs in the event loop. A "
        "thread would cost more than such a flush. With 0 every flush runs in a thread."
    ),
    _LOG.whole("seqgate.log.max.open.files", 512, minimum=8, dynamic=True)(
        "Segment files that are open at once. Beyond the limit the least recently used file is closed; "
        "after the limit is lowered, files are closed when the next file is opened."
    ),
    _LOG.switch("seqgate.log.deep.validation", True, topic_name="message.deep.validation", dynamic=True)(
        "Whether the gateway checks every record of a batch before the append: lengths, counts, offset "
        "deltas, timestamps, and whether a compressed batch decompresses. A batch that consumers could not "
        "read is refused. With false only the header and the checksum are checked, except on compacted "
        "topics."
    ),
    # Costly reads: old data that is not in the page cache, and batches that must be decoded.
    _CATCHING_UP.number("seqgate.catch.up.threads", 1, minimum=0, maximum=64)(
        "Threads that read old data from the disk into the page cache, in blocks of 1 MiB. More threads "
        "keep a disk with a long latency busy, and make flushes wait longer. With 0 the event loop reads, "
        "and every client waits for the disk."
    ),
    _CATCHING_UP.number("seqgate.catch.up.cache.bytes", 64 << 20, minimum=4 << 20)(
        "Bytes of old data that always stay in the page cache after a read, for other readers that follow "
        "closely. Beyond it, and while memory is short, the least recently used data is dropped, so that "
        "catching up does not evict newly written data."
    ),
    _CATCHING_UP.long("seqgate.catch.up.cache.max.bytes", 16 << 30, minimum=0, maximum=1 << 40)(
        "Bytes of old data that may stay in the page cache while memory has room, so that the next group "
        "that reads the data does not read from the disk. With several workers, of each. The room is half of "
        "the available memory (MemAvailable, or less in a cgroup with a limit) without a quarter of the "
        "total; it is asked for once a second on Linux, and counts as 0 under memory pressure and where "
        "it is not known. The gateway remembers each block of 1 MiB in about 300 bytes. 0, or at most "
        "seqgate.catch.up.cache.bytes, keeps only the latter."
    ),
    _CATCHING_UP.number("seqgate.catch.up.read.ahead.bytes", 2 << 20, minimum=0)(
        "Bytes that are read ahead of a reader that goes through old data; at most half of "
        "seqgate.catch.up.cache.bytes. 0 reads nothing ahead."
    ),
    _DECODING.number("seqgate.batch.decompressed.max.bytes", 128 << 20, minimum=1 << 20)(
        "Decompressed size of one batch; a larger one is refused. With message.deep.validation=false only "
        "compacted topics and topics with delayed delivery, deduplication or a compression.type decompress "
        "batches that arrive."
    ),
    _DECODING.number("seqgate.batch.decoded.max.records", 200_000, minimum=1000)(
        "Records of one batch. A topic that checks records (as above) refuses a batch with more records. For "
        "such a batch of an earlier time, ListOffsets by time answers with the base offset of the batch "
        "instead of the record's offset."
    ),
    # The disk: the free space that is reserved, and the speed of deleting files.
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

_COMPACTION = Section("Compaction")
_COMPACTED = Section(_COMPACTION.title, "log.cleaner.", dynamic=True)
_MIB = 1048576

COMPACTION_SETTINGS = (
    _COMPACTED.long("log.cleaner.delete.retention.ms", 86400000, minimum=0)(
        "Time for which a record without a value (a tombstone) stays in a compacted topic after its first "
        "compaction. A consumer that reads from the start sees every deletion only if it reaches the end "
        "within this time."
    ),
    _COMPACTED.long("log.cleaner.min.compaction.lag.ms", 0, minimum=0)(
        "Age below which a record is not compacted."
    ),
    _COMPACTED.long("log.cleaner.max.compaction.lag.ms", LONG_MAX, minimum=1)(
        "Age of a record at which its log is compacted, whatever the dirty ratio. The active segment rolls "
        "by then."
    ),
    _COMPACTED.decimal(
        "log.cleaner.min.cleanable.ratio", 0.5, topic_name="min.cleanable.dirty.ratio", minimum=0, maximum=1
    )("Share of a log's bytes that must be dirty (not compacted yet) before the log is compacted."),
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
        "Bytes of memory for keys, over all compacting processes, at least 1 MiB for each of "
        "`log.cleaner.threads`; a key takes 24 bytes. A log with more keys is compacted in several passes."
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
