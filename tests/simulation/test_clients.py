"""The simulated clients against a gateway in a process of its own, on a real event loop: what they record is true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.checkers import breaches
from tests.simulation.clients.workload import Workload, run
from tests.simulation.history import Acknowledged, GivenUp, History, Sent
from tests.support.gateway_process import GatewayProcess

DURATION_S = 1.0
PATIENCE_S = 30.0


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def live(seed: int, data_dir: Path, *, killed: bool) -> History:
    history = History()
    with GatewayProcess(data_dir) as gateway:
        address = "127.0.0.1", gateway.port
        workload = Workload.from_seed(seed)
        clients = asyncio.create_task(run(workload, address, history, DURATION_S, wall_ms))
        if killed:
            await until(lambda: any(isinstance(event, Acknowledged) for event in history.events))
            gateway.restart(kill=True)
        await clients
    return history


async def until(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_met():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("seed", "killed"), [(3, False), (5, True)])
async def test_what_clients_record_of_a_gateway_holds_every_promise(
    tmp_path: Path, seed: int, killed: bool
) -> None:
    history = await live(seed, tmp_path / "data", killed=killed)

    assert breaches(history) == [], seed
    acknowledged = {event.name for event in history.events if isinstance(event, Acknowledged)}
    sent = {event.name for event in history.events if isinstance(event, Sent)}
    given_up = {event.name for event in history.events if isinstance(event, GivenUp)}
    assert acknowledged
    assert sent == given_up | acknowledged, seed
