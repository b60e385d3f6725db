"""The content of a data directory that no gateway has open, read without a lock and without a change.

Reading a partition ends before its first torn batch, where a gateway would truncate the log at its start. A batch that was durable
and can't be read is damaged, and an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.admin.request import ControlError
from gateway.metadata.image import MetadataImage
from gateway.metadata.records import UnknownRecordError, decode_record
from gateway.metadata.topic_names import METADATA_TOPIC
from log import CorruptRecord, DirectoryLocked, IncompatibleFormat, LogError, Storage
from log.directory.damage_scan import durable_ends
from log.directory.directory_files import LOCK
from log.files.file_names import LOG_SUFFIX, parse_offset_name
from log.files.versions import META, read_properties
from log.format.record_batch import HEADER_BYTES, BatchHeader, crc_matches, parse_header
from log.format.records import iterate_records

_METADATA_DIRECTORY: Final = f"{METADATA_TOPIC}-0"


def metadata_directory(data_dir: Path, otherwise: str = "") -> Path:
    """Return the directory of the metadata log.

    Raises ControlError when `data_dir` is no data directory, or one of a later release. `otherwise` continues the error with
    what else the operator can name.
    """
    directory = data_dir / _METADATA_DIRECTORY
    if not directory.is_dir():
        raise ControlError(
            f"{data_dir} is no data directory of a gateway; name the right one with --data-dir{otherwise}"
        )
    meta = data_dir / META
    if meta.exists():
        try:
            read_properties(Storage(), str(meta))
        except (IncompatibleFormat, OSError) as error:
            raise ControlError(f"{data_dir} can't be used: {error}") from error
    return directory


@contextlib.contextmanager
def locked(storage: Storage, data_dir: Path) -> Iterator[None]:
    """Hold the lock of a data directory. Raises ControlError, also when a gateway holds the lock."""
    lock = str(data_dir / LOCK)
    try:
        storage.lock(lock)
    except DirectoryLocked as error:
        raise ControlError(
            f"{data_dir} is in use by a process that does not answer on its control socket: a gateway that starts or "
            "stops, or another seqgate command; try again"
        ) from error
    except OSError as error:
        raise ControlError(f"{data_dir} can't be locked: {error.strerror or error}") from error
    try:
        yield
    finally:
        storage.unlock(lock)


def read_image(directory: Path) -> MetadataImage:
    """Replay the metadata log in its directory. Raises ControlError."""
    image = MetadataImage()
    try:
        for _, batch in stored_batches(directory):
            for record in iterate_records(batch):
                image.replay(decode_record(record.value or b""))
    except (LogError, IncompatibleFormat, OSError, UnknownRecordError) as error:
        raise ControlError(f"the metadata in {directory} can't be read: {error}") from error
    return image


def stored_batches(directory: Path) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a partition, in order, up to the first torn one.

    Raises CorruptRecord for a damaged batch, LogError, IncompatibleFormat, OSError.
    """
    storage = Storage()
    durable_end = durable_ends(storage, str(directory.parent)).get(directory.name, 0)
    next_offset = 0
    for base_offset, path in _segments(storage, directory):
        next_offset = max(next_offset, base_offset)
        data = memoryview(storage.read_file(str(path)))
        position = 0
        while position + HEADER_BYTES <= len(data):
            header = parse_header(data, position)
            end = position + header.size_bytes
            if header.size_bytes < HEADER_BYTES or end > len(data) or not crc_matches(header, data, position):
                break
            yield header, data[position:end]
            position, next_offset = end, header.last_offset + 1
        if position != len(data):
            break
    if next_offset < durable_end:
        raise CorruptRecord(f"{directory.name} is damaged at offset {next_offset}")


def partition_directories(data_dir: Path, topic: str) -> list[Path]:
    """Return the directories of a topic's partitions, without those that are being deleted. Raises OSError."""
    return sorted(
        path
        for path in data_dir.glob(f"{topic}-*")
        if path.is_dir() and path.name.removeprefix(f"{topic}-").isdecimal()
    )


def _segments(storage: Storage, directory: Path) -> list[tuple[int, Path]]:
    """Return the base offset and log file of each segment, in order."""
    found = ((parse_offset_name(name), directory / name) for name in storage.list_files(str(directory)))
    return sorted(
        (parsed[0], path) for parsed, path in found if parsed is not None and parsed[1] == LOG_SUFFIX
    )
