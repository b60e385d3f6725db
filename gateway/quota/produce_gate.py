"""Decides whether producers may append to a partition, between two measurements of its backlog.

Each append counts a size quota down, so that only the last batch exceeds it. A batch is refused before anything is
written, and its producer sends it again.
"""

from __future__ import annotations

from typing import Final

from gateway.quota.backlog import BacklogRules, Limit, Policy, Usage

UNLIMITED_BYTES: Final = 2**63 - 1


class ProduceGate:
    """The gate of one partition."""

    __slots__ = ("_why", "holds", "refused_batches", "room_bytes")

    def __init__(self) -> None:
        """Start with an open gate."""
        self._why = ""
        self.room_bytes = UNLIMITED_BYTES
        self.holds = False
        """Whether requests wait while the gate is closed, instead of being refused at once."""
        self.refused_batches = 0
        """Batches refused since the start."""

    @property
    def is_closed(self) -> bool:
        """Whether the gate takes no batch now."""
        return self.room_bytes <= 0

    def update(self, usage: Usage, rules: BacklogRules) -> None:
        """Open or close the gate according to a measurement."""
        self.holds = rules.policy is Policy.HOLD
        if usage.slowest is None:
            self.room_bytes = UNLIMITED_BYTES
            return
        room_bytes = UNLIMITED_BYTES
        if rules.quota_bytes >= 0:
            room_bytes = rules.quota_bytes + 1 - usage.backlog_bytes
        if usage.exceeded is Limit.QUOTA_MS:
            room_bytes = 0
            self._why = (
                f"group {usage.slowest.group} has not read a record that is {usage.age_ms} ms old; "
                f"{Limit.QUOTA_MS} is {rules.quota_ms}"
            )
        else:
            self._why = f"group {usage.slowest.group} has too many unread bytes; {Limit.QUOTA_BYTES} is {rules.quota_bytes}"
        self.room_bytes = room_bytes

    def count_append(self, size_bytes: int) -> None:
        """Count the bytes of an appended batch."""
        self.room_bytes -= size_bytes

    def refuse(self) -> str:
        """Count a batch that the closed gate refuses; return why it does."""
        self.refused_batches += 1
        return self._why
