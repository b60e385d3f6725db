"""Producer ids and transactions need rights on the transactional id, its group and its topics."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from seqgate.gateway.handlers.transactions import describe_producers
from seqgate.gateway.handlers.transactions.transactions import DESCRIBE_TRANSACTIONS_API
from seqgate.gateway.security.acls.access import Operation, ResourceType
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.support.batches import Batch, records
from tests.support.wire import Plain

NONE, UNKNOWN, INVALID_TOPIC, INVALID_REQUEST, NOT_ATTEMPTED = 0, 3, 17, 42, 55
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, ID_DENIED = 29, 30, 31, 53
GROUP, TOPIC, CLUSTER, ID = (
    ResourceType.GROUP,
    ResourceType.TOPIC,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
NAMES: Final = ["mine", "hidden", "none"]
"""A topic with the right, a topic without, and a name without either topic or right."""
THE_CLUSTER: Final = "kafka-cluster"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as opened:
        for name in ("mine", "hidden"):
            await create(opened, name)
        for key_type in (0, 1):
            await Asking(opened).ask("find_coordinator", 4, key_type=key_type, coordinator_keys=["x"])
        yield opened


@pytest.fixture
def client(node: Node) -> Asking:
    return Asking(node)


@pytest.fixture
async def producer(client: Asking) -> Plain:
    """The producer of the transactional id tx, which began before rights were asked for."""
    answer = await begin(client)
    assert answer["error_code"] == NONE
    return {"producer_id": answer["producer_id"], "producer_epoch": answer["producer_epoch"]}


@pytest.fixture
def rights(node: Node, producer: Plain) -> Rights:
    """The rights of every client: none at first."""
    rights = Rights()
    node.services.node.access = rights
    return rights


async def begin(client: Asking, version: int = 4, **more: Any) -> Plain:
    fields: Plain = {"transactional_id": "tx", "transaction_timeout": 60_000}
    if version >= 3:
        fields |= {"producer_id": -1, "producer_epoch": -1}
    return await client.ask("init_producer_id", version, **{**fields, **more})


class TestInitProducerId:
    @pytest.mark.parametrize("version", [0, 3, 5])
    async def test_with_a_transactional_id(self, client: Asking, rights: Rights, version: int) -> None:
        answer = await begin(client, version)
        assert (answer["error_code"], answer["producer_id"], answer["producer_epoch"]) == (ID_DENIED, -1, -1)
        rights.allow(WRITE, ID, "tx")
        assert (await begin(client, version))["error_code"] == NONE

    @pytest.mark.parametrize(
        "right", [(Operation.IDEMPOTENT_WRITE, CLUSTER, THE_CLUSTER), (WRITE, TOPIC, "missing")]
    )
    async def test_without_one(
        self, client: Asking, rights: Rights, right: tuple[Operation, ResourceType, str]
    ) -> None:
        answer = await begin(client, transactional_id=None)
        assert (answer["error_code"], answer["producer_id"]) == (CLUSTER_DENIED, -1)
        rights.allow(*right)
        assert (await begin(client, transactional_id=None))["error_code"] == NONE

    async def test_the_right_comes_before_other_errors(self, client: Asking, rights: Rights) -> None:
        assert (await begin(client, producer_epoch=3))["error_code"] == ID_DENIED
        rights.allow(WRITE, ID, "tx")
        assert (await begin(client, producer_epoch=3))["error_code"] == INVALID_REQUEST


class TestAddPartitions:
    async def add(self, client: Asking, producer: Plain, *names: str, version: int = 3) -> dict[str, int]:
        fields = {f"v3_and_below_{key}": value for key, value in producer.items()}
        topics = [{"name": name, "partitions": [0]} for name in names]
        answer = await client.ask(
            "add_partitions_to_txn",
            version,
            v3_and_below_transactional_id="tx",
            v3_and_below_topics=topics,
            **fields,
        )
        return {
            topic["name"]: row["partition_error_code"]
            for topic in answer["results_by_topic_v3_and_below"]
            for row in topic["results_by_partition"]
        }

    @pytest.mark.parametrize("version", [0, 3])
    async def test_from_a_client(self, client: Asking, rights: Rights, producer: Plain, version: int) -> None:
        assert await self.add(client, producer, *NAMES, version=version) == dict.fromkeys(NAMES, ID_DENIED)
        rights.allow(WRITE, ID, "tx")
        rights.allow(WRITE, TOPIC, "mine")
        expected = {"mine": NOT_ATTEMPTED, "hidden": TOPIC_DENIED, "none": TOPIC_DENIED}
        assert await self.add(client, producer, *NAMES, version=version) == expected
        rights.allow(WRITE, TOPIC, "none")
        assert (await self.add(client, producer, *NAMES, version=version))["none"] == UNKNOWN
        assert await self.add(client, producer, "mine", version=version) == {"mine": NONE}

    @pytest.mark.parametrize("version", [4, 5])
    async def test_from_a_broker(self, client: Asking, rights: Rights, producer: Plain, version: int) -> None:
        topics = [{"name": "hidden", "partitions": [0]}]
        transactions = [{"transactional_id": "tx", **producer, "verify_only": False, "topics": topics}]
        answer = await client.ask("add_partitions_to_txn", version, transactions=transactions)
        assert (answer["error_code"], answer["results_by_transaction"]) == (CLUSTER_DENIED, [])
        rights.allow(Operation.CLUSTER_ACTION, CLUSTER, THE_CLUSTER)
        answer = await client.ask("add_partitions_to_txn", version, transactions=transactions)
        (result,) = answer["results_by_transaction"]
        assert result["topic_results"][0]["results_by_partition"][0]["partition_error_code"] == NONE


async def test_adding_offsets_needs_the_id_and_then_the_group(
    client: Asking, rights: Rights, producer: Plain
) -> None:
    async def add() -> int:
        fields = {"transactional_id": "tx", "group_id": "g", **producer}
        return int((await client.ask("add_offsets_to_txn", 3, **fields))["error_code"])

    assert await add() == ID_DENIED
    rights.allow(WRITE, ID, "tx")
    assert await add() == GROUP_DENIED
    rights.allow(READ, GROUP, "g")
    assert await add() == NONE


@pytest.mark.parametrize("version", [0, 3, 5])
async def test_committing_offsets_needs_the_id_the_group_and_the_topics(
    client: Asking, rights: Rights, producer: Plain, version: int
) -> None:
    topics = [{"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]} for name in NAMES]

    async def commit() -> dict[str, int]:
        fields = {"transactional_id": "tx", "group_id": "g", **producer, "topics": topics}
        answer = await client.ask("txn_offset_commit", version, **fields)
        return {topic["name"]: row["error_code"] for topic in answer["topics"] for row in topic["partitions"]}

    assert await commit() == dict.fromkeys(NAMES, ID_DENIED)
    rights.allow(WRITE, ID, "tx")
    assert await commit() == dict.fromkeys(NAMES, GROUP_DENIED)
    rights.allow(READ, GROUP, "g")
    assert await commit() == dict.fromkeys(NAMES, TOPIC_DENIED)
    rights.allow(READ, TOPIC, "none")
    assert await commit() == {"mine": TOPIC_DENIED, "hidden": TOPIC_DENIED, "none": UNKNOWN}
    rights.allow(READ, TOPIC, "mine")
    await client.ask("add_offsets_to_txn", 3, transactional_id="tx", group_id="g", **producer)
    assert (await commit())["mine"] == NONE


@pytest.mark.parametrize("version", [0, 5])
async def test_ending_needs_the_id(client: Asking, rights: Rights, producer: Plain, version: int) -> None:
    fields = {"transactional_id": "tx", **producer, "committed": False}
    answer = await client.ask("end_txn", version, **fields)
    assert answer["error_code"] == ID_DENIED
    assert answer.get("producer_id", -1) == -1
    rights.allow(WRITE, ID, "tx")
    assert (await client.ask("end_txn", version, **fields))["error_code"] != ID_DENIED


@pytest.mark.parametrize("right", [Operation.ALTER, Operation.CLUSTER_ACTION])
async def test_markers_need_a_right_on_the_cluster(
    client: Asking, rights: Rights, producer: Plain, right: Operation
) -> None:
    marker = {
        **producer,
        "transaction_result": False,
        "topics": [{"name": name, "partition_indexes": [0]} for name in ("mine", "none")],
        "coordinator_epoch": 0,
    }

    async def write() -> list[int]:
        answer = await client.ask("write_txn_markers", 1, markers=[marker])
        (row,) = answer["markers"]
        return [part["error_code"] for topic in row["topics"] for part in topic["partitions"]]

    before = await write()
    rights.allow(right, CLUSTER, THE_CLUSTER)
    assert (before, await write()) == ([CLUSTER_DENIED, CLUSTER_DENIED], [NONE, UNKNOWN])


async def test_producers_are_described_in_topics_that_may_be_read(client: Asking, rights: Rights) -> None:
    rights.allow(READ, TOPIC, "mine")
    topics = [{"name": name, "partition_indexes": [0]} for name in (*NAMES, "no name")]
    answer = await client.ask("describe_producers", 0, topics=topics)
    errors = {topic["name"]: topic["partitions"][0]["error_code"] for topic in answer["topics"]}
    assert errors == {"mine": NONE, "hidden": TOPIC_DENIED, "none": TOPIC_DENIED, "no name": INVALID_TOPIC}


async def test_describing_hides_ids_and_topics(client: Asking, node: Node, producer: Plain) -> None:
    await TestAddPartitions().add(client, producer, "mine", "hidden")
    rights = node.services.node.access = Rights()

    async def described() -> list[tuple[int, str, list[str]]]:
        answer = await client.ask("describe_transactions", 0, transactional_ids=["tx", "none", ""])
        return [
            (row["error_code"], row["transaction_state"], [topic["topic"] for topic in row["topics"]])
            for row in answer["transaction_states"]
        ]

    assert await described() == [(ID_DENIED, "", [])] * 3
    rights.allow(DESCRIBE, ID, "tx")
    assert (await described())[0] == (NONE, "Ongoing", [])
    rights.allow(DESCRIBE, TOPIC, "mine")
    assert (await described())[0] == (NONE, "Ongoing", ["mine"])


async def test_clients_are_told_to_whom_may_describe_the_cluster(node: Node, producer: Plain) -> None:
    """Addresses and principals of others are no business of whoever reads a topic."""
    data = (
        replace(Batch(records(1)), base_timestamp=NOW_MS)
        .of(producer["producer_id"], producer["producer_epoch"], 0)
        .encode()
    )
    partition = node.services.partitions.registry.get("mine", 0)
    assert partition is not None
    partition.append(data, node.clock.now_ms())
    rights = node.services.node.access = Rights((READ, TOPIC, "mine"), (DESCRIBE, ID, "tx"))

    async def clients() -> list[str | None]:
        producers = await node.ask(
            describe_producers.API,
            0,
            lambda module: {"topics": (module.TopicRequest(name="mine", partition_indexes=(0,)),)},
        )
        transactions = await node.ask(
            DESCRIBE_TRANSACTIONS_API, 0, lambda _: {"transactional_ids": ("tx", "none")}
        )
        rows = [*producers.topics[0].partitions[0].active_producers, *transactions.transaction_states]
        return [row.client for row in rows]

    assert await clients() == [None] * 3
    rights.allow(DESCRIBE, CLUSTER, THE_CLUSTER)
    *known, unknown = await clients()
    told = {"client_id": "wire", "address": "127.0.0.1", "principal": "User:ANONYMOUS", "library": None}
    assert [json.loads(text or "") for text in known] == [told] * 2
    assert unknown is None


async def test_listing_shows_ids_that_may_be_described(client: Asking, node: Node, producer: Plain) -> None:
    await begin(client, transactional_id="other")
    node.services.node.access = Rights((DESCRIBE, ID, "other"))
    answer = await client.ask("list_transactions", 0)
    assert [row["transactional_id"] for row in answer["transaction_states"]] == ["other"]
