"""Topics are seen, created, changed and deleted by clients with the right; a refusal does not reveal whether
the topic exists.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.runtime.loop.log_output import AUDIT
from seqgate.gateway.runtime.topics.metadata_log import Decide
from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.support import Node, open_node
from tests.support.wire import NO_TOPIC_ID, Plain

NONE, UNKNOWN, INVALID_TOPIC, DENIED, CLUSTER_DENIED, GROUP_DENIED = 0, 3, 17, 29, 31, 30
EXISTS, INVALID_REQUEST, UNKNOWN_ID = 36, 42, 100
NOT_ASKED = -(2**31)
TOPICS = ["mine", "hidden", "none"]
"""A topic with the right, a topic without, and a name without either topic or right."""
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as opened:
        for name in ("mine", "hidden"):
            await create(opened, name)
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


def topics_of(node: Node) -> set[str]:
    return set(node.services.topics.metadata_log.image.topics_by_name)


def id_of(node: Node, name: str) -> str:
    return str(node.services.topics.metadata_log.image.topics_by_name[name].topic_id)


class TestMetadata:
    @staticmethod
    async def ask(client: Asking, names: Sequence[str] | None, version: int = 12, **more: Any) -> list[Plain]:
        topics = None if names is None else [{"name": name} for name in names]
        asked = {"allow_auto_topic_creation": False, "topics": topics, **more}
        answer = await client.ask("metadata", version, **asked)
        return list(answer["topics"])

    @pytest.mark.parametrize("version", range(14))
    async def test_only_topics_with_describe_are_described(
        self, rights: Rights, client: Asking, version: int
    ) -> None:
        rights.allow(Operation.DESCRIBE, TOPIC, "mine")
        mine, *denied = await self.ask(client, ["none", "hidden", "mine"], version)
        assert (mine["name"], mine["error_code"], len(mine["partitions"])) == ("mine", NONE, 1)
        assert [topic["name"] for topic in denied] == ["hidden", "none"]
        hidden, none = ({**topic, "name": None} for topic in denied)
        assert hidden == none
        assert (hidden["error_code"], hidden["partitions"]) == (DENIED, [])
        assert hidden.get("topic_id") in (None, NO_TOPIC_ID)

    @pytest.mark.parametrize("version", range(14))
    async def test_all_topics_are_those_with_describe(
        self, rights: Rights, client: Asking, version: int
    ) -> None:
        asked = [] if version == 0 else None
        assert await self.ask(client, asked, version) == []
        rights.allow(Operation.DESCRIBE, TOPIC, "mine")
        assert [topic["name"] for topic in await self.ask(client, asked, version)] == ["mine"]

    async def test_ids_of_hidden_topics_are_denied_without_the_name(
        self, node: Node, rights: Rights, client: Asking
    ) -> None:
        rights.allow(Operation.DESCRIBE, TOPIC, "mine")
        ids = [id_of(node, "hidden"), id_of(node, "mine"), str(uuid.UUID(int=5))]
        asked = [{"name": None, "topic_id": each} for each in ids]
        answer = await client.ask("metadata", 12, topics=asked)
        assert [(topic["topic_id"], topic["error_code"], topic["name"]) for topic in answer["topics"]] == [
            (ids[2], UNKNOWN_ID, None),
            (ids[1], NONE, "mine"),
            (ids[0], DENIED, None),
        ]

    @pytest.mark.parametrize("resource", [(TOPIC, "none"), (CLUSTER, CLUSTER_NAME)])
    async def test_one_of_describe_and_create_does_not_create_a_topic(
        self, node: Node, rights: Rights, client: Asking, resource: tuple[ResourceType, str]
    ) -> None:
        asked = {"allow_auto_topic_creation": True}
        rights.allow(Operation.CREATE, *resource)
        assert [topic["error_code"] for topic in await self.ask(client, ["none"], **asked)] == [DENIED]
        rights.deny(Operation.CREATE, *resource)
        rights.allow(Operation.DESCRIBE, TOPIC, "none")
        assert [topic["error_code"] for topic in await self.ask(client, ["none"], **asked)] == [DENIED]
        assert [topic["error_code"] for topic in await self.ask(client, ["none"])] == [UNKNOWN]
        await node.services.topics.metadata_log.close()
        assert "none" not in topics_of(node)

    @pytest.mark.parametrize("resource", [(TOPIC, "none"), (CLUSTER, CLUSTER_NAME)])
    async def test_a_client_with_both_rights_creates_the_topic(
        self, node: Node, rights: Rights, client: Asking, resource: tuple[ResourceType, str]
    ) -> None:
        rights.allow(Operation.CREATE, *resource)
        rights.allow(Operation.DESCRIBE, TOPIC, "none")
        asked = {"allow_auto_topic_creation": True}
        assert [topic["error_code"] for topic in await self.ask(client, ["none"], **asked)] == [UNKNOWN]
        await node.services.topics.metadata_log.close()
        assert "none" in topics_of(node)

    async def test_create_is_not_asked_where_nothing_would_be_created(self, tmp_path: Path) -> None:
        async with open_node(tmp_path / "off", "auto.create.topics.enable=false") as node:
            node.services.node.access = Rights((Operation.DESCRIBE, TOPIC, "none"))
            (topic,) = await self.ask(Asking(node), ["none"], allow_auto_topic_creation=True)
            assert topic["error_code"] == UNKNOWN

    async def test_operations_are_those_of_the_client_and_none_of_a_denied_topic(
        self, rights: Rights, client: Asking
    ) -> None:
        rights.allow(Operation.DESCRIBE, TOPIC, "mine")
        rights.allow(Operation.READ, TOPIC, "mine")
        asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
        answer = await client.ask("metadata", 8, topics=[{"name": name} for name in TOPICS], **asked)
        assert {topic["name"]: topic["topic_authorized_operations"] for topic in answer["topics"]} == {
            "mine": 1 << Operation.DESCRIBE | 1 << Operation.READ,
            "hidden": NOT_ASKED,
            "none": NOT_ASKED,
        }
        assert answer["cluster_authorized_operations"] == 0


async def test_only_topics_that_a_client_names_are_audited_as_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger=AUDIT)
    async with open_node(
        tmp_path,
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:root",
    ) as node:
        node.peer.principal = "User:root"
        await create(node, "hidden")
        client = Asking(node, "User:nobody")
        caplog.clear()
        await client.ask("metadata", 12, topics=None)
        await client.ask("describe_topic_partitions", 0, topics=[], response_partition_limit=1)
        assert not [record for record in caplog.records if record.name == AUDIT]
        await client.ask("metadata", 12, topics=[{"name": "hidden"}], allow_auto_topic_creation=True)
        await client.ask("create_topics", 7, topics=[{"name": "new"}], timeout=30_000)
        lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == AUDIT]
        assert [(line["request"], line["operation"], line["resource"]) for line in lines] == [
            ("Metadata", "DESCRIBE", "hidden"),
            ("CreateTopics", "CREATE", "new"),
        ]


class TestDescribeTopicPartitions:
    @staticmethod
    async def ask(client: Asking, names: Sequence[str], limit: int = 2000) -> Plain:
        topics = [{"name": name} for name in names]
        return await client.ask(
            "describe_topic_partitions", 0, topics=topics, response_partition_limit=limit, cursor=None
        )

    async def test_denied_topics_come_last_and_tell_nothing(self, rights: Rights, client: Asking) -> None:
        rights.allow(Operation.DESCRIBE, TOPIC, "mine")
        mine, *denied = (await self.ask(client, TOPICS))["topics"]
        assert (mine["name"], mine["error_code"]) == ("mine", NONE)
        assert mine["topic_authorized_operations"] == 1 << Operation.DESCRIBE
        assert [topic["name"] for topic in denied] == ["hidden", "none"]
        hidden, none = ({**topic, "name": None} for topic in denied)
        assert hidden == none
        assert (hidden["error_code"], hidden["topic_id"]) == (DENIED, None)
        assert hidden["topic_authorized_operations"] == NOT_ASKED

    async def test_all_topics_are_those_with_describe(self, rights: Rights, client: Asking) -> None:
        rights.allow(Operation.DESCRIBE, TOPIC, "mine")
        assert [topic["name"] for topic in (await self.ask(client, []))["topics"]] == ["mine"]

    async def test_a_denied_topic_takes_no_room_of_a_page(self, rights: Rights, client: Asking) -> None:
        rights.allow(Operation.DESCRIBE, TOPIC, "mine")
        answer = await self.ask(client, [], limit=1)
        assert [topic["name"] for topic in answer["topics"]] == ["mine"]
        assert answer["next_cursor"] is None


class TestCreateTopics:
    @staticmethod
    async def create(client: Asking, names: Sequence[str], version: int = 7, **more: Any) -> list[Plain]:
        topics = [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in names]
        answer = await client.ask("create_topics", version, topics=topics, **{"timeout": 30_000, **more})
        return list(answer["topics"])

    async def codes(self, client: Asking, names: Sequence[str], **more: Any) -> dict[str, int]:
        return {topic["name"]: topic["error_code"] for topic in await self.create(client, names, **more)}

    async def test_a_refusal_does_not_tell_whether_the_topic_exists(
        self, node: Node, rights: Rights, client: Asking
    ) -> None:
        for version in range(2, 8):
            results = await self.create(client, ["hidden", "none", "a b"], version)
            assert len({str({**result, "name": None}) for result in results}) == 1
            assert (results[0]["error_code"], results[0]["error_message"]) == (
                DENIED,
                "Authorization failed.",
            )
        assert topics_of(node) == {"mine", "hidden"}

    @pytest.mark.parametrize("resource", [(TOPIC, "none"), (CLUSTER, CLUSTER_NAME)])
    async def test_create_on_the_topic_or_the_cluster_creates(
        self, node: Node, rights: Rights, client: Asking, resource: tuple[ResourceType, str]
    ) -> None:
        rights.allow(Operation.CREATE, *resource)
        assert await self.codes(client, ["none"]) == {"none": NONE}
        assert "none" in topics_of(node)
        assert await self.codes(client, ["none"]) == {"none": EXISTS}

    async def test_refused_topics_do_not_keep_the_others_from_being_created(
        self, node: Node, rights: Rights, client: Asking
    ) -> None:
        rights.allow(Operation.CREATE, TOPIC, "none")
        assert await self.codes(client, ["hidden", "none"]) == {"none": NONE, "hidden": DENIED}
        assert topics_of(node) == {"mine", "hidden", "none"}

    async def test_repeated_names_and_the_metadata_log_are_refused_for_that(
        self, rights: Rights, client: Asking
    ) -> None:
        codes = await self.codes(client, ["none", "none", "__cluster_metadata"])
        assert codes == {"none": INVALID_REQUEST, "__cluster_metadata": INVALID_REQUEST}

    @pytest.mark.parametrize("version", [5, 6, 7])
    async def test_the_configuration_needs_describe_configs(
        self, node: Node, rights: Rights, client: Asking, version: int
    ) -> None:
        rights.allow(Operation.CREATE, CLUSTER, CLUSTER_NAME)
        (result,) = await self.create(client, ["none"], version)
        assert (result["error_code"], result["topic_config_error_code"]) == (NONE, DENIED)
        assert (result["num_partitions"], result["replication_factor"], result["configs"]) == (-1, -1, [])
        if version >= 7:
            assert result["topic_id"] == id_of(node, "none")
        rights.allow(Operation.DESCRIBE_CONFIGS, TOPIC, "more")
        (result,) = await self.create(client, ["more"], version)
        assert (result["error_code"], result["topic_config_error_code"]) == (NONE, NONE)
        assert (result["num_partitions"], result["replication_factor"]) == (2, 1)
        assert result["configs"]

    async def test_a_request_without_time_does_not_hide_the_missing_right(
        self, rights: Rights, client: Asking
    ) -> None:
        rights.allow(Operation.CREATE, TOPIC, "none")
        assert await self.codes(client, ["none", "hidden"], timeout=0) == {"none": 7, "hidden": DENIED}


class TestCreatePartitions:
    @staticmethod
    async def codes(client: Asking, names: Sequence[str]) -> dict[str, int]:
        topics = [{"name": name, "count": 3, "assignments": None} for name in names]
        answer = await client.ask("create_partitions", 3, topics=topics, timeout=30_000)
        return {result["name"]: result["error_code"] for result in answer["results"]}

    async def test_needs_alter_on_the_topic(self, node: Node, rights: Rights, client: Asking) -> None:
        rights.allow(Operation.ALTER, TOPIC, "mine")
        rights.allow(Operation.ALTER, CLUSTER, CLUSTER_NAME)
        assert await self.codes(client, TOPICS) == {"mine": NONE, "hidden": DENIED, "none": DENIED}
        counts = {
            name: len(topic.partitions)
            for name, topic in node.services.topics.metadata_log.image.topics_by_name.items()
        }
        assert counts == {"mine": 3, "hidden": 1}

    async def test_with_the_right_a_missing_topic_is_unknown(self, rights: Rights, client: Asking) -> None:
        rights.allow(Operation.ALTER, TOPIC, "none")
        assert await self.codes(client, ["none"]) == {"none": UNKNOWN}

    async def test_repeated_names_are_refused_for_that(self, rights: Rights, client: Asking) -> None:
        assert await self.codes(client, ["hidden", "hidden"]) == {"hidden": INVALID_REQUEST}


class TestDeleteTopics:
    @staticmethod
    async def delete(client: Asking, topics: Sequence[Plain]) -> list[Plain]:
        answer = await client.ask("delete_topics", 6, topics=topics, timeout=30_000)
        return list(answer["responses"])

    async def codes(self, client: Asking, names: Sequence[str]) -> dict[str, int]:
        topics = [{"name": name, "topic_id": NO_TOPIC_ID} for name in names]
        return {result["name"]: result["error_code"] for result in await self.delete(client, topics)}

    async def test_needs_delete_on_the_topic(self, node: Node, rights: Rights, client: Asking) -> None:
        for operation in (Operation.DESCRIBE, Operation.DELETE):
            rights.allow(operation, TOPIC, "mine")
        assert await self.codes(client, TOPICS) == {"mine": NONE, "hidden": DENIED, "none": DENIED}
        assert topics_of(node) == {"hidden"}

    async def test_delete_on_the_cluster_is_enough(self, node: Node, rights: Rights, client: Asking) -> None:
        rights.allow(Operation.DELETE, CLUSTER, CLUSTER_NAME)
        assert await self.codes(client, TOPICS) == {"mine": NONE, "hidden": NONE, "none": UNKNOWN}
        assert topics_of(node) == set()

    async def test_who_may_describe_learns_that_a_topic_is_missing(
        self, node: Node, rights: Rights, client: Asking
    ) -> None:
        for name in TOPICS:
            rights.allow(Operation.DESCRIBE, TOPIC, name)
        assert await self.codes(client, TOPICS) == {"mine": DENIED, "hidden": DENIED, "none": UNKNOWN}
        assert topics_of(node) == {"mine", "hidden"}

    async def test_the_refusal_of_an_id_has_the_name_for_who_may_describe_the_topic(
        self, node: Node, rights: Rights, client: Asking
    ) -> None:
        rights.allow(Operation.DESCRIBE, TOPIC, "mine")
        ids = [id_of(node, "mine"), id_of(node, "hidden"), str(uuid.UUID(int=5))]
        results = await self.delete(client, [{"name": None, "topic_id": each} for each in ids])
        assert [(result["topic_id"], result["error_code"], result["name"]) for result in results] == [
            (ids[0], DENIED, "mine"),
            (ids[1], DENIED, None),
            (ids[2], UNKNOWN_ID, None),
        ]

    async def test_old_versions_name_topics(self, node: Node, rights: Rights, client: Asking) -> None:
        for version in range(1, 6):
            answer = await client.ask(
                "delete_topics", version, topic_names=["hidden", "none"], timeout=30_000
            )
            assert [result["error_code"] for result in answer["responses"]] == [DENIED, DENIED]

    async def test_a_decision_that_is_made_again_asks_for_no_right_again(
        self, node: Node, rights: Rights, client: Asking, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[Operation, str]] = []
        log = node.services.topics.metadata_log
        commit = log.commit

        def allows(principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
            if kind is TOPIC:
                asked.append((operation, name))
            return operation is Operation.DESCRIBE and kind is TOPIC and name == "none"

        async def commit_after_a_lost_race(decide: Decide[Any]) -> Any:
            decide(log.image)
            return await commit(decide)

        monkeypatch.setattr(rights, "allows", allows)
        monkeypatch.setattr(log, "commit", commit_after_a_lost_race)
        assert await self.codes(client, ["hidden", "none"]) == {"hidden": DENIED, "none": UNKNOWN}
        assert sorted(asked) == sorted(
            (operation, name)
            for operation in (Operation.DESCRIBE, Operation.DELETE)
            for name in ("hidden", "none")
        )


class TestConfigs:
    RESOURCES = (
        (2, "mine", TOPIC, "mine", DENIED),
        (2, "none", TOPIC, "none", DENIED),
        (32, "g", GROUP, "g", GROUP_DENIED),
        (4, "1", CLUSTER, CLUSTER_NAME, CLUSTER_DENIED),
        (8, "1", CLUSTER, CLUSTER_NAME, CLUSTER_DENIED),
        (16, "metrics", CLUSTER, CLUSTER_NAME, CLUSTER_DENIED),
    )

    @pytest.mark.parametrize(("kind", "name", "resource_type", "resource", "error"), RESOURCES)
    async def test_describing_needs_describe_configs(
        self,
        rights: Rights,
        client: Asking,
        kind: int,
        name: str,
        resource_type: ResourceType,
        resource: str,
        error: int,
    ) -> None:
        asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
        for operation in set(Operation) - {Operation.DESCRIBE_CONFIGS}:
            rights.allow(operation, resource_type, resource)
        (refused,) = (await client.ask("describe_configs", 4, resources=asked))["results"]
        assert (refused["error_code"], refused["configs"]) == (error, [])
        assert refused["error_message"].endswith("authorization failed.")
        rights.allow(Operation.DESCRIBE_CONFIGS, resource_type, resource)
        (answered,) = (await client.ask("describe_configs", 4, resources=asked))["results"]
        assert answered["error_code"] != error
        assert (answered["error_code"] == UNKNOWN) == (name == "none")

    @pytest.mark.parametrize("api", ["alter_configs", "incremental_alter_configs"])
    @pytest.mark.parametrize(("kind", "name", "resource_type", "resource", "error"), RESOURCES)
    async def test_altering_needs_alter_configs(
        self,
        rights: Rights,
        client: Asking,
        api: str,
        kind: int,
        name: str,
        resource_type: ResourceType,
        resource: str,
        error: int,
    ) -> None:
        if (api, kind) == ("alter_configs", 8):
            error = INVALID_REQUEST  # Kafka's AlterConfigs knows no loggers
        asked = [{"resource_type": kind, "resource_name": name, "configs": []}]
        for operation in set(Operation) - {Operation.ALTER_CONFIGS}:
            rights.allow(operation, resource_type, resource)
        (refused,) = (await client.ask(api, 1, resources=asked))["responses"]
        assert refused["error_code"] == error
        rights.allow(Operation.ALTER_CONFIGS, resource_type, resource)
        (answered,) = (await client.ask(api, 1, resources=asked))["responses"]
        assert answered["error_code"] != error or error == INVALID_REQUEST

    async def test_a_denied_change_changes_nothing_and_the_others_count(
        self, node: Node, rights: Rights, client: Asking
    ) -> None:
        rights.allow(Operation.ALTER_CONFIGS, TOPIC, "mine")
        change = [{"name": "retention.ms", "config_operation": 0, "value": "5"}]
        asked = [{"resource_type": 2, "resource_name": name, "configs": change} for name in TOPICS]
        answer = await client.ask("incremental_alter_configs", 1, resources=asked)
        codes = {row["resource_name"]: row["error_code"] for row in answer["responses"]}
        assert codes == {"mine": NONE, "hidden": DENIED, "none": DENIED}
        image = node.services.topics.metadata_log.image
        assert (image.topic_configs("mine"), image.topic_configs("hidden")) == ({"retention.ms": "5"}, {})

    async def test_the_form_of_the_request_comes_before_the_right(
        self, rights: Rights, client: Asking
    ) -> None:
        change = {"name": "retention.ms", "config_operation": 0, "value": "5"}
        twice = [{"resource_type": 2, "resource_name": "hidden", "configs": [change]}] * 2
        answer = await client.ask("incremental_alter_configs", 1, resources=twice)
        assert [row["error_code"] for row in answer["responses"]] == [INVALID_REQUEST] * 2
        wrong = [{"resource_type": 2, "resource_name": "hidden", "configs": [change, change]}]
        answer = await client.ask("incremental_alter_configs", 1, resources=wrong)
        assert [row["error_code"] for row in answer["responses"]] == [INVALID_REQUEST]

    async def test_the_right_comes_before_the_values(self, rights: Rights, client: Asking) -> None:
        change = [{"name": "retention.mss", "config_operation": 0, "value": "x"}]
        asked = [{"resource_type": 2, "resource_name": name, "configs": change} for name in ("mine", "none")]
        answer = await client.ask("incremental_alter_configs", 1, resources=asked)
        assert [row["error_code"] for row in answer["responses"]] == [DENIED] * 2
