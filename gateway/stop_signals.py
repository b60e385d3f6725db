"""The signals that stop a process: SIGINT from a terminal, SIGTERM from a service manager."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Final

STOPPING: Final = frozenset({signal.SIGTERM, signal.SIGINT})
_noted: Final[list[int]] = []
"""The signals that came between `defer_stop_signals` and the next program."""
IGNORED: Final = ctypes.c_void_p(1)
"""SIG_IGN of the C library."""
_libc_signal = ctypes.CDLL(None).signal
_libc_signal.argtypes, _libc_signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p


@contextlib.contextmanager
def signals_taken(
    stop: Callable[[], object], is_replaced: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Call `stop` at SIGINT and SIGTERM. Afterwards the process ignores both: it ends, and its exit code is
    settled. A handler of the event loop would fall back to the default action, which kills, as soon as the
    loop is closed. Where the process `is_replaced` by another program, the signals wait for that.
    """
    for number in STOPPING:
        signal.signal(number, lambda *_: stop())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)  # those that came since a fork, or a restart
    try:
        yield
    finally:
        if is_replaced():
            defer_stop_signals()
        else:
            ignore_stop_signals()


def defer_stop_signals() -> None:
    """Let both signals wait for the program that this process executes next. It inherits what is blocked in
    this thread, and what waits there; other threads may still take a signal, which is noted for it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    for number in STOPPING:
        signal.signal(number, lambda taken, _: _noted.append(taken))


def pass_stop_signals_on() -> None:
    """Let the signals wait that other threads have taken. Call this last before `execve`."""
    for number in _noted:
        signal.pthread_kill(threading.get_ident(), number)


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
