"""The CPU time that this process needs for one put of 8 MiB, with a signed payload and without: `python -m tests.performance.put_cost`."""

from __future__ import annotations

import asyncio
import os
import time

import obstore
from obstore.store import S3Store

from tests.support.object_stores import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, Versitygw

PUTS = 30
SIZE_BYTES = 8 << 20


async def measure(endpoint: str, *, is_signed: bool) -> float:
    """Return the milliseconds of CPU for one put."""
    store = S3Store(
        BUCKET,
        endpoint=endpoint,
        region=REGION,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        config={"unsigned_payload": not is_signed},
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    content = os.urandom(SIZE_BYTES)
    begun_s = time.process_time()
    for number in range(PUTS):
        key = f"signed-{is_signed}-{number}"
        await obstore.put_async(store, key, content, mode="create", use_multipart=False)
    return (time.process_time() - begun_s) / PUTS * 1000


def main() -> None:
    with Versitygw() as store:
        for is_signed in (True, False):
            cost_ms = asyncio.run(measure(store.endpoint, is_signed=is_signed))
            print(f"payload {'signed' if is_signed else 'unsigned'}: {cost_ms:.1f} ms of CPU")


if __name__ == "__main__":
    main()
