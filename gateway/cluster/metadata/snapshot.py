"""Encodes a metadata snapshot in `meta/snapshot/`: the image before one object of `meta/`, as batches.

    magic "SQMS" | CRC-32C of everything behind it, uint32 | version int16 | head_bytes int32 | head | record
    batches, magic 2

The head is JSON: `seq`, `next_offset`, `cluster_id`, `kept_end`, and `sessions` with the fields of their
registrations. The offsets of the batches have no gaps and end at `next_offset`, so the batches and the
changes from `seq` on are together a metadata log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from seqgate.gateway.cluster.metadata.change import is_whole, placed_batch
from seqgate.gateway.cluster.wal.sessions import RegisteredSession, Snapshot
from seqgate.gateway.cluster.wal.wal_object import NONCE_BYTES, check_version, snapshot_key
from seqgate.log import CorruptRecord
from seqgate.log.format.record_batch import parse_header
from seqgate.log.format.records import NewRecord, build_batch
from seqgate.seq_validator.checksum import crc32c

MAGIC: Final = b"SQMS"
VERSION: Final = 1
BATCH_BYTES: Final = 1024 * 1024
"""The size of a batch from which the next record begins another one."""
_HEAD: Final = struct.Struct(">4sI")
_FIELDS: Final = struct.Struct(">hi")


class CorruptMetadataSnapshot(Exception):
    """The bytes are no sound snapshot of the metadata. The message names the object and what does not fit."""


class _StoredSession(msgspec.Struct):
    session: int
    node_id: int
    nonce: str
    cluster_version: int
    registered_ms: int
    host: str
    release: str


class _StoredHead(msgspec.Struct):
    seq: int
    next_offset: int
    cluster_id: str
    kept_end: int | None
    sessions: list[_StoredSession]


def image_batches(values: Iterable[bytes], next_offset: int, now_ms: int) -> tuple[bytes, ...]:
    """Return these values as batches that end at `next_offset`. Raises ValueError for too many, or none."""
    groups = list(_grouped(values))
    offset = next_offset - sum(len(group) for group in groups)
    if offset < 0 or not groups:
        raise ValueError(
            f"a snapshot of the metadata must have 1 to {next_offset} records, not {next_offset - offset}"
        )
    batches = []
    for group in groups:
        batch = build_batch([NewRecord(value, timestamp=now_ms) for value in group])
        batches.append(placed_batch(batch, offset))
        offset += len(group)
    return tuple(batches)


def _grouped(values: Iterable[bytes]) -> Iterator[Sequence[bytes]]:
    group: list[bytes] = []
    size = 0
    for value in values:
        group.append(value)
        size += len(value)
        if size >= BATCH_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the content of the object. Raises ValueError for values that no decoder would accept."""
    wrong = _fault_of(snapshot)
    if wrong is not None:
        raise ValueError(f"the snapshot {snapshot.seq} of the metadata can't be stored: {wrong}")
    seq, next_offset, cluster_id, kept_end, registered, batches = snapshot
    sessions = [
        _StoredSession(number, node_id, nonce.hex(), version, registered_ms, host, release)
        for number, node_id, nonce, _, version, registered_ms, host, release in registered
    ]
    head = msgspec.json.encode(_StoredHead(seq, next_offset, cluster_id, kept_end, sessions))
    body = b"".join((_FIELDS.pack(VERSION, len(head)), head, *batches))
    return _HEAD.pack(MAGIC, crc32c(body)) + body


def decode_snapshot(content: bytes, seq: int) -> Snapshot:
    """Return the snapshot `seq`. Raises CorruptSnapshot, IncompatibleFormat."""
    key = snapshot_key(seq)
    begin = _HEAD.size + _FIELDS.size
    if len(content) < begin or not content.startswith(MAGIC):
        raise CorruptMetadataSnapshot(
            f"{key} is no snapshot of the metadata, or cut short: it has {len(content)} bytes."
        )
    _, crc = _HEAD.unpack_from(content)
    version, head_bytes = _FIELDS.unpack_from(content, _HEAD.size)
    check_version(key, version, VERSION)
    if crc32c(memoryview(content)[_HEAD.size :]) != crc:
        raise CorruptMetadataSnapshot(f"{key} is damaged: its CRC-32C does not fit.")
    if version < 1 or not 0 <= head_bytes <= len(content) - begin:
        raise CorruptMetadataSnapshot(f"{key} is damaged: version {version}, a head of {head_bytes} bytes.")
    try:
        head = msgspec.json.decode(content[begin : begin + head_bytes], type=_StoredHead)
        sessions = tuple(
            RegisteredSession(session, node_id, bytes.fromhex(nonce), head.cluster_id, *others)
            for session, node_id, nonce, *others in map(msgspec.structs.astuple, head.sessions)
        )
        batches = tuple(_batches(content, begin + head_bytes))
    except (msgspec.DecodeError, ValueError, CorruptRecord) as error:
        raise CorruptMetadataSnapshot(f"{key} is damaged: {error}.") from error
    snapshot = Snapshot(head.seq, head.next_offset, head.cluster_id, head.kept_end, sessions, batches)
    if snapshot.seq != seq:
        raise CorruptMetadataSnapshot(f"{key} is an object of another place: snapshot {snapshot.seq}.")
    wrong = _fault_of(snapshot)
    if wrong is not None:
        raise CorruptMetadataSnapshot(f"{key} is damaged: {wrong}.")
    return snapshot


def _batches(content: bytes, position: int) -> Iterator[bytes]:
    """Yield the record batches from a position to the end. Raises CorruptRecord."""
    while position < len(content):
        header = parse_header(content, position)
        if not header.is_plausible or position + header.size_bytes > len(content):
            raise CorruptRecord(f"there is no whole record batch at the position {position}")
        yield content[position : position + header.size_bytes]
        position += header.size_bytes


def _fault_of(snapshot: Snapshot) -> str | None:
    seq, next_offset, _, kept_end, sessions, batches = snapshot
    numbers = [each.session for each in sessions]
    if numbers != sorted(set(numbers)) or not numbers or not 0 <= numbers[0] <= numbers[-1] < seq:
        return f"its sessions are {numbers}"
    if any(len(each.nonce) != NONCE_BYTES or each.node_id < 0 for each in sessions):
        return "a session has an impossible nonce or node id"
    if kept_end is not None and not 0 < kept_end <= seq:
        return f"the objects that stay end at {kept_end}"
    return _fault_of_batches(batches, next_offset)


def _fault_of_batches(batches: Sequence[bytes], next_offset: int) -> str | None:
    end_offset: int | None = None
    for batch in batches:
        try:
            header = parse_header(batch)
        except CorruptRecord as error:
            return f"a record batch is damaged: {error}"
        if not is_whole(header, batch):
            return f"the record batch at the offset {header.base_offset} is damaged"
        if header.base_offset < 0 or end_offset not in {None, header.base_offset}:
            return f"no record batch begins at the offset {end_offset}"
        end_offset = header.last_offset + 1
    return None if end_offset == next_offset else f"its records end at {end_offset}, not at {next_offset}"
