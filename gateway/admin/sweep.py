"""`seqgate sweep`: orphaned files and state."""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypeVar

import msgspec

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.commands import Output, asks, flag, option
from seqgate.gateway.admin.options import Consent, Opened, consent_by, gateway, parsed_or_exit_2
from seqgate.gateway.admin.request import (
    CONSOLE_HISTORY,
    POSITION,
    RUNNING,
    SOCKET_NAME,
    STOPPED,
    ControlError,
    NotRunning,
    PagedRequest,
    Request,
    in_words,
)
from seqgate.gateway.admin.tables import Block, Column, count, table
from seqgate.gateway.admin.tasks import TaskRow, task_row
from seqgate.gateway.admin.times import duration_ms

if TYPE_CHECKING:
    import uuid
    from pathlib import Path

    from seqgate.gateway.coordinator.group.events import Effects
    from seqgate.gateway.coordinator.group.shard import GroupShard
    from seqgate.gateway.coordinator.places import TopicPartition
    from seqgate.gateway.coordinator.share.records import SharePartitionKey
    from seqgate.gateway.coordinator.share.share_partition import SharePartition
    from seqgate.gateway.metadata.image import MetadataImage
    from seqgate.gateway.runtime.loop.clock import Task
    from seqgate.gateway.runtime.services import Services
    from seqgate.log import Storage
    from seqgate.log.stopped import FileLeak

logger = logging.getLogger(__name__)
T = TypeVar("T")

DEFAULT_AGE: Final = "1h"
"""Files that changed within this time are no leaks, unless --min-age says otherwise."""

# The requests about sweeps, and what `seqgate sweep --json` prints.


class LeakRow(msgspec.Struct, frozen=True):
    """A leak: an orphaned file, directory or state.

    `place` is a path in the data directory, or the owner of the state. `size_bytes` is None where a leak has
    no size of its own. `removed`: the leak is gone, or waits for deletion. `removable`: a sweep may remove
    the leak.
    """

    kind: Annotated[str, Column("kind")]
    place: Annotated[str, Column("what")]
    size_bytes: Annotated[int | None, Column("size", count, "")]
    removable: bool
    removed: bool

    @property
    def outcome(self) -> Annotated[str, Column("")]:
        """The result in words: `removed`, `check it by hand`, or nothing for what a sweep can remove."""
        if self.removed:
            return "removed"
        return "" if self.removable else "check it by hand"


class SweepPage(msgspec.Struct, frozen=True):
    """A page of the `total` leaks (orphaned files, directories and state) that a sweep found.

    `gateway` is "running" or "stopped". A sweep of a stopped gateway finds only files and directories.
    `unswept` has a sentence about each worker that did not sweep its part.
    """

    gateway: str
    task: TaskRow
    total: int
    leaks: list[LeakRow]
    unswept: list[str] = []


class SweepRequest(Request[TaskRow], tag="sweep"):
    """Begin a sweep. With `remove` it removes leaks of known kinds, with `unknown` also files of no known
    name. Files that changed less than `min_age_ms` ago are not leaks. A worker sweeps its own partitions, and
    its own groups and transactions.
    """

    is_partial = True
    remove: bool = False
    unknown: bool = False
    min_age_ms: int = duration_ms(DEFAULT_AGE)


class SweepResultRequest(PagedRequest[SweepPage], tag="sweep.result"):
    """The leaks that a sweep has found so far, from leak `position` on; the task number names the sweep."""

    rows = "leaks"
    key = POSITION
    number: int
    position: int = 0


# The command.

POLL_S: Final = 0.2
"""Time between two requests for the result of a sweep."""


_REMOVE: Final = flag("--yes --remove", "Remove without asking; --remove is the old spelling.")


