from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.handlers.admin.configs import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
    LIST_CONFIG_RESOURCES_API,
)
from seqgate.gateway.metadata.configs import LEVELS
from seqgate.gateway.runtime.loop import log_output
from tests.gateway.handlers.requests import alter, create, describe, replace
from tests.gateway.handlers.support import Node, open_node, versions

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
NAME = "seqgate.gateway.runtime.partitions.flusher"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as node:
        await create(node, "t", configs={"retention.ms": "5"})
        yield node


def values(result: Any) -> dict[str, str | None]:
    return {entry.name: entry.value for entry in result.configs}


class TestDescribe:
    @pytest.mark.parametrize("version", versions(DESCRIBE_CONFIGS_API))
    async def test_a_topic_is_described_in_every_version(self, node: Node, version: int) -> None:
        result = await describe(node, TOPIC, "t", ["retention.ms", "none"], version=version)
        (entry,) = result.configs
        assert (entry.name, entry.value, entry.config_source, entry.read_only) == (
            "retention.ms",
            "5",
            1,
            False,
        )
        assert [(synonym.name, synonym.source) for synonym in entry.synonyms] == [("retention.ms", 1)]

    async def test_documentation_is_sent_only_if_requested(self, node: Node) -> None:
        documented = await describe(node, TOPIC, "t", ["segment.bytes"], documented=True)
        assert documented.configs[0].documentation
        assert documented.configs[0].config_type == 3
        plain = await describe(node, TOPIC, "t", ["segment.bytes"])
        assert plain.configs[0].documentation is None

    @pytest.mark.parametrize("resource_type", [BROKER, LOGGER])
    @pytest.mark.parametrize("broker", ["²", "٣", "1" * 5000, "2147483648", "-", "x"])
    async def test_what_is_no_node_id_is_refused(self, node: Node, resource_type: int, broker: str) -> None:
        result = await describe(node, resource_type, broker)
        assert (result.error_code, result.error_message) == (
            42,
            f"Broker id must be an integer, but it is: {broker}",
        )
        result = await alter(node, resource_type, broker, {})
        assert (result.error_code, result.error_message) == (
            42,
            f"Node id must be an integer, but it is: {broker}",
        )

    async def test_a_request_without_keys_gets_all_configs(self, node: Node) -> None:
        everything = values(await describe(node, TOPIC, "t"))
        assert values(await describe(node, TOPIC, "t", [])) == everything
        assert len(everything) > 10

    async def test_this_broker_is_described(self, node: Node) -> None:
        result = await describe(node, BROKER, "1", ["num.partitions", "log.segment.bytes"])
        assert {entry.name: entry.read_only for entry in result.configs} == {
            "num.partitions": True,
            "log.segment.bytes": False,
        }

    async def test_a_value_given_at_the_start_is_static(self, tmp_path: Path) -> None:
        address = "PLAINTEXT://example.org:9092"
        async with open_node(tmp_path / "other", f"advertised.listeners={address}") as node:
            result = await describe(node, BROKER, "1", ["advertised.listeners", "num.partitions"])
        static, default = 4, 5
        assert {entry.name: (entry.value, entry.config_source) for entry in result.configs} == {
            "advertised.listeners": (address, static),
            "num.partitions": ("1", default),
        }

    @pytest.mark.parametrize(
        ("resource_type", "name", "error"),
        [
            (TOPIC, "none", "unknown_topic_or_partition"),
            (TOPIC, "a b", "invalid_topic_exception"),
            (TOPIC, "", "invalid_topic_exception"),
            (BROKER, "2", "invalid_request"),
            (BROKER, "x", "invalid_request"),
            (LOGGER, "", "invalid_request"),
            (LOGGER, "2", "invalid_request"),
            (LOGGER, "x", "invalid_request"),
            (CLIENT_METRICS, "", "invalid_request"),
            (GROUP, "", "invalid_request"),
            (99, "x", "invalid_request"),
        ],
    )
    async def test_refusals(self, node: Node, resource_type: int, name: str, error: str) -> None:
        result = await describe(node, resource_type, name)
        assert result.error_code.name == error
        assert result.configs == ()

    async def test_an_unknown_resource_type_refuses_the_whole_request(self, node: Node) -> None:
        def make(module: Any) -> dict[str, Any]:
            resources = tuple(
                module.DescribeConfigsResource(resource_type=kind, resource_name="t", configuration_keys=None)
                for kind in (TOPIC, 99)
            )
            return {"resources": resources}

        response = await node.ask(DESCRIBE_CONFIGS_API, 4, make)
        assert [result.error_code.name for result in response.results] == ["invalid_request"] * 2


