"""The table of needed rights has a row for each API, and a request asks for the rights of its row and no others.

`SAMPLES` has the requests; a group of handlers whose name is in `SAMPLED` has one for each of its APIs.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.handlers import APIS
from gateway.handlers.answering.api import Api
from gateway.handlers.answering.needed_rights import NEEDED_RIGHTS
from gateway.security.acls.codes import Operation, ResourceType
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.support.batches import Batch, records
from tests.support.wire import Plain

Asked = tuple[Operation, ResourceType]
_TRANSACTIONAL: Final = Batch(records(1), attributes=0x10, base_timestamp=NOW_MS).of(7, 0, 0).encode()
_PARTITION: Final = {"partition": 0, "current_leader_epoch": -1, "log_start_offset": -1}
_FETCH: Final = {
    "session_epoch": -1,
    "max_wait": 0,
    "topics": [
        {"topic": "t", "partitions": [{**_PARTITION, "partition_max_bytes": 1, "last_fetched_epoch": -1}]}
    ],
}
_RESOURCES: Final = [
    {"resource_type": kind, "resource_name": name, "configs": []}
    for kind, name in ((2, "t"), (32, "g"), (4, "1"))
]

SAMPLED: Final = ("records", "admin")
"""The groups of handlers in `gateway.handlers` whose APIs all have samples."""
SAMPLES: Final[dict[str, list[tuple[str, int, Plain]]]] = {
    "Produce": [
        (
            "produce",
            9,
            {
                "acks": -1,
                "transactional_id": "tx",
                "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": _TRANSACTIONAL}]}],
            },
        )
    ],
    "Fetch": [("fetch", 12, {"replica_id": -1, **_FETCH}), ("fetch", 12, {"replica_id": 2, **_FETCH})],
    "ListOffsets": [("list_offsets", 7, {"topics": [{"name": "t", "partitions": []}]})],
    "Metadata": [
        (
            "metadata",
            8,
            {
                "topics": [{"name": "t"}, {"name": "new"}],
                "allow_auto_topic_creation": True,
                "include_cluster_authorized_operations": True,
            },
        )
    ],
    "CreateTopics": [("create_topics", 7, {"topics": [{"name": "new"}], "validate_only": True})],
    "DeleteTopics": [("delete_topics", 5, {"topic_names": ["t"], "timeout": 30_000})],
    "DeleteRecords": [("delete_records", 2, {"topics": [{"name": "t", "partitions": []}]})],
    "OffsetForLeaderEpoch": [("offset_for_leader_epoch", 4, {"topics": [{"topic": "t", "partitions": []}]})],
    "DescribeConfigs": [
        (
            "describe_configs",
            4,
            {
                "resources": [
                    {key: row[key] for key in ("resource_type", "resource_name")} for row in _RESOURCES
                ]
            },
        )
    ],
    "AlterConfigs": [("alter_configs", 2, {"resources": _RESOURCES, "validate_only": True})],
    "IncrementalAlterConfigs": [
        ("incremental_alter_configs", 1, {"resources": _RESOURCES, "validate_only": True})
    ],
    "AlterReplicaLogDirs": [("alter_replica_log_dirs", 2, {"dirs": []})],
    "DescribeLogDirs": [("describe_log_dirs", 4, {"topics": []})],
    "CreatePartitions": [
        ("create_partitions", 3, {"topics": [{"name": "t", "count": 2}], "validate_only": True})
    ],
    "ElectLeaders": [("elect_leaders", 2, {"topic_partitions": []})],
    "AlterPartitionReassignments": [("alter_partition_reassignments", 0, {"topics": []})],
    "ListPartitionReassignments": [("list_partition_reassignments", 0, {"topics": []})],
    "DescribeQuorum": [("describe_quorum", 0, {"topics": []})],
    "UpdateFeatures": [("update_features", 1, {"feature_updates": []})],
    "DescribeCluster": [("describe_cluster", 0, {"include_cluster_authorized_operations": True})],
    "UnregisterBroker": [("unregister_broker", 0, {"broker_id": 7})],
    "ListConfigResources": [("list_config_resources", 1, {"resource_types": []})],
    "DescribeTopicPartitions": [("describe_topic_partitions", 0, {"topics": [{"name": "t"}]})],
}


LIST_OPERATIONS: Final = {"Metadata", "DescribeCluster", "DescribeTopicPartitions"}
"""The APIs whose answers list the operations that the client may carry out, so that they ask for all rights."""


class Recording:
    """An access that notes what it is asked, and allows all rights but some."""

    is_on = True
    generation = 0

    def __init__(self, *denied: Asked) -> None:
        self.denied = set(denied)
        self.asked: set[Asked] = set()

    def allows(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        self.asked.add((operation, resource_type))
        return (operation, resource_type) not in self.denied

    def allows_some(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return self.allows(principal, host, operation, resource_type, "")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as opened:
        yield opened


def rights_of(api: str) -> set[Asked]:
    return {(right.operation, right.resource_type) for right in NEEDED_RIGHTS[api]}


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_api_has_a_row(api: Api[Any]) -> None:
    assert api.name in NEEDED_RIGHTS


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_api_of_the_sampled_groups_has_a_sample(api: Api[Any]) -> None:
    module = inspect.getmodule(api.begin or api.handle)
    assert module is not None
    group = module.__name__.split(".")[2]
    assert (api.name in SAMPLES) or group not in SAMPLED


@pytest.mark.parametrize("api", SAMPLES)
async def test_a_request_asks_for_the_rights_of_its_row(node: Node, api: str) -> None:
    """The samples are sent with all rights, and again without each right of the row."""
    asked: set[Asked] = set()
    for denied in [(), *[(right,) for right in sorted(rights_of(api))]]:
        for name, version, fields in SAMPLES[api]:
            node.services.node.access = Recording()
            if "t" not in node.services.topics.metadata_log.image.topics_by_name:
                await create(node, "t")
            access = node.services.node.access = Recording(*denied)
            await Asking(node).ask(name, version, **fields)
            asked |= access.asked
    if api in LIST_OPERATIONS:
        assert asked >= rights_of(api)
    else:
        assert asked == rights_of(api)
