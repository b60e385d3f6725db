"""The sweeps of a running gateway."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from seqgate.gateway.admin.request import CONSOLE_HISTORY, RUNNING, SOCKET_NAME, ControlError
from seqgate.gateway.admin.sweep.command import LeakRow, SweepPage, SweepRequest, SweepResultRequest
from seqgate.gateway.admin.tasks import TaskRow, task_row
from seqgate.gateway.runtime.loop.clock import Task
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE
from seqgate.gateway.runtime.upkeep.file_sweep import ALL, MAX_FOUND, FileSweep, StateLeak, StateSweep
from seqgate.log.stopped import FileLeak

NAME: Final = "sweep"
KEPT_RESULTS: Final = 4
"""Number of sweeps whose findings are kept. The results of older sweeps are dropped."""
OTHER_NAMES: Final = frozenset({SOCKET_NAME, SEEN_FILE, CONSOLE_HISTORY, f"{CONSOLE_HISTORY}.new"})
"""The gateway's own files in the data directory, which `log` does not write."""


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
        files = FileSweep(
            services.partitions.log_directory,
            services.topics.metadata_log,
            other_names=OTHER_NAMES,
            now_ms=services.node.clock.now_ms,
            min_age_ms=request.min_age_ms,
        )
        state = StateSweep(
            services.node.clock,
            services.topics.metadata_log,
            services.coordinators.groups,
            services.coordinators.shares,
            services.coordinators.transactions,
        )
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
