"""Starts a gateway with the C library's memory allocator.

Python's own allocator gives memory back in blocks of a megabyte, and only blocks without any live object.
After three thousand topics were created and deleted, a few objects made meanwhile keep a fifth of the memory.
The C library gives back every free page.

Its heap is asked for in huge pages, where the kernel has them for whoever asks (`madvise`, the default of most): a start has fewer page
faults then.
"""

from __future__ import annotations

import os
import sys
from typing import Final

VARIABLE: Final = "PYTHONMALLOC"
CHOSEN: Final = "malloc"
TUNABLES: Final = "GLIBC_TUNABLES"
HUGE_PAGES: Final = "glibc.malloc.hugetlb"


def use_c_allocator() -> None:
    """Replace this process by one that uses the C library's allocator, unless the environment chooses an allocator.

    Python chooses its allocator once, before it runs any code. The process id stays.
    """
    if VARIABLE in os.environ or sys.platform != "linux":
        return
    command = [sys.executable, *sys.orig_argv[1:]]
    environment = {**os.environ, VARIABLE: CHOSEN, TUNABLES: _with_huge_pages(os.environ.get(TUNABLES, ""))}
    os.execve(sys.executable, command, environment)  # noqa: S606 - this process's own arguments


def _with_huge_pages(tunables: str) -> str:
    """Return the settings of the C library, which colons separate, with huge pages unless they say something of these."""
    if HUGE_PAGES in tunables:
        return tunables
    return ":".join(filter(None, (tunables, f"{HUGE_PAGES}=1")))
