"""Runs a command, and ends everything that it has started when it ends: `python -m tests.support.reaper
COMMAND`.

Tests start gateways, JVMs, browsers and searches, partly in sessions of their own. A worker that is
interrupted or killed can't end them any more. So this process adopts them (PR_SET_CHILD_SUBREAPER), and ends
them after the command, whatever ended it: Ctrl-C, SIGTERM, SIGHUP or its own end. A second signal ends
everything at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

PR_SET_CHILD_SUBREAPER: Final = 36
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end a run."""
PATIENCE_S: Final = 5.0
"""The time that processes get to end by themselves after SIGTERM."""


def run(command: Sequence[str]) -> int:
    """Run a command and end everything that it leaves; return its exit status, as a shell does."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # A shell starts what runs in the background with SIGINT ignored, and nohup with SIGHUP. The command must
    # not inherit that.
    command_pid = os.posix_spawnp(command[0], list(command), os.environ, setsigdef=ENDING)
    signals: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        signals.append(number)
        if len(signals) > 1:
            _signal_all(signal.SIGKILL)
        elif number != signal.SIGINT:  # the terminal sends that one to the command, too
            with contextlib.suppress(ProcessLookupError):
                os.kill(command_pid, number)

    for number in ENDING:
        signal.signal(number, interrupt)
    status = 0
    ended = 0
    while ended != command_pid:
        ended, status = os.waitpid(-1, 0)
    _end_all()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _end_all() -> None:
    """End all descendants, with SIGTERM first; say which there were."""
    names = sorted(_name(pid) for pid in _descendants())
    if not names:
        return
    print(f"ending {len(names)} processes that were left: {', '.join(names)}", file=sys.stderr)
    _signal_all(signal.SIGTERM)
    deadline_s = time.monotonic() + PATIENCE_S
    while _reap() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    while _reap():
        _signal_all(signal.SIGKILL)
        time.sleep(0.05)


def _reap() -> bool:
    """Collect the children that have ended; return whether others are left."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _signal_all(number: signal.Signals) -> None:
    for pid in _descendants():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _descendants() -> set[int]:
    parents = dict(_parents())
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def _parents() -> Iterator[tuple[int, int]]:
    """Yield each living process with its parent."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                yield int(stat.parent.name), int(parent)


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        return " ".join(words[:3]).strip()
    return str(pid)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
