"""The simulated clients record the truth: they run against a real gateway process, on a real event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from tests.simulation.checkers import breaches
from tests.simulation.clients.administrator import DEDUPLICATE
from tests.simulation.clients.population import Population
from tests.simulation.clients.topics import TopicPlan
from tests.simulation.clients.workload import Workload, run
from tests.simulation.events_of_names import LineAcknowledged
from tests.simulation.history import Acknowledged, GivenUp, History, Sent
from tests.support.gateway_process import GatewayProcess

SEED = 1
DURATION_S = 3.0
SEEN = (Acknowledged,)
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
PATIENCE_S = 120.0


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def live(workload: Workload, data_dir: Path) -> History:
    """Run the clients until acknowledged records exist, and kill the gateway."""
    history = History()
    with GatewayProcess(data_dir, settings=SETTINGS) as gateway:
        address = "127.0.0.1", gateway.port
        clients = asyncio.create_task(run(workload, address, history, DURATION_S, wall_ms))
        await until(lambda: all(any(isinstance(event, kind) for event in history.events) for kind in SEEN))
        gateway.restart(kill=True)
        await clients
    return history


async def until(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_met():
            await asyncio.sleep(0.01)


async def test_what_clients_record_of_a_gateway_that_is_killed_holds_every_promise(tmp_path: Path) -> None:
    everybody = Population(
        idempotent_producers=2,
        transactional_ids=1,
        consumers=2,
        groups=1,
        hasty_producers=1,
        named_applications=1,
    )
    workload = Workload(
        SEED, (TopicPlan("first", 2), TopicPlan("second", 1, {DEDUPLICATE: "true"})), everybody
    )

    history = await live(workload, tmp_path / "data")

    assert breaches(history) == [], SEED
    acknowledged = {event.name for event in history.events if isinstance(event, Acknowledged)}
    sent = {event.name for event in history.events if isinstance(event, Sent)}
    given_up = {event.name for event in history.events if isinstance(event, GivenUp)}
    assert sent == given_up | acknowledged, SEED
    assert any(isinstance(event, LineAcknowledged) for event in history.events), SEED
