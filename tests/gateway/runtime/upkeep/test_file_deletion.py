"""Deleting a topic with ten thousand segments, or all of its segments, while other requests are answered."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.upkeep.background_jobs import FileDeletion
from seqgate.log import LogDirectory, Storage
from seqgate.log.directory.stored_logs import CLEAN_SHUTDOWN, RECOVERY_POINTS, STORED_LOGS
from seqgate.log.files.checkpoints import decode_offsets, encode_offsets
from tests.gateway.handlers.requests import create, delete
from tests.gateway.handlers.support import NOW_MS, open_node
from tests.log.support import CountingStorage, delete_due, plant_segments
from tests.support.wire import decode, encode

SEGMENTS = 2_000
LARGEST_STEP = 800
"""The most disk operations that the event loop may do in one turn."""
PATIENCE_S = 300.0


class Connection:
    """A client connection in the gateway's own event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def call(self, api: str, version: int, request: dict[str, Any]) -> Any:
        payload = encode(api, version, request)
        self._writer.write(struct.pack(">i", len(payload)) + payload)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return decode(api, version, await self._reader.readexactly(size)).fields

    def close(self) -> None:
        self._writer.close()


def settings(data: Path) -> list[str]:
    return [
        f"log.dirs={data}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "log.retention.check.interval.ms=200",
        "seqgate.deletion.max.files.per.second=50000",
    ]


@asynccontextmanager
async def running(
    data: Path, storage: Storage
) -> AsyncIterator[tuple[Gateway, Callable[[], Awaitable[Connection]]]]:
    gateway = Gateway(load_config(overrides=settings(data)), Machine(storage=storage))
    await gateway.start()
    address = gateway.services.node.brokers.advertised["PLAINTEXT"]
    connections = []

    async def connect() -> Connection:
        connections.append(Connection(*await asyncio.open_connection(address.host, address.port)))
        return connections[-1]

    try:
        yield gateway, connect
    finally:
        for connection in connections:
            connection.close()
        await gateway.stop()


@pytest.fixture
async def large(tmp_path: Path) -> Path:
    """Return a data directory with the topic `large` of ten thousand durable segments, and `small` of one."""
    data = tmp_path / "data"
    configs: dict[str, str | None] = {"file.delete.delay.ms": "0", "retention.ms": "-1"}
    async with open_node(data) as node:
        await create(node, "large", configs=configs)
        await create(node, "small")
        assert node.services.partitions.registry.get("large", 0) is not None
        await node.services.partitions.flusher.idle()
        node.services.partitions.log_directory.close()
    plant_segments(data / "large-0", SEGMENTS)
    (data / CLEAN_SHUTDOWN).unlink()
    (data / STORED_LOGS).unlink(missing_ok=True)
    path = data / RECOVERY_POINTS
    points = decode_offsets(path.read_bytes(), str(path))
    path.write_bytes(encode_offsets(points | {("large", 0): SEGMENTS}))
    return data


class Turns:
    """Counts the storage's operations per turn of the event loop."""

    def __init__(self, storage: CountingStorage) -> None:
        self._storage = storage
        self._loop = asyncio.get_running_loop()
        self.counted = 0
        storage.turn()
        storage.largest = 0
        self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._storage.turn()
        self.counted += 1
        self._next = self._loop.call_soon(self._turn)

    def stop(self) -> None:
        self._next.cancel()


async def ask_until(connection: Connection, is_over: Callable[[], bool]) -> int:
    """Send ListOffsets until the work is over; return the number of answers."""
    answers = 0
    request = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "small", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    }
    async with asyncio.timeout(PATIENCE_S):
        while not is_over():
            answer = await connection.call("list_offsets", 6, request)
            assert answer["topics"][0]["partitions"][0]["error_code"] == 0
            answers += 1
    return answers


def count(data: Path, pattern: str) -> int:
    return sum(1 for _ in data.glob(pattern))


