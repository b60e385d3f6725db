"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848): members join, release and receive partitions,
leave, and return."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.compat.differential.group_member import GroupMember, subscription
from tests.compat.differential.peer import SETTLE_TIMEOUT_S, Peer, Topic, Unsettled
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.wire import NO_TOPIC_ID, Plain

REBALANCE_TIMEOUT_MS = 60_000
LEAVES = -1
LEAVES_FOR_A_WHILE = -2


@dataclass
class Member:
    """A member in the newest version of the protocol; it remembers its member epoch and its partitions."""

    peer: Peer
    group_id: str
    topics: Sequence[str]
    member_id: str = "m1"
    instance_id: str | None = None
    member_epoch: int = 0
    owned: list[Plain] = field(default_factory=list)

    def request(self, **more: Any) -> Plain:
        """Return the heartbeat of a member for which nothing has changed."""
        return {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.member_epoch,
            "instance_id": self.instance_id,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
            **more,
        }

    def beat(self, version: int = 1, **more: Any) -> Plain:
        """Send a heartbeat and adopt the answer."""
        return self.take(self.peer.call("consumer_group_heartbeat", version, **self.request(**more)))

    def take(self, answer: Plain) -> Plain:
        """Remember the member epoch and the partitions of an answer."""
        if answer and answer["error_code"] == 0:
            self.member_epoch = answer["member_epoch"]
            if answer["assignment"] is not None:
                self.owned = answer["assignment"]["topic_partitions"]
        return answer

    def full(self, **more: Any) -> Plain:
        """Return all fields of a full heartbeat."""
        told = {
            "rebalance_timeout": REBALANCE_TIMEOUT_MS,
            "subscribed_topic_names": list(self.topics),
            "topic_partitions": self.owned,
        }
        return {**told, **more}

    def join(self, version: int = 1, **more: Any) -> Plain:
        self.member_epoch, self.owned = 0, []
        return self.beat(version, **self.full(**more))

    def confirm(self) -> Plain:
        """Confirm the assignment: report exactly the assigned partitions as owned."""
        return self.beat(topic_partitions=self.owned)

    def leave(self, version: int = 1, member_epoch: int = LEAVES) -> Plain:
        return self.beat(version, member_epoch=member_epoch)

    def await_partitions(self, count: int, **first: Any) -> None:
        """Send heartbeats until the member has this many partitions. The answers on the way are not compared,
        because Kafka assigns partitions in the background."""

        request = self.request(**first)
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            self.take(self.peer.wire.call("consumer_group_heartbeat", 1, request).fields)
            if sum(len(topic["partitions"]) for topic in self.owned) == count:
                return
            if time.monotonic() > deadline_s:
                raise Unsettled(f"{self.member_id} has {self.owned} and should have {count} partitions")
            request = self.request(topic_partitions=self.owned)


def describe(peer: Peer, *group_ids: str, version: int = 1, operations: bool = False) -> Plain:
    return peer.call(
        "consumer_group_describe",
        version,
        group_ids=list(group_ids),
        include_authorized_operations=operations,
    )


def assignable_topic(peer: Peer, suffix: str = "t", *, partitions: int = 1) -> Topic:
    """Create a topic and wait until the group coordinator assigns it: Kafka's learns of topics in the
    background."""
    topic = peer.topic(suffix, partitions=partitions)
    await_topics(peer, peer.group(f"scout-{suffix}"), [topic.name], partitions)
    return topic


def await_topics(peer: Peer, group_id: str, names: list[str], partitions: int) -> None:
    """Wait until the coordinator of a group knows topics, with this number of partitions in all. Each shard of
    Kafka's coordinator learns of them by itself. The group is new, and is gone afterwards."""
    scout = Member(peer, group_id, names, "scout")
    scout.await_partitions(partitions, **scout.full())
    peer.wire.call("consumer_group_heartbeat", 1, scout.request(member_epoch=LEAVES))
    peer.wire.call("delete_groups", 2, groups_names=[group_id])


