"""Connections over TLS leave nothing behind, also where no garbage collector runs."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.server.connection import Connection
from tests.support.certificates import Authority
from tests.support.wire import decode, encode

CLIENTS = 5
MOST_TURNS = 200


@pytest.fixture
def living() -> Iterator[Callable[[], int]]:
    """Return a count of the connections that a test has left, while no garbage collector runs.

    Earlier tests of the process may have killed gateways whose connections something keeps.
    """
    gc.collect()
    gc.disable()
    before = connections()
    yield lambda: sum(all(found is not other for other in before) for found in connections())
    gc.enable()


def connections() -> list[Connection]:
    return [found for found in gc.get_objects() if isinstance(found, Connection)]


def test_a_closed_connection_is_freed_at_once(tmp_path: Path, living: Callable[[], int]) -> None:
    authority = Authority()
    store = authority.listener().write_pem(tmp_path / "own.pem")
    settings = [
        f"log.dirs={tmp_path / 'data'}",
        "listeners=SSL://127.0.0.1:0",
        f"ssl.keystore.location={store}",
    ]
    context = ssl.create_default_context(cadata=authority.pem)

    async def run() -> None:
        gateway = Gateway(load_config(overrides=settings))
        await gateway.start()
        port = gateway.services.node.bound["SSL"].port
        frame = encode("api_versions", 0, {})
        for _ in range(CLIENTS):
            reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
            writer.write(len(frame).to_bytes(4, "big") + frame)
            await reader.readexactly(4)
            writer.close()
            await writer.wait_closed()
        for _ in range(MOST_TURNS):
            if not living():
                break
            await asyncio.sleep(0)
        assert not living()
        await gateway.stop()

    uvloop.run(run())


def test_a_throttled_connection_is_read_again_later_and_freed_at_once(
    tmp_path: Path, living: Callable[[], int]
) -> None:
    authority = Authority()
    store = authority.listener().write_pem(tmp_path / "own.pem")
    settings = [
        f"log.dirs={tmp_path / 'data'}",
        "listeners=SSL://127.0.0.1:0",
        f"ssl.keystore.location={store}",
    ]
    context = ssl.create_default_context(cadata=authority.pem)
    frame = encode("metadata", 9, {"topics": []})
    sent = len(frame).to_bytes(4, "big") + frame

    async def answer(reader: asyncio.StreamReader) -> int:
        """Return the throttle time of the next answer."""
        size = int.from_bytes(await reader.readexactly(4), "big")
        throttled: int = decode("metadata", 9, await reader.readexactly(size)).fields["throttle_time"]
        return throttled

    async def run() -> None:
        gateway = Gateway(load_config(overrides=settings))
        await gateway.start()
        quotas = gateway.services.node.quotas
        quotas.request.limits.change(("ANONYMOUS", None), 1e-9)
        quotas.is_on = True
        port = gateway.services.node.bound["SSL"].port
        reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
        begun_s = asyncio.get_running_loop().time()
        writer.write(2 * sent)
        assert await answer(reader) == 1000
        assert await answer(reader) == 1000
        assert asyncio.get_running_loop().time() - begun_s > 0.9
        writer.close()
        await writer.wait_closed()
        await gateway.stop()
        for _ in range(MOST_TURNS):
            if not living():
                break
            await asyncio.sleep(0)
        assert not living()

    uvloop.run(run())
