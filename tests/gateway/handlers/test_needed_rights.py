"""A request asks for the rights that the head of its handler names, and for no others.

`SAMPLES` has the requests; a group of handlers whose name is in `SAMPLED` has one for each of its APIs.
"""

from __future__ import annotations

import inspect
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from docs.pages import description_of
from seqgate.gateway.handlers import APIS
from seqgate.gateway.handlers.answering.api import Api
from seqgate.gateway.security.acls.access import Operation, ResourceType
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.gateway.handlers.two_brokers import OTHER, THIS, broker, commit
from tests.support.batches import Batch, records
from tests.support.wire import Plain

Asked = tuple[Operation, ResourceType]
_KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
    "user": ResourceType.USER,
    "token": ResourceType.DELEGATION_TOKEN,
}
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

_T_ID: Final = "the id of t"
"""Stands in a sample for the id of the topic t, which each node chooses anew."""
_A_NEW_TOPIC: Final = "a name for each request"
"""Stands in a sample for a topic that is not there, whatever the requests before it created."""
_SOME_TOPICS: Final = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 0}]}]
_MEMBER: Final = {"group_id": "g", "member_id": "m", "member_epoch": 0}
_JOINS: Final[Plain] = {
    **_MEMBER,
    "rebalance_timeout": 1000,
    "subscribed_topic_names": ["t"],
    "subscribed_topic_regex": None,
    "topic_partitions": [],
}
_JOINS_TO_SHARE: Final[Plain] = {**_MEMBER, "subscribed_topic_names": ["t"]}
_SHARE_READ: Final[Plain] = {
    "group_id": "g",
    "member_id": "m",
    "share_session_epoch": 0,
    "topics": [{"topic_id": _T_ID, "partitions": [{"partition_index": 0}]}],
}
_CHANGELOG: Final = {"name": "changelog", "partitions": 0, "replication_factor": 3}
_STREAMS: Final[Plain] = {
    **_MEMBER,
    "rebalance_timeout": 1000,
    "process_id": "p",
    "active_tasks": [],
    "standby_tasks": [],
    "warmup_tasks": [],
    "topology": {
        "epoch": 1,
        "subtopologies": [
            {"subtopology_id": "0", "source_topics": ["t"], "state_changelog_topics": [_CHANGELOG]}
        ],
    },
}
_BEGINS_TRANSACTIONS: Final[Plain] = {
    "transactional_id": "tx",
    "transaction_timeout": 60_000,
    "producer_id": -1,
    "producer_epoch": -1,
}
_ADDS: Final[Plain] = {
    "v3_and_below_transactional_id": "tx",
    "v3_and_below_producer_id": 0,
    "v3_and_below_producer_epoch": 0,
    "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
}

SAMPLED: Final = ("records", "admin", "groups", "transactions", "sharing")
"""The groups of handlers in `seqgate.gateway.handlers` whose APIs all have samples."""