def alone(peer: Peer, *, partitions: int = 4, **more: Any) -> tuple[Topic, Member]:
    """Return a topic and the only member of a stable group."""
    topic = assignable_topic(peer, partitions=partitions)
    member = Member(peer, peer.group(), [topic.name], **more)
    member.join()
    member.confirm()
    return topic, member


def two(peer: Peer, *, partitions: int = 4) -> tuple[Topic, Member, Member]:
    """Return a topic and the two members of a group, each with half of the partitions."""
    topic, first = alone(peer, partitions=partitions)
    second = Member(peer, first.group_id, first.topics, "m2")
    second.join()
    first.beat()
    first.confirm()
    second.beat()
    second.confirm()
    return topic, first, second


# --- the life of a group


@scenario_for_each(range(2))
def life(peer: Peer, version: int) -> None:
    topic = assignable_topic(peer, partitions=3)
    member = Member(peer, peer.group(), [topic.name])
    describe(peer, member.group_id, version=version)
    member.join(version)
    describe(peer, member.group_id, version=version, operations=True)
    member.beat(version, topic_partitions=member.owned)
    member.beat(version)
    member.beat(version, **member.full())
    describe(peer, member.group_id, version=version)
    member.leave(version)
    describe(peer, member.group_id, version=version)
    member.beat(version)
    peer.call("list_groups", 5, only_own=True)
    peer.call("delete_groups", 2, groups_names=[member.group_id])
    describe(peer, member.group_id, version=version)


@scenario
def two_members_share(peer: Peer) -> None:
    """Give the second member a partition only after the first has released it."""
    _, first = alone(peer)
    second = Member(peer, first.group_id, first.topics, "m2")
    second.join()
    describe(peer, first.group_id)
    second.beat()
    first.beat()
    describe(peer, first.group_id)
    second.beat()
    first.beat()
    first.confirm()
    second.beat()
    second.confirm()
    describe(peer, first.group_id)
    first.leave()
    describe(peer, first.group_id)
    second.beat()
    describe(peer, first.group_id)
    second.leave()
    describe(peer, first.group_id)


@scenario
def ranges(peer: Peer) -> None:
    topic = assignable_topic(peer, partitions=5)
    group_id = peer.group()
    members = [Member(peer, group_id, [topic.name], name) for name in ("m1", "m2", "m3")]
    for member in members:
        member.join(server_assignor="range")
    for _ in range(3):
        for member in members:
            member.confirm()
    describe(peer, group_id)


# --- requests that are refused


@scenario_for_each(range(2))
def unknown_group(peer: Peer, version: int) -> None:
    member = Member(peer, peer.group(), ["t"])
    for member_epoch in (1, LEAVES, LEAVES_FOR_A_WHILE):
        member.beat(version, member_epoch=member_epoch)
        member.beat(version, member_epoch=member_epoch, instance_id="i")
    describe(peer, member.group_id, version=version)
    describe(peer, "", version=version)


@scenario
def unknown_member(peer: Peer) -> None:
    _, member = alone(peer)
    other = Member(peer, member.group_id, member.topics, "m2")
    for member_epoch in (1, LEAVES, LEAVES_FOR_A_WHILE):
        other.beat(member_epoch=member_epoch)
        other.beat(member_epoch=member_epoch, instance_id="i")
    describe(peer, member.group_id)


