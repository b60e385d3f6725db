"""Transactions over the partitions of several nodes: whole or not at all, whatever is lost between the nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.transactions.hanging import AbortHangingRequest, FindHangingRequest
from seqgate.gateway.admin.transactions.list_and_describe import (
    DescribeTransactionRequest,
    ListTransactionsRequest,
)
from seqgate.gateway.coordinator.transaction.records import PREPARE_COMMIT, Transaction
from seqgate.gateway.coordinator.transaction.rules import Producer
from seqgate.gateway.handlers.answering.api import Deferred
from seqgate.gateway.handlers.answering.rights import is_from_gateway
from seqgate.gateway.handlers.records.produce_late import OBJECTS_BYTES
from seqgate.gateway.handlers.transactions import write_txn_markers
from seqgate.gateway.metadata.records import BrokerRegistrationChangeRecord, ConfigRecord
from seqgate.gateway.runtime.coordinators import transaction_markers, transactions_elsewhere
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.coordinators.transaction_markers import marker_request
from seqgate.gateway.runtime.loop.log_output import UNLIMITED
from seqgate.gateway.runtime.loop.request_memory import RequestMemory
from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType
from tests.gateway.admin.answers import answer as control_answer
from tests.gateway.handlers.asking import answer_to
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.several_nodes import Cluster, cluster_of
from tests.gateway.handlers.spread_client import NAME, OFFSETS, STATE, TOPIC, Spread, SpreadClient
from tests.gateway.handlers.support import FakePeer
from tests.support.wire import encode

NODES = (1, 2, 3)
TOPIC_CONFIGS = 2
LOST = 0.25
"""The chance that a request is lost, and that an answer is."""
PATIENCE_S = 120.0
RETRY = int(ErrorCode.not_enough_replicas)
OUT_OF_ORDER = int(ErrorCode.out_of_order_sequence_number)
NOT_AVAILABLE = int(ErrorCode.coordinator_not_available)
Faulty = tuple[str, Any]


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(transaction_markers, "FIRST_RETRY_S", 0.001)
    async with cluster_of(tmp_path, NODES) as cluster, asyncio.timeout(PATIENCE_S):
        yield cluster


async def spread_over(
    cluster: Cluster, leaders: tuple[int, ...] = NODES, coordinator: int = 3, group: int = 2
) -> Spread:
    spread = Spread(cluster, leaders, coordinator, group)
    await spread.begin()
    return spread


async def ended(spread: Spread) -> None:
    """Wait until the coordinator has finished all ends."""
    await coordinator(spread).endings.finish()


def coordinator(spread: Spread) -> Any:
    return spread.cluster.nodes[spread.leaders[STATE, 0]].services.coordinators.transactions


both_versions = pytest.mark.parametrize("is_new", [False, True], ids=["version 1", "version 2"])


class TestWhole:
    @both_versions
    @pytest.mark.parametrize("commit", [True, False])
    @pytest.mark.parametrize("at", NODES)
    async def test_over_three_nodes_with_offsets(
        self, cluster: Cluster, is_new: bool, commit: bool, at: int
    ) -> None:
        spread = await spread_over(cluster, coordinator=at, group=at % 3 + 1)
        client = SpreadClient(spread, is_new=is_new)
        await client.init()
        for label in ("a", "b"):
            for index in range(3):
                await client.write(index, label)
            await client.hold(5)
            assert await client.end(commit=commit) == 0
            await ended(spread)
        outcome = "committed" if commit else "aborted"
        assert spread.outcomes() == {"a": [outcome] * 3, "b": [outcome] * 3}
        assert await client.offset() == (5 if commit else -1)

    @both_versions
    async def test_one_request_for_markers_goes_to_each_leader(self, cluster: Cluster, is_new: bool) -> None:
        spread = await spread_over(cluster, (1, 2, 1, 2, 3), coordinator=3, group=2)
        client = SpreadClient(spread, is_new=is_new)
        await client.init()
        for index in range(5):
            await client.write(index, "a")
        await client.hold(1)
        assert await client.end(commit=True) == 0
        await ended(spread)
        asked = cluster.network.asked
        assert [asked[3, to, "WriteTxnMarkers"] for to in NODES] == [1, 1, 0]

    async def test_markers_of_gateways_are_no_changes_of_clients(
        self, cluster: Cluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", logger=UNLIMITED)
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        await client.write(0, "a")
        assert await client.end(commit=True) == 0
        await ended(spread)
        assert cluster.network.asked[3, 1, "WriteTxnMarkers"] == 1
        assert "transaction of producer" not in caplog.text
        node = cluster.nodes[1]
        node.services.node.access = rights = Rights()
        claimed = node.context(write_txn_markers.API, 2)
        claimed.client_id = "broker-3"
        assert not is_from_gateway(claimed)
        rights.allow(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        assert is_from_gateway(claimed)

    @both_versions
    async def test_later_batches_and_offsets_of_a_transaction_need_no_question(
        self, cluster: Cluster, is_new: bool
    ) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=is_new)
        await client.init()
        for label in "abc":
            await client.write(0, label)
            await client.hold(ord(label))
        asked = cluster.network.asked
        assert asked[1, 3, "AddPartitionsToTxn"] == 1
        assert asked[2, 3, "AddPartitionsToTxn"] == 1
        await client.write(2, "d")
        assert asked[3, 3, "AddPartitionsToTxn"] == 0
        assert await client.end(commit=True) == 0
        await ended(spread)
        await client.write(0, "e")
        assert asked[1, 3, "AddPartitionsToTxn"] == 2

    async def test_a_partition_that_was_not_added_is_refused(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=False)
        await client.init()
        await client.add(1)
        assert await client.produce(0, "a") == int(ErrorCode.transaction_abortable)
        assert spread.outcomes() == {}

    async def test_an_old_producer_is_refused(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        old, new = SpreadClient(spread, is_new=True), SpreadClient(spread, is_new=True)
        await old.init()
        await new.init()
        assert await old.produce(0, "a") == int(ErrorCode.invalid_producer_epoch)
        assert await old.commit_offset(1) == int(ErrorCode.invalid_producer_epoch)

    async def test_a_fenced_producer_is_aborted_everywhere(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        old, new = SpreadClient(spread, is_new=True), SpreadClient(spread, is_new=True)
        await old.init()
        for index in range(3):
            await old.write(index, "a")
        await new.init()
        assert spread.outcomes() == {"a": ["aborted"] * 3}
        assert await old.produce(0, "b") == int(ErrorCode.invalid_producer_epoch)


def of_type(name: str) -> Any:
    return lambda _from, _to, request: type(request).__name__ == name


class Once:
    """A fault of the first request of a type."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.left = 1

    def __call__(self, _from: int, _to: int, request: Any) -> bool:
        if type(request).__name__ != self._name or not self.left:
            return False
        self.left -= 1
        return True


