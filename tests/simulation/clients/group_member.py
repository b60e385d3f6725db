"""A consumer in a group: it reads its assigned partitions, commits offsets, leaves, dies and comes back.

Some members work in transactions: they write a record for each record that they read, and commit the group's
offsets in the same transaction.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from random import Random

from kio.schema.errors import ErrorCode

from tests.simulation.clients.classic_membership import ClassicMembership
from tests.simulation.clients.connection import Disconnected
from tests.simulation.clients.consumer_membership import ConsumerMembership
from tests.simulation.clients.fetch_session import Wanted
from tests.simulation.clients.fetcher import EARLIEST, Fetcher
from tests.simulation.clients.group_offsets import OUTDATED, GroupOffsets, Identity, Offsets
from tests.simulation.clients.links import link_of
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.clients.transactional_producer import Lost, TransactionalProducer
from tests.simulation.history import Assigned, TopicPartition

MAX_BYTES = 2_000
POLL_S = 0.1
STALL_S = 3.0
LATE_SHARE = 0.3
"""The share of commits that may arrive again."""


@dataclass(frozen=True)
class MemberHabits:
    pause_s: float = 0.2
    commit_chance: float = 0.4
    leave_chance: float = 0.01
    death_chance: float = 0.01
    stall_chance: float = 0.0
    late_commit_chance: float = 0.0
    """The chance, per round, that an earlier commit arrives again, as if the network had delayed it."""


class Gone(Exception):
    """This life of the member has ended."""


class GroupMember:
    """A member of a group. With a `transformer` it commits offsets in transactions."""

    def __init__(
        self,
        surroundings: Surroundings,
        name: str,
        random: Random,
        group: str,
        habits: MemberHabits,
        *,
        by_epoch: bool,
        read_committed: bool,
        transformer: TransactionalProducer | None = None,
    ) -> None:
        surroundings.note_group(group)
        self._surroundings = surroundings
        self._name = name
        self._random = random
        self._habits = habits
        self._membership_type = ConsumerMembership if by_epoch else ClassicMembership
        self._coordinator = link_of(surroundings, f"{name}-coordinator", random)
        self._link = link_of(surroundings, name, random)
        self._fetcher = Fetcher(
            surroundings, self._link, name, random, read_committed=read_committed, may_read_elsewhere=True
        )
        self._offsets = GroupOffsets(surroundings, self._coordinator, random, group, by_epoch=by_epoch)
        self._transformer = transformer
        self._lives = 0
        self._positions: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._late: tuple[Identity, Offsets] | None = None
        """The sender and the offsets of a commit that may arrive again."""
        self._membership: ClassicMembership | ConsumerMembership = self._new_life()

    def _new_life(self) -> ClassicMembership | ConsumerMembership:
        self._lives += 1
        label = f"{self._name}/{self._lives}"
        return self._membership_type(
            self._surroundings, self._coordinator, self._random, self._offsets, label
        )

    async def run(self) -> None:
        while not self._surroundings.ending:
            try:
                await self._live()
            except (Gone, Lost):
                self._close()
                await self._surroundings.pause(self._random, 1.0)
                self._membership = self._new_life()
        self._close()

    def _close(self) -> None:
        self._coordinator.close()
        self._link.close()
        if self._transformer is not None:
            self._transformer.leave()

    async def _live(self) -> None:
        if self._transformer is not None:
            await self._transformer.begin()
        while not self._surroundings.ending:
            places = await self._join()
            if places is not None and await self._find_positions(places):
                await self._work()
            await self._surroundings.pause(self._random, POLL_S)
        if self._random.random() < 0.5:
            await self._leave()

    async def _join(self) -> list[TopicPartition] | None:
        try:
            places = await self._membership.join()
        except Disconnected:
            return None
        if places is not None:
            who = self._membership.who
            event = Assigned(
                self._surroundings.at_ms(), self._offsets.group, who.label, who.generation, frozenset(places)
            )
            self._surroundings.history.add(event)
        return places

    async def _find_positions(self, places: list[TopicPartition]) -> bool:
        """Read the group's offsets; return whether all were found before the assignment changed."""
        self._positions.clear()
        found: dict[TopicPartition, int] | None = {}
        while places and not self._surroundings.ending:
            try:
                found = await self._offsets.fetch(self._membership.who, places)
                if found is not None:
                    break
                if not await self._membership.beat():
                    return False
            except Disconnected:
                pass
            await self._surroundings.pause(self._random, POLL_S)
        self._committed = dict(found or {})
        self._positions = {place: max(offset, 0) for place, offset in self._committed.items()}
        return True

    async def _work(self) -> None:
        """Read until the assignment changes. Raises `Gone` and, with a transformer, `Lost`."""
        next_beat = self._surroundings.now() + self._membership.heartbeat_s
        while not self._surroundings.ending:
            try:
                if self._surroundings.now() >= next_beat:
                    if not await self._membership.beat():
                        await self._commit_before_rejoining()
                        return
                    next_beat = self._surroundings.now() + self._membership.heartbeat_s
                await self._read()
                if self._random.random() < self._habits.commit_chance and not await self._commit():
                    return
                await self._maybe_commit_late()
            except Disconnected:
                pass
            await self._maybe_go()
            await self._surroundings.pause(self._random, self._habits.pause_s)

    async def _read(self) -> None:
        wanted = {place: Wanted(offset, MAX_BYTES) for place, offset in self._positions.items()}
        if not wanted:
            return
        for fetched in await self._fetcher.fetch(wanted, max_wait_ms=100):
            self._positions[fetched.partition] = fetched.next_offset
        for place in list(self._fetcher.out_of_range):
            first = await self._fetcher.list_offset(place, EARLIEST)
            if first is not None:
                self._positions[place] = max(first, self._positions[place])

    def _progress(self) -> Offsets:
        return tuple(
            (place, offset)
            for place, offset in self._positions.items()
            if offset > 0 and offset != self._committed.get(place)
        )

    async def _commit(self) -> bool:
        """Commit the positions; return whether this member is still in the group."""
        offsets = self._progress()
        if not offsets:
            return True
        who = self._membership.who
        if self._transformer is None:
            if self._habits.late_commit_chance and self._random.random() < LATE_SHARE:
                self._late = replace(who), offsets
            error = await self._offsets.commit(who, offsets)
        else:
            identity = {"generation_id": who.generation, "member_id": who.member_id}
            error = await self._transformer.transform(self._offsets.group, offsets, identity)
        if error is ErrorCode.none:
            self._committed.update(offsets)
        elif self._transformer is not None:
            # read the records of an aborted transaction again
            self._positions = {place: max(self._committed.get(place, -1), 0) for place in self._positions}
        return error not in OUTDATED or error is ErrorCode.stale_member_epoch

    async def _commit_before_rejoining(self) -> None:
        if self._transformer is None and self._random.random() < 0.5 and self._progress():
            await self._offsets.commit(self._membership.who, self._progress())

    async def _maybe_commit_late(self) -> None:
        """Send an earlier commit once more, perhaps at a time when other members own the partitions."""
        if self._late is not None and self._random.random() < self._habits.late_commit_chance:
            await self._offsets.commit(*self._late)

    async def _maybe_go(self) -> None:
        chance = self._random.random()
        if chance < self._habits.death_chance:
            raise Gone
        chance -= self._habits.death_chance
        if chance < self._habits.leave_chance:
            await self._leave()
            raise Gone
        if chance - self._habits.leave_chance < self._habits.stall_chance:
            await self._stall()

    async def _stall(self) -> None:
        """Stop for a while, as in a long garbage collection.

        The next step is a commit, at a time when other members may already own the partitions.
        """
        await self._surroundings.pause(self._random, STALL_S)
        if self._transformer is None and self._progress():
            with contextlib.suppress(Disconnected):
                await self._offsets.commit(self._membership.who, self._progress())

    async def _leave(self) -> None:
        try:
            await self._membership.leave()
        except Disconnected:
            return