@scenario_for_each(
    {
        "group id": {"group_id": ""},
        "blank group id": {"group_id": "  "},
        "member id": {"member_id": ""},
        "blank member id": {"member_id": " "},
        "instance id": {"instance_id": ""},
        "rack id": {"rack_id": ""},
        "epoch -3": {"member_epoch": -3},
        "no rebalance timeout": {"rebalance_timeout": -1},
        "rebalance timeout 0": {"rebalance_timeout": 0},
        "no subscription": {"subscribed_topic_names": None},
        "empty subscription": {"subscribed_topic_names": []},
        "empty regex": {"subscribed_topic_names": None, "subscribed_topic_regex": ""},
        "broken regex": {"subscribed_topic_regex": "(a"},
        "no partitions": {"topic_partitions": None},
        "unknown assignor": {"server_assignor": "sticky"},
        "empty assignor": {"server_assignor": ""},
        "topic twice": {"subscribed_topic_names": ["t", "t"]},
        "topic that is none": {"subscribed_topic_names": ["", "?"]},
    }
)
def join_with(peer: Peer, more: Plain) -> None:
    Member(peer, peer.group(), ["t"]).join(**more)


@scenario_for_each(range(2))
def join_without_a_member_id(peer: Peer, version: int) -> None:
    member = Member(peer, peer.group(), ["t"], "")
    for member_epoch in (1, LEAVES, LEAVES_FOR_A_WHILE):
        member.beat(version, member_epoch=member_epoch, instance_id="i")


@scenario
def joins_with_partitions(peer: Peer) -> None:
    topic = assignable_topic(peer)
    member = Member(peer, peer.group(), [topic.name])
    member.join(topic_partitions=[{"topic_id": topic.topic_id, "partitions": [0]}])


@scenario
def leaves_for_a_while_without_an_instance_id(peer: Peer) -> None:
    _, member = alone(peer)
    member.leave(member_epoch=LEAVES_FOR_A_WHILE)
    member.beat()


@scenario_for_each({"-1": -1, "1": 1, "2": 2, "-3": -4})
def another_epoch(peer: Peer, step: int) -> None:
    """Send epochs ahead of the coordinator's and behind it; behind it also with a full heartbeat."""
    _, member = alone(peer)
    known = member.member_epoch
    member.beat(member_epoch=known + step)
    member.member_epoch = known
    member.beat(member_epoch=known + step, **member.full())
    member.member_epoch = known
    member.beat()


# --- answers that the client lost


@scenario
def lost_answer_to_a_join(peer: Peer) -> None:
    topic = assignable_topic(peer, partitions=2)
    member = Member(peer, peer.group(), [topic.name])
    member.join()
    member.join()
    member.confirm()


@scenario
def joins_again_from_nothing(peer: Peer) -> None:
    """Join again with epoch 0 as a member whose epoch is already higher than its first."""
    topic, member = alone(peer)
    other = assignable_topic(peer, "other")
    member.topics = [topic.name, other.name]
    member.beat(**member.full())
    member.confirm()
    member.join()
    member.beat()


@scenario
def lost_answer_to_a_change(peer: Peer) -> None:
    topic, member = alone(peer)
    other = assignable_topic(peer, "other")
    before = member.member_epoch, member.owned
    member.topics = [topic.name, other.name]
    member.beat(**member.full())
    member.member_epoch, member.owned = before
    member.beat(topic_partitions=None)
    member.member_epoch, member.owned = before
    member.beat(**member.full())
    member.confirm()


@scenario
def lost_answer_that_took_partitions(peer: Peer) -> None:
    _, first = alone(peer)
    all_owned = first.owned
    second = Member(peer, first.group_id, first.topics, "m2")
    second.join()
    first.beat()
    first.owned = all_owned
    first.beat(**first.full())
    first.confirm()
    first.beat()
    second.confirm()


# --- members that release partitions


@scenario
def partitions_given_back_in_parts(peer: Peer) -> None:
    topic, first = alone(peer)
    second = Member(peer, first.group_id, first.topics, "m2")
    second.join()
    kept = first.beat()["assignment"]["topic_partitions"][0]["partitions"]
    lost = sorted(set(range(4)) - set(kept))
    first.beat(topic_partitions=[{"topic_id": topic.topic_id, "partitions": [*kept, lost[0]]}])
    second.beat()
    first.beat(topic_partitions=[{"topic_id": topic.topic_id, "partitions": lost[1:]}])
    second.beat()
    first.beat(topic_partitions=[])
    second.beat()
    describe(peer, first.group_id)


