"""A gateway with a metrics listener in this process, and a small HTTP client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.services import Services
from tests.support.batches import Batch, records
from tests.support.gateway_process import free_port
from tests.support.metrics_text import Values, values_of
from tests.support.wire import Plain, Wire

LIMIT_S = 120.0
"""A test fails when an answer takes longer."""
FEW = (
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "share.coordinator.state.topic.num.partitions=1",
    "group.initial.rebalance.delay.ms=0",
)


@dataclass(frozen=True)
class Reply:
    """An answer to an HTTP request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class HttpClient:
    """One connection to a metrics listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def reply(self, *, has_body: bool = True) -> Reply:
        async with asyncio.timeout(LIMIT_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)
            }
            body = await self.reader.readexactly(int(headers["content-length"])) if has_body else b""
        return Reply(int(first.split()[1]), headers, body)

    async def ended(self) -> bytes:
        """Return what comes until the gateway closes the connection."""
        async with asyncio.timeout(LIMIT_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


@dataclass
class Scene:
    """A gateway with a metrics listener."""

    gateway: Gateway
    port: int

    @property
    def services(self) -> Services:
        return self.gateway.services

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[HttpClient]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield HttpClient(reader, writer)
        finally:
            writer.transport.abort()

    async def get(
        self, target: str, *, method: str = "GET", accept: str = "*/*", host: str = "127.0.0.1"
    ) -> Reply:
        async with self.connected() as client:
            client.send(
                f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nConnection: "
                "close\r\n\r\n".encode()
            )
            return await client.reply(has_body=method != "HEAD")

    async def values(self, accept: str = "*/*") -> Values:
        reply = await self.get("/metrics", accept=accept)
        assert reply.status == 200, reply.text
        return values_of(reply.text)

    @asynccontextmanager
    async def wire(self) -> AsyncIterator[AsyncWire]:
        endpoint = self.services.node.brokers.advertised["PLAINTEXT"]
        wire = await asyncio.to_thread(Wire, f"{endpoint.host}:{endpoint.port}")
        try:
            yield AsyncWire(wire)
        finally:
            wire.close()


class AsyncWire:
    """A Kafka client that leaves the event loop to the gateway while it waits."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    async def call(self, api: str, version: int, /, **fields: Any) -> Plain:
        return (await asyncio.to_thread(self.wire.call, api, version, fields)).fields

    async def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        rows = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": rows}
        answer = await self.call("create_topics", 7, topics=[topic], timeout=10_000)
        assert not answer["topics"][0]["error_code"], answer

    async def delete(self, name: str) -> None:
        topics = [{"name": name, "topic_id": None}]
        answer = await self.call("delete_topics", 6, topics=topics, timeout=10_000)
        assert not answer["responses"][0]["error_code"], answer

    async def produce(self, topic: str, batch: Batch | None = None, index: int = 0) -> Plain:
        """Produce one batch; return the row of its partition."""
        data = (batch or Batch(records(1))).encode()
        rows = [{"name": topic, "partition_data": [{"index": index, "records": data}]}]
        answer = await self.call("produce", 9, acks=-1, timeout=10_000, topic_data=rows)
        row: Plain = answer["responses"][0]["partition_responses"][0]
        return row

    async def fetch(self, topic: str, index: int = 0, offset: int = 0) -> bytes:
        """Fetch all records from an offset on; return their bytes."""
        place = {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 24,
        }
        answer = await self.call(
            "fetch",
            12,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=1 << 24,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": topic, "partitions": [place]}],
            forgotten_topics_data=[],
            rack_id="",
        )
        found: bytes = answer["responses"][0]["partitions"][0]["records"] or b""
        return found

    async def commit(self, group: str, topic: str, offset: int) -> int:
        """Commit an offset of a group without members; return the error code."""
        while (error := await self._commit(group, topic, offset)) in (14, 15, 16):
            await self.call("find_coordinator", 3, key=group, key_type=0)
        return error

    async def _commit(self, group: str, topic: str, offset: int) -> int:
        place = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
        answer = await self.call(
            "offset_commit",
            8,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"name": topic, "partitions": [place]}],
        )
        return int(answer["topics"][0]["partitions"][0]["error_code"])


@asynccontextmanager
async def running(path: Path, *overrides: str, host: str = "127.0.0.1") -> AsyncIterator[Scene]:
    """Run a gateway on a data directory."""
    port = free_port()
    gateway = Gateway(
        load_config(
            overrides=[
                f"log.dirs={path}",
                "listeners=PLAINTEXT://127.0.0.1:0",
                f"seqgate.metrics.listener={host}:{port}",
                *FEW,
                *overrides,
            ]
        )
    )
    await gateway.start()
    try:
        yield Scene(gateway, port)
    finally:
        await gateway.stop()