class TestAlter:
    @pytest.mark.parametrize("version", versions(INCREMENTAL_ALTER_CONFIGS_API))
    async def test_incremental_alterations_in_every_version(self, node: Node, version: int) -> None:
        result = await alter(node, TOPIC, "t", {"flush.messages": "9", "retention.ms": None}, version=version)
        assert result.error_code.name == "none"
        assert node.services.topics.metadata_log.image.topic_configs("t") == {"flush.messages": "9"}
        partition = node.services.partitions.registry.get("t", 0)
        assert partition is not None
        assert partition.flush_messages == 9
        assert partition.log.config.retention_ms == 604800000

    @pytest.mark.parametrize("version", versions(ALTER_CONFIGS_API))
    async def test_full_replacements_in_every_version(self, node: Node, version: int) -> None:
        result = await replace(node, TOPIC, "t", {"max.message.bytes": "77"}, version=version)
        assert result.error_code.name == "none"
        assert node.services.topics.metadata_log.image.topic_configs("t") == {"max.message.bytes": "77"}
        partition = node.services.partitions.registry.get("t", 0)
        assert partition is not None
        assert partition.log.config.max_message_bytes == 77

    async def test_a_brokers_value_reaches_topics_without_their_own(self, node: Node) -> None:
        await create(node, "own", configs={"max.message.bytes": "5"})
        assert all(node.services.partitions.registry.get(name, 0) for name in ("t", "own"))
        await alter(node, BROKER, "", {"message.max.bytes": "99"})
        sizes = {
            partition.topic: partition.log.config.max_message_bytes
            for partition in node.services.partitions.registry
        }
        assert sizes == {"t": 99, "own": 5}
        shown = await describe(node, TOPIC, "t", ["max.message.bytes"])
        assert (shown.configs[0].value, shown.configs[0].config_source) == ("99", 3)
        assert values(await describe(node, BROKER, "")) == {"message.max.bytes": "99"}

    async def test_altered_configs_of_a_broker_survive_a_restart(self, tmp_path: Path) -> None:
        async with open_node(tmp_path / "other") as node:
            await alter(node, BROKER, "1", {"message.max.bytes": "99"})
        async with open_node(tmp_path / "other") as node:
            assert node.services.node.config.int("message.max.bytes") == 99

    async def test_a_refusal_says_why(self, node: Node) -> None:
        result = await alter(node, BROKER, "1", {"num.partitions": "3"})
        assert result.error_code.name == "invalid_request"
        assert "num.partitions" in result.error_message


async def test_a_coordinators_topic_can_be_altered_and_keeps_everything(tmp_path: Path) -> None:
    """The coordinator decides which records are deleted, whatever the topic's configs say."""
    async with open_node(tmp_path) as node:
        await node.services.coordinators.groups.ensure_topic()
        name = "__consumer_offsets"
        for configs in ({"flush.messages": "5"}, {"retention.ms": "1", "cleanup.policy": "delete"}):

            def make(module: Any, configs: dict[str, str] = configs) -> dict[str, Any]:
                rows = tuple(
                    module.AlterableConfig(name=key, config_operation=0, value=value)
                    for key, value in configs.items()
                )
                resource = module.AlterConfigsResource(resource_type=2, resource_name=name, configs=rows)
                return {"resources": (resource,), "validate_only": False}

            answer = await node.ask(INCREMENTAL_ALTER_CONFIGS_API, 1, make)
            assert answer.responses[0].error_code == 0
        partition = node.services.partitions.registry.get(name, 0)
        assert partition is not None
        assert partition.flush_messages == 5
        assert partition.log.config.retention_ms == -1


LOCK = "share.record.lock.duration.ms"


