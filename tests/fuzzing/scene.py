"""A whole gateway in this process, with topics, groups and a transaction; a target feeds bytes to its
connections.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from kio.static.constants import EntityType

from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.protocol.frames import topic_id_text
from seqgate.gateway.server.connection import Connection
from tests.fuzzing.composed_requests import (
    CLIENT_ID,
    GROUPS,
    LETTERS,
    MEMBER_ID,
    TOPIC_IDS,
    TOPICS,
    TRANSACTION,
)
from tests.fuzzing.target import Breach
from tests.support import wire
from tests.support.batches import Batch, Record
from tests.support.group_configs import GROUP_RESOURCE

PROBE = "probe"
COMMITTER = "committer"
COMMITTED_OFFSET = 2
MEMORY = Path("/dev/shm")
SETTLED_TURNS = 3
MOST_TURNS = 300
ANSWER_TIMEOUT_S = 60.0
_SETTINGS = (
    "listeners=PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "share.coordinator.state.topic.num.partitions=1",
    "errors.deadletterqueue.topic.name.prefix=",
    "group.initial.rebalance.delay.ms=0",
    "group.streams.initial.rebalance.delay.ms=0",
    # The gateway has an authorizer, so that requests about access control lists take effect. The client is a
    # super user, so that no entry can refuse it.
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
)


class Complaints(logging.Handler):
    """Collects the failures that the gateway logs; no input may cause one.

    A traceback is always a failure. An error line is one unless it reports `damage` to the files.
    """

    def __init__(self, *, damage: bool = False) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        self._damage = damage

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or (record.levelno >= logging.ERROR and not self._damage):
            self.said.append(logging.Formatter().format(record))

    def check(self) -> None:
        """Raise Breach when a failure was logged."""
        said, self.said = self.said, []
        if said:
            raise Breach("the gateway logged a failure of its own: " + "\n".join(said))

    def heard(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an exception that reached the event loop."""
        self.said.append(f"{context.get('message')}: {context.get('exception')!r}")


class Client(asyncio.Protocol):
    """The client's end of a connection."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_closed = False
        self.transport: asyncio.Transport
        self._changed = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._changed.set()

    async def answer(self) -> bytes:
        """Return the next answer, without its length. Raises Breach when there is none."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while len(self.received) < 4 or len(self.received) < 4 + int.from_bytes(self.received[:4], "big"):
                if self.is_closed:
                    raise Breach("the connection of a well-behaved client was closed")
                self._changed.clear()
                await self._changed.wait()
        size = 4 + int.from_bytes(self.received[:4], "big")
        frame = bytes(self.received[4:size])
        del self.received[:size]
        return frame


