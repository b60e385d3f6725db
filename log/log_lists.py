"""The open partition logs of one process that background jobs look after, listed by what each of them needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

L = TypeVar("L")


@dataclass(slots=True)
class LogLists(Generic[L]):
    """Logs in the order in which they were listed; a log lists itself and takes itself off."""

    delaying: dict[L, None] = field(default_factory=dict)
    """The logs whose topics delay records."""
    deduplicating: dict[L, None] = field(default_factory=dict)
    """The logs whose topics deduplicate by producer names."""
    due_for_snapshot: dict[L, None] = field(default_factory=dict)
    """The deduplicating logs that must be replayed further, or whose names changed so much that a snapshot is due."""
    waiting_for_other_partitions: dict[L, None] = field(default_factory=dict)
    """The deduplicating logs that refused a new name until the names of their topics' other partitions are known."""
    short_of_room: dict[L, None] = field(default_factory=dict)
    """The logs that are offline only because the disk was full, or no memory or file handle was left."""
