"""`seqgate names`: the sequence ids of producer names that topics with deduplication track."""

from __future__ import annotations

import heapq
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from seqgate.gateway.admin.client import Client, summed
from seqgate.gateway.admin.commands import Output, argument, asks, option, stop
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.operation import LiveGateway, StoppedGateway, check_led_here, existing_topic
from seqgate.gateway.admin.options import OnlyPartition, Opened, gateway
from seqgate.gateway.admin.request import ControlError, PagedRequest, in_words
from seqgate.gateway.admin.tables import (
    NONE,
    Block,
    Column,
    PartitionNumber,
    TopicName,
    counted,
    duration,
    known,
    table,
)

if TYPE_CHECKING:
    from pathlib import Path

    from seqgate.gateway.config import Config
    from seqgate.gateway.metadata.image import MetadataImage
    from seqgate.gateway.runtime.partitions.partition import Partition
    from seqgate.gateway.runtime.partitions.registry import TopicPartitions
    from seqgate.gateway.runtime.services import PartitionServices, Services
    from seqgate.seq_validator.names import NameState, WrittenName

# The request for producer names, and what `seqgate names --json` prints.


Position = tuple[str, int, bytes | None]
"""Topic, partition, and the name after which a page begins there; None: the page begins with the first name.
"""


class NameCounters(msgspec.Struct, frozen=True):
    """Counters of producer names; all but `remembered` start at zero with the gateway.

    `remembered`: names tracked now, each counted once per partition. `dropped_records`: records
    acknowledged and not stored. `evicted`: names evicted to make room for new ones. `expired`: names evicted
    because they were idle for too long. `refused`: batches refused because there was no room for a new name.
    """

    remembered: int
    dropped_records: int
    evicted: int
    expired: int
    refused: int


class NameRow(msgspec.Struct, frozen=True):
    """A producer name in one partition. `name` is its text, with escapes for what is not UTF-8; `name_base64`
    are its bytes.

    `persisted_sequence` is the highest persisted sequence id, `pushed_sequence` the highest written one,
    `epoch` the epoch of the name; each is −1 if there is none. `is_pending`: an open transaction holds
    further records of the name. `age_ms` is the time since the last record of the name. `dropped_records`
    counts records that were acknowledged and not stored since the gateway started or the partition was
    reopened; −1 where the gateway is stopped. `node_id` is the gateway that leads the partition, −1 where it
    is stopped.
    """

    topic: TopicName
    partition: PartitionNumber
    name: Annotated[str, Column("name")]
    name_base64: bytes
    persisted_sequence: Annotated[int, Column("persisted", known)]
    pushed_sequence: Annotated[int, Column("pushed", known)]
    epoch: Annotated[int, Column("epoch", known)]
    last_active_ms: int
    age_ms: Annotated[int, Column("last\nactive", duration)]
    is_pending: bool
    dropped_records: Annotated[int, Column("dropped", known)]
    node_id: int = -1

    @property
    def pending(self) -> Annotated[str, Column("pending")]:
        """Whether a transaction with further records of the name is open, as a word."""
        return "yes" if self.is_pending else NONE


class UntoldPartition(msgspec.Struct, frozen=True):
    """A partition whose names the gateway can't list."""

    topic: str
    partition: int
    reason: str


class NamePage(msgspec.Struct, frozen=True):
    """Some of the names, by topic, partition and name. `next` is where the next page begins, None after the
    last page. `counters` is None where the gateway is stopped.
    """

    names: list[NameRow]
    untold: list[UntoldPartition]
    counters: NameCounters | None
    next: Position | None


class NamesRequest(PagedRequest[NamePage], tag="names"):
    """The producer names that partitions track, or one of the names, by topic, partition and name. `begin`
    is the `next` of the page before.
    """

    asks_every_worker = True
    network_right = "DESCRIBE"
    is_partial = True
    rows = "names untold"
    topic: str | None = None
    partition: int | None = None
    name: bytes | None = None
    begin: Position | None = None

    def next_page(self, answer: NamePage) -> NamesRequest | None:
        """Return the request for the names from `next` on."""
        return None if answer.next is None else msgspec.structs.replace(self, begin=answer.next)


