"""The end of a metadata log that others shorten: who stood still notices, and takes nothing for the log that
is none.
"""

from __future__ import annotations

import pytest

from seqgate.gateway.cluster.metadata.shared_log import SharedLog
from seqgate.gateway.cluster.wal.sessions import LogShortened
from seqgate.gateway.cluster.wal.wal_object import registration_key
from tests.gateway.cluster.metadata.shortened_logs import batch, shorten, snapshot, written
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.support.simulated_objects import SimulatedBucket, SimulatedObjects


class Scene:
    """A log of eleven objects, and a gateway that stood still when it had four."""

    def __init__(self) -> None:
        self.bucket = SimulatedBucket()
        self.now_s = 0.0

    async def begin(self) -> SharedLog:
        shared = await written(self.bucket, 3)
        stale = SharedLog(SimulatedObjects(self.bucket), shared._session, next_seq=4, next_offset=3)
        stale.seconds = lambda: self.now_s
        stale.kept_s = 100.0
        assert not await stale.read()
        assert not await stale.has_more()
        for number in range(7):
            made = await shared.create(batch(b"%d" % number))
            assert made is not None
            shared.take(made)
        snapshot(self.bucket, shared, 6)
        snapshot(self.bucket, shared, 9)
        return stale

    def shorten(self) -> None:
        self.now_s += 100.0
        shorten(self.bucket, 6)


def test_a_change_in_an_emptied_place_is_not_made() -> None:
    async def run() -> None:
        scene = Scene()
        stale = await scene.begin()
        scene.shorten()
        with pytest.raises(
            LogShortened, match="begins at object 6 by now, and this process would continue at 4"
        ):
            await stale.create(batch(b"late"))
        assert registration_key(4) in scene.bucket.objects  # and nobody reads it

    in_virtual_time(run())


def test_a_change_in_a_place_that_is_kept_is_made() -> None:
    async def run() -> None:
        scene = Scene()
        stale = await scene.begin()
        for entry in await stale.read(64):
            stale.take(entry)
        scene.shorten()
        assert await stale.create(batch(b"next")) is not None

    in_virtual_time(run())


@pytest.mark.parametrize("is_filled", [False, True])
def test_what_is_behind_an_emptied_place_is_not_the_end(is_filled: bool) -> None:
    async def run() -> None:
        scene = Scene()
        stale = await scene.begin()
        late = scene.bucket.get(registration_key(4))
        scene.shorten()
        if is_filled:
            # Another gateway stood still, too, and has created the object without a look at the boundary so
            # far.
            scene.bucket.create(registration_key(4), late, 0)
        assert await stale.has_more()
        with pytest.raises(LogShortened):
            await stale.read()

    in_virtual_time(run())


def test_the_end_costs_one_request_while_nobody_stands_still() -> None:
    async def run() -> None:
        scene = Scene()
        stale = await scene.begin()
        for entry in await stale.read(64):
            stale.take(entry)
        assert not await stale.has_more()
        scene.bucket.calls.clear()
        for _ in range(5):
            scene.now_s += 50.0
            assert not await stale.has_more()
        assert [call.key for call in scene.bucket.calls] == [registration_key(11)] * 5

    in_virtual_time(run())


def test_sessions_that_nobody_needs_are_dropped() -> None:
    async def run() -> None:
        shared = await written(SimulatedBucket(), 0)
        shared.drop({5})
        assert [each.session for each in shared.sessions] == [0]
        shared.drop({0})
        assert shared.sessions == []

    in_virtual_time(run())
