"""Sends lines with aiokafka: `send.py default` or `send.py idempotent`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable

from aiokafka import AIOKafkaProducer


async def acknowledged(value: str, sent: Awaitable[object]) -> None:
    await sent
    print(value, flush=True)


async def send_lines() -> list[BaseException]:
    producer = AIOKafkaProducer(
        bootstrap_servers=os.environ["SEQGATE_BOOTSTRAP"],
        request_timeout_ms=int(os.environ["SEQGATE_REQUEST_TIMEOUT_MS"]),
        enable_idempotence=sys.argv[1] == "idempotent",
    )
    await producer.start()
    loop = asyncio.get_running_loop()
    try:
        tasks = []
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            value = line.rstrip("\n")
            sent = await producer.send(os.environ["SEQGATE_TOPIC"], value.encode())
            tasks.append(asyncio.create_task(acknowledged(value, sent)))
        results = await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        await producer.stop()
    return [each for each in results if isinstance(each, BaseException)]


failures = asyncio.run(send_lines())
sys.exit("\n".join(map(repr, failures[:3])) or None)