@asks(gateway)
def sweep(
    opened: Opened[Client],
    *,
    unknown: bool = flag("--unknown", "Remove files of no known name as well."),
    min_age: str = option(
        "--min-age",
        "TIME",
        "Ignore files that changed within this time: 30s, 5m, 2h.",
        show_default=True,
        default=DEFAULT_AGE,
    ),
    consent: Annotated[Consent, consent_by(_REMOVE)],
) -> Output:
    """Find orphaned files and state, and remove them.

    Shows what it finds, and asks. With --json the command never asks: without --yes it only reports.

    In a running gateway: files and directories without a topic, a partition or a segment, temporary files
    that were never renamed, state of groups and transactions for topics that are gone, and objects of a
    bucket (--cluster). The gateway serves requests meanwhile. All workers sweep, one after the other; other
    gateways of a cluster don't: run the command beside each. In a data directory that no gateway has open:
    only files.

    \b
    Kinds:
      partition without a topic        a partition's directory, but there is no such topic or partition
      segment without a partition      files that no partition knows; may hold records, never removed
      index without a segment          an index whose log file is gone
      snapshot without a segment       producer state beyond the end of a log, or of segments long deleted
      temporary file                   written to be renamed, and never renamed
      left to be deleted               renamed to be deleted, but nothing waits to delete it
      unknown                          no name that is used here; removed only with --unknown
      ... without a topic              offsets, share groups and transactions of topics that are gone
      object of the bucket             with --cluster: what a crash amid an upload left, and no manifest names

    Exits with 1 when orphaned files or state remain, or a worker has not swept its part.
    """  # noqa: D301 - \b keeps the lines of the list apart
    min_age_ms = parsed_or_exit_2(duration_ms, min_age, "--min-age")
    with opened as client:
        page = consent.plan_ask_and_do(
            lambda execute: _sweep(
                client, SweepRequest(remove=execute, unknown=unknown and execute, min_age_ms=min_age_ms)
            ),
            _text,
            "Remove them?",
            is_needed=lambda planned: planned.leaks,
        )
    is_clean = not page.unswept and all(leak.removed for leak in page.leaks)
    return Output(page, _text(page), code=0 if is_clean else 1)


