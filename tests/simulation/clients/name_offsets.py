"""Asks the gateway for the last sequence ids of a producer name: OffsetFetch of the group that stands for the
name.
"""

from __future__ import annotations

import asyncio
from random import Random

from tests.simulation.clients.connection import Disconnected, Link
from tests.simulation.clients.group_offsets import GroupOffsets
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.events_of_names import NameTold
from tests.simulation.history import TopicPartition

NAME_GROUP_PREFIX = "seqgate-name:"
RETRY_S = 0.2


class NameOffsets(GroupOffsets):
    def __init__(self, surroundings: Surroundings, link: Link, random: Random, name: str) -> None:
        super().__init__(surroundings, link, random, NAME_GROUP_PREFIX + name, by_epoch=False)
        self._name = name
        self._require_stable = random.random() < 0.5

    async def told(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask until all partitions are answered; return −1 for partitions where the gateway does not know the
        name.
        """
        while True:
            try:
                found = await self.fetch(None, places)
            except Disconnected:
                continue
            if found is not None:
                return found
            await asyncio.sleep(RETRY_S)

    def _note_fetched(self, offsets: dict[TopicPartition, int], asked_at_ms: int) -> None:
        told = NameTold(self._surroundings.at_ms(), self._name, tuple(offsets.items()), asked_at_ms)
        self._surroundings.history.add(told)
