"""Checks large batches in threads, and recompresses batches there, so that the event loop serves other
requests meanwhile.

The libraries of the codecs release Python's lock while they work. A thread gets nothing of a partition but
the batch and settings that never change; the event loop appends the result.

A few hundred bytes may decompress for a long time. So the clients whose batches wait take turns, and within
the turns of a client its connections do; the batches of a connection stay in order. A client waits for one
batch of each other client at most, however many connections and batches the others have.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from seqgate.gateway.runtime.loop.machine import Machine, Workers
from seqgate.log import LogConfig, LogError, RecordTooLarge, StorageFailed
from seqgate.log.format.batch_validation import (
    CORRECTED,
    DONE,
    check_batch,
    check_record_sizes,
    checked_plain,
    sealed_batch,
)
from seqgate.log.format.compression import CODEC_IDS, Compression, compress
from seqgate.log.format.record_batch import COMPRESSION_MASK, HEADER_BYTES, PATCHED, stamped_head

logger = logging.getLogger(__name__)

_NAMES: Final = {number: name for name, number in CODEC_IDS.items()}
_ANY_BYTES: Final = 2**31 - 1

PreparedBatch = bytes | memoryview | LogError
"""The checked batch as it is to be stored, or the error that refuses the batch."""


class _Job(NamedTuple):
    prepare: Callable[[], PreparedBatch]
    then: Callable[[PreparedBatch], None]
    """Called in the event loop with what `prepare` returns."""
    recompresses: bool


class _Waiting:
    """The batches that wait for a thread, by client and connection; whose turn is next comes first. Threads
    may call all at the same time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: OrderedDict[str, OrderedDict[int, deque[_Job]]] = OrderedDict()

    def put(self, client: str, connection: int, job: _Job) -> None:
        with self._lock:
            connections = self._clients.setdefault(client, OrderedDict())
            connections.setdefault(connection, deque()).append(job)

    def take(self) -> _Job:
        """Return the next batch; its client and its connection have their next turns after all others."""
        with self._lock:
            client, connections = self._clients.popitem(last=False)
            connection, jobs = connections.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                connections[connection] = jobs
            if connections:
                self._clients[client] = connections
            return job


class BatchThreads:
    """Checks and recompresses batches in threads that the first batch starts. Call all in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, threads: int, machine: Machine) -> None:
        self._loop = loop
        self._machine = machine
        self._thread_count = threads
        self._workers: Workers[None] | None = None
        self._waiting = _Waiting()
        self._is_stopped = False
        self.recompressed = 0
        """The number of batches that threads have recompressed since the start, refused ones included."""

    def put(
        self,
        client: str,
        connection: int,
        records: memoryview,
        compression: Compression | None,
        config: LogConfig,
        now_ms: int,
        then: Callable[[PreparedBatch], None],
    ) -> None:
        """Check a batch in a turn of the client and its connection, recompress it where `compression` says,
        and call `then` with the outcome, but never at once, nor after `stop`.
        """
        if self._is_stopped:
            return
        if self._workers is None:
            self._workers = self._machine.workers("batches", self._thread_count, self._work)
        prepare = partial(_prepare, records, compression, config, now_ms)
        self._waiting.put(client, connection, _Job(prepare, then, compression is not None))
        self._workers.put(None)  # one for each batch: the thread that gets it takes the next batch

    def stop(self) -> None:
        """End the threads when their current batches are done, and drop the batches that wait."""
        self._is_stopped = True
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.stop()

    def _work(self, _: None) -> None:
        if self._is_stopped:
            return
        job = self._waiting.take()
        self._loop.call_soon_threadsafe(self._finish, job, job.prepare())

    def _finish(self, job: _Job, outcome: PreparedBatch) -> None:
        if not self._is_stopped:
            self.recompressed += job.recompresses
            job.then(outcome)


def _prepare(
    records: memoryview, compression: Compression | None, config: LogConfig, now_ms: int
) -> PreparedBatch:
    try:
        if compression is None:
            return _checked(records, config, now_ms)
        return recompressed(records, compression, config, now_ms)
    except LogError as error:
        return error
    except MemoryError:
        return StorageFailed("the memory did not suffice to decompress the batch; retry later")
    except BaseException:  # a panic of a codec's library is no Exception, and the request must be answered
        logger.exception("a batch of %d bytes could not be decompressed", len(records))
        return StorageFailed("the batch could not be decompressed; the gateway's log says why")


def _checked(records: memoryview, config: LogConfig, now_ms: int) -> bytes | memoryview:
    """Return the one batch in `records` after all checks that need no state of the partition, with the
    records' largest timestamp in its header. Raises as `check_batch` does.
    """
    batch = check_batch(records, config, now_ms, is_client=True)
    if batch.crc != CORRECTED:
        return records
    head = stamped_head(batch, records, batch.attributes, batch.max_timestamp)
    return head + bytes(records[PATCHED.size : batch.size_bytes])


def recompressed(records: memoryview, compression: Compression, config: LogConfig, now_ms: int) -> bytes:
    """Return the one batch in `records` in another codec (Kafka's `compression.type`). The records keep their
    bytes, and with them offsets and timestamps; all of the header stays but codec, size and CRC. Needs no
    state of the partition, so that a thread can call it.

    Checks the batch with its records as an append does, because the new CRC would hide damage;
    `segment.bytes` concerns only the stored batch. Raises CorruptRecord, InvalidRecord, RecordTooLarge,
    InvalidTimestamp, UnsupportedCompressionType. Source: Kafka's
    `LogValidator.validateMessagesAndAssignOffsetsCompressed`.
    """
    as_sent = replace(config, segment_bytes=_ANY_BYTES)
    batch = check_batch(records, as_sent, now_ms, is_client=True, record_check=DONE)
    plain = checked_plain(batch, records, as_sent, now_ms)
    if compression.codec and not batch.compression:
        check_record_sizes(plain, batch.record_count, config.max_record_bytes)
    payload = compress(compression.codec, plain, compression.level)
    del plain
    size_bytes = HEADER_BYTES + len(payload)
    if size_bytes > config.max_message_bytes:
        raise RecordTooLarge(
            f"The batch of {batch.size_bytes} bytes has {size_bytes} bytes in the codec that the topic "
            f"stores ({_NAMES[compression.codec]}); max.message.bytes is {config.max_message_bytes}."
        )
    attributes = batch.attributes & ~COMPRESSION_MASK | compression.codec
    return sealed_batch(
        batch, attributes, batch.base_timestamp, batch.max_timestamp, batch.record_count, payload
    )
