"""Asks the coordinators of many groups at once about members and offsets.

A group that this login may not describe, or whose coordinator does not answer, is left out. Raises
ControlError when the first broker does not answer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from seqgate.gateway.admin.configs import described
from seqgate.gateway.admin.dead_letters import DeadLetter, letter_of
from seqgate.gateway.admin.groups.describing import (
    Committed,
    GroupProgress,
    asked_at_once,
    committed_offsets,
    committed_rows,
    listed,
    offsets,
    share_offsets,
    share_progress,
)
from seqgate.gateway.admin.groups.listing import known_lags
from seqgate.gateway.admin.groups.members import CLASSIC, CONSUMER, SHARE, STREAMS, describing
from seqgate.gateway.admin.remote.broker import GROUP, BrokerAddress, ask_broker
from seqgate.gateway.admin.remote.cluster import Cluster, by_name
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.config.groups import LETTER_TOPIC
from seqgate.gateway.console.asking.connections import Cache, kept
from seqgate.gateway.console.asking.records import RecordFilter, Wish, record_page
from seqgate.gateway.console.asking.topics import topic_places
from seqgate.gateway.coordinator.places import TopicPartition

TIMEOUT_S: Final = 10.0


def group_members(cluster: Cluster, lines: Sequence[GroupLine]) -> dict[str, list[str]]:
    """Return the client ids of the members of each group."""
    kinds = {CLASSIC: _of(lines, CLASSIC, SIMPLE)}
    kinds |= {kind: _of(lines, kind) for kind in (CONSUMER, SHARE, STREAMS)}
    return {
        str(found.group_id): [str(member.client_id) for member in found.members]
        for kind, names in kinds.items()
        for found in _answers(cluster, names, partial(describing, cluster, kind)).values()
    }


def progress_of(cluster: Cluster, lines: Sequence[GroupLine]) -> dict[str, GroupProgress]:
    """Return the progress of each group."""
    groups = [line.group for line in lines if line.kind != SHARE]
    read = {
        group: GroupProgress(
            {
                place: Committed(int(row.committed_offset), None)
                for place, row in committed_rows(found)
                if not row.error_code
            }
        )
        for some in asked_at_once(cluster, groups)
        for group, found in _answers(cluster, some, partial(offsets, cluster)).items()
    }
    shared = _answers(cluster, _of(lines, SHARE), partial(share_offsets, cluster))
    return read | {group: share_progress(found) for group, found in shared.items()}


def _answers(
    cluster: Cluster, groups: Sequence[str], question: Callable[[Sequence[str]], Any]
) -> Mapping[str, Any]:
    """Return what the coordinators answer about each group, without the groups that they refuse."""
    if not groups:
        return {}
    coordinated: dict[BrokerAddress, list[str]] = defaultdict(list)
    for group, row in cluster.coordinators(GROUP, groups).items():
        if not row.error_code:
            coordinated[cluster.reached.other(row.host, int(row.port))].append(group)
    answers: dict[BrokerAddress, Any] = {}
    with suppress(ControlError):  # the cluster may not know the API, or a coordinator hang up
        asked = {address: question(some) for address, some in coordinated.items()}
        if cluster.is_partial:
            answers |= cluster.ask_each(asked)
        else:
            for address, request in asked.items():
                with suppress(ControlError):
                    answers[address] = ask_broker(address, request, timeout_s=TIMEOUT_S)
    rows = (by_name(answer, coordinated[address]) for address, answer in answers.items())
    return {group: found for some in rows for group, found in some.items() if not found.error_code}


# How far a group is behind the ends of its partitions. Raises ControlError.

TOTAL: Final = "lag"
"""The series of all topics; those of topics begin with `topic:`, because a topic may be named `lag`."""


def series_of(topic: str) -> str:
    return f"topic:{topic}"


def ends_of(cluster: Cluster, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the high watermark of each partition that has a leader."""
    wanted = set(places)
    return cluster.ends(wanted & cluster.leaders().keys()) if wanted else {}


def lags_by_topic(read: GroupProgress, ends: Mapping[TopicPartition, int]) -> Counter[str]:
    """Return the lag of a group in each of its topics."""
    lags: Counter[str] = Counter()
    for (topic, _), lag in known_lags(read, ends).items():
        lags[topic] += lag
    return lags


