"""A request of a connection that its client has given up does not touch the client's next transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.gateway.coordinator.transaction.records import ONGOING
from seqgate.gateway.handlers.answering.api import CloseConnection
from tests.gateway.handlers.asking import Asking, HungUp
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import Node, open_node
from tests.support.wire import Plain

CLOSED = HungUp, CloseConnection
TOPIC, NAME, GROUP = "t", "payments", "readers"


class Client:
    """A transactional producer of version 1 with one connection after another."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.fields: Plain = {}
        self.connections: list[Asking] = []

    def connect(self) -> Asking:
        connection = Asking(self._node)
        connection.peer.number = len(self.connections) + 1
        self.connections.append(connection)
        return connection

    async def begin(self) -> None:
        await create(self._node, TOPIC)
        await self._node.services.coordinators.transactions.ensure_topic()
        answer = await self.connect().ask(
            "init_producer_id",
            4,
            transactional_id=NAME,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        self.fields = {name: answer[name] for name in ("producer_id", "producer_epoch")}
        self.fields["transactional_id"] = NAME

    async def add(self, connection: Asking) -> None:
        fields = {f"v3_and_below_{name}": value for name, value in self.fields.items()}
        topics = [{"name": TOPIC, "partitions": [0]}]
        answer = await connection.ask("add_partitions_to_txn", 3, v3_and_below_topics=topics, **fields)
        (row,) = answer["results_by_topic_v3_and_below"][0]["results_by_partition"]
        assert row["partition_error_code"] == 0

    async def commit_offset(self, connection: Asking, offset: int) -> None:
        fields = {
            "producer_id": 0,
            "producer_epoch": 0,
            "group_id": GROUP,
            "generation_id": -1,
            "member_id": "",
        }
        row = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        fields |= {"group_instance_id": None, "topics": [{"name": TOPIC, "partitions": [row]}]} | self.fields
        answer = await connection.ask("txn_offset_commit", 3, **fields)
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0

    async def offset(self, connection: Asking) -> int:
        topics = [{"name": TOPIC, "partition_indexes": [0]}]
        answer = await connection.ask("offset_fetch", 7, group_id=GROUP, topics=topics, require_stable=True)
        found: int = answer["topics"][0]["partitions"][0]["committed_offset"]
        return found

    async def end(self, connection: Asking) -> int:
        code: int = (await connection.ask("end_txn", 4, committed=True, **self.fields))["error_code"]
        return code


async def test_an_end_that_was_sent_again_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        client = Client(node)
        await client.begin()
        old = client.connections[0]
        await client.add(old)
        new = client.connect()
        assert await client.end(new) == 0
        await client.add(new)

        with pytest.raises(CLOSED):
            await client.end(old)

        transaction = node.services.coordinators.transactions.find(NAME)
        assert transaction is not None
        assert transaction.state is ONGOING
        assert await client.end(client.connect()) == 0


async def test_no_late_request_begins_a_transaction(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        client = Client(node)
        await client.begin()
        old = client.connections[0]
        await client.add(old)
        assert await client.end(client.connect()) == 0

        with pytest.raises(CLOSED):
            await client.add(old)
        with pytest.raises(CLOSED):
            await old.ask("add_offsets_to_txn", 3, group_id=GROUP, **client.fields)

        transaction = node.services.coordinators.transactions.find(NAME)
        assert transaction is not None
        assert transaction.state is not ONGOING


async def test_late_offsets_do_not_replace_those_of_the_next_transaction(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        client = Client(node)
        await client.begin()
        old, new = client.connections[0], client.connect()
        for offset in (5, 9):
            await new.ask("add_offsets_to_txn", 3, group_id=GROUP, **client.fields)
            await client.commit_offset(new, offset)
            if offset == 5:
                assert await client.end(new) == 0

        with pytest.raises(CLOSED):
            await client.commit_offset(old, 5)

        assert await client.end(new) == 0
        assert await client.offset(new) == 9
