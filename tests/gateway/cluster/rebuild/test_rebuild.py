from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from gateway.cluster.rebuild.rebuild import MetadataPlace, Rebuilt, rebuild
from gateway.cluster.rebuild.wal_reader import WalRange
from gateway.cluster.wal.keys import object_key
from gateway.cluster.wal.sealing import seal
from gateway.cluster.wal.session_wal import SessionWal
from gateway.cluster.wal.sessions import Session
from gateway.cluster.wal.wal_object import CorruptWalObject, DataRow, FileRow, Row
from log import CachedDurability, LogDirectory, Storage
from log.files.file_names import LOG_START_OFFSET
from log.rebuilding import RebuiltDirectory
from tests.log.support import NOW_MS, SMALL
from tests.simulation.loop import SimulatedLoop
from tests.support.batches import Batch, records
from tests.support.simulated_objects import Faults, SimulatedObjects

METADATA = MetadataPlace(uuid.UUID(int=1), "__cluster_metadata")
FLIGHTS, GONE = uuid.UUID(int=5), uuid.UUID(int=6)
FAULTY = Faults(fails_before=0.2, fails_after=0.2, silent=0.05)
T = TypeVar("T")


def batch(offset: int, count: int = 1) -> bytes:
    return Batch(records(count), base_offset=offset).encode()


def read_topics(_: Path) -> Mapping[uuid.UUID, str]:
    return {FLIGHTS: "flights"}


