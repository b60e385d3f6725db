"""The groups that a cluster or a running gateway knows, and how far each has read: what the commands of
`seqgate groups` ask. Functions raise ControlError, those of a cluster also errors of kafka-python.

Unlike the control socket of a gateway, the Kafka protocol does not report when an offset was committed, nor
which open transactions hold offsets; these fields stay empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from seqgate.gateway.admin.commands import argument, flag
from seqgate.gateway.admin.completion import group_names
from seqgate.gateway.admin.request import ControlError, Elsewhere
from seqgate.gateway.admin.tables import Column, count, number

if TYPE_CHECKING:
    from seqgate.gateway.admin.operation import LiveGateway
    from seqgate.gateway.admin.remote.cluster import Cluster
    from seqgate.gateway.admin.transactions.pending import PendingOffset
    from seqgate.gateway.coordinator.group.shard import GroupShard
    from seqgate.gateway.coordinator.group.stored_groups import Group as StoredGroup
    from seqgate.gateway.coordinator.places import TopicPartition
    from seqgate.gateway.coordinator.share.share_partition import SharePartition

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"

Group = Annotated[str, argument("GROUP", "The group.id of the consumers.", autocompletion=group_names)]
Yes = Annotated[bool, flag("--yes --execute", "Do not ask; --execute is the old spelling.")]


class ShareDelivery(msgspec.Struct, frozen=True):
    """The progress of a share group in a partition (KIP-932). A record is done when it was accepted, rejected
    or archived.

    `start_offset` is the oldest record that is not done, `end_offset` follows the newest record that was ever
    delivered. The counts are of records between the two: `acquired` records wait for an acknowledgement,
    `waiting` ones for the end of their retry delay, `dying` ones for their dead letter; `holes` are stretches
    of done records, with `done_records` in them. `max_delivery_count` is the highest delivery count of a
    record. Over the Kafka protocol only `start_offset` is known.
    """

    start_offset: Annotated[int, Column("start", number)]
    end_offset: Annotated[int | None, Column("given\nout to", number)]
    acquired: Annotated[int | None, Column("acquired", count)]
    waiting: Annotated[int | None, Column("waiting", count)]
    dying: Annotated[int | None, Column("dying", count)]
    holes: Annotated[int | None, Column("holes", count)]
    done_records: int | None
    max_delivery_count: Annotated[int | None, Column("most\ndeliveries", count)]


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


def known_lags(read: GroupProgress, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the lag in each partition whose high watermark is known."""
    lags = {place: lag_of(committed, ends.get(place)) for place, committed in read.committed.items()}
    lags |= {place: share_lag(read, place, ends.get(place)) for place in read.delivered}
    return {place: lag for place, lag in lags.items() if lag is not None}


def lag_of(committed: Committed | None, high_watermark: int | None) -> int | None:
    """Return how many records a group has not read; 0 when its offset is beyond the high watermark."""
    if committed is None or high_watermark is None:
        return None
    return max(0, high_watermark - committed.offset)


def share_lag(read: GroupProgress, place: TopicPartition, high_watermark: int | None) -> int | None:
    """Return the number of records that are not done, as in DescribeShareGroupOffsets (KIP-1226)."""
    if read.lags is not None:
        return read.lags[place]
    if high_watermark is None:
        return None
    delivered = read.delivered[place]
    return max(0, high_watermark - delivered.start_offset - (delivered.done_records or 0))


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


# Over the Kafka protocol: any cluster's groups.

EMPTY_STATES: Final = frozenset({"Empty", "Dead"})
"""The states of a group without members."""
NO_OFFSET: Final = -1
_LIST, _OFFSETS, _SHARE_OFFSETS = (16, 5), (9, 8), (90, 1)
"""The APIs ListGroups, OffsetFetch and DescribeShareGroupOffsets, and the versions of the requests."""


