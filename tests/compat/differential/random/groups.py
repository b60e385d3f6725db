"""Groups of the consumer and the classic protocol: members that join, stay, leave and commit at right and
wrong epochs.

The coordinator assigns by range, which sorts static members by their instance ids and the others by member
id. Classic members are static, because the ids that coordinators give them are random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tests.compat.differential.group_member import GroupMember, assignment, committed, fetch_offsets, owning
from tests.compat.differential.peer import Peer, Pending, Topic
from tests.compat.differential.random.sequence import World, drawn, one_of
from tests.compat.differential.scenarios.consumer_groups import LEAVES, LEAVES_FOR_A_WHILE, Member
from tests.support.wire import Plain

CONSUMERS, CLASSICS = 3, 2
STATIC = {0: None, 1: None, 2: "i"}
FIRST_WITH_INSTANCE_ID = 7
consumer = one_of(*range(CONSUMERS))
classic = one_of(*range(CLASSICS))
topics = one_of((0,), (1,), (0, 1), ())
delta = one_of(0, 0, 0, -1, -1, -2, 1)
partition = one_of(0, 1, 2, 9)
commit_version = one_of(8, 9, 9, 10)


class Groups(World):
    family = "groups"
    table: ClassVar = {
        "join": (5, drawn(consumer, topics)),
        "beat": (12, drawn(consumer)),
        "confirm": (10, drawn(consumer)),
        "beat_at": (3, drawn(consumer, delta, one_of(True, False))),
        "subscribe": (2, drawn(consumer, topics)),
        "leave": (3, drawn(consumer, one_of(LEAVES, LEAVES, LEAVES_FOR_A_WHILE))),
        "classic_join": (5, drawn(classic)),
        "classic_heartbeat": (5, drawn(classic, delta)),
        "classic_sync": (3, drawn(classic, delta)),
        "classic_leave": (2, drawn(classic)),
        "commit": (10, drawn(consumer, one_of(0, 1), partition, delta, commit_version)),
        "commit_all": (4, drawn(consumer, delta)),
        "classic_commit": (5, drawn(classic, one_of(0, 1), partition, delta, commit_version)),
        "commit_as_nobody": (2, drawn(one_of(0, 1), partition, one_of(-1, 3))),
        "fetch": (3, drawn(consumer, delta)),
        "describe": (3, drawn()),
        "delete_offset": (1, drawn(one_of(0, 1), partition)),
        "delete_group": (1, drawn()),
    }
    length = 40

    def __init__(self, peer: Peer, name: str, topics: Sequence[Topic]) -> None:
        super().__init__(peer, name, topics)
        self.group_id = peer.group()
        self.members = [
            Member(peer, self.group_id, [topics[0].name], f"m{number}", STATIC[number])
            for number in range(CONSUMERS)
        ]
        self.joined: set[int] = set()
        self.classics = [
            GroupMember(peer.connect(), self.group_id, f"j{number}", {"range": owning({topics[0].name: []})})
            for number in range(CLASSICS)
        ]
        self.offset = 0

    def _names(self, chosen: Sequence[int]) -> list[str]:
        return [self.topics[number].name for number in chosen]

    # The consumer protocol.

    def join(self, number: int, chosen: Sequence[int]) -> None:
        member = self.members[number]
        if number in self.joined and member.instance_id is not None:
            return  # a static member that joins twice has a known difference
        if not chosen:
            return  # after another one has left, Kafka may take all partitions from those with topics
        member.topics = self._names(chosen)
        if member.join(server_assignor="range").get("error_code") == 0:
            self.joined.add(number)

    def beat(self, number: int) -> None:
        self.members[number].beat()

    def confirm(self, number: int) -> None:
        self.members[number].confirm()

    def beat_at(self, number: int, delta: int, tells: bool) -> None:
        member = self.members[number]
        more: Plain = {"topic_partitions": member.owned} if tells else {}
        epoch = max(1, member.member_epoch + delta)
        self.peer.call("consumer_group_heartbeat", 1, **member.request(member_epoch=epoch, **more))

    def subscribe(self, number: int, chosen: Sequence[int]) -> None:
        self.members[number].beat(subscribed_topic_names=self._names(chosen))

    def leave(self, number: int, how: int) -> None:
        """Leave, unless only classic members would remain: the answers after that have a known difference."""
        if self.joined <= {number} and any(member.member_id for member in self.classics):
            return
        self.members[number].leave(member_epoch=how)
        self.joined.discard(number)

    # The classic protocol.

    def classic_join(self, number: int) -> None:
        """Let a member join together with all members that have joined before, so that no JoinGroup waits;
        then sync.
        """
        members = [self.classics[number]]
        members += [one for one in self.classics if one.member_id and one is not members[0]]
        pending = [self._begun_join(one) for one in members]
        answers = [one.joined(waiting.answer()) for one, waiting in zip(members, pending, strict=True)]
        leads = [one for one, answer in zip(members, answers, strict=True) if answer.get("members")]
        followers = [
            one for one, answer in zip(members, answers, strict=True) if answer.get("error_code") == 0
        ]
        for one in dict.fromkeys([*map(id, leads), *map(id, followers)]):
            self._sync_one(next(member for member in members if id(member) == one), leads)

    def _begun_join(self, member: GroupMember) -> Pending:
        """Send JoinGroup, and wait until the coordinator has it: it answers, or the group is in state
        PreparingRebalance.
        """
        pending = member.begin_join()
        self.peer.until(
            "describe_groups",
            5,
            lambda answer: answer["groups"][0]["group_state"] == "PreparingRebalance" or pending.is_there(),
            {"groups": [self.group_id]},
        )
        return pending

    def _sync_one(self, member: GroupMember, leads: Sequence[GroupMember]) -> None:
        shares = {}
        if member in leads:
            others = [one for one in self.classics if one.member_id]
            shares = {
                one.member_id: assignment(self.topics[0].name, index) for index, one in enumerate(others)
            }
        member.sync(shares)

    def classic_heartbeat(self, number: int, delta: int) -> None:
        member = self.classics[number]
        member.heartbeat(generation_id=member.generation_id + delta)

    def classic_sync(self, number: int, delta: int) -> None:
        member = self.classics[number]
        member.sync(generation_id=member.generation_id + delta)

    def classic_leave(self, number: int) -> None:
        member = self.classics[number]
        member.leave()
        member.member_id, member.generation_id = "", -1

    # Offsets.

    def commit(self, number: int, topic: int, index: int, delta: int, version: int) -> None:
        member = self.members[number]
        self._commit(member.member_id, member.member_epoch + delta, {topic: [index]}, version)

    def commit_all(self, number: int, delta: int) -> None:
        """Commit an offset for each partition that the member owns."""
        member = self.members[number]
        by_id = {topic.topic_id: place for place, topic in enumerate(self.topics)}
        owned = {by_id[topic["topic_id"]]: topic["partitions"] for topic in member.owned}
        self._commit(member.member_id, member.member_epoch + delta, owned, 9)

    def classic_commit(self, number: int, topic: int, index: int, delta: int, version: int) -> None:
        member = self.classics[number]
        self._commit(member.member_id, member.generation_id + delta, {topic: [index]}, version)

    def commit_as_nobody(self, topic: int, index: int, epoch: int) -> None:
        self._commit("", epoch, {topic: [index]}, 9)

    def _commit(self, member_id: str, epoch: int, places: dict[int, Any], version: int) -> None:
        self.offset += 1
        instance: Plain = {"group_instance_id": None} if version >= FIRST_WITH_INSTANCE_ID else {}
        rows = [
            committed(self.topics[topic], dict.fromkeys(sorted(indexes), self.offset))
            for topic, indexes in sorted(places.items())
        ]
        self.peer.call(
            "offset_commit",
            version,
            group_id=self.group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=rows,
            **instance,
        )

    def fetch(self, number: int, delta: int) -> None:
        member = self.members[number]
        asked = {"group_id": self.group_id, "member_id": member.member_id, "topics": None}
        asked["member_epoch"] = member.member_epoch + delta
        self.peer.call("offset_fetch", 9, groups=[asked], require_stable=False)

    # Administration.

    def describe(self) -> None:
        self.peer.call(
            "consumer_group_describe", 1, group_ids=[self.group_id], include_authorized_operations=False
        )
        self.peer.call("describe_groups", 6, groups=[self.group_id])

    def delete_offset(self, topic: int, index: int) -> None:
        rows = [{"name": self.topics[topic].name, "partitions": [{"partition_index": index}]}]
        self.peer.call("offset_delete", 0, group_id=self.group_id, topics=rows)

    def delete_group(self) -> None:
        self.peer.call("delete_groups", 2, groups_names=[self.group_id])

    def finish(self) -> None:
        self.describe()
        fetch_offsets(self.peer, self.group_id, None)
