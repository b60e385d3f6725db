"""Carries a random sequence out at both endpoints, compares, and finds the shortest sequence that still
differs.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

from tests.compat.differential.compare import Difference, differences
from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.random.accepted import is_accepted
from tests.compat.differential.random.admin import Admin
from tests.compat.differential.random.groups import Groups
from tests.compat.differential.random.records import Fetch, Produce
from tests.compat.differential.random.sequence import Step, World, carry_out
from tests.compat.differential.random.share import Share
from tests.compat.differential.random.shrinking import shrunk
from tests.compat.differential.random.streams import Streams
from tests.compat.differential.random.transactions import Transactions
from tests.compat.differential.scenarios.consumer_groups import Member

WORLDS: dict[str, type[World]] = {
    world.family: world for world in (Groups, Transactions, Produce, Fetch, Share, Streams, Admin)
}
ATTEMPTS = 150
"""The most sequences of steps that are run to shrink a failing one."""


@dataclass(frozen=True)
class Found:
    """A sequence for which the endpoints differ, as short as it got, and how they differ."""

    family: str
    seed: int
    steps: Sequence[Step]
    difference: Difference

    def __str__(self) -> str:
        steps = "".join(f"    {step}\n" for step in self.steps)
        return f"{self.family} with seed {self.seed} differs:\n{steps}  at {self.difference}"


class Pair:
    """Apache Kafka and a gateway that get the same sequences. Topics and groups have names that only this
    pair uses.
    """

    def __init__(self, kafka: str, gateway: str) -> None:
        self._endpoints = kafka, gateway
        self._token = uuid.uuid4().hex[:8]
        self._count = 0
        self._topics = tuple(_topics(endpoint, self._token) for endpoint in self._endpoints)

    def differences(self, world: type[World], steps: Sequence[Step]) -> tuple[list[Difference], int]:
        """Return the differences that are not accepted, and the number of requests."""
        self._count += 1
        name = f"{self._token}-{self._count}"
        with ThreadPoolExecutor(2) as beside:
            kafka, gateway = (
                beside.submit(carry_out, world, steps, endpoint, name, topics)
                for endpoint, topics in zip(self._endpoints, self._topics, strict=True)
            )
            transcripts = kafka.result(), gateway.result()
        found = differences(*transcripts)
        left = [one for one in found if not is_accepted(world.family, one)]
        return left, len(transcripts[1].exchanges)

    def run(self, family: str, seed: int) -> tuple[Found | None, int]:
        """Run the sequence of a seed; return what was found, and the number of requests."""
        world = WORLDS[family]
        steps = world.draw(Random(f"{family} {seed}"))
        left, requests = self.differences(world, steps)
        # a difference that does not occur again depends on timing, which may differ between the endpoints
        if not left or not self.differences(world, steps)[0]:
            return None, requests
        shortest = shrunk(steps, lambda fewer: bool(self.differences(world, fewer)[0]), ATTEMPTS)
        again, _ = self.differences(world, shortest)
        return Found(family, seed, shortest, (again or left)[0]), requests


def _topics(endpoint: str, token: str) -> list[Topic]:
    """Create the two topics that all sequences share, and wait until groups are assigned them."""
    peer = Peer(endpoint, f"{token}-")
    try:
        topics = [peer.topic("shared-0", partitions=2), peer.topic("shared-1", partitions=3)]
        scout = Member(peer, peer.group("scout"), [topic.name for topic in topics], "scout")
        scout.await_partitions(5, **scout.full())
        scout.leave()
    finally:
        peer.close()
    return topics