def lag_by_topic(cluster: Cluster, group: str, *, is_share: bool) -> dict[str, float | None]:
    """Return the lag of a group, and of each of its topics, by the names of their series."""
    if is_share:
        read = progress_of(cluster, [GroupLine(group, SHARE, "", "")]).get(group, GroupProgress())
    else:
        read = GroupProgress(committed_offsets(cluster, [group]).get(group, {}))
    lags = lags_by_topic(read, ends_of(cluster, read.committed))
    return {TOTAL: lags.total(), **{series_of(topic): lag for topic, lag in lags.items()}}


# The groups of a cluster for lists, with the figures of some of them. Raises ControlError.

KEPT_S: Final = 5.0
SIMPLE: Final = "simple"
"""The kind of a group that only stores offsets: its consumers choose their partitions themselves."""
KINDS: Final = (CLASSIC, CONSUMER, SHARE, STREAMS, SIMPLE)


@dataclass(frozen=True, slots=True)
class GroupLine:
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

figures: Final[Cache[Mapping[str, GroupFigures]]] = Cache(KEPT_S)


@kept(KEPT_S)
def group_lines(cluster: Cluster) -> list[GroupLine]:
    """Return all groups, by their ids; a list that is a few seconds old counts."""
    return [
        GroupLine(group, kind_of(row.type, row.protocol_type), row.state, row.protocol_type)
        for group, row in sorted(listed(cluster).items())
    ]


def kind_of(group_type: str, protocol_type: str | None) -> str:
    return SIMPLE if group_type == CLASSIC and not protocol_type else group_type


def group_figures(cluster: Cluster, lines: Sequence[GroupLine]) -> Mapping[str, GroupFigures]:
    """Return the figures of groups, by group id; figures that are a few seconds old count."""
    key = (cluster.addresses, cluster.is_partial, tuple(line.group for line in lines))
    return figures.get(cluster.reached.security, key, lambda: _asked_figures(cluster, lines))


def _asked_figures(cluster: Cluster, lines: Sequence[GroupLine]) -> Mapping[str, GroupFigures]:
    members = {group: len(clients) for group, clients in group_members(cluster, lines).items()}
    read = progress_of(cluster, lines)
    ends = ends_of(cluster, {place for each in read.values() for place in each.committed})
    return {group: _figures_of(members.get(group), each, ends) for group, each in read.items()}


def _of(lines: Iterable[GroupLine], *kinds: str) -> list[str]:
    return [line.group for line in lines if line.kind in kinds]


def _figures_of(members: int | None, read: GroupProgress, ends: Mapping[TopicPartition, int]) -> GroupFigures:
    places = {*read.committed, *read.delivered}
    lag = sum(known_lags(read, ends).values())
    return GroupFigures(members, len(places), lag, frozenset(topic for topic, _ in places))


# The newest dead letters of a share group.

NEWEST_READ: Final = 100
"""Records of a dead-letter topic that one page reads; groups may share the topic."""
MOST_LETTERS: Final = 20


class GroupLetters(NamedTuple):
    """The newest letters of a group, the newest first, or why they can't be read; `topic` is "" where the
    group has no dead-letter topic.
    """

    topic: str = ""
    letters: Sequence[DeadLetter] = ()
    trouble: str | None = None


@kept(KEPT_S)
def newest_letters(cluster: Cluster, group: str) -> GroupLetters:
    """Return the newest letters of a group; an answer that is a few seconds old counts."""
    rows = described(cluster, "group", [group]).get(group, ())
    topic = next((row.value for row in rows if row.name == LETTER_TOPIC and row.value), None)
    if topic is None:
        return GroupLetters()
    try:
        newest = Wish(rows=NEWEST_READ, committed=True)
        page = record_page(cluster, topic_places(cluster, topic), newest, RecordFilter())
    except ControlError as error:
        return GroupLetters(topic, trouble=str(error))
    read = (letter_of(kept.record, kept.record.time_ms) for kept in page.records)
    letters = [letter for letter in read if letter is not None and letter.group == group]
    return GroupLetters(topic, letters[:MOST_LETTERS])
