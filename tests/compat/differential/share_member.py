"""A share group member for scenarios; it remembers its epochs and its assignment."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.settling import await_applied
from tests.support.batches import Batch, Record
from tests.support.wire import NO_TOPIC_ID, Plain

LEAVES = -1
FINAL = -1
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP_RESOURCE = 32
PERSISTED_AFTER_MS = 3_000


def member_id(number: int) -> str:
    """Return a member id: Kafka's share sessions accept only a UUID in base64."""
    return base64.urlsafe_b64encode(bytes([number]) * 16).decode().rstrip("=")


def said(first_offset: int, last_offset: int, *types: int) -> Plain:
    """Return an acknowledgement of offsets: one type for all, or one for each."""
    return {"first_offset": first_offset, "last_offset": last_offset, "acknowledge_types": list(types)}


@dataclass
class ShareMember:
    """Sends one member's requests over one connection, by default in the newest versions."""

    peer: Peer
    group_id: str
    topics: Sequence[Topic] = ()
    number: int = 1
    member_epoch: int = 0
    session_epoch: int = 0
    assigned: list[Plain] = field(default_factory=list)

    @property
    def member_id(self) -> str:
        return member_id(self.number)

    # --- membership

    def request(self, **more: Any) -> Plain:
        """Return the heartbeat of a member for which nothing has changed."""
        return {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.member_epoch,
            "rack_id": None,
            "subscribed_topic_names": None,
            **more,
        }

    def beat(self, **more: Any) -> Plain:
        return self.take(self.peer.call("share_group_heartbeat", 1, **self.request(**more)))

    def join(self, **more: Any) -> Plain:
        self.member_epoch = 0
        return self.beat(**{"subscribed_topic_names": [topic.name for topic in self.topics], **more})

    def leave(self) -> Plain:
        return self.beat(member_epoch=LEAVES)

    def await_partitions(self, count: int, **first: Any) -> None:
        """Send heartbeats until the member has this many partitions. Kafka assigns a partition once its share
        state exists, which takes time."""
        requests = chain([self.request(**first)], iter(self.request, None))

        def has_them(answer: Plain) -> bool:
            self.take(answer)
            return sum(len(topic["partitions"]) for topic in self.assigned) == count

        self.peer.until("share_group_heartbeat", 1, has_them, requests.__next__)

    def hear(self) -> None:
        """Send a heartbeat without recording it."""
        self.take(self.peer.wire.call("share_group_heartbeat", 1, self.request()).fields)

    def take(self, answer: Plain) -> Plain:
        """Remember the member epoch and the assignment in the answer to a heartbeat. Return the answer."""
        if answer and answer["error_code"] == 0:
            self.member_epoch = answer["member_epoch"]
            if answer["assignment"] is not None:
                self.assigned = answer["assignment"]["topic_partitions"]
        return answer

    # --- records

    def fetch_request(
        self,
        *,
        partitions: Mapping[int, Sequence[Plain]] | None = None,
        forgotten: Sequence[int] = (),
        **more: Any,
    ) -> Plain:
        """Return a ShareFetch for `partitions` of the first topic, with the acknowledgements of each."""
        return {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "max_wait": 100,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": self.acknowledged(partitions),
            "forgotten_topics_data": (
                [{"topic_id": self.topics[0].topic_id, "partitions": list(forgotten)}] if forgotten else []
            ),
            **more,
        }

    def acknowledged(self, partitions: Mapping[int, Sequence[Plain]] | None) -> list[Plain]:
        if not partitions:
            return []
        rows = [
            {"partition_index": index, "acknowledgement_batches": list(batches)}
            for index, batches in partitions.items()
        ]
        topic_id = self.topics[0].topic_id if self.topics else NO_TOPIC_ID
        return [{"topic_id": topic_id, "partitions": rows}]

    def open(self, *partitions: int, version: int = 2, **more: Any) -> Plain:
        """Begin a share session with partitions of the first topic, by default partition 0."""
        self.session_epoch = 0
        return self.fetch(*(partitions or (0,)), version=version, **more)

    def fetch(
        self, *partitions: int, version: int = 2, acks: Sequence[Plain] | None = None, **more: Any
    ) -> Plain:
        """Send a ShareFetch that adds partitions to the session and acknowledges records of partition 0."""
        told: dict[int, Sequence[Plain]] = dict.fromkeys(partitions, ())
        if acks is not None:
            told[0] = acks
        request = self.fetch_request(partitions=told, **more)
        answer = self.peer.call("share_fetch", version, **request)
        return self._next(answer, request["share_session_epoch"])

    def acknowledge(self, *batches: Plain, version: int = 2, **more: Any) -> Plain:
        """Send a ShareAcknowledge for partition 0."""
        request = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "is_renew_ack": False,
            "topics": self.acknowledged({0: batches} if batches else None),
            **more,
        }
        answer = self.peer.call("share_acknowledge", version, **request)
        return self._next(answer, request["share_session_epoch"])

    def _next(self, answer: Plain, asked: int) -> Plain:
        if answer and answer["error_code"] == 0 and asked != FINAL:
            self.session_epoch = asked + 1
        return answer


