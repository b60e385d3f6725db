"""The signals of the process that supervises workers: they wake it, and it looks what they ask for."""

from __future__ import annotations

import signal
import socket
from types import FrameType
from typing import Self

from gateway.stop_signals import STOPPING, ignore_stop_signals


class Signals:
    """Takes SIGTERM, SIGINT and SIGCHLD inside of a `with` block. Afterwards the process ignores the first two: it ends."""

    def __init__(self) -> None:
        """Take nothing yet."""
        self.is_stopping = False
        self.wakes, self._end = socket.socketpair()
        """A socket that can be read after a signal."""

    def __enter__(self) -> Self:
        """Take the signals."""
        for end in (self.wakes, self._end):
            end.setblocking(False)
        signal.set_wakeup_fd(self._end.fileno(), warn_on_full_buffer=False)
        for number in STOPPING:
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        return self

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.is_stopping = True

    def take(self) -> None:
        """Forget that signals came."""
        self.wakes.recv(4096)

    def __exit__(self, *_: object) -> None:
        """Take the signals no more."""
        ignore_stop_signals()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.wakes.close()
        self._end.close()
