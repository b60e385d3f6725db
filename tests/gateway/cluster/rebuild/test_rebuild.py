from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
from crc32c import crc32c

from seqgate.gateway.cluster.parts.manifest import (
    FileRef,
    Manifest,
    PartitionKey,
    PartRef,
    SegmentRef,
    encode_manifest,
    manifest_key,
    part_key,
    part_name,
)
from seqgate.gateway.cluster.parts.part_object import CorruptPart, PartHead, encode_part
from seqgate.gateway.cluster.rebuild.history import MetadataPlace, Rebuilt, StoredTopic, rebuild
from seqgate.gateway.cluster.wal.ended import EndedSession, seal
from seqgate.gateway.cluster.wal.session_wal import SessionWal
from seqgate.gateway.cluster.wal.sessions import Session, encode_boundary
from seqgate.gateway.cluster.wal.wal_object import (
    CorruptWalObject,
    DataRow,
    FileRow,
    WalRow,
    boundary_key,
    object_key,
)
from seqgate.log import CachedDurability, CorruptRecord, LogDirectory, Storage
from seqgate.log.files.file_names import LOG_START_OFFSET
from seqgate.log.rebuilding import RebuiltDirectory
from seqgate.log.uploading import log_start_content
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


def read_topics(_: Path) -> Mapping[uuid.UUID, StoredTopic]:
    return {FLIGHTS: StoredTopic("flights", 1)}


