"""Small text files in Kafka's checkpoint formats, each beginning with a version line.

`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`: version 0, count, then `topic partition
offset` lines. `leader-epoch-checkpoint`: version 0, count, then `leader_epoch start_offset` lines.
`partition.metadata`: version 0, topic id, and in a log of a topic that deduplicates `deduplication_start: 0`.
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Iterable, Mapping
from typing import Final
from zlib import crc32

from seqgate.log.errors import IncompatibleFormat
from seqgate.log.files.storage import Storage

_logger = logging.getLogger(__name__)

_VERSION: Final = 0
_NAMES_FROM_START: Final = "deduplication_start: 0"


class CorruptCheckpoint(Exception):
    """The file is damaged, so its content can't be trusted."""


def encode_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return _encode(lines)


def decode_offsets(content: bytes, name: str) -> dict[tuple[str, int], int]:
    """Return offsets by (topic, partition). Raises CorruptCheckpoint, IncompatibleFormat, with `name`."""
    try:
        rows = [line.split(" ") for line in _decode(content, name)]
        return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except ValueError as error:
        raise CorruptCheckpoint(f"{name} is damaged: {error}") from error


def decode_offset(content: bytes, name: str) -> int:
    """Return the offset in the checkpoint of one partition; 0 without one. Raises as `decode_offsets`."""
    return max(decode_offsets(content, name).values(), default=0)


def encode_leader_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    return _encode([f"{leader_epoch} {start_offset}" for leader_epoch, start_offset in epochs])


def decode_leader_epochs(content: bytes, name: str) -> list[tuple[int, int]]:
    """Return (leader_epoch, start_offset) pairs. Raises CorruptCheckpoint, IncompatibleFormat."""
    try:
        rows = [line.split(" ") for line in _decode(content, name)]
        return [(int(leader_epoch), int(start_offset)) for leader_epoch, start_offset in rows]
    except ValueError as error:
        raise CorruptCheckpoint(f"{name} is damaged: {error}") from error


def encode_partition_metadata(topic_id: uuid.UUID, *, names_from_start: bool = False) -> bytes:
    """Return `partition.metadata`: the id in Kafka's base64 form, and lines that Kafka ignores.
    `names_from_start`: producer names are tracked from offset 0 on, as the topic deduplicated then.
    """
    text = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    names = f"{_NAMES_FROM_START}\n" if names_from_start else ""
    return f"version: 0\ntopic_id: {text}\n{names}checksum: {crc32(topic_id.bytes)}".encode()


def tracks_names_from_start(content: bytes) -> bool:
    """Return whether the content says, or may have said before a cut, that names are tracked from 0 on.

    Whole files end with a checksum. Old releases wrote two lines and no checksum.
    """
    lines = content.decode(errors="replace").splitlines()
    is_cut = len(lines) > 2 and not lines[-1].startswith("checksum: ")
    return _NAMES_FROM_START in lines or is_cut


def decode_partition_metadata(content: bytes, name: str) -> uuid.UUID:
    """Return the topic id. Raises CorruptCheckpoint, IncompatibleFormat."""
    try:
        fields = dict(line.split(": ", 1) for line in content.decode().splitlines() if line)
        version = int(fields["version"])
        if version > _VERSION:
            raise IncompatibleFormat(f"{name} has version {version}; this program reads version {_VERSION}.")
        topic_id = uuid.UUID(bytes=base64.urlsafe_b64decode(fields["topic_id"] + "=="))
        if int(fields.get("checksum", crc32(topic_id.bytes))) != crc32(topic_id.bytes):
            raise ValueError("its checksum is not that of the topic id")  # noqa: TRY301 - handled below
    except (ValueError, KeyError) as error:
        raise CorruptCheckpoint(f"{name} is damaged: {error}") from error
    return topic_id


def check_checkpoint(content: bytes, name: str) -> None:
    """Check that this release reads a checkpoint's version; damage passes. Raises IncompatibleFormat."""
    try:
        _decode(content, name)
    except (CorruptCheckpoint, ValueError):
        return


def _encode(lines: list[str]) -> bytes:
    return "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode()


def _decode(content: bytes, name: str) -> list[str]:
    text = content.decode()
    lines = text.splitlines()
    # A last line without a newline may have lost digits.
    if len(lines) < 2 or not text.endswith("\n"):
        raise CorruptCheckpoint(f"{name} is cut short.")
    version = int(lines[0])
    if version > _VERSION:
        raise IncompatibleFormat(f"{name} has version {version}; this program reads version {_VERSION}.")
    if len(lines) - 2 != int(lines[1]):
        raise CorruptCheckpoint(f"{name} says {lines[1]} lines and has {len(lines) - 2}.")
    return lines[2:]


CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
"""The file of a data directory with the offset up to which each partition was compacted, in Kafka's format.
Losing it only costs time: a partition without an entry is cleaned again. Source: Kafka's `LogCleanerManager`.
"""


def read_cleaned_offsets(storage: Storage, root: str) -> dict[tuple[str, int], int]:
    """Return the offsets by topic and partition; none without a readable file. Raises IncompatibleFormat."""
    path = f"{root}/{CLEANER_OFFSETS}"
    if not storage.exists(path):
        return {}
    try:
        return decode_offsets(storage.read_file(path), path)
    except (CorruptCheckpoint, OSError) as error:
        _logger.warning("%s: every compacted topic counts as dirty", error)
        return {}


def write_cleaned_offsets(storage: Storage, root: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write the file without a flush; log an error."""
    path = f"{root}/{CLEANER_OFFSETS}"
    try:
        storage.replace(path, encode_offsets(offsets))
    except OSError as error:
        _logger.warning("%s can't be written: %s", path, error)
