"""Heartbeats and descriptions of consumer groups and streams groups (KIP-848, KIP-1071)."""

from __future__ import annotations

from tests.compat.differential.rights.stage import Stage
from tests.compat.differential.rights.table import (
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    READ_GROUP,
    row,
)
from tests.compat.differential.scenarios.consumer_groups import Member
from tests.support.wire import Plain


def _coordinated(stage: Stage) -> None:
    """Wait until both groups have a coordinator that knows both topics."""
    for suffix in ("group", "other-group"):
        stage.admin.group(suffix)
    stage.make_known()


def _beat(group_id: str, **more: object) -> Plain:
    return {
        "group_id": group_id,
        "member_id": "m1",
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "topic_partitions": [],
        "subscribed_topic_names": None,
        **more,
    }


@row(READ_GROUP, DESCRIBE_TOPIC, cases=(0, 1), prepare=_coordinated)
def consumer_group_heartbeat(stage: Stage, version: int) -> None:
    """Join by names: one that may be described, then both, then one that does not exist."""
    open_, closed, missing, hidden = stage.topics
    subscribed = ([open_], [open_, closed], [missing], [hidden])
    for group_id in stage.groups:
        for names in subscribed:
            stage.user.call(
                "consumer_group_heartbeat", version, **_beat(group_id, subscribed_topic_names=names)
            )


@row(READ_GROUP, DESCRIBE_TOPIC, prepare=_coordinated)
def consumer_group_heartbeat_without_topics(stage: Stage) -> None:
    for group_id in stage.groups:
        stage.user.call("consumer_group_heartbeat", 1, **_beat(group_id, member_epoch=5))


@row(READ_GROUP, DESCRIBE_TOPIC, prepare=_coordinated)
def consumer_group_heartbeat_by_an_expression(stage: Stage) -> None:
    """Join by an expression that matches both topics, and leave.

    The member gets the topics that it may describe now, whatever it got in the group before. Kafka resolves
    expressions in the background, so the epochs on the way are not compared.
    """
    regex = f"{stage.open.name.removesuffix('open')}(open|closed)"
    member = Member(stage.user, stage.groups[0], [])
    joining = member.request(**member.full(subscribed_topic_names=None, subscribed_topic_regex=regex))
    error = stage.user.wire.call("consumer_group_heartbeat", 1, joining).fields["error_code"]
    if not error:
        member.await_partitions(1 if stage.step == "has all" else 0, **joining)
    assigned = [topic["topic_id"] == stage.open.topic_id for topic in member.owned]
    stage.user.note("joined", error=error, assigned_is_open=assigned)
    if not error:
        member.leave()


def _with_members(stage: Stage) -> None:
    """Let one member of each group subscribe to a topic, and one of a third group to a topic that is closed."""
    _coordinated(stage)
    joins = zip(stage.groups, ([stage.open.name], [stage.closed.name]), strict=True)
    for group_id, names in joins:
        stage.admin.wire.call("consumer_group_heartbeat", 1, _beat(group_id, subscribed_topic_names=names))


@row(DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_GROUP, cases=(0, 1), prepare=_with_members)
def consumer_group_describe(stage: Stage, version: int) -> None:
    stage.call_in_any_order(
        "consumer_group_describe",
        version,
        "groups",
        group_ids=[*stage.groups, stage.name("no-group")],
        include_authorized_operations=True,
    )


def _subscribed_to_both(stage: Stage) -> None:
    _coordinated(stage)
    names = [stage.open.name, stage.closed.name]
    stage.admin.wire.call("consumer_group_heartbeat", 1, _beat(stage.groups[0], subscribed_topic_names=names))


@row(DESCRIBE_GROUP, DESCRIBE_TOPIC, prepare=_subscribed_to_both)
def consumer_group_describe_with_a_closed_topic(stage: Stage) -> None:
    stage.user.call("consumer_group_describe", 1, group_ids=[stage.groups[0]])


def _topology(source: str, **more: object) -> Plain:
    """Return a topology of one part that reads one topic."""
    return {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": [source], **more}]}


def _streams_beat(group_id: str, **more: object) -> Plain:
    return {
        "group_id": group_id,
        "member_id": "m1",
        "member_epoch": 0,
        "endpoint_information_epoch": 0,
        "rebalance_timeout": 60_000,
        "topology": None,
        "process_id": "p1",
        "client_tags": [],
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        **more,
    }


@row(READ_GROUP, DESCRIBE_TOPIC, prepare=_coordinated)
def streams_group_heartbeat(stage: Stage) -> None:
    open_, closed, missing, hidden = stage.topics
    for group_id in stage.groups:
        for source in (open_, closed, missing, hidden):
            stage.user.call(
                "streams_group_heartbeat", 0, **_streams_beat(group_id, topology=_topology(source))
            )


def _with_a_changelog(stage: Stage, right: str) -> None:
    """Join with a topology whose changelog does not exist yet; `missing` is among the names of the entries."""
    part = _topology(stage.open.name, state_changelog_topics=[{"name": stage.name("missing")}])
    group_id = f"{stage.groups[0]}"
    stage.user.call("streams_group_heartbeat", 0, **_streams_beat(group_id, topology=part, member_id=right))


@row(READ_GROUP, DESCRIBE_TOPIC, CREATE_TOPIC, prepare=_coordinated)
def streams_changelog_by_the_topic(stage: Stage) -> None:
    _with_a_changelog(stage, "m1")


@row(READ_GROUP, DESCRIBE_TOPIC, CREATE_CLUSTER, prepare=_coordinated)
def streams_changelog_by_the_cluster(stage: Stage) -> None:
    _with_a_changelog(stage, "m1")


def _with_streams(stage: Stage) -> None:
    _coordinated(stage)
    for group_id, source in zip(stage.groups, (stage.open.name, stage.closed.name), strict=True):
        stage.admin.wire.call(
            "streams_group_heartbeat", 0, _streams_beat(group_id, topology=_topology(source))
        )


@row(DESCRIBE_GROUP, DESCRIBE_TOPIC, prepare=_with_streams)
def streams_group_describe(stage: Stage) -> None:
    stage.call_in_any_order(
        "streams_group_describe",
        0,
        "groups",
        group_ids=[*stage.groups, stage.name("no-group")],
        include_authorized_operations=True,
    )


@row(READ_GROUP, prepare=_with_streams)
def streams_group_topology_description_update(stage: Stage) -> None:
    source = {"name": "source", "node_type": 1, "source_topics": [stage.closed.name]}
    part = {"subtopology_id": "0", "nodes": [source]}
    for group_id in stage.groups:
        stage.user.call(
            "streams_group_topology_description_update",
            0,
            group_id=group_id,
            member_id="m1",
            topology_epoch=0,
            topology_description={"subtopologies": [part]},
        )
