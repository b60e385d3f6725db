"""The APIs of share groups (KIP-932)."""

from __future__ import annotations

from tests.compat.differential.rights.stage import Stage
from tests.compat.differential.rights.table import (
    CLUSTER_ACTION,
    DELETE_GROUP,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    READ_GROUP,
    READ_TOPIC,
    row,
)
from tests.compat.differential.share_member import ShareMember, member_id, said
from tests.support.wire import Plain


def _coordinated(stage: Stage) -> None:
    """Wait until both groups have a coordinator that knows both topics."""
    for suffix in ("group", "other-group"):
        stage.admin.group(suffix)
    stage.make_known()


@row(READ_GROUP, DESCRIBE_TOPIC, prepare=_coordinated)
def share_group_heartbeat(stage: Stage) -> None:
    """Join by topics; Kafka assigns partitions of topics that exist at a time of its own."""
    open_, closed, missing, hidden = stage.topics
    for group_id in stage.groups:
        for names in ([open_, closed], [missing], [hidden], None):
            stage.user.call(
                "share_group_heartbeat",
                1,
                group_id=group_id,
                member_id=member_id(1),
                member_epoch=0 if names else 5,
                rack_id=None,
                subscribed_topic_names=names,
            )


def _with_members(stage: Stage) -> None:
    _coordinated(stage)
    for group_id, topic in zip(stage.groups, (stage.open, stage.closed), strict=True):
        ShareMember(stage.admin, group_id, (topic,)).await_partitions(
            1, member_epoch=0, subscribed_topic_names=[topic.name]
        )


@row(DESCRIBE_GROUP, DESCRIBE_TOPIC, prepare=_with_members)
def share_group_describe(stage: Stage) -> None:
    stage.call_in_any_order(
        "share_group_describe",
        1,
        "groups",
        group_ids=[*stage.groups, stage.name("no-group")],
        include_authorized_operations=True,
    )


def _describe_one(stage: Stage) -> None:
    for operations in (False, True):
        stage.user.call(
            "share_group_describe", 1, group_ids=stage.groups[:1], include_authorized_operations=operations
        )


def _with_a_member_for_each_topic(stage: Stage) -> None:
    _coordinated(stage)
    for number, topic in enumerate((stage.open, stage.closed), 1):
        ShareMember(stage.admin, stage.groups[0], (topic,), number).await_partitions(
            1, member_epoch=0, subscribed_topic_names=[topic.name]
        )


@row(DESCRIBE_GROUP, DESCRIBE_TOPIC, prepare=_with_a_member_for_each_topic)
def share_group_describe_with_a_hidden_topic(stage: Stage) -> None:
    """Describe a group of which one member reads a topic that the user may never describe."""
    _describe_one(stage)


def _with_a_member_without_partitions(stage: Stage) -> None:
    _coordinated(stage)
    ShareMember(stage.admin, stage.groups[0]).await_partitions(
        0, member_epoch=0, subscribed_topic_names=[stage.name("missing"), stage.name("hidden")]
    )


@row(DESCRIBE_GROUP, DESCRIBE_TOPIC, prepare=_with_a_member_without_partitions)
def share_group_describe_without_partitions(stage: Stage) -> None:
    """Describe a member that subscribes to topics and reads none of them."""
    _describe_one(stage)


def _fetch(stage: Stage, group_id: str, *acknowledged: Plain) -> Plain:
    partitions = [{"partition_index": 0, "acknowledgement_batches": list(acknowledged)}]
    topics = [{"topic_id": topic.topic_id, "partitions": partitions} for topic in (stage.open, stage.closed)]
    return {
        "group_id": group_id,
        "member_id": member_id(2),
        "share_session_epoch": 0,
        "max_wait": 100,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 10,
        "batch_size": 10,
        "topics": topics,
        "forgotten_topics_data": [],
    }


def _with_partitions_in_use(stage: Stage) -> None:
    """Wait until both groups answer for both topics: Kafka leaves a partition out that it still prepares."""
    _with_members(stage)
    for group_id in stage.groups:
        request = {**_fetch(stage, group_id), "member_id": member_id(3)}
        stage.admin.until("share_fetch", 1, lambda answer: len(answer["responses"]) == 2, request)


@row(READ_GROUP, READ_TOPIC, cases=(1, 2), prepare=_with_partitions_in_use)
def share_fetch(stage: Stage, version: int) -> None:
    """Begin a session, and end it again, in each group."""
    for group_id in stage.groups:
        request = _fetch(stage, group_id)
        stage.user.call("share_fetch", version, **request)
        stage.user.call("share_fetch", version, **{**request, "share_session_epoch": -1, "topics": []})


@row(READ_GROUP, READ_TOPIC, cases=(1, 2), prepare=_with_members)
def share_acknowledge(stage: Stage, version: int) -> None:
    for group_id in stage.groups:
        request = _fetch(stage, group_id, said(0, 0, 1))
        stage.user.call(
            "share_acknowledge",
            version,
            group_id=group_id,
            member_id=member_id(2),
            share_session_epoch=-1,
            topics=request["topics"],
        )


@row(DESCRIBE_GROUP, DESCRIBE_TOPIC, cases=(0, 1), prepare=_with_members)
def describe_share_group_offsets(stage: Stage, version: int) -> None:
    topics = [{"topic_name": name, "partitions": [0]} for name in stage.topics]
    groups = [{"group_id": group_id, "topics": topics} for group_id in stage.groups]
    stage.user.call("describe_share_group_offsets", version, groups=groups)


@row(DESCRIBE_GROUP, DESCRIBE_TOPIC, prepare=_with_members)
def describe_all_share_group_offsets(stage: Stage) -> None:
    groups = [{"group_id": group_id, "topics": None} for group_id in stage.groups]
    stage.user.call("describe_share_group_offsets", 1, groups=groups)


@row(READ_GROUP, READ_TOPIC, prepare=_coordinated)
def alter_share_group_offsets(stage: Stage) -> None:
    """Set the offset of one topic at a time, because the ids of the answer decide the order of its rows."""
    partitions = [{"partition_index": 0, "start_offset": 0}]
    for group_id in stage.groups:
        for name in stage.topics:
            topics = [{"topic_name": name, "partitions": partitions}]
            stage.user.call("alter_share_group_offsets", 0, group_id=group_id, topics=topics)


@row(DELETE_GROUP, READ_TOPIC, prepare=_with_members)
def delete_share_group_offsets(stage: Stage) -> None:
    topics = [{"topic_name": name} for name in stage.topics]
    for group_id in stage.groups:
        stage.call_in_any_order(
            "delete_share_group_offsets", 0, "responses", group_id=group_id, topics=topics
        )


_STATE_REQUESTS: dict[str, Plain] = {
    "initialize_share_group_state": {"state_epoch": 0, "start_offset": 0},
    "read_share_group_state": {"leader_epoch": 0},
    "write_share_group_state": {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "state_batches": []},
    "delete_share_group_state": {},
    "read_share_group_state_summary": {"leader_epoch": 0},
}
_UNKNOWN_ID = "7d9c7319-dc40-44ae-a1b6-b2b2b584141a"


@row(CLUSTER_ACTION, cases=tuple(_STATE_REQUESTS), prepare=_with_members)
def share_group_states(stage: Stage, api: str) -> None:
    """Ask about the state of a partition that does not exist: only the right decides whether that is told."""
    topics = [{"topic_id": _UNKNOWN_ID, "partitions": [{"partition": 0, **_STATE_REQUESTS[api]}]}]
    stage.user.call(api, 0, group_id=stage.groups[0], topics=topics)
