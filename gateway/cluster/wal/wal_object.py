"""Encodes one object of a session's write-ahead log (WAL): batches of many partitions, or the final seal.

    head   magic "SQWL" | version int16 | kind int16
    data   bytes of segment files and whole side files, one span per row, in the order of the rows
    index  kind 0, WAL object: rows int32 | row …
           kind 1, seal: by int32 | reason int16 bytes, UTF-8
    footer CRC-32C of the rest of the footer, uint32 | node_id int32 | session int64 | seq int64
           | nonce 16 bytes | data_bytes int64 | index_bytes int32 | CRC-32C of the index, uint32
           | version int16 | kind int16 | magic "SQWL"

    data row  type int8 0 | topic_id 16 bytes | partition int32 | leader_epoch int32 | first_offset int64
              | end_offset int64 | segment_base int64 | position int64 | length int32
              | CRC-32C of the data, uint32
    file row  type int8 2 | topic_id 16 bytes | partition int32 | leader_epoch int32 | name bytes int8
              | length int32 | CRC-32C of the data, uint32 | name, ASCII
              type int8 1 in version 1: the same without the leader epoch, which is 0

The footer has a fixed size and the index lies before it, so a reader gets the index with one read of the
object's end. A checksum protects each part by itself: the footer, the index, and through the index the data
of each row. The head repeats fields of the footer.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from seqgate.gateway.cluster.objects.objects import Buffer
from seqgate.log import IncompatibleFormat
from seqgate.seq_validator.checksum import crc32c

VERSION: Final = 2
NONCE_BYTES: Final = 16
MAX_REASON_BYTES: Final = 1_000
"""The most bytes of the reason of a seal; the rest is cut off."""
_MAGIC: Final = b"SQWL"
_DATA: Final = 0
_SEAL: Final = 1
_HEAD: Final = struct.Struct(">4shh")
_FOOTER: Final = struct.Struct(">Iiqq16sqiIhh4s")
FOOTER_BYTES: Final = _FOOTER.size
_CRC_BYTES: Final = 4
_COUNT: Final = struct.Struct(">i")
_DATA_ROW: Final = struct.Struct(">b16siiqqqqiI")
_FILE_ROW: Final = struct.Struct(">b16siibiI")
_FILE_ROW_OF_VERSION_1: Final = struct.Struct(">b16sibiI")
_DATA_ROW_TYPE: Final = 0
_FILE_ROW_TYPE: Final = 2
_FILE_ROW_TYPE_OF_VERSION_1: Final = 1
_FILE_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,126}")
"""The names of side files: they stay in the directory of their partition."""
_SEAL_HEAD: Final = struct.Struct(">ih")
END_BYTES: Final = _SEAL_HEAD.size + MAX_REASON_BYTES + FOOTER_BYTES
"""The bytes at the end of an object with which `identify` and a whole seal can be read."""


def check_version(key: str, version: int, newest: int) -> None:
    """Check that this release can read an object of this version. Raises IncompatibleFormat."""
    if version > newest:
        raise IncompatibleFormat(
            f"{key} has version {version}; this program reads version {newest}. "
            "Run the release that wrote it."
        )


class CorruptWalObject(Exception):
    """The bytes are no sound object of a write-ahead log. The message names the object and the fault."""


class DataRow(NamedTuple):
    """Bytes of one segment file: whole record batches of one partition."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    first_offset: int
    end_offset: int
    segment_base: int
    """The base offset of the segment, which names its file."""
    position: int
    """The place of the first byte in the segment file."""
    length: int


class FileRow(NamedTuple):
    """The new content of a partition's side file, such as its log start offset or producer names."""

    topic_id: UUID
    partition: int
    name: str
    """The name of the file in the directory of the partition."""
    length: int
    leader_epoch: int = 0


WalRow = DataRow | FileRow


class WalObject(NamedTuple):
    """One object of a session: the rows of one flush round, and their data."""

    node_id: int
    session: int
    seq: int
    """The place of the object in the session's log, from 0 on, without gaps."""
    nonce: bytes
    """Random bytes of the process that runs the session; they show which objects are its own."""
    rows: Sequence[WalRow]
    data: Sequence[RowData]
    """The data of each row, in the order of the rows."""


class Seal(NamedTuple):
    """The object that ends the log of a session: no object at or after `seq` belongs to the log."""

    node_id: int
    session: int
    seq: int
    nonce: bytes
    """The session's own nonce in a seal of a clean stop, random bytes of the taker in any other."""
    by: int
    """The node id of the gateway that sealed the session."""
    reason: str