def joined_names(pages: Sequence[NamePage], limit: int) -> NamePage:
    """Return the pages of several gateways, which begin at one position, as one of at most `limit` names. It
    ends where the first of them ends.
    """
    rows = sorted((row for page in pages for row in page.names), key=_position)
    end = min((page.next for page in pages if page.next is not None), key=_behind, default=None)
    if end is not None:
        rows = [row for row in rows if _position(row) <= _behind(end)]
    if len(rows) > limit:
        rows = rows[:limit]
        end = rows[-1].topic, rows[-1].partition, rows[-1].name_base64
    untold = {(row.topic, row.partition): row for page in pages for row in page.untold}
    return NamePage(
        rows,
        [untold[place] for place in sorted(untold) if end is None or place <= end[:2]],
        summed([page.counters for page in pages]),
        end,
    )


def _position(row: NameRow) -> tuple[str, int, bool, bytes]:
    return row.topic, row.partition, True, row.name_base64


def _behind(position: Position) -> tuple[str, int, bool, bytes]:
    """Return the place of a position among those of rows: all rows up to it are in the pages before."""
    topic, partition, name = position
    return topic, partition, name is not None, name or b""


# The command.


@asks(gateway)
def names(
    opened: Opened[Client],
    topic: str | None = argument("TOPIC", autocompletion=topic_names, show_default="all", default=None),
    name: str | None = option("--name", "NAME", "Only this producer name.", show_default="all"),
    partition: OnlyPartition = None,
) -> Output:
    """Show the last sequence ids of producer names.

    A running gateway lists all tracked producer names of topics with message.deduplication.enable. For a
    stopped gateway, the command lists the names in the last snapshots; after a clean stop these are all
    names.

    \b
    Columns:
      persisted     highest persisted sequence id: records up to this one are not stored again
      pushed        highest sequence id that is written
      epoch         highest epoch of the name; records of a lower one are refused
      last active   time since the last record of the name
      pending       whether a transaction with further records of the name is open
      dropped       records of the name that were duplicates, and were not stored, since the gateway started

    Any Kafka client sees the same as the committed offset of the group seqgate-name:NAME; see
    `seqgate help deduplication`. Exits with 1 when the gateway can't list the names of a partition.
    """  # noqa: D301 - \b keeps the lines of the list apart
    if partition is not None and topic is None:
        raise stop("--partition needs TOPIC", code=2)
    request = NamesRequest(topic, partition, None if name is None else os.fsencode(name))
    with opened as client:
        gateway, page = client.ask_running_or_data_directory(request)
    document = {"gateway": gateway, "names": page.names, "untold": page.untold, "counters": page.counters}
    return Output(document, _text(page), code=1 if page.untold else 0)


def _text(page: NamePage) -> Iterator[Block]:
    yield table(
        NameRow,
        page.names,
        "topic partition name persisted_sequence pushed_sequence epoch age_ms pending dropped_records",
    )
    counters = page.counters
    if counters is None:
        yield (
            "The gateway is not running; this is what its data directory holds. Unless it was stopped "
            "cleanly, the highest sequence ids of names may be larger:"
        )
        yield "the next start reads that from the log."
    else:
        yield (
            f"{counted(counters.remembered, 'entry', 'entries')} tracked, one for each partition that a "
            "name has written to. Since the gateway started:"
        )
        dropped = counted(counters.dropped_records, "record")
        yield f"  {dropped} acknowledged but not stored, because they were duplicates"
        yield f"  {counted(counters.evicted, 'idle name')} evicted to make room for a new one"
        expired = counted(counters.expired, "idle name")
        yield f"  {expired} expired after message.deduplication.expiration.ms"
        refused = counted(counters.refused, "batch", "batches")
        yield f"  {refused} refused for want of room for a new name"
    for row in page.untold:
        yield f"Of {row.topic}-{row.partition} the names are unknown: {row.reason}"


# In the gateway: its answer on the control socket.

PAGE_S: Final = 10.0
"""Time for one page, which may open and replay logs. After it the page ends, and the next page continues."""
PAGE_NAME_BYTES: Final = 1 << 20
"""Bytes of the names of one page; a page ends before the name that would exceed it."""


