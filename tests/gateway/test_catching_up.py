"""Readers of old data wait for the disk and get all their records; no other client waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.loop.memory_room import MemoryRoom
from seqgate.log.files.file_names import LOG_SUFFIX
from tests.faults.cold_storage import ColdStorage
from tests.support.batches import Batch, read_batches, records
from tests.support.wire import Wire

TOPIC = "old"
BATCHES = 6
DEADLINE_S = 120.0
FETCH, PRODUCE, VERSIONS, LIST_OFFSETS, DELETE_RECORDS = 11, 9, 0, 5, 2
OFFSET_OUT_OF_RANGE = 1
SIZES = pytest.mark.parametrize("record_bytes", [20_000, 90_000], ids=["in memory", "by the kernel"])


class Roomy(Machine):
    """A machine whose memory the test chooses."""

    room: MemoryRoom | None = None

    def memory_room(self) -> MemoryRoom | None:
        return self.room


@asynccontextmanager
async def running(
    data_dir: Path, storage: ColdStorage | None = None, *settings: str, room: MemoryRoom | None = None
) -> AsyncIterator[Gateway]:
    overrides = [f"log.dirs={data_dir}", "listeners=PLAINTEXT://127.0.0.1:0", *settings]
    machine = Roomy(storage=storage)
    machine.room = room
    gateway = Gateway(load_config(overrides=overrides), machine)
    await gateway.start()
    try:
        yield gateway
    finally:
        if storage is not None:
            storage.gate.set()
        await gateway.stop()


@asynccontextmanager
async def with_cold_log(
    data_dir: Path,
    *settings: str,
    record_bytes: int = 20_000,
    partitions: int = 1,
    room: MemoryRoom | None = None,
) -> AsyncIterator[tuple[Gateway, ColdStorage]]:
    """Return a gateway with a topic of segments of two batches; all but the last segment are cold, with their
    indexes.
    """
    async with running(data_dir) as before:
        await asyncio.to_thread(_fill, bootstrap(before), record_bytes, partitions)
    storage = ColdStorage()
    async with running(data_dir, storage, *settings, room=room) as gateway:
        for index in range(partitions):
            segments = sorted((data_dir / f"{TOPIC}-{index}").glob(f"*{LOG_SUFFIX}"))
            assert len(segments) == BATCHES / 2
            for segment in segments[:-1]:
                storage.freeze(*map(str, segment.parent.glob(f"{segment.stem}.*")))
        yield gateway, storage


def bootstrap(gateway: Gateway) -> str:
    endpoint = gateway.services.node.brokers.advertised["PLAINTEXT"]
    return f"{endpoint.host}:{endpoint.port}"


def _fill(address: str, record_bytes: int, partitions: int) -> None:
    configs = [
        {"name": "internal.segment.bytes", "value": str(int(record_bytes * 2.5))},
        {"name": "file.delete.delay.ms", "value": "0"},
    ]
    topic = {"name": TOPIC, "num_partitions": partitions, "replication_factor": 1, "configs": configs}
    with Wire(address) as wire:
        made = wire.call("create_topics", 5, topics=[topic], timeout=30_000).fields["topics"][0]
        assert made["error_code"] == 0, made
        for number in range(BATCHES):
            assert produce(wire, number, record_bytes, partitions) == number


def produce(wire: Wire, number: int, record_bytes: int, partitions: int = 1) -> int:
    """Append a batch with one record at time `number` to each partition; return its offset."""
    batch = Batch(records(1, record_bytes, prefix=f"{number}-"), base_timestamp=number).encode()
    data = [{"index": index, "records": batch} for index in range(partitions)]
    request = {"acks": -1, "timeout": 30_000, "topic_data": [{"name": TOPIC, "partition_data": data}]}
    rows = wire.call("produce", PRODUCE, request).fields["responses"][0]["partition_responses"]
    assert not any(row["error_code"] for row in rows), rows
    (offset,) = {int(row["base_offset"]) for row in rows}
    return offset


def fetch(offset: int, *, partitions: int = 1, max_wait_ms: int = 0) -> dict[str, Any]:
    entries = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        for index in range(partitions)
    ]
    topics = [{"topic": TOPIC, "partitions": entries}]
    limits = {"max_wait": max_wait_ms, "min_bytes": 1, "max_bytes": 1 << 24}
    return {"replica_id": -1, "session_epoch": -1, "topics": topics, **limits}


def offsets_in(answer: Any) -> list[list[int]]:
    """Return the base offsets of each partition's batches; check that all are whole and have the right CRC."""
    found = []
    for row in answer.fields["responses"][0]["partitions"]:
        assert row["error_code"] == 0, row
        views, rest = read_batches(row["records"] or b"")
        assert not rest
        assert all(view.crc_is_right for view in views)
        found.append([view.base_offset for view in views])
    return found


