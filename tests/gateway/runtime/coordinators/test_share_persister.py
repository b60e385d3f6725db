"""Delivery states whose share coordinator is another gateway."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seqgate.gateway.coordinator.share.records import SharePartitionKey, ShareState, Write
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.coordinators.share_persister import RemoteShares

KEY = SharePartitionKey("readers", uuid.UUID(int=1), 0)


class HeldWrites:
    """A persister whose write tries again until it is let go, as with a coordinator that is silent."""

    def __init__(self) -> None:
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()
        self.is_current: Callable[[], bool] | None = None
        self.written: list[Write] = []

    async def read(self, _key: SharePartitionKey, _leader_epoch: int) -> ShareState:
        return ShareState(0, (), 0)

    async def write(self, _key: SharePartitionKey, wanted: Write, is_current: Callable[[], bool]) -> None:
        self.is_current = is_current
        self.begun.set()
        await self.let_go.wait()
        self.written.append(wanted)


def test_a_dropped_state_writes_nothing_any_more() -> None:
    """Else its change would land on what is stored since: accepted records would be available again."""

    async def scenario() -> None:
        persister = HeldWrites()
        shares = RemoteShares(cast("Any", persister), lambda _: None, lambda _: True, lambda _: None)
        partition = cast("Any", SimpleNamespace(closed=False, leader_epoch=1))
        await shares.open(KEY, partition, lambda: 0)
        change = asyncio.create_task(shares.change(KEY, lambda state: state.move_to(5)))
        await persister.begun.wait()
        assert persister.is_current is not None
        assert persister.is_current()
        shares.drop(KEY)
        assert not persister.is_current()
        with pytest.raises(Unavailable):
            await change
        persister.let_go.set()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
        assert persister.written == []

    asyncio.run(scenario())
