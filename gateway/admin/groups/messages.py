"""The requests about groups, and what `seqgate groups … --json` prints.

Times are milliseconds since the Unix epoch. A value that nobody knows is None.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from seqgate.gateway.admin.request import PagedRequest, Request
from seqgate.gateway.admin.tables import (
    NONE,
    UNKNOWN,
    Column,
    PartitionNumber,
    TopicName,
    count,
    duration,
    number,
    shown,
)
from seqgate.gateway.admin.transactions.messages import PendingOffset

LONGEST_METADATA: Final = 60
"""Characters of the metadata of a commit that a table shows."""


def _metadata(text: str) -> str:
    return shown(
        text.rstrip("\0"), LONGEST_METADATA
    )  # confluent-kafka's Python client counts a C string's end


class GroupRow(msgspec.Struct, frozen=True):
    """A group of type `classic`, `consumer` (KIP-848), `share` (KIP-932) or `streams` (KIP-1071).

    `protocol_name` is the protocol that the members agreed on, None before they agree. `total_lag` counts the
    records between the committed offsets and the high watermarks; of a share group it counts the records that
    are not done, and `committed_partitions` counts the partitions that the group ever read.
    """

    group: Annotated[str, Column("group")]
    state: Annotated[str, Column("state")]
    type: Annotated[str, Column("type")]
    protocol_type: str
    protocol_name: str | None
    members: Annotated[int | None, Column("members", count, UNKNOWN)]
    committed_partitions: Annotated[int | None, Column("partitions", count, UNKNOWN)]
    total_lag: Annotated[int | None, Column("lag", count, UNKNOWN)]

    @property
    def protocol(self) -> Annotated[str, Column("protocol", str)]:
        """The type and the name of the protocol, as text."""
        return protocol_text(self.protocol_type, self.protocol_name)


class GroupPage(msgspec.Struct, frozen=True):
    """Some of the groups; `complete`: no group comes after the last row. `offline_partitions` are the
    partitions of `__consumer_offsets` that are out of service; their groups are missing.
    """

    groups: list[GroupRow]
    complete: bool
    offline_partitions: list[int]


class ListGroupsRequest(PagedRequest[GroupPage], tag="groups.list"):
    """The groups by their ids, from the first one after `after` on; of the named states, or of all states."""

    is_spread = True
    rows = "groups"
    key = "group"
    states: list[str] = msgspec.field(default_factory=list)
    after: str | None = None


def protocol_text(protocol_type: str, protocol_name: str | None) -> str:
    """Return the type and the name of a protocol as text."""
    return shown(", ".join(filter(None, (protocol_type, protocol_name)))) or NONE


def assigned(assignment: dict[str, list[int]] | None) -> str:
    """Return partitions by topic: `flights 0-3, 7; orders 0`."""
    if assignment is None:
        return "not readable"
    parts = (f"{shown(topic)} {ranges(partitions)}" for topic, partitions in assignment.items() if partitions)
    return "; ".join(parts) or NONE


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in order, with ranges for neighbours: `0-3, 7`."""
    runs = itertools.groupby(enumerate(sorted(set(numbers))), key=lambda entry: entry[1] - entry[0])
    spans = [[number for _, number in run] for _, run in runs]
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)


class StreamsTasks(msgspec.Struct, frozen=True):
    """The tasks of a member of a streams group (KIP-1071), as partitions by subtopology."""

    active: Annotated[dict[str, list[int]], Column("active", assigned)]
    standby: Annotated[dict[str, list[int]], Column("standby", assigned)]
    warmup: Annotated[dict[str, list[int]], Column("warm-up", assigned)]


class StreamsMember(msgspec.Struct, frozen=True):
    """The fields of a member that only streams groups have. `target` is its tasks after the rebalance."""

    process_id: Annotated[str, Column("process")]
    member_epoch: Annotated[int, Column("epoch", number)]
    topology_epoch: Annotated[int, Column("topology\nepoch", number)]
    tasks: StreamsTasks
    target: StreamsTasks