class Scene:
    """The gateway, with its topics and groups."""

    def __init__(self, gateway: Gateway, complaints: Complaints) -> None:
        self.gateway = gateway
        self.complaints = complaints
        self.member_id = MEMBER_ID
        self._loop = asyncio.get_running_loop()
        self._honest: Client
        self._pairs: list[socket.socket] = []

    async def connect(self) -> tuple[Client, Connection]:
        """Return both ends of a new connection."""
        ours, theirs = socket.socketpair()
        _, connection = await self._loop.create_unix_connection(
            lambda: Connection(self.gateway.server, "PLAINTEXT"), sock=theirs
        )
        _, client = await self._loop.create_unix_connection(Client, sock=ours)
        return client, connection

    async def ask(
        self, api: str, version: int, client: Client | None = None, **request: Any
    ) -> dict[str, Any]:
        """Send a well-formed request; return its answer."""
        client = client or self._honest
        flexible = wire.entity(api, version, EntityType.request).__flexible__
        frame = wire.encode_header(wire.API_KEYS[api], version, 1, flexible=flexible, client_id=CLIENT_ID)
        frame += wire.encode_body(api, version, request)
        client.transport.write(len(frame).to_bytes(4, "big") + frame)
        return wire.decode(api, version, await client.answer()).fields

    async def begin_asking(self) -> None:
        """Connect the client that `ask` uses."""
        self._honest, _ = await self.connect()

    async def set_up(self) -> None:
        """Create the topics, groups and records that requests can name."""
        await self.begin_asking()
        configs = {
            "compacted": [{"name": "cleanup.policy", "value": "compact"}],
            "delayed": [{"name": "delivery.delay.header", "value": "deliver-at-ms"}],
            LETTERS: [{"name": "errors.deadletterqueue.group.enable", "value": "true"}],
        }
        topics = [
            {"name": name, "num_partitions": 2, "replication_factor": 1, "configs": configs.get(name, [])}
            for name in (*TOPICS, PROBE)
        ]
        await self.ask("create_topics", 5, topics=topics, timeout=30_000)
        for topic in TOPICS:
            for batch in (Batch((Record(b"v", b"key"),) * 3), Batch((Record(b"w", b"key"),), codec="lz4")):
                await self._produce(topic, batch)
        await self._join()
        topic_id = topic_id_text(
            self.gateway.services.topics.metadata_log.image.topics_by_name["plain"].topic_id
        )
        await self._configure_share_group()
        for kind, key in ((0, GROUPS[1]), (0, GROUPS[3]), (1, TRANSACTION), (2, f"{GROUPS[2]}:{topic_id}:0")):
            await self.ask("find_coordinator", 4, key_type=kind, coordinator_keys=[key])
        await self._begin_transaction()
        heartbeat = {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["plain"]}
        await self.ask(
            "consumer_group_heartbeat",
            0,
            group_id=GROUPS[1],
            rebalance_timeout=60_000,
            topic_partitions=[],
            **heartbeat,
        )
        await self.ask("share_group_heartbeat", 1, group_id=GROUPS[2], **heartbeat)
        await self._join_streams_group()
        partitions = [{"partition_index": 0, "committed_offset": COMMITTED_OFFSET}]
        topics = [{"name": "plain", "partitions": partitions}]
        await self.ask(
            "offset_commit", 7, group_id=COMMITTER, generation_id_or_member_epoch=-1, topics=topics
        )
        await self.probe()

    async def _produce(self, topic: str, batch: Batch, transactional_id: str | None = None) -> None:
        data = {"topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": batch.encode()}]}]}
        answer = await self.ask(
            "produce", 9, acks=-1, timeout=30_000, transactional_id=transactional_id, **data
        )
        row = answer["responses"][0]["partition_responses"][0]
        if row["error_code"]:
            raise Breach(f"a sound batch was refused: {row}")

    async def _join(self) -> None:
        await self.ask("find_coordinator", 3, key=GROUPS[0], key_type=0)
        join = {
            "group_id": GROUPS[0],
            "session_timeout": 300_000,
            "rebalance_timeout": 300_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\5plain\xff\xff\xff\xff"}],
        }
        client, _ = await self.connect()
        self.member_id = (await self.ask("join_group", 3, client, **join))["member_id"]
        if len(self.member_id) != len(MEMBER_ID):
            raise Breach(f"the member id is {self.member_id!r}")
        client.transport.abort()

    async def _configure_share_group(self) -> None:
        """Let the share group read from the first record on, retry, and put aside what is rejected."""
        configs = {
            "share.auto.offset.reset": "earliest",
            "errors.deadletterqueue.topic.name": LETTERS,
            "errors.deadletterqueue.copy.record.enable": "true",
            "seqgate.share.retry.backoff.ms": "0,1",
        }
        rows = [{"name": name, "config_operation": 0, "value": value} for name, value in configs.items()]
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": GROUPS[2], "configs": rows}
        answer = await self.ask("incremental_alter_configs", 1, resources=[resource])
        if answer["responses"][0]["error_code"]:
            raise Breach(f"the share group can't be configured: {answer}")

    async def _join_streams_group(self) -> None:
        subtopology = {"subtopology_id": "0", "source_topics": [TOPICS[0]]}
        answer = await self.ask(
            "streams_group_heartbeat",
            1,
            group_id=GROUPS[3],
            member_id="m",
            rebalance_timeout=300_000,
            topology={"epoch": 0, "subtopologies": [subtopology]},
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="p",
            client_tags=[],
        )
        if answer["error_code"]:
            raise Breach(f"the member of the streams group was refused: {answer}")

    async def _begin_transaction(self) -> None:
        begun = await self.ask(
            "init_producer_id", 2, transactional_id=TRANSACTION, transaction_timeout=600_000
        )
        producer = {"producer_id": begun["producer_id"], "producer_epoch": begun["producer_epoch"]}
        topics = [{"name": "plain", "partitions": [0]}]
        added = {f"v3_and_below_{name}": value for name, value in producer.items()}
        await self.ask(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_topics=topics,
            **added,
        )
        batch = Batch(attributes=0x10).of(producer["producer_id"], producer["producer_epoch"], 0)
        await self._produce("plain", batch, TRANSACTION)

    def translated(self, stream: bytes) -> bytes:
        """Return the bytes with the ids of this gateway in place of placeholders."""
        image = self.gateway.services.topics.metadata_log.image
        for name, placeholder in zip(TOPICS, TOPIC_IDS, strict=True):
            topic = image.topics_by_name.get(name)
            if topic is not None:
                stream = stream.replace(placeholder.bytes, topic.topic_id.bytes)
        return stream.replace(MEMBER_ID.encode(), self.member_id.encode())

    async def feed(self, stream: bytes) -> bytes:
        """Send bytes on a new connection, read answers for a while, and hang up."""
        client, connection = await self.connect()
        client.transport.write(self.translated(stream))
        settled = 0
        for _ in range(MOST_TURNS):
            await asyncio.sleep(0)
            settled = settled + 1 if client.is_closed or not connection.has_work else 0
            if settled > SETTLED_TURNS:
                break
        client.transport.abort()
        for _ in range(SETTLED_TURNS):
            await asyncio.sleep(0)
        return bytes(client.received)

    async def probe(self) -> None:
        """Check that another client still gets all its answers. Raises Breach."""
        await self.ask("api_versions", 2)
        await self._produce(PROBE, Batch())
        topic = {"topic": PROBE, "partitions": [{"partition": 0, "partition_max_bytes": 100}]}
        answer = await self.ask("fetch", 12, max_bytes=100, session_epoch=-1, replica_id=-1, topics=[topic])
        if not answer["responses"][0]["partitions"][0]["records"]:
            raise Breach("the produced records can't be read")


@asynccontextmanager
async def listening(*, damage: bool = False) -> AsyncIterator[Complaints]:
    """Collect the failures that the gateways of this process log."""
    complaints = Complaints(damage=damage)
    logging.getLogger().addHandler(complaints)
    asyncio.get_running_loop().set_exception_handler(complaints.heard)
    try:
        yield complaints
    finally:
        logging.getLogger().removeHandler(complaints)


@asynccontextmanager
async def running_gateway(directory: Path) -> AsyncIterator[Gateway]:
    """Run a gateway on this data directory. Raises the errors of its start."""
    gateway = Gateway(load_config(overrides=[f"log.dirs={directory}", *_SETTINGS]))
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Return a temporary directory, in memory if the system offers that."""
    path = Path(tempfile.mkdtemp(prefix="seqgate-fuzzed-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@asynccontextmanager
async def running_scene() -> AsyncIterator[Scene]:
    """Run a scene in a temporary directory, and delete the directory afterwards."""
    with temporary_directory() as directory:
        async with listening() as complaints, running_gateway(directory) as gateway:
            scene = Scene(gateway, complaints)
            await scene.set_up()
            complaints.check()
            yield scene
