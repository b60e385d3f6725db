"""The interface of a fuzz target."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, cast

Run = Callable[[bytes], None]
"""Feeds one input. Any exception means that the target handled the input wrongly."""


class Breach(AssertionError):
    """An input had an effect that no input may have; the message describes the effect."""


class Target(Protocol):
    """A module of this package. The context manager `opened` is entered before the first input, and left when
    the process ends."""

    MAX_INPUT_BYTES: int
    """The greatest size of an input; longer inputs find nothing more."""
    PEAK_BYTES: int
    """The most memory that one input may take at any moment."""
    BASE_WORK: float
    """CPU time that an input without bytes may take, in the units of `limits.unit_of_work`."""

    def opened(self) -> AbstractContextManager[Run]:
        """Set the target up; return the function that feeds one input."""

    def seeds(self) -> Iterator[bytes]:
        """Return well-formed inputs to start from."""

    def mutated(self, data: bytes, chance: random.Random) -> bytes:
        """Return an input made from another one, or from nothing, using knowledge of the format."""


def load(name: str) -> Target:
    """Import the target's module and return the target."""
    import importlib

    return cast("Target", importlib.import_module(f"tests.fuzzing.{name}"))