@scenario
def a_third_comes_while_the_first_gives_back(peer: Peer) -> None:
    _, first = alone(peer, partitions=6)
    others = [Member(peer, first.group_id, first.topics, name) for name in ("m2", "m3")]
    others[0].join()
    first.beat()
    others[1].join()
    first.beat()
    first.confirm()
    first.beat()
    first.confirm()
    for other in (*others, *others):
        other.confirm()
    describe(peer, first.group_id)


@scenario
def the_one_waited_for_leaves(peer: Peer) -> None:
    _, first = alone(peer)
    second = Member(peer, first.group_id, first.topics, "m2")
    second.join()
    first.beat()
    first.leave()
    describe(peer, first.group_id)
    second.beat()
    second.confirm()


@scenario
def the_newcomer_leaves_before_it_has_anything(peer: Peer) -> None:
    _, first = alone(peer)
    second = Member(peer, first.group_id, first.topics, "m2")
    second.join()
    first.beat()
    second.leave()
    first.beat()
    first.confirm()
    first.confirm()
    describe(peer, first.group_id)


@scenario
def subscription_changes(peer: Peer) -> None:
    topic, member = alone(peer, partitions=2)
    other = assignable_topic(peer, "other", partitions=2)
    member.beat(subscribed_topic_names=[topic.name])
    member.beat(subscribed_topic_names=[topic.name, other.name])
    member.confirm()
    member.beat(subscribed_topic_names=[other.name])
    member.confirm()
    member.beat()
    member.beat(subscribed_topic_names=[])
    member.confirm()
    member.beat()
    describe(peer, member.group_id)


@scenario
def subscription_changes_while_it_gives_back(peer: Peer) -> None:
    """Revoke the partitions of a topic that the member gives up, while it still revokes others."""
    topic, member = alone(peer, partitions=2)
    other = assignable_topic(peer, "other", partitions=2)
    both = [topic.name, other.name]
    member.beat(subscribed_topic_names=both, server_assignor="range")
    member.confirm()
    second = Member(peer, member.group_id, both, "m2")
    second.join()
    member.beat()
    member.beat(subscribed_topic_names=[topic.name])
    describe(peer, member.group_id)
    member.confirm()
    second.beat()
    describe(peer, member.group_id)


@scenario
def other_changes_of_a_member(peer: Peer) -> None:
    _, member = alone(peer)
    member.beat(rack_id="r")
    member.beat(rebalance_timeout=10)
    member.beat(server_assignor="range")
    member.beat(server_assignor="none")
    describe(peer, member.group_id)


# --- changes of topics


@scenario
def topic_that_does_not_exist_yet(peer: Peer) -> None:
    member = Member(peer, peer.group(), [peer.name()])
    member.join()
    member.beat()
    peer.topic(partitions=2)
    member.await_partitions(2)
    peer.note("assigned", partitions=[topic["partitions"] for topic in member.owned])
    member.confirm()


@scenario
def topic_that_grows(peer: Peer) -> None:
    topic, member = alone(peer, partitions=1)
    wanted = [{"name": topic.name, "count": 3, "assignments": None}]
    peer.call("create_partitions", 3, topics=wanted, timeout=5_000, validate_only=False)
    member.await_partitions(3)
    peer.note("assigned", partitions=[topic["partitions"] for topic in member.owned])
    member.confirm()


@scenario
def topic_that_is_deleted(peer: Peer) -> None:
    topic, member = alone(peer, partitions=2)
    peer.call("delete_topics", 6, topics=[{"name": topic.name, "topic_id": NO_TOPIC_ID}], timeout=5_000)
    member.await_partitions(0)
    member.confirm()
    member.beat()
    describe(peer, member.group_id)


