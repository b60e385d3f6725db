"""Lists the open partition logs of one process by the background work that each log needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

L = TypeVar("L")


@dataclass(slots=True)
class LogLists(Generic[L]):
    """Logs in the order in which they were added. A log adds and removes itself."""

    delaying: dict[L, None] = field(default_factory=dict)
    """The logs whose topics delay records."""
    deduplicating: dict[L, None] = field(default_factory=dict)
    """The logs whose topics deduplicate by producer names."""
    due_for_snapshot: dict[L, None] = field(default_factory=dict)
    """The deduplicating logs that need a further replay, or whose names have changed so much that a snapshot is due."""
    waiting_for_other_partitions: dict[L, None] = field(default_factory=dict)
    """The deduplicating logs that refuse new names until all other partitions of their topic have replayed theirs."""
    recovering: dict[L, None] = field(default_factory=dict)
    """The offline logs that a thread recovers. Until that ends, their names are taken."""
    short_of_room: dict[L, None] = field(default_factory=dict)
    """The logs that are offline only because disk space, memory or file handles ran out."""
