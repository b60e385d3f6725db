"""What sweeps and tasks tell on the control socket, and what `seqgate sweep --json` and `seqgate tasks --json` print."""

from __future__ import annotations

import msgspec


class TaskRow(msgspec.Struct, frozen=True):
    """Long work. `total` is None while nobody knows it, `age_ms` since it began; `ended` tells whether it is over.

    `failure` says why it ended before it was done, None where it did not.
    """

    number: int
    name: str
    begun_ms: int
    age_ms: int
    done: int
    total: int | None
    ended: bool
    failure: str | None


class TaskPage(msgspec.Struct, frozen=True):
    """All tasks; `files_to_delete` counts what waits to be deleted, directories of deleted partitions as one each."""

    tasks: list[TaskRow]
    files_to_delete: int


class LeakRow(msgspec.Struct, frozen=True):
    """Something that belongs to nothing.

    `place` is a path in the data directory, or whose state it is. `size_bytes` is None where it has no size of its own.
    `removed` tells that it is gone, or is being deleted; `removable` whether a sweep would ever remove it.
    """

    kind: str
    place: str
    size_bytes: int | None
    removable: bool
    removed: bool


class SweepPage(msgspec.Struct, frozen=True):
    """One page of a sweep's `total` leaks. `gateway` is "running" or "stopped"; a stopped one's state is not looked at."""

    gateway: str
    task: TaskRow
    total: int
    leaks: list[LeakRow]
