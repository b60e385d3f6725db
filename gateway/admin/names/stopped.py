"""The producer names in a data directory that no gateway has open, read without a lock and without a change.

The names are those of the newest snapshots: all names after a clean stop, older ones after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.admin.names.live import name_row
from gateway.admin.names.messages import NamePage, NamesRequest
from gateway.admin.request import ControlError
from gateway.admin.stopped_gateway import StoppedGateway
from gateway.admin.stored import metadata_directory
from gateway.admin.system_errors import in_words
from log import Storage, parse_partition_directory
from log.stopped import newest_names
from seq_validator.names import NameState, WrittenName

_ANY_LENGTH: Final = 2**63 - 1


def list_names(gateway: StoppedGateway, request: NamesRequest) -> NamePage:
    """Return all names asked for, by topic, partition and name. Raises ControlError."""
    metadata_directory(gateway.data_dir)
    rows = []
    for place, directory in _partitions(gateway.data_dir, request):
        states = sorted(map(_state, _written(directory)))
        rows += [
            name_row(*place, state, gateway.now_ms) for state in states if request.name in {None, state.name}
        ]
    return NamePage(rows, untold=[], counters=None, next=None)


def _partitions(data_dir: Path, request: NamesRequest) -> Iterator[tuple[tuple[str, int], Path]]:
    found = ((parse_partition_directory(path.name), path) for path in data_dir.iterdir() if path.is_dir())
    places = {place: path for place, path in found if place is not None}
    if request.topic is not None and not any(topic == request.topic for topic, _ in places):
        raise ControlError(f"there is no topic {request.topic}")
    if request.partition is not None and (request.topic, request.partition) not in places:
        raise ControlError(
            f"topic {request.topic} has no partition {request.partition}, or it was never written to"
        )
    for (topic, index), path in sorted(places.items()):
        if request.topic in {None, topic} and request.partition in {None, index}:
            yield (topic, index), path


def _written(directory: Path) -> list[WrittenName]:
    try:
        newest = newest_names(Storage(), str(directory), _ANY_LENGTH)
    except OSError as error:
        raise ControlError(f"{directory} can't be read: {in_words(error)}") from error
    return [] if newest is None else newest.names


def _state(written: WrittenName) -> NameState:
    name, sequence_id, epoch, offset, last_active_ms, held = written
    return NameState(name, sequence_id, sequence_id, epoch, offset, last_active_ms, bool(held))