def listed(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Return the answers of ListGroups about each group, by group id."""
    from seqgate.gateway.protocol.messages import request_type, response_type  # noqa: PLC0415 - slow to import

    told = cluster.ask_all(request_type(*_LIST)(states_filter=(), types_filter=()), response_type(*_LIST))
    if told is None:
        return {row["group_id"]: row for row in cluster.admin.list_groups()}
    fields = "protocol_type", "group_state", "group_type"
    return {
        str(row.group_id): {name: getattr(row, name) for name in fields} for one in told for row in one.groups
    }


def group_state(row: Mapping[str, Any]) -> str:
    """Return the state of a group that ListGroups reports."""
    return str(row.get("group_state") or "Unknown")


def group_type(row: Mapping[str, Any]) -> str:
    """Return the type of a group: classic, consumer, share or streams."""
    return str(row.get("group_type") or CLASSIC).lower()


def committed_offsets(cluster: Cluster, names: list[str]) -> dict[str, dict[TopicPartition, Committed]]:
    """Return the committed offsets of each group, by partition."""
    if not names:
        return {}
    from seqgate.gateway.admin.remote.broker import GROUP  # noqa: PLC0415 - slow to import

    told = cluster.ask_coordinators(GROUP, names, lambda some: offsets(some)[0], offsets(())[1])
    groups: list[Any] = [group for answer in told or () for group in answer.groups]
    places = [
        (str(group.group_id), (str(topic.name), int(row.partition_index)), row)
        for group in groups
        for topic in group.topics
        for row in topic.partitions
    ]
    if told is not None and not any(part.error_code for part in (*groups, *(row for *_, row in places))):
        committed: dict[str, dict[TopicPartition, Committed]] = {name: {} for name in names}
        for name, place, row in places:
            if row.committed_offset >= 0:
                committed[name][place] = Committed(row.committed_offset, row.metadata)
        return committed
    found = cluster.admin.list_group_offsets(dict.fromkeys(names))
    return {
        name: {
            tuple(place): Committed(offset.offset, offset.metadata)
            for place, offset in offsets.items()
            if offset.offset >= 0
        }
        for name, offsets in found.items()
    }


def offsets(groups: Iterable[str]) -> tuple[Any, type[Any]]:
    """Return the question for all committed offsets of groups, and the type of its answer."""
    from seqgate.gateway.protocol.messages import request_module, response_type  # noqa: PLC0415 - slow

    module = request_module(*_OFFSETS)
    wanted = tuple(module.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups)
    return module.OffsetFetchRequest(groups=wanted), response_type(*_OFFSETS)


def share_offsets(groups: Iterable[str]) -> tuple[Any, type[Any]]:
    """Return the question how far share groups have read, and the type of its answer."""
    from seqgate.gateway.protocol.messages import request_module, response_type  # noqa: PLC0415 - slow

    module = request_module(*_SHARE_OFFSETS)
    row = module.DescribeShareGroupOffsetsRequestGroup
    wanted = tuple(row(group_id=group, topics=None) for group in groups)
    return module.DescribeShareGroupOffsetsRequest(groups=wanted), response_type(*_SHARE_OFFSETS)


def share_progress(found: Any) -> GroupProgress:
    """Return what DescribeShareGroupOffsets answers about one group: the oldest records that are not done."""
    rows = {
        (str(topic.topic_name), int(row.partition_index)): row
        for topic in found.topics
        for row in topic.partitions
        if not row.error_code and row.start_offset != NO_OFFSET
    }
    return GroupProgress(
        delivered={
            place: ShareDelivery(int(row.start_offset), None, None, None, None, None, None, None)
            for place, row in rows.items()
        },
        lags={place: None if row.lag < 0 else int(row.lag) for place, row in rows.items()},
    )


def asked_of(cluster: Cluster, group: str, asked: Any, response_type: type[Any]) -> Any:
    """Return what the coordinator answers about the one group of a request."""
    from seqgate.gateway.admin.remote.broker import ask_coordinator  # noqa: PLC0415 - slow to import
    from seqgate.gateway.admin.remote.cluster import check  # noqa: PLC0415

    found = ask_coordinator(cluster.reached, group, asked, response_type).groups[0]
    check(found, f"group {found.group_id}: ")
    return found


class ClusterGroups:
    """The groups of a cluster. The coroutines wait for nothing but the network."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def find(self, groups: Iterable[str]) -> Mapping[str, FoundGroup]:
        known = listed(self._cluster)
        found = {name: known[name] for name in groups if name in known}
        return {
            name: FoundGroup(group_type(row), group_state(row), group_state(row) in EMPTY_STATES)
            for name, row in found.items()
        }

    async def progress(self, group: str, kind: str) -> GroupProgress:
        """Return the committed offsets, or the oldest records of a share group that are not done."""
        if kind != SHARE:
            return GroupProgress(committed_offsets(self._cluster, [group]).get(group, {}))
        return share_progress(asked_of(self._cluster, group, *share_offsets([group])))

    async def starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        from seqgate.gateway.admin.remote.cluster import EARLIEST  # noqa: PLC0415 - slow to import

        return self._cluster.offsets(self._led.intersection(places), EARLIEST)

    async def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        from seqgate.gateway.admin.remote.cluster import LATEST  # noqa: PLC0415 - slow to import

        return self._cluster.offsets(self._led.intersection(places), LATEST)

    @cached_property
    def _led(self) -> set[TopicPartition]:
        return set(self._cluster.leaders())


# In the gateway: the groups that it coordinates, from its own objects.


class LiveGroups:
    """The groups that this gateway coordinates."""

    def __init__(self, gateway: LiveGateway) -> None:
        from seqgate.gateway.runtime.topics.latest_offsets import LatestOffsets  # noqa: PLC0415 - slow

        services = self.services = gateway.services
        self.partitions = services.partitions.registry
        self.groups = services.coordinators.groups
        self._latest = LatestOffsets(
            self.partitions, services.topics.metadata_log.image, services.node.brokers, services.node.peers
        )

    async def find(self, groups: Iterable[str]) -> Mapping[str, FoundGroup]:
        """Return the groups whose state is durable."""
        found = {group: await self.stored(group) for group in groups}
        return {
            name: FoundGroup(group.type, group.state_text, group.is_empty, len(group.members))
            for name, group in found.items()
            if group is not None
        }

    async def stored(self, group_id: str) -> StoredGroup | None:
        """Return a group once its state is durable."""
        shard = await self._shard(group_id)
        return None if shard is None else shard.stored.find(group_id)

    async def _shard(self, group_id: str) -> GroupShard | None:
        """Return the shard of a group once its state is durable; None while the gateway has no groups."""
        from seqgate.gateway.admin.operation import as_control_error  # noqa: PLC0415 - slow to import
        from seqgate.gateway.coordinator.group.offsets import is_name_group  # noqa: PLC0415
        from seqgate.gateway.metadata.image import OFFSETS_TOPIC  # noqa: PLC0415

        if not group_id:
            raise ControlError("the group name is empty")
        if is_name_group(group_id):
            raise ControlError(
                f"{group_id} is no group but stands for a producer name; `seqgate names` shows its sequence "
                "ids"
            )
        leader = self.groups.shards.leader_of(group_id)
        if self.groups.shards.is_elsewhere(group_id):
            raise Elsewhere(
                f"group {group_id} is coordinated by broker {leader}, not by this gateway; ask that one, or "
                "name the cluster with --bootstrap"
            )
        if OFFSETS_TOPIC not in self.partitions.by_name:
            return None
        with as_control_error(f"group {group_id}", OFFSETS_TOPIC):
            return await self.groups.durable_shard(group_id)

    async def progress(self, group: str, kind: str) -> GroupProgress:
        from seqgate.gateway.admin.transactions.pending import pending_in_group  # noqa: PLC0415 - slow

        shard = await self._shard(group)
        if shard is None:
            return GroupProgress()
        read = await self.read_in(shard, group, kind)
        return read._replace(pending=pending_in_group(self.services.coordinators, shard, group))

    async def read_in(self, shard: GroupShard, group: str, kind: str) -> GroupProgress:
        """Return the progress of a group in its shard, without pending offsets."""
        if kind == SHARE:
            return GroupProgress(delivered=await self._delivered(group))
        offsets = shard.offsets.of(group).items()
        return GroupProgress(
            {
                place: Committed(value.offset, value.metadata, value.commit_timestamp_ms)
                for place, value in offsets
            }
        )

    async def _delivered(self, group_id: str) -> dict[TopicPartition, ShareDelivery]:
        """Return the progress in the partitions that a share group (KIP-932) ever read, without those of
        deleted topics. Of a partition whose state another gateway stores only the start offset and the number
        of done records are known.
        """
        from seqgate.gateway.admin.operation import as_control_error  # noqa: PLC0415 - slow to import
        from seqgate.gateway.coordinator.share.records import SharePartitionKey  # noqa: PLC0415
        from seqgate.gateway.metadata.image import SHARE_STATE_TOPIC  # noqa: PLC0415

        topics = self.partitions.by_id
        shares = self.services.coordinators.shares
        found = {key: delivery(partition) for key, partition in shares.known(group_id).items()}
        with as_control_error(f"group {group_id}", SHARE_STATE_TOPIC):
            keys = (SharePartitionKey(group_id, *place) for place in shares.begun(group_id))
            missing = [key for key in keys if key not in found and shares.persister.is_elsewhere(key)]
            summaries = await shares.persister.summaries(missing)
        for key, summary in summaries.items():
            if summary.start_offset >= 0:
                found[key] = ShareDelivery(
                    summary.start_offset, None, None, None, None, None, summary.done, None
                )
        return {
            (topics[key.topic_id].name, key.partition): told
            for key, told in found.items()
            if key.topic_id in topics
        }

    async def starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the log start offsets of the partitions that this gateway leads."""
        found = {place: self.partitions.get(*place) for place in places}
        return {
            place: partition.log.log_start_offset
            for place, partition in found.items()
            if partition is not None
        }

    async def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermarks, also of partitions that other gateways lead."""
        return await self._latest.of(places)


def delivery(found: SharePartition) -> ShareDelivery:
    """Count the records of a partition by their delivery state in the group."""
    from seqgate.gateway.coordinator.share.share_partition import DONE, DeliveryState  # noqa: PLC0415 - slow

    stretches = itertools.groupby(found.runs, key=lambda run: run.state in DONE)
    done = [sum(map(len, runs)) for is_done, runs in stretches if is_done]
    return ShareDelivery(
        start_offset=found.start_offset,
        end_offset=found.end_offset,
        acquired=sum(len(run) for run in found.runs if run.state is DeliveryState.ACQUIRED),
        waiting=sum(len(run) for run in found.runs if run.is_waiting),
        dying=sum(len(run) for run in found.runs if run.state is DeliveryState.ARCHIVING),
        holes=len(done),
        done_records=sum(done),
        max_delivery_count=max((run.delivery_count for run in found.runs), default=0),
    )
