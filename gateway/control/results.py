"""What the control socket answers, and what `seqgate … --json` prints.

Times are milliseconds since the Unix epoch, ranges of producer ids are inclusive.
"""

from __future__ import annotations

import msgspec

from gateway.control.name_results import NameCounters


class BlockRow(msgspec.Struct, frozen=True):
    """A block of producer ids. `used` and `left` are counts of ids, None where nobody knows them.

    `state` is one of the words in `gateway.control.blocks`.
    """

    first_producer_id: int
    last_producer_id: int
    owner: str
    claimed_at_ms: int
    used: int | None
    left: int | None
    state: str


class BlockPage(msgspec.Struct, frozen=True):
    """Some of the `total` blocks of the store, and the lowest id that the next block can begin at."""

    store: str
    next_producer_id: int
    total: int
    blocks: list[BlockRow]


class Owner(msgspec.Struct, frozen=True):
    """Who has a producer id: `block` is None for an id that no block holds.

    `handed_out` tells whether a producer got it, None where nobody knows.
    """

    producer_id: int
    block: BlockRow | None
    handed_out: bool | None
    next_producer_id: int


class OverlapRow(msgspec.Struct, frozen=True):
    """Ids that two blocks both hold."""

    first_producer_id: int
    last_producer_id: int
    lower: BlockRow
    upper: BlockRow


class Overlaps(msgspec.Struct, frozen=True):
    """The check of all blocks: sound when `overlaps` is empty."""

    checked: int
    overlaps: list[OverlapRow]


class Moved(msgspec.Struct, frozen=True):
    """The next id before and after."""

    previous: int
    current: int


class ProducerRow(msgspec.Struct, frozen=True):
    """One producer of one partition: what DescribeProducers answers, and what the gateway knows beside.

    `age_ms` is the time since its last append by the gateway's clock; `last_timestamp` is that of its newest record.
    `retained_batches` counts the batches whose repetition is still answered with their first offset.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
    age_ms: int
    retained_batches: int


class ProducerCounters(msgspec.Struct, frozen=True):
    """Since the gateway started: batches answered as duplicates and refused for their sequence or epoch, producers
    forgotten for others and new producers refused for want of room; and how many producers are remembered now.
    """

    duplicates: int
    rejections: int
    evictions: int
    refusals: int
    remembered: int


class ProducerPage(msgspec.Struct, frozen=True):
    """Some of the producers; `complete` when no other comes after the last row."""

    producers: list[ProducerRow]
    complete: bool
    counters: ProducerCounters


class OfflinePartition(msgspec.Struct, frozen=True):
    """A partition that a failed write or flush took out of service."""

    topic: str
    partition: int
    reason: str


class Status(msgspec.Struct, frozen=True):
    """How a running gateway is; counts are since its start unless they are of what is there now."""

    version: str
    pid: int
    node_id: int
    cluster_id: str
    data_dir: str
    listeners: dict[str, str]
    uptime_ms: int
    topics: int
    partitions: int
    offline_partitions: list[OfflinePartition]
    connections: int
    refused_connections: int
    requests: int
    flush_rounds: int
    flush_failures: int
    producer_id_store: str
    producer_ids_left: int
    producer_id_store_error: str | None
    counters: ProducerCounters
    names: NameCounters


class Reopened(msgspec.Struct, frozen=True):
    """A partition is back in service, with the log from `log_start_offset` to `log_end_offset` (exclusive)."""

    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int


class GroupRow(msgspec.Struct, frozen=True):
    """A group, `classic`, `consumer` (KIP-848) or `share` (KIP-932). `protocol_name` is what its members agreed on, None
    while they have not.

    `total_lag` counts the records between the committed offsets and the high watermarks; those that are not done in a
    share group, whose `committed_partitions` are those that it ever read.
    """

    group: str
    state: str
    type: str
    protocol_type: str
    protocol_name: str | None
    members: int
    committed_partitions: int
    total_lag: int


class GroupPage(msgspec.Struct, frozen=True):
    """Some of the groups; `complete` when no other comes after the last row.

    `offline_partitions` are those of `__consumer_offsets` that are out of service: their groups are not told.
    """

    groups: list[GroupRow]
    complete: bool
    offline_partitions: list[int]


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a group. `assignment` is partitions by topic, None where it can't be read.

    `rebalance_timeout_ms` is None in a share group, which never waits for its members to give partitions back.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int | None
    is_leader: bool
    assignment: dict[str, list[int]] | None


class ShareDelivery(msgspec.Struct, frozen=True):
    """What a share group made of a partition (KIP-932). A record is done when it was accepted, rejected or given up.

    `start_offset` is the oldest one that is not done, `end_offset` follows the newest one that was ever given out.
    Counts are of what lies between: `acquired` records that a member has and has not answered for, `holes` stretches of
    done records, with `done_records` in them. `max_delivery_count` tells how often one was given out at most.
    """

    start_offset: int
    end_offset: int
    acquired: int
    holes: int
    done_records: int
    max_delivery_count: int


class PendingOffset(msgspec.Struct, frozen=True):
    """An offset that an open transaction holds: it is committed with the transaction, or vanishes with it.

    `transactional_id` is None where nobody knows whose producer it is. A `superseded` one never counts: a commit that
    came later does already.
    """

    group: str
    topic: str
    partition: int
    offset: int
    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    superseded: bool


class GroupPartition(msgspec.Struct, frozen=True):
    """A partition that a group has a committed offset of, that is assigned to the member `member_id`, or that open
    transactions hold offsets of (`pending`, in the order they came), or all of that.

    What nobody knows is None: a log's offsets when the partition is gone, a commit's when there is none. `lag` is
    never negative. A share group commits no offset and may have several readers of a partition: it has `delivery`
    instead, None where it has not read yet, and its `lag` counts the records that are not done. `skipped` counts the
    records that the group was moved over unread since the gateway started, by message TTL or a backlog quota.
    """

    topic: str
    partition: int
    committed_offset: int | None
    log_start_offset: int | None
    high_watermark: int | None
    lag: int | None
    metadata: str | None
    commit_timestamp: int | None
    age_ms: int | None
    member_id: str | None
    pending: list[PendingOffset]
    delivery: ShareDelivery | None
    skipped: int = 0


class GroupDescription(msgspec.Struct, frozen=True):
    """A group with some of its partitions; `complete` when no other comes after the last row.

    `generation_id` is the epoch of a consumer or share group. `members` are told with the first partitions only.
    """

    group: str
    state: str
    type: str
    generation_id: int
    protocol_type: str
    protocol_name: str | None
    members: list[GroupMember]
    partitions: list[GroupPartition]
    complete: bool


class OffsetChange(msgspec.Struct, frozen=True):
    """Where a reset takes one partition; `note` tells when that is not what was asked for."""

    topic: str
    partition: int
    committed_offset: int | None
    new_offset: int
    log_start_offset: int
    high_watermark: int
    note: str | None


class OffsetReset(msgspec.Struct, frozen=True):
    """A reset, `executed` or only worked out. `state` is None when the group did not exist."""

    group: str
    state: str | None
    executed: bool
    changes: list[OffsetChange]


class GroupDeletion(msgspec.Struct, frozen=True):
    """What became of a group; `refusal` tells why it can't be deleted. `state` is None when it does not exist."""

    group: str
    state: str | None
    committed_partitions: int
    deleted: bool
    refusal: str | None


class GroupDeletions(msgspec.Struct, frozen=True):
    """One entry for each group named."""

    groups: list[GroupDeletion]
