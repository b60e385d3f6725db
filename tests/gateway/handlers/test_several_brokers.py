"""A node beside other brokers: clients learn who leads what, and this node refuses what it does not lead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.metadata.image import BROKER_RESOURCE
from seqgate.gateway.metadata.records import BrokerRegistrationChangeRecord, TopicRecord
from seqgate.gateway.protocol.error_answers import with_throttle_time
from seqgate.gateway.protocol.frames import topic_id_text
from seqgate.gateway.runtime.topics.brokers import Endpoint
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.gateway.handlers.two_brokers import (
    ADDRESSES,
    FENCED_EPOCH,
    NOT_LEADER,
    OFFSETS_ID,
    OTHER,
    THIS,
    TOPIC_ID,
    commit,
    fetch,
    metadata,
    node_of_two,
    partition,
    produce,
)
from tests.support.batches import Batch, records
from tests.support.wire import Plain, decode


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with node_of_two(tmp_path) as node:
        yield node


class TestMetadata:
    async def test_each_broker_is_listed_with_its_address_and_each_partition_with_its_leader(
        self, node: Node
    ) -> None:
        answer = await metadata(node)
        brokers = [(row["node_id"], row["host"], row["port"], row["rack"]) for row in answer["brokers"]]
        assert brokers == [(THIS, *ADDRESSES[THIS], None), (OTHER, *ADDRESSES[OTHER], "r2")]
        assert answer["controller_id"] == THIS
        rows = answer["topics"][0]["partitions"]
        told = [
            (row["partition_index"], row["leader_id"], row["leader_epoch"], row["isr_nodes"]) for row in rows
        ]
        assert told == [(0, THIS, 3, [THIS]), (1, OTHER, 7, [OTHER])]

    async def test_a_fenced_broker_is_not_listed_and_its_partitions_have_no_leader(self, node: Node) -> None:
        await commit(node, BrokerRegistrationChangeRecord(OTHER, 1, fenced=1))
        answer = await metadata(node)
        assert [row["node_id"] for row in answer["brokers"]] == [THIS]
        row = answer["topics"][0]["partitions"][1]
        assert (row["error_code"], row["leader_id"]) == (int(ErrorCode.leader_not_available), -1)
        assert (row["isr_nodes"], row["offline_replicas"]) == ([], [OTHER])

    async def test_a_broker_without_the_listener_of_the_client_is_not_listed(self, node: Node) -> None:
        asking = Asking(node)
        node.services.node.brokers.advertised["INTERNAL"] = Endpoint("inside.example", 9093)
        asking.peer.listener_name = "INTERNAL"
        answer = await asking.ask("metadata", 12, topics=[], allow_auto_topic_creation=False)
        assert [(row["node_id"], row["host"]) for row in answer["brokers"]] == [(THIS, "inside.example")]

    async def test_a_leader_without_the_listener_of_the_client_is_not_named(self, node: Node) -> None:
        asking = Asking(node)
        node.services.node.brokers.advertised["INTERNAL"] = Endpoint("inside.example", 9093)
        asking.peer.listener_name = "INTERNAL"
        for version, expected in (
            (5, ErrorCode.leader_not_available),
            (6, ErrorCode.listener_not_found),
            (13, ErrorCode.listener_not_found),
        ):
            fields = {"topics": [{"name": "t", "topic_id": None}], "allow_auto_topic_creation": False}
            rows = (await asking.ask("metadata", version, **fields))["topics"][0]["partitions"]
            assert [(row["leader_id"], row["error_code"]) for row in rows] == [(THIS, 0), (-1, int(expected))]
        answer = await asking.ask(
            "describe_topic_partitions", 0, topics=[{"name": "t"}], response_partition_limit=10, cursor=None
        )
        rows = answer["topics"][0]["partitions"]
        assert [(row["leader_id"], row["error_code"]) for row in rows] == [(THIS, 0), (-1, 0)]

    async def test_pages_of_topics_name_the_same_leaders(self, node: Node) -> None:
        answer = await Asking(node).ask(
            "describe_topic_partitions", 0, topics=[{"name": "t"}], response_partition_limit=10, cursor=None
        )
        rows = answer["topics"][0]["partitions"]
        assert [(row["leader_id"], row["leader_epoch"]) for row in rows] == [(THIS, 3), (OTHER, 7)]

    async def test_fenced_brokers_are_described_to_those_who_ask_for_them(self, node: Node) -> None:
        await commit(node, BrokerRegistrationChangeRecord(OTHER, 1, fenced=1))
        fields = {"include_cluster_authorized_operations": False, "endpoint_type": 1}
        for asked, expected in ((False, [(THIS, False)]), (True, [(THIS, False), (OTHER, True)])):
            answer = await Asking(node).ask("describe_cluster", 2, **fields, include_fenced_brokers=asked)
            assert [(row["broker_id"], row["is_fenced"]) for row in answer["brokers"]] == expected


async def test_all_brokers_with_the_listener_have_configurations(node: Node) -> None:
    asking = Asking(node)
    await commit(node, BrokerRegistrationChangeRecord(OTHER, 1, fenced=1))
    for listener, expected in (("PLAINTEXT", [THIS, OTHER]), ("INTERNAL", [THIS])):
        node.services.node.brokers.advertised[listener] = Endpoint("inside.example", 9093)
        asking.peer.listener_name = listener
        found = await asking.ask("list_config_resources", 1, resource_types=[BROKER_RESOURCE])
        assert [int(row["resource_name"]) for row in found["config_resources"]] == expected


@pytest.mark.parametrize("key_type", [0, 1, 2])
async def test_no_coordinator_is_available_before_a_gateway_has_joined(node: Node, key_type: int) -> None:
    """A gateway that starts again serves before its registration is written."""
    await commit(node, *(BrokerRegistrationChangeRecord(each, 1, fenced=1) for each in (THIS, OTHER)))
    keys = [f"g:{topic_id_text(TOPIC_ID)}:0"]
    found = await Asking(node).ask("find_coordinator", 6, key_type=key_type, coordinator_keys=keys)
    assert found["coordinators"][0]["error_code"] == int(ErrorCode.coordinator_not_available)


class TestRecords:
    @pytest.mark.parametrize("version", [3, 9, 10, 12, 13])
    async def test_a_producer_learns_the_leader_of_a_partition_that_is_led_elsewhere(
        self, node: Node, version: int
    ) -> None:
        answer, row = await produce(node, version, 1)
        assert row["error_code"] == NOT_LEADER
        if version >= 10:
            assert row["current_leader"] == {"leader_id": OTHER, "leader_epoch": 7}
            host, port = ADDRESSES[OTHER]
            assert answer["node_endpoints"] == [{"node_id": OTHER, "host": host, "port": port, "rack": "r2"}]

    @pytest.mark.parametrize("version", [9, 13])
    async def test_a_partition_that_is_led_here_takes_records(self, node: Node, version: int) -> None:
        answer, row = await produce(node, version, 0)
        assert (row["error_code"], row["base_offset"]) == (0, 0)
        if version >= 10:
            assert answer["node_endpoints"] == []
            assert row["current_leader"] == {"leader_id": -1, "leader_epoch": -1}

    async def test_a_throttled_producer_learns_the_leader_as_well(self, node: Node) -> None:
        _, expected = await produce(node, 12, 1)
        batch = Batch(records(1), base_timestamp=NOW_MS).encode()
        begun = Asking(node).begin(
            "produce",
            12,
            transactional_id=None,
            acks=-1,
            timeout=1000,
            topic_data=[{"name": "t", "partition_data": [{"index": 1, "records": batch}]}],
        )
        assert isinstance(begun.answer, bytes)
        frame = with_throttle_time(begun.answer, 0, 12, 1234)
        assert isinstance(frame, bytes)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        throttled = decode("produce", 12, frame[4:]).fields
        assert throttled["throttle_time"] == 1234
        assert throttled["responses"][0]["partition_responses"] == [expected]
        assert [row["node_id"] for row in throttled["node_endpoints"]] == [OTHER]

    @pytest.mark.parametrize("version", [11, 12, 15, 16, 18])
    async def test_a_consumer_learns_the_leader_of_a_partition_that_is_led_elsewhere(
        self, node: Node, version: int
    ) -> None:
        answer, row = await fetch(node, version, 1)
        assert row["error_code"] == NOT_LEADER
        if version >= 16:
            assert row["current_leader"] == {"leader_id": OTHER, "leader_epoch": 7}
            assert [end["node_id"] for end in answer["node_endpoints"]] == [OTHER]

    async def test_a_consumer_with_an_old_epoch_learns_the_present_one(self, node: Node) -> None:
        answer, row = await fetch(node, 16, 0, epoch=2)
        assert row["error_code"] == FENCED_EPOCH
        assert row["current_leader"] == {"leader_id": THIS, "leader_epoch": 3}
        assert [end["host"] for end in answer["node_endpoints"]] == [ADDRESSES[THIS][0]]

    async def test_other_requests_about_records_are_refused(self, node: Node) -> None:
        asking = Asking(node)
        place = {"partition_index": 1, "current_leader_epoch": -1, "timestamp": -1}
        offsets = await asking.ask(
            "list_offsets", 7, replica_id=-1, isolation_level=0, topics=[{"name": "t", "partitions": [place]}]
        )
        assert offsets["topics"][0]["partitions"][0]["error_code"] == NOT_LEADER
        epochs = await asking.ask(
            "offset_for_leader_epoch",
            4,
            replica_id=-2,
            topics=[
                {
                    "topic": "t",
                    "partitions": [{"partition": 1, "current_leader_epoch": -1, "leader_epoch": 0}],
                }
            ],
        )
        assert epochs["topics"][0]["partitions"][0]["error_code"] == NOT_LEADER
        deleted = await asking.ask(
            "delete_records",
            2,
            topics=[{"name": "t", "partitions": [{"partition_index": 1, "offset": 0}]}],
            timeout=1000,
        )
        assert deleted["topics"][0]["partitions"][0]["error_code"] == NOT_LEADER
        producers = await asking.ask(
            "describe_producers", 0, topics=[{"name": "t", "partition_indexes": [1]}]
        )
        assert producers["topics"][0]["partitions"][0]["error_code"] == NOT_LEADER

    async def test_no_log_is_opened_for_a_partition_that_is_led_elsewhere(self, node: Node) -> None:
        await produce(node, 9, 1)
        await produce(node, 9, 0)
        opened = [(log.topic, log.partition) for log in node.services.partitions.log_directory.logs()]
        assert ("t", 0) in opened
        assert ("t", 1) not in opened


class TestCoordinators:
    @staticmethod
    async def spread(node: Node, topic: str) -> None:
        """Store a coordinator's state in two partitions: the first is led here, the second by node 2."""
        await commit(
            node,
            TopicRecord(topic, OFFSETS_ID),
            partition(OFFSETS_ID, 0, THIS),
            partition(OFFSETS_ID, 1, OTHER),
        )

    @pytest.mark.parametrize(
        ("topic", "key_type"),
        [("__consumer_offsets", 0), ("__transaction_state", 1), ("__share_group_state", 2)],
    )
    async def test_the_coordinator_is_the_leader_of_the_partition_that_stores_the_state(
        self, node: Node, topic: str, key_type: int
    ) -> None:
        await self.spread(node, topic)
        found = set()
        for number in range(20):
            key = f"k{number}" if key_type < 2 else f"k{number}:{topic_id_text(TOPIC_ID)}:0"
            answer = await Asking(node).ask("find_coordinator", 6, key_type=key_type, coordinator_keys=[key])
            (row,) = answer["coordinators"]
            assert row["error_code"] == 0
            assert (row["host"], row["port"]) == ADDRESSES[row["node_id"]]
            found.add(row["node_id"])
        assert found == {THIS, OTHER}

    async def test_there_is_none_while_its_gateway_is_fenced(self, node: Node) -> None:
        await self.spread(node, "__consumer_offsets")
        await commit(node, BrokerRegistrationChangeRecord(OTHER, 1, fenced=1))
        codes = set()
        for number in range(20):
            answer = await Asking(node).ask("find_coordinator", 3, key_type=0, key=f"k{number}")
            codes.add((answer["node_id"], answer["error_code"]))
        assert codes == {(THIS, 0), (-1, int(ErrorCode.coordinator_not_available))}

    async def test_requests_of_groups_and_transactions_are_sent_to_their_coordinator(
        self, node: Node
    ) -> None:
        await self.spread(node, "__consumer_offsets")
        codes = set()
        for number in range(20):
            answer = await Asking(node).ask(
                "heartbeat", 4, group_id=f"k{number}", generation_id=1, member_id="m", group_instance_id=None
            )
            codes.add(answer["error_code"])
        assert codes == {int(ErrorCode.unknown_member_id), int(ErrorCode.not_coordinator)}

    async def test_a_transactional_id_is_refused_where_its_state_is_not(self, node: Node) -> None:
        await self.spread(node, "__transaction_state")
        codes = set()
        for number in range(20):
            answer = await Asking(node).ask(
                "init_producer_id",
                4,
                transactional_id=f"k{number}",
                transaction_timeout=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            codes.add(answer["error_code"])
        assert codes == {0, int(ErrorCode.not_coordinator)}


class TestAlone:
    async def test_a_gateway_leads_what_its_metadata_assigns_to_an_earlier_node_id(
        self, tmp_path: Path
    ) -> None:
        async with open_node(tmp_path) as node:
            await commit(
                node, TopicRecord("t", TOPIC_ID), partition(TOPIC_ID, 0, 9, 3), partition(TOPIC_ID, 1, 9, 3)
            )
            row = (await metadata(node))["topics"][0]["partitions"][0]
            assert (row["leader_id"], row["leader_epoch"]) == (THIS, 3)
            assert (row["replica_nodes"], row["isr_nodes"], row["offline_replicas"]) == ([THIS], [THIS], [])
            assert (await produce(node, 12, 0))[1]["error_code"] == 0


class TestNewTopics:
    async def test_the_partitions_of_a_topic_are_spread_over_the_live_brokers(self, node: Node) -> None:
        await create(node, "spread", 6)
        image = node.services.topics.metadata_log.image.topics_by_name["spread"]
        leaders = [image.partitions[index].leader for index in range(6)]
        assert sorted(leaders) == [THIS] * 3 + [OTHER] * 3
        assert leaders[0] != leaders[1]

    async def test_a_fenced_broker_gets_none(self, node: Node) -> None:
        await commit(node, BrokerRegistrationChangeRecord(OTHER, 1, fenced=1))
        await create(node, "spread", 6)
        image = node.services.topics.metadata_log.image.topics_by_name["spread"]
        assert {row.leader for row in image.partitions.values()} == {THIS}

    async def test_replicas_are_chosen_and_assigned_as_asked(self, node: Node) -> None:
        def topic(name: str, replicas: int = -1, assignments: list[list[int]] | None = None) -> Plain:
            rows = [
                {"partition_index": index, "broker_ids": ids} for index, ids in enumerate(assignments or ())
            ]
            return {
                "name": name,
                "num_partitions": -1 if rows else 2,
                "replication_factor": -1 if rows else replicas,
                "assignments": rows,
                "configs": [],
            }

        answer = await Asking(node).ask(
            "create_topics",
            7,
            topics=[
                topic("two", 2),
                topic("three", 3),
                topic("given", assignments=[[OTHER, THIS], [THIS, OTHER]]),
                topic("uneven", assignments=[[OTHER, THIS], [THIS]]),
                topic("unknown", assignments=[[3]]),
            ],
            timeout=1000,
            validate_only=False,
        )
        told = {row["name"]: (row["error_code"], row["replication_factor"]) for row in answer["topics"]}
        assert told == {
            "two": (0, 2),
            "three": (int(ErrorCode.invalid_replication_factor), -1),
            "given": (0, 2),
            "uneven": (int(ErrorCode.invalid_replica_assignment), -1),
            "unknown": (int(ErrorCode.invalid_replica_assignment), -1),
        }
        given = node.services.topics.metadata_log.image.topics_by_name["given"].partitions
        assert [(row.leader, row.replicas) for row in given.values()] == [
            (OTHER, (OTHER, THIS)),
            (THIS, (THIS, OTHER)),
        ]
