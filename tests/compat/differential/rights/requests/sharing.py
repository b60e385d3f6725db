"""The APIs of share groups (KIP-932)."""

from __future__ import annotations

from tests.compat.differential.rights.stage import Stage
from tests.compat.differential.rights.table import (
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


@row(READ_GROUP, READ_TOPIC, cases=(1, 2), prepare=_with_members)
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