class PlacedRow(NamedTuple):
    """A row, and the position of its bytes in the object."""

    row: WalRow
    start: int
    """The place of the first byte in the object."""
    crc: int


class Index(NamedTuple):
    """The description of a WAL object that is at its end (footer and index), without its data."""

    node_id: int
    session: int
    seq: int
    nonce: bytes
    rows: list[PlacedRow]
    size_bytes: int


class WalObjectIdentity(NamedTuple):
    node_id: int
    session: int
    seq: int
    nonce: bytes
    is_seal: bool


class _Footer(NamedTuple):
    crc: int
    node_id: int
    session: int
    seq: int
    nonce: bytes
    data_bytes: int
    index_bytes: int
    index_crc: int
    version: int
    kind: int
    magic: bytes

    @property
    def size_bytes(self) -> int:
        return _HEAD.size + self.data_bytes + self.index_bytes + FOOTER_BYTES


def encode(wal_object: WalObject) -> list[Buffer]:
    """Return the object as buffers without a copy. Raises ValueError for rows that no decoder accepts."""
    node_id, session, seq, nonce, rows, data = wal_object
    index = bytearray(_COUNT.pack(len(rows)))
    buffers: list[Buffer] = [_HEAD.pack(_MAGIC, VERSION, _DATA)]
    data_bytes = 0
    if len(data) != len(rows):
        raise ValueError(f"WAL object {seq} has {len(rows)} rows, and data for {len(data)}")
    for row, content in zip(rows, data, strict=True):
        wrong = _fault_of(row)
        if wrong is not None:
            raise ValueError(f"a row of WAL object {seq} can't be stored: {wrong}")
        pieces = content if isinstance(content, tuple) else (content,)
        found = sum(map(len, pieces))
        if found != row.length:
            raise ValueError(f"a row of WAL object {seq} is {row.length} bytes long, and has {found} bytes")
        index += _encode_row(row, crc_of(pieces))
        buffers += pieces
        data_bytes += row.length
    buffers.append(bytes(index) + _footer(node_id, session, seq, nonce, data_bytes, index, _DATA))
    return buffers


def _encode_row(row: WalRow, crc: int) -> bytes:
    if isinstance(row, DataRow):
        return _DATA_ROW.pack(_DATA_ROW_TYPE, row.topic_id.bytes, *row[1:], crc)
    name = row.name.encode("ascii")
    numbers = row.partition, row.leader_epoch, len(name), row.length, crc
    return _FILE_ROW.pack(_FILE_ROW_TYPE, row.topic_id.bytes, *numbers) + name


def encode_seal(seal: Seal) -> bytes:
    """Return the content of the seal. A reason that is too long is cut."""
    reason = seal.reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore").encode()
    index = _SEAL_HEAD.pack(seal.by, len(reason)) + reason
    footer = _footer(seal.node_id, seal.session, seal.seq, seal.nonce, 0, index, _SEAL)
    return _HEAD.pack(_MAGIC, VERSION, _SEAL) + index + footer


def decode(content: bytes, key: str) -> WalObject | Seal:
    """Return the whole object, or the seal; the data are views of `content`. All checksums are checked.
    Raises CorruptWalObject, IncompatibleFormat; `key` is for the messages.
    """
    footer = _checked_footer(content, key)
    if footer.size_bytes != len(content):
        raise CorruptWalObject(
            f"{key} is damaged: the object has {len(content)} bytes, its footer says {footer.size_bytes}."
        )
    if content[: _HEAD.size] != _HEAD.pack(_MAGIC, footer.version, footer.kind):
        raise CorruptWalObject(f"{key} is damaged: its first {_HEAD.size} bytes do not fit its footer.")
    index = decode_index(content, key)
    if isinstance(index, Seal):
        return index
    view = memoryview(content)
    data = [
        checked_data(placed, view[placed.start : placed.start + placed.row.length], key)
        for placed in index.rows
    ]
    rows = [placed.row for placed in index.rows]
    return WalObject(footer.node_id, footer.session, footer.seq, footer.nonce, rows, data)


def identify(end: bytes, key: str) -> WalObjectIdentity:
    """Return whose object it is, by its last FOOTER_BYTES. Raises CorruptWalObject, IncompatibleFormat."""
    footer = _checked_footer(end, key)
    return WalObjectIdentity(footer.node_id, footer.session, footer.seq, footer.nonce, footer.kind == _SEAL)