class TestGroups:
    @pytest.mark.parametrize("version", versions(DESCRIBE_CONFIGS_API))
    async def test_a_group_that_does_not_exist_is_described_in_every_version(
        self, node: Node, version: int
    ) -> None:
        (entry,) = (await describe(node, GROUP, "g", [LOCK, "none"], version=version)).configs
        assert (entry.name, entry.value, entry.config_source) == (LOCK, "30000", 5)
        assert [(synonym.name, synonym.source) for synonym in entry.synonyms] == [(f"group.{LOCK}", 5)]

    async def test_a_groups_own_value_comes_first(self, node: Node) -> None:
        await alter(node, GROUP, "g", {LOCK: " 20000 ", "share.isolation.level": "read_committed"})
        lock, level = (await describe(node, GROUP, "g", [LOCK, "share.isolation.level"])).configs
        assert [(one.name, one.value, one.source) for one in lock.synonyms] == [
            (LOCK, "20000", 8),
            (f"group.{LOCK}", "30000", 5),
        ]
        assert [(one.value, one.source) for one in level.synonyms] == [
            ("read_committed", 8),
            ("read_uncommitted", 5),
        ]
        assert values(await describe(node, GROUP, "other", [LOCK])) == {LOCK: "30000"}

    @pytest.mark.parametrize("version", versions(ALTER_CONFIGS_API))
    async def test_the_configs_of_a_group_are_replaced_in_every_version(
        self, node: Node, version: int
    ) -> None:
        await alter(node, GROUP, "g", {LOCK: "20000"})
        await replace(node, GROUP, "g", {"share.delivery.count.limit": "3"}, version=version)
        rules = node.services.coordinators.group_configs.of("g")
        assert (rules.share.lock_duration_ms, rules.share.delivery_count_limit) == (30_000, 3)

    async def test_the_configs_of_a_group_survive_a_restart(self, tmp_path: Path) -> None:
        async with open_node(tmp_path / "other") as node:
            await alter(node, GROUP, "g", {"consumer.session.timeout.ms": "50000"})
        async with open_node(tmp_path / "other") as node:
            assert node.services.coordinators.group_configs.of("g").consumer.session_timeout_ms == 50_000


class TestLoggers:
    @pytest.fixture(autouse=True)
    def inherited_after(self) -> Iterator[None]:
        yield
        log_output.set_level(NAME, None)

    async def level(self, node: Node) -> str | None:
        return values(await describe(node, LOGGER, "1", [NAME]))[NAME]

    async def test_a_level_is_set_and_inherited_again(self, node: Node) -> None:
        inherited = await self.level(node)
        for level, number in (("TRACE", 5), ("DEBUG", 10), ("WARN", 30), ("FATAL", 50)):
            assert (await alter(node, LOGGER, "1", {NAME: level})).error_message is None
            assert await self.level(node) == level
            assert logging.getLogger(NAME).level == number
        assert (await alter(node, LOGGER, "1", {NAME: None})).error_message is None
        assert await self.level(node) == inherited

    async def test_one_invalid_level_refuses_all_changes_of_the_request(self, node: Node) -> None:
        before = await self.level(node)
        result = await alter(node, LOGGER, "1", {NAME: "ERROR", "nope": "ERROR"})
        assert (result.error_code.name, result.error_message) == (
            "invalid_config",
            "Logger nope does not exist!",
        )
        assert await self.level(node) == before

    @pytest.mark.parametrize("name", ["seqgate.changes", "seqgate.audit"])
    async def test_the_record_of_changes_cannot_be_switched_off(self, node: Node, name: str) -> None:
        result = await alter(node, LOGGER, "1", {name: "WARN"})
        assert (result.error_code.name, result.error_message) == (
            "invalid_config",
            f"{name} records what users changed: its level may be INFO, DEBUG or TRACE, not WARN",
        )
        assert (await alter(node, LOGGER, "1", {name: "DEBUG"})).error_message is None
        assert (await alter(node, LOGGER, "1", {name: None})).error_message is None

    async def test_a_level_that_silences_the_log_stands_in_it(
        self, node: Node, caplog: pytest.LogCaptureFixture
    ) -> None:
        before = logging.getLogger().level
        log_output.set_level(log_output.ROOT, "INFO")
        try:
            await alter(node, LOGGER, "1", {"root": "FATAL"})
            assert "logger of broker 1 (root=FATAL)" in caplog.text
        finally:
            logging.getLogger().setLevel(before)

    async def test_every_logger_is_described(self, node: Node) -> None:
        told = values(await describe(node, LOGGER, "1"))
        assert {"root", "seqgate", "seqgate.gateway", "seqgate.gateway.runtime", "seqgate.log", NAME} <= set(
            told
        )
        assert set(told.values()) <= set(LEVELS)

    async def test_log_levels_can_not_be_replaced_by_alter_configs(self, node: Node) -> None:
        result = await replace(node, LOGGER, "1", {NAME: "ERROR"})
        assert (result.error_code.name, result.error_message) == (
            "invalid_request",
            "Unknown resource type 8",
        )


