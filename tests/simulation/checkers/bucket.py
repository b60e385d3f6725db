"""Checks what the bucket holds at the end: each object that a manifest names is there, and what no start needs is counted."""

from __future__ import annotations

from collections import Counter

from gateway.cluster.parts.keys import PREFIX, part_key, partition_of
from gateway.cluster.parts.manifest import decode_manifest
from tests.support.simulated_objects import SimulatedBucket


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
    return "others"