async def list_names_live(gateway: LiveGateway, request: NamesRequest) -> NamePage:
    """Return one page of the names, by topic, partition and name. Raises ControlError."""
    services = gateway.services
    _check_exists(services, request)
    deadline_s = services.node.loop.time() + PAGE_S
    rows: list[NameRow] = []
    untold: list[UntoldPartition] = []
    following: Position | None = None
    async for topic, index in _places(services, request):
        is_first = request.begin is not None and request.begin[:2] == (topic.name, index)
        after = request.begin[2] if is_first and request.begin is not None else None
        following = topic.name, index, after
        try:
            partition = await _partition(services, topic, index, deadline_s)
        except TimeoutError:
            break
        if isinstance(partition, str):
            untold.append(UntoldPartition(topic.name, index, partition))
        else:
            room = request.limit - len(rows)
            found = _states(partition, request.name, after, room + 1)
            taken = _fitting(found, room)
            now_ms = services.node.clock.now_ms()
            node_id = services.node.node_id
            rows += [name_row(topic.name, index, state, now_ms, node_id) for state in found[:taken]]
            if taken < len(found):
                following = topic.name, index, found[taken - 1].name if taken else after
                break
        following = None
    return NamePage(rows, untold, name_counters(services.partitions), following)


def _check_exists(services: Services, request: NamesRequest) -> None:
    """Refuse an unknown topic or partition, a topic that does not track names, and a partition that another
    gateway leads. Raises ControlError.
    """
    if request.topic is None:
        return
    topic = existing_topic(services.partitions.registry, request.topic)
    _check_tracks(services.node.config, services.topics.metadata_log.image, topic.name)
    existing_topic(services.partitions.registry, topic.name, request.partition)
    if request.partition is not None:
        check_led_here(services, topic.name, request.partition)


def _check_tracks(config: Config, image: MetadataImage, topic: str) -> None:
    """Refuse a topic that does not track names. Raises ControlError."""
    from seqgate.gateway.runtime.upkeep.name_keeping import deduplicates  # noqa: PLC0415 - slow to import

    if not deduplicates(config, image, topic):
        raise ControlError(
            f"producer names are not tracked in topic {topic}: its message.deduplication.enable is false"
        )


async def _places(services: Services, request: NamesRequest) -> AsyncIterator[tuple[TopicPartitions, int]]:
    """Yield the partitions that may track names, from the one in which the page begins."""
    from seqgate.gateway.runtime.loop.slices import in_slices  # noqa: PLC0415 - slow to import
    from seqgate.gateway.runtime.upkeep import name_keeping  # noqa: PLC0415

    begin = None if request.begin is None else request.begin[:2]
    names = sorted(services.partitions.registry.by_name) if request.topic is None else [request.topic]
    async for topic in name_keeping.deduplicating_topics(
        services.node.config, services.topics.metadata_log.image, services.partitions.registry, names
    ):
        async for index in in_slices(range(topic.count)):
            is_wanted = request.partition is None or index == request.partition
            is_before = begin is not None and (topic.name, index) < begin
            if (
                is_wanted
                and not is_before
                and topic.unknown_or_led_elsewhere(index) is None
                and name_keeping.may_know_names(services.partitions.log_directory, topic, index)
            ):
                yield topic, index


async def _partition(
    services: Services, topic: TopicPartitions, index: int, deadline_s: float
) -> Partition | str:
    """Return the partition with all its names replayed, or the reason why it can't. Raises TimeoutError."""
    from seqgate.gateway.runtime.upkeep.name_keeping import complete_names  # noqa: PLC0415 - slow to import
    from seqgate.log import LogError  # noqa: PLC0415

    if services.node.loop.time() >= deadline_s:
        raise TimeoutError
    partition = topic.get(index)
    if partition is None:
        return "it can't be opened"
    try:
        await complete_names(partition, services.node.clock, deadline_s)
    except LogError as error:
        return str(error)
    return partition.log.offline_because or partition


def _states(partition: Partition, name: bytes | None, after: bytes | None, limit: int) -> list[NameState]:
    """Return the first `limit` names above `after`, by their bytes."""
    if name is not None:
        state = partition.log.record_states.name_state(name)
        return [] if state is None else [state]
    states = partition.log.record_states.name_states()
    if after is not None:
        states = [state for state in states if state.name > after]
    return heapq.nsmallest(limit, states, key=lambda state: state.name)