def index_bytes(end: bytes, key: str) -> int:
    """Return how many bytes at the end of the object `decode_index` needs. `end` has the last FOOTER_BYTES or
    more. Raises CorruptWalObject, IncompatibleFormat.
    """
    return _checked_footer(end, key).index_bytes + FOOTER_BYTES


def decode_index(end: bytes, key: str) -> Index | Seal:
    """Return the rows of an object with their places, or the seal; `end` has the last `index_bytes` of the
    object or more. Raises CorruptWalObject, IncompatibleFormat.
    """
    footer = _checked_footer(end, key)
    begin = len(end) - FOOTER_BYTES - footer.index_bytes
    if begin < 0:
        needed = footer.index_bytes + FOOTER_BYTES
        raise CorruptWalObject(
            f"{key} is cut short: its index needs the last {needed} bytes, and there are {len(end)}."
        )
    index = end[begin : len(end) - FOOTER_BYTES]
    if crc32c(index) != footer.index_crc:
        raise CorruptWalObject(f"{key} is damaged: the CRC-32C of its index does not fit.")
    if footer.kind == _SEAL:
        return _decode_seal(index, footer, key)
    rows = _decode_rows(index, key)
    data_bytes = sum(placed.row.length for placed in rows)
    if data_bytes != footer.data_bytes:
        raise CorruptWalObject(
            f"{key} is damaged: its rows have {data_bytes} bytes, its footer says {footer.data_bytes}."
        )
    return Index(footer.node_id, footer.session, footer.seq, footer.nonce, rows, footer.size_bytes)


def checked_data(placed: PlacedRow, data: memoryview, key: str) -> memoryview:
    """Return the data of a row. Raises CorruptWalObject when it is not what was written."""
    if len(data) != placed.row.length or crc32c(data) != placed.crc:
        row = placed.row
        held = (
            f"they hold the offsets {row.first_offset} to {row.end_offset - 1}"
            if isinstance(row, DataRow)
            else f"they hold the file {row.name}"
        )
        raise CorruptWalObject(
            f"{key} is damaged: the CRC-32C of the {row.length} bytes at {placed.start} does not fit; {held} "
            f"of partition {row.partition} of the topic {row.topic_id}."
        )
    return data


def _footer(
    node_id: int, session: int, seq: int, nonce: bytes, data_bytes: int, index: Buffer, kind: int
) -> bytes:
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"the nonce of a session has {NONCE_BYTES} bytes, not {len(nonce)}")
    if node_id < 0 or session < 0 or seq < 0:
        raise ValueError(f"node id {node_id}, session {session} and seq {seq} must not be negative")
    fields = (node_id, session, seq, nonce, data_bytes, len(index), crc32c(index), VERSION, kind, _MAGIC)
    return _FOOTER.pack(crc32c(_FOOTER.pack(0, *fields)[_CRC_BYTES:]), *fields)


def _checked_footer(end: bytes, key: str) -> _Footer:
    if len(end) < FOOTER_BYTES:
        raise CorruptWalObject(f"{key} is cut short: it has {len(end)} bytes, and its footer {FOOTER_BYTES}.")
    last = end[-FOOTER_BYTES:]
    footer = _Footer(*_FOOTER.unpack(last))
    if footer.magic != _MAGIC:
        raise CorruptWalObject(
            f"{key} is no object of a write-ahead log, or cut short: its magic is missing."
        )
    check_version(key, footer.version, VERSION)
    if footer.crc != crc32c(last[_CRC_BYTES:]):
        raise CorruptWalObject(f"{key} is damaged: the CRC-32C of its footer does not fit.")
    sizes = (footer.node_id, footer.session, footer.seq, footer.data_bytes, footer.index_bytes)
    if footer.version < 1 or footer.kind not in {_DATA, _SEAL} or min(sizes) < 0:
        raise CorruptWalObject(f"{key} is damaged: its footer has impossible values: {footer[1:-1]}.")
    return footer


def _decode_seal(index: bytes, footer: _Footer, key: str) -> Seal:
    try:
        by, reason_bytes = _SEAL_HEAD.unpack_from(index)
        reason = index[_SEAL_HEAD.size :].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptWalObject(f"{key} is damaged: the reason of the seal can't be read: {error}.") from error
    if reason_bytes != len(index) - _SEAL_HEAD.size or footer.data_bytes:
        raise CorruptWalObject(f"{key} is damaged: the sizes in the seal do not fit.")
    return Seal(footer.node_id, footer.session, footer.seq, footer.nonce, by, reason)


