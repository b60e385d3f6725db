"""Batches as producers keep them until they are acknowledged, and as consumers decode them; independent of
the gateway's code.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

from tests.simulation.history import RecordName, TopicPartition
from tests.support import batches

TRANSACTIONAL = 0x10
CONTROL = 0x20
CODEC_MASK = 0x07
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
PRODUCER_POSITION, HEADER_BYTES = 43, 61


@dataclass(eq=False)
class ProducerBatch:
    """Unacknowledged records of one partition. `doubtful`: an attempt without an answer may have been stored."""

    partition: TopicPartition
    record_count: int
    created_at: float
    codec: str
    timestamp_ms: int
    keys: tuple[bytes | None, ...]
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False
    padding_bytes: int = 0
    """Zeros after each record's name, so that batches span many sectors."""
    names: tuple[RecordName, ...] = ()
    attempts: int = 0
    retry_at: float = 0.0
    sequence_was_reset: bool = False
    doubtful: bool = False
    in_request: bool = False
    was_next: bool = False
    """Whether all earlier batches were acknowledged when the last attempt was sent."""
    done: bool = False
    is_flipped: bool = False
    """Whether a byte of the last attempt was flipped on its way."""
    encoded: bytes = field(default=b"", repr=False)

    @property
    def last_sequence(self) -> int:
        return self.base_sequence + self.record_count - 1

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def acks(self) -> int:
        """Return acks: 1 for odd sequences, all for even ones. Both promise the same."""
        return 1 if self.base_sequence % 2 else -1

    def take_place(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.base_sequence = base_sequence
        self.encoded = b""

    def encode(self) -> bytes:
        """Encode the batch; every attempt with the same sequence has the same bytes."""
        if not self.encoded:
            records = tuple(
                batches.Record(name.encode() + bytes(self.padding_bytes), key)
                for name, key in zip(self.names, self.keys, strict=True)
            )
            attributes = TRANSACTIONAL if self.transactional else 0
            batch = batches.Batch(
                records, codec=self.codec, attributes=attributes, base_timestamp=self.timestamp_ms
            )
            self.encoded = batch.of(self.producer_id, self.producer_epoch, self.base_sequence).encode()
        return self.encoded

    def flipped(self, random: Random) -> bytes:
        """Return the encoded batch with one other bit in its records, as a network may deliver it.

        Outside of transactions the bit may also be in its producer id, epoch or sequence. The coordinator of
        a transaction is asked with these before the checksum is looked at, as in Kafka.
        """
        data = bytearray(self.encode())
        first = HEADER_BYTES if self.transactional else PRODUCER_POSITION
        data[random.randrange(first, len(data))] ^= 1 << random.randrange(8)
        return bytes(data)

    def halves(self) -> list[ProducerBatch]:
        """Split a batch of several records into two, which keep its sequences and count as not yet tried."""
        middle = self.record_count // 2
        return [
            replace(
                self,
                record_count=len(self.keys[part]),
                keys=self.keys[part],
                names=self.names[part],
                base_sequence=self.base_sequence + (part.start or 0),
                attempts=0,
                retry_at=0.0,
                sequence_was_reset=False,
                encoded=b"",
            )
            for part in (slice(middle), slice(middle, None))
        ]


@dataclass(frozen=True)
class DecodedBatch:
    """A batch as a consumer decodes it; `records` are (offset, key, value)."""

    last_offset: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    control: bool
    records: tuple[tuple[int, bytes | None, bytes | None], ...]
    leader_epoch: int = -1
    base_offset: int = -1
    headers: tuple[tuple[tuple[str, bytes | None], ...], ...] = ()
    """The headers of each record."""

    @property
    def is_abort(self) -> bool:
        """Whether a control batch aborts. The key of its record is version and type (0 abort, 1 commit).

        Compaction removes the record of an old marker; consumers, Kafka's too, then do not take the batch for
        an abort.
        """
        if not self.records:
            return False
        _, key, _ = self.records[0]
        assert key is not None
        _, kind = struct.unpack_from(">hh", key)
        return bool(kind == 0)


class Corrupt(Exception):
    """Bytes in a Fetch answer that no client can read."""


def decode(data: bytes) -> list[DecodedBatch]:
    """Decode and check the whole batches of a Fetch answer; a batch that is cut at the end is left out.

    Raises `Corrupt`.
    """
    views, _ = batches.read_batches(data)
    return [_decode_batch(view) for view in views]


def _decode_batch(view: batches.BatchView) -> DecodedBatch:
    if view.magic != 2:
        raise Corrupt(f"magic {view.magic} at {view.base_offset}")
    if not view.crc_is_right:
        raise Corrupt(f"wrong CRC at {view.base_offset}")
    payload = _decompress(view.attributes & CODEC_MASK, view.payload)
    try:
        found = list(_records(payload, view.base_offset, view.record_count))
    except (IndexError, struct.error) as error:
        raise Corrupt(f"records of the batch at {view.base_offset}: {error}") from None
    return DecodedBatch(
        view.base_offset + view.last_offset_delta,
        view.producer_id,
        view.producer_epoch,
        bool(view.attributes & TRANSACTIONAL),
        bool(view.attributes & CONTROL),
        tuple((offset, key, value) for offset, key, value, _ in found),
        view.partition_leader_epoch,
        view.base_offset,
        tuple(headers for *_, headers in found),
    )


def _decompress(codec: int, payload: bytes) -> bytes:
    try:
        return batches.decompress(codec, payload)
    except ValueError as error:
        raise Corrupt(str(error)) from None


def _varint(data: bytes, position: int) -> tuple[int, int]:
    shift = result = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7


def _sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _varint(data, position)
    if size < 0:
        return None, position
    return data[position : position + size], position + size


Headers = tuple[tuple[str, bytes | None], ...]


def _headers(payload: bytes, position: int) -> Headers:
    count, position = _varint(payload, position)
    headers = []
    for _ in range(count):
        name, position = _sized(payload, position)
        value, position = _sized(payload, position)
        headers.append(((name or b"").decode(), value))
    return tuple(headers)


def _records(
    payload: bytes, base_offset: int, count: int
) -> Iterator[tuple[int, bytes | None, bytes | None, Headers]]:
    position = 0
    for _ in range(count):
        size, position = _varint(payload, position)
        end = position + size
        _, at = _varint(payload, position + 1)
        offset_delta, at = _varint(payload, at)
        key, at = _sized(payload, at)
        value, at = _sized(payload, at)
        yield base_offset + offset_delta, key, value, _headers(payload, at)
        position = end
    if position != len(payload):
        raise Corrupt(f"{len(payload) - position} bytes left over in the batch at {base_offset}")
