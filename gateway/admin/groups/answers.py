"""Answers what commands and the console ask about groups: each question once, for every source.

A `GroupSource` says what it knows of groups. live.py has the one of a running gateway, remote.py the one of a
cluster that is asked over the Kafka protocol. This module makes rows, lags, plans and refusals from it.
Every function raises ControlError.

The new offset of a reset:

    target      the new offset
    earliest    the log start offset
    latest      the high watermark
    timestamp   the first record with that timestamp or a later one, the high watermark when there is none
    shift       the committed offset plus a number of records, which may be negative
    offset      the offset given

An offset that no consumer can read is clamped to the log start or the high watermark. Source: Kafka's
ConsumerGroupCommand.prepareOffsetsToReset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from seqgate.gateway.admin.groups.command import (
    DeleteGroupsRequest,
    DescribeGroupRequest,
    GroupDeletion,
    GroupDeletions,
    GroupDescription,
    GroupMember,
    GroupPage,
    GroupPartition,
    GroupRow,
    ListGroupsRequest,
    OffsetChange,
    OffsetReset,
    ResetOffsetsRequest,
    ResetTarget,
    ShareDelivery,
    TopicSelection,
    TopologyNode,
)
from seqgate.gateway.admin.request import ControlError, page
from seqgate.gateway.admin.transactions.pending import PendingOffset
from seqgate.gateway.coordinator.places import TopicPartition

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
MAX_RESET_PARTITIONS: Final = 10_000
"""Partitions of one reset; a reset of more is refused."""


class Committed(NamedTuple):
    """A committed offset; `timestamp_ms` is None where the source does not report the time of the commit."""

    offset: int
    metadata: str | None
    timestamp_ms: int | None = None


class FoundGroup(NamedTuple):
    """A group by its type and state; `members` counts its members, None where the source does not."""

    type: str
    state: str
    is_empty: bool
    members: int | None = None


class GroupProgress(NamedTuple):
    """The progress of a group by partition: offsets that it committed and that open transactions hold, or
    what was delivered to a share group. `lags` are the lags of a share group where the source reports no done
    records; None: compute them.
    """

    committed: Mapping[TopicPartition, Committed] = {}
    pending: Mapping[TopicPartition, list[PendingOffset]] = {}
    delivered: Mapping[TopicPartition, ShareDelivery] = {}
    lags: Mapping[TopicPartition, int | None] | None = None


class PartitionOffsets(NamedTuple):
    """The offsets of a partition. `at_timestamp` is that of the first record at the target's timestamp."""

    log_start_offset: int
    high_watermark: int
    committed_offset: int | None = None
    at_timestamp: int | None = None


