"""The last reading of a run: all partitions from log start to end with both isolation levels, and all groups'
offsets.
"""

from __future__ import annotations

import asyncio
from random import Random

from tests.simulation.clients.connection import Disconnected
from tests.simulation.clients.fetch_session import Wanted
from tests.simulation.clients.fetcher import EARLIEST, LATEST, Fetcher
from tests.simulation.clients.group_offsets import GroupOffsets
from tests.simulation.clients.links import link_of
from tests.simulation.clients.name_offsets import NameOffsets
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.history import FinalRead, TopicPartition

RETRY_S = 0.2
MAX_BYTES = 1_000_000


class FinalReader:
    """Reads everything at the end.

    `settle_s` limits how long transactions may stay open, and how long reading may take.
    """

    def __init__(self, surroundings: Surroundings, random: Random, settle_s: float) -> None:
        self._surroundings = surroundings
        self._settle_s = settle_s
        self._link = link_of(surroundings, "final", random)
        self._offsets = [
            GroupOffsets(surroundings, self._link, random, group, by_epoch=False)
            for group in surroundings.groups
        ]
        self._names = {
            name: NameOffsets(surroundings, self._link, random, name) for name in surroundings.names
        }
        self._readers = {
            committed: Fetcher(
                surroundings,
                self._link,
                "final-committed" if committed else "final",
                random,
                read_committed=committed,
            )
            for committed in (False, True)
        }

    async def run(self) -> None:
        """Wait until no transaction is open, then read."""
        try:
            async with asyncio.timeout(self._settle_s):
                for place in self._surroundings.partitions():
                    await self._await_stable(place)
        except TimeoutError:
            self._surroundings.unexpected("final", f"a transaction is still open after {self._settle_s} s")
        self._surroundings.history.add(FinalRead(self._surroundings.at_ms()))
        try:
            async with asyncio.timeout(self._settle_s):
                for offsets in self._offsets:
                    await self._read_offsets(offsets)
                for name, names in self._names.items():
                    await names.told(self._surroundings.names[name])
                for place in self._surroundings.partitions():
                    for reader in self._readers.values():
                        await self._read(reader, place)
        except TimeoutError:
            self._surroundings.unexpected("final", f"the last read is not done after {self._settle_s} s")
        self._link.close()

    async def _offset(self, reader: Fetcher, place: TopicPartition, timestamp: int) -> int:
        while True:
            try:
                found = await reader.list_offset(place, timestamp)
            except Disconnected:
                found = None
            if found is not None:
                return found
            await asyncio.sleep(RETRY_S)

    async def _await_stable(self, place: TopicPartition) -> None:
        while True:
            stable = await self._offset(self._readers[True], place, LATEST)
            if stable == await self._offset(self._readers[False], place, LATEST):
                return
            await asyncio.sleep(RETRY_S)

    async def _read_offsets(self, offsets: GroupOffsets) -> None:
        while True:
            try:
                if await offsets.fetch(None, self._surroundings.partitions()) is not None:
                    return
            except Disconnected:
                pass
            await asyncio.sleep(RETRY_S)

    async def _read(self, reader: Fetcher, place: TopicPartition) -> None:
        position = await self._offset(reader, place, EARLIEST)
        end = await self._offset(reader, place, LATEST)
        while position < end:
            try:
                found = await reader.fetch({place: Wanted(position, MAX_BYTES)}, max_wait_ms=0, apart=True)
            except Disconnected:
                continue
            if found:
                position = found[0].next_offset
                # a transaction that nobody ended may have got its marker meanwhile
                end = max(
                    end, found[0].last_stable_offset if reader.read_committed else found[0].high_watermark
                )
            else:
                await asyncio.sleep(RETRY_S)
