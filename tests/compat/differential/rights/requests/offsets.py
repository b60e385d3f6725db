"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from tests.compat.differential.rights.requests.records import UNKNOWN_ID
from tests.compat.differential.rights.stage import Stage
from tests.compat.differential.rights.table import (
    DELETE_GROUP,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    READ_GROUP,
    READ_TOPIC,
    row,
)
from tests.support.wire import Plain

LAST_WITH_ONE_GROUP = 7
FIRST_WITH_IDS = 10


def _coordinated(stage: Stage) -> None:
    for suffix in ("group", "other-group"):
        stage.admin.group(suffix)


def _commit(stage: Stage, group_id: str, version: int) -> Plain:
    known = {stage.open.name: stage.open.topic_id, stage.closed.name: stage.closed.topic_id}
    partitions = [
        {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    ]
    topics = [
        {"name": name, "topic_id": known.get(name, UNKNOWN_ID), "partitions": partitions}
        for name in stage.topics[: 3 if version >= FIRST_WITH_IDS else 4]
    ]
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": -1,
        "topics": topics,
    }


def committed(stage: Stage) -> None:
    """Commit an offset of every existing topic in both groups."""
    _coordinated(stage)
    for group_id in stage.groups:
        request = _commit(stage, group_id, 9)
        stage.admin.wire.call("offset_commit", 9, {**request, "topics": request["topics"][:2]})


@row(READ_GROUP, READ_TOPIC, cases=(2, 9, 10), prepare=_coordinated)
def offset_commit(stage: Stage, version: int) -> None:
    for group_id in stage.groups:
        stage.user.call("offset_commit", version, **_commit(stage, group_id, version))


def _asked(stage: Stage, version: int) -> list[Plain]:
    known = {stage.open.name: stage.open.topic_id, stage.closed.name: stage.closed.topic_id}
    return [
        {"name": name, "topic_id": known.get(name, UNKNOWN_ID), "partition_indexes": [0]}
        for name in stage.topics[: 3 if version >= FIRST_WITH_IDS else 4]
    ]


@row(DESCRIBE_GROUP, DESCRIBE_TOPIC, cases=(1, 2, 7, 8, 10), prepare=committed)
def offset_fetch(stage: Stage, version: int) -> None:
    topics = _asked(stage, version)
    if version > LAST_WITH_ONE_GROUP:
        rows = [
            {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": topics}
            for group_id in stage.groups
        ]
        stage.user.call("offset_fetch", version, groups=rows, require_stable=False)
        return
    for group_id in stage.groups:
        stage.user.call("offset_fetch", version, group_id=group_id, topics=topics, require_stable=False)


@row(DESCRIBE_GROUP, DESCRIBE_TOPIC, cases=(2, 7, 8, 10), prepare=committed)
def offset_fetch_of_all_topics(stage: Stage, version: int) -> None:
    if version > LAST_WITH_ONE_GROUP:
        rows = [
            {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": None}
            for group_id in stage.groups
        ]
        stage.user.call("offset_fetch", version, groups=rows, require_stable=False)
        return
    for group_id in stage.groups:
        stage.user.call("offset_fetch", version, group_id=group_id, topics=None, require_stable=False)


@row(DELETE_GROUP, READ_TOPIC, prepare=committed)
def offset_delete(stage: Stage) -> None:
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in stage.topics]
    for group_id in stage.groups:
        stage.user.call("offset_delete", 0, group_id=group_id, topics=topics)