def _fitting(states: list[NameState], limit: int) -> int:
    """Return how many of the first names fit into one page, at least one."""
    size_bytes = 0
    for count, state in enumerate(states[:limit]):
        size_bytes += len(state.name)
        if size_bytes > PAGE_NAME_BYTES and count:
            return count
    return min(len(states), limit)


def name_row(topic: str, index: int, state: NameState, now_ms: int, node_id: int = -1) -> NameRow:
    """Return the row of a name in one partition."""
    return NameRow(
        topic=topic,
        partition=index,
        name=state.name.decode("utf-8", "backslashreplace"),
        name_base64=state.name,
        persisted_sequence=state.persisted_sequence,
        pushed_sequence=state.pushed_sequence,
        epoch=state.epoch,
        last_active_ms=state.last_active_ms,
        age_ms=max(0, now_ms - state.last_active_ms),
        is_pending=state.is_pending,
        dropped_records=state.dropped_records,
        node_id=node_id,
    )


def name_counters(partitions: PartitionServices) -> NameCounters:
    """Return the counters of tracked, evicted, expired and refused names, and of dropped records."""
    environment = partitions.log_directory.environment
    budget = environment.name_budget
    return NameCounters(
        remembered=budget.in_all,
        dropped_records=budget.dropped_records,
        evicted=budget.evictions,
        expired=budget.expired,
        refused=budget.refusals,
    )


# In a data directory that no gateway has open, read without a lock and without a change: the names of the
# newest snapshots. After a clean stop these are all names, after a crash older ones.

_ANY_LENGTH: Final = 2**63 - 1


def list_names_stopped(gateway: StoppedGateway, request: NamesRequest) -> NamePage:
    """Return all names asked for, by topic, partition and name. Raises ControlError."""
    from seqgate.gateway.admin.stored import read_image, whole_state  # noqa: PLC0415 - slow to import

    image = read_image(whole_state(gateway.data_dir))
    topic = image.topics_by_name.get(request.topic or "")
    if request.topic is not None and topic is None:
        raise ControlError(f"there is no topic {request.topic}")
    if topic is not None and request.partition not in {None, *topic.partitions}:
        raise ControlError(f"topic {topic.name} has no partition {request.partition}")
    found = [
        (place, state)
        for place, directory in _stored_partitions(gateway.data_dir, request)
        for state in sorted(map(_state, _written(directory)))
    ]
    if topic is not None and not found:  # the gateway's own settings may have tracked what is there
        _check_tracks(gateway.config, image, topic.name)
    rows = [
        name_row(*place, state, gateway.now_ms)
        for place, state in found
        if request.name in {None, state.name}
    ]
    return NamePage(rows, untold=[], counters=None, next=None)


def _stored_partitions(data_dir: Path, request: NamesRequest) -> Iterator[tuple[tuple[str, int], Path]]:
    from seqgate.log import parse_partition_directory  # noqa: PLC0415 - slow to import

    found = ((parse_partition_directory(path.name), path) for path in data_dir.iterdir() if path.is_dir())
    places = {place: path for place, path in found if place is not None}
    for (topic, index), path in sorted(places.items()):
        if request.topic in {None, topic} and request.partition in {None, index}:
            yield (topic, index), path


def _written(directory: Path) -> list[WrittenName]:
    from seqgate.log import Storage  # noqa: PLC0415 - slow to import
    from seqgate.log.stopped import newest_names  # noqa: PLC0415

    try:
        newest = newest_names(Storage(), str(directory), _ANY_LENGTH)
    except OSError as error:
        raise ControlError(f"{directory} can't be read: {in_words(error)}") from error
    return [] if newest is None else newest.names


def _state(written: WrittenName) -> NameState:
    from seqgate.seq_validator.names import NameState  # noqa: PLC0415 - slow to import

    name, sequence_id, epoch, offset, last_active_ms, held = written
    return NameState(name, sequence_id, sequence_id, epoch, offset, last_active_ms, bool(held))