class StreamsState(msgspec.Struct, frozen=True):
    """The fields of a group that only streams groups have. `topology_epoch` is None while the group has no
    topology. An assignment epoch below the group epoch means that the coordinator has not computed the
    assignment yet.
    """

    assignment_epoch: int
    topology_epoch: int | None


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a group. `assignment` is partitions by topic, None where the gateway can't decode it.

    `rebalance_timeout_ms` is None in a share group, which never waits for its members to revoke partitions.
    In a streams group `assignment` has the partitions that the active tasks read.
    """

    member_id: Annotated[str, Column("member")]
    group_instance_id: Annotated[str | None, Column("instance")]
    client_id: Annotated[str, Column("client")]
    client_host: Annotated[str, Column("host")]
    session_timeout_ms: Annotated[int | None, Column("session", duration)]
    rebalance_timeout_ms: int | None
    is_leader: bool
    assignment: Annotated[dict[str, list[int]] | None, Column("assigned", assigned, "not readable")]
    streams: StreamsMember | None = None

    @property
    def name(self) -> Annotated[str, Column("member")]:
        """The id of the member, marked if it leads the group."""
        return self.member_id + (" (leader)" if self.is_leader else "")


class ShareDelivery(msgspec.Struct, frozen=True):
    """The progress of a share group in a partition (KIP-932). A record is done when it was accepted, rejected
    or archived.

    `start_offset` is the oldest record that is not done, `end_offset` follows the newest record that was ever
    delivered. The counts are of records between the two: `acquired` records wait for an acknowledgement,
    `holes` are stretches of done records, with `done_records` in them. `max_delivery_count` is the highest
    delivery count of a record. Over the Kafka protocol only `start_offset` is known.
    """

    start_offset: Annotated[int, Column("start", number)]
    end_offset: Annotated[int | None, Column("given\nout to", number)]
    acquired: Annotated[int | None, Column("acquired", count)]
    holes: Annotated[int | None, Column("holes", count)]
    done_records: int | None
    max_delivery_count: Annotated[int | None, Column("most\ndeliveries", count)]


class GroupPartition(msgspec.Struct, frozen=True):
    """A partition in which a group has a committed offset, an assignment (to the member `member_id`), or
    pending offsets.

    `pending` are the offsets that open transactions hold, in the order they came. The log's offsets are None
    when the partition is gone, the commit's values when the group has no committed offset. `lag` is never
    negative. A share group commits no offset and may have several readers of a partition. It has `delivery`
    instead, None before its first read, and its `lag` counts the records that are not done. `skipped` counts
    the records that message TTL or a backlog quota moved the group over unread since the gateway started.
    """

    topic: TopicName
    partition: PartitionNumber
    committed_offset: Annotated[int | None, Column("committed", number)]
    log_start_offset: Annotated[int | None, Column("log\nstart", number)]
    high_watermark: Annotated[int | None, Column("log\nend", number)]
    lag: Annotated[int | None, Column("lag", count)]
    metadata: Annotated[str | None, Column("metadata", _metadata, "")]
    commit_timestamp: int | None
    age_ms: Annotated[int | None, Column("age", duration)]
    member_id: str | None
    pending: list[PendingOffset]
    delivery: ShareDelivery | None
    skipped: int = 0

    @property
    def is_outside(self) -> bool:
        """Whether the committed offset is known to be outside of the log."""
        committed, start, end = self.committed_offset, self.log_start_offset, self.high_watermark
        return (
            committed is not None and start is not None and end is not None and not start <= committed <= end
        )


class GroupDescription(msgspec.Struct, frozen=True):
    """A group with some of its partitions; `complete`: no partition comes after the last row.

    `generation_id` is the epoch of a consumer, share or streams group. `members` come with the first
    partitions only.
    """

    group: str
    state: str
    type: str
    generation_id: int | None
    protocol_type: str
    protocol_name: str | None
    members: list[GroupMember]
    partitions: list[GroupPartition]
    complete: bool
    streams: StreamsState | None = None


class DescribeGroupRequest(PagedRequest[GroupDescription], tag="groups.describe"):
    """One group, with its partitions from the first one after `after` (topic, partition) on."""

    rows = "partitions members"
    key = "topic partition"
    group: str
    after: tuple[str, int] | None = None


class TopicSelection(msgspec.Struct, forbid_unknown_fields=True):
    """A topic and some of its partitions; None: all partitions."""

    topic: str
    partitions: list[int] | None = None


ResetTarget: TypeAlias = Literal["earliest", "latest", "timestamp", "shift", "offset"]
"""The place to which a reset moves offsets. `timestamp`, `shift` and `offset` need a value."""


class OffsetChange(msgspec.Struct, frozen=True):
    """The new offset of one partition; `note` says why it differs from what the operator asked for."""

    topic: TopicName
    partition: PartitionNumber
    committed_offset: Annotated[int | None, Column("committed", number)]
    new_offset: Annotated[int, Column("new\noffset", number)]
    log_start_offset: Annotated[int, Column("log\nstart", number)]
    high_watermark: Annotated[int, Column("log\nend", number)]
    note: Annotated[str | None, Column("note", none="")]


class OffsetReset(msgspec.Struct, frozen=True):
    """A reset, `executed` or only planned. `state` is None when the group did not exist."""

    group: str
    state: str | None
    executed: bool
    changes: list[OffsetChange]


class ResetOffsetsRequest(Request[OffsetReset], tag="groups.reset"):
    """Commit other offsets for a group without members; without `execute` only report the offsets. `topics`
    None means every partition in which the group has a committed offset.
    """

    group: str
    target: ResetTarget
    value: int = 0
    topics: list[TopicSelection] | None = None
    execute: bool = False


class GroupDeletion(msgspec.Struct, frozen=True):
    """The outcome for one group; `refusal`: why it can't be deleted. `state` is None for an unknown group."""

    group: Annotated[str, Column("group")]
    state: Annotated[str | None, Column("state")]
    committed_partitions: Annotated[int, Column("partitions", count)]
    deleted: bool
    refusal: str | None

    @property
    def outcome(self) -> Annotated[str, Column("")]:
        """The result in words: `deleted`, `would be deleted` for a dry run, or `can't be deleted`."""
        if self.refusal is not None:
            return "can't be deleted"
        return "deleted" if self.deleted else "would be deleted"


class GroupDeletions(msgspec.Struct, frozen=True):
    """One entry for each group named."""

    groups: list[GroupDeletion]


class DeleteGroupsRequest(Request[GroupDeletions], tag="groups.delete"):
    """Delete groups without members, and their offsets; without `execute` only report which they would be."""

    groups: list[str]
    execute: bool = False
