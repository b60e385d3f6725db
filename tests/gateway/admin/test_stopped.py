"""Commands read the data directory of a stopped node; only claims and moves of producer ids change it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, TypeVar

import pytest

from seqgate.gateway.admin.names import NamesRequest
from seqgate.gateway.admin.operations import OPERATIONS, answer_stopped
from seqgate.gateway.admin.pids import (
    BY_HAND,
    GIVEN_UP,
    ClaimBlockRequest,
    FindOverlapsRequest,
    FindOwnerRequest,
    ListBlocksRequest,
    MoveNextRequest,
)
from seqgate.gateway.admin.request import ControlError, Request
from seqgate.gateway.admin.sweep import SweepRequest, sweep_stopped
from seqgate.gateway.admin.transactions.list_and_describe import (
    DescribeTransactionRequest,
    ListTransactionsRequest,
)
from seqgate.gateway.admin.users import AddUserRequest, ListUsersRequest, RemoveUserRequest
from seqgate.gateway.config import load_config
from seqgate.log import Storage
from seqgate.log.stopped import stored_batches
from tests.gateway.admin.answers import answer as live_answer
from tests.gateway.handlers.groups.test_name_offsets import write
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, open_node
from tests.support.named_batches import DEDUPLICATED, named
from tests.support.transactional_client import TIMEOUT_MS, TOPIC, Client

A = TypeVar("A")
LATER_MS = NOW_MS + 5_000


async def answer(data_dir: Path, request: Request[A]) -> A:
    """Return the answer. A thread finds it, because some operations run an event loop of their own."""
    config = load_config(overrides=[f"log.dirs={data_dir}"])
    result: A = await asyncio.to_thread(answer_stopped, data_dir, config, LATER_MS, request)
    return result


def content(data_dir: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()}


async def test_names(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await create(node, "ledger", 2, configs=dict(DEDUPLICATED))
        await create(node, "plain")
        await write(node, named("b", 1, 2, epoch=3), 1, "ledger")
        await write(node, named("a", 7), 1, "ledger")
        await write(node, named("a", 9), 0, "ledger")
    before = content(tmp_path)
    page = await answer(tmp_path, NamesRequest())
    rows = [(row.partition, row.name, row.persisted_sequence, row.epoch) for row in page.names]
    assert rows == [(0, "a", 9, -1), (1, "a", 7, -1), (1, "b", 2, 3)]
    assert {(row.age_ms, row.dropped_records) for row in page.names} == {(5_000, -1)}
    assert (page.counters, page.next, page.untold) == (None, None, [])
    assert [row.partition for row in (await answer(tmp_path, NamesRequest("ledger", 1, b"a"))).names] == [1]
    with pytest.raises(ControlError, match="no topic nowhere"):
        await answer(tmp_path, NamesRequest("nowhere"))
    with pytest.raises(ControlError, match="no partition 7"):
        await answer(tmp_path, NamesRequest("ledger", 7))
    with pytest.raises(ControlError, match=r"not tracked in topic plain: its message\.deduplication\.enable"):
        await answer(tmp_path, NamesRequest("plain"))
    assert content(tmp_path) == before


async def test_transactions(tmp_path: Path) -> None:
    async with open_node(tmp_path, "transaction.state.log.num.partitions=2") as node:
        await create(node, TOPIC, 2)
        await node.services.coordinators.transactions.ensure_topic()
        for name in ("payments", "billing"):
            client = Client(node, name, 12)
            await client.begin()
            await client.write(name, 0)
        await client.end(commit=True)
    before = content(tmp_path)
    page = await answer(tmp_path, ListTransactionsRequest())
    assert [(row.transactional_id, row.state) for row in page.transactions] == [
        ("billing", "CompleteCommit"),
        ("payments", "Ongoing"),
    ]
    assert page.complete
    ongoing = (await answer(tmp_path, ListTransactionsRequest(["ongoing"]))).transactions
    assert [(row.transactional_id, row.age_ms, row.timeout_ms) for row in ongoing] == [
        ("payments", 5_000, TIMEOUT_MS)
    ]
    described = await answer(tmp_path, DescribeTransactionRequest("payments"))
    assert [(row.topic, row.partition, row.high_watermark) for row in described.partitions] == [
        (TOPIC, 0, None)
    ]
    with pytest.raises(ControlError, match="no transactional id nobody"):
        await answer(tmp_path, DescribeTransactionRequest("nobody"))
    assert content(tmp_path) == before


async def test_blocks_of_producer_ids(tmp_path: Path) -> None:
    async with open_node(tmp_path, "seqgate.producer.id.block.size=10") as node:
        await node.services.coordinators.producer_ids.start()
    before = content(tmp_path)
    page = await answer(tmp_path, ListBlocksRequest())
    assert [(row.first_producer_id, row.state) for row in page.blocks] == [(0, GIVEN_UP)]
    assert (page.next_producer_id, page.total) == (10, 1)
    owner = await answer(tmp_path, FindOwnerRequest(9))
    assert owner.block is not None
    assert (owner.block.owner, owner.handed_out) == ("node-1", None)
    assert content(tmp_path) == before


async def test_a_claim_and_a_move_are_durable(tmp_path: Path) -> None:
    async with open_node(tmp_path):
        pass
    claimed = await answer(tmp_path, ClaimBlockRequest(5, "loader"))
    assert (claimed.first_producer_id, claimed.last_producer_id, claimed.claimed_at_ms) == (0, 4, LATER_MS)
    moved = await answer(tmp_path, MoveNextRequest(1_000))
    assert (moved.previous, moved.current) == (5, 1_000)
    page = await answer(tmp_path, ListBlocksRequest())
    assert ([row.state for row in page.blocks], page.next_producer_id) == ([BY_HAND], 1_000)
    assert (await answer(tmp_path, FindOverlapsRequest())).overlaps == []
    async with open_node(tmp_path) as node:
        assert node.services.topics.metadata_log.image.next_producer_id == 1_000


async def test_a_running_gateway_keeps_its_lock(tmp_path: Path) -> None:
    async with open_node(tmp_path):
        with pytest.raises(ControlError, match="is in use by a process that does not answer"):
            await answer(tmp_path, ClaimBlockRequest(5, "loader"))
        with pytest.raises(ControlError, match="is in use by a process that does not answer"):
            sweep_stopped(tmp_path, SweepRequest(remove=True), NOW_MS, lambda *_: None)


async def test_a_sweep_removes_only_what_it_is_asked_to(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await create(node, "orders")
    (tmp_path / "gone-0").mkdir()
    for leak in (tmp_path / "gone-0", tmp_path / "notes.txt"):
        leak.touch()
        os.utime(leak, (0, 0))

    def leaks(request: SweepRequest) -> dict[str, bool]:
        progress: list[tuple[int, int]] = []
        page = sweep_stopped(tmp_path, request, NOW_MS, lambda *counts: progress.append(counts))
        assert progress[-1][0] == progress[-1][1] > 0
        assert (page.gateway, page.total, page.task.ended) == ("stopped", len(page.leaks), True)
        return {leak.place: leak.removed for leak in page.leaks}

    assert leaks(SweepRequest()) == {"gone-0": False, "notes.txt": False}
    assert leaks(SweepRequest(remove=True)) == {"gone-0": True, "notes.txt": False}
    assert leaks(SweepRequest(remove=True, unknown=True)) == {"notes.txt": True}
    assert leaks(SweepRequest()) == {}


@pytest.mark.parametrize(
    "request_",
    [
        NamesRequest(),
        ListTransactionsRequest(),
        DescribeTransactionRequest("t"),
        ListBlocksRequest(),
        FindOwnerRequest(1),
        FindOverlapsRequest(),
        ClaimBlockRequest(1, "loader"),
        MoveNextRequest(1),
        ListUsersRequest(),
        AddUserRequest("ann", []),
        RemoveUserRequest("ann"),
    ],
    ids=lambda request: request.operation_name(),
)
async def test_what_is_no_data_directory(tmp_path: Path, request_: Request[Any]) -> None:
    letters = tmp_path / "letters"
    letters.touch()
    with pytest.raises(ControlError, match="no data directory of a gateway"):
        await answer(tmp_path, request_)
    assert list(tmp_path.iterdir()) == [letters]


def test_every_stopped_operation_is_tried_here() -> None:
    (mark,) = test_what_is_no_data_directory.pytestmark
    tried = {type(request) for request in mark.args[1]}
    assert {operation.request for operation in OPERATIONS if operation.stopped is not None} == tried


@pytest.mark.parametrize(
    "request_", [ClaimBlockRequest(5, "loader"), MoveNextRequest(1_000), ListBlocksRequest()]
)
async def test_damaged_metadata_is_neither_cut_nor_passed_over(
    tmp_path: Path, request_: Request[Any]
) -> None:
    """If a repair dropped claims of producer ids, the gateway would hand these ids out again."""
    async with open_node(tmp_path) as node:
        for _ in range(3):
            await live_answer(node, ClaimBlockRequest(10, "loader"))
    (segment,) = (tmp_path / "__cluster_metadata-0").glob("*.log")
    batches = list(stored_batches(Storage(), segment.parent))
    (header, _), (_, last) = batches[-2:]
    data = bytearray(segment.read_bytes())
    data[-len(last) - 1] ^= 1
    for content in (data, data[: -len(last) - header.size_bytes]):
        segment.write_bytes(content)
        with pytest.raises(ControlError, match=r"__cluster_metadata-0.* is damaged"):
            await answer(tmp_path, request_)
        assert segment.read_bytes() == content
