"""Settings of readers that catch up: who reads what is no longer in the page cache."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import whole_number

_READS = "Catching up"
_number = partial(whole_number, _READS)

READ_SETTINGS = (
    _number(
        "seqgate.catch.up.threads",
        1,
        "Threads that read old data from the disk for those who fetch it, a block of 1 MiB at a time. More keep a disk "
        "with a long latency busy, and have flushes wait longer. 0 has the event loop read, which keeps everyone waiting "
        "for the disk.",
        minimum=0,
        maximum=64,
    ),
    _number(
        "seqgate.catch.up.cache.bytes",
        64 << 20,
        "How much of the old data that was read from the disk stays in the page cache for other readers close behind. "
        "What was used least lately is dropped, so that catching up does not push out what is written now.",
        minimum=4 << 20,
    ),
    _number(
        "seqgate.catch.up.read.ahead.bytes",
        2 << 20,
        "How far ahead of a reader that goes through old data the disk is read; never more than half of "
        "seqgate.catch.up.cache.bytes.",
        minimum=0,
    ),
)
