"""A member of a streams group for scenarios, and topologies; the member remembers its epochs and its tasks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.compat.differential.peer import SETTLE_TIMEOUT_S, Peer, Topic, Unsettled
from tests.compat.differential.scenarios.consumer_groups import assignable_topic
from tests.compat.differential.settling import await_applied
from tests.support.group_configs import GROUP_RESOURCE
from tests.support.wire import Plain

REBALANCE_TIMEOUT_MS = 60_000
JOINS = 0
LEAVES = -1
LEAVES_FOR_A_WHILE = -2
ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")


def internal(name: str, *, partitions: int = 0, configs: Mapping[str, str] | None = None) -> Plain:
    """Return a topic that the group creates: a changelog, or a repartition topic."""
    rows = [{"key": key, "value": value} for key, value in (configs or {}).items()]
    return {"name": name, "partitions": partitions, "replication_factor": 0, "topic_configs": rows}


def subtopology(
    subtopology_id: str = "0",
    *sources: str,
    regexes: Sequence[str] = (),
    changelogs: Sequence[Plain] = (),
    repartitions: Sequence[Plain] = (),
    sinks: Sequence[str] = (),
    copartitions: Sequence[Plain] = (),
) -> Plain:
    """Return a part of a topology that reads `sources` and `repartitions`."""
    return {
        "subtopology_id": subtopology_id,
        "source_topics": list(sources),
        "source_topic_regex": list(regexes),
        "state_changelog_topics": list(changelogs),
        "repartition_sink_topics": list(sinks),
        "repartition_source_topics": list(repartitions),
        "copartition_groups": list(copartitions),
    }


def copartition(*sources: int, regexes: Sequence[int] = (), repartitions: Sequence[int] = ()) -> Plain:
    """Return a group of topics, by their indexes, that must all have the same number of partitions."""
    return {
        "source_topics": list(sources),
        "source_topic_regex": list(regexes),
        "repartition_source_topics": list(repartitions),
    }


def topology(*subtopologies: Plain, epoch: int = 0) -> Plain:
    return {"epoch": epoch, "subtopologies": list(subtopologies)}


@dataclass
class StreamsMember:
    """Sends one member's requests over one connection."""

    peer: Peer
    group_id: str
    topology: Plain | None
    member_id: str = "m1"
    process_id: str = "p1"
    instance_id: str | None = None
    member_epoch: int = 0
    endpoint_epoch: int = 0
    owned: dict[str, list[Plain]] = field(default_factory=dict)
    version: int = 0

    def request(self, **more: Any) -> Plain:
        """Return the heartbeat of a member for which nothing has changed."""
        return {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.member_epoch,
            "endpoint_information_epoch": self.endpoint_epoch,
            "instance_id": self.instance_id,
            "rack_id": None,
            "rebalance_timeout": -1,
            "topology": None,
            **dict.fromkeys(ROLES),
            "process_id": None,
            "user_endpoint": None,
            "client_tags": None,
            "task_offsets": None,
            "task_end_offsets": None,
            "shutdown_application": False,
            **more,
        }

    def full(self, **more: Any) -> Plain:
        """Return all fields of a full heartbeat."""
        told = {
            "rebalance_timeout": REBALANCE_TIMEOUT_MS,
            "topology": self.topology,
            "process_id": self.process_id,
            "client_tags": [],
        }
        return {**told, **self.all_owned(), **more}

    def all_owned(self) -> Plain:
        return {role: self.owned.get(role, []) for role in ROLES}

    def beat(self, **more: Any) -> Plain:
        """Send a heartbeat and adopt the answer."""
        return self.take(self.peer.call("streams_group_heartbeat", self.version, **self.request(**more)))

    def take(self, answer: Plain) -> Plain:
        """Remember the epochs and the tasks of an answer."""
        if answer and answer["error_code"] == 0:
            self.member_epoch = answer["member_epoch"]
            self.endpoint_epoch = answer["endpoint_information_epoch"]
            for role in ROLES:
                if answer[role] is not None:
                    self.owned[role] = answer[role]
        return answer

    def join(self, **more: Any) -> Plain:
        self.member_epoch, self.owned = JOINS, {}
        return self.beat(**self.full(**more))

    def confirm(self, **more: Any) -> Plain:
        """Report exactly the assigned tasks as owned."""
        return self.beat(**{**self.all_owned(), **more})

    def leave(self, member_epoch: int = LEAVES) -> Plain:
        return self.beat(member_epoch=member_epoch)

    def count(self, role: str = "active_tasks") -> int:
        return sum(len(row["partitions"]) for row in self.owned.get(role, []))

    def await_tasks(self, active: int, standby: int = 0, **first: Any) -> None:
        """Send heartbeats until the member has so many tasks. The answers on the way are not compared."""
        request = self.request(**first)
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            answer = self.take(self.peer.wire.call("streams_group_heartbeat", self.version, request).fields)
            has_them = (self.count(), self.count("standby_tasks")) == (active, standby)
            if has_them and answer["error_code"] == 0 and not answer["status"]:
                return
            if time.monotonic() > deadline_s:
                raise Unsettled(
                    f"{self.member_id} has {self.owned}, should have {active}; the last answer is {answer}"
                )
            request = self.request(**self.all_owned())


def describe(peer: Peer, *group_ids: str, operations: bool = False) -> Plain:
    return peer.call(
        "streams_group_describe", 0, group_ids=list(group_ids), include_authorized_operations=operations
    )


def describe_nodes(peer: Peer, *group_ids: str, nodes: bool = True) -> Plain:
    """Describe groups with the descriptions of their topologies."""
    return peer.call(
        "streams_group_describe",
        1,
        group_ids=list(group_ids),
        include_authorized_operations=False,
        include_topology_description=nodes,
    )


def configure(peer: Peer, group_id: str, **configs: str) -> None:
    """Set `streams.*` configs of a group without recording it, and wait until they are in effect; names are
    given with underscores.
    """
    rows = [
        {"name": f"streams.{name.replace('_', '.')}", "config_operation": 0, "value": value}
        for name, value in configs.items()
    ]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group_id, "configs": rows}
    peer.wire.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    await_applied(peer)


def stateless(peer: Peer, *, partitions: int = 4, **more: Any) -> tuple[Topic, StreamsMember]:
    """Return a topic, and a member of a new group that reads it; the member has not joined."""
    topic = assignable_topic(peer, partitions=partitions)
    member = StreamsMember(peer, peer.group(), topology(subtopology("0", topic.name)), **more)
    return topic, member


def alone(peer: Peer, *, partitions: int = 4, **more: Any) -> tuple[Topic, StreamsMember]:
    """Return a topic and the only member of a stable group."""
    topic, member = stateless(peer, partitions=partitions, **more)
    member.await_tasks(partitions, **member.full())
    member.confirm()
    return topic, member


def beside(first: StreamsMember, member_id: str = "m2", process_id: str = "p2", **more: Any) -> StreamsMember:
    """Return another member of the group with the same topology; it has not joined."""
    return StreamsMember(first.peer, first.group_id, first.topology, member_id, process_id, **more)


def two(peer: Peer, *, partitions: int = 4) -> tuple[Topic, StreamsMember, StreamsMember]:
    """Return a topic and the two members of a stable group, each with half of the tasks."""
    topic, first = alone(peer, partitions=partitions)
    second = beside(first)
    second.join()
    first.beat()
    first.confirm()
    second.beat()
    second.confirm()
    return topic, first, second
