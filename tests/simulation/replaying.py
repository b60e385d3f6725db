"""Runs the simulation in a process of its own, as the tests of fixed seeds do."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from tests.support.gateway_process import REPOSITORY

DISPLACED: Final = "import sys; padding = [bytearray(size) for size in range(9_000)]; del padding[::2]; "
"""The begin of a program whose objects have other places in memory than without it."""


def run(*arguments: str) -> tuple[int, str]:
    """Run Python with these arguments; return the exit code, and what was written to both outputs."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
