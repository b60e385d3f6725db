"""What can be asked of the groups of a running gateway. Functions over its services; raise ControlError."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.control.backlogs import with_skipped
from gateway.control.errors import ControlError
from gateway.control.group_views import (
    STATES,
    Group,
    all_groups,
    find_group,
    generation_of,
    is_empty,
    members_of,
    protocol_of,
    state_of,
    type_of,
)
from gateway.control.messages import (
    MAX_PAGE_ROWS,
    DeleteGroupsRequest,
    DescribeGroupRequest,
    ListGroupsRequest,
)
from gateway.control.pending_offsets import pending_in_group
from gateway.control.results import (
    GroupDeletion,
    GroupDeletions,
    GroupDescription,
    GroupMember,
    GroupPage,
    GroupPartition,
    GroupRow,
    PendingOffset,
)
from gateway.control.share_views import assigned_in, delivered_to, share_partition, total_share_lag
from gateway.coordinator.group.name_groups import is_name_group
from gateway.coordinator.group.records import CommittedOffset
from gateway.coordinator.group.shard import GroupShard
from gateway.coordinator.group.share_group import ShareGroup
from gateway.coordinator.places import TopicPartition
from gateway.metadata.topic_names import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from gateway.runtime.coordinators.shards import Unavailable
from gateway.runtime.partitions.registry import Partitions
from gateway.runtime.services import Services

MAX_DELETED_GROUPS: Final = 1_000
_STATES: Final[dict[str, str]] = {state.lower(): state for state in STATES}
Committed = Mapping[TopicPartition, CommittedOffset]


async def list_groups(services: Services, request: ListGroupsRequest) -> GroupPage:
    """One page of the groups, by their ids."""
    _check_limit(request.limit)
    states = {_state(name) for name in request.states}
    found = (
        (group, shard)
        for shard in services.groups.loaded_shards()
        for group in all_groups(shard)
        if (request.after is None or group.group_id > request.after)
        and (not states or state_of(group) in states)
    )
    page = heapq.nsmallest(request.limit + 1, found, key=lambda entry: entry[0].group_id)
    rows = []
    for group, shard in page[: request.limit]:
        if isinstance(group, ShareGroup):
            delivered = delivered_to(services, group.group_id)
            rows.append(_row(group, len(delivered), total_share_lag(services.partitions, delivered)))
        else:
            committed = shard.fetch_offsets(group.group_id)
            rows.append(_row(group, len(committed), _total_lag(services.partitions, committed)))
        # groups with thousands of partitions must not hold up a request
        await asyncio.sleep(0)
    return GroupPage(rows, len(page) <= request.limit, _offline_partitions(services.partitions))


async def describe_group(services: Services, request: DescribeGroupRequest) -> GroupDescription:
    """A group with one page of its partitions, and with its members on the first one."""
    _check_limit(request.limit)
    shard = await settled_shard(services, request.group)
    group = find_group(shard, request.group)
    if shard is None or group is None:
        raise ControlError(f"there is no group {request.group}")
    if isinstance(group, ShareGroup):
        return _describe_share_group(services, group, request)
    members = members_of(group, services)
    owners = {
        (topic, partition): member.member_id
        for member in members
        for topic, partitions in (member.assignment or {}).items()
        for partition in partitions
    }
    committed = shard.fetch_offsets(request.group)
    pending = pending_in_group(services, shard, request.group)
    places, complete = _page({*committed, *owners, *pending}, request)
    now_ms = services.clock.now_ms()
    partitions = [
        _partition(
            services.partitions,
            place,
            committed.get(place),
            owners.get(place),
            pending.get(place, []),
            now_ms,
        )
        for place in places
    ]
    partitions = with_skipped(services, request.group, partitions)
    return _description(group, members if request.after is None else [], partitions, complete=complete)


def _describe_share_group(
    services: Services, group: ShareGroup, request: DescribeGroupRequest
) -> GroupDescription:
    delivered = delivered_to(services, group.group_id)
    places, complete = _page({*delivered, *assigned_in(services, group)}, request)
    partitions = [share_partition(services.partitions, place, delivered.get(place)) for place in places]
    partitions = with_skipped(services, group.group_id, partitions)
    members = members_of(group, services) if request.after is None else []
    return _description(group, members, partitions, complete=complete)


def _page(
    places: Iterable[TopicPartition], request: DescribeGroupRequest
) -> tuple[list[TopicPartition], bool]:
    """The places that were asked for, in order, and whether no other comes after them."""
    wanted = (place for place in places if request.after is None or place > request.after)
    page = heapq.nsmallest(request.limit + 1, wanted)
    return page[: request.limit], len(page) <= request.limit


def _description(
    group: Group, members: list[GroupMember], partitions: list[GroupPartition], *, complete: bool
) -> GroupDescription:
    protocol_type, protocol_name = protocol_of(group)
    return GroupDescription(
        group=group.group_id,
        state=state_of(group),
        type=type_of(group),
        generation_id=generation_of(group),
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        members=members,
        partitions=partitions,
        complete=complete,
    )


async def delete_groups(services: Services, request: DeleteGroupsRequest) -> GroupDeletions:
    """Delete each group that can be, or tell which could."""
    if not 1 <= len(request.groups) <= MAX_DELETED_GROUPS:
        raise ControlError(f"1 to {MAX_DELETED_GROUPS} groups are deleted at once")
    names = dict.fromkeys(request.groups)
    return GroupDeletions([await _delete(services, name, execute=request.execute) for name in names])


async def _delete(services: Services, group_id: str, *, execute: bool) -> GroupDeletion:
    shard = await settled_shard(services, group_id)
    group = find_group(shard, group_id)
    if shard is None or group is None:
        return GroupDeletion(group_id, None, 0, deleted=False, refusal=f"there is no group {group_id}")
    is_share_group = isinstance(group, ShareGroup)
    count = len(delivered_to(services, group_id) if is_share_group else shard.fetch_offsets(group_id))
    state = state_of(group)
    if not is_empty(group):
        return GroupDeletion(group_id, state, count, deleted=False, refusal=not_empty(group))
    if not execute:
        return GroupDeletion(group_id, state, count, deleted=False, refusal=None)
    error = await _delete_empty(services, group)
    if error is not ErrorCode.none:
        refusal = f"{group_id} was not deleted: {error.name}"
        return GroupDeletion(group_id, state, count, deleted=False, refusal=refusal)
    return GroupDeletion(group_id, state, count, deleted=True, refusal=None)


async def _delete_empty(services: Services, group: Group) -> ErrorCode:
    group_id = group.group_id
    if isinstance(group, ShareGroup):
        with told_in_a_sentence(group_id, SHARE_STATE_TOPIC):
            error = await services.shares.delete(group_id)
        return ErrorCode.group_id_not_found if error is None else error
    with told_in_a_sentence(group_id):
        return await services.groups.change(
            group_id, lambda shard, effects: shard.delete_group(group_id, effects)
        )


async def settled_shard(services: Services, group_id: str) -> GroupShard | None:
    """The shard of a group when all that it tells is durable; None while there are no groups at all."""
    if not group_id:
        raise ControlError("a group has a name")
    if is_name_group(group_id):
        raise ControlError(
            f"{group_id} is no group but stands for a producer name; `seqgate names` tells of those"
        )
    if OFFSETS_TOPIC not in services.partitions.by_name:
        return None
    with told_in_a_sentence(group_id):
        return await services.groups.settled_shard(group_id)


@contextlib.contextmanager
def told_in_a_sentence(group_id: str, topic: str = OFFSETS_TOPIC) -> Iterator[None]:
    """Turn what the coordinator, which keeps its groups in `topic`, raises into a ControlError."""
    with unavailable_in_a_sentence(f"group {group_id}", topic):
        yield


@contextlib.contextmanager
def unavailable_in_a_sentence(what: str, topic: str) -> Iterator[None]:
    """Turn what the coordinator of something, which it keeps in `topic`, raises into a ControlError."""
    try:
        yield
    except Unavailable as error:
        raise ControlError(
            f"the coordinator of {what} can't answer now ({error.error_code.name}); "
            f"`seqgate status` tells whether a partition of {topic} is offline"
        ) from error


def not_empty(group: Group) -> str:
    """Why a group is left alone."""
    count = len(group.members)
    members = "1 member" if count == 1 else f"{count:,} members"
    return (
        f"group {group.group_id} is in use: {members}, state {state_of(group)}; "
        "stop its consumers, or wait until their sessions end"
    )


def lag(committed_offset: int, high_watermark: int) -> int:
    """How many records are before a group; none when it is beyond the end."""
    return max(0, high_watermark - committed_offset)


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE_ROWS:
        raise ControlError(f"a page has 1 to {MAX_PAGE_ROWS} rows")


def _state(name: str) -> str:
    state = _STATES.get(name.lower())
    if state is None:
        raise ControlError(f"{name} is no state of a group; it is one of {', '.join(STATES)}")
    return state


def _offline_partitions(partitions: Partitions) -> list[int]:
    topic = partitions.by_name.get(OFFSETS_TOPIC)
    return [] if topic is None else [entry.index for entry in topic.opened() if entry.log.offline]


def _total_lag(partitions: Partitions, committed: Committed) -> int:
    return sum(
        lag(value.offset, partition.log.high_watermark)
        for place, value in committed.items()
        if (partition := partitions.get(*place)) is not None
    )


def _row(group: Group, partitions: int, total_lag: int) -> GroupRow:
    protocol_type, protocol_name = protocol_of(group)
    return GroupRow(
        group=group.group_id,
        state=state_of(group),
        type=type_of(group),
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        members=len(group.members),
        committed_partitions=partitions,
        total_lag=total_lag,
    )


def _partition(
    partitions: Partitions,
    place: TopicPartition,
    committed: CommittedOffset | None,
    member_id: str | None,
    pending: list[PendingOffset],
    now_ms: int,
) -> GroupPartition:
    partition = partitions.get(*place)
    log = None if partition is None else partition.log
    return GroupPartition(
        topic=place[0],
        partition=place[1],
        committed_offset=None if committed is None else committed.offset,
        log_start_offset=None if log is None else log.log_start_offset,
        high_watermark=None if log is None else log.high_watermark,
        lag=None if log is None or committed is None else lag(committed.offset, log.high_watermark),
        metadata=None if committed is None else committed.metadata,
        commit_timestamp=None if committed is None else committed.commit_timestamp_ms,
        age_ms=None if committed is None else max(0, now_ms - committed.commit_timestamp_ms),
        member_id=member_id,
        pending=pending,
        delivery=None,
    )
