"""Prepares the process of a gateway: its memory stays, and it may open enough files."""

from __future__ import annotations

import contextlib
import ctypes
import resource
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # constants of glibc's malloc.h
KEPT_BLOCK_BYTES = 32 << 20
KEPT_FREE_BYTES = 16 << 20


def keep_freed_memory() -> None:
    """Tell the C library (`mallopt`) to keep the freed memory of large answers, instead of mapping new memory
    for each fetch.

    A newly mapped megabyte costs 256 page faults, more than filling it. Threads share one heap: under
    Python's lock they hardly ever allocate at the same time, and each further heap keeps some megabytes free.
    Only glibc has `mallopt`; other C libraries stay as they are.
    """
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_FREE_BYTES)
        libc.mallopt(M_ARENA_MAX, 1)


def open_files_limit() -> int:
    """Return how many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def raise_open_files_limit() -> None:
    """Raise the limit of open files as far as the system allows: connections and segments need files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 1 << 20) if hard != resource.RLIM_INFINITY else 1 << 20
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
