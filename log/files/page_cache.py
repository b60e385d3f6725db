"""What of a file is in the operating system's page cache: asked without waiting for the disk, brought in, dropped.

Reading waits for the disk when a page is missing, and one who must not wait has to know before. `preadv2` with
`RWF_NOWAIT` tells (Linux 4.14 and later). Asking starts to read what is missing, which `be_asked` keeps to the pages
asked for: without it the kernel would read megabytes ahead that nobody accounts for.
Source: Linux's mm/filemap.c and mm/fadvise.c, preadv2(2), posix_fadvise(2).
"""

from __future__ import annotations

import errno
import os
from typing import Final

TELLS: Final = all(hasattr(os, name) for name in ("RWF_NOWAIT", "preadv", "posix_fadvise", "sendfile"))
"""Whether this system can be asked; a file system may still refuse."""
GRAIN_BYTES: Final = 256 << 10
"""The cache is filled and emptied in runs of many pages, so one page of so much is asked for."""
_REFUSALS: Final = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
_one_byte: Final = (bytearray(1),)


class Untold(Exception):
    """The file system does not tell what is cached."""


def be_asked(descriptor: int) -> None:
    """Prepare an open file for the questions below. Raises OSError."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


def is_cached(descriptor: int, position: int, size_bytes: int) -> bool:
    """Whether `size_bytes` bytes from `position` on, at least one of them in the file, can be read without waiting.

    Looks at samples. Raises Untold, OSError.
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
    """Fill the buffer with what is at `position` and return how much that is, -1 when it would mean to wait.

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
    """Wait until the bytes are in the cache and return how many there are. Raises OSError.

    They are asked for at once, so that the disk gets few large requests, and go nowhere, so that nothing is copied.
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
    """Take the bytes' pages out of the cache, as far as they are on the disk and whole; not every system can. Raises OSError."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, position, size_bytes, os.POSIX_FADV_DONTNEED)
