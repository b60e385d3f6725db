"""Asks what is in the operating system's page cache, reads bytes into the page cache, and drops them from it.

A read waits for the disk when a page is missing, and the event loop must know that before. `preadv2` with `RWF_NOWAIT` answers
without waiting (Linux 4.14 and later). Such a question makes the kernel read the missing page. `be_asked` limits the kernel to
that page; otherwise the kernel would read megabytes ahead that nobody accounts for.
Source: Linux's mm/filemap.c and mm/fadvise.c, preadv2(2), posix_fadvise(2).
"""

from __future__ import annotations

import errno
import os
from typing import Final

TELLS: Final = all(hasattr(os, name) for name in ("RWF_NOWAIT", "preadv", "posix_fadvise", "sendfile"))
"""Whether this system reports what is cached; a file system may still refuse."""
GRAIN_BYTES: Final = 256 << 10
"""Bytes per sampled page: the kernel fills and empties the cache in runs of many pages, so one page stands for the run."""
_REFUSALS: Final = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
_one_byte: Final = (bytearray(1),)


class Untold(Exception):
    """The file system does not report what is cached."""


def be_asked(descriptor: int) -> None:
    """Switch off read-ahead for an open file, as `is_cached` and `read` require. Raises OSError."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


def is_cached(descriptor: int, position: int, size_bytes: int) -> bool:
    """Return whether `size_bytes` bytes from `position` on can be read without waiting for the disk.

    At least one of the bytes must be in the file. Checks one page per GRAIN_BYTES, and the last page. Raises Untold if the
    file system does not report what is cached, and OSError.
    """
    last = position + size_bytes - 1
    try:
        while position < last:
            os.preadv(descriptor, _one_byte, position, os.RWF_NOWAIT)
            position += GRAIN_BYTES
        os.preadv(descriptor, _one_byte, last, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _REFUSALS:
            raise Untold from error
        raise
    return True


def read(descriptor: int, buffer: memoryview, position: int) -> int:
    """Read into the buffer from `position` on, and return the number of bytes; -1 if the read would wait for the disk.

    Raises Untold, OSError.
    """
    try:
        count = os.preadv(descriptor, (buffer,), position, os.RWF_NOWAIT)
    except BlockingIOError:
        return -1
    except OSError as error:
        if error.errno in _REFUSALS:
            raise Untold from error
        raise
    if count < len(buffer) and position + count < os.fstat(descriptor).st_size:
        return -1
    return count


def bring_in(descriptor: int, position: int, size_bytes: int) -> int:
    """Wait until the bytes are in the page cache, and return how many of the bytes exist. Raises OSError.

    One call requests all bytes, so that the disk gets few large requests. Then sendfile moves the bytes to /dev/null, without
    copying them into this process.
    """
    os.posix_fadvise(descriptor, position, size_bytes, os.POSIX_FADV_WILLNEED)
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        done = 0
        while done < size_bytes:
            count = os.sendfile(nowhere, descriptor, position + done, size_bytes - done)
            if not count:
                break
            done += count
    finally:
        os.close(nowhere)
    return done


def drop(descriptor: int, position: int, size_bytes: int) -> None:
    """Drop the bytes' pages from the page cache: whole pages that are on the disk. Does nothing on systems that can't.

    Raises OSError.
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, position, size_bytes, os.POSIX_FADV_DONTNEED)
