"""The virtual event loop: time without waiting, threads as timers, and processes that end at once."""

from __future__ import annotations

import asyncio
import time
from random import Random

import pytest

from tests.simulation.loop import SimulatedLoop, Stuck
from tests.simulation.process import DriftingClock, Process


@pytest.fixture
def loop() -> SimulatedLoop:
    return SimulatedLoop(Random(1))


def test_a_day_passes_in_no_time(loop: SimulatedLoop) -> None:
    began_s = time.monotonic()
    loop.run_until_complete(asyncio.sleep(86_400))
    assert loop.time() == pytest.approx(86_400)
    assert time.monotonic() - began_s < 3_600


def test_timers_come_in_the_order_of_their_times(loop: SimulatedLoop) -> None:
    seen: list[float] = []

    async def note(delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        seen.append(delay_s)

    async def all_at_once() -> None:
        await asyncio.gather(*(note(delay_s) for delay_s in (3.0, 1.0, 2.0, 1.5)))

    loop.run_until_complete(all_at_once())
    assert seen == [1.0, 1.5, 2.0, 3.0]


def test_waiting_for_nothing_is_reported(loop: SimulatedLoop) -> None:
    async def wait() -> None:
        await loop.create_future()

    with pytest.raises(Stuck):
        loop.run_until_complete(wait())


def test_threads_are_timers_and_hand_over_what_they_return_or_raise(loop: SimulatedLoop) -> None:
    def fail() -> None:
        raise OSError("no")

    async def work() -> tuple[int, float]:
        number = await asyncio.to_thread(lambda: 7)
        with pytest.raises(OSError, match="no"):
            await asyncio.to_thread(fail)
        return number, loop.time()

    number, ended_s = loop.run_until_complete(work())
    assert number == 7
    assert ended_s > 0


def test_nothing_of_a_dead_process_runs(loop: SimulatedLoop) -> None:
    seen: list[str] = []

    async def tick() -> None:
        try:
            while True:
                seen.append("tick")
                await asyncio.sleep(1.0)
        finally:
            seen.append("its end")

    async def child() -> None:
        await asyncio.create_task(tick())

    async def kill_it() -> None:
        process = Process("victim")
        process.begin(child())
        await asyncio.sleep(2.5)
        process.die()
        loop.call_soon(seen.append, "mine")
        await asyncio.sleep(10.0)
        assert seen == ["tick", "tick", "tick", "mine"]
        process.bury()

    loop.run_until_complete(kill_it())
    assert not loop.unhandled


def test_what_nobody_takes_care_of_is_noted(loop: SimulatedLoop) -> None:
    def fail() -> None:
        raise ValueError("unexpected")

    async def work() -> None:
        loop.call_soon(fail)
        await asyncio.sleep(1.0)

    loop.run_until_complete(work())
    assert "unexpected" in loop.unhandled[0]


def test_a_drifting_clock_runs_at_its_rate_and_is_never_set() -> None:
    clock = DriftingClock()
    clock.run_at(1.5, 10.0)
    assert clock.read(10.0) == 10.0
    assert clock.read(14.0) == 16.0
    clock.run_at(0.5, 14.0)
    assert clock.read(14.0) == 16.0
    assert clock.read(16.0) == 17.0
    assert clock.loop_s(17.0) == 16.0


@pytest.mark.parametrize("rate", [0.95, 1.0, 1.05])
def test_timers_of_a_process_follow_the_clock_of_its_machine(loop: SimulatedLoop, rate: float) -> None:
    clock = DriftingClock()
    clock.run_at(rate, 0.0)

    async def wait() -> float:
        began_s = loop.time()
        await asyncio.sleep(10.0)
        async with asyncio.timeout(10.0) as limit:
            assert limit.when() == pytest.approx(loop.time() + 10.0)
        return loop.time() - began_s

    async def work() -> None:
        assert await Process("machine", clock).begin(wait()) == pytest.approx(10.0, abs=1e-5)
        assert loop.now_s == pytest.approx(10.0 / rate, abs=1e-5)

    loop.run_until_complete(work())


def test_a_process_that_waits_for_its_clock_comes_to_an_end(loop: SimulatedLoop) -> None:
    """Rounding must not let a timer of a drifting clock fire for ever without that time passes."""
    clock = DriftingClock()
    clock.run_at(0.957, 0.0)

    async def wait() -> None:
        for _ in range(2_000):
            due_s = loop.time() + 0.1
            while loop.time() < due_s:
                await asyncio.sleep(due_s - loop.time())

    async def work() -> None:
        await Process("machine", clock).begin(wait())

    loop.run_until_complete(work())
