"""The transactions of a running gateway, in states that are hard to reach with a command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.admin.request import MAX_PAGE_ROWS, ControlError, Request
from seqgate.gateway.admin.transactions.hanging import (
    AbortHangingRequest,
    AbortTransactionRequest,
    FencedBy,
    FindHangingRequest,
)
from seqgate.gateway.admin.transactions.list_and_describe import (
    DescribeTransactionRequest,
    ListTransactionsRequest,
)
from seqgate.gateway.coordinator.transaction.rules import TransactionLimits
from seqgate.gateway.metadata.image import TRANSACTION_STATE_TOPIC
from seqgate.gateway.runtime.coordinators import transaction_coordinator
from seqgate.gateway.runtime.coordinators.shards import LoadedShard
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import CorruptRecord, Storage
from tests.faults.directory_life import ROOT, new_disk
from tests.gateway.admin.answers import answer
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.support.transactional_client import ADDS_FIRST, PARTITIONS, TIMEOUT_MS, TOPIC, Client, outcomes

SETTINGS = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")
UNVERIFIED = (*SETTINGS, "transaction.partition.verification.enable=false")
NAME = "payments"


async def writing(node: Node, version: int = 12, name: str = NAME) -> Client:
    """Return a client whose open transaction has a record in the first partition."""
    if node.services.partitions.registry.get(TOPIC, 0) is None:
        await create(node, TOPIC, PARTITIONS)
    await node.services.coordinators.transactions.ensure_topic()
    client = Client(node, name, version)
    await client.begin()
    await client.write("a", 0)
    return client


def partition(node: Node, index: int, topic: str = TOPIC) -> Partition:
    found = node.services.partitions.registry.get(topic, index)
    assert found is not None
    return found


def damaged(*_: object) -> None:
    raise CorruptRecord("a test says so")


class TestAbort:
    @pytest.mark.parametrize("version", [12, ADDS_FIRST])
    async def test_fences_the_producer_of_either_protocol(self, tmp_path: Path, version: int) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await writing(node, version)
            node.clock.time_ms += 7_000
            done = await answer(node, AbortTransactionRequest(NAME, execute=True))
            assert (done.executed, done.age_ms, done.start_ms) == (True, 7_000, NOW_MS)
            assert (done.producer_id, done.producer_epoch) == client.producer
            # one epoch for the marker, one for the next producer
            assert done.fenced_by == FencedBy(client.producer.producer_id, 2)
            assert [row.first_offset for row in done.partitions] == [0]
            described = await answer(node, DescribeTransactionRequest(NAME))
            assert (described.state, described.timeout_ms, described.start_ms) == ("Empty", TIMEOUT_MS, None)

    async def test_not_another_transaction_than_was_shown(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await writing(node)
            planned = await answer(node, AbortTransactionRequest(NAME))
            await client.end(commit=True)
            node.clock.time_ms += 1
            await client.write("b", 0)
            request = AbortTransactionRequest(NAME, planned.start_ms, execute=True)
            with pytest.raises(ControlError, match="another one has begun"):
                await answer(node, request)
            await client.end(commit=True)

    async def test_under_a_lower_limit_than_the_producer_began_with(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            await writing(node)
            node.services.coordinators.transactions.limits = TransactionLimits(max_timeout_ms=1_000)
            done = await answer(node, AbortTransactionRequest(NAME, execute=True))
            assert done.fenced_by is not None

    async def test_what_is_decided_can_not_be_stopped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transaction_coordinator, "END_WAIT_S", 0.01)
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await writing(node)
            partition(node, 0).log.go_offline("a test says so")
            await client.end(commit=True)
            with pytest.raises(ControlError, match="ending already and can't be stopped: PrepareCommit"):
                await answer(node, AbortTransactionRequest(NAME, execute=True))

    async def test_an_abort_that_a_partition_holds_up_is_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transaction_coordinator, "END_WAIT_S", 0.01)
        async with open_node(tmp_path, *SETTINGS) as node:
            await writing(node)
            partition(node, 0).log.go_offline("a test says so")
            with pytest.raises(ControlError, match="is decided, but not written to every partition yet"):
                await answer(node, AbortTransactionRequest(NAME, execute=True))
            described = await answer(node, DescribeTransactionRequest(NAME))
            assert described.state == "PrepareAbort"

    async def test_commits_of_others_go_on(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            await writing(node)
            other = await writing(node, name="other")
            request = AbortTransactionRequest(NAME, execute=True)
            await asyncio.gather(answer(node, request), other.end(commit=True))
            assert [outcome.value for outcome in outcomes(node)["a"]] == ["aborted", "committed"]


class TestHanging:
    async def test_what_takes_part_nowhere(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *UNVERIFIED) as node:
            client = await writing(node, ADDS_FIRST)
            client.append("stray", 1)
            node.clock.time_ms += 3_000
            page = await answer(node, FindHangingRequest())
            assert [(row.partition, row.reason, row.age_ms) for row in page.hanging] == [
                (1, "not part", 3_000)
            ]
            done = await answer(node, AbortHangingRequest(TOPIC, 1, 0, execute=True))
            assert (done.transactional_id, done.fenced_by, done.age_ms) == (NAME, None, 3_000)
            assert (await answer(node, FindHangingRequest())).hanging == []
            await client.end(commit=True)
            told = {label: [found.value for found in what] for label, what in outcomes(node).items()}
            assert told == {"a": ["committed"], "stray": ["aborted"]}

    async def test_overdue_until_the_coordinator_looks(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            await writing(node)
            node.clock.time_ms += TIMEOUT_MS
            assert (await answer(node, FindHangingRequest())).hanging == []
            node.clock.time_ms += 1
            (row,) = (await answer(node, FindHangingRequest())).hanging
            assert (row.transactional_id, row.reason) == (NAME, "overdue")

    @pytest.mark.parametrize("is_damaged", [False, True])
    async def test_nobody_is_unknown_while_the_coordinator_is_offline(
        self, tmp_path: Path, is_damaged: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            await writing(node)
            if is_damaged:
                shards = node.services.coordinators.transactions.shards
                for loaded in list(shards):
                    shards.lose(loaded)
                monkeypatch.setattr(LoadedShard, "load", damaged)
            else:
                partition(node, 0, TRANSACTION_STATE_TOPIC).log.go_offline("a test says so")
            page = await answer(node, FindHangingRequest())
            assert (page.hanging, page.offline_partitions) == ([], [0])
            listed = await answer(node, ListTransactionsRequest())
            assert (listed.transactions, listed.offline_partitions) == ([], [0])
            with pytest.raises(ControlError, match="may have a live transaction: 0 of __transaction_state"):
                await answer(node, AbortHangingRequest(TOPIC, 0, 0, execute=True))
            for name in (NAME, "nobody"):
                with pytest.raises(ControlError, match=f"transactional id {name} can't answer now"):
                    await answer(node, DescribeTransactionRequest(name))

    async def test_an_offline_partition_takes_no_marker(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *UNVERIFIED) as node:
            client = await writing(node, ADDS_FIRST)
            client.append("stray", 1)
            partition(node, 1).log.go_offline("a test says so")
            with pytest.raises(ControlError, match="accounts-1 takes no marker"):
                await answer(node, AbortHangingRequest(TOPIC, 1, 0, execute=True))

    async def test_a_marker_that_does_not_become_durable_is_told(self, tmp_path: Path) -> None:
        disk = new_disk()
        async with open_node(ROOT, *UNVERIFIED, storage=Storage(disk=disk.process())) as node:
            client = await writing(node, ADDS_FIRST)
            offset = client.append("stray", 1)
            assert await partition(node, 1).persisted(offset)
            disk.plan.fail_at = disk.plan.operations + 2  # the write succeeds, but its flush fails
            with pytest.raises(ControlError, match="could not be made durable"):
                await answer(node, AbortHangingRequest(TOPIC, 1, offset, execute=True))
            disk.plan.heal()


@pytest.mark.parametrize("limit", [-1, 0, MAX_PAGE_ROWS + 1])
@pytest.mark.parametrize(
    "kind",
    [
        ListTransactionsRequest,
        lambda limit: DescribeTransactionRequest(NAME, limit=limit),
        FindHangingRequest,
    ],
)
async def test_pages_have_limits(tmp_path: Path, kind: Callable[..., Request[Any]], limit: int) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        with pytest.raises(ControlError, match=f"limit must be between 1 and 10000, not {limit}"):
            await answer(node, kind(limit=limit))


async def test_a_wrong_pattern_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        await node.services.coordinators.transactions.ensure_topic()
        with pytest.raises(ControlError, match=r"^tx\( is not a regular expression: missing \): tx\($"):
            await answer(node, ListTransactionsRequest(pattern="tx("))
