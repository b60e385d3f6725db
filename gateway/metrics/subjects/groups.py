"""Groups that this gateway coordinates, and how far they are behind."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from typing import Final

from gateway.coordinator.group.any_group import Group, all_groups
from gateway.coordinator.group.shard import GroupShard
from gateway.coordinator.group.share_group import ShareGroup
from gateway.metrics.metric import Samples, Sources, Subject, counter, gauge
from gateway.runtime.partitions.registry import Partitions

OTHERS: Final = "(other groups)"
"""The series of all groups without a series of their own."""
LONGEST_ID: Final = 256
"""Characters of a group id that is a label; a group with a longer id has no series of its own."""
GROUPS: Final = gauge(
    "seqgate_groups", "Groups that this gateway coordinates, by type and state.", "type", "state"
)
MEMBERS: Final = gauge("seqgate_group_members", "Members of all groups that this gateway coordinates.")
OFFSETS: Final = gauge(
    "seqgate_group_offsets", "Committed offsets of all groups that this gateway coordinates."
)
LAG: Final = gauge(
    "seqgate_group_lag_records",
    "Records between a group's committed offsets and the ends of the partitions that are open here. The groups with the largest lag have "
    "series of their own, up to seqgate.metrics.groups.max; the others share one. Share groups have no committed offsets.",
    "group",
)
SHARE_SESSIONS: Final = gauge("seqgate_share_sessions", "Share sessions of members of share groups.")
HELD: Final = gauge(
    "seqgate_backlog_held_requests", "Produce requests that wait until a backlog is below its quota."
)
HELD_BYTES: Final = gauge(
    "seqgate_backlog_held_bytes", "Bytes of the Produce requests that wait for a backlog."
)
HELD_TIMED_OUT: Final = counter(
    "seqgate_backlog_held_timed_out_total",
    "Produce requests that waited for a backlog in vain and were refused.",
)


def _read(sources: Sources) -> Samples:
    services = sources.services
    states: Counter[tuple[str, str]] = Counter()
    lags = _Lags(services.node.config.int("seqgate.metrics.groups.max"))
    members = offsets = 0
    for loaded in services.coordinators.groups.shards:
        if not loaded.is_current:
            continue
        shard = loaded.shard
        offsets += len(shard.offsets)
        for group in list(all_groups(shard)):  # groups come and go between two slices
            states[group.type, group.state_text] += 1
            members += len(group.members)
            yield None
            if isinstance(group, ShareGroup):
                continue
            lag = 0
            for behind in _each_lag(services.partitions.registry, shard, group):
                lag += behind
                yield None
            lags.add(group.group_id, lag)
    for (kind, state), count in states.items():
        yield GROUPS.at(count, kind, state)
    yield MEMBERS.at(members)
    yield OFFSETS.at(offsets)
    yield from lags.samples()
    yield SHARE_SESSIONS.at(len(services.coordinators.shares.sessions))
    held = services.upkeep.backlog.held
    yield HELD.at(len(held))
    yield HELD_BYTES.at(held.held_bytes)
    yield HELD_TIMED_OUT.at(held.timed_out)


def _each_lag(partitions: Partitions, shard: GroupShard, group: Group) -> Iterator[int]:
    """Yield for each committed offset by how many records the group is behind; 0 where the partition is not open here."""
    for (topic, index), committed in list(shard.offsets.of(group.group_id).items()):
        found = partitions.by_name.get(topic)
        partition = None if found is None else found.peek(index)
        yield 0 if partition is None else max(0, partition.log.high_watermark - committed.offset)


class _Lags:
    """The largest lags with their groups, and the sum of all others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._largest: list[tuple[int, str]] = []
        """A heap; the smallest of the largest lags is the first."""
        self._others = 0
        self._has_others = False

    def add(self, group_id: str, lag: int) -> None:
        """Take the lag of a group into account."""
        # A client chooses the id. A second series of the name OTHERS would make the whole scrape invalid.
        if not self._most or len(group_id) > LONGEST_ID or group_id == OTHERS:
            self._count_other(lag)
        elif len(self._largest) < self._most:
            heapq.heappush(self._largest, (lag, group_id))
        else:
            self._count_other(heapq.heappushpop(self._largest, (lag, group_id))[0])

    def _count_other(self, lag: int) -> None:
        self._others += lag
        self._has_others = True

    def samples(self) -> Samples:
        """Yield the largest lags, the largest first, and then the others."""
        for lag, group_id in sorted(self._largest, reverse=True):
            yield LAG.at(lag, group_id)
        if self._has_others:
            yield LAG.at(self._others, OTHERS)


SUBJECT: Final = Subject(
    "Groups",
    (GROUPS, MEMBERS, OFFSETS, LAG, SHARE_SESSIONS, HELD, HELD_BYTES, HELD_TIMED_OUT),
    _read,
)
