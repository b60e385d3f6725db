"""The log lines of changes: who changed which topic, configuration, group or record."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.handlers.admin.configs import ALTER_CONFIGS_API, INCREMENTAL_ALTER_CONFIGS_API
from seqgate.gateway.handlers.answering.changes import NAMES_IN_A_LINE, log_change
from seqgate.gateway.handlers.groups.groups import DELETE_GROUPS_API
from seqgate.gateway.handlers.records import delete_records
from seqgate.gateway.metadata.configs import ConfigOperation
from seqgate.gateway.metadata.image import METADATA_TOPIC
from seqgate.gateway.runtime.loop.log_output import UNLIMITED
from tests.gateway.handlers.requests import TIMEOUT, alter, ask_metadata, create, delete, grow
from tests.gateway.handlers.support import Node, open_node
from tests.support.held_disk import HeldDisk

BY = ", by User:ANONYMOUS at 127.0.0.1:50312 (client 'test')"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.name == UNLIMITED]
    caplog.clear()
    return found


async def test_created_and_deleted_topics_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with open_node(tmp_path) as node:
        await create(node, "orders", 4)
        await create(node, "orders", 4)
        await create(node, "only-checked", validate_only=True)
        assert lines(caplog) == [f"created topic orders (4 partitions){BY}"]
        await grow(node, "orders", 6)
        assert lines(caplog) == [f"added partitions to topic orders (now 6){BY}"]
        await delete(node, "orders", "gone")
        assert lines(caplog) == [f"deleted topic orders{BY}"]


async def test_a_topic_that_metadata_asks_for_is_logged_once_it_is_durable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    disk = HeldDisk()
    async with open_node(tmp_path, storage=disk) as node:
        with disk.held(METADATA_TOPIC):
            await ask_metadata(node, ["orders"], auto_create=True)
            while not disk.waiting:
                await asyncio.sleep(0)
            assert lines(caplog) == []
        await node.services.topics.metadata_log.close()
        await asyncio.sleep(0)
        how = "named in Metadata, auto.create.topics.enable"
        assert lines(caplog) == [f"created topic orders (1 partition; {how}){BY}"]


async def test_changed_configurations_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with open_node(tmp_path) as node:
        await create(node, "orders")
        lines(caplog)
        await _alter_incrementally(node)
        assert lines(caplog) == [
            "altered the configuration of topic orders (retention.ms=5, cleanup.policy+=compact, segment.ms "
            "to its default)" + BY
        ]

        def replace(module: Any) -> dict[str, Any]:
            config = module.AlterableConfig(name="retention.ms", value="7")
            resource = module.AlterConfigsResource(resource_type=2, resource_name="orders", configs=(config,))
            return {"resources": (resource,), "validate_only": False}

        await node.ask(ALTER_CONFIGS_API, 2, replace)
        assert lines(caplog) == [
            f"altered the configuration of topic orders (retention.ms=7, all others to their defaults){BY}"
        ]


async def test_a_log_line_says_what_is_kept_without_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with open_node(tmp_path) as node:
        await alter(
            node, 4, "1", {"num.io.threads": "9", "log.retention.mss": "secret", "log.retention.ms": "7"}
        )
        (line,) = lines(caplog)
        assert line == (
            "altered the configuration of broker 1 (num.io.threads=9 (kept without effect), "
            "log.retention.mss=[hidden] (unknown, kept without effect), log.retention.ms=7; "
            f"the valid name nearest to log.retention.mss is log.retention.ms){BY}"
        )
        await alter(node, 4, "1", {"no.such": None})
        assert lines(caplog) == [f"altered the configuration of broker 1 (no.such to its default){BY}"]


async def _alter_incrementally(node: Node) -> None:
    def make(module: Any) -> dict[str, Any]:
        changes = (
            ("retention.ms", "5", ConfigOperation.SET),
            ("cleanup.policy", "compact", ConfigOperation.APPEND),
            ("segment.ms", None, ConfigOperation.DELETE),
        )
        configs = tuple(
            module.AlterableConfig(name=name, value=value, config_operation=int(operation))
            for name, value, operation in changes
        )
        resource = module.AlterConfigsResource(resource_type=2, resource_name="orders", configs=configs)
        return {"resources": (resource,), "validate_only": False}

    answer = await node.ask(INCREMENTAL_ALTER_CONFIGS_API, 1, make)
    assert [row.error_code for row in answer.responses] == [0]


async def test_deleted_records_and_groups_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with open_node(tmp_path) as node:
        await create(node, "orders")
        lines(caplog)

        def make(module: Any) -> dict[str, Any]:
            partition = module.DeleteRecordsPartition(partition_index=0, offset=0)
            missing = module.DeleteRecordsPartition(partition_index=9, offset=0)
            topic = module.DeleteRecordsTopic(name="orders", partitions=(partition, missing))
            return {"topics": (topic,), "timeout": TIMEOUT}

        await node.ask(delete_records.API, 2, make)
        assert lines(caplog) == [f"deleted records of orders-0 (before 0){BY}"]
        await node.ask(DELETE_GROUPS_API, 2, lambda _: {"groups_names": ("nobody",)})
        assert lines(caplog) == []


async def test_a_log_line_names_a_few_changes_and_counts_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with open_node(tmp_path) as node:
        context = node.context(DELETE_GROUPS_API, 2)
        log_change(context, "deleted group", [str(number) for number in range(NAMES_IN_A_LINE + 3)])
    (line,) = lines(caplog)
    assert line.endswith(f"19 and 3 more{BY}")
