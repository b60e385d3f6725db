from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.handlers.admin import describe_cluster, describe_topic_partitions, metadata
from seqgate.gateway.metadata.records import TopicRecord
from seqgate.gateway.protocol.messages import encode_response
from seqgate.gateway.protocol.schema import EncodedEntity
from seqgate.gateway.runtime.loop import slices
from tests.gateway.handlers.requests import ask_metadata, create
from tests.gateway.handlers.support import Node, open_node, versions

NOT_ASKED = -(2**31)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path, "broker.rack=r1") as node:
        await create(node, "t", 2)
        yield node


class TestMetadata:
    @pytest.mark.parametrize("version", versions(metadata.API))
    async def test_every_version(self, node: Node, version: int) -> None:
        response = await ask_metadata(node, ["t"], version=version)
        assert [(broker.node_id, broker.host, broker.port) for broker in response.brokers] == [
            (1, "gateway.example", 9092)
        ]
        (topic,) = response.topics
        assert (topic.error_code.name, topic.name) == ("none", "t")
        assert [
            (partition.partition_index, partition.leader_id, partition.replica_nodes, partition.isr_nodes)
            for partition in topic.partitions
        ] == [(0, 1, (1,), (1,)), (1, 1, (1,), (1,))]
        if version >= 1:
            assert response.controller_id == 1
            assert response.brokers[0].rack == "r1"
        if version >= 2:
            assert response.cluster_id == node.services.node.cluster_id
        if version >= 7:
            assert topic.partitions[0].leader_epoch == 0
        if version >= 10:
            assert topic.topic_id == node.services.topics.metadata_log.image.topics_by_name["t"].topic_id

    async def test_all_topics(self, node: Node) -> None:
        await create(node, "u")
        assert {topic.name for topic in (await ask_metadata(node, None)).topics} == {"t", "u"}
        assert len((await ask_metadata(node, [], version=0)).topics) == 2
        assert (await ask_metadata(node, [])).topics == ()

    async def test_all_topics_while_others_are_created(
        self, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(10):
            await create(node, f"before-{number}")
        monkeypatch.setattr(slices, "SLICE_S", -1.0)
        asking = asyncio.ensure_future(ask_metadata(node, None))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asking.done()
        node.services.topics.metadata_log.image.replay(TopicRecord("meanwhile", uuid.uuid4()))
        assert {f"before-{number}" for number in range(10)} <= {topic.name for topic in (await asking).topics}

    async def test_topics_can_be_requested_by_id(self, node: Node) -> None:
        known = node.services.topics.metadata_log.image.topics_by_name["t"].topic_id
        unknown = uuid.UUID(int=5)
        response = await ask_metadata(node, ["names-are-ignored"], ids=[known, unknown])
        assert [(topic.error_code.name, topic.name, topic.topic_id) for topic in response.topics] == [
            ("unknown_topic_id", None, unknown),
            ("none", "t", known),
        ]

    async def test_unknown_and_invalid_names(self, node: Node) -> None:
        response = await ask_metadata(node, ["none", "a b", "t", "t", "__consumer_offsets"])
        assert [(topic.name, topic.error_code.name, topic.is_internal) for topic in response.topics] == [
            ("t", "none", False),
            ("none", "unknown_topic_or_partition", False),
            ("a b", "invalid_topic_exception", False),
            ("__consumer_offsets", "unknown_topic_or_partition", True),
        ]

    @pytest.mark.parametrize("version", [10, 11])
    async def test_ids_before_version_12_refuse_the_request(self, node: Node, version: int) -> None:
        response = await ask_metadata(node, ["t"], ids=[uuid.UUID(int=5)], version=version)
        assert [topic.error_code.name for topic in response.topics] == ["invalid_request"] * 2
        assert response.brokers == ()

    async def test_a_topic_without_name_and_id_refuses_the_request(self, node: Node) -> None:
        response = await ask_metadata(node, [None])
        assert response.error_code.name == "invalid_request"

    async def test_authorized_operations(self, node: Node) -> None:
        asked = await ask_metadata(node, ["t"], version=8, operations=True)
        assert asked.cluster_authorized_operations == 8096
        assert asked.topics[0].topic_authorized_operations == 3576
        plain = await ask_metadata(node, ["t"], version=8)
        assert plain.cluster_authorized_operations == NOT_ASKED
        assert plain.topics[0].topic_authorized_operations == NOT_ASKED

    async def test_a_partition_without_usable_log_has_no_leader(
        self, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(type(node.services.partitions.log_directory), "create", full)
        assert [node.services.partitions.registry.get("t", index) for index in range(2)] == [None, None]
        (topic,) = (await ask_metadata(node, ["t"])).topics
        assert [
            (partition.error_code.name, partition.leader_id, partition.offline_replicas)
            for partition in topic.partitions
        ] == [("leader_not_available", -1, (1,))] * 2


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


async def until_created(node: Node, name: str) -> None:
    async with asyncio.timeout(60):
        while node.services.partitions.registry.get(name, 0) is None:
            await asyncio.sleep(0)


class TestAutoCreation:
    async def test_the_first_answer_is_an_error_and_later_ones_have_the_topic(self, node: Node) -> None:
        first = await ask_metadata(node, ["new"], auto_create=True)
        assert first.topics[0].error_code.name == "unknown_topic_or_partition"
        await until_created(node, "new")
        second = await ask_metadata(node, ["new"], auto_create=True)
        assert second.topics[0].error_code.name == "none"

    async def test_versions_before_4_always_create(self, node: Node) -> None:
        first = await ask_metadata(node, ["new"], version=3)
        assert first.topics[0].error_code.name == "unknown_topic_or_partition"
        await until_created(node, "new")
        second = await ask_metadata(node, ["new"], version=3)
        assert second.topics[0].error_code.name == "none"
        assert [partition.partition_index for partition in second.topics[0].partitions] == [0]

    async def test_simultaneous_requests_create_one_topic(self, node: Node) -> None:
        await asyncio.gather(*(ask_metadata(node, ["new"], auto_create=True) for _ in range(50)))
        await until_created(node, "new")
        assert node.services.topics.metadata_log.image.partition_count == 3

    @pytest.mark.parametrize("name", ["a b", "__cluster_metadata", "__consumer_offsets"])
    async def test_names_that_are_not_created(self, node: Node, name: str) -> None:
        await ask_metadata(node, [name], auto_create=True)
        await node.services.topics.metadata_log.close()
        assert set(node.services.topics.metadata_log.image.topics_by_name) == {"t"}

    async def test_no_topic_is_created_if_client_or_settings_forbid_it(
        self, node: Node, tmp_path: Path
    ) -> None:
        await ask_metadata(node, ["new"], auto_create=False)
        await node.services.topics.metadata_log.close()
        assert set(node.services.topics.metadata_log.image.topics_by_name) == {"t"}
        async with open_node(tmp_path / "other", "auto.create.topics.enable=false") as other:
            await ask_metadata(other, ["new"], auto_create=True)
            await other.services.topics.metadata_log.close()
            assert other.services.topics.metadata_log.image.topics_by_name == {}


class TestDescribeTopicPartitions:
    @staticmethod
    async def page(
        node: Node, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None
    ) -> tuple[list[tuple[str, str, list[int]]], tuple[str, int] | None]:
        def make(module: Any) -> dict[str, Any]:
            return {
                "topics": tuple(module.TopicRequest(name=name) for name in names),
                "response_partition_limit": limit,
                "cursor": cursor and module.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
            }

        response = await node.ask(describe_topic_partitions.API, 0, make)
        rows = [
            (topic.name, topic.error_code.name, [partition.partition_index for partition in topic.partitions])
            for topic in response.topics
        ]
        end = response.next_cursor
        return rows, end and (end.topic_name, end.partition_index)

    async def test_one_page_holds_all_partitions(self, node: Node) -> None:
        rows, end = await self.page(node, ["t", "none", "a b", "t"])
        assert rows == [
            ("a b", "invalid_topic_exception", []),
            ("none", "unknown_topic_or_partition", []),
            ("t", "none", [0, 1]),
        ]
        assert end is None

    async def test_partitions_are_listed_page_by_page(self, node: Node) -> None:
        await create(node, "a", 3)
        seen: list[tuple[str, int]] = []
        cursor: tuple[str, int] | None = None
        for _ in range(5):
            rows, cursor = await self.page(node, [], 1, cursor)
            seen.extend((name, index) for name, _, indexes in rows for index in indexes)
        assert seen == [("a", 0), ("a", 1), ("a", 2), ("t", 0), ("t", 1)]
        assert cursor is None

    async def test_a_full_page_ends_before_the_next_topic(self, node: Node) -> None:
        await create(node, "a", 1)
        assert await self.page(node, ["a", "none", "t"], 1) == ([("a", "none", [0])], ("none", 0))

    @pytest.mark.parametrize("cursor", [("zz", 0), ("t", -1)])
    async def test_invalid_cursors_are_refused(self, node: Node, cursor: tuple[str, int]) -> None:
        assert await self.page(node, ["t"], 2, cursor) == ([("t", "invalid_request", [])], None)

    async def test_a_cursor_behind_the_last_partition(self, node: Node) -> None:
        assert await self.page(node, ["t"], 2, ("t", 9)) == ([("t", "none", [])], None)


class TestDescribeCluster:
    @pytest.mark.parametrize("version", versions(describe_cluster.API))
    async def test_every_version(self, node: Node, version: int) -> None:
        response = await node.ask(
            describe_cluster.API,
            version,
            lambda _: {"include_cluster_authorized_operations": True, "include_fenced_brokers": False},
        )
        assert response.cluster_id == node.services.node.cluster_id
        assert response.controller_id == 1
        assert response.cluster_authorized_operations == 8096
        (broker,) = response.brokers
        assert (broker.broker_id, broker.host, broker.port, broker.rack) == (1, "gateway.example", 9092, "r1")

    @pytest.mark.parametrize(
        ("endpoint_type", "error"), [(2, "mismatched_endpoint_type"), (3, "unsupported_endpoint_type")]
    )
    async def test_other_endpoints(self, node: Node, endpoint_type: int, error: str) -> None:
        response = await node.ask(
            describe_cluster.API,
            1,
            lambda _: {"include_cluster_authorized_operations": False, "endpoint_type": endpoint_type},
        )
        assert response.error_code.name == error
        assert response.brokers == ()


@pytest.mark.parametrize("version", range(14))
async def test_a_wide_topic_is_answered_as_a_narrow_one(
    node: Node, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    await create(node, "wide", metadata.FEW_PARTITIONS + 8)
    monkeypatch.setattr(type(node.services.partitions.log_directory), "create", full)
    assert node.services.partitions.registry.get("wide", 3) is None
    quick = await ask_metadata(node, ["wide"], version=version)
    assert any(type(row) is EncodedEntity for row in quick.topics[0].partitions)
    monkeypatch.setattr(metadata, "FEW_PARTITIONS", 10_000)
    slow = await ask_metadata(node, ["wide"], version=version)
    assert encode_response(3, 1, quick) == encode_response(3, 1, slow)
