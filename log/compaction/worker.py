"""The process that cleans logs, apart from the gateway, because decoding records takes long.

The process reads jobs from standard input and writes reports to standard output (see `job`), until the input ends. It keeps no
state, so it can be killed at any time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

from log.compaction.cleaner import clean
from log.compaction.job import CleaningFailed, CleaningReport, UnknownJobVersion, decode_job, encode_report
from log.compaction.throttle import Throttle
from log.errors import LogError
from log.files.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from log.compaction.job import CleaningJob

_PR_SET_PDEATHSIG: Final = 1
_LENGTH_BYTES: Final = 4
_NICENESS: Final = 10
_SALT_BYTES: Final = 16


def main(parent_id: int) -> None:
    """Serve the process `parent_id`, which started this process, and exit when that process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with(parent_id)
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    serve(sys.stdin.buffer, sys.stdout.buffer)


def serve(jobs: BinaryIO, reports: BinaryIO) -> None:
    """Run the jobs one after the other."""

    def send(report: CleaningReport) -> None:
        frame = encode_report(report)
        reports.write(len(frame).to_bytes(_LENGTH_BYTES, "big") + frame)
        reports.flush()

    while length := jobs.read(_LENGTH_BYTES):
        try:
            job = decode_job(jobs.read(int.from_bytes(length, "big")))
        except UnknownJobVersion as error:
            send(CleaningFailed(str(error)))
            continue
        send(_done(job, send))


def _done(job: CleaningJob, send: Callable[[CleaningReport], None]) -> CleaningReport:
    throttle = Throttle(job.limits.bytes_per_s, time.monotonic, time.sleep)
    try:
        return clean(Storage(), job, throttle=throttle, salt=secrets.token_bytes(_SALT_BYTES), report=send)
    except (LogError, ValueError) as error:
        return CleaningFailed(f"{type(error).__name__}: {error}", is_corrupt=True)
    except (OSError, MemoryError) as error:
        return CleaningFailed(f"{type(error).__name__}: {error}", is_of_disk=isinstance(error, OSError))


def _die_with(parent_id: int) -> None:
    """Kill this process when its parent ends. Only Linux can; elsewhere this process ends after its present job."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_id:
        raise SystemExit
