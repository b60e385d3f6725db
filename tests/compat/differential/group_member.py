"""A consumer group member for scenarios; it remembers its member id and generation."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.compat.differential.peer import Peer, Pending, Topic
from tests.support.wire import Plain

FIRST_REQUIRING_MEMBER_ID = 4
MEMBER_ID_REQUIRED = 79
REBALANCE_IN_PROGRESS = 27
Protocols = Mapping[str, bytes]


def subscription(*topics: str, version: int = 0) -> bytes:
    """Encode the subscription that a consumer sends when it joins: topics, without user data."""
    names = [topic.encode() for topic in topics]
    listed = b"".join(struct.pack(">h", len(name)) + name for name in names)
    return struct.pack(">hi", version, len(names)) + listed + struct.pack(">i", -1)


def owning(topics: Mapping[str, Sequence[int]], version: int = 1) -> bytes:
    """Encode the subscription of a member that still owns partitions of its topics."""
    owned = [
        struct.pack(">h", len(topic)) + topic.encode() + struct.pack(f">i{len(rows)}i", len(rows), *rows)
        for topic, rows in topics.items()
    ]
    return subscription(*topics, version=version) + struct.pack(">i", len(owned)) + b"".join(owned)


def assignment(topic: str, *partitions: int) -> bytes:
    """Encode the leader's assignment for a member."""
    name = topic.encode()
    listed = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hih", 0, 1, len(name)) + name + listed + struct.pack(">i", -1)


@dataclass
class GroupMember:
    """Sends one member's requests over one connection, by default in the newest versions."""

    peer: Peer
    group_id: str
    instance_id: str | None = None
    protocols: Protocols = field(default_factory=lambda: {"range": subscription("t")})
    protocol_type: str = "consumer"
    rebalance_timeout: int = 10_000
    session_timeout: int = 10_000
    member_id: str = ""
    generation_id: int = -1

    def join_request(self, **more: Any) -> Plain:
        return {
            "group_id": self.group_id,
            "session_timeout": self.session_timeout,
            "rebalance_timeout": self.rebalance_timeout,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": self.protocol_type,
            "protocols": [{"name": name, "metadata": data} for name, data in self.protocols.items()],
            **more,
        }

    def join(self, version: int = 9, **more: Any) -> Plain:
        """Join the group. A member that needs an id asks for one first."""
        self.ask_for_id(version)
        return self.joined(self.peer.call("join_group", version, **self.join_request(**more)))

    def ask_for_id(self, version: int = 9) -> None:
        """Ask for a member id: the first of two steps to join."""
        if not self.member_id and self.instance_id is None and version >= FIRST_REQUIRING_MEMBER_ID:
            answer = self.peer.call("join_group", version, **self.join_request())
            if answer.get("error_code") == MEMBER_ID_REQUIRED:
                self.member_id = answer["member_id"]

    def begin_join(self, version: int = 9) -> Pending:
        """Send JoinGroup; `joined` takes the answer."""
        self.ask_for_id(version)
        return self.peer.begin("join_group", version, **self.join_request())

    def joined(self, answer: Plain) -> Plain:
        if answer.get("error_code") == 0:
            self.member_id = answer["member_id"]
            self.generation_id = answer["generation_id"]
        return answer

    def identity(self, **more: Any) -> Plain:
        return {
            "group_id": self.group_id,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            **more,
        }

    def sync_request(self, shares: Mapping[str, bytes] | None = None, **more: Any) -> Plain:
        rows = [{"member_id": member, "assignment": data} for member, data in (shares or {}).items()]
        named = {"protocol_type": self.protocol_type, "protocol_name": next(iter(self.protocols), "")}
        return self.identity(**named, assignments=rows, **more)

    def sync(self, shares: Mapping[str, bytes] | None = None, version: int = 5, **more: Any) -> Plain:
        request = {**self.sync_request(shares), **more}
        return self.peer.call("sync_group", version, **request)

    def assign_itself(self, version: int = 5) -> Plain:
        """Assign all partitions to this member, the only one of its group."""
        return self.sync({self.member_id: assignment("t", 0)}, version)

    def heartbeat(self, version: int = 4, **more: Any) -> Plain:
        return self.peer.call("heartbeat", version, **{**self.identity(), **more})

    def await_rebalance(self) -> None:
        """Send heartbeats until one reports a rebalance."""
        self.peer.eventually(
            "heartbeat",
            4,
            lambda answer: bool(answer["error_code"] == REBALANCE_IN_PROGRESS),
            **self.identity(),
        )

    def leave(self, version: int = 5, **more: Any) -> Plain:
        member = {"member_id": self.member_id, "group_instance_id": self.instance_id, "reason": "done"}
        request = {"group_id": self.group_id, "member_id": self.member_id, "members": [member], **more}
        return self.peer.call("leave_group", version, **request)

    def commit(self, topic: Topic, offset: int = 5, version: int = 9, **more: Any) -> Plain:
        """Commit an offset of partition 0."""
        request = {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "retention_time": -1,
            "topics": [committed(topic, {0: offset})],
        }
        return self.peer.call("offset_commit", version, **{**request, **more})


def committed(topic: Topic, offsets: Mapping[int, int], **more: Any) -> Plain:
    """Build the row of one topic in an OffsetCommit request."""
    rows = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
            **more,
        }
        for index, offset in offsets.items()
    ]
    return {"name": topic.name, "topic_id": topic.topic_id, "partitions": rows}


def fetched(topic: Topic, *partitions: int) -> Plain:
    """Build the row of one topic in an OffsetFetch request."""
    return {"name": topic.name, "topic_id": topic.topic_id, "partition_indexes": list(partitions)}


def fetch_offsets(
    peer: Peer, group_id: str, topics: list[Plain] | None, version: int = 9, **more: Any
) -> Plain:
    """Send OffsetFetch of one group in any version."""
    group = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": topics}
    request = {"group_id": group_id, "topics": topics, "groups": [group], "require_stable": False}
    return peer.call("offset_fetch", version, **{**request, **more})


def await_state(peer: Peer, group_id: str, state: str) -> Plain:
    """Wait until DescribeGroups reports a state, and record it: Kafka lists a new group only once the group
    is stored.
    """
    return peer.eventually(
        "describe_groups",
        5,
        lambda answer: bool(answer["groups"][0]["group_state"] == state),
        groups=[group_id],
    )
