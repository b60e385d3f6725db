"""Records per second from the end offsets of all partitions, for a cluster without a metrics listener."""

from __future__ import annotations

from typing import Final

from kafka.admin import OffsetSpec

from gateway.admin.remote.cluster import Cluster, led_partitions

MOST_PARTITIONS: Final = 5_000
"""Partitions whose end offsets are asked for; the records of further ones are not counted."""


def end_offsets(cluster: Cluster) -> dict[tuple[str, int], int]:
    """Return the log end offset of each partition. Raises ControlError or an error of kafka-python."""
    places = led_partitions(cluster, None, None)[:MOST_PARTITIONS]
    if not places:
        return {}
    found = cluster.admin.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    return {(place.topic, place.partition): int(found[place].offset) for place in found}


def new_records(before: dict[tuple[str, int], int], after: dict[tuple[str, int], int]) -> int:
    """Return the offsets that partitions have gained; a partition that is new counts with its next reading."""
    return sum(max(0, end - before[place]) for place, end in after.items() if place in before)
