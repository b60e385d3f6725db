"""Reads the batches that a share group may acquire: whole batches, optionally without those of aborted transactions.

An aborted batch is skipped as if the log did not contain it. The bytes of the answer may contain it, but nobody
acquires it. Source: Kafka's SharePartition.maybeFilterAbortedTransactionalAcquiredRecords.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.coordinator.share.share_partition import Acquired
from log import FileRegion, PartitionLog, lookups
from log.format.end_marker import read_end_marker
from log.format.record_batch import BatchHeader, whole_batches


class BatchPlace(NamedTuple):
    """A batch: its offsets, both inclusive, and its start and end in the bytes."""

    base_offset: int
    last_offset: int
    position: int
    end: int


class Batches(NamedTuple):
    """The bytes of a region, its batches that may be acquired, and the offset after the last batch of the region.

    No offset between `first_offset` and the first of the batches may be acquired: those batches were aborted.
    """

    data: bytes
    places: list[BatchPlace]
    end_offset: int
    first_offset: int = 0

    def spanning(self, acquired: Sequence[Acquired]) -> bytes:
        """Return the bytes from the first batch with any of these offsets to the last one, as Kafka sends them."""
        start = next(place.position for place in self.places if place.last_offset >= acquired[0].first_offset)
        end = next(
            place.end for place in reversed(self.places) if place.base_offset <= acquired[-1].last_offset
        )
        return self.data[start:end]

    def holding(self, acquired: Sequence[Acquired]) -> bytes:
        """Return only the batches with any of these offsets, which are in order."""
        pieces: list[tuple[int, int]] = []
        number = 0
        for place in self.places:
            while number < len(acquired) and acquired[number].last_offset < place.base_offset:
                number += 1
            if number == len(acquired):
                break
            if acquired[number].first_offset > place.last_offset:
                continue
            if pieces and pieces[-1][1] == place.position:
                pieces[-1] = pieces[-1][0], place.end
            else:
                pieces.append((place.position, place.end))
        return b"".join(self.data[start:end] for start, end in pieces)


def find_batches(
    log: PartitionLog, offset: int, max_bytes: int, *, upper_bound: int, committed_only: bool
) -> Batches | None:
    """Read batches from the one that holds `offset` on; None when there are none. Raises LogError, NotCached."""
    region = log.find(offset, max_bytes, upper_bound=upper_bound)
    return None if region is None else read_batches(log, offset, region, committed_only=committed_only)


def read_batches(log: PartitionLog, offset: int, region: FileRegion, *, committed_only: bool) -> Batches:
    """Read the batches of a region that was found for `offset`. Raises LogError."""
    aborted = lookups.aborted_in(log, offset, region) if committed_only else []
    data = log.read_region(region)
    found = list(_batches(data))
    end_offset = found[-1][1].last_offset + 1 if found else offset
    if aborted:
        found = list(_decided(data, found, aborted))
    return Batches(data, [place for _, place in found], end_offset)


def _batches(data: bytes) -> Iterator[tuple[BatchHeader, BatchPlace]]:
    for position, header in whole_batches(data):
        end = position + header.size_bytes
        yield header, BatchPlace(header.base_offset, header.last_offset, position, end)


def _decided(
    data: bytes, found: list[tuple[BatchHeader, BatchPlace]], aborted: list[tuple[int, int]]
) -> Iterator[tuple[BatchHeader, BatchPlace]]:
    """Yield all batches except those of the `aborted` transactions, (producer_id, first_offset)."""
    to_come = sorted(aborted, key=lambda one: one[1], reverse=True)
    aborting: set[int] = set()
    for header, place in found:
        while to_come and to_come[-1][1] <= place.last_offset:
            aborting.add(to_come.pop()[0])
        if header.is_control:
            marker = read_end_marker(data[place.position : place.end])
            if marker is not None and not marker.is_commit:
                aborting.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborting:
            continue
        yield header, place
