"""Reads partitions over one link: Fetch and ListOffsets, decoded and recorded in the history."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from tests.simulation.clients.batch import Corrupt, DecodedBatch, decode
from tests.simulation.clients.connection import Disconnected, Link, Target
from tests.simulation.clients.error_codes import MOVED
from tests.simulation.clients.fetch_session import (
    NO_SESSION,
    NO_SESSION_EPOCH,
    SESSIONS_SINCE,
    TOPIC_IDS_SINCE,
    FetchSession,
    Wanted,
    by_topic,
)
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.events_of_clusters import EpochsRead
from tests.simulation.history import Fetched, Marker, OffsetListed, TopicPartition
from tests.support.wire import Plain

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
MAX_TIMESTAMP_SINCE = 7
LOG_START_SINCE, ZSTD_SINCE = 5, 10
EPOCHS_SINCE = 12
REPLICAS_SINCE = 11
ELSEWHERE = 0.4
"""The chance that a partition is asked for at another gateway than its leader."""
LEFT_TO_THE_LEADER = {ErrorCode.not_leader_or_follower, ErrorCode.offset_out_of_range}
NAMES_EPOCH_SINCE, LIST_NAMES_EPOCH_SINCE = 9, 4
NAMES_EPOCH = 0.7
"""The share of readers of a cluster that name the leader epoch that they know."""
SESSION_ERRORS = {ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch}


class Fetcher:
    """Reads partitions. `out_of_range`: the partitions whose last Fetch was answered with that error."""

    def __init__(
        self,
        surroundings: Surroundings,
        link: Link,
        name: str,
        random: Random,
        *,
        read_committed: bool,
        may_read_elsewhere: bool = False,
    ) -> None:
        self._surroundings = surroundings
        self._link = link
        self._random = random
        self.name = name
        self.read_committed = read_committed
        self.fetch_version = random.randint(ZSTD_SINCE if surroundings.zstd else LOG_START_SINCE, 18)
        self.list_version = random.randint(2, 11)
        self._sessions: dict[Target, FetchSession] = {}
        self._uses_session = self.fetch_version >= SESSIONS_SINCE and random.random() < 0.5
        self._names_epoch = surroundings.cluster is not None and random.random() < NAMES_EPOCH
        cluster = surroundings.cluster
        are_read = cluster is not None and cluster.reads_elsewhere
        self._reads_elsewhere = may_read_elsewhere and are_read
        if self._reads_elsewhere:
            self.fetch_version = max(REPLICAS_SINCE, self.fetch_version)
        self._may_be_elsewhere = are_read and self.fetch_version >= REPLICAS_SINCE
        self._chance = Random(f"elsewhere {name}")
        self.out_of_range: list[TopicPartition] = []
        self._epochs: dict[tuple[TopicPartition, int], int] = {}
        """The leader epoch of the batch before the next fetch offset (KIP-320)."""

    async def fetch(
        self, wanted: dict[TopicPartition, Wanted], *, max_wait_ms: int, apart: bool = False
    ) -> list[Fetched]:
        """Return the data of each partition that was answered without an error; `apart` is fetched outside of
        the session.

        Raises `Disconnected`.
        """
        self.out_of_range = []
        led = await self._link.by_leader(wanted)
        asked, away = self._spread(led) if self._reads_elsewhere else (led, set[TopicPartition]())
        fetches = [
            self._fetch_from(to, self._with_epochs(wanted, places), max_wait_ms, away, apart=apart)
            for to, places in asked.items()
        ]
        if len(fetches) == 1:
            return await fetches[0]
        taken = []
        for found in await asyncio.gather(*fetches, return_exceptions=True):
            if isinstance(found, list):
                taken += found
            elif not isinstance(found, Disconnected):
                raise found
        return taken

    def _spread(
        self, led: dict[Target, list[TopicPartition]]
    ) -> tuple[dict[Target, list[TopicPartition]], set[TopicPartition]]:
        """Return which gateway to ask for each partition, sometimes another one than the leader, and the
        partitions of these.
        """
        asked: dict[Target, list[TopicPartition]] = {}
        away = set()
        for leader, places in led.items():
            for place in places:
                to = self._link.another(leader, self._chance) if self._chance.random() < ELSEWHERE else leader
                asked.setdefault(to, []).append(place)
                if to != leader:
                    away.add(place)
        return asked, away

    async def _fetch_from(
        self,
        to: Target,
        wanted: dict[TopicPartition, Wanted],
        max_wait_ms: int,
        away: set[TopicPartition],
        *,
        apart: bool,
    ) -> list[Fetched]:
        session, in_session = self._sessions.setdefault(to, FetchSession()), self._uses_session and not apart
        request = self._request(session if in_session else None, wanted, max_wait_ms)
        asked_at_ms = self._surroundings.at_ms()
        try:
            answer = await self._link.call("fetch", self.fetch_version, request, to=to)
        except Disconnected:
            session.forget()
            raise
        if self.fetch_version >= SESSIONS_SINCE:
            if answer.error_code in SESSION_ERRORS:
                session.forget()
                return []
            if answer.error_code is not ErrorCode.none:
                self._surroundings.unexpected(self.name, f"Fetch: {answer.error_code.name}")
            if in_session:
                session.answered(answer.session_id)
        return self._take(answer, wanted, asked_at_ms, to, away)

    def _request(
        self, session: FetchSession | None, wanted: dict[TopicPartition, Wanted], max_wait_ms: int
    ) -> Plain:
        fields: Plain = {"session_id": NO_SESSION, "session_epoch": NO_SESSION_EPOCH}
        named, forgotten = wanted, list[TopicPartition]()
        if session is not None:
            fields, named, forgotten = session.request(wanted)
        rows = {
            place: {
                "partition": place.partition,
                "current_leader_epoch": want.leader_epoch,
                "fetch_offset": want.fetch_offset,
                "last_fetched_epoch": self._epochs.get((place, want.fetch_offset), -1),
                "log_start_offset": -1,
                "partition_max_bytes": want.max_bytes,
            }
            for place, want in named.items()
        }
        return fields | {
            "replica_id": -1,
            "max_wait": max_wait_ms,
            "min_bytes": 1,
            "max_bytes": max((want.max_bytes for want in wanted.values()), default=1) * 4,
            "isolation_level": int(self.read_committed),
            "topics": by_topic(self._surroundings, self.fetch_version, rows, "topic"),
            "forgotten_topics_data": self._forgotten(forgotten),
        }

    def _with_epochs(
        self, wanted: dict[TopicPartition, Wanted], places: list[TopicPartition]
    ) -> dict[TopicPartition, Wanted]:
        return {place: replace(wanted[place], leader_epoch=self._epoch_of(place)) for place in places}

    def _epoch_of(self, place: TopicPartition) -> int:
        """Return the leader epoch that a Fetch or ListOffsets names."""
        return self._link.epoch_of(place) if self._names_epoch else -1

    def _forgotten(self, places: list[TopicPartition]) -> list[Plain]:
        rows: dict[TopicPartition, Any] = {place: place.partition for place in places}
        return by_topic(self._surroundings, self.fetch_version, rows, "topic")

    def _take(
        self,
        answer: Any,
        wanted: dict[TopicPartition, Wanted],
        asked_at_ms: int,
        to: Target,
        away: set[TopicPartition],
    ) -> list[Fetched]:
        names = {topic.topic_id: topic.name for topic in self._surroundings.topics.values()}
        taken = []
        for topic in answer.responses:
            by_id = self.fetch_version >= TOPIC_IDS_SINCE
            name = names.get(str(topic.topic_id), "") if by_id else topic.topic
            for row in topic.partitions:
                place = TopicPartition(name, row.partition_index)
                if place not in wanted:
                    self._surroundings.unexpected(
                        self.name, f"Fetch answered {place}, which was not asked for"
                    )
                elif place in away and row.error_code in LEFT_TO_THE_LEADER:
                    continue
                elif row.error_code is ErrorCode.offset_out_of_range:
                    self.out_of_range.append(place)
                elif row.error_code is not ErrorCode.none:
                    if row.error_code in MOVED:
                        self._link.moved(place, row)
                    if row.error_code not in self._surroundings.faults:
                        self._surroundings.unexpected(self.name, f"Fetch of {place}: {row.error_code.name}")
                elif not self._tells_nothing(row):
                    if self.fetch_version >= NAMES_EPOCH_SINCE and place not in away:
                        self._link.led(to, place, wanted[place].leader_epoch, asked_at_ms)
                    found = self._fetched(
                        place,
                        wanted[place].fetch_offset,
                        row,
                        asked_at_ms,
                        elsewhere=self._is_elsewhere(to, place, wanted, away),
                    )
                    if found is not None:
                        taken.append(found)
        return taken

    def _tells_nothing(self, row: Any) -> bool:
        """Return whether a gateway sends the client to the leader, or has not read from the bucket yet.

        A client that asked the leader may reach another gateway at the leader's address.
        """
        return self._may_be_elsewhere and (row.preferred_read_replica >= 0 or row.high_watermark < 0)

    def _is_elsewhere(
        self,
        to: Target,
        place: TopicPartition,
        wanted: dict[TopicPartition, Wanted],
        away: set[TopicPartition],
    ) -> bool:
        """Return whether another gateway than the leader may have answered.

        A client does not notice that if it names no epoch, or if a gateway with a new node id serves at the
        leader's address.
        """
        if place in away:
            return True
        return self._may_be_elsewhere and (wanted[place].leader_epoch < 0 or not self._link.is_reached(to))

    def _fetched(
        self, place: TopicPartition, fetch_offset: int, row: Any, asked_at_ms: int, *, elsewhere: bool
    ) -> Fetched | None:
        diverging = getattr(row, "diverging_epoch", None)
        if diverging is not None and diverging.epoch >= 0:
            self._surroundings.unexpected(
                self.name, f"{place} is another log than was read up to {fetch_offset}"
            )
            return None
        try:
            batches = decode(bytes(row.records or b""))
        except Corrupt as corrupt:
            self._surroundings.unexpected(self.name, f"Fetch of {place} from {fetch_offset}: {corrupt}")
            return None
        if batches and self.fetch_version >= EPOCHS_SINCE:
            self._epochs[place, batches[-1].last_offset + 1] = batches[-1].leader_epoch
        self._note_epochs(place, batches)
        visible = without_aborted(batches, row.aborted_transactions or ()) if self.read_committed else batches
        fetched = Fetched(
            self._surroundings.at_ms(),
            self.name,
            place,
            self.read_committed,
            fetch_offset,
            max([fetch_offset, *(batch.last_offset + 1 for batch in batches)]),
            tuple(
                (offset, value or b"")
                for batch in visible
                if not batch.control
                for offset, _, value in batch.records
                if offset >= fetch_offset
            ),
            row.high_watermark,
            row.last_stable_offset,
            row.log_start_offset,
            tuple(
                Marker(batch.last_offset, batch.producer_id, batch.producer_epoch, not batch.is_abort)
                for batch in batches
                if batch.control and batch.records and batch.last_offset >= fetch_offset
            ),
            asked_at_ms,
            elsewhere,
        )
        self._surroundings.history.add(fetched)
        return fetched

    def _note_epochs(self, place: TopicPartition, batches: list[DecodedBatch]) -> None:
        if self._surroundings.cluster is None or not batches:
            return
        epochs: list[tuple[int, int, int]] = []
        for batch in batches:
            first, epoch = batch.base_offset, batch.leader_epoch
            if epochs and epochs[-1][2] == epoch:
                first = epochs.pop()[0]
            epochs.append((first, batch.last_offset, epoch))
        self._surroundings.history.add(EpochsRead(self._surroundings.at_ms(), place, tuple(epochs)))

    async def list_offset(self, place: TopicPartition, timestamp: int) -> int | None:
        """Return the offset, −1 if there is none, or None if the answer is an error. Raises `Disconnected`."""
        epoch = self._epoch_of(place)
        row = {"partition_index": place.partition, "current_leader_epoch": epoch, "timestamp": timestamp}
        request = {
            "replica_id": -1,
            "isolation_level": int(self.read_committed),
            "topics": [{"name": place.topic, "partitions": [row]}],
        }
        leader = next(iter(await self._link.by_leader([place])), place)
        asked_at_ms = self._surroundings.at_ms()
        answer = await self._link.call("list_offsets", self.list_version, request, to=leader)
        found = answer.topics[0].partitions[0]
        if found.error_code in MOVED:
            self._link.moved(place)
        if found.error_code is not ErrorCode.none:
            if found.error_code not in self._surroundings.faults:
                self._surroundings.unexpected(self.name, f"ListOffsets of {place}: {found.error_code.name}")
            return None
        if self.list_version >= LIST_NAMES_EPOCH_SINCE:
            self._link.led(leader, place, epoch, asked_at_ms)
        listed = OffsetListed(
            self._surroundings.at_ms(),
            self.name,
            place,
            self.read_committed,
            timestamp,
            found.offset,
            asked_at_ms,
        )
        self._surroundings.history.add(listed)
        return int(found.offset)


def without_aborted(batches: list[DecodedBatch], aborted_transactions: Any) -> list[DecodedBatch]:
    """Drop aborted records as a consumer of committed records does (CompletedFetch.nextFetchedRecord)."""
    coming = sorted(aborted_transactions, key=lambda aborted: aborted.first_offset)
    coming.reverse()
    aborted: dict[int, None] = {}
    visible = []
    for batch in batches:
        while coming and coming[-1].first_offset <= batch.last_offset:
            aborted[coming.pop().producer_id] = None
        if batch.control:
            if batch.is_abort:
                aborted.pop(batch.producer_id, None)
        elif not (batch.transactional and batch.producer_id in aborted):
            visible.append(batch)
    return visible
