from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.handlers.admin.topics import CREATE_PARTITIONS_API, CREATE_TOPICS_API, DELETE_TOPICS_API
from tests.gateway.handlers.requests import create, delete, grow
from tests.gateway.handlers.support import Node, open_node, versions


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as node:
        yield node


class TestCreateTopics:
    @pytest.mark.parametrize("version", versions(CREATE_TOPICS_API))
    async def test_every_version(self, node: Node, version: int) -> None:
        result = await create(node, "t", 3, version=version)
        assert result.error_code.name == "none"
        assert node.services.partitions.registry.by_name["t"].count == 3
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            assert {entry.name for entry in result.configs} >= {"segment.bytes", "retention.ms"}
        if version >= 7:
            assert result.topic_id == node.services.topics.metadata_log.image.topics_by_name["t"].topic_id
        again = await create(node, "t", 3, version=version)
        assert again.error_code.name == "topic_already_exists"

    async def test_configs_given_at_creation_are_marked_as_the_topics_own(self, node: Node) -> None:
        result = await create(node, "t", configs={"retention.ms": "5"})
        (entry,) = [entry for entry in result.configs if entry.name == "retention.ms"]
        assert (entry.value, entry.config_source) == ("5", 1)
        partition = node.services.partitions.registry.get("t", 0)
        assert partition is not None
        assert partition.log.config.retention_ms == 5

    async def test_validate_only_creates_nothing(self, node: Node) -> None:
        assert (await create(node, "t", validate_only=True)).error_code.name == "none"
        assert "t" not in node.services.topics.metadata_log.image.topics_by_name
        assert node.services.partitions.registry.get("t", 0) is None

    @pytest.mark.parametrize("milliseconds", [0, -1])
    async def test_a_request_with_timeout_0_creates_nothing(self, node: Node, milliseconds: int) -> None:
        def make(module: Any) -> dict[str, Any]:
            topic = module.CreatableTopic(
                name="t", num_partitions=1, replication_factor=1, assignments=(), configs=()
            )
            return {"topics": (topic,), "timeout": timedelta(milliseconds=milliseconds)}

        response = await node.ask(CREATE_TOPICS_API, 7, make)
        assert response.topics[0].error_code.name == "request_timed_out"
        assert node.services.topics.metadata_log.image.topics_by_name == {}

    async def test_a_slow_disk_is_reported_and_the_change_continues(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with open_node(tmp_path / "other", "seqgate.admin.timeout.ms=1") as node:
            begun, gate = asyncio.Event(), asyncio.Event()
            flushed = node.services.partitions.flusher.flushed

            async def slow(*arguments: Any) -> None:
                begun.set()
                await gate.wait()
                await flushed(*arguments)

            monkeypatch.setattr(node.services.partitions.flusher, "flushed", slow)
            while not begun.is_set():  # a request whose millisecond is over before its turn changes nothing
                assert (await create(node, "t")).error_code.name == "request_timed_out"
            gate.set()
            await node.services.topics.metadata_log.close()
            assert node.services.partitions.registry.get("t", 0) is not None

    async def test_a_refusal_says_why(self, node: Node) -> None:
        result = await create(node, "t", configs={"retention.mss": "5"})
        assert result.error_code.name == "invalid_config"
        assert "retention.ms" in result.error_message
        assert result.configs == ()


class TestDeleteTopics:
    @pytest.mark.parametrize("version", versions(DELETE_TOPICS_API))
    async def test_every_version(self, node: Node, version: int) -> None:
        await create(node, "t", 2)
        good, bad = await delete(node, "t", "none", version=version)
        assert good.error_code.name == "none"
        assert bad.error_code.name == "unknown_topic_or_partition"
        assert node.services.partitions.registry.get("t", 0) is None
        assert [log.topic for log in node.services.partitions.log_directory.logs()] == ["__cluster_metadata"]

    async def test_a_topic_comes_back_empty_under_another_id(self, node: Node) -> None:
        first = await create(node, "t")
        await delete(node, "t")
        second = await create(node, "t")
        assert first.topic_id != second.topic_id
        partition = node.services.partitions.registry.get("t", 0)
        assert partition is not None
        assert partition.topic_id == second.topic_id

    @pytest.mark.parametrize(
        ("version", "error"),
        [(2, "invalid_request"), (3, "topic_deletion_disabled"), (6, "topic_deletion_disabled")],
    )
    async def test_deletions_can_be_switched_off(self, tmp_path: Path, version: int, error: str) -> None:
        async with open_node(tmp_path / "other", "delete.topic.enable=false") as node:
            await create(node, "t")
            (result,) = await delete(node, "t", version=version)
            assert result.error_code.name == error
            assert node.services.partitions.registry.get("t", 0) is not None


class TestCreatePartitions:
    @pytest.mark.parametrize("version", versions(CREATE_PARTITIONS_API))
    async def test_every_version(self, node: Node, version: int) -> None:
        await create(node, "t", 1)
        assert (await grow(node, "t", 3, version=version)).error_code.name == "none"
        assert [partition.index for partition in node.services.partitions.registry.by_name["t"].all()] == [
            0,
            1,
            2,
        ]
        assert (await grow(node, "t", 2, version=version)).error_code.name == "invalid_partitions"


async def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        created = await create(node, "kept", 2, configs={"retention.ms": "5"})
        await create(node, "gone")
        await delete(node, "gone")
        await grow(node, "kept", 3)
    async with open_node(tmp_path) as node:
        image = node.services.topics.metadata_log.image
        assert list(image.topics_by_name) == ["kept"]
        assert image.topics_by_name["kept"].topic_id == created.topic_id
        assert image.topic_configs("kept") == {"retention.ms": "5"}
        assert node.services.partitions.registry.by_name["kept"].count == 3
