"""The batch that a shard is about to write: records of several operations, as many as a batch can hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from gateway.coordinator.transactional import Pending
from gateway.runtime.partitions.partition import Partition
from log.format.records import Record, build_batch

Encode = Callable[[Any], tuple[bytes, bytes | None]]
"""Encodes the key and the value of a record. Raises ValueError if a string of the record is too long."""

_new_tuple = tuple.__new__
RECORD_OVERHEAD_BYTES: Final = 30
"""An upper bound of the bytes that a record takes in a batch, without its key and value."""
BATCH_OVERHEAD_BYTES: Final = 1024
"""An upper bound of the bytes that a batch takes, without its records."""


class OpenBatch:
    """Gathers encoded records and appends them to the log of a partition."""

    def __init__(self, partition: Partition, encode: Encode) -> None:
        self._partition = partition
        self._encode = encode
        self._records: list[Record] = []
        self._size_bytes = 0
        self._now_ms = 0

    def add(self, records: Sequence[Any], now_ms: int) -> None:
        """Add the records of one operation, in one batch if a batch can hold them: a crash then leaves all or none.

        Records of a transaction (`Pending`) are written at once, in batches of their own.
        Raises LogError, and ValueError before anything is added. After InvalidProducerEpoch nothing was written.
        """
        self._now_ms = now_ms
        for record in records:
            if isinstance(record, Pending):
                self._add_to_transactions(records)
                return
        self._gather(records, None)

    def _add_to_transactions(self, records: Sequence[Any]) -> None:
        for producer, same in groupby(records, _producer_of):
            if producer is None:
                self._gather(same, None)
            else:
                self.write()
                self._gather([record.record for record in same], producer)
                self.write(producer)

    def write(self, producer: tuple[int, int] | None = None) -> None:
        """Append the gathered records to the log, as a part of the producer's transaction if there is one. Raises
        LogError.
        """
        if not self._records:
            return
        records, self._records, self._size_bytes = self._records, [], 0
        if producer is None:
            self._partition.append(build_batch(records), self._now_ms)
            return
        producer_id, producer_epoch = producer
        batch = build_batch(
            records, producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True
        )
        self._partition.append(batch, self._now_ms, is_client=False)

    def _gather(self, records: Iterable[Any], producer: tuple[int, int] | None) -> None:
        """Gather the records; write each batch that is full. A record that no batch can hold is written alone, so that
        the log refuses it.
        """
        encode, now_ms = self._encode, self._now_ms
        gathered: list[Record] = []
        size_bytes = 0
        for record in records:
            key, value = encode(record)
            # the constructor of a NamedTuple takes three times as long, and this line runs for every record
            gathered.append(_new_tuple(Record, (0, now_ms, key, value, ())))
            size_bytes += _size(key, value)
        max_bytes = self._partition.log.config.max_message_bytes - BATCH_OVERHEAD_BYTES
        if self._size_bytes + size_bytes > max_bytes:
            self.write(producer)
        if size_bytes <= max_bytes:
            self._records += gathered
            self._size_bytes += size_bytes
        else:
            self._write_in_parts(gathered, max_bytes, producer)

    def _write_in_parts(
        self, records: Sequence[Record], max_bytes: int, producer: tuple[int, int] | None
    ) -> None:
        for record in records:
            size_bytes = _size(record.key, record.value)
            if self._size_bytes + size_bytes > max_bytes:
                self.write(producer)
            self._records.append(record)
            self._size_bytes += size_bytes
        if self._size_bytes > max_bytes:
            self.write(producer)


def size_of(encode: Encode, records: Iterable[Any]) -> int:
    """Return roughly how many bytes a batch of these records takes."""
    plain = (record.record if isinstance(record, Pending) else record for record in records)
    return sum(_size(*encode(record)) for record in plain)


def _size(key: bytes | None, value: bytes | None) -> int:
    return len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES


def _producer_of(record: Any) -> tuple[int, int] | None:
    """Return the producer in whose transaction a record must be written."""
    return (record.producer_id, record.producer_epoch) if isinstance(record, Pending) else None
