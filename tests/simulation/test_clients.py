"""The simulated clients against a gateway in a process of its own, on a real event loop: what they record is true."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.clients.workload import Workload, run
from tests.simulation.history import (
    Acknowledged,
    Event,
    Fetched,
    FinalRead,
    GivenUp,
    History,
    RecordName,
    Refused,
    Sent,
    Unexpected,
)
from tests.support.gateway_process import GatewayProcess

DURATION_S = 2.0


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def live(workload: Workload, data_dir: Path, *, killed: bool) -> list[Event]:
    history = History()

    async def restart() -> None:
        gateway.restart(kill=True)

    with GatewayProcess(data_dir) as gateway:
        address = "127.0.0.1", gateway.port
        on_settling = restart if killed else None
        await run(workload, address, history, DURATION_S, wall_ms, on_settling=on_settling)
    return history.events


@pytest.mark.parametrize(("seed", "killed"), [(3, False), (5, True)])
async def test_what_is_acknowledged_is_read_at_its_offset(tmp_path: Path, seed: int, killed: bool) -> None:
    events = await live(Workload.from_seed(seed), tmp_path / "data", killed=killed)

    assert [event for event in events if isinstance(event, Unexpected | Refused)] == []
    final = next(index for index, event in enumerate(events) if isinstance(event, FinalRead))
    found = Counter(
        (event.partition, RecordName.decode(value), offset)
        for event in events[final:]
        if isinstance(event, Fetched) and event.consumer == "final"
        for offset, value in event.records
    )
    acknowledged = [event for event in events if isinstance(event, Acknowledged)]
    assert acknowledged
    for event in acknowledged:
        assert found[event.partition, event.name, event.offset] == 1, (seed, event)
    names = Counter(name for _, name, _ in found.elements())
    assert max(names.values()) == 1, seed
    sent = {event.name for event in events if isinstance(event, Sent)}
    given_up = {event.name for event in events if isinstance(event, GivenUp)}
    assert set(names) <= sent
    assert sent == given_up | {event.name for event in acknowledged}