class TestFaults:
    @both_versions
    @pytest.mark.parametrize("fault", ["lose", "lose_answer"])
    async def test_markers_are_written_until_they_are_confirmed(
        self, cluster: Cluster, is_new: bool, fault: str
    ) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=is_new)
        await client.init()
        for label in ("a", "b"):
            setattr(cluster.network, fault, Once("WriteTxnMarkersRequest"))
            for index in range(3):
                await client.write(index, label)
            await client.hold(5)
            assert await client.end(commit=True) == 0
            await ended(spread)
        assert spread.outcomes() == {"a": ["committed"] * 3, "b": ["committed"] * 3}
        assert await client.offset() == 5

    async def test_markers_are_written_after_an_unexpected_error(
        self, cluster: Cluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        is_first = Once("WriteTxnMarkersRequest")

        def fail(*asked: Any) -> bool:
            if is_first(*asked):
                raise UnicodeError("label empty or too long")
            return False

        cluster.network.lose = fail
        await client.write(0, "a")
        assert await client.end(commit=True) == 0
        await ended(spread)
        assert spread.outcomes() == {"a": ["committed"]}
        assert "label empty or too long" in caplog.text

    @both_versions
    @pytest.mark.parametrize("fault", ["lose", "lose_answer"])
    async def test_a_batch_whose_question_is_lost_is_sent_again(
        self, cluster: Cluster, is_new: bool, fault: str
    ) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=is_new)
        await client.init()
        if not is_new:
            await client.add(0, 1)
        setattr(cluster.network, fault, Once("AddPartitionsToTxnRequest"))
        assert await client.produce(0, "a") == RETRY
        assert spread.outcomes() == {}
        assert await client.produce(0, "a") == 0
        assert await client.produce(1, "a") == 0
        assert await client.end(commit=True) == 0
        await ended(spread)
        assert spread.outcomes() == {"a": ["committed"] * 2}

    @both_versions
    async def test_no_later_batch_is_taken_for_the_first_one_after_that(
        self, cluster: Cluster, is_new: bool
    ) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=is_new)
        await client.init()
        if not is_new:
            await client.add(0)
        cluster.network.lose = Once("AddPartitionsToTxnRequest")
        assert await client.produce(0, "a") == RETRY
        client.sent(0)
        assert await client.produce(0, "b") == RETRY
        client.take_back(0)
        assert await client.produce(0, "a") == 0
        assert await client.produce(0, "b") == 0
        assert await client.end(commit=True) == 0
        await ended(spread)
        assert spread.outcomes() == {"a": ["committed"], "b": ["committed"]}

    @both_versions
    async def test_offsets_whose_question_is_lost_are_sent_again(
        self, cluster: Cluster, is_new: bool
    ) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=is_new)
        await client.init()
        if not is_new:
            await client.add_offsets()
        cluster.network.lose_answer = Once("AddPartitionsToTxnRequest")
        assert await client.commit_offset(7) == NOT_AVAILABLE
        assert await client.commit_offset(7) == 0
        assert await client.end(commit=True) == 0
        await ended(spread)
        assert await client.offset() == 7

    async def test_without_a_live_coordinator_batches_are_refused_for_now(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        await cluster.commit(BrokerRegistrationChangeRecord(3, 1, fenced=1))
        assert await client.produce(0, "a") == RETRY
        assert await client.commit_offset(1) == NOT_AVAILABLE
        await cluster.commit(BrokerRegistrationChangeRecord(3, 1, fenced=-1))
        assert await client.produce(0, "a") == 0

    async def test_markers_wait_for_a_fenced_leader(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        await client.write(0, "a")
        await client.write(2, "a")
        await cluster.commit(BrokerRegistrationChangeRecord(1, 1, fenced=1))
        ending = asyncio.create_task(client.end(commit=True))
        await cluster.network.nodes[3].services.partitions.flusher.idle()
        assert spread.outcomes()["a"][0] == "open"
        await cluster.commit(BrokerRegistrationChangeRecord(1, 1, fenced=-1))
        assert await ending == 0
        await ended(spread)
        assert spread.outcomes() == {"a": ["committed"] * 2}

    async def test_markers_go_to_the_new_leader_of_a_partition(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transaction_markers, "LAST_RETRY_S", 3600.0)
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        await client.write(0, "a")
        cluster.network.lose = lambda _from, to, _request: to == 1
        ending = asyncio.create_task(client.end(commit=True))
        await cluster.network.got(3, 1, "WriteTxnMarkers")
        await spread.move((TOPIC, 0), 2)
        assert await ending == 0
        await ended(spread)
        assert spread.markers(0) == 1

    async def test_markers_for_a_deleted_topic_are_not_needed(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        await client.write(0, "a")
        cluster.network.lose = of_type("WriteTxnMarkersRequest")
        ending = asyncio.create_task(client.end(commit=True))
        await cluster.network.got(3, 1, "WriteTxnMarkers")
        await spread.delete_topic()
        assert await ending == 0
        await ended(spread)

    async def test_a_marker_ends_what_needs_no_question_too(self, cluster: Cluster) -> None:
        """The offsets of an open transaction wait for the next round of the group's shard."""
        elsewhere = cluster.nodes[1].services.coordinators.elsewhere
        partition: Any = object()
        took_part = elsewhere.unasked(partition, Producer(7, 0))
        took_part.check(partition)
        elsewhere.transaction_ended(partition, Producer(7, 0), False)
        with pytest.raises(Unavailable):
            took_part.check(partition)

    async def test_a_marker_between_answer_and_append_refuses_the_batch(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=False)
        await client.init()
        await client.add(0)
        cluster.network.held = asyncio.Event()
        asked = asyncio.create_task(client.produce(0, "a"))
        await cluster.network.got(1, 3, "AddPartitionsToTxn")
        partition = cluster.nodes[1].services.partitions.registry.get(TOPIC, 0)
        assert partition is not None
        markers = cluster.nodes[1].services.partitions.markers
        producer = Producer(client.producer_id, client.epoch)
        markers.append(partition, producer, commit=False, coordinator_epoch=0)
        cluster.network.held.set()
        assert await asked == RETRY
        assert spread.outcomes() == {}


@both_versions
@pytest.mark.parametrize("seed", range(8))
async def test_whatever_is_lost_between_nodes_each_transaction_is_whole(
    cluster: Cluster, is_new: bool, seed: int
) -> None:
    chance = Random(seed)
    spread = await spread_over(cluster, coordinator=chance.choice(NODES), group=chance.choice(NODES))
    client = SpreadClient(spread, is_new=is_new)
    await client.init()
    cluster.network.lose = lambda *_: chance.random() < LOST
    cluster.network.lose_answer = lambda *_: chance.random() < LOST
    expected, offset = {}, -1
    for number in range(6):
        places = [index for index in range(3) if chance.random() < 0.7] or [0]
        commit = chance.random() < 0.6
        if not is_new:
            await client.add(*places)
            await client.add_offsets()
        for index in places:
            while code := await client.produce(index, f"t{number}"):
                assert code == RETRY
        while code := await client.commit_offset(number):
            assert code == NOT_AVAILABLE
        assert await client.end(commit=commit) == 0
        await ended(spread)
        expected[f"t{number}"] = ["committed" if commit else "aborted"] * len(places)
        offset = number if commit else offset
    assert spread.outcomes() == expected
    assert await client.offset() == offset


class TestOrder:
    async def test_batches_behind_a_question_wait_for_it(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        cluster.network.held = asyncio.Event()
        asking = spread.asking((TOPIC, 0))
        first = asking.begin("produce", 12, **client.fields(0, "a"))
        assert first.holds_back
        released: list[bool] = []
        first.on_others_may_begin = lambda: released.append(True)
        await cluster.network.got(1, 3, "AddPartitionsToTxn")
        assert not released
        cluster.network.held.set()
        answer = await answer_to("produce", 12, first)
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0

    async def test_they_wait_for_the_recompression_after_it_as_well(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        await cluster.commit(ConfigRecord(TOPIC_CONFIGS, TOPIC, "compression.type", "gzip"))
        client = SpreadClient(spread, is_new=True)
        await client.init()
        first = spread.asking((TOPIC, 0)).begin("produce", 12, **client.fields(0, "a"))
        partition = cluster.nodes[1].services.partitions.registry.get(TOPIC, 0)
        assert partition is not None
        ends: list[int] = []
        first.on_others_may_begin = lambda: ends.append(partition.log.log_end_offset)
        await answer_to("produce", 12, first)
        assert ends in ([1], [])  # nobody begins before the batch is appended
        assert spread.outcomes() == {"a": ["open"]}

    async def test_a_batch_that_waits_twice_needs_room_once(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        await cluster.commit(ConfigRecord(TOPIC_CONFIGS, TOPIC, "compression.type", "gzip"))
        client = SpreadClient(spread, is_new=True)
        await client.init()
        held = cluster.nodes[1].services.upkeep.backlog.held
        held.room = RequestMemory(3 * OBJECTS_BYTES)
        assert await client.produce(0, "a") == 0
        assert held.room.used_bytes == 0

    async def test_another_batch_of_the_request_outlives_the_receive_buffer(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster, (1, 1))
        await cluster.commit(ConfigRecord(TOPIC_CONFIGS, TOPIC, "compression.type", "gzip"))
        client = SpreadClient(spread, is_new=True)
        await client.init()
        await client.write(0, "a")
        fields = client.fields(0, "b")
        for topic, others in zip(fields["topic_data"], client.fields(1, "b")["topic_data"], strict=True):
            topic["partition_data"] += others["partition_data"]
        frame = bytearray(encode("produce", 12, fields))
        # only partition 1 waits for the coordinator; the batch of partition 0 is to be recompressed after
        # that
        begun = spread.asking((TOPIC, 0)).dispatcher.begin(memoryview(frame), FakePeer())
        frame[:] = bytes(len(frame))  # the buffer is used for the next client's bytes
        assert isinstance(begun, Deferred)
        answer = await answer_to("produce", 12, begun)
        rows = answer["responses"][0]["partition_responses"]
        assert [row["error_code"] for row in rows] == [0, 0]
        assert spread.outcomes() == {"a": ["open"], "b": ["open"] * 2}

    async def test_without_room_to_keep_a_batch_it_is_refused_for_now(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        room = cluster.nodes[1].services.upkeep.backlog.held.room
        with monkeypatch.context() as full:
            full.setattr(type(room), "try_keep", lambda *_: False)
            assert await client.produce(0, "a") == RETRY
        assert await client.produce(0, "a") == 0

    async def test_questions_beyond_the_limit_are_refused_for_now(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transactions_elsewhere, "MOST_WAITING", 1)
        spread = await spread_over(cluster, (1, 1, 1))
        client = SpreadClient(spread, is_new=True)
        await client.init()
        cluster.network.held = asyncio.Event()
        first = asyncio.create_task(client.produce(0, "a"))
        await cluster.network.got(1, 3, "AddPartitionsToTxn")
        second = asyncio.create_task(client.produce(1, "a"))
        waiting = cluster.nodes[1].services.coordinators.elsewhere
        while not waiting.waiting_count:
            await asyncio.sleep(0)
        assert await client.produce(2, "a") == RETRY
        cluster.network.held.set()
        assert await asyncio.gather(first, second) == [0, 0]

    async def test_questions_to_one_coordinator_share_requests(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster, (1, 1, 1))
        client = SpreadClient(spread, is_new=True)
        await client.init()
        cluster.network.held = asyncio.Event()
        asked = [asyncio.create_task(client.produce(index, "a")) for index in range(3)]
        await cluster.network.got(1, 3, "AddPartitionsToTxn")
        cluster.network.held.set()
        assert await asyncio.gather(*asked) == [0, 0, 0]

    async def test_a_partition_that_moves_meanwhile_takes_no_batch(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        cluster.network.held = asyncio.Event()
        asked = asyncio.create_task(client.produce(0, "a"))
        await cluster.network.got(1, 3, "AddPartitionsToTxn")
        await spread.move((TOPIC, 0), 2)
        cluster.network.held.set()
        assert await asked == int(ErrorCode.not_leader_or_follower)

    async def test_offsets_whose_partition_leaves_and_returns_meanwhile_are_refused_for_now(
        self, cluster: Cluster
    ) -> None:
        """The marker of their transaction may be in the partition already: offsets behind it would wait for
        another one.
        """
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        cluster.network.held = asyncio.Event()
        asked = asyncio.create_task(client.commit_offset(7))
        await cluster.network.got(2, 3, "AddPartitionsToTxn")
        for node_id in (1, 2):
            await spread.move((OFFSETS, 0), node_id)
        cluster.network.held.set()
        assert await asked == NOT_AVAILABLE
        assert await client.commit_offset(7) == 0


class TestCoordinators:
    async def test_each_refuses_what_another_coordinates(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        spread.leaders[STATE, 0] = 1  # asks the wrong node
        assert await client.end(commit=True) == int(ErrorCode.not_coordinator)
        wrong = spread.asking((STATE, 0))
        described = await wrong.ask("describe_transactions", 0, transactional_ids=[NAME])
        assert described["transaction_states"][0]["error_code"] == int(ErrorCode.not_coordinator)
        listed = await wrong.ask(
            "list_transactions", 1, state_filters=[], producer_id_filters=[], duration_filter=-1
        )
        assert listed["transaction_states"] == []
        added = await wrong.ask(
            "add_offsets_to_txn", 3, transactional_id=NAME, producer_id=0, producer_epoch=0, group_id="g"
        )
        assert added["error_code"] == int(ErrorCode.not_coordinator)

    async def test_a_coordinator_that_loses_its_shard_writes_no_more_markers(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        await client.write(0, "a")
        cluster.network.lose = of_type("WriteTxnMarkersRequest")
        ending = asyncio.create_task(client.end(commit=True))
        await cluster.network.got(3, 1, "WriteTxnMarkers")
        before = coordinator(spread)
        await spread.move((STATE, 0), 2)
        await before.endings.finish()
        assert await ending in {0, int(ErrorCode.not_coordinator)}
        asked = cluster.network.asked[3, 1, "WriteTxnMarkers"]
        cluster.network.lose = lambda *_: False
        await cluster.commit(BrokerRegistrationChangeRecord(1, 1, fenced=-1))
        assert cluster.network.asked[3, 1, "WriteTxnMarkers"] == asked

    @both_versions
    @pytest.mark.parametrize("commit", [True, False])
    async def test_the_next_coordinator_finishes_a_decided_end_everywhere(
        self, cluster: Cluster, is_new: bool, commit: bool
    ) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=is_new)
        await client.init()
        for index in range(3):
            await client.write(index, "a")
        cluster.network.lose = of_type("WriteTxnMarkersRequest")
        ending = asyncio.create_task(client.end(commit=commit))
        await cluster.network.got(3, 1, "WriteTxnMarkers")
        await spread.hand_over((STATE, 0), 2)
        await ending
        cluster.network.lose = lambda *_: False
        coordinator(spread).abort_overdue()
        await ended(spread)
        assert spread.outcomes() == {"a": ["committed" if commit else "aborted"] * 3}

    async def test_a_marker_of_the_coordinator_before_is_refused(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        await client.write(0, "a")
        await spread.hand_over((STATE, 0), 2)
        await client.init()
        assert spread.outcomes() == {"a": ["aborted"]}
        late = marker_request(
            Transaction(client.producer_id, 9, 1, PREPARE_COMMIT, client_version=2), [(TOPIC, 0)], 0
        )
        answer = await cluster.nodes[3].services.node.peers.ask(1, late)
        row = answer.markers[0].topics[0].partitions[0]
        assert row.error_code == int(ErrorCode.transaction_coordinator_fenced)

    async def test_the_control_socket_says_who_coordinates(self, cluster: Cluster) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        await client.write(0, "a")
        here = cluster.nodes[1]
        page = await control_answer(here, ListTransactionsRequest())
        assert (page.transactions, page.partitions_elsewhere) == ([], [0])
        with pytest.raises(
            ControlError, match=f"gateway 3 coordinates transactional id {NAME}; .*--bootstrap"
        ):
            await control_answer(here, DescribeTransactionRequest(NAME))
        for request in (FindHangingRequest(), AbortHangingRequest(TOPIC, 0, 0, execute=True)):
            with pytest.raises(ControlError, match="other gateways coordinate transactions, too"):
                await control_answer(here, request)
        await cluster.commit(BrokerRegistrationChangeRecord(3, 1, fenced=1))
        with pytest.raises(ControlError, match="no live gateway coordinates"):
            await control_answer(here, DescribeTransactionRequest(NAME))

    async def test_a_transaction_of_another_coordinator_is_no_stranger(
        self, cluster: Cluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        spread = await spread_over(cluster)
        client = SpreadClient(spread, is_new=True)
        await client.init()
        await client.write(0, "a")
        here = cluster.nodes[1].services.coordinators.transactions
        assert not here.coordinates_all
        here.stop()
        here.start()
        assert "belongs to no transactional id" not in caplog.text
        assert await client.end(commit=True) == 0
        await ended(spread)
        assert (OFFSETS, 0) in spread.leaders
