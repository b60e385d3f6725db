"""Limits for the work and memory of an input, in proportion to its size and to the speed of the machine."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

from tests.fuzzing.target import Breach, Run, Target

WORK_PER_BYTE = 0.02
"""Units of CPU time that an input may take per byte; most inputs take a thousandth of this."""
ATTEMPTS = 3
"""An input must exceed the limit this many times. Once may be the fault of other work on the machine."""
_ROUNDS = 5
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@cache
def unit_of_work() -> float:
    """Measure the CPU seconds of a fixed piece of Python work in this process, about a millisecond."""
    taken = []
    for _ in range(_ROUNDS):
        before = time.thread_time()
        total = 0
        for number in range(10_000):
            total += _step(number)
        taken.append(time.thread_time() - before)
    return min(taken)


def _step(number: int) -> int:
    return number & 7


def check_work(target: Target, run: Run, data: bytes) -> None:
    """Feed the input and measure the CPU time of this thread.

    Raises Breach when the time is too long for the input's size, and passes on the errors of `run`.
    """
    allowed = (target.BASE_WORK + WORK_PER_BYTE * len(data)) * unit_of_work()
    for _ in range(ATTEMPTS):
        before = time.thread_time()
        run(data)
        taken = time.thread_time() - before
        if taken <= allowed:
            return
    units = taken / unit_of_work()
    raise Breach(
        f"{len(data)} bytes took {units:.0f} units of work, {allowed / unit_of_work():.0f} are allowed"
    )


def check(target: Target, run: Run, data: bytes) -> None:
    """Feed the input, with limits for time and memory."""
    check_memory(target, lambda data: check_work(target, run, data), data)


def check_memory(target: Target, run: Run, data: bytes) -> None:
    """Feed the input and measure memory. Raises Breach when the process grows too much. Only Linux reports
    memory.
    """
    if not _STATUS.exists():
        run(data)
        return
    _CLEAR.write_text("5")  # resets the peak
    before = _status_bytes("VmRSS")
    run(data)
    grown = _status_bytes("VmHWM") - before
    if grown > target.PEAK_BYTES:
        raise Breach(
            f"{len(data)} bytes made the process grow by {grown} bytes; {target.PEAK_BYTES} are allowed"
        )


def _status_bytes(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024
