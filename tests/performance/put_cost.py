"""The CPU time that this process needs for one put of 8 MiB, by what protects the content on its way: `python
-m tests.performance.put_cost`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple, cast

import obstore
from obstore.store import S3Store

from tests.support.certificates import Authority
from tests.support.object_stores import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, Versitygw

if TYPE_CHECKING:
    from obstore.store import S3Config

ROUNDS = 5
PUTS = 10
SIZE_BYTES = 8 << 20


class Way(NamedTuple):
    """A way to send a content."""

    name: str
    settings: dict[str, object]
    is_secure: bool = False


WAYS = (
    Way("nothing", {"unsigned_payload": True}),
    Way("CRC-64/NVME", {"unsigned_payload": True, "checksum_algorithm": "crc64nvme"}),
    Way("TLS", {"unsigned_payload": True}, is_secure=True),
    Way("signed SHA-256", {"unsigned_payload": False}),
)


async def measure(endpoint: str, way: Way, number: int) -> float:
    """Return the milliseconds of CPU for one put."""
    store = S3Store(
        BUCKET,
        endpoint=endpoint,
        region=REGION,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        config=cast("S3Config", way.settings),
        client_options={"allow_http": True, "allow_invalid_certificates": True},
        retry_config={"max_retries": 0},
    )
    content = os.urandom(SIZE_BYTES)
    keys = [f"{way.name}-{number}-{put}" for put in range(PUTS + 1)]
    await obstore.put_async(store, keys.pop(), content, mode="create", use_multipart=False)
    begun_s = time.process_time()
    for key in keys:
        await obstore.put_async(store, key, content, mode="create", use_multipart=False)
    return (time.process_time() - begun_s) / PUTS * 1000


def main() -> None:
    with Versitygw() as plain, Versitygw(Authority().listener()) as secure:
        costs: dict[str, list[float]] = {way.name: [] for way in WAYS}
        for number in range(ROUNDS):
            for way in WAYS:
                endpoint = (secure if way.is_secure else plain).endpoint
                costs[way.name].append(asyncio.run(measure(endpoint, way, number)))
    for name, found in costs.items():
        cost_ms = statistics.median(found)
        print(f"{name}: {cost_ms:.1f} ms of CPU, {cost_ms * 1e6 / SIZE_BYTES:.2f} ns for each byte")


if __name__ == "__main__":
    main()
