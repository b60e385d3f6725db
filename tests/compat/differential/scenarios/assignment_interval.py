"""The assignment interval of a group (KIP-1263): members that come and go within it count for the next
target.
"""

from __future__ import annotations

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario
from tests.compat.differential.scenarios.consumer_groups import Member, assignable_topic, describe
from tests.compat.differential.settling import await_applied
from tests.compat.differential.share_member import ShareMember, share_group
from tests.compat.differential.share_member import describe as describe_share_group
from tests.support.wire import Plain

GROUP = 32
SET = 0
CONSUMER, SHARE = "consumer.assignment.interval.ms", "share.assignment.interval.ms"
LONG = "15000"
"""An interval (ms) that is longer than a scenario takes."""


def _set_interval(peer: Peer, group_id: str, name: str, value: str) -> None:
    """Set the interval of a group, and wait until the group has it."""
    change = {"name": name, "config_operation": SET, "value": value}
    resource = {"resource_type": GROUP, "resource_name": group_id, "configs": [change]}
    peer.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)

    def shows(answer: Plain) -> bool:
        return bool(answer["results"][0]["configs"][0]["value"] == value)

    wanted = {"resource_type": GROUP, "resource_name": group_id, "configuration_keys": [name]}
    peer.eventually("describe_configs", 4, shows, resources=[wanted])
    await_applied(peer)


def _two_topics(peer: Peer) -> tuple[str, str]:
    return assignable_topic(peer, "t", partitions=2).name, assignable_topic(peer, "u", partitions=2).name


@scenario
def a_second_member(peer: Peer) -> None:
    """The second member gets nothing until the interval is over."""
    topic = assignable_topic(peer, partitions=4)
    group_id = peer.group()
    _set_interval(peer, group_id, CONSUMER, LONG)
    first = Member(peer, group_id, [topic.name])
    second = Member(peer.connect(), group_id, [topic.name], "m2")
    first.join()
    first.confirm()
    second.join()
    second.confirm()
    first.confirm()
    describe(peer, group_id)
    _set_interval(peer, group_id, CONSUMER, "0")
    second.confirm()
    first.confirm()
    first.confirm()
    describe(peer, group_id)


@scenario
def a_member_leaves(peer: Peer) -> None:
    topic = assignable_topic(peer, partitions=2)
    group_id = peer.group()
    first = Member(peer, group_id, [topic.name])
    second = Member(peer.connect(), group_id, [topic.name], "m2")
    first.join()
    second.join()
    first.confirm()
    first.confirm()
    second.confirm()
    _set_interval(peer, group_id, CONSUMER, LONG)
    second.leave()
    first.confirm()
    describe(peer, group_id)
    second.join()
    first.confirm()
    describe(peer, group_id)


@scenario
def a_member_drops_a_topic(peer: Peer) -> None:
    """Partitions of the dropped topic are revoked at once, although the target is older."""
    one, two = _two_topics(peer)
    group_id = peer.group()
    _set_interval(peer, group_id, CONSUMER, LONG)
    member = Member(peer, group_id, [one, two])
    member.join()
    member.confirm()
    owned = member.owned
    member.beat(subscribed_topic_names=[two], topic_partitions=owned)
    member.beat(topic_partitions=owned)
    describe(peer, group_id)
    member.confirm()
    member.confirm()
    describe(peer, group_id)


@scenario
def a_member_drops_a_topic_that_it_does_not_own(peer: Peer) -> None:
    one, two = _two_topics(peer)
    group_id = peer.group()
    _set_interval(peer, group_id, CONSUMER, LONG)
    member = Member(peer, group_id, [one, two])
    member.join()
    member.beat(subscribed_topic_names=[two], topic_partitions=[])
    describe(peer, group_id)
    member.confirm()
    describe(peer, group_id)


@scenario
def a_member_takes_up_a_topic(peer: Peer) -> None:
    one, two = _two_topics(peer)
    group_id = peer.group()
    _set_interval(peer, group_id, CONSUMER, LONG)
    member = Member(peer, group_id, [one])
    member.join()
    member.confirm()
    member.beat(subscribed_topic_names=[one, two])
    member.confirm()
    describe(peer, group_id)
    member.beat(subscribed_topic_names=[two])
    member.confirm()
    member.confirm()
    describe(peer, group_id)


@scenario
def a_static_member_returns(peer: Peer) -> None:
    topic = assignable_topic(peer, partitions=2)
    group_id = peer.group()
    _set_interval(peer, group_id, CONSUMER, LONG)
    first = Member(peer, group_id, [topic.name], instance_id="i")
    first.join()
    first.confirm()
    first.leave(member_epoch=-2)
    again = Member(peer, group_id, [topic.name], "m2", "i")
    again.join()
    again.confirm()
    describe(peer, group_id)


@scenario
def sharers(peer: Peer) -> None:
    """The second member of a share group gets nothing until the interval is over.

    With two partitions Kafka would choose by the hash of the topic id which of them the second member gets.
    """
    topic = peer.topic(partitions=1)
    group_id = share_group(peer)
    first = ShareMember(peer, group_id, [topic])
    first.await_partitions(1, subscribed_topic_names=[topic.name])
    _set_interval(peer, group_id, SHARE, LONG)
    second = ShareMember(peer.connect(), group_id, [topic], 2)
    second.join()
    second.beat()
    first.beat()
    describe_share_group(peer, group_id)
    _set_interval(peer, group_id, SHARE, "0")
    second.beat()
    first.beat()
    describe_share_group(peer, group_id)


@scenario
def a_sharer_drops_a_topic(peer: Peer) -> None:
    one, two = peer.topic("t", partitions=1), peer.topic("u", partitions=1)
    group_id = share_group(peer)
    member = ShareMember(peer, group_id, [one, two])
    member.await_partitions(2, subscribed_topic_names=[one.name, two.name])
    _set_interval(peer, group_id, SHARE, LONG)
    member.beat(subscribed_topic_names=[two.name])
    member.beat()
    describe_share_group(peer, group_id)