class GroupSource(Protocol):
    """Reads and changes the groups of a running gateway or of a cluster. Each method raises ControlError."""

    @property
    def states(self) -> Collection[str]:
        """The states that groups may be in."""

    @property
    def now_ms(self) -> int:
        """The time by which ages are told."""

    @property
    def offline_partitions(self) -> list[int]:
        """The partitions of `__consumer_offsets` that are known to be out of service."""

    def rows(self, states: Collection[str]) -> Iterable[GroupRow]:
        """Return the groups in these states, in any state without one, in no order and without their lags."""

    async def totals(self, rows: Sequence[GroupRow]) -> Mapping[str, tuple[int, int | None]]:
        """Return how many partitions each group has read, and its lag in all of them."""

    async def describe(self, group: str) -> GroupDescription:
        """Return a group with its members and without partitions."""

    async def find(self, groups: Iterable[str]) -> Mapping[str, FoundGroup]:
        """Return those of the groups that exist."""

    async def progress(self, group: str, kind: str) -> GroupProgress:
        """Return the progress of a group of a type in its partitions."""

    async def starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the log start offsets that are known."""

    async def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermarks that are known."""

    def skipped(self, group: str, place: TopicPartition) -> int:
        """Return how many records the group was moved over unread."""

    async def delete(self, groups: Mapping[str, FoundGroup]) -> Mapping[str, str | None]:
        """Delete groups without members; return why each was not deleted, None where it was."""

    def existing(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that exist."""

    def partition_counts(self, topics: Sequence[str]) -> Mapping[str, int]:
        """Return the number of partitions of topics that must exist."""

    async def offsets(
        self, places: Sequence[TopicPartition], timestamp_ms: int | None
    ) -> Mapping[TopicPartition, PartitionOffsets]:
        """Return the offsets of partitions, without a committed one; all must be in service."""

    async def commit(self, group: str, changes: Sequence[OffsetChange]) -> None:
        """Commit all new offsets, or none."""


async def list_groups(source: GroupSource, request: ListGroupsRequest) -> GroupPage:
    """Return one page of the groups that the request asks for, by their ids."""
    names = {state.lower(): state for state in source.states}
    for state in request.states:
        if state.lower() not in names:
            raise ControlError(
                f"{state} is not a state of a group; the states are {', '.join(source.states)}"
            )
    found = source.rows({names[state.lower()] for state in request.states})
    rows, complete = page(found, request.after, request.limit, key=lambda row: row.group)
    totals = await source.totals(rows)
    told = [
        msgspec.structs.replace(
            row, committed_partitions=totals[row.group][0], total_lag=totals[row.group][1]
        )
        if row.group in totals
        else row
        for row in rows
    ]
    return GroupPage(told, complete, source.offline_partitions)


async def describe_group(source: GroupSource, request: DescribeGroupRequest) -> GroupDescription:
    """Return a group with one page of its partitions; the first page has its members."""
    group = await source.describe(request.group)
    read = await source.progress(request.group, group.type)
    owners = _owners(group.members)
    found = {*read.committed, *read.pending, *read.delivered, *owners}
    places, complete = page(found, request.after, request.limit, key=lambda place: place)
    ends, starts = await source.ends(places), await source.starts(places)
    now_ms = source.now_ms
    rows = []
    for place in places:
        committed, delivered, end = read.committed.get(place), read.delivered.get(place), ends.get(place)
        time_ms = None if committed is None else committed.timestamp_ms
        rows.append(
            GroupPartition(
                *place,
                committed_offset=None if committed is None else committed.offset,
                log_start_offset=starts.get(place),
                high_watermark=end,
                lag=_lag(committed, end) if delivered is None else _share_lag(read, place, end),
                metadata=None if committed is None else committed.metadata,
                commit_timestamp=time_ms,
                age_ms=None if time_ms is None else max(0, now_ms - time_ms),
                member_id=None if group.type == SHARE else owners.get(place),
                pending=read.pending.get(place, []),
                delivery=delivered,
                skipped=source.skipped(request.group, place),
            )
        )
    if request.after is not None:
        group = msgspec.structs.replace(group, members=[], topology=[])
    return msgspec.structs.replace(group, partitions=rows, complete=complete)


_NODE_TYPES: Final[Mapping[int, Any]] = {1: "source", 2: "processor", 3: "sink"}


def topology_nodes(description: Any) -> list[TopologyNode]:
    """Return the nodes of a description, of Kafka's protocol or of the coordinator; none for None."""
    if description is None:
        return []
    nodes = [(part.subtopology_id, node) for part in description.subtopologies for node in part.nodes]
    nodes += [(None, node) for store in description.global_stores for node in (store.source, store.processor)]
    return [
        TopologyNode(
            subtopology=subtopology,
            name=node.name,
            type=_NODE_TYPES[node.node_type],
            topics=[*node.source_topics, *([] if node.sink_topic is None else [node.sink_topic])],
            stores=list(node.stores),
            successors=list(node.successors),
        )
        for subtopology, node in nodes
        if node.node_type in _NODE_TYPES
    ]


def _owners(members: Iterable[GroupMember]) -> dict[TopicPartition, str]:
    return {
        (topic, partition): member.member_id
        for member in members
        for topic, partitions in (member.assignment or {}).items()
        for partition in partitions
    }


def known_lags(read: GroupProgress, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the lag in each partition whose high watermark is known."""
    lags = {place: _lag(committed, ends.get(place)) for place, committed in read.committed.items()}
    lags |= {place: _share_lag(read, place, ends.get(place)) for place in read.delivered}
    return {place: lag for place, lag in lags.items() if lag is not None}


def _lag(committed: Committed | None, high_watermark: int | None) -> int | None:
    """Return how many records a group has not read; 0 when its offset is beyond the high watermark."""
    if committed is None or high_watermark is None:
        return None
    return max(0, high_watermark - committed.offset)


def _share_lag(read: GroupProgress, place: TopicPartition, high_watermark: int | None) -> int | None:
    """Return the number of records that are not done, as in DescribeShareGroupOffsets (KIP-1226)."""
    if read.lags is not None:
        return read.lags[place]
    if high_watermark is None:
        return None
    delivered = read.delivered[place]
    return max(0, high_watermark - delivered.start_offset - (delivered.done_records or 0))


async def delete_groups(source: GroupSource, request: DeleteGroupsRequest) -> GroupDeletions:
    """Delete each group that has no members, or report which groups could be deleted."""
    names = list(dict.fromkeys(request.groups))
    known = await source.find(names)
    entries = {name: await _planned(source, name, known.get(name)) for name in names}
    wanted = {name: known[name] for name in names if entries[name].refusal is None}
    if request.execute and wanted:
        for name, error in (await source.delete(wanted)).items():
            refusal = None if error is None else f"{name} was not deleted: {error}"
            entries[name] = msgspec.structs.replace(entries[name], deleted=error is None, refusal=refusal)
    return GroupDeletions(list(entries.values()))


async def _planned(source: GroupSource, name: str, found: FoundGroup | None) -> GroupDeletion:
    if found is None:
        return GroupDeletion(name, None, 0, deleted=False, refusal=f"there is no group {name}")
    read = await source.progress(name, found.type)
    count = len(read.committed) + len(read.delivered)
    return GroupDeletion(name, found.state, count, deleted=False, refusal=in_use(name, found))


def in_use(name: str, found: FoundGroup) -> str | None:
    """Return the sentence that refuses to change a group with members; None for a group without."""
    if found.is_empty:
        return None
    members = "" if found.members is None else f"{found.members:,} members, "
    if found.members == 1:
        members = "1 member, "
    return (
        f"group {name} is in use: {members}state {found.state}; "
        "stop its consumers, or wait until their sessions end"
    )


async def reset_offsets(source: GroupSource, request: ResetOffsetsRequest) -> OffsetReset:
    """Find the new offsets of the group, and commit all of them at once if `execute` is set."""
    group = request.group
    found = (await source.find([group])).get(group)
    if found is not None:
        if found.type == SHARE:
            raise ControlError(
                f"{group} is a share group, which commits no offsets; "
                f"kafka-share-groups.sh --group {group} --reset-offsets sets where it continues"
            )
        refused = in_use(group, found)
        if refused is not None:
            raise ControlError(refused)
    is_by_time = request.target == "timestamp"
    if is_by_time and request.value < 0:
        raise ControlError(f"timestamp must be 0 or higher, not {request.value}")
    committed = (await source.progress(group, CLASSIC if found is None else found.type)).committed
    places = _places_to_reset(source, request, committed)
    known = await source.offsets(places, request.value if is_by_time else None)
    changes = []
    for place in places:
        before = committed[place].offset if place in committed else None
        changes.append(offset_change(request, place, known[place]._replace(committed_offset=before)))
    if request.execute:
        await source.commit(group, changes)
    return OffsetReset(group, None if found is None else found.state, request.execute, changes)


def _places_to_reset(
    source: GroupSource, request: ResetOffsetsRequest, committed: Mapping[TopicPartition, Committed]
) -> list[TopicPartition]:
    if request.topics is None:
        if not committed:
            raise ControlError(f"group {request.group} has no committed offsets; name topics with --topic")
        places = set(source.existing(committed))
    else:
        counts = source.partition_counts([selection.topic for selection in request.topics])
        places = {
            place for selection in request.topics for place in _selected(selection, counts[selection.topic])
        }
    if not places:
        raise ControlError("the request names no partition")
    if len(places) > MAX_RESET_PARTITIONS:
        raise ControlError(
            f"{len(places)} partitions are more than the {MAX_RESET_PARTITIONS} that one reset takes; name "
            "fewer topics"
        )
    return sorted(places)


def _selected(selection: TopicSelection, count: int) -> list[TopicPartition]:
    indexes = range(count) if selection.partitions is None else selection.partitions
    for index in indexes:
        if not 0 <= index < count:
            raise ControlError(f"topic {selection.topic} has no partition {index}")
    return [(selection.topic, index) for index in indexes]


TO_LOG_START: Final = "clamped to the log start"
TO_HIGH_WATERMARK: Final = "clamped to the log end"
NOTHING_SO_LATE: Final = "no record is so late: the log end"


class NoCommittedOffset(ValueError):
    """The group has no committed offset to shift."""


class NewOffset(NamedTuple):
    """The offset to commit; `note` says why it differs from what the operator asked for."""

    offset: int
    note: str | None = None


def new_offset(target: ResetTarget, value: int, known: PartitionOffsets) -> NewOffset:
    """Return the offset to commit. Raises NoCommittedOffset."""
    match target:
        case "earliest":
            return NewOffset(known.log_start_offset)
        case "latest":
            return NewOffset(known.high_watermark)
        case "timestamp":
            if known.at_timestamp is None or known.at_timestamp >= known.high_watermark:
                return NewOffset(known.high_watermark, NOTHING_SO_LATE)
            return _clamped(known.at_timestamp, known)
        case "shift":
            if known.committed_offset is None:
                raise NoCommittedOffset
            return _clamped(known.committed_offset + value, known)
        case "offset":
            return _clamped(value, known)


def offset_change(
    request: ResetOffsetsRequest, place: TopicPartition, known: PartitionOffsets
) -> OffsetChange:
    """Return what a reset changes in a partition. Raises ControlError without a committed offset to shift."""
    topic, partition = place
    try:
        found = new_offset(request.target, request.value, known)
    except NoCommittedOffset:
        raise ControlError(
            f"group {request.group} has no committed offset in {topic}-{partition} that could be shifted"
        ) from None
    return OffsetChange(
        topic,
        partition,
        known.committed_offset,
        found.offset,
        known.log_start_offset,
        known.high_watermark,
        found.note,
    )


def _clamped(offset: int, known: PartitionOffsets) -> NewOffset:
    if offset < known.log_start_offset:
        return NewOffset(known.log_start_offset, TO_LOG_START)
    if offset > known.high_watermark:
        return NewOffset(known.high_watermark, TO_HIGH_WATERMARK)
    return NewOffset(offset)