@scenario
def regular_expression(peer: Peer) -> None:
    """Subscribe by a regular expression. Kafka resolves it in the background."""
    topic = peer.topic("one", partitions=2)
    member = Member(peer, peer.group(), [])
    regex = f"{topic.name[:-3]}(one|two)"
    joining = member.full(subscribed_topic_names=None, subscribed_topic_regex=regex)
    member.await_partitions(2, **joining)
    peer.note("assigned", partitions=[found["partitions"] for found in member.owned])
    member.beat(subscribed_topic_regex="(a")
    member.beat()


@scenario
def regular_expression_that_matches_an_internal_topic(peer: Peer) -> None:
    """Subscribe to a topic and to `__consumer_offsets` by one expression: both are assigned."""
    topic = peer.topic("one", partitions=2)
    member = Member(peer, peer.group(), [])
    asked = {"topics": [{"name": "__consumer_offsets"}], "allow_auto_topic_creation": False}
    (offsets,) = peer.wire.call("metadata", 12, asked).fields["topics"]
    regex = f"{topic.name}|__consumer_offset."
    joining = member.full(subscribed_topic_names=None, subscribed_topic_regex=regex)
    member.await_partitions(2 + len(offsets["partitions"]), **joining)
    assigned = {found["topic_id"] for found in member.owned}
    peer.note("assigned", both=assigned == {topic.topic_id, offsets["topic_id"]})
    member.leave()


# --- static members


@scenario
def static_member_comes_back(peer: Peer) -> None:
    topic, member = alone(peer, instance_id="i")
    member.leave(member_epoch=LEAVES_FOR_A_WHILE)
    describe(peer, member.group_id)
    member.leave(member_epoch=LEAVES_FOR_A_WHILE)
    again = Member(peer, member.group_id, [topic.name], "m2", "i")
    again.join()
    again.confirm()
    describe(peer, member.group_id)
    member.beat(member_epoch=1)
    member.leave()
    again.leave()
    describe(peer, member.group_id)


@scenario
def static_member_comes_back_under_the_same_id(peer: Peer) -> None:
    _, member = alone(peer, instance_id="i")
    member.leave(member_epoch=LEAVES_FOR_A_WHILE)
    member.join()
    member.confirm()
    describe(peer, member.group_id)


@scenario
def static_member_of_an_instance_in_use(peer: Peer) -> None:
    _, member = alone(peer, instance_id="i")
    Member(peer, member.group_id, member.topics, "m2", "i").join()
    member.beat()
    Member(peer, member.group_id, member.topics, "m2", "i").leave()
    Member(peer, member.group_id, member.topics, "m2", "i", 1).beat()


@scenario
def static_member_joins_twice(peer: Peer) -> None:
    """Join twice as a static member that never got the first answer."""
    _, member = alone(peer, instance_id="i")
    member.join()


@scenario
def static_member_leaves_for_good_and_comes_back(peer: Peer) -> None:
    _, member = alone(peer, instance_id="i")
    member.leave()
    describe(peer, member.group_id)
    Member(peer, member.group_id, member.topics, "m2", "i").join()
    describe(peer, member.group_id)


@scenario
def static_member_away_while_another_joins(peer: Peer) -> None:
    """Keep the partitions of a static member that is away until it returns or gives them up for good."""
    _, member = alone(peer, instance_id="i")
    member.leave(member_epoch=LEAVES_FOR_A_WHILE)
    other = Member(peer, member.group_id, member.topics, "m2")
    other.join()
    other.beat()
    again = Member(peer, member.group_id, member.topics, "m3", "i")
    again.join()
    other.beat()
    again.confirm()
    other.confirm()
    describe(peer, member.group_id)