class TestListResources:
    async def listed(self, node: Node, version: int, *types: int) -> tuple[str, set[tuple[int, str]]]:
        response = await node.ask(
            LIST_CONFIG_RESOURCES_API, version, lambda module: {"resource_types": types} if version else {}
        )
        found = {(getattr(one, "resource_type", 16), one.resource_name) for one in response.config_resources}
        return response.error_code.name, found

    async def test_resources_are_listed_by_type(self, node: Node) -> None:
        await alter(node, GROUP, "g", {LOCK: "20000"})
        assert await self.listed(node, 1, GROUP) == ("none", {(GROUP, "g")})
        assert await self.listed(node, 1, TOPIC, BROKER) == ("none", {(TOPIC, "t"), (BROKER, "1")})
        all_kinds = {(GROUP, "g"), (TOPIC, "t"), (BROKER, "1"), (LOGGER, "1")}
        assert await self.listed(node, 1) == ("none", all_kinds)
        await alter(node, GROUP, "g", {LOCK: None})
        assert await self.listed(node, 1, GROUP) == ("none", set())

    async def test_client_metrics_are_listed(self, node: Node) -> None:
        assert await self.listed(node, 0) == ("none", set())
        await alter(node, CLIENT_METRICS, "s", {"metrics": "*"})
        assert await self.listed(node, 0) == ("none", {(CLIENT_METRICS, "s")})
        assert await self.listed(node, 1, CLIENT_METRICS) == ("none", {(CLIENT_METRICS, "s")})
        await alter(node, CLIENT_METRICS, "s", {"metrics": None})
        assert await self.listed(node, 0) == ("none", set())

    async def test_an_unknown_type_is_refused(self, node: Node) -> None:
        assert await self.listed(node, 1, GROUP, 99) == ("unsupported_version", set())


class TestClientMetrics:
    """Subscriptions of client metrics."""

    async def test_a_subscription_that_does_not_exist_shows_the_defaults(self, node: Node) -> None:
        result = await describe(node, CLIENT_METRICS, "s", documented=True)
        assert values(result) == {"interval.ms": "300000", "match": "", "metrics": ""}
        assert {(entry.config_source, entry.synonyms) for entry in result.configs} == {(5, ())}
        assert [entry.config_type for entry in result.configs] == [3, 7, 7]
        assert all(entry.documentation for entry in result.configs)

    async def test_set_values_are_described(self, node: Node) -> None:
        await alter(node, CLIENT_METRICS, "s", {"metrics": " a , b,a", "interval.ms": " 200 "})
        result = await describe(node, CLIENT_METRICS, "s", ["metrics", "interval.ms"])
        assert values(result) == {"interval.ms": "200", "metrics": "a,b"}
        for entry in result.configs:
            assert entry.config_source == 7
            assert [(synonym.value, synonym.source) for synonym in entry.synonyms] == [(entry.value, 7)]

    async def test_replaced_values_are_gone(self, node: Node) -> None:
        await replace(node, CLIENT_METRICS, "s", {"metrics": "a", "interval.ms": "200"})
        await replace(node, CLIENT_METRICS, "s", {"match": "client_id=a"})
        described = values(await describe(node, CLIENT_METRICS, "s"))
        assert described == {"interval.ms": "300000", "match": "client_id=a", "metrics": ""}

    async def test_subscriptions_are_stored(self, tmp_path: Path) -> None:
        async with open_node(tmp_path / "data") as first:
            await alter(first, CLIENT_METRICS, "s", {"metrics": "a"})
        async with open_node(tmp_path / "data") as second:
            assert values(await describe(second, CLIENT_METRICS, "s"))["metrics"] == "a"
