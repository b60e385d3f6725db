"""The tables of `seqgate transactions`. Names that clients choose are escaped for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.admin.printing import (
    Column,
    count,
    counted,
    duration,
    moment,
    print_lines,
    print_table,
    shown,
)
from gateway.admin.request import STOPPED
from gateway.admin.transactions.messages import (
    HangingTransaction,
    PendingOffset,
    TransactionAbort,
    TransactionDescription,
    TransactionListing,
    TransactionPartition,
)

NONE: Final = "-"


def print_transactions(listing: TransactionListing) -> None:
    """Print a line for each transactional id."""
    columns = (
        Column("transactional id"),
        Column("state"),
        Column("producer", number=True),
        Column("epoch", number=True),
        Column("partitions", number=True),
        Column("age", number=True),
        Column("timeout", number=True),
    )
    print_table(
        columns,
        [
            (
                shown(row.transactional_id),
                row.state,
                str(row.producer_id),
                str(row.producer_epoch),
                count(row.partition_count),
                _length(row.age_ms),
                duration(row.timeout_ms),
            )
            for row in listing.transactions
        ],
    )
    print_lines(f"{counted(len(listing.transactions), 'transactional id')}.")
    _print_offline("Transactional ids are missing", listing.offline_partitions)
    if listing.partitions_elsewhere:
        led = counted(len(listing.partitions_elsewhere), "partition")
        print_lines(
            f"Transactional ids are missing: other gateways lead {led} of __transaction_state; ask the cluster with --bootstrap."
        )
    _print_stopped(listing.gateway)


def print_description(gateway: str, description: TransactionDescription) -> None:
    """Print a transactional id: its producer, its partitions, the offsets that its transaction holds."""
    print_lines(
        f"Transactional id {shown(description.transactional_id)}: {description.state}, "
        f"producer {description.producer_id}, epoch {description.producer_epoch}, "
        f"timeout {duration(description.timeout_ms)}.",
    )
    if description.last_update_ms is not None:
        print_lines(f"Last heard of {moment(description.last_update_ms)}.")
    if description.start_ms is not None:
        print_lines(
            f"Its transaction began {moment(description.start_ms)}, {_length(description.age_ms)} ago.", ""
        )
        _print_partitions(description.partitions)
        _print_pending(description.pending_offsets, description.pending_offset_count)
    _print_stopped(gateway)


def print_hanging(rows: Sequence[HangingTransaction], offline_partitions: Sequence[int]) -> None:
    """Print a line for each hanging transaction."""
    columns = (
        Column("topic"),
        Column("parti-\ntion", number=True),
        Column("first\noffset", number=True),
        Column("producer", number=True),
        Column("epoch", number=True),
        Column("transactional id"),
        Column("age", number=True),
        Column("reason"),
    )
    print_table(
        columns,
        [
            (
                shown(row.topic),
                str(row.partition),
                str(row.first_offset),
                str(row.producer_id),
                str(row.producer_epoch),
                _name(row.transactional_id),
                duration(row.age_ms),
                row.reason,
            )
            for row in rows
        ],
    )
    print_lines(f"{counted(len(rows), 'hanging transaction')}.")
    _print_offline("Transactions of unknown producers are missing", offline_partitions)


def print_abort(planned: TransactionAbort) -> None:
    """Print the transaction that an abort would end."""
    _print_partitions(planned.partitions)
    more = planned.partition_count - len(planned.partitions)
    if more:
        print_lines(f"and {more:,} more.")
    name, ago = planned.transactional_id, duration(planned.age_ms)
    producer = f"producer {planned.producer_id}, epoch {planned.producer_epoch}"
    offsets = planned.pending_offset_count
    with_them = f", and {counted(offsets, 'offset')} of groups with them" if offsets else ""
    if planned.start_ms is None:
        whose = "of no transactional id" if name is None else f"of {shown(name)}"
        print_lines(
            f"Open here only: {producer}, {whose}, which last wrote {ago} ago.",
            f"An abort ends its records in this partition{with_them}.",
        )
        return
    print_lines(
        f"The transaction of {shown(name or '')} ({producer}) is open for {ago}.",
        f"An abort ends its records in {counted(planned.partition_count, 'partition')}{with_them}, "
        "and fences its producer.",
    )


def print_aborted(done: TransactionAbort) -> None:
    """Print the outcome of an abort."""
    partitions = counted(done.partition_count, "partition")
    if done.fenced_by is None:
        print_lines(f"Aborted in {partitions}.")
        return
    print_lines(
        f"Aborted in {partitions}; the producer is fenced by producer {done.fenced_by.producer_id}, "
        f"epoch {done.fenced_by.producer_epoch}."
    )


def print_pending_of_group(pending: Sequence[PendingOffset]) -> None:
    """Print the offsets of one group that open transactions hold."""
    if not pending:
        return
    print_lines("", "Held by open transactions, to be committed with them:")
    columns = (
        Column("topic"),
        Column("parti-\ntion", number=True),
        Column("offset", number=True),
        Column("transactional id"),
        Column("producer", number=True),
        Column("epoch", number=True),
        Column("note"),
    )
    print_table(
        columns,
        [
            (
                shown(held.topic),
                str(held.partition),
                str(held.offset),
                _name(held.transactional_id),
                str(held.producer_id),
                str(held.producer_epoch),
                _note(held),
            )
            for held in pending
        ],
    )


def _print_partitions(partitions: Sequence[TransactionPartition]) -> None:
    columns = (
        Column("topic"),
        Column("parti-\ntion", number=True),
        Column("first\noffset", number=True),
        Column("last\nstable", number=True),
        Column("log\nend", number=True),
    )
    print_table(
        columns,
        [
            (
                shown(row.topic),
                str(row.partition),
                _known(row.first_offset),
                _known(row.last_stable_offset),
                _known(row.high_watermark),
            )
            for row in partitions
        ],
    )


def _print_pending(pending: Sequence[PendingOffset], total: int | None) -> None:
    if total is None:
        return
    if not total:
        print_lines("It holds no offsets of groups.")
        return
    print_lines("", "Offsets that it holds, to be committed with it:")
    columns = (
        Column("group"),
        Column("topic"),
        Column("parti-\ntion", number=True),
        Column("offset", number=True),
        Column("note"),
    )
    print_table(
        columns,
        [
            (shown(held.group), shown(held.topic), str(held.partition), str(held.offset), _note(held))
            for held in pending
        ],
    )
    if len(pending) < total:
        print_lines(f"and {total - len(pending):,} more.")


def _print_stopped(gateway: str) -> None:
    if gateway == STOPPED:
        print_lines("The gateway is not running; this is what its data directory holds.")


def _print_offline(what: str, offline_partitions: Sequence[int]) -> None:
    if offline_partitions:
        names = ", ".join(map(str, offline_partitions))
        print_lines(f"{what}: {names} of __transaction_state is offline (seqgate status).")


def _note(held: PendingOffset) -> str:
    return "superseded" if held.superseded else ""


def _name(transactional_id: str | None) -> str:
    return NONE if transactional_id is None else shown(transactional_id)


def _known(offset: int | None) -> str:
    return NONE if offset is None else str(offset)


def _length(length_ms: int | None) -> str:
    return NONE if length_ms is None else duration(length_ms)
