"""A run in which one client changes settings of the gateway while others work, and the gateway crashes.

A change is repeated until it is answered. A request that begins and ends between two changes must be decided
by the settings that the gateway has acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from tests.simulation.chance import seeded
from tests.simulation.clients.connection import Disconnected, Link
from tests.simulation.clients.error_codes import FAULTS
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.director import Director
from tests.simulation.history import History
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.node import Node
from tests.simulation.plan import HOST, PORT, Plan

PATIENCE_S = 60.0
BEFALLS = {"kill": 2.0, "power cut": 2.0, "cut": 1.0}
RETRY_S = 0.05


class Changes:
    """The number of the present state: it grows when a change begins, and again when the change is
    acknowledged.
    """

    def __init__(self) -> None:
        self._count = 0

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Count the change that the `with` block carries out, up to its acknowledgement."""
        self._count += 1
        yield
        self._count += 1

    def known(self) -> int | None:
        """Return the number of the present state; None while a change is under way."""
        return None if self._count % 2 else self._count


@dataclass
class Trial:
    """One run of the gateway, and what it found. `name` and `seed` decide everything that happens."""

    name: str
    seed: int
    duration_s: float
    breaches: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def chance(self, part: str) -> Random:
        """Return the random numbers of one part of the run."""
        return Random(f"{self.name} {part} {self.seed}")

    def execute(
        self,
        settings: Sequence[str],
        clients: Callable[[Node, Surroundings], Awaitable[Sequence[Coroutine[Any, Any, None]]]],
    ) -> None:
        """Run the gateway, with crashes, until its clients have ended. `clients` returns what each client
        does.
        """
        loop = SimulatedLoop(self.chance("loop"))
        network = Network(loop, self.chance("network"))
        plan = Plan(
            self.duration_s, ("seqgate.allow.insecure.listeners=true", *settings), befalls=dict(BEFALLS)
        )
        node = Node(loop, network, plan, History(), self.chance("machine"))
        director = Director(loop, network, node, plan, self.chance("director"))
        root = logging.getLogger()
        level, handlers = root.level, root.handlers
        root.handlers, root.level = [logging.NullHandler()], logging.CRITICAL
        try:
            with seeded(Random(f"{self.name} {self.seed}")):
                loop.run_until_complete(self._live(node, director, clients))
        finally:
            node.bury()
            root.handlers, root.level = handlers, level
        self.breaches += loop.unhandled
        self.counts.update(director.faults)

    async def _live(
        self,
        node: Node,
        director: Director,
        clients: Callable[[Node, Surroundings], Awaitable[Sequence[Coroutine[Any, Any, None]]]],
    ) -> None:
        loop = asyncio.get_running_loop()
        end_at = loop.time() + self.duration_s
        assert await node.start()
        where = Surroundings(HOST, PORT, History(), node.clock.now_ms, end_at)
        working = asyncio.gather(*map(asyncio.create_task, await clients(node, where)))
        await director.run(end_at)
        await director.end()
        async with asyncio.timeout(PATIENCE_S):
            await working
        await node.stop()


def administrator(where: Surroundings, chance: Random) -> Link:
    """Return the link of a client that changes settings.

    The link waits for an answer until the connection ends. A client that gave up earlier would leave a
    request on its way, which could arrive after a later change and undo it.
    """
    link = Link(where, "administrator", chance)
    link.request_timeout_s = PATIENCE_S
    return link


async def until_answered(attempt: Callable[[], Awaitable[bool]]) -> None:
    """Repeat a change until the gateway has acknowledged it."""
    while True:
        with contextlib.suppress(Disconnected):
            if await attempt():
                return
        await asyncio.sleep(RETRY_S)


def is_done(error: ErrorCode) -> bool:
    """Return whether a change is acknowledged, and not to be repeated."""
    assert error is ErrorCode.none or error in FAULTS, error
    return error is ErrorCode.none
