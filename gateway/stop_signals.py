"""The signals that stop a process: SIGINT from a terminal, SIGTERM from a service manager."""

from __future__ import annotations

import contextlib
import ctypes
import signal
from collections.abc import Callable, Iterator
from typing import Final

STOPPING: Final = frozenset({signal.SIGTERM, signal.SIGINT})
IGNORED: Final = ctypes.c_void_p(1)
"""SIG_IGN of the C library."""
_libc_signal = ctypes.CDLL(None).signal
_libc_signal.argtypes, _libc_signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p


@contextlib.contextmanager
def signals_taken(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at SIGINT and SIGTERM. Afterwards the process ignores both: it ends, and its exit code is
    settled. A handler of the event loop would fall back to the default action, which kills, as soon as the
    loop is closed.
    """
    for number in STOPPING:
        signal.signal(number, lambda *_: stop())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)  # those that came since a worker was forked
    try:
        yield
    finally:
        ignore_stop_signals()


def ignore_stop_signals() -> None:
    """Ignore both signals for good, also while the interpreter ends, which takes handlers away.

    The C library is told first, and Python's own table next, when no signal can come any more: one that came
    while Python changes its table would be reported as lost. Blocking the signals would not do, other threads
    would take them.
    """
    for number in STOPPING:
        _libc_signal(number, IGNORED)
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
