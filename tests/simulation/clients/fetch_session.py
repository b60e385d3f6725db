"""Chooses the partitions that a consumer names in its next Fetch: all, or the changes within a fetch session
(KIP-227).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.history import TopicPartition
from tests.support.wire import Plain

SESSIONS_SINCE, TOPIC_IDS_SINCE = 7, 13
NO_SESSION, NEW_SESSION_EPOCH, NO_SESSION_EPOCH = 0, 0, -1
MAX_EPOCH = 2**31 - 1


@dataclass(frozen=True)
class Wanted:
    fetch_offset: int
    max_bytes: int
    leader_epoch: int = -1
    """The leader epoch that the consumer knows; -1 for none."""


@dataclass
class FetchSession:
    session_id: int = NO_SESSION
    next_epoch: int = NEW_SESSION_EPOCH
    known: dict[TopicPartition, Wanted] = field(default_factory=dict)

    def forget(self) -> None:
        """Drop the session. After an error or a lost answer the next request names all partitions."""
        self.session_id, self.next_epoch = NO_SESSION, NEW_SESSION_EPOCH
        self.known.clear()

    def request(
        self, wanted: dict[TopicPartition, Wanted]
    ) -> tuple[Plain, dict[TopicPartition, Wanted], list[TopicPartition]]:
        """Return the session's fields, the partitions to name, and those to forget."""
        fields: Plain = {"session_id": self.session_id, "session_epoch": self.next_epoch}
        named = {place: want for place, want in wanted.items() if self.known.get(place) != want}
        forgotten = [place for place in self.known if place not in wanted]
        self.known = dict(wanted)
        return fields, named, forgotten

    def answered(self, session_id: int) -> None:
        self.session_id = session_id
        if session_id == NO_SESSION:
            self.forget()
        else:
            self.next_epoch = 1 if self.next_epoch == MAX_EPOCH else self.next_epoch + 1


def by_topic(
    surroundings: Surroundings, version: int, rows: dict[TopicPartition, Plain], name_field: str
) -> list[Plain]:
    """Group rows of partitions under their topics, which are named by id from v13 on."""
    topics: dict[str, list[Plain]] = {}
    for place, row in rows.items():
        topics.setdefault(place.topic, []).append(row)
    return [
        (
            {"topic_id": surroundings.topics[topic].topic_id}
            if version >= TOPIC_IDS_SINCE
            else {name_field: topic}
        )
        | {"partitions": partitions}
        for topic, partitions in topics.items()
    ]
