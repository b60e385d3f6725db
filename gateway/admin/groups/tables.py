"""The tables of `seqgate groups`. Names that clients choose are escaped for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gateway.admin.groups.assigned import NONE, assigned, ranges
from gateway.admin.groups.messages import (
    GroupDeletion,
    GroupDescription,
    GroupMember,
    GroupPartition,
    GroupRow,
    OffsetReset,
)
from gateway.admin.groups.streams_table import print_streams_members
from gateway.admin.printing import Column, count, counted, duration, print_lines, print_table, shown
from gateway.admin.transactions.tables import print_pending_of_group

SHARE: Final = "share"
LONGEST_METADATA: Final = 60


def print_groups(rows: Sequence[GroupRow], offline_partitions: Sequence[int]) -> None:
    """Print a line for each group."""
    columns = (
        Column("group"),
        Column("state"),
        Column("type"),
        Column("protocol"),
        Column("members", number=True),
        Column("partitions", number=True),
        Column("lag", number=True),
    )
    print_table(
        columns,
        [
            (
                shown(row.group),
                row.state,
                row.type,
                _protocol(row.protocol_type, row.protocol_name),
                count(row.members),
                count(row.committed_partitions),
                count(row.total_lag),
            )
            for row in rows
        ],
    )
    print_lines(f"{counted(len(rows), 'group')}.")
    if offline_partitions:
        print_lines(
            f"Groups are missing: {ranges(offline_partitions)} of __consumer_offsets is offline (seqgate status)."
        )


def print_description(description: GroupDescription) -> None:
    """Print a group: its state, its members, its partitions."""
    protocol = _protocol(description.protocol_type, description.protocol_name)
    members = counted(len(description.members), "member")
    print_lines(
        f"Group {shown(description.group)} ({description.type}): {description.state}, {members}, "
        f"{_epochs(description)}protocol {protocol}.",
        "",
    )
    if description.members and description.streams is not None:
        print_streams_members(description.members)
        print_lines("")
    elif description.members:
        _print_members(description.members)
        print_lines("")
    if description.type == SHARE:
        _print_share_partitions(description)
    else:
        _print_partitions(description)
        print_pending_of_group([held for row in description.partitions for held in row.pending])
    skipped = sum(row.skipped for row in description.partitions)
    if skipped:
        print_lines(
            f"{counted(skipped, 'record')} skipped unread since the gateway started, by message.ttl.ms or a backlog quota "
            "(seqgate backlog TOPIC)."
        )


def _epochs(description: GroupDescription) -> str:
    if description.generation_id is None:
        return ""
    if description.streams is None:
        return f"generation {description.generation_id}, "
    epoch = description.streams.topology_epoch
    return (
        f"group epoch {description.generation_id}, assignment epoch {description.streams.assignment_epoch}, "
        f"topology epoch {NONE if epoch is None else epoch}, "
    )


def print_reset(done: OffsetReset) -> None:
    """Print the new offset of each partition."""
    print_table(
        (
            Column("topic"),
            Column("parti-\ntion", number=True),
            Column("committed", number=True),
            Column("new\noffset", number=True),
            Column("log\nstart", number=True),
            Column("log\nend", number=True),
            Column("note"),
        ),
        [
            (
                change.topic,
                str(change.partition),
                _known(change.committed_offset),
                str(change.new_offset),
                str(change.log_start_offset),
                str(change.high_watermark),
                change.note or "",
            )
            for change in done.changes
        ],
    )
    group, partitions = shown(done.group), counted(len(done.changes), "partition")
    if done.state is None:
        print_lines(
            f"Group {group} did not exist." if done.executed else f"Group {group} does not exist yet."
        )
    if done.executed:
        print_lines(f"The offsets of group {group} in {partitions} are committed.")
    else:
        print_lines(f"Nothing is changed; --execute commits these offsets in {partitions} for group {group}.")


def print_deletions(deletions: Sequence[GroupDeletion], *, executed: bool) -> None:
    """Print the outcome for each group."""
    print_table(
        (Column("group"), Column("state"), Column("partitions", number=True), Column("")),
        [
            (
                shown(entry.group),
                entry.state or NONE,
                count(entry.committed_partitions),
                _outcome(entry, executed=executed),
            )
            for entry in deletions
        ],
    )
    if not executed:
        print_lines("Nothing is deleted; --execute does it.")


def _outcome(entry: GroupDeletion, *, executed: bool) -> str:
    if entry.refusal is not None:
        return "can't be deleted"
    return "deleted" if executed else "would be deleted"


def _print_members(members: Iterable[GroupMember]) -> None:
    print_table(
        (
            Column("member"),
            Column("instance"),
            Column("client"),
            Column("host"),
            Column("session", number=True),
            Column("assigned"),
        ),
        [
            (
                shown(member.member_id) + (" (leader)" if member.is_leader else ""),
                NONE if member.group_instance_id is None else shown(member.group_instance_id),
                shown(member.client_id),
                shown(member.client_host),
                NONE if member.session_timeout_ms is None else duration(member.session_timeout_ms),
                assigned(member.assignment),
            )
            for member in members
        ],
    )


def _print_partitions(description: GroupDescription) -> None:
    columns = (
        Column("topic"),
        Column("parti-\ntion", number=True),
        Column("committed", number=True),
        Column("log\nstart", number=True),
        Column("log\nend", number=True),
        Column("lag", number=True),
        Column("age", number=True),
        Column("metadata"),
    )
    print_table(
        columns,
        [
            (
                shown(row.topic),
                str(row.partition),
                _known(row.committed_offset),
                _known(row.log_start_offset),
                _known(row.high_watermark),
                NONE if row.lag is None else count(row.lag),
                NONE if row.age_ms is None else duration(row.age_ms),
                # confluent-kafka's Python client counts the zero at the end of a C string
                shown((row.metadata or "").rstrip("\0"), LONGEST_METADATA),
            )
            for row in description.partitions
        ],
    )
    lag = sum(row.lag or 0 for row in description.partitions)
    print_lines(f"{counted(len(description.partitions), 'partition')}, {counted(lag, 'record')} to read.")
    outside = sum(
        row.committed_offset is not None
        and row.log_start_offset is not None
        and row.high_watermark is not None
        and not row.log_start_offset <= row.committed_offset <= row.high_watermark
        for row in description.partitions
    )
    if outside:
        print_lines(
            f"{counted(outside, 'committed offset')} outside of the log: auto.offset.reset decides where the group continues."
        )


def _print_share_partitions(description: GroupDescription) -> None:
    columns = (
        Column("topic"),
        Column("parti-\ntion", number=True),
        Column("start", number=True),
        Column("given\nout to", number=True),
        Column("log\nend", number=True),
        Column("lag", number=True),
        Column("acquired", number=True),
        Column("holes", number=True),
        Column("most\ndeliveries", number=True),
    )
    print_table(columns, [_share_cells(row) for row in description.partitions])
    lag = sum(row.lag or 0 for row in description.partitions)
    acquired = sum(row.delivery.acquired or 0 for row in description.partitions if row.delivery is not None)
    print_lines(
        f"{counted(len(description.partitions), 'partition')}, {counted(lag, 'record')} to acknowledge, "
        f"{acquired:,} of them acquired."
    )


def _share_cells(row: GroupPartition) -> tuple[str, ...]:
    delivery = row.delivery
    return (
        shown(row.topic),
        str(row.partition),
        NONE if delivery is None else str(delivery.start_offset),
        NONE if delivery is None else _known(delivery.end_offset),
        _known(row.high_watermark),
        NONE if row.lag is None else count(row.lag),
        NONE if delivery is None or delivery.acquired is None else count(delivery.acquired),
        NONE if delivery is None or delivery.holes is None else count(delivery.holes),
        NONE
        if delivery is None or delivery.max_delivery_count is None
        else count(delivery.max_delivery_count),
    )


def _protocol(protocol_type: str, protocol_name: str | None) -> str:
    return shown(", ".join(filter(None, (protocol_type, protocol_name)))) or NONE


def _known(offset: int | None) -> str:
    return NONE if offset is None else str(offset)
