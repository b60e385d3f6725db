"""The virtual network delivers the bytes of a connection in order or not at all, under every fault."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.process import Process

SENT = bytes(range(256)) * 1200
"""More bytes than the network holds in flight at a time."""


class Scene:
    def __init__(self, seed: int) -> None:
        chance = Random(seed)
        self.loop = SimulatedLoop(chance)
        self.network = Network(self.loop, chance)
        self.server = Process("server")
        self.client = Process("client")
        self.received: list[bytearray] = []

    async def serve(self) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.received.append(bytearray())
            number = len(self.received) - 1
            with contextlib.suppress(OSError):
                while data := await reader.read(1000):
                    self.received[number] += data
                    writer.write(data)
                    await writer.drain()
            writer.close()

        await asyncio.start_server(answer, "server", 1)

    async def echoed(self, size: int) -> bytes:
        """Send `size` bytes; return the bytes that come back until the connection ends."""
        reader, writer = await asyncio.open_connection("server", 1)
        writer.write(SENT[:size])
        got = b""
        with contextlib.suppress(OSError):
            while len(got) < size and (data := await reader.read(5000)):
                got += data
        writer.close()
        return got

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        async def scene() -> None:
            await self.server.begin(self.serve())
            await work

        self.loop.run_until_complete(scene())
        assert not self.loop.unhandled


@pytest.mark.parametrize("seed", range(10))
def test_bytes_arrive_whole_and_in_order(seed: int) -> None:
    scene = Scene(seed)
    scene.network.one_byte_portions = 0.5 if seed % 2 else 0.0
    scene.network.slow = 0.1
    size = len(SENT) if seed % 2 == 0 else 5_000

    async def work() -> None:
        assert await scene.client.begin(scene.echoed(size)) == SENT[:size]

    scene.run(work())


@pytest.mark.parametrize("seed", range(10))
def test_held_up_bytes_keep_their_order(seed: int) -> None:
    scene = Scene(seed)
    scene.network.slow = 0.3

    async def work() -> None:
        echoed = scene.client.begin(scene.echoed(len(SENT)))
        while not scene.received:
            await asyncio.sleep(0.001)
        while not echoed.done():
            scene.network.part("server", "client")
            await asyncio.sleep(0.05)
            scene.network.heal()
            await asyncio.sleep(0.01)
        assert echoed.result() == SENT

    scene.run(work())


@pytest.mark.parametrize("seed", range(20))
def test_what_a_cut_leaves_is_a_beginning(seed: int) -> None:
    scene = Scene(seed)

    async def work() -> None:
        echoed = scene.client.begin(scene.echoed(len(SENT)))
        await asyncio.sleep(scene.loop.chance.uniform(0.0, 0.02))
        scene.network.cut_some(2.0)
        got = await echoed
        received = b"".join(scene.received)
        assert SENT.startswith(got)
        assert SENT.startswith(received)
        assert len(got) <= len(received)

    scene.run(work())


@pytest.mark.parametrize("polite", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_a_client_hears_of_the_death_of_its_server(seed: int, *, polite: bool) -> None:
    scene = Scene(seed)

    async def work() -> None:
        echoed = scene.client.begin(scene.echoed(len(SENT)))
        while not scene.received:
            await asyncio.sleep(0.0005)
        scene.server.die()
        scene.network.process_died(scene.server, polite=polite)
        assert SENT.startswith(await echoed)
        with pytest.raises(ConnectionRefusedError):
            await scene.client.begin(scene.echoed(1))

    scene.run(work())


def test_one_that_does_not_read_holds_its_sender_up() -> None:
    scene = Scene(0)

    async def work() -> None:
        reader, writer = await asyncio.open_connection("server", 1)
        for _ in range(100):
            writer.write(SENT)
        await asyncio.sleep(60.0)
        assert len(scene.received[0]) < 2_000_000
        for _ in range(100):
            assert await reader.readexactly(len(SENT)) == SENT
        writer.close()

    scene.run(work())


@pytest.mark.parametrize("one_way", [("server", "client"), ("client", "server")])
def test_bytes_of_one_direction_wait(one_way: tuple[str, str]) -> None:
    scene = Scene(3)

    async def work() -> None:
        echoed = scene.client.begin(scene.echoed(2_000))
        while not scene.received:
            await asyncio.sleep(0.0001)
        scene.network.part(*one_way, one_way=True)
        await asyncio.sleep(60.0)
        assert not echoed.done()
        requests_arrive = one_way == ("server", "client")
        assert (len(scene.received[0]) == 2_000) == requests_arrive
        scene.network.rejoin(*one_way)
        assert await echoed == SENT[:2_000]

    scene.run(work())


def test_a_slow_pair_is_slow_until_it_is_not() -> None:
    scene = Scene(0)

    async def took_s() -> float:
        began_s = scene.loop.now_s
        assert await scene.client.begin(scene.echoed(100)) == SENT[:100]
        return scene.loop.now_s - began_s

    async def work() -> None:
        scene.network.pairs.slow_down("client", "server", 1_000.0)
        assert await took_s() > 20.0
        scene.network.pairs.slow_down("client", "server", 0.0)
        assert await took_s() < 15.0

    scene.run(work())


def test_a_server_that_stands_still_accepts_and_answers_when_it_goes_on() -> None:
    scene = Scene(0)

    async def work() -> None:
        scene.server.is_paused = True
        echoed = scene.client.begin(scene.echoed(100))
        await asyncio.sleep(60.0)
        assert not echoed.done()
        assert not scene.received
        scene.server.resume()
        assert await echoed == SENT[:100]

    scene.run(work())
