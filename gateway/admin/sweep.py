"""`seqgate sweep`: orphaned files and state.

The requests and rows, the command, the sweeps of a running gateway, and the sweep of a data directory that no
gateway has open.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.commands import Output, asks, flag, option
from seqgate.gateway.admin.options import Consent, Opened, consent_by, gateway, parsed
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
    from pathlib import Path

    from seqgate.gateway.metadata.image import MetadataImage
    from seqgate.gateway.runtime.loop.clock import Task
    from seqgate.gateway.runtime.services import Services
    from seqgate.gateway.runtime.upkeep.file_sweep import StateLeak
    from seqgate.log import Storage
    from seqgate.log.stopped import FileLeak

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
    """

    gateway: str
    task: TaskRow
    total: int
    leaks: list[LeakRow]


class SweepRequest(Request[TaskRow], tag="sweep"):
    """Begin a sweep. With `remove` it removes leaks of known kinds, with `unknown` also files of no known
    name. Files that changed less than `min_age_ms` ago are not leaks.
    """

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
    bucket (--cluster). The gateway serves requests meanwhile. In a data directory that no gateway has open:
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

    Exits with 1 when orphaned files or state remain.
    """  # noqa: D301 - \b keeps the lines of the list apart
    min_age_ms = parsed(duration_ms, min_age, "--min-age")
    with opened as client:
        page = consent.carry_out(
            lambda execute: _sweep(
                client, SweepRequest(remove=execute, unknown=unknown and execute, min_age_ms=min_age_ms)
            ),
            _text,
            "Remove them?",
            is_needed=lambda planned: planned.leaks,
        )
    return Output(page, _text(page), code=1 if any(not leak.removed for leak in page.leaks) else 0)


def _sweep(client: Client, request: SweepRequest) -> SweepPage:
    """Sweep a running gateway or a data directory, and wait until the sweep ends. Raises ControlError."""
    try:
        task = client.ask(request)
    except NotRunning:
        return sweep_stopped(client.data_dir, request, time.time_ns() // 1_000_000, _print_progress)
    while True:
        page = client.ask(SweepResultRequest(task.number))
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
        from seqgate.gateway.runtime.upkeep import file_sweep  # noqa: PLC0415 - slow to import

        services = self._services
        rows = self._found[task.number]
        files = file_sweep.FileSweep(
            services.partitions.log_directory,
            services.topics.metadata_log,
            other_names=_own_names(),
            now_ms=services.node.clock.now_ms,
            min_age_ms=request.min_age_ms,
        )
        state = file_sweep.StateSweep(
            services.node.clock,
            services.topics.metadata_log,
            services.coordinators.groups,
            services.coordinators.shares,
            services.coordinators.transactions,
        )
        file_leaks = await files.find(task)
        state_leaks = await state.find(task, file_sweep.MAX_FOUND - len(file_leaks))
        uploads = services.upkeep.find_uploads()
        orphans = [] if uploads is None else await uploads.find_orphans(request.min_age_ms)
        del orphans[max(0, file_sweep.MAX_FOUND - len(file_leaks) - len(state_leaks)) :]
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
    from seqgate.gateway.runtime.upkeep.file_sweep import ALL  # noqa: PLC0415 - slow to import

    place = leak.topic if leak.partition == ALL else f"{leak.topic}-{leak.partition}"
    return LeakRow(leak.kind, f"{leak.owner}: {place}", None, removable=True, removed=removed)


def _own_names() -> frozenset[str]:
    """Return the gateway's own files in the data directory, which `log` does not write."""
    from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE  # noqa: PLC0415 - slow to import

    return frozenset({SOCKET_NAME, SEEN_FILE, CONSOLE_HISTORY, f"{CONSOLE_HISTORY}.new"})


# In a data directory that no gateway has open. Finding leaks needs no lock and changes nothing; removing
# takes the directory's lock. Only files are swept: finding leaks in the state of groups and transactions
# takes a running gateway.

Progress = Callable[[int, int], None]
"""Called with the number of directories swept so far, and of all directories."""


def sweep_stopped(data_dir: Path, request: SweepRequest, now_ms: int, progress: Progress) -> SweepPage:
    """Return the leaks of a data directory, and remove those that the request names. Raises ControlError."""
    from seqgate.gateway.admin.stored import locked, metadata_directory, read_image  # noqa: PLC0415 - slow
    from seqgate.gateway.runtime.upkeep.file_sweep import MAX_FOUND, is_chosen  # noqa: PLC0415
    from seqgate.log import Storage  # noqa: PLC0415

    directory = metadata_directory(data_dir)
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
    from seqgate.gateway.runtime.upkeep.file_sweep import is_partition  # noqa: PLC0415 - slow to import
    from seqgate.log import parse_partition_directory  # noqa: PLC0415
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
