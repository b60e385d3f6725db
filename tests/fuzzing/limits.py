"""How much work and memory an input may cost, told in proportion to its size and to the machine."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

from tests.fuzzing.target import Breach, Run, Target

WORK_PER_BYTE = 0.02
"""Units of CPU time that each byte of an input may take; most take a thousandth."""
ATTEMPTS = 3
"""So often must an input take too long, as other work of the machine may have got in between."""
_ROUNDS = 5
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@cache
def unit_of_work() -> float:
    """Seconds of CPU time that a fixed piece of Python takes in this process, about a millisecond."""
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
    """Feed the input. Raises Breach when this thread works too long for so few bytes, and what `run` raises."""
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
    """Feed the input, within both limits."""
    check_memory(target, lambda data: check_work(target, run, data), data)


def check_memory(target: Target, run: Run, data: bytes) -> None:
    """Feed the input. Raises Breach when the process grows by too much meanwhile; only Linux tells."""
    if not _STATUS.exists():
        run(data)
        return
    _CLEAR.write_text("5")  # the peak counts from here on
    before = _status_bytes("VmRSS")
    run(data)
    grown = _status_bytes("VmHWM") - before
    if grown > target.PEAK_BYTES:
        raise Breach(
            f"{len(data)} bytes had the process grow by {grown} bytes; {target.PEAK_BYTES} are allowed"
        )


def _status_bytes(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024
