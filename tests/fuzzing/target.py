"""What a target of the fuzzing is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, cast

Run = Callable[[bytes], None]
"""Feeds one input. Whatever it raises is a breach of what the target promises."""


class Breach(AssertionError):
    """Bytes did what no bytes may do; the message is a sentence."""


class Target(Protocol):
    """A module of this package. `opened` may be entered once per process and is left at its end."""

    MAX_INPUT_BYTES: int
    """Longer inputs find nothing more."""
    PEAK_BYTES: int
    """How much memory one input may take for a moment."""
    BASE_WORK: float
    """CPU time that an input without bytes may take, in the units of `limits.unit_of_work`."""

    def opened(self) -> AbstractContextManager[Run]:
        """What is needed to feed inputs, and how to feed one."""

    def seeds(self) -> Iterator[bytes]:
        """Well-formed inputs to start from."""

    def mutated(self, data: bytes, chance: random.Random) -> bytes:
        """An input made of another one (or of nothing) by somebody who knows the format."""


def load(name: str) -> Target:
    """The target of that name; its modules are imported now."""
    import importlib

    return cast("Target", importlib.import_module(f"tests.fuzzing.{name}"))
