"""Groups and their offsets need rights on the group and its topics; a refusal does not reveal what exists."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from seqgate.gateway.coordinator.group.offsets import NAME_GROUP_PREFIX
from seqgate.gateway.handlers.groups import offset_commit
from seqgate.gateway.security.acls.access import Operation, ResourceType
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.support import Node, open_node
from tests.support.wire import NO_TOPIC_ID, Plain

NONE, UNKNOWN, INCONSISTENT = 0, 3, 23
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, INVALID_REQUEST, ID_DENIED, UNKNOWN_ID = 29, 30, 31, 42, 53, 100
NO_OPERATIONS: Final = -(2**31)
GROUP, TOPIC, CLUSTER, ID = (
    ResourceType.GROUP,
    ResourceType.TOPIC,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
READ, DESCRIBE, DELETE, CREATE = Operation.READ, Operation.DESCRIBE, Operation.DELETE, Operation.CREATE
NAMES: Final = ["mine", "hidden", "none"]
"""A topic with the right, a topic without, and a name without either topic or right."""


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as opened:
        for name in ("mine", "hidden"):
            await create(opened, name)
        for key_type in (0, 1):
            await Asking(opened).ask("find_coordinator", 4, key_type=key_type, coordinator_keys=["g"])
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


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        ("heartbeat", 0, {}),
        ("heartbeat", 4, {}),
        ("join_group", 0, {"session_timeout": 1000}),
        ("join_group", 9, {"session_timeout": 1000}),
        ("leave_group", 2, {"member_id": "m"}),
        ("leave_group", 5, {"members": [{"member_id": "m"}]}),
        ("sync_group", 5, {"protocol_type": "p", "protocol_name": "n"}),
        ("offset_delete", 0, {"topics": [{"name": "mine", "partitions": [{"partition_index": 0}]}]}),
        ("consumer_group_heartbeat", 1, {"member_id": ""}),
        ("streams_group_heartbeat", 0, {"member_id": ""}),
        ("share_group_heartbeat", 1, {"member_id": ""}),
    ],
)
async def test_a_refused_group_is_refused_before_anything_else(
    client: Asking, rights: Rights, api: str, version: int, fields: Plain
) -> None:
    answer = await client.ask(api, version, group_id="g", **fields)
    assert answer["error_code"] == GROUP_DENIED
    assert not answer.get("members")
    assert not answer.get("topics")
    rights.allow(DELETE if api == "offset_delete" else READ, GROUP, "g")
    assert (await client.ask(api, version, group_id="g", **fields))["error_code"] != GROUP_DENIED


async def test_a_sync_without_a_protocol_is_refused_before_its_right(client: Asking, rights: Rights) -> None:
    answer = await client.ask("sync_group", 5, group_id="g", protocol_type=None, protocol_name=None)
    assert answer["error_code"] == INCONSISTENT


class TestFindCoordinator:
    @pytest.mark.parametrize(("key_type", "kind", "error"), [(0, GROUP, GROUP_DENIED), (1, ID, ID_DENIED)])
    async def test_each_key_needs_its_right(
        self, client: Asking, rights: Rights, key_type: int, kind: ResourceType, error: int
    ) -> None:
        rights.allow(DESCRIBE, kind, "a")
        answer = await client.ask("find_coordinator", 4, key_type=key_type, coordinator_keys=["a", "b"])
        rows = [(row["key"], row["error_code"], row["node_id"]) for row in answer["coordinators"]]
        assert rows == [("a", NONE, 1), ("b", error, -1)]
        for key, expected in (("a", NONE), ("b", error)):
            answer = await client.ask("find_coordinator", 3, key_type=key_type, key=key)
            assert answer["error_code"] == expected

    async def test_state_of_share_groups_is_for_brokers(self, client: Asking, rights: Rights) -> None:
        asked = {"key_type": 2, "coordinator_keys": ["malformed"]}
        answer = await client.ask("find_coordinator", 6, **asked)
        assert answer["coordinators"][0]["error_code"] == CLUSTER_DENIED
        answer = await client.ask("find_coordinator", 5, **asked)
        assert answer["coordinators"][0]["error_code"] == INVALID_REQUEST
        rights.allow(Operation.CLUSTER_ACTION, CLUSTER, "kafka-cluster")
        answer = await client.ask("find_coordinator", 6, **asked)
        assert answer["coordinators"][0]["error_code"] == INVALID_REQUEST

    async def test_a_refused_client_creates_no_coordinator(self, tmp_path: Path) -> None:
        async with open_node(tmp_path) as node:
            node.services.node.access = Rights()
            await Asking(node).ask("find_coordinator", 4, key_type=0, coordinator_keys=["a"])
            assert not node.services.topics.metadata_log.image.topics_by_name


class TestOffsetCommit:
    @staticmethod
    def fields(*names: str, **more: Any) -> Plain:
        topics = [
            {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]} for name in names
        ]
        return {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": topics, **more}

    @staticmethod
    def errors(answer: Plain) -> dict[str, int]:
        return {
            topic.get("name") or topic["topic_id"]: row["error_code"]
            for topic in answer["topics"]
            for row in topic["partitions"]
        }

    @pytest.mark.parametrize("version", [2, 8, 9])
    async def test_by_name(self, client: Asking, rights: Rights, version: int) -> None:
        answer = await client.ask("offset_commit", version, **self.fields(*NAMES))
        assert self.errors(answer) == dict.fromkeys(NAMES, GROUP_DENIED)
        rights.allow(READ, GROUP, "g")
        rights.allow(READ, TOPIC, "mine")
        answer = await client.ask("offset_commit", version, **self.fields(*NAMES))
        assert self.errors(answer) == {"mine": NONE, "hidden": TOPIC_DENIED, "none": TOPIC_DENIED}
        rights.allow(READ, TOPIC, "none")
        answer = await client.ask("offset_commit", version, **self.fields(*NAMES))
        assert self.errors(answer) == {"mine": NONE, "hidden": TOPIC_DENIED, "none": UNKNOWN}

    async def test_by_id(self, node: Node, client: Asking, rights: Rights) -> None:
        mine, hidden, nobodys = topic_id(node, "mine"), topic_id(node, "hidden"), NO_TOPIC_ID[:-1] + "7"
        topics = [
            {"topic_id": each, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
            for each in (mine, hidden, nobodys)
        ]
        fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": topics}
        answer = await client.ask("offset_commit", 10, **fields)
        assert self.errors(answer) == dict.fromkeys((mine, hidden, nobodys), GROUP_DENIED)
        rights.allow(READ, GROUP, "g")
        rights.allow(READ, TOPIC, "mine")
        answer = await client.ask("offset_commit", 10, **fields)
        assert self.errors(answer) == {mine: NONE, hidden: TOPIC_DENIED, nobodys: UNKNOWN_ID}

    async def test_a_large_request(self, node: Node, client: Asking, rights: Rights) -> None:
        """A request of many topics has a task, and a thread encodes its answer."""

        def make(module: Any) -> Plain:
            row = module.OffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_metadata=""
            )
            topics = tuple(
                module.OffsetCommitRequestTopic(name=name, partitions=(row,)) for name in ("mine", "none")
            )
            return {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}

        async def errors() -> list[int]:
            answer = await node.ask(offset_commit.API, 8, make)
            return [int(row.error_code) for topic in answer.topics for row in topic.partitions]

        assert await errors() == [GROUP_DENIED, GROUP_DENIED]
        rights.allow(READ, GROUP, "g")
        rights.allow(READ, TOPIC, "mine")
        assert sorted(await errors()) == [NONE, TOPIC_DENIED]

    async def test_a_repeat_asks_for_its_rights_anew(self, client: Asking, rights: Rights) -> None:
        needed = ((READ, GROUP, "g"), (READ, TOPIC, "mine"))
        for right in needed:
            rights.allow(*right)
        for _ in range(3):
            answer = await client.ask("offset_commit", 8, **self.fields("mine"))
            assert self.errors(answer) == {"mine": NONE}
        for right, error in zip(needed, (GROUP_DENIED, TOPIC_DENIED), strict=True):
            rights.deny(*right)
            answer = await client.ask("offset_commit", 8, **self.fields("mine"))
            assert self.errors(answer) == {"mine": error}
            rights.allow(*right)
            answer = await client.ask("offset_commit", 8, **self.fields("mine"))
            assert self.errors(answer) == {"mine": NONE}


class TestOffsetFetch:
    @pytest.fixture(autouse=True)
    async def committed(self, node: Node, client: Asking) -> None:
        """Commit an offset of both topics, before rights are asked for."""
        answer = await client.ask("offset_commit", 8, **TestOffsetCommit.fields("mine", "hidden"))
        assert TestOffsetCommit.errors(answer) == {"mine": NONE, "hidden": NONE}

    @staticmethod
    def rows(topics: list[Plain]) -> dict[str, tuple[int, int]]:
        return {
            topic.get("name") or topic["topic_id"]: (row["committed_offset"], row["error_code"])
            for topic in topics
            for row in topic["partitions"]
        }

    async def ask(self, client: Asking, version: int, topics: list[Plain] | None) -> tuple[int, list[Plain]]:
        """Return the error of the group, and the topics."""
        if version < 8:
            answer = await client.ask("offset_fetch", version, group_id="g", topics=topics)
            return answer.get("error_code", NONE), answer["topics"]
        group = {"group_id": "g", "topics": topics, "member_id": None, "member_epoch": -1}
        if version < 9:
            group = {"group_id": "g", "topics": topics}
        answer = await client.ask("offset_fetch", version, groups=[group])
        (found,) = answer["groups"]
        return found["error_code"], found["topics"]

    @pytest.mark.parametrize("version", [1, 2, 7, 8, 9])
    async def test_by_name(self, client: Asking, node: Node, version: int) -> None:
        rights = node.services.node.access = Rights()
        topics = [{"name": name, "partition_indexes": [0]} for name in NAMES]
        error, found = await self.ask(client, version, topics)
        if version == 1:
            assert self.rows(found) == dict.fromkeys(NAMES, (-1, GROUP_DENIED))
        else:
            assert (error, found) == (GROUP_DENIED, [])
        rights.allow(DESCRIBE, GROUP, "g")
        rights.allow(DESCRIBE, TOPIC, "mine")
        error, found = await self.ask(client, version, topics)
        assert error == NONE
        assert self.rows(found) == {
            "mine": (1, NONE),
            "hidden": (-1, TOPIC_DENIED),
            "none": (-1, TOPIC_DENIED),
        }

    @pytest.mark.parametrize("version", [2, 8, 10])
    async def test_all_offsets_are_those_of_topics_that_may_be_described(
        self, client: Asking, node: Node, version: int
    ) -> None:
        rights = node.services.node.access = Rights((DESCRIBE, GROUP, "g"))
        assert await self.ask(client, version, None) == (NONE, [])
        rights.allow(DESCRIBE, TOPIC, "mine")
        error, found = await self.ask(client, version, None)
        name = topic_id(node, "mine") if version >= 10 else "mine"
        assert (error, self.rows(found)) == (NONE, {name: (1, NONE)})

    async def test_by_id(self, client: Asking, node: Node) -> None:
        node.services.node.access = Rights((DESCRIBE, GROUP, "g"), (DESCRIBE, TOPIC, "mine"))
        mine, hidden, nobodys = topic_id(node, "mine"), topic_id(node, "hidden"), NO_TOPIC_ID[:-1] + "7"
        topics = [{"topic_id": each, "partition_indexes": [0]} for each in (mine, hidden, nobodys)]
        error, found = await self.ask(client, 10, topics)
        assert error == NONE
        assert self.rows(found) == {mine: (1, NONE), hidden: (-1, TOPIC_DENIED), nobodys: (-1, UNKNOWN_ID)}

    async def test_a_producer_name_needs_the_rights_of_a_group(self, client: Asking, node: Node) -> None:
        group_id = f"{NAME_GROUP_PREFIX}nobody"
        rights = node.services.node.access = Rights()
        topics = [{"name": "mine", "partition_indexes": [0]}]
        fields = {"groups": [{"group_id": group_id, "topics": topics}]}
        (found,) = (await client.ask("offset_fetch", 8, **fields))["groups"]
        assert found["error_code"] == GROUP_DENIED
        rights.allow(DESCRIBE, GROUP, group_id)
        (found,) = (await client.ask("offset_fetch", 8, **fields))["groups"]
        assert (found["error_code"], self.rows(found["topics"])) == (NONE, {"mine": (-1, TOPIC_DENIED)})


async def test_deleting_offsets_needs_the_topics_too(client: Asking, rights: Rights) -> None:
    await client.ask("offset_commit", 8, **TestOffsetCommit.fields("mine"))
    rights.allow(DELETE, GROUP, "g")
    rights.allow(READ, GROUP, "g")
    rights.allow(READ, TOPIC, "mine")
    await client.ask("offset_commit", 8, **TestOffsetCommit.fields("mine"))
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in NAMES]
    answer = await client.ask("offset_delete", 0, group_id="g", topics=topics)
    assert TestOffsetCommit.errors(answer) == {"mine": NONE, "hidden": TOPIC_DENIED, "none": TOPIC_DENIED}


async def make_groups(client: Asking) -> None:
    """Make the groups a and b by commits, with all rights."""
    for group_id in ("a", "b"):
        await client.ask("offset_commit", 8, **TestOffsetCommit.fields("mine", group_id=group_id))


async def test_groups_are_deleted_one_by_one(client: Asking, node: Node) -> None:
    await make_groups(client)
    node.services.node.access = Rights((DELETE, GROUP, "a"))
    answer = await client.ask("delete_groups", 2, groups_names=["b", "a", "none"])
    errors = {row["group_id"]: row["error_code"] for row in answer["results"]}
    assert errors == {"a": NONE, "b": GROUP_DENIED, "none": GROUP_DENIED}


async def test_listing_shows_the_groups_that_may_be_described(client: Asking, node: Node) -> None:
    await make_groups(client)
    rights = node.services.node.access = Rights()

    async def listed() -> list[str]:
        answer = await client.ask("list_groups", 5)
        assert answer["error_code"] == NONE
        return sorted(row["group_id"] for row in answer["groups"])

    assert await listed() == []
    rights.allow(DESCRIBE, GROUP, "b")
    assert await listed() == ["b"]
    rights.allow(DESCRIBE, CLUSTER, "kafka-cluster")
    assert await listed() == ["a", "b"]


@pytest.mark.parametrize("version", [0, 5, 6])
async def test_describing_classic_groups(client: Asking, node: Node, version: int) -> None:
    await make_groups(client)
    node.services.node.access = Rights((DESCRIBE, GROUP, "a"))
    answer = await client.ask("describe_groups", version, groups=["a", "b", "none"])
    rows = {row["group_id"]: (row["error_code"], row["group_state"]) for row in answer["groups"]}
    assert rows == {"a": (NONE, "Empty"), "b": (GROUP_DENIED, ""), "none": (GROUP_DENIED, "")}


class TestConsumerGroups:
    @staticmethod
    def join(**more: Any) -> Plain:
        fields: Plain = {
            "group_id": "g",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout": 1000,
            "subscribed_topic_names": ["mine"],
            "subscribed_topic_regex": None,
            "topic_partitions": [],
        }
        return {**fields, **more}

    async def assigned(self, client: Asking, **more: Any) -> set[str]:
        answer = await client.ask("consumer_group_heartbeat", 1, **self.join(**more))
        assert answer["error_code"] == NONE
        return {topic["topic_id"] for topic in answer["assignment"]["topic_partitions"]}

    @pytest.mark.parametrize("name", ["hidden", "none"])
    async def test_a_hidden_topic_refuses_the_heartbeat(
        self, client: Asking, rights: Rights, name: str
    ) -> None:
        rights.allow(READ, GROUP, "g")
        rights.allow(DESCRIBE, TOPIC, "mine")
        fields = self.join(subscribed_topic_names=["mine", name])
        answer = await client.ask("consumer_group_heartbeat", 1, **fields)
        assert (answer["error_code"], answer["member_id"]) == (TOPIC_DENIED, None)
        assert await self.assigned(client)

    async def test_an_expression_finds_topics_that_may_be_described(
        self, node: Node, client: Asking, rights: Rights
    ) -> None:
        rights.allow(READ, GROUP, "g")
        rights.allow(DESCRIBE, TOPIC, "mine")
        by_regex = {"subscribed_topic_names": None, "subscribed_topic_regex": ".*"}
        mine, hidden = topic_id(node, "mine"), topic_id(node, "hidden")
        assert await self.assigned(client, **by_regex) == {mine}
        rights.allow(DESCRIBE, TOPIC, "hidden")
        assert await self.assigned(client, **by_regex) == {mine}
        node.clock.time_ms += 10_000
        assert await self.assigned(client, **by_regex) == {mine, hidden}
        rights.deny(DESCRIBE, TOPIC, "hidden")
        node.clock.time_ms += 10_000
        assert await self.assigned(client, **by_regex) == {mine}

    async def test_an_expression_is_resolved_anew_once_its_last_member_has_left(
        self, node: Node, client: Asking, rights: Rights
    ) -> None:
        rights.allow(READ, GROUP, "g")
        rights.allow(DESCRIBE, TOPIC, "mine")
        by_regex = {"subscribed_topic_names": None, "subscribed_topic_regex": ".*"}
        mine, hidden = topic_id(node, "mine"), topic_id(node, "hidden")
        assert await self.assigned(client, **by_regex) == {mine}
        await client.ask("consumer_group_heartbeat", 1, **self.join(member_epoch=-1))
        rights.deny(DESCRIBE, TOPIC, "mine")
        rights.allow(DESCRIBE, TOPIC, "hidden")
        assert await self.assigned(client, **by_regex) == {hidden}

    async def test_describing_needs_the_assigned_topics(self, client: Asking, node: Node) -> None:
        await self.assigned(client)
        rights = node.services.node.access = Rights()

        async def described() -> tuple[int, int]:
            answer = await client.ask("consumer_group_describe", 1, group_ids=["g"])
            (group,) = answer["groups"]
            assert group["authorized_operations"] == NO_OPERATIONS
            return group["error_code"], len(group["members"])

        assert await described() == (GROUP_DENIED, 0)
        rights.allow(DESCRIBE, GROUP, "g")
        assert await described() == (TOPIC_DENIED, 0)
        rights.allow(DESCRIBE, TOPIC, "mine")
        assert await described() == (NONE, 1)


class TestStreamsGroups:
    @staticmethod
    def join(source: str = "mine", changelog: str = "g-store-changelog") -> Plain:
        internal = {"name": changelog, "partitions": 0, "replication_factor": 1}
        subtopology = {"subtopology_id": "0", "source_topics": [source], "state_changelog_topics": [internal]}
        return {
            "group_id": "g",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout": 1000,
            "process_id": "p",
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "topology": {"epoch": 1, "subtopologies": [subtopology]},
        }

    async def beat(self, client: Asking, **more: Any) -> Plain:
        return await client.ask("streams_group_heartbeat", 0, **self.join(**more))

    async def missing(self, client: Asking) -> str:
        """Return what a heartbeat says about missing internal topics."""
        status = (await self.beat(client))["status"]
        (detail,) = (row["status_detail"] for row in status if row["status_code"] == 3)
        return str(detail)

    async def test_every_topic_must_be_described(self, client: Asking, rights: Rights) -> None:
        rights.allow(READ, GROUP, "g")
        rights.allow(DESCRIBE, TOPIC, "mine")
        assert (await self.beat(client))["error_code"] == TOPIC_DENIED
        rights.allow(DESCRIBE, TOPIC, "g-store-changelog")
        assert (await self.beat(client))["error_code"] == NONE
        assert (await self.beat(client, source="hidden"))["error_code"] == TOPIC_DENIED

    async def test_a_prohibited_name_is_reported_before_hidden_topics(
        self, client: Asking, rights: Rights
    ) -> None:
        rights.allow(READ, GROUP, "g")
        answer = await self.beat(client, source="__consumer_offsets")
        assert answer["error_code"] not in {NONE, TOPIC_DENIED}
        assert "__consumer_offsets" in answer["error_message"]

    @pytest.mark.parametrize(
        "right", [(CREATE, TOPIC, "g-store-changelog"), (CREATE, CLUSTER, "kafka-cluster")]
    )
    async def test_internal_topics_need_the_right_to_create_them(
        self, client: Asking, node: Node, rights: Rights, right: tuple[Operation, ResourceType, str]
    ) -> None:
        rights.allow(READ, GROUP, "g")
        for name in ("mine", "g-store-changelog"):
            rights.allow(DESCRIBE, TOPIC, name)
        assert (await self.missing(client)).endswith("; Unauthorized to CREATE on topics g-store-changelog.")
        assert "g-store-changelog" not in node.services.topics.metadata_log.image.topics_by_name
        rights.allow(*right)
        assert "Unauthorized" not in await self.missing(client)

    async def test_describing_needs_the_topics_of_the_topology(self, client: Asking, node: Node) -> None:
        await self.beat(client)
        rights = node.services.node.access = Rights((DESCRIBE, GROUP, "g"), (DESCRIBE, TOPIC, "mine"))

        async def described() -> tuple[int, bool]:
            (group,) = (await client.ask("streams_group_describe", 0, group_ids=["g"]))["groups"]
            return group["error_code"], group["topology"] is None

        assert await described() == (TOPIC_DENIED, True)
        rights.allow(DESCRIBE, TOPIC, "g-store-changelog")
        assert await described() == (NONE, False)
        rights.deny(DESCRIBE, GROUP, "g")
        assert await described() == (GROUP_DENIED, True)