def _share_state(**fields: Any) -> Plain:
    """Return the fields of a request about the state of partition 0 in a share group."""
    topic_id = "5d9c7319-dc40-44ae-a1b6-b2b2b584141a"
    return {"group_id": "g", "topics": [{"topic_id": topic_id, "partitions": [{"partition": 0, **fields}]}]}


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
                "topics": [{"name": "t"}, {"name": _A_NEW_TOPIC}],
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
    "BrokerHeartbeat": [
        (
            "broker_heartbeat",
            0,
            {
                "broker_id": OTHER,
                "broker_epoch": 1,
                "current_metadata_offset": 0,
                "want_fence": False,
                "want_shut_down": False,
            },
        )
    ],
    "UnregisterBroker": [("unregister_broker", 0, {"broker_id": 7})],
    "UnregisterController": [("unregister_controller", 0, {"controller_id": 7})],
    "ListConfigResources": [("list_config_resources", 1, {"resource_types": []})],
    "DescribeTopicPartitions": [("describe_topic_partitions", 0, {"topics": [{"name": "t"}]})],
    "FindCoordinator": [
        ("find_coordinator", 6, {"key_type": 0, "coordinator_keys": ["g"]}),
        ("find_coordinator", 6, {"key_type": 1, "coordinator_keys": ["tx"]}),
        ("find_coordinator", 6, {"key_type": 2, "coordinator_keys": ["g"]}),
    ],
    "JoinGroup": [
        ("join_group", 4, {"group_id": "g", "session_timeout": 10_000, "rebalance_timeout": 10_000})
    ],
    "Heartbeat": [("heartbeat", 4, {"group_id": "g", "member_id": "m"})],
    "LeaveGroup": [("leave_group", 5, {"group_id": "g"})],
    "SyncGroup": [("sync_group", 5, {"group_id": "g", "protocol_type": "p", "protocol_name": "n"})],
    "DescribeGroups": [("describe_groups", 0, {"groups": ["g"]})],
    "ListGroups": [("list_groups", 5, {})],
    "DeleteGroups": [("delete_groups", 2, {"groups_names": ["absent"]})],
    "OffsetCommit": [
        ("offset_commit", 8, {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": _SOME_TOPICS})
    ],
    "OffsetFetch": [
        (
            "offset_fetch",
            8,
            {"groups": [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]},
        )
    ],
    "OffsetDelete": [("offset_delete", 0, {"group_id": "g", "topics": [{"name": "t", "partitions": []}]})],
    "ConsumerGroupHeartbeat": [("consumer_group_heartbeat", 1, _JOINS)],
    "ConsumerGroupDescribe": [("consumer_group_describe", 1, {"group_ids": ["g"]})],
    "StreamsGroupHeartbeat": [("streams_group_heartbeat", 0, _STREAMS)],
    "StreamsGroupDescribe": [("streams_group_describe", 0, {"group_ids": ["g"]})],
    "StreamsGroupTopologyDescriptionUpdate": [
        (
            "streams_group_topology_description_update",
            0,
            {"group_id": "g", "member_id": "m", "topology_description": {}},
        )
    ],
    "ShareGroupHeartbeat": [("share_group_heartbeat", 1, _JOINS_TO_SHARE)],
    "ShareGroupDescribe": [("share_group_describe", 1, {"group_ids": ["g"]})],
    "ShareFetch": [("share_fetch", 1, _SHARE_READ)],
    "ShareAcknowledge": [("share_acknowledge", 1, {**_SHARE_READ, "share_session_epoch": 1})],
    "InitializeShareGroupState": [
        ("initialize_share_group_state", 0, _share_state(state_epoch=0, start_offset=0))
    ],
    "ReadShareGroupState": [("read_share_group_state", 0, _share_state(leader_epoch=0))],
    "WriteShareGroupState": [
        (
            "write_share_group_state",
            0,
            _share_state(state_epoch=0, leader_epoch=0, start_offset=0, state_batches=[]),
        )
    ],
    "DeleteShareGroupState": [("delete_share_group_state", 0, _share_state())],
    "ReadShareGroupStateSummary": [("read_share_group_state_summary", 0, _share_state(leader_epoch=0))],
    "DescribeShareGroupOffsets": [
        (
            "describe_share_group_offsets",
            0,
            {"groups": [{"group_id": "g", "topics": [{"topic_name": "t", "partitions": [0]}]}]},
        )
    ],
    "AlterShareGroupOffsets": [
        ("alter_share_group_offsets", 0, {"group_id": "g", "topics": [{"topic_name": "t", "partitions": []}]})
    ],
    "DeleteShareGroupOffsets": [
        ("delete_share_group_offsets", 0, {"group_id": "g", "topics": [{"topic_name": "t"}]})
    ],
    "InitProducerId": [
        ("init_producer_id", 4, _BEGINS_TRANSACTIONS),
        ("init_producer_id", 4, {**_BEGINS_TRANSACTIONS, "transactional_id": None}),
    ],
    "AddPartitionsToTxn": [
        ("add_partitions_to_txn", 3, _ADDS),
        ("add_partitions_to_txn", 4, {"transactions": []}),
    ],
    "AddOffsetsToTxn": [
        (
            "add_offsets_to_txn",
            3,
            {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0, "group_id": "g"},
        )
    ],
    "EndTxn": [
        ("end_txn", 3, {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0, "committed": False})
    ],
    "TxnOffsetCommit": [
        (
            "txn_offset_commit",
            3,
            {
                "transactional_id": "tx",
                "group_id": "g",
                "producer_id": 1,
                "producer_epoch": 0,
                "topics": _SOME_TOPICS,
            },
        )
    ],
    "WriteTxnMarkers": [("write_txn_markers", 1, {"markers": []})],
    "DescribeProducers": [("describe_producers", 0, {"topics": [{"name": "t", "partition_indexes": [0]}]})],
    "DescribeTransactions": [("describe_transactions", 0, {"transactional_ids": ["tx"]})],
    "ListTransactions": [("list_transactions", 0, {})],
}

_FINDS_GROUP: Final = ("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
_FINDS_ID: Final = ("find_coordinator", 4, {"key_type": 1, "coordinator_keys": ["tx"]})
_SHARES: Final = ("share_group_heartbeat", 1, _JOINS_TO_SHARE)
PREPARED: Final[dict[str, list[tuple[str, int, Plain]]]] = {
    "ListGroups": [("consumer_group_heartbeat", 1, _JOINS)],
    "ConsumerGroupDescribe": [("consumer_group_heartbeat", 1, _JOINS)],
    "StreamsGroupDescribe": [("streams_group_heartbeat", 0, _STREAMS)],
    "ShareGroupDescribe": [_SHARES],
    "ShareFetch": [_SHARES],
    "ShareAcknowledge": [_SHARES, ("share_fetch", 1, _SHARE_READ)],
    "DescribeTransactions": [
        ("init_producer_id", 4, _BEGINS_TRANSACTIONS),
        ("add_partitions_to_txn", 3, _ADDS),
    ],
    "ListTransactions": [("init_producer_id", 4, _BEGINS_TRANSACTIONS)],
}
"""The requests that a client with all rights sends first, so that there is something to ask a right for."""


AMONG_OTHERS: Final = {"BrokerHeartbeat"}
"""The APIs of a gateway that does not serve alone."""
LIST_OPERATIONS: Final = {"Metadata", "DescribeCluster", "DescribeTopicPartitions"}
"""The APIs whose answers list the operations that the client may carry out, so that they ask for all rights.
"""


class Recording:
    """An access that records the rights that it is asked for, and allows all rights except some."""

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


def _filled_in(value: Any, topic_id: uuid.UUID) -> Any:
    """Return a sample with the id of the topic in the place of `_T_ID`, and a name of its own for a new one."""
    if isinstance(value, dict):
        return {key: _filled_in(entry, topic_id) for key, entry in value.items()}
    if isinstance(value, list):
        return [_filled_in(entry, topic_id) for entry in value]
    if value == _A_NEW_TOPIC:
        return f"new-{uuid.uuid4()}"
    return str(topic_id) if value == _T_ID else value


def rights_of(name: str) -> set[Asked]:
    """Return the rights that the docstring of the API's module names."""
    api = next(each for each in APIS if each.name == name)
    found = re.findall(r"`([A-Z_]+)` on the ([a-z ]+)(?: \(|; |$)", description_of(api).rights)
    return {(Operation[right], _KINDS[kind]) for right, kind in found}


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_api_of_the_sampled_groups_has_a_sample(api: Api[Any]) -> None:
    module = inspect.getmodule(api.begin or api.handle)
    assert module is not None
    group = module.__name__.split(".")[3]
    assert api.name in SAMPLES or group not in SAMPLED or not rights_of(api.name)


@pytest.mark.parametrize("api", SAMPLES)
async def test_a_request_asks_for_the_rights_that_its_handler_names(node: Node, api: str) -> None:
    """The samples are sent with all rights, and again without each of these rights."""
    asked: set[Asked] = set()
    for denied in [(), *[(right,) for right in sorted(rights_of(api))]]:
        for name, version, fields in SAMPLES[api]:
            node.services.node.access = Recording()
            if "t" not in node.services.topics.metadata_log.image.topics_by_name:
                await create(node, "t")
            if api in AMONG_OTHERS:
                await commit(node, broker(THIS), broker(OTHER))
            topic_id = node.services.partitions.registry.by_name["t"].topic_id
            client = Asking(node)
            for first in (_FINDS_GROUP, _FINDS_ID, *PREPARED[api]) if api in PREPARED else ():
                await client.ask(first[0], first[1], **_filled_in(first[2], topic_id))
            access = node.services.node.access = Recording(*denied)
            await client.ask(name, version, **_filled_in(fields, topic_id))
            asked |= access.asked
    if api in LIST_OPERATIONS:
        assert asked >= rights_of(api)
    else:
        assert asked == rights_of(api)
