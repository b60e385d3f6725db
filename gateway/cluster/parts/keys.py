"""The keys of a partition's parts and of its manifest."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from uuid import UUID

PREFIX: Final = "parts/"
_MANIFEST: Final = re.compile(r"parts/([0-9a-f]{32})/(\d+)/manifest")
_PART: Final = re.compile(r"parts/([0-9a-f]{32})/(\d+)/((?:\d{20}|files)-[0-9a-f]{32})")


class PartitionKey(NamedTuple):
    """A partition, whatever its topic is called."""

    topic_id: UUID
    partition: int


def manifest_key(partition: PartitionKey) -> str:
    """Return the key of the partition's manifest."""
    return f"{PREFIX}{partition.topic_id.hex}/{partition.partition}/manifest"


def part_key(partition: PartitionKey, name: str) -> str:
    """Return the key of a part by its name in the manifest."""
    return f"{PREFIX}{partition.topic_id.hex}/{partition.partition}/{name}"


def part_name(segment_base: int, unique: str) -> str:
    """Return the name of a part; `unique` has 32 hexadecimal digits that no other part has."""
    return f"{segment_base:020}-{unique}"


def file_name(unique: str) -> str:
    """Return the name of the object of a large side file."""
    return f"files-{unique}"


def partition_of(key: str) -> tuple[PartitionKey, str | None] | None:
    """Return the partition to which an object belongs, and its name beside the manifest, or None for the manifest; None for any other key."""
    found = _MANIFEST.fullmatch(key) or _PART.fullmatch(key)
    if found is None:
        return None
    name = found[3] if found.re is _PART else None
    return PartitionKey(UUID(hex=found[1]), int(found[2])), name
