"""Starts a worker as a copy of the process that supervises it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.stop_signals import STOPPING


class Closable(Protocol):
    """What a worker inherits, and must close: a worker learns of its supervisor's death by the end of a stream that nobody else has."""

    def close(self) -> None: ...


def fork_worker(run: Callable[[], int], inherited: Iterable[Closable]) -> int:
    """Return the pid of a new process that calls `run`, and exits with what it returns. This process must have one thread.

    SIGTERM and SIGINT wait in the new process until `run` unblocks them: it has the handlers of this process first, which would lose a
    signal, and then none, so that a signal would kill it. Raises OSError when the system has no room for a process.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        pid = os.fork()
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for one in inherited:
            one.close()
        code = run()
    except BaseException:  # noqa: BLE001 - nothing of the supervisor's stack may run in this process
        traceback.print_exc()
    finally:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