def _sweep(client: Client, request: SweepRequest) -> SweepPage:
    """Sweep a running gateway or a data directory, and wait until the sweep ends. Raises ControlError."""
    try:
        pages, unswept = client.at_each_worker(lambda worker: _sweep_running(worker, request))
    except NotRunning:
        return sweep_stopped(client.data_dir, request, time.time_ns() // 1_000_000, _print_progress)
    # Each gateway finds the orphans of the whole bucket.
    leaks = list(dict.fromkeys(leak for page in pages for leak in page.leaks))
    return msgspec.structs.replace(pages[0], total=len(leaks), leaks=leaks, unswept=unswept)


def _sweep_running(worker: Client, request: SweepRequest) -> SweepPage:
    """Raises NotRunning, ControlError."""
    task = worker.ask(request)
    while True:
        try:
            page = worker.ask(SweepResultRequest(task.number))
        except NotRunning as error:
            raise ControlError(f"the sweep has not ended: {error}") from error
        if page.task.ended:
            break
        _print_progress(page.task.done, page.task.total)
        time.sleep(POLL_S)
    if page.task.failure is not None:
        raise ControlError(f"the sweep failed: {page.task.failure}")
    return page


def _print_progress(done: int, total: int | None) -> None:
    """Print the progress of the sweep on a terminal; the next output overwrites the line."""
    if sys.stderr.isatty() and (total is None or done % 100 == 0):
        of = "" if total is None else f" of {total:,}"
        print(f"\r{done:,}{of} checked", end="\r", file=sys.stderr, flush=True)


def _text(page: SweepPage) -> Iterator[Block]:
    if page.leaks:
        yield table(LeakRow, page.leaks, "kind place size_bytes outcome")
        kinds = Counter(leak.kind for leak in page.leaks)
        yield ", ".join(f"{number} × {kind}" for kind, number in kinds.items())
    else:
        yield "No orphaned files or state found."
    if page.gateway == STOPPED:
        yield "The gateway is stopped: only files were compared, not what groups and transactions hold."


# In the gateway: its sweeps, on the control socket.

NAME: Final = "sweep"
MAX_FOUND: Final = 20_000
"""Leaks that one sweep reports; the next sweep finds further ones."""
NAMES_PER_STEP: Final = 500
KEPT_RESULTS: Final = 4
"""Number of sweeps whose findings are kept. The results of older sweeps are dropped."""


class Sweeps:
    """The running sweep, and the findings of the last sweeps."""

    def __init__(self, services: Services) -> None:
        """Begin without a sweep under way."""
        self._services = services
        self._found: dict[int, list[LeakRow]] = {}

    def begin(self, request: SweepRequest) -> TaskRow:
        """Begin a sweep unless one is running. Raises ControlError."""
        if request.min_age_ms < 0:
            raise ControlError(f"min_age_ms must be 0 or higher, not {request.min_age_ms}")
        tasks = self._services.node.tasks
        running = next((task for task in tasks if task.name == NAME and task.ended_ms is None), None)
        if running is not None:
            raise ControlError(
                f"a sweep is under way; `seqgate tasks` shows its progress (number {running.number})"
            )
        task = tasks.begin(NAME)
        self._found[task.number] = []
        while len(self._found) > KEPT_RESULTS:
            del self._found[next(iter(self._found))]
        tasks.start(task, self._sweep(task, request))
        return task_row(self._services.node, task)

    async def _sweep(self, task: Task, request: SweepRequest) -> None:
        services = self._services
        rows = self._found[task.number]
        files, state = FileSweep(services, request.min_age_ms), StateSweep(services)
        file_leaks = await files.find(task)
        state_leaks = await state.find(task, MAX_FOUND - len(file_leaks))
        uploads = services.upkeep.find_uploads()
        orphans = [] if uploads is None else await uploads.find_orphans(request.min_age_ms)
        del orphans[max(0, MAX_FOUND - len(file_leaks) - len(state_leaks)) :]
        removed: set[FileLeak | StateLeak] = set()
        if request.remove:
            removed.update(await files.remove(file_leaks, task, unknown=request.unknown))
            removed.update(await state.remove(state_leaks, task))
            if uploads is not None:
                await uploads.remove(orphans)
        rows += leak_rows(file_leaks, removed)
        rows += [_state_row(leak, removed=leak in removed) for leak in state_leaks]
        rows += [
            LeakRow(
                "object of the bucket", orphan.key, orphan.size_bytes, removable=True, removed=request.remove
            )
            for orphan in orphans
        ]

    def result(self, request: SweepResultRequest) -> SweepPage:
        """Return one page of a sweep's findings. Raises ControlError."""
        if request.position < 0:
            raise ControlError(f"position must be 0 or higher, not {request.position}")
        task = self._services.node.tasks.get(request.number)
        rows = self._found.get(request.number)
        if task is None or rows is None:
            raise ControlError(f"there is no sweep with number {request.number}")
        page = rows[request.position : request.position + request.limit]
        return SweepPage(RUNNING, task_row(self._services.node, task), len(rows), page)


def leak_rows(leaks: Iterable[FileLeak], removed: Collection[object]) -> list[LeakRow]:
    """Return the rows of leaked files; `removed` holds the leaks that are gone."""
    return [
        LeakRow(
            leak.kind,
            leak.path,
            None if leak.is_directory else leak.size_bytes,
            removable=leak.removable,
            removed=leak in removed,
        )
        for leak in leaks
    ]


def _state_row(leak: StateLeak, *, removed: bool) -> LeakRow:
    place = leak.topic if leak.partition == ALL else f"{leak.topic}-{leak.partition}"
    return LeakRow(leak.kind, f"{leak.owner}: {place}", None, removable=True, removed=removed)


def _own_names() -> frozenset[str]:
    """Return the gateway's own files in the data directory, which `log` does not write."""
    from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE  # noqa: PLC0415 - slow to import

    return frozenset({SOCKET_NAME, SEEN_FILE, CONSOLE_HISTORY, f"{CONSOLE_HISTORY}.new"})


# In the gateway: orphaned files.


class FileSweep:
    """Finds orphaned files, and deletes them, while the gateway serves requests.

    Directories are listed and compared in a thread, a few at a time. Between listing and comparing, the sweep
    asks the log for the files it knows, so that a file created meanwhile is known. Each finding is checked a
    second time. Other work of the event loop runs between two steps. Of several workers each sweeps the
    partitions that it leads, and the first one what belongs to none.
    """

    def __init__(self, services: Services, min_age_ms: int) -> None:
        """Prepare a sweep that ignores files changed within `min_age_ms`."""
        self._directory = services.partitions.log_directory
        self._storage = self._directory.environment.storage
        self._deletions = self._directory.environment.deletions
        share = self._directory.share
        self._takes_rest = share.is_whole or share.tells_of is not None
        self._topics = services.partitions.registry.by_name
        self._metadata_log = services.topics.metadata_log
        self._other_names = _own_names()
        self._now_ms = services.node.clock.now_ms
        self._before_ms = self._now_ms() - min_age_ms

    async def find(self, task: Task) -> list[FileLeak]:
        """Return the orphaned files; `task` counts directories. Raises OSError."""
        import asyncio  # noqa: PLC0415 - slow to import

        from seqgate.gateway.metadata.image import METADATA_TOPIC  # noqa: PLC0415
        from seqgate.log import parse_partition_directory  # noqa: PLC0415

        root = str(self._directory.path)
        entries = await asyncio.to_thread(self._storage.entries, root)
        found = await self._twice(self._leaks_of_root) if self._takes_rest else []
        names = [entry.name for entry in entries if entry.is_directory]
        task.total = len(names)
        for name in names:
            task.done += 1
            parsed = parse_partition_directory(name)
            if parsed is None or not self._is_partition(*parsed):
                continue
            if not self._owns(*parsed) and not (self._takes_rest and parsed[0] == METADATA_TOPIC):
                continue
            found += await self._twice(lambda name=name: self._leaks_of_partition(name))  # type: ignore[misc]
            if len(found) >= MAX_FOUND:
                break
        return found[:MAX_FOUND]

    async def _twice(self, find: Callable[[], Awaitable[list[FileLeak]]]) -> list[FileLeak]:
        """Return the leaks that two searches both find: a short-lived file is gone at the second search."""
        first = await find()
        if not first:
            return []
        again = set(await find())
        return [leak for leak in first if leak in again]

    async def _leaks_of_root(self) -> list[FileLeak]:
        import asyncio  # noqa: PLC0415 - slow to import

        from seqgate.log.stopped import LeakKind, leaks_of_directory  # noqa: PLC0415

        entries = await asyncio.to_thread(self._storage.entries, str(self._directory.path))
        found: list[FileLeak] = []
        for some in _pieces(entries, NAMES_PER_STEP):
            found += leaks_of_directory(
                some,
                other_names=self._other_names,
                is_partition=self._is_partition,
                waits=self._waits,
                before_ms=self._before_ms,
            )
            await asyncio.sleep(0)
        if self._metadata_log.is_changing:
            # the directories of a topic that is being deleted still have their final names
            found = [leak for leak in found if leak.kind is not LeakKind.PARTITION]
        if self._directory.share.is_whole:
            return found
        # another process may have created the directory of a partition meanwhile
        return [
            leak._replace(removable=leak.removable and leak.kind is not LeakKind.PARTITION) for leak in found
        ]

    def _is_partition(self, topic: str, index: int) -> bool:
        return is_partition(self._metadata_log.image, topic, index)

    def _owns(self, topic: str, index: int) -> bool:
        """Return whether no other process opens the partition, and deletes its files."""
        if self._directory.share.is_whole:
            return True
        found = self._topics.get(topic)
        return found is not None and found.unknown_or_led_elsewhere(index) is None

    async def _leaks_of_partition(self, name: str) -> list[FileLeak]:
        import asyncio  # noqa: PLC0415 - slow to import

        from seqgate.log import parse_partition_directory  # noqa: PLC0415
        from seqgate.log.stopped import OpenPartition, leaks_of_partition  # noqa: PLC0415

        path = f"{self._directory.path}/{name}"
        try:
            entries = await asyncio.to_thread(self._storage.entries, path)
        except FileNotFoundError:
            return []
        parsed, opened = parse_partition_directory(name), None
        log = None if parsed is None else self._directory.opened(*parsed)
        if log is not None and not log.offline:
            opened = OpenPartition(
                frozenset(list(log.segments.bases)), log.log_end_offset, log.recovery_point
            )
        compared = await asyncio.to_thread(
            lambda: list(
                leaks_of_partition(
                    name, entries, opened=opened, waits=lambda _: False, before_ms=self._before_ms
                )
            )
        )
        found: list[FileLeak] = []
        for some in _pieces(compared, NAMES_PER_STEP):
            found += (leak for leak in some if not self._waits(leak.path))
            await asyncio.sleep(0)
        return found

    def _waits(self, path: str) -> bool:
        """Return whether a path waits to be deleted, here or maybe in another process."""
        from seqgate.log import parse_partition_directory  # noqa: PLC0415 - slow to import
        from seqgate.log.stopped import DELETE_SUFFIX, DELETED_SUFFIX  # noqa: PLC0415

        if f"{self._directory.path}/{path}" in self._deletions:
            return True
        if self._directory.share.is_whole or not path.endswith((DELETED_SUFFIX, DELETE_SUFFIX)):
            return False
        parsed = parse_partition_directory(path.partition("/")[0])
        return parsed is None or not self._owns(*parsed)

    async def remove(self, leaks: Iterable[FileLeak], task: Task, *, unknown: bool) -> list[FileLeak]:
        """Delete the leaks in the background, as all files are deleted; return the leaks that were queued.
        Files of unknown names are deleted only with `unknown`. Each file is renamed first, in one step of the
        event loop, so that a new file of the same name is not deleted later.
        """
        import asyncio  # noqa: PLC0415 - slow to import

        removed = []
        chosen = [leak for leak in leaks if is_chosen(leak, unknown=unknown)]
        task.done, task.total = 0, len(chosen)
        for leak in chosen:
            task.done += 1
            try:
                self._remove(leak)
            except OSError as error:
                logger.warning("%s stays: %s", leak.path, error)
            else:
                removed.append(leak)
            await asyncio.sleep(0)
        return removed

    def _remove(self, leak: FileLeak) -> None:
        from seqgate.log import parse_partition_directory  # noqa: PLC0415 - slow to import
        from seqgate.log.stopped import LeakKind, rename_for_deletion  # noqa: PLC0415

        path = f"{self._directory.path}/{leak.path}"
        if leak.is_directory:
            if leak.kind is LeakKind.DELETED:
                self._deletions.add(path, self._now_ms(), is_directory=True)
                return
            parsed = parse_partition_directory(leak.path)
            if parsed is not None and not self._is_partition(*parsed):
                self._directory.delete_stray(*parsed)
            return
        with contextlib.suppress(FileNotFoundError):
            if leak.kind is not LeakKind.DELETED:
                path = rename_for_deletion(self._storage, path)
            self._deletions.add(path, self._now_ms())


def is_partition(image: MetadataImage, topic: str, index: int) -> bool:
    from seqgate.gateway.metadata.image import METADATA_TOPIC  # noqa: PLC0415 - slow to import

    return index == 0 if topic == METADATA_TOPIC else image.partition_named(topic, index) is not None


def is_chosen(leak: FileLeak, *, unknown: bool) -> bool:
    """Return whether a leak is deleted when the operator asks for deletion."""
    from seqgate.log.stopped import LeakKind  # noqa: PLC0415 - slow to import

    return leak.removable and (unknown or leak.kind is not LeakKind.UNKNOWN)


def _pieces(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while piece := list(itertools.islice(iterator, size)):
        yield piece


# In the gateway: state of groups and transactions about topics that no longer exist.

OWNERS_PER_STEP: Final = 100
ALL: Final = -1
"""The partition number that means all partitions of a topic."""
GRACE_MS: Final = 60_000
"""How long (ms) a transaction may stay open after its timeout; its coordinator aborts it before."""


class StateKind(StrEnum):
    OFFSET = "committed offset without a topic"
    SHARE_STATE = "share group state without a topic"
    TRANSACTION = "transaction without a topic"


class StateLeak(NamedTuple):
    """A piece of state about a deleted topic. `owner`: a group or transactional id; `topic`: a name or id."""

    kind: StateKind
    owner: str
    topic: str
    partition: int
    share_key: SharePartitionKey | None = None


class StateSweep:
    """One search of the coordinators for state about deleted topics, but for shards that can't be loaded.

    The coordinators delete such state when a topic is deleted. When a log fails or the gateway is killed in
    between, the state stays for as long as its group, until a sweep deletes it.
    """

    def __init__(self, services: Services) -> None:
        self._clock = services.node.clock
        self._metadata_log = services.topics.metadata_log
        self._image = self._metadata_log.image
        self._groups = services.coordinators.groups
        self._shares = services.coordinators.shares
        self._transactions = services.coordinators.transactions

    async def find(self, task: Task, most: int) -> list[StateLeak]:
        """Return at most `most` leaks; `task` counts groups and transactional ids."""
        import asyncio  # noqa: PLC0415 - slow to import

        if self._metadata_log.is_changing:
            # a topic may just be deleted, and coordinators do not know that yet
            return []
        task.done, task.total = 0, None
        found: list[StateLeak] = []
        for leaks in (self._offsets(), self._share_groups(), self._share_states(), self._overdue()):
            for some in leaks:
                found += some
                task.done += 1
                if len(found) >= most:
                    return found[:most]
                if task.done % OWNERS_PER_STEP == 0:
                    await asyncio.sleep(0)
        return found

    def _offsets(self) -> Iterator[list[StateLeak]]:
        for shard in self._groups.loaded_shards():
            for group_id in shard.offsets.groups():
                places = self._gone_places(shard, group_id)
                yield [StateLeak(StateKind.OFFSET, group_id, *place) for place in places]

    def _gone_places(self, shard: GroupShard, group_id: str) -> list[TopicPartition]:
        """Return the partitions that no longer exist, in which the group has offsets. Those of a topic that
        was created again are others.
        """
        records = shard.offsets.of_gone_topics(shard.topics, group_id)
        gone = {(record.topic, record.partition) for record in records}
        places = shard.offsets.places(group_id)
        return [place for place in places if place in gone or not self._exists(*place)]

    def _share_groups(self) -> Iterator[list[StateLeak]]:
        from seqgate.gateway.coordinator.share.records import SharePartitionKey  # noqa: PLC0415 - slow

        for shard in self._groups.loaded_shards():
            for group_id, group in list(shard.shares.groups.items()):
                yield [
                    StateLeak(
                        StateKind.SHARE_STATE, group_id, name, ALL, SharePartitionKey(group_id, topic_id, ALL)
                    )
                    for topic_id, name in group.topic_names.items()
                    if topic_id not in self._image.topics_by_id
                ]

    def _share_states(self) -> Iterator[list[StateLeak]]:
        shards = self._shares.shards
        shards.load_stored()
        for loaded in shards:
            states = loaded.shard.partitions
            for key in list(states) if loaded.is_current else ():
                topic = self._image.topics_by_id.get(key.topic_id)
                name = str(key.topic_id) if topic is None else topic.name
                leak = StateLeak(StateKind.SHARE_STATE, key.group_id, name, key.partition, key)
                yield [leak] if self._is_orphaned(key, states.get(key)) else []

    def _overdue(self) -> Iterator[list[StateLeak]]:
        """Yield open transactions that are long overdue and that nobody has ended."""
        from seqgate.gateway.coordinator.transaction.rules import is_overdue  # noqa: PLC0415 - slow to import

        now_ms = self._clock.now_ms()
        for name, transaction in self._transactions.all():
            is_late = is_overdue(transaction, now_ms, GRACE_MS)
            gone = [place for place in transaction.partitions if is_late and not self._exists(*place)]
            yield [StateLeak(StateKind.TRANSACTION, name, *place) for place in sorted(gone)]

    def _exists(self, topic: str, partition: int) -> bool:
        return is_partition(self._image, topic, partition)

    async def remove(self, leaks: Iterable[StateLeak], task: Task) -> list[StateLeak]:
        """Delete the leaks durably, and abort overdue transactions; return the leaks that were removed."""
        from seqgate.gateway.runtime.coordinators.shards import Unavailable  # noqa: PLC0415 - slow to import

        removed: list[StateLeak] = []
        by_owner: dict[tuple[StateKind, str], list[StateLeak]] = {}
        for leak in leaks:
            by_owner.setdefault((leak.kind, leak.owner), []).append(leak)
        task.done, task.total = 0, len(by_owner)
        for (kind, owner), of_owner in by_owner.items():
            task.done += 1
            try:
                if kind is StateKind.OFFSET:
                    await self._forget_offsets(owner, of_owner)
                elif kind is StateKind.SHARE_STATE:
                    await self._forget_share_state(owner, of_owner)
                else:
                    self._transactions.abort_overdue()
            except Unavailable as error:
                logger.warning("%s of %s could not be removed: %s", kind, owner, error)
                continue
            removed += of_owner
        return removed

    async def _forget_share_state(self, group_id: str, leaks: list[StateLeak]) -> None:
        keys = [leak.share_key for leak in leaks if leak.share_key is not None]
        stored = self._shares.stored
        states = [key for key in keys if key.partition != ALL]
        await stored.forget([key for key in states if self._is_orphaned(key, stored.find(key))])
        for key in keys:
            if key.partition == ALL and key.topic_id not in self._image.topics_by_id:
                await self._forget_topic(group_id, key.topic_id)

    async def _forget_topic(self, group_id: str, topic_id: uuid.UUID) -> None:
        """Delete the record that the group reads the topic. States of partitions are leaks of their own, at
        the gateways that store them: they may have dead letters.
        """
        await self._groups.run(
            group_id, lambda shard, effects: shard.forget_topics(group_id, {topic_id}, effects)
        )

    def _is_orphaned(self, key: SharePartitionKey, found: SharePartition | None) -> bool:
        """Return whether nobody needs a state: its partition is gone, and its dead letters are written."""
        is_gone = self._image.partition(key.topic_id, key.partition) is None
        return is_gone and found is not None and not found.is_sending

    async def _forget_offsets(self, group_id: str, leaks: list[StateLeak]) -> None:
        places = {(leak.topic, leak.partition) for leak in leaks}

        def forget(shard: GroupShard, effects: Effects) -> None:
            gone = [place for place in self._gone_places(shard, group_id) if place in places]
            shard.commits.forget(group_id, gone, effects)

        await self._groups.run(group_id, forget)


# In a data directory that no gateway has open. Finding leaks needs no lock and changes nothing; removing
# takes the directory's lock. Only files are swept: finding leaks in the state of groups and transactions
# takes a running gateway.

Progress = Callable[[int, int], None]
"""Called with the number of directories swept so far, and of all directories."""


def sweep_stopped(data_dir: Path, request: SweepRequest, now_ms: int, progress: Progress) -> SweepPage:
    """Return the leaks of a data directory, and remove those that the request names. Raises ControlError."""
    from seqgate.gateway.admin.stored import locked, read_image, whole_state  # noqa: PLC0415 - slow
    from seqgate.log import Storage  # noqa: PLC0415

    directory = whole_state(data_dir)
    storage = Storage()
    removed: set[FileLeak] = set()
    with locked(storage, data_dir) if request.remove else contextlib.nullcontext():
        image = read_image(directory)
        try:
            found = _find(storage, data_dir, image, now_ms - request.min_age_ms, progress)
            leaks = list(itertools.islice(found, MAX_FOUND))
            for leak in leaks if request.remove else ():
                if is_chosen(leak, unknown=request.unknown):
                    _remove(storage, data_dir / leak.path, leak)
                    removed.add(leak)
        except OSError as error:
            raise ControlError(f"{data_dir} can't be swept: {in_words(error)}") from error
    task = TaskRow(0, NAME, now_ms, 0, len(leaks), len(leaks), ended=True, failure=None)
    return SweepPage(STOPPED, task, len(leaks), leak_rows(leaks, removed))


def _find(
    storage: Storage, data_dir: Path, image: MetadataImage, before_ms: int, progress: Progress
) -> Iterator[FileLeak]:
    from seqgate.log import parse_partition_directory  # noqa: PLC0415 - slow to import
    from seqgate.log.stopped import leaks_of_directory, leaks_of_partition  # noqa: PLC0415

    entries = storage.entries(str(data_dir))
    yield from leaks_of_directory(
        entries,
        other_names=_own_names(),
        is_partition=lambda topic, index: is_partition(image, topic, index),
        waits=lambda _: False,
        before_ms=before_ms,
    )
    for done, entry in enumerate(entries, start=1):
        parsed = parse_partition_directory(entry.name) if entry.is_directory else None
        if parsed is not None and is_partition(image, *parsed):
            yield from leaks_of_partition(
                entry.name,
                storage.entries(str(data_dir / entry.name)),
                opened=None,
                waits=lambda _: False,
                before_ms=before_ms,
            )
        progress(done, len(entries))


def _remove(storage: Storage, path: Path, leak: FileLeak) -> None:
    if not leak.is_directory:
        storage.delete(str(path))
        return
    for name in storage.list_directory(str(path)):
        storage.delete(str(path / name))
    storage.delete_directory(str(path))
