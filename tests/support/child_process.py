"""The part of a process that a test starts, and that works until its standard input ends."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

leaving = threading.Event()
"""Set when the test has closed the standard input: the process shall end."""


def follow_stdin() -> None:
    """Set `leaving` in the background at the end of standard input."""
    threading.Thread(target=_await_end_of_stdin, daemon=True).start()


@contextmanager
def ended_by_failures() -> Iterator[None]:
    """Print the traceback of a failure and end the process at once, so that no library finishes properly
    after it.
    """
    try:
        yield
    except Exception:
        traceback.print_exc()
        os._exit(1)


def _await_end_of_stdin() -> None:
    sys.stdin.read()
    leaving.set()
