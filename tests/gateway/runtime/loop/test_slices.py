"""Long jobs take turns: each turn of the event loop runs one slice, and the job that began first comes first."""

from __future__ import annotations

import asyncio

import pytest

from seqgate.gateway.runtime.loop import slices
from seqgate.gateway.runtime.loop.slices import in_slices


async def work(number: int, done: list[int], things: int = 5) -> None:
    async for _ in in_slices(range(things)):
        await asyncio.sleep(0) if number < 0 else None
    done.append(number)


async def test_work_that_began_first_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", -1.0)
    done: list[int] = []
    await asyncio.gather(*(work(number, done) for number in range(20)))
    assert sorted(done) == list(range(20))
    assert done[-10:] == list(range(10, 20))


async def test_however_many_ask_a_turn_has_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", -1.0)
    steps = 0

    async def count_steps() -> None:
        nonlocal steps
        async for _ in in_slices(range(10)):
            steps += 1

    working = [asyncio.ensure_future(count_steps()) for _ in range(50)]
    turns = 0
    while not all(one.done() for one in working):
        before = steps
        await asyncio.sleep(0)
        turns += 1
        assert steps - before <= 2
    assert steps == 500


async def test_cancelled_work_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", -1.0)
    done: list[int] = []
    working = [asyncio.ensure_future(work(number, done)) for number in range(12)]
    await asyncio.sleep(0)
    for one in working[::2]:
        one.cancel()
    for _ in range(8):
        await asyncio.sleep(0)
    working[1].cancel()
    await asyncio.gather(*working, return_exceptions=True)
    assert set(done) >= {3, 5, 7, 9, 11}
