"""An event at every call to the store while producers write: what was acknowledged is in the objects, and
flushing goes on afterwards.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqgate.log import StorageFailed
from tests.gateway.cluster.uploads.test_every_step import EVENTS, MOST_STEPS, PARTS, STRIDE, failing
from tests.gateway.cluster.uploads.walk import TROUBLE_S, Walk
from tests.tiers import in_tiers

BURSTS = 5
PER_BURST = 9


async def _produce(walk: Walk) -> None:
    """Append to all partitions that are online, roll, delete records and wait, as clients do."""
    for burst in range(BURSTS):
        for key, partition in list(walk.served.items()):
            try:
                walk.append(key, PER_BURST)
            except StorageFailed:
                assert partition.log.offline
        if burst % 2:
            walk.delete_records(12 + burst)
        await asyncio.sleep(0.01)
    await walk.flusher.idle()


def _unreadable_pieces(walk: Walk) -> None:
    """Let every second read of a file fail."""
    read, count = walk.storage.read_pinned, iter(range(1 << 30))

    def fail(*arguments: Any) -> bytes:
        if next(count) % 2:
            raise OSError(errno.EIO, "Input/output error")
        return read(*arguments)

    walk.storage.read_pinned = fail  # type: ignore[method-assign]
    walk.loop.call_later(TROUBLE_S, delattr, walk.storage, "read_pinned")


OTHERS: dict[str, Callable[[Walk], None]] = {
    "unreadable pieces": _unreadable_pieces,
    "full": failing("write_file", errno.ENOSPC),
}
PUT_EVENTS = {name: event for name, event in {**EVENTS, **OTHERS}.items() if name != "cancelled"}


@pytest.mark.parametrize("part", in_tiers(range(PARTS), all=[0], nightly=range(1, PARTS)))
@pytest.mark.parametrize("name", PUT_EVENTS)
def test_what_was_acknowledged_is_in_the_bucket(tmp_path: Path, name: str, part: int) -> None:
    for at in range(1 + STRIDE * part, MOST_STEPS, STRIDE * PARTS):
        walk = Walk(tmp_path / str(at))
        walk.prepare()
        has_happened = walk.walk(at, PUT_EVENTS[name], lambda walk=walk: _produce(walk))  # type: ignore[misc]
        walk.check(walk.bucket, "amid")
        walk.finish()
        assert walk.flusher.unwritten.size_bytes == 0
        walk.end()
        walk.check(walk.bucket, "end")
        if not has_happened:
            return
    raise AssertionError(f"there are more than {MOST_STEPS} steps")


@pytest.mark.tier("all")
def test_nothing_is_acknowledged_after_a_takeover(tmp_path: Path) -> None:
    for at in range(1, MOST_STEPS):
        walk = Walk(tmp_path / str(at))
        walk.prepare()
        has_happened = walk.walk(at, Walk.take_over, lambda walk=walk: _produce(walk))  # type: ignore[misc]
        walk.end()
        if not has_happened:
            return
        assert walk.sealed is not None
        walk.check(walk.sealed, "taken over")
        walk.check(walk.bucket, "taken over again")
    raise AssertionError(f"there are more than {MOST_STEPS} steps")
