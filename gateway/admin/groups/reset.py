"""`seqgate groups reset`: moves the committed offsets of a group without members.

The new offset of a reset:

    target      the new offset
    earliest    the log start offset
    latest      the high watermark
    timestamp   the first record with that timestamp or a later one, the high watermark when there is none
    shift       the committed offset plus a number of records, which may be negative
    offset      the offset given

An offset that no consumer can read is clamped to the log start or the high watermark. Source: Kafka's
ConsumerGroupCommand.prepareOffsetsToReset.

The request and rows, the command, and the answers: any cluster's over the Kafka protocol, and a running
gateway's on the control socket. Functions that answer raise ControlError.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from seqgate.gateway.admin.commands import Output, asks, flag, option, stop
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.groups.describing import (
    ClusterGroups,
    Committed,
    Consented,
    Group,
    LiveGroups,
    refusal_if_it_has_members,
)
from seqgate.gateway.admin.groups.members import CLASSIC, SHARE
from seqgate.gateway.admin.operation import as_control_error, check_led_here, existing_topic
from seqgate.gateway.admin.options import Asker, Opened, gateway_or_cluster
from seqgate.gateway.admin.request import ClusterAnswers, ControlError, Request, from_source
from seqgate.gateway.admin.tables import (
    Block,
    Column,
    PartitionNumber,
    TopicName,
    counted,
    moment,
    number,
    shown,
    table,
)
from seqgate.gateway.admin.times import timestamp_ms

if TYPE_CHECKING:
    from seqgate.gateway.coordinator.places import TopicPartition

# The request for a reset, and what `seqgate groups reset --json` prints.


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


# The command.


@asks(gateway_or_cluster)
def reset(
    opened: Opened[Asker],
    group: Group,
    *,
    topics: list[str] | None = option(
        "--topic",
        "TOPIC[:P,P]",
        "The topic, or these partitions of it; may be repeated.",
        autocompletion=topic_names,
    ),
    all_topics: bool = flag("--all-topics", "Every partition in which the group has a committed offset."),
    earliest: bool = flag("--to-earliest", "To the oldest record, to read everything again."),
    latest: bool = flag("--to-latest", "To the log end, to skip all present records."),
    timestamp: str | None = option(
        "--to-timestamp",
        "MOMENT",
        "To the first record at or after a time: 2026-01-31T13:45:00 (local time, or with Z or "
        "+02:00), or milliseconds.",
    ),
    shift: int | None = option(
        "--shift-by", "N", "By N offsets from the committed one: forward, or back with -N."
    ),
    offset: int | None = option("--to-offset", "N", "To this offset."),
    consent: Consented,
) -> Output:
    """Reset a group's offsets.

    Shows the new offset of each partition, and asks; then commits them. With --json the command never asks:
    without --yes it only reports. The group must have no members, so stop its consumers first. An offset
    outside of the log is clamped to the log start or end, and marked. A group that does not exist yet is
    created with these offsets, before its consumers start.

    Not for share groups: kafka-share-groups.sh --reset-offsets sets where they continue.

    \b
    For example:
      seqgate groups reset billing --all-topics --to-earliest
      seqgate groups reset billing --topic orders:0,3 --shift-by -100 --dry-run
      seqgate groups reset billing --topic orders --to-timestamp 2026-01-31T13:45:00Z --yes
    """  # noqa: D301 - \b keeps the lines of the list apart
    if bool(topics) == all_topics:
        raise stop("name either topics with --topic, or --all-topics", code=2)
    try:
        target, value = reset_target(
            earliest=earliest, latest=latest, timestamp=timestamp, shift=shift, offset=offset
        )
        selections = None if topics is None else topic_selections(topics)
    except ValueError as error:
        raise stop(str(error), code=2) from None

    def text(done: OffsetReset) -> Iterator[Block]:
        return _reset_text(done, value if target == "timestamp" else None)

    with opened as client:
        done = consent.plan_ask_and_do(
            lambda execute: client.ask(ResetOffsetsRequest(group, target, value, selections, execute)),
            text,
            "Commit these offsets?",
        )
    return Output(done, text(done))


# Parses the options of `seqgate groups reset`. Raises ValueError with a sentence.

TARGETS: Final = ("--to-earliest", "--to-latest", "--to-timestamp", "--shift-by", "--to-offset")


def reset_target(
    *, earliest: bool, latest: bool, timestamp: str | None, shift: int | None, offset: int | None
) -> tuple[ResetTarget, int]:
    """Return the one target that is given, with its value."""
    given: list[tuple[ResetTarget, int]] = []
    if earliest:
        given.append(("earliest", 0))
    if latest:
        given.append(("latest", 0))
    if timestamp is not None:
        given.append(("timestamp", timestamp_ms(timestamp)))
    if shift is not None:
        given.append(("shift", shift))
    if offset is not None:
        given.append(("offset", offset))
    if len(given) != 1:
        raise ValueError(f"name exactly one of {', '.join(TARGETS)}")
    return given[0]


def topic_selections(texts: Sequence[str]) -> list[TopicSelection]:
    """Parse `TOPIC`, which means all its partitions, or `TOPIC:0,3`; selections of one topic are joined."""
    wanted: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not topic:
            raise ValueError(f"{text!r} has no topic name")
        if not colon:
            wanted[topic] = None
            continue
        partitions = [_partition(text, number) for number in numbers.split(",")]
        known = wanted.setdefault(topic, [])
        if known is not None:
            known.extend(partitions)
    return [TopicSelection(topic, partitions) for topic, partitions in wanted.items()]


def _partition(text: str, number: str) -> int:
    if not (number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is not a topic with partitions; write TOPIC:0,3")
    return int(number)


def _reset_text(done: OffsetReset, time_ms: int | None) -> Iterator[Block]:
    """Yield the new offset of each partition; `time_ms` is the time to which the offsets move."""
    if time_ms is not None:
        yield f"To the first record not older than {moment(time_ms)} (local time)."
        yield ""
    yield table(OffsetChange, done.changes)
    group, partitions = shown(done.group), counted(len(done.changes), "partition")
    if done.state is None:
        yield f"Group {group} did not exist." if done.executed else f"Group {group} does not exist yet."
    if done.executed:
        yield f"The offsets of group {group} in {partitions} are committed."
    else:
        yield f"Offsets of group {group} to commit: {partitions}."


# The answer, from what any source knows of offsets.

MAX_RESET_PARTITIONS: Final = 10_000
"""Partitions of one reset; a reset of more is refused."""


class PartitionOffsets(NamedTuple):
    """The offsets of a partition. `at_timestamp` is that of the first record at the target's timestamp."""

    log_start_offset: int
    high_watermark: int
    committed_offset: int | None = None
    at_timestamp: int | None = None


