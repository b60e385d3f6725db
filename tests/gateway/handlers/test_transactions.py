"""The transaction APIs in every version, with the error codes of Apache Kafka 4.4.0."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.admin.transactions.list_and_describe import ListTransactionsRequest
from seqgate.gateway.handlers.admin.api_versions import api_versions
from seqgate.gateway.handlers.groups import find_coordinator
from seqgate.gateway.handlers.transactions import end_txn, init_producer_id, write_txn_markers
from seqgate.gateway.handlers.transactions.add_to_txn import ADD_OFFSETS_TO_TXN_API, ADD_PARTITIONS_TO_TXN_API
from seqgate.gateway.handlers.transactions.transactions import (
    DESCRIBE_TRANSACTIONS_API,
    LIST_TRANSACTIONS_API,
)
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.coordinators.shards import LoadedShard
from seqgate.gateway.runtime.loop.log_output import UNLIMITED
from seqgate.gateway.runtime.partitions.producer_clients import ClientRow
from seqgate.gateway.security.principals import ANONYMOUS
from seqgate.log import LogError
from tests.gateway.admin.answers import answer
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node, versions
from tests.support.transactional_client import TOPIC, Client, Outcome, outcomes

NAME = "payments"
NO_FILTER: dict[str, Any] = {"state_filters": (), "producer_id_filters": ()}
SETTINGS = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path, *SETTINGS) as node:
        await create(node, TOPIC, 2)
        await node.services.coordinators.transactions.ensure_topic()
        yield node


@pytest.fixture
async def client(node: Node) -> Client:
    client = Client(node, NAME)
    await client.begin()
    return client


async def init(node: Node, version: int = 5, *, name: str | None = NAME, **more: Any) -> tuple[str, int, int]:
    fields = {"transactional_id": name, "transaction_timeout": timedelta(seconds=60), **more}
    answer = await node.ask(init_producer_id.API, version, lambda _: fields)
    return answer.error_code.name, answer.producer_id, answer.producer_epoch


async def end(node: Node, client: Client, version: int, *, commit: bool = True, epoch: int = 0) -> Any:
    fields = {
        "transactional_id": client.transactional_id,
        "producer_id": client.producer.producer_id,
        "producer_epoch": epoch,
        "committed": commit,
    }
    return await node.ask(end_txn.API, version, lambda _: fields)


async def add(
    node: Node, client: Client, version: int, *topics: tuple[str, int], verify: bool = False, epoch: int = 0
) -> list[tuple[str, int, str]]:
    """Send AddPartitionsToTxn. Return (topic, partition, error) of each partition."""
    producer_id = client.producer.producer_id

    def make(module: Any) -> dict[str, Any]:
        entries = tuple(
            module.AddPartitionsToTxnTopic(name=name, partitions=(index,)) for name, index in topics
        )
        if version < 4:
            return {
                "v3_and_below_transactional_id": client.transactional_id,
                "v3_and_below_producer_id": producer_id,
                "v3_and_below_producer_epoch": epoch,
                "v3_and_below_topics": entries,
            }
        transaction = module.AddPartitionsToTxnTransaction(
            transactional_id=client.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=verify,
            topics=entries,
        )
        return {"transactions": (transaction,)}

    answer = await node.ask(ADD_PARTITIONS_TO_TXN_API, version, make)
    results = (
        answer.results_by_topic_v3_and_below
        if version < 4
        else answer.results_by_transaction[0].topic_results
    )
    return [
        (topic.name, row.partition_index, row.partition_error_code.name)
        for topic in results
        for row in topic.results_by_partition
    ]


class TestInitProducerId:
    @pytest.mark.parametrize("version", versions(init_producer_id.API))
    async def test_every_version(self, node: Node, version: int) -> None:
        first = await init(node, version)
        assert (first[0], first[2]) == ("none", 0)
        assert await init(node, version) == ("none", first[1], 1)

    async def test_the_client_is_noted_and_the_log_tells_who_fenced_whom(
        self, node: Node, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        _, producer_id, _ = await init(node)
        await init(node)  # the same client again: no line
        node.peer.peer_host = "10.0.0.8"
        await init(node)
        await init(node, name=None)
        clients = node.services.partitions.counters.clients
        assert (len(clients), str(clients.find(producer_id, 2))) == (1, "test (10.0.0.8)")
        assert clients.find(producer_id, 1) is None
        lines = [line for line in caplog.messages if "fenced" in line]
        assert lines == [
            f"test (10.0.0.8) fenced test (127.0.0.1): producer epoch 2 of the transactional id {NAME}"
        ]
        (row,) = (await answer(node, ListTransactionsRequest())).transactions
        assert str(row.client) == "test (10.0.0.8)"

    async def test_after_a_restart_only_the_client_of_the_epoch_before_counts_as_fenced(
        self, node: Node, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        _, producer_id, _ = await init(node)
        clients = node.services.partitions.counters.clients
        before = ClientRow(producer_id, 0, 0, NOW_MS, "before", "10.0.0.9", ANONYMOUS, None)
        clients.restore([before], NOW_MS)
        await init(node)
        clients.restore([before], NOW_MS)
        await init(node)
        lines = [line for line in caplog.messages if "fenced" in line]
        assert lines == [
            f"test (127.0.0.1) fenced before (10.0.0.9): producer epoch 1 of the transactional id {NAME}"
        ]

    @pytest.mark.parametrize(("version", "error"), [(3, "invalid_producer_epoch"), (4, "producer_fenced")])
    async def test_who_is_fenced(self, node: Node, version: int, error: str) -> None:
        _, producer_id, _ = await init(node)
        claimed = {"producer_id": producer_id, "producer_epoch": 0}
        assert await init(node, version, **claimed) == ("none", producer_id, 1)
        await init(node)
        assert await init(node, version, **claimed) == (error, -1, -1)

    async def test_invalid_requests(self, node: Node) -> None:
        assert (await init(node, name=""))[0] == "invalid_request"
        assert (await init(node, producer_id=3))[0] == "invalid_request"
        late = await init(node, transaction_timeout=timedelta(hours=1))
        assert late[0] == "invalid_transaction_timeout"


class TestAddPartitions:
    @pytest.mark.parametrize("version", versions(ADD_PARTITIONS_TO_TXN_API))
    async def test_every_version(self, node: Node, client: Client, version: int) -> None:
        assert await add(node, client, version, (TOPIC, 0), (TOPIC, 1)) == [
            (TOPIC, 0, "none"),
            (TOPIC, 1, "none"),
        ]
        found = node.services.coordinators.transactions.find(NAME)
        assert found is not None
        assert found.partitions == {(TOPIC, 0), (TOPIC, 1)}
        assert found.client_version == (2 if version == 5 else 0)

    async def test_a_missing_partition_refuses_the_others(self, node: Node, client: Client) -> None:
        rows = await add(node, client, 3, (TOPIC, 0), (TOPIC, 9), ("__consumer_offsets", 0))
        assert [row[2] for row in rows] == [
            "operation_not_attempted",
            "unknown_topic_or_partition",
            "topic_authorization_failed",
        ]

    @pytest.mark.parametrize(("version", "error"), [(1, "invalid_producer_epoch"), (2, "producer_fenced")])
    async def test_who_is_fenced(self, node: Node, client: Client, version: int, error: str) -> None:
        assert await add(node, client, version, (TOPIC, 0), epoch=7) == [(TOPIC, 0, error)]

    async def test_a_verification_adds_no_partition(self, node: Node, client: Client) -> None:
        await add(node, client, 4, (TOPIC, 0))
        rows = await add(node, client, 4, (TOPIC, 0), (TOPIC, 1), verify=True)
        assert [row[2] for row in rows] == ["none", "transaction_abortable"]
        rows = await add(node, client, 4, (TOPIC, 0), (TOPIC, 8), verify=True)
        assert [row[2] for row in rows] == ["operation_not_attempted", "unknown_topic_or_partition"]

    async def test_an_unknown_id(self, node: Node, client: Client) -> None:
        client.transactional_id = "nobody"
        assert await add(node, client, 3, (TOPIC, 0)) == [(TOPIC, 0, "invalid_producer_id_mapping")]
        client.transactional_id = ""
        assert await add(node, client, 3, (TOPIC, 0)) == [(TOPIC, 0, "invalid_request")]
        assert await add(node, client, 4, (TOPIC, 0), verify=True) == [(TOPIC, 0, "invalid_request")]


class TestAddOffsets:
    @pytest.mark.parametrize("version", versions(ADD_OFFSETS_TO_TXN_API))
    async def test_every_version(self, node: Node, client: Client, version: int) -> None:
        fields = {
            "transactional_id": NAME,
            "producer_id": client.producer.producer_id,
            "producer_epoch": 0,
            "group_id": "g",
        }
        answer = await node.ask(ADD_OFFSETS_TO_TXN_API, version, lambda _: fields)
        assert answer.error_code is ErrorCode.none
        found = node.services.coordinators.transactions.find(NAME)
        assert found is not None
        assert found.partitions == {("__consumer_offsets", 0)}
        answer = await node.ask(ADD_OFFSETS_TO_TXN_API, version, lambda _: {**fields, "transactional_id": ""})
        assert answer.error_code is ErrorCode.invalid_request
        answer = await node.ask(ADD_OFFSETS_TO_TXN_API, version, lambda _: {**fields, "producer_epoch": 3})
        fenced = ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
        assert answer.error_code is fenced


class TestEndTxn:
    @pytest.mark.parametrize("commit", [True, False])
    @pytest.mark.parametrize("version", versions(end_txn.API))
    async def test_every_version(self, node: Node, client: Client, version: int, commit: bool) -> None:
        await add(node, client, 3, (TOPIC, 0))
        for _ in range(2):  # a repeated request gets the same answer
            answer = await end(node, client, version, commit=commit)
            assert answer.error_code is ErrorCode.none
            if version >= 5:
                assert (answer.producer_id, answer.producer_epoch) == (client.producer.producer_id, 1)
        answer = await end(node, client, version, commit=not commit)
        assert answer.error_code is ErrorCode.invalid_txn_state

    @pytest.mark.parametrize(("version", "epoch"), [(4, 0), (5, 1)])
    async def test_the_client_is_noted_with_the_epoch_that_it_uses_next(
        self, node: Node, client: Client, version: int, epoch: int
    ) -> None:
        await add(node, client, 3, (TOPIC, 0))
        clients = node.services.partitions.counters.clients
        clients.forget(NOW_MS + 1)
        assert (await end(node, client, version, epoch=7)).error_code is not ErrorCode.none
        assert len(clients) == 0
        await end(node, client, version)
        producer_id = client.producer.producer_id
        assert str(clients.find(producer_id, epoch)) == "test (127.0.0.1)"
        assert clients.find(producer_id, epoch - 1) is None

    async def test_a_producer_without_a_transaction_has_nothing_to_end(
        self, node: Node, client: Client
    ) -> None:
        assert (await end(node, client, 4, commit=False)).error_code is ErrorCode.invalid_txn_state
        assert (await end(node, client, 5, commit=True)).error_code is ErrorCode.invalid_txn_state
        answer = await end(node, client, 5, commit=False)
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, 1)

    @pytest.mark.parametrize(("version", "error"), [(1, "invalid_producer_epoch"), (2, "producer_fenced")])
    async def test_who_is_fenced(self, node: Node, client: Client, version: int, error: str) -> None:
        assert (await end(node, client, version, epoch=7)).error_code.name == error
        client.transactional_id = ""
        assert (await end(node, client, version)).error_code is ErrorCode.invalid_request


class TestDescribe:
    async def test_a_transaction_is_described_in_every_state(self, node: Node, client: Client) -> None:
        names = (NAME, "open", "", "nobody")
        other = Client(node, "open")
        await other.begin()
        await other.write("a", 1)
        answer = await node.ask(DESCRIBE_TRANSACTIONS_API, 0, lambda _: {"transactional_ids": names})
        rows = [
            (
                row.error_code.name,
                row.transactional_id,
                row.transaction_state,
                [(topic.topic, topic.partitions) for topic in row.topics],
            )
            for row in answer.transaction_states
        ]
        assert rows == [
            ("none", NAME, "Empty", []),
            ("none", "open", "Ongoing", [(TOPIC, (1,))]),
            ("invalid_request", "", "", []),
            ("transactional_id_not_found", "nobody", "", []),
        ]
        assert round(answer.transaction_states[0].transaction_start_time.timestamp() * 1000) == -1
        assert answer.transaction_states[1].transaction_start_time.timestamp() * 1000 == NOW_MS
        assert answer.transaction_states[1].producer_id == other.producer.producer_id


class TestList:
    @staticmethod
    async def names(node: Node, version: int = 2, **filters: Any) -> list[str]:
        answer = await node.ask(LIST_TRANSACTIONS_API, version, lambda _: {**NO_FILTER, **filters})
        assert answer.error_code is ErrorCode.none
        return sorted(row.transactional_id for row in answer.transaction_states)

    @pytest.fixture
    async def ids(self, node: Node) -> list[int]:
        """Return the producer ids of the transactional ids a-idle, b-idle and b-open."""
        clients = [Client(node, name) for name in ("a-idle", "b-idle", "b-open")]
        for client in clients:
            await client.begin()
        await clients[2].write("x", 0)
        node.clock.time_ms += 1_000
        return [client.producer.producer_id for client in clients]

    @pytest.mark.parametrize("version", versions(LIST_TRANSACTIONS_API))
    async def test_every_version(self, node: Node, ids: list[int], version: int) -> None:
        assert await self.names(node, version) == ["a-idle", "b-idle", "b-open"]
        assert await self.names(node, version, producer_id_filters=tuple(ids[:2])) == ["a-idle", "b-idle"]
        assert await self.names(node, version, state_filters=("Ongoing", "Dead")) == ["b-open"]

    @pytest.mark.usefixtures("ids")
    async def test_by_duration_and_pattern(self, node: Node) -> None:
        assert await self.names(node, state_filters=("Ongoing",), duration_filter=999) == ["b-open"]
        assert await self.names(node, state_filters=("Ongoing",), duration_filter=1_000) == []
        assert await self.names(node, transactional_id_pattern="b-.*") == ["b-idle", "b-open"]
        assert await self.names(node, transactional_id_pattern="b-") == []
        assert await self.names(node, transactional_id_pattern="") == ["a-idle", "b-idle", "b-open"]

    @pytest.mark.usefixtures("ids")
    async def test_invalid_filters(self, node: Node) -> None:
        fields = {**NO_FILTER, "state_filters": ("ongoing", "Empty", "ongoing")}
        answer = await node.ask(LIST_TRANSACTIONS_API, 2, lambda _: fields)
        assert answer.unknown_state_filters == ("ongoing",)
        assert len(answer.transaction_states) == 2
        fields = {**NO_FILTER, "transactional_id_pattern": "(b"}
        answer = await node.ask(LIST_TRANSACTIONS_API, 2, lambda _: fields)
        assert answer.error_code is ErrorCode.invalid_regular_expression

    @pytest.mark.usefixtures("ids")
    async def test_while_a_partition_can_not_be_read(
        self, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: Any) -> None:
            raise LogError("a test says so")

        shards = node.services.coordinators.transactions.shards
        monkeypatch.setattr(LoadedShard, "load", fails)
        shards.lose(shards.at(0))
        answer = await node.ask(LIST_TRANSACTIONS_API, 2, lambda _: NO_FILTER)
        assert answer.error_code is ErrorCode.coordinator_load_in_progress
        assert answer.transaction_states == ()
        monkeypatch.undo()
        assert await self.names(node) == ["a-idle", "b-idle", "b-open"]


class TestWriteTxnMarkers:
    @staticmethod
    async def write(node: Node, version: int, client: Client, epoch: int, *topics: str) -> list[str]:
        def make(module: Any) -> dict[str, Any]:
            marker = build(
                module.WritableTxnMarker,
                producer_id=client.producer.producer_id,
                producer_epoch=epoch,
                transaction_result=False,
                topics=tuple(
                    module.WritableTxnMarkerTopic(name=topic, partition_indexes=(0,)) for topic in topics
                ),
                coordinator_epoch=0,
                transaction_version=2,
            )
            return {"markers": (marker,)}

        answer = await node.ask(write_txn_markers.API, version, make)
        return [
            row.error_code.name
            for marker in answer.markers
            for topic in marker.topics
            for row in topic.partitions
        ]

    @pytest.mark.parametrize("version", versions(write_txn_markers.API))
    async def test_every_version(self, node: Node, client: Client, version: int) -> None:
        await client.write("a", 0)
        errors = await self.write(node, version, client, 1, TOPIC, "nowhere", "__transaction_state")
        assert errors == ["none", "unknown_topic_or_partition", "invalid_topic_exception"]
        assert outcomes(node) == {"a": [Outcome.ABORTED]}
        assert await self.write(node, version, client, 0, TOPIC) == ["invalid_producer_epoch"]

    async def test_the_markers_of_a_client_are_logged(
        self, node: Node, client: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", logger=UNLIMITED)
        await client.write("a", 0)
        await self.write(node, 2, client, 1, TOPIC, "nowhere")
        what = f"aborted the transaction of producer {client.producer.producer_id} in {TOPIC}-0"
        assert caplog.messages == [f"{what}, by User:ANONYMOUS at 127.0.0.1:50312 (client 'test')"]

    async def test_a_marker_without_a_producer_epoch_is_refused(self, node: Node, client: Client) -> None:
        await client.write("a", 0)
        assert await self.write(node, 2, client, -1, TOPIC) == ["invalid_producer_epoch"]
        assert outcomes(node) == {"a": [Outcome.OPEN]}

    async def test_a_marker_of_version_2_needs_a_newer_producer_epoch(
        self, node: Node, client: Client
    ) -> None:
        await client.write("a", 0)
        assert await self.write(node, 2, client, 0, TOPIC) == ["invalid_producer_epoch"]
        assert await self.write(node, 1, client, 0, TOPIC) == ["none"]


class TestWhatIsAdvertised:
    async def test_the_coordinator_creates_its_topic(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            assert (await init(node))[0] == "not_coordinator"
            fields = {"key_type": 1, "coordinator_keys": (NAME,)}
            answer = await node.ask(find_coordinator.API, 6, lambda _: fields)
            assert answer.coordinators[0].error_code is ErrorCode.none
            assert (await init(node))[0] == "none"

    @pytest.mark.parametrize("version", [0, 2, 3, 4])
    def test_feature_levels_are_advertised(self, node: Node, version: int) -> None:
        api = api_versions([])
        context = node.context(api, version)

        class Request:
            client_software_name = client_software_version = "x"

        begin = api.begin
        assert begin is not None
        answer = begin(context, Request())
        assert isinstance(answer, bytes)
        for feature in (b"group.version", b"share.version", b"streams.version", b"transaction.version"):
            assert answer.count(feature) == {3: 1, 4: 2}.get(version, 0)