async def eventually(condition: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            assert what
            await asyncio.sleep(0.001)


@SIZES
async def test_others_go_on_while_one_waits_for_the_disk(tmp_path: Path, record_bytes: int) -> None:
    """Later requests of the waiting client keep their order."""
    async with with_cold_log(tmp_path / "data", record_bytes=record_bytes) as (gateway, storage):
        with Wire(bootstrap(gateway)) as slow, Wire(bootstrap(gateway)) as other:
            asked = [slow.send("fetch", FETCH, fetch(0)), slow.send("api_versions", VERSIONS, {})]
            await eventually(lambda: bool(storage.asked), "the disk is asked")
            assert await asyncio.to_thread(produce, other, BATCHES, record_bytes) == BATCHES
            tail = await asyncio.to_thread(other.call, "fetch", FETCH, fetch(BATCHES))
            assert offsets_in(tail) == [[BATCHES]]
            assert gateway.services.partitions.cold_reads.blocks_waiting > 0
            storage.gate.set()
            answer = await asyncio.to_thread(slow.receive, "fetch", FETCH, asked[0])
            assert offsets_in(answer) == [[0, 1]]
            await asyncio.to_thread(slow.receive, "api_versions", VERSIONS, asked[1])
            assert not storage.waited_for
            assert gateway.services.partitions.cold_reads.blocks_waiting == 0


@SIZES
async def test_a_whole_log_is_read_from_offset_to_offset(tmp_path: Path, record_bytes: int) -> None:
    async with with_cold_log(tmp_path / "data", record_bytes=record_bytes) as (gateway, storage):
        storage.gate.set()
        with Wire(bootstrap(gateway)) as wire:
            for offset in range(BATCHES):
                answer = await asyncio.to_thread(wire.call, "fetch", FETCH, fetch(offset))
                assert offsets_in(answer)[0][0] == offset
        assert not storage.waited_for


GIB = 1 << 30


@pytest.mark.parametrize(
    ("available_bytes", "max_bytes", "reads_again"),
    [(15 * GIB, GIB, False), (4 * GIB, GIB, True), (15 * GIB, 0, True)],
    ids=["room", "no room", "switched off"],
)
async def test_a_backlog_is_read_from_the_disk_once_while_memory_has_room(
    tmp_path: Path, available_bytes: int, max_bytes: int, reads_again: bool
) -> None:
    """Two clients read the same old data one after the other."""
    settings = ("seqgate.catch.up.cache.bytes=4194304", f"seqgate.catch.up.cache.max.bytes={max_bytes}")
    room = MemoryRoom(16 * GIB, available_bytes)
    async with with_cold_log(tmp_path / "data", *settings, partitions=10, room=room) as (gateway, storage):
        storage.gate.set()
        cold_reads = gateway.services.partitions.cold_reads
        read = []
        for _ in range(2):
            storage.asked.clear()
            with Wire(bootstrap(gateway)) as wire:
                for index in range(10):
                    await asyncio.to_thread(_read_cold, wire, index)
            await eventually(lambda: not cold_reads.blocks_waiting, "reading ahead is over")
            read.append({place.path for place in storage.asked if place.path.endswith(LOG_SUFFIX)})
        assert len(read[0]) == 20, "two cold segments of each partition"
        assert bool(read[1]) is reads_again
        if not reads_again:
            assert not storage.dropped
        assert not storage.waited_for


def _read_cold(wire: Wire, index: int) -> None:
    """Read a partition's cold segments."""
    request = fetch(0)
    entry = request["topics"][0]["partitions"][0]
    entry["partition"] = index
    while entry["fetch_offset"] < BATCHES - 2:
        (offsets,) = offsets_in(wire.call("fetch", FETCH, request))
        if offsets:
            entry["fetch_offset"] = offsets[-1] + 1


async def test_many_partitions_are_brought_in_together(tmp_path: Path) -> None:
    async with with_cold_log(tmp_path / "data", partitions=20) as (gateway, storage):
        storage.gate.set()
        with Wire(bootstrap(gateway)) as wire:
            unread = set(range(20))
            while unread:
                answer = await asyncio.to_thread(wire.call, "fetch", FETCH, fetch(1, partitions=20))
                got = {index for index, offsets in enumerate(offsets_in(answer)) if offsets}
                assert got, "a fetch that does not wait must get an answer without records"
                unread -= got
        assert not storage.waited_for


async def test_what_is_cached_is_answered_without_the_rest(tmp_path: Path) -> None:
    """A partition whose data is cached does not wait for one that needs the disk; the second is answered
    later.
    """
    async with with_cold_log(tmp_path / "data", partitions=2) as (gateway, storage):
        request = fetch(0, partitions=2)
        request["topics"][0]["partitions"][1]["fetch_offset"] = BATCHES - 1
        with Wire(bootstrap(gateway)) as wire:
            answer = await asyncio.to_thread(wire.call, "fetch", FETCH, request)
            assert offsets_in(answer) == [[], [BATCHES - 1]]
            storage.gate.set()
            await eventually(
                lambda: not gateway.services.partitions.cold_reads.blocks_waiting, "it is brought in"
            )
            answer = await asyncio.to_thread(wire.call, "fetch", FETCH, request)
            assert offsets_in(answer) == [[0, 1], [BATCHES - 1]]
        assert not storage.waited_for


@SIZES
async def test_a_client_that_goes_away_leaves_nothing_behind(tmp_path: Path, record_bytes: int) -> None:
    async with with_cold_log(tmp_path / "data", record_bytes=record_bytes, partitions=10) as (
        gateway,
        storage,
    ):
        with Wire(bootstrap(gateway)) as wire:
            wire.send("fetch", FETCH, fetch(0, partitions=10))
            await eventually(lambda: bool(storage.asked), "the disk is asked")
        await eventually(lambda: not len(gateway.server), "the connection is gone")
        begun = len(storage.asked)
        storage.gate.set()
        await eventually(
            lambda: not gateway.services.partitions.cold_reads.blocks_waiting, "nothing is wanted any more"
        )
        assert len(storage.asked) == begun


@SIZES
@pytest.mark.parametrize("offset", [0, 1], ids=["at its start", "inside"])
async def test_a_segment_deleted_meanwhile(tmp_path: Path, record_bytes: int, offset: int) -> None:
    """Records whose sending has begun are sent; for the others the client learns that they are gone."""
    async with with_cold_log(tmp_path / "data", record_bytes=record_bytes) as (gateway, storage):
        with Wire(bootstrap(gateway)) as slow, Wire(bootstrap(gateway)) as other:
            asked = slow.send("fetch", FETCH, fetch(offset))
            await eventually(lambda: bool(storage.asked), "the disk is asked")
            rows = [{"partition_index": 0, "offset": BATCHES - 1}]
            request = {"topics": [{"name": TOPIC, "partitions": rows}], "timeout": 30_000}
            answer = await asyncio.to_thread(other.call, "delete_records", DELETE_RECORDS, request)
            assert answer.fields["topics"][0]["partitions"][0]["error_code"] == 0
            storage.gate.set()
            answer = await asyncio.to_thread(slow.receive, "fetch", FETCH, asked)
            if record_bytes == 90_000 and offset == 0:
                assert offsets_in(answer) == [[0, 1]]
            else:
                assert answer.fields["responses"][0]["partitions"][0]["error_code"] == OFFSET_OUT_OF_RANGE
            tail = await asyncio.to_thread(other.call, "fetch", FETCH, fetch(BATCHES - 1))
            assert offsets_in(tail) == [[BATCHES - 1]]


async def test_an_offset_is_found_by_time_in_cold_segments(tmp_path: Path) -> None:
    async with with_cold_log(tmp_path / "data") as (gateway, storage):
        with Wire(bootstrap(gateway)) as slow, Wire(bootstrap(gateway)) as other:
            rows = [{"partition_index": 0, "timestamp": 3, "current_leader_epoch": -1}]
            request = {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": rows}]}
            asked = slow.send("list_offsets", LIST_OFFSETS, request)
            await eventually(lambda: bool(storage.asked), "the disk is asked")
            assert await asyncio.to_thread(produce, other, BATCHES, 10) == BATCHES
            storage.gate.set()
            answer = await asyncio.to_thread(slow.receive, "list_offsets", LIST_OFFSETS, asked)
            assert answer.fields["topics"][0]["partitions"][0]["offset"] == 3
        assert not storage.waited_for


@SIZES
@pytest.mark.parametrize("off", ["by its setting", "by the system"])
async def test_where_it_is_off_the_disk_is_waited_for(tmp_path: Path, record_bytes: int, off: str) -> None:
    settings = ["seqgate.catch.up.threads=0"] if off == "by its setting" else []
    async with with_cold_log(tmp_path / "data", *settings, record_bytes=record_bytes) as (gateway, storage):
        if not settings:
            storage.tells_cached = False
        with Wire(bootstrap(gateway)) as wire:
            answer = await asyncio.to_thread(wire.call, "fetch", FETCH, fetch(0))
            assert offsets_in(answer) == [[0, 1]]
        assert not storage.asked
        assert storage.waited_for


@SIZES
async def test_what_does_not_stay_cached_is_read_all_the_same(tmp_path: Path, record_bytes: int) -> None:
    """Memory is so short that data leaves the page cache before it is sent. The gateway then waits for the
    disk.
    """
    async with with_cold_log(tmp_path / "data", record_bytes=record_bytes) as (gateway, storage):
        storage.keeps = False
        storage.gate.set()
        with Wire(bootstrap(gateway)) as wire:
            answer = await asyncio.to_thread(wire.call, "fetch", FETCH, fetch(1))
            assert offsets_in(answer) == [[1]]
            rows = [{"partition_index": 0, "timestamp": 3, "current_leader_epoch": -1}]
            request = {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": rows}]}
            answer = await asyncio.to_thread(wire.call, "list_offsets", LIST_OFFSETS, request)
            assert answer.fields["topics"][0]["partitions"][0]["offset"] == 3


async def test_a_gateway_that_stops_sends_what_the_disk_still_owes(tmp_path: Path) -> None:
    with ExitStack() as stack:
        async with with_cold_log(tmp_path / "data") as (gateway, storage):
            wire = stack.enter_context(Wire(bootstrap(gateway)))
            asked = wire.send("fetch", FETCH, fetch(0))
            await eventually(lambda: bool(storage.asked), "the disk is asked")
        assert offsets_in(wire.receive("fetch", FETCH, asked)) == [[0, 1]]
