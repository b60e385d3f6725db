"""Slices of time for each simulated process: two gateways that run at the same time share the loop, but no
turn of it.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from tests.simulation.process import Process, process_of


class TurnsOfProcesses:
    """Stands in for the table by event loop in `seqgate.gateway.runtime.loop.slices`. A dead process holds no
    turn of another one.
    """

    def __init__(self) -> None:
        self._turns: WeakKeyDictionary[Process, Any] = WeakKeyDictionary()

    def get(self, _: asyncio.AbstractEventLoop) -> Any:
        return self._turns.get(process_of())

    def __setitem__(self, _: asyncio.AbstractEventLoop, turns: Any) -> None:
        self._turns[process_of()] = turns

    def pop(self, *_: object) -> None:
        """Do nothing: a new process has no turns yet."""
