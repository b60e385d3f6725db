"""Encodes one change of the metadata, an object of `meta/`: a batch of `__cluster_metadata` in its place.

    magic "SQMC" | CRC-32C of everything behind it, uint32 | version int16 | kind int16 | node_id int32
    | session int64 | seq int64 | nonce 16 bytes | base_offset int64 | batch_bytes int32
    | the record batch, magic 2, with this base offset

    kind 0, a change    kind 1, a piece of a log that is being copied into the bucket, and more pieces follow

Who reads the metadata while the last change has kind 1 has not all of it, and must go on with the copy.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from seqgate.gateway.cluster.wal.sessions import CHANGE_MAGIC
from seqgate.gateway.cluster.wal.wal_object import NONCE_BYTES, check_version, registration_key
from seqgate.log import CorruptRecord
from seqgate.log.format.record_batch import BatchHeader, crc_matches, parse_header
from seqgate.seq_validator.checksum import crc32c

VERSION: Final = 1
CHANGE: Final = 0
PIECE: Final = 1
_HEAD: Final = struct.Struct(">4sI")
_FIELDS: Final = struct.Struct(">hhiqq16sqi")
_BASE_OFFSET: Final = struct.Struct(">q")


class CorruptChange(Exception):
    """The bytes are no sound change of the metadata. The message names the object and what does not fit."""


class StoredChange(NamedTuple):
    kind: int
    node_id: int
    session: int
    seq: int
    """The number of the object in `meta/`."""
    nonce: bytes
    base_offset: int
    batch: bytes

    @property
    def end_offset(self) -> int:
        return self.base_offset + parse_header(self.batch).last_offset_delta + 1


def placed_batch(batch: bytes, base_offset: int) -> bytes:
    """Return a record batch with another base offset, which its CRC does not cover."""
    return _BASE_OFFSET.pack(base_offset) + batch[_BASE_OFFSET.size :]


def encode_change(change: StoredChange) -> bytes:
    """Return the content of the object. Raises ValueError for values that no decoder would accept."""
    kind, node_id, session, seq, nonce, base_offset, batch = change
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"the nonce of a session has {NONCE_BYTES} bytes, not {len(nonce)}")
    wrong = _fault_of(change)
    if wrong is not None:
        raise ValueError(f"change {seq} of the metadata can't be stored: {wrong}")
    fields = _FIELDS.pack(VERSION, kind, node_id, session, seq, nonce, base_offset, len(batch))
    return _HEAD.pack(CHANGE_MAGIC, crc32c(batch, crc32c(fields))) + fields + batch


def decode_change(content: bytes, seq: int) -> StoredChange:
    """Return the change that is object `seq` of `meta/`. Raises CorruptChange, IncompatibleFormat."""
    key = registration_key(seq)
    begin = _HEAD.size + _FIELDS.size
    if len(content) < begin or not content.startswith(CHANGE_MAGIC):
        raise CorruptChange(f"{key} is no change of the metadata, or cut short: it has {len(content)} bytes.")
    _, crc = _HEAD.unpack_from(content)
    version, kind, node_id, session, stored_seq, nonce, base_offset, size = _FIELDS.unpack_from(
        content, _HEAD.size
    )
    check_version(key, version, VERSION)
    if crc32c(memoryview(content)[_HEAD.size :]) != crc:
        raise CorruptChange(f"{key} is damaged: its CRC-32C does not fit.")
    change = StoredChange(kind, node_id, session, stored_seq, nonce, base_offset, content[begin:])
    if stored_seq != seq:
        raise CorruptChange(f"{key} is an object of another place: change {stored_seq}.")
    wrong = f"its batch has {len(change.batch)} bytes" if size != len(change.batch) else _fault_of(change)
    if version < 1 or wrong is not None:
        raise CorruptChange(f"{key} is damaged: {wrong or f'version {version}'}.")
    return change


def _fault_of(change: StoredChange) -> str | None:
    if change.kind not in {CHANGE, PIECE}:
        return f"its kind is {change.kind}"
    if min(change.node_id, change.session, change.seq, change.base_offset) < 0:
        return f"it has negative numbers: {change[1:4]}, {change.base_offset}"
    try:
        header = parse_header(change.batch)
    except CorruptRecord as error:
        return f"its record batch is damaged: {error}"
    if not is_whole(header, change.batch) or header.base_offset != change.base_offset:
        return f"its record batch is damaged, or not at the offset {change.base_offset}"
    return None


def is_whole(header: BatchHeader, batch: bytes) -> bool:
    """Return whether a record batch has its size and its CRC."""
    return header.is_plausible and header.size_bytes == len(batch) and crc_matches(header, memoryview(batch))
