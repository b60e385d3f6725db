"""Checks what the bucket holds: each object that a manifest names is there, and at rest little more than the
logs is left.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from seqgate.gateway.cluster.parts.manifest import (
    PREFIX,
    PartitionKey,
    decode_manifest,
    part_key,
    partition_of,
)
from seqgate.gateway.cluster.wal.sessions import decode_boundary
from seqgate.gateway.cluster.wal.wal_object import Seal, boundary_key, decode
from tests.support.simulated_objects import SimulatedBucket

MOST_SURPLUS: Final = 1.2
"""The most bytes of records in the bucket at rest, for each byte in the logs."""
SMALL_BYTES: Final = 16 << 10
"""Bytes that do not count: what clients and timers write while the bucket is compared."""
_WAL: Final = re.compile(r"wal/(\d+)/(\d+)/(\d{20})")


def surplus(bucket: SimulatedBucket, live: Mapping[PartitionKey, int]) -> list[str]:
    """Return what the bucket holds beyond the logs of the partitions, whose sizes `live` has."""
    breaches, named = [], set()
    stored_bytes = 0
    for key in bucket.keys(PREFIX):
        partition, name = partition_of(key) or (None, None)
        if partition is None or partition not in live:
            breaches.append(f"bucket: {key} is left of a partition that does not exist")
        elif name is None:
            manifest = decode_manifest(bucket.get(key), key)
            named |= {part_key(partition, each) for each in manifest.objects}
            stored_bytes += sum(segment.size_bytes for segment in manifest.segments)
    for key in bucket.keys(PREFIX):
        place = partition_of(key)
        if place is not None and place[0] in live and place[1] is not None and key not in named:
            breaches.append(f"bucket: no manifest names {key}")
    below, waiting_bytes = _write_ahead_logs(bucket)
    breaches += [f"bucket: {key} lies below the boundary of its log" for key in below]
    live_bytes = sum(live.values())
    if stored_bytes + waiting_bytes > MOST_SURPLUS * live_bytes + SMALL_BYTES:
        breaches.append(
            f"bucket: {stored_bytes} bytes of parts and {waiting_bytes} of write-ahead logs for {live_bytes} "
            "bytes of logs"
        )
    return breaches


def _write_ahead_logs(bucket: SimulatedBucket) -> tuple[list[str], int]:
    """Return the objects below the boundaries of their logs, and the bytes of records of the others."""
    below, size_bytes = [], 0
    for key in bucket.keys("wal/"):
        match = _WAL.fullmatch(key)
        if match is None:
            continue
        at = boundary_key(int(match[1]), int(match[2]))
        if at in bucket.objects and int(match[3]) < decode_boundary(bucket.get(at), at):
            below.append(key)
            continue
        found = decode(bucket.get(key), key)
        if not isinstance(found, Seal):
            size_bytes += sum(row.length for row in found.rows)
    return below, size_bytes


def missing_objects(bucket: SimulatedBucket) -> list[str]:
    """Return a breach for each object that a manifest names and the bucket lacks."""
    breaches = []
    for key in bucket.keys(PREFIX):
        place = partition_of(key)
        assert place is not None, key
        if place[1] is None:
            manifest = decode_manifest(bucket.get(key), key)
            breaches += [
                f"bucket: {key} names {name}, which is missing"
                for name in sorted(manifest.objects)
                if part_key(manifest.key, name) not in bucket.objects
            ]
    return breaches


def counts_of(bucket: SimulatedBucket) -> Counter[str]:
    """Return how many objects of each kind are there, or were deleted."""
    counts: Counter[str] = Counter()
    for key in bucket.objects:
        counts[f"bucket: {_kind(key)}"] += 1
    for key, _ in bucket.deleted:
        counts[f"deleted from the bucket: {_kind(key)}"] += 1
    return counts


def _kind(key: str) -> str:
    if key.startswith(PREFIX):
        return "manifests" if key.endswith("/manifest") else "parts and files"
    if key.startswith("wal/"):
        return "boundaries" if key.endswith("/boundary") else "write-ahead log"
    if key.startswith("meta/snapshot/"):
        return "snapshots"
    return "changes" if key.startswith("meta/0") else "others"
