"""The producer names that a running gateway remembers.

The producer names in a data directory that no gateway has open, read without a lock and without a change.

The names are those of the newest snapshots: all names after a clean stop, older ones after a crash.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from seqgate.gateway.admin.names.command import NamePage, NameRow, NamesRequest, Position, UntoldPartition
from seqgate.gateway.admin.operation import LiveGateway, StoppedGateway, check_led_here, find_topic
from seqgate.gateway.admin.request import ControlError, in_words
from seqgate.gateway.admin.status.messages import NameCounters
from seqgate.gateway.admin.stored import metadata_directory
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import TopicPartitions
from seqgate.gateway.runtime.services import PartitionServices, Services
from seqgate.gateway.runtime.upkeep.name_keeping import (
    complete_names,
    deduplicates,
    deduplicating_topics,
    may_know_names,
)
from seqgate.log import LogError, Storage, parse_partition_directory
from seqgate.log.stopped import newest_names
from seqgate.seq_validator.names import NameState, WrittenName

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
            rows += [name_row(topic.name, index, state, now_ms) for state in found[:taken]]
            if taken < len(found):
                following = topic.name, index, found[taken - 1].name if taken else after
                break
        following = None
    return NamePage(rows, untold, name_counters(services.partitions), following)


def _check_exists(services: Services, request: NamesRequest) -> None:
    if request.topic is None:
        return
    topic = find_topic(services.partitions.registry, request.topic)
    if not deduplicates(services.node.config, services.topics.metadata_log.image, topic.name):
        raise ControlError(
            f"producer names are not remembered in topic {topic.name}: its message.deduplication.enable is "
            "false"
        )
    find_topic(services.partitions.registry, topic.name, request.partition)
    if request.partition is not None:
        check_led_here(services, topic.name, request.partition)


async def _places(services: Services, request: NamesRequest) -> AsyncIterator[tuple[TopicPartitions, int]]:
    """Yield the partitions that may remember names, from the one in which the page begins."""
    begin = None if request.begin is None else request.begin[:2]
    names = sorted(services.partitions.registry.by_name) if request.topic is None else [request.topic]
    async for topic in deduplicating_topics(
        services.node.config, services.topics.metadata_log.image, services.partitions.registry, names
    ):
        async for index in in_slices(range(topic.count)):
            is_wanted = request.partition is None or index == request.partition
            is_before = begin is not None and (topic.name, index) < begin
            if (
                is_wanted
                and not is_before
                and topic.refusal(index) is None
                and may_know_names(services.partitions.log_directory, topic, index)
            ):
                yield topic, index


async def _partition(
    services: Services, topic: TopicPartitions, index: int, deadline_s: float
) -> Partition | str:
    """Return the partition with all its names replayed, or the reason why it can't. Raises TimeoutError."""
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


def name_row(topic: str, index: int, state: NameState, now_ms: int) -> NameRow:
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
    )


def name_counters(partitions: PartitionServices) -> NameCounters:
    """Return the counters of remembered, evicted, expired and refused names, and of dropped records."""
    environment = partitions.log_directory.environment
    budget = environment.name_budget
    return NameCounters(
        remembered=budget.in_all,
        dropped_records=budget.dropped_records,
        evicted=budget.evictions,
        expired=budget.expired,
        refused=budget.refusals,
    )


_ANY_LENGTH: Final = 2**63 - 1


def list_names_stopped(gateway: StoppedGateway, request: NamesRequest) -> NamePage:
    """Return all names asked for, by topic, partition and name. Raises ControlError."""
    metadata_directory(gateway.data_dir)
    rows = []
    for place, directory in _partitions(gateway.data_dir, request):
        states = sorted(map(_state, _written(directory)))
        rows += [
            name_row(*place, state, gateway.now_ms) for state in states if request.name in {None, state.name}
        ]
    return NamePage(rows, untold=[], counters=None, next=None)


def _partitions(data_dir: Path, request: NamesRequest) -> Iterator[tuple[tuple[str, int], Path]]:
    found = ((parse_partition_directory(path.name), path) for path in data_dir.iterdir() if path.is_dir())
    places = {place: path for place, path in found if place is not None}
    if request.topic is not None and not any(topic == request.topic for topic, _ in places):
        raise ControlError(f"there is no topic {request.topic}")
    if request.partition is not None and (request.topic, request.partition) not in places:
        raise ControlError(
            f"topic {request.topic} has no partition {request.partition}, or it was never written to"
        )
    for (topic, index), path in sorted(places.items()):
        if request.topic in {None, topic} and request.partition in {None, index}:
            yield (topic, index), path


def _written(directory: Path) -> list[WrittenName]:
    try:
        newest = newest_names(Storage(), str(directory), _ANY_LENGTH)
    except OSError as error:
        raise ControlError(f"{directory} can't be read: {in_words(error)}") from error
    return [] if newest is None else newest.names


def _state(written: WrittenName) -> NameState:
    name, sequence_id, epoch, offset, last_active_ms, held = written
    return NameState(name, sequence_id, sequence_id, epoch, offset, last_active_ms, bool(held))
