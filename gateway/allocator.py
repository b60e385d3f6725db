"""Starts a gateway with the C library's memory allocator.

Python's own allocator gives memory back in blocks of a megabyte, and only blocks without any live object.
After three thousand topics were created and deleted, a few objects made meanwhile keep a fifth of the memory.
The C library gives back every free page.

This module imports no `typing`: what is imported before the process is replaced takes its time twice.
"""

from __future__ import annotations

import os
import sys

VARIABLE = "PYTHONMALLOC"
CHOSEN = "malloc"


def use_c_allocator() -> None:
    """Replace this process by one that uses the C library's allocator, unless the environment chooses an
    allocator. Python chooses its allocator once, before it runs any code. The process id stays.
    """
    if VARIABLE in os.environ or sys.platform != "linux":
        return
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, command, {**os.environ, VARIABLE: CHOSEN})  # noqa: S606 - its own arguments
