"""Finds the records in the answer to a fetch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from kio.serial import entity_reader

from gateway.protocol.messages import is_flexible, response_type

_FETCH: Final = 1
_HEADER_BYTES: Final = 8


def fetched_records(frame: bytes, version: int) -> Iterator[tuple[str | UUID, int, int]]:
    """Yield the topic, by name or by id, and the start and end of the records of each partition that has some."""
    position = _HEADER_BYTES + (1 if is_flexible(_FETCH, version) else 0)
    answer, _ = entity_reader(response_type(_FETCH, version))(frame, position)
    for topic in answer.responses:
        for partition in topic.partitions:
            records = partition.records
            if records:
                position = frame.index(records, position)
                yield getattr(topic, "topic", None) or topic.topic_id, position, position + len(records)
                position += len(records)