async def reset_offsets(source: ClusterReset | LiveReset, request: ResetOffsetsRequest) -> OffsetReset:
    """Find the new offsets of the group, and commit all of them in one request if `execute` is set. Raises
    ControlError for a share group, and for one with members ("group … is in use"); `source` asks for groups,
    offsets and ends as `describing.py` does.
    """
    group = request.group
    found = (await source.find([group])).get(group)
    if found is not None:
        if found.type == SHARE:
            raise ControlError(
                f"{group} is a share group, which commits no offsets; "
                f"kafka-share-groups.sh --group {group} --reset-offsets sets where it continues"
            )
        refused = refusal_if_it_has_members(group, found)
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
    source: ClusterReset | LiveReset,
    request: ResetOffsetsRequest,
    committed: Mapping[TopicPartition, Committed],
) -> list[TopicPartition]:
    if request.topics is None:
        if not committed:
            raise ControlError(f"group {request.group} has no committed offsets; name topics with --topic")
        places = set(source.existing(committed))
        if not places:
            raise ControlError(f"the topics of group {request.group} are deleted; name others with --topic")
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


# Over the Kafka protocol: any cluster's answer. Raises ControlError.

_NO_OFFSET: Final = -1


class ClusterReset(ClusterGroups):
    """The offsets of a cluster. The coroutines wait for nothing but the network."""

    def existing(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        known = {
            (topic.name, row.partition_index)
            for topic in self._cluster.all_topics()
            for row in topic.partitions
        }
        return [place for place in places if place in known]

    def partition_counts(self, topics: Sequence[str]) -> Mapping[str, int]:
        return {topic.name: len(topic.partitions) for topic in self._cluster.existing_topics(topics)}

    async def offsets(
        self, places: Sequence[TopicPartition], timestamp_ms: int | None
    ) -> Mapping[TopicPartition, PartitionOffsets]:
        """Return the offsets of partitions, all of which must have a leader."""
        starts, ends = self._cluster.starts(places), self._cluster.ends(places)
        at_time = {} if timestamp_ms is None else self._cluster.offsets(places, timestamp_ms)
        found = {}
        for place in places:
            at = at_time.get(place, _NO_OFFSET)
            found[place] = PartitionOffsets(
                starts[place], ends[place], at_timestamp=None if at == _NO_OFFSET else at
            )
        return found

    async def commit(self, group: str, changes: Sequence[OffsetChange]) -> None:
        """Commit the new offsets in one request."""
        from seqgate.gateway.admin.remote.cluster import check  # noqa: PLC0415 - slow to import

        topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for change in changes:
            row = {"partition_index": change.partition, "committed_offset": change.new_offset}
            topics[change.topic].append(row | {"committed_metadata": ""})
        asked = self._cluster.request(
            8,
            8,
            group_id=group,
            member_id="",
            topics=[{"name": topic, "partitions": rows} for topic, rows in topics.items()],
        )
        answer = self._cluster.ask_coordinator(group, asked, is_change=True)
        for topic in answer.topics:
            for each in topic.partitions:
                place = f"{topic.name}-{each.partition_index}"
                check(each, f"the offset of group {group} in {place} was not reset: ")


OPERATIONS: Final[ClusterAnswers] = {ResetOffsetsRequest: from_source(ClusterReset, reset_offsets)}


# In the gateway: its answer on the control socket.

_NOT_COMMITTED: Final = {
    "invalid_commit_offset_size": "so many offsets don't fit into one batch; name fewer topics",
    "group_max_size_reached": "the gateway keeps no more groups (seqgate.group.max)",
    "unknown_member_id": "a member joined it meanwhile",
}


class LiveReset(LiveGroups):
    """The offsets of the groups that this gateway coordinates."""

    def existing(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [place for place in places if self.partitions.has(*place)]

    def partition_counts(self, topics: Sequence[str]) -> Mapping[str, int]:
        return {topic: existing_topic(self.partitions, topic).count for topic in topics}

    async def offsets(
        self, places: Sequence[TopicPartition], timestamp_ms: int | None
    ) -> Mapping[TopicPartition, PartitionOffsets]:
        """Return the offsets of partitions, all of which this gateway must lead."""
        import asyncio  # noqa: PLC0415 - slow to import

        found = {}
        for place in places:
            check_led_here(self.services, *place)
            look_up = partial(self._offsets, place, timestamp_ms)
            found[place] = await self.services.partitions.cold_reads.run(look_up)
            # Let requests in between: each partition may read files of its log.
            await asyncio.sleep(0)
        return found

    def _offsets(self, place: TopicPartition, timestamp_ms: int | None) -> PartitionOffsets:
        from seqgate.log import LogError  # noqa: PLC0415 - slow to import

        name = f"{place[0]}-{place[1]}"
        partition = self.partitions.get(*place)
        if partition is None:
            raise _deleted(name)
        log = partition.log
        if log.offline:
            raise ControlError(
                f"partition {name} is offline; bring it back first (seqgate reopen {place[0]} {place[1]})"
            )
        try:
            found = None if timestamp_ms is None else log.first_not_before(timestamp_ms)
        except LogError as error:
            raise ControlError(f"{name} can't be read: {error}") from error
        at_timestamp = None if found is None else found.offset
        return PartitionOffsets(log.log_start_offset, log.high_watermark, at_timestamp=at_timestamp)

    async def commit(self, group: str, changes: Sequence[OffsetChange]) -> None:
        from kio.schema.errors import ErrorCode  # noqa: PLC0415 - slow to import

        from seqgate.gateway.coordinator.group import records as stored  # noqa: PLC0415
        from seqgate.gateway.coordinator.group.offsets import Committer  # noqa: PLC0415
        from seqgate.gateway.handlers.groups.offset_commit import commit_offsets  # noqa: PLC0415
        from seqgate.gateway.metadata.image import OFFSETS_TOPIC  # noqa: PLC0415

        now_ms = self.services.node.clock.now_ms()
        records = []
        with as_control_error(f"group {group}", OFFSETS_TOPIC):
            await self.groups.ensure_topic()
            for change in changes:
                topic = self.partitions.by_name.get(change.topic)
                if topic is None or not topic.has(change.partition):
                    raise _deleted(f"{change.topic}-{change.partition}")
                offset = stored.CommittedOffset(
                    change.new_offset, -1, "", now_ms, topic_id=topic.topic_id_bytes
                )
                records.append(stored.OffsetCommitRecord(group, change.topic, change.partition, offset))
            error = await commit_offsets(self.groups, Committer(group), records)
        if error is not ErrorCode.none:
            reason = _NOT_COMMITTED.get(error.name, f"refused with {error.name}")
            raise ControlError(f"nothing of group {group} was reset: {reason}")


def _deleted(name: str) -> ControlError:
    return ControlError(f"partition {name} was deleted during the reset; repeat the command without it")
