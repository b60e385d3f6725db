"""Topologies of streams groups: topics that are missing or do not fit, internal topics, and topologies that
change.
"""

from __future__ import annotations

from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.scenarios.consumer_groups import assignable_topic, await_topics
from tests.compat.differential.streams_member import (
    StreamsMember,
    alone,
    beside,
    copartition,
    describe,
    internal,
    subtopology,
    topology,
)
from tests.support.wire import NO_TOPIC_ID, Plain

TOPIC_RESOURCE = 2


def _counting(peer: Peer, group_id: str, source: Topic, *, partitions: int = 0) -> Plain:
    """Return the topology of an application that counts by another key: a repartition topic, then a store."""
    names = peer.name("words-repartition"), peer.name("counts-changelog")
    repartition = internal(names[0], partitions=partitions, configs={"cleanup.policy": "delete"})
    changelog = internal(names[1], configs={"cleanup.policy": "compact"})
    return topology(
        subtopology("0", source.name, sinks=[names[0]]),
        subtopology("1", repartitions=[repartition], changelogs=[changelog]),
    )


def _note_topics(peer: Peer, *suffixes: str) -> None:
    """Record the partitions and the configs of topics."""
    asked = [{"name": peer.name(suffix)} for suffix in suffixes]
    answer = peer.wire.call("metadata", 12, topics=asked, allow_auto_topic_creation=False).fields
    found = {row["name"]: row for row in answer["topics"]}
    for name, row in found.items():
        peer.note(
            f"topic {name.removeprefix(peer.transcript.prefix)}",
            error_code=row["error_code"],
            partitions=len(row["partitions"]),
        )
    wanted = ("cleanup.policy", "segment.bytes", "retention.ms", "message.timestamp.type")
    resources = [
        {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configuration_keys": list(wanted)}
        for name, row in found.items()
        if not row["error_code"]
    ]
    peer.call("describe_configs", 4, resources=resources, include_synonyms=False)


# --- source topics


@scenario
def source_topic_that_does_not_exist_yet(peer: Peer) -> None:
    member = StreamsMember(peer, peer.group(), topology(subtopology("0", peer.name())))
    member.join()
    describe(peer, member.group_id)
    member.beat()
    member.confirm()
    assignable_topic(peer, partitions=2)
    member.await_tasks(2)
    member.confirm()
    describe(peer, member.group_id)


@scenario
def one_of_two_source_topics_is_missing(peer: Peer) -> None:
    topic = assignable_topic(peer, partitions=2)
    member = StreamsMember(
        peer,
        peer.group(),
        topology(subtopology("0", topic.name), subtopology("1", peer.name("missing"), peer.name("also"))),
    )
    member.join()
    member.beat()
    describe(peer, member.group_id)
    member.leave()
    describe(peer, member.group_id)


@scenario
def source_topic_grows(peer: Peer) -> None:
    topic, member = alone(peer, partitions=2)
    wanted = [{"name": topic.name, "count": 4, "assignments": None}]
    peer.call("create_partitions", 3, topics=wanted, timeout=5_000, validate_only=False)
    member.await_tasks(4)
    member.confirm()
    describe(peer, member.group_id)


@scenario
def source_topic_is_deleted(peer: Peer) -> None:
    topic, member = alone(peer, partitions=2)
    rows = [{"name": topic.name, "topic_id": NO_TOPIC_ID}]
    peer.call("delete_topics", 6, topics=rows, timeout=5_000)
    peer.eventually("streams_group_heartbeat", 0, lambda answer: bool(answer["status"]), **member.request())
    member.beat()
    member.confirm()
    describe(peer, member.group_id)


@scenario_for_each({"more in the second": (2, 3), "as many": (2, 2)})
def topics_of_one_subtopology(peer: Peer, partitions: tuple[int, int]) -> None:
    """A subtopology has as many tasks as its largest topic has partitions."""
    left = assignable_topic(peer, "left", partitions=partitions[0])
    right = assignable_topic(peer, "right", partitions=partitions[1])
    member = StreamsMember(peer, peer.group(), topology(subtopology("0", left.name, right.name)))
    member.join()
    member.confirm()
    describe(peer, member.group_id)


@scenario_for_each({"as many": (2, 2), "not as many": (2, 3)})
def topics_that_are_joined(peer: Peer, partitions: tuple[int, int]) -> None:
    left = assignable_topic(peer, "left", partitions=partitions[0])
    right = assignable_topic(peer, "right", partitions=partitions[1])
    joined = subtopology("0", left.name, right.name, copartitions=[copartition(0, 1)])
    member = StreamsMember(peer, peer.group(), topology(joined))
    member.join()
    member.confirm()
    describe(peer, member.group_id)


@scenario
def no_source_topic(peer: Peer) -> None:
    member = StreamsMember(peer, peer.group(), topology(subtopology("0")))
    member.join()
    member.beat()
    describe(peer, member.group_id)


@scenario
def regular_expression(peer: Peer) -> None:
    topic = assignable_topic(peer, partitions=2)
    named = subtopology("0", topic.name, regexes=[f"{peer.transcript.prefix}t.*"])
    for suffix, part in (("a", named), ("b", subtopology("0", regexes=[f"{peer.transcript.prefix}.*"]))):
        member = StreamsMember(peer, peer.group(suffix), topology(part))
        member.join()
        member.confirm()
        describe(peer, member.group_id)


@scenario_for_each({"broken": "(a", "empty": ""})
def regular_expression_that_is_none(peer: Peer, regex: str) -> None:
    member = StreamsMember(peer, peer.group(), topology(subtopology("0", "t", regexes=[regex])))
    member.join()
    describe(peer, member.group_id)


# --- internal topics


@scenario_for_each({"as the source": 0, "given": 3})
def internal_topics_are_created(peer: Peer, partitions: int) -> None:
    source = assignable_topic(peer, partitions=2)
    group_id = peer.group()
    member = StreamsMember(peer, group_id, _counting(peer, group_id, source, partitions=partitions))
    member.join()
    member.await_tasks(2 + (partitions or 2))
    member.confirm()
    describe(peer, group_id)
    _note_topics(peer, "words-repartition", "counts-changelog")


@scenario_for_each({"as many": 2, "not as many": 3})
def changelog_that_exists(peer: Peer, partitions: int) -> None:
    source = assignable_topic(peer, partitions=2)
    store = assignable_topic(peer, "store-changelog", partitions=partitions)
    group_id = peer.group()
    await_topics(peer, group_id, [source.name, store.name], 2 + partitions)
    stateful = topology(subtopology("0", source.name, changelogs=[internal(store.name)]))
    member = StreamsMember(peer, group_id, stateful)
    member.join()
    member.confirm()
    describe(peer, group_id)


@scenario
def repartition_topic_that_exists(peer: Peer) -> None:
    source = assignable_topic(peer, partitions=2)
    assignable_topic(peer, "words-repartition", partitions=2)
    group_id = peer.group()
    member = StreamsMember(peer, group_id, _counting(peer, group_id, source, partitions=2))
    member.await_tasks(4, **member.full())
    describe(peer, group_id)


@scenario
def repartition_topic_with_other_partitions(peer: Peer) -> None:
    source = assignable_topic(peer, partitions=2)
    assignable_topic(peer, "words-repartition", partitions=3)
    group_id = peer.group()
    member = StreamsMember(peer, group_id, _counting(peer, group_id, source, partitions=2))
    member.join()
    member.beat()
    describe(peer, group_id)


def _with_changelog(peer: Peer, configs: dict[str, str]) -> StreamsMember:
    """Return a member, not joined, whose store has a changelog with these configs."""
    source = assignable_topic(peer, partitions=1)
    changelog = internal(peer.name("store-changelog"), configs=configs)
    return StreamsMember(peer, peer.group(), topology(subtopology("0", source.name, changelogs=[changelog])))


@scenario_for_each(
    {
        "compact and delete": {"cleanup.policy": "compact,delete", "retention.ms": "86400000"},
        "segment size": {"segment.bytes": "52428800", "message.timestamp.type": "CreateTime"},
    }
)
def configs_of_a_changelog(peer: Peer, configs: dict[str, str]) -> None:
    member = _with_changelog(peer, configs)
    member.await_tasks(1, **member.full())
    describe(peer, member.group_id)
    _note_topics(peer, "store-changelog")


@scenario_for_each({"unknown config": {"no.such.config": "1"}, "invalid value": {"cleanup.policy": "burn"}})
def refused_configs_of_a_changelog(peer: Peer, configs: dict[str, str]) -> None:
    member = _with_changelog(peer, configs)
    member.join()
    member.beat()
    describe(peer, member.group_id)


@scenario_for_each({"two": 2, "more than there are brokers": 7})
def replication_factor_of_a_changelog(peer: Peer, factor: int) -> None:
    source = assignable_topic(peer, partitions=1)
    changelog = {**internal(peer.name("store-changelog")), "replication_factor": factor}
    member = StreamsMember(
        peer, peer.group(), topology(subtopology("0", source.name, changelogs=[changelog]))
    )
    member.join()
    member.beat()


# --- topologies that are refused


@scenario_for_each(
    {
        "no subtopologies": topology(),
        "epoch -1": topology(subtopology("0", "t"), epoch=-1),
        "epoch 5": topology(subtopology("0", "t"), epoch=5),
        "subtopology twice": topology(subtopology("0", "t"), subtopology("0", "u")),
        "subtopology without an id": topology(subtopology("", "t")),
        "source topic twice": topology(subtopology("0", "t", "t")),
        "source topic of two subtopologies": topology(subtopology("0", "t"), subtopology("1", "t")),
        "name that is none": topology(subtopology("0", "a b")),
        "empty name": topology(subtopology("0", "")),
        "changelog name that is none": topology(subtopology("0", "t", changelogs=[internal("a b")])),
        "internal source topic": topology(subtopology("0", "__consumer_offsets")),
        "changelog with partitions": topology(
            subtopology("0", "t", changelogs=[internal("c", partitions=3)])
        ),
        "repartition topic of nobody": topology(subtopology("0", repartitions=[internal("r")])),
        "circle of repartition topics": topology(
            subtopology("0", repartitions=[internal("r")], sinks=["s"]),
            subtopology("1", repartitions=[internal("s")], sinks=["r"]),
        ),
        "copartition index": topology(subtopology("0", "t", copartitions=[copartition(4)])),
        "negative copartition index": topology(subtopology("0", "t", copartitions=[copartition(-1)])),
    }
)
def topology_with(peer: Peer, sent: Plain) -> None:
    member = StreamsMember(peer, peer.group(), sent)
    member.join()
    describe(peer, member.group_id)


# --- topologies that change


@scenario_for_each({"the same epoch": 0, "a higher epoch": 1})
def another_member_has_another_topology(peer: Peer, epoch: int) -> None:
    topic, first = alone(peer, partitions=2)
    other = assignable_topic(peer, "other", partitions=2)
    second = beside(first)
    second.topology = topology(subtopology("0", topic.name), subtopology("1", other.name), epoch=epoch)
    second.join()
    describe(peer, first.group_id)
    first.beat()
    second.beat()


@scenario
def the_only_member_returns_with_another_topology(peer: Peer) -> None:
    topic, member = alone(peer, partitions=2)
    other = assignable_topic(peer, "other", partitions=2)
    member.topology = topology(subtopology("0", topic.name), subtopology("1", other.name))
    member.join()
    describe(peer, member.group_id)
    member.confirm()
    member.leave()
    member.join()
    member.confirm()
    describe(peer, member.group_id)


@scenario
def a_member_with_a_higher_epoch_upgrades_a_group_alone(peer: Peer) -> None:
    topic, member = alone(peer, partitions=2)
    member.leave()
    member.topology = topology(subtopology("5", topic.name), epoch=3)
    member.join()
    member.confirm()
    describe(peer, member.group_id)
    late = beside(member)
    late.topology = topology(subtopology("0", topic.name), epoch=0)
    late.join()
    late.beat()
    describe(peer, member.group_id)


@scenario
def another_order_of_the_same_topology(peer: Peer) -> None:
    left, right = (assignable_topic(peer, suffix, partitions=1) for suffix in ("left", "right"))
    parts = subtopology("0", left.name), subtopology("1", right.name)
    first = StreamsMember(peer, peer.group(), topology(*parts))
    first.join()
    first.confirm()
    second = beside(first)
    second.topology = topology(*reversed(parts))
    second.join()
    third = beside(first, "m3", "p3")
    third.topology = topology(subtopology("0", right.name), subtopology("1", left.name))
    third.join()
    describe(peer, first.group_id)
