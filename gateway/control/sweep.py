"""Sweeps of a running gateway, and the long work that goes on in it. Raise ControlError."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from gateway.control.address import SOCKET_NAME
from gateway.control.errors import ControlError
from gateway.control.messages import MAX_PAGE_ROWS, SweepRequest, SweepResultRequest
from gateway.control.sweep_results import LeakRow, SweepPage, TaskPage, TaskRow
from gateway.runtime.loop.tasks import Task
from gateway.runtime.services import Services
from gateway.runtime.topics.producer_id_source import SEEN_FILE
from gateway.runtime.upkeep.file_sweep import MAX_FOUND, FileSweep
from gateway.runtime.upkeep.state_sweep import ALL, StateLeak, StateSweep
from log.directory.leaks import FileLeak

RUNNING: Final = "running"
NAME: Final = "sweep"
KEPT_RESULTS: Final = 4
THIS_QUESTION: Final = "seqgate tasks"
OTHER_NAMES: Final = frozenset({SOCKET_NAME, SEEN_FILE})
"""Files in the data directory that are not the log's."""


class Sweeps:
    """The sweep that runs, and what the last ones found."""

    def __init__(self, services: Services) -> None:
        """Begin with none."""
        self._services = services
        self._found: dict[int, list[LeakRow]] = {}

    def begin(self, request: SweepRequest) -> TaskRow:
        """Begin a sweep; there is one at a time."""
        if request.min_age_ms < 0:
            raise ControlError("an age is not negative")
        tasks = self._services.tasks
        running = next((task for task in tasks if task.name == NAME and task.ended_ms is None), None)
        if running is not None:
            raise ControlError(f"a sweep is under way; `seqgate tasks` tells of it (number {running.number})")
        task = tasks.begin(NAME)
        self._found[task.number] = []
        while len(self._found) > KEPT_RESULTS:
            del self._found[next(iter(self._found))]
        tasks.start(task, self._sweep(task, request))
        return self._row(task)

    async def _sweep(self, task: Task, request: SweepRequest) -> None:
        services = self._services
        rows = self._found[task.number]
        files = FileSweep(
            services.log_directory,
            services.metadata_log,
            other_names=OTHER_NAMES,
            now_ms=services.clock.now_ms,
            min_age_ms=request.min_age_ms,
        )
        state = StateSweep(services)
        file_leaks = await files.find(task)
        state_leaks = await state.find(task, MAX_FOUND - len(file_leaks))
        removed: set[FileLeak | StateLeak] = set()
        if request.remove:
            removed.update(await files.remove(file_leaks, task, unknown=request.unknown))
            removed.update(await state.remove(state_leaks, task))
        rows += leak_rows(file_leaks, removed)
        rows += [_state_row(leak, removed=leak in removed) for leak in state_leaks]

    def result(self, request: SweepResultRequest) -> SweepPage:
        """One page of what a sweep found."""
        if request.position < 0 or not 1 <= request.limit <= MAX_PAGE_ROWS:
            raise ControlError(f"a page begins at 0 or later and has 1 to {MAX_PAGE_ROWS} rows")
        task = self._services.tasks.get(request.number)
        rows = self._found.get(request.number)
        if task is None or rows is None:
            raise ControlError(f"there is no sweep of number {request.number}")
        page = rows[request.position : request.position + request.limit]
        return SweepPage(RUNNING, self._row(task), len(rows), page)

    def tasks(self) -> TaskPage:
        """All long work."""
        deletions = self._services.log_directory.environment.deletions
        rows = [self._row(task) for task in self._services.tasks if task.name != THIS_QUESTION]
        return TaskPage(rows, len(deletions))

    def _row(self, task: Task) -> TaskRow:
        ended_ms = task.ended_ms
        until_ms = self._services.clock.now_ms() if ended_ms is None else ended_ms
        return TaskRow(
            number=task.number,
            name=task.name,
            begun_ms=task.begun_ms,
            age_ms=max(0, until_ms - task.begun_ms),
            done=task.done,
            total=task.total,
            ended=ended_ms is not None,
            failure=task.failure,
        )


def leak_rows(leaks: Iterable[FileLeak], removed: Collection[object]) -> list[LeakRow]:
    """Files as they are told."""
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
