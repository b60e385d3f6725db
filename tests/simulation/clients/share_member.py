"""A member of a share group: it acquires records, accepts, releases or rejects them, or says nothing until
their lock runs out. It dies, and comes back as another member.

A share of all records fails at every member, for ever.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any
from zlib import crc32

from kio.schema.errors import ErrorCode

from tests.simulation.clients.batch import Corrupt, decode
from tests.simulation.clients.connection import Connection, Coordinator, Disconnected, Target
from tests.simulation.clients.error_codes import MOVED
from tests.simulation.clients.links import link_of
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.events_of_shares import Delivered, FoundNothing, HolderGone, Said, SaidDurably, Saying
from tests.simulation.history import TopicPartition
from tests.support.wire import Plain

HEARTBEAT_VERSION = 1
BEATS_S = 1.0
JOINING, LEAVING = 0, -1
MAX_WAIT_MS = 200
MAX_BYTES = 4_000
PAUSE_S = 0.1
DEAD_S = 0.5
FAILING = 8
"""One of this many records fails at every member."""
LATE_S = 2.0
"""Time that some members need before they say anything: the lock may have run out."""
GONE = {ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch}
SESSION_ENDED = {
    ErrorCode.share_session_not_found,
    ErrorCode.invalid_share_session_epoch,
    ErrorCode.group_id_not_found,
}
"""Errors of a whole request after which a member begins a new share session."""
TOO_LATE = {ErrorCode.invalid_record_state}
"""Errors of acknowledgements that come after the end of the lock, or whose gateway has forgotten the lock."""

Sayings = dict[TopicPartition, dict[int, Said]]


def fails(value: bytes) -> bool:
    """Return whether no member can process a record."""
    return crc32(value) % FAILING == 0


@dataclass(frozen=True)
class Dispositions:
    """The weights of what a member does with a record: accept, release, reject, nothing."""

    of_good: tuple[float, float, float, float] = (0.85, 0.08, 0.02, 0.05)
    of_failing: tuple[float, float, float, float] = (0.0, 0.7, 0.1, 0.2)
    of_last: tuple[float, float, float, float] = (0.0, 0.9, 0.1, 0.0)
    """At the end of the run, members say something about each record at once."""


@dataclass
class SharedGroup:
    """The state that the members of a group share. `is_done`: the group has done all records of its topics."""

    name: str
    topics: tuple[str, ...]
    death_chance: float
    is_done: bool = False


@dataclass
class _Session:
    """A share session with one gateway, over one connection."""

    connection: Connection | None = None
    epoch: int = 0
    places: set[TopicPartition] = field(default_factory=set)
    """The partitions of the session. None is forgotten: a member reads on what is assigned to others now."""
    heard_ms: int = 0
    """When the last answered request was sent: the session was there then."""


class Died(Exception):
    """This life of the member has ended."""


class ShareMember:
    def __init__(self, surroundings: Surroundings, name: str, random: Random, group: SharedGroup) -> None:
        self._surroundings = surroundings
        self._random = random
        self._group = group
        self._name = name
        self._lives = 0
        self._version = random.randint(1, 2)
        self._coordinator = link_of(surroundings, f"{name}-coordinator", random)
        self._link = link_of(surroundings, name, random)
        self._dispositions = Dispositions()
        self._begin_life()

    def _begin_life(self) -> None:
        self._lives += 1
        self._label = f"{self._name}/{self._lives}"
        self._id = base64.urlsafe_b64encode(self._random.randbytes(16)).decode().rstrip("=")
        self._epoch = JOINING
        self._assigned: list[TopicPartition] = []
        self._sessions: dict[Target, _Session] = {}
        self._unsaid: Sayings = defaultdict(dict)

    async def run(self) -> None:
        """Run until the group has done all records."""
        while not self._group.is_done:
            try:
                await self._live()
            except Died:
                for to in list(self._sessions):
                    self._note_gone(to)
                self._coordinator.close()
                self._link.close()
                await self._surroundings.pause(self._random, DEAD_S)
                self._begin_life()
        self._coordinator.close()
        self._link.close()

    async def _live(self) -> None:
        next_beat_s = self._surroundings.now()
        while not self._group.is_done:
            if self._surroundings.now() >= next_beat_s:
                await self._beat()
                next_beat_s = self._surroundings.now() + (BEATS_S if self._assigned else PAUSE_S)
            for to, places in (await self._link.by_leader(self._assigned) if self._assigned else {}).items():
                await self._fetch(to, places)
            for to in list(self._sessions):
                await self._say(to)
            if not self._surroundings.ending and self._random.random() < self._group.death_chance:
                await self._go()
            late = not self._surroundings.ending and self._random.random() < 0.02
            await self._surroundings.pause(self._random, LATE_S if late else PAUSE_S)

    async def _go(self) -> None:
        """End this life, sometimes with a word to the group's coordinator."""
        if self._random.random() < 0.5:
            self._epoch = LEAVING
            await self._beat()
        raise Died

    # --- membership

    async def _beat(self) -> None:
        request = {
            "group_id": self._group.name,
            "member_id": self._id,
            "member_epoch": self._epoch,
            "rack_id": None,
            "subscribed_topic_names": list(self._group.topics) if self._epoch == JOINING else None,
        }
        try:
            answer = await self._coordinator.call(
                "share_group_heartbeat", HEARTBEAT_VERSION, request, to=Coordinator(0, self._group.name)
            )
        except Disconnected:
            return
        error = answer.error_code
        if error is ErrorCode.none and self._epoch != LEAVING:
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                names = {topic.topic_id: topic.name for topic in self._surroundings.topics.values()}
                self._assigned = [
                    TopicPartition(names[str(topic.topic_id)], partition)
                    for topic in answer.assignment.topic_partitions
                    for partition in topic.partitions
                ]
        elif self._epoch == LEAVING and error is ErrorCode.group_id_not_found:
            return  # its first heartbeat has not arrived, and nobody else has joined
        elif error in GONE:
            self._epoch = JOINING
            for to in list(self._sessions):
                self._note_gone(to)
        elif error is not ErrorCode.none and error not in self._surroundings.faults:
            self._surroundings.unexpected(self._label, f"ShareGroupHeartbeat: {error.name}")
        elif error is not ErrorCode.none:
            find = {"key_type": 0, "coordinator_keys": [self._group.name]}
            try:
                await self._coordinator.call("find_coordinator", 4, find)
            except Disconnected:
                return

    # --- the share session

    def _note_gone(self, to: Target) -> None:
        """Forget a session: the gateway may have released its records, and given others to it."""
        session = self._sessions.pop(to)
        history = self._surroundings.history
        history.add(HolderGone(self._surroundings.at_ms(), self._group.name, self._label, session.heard_ms))
        for place in session.places:
            self._unsaid.pop(place, None)

    async def _ask(self, to: Target, api: str, fields: Plain, places: list[TopicPartition]) -> Any:
        """Send a request of the session with a gateway, which adds these partitions. Return None, and forget
        the session, where that has ended or no answer comes.
        """
        session = self._sessions.setdefault(to, _Session(heard_ms=self._surroundings.at_ms()))
        asked_at_ms = self._surroundings.at_ms()
        request = {
            "group_id": self._group.name,
            "member_id": self._id,
            "share_session_epoch": session.epoch,
            "is_renew_ack": False,
            **fields,
        }
        session.places.update(places)
        try:
            answer = await self._link.call(api, self._version, request, to=to)
        except Disconnected:
            self._note_gone(to)
            return None
        if answer.error_code is not ErrorCode.none:
            if answer.error_code not in self._surroundings.faults | SESSION_ENDED:
                self._surroundings.unexpected(self._label, f"{api}: {answer.error_code.name}")
            self._note_gone(to)
            return None
        session.epoch += 1
        session.heard_ms = asked_at_ms
        return answer

    async def _open(self, to: Target) -> bool:
        """Connect to a gateway; return whether there is a connection. A new one begins a new session."""
        try:
            connection = await self._link.connect(to)
        except Disconnected:
            return False
        session = self._sessions.get(to)
        if session is not None and session.connection is not connection:
            self._note_gone(to)
            session = None
        if session is None:
            self._sessions[to] = _Session(connection, heard_ms=self._surroundings.at_ms())
        return True

    # --- records

    async def _fetch(self, to: Target, places: list[TopicPartition]) -> None:
        """Fetch what a gateway has for this member, sometimes with what the member has to say."""
        if not await self._open(to):
            return
        session = self._sessions[to]
        said = self._take(session) if session.epoch and self._random.random() < 0.5 else {}
        fields = {
            "max_wait": MAX_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": MAX_BYTES,
            "max_records": self._random.choice((1, 5, 100)),
            "batch_size": self._random.choice((1, 10, 100)),
            "share_acquire_mode": self._random.randint(0, 1),
            "topics": self._topics({place: {} for place in places} | said),
            "forgotten_topics_data": [],
        }
        asked_at_ms = self._note_saying(said)
        answer = await self._ask(to, "share_fetch", fields, places)
        if answer is None:
            return
        rows = self._rows(answer)
        self._note_outcomes(said, rows, "acknowledge_error_code", asked_at_ms)
        waited = self._surroundings.at_ms() - asked_at_ms >= MAX_WAIT_MS and not said
        for place, row in rows.items():
            if row.error_code is ErrorCode.none and row.acquired_records:
                self._acquired(place, row, asked_at_ms)
                waited = False
            elif row.error_code in MOVED:
                self._link.moved(place, row)
            if row.error_code not in {ErrorCode.none} | self._surroundings.faults:
                self._surroundings.unexpected(self._label, f"ShareFetch of {place}: {row.error_code.name}")
        for place in sorted(session.places) if waited else ():
            if place not in rows or rows[place].error_code is ErrorCode.none:
                event = FoundNothing(
                    self._surroundings.at_ms(), self._group.name, self._label, place, asked_at_ms
                )
                self._surroundings.history.add(event)

    def _acquired(self, place: TopicPartition, row: Any, asked_at_ms: int) -> None:
        """Note the records of an answer, and decide what to say about each."""
        try:
            batches = decode(bytes(row.records or b""))
        except Corrupt as corrupt:
            self._surroundings.unexpected(self._label, f"ShareFetch of {place}: {corrupt}")
            return
        values = {offset: value for batch in batches for offset, _, value in batch.records}
        records = tuple(
            (offset, run.delivery_count)
            for run in row.acquired_records
            for offset in range(run.first_offset, run.last_offset + 1)
        )
        at_ms, group = self._surroundings.at_ms(), self._group.name
        self._surroundings.history.add(Delivered(at_ms, group, self._label, place, records, asked_at_ms))
        for offset, _ in records:
            value = values.get(offset)
            if value is None:
                self._surroundings.unexpected(self._label, f"no record at offset {offset} of {place}")
                continue
            weights = self._dispositions.of_good
            if fails(value):
                ending = self._surroundings.ending
                weights = self._dispositions.of_last if ending else self._dispositions.of_failing
            elif self._surroundings.ending:
                weights = (1.0, 0.0, 0.0, 0.0)
            (said,) = self._random.choices((Said.ACCEPT, Said.RELEASE, Said.REJECT, None), weights)
            if said is not None:
                self._unsaid[place][offset] = said

    # --- what the member says

    async def _say(self, to: Target) -> None:
        session = self._sessions[to]
        said = self._take(session)
        if not said or not await self._open(to) or not self._sessions[to].epoch:
            return
        asked_at_ms = self._note_saying(said)
        answer = await self._ask(to, "share_acknowledge", {"topics": self._topics(said)}, [])
        if answer is not None:
            self._note_outcomes(said, self._rows(answer), "error_code", asked_at_ms)

    def _take(self, session: _Session) -> Sayings:
        """Return what the member has to say to a gateway, which it says once."""
        return {place: self._unsaid.pop(place) for place in sorted(session.places) if self._unsaid.get(place)}

    def _note_saying(self, said: Sayings) -> int:
        at_ms, group = self._surroundings.at_ms(), self._group.name
        for place, records in said.items():
            event = Saying(at_ms, group, self._label, place, tuple(sorted(records.items())))
            self._surroundings.history.add(event)
        return at_ms

    def _note_outcomes(
        self, said: Sayings, rows: dict[TopicPartition, Any], field_name: str, asked_at_ms: int
    ) -> None:
        for place, records in said.items():
            error = getattr(rows[place], field_name) if place in rows else None
            error = ErrorCode(error) if isinstance(error, int) else error
            if error is ErrorCode.none:
                event = SaidDurably(
                    self._surroundings.at_ms(),
                    self._group.name,
                    self._label,
                    place,
                    tuple(sorted(records.items())),
                    asked_at_ms,
                )
                self._surroundings.history.add(event)
            elif error is None or error not in TOO_LATE | self._surroundings.faults:
                name = "no row" if error is None else error.name
                self._surroundings.unexpected(self._label, f"acknowledgement of {place}: {name}")
            elif error in MOVED:
                self._link.moved(place, rows[place])

    def _topics(self, said: Sayings) -> list[Plain]:
        topics: dict[str, list[Plain]] = defaultdict(list)
        for place, records in said.items():
            batches = [
                {"first_offset": offset, "last_offset": offset, "acknowledge_types": [int(what)]}
                for offset, what in sorted(records.items())
            ]
            row = {"partition_index": place.partition, "acknowledgement_batches": batches}
            topics[self._surroundings.topics[place.topic].topic_id].append(row)
        return [{"topic_id": topic_id, "partitions": rows} for topic_id, rows in topics.items()]

    def _rows(self, answer: Any) -> dict[TopicPartition, Any]:
        names = {topic.topic_id: topic.name for topic in self._surroundings.topics.values()}
        return {
            TopicPartition(names[str(topic.topic_id)], row.partition_index): row
            for topic in answer.responses
            for row in topic.partitions
        }
