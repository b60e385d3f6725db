"""One timer for each group: it wakes the coordinator at the group's next deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.coordinator.deadlines import NEVER
from gateway.coordinator.group.shard import GroupShard
from gateway.runtime.operations.loaded_shard import LoadedShard


class GroupTimers:
    """Calls `due` with a shard and one of its groups when a deadline of the group is reached."""

    def __init__(self, due: Callable[[LoadedShard[GroupShard], str], None]) -> None:
        self._due = due
        self._timers: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        """The deadline (ms) and the timer of each group."""

    def set(self, loaded: LoadedShard[GroupShard], group_id: str, now_ms: int) -> None:
        """Set the timer to the group's next deadline. An earlier timer stays as it is."""
        deadline_ms = loaded.shard.members.next_deadline_ms(group_id)
        if deadline_ms is None or deadline_ms == NEVER:
            self.drop(group_id)
            return
        known = self._timers.get(group_id)
        if known is not None and known[0] <= deadline_ms:
            return
        self.drop(group_id)
        delay_s = max(0, deadline_ms - now_ms) / 1000
        timer = asyncio.get_running_loop().call_later(delay_s, self._ring, loaded, group_id)
        self._timers[group_id] = deadline_ms, timer

    def drop(self, group_id: str) -> None:
        """Cancel the timer of a group, if it has one."""
        known = self._timers.pop(group_id, None)
        if known is not None:
            known[1].cancel()

    def _ring(self, loaded: LoadedShard[GroupShard], group_id: str) -> None:
        self._timers.pop(group_id, None)
        if not loaded.failed:
            self._due(loaded, group_id)
