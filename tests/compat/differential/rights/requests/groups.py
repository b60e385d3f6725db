"""FindCoordinator, the requests of the classic protocol, and the requests that administer groups."""

from __future__ import annotations

from tests.compat.differential.group_member import subscription
from tests.compat.differential.rights.requests.offsets import committed
from tests.compat.differential.rights.stage import Stage
from tests.compat.differential.rights.table import (
    CLUSTER_ACTION,
    DELETE_GROUP,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP,
    DESCRIBE_TRANSACTION,
    READ_GROUP,
    row,
)
from tests.compat.differential.transactional import await_coordinator

FIRST_WITH_SEVERAL_KEYS = 4
FIRST_WITH_SEVERAL_MEMBERS = 3


def _coordinated(stage: Stage) -> None:
    for suffix in ("group", "other-group"):
        stage.admin.group(suffix)


@row(DESCRIBE_GROUP, cases=(0, 3, 4, 6), prepare=_coordinated)
def find_coordinator(stage: Stage, version: int) -> None:
    if version >= FIRST_WITH_SEVERAL_KEYS:
        stage.user.call("find_coordinator", version, key_type=0, coordinator_keys=list(stage.groups))
        return
    for group_id in stage.groups:
        stage.user.call("find_coordinator", version, key_type=0, key=group_id)


def _with_transactions(stage: Stage) -> None:
    for transactional_id in stage.transactional_ids:
        await_coordinator(stage.admin, transactional_id)


@row(DESCRIBE_TRANSACTION, cases=(1, 6), prepare=_with_transactions)
def find_coordinator_of_transactions(stage: Stage, version: int) -> None:
    if version >= FIRST_WITH_SEVERAL_KEYS:
        keys = list(stage.transactional_ids)
        stage.user.call("find_coordinator", version, key_type=1, coordinator_keys=keys)
        return
    for transactional_id in stage.transactional_ids:
        stage.user.call("find_coordinator", version, key_type=1, key=transactional_id)


@row(CLUSTER_ACTION)
def find_coordinator_of_share_groups(stage: Stage) -> None:
    key = f"{stage.groups[0]}:{stage.open.topic_id}:0"
    stage.user.call("find_coordinator", 6, key_type=2, coordinator_keys=[key])


@row(READ_GROUP, cases=(0, 9), prepare=_coordinated)
def join_group(stage: Stage, version: int) -> None:
    """Join with an unknown member id, so that no member stays."""
    for group_id in stage.groups:
        stage.user.call(
            "join_group",
            version,
            group_id=group_id,
            session_timeout=10_000,
            rebalance_timeout=10_000,
            member_id="nobody",
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": subscription("t")}],
        )


@row(READ_GROUP, cases=(0, 5), prepare=_coordinated)
def sync_group(stage: Stage, version: int) -> None:
    for group_id in stage.groups:
        stage.user.call(
            "sync_group",
            version,
            group_id=group_id,
            generation_id=1,
            member_id="nobody",
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        )


@row(READ_GROUP, cases=(0, 4), prepare=_coordinated)
def heartbeat(stage: Stage, version: int) -> None:
    for group_id in stage.groups:
        stage.user.call("heartbeat", version, group_id=group_id, generation_id=1, member_id="nobody")


@row(READ_GROUP, cases=(0, 3, 5), prepare=_coordinated)
def leave_group(stage: Stage, version: int) -> None:
    members = [{"member_id": "nobody", "group_instance_id": None, "reason": None}]
    for group_id in stage.groups:
        if version >= FIRST_WITH_SEVERAL_MEMBERS:
            stage.user.call("leave_group", version, group_id=group_id, members=members)
        else:
            stage.user.call("leave_group", version, group_id=group_id, member_id="nobody")


@row(DESCRIBE_GROUP, READ_GROUP, DELETE_GROUP, cases=(0, 6), prepare=committed)
def describe_groups(stage: Stage, version: int) -> None:
    groups = [*stage.groups, stage.name("no-group")]
    stage.call_in_any_order(
        "describe_groups", version, "groups", groups=groups, include_authorized_operations=True
    )


@row(DESCRIBE_GROUP, cases=(0, 5), prepare=committed)
def list_groups(stage: Stage, version: int) -> None:
    stage.user.call("list_groups", version, only_own=True)


@row(DESCRIBE_CLUSTER, cases=(0, 5), prepare=committed)
def list_groups_of_the_cluster(stage: Stage, version: int) -> None:
    stage.user.call("list_groups", version, only_own=True)


@row(DELETE_GROUP, cases=(0, 2), prepare=committed)
def delete_groups(stage: Stage, version: int) -> None:
    stage.user.call("delete_groups", version, groups_names=[*stage.groups, stage.name("no-group")])