def share_group(peer: Peer, suffix: str = "g") -> str:
    """Return the id of a new share group that reads from the log start, once its coordinator knows that and
    all topics.
    """
    group_id = peer.group(suffix)
    change = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group_id, "configs": [change]}
    peer.wire.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    await_applied(peer)
    return group_id


def member_of_its_own(peer: Peer, *, partitions: int = 1, **more: Any) -> ShareMember:
    """Return the only member of a new share group, with all partitions of its topic."""
    topic = peer.topic(partitions=partitions)
    member = ShareMember(peer, share_group(peer), [topic], **more)
    member.await_partitions(partitions, subscribed_topic_names=[topic.name])
    return member


def another_member(first: ShareMember, number: int = 2) -> ShareMember:
    """Return another member of the same group, with its own connection."""
    other = ShareMember(first.peer.connect(), first.group_id, first.topics, number)
    names = [topic.name for topic in first.topics]
    joined = other.peer.wire.call("share_group_heartbeat", 1, other.request(subscribed_topic_names=names))
    other.take(joined.fields)
    return other


def note_sharing(*members: ShareMember) -> None:
    """Record how many partitions each member has and how many members each partition has. The coordinator
    chooses which."""
    for member in members:
        member.hear()
    read = [index for member in members for topic in member.assigned for index in topic["partitions"]]
    sizes = sorted(sum(len(topic["partitions"]) for topic in member.assigned) for member in members)
    members[0].peer.note("sharing", sizes=sizes, readers=sorted(read.count(index) for index in set(read)))


def fill(member: ShareMember, *sizes: int, partition: int = 0) -> None:
    """Produce batches of these sizes without recording the answers."""
    topic = member.topics[0]
    for size in sizes:
        batch = Batch(tuple(Record(value=b"v%d" % number) for number in range(size))).encode()
        rows = [{"index": partition, "records": batch}]
        data = [{"name": topic.name, "topic_id": topic.topic_id, "partition_data": rows}]
        request = {"transactional_id": None, "acks": -1, "timeout": 5_000, "topic_data": data}
        answer = member.peer.wire.call("produce", 9, request).fields
        row = answer["responses"][0]["partition_responses"][0]
        assert row["error_code"] == 0, row


def reader(peer: Peer, *sizes: int, version: int = 2, **more: Any) -> ShareMember:
    """Return a member that has acquired all records of batches of these sizes; its fetch is recorded."""
    member = member_of_its_own(peer)
    fill(member, *sizes)
    member.open(version=version, max_wait=PERSISTED_AFTER_MS, **more)
    return member


def offsets_of(member: ShareMember, *partitions: int, version: int = 1) -> Plain:
    """Send DescribeShareGroupOffsets for partitions of the first topic, by default partition 0."""
    topic = {"topic_name": member.topics[0].name, "partitions": list(partitions or (0,))}
    groups = [{"group_id": member.group_id, "topics": [topic]}]
    return member.peer.call("describe_share_group_offsets", version, groups=groups)


def describe(peer: Peer, *group_ids: str, operations: bool = False) -> Plain:
    return peer.call(
        "share_group_describe", 1, group_ids=list(group_ids), include_authorized_operations=operations
    )
