"""Idle producers are forgotten in time, although most passes look at no partition."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.upkeep.background_jobs import ProducerExpiry
from tests.gateway.handlers.requests import alter, create
from tests.gateway.handlers.support import FixedClock, Node, open_node
from tests.log.support import batch

EXPIRATION_MS = 3_600_000
BROKER = 4


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path, f"producer.id.expiration.ms={EXPIRATION_MS}") as node:
        await create(node, "t", partitions=3)
        yield node


@pytest.fixture
def clock(node: Node) -> FixedClock:
    return node.clock


@pytest.fixture
def expiry(node: Node) -> ProducerExpiry:
    services = node.services
    return ProducerExpiry(services.node.config, node.clock, services.partitions.registry)


def partition(node: Node, index: int) -> Partition:
    found = node.services.partitions.registry.get("t", index)
    assert found is not None
    return found


def write(node: Node, index: int, producer_id: int) -> None:
    partition(node, index).append(
        batch(producer_id=producer_id, producer_epoch=0, base_sequence=0), node.clock.now_ms()
    )


def known(node: Node) -> list[int]:
    """Return how many producers each open partition knows."""
    return [len(partition.log.producers) for partition in node.services.partitions.registry]


async def test_a_producer_is_forgotten_once_it_was_idle_for_the_time(
    node: Node, clock: FixedClock, expiry: ProducerExpiry
) -> None:
    write(node, 0, 1)
    clock.time_ms += 1_000
    write(node, 1, 2)
    for later_ms, left in ((EXPIRATION_MS - 1_001, [1, 1]), (1, [0, 1]), (999, [0, 1]), (1, [0, 0])):
        clock.time_ms += later_ms
        await expiry.run()
        assert known(node) == left


async def test_a_producer_that_wrote_again_stays(
    node: Node, clock: FixedClock, expiry: ProducerExpiry
) -> None:
    write(node, 0, 1)
    await expiry.run()
    clock.time_ms += EXPIRATION_MS - 1
    write(node, 0, 2)
    clock.time_ms += 1
    await expiry.run()
    assert known(node) == [1]
    clock.time_ms += EXPIRATION_MS - 1
    await expiry.run()
    assert known(node) == [0]


async def test_no_partition_is_looked_at_before_the_first_producer_is_due(
    node: Node, clock: FixedClock, expiry: ProducerExpiry, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(node, 0, 1)
    await expiry.run()
    looks: list[int] = []
    check = expiry._check
    monkeypatch.setattr(expiry, "_check", lambda *given: (looks.append(clock.now_ms()), check(*given)))
    clock.time_ms += EXPIRATION_MS - 1
    await expiry.run()
    assert looks == []
    clock.time_ms += 1
    await expiry.run()
    assert len(looks) == 1


async def test_a_partition_that_was_opened_since_is_looked_at(
    node: Node, clock: FixedClock, expiry: ProducerExpiry
) -> None:
    await expiry.run()
    write(node, 2, 1)
    clock.time_ms += EXPIRATION_MS
    await expiry.run()
    assert known(node) == [0]


async def test_a_shorter_setting_counts_at_once(
    node: Node, clock: FixedClock, expiry: ProducerExpiry
) -> None:
    write(node, 0, 1)
    await expiry.run()
    clock.time_ms += 60_000
    await alter(node, BROKER, "", {"producer.id.expiration.ms": "60000"})
    await expiry.run()
    assert known(node) == [0]


async def test_a_partition_that_comes_back_is_looked_at(
    node: Node, clock: FixedClock, expiry: ProducerExpiry, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(node, 0, 1)
    log = partition(node, 0).log
    with monkeypatch.context() as broken:
        broken.setattr(type(log), "offline", True)
        clock.time_ms += EXPIRATION_MS
        await expiry.run()
        assert known(node) == [1]
    await expiry.run()
    assert known(node) == [0]


async def test_an_idle_producer_is_forgotten_though_the_clock_was_set_back(
    node: Node, clock: FixedClock, expiry: ProducerExpiry
) -> None:
    write(node, 0, 1)
    await expiry.run()
    clock.time_ms -= 30 * EXPIRATION_MS
    await expiry.run()
    clock.time_ms += EXPIRATION_MS
    await expiry.run()
    assert known(node) == [0]
