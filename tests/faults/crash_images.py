"""Every moment at which the power can fail, and the contents that the disk can have then.

A life runs once. Before each operation, the disk and the promises made so far are copied. Each copy yields
the states that a power cut can leave: nothing or everything of the data that is not durable, every subset if
there are few, and random subsets if there are many. A state that was already seen with the same promises is
skipped.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from tests.faults.disk_contents import Enumeration
from tests.faults.simulated_disk import SimulatedDisk

Known = TypeVar("Known")
FEW = 24
"""Up to this number of possible states, all are tried; beyond it, a random sample."""


class Image(NamedTuple, Generic[Known]):
    """The disk before an operation, with the promises so far."""

    number: int
    operation: str
    disk: SimulatedDisk
    known: Known


class Left(NamedTuple):
    """The disk after one power cut, and a description by which the test can find the state again."""

    described: str
    disk: SimulatedDisk


def images(disk: SimulatedDisk, live: Callable[[], object], known: Callable[[], Known]) -> list[Image[Known]]:
    """Run a life on the disk; yield an image before each operation, and one at the end."""
    taken: list[Image[Known]] = []

    def take(operation: str) -> None:
        taken.append(Image(disk.plan.operations + 1, operation, disk.copy(), known()))

    disk.before_operation = take
    live()
    take("the end")
    disk.before_operation = None
    return taken


def left_by_power_cut(image: Image[object], samples: int, seen: set[object] | None = None) -> Iterator[Left]:
    """Return the states that a power cut can leave: all if there are few, otherwise the two extremes and
    `samples` random ones.
    """
    seen = set() if seen is None else seen
    for seed, left in _states(image, samples):
        key = left.fingerprint(), image.known.__repr__()
        if key not in seen:
            seen.add(key)
            yield Left(f"operation {image.number} ({image.operation}), {seed}", left)


def _states(image: Image[object], samples: int) -> Iterator[tuple[str, SimulatedDisk]]:
    for seed, words in ((0, "nothing of what is not durable"), (1, "everything")):
        left = image.disk.copy()
        left.power_cut_by_seed(seed)
        yield words, left
    every = _every_part(image.disk)
    if every is not None:
        for number, left in enumerate(every):
            yield f"part {number}", left
        samples //= 2
    for sample in range(samples):
        seed = 2 + sample + 1000 * image.number
        left = image.disk.copy()
        left.power_cut(random.Random(seed))
        yield f"seed {seed}", left


def _every_part(disk: SimulatedDisk) -> list[SimulatedDisk] | None:
    """Return each subset of whole writes and name changes; None if there are too many."""
    found = []
    choices = Enumeration()
    while len(found) < FEW:
        left = disk.copy()
        left.power_cut(choices, tears=False)
        found.append(left)
        if not choices.advance():
            return found
    return None