@scenario
def static_member_leaves_while_it_gives_back(peer: Peer) -> None:
    _, member = alone(peer, instance_id="i")
    other = Member(peer, member.group_id, member.topics, "m2")
    other.join()
    member.beat()
    member.leave(member_epoch=LEAVES_FOR_A_WHILE)
    describe(peer, member.group_id)
    other.beat()
    again = Member(peer, member.group_id, member.topics, "m3", "i")
    again.join()
    other.beat()
    again.confirm()
    describe(peer, member.group_id)


@scenario
def instance_id_comes_later(peer: Peer) -> None:
    _, member = alone(peer)
    member.beat(instance_id="i")
    member.beat(instance_id="i", **member.full())
    member.leave(member_epoch=LEAVES_FOR_A_WHILE)
    describe(peer, member.group_id)


# --- groups of the other protocol, and offsets


@scenario
def offsets_of_a_member(peer: Peer) -> None:
    topic, member = alone(peer, partitions=1)

    def commit(member_id: str, epoch: int, version: int = 9) -> None:
        partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        instance: Plain = {"group_instance_id": None} if version >= 7 else {}
        peer.call(
            "offset_commit",
            version,
            group_id=member.group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            **instance,
            topics=[{"name": topic.name, "partitions": [partition]}],
        )

    def fetch(member_id: str | None, epoch: int) -> None:
        asked: Plain = {"topics": [{"name": topic.name, "partition_indexes": [0]}]}
        asked |= {"group_id": member.group_id, "member_id": member_id, "member_epoch": epoch}
        peer.call("offset_fetch", 9, groups=[asked], require_stable=False)

    for member_id, epoch in (("m1", 1), ("m1", 2), ("m1", 0), ("m1", -1), ("m2", 1), ("", -1)):
        commit(member_id, epoch)
        fetch(member_id, epoch)
    fetch(None, -1)
    for version in (2, 8):
        for member_id, epoch in (("m1", 2), ("m1", 1), ("m2", 2), ("", -1)):
            commit(member_id, epoch, version)
    asked = {"topics": [{"name": topic.name, "partition_indexes": [0]}], "group_id": member.group_id}
    peer.call("offset_fetch", 8, groups=[asked], require_stable=False)
    peer.call(
        "offset_delete",
        0,
        group_id=member.group_id,
        topics=[{"name": topic.name, "partitions": [{"partition_index": 0}]}],
    )
    peer.call("delete_groups", 2, groups_names=[member.group_id])
    member.leave()
    commit("m1", 1)
    commit("", -1)
    peer.call(
        "offset_delete",
        0,
        group_id=member.group_id,
        topics=[{"name": topic.name, "partitions": [{"partition_index": 0}]}],
    )


@scenario
def classic_requests_to_a_consumer_group(peer: Peer) -> None:
    """Join a consumer group with a classic member that supports none of its assignors; then send Heartbeat,
    SyncGroup and LeaveGroup."""
    _, member = alone(peer)
    classic = GroupMember(peer, member.group_id, protocol_type="connect")
    classic.join()
    classic.member_id, classic.generation_id = "m1", 1
    classic.heartbeat()
    classic.sync()
    classic.leave()
    peer.call("describe_groups", 5, groups=[member.group_id])
    member.beat()


@scenario
def consumer_requests_to_a_classic_group(peer: Peer) -> None:
    group_id = peer.group()
    classic = GroupMember(peer, group_id, protocols={"range": subscription("t")})
    classic.join()
    classic.assign_itself()
    member = Member(peer, group_id, ["t"])
    member.beat(member_epoch=1)
    member.leave()
    describe(peer, group_id)
    classic.leave()
    member.beat(member_epoch=1)
    member.join()
    describe(peer, group_id)
    peer.call("describe_groups", 5, groups=[group_id])
    classic.heartbeat()
    member.leave()
    classic.member_id = ""
    classic.join()
    describe(peer, group_id)


@scenario
def described_together(peer: Peer) -> None:
    _, member = alone(peer, partitions=1)
    describe(peer, member.group_id, "nobody", member.group_id, operations=True)
    describe(peer)
