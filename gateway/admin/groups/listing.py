"""`seqgate groups list`: all groups, and how far each has read.

The request and rows, the command, and the answers: any cluster's over the Kafka protocol, and a running
gateway's on the control socket. Functions that answer raise ControlError.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from seqgate.gateway.admin.commands import Output, asks, option
from seqgate.gateway.admin.groups.describing import (
    ClusterGroups,
    FoundGroup,
    GroupProgress,
    LiveGroups,
    committed_offsets,
    lag_of,
    listed,
    share_lag,
)
from seqgate.gateway.admin.groups.members import (
    CLASSIC,
    CONSUMER,
    SHARE,
    STREAMS,
    describing,
    protocol_text,
    ranges,
)
from seqgate.gateway.admin.options import Asker, Opened, gateway_or_cluster
from seqgate.gateway.admin.request import ClusterAnswers, ControlError, PagedRequest, from_source, page
from seqgate.gateway.admin.tables import UNKNOWN, Block, Column, count, counted, table

if TYPE_CHECKING:
    from seqgate.gateway.coordinator.places import TopicPartition

# The request for groups, and what `seqgate groups list --json` prints.


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
    committed_partitions: Annotated[int | None, Column("partitions", count, UNKNOWN)] = None
    total_lag: Annotated[int | None, Column("lag", count, UNKNOWN)] = None

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

    asks_every_worker = True
    is_partial = True
    rows = "groups"
    key = "group"
    states: list[str] = msgspec.field(default_factory=list)
    after: str | None = None


# The command.


@asks(gateway_or_cluster)
def list_groups(
    opened: Opened[Asker],
    states: list[str] | None = option(
        "--state", "STATE", "Only groups in this state; may be repeated.", show_default="all"
    ),
) -> Output:
    """List the consumer groups, share groups and streams groups.

    \b
    Columns:
      protocol     how the members share partitions; `-` where no member ever joined
      partitions   with a committed offset; of a share group, the partitions that it ever read
      lag          records after the committed offsets; of a share group, records that are not done

    \b
    States:
      Empty                 it has no members; its offsets can be reset, and it can be deleted
      PreparingRebalance    waits for its members to join again
      CompletingRebalance   waits for the leader to share out the partitions
      Assigning             the gateway is about to share them out (group.protocol=consumer, streams)
      Reconciling           members still revoke or wait for partitions (group.protocol=consumer, streams)
      NotReady              topics are missing or have a wrong number of partitions (group.protocol=streams)
      Stable                its members read
    """  # noqa: D301 - \b keeps the lines of the list apart
    with opened as client:
        page = client.ask(ListGroupsRequest(states or []))
    document = {"groups": page.groups, "offline_partitions": page.offline_partitions}
    return Output(document, _listing_text(page))


def _listing_text(page: GroupPage) -> Iterator[Block]:
    yield table(GroupRow, page.groups, "group state type protocol members committed_partitions total_lag")
    yield f"{counted(len(page.groups), 'group')}."
    if page.offline_partitions:
        missing = ranges(page.offline_partitions)
        yield f"Groups are missing: {missing} of __consumer_offsets is offline (seqgate status)."


# The answer, from what any source knows of groups.


async def list_groups_of(source: ClusterList | LiveList, request: ListGroupsRequest) -> GroupPage:
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


def known_lags(read: GroupProgress, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the lag in each partition whose high watermark is known."""
    lags = {place: lag_of(committed, ends.get(place)) for place, committed in read.committed.items()}
    lags |= {place: share_lag(read, place, ends.get(place)) for place in read.delivered}
    return {place: lag for place, lag in lags.items() if lag is not None}


# Over the Kafka protocol: any cluster's answer.


class ClusterList(ClusterGroups):
    """The groups of a cluster. It asks every broker ListGroups (`listed`), the coordinators for members
    (not of share groups) and OffsetFetch, and the leaders ListOffsets. The coroutines wait for nothing but
    the network.
    """

    states: Final = (
        "NotReady",
        "Unknown",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
        "Empty",
        "Assigning",
        "Reconciling",
    )

    @property
    def offline_partitions(self) -> list[int]:
        """The partitions of `__consumer_offsets` without a leader: nobody lists their groups."""
        # The name is Kafka's, as in the text: a list needs nothing else of the module of the metadata.
        return self._cluster.unled_partitions("__consumer_offsets")

    def rows(self, states: Collection[str]) -> Iterable[GroupRow]:
        """Return the groups; share groups without the number of their members."""
        found = listed(self._cluster)
        wanted = {state.lower() for state in states}
        if wanted:
            found = {name: row for name, row in found.items() if row.state.lower() in wanted}
        members = self._member_counts(found)
        return [
            GroupRow(name, row.state, row.type, row.protocol_type, None, members.get(name))
            for name, row in found.items()
        ]

    def _member_counts(self, groups: Mapping[str, FoundGroup]) -> dict[str, int]:
        """Return the number of members of groups, without those that are deleted by now."""
        from seqgate.gateway.admin.remote.broker import GROUP  # noqa: PLC0415 - slow to import

        counts: dict[str, int] = {}
        for kind in (CLASSIC, CONSUMER, STREAMS):
            names = [name for name, row in groups.items() if row.type == kind]
            found = self._cluster.ask_coordinators(GROUP, names, partial(describing, self._cluster, kind))
            counts |= {name: len(told.members) for name, told in found.items() if not told.error_code}
        return counts

    async def totals(self, rows: Sequence[GroupRow]) -> Mapping[str, tuple[int, int | None]]:
        """Return the number of partitions and the lag of all groups but share groups."""
        committed = committed_offsets(self._cluster, [row.group for row in rows if row.type != SHARE])
        ends = await self.ends({place for offsets in committed.values() for place in offsets})
        return {
            name: (len(offsets), sum(known_lags(GroupProgress(offsets), ends).values()))
            for name, offsets in committed.items()
        }


OPERATIONS: Final[ClusterAnswers] = {ListGroupsRequest: from_source(ClusterList, list_groups_of)}


# In the gateway: its answer on the control socket.


class LiveList(LiveGroups):
    """The groups that this gateway coordinates."""

    @property
    def states(self) -> Collection[str]:
        from seqgate.gateway.coordinator.group.stored_groups import STATES  # noqa: PLC0415 - slow to import

        return STATES

    @property
    def offline_partitions(self) -> list[int]:
        return self.groups.shards.missing()

    def rows(self, states: Collection[str]) -> Iterator[GroupRow]:
        """Yield the groups in these states, in any state without one, in no order and without their lags."""
        for shard in self.groups.loaded_shards():
            for group in shard.all_groups():
                if not states or group.state_text in states:
                    members = len(group.members)
                    yield GroupRow(group.group_id, group.state_text, group.type, *group.protocol, members)

    async def totals(self, rows: Sequence[GroupRow]) -> Mapping[str, tuple[int, int | None]]:
        import asyncio  # noqa: PLC0415 - slow to import

        found = {}
        shards = list(self.groups.loaded_shards())
        for row in rows:
            shard = next((shard for shard in shards if shard.find(row.group) is not None), None)
            if shard is None:
                continue
            read = await self.read_in(shard, row.group, row.type)
            ends = await self.ends({*read.committed, *read.delivered})
            found[row.group] = len(read.committed) + len(read.delivered), sum(known_lags(read, ends).values())
            # Let requests in between: a group may have thousands of partitions.
            await asyncio.sleep(0)
        return found
