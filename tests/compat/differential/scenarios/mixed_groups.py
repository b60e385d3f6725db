"""Consumer groups with classic members: when classic members get REBALANCE_IN_PROGRESS, and which errors
refuse their requests.
"""

from __future__ import annotations

from tests.compat.differential.group_member import GroupMember, assignment, owning
from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.scenarios.consumer_groups import Member, alone, assignable_topic
from tests.compat.differential.share_member import ShareMember, share_group
from tests.support.wire import Plain


def _classic(peer: Peer, group_id: str, topic: str, instance_id: str | None = None) -> GroupMember:
    return GroupMember(peer, group_id, instance_id, {"range": owning({topic: []})})


def _alone_by_range(peer: Peer) -> tuple[Topic, Member]:
    """Return a group that is assigned by range, which sorts static members by their instance ids and not by
    drawn ids.
    """
    topic, member = alone(peer)
    member.beat(server_assignor="range")
    return topic, member


def _two_classic(peer: Peer) -> tuple[Member, GroupMember, GroupMember]:
    """Return a member of the consumer protocol and two classic ones, each with its assigned partitions."""
    topic, member = _alone_by_range(peer)
    first = _classic(peer, member.group_id, topic.name, "i")
    second = _classic(peer, member.group_id, topic.name, "j")
    for _ in range(3):
        for classic in (first, second):
            classic.join()
            classic.sync()
        member.confirm()
    return member, first, second


@scenario
def one_of_two_leaves(peer: Peer) -> None:
    """No member has to join again before the coordinator has assigned the partitions of the member that left."""
    member, first, second = _two_classic(peer)
    first.leave()
    second.heartbeat()
    second.sync()
    member.beat()
    second.heartbeat()
    second.sync()
    second.join()
    second.sync()
    second.heartbeat()


@scenario
def the_member_of_the_new_protocol_leaves(peer: Peer) -> None:
    member, first, second = _two_classic(peer)
    member.leave()
    for classic in (first, second):
        classic.heartbeat()
        classic.sync()
    peer.call("describe_groups", 5, groups=[member.group_id])


@scenario
def one_joins_while_another_stays(peer: Peer) -> None:
    topic, member = _alone_by_range(peer)
    first = _classic(peer, member.group_id, topic.name, "i")
    first.join()
    first.heartbeat()
    first.sync()
    first.heartbeat()
    member.confirm()
    second = _classic(peer, member.group_id, topic.name, "j")
    second.join()
    first.heartbeat()
    first.sync()
    second.heartbeat()
    member.beat()
    first.heartbeat()


REFUSED: dict[str, Plain] = {
    "protocol type": {"protocol_type": "connect"},
    "no protocols": {"protocols": []},
    "member id": {"member_id": "nobody"},
    "instance id": {"member_id": "nobody", "group_instance_id": "i"},
    "short session": {"session_timeout": 1},
    "unreadable subscription": {"protocols": [{"name": "range", "metadata": b"\0"}]},
}


@scenario_for_each({f"{name} v{version}": (version, name) for name in REFUSED for version in (3, 5, 9)})
def refused(peer: Peer, case: tuple[int, str]) -> None:
    version, name = case
    _, member = alone(peer)
    classic = _classic(peer, member.group_id, "t")
    request = classic.join_request(member_id="given") | REFUSED[name]
    peer.call("join_group", version, **request)


@scenario_for_each((3, 9))
def refused_by_a_share_group(peer: Peer, version: int) -> None:
    topic = peer.topic()
    group_id = share_group(peer)
    ShareMember(peer, group_id, [topic]).await_partitions(1, subscribed_topic_names=[topic.name])
    classic = _classic(peer, group_id, topic.name)
    for member_id in ("", "given"):
        peer.call("join_group", version, **classic.join_request(member_id=member_id))


@scenario
def a_member_without_a_subscription_joins(peer: Peer) -> None:
    """Partitions that the classic leader has not assigned stay unassigned until subscriptions or topics
    change.
    """
    topic = assignable_topic(peer, partitions=2)
    classic = _classic(peer, peer.group(), topic.name)
    classic.join()
    classic.sync({classic.member_id: assignment(topic.name, 0)})
    member = Member(peer, classic.group_id, [])
    member.join()
    classic.heartbeat()
    member.beat(subscribed_topic_names=[topic.name])
    classic.heartbeat()
