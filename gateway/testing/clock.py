"""A clock that a test moves: the gateway's wall clock, its durations and its timers move together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from gateway.runtime.loop.machine import Machine
from log import Storage


class ShiftedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time a test can move forward, so that timers are due earlier."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        super().__init__()

    def time(self) -> float:
        """Return seconds of a clock that is never set, with what the test has added."""
        return super().time() + self.ahead_s


class FillableStorage(Storage):
    """The storage of the machine, which can seem to be full."""

    is_full = False

    def free_bytes(self, path: str) -> int:
        """Return the free space of the disk with `path`; 0 while the disk seems to be full."""
        return 0 if self.is_full else super().free_bytes(path)


class ShiftedMachine(Machine):
    """The machine with its clocks moved forward."""

    def __init__(self) -> None:
        self.disk = FillableStorage()
        super().__init__(storage=self.disk)
        self.ahead_s = 0.0
        self.clock = _ShiftedClock(self)

    def seconds(self) -> float:
        """Return seconds of a clock that is never set, with what the test has added."""
        return super().seconds() + self.ahead_s

    def boot_seconds(self) -> float:
        """Return seconds of a clock that counts suspensions, with what the test has added."""
        return super().boot_seconds() + self.ahead_s


class _ShiftedClock:
    def __init__(self, machine: ShiftedMachine) -> None:
        self._machine = machine
        self._clock = Machine().clock

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, with what the test has added."""
        return self._clock.now_ms() + round(self._machine.ahead_s * 1000)


class BrokerClock:
    """The clock of one broker. Retention, transactions, sessions and all else of the broker follow it; clients do not."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        """`advance` moves the broker's clocks by seconds, and returns when what is due has begun."""
        self._advance = advance

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Move the clock forward. Raises ValueError for a negative time."""
        by = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        if by < timedelta():
            raise ValueError(f"the clock only moves forward, not by {by}")
        self._advance(by.total_seconds())
