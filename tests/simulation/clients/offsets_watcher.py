"""Reads the committed offsets of a group all the time; the members themselves read them only when they join."""

from __future__ import annotations

from random import Random

from tests.simulation.clients.connection import Disconnected
from tests.simulation.clients.group_offsets import GroupOffsets
from tests.simulation.clients.links import link_of
from tests.simulation.clients.surroundings import Surroundings


class OffsetsWatcher:
    def __init__(self, surroundings: Surroundings, name: str, random: Random, group: str) -> None:
        self._surroundings = surroundings
        self._random = random
        self._link = link_of(surroundings, name, random)
        self._offsets = GroupOffsets(surroundings, self._link, random, group, by_epoch=False)

    async def run(self) -> None:
        while not self._surroundings.ending:
            try:
                await self._offsets.fetch(None, self._surroundings.partitions())
            except Disconnected:
                continue
            await self._surroundings.pause(self._random, 0.2)
        self._link.close()