class Cluster:
    """The sessions of a test, and what each of them wrote."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.objects = SimulatedObjects()
        self.faults = faults
        self.sessions: list[Session] = []

    async def session(self, *puts: list[tuple[WalRow, bytes]]) -> None:
        """Run a session that puts one object for each list of rows."""
        number = len(self.sessions)
        session = Session(number, 1, bytes([number] * 16), "cluster")
        self.sessions.append(session)
        wal = SessionWal(self.objects, session, puts_in_flight=4, chance=Random(1))
        for put in puts:
            wal.put([row for row, _ in put], [data for _, data in put], lambda: None)
        await wal.seal("the test is over")

    async def rebuild(self, path: Path) -> Rebuilt:
        ended = []
        for session in self.sessions:
            sealed = await seal(self.objects, 1, session.session, 2, "taken over")
            ended.append(EndedSession(1, session.session, session.nonce, sealed.end_seq))
        if self.faults is not None:
            self.objects.faults = self.faults
        directory = RebuiltDirectory.begin(Storage(), path, b"{}")
        try:
            rebuilt = await rebuild(self.objects, ended, directory, METADATA, read_topics)
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
) -> tuple[WalRow, bytes]:
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

    assert run(work) == Rebuilt(0, 0, 0, {})
    directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS)
    assert len(directory) == 0
    assert directory.cluster_id == "cluster"


def manifest(
    objects: SimulatedObjects,
    *ends: int,
    place: tuple[int, int] = (0, 0),
    starts_at: int = 0,
    files: tuple[FileRef, ...] = (),
    topic_id: uuid.UUID = FLIGHTS,
) -> None:
    """Put parts of one segment, which end at these offsets, and the manifest that names them."""
    parts: list[PartRef] = []
    position = offset = 0
    for end in ends:
        data = batch(offset, end - offset)
        name = part_name(0, uuid.uuid4().hex)
        head = PartHead(topic_id, 0, 0, position, len(data), offset, end)
        content = b"".join(encode_part(head, data).content)
        objects.bucket.create(part_key(PartitionKey(topic_id, 0), name), content, 0)
        parts.append(PartRef(name, position, len(data), end, crc32c(data)))
        position, offset = position + len(data), end
    segments = (SegmentRef(0, tuple(parts)),)
    made = Manifest(topic_id, 0, "flights", *place, starts_at, offset, segments, files)
    objects.bucket.create(manifest_key(made.key), encode_manifest(made), 0)


class TestHistory:
    def test_rows_follow_on_the_parts(self, tmp_path: Path) -> None:
        async def work() -> Rebuilt:
            cluster = Cluster()
            manifest(cluster.objects, 3, 5)
            size = len(batch(0, 3)) + len(batch(3, 2))
            old, new = appended(FLIGHTS, 3, 5, 0, len(batch(0, 3))), appended(FLIGHTS, 5, 6, 0, size)
            await cluster.session([METADATA_ROW], [old, new])
            return await cluster.rebuild(tmp_path)

        run(work)
        assert (tmp_path / "flights-0" / f"{0:020}.log").read_bytes() == batch(0, 3) + batch(3, 2) + batch(5)
        assert open_log(tmp_path) == [0, 6]

    def test_offsets_that_a_compaction_removed_are_not_missing(self, tmp_path: Path) -> None:
        async def work() -> None:
            cluster = Cluster()
            parts = [batch(2), batch(7)]
            refs, position = [], 0
            for offset, data in zip((2, 7), parts, strict=True):
                name = part_name(0, uuid.uuid4().hex)
                head = PartHead(FLIGHTS, 0, 0, position, len(data), offset, offset + 1)
                content = b"".join(encode_part(head, data).content)
                cluster.objects.bucket.create(part_key(PartitionKey(FLIGHTS, 0), name), content, 0)
                refs.append(PartRef(name, position, len(data), offset + 1, crc32c(data)))
                position += len(data)
            segments = (SegmentRef(0, tuple(refs)), SegmentRef(10))
            made = Manifest(FLIGHTS, 0, "flights", 0, 1, 0, 10, segments, ())
            cluster.objects.bucket.create(manifest_key(made.key), encode_manifest(made), 0)
            await cluster.session([METADATA_ROW], [appended(FLIGHTS, 10, 11, 10)])
            await cluster.rebuild(tmp_path)

        run(work)
        assert open_log(tmp_path) == [0, 11]
        assert (tmp_path / "flights-0" / f"{0:020}.log").read_bytes() == batch(2) + batch(7)

    def test_a_partition_without_rows_is_there(self, tmp_path: Path) -> None:
        async def work() -> None:
            cluster = Cluster()
            manifest(cluster.objects, 4, starts_at=2)
            await cluster.session([METADATA_ROW])
            await cluster.rebuild(tmp_path)

        run(work)
        assert open_log(tmp_path) == [2, 4]

    @pytest.mark.parametrize(("place", "content"), [((0, 1), b"old"), ((0, 2), b"new"), ((1, 0), b"new")])
    def test_only_side_files_that_are_newer_than_the_manifest_count(
        self, tmp_path: Path, place: tuple[int, int], content: bytes
    ) -> None:
        async def work() -> None:
            cluster = Cluster()
            manifest(cluster.objects, 1, place=place, files=(FileRef("notes", 3, crc32c(b"new"), b"new"),))
            await cluster.session([METADATA_ROW], [(FileRow(FLIGHTS, 0, "notes", 3), b"old")])
            await cluster.rebuild(tmp_path)

        run(work)
        assert (tmp_path / "flights-0" / "notes").read_bytes() == content

    @pytest.mark.parametrize(("row", "start"), [(1, 3), (4, 4)])
    def test_the_later_log_start_offset_counts(self, tmp_path: Path, row: int, start: int) -> None:
        async def work() -> None:
            cluster = Cluster()
            manifest(cluster.objects, 5, place=(0, 2), starts_at=3)
            content = log_start_content("flights", 0, row)
            await cluster.session(
                [METADATA_ROW], [(FileRow(FLIGHTS, 0, LOG_START_OFFSET, len(content)), content)]
            )
            await cluster.rebuild(tmp_path)

        run(work)
        assert open_log(tmp_path) == [start, 5]

    def test_a_deleted_topic_may_lack_its_history(self, tmp_path: Path) -> None:
        async def work() -> None:
            cluster = Cluster()
            await cluster.session([METADATA_ROW, appended(GONE, 7, 8, 0, 500), appended(FLIGHTS, 0, 1)])
            await cluster.rebuild(tmp_path)

        run(work)
        assert not (tmp_path / "gone-0").exists()
        assert open_log(tmp_path) == [0, 1]

    def test_a_part_that_is_missing_is_damage(self, tmp_path: Path) -> None:
        async def work() -> None:
            cluster = Cluster()
            manifest(cluster.objects, 3)
            (part,) = (key for key in cluster.objects.bucket.keys("parts/") if not key.endswith("manifest"))
            del cluster.objects.bucket.objects[part]
            await cluster.session([METADATA_ROW])
            await cluster.rebuild(tmp_path)

        with pytest.raises(CorruptPart, match="is missing, and a manifest names it"):
            run(work)

    def test_bytes_before_a_row_that_nobody_has_are_damage(self, tmp_path: Path) -> None:
        async def work() -> None:
            cluster = Cluster()
            await cluster.session([METADATA_ROW, appended(FLIGHTS, 7, 8, 0, 500)])
            await cluster.rebuild(tmp_path)

        with pytest.raises(CorruptRecord, match="the records before offset 7 are missing"):
            run(work)

    def test_an_object_that_was_collected_since_the_seal_is_skipped(self, tmp_path: Path) -> None:
        async def work() -> Rebuilt:
            cluster = Cluster()
            await cluster.session([appended(FLIGHTS, 0, 3)], [METADATA_ROW])
            manifest(cluster.objects, 3)
            ended = [EndedSession(1, 0, cluster.sessions[0].nonce, 2)]
            bucket = cluster.objects.bucket
            bucket.create(boundary_key(1, 0), encode_boundary(1), 0)
            del bucket.objects[object_key(1, 0, 0)]
            directory = RebuiltDirectory.begin(Storage(), tmp_path, b"{}")
            rebuilt = await rebuild(cluster.objects, ended, directory, METADATA, read_topics)
            directory.finish(CachedDurability(Storage()), "cluster", 1)
            return rebuilt

        assert run(work).objects == 1
        assert open_log(tmp_path) == [0, 3]


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
            ended = [EndedSession(1, 0, cluster.sessions[0].nonce, 40)]
            directory = RebuiltDirectory.begin(Storage(), tmp_path, b"{}")
            await rebuild(cluster.objects, ended, directory, METADATA, read_topics)

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
