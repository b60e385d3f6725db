"""Share groups need rights on the group and its topics; a refusal does not reveal what exists."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from seqgate.gateway.security.acls.access import Operation, ResourceType
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.support.batches import Batch, records
from tests.support.wire import NO_TOPIC_ID, Plain

NONE, UNKNOWN, INVALID_REQUEST, UNKNOWN_ID = 0, 3, 42, 100
TOPIC_DENIED, GROUP_DENIED = 29, 30
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
READ, DESCRIBE, DELETE = Operation.READ, Operation.DESCRIBE, Operation.DELETE
NAMES: Final = ["mine", "hidden", "none"]
"""A topic with the right, a topic without, and a name without either topic or right."""
JOINS: Final[Plain] = {"group_id": "g", "member_id": "m", "member_epoch": 0}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """Return a node with a record in each topic, and with a share group that has a member."""
    async with open_node(tmp_path) as opened:
        client = Asking(opened)
        earliest = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
        resource = {"resource_type": 32, "resource_name": "g", "configs": [earliest]}
        await client.ask("incremental_alter_configs", 1, resources=[resource], validate_only=False)
        for name in ("mine", "hidden"):
            await create(opened, name)
            data = Batch(records(1), base_timestamp=NOW_MS).encode()
            topic = {"name": name, "partition_data": [{"index": 0, "records": data}]}
            await client.ask("produce", 9, transactional_id=None, acks=-1, timeout=1000, topic_data=[topic])
        joins = {**JOINS, "subscribed_topic_names": ["mine", "hidden"]}
        assert (await client.ask("share_group_heartbeat", 1, **joins))["error_code"] == NONE
        yield opened


@pytest.fixture
def rights(node: Node) -> Rights:
    """The rights of every client: none at first."""
    rights = Rights()
    node.services.node.access = rights
    return rights


@pytest.fixture
def client(node: Node) -> Asking:
    return Asking(node)


def topic_id(node: Node, name: str) -> str:
    return str(node.services.partitions.registry.by_name[name].topic_id)


async def fetch(client: Asking, ids: list[str], *, epoch: int = 0, **more: Any) -> Plain:
    topics = [{"topic_id": each, "partitions": [{"partition_index": 0, **more}]} for each in ids]
    return await client.ask(
        "share_fetch",
        1,
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        topics=topics,
        max_wait=0,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=10,
        batch_size=10,
    )


def rows(answer: Plain) -> dict[str, Plain]:
    return {topic["topic_id"]: row for topic in answer["responses"] for row in topic["partitions"]}


async def test_a_hidden_topic_refuses_the_heartbeat(client: Asking, rights: Rights) -> None:
    rights.allow(READ, GROUP, "g")
    rights.allow(DESCRIBE, TOPIC, "mine")

    async def beat(**more: Any) -> int:
        return int((await client.ask("share_group_heartbeat", 1, **{**JOINS, **more}))["error_code"])

    for name in ("hidden", "none"):
        assert await beat(subscribed_topic_names=["mine", name]) == TOPIC_DENIED
    assert await beat(subscribed_topic_names=["mine"]) == NONE
    # the member id is checked before the topics, and the rest after them
    assert await beat(subscribed_topic_names=["hidden"], member_id="") == INVALID_REQUEST
    assert await beat(subscribed_topic_names=["hidden"], member_epoch=-7) == TOPIC_DENIED


@pytest.mark.parametrize("api", ["share_fetch", "share_acknowledge"])
async def test_a_refused_group_is_refused_before_anything_else(
    client: Asking, rights: Rights, api: str
) -> None:
    fields = {"group_id": "g", "member_id": "", "share_session_epoch": 7}
    answer = await client.ask(api, 1, **fields)
    assert (answer["error_code"], answer["responses"]) == (GROUP_DENIED, [])
    rights.allow(READ, GROUP, "g")
    assert (await client.ask(api, 1, **fields))["error_code"] == INVALID_REQUEST


async def test_a_fetch_reads_topics_that_the_client_may_read(
    node: Node, client: Asking, rights: Rights
) -> None:
    mine, hidden, nobodys = topic_id(node, "mine"), topic_id(node, "hidden"), NO_TOPIC_ID[:-1] + "7"
    rights.allow(READ, GROUP, "g")
    rights.allow(READ, TOPIC, "mine")
    found = rows(await fetch(client, [mine, hidden, nobodys]))
    errors = {each: row["error_code"] for each, row in found.items()}
    assert errors == {mine: NONE, hidden: TOPIC_DENIED, nobodys: UNKNOWN_ID}
    assert found[mine]["acquired_records"]
    assert not found[hidden]["acquired_records"]
    # The session keeps the topic, so each request checks the right on it again.
    rights.allow(READ, TOPIC, "hidden")
    found = rows(await fetch(client, [], epoch=1))
    assert found[hidden]["error_code"] == NONE
    assert found[hidden]["acquired_records"]


async def test_an_acknowledgement_needs_the_topic(node: Node, client: Asking, rights: Rights) -> None:
    rights.allow(READ, GROUP, "g")
    for name in ("mine", "hidden"):
        rights.allow(READ, TOPIC, name)
    mine, hidden, nobodys = topic_id(node, "mine"), topic_id(node, "hidden"), NO_TOPIC_ID[:-1] + "7"
    assert len(rows(await fetch(client, [mine, hidden]))) == 2
    rights.deny(READ, TOPIC, "hidden")
    accepts = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]

    async def acknowledge(epoch: int, batches: list[Plain]) -> dict[str, int]:
        topics = [
            {"topic_id": each, "partitions": [{"partition_index": 0, "acknowledgement_batches": batches}]}
            for each in (mine, hidden, nobodys)
        ]
        fields = {"group_id": "g", "member_id": "m", "share_session_epoch": epoch, "topics": topics}
        answer = await client.ask("share_acknowledge", 1, **fields)
        return {each: row["error_code"] for each, row in rows(answer).items()}

    assert await acknowledge(1, accepts) == {mine: NONE, hidden: TOPIC_DENIED, nobodys: UNKNOWN_ID}
    malformed = [{"first_offset": 1, "last_offset": 0, "acknowledge_types": [1]}]
    assert (await acknowledge(2, malformed))[hidden] == INVALID_REQUEST
    # acknowledgements that a fetch carries
    found = rows(await fetch(client, [hidden], epoch=3, acknowledgement_batches=accepts))
    assert found[hidden]["acknowledge_error_code"] == TOPIC_DENIED
    rights.allow(READ, TOPIC, "hidden")
    assert (await acknowledge(4, accepts))[hidden] == NONE


async def test_describing_needs_the_assigned_topics(client: Asking, rights: Rights) -> None:
    async def described() -> tuple[int, int]:
        (group,) = (await client.ask("share_group_describe", 1, group_ids=["g"]))["groups"]
        return group["error_code"], len(group["members"])

    assert await described() == (GROUP_DENIED, 0)
    rights.allow(DESCRIBE, GROUP, "g")
    rights.allow(DESCRIBE, TOPIC, "mine")
    assert await described() == (TOPIC_DENIED, 0)
    rights.allow(DESCRIBE, TOPIC, "hidden")
    assert await described() == (NONE, 1)


async def test_offsets_are_described_in_topics_that_may_be_described(client: Asking, rights: Rights) -> None:
    async def described(names: list[str] | None) -> tuple[int, dict[str, tuple[int, str | None]]]:
        topics = None if names is None else [{"topic_name": name, "partitions": [0]} for name in names]
        asked = [{"group_id": "g", "topics": topics}]
        (group,) = (await client.ask("describe_share_group_offsets", 0, groups=asked))["groups"]
        found = {
            topic["topic_name"]: (topic["partitions"][0]["error_code"], topic["topic_id"])
            for topic in group["topics"]
        }
        return group["error_code"], found

    assert await described(NAMES) == (GROUP_DENIED, {})
    rights.allow(DESCRIBE, GROUP, "g")
    rights.allow(DESCRIBE, TOPIC, "mine")
    error, found = await described(NAMES)
    assert (error, found["mine"][0]) == (NONE, NONE)
    assert {found["hidden"], found["none"]} == {(TOPIC_DENIED, None)}
    error, found = await described(None)
    assert (error, list(found)) == (NONE, ["mine"])


@pytest.mark.parametrize(
    ("api", "right"), [("alter_share_group_offsets", READ), ("delete_share_group_offsets", DELETE)]
)
async def test_offsets_are_changed_in_topics_that_may_be_read(
    client: Asking, node: Node, api: str, right: Operation
) -> None:
    await client.ask("share_group_heartbeat", 1, **{**JOINS, "member_epoch": -1})
    rights = node.services.node.access = Rights()

    async def change() -> tuple[int, dict[str, tuple[int, str | None]]]:
        topics: list[Plain] = [{"topic_name": name} for name in NAMES]
        if api == "alter_share_group_offsets":
            topics = [
                {**topic, "partitions": [{"partition_index": 0, "start_offset": 0}]} for topic in topics
            ]
        answer = await client.ask(api, 0, group_id="g", topics=topics)
        found = {
            topic["topic_name"]: (topic.get("partitions", [topic])[0]["error_code"], topic["topic_id"])
            for topic in answer["responses"]
        }
        return answer["error_code"], found

    assert await change() == (GROUP_DENIED, {})
    rights.allow(right, GROUP, "g")
    rights.allow(READ, TOPIC, "mine")
    error, found = await change()
    assert (error, found["mine"][0]) == (NONE, NONE)
    assert {found["hidden"], found["none"]} == {(TOPIC_DENIED, None)}
    rights.allow(READ, TOPIC, "none")
    assert (await change())[1]["none"][0] == UNKNOWN