def _decode_rows(index: bytes, key: str) -> list[PlacedRow]:
    rows: list[PlacedRow] = []
    start = _HEAD.size
    position = _COUNT.size
    try:
        (count,) = _COUNT.unpack_from(index)
        while position < len(index):
            row: WalRow
            if index[position] == _DATA_ROW_TYPE:
                _, topic_id, *numbers, crc = _DATA_ROW.unpack_from(index, position)
                row = DataRow(UUID(bytes=topic_id), *numbers)
                position += _DATA_ROW.size
            elif index[position] in {_FILE_ROW_TYPE, _FILE_ROW_TYPE_OF_VERSION_1}:
                row, crc, position = _decode_file_row(index, position)
                if position > len(index):
                    raise CorruptWalObject(f"{key} is damaged: its index ends amid the name of a file.")
            else:
                raise CorruptWalObject(f"{key} is damaged: a row has the unknown type {index[position]}.")
            wrong = _fault_of(row)
            if wrong is not None:
                raise CorruptWalObject(f"{key} is damaged: {wrong}.")
            rows.append(PlacedRow(row, start, crc))
            start += row.length
    except struct.error as error:
        raise CorruptWalObject(f"{key} is damaged: its index ends amid a row: {error}.") from error
    if count != len(rows):
        raise CorruptWalObject(f"{key} is damaged: its index has {len(rows)} rows and says {count}.")
    return rows


def _decode_file_row(index: bytes, position: int) -> tuple[FileRow, int, int]:
    """Return the row at this position, its data's CRC-32C, and the next position. Raises struct.error."""
    if index[position] == _FILE_ROW_TYPE:
        _, topic_id, partition, epoch, name_bytes, length, crc = _FILE_ROW.unpack_from(index, position)
        start = position + _FILE_ROW.size
    else:
        epoch = 0
        _, topic_id, partition, name_bytes, length, crc = _FILE_ROW_OF_VERSION_1.unpack_from(index, position)
        start = position + _FILE_ROW_OF_VERSION_1.size
    end = start + max(name_bytes, 0)
    name = bytes(index[start:end]).decode("ascii", "replace")
    return FileRow(UUID(bytes=topic_id), partition, name, length, epoch), crc, end


def _fault_of(row: WalRow) -> str | None:
    if isinstance(row, FileRow):
        numbers = min(row.partition, row.length, row.leader_epoch)
        is_possible = numbers >= 0 and _FILE_NAME.fullmatch(row.name) is not None
    else:
        is_possible = (
            row.partition >= 0
            and row.leader_epoch >= 0
            and 0 <= row.segment_base <= row.first_offset < row.end_offset
            and row.position >= 0
            and row.length > 0
        )
    return None if is_possible else f"{row} has impossible values"


# The data of one row of a WAL object: one buffer, or several that follow each other.

RowData = Buffer | tuple[Buffer, ...]


def in_one_piece(data: RowData) -> Buffer:
    return b"".join(data) if isinstance(data, tuple) else data


def crc_of(pieces: tuple[Buffer, ...]) -> int:
    crc = 0
    for piece in pieces:
        crc = crc32c(piece, crc)
    return crc


# The keys of a session's objects in the bucket.

WAL_PREFIX: Final = "wal/"


def object_key(node_id: int, session: int, seq: int) -> str:
    return f"{WAL_PREFIX}{node_id}/{session}/{seq:020}"


def boundary_key(node_id: int, session: int) -> str:
    """Return the key of the session's boundary: the objects below the boundary may be deleted."""
    return f"{WAL_PREFIX}{node_id}/{session}/boundary"


def registration_key(session: int) -> str:
    return f"meta/{session:020}"


SESSIONS_BOUNDARY_KEY: Final = "meta/boundary"
"""The key of the boundary of sessions: lower ones are sealed, and no object of their logs is needed."""

SNAPSHOT_PREFIX: Final = "meta/snapshot/"
SHORTENED_KEY: Final = "meta/shortened"
"""The key of the metadata log's boundary: objects below may be deleted, as snapshots have what they say."""


def snapshot_key(seq: int) -> str:
    """Return the key of the snapshot of the metadata before object `seq` of `meta/`."""
    return f"{SNAPSHOT_PREFIX}{seq:020}"
