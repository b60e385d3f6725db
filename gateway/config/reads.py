"""Settings of costly reads: old data that is not in the page cache, and batches that must be decoded."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import whole_number

_catching_up = partial(whole_number, "Catching up")
_decoding = partial(whole_number, "Decoding batches")

READ_SETTINGS = (
    _catching_up(
        "seqgate.catch.up.threads",
        1,
        "Threads that read old data from the disk into the page cache, in blocks of 1 MiB. More threads keep a disk with a long "
        "latency busy, and make flushes wait longer. With 0 the event loop reads, and every client waits for the disk.",
        minimum=0,
        maximum=64,
    ),
    _catching_up(
        "seqgate.catch.up.cache.bytes",
        64 << 20,
        "Bytes of old data that stay in the page cache after a read, for other readers that follow closely. Beyond the limit the least "
        "recently used data is dropped, so that catching up does not evict newly written data.",
        minimum=4 << 20,
    ),
    _catching_up(
        "seqgate.catch.up.read.ahead.bytes",
        2 << 20,
        "Bytes that are read ahead of a reader that goes through old data; at most half of seqgate.catch.up.cache.bytes. "
        "0 reads nothing ahead.",
        minimum=0,
    ),
    _decoding(
        "seqgate.batch.decompressed.max.bytes",
        128 << 20,
        "Decompressed size of one batch, where the gateway decodes records. Topics that decode every batch refuse a larger batch: "
        "compacted topics, topics with delayed delivery or deduplication, and all topics under "
        "seqgate.log.deep.validation. So does a topic with a compression.type for a batch that must be recompressed.",
        minimum=1 << 20,
    ),
    _decoding(
        "seqgate.batch.decoded.max.records",
        200_000,
        "Records that the gateway decodes of one batch. Topics that decode every batch (as above) refuse a batch with more "
        "records. For such a batch, ListOffsets by time answers with the base offset of the batch instead of the record's offset.",
        minimum=1000,
    ),
)