class Cluster:
    """The sessions of a test, and what each of them wrote."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.objects = SimulatedObjects()
        self.faults = faults
        self.sessions: list[Session] = []

    async def session(self, *puts: list[tuple[Row, bytes]]) -> None:
        """Run a session that puts one object for each list of rows."""
        number = len(self.sessions)
        session = Session(number, 1, bytes([number] * 16), "cluster")
        self.sessions.append(session)
        wal = SessionWal(self.objects, session, puts_in_flight=4, chance=Random(1))
        for put in puts:
            wal.put([row for row, _ in put], [data for _, data in put], lambda: None)
        await wal.seal("the test is over")

    async def rebuild(self, path: Path) -> Rebuilt:
        ranges = []
        for session in self.sessions:
            sealed = await seal(self.objects, 1, session.session, 2, "taken over")
            ranges.append(WalRange(1, session.session, session.nonce, sealed.first_seq, sealed.end_seq))
        if self.faults is not None:
            self.objects.faults = self.faults
        directory = RebuiltDirectory.begin(Storage(), path, b"{}")
        try:
            rebuilt = await rebuild(self.objects, ranges, directory, METADATA, read_topics)
            directory.finish(CachedDurability(Storage()), "cluster", 1)
        finally:
            directory.abandon()
        return rebuilt


def run(work: Callable[[], Awaitable[T]]) -> T:
    loop = SimulatedLoop(Random(1))

    async def main() -> T:
        return await work()

    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def appended(
    topic_id: uuid.UUID, first: int, end: int, base: int = 0, position: int = 0
) -> tuple[Row, bytes]:
    data = batch(first, end - first)
    return DataRow(topic_id, 0, 0, first, end, base, position, len(data)), data


METADATA_ROW = appended(METADATA.topic_id, 0, 1)


def open_log(path: Path, topic: str = "flights") -> list[int]:
    """Return the log start offset and the log end offset of the partition."""
    directory = LogDirectory.open(path, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=SMALL)
    log = directory.get(topic, 0)
    assert log is not None
    ends = [log.log_start_offset, log.log_end_offset]
    directory.close(clean=True)
    return ends


@pytest.mark.parametrize("faults", [None, FAULTY])
def test_the_files_of_all_sessions(tmp_path: Path, faults: Faults | None) -> None:
    async def work() -> Rebuilt:
        cluster = Cluster(faults)
        first, size = appended(FLIGHTS, 0, 3), len(batch(0, 3))
        await cluster.session([METADATA_ROW, first], [appended(FLIGHTS, 3, 5, 0, size)])
        await cluster.session()
        await cluster.session(*([appended(FLIGHTS, offset, offset + 1, offset)] for offset in range(5, 45)))
        return await cluster.rebuild(tmp_path)

    rebuilt = run(work)
    assert (rebuilt.objects, rebuilt.partitions) == (42, 1)
    assert (tmp_path / "flights-0" / f"{0:020}.log").read_bytes() == batch(0, 3) + batch(3, 2)
    assert (tmp_path / "flights-0" / f"{44:020}.log").read_bytes() == batch(44)
    assert open_log(tmp_path) == [0, 45]


def test_the_last_content_of_a_side_file_counts(tmp_path: Path) -> None:
    async def work() -> None:
        cluster = Cluster()
        starts = [f"0\n1\nflights 0 {offset}\n".encode() for offset in (1, 2)]
        rows = [(FileRow(FLIGHTS, 0, LOG_START_OFFSET, len(content)), content) for content in starts]
        await cluster.session([METADATA_ROW, appended(FLIGHTS, 0, 5), rows[0]], [rows[1]])
        await cluster.rebuild(tmp_path)

    run(work)
    assert open_log(tmp_path) == [2, 5]


def test_a_deleted_topic_has_no_files(tmp_path: Path) -> None:
    async def work() -> None:
        cluster = Cluster()
        await cluster.session([METADATA_ROW, appended(GONE, 0, 5), appended(FLIGHTS, 0, 1)])
        await cluster.rebuild(tmp_path)

    run(work)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        "__cluster_metadata-0",
        "flights-0",
    ]


def test_an_empty_cluster_is_an_empty_directory(tmp_path: Path) -> None:
    async def work() -> Rebuilt:
        return await Cluster().rebuild(tmp_path)

    assert run(work) == Rebuilt(0, 0, 0)
    directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS)
    assert len(directory) == 0
    assert directory.cluster_id == "cluster"


class TestDamage:
    def _rebuild(self, tmp_path: Path, change: Callable[[Cluster], None]) -> None:
        async def work() -> None:
            cluster = Cluster()
            await cluster.session(*([appended(FLIGHTS, offset, offset + 1, offset)] for offset in range(40)))
            change(cluster)
            await cluster.rebuild(tmp_path)

        run(work)

    def test_a_missing_object(self, tmp_path: Path) -> None:
        async def work() -> None:
            cluster = Cluster()
            await cluster.session(*([appended(FLIGHTS, offset, offset + 1, offset)] for offset in range(40)))
            del cluster.objects.bucket.objects[object_key(1, 0, 7)]
            ranges = [WalRange(1, 0, cluster.sessions[0].nonce, 0, 40)]
            directory = RebuiltDirectory.begin(Storage(), tmp_path, b"{}")
            await rebuild(cluster.objects, ranges, directory, METADATA, read_topics)

        with pytest.raises(
            CorruptWalObject, match=r"00007 is missing, and the log of its session ends at 40"
        ):
            run(work)

    def test_an_object_of_another_writer(self, tmp_path: Path) -> None:
        def change(cluster: Cluster) -> None:
            cluster.sessions[0] = cluster.sessions[0]._replace(nonce=b"x" * 16)

        with pytest.raises(CorruptWalObject, match="is an object of another place or writer"):
            self._rebuild(tmp_path, change)

    def test_no_read_outlives_a_failure(self, tmp_path: Path) -> None:
        def change(cluster: Cluster) -> None:
            cluster.sessions[0] = cluster.sessions[0]._replace(nonce=b"x" * 16)

        async def work() -> set[asyncio.Task[object]]:
            cluster = Cluster()
            await cluster.session(*([appended(FLIGHTS, offset, offset + 1, offset)] for offset in range(40)))
            change(cluster)
            with pytest.raises(CorruptWalObject):
                await cluster.rebuild(tmp_path)
            return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

        assert not run(work)
