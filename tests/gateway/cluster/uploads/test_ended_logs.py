"""The logs of ended sessions are collected as far as manifests have what is in them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from uuid import UUID

import pytest

from seqgate.gateway.cluster.parts.manifest import Manifest, PartitionKey
from seqgate.gateway.cluster.uploads.collection import EndedLogs
from seqgate.gateway.cluster.wal.ended import EndedSession
from seqgate.gateway.cluster.wal.sessions import decode_boundary
from seqgate.gateway.cluster.wal.wal_object import (
    SESSIONS_BOUNDARY_KEY,
    DataRow,
    FileRow,
    Seal,
    WalObject,
    WalRow,
    boundary_key,
    encode,
    encode_seal,
    object_key,
)
from seqgate.log.uploading import LOG_START_OFFSET, log_start_content
from tests.simulation.loop import SimulatedLoop
from tests.support.simulated_objects import SimulatedBucket, SimulatedObjects

A, B = PartitionKey(UUID(int=1), 0), PartitionKey(UUID(int=2), 0)
NONCE = b"n" * 16


class Cluster:
    """Ended sessions, manifests and topics, as a test says."""

    def __init__(self) -> None:
        self.objects = SimulatedObjects(SimulatedBucket())
        self.sessions: list[EndedSession] = []
        self.manifests: dict[PartitionKey, Manifest] = {}
        self.topics = {A, B}
        self.late_topics: set[PartitionKey] = set()
        """The partitions that only `catch_up` makes known."""
        self.running = 99

    async def ended(self) -> Sequence[EndedSession]:
        return self.sessions

    async def first_running(self) -> int:
        return self.running

    def collects(self) -> bool:
        return True

    async def catch_up(self) -> None:
        self.topics |= self.late_topics

    async def present(self, partition: PartitionKey) -> Manifest | None:
        return self.manifests.get(partition)

    def logs(self) -> EndedLogs:
        return EndedLogs(self.objects, self, self.present, self.topics.__contains__, self.catch_up)

    def session(self, number: int, *puts: list[tuple[WalRow, bytes]]) -> None:
        """Add an ended session of node 1 that put one object for each list of rows."""
        bucket = self.objects.bucket
        for seq, put in enumerate(puts):
            made = WalObject(1, number, seq, NONCE, [row for row, _ in put], [data for _, data in put])
            bucket.create(object_key(1, number, seq), b"".join(encode(made)), 0)
        seal = Seal(1, number, len(puts), NONCE, 1, "over")
        bucket.create(object_key(1, number, len(puts)), encode_seal(seal), 0)
        self.sessions.append(EndedSession(1, number, NONCE, len(puts)))

    def store(
        self, partition: PartitionKey, end: int, *, epoch: int = 0, session: int = 50, start: int = 0
    ) -> None:
        self.manifests[partition] = Manifest(
            *partition, "t", session, 0, start, end, (), (), leader_epoch=epoch
        )

    def left(self, number: int) -> list[int]:
        """Return the objects of a session that are left, without its seal."""
        end = next(each.end_seq for each in self.sessions if each.session == number)
        return [
            seq for seq in range(end) if self.objects.bucket.content(object_key(1, number, seq)) is not None
        ]

    def boundary(self, key: str) -> int:
        content = self.objects.bucket.content(key)
        return 0 if content is None else decode_boundary(content, key)


def records(partition: PartitionKey, end: int, epoch: int = 0) -> tuple[WalRow, bytes]:
    return DataRow(*partition, epoch, end - 1, end, 0, 0, 3), b"abc"


def side_file(partition: PartitionKey, epoch: int = 0) -> tuple[WalRow, bytes]:
    return FileRow(*partition, "delayed", 1, epoch), b"x"


def run(work: Callable[[], Awaitable[object]]) -> None:
    loop = SimulatedLoop(Random(1))

    async def main() -> None:
        await work()

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_a_log_goes_as_far_as_manifests_have_its_rows() -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.session(3, [records(A, 1)], [records(A, 2), records(B, 1)], [records(A, 3)])
        logs = cluster.logs()
        await logs.collect()
        assert cluster.left(3) == [0, 1, 2]
        assert set(await logs.uncovered()) == {A, B}
        cluster.store(A, 3)
        await logs.collect()
        assert (cluster.left(3), cluster.boundary(boundary_key(1, 3))) == ([1, 2], 1)
        cluster.store(B, 1)
        await logs.collect()
        assert (cluster.left(3), cluster.boundary(boundary_key(1, 3))) == ([], 3)
        assert cluster.boundary(SESSIONS_BOUNDARY_KEY) == 99

    run(work)


def test_a_side_file_needs_a_manifest_of_a_later_leader() -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.session(60, [side_file(A, epoch=2)])
        logs = cluster.logs()
        cluster.store(A, 9, epoch=1, session=70)
        await logs.collect()
        assert cluster.left(60) == [0]
        cluster.store(A, 9, epoch=3, session=50)
        await logs.collect()
        assert cluster.left(60) == []

    run(work)


def test_a_log_start_offset_needs_a_manifest_that_has_it() -> None:
    async def work() -> None:
        cluster = Cluster()
        content = log_start_content("t", 0, 4)
        cluster.session(3, [(FileRow(*A, LOG_START_OFFSET, len(content)), content)])
        logs = cluster.logs()
        cluster.store(A, 9, start=3)
        await logs.collect()
        assert cluster.left(3) == [0]
        cluster.store(A, 9, start=4)
        await logs.collect()
        assert cluster.left(3) == []

    run(work)


def test_a_deleted_topic_needs_nothing_and_a_new_one_does() -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.topics = set()
        cluster.late_topics = {B}
        cluster.session(3, [records(A, 1)], [records(B, 1)])
        await cluster.logs().collect()
        assert cluster.left(3) == [1]

    run(work)


def test_the_boundary_of_sessions_stops_before_a_log_with_objects() -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.session(1, [records(A, 1)])
        cluster.session(2, [records(B, 1)])
        cluster.session(4)
        cluster.store(A, 1)
        logs = cluster.logs()
        await logs.collect()
        assert cluster.boundary(SESSIONS_BOUNDARY_KEY) == 2
        cluster.running = 3
        cluster.store(B, 1)
        await logs.collect()
        assert cluster.boundary(SESSIONS_BOUNDARY_KEY) == 3

    run(work)


@pytest.mark.parametrize("calls", range(5))
def test_the_boundary_of_sessions_stops_before_a_log_that_ends_meanwhile(calls: int) -> None:
    class Ending(Cluster):
        """Session 4 ends after so many calls."""

        left_calls = calls

        def _ends_at(self) -> int:
            self.left_calls -= 1
            return 99 if self.left_calls < 0 else 4

        async def ended(self) -> Sequence[EndedSession]:
            running = self._ends_at()
            return [each for each in self.sessions if each.session < running]

        async def first_running(self) -> int:
            return self._ends_at()

    async def work() -> None:
        cluster = Ending()
        cluster.session(3, [records(A, 1)])
        cluster.session(4, [records(B, 1)])
        cluster.store(A, 1)
        logs = cluster.logs()
        for _ in range(2):
            await logs.collect()
            assert cluster.boundary(SESSIONS_BOUNDARY_KEY) <= 4
        assert cluster.left(4) == [0]

    run(work)


def test_a_damaged_object_keeps_the_rest_of_its_log(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.session(3, [records(A, 1)], [records(A, 2)], [records(A, 3)])
        key = object_key(1, 3, 1)
        content = cluster.objects.bucket.get(key)
        cluster.objects.bucket.delete(key, 0)
        cluster.objects.bucket.create(key, content[:-70] + b"!" + content[-69:], 0)
        cluster.store(A, 9)
        logs = cluster.logs()
        await logs.collect()
        await logs.collect()
        assert cluster.left(3) == [1, 2]

    run(work)
    assert caplog.text.count("can't be collected") == 1


def test_two_collectors_at_once_do_no_harm() -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.session(3, *([records(A, end)] for end in range(1, 40)))
        cluster.store(A, 30)
        await asyncio.gather(cluster.logs().collect(), cluster.logs().collect())
        assert cluster.left(3) == list(range(30, 39))
        cluster.store(A, 39)
        await asyncio.gather(cluster.logs().collect(), cluster.logs().collect())
        assert cluster.left(3) == []

    run(work)
