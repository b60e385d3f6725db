"""Runs the simulation in a process of its own, as the tests of fixed seeds do, some seeds in each tier."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.support.gateway_process import REPOSITORY

DISPLACED: Final = "import sys; padding = [bytearray(size) for size in range(9_000)]; del padding[::2]; "
"""The begin of a program whose objects have other places in memory than without it."""


def run(*arguments: str) -> tuple[int, str]:
    """Run Python with these arguments; return the exit code, and the output, after a failure both outputs."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr if done.returncode else done.stdout


def seeds_of_tiers(seeds: Mapping[str, range]) -> list[Any]:
    """Return the seeds of each tier as the parameter of a test, which runs in all of these tiers."""
    return [pytest.param(chosen, marks=pytest.mark.tier(tier), id=tier) for tier, chosen in seeds.items()]
