"""The metadata of a moment, from a log that gateways shorten meanwhile: what a start needs, or no moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from seqgate.gateway.cluster.metadata.shared_log import SharedLog, read_metadata
from seqgate.gateway.cluster.rebuild.moment import MomentReads, Moved
from seqgate.gateway.cluster.wal.wal_object import SHORTENED_KEY, snapshot_key
from tests.gateway.cluster.metadata.shortened_logs import batch, shorten, snapshot, written
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.support.simulated_objects import SimulatedBucket, SimulatedObjects

END = 7


async def copy_of(
    bucket: SimulatedBucket, shared: SharedLog, meanwhile: Callable[[], object]
) -> SimulatedBucket:
    """Copy the metadata up to `END`. `meanwhile`, the command stands still, and gateways write on."""
    reads = MomentReads(SimulatedObjects(bucket))
    base = await reads.base(lambda _: ())
    await reads.follow(END)
    for number in range(END, END + 3):
        made = await shared.create(batch(b"later %d" % number))
        assert made is not None
        shared.take(made)
    meanwhile()
    copy = SimulatedBucket()
    async for key, content in reads.metadata(base):
        copy.create(key, content, 0)
    return copy


def test_a_shortened_log_is_copied_with_its_snapshots_up_to_the_moment() -> None:
    async def scene() -> None:
        bucket = SimulatedBucket()
        shared = await written(bucket, END - 1)
        snapshot(bucket, shared, 4)
        shorten(bucket, 4)
        copy = await copy_of(bucket, shared, lambda: snapshot(bucket, shared, END + 2))
        assert {snapshot_key(4), SHORTENED_KEY} < copy.objects.keys()
        assert snapshot_key(END + 2) not in copy.objects
        assert (await read_metadata(SimulatedObjects(copy))).end_seq == END

    in_virtual_time(scene())


def test_a_log_that_is_shortened_beyond_the_moment_has_none() -> None:
    async def scene() -> None:
        bucket = SimulatedBucket()
        shared = await written(bucket, END - 1)

        def go_on() -> None:
            snapshot(bucket, shared, END + 2)
            shorten(bucket, END + 2)

        with pytest.raises(Moved, match=f"begins at object {END + 2} by now"):
            await copy_of(bucket, shared, go_on)

    in_virtual_time(scene())


def test_a_log_without_the_snapshot_at_its_beginning_has_no_moment() -> None:
    async def scene() -> None:
        bucket = SimulatedBucket()
        shared = await written(bucket, END - 1)
        snapshot(bucket, shared, 4)
        shorten(bucket, 4)
        with pytest.raises(Moved, match="0004 is missing"):
            await copy_of(bucket, shared, lambda: bucket.delete(snapshot_key(4), 0))

    in_virtual_time(scene())
