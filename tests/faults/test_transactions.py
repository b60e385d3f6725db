"""A gateway loses its disk between any two writes of the coordinator and the markers: a transaction counts
whole or not at all.

A clean run counts the writes, flushes and renames. Then each of them in turn is the first that fails, the
power is cut, and another gateway continues with the remaining disk.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress

import pytest

from seqgate.gateway.coordinator.transaction.rules import TransactionRefused
from seqgate.gateway.runtime.coordinators import transaction_coordinator
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.log import Storage
from tests.faults.directory_life import ROOT, new_disk
from tests.faults.simulated_disk import SimulatedDisk
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import Node, open_node
from tests.support.transactional_client import (
    ADDS_BY_PRODUCE,
    ADDS_FIRST,
    PARTITIONS,
    TOPIC,
    Attempt,
    Client,
    Outcome,
    Refused,
    committed_offset,
    outcomes,
    settle,
)

END_WAIT_S = 0.05
"""Short, because a request to a disk that stays broken gets no answer."""
SETTINGS = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")
ENDS = (True, False, True)
SEEDS = (0, 1, 5, 6)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_coordinator, "END_WAIT_S", END_WAIT_S)


async def prepare(node: Node) -> None:
    await create(node, TOPIC, PARTITIONS)
    await node.services.coordinators.transactions.ensure_topic()
    await node.services.coordinators.groups.ensure_topic()


async def work(node: Node, version: int, attempts: list[Attempt]) -> None:
    """Run transactions one after the other. The last one is left open, and another producer takes over."""
    client = Client(node, "payments", version)
    await client.begin()
    for number, commit in enumerate(ENDS):
        attempts.append(Attempt(f"{number}", offset=number))
        await client.transact(attempts[-1], commit=commit)
    attempts.append(Attempt("open", offset=100))
    await client.write("open", 0)
    await client.hold(100)
    client.append("open", 1) if version == ADDS_BY_PRODUCE else None
    successor = Client(node, "payments", version)
    await successor.begin()
    attempts.append(Attempt("successor", offset=200))
    await successor.transact(attempts[-1], commit=True)


async def run_until(fail_at: int, version: int) -> tuple[SimulatedDisk, int, list[Attempt]]:
    """Run the transactions of this test on a disk that fails from operation `fail_at` on.

    Returns the disk after a power cut, the number of operations, and the attempted transactions.
    """
    disk = new_disk()
    attempts: list[Attempt] = []
    async with open_on(disk) as node:
        await prepare(node)
        before = disk.plan.operations
        disk.plan.fail_for_ever = True
        disk.plan.fail_at = before + fail_at if fail_at else 0
        with suppress(Unavailable, TransactionRefused, Refused):
            await work(node, version, attempts)
        done = disk.plan.operations - before
        node.services.coordinators.transactions.stop()
        image = disk.copy()
        disk.plan.heal()
    image.power_cut_by_seed(SEEDS[fail_at % len(SEEDS)])
    return image, done, attempts


def open_on(disk: SimulatedDisk) -> AbstractAsyncContextManager[Node]:
    return open_node(ROOT, *SETTINGS, storage=Storage(disk=disk.process()))


def check(attempts: list[Attempt], found: dict[str, list[Outcome]], offset: int | None) -> None:
    committed = [attempt.offset for attempt in attempts if Outcome.COMMITTED in found.get(attempt.label, ())]
    assert offset == (committed[-1] if committed else None), "offsets are committed with their records"
    for attempt in attempts:
        became = found.pop(attempt.label, [])
        assert Outcome.OPEN not in became, f"{attempt}: {became}"
        assert len(set(became)) <= 1, f"{attempt}: {became}"
        assert len(became) >= len(attempt.places), f"{attempt} lost what was acknowledged: {became}"
        if attempt.commit is None:
            assert Outcome.COMMITTED not in became, f"{attempt}: {became}"
        if attempt.answered:
            assert became == [Outcome.COMMITTED if attempt.commit else Outcome.ABORTED] * PARTITIONS
        elif attempt.commit is False:
            assert Outcome.COMMITTED not in became, f"{attempt}: {became}"
    assert not found, found


@pytest.mark.parametrize("version", [ADDS_BY_PRODUCE, ADDS_FIRST])
async def test_nothing_fails(version: int) -> None:
    image, done, attempts = await run_until(0, version)
    assert done > 30, "the run must have operations that can fail"
    assert [attempt.answered for attempt in attempts] == [True] * len(ENDS) + [False, True]
    async with open_on(image) as node:
        await settle(node)
        check(attempts, outcomes(node), await committed_offset(node))


@pytest.mark.parametrize("version", [ADDS_BY_PRODUCE, ADDS_FIRST])
async def test_any_operation_fails(version: int) -> None:
    _, total, _ = await run_until(0, version)
    for fail_at in range(1, total + 1):
        image, _, attempts = await run_until(fail_at, version)
        async with open_on(image) as node:
            await settle(node)
            check(attempts, outcomes(node), await committed_offset(node))
            client = Client(node, "payments", version)
            await client.begin()
            last = Attempt("last")
            await client.transact(last, commit=True)
            assert outcomes(node)["last"] == [Outcome.COMMITTED] * PARTITIONS
