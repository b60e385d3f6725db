"""Gives a gateway that a test starts with this folder on its PYTHONPATH a clock and a disk that the test
controls. Python imports this module at startup.

`SEQGATE_TEST_CLOCK` names a file of 8 bytes, the nanoseconds by which the wall clock is wrong (signed, native
order). `SEQGATE_TEST_DISK` names a file in the folder whose disk the test controls: while the file says
`low`, the disk reports no free space; while it says `full`, writes fail, too.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path


def _shift_clock(path: Path) -> None:
    with path.open("r+b") as file:
        shift = mmap.mmap(file.fileno(), 8)
    read = struct.Struct("=q").unpack_from
    real_ns, real = time.time_ns, time.time
    time.time_ns = lambda: real_ns() + int(read(shift)[0])
    time.time = lambda: real() + int(read(shift)[0]) / 1e9


def _limit_disk(flag: Path) -> None:
    folder = flag.resolve().parent
    write, pwritev, statvfs = os.write, os.pwritev, os.statvfs

    def check(descriptor: int) -> None:
        if flag.read_text() == "full" and Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(
            folder
        ):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def checked_write(descriptor: int, data: bytes) -> int:
        check(descriptor)
        return write(descriptor, data)

    def checked_pwritev(descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        check(descriptor)
        return pwritev(descriptor, buffers, position)

    def checked_statvfs(place: str) -> os.statvfs_result:
        told = statvfs(place)
        if not flag.read_text() or not Path(place).resolve().is_relative_to(folder):
            return told
        return os.statvfs_result((*told[:3], 0, 0, *told[5:]))

    os.write = checked_write  # type: ignore[assignment]
    os.pwritev = checked_pwritev  # type: ignore[assignment]
    os.statvfs = checked_statvfs  # type: ignore[assignment]


if "SEQGATE_TEST_CLOCK" in os.environ:
    _shift_clock(Path(os.environ["SEQGATE_TEST_CLOCK"]))
if "SEQGATE_TEST_DISK" in os.environ:
    _limit_disk(Path(os.environ["SEQGATE_TEST_DISK"]))
