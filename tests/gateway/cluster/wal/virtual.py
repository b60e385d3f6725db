"""Runs a coroutine in virtual time."""

from __future__ import annotations

from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

from tests.simulation.loop import SimulatedLoop

T = TypeVar("T")


def in_virtual_time(work: Coroutine[Any, Any, T], seed: int = 1) -> T:
    """Run the work to its end, and check that no task failed unseen."""
    loop = SimulatedLoop(Random(seed))
    try:
        result = loop.run_until_complete(work)
        assert not loop.unhandled
        return result
    finally:
        loop.close()
