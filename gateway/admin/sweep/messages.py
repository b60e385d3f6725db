"""The requests about sweeps and tasks, and what `seqgate sweep --json` and `seqgate tasks --json` print."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from seqgate.gateway.admin.request import POSITION, PagedRequest, Request
from seqgate.gateway.admin.tables import Column, count, duration, known, shown

DEFAULT_MIN_AGE_MS: Final = 3_600_000


def _name(name: str) -> str:
    return shown(name, 60)


class TaskRow(msgspec.Struct, frozen=True):
    """A task. `total` is None while it is unknown; `age_ms` is the time since the task began, up to its end.

    `failure` says why the task ended before it was done, None where it did not fail.
    """

    number: Annotated[int, Column("number", known)]
    name: Annotated[str, Column("task", _name)]
    begun_ms: int
    age_ms: Annotated[int, Column("for", duration)]
    done: Annotated[int, Column("done", count)]
    total: Annotated[int | None, Column("of", count, "")]
    ended: bool
    failure: str | None

    @property
    def state(self) -> Annotated[str, Column("state")]:
        """The state of the task as text."""
        if self.failure is not None:
            return f"failed: {self.failure}"
        return "done" if self.ended else "running"


class TaskPage(msgspec.Struct, frozen=True):
    """All tasks. `files_to_delete` counts the files that wait for deletion, and each directory of a deleted
    partition as one.
    """

    tasks: list[TaskRow]
    files_to_delete: int


class ListTasksRequest(Request[TaskPage], tag="tasks"):
    """The tasks under way, and the last ones that ended."""


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
        """The result in words: `removed`, `check it by hand`, or nothing for a leak that a sweep can remove."""
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
    name.

    Files that changed less than `min_age_ms` ago are not leaks.
    """

    remove: bool = False
    unknown: bool = False
    min_age_ms: int = DEFAULT_MIN_AGE_MS


class SweepResultRequest(PagedRequest[SweepPage], tag="sweep.result"):
    """The request for the leaks that a sweep has found so far, from leak `position` on; the task number names
    the sweep.
    """

    rows = "leaks"
    key = POSITION
    number: int
    position: int = 0
