from __future__ import annotations

import asyncio

from seqgate.gateway.config import Config
from seqgate.gateway.runtime.loop.clock import Interval

# any alterable setting in ms serves the purpose
NAME = "seqgate.admin.timeout.ms"
HOUR_MS = "3600000"


async def waiting(config: Config) -> asyncio.Task[None]:
    task = asyncio.create_task(Interval(config, NAME).passed())
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_a_shorter_interval_ends_the_present_wait() -> None:
    config = Config({NAME: int(HOUR_MS)})
    task = await waiting(config)
    assert not task.done()
    config.set_dynamic({NAME: "1"}, all_brokers=True)
    await asyncio.wait_for(task, 60)


async def test_a_longer_one_and_other_changes_do_not_end_it() -> None:
    config = Config({NAME: int(HOUR_MS)})
    task = await waiting(config)
    config.set_dynamic({NAME: HOUR_MS + "0", "message.max.bytes": "5"}, all_brokers=True)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()


async def test_it_passes_by_itself() -> None:
    await asyncio.wait_for(Interval(Config({NAME: 1}), NAME).passed(), 60)
