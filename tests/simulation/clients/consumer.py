"""A consumer without a group. It follows all partitions, and reads some records again to check that they are
unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.simulation.clients.connection import Disconnected
from tests.simulation.clients.fetch_session import Wanted
from tests.simulation.clients.fetcher import EARLIEST, LATEST, MAX_TIMESTAMP, MAX_TIMESTAMP_SINCE, Fetcher
from tests.simulation.clients.links import link_of
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.history import TopicPartition

MAX_BYTES = (1, 100, 1_000, 10_000, 1_000_000)


@dataclass(frozen=True)
class Curiosity:
    """The chances, per round, of reading something other than the next records."""

    read_again: float = 0.1
    list_offsets: float = 0.05
    reconnect: float = 0.01
    pause_s: float = 0.1


class Consumer:
    def __init__(
        self,
        surroundings: Surroundings,
        name: str,
        random: Random,
        *,
        read_committed: bool,
        curiosity: Curiosity | None = None,
    ) -> None:
        self._surroundings = surroundings
        self._random = random
        self._link = link_of(surroundings, name, random)
        self._fetcher = Fetcher(
            surroundings, self._link, name, random, read_committed=read_committed, may_read_elsewhere=True
        )
        self._curiosity = curiosity or Curiosity()
        self._max_bytes = random.choice(MAX_BYTES[2:])
        self._from_end = random.random() < 0.2
        self._positions: dict[TopicPartition, int] = {}
        self._began: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        while not self._surroundings.ending:
            try:
                await self._round()
            except Disconnected:
                continue
            await self._surroundings.pause(self._random, self._curiosity.pause_s)
        self._link.close()

    async def _round(self) -> None:
        chance = self._random.random
        if chance() < self._curiosity.reconnect:
            self._link.close()
        await self._begin_partitions()
        if not self._positions:
            return
        if chance() < self._curiosity.list_offsets:
            await self._list_offsets()
        if chance() < self._curiosity.read_again:
            await self._read_again()
        else:
            await self._read_on()

    async def _begin_partitions(self) -> None:
        for place in self._surroundings.partitions():
            if place not in self._positions:
                first = await self._fetcher.list_offset(place, LATEST if self._from_end else EARLIEST)
                if first is not None:
                    self._positions[place] = self._began[place] = first

    async def _read_on(self) -> None:
        wanted = {place: Wanted(offset, self._max_bytes) for place, offset in self._positions.items()}
        for fetched in await self._fetcher.fetch(wanted, max_wait_ms=self._random.choice((0, 100, 500))):
            self._positions[fetched.partition] = fetched.next_offset
        for place in list(self._fetcher.out_of_range):
            await self._find_range(place)

    async def _find_range(self, place: TopicPartition) -> None:
        """Find the offsets that can be read. A position may be out of range only after retention or
        DeleteRecords.
        """
        first = await self._fetcher.list_offset(place, EARLIEST)
        if first is None:
            return
        position = self._positions[place]
        if first <= position or place not in self._surroundings.history.deleted_before:
            sentence = (
                f"{place} is out of range at {position}, which was read up to; the log starts at {first}"
            )
            self._surroundings.unexpected(self._fetcher.name, sentence)
        self._positions[place] = self._began[place] = first

    async def _read_again(self) -> None:
        wanted = {}
        for place, position in self._positions.items():
            if position > self._began[place] and self._random.random() < 0.5:
                offset = self._random.randrange(self._began[place], position)
                wanted[place] = Wanted(offset, self._random.choice(MAX_BYTES))
        if wanted:
            await self._fetcher.fetch(wanted, max_wait_ms=0, apart=True)

    async def _list_offsets(self) -> None:
        place = self._random.choice(list(self._positions))
        timestamps = [LATEST, EARLIEST, self._surroundings.wall_ms() - self._random.randrange(60_000)]
        if self._fetcher.list_version >= MAX_TIMESTAMP_SINCE:
            timestamps.append(MAX_TIMESTAMP)
        await self._fetcher.list_offset(place, self._random.choice(timestamps))
