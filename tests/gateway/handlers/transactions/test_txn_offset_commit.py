"""Offsets committed in transactions: invisible before the commit, dropped by an abort, unchanged by a
restart.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.transaction.rules import Producer
from seqgate.gateway.handlers.groups import offset_commit, offset_fetch
from seqgate.gateway.handlers.groups.groups import DELETE_GROUPS_API
from seqgate.gateway.handlers.transactions import end_txn, init_producer_id, txn_offset_commit
from seqgate.gateway.handlers.transactions.add_to_txn import ADD_OFFSETS_TO_TXN_API
from seqgate.gateway.handlers.transactions.transactions import DESCRIBE_TRANSACTIONS_API
from seqgate.gateway.handlers.transactions.txn_offset_commit import FIRST_WITH_TOPIC_IDS
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.coordinators import shards
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import Node, open_node

GROUP = "g"
TOPIC = "flights"
TRANSACTIONAL_ID = "copier"
SETTINGS = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")
UNSTABLE = ErrorCode.unstable_offset_commit


@asynccontextmanager
async def node_at(path: Path) -> AsyncIterator[Node]:
    async with open_node(path, *SETTINGS) as node:
        assert await node.services.coordinators.producer_ids.start()
        await node.services.coordinators.groups.ensure_topic()
        await node.services.coordinators.transactions.ensure_topic()
        if TOPIC not in node.services.partitions.registry.by_name:
            await create(node, TOPIC, 2)
        yield node


async def begin(node: Node, transactional_id: str = TRANSACTIONAL_ID) -> Producer:
    def request(_: ModuleType) -> dict[str, Any]:
        return {
            "transactional_id": transactional_id,
            "transaction_timeout": timedelta(seconds=60),
            "producer_id": -1,
            "producer_epoch": -1,
        }

    answer = await node.ask(init_producer_id.API, 4, request)
    assert answer.error_code is ErrorCode.none
    return Producer(answer.producer_id, answer.producer_epoch)


async def hold(
    node: Node,
    producer: Producer,
    offset: int,
    *,
    version: int = 5,
    partition: int = 0,
    transactional_id: str = TRANSACTIONAL_ID,
    **fields: Any,
) -> ErrorCode:
    if version < 5:
        added = await node.ask(
            ADD_OFFSETS_TO_TXN_API,
            3,
            lambda _: {
                "transactional_id": transactional_id,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "group_id": GROUP,
            },
        )
        assert added.error_code is ErrorCode.none

    def request(module: ModuleType) -> dict[str, Any]:
        row = module.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=fields.get("metadata", "m")
        )
        return {
            "transactional_id": transactional_id,
            "group_id": fields.get("group_id", GROUP),
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "generation_id": fields.get("generation_id", -1),
            "member_id": fields.get("member_id", ""),
            "group_instance_id": None,
            "topics": (build(module.TxnOffsetCommitRequestTopic, **topic, partitions=(row,)),),
        }

    topic = {"name": fields.get("topic", TOPIC)}
    if version >= FIRST_WITH_TOPIC_IDS:
        id_of = node.services.partitions.registry.by_name[TOPIC].topic_id
        topic = {"topic_id": fields.get("topic_id", id_of)}
    answer = await node.ask(txn_offset_commit.API, version, request)
    (answered,) = answer.topics
    assert topic.items() <= {"name": "", **plain_fields(answered)}.items()
    code: ErrorCode = answered.partitions[0].error_code
    return code


def plain_fields(entity: Any) -> dict[str, Any]:
    return {field.name: getattr(entity, field.name) for field in dataclasses.fields(entity)}


async def end(
    node: Node, producer: Producer, *, commit: bool, version: int = 5, name: str = TRANSACTIONAL_ID
) -> Producer:
    answer = await node.ask(
        end_txn.API,
        version,
        lambda _: {
            "transactional_id": name,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "committed": commit,
        },
    )
    assert answer.error_code is ErrorCode.none
    return Producer(answer.producer_id, answer.producer_epoch) if version >= 5 else producer


async def fetch(node: Node, *, stable: bool = False, every: bool = False) -> dict[int, int | ErrorCode]:
    def request(module: ModuleType) -> dict[str, Any]:
        topics = None
        if not every:
            topics = (module.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(0, 1)),)
        group = module.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
        return {"groups": (group,), "require_stable": stable}

    answer = await node.ask(offset_fetch.API, 8, request)
    return {
        row.partition_index: row.committed_offset if row.error_code is ErrorCode.none else row.error_code
        for topic in answer.groups[0].topics
        for row in topic.partitions
    }


async def commit_outside(node: Node, offset: int) -> None:
    def request(module: ModuleType) -> dict[str, Any]:
        row = module.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        return {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": (module.OffsetCommitRequestTopic(name=TOPIC, partitions=(row,)),),
        }

    answer = await node.ask(offset_commit.API, 8, request)
    assert answer.topics[0].partitions[0].error_code is ErrorCode.none


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("commit", [True, False])
async def test_offsets_count_when_the_transaction_is_committed(
    tmp_path: Path, version: int, commit: bool
) -> None:
    async with node_at(tmp_path) as node:
        await commit_outside(node, 3)
        producer = await begin(node)
        assert await hold(node, producer, 10, version=version) is ErrorCode.none
        assert await fetch(node) == {0: 3, 1: -1}
        assert await fetch(node, stable=True) == {0: UNSTABLE, 1: -1}
        assert await fetch(node, stable=True, every=True) == {0: UNSTABLE}
        await end(node, producer, commit=commit, version=version)
        told = await fetch(node, stable=True)
        assert told == {0: 10 if commit else 3, 1: -1}
    async with node_at(tmp_path) as node:
        assert await fetch(node, stable=True) == told


@pytest.mark.parametrize("commit", [True, False])
async def test_an_open_transaction_outlives_a_restart(tmp_path: Path, commit: bool) -> None:
    async with node_at(tmp_path) as node:
        producer = await begin(node)
        assert await hold(node, producer, 10, partition=1) is ErrorCode.none
        assert await fetch(node, every=True, stable=True) == {}
    async with node_at(tmp_path) as node:
        assert await fetch(node) == {0: -1, 1: -1}
        assert await fetch(node, stable=True) == {0: -1, 1: UNSTABLE}
        await end(node, producer, commit=commit)
        assert await fetch(node, stable=True) == {0: -1, 1: 10 if commit else -1}


async def test_a_later_plain_commit_outlives_the_transaction(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        producer = await begin(node)
        await hold(node, producer, 10)
        await commit_outside(node, 12)
        assert await fetch(node, stable=True) == {0: UNSTABLE, 1: -1}
        await end(node, producer, commit=True)
        assert await fetch(node, stable=True) == {0: 12, 1: -1}


async def test_deleting_the_group_deletes_pending_offsets(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        producer = await begin(node)
        await hold(node, producer, 10)
        answer = await node.ask(DELETE_GROUPS_API, 2, lambda _: {"groups_names": (GROUP,)})
        assert answer.results[0].error_code is ErrorCode.none
        await end(node, producer, commit=True)
        assert await fetch(node) == {0: -1, 1: -1}
    async with node_at(tmp_path) as node:
        assert await fetch(node) == {0: -1, 1: -1}


async def test_a_rewritten_log_keeps_pending_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "RECORDS_AT_ONCE", 1)
    async with node_at(tmp_path) as node:
        first, second = await begin(node), await begin(node, "another")
        await hold(node, first, 10)
        await hold(node, second, 20, transactional_id="another", partition=1)
        await commit_outside(node, 5)
        await hold(node, first, 11)
        loaded = node.services.coordinators.groups.shards.at(0)
        await loaded.rewrite(node.clock)
        log = loaded.partition.log
        assert log.log_start_offset > 0
        assert {producer_id for producer_id, _ in log.transactions.open_transactions()} == {
            first.producer_id,
            second.producer_id,
        }
    async with node_at(tmp_path) as node:
        assert await fetch(node) == {0: 5, 1: -1}
        await end(node, first, commit=True)
        await end(node, second, commit=False, name="another")
        assert await fetch(node, stable=True) == {0: 11, 1: -1}
        assert not loaded_log(node).transactions.open_transactions()


def loaded_log(node: Node) -> Any:
    return node.services.coordinators.groups.shards.at(0).partition.log


async def is_open(node: Node) -> bool:
    answer = await node.ask(
        DESCRIBE_TRANSACTIONS_API, 0, lambda _: {"transactional_ids": (TRANSACTIONAL_ID,)}
    )
    return bool(answer.transaction_states[0].transaction_state == "Ongoing")


REFUSED_BY_THE_GROUP: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"metadata": "x" * 5000}, ErrorCode.offset_metadata_too_large),
    ({"generation_id": 3}, ErrorCode.illegal_generation),
]


class TestTheTransactionIsAskedBeforeTheGroup:
    @pytest.mark.parametrize(("fields", "error"), REFUSED_BY_THE_GROUP)
    async def test_the_offsets_partition_joins_the_transaction_though_the_group_refuses(
        self, tmp_path: Path, fields: dict[str, Any], error: ErrorCode
    ) -> None:
        async with node_at(tmp_path) as node:
            producer = await begin(node)
            assert await hold(node, producer, 10, **fields) is error
            assert await is_open(node)
            await end(node, producer, commit=True)
            assert await fetch(node, stable=True) == {0: -1, 1: -1}

    @pytest.mark.parametrize("fields", [fields for fields, _ in REFUSED_BY_THE_GROUP])
    async def test_a_zombie_gets_the_error_that_ends_it(self, tmp_path: Path, fields: dict[str, Any]) -> None:
        async with node_at(tmp_path) as node:
            zombie = await begin(node)
            await begin(node)
            assert await hold(node, zombie, 10, **fields) is ErrorCode.invalid_producer_epoch
            stranger = Producer(zombie.producer_id + 1000, 0)
            assert await hold(node, stranger, 10, **fields) is ErrorCode.invalid_producer_id_mapping
            assert not await is_open(node)

    async def test_an_epoch_that_the_partition_has_left(self, tmp_path: Path) -> None:
        async with node_at(tmp_path) as node:
            zombie = await begin(node)
            producer = await begin(node)
            await hold(node, producer, 10)
            await end(node, producer, commit=False)
            assert await hold(node, zombie, 11, generation_id=3) is ErrorCode.invalid_producer_epoch


class TestRefused:
    async def test_a_topic_that_was_created_again_while_another_gateway_was_asked(
        self, tmp_path: Path
    ) -> None:
        async with node_at(tmp_path) as node:
            producer = await begin(node)
            offset = CommittedOffset(900, -1, "", node.clock.now_ms(), topic_id=uuid.UUID(int=9).bytes)
            error = await txn_offset_commit.commit_in_transaction(
                node.services.coordinators.groups,
                Committer(GROUP),
                producer,
                [OffsetCommitRecord(GROUP, TOPIC, 0, offset)],
                lambda _: None,
                5,
            )
            assert error is ErrorCode.unknown_topic_or_partition

    async def test_another_producer(self, tmp_path: Path) -> None:
        async with node_at(tmp_path) as node:
            zombie = await begin(node)
            await begin(node)
            assert await hold(node, zombie, 10) is ErrorCode.invalid_producer_epoch
            assert await fetch(node, stable=True) == {0: -1, 1: -1}
            stranger = Producer(zombie.producer_id + 1000, 0)
            assert await hold(node, stranger, 10) is ErrorCode.invalid_producer_id_mapping

    async def test_an_unknown_member(self, tmp_path: Path) -> None:
        async with node_at(tmp_path) as node:
            producer = await begin(node)
            error = await hold(node, producer, 10, generation_id=4, member_id="somebody")
            assert error is ErrorCode.illegal_generation
            await commit_outside(node, 1)
            error = await hold(node, producer, 10, generation_id=4, member_id="somebody")
            assert error is ErrorCode.unknown_member_id

    async def test_topics_metadata_and_groups(self, tmp_path: Path) -> None:
        async with node_at(tmp_path) as node:
            producer = await begin(node)
            unknown = ErrorCode.unknown_topic_or_partition
            assert await hold(node, producer, 10, topic="nowhere") is unknown
            assert await hold(node, producer, 10, partition=9) is unknown
            assert await hold(node, producer, 10, metadata="x" * 5000) is ErrorCode.offset_metadata_too_large
            assert await hold(node, producer, 10, group_id="") is ErrorCode.invalid_group_id

    async def test_topics_by_id(self, tmp_path: Path) -> None:
        async with node_at(tmp_path) as node:
            producer = await begin(node)
            for topic_id in (uuid.UUID(int=9), None):
                error = await hold(node, producer, 10, version=6, topic_id=topic_id)
                assert error is ErrorCode.unknown_topic_id
            unknown = ErrorCode.unknown_topic_or_partition
            assert await hold(node, producer, 10, version=6, partition=9) is unknown
            assert await hold(node, producer, 10, version=6) is ErrorCode.none
            await end(node, producer, commit=True)
            assert await fetch(node, stable=True) == {0: 10, 1: -1}

    @pytest.mark.parametrize(
        ("version", "error"), [(5, ErrorCode.illegal_generation), (6, ErrorCode.group_id_not_found)]
    )
    async def test_from_v6_on_a_client_learns_that_the_group_is_unknown(
        self, tmp_path: Path, version: int, error: ErrorCode
    ) -> None:
        async with node_at(tmp_path) as node:
            producer = await begin(node)
            refused = await hold(node, producer, 10, version=version, generation_id=4, member_id="somebody")
            assert refused is error

    async def test_a_commit_without_adding_the_offsets_first(self, tmp_path: Path) -> None:
        """Before version 5, only AddOffsetsToTxn adds the partition that stores the offsets."""
        async with node_at(tmp_path) as node:
            producer = await begin(node)

            def request(module: ModuleType) -> dict[str, Any]:
                row = module.TxnOffsetCommitRequestPartition(
                    partition_index=0, committed_offset=1, committed_metadata=""
                )
                topic = module.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=(row,))
                return {
                    "transactional_id": TRANSACTIONAL_ID,
                    "group_id": GROUP,
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.producer_epoch,
                    "topics": (topic,),
                }

            for version, code in ((3, ErrorCode.invalid_txn_state), (4, ErrorCode.transaction_abortable)):
                answer = await node.ask(txn_offset_commit.API, version, request)
                assert answer.topics[0].partitions[0].error_code is code
