"""The groups of a cluster for lists, with the figures of some of them. Raises ControlError or an error of kafka-python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.admin.groups.remote import CLASSIC, CONSUMER, SHARE, STREAMS, group_type, listed
from gateway.admin.remote.cluster import Cluster
from gateway.console.asking.cache import Cache
from gateway.console.asking.group_coordinators import committed_in, member_counts, share_lags
from gateway.console.asking.group_lag import Place, ends_of

KEPT_S: Final = 5.0
SIMPLE: Final = "simple"
"""The kind of a group that only stores offsets: its consumers choose their partitions themselves."""
KINDS: Final = (CLASSIC, CONSUMER, SHARE, STREAMS, SIMPLE)


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group in a list."""

    group: str
    kind: str
    state: str
    protocol: str


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """The figures of a group in the list of groups; None for a figure that the cluster does not tell."""

    members: int | None
    partitions: int | None
    lag: int | None
    topics: frozenset[str] = frozenset()


UNKNOWN: Final = GroupFigures(None, None, None)

group_lists: Final[Cache[list[GroupLine]]] = Cache(KEPT_S)
figures: Final[Cache[Mapping[str, GroupFigures]]] = Cache(KEPT_S)


def group_lines(cluster: Cluster) -> list[GroupLine]:
    """Return all groups, by their ids; a list that is a few seconds old counts."""
    return group_lists.get(cluster.reached.security, cluster.addresses, lambda: _asked(cluster))


def _asked(cluster: Cluster) -> list[GroupLine]:
    return [_line(group, row) for group, row in sorted(listed(cluster).items())]


def _line(group: str, row: Mapping[str, Any]) -> GroupLine:
    state = str(row.get("group_state") or "Unknown")
    return GroupLine(group, kind_of(row), state, str(row.get("protocol_type") or ""))


def kind_of(row: Mapping[str, Any]) -> str:
    """Return the kind of a group that ListGroups reports."""
    kind = group_type(row)
    return SIMPLE if kind == CLASSIC and not row.get("protocol_type") else kind


def group_figures(cluster: Cluster, lines: Sequence[GroupLine]) -> Mapping[str, GroupFigures]:
    """Return the figures of groups, by group id; figures that are a few seconds old count."""
    key = (cluster.addresses, tuple(line.group for line in lines))
    return figures.get(cluster.reached.security, key, lambda: _asked_figures(cluster, lines))


def _asked_figures(cluster: Cluster, lines: Sequence[GroupLine]) -> Mapping[str, GroupFigures]:
    by_kind = {kind: _of(lines, kind) for kind in (CONSUMER, SHARE, STREAMS)}
    members = member_counts(cluster, {CLASSIC: _of(lines, CLASSIC, SIMPLE), **by_kind})
    committed = committed_in(cluster, [line.group for line in lines if line.kind != SHARE])
    ends = ends_of(cluster, {place for offsets in committed.values() for place in offsets})
    found = {group: _figures_of(members.get(group), offsets, ends) for group, offsets in committed.items()}
    for group, lags in share_lags(cluster, _of(lines, SHARE)).items():
        topics = frozenset(topic for topic, _ in lags)
        total = sum(lag or 0 for lag in lags.values())
        found[group] = GroupFigures(members.get(group), len(lags), total, topics)
    return found


def _of(lines: Iterable[GroupLine], *kinds: str) -> list[str]:
    return [line.group for line in lines if line.kind in kinds]


def _figures_of(
    members: int | None, committed: Mapping[Place, int], ends: Mapping[Place, int]
) -> GroupFigures:
    lag = sum(max(0, ends[place] - offset) for place, offset in committed.items() if place in ends)
    return GroupFigures(members, len(committed), lag, frozenset(topic for topic, _ in committed))
