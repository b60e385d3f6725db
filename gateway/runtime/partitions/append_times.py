"""Times the appends of producers' batches, one now and then, because two looks at the clock cost a tenth of an append.

Between two measurements producers' batches go straight to `Partition.append`, so they pay nothing for being measured.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.durations import Durations
from gateway.runtime.partitions.partition import Partition
from log import Appended
from seq_validator import RefusedBefore

Append = Callable[..., Appended]


class AppendTimes:
    """Puts itself before `Partition.append` for one append whenever `arm` is called. A refused batch is not counted."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.durations = Durations()
        self._seconds = seconds
        self._followed: list[Callable[[Append], object]] = []

    def follow(self, append_with: Callable[[Append], object]) -> None:
        """Time appends of a part, which `append_with` tells the function to append with."""
        self._followed.append(append_with)

    def arm(self) -> None:
        """Time the next append."""
        for append_with in self._followed:
            append_with(self._append)

    def _append(
        self,
        partition: Partition,
        records: memoryview,
        now_ms: int,
        *,
        begins_at_zero: bool = False,
        before: RefusedBefore | None = None,
    ) -> Appended:
        """Append one batch as `Partition.append` does, and time it. Raises the same errors."""
        for append_with in self._followed:
            append_with(Partition.append)
        begun_s = self._seconds()
        info = partition.append(records, now_ms, begins_at_zero=begins_at_zero, before=before)
        self.durations.add(self._seconds() - begun_s)
        return info