@pytest.mark.tier("all")
class TestThousandsOfSegments:
    async def test_of_a_deleted_topic(self, large: Path) -> None:
        storage = CountingStorage()
        async with running(large, storage) as (gateway, connect):
            log = gateway.services.partitions.log_directory.opened("large", 0)
            assert log is not None
            assert len(log.segments) == SEGMENTS
            deletions = gateway.services.partitions.log_directory.environment.deletions
            admin, other = await connect(), await connect()
            turns = Turns(storage)
            topics = [{"name": "large", "topic_id": None}]
            deleted = asyncio.create_task(
                admin.call("delete_topics", 6, {"topics": topics, "timeout": 300_000})
            )
            answers = await ask_until(other, lambda: deleted.done() and not deletions)
            turns.stop()
            assert (await deleted)["responses"][0]["error_code"] == 0
            assert count(large, "*-delete") == 0
        assert answers > 2
        assert storage.largest <= LARGEST_STEP

    async def test_of_a_topic_that_stays(self, large: Path) -> None:
        storage = CountingStorage()
        async with running(large, storage) as (gateway, connect):
            log = gateway.services.partitions.log_directory.get("large", 0)
            assert log is not None
            assert len(log.segments) == SEGMENTS
            deletions = gateway.services.partitions.log_directory.environment.deletions
            admin, other = await connect(), await connect()
            turns = Turns(storage)
            topics = [{"name": "large", "partitions": [{"partition_index": 0, "offset": -1}]}]
            asked = asyncio.create_task(
                admin.call("delete_records", 2, {"topics": topics, "timeout": 300_000})
            )
            answers = await ask_until(
                other, lambda: asked.done() and len(log.segments) == 1 and not deletions
            )
            turns.stop()
            assert (await asked)["topics"][0]["partitions"][0]["low_watermark"] == SEGMENTS
            assert count(large, "large-0/*.deleted") == 0
            assert count(large, "large-0/*.log") == 1
        assert answers > 2
        assert storage.largest <= LARGEST_STEP


class TestRate:
    async def test_files_of_a_second(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, "seqgate.deletion.max.files.per.second=7") as node:
            directory = node.services.partitions.log_directory
            await create(node, "flights", configs={"file.delete.delay.ms": "0"})
            assert node.services.partitions.registry.get("flights", 0) is not None
            for number in range(20):
                (tmp_path / "flights-0" / f"{number}").touch()
            await delete(node, "flights")
            job = FileDeletion(node.services.node.config, node.clock, directory)
            left = []
            while count(tmp_path, "*-delete"):
                await job.run()
                left.append(count(tmp_path, "*-delete/*"))
            assert job.is_idle, "the deleted paths need no memory any more"
            job.stop()
        first = left[0]
        assert left[:2] == [first, first - 7]
        assert len(left) >= 3

    async def test_after_a_large_file_the_next_waits(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, f"seqgate.deletion.max.bytes.per.second={1 << 20}") as node:
            directory = node.services.partitions.log_directory
            for number in range(2):
                path = tmp_path / f"{number}.deleted"
                with path.open("wb") as file:
                    file.truncate(3 << 20)
                directory.environment.deletions.add(str(path), NOW_MS)
            job = FileDeletion(node.services.node.config, node.clock, directory)
            left = []
            for _ in range(4):
                await job.run()
                left.append(count(tmp_path, "*.deleted"))
            job.stop()
        assert left == [1, 1, 1, 0]

    async def test_a_stop_leaves_the_rest_to_the_next_start(self, tmp_path: Path) -> None:
        async with open_node(tmp_path) as node:
            directory = node.services.partitions.log_directory
            await create(node, "flights", configs={"file.delete.delay.ms": "0"})
            assert node.services.partitions.registry.get("flights", 0) is not None
            await delete(node, "flights")
            FileDeletion(node.services.node.config, node.clock, directory).stop()
            assert count(tmp_path, "flights-0.*-delete") == 1
            directory.close()
        again = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS)
        delete_due(again.environment, NOW_MS)
        again.close()
        assert count(tmp_path, "*-delete") == 0
