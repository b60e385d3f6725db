"""What a gateway with a bucket can't save: the CPU that the bare client needs to put the same bytes, without
any gateway.

The puts go through the same proxy to the same store as the gateway's, with the gateway's settings of the
client, a few at a time.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import time
from typing import Final

from seqgate.gateway.cluster.objects.obstore_objects import ObstoreObjects
from tests.support.object_stores import ACCESS_KEY, BUCKET, REGION, SECRET_KEY

BATCHES: Final = 8
BATCH_BYTES: Final = 900_000
"""An object holds a batch of each producer, as buffers of their own."""
IN_FLIGHT: Final = 4
PUTS: Final = 100
PAGE_BYTES: Final = 4096


def bare_put_us(port: int, prefix: str) -> float:
    """Return the microseconds of this process's CPU for putting 1,000 bytes."""
    return asyncio.run(_measure(port, prefix))


async def _measure(port: int, prefix: str) -> float:
    settings = {
        "endpoint": f"http://127.0.0.1:{port}",
        "region": REGION,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
    }
    objects = ObstoreObjects(BUCKET, prefix, settings)
    content = [os.urandom(BATCH_BYTES) for _ in range(BATCHES)]
    await asyncio.gather(*(objects.create(f"warm-{number}", content) for number in range(IN_FLIGHT)))
    left = iter(range(PUTS))

    async def put() -> None:
        for number in left:
            await objects.create(f"bare-{number}", content)

    begun_s = time.process_time()
    await asyncio.gather(*(put() for _ in range(IN_FLIGHT)))
    return (time.process_time() - begun_s) * 1e6 / (PUTS * BATCHES * BATCH_BYTES / 1000)


def touch(gib: float) -> None:
    """Write to so much memory, and give it back.

    The host of a virtual machine may take back memory that its guest does not use. The first write to such a
    page waits for the host, and costs the gateway ten times as much as any later one.
    """
    size_bytes = int(gib * (1 << 30))
    if not size_bytes:
        return
    with mmap.mmap(-1, size_bytes) as memory:
        for position in range(0, size_bytes, PAGE_BYTES):
            memory[position] = 1
